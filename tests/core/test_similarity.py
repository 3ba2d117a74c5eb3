import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from evenout.core.individual import (
    DEFAULT_LENGTH,
    comparable_rows,
    draw_rows,
    effective_pairs,
    median_distance,
    warn_few_pairs,
)
from evenout.datasets import load_dataset
from evenout.exceptions import FewPairsWarning
from evenout.groups.read import read_groups

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, -3.0]
GROUPS = np.repeat([0, 1, 2, -1], [25, 20, 10, 5])


def test_a_length_of_nothing_still_divides_every_distance():
    X = np.r_[np.zeros(14), 1.0][:, None]  # half of all pairs of rows lie at distance 0
    features, scale = comparable_rows(X, np.repeat([0, 1], [7, 8]), ("median", 0.1))
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(np.ptp(features) / scale)


def test_published_scale_leaves_features_alone():
    features, scale = comparable_rows(X, GROUPS, "minmax")
    assert features is X
    assert scale == "minmax"


def test_median_is_taken_over_pairs_of_different_groups():
    features, scale = comparable_rows(X, GROUPS, ("median", 0.5))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(features, Z, rtol=1e-9)
    distances = squareform(pdist(Z))
    pairs = [distances[i, j] for i in range(55) for j in range(55) if GROUPS[i] != GROUPS[j]]
    assert scale == pytest.approx(0.5 * np.median(pairs))


def test_number_is_a_length_between_standardised_features():
    features, scale = comparable_rows(X, GROUPS, 0.3)
    assert scale == 0.3
    np.testing.assert_allclose(features.std(axis=0), 1.0)


def test_units_of_features_do_not_matter():
    one, two = (comparable_rows(X * unit, GROUPS, ("median", 0.1)) for unit in (1.0, np.array([1e-300, 1e25, 7.0])))
    np.testing.assert_allclose(one[0], two[0], rtol=1e-9)
    assert one[1] == pytest.approx(two[1])


def test_row_order_does_not_matter_when_rows_are_drawn():
    many = RNG.normal(size=(3000, 2))
    groups = np.arange(3000) % 2
    order = RNG.permutation(3000)
    assert median_distance(many, groups) == pytest.approx(median_distance(many[order], groups[order]), rel=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_features_are_harmless(value):
    features, scale = comparable_rows(np.full((6, 2), value), np.array([0, 1] * 3), ("median", 0.1))
    np.testing.assert_array_equal(features, 0.0)
    assert scale > 0


@pytest.mark.parametrize("scale", ["minmax", 0.3, 2.0])
def test_effective_pairs_by_slow_formula(scale):
    features, _ = comparable_rows(X, GROUPS, 1.0)
    known = range(55)
    d = np.array(
        [np.linalg.norm(features[i] - features[j]) for i in known for j in known if i < j and GROUPS[i] != GROUPS[j]]
    )
    M = np.exp(-(d - d.min()) / (d.max() - d.min()) if scale == "minmax" else -d / scale)
    assert effective_pairs(features, GROUPS, scale) == pytest.approx(M.sum() ** 2 / (M**2).sum())


def test_equally_similar_pairs_all_count():
    groups = np.repeat([0, 1, 2], [4, 3, 2])
    assert effective_pairs(np.zeros((9, 2)), groups, 0.1) == pytest.approx(4 * 3 + 4 * 2 + 3 * 2)
    assert effective_pairs(np.zeros((9, 2)), np.zeros(9, dtype=int), 0.1) == 0


def test_pairs_far_apart_are_counted_without_underflow():
    rows = np.array([[0.0], [1e6], [2e6], [3e6]])
    assert effective_pairs(rows, np.array([0, 1, 0, 1]), 1.0) == pytest.approx(3)


def test_effective_pairs_of_a_sample_are_those_of_all_rows():
    rng = np.random.default_rng(1)
    rows, groups = rng.normal(size=(9000, 2)), rng.integers(0, 3, 9000)
    by_thirds = [effective_pairs(rows[k::3], groups[k::3], 0.2) for k in range(3)]  # all pairs of 3000 rows
    assert effective_pairs(rows, groups, 0.2) == pytest.approx(9 * np.mean(by_thirds), rel=0.1)


def test_copies_of_a_row_are_drawn_one_by_one():
    """Half of the rows are one row: a sample by content must hold about half of them, not all or none."""
    rng = np.random.default_rng(0)
    rows, groups = np.r_[np.zeros((3000, 2)), rng.normal(size=(3000, 2))], np.arange(6000) % 2
    drawn = draw_rows(rows, groups, 1000)
    assert len(np.unique(drawn)) == 1000
    assert 0.4 < (rows[drawn] == 0).all(axis=1).mean() < 0.6
    order = rng.permutation(6000)
    again = draw_rows(rows[order], groups[order], 1000)
    np.testing.assert_array_equal(np.sort(rows[drawn], axis=0), np.sort(rows[order][again], axis=0))


@pytest.mark.parametrize("name", ["german", "cardio", "pima"])
def test_the_default_length_leaves_some_similar_rows_to_each_row(name):
    """At the former default of 0.05 german had 0.08 similar rows of other groups to a row."""
    data = load_dataset(name)
    groups = read_groups(data.sensitive, len(data.X)).codes
    pairs = {
        length: effective_pairs(*both(data.X.to_numpy(dtype=float), groups, length))
        for length in (DEFAULT_LENGTH, ("median", 0.05))
    }
    assert 2 * pairs[DEFAULT_LENGTH] / len(groups) >= 5
    assert 2 * pairs["median", 0.05] / len(groups) < 5


def both(X, groups, length):
    rows, scale = comparable_rows(X, groups, length)
    return rows, groups, scale


def test_few_pairs_are_said():
    warn_few_pairs(100.0)
    warn_few_pairs(180.0, n_weights=18)
    with pytest.warns(FewPairsWarning, match=r"about 39 pairs .* too few to measure a score .*\(100 are wanted"):
        warn_few_pairs(39.2)
    with pytest.warns(FewPairsWarning, match=r"too few to choose 18 weights .*\(180 are wanted"):
        warn_few_pairs(179.0, n_weights=18)
