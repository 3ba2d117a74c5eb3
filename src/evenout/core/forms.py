"""Gaps between the mean scores of groups, from the moments of the scores."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import fdtrc

from evenout.core.membership import Comparison
from evenout.core.types import BoolArray, FloatArray

_LEAST_SPREAD = 1e-14  # of a group mean, in units of the largest: with none its weight would be infinite


@dataclass(frozen=True)
class GroupMoments:
    """Moments of m scores in G groups: ``count`` (G,), ``mean`` and ``variance`` (m, G), ``total_variance`` (m,)."""

    count: FloatArray
    mean: FloatArray
    variance: FloatArray
    total_variance: FloatArray


def parity_from_moments(moments: GroupMoments, *, corrected: bool) -> FloatArray:
    """Scale-free demographic parity of each score, shape (m,); NaN for a constant score."""
    noise = moments.variance / moments.count
    pairs = list(combinations(range(len(moments.count)), 2))
    squared = np.zeros(len(moments.mean))
    for p, q in pairs:
        squared += (moments.mean[:, p] - moments.mean[:, q]) ** 2
        if corrected:
            squared -= noise[:, p] + noise[:, q]
    return ratio(squared / len(pairs), moments.total_variance)


def no_gap_p_value(moments: GroupMoments) -> FloatArray:
    """p-value of "all groups have the same mean" for each score (Welch 1951, unequal variances), shape (m,).

    With two groups this is Welch's t-test. A group without any spread is taken as the limit of groups with less and
    less of it. If no group has any, there is no doubt: p is 1 if all means are equal, else 0.
    """
    n, mean, G = moments.count, moments.mean, len(moments.count)
    spread = moments.variance / n
    largest, size = spread.max(axis=1, keepdims=True), np.abs(mean).max(axis=1, keepdims=True)
    certain = largest <= 1e-30 * (size**2 + moments.total_variance[:, None])
    unit = np.where(certain, 1.0, largest)  # of squares, so that the scale of the scores does not matter
    weight = 1.0 / np.maximum(spread / unit, _LEAST_SPREAD)
    share = weight / weight.sum(axis=1, keepdims=True)
    distance = (mean - (share * mean).sum(axis=1, keepdims=True)) / np.sqrt(unit)
    doubt = ((1 - share) ** 2 / (n - 1)).sum(axis=1)
    F = (weight * distance**2).sum(axis=1) / (G - 1) / (1 + 2 * (G - 2) / (G**2 - 1) * doubt)
    p = fdtrc(G - 1, (G**2 - 1) / (3 * doubt), F)
    equal = np.ptp(mean, axis=1) <= 1e-12 * size[:, 0]
    return np.where(certain[:, 0], np.where(equal, 1.0, 0.0), p)


def wald_test(
    compared: Comparison,
    known: BoolArray,
    mean: FloatArray,
    cov: FloatArray,
    size: FloatArray,
    total_variance: float,
) -> float:
    """p-value of "all groups that are compared have the same mean", which may share rows; NaN if none are compared.

    Wald's statistic of r independent contrasts, with the small-sample factor and the degrees of freedom of Welch's
    test for r + 1 groups: for hard groups that are all compared it is Welch's test itself.

    Parameters
    ----------
    compared : Comparison
    known : array of shape (G,)
        The groups that take part.
    mean, size : arrays of shape (G,)
        Of each group; the size is the number of independent rows that it is worth.
    cov : array of shape (G, G)
        Covariance of the means of two groups.
    total_variance : float
    """
    blocks = [[g for g in block.groups if known[g]] for block in compared.blocks]
    blocks = [block for block in blocks if len(block) >= 2]
    if not blocks:
        return float("nan")
    spread = np.diag(cov)
    if len(blocks) == 1 and not np.triu(cov, 1).any():
        own = blocks[0]
        variance = spread[own] * size[own]
        found = GroupMoments(size[own], mean[None, own], variance[None], np.array([total_variance]))
        return float(no_gap_p_value(found)[0])
    D = np.zeros((sum(map(len, blocks)) - len(blocks), compared.n_groups))
    row, doubt = 0, 0.0
    for block in blocks:
        contrasts = slice(row, row + len(block) - 1)
        D[contrasts, block[0]], D[contrasts, block[1:]] = -1.0, np.eye(len(block) - 1)
        row += len(block) - 1
        weight = 1.0 / np.maximum(spread[block], _LEAST_SPREAD * max(spread[block].max(), 1e-300))
        doubt += (((1.0 - weight / weight.sum()) ** 2) / (size[block] - 1.0)).sum()
    values, vectors = np.linalg.eigh(D @ cov @ D.T)
    free = values > 1e-10 * values[-1]
    if not values[-1] > 1e-30 * (np.abs(mean).max() ** 2 + total_variance):
        return 1.0 if np.abs(D @ mean).max() <= 1e-12 * np.abs(mean).max() else 0.0
    r = int(free.sum())
    squares = (vectors.T @ D @ mean)[free] ** 2 / values[free]
    many = (r + 1) ** 2 - 1
    F = squares.sum() / r / (1.0 + 2.0 * (r - 1) / many * doubt)
    return float(fdtrc(r, many / (3.0 * doubt), F))


def ratio(numerator: FloatArray, denominator: FloatArray | float) -> FloatArray:
    """Quotient that is NaN, without a warning, where the denominator is 0."""
    positive = np.asarray(denominator) > 0
    return np.where(positive, numerator, np.nan) / np.where(positive, denominator, 1.0)
