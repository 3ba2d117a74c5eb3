"""Intervals: of a bias and the share of it that is gone, of rates, and of the most uneven pair of groups."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import chdtri, chndtr, chndtrinc, ndtr, ndtri

from evenout.core.types import BoolArray, FloatArray

_NORMAL = 1e4  # noncentrality from which the noncentral chi-square is as good as normal


def noncentral_interval(
    value: FloatArray, scale: FloatArray, freedom: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Interval of ``scale * L`` where ``value / scale`` is noncentral chi-square with noncentrality L.

    The ends are the L at which the value would be just too large, or just too small. A value among the
    lowest tenth of what "nothing there" gives counts as the end of that tenth: no sample proves that there is nothing.

    Parameters
    ----------
    value, scale, freedom : arrays of shape (m,)
    confidence : float

    Returns
    -------
    low, high : arrays of shape (m,)

    >>> low, high = noncentral_interval(np.array([9.0]), np.array([1.0]), np.array([1.0]), 0.95)
    >>> low.round(2), high.round(2)
    (array([1.08]), array([24.6]))
    """
    tail = (1.0 - confidence) / 2.0
    low, high = np.full(len(value), np.nan), np.full(len(value), np.nan)
    for i in np.flatnonzero(np.isfinite(value) & (scale > 0) & (freedom > 0)):
        x, nu = value[i] / scale[i], freedom[i]
        if x > _NORMAL:
            centre, reach = x - nu, ndtri(1.0 - tail) * np.sqrt(2.0 * nu + 4.0 * max(x - nu, 0.0))
            low[i], high[i] = max(centre - reach, 0.0), centre + reach
        else:
            low[i] = chndtrinc(x, nu, 1.0 - tail) if chndtr(x, nu, 0.0) > 1.0 - tail else 0.0
            high[i] = chndtrinc(max(x, _lowest_tenth(nu)), nu, tail)
    return low * scale, high * scale


def normal_interval(value: FloatArray, error: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Interval of a value that cannot be below 0 and has a normal error; arrays of shape (m,)."""
    reach = ndtri((1.0 + confidence) / 2.0) * error
    return np.maximum(value - reach, 0.0), value + reach


def ratio_interval(
    estimate: tuple[float, float],
    first: tuple[float, float],
    second: tuple[float, float],
    correlation: float,
) -> tuple[float, float]:
    """Interval of ``a / b`` from intervals of a and b that need not be symmetric; infinite ends where b may be 0.

    NaN where one of the intervals is unknown.

    Like Fieller's, it asks for which ratios r the difference ``a - r b`` may be 0. The error of the difference is put
    together from the distances of the ends (MOVER; Donner and Zou 2012).

    Parameters
    ----------
    estimate : pair of float
        a and b.
    first, second : pairs of float
        Intervals of a and of b.
    correlation : float
        Of the two estimates.
    """
    if np.isnan([*first, *second]).any():
        return float("nan"), float("nan")
    a, b = estimate
    ends = []
    for down, up in ((a - first[0], second[1] - b), (first[1] - a, b - second[0])):
        # (a - r b)^2 = down^2 + r^2 up^2 - 2 r rho down up, a quadratic equation in r
        square = b**2 - up**2
        middle = a * b - correlation * down * up
        rest = a**2 - down**2
        root = middle**2 - square * rest
        ends.append((square, middle, np.sqrt(max(root, 0.0))))
    (square_low, middle_low, root_low), (square_high, middle_high, root_high) = ends
    low = (middle_low - root_low) / square_low if square_low > 0 else -np.inf
    high = (middle_high + root_high) / square_high if square_high > 0 else np.inf
    return float(low), float(high)


def expected_shortfall(asked: float, reached: float, error: float) -> float:
    """``E max(0, asked - X)`` for X normal around ``reached``: how much is missing, on average, of what was asked."""
    if not error > 0:
        return max(asked - reached, 0.0)
    z = (asked - reached) / error
    return float(error * (np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi) + z * ndtr(z)))


def _lowest_tenth(freedom: float) -> float:
    return float(chdtri(freedom, 0.9))


def extreme_ends(
    value: FloatArray,
    ends: Callable[[float], tuple[FloatArray, FloatArray]],
    correlation: FloatArray,
    confidence: float,
    *,
    of_ratio: bool,
    compared: BoolArray | None = None,
) -> tuple[float, float]:
    """Interval of the largest difference, or of the smallest ratio, between values of G groups.

    For two groups it follows from those of the two values and their correlation (Zou and Donner 2008; for ratios
    Newcombe 2016). With more, the pair that differs most is not known. Some pair differs as much as the truth: so the
    end on the uneven side is the furthest of all pairs. No pair differs by more than the truth: so the end on the even
    side is the furthest of all pairs too, each with the critical value of Tukey's studentised range instead of the
    normal one, by which all pairs hold together. For two groups both are the same.

    Parameters
    ----------
    value : array of shape (G,)
    ends : function
        Interval of each group's value, for a critical value z.
    correlation : array of shape (G, G)
    confidence : float
    of_ratio : bool
        Ratios, else differences.
    compared : array of shape (G, G), optional
        Which groups are compared; all by default.
    """
    apart = ~np.eye(len(value), dtype=bool) if compared is None else compared
    n_groups = int(apart.any(axis=1).sum())
    of_pairs = ratio_ends if of_ratio else difference_ends
    plain, wide = (
        of_pairs(value, *ends(z), correlation) for z in (normal_value(confidence), tukey_value(confidence, n_groups))
    )
    if of_ratio:
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
def tukey_value(confidence: float, n_groups: int) -> float:
    """Critical value of one of all pairs of groups; the normal one for two."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(confidence, n_groups, np.inf) / np.sqrt(2))


def tukey_p_value(z: float, n_groups: int) -> float:
    """Chance that one of all pairs of groups is z or more standard errors apart; the normal one for two.

    >>> round(tukey_p_value(tukey_value(0.95, 4), 4), 6)
    0.05
    """
    from scipy.stats import studentized_range

    return float(2.0 * ndtr(-z)) if n_groups == 2 else float(studentized_range.sf(z * np.sqrt(2), n_groups, np.inf))
