"""The nearest points of few rows, as a service asks for them: what `evenout.detectors.search.nearest` finds, sooner.

A block of queries has a box of its own, and rows that have nothing to do with each other make a large one, which few
boxes of data lie outside of. Up to `FEW` rows are searched for one by one instead.
"""

from typing import NamedTuple

import numpy as np

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.search import Blocks, Ids

FEW = 16  # rows; of 100,000 points with 10 features, twice as many were found sooner as a block


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

    def nearest(self, X: FloatArray, k: int) -> tuple[FloatArray, Ids]:
        """Distances and ids of the ``k`` nearest points of the rows of ``X`` (m x d), each m x k."""
        from evenout.detectors._row_kernels import search_rows

        distances = np.full((len(X), k), np.inf)
        neighbours = np.full((len(X), k), np.iinfo(np.int32).max, dtype=np.int32)
        search_rows(X, self, distances, neighbours)
        return distances, neighbours
