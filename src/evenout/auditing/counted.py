"""All measures, one entry each in `MEANINGS`, and those that are functions of counts, overall and within strata.

``counts`` has shape (b, G, ...): b tables, the rows themselves being a batch of one. Each function answers with arrays
of shape (b, w), a column per group, per share of rows or, for a measure between all groups, one column.

With ``around``, the table that the others were drawn from, there is an entry ``noise of <measure>`` for every gap: what
it would be if the groups differed by no more than the drawn table does from that one. Intervals are made of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import rel_entr

from evenout.core.flags import flag_threshold, rate_ratio
from evenout.core.ruler import GroupMoments, ratio
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
    """Measures of scores and groups alone, from rows of each group (b, G, L) at levels with ``values`` (L,), ascending.

    The highest ``contamination`` of the rows is flagged, ties as in `evenout.core.flags`. The group mix of the highest
    ``shares`` is compared with that of all rows; ``quantiles`` are of each group, group by group in one row. Rows in
    ``background`` (L,) belong to no group that is compared, and count towards thresholds alone. Where flags are
    ``fixed`` in advance, counts have each level twice, shape (b, G, 2 L), those of flagged rows last.

    Notes
    -----
    ``threshold_free_gap``: with each row's score as the threshold in turn, the mean of the largest less the smallest
    share of a group above it. ``top_share_drift``: ``sum_g s_g log(s_g / o_g)`` (KL divergence, in nats) of the
    groups' shares ``s`` among the highest rows from their shares ``o`` among all; NaN if ties leave nobody on top.
    ``flag_rate_test``: Pearson's chi-square of groups and flags. ``mean_score_test``: ``sum_g (m_g - m)^2 n_g / s_g^2``
    with m the mean of the group means by the same weights (Cochran 1937), of which Welch's test is a refinement.
    """
    hits = None
    if fixed:
        apart = counts.reshape(*counts.shape[:2], 2, -1)
        counts, hits, values = apart.sum(axis=2), apart[:, :, 1].sum(axis=-1), values[: apart.shape[-1]]
        around = None if around is None else around.reshape(len(around), 2, -1).sum(axis=1)
    drawn, there = (
        None if table is None else _cut(table, values, (contamination, *shares), background, marked, asked)
        for table, marked, asked in ((counts, hits, quantiles), (None if around is None else around[None], None, ()))
    )
    return evaluate("scores", drawn, there)


def label_measures(
    counts: IntArray, contamination: float, *, background: IntArray | None = None, fixed: bool = False
) -> Values:
    """Measures of how well each group's outliers are found, and the largest difference between groups in each.

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
    n = reached[..., -1].astype(float)
    cut = _cuts(reached.sum(axis=(1, 2)) + (0 if background is None else np.cumsum(background)), (contamination,))
    flagged = n - np.take_along_axis(reached, cut[:, None, None], axis=-1)[..., 0] if by_rule is None else by_rule
    return evaluate("labels", LabelCut(counts, reached, n, flagged))


def evaluate(question: str, drawn: Any, there: Any = None) -> Values:
    """Values (b, w) of all measures of one question; with ``there``, what was drawn from, also the noise of gaps."""
    values: Values = {}
    for name, kind in MEANINGS.items():
        if kind.question == question and kind.of is not None:
            values[name] = kind.of(drawn)
        elif kind.question == question and kind.compares is not None:
            levels = 1 - values[kind.compares] if kind.rest else values[kind.compares]
            values[name] = (rate_ratio(levels.T) if kind.even == 1.0 else largest_gap(levels))[:, None]
        if kind.question == question and kind.noise is not None and there is not None:
            values[f"noise of {name}"] = kind.noise(drawn, there)
    return values


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
    share = hits.sum(axis=-1) / np.maximum(sizes.sum(axis=-1), 1)
    off = (hits - sizes * share[..., None]) ** 2 / np.maximum(sizes, 1)
    return ratio(off.sum(axis=-1), share * (1 - share), 0.0)


@lru_cache(maxsize=8)  # the same for every batch of resamples
def threshold_ranks(n_rows: int, shares: tuple[float, ...]) -> IntArray:
    """Place, from 0 in ascending order, of the row above whose score the highest ``share`` of the rows lie."""
    return np.array([int(flag_threshold(np.arange(n_rows, dtype=float), share)) for share in shares], dtype=np.intp)


