"""From values and their resamples to intervals and p-values."""

import numpy as np
from scipy.special import ndtri

from evenout.auditing.kinds import Kind
from evenout.core.types import FloatArray


def p_value(kind: Kind, value: FloatArray, permuted: FloatArray) -> FloatArray:
    """Share of permutations at least as unfair as the value, the value itself counted as one of them.

    Parameters
    ----------
    kind : Kind
    value : array of shape (w,)
    permuted : array of shape (P, w)

    Returns
    -------
    array of shape (w,)
        ``(1 + number at least as unfair) / (1 + P)``; NaN for a level, without permutations, or where value is NaN.

    >>> p_value(Kind("a gap", 0.0, "high"), np.array([0.3]), np.array([[0.1], [0.3], [0.2]])).tolist()
    [0.5]
    """
    if kind.worse is None or len(permuted) == 0:
        return np.full(len(value), np.nan)
    sign = 1.0 if kind.worse == "high" else -1.0
    slack = 1e-10 * np.abs(value)  # equal but for rounding is equal
    as_unfair = (~(sign * permuted < sign * value - slack)).sum(axis=0)  # an undefined one counts against us
    return np.where(np.isnan(value), np.nan, (1 + as_unfair) / (1 + len(permuted)))


def percentiles(drawn: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Percentile interval of each column of the resamples, shape (B, w), leaving NaN out; NaN if nothing is left."""
    tails = ((1 - confidence) / 2, (1 + confidence) / 2)
    columns = [column[~np.isnan(column)] for column in drawn.T]
    ends = [np.quantile(column, tails) if len(column) else (np.nan, np.nan) for column in columns]
    low, high = np.array(ends, dtype=float).T
    return low, high


def interval(
    kind: Kind, value: FloatArray, drawn: FloatArray, confidence: float, directions: int
) -> tuple[FloatArray, FloatArray]:
    """Bootstrap interval of each value, by the shape of its measure.

    ``"level"``: the percentiles of the resamples. A gap is never below 0, so noise pushes it up: the sample once, a
    resample twice. ``"squared"``: noise along the gap itself cancels in the percentiles, noise in the other directions
    does not; hence both ends move down by ``2 (1 - 1 / directions)`` times the push that the bootstrap shows, which
    is nothing for two groups. ``"spread"``: how much of the push cancels depends on the gap; an end moves outwards by
    twice the push or stays. In simulations these intervals cover as promised, the last a little less often where a
    small gap is spread over several small groups.

    Parameters
    ----------
    kind : Kind
    value : array of shape (w,)
    drawn : array of shape (B, w)
    confidence : float
    directions : int
        Independent differences that make up the gap: groups less one, summed over strata.

    Returns
    -------
    low, high : arrays of shape (w,)
    """
    low, high = percentiles(drawn, confidence)
    if kind.shape == "level":
        return low, high
    push = (
        np.array([np.nanmean(column) if not np.isnan(column).all() else np.nan for column in drawn.T]) - value
    )
    if kind.shape == "squared":
        shift = 2 * (1 - 1 / max(directions, 1)) * push
        return low - shift, high - shift
    return np.minimum(low, low - 2 * push), np.maximum(high, high - 2 * push)


def extremes_interval(kind: Kind, low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Interval of the largest difference, or of the smallest ratio, of group values with intervals ``low, high`` (G,).

    What the group intervals allow: the highest value lies between the highest low and the highest high end, the
    lowest value likewise. Resampled extremes would not do: noise drives them apart.

    >>> extremes_interval(Kind("gap", 0.0, shape="extremes"), np.array([0.25, 0.5]), np.array([0.375, 1.0]))
    (0.125, 0.75)
    """
    known = ~np.isnan(low)
    if known.sum() < 2:
        return float("nan"), float("nan")
    low, high = low[known], high[known]
    if kind.even == 1.0:  # a ratio of lowest to highest
        return _ratio(low.min(), high.max()), _ratio(high.min(), low.max())
    return float(low.max() - high.min()), float(high.max() - low.min())


def bounded(
    kind: Kind, value: FloatArray, low: FloatArray, high: FloatArray, p: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Keep an interval in the measure's range, with its value, and with "even" unless the test excludes that."""
    if kind.even is not None:
        low, high = np.clip(low, 0.0, kind.largest), np.clip(high, 0.0, kind.largest)
        even = p > 1 - confidence
        low = np.where(even, np.minimum(low, kind.even), low)
        high = np.where(even, np.maximum(high, kind.even), high)
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


def wilson(count: FloatArray, n: int, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval of the share ``count / n``."""
    z = float(ndtri((1 + confidence) / 2))
    centre = (count + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * np.sqrt(count * (n - count) / n + z**2 / 4)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def _ratio(low: float, high: float) -> float:
    return min(float(low / high), 1.0) if high > 0 else 1.0
