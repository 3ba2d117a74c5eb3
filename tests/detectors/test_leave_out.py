"""Scores without a fold are those of detectors fitted on the other rows: compared with such a refit, by hand."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyod.models import knn
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from evenout.datasets import load_dataset
from evenout.detectors import neighbours, search
from evenout.detectors.fairlof import FairLOF
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.pool import cross_fit_pool, fit_pool
from evenout.detectors.tails import Tails

NEAR = {"lof": (5, 10, 15, 20, 25, 30), "knn": (2, 4, 6, 8, 10)}
SIZES = (25, 50, 75)


def simulated(n=500, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 4.0 * rng.integers(0, 3, size=(n, 1))
    X[::25] = rng.uniform(-8.0, 16.0, size=X[::25].shape)
    return X


def with_copies(n=400):
    X = simulated(n)
    return np.concatenate([X, X[::4], X[::16], np.repeat(X[:2], 40, axis=0)])


def lattice(side, d):
    return np.stack(np.meshgrid(*[np.arange(side, dtype=float)] * d), axis=-1).reshape(-1, d)


def near_underflow():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3)) * 10.0 ** rng.integers(-300, 31, size=(150, 3))
    return np.clip(np.concatenate([X, 1e-300 * lattice(4, 3), X[:40]]), -1e30, 1e30)


TABLES = {
    "no ties": simulated(),
    "copies": with_copies(),
    "rounded": np.round(simulated(900, 2)),
    "lattice": lattice(8, 3),
    "german": load_dataset("german").X.to_numpy(dtype=float)[:600],
    "equal rows": np.ones((80, 2)),
    "extreme": near_underflow(),
    "one feature": simulated(300, 1),
}


def dealt(X, n_folds=5, seed=0):
    return np.random.default_rng(seed).permutation(len(X)) % n_folds


def regions(X):
    """Folds that hold whole regions: rows near a boundary lose nearly all of their neighbours."""
    return (np.lexsort(X.T).argsort(kind="stable") * 4) // len(X)


def locations(X):
    """Folds that hold all copies of a row, or none."""
    return np.unique(X, axis=0, return_inverse=True)[1].ravel() % 3


def refitted(fit, X, folds, fold):
    """Training scores of the rows outside the fold, and the fold's rows scored as new ones."""
    model, training = fit(X[folds != fold])
    out = np.empty((len(X), training.shape[1]))
    out[folds != fold], out[folds == fold] = training, model.score(X[folds == fold])
    return out


def quietly(X):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_neighbors")
        return Neighbours.fit(X, **NEAR)


@pytest.mark.parametrize("deal", [dealt, regions, locations])
@pytest.mark.parametrize("X", TABLES.values(), ids=TABLES)
def test_neighbours_equal_a_refit_bit_for_bit(X, deal):
    folds = deal(X)
    if (folds == folds[0]).all():
        folds = dealt(X)
    model, scores, without = Neighbours.cross_fit(X, folds, **NEAR)
    plain, expected = Neighbours.fit(X, **NEAR)
    assert_array_equal(scores, expected)
    for name in ("locations", "counts", "lof", "knn", "k_distance", "density", "scores"):
        assert_array_equal(getattr(model, name), getattr(plain, name))
    for fold in np.unique(folds):
        assert_array_equal(without(fold), refitted(quietly, X, folds, fold))


@pytest.fixture
def asked(monkeypatch):
    """How many locations were searched for one by one, beside the one search for all."""
    searches = []

    def spy(data, k, *, queries=None, n_threads=1):
        searches.append(0 if queries is None else len(queries))
        return search(data, k, queries=queries, n_threads=n_threads)

    search = neighbours.nearest
    monkeypatch.setattr(neighbours, "nearest", spy)
    return searches


@pytest.mark.parametrize("small", [0, search.SMALL_SEARCH], ids=["by blocks", "one by one"])
@pytest.mark.parametrize("X", [simulated(), with_copies(), lattice(8, 3)], ids=["no ties", "copies", "lattice"])
def test_rows_with_too_few_neighbours_left_are_searched_for_again(X, small, asked, monkeypatch):
    monkeypatch.setattr(search, "SMALL_SEARCH", small)
    monkeypatch.setattr(neighbours, "SPARE", -30.0)  # no more than needed with all rows
    folds = dealt(X)
    _, _, without = Neighbours.cross_fit(X, folds, **NEAR)
    found = [without(fold) for fold in range(5)]
    assert sum(asked) > len(X) / 4
    assert_array_equal(found, [refitted(quietly, X, folds, fold) for fold in range(5)])


