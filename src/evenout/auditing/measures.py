"""The measures of one score as pure functions of counts, for a whole batch of resamples at once.

``counts`` has shape (b, G, ...): b tables, the rows themselves being a batch of one. Each function answers with arrays
of shape (b, w), a column per group, per share of rows or, for a measure between all groups, one column. The group
sizes and the number of rows are the same in all tables of a batch.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import rel_entr

from evenout.core.flags import flag_threshold, rate_ratio
from evenout.core.forms import GroupMoments, parity_from_moments
from evenout.core.types import FloatArray, IntArray

Values = dict[str, FloatArray]


def score_measures(
    counts: IntArray,
    values: FloatArray,
    contamination: float,
    shares: Sequence[float] = (),
    quantiles: Sequence[float] = (),
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

    Notes
    -----
    ``threshold_free_gap``: with each row's score as the threshold in turn, the mean of the largest less the smallest
    share of a group above it. ``top_share_drift``: ``sum_g s_g log(s_g / o_g)`` (KL divergence, in nats) of the
    groups' shares ``s`` among the highest rows from their shares ``o`` among all; NaN if ties leave nobody on top.
    """
    sizes = counts[0].sum(axis=-1)
    reached = np.cumsum(counts, axis=-1)  # rows of a group at or below a level
    total = reached.sum(axis=1)
    cuts = _locate(total, threshold_ranks(int(sizes.sum()), (contamination, *shares)))
    above = sizes[:, None] - np.stack(
        [row[:, cut] for row, cut in zip(reached, cuts, strict=True)]
    )  # (b, G, 1 + m)
    flagged = above[:, :, 0] / sizes
    moments = table_moments(counts, values)
    spread = np.ptp(reached / sizes[:, None], axis=1)
    per_level = np.diff(total, axis=-1, prepend=0)
    return {
        "mean_score": moments.mean,
        "score_quantile": group_quantiles(reached, values, quantiles),
        "demographic_parity_raw": parity_from_moments(_unscaled(moments), corrected=False)[:, None],
        "demographic_parity": parity_from_moments(moments, corrected=False)[:, None],
        "demographic_parity_corrected": parity_from_moments(moments, corrected=True)[:, None],
        "flag_rate": flagged,
        "flag_rate_ratio": rate_ratio(flagged.T)[:, None],
        "threshold_free_gap": np.einsum("bl,bl->b", spread, per_level)[:, None] / sizes.sum(),
        "top_share_drift": _share_drift(above[:, :, 1:], sizes),
    }


def label_measures(counts: IntArray, contamination: float) -> Values:
    """How well each group's outliers are found, and the largest difference between groups in each of these.

    Parameters
    ----------
    counts : array of shape (b, G, 2, L)
        Rows of each group, inliers then outliers, at each score level, ascending.
    contamination : float

    Notes
    -----
    AUC counts ties half; average precision is ``sum over levels of recall gained times precision`` as in
    scikit-learn; rates and precision are at the one threshold of all rows. NaN where a group has no such rows.
    """
    reached = np.cumsum(counts, axis=-1)
    n = reached[..., -1].astype(float)  # (b, G, 2)
    below, inliers, outliers = reached[:, :, 0], counts[:, :, 0], counts[:, :, 1]
    ordered = np.einsum("bgl,bgl->bg", outliers, below - 0.5 * inliers)
    at_or_above = n[..., None] - reached + counts
    precision_at = at_or_above[:, :, 1] / np.maximum(at_or_above.sum(axis=2), 1.0)
    total = reached.sum(axis=(1, 2))
    cut = _locate(total, threshold_ranks(int(total[0, -1]), (contamination,)))
    flagged = n - np.stack([row[:, :, at] for row, at in zip(reached, cut[:, 0], strict=True)])
    found = {
        "auc": _over(ordered, n[..., 0] * n[..., 1]),
        "average_precision": _over(np.einsum("bgl,bgl->bg", outliers, precision_at), n[..., 1]),
        "true_positive_rate": _over(flagged[..., 1], n[..., 1]),
        "false_positive_rate": _over(flagged[..., 0], n[..., 0]),
        "precision": _over(flagged[..., 1], flagged.sum(axis=-1)),
    }
    gaps = {f"{name}_gap": largest_gap(value)[:, None] for name, value in found.items()}
    return {"outlier_rate": n[..., 1] / n.sum(axis=-1), **found, **gaps}


