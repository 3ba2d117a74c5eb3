"""Measures of hard groups by counts: families of them, with intervals, permutation tests and power.

The tests are chi-squares under shuffled groups. For their power, two of G groups differ, and the others lie between
them where they add nothing to the chi-square. Then it is ``(d / error + sqrt(r) z)^2`` plus a central chi-square with
one degree less, z being normal and r the noise of the difference over that without any difference. All of it is in
units of the mean of the shuffled chi-squares per degree of freedom: clusters make that larger than 1, and differences
harder to detect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import bisect, brentq
from scipy.special import chdtrc, ndtr, ndtri

from evenout.auditing.counted import (
    MEANINGS,
    Meaning,
    Values,
    label_measures,
    score_measures,
    strata_measures,
    strata_precision,
)
from evenout.auditing.result import Measure
from evenout.auditing.sample import AuditInputs, Strata, who_is_flagged
from evenout.auditing.text import shown
from evenout.core.individual import LengthScale
from evenout.core.intervals import (
    correlations,
    difference_ends,
    extreme_ends,
    normal_value,
    tukey_p_value,
    wilson_interval,
)
from evenout.core.resampling import MAX_LEVELS, Table, class_table, joined_clusters, level_table
from evenout.core.ruler import GroupMoments, no_gap_p_value
from evenout.core.types import BoolArray, FloatArray, IntArray

NAN = float("nan")
POWER = 0.8
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
TOP_SHARES = (0.05, 0.1, 0.15, 0.2)
_GRID = ndtri((np.arange(2000) + 0.5) / 2000)  # a normal distribution, in equal parts
_NAME = 40  # characters of a group's name


@dataclass(frozen=True)
class AuditSettings:
    """How to audit: see `evenout.audit`. ``share`` is the share of all rows that is flagged."""

    share: float
    resamples: int
    confidence: float
    length_scale: LengthScale


class MeasureColumn(NamedTuple):
    """Group and detail of one column of a measure's values, and the rows and independent units that it rests on."""

    group: str | None
    detail: str | None
    n: int
    units: int


class Resamples(NamedTuple):
    """Values (1, w), their bootstrap resamples (B, w) and their permutations (P, w), by measure."""

    value: Values
    drawn: Values
    permuted: Values


def p_value(kind: Meaning, value: FloatArray, permuted: FloatArray) -> FloatArray:
    """Share of permutations that are more unfair than the value, which counts as one of them, and half of the ties.

    Returns
    -------
    array of shape (w,)
        ``(1 + number more unfair + half of those equal) / (1 + P)``, the mid-p value (Lancaster 1961), by which tests
        of small counts reject about as often as they may; 1 where all permutations are equal, so that nothing could
        have been found; NaN for a level, without permutations, or where value is NaN.

    >>> p_value(Meaning("a gap", 0.0, "high"), np.array([0.3]), np.array([[0.1], [0.3], [0.2]])).tolist()
    [0.375]
    """
    if kind.worse is None or len(permuted) == 0:
        return np.full(len(value), np.nan)
    sign = 1.0 if kind.worse == "high" else -1.0
    slack = 1e-10 * np.abs(value)  # equal but for rounding is equal
    equal = np.abs(permuted - value) <= slack
    more = ~(sign * permuted < sign * value - slack) & ~equal  # an undefined one counts against us
    share = (1 + more.sum(axis=0) + 0.5 * equal.sum(axis=0)) / (1 + len(permuted))
    return np.where(np.isnan(value), np.nan, np.where(equal.all(axis=0), 1.0, share))