def test_lists_are_long_enough_for_nearly_all_rows(asked):
    X = simulated(2000, 6)
    _, _, without = Neighbours.cross_fit(X, dealt(X), **NEAR)
    for fold in range(5):
        without(fold)
    assert asked[0] == 0
    assert sum(asked) < 0.01 * 5 * len(X)


@pytest.mark.parametrize("n", [2, 3, 8, 31, 33, 38])
def test_tiny_data_are_refitted_with_no_further_warning(n):
    X = np.round(simulated(n, 2), 1)
    folds = dealt(X, min(n, 3)) if n > 2 else np.array([-1, -1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, scores, without = Neighbours.cross_fit(X, folds, **NEAR)
    assert len(caught) == (n < 31)
    assert_array_equal(scores, quietly(X)[1])
    for fold in np.unique(folds[folds >= 0]):
        assert_array_equal(without(fold), refitted(quietly, X, folds, fold))
    assert_array_equal(without(99), scores)  # a fold without rows


def test_a_fold_that_leaves_one_row_is_refused():
    X = simulated(40)
    folds = np.ones(40, dtype=int)
    folds[3] = 0
    _, _, without = Neighbours.cross_fit(X, folds, **NEAR)
    with pytest.raises(ValueError, match="X has 1 row"):
        without(1)


def test_number_of_threads_does_not_matter():
    X = np.round(simulated(4500, 3), 1)
    folds = dealt(X)
    _, scores, without = cross_fit_pool("paper", X, folds, seed=0)
    _, same, again = cross_fit_pool("paper", X, folds, seed=0, n_threads=2)
    assert_array_equal(same, scores)
    assert_array_equal(again(2), without(2))
    _, _, without = Forest.cross_fit(X[:400], folds[:400], sizes=SIZES, random_state=0)
    _, _, again = Forest.cross_fit(X[:400], folds[:400], sizes=SIZES, random_state=0, n_threads=2)
    assert_array_equal(again(2), without(2))


FAMILIES = {
    "neighbours": lambda X, folds: Neighbours.cross_fit(X, folds, **NEAR),
    "forest": lambda X, folds: Forest.cross_fit(X, folds, sizes=SIZES, random_state=0),
    "tails": Tails.cross_fit,
    "given": lambda X, folds: cross_fit_pool(
        [LocalOutlierFactor(7), IsolationForest(n_estimators=30)], X, folds, seed=4
    ),
    "group-aware": lambda X, folds: cross_fit_pool([FairLOF()], X, folds, seed=0, sensitive_features=groups_of(X)),
}


def groups_of(X):
    return np.array(["a", "b", "b"])[np.arange(len(X)) % 3]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_fold_has_no_say_in_the_scores_without_it(family):
    X = np.round(simulated(300), 1)
    folds = dealt(X)
    other = X.copy()
    other[folds == 1] = simulated(int((folds == 1).sum()), seed=9) * 100.0
    one, two = family(X, folds)[2](1), family(other, folds)[2](1)
    assert_array_equal(one[folds != 1], two[folds != 1])
    assert (one[folds == 1] != two[folds == 1]).any()


def test_tails_equal_a_refit():
    X = np.round(simulated(300), 1)
    folds = dealt(X)
    fitted, scores, without = Tails.cross_fit(X, folds)
    assert_array_equal(scores, Tails.fit(X)[1])
    assert_array_equal(fitted.known, Tails.fit(X)[0].known)
    for fold in range(5):
        assert_array_equal(without(fold), refitted(Tails.fit, X, folds, fold))


def test_tails_keep_a_feature_that_varies_in_one_fold_alone():
    X = np.column_stack([np.arange(10.0), np.r_[1.0, 2.0, np.zeros(8)]])
    folds = np.r_[0, 0, np.ones(8, dtype=int)]
    _, _, without = Tails.cross_fit(X, folds)
    assert_allclose(without(0)[:, 1], np.r_[np.log(8.0), np.log(8.0), np.zeros(8)])  # half a row of eight


def test_given_detectors_equal_a_refit():
    X = simulated(200)
    folds = dealt(X)
    given = [
        LocalOutlierFactor(7),
        IsolationForest(n_estimators=20),
        OneClassSVM(),
        ("mine", knn.KNN(n_neighbors=6)),
        _norm,
    ]
    pool, raw, without = cross_fit_pool(given, X, folds, seed=5)
    assert pool.names == ("localoutlierfactor", "isolationforest", "oneclasssvm", "mine", "_norm")
    assert_array_equal(raw, fit_pool(given, X, seed=5)[1])
    for fold in (0, 3):
        held = folds == fold
        kept, new, found = X[~held], X[held], without(fold)
        assert_array_equal(found[~held, 0], -LocalOutlierFactor(7).fit(kept).negative_outlier_factor_)
        assert_array_equal(found[held, 0], -LocalOutlierFactor(7, novelty=True).fit(kept).score_samples(new))
        forest = IsolationForest(n_estimators=20, random_state=5).fit(kept)
        assert_array_equal(found[:, 1], -forest.score_samples(X))
        assert_allclose(found[:, 2], -OneClassSVM().fit(kept).score_samples(X), rtol=1e-12)
        pyod = knn.KNN(n_neighbors=6).fit(kept)
        assert_array_equal(found[~held, 3], pyod.decision_scores_)
        assert_array_equal(found[held, 3], pyod.decision_function(new))
        assert_array_equal(found[:, 4], np.linalg.norm(X, axis=1))


def _norm(X):
    return np.linalg.norm(X, axis=1)


@pytest.mark.parametrize("wrap", [np.asarray, list, pd.Series, lambda g: pd.DataFrame({"one": g, "two": 1})])
def test_group_aware_detectors_are_refitted_with_the_groups_that_are_left(wrap):
    X = simulated(200)
    groups, folds = groups_of(X), dealt(X)
    _, raw, without = cross_fit_pool([FairLOF(6)], X, folds, seed=0, sensitive_features=wrap(groups))
    assert_array_equal(raw[:, 0], FairLOF(6).fit(X, sensitive_features=groups).outlier_scores_)
    for fold in (0, 3):
        held, found = folds == fold, without(fold)
        refit = FairLOF(6).fit(X[~held], sensitive_features=groups[~held])
        assert_array_equal(found[~held, 0], refit.outlier_scores_)
        assert_array_equal(found[held, 0], refit.outlier_scores(X[held], sensitive_features=groups[held]))


def test_a_row_of_a_group_that_only_its_fold_has_keeps_its_score():
    X = simulated(200)
    groups, folds = groups_of(X).astype(object), dealt(X)
    groups[folds == 2] = "b"
    rare = np.flatnonzero(folds == 2)[:2]
    groups[rare] = "c"
    _, raw, without = cross_fit_pool([FairLOF(6)], X, folds, seed=0, sensitive_features=groups)
    found = without(2)
    assert_array_equal(found[rare], raw[rare])
    assert (found[folds == 2] != raw[folds == 2]).sum() > 0
    folds[:], folds[rare] = 0, 1
    _, raw, without = cross_fit_pool([FairLOF(6)], X, folds, seed=0, sensitive_features=groups)
    assert_array_equal(without(1)[rare], raw[rare])


def test_precomputed_scores_are_the_same_without_any_fold():
    X = simulated(50)
    pool, raw, without = cross_fit_pool("precomputed", X, dealt(X), seed=0)
    assert pool.names == ("score_0", "score_1", "score_2")
    assert_array_equal(raw, X)
    assert_array_equal(without(3), X)


@pytest.mark.parametrize("n", [300, 1100])
def test_a_mixed_pool_joins_its_parts_in_order(n):
    X = np.round(simulated(n), 2)
    folds, given = dealt(X), ["diverse", FairLOF(4), _norm]
    options = {"seed": 2, "sensitive_features": groups_of(X)}
    pool, raw, without = cross_fit_pool(given, X, folds, **options)
    plain, expected = fit_pool(given, X, **options)
    assert pool.names == plain.names
    assert pool.names[-5:] == ("tail:x0", "tail:x1", "tail:x2", "fairlof", "_norm")
    assert_array_equal(raw, expected)
    held, found = folds == 3, without(3)
    assert found.shape == raw.shape
    refit, training = fit_pool(given, X[~held], seed=2, sensitive_features=groups_of(X)[~held])
    again = refit.score(X[held], sensitive_features=groups_of(X)[held])
    exact = [not name.startswith("iforest") for name in pool.names]
    assert_array_equal(found[~held][:, exact], training[:, exact])
    assert_array_equal(found[held][:, exact], again[:, exact])
    for column in np.flatnonzero(np.logical_not(exact)):
        assert np.corrcoef(found[~held, column], training[:, column])[0, 1] > 0.8
        assert np.corrcoef(found[held, column], again[:, column])[0, 1] > 0.8
