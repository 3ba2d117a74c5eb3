"""Decide what each column of a table is, and turn it into numbers.

A *way* to read a column is a short text that a model can keep: ``number``, ``number with comma``, ``truth``, ``time``,
or ``date`` and a format. A column is read in a way only if that way reads every value of it.

The rules are the same for one part and for many. Up to 4,096 distinct values are counted exactly, more within 5 %; a
median comes from a sketch that the caller may make exact.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenout.core.sketch import CAPACITY, QuantileSketch
from evenout.core.types import FINITE, AnyArray, FloatArray, IntArray, Within, require
from evenout.exceptions import InputError
from evenout.tables.files import MISSING
from evenout.tables.rows import LARGEST, numbers_or_gaps

NUMBER, COMMA, TRUTH, TIME, DATE = "number", "number with comma", "truth", "time", "date "
NUMBERS = (NUMBER, COMMA, TRUTH, TIME)  # ways that end in one number
DATE_PARTS = ("month", "weekday", "hour")

_CURRENCY = r"[$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY)\b"
_UNIT = rf"(?:{_CURRENCY}|[%‰]|°?[^\W\d_]{{1,12}}[²³]?(?:/[^\W\d_]{{1,12}})?)"
_POINT = r"\d{1,3}(?:[,'\s]\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
_WITH_COMMA = r"\d{1,3}(?:[.'\s]\d{3})+(?:,\d+)?|\d+,\d+(?:[eE][-+]?\d+)?|\d+"
_SHAPES = {
    way: re.compile(
        rf"(?P<sign>[-+\u2212]?)\s?(?P<before>{_CURRENCY})?\s?(?P<minus>-?)(?P<digits>{digits})\s?(?P<after>{_UNIT})?"
    )
    for way, digits in ((NUMBER, _POINT), (COMMA, _WITH_COMMA))
}
_NO_VALUE = frozenset(MISSING)
_TRUTHS = dict.fromkeys(("yes", "y", "true", "t", "on"), 1.0) | dict.fromkeys(("no", "n", "false", "f", "off"), 0.0)

_ISO = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:[T ].+)?")
_DAYS = (
    "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%b-%Y", "%b %Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%b-%y",
)  # fmt: skip
_LETTERS = {
    "%d": "DD", "%m": "MM", "%Y": "YYYY", "%y": "YY", "%b": "Jan", "%B": "January", "%H": "hh", "%M": "mm", "%S": "ss",
}  # fmt: skip
_CLOCKS = ("%H:%M:%S", "%H:%M")
_FORMATS = ("ISO8601", *(day + clock for day in _DAYS for clock in ("", *(f" {clock}" for clock in _CLOCKS))))
_DATES = tuple(DATE + form for form in _FORMATS)
_SAMPLE = 20  # texts that rule ways out before all texts are read
_DAY = np.timedelta64(1, "D")


def column_texts(column: pd.Series) -> AnyArray:
    """The column as an object array of text without spaces around it, None where it is missing or one of `MISSING`."""
    texts = np.array([str(value).strip() for value in column], dtype=object)
    texts[column.isna().to_numpy() | np.array([text in _NO_VALUE for text in texts], dtype=bool)] = None
    return texts


def ways_to_read(texts: AnyArray) -> dict[str, FloatArray]:
    """Every way that reads all of the texts (m,), and the values that it reads (m,)."""
    few = texts[:: max(1, len(texts) // _SAMPLE)]
    likely = [way for way in (*NUMBERS, *_DATES) if not np.isnan(read_as(way, few)).any()]
    read = {way: read_as(way, texts) for way in likely}
    return {way: values for way, values in read.items() if not np.isnan(values).any()}


def read_as(way: str, texts: AnyArray) -> FloatArray:
    """Numbers, 1 and 0 for truth values, hours of a time, days since 1970 of a date; NaN for other texts.

    >>> read_as("number", np.array(["$1,234.5", "12 %", "x"], dtype=object)).tolist()
    [1234.5, 12.0, nan]
    """
    if way in _SHAPES:
        return np.array([_number(way, text) for text in texts], dtype=np.float64)
    if way == TRUTH:
        return np.array([_TRUTHS.get(text.lower(), np.nan) for text in texts], dtype=np.float64)
    if way == TIME:
        with_seconds, without = (read_as(DATE + clock, texts) % 1.0 * 24.0 for clock in _CLOCKS)
        return np.where(np.isnan(with_seconds), without, with_seconds)
    form = way.removeprefix(DATE)
    if form == "ISO8601" and not all(_ISO.fullmatch(text) for text in texts):
        return np.full(len(texts), np.nan)
    return as_days(pd.to_datetime(pd.Series(texts, dtype=object), format=form, utc=True, errors="coerce"))


def unit_of(text: str) -> str:
    """The unit before or after the digits of a number: ``$``, ``%``, ``kg``; empty if there is none.

    >>> [unit_of(text) for text in ("$5", "7kg", "1,5 kg", "3", "2 months")]
    ['$', 'kg', 'kg', '', 'month']
    """
    match = _SHAPES[NUMBER].fullmatch(text) or _SHAPES[COMMA].fullmatch(text)
    unit = (match["before"] or match["after"] or "") if match else ""
    folded = unit.lower() if len(unit) > 1 else unit
    return folded.removesuffix("s") if len(folded) > 3 else folded  # months are counted in the unit of one month


def as_days(values: Any) -> FloatArray:
    """Dates or periods of pandas as days since 1970, NaN where one is missing."""
    column = pd.Series(values)
    column = column.dt.to_timestamp() if isinstance(column.dtype, pd.PeriodDtype) else column
    instants = pd.to_datetime(column, utc=True, errors="coerce").dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    return np.where(np.isnat(instants), np.nan, (instants - np.datetime64(0, "us")) / _DAY)


def date_parts(days: FloatArray) -> dict[str, FloatArray]:
    """Month (1 to 12), weekday (0 is Monday) and hour of days since 1970."""
    months = np.floor(days).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    values = months % 12 + 1, (np.floor(days) + 3.0) % 7.0, days % 1.0 * 24.0
    return {part: np.asarray(each, dtype=np.float64) for part, each in zip(DATE_PARTS, values, strict=True)}


def shown_form(way: str) -> str:
    """The format of dates, for people.

    >>> shown_form("date %d.%m.%Y %H:%M"), shown_form("date ISO8601")
    ('DD.MM.YYYY hh:mm', 'YYYY-MM-DD')
    """
    form = way.removeprefix(DATE).replace("ISO8601", "%Y-%m-%d")
    for code, letters in _LETTERS.items():
        form = form.replace(code, letters)
    return form


def _number(way: str, text: str) -> float:
    match = _SHAPES[way].fullmatch(text)
    if match is None:
        return float("nan")
    digits = re.sub(r"[,'\s]" if way == NUMBER else r"[.'\s]", "", match["digits"]).replace(",", ".")
    return float(digits) * (-1.0 if match["sign"] in ("-", "\u2212") or match["minus"] else 1.0)


_LATEST = 1e7  # days since 1970: the year 29349
OTHER = "other"
GAP = "missing"
_PLAIN = ("boolean", "integer", "floating", "mixed-integer-float", "decimal")  # kinds of values that are numbers
_WRITTEN = {TRUTH: "yes and no, as 1 and 0", TIME: "times of day, as hours"}
_MEANT = {NUMBER: "numbers", COMMA: "numbers", TRUTH: "yes or no", TIME: "times such as 14:30"}


@dataclass(frozen=True)
class Numbers:
    """One feature; gaps are filled by the median."""

    name: str
    median: Annotated[float, FINITE]
    way: Annotated[str, tuple(NUMBERS)] = NUMBER
    unit: str = ""  # of numbers that are written with one
    note: str = ""  # how the column was changed; empty if it was taken as it is
    kind: ClassVar = "numbers"

    @property
    def features(self) -> list[str]:
        """The name alone."""
        return [str(self.name)]

    def encode(self, column: pd.Series) -> FloatArray:
        """Rows of shape (m, 1)."""
        values = column_values(self.name, column, self.way, self.unit)
        return np.where(np.isnan(values), self.median, values)[:, None]


@dataclass(frozen=True)
class Dates:
    """Days since the first date, and month, weekday and hour where they differ; gaps are filled by the median date."""

    name: str
    median: Annotated[float, FINITE, Within(-_LATEST, _LATEST)]  # in days since 1970
    first: Annotated[float, FINITE, Within(-_LATEST, _LATEST)]  # likewise
    way: str
    parts: tuple[Annotated[str, tuple(DATE_PARTS)], ...] = ()
    note: str = ""
    kind: ClassVar = "dates"

    def check(self) -> None:
        """It is read as dates."""
        require(self.way.startswith(DATE), "way", "is of no known kind")

    @property
    def features(self) -> list[str]:
        """``joined (days)``, ``joined (month)``, ..."""
        return [f"{self.name} ({part})" for part in ("days", *self.parts)]

    def encode(self, column: pd.Series) -> FloatArray:
        """Rows of shape (m, 1 + parts)."""
        values = column_values(self.name, column, self.way)
        days = np.where(np.isnan(values), self.median, values)
        parts = date_parts(days)
        return np.column_stack([days - self.first, *(parts[part] for part in self.parts)])


@dataclass(frozen=True)
class Categories:
    """One feature for each text, the most frequent first, those that are equally frequent in the order of the alphabet.

    Gaps are the value ``"missing"``, and rare texts are one category, ``"other"``, at the end.
    """

    name: str
    values: tuple[str, ...]
    rest: bool = False  # all further text is "other"; if not, it is none of the values
    note: str = ""
    kind: ClassVar = "categories"

    def check(self) -> None:
        """A value each, and one for the rest."""
        require(self.values, "values", "is empty")
        require(len({*self.values}) == len(self.values), "values", "names one twice")
        require(OTHER in self.values or not self.rest, "values", "has no place for the rest")

    @property
    def features(self) -> list[str]:
        """``home=own``, ``home=rent``, ..."""
        return [f"{self.name}={value}" for value in self.values]

    def encode(self, column: pd.Series) -> FloatArray:
        """Rows of shape (m, values), with at most a single 1."""
        # The last row is for unknown text, code -1.
        return np.eye(len(self.values) + 1, len(self.values))[self._coded(column)[1]]

    def unknown(self, column: pd.Series) -> dict[str, int]:
        """Text that is none of the values, and how many rows hold it."""
        texts, codes = self._coded(column)
        return dict(Counter(texts[codes < 0]))

    def _coded(self, column: pd.Series) -> tuple[AnyArray, IntArray]:
        """The texts of the rows, gaps named, and the index of each among the values; -1 for unknown text."""
        texts, code_of = column_texts(column), {value: code for code, value in enumerate(self.values)}
        texts[texts == None] = GAP  # noqa: E711 (each element)
        other = code_of[OTHER] if self.rest else -1
        return texts, np.array([code_of.get(text, other) for text in texts], dtype=np.intp)


@dataclass(frozen=True)
class DroppedColumn:
    """No feature: new tables need not have the column."""

    name: str
    note: str
    kind: ClassVar = "left out"
    features: ClassVar[list[str]] = []


Column = Numbers | Dates | Categories | DroppedColumn


def kind_of_values(column: pd.Series) -> str:
    """``number``, ``date``, ``text``, ``category`` or ``empty``; values of other kinds are refused."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return "empty" if np.isnan(column.to_numpy()).all() else "number"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found in _PLAIN or found.startswith("timedelta"):
        return "number" if column.notna().any() else "empty"
    if found.startswith("date") or found == "period":
        return "date"
    if found in ("string", "mixed-integer", "time", "empty"):
        return "text" if found != "empty" else found
    raise InputError(
        "column {name!r} holds values of kind {found!r}; turn it into numbers, dates or text, or {-name}",
        name=column.name, found=found,
    )  # fmt: skip


