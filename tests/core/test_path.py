from dataclasses import replace

import numpy as np
import pytest

from evenout.core.cells import collect_cells
from evenout.core.exceptions import NoGapWarning, TargetNotReachedWarning
from evenout.core.forms import NAMED_NOTIONS, NOTIONS, individual_form, parity_form, parity_noise
from evenout.core.path import TradeoffPath, open_path
from evenout.metrics import demographic_parity

DP = {"demographic_parity": 1.0}
IF = {"individual": 1.0}
ALPHAS = np.array([0.0, 1.0, 10.0, 300.0])


def refit_out_of_fold(problem, alpha, form):
    """Scores of each fold by weights solved, with plain linear algebra, on the rows of the other folds."""
    y = np.empty(len(problem.t))
    for fold in range(problem.cells.n_folds):
        rows, out = problem.folds != fold, problem.folds == fold
        S, t, beta, groups = problem.S[rows], problem.t[rows], problem.beta[rows], problem.groups[rows]
        C = form(S, groups, problem.X[rows])
        scaled = alpha * rows.sum() / len(rows)
        w = np.linalg.solve((S.T * beta) @ S + scaled * C, S.T @ (beta * t))
        y[out] = problem.S[out] @ w
    return y


def parity_by_hand(S, groups, X):  # noqa: ARG001
    means = np.array([S[groups == g].mean(axis=0) for g in range(3)])
    gaps = [means[0] - means[1], means[0] - means[2], means[1] - means[2]]
    return sum(np.outer(gap, gap) for gap in gaps) / 3


@pytest.mark.parametrize("unknown", [0, 11])
def test_unseen_parity_equals_explicit_refits(make, unknown):
    problem = make(unknown=unknown)
    path = TradeoffPath(problem.cells, DP)
    known = problem.groups >= 0
    for alpha in ALPHAS:
        y = refit_out_of_fold(problem, alpha, parity_by_hand)
        expected = (
            demographic_parity(y[known], sensitive_features=problem.groups[known], corrected=True) / y.var()
        )
        assert path.bias(alpha, "unseen") == pytest.approx(expected, rel=1e-8)


def test_unseen_individual_equals_explicit_refits(problem):
    """Held-out pairs are those with both rows in one fold; the distances keep the range of all cross-group pairs."""
    X, groups, folds = problem.X, problem.groups, problem.folds
    distance = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    cross = groups[:, None] != groups[None]
    low, high = distance[cross].min(), distance[cross].max()
    M = np.exp(-(distance - low) / (high - low))

    def form(S, g, rows_X):
        rows = np.array([np.flatnonzero((x == X).all(axis=1))[0] for x in rows_X])
        C = np.zeros((S.shape[1], S.shape[1]))
        for p, q in ((0, 1), (0, 2), (1, 2)):
            P, Q = np.flatnonzero(g == p), np.flatnonzero(g == q)
            D = S[P][:, None] - S[Q][None]
            C += np.einsum("ij,ijk,ijl->kl", M[np.ix_(rows[P], rows[Q])], D, D) / (len(P) * len(Q)) / 3
        return C

    path = TradeoffPath(problem.cells, IF)
    for alpha in (0.0, 50.0):
        y = refit_out_of_fold(problem, alpha, form)
        squared = (y[:, None] - y[None]) ** 2
        same = folds[:, None] == folds[None]
        ratios = []
        for p, q in ((0, 1), (0, 2), (1, 2)):
            held = same & (groups[:, None] == p) & (groups[None] == q)
            ratios.append((M * squared)[held].sum() / M[held].sum())
        assert path.bias(alpha, "unseen") == pytest.approx(np.mean(ratios) / y.var(), rel=1e-4)


@pytest.mark.parametrize(("fairness", "form"), [(DP, parity_form), (IF, individual_form)])
def test_path_agrees_with_definitions_on_scores(problem, fairness, form):
    path = TradeoffPath(problem.cells, fairness)
    C = form(problem.cells)[:-1, :-1]
    for alpha in ALPHAS:
        y = problem.S @ path.weights(alpha)
        assert path.f1(alpha) == pytest.approx(problem.beta @ (y - problem.t) ** 2, rel=1e-9)
        assert path.f2(alpha) == pytest.approx(path.weights(alpha) @ C @ path.weights(alpha), rel=1e-6)


