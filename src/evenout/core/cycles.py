"""Samples of the pairs of two cells in which every row takes part equally often.

The rows of two cells, in random order, are cut into m blocks each. *Shift* s pairs block a of one cell with block
``(a + s) mod m`` of the other: one m-th of the pairs. What a row adds by itself, which is most of the variance of
plainly drawn pairs, is the same in every shift. All m shifts are all pairs.
"""

from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple, Self

import numpy as np

from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray

BLOCK = 64  # rows of the smaller cell in a block; with fewer, a shift is hardly faster, and has fewer pairs
GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly


class Rows(NamedTuple):
    """Rows of all cells as the kernels take them: x (n, d), z (n, w), slope and offset of the exponent."""

    x: AnyArray
    z: Float32Array
    slope: np.floating[Any]
    offset: np.floating[Any]


@dataclass(frozen=True)
class Sample:
    """Sums over the visited pairs of two cells, in R runs of so many shifts each, or one if all are visited.

    Parameters
    ----------
    small, large : pairs of int
        First row of the cell, and its last row + 1.
    weight : float
        What a pair counts in the sum over all pairs of cells.
    start : float in [0, 1)
        Where in the cycle the first run begins.
    form, mass : arrays of shape (R, w, w) and (R,)
        As in `evenout.core.pairwise.PairSums`, of each run.
    shifts, visited : int
        Shifts in each run, and pairs in all of them.
    """

    small: tuple[int, int]
    large: tuple[int, int]
    weight: float
    start: float
    form: FloatArray
    mass: FloatArray
    shifts: int = 0
    visited: int = 0

    @property
    def pairs(self) -> int:
        """All pairs of the two cells."""
        return (self.small[1] - self.small[0]) * (self.large[1] - self.large[0])

    @property
    def factor(self) -> float:
        """Pairs for each visited one."""
        return self.pairs / max(self.visited, 1)

    @property
    def deviations(self) -> FloatArray:
        """R uncorrelated arrays of mean 0 with the covariance of the estimate ``factor * form.sum(axis=0)``, (R, w, w).

        That of simple random sampling without replacement, in which the runs are drawn from all runs there are.
        """
        runs = len(self.form)
        spread = self.factor * np.sqrt((1 - 1 / self.factor) * runs / (runs - 1))
        return spread * (self.form - self.form.mean(axis=0))

    def grown(self, rows: Rows, goal: float) -> Self:
        """Visit more shifts, for ``goal`` pairs in all, or every pair if there are not twice as many."""
        from evenout.core._pairwise_kernels import TILE

        if self.visited == self.pairs:
            return self
        n, runs = self.small[1] - self.small[0], len(self.mass)
        blocks = -(-n // BLOCK)
        shifts = max(1, round(goal / self.pairs * blocks / runs))
        if 2 * runs * shifts > blocks:
            blocks = -(-n // TILE)
            form, mass, visited = self._visit(rows, blocks, shift=0, length=blocks, runs=1)
            return replace(self, form=form, mass=mass, shifts=blocks, visited=visited)
        if shifts <= self.shifts:
            return self
        form, mass, visited = self._visit(rows, blocks, runs * self.shifts, shifts - self.shifts, runs)
        form, mass, visited = self.form + form, self.mass + mass, self.visited + visited
        return replace(self, form=form, mass=mass, shifts=shifts, visited=visited)

    def _visit(self, rows: Rows, blocks: int, shift: int, length: int, runs: int) -> tuple[FloatArray, FloatArray, int]:
        """Sums of ``runs`` runs of ``length`` shifts, from ``shift`` on, and the number of pairs in them."""
        from evenout.core._cycle_kernels import cycle_sums

        left, right = (np.linspace(first, last, blocks + 1).astype(np.intp) for first, last in (self.small, self.large))
        shift += int(self.start * blocks)
        form, mass = np.zeros((2 * runs, *self.form.shape[1:])), np.zeros(2 * runs)
        cycle_sums(rows.x, rows.z, left, right, shift, length, rows.slope, rows.offset, form, mass)
        form, mass = form[::2] + form[1::2], mass[::2] + mass[1::2]
        first = (np.arange(blocks) + shift) % blocks
        before = np.r_[0, np.cumsum(np.tile(np.diff(right), 2))]
        visited = np.diff(left) @ (before[first + runs * length] - before[first])
        return (form + form.swapaxes(-1, -2)) / 2, mass, int(visited)


def cell_pairs(edges: IntArray, n_groups: int, n_folds: int, runs: int, width: int) -> list[Sample]:
    """Empty samples of all pairs of cells from different groups, in the order of `evenout.core.pairwise.PairSums`.

    Cell b, which is a fold of group ``b // n_folds``, holds the rows ``edges[b]..edges[b + 1] - 1``. A pair counts
    ``1 / (n_p n_q)`` in groups of n_p and n_q rows.

    Blocks differ in size by a row, so that some rows have a few more partners than others. The cycles begin at
    different places, lest these be the same rows for all pairs of cells.
    """
    cells, sizes = list(pairwise(edges.tolist())), np.diff(edges[::n_folds]).tolist()
    nothing = np.zeros((runs, width, width)), np.zeros(runs)
    samples: list[Sample] = []
    for p, q in combinations(range(n_groups), 2):
        for f, g in product(range(n_folds), repeat=2):
            a, b = cells[p * n_folds + f], cells[q * n_folds + g]
            small, large = (a, b) if a[1] - a[0] <= b[1] - b[0] else (b, a)
            start = GOLDEN * len(samples) % 1.0
            samples.append(Sample(small, large, 1.0 / max(sizes[p] * sizes[q], 1), start, *nothing))
    return samples