def column_values(name: str, column: pd.Series, way: str, unit: str = "") -> FloatArray:
    """The column read in a way, NaN where a value is missing; a value that cannot be read so is an error."""
    kind = kind_of_values(column)
    if kind == "empty":
        return np.full(len(column), np.nan)
    if kind == "date" and way.startswith(DATE):
        return as_days(column)
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


def column_numbers(name: str, column: pd.Series) -> FloatArray:
    """The column as floats, NaN where a value is missing."""
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


MAX_CATEGORIES = 50  # different texts in a column; of more, the frequent ones are kept
_CODES = 20  # different numbers in a column of text that may still be names, such as codes
_NEARLY = 0.9  # of the rows: a column with so many different values tells rows apart
_FEW_ROWS = 20  # in which all values may differ by chance
_HASHES = 4096
_TEXTS = 16384  # texts that are counted one by one where parts are added up
_LONG = 100_000  # whole numbers from here on, all different and of one length, look like those of people
_STAMPS = DATE + "as such"

_ID = re.compile(
    r"(?i:unnamed: ?\d+|id|ids|index|idx|row|key|rowid|row[ _-]?(?:id|no|nr|number)|.*[ _.-](?:id|key|no|nr)|id[ _.-].*"
    r"|.*(?:uuid|guid).*)|.*[a-z](?:Id|ID)"
)


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OUTCOME = re.compile(
    "labels?|outliers?|anomaly|fraud|target|truth|outcome|response|y|recid|recidivis[mt]|default(ed)?|churn(ed)?|class|event"
    "|died|death|deceased|mortality|convict(ed|ion)|arrested|bad|readmitted"
)
_SCORE = re.compile("scores?|decile|percentile|risk|rating|predict(ed|ion)|prob|proba|probability|pd")
_PERSON = re.compile("ids?|uid|uuid|guid|member|person|patient|client|customer|account|user|applicant|ssn|nr|no|number")


