"""Intervals for a bias that cannot be below 0, and for the share of it that is gone."""

import numpy as np
from scipy.special import chdtri, chndtr, chndtrinc, ndtr, ndtri

from evenout.core.types import FloatArray

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
