"""One pass over all partitions, and the reference rows drawn from them.

`survey_rows` tallies the columns. Where groups are not plain values, or features are measured in units, groups and
equal rows are known only once all rows have been read: a second survey counts them then.

Whether a row is drawn depends on its content, in units where there are some, and on the seed alone, so the reference
depends neither on how the rows are cut into partitions nor on their order. Every group has a share of the reference, so
that small groups are present.
"""

import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evenout.core.content import row_numbers
from evenout.core.sketch import CAPACITY, FrequentValues
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.units import Measures, Ranges, Units
from evenout.groups.model import Coder, Columns, Tally, count_rows, tally_columns
from evenout.groups.read import GroupProbabilities, KeptGroups, protected_columns, refuse_unknown, settle, warn_left_out
from evenout.groups.rules import Groups
from evenout.out_of_core.engines import Engine, Partition, PartitionRows, read_rows

Numbers: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Survey:
    """Results of one pass over all rows."""

    tally: Counter[str]  # rows of each group, by name
    unknown: int  # rows of unknown group
    frequent: FrequentValues  # row numbers that may occur often
    sensitive: Columns = ()
    given: Columns = ()
    known: int | None = None  # rows with a label; None where there is no column of labels
    # Rows of each combination of values, stratum and label, by a `Coder`.
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
    coder: Coder | None = None,
    units: Units | None = None,
) -> Survey:
    """Check all rows, count the groups, and find rows that occur often enough to be drawn more than once.

    A first survey tallies the columns, from which a `Coder` is learnt. To ``measure`` features it gathers their ranges
    instead of frequent rows. Where it has led to a ``coder`` or to ``units``, rows are surveyed again by these.
    """
    return engine.reduce(
        _survey_part, Survey.__add__, rules, None if measure else reference_size, seed, coder, engine.share(units)
    )


def learn_units(engine: Engine, ranges: Ranges, *, exact: bool) -> Units:
    """Units of all rows, in one pass; if ``exact``, those of rows in memory, bit for bit.

    Otherwise quartiles may be off in rank by less than 1e-5 of the rows: ``ranges`` leave at most some 1e-3 of the
    values open, and these are sketched with a similar relative error.
    """
    return engine.reduce(
        lambda part, outline, capacity: Measures.of(read_rows(part).X, outline, capacity),
        Measures.__add__, engine.share(ranges.outline()), None if exact else CAPACITY,
    ).units()  # fmt: skip


def content_numbers(rows: PartitionRows, seed: int, units: Units | None) -> Numbers:
    """One number per row from its features, its group's name, its other columns and the seed, shape (m,)."""
    X = rows.X if units is None else units.apply(rows.X)
    names = np.array([*(zlib.crc32(name.encode()) for name in rows.groups.labels), -1.0])
    missing = np.finfo(float).min  # as a number of its own
    return row_numbers(np.column_stack([X, names[rows.groups.codes], np.nan_to_num(rows.numbers, nan=missing)]), seed)


def _joined(one: Columns, two: Columns) -> Columns:
    """Add the tallies of two chunks of rows, column by column; a chunk without rows has none."""
    if not one or not two:
        return one or two
    return tuple((name, tally + other) for (name, tally), (_, other) in zip(one, two, strict=True))


def _survey_part(
    part: Partition, rules: Groups, reference_size: int | None, seed: int, coder: Coder | None, units: Units | None
) -> Survey:
    """Count the groups of a partition, or refuse rows without one; the first survey tallies its columns as well."""
    rows = read_rows(part, coder)
    n, chunk, groups = len(rows.X), rows.chunk, rows.groups
    with part.located(n):
        refuse_unknown(groups.codes, rules)
    numbers = np.empty(0, dtype=np.uint64) if reference_size is None else content_numbers(rows, seed, units)
    first = coder is None and units is None and chunk.sensitive is not None and n > 0
    probable = chunk.sensitive.names if first and isinstance(chunk.sensitive, GroupProbabilities) else ()
    strata = protected_columns(chunk.given, n, None, name="given") if first and chunk.given is not None else ()
    columns = protected_columns(chunk.sensitive, n, None) if first and not probable else ()
    given, sensitive = tally_columns(strata), tally_columns(columns, rules.continuous)
    tally = dict(zip(groups.labels, groups.counts.tolist(), strict=True))
    if any(each.continuous or name in rules.continuous for name, each in sensitive):
        tally = {"": sum(tally.values())}  # bands are counted once they are known
    return Survey(
        tally=Counter(tally),
        unknown=int((groups.codes < 0).sum()),
        frequent=FrequentValues.of(numbers, reference_size or 0),
        sensitive=sensitive,
        given=given,
        known=None if chunk.labels is None else int((chunk.labels >= 0).sum()),
        combined=Counter() if coder is None else count_rows(coder, rows.numbers),
        ranges=Ranges.of(rows.X, CAPACITY) if reference_size is None else None,
        probable=probable,
    )


_LEAST = 1000  # rows of each group in the reference, where it has as many and the reference has room
_UNIT = 2.0**64  # row numbers lie below this


