"""Families of measures, summed up with intervals and tests."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evenout.auditing.counted import (
    MEANINGS,
    Values,
    label_measures,
    score_measures,
    strata_measures,
    strata_precision,
)
from evenout.auditing.drivers import MAX_ROWS, PairMeasures, individual_values, pair_rows, sample_rows
from evenout.auditing.inference import (
    Detectable,
    Meaning,
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

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
TOP_SHARES = (0.05, 0.1, 0.15, 0.2)
_NAME = 40  # of a group's name
_SHUFFLES = 100  # of groups, for the mean of individual unfairness


@dataclass(frozen=True)
class AuditSettings:
    """How to audit: see `evenout.audit`. ``share`` is the share of all rows that is flagged."""

    share: float
    resamples: int
    confidence: float
    length_scale: LengthScale


class MeasureColumn(NamedTuple):
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


def summarise(
    sampled: Resamples, columns: Callable[[Meaning], Sequence[MeasureColumn]], settings: AuditSettings
) -> list[Measure]:
    """Turn values and resamples into measures with intervals and p-values; ``columns`` are those of a measure."""
    measures, z = [], normal_value(settings.confidence)

    def level_ends(name: str, z: float) -> tuple[FloatArray, FloatArray]:
        units = np.array([at.units for at in columns(MEANINGS[name])], dtype=float)
        return level_interval(MEANINGS[name], sampled.value[name][0], sampled.drawn[name], units, z)

    for name, (value, *_) in sampled.value.items():
        kind, drawn, tested = MEANINGS[name], sampled.drawn[name], MEANINGS[name].tested_as or name
        p = low = high = np.full(len(value), np.nan)
        if tested in sampled.permuted and not kind.by_interval:
            p = p_value(MEANINGS[tested], sampled.value[tested][0], sampled.permuted[tested])
        if kind.compares is not None and len(drawn):
            levels, resampled = sampled.value[kind.compares][0], sampled.drawn[kind.compares]
            levels = 1 - levels if kind.rest else levels

            def ends(z: float, kind: Meaning = kind) -> tuple[FloatArray, FloatArray]:
                low, high = level_ends(str(kind.compares), z)
                return (1 - high, 1 - low) if kind.rest else (low, high)

            interval = extremes_interval(kind, levels, ends, resampled, settings.confidence)
            low, high = (np.array([end]) for end in interval)
            p = np.array([interval_p_value(levels, ends, resampled)]) if kind.by_interval else p
        elif kind.shape in ("squared", "gap") and len(drawn):
            source = kind.twin or name
            noise, gap = sampled.drawn[f"noise of {source}"], sampled.value[source][0]
            low, high = gap_interval(kind, gap, sampled.drawn[source], noise, settings.confidence)
        elif kind.shape != "none" and len(drawn):
            low, high = level_ends(name, z)
        low, high = within_range(kind, value, low, high)
        if kind.even is not None:  # the rare interval that leaves evenness out while the test does not
            open_still = p > 1 - settings.confidence
            low, high = (np.where(open_still, end(x, kind.even), x) for end, x in ((np.fmin, low), (np.fmax, high)))
        undefined = np.isnan(drawn).mean(axis=0) if len(drawn) else np.zeros(len(value))
        for at, v, lo, hi, pv, share in zip(columns(kind), value, low, high, p, undefined, strict=True):
            note = f"undefined in {share:.0%} of the resamples" if share > 0.05 else ""
            numbers = float(v), float(lo), float(hi), float(pv)
            measures.append(Measure(name, at.group, at.detail, *numbers, n=at.n, note=note))
    return measures


def _lowest_and_highest(values: FloatArray) -> tuple[int, int]:
    return int(np.nanargmin(values)), int(np.nanargmax(values))


def _note(compared: str, names: tuple[str, ...], pair: tuple[int, int], held: str, others: str) -> str:
    """What is compared, with the names of two groups, and what is held fixed."""
    quoted = [f"'{shown(names[g], _NAME)}'" for g in pair]
    return f"{compared.format(*quoted)}; {held}{f', other groups {others}' if len(names) > 2 else ''}"


def seen_mean_gap(
    sampled: Resamples, moments: GroupMoments, names: tuple[str, ...], confidence: float, n: int
) -> Measure:
    """Between the groups with the lowest and the highest mean, in standard deviations of all n scores."""
    pair = _lowest_and_highest(sampled.value["mean_score"][0])
    noise = moments.variance[0] / moments.count
    spread, gap = float(np.sqrt(moments.total_variance[0])), float("nan")
    if spread > 0:
        error = float(np.sqrt(noise[pair[0]] + noise[pair[1]]))
        gap = mean_gap(error, sampled.permuted["mean_score_test"][:, 0], len(names) - 1, confidence) / spread
    note = _note("between {} and {}", names, pair, "sizes and spreads of the groups as they are", "in between")
    return Measure("mean_score_detectable", None, None, gap, n=n, note=note)


def seen_rate_gap(
    measure: str, sampled: Resamples, sizes: FloatArray, names: tuple[str, ...], confidence: float
) -> Measure:
    """Between the groups with the lowest and the highest rate, ``measure``, of groups with ``sizes`` rows."""
    rates, n = sampled.value[measure][0], int(sizes.sum())
    known = np.flatnonzero(~np.isnan(rates))
    if len(known) < 2:
        return Measure(f"{measure}_detectable", None, None, float("nan"), n=n)
    low, high = _lowest_and_highest(rates)
    if low == high:  # all the same
        low, high = known[:2].tolist()
    share = float((rates[known] * sizes[known]).sum() / sizes[known].sum())

    def seen(low: int, high: int) -> Detectable:
        permuted = sampled.permuted[f"{measure}_test"][:, 0]
        return rate_gap(float(sizes[low]), float(sizes[high]), share, permuted, len(known) - 1, confidence)

    first, held = seen(low, high), "sizes of the groups and rate of all rows as they are"
    if np.isnan(first.difference) and not np.isnan(first.power):
        none = f"even none in '{shown(names[low], _NAME)}' is seen only {first.power:.0%} of the time"
        low, high, held = high, low, f"the other way round {none}; {held}"
        first = seen(low, high)
    note = _note("{1} above {0}", names, (low, high), held, "at that rate")
    return Measure(f"{measure}_detectable", None, None, first.difference, n=n, note=note)


def seen_strata_gap(
    sampled: Resamples, table: Table, means: FloatArray, names: tuple[str, ...], confidence: float
) -> Measure:
    """The same gap in every stratum, between the groups with the lowest and the highest mean.

    If these do not meet in any stratum, between the two groups of which the strata tell most.
    """
    precision, freedom = strata_precision(table.counts, table.values, table.edges)
    pair = _lowest_and_highest(means)
    if not precision[pair] > 0:
        pair = divmod(int(precision.argmax()), len(names))
    spread = float(np.sqrt(np.cov(table.values, fweights=table.counts.sum(axis=0), ddof=0)))
    gap = float("nan")
    if precision[pair] > 0 and spread > 0:
        permuted = sampled.permuted["strata_test"][:, 0]
        unit = max(float(permuted.mean()) / max(freedom, 1), 1.0) if len(permuted) else 1.0
        gap = mean_gap(float(np.sqrt(unit / precision[pair])), permuted, freedom, confidence) / spread
    note = _note("between {} and {}", names, pair, "the same in every stratum, sizes as they are", "in between")
    return Measure("conditional_detectable", None, None, gap, n=int(table.counts.sum()), note=note)


def score_family(inputs: AuditInputs, settings: AuditSettings, rng: np.random.Generator) -> list[Measure]:
    """Measures of scores and groups alone; groups are shuffled among all rows."""
    n, names = len(inputs.scores), inputs.names
    groups, everyone = _columns(inputs), MeasureColumn(None, None, n, inputs.units())
    every = np.concatenate([inputs.scores, inputs.background])
    on_top = [int(who_is_flagged(every, None, share).flagged[:n].sum()) for share in TOP_SHARES]
    columns = {
        "all": [everyone],
        "groups": groups,
        "quantiles": [at._replace(detail=f"{q:g}") for at in groups for q in QUANTILES],
        "tops": [MeasureColumn(None, f"top {share:.0%}", k, k) for share, k in zip(TOP_SHARES, on_top, strict=True)],
    }
    sampled = _resample(
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
        *_level_tables(inputs),
        settings,
        rng,
    )
    measures = summarise(sampled, lambda kind: columns[kind.per], settings)
    centre = inputs.scores.mean()
    means = inputs.sample.measure(inputs.scores - centre)
    variance = np.diag(means.cov) * means.size
    moments = GroupMoments(means.size, (centre + means.mean)[None], variance[None], np.array([inputs.scores.var()]))
    measures.append(Measure("welch_test", None, None, float(no_gap_p_value(moments)[0]), n=n))
    if settings.resamples:
        measures.append(seen_mean_gap(sampled, moments, names, settings.confidence, n))
        measures.append(seen_rate_gap("flag_rate", sampled, inputs.counts.astype(float), names, settings.confidence))
    # clusters of rows count as n^2 / sum of their squared sizes rows
    rows = float(n) if inputs.clusters is None else float(n) ** 2 / float((np.bincount(inputs.clusters) ** 2).sum())
    low, high = wilson(inputs.counts.astype(float) * (rows / n), rows, settings.confidence)
    ends = zip(groups, low.tolist(), high.tolist(), strict=True)
    return [*(Measure("group_share", at.group, None, at.n / n, lo, hi, n=at.n) for at, lo, hi in ends), *measures]


def label_family(
    inputs: AuditInputs, labels: IntArray, settings: AuditSettings, rng: np.random.Generator
) -> list[Measure]:
    """Measures against known outliers; groups are shuffled among rows of the same label."""
    rows = {"outliers": labels == 1, "inliers": labels == 0, "flagged": inputs.flags.flagged}
    rows |= {"everyone": np.ones(len(labels), dtype=bool)}
    columns = {("groups", among): _columns(inputs, used) for among, used in rows.items()}
    columns |= {
        ("all", among): [MeasureColumn(None, None, int(used.sum()), inputs.units(used))] for among, used in rows.items()
    }
    shape = (len(inputs.names), *(2,) * (1 + inputs.flags.fixed), -1)
    sampled = _resample(
        lambda counts, table, _: label_measures(
            counts.reshape(len(counts), *shape),
            settings.share,
            background=table.background,
            fixed=inputs.flags.fixed,
        ),
        *_level_tables(inputs, labels),
        settings,
        rng,
    )
    measures = summarise(sampled, lambda kind: columns[kind.per, kind.among], settings)
    if settings.resamples:
        outliers = np.array([at.n for at in columns["groups", "outliers"]], dtype=float)
        measures.append(seen_rate_gap("true_positive_rate", sampled, outliers, inputs.names, settings.confidence))
    return measures


def strata_family(
    inputs: AuditInputs, strata: Strata, settings: AuditSettings, rng: np.random.Generator
) -> list[Measure]:
    """Gaps among rows of the same stratum; groups are shuffled within strata."""
    inside = strata.codes >= 0
    inputs = inputs.of(inside)
    codes, G, S = inputs.codes, len(inputs.names), len(strata.names)
    # many rows: the levels of all strata together are about as many as elsewhere
    limit = MAX_LEVELS if len(inputs.scores) <= MAX_LEVELS else max(MAX_LEVELS // S, 100)
    units = None if inputs.clusters is None else joined_clusters(inputs.clusters, codes)
    exact, rounded = (
        class_table(inputs.scores, codes, G, strata.codes[inside], S, clusters=units, max_levels=levels)
        for levels in (None, limit)
    )

    n = np.add.reduceat(exact.counts, exact.edges[:-1], axis=1)  # (G, S)
    compared, sizes = int(n[:, (n >= 2).sum(axis=0) >= 2].sum()), n.sum(axis=0).tolist()
    columns = {
        "all": [MeasureColumn(None, None, compared, compared)],
        "strata": [MeasureColumn(None, name, size, size) for name, size in zip(strata.names, sizes, strict=True)],
        "groups": _columns(inputs),
    }
    sampled = _resample(
        lambda counts, table, noise: strata_measures(
            counts, table.values, table.edges, around=table.counts if noise else None
        ),
        exact,
        rounded,
        settings,
        rng,
    )
    measures = summarise(sampled, lambda kind: columns[kind.per], settings)
    if settings.resamples:
        means = inputs.sample.means(inputs.scores)
        measures.append(seen_strata_gap(sampled, exact, means, inputs.names, settings.confidence))
    return measures


def individual_family(
    inputs: AuditInputs, features: "pd.DataFrame", settings: AuditSettings, rng: np.random.Generator
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
    drawn = pairs.resampled(settings.resamples, rng)
    narrow = np.sqrt(len(np.unique(units[sample])) / inputs.units())
    resamples = Resamples(value, {name: value[name] + narrow * (drawn[name] - there[name]) for name in value}, {})
    everyone = MeasureColumn(None, None, len(rows), inputs.units())
    measures = summarise(resamples, lambda _: [everyone], settings)
    if settings.resamples > 0:
        permuted = pairs.resampled(min(settings.resamples, _SHUFFLES), rng, shuffled=True)["individual_unfairness"]
        shuffled = float(value["individual_unfairness"][0, 0] + (permuted - there["individual_unfairness"]).mean())
        measures.append(Measure("individual_unfairness_shuffled", None, None, shuffled, n=len(rows)))
    alike = effective_pairs(comparable, codes[rows], scale) * (n / len(rows)) ** 2
    return [*measures, Measure("effective_pairs", None, None, float(alike), n=len(rows))]


def _resample(
    measure: Callable[[IntArray, Table, bool], Values],
    exact: Table,
    rounded: Table,
    settings: AuditSettings,
    rng: np.random.Generator,
) -> Resamples:
    """Measure the rows as they are, and tables drawn from the rounded scores."""
    value = measure(exact.counts[None], exact, False)

    def joined(tables: Iterable[IntArray], noise: bool) -> Values:
        batches = [measure(counts, rounded, noise) for counts in tables]
        if not batches:
            return {name: v[:0] for name, v in value.items()}
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}

    drawn = joined(rounded.bootstrap(settings.resamples, rng), True)
    return Resamples(value, drawn, joined(rounded.permutations(settings.resamples, rng), False))


def _columns(inputs: AuditInputs, used: BoolArray | None = None) -> list[MeasureColumn]:
    """A column per group, of all rows or of those that are used."""
    rows = np.ones(len(inputs.codes), dtype=bool) if used is None else used
    of_group = [rows & (inputs.codes == g) for g in range(len(inputs.names))]
    each = zip(inputs.names, of_group, strict=True)
    return [MeasureColumn(name, None, int(mine.sum()), inputs.units(mine)) for name, mine in each]


def _level_tables(inputs: AuditInputs, labels: IntArray | None = None) -> tuple[Table, Table]:
    """The table of the rows as they are, and of rounded scores; by label where there are any."""
    exact, rounded = (
        level_table(
            inputs.scores,
            inputs.codes,
            len(inputs.names),
            *(() if labels is None else (labels, 2)),
            background=inputs.background,
            clusters=None if inputs.clusters is None else joined_clusters(inputs.clusters, inputs.codes),
            flagged=inputs.flags.flagged if inputs.flags.fixed else None,
            max_levels=levels,
        )
        for levels in (None, MAX_LEVELS)
    )
    return exact, rounded
