"""Families of measures, summed up with intervals and tests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from evenout.auditing.counted import Values, label_measures, score_measures, strata_measures, strata_precision
from evenout.auditing.drivers import MAX_ROWS, PairMeasures, individual_values, pair_rows, sample_rows
from evenout.auditing.inference import (
    MEANINGS,
    Meaning,
    Seen,
    extremes_interval,
    gap_interval,
    interval_p_value,
    level_interval,
    mean_gap,
    p_value,
    rate_gap,
    within_range,
)
from evenout.auditing.result import Measure
from evenout.auditing.sample import AuditInputs, Strata, who_is_flagged
from evenout.auditing.text import shown
from evenout.core.individual import LengthScale, comparable_rows, effective_pairs
from evenout.core.intervals import normal_value, wilson
from evenout.core.resampling import MAX_LEVELS, Table, class_table, joined_clusters, level_table
from evenout.core.ruler import GroupMoments, no_gap_p_value
from evenout.core.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Settings:
    """How to audit: see `evenout.audit`. ``share`` is the share of all rows that is flagged."""

    share: float
    resamples: int
    confidence: float
    length_scale: LengthScale


class Column(NamedTuple):
    """What one column of a measure's values belongs to, and the rows and independent units that it rests on."""

    group: str | None
    detail: str | None
    n: int
    units: int


class Resamples(NamedTuple):
    """Values (1, w), their bootstrap resamples (B, w) and their permutations (P, w), by measure."""

    value: Values
    drawn: Values
    permuted: Values


def summarise(found: Resamples, columns: Mapping[str, Sequence[Column]], settings: Settings) -> list[Measure]:
    """Turn values and resamples into measures with intervals and p-values."""
    measures = []
    for name, places in columns.items():
        kind, value = MEANINGS[name], found.value[name][0]
        if kind.by_interval:
            p = _interval_p(found, kind, columns, settings)
        else:
            p = _p_value(found, kind.tested_as or name, len(value))
        low, high = within_range(kind, value, *_interval(found, name, columns, settings))
        if kind.even is not None:  # the rare interval that leaves evenness out while the test does not
            open_still = p > 1 - settings.confidence
            low, high = (np.where(open_still, end(x, kind.even), x) for end, x in ((np.fmin, low), (np.fmax, high)))
        notes = _undefined(found.drawn[name])
        measures += [
            Measure(name, at.group, at.detail, float(v), float(lo), float(hi), float(pv), np.nan, at.n, note)
            for at, v, lo, hi, pv, note in zip(places, value, low, high, p, notes, strict=True)
        ]
    return measures


def _p_value(found: Resamples, name: str, width: int) -> FloatArray:
    if name not in found.permuted:  # tested otherwise
        return np.full(width, np.nan)
    return p_value(MEANINGS[name], found.value[name][0], found.permuted[name])


def plain_measure(name: str, at: Column, value: float, low: float = np.nan, high: float = np.nan) -> Measure:
    """A measure that is not resampled."""
    nan = float("nan")
    return Measure(name, at.group, at.detail, float(value), float(low), float(high), nan, nan, at.n, "")


def _interval(
    found: Resamples, name: str, columns: Mapping[str, Sequence[Column]], settings: Settings
) -> tuple[FloatArray, FloatArray]:
    kind, value, drawn = MEANINGS[name], found.value[name][0], found.drawn[name]
    if kind.shape == "none" or len(drawn) == 0:
        return np.full(len(value), np.nan), np.full(len(value), np.nan)
    if kind.compares is not None:
        return _extremes(found, kind, kind.compares, columns[kind.compares], settings.confidence)
    source = kind.twin or name
    if kind.shape in ("squared", "gap"):
        noise = found.drawn[f"noise of {source}"]
        return gap_interval(kind, found.value[source][0], found.drawn[source], noise, settings.confidence)
    units = np.array([at.units for at in columns[name]], dtype=float)
    return level_interval(kind, value, drawn, units, normal_value(settings.confidence))


def _extremes(
    found: Resamples, kind: Meaning, compared: str, places: Sequence[Column], confidence: float
) -> tuple[FloatArray, FloatArray]:
    value, drawn = found.value[compared][0], found.drawn[compared]
    ends = _ends(found, kind, compared, places)
    of_groups = 1 - value if kind.rest else value
    low, high = extremes_interval(kind, of_groups, ends, drawn, confidence)
    return np.array([low]), np.array([high])


