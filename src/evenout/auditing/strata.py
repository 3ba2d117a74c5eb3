"""Group gaps among rows of the same stratum, as pure functions of counts; see `evenout.auditing.measures`."""

from typing import NamedTuple

import numpy as np

from evenout.auditing.measures import Values, over, standardised, variance_of_all
from evenout.core.types import BoolArray, FloatArray, IntArray


def strata_measures(counts: IntArray, values: FloatArray, edges: IntArray, *, around: IntArray | None = None) -> Values:
    """Group gaps among rows of the same stratum.

    ``conditional_parity``: the mean squared gap of group means within a stratum over the pairs of groups there,
    divided by the variance of all scores; the mean over strata by their size. A group takes part in a stratum with two
    rows or more, a stratum with two groups or more. Corrected: less the sampling noise of each gap, as in
    `evenout.core.forms`. ``strata_test``: the sum over these strata of the rows' squares between groups over the
    variance within the stratum, all groups there counted by their rows. ``mean_apart``: a group's mean less that of all
    rows, in standard deviations, and ``apart_by_strata`` the part of it that goes with the strata that the group's rows
    are in, ``sum_s (p_gs - p_s) m_s``; the rest is what differs within strata (Kitagawa 1955).

    Parameters
    ----------
    counts : array of shape (b, G, C)
    values : array of shape (C,)
    edges : array of shape (S + 1,)
        Stratum s has the cells ``edges[s]..edges[s + 1] - 1``.
    around : array of shape (G, C), optional
        The table that the others were drawn from: adds ``noise of`` each gap.
    """
    z, _, unit = standardised((counts[0] if around is None else around).sum(axis=0), values)
    drawn = _within(counts, z, unit, edges)
    weight = np.where(drawn.usable, drawn.n.sum(axis=1), 0.0)
    weight = over(weight, weight.sum(axis=1, keepdims=True))
    scale_free = over(_mean_squared_gap(drawn, drawn.mean), drawn.variance)
    correction = over(
        np.where(drawn.usable, (drawn.k - 1) * drawn.noise.sum(axis=1) / drawn.pairs, 0.0), drawn.variance
    )
    parity = (weight * scale_free).sum(axis=1)[:, None]
    found = {
        "conditional_parity": parity,
        "conditional_parity_corrected": parity - (weight * correction).sum(axis=1)[:, None],
        "parity_within": np.where(drawn.usable, scale_free, np.nan),
        "strata_test": np.where(np.isnan(parity), np.nan, _between(drawn)[:, None]),
        **_apart(drawn),
    }
    if around is None:
        return found
    there = _within(around[None], z, unit, edges)
    # drawn from n rows of a cell, a mean varies by (n - 1) / n of what it does drawn from the population
    small = np.sqrt(there.n / np.maximum(there.n - 1, 1))
    mean = drawn.sums / np.maximum(drawn.n, 1)
    off = np.where(there.part & (drawn.n > 0), small * (mean - there.mean), 0.0)
    noise = over(_mean_squared_gap(there, off), drawn.variance)
    weight = np.where(there.usable, there.n.sum(axis=1), 0.0)
    weight = over(weight, weight.sum(axis=1, keepdims=True))
    return found | {
        "noise of conditional_parity": (weight * noise).sum(axis=1)[:, None],
        "noise of parity_within": np.where(there.usable, noise, np.nan),
    }


def strata_precision(counts: IntArray, values: FloatArray, edges: IntArray) -> tuple[FloatArray, int]:
    """What `strata_test` makes of a gap, and its degrees of freedom, in a table of shape (G, C).

    Returns
    -------
    precision : array of shape (G, G)
        If groups p and q alone differ, by d everywhere, the test has the noncentrality ``d^2 precision[p, q]``.
    freedom : int
    """
    z, _, unit = standardised(counts.sum(axis=0), values)
    within = _within(counts[None], z, unit, edges)
    spread = within.unit**2 * within.spread[0]
    rows = np.where(within.usable[0] & (spread > 0), within.n[0], 0.0)
    n = rows[:, None] * rows / np.maximum(rows[:, None] + rows, 1.0)  # (G, G, S)
    freedom = int(np.maximum((rows > 0).sum(axis=0) - 1, 0).sum())
    return (n / np.where(spread > 0, spread, 1.0)).sum(axis=-1), freedom


