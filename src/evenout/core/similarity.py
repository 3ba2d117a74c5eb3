"""What makes two rows similar: the features compared, the length at which likeness fades, the pairs that are left."""

from typing import Literal, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist

from evenout.core.exceptions import FewPairsWarning, warn
from evenout.core.folds import row_numbers
from evenout.core.types import FloatArray, IntArray

LengthScale: TypeAlias = Literal["minmax"] | float | tuple[Literal["median"], float]

# The shortest of 0.02, 0.05, 0.1, 0.2 and 0.5 median distances at which, on every bundled table, there are five similar
# rows of other groups to a row, by `effective_pairs`: benchmarks/similar_scale.py.
DEFAULT_LENGTH: LengthScale = ("median", 0.1)

LEAST_LENGTH = 1e-150  # below it, the quotient of a distance and a length may leave the range of numbers

_SAMPLE = 2000  # rows from which the median distance is estimated
_PAIR_SAMPLE = 3000  # rows from which the effective pairs are estimated
_FEW_PAIRS = 100  # the mean square of so many differences has a relative error of sqrt(2 / 100), one in seven
_PER_WEIGHT = 10  # pairs for every weight that is chosen by them


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
        return features, max(length_scale[1] * median_distance(features, groups), LEAST_LENGTH)
    return features, float(length_scale)


def median_distance(features: FloatArray, groups: IntArray) -> float:
    """Median distance between rows of different known groups, from at most 2000 rows drawn by content, not by place."""
    drawn = draw_rows(features, groups, _SAMPLE)
    distances = cdist(features[drawn], features[drawn])
    across = groups[drawn][:, None] != groups[drawn]
    return float(np.median(distances[across])) if across.any() else 1.0


def effective_pairs(rows: FloatArray, groups: IntArray, scale: Literal["minmax"] | float) -> float:
    """How many pairs of rows from different groups an average weighted by likeness rests on: ``(sum M)^2 / sum M^2``.

    If all pairs are equally alike, that is their number; if a few near-duplicates hold the mass, it is about the number
    of these. Counted on at most 3000 rows, drawn by content, and scaled up to all pairs.

    Parameters
    ----------
    rows : array of shape (n, d)
        Features as of `comparable_rows`.
    groups : array of shape (n,)
        Codes; -1 is left out.
    scale : "minmax" or float

    Examples
    --------
    Two pairs of equal rows, and rows far away from everything: two pairs count.

    >>> rows = np.array([[0.0], [9.0], [30.0], [0.0], [9.0], [99.0]])
    >>> round(effective_pairs(rows, np.array([0, 0, 0, 1, 1, 1]), 0.1), 6)
    2.0
    """
    drawn = draw_rows(rows, groups, _PAIR_SAMPLE)
    codes = groups[drawn]
    distances = cdist(rows[drawn], rows[drawn])[np.triu(codes[:, None] != codes)]
    if len(distances) == 0:
        return 0.0
    if scale == "minmax":
        width = np.ptp(distances)
        similar = np.exp(-(distances - distances.min()) / (width if width > 0 else 1.0))
    else:
        similar = np.exp(-(distances - distances.min()) / scale)  # a common factor does not matter; no sum is 0
    return float(similar.sum() ** 2 / (similar**2).sum()) * _count_pairs(groups) / len(distances)


def warn_few_pairs(effective: float, *, n_weights: int = 0) -> None:
    """Warn if individual fairness rests on too few pairs.

    Too few are less than 100, whose mean square has a relative error of one in seven; and less than ten for every
    weight where they choose weights.

    Parameters
    ----------
    effective : float
        As of `effective_pairs`.
    n_weights : int
        Weights that are chosen by these pairs; 0 where a given score is measured.
    """
    needed = max(_FEW_PAIRS, _PER_WEIGHT * n_weights)
    if effective >= needed:
        return
    what = f"choose {n_weights} weights" if n_weights else "measure a score"
    template = (
        "individual fairness rests on about {effective:.0f} pairs of similar rows, too few to {what} by them "
        "({needed} are wanted): a few of them decide. Give more rows or a longer {@length_scale}, "
        "say {length_scale=('median', 0.2)}."
    )
    warn(FewPairsWarning(template, effective=effective, what=what, needed=needed))


def draw_rows(features: FloatArray, groups: IntArray, size: int) -> IntArray:
    """At most ``size`` of the rows of known groups, drawn by content, not by place; copies are drawn one by one."""
    known = np.flatnonzero(groups >= 0)
    if len(known) <= size:
        return known
    content = row_numbers(np.column_stack([features[known], groups[known]]), seed=0)
    order = np.argsort(content, kind="stable")
    first = np.r_[True, content[order][1:] != content[order][:-1]]
    copy = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    numbers = row_numbers(np.column_stack([content[order].astype(float), copy]), seed=0)
    return known[order[np.argsort(numbers, kind="stable")[:size]]]


def _count_pairs(groups: IntArray) -> float:
    """Pairs of rows from different known groups."""
    counts = np.bincount(groups[groups >= 0]).astype(float)
    return float(counts.sum() ** 2 - (counts**2).sum()) / 2
