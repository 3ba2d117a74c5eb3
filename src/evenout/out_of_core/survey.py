"""One pass over all partitions, and the reference rows drawn from them.

`survey_rows` looks at the columns. Where groups are no plain values, or features are measured in units, rows can be
told apart only by what was learnt of all of them: they are counted once more then (`count_again`).

Whether a row is drawn is decided by its own content, in units where there are some, and the seed, so the reference
depends neither on how the rows are cut into partitions nor on their order. Every group keeps a share of its own, so
that small groups are present.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evenout.core.content import row_numbers
from evenout.core.sketch import CAPACITY, FrequentValues
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.units import Measures, Outline, Ranges, Units
from evenout.groups.model import Coder, ColumnTally, Tally, count_rows
from evenout.groups.read import GroupProbabilities, protected_columns, refuse_unknown, settle, warn_left_out
from evenout.groups.rules import Groups
from evenout.out_of_core.engines import Engine, Partition, PartitionRows, read_rows

Numbers: TypeAlias = npt.NDArray[np.uint64]
Columns: TypeAlias = tuple[tuple[str, ColumnTally], ...]


@dataclass(frozen=True)
class Survey:
    """Results of one pass over all rows."""

    tally: Counter[str]  # rows of each group, by name
    unknown: int  # rows of unknown group
    frequent: FrequentValues  # row numbers that may occur often
    sensitive: "Columns" = ()  # the findings about each column
    given: "Columns" = ()
    known: int | None = None  # rows with a label; None where there is no column of labels
    # Rows of each combination of values, stratum and label, where a `Coder` tells them apart.
    combined: Tally = field(default_factory=Counter)
    ranges: Ranges | None = None  # of the features, where they are to be measured in units
    probable: tuple[str, ...] = ()  # names of groups that are known by their probabilities

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
    rules: Groups,
    reference_size: int,
    seed: int,
    measure: bool = False,
) -> Survey:
    """Check all rows, count the groups, and look at the columns, so that a `Coder` can be learnt.

    Rows that occur often enough to be drawn more than once are found, or else, to ``measure`` features, their ranges:
    rows are then told apart once there are units (`count_again`).
    """
    shared = rules, None if measure else reference_size, seed, None, None, True
    return engine.reduce(_survey_part, Survey.__add__, *shared)


def count_again(
    engine: Engine,
    *,
    rules: Groups,
    reference_size: int,
    seed: int,
    coder: Coder | None,
    units: Units | None,
) -> Survey:
    """Count the groups, and find rows that occur often, by what a first survey has told of columns and features."""
    shared = rules, reference_size, seed, coder, engine.share(units), False
    return engine.reduce(_survey_part, Survey.__add__, *shared)


def learn_units(engine: Engine, ranges: Ranges, *, exact: bool) -> Units:
    """Units of all rows, in one pass; if ``exact``, those of rows in memory, bit for bit.

    Else their quartiles may be off in rank by less than 1e-5 of the rows: a first look has found bounds that leave
    at most some 1e-3 of them open, and these are sketched with a like error.
    """

    def measure(part: Partition, outline: Outline, capacity: int | None) -> Measures:
        return Measures.of(read_rows(part).X, outline, capacity)

    shared = engine.share(ranges.outline()), None if exact else CAPACITY
    return engine.reduce(measure, Measures.__add__, *shared).units()


def content_numbers(rows: PartitionRows, seed: int, units: Units | None) -> Numbers:
    """One number per row from its features, its group's name, its other columns and the seed, shape (m,)."""
    X = rows.X if units is None else units.apply(rows.X)
    names = np.array([*(zlib.crc32(name.encode()) for name in rows.names), -1.0])
    missing = np.finfo(float).min  # as a number of its own
    return row_numbers(np.column_stack([X, names[rows.index], np.nan_to_num(rows.numbers, nan=missing)]), seed)


def _joined(one: Columns, two: Columns) -> Columns:
    """Add up the findings of two chunks of rows about the same columns; a chunk without rows has none."""
    if not one or not two:
        return one or two
    return tuple((name, seen + other) for (name, seen), (_, other) in zip(one, two, strict=True))


