"""Forests without a fold: rows scored by trees that have not drawn them, and small forests grown anew."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import IsolationForest

from evenout.detectors.forest import Forest, average_path_length

SIZES = (25, 50, 75)


def simulated(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 4.0 * rng.integers(0, 3, size=(n, 1))


def dealt(X, n_folds=5, seed=0):
    return np.random.default_rng(seed).permutation(len(X)) % n_folds


def trees_of_scikit_learn(X, seed):
    """Path length of every row in every tree, and which trees drew it, each (n, trees)."""
    grown = IsolationForest(n_estimators=max(SIZES), random_state=seed).fit(X)
    rows = X.astype(np.float32)
    paths, drawn = [], np.zeros((len(X), max(SIZES)), dtype=bool)
    for t, (estimator, sample) in enumerate(zip(grown.estimators_, grown.estimators_samples_, strict=True)):
        leaf, n_rows = estimator.apply(rows), estimator.tree_.n_node_samples
        assert_array_equal(np.bincount(leaf[sample], minlength=len(n_rows))[leaf], n_rows[leaf])
        depth = np.asarray(estimator.decision_path(rows).sum(axis=1)).ravel() - 1
        paths.append(depth + average_path_length(n_rows[leaf]))
        drawn[sample, t] = True
    return np.stack(paths, axis=1), drawn


@pytest.mark.parametrize("n", [1000, 1700])
def test_forest_scores_a_fold_by_the_trees_that_have_not_drawn_the_row(n):
    X = np.round(simulated(n, 4), 1)
    folds = dealt(X)
    plain, expected = Forest.fit(X, sizes=SIZES, random_state=3)
    forest, scores, without = Forest.cross_fit(X, folds, sizes=SIZES, random_state=3)
    assert_array_equal(scores, expected)
    assert_array_equal(forest.threshold, plain.threshold)
    paths, drawn = trees_of_scikit_learn(X, seed=3)
    c = average_path_length(np.array([256]))
    for fold in (0, 4):
        found, held = without(fold), folds == fold
        assert_array_equal(found[~held], scores[~held])
        for column, size in enumerate(SIZES):
            unseen = np.where(drawn[:, :size], np.nan, paths[:, :size])
            assert_allclose(found[held, column], 2 ** -(np.nanmean(unseen, axis=1) / c)[held], rtol=1e-12)


def test_a_row_that_all_trees_have_drawn_keeps_its_score():
    X = simulated(1000)
    folds = np.zeros(1000, dtype=int)
    _, scores, without = Forest.cross_fit(X, folds, sizes=[1, 30], random_state=0)
    drawn = IsolationForest(n_estimators=1, random_state=0).fit(X).estimators_samples_[0]
    first = without(0)[:, 0]
    assert_array_equal(first[drawn], scores[drawn, 0])
    assert_array_equal(np.delete(first, drawn), np.delete(scores[:, 0], drawn))  # the one tree is unseen anyway
    assert (without(0)[drawn, 1] != scores[drawn, 1]).all()


@pytest.mark.parametrize("n", [400, pytest.param(1000, marks=pytest.mark.long)])
def test_forest_scores_an_outlier_as_a_forest_that_was_grown_without_it(n):
    trained, unseen, fresh = [], [], []
    for seed in range(8):
        X = np.random.default_rng(seed).normal(size=(n, 3))
        X[0] = 15.0  # trees that draw this row cut it off at once
        folds = dealt(X, seed=seed)
        _, scores, without = Forest.cross_fit(X, folds, sizes=[100], random_state=seed)
        trained.append(scores[0, 0])
        unseen.append(without(folds[0])[0, 0])
        refit = IsolationForest(random_state=seed + 100).fit(X[folds != folds[0]])
        fresh.append(-refit.score_samples(X[:1])[0])
    error = np.sqrt((np.var(unseen, ddof=1) + np.var(fresh, ddof=1)) / 8)
    assert np.mean(trained) - np.mean(fresh) > 5 * error
    assert abs(np.mean(unseen) - np.mean(fresh)) < 3 * error