class SlipError(InputError):
    """A column of numbers has text in it; the fields name one."""


@dataclass(frozen=True)
class ColumnFindings:
    """A summary of some rows of a column; findings of chunks of rows add."""

    rows: int
    known: int  # rows with a value
    kind: str  # "empty", "number", "date", "text" or "category"
    whole: bool  # all numbers are whole
    hashes: npt.NDArray[np.uint64]  # the smallest ones of the different values, sorted
    ways: Mapping[str, QuantileSketch]  # the values, by every way that reads them all
    texts: Counter[str]
    units: Counter[str]  # rows of each unit that is written beside numbers

    @classmethod
    def of(cls, column: pd.Series, capacity: int | None = CAPACITY) -> "ColumnFindings":
        """Summarise a column; a capacity of None makes medians exact."""
        kind = kind_of_values(column)
        if kind in ("number", "date"):
            values = column_numbers(str(column.name), column) if kind == "number" else as_days(column)
            values = values[~np.isnan(values)] + 0.0  # one zero, not two
            way = {NUMBER if kind == "number" else _STAMPS: QuantileSketch.of(values, capacity)}
            whole = kind == "number" and column.dtype.kind != "b" and bool((values == np.floor(values)).all())
            return cls(len(column), len(values), kind, whole, _hashes(values), way, Counter(), Counter())
        texts = column_texts(column)
        counted = Counter(texts[texts != None])  # noqa: E711 (each element)
        distinct, counts = np.array([*counted], dtype=object), np.array([*counted.values()], dtype=np.int64)
        read = ways_to_read(distinct) if kind == "text" and counted else {}
        ways = {way: QuantileSketch.of(np.repeat(values, counts), capacity) for way, values in read.items()}
        units: Counter[str] = Counter()
        for text, count in counted.items():
            units[unit_of(text)] += count
        del units[""]
        kind = kind if counted else "empty"
        return cls(len(column), counted.total(), kind, False, _hashes(distinct), ways, counted, units)

    def __add__(self, other: "ColumnFindings") -> "ColumnFindings":
        full, both = other if self.kind == "empty" else self, (self, other)
        ways = full.ways
        if all(each.kind != "empty" for each in both):
            ways = {way: self.ways[way] + other.ways[way] for way in self.ways.keys() & other.ways.keys()}
        texts = self.texts + other.texts
        if len(texts) > _TEXTS:
            texts = Counter(dict(by_frequency(texts)[:_TEXTS]))
        whole = all(each.whole or each.kind == "empty" for each in both)
        return ColumnFindings(
            self.rows + other.rows, self.known + other.known, full.kind, whole,
            np.unique(np.concatenate([self.hashes, other.hashes]))[:_HASHES], ways, texts, self.units + other.units,
        )  # fmt: skip

    @property
    def distinct(self) -> int:
        """The number of distinct values."""
        if len(self.hashes) < _HASHES:
            return len(self.hashes)
        return min(self.known - 1, round((_HASHES - 1) / (float(self.hashes[-1]) / 2.0**64)))


