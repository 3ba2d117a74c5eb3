"""A compiled walk down the trees of a gradient boosting classifier."""

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import BoolArray, FloatArray, IntArray


@compiled()
def add_leaves(
    Z: FloatArray, first: IntArray, feature: IntArray, left: IntArray, right: IntArray,
    threshold: FloatArray, value: FloatArray, missing_left: BoolArray, out: FloatArray,
) -> None:  # fmt: skip
    """Add to ``out[i, t % S]`` the value of the leaf that row i comes to in tree t, tree after tree."""
    n_scores = out.shape[1]
    for i in range(len(Z)):
        for t in range(len(first)):
            v = first[t]
            while left[v] > 0:
                x = Z[i, feature[v]]
                down = missing_left[v] if np.isnan(x) else x <= threshold[v]
                v = left[v] if down else right[v]
            out[i, t % n_scores] += value[v]
