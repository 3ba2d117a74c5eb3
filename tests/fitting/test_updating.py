"""New rows folded into a fit: the same as solving on all rows by the maps of the fit, written out here."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from evenout import FairOutlierEnsemble, Groups
from evenout.core.cells import Cells, CrossFit, collect_cells
from evenout.core.content import row_numbers
from evenout.exceptions import AgedDetectorsWarning, InputError
from evenout.fitting.choose import open_tradeoffs, settle
from evenout.fitting.settings import Settings
from evenout.persistence import load_model, save_model

SETTINGS = [
    {},
    {"combination": "maximum", "bias_reduction": 0.5},
    {"weighting": "uniform", "judged_on": "training"},
    pytest.param({"scaling": "rank", "combination": "greedy", "confidence": 0.8}, marks=pytest.mark.long),
    {"scaling": "rank"},
    {"flag_rate_ratio": 0.6},
    {"correction": "published", "alpha": 3.0},
    {"correction": "nonnegative", "scaling": "zscore"},
]


def draw(n, seed, k=5):
    """Ready scores of k detectors; group c scores higher."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    common = rng.exponential(size=n)
    raw = common[:, None] * np.linspace(0.5, 1.5, k) + rng.exponential(size=(n, k))
    return raw + np.outer(groups == "c", np.linspace(1.2, 0.2, k)), groups


