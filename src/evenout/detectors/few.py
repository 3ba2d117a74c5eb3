"""The nearest points of few rows, as a service asks for them, or among few points: `search.nearest` row by row.

A block of queries has a box of its own, and rows that have nothing to do with each other make a large one, which few
boxes of data lie outside of. Up to `FEW` rows are searched for one by one instead, which is sooner. So are any rows
among up to `SMALL` points, which takes about as long, but half as long to compile.
"""

from typing import NamedTuple

import numpy as np

from evenout.core.compiled import map_blocks
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.search import BLOCK, Blocks, Ids, cut_blocks
from evenout.detectors.search import nearest as nearest_by_blocks

FEW = 16  # rows; of 100,000 points with 10 features, twice as many were found sooner as a block
SMALL = 1024  # points; among twice as many, the search by blocks took three quarters of the time
LAST = np.iinfo(np.int32).max
ROWS = 256  # per piece of work handed to a thread


class Few(NamedTuple):
    """Blocks of points and their boxes with the features first, so that all of them meet a row in vector instructions.

    Attributes
    ----------
    values : array, b x d x BLOCK
    ids, size : see `evenout.detectors.search.Exact`
    lows, highs : arrays, d x b
    """

    values: FloatArray
    ids: Ids
    size: IntArray
    lows: FloatArray
    highs: FloatArray

    @classmethod
    def of(cls, blocks: Blocks) -> "Few":
        """Of blocks that were cut before."""
        points, ids, size, low, high = blocks.exact
        values, lows, highs = points.transpose(0, 2, 1), low.T, high.T
        return cls(np.ascontiguousarray(values), ids, size, np.ascontiguousarray(lows), np.ascontiguousarray(highs))

    def nearest(
        self, X: FloatArray, k: int, *, without_self: bool = False, n_threads: int = 1
    ) -> tuple[FloatArray, Ids]:
        """Distances and ids of the ``k`` nearest points of the rows of ``X`` (m x d), each m x k.

        ``without_self`` says that row i is the point i, which is then left out.
        """
        from evenout.detectors._row_kernels import search_rows

        X = np.ascontiguousarray(X, dtype=np.float64)  # one kind of array, so that one kernel is compiled
        distances, neighbours = np.empty((len(X), k)), np.empty((len(X), k), dtype=np.int32)
        distances.fill(np.inf)
        neighbours.fill(LAST)

        def search(part: slice) -> None:
            room = np.empty(len(self.ids)), np.empty(BLOCK), np.empty(len(self.ids), dtype=np.intp)
            search_rows(X, part.start, part.stop, self, without_self, *room, distances, neighbours)

        if k > 0:
            map_blocks(search, len(X), ROWS, n_threads)
        return distances, neighbours


def nearest(data: Blocks, k: int, *, queries: FloatArray | None = None, n_threads: int = 1) -> tuple[FloatArray, Ids]:
    """What `evenout.detectors.search.nearest` finds, by the way that suits the number of points."""
    n = int(data.exact.size.sum())
    if n > SMALL:
        asked = None if queries is None else cut_blocks(queries)
        return nearest_by_blocks(data, k, queries=asked, n_threads=n_threads)
    X = queries
    if X is None:
        X = np.empty((n, data.exact.points.shape[2]))
        X[data.exact.ids.ravel()[:n]] = data.exact.points.reshape(-1, X.shape[1])[:n]
    return Few.of(data).nearest(X, k, without_self=queries is None, n_threads=n_threads)