def _ends(
    found: Resamples, kind: Meaning, compared: str, places: Sequence[Column]
) -> Callable[[float], tuple[FloatArray, FloatArray]]:
    """Interval of each group's value, for a critical value z."""
    units = np.array([at.units for at in places], dtype=float)

    def ends(z: float) -> tuple[FloatArray, FloatArray]:
        low, high = level_interval(MEANINGS[compared], found.value[compared][0], found.drawn[compared], units, z)
        return (1 - high, 1 - low) if kind.rest else (low, high)

    return ends


def _interval_p(
    found: Resamples, kind: Meaning, columns: Mapping[str, Sequence[Column]], settings: Settings
) -> FloatArray:
    assert kind.compares is not None
    if settings.resamples == 0:
        return np.array([np.nan])
    ends = _ends(found, kind, kind.compares, columns[kind.compares])
    return np.array([interval_p_value(found.value[kind.compares][0], ends, found.drawn[kind.compares])])


def _undefined(drawn: FloatArray) -> list[str]:
    """A note for each column that many resamples leave undefined, for want of rows."""
    share = np.isnan(drawn).mean(axis=0) if len(drawn) else np.zeros(drawn.shape[1])
    return [f"undefined in {part:.0%} of the resamples" if part > 0.05 else "" for part in share]


_NAME = 40  # of a group's name


class Pair(NamedTuple):
    """Two of the groups: those with the lowest and the highest value."""

    low: int
    high: int


def lowest_and_highest(values: FloatArray) -> Pair:
    """The groups with the lowest and the highest value; NaN is neither."""
    return Pair(int(np.nanargmin(values)), int(np.nanargmax(values)))


def seen_mean_gap(
    found: Resamples, moments: GroupMoments, names: tuple[str, ...], confidence: float, n: int
) -> Measure:
    """Between the groups with the lowest and the highest mean, in standard deviations of all n scores."""
    pair = lowest_and_highest(found.value["mean_score"][0])
    noise = moments.variance[0] / moments.count
    permuted = found.permuted["mean_score_test"][:, 0]
    spread = float(np.sqrt(moments.total_variance[0]))
    gap = float("nan")
    if spread > 0:
        error = float(np.sqrt(noise[pair.low] + noise[pair.high]))
        gap = mean_gap(error, permuted, len(names) - 1, confidence) / spread
    held = "sizes and spreads of the groups as they are" + _others(names, "in between")
    return _measure("mean_score_detectable", gap, f"{_between(names, pair)}; {held}", n)


def seen_rate_gap(
    measure: str, found: Resamples, sizes: FloatArray, names: tuple[str, ...], confidence: float
) -> Measure:
    """Between the groups with the lowest and the highest rate, ``measure``, of groups with ``sizes`` rows."""
    rates, n = found.value[measure][0], int(sizes.sum())
    known = ~np.isnan(rates)
    if known.sum() < 2:
        return _measure(f"{measure}_detectable", float("nan"), "", n)
    pair = lowest_and_highest(rates)
    if pair.low == pair.high:  # all the same
        first, second = np.flatnonzero(known)[:2].tolist()
        pair = Pair(first, second)
    share = float((rates[known] * sizes[known]).sum() / sizes[known].sum())
    permuted = found.permuted[f"{measure}_test"][:, 0]

    def seen(low: int, high: int) -> Seen:
        sized = float(sizes[low]), float(sizes[high])
        return rate_gap(*sized, share, permuted, int(known.sum()) - 1, confidence)

    first, above = seen(*pair), f"{_quoted(names[pair.high])} above {_quoted(names[pair.low])}"
    held = "sizes of the groups and rate of all rows as they are" + _others(names, "at that rate")
    if np.isnan(first.difference) and not np.isnan(first.power):
        none = f"even none in {_quoted(names[pair.low])} is seen only {first.power:.0%} of the time"
        held = f"the other way round {none}; {held}"
        first, above = (
            seen(pair.high, pair.low),
            f"{_quoted(names[pair.low])} above {_quoted(names[pair.high])}",
        )
    return _measure(f"{measure}_detectable", first.difference, f"{above}; {held}", n)