class ScoreCut(NamedTuple):
    """Counts of b tables that measures of scores are made of: rows below each level, above each threshold, moments."""

    sizes: IntArray  # (b, G)
    reached: IntArray  # (b, G, L), rows at or below a level
    total: IntArray  # (b, L)
    below: FloatArray  # (b, G, L), as a share of the group
    above: IntArray  # (b, G, m), rows above a threshold
    hits: IntArray  # (b, G), rows that are flagged
    quantiles: FloatArray  # (b, G Q), interpolated as in numpy
    moments: GroupMoments
    shares: FloatArray  # (b, G), of each group among the rows
    mix: FloatArray  # (b, G, m - 1), of each group above each threshold but the first


def _cut(
    counts: IntArray,
    values: FloatArray,
    shares: tuple[float, ...],
    background: IntArray | None,
    hits: IntArray | None,
    quantiles: Sequence[float],
) -> ScoreCut:
    sizes, reached = counts.sum(axis=-1), np.cumsum(counts, axis=-1)
    total = reached.sum(axis=1)
    cuts = _cuts(total if background is None else total + np.cumsum(background), shares)
    above = sizes[..., None] - np.take_along_axis(reached, cuts[:, None], axis=-1)
    by_group = reached.reshape(-1, reached.shape[-1])
    position = (by_group[:, -1:] - 1) * np.asarray(quantiles, dtype=float)
    low, high = (values[_locate(by_group, end(position).astype(np.intp))] for end in (np.floor, np.ceil))
    part = position - np.floor(position)
    return ScoreCut(
        sizes, reached, total, reached / sizes[..., None], above, above[..., 0] if hits is None else hits,
        quantiles=((1 - part) * low + part * high).reshape(len(counts), -1),
        moments=_moments(counts, values),
        shares=sizes / sizes.sum(axis=1, keepdims=True),
        mix=ratio(above[..., 1:], above[..., 1:].sum(axis=1, keepdims=True)),
    )  # fmt: skip


class LabelCut(NamedTuple):
    """Counts of b tables by label: inliers, then outliers."""

    counts: IntArray  # (b, G, 2, L)
    reached: IntArray  # (b, G, 2, L), rows at or below a level
    n: FloatArray  # (b, G, 2)
    flagged: FloatArray  # (b, G, 2)

    def auc(self) -> FloatArray:
        """Share of pairs in order, ties half, shape (b, G)."""
        below = self.reached[:, :, 0] - 0.5 * self.counts[:, :, 0]
        return ratio(np.einsum("bgl,bgl->bg", self.counts[:, :, 1], below), self.n[..., 0] * self.n[..., 1])

    def average_precision(self) -> FloatArray:
        """Precision at each outlier, averaged, shape (b, G)."""
        at_or_above = self.n[..., None] - self.reached + self.counts
        precision_at = at_or_above[:, :, 1] / np.maximum(at_or_above.sum(axis=2), 1.0)
        return ratio(np.einsum("bgl,bgl->bg", self.counts[:, :, 1], precision_at), self.n[..., 1])

    def rate(self, label: int) -> FloatArray:
        """Share that is flagged of the rows with this label, shape (b, G)."""
        return ratio(self.flagged[..., label], self.n[..., label])

    def test(self, label: int) -> FloatArray:
        """Chi-square of groups and flags among these rows, shape (b, 1); NaN with fewer than two groups."""
        known = ~np.isnan(largest_gap(self.rate(label)))
        return np.where(known, chi_square(self.flagged[..., label], self.n[..., label]), np.nan)[:, None]


def _moments(counts: IntArray, values: FloatArray) -> GroupMoments:
    """Moments of the scores of each group, shape (b, G), from standardised scores."""
    z, centre, unit = standardised(counts[0].sum(axis=0), values)
    sizes = counts.sum(axis=-1).astype(float)
    sums, squares = np.moveaxis(counts.astype(float) @ np.column_stack([z, z**2]), -1, 0)
    mean, total = sums / sizes, variance_of_all(sizes.sum(axis=1), sums, squares)
    variance = np.maximum(squares - sizes * mean**2, 0.0) / np.maximum(sizes - 1, 1)
    return GroupMoments(sizes[0], centre + unit * mean, unit**2 * variance, unit**2 * total)


