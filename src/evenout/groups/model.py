"""From protected columns to numbers to memberships, learnt from counts that add over chunks of rows.

A protected column is an *attribute*: its values are groups, or overlapping bands of a number, or groups known by their
probabilities. A `Coder` is learnt from a `ColumnTally` of each column and turns the columns of any rows into numbers;
a `Grouping` turns these into memberships.

A *crossing* is one attribute, or several crossed. Its groups are compared with each other, within each stratum where
some columns may justify a difference, and among known outliers or inliers where a notion asks for that. All of it
follows from one count: how many rows have each combination of values, stratum and label. So chunks of rows add.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
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
from evenout.tables.rows import numbers_or_gaps

MANY = 20  # a column of fractions with more values than this is a continuous attribute
CUTS = 5  # strata that a number is cut into
_EXACT = 1_000_000  # values up to which quantiles are exact

MOST_CROSSED = 30  # crossed groups beyond which a fit says how attributes are compared one by one
MOST_OVERLAPS = 2000  # pairs of groups that share rows: their covariances are kept for every alpha
LABELS = {"outliers": 1, "inliers": 0}  # the label of these rows; rows of "all" have any
_LAST_MARK = re.compile(r"[_=. -](?=[^_=. -]*$)")  # in the name of a column such as race_asian

# A value of each row by its number (-1: none), and the share to which the row has it (None: fully).
Corner: TypeAlias = tuple[IntArray, FloatArray | None]
# (values of the attributes, -1 for none; stratum; label) to the number of rows, or the number expected.
Tally = Counter[tuple[int, ...]]


@dataclass(frozen=True)
class ColumnTally:
    """A summary of one column; tallies of chunks of rows add."""

    names: frozenset[str]  # of the values; none for a number with many values
    numbers: QuantileSketch
    few: tuple[float, ...]  # the distinct numbers, at most `MANY` + 1 of them
    fractions: bool  # some numbers are not whole
    texts: bool  # some values are not numbers

    @classmethod
    def of(cls, column: Any, *, number: bool = False) -> "ColumnTally":
        """Summarise a column; ``number`` says that it must hold numbers, possibly as text."""
        plain = column.dtype.kind in "iuf" or (
            column.dtype.kind == "O"
            and pd.api.types.infer_dtype(column, skipna=True)
            in ("integer", "floating", "mixed-integer-float", "decimal", "empty")
        )
        values = _numbers(column) if number or plain else np.empty(0)
        values = values[np.isfinite(values)]
        few = tuple(np.unique(values)[: MANY + 1].tolist())
        fractions = column.dtype.kind == "f" and bool((values != np.floor(values)).any())
        names = frozenset[str]() if number or (fractions and len(few) > MANY) else frozenset(coded(column)[1])
        return cls(names, QuantileSketch.of(values, _EXACT), few, fractions, texts=bool(names) and not plain)

    def __add__(self, other: "ColumnTally") -> "ColumnTally":
        return ColumnTally(
            self.names | other.names, self.numbers + other.numbers, tuple(sorted({*self.few, *other.few})[: MANY + 1]),
            self.fractions or other.fractions, self.texts or other.texts,
        )  # fmt: skip

    @property
    def continuous(self) -> bool:
        """Whether the column is taken as a continuous attribute unasked: it has many numbers, with fractions."""
        return self.fractions and not self.texts and len(self.few) > MANY


def warn_whole_numbers(name: str, *, text: bool = False) -> None:
    """Warn that each of many whole numbers in a column is a group, and offer both ways; ``text`` is one already."""
    warn(
        ContinuousWarning(
            "{@sensitive_features} has more than {n} whole numbers in column {name!r}, and each is a group of its own; "
            "set {continuous=} to compare along the number{otherwise}",
            n=MANY, name=name, continuous=(name,),
            otherwise="" if text else ", or give the column as text if each number is meant as a group",
        )
    )  # fmt: skip


Columns: TypeAlias = tuple[tuple[str, ColumnTally], ...]  # by name; names need not be distinct


def tally_columns(columns: Iterable[Any], continuous: Collection[str] = ()) -> Columns:
    """Summarise pandas series; those named in ``continuous`` must hold numbers."""
    return tuple((str(each.name), ColumnTally.of(each, number=str(each.name) in continuous)) for each in columns)


@dataclass(frozen=True)
class Attribute:
    """A protected column: values, bands of a number, or probable groups."""

    name: str
    values: tuple[str, ...]
    knots: FloatArray | None = None  # of a number: band g is 1 at knot g and falls to 0 at the knots beside it
    probable: bool = False  # groups are known by their probabilities

    @classmethod
    def learn(cls, name: str, tally: ColumnTally, rules: Groups) -> "Attribute":
        """Take a column as bands of a number, as asked or because of its many fractions, or as groups by value."""
        asked = name in rules.continuous
        if tally.continuous and not asked:
            warn(
                ContinuousWarning(
                    "{@sensitive_features} has more than {n} values with fractions in column {name!r}: it is taken as "
                    "a continuous attribute, in {n_bands} bands; name it in {@continuous}, or give groups of your own",
                    n=MANY, name=name, n_bands=rules.bands,
                )
            )  # fmt: skip
        if asked or tally.continuous:
            return cls.of_bands(name, tally.numbers, rules.bands)
        if len(tally.few) > MANY and not tally.texts:
            warn_whole_numbers(name)
        return cls(name, tuple(sorted(tally.names)))

    @classmethod
    def of_bands(cls, name: str, numbers: QuantileSketch, bands: int) -> "Attribute":
        """Bands of nearly equal weight: knots at the quantiles (g + 1/2) / G, as many as are distinct."""
        knots = np.unique([numbers.quantile(share) for share in (np.arange(bands) + 0.5) / bands])
        if len(knots) < 2:
            knots = np.unique([numbers.quantile(0.0), numbers.quantile(1.0)])
        if len(knots) < 2:
            raise InputError("{@continuous} has the column {name!r}, which has one value only; leave it out", name=name)
        words = _interval_names((knots[1:] + knots[:-1]) / 2, "below", "from")
        digits = len(str(len(knots)))  # so that the names are in the order of the bands
        return cls(name, tuple(f"{name} {band:0{digits}d}: {text}" for band, text in enumerate(words, 1)), knots)

    @property
    def soft(self) -> bool:
        """Whether a row may belong to more than one group."""
        return self.knots is not None or self.probable

    def encode(self, column: Any) -> FloatArray:
        """The index of each row's value, or the number; NaN where it is missing or was not there in fit, shape (n,)."""
        if self.knots is not None:
            return _numbers(column)
        codes, names = coded(column)
        known = {name: float(index) for index, name in enumerate(self.values)}
        return np.array([*(known.get(name, np.nan) for name in names), np.nan])[codes]

    def corners(self, numbers: FloatArray) -> list[Corner]:
        """The groups that each of n rows may belong to, from numbers of shape (n, 1), or (n, values) if probable."""
        unknown = np.isnan(numbers).any(axis=1)
        if self.probable:
            return [(np.where(unknown, -1, group), share) for group, share in enumerate(numbers.T)]
        if self.knots is None:
            return [(np.where(unknown, -1, numbers[:, 0]).astype(np.intp), None)]
        at = np.interp(np.where(unknown, self.knots[0], numbers[:, 0]), self.knots, np.arange(len(self.knots)))
        low = np.minimum(at.astype(np.intp), len(self.knots) - 2)
        share = at - low
        return [(np.where(unknown, -1, low), 1.0 - share), (np.where(unknown, -1, low + 1), share)]

    def hard(self, numbers: FloatArray) -> IntArray:
        """The group of a soft attribute that each row belongs to most, shape (n,); -1 for none."""
        groups, shares = zip(*self.corners(numbers), strict=True)
        return np.stack(groups)[np.argmax(shares, axis=0), np.arange(len(numbers))]


