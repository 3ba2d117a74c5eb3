"""The kinds of columns that a table may have: each knows its features, and how rows of it become numbers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from evenout.core.exceptions import InputError
from evenout.core.types import AnyArray, FloatArray
from evenout.inputs.readings import (
    COMMA,
    DATE,
    NUMBER,
    TIME,
    TRUTH,
    as_days,
    column_texts,
    date_parts,
    read_as,
    shown_form,
    unit_of,
)
from evenout.inputs.rows import LARGEST

if TYPE_CHECKING:
    import pandas as pd

OTHER = "other"
GAP = "missing"
PLAIN = ("boolean", "integer", "floating", "mixed-integer-float", "decimal")  # kinds of values that are numbers
_MEANT = {NUMBER: "numbers", COMMA: "numbers", TRUTH: "yes or no", TIME: "times such as 14:30"}


@dataclass(frozen=True)
class Numbers:
    """One feature; gaps are filled by the median.

    Parameters
    ----------
    name : str
    median : float
    way : str
        How text is read; see `evenout.inputs.readings`.
    unit : str
        Of numbers that are written with one.
    note : str
        What was done with the column, empty if it was taken as it is.
    """

    name: str
    median: float
    way: str = NUMBER
    unit: str = ""
    note: str = ""
    kind: ClassVar = "numbers"

    @property
    def features(self) -> list[str]:
        """The name alone."""
        return [str(self.name)]

    def encode(self, column: "pd.Series") -> FloatArray:
        """Rows of shape (m, 1)."""
        values = column_values(self.name, column, self.way, self.unit)
        return np.where(np.isnan(values), self.median, values)[:, None]


@dataclass(frozen=True)
class Dates:
    """Days since the first date, and month, weekday and hour where they differ; gaps are filled by the median date.

    Parameters
    ----------
    name, median, way, note : see `Numbers`
    first : float
        In days since 1970, as the median.
    parts : tuple of {"month", "weekday", "hour"}
    """

    name: str
    median: float
    first: float
    way: str
    parts: tuple[str, ...] = ()
    note: str = ""
    kind: ClassVar = "dates"

    @property
    def features(self) -> list[str]:
        """``joined (days)``, ``joined (month)``, ..."""
        return [f"{self.name} ({part})" for part in ("days", *self.parts)]

    def encode(self, column: "pd.Series") -> FloatArray:
        """Rows of shape (m, 1 + parts)."""
        values = column_values(self.name, column, self.way)
        days = np.where(np.isnan(values), self.median, values)
        parts = date_parts(days)
        return np.column_stack([days - self.first, *(parts[part] for part in self.parts)])


@dataclass(frozen=True)
class Categories:
    """One feature for each text, the most frequent first, those that are equally frequent in the order of the alphabet.

    Parameters
    ----------
    name, note : see `Numbers`
    values : tuple of str
        With ``"missing"`` where the column has gaps, and ``"other"`` at the end where rare texts are one category.
    rest : bool
        Whether all further text is ``"other"``; if not, it is none of the values.
    """

    name: str
    values: tuple[str, ...]
    rest: bool = False
    note: str = ""
    kind: ClassVar = "categories"

    @property
    def features(self) -> list[str]:
        """``home=own``, ``home=rent``, ..."""
        return [f"{self.name}={value}" for value in self.values]

    def encode(self, column: "pd.Series") -> FloatArray:
        """Rows of shape (m, values), with at most a single 1."""
        places = self._places(column)
        rows = np.zeros((len(places), len(self.values)))
        known = places >= 0
        rows[known, places[known]] = 1.0
        return rows

    def unknown(self, column: "pd.Series") -> dict[str, int]:
        """Text that is none of the values, and how many rows hold it."""
        return dict(Counter(_filled(column)[self._places(column) < 0]))

    def _places(self, column: "pd.Series") -> AnyArray:
        known = {value: place for place, value in enumerate(self.values)}
        none = known[OTHER] if self.rest else -1
        return np.array([known.get(text, none) for text in _filled(column)], dtype=np.intp)


@dataclass(frozen=True)
class LeftOut:
    """No feature: new tables need not have the column.

    Parameters
    ----------
    name, note : see `Numbers`
    """

    name: str
    note: str
    kind: ClassVar = "left out"
    features: ClassVar[list[str]] = []


Column = Numbers | Dates | Categories | LeftOut
KINDS: Mapping[str, type[Column]] = {kind.kind: kind for kind in (Numbers, Dates, Categories, LeftOut)}


def kind_of_values(column: "pd.Series") -> str:
    """``number``, ``date``, ``text``, ``category`` or ``empty``; values of other kinds are refused."""
    import pandas as pd

    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return "empty" if np.isnan(column.to_numpy()).all() else "number"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found in PLAIN or found.startswith("timedelta"):
        return "number" if column.notna().any() else "empty"
    if found.startswith("date") or found == "period":
        return "date"
    if found in ("string", "mixed-integer", "time", "empty"):
        return "text" if found != "empty" else found
    raise InputError(
        "column {name!r} holds values of kind {found!r}; turn it into numbers, dates or text, or {-name}",
        name=column.name, found=found,
    )  # fmt: skip


def column_values(name: str, column: "pd.Series", way: str, unit: str = "") -> FloatArray:
    """The column read in a way, NaN where a value is missing; a value that cannot be read so is an error."""
    import pandas as pd

    kind = kind_of_values(column)
    if kind == "empty":
        return np.full(len(column), np.nan)
    if kind == "date" and way.startswith(DATE):
        return stamps(column)
    if kind == "number" and not way.startswith(DATE):
        return column_numbers(name, column)
    texts = column_texts(column)
    known = texts != None  # noqa: E711 (each element)
    place, distinct = pd.factorize(texts[known])
    read = read_as(way, distinct)
    if way in (NUMBER, COMMA):
        read[[unit_of(text) not in ("", unit) for text in distinct]] = np.nan
    values = np.full(len(texts), np.nan)
    values[known] = read[place]
    slips = known & np.isnan(values)
    if slips.any():
        meant = _MEANT.get(way, f"dates written as {shown_form(way)}") + (f" in {unit!r}" if unit else "")
        row = int(slips.argmax())
        raise ValueError(f"column {name!r} must hold {meant}, but has {texts[row]!r} in row {row + 1}")
    return _checked(name, values)


def column_numbers(name: str, column: "pd.Series") -> FloatArray:
    """The column as floats, NaN where a value is missing."""
    import pandas as pd

    if column.dtype.kind == "m":
        column = column / pd.Timedelta(days=1)
    if column.dtype.kind == "M":  # numpy would count nanoseconds
        raise ValueError(f"column {name!r} must hold numbers, but holds dates")
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):
        slip = int((numbers_or_gaps(column).isna() & column.notna()).to_numpy().argmax())
        raise ValueError(
            f"column {name!r} must hold numbers, but has {str(column.iloc[slip])!r} in row {slip + 1}"
        ) from None
    return _checked(name, values)


def numbers_or_gaps(column: "pd.Series") -> "pd.Series":
    """The column as numbers, missing where a value is none."""
    import pandas as pd

    try:
        return pd.to_numeric(column.astype(object), errors="coerce")
    except OverflowError:  # a whole number that is too large to be a float
        small = [np.nan if isinstance(value, int) and abs(value) > LARGEST else value for value in column]
        return pd.to_numeric(pd.Series(small, column.index, dtype=object), errors="coerce")


def stamps(column: "pd.Series") -> FloatArray:
    """Dates or periods as days since 1970, NaN where one is missing."""
    import pandas as pd

    return as_days(column.dt.to_timestamp() if isinstance(column.dtype, pd.PeriodDtype) else column)


def _checked(name: str, values: FloatArray) -> FloatArray:
    if np.isinf(values).any():
        raise ValueError(
            f"column {name!r} is infinite in row {int(np.isinf(values).argmax()) + 1}; correct it, or leave it empty"
        )
    huge = np.abs(values) > LARGEST
    if huge.any():
        row = int(huge.argmax())
        raise InputError(
            "column {name!r} has {value:.3g} in row {row}; rescale a column with values above {most:g} in magnitude, "
            "or {-name}",
            name=name, value=values[row], row=row + 1, most=LARGEST,
        )  # fmt: skip
    return values


def _filled(column: "pd.Series") -> AnyArray:
    texts = column_texts(column)
    texts[texts == None] = GAP  # noqa: E711 (each element)
    return texts
