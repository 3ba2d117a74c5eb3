"""Ways to read text as values: numbers with marks and units, truth values, dates and times of day.

A *way* is a short text that a model can keep: ``number``, ``number with comma``, ``truth``, ``time``, or ``date`` and a
format. A column is read in a way only if that way reads every value of it.
"""

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.types import AnyArray, FloatArray
from evenout.inputs.files import MISSING

if TYPE_CHECKING:
    import pandas as pd

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
_TRUE, _FALSE = ("yes", "y", "true", "t", "on"), ("no", "n", "false", "f", "off")

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
_SAMPLE = 20  # texts by which ways are told apart before all texts are read
_DAY = np.timedelta64(1, "D")


def column_texts(column: "pd.Series") -> AnyArray:
    """The column as an object array of text without spaces around it, None where a value is missing.

    Text that stands for no value, such as ``?``, counts as missing; see `evenout.inputs.files.MISSING`.
    """
    texts = np.array([str(value).strip() for value in column], dtype=object)
    texts[column.isna().to_numpy() | np.array([text in _NO_VALUE for text in texts], dtype=bool)] = None
    return texts


def ways_to_read(texts: AnyArray) -> dict[str, FloatArray]:
    """Every way that reads all of the texts (m,), and what it makes of them (m,)."""
    few = texts[:: max(1, len(texts) // _SAMPLE)]
    ways = [NUMBER, COMMA, TRUTH, TIME, *(DATE + form for form in _FORMATS)]
    likely = [way for way in ways if not np.isnan(read_as(way, few)).any()]
    read = {way: read_as(way, texts) for way in likely}
    return {way: values for way, values in read.items() if not np.isnan(values).any()}


def read_as(way: str, texts: AnyArray) -> FloatArray:
    """Numbers, 1 and 0 for truth values, hours of a time, days since 1970 of a date; NaN for all that is none.

    >>> read_as("number", np.array(["$1,234.5", "12 %", "x"], dtype=object)).tolist()
    [1234.5, 12.0, nan]
    """
    if way in _SHAPES:
        return np.array([_number(way, text) for text in texts], dtype=np.float64)
    if way == TRUTH:
        known = dict.fromkeys(_TRUE, 1.0) | dict.fromkeys(_FALSE, 0.0)
        return np.array([known.get(text.lower(), np.nan) for text in texts], dtype=np.float64)
    if way == TIME:
        read = np.full(len(texts), np.nan)
        for clock in _CLOCKS:
            read = np.where(np.isnan(read), _dates(texts, clock) % 1.0 * 24.0, read)
        return read
    return _dates(texts, way.removeprefix(DATE))


def unit_of(text: str) -> str:
    """What stands before or after the digits of a number: ``$``, ``%``, ``kg``; empty where there is nothing.

    >>> [unit_of(text) for text in ("$5", "7kg", "1,5 kg", "3", "2 months")]
    ['$', 'kg', 'kg', '', 'month']
    """
    match = _SHAPES[NUMBER].fullmatch(text) or _SHAPES[COMMA].fullmatch(text)
    unit = (match["before"] or match["after"] or "") if match else ""
    folded = unit.lower() if len(unit) > 1 else unit
    return folded.removesuffix("s") if len(folded) > 3 else folded  # months are counted in the unit of one month


def as_days(values: Any) -> FloatArray:
    """Dates of pandas as days since 1970, NaN where one is missing."""
    import pandas as pd

    instants = pd.to_datetime(pd.Series(values), utc=True, errors="coerce").dt.tz_localize(None)
    plain = instants.to_numpy(dtype="datetime64[us]")
    return np.where(np.isnat(plain), np.nan, (plain - np.datetime64(0, "us")) / _DAY)


def date_parts(days: FloatArray) -> dict[str, FloatArray]:
    """Month (1 to 12), weekday (0 is Monday) and hour of days since 1970."""
    months = np.floor(days).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    values = months % 12 + 1, (np.floor(days) + 3.0) % 7.0, days % 1.0 * 24.0
    return {part: np.asarray(each, dtype=np.float64) for part, each in zip(DATE_PARTS, values, strict=True)}


def shown_date(days: float) -> str:
    """The day in figures.

    >>> shown_date(18262.75)
    '2020-01-01'
    """
    return str(np.datetime64(int(np.floor(days)), "D"))


def shown_form(way: str) -> str:
    """How dates are written, for people.

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


def _dates(texts: AnyArray, form: str) -> FloatArray:
    import pandas as pd

    if form == "ISO8601" and not all(_ISO.fullmatch(text) for text in texts):
        return np.full(len(texts), np.nan)
    return as_days(pd.to_datetime(pd.Series(texts, dtype=object), format=form, utc=True, errors="coerce"))
