"""The kernels against plain formulas, on arrays so small that they also run uncompiled (NUMBA_DISABLE_JIT=1)."""

import numpy as np
import pytest

from evenout.core._pair_kernels import (
    _POWER,
    STEP,
    TILE,
    _add_squares,
    _load,
    _multiply,
    _similarities,
    _squared_distances,
    block_extremes,
    block_sums,
    negative_power,
)

SLOPE, OFFSET = 0.9, 0.3


def make_rows(n, d=8, q=8, dtype=np.float32, seed=0):
    """Rows as the kernels take them: coordinates within 1, and scores whose first column is all ones."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, q)).astype(np.float32)
    z[:, 0] = 1
    return rng.uniform(-1, 1, (n, d)).astype(dtype), z


def distances(x, rows, columns):
    x = x.astype(float)
    return np.sqrt(((x[rows, None] - x[None, columns]) ** 2).sum(axis=-1))


def formula(x, z, rows, columns):
    """Form, symmetrised, and mass over all pairs of two ranges of rows, in float64."""
    M = np.exp2(OFFSET - SLOPE * distances(x, rows, columns))
    a, b = z[rows].astype(float), z[columns].astype(float)
    gaps = a[:, None] - b[None]
    return np.einsum("ij,ijk,ijl->kl", M, gaps, gaps), M.sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "first", "last", "cells"),
    [
        (9, 0, 4, [(4, 9)]),
        (
            12,
            1,
            6,
            [(6, 7), (7, 12)],
        ),  # five rows: the second four of them are one row and three that count nothing
        (13, 2, 5, [(5, 5), (6, 13)]),  # a cell without rows
        (40, 0, 7, [(8, 40)]),  # two steps of columns
    ],
)
def test_block_sums_equal_the_formula(n, first, last, cells, dtype):
    x, z = make_rows(n, dtype=dtype)
    starts, stops = (np.array(edge, dtype=np.intp) for edge in zip(*cells, strict=True))
    before = np.arange(64.0).reshape(8, 8)  # what is there already stays
    form, mass = np.stack([before] * len(cells)), np.full(len(cells), 2.0)
    block_sums(x, z, first, last, starts, stops, dtype(SLOPE), dtype(OFFSET), form, mass)
    for b, (start, stop) in enumerate(cells):
        expected, total = formula(x, z, slice(first, last), slice(start, stop))
        added = form[b] - before
        np.testing.assert_allclose((added + added.T) / 2, expected, atol=2e-5)
        assert mass[b] - 2.0 == pytest.approx(total, rel=1e-6)


def test_block_sums_over_several_tiles_equal_the_formula():
    n = 2 * TILE + 90
    x, z = make_rows(n, d=4, q=4)
    form, mass = np.zeros((1, 4, 4)), np.zeros(1)
    block_sums(x, z, 0, 2, np.array([3]), np.array([n]), np.float32(SLOPE), np.float32(OFFSET), form, mass)
    expected, total = formula(x, z, slice(0, 2), slice(3, n))
    np.testing.assert_allclose((form[0] + form[0].T) / 2, expected, atol=1e-5 * expected.max())
    assert mass[0] == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "first", "last", "start"), [(10, 0, 4, 4), (23, 1, 6, 8), (TILE + 40, 2, 9, 9)])
def test_block_extremes_are_those_of_the_distances(n, first, last, start, dtype):
    x, _ = make_rows(n, dtype=dtype)
    low, low_row, high, high_row = block_extremes(x, first, last, start)
    squared = distances(x, slice(first, last), slice(start, n)) ** 2
    assert low == pytest.approx(squared.min(), rel=1e-6)
    assert high == pytest.approx(squared.max(), rel=1e-6)
    assert low_row == start + squared.min(axis=0).argmin()
    assert high_row == start + squared.max(axis=0).argmax()


def test_block_extremes_are_found_in_any_of_four_rows_and_any_tile():
    x = np.zeros((TILE + 30, 4), dtype=np.float32)
    x[8:, 0] = 0.5  # rows 0..6 stand at 0, and everything is 0.5 away
    for row in range(7):
        for column in (8, TILE + 7, TILE + 8, TILE + 29):  # the first and the last row of both tiles
            moved = x.copy()
            moved[row, 1], moved[column, 1] = -0.3, 0.4
            assert block_extremes(moved, 0, 7, 8)[2:] == (pytest.approx(0.25 + 0.49), column)
            moved[row], moved[column] = [0.1, 0.0, 0.7, 0.0], [0.2, 0.0, 0.7, 0.0]
            assert block_extremes(moved, 0, 7, 8)[:2] == (pytest.approx(0.01), column)


def test_equal_extremes_belong_to_the_first_row():
    x = np.zeros((6, 4), dtype=np.float32)
    x[2:, 0] = [0.5, 1.0, 0.5, 1.0]
    assert block_extremes(x, 0, 2, 2) == (0.25, 2, 1.0, 3)
    same = np.full((6, 4), 0.5, dtype=np.float32)
    assert block_extremes(same, 0, 2, 2) == (0.0, 2, 0.0, 2)


@pytest.mark.parametrize("count", [1, STEP - 1, STEP, STEP + 1])
def test_load_fills_whole_steps_with_the_last_row(count):
    rows = np.arange(60 * 4.0).reshape(60, 4)
    tile = np.full((4, TILE), -1.0)
    width = _load(rows, 5, 5 + count, tile)
    assert width == (STEP if count <= STEP else 2 * STEP)
    np.testing.assert_array_equal(tile[:, :count], rows[5 : 5 + count].T)
    np.testing.assert_array_equal(tile[:, count:width], rows[[4 + count] * (width - count)].T)
    assert (tile[:, width:] == -1).all()


@pytest.mark.parametrize("last", [4, 5, 6, 7, 30])
def test_squared_distances_of_four_rows(last):
    x, _ = make_rows(30)
    tile, out = np.zeros((8, TILE), dtype=np.float32), np.full(4 * TILE, 7.0, dtype=np.float32)
    tile[:, :STEP] = x[10 : 10 + STEP].T
    _squared_distances(x, 3, last, tile, STEP, out)
    rows = np.minimum(np.arange(3, 7), last - 1)
    expected = distances(x, rows, slice(10, 10 + STEP)) ** 2
    np.testing.assert_allclose(out.reshape(4, TILE)[:, :STEP], expected, rtol=1e-5)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 9])
def test_similarities_of_rows_beyond_the_last_are_zero(n_rows):
    rng = np.random.default_rng(0)
    squared = rng.random(4 * TILE).astype(np.float32)
    m, sums = np.zeros(4 * TILE, dtype=np.float32), np.full(TILE, 3.0, dtype=np.float32)
    _similarities(squared, n_rows, STEP, np.float32(SLOPE), np.float32(-OFFSET), m, sums)
    expected = np.exp2(-OFFSET - SLOPE * np.sqrt(squared.reshape(4, TILE)[:, :STEP].astype(float)))
    expected[n_rows:] = 0
    np.testing.assert_allclose(m.reshape(4, TILE)[:, :STEP], expected, rtol=1e-6)
    np.testing.assert_allclose(sums[:STEP], 3.0 + expected.sum(axis=0), rtol=1e-6)
    assert (sums[STEP:] == 3.0).all()


def test_power_is_exact_to_float32():
    assert min(_POWER) > 0
    t = np.r_[np.linspace(0, 2, 300), np.linspace(2, 125.9, 100)].astype(np.float32)
    power = np.array([negative_power(value) for value in t])
    assert np.abs(power / np.exp2(-t.astype(float)) - 1).max() < 2e-7
    assert [negative_power(np.float32(value)) for value in (127, 128, 1e9)] == [0, 0, 0]


def test_multiply_adds_the_product_of_both_tiles():
    rng = np.random.default_rng(0)
    m, tile = (rng.standard_normal((rows, TILE)).astype(np.float32) for rows in (4, 8))
    out = np.ones((8, 12))
    _multiply(m.ravel(), tile, STEP, out, 5)
    expected = np.ones((8, 12))
    expected[:, 5:9] += (tile[:, :STEP].astype(float)) @ m[:, :STEP].T
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_add_squares_equals_its_formula():
    rng = np.random.default_rng(0)
    z, y = rng.standard_normal((8, TILE)).astype(np.float32), rng.standard_normal((8, TILE))
    weights, m, form = (
        rng.random(TILE).astype(np.float32),
        np.empty(4 * TILE, dtype=np.float32),
        np.ones((8, 8)),
    )
    _add_squares(z, weights, y, STEP, m, form)
    a, b, w = z[:, :STEP].astype(float), y[:, :STEP], weights[:STEP].astype(float)
    expected = a @ (w * a - 2 * b).T  # the form is symmetrised later
    np.testing.assert_allclose(form - 1, expected, atol=2e-5)