def test_training_bias_is_the_plain_scale_free_measure(problem):
    path = TradeoffPath(problem.cells, DP)
    for alpha in ALPHAS:
        y = problem.S @ path.weights(alpha)
        expected = demographic_parity(y, sensitive_features=problem.groups, scale_free=True)
        assert path.bias(alpha, "training") == pytest.approx(expected, rel=1e-7, abs=1e-14)
    expected = demographic_parity(problem.t, sensitive_features=problem.groups, scale_free=True)
    assert path.target_bias("training") == pytest.approx(expected, rel=1e-9)
    corrected = demographic_parity(
        problem.t, sensitive_features=problem.groups, scale_free=True, corrected=True
    )
    assert path.target_bias("unseen") == pytest.approx(corrected, rel=1e-9)


def test_methods_are_vectorised(problem):
    path = TradeoffPath(problem.cells, DP)
    square = ALPHAS.reshape(2, 2)
    assert path.weights(1.0).shape == (5,)
    assert path.weights(square).shape == (2, 2, 5)
    for method in (path.f1, path.f2, path.bias, path.reduction):
        assert method(square).shape == (2, 2)
        assert method(square)[1, 0] == pytest.approx(method(10.0))


@pytest.mark.parametrize("target", ["training", "unseen"])
@pytest.mark.parametrize("request_", [0.3, 0.6])
def test_alpha_for_is_the_smallest_that_meets_the_request(make, target, request_):
    path = TradeoffPath(make((300, 200, 150), gap=1.5).cells, DP)
    alpha = path.alpha_for(request_, target)
    assert alpha > 0
    assert path.reduction(alpha, target) >= request_
    assert path.reduction(alpha * (1 - 1e-5), target) < request_
    below = path.reduction(np.linspace(0, alpha * (1 - 1e-4), 200), target)
    assert (below < request_).all()


def test_request_met_at_zero_gives_zero(make):
    path = TradeoffPath(make((300, 200), gap=1.5).cells, DP)
    assert path.alpha_for(float(path.reduction(0.0)) - 1e-9) == 0.0


def test_request_met_exactly_is_met(make):
    path = TradeoffPath(make((300, 200, 150), gap=1.5).cells, DP)
    alpha = path.alpha_for(0.3)
    assert path.alpha_for(float(path.reduction(alpha))) == alpha
    assert path.search(lambda alphas: np.full(len(alphas), 0.5), 0.5) == (0.0, 0.5)


@pytest.mark.parametrize("place", [0.01, 0.5, 40.0])  # of the grid's first alpha, and beyond it
def test_search_finds_the_first_step_of_a_measure(problem, place):
    path = TradeoffPath(problem.cells, DP)
    step, last = place * path.grid()[0], 0.99 * path.grid()[-1]

    def measure(alphas):
        return ((alphas >= step) & (alphas < 1e3 * step)) + 2.0 * (alphas >= last)

    alpha, value = path.search(measure, 1.0)
    assert value == 1.0
    assert step <= alpha <= step * (1 + 2e-6)
    assert last <= path.search(measure, 2.0)[0] <= last * (1 + 2e-6)
    assert path.search(measure, 3.0) == (path.grid()[-1], 2.0)  # never met: the alpha of the largest
    assert path.search(lambda alphas: np.where(alphas > 0, np.nan, 0.5), 1.0) == (0.0, 0.5)


def test_notion_that_says_nothing_of_the_target_has_no_reduction(problem):
    path = TradeoffPath(replace(problem.cells, own=np.eye(5)), {"own": 1.0})
    assert path.target_bias() == 0.0
    assert np.isnan(path.reduction(ALPHAS)).all()
    assert not path.gap_detected
    assert np.isnan(path.gap_p_value)


def test_two_notions_without_a_group_gap_become_one(make):
    both = {"demographic_parity": 1.0, "individual": 1.0}
    even, uneven = make((80, 60), gap=0.0, seed=1), make((80, 60), gap=6.0)
    assert not TradeoffPath(even.cells, DP).gap_detected
    with pytest.warns(NoGapWarning, match="only individual fairness"):
        path = open_path(even.cells, both, noise_aware=True, constraint="simplex")
    assert (path.fairness, path.noise_aware, path.constraint) == (IF, True, "simplex")
    assert open_path(uneven.cells, both).fairness == both
    assert open_path(even.cells, DP).fairness == DP  # one notion is kept, and nothing said of it yet


