"""Passes over all rows before any detector is fitted: what the columns are, how many rows each group has, and units.

`survey_rows` looks at the columns. Where groups are no plain values, or features are measured in units, rows can be
told apart only by what was learnt of all of them: they are counted once more then (`count_again`).
"""

import zlib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evenout.core.exceptions import InputError
from evenout.core.folds import row_numbers
from evenout.core.sketch import CAPACITY, FrequentValues
from evenout.detectors.measuring import Measures, Outline, Ranges
from evenout.detectors.units import Units
from evenout.inputs.coder import Coder, Seen
from evenout.inputs.grouping import Tally, count_rows
from evenout.inputs.groups import protected_columns
from evenout.inputs.probable import GroupProbabilities
from evenout.partitions.engines import Engine, Part, Rows, describe, read_rows

Numbers: TypeAlias = npt.NDArray[np.uint64]
Columns: TypeAlias = tuple[tuple[str, Seen], ...]


@dataclass(frozen=True)
class Survey:
    """What one pass over all rows tells.

    Parameters
    ----------
    tally : Counter
        Rows of each group, by name.
    unknown : int
        Rows of unknown group.
    frequent : FrequentValues
        Row numbers that may occur often.
    sensitive, given : tuples of (name, Seen)
        What is known of each column.
    probable : tuple of str
        Names of groups that are known by their probabilities.
    known : int or None
        Rows with a label; None where there is no column of labels.
    combined : Tally
        Rows of each combination of values, stratum and label, where a `Coder` tells them apart.
    ranges : Ranges or None
        Of the features, where they are to be measured in units.
    """

    tally: Counter[str]
    unknown: int
    frequent: FrequentValues
    sensitive: "Columns" = ()
    given: "Columns" = ()
    known: int | None = None
    combined: Tally = field(default_factory=Counter)
    ranges: Ranges | None = None
    probable: tuple[str, ...] = ()

    def __add__(self, other: "Survey") -> "Survey":
        return Survey(
            self.tally + other.tally,
            self.unknown + other.unknown,
            self.frequent + other.frequent,
            _joined(self.sensitive, other.sensitive),
            _joined(self.given, other.given),
            None if self.known is None or other.known is None else self.known + other.known,
            self.combined + other.combined,
            None if self.ranges is None or other.ranges is None else self.ranges + other.ranges,
            self.probable or other.probable,
        )

    @property
    def n_rows(self) -> int:
        """All rows."""
        return self.tally.total() + self.unknown


def survey_rows(
    engine: Engine,
    *,
    unknown_groups: str,
    reference_size: int,
    seed: int,
    continuous: Collection[str] = (),
    measure: bool = False,
) -> Survey:
    """Check all rows, count the groups, and look at the columns, so that a `Coder` can be learnt.

    Protected columns in ``continuous`` are numbers. Rows that occur often enough to be drawn more than once are found,
    or else, to ``measure`` features, their ranges: rows are then told apart once there are units (`count_again`).
    """
    shared = unknown_groups, None if measure else reference_size, seed, tuple(continuous)
    return engine.reduce(_survey_part, Survey.__add__, *shared)


def count_again(
    engine: Engine,
    *,
    unknown_groups: str,
    reference_size: int,
    seed: int,
    coder: Coder | None,
    units: Units | None,
) -> Survey:
    """Count the groups, and find rows that occur often, by what a first survey has told of columns and features."""
    shared = unknown_groups, reference_size, seed, coder, engine.share(units)
    return engine.reduce(_count_part, Survey.__add__, *shared)


def learn_units(engine: Engine, ranges: Ranges, *, exact: bool) -> Units:
    """Units of all rows, in one pass; if ``exact``, those of rows in memory, bit for bit.

    Else their quartiles may be off in rank by less than 1e-5 of the rows: a first look has found bounds that leave
    at most some 1e-3 of them open, and these are sketched with a like error.
    """
    shared = engine.share(ranges.outline()), None if exact else CAPACITY
    return Units.of(engine.reduce(_measure_part, Measures.__add__, *shared))


