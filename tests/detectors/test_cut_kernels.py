"""The compiled halving, against plain sorting."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from evenout.detectors._search_kernels import halve_to_blocks, select, widest_feature
from evenout.detectors.search import BLOCK, SMALL_CUT, WHOLE, cut_blocks, drop_points, nearest_by_blocks


@pytest.mark.parametrize("kind", ["any", "few values", "rising", "falling", "constant", "pipe"])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 500])
def test_no_value_before_the_place_is_larger(n, kind):
    rng = np.random.default_rng(n)
    values = {
        "any": rng.normal(size=n),
        "few values": rng.integers(0, 3, n).astype(float),
        "rising": np.arange(float(n)),
        "falling": -np.arange(float(n)),
        "constant": np.zeros(n),
        "pipe": np.abs(np.arange(n) - n / 2.0),
    }[kind]
    for place in {0, n // 3, n // 2, n - 1}:
        found, rows = values.copy(), np.arange(n)
        select(found, rows, place)
        assert_array_equal(values[rows], found)
        assert_array_equal(np.sort(rows), np.arange(n))
        assert found[place] == np.sort(values)[place]
        assert (found[:place] <= found[place]).all()
        assert (found[place:] >= found[place]).all()


def test_the_first_of_the_widest_features_is_found():
    X = np.random.default_rng(0).integers(0, 9, (50, 6)).astype(float)
    rows = np.arange(10, 30)
    assert widest_feature(X, rows) == np.ptp(X[rows], axis=0).argmax()
    assert widest_feature(np.ones((5, 3)), np.arange(5)) == 0


def halved(points, rows):
    """The sets of rows that plain halving puts into blocks, where no two values are tied."""
    n_blocks = -(-len(rows) // BLOCK)
    if n_blocks == 1:
        return [set(rows.tolist())]
    widest = np.ptp(points[rows], axis=0).argmax()
    rows = rows[np.argsort(points[rows, widest])]
    left = n_blocks // 2 * BLOCK
    return halved(points, rows[:left]) + halved(points, rows[left:])


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", [1, BLOCK, BLOCK + 1, 1000, SMALL_CUT, SMALL_CUT + 1, 2 * WHOLE + 77])
def test_blocks_are_those_of_plain_halving(n, n_threads):
    X = np.random.default_rng(n).normal(size=(n, 3)) * [1.0, 3.0, 2.0]
    exact = cut_blocks(X, n_threads=n_threads).exact
    expected = halved(X, np.arange(n))
    assert [set(ids[:size].tolist()) for ids, size in zip(exact.ids, exact.size, strict=True)] == expected
    assert_array_equal(exact.points.reshape(-1, 3)[:n], X[exact.ids.ravel()[:n]])
    for b, rows in enumerate(expected):
        assert_array_equal(exact.low[b], X[list(rows)].min(axis=0))
        assert_array_equal(exact.high[b], X[list(rows)].max(axis=0))


def test_a_small_table_is_one_block():
    rows = np.arange(BLOCK)
    halve_to_blocks(np.zeros((BLOCK, 2)), rows, BLOCK)
    assert_array_equal(rows, np.arange(BLOCK))


@pytest.mark.parametrize("n", [200, SMALL_CUT + 1])
def test_a_range_too_wide_for_a_number_is_the_widest(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    X[:2, 1] = -1.7e308, 1.7e308
    with np.errstate(over="ignore"):  # numpy warns where compiled code does not
        ids = cut_blocks(X).exact.ids
    assert X[ids[0], 1].max() < X[ids[-1], 1][ids[-1] >= 0].min()


def test_dropped_points_are_found_by_no_product():
    X = np.random.default_rng(3).normal(size=(900, 6))
    gone = np.arange(900) % 3 == 0
    gone[cut_blocks(X).exact.ids[1]] = True  # a whole block
    distance, found = nearest_by_blocks(drop_points(cut_blocks(X), gone), 20, queries=cut_blocks(X))
    among = np.flatnonzero(~gone)
    for row in range(0, 900, 50):
        squares = ((X[row] - X[among]) ** 2).sum(axis=1)
        assert_array_equal(found[row], among[np.argsort(squares)[:20]])
    assert (distance[:, 1:] >= distance[:, :-1]).all()
