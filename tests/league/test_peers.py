"""Each peer has the property that its paper claims, on data of that kind, and is what its formula says."""

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr
from sklearn.ensemble import IsolationForest
from sklearn.metrics import balanced_accuracy_score

from evenout import FairOutlierEnsemble, Groups
from evenout.metrics import demographic_parity, flag_rate_ratio
from league.contract import BASE, find_methods
from league.judging import judge
from league.methods import dropped_features, evenout_weights, fairlof, group_thresholds, plain_forest

torch = pytest.importorskip("torch")
networks = pytest.importorskip("league.networks")
deep_fair_svdd, fairod, pruned_ensemble = (
    pytest.importorskip(f"league.methods.{name}") for name in ("deep_fair_svdd", "fairod", "pruned_ensemble")
)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def found(method, halving, length=1.0):
    """Scores of all settings."""
    return dict(method.scores(halving.task(uses_group=method.uses_group, seed=0, length=length)))


def rank_bias(y, halving):
    return demographic_parity(rankdata(y), sensitive_features=halving.new_groups, scale_free=True, corrected=True)


@pytest.mark.long
def test_networks_side_by_side_are_trained_as_if_each_were_alone():
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32))

    def train(networks_, places):
        step = networks.descend(networks_.parameters)
        for rows in networks.batches(64, 5, networks.seeded(1), size=16):
            step(sum(((networks_(X[rows])[place] - X[rows]) ** 2).mean() for place in places))
        return networks_

    both = networks.Stack((4, 3, 4), 2, networks.seeded(0))
    alone = both.copies(1, 1)
    train(both, (0, 1)), train(alone, (0,))
    for stacked, single in zip(both.parameters, alone.parameters, strict=True):
        assert torch.allclose(stacked[1], single[0], atol=1e-6)


def test_a_stack_is_the_plain_network():
    stack = networks.Stack((5, 4, 2), 3, networks.seeded(0))
    X = torch.rand(7, 5, generator=networks.seeded(1))
    for place in range(3):
        hidden = torch.relu(X @ stack.weights[0][place] + stack.shifts[0][place])
        assert torch.allclose(stack(X)[place], hidden @ stack.weights[1][place] + stack.shifts[1][place], atol=1e-6)


def test_fairod_penalties_are_those_of_the_formulas():
    """Correlations by numpy, and an NDCG by loops, where scores are so far apart that smooth ranks are ranks."""
    rng = np.random.default_rng(0)
    groups = np.array([0] * 6 + [1] * 5 + [2] * 4)
    s, b = rng.permutation(15).astype(float), rng.random(15)
    member = torch.from_numpy((groups == np.arange(3)[:, None]).astype(np.float32))
    slow = sum(abs(np.corrcoef(s, groups == g)[0, 1]) for g in range(3))
    smooth = torch.from_numpy(s[None].astype(np.float32))
    assert fairod.parity(smooth, member).item() == pytest.approx(slow, rel=1e-5)
    missing = 0.0
    for g in range(3):
        gains = 2 ** b[groups == g] - 1
        places = (-s[groups == g]).argsort().argsort()
        missing += (
            1 - (gains / np.log2(2 + places)).sum() / (np.sort(gains)[::-1] / np.log2(2 + np.arange(len(gains)))).sum()
        )
    loss = fairod.infidelity(smooth, torch.from_numpy(b.astype(np.float32)), member)
    assert loss.item() == pytest.approx(missing, rel=1e-4)
    assert fairod.infidelity(torch.from_numpy(b[None]) * 1e3, torch.from_numpy(b), member.double()).item() < 1e-6


@pytest.mark.long
def test_fairod_closes_the_gap_of_its_base_and_fidelity_keeps_its_list(make_half, monkeypatch):
    """The paper's claims: more weight on parity, more even; the ranking term keeps rows in their places."""
    monkeypatch.setattr(fairod, "HIDDEN", 2)
    halving = make_half("variance", rows=1000)
    scores = found(fairod.METHOD, halving, length=0.4)
    bias = {setting: rank_bias(y, halving) for setting, y in scores.items()}
    assert bias[BASE] > 0.1
    for gamma in fairod.GAMMAS:
        each = [bias[f"alpha {alpha:g}, gamma {gamma:g}"] for alpha in fairod.ALPHAS]
        assert sorted(each) == each
        assert each[0] < 0.3 * bias[BASE]

    def kept(setting):
        groups = (halving.new_groups == g for g in (0, 1))
        return np.mean([spearmanr(scores[setting][rows], scores[BASE][rows])[0] for rows in groups])

    for alpha in fairod.ALPHAS:
        assert kept(f"alpha {alpha:g}, gamma 1") > kept(f"alpha {alpha:g}, gamma 0.01")


@pytest.mark.long
def test_the_adversary_of_deep_fair_svdd_is_brought_towards_chance_and_scores_become_even(make_half):
    """The paper's claim: with lambda, codes tell the adversary less of the group, and scores are more even."""
    halving = make_half("shift", rows=1500)
    X, new = networks.z_scores(halving.X, halving.new)
    groups = torch.from_numpy(halving.groups)
    encoder, centre, adversary = deep_fair_svdd.train(X, groups, (0.0, 10.0), [50, 150, 1500], 0)
    with torch.no_grad():
        told = deep_fair_svdd.guess(adversary, encoder(new)).argmax(dim=-1).numpy()
    right = [balanced_accuracy_score(halving.new_groups, each) for each in told]
    assert right[0] > 0.7
    assert right[1] < 0.5 + 0.5 * (right[0] - 0.5)
    found = networks.apply(lambda rows: deep_fair_svdd.distances(encoder, centre, rows), new)
    assert rank_bias(found[1], halving) < 0.5 * rank_bias(found[0], halving)


