"""What makes two rows similar: the features to compare and the length at which likeness fades."""

from typing import Literal, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist

from evenout.core.folds import row_numbers
from evenout.core.types import FloatArray, IntArray

LengthScale: TypeAlias = Literal["minmax"] | float | tuple[Literal["median"], float]

_SAMPLE = 2000  # rows from which the median distance is estimated


def comparable_rows(
    X: FloatArray, groups: IntArray, length_scale: LengthScale
) -> tuple[FloatArray, Literal["minmax"] | float]:
    """Features and scale for `pair_sums`.

    Parameters
    ----------
    X : array of shape (n, d)
    groups : array of shape (n,)
    length_scale : "minmax", float or ("median", factor)
        ``"minmax"``: raw features, distances scaled to [0, 1], as published; every similarity then lies in
        [1/e, 1], so that nearly
        all pairs count alike. A number: standardised features, ``exp(-distance / length_scale)``. ``("median",
        factor)``: the same,
        with ``factor`` times the median distance between rows of different groups.

    Returns
    -------
    features of shape (n, d), "minmax" or a length
    """
    if length_scale == "minmax":
        return X, "minmax"
    largest = np.abs(X).max(axis=0)
    unit = X / np.where(largest > 0, largest, 1.0)  # no square of a huge or tiny value is ever taken
    ordered = np.sort(unit, axis=0)  # their sums are the same, bit for bit, in any order of the rows
    spread = ordered.std(axis=0)
    features = (unit - ordered.mean(axis=0)) / np.where(spread > 1e-13, spread, 1.0)
    if isinstance(length_scale, tuple):
        return features, max(length_scale[1] * median_distance(features, groups), np.finfo(float).tiny)
    return features, float(length_scale)


def median_distance(features: FloatArray, groups: IntArray) -> float:
    """Median distance between rows of different known groups, from at most 2000 rows drawn by content, not by place."""
    known = np.flatnonzero(groups >= 0)
    drawn = known[np.argsort(row_numbers(features[known], seed=0), kind="stable")[:_SAMPLE]]
    distances = cdist(features[drawn], features[drawn])
    across = groups[drawn][:, None] != groups[drawn]
    return float(np.median(distances[across])) if across.any() else 1.0
