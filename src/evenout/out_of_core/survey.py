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
from evenout.exceptions import InputError
from evenout.groups.model import Coder, Seen, Tally, count_rows
from evenout.groups.read import GroupProbabilities, protected_columns, settle_names, warn_left_out
from evenout.groups.rules import Groups
from evenout.out_of_core.engines import Engine, Part, Rows, describe, read_rows

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
    rules: Groups,
    reference_size: int,
    seed: int,
    measure: bool = False,
) -> Survey:
    """Check all rows, count the groups, and look at the columns, so that a `Coder` can be learnt.

    Rows that occur often enough to be drawn more than once are found,
    or else, to ``measure`` features, their ranges: rows are then told apart once there are units (`count_again`).
    """
    shared = rules, None if measure else reference_size, seed
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
    shared = rules, reference_size, seed, coder, engine.share(units)
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


def _survey_part(part: Part, rules: Groups, reference_size: int | None, seed: int) -> Survey:
    rows = read_rows(part)
    found = _counted(part, rows, rules)
    if reference_size is None:
        found = replace(found, ranges=Ranges.of(rows.X, CAPACITY))
    else:
        found = replace(found, frequent=FrequentValues.of(content_numbers(rows, seed, None), reference_size))
    n = len(rows.X)
    if isinstance(rows.beside.sensitive, GroupProbabilities):
        found = replace(found, probable=rows.beside.sensitive.names)
        return replace(found, given=_seen(rows.beside.given, n, (), "given"))
    sensitive = _seen(rows.beside.sensitive, n, rules.continuous, "sensitive_features")
    if any(seen.many or name in rules.continuous for name, seen in sensitive):
        found = replace(found, tally=Counter({"": found.tally.total()}))  # bands are counted, once they are known
    return replace(found, sensitive=sensitive, given=_seen(rows.beside.given, n, (), "given"))


def _count_part(
    part: Part, rules: Groups, reference_size: int, seed: int, coder: Coder | None, units: Units | None
) -> Survey:
    rows = read_rows(part, coder)
    frequent = FrequentValues.of(content_numbers(rows, seed, units), reference_size)
    found = replace(_counted(part, rows, rules), frequent=frequent)
    return found if coder is None else replace(found, combined=count_rows(coder, rows.numbers))


def _measure_part(part: Part, outline: Outline, capacity: int | None) -> Measures:
    return Measures.of(read_rows(part).X, outline, capacity)


def _counted(part: Part, rows: Rows, rules: Groups) -> Survey:
    """Rows of each group, and those with a label; rows without a group may be refused."""
    unknown = rows.place < 0
    if unknown.any() and rules.unknown == "error":
        raise InputError(
            "{where}: {@sensitive_features} has missing values in {unknown} of {n_rows} rows (first: {#row}); "
            "fill them in, or set {unknown='ignore'} to use these rows without a group",
            where=describe(part, len(unknown)), unknown=unknown.sum(), n_rows=len(unknown), row=unknown.argmax(),
        )  # fmt: skip
    counts = np.bincount(rows.place[~unknown], minlength=len(rows.names))
    tally = Counter(dict(zip(rows.names, counts.tolist(), strict=True)))
    labels, nothing = rows.beside.labels, FrequentValues.of(np.empty(0, dtype=np.uint64), 0)
    return Survey(tally, int(unknown.sum()), nothing, known=None if labels is None else int((labels >= 0).sum()))


_LEAST = 1000  # rows of each group in the reference, where it has as many and the reference has room
_UNIT = 2.0**64  # row numbers lie below this


@dataclass(frozen=True)
class Settled:
    """The groups of all rows.

    Parameters
    ----------
    labels : tuple of str
    codes : mapping
        From each name that occurs to its group's place in ``labels``; small groups may share one. -1 for a group that
        is left out.
    counts : array of int, (G + 1,)
        Rows of each group; the last entry counts those of unknown group, or of one that is left out.
    left_out : dict of str to int
        Groups that are too small to be measured, and their rows.
    """

    labels: tuple[str, ...]
    codes: Mapping[str, int]
    counts: IntArray
    left_out: dict[str, int]


@dataclass(frozen=True)
class Reference:
    """Drawn rows: features (m, d), group codes (m,), group names (m,), columns as numbers (m, c), `Rows.known` (m, 2).

    If ``complete``, all rows in their order.
    """

    X: FloatArray
    codes: IntArray
    labels: npt.NDArray[np.object_]
    columns: FloatArray
    known: FloatArray
    complete: bool


def settle_groups(survey: Survey, rules: Groups, *, quiet: bool = False) -> Settled:
    """Refuse or merge small groups by the rules for rows in memory; probable groups are settled elsewhere."""
    if survey.probable:
        total = np.array([*(survey.tally[name] for name in survey.probable), survey.unknown], dtype=np.intp)
        return Settled(survey.probable, {name: code for code, name in enumerate(survey.probable)}, total, {})
    groups, codes = settle_names(survey.tally, rules)
    names = sorted(survey.tally)
    counts = np.array([survey.tally[name] for name in names], dtype=np.intp)
    total = np.zeros(len(groups.labels) + 1, dtype=np.intp)
    np.add.at(total, [codes[name] for name in names], counts)
    total[-1] += survey.unknown
    if not quiet:
        warn_left_out(groups, rules.min_size)
    return Settled(groups.labels, codes, total, groups.left_out)


def draw_reference(
    engine: Engine,
    survey: Survey,
    groups: Settled,
    *,
    reference_size: int,
    seed: int,
    coder: Coder | None = None,
    units: Units | None = None,
) -> Reference:
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
    return Reference(X, codes, labels, drawn.columns[rows], drawn.known[rows], complete)


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
        _, first, place = np.unique(self.numbers[often], return_index=True, return_inverse=True)
        kept = np.sort(np.r_[np.flatnonzero(~self.often), often[first]])
        counts = self.counts.copy()
        counts[often[first]] = np.bincount(place, self.counts[often], minlength=len(first)).astype(np.intp)
        parts = {**vars(self), "counts": counts}
        return _Drawn(**{name: values[kept] for name, values in parts.items()})

    def copies(self, rates: FloatArray) -> IntArray:
        """How often each candidate enters the reference, shape (m,)."""
        rate, chance = rates[self.codes], self.numbers / _UNIT
        expected = self.counts * rate
        thinned = np.where(expected >= 1, np.floor(expected + chance), self.counts * (chance < rate))
        return np.where(self.often, thinned, 1).astype(np.intp)


def _draw_part(
    part: Part,
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
    taken = repeated | (numbers / _UNIT < rates[codes]) | (rates[codes] >= 1)
    counts = np.ones(len(codes), dtype=np.intp)
    candidates = _Drawn(rows.X, codes, rows.labels(), rows.numbers, rows.known(), numbers, counts, repeated)
    return _Drawn(*(values[taken] for values in vars(candidates).values()))._joined()