@dataclass(frozen=True)
class Cut:
    """A column that may justify a difference: its values, or a number cut at ``edges``."""

    name: str
    values: tuple[str, ...] = ()
    edges: FloatArray | None = None
    coarse: bool = False  # rows of one part may still differ in the number

    @classmethod
    def of(cls, name: str, tally: ColumnTally) -> "Cut":
        """Cut a number at quantiles, or between its values if it has few; take other columns by value."""
        if tally.texts or not tally.few:
            return cls(name, tuple(sorted(tally.names)))
        few = np.array(tally.few)
        if len(few) <= CUTS:
            return cls(name, edges=(few[1:] + few[:-1]) / 2)
        quantiles = [tally.numbers.quantile(share) for share in np.arange(1, CUTS) / CUTS]
        return cls(name, edges=np.unique(quantiles), coarse=True)

    @property
    def part_names(self) -> list[str]:
        """The parts in words.

        >>> Cut("income", edges=np.array([20.0, 35.5])).part_names, Cut("product", ("card", "loan")).part_names
        (['income up to 20', 'income 20 to 35.5', 'income above 35.5'], ['product=card', 'product=loan'])
        """
        if self.edges is None:
            return [f"{self.name}={value}" for value in self.values]
        if not len(self.edges):
            return [self.name]
        return [f"{self.name} {words}" for words in _interval_names(self.edges, "up to", "above")]

    def encode(self, column: Any) -> FloatArray:
        """The part of each row, NaN for none, shape (n,)."""
        if self.edges is None:
            return Attribute(self.name, self.values).encode(column)
        values = _numbers(column)
        return np.where(np.isnan(values), np.nan, np.searchsorted(self.edges, values, side="left"))


