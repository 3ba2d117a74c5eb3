"""From columns to codes to memberships, learnt from counts that add over chunks of rows.

A protected column is an *attribute*: its values are groups, or overlapping bands of a number, or groups known by their
probabilities. `ColumnTally` gathers what rows tell of a column; `Coder` is learnt from it and makes numbers of any
rows, and `Grouping` makes memberships of those.

A *crossing* is an attribute by itself, or several crossed. Its groups are compared with each other, within each stratum
where some columns may justify a difference, and among known outliers or inliers where a notion asks for that. All
follows from one count: how many rows have each combination of values, stratum and label. So chunks of rows add.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csc_array

from evenout.core.membership import Block, Comparison, Membership
from evenout.core.sketch import QuantileSketch
from evenout.core.types import FloatArray, IntArray
from evenout.exceptions import AttributeWarning, ContinuousWarning, InputError, SmallGroupWarning, warn
from evenout.groups.read import (
    Codes,
    GroupProbabilities,
    coded,
    group_name,
    protected_columns,
    read_groups,
    refuse_unknown,
    settle,
    warn_left_out,
)
from evenout.groups.rules import Groups

MANY = 20  # a column of fractions with more values than this is a continuous attribute
CUTS = 5  # strata that a number is cut into
_EXACT = 1_000_000  # values up to which quantiles are exact

# One of the values that a row may have, by its number (-1: none), and how much it has it (None: fully).
Corner: TypeAlias = tuple[IntArray, FloatArray | None]


@dataclass(frozen=True)
class ColumnTally:
    """What rows tell of one column; tallies of chunks of rows add."""

    names: frozenset[str]  # of the values; none of a number with many values
    numbers: QuantileSketch
    few: tuple[float, ...]  # different numbers, one more than `MANY` at most
    fractions: bool  # some numbers are not whole
    texts: bool  # some values are no numbers

    @classmethod
    def of(cls, column: Any, *, number: bool = False) -> "ColumnTally":
        """Look at a column; ``number`` says that it must hold numbers, also as text."""
        import pandas as pd

        plain = column.dtype.kind in "iuf" or (
            column.dtype.kind == "O"
            and pd.api.types.infer_dtype(column, skipna=True)
            in ("integer", "floating", "mixed-integer-float", "decimal", "empty")
        )
        values = _numbers(column) if number or plain else np.empty(0)
        values = values[np.isfinite(values)]
        few = tuple(np.unique(values)[: MANY + 1].tolist())
        fractions = column.dtype.kind == "f" and bool((values != np.floor(values)).any())
        unnamed = number or (fractions and len(few) > MANY)
        names = frozenset() if unnamed else frozenset(coded(column)[1])
        texts = bool(names) and not plain and not number
        return cls(names, QuantileSketch.of(values, _EXACT), few, fractions, texts)

    def __add__(self, other: "ColumnTally") -> "ColumnTally":
        few = tuple(sorted({*self.few, *other.few})[: MANY + 1])
        fractions, texts = self.fractions or other.fractions, self.texts or other.texts
        return ColumnTally(self.names | other.names, self.numbers + other.numbers, few, fractions, texts)

    @property
    def many(self) -> bool:
        """Whether there are many different numbers, and numbers alone."""
        return not self.texts and len(self.few) > MANY

    @property
    def continuous(self) -> bool:
        """Whether this is a continuous attribute by itself: fractions of many values."""
        return self.fractions and self.many


@dataclass(frozen=True)
class Attribute:
    """A protected column: values, bands of a number, or probable groups."""

    name: str
    values: tuple[str, ...]
    knots: FloatArray | None = None  # of a number: band g is 1 at knot g and falls to 0 at the knots beside it
    probable: bool = False  # groups are known by their probabilities

    @classmethod
    def of_bands(cls, name: str, numbers: QuantileSketch, bands: int) -> "Attribute":
        """Bands of nearly equal weight: knots at the quantiles (g + 1/2) / G, as many as are different."""
        shares = (np.arange(bands) + 0.5) / bands
        ends = numbers.quantile(0.0), numbers.quantile(1.0)
        knots = np.unique([numbers.quantile(share) for share in shares])
        knots = knots if len(knots) > 1 else np.unique(ends)
        if len(knots) < 2:
            raise InputError("{@continuous} has the column {name!r}, which has one value only; leave it out", name=name)
        edges = [f"{edge:.4g}" for edge in (knots[1:] + knots[:-1]) / 2]
        words = [f"below {edges[0]}", *(f"{a} to {b}" for a, b in pairwise(edges))]
        digits = len(str(len(knots)))  # so that the names are in the order of the bands
        words = [f"{name} {place:0{digits}d}: {text}" for place, text in enumerate([*words, f"from {edges[-1]}"], 1)]
        return cls(name, tuple(words), knots)

    @property
    def soft(self) -> bool:
        """Whether a row may belong to more than one group."""
        return self.knots is not None or self.probable

    @property
    def width(self) -> int:
        """Columns of numbers."""
        return len(self.values) if self.probable else 1

    def encode(self, column: Any) -> FloatArray:
        """The value's place, or the number; NaN where it is missing or was not there in fit, shape (n,)."""
        if self.knots is not None:
            return _numbers(column)
        codes, names = coded(column)
        known = {name: float(place) for place, name in enumerate(self.values)}
        return np.array([*(known.get(name, np.nan) for name in names), np.nan])[codes]

    def corners(self, numbers: FloatArray) -> list[Corner]:
        """The groups that each of n rows may belong to, from numbers of shape (n, width)."""
        if self.probable:
            places = np.arange(len(self.values), dtype=np.intp)
            known = ~np.isnan(numbers).any(axis=1)
            return [(np.where(known, place, -1), numbers[:, place]) for place in places]
        known = ~np.isnan(numbers[:, 0])
        if self.knots is None:
            return [(np.where(known, numbers[:, 0], -1).astype(np.intp), None)]
        place = np.interp(np.where(known, numbers[:, 0], self.knots[0]), self.knots, np.arange(len(self.knots)))
        low = np.minimum(place.astype(np.intp), len(self.knots) - 2)
        share = place - low
        return [(np.where(known, low, -1), 1.0 - share), (np.where(known, low + 1, -1), share)]

    def hard(self, numbers: FloatArray) -> IntArray:
        """The group that each row belongs to most, shape (n,); -1 for none."""
        (codes, weight), *others = self.corners(numbers)
        for more, other in others:
            assert weight is not None
            assert other is not None
            codes = np.where(other > weight, more, codes)
            weight = np.maximum(weight, other)
        return codes


