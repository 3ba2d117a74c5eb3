"""Families of measures that are resampled together: of the scores, with labels, within strata, of similar rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenout.auditing.individual import MAX_ROWS, PairMeasures, individual_values, pair_rows, sample_rows
from evenout.auditing.inference import bounded, extremes_interval, interval, p_value, wilson
from evenout.auditing.inputs import Codes, Inputs
from evenout.auditing.kinds import KINDS
from evenout.auditing.measures import Values, label_measures, score_measures, strata_measures, table_moments
from evenout.auditing.result import Measure
from evenout.auditing.tables import MAX_LEVELS, Table, class_table, level_table
from evenout.core.flags import flag_threshold
from evenout.core.forms import no_gap_p_value
from evenout.core.similarity import LengthScale, comparable_rows, effective_pairs
from evenout.core.types import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
TOP_SHARES = (0.05, 0.1, 0.15, 0.2)


@dataclass(frozen=True)
class Settings:
    """How to audit: see `evenout.audit`."""

    contamination: float
    n_bootstrap: int
    n_permutations: int
    confidence: float
    length_scale: LengthScale


class Column(NamedTuple):
    """What one column of a measure's values belongs to."""

    group: str | None
    detail: str | None
    n: int


class Resamples(NamedTuple):
    """Values (1, w), their bootstrap resamples (B, w) and their permutations (P, w), by measure."""

    value: Values
    drawn: Values
    permuted: Values


def score_family(inputs: Inputs, settings: Settings, rng: np.random.Generator) -> list[Measure]:
    """Measures of scores and groups alone; groups are shuffled among all rows."""
    G, counts, n = len(inputs.groups.labels), inputs.groups.counts, len(inputs.scores)
    exact, rounded = _tables(level_table, MAX_LEVELS, inputs.scores, inputs.groups.codes, G)

    def measure(counts: IntArray, table: Table) -> Values:
        return score_measures(counts, table.values, settings.contamination, TOP_SHARES, QUANTILES)

    groups = [Column(name, None, int(c)) for name, c in zip(inputs.groups.labels, counts, strict=True)]
    everyone = [Column(None, None, n)]
    columns = {
        "mean_score": groups,
        "score_quantile": [Column(name, f"{q:g}", size) for name, _, size in groups for q in QUANTILES],
        "flag_rate": groups,
        "flag_rate_ratio": everyone,
        "demographic_parity_raw": everyone,
        "demographic_parity": everyone,
        "demographic_parity_corrected": everyone,
        "threshold_free_gap": everyone,
        "top_share_drift": [
            Column(None, f"top {x:.0%}", int((inputs.scores > cut).sum())) for x, cut in _cuts(inputs)
        ],
    }
    found = summarise(_resample(measure, exact, rounded, settings, rng), columns, settings, G - 1)
    welch = float(no_gap_p_value(table_moments(exact.counts[None], exact.values))[0])
    low, high = wilson(counts.astype(float), n, settings.confidence)
    shares = [_level("group_share", g, *e) for g, *e in zip(groups, counts / n, low, high, strict=True)]
    return [*shares, *found, _level("welch_test", everyone[0], welch, np.nan, np.nan)]


def label_family(
    inputs: Inputs, labels: IntArray, settings: Settings, rng: np.random.Generator
) -> list[Measure]:
    """Measures against known outliers; groups are shuffled among rows of the same label."""
    names, codes, G = inputs.groups.labels, inputs.groups.codes, len(inputs.groups.labels)
    exact, rounded = _tables(level_table, MAX_LEVELS, inputs.scores, codes, G, labels, 2)

    def measure(counts: IntArray, _: Table) -> Values:
        return label_measures(counts.reshape(len(counts), G, 2, -1), settings.contamination)

    flagged = inputs.scores > flag_threshold(inputs.scores, settings.contamination)
    rows = {
        "outlier_rate": np.ones(len(labels), dtype=bool),
        "auc": np.ones(len(labels), dtype=bool),
        "average_precision": labels == 1,
        "true_positive_rate": labels == 1,
        "false_positive_rate": labels == 0,
        "precision": flagged,
    }
    columns: dict[str, list[Column]] = {}
    for name, used in rows.items():
        sizes = np.bincount(codes[used], minlength=G).tolist()
        columns[name] = [Column(group, None, n) for group, n in zip(names, sizes, strict=True)]
    columns |= {
        f"{name}_gap": [Column(None, None, int(used.sum()))]
        for name, used in rows.items()
        if name != "outlier_rate"
    }
    return summarise(_resample(measure, exact, rounded, settings, rng), columns, settings, G - 1)


