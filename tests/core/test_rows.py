"""Passes over rows on threads, against the one line of numpy that each of them stands for."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from evenout.core import parallel as rows
from evenout.core.parallel import by_rows, put_rows, side_by_side, sorted_columns, take_rows

SIZES = [0, 1, 7, 8, 100]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(rows, "ROWS", 8)


def table(n, k=3):
    return np.random.default_rng(n).integers(-3, 3, (n, k)).astype(float)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", SIZES)
def test_rows_follow_from_rows(n, n_threads):
    X, t = table(n), np.arange(float(n))
    assert_array_equal(by_rows(lambda x: 2 * x, X, n_threads=n_threads, block=8), 2 * X)
    found = by_rows(lambda x, y: x[:, :2] + y[:, None], X, t, width=2, n_threads=n_threads, block=8)
    assert_array_equal(found, X[:, :2] + t[:, None])


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", SIZES)
def test_rows_are_taken_by_places_and_by_masks(n, n_threads):
    X = table(n)
    places, mask = np.arange(n)[::-2], X[:, 0] > 0
    for array in (X, X[:, 0], np.asfortranarray(X)):
        assert_array_equal(take_rows(array, places, n_threads), array[places])
        assert_array_equal(take_rows(array, mask, n_threads), array[mask])
        assert take_rows(array, mask, n_threads).flags.c_contiguous


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", SIZES)
def test_columns_and_tables_stand_side_by_side(n, n_threads):
    X, t = table(n), np.arange(float(n))
    found = side_by_side([np.ones(n), np.asfortranarray(X), np.empty((n, 0)), t], n_threads)
    assert_array_equal(found, np.column_stack([np.ones(n), X, t]))
    assert found.flags.c_contiguous


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", SIZES)
def test_each_column_is_sorted(n, n_threads):
    assert_array_equal(sorted_columns(table(n), n_threads), np.sort(table(n), axis=0))
    assert sorted_columns(table(n), n_threads).flags.c_contiguous


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", SIZES)
def test_marked_rows_are_put_in_their_places(n, n_threads):
    X, other = table(n), table(n) + 10.0
    mask = X[:, 0] > 0
    expected = X.copy()
    expected[mask] = other[mask]
    put_rows(X, mask, other, n_threads)
    assert_array_equal(X, expected)
