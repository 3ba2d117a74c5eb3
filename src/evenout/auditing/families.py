"""Families of measures that are resampled together: of the scores, with labels, within strata, of similar rows."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from evenout.auditing.individual import MAX_ROWS, PairMeasures, individual_values, pair_rows, sample_rows
from evenout.auditing.inputs import AuditInputs, who_is_flagged
from evenout.auditing.measures import Values, label_measures, score_measures
from evenout.auditing.membership import Codes
from evenout.auditing.result import Measure
from evenout.auditing.seen import seen_mean_gap, seen_rate_gap, seen_strata_gap
from evenout.auditing.strata import strata_measures
from evenout.auditing.summary import Column, Resamples, Settings, plain_measure, summarise
from evenout.auditing.tables import MAX_LEVELS, Table, class_table, joined_clusters, level_table
from evenout.core.forms import GroupMoments, no_gap_p_value
from evenout.core.intervals import wilson
from evenout.core.similarity import comparable_rows, effective_pairs
from evenout.core.types import BoolArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

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
    if settings.n_permutations:
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
    if settings.n_permutations:
        outliers = np.array([at.n for at in columns["true_positive_rate"]], dtype=float)
        measures.append(seen_rate_gap("true_positive_rate", found, outliers, inputs.names, settings.confidence))
    return measures


def strata_family(inputs: AuditInputs, strata: Codes, settings: Settings, rng: np.random.Generator) -> list[Measure]:
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
    if settings.n_permutations:
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
    drawn = pairs.bootstrap(settings.n_bootstrap, rng)
    narrow = np.sqrt(len(np.unique(units[sample])) / inputs.units())
    resamples = Resamples(value, {name: value[name] + narrow * (drawn[name] - there[name]) for name in value}, {})
    everyone = Column(None, None, len(rows), inputs.units())
    measures = summarise(resamples, {name: [everyone] for name in value}, settings)
    if settings.n_permutations > 0:
        permuted = pairs.permutations(min(settings.n_permutations, _SHUFFLES), rng)["individual_unfairness"]
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
        joined(rounded.bootstrap(settings.n_bootstrap, rng), noise=True),
        joined(rounded.permutations(settings.n_permutations, rng), noise=False),
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