def content_numbers(rows: Rows, seed: int, units: Units | None) -> Numbers:
    """One number per row from its features, its group's name, its other columns and the seed, shape (m,)."""
    X = rows.X if units is None else units.apply(rows.X)
    names = np.array([*(zlib.crc32(name.encode()) for name in rows.names), -1.0])
    missing = np.finfo(float).min  # as a number of its own
    return row_numbers(np.column_stack([X, names[rows.place], np.nan_to_num(rows.numbers, nan=missing)]), seed)


def _joined(one: Columns, two: Columns) -> Columns:
    """What two chunks of rows tell of the same columns; a chunk without rows tells nothing."""
    if not one or not two:
        return one or two
    return tuple((name, seen + other) for (name, seen), (_, other) in zip(one, two, strict=True))


def _seen(columns: Any, n_rows: int, continuous: Collection[str], name: str) -> Columns:
    if columns is None or not n_rows:
        return ()
    own = [(str(column.name), column) for column in protected_columns(columns, n_rows, None, name=name)]
    return tuple((column, Seen.of(values, number=column in continuous)) for column, values in own)


def _survey_part(
    part: Part, unknown_groups: str, reference_size: int | None, seed: int, continuous: tuple[str, ...]
) -> Survey:
    rows = read_rows(part)
    found = _counted(part, rows, unknown_groups)
    if reference_size is None:
        found = replace(found, ranges=Ranges.of(rows.X, CAPACITY))
    else:
        found = replace(found, frequent=FrequentValues.of(content_numbers(rows, seed, None), reference_size))
    n = len(rows.X)
    if isinstance(rows.beside.sensitive, GroupProbabilities):
        found = replace(found, probable=rows.beside.sensitive.names)
        return replace(found, given=_seen(rows.beside.given, n, (), "given"))
    sensitive = _seen(rows.beside.sensitive, n, continuous, "sensitive_features")
    if any(seen.many or name in continuous for name, seen in sensitive):
        found = replace(found, tally=Counter({"": found.tally.total()}))  # bands are counted, once they are known
    return replace(found, sensitive=sensitive, given=_seen(rows.beside.given, n, (), "given"))


def _count_part(
    part: Part, unknown_groups: str, reference_size: int, seed: int, coder: Coder | None, units: Units | None
) -> Survey:
    rows = read_rows(part, coder)
    frequent = FrequentValues.of(content_numbers(rows, seed, units), reference_size)
    found = replace(_counted(part, rows, unknown_groups), frequent=frequent)
    return found if coder is None else replace(found, combined=count_rows(coder, rows.numbers))


def _measure_part(part: Part, outline: Outline, capacity: int | None) -> Measures:
    return Measures.of(read_rows(part).X, outline, capacity)


def _counted(part: Part, rows: Rows, unknown_groups: str) -> Survey:
    """Rows of each group, and those with a label; rows without a group may be refused."""
    unknown = rows.place < 0
    if unknown.any() and unknown_groups == "error":
        raise InputError(
            "{where}: {@sensitive_features} has missing values in {unknown} of {n_rows} rows (first: {#row}); "
            "fill them in, or set {unknown_groups='ignore'} to use these rows without a group",
            where=describe(part, len(unknown)), unknown=unknown.sum(), n_rows=len(unknown), row=unknown.argmax(),
        )  # fmt: skip
    counts = np.bincount(rows.place[~unknown], minlength=len(rows.names))
    tally = Counter(dict(zip(rows.names, counts.tolist(), strict=True)))
    labels, nothing = rows.beside.labels, FrequentValues.of(np.empty(0, dtype=np.uint64), 0)
    return Survey(tally, int(unknown.sum()), nothing, known=None if labels is None else int((labels >= 0).sum()))