def _interval_names(edges: FloatArray, below: str, above: str) -> list[str]:
    """The intervals between edges, and beyond the outermost ones, in words."""
    shown = [f"{edge:.4g}" for edge in edges]
    return [f"{below} {shown[0]}", *(f"{a} to {b}" for a, b in pairwise(shown)), f"{above} {shown[-1]}"]


@dataclass(frozen=True)
class Coder:
    """Turns columns into numbers."""

    attributes: tuple[Attribute, ...]
    cuts: tuple[Cut, ...] = ()
    labelled: bool = False  # labels are the last column

    @classmethod
    def learn(
        cls, sensitive: Columns, given: Columns, rules: Groups, *, labelled: bool, probable: tuple[str, ...] = ()
    ) -> "Coder":
        """Learn attributes and cuts from the tallies of all rows; or from the names of ``probable`` groups."""
        attributes: tuple[Attribute, ...] = (Attribute("group", probable, probable=True),)
        if not probable:
            require_protected(rules.continuous, [name for name, _ in sensitive])
            attributes = tuple(Attribute.learn(name, tally, rules) for name, tally in sensitive)
        return cls(attributes, tuple(Cut.of(name, tally) for name, tally in given), labelled)

    @property
    def soft(self) -> bool:
        """Whether a row may belong to more than one group of an attribute."""
        return any(attribute.soft for attribute in self.attributes)

    def encode(self, sensitive: Any, given: Any, labels: Any, n_rows: int) -> FloatArray:
        """Attributes, strata and labels of rows as numbers, shape (n, columns); NaN where missing."""
        if isinstance(sensitive, GroupProbabilities):
            parts = [sensitive.values]
        else:
            columns = zip(self.attributes, protected_columns(sensitive, n_rows, None), strict=True)
            parts = [attribute.encode(column) for attribute, column in columns]
        if self.cuts:
            strata = zip(self.cuts, protected_columns(given, n_rows, None, name="given"), strict=True)
            parts += [cut.encode(column) for cut, column in strata]
        if self.labelled:
            parts.append(np.asarray(labels, dtype=float))
        return np.column_stack(parts)

    @property
    def strata(self) -> list[str]:
        """Names of the strata, all cuts crossed; a single one without a name if there are no cuts."""
        return [", ".join(parts) for parts in product(*(cut.part_names for cut in self.cuts))]

    def by_attribute(self, numbers: FloatArray) -> list[tuple[Attribute, FloatArray]]:
        """Each attribute with its columns of the numbers."""
        if self.attributes[0].probable:
            return [(self.attributes[0], numbers[:, : len(self.attributes[0].values)])]
        return [(attribute, numbers[:, j : j + 1]) for j, attribute in enumerate(self.attributes)]

    def corners(self, numbers: FloatArray) -> list[list[Corner]]:
        """The values of each attribute that each row may have."""
        return [attribute.corners(columns) for attribute, columns in self.by_attribute(numbers)]

    def strata_and_labels(self, numbers: FloatArray) -> tuple[IntArray, IntArray]:
        """The stratum of each row, and 1 for a known outlier, 0 for a known inlier; -1 for none, shapes (n,)."""
        strata, none = np.zeros(len(numbers), dtype=np.intp), np.full(len(numbers), -1, dtype=np.intp)
        beside = numbers[:, numbers.shape[1] - len(self.cuts) - self.labelled :]
        parts = np.where(np.isnan(beside), -1, beside).astype(np.intp).T
        for cut, part in zip(self.cuts, parts, strict=False):  # labels may follow
            strata = np.where((strata >= 0) & (part >= 0), strata * len(cut.part_names) + part, -1)
        return strata, parts[-1] if self.labelled else none

    def coarse(self, given: Any, n_rows: int) -> FloatArray | None:
        """The numbers in which rows of one stratum may still differ, shape (n, k); None if there are none."""
        if not any(cut.coarse for cut in self.cuts):
            return None
        columns = zip(self.cuts, protected_columns(given, n_rows, None, name="given"), strict=True)
        numbers = np.stack([_numbers(column) for cut, column in columns if cut.coarse], axis=1)
        finite = np.where(np.isfinite(numbers), numbers, np.nan)
        least, most = np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)
        return np.clip(np.where(np.isnan(numbers), least, numbers), least, most)

    def hardened(self, sensitive: Any, numbers: FloatArray) -> Any:
        """The protected columns as a frame, bands and probable groups by name; as they are if there are none."""
        if not self.soft:
            return sensitive
        index = getattr(sensitive, "index", None)
        frame = pd.DataFrame() if self.attributes[0].probable else pd.DataFrame(sensitive)
        columns = [
            np.array([*attribute.values, None], dtype=object)[attribute.hard(own)]
            if attribute.soft
            else frame.iloc[:, j].to_numpy(dtype=object, na_value=None)
            for j, (attribute, own) in enumerate(self.by_attribute(numbers))
        ]
        named = pd.DataFrame(dict(enumerate(columns)), index=index if isinstance(index, pd.Index) else None)
        return named.set_axis([attribute.name for attribute in self.attributes], axis=1)


