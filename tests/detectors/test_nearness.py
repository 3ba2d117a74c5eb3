"""Log distances and factors: beside scikit-learn, in decorrelated coordinates, and without a fold."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

from evenout.detectors import neighbours
from evenout.detectors.neighbours import CLIP, Nearness, decorrelating
from evenout.detectors.units import Units


def correlated(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) * [1.0, 10.0, 0.1, 3.0] + [0.0, 5.0, 1.0, -2.0]


def test_distances_by_hand():
    X = np.array([[0.0], [1.0], [3.0], [7.0]])
    fitted, scores = Nearness.fit(X, knn=[1, 2])
    assert_allclose(scores, np.log1p([[1, 3], [1, 2], [2, 3], [4, 6]]))
    assert_allclose(fitted.score(np.array([[9.0]])), np.log1p([[2, 6]]))


def test_scores_are_the_logarithms_of_scikit_learns():
    X = correlated()
    _, scores = Nearness.fit(X, lof=[7, 20], knn=[5])
    for column, k in ((0, 7), (1, 20)):
        factors = -LocalOutlierFactor(n_neighbors=k).fit(X).negative_outlier_factor_
        assert_allclose(scores[:, column], np.log(factors), rtol=1e-6, atol=1e-9)
    distances, _ = NearestNeighbors(n_neighbors=5).fit(X).kneighbors()
    assert_allclose(scores[:, 2], np.log1p(distances[:, -1]), rtol=1e-9)


def test_decorrelated_rows_have_the_unit_matrix_as_covariance():
    """With no value far out, clipping plays no part."""
    X = np.random.default_rng(0).uniform(size=(500, 3)) @ np.array([[2.0, 1.0, 0.0], [0, 3.0, 1.0], [0, 0, 1.0]])
    turned = X @ decorrelating(X)
    assert_allclose(np.cov(turned.T, bias=True), np.eye(3), atol=1e-5)


def test_the_covariance_is_that_of_fractions_in_any_order(monkeypatch):
    rng = np.random.default_rng(5)
    X = np.column_stack([correlated(200), rng.standard_cauchy(200), rng.random(200) < 0.02, rng.random(200) < 0.98])
    monkeypatch.setattr(neighbours, "_SUMMED", 64)
    units = Units.fit(X)
    z = [[Fraction(value) for value in row] for row in np.clip(units.apply(X), -CLIP, CLIP).tolist()]
    mean = [sum(column) / 200 for column in zip(*z, strict=True)]
    exact = [[sum((r[i] - mean[i]) * (r[j] - mean[j]) for r in z) / 200 for j in range(7)] for i in range(7)]
    found = neighbours._clipped_covariance(X, units, n_threads=1)
    assert_allclose(found, np.array(exact, dtype=float), rtol=1e-14, atol=1e-17)
    for n_threads in (1, 3):
        assert_array_equal(neighbours._clipped_covariance(X[rng.permutation(200)], units, n_threads), found)


def test_distances_between_decorrelated_rows_are_mahalanobis_distances():
    X = np.random.default_rng(1).uniform(size=(60, 3)) @ np.array([[2.0, 1.0, 0.0], [0, 3.0, 1.0], [0, 0, 1.0]])
    _, scores = Nearness.fit(X, knn=[4], decorrelate=True)
    inverse = np.linalg.inv(np.cov(X.T, bias=True))
    gaps = X[:, None] - X[None]
    squared = np.einsum("ijf,fg,ijg->ij", gaps, inverse, gaps)
    assert_allclose(scores[:, 0], np.log1p(np.sqrt(np.sort(squared, axis=1)[:, 4])), rtol=1e-4)


def test_columns_that_follow_from_others_add_nothing():
    X = correlated()
    double = np.hstack([X, X[:, :1] * 3.0 + 1.0])
    _, scores = Nearness.fit(double, knn=[5], decorrelate=True)
    turned = double @ decorrelating(double)
    assert np.linalg.matrix_rank(turned - turned.mean(axis=0), tol=1e-3) == 4
    assert np.isfinite(scores).all()


def test_a_wild_row_does_not_bend_the_coordinates():
    X = correlated()
    plain = decorrelating(X)
    wild = decorrelating(np.r_[X, X[:1] * 1e6])
    assert np.linalg.norm(wild - plain) < 0.2 * np.linalg.norm(plain)


def test_a_broken_dependency_shows_in_decorrelated_coordinates_alone():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    X = np.c_[x, x + 0.05 * rng.normal(size=300)]
    X[0] = [0.6, -0.6]  # ordinary in each feature, but the two contradict each other
    _, turned = Nearness.fit(X, lof=[20], decorrelate=True)
    assert turned.argmax() == 0
    _, plain = Nearness.fit(X, knn=[20])
    assert turned[0, 0] > 2 * np.sort(turned[:, 0])[-2]
    assert plain.argmax() != 0


@pytest.mark.parametrize("decorrelate", [False, True])
def test_training_rows_score_as_in_training_in_any_company(decorrelate):
    X = correlated().round(1)
    fitted, scores = Nearness.fit(X, lof=[5, 10], knn=[5], decorrelate=decorrelate)
    assert_array_equal(fitted.score(X), scores)
    assert_array_equal(np.vstack([fitted.score(row[None]) for row in X[:20]]), scores[:20])


@pytest.mark.parametrize("decorrelate", [False, True])
def test_order_of_rows_does_not_matter(decorrelate):
    X = correlated().round(1)
    order = np.random.default_rng(3).permutation(len(X))
    settings = {"lof": [5, 10], "knn": [3], "decorrelate": decorrelate}
    assert_array_equal(Nearness.fit(X[order], **settings)[1], Nearness.fit(X, **settings)[1][order])


@pytest.mark.parametrize("decorrelate", [False, True])
def test_scores_without_a_fold_are_those_of_a_refit(decorrelate):
    X = correlated(n=150)  # few rows per feature: coordinates are learnt anew as well
    folds = np.arange(150) % 4
    settings = {"lof": [5], "knn": [3, 6], "decorrelate": decorrelate}
    fitted, scores, without = Nearness.cross_fit(X, folds, **settings)
    assert_array_equal(scores, Nearness.fit(X, **settings)[1])
    assert_array_equal(fitted.score(X), scores)
    for fold in range(4):
        kept = folds != fold
        again, training = Nearness.fit(X[kept], **settings)
        found = without(fold)
        assert_array_equal(found[kept], training)
        assert_array_equal(found[~kept], again.score(X[~kept]))


def test_with_many_rows_coordinates_are_learnt_once_and_scores_are_close_to_a_refit():
    X = correlated(n=1200)
    folds = np.arange(1200) % 5
    fitted, scores, without = Nearness.cross_fit(X, folds, lof=[20], decorrelate=True)
    assert_array_equal(scores, Nearness.fit(X, lof=[20], decorrelate=True)[1])
    kept = folds != 2
    again, training = Nearness.fit(X[kept], lof=[20], decorrelate=True)
    found = without(2)
    assert np.abs(found[kept] - training).max() < 0.1
    assert np.corrcoef(found[~kept, 0], again.score(X[~kept])[:, 0])[0, 1] > 0.99
    assert fitted.turn is not None


def test_few_rows_have_fewer_neighbours_without_a_word():
    _, scores = Nearness.fit(correlated(n=6), lof=[30], decorrelate=True)
    assert_allclose(scores, Nearness.fit(correlated(n=6), lof=[5], decorrelate=True)[1])


def test_constant_rows_are_all_alike():
    X = np.full((12, 3), 2.0)
    _, scores = Nearness.fit(X, lof=[3], knn=[2], decorrelate=True)
    assert_array_equal(scores, np.zeros((12, 2)))


def test_units_hardly_matter_to_decorrelated_coordinates():
    X = correlated()
    _, scores = Nearness.fit(X, lof=[10], decorrelate=True)
    _, changed = Nearness.fit(X * [1e3, 1e-3, 1.0, 1e6], lof=[10], decorrelate=True)
    assert_allclose(changed, scores, atol=1e-4)
    inside = Units.fit(X).apply(X)
    assert_allclose(Nearness.fit(inside, lof=[10], decorrelate=True)[1], scores, atol=1e-4)


def test_rows_of_any_size_stay_finite():
    X = np.random.default_rng(0).choice([1e-160, -1e-160, 0.0], size=(40, 3))
    fitted, scores = Nearness.fit(X, lof=[5], decorrelate=True)
    assert np.isfinite(scores).all()
    assert np.isfinite(fitted.score(np.full((2, 3), [[1e30], [-1e30]]))).all()
    X[0] = 1e30
    assert np.isfinite(Nearness.fit(X, lof=[5], knn=[2], decorrelate=True)[1]).all()


def test_below_ten_rows_a_feature_outside_of_a_fold_coordinates_stay_as_they_are():
    rng = np.random.default_rng(0)
    folds = np.arange(100) % 5
    for d, turned in ((8, True), (9, False)):
        fitted, scores, _ = Nearness.cross_fit(rng.normal(size=(100, d)), folds, lof=[10], decorrelate=True)
        assert (fitted.turn is not None) == turned
        assert scores.shape == (100, 1)