def seen_strata_gap(
    found: Resamples, table: Table, means: FloatArray, names: tuple[str, ...], confidence: float
) -> Measure:
    """The same gap in every stratum, between the groups with the lowest and the highest mean.

    If these do not meet in any stratum, between the two groups of which the strata tell most.
    """
    precision, freedom = strata_precision(table.counts, table.values, table.edges)
    pair = lowest_and_highest(means)
    if not precision[pair] > 0:
        pair = Pair(*divmod(int(precision.argmax()), len(names)))
    n, rows = int(table.counts.sum()), table.counts.sum(axis=0)
    spread = float(np.sqrt(np.cov(table.values, fweights=rows, ddof=0)))
    gap = float("nan")
    if precision[pair] > 0 and spread > 0:
        permuted = found.permuted["strata_test"][:, 0]
        unit = max(float(permuted.mean()) / max(freedom, 1), 1.0) if len(permuted) else 1.0
        gap = mean_gap(float(np.sqrt(unit / precision[pair])), permuted, freedom, confidence) / spread
    held = "the same in every stratum, sizes as they are" + _others(names, "in between")
    return _measure("conditional_detectable", gap, f"{_between(names, pair)}; {held}", n)


def _measure(name: str, value: float, note: str, n: int) -> Measure:
    nan = float("nan")
    return Measure(name, None, None, value, nan, nan, nan, nan, n, note)


def _between(names: tuple[str, ...], pair: Pair) -> str:
    return f"between {_quoted(names[pair.low])} and {_quoted(names[pair.high])}"


def _quoted(name: str) -> str:
    return f"'{shown(name, _NAME)}'"


def _others(names: tuple[str, ...], where: str) -> str:
    return f", other groups {where}" if len(names) > 2 else ""


QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
TOP_SHARES = (0.05, 0.1, 0.15, 0.2)
_SHUFFLES = 100  # of groups, for the mean of individual unfairness
_OF_ALL_GROUPS = (
    "flag_rate_ratio",
    "unflagged_rate_ratio",
    "flag_rate_test",
    "demographic_parity_raw",
    "demographic_parity",
    "demographic_parity_corrected",
    "mean_score_test",
    "threshold_free_gap",
)


def score_family(inputs: AuditInputs, settings: Settings, rng: np.random.Generator) -> list[Measure]:
    """Measures of scores and groups alone; groups are shuffled among all rows."""
    n, fixed = len(inputs.scores), inputs.flags.fixed
    exact, rounded = _level_tables(inputs)

    def measure(counts: IntArray, table: Table, *, noise: bool) -> Values:
        shares = (settings.share, TOP_SHARES, QUANTILES)
        around = table.counts if noise else None
        return score_measures(counts, table.values, *shares, background=table.background, around=around, fixed=fixed)

    groups, everyone = _columns(inputs, np.ones(n, dtype=bool)), Column(None, None, n, inputs.units())
    columns = {
        "mean_score": groups,
        "score_quantile": [at._replace(detail=f"{q:g}") for at in groups for q in QUANTILES],
        "flag_rate": groups,
        **{name: [everyone] for name in _OF_ALL_GROUPS},
        "top_share_drift": [_on_top(inputs, share) for share in TOP_SHARES],
    }
    found = _resample(measure, exact, rounded, settings, rng)
    measures = summarise(found, columns, settings)
    moments = _moments(inputs)
    measures.append(plain_measure("welch_test", everyone, no_gap_p_value(moments)[0]))
    if settings.resamples:
        names, sizes = inputs.names, inputs.counts.astype(float)
        measures.append(seen_mean_gap(found, moments, names, settings.confidence, n))
        measures.append(seen_rate_gap("flag_rate", found, sizes, names, settings.confidence))
    return [*_group_shares(inputs, groups, settings.confidence), *measures]


def _moments(inputs: AuditInputs) -> GroupMoments:
    """Mean and variance of each group's scores, such that ``variance / count`` is the squared error of the mean."""
    centre = inputs.scores.mean()
    means = inputs.sample.measure(inputs.scores - centre)
    variance = np.diag(means.cov) * means.size
    return GroupMoments(means.size, (centre + means.mean)[None], variance[None], np.array([inputs.scores.var()]))


