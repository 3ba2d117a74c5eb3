import numpy as np
import pytest

from evenout.detectors._neighbour_kernels import find_rows, select, squared_distances


@pytest.mark.parametrize("d", [1, 3, 4, 5, 8, 11])  # with and without features left over from the passes of four
def test_squared_distances_are_summed_over_all_features(d):
    rng = np.random.default_rng(d)
    point, values, out = rng.normal(size=d), rng.normal(size=(d, 6)), np.full(6, 9.0)
    squared_distances(point, values, out)
    np.testing.assert_allclose(out, ((point[:, None] - values) ** 2).sum(axis=0), rtol=1e-14)


def test_select_takes_values_up_to_the_limit():
    places, chosen = select(np.array([3.0, 1.0, 2.0, 5.0]), 2.0)
    assert places.tolist() == [1, 2]
    assert chosen.tolist() == [1.0, 2.0]


def test_rows_are_found_among_locations_that_fall():
    locations = np.array([[3.0, 1.0], [2.0, 9.0], [2.0, 4.0], [0.0, 0.0]])
    points = np.array([[2.0, 4.0], [2.0, 5.0], [9.0, 9.0], [-1.0, 0.0], [3.0, 1.0], [0.0, 0.0]])
    assert find_rows(points, locations).tolist() == [2, -1, -1, -1, 0, 3]