def by_frequency(texts: Counter[str]) -> list[tuple[str, int]]:
    """Texts and their counts: the most frequent first, equally frequent ones in the order of the alphabet."""
    return sorted(texts.items(), key=lambda item: (-item[1], item[0]))


def taken_for(name: str, found: ColumnFindings, *, keep: bool = False) -> Column:
    """Decide what a column is; one that is to be kept is a feature, whatever it holds."""
    if not found.known:
        return DroppedColumn(name, "left out, no value in any row")
    if found.distinct == 1 and not keep and (found.kind in ("number", "date") or found.known == found.rows):
        return DroppedColumn(name, "left out, the same value in all rows")
    way = _way(name, found)
    why = "" if keep else _identifier(name, found, way)
    if why:
        return DroppedColumn(name, f"left out, {why}")
    if way == "":
        return _categories(name, found)
    sketch, gaps, written = found.ways[way], found.rows - found.known, found.kind == "text"
    first, median = sketch.quantile(0.0), sketch.quantile(0.5)
    dated = way.startswith(DATE)
    since, shown = (str(np.datetime64(int(np.floor(day)), "D")) if dated else f"{day:.6g}" for day in (first, median))
    filled = [f"{gaps:,} gap{'' if gaps == 1 else 's'} filled by the median, {shown}"] if gaps else []
    if dated:
        parts = tuple(part for part, each in date_parts(np.concatenate(sketch.levels)).items() if np.ptp(each) > 0)
        form = f" written as {shown_form(way)}" if written and way != DATE + "ISO8601" else ""
        said = f"dates{form}, as " + ", ".join([f"days since {since}", *parts])
        return Dates(name, median, first, way, parts, "; ".join([said, *filled]))
    unit = min(found.units, default="") if way in (NUMBER, COMMA) and written else ""
    said = f"numbers written as text{' with decimal commas' if way == COMMA else ''}{f', in {unit}' if unit else ''}"
    return Numbers(name, median, way, unit, "; ".join([*([_WRITTEN.get(way, said)] if written else []), *filled]))


