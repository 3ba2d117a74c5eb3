"""Kernel of the sampled pair sums: every block of one cell meets blocks of another, some way round a cycle."""

import numpy as np

from evenout.core._pairwise_kernels import block_sums
from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray


@compiled(fastmath=True)
def cycle_sums(
    x: AnyArray,
    z: Float32Array,
    rows: IntArray,
    columns: IntArray,
    shift: int,
    length: int,
    slope: float,
    offset: float,
    form: FloatArray,
    mass: FloatArray,
) -> None:
    """Add up runs of ``length`` shifts each, from ``shift`` on: in shift s, block a meets block ``(a + s) mod m``.

    Parameters
    ----------
    x, z, slope, offset
        As in `evenout.core._pairwise_kernels.block_sums`.
    rows, columns : arrays of shape (m + 1,)
        First row of each block of the two cells, and the end of the last; TILE rows at most in a block of the first.
    shift, length : int
    form, mass : arrays of shape (2 R, q, q) and (2 R,)
        Get the sums of run r, as in `block_sums`, in two parts: up to the end of the second cell in place 2 r, and on
        from its beginning in place 2 r + 1.
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
