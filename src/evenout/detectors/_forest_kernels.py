"""Compiled walk through the trees of an isolation forest."""

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray


@compiled()
def path_lengths(
    X: Float32Array, feature: AnyArray, threshold: FloatArray, child: AnyArray, length: FloatArray,
    root: IntArray, depth: int, sizes: IntArray, out: FloatArray,
) -> None:  # fmt: skip
    """Write ``out[c, i]``: path length of row i, summed in order over the first ``sizes[c]`` trees.

    All rows go down a tree together, one level at a time, and rest at a leaf, whose children are itself: no
    branch depends on the data, which is three times faster than walking row by row.
    """
    node = np.empty(len(X), dtype=np.int32)
    total = np.zeros(len(X))
    for t in range(len(root)):
        node[:] = root[t]
        for _ in range(depth):
            for i in range(len(X)):
                v = node[i]
                node[i] = child[v, np.intp(X[i, feature[v]] > threshold[v])]
        for i in range(len(X)):
            total[i] += length[node[i]]
        for c in range(len(sizes)):
            if sizes[c] == t + 1:
                for i in range(len(X)):  # assigning the whole row takes seconds to compile
                    out[c, i] = total[i]
