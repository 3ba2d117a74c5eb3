"""From values and their resamples to measures with intervals and p-values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenout.auditing.inference import (
    extremes_interval,
    gap_interval,
    interval_p_value,
    level_interval,
    p_value,
    within_range,
)
from evenout.auditing.meanings import MEANINGS, Meaning
from evenout.auditing.measures import Values
from evenout.auditing.result import Measure
from evenout.core.intervals import normal_value
from evenout.core.similarity import LengthScale
from evenout.core.types import FloatArray


@dataclass(frozen=True)
class Settings:
    """How to audit: see `evenout.audit`. ``share`` is the share of all rows that is flagged."""

    share: float
    n_bootstrap: int
    n_permutations: int
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
    if settings.n_permutations == 0:
        return np.array([np.nan])
    ends = _ends(found, kind, kind.compares, columns[kind.compares])
    return np.array([interval_p_value(found.value[kind.compares][0], ends, found.drawn[kind.compares])])


def _undefined(drawn: FloatArray) -> list[str]:
    """A note for each column that many resamples leave undefined, for want of rows."""
    share = np.isnan(drawn).mean(axis=0) if len(drawn) else np.zeros(drawn.shape[1])
    return [f"undefined in {part:.0%} of the resamples" if part > 0.05 else "" for part in share]