@dataclass(frozen=True)
class Cut:
    """A column that may justify a difference: its values, or a number cut at ``edges``; see `Coder`.

    ``coarse`` says that rows of one part may still differ in the number.
    """

    name: str
    values: tuple[str, ...] = ()
    edges: FloatArray | None = None
    coarse: bool = False

    @classmethod
    def of(cls, name: str, seen: ColumnTally) -> "Cut":
        """A number is cut at quantiles, or between its values where it has few; others are told apart by value."""
        if seen.texts or not seen.few:
            return cls(name, tuple(sorted(seen.names)))
        few = np.array(seen.few)
        if len(few) <= CUTS:
            return cls(name, edges=(few[1:] + few[:-1]) / 2)
        shares = np.arange(1, CUTS) / CUTS
        return cls(name, edges=np.unique([seen.numbers.quantile(share) for share in shares]), coarse=True)

    @property
    def size(self) -> int:
        """Number of parts."""
        return len(self.values) if self.edges is None else len(self.edges) + 1

    def part_name(self, part: int) -> str:
        """A part in words.

        >>> cut = Cut("income", edges=np.array([20.0, 35.5]))
        >>> [cut.part_name(part) for part in range(3)], Cut("product", ("card", "loan")).part_name(1)
        (['income up to 20', 'income 20 to 35.5', 'income above 35.5'], 'product=loan')
        """
        if self.edges is None:
            return f"{self.name}={self.values[part]}"
        edges = [f"{edge:.4g}" for edge in self.edges]
        if part == 0:
            return f"{self.name} up to {edges[0]}" if edges else self.name
        return (
            f"{self.name} above {edges[-1]}"
            if part == len(edges)
            else f"{self.name} {edges[part - 1]} to {edges[part]}"
        )

    def encode(self, column: Any) -> FloatArray:
        """The part of each row, NaN for none, shape (n,)."""
        if self.edges is None:
            return Attribute(self.name, self.values).encode(column)
        values = _numbers(column)
        return np.where(np.isnan(values), np.nan, np.searchsorted(self.edges, values, side="left"))