def require_protected(continuous: Collection[str], columns: Sequence[str]) -> None:
    """Refuse a name that is none of the protected columns."""
    unknown = [name for name in continuous if name not in columns]
    if unknown:
        raise InputError(
            "{@continuous} names {unknown!r}, but the columns of {@sensitive_features} are {columns}",
            unknown=unknown[0], columns=", ".join(map(repr, columns)),
        )  # fmt: skip


def _numbers(column: Any) -> FloatArray:
    """The column as floats, NaN where a value is missing; text other than numbers is refused."""
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


@dataclass(frozen=True)
class GroupColumn:
    """One group of a membership: the kind of rows, the crossing, the stratum, and the group's code in the crossing."""

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
    sizes: tuple[int, ...]  # number of values of each attribute
    left_out: Mapping[str, int]

    def crossed(self, corner: Sequence[Corner]) -> Corner:
        """The group of each row and the share to which the row belongs to it, from the row's values."""
        key, weight = cross(corner, self.sizes)
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[at] == key, self.codes[at], -1), weight


def cross(corner: Sequence[Corner], sizes: Sequence[int]) -> Corner:
    """The key of the combination of each row's values, -1 for none, and the share to which the row has it."""
    key, weight = np.zeros(len(corner[0][0]), dtype=np.intp), None
    for (values, share), size in zip(corner, sizes, strict=True):
        key = np.where((key >= 0) & (values >= 0), key * size + values, -1)
        if share is not None:
            weight = share if weight is None else weight * share
    return key, weight


