"""From lists of near locations to the nearest rows of every row, and to k-distances, densities and factors.

A location counts several rows where rows are equal. Expanded to rows, the lists would take more memory than all else in
a fit, so a block of rows is expanded whenever it is needed, and forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from evenout.core.compiled import map_blocks
from evenout.core.rows import side_by_side
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.search import Ids

ROWS = 4096  # rows per piece of work handed to a thread


@dataclass(frozen=True, eq=False)
class Slots:
    """The k nearest rows of each of m rows: their distances and locations.

    Parameters
    ----------
    found : arrays of shape (m, listed)
        Distances and ids of locations near each row.
    counts : array of int, shape (u,)
        Rows at each location.
    k : int
    home : array of int32, shape (m,)
        The location of each row, which is not listed a second time; -1 for a row that is at none.
    own : array of int, shape (m,)
        Copies of each row, which come first.
    short : array of int
        Rows, in order, whose lists do not fill k slots, and are taken from ``filled`` instead.
    filled : Slots or None
        Of these rows.
    """

    found: tuple[FloatArray, Ids]
    counts: IntArray
    k: int
    home: Ids
    own: IntArray
    short: IntArray | None = None
    filled: "Slots | None" = None

    def __len__(self) -> int:
        return len(self.own)

    def of(self, rows: slice) -> tuple[FloatArray, Ids]:
        """Distances and locations of the rows near some rows, each (rows, k); -1 where a list is too short."""
        from evenout.detectors._neighbour_kernels import fill_slots

        own = self.own[rows]
        distance, location = np.empty((len(own), self.k)), np.empty((len(own), self.k), dtype=np.int32)
        lists = self.found[0][rows], self.found[1][rows], self.home[rows]
        fill_slots(*lists, own, self.counts, distance, location)
        if self.short is not None and self.filled is not None:
            first, last = np.searchsorted(self.short, (rows.start, rows.start + len(own)))
            if first < last:
                at = self.short[first:last] - rows.start
                distance[at], location[at] = self.filled.of(slice(int(first), int(last)))
        return distance, location

    def distances(self, ks: IntArray, n_threads: int) -> FloatArray:
        """Distances of the k-th nearest rows, shape (m, len(ks)); NaN where a list is too short."""
        out = np.empty((len(self), len(ks)))

        def work(rows: slice) -> None:
            distance, location = (slot.take(ks - 1, axis=1) for slot in self.of(rows))
            distance[location < 0] = np.nan
            out[rows] = distance

        map_blocks(work, len(self), ROWS, n_threads)
        return out


def rate(
    slots: Slots,
    lof: IntArray,
    knn: IntArray,
    n_threads: int,
    search_again: Callable[[IntArray], Slots] | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """k-distances, densities and scores of rows that are neighbours of each other; see `Neighbours`.

    ``search_again`` finds the slots of rows whose lists are too short, by their places.
    """
    from evenout.detectors._neighbour_kernels import densities, factors

    m, distances = len(slots), slots.distances(np.concatenate([lof, knn]), n_threads)
    short = np.flatnonzero(np.isnan(distances).any(axis=1))
    if search_again is not None and len(short):
        filled = search_again(short)
        slots = replace(slots, short=short, filled=filled)
        distances[short] = filled.distances(np.concatenate([lof, knn]), n_threads)
    k_distance = np.ascontiguousarray(distances[:, : len(lof)])
    density, factor = np.empty((m, len(lof))), np.empty((m, len(lof)))
    if not len(lof):
        return k_distance, density, distances

    def weigh(rows: slice) -> None:
        density[rows] = densities(*slots.of(rows), k_distance, lof)

    def compare(rows: slice) -> None:
        factor[rows] = factors(slots.of(rows)[1], density[rows], density, lof)

    map_blocks(weigh, m, ROWS, n_threads)
    map_blocks(compare, m, ROWS, n_threads)
    return k_distance, density, side_by_side([factor, distances[:, len(lof) :]], n_threads)


def rate_new(
    slots: Slots, known: tuple[FloatArray, FloatArray], lof: IntArray, knn: IntArray, n_threads: int
) -> FloatArray:
    """Scores of new rows, whose neighbours have the k-distances and densities that are ``known``."""
    from evenout.detectors._neighbour_kernels import densities, factors

    scores = np.empty((len(slots), len(lof) + len(knn)))

    def work(rows: slice) -> None:
        distance, location = slots.of(rows)
        scores[rows, len(lof) :] = distance[:, knn - 1]
        if len(lof):
            density = densities(distance, location, known[0], lof)
            scores[rows, : len(lof)] = factors(location, density, known[1], lof)

    map_blocks(work, len(slots), ROWS, n_threads)
    return scores