def label_family(inputs: AuditInputs, labels: IntArray, settings: Settings, rng: np.random.Generator) -> list[Measure]:
    """Measures against known outliers; groups are shuffled among rows of the same label."""
    G, fixed = len(inputs.names), inputs.flags.fixed
    exact, rounded = _level_tables(inputs, labels)

    def measure(counts: IntArray, table: Table, *, noise: bool) -> Values:  # noqa: ARG001
        by_label = counts.reshape(len(counts), G, 2, 2, -1) if fixed else counts.reshape(len(counts), G, 2, -1)
        return label_measures(by_label, settings.share, background=table.background, fixed=fixed)

    everyone = np.ones(len(labels), dtype=bool)
    rows = {
        "outlier_rate": everyone,
        "auc": everyone,
        "average_precision": labels == 1,
        "true_positive_rate": labels == 1,
        "false_positive_rate": labels == 0,
        "precision": inputs.flags.flagged,
    }
    columns = {name: _columns(inputs, used) for name, used in rows.items()}
    for name, used in rows.items():
        at = Column(None, None, int(used.sum()), inputs.units(used))
        columns |= {} if name == "outlier_rate" else {f"{name}_gap": [at]}
        columns |= {f"{name}_test": [at]} if name in ("true_positive_rate", "false_positive_rate") else {}
    found = _resample(measure, exact, rounded, settings, rng)
    measures = summarise(found, columns, settings)
    if settings.resamples:
        outliers = np.array([at.n for at in columns["true_positive_rate"]], dtype=float)
        measures.append(seen_rate_gap("true_positive_rate", found, outliers, inputs.names, settings.confidence))
    return measures


def strata_family(inputs: AuditInputs, strata: Strata, settings: Settings, rng: np.random.Generator) -> list[Measure]:
    """Gaps among rows of the same stratum; groups are shuffled within strata."""
    inside = strata.codes >= 0
    inputs = replace(inputs, scores=inputs.scores[inside], grouped=inputs.grouped.of(inside))
    codes, G, S = inputs.codes, len(inputs.names), len(strata.names)
    # many rows: the levels of all strata together are about as many as elsewhere
    limit = MAX_LEVELS if len(inputs.scores) <= MAX_LEVELS else max(MAX_LEVELS // S, 100)
    units = None if inputs.clusters is None else joined_clusters(inputs.clusters, codes)
    exact, rounded = (
        class_table(inputs.scores, codes, G, strata.codes[inside], S, clusters=units, max_levels=levels)
        for levels in (None, limit)
    )

    def measure(counts: IntArray, table: Table, *, noise: bool) -> Values:
        return strata_measures(counts, table.values, table.edges, around=table.counts if noise else None)

    n = np.add.reduceat(exact.counts, exact.edges[:-1], axis=1)  # (G, S)
    used = (n >= 2).sum(axis=0) >= 2
    everyone = [Column(None, None, int(n[:, used].sum()), int(n[:, used].sum()))]
    names = ("conditional_parity", "conditional_parity_corrected", "strata_test")
    columns = dict.fromkeys(names, everyone)
    columns["parity_within"] = [
        Column(None, name, int(size), int(size)) for name, size in zip(strata.names, n.sum(axis=0), strict=True)
    ]
    columns |= dict.fromkeys(("mean_apart", "apart_by_strata"), _columns(inputs, np.ones(len(codes), dtype=bool)))
    found = _resample(measure, exact, rounded, settings, rng)
    measures = summarise(found, columns, settings)
    if settings.resamples:
        means = inputs.sample.means(inputs.scores)
        measures.append(seen_strata_gap(found, exact, means, inputs.names, settings.confidence))
    return measures


def individual_family(
    inputs: AuditInputs, features: "pd.DataFrame", settings: Settings, rng: np.random.Generator
) -> list[Measure]:
    """Individual unfairness; resampled on m of the n rows, the interval narrowed by ``sqrt(m / n)`` accordingly.

    There is no test: shuffling groups among rows whose features differ by group has another law, so that a score which
    is a function of the features would be rejected. The value with shuffled groups is shown beside.
    """
    import pandas as pd

    G, codes, n = len(inputs.names), inputs.codes, len(inputs.scores)
    X = pd.get_dummies(features, dtype=float).to_numpy(dtype=float)
    rows = sample_rows(codes, G, MAX_ROWS, rng)
    value = individual_values(inputs.scores[rows], X[rows], codes[rows], settings.length_scale)
    comparable, scale = comparable_rows(X[rows], codes[rows], settings.length_scale)
    units = np.arange(n) if inputs.clusters is None else inputs.clusters
    part = pair_rows(codes[rows], units[rows], G, rng)
    sample = rows[part]
    pairs = PairMeasures(inputs.scores[sample], comparable[part], codes[sample], G, scale, units[sample])
    there = pairs.value()
    drawn = pairs.bootstrap(settings.resamples, rng)
    narrow = np.sqrt(len(np.unique(units[sample])) / inputs.units())
    resamples = Resamples(value, {name: value[name] + narrow * (drawn[name] - there[name]) for name in value}, {})
    everyone = Column(None, None, len(rows), inputs.units())
    measures = summarise(resamples, {name: [everyone] for name in value}, settings)
    if settings.resamples > 0:
        permuted = pairs.permutations(min(settings.resamples, _SHUFFLES), rng)["individual_unfairness"]
        shuffled = float(value["individual_unfairness"][0, 0] + (permuted - there["individual_unfairness"]).mean())
        measures.append(plain_measure("individual_unfairness_shuffled", everyone, shuffled))
    alike = effective_pairs(comparable, codes[rows], scale) * (n / len(rows)) ** 2
    return [*measures, plain_measure("effective_pairs", everyone, alike)]


class _MeasureTables(Protocol):
    def __call__(self, counts: IntArray, table: Table, *, noise: bool) -> Values: ...


def _resample(
    measure: _MeasureTables, exact: Table, rounded: Table, settings: Settings, rng: np.random.Generator
) -> Resamples:
    """The measures of the rows as they are, and of tables drawn from the rounded scores."""
    value = measure(exact.counts[None], exact, noise=False)

    def joined(tables: Iterable[IntArray], *, noise: bool) -> Values:
        batches = [measure(counts, rounded, noise=noise) for counts in tables]
        if not batches:
            return {name: v[:0] for name, v in value.items()}
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}

    return Resamples(
        value,
        joined(rounded.bootstrap(settings.resamples, rng), noise=True),
        joined(rounded.permutations(settings.resamples, rng), noise=False),
    )


