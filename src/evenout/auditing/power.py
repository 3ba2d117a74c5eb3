"""What a test could have seen: the smallest difference between two groups that it finds with 80 % power.

The tests of the audit are chi-squares under shuffled groups. Of G groups two differ, the others lie between them where
they add nothing to the chi-square. Then it is ``(d / error + sqrt(r) z)^2`` plus a central chi-square with one degree
less, z being normal and r the noise of the difference over that without any difference. All of it is in units of the
mean of the shuffled chi-squares per degree of freedom: clusters make that larger than 1, and differences harder to see.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, ndtr, ndtri

from evenout.core.types import FloatArray

POWER = 0.8
_GRID = ndtri((np.arange(2000) + 0.5) / 2000)  # a normal distribution, in equal parts


class Seen(NamedTuple):
    """The smallest difference found with 80 % power, or NaN if there is none and the power at the largest possible."""

    difference: float
    power: float


def mean_gap(error: float, permuted: FloatArray, freedom: int, confidence: float) -> float:
    """The smallest gap of two means that is found with 80 % power, in the unit of ``error``; NaN if none ever is.

    Parameters
    ----------
    error : float
        Standard error of the difference of the two means.
    permuted : array of shape (P,)
        The test's chi-square under shuffled groups.
    freedom : int
        Its degrees of freedom.
    confidence : float
        The test rejects at ``1 - confidence``.
    """
    critical, _ = _critical(permuted, freedom, confidence)
    if not np.isfinite(critical) or not error > 0:
        return float("nan")
    if _power(0.0, 1.0, critical, freedom) >= POWER:  # a few permutations that happen to be small
        return 0.0
    gap = brentq(lambda d: _power(d, 1.0, critical, freedom) - POWER, 0.0, 4.0 + 2.0 * np.sqrt(critical))
    return float(gap) * error


def rate_gap(n_low: float, n_high: float, share: float, permuted: FloatArray, freedom: int, confidence: float) -> Seen:
    """The smallest difference of two rates that is found with 80 % power, at the same rate of both together.

    The group with the lower rate has ``share - d n_high / (n_low + n_high)``, the other ``share + d n_low / (n_low +
    n_high)``: sizes and the overall share stay as they are.

    Parameters
    ----------
    n_low, n_high : float
        Rows of the two groups.
    share : float
        Rate of all rows.
    permuted, freedom, confidence
        As in `mean_gap`.
    """
    critical, unit = _critical(permuted, freedom, confidence)
    null = share * (1 - share) * (1 / n_low + 1 / n_high)
    if not np.isfinite(critical) or not null > 0:
        return Seen(float("nan"), float("nan"))
    n = n_low + n_high

    def power(d: float) -> float:
        low, high = share - d * n_high / n, share + d * n_low / n
        noise = low * (1 - low) / n_low + high * (1 - high) / n_high
        return _power(d / np.sqrt(null * unit), max(noise / null, 1e-9), critical, freedom)

    most = min(share * n / n_high, (1 - share) * n / n_low)
    if power(most) < POWER:
        return Seen(float("nan"), power(most))
    steps = np.linspace(0.0, most, 65)
    first = int(np.argmax([power(d) >= POWER for d in steps]))
    if first == 0:
        return Seen(0.0, POWER)
    return Seen(float(brentq(lambda d: power(d) - POWER, steps[first - 1], steps[first])), POWER)


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
