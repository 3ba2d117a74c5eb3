"""Kernels over pairs of rows.

A tile is a few hundred rows j of later groups, stored feature by feature so that every inner loop runs along j and is
vectorised. It is paired with four rows i at a time, so that each number loaded from it is used four times. Squared
differences are summed directly: the matrix-product formula for distances saves a sixth of their time at best, and loses
half of the digits where two rows are close.

Rows are standardised: no coordinate is beyond 1. The number of columns of every array of rows is a multiple of four.
"""

import numpy as np

from evenout.core.parallel import compiled
from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray

TILE = 256  # rows of a tile: a tile and four rows of similarities stay in the first cache
STEP = 16  # widths are rounded up to a multiple of this, so that no vectorised loop has a remainder
BEYOND = 1e30  # more than any squared distance; not infinity, which fastmath does not allow

# The polynomial that meets 2^(s - 1) at the Chebyshev nodes of [0, 1], lowest power first; no term is negative, so
# nothing cancels.
_NODES = 0.5 + 0.5 * np.cos(np.pi * (np.arange(7) + 0.5) / 7)
_POWER = tuple(np.linalg.solve(np.vander(_NODES, increasing=True), np.exp2(_NODES - 1)).astype(np.float32))


@compiled(fastmath=True)
def block_extremes(x: AnyArray, first: int, last: int, start: int) -> tuple[float, int, float, int]:
    """Find the extreme squared distances of rows ``first..last-1`` of x, shape (n, d), to its rows from ``start`` on.

    Gives the smallest and the largest, each followed by the row from ``start`` on that attains it.
    """
    tile, squared = np.empty((x.shape[1], TILE), x.dtype), np.empty(4 * TILE, x.dtype)
    near, far = np.empty(TILE, x.dtype), np.empty(TILE, x.dtype)
    low, low_row, high, high_row = BEYOND, start, -1.0, start
    for left in range(start, len(x), TILE):
        right = min(left + TILE, len(x))
        width = _load(x, left, right, tile)
        near[:] = BEYOND
        far[:] = 0
        for i in range(first, last, 4):
            _squared_distances(x, i, last, tile, width, squared)
            for j in range(width):
                a, b, c, d = squared[j], squared[TILE + j], squared[2 * TILE + j], squared[3 * TILE + j]
                near[j] = min(near[j], a, b, c, d)
                far[j] = max(far[j], a, b, c, d)
        for j in range(right - left):
            if near[j] < low:
                low, low_row = near[j], left + j
            if far[j] > high:
                high, high_row = far[j], left + j
    return low, low_row, high, high_row


@compiled(fastmath=True)
def block_sums(
    x: AnyArray, z: Float32Array, first: int, last: int, starts: IntArray, stops: IntArray, slope: float, offset: float,
    form: FloatArray, mass: FloatArray,
) -> None:  # fmt: skip
    """Add up the pairs of rows ``first..last-1``, TILE at most, with each cell of later rows.

    x (n, d) is float32 or float64; the first column of z (n, q) is all ones, so that ``M z`` holds the row sums of M.
    Cell b holds the rows ``starts[b]..stops[b] - 1``, and ``M_ij = 2^(offset - slope * distance)``, with slope and
    offset of the type of x. ``form`` (cells, q, q) gets ``sum_ij M_ij (z_i z_i' + z_j z_j' - 2 z_i z_j')``, to be
    symmetrised, and ``mass`` (cells,) ``sum_ij M_ij``.
    """
    q = z.shape[1]
    tile, squared = np.empty((x.shape[1], TILE), x.dtype), np.empty(4 * TILE, x.dtype)
    own, scores, m = np.empty((q, TILE), z.dtype), np.empty((q, TILE), z.dtype), np.empty(4 * TILE, z.dtype)
    weights, y, nothing = np.empty(TILE, z.dtype), np.empty((q, TILE)), np.zeros((q, TILE))
    height = _load(z, first, last, own)
    for b in range(len(mass)):
        y[:, :height] = 0  # M z, transposed
        size = stops[b] - starts[b]
        parts = (size + TILE - 1) // TILE
        for part in range(parts):  # of nearly equal width
            left, right = starts[b] + size * part // parts, starts[b] + size * (part + 1) // parts
            width = _load(x, left, right, tile)
            _load(z, left, right, scores)
            scores[:, right - left : width] = 0
            weights[:] = 0
            for i in range(0, last - first, 4):
                _squared_distances(x, first + i, last, tile, width, squared)
                _similarities(squared, last - first - i, width, slope, offset, m, weights)
                _multiply(m, scores, width, y, i)
            _add_squares(scores, weights, nothing, width, m, form[b])  # the weights are the column sums of M
        for i in range(height):
            weights[i] = y[0, i]  # and here its row sums
            mass[b] += y[0, i]
        _add_squares(own, weights, y, height, m, form[b])


