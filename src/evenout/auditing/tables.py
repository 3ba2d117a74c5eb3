"""Rows counted by group, class and score, and such tables drawn anew: bootstrap and permutations.

Every measure of the audit depends on the rows only through how many of each group have each score (and label, or
stratum). A drawn table is therefore all that a resample has to give. Draws come in batches, so that the measures run
on whole arrays.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evenout.core.types import FloatArray, IntArray

MAX_LEVELS = 4_096  # scores are rounded to so many levels before draws; see `_score_levels`
_ROWS_DRAWN = 100_000  # larger tables are drawn cell by cell, at a cost that no longer grows with the rows
_BATCH = 1 << 17  # numbers in one batch of draws, few enough for the processor's cache


@dataclass(frozen=True)
class Table:
    """Rows of each group in each cell, a cell being one score level of one class (label or stratum).

    Parameters
    ----------
    counts : array of shape (G, C)
    values : array of shape (C,)
        Score of each cell, ascending within a class.
    edges : array of shape (K + 1,)
        Class k has the cells ``edges[k]..edges[k + 1] - 1``.
    """

    counts: IntArray
    values: FloatArray
    edges: IntArray

    @property
    def n_rows(self) -> int:
        """Rows in the table."""
        return int(self.counts.sum())

    def bootstrap(self, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Batches, shape (b, G, C), of tables whose rows are drawn with replacement within each group."""
        for batch in self._batches(size):
            if self.n_rows > _ROWS_DRAWN:
                parts = [rng.multinomial(row.sum(), row / row.sum(), size=batch) for row in self.counts]
            else:
                parts = [self._drawn_rows(row, batch, rng) for row in self.counts]
            yield np.stack(parts, axis=1)

    def permutations(self, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Batches, shape (b, G, C), of tables whose group labels are shuffled within each class."""
        shuffle = _shuffled_cells if self.n_rows > _ROWS_DRAWN else _shuffled_rows
        for batch in self._batches(size):
            drawn = np.zeros((batch, *self.counts.shape), dtype=np.intp)
            for start, stop in zip(self.edges[:-1], self.edges[1:], strict=True):
                drawn[:, :, start:stop] = shuffle(self.counts[:, start:stop], batch, rng)
            yield drawn

    def _batches(self, size: int) -> Iterator[int]:
        full = max(1, _BATCH // max(self.counts.size, min(self.n_rows, _ROWS_DRAWN)))
        for start in range(0, size, full):
            yield min(full, size - start)

    def _drawn_rows(self, counts: IntArray, batch: int, rng: np.random.Generator) -> IntArray:
        cell_of = np.repeat(np.arange(len(counts)), counts)
        cells = cell_of[rng.integers(len(cell_of), size=(batch, len(cell_of)), dtype=np.int32)]
        return _count(cells, batch, len(counts))


def level_table(
    scores: FloatArray,
    groups: IntArray,
    n_groups: int,
    classes: IntArray | None = None,
    n_classes: int = 1,
    max_levels: int | None = None,
) -> Table:
    """A table in which all classes share the same L score levels: ``C = K L``, so that counts reshape to (G, K, L).

    Parameters
    ----------
    scores : array of shape (n,)
    groups : array of shape (n,)
        Codes in 0..n_groups-1.
    n_groups : int
    classes : array of shape (n,), optional
        Codes in 0..n_classes-1; one class if left out.
    n_classes : int
    max_levels : int, optional
        Round the scores to so many levels at most; exact if left out.

    >>> table = level_table(np.array([0.5, 0.1, 0.5]), np.array([0, 1, 1]), 2)
    >>> table.values.tolist(), table.counts.tolist()
    ([0.1, 0.5], [[0, 1], [1, 1]])
    """
    levels, position = _score_levels(scores, max_levels)
    L = len(levels)
    cells = position if classes is None else classes * L + position
    counts = np.bincount(groups * n_classes * L + cells, minlength=n_groups * n_classes * L)
    edges = np.arange(n_classes + 1) * L
    return Table(counts.reshape(n_groups, -1), np.tile(levels, n_classes), edges)


def class_table(
    scores: FloatArray,
    groups: IntArray,
    n_groups: int,
    classes: IntArray,
    n_classes: int,
    max_levels: int | None = None,
) -> Table:
    """A table with only those cells that hold a row: for many classes, where just sums within a class are needed."""
    levels, position = _score_levels(scores, max_levels)
    cells, cell_of = np.unique(classes * len(levels) + position, return_inverse=True)
    counts = np.bincount(groups * len(cells) + cell_of, minlength=n_groups * len(cells))
    edges = np.searchsorted(cells, np.arange(n_classes + 1) * len(levels))
    return Table(counts.reshape(n_groups, -1), levels[cells % len(levels)], edges)


def _score_levels(scores: FloatArray, limit: int | None) -> tuple[FloatArray, IntArray]:
    """Distinct scores, ascending, and the place of each row among them; more than ``limit`` are rounded to bin means.

    A row with r rows above falls into bin ``limit sqrt(r / n)``: fine on top, where rows are flagged. A cut
    at the highest share x then moves by ``2 / (limit sqrt(x))`` of the flagged rows at most, less than the sampling
    error ``1 / sqrt(n x)`` of their number as long as n is below ``limit^2 / 4``.
    """
    levels, position, counts = np.unique(scores, return_inverse=True, return_counts=True)
    if limit is None or len(levels) <= limit:
        return levels, position
    above = len(scores) - np.cumsum(counts)
    large = counts > len(scores) / limit  # a score that many rows share stays a level of its own
    starts = large | np.r_[False, large[:-1]]
    steps = np.cumsum(starts) - np.floor(limit * np.sqrt(above / len(scores)))
    _, bins = np.unique(steps, return_inverse=True)
    means = np.bincount(bins, weights=levels * counts) / np.bincount(bins, weights=counts)
    return means, bins[position]


def _shuffled_rows(counts: IntArray, batch: int, rng: np.random.Generator) -> IntArray:
    """Deal the rows out at random: each group draws its rows without replacement, the largest gets the rest."""
    n_groups, n_cells = counts.shape
    sizes = counts.sum(axis=1)
    largest, n_drawn = int(sizes.argmax()), int(sizes.sum() - sizes.max())
    smaller = np.delete(np.arange(n_groups), largest)
    cell_of = np.repeat(np.arange(n_cells), counts.sum(axis=0))
    # with one group to draw, the order of its rows does not matter
    rows = np.array(
        [rng.choice(len(cell_of), n_drawn, replace=False, shuffle=n_groups > 2) for _ in range(batch)]
    )
    cells = np.repeat(smaller, sizes[smaller]) * n_cells + cell_of[rows]
    drawn = _count(cells, batch, counts.size).reshape(batch, n_groups, n_cells)
    drawn[:, largest] = counts.sum(axis=0) - drawn.sum(axis=1)
    return drawn


def _shuffled_cells(counts: IntArray, batch: int, rng: np.random.Generator) -> IntArray:
    """The same distribution cell by cell: each group in turn takes its rows from what the others left."""
    drawn = np.empty((batch, *counts.shape), dtype=np.intp)
    for table in drawn:
        left = counts.sum(axis=0)
        for group, size in enumerate(counts.sum(axis=1)[:-1]):
            table[group] = rng.multivariate_hypergeometric(left, size, method="marginals")
            left = left - table[group]
        table[-1] = left
    return drawn


def _count(cells: IntArray, batch: int, n_cells: int) -> IntArray:
    """Count how often each cell occurs in each row of ``cells``, shape (b, C)."""
    cells = cells + (np.arange(batch) * n_cells)[:, None]
    return np.bincount(cells.ravel(), minlength=batch * n_cells).reshape(batch, n_cells)
