import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from evenout.core.similarity import comparable_rows, median_distance

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, -3.0]
GROUPS = np.repeat([0, 1, 2, -1], [25, 20, 10, 5])


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
    one, two = (
        comparable_rows(X * unit, GROUPS, ("median", 0.1)) for unit in (1.0, np.array([1e-300, 1e25, 7.0]))
    )
    np.testing.assert_allclose(one[0], two[0], rtol=1e-9)
    assert one[1] == pytest.approx(two[1])


def test_row_order_does_not_matter_when_rows_are_drawn():
    many = RNG.normal(size=(3000, 2))
    groups = np.arange(3000) % 2
    order = RNG.permutation(3000)
    assert median_distance(many, groups) == pytest.approx(
        median_distance(many[order], groups[order]), rel=1e-12
    )


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_features_are_harmless(value):
    features, scale = comparable_rows(np.full((6, 2), value), np.array([0, 1] * 3), ("median", 0.1))
    np.testing.assert_array_equal(features, 0.0)
    assert scale > 0