def fitted(**settings):
    raw, groups = draw(600, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a request that is not reached is not what is tested
        return FairOutlierEnsemble("precomputed", random_state=3, **settings).fit(raw, sensitive_features=groups)


def updated(model, *batches):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for raw, groups in batches:
            model.update(raw, sensitive_features=groups)
    return model


def beta(t_fit, t, weighting):
    """``exp(rank / n)`` of each t among those of the fit, the slow way."""
    if weighting == "uniform":
        return np.ones(len(t))
    return np.exp([((t_fit < x).sum() + (t_fit <= x).sum() + 1) / 2 / len(t_fit) for x in t])


def solved_on_all(first, old, new, new_folds, weighting):
    """Sums over the rows of all, by what the fit has learnt on all rows and without each fold."""
    raw = np.vstack([old[0], new[0]])
    names = {name: code for code, name in enumerate("abc")}
    codes = np.array([names[g] for g in np.append(old[1], new[1])])
    folds = np.append(first._result.seen.folds, new_folds)
    n_old = len(old[0])
    parts = {}
    for place, model in enumerate(first._result.maps.models):
        S, t = model.of_raw(raw)
        learnt_on = np.flatnonzero(folds[:n_old] != place - 1)
        weights = beta(t[learnt_on], t, weighting)
        if weighting == "rank" and place > 0:  # inside of a fold, the fit ranks its rows among themselves
            own = np.flatnonzero(folds[:n_old] == place - 1)
            weights[own] = np.exp(rankdata(t[own]) / len(own))
        inside = (folds == place - 1).astype(int)
        parts[place] = collect_cells(S, t, weights, codes, inside, n_groups=3, n_sets=2)
        base = model.base_weights()
        if base is not None:
            parts[place] = replace(parts[place], base=np.repeat(base[None], 2, axis=0))
    outside = [parts[f].at(slice(0, 1)) for f in range(6)]
    within = [parts[f].at(slice(1, 2)) for f in range(1, 6)]
    return CrossFit(outside[0], Cells.stacked(outside[1:]), Cells.stacked(within), refitted=False)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_an_update_is_what_solving_on_all_rows_by_the_same_maps_gives(settings):
    first, old, new = fitted(**settings), draw(600, 0), draw(900, 1)
    folds = (row_numbers(new[0], 3) % np.uint64(5)).astype(int)
    cross = solved_on_all(first, old, new, folds, settings.get("weighting", "rank"))
    model = updated(fitted(**settings), new)
    settings = Settings.read(model.get_params(deep=False))
    path = open_tradeoffs(settings, cross)
    for mine, theirs in ((model.path_.cross.whole, cross.whole), (model.path_.cross.training, cross.training),
                         (model.path_.cross.held, cross.held)):  # fmt: skip
        np.testing.assert_allclose(mine.plain, theirs.plain, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(model.path_.cross.whole.weighted, cross.whole.weighted, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(model.path_.cross.training.weighted, cross.training.weighted, rtol=1e-11, atol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        path, choice, *_ = settle(settings, path, model._result.seen)
    assert model._result.choice.alpha == pytest.approx(choice.alpha, rel=1e-9)
    np.testing.assert_allclose(model.weights_, path.weights(choice.alpha), rtol=1e-9, atol=1e-9)
    scores = model.outlier_scores(np.vstack([old[0], new[0]]))
    np.testing.assert_allclose(model.outlier_scores_, scores, rtol=1e-9, atol=1e-9)
    assert -model.offset_ == pytest.approx(np.percentile(scores, 90), rel=1e-9)
    assert (model.n_rows_, model.group_counts_.sum()) == (1500, 1500)


def test_two_updates_are_one():
    one = updated(fitted(), draw(900, 1))
    raw, groups = draw(900, 1)
    two = updated(fitted(), (raw[:300], groups[:300]), (raw[300:], groups[300:]))
    assert two.alpha_ == pytest.approx(one.alpha_, rel=1e-9)
    np.testing.assert_allclose(two.weights_, one.weights_, rtol=1e-9, atol=1e-9)
    assert two.offset_ == pytest.approx(one.offset_, rel=1e-9)


def test_detectors_stay_and_weights_move(data):
    X, groups = data
    half = np.arange(len(X)) < 400
    model = FairOutlierEnsemble("paper", random_state=0).fit(X[half], sensitive_features=groups[half])
    before, pool = model.weights_.copy(), model._result.scores.pool
    S = model.detector_scores(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AgedDetectorsWarning)
        model.update(X[~half], sensitive_features=groups[~half])
    assert model._result.scores.pool is pool
    np.testing.assert_array_equal(model.detector_scores(X), S)
    assert np.abs(model.weights_ - before).max() > 1e-6
    assert model.n_rows_ == 800
    assert model.target_.shape == (800,)


def test_a_stored_model_is_updated_likewise(tmp_path):
    model, new = fitted(), draw(900, 1)
    save_model(model, tmp_path / "model.skops", updatable=True)
    again = updated(load_model(tmp_path / "model.skops"), new)
    updated(model, new)
    assert again.alpha_ == model.alpha_
    np.testing.assert_array_equal(again.weights_, model.weights_)
    save_model(again, tmp_path / "again.skops", updatable=True)
    twice = load_model(tmp_path / "again.skops")
    np.testing.assert_array_equal(twice.outlier_scores(new[0]), model.outlier_scores(new[0]))


def test_more_rows_than_room_are_thinned_evenly():
    model = fitted(reference_size=1000)
    for seed in range(1, 5):
        updated(model, draw(2000, seed))
    assert model.n_rows_ == 8600
    assert model.group_counts_.sum() == 8600
    assert 850 < len(model.target_) < 1150
    raw = np.vstack([draw(600, 0)[0], *(draw(2000, seed)[0] for seed in range(1, 5))])
    above = (model.outlier_scores(raw) > -model.offset_).mean()
    assert 0.06 < above < 0.14


@pytest.mark.filterwarnings("ignore::evenout.exceptions.DriftWarning")
def test_scores_that_have_moved_are_told():
    raw, groups = draw(800, 1)
    with pytest.warns(AgedDetectorsWarning, match=r"by 5 of 5 detectors .* a refit is due"):
        fitted().update(raw + 1.0, sensitive_features=groups)
    one = raw.copy()
    one[:, 2] += 1.0
    with pytest.warns(AgedDetectorsWarning, match=r"by 1 of 5 detectors .* \(score_2 "):
        fitted().update(one, sensitive_features=groups)


def test_scores_that_have_not_moved_are_not_told():
    """Batches of the same population: none is said to have aged, not even small ones."""
    model = fitted(alpha=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AgedDetectorsWarning)
        for seed in range(15):
            raw, groups = draw(20 + 60 * seed, 100 + seed)
            model.update(raw, sensitive_features=groups)


def test_small_and_unknown_groups_are_counted_and_not_compared():
    raw, groups = draw(600, 0)
    groups = groups.astype(object)
    groups[:5] = "tiny"
    with pytest.warns(UserWarning, match="tiny"):
        model = FairOutlierEnsemble("precomputed", random_state=3, alpha=1.0, groups=Groups(unknown="ignore")).fit(
            raw, sensitive_features=groups
        )
    new, more = draw(200, 1)
    more = more.astype(object)
    more[0], more[1] = "tiny", None
    model.update(new, sensitive_features=pd.Series(more))
    assert model.left_out_groups_ == {"tiny": 6}
    assert (model.n_rows_, model.group_counts_.sum()) == (800, 793)


@pytest.mark.parametrize(
    ("model", "new", "words"),
    [
        (lambda: fitted(), (draw(50, 1)[0], ["new"] * 50), "'new'; known are"),
        (lambda: fitted(), (draw(50, 1)[0], None), "sensitive_features is missing"),
        (lambda: fitted(), (draw(50, 1)[0], ["a"] * 49), "has 49 rows, but X has 50"),
        (lambda: fitted(), (draw(50, 1)[0], ["a"] * 49 + [None]), "missing values in 1 of 50 rows"),
        (lambda: FairOutlierEnsemble(), draw(50, 1), "not fitted"),
    ],
)
def test_what_cannot_be_added_is_said_and_leaves_the_model(model, new, words):
    fit = model()
    before = vars(fit).copy()
    with pytest.raises(ValueError, match=words):
        fit.update(new[0], sensitive_features=new[1])
    assert vars(fit) == before


def test_sums_that_do_not_add_are_refused(data):
    X, groups = data
    individual = FairOutlierEnsemble("paper", fairness="individual", alpha=1.0, random_state=0)
    individual.fit(X[:300], sensitive_features=groups[:300])
    with pytest.raises(InputError, match="fairness='individual' compares pairs of rows, whose sums do not add"):
        individual.update(X[300:], sensitive_features=groups[300:])
    raw, names = draw(400, 0)
    weighted = FairOutlierEnsemble("precomputed", alpha=1.0).fit(
        raw, sensitive_features=names, sample_weight=np.ones(400)
    )
    with pytest.raises(InputError, match="the fit has sample_weight; fit again"):
        weighted.update(raw, sensitive_features=names)
    old = fitted(alpha=1.0)
    old._result = replace(old._result, maps=None)
    with pytest.raises(InputError, match=r"an update needs the groups of the training rows.*updatable=True"):
        old.update(raw, sensitive_features=names)
