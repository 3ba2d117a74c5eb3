import numpy as np

from evenout.detectors._neighbour_kernels import find_rows


def test_rows_are_found_among_locations_that_fall():
    locations = np.array([[3.0, 1.0], [2.0, 9.0], [2.0, 4.0], [0.0, 0.0]])
    points = np.array([[2.0, 4.0], [2.0, 5.0], [9.0, 9.0], [-1.0, 0.0], [3.0, 1.0], [0.0, 0.0]])
    assert find_rows(points, locations).tolist() == [2, -1, -1, -1, 0, 3]
