"""Scores of mixtures by family are those that the detectors themselves give to the mixtures."""

import numpy as np
import pytest

from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Nearness, Neighbours
from evenout.detectors.tails import Tails
from evenout.reasons.attribution import CROWD, Crowd, Mixtures, draw_orders, mixed_scores

PLAYER = np.array([0, 1, 2, 2, 3])  # the third feature has two columns


def _rows(kind):
    rng = np.random.default_rng(8)
    if kind == "numbers":
        return rng.normal(size=(160, 5)), rng.normal(size=(9, 5)) * 3
    X = rng.integers(0, 3, size=(160, 5)).astype(float)  # many rows are alike, and mixtures are training rows
    return X, np.vstack([rng.integers(0, 3, size=(6, 5)), rng.integers(0, 6, size=(3, 5))]).astype(float)


def _fit(name, X):
    if name == "forest":
        return Forest.fit(X, sizes=[10, 30], random_state=0)[0]
    if name == "neighbours":
        return Neighbours.fit(X, lof=[3, 12], knn=[2, 9])[0]
    if name == "tails":
        return Tails.fit(X)[0]
    return Nearness.fit(X, lof=[3, 12], knn=[2, 9], decorrelate=name == "decorrelated")[0]


@pytest.mark.parametrize("kind", ["numbers", "ties"])
@pytest.mark.parametrize("name", ["forest", "neighbours", "logarithms", "decorrelated", "tails"])
def test_mixtures_are_scored_as_rows_are(name, kind):
    X, rows = _rows(kind)
    part = _fit(name, X)
    known = (rows[:, None] == X).all(axis=2).any(axis=1)
    mixtures = Mixtures(rows[~known], np.tile(np.median(X, axis=0), ((~known).sum(), 1)), PLAYER, draw_orders(4))
    found = mixed_scores(part, mixtures, None if name in ("forest", "tails") else Crowd(part, CROWD))
    expected = mixtures.joined(part.score(mixtures.rows()))
    if kind == "ties" and name not in ("forest", "tails"):
        # Among points at the same distance another one may be listed: densities differ, distances do not.
        found, expected = found[:, :, 2:], expected[:, :, 2:]
    # Decorrelated coordinates are multiples of 1e-6 in a score; between the two ends they are not rounded here.
    np.testing.assert_allclose(found, expected, atol=3e-6 if name == "decorrelated" else 1e-9)


def test_a_training_row_is_explained_without_its_own_copy():
    X, _ = _rows("numbers")
    part = Neighbours.fit(X, lof=[5], knn=[3])[0]
    others = Neighbours.fit(X[1:], lof=[5], knn=[3])[0]
    mixtures = Mixtures(X[:1], np.median(X, axis=0)[None], PLAYER, draw_orders(4))
    found = mixed_scores(part, mixtures, Crowd(part, CROWD))[0, :, 1]
    np.testing.assert_allclose(found, others.score(mixtures.rows())[:, 1], atol=1e-9)
    assert found[draw_orders(4).taken.all(axis=1).argmax()] == pytest.approx(part.score(X[:1])[0, 1], abs=1e-12)


def test_a_crowd_is_a_sample_with_as_many_fewer_neighbours():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    fitted = Neighbours.fit(X, lof=[30], knn=[5, 30])[0]
    crowd = Crowd(fitted, size=500).model
    assert crowd.counts.sum() == 500
    assert crowd.lof.tolist() == [4]
    assert crowd.knn.tolist() == [3, 4]
    shuffled = Crowd(Neighbours.fit(rng.permutation(X), lof=[30], knn=[5, 30])[0], size=500).model
    np.testing.assert_array_equal(crowd.locations, shuffled.locations)
    far = np.array([[6.0, 0.0, 0.0]])
    assert crowd.score(far)[0, 1] == pytest.approx(fitted.score(far)[0, 2], rel=0.2)