@dataclass(frozen=True)
class Coder:
    """From columns to numbers."""

    attributes: tuple[Attribute, ...]
    cuts: tuple[Cut, ...] = ()
    labelled: bool = False  # labels are the last column

    @classmethod
    def learn(
        cls,
        sensitive: Sequence[tuple[str, ColumnTally]],
        given: Sequence[tuple[str, ColumnTally]],
        rules: Groups,
        *,
        labelled: bool,
    ) -> "Coder":
        """Attributes and cuts from what all rows tell."""
        require_protected(rules.continuous, [name for name, _ in sensitive])
        attributes = []
        for name, seen in sensitive:
            continuous = seen.continuous or name in rules.continuous
            if seen.continuous and name not in rules.continuous:
                template = (
                    "{@sensitive_features} has more than {n} values with fractions in column {name!r}: it is taken as "
                    "a continuous attribute, in {n_bands} bands; name it in {@continuous}, or give groups of your own"
                )
                warn(ContinuousWarning(template, n=MANY, name=name, n_bands=rules.bands))
            elif seen.many and not continuous:
                template = (
                    "{@sensitive_features} has more than {n} whole numbers in column {name!r}, and each is a group of "
                    "its own; set {continuous=} to compare along the number, or give the column as text if each "
                    "number is meant as a group"
                )
                warn(ContinuousWarning(template, n=MANY, name=name, continuous=(name,)))
            attributes.append(
                Attribute.of_bands(name, seen.numbers, rules.bands)
                if continuous
                else Attribute(name, tuple(sorted(seen.names)))
            )
        return cls(tuple(attributes), tuple(Cut.of(name, seen) for name, seen in given), labelled)

    @classmethod
    def of_probable(
        cls, names: tuple[str, ...], given: Sequence[tuple[str, ColumnTally]] = (), *, labelled: bool = False
    ) -> "Coder":
        """The same for groups of these names that are known by their probabilities."""
        attribute = Attribute("group", names, probable=True)
        return cls((attribute,), tuple(Cut.of(name, seen) for name, seen in given), labelled)

    @property
    def plain(self) -> bool:
        """Whether groups are values alone, and nothing is given beside them."""
        return not self.cuts and not self.labelled and not any(attribute.soft for attribute in self.attributes)

    def encode(self, sensitive: Any, given: Any, labels: Any, n_rows: int) -> FloatArray:
        """Attributes, strata and labels of rows as numbers, shape (n, columns); NaN where missing."""
        if isinstance(sensitive, GroupProbabilities):
            parts = [sensitive.values]
        else:
            columns = protected_columns(sensitive, n_rows, None)
            pairs = zip(self.attributes, columns, strict=True)
            parts = [attribute.encode(column)[:, None] for attribute, column in pairs]
        if self.cuts:
            columns = protected_columns(given, n_rows, None, name="given")
            parts += [cut.encode(column)[:, None] for cut, column in zip(self.cuts, columns, strict=True)]
        if self.labelled:
            parts.append(np.asarray(labels, dtype=float)[:, None])
        return np.column_stack(parts)

    @property
    def width(self) -> int:
        """Columns of numbers."""
        return sum(attribute.width for attribute in self.attributes) + len(self.cuts) + self.labelled

    @property
    def n_strata(self) -> int:
        """All cuts crossed."""
        return int(np.prod([cut.size for cut in self.cuts], initial=1))

    def by_attribute(self, numbers: FloatArray) -> list[tuple[Attribute, FloatArray]]:
        """Each attribute with its own numbers."""
        ends = np.cumsum([0, *(attribute.width for attribute in self.attributes)]).tolist()
        return [(own, numbers[:, a:b]) for own, (a, b) in zip(self.attributes, pairwise(ends), strict=True)]

    def corners(self, numbers: FloatArray) -> list[list[Corner]]:
        """The values of each attribute that each row may have."""
        return [attribute.corners(own) for attribute, own in self.by_attribute(numbers)]

    def hard(self, numbers: FloatArray) -> IntArray:
        """The group of each attribute that each row belongs to most, shape (n, attributes); -1 for none."""
        return np.column_stack([attribute.hard(own) for attribute, own in self.by_attribute(numbers)])

    def strata(self, numbers: FloatArray) -> IntArray:
        """The stratum of each row, all cuts crossed, shape (n,); -1 for none."""
        first = sum(attribute.width for attribute in self.attributes)
        strata = np.zeros(len(numbers), dtype=np.intp)
        for column, cut in enumerate(self.cuts, first):
            part = numbers[:, column]
            known = ~np.isnan(part) & (strata >= 0)
            strata = np.where(known, strata * cut.size + np.where(known, part, 0).astype(np.intp), -1)
        return strata

    def coarse(self, given: Any, n_rows: int) -> FloatArray | None:
        """The numbers that rows of one stratum may still differ in, shape (n, k); None if there are none."""
        if not any(cut.coarse for cut in self.cuts):
            return None
        columns = zip(self.cuts, protected_columns(given, n_rows, None, name="given"), strict=True)
        numbers = np.stack([_numbers(column) for cut, column in columns if cut.coarse], axis=1)
        finite = np.where(np.isfinite(numbers), numbers, np.nan)
        least, most = np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)
        return np.clip(np.where(np.isnan(numbers), least, numbers), least, most)

    def stratum_name(self, stratum: int) -> str:
        """A stratum in words."""
        parts = np.unravel_index(stratum, [cut.size for cut in self.cuts])
        return ", ".join(cut.part_name(int(part)) for cut, part in zip(self.cuts, parts, strict=True))

    def labels(self, numbers: FloatArray) -> IntArray:
        """1 for a known outlier, 0 for a known inlier, -1 for others, shape (n,)."""
        known = numbers[:, -1] if self.labelled else np.full(len(numbers), np.nan)
        return np.where(np.isnan(known), -1, known).astype(np.intp)

    def hardened(self, sensitive: Any, numbers: FloatArray) -> Any:
        """The protected columns with bands and probable groups by name, as a frame; as they are if there are none."""
        import pandas as pd

        if not any(attribute.soft for attribute in self.attributes):
            return sensitive
        index, codes = getattr(sensitive, "index", None), self.hard(numbers)
        frame = pd.DataFrame() if self.attributes[0].probable else pd.DataFrame(sensitive)
        columns = [
            np.array([*attribute.values, None], dtype=object)[codes[:, place]]
            if attribute.soft
            else frame.iloc[:, place].to_numpy(dtype=object, na_value=None)
            for place, attribute in enumerate(self.attributes)
        ]
        named = pd.DataFrame(dict(enumerate(columns)), index=index if isinstance(index, pd.Index) else None)
        return named.set_axis([attribute.name for attribute in self.attributes], axis=1)


