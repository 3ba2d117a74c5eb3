"""From values and their resamples to measures with intervals and p-values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenout.auditing.inference import (
    extremes_interval,
    gap_interval,
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
        p = _p_value(found, kind.tested_as or name, len(value))
        low, high = within_range(kind, value, *_interval(found, name, columns, settings))
        notes = _undefined(found.drawn[name])
        measures += [
            Measure(name, at.group, at.detail, float(v), float(lo), float(hi), float(pv), np.nan, at.n, note)
            for at, v, lo, hi, pv, note in zip(places, value, low, high, p, notes, strict=True)
        ]
    return measures


def _p_value(found: Resamples, name: str, width: int) -> FloatArray:
    if name not in found.permuted:  # tested otherwise
        return np.full(width, np.nan)
    kind = MEANINGS[name]
    ties = (found.value[kind.ties][0], found.permuted[kind.ties]) if kind.ties else None
    return p_value(kind, found.value[name][0], found.permuted[name], ties)


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
    units = np.array([at.units for at in places], dtype=float)

    def ends(z: float) -> tuple[FloatArray, FloatArray]:
        low, high = level_interval(MEANINGS[compared], value, drawn, units, z)
        return (1 - high, 1 - low) if kind.rest else (low, high)

    of_groups = 1 - value if kind.rest else value
    low, high = extremes_interval(kind, of_groups, ends, drawn, confidence)
    return np.array([low]), np.array([high])


def _undefined(drawn: FloatArray) -> list[str]:
    """A note for each column that many resamples leave undefined, for want of rows."""
    share = np.isnan(drawn).mean(axis=0) if len(drawn) else np.zeros(drawn.shape[1])
    return [f"undefined in {part:.0%} of the resamples" if part > 0.05 else "" for part in share]
