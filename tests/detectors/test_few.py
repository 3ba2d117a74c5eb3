"""Few rows, and rows among few points, are searched for one by one: what they find is what all distances say."""

import numpy as np
import pytest
from numba import config
from scipy.spatial.distance import cdist

from evenout.detectors import search
from evenout.detectors._search_kernels import search_rows
from evenout.detectors.search import SMALL_SEARCH, cut_blocks, nearest_by_blocks, nearest_by_rows


def make_points(n, d, kind):
    X = np.random.default_rng(d).normal(size=(n, d))
    if kind == "grid":  # many points at the same distance
        return np.unique(np.round(X), axis=0)
    return X * (1e6 if kind == "far" else 1.0)


@pytest.mark.parametrize("kind", ["normal", "grid", "far"])
@pytest.mark.parametrize(
    ("n", "d", "k"), [(1, 2, 1), (64, 1, 3), (65, 3, 64), (900, 3, 10), (700, 10, 30), (400, 21, 7)]
)
def test_neighbours_are_those_of_the_search_in_blocks(n, d, k, kind):
    points = make_points(n, d, kind)
    k = min(k, len(points))
    rng = np.random.default_rng(0)
    asked = np.concatenate([points[:5] + 0.5, rng.normal(size=(6, d)), points[-2:], np.full((1, d), 1e9)])
    blocks = cut_blocks(points)
    distances, ids = nearest_by_rows(blocks, asked, k)
    expected = nearest_by_blocks(blocks, k, queries=cut_blocks(asked))
    np.testing.assert_array_equal(distances, expected[0])
    np.testing.assert_array_equal(ids, expected[1])


def test_neighbours_are_those_that_all_distances_name():
    points = make_points(500, 2, "grid")
    asked = np.array([[0.0, 0.0], [0.5, 0.5], [2.0, -1.0]])
    distances, ids = nearest_by_rows(cut_blocks(points), asked, 9)
    every = cdist(asked, points)
    order = np.lexsort((np.broadcast_to(np.arange(len(points)), every.shape), every), axis=1)[:, :9]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(distances, np.take_along_axis(every, order, axis=1), rtol=1e-15)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(
    ("n", "d", "k"), [(1, 2, 0), (2, 1, 1), (65, 3, 64), (700, 3, 10), (SMALL_SEARCH, 2, 5), (SMALL_SEARCH + 1, 2, 5)]
)
def test_any_number_of_points_is_searched_with_the_same_result(n, d, k, n_threads):
    points = np.random.default_rng(n).integers(0, 99, size=(n, d)) / 8.0  # with ties
    blocks = cut_blocks(points)
    for asked in (None, points[::2] + 0.25):
        found = search.nearest(blocks, k, queries=asked, n_threads=n_threads)
        expected = nearest_by_blocks(blocks, k, queries=None if asked is None else cut_blocks(asked))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_one_kernel_serves_rows_in_any_layout():
    points = make_points(300, 3, "normal")
    blocks, asked = cut_blocks(points), points[:20] + 0.5
    expected = search.nearest(blocks, 5, queries=asked)
    kernels = len(search_rows.overloads)
    for rows in (np.asfortranarray(asked), np.repeat(asked, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(search.nearest(blocks, 5, queries=rows)[1], expected[1])
    assert len(search_rows.overloads) == kernels


@pytest.mark.parametrize(("n", "by_blocks"), [(SMALL_SEARCH, 0), (SMALL_SEARCH + 1, 1)])
def test_few_points_are_searched_without_blocks_of_queries(n, by_blocks, monkeypatch):
    asked = []
    monkeypatch.setattr(search, "nearest_by_blocks", lambda *_, **settings: asked.append(settings["queries"]))
    search.nearest(cut_blocks(make_points(n, 2, "normal")), 3)
    assert asked == [None] * by_blocks