def require_protected(continuous: Collection[str], columns: Sequence[str]) -> None:
    """Refuse a number that is none of the protected columns."""
    unknown = [name for name in continuous if name not in columns]
    if unknown:
        raise InputError(
            "{@continuous} names {unknown!r}, but the columns of {@sensitive_features} are {columns}",
            unknown=unknown[0], columns=", ".join(map(repr, columns)),
        )  # fmt: skip


def _numbers(column: Any) -> FloatArray:
    """The column as floats, NaN where a value is missing; text that is no number is refused."""
    from evenout.tables.columns import numbers_or_gaps  # loads what plain groups need not

    if column.dtype.kind in "iuf":
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = numbers_or_gaps(column)
    slips = (numbers.isna() & column.notna()).to_numpy()
    if slips.any():
        raise InputError(
            "column {name!r} must hold numbers, but has {value!r} in {#row}",
            name=str(column.name), value=str(column.iloc[int(slips.argmax())]), row=int(slips.argmax()),
        )  # fmt: skip
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan)


MOST_CROSSED = 30  # groups beyond which a fit says how attributes are compared one by one
_KIND = re.compile(r"[_=. -](?=[^_=. -]*$)")  # the last mark in the name of a column
MOST_OVERLAPS = 2000  # pairs of groups that share rows: their covariances are kept for every alpha
LABELS = {"outliers": 1, "inliers": 0}  # rows of these labels; "all" are those of any

# (values of the attributes, -1 for none; stratum; label) to the rows that it has, or is expected to have.
Tally = Counter[tuple[int, ...]]


@dataclass(frozen=True)
class GroupColumn:
    """One group of a membership: of which crossing, stratum and rows, and its code in the crossing."""

    among: str
    crossing: int
    stratum: int
    code: int