@dataclass(frozen=True)
class Grouping:
    """Turns the columns of any rows into a membership."""

    coder: Coder
    crossings: tuple[CrossedAttributes, ...]
    columns: tuple[GroupColumn, ...]  # the G groups of the membership
    compared: Comparison
    counts: IntArray  # rows of each group, or the number expected

    @property
    def full_names(self) -> tuple[str, ...]:
        """The name of each group of the membership, with stratum and kind of rows where there are several."""
        strata = self.coder.strata
        return tuple(
            self.crossings[column.crossing].labels[column.code]
            + (f" in {strata[column.stratum]}" if self.coder.cuts else "")
            + (f" among known {column.among}" if column.among != "all" else "")
            for column in self.columns
        )

    @property
    def left_out(self) -> dict[str, int]:
        """Groups that are too small to be measured, and their rows, or the number expected."""
        return {name: n for crossing in self.crossings for name, n in crossing.left_out.items()}

    def members(self, numbers: FloatArray) -> Membership:
        """The membership of rows whose columns are numbers (`Coder.encode`)."""
        strata, labels = self.coder.strata_and_labels(numbers)
        corners, kinds = self.coder.corners(numbers), dict.fromkeys(column.among for column in self.columns)
        rows, columns, weights = [], [], []
        for c, crossing in enumerate(self.crossings):
            # For each kind of rows the column of each stratum and group; the last entries are for none.
            tables = {among: np.full((len(self.coder.strata) + 1, len(crossing.labels) + 1), -1) for among in kinds}
            for index, column in enumerate(self.columns):
                if column.crossing == c:
                    tables[column.among][column.stratum, column.code] = index
            for corner in product(*(corners[a] for a in crossing.attributes)):
                codes, weight = crossing.crossed(corner)
                share = np.ones(len(numbers)) if weight is None else weight
                for among, table in tables.items():
                    compared = np.where(among == "all" or labels == LABELS[among], table[strata, codes], -1)
                    rows.append(np.flatnonzero((compared >= 0) & (share > 0)))
                    columns.append(compared[rows[-1]])
                    weights.append(share[rows[-1]])
        at = np.concatenate(rows), np.concatenate(columns)
        phi = csc_array((np.concatenate(weights), at), shape=(len(numbers), len(self.columns)))
        phi.sum_duplicates()
        return Membership(phi, self.compared)


def count_rows(coder: Coder, numbers: FloatArray) -> Tally:
    """The number of rows, or the number expected, of each combination of values, stratum and label."""
    beside, total = coder.strata_and_labels(numbers), Counter[tuple[int, ...]]()
    for corner in product(*coder.corners(numbers)):
        shares = [share for _, share in corner if share is not None]
        table = np.column_stack([*(codes for codes, _ in corner), *beside])
        keys, key_of = np.unique(table, axis=0, return_inverse=True)
        rows = np.bincount(key_of.ravel(), np.prod(shares, axis=0) if shares else None, len(keys))
        total.update(dict(zip(map(tuple, keys.tolist()), np.nan_to_num(rows).tolist(), strict=True)))
    return total