def _seen(columns: Any, n_rows: int, continuous: Collection[str], name: str) -> Columns:
    if columns is None or not n_rows:
        return ()
    own = [(str(column.name), column) for column in protected_columns(columns, n_rows, None, name=name)]
    return tuple((column, ColumnTally.of(values, number=column in continuous)) for column, values in own)


def _survey_part(
    part: Partition,
    rules: Groups,
    reference_size: int | None,
    seed: int,
    coder: Coder | None,
    units: Units | None,
    first: bool,
) -> Survey:
    """Count the groups, or refuse rows without one; columns are looked at the ``first`` time alone."""
    rows = read_rows(part, coder)
    n, unknown, labels = len(rows.X), rows.index < 0, rows.chunk.labels
    with part.located(n):
        refuse_unknown(rows.index, rules)
    counts = np.bincount(rows.index[~unknown], minlength=len(rows.names))
    numbers = np.empty(0, dtype=np.uint64) if reference_size is None else content_numbers(rows, seed, units)
    survey = Survey(
        tally=Counter(dict(zip(rows.names, counts.tolist(), strict=True))),
        unknown=int(unknown.sum()),
        frequent=FrequentValues.of(numbers, reference_size or 0),
        known=None if labels is None else int((labels >= 0).sum()),
        combined=Counter() if coder is None else count_rows(coder, rows.numbers),
        ranges=Ranges.of(rows.X, CAPACITY) if reference_size is None else None,
    )
    if not first:
        return survey
    survey = replace(survey, given=_seen(rows.chunk.given, n, (), "given"))
    if isinstance(rows.chunk.sensitive, GroupProbabilities):
        return replace(survey, probable=rows.chunk.sensitive.names)
    sensitive = _seen(rows.chunk.sensitive, n, rules.continuous, "sensitive_features")
    if any(seen.continuous or name in rules.continuous for name, seen in sensitive):
        survey = replace(survey, tally=Counter({"": survey.tally.total()}))  # bands are counted, once they are known
    return replace(survey, sensitive=sensitive)


_LEAST = 1000  # rows of each group in the reference, where it has as many and the reference has room
_UNIT = 2.0**64  # row numbers lie below this


@dataclass(frozen=True)
class SettledGroups:
    """The groups of all rows."""

    labels: tuple[str, ...]
    # From each name that occurs to the index of its group; small groups may share one. -1 for a group that is left out.
    codes: Mapping[str, int]
    # (G + 1,): rows of each group; the last entry counts those of unknown group, or of one that is left out
    counts: IntArray
    left_out: dict[str, int]  # groups that are too small to be measured, and their rows


@dataclass(frozen=True)
class DrawnRows:
    """Features (m, d), group codes and names (m,), columns as numbers (m, c) and `PartitionRows.known` (m, 2).

    If ``complete``, these are all rows in their order.
    """

    X: FloatArray
    codes: IntArray
    labels: npt.NDArray[np.object_]
    columns: FloatArray
    known: FloatArray
    complete: bool


def settle_groups(survey: Survey, rules: Groups, *, quiet: bool = False) -> SettledGroups:
    """Refuse or merge small groups by the rules for rows in memory; probable groups are settled elsewhere."""
    if survey.probable:
        total = np.array([*(survey.tally[name] for name in survey.probable), survey.unknown], dtype=np.intp)
        return SettledGroups(survey.probable, {name: code for code, name in enumerate(survey.probable)}, total, {})
    labels, codes, left_out = settle(survey.tally, rules)
    names = sorted(survey.tally)
    counts = np.array([survey.tally[name] for name in names], dtype=np.intp)
    total = np.zeros(len(labels) + 1, dtype=np.intp)
    np.add.at(total, [codes[name] for name in names], counts)
    total[-1] += survey.unknown
    if not quiet:
        warn_left_out(left_out, len(labels), rules.min_size)
    return SettledGroups(labels, codes, total, left_out)