def likely_role(name: str, found: ColumnFindings) -> str:
    """The likely role of a column by name and values: "outcome", "score" (of another model), "person number" or ""."""
    words = [word.lower() for word in _WORD.findall(str(name))]
    if found.distinct == 2 and any(_OUTCOME.fullmatch(word) for word in words):
        return "outcome"
    if found.distinct > 2 and any(_SCORE.fullmatch(word) for word in words):
        return "score"
    if found.whole and found.known >= _FEW_ROWS and found.distinct >= _NEARLY * found.known:
        low, high = (found.ways[NUMBER].quantile(end) for end in (0.0, 1.0))
        same_length = low >= _LONG and len(f"{low:.0f}") == len(f"{high:.0f}")
        if same_length or any(_PERSON.fullmatch(word) for word in words):
            return "person number"
    return ""


def _way(name: str, found: ColumnFindings) -> str:
    """The way in which the column is read; empty for text."""
    if found.kind in ("number", "date"):
        return next(iter(found.ways))
    if found.kind == "category":
        return ""
    numbers = [way for way in (NUMBER, COMMA) if way in found.ways]
    measured = found.units.total() >= 0.5 * found.known
    if numbers and len(found.units) > 1 and measured and found.distinct > _CODES:
        raise InputError(
            "column {name!r} has numbers in different units ({named}); write all of them in one, or {-name}",
            name=name, named=", ".join(map(repr, sorted(found.units)[:4])),
        )  # fmt: skip
    named_codes = found.distinct <= _CODES and not found.units and numbers[:1] != [COMMA]
    if numbers and not named_codes and (not found.units or (measured and len(found.units) == 1)):
        return numbers[0]
    if TRUTH in found.ways and found.ways[TRUTH].quantile(0.0) < found.ways[TRUTH].quantile(1.0):
        return TRUTH
    dates = [way for way in found.ways if way.startswith(DATE)]
    if not dates:
        _refuse_slips(name, found)
    # Four digits of a year before two, and the month before the day where nothing tells them apart.
    first = min(dates, key=lambda way: ("%y" in way, "%d/%m" in way or "%m-%d" in way, way), default="")
    return TIME if TIME in found.ways else first


