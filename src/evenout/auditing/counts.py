"""Statistics of counts: two groups and one outcome, also within strata. Pure functions; NaN where there is none."""

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc
from scipy.stats import fisher_exact

from evenout.core.intervals import normal_value, wilson_interval
from evenout.core.types import FloatArray

NAN = float("nan")


class Estimate(NamedTuple):
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


NOTHING = Estimate(NAN, NAN, NAN)


def rate(k: float, n: float, confidence: float) -> Estimate:
    """The share ``k / n``, with Wilson's interval.

    >>> rate(8, 10, 0.95)._asdict()
    {'value': 0.8, 'low': 0.490..., 'high': 0.943...}
    """
    if n == 0:
        return NOTHING
    low, high = wilson_interval(np.array([k / n]), np.array([float(n)]), normal_value(confidence))
    return Estimate(k / n, float(low[0]), float(high[0]))


def ratio(k: float, n: float, k_other: float, n_other: float, confidence: float) -> Estimate:
    """The rate ``k / n`` over the other, with an interval from the normal error of its logarithm (Katz et al. 1978).

    No interval where a count is 0.
    """
    if n == 0 or n_other == 0 or k_other == 0:
        return NOTHING
    value = (k / n) / (k_other / n_other)
    if k == 0:
        return Estimate(value, NAN, NAN)
    reach = normal_value(confidence) * np.sqrt(max(1.0 / k - 1.0 / n + 1.0 / k_other - 1.0 / n_other, 0.0))
    return Estimate(value, float(value * np.exp(-reach)), float(value * np.exp(reach)))


def z_of_rates(k: float, n: float, k_other: float, n_other: float) -> float:
    """The difference of two rates over its error, where both are one rate (pooled)."""
    if n == 0 or n_other == 0:
        return NAN
    both = (k + k_other) / (n + n_other)
    error = np.sqrt(both * (1.0 - both) * (1.0 / n + 1.0 / n_other))
    return float((k / n - k_other / n_other) / error) if error > 0 else NAN


def fisher(k: float, n: float, k_other: float, n_other: float) -> float:
    """Two-sided p-value of equal rates, by Fisher's exact test."""
    if n == 0 or n_other == 0:
        return NAN
    return float(fisher_exact([[int(k), int(n - k)], [int(k_other), int(n_other - k_other)]])[1])


def shortfall(k: float, n: float, other_rate: float) -> float:
    """How many more people the outcome would have reached at the other group's rate; 0 if none."""
    return max(n * other_rate - k, 0.0)


def standardised_difference(values: FloatArray, other: FloatArray, deviation: float, confidence: float) -> Estimate:
    """The difference of two means in standard deviations of all, with Welch's error."""
    if min(len(values), len(other)) < 2 or not deviation > 0:
        return NOTHING
    found = (values.mean() - other.mean()) / deviation
    error = np.sqrt(values.var(ddof=1) / len(values) + other.var(ddof=1) / len(other)) / deviation
    reach = normal_value(confidence) * error
    return Estimate(float(found), float(found - reach), float(found + reach))


class Stratified(NamedTuple):
    """Two groups compared within strata.

    ``risk`` and ``odds`` are the ratios of rates and of odds of Mantel and Haenszel, ``p`` that of no difference in any
    stratum by their test (without continuity correction), ``used`` the strata with people of both groups.
    """

    risk: Estimate
    odds: Estimate
    statistic: float
    p: float
    used: int


def mantel_haenszel(
    k: FloatArray, n: FloatArray, k_other: FloatArray, n_other: FloatArray, confidence: float
) -> Stratified:
    """Compare rates within strata (Mantel and Haenszel 1959); all arrays have one entry per stratum.

    The interval of the ratio of rates is that of Greenland and Robins (1985), that of the odds that of Robins, Breslow
    and Greenland (1986).
    """
    both = (n > 0) & (n_other > 0)
    a, c = k[both].astype(float), k_other[both].astype(float)
    n1, n0 = n[both].astype(float), n_other[both].astype(float)
    total, hits = n1 + n0, a + c
    z = normal_value(confidence)
    spread = n1 * n0 * hits * (total - hits) / (total**2 * np.maximum(total - 1.0, 1.0))
    statistic = (a - n1 * hits / total).sum() ** 2 / spread.sum() if spread.sum() > 0 else NAN
    up, down = (a * n0 / total).sum(), (c * n1 / total).sum()
    noise = ((n1 * n0 * hits - a * c * total) / total**2).sum()
    risk = _log_interval(up / down, np.sqrt(noise / (up * down)), z) if up > 0 and down > 0 else NOTHING
    p = float(chdtrc(1, statistic)) if np.isfinite(statistic) else NAN
    return Stratified(risk, _odds(a, n1 - a, c, n0 - c, total, z), float(statistic), p, int(both.sum()))


def _odds(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray, total: FloatArray, z: float) -> Estimate:
    """The odds ratio of Mantel and Haenszel of tables ``[[a, b], [c, d]]``."""
    r, s = a * d / total, b * c / total
    if not (r.sum() > 0 and s.sum() > 0):
        return NOTHING
    p, q = (a + d) / total, (b + c) / total
    noise = (p * r).sum() / (2 * r.sum() ** 2) + (q * s).sum() / (2 * s.sum() ** 2)
    noise += (p * s + q * r).sum() / (2 * r.sum() * s.sum())
    return _log_interval(r.sum() / s.sum(), np.sqrt(noise), z)


def _log_interval(value: float, error: float, z: float) -> Estimate:
    return Estimate(float(value), float(value * np.exp(-z * error)), float(value * np.exp(z * error)))


def conditional_disparity(hit: FloatArray, spared: FloatArray, all_hit: FloatArray, all_spared: FloatArray) -> float:
    """A group's share among those hit less its share among those spared, averaged over strata by their size.

    Strata in which everybody or nobody is hit have no such difference, and no say. Arrays have one entry per stratum:
    people of the group, and of all groups, who are hit or spared.

    >>> conditional_disparity(np.array([30.0]), np.array([20.0]), np.array([40.0]), np.array([60.0]))
    0.41666...
    """
    said = (all_hit > 0) & (all_spared > 0)
    if not said.any():
        return NAN
    apart = hit[said] / all_hit[said] - spared[said] / all_spared[said]
    size = all_hit[said] + all_spared[said]
    return float(apart @ size / size.sum())