def draw_reference(
    engine: Engine,
    survey: Survey,
    groups: SettledGroups,
    *,
    reference_size: int,
    seed: int,
    coder: Coder | None = None,
    units: Units | None = None,
) -> DrawnRows:
    """Draw about ``reference_size`` rows, or take all if there are no more.

    Rows that occur more than ``n / reference_size`` times are drawn in proportion; of others all copies come or none.
    """
    rates = sampling_rates(groups.counts, reference_size)
    often = survey.frequent.at_least(1.0 / rates.min()) if rates.min() < 1 else np.empty(0, dtype=np.uint64)
    shared = groups.codes, rates, often, seed, coder, engine.share(units)
    drawn = engine.reduce(_draw_part, _Drawn.__add__, *shared)
    complete = bool((rates == 1).all())
    copies = drawn.copies(rates)
    rows = np.repeat(np.arange(len(copies)), copies)
    if not complete:  # by content, as forests depend on the order
        rows = rows[np.argsort(drawn.numbers[rows], kind="stable")]
    X, codes, labels = drawn.X[rows], drawn.codes[rows], drawn.labels[rows]
    return DrawnRows(X, codes, labels, drawn.columns[rows], drawn.known[rows], complete)


def sampling_rates(counts: IntArray, reference_size: int) -> FloatArray:
    """Share of each group's rows to draw, shape as ``counts``; 1 for an empty group.

    Every group gets up to 1000 rows, half of the reference at most together; the rest is drawn in proportion.

    >>> sampling_rates(np.array([10, 100_000, 0]), 1000).round(6).tolist()
    [1.0, 0.0099, 1.0]
    """
    n = int(counts.sum())
    if n <= reference_size:
        return np.ones(len(counts))
    room = reference_size // (2 * int(np.count_nonzero(counts)))
    least = np.minimum(counts, min(_LEAST, room))
    share = (reference_size - least.sum()) / (n - least.sum())
    wanted = least + share * (counts - least)
    return np.where(counts > 0, wanted / np.maximum(counts, 1), 1.0)


@dataclass(frozen=True)
class _Drawn:
    """Candidates: rows that count once, and rows that occur often, with how often they were seen."""

    X: FloatArray
    codes: IntArray
    labels: npt.NDArray[np.object_]
    columns: FloatArray
    known: FloatArray
    numbers: Numbers
    counts: IntArray
    often: BoolArray

    def __add__(self, other: "_Drawn") -> "_Drawn":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Drawn(*(np.concatenate(pair) for pair in pairs))._joined()

    def _joined(self) -> "_Drawn":
        """Equal rows that occur often become one row with their counts added."""
        often = np.flatnonzero(self.often)
        _, first, copy_of = np.unique(self.numbers[often], return_index=True, return_inverse=True)
        kept = np.sort(np.r_[np.flatnonzero(~self.often), often[first]])
        counts = self.counts.copy()
        counts[often[first]] = np.bincount(copy_of, self.counts[often], minlength=len(first)).astype(np.intp)
        parts = {**vars(self), "counts": counts}
        return _Drawn(**{name: values[kept] for name, values in parts.items()})

    def copies(self, rates: FloatArray) -> IntArray:
        """How often each candidate enters the reference, shape (m,)."""
        rate, chance = rates[self.codes], self.numbers / _UNIT
        expected = self.counts * rate
        thinned = np.where(expected >= 1, np.floor(expected + chance), self.counts * (chance < rate))
        return np.where(self.often, thinned, 1).astype(np.intp)


def _draw_part(
    part: Partition,
    known: Mapping[str, int],
    rates: FloatArray,
    often: Numbers,
    seed: int,
    coder: Coder | None,
    units: Units | None,
) -> _Drawn:
    rows = read_rows(part, coder)
    codes, numbers = rows.codes(known), content_numbers(rows, seed, units)
    repeated = np.isin(numbers, often) & (rates[codes] < 1)
    chosen = repeated | (numbers / _UNIT < rates[codes]) | (rates[codes] >= 1)
    counts = np.ones(len(codes), dtype=np.intp)
    candidates = _Drawn(rows.X, codes, rows.labels(), rows.numbers, rows.known(), numbers, counts, repeated)
    return _Drawn(*(values[chosen] for values in vars(candidates).values()))._joined()
