"""The nearest points of few rows, as a service asks for them: what `evenout.detectors.search.nearest` finds, sooner.

A block of queries has a box of its own, and rows that have nothing to do with each other make a large one, which few
boxes of data lie outside of. Up to `FEW` rows are searched for one by one instead.
"""

from typing import NamedTuple

import numpy as np

from evenout.core.types import FloatArray
from evenout.detectors.search import Blocks, Ids

FEW = 16  # rows; of 100,000 points with 10 features, twice as many were found sooner as a block


class Few(NamedTuple):
    """Blocks of points, and their boxes with the features first, so that all boxes meet a row in vector instructions.

    Attributes
    ----------
    blocks : Blocks
    lows, highs : arrays, d x b
    """

    blocks: Blocks
    lows: FloatArray
    highs: FloatArray

    @classmethod
    def of(cls, blocks: Blocks) -> "Few":
        """Of blocks that were cut before."""
        return cls(blocks, np.ascontiguousarray(blocks.low.T), np.ascontiguousarray(blocks.high.T))

    def nearest(self, X: FloatArray, k: int) -> tuple[FloatArray, Ids]:
        """Distances and ids of the ``k`` nearest points of the rows of ``X`` (m x d), each m x k."""
        from evenout.detectors._row_kernels import search_rows

        distances = np.full((len(X), k), np.inf)
        neighbours = np.full((len(X), k), np.iinfo(np.int32).max, dtype=np.int32)
        search_rows(X, self.blocks, self.lows, self.highs, distances, neighbours)
        return distances, neighbours
