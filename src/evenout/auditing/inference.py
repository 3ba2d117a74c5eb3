"""From values and their resamples to intervals and p-values."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import bisect
from scipy.special import ndtr

from evenout.auditing.meanings import Meaning
from evenout.core.intervals import correlations, difference_ends, extreme_ends, tukey_p_value, wilson_interval
from evenout.core.types import FloatArray


def p_value(kind: Meaning, value: FloatArray, permuted: FloatArray) -> FloatArray:
    """Share of permutations that are more unfair than the value, which counts as one of them, and half of the ties.

    Parameters
    ----------
    kind : Meaning
    value : array of shape (w,)
    permuted : array of shape (P, w)

    Returns
    -------
    array of shape (w,)
        ``(1 + number more unfair + half of those equal) / (1 + P)``, the mid-p value (Lancaster 1961), by which tests
        of small counts reject about as often as they may; 1 where all permutations are equal, so that nothing could
        have been found; NaN for a level, without permutations, or where value is NaN.

    >>> p_value(Meaning("a gap", 0.0, "high"), np.array([0.3]), np.array([[0.1], [0.3], [0.2]])).tolist()
    [0.375]
    """
    if kind.worse is None or len(permuted) == 0:
        return np.full(len(value), np.nan)
    sign = 1.0 if kind.worse == "high" else -1.0
    slack = 1e-10 * np.abs(value)  # equal but for rounding is equal
    equal = np.abs(permuted - value) <= slack
    more = ~(sign * permuted < sign * value - slack) & ~equal  # an undefined one counts against us
    share = (1 + more.sum(axis=0) + 0.5 * equal.sum(axis=0)) / (1 + len(permuted))
    return np.where(np.isnan(value), np.nan, np.where(equal.all(axis=0), 1.0, share))


def percentiles(drawn: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Percentile interval of each column of the resamples, shape (B, w), leaving NaN out; NaN if nothing is left.

    The k-th of B ordered resamples stands for the share ``k / (B + 1)``: few of them do not make it shorter.
    """
    tails = ((1 - confidence) / 2, (1 + confidence) / 2)
    columns = [column[~np.isnan(column)] for column in drawn.T]
    ends = [np.quantile(column, tails, method="weibull") if len(column) else (np.nan, np.nan) for column in columns]
    low, high = np.array(ends, dtype=float).T
    return low, high


def level_interval(
    kind: Meaning, value: FloatArray, drawn: FloatArray, units: FloatArray, z: float
) -> tuple[FloatArray, FloatArray]:
    """Interval of each level, with ``z`` standard deviations to each side of a normal one.

    A rate has Wilson's interval, with as many rows as the bootstrap's spread stands for: what the common threshold or
    clusters do to it is in there. Where nobody or everybody is counted the bootstrap knows no spread, and ``units``
    decide. Other levels have the percentiles of the resamples.

    Parameters
    ----------
    kind : Meaning
    value : array of shape (w,)
    drawn : array of shape (B, w)
    units : array of shape (w,)
        Independent units that each value rests on: rows, or clusters of them.
    z : float
    """
    low, high = percentiles(drawn, float(2 * ndtr(z) - 1))
    if kind.shape != "rate" or len(drawn) == 0:
        return low, high
    known = ~np.isnan(drawn).all(axis=0) & ~np.isnan(value)
    variance = np.zeros(len(value))
    variance[known] = np.nanvar(drawn[:, known], axis=0)
    spread = np.where(known, value * (1 - value), 0.0)
    rows = np.where((variance > 0) & (spread > 0), spread / np.where(variance > 0, variance, 1.0), units)
    low, high = wilson_interval(np.where(known, value, 0.0), np.maximum(rows, 1.0), z)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def gap_interval(
    kind: Meaning, value: FloatArray, drawn: FloatArray, noise: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Interval of each gap, a quantity that is never below 0 and that noise pushes up.

    A gap is a norm of the differences between groups. By the triangle inequality, noise adds no more to it than
    the norm of the noise itself: the low end is the value less what that norm stays below with the confidence asked
    for. The high end is the upper percentile of the resamples, which noise has pushed up twice. ``"squared"`` gaps are
    taken by their roots. No test has a say in it.

    Parameters
    ----------
    kind : Meaning
    value : array of shape (w,)
    drawn, noise : arrays of shape (B, w)
        Resamples of the gap, and of what it is if the groups differ by their resampling errors alone.
    confidence : float
    """
    _, high = percentiles(drawn, confidence)
    # One-sided: where the gap is 0, the high end cannot miss it.
    _, push = percentiles(noise, 2 * confidence - 1)
    if kind.shape == "gap":
        return np.maximum(value - push, 0.0), high
    root, push = np.sqrt(np.maximum(value, 0.0)), np.sqrt(push)
    return np.maximum(root - push, 0.0) ** 2, high


def extremes_interval(
    kind: Meaning,
    value: FloatArray,
    ends: Callable[[float], tuple[FloatArray, FloatArray]],
    drawn: FloatArray,
    confidence: float,
) -> tuple[float, float]:
    """Interval of the largest difference, or of the smallest ratio, between values of G groups (`extreme_ends`).

    Parameters
    ----------
    kind : Meaning
        A ratio if its even value is 1, else a difference.
    value : array of shape (G,)
        NaN for groups without the rows needed.
    ends : function
        Interval of each group's value, for a critical value z.
    drawn : array of shape (B, G)
        Resamples of the values, for their correlation.
    confidence : float
    """
    known = np.flatnonzero(~np.isnan(value))
    if len(known) < 2 or len(drawn) == 0:
        return float("nan"), float("nan")

    def of_known(z: float) -> tuple[FloatArray, FloatArray]:
        low, high = ends(z)
        return low[known], high[known]

    correlation = correlations(drawn[:, known])
    return extreme_ends(value[known], of_known, correlation, confidence, of_ratio=kind.even == 1.0)


def interval_p_value(
    value: FloatArray, ends: Callable[[float], tuple[FloatArray, FloatArray]], drawn: FloatArray
) -> float:
    """The p-value at which the interval of the largest difference (`extremes_interval`) just holds 0.

    No smaller than one of the resamples. The parameters are those of `extremes_interval`.
    """
    known = np.flatnonzero(~np.isnan(value))
    if len(known) < 2 or len(drawn) == 0:
        return float("nan")
    correlation, apart = correlations(drawn[:, known]), ~np.eye(len(known), dtype=bool)

    def lowest(z: float) -> float:
        low, high = (end[known] for end in ends(z))
        return float(difference_ends(value[known], low, high, correlation)[0][apart].max())

    if not lowest(1e-6) > 0:
        return 1.0
    most = 6.0
    z = most if lowest(most) > 0 else float(bisect(lowest, 1e-6, most, xtol=1e-4))
    return max(tukey_p_value(z, len(known)), 1.0 / (1 + len(drawn)))


def within_range(kind: Meaning, value: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Keep an interval in the measure's range, and its value in the interval."""
    if kind.even is not None:
        low, high = np.clip(low, 0.0, kind.largest), np.clip(high, 0.0, kind.largest)
    known = ~(np.isnan(value) | np.isnan(low))
    return np.where(known, np.fmin(low, value), np.nan), np.where(known, np.fmax(high, value), np.nan)