def _mean_test(drawn: ScoreCut) -> FloatArray:
    half = np.frexp(drawn.moments.total_variance[:, None])[1] // 2  # powers of two: exact, and no weight overflows
    variance = np.ldexp(drawn.moments.total_variance[:, None], -2 * half)
    least = _LEAST_SPREAD * variance / drawn.sizes.sum(axis=1, keepdims=True)
    noise = np.maximum(np.ldexp(drawn.moments.variance / drawn.sizes, -2 * half), least)
    weight = ratio(np.ones_like(noise), noise)
    mean = np.ldexp(drawn.moments.mean - drawn.moments.mean.mean(axis=1, keepdims=True), -half)
    mean = mean - (weight * mean).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    return np.where(variance > 0, (weight * mean**2).sum(axis=1, keepdims=True), np.nan)


def _over_thresholds(drawn: ScoreCut, there: ScoreCut | None = None) -> FloatArray:
    """Largest less smallest share below each level, or of how far it is from ``there``, averaged over the rows."""
    below = drawn.below if there is None else drawn.below - there.below
    per_level = np.diff(drawn.total, axis=-1, prepend=0) / drawn.total[:, -1:]
    return np.einsum("bl,bl->b", np.ptp(below, axis=1), per_level)[:, None]


def _cuts(reached: IntArray, shares: tuple[float, ...]) -> IntArray:
    """The level above which rows are flagged in each table, shape (b, m): of those that tie, all or none, by what is
    nearer to the share; all rather than that nobody is flagged.
    """  # noqa: D205
    n = reached[:, -1:]
    sizes, of_size = np.unique(n[:, 0], return_inverse=True)
    if len(sizes) > 4:  # clusters of unequal size: rounding in the last place does not matter there
        positions = np.floor((n - 1) * (1.0 - np.array(shares)) + 1e-9).astype(np.intp)
    else:
        positions = np.stack([threshold_ranks(int(size), shares) for size in sizes])[of_size]
    cuts = _locate(reached, positions)
    asked, above = n - 1 - positions, n - np.take_along_axis(reached, cuts, axis=1)
    tied = n - np.take_along_axis(reached, np.maximum(cuts - 1, 0), axis=1)
    return cuts - ((cuts > 0) & ((tied - asked < asked - above) | (above == 0)) & (tied < n))


def _locate(reached: IntArray, positions: IntArray) -> IntArray:
    """The level of the rows at the given places (from 0, ascending) in each table, shape (b, m)."""
    return np.stack([np.searchsorted(row, at, side="right") for row, at in zip(reached, positions, strict=True)])


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


def strata_measures(counts: IntArray, values: FloatArray, edges: IntArray, *, around: IntArray | None = None) -> Values:
    """Group gaps among rows of the same stratum; stratum s has the cells ``edges[s]..edges[s + 1] - 1``.

    ``conditional_parity``: the mean squared gap of group means within a stratum over the pairs of groups there,
    divided by the variance of all scores; the mean over strata by their size. A group takes part in a stratum with two
    rows or more, a stratum with two groups or more. Corrected: less the sampling noise of each gap, as in
    `evenout.core.ruler`. ``strata_test``: the sum over these strata of the rows' squares between groups over the
    variance within the stratum, all groups there counted by their rows. ``mean_apart``: a group's mean less that of all
    rows, in standard deviations, and ``apart_by_strata`` the part of it that goes with the strata that the group's rows
    are in, ``sum_s (p_gs - p_s) m_s``; the rest is what differs within strata (Kitagawa 1955).
    """
    z = standardised((counts[0] if around is None else around).sum(axis=0), values)[0]
    there = None if around is None else _within(around[None], z, edges)
    return evaluate("strata", _within(counts, z, edges), there)


