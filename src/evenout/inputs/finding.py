"""What is found in a column, added up over parts of a table, and what the column is taken for.

One part or many, the rules are the same. Up to 4,096 different values are counted exactly, more within 5 %; a median
comes from a sketch that the caller may make exact.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from evenout.core.exceptions import InputError
from evenout.core.sketch import CAPACITY, QuantileSketch
from evenout.core.types import AnyArray, FloatArray
from evenout.inputs.columns import (
    GAP,
    OTHER,
    Categories,
    Column,
    Dates,
    LeftOut,
    Numbers,
    column_numbers,
    kind_of_values,
    stamps,
)
from evenout.inputs.readings import (
    COMMA,
    DATE,
    NUMBER,
    TIME,
    TRUTH,
    column_texts,
    date_parts,
    read_as,
    shown_date,
    shown_form,
    unit_of,
    ways_to_read,
)

if TYPE_CHECKING:
    import pandas as pd

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
class Found:
    """What is found in some rows of a column.

    Parameters
    ----------
    rows, known : int
        All rows, and those with a value.
    kind : {"empty", "number", "date", "text", "category"}
    whole : bool
        Whether all numbers are whole.
    hashes : array of uint64
        The smallest hashes of the different values, sorted.
    ways : dict of str to QuantileSketch
        The values, by every way that reads them all.
    texts : Counter
    units : Counter
        What is written beside numbers, and in how many rows.
    """

    rows: int
    known: int
    kind: str
    whole: bool
    hashes: npt.NDArray[np.uint64]
    ways: Mapping[str, QuantileSketch]
    texts: Counter[str]
    units: Counter[str]

    @classmethod
    def of(cls, column: "pd.Series", capacity: int | None = CAPACITY) -> "Found":
        """Look at a column; a capacity of None makes medians exact."""
        kind = kind_of_values(column)
        if kind in ("number", "date"):
            values = column_numbers(str(column.name), column) if kind == "number" else stamps(column)
            values = values[~np.isnan(values)] + 0.0  # one zero, not two
            way = {NUMBER if kind == "number" else _STAMPS: QuantileSketch.of(values, capacity)}
            whole = kind == "number" and column.dtype.kind != "b" and bool((values == np.floor(values)).all())
            return cls(len(column), len(values), kind, whole, _hashes(values), way, Counter(), Counter())
        texts = column_texts(column)
        counted = Counter(texts[texts != None])  # noqa: E711 (each element)
        known = counted.total()
        distinct, counts = np.array([*counted], dtype=object), np.array([*counted.values()], dtype=np.int64)
        read = ways_to_read(distinct) if kind == "text" and known else {}
        ways = {way: QuantileSketch.of(np.repeat(values, counts), capacity) for way, values in read.items()}
        beside: Counter[str] = Counter()
        for text, count in counted.items():
            beside[unit_of(text)] += count
        del beside[""]
        kind = kind if known else "empty"
        return cls(len(column), known, kind, False, _hashes(distinct), ways, counted, beside)

    def __add__(self, other: "Found") -> "Found":
        """What is found in the rows of both."""
        if "empty" in (self.kind, other.kind):
            full = other if self.kind == "empty" else self
            ways = full.ways
        else:
            full = self
            ways = {way: self.ways[way] + other.ways[way] for way in self.ways.keys() & other.ways.keys()}
        hashes = np.unique(np.concatenate([self.hashes, other.hashes]))[:_HASHES]
        texts = self.texts + other.texts
        if len(texts) > _TEXTS:
            texts = Counter(dict(by_frequency(texts)[:_TEXTS]))
        whole = (self.whole or self.kind == "empty") and (other.whole or other.kind == "empty")
        rows, known = self.rows + other.rows, self.known + other.known
        return Found(rows, known, full.kind, whole, hashes, ways, texts, self.units + other.units)

    @property
    def distinct(self) -> int:
        """How many different values there are."""
        if len(self.hashes) < _HASHES:
            return len(self.hashes)
        return min(self.known - 1, round((_HASHES - 1) / (float(self.hashes[-1]) / 2.0**64)))


def by_frequency(texts: Counter[str]) -> list[tuple[str, int]]:
    """Texts and their counts: the most frequent first, equally frequent ones in the order of the alphabet."""
    return sorted(texts.items(), key=lambda item: (-item[1], item[0]))


def taken_for(name: str, found: Found, *, keep: bool = False) -> Column:
    """What a column is taken for; one that is to be kept is a feature, whatever it holds."""
    if not found.known:
        return LeftOut(name, "left out, no value in any row")
    if found.distinct == 1 and not keep and (found.kind in ("number", "date") or found.known == found.rows):
        return LeftOut(name, "left out, the same value in all rows")
    way = _way(name, found)
    why = "" if keep else _identifier(name, found, way)
    if why:
        return LeftOut(name, f"left out, {why}")
    if way == "":
        return _categories(name, found)
    median = found.ways[way].quantile(0.5)
    if way.startswith(DATE):
        return _dates(name, found, way, median)
    unit = min(found.units, default="") if way in (NUMBER, COMMA) and found.kind == "text" else ""
    said = [_written(way, unit)] if found.kind == "text" else []
    if found.known < found.rows:
        said.append(f"{_gaps(found)} filled by the median, {median:.6g}")
    return Numbers(name, median, way, unit, "; ".join(said))


def likely_role(name: str, found: Found) -> str:
    """What a column may be instead of a feature, by its name and its shape; empty if nothing speaks for it.

    One of ``"outcome"``, ``"score"`` (of another model) and ``"person number"``.
    """
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


def _way(name: str, found: Found) -> str:
    """The way in which the column is read; none for text."""
    if found.kind in ("number", "date"):
        return next(iter(found.ways))
    if found.kind == "category":
        return ""
    numbers = [way for way in (NUMBER, COMMA) if way in found.ways]
    measured = found.units.total() >= 0.5 * found.known
    if numbers and len(found.units) > 1 and measured and found.distinct > _CODES:
        named = ", ".join(map(repr, sorted(found.units)[:4]))
        raise InputError(
            "column {name!r} has numbers in different units ({named}); write all of them in one, or {-name}",
            name=name, named=named,
        )  # fmt: skip
    named_codes = found.distinct <= _CODES and not found.units and numbers[:1] != [COMMA]
    if numbers and not named_codes and (not found.units or (measured and len(found.units) == 1)):
        return numbers[0]
    if TRUTH in found.ways and found.ways[TRUTH].quantile(0.0) < found.ways[TRUTH].quantile(1.0):
        return TRUTH
    dates = [way for way in found.ways if way.startswith(DATE)]
    if not dates:
        _refuse_slips(name, found)
    return TIME if TIME in found.ways else min(dates, key=_preference, default="")


def _preference(way: str) -> tuple[bool, bool, str]:
    """Four digits of a year before two, and the month before the day where nothing tells them apart."""
    return "%y" in way, "%d/%m" in way or "%m-%d" in way, way


def _refuse_slips(name: str, found: Found) -> None:
    """Refuse numbers with a slip among them: as text they would be categories, each of a row or two."""
    texts = np.array(list(found.texts), dtype=object)
    read = read_as(NUMBER, texts)
    read[[unit_of(text) != "" for text in texts]] = np.nan
    slips = np.array([found.texts[text] for text in texts[np.isnan(read)]], dtype=np.int64)
    if len(slips) and len(np.unique(read[~np.isnan(read)])) > _CODES and slips.sum() <= 0.5 * found.known:
        rows = f"{slips.sum()} row{'' if slips.sum() == 1 else 's'}"
        raise SlipError(
            "column {name!r} is mostly numbers, but has {text!r}{where} ({rows} with text); correct it, leave it "
            "empty, or, for the whole column, {-name}",
            name=name, text=str(min(texts[np.isnan(read)])), rows=rows, where="",
        )  # fmt: skip


def _identifier(name: str, found: Found, way: str) -> str:
    """Why the column tells rows apart and nothing more; empty if it may tell more."""
    named, nearly = _ID.fullmatch(str(name)) is not None, found.distinct >= _NEARLY * found.known
    share = found.distinct / found.known
    differs = "different in " + ("every row" if share == 1.0 else f"about {min(share, 0.99):.0%} of the rows")
    if way == "":
        if (nearly and found.known >= _FEW_ROWS) or (named and found.distinct > MAX_CATEGORIES):
            return f"text that tells rows apart, {differs}"
        return ""
    if not found.whole:
        return ""
    sketch = found.ways[way]
    dense = sketch.quantile(1.0) - sketch.quantile(0.0) <= 1.05 * found.known
    if named and (nearly or found.distinct > MAX_CATEGORIES or str(name).lower().startswith("unnamed")):
        return f"an identifier by its name, {differs}"
    return f"a running number, {differs}" if nearly and dense and found.known >= _FEW_ROWS else ""


def _dates(name: str, found: Found, way: str, median: float) -> Dates:
    sketch = found.ways[way]
    first, values = sketch.quantile(0.0), np.concatenate(sketch.levels)
    parts = tuple(part for part, each in date_parts(values).items() if _varies(each))
    form = "" if found.kind == "date" or way == DATE + "ISO8601" else f" written as {shown_form(way)}"
    said = [f"dates{form}, as " + ", ".join([f"days since {shown_date(first)}", *parts])]
    if found.known < found.rows:
        said.append(f"{_gaps(found)} filled by the median, {shown_date(median)}")
    return Dates(name, median, first, way, parts, "; ".join(said))


def _categories(name: str, found: Found) -> Column:
    if found.distinct <= MAX_CATEGORIES:
        counts = found.texts + Counter({GAP: found.rows - found.known})
        return Categories(name, tuple(text for text, _ in by_frequency(counts)))
    ordered = by_frequency(found.texts)
    least = ordered[min(MAX_CATEGORIES, len(ordered) - 1)][1]  # what is as rare as the first that is too many is rare
    kept = Counter({text: count for text, count in ordered[:MAX_CATEGORIES] if count > least})
    if not kept:
        return LeftOut(name, f"left out, {found.distinct:,} different texts, none of them frequent")
    values = [text for text, _ in by_frequency(kept + Counter({GAP: found.rows - found.known})) if text != OTHER]
    note = f'{found.distinct:,} different texts: the {len(kept)} most frequent, and "other" for the rest'
    return Categories(name, (*values, OTHER), rest=True, note=note)


def _written(way: str, unit: str) -> str:
    if way == TRUTH:
        return "yes and no, as 1 and 0"
    if way == TIME:
        return "times of day, as hours"
    comma = " with decimal commas" if way == COMMA else ""
    return f"numbers written as text{comma}" + (f", in {unit}" if unit else "")


def _gaps(found: Found) -> str:
    gaps = found.rows - found.known
    return f"{gaps:,} gap{'' if gaps == 1 else 's'}"


def _varies(values: FloatArray) -> bool:
    return bool(len(values)) and float(values.min()) < float(values.max())


def _hashes(values: AnyArray) -> npt.NDArray[np.uint64]:
    """The smallest hashes of the values; those of equal values are equal in every process."""
    import pandas as pd

    return np.unique(pd.util.hash_array(values, categorize=False))[:_HASHES]
