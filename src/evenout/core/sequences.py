"""Bounds on sums of bounded values that hold at all times at once, so that one may look as often as one likes.

Let ``x_i`` lie in [0, 1] with mean ``m_i`` given everything before it, and let ``c_i`` in [-1, 1] and a guess ``g_i``
in [0, 1] be known before ``x_i`` is. With ``s = sum c_i (x_i - m_i)`` and ``v = sum c_i^2 (x_i - g_i)^2``,

    exp(l s - v (-log(1 - l) - l)),   0 <= l < 1,

is a supermartingale that starts at 1 (Fan, Grama and Liu 2015; Howard, Ramdas, McAuliffe and Sekhon, *Time-uniform,
nonparametric, nonasymptotic confidence sequences*, Annals of Statistics 2021, Theorem 4). Averaged over l with a
density proportional to ``(1 - l)^(rho - 1) exp(l rho)`` it has a closed form, their gamma-exponential mixture.
By Ville's inequality it ever exceeds ``1 / level`` with a chance of at most ``level``, whatever the ``m_i`` do over
time.
"""

import numpy as np
from scipy.special import gammainc, gammaln

from evenout.core.types import FloatArray, IntArray

TIGHTEST = 25.0  # the v at which the bound is at its best; some 1,200 rows of two groups of equal size
_STEPS = 60  # of bisection: the bound to 1e-18 of where it was looked for


def log_evidence(s: FloatArray, v: FloatArray, level: FloatArray) -> FloatArray:
    """Logarithm of the mixture at sums ``s >= 0`` and ``v >= 0``; arrays that broadcast."""
    rho = _rho(level)
    shape, rate = v + rho, s + v + rho
    one = gammaln(rho) + np.log(gammainc(rho, rho)) - rho * np.log(rho)
    return s + v + gammaln(shape) + np.log(gammainc(shape, rate)) - shape * np.log(rate) - one


def upper_bound(v: FloatArray, level: FloatArray | float) -> FloatArray:
    """The s that is ever exceeded with a chance of at most ``level``, as a function of v.

    >>> upper_bound(np.array([0.0, 25.0, 2500.0]), 0.025).round(1)
    array([  6.4,  18.5, 186.3])
    """
    v, level = np.broadcast_arrays(np.asarray(v, dtype=float), np.asarray(level, dtype=float))
    asked = -np.log(level)
    low, high = np.zeros(v.shape), 2.0 * np.sqrt((v + _rho(level)) * asked) + 4.0 * asked
    while (short := log_evidence(high, v, level) < asked).any():
        high = np.where(short, 2.0 * high, high)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        above = log_evidence(middle, v, level) >= asked
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


def start_shares(places: IntArray) -> FloatArray:
    """How a level is shared out over starts: one half to the first, the rest to all later ones; same shape.

    What begins at the p-th place, ``p >= 2``, gets ``1 / (2 p (p - 1))``; without end these add up to one half.

    >>> start_shares(np.array([1, 2, 3]))
    array([0.5       , 0.25      , 0.08333333])
    """
    p = np.asarray(places, dtype=float)
    return np.where(p <= 1, 0.5, 0.5 / np.maximum(p * (p - 1.0), 1.0))


def _rho(level: FloatArray) -> FloatArray:
    """The spread of l for which the bound is tightest near ``v = TIGHTEST`` (Howard et al. 2021, Section 3.5)."""
    asked = 2.0 * -np.log(np.asarray(level, dtype=float))
    return TIGHTEST / (asked + np.log1p(asked))