def _refuse_slips(name: str, found: ColumnFindings) -> None:
    """Refuse numbers with a slip among them: as text they would be categories, each of a row or two."""
    texts = np.array(list(found.texts), dtype=object)
    read = read_as(NUMBER, texts)
    read[[unit_of(text) != "" for text in texts]] = np.nan
    slips = np.array([found.texts[text] for text in texts[np.isnan(read)]], dtype=np.int64)
    if len(slips) and len(np.unique(read[~np.isnan(read)])) > _CODES and slips.sum() <= 0.5 * found.known:
        raise SlipError(
            "column {name!r} is mostly numbers, but has {text!r}{where} ({n} row{s} with text); correct it, leave it "
            "empty, or, for the whole column, {-name}",
            name=name, text=str(min(texts[np.isnan(read)])), n=slips.sum(), s="" if slips.sum() == 1 else "s", where="",
        )  # fmt: skip


def _identifier(name: str, found: ColumnFindings, way: str) -> str:
    """The reason why the column is a mere identifier of rows; empty if it may be more."""
    named, nearly = _ID.fullmatch(str(name)) is not None, found.distinct >= _NEARLY * found.known
    share = found.distinct / found.known
    differs = "different in " + ("every row" if share == 1.0 else f"about {min(share, 0.99):.0%} of the rows")
    if way == "":
        apart = (nearly and found.known >= _FEW_ROWS) or (named and found.distinct > MAX_CATEGORIES)
        return f"text that tells rows apart, {differs}" if apart else ""
    if not found.whole:
        return ""
    if named and (nearly or found.distinct > MAX_CATEGORIES or str(name).lower().startswith("unnamed")):
        return f"an identifier by its name, {differs}"
    dense = found.ways[way].quantile(1.0) - found.ways[way].quantile(0.0) <= 1.05 * found.known
    return f"a running number, {differs}" if nearly and dense and found.known >= _FEW_ROWS else ""


def _categories(name: str, found: ColumnFindings) -> Column:
    gaps = Counter({GAP: found.rows - found.known})
    if found.distinct <= MAX_CATEGORIES:
        return Categories(name, tuple(text for text, _ in by_frequency(found.texts + gaps)))
    ordered = by_frequency(found.texts)
    least = ordered[min(MAX_CATEGORIES, len(ordered) - 1)][1]  # what is as rare as the first that is too many is rare
    kept = Counter({text: count for text, count in ordered[:MAX_CATEGORIES] if count > least})
    if not kept:
        return DroppedColumn(name, f"left out, {found.distinct:,} different texts, none of them frequent")
    values = [text for text, _ in by_frequency(kept + gaps) if text != OTHER]
    note = f'{found.distinct:,} different texts: the {len(kept)} most frequent, and "other" for the rest'
    return Categories(name, (*values, OTHER), rest=True, note=note)


def _hashes(values: AnyArray) -> npt.NDArray[np.uint64]:
    """The smallest hashes of the values; those of equal values are equal in every process."""
    return np.unique(pd.util.hash_array(values, categorize=False))[:_HASHES]
