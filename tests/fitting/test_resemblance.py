"""Resemblance: who has seen whom, and whether probabilities hold."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from tests.conftest import probable, side_by_side

from evenout.core.content import assign_folds
from evenout.core.membership import Membership
from evenout.fitting.resemblance import Calibration, cross_fit_resemblance, disjoint_groups


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


def shares(model):
    """P(g) of all groups, shape (G,)."""
    found = np.empty(model.n_groups)
    for part in model.parts:
        found[part.groups] = part.shares
    return found


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


def _normal_groups(n, seed=0):
    """Two groups of normal rows: P(1 | x) is logistic in x."""
    rng = np.random.default_rng(seed)
    codes = (rng.random(n) < 0.3).astype(np.intp)
    x = rng.normal(size=n) + codes
    odds = 0.3 / 0.7 * np.exp(x - 0.5)
    return x[:, None], codes, odds / (1.0 + odds)


def test_rows_that_stand_for_others_count_for_them():
    """Group 1 was drawn three times as often: resemblance is that of all rows."""
    x, codes, p = _normal_groups(12_000)
    drawn = (codes == 1) | (np.random.default_rng(1).random(len(codes)) < 1 / 3)
    stands_for = np.where(codes == 1, 1.0, 3.0)[drawn]
    members = Membership.of_codes(codes[drawn], 2)
    folds = assign_folds(x[drawn], codes[drawn], 5, 0)
    settings = {"seed": 0, "n_jobs": None}
    found = cross_fit_resemblance(LogisticRegression(), x[drawn], members, folds, stands_for=stands_for, **settings)
    np.testing.assert_allclose(shares(found.model), [0.7, 0.3], atol=0.02)
    truth = np.column_stack([(1 - p) / 0.7, p / 0.3])
    assert np.abs(found.model.of(x) - truth).max() < 0.15
    plain = cross_fit_resemblance(LogisticRegression(), x[drawn], members, folds, **settings)
    assert np.abs(plain.model.of(x) - truth).max() > 0.5


def test_soft_groups_are_learnt_by_their_weights():
    """Half of each row's probability is noise: E[phi | x] is halfway between P(g | x) and even odds."""
    x, codes, p = _normal_groups(8000)
    phi = 0.5 * np.eye(2)[codes] + 0.25
    members = probable(phi)
    folds = assign_folds(x, codes, 5, 0)
    found = cross_fit_resemblance(LogisticRegression(), x, members, folds, seed=0, n_jobs=None)
    truth = 0.5 * np.column_stack([1 - p, p]) + 0.25
    assert np.abs(found.own * shares(found.model) - truth).mean() < 0.02  # nearly logistic
    assert len(found.model.parts) == 1
    assert_allclose(found.model.levelled(np.array([2.0, 1.0])).sum(), 0.0, atol=1e-12)


def test_attributes_side_by_side_have_classifiers_of_their_own():
    rng = np.random.default_rng(0)
    one, two = rng.integers(2, size=3000), rng.integers(3, size=3000)
    Z = np.column_stack([one, two]) + 0.8 * rng.normal(size=(3000, 2))
    members = side_by_side([Membership.of_codes(one, 2), Membership.of_codes(two, 3)], [0.5, 0.5])
    found = cross_fit_resemblance(LogisticRegression(), Z, members, assign_folds(Z, one, 5, 0), seed=0, n_jobs=None)
    assert [part.groups.tolist() for part in found.model.parts] == [[0, 1], [2, 3, 4]]
    for groups, codes in (([0, 1], one), ([2, 3, 4], two)):
        likely = (found.own[:, groups] * shares(found.model)[groups]).argmax(axis=1)
        assert (likely == codes).mean() > 0.6
    assert_allclose(found.own.mean(axis=0), 1.0, atol=1e-4)


def test_strata_share_a_classifier_and_rows_outside_are_a_class():
    rng = np.random.default_rng(0)
    codes, strata = rng.integers(2, size=2000), rng.integers(-1, 2, size=2000)
    Z = np.column_stack([codes, strata]) + rng.normal(size=(2000, 2))
    members = Membership.of_codes(codes, 2).within(strata)
    layer, *more = disjoint_groups(members)
    assert not more
    assert layer.actual.shape[1] == len(layer.groups) + 1
    assert_allclose(layer.actual.sum(axis=1), 1.0)
    found = cross_fit_resemblance(LogisticRegression(), Z, members, assign_folds(Z, codes, 5, 0), seed=0, n_jobs=None)
    assert_allclose(found.own.mean(axis=0), 1.0, atol=1e-4)


def test_classifiers_without_weights_are_named_where_weights_are_needed():
    x, codes, _ = _normal_groups(200)
    members = probable(0.5 * np.eye(2)[codes] + 0.25)
    with pytest.raises(ValueError, match=r"classifier takes no weights of rows .* use another one"):
        cross_fit_resemblance(KNeighborsClassifier(), x, members, assign_folds(x, codes, 5, 0), seed=0, n_jobs=None)
