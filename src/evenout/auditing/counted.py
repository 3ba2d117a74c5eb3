"""Measures that are functions of counts, overall and within strata.

``counts`` has shape (b, G, ...): b tables, the rows themselves being a batch of one. Each function answers with arrays
of shape (b, w), a column per group, per share of rows or, for a measure between all groups, one column.

With ``around``, the table that the others were drawn from, there is an entry ``noise of <measure>`` for every gap: what
it would be if the groups differed by no more than the drawn table does from that one. Intervals are made of it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import rel_entr

from evenout.core.flags import flag_threshold, rate_ratio
from evenout.core.ruler import GroupMoments
from evenout.core.types import BoolArray, FloatArray, IntArray

Values = dict[str, FloatArray]

_LEAST_SPREAD = 1e-12  # of a group mean, in units of that of all rows: with none its weight would be infinite


def score_measures(
    counts: IntArray,
    values: FloatArray,
    contamination: float,
    shares: Sequence[float] = (),
    quantiles: Sequence[float] = (),
    *,
    background: IntArray | None = None,
    around: IntArray | None = None,
    fixed: bool = False,
) -> Values:
    """Measures of scores and groups alone.

    Parameters
    ----------
    counts : array of shape (b, G, L)
        Rows of each group at each score level.
    values : array of shape (L,)
        Scores of the levels, ascending.
    contamination : float
        Share of rows that is flagged: those above the percentile of `evenout.core.flags`.
    shares : sequence of float
        Shares of the highest rows whose group mix is compared with that of all rows.
    quantiles : sequence of float
        Quantiles of each group's scores; group by group in one row of ``score_quantile``.
    background : array of shape (L,), optional
        Rows of no group that is compared: they count towards the thresholds alone.
    around : array of shape (G, L), optional
    fixed : bool
        Flags are fixed in advance: counts have each level twice, shape (b, G, 2 L), those of flagged rows last.

    Notes
    -----
    ``threshold_free_gap``: with each row's score as the threshold in turn, the mean of the largest less the smallest
    share of a group above it. ``top_share_drift``: ``sum_g s_g log(s_g / o_g)`` (KL divergence, in nats) of the
    groups' shares ``s`` among the highest rows from their shares ``o`` among all; NaN if ties leave nobody on top.
    ``flag_rate_test``: Pearson's chi-square of groups and flags. ``mean_score_test``: ``sum_g (m_g - m)^2 n_g / s_g^2``
    with m the mean of the group means by the same weights (Cochran 1937), of which Welch's test is a refinement.
    """
    by_rule: IntArray | None = None
    if fixed:
        apart = counts.reshape(*counts.shape[:2], 2, -1)
        counts, by_rule, values = apart.sum(axis=2), apart[:, :, 1].sum(axis=-1), values[: apart.shape[-1]]
        around = None if around is None else around.reshape(len(around), 2, -1).sum(axis=1)
    drawn = _cut(counts, values, (contamination, *shares), background)
    hits = drawn.above[..., 0] if by_rule is None else by_rule
    flagged = hits / drawn.sizes
    per_level = np.diff(drawn.total, axis=-1, prepend=0) / drawn.total[:, -1:]
    found = {
        "mean_score": drawn.moments.mean,
        "score_quantile": group_quantiles(drawn.reached, values, quantiles),
        **_parity(drawn),
        "mean_score_test": _mean_test(drawn),
        "flag_rate": flagged,
        "flag_rate_ratio": rate_ratio(flagged.T)[:, None],
        "unflagged_rate_ratio": rate_ratio(1 - flagged.T)[:, None],
        "flag_rate_test": chi_square(hits, drawn.sizes)[:, None],
        "threshold_free_gap": np.einsum("bl,bl->b", np.ptp(drawn.below, axis=1), per_level)[:, None],
        "top_share_drift": rel_entr(drawn.mix, drawn.shares[..., None]).sum(axis=1),
    }
    if around is None:
        return found
    there = _cut(around[None], values, (contamination, *shares), background)
    squared = mean_squared_gap(drawn.moments.mean - there.moments.mean)
    off = np.ptp(drawn.below - there.below, axis=1)
    return found | {
        "noise of demographic_parity_raw": squared[:, None],
        "noise of demographic_parity": over(squared, drawn.moments.total_variance)[:, None],
        "noise of threshold_free_gap": np.einsum("bl,bl->b", off, per_level)[:, None],
        "noise of top_share_drift": ((drawn.mix - there.mix) ** 2 / there.shares[..., None]).sum(axis=1) / 2,
    }


def label_measures(
    counts: IntArray, contamination: float, *, background: IntArray | None = None, fixed: bool = False
) -> Values:
    """How well each group's outliers are found, and the largest difference between groups in each of these.

    Parameters
    ----------
    counts : array of shape (b, G, 2, L), or (b, G, 2, 2, L) where flags are ``fixed`` in advance, flagged rows last
        Rows of each group, inliers then outliers, at each score level, ascending.
    contamination : float
    background : array of shape (L,), optional

    Notes
    -----
    AUC counts ties half; average precision is ``sum over levels of recall gained times precision`` as in
    scikit-learn; rates and precision are at the one threshold of all rows. NaN where a group has no such rows.
    ``true_positive_rate_test`` is Pearson's chi-square of groups and flags among the outliers,
    ``false_positive_rate_test`` that among the inliers.
    """
    by_rule = counts[..., 1, :].sum(axis=-1).astype(float) if fixed else None
    counts = counts.sum(axis=3) if fixed else counts
    reached = np.cumsum(counts, axis=-1)
    n = reached[..., -1].astype(float)  # (b, G, 2)
    below, inliers, outliers = reached[:, :, 0], counts[:, :, 0], counts[:, :, 1]
    ordered = np.einsum("bgl,bgl->bg", outliers, below - 0.5 * inliers)
    at_or_above = n[..., None] - reached + counts
    precision_at = at_or_above[:, :, 1] / np.maximum(at_or_above.sum(axis=2), 1.0)
    total = reached.sum(axis=(1, 2)) + (0 if background is None else np.cumsum(background))
    cut = _cuts(total, (contamination,))
    flagged = n - np.take_along_axis(reached, cut[:, None, None], axis=-1)[..., 0] if by_rule is None else by_rule
    found = {
        "auc": over(ordered, n[..., 0] * n[..., 1]),
        "average_precision": over(np.einsum("bgl,bgl->bg", outliers, precision_at), n[..., 1]),
        "true_positive_rate": over(flagged[..., 1], n[..., 1]),
        "false_positive_rate": over(flagged[..., 0], n[..., 0]),
        "precision": over(flagged[..., 1], flagged.sum(axis=-1)),
    }
    gaps = {f"{name}_gap": largest_gap(value)[:, None] for name, value in found.items()}
    tests = {
        f"{name}_test": np.where(np.isnan(gaps[f"{name}_gap"]), np.nan, chi_square(k, of)[:, None])
        for name, k, of in (
            ("true_positive_rate", flagged[..., 1], n[..., 1]),
            ("false_positive_rate", flagged[..., 0], n[..., 0]),
        )
    }
    return {"outlier_rate": n[..., 1] / n.sum(axis=-1), **found, **gaps, **tests}


def largest_gap(values: FloatArray) -> FloatArray:
    """Largest less smallest value along the last axis, leaving NaN out; NaN with fewer than two values."""
    known = ~np.isnan(values)
    gap = np.where(known, values, -np.inf).max(axis=-1) - np.where(known, values, np.inf).min(axis=-1)
    return np.where(known.sum(axis=-1) >= 2, gap, np.nan)


def mean_squared_gap(means: FloatArray) -> FloatArray:
    """Mean squared difference over all pairs of groups, along the last axis: twice the variance, divisor G - 1.

    >>> mean_squared_gap(np.array([0.0, 1.0, 3.0])).item()  # (1 + 9 + 4) / 3
    4.666666666666667
    """
    return 2.0 * np.var(means, axis=-1, ddof=1)


def chi_square(hits: FloatArray | IntArray, sizes: FloatArray | IntArray) -> FloatArray:
    """Pearson's chi-square of groups and hits along the last axis; 0 where all or none are hits.

    >>> chi_square(np.array([4, 10]), np.array([40, 40])).round(6).item()
    3.116883
    """
    n = np.asarray(sizes).sum(axis=-1)
    share = hits.sum(axis=-1) / np.maximum(n, 1)
    off = (hits - sizes * share[..., None]) ** 2 / np.maximum(sizes, 1)
    spread = share * (1 - share)
    return np.where(spread > 0, off.sum(axis=-1), 0.0) / np.where(spread > 0, spread, 1.0)


@lru_cache(maxsize=8)  # the same for every batch of resamples
def threshold_ranks(n_rows: int, shares: tuple[float, ...]) -> IntArray:
    """Place, from 0 in ascending order, of the row above whose score the highest ``share`` of the rows lie."""
    places = np.arange(n_rows, dtype=float)
    return np.array([int(flag_threshold(places, share)) for share in shares], dtype=np.intp)


def table_moments(counts: IntArray, values: FloatArray) -> GroupMoments:
    """Means and variances of each group's scores in each table; ``count`` is that of the first."""
    return _moments(counts, values)[0]