@dataclass(frozen=True)
class CrossedAttributes:
    """Attributes that are crossed with each other, or one by itself."""

    attributes: tuple[int, ...]
    labels: tuple[str, ...]  # names of the groups
    keys: IntArray  # of the combinations of values that occur, rising
    codes: IntArray  # the group of each of them; -1 for one that is left out
    sizes: tuple[int, ...]  # values of each attribute
    left_out: Mapping[str, int]

    def crossed(self, corner: Sequence[Corner]) -> Corner:
        """The group of each row, and how much it belongs to it, from its values."""
        key, weight = cross(corner, self.sizes)
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[at] == key, self.codes[at], -1), weight


def cross(corner: Sequence[Corner], sizes: Sequence[int]) -> Corner:
    """The number of the combination of each row's values, -1 for none, and how much the row has it."""
    key, weight = np.zeros(len(corner[0][0]), dtype=np.intp), None
    for (values, share), size in zip(corner, sizes, strict=True):
        key = np.where((key >= 0) & (values >= 0), key * size + values, -1)
        if share is not None:
            weight = share if weight is None else weight * share
    return key, weight


@dataclass(frozen=True)
class Grouping:
    """What turns the columns of any rows into a membership."""

    coder: Coder
    crossings: tuple[CrossedAttributes, ...]
    columns: tuple[GroupColumn, ...]  # the G groups of the membership
    compared: Comparison
    counts: IntArray  # rows that each group has, or is expected to have

    @property
    def full_names(self) -> tuple[str, ...]:
        """The name of each group of the membership, with stratum and kind of rows where there are several."""
        return tuple(
            self.crossings[column.crossing].labels[column.code]
            + (f" in {self.coder.stratum_name(column.stratum)}" if self.coder.cuts else "")
            + (f" among known {column.among}" if column.among != "all" else "")
            for column in self.columns
        )

    @property
    def left_out(self) -> dict[str, int]:
        """Groups that are too small to be measured, and the rows that each has, or is expected to have."""
        return {name: n for crossing in self.crossings for name, n in crossing.left_out.items()}

    def members(self, numbers: FloatArray) -> Membership:
        """The membership of rows whose columns are numbers (`Coder.encode`)."""
        strata, labels = self.coder.strata(numbers), self.coder.labels(numbers)
        corners = self.coder.corners(numbers)
        rows, columns, weights = [], [], []
        for place, crossing in enumerate(self.crossings):
            tables = self._tables(place)
            for corner in product(*(corners[a] for a in crossing.attributes)):
                codes, weight = crossing.crossed(corner)
                for among, table in tables.items():
                    wanted = among == "all" or labels == LABELS[among]
                    column = np.where(wanted, table[strata, codes], -1)
                    some = np.flatnonzero(column >= 0 if weight is None else (column >= 0) & (weight > 0))
                    rows.append(some)
                    columns.append(column[some])
                    weights.append(np.ones(len(some)) if weight is None else weight[some])
        at = np.concatenate(rows), np.concatenate(columns)
        phi = csc_array((np.concatenate(weights), at), shape=(len(numbers), len(self.columns)))
        phi.sum_duplicates()
        return Membership(phi, self.compared)

    def _tables(self, crossing: int) -> dict[str, IntArray]:
        """For each kind of rows the column of each stratum and group of a crossing; the last entries are for none."""
        shape = self.coder.n_strata + 1, len(self.crossings[crossing].labels) + 1
        tables = {among: np.full(shape, -1) for among in dict.fromkeys(column.among for column in self.columns)}
        for place, column in enumerate(self.columns):
            if column.crossing == crossing:
                tables[column.among][column.stratum, column.code] = place
        return tables


def count_rows(coder: Coder, numbers: FloatArray) -> Tally:
    """How many rows have each combination of values, stratum and label, or are expected to have it."""
    beside, total = [coder.strata(numbers), coder.labels(numbers)], Counter[tuple[int, ...]]()
    for corner in product(*coder.corners(numbers)):
        shares = [share for _, share in corner if share is not None]
        keys, place = np.unique(
            np.column_stack([*(codes for codes, _ in corner), *beside]), axis=0, return_inverse=True
        )
        rows = np.bincount(place.ravel(), np.prod(shares, axis=0) if shares else None, len(keys))
        total.update(dict(zip(map(tuple, keys.tolist()), np.nan_to_num(rows).tolist(), strict=True)))
    return total