def test_errors_of_two_notions_add_as_if_independent(problem):
    path = TradeoffPath(problem.cells, {"demographic_parity": 1.0, "individual": 3.0})
    V = path.fold_weights(ALPHAS, "unseen")
    unit = np.broadcast_to(np.eye(6)[-1], (5, 1, 6))
    parts = [
        weight
        * NOTIONS[name].error(problem.cells, V)
        / abs(NOTIONS[name].bias(problem.cells, unit, unseen=True))
        for name, weight in path.fairness.items()
    ]
    np.testing.assert_allclose(path.standard_error(ALPHAS), np.hypot(*parts) / 4, rtol=1e-9)


def test_unreachable_request_warns_and_takes_the_least_bias(make):
    path = TradeoffPath(make((60, 40, 30), k=2, gap=1.5).cells, DP)
    with pytest.warns(TargetNotReachedWarning, match="the most is"):
        alpha = path.alpha_for(1.0, "training")
    assert path.reduction(alpha, "training") == pytest.approx(
        path.reduction(path.grid(), "training").max(), abs=1e-9
    )


def test_no_gap_in_the_population_is_said(make):
    detected = [
        TradeoffPath(make((80, 60), gap=0.0, seed=s, pairs=False).cells, DP).gap_detected for s in range(60)
    ]
    assert np.mean(detected) < 0.15  # the test's level is 5 %
    seed = detected.index(False)
    path = TradeoffPath(make((80, 60), gap=0.0, seed=seed, pairs=False).cells, DP)
    with pytest.warns(NoGapWarning, match="sampling noise"):
        assert path.alpha_for(0.8) == 0.0


def test_real_gap_is_detected(make):
    assert all(
        TradeoffPath(make((80, 60), gap=6.0, seed=s, pairs=False).cells, DP).gap_detected for s in range(20)
    )