class _Within(NamedTuple):
    """Rows, standardised sums, means and noise of each group in each stratum, shape (b, G, S)."""

    n: FloatArray
    sums: FloatArray
    mean: FloatArray  # 0 for groups that take no part
    noise: FloatArray
    part: BoolArray
    k: IntArray  # (b, S), groups that take part
    pairs: FloatArray  # (b, S)
    usable: BoolArray  # (b, S)
    spread: FloatArray  # (b, S), variance of all rows of the stratum
    variance: FloatArray  # (b, 1), of all rows
    unit: float  # of the standardised scores


def _within(counts: IntArray, z: FloatArray, unit: float, edges: IntArray) -> _Within:
    n, sums, squares = (np.add.reduceat(counts * z**power, edges[:-1], axis=-1) for power in (0, 1, 2))
    part = n >= 2
    mean = np.where(part, sums / np.maximum(n, 1), 0.0)
    noise = np.where(part, (squares - n * mean**2) / np.maximum(n * (n - 1), 1), 0.0)
    k = part.sum(axis=1)
    rows, all_sums, all_squares = (x.sum(axis=1) for x in (n, sums, squares))
    spread = np.maximum(all_squares - all_sums**2 / np.maximum(rows, 1), 0.0) / np.maximum(rows - 1, 1)
    return _Within(
        n, sums, mean, noise, part, k,
        pairs=np.where(k >= 2, k * (k - 1) / 2, 1.0),
        usable=k >= 2,
        spread=np.where(spread > 1e-12, spread, 0.0),
        variance=variance_of_all(n.sum(axis=(1, 2)), sums, squares)[:, None],
        unit=unit,
    )  # fmt: skip


def _apart(drawn: _Within) -> Values:
    """How far each group's mean is from that of all rows, and what of it goes with strata, shape (b, G) each."""
    n, spread = drawn.n, np.sqrt(drawn.variance)
    rows, total = n.sum(axis=1), n.sum(axis=(1, 2))[:, None]
    stratum_mean = drawn.sums.sum(axis=1) / np.maximum(rows, 1)
    share = over(n, n.sum(axis=2, keepdims=True)) - (rows / total)[:, None]
    apart = over(drawn.sums.sum(axis=2), n.sum(axis=2)) - drawn.sums.sum(axis=(1, 2))[:, None] / total
    by_strata = (share * stratum_mean[:, None]).sum(axis=2)
    return {"mean_apart": over(apart, spread), "apart_by_strata": over(by_strata, spread)}


def _mean_squared_gap(drawn: _Within, mean: FloatArray) -> FloatArray:
    """Over the pairs of groups that take part in a stratum, shape (b, S); 0 where there are none."""
    squared = (drawn.k * (mean**2).sum(axis=1) - mean.sum(axis=1) ** 2) / drawn.pairs
    return np.where(drawn.usable, np.maximum(squared, 0.0), 0.0)


def _between(drawn: _Within) -> FloatArray:
    """Squares between groups over the variance, summed over the usable strata, shape (b,)."""
    squares = (drawn.sums**2 / np.maximum(drawn.n, 1)).sum(axis=1)
    squares -= drawn.sums.sum(axis=1) ** 2 / np.maximum(drawn.n.sum(axis=1), 1)
    counted = drawn.usable & (drawn.spread > 0)
    return (np.where(counted, squares, 0.0) / np.where(counted, drawn.spread, 1.0)).sum(axis=1)
