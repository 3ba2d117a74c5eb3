"""From values and their resamples to intervals and p-values."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from evenout.auditing.meanings import Meaning
from evenout.core.types import FloatArray


def p_value(
    kind: Meaning,
    value: FloatArray,
    permuted: FloatArray,
    ties: tuple[FloatArray, FloatArray] | None = None,
) -> FloatArray:
    """Share of permutations at least as unfair as the value, the value itself counted as one of them.

    Parameters
    ----------
    kind : Meaning
    value : array of shape (w,)
    permuted : array of shape (P, w)
    ties : two such arrays, optional
        Another measure that is unfair when high: among permutations that equal the value it decides.

    Returns
    -------
    array of shape (w,)
        ``(1 + number at least as unfair) / (1 + P)``; NaN for a level, without permutations, or where value is NaN.

    >>> p_value(Meaning("a gap", 0.0, "high"), np.array([0.3]), np.array([[0.1], [0.3], [0.2]])).tolist()
    [0.5]
    """
    if kind.worse is None or len(permuted) == 0:
        return np.full(len(value), np.nan)
    sign = 1.0 if kind.worse == "high" else -1.0
    slack = 1e-10 * np.abs(value)  # equal but for rounding is equal
    as_unfair = ~(sign * permuted < sign * value - slack)  # an undefined one counts against us
    if ties is not None:
        equal = np.abs(permuted - value) <= slack
        as_unfair &= ~(equal & (ties[1] < ties[0] * (1 - 1e-10)))
    return np.where(np.isnan(value), np.nan, (1 + as_unfair.sum(axis=0)) / (1 + len(permuted)))


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
    """Interval of the largest difference, or of the smallest ratio, between values of G groups.

    For two groups it follows from those of the two values and their correlation (Zou and Donner 2008; for ratios
    Newcombe 2016). With more, the pair that differs most is not known. Some pair differs as much as the truth: so the
    end on the uneven side is the furthest of all pairs. No pair differs by more than the truth: so the end on the even
    side is the furthest of all pairs too, each with the critical value of Tukey's studentised range instead of the
    normal one, by which all pairs hold together. For two groups both are the same.

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
    value, correlation = value[known], correlations(drawn[:, known])
    of_pairs = ratio_ends if kind.even == 1.0 else difference_ends
    plain, wide = (
        of_pairs(value, low[known], high[known], correlation)
        for low, high in (ends(normal_value(confidence)), ends(_tukey(confidence, len(known))))
    )
    apart = ~np.eye(len(known), dtype=bool)
    if kind.even == 1.0:
        return float(plain[0][apart].min()), float(wide[1][apart].min())
    return float(wide[0][apart].max()), float(plain[1][apart].max())


def difference_ends(
    value: FloatArray, low: FloatArray, high: FloatArray, correlation: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends of ``value[i] - value[j]`` from the groups' own ends, shape (G, G) each."""
    below, above = value - low, high - value

    def reach(one: FloatArray, other: FloatArray) -> FloatArray:
        square = one[:, None] ** 2 + other**2 - 2 * correlation * one[:, None] * other
        return np.sqrt(np.maximum(square, 0.0))

    apart = value[:, None] - value
    return apart - reach(below, above), apart + reach(above, below)


def ratio_ends(
    value: FloatArray, low: FloatArray, high: FloatArray, correlation: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends of ``value[i] / value[j]`` from the groups' own ends, shape (G, G) each: where 0 leaves the interval of
    ``value[i] - ratio value[j]``. Infinite if value j may be 0.
    """  # noqa: D205

    def terms(one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        middle = value[:, None] * value - correlation * one[:, None] * other
        top, bottom = (value**2 - one**2)[:, None], value**2 - other**2
        return top, middle + np.sqrt(np.maximum(middle**2 - top * bottom, 0.0)), bottom

    top, root, _ = terms(value - low, high - value)
    smallest = np.where(root > 0, np.maximum(top, 0.0), 0.0) / np.where(root > 0, root, 1.0)
    _, root, bottom = terms(high - value, value - low)
    return smallest, np.where(bottom > 0, root, np.inf) / np.where(bottom > 0, bottom, 1.0)


def correlations(drawn: FloatArray) -> FloatArray:
    """Correlations of the columns over the resamples that have them all; 0 for a column that does not vary."""
    drawn = drawn[~np.isnan(drawn).any(axis=1)]
    if len(drawn) < 3:
        return np.eye(drawn.shape[1])
    off = drawn - drawn.mean(axis=0)
    size = np.sqrt((off**2).sum(axis=0))
    off = off / np.where(size > 0, size, 1.0)
    return np.clip(off.T @ off, -1.0, 1.0)


def within_range(kind: Meaning, value: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Keep an interval in the measure's range, and its value in the interval."""
    if kind.even is not None:
        low, high = np.clip(low, 0.0, kind.largest), np.clip(high, 0.0, kind.largest)
    known = ~(np.isnan(value) | np.isnan(low))
    return np.where(known, np.fmin(low, value), np.nan), np.where(known, np.fmax(high, value), np.nan)


def holm(p: FloatArray) -> FloatArray:
    """Holm's adjustment for many tests, NaN left out: ``max over j <= i of min(1, (m - j + 1) p_(j))``.

    >>> holm(np.array([0.01, 0.04, np.nan, 0.03])).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = (len(order) - np.arange(len(order))) * p[order]
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def wilson(count: FloatArray, n: float, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval of the share ``count / n``."""
    return wilson_interval(count / n, np.asarray(n, dtype=float), normal_value(confidence))


def wilson_interval(share: FloatArray, n: FloatArray, z: float) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval of a share of n, with z standard deviations to each side."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def normal_value(confidence: float) -> float:
    """Standard deviations to each side of a normal interval."""
    return float(ndtri((1 + confidence) / 2))


@lru_cache(maxsize=64)
def _tukey(confidence: float, n_groups: int) -> float:
    """Critical value of one of all pairs of groups; the normal one for two."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(confidence, n_groups, np.inf) / np.sqrt(2))