def percentiles(drawn: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Percentile interval of each column of the resamples, shape (B, w), leaving NaN out; NaN if nothing is left.

    The k-th of B ordered resamples stands for the share ``k / (B + 1)``: few of them do not make it shorter.
    """
    tails = ((1 - confidence) / 2, (1 + confidence) / 2)
    columns = [column[~np.isnan(column)] for column in drawn.T]
    ends = [np.quantile(column, tails, method="weibull") if len(column) else (np.nan, np.nan) for column in columns]
    low, high = np.array(ends, dtype=float).T
    return low, high


def level_interval(
    kind: Meaning, value: FloatArray, drawn: FloatArray, units: FloatArray, z: float
) -> tuple[FloatArray, FloatArray]:
    """Interval of each level, with ``z`` standard deviations to each side of a normal one.

    A rate has Wilson's interval, with as many rows as the bootstrap's spread stands for: what the common threshold or
    clusters do to it is in there. Where nobody or everybody is counted the bootstrap knows no spread, and ``units``
    decide. Other levels have the percentiles of the resamples.
    """
    low, high = percentiles(drawn, float(2 * ndtr(z) - 1))
    if kind.shape != "rate":
        return low, high
    known = ~np.isnan(drawn).all(axis=0) & ~np.isnan(value)
    variance = np.zeros(len(value))
    variance[known] = np.nanvar(drawn[:, known], axis=0)
    spread = np.where(known, value * (1 - value), 0.0)
    rows = np.where((variance > 0) & (spread > 0), spread / np.where(variance > 0, variance, 1.0), units)
    low, high = wilson_interval(np.where(known, value, 0.0), np.maximum(rows, 1.0), z)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def gap_interval(
    kind: Meaning, value: FloatArray, drawn: FloatArray, noise: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Interval of each gap, a quantity that is never below 0 and that noise pushes up.

    A gap is a norm of the differences between groups. By the triangle inequality, noise adds no more to it than
    the norm of the noise itself: the low end is the value less what that norm stays below with the confidence asked
    for. The high end is the upper percentile of the resamples, which noise has pushed up twice. ``"squared"`` gaps are
    taken by their roots. No test has a say in it.
    """
    _, high = percentiles(drawn, confidence)
    # One-sided: where the gap is 0, the high end cannot miss it.
    _, push = percentiles(noise, 2 * confidence - 1)
    if kind.shape == "gap":
        return np.maximum(value - push, 0.0), high
    root, push = np.sqrt(np.maximum(value, 0.0)), np.sqrt(push)
    return np.maximum(root - push, 0.0) ** 2, high


def extremes_interval(
    kind: Meaning,
    value: FloatArray,
    ends: Callable[[float], tuple[FloatArray, FloatArray]],
    drawn: FloatArray,
    confidence: float,
) -> tuple[float, float, float]:
    """Interval of the largest difference, or of the smallest ratio, between values of G groups (`extreme_ends`).

    ``ends`` gives those of each value, for a critical value z. For a measure tested by its interval, the third number
    is the p-value at which the interval just holds 0, no smaller than one of the resamples.
    """
    known = np.flatnonzero(~np.isnan(value))
    if len(known) < 2:
        return NAN, NAN, NAN

    def of_known(z: float) -> tuple[FloatArray, FloatArray]:
        low, high = ends(z)
        return low[known], high[known]

    value, correlation, p = value[known], correlations(drawn[:, known]), NAN
    low, high = extreme_ends(value, of_known, correlation, confidence, of_ratio=kind.even == 1.0)
    if kind.by_interval:
        apart, most = ~np.eye(len(known), dtype=bool), 6.0

        def lowest(z: float) -> float:
            return float(difference_ends(value, *of_known(z), correlation)[0][apart].max())

        if not lowest(1e-6) > 0:
            return low, high, 1.0
        z = most if lowest(most) > 0 else float(bisect(lowest, 1e-6, most, xtol=1e-4))
        p = max(tukey_p_value(z, len(known)), 1.0 / (1 + len(drawn)))
    return low, high, p


def within_range(kind: Meaning, value: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Keep an interval in the measure's range, and its value in the interval."""
    if kind.even is not None:
        low, high = np.clip(low, 0.0, kind.largest), np.clip(high, 0.0, kind.largest)
    known = ~(np.isnan(value) | np.isnan(low))
    return np.where(known, np.fmin(low, value), np.nan), np.where(known, np.fmax(high, value), np.nan)


def summarise(
    sampled: Resamples, columns: Mapping[tuple[str, str], Sequence[MeasureColumn]], settings: AuditSettings
) -> list[Measure]:
    """Turn values and resamples into measures; columns go by `Meaning.per` and `Meaning.among`."""
    measures, z = [], normal_value(settings.confidence)

    def level_ends(name: str, z: float, *, rest: bool = False) -> tuple[FloatArray, FloatArray]:
        kind = MEANINGS[name]
        units = np.array([at.units for at in columns[kind.per, kind.among]], dtype=float)
        low, high = level_interval(kind, sampled.value[name][0], sampled.drawn[name], units, z)
        return (1 - high, 1 - low) if rest else (low, high)

    for name, (value, *_) in sampled.value.items():
        kind, drawn, tested = MEANINGS[name], sampled.drawn[name], MEANINGS[name].tested_as or name
        p = low = high = np.full(len(value), np.nan)
        if tested in sampled.permuted and not kind.by_interval:
            p = p_value(MEANINGS[tested], sampled.value[tested][0], sampled.permuted[tested])
        if kind.compares is not None and len(drawn):
            levels, ends = sampled.value[kind.compares][0], partial(level_ends, kind.compares, rest=kind.rest)
            levels, resampled = 1 - levels if kind.rest else levels, sampled.drawn[kind.compares]
            low, high, by_interval = np.array(extremes_interval(kind, levels, ends, resampled, settings.confidence))
            p = by_interval if kind.by_interval else p
        elif kind.shape in ("squared", "gap") and len(drawn):
            source = kind.twin or name
            noise, gap = sampled.drawn[f"noise of {source}"], sampled.value[source][0]
            low, high = gap_interval(kind, gap, sampled.drawn[source], noise, settings.confidence)
        elif kind.shape != "none" and len(drawn):
            low, high = level_ends(name, z)
        low, high = within_range(kind, value, low, high)
        if kind.even is not None:  # the rare interval that leaves evenness out while the test does not
            not_rejected = p > 1 - settings.confidence
            low, high = (np.where(not_rejected, end(x, kind.even), x) for end, x in ((np.fmin, low), (np.fmax, high)))
        undefined = np.isnan(drawn).mean(axis=0) if len(drawn) else np.zeros(len(value))
        figures = np.stack(np.broadcast_arrays(value, low, high, p, undefined), axis=1).tolist()
        for at, (v, lo, hi, pv, share) in zip(columns[kind.per, kind.among], figures, strict=True):
            note = f"undefined in {share:.0%} of the resamples" if share > 0.05 else ""
            measures.append(Measure(name, at.group, at.detail, v, lo, hi, pv, n=at.n, note=note))
    return measures


def mean_gap(error: float, permuted: FloatArray, freedom: int, confidence: float) -> float:
    """The smallest gap of two means that is found with 80 % power, in the unit of ``error``; NaN if none ever is."""
    critical, _ = _critical(permuted, freedom, confidence)
    if not np.isfinite(critical) or not error > 0:
        return NAN
    if _power(0.0, 1.0, critical, freedom) >= POWER:  # a few permutations that happen to be small
        return 0.0
    gap = brentq(lambda d: _power(d, 1.0, critical, freedom) - POWER, 0.0, 4.0 + 2.0 * np.sqrt(critical))
    return float(gap) * error


def rate_gap(
    n_low: float, n_high: float, share: float, permuted: FloatArray, freedom: int, confidence: float
) -> tuple[float, float]:
    """The smallest difference of two rates that is found with 80 % power, at the same rate of both together.

    If there is none, NaN; the second number is the power at it, or then at the largest possible difference.

    The group with the lower rate has ``share - d n_high / (n_low + n_high)``, the other ``share + d n_low / (n_low +
    n_high)``: sizes and the overall share stay as they are.
    """
    critical, unit = _critical(permuted, freedom, confidence)
    null = share * (1 - share) * (1 / n_low + 1 / n_high)
    if not np.isfinite(critical) or not null > 0:
        return NAN, NAN
    n = n_low + n_high

    def power(d: float) -> float:
        low, high = share - d * n_high / n, share + d * n_low / n
        noise = low * (1 - low) / n_low + high * (1 - high) / n_high
        return _power(d / np.sqrt(null * unit), max(noise / null, 1e-9), critical, freedom)

    most = min(share * n / n_high, (1 - share) * n / n_low)
    if power(most) < POWER:
        return NAN, power(most)
    steps = np.linspace(0.0, most, 65)
    first = int(np.argmax([power(d) >= POWER for d in steps]))
    found = brentq(lambda d: power(d) - POWER, steps[first - 1], steps[first]) if first else 0.0
    return float(found), POWER


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


def _detectable(
    measure: str, value: float, n: int, names: tuple[str, ...], pair: tuple[int, int], words: tuple[str, str, str]
) -> Measure:
    """The smallest difference that a test finds, with a note.

    ``words`` say how the two groups of the pair are compared, what is held fixed, and where other groups are.
    """
    quoted, (compared, held, others) = [f"'{shown(names[g], _NAME)}'" for g in pair], words
    note = f"{compared.format(*quoted)}; {held}{f', other groups {others}' if len(names) > 2 else ''}"
    return Measure(f"{measure}_detectable", None, None, value, n=n, note=note)


def detectable_mean_gap(
    means: FloatArray,
    noise: FloatArray,
    variance: float,
    permuted: FloatArray,
    names: tuple[str, ...],
    confidence: float,
    n: int,
) -> Measure:
    """Between the groups with the lowest and the highest mean, in standard deviations of all n scores."""
    pair, gap = (int(np.nanargmin(means)), int(np.nanargmax(means))), NAN
    if np.sqrt(variance) > 0:
        error = float(np.sqrt(noise[pair[0]] + noise[pair[1]]))
        gap = mean_gap(error, permuted, len(names) - 1, confidence) / float(np.sqrt(variance))
    words = "between {} and {}", "sizes and spreads of the groups as they are", "in between"
    return _detectable("mean_score", gap, n, names, pair, words)


def detectable_rate_gap(
    measure: str, rates: FloatArray, sizes: FloatArray, permuted: FloatArray, names: tuple[str, ...], confidence: float
) -> Measure:
    """Between the groups with the lowest and the highest of the ``rates`` of groups with ``sizes`` rows."""
    known, n = np.flatnonzero(~np.isnan(rates)), int(sizes.sum())
    if len(known) < 2:
        return Measure(f"{measure}_detectable", None, None, NAN, n=n)
    low, high = int(np.nanargmin(rates)), int(np.nanargmax(rates))
    if low == high:  # all the same
        low, high = known[:2].tolist()
    share = float((rates[known] * sizes[known]).sum() / sizes[known].sum())
    asked = share, permuted, len(known) - 1, confidence
    found, power = rate_gap(float(sizes[low]), float(sizes[high]), *asked)
    held = "sizes of the groups and rate of all rows as they are"
    if np.isnan(found) and not np.isnan(power):
        none = f"even none in '{shown(names[low], _NAME)}' is seen only {power:.0%} of the time"
        low, high, held = high, low, f"the other way round {none}; {held}"
        found, _ = rate_gap(float(sizes[low]), float(sizes[high]), *asked)
    return _detectable(measure, found, n, names, (low, high), ("{1} above {0}", held, "at that rate"))


def score_family(inputs: AuditInputs, settings: AuditSettings, rng: np.random.Generator) -> list[Measure]:
    """Measures of scores and groups alone; groups are shuffled among all rows."""
    n, names, clusters, confidence = len(inputs.scores), inputs.names, inputs.sample.clusters, settings.confidence
    groups, every = group_columns(inputs), np.concatenate([inputs.scores, inputs.background])
    on_top = [int(who_is_flagged(every, None, share).flagged[:n].sum()) for share in TOP_SHARES]
    columns = {
        "all": [MeasureColumn(None, None, n, inputs.units())],
        "groups": groups,
        "quantiles": [at._replace(detail=f"{q:g}") for at in groups for q in QUANTILES],
        "tops": [MeasureColumn(None, f"top {share:.0%}", k, k) for share, k in zip(TOP_SHARES, on_top, strict=True)],
    }
    _, sampled = _resample(
        inputs,
        partial(
            level_table, background=inputs.background, flagged=inputs.flags.flagged if inputs.flags.fixed else None
        ),
        lambda counts, table, noise: score_measures(
            counts,
            table.values,
            settings.share,
            TOP_SHARES,
            QUANTILES,
            background=table.background,
            around=table.counts if noise else None,
            fixed=inputs.flags.fixed,
        ),
        settings,
        rng,
        MAX_LEVELS,
    )
    measures = summarise(sampled, {(per, "everyone"): own for per, own in columns.items()}, settings)
    centre, variance = inputs.scores.mean(), inputs.scores.var()
    means = inputs.sample.measure(inputs.scores - centre)
    spread = np.diag(means.cov) * means.size
    moments = GroupMoments(means.size, (centre + means.mean)[None], spread[None], np.array([variance]))
    measures.append(Measure("welch_test", None, None, float(no_gap_p_value(moments)[0]), n=n))
    sizes = inputs.counts.astype(float)
    if settings.resamples:
        by_mean, by_flag = (sampled.permuted[f"{name}_test"][:, 0] for name in ("mean_score", "flag_rate"))
        mean, rate = sampled.value["mean_score"][0], sampled.value["flag_rate"][0]
        measures += [
            detectable_mean_gap(mean, spread / means.size, variance, by_mean, names, confidence, n),
            detectable_rate_gap("flag_rate", rate, sizes, by_flag, names, confidence),
        ]
    # clusters of rows count as n^2 / sum of their squared sizes rows
    rows = float(n) if clusters is None else float(n) ** 2 / float((np.bincount(clusters) ** 2).sum())
    low, high = wilson_interval(sizes * (rows / n) / rows, np.asarray(rows), normal_value(confidence))
    ends = zip(groups, low.tolist(), high.tolist(), strict=True)
    return [*(Measure("group_share", at.group, None, at.n / n, lo, hi, n=at.n) for at, lo, hi in ends), *measures]


def label_family(
    inputs: AuditInputs, labels: IntArray, settings: AuditSettings, rng: np.random.Generator
) -> list[Measure]:
    """Measures against known outliers; groups are shuffled among rows of the same label."""
    flagged, fixed, columns = inputs.flags.flagged, inputs.flags.fixed, {}
    rows = {"outliers": labels == 1, "inliers": labels == 0, "flagged": flagged, "everyone": labels >= 0}
    for among, used in rows.items():
        columns["groups", among] = group_columns(inputs, used)
        columns["all", among] = [MeasureColumn(None, None, int(used.sum()), inputs.units(used))]
    shape, apart = (len(inputs.names), *(2,) * (1 + fixed), -1), flagged if fixed else None
    _, sampled = _resample(
        inputs,
        partial(level_table, classes=labels, n_classes=2, background=inputs.background, flagged=apart),
        lambda counts, table, _: label_measures(
            counts.reshape(len(counts), *shape), settings.share, background=table.background, fixed=fixed
        ),
        settings,
        rng,
        MAX_LEVELS,
    )
    measures = summarise(sampled, columns, settings)
    if settings.resamples:
        name, sizes = "true_positive_rate", np.array([at.n for at in columns["groups", "outliers"]], dtype=float)
        rates, permuted = sampled.value[name][0], sampled.permuted[f"{name}_test"][:, 0]
        measures.append(detectable_rate_gap(name, rates, sizes, permuted, inputs.names, settings.confidence))
    return measures


def strata_family(
    inputs: AuditInputs, strata: Strata, settings: AuditSettings, rng: np.random.Generator
) -> list[Measure]:
    """Gaps among rows of the same stratum; groups are shuffled within strata."""
    inside, S = strata.codes >= 0, len(strata.names)
    inputs = inputs.of(inside)
    # many rows: the levels of all strata together are about as many as elsewhere
    limit = MAX_LEVELS if len(inputs.scores) <= MAX_LEVELS else max(MAX_LEVELS // S, 100)
    table, sampled = _resample(
        inputs,
        partial(class_table, classes=strata.codes[inside], n_classes=S),
        lambda counts, table, noise: strata_measures(
            counts, table.values, table.edges, around=table.counts if noise else None
        ),
        settings,
        rng,
        limit,
    )
    n = np.add.reduceat(table.counts, table.edges[:-1], axis=1)  # (G, S)
    compared, sizes = int(n[:, (n >= 2).sum(axis=0) >= 2].sum()), n.sum(axis=0).tolist()
    columns = {
        "all": [MeasureColumn(None, None, compared, compared)],
        "strata": [MeasureColumn(None, name, size, size) for name, size in zip(strata.names, sizes, strict=True)],
        "groups": group_columns(inputs),
    }
    measures = summarise(sampled, {(per, "everyone"): own for per, own in columns.items()}, settings)
    if settings.resamples:
        measures.append(_detectable_within(inputs, table, sampled.permuted["strata_test"][:, 0], settings.confidence))
    return measures


def _detectable_within(inputs: AuditInputs, table: Table, permuted: FloatArray, confidence: float) -> Measure:
    """The gap that a test could have seen in every stratum, between the groups with the lowest and the highest mean.

    If these do not meet in any stratum, between the two groups of which the strata tell most.
    """
    precision, freedom = strata_precision(table.counts, table.values, table.edges)
    means, gap = inputs.sample.means(inputs.scores), NAN
    pair = int(np.nanargmin(means)), int(np.nanargmax(means))
    if not precision[pair] > 0:
        pair = divmod(int(precision.argmax()), len(inputs.names))
    spread = float(np.sqrt(np.cov(table.values, fweights=table.counts.sum(axis=0), ddof=0)))
    if precision[pair] > 0 and spread > 0:
        unit = max(float(permuted.mean()) / max(freedom, 1), 1.0)
        gap = mean_gap(float(np.sqrt(unit / precision[pair])), permuted, freedom, confidence) / spread
    words = "between {} and {}", "the same in every stratum, sizes as they are", "in between"
    return _detectable("conditional", gap, int(table.counts.sum()), inputs.names, pair, words)


def _resample(
    inputs: AuditInputs,
    make_table: Callable[..., Table],
    measure: Callable[[IntArray, Table, bool], Values],
    settings: AuditSettings,
    rng: np.random.Generator,
    max_levels: int,
) -> tuple[Table, Resamples]:
    """The table of the rows as they are, its measures, and those of tables drawn from the rounded scores."""
    clusters, codes = inputs.sample.clusters, inputs.sample.members.codes
    units = None if clusters is None else joined_clusters(clusters, codes)
    exact, rounded = (
        make_table(inputs.scores, codes, len(inputs.names), clusters=units, max_levels=levels)
        for levels in (None, max_levels)
    )
    value = measure(exact.counts[None], exact, False)
    drawn, permuted = rounded.bootstrap(settings.resamples, rng), rounded.permutations(settings.resamples, rng)
    joined = []
    for tables, noise in ((drawn, True), (permuted, False)):
        batches = [measure(counts, rounded, noise) for counts in tables] or [{name: v[:0] for name, v in value.items()}]
        joined.append({name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]})
    return exact, Resamples(value, *joined)


def group_columns(inputs: AuditInputs, used: BoolArray | None = None) -> list[MeasureColumn]:
    """A column per group: the rows that it has, or is expected to have, among all or those ``used``."""
    members, rows = inputs.sample.members, np.ones(len(inputs.scores), dtype=bool) if used is None else used
    sizes = units = [round(size) for size in np.asarray(members.weights.T @ rows.astype(float)).tolist()]
    if inputs.whole and inputs.sample.clusters is not None:
        units = [inputs.units(rows & (members.codes == g)) for g in range(len(sizes))]
    return [MeasureColumn(name, None, *each) for name, *each in zip(inputs.names, sizes, units, strict=True)]
