"""Columns of text and gaps over partitions: one pass learns the encoder that a table in memory would have learnt."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from evenout.core.exceptions import InputError, UnknownCategoryWarning
from evenout.core.sketch import QuantileSketch
from evenout.inputs.table import MAX_CATEGORIES, TableEncoder, column_numbers, column_texts
from evenout.partitions.engines import Engine, Part, describe

SomeEngine = TypeVar("SomeEngine", bound=Engine)


def learn_table(engine: Engine) -> TableEncoder:
    """Medians and categories of all rows; the header says which columns hold text (by the type ``object``).

    A median comes from a sketch: exact up to 16,384 values, then off by less than 1e-3 in rank.
    """
    header = engine.header
    texts = [str(name) for name in header.columns if header[name].dtype == object]
    numbers = [str(name) for name in header.columns if name not in texts]
    found = engine.reduce(_learn_part, _Columns.__add__, numbers, texts)
    empty = [name for name in header.columns if not found.filled[name]]
    if empty:
        raise ValueError(
            f"no value at all in column {', '.join(map(repr, empty))}; fill it in, or leave it out (--drop)"
        )
    for name, values in found.texts.items():
        if len(values) > MAX_CATEGORIES:
            raise ValueError(
                f"column {name!r} holds more than the {MAX_CATEGORIES} different texts that a category may have; "
                "leave it out (--drop)"
            )
    medians = {name: sketch.quantile(0.5) for name, sketch in found.numbers.items()}
    return TableEncoder.from_learnt(
        list(map(str, header.columns)),
        medians,
        {name: sorted(values) for name, values in found.texts.items()},
    )


def encoded(engine: SomeEngine, table: TableEncoder) -> SomeEngine:
    """The engine over encoded rows: arrays of numbers without gaps."""
    given: Any = engine
    parts = [replace(part, load=partial(_encode, part, table)) for part in given.parts]
    return replace(given, parts=parts, header=np.empty((0, len(table.get_feature_names_out()))))


def count_unknown(engine: Engine, table: TableEncoder) -> dict[str, int]:
    """Rows whose text the fit did not have, by column; these are encoded as none of the known values."""
    if not table.categories_:
        return {}
    total: Counter[str] = engine.reduce(_unknown_part, _added, table)
    return dict(total)


@dataclass(frozen=True)
class _Columns:
    """Values of each column: a sketch of numbers, the different texts, and how many are not missing."""

    numbers: Mapping[str, QuantileSketch]
    texts: Mapping[str, frozenset[str]]
    filled: Counter[str]

    def __add__(self, other: "_Columns") -> "_Columns":
        return _Columns(
            {name: sketch + other.numbers[name] for name, sketch in self.numbers.items()},
            {name: _few(values | other.texts[name]) for name, values in self.texts.items()},
            self.filled + other.filled,
        )


def _few(values: frozenset[str]) -> frozenset[str]:
    """One more than is allowed tells as much as all of them."""
    return frozenset(sorted(values)[: MAX_CATEGORIES + 1])


def _learn_part(part: Part, numbers: list[str], texts: list[str]) -> _Columns:
    frame, *_ = part.load()
    with _located(part, len(frame)):
        values = {name: column_numbers(name, frame[name]) for name in numbers}
    sketches = {name: QuantileSketch.of(column[~np.isnan(column)]) for name, column in values.items()}
    found = {name: _few(frozenset(np.unique(column_texts(frame[name])).tolist())) for name in texts}
    return _Columns(sketches, found, Counter({name: int(frame[name].notna().sum()) for name in frame.columns}))


def _encode(part: Part, table: TableEncoder) -> tuple[Any, ...]:
    frame, *beside = part.load()
    if not len(frame):
        return np.empty((0, len(table.get_feature_names_out()))), *beside
    with _located(part, len(frame)), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownCategoryWarning)  # counted over all partitions
        return table.transform(frame), *beside


def _unknown_part(part: Part, table: TableEncoder) -> Counter[str]:
    frame, *_ = part.load()
    return Counter({name: sum(counts.values()) for name, counts in table.unknown_values(frame).items()})


def _added(counts: Counter[str], others: Counter[str]) -> Counter[str]:
    return counts + others


@contextmanager
def _located(part: Part, n_rows: int) -> Iterator[None]:
    """Complaints about values begin with where the rows come from."""
    try:
        yield
    except ValueError as error:
        raise InputError("{where}: {error}", where=describe(part, n_rows, counted_from=1), error=error) from None
