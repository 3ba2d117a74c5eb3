"""Bootstrap draws and permutations, as counts in tables of levels by group.

Every measure of the audit depends on the rows only through the number of rows of each group with each score (and label,
or stratum). So a resample is a drawn table. Draws come in batches, so that the measures run on whole arrays. Rows that
belong together are drawn as whole clusters: see `ClusterTable`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from evenout.core.types import BoolArray, FloatArray, IntArray

MAX_LEVELS = 4_096  # levels that scores are rounded to before draws; see `_score_levels`
_ROWS_DRAWN = 100_000  # larger tables are drawn cell by cell, at a cost that does not grow with the rows
_BATCH = 1 << 17  # numbers in one batch of draws, few enough for the processor's cache
_CLUSTER_BATCH = 1 << 20
_UNITS = 4_000  # more clusters than this are drawn several at a time
_UNITS_A_GROUP = 200  # least number of such draws in each group


@dataclass(frozen=True)
class Table:
    """Rows of each group in each cell, ``counts`` (G, C), a cell being one score level of one class (label or stratum).

    ``values`` (C,) are the scores of the cells, ascending within a class; class k has the cells
    ``edges[k]..edges[k + 1] - 1``. ``background`` (L,) are rows at each level that count towards thresholds alone and
    are the same in every draw.
    """

    counts: IntArray
    values: FloatArray
    edges: IntArray
    background: IntArray | None = None

    @property
    def n_rows(self) -> int:
        """Rows in the table."""
        return int(self.counts.sum())

    def bootstrap(self, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Batches, shape (b, G, C), of tables whose rows are drawn with replacement within each group."""
        for batch in self._batches(size):
            drawn = []
            for row in self.counts:
                if self.n_rows > _ROWS_DRAWN:
                    drawn.append(rng.multinomial(row.sum(), row / row.sum(), size=batch))
                else:
                    cell_of = np.repeat(np.arange(len(row)), row)
                    picks = rng.integers(len(cell_of), size=(batch, len(cell_of)), dtype=np.int32)
                    drawn.append(_count(cell_of[picks], len(row)))
            yield np.stack(drawn, axis=1)

    def permutations(self, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Batches, shape (b, G, C), of tables whose group labels are shuffled within each class."""
        shuffle = _shuffled_cells if self.n_rows > _ROWS_DRAWN else _shuffled_rows
        for batch in self._batches(size):
            drawn = np.zeros((batch, *self.counts.shape), dtype=np.intp)
            for start, stop in zip(self.edges[:-1], self.edges[1:], strict=True):
                drawn[:, :, start:stop] = shuffle(self.counts[:, start:stop], batch, rng)
            yield drawn

    def _batches(self, size: int) -> Iterator[int]:
        """Sizes of the batches of ``size`` draws; beyond `_ROWS_DRAWN`, cells are drawn and not rows."""
        full = max(1, _BATCH // max(self.counts.size, self.n_rows if self.n_rows <= _ROWS_DRAWN else 0))
        return (min(full, size - start) for start in range(0, size, full))


@dataclass(frozen=True, kw_only=True)
class ClusterTable(Table):
    """A table whose rows come in clusters, each of one group: several rows of one person.

    The bootstrap draws whole clusters within each group, so that the number of rows varies. Permutations shuffle the
    groups of whole clusters; with classes, those of the rows that a cluster has in a class, separately in each class.

    ``members`` (U, C) are the rows of each cluster in each cell, ``owner`` (U,) is the group of each cluster. ``parts``
    (V, C) and ``part_owner`` (V,) are the same for the part of a cluster in one class, class by class: class k has the
    parts ``part_edges[k]..part_edges[k + 1] - 1``.
    """

    members: scipy.sparse.csr_array
    owner: IntArray
    parts: scipy.sparse.csr_array
    part_owner: IntArray
    part_edges: IntArray

    def bootstrap(self, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Batches, shape (b, G, C), of tables whose clusters are drawn with replacement within each group."""
        cells_of = [self.members[np.flatnonzero(self.owner == g)].T.tocsr() for g in range(len(self.counts))]
        sizes = [cells.shape[1] for cells in cells_of]
        for batch in self._batches(size):
            times = [_count(rng.integers(n, size=(batch, n)), n) for n in sizes]
            yield np.stack([(cells @ drawn.T).T for cells, drawn in zip(cells_of, times, strict=True)], axis=1)

    def permutations(self, size: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Batches, shape (b, G, C), of tables in which clusters have swapped groups within each class."""
        G, C = self.counts.shape
        for batch in self._batches(size):
            drawn = np.zeros((batch, G, C), dtype=np.intp)
            for first, last, start, stop in zip(
                self.part_edges[:-1], self.part_edges[1:], self.edges[:-1], self.edges[1:], strict=True
            ):
                cells = self.parts[first:last, start:stop].T.tocsr()
                groups = rng.permuted(np.tile(self.part_owner[first:last], (batch, 1)), axis=1)
                for group in range(G - 1):
                    drawn[:, group, start:stop] = (cells @ (groups == group).astype(np.intp).T).T
                rest = self.counts[:, start:stop].sum(axis=0)
                drawn[:, G - 1, start:stop] = rest - drawn[:, : G - 1, start:stop].sum(axis=1)
            yield drawn

    def _batches(self, size: int) -> Iterator[int]:
        full = max(1, _CLUSTER_BATCH // max(self.counts.size, len(self.owner)))
        return (min(full, size - start) for start in range(0, size, full))


def joined_clusters(clusters: IntArray, groups: IntArray) -> IntArray:
    """Clusters, or if these are many, sets of equally many clusters of one group, drawn together to save time.

    Sums over sets have the variance of sums over their clusters, so resamples are as noisy as before.
    """
    n_clusters = int(clusters.max()) + 1
    owner = np.empty(n_clusters, dtype=np.intp)
    owner[clusters] = groups
    sizes = np.bincount(owner)
    together = min(n_clusters // _UNITS, int(sizes[sizes > 0].min()) // _UNITS_A_GROUP)
    if together < 2:
        return clusters
    first, rank = np.r_[0, np.cumsum(sizes)], np.empty(n_clusters, dtype=np.intp)
    rank[np.lexsort((np.random.default_rng(0).random(n_clusters), owner))] = np.arange(n_clusters)
    sets = (rank - first[owner]) // together + first[owner]  # no two groups share a number
    return np.unique(sets, return_inverse=True)[1][clusters]


def level_table(
    scores: FloatArray,
    groups: IntArray,
    n_groups: int,
    classes: IntArray | None = None,
    n_classes: int = 1,
    *,
    background: FloatArray | None = None,
    clusters: IntArray | None = None,
    flagged: BoolArray | None = None,
    max_levels: int | None = None,
) -> Table:
    """A table in which all classes share the same L score levels: ``C = K L``, so that counts reshape to (G, K, L).

    With ``flagged``, where flags are fixed in advance, each class has its levels twice, those of flagged rows last: the
    counts reshape to (G, K, 2, L).

    ``groups``, ``classes`` and ``clusters`` (n,) are codes from 0; ``background`` are scores of rows that count towards
    thresholds alone. Scores are rounded to at most ``max_levels`` levels; None: they are exact.

    >>> table = level_table(np.array([0.5, 0.1, 0.5]), np.array([0, 1, 1]), 2)
    >>> table.values.tolist(), table.counts.tolist()
    ([0.1, 0.5], [[0, 1], [1, 1]])
    """
    extra = np.empty(0) if background is None else background
    levels, position = _score_levels(np.concatenate([scores, extra]), max_levels)
    n, L = len(scores), len(levels)
    of_class, twice = np.zeros(n, dtype=np.intp) if classes is None else classes, 1
    if flagged is not None:
        of_class, twice = 2 * of_class + flagged, 2
    values, edges = np.tile(levels, twice * n_classes), np.arange(n_classes + 1) * twice * L
    beside = np.bincount(position[n:], minlength=L) if len(extra) else None
    return _table(of_class * L + position[:n], groups, n_groups, values, edges, beside, clusters)


def class_table(
    scores: FloatArray,
    groups: IntArray,
    n_groups: int,
    classes: IntArray,
    n_classes: int,
    *,
    clusters: IntArray | None = None,
    max_levels: int | None = None,
) -> Table:
    """A table of only those cells that hold a row: for many classes, where only sums within a class are needed."""
    levels, position = _score_levels(scores, max_levels)
    cells, cell_of = np.unique(classes * len(levels) + position, return_inverse=True)
    edges = np.searchsorted(cells, np.arange(n_classes + 1) * len(levels))
    return _table(cell_of, groups, n_groups, levels[cells % len(levels)], edges, None, clusters)


def _table(
    cells: IntArray,
    groups: IntArray,
    n_groups: int,
    values: FloatArray,
    edges: IntArray,
    background: IntArray | None,
    clusters: IntArray | None,
) -> Table:
    """Count rows, each in a cell, by group, and by cluster where there are any."""
    C = len(values)
    counts = np.bincount(groups * C + cells, minlength=n_groups * C).reshape(n_groups, C)
    if clusters is None:
        return Table(counts, values, edges, background)
    of_class, n_clusters = np.searchsorted(edges, cells, side="right") - 1, int(clusters.max()) + 1
    parts, part_of = np.unique(of_class * n_clusters + clusters, return_inverse=True)
    owner, part_owner = np.empty(n_clusters, dtype=np.intp), np.empty(len(parts), dtype=np.intp)
    owner[clusters], part_owner[part_of] = groups, groups
    members, by_part = (
        scipy.sparse.coo_array((np.ones(len(cells), dtype=np.intp), (units, cells)), shape=(n_units, C)).tocsr()
        for units, n_units in ((clusters, n_clusters), (part_of, len(parts)))
    )
    return ClusterTable(
        counts,
        values,
        edges,
        background,
        members=members,
        owner=owner,
        parts=by_part,
        part_owner=part_owner,
        part_edges=np.searchsorted(parts, np.arange(len(edges)) * n_clusters),
    )


def _score_levels(scores: FloatArray, limit: int | None) -> tuple[FloatArray, IntArray]:
    """Distinct scores, ascending, and the place of each row among them; more than ``limit`` are rounded to bin means.

    A row with r rows above falls into bin ``limit sqrt(r / n)``: fine on top, where rows are flagged. A cut at the
    highest share x moves by at most ``2 / (limit sqrt(x))`` of the flagged rows, less than the sampling error
    ``1 / sqrt(n x)`` of their number as long as n is below ``limit^2 / 4``.
    """
    levels, position, counts = np.unique(scores, return_inverse=True, return_counts=True)
    if limit is None or len(levels) <= limit:
        return levels, position
    above = len(scores) - np.cumsum(counts)
    large = counts > len(scores) / limit  # a score that many rows share stays a level of its own
    starts = large | np.r_[False, large[:-1]]
    _, bins = np.unique(np.cumsum(starts) - np.floor(limit * np.sqrt(above / len(scores))), return_inverse=True)
    means = np.bincount(bins, weights=levels * counts) / np.bincount(bins, weights=counts)
    return means, bins[position]


def _shuffled_rows(counts: IntArray, batch: int, rng: np.random.Generator) -> IntArray:
    """Deal the rows out at random: each group draws its rows without replacement, the largest gets the rest."""
    n_groups, n_cells = counts.shape
    sizes = counts.sum(axis=1)
    largest, n_drawn = int(sizes.argmax()), int(sizes.sum() - sizes.max())
    smaller = np.delete(np.arange(n_groups), largest)
    cell_of = np.repeat(np.arange(n_cells), counts.sum(axis=0))
    # With one group to draw, the order of its rows does not matter.
    rows = np.array([rng.choice(len(cell_of), n_drawn, replace=False, shuffle=n_groups > 2) for _ in range(batch)])
    cells = np.repeat(smaller, sizes[smaller]) * n_cells + cell_of[rows]
    drawn = _count(cells, counts.size).reshape(batch, n_groups, n_cells)
    drawn[:, largest] = counts.sum(axis=0) - drawn.sum(axis=1)
    return drawn


def _shuffled_cells(counts: IntArray, batch: int, rng: np.random.Generator) -> IntArray:
    """Deal out cell by cell: each group in turn takes its rows from those that are left."""
    drawn = np.empty((batch, *counts.shape), dtype=np.intp)
    for table in drawn:
        left = counts.sum(axis=0)
        for group, size in enumerate(counts.sum(axis=1)[:-1]):
            table[group] = rng.multivariate_hypergeometric(left, size, method="marginals")
            left = left - table[group]
        table[-1] = left
    return drawn


def _count(cells: IntArray, n_cells: int) -> IntArray:
    """Count how often each cell occurs in each row of ``cells`` (b, ...), shape (b, C)."""
    cells = cells + (np.arange(len(cells)) * n_cells)[:, None]
    return np.bincount(cells.ravel(), minlength=len(cells) * n_cells).reshape(len(cells), n_cells)
