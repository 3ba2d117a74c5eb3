"""Resemblance: who has seen whom, and whether probabilities hold."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from evenout.core.folds import assign_folds
from evenout.core.membership import Membership
from evenout.fitting.resemblance import Calibration, cross_fit_resemblance


class Memory(ClassifierMixin, BaseEstimator):
    """Says for sure whether it has seen a row: its first class for rows it knows, even odds for others."""

    def fit(self, Z, y):
        self.classes_, self.seen_ = np.unique(y), set(map(tuple, Z))
        return self

    def predict_proba(self, Z):
        assert not [row for row in map(tuple, Z) if row in self.seen_]
        return np.full((len(Z), len(self.classes_)), 1.0 / len(self.classes_))


def _rows(n=200, seed=0, n_groups=3):
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_groups, size=n)
    return rng.normal(size=(n, 2)) + codes[:, None], codes


def _cross_fit(classifier, Z, codes, folds):
    members = Membership.of_codes(codes, int(codes.max()) + 1)
    return cross_fit_resemblance(classifier, Z, members, folds, seed=0, n_jobs=None)


def test_no_training_row_is_predicted_by_what_has_seen_it():
    Z, codes = _rows()
    found = _cross_fit(Memory(), Z, codes, assign_folds(Z, codes, 5, 0))
    assert_allclose(found.own, 1.0)  # nothing is known, so nobody resembles anybody more
    assert_allclose(found.without, 1.0)
    assert_allclose(found.known, 0.0, atol=1e-12)


def test_what_is_known_without_a_fold_does_not_depend_on_its_groups():
    Z, codes = _rows(300, 1, 2)
    folds = assign_folds(Z, codes, 5, 0)
    other = codes.copy()
    other[folds == 2] = 1 - other[folds == 2]
    one, two = (_cross_fit(LogisticRegression(), Z, c, folds) for c in (codes, other))
    assert_array_equal(one.without[2], two.without[2])
    assert not np.allclose(one.without[1], two.without[1])


def test_rows_without_a_group_are_predicted_but_teach_nothing():
    Z, codes = _rows(300, 2)
    codes[:50] = -1
    folds = assign_folds(Z, codes, 5, 0)
    far = Z.copy()
    far[:50] += 100.0
    one, two = (_cross_fit(LogisticRegression(), z, codes, folds) for z in (Z, far))
    assert_array_equal(one.own[50:], two.own[50:])
    assert np.isfinite(two.own).all()


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0])
def test_calibration_finds_the_slope_that_holds(slope):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40_000, 3))
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    true = p**slope * [1.0, 2.0, 0.5]
    true /= true.sum(axis=1, keepdims=True)
    codes = (rng.random((len(p), 1)) > true.cumsum(axis=1)).sum(axis=1)
    found = Calibration.fit(p, np.eye(p.shape[1])[codes])
    assert found.slope == pytest.approx(slope, rel=0.05)
    assert_allclose(found.apply(p).mean(axis=0), np.bincount(codes) / len(codes), atol=1e-5)
    assert np.abs(found.apply(p) - true).max() < 0.03


def test_a_classifier_that_is_wrong_everywhere_counts_as_one_that_knows_nothing():
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=1000)
    p = np.where(np.eye(2)[codes] == 1, 0.1, 0.9)
    found = Calibration.fit(p, np.eye(p.shape[1])[codes])
    assert found.slope == 0.0
    assert_array_equal(found.apply(p), np.tile(found.apply(p[:1]), (1000, 1)))
