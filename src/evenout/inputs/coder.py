"""Protected columns, columns that may justify a difference, and labels: as numbers, by what was learnt on all rows.

A protected column is an *attribute*: its values are groups, or overlapping bands of a number, or groups known by their
probabilities. `Seen` gathers what all rows tell of the columns, and adds over chunks of rows; `Coder` is learnt from it
and makes numbers of any rows. `evenout.inputs.grouping` makes memberships of those.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from evenout.core.exceptions import ContinuousWarning, InputError, warn
from evenout.core.sketch import QuantileSketch
from evenout.core.types import FloatArray, IntArray
from evenout.inputs.groups import coded, protected_columns, quoted
from evenout.inputs.probable import GroupProbabilities

MANY = 20  # a column of fractions with more values than this is a continuous attribute
CUTS = 5  # strata that a number is cut into
_EXACT = 1_000_000  # values up to which quantiles are exact

# One of the values that a row may have, by its place (-1: none), and how much it has it (None: fully).
Corner: TypeAlias = tuple[IntArray, FloatArray | None]


@dataclass(frozen=True)
class Seen:
    """What rows tell of one column.

    Parameters
    ----------
    names : frozenset of str
        Of the values; none of a number with many values.
    numbers : QuantileSketch
        Of the values that are numbers.
    few : tuple of float
        Different numbers, one more than `MANY` at most.
    fractions, texts : bool
        Whether there are floats that are no whole numbers, and values that are no numbers.
    """

    names: frozenset[str]
    numbers: QuantileSketch
    few: tuple[float, ...]
    fractions: bool
    texts: bool

    @classmethod
    def of(cls, column: Any, *, number: bool = False) -> "Seen":
        """Look at a column; ``number`` says that it must hold numbers, also as text."""
        import pandas as pd

        plain = column.dtype.kind in "iuf" or (
            column.dtype.kind == "O" and pd.api.types.infer_dtype(column, skipna=True) in _NUMBERS
        )
        values = _numbers(column) if number or plain else np.empty(0)
        values = values[np.isfinite(values)]
        few = tuple(np.unique(values)[: MANY + 1].tolist())
        fractions = column.dtype.kind == "f" and bool((values != np.floor(values)).any())
        many = number or (fractions and len(few) > MANY)
        names = frozenset() if many else frozenset(coded(column, joined=False)[1])
        texts = bool(names) and not plain and not number
        return cls(names, QuantileSketch.of(values, _EXACT), few, fractions, texts)

    def __add__(self, other: "Seen") -> "Seen":
        few = tuple(sorted({*self.few, *other.few})[: MANY + 1])
        fractions, texts = self.fractions or other.fractions, self.texts or other.texts
        return Seen(self.names | other.names, self.numbers + other.numbers, few, fractions, texts)

    @property
    def many(self) -> bool:
        """Whether this is a continuous attribute by itself: fractions of many values."""
        return self.fractions and not self.texts and len(self.few) > MANY


_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "empty")


@dataclass(frozen=True)
class Attribute:
    """A protected column: values, bands of a number, or probable groups.

    Parameters
    ----------
    name : str
    values : tuple of str
        Names of the groups.
    knots : array of shape (G,), optional
        A number: band g is 1 at knot g and falls to 0 at the knots beside it.
    probable : bool
        Groups are known by their probabilities.
    """

    name: str
    values: tuple[str, ...]
    knots: FloatArray | None = None
    probable: bool = False

    @classmethod
    def of_bands(cls, name: str, numbers: QuantileSketch, bands: int) -> "Attribute":
        """Bands of nearly equal weight: knots at the quantiles (g + 1/2) / G, as many as are different."""
        shares = (np.arange(bands) + 0.5) / bands
        ends = numbers.quantile(0.0), numbers.quantile(1.0)
        knots = np.unique([numbers.quantile(share) for share in shares])
        knots = knots if len(knots) > 1 else np.unique(ends)
        if len(knots) < 2:
            raise InputError("{@continuous} has column {name!r}, which has one value only; leave it out", name=name)
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

    def encode(self, column: Any, *, joined: bool) -> FloatArray:
        """The value's place, or the number; NaN where it is missing or was not there in fit, shape (n,)."""
        if self.knots is not None:
            return _numbers(column)
        codes, names = coded(column, joined=joined)
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

    def share_rows(self, one: int, two: int) -> bool:
        """Whether a row may belong to both of two groups."""
        return self.probable or one == two or (self.knots is not None and abs(one - two) == 1)


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
    def of(cls, name: str, seen: Seen) -> "Cut":
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
            return Attribute(self.name, self.values).encode(column, joined=False)
        values = _numbers(column)
        return np.where(np.isnan(values), np.nan, np.searchsorted(self.edges, values, side="left"))


@dataclass(frozen=True)
class Coder:
    """From columns to numbers.

    Parameters
    ----------
    attributes : tuple of Attribute
    cuts : tuple of Cut
    labelled : bool
        Whether labels are a column, the last one.
    """

    attributes: tuple[Attribute, ...]
    cuts: tuple[Cut, ...] = ()
    labelled: bool = False

    @classmethod
    def learn(
        cls,
        sensitive: Sequence[tuple[str, Seen]],
        given: Sequence[tuple[str, Seen]],
        *,
        continuous: Collection[str],
        bands: int,
        labelled: bool,
    ) -> "Coder":
        """Attributes and cuts from what all rows tell."""
        require_protected(continuous, [name for name, _ in sensitive])
        attributes = []
        for name, seen in sensitive:
            if seen.many and name not in continuous:
                template = (
                    "{@sensitive_features} has more than {n} values with fractions in column {name!r}: it is taken as "
                    "a continuous attribute, in {bands=}; name it in {@continuous}, or give groups of your own"
                )
                warn(ContinuousWarning(template, n=MANY, name=name, bands=bands))
            if seen.many or name in continuous:
                attributes.append(Attribute.of_bands(name, seen.numbers, bands))
            else:
                names = sorted(seen.names) if len(sensitive) == 1 else sorted(map(quoted, seen.names))
                attributes.append(Attribute(name, tuple(names)))
        return cls(tuple(attributes), tuple(Cut.of(name, seen) for name, seen in given), labelled)

    @classmethod
    def of_probable(
        cls, names: tuple[str, ...], given: Sequence[tuple[str, Seen]] = (), *, labelled: bool = False
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
            parts = [attribute.encode(column, joined=len(columns) > 1)[:, None] for attribute, column in pairs]
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

    def attribute_columns(self) -> list[slice]:
        """Where the numbers of each attribute are."""
        ends = np.cumsum([0, *(attribute.width for attribute in self.attributes)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def hard(self, numbers: FloatArray) -> IntArray:
        """The group of each attribute that each row belongs to most, shape (n, attributes); -1 for none."""
        found = zip(self.attributes, self.attribute_columns(), strict=True)
        return np.column_stack([attribute.hard(numbers[:, at]) for attribute, at in found])

    def strata(self, numbers: FloatArray) -> IntArray:
        """The stratum of each row, all cuts crossed, shape (n,); -1 for none."""
        first = self.attribute_columns()[-1].stop
        strata = np.zeros(len(numbers), dtype=np.intp)
        for place, cut in enumerate(self.cuts):
            part = numbers[:, first + place]
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
    from evenout.inputs.columns import numbers_or_gaps  # loads what plain groups need not

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