def group_quantiles(reached: IntArray, values: FloatArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of each group's scores, interpolated as in numpy, shape (b, G Q)."""
    columns = []
    for group in range(reached.shape[1]):
        place = (reached[:, group, -1:] - 1) * np.asarray(quantiles, dtype=float)
        low = np.floor(place).astype(np.intp)
        part = place - low
        lower, upper = (_locate(reached[:, group], at) for at in (low, np.ceil(place).astype(np.intp)))
        columns.append((1 - part) * values[lower] + part * values[upper])
    return np.concatenate(columns, axis=1)


class _Cut(NamedTuple):
    """What the measures of scores are made of: rows below each level, rows above each threshold, moments."""

    sizes: IntArray  # (b, G)
    reached: IntArray  # (b, G, L), rows at or below a level
    total: IntArray  # (b, L)
    below: FloatArray  # (b, G, L), as a share of the group
    above: IntArray  # (b, G, m), rows above a threshold
    moments: GroupMoments
    noise: FloatArray  # (b, G), squared error of each group's mean

    @property
    def shares(self) -> FloatArray:
        """Share of each group among the rows."""
        return self.sizes / self.sizes.sum(axis=1, keepdims=True)

    @property
    def mix(self) -> FloatArray:
        """Share of each group above each threshold but the first, shape (b, G, m - 1)."""
        return over(self.above[..., 1:], self.above[..., 1:].sum(axis=1, keepdims=True))


def _cut(counts: IntArray, values: FloatArray, shares: tuple[float, ...], background: IntArray | None) -> _Cut:
    sizes = counts.sum(axis=-1)
    reached = np.cumsum(counts, axis=-1)
    total = reached.sum(axis=1)
    everyone = total if background is None else total + np.cumsum(background)
    cuts = _cuts(everyone, shares)
    above = sizes[..., None] - np.take_along_axis(reached, cuts[:, None], axis=-1)
    return _Cut(sizes, reached, total, reached / sizes[..., None], above, *_moments(counts, values))


def _moments(counts: IntArray, values: FloatArray) -> tuple[GroupMoments, FloatArray]:
    """Moments, and the squared error of each mean, shape (b, G)."""
    z, centre, unit = standardised(counts[0].sum(axis=0), values)
    sizes = counts.sum(axis=-1).astype(float)
    sums, squares = np.moveaxis(counts.astype(float) @ np.column_stack([z, z**2]), -1, 0)
    mean = sums / sizes
    variance = np.maximum(squares - sizes * mean**2, 0.0) / np.maximum(sizes - 1, 1)
    total = variance_of_all(sizes.sum(axis=1), sums, squares)
    moments = GroupMoments(sizes[0], centre + unit * mean, unit**2 * variance, unit**2 * total)
    return moments, moments.variance / sizes


def _parity(drawn: _Cut) -> Values:
    """Mean squared gap of the group means: raw, over the variance, and that less the noise of the gaps."""
    squared = mean_squared_gap(drawn.moments.mean)
    # in the mean over pairs every group's noise counts 2 / G times
    less_noise = squared - 2.0 * drawn.noise.mean(axis=1)
    return {
        "demographic_parity_raw": squared[:, None],
        "demographic_parity": over(squared, drawn.moments.total_variance)[:, None],
        "demographic_parity_corrected": over(less_noise, drawn.moments.total_variance)[:, None],
    }


def _mean_test(drawn: _Cut) -> FloatArray:
    half = np.frexp(drawn.moments.total_variance[:, None])[1] // 2  # powers of two: exact, and no weight overflows
    variance = np.ldexp(drawn.moments.total_variance[:, None], -2 * half)
    least = _LEAST_SPREAD * variance / drawn.sizes.sum(axis=1, keepdims=True)
    weight = over(1.0, np.maximum(np.ldexp(drawn.noise, -2 * half), least))
    mean = np.ldexp(drawn.moments.mean - drawn.moments.mean.mean(axis=1, keepdims=True), -half)
    mean = mean - (weight * mean).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    return np.where(variance > 0, (weight * mean**2).sum(axis=1, keepdims=True), np.nan)


def _cuts(reached: IntArray, shares: tuple[float, ...]) -> IntArray:
    """The level above which rows are flagged in each table, shape (b, m): of those that tie, all or none, by what is
    nearer to the share; all rather than that nobody is flagged.
    """  # noqa: D205
    n = reached[:, -1:]
    places = _ranks(n[:, 0], shares)
    cuts = _locate(reached, places)
    asked, above = n - 1 - places, n - np.take_along_axis(reached, cuts, axis=1)
    tied = n - np.take_along_axis(reached, np.maximum(cuts - 1, 0), axis=1)
    nearer = (cuts > 0) & ((tied - asked < asked - above) | (above == 0)) & (tied < n)
    return cuts - nearer


def _ranks(n_rows: IntArray, shares: tuple[float, ...]) -> IntArray:
    """`threshold_ranks` of each table, shape (b, m)."""
    sizes, place = np.unique(n_rows, return_inverse=True)
    if len(sizes) > 4:  # clusters of unequal size: rounding in the last place does not matter there
        return np.floor((n_rows[:, None] - 1) * (1.0 - np.array(shares)) + 1e-9).astype(np.intp)
    return np.stack([threshold_ranks(int(n), shares) for n in sizes])[place]


def _locate(reached: IntArray, places: IntArray) -> IntArray:
    """The level of the rows at the given places (from 0, ascending) in each table, shape (b, m)."""
    return np.stack([np.searchsorted(row, at, side="right") for row, at in zip(reached, places, strict=True)])


def standardised(counts: IntArray, values: FloatArray) -> tuple[FloatArray, float, float]:
    """Values less their mean, divided by their standard deviation (1 if it is 0); then that mean and deviation."""
    shifted = values - values.min()  # exactly 0 for equal scores, so that no rounding looks like a spread
    mean = np.average(shifted, weights=counts)
    unit = float(np.sqrt(np.average((shifted - mean) ** 2, weights=counts))) or 1.0
    return (shifted - mean) / unit, float(mean + values.min()), unit


def variance_of_all(n_rows: FloatArray, sums: FloatArray, squares: FloatArray) -> FloatArray:
    """Variance over all rows of each table, from the sums over its parts, shape (b,)."""
    mean, square = (part.reshape(len(part), -1).sum(axis=1) / n_rows for part in (sums, squares))
    return np.maximum(square - mean**2, 0.0)


def over(numerator: float | FloatArray | IntArray, denominator: FloatArray | IntArray) -> FloatArray:
    """Quotient that is NaN, without a warning, where the denominator is 0."""
    positive = np.asarray(denominator) > 0
    return np.where(positive, numerator, np.nan) / np.where(positive, denominator, 1.0)


def strata_measures(counts: IntArray, values: FloatArray, edges: IntArray, *, around: IntArray | None = None) -> Values:
    """Group gaps among rows of the same stratum.

    ``conditional_parity``: the mean squared gap of group means within a stratum over the pairs of groups there,
    divided by the variance of all scores; the mean over strata by their size. A group takes part in a stratum with two
    rows or more, a stratum with two groups or more. Corrected: less the sampling noise of each gap, as in
    `evenout.core.ruler`. ``strata_test``: the sum over these strata of the rows' squares between groups over the
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