def test_rows_in_another_order_and_renamed_groups_change_nothing(problem, build):
    order = np.random.default_rng(7).permutation(len(problem.t))
    renamed = np.array([2, 0, 1])[problem.groups]
    other = build(problem.X[order], problem.S[order], problem.t[order], renamed[order])
    for fairness in (DP, IF):
        one, two = TradeoffPath(problem.cells, fairness), TradeoffPath(other.cells, fairness)
        tolerance = 1e-10 if fairness is DP else 1e-6  # float32 kernels behind the pair sums
        np.testing.assert_allclose(one.weights(ALPHAS), two.weights(ALPHAS), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(
            one.bias(ALPHAS), two.bias(ALPHAS), rtol=tolerance * 10, atol=tolerance * 10
        )


def test_both_notions_measure_in_units_of_the_target(problem):
    path = TradeoffPath(problem.cells, {"demographic_parity": 1.0, "individual": 3.0})
    assert path.target_bias("training") == pytest.approx(1.0)
    w = path.weights(5.0)
    V = np.broadcast_to(np.r_[w, 0.0], (5, 1, 6))
    unit = np.broadcast_to(np.eye(6)[-1], (5, 1, 6))
    shares = {
        name: NOTIONS[name].bias(problem.cells, V, unseen=False)[0]
        / NOTIONS[name].bias(problem.cells, unit, unseen=False)[0]
        for name in NAMED_NOTIONS
    }
    expected = (shares["demographic_parity"] + 3 * shares["individual"]) / 4
    assert path.bias(5.0, "training") == pytest.approx(expected)


def test_table_lists_what_the_methods_say(problem):
    path = TradeoffPath(problem.cells, DP)
    table = path.table(ALPHAS)
    assert list(table.columns) == [
        "alpha",
        "f1",
        "f2",
        "bias_training",
        "reduction_training",
        "bias_unseen",
        "reduction_unseen",
        "error_unseen",
    ]
    np.testing.assert_allclose(table["bias_unseen"], path.bias(ALPHAS))
    assert path.table()["alpha"].iloc[0] == 0.0
    assert len(path.table()) == 101


def test_bad_alpha_and_target_are_refused(problem):
    path = TradeoffPath(problem.cells, DP)
    with pytest.raises(ValueError, match="alpha must be 0 or larger"):
        path.weights(-1.0)
    with pytest.raises(ValueError, match="alpha must be 0 or larger"):
        path.f1(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="'unseen' or 'training'"):
        path.bias(1.0, "test")


def test_constant_target_has_no_gap(make):
    problem = make(pairs=False)
    flat = np.zeros_like(problem.t)
    cells = collect_cells(problem.S, flat, problem.beta, problem.groups, problem.folds, n_groups=3, n_folds=5)
    path = TradeoffPath(cells, DP)
    assert not path.gap_detected
    assert np.isnan(path.reduction(1.0))
    assert path.weights(1.0) == pytest.approx(np.zeros(5))
    assert np.isnan(path.bias(1.0))
    assert path.alpha_range(0.001, 0.99) == (0.0, 0.0)


@pytest.mark.parametrize("fairness", [DP, IF])
def test_alpha_range_removes_the_shares_asked_for(problem, fairness):
    path = TradeoffPath(problem.cells, fairness)
    left = path.f2(np.array(path.alpha_range(0.001, 0.99))) / path.f2(0.0)
    assert left == pytest.approx([0.999, 0.01], rel=1e-6)


def test_noise_aware_path_keeps_its_definitions(problem):
    path = TradeoffPath(problem.cells, DP, noise_aware=True)
    C = parity_form(problem.cells)[:-1, :-1]
    for alpha in ALPHAS:
        w = path.weights(alpha)
        assert path.f1(alpha) == pytest.approx(problem.beta @ (problem.S @ w - problem.t) ** 2, rel=1e-9)
        assert path.f2(alpha) == pytest.approx(w @ C @ w, rel=1e-9)
    assert path.weights(ALPHAS.reshape(2, 2)).shape == (2, 2, 5)
    assert path.f1(ALPHAS.reshape(2, 2)).shape == (2, 2)


@pytest.mark.parametrize("constraint", ["nonnegative", "simplex"])
def test_noise_aware_path_gives_a_zero_detector_no_weight(problem, build, constraint):
    padded = np.column_stack([problem.S, np.zeros(len(problem.S))])
    cells = build(problem.X, padded, problem.t, problem.groups, pairs=False).cells
    W = TradeoffPath(cells, DP, noise_aware=True, constraint=constraint).weights(np.r_[ALPHAS, 1e6])
    np.testing.assert_array_equal(W[:, -1], 0.0)
    assert (W[:, :-1].sum(axis=1) > 0.01).all()


def test_bias_stays_what_it_is_where_the_weights_vanish(problem):
    path = TradeoffPath(problem.cells, IF)
    assert np.abs(path.weights(1e200)).max() < 1e-190
    assert path.bias(1e200) == pytest.approx(path.bias(1e20), rel=1e-6)
    assert path.standard_error(1e200) == pytest.approx(path.standard_error(1e20), rel=1e-6)


def test_noise_aware_weights_solve_their_equations(problem):
    A, b, _ = problem.cells.least_squares()
    H = A + 1e-4 * np.diag(A).mean() * np.eye(5)
    C = (parity_form(problem.cells) + parity_noise(problem.cells))[:-1, :-1]
    path = TradeoffPath(problem.cells, DP, noise_aware=True)
    for alpha in ALPHAS:
        np.testing.assert_allclose(path.weights(alpha), np.linalg.solve(H + alpha * C, b), rtol=1e-8)


def test_noise_aware_path_keeps_nearly_equal_detectors_from_cancelling(problem, build):
    """Two detectors that differ by one part in a million, and a target that needs their difference."""
    rng = np.random.default_rng(0)
    twin = problem.S[:, 0] + 1e-6 * rng.normal(size=len(problem.t))
    t = problem.t + 1e5 * (twin - problem.S[:, 0])
    near = build(problem.X, np.column_stack([problem.S, twin]), (t - t.min()) / np.ptp(t), problem.groups)
    published, robust = (
        TradeoffPath(near.cells, DP, noise_aware=aware).weights(0.0) for aware in (False, True)
    )
    assert np.abs(published).max() > 1e3
    assert np.abs(robust).max() < 10


def test_noise_aware_path_removes_more_of_the_true_gap():
    """Many detectors, few rows, a small true gap: solved against noise, the population keeps less of it."""
    rng = np.random.default_rng(4)
    left = {False: [], True: []}
    for _ in range(12):
        groups = np.repeat([0, 1], 60)
        direction = rng.uniform(0.5, 1.0, size=25)
        shared = rng.exponential(size=(120, 1))
        S = shared + rng.exponential(size=(120, 25)) + 0.5 * groups[:, None] * direction
        t = S.mean(axis=1)
        cells = collect_cells(S, t, np.ones(120), groups, np.arange(120) % 5, n_groups=2, n_folds=5)
        for aware in left:
            w = TradeoffPath(cells, DP, noise_aware=aware).weights(1e6)
            variance = 1.0 * w.sum() ** 2 + (w**2).sum()  # of the shared and of the own parts
            left[aware].append((0.5 * w @ direction) ** 2 / variance)
    assert np.mean(left[True]) < np.mean(left[False])