def strata_measures(counts: IntArray, values: FloatArray, edges: IntArray) -> Values:
    """Group gaps among rows of the same stratum.

    ``conditional_parity``: the mean squared gap of group means within a stratum over the pairs of groups there,
    divided by the variance of all scores; the mean over strata by their size. A group takes part in a stratum with two
    rows or more, a stratum with two groups or more. Corrected: less the sampling noise of each gap, as in
    `evenout.core.forms`.

    Parameters
    ----------
    counts : array of shape (b, G, C)
    values : array of shape (C,)
    edges : array of shape (S + 1,)
        Stratum s has the cells ``edges[s]..edges[s + 1] - 1``.
    """
    z, _, _ = _standardised(counts[0].sum(axis=0), values)
    n, sums, squares = (
        np.add.reduceat(counts * z**power, edges[:-1], axis=-1) for power in (0, 1, 2)
    )  # (b, G, S)
    variance = _variance(int(counts[0].sum()), sums, squares)[:, None]
    taking_part = n >= 2
    mean = np.where(taking_part, sums / np.maximum(n, 1), 0.0)
    noise = np.where(taking_part, (squares - n * mean**2) / np.maximum(n * (n - 1), 1), 0.0)
    k = taking_part.sum(axis=1)
    usable = k >= 2
    pairs = np.where(usable, k * (k - 1) / 2, 1.0)
    squared = (k * (mean**2).sum(axis=1) - mean.sum(axis=1) ** 2) / pairs
    weight = np.where(usable, n.sum(axis=1), 0.0)
    weight = _over(weight, weight.sum(axis=1, keepdims=True))
    scale_free = _over(np.where(usable, np.maximum(squared, 0.0), 0.0), variance)
    correction = _over(np.where(usable, (k - 1) * noise.sum(axis=1) / pairs, 0.0), variance)
    parity = (weight * scale_free).sum(axis=1)[:, None]
    return {
        "conditional_parity": parity,
        "conditional_parity_corrected": parity - (weight * correction).sum(axis=1)[:, None],
        "parity_within": np.where(usable, scale_free, np.nan),
    }


@lru_cache(maxsize=8)  # the same for every batch of resamples
def threshold_ranks(n_rows: int, shares: tuple[float, ...]) -> IntArray:
    """Place, from 0 in ascending order, of the row above whose score the highest ``share`` of the rows lie."""
    places = np.arange(n_rows, dtype=float)
    return np.array([int(flag_threshold(places, share)) for share in shares], dtype=np.intp)


def table_moments(counts: IntArray, values: FloatArray) -> GroupMoments:
    """Means and variances of each group's scores in each table."""
    z, centre, unit = _standardised(counts[0].sum(axis=0), values)
    sizes = counts[0].sum(axis=-1).astype(float)
    sums, squares = np.moveaxis(counts.astype(float) @ np.column_stack([z, z**2]), -1, 0)
    mean = sums / sizes
    variance = np.maximum(squares - sizes * mean**2, 0.0) / (sizes - 1)
    total = _variance(int(sizes.sum()), sums, squares)
    return GroupMoments(sizes, centre + unit * mean, unit**2 * variance, unit**2 * total)


def group_quantiles(reached: IntArray, values: FloatArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of each group's scores, interpolated as in numpy, shape (b, G Q)."""
    columns = []
    for group in range(reached.shape[1]):
        place = (reached[0, group, -1] - 1) * np.asarray(quantiles, dtype=float)
        low = np.floor(place).astype(np.intp)
        part = place - low
        lower, upper = (_locate(reached[:, group], at) for at in (low, np.ceil(place).astype(np.intp)))
        columns.append((1 - part) * values[lower] + part * values[upper])
    return np.concatenate(columns, axis=1)


def largest_gap(values: FloatArray) -> FloatArray:
    """Largest less smallest value along the last axis, leaving NaN out; NaN with fewer than two values."""
    known = ~np.isnan(values)
    gap = np.where(known, values, -np.inf).max(axis=-1) - np.where(known, values, np.inf).min(axis=-1)
    return np.where(known.sum(axis=-1) >= 2, gap, np.nan)


def _locate(reached: IntArray, places: IntArray) -> IntArray:
    """The level of the rows at the given places (from 0, ascending) in each table, shape (b, m)."""
    return np.stack([np.searchsorted(row, places, side="right") for row in reached])


def _share_drift(above: IntArray, sizes: IntArray) -> FloatArray:
    top = _over(above, above.sum(axis=1, keepdims=True))
    return rel_entr(top, (sizes / sizes.sum())[:, None]).sum(axis=1)


def _standardised(counts: IntArray, values: FloatArray) -> tuple[FloatArray, float, float]:
    """Values less their mean, divided by their standard deviation (1 if it is 0); then that mean and deviation."""
    shifted = values - values.min()  # exactly 0 for equal scores, so that no rounding looks like a spread
    mean = np.average(shifted, weights=counts)
    unit = float(np.sqrt(np.average((shifted - mean) ** 2, weights=counts))) or 1.0
    return (shifted - mean) / unit, float(mean + values.min()), unit


def _variance(n_rows: int, sums: FloatArray, squares: FloatArray) -> FloatArray:
    """Variance over all rows of each table, from the sums over its parts, shape (b,)."""
    mean, square = (part.reshape(len(part), -1).sum(axis=1) / n_rows for part in (sums, squares))
    return np.maximum(square - mean**2, 0.0)


def _unscaled(moments: GroupMoments) -> GroupMoments:
    return GroupMoments(moments.count, moments.mean, moments.variance, np.ones(len(moments.mean)))


def _over(numerator: FloatArray | IntArray, denominator: FloatArray | IntArray) -> FloatArray:
    """Quotient that is NaN, without a warning, where the denominator is 0."""
    positive = np.asarray(denominator) > 0
    return np.where(positive, numerator, np.nan) / np.where(positive, denominator, 1.0)