class Coded(NamedTuple):
    """What tells columns, the columns as numbers, and the protected ones by group name, bands and all."""

    coder: Coder
    numbers: FloatArray
    sensitive: Any

    @property
    def whole(self) -> bool:
        """Whether each row is of one group, or of none."""
        return not any(attribute.soft for attribute in self.coder.attributes)


class Crossed(NamedTuple):
    """Rows by hard, crossed groups; the protected columns by group name; the columns as numbers, and by what."""

    groups: Codes
    sensitive: Any
    coder: Coder
    numbers: FloatArray


def read_crossed(
    sensitive: Any,
    rules: Groups,
    n_rows: int,
    *,
    rows: Any = None,
    given: Any = None,
    labels: FloatArray | None = None,
) -> Crossed:
    """Read the hard groups of rows in memory: bands and probable groups by what a row belongs to most.

    Parameters
    ----------
    sensitive, given : as in `evenout.FairOutlierEnsemble.fit`
    rules : Groups
    rows : object
        The data itself, whose index must be in the same order.
    labels : array of shape (n,), optional
        Where notions compare rows of known outcome.
    """
    coder, numbers, hard = read_coded(sensitive, rules, n_rows, rows=rows, given=given, labels=labels)
    if coder.attributes[0].probable:  # how large these groups are is not told by whom they are likeliest for
        groups = Codes(coder.hard(numbers)[:, 0], coder.attributes[0].values)
        refuse_unknown(groups.codes, rules)
        return Crossed(groups, hard, coder, numbers)
    return Crossed(read_groups(hard, n_rows, of_crossings(rules, coder), rows=rows), hard, coder, numbers)


def of_crossings(rules: Groups, coder: Coder) -> Groups:
    """The rules on combinations of values: where each column is compared by itself, these are counted alone."""
    return rules if rules.cross or len(coder.attributes) == 1 else rules.but(small="leave_out")


def read_coded(
    sensitive: Any,
    rules: Groups,
    n_rows: int,
    *,
    rows: Any = None,
    given: Any = None,
    labels: FloatArray | None = None,
) -> Coded:
    """The columns of rows in memory as numbers; the parameters are those of `read_crossed`."""
    columns = [] if given is None else protected_columns(given, n_rows, rows, name="given")
    strata = [(str(column.name), ColumnTally.of(column)) for column in columns]
    if isinstance(sensitive, GroupProbabilities):
        if len(sensitive) != n_rows:
            raise ValueError(
                f"sensitive_features has {len(sensitive)} rows, but X has {n_rows}; give one group per row of X"
            )
        coder = Coder.of_probable(sensitive.names, strata, labelled=labels is not None)
    else:
        own = [(str(column.name), column) for column in protected_columns(sensitive, n_rows, rows)]
        seen = [(name, ColumnTally.of(column, number=name in rules.continuous)) for name, column in own]
        _offer_one([column for _, column in own])
        coder = Coder.learn(seen, strata, rules, labelled=labels is not None)
    numbers = coder.encode(sensitive, given, labels, n_rows)
    return Coded(coder, numbers, coder.hardened(sensitive, numbers))


def read_grouping(crossed: Crossed, among: Sequence[str], rules: Groups) -> Grouping | None:
    """What makes the memberships of these rows, as notions compare those ``among``; None for the crossed groups."""
    coder, numbers = crossed.coder, crossed.numbers
    if is_plain(coder, among, rules):
        warn_left_out(crossed.groups.left_out, len(crossed.groups.labels), rules.min_size)
        _offer_each(coder.attributes, len(crossed.groups.labels) + len(crossed.groups.left_out))
        return None
    return settle_grouping(coder, count_rows(coder, numbers), among, rules)


def _offer_each(attributes: Sequence[Attribute], n: int) -> None:
    """Say how attributes are compared one by one where crossing them makes very many groups."""
    many = any(len(own.values) > MANY for own in attributes)
    if len(attributes) > 1 and n > MOST_CROSSED and not many:  # of many values the coder has spoken
        template = "{columns} make {n} groups where they are crossed; set {cross=False} to compare each by itself"
        warn(SmallGroupWarning(template, columns=_listed(own.name for own in attributes), n=n))


