"""The search with and without the compiler: what is found is what all distances say, by products or not."""

import numpy as np
import pytest

from evenout.detectors._search_kernels import within
from evenout.detectors.search import Blocks, cut_blocks, nearest_by_blocks, nearest_by_rows


def sorted_by_all_distances(asked, points, k, itself):
    squares = np.zeros((len(asked), len(points)))
    for f in range(points.shape[1]):
        squares += (asked[:, f, None] - points[:, f]) ** 2
    distances = np.sqrt(squares)
    if itself:
        np.fill_diagonal(distances, np.inf)
    order = np.lexsort((np.broadcast_to(np.arange(len(points)), distances.shape), distances), axis=1)[:, :k]
    return np.take_along_axis(distances, order, axis=1), order


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # middles of boxes without end, not compiled
@pytest.mark.parametrize("method", ["boxes", "brute"])
@pytest.mark.parametrize("d", [2, 7])
def test_what_is_found_is_what_all_distances_say(d, method):
    points = np.round(np.random.default_rng(d).normal(size=(150, d)), 1)  # with ties
    asked = np.random.default_rng(0).normal(size=(9, d))
    blocks = cut_blocks(points)
    if method == "brute":  # each block has all of space as its box, so that none is left out
        everywhere = np.full_like(blocks.exact.low, np.inf)
        blocks = Blocks(blocks.exact._replace(low=-everywhere, high=everywhere))
    for found, expected in (
        (nearest_by_blocks(blocks, 4), sorted_by_all_distances(points, points, 4, True)),
        (nearest_by_blocks(blocks, 4, queries=cut_blocks(asked)), sorted_by_all_distances(asked, points, 4, False)),
        (nearest_by_rows(blocks, asked, 4), sorted_by_all_distances(asked, points, 4, False)),
    ):
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-14)


def test_places_within_a_limit_come_in_the_order_of_their_keys():
    keys = np.random.default_rng(0).normal(size=50)
    values = np.arange(50.0)
    places = np.empty(50, dtype=np.intp)
    count = within(values, 30.0, keys, places)
    assert places[:count].tolist() == np.argsort(keys[:31]).tolist()