@dataclass(frozen=True, eq=False)
class Coded:
    """The coder of some rows, their columns as numbers, and their protected columns with bands by name."""

    coder: Coder
    numbers: FloatArray
    sensitive: Any


@dataclass(frozen=True, eq=False)
class Crossed(Coded):
    """The same rows, by hard, crossed groups too."""

    groups: Codes


def read_crossed(sensitive: Any, rules: Groups, n_rows: int, **columns: Any) -> Crossed:
    """Read rows (`read_coded`) and their hard groups: of bands and probable groups the one with the largest share."""
    rows = read_coded(sensitive, rules, n_rows, **columns)
    first = rows.coder.attributes[0]
    if first.probable:
        # Sizes of probable groups do not follow from the likeliest group of each row, so none is too small here.
        groups = Codes(first.hard(rows.numbers[:, : len(first.values)]), first.values)
        refuse_unknown(groups.codes, rules)
    else:
        groups = read_groups(rows.sensitive, n_rows, of_crossings(rules, rows.coder))
    return Crossed(**vars(rows), groups=groups)


def of_crossings(rules: Groups, coder: Coder) -> Groups:
    """The rules on combinations of values: where each column is compared by itself, these are only counted."""
    return rules if rules.cross or len(coder.attributes) == 1 else rules.but(small="leave_out")


def read_coded(
    sensitive: Any, rules: Groups, n_rows: int, *, rows: Any = None, given: Any = None, labels: FloatArray | None = None
) -> Coded:
    """Read the columns of rows in memory as numbers; the index of ``rows``, the data, must be in the same order.

    There are ``labels`` (n,) where notions compare rows of known outcome.
    """
    strata = tally_columns(() if given is None else protected_columns(given, n_rows, rows, name="given"))
    if isinstance(sensitive, GroupProbabilities):
        if len(sensitive) != n_rows:
            raise ValueError(
                f"sensitive_features has {len(sensitive)} rows, but X has {n_rows}; give one group per row of X"
            )
        coder = Coder.learn((), strata, rules, labelled=labels is not None, probable=sensitive.names)
    else:
        columns = protected_columns(sensitive, n_rows, rows)
        tallies = tally_columns(columns, rules.continuous)
        _warn_indicators(columns)
        coder = Coder.learn(tallies, strata, rules, labelled=labels is not None)
    numbers = coder.encode(sensitive, given, labels, n_rows)
    return Coded(coder, numbers, coder.hardened(sensitive, numbers))


def read_grouping(crossed: Crossed, among: Sequence[str], rules: Groups) -> Grouping | None:
    """The grouping of rows in memory, as notions compare those ``among``; None if it is that of the crossed groups."""
    coder, groups = crossed.coder, crossed.groups
    if not is_plain(coder, among, rules):
        return settle_grouping(coder, count_rows(coder, crossed.numbers), among, rules)
    warn_left_out(groups.left_out, len(groups.labels), rules.min_size)
    _warn_many_crossed(coder.attributes, len(groups.labels) + len(groups.left_out))
    return None


def _warn_many_crossed(attributes: Sequence[Attribute], n: int) -> None:
    """Say how attributes are compared one by one where crossing them makes very many groups."""
    many = any(len(attribute.values) > MANY for attribute in attributes)  # which has led to a warning already
    if len(attributes) > 1 and n > MOST_CROSSED and not many:
        warn(
            SmallGroupWarning(
                "{columns} make {n} groups where they are crossed; set {cross=False} to compare each by itself",
                columns=_listed(attribute.name for attribute in attributes), n=n,
            )
        )  # fmt: skip