def _offer_one(columns: Sequence[Any]) -> None:
    """Say so where several columns of 0 and 1 look like the values of one attribute: each row has exactly one 1."""
    ones = ("1", "1.0", "True")
    binary = [column for column in columns if {*map(str, column.unique()[:3])} <= {*ones, "0", "0.0", "False"}]
    kinds: dict[str, list[Any]] = {"": binary}
    for column in binary:
        kinds.setdefault(_KIND.split(str(column.name))[0], []).append(column)
    for kind in kinds.values():
        if len(kind) >= 3 and (sum(column.astype(str).isin(ones).astype(int) for column in kind) == 1).all():
            template = (
                "each row has a 1 in exactly one of {columns}: they look like one attribute, but are crossed as {n}; "
                "make one column of them, such as frame[[...]].idxmax(axis=1), to compare its values"
            )
            warn(AttributeWarning(template, columns=_listed(column.name for column in kind), n=len(kind)))
            return


def _listed(names: Iterable[Any]) -> str:
    *others, last = (repr(str(name)) for name in names)
    shown = others if len(others) <= 3 else [*others[:2], "..."]
    return f"{', '.join(shown)} and {last}"


def is_plain(coder: Coder, among: Collection[str], rules: Groups) -> bool:
    """Whether the groups are one per combination of values, all compared with each other."""
    crossed = rules.cross is True or len(coder.attributes) == 1
    return coder.plain and crossed and set(among) == {"all"}


def settle_grouping(coder: Coder, tally: Tally, among: Sequence[str], rules: Groups) -> Grouping:
    """Which groups there are, and which are compared, by the rules on small groups."""
    every = tuple(range(len(coder.attributes)))
    each: list[tuple[int, ...]] = [(a,) for a in every] if rules.cross is not True else []
    crossed = [every] if rules.cross or len(every) == 1 else []
    crossings = tuple(_crossing(coder, tally, own, rules) for own in dict.fromkeys([*each, *crossed]))
    columns, blocks, counts = _compared(coder, crossings, tally, among, rules.min_size)
    overlaps = _overlaps(coder, crossings, columns)
    if len(overlaps) > MOST_OVERLAPS:
        raise InputError(
            "{n} groups are compared of which {pairs} pairs share rows, more than {most}; join values of "
            "{@sensitive_features}, raise {@min_size}, or set {cross=True}",
            n=len(columns), pairs=len(overlaps), most=MOST_OVERLAPS,
        )  # fmt: skip
    compared = Comparison(len(columns), tuple(blocks), overlaps)
    return Grouping(coder, crossings, tuple(columns), compared, np.rint(counts).astype(np.intp))


def _crossing(coder: Coder, tally: Tally, attributes: tuple[int, ...], rules: Groups) -> CrossedAttributes:
    own = [coder.attributes[a] for a in attributes]
    sizes = tuple(len(attribute.values) for attribute in own)
    named: Counter[str] = Counter()  # of rows that are expected, which need not be whole
    keys: dict[int, str] = {}
    for key, count in tally.items():
        values = [key[a] for a in attributes]
        if min(values) >= 0:
            words = [attribute.values[value] for attribute, value in zip(own, values, strict=True)]
            name = words[0] if own[0].probable else group_name([attribute.name for attribute in own], words)
            named[name] += count
            keys[int(np.ravel_multi_index(values, sizes))] = name
    labels, codes, left_out = settle({name: max(int(n + 1e-6), 1) for name, n in named.items() if n > 0}, rules)
    warn_left_out(left_out, len(labels), rules.min_size)
    _offer_each(own, len(labels) + len(left_out))
    ordered = np.array(sorted(key for key, name in keys.items() if name in codes), dtype=np.intp)
    of_keys = np.array([codes[keys[key]] for key in ordered], dtype=np.intp)
    return CrossedAttributes(attributes, labels, ordered, of_keys, sizes, left_out)