def _columns(inputs: AuditInputs, used: BoolArray) -> list[Column]:
    """A column per group, of those rows that are used."""
    of_group = [used & (inputs.codes == g) for g in range(len(inputs.names))]
    return [
        Column(name, None, int(mine.sum()), inputs.units(mine))
        for name, mine in zip(inputs.names, of_group, strict=True)
    ]


def _level_tables(inputs: AuditInputs, labels: IntArray | None = None) -> tuple[Table, Table]:
    """The table of the rows as they are, and of rounded scores; by label where there are any."""
    classes = () if labels is None else (labels, 2)
    units = None if inputs.clusters is None else joined_clusters(inputs.clusters, inputs.codes)
    exact, rounded = (
        level_table(
            inputs.scores,
            inputs.codes,
            len(inputs.names),
            *classes,
            background=inputs.background,
            clusters=units,
            flagged=inputs.flags.flagged if inputs.flags.fixed else None,
            max_levels=levels,
        )
        for levels in (None, MAX_LEVELS)
    )
    return exact, rounded


def _group_shares(inputs: AuditInputs, groups: list[Column], confidence: float) -> list[Measure]:
    """Shares of the groups; clusters of rows count as ``n^2 / sum of their squared sizes`` rows."""
    n = float(len(inputs.scores))
    rows = n if inputs.clusters is None else n**2 / float((np.bincount(inputs.clusters) ** 2).sum())
    low, high = wilson(inputs.counts.astype(float) * (rows / n), rows, confidence)
    return [plain_measure("group_share", at, at.n / n, lo, hi) for at, lo, hi in zip(groups, low, high, strict=True)]


def _on_top(inputs: AuditInputs, share: float) -> Column:
    every = np.concatenate([inputs.scores, inputs.background])
    n = int(who_is_flagged(every, None, share).flagged[: len(inputs.scores)].sum())
    return Column(None, f"top {share:.0%}", n, n)