def _warn_indicators(columns: Sequence[Any]) -> None:
    """Warn of columns of 0 and 1 that look like the values of one attribute: each row has exactly one 1."""
    ones = ("1", "1.0", "True")
    binary = [column for column in columns if {*map(str, column.unique()[:3])} <= {*ones, "0", "0.0", "False"}]
    families: dict[str, list[Any]] = {"": binary}
    for column in binary:
        families.setdefault(_LAST_MARK.split(str(column.name))[0], []).append(column)
    for family in families.values():
        if len(family) >= 3 and (sum(column.astype(str).isin(ones).astype(int) for column in family) == 1).all():
            warn(
                AttributeWarning(
                    "each row has a 1 in exactly one of {columns}: they look like one attribute, but are crossed as "
                    "{n}; make one column of them, such as frame[[...]].idxmax(axis=1), to compare its values",
                    columns=_listed(column.name for column in family), n=len(family),
                )
            )  # fmt: skip
            return


def _listed(names: Iterable[Any]) -> str:
    *others, last = (repr(str(name)) for name in names)
    shown = others if len(others) <= 3 else [*others[:2], "..."]
    return f"{', '.join(shown)} and {last}"


def is_plain(coder: Coder, among: Collection[str], rules: Groups) -> bool:
    """Whether the groups are one per combination of values, all compared with each other."""
    crossed = rules.cross is True or len(coder.attributes) == 1
    return crossed and set(among) == {"all"} and not (coder.cuts or coder.labelled or coder.soft)


def settle_grouping(coder: Coder, tally: Tally, among: Sequence[str], rules: Groups) -> Grouping:
    """Settle which groups there are, and which are compared, by the rules on small groups."""
    every = tuple(range(len(coder.attributes)))
    each: list[tuple[int, ...]] = [] if rules.cross is True else [(a,) for a in every]
    crossed = dict.fromkeys([*each, every] if rules.cross else each)
    crossings = tuple(_crossing(coder, tally, attributes, rules) for attributes in crossed)
    columns, blocks, counts = _compared(coder, crossings, tally, among, rules.min_size)
    overlaps = _overlaps(coder, crossings, columns)
    if len(overlaps) > MOST_OVERLAPS:
        raise InputError(
            "{n} groups are compared of which {pairs} pairs share rows, more than {most}; join values of "
            "{@sensitive_features}, raise {@min_size}, or set {cross=True}",
            n=len(columns), pairs=len(overlaps), most=MOST_OVERLAPS,
        )  # fmt: skip
    return Grouping(
        coder, crossings, tuple(columns), Comparison(len(columns), tuple(blocks), overlaps),
        np.rint(counts).astype(np.intp),
    )  # fmt: skip


def _crossing(coder: Coder, tally: Tally, indices: tuple[int, ...], rules: Groups) -> CrossedAttributes:
    """Cross some attributes: name their combinations that occur, and settle the small ones."""
    attributes = [coder.attributes[a] for a in indices]
    sizes, columns = tuple(len(each.values) for each in attributes), [each.name for each in attributes]
    counts: Counter[str] = Counter()  # of rows that are expected, which need not be whole
    keys: dict[int, str] = {}
    for key, count in tally.items():
        values = [key[a] for a in indices]
        if min(values) >= 0:
            words = [attribute.values[value] for attribute, value in zip(attributes, values, strict=True)]
            name = words[0] if attributes[0].probable else group_name(columns, words)
            counts[name] += count
            keys[int(np.ravel_multi_index(values, sizes))] = name
    labels, codes, left_out = settle({name: max(int(n + 1e-6), 1) for name, n in counts.items() if n > 0}, rules)
    warn_left_out(left_out, len(labels), rules.min_size)
    _warn_many_crossed(attributes, len(labels) + len(left_out))
    rising, of_keys = np.array(sorted((key, codes[name]) for key, name in keys.items() if name in codes)).T
    return CrossedAttributes(indices, labels, rising, of_keys, sizes, left_out)