@dataclass(frozen=True)
class DrawnRows:
    """Rows of the reference, or candidates for it; candidates that occur often are there once, with their counts."""

    X: FloatArray  # (m, d)
    codes: IntArray  # (m,): groups
    labels: npt.NDArray[np.object_]  # (m,): names of the groups
    columns: FloatArray  # (m, c): `PartitionRows.numbers`
    known: FloatArray  # (m, 2): `PartitionRows.known`
    numbers: Numbers
    counts: IntArray
    often: BoolArray

    def at(self, rows: Any) -> "DrawnRows":
        """Some of the rows, by index or mask."""
        return DrawnRows(*(values[rows] for values in vars(self).values()))

    def __add__(self, other: "DrawnRows") -> "DrawnRows":
        return DrawnRows(*map(np.concatenate, zip(vars(self).values(), vars(other).values(), strict=True))).joined()

    def joined(self) -> "DrawnRows":
        """Join equal rows that occur often into one row, and add their counts."""
        often = np.flatnonzero(self.often)
        _, first, copy_of = np.unique(self.numbers[often], return_index=True, return_inverse=True)
        counts = self.counts.copy()
        counts[often[first]] = np.bincount(copy_of, self.counts[often], minlength=len(first)).astype(np.intp)
        return replace(self, counts=counts).at(np.sort(np.r_[np.flatnonzero(~self.often), often[first]]))


def settle_groups(survey: Survey, rules: Groups, *, quiet: bool = False) -> tuple[KeptGroups, IntArray]:
    """Settle small groups by the rules for rows in memory, or take probable groups as they are.

    Returns the groups and the rows of each, shape (G + 1,); the last entry counts rows of no group that is compared.
    """
    groups = (
        KeptGroups(survey.probable, {name: code for code, name in enumerate(survey.probable)}, {})
        if survey.probable
        else settle(survey.tally, rules)
    )
    counts = np.zeros(len(groups.labels) + 1, dtype=np.intp)
    np.add.at(counts, [groups.code_of[name] for name in survey.tally], [*survey.tally.values()])
    counts[-1] += survey.unknown
    if not quiet:
        warn_left_out(groups.left_out, len(groups.labels), rules.min_size)
    return groups, counts


def draw_reference(
    engine: Engine,
    survey: Survey,
    code_of: Mapping[str, int],
    counts: IntArray,
    *,
    reference_size: int,
    seed: int,
    coder: Coder | None = None,
    units: Units | None = None,
) -> tuple[DrawnRows, bool]:
    """Draw about ``reference_size`` rows; or take all, in their order, if there are no more. The flag says which.

    ``code_of`` has the code of each group by name, ``counts`` are those of `settle_groups`. Rows that occur more than
    ``n / reference_size`` times are drawn in proportion; of others all copies come or none.
    """
    rates, frequent = sampling_rates(counts, reference_size), survey.frequent
    least = 1.0 / rates.min() if rates.min() < 1 else np.inf
    often = frequent.values[frequent.counts + frequent.missed >= least]
    drawn = engine.reduce(_draw_part, DrawnRows.__add__, code_of, rates, often, seed, coder, engine.share(units))
    rate, chance = rates[drawn.codes], drawn.numbers / _UNIT
    expected = drawn.counts * rate
    thinned = np.where(expected >= 1, np.floor(expected + chance), drawn.counts * (chance < rate))
    copies = np.where(drawn.often, thinned, 1).astype(np.intp)
    rows = np.repeat(np.arange(len(copies)), copies)
    complete = bool((rates == 1).all())
    if not complete:  # by content, as forests depend on the order
        rows = rows[np.argsort(drawn.numbers[rows], kind="stable")]
    return drawn.at(rows), complete


def sampling_rates(counts: IntArray, reference_size: int) -> FloatArray:
    """Share of each group's rows to draw, shape as ``counts``; 1 for an empty group.

    Every group gets up to 1000 rows, half of the reference at most together; the rest is drawn in proportion.

    >>> sampling_rates(np.array([10, 100_000, 0]), 1000).round(6).tolist()
    [1.0, 0.0099, 1.0]
    """
    n = int(counts.sum())
    if n <= reference_size:
        return np.ones(len(counts))
    least = np.minimum(counts, min(_LEAST, reference_size // (2 * int(np.count_nonzero(counts)))))
    share = (reference_size - least.sum()) / (n - least.sum())
    return np.where(counts > 0, (least + share * (counts - least)) / np.maximum(counts, 1), 1.0)


def _draw_part(
    part: Partition,
    known: Mapping[str, int],
    rates: FloatArray,
    often: Numbers,
    seed: int,
    coder: Coder | None,
    units: Units | None,
) -> DrawnRows:
    rows = read_rows(part, coder)
    codes, numbers = rows.groups.recoded(known), content_numbers(rows, seed, units)
    repeated = np.isin(numbers, often) & (rates[codes] < 1)
    chosen = repeated | (numbers / _UNIT < rates[codes]) | (rates[codes] >= 1)
    beside = rows.labels(), rows.numbers, rows.known(), numbers, np.ones(len(codes), dtype=np.intp), repeated
    return DrawnRows(rows.X, codes, *beside).at(chosen).joined()