def strata_family(
    inputs: Inputs, strata: Codes, settings: Settings, rng: np.random.Generator
) -> list[Measure]:
    """Gaps among rows of the same stratum; groups are shuffled within strata."""
    G, S = len(inputs.groups.labels), len(strata.names)
    # many rows: the levels of all strata together are about as many as elsewhere
    limit = MAX_LEVELS if len(inputs.scores) <= MAX_LEVELS else max(MAX_LEVELS // S, 100)
    exact, rounded = _tables(class_table, limit, inputs.scores, inputs.groups.codes, G, strata.codes, S)

    def measure(counts: IntArray, table: Table) -> Values:
        return strata_measures(counts, table.values, table.edges)

    n = np.add.reduceat(exact.counts, exact.edges[:-1], axis=1)  # (G, S)
    taking_part = (n >= 2).sum(axis=0)
    used = taking_part >= 2
    everyone = [Column(None, None, int(n[:, used].sum()))]
    each = [Column(None, name, int(size)) for name, size in zip(strata.names, n.sum(axis=0), strict=True)]
    resamples = _resample(measure, exact, rounded, settings, rng)
    overall = {"conditional_parity": everyone, "conditional_parity_corrected": everyone}
    directions = int((taking_part[used] - 1).sum())
    return [
        *summarise(resamples, overall, settings, directions),
        *summarise(resamples, {"parity_within": each}, settings, G - 1),
    ]


def individual_family(
    inputs: Inputs, features: "pd.DataFrame", settings: Settings, rng: np.random.Generator
) -> list[Measure]:
    """Individual unfairness; resampled on m of the n rows, the interval narrowed by ``sqrt(m / n)`` accordingly."""
    import pandas as pd

    G, codes, n = len(inputs.groups.labels), inputs.groups.codes, len(inputs.scores)
    X = pd.get_dummies(features, dtype=float).to_numpy(dtype=float)
    rows = sample_rows(codes, G, MAX_ROWS, rng)
    value = individual_values(inputs.scores[rows], X[rows], codes[rows], settings.length_scale)
    features, scale = comparable_rows(X[rows], codes[rows], settings.length_scale)
    part = pair_rows(codes[rows], G, rng)
    sample = rows[part]
    pairs = PairMeasures(inputs.scores[sample], features[part], codes[sample], G, scale)
    there = pairs.value()
    drawn = pairs.bootstrap(settings.n_bootstrap, rng)
    permuted = pairs.permutations(settings.n_permutations, rng)
    narrow = np.sqrt(len(sample) / n)
    resamples = Resamples(
        value,
        {name: value[name] + narrow * (drawn[name] - there[name]) for name in value},
        {name: value[name] + permuted[name] - there[name] for name in value},
    )
    everyone = (Column(None, None, len(rows)),)
    measures = summarise(resamples, dict.fromkeys(value, everyone), settings, G - 1)
    alike = effective_pairs(features, codes[rows], scale) * (n / len(rows)) ** 2
    if settings.n_permutations > 0 and np.ptp(inputs.scores) > 0:
        # there is no even value to hold it against but this one
        shuffled = {name: float(values.mean()) for name, values in resamples.permuted.items()}
        measures = [replace(m, note=f"{shuffled[m.measure]:.3g} with shuffled groups") for m in measures]
    return [*measures, _level("effective_pairs", everyone[0], alike, np.nan, np.nan)]


def summarise(
    found: Resamples, columns: Mapping[str, Sequence[Column]], settings: Settings, directions: int
) -> list[Measure]:
    """Turn values and resamples into measures with intervals and p-values."""
    confidence = settings.confidence
    ends: dict[str, tuple[FloatArray, FloatArray]] = {}
    measures = []
    for name, places in columns.items():
        kind, value = KINDS[name], found.value[name][0]
        tested = kind.tested_as or name
        p = p_value(KINDS[tested], found.value[tested][0], found.permuted[tested])
        if kind.compares is not None:
            low, high = (np.array([end]) for end in extremes_interval(kind, *ends[kind.compares]))
        else:
            source = tested if kind.twin else name
            low, high = interval(kind, found.value[source][0], found.drawn[source], confidence, directions)
        low, high = bounded(kind, value, low, high, p, confidence)
        ends[name] = low, high
        notes = _undefined(found.drawn[name])
        measures += [
            Measure(name, at.group, at.detail, float(v), float(lo), float(hi), float(pv), np.nan, at.n, note)
            for at, v, lo, hi, pv, note in zip(places, value, low, high, p, notes, strict=True)
        ]
    return measures


def _resample(
    measure: Callable[[IntArray, Table], Values],
    exact: Table,
    rounded: Table,
    settings: Settings,
    rng: np.random.Generator,
) -> Resamples:
    """The measures of the rows as they are, and of tables drawn from the rounded scores."""
    value = measure(exact.counts[None], exact)

    def joined(tables: Iterable[IntArray]) -> Values:
        batches = [measure(counts, rounded) for counts in tables]
        return {
            name: np.concatenate([v[:0], *(batch[name] for batch in batches)]) for name, v in value.items()
        }

    return Resamples(
        value,
        joined(rounded.bootstrap(settings.n_bootstrap, rng)),
        joined(rounded.permutations(settings.n_permutations, rng)),
    )


def _undefined(drawn: FloatArray) -> list[str]:
    """A note for each column that many resamples leave undefined, for want of rows."""
    share = np.isnan(drawn).mean(axis=0) if len(drawn) else np.zeros(drawn.shape[1])
    return [f"undefined in {part:.0%} of the resamples" if part > 0.05 else "" for part in share]


def _tables(make: Callable[..., Table], max_levels: int, *columns: Any) -> tuple[Table, Table]:
    """The table of the rows as they are, and of rounded scores."""
    return make(*columns), make(*columns, max_levels=max_levels)


def _cuts(inputs: Inputs) -> list[tuple[float, float]]:
    return [(share, float(flag_threshold(inputs.scores, share))) for share in TOP_SHARES]


def _level(name: str, at: Column, value: float, low: float, high: float) -> Measure:
    nan = float("nan")
    return Measure(name, at.group, at.detail, float(value), float(low), float(high), nan, nan, at.n, "")