def _compared(
    coder: Coder, crossings: Sequence[CrossedAttributes], tally: Tally, among: Sequence[str], least: int
) -> tuple[list[GroupColumn], list[Block], list[float]]:
    """The groups that have rows enough, the blocks in which they are compared, and the rows of each group."""
    columns: list[GroupColumn] = []
    counts: list[float] = []
    blocks: list[Block] = []
    left_out: Counter[str] = Counter()  # strata, by the kind of rows
    for (c, crossing), kind in product(enumerate(crossings), among):
        attributes = [coder.attributes[a] for a in crossing.attributes]
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
        by_size, of = any(each.knots is not None for each in attributes), " & ".join(each.name for each in attributes)
        for stratum, groups in kept.items():
            members, weight = range(len(columns), len(columns) + len(groups)), sum(groups.values()) / total
            blocks.append(Block(tuple(members), weight / len(crossings), by_size, kind, of))
            columns += [GroupColumn(kind, c, stratum, code) for code in groups]
            counts += groups.values()
    _check_strata(coder, {block.among for block in blocks}, among, left_out, least)
    return columns, blocks, counts


def _sizes(crossing: CrossedAttributes, tally: Tally, kind: str) -> Counter[tuple[int, int]]:
    """The rows of each stratum and group, or the number expected."""
    keys = np.array(list(tally), dtype=np.intp)
    codes, _ = crossing.crossed([(keys[:, a], None) for a in crossing.attributes])
    rows: Counter[tuple[int, int]] = Counter()
    for (*_, stratum, label), code, n in zip(keys.tolist(), codes.tolist(), tally.values(), strict=True):
        if stratum >= 0 and code >= 0 and (kind == "all" or label == LABELS[kind]):
            rows[stratum, code] += n
    return Counter({key: round(n, 6) for key, n in rows.items()})  # the same however rows are cut into chunks


def _check_strata(
    coder: Coder, compared: Collection[str], among: Sequence[str], left_out: Mapping[str, int], least: int
) -> None:
    """Warn of strata that are left out, and refuse kinds of rows of which nothing can be ``compared``."""
    for kind in among:
        rows = "rows" if kind == "all" else f"known {kind}"
        if kind in compared and coder.cuts and left_out[kind]:
            warn(
                SmallGroupWarning(
                    "{n} strata of {@given} have no two groups of {least} {rows}: they are left out of the "
                    "comparison. Give fewer or coarser columns, or lower {@min_size}, to compare within them.",
                    n=left_out[kind], rows=rows, least=least,
                )
            )  # fmt: skip
        if kind not in compared and (kind != "all" or coder.cuts):
            raise InputError(
                "there are no two groups of {least} {rows}{strata}: nothing can be compared; lower {@min_size}, or "
                "give more rows",
                least=least, rows=rows, strata=f" in any of {len(coder.strata)} strata" if coder.cuts else "",
            )  # fmt: skip


def _overlaps(
    coder: Coder, crossings: Sequence[CrossedAttributes], columns: Sequence[GroupColumn]
) -> tuple[tuple[int, int], ...]:
    """Pairs of groups that may share rows, of the same stratum and kind of rows."""
    values: list[list[dict[int, int]]] = []  # by attribute, of each combination that makes up each group
    for column in columns:
        crossing = crossings[column.crossing]
        parts = [np.unravel_index(key, crossing.sizes) for key in crossing.keys[crossing.codes == column.code]]
        values.append([dict(zip(crossing.attributes, part, strict=True)) for part in parts])
    # How far apart two values of an attribute may be for a row to have both.
    reach = [np.inf if each.probable else float(each.knots is not None) for each in coder.attributes]

    def share_rows(g: int, h: int) -> bool:
        one, two = columns[g], columns[h]
        hard = not any(reach[a] for a in crossings[one.crossing].attributes)
        if (one.among, one.stratum) != (two.among, two.stratum) or (one.crossing == two.crossing and hard):
            return False
        return any(
            all(abs(left[a] - right[a]) <= reach[a] for a in left.keys() & right.keys())
            for left, right in product(values[g], values[h])
        )

    return tuple((g, h) for g, h in combinations(range(len(columns)), 2) if share_rows(g, h))