class StrataCut(NamedTuple):
    """Rows, standardised sums, means and noise of each group in each stratum, shape (b, G, S)."""

    n: FloatArray
    sums: FloatArray
    mean: FloatArray  # 0 for groups that take no part
    noise: FloatArray
    k: IntArray  # (b, S), groups that take part
    pairs: FloatArray  # (b, S)
    usable: BoolArray  # (b, S)
    spread: FloatArray  # (b, S), variance of all rows of the stratum
    variance: FloatArray  # (b, 1), of all rows
    weight: FloatArray  # (b, S), share of the rows of usable strata

    def squared_gap(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Of means (b, G, S), over the pairs of groups in a stratum, shape (b, S); 0 where there are none."""
        squared = (self.k * (mean**2).sum(axis=1) - mean.sum(axis=1) ** 2) / self.pairs
        return ratio(np.where(self.usable, np.maximum(squared, 0.0), 0.0), variance)

    def parity(self, *, corrected: bool = False) -> FloatArray:
        """Squared gap within strata, averaged over them by their size, shape (b, 1)."""
        parity = (self.weight * self.squared_gap(self.mean, self.variance)).sum(axis=1)[:, None]
        if not corrected:
            return parity
        noise = np.where(self.usable, (self.k - 1) * self.noise.sum(axis=1) / self.pairs, 0.0)
        return parity - (self.weight * ratio(noise, self.variance)).sum(axis=1)[:, None]

    def noise_around(self, there: "StrataCut") -> FloatArray:
        """The squared gap in each stratum if groups were off by no more than these rows are, shape (b, S)."""
        # drawn from n rows of a cell, a mean varies by (n - 1) / n of what it does drawn from the population
        small = np.sqrt(there.n / np.maximum(there.n - 1, 1))
        mean = self.sums / np.maximum(self.n, 1)
        off = np.where((there.n >= 2) & (self.n > 0), small * (mean - there.mean), 0.0)
        return there.squared_gap(off, self.variance)

    def test(self) -> FloatArray:
        """Squares between groups over the variance, summed over the usable strata, shape (b, 1)."""
        squares = (self.sums**2 / np.maximum(self.n, 1)).sum(axis=1)
        squares -= self.sums.sum(axis=1) ** 2 / np.maximum(self.n.sum(axis=1), 1)
        chi = ratio(squares, np.where(self.usable, self.spread, 0.0), 0.0).sum(axis=1)[:, None]
        return np.where(np.isnan(self.parity()), np.nan, chi)

    def apart(self) -> FloatArray:
        """Distance of each group's mean from that of all rows, shape (b, G)."""
        everyone = self.sums.sum(axis=(1, 2))[:, None] / self.n.sum(axis=(1, 2))[:, None]
        return ratio(ratio(self.sums.sum(axis=2), self.n.sum(axis=2)) - everyone, np.sqrt(self.variance))

    def apart_by_strata(self) -> FloatArray:
        """The part of `apart` that goes with the strata, shape (b, G)."""
        rows, total = self.n.sum(axis=1), self.n.sum(axis=(1, 2))[:, None]
        stratum_mean = self.sums.sum(axis=1) / np.maximum(rows, 1)
        share = ratio(self.n, self.n.sum(axis=2, keepdims=True)) - (rows / total)[:, None]
        return ratio((share * stratum_mean[:, None]).sum(axis=2), np.sqrt(self.variance))


def _within(counts: IntArray, z: FloatArray, edges: IntArray) -> StrataCut:
    n, sums, squares = (np.add.reduceat(counts * z**power, edges[:-1], axis=-1) for power in (0, 1, 2))
    part = n >= 2
    mean = np.where(part, sums / np.maximum(n, 1), 0.0)
    noise = np.where(part, (squares - n * mean**2) / np.maximum(n * (n - 1), 1), 0.0)
    k = part.sum(axis=1)
    rows, all_sums, all_squares = (x.sum(axis=1) for x in (n, sums, squares))
    spread = np.maximum(all_squares - all_sums**2 / np.maximum(rows, 1), 0.0) / np.maximum(rows - 1, 1)
    weight = np.where(k >= 2, rows, 0.0)
    return StrataCut(
        n, sums, mean, noise, k,
        pairs=np.where(k >= 2, k * (k - 1) / 2, 1.0),
        usable=k >= 2,
        spread=np.where(spread > 1e-12, spread, 0.0),
        variance=variance_of_all(n.sum(axis=(1, 2)), sums, squares)[:, None],
        weight=ratio(weight, weight.sum(axis=1, keepdims=True)),
    )  # fmt: skip


def strata_precision(counts: IntArray, values: FloatArray, edges: IntArray) -> tuple[FloatArray, int]:
    """Noncentrality of `strata_test` for a gap, and its degrees of freedom, in a table of shape (G, C).

    Returns
    -------
    precision : array of shape (G, G)
        If groups p and q alone differ, by d everywhere, the test has the noncentrality ``d^2 precision[p, q]``.
    freedom : int
    """
    z, _, unit = standardised(counts.sum(axis=0), values)
    within = _within(counts[None], z, edges)
    spread = unit**2 * within.spread[0]
    rows = np.where(within.usable[0] & (spread > 0), within.n[0], 0.0)
    n = rows[:, None] * rows / np.maximum(rows[:, None] + rows, 1.0)  # (G, G, S)
    return ratio(n, spread, 0.0).sum(axis=-1), int(np.maximum((rows > 0).sum(axis=0) - 1, 0).sum())


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


_SQUARED: dict[str, Any] = {"even": 0.0, "worse": "high", "shape": "squared"}
_EXTREMES: dict[str, Any] = {"shape": "extremes", "largest": 1.0, "headline": True}
_GAP: dict[str, Any] = _EXTREMES | {"even": 0.0, "worse": "high", "question": "labels"}
_LABELLED: dict[str, Any] = {"per": "groups", "question": "labels"}
_STRATUM: dict[str, Any] = {"per": "groups", "question": "strata"}
_ABOUT_ROWS: dict[str, Any] = {"shape": "none", "about_rows": True}
_TEST: dict[str, Any] = _ABOUT_ROWS | {"worse": "high"}
_FLAGS: dict[str, Any] = _EXTREMES | {
    "even": 1.0, "worse": "low", "compares": "flag_rate", "tested_as": "flag_rate_test",
}  # fmt: skip
_RATES = "also reflects unequal shares of outliers"
_NOISE = "  the same less sampling noise"

# A measure is one entry: its words, test, interval and function. It is measured and listed in this order.
MEANINGS: dict[str, Meaning] = {
    "group_share": Meaning("share of the rows"),
    "left_out_rows": Meaning("rows of a group left out", **_ABOUT_ROWS),
    "left_out_flagged": Meaning("of these flagged", **_ABOUT_ROWS),
    "mean_score": Meaning("mean score", per="groups", of=lambda c: c.moments.mean),
    "score_quantile": Meaning(
        "quantile of the scores", of=lambda c: c.quantiles, per="quantiles"
    ),
    "flag_rate": Meaning("flag rate", per="groups", of=lambda c: c.hits / c.sizes, shape="rate"),
    "flag_rate_ratio": Meaning("lowest / highest flag rate (1 is even)", **_FLAGS),
    "unflagged_rate_ratio": Meaning("lowest / highest rate of not being flagged", **_FLAGS, rest=True),
    "flag_rate_test": Meaning(
        "chi-square of groups and flags", **_TEST, of=lambda c: chi_square(c.hits, c.sizes)[:, None]
    ),
    "demographic_parity_raw": Meaning(
        "squared gap of mean scores", **_SQUARED, tested_as="mean_score_test",
        of=lambda c: mean_squared_gap(c.moments.mean)[:, None],
        noise=lambda c, there: mean_squared_gap(c.moments.mean - there.moments.mean)[:, None],
    ),
    "demographic_parity": Meaning(
        "squared gap of mean scores / variance", **_SQUARED, tested_as="mean_score_test", headline=True,
        of=lambda c: ratio(mean_squared_gap(c.moments.mean), c.moments.total_variance)[:, None],
        noise=lambda c, there: ratio(
            mean_squared_gap(c.moments.mean - there.moments.mean), c.moments.total_variance
        )[:, None],
    ),
    "demographic_parity_corrected": Meaning(
        _NOISE, **_SQUARED, tested_as="mean_score_test", twin="demographic_parity", headline=True,
        # in the mean over pairs every group's noise counts 2 / G times
        of=lambda c: ratio(
            mean_squared_gap(c.moments.mean) - 2.0 * (c.moments.variance / c.sizes).mean(axis=1),
            c.moments.total_variance,
        )[:, None],
    ),
    "mean_score_test": Meaning("chi-square of mean scores, each by its precision", **_TEST, of=_mean_test),
    "mean_score_detectable": Meaning("gap of mean scores seen with 80% power", **_ABOUT_ROWS),
    "flag_rate_detectable": Meaning("difference of flag rates seen with 80% power", **_ABOUT_ROWS),
    "welch_test": Meaning("p-value of equal mean scores (Welch)", **_ABOUT_ROWS),
    "threshold_free_gap": Meaning(
        "flag-rate gap, mean over all thresholds", 0.0, "high", "gap", 1.0, headline=True,
        of=_over_thresholds, noise=_over_thresholds,
    ),
    "top_share_drift": Meaning(
        "drift of the group mix on top (KL)", **_SQUARED, per="tops",
        of=lambda c: rel_entr(c.mix, c.shares[..., None]).sum(axis=1),
        noise=lambda c, there: ((c.mix - there.mix) ** 2 / there.shares[..., None]).sum(axis=1) / 2,
    ),
    "individual_unfairness_raw": Meaning("squared gap of similar rows", question="individuals"),
    "individual_unfairness": Meaning("squared gap of similar rows / variance", question="individuals", headline=True),
    "individual_unfairness_shuffled": Meaning(
        "  the same with shuffled groups", shape="none", question="individuals", headline=True
    ),
    "effective_pairs": Meaning(
        "pairs of similar rows it rests on", **_ABOUT_ROWS, question="individuals", headline=True
    ),
    "outlier_rate": Meaning(
        "share of known outliers", **_LABELLED, of=lambda c: c.n[..., 1] / c.n.sum(axis=-1), shape="rate"
    ),
    "auc": Meaning("AUC", **_LABELLED, of=LabelCut.auc),
    "average_precision": Meaning(
        "average precision", **_LABELLED, of=LabelCut.average_precision, among="outliers"
    ),
    "true_positive_rate": Meaning(
        "outliers flagged", **_LABELLED, of=lambda c: c.rate(1), shape="rate", among="outliers"
    ),
    "false_positive_rate": Meaning(
        "inliers flagged", **_LABELLED, of=lambda c: c.rate(0), shape="rate", among="inliers"
    ),
    "precision": Meaning(
        "flagged that are outliers", **_LABELLED, of=lambda c: ratio(c.flagged[..., 1], c.flagged.sum(axis=-1)),
        shape="rate", among="flagged",
    ),
    "auc_gap": Meaning("gap in AUC", **_GAP, compares="auc", by_interval=True),
    "average_precision_gap": Meaning(
        "gap in average precision", **_GAP, compares="average_precision", note=_RATES, by_interval=True,
        among="outliers",
    ),
    "true_positive_rate_gap": Meaning(
        "gap in outliers flagged", **_GAP, compares="true_positive_rate", tested_as="true_positive_rate_test",
        among="outliers",
    ),
    "true_positive_rate_test": Meaning(
        "chi-square of groups and flagged outliers", **_TEST, of=lambda c: c.test(1), question="labels",
        among="outliers",
    ),
    "false_positive_rate_gap": Meaning(
        "gap in inliers flagged", **_GAP, compares="false_positive_rate", tested_as="false_positive_rate_test",
        among="inliers",
    ),
    "false_positive_rate_test": Meaning(
        "chi-square of groups and flagged inliers", **_TEST, of=lambda c: c.test(0), question="labels", among="inliers"
    ),
    "precision_gap": Meaning(
        "gap in flagged that are outliers", **_GAP, compares="precision", note=_RATES, by_interval=True, among="flagged"
    ),
    "true_positive_rate_detectable": Meaning("difference of outliers flagged seen with 80% power", **_ABOUT_ROWS),
    "conditional_detectable": Meaning("gap within strata seen with 80% power", **_ABOUT_ROWS),
    "conditional_parity": Meaning(
        "squared gap within strata / variance", **_SQUARED, tested_as="strata_test", question="strata", headline=True,
        of=StrataCut.parity,
        noise=lambda c, there: (there.weight * c.noise_around(there)).sum(axis=1)[:, None],
    ),
    "conditional_parity_corrected": Meaning(
        _NOISE, **_SQUARED, tested_as="strata_test", twin="conditional_parity", question="strata", headline=True,
        of=lambda c: c.parity(corrected=True),
    ),
    "strata_test": Meaning("chi-square of mean scores within strata", **_TEST, of=StrataCut.test, question="strata"),
    "parity_within": Meaning(
        "squared gap in one stratum / variance", **_SQUARED, question="strata", per="strata",
        of=lambda c: np.where(c.usable, c.squared_gap(c.mean, c.variance), np.nan),
        noise=lambda c, there: np.where(there.usable, c.noise_around(there), np.nan),
    ),
    "mean_apart": Meaning("mean score less that of all rows, in deviations", **_STRATUM, of=StrataCut.apart),
    "apart_by_strata": Meaning("part of that which goes with the strata", **_STRATUM, of=StrataCut.apart_by_strata),
    "gap_explained": Meaning("part of the gap that goes with a feature", question="features"),
}  # fmt: skip