@compiled(fastmath=True)
def _load(rows: AnyArray, left: int, right: int, tile: AnyArray) -> int:
    """Copy rows left..right-1 into the columns of the tile and repeat the last one up to the width that is returned."""
    width = (right - left + STEP - 1) // STEP * STEP
    for j in range(width):
        row = rows[min(left + j, right - 1)]
        for c in range(len(row)):
            tile[c, j] = row[c]
    return width


@compiled(fastmath=True)
def _squared_distances(x: AnyArray, i: int, last: int, tile: AnyArray, width: int, out: AnyArray) -> None:
    """Squared distances of rows i..i+3 to the tile, TILE places for each; the last row stands in for rows beyond it."""
    out[:] = 0
    r0, r1, r2, r3 = x[i], x[min(i + 1, last - 1)], x[min(i + 2, last - 1)], x[min(i + 3, last - 1)]
    for c in range(0, x.shape[1], 4):
        a0, a1, a2, a3 = r0[c], r0[c + 1], r0[c + 2], r0[c + 3]
        b0, b1, b2, b3 = r1[c], r1[c + 1], r1[c + 2], r1[c + 3]
        c0, c1, c2, c3 = r2[c], r2[c + 1], r2[c + 2], r2[c + 3]
        d0, d1, d2, d3 = r3[c], r3[c + 1], r3[c + 2], r3[c + 3]
        t0, t1, t2, t3 = tile[c], tile[c + 1], tile[c + 2], tile[c + 3]
        for j in range(width):
            u0, u1, u2, u3 = t0[j], t1[j], t2[j], t3[j]
            out[j] += _square(u0 - a0) + _square(u1 - a1) + _square(u2 - a2) + _square(u3 - a3)
            out[TILE + j] += _square(u0 - b0) + _square(u1 - b1) + _square(u2 - b2) + _square(u3 - b3)
            out[2 * TILE + j] += _square(u0 - c0) + _square(u1 - c1) + _square(u2 - c2) + _square(u3 - c3)
            out[3 * TILE + j] += _square(u0 - d0) + _square(u1 - d1) + _square(u2 - d2) + _square(u3 - d3)


@compiled(fastmath=True)
def _square(v: float) -> float:
    return v * v


@compiled(fastmath=True)
def _similarities(
    squared: AnyArray, n_rows: int, width: int, slope: float, offset: float, m: Float32Array, column_sums: Float32Array
) -> None:
    """Set ``m = 2^(offset - slope * sqrt(squared))``, 0 from the row ``n_rows`` of four on, and add up its columns."""
    one, zero = np.float32(1), np.float32(0)
    k1, k2, k3 = one if n_rows > 1 else zero, one if n_rows > 2 else zero, one if n_rows > 3 else zero
    for j in range(width):
        v0 = negative_power(slope * np.sqrt(squared[j]) - offset)
        v1 = k1 * negative_power(slope * np.sqrt(squared[TILE + j]) - offset)
        v2 = k2 * negative_power(slope * np.sqrt(squared[2 * TILE + j]) - offset)
        v3 = k3 * negative_power(slope * np.sqrt(squared[3 * TILE + j]) - offset)
        m[j], m[TILE + j], m[2 * TILE + j], m[3 * TILE + j] = v0, v1, v2, v3
        column_sums[j] += v0 + v1 + v2 + v3