def test_without_a_strength_deep_fair_svdd_is_deep_svdd_and_its_loss_falls(halving):
    X, _ = networks.z_scores(halving.X, halving.new)
    groups = torch.from_numpy(halving.groups)
    near = []
    for steps in ([1, 1, 0], [200, 1, 0]):
        encoder, centre, _ = deep_fair_svdd.train(X, groups, (0.0,), steps, 0)
        near.append(networks.apply(lambda rows, e=encoder, c=centre: deep_fair_svdd.distances(e, c, rows), X).mean())
    assert near[1] < 0.5 * near[0]


@pytest.mark.long
def test_pruning_drops_the_submodels_that_tell_the_groups_and_evens_the_ensemble_out(halving, monkeypatch):
    monkeypatch.setattr(pruned_ensemble, "NETWORKS", 48)
    monkeypatch.setattr(pruned_ensemble, "FEATURES", 2)
    task = halving.task(uses_group=False, seed=0, length=0.3)
    known, _ = pruned_ensemble.submodels(task)
    unfair = pruned_ensemble.unfairness(known, halving.groups)
    y, apart = known[0], []
    for g in range(3):
        one, others = y[halving.groups == g][:, None], y[halving.groups != g]
        apart.append(abs(((one > others) + 0.5 * (one == others)).mean() - 0.5))
    assert unfair[0] == pytest.approx(np.mean(apart))
    scores = dict(pruned_ensemble.METHOD.scores(task))
    bias = {setting: rank_bias(y, halving) for setting, y in scores.items()}
    assert bias["75% dropped"] < bias["25% dropped"] < bias[BASE]


def test_fairlof_that_evens_out_narrows_the_gap_and_the_printed_sign_widens_it(make_half):
    halving = make_half("under_representation", rows=1200)
    bias = {setting: rank_bias(y, halving) for setting, y in found(fairlof.METHOD, halving).items()}
    assert bias["k 20, lambda 1.0, even"] < 0.8 * bias[BASE]
    assert bias["k 20, lambda 1.0, printed"] > 1.2 * bias[BASE]


def test_thresholds_per_group_flag_all_groups_alike_and_need_the_group(make_half):
    halving = make_half("variance", rows=4000, n_groups=3)
    assert group_thresholds.METHOD.uses_group
    scores = found(group_thresholds.METHOD, halving)
    groups = {"sensitive_features": halving.new_groups, "contamination": 0.2}
    assert flag_rate_ratio(scores["strength 1"], **groups) > 0.75 > flag_rate_ratio(scores[BASE], **groups)
    for g in range(3):  # within a group the order stays
        rows = halving.new_groups == g
        assert (np.argsort(scores["strength 1"][rows]) == np.argsort(scores[BASE][rows])).mean() > 0.98


def test_the_correlation_remover_leaves_no_linear_trace_of_two_groups(make_half):
    """On the kind of data that it is made for: groups that differ in their means."""
    remover = pytest.importorskip("league.methods.correlation_remover")
    halving = make_half("shift", rows=1000)
    bias = {setting: rank_bias(y, halving) for setting, y in found(remover.METHOD, halving).items()}
    assert bias["alpha 1"] < 0.1 * bias[BASE]


def test_the_features_that_tell_the_group_go_first(make_half):
    halving = make_half("shift", rows=1000)
    telling = dropped_features.telling(halving.X, halving.groups)
    assert telling[4:].min() > 10 * telling[:4].max()
    slow = (
        1
        - sum(halving.X[halving.groups == g, 0].var() * (halving.groups == g).mean() for g in (0, 1))
        / halving.X[:, 0].var()
    )
    assert telling[0] == pytest.approx(slow)
    bias = {setting: rank_bias(y, halving) for setting, y in found(dropped_features.METHOD, halving).items()}
    assert abs(bias["50% dropped"]) < 0.1 * bias[BASE]


def test_the_plain_forest_is_scikit_learns(halving):
    forest = IsolationForest(random_state=0).fit(halving.X)
    assert (found(plain_forest.METHOD, halving)[BASE] == -forest.score_samples(halving.new)).all()


def test_ours_is_the_estimator_as_users_have_it(halving):
    model = FairOutlierEnsemble(bias_reduction=0.8, groups=Groups(min_size=10), random_state=0)
    model.fit(halving.X, sensitive_features=halving.groups)
    scores = found(evenout_weights.METHOD, halving)
    assert np.allclose(scores["0.8"], model.outlier_scores(halving.new))
    assert (scores[BASE] == model.base_scores(halving.new)).all()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_two_runs_with_one_seed_agree_in_all_but_time(make_half, monkeypatch):
    """Networks and forests; the estimator's own tests see to its own."""
    monkeypatch.setattr(pruned_ensemble, "NETWORKS", 8)
    halving = make_half("shift", rows=200)
    methods, _ = find_methods()
    for method in (method for method in methods.values() if not method.ours):
        runs = [[each[:-1] for each in judge(method, halving, 7, length=0.02)] for _ in range(2)]
        assert runs[0] == runs[1], method.name
        assert len({each[0] for each in runs[0]}) == len(runs[0])