def _compared(
    coder: Coder, crossings: Sequence[CrossedAttributes], tally: Tally, among: Sequence[str], least: int
) -> tuple[list[GroupColumn], list[Block], list[float]]:
    """The groups that have rows enough, the blocks in which they are compared, and the rows of each group."""
    columns: list[GroupColumn] = []
    counts: list[float] = []
    blocks: list[Block] = []
    left_out: Counter[str] = Counter()
    for place, crossing in enumerate(crossings):
        name = " & ".join(coder.attributes[a].name for a in crossing.attributes)
        by_size = any(coder.attributes[a].knots is not None for a in crossing.attributes)
        for kind in among:
            sizes = _sizes(crossing, tally, kind)
            measured: dict[int, dict[int, float]] = {}
            for (stratum, code), n in sorted(sizes.items()):
                if n >= least or (kind == "all" and not coder.cuts):
                    measured.setdefault(stratum, {})[code] = n
            kept = {stratum: groups for stratum, groups in measured.items() if len(groups) >= 2}
            left_out[kind] = max(left_out[kind], len({stratum for stratum, _ in sizes} - kept.keys()))
            if kind != "all" and not coder.cuts and kept:
                few = {crossing.labels[code]: int(n) for (_, code), n in sizes.items() if n < least}
                warn_left_out(few, len(crossing.labels), least, f"known {kind}")
            total = sum(sum(groups.values()) for groups in kept.values())
            for stratum, groups in kept.items():
                first = len(columns)
                columns += [GroupColumn(kind, place, stratum, code) for code in groups]
                counts += groups.values()
                own = tuple(range(first, len(columns)))
                weight = sum(groups.values()) / total / len(crossings)
                blocks.append(Block(own, weight, by_size, kind, name))
    _say_left_out(coder, blocks, among, left_out, least)
    return columns, blocks, counts


def _sizes(crossing: CrossedAttributes, tally: Tally, kind: str) -> Counter[tuple[int, int]]:
    """Rows of each stratum and group, as many as are expected."""
    keys = np.array(list(tally), dtype=np.intp)
    codes, _ = crossing.crossed([(keys[:, a], None) for a in crossing.attributes])
    rows: Counter[tuple[int, int]] = Counter()
    for (*_, stratum, label), code, n in zip(keys.tolist(), codes.tolist(), tally.values(), strict=True):
        if stratum >= 0 and code >= 0 and (kind == "all" or label == LABELS[kind]):
            rows[stratum, code] += n
    return Counter({key: round(n, 6) for key, n in rows.items()})  # the same however rows are cut into chunks


def _say_left_out(coder: Coder, blocks: list[Block], among: Sequence[str], left_out: Counter[str], least: int) -> None:
    for kind in among:
        rows = "rows" if kind == "all" else f"known {kind}"
        if coder.cuts and left_out[kind] and any(block.among == kind for block in blocks):
            template = (
                "{n} strata of {@given} have no two groups of {least} {rows}: they are left out of the "
                "comparison. Give fewer or coarser columns, or lower {@min_size}, to compare within them."
            )
            warn(SmallGroupWarning(template, n=left_out[kind], rows=rows, least=least))
        if not any(block.among == kind for block in blocks) and (kind != "all" or coder.cuts):
            rows += f" in any of {coder.n_strata} strata" if coder.cuts else ""
            raise InputError(
                "there are no two groups of {least} {rows}: nothing can be compared; lower "
                "{@min_size}, or give more rows",
                least=least, rows=rows,
            )  # fmt: skip


def _overlaps(
    coder: Coder, crossings: Sequence[CrossedAttributes], columns: Sequence[GroupColumn]
) -> tuple[tuple[int, int], ...]:
    """Pairs of groups that may have rows in common, among those that one notion looks at."""
    values: list[list[dict[int, int]]] = []  # the combinations that make up each group
    for column in columns:
        own = crossings[column.crossing]
        keys = own.keys[own.codes == column.code]
        values.append([dict(zip(own.attributes, np.unravel_index(key, own.sizes), strict=True)) for key in keys])
    soft = [any(coder.attributes[a].soft for a in crossing.attributes) for crossing in crossings]

    def near(attribute: Attribute, one: int, two: int) -> bool:
        return attribute.probable or one == two or (attribute.knots is not None and abs(one - two) == 1)

    def shared(g: int, h: int) -> bool:
        one, two = columns[g], columns[h]
        if (one.among, one.stratum) != (two.among, two.stratum) or (
            one.crossing == two.crossing and not soft[one.crossing]
        ):
            return False
        return any(
            all(near(coder.attributes[a], own[a], other[a]) for a in own.keys() & other.keys())
            for own in values[g]
            for other in values[h]
        )

    return tuple((g, h) for g in range(len(columns)) for h in range(g + 1, len(columns)) if shared(g, h))