@compiled(fastmath=True)
def negative_power(t: float) -> float:
    """``2^-t`` in float32 for t >= 0, or 0 from t = 127 on; the whole part of t goes into the bits of the exponent."""
    capped = min(np.float32(t), np.float32(127))
    whole = np.int32(capped)
    s = np.float32(1) - (capped - np.float32(whole))
    p = _POWER
    fraction = p[0] + s * (p[1] + s * (p[2] + s * (p[3] + s * (p[4] + s * (p[5] + s * p[6])))))
    return fraction * np.int32((127 - whole) << 23).view(np.float32)


@compiled(fastmath=True)
def _multiply(m: Float32Array, tile: Float32Array, width: int, out: FloatArray, i: int) -> None:
    """Add the products of the rows of the tile and four rows of m to ``out[:, i..i+3]``; 4 x 4 in registers at once."""
    zero = np.float32(0)
    for c in range(0, len(tile), 4):
        t0, t1, t2, t3 = tile[c], tile[c + 1], tile[c + 2], tile[c + 3]
        a0, a1, a2, a3 = zero, zero, zero, zero
        b0, b1, b2, b3 = zero, zero, zero, zero
        c0, c1, c2, c3 = zero, zero, zero, zero
        d0, d1, d2, d3 = zero, zero, zero, zero
        for j in range(width):
            u0, u1, u2, u3 = t0[j], t1[j], t2[j], t3[j]
            v0, v1, v2, v3 = m[j], m[TILE + j], m[2 * TILE + j], m[3 * TILE + j]
            a0, a1, a2, a3 = a0 + v0 * u0, a1 + v0 * u1, a2 + v0 * u2, a3 + v0 * u3
            b0, b1, b2, b3 = b0 + v1 * u0, b1 + v1 * u1, b2 + v1 * u2, b3 + v1 * u3
            c0, c1, c2, c3 = c0 + v2 * u0, c1 + v2 * u1, c2 + v2 * u2, c3 + v2 * u3
            d0, d1, d2, d3 = d0 + v3 * u0, d1 + v3 * u1, d2 + v3 * u2, d3 + v3 * u3
        _add4(out[c], i, a0, b0, c0, d0)
        _add4(out[c + 1], i, a1, b1, c1, d1)
        _add4(out[c + 2], i, a2, b2, c2, d2)
        _add4(out[c + 3], i, a3, b3, c3, d3)


@compiled(fastmath=True)
def _add4(out: FloatArray, i: int, v0: float, v1: float, v2: float, v3: float) -> None:
    out[i] += v0
    out[i + 1] += v1
    out[i + 2] += v2
    out[i + 3] += v3


@compiled(fastmath=True)
def _add_squares(
    z: Float32Array, weights: Float32Array, y: FloatArray, width: int, m: Float32Array, form: FloatArray
) -> None:
    """Add ``sum_j z_j (w_j z_j - 2 y_j)'`` to the form, over columns j of the tiles z and y; m is overwritten."""
    for a in range(0, len(z), 4):
        for row in range(4):
            for j in range(width):
                m[row * TILE + j] = weights[j] * z[a + row, j] - 2 * y[a + row, j]
        _multiply(m, z, width, form, a)


@compiled(fastmath=True)
def cycle_sums(
    x: AnyArray, z: Float32Array, rows: IntArray, columns: IntArray, shift: int, length: int, slope: float,
    offset: float, form: FloatArray, mass: FloatArray,
) -> None:  # fmt: skip
    """Add up runs of ``length`` shifts each, from ``shift`` on: in shift s, block a meets block ``(a + s) mod m``.

    ``rows`` and ``columns`` (m + 1,) are the first row of each block of the two cells, and the end of the last; TILE
    rows at most in a block of the first. ``form`` (2 R, q, q) and ``mass`` (2 R,) get the sums of run r, as in
    `block_sums`, in two parts: up to the end of the second cell in place 2 r, and on from its beginning in 2 r + 1.
    """
    m, runs = len(rows) - 1, len(mass) // 2
    starts, stops = np.empty(2 * runs, np.intp), np.empty(2 * runs, np.intp)
    for a in range(m):
        for run in range(runs):
            left = (a + shift + run * length) % m
            right = left + length
            starts[2 * run], stops[2 * run] = columns[left], columns[min(right, m)]
            starts[2 * run + 1], stops[2 * run + 1] = columns[0], columns[max(right - m, 0)]
        block_sums(x, z, rows[a], rows[a + 1], starts, stops, slope, offset, form, mass)
