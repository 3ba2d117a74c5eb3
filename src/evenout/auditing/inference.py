"""What is said of a measure, and its tests, intervals and power.

The tests of the audit are chi-squares under shuffled groups. Of G groups two differ, the others lie between them where
they add nothing to the chi-square. Then it is ``(d / error + sqrt(r) z)^2`` plus a central chi-square with one degree
less, z being normal and r the noise of the difference over that without any difference. All of it is in units of the
mean of the shuffled chi-squares per degree of freedom: clusters make that larger than 1, and differences harder to see.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import bisect, brentq
from scipy.special import chdtrc, ndtr, ndtri

from evenout.core.intervals import correlations, difference_ends, extreme_ends, tukey_p_value, wilson_interval
from evenout.core.types import FloatArray


@dataclass(frozen=True)
class Meaning:
    """One measure: what is said of it, how it is tested, and what it is made of."""

    words: str  # the measure in plain words
    even: float | None = None  # its value where all groups are treated alike; a level (a mean, a rate) has none
    worse: Literal["high", "low"] | None = None  # the side on which it is unfair, where it is tested
    # How noise enters, which decides on the interval. "none": no interval.
    shape: Literal["level", "rate", "squared", "gap", "extremes", "none"] = "level"
    largest: float = np.inf  # the largest value that a gap can have; the smallest is 0
    compares: str | None = None  # for "extremes": the measure per group whose highest and lowest value are compared
    rest: bool = False  # for "extremes": one less that measure is compared
    # Tests of the same question are corrected together: one asked more of does not weaken the others.
    question: Literal["scores", "labels", "strata", "individuals", "features"] = "scores"
    note: str = ""  # what to keep in mind with every such value
    tested_as: str | None = None  # the measure whose test answers the same question; no second test is made or counted
    # The p-value is that at which the interval just holds the even value. Shuffled groups would keep unequal shares of
    # outliers, and answer whether there is more than these explain, which the interval does not ask.
    by_interval: bool = False
    twin: str | None = None  # another estimate of the same quantity, whose interval serves both
    about_rows: bool = False  # says more about the number of rows than about scores: batches are not compared by it
    headline: bool = False  # the printed text shows it
    # Its values (b, w) from the counts of its question, such as `evenout.auditing.counted.ScoreCut`. One that compares
    # follows from that measure; one without either is measured by its family.
    of: Callable[[Any], FloatArray] | None = None
    # The gap if groups differed by no more than drawn counts, the first argument, do from those that they were drawn
    # from, the second. Intervals of gaps are made of it.
    noise: Callable[[Any, Any], FloatArray] | None = None
    # Its columns: one for all groups, or one per group, quantile of each group, share of rows on top, or stratum.
    per: Literal["all", "groups", "quantiles", "tops", "strata"] = "all"
    among: Literal["everyone", "outliers", "inliers", "flagged"] = "everyone"  # the rows that it rests on


def p_value(kind: Meaning, value: FloatArray, permuted: FloatArray) -> FloatArray:
    """Share of permutations that are more unfair than the value, which counts as one of them, and half of the ties.

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
    """Interval of the largest difference, or of the smallest ratio, between values of G groups (`extreme_ends`)."""
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

    No smaller than one of the resamples.
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


POWER = 0.8
_GRID = ndtri((np.arange(2000) + 0.5) / 2000)  # a normal distribution, in equal parts


class Detectable(NamedTuple):
    """The smallest difference found with 80 % power, or NaN if there is none and the power at the largest possible."""

    difference: float
    power: float


def mean_gap(error: float, permuted: FloatArray, freedom: int, confidence: float) -> float:
    """The smallest gap of two means that is found with 80 % power, in the unit of ``error``; NaN if none ever is."""
    critical, _ = _critical(permuted, freedom, confidence)
    if not np.isfinite(critical) or not error > 0:
        return float("nan")
    if _power(0.0, 1.0, critical, freedom) >= POWER:  # a few permutations that happen to be small
        return 0.0
    gap = brentq(lambda d: _power(d, 1.0, critical, freedom) - POWER, 0.0, 4.0 + 2.0 * np.sqrt(critical))
    return float(gap) * error


def rate_gap(
    n_low: float, n_high: float, share: float, permuted: FloatArray, freedom: int, confidence: float
) -> Detectable:
    """The smallest difference of two rates that is found with 80 % power, at the same rate of both together.

    The group with the lower rate has ``share - d n_high / (n_low + n_high)``, the other ``share + d n_low / (n_low +
    n_high)``: sizes and the overall share stay as they are.
    """
    critical, unit = _critical(permuted, freedom, confidence)
    null = share * (1 - share) * (1 / n_low + 1 / n_high)
    if not np.isfinite(critical) or not null > 0:
        return Detectable(float("nan"), float("nan"))
    n = n_low + n_high

    def power(d: float) -> float:
        low, high = share - d * n_high / n, share + d * n_low / n
        noise = low * (1 - low) / n_low + high * (1 - high) / n_high
        return _power(d / np.sqrt(null * unit), max(noise / null, 1e-9), critical, freedom)

    most = min(share * n / n_high, (1 - share) * n / n_low)
    if power(most) < POWER:
        return Detectable(float("nan"), power(most))
    steps = np.linspace(0.0, most, 65)
    first = int(np.argmax([power(d) >= POWER for d in steps]))
    if first == 0:
        return Detectable(0.0, POWER)
    return Detectable(float(brentq(lambda d: power(d) - POWER, steps[first - 1], steps[first])), POWER)


def _critical(permuted: FloatArray, freedom: int, confidence: float) -> tuple[float, float]:
    """The value that a chi-square must exceed, in units of the noise, and that unit; infinite if no value is enough.

    The smallest value above which, half of its ties counted, few enough shuffled ones lie is enough. Counts of few rows
    leave gaps between the values: half of the gap below belongs to it.
    """
    unit = float(permuted.mean()) / max(freedom, 1) if len(permuted) else 0.0
    if freedom < 1 or not unit > 0:
        return float("inf"), 1.0
    values, counts = np.unique(np.round(permuted / unit, 9), return_counts=True)
    enough = (1 + len(permuted) - np.cumsum(counts) + 0.5 * counts) / (1 + len(permuted)) <= 1 - confidence + 1e-12
    if not enough.any():
        return float("inf"), 1.0
    first = int(enough.argmax())
    return float(values[max(first - 1, 0) : first + 1].mean()), unit


def _power(shift: float, ratio: float, critical: float, freedom: int) -> float:
    """Chance that ``(shift + sqrt(ratio) z)^2`` plus a chi-square with one degree less exceeds ``critical``."""
    if freedom == 1:
        edge = np.sqrt(critical)
        return float(ndtr((shift - edge) / np.sqrt(ratio)) + ndtr((-shift - edge) / np.sqrt(ratio)))
    left = critical - (shift + np.sqrt(ratio) * _GRID) ** 2
    return float(np.where(left > 0, chdtrc(freedom - 1, np.maximum(left, 0.0)), 1.0).mean())
