"""Read tables from CSV or Parquet files into pandas, with one clear line about a file that is wrong."""

import csv
import gzip
import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenout.exceptions import warn

if TYPE_CHECKING:
    import pandas as pd


SUFFIXES = (".csv", ".csv.gz", ".parquet")

# Text for "no value" in a CSV file; written out so that no version of pandas reads a file differently.
MISSING = (
    "", "NA", "N/A", "n/a", "na", "n.a.", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None", "?", "-",
    "--", ".", "#DIV/0!", "#VALUE!", "#REF!",
)  # fmt: skip

_HEAD = 65536  # bytes in which binary data is recognised
_LINE = 2**24  # bytes; no table has longer lines
_LARGE = 2**30  # bytes that any packed file may fill; more only up to ...
_SWELL = 200  # ... so many times its own size

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_NO_LETTERS = frozenset({0x81, 0x8D, 0x8F, 0x90, 0x9D})  # bytes without a letter in Windows-1252
_COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+")
_WRITTEN = re.compile(r"\D{0,5}(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?[^\d.,]{0,15}")


def read_table(
    path: Path,
    *,
    text: Collection[str] = (),
    verbatim: Collection[str] = (),
    once: Collection[str] = (),
    most_columns: int | None = None,
) -> "pd.DataFrame":
    """Read a file of one of the `SUFFIXES`: at least one row, its columns named and distinct.

    A CSV file is UTF-8 or Windows-1252, separated by commas, semicolons, tabs or bars, with a header line, quoted where
    needed; ``MISSING`` lists what counts as missing. Decimal commas are read where the separator is no comma. An error
    says in one line what is wrong with the file, and where.

    Columns of ``text`` are kept as text even if they look like numbers, those of ``verbatim`` exactly as they are
    written, so that nothing is missing. No two columns may have a name of ``once``; others of one name get a number:
    ``x (2)``. A file with more than ``most_columns`` is refused once its header is read.
    """
    require_file(path)
    name = path.name.lower()
    if name.endswith(".parquet"):
        frame = _read_parquet(path, verbatim, most_columns)
    elif name.endswith((".csv", ".csv.gz")):
        frame = _read_csv(path, text, verbatim, once, most_columns)
    else:
        raise ValueError(f"{path} is of no known kind; name it {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not len(frame):
        raise ValueError(f"{path} has a header, but no rows")
    return frame


def require_file(path: Path) -> None:
    """Raise a ValueError unless ``path`` is a file with something in it."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    if not path.exists():
        if path.is_symlink():
            raise ValueError(f"{path} is a link that leads to no file; name the file itself")
        near = get_close_matches(path.name, [entry.name for entry in path.parent.glob("*")], n=1)
        raise ValueError(f"{path} does not exist" + (f"; did you mean {path.parent / near[0]}?" if near else ""))
    if not path.is_file():  # to read a pipe or a device may take for ever
        raise ValueError(f"{path} is no regular file; save its content in one")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty")


def require_columns(names: Iterable[str], columns: Iterable[str], *, where: str, use: str = "") -> None:
    """Raise a ValueError that names the first of ``names`` that is not among ``columns``, and what is near to it.

    >>> require_columns(["Sex"], ["sex", "age"], where="people.csv", use="--sensitive")
    Traceback (most recent call last):
    ValueError: people.csv has no column 'Sex' (--sensitive); did you mean 'sex'?
    """
    known = [str(column) for column in columns]
    name = next((name for name in names if name not in known), None)
    if name is not None:
        folded = {column.casefold().strip(): column for column in known}
        near = get_close_matches(name.casefold().strip(), folded, n=1)
        listed = ", ".join(map(repr, known[:8])) + (", ..." if len(known) > 8 else "")
        hint = f"did you mean {folded[near[0]]!r}?" if near else f"its columns are {listed}"
        raise ValueError(f"{where} has no column {name!r}{f' ({use})' if use else ''}; {hint}")


def sha256(path: Any) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_csv(
    path: Path, text: Collection[str], verbatim: Collection[str], once: Collection[str], most_columns: int | None
) -> "pd.DataFrame":
    import pandas as pd

    header, separator, commas, encoding = _check_csv(path, once, most_columns)
    as_text = {*text, *verbatim} & set(header)
    # From 3.1 on pandas reads every digit by default, and asking for it is deprecated.
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    frame = pd.read_csv(
        path,
        sep=separator,
        decimal="," if commas else ".",
        encoding=encoding,
        header=0,
        names=header,
        index_col=False,
        dtype=dict.fromkeys(as_text, str),
        keep_default_na=False,
        na_values={name: list(MISSING) for name in header if name not in verbatim},
        low_memory=False,  # one type for a whole column
        **({"float_precision": "round_trip"} if old else {}),
    )
    for name in set(header) - as_text if commas else ():
        frame[name] = _with_points(frame[name])
    return frame


def _check_csv(path: Path, once: Collection[str], most_columns: int | None) -> tuple[list[str], str, bool, str]:
    """Names of the columns, separator, whether decimals follow a comma, and encoding."""
    # All lines are checked: pandas would fill short rows silently.
    encoding, commas = _encoding(path), False
    with closing(_lines(path, encoding)) as lines:
        first = next(lines, "")
        separator = max(_SEPARATORS, key=lambda mark: first.count(mark))
        rows = csv.reader(chain([first], lines), delimiter=separator, strict=True)
        try:
            header = next(rows, [])
            _refuse_many(path, len(header), most_columns)
            header = _names(path, header, once)
            for row in rows:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {rows.line_num}: {len(row)} field{'' if len(row) == 1 else 's'}, but "
                        f"the header has {len(header)}; quote fields that hold a {_SEPARATORS[separator]}"
                    )
                if separator != "," and not commas:
                    commas = any("," in field and _COMMA.fullmatch(field) for field in row)
        except csv.Error as error:
            fault = "carriage return outside quotes" if "new-line" in str(error) else error
            raise ValueError(f"{path}, line {rows.line_num}: not valid CSV ({fault})") from None
    return header, separator, commas, encoding


def _encoding(path: Path) -> str:
    """UTF-8 or, with a warning, Windows-1252 for a file in which no line but those of ASCII is UTF-8."""
    marked = 0
    for number, line in enumerate(_raw_lines(path), 1):
        try:
            if not line.isascii() and line.decode("utf-8-sig"):
                return "utf-8-sig"  # a wrong byte further on is damage
        except UnicodeDecodeError:
            marked = marked or number
    if not marked or any(set(line) & _NO_LETTERS for line in _raw_lines(path)):
        return "utf-8-sig"
    warn(f"{path} is not UTF-8 (line {marked}), so it is read as Windows-1252; look at words with accents")
    return "cp1252"


def _with_points(column: "pd.Series") -> "pd.Series":
    """Turn decimal commas into points if all of the column is written with them."""
    import pandas as pd

    known = column.dropna()
    if pd.api.types.is_numeric_dtype(column) or not all(_WRITTEN.fullmatch(str(value)) for value in known):
        return column
    texts = column.map({value: str(value).replace(".", "").replace(",", ".") for value in known.unique()})
    numbers = pd.to_numeric(texts, errors="coerce")
    return numbers if numbers.notna().sum() == len(known) else texts


def _lines(path: Path, encoding: str) -> Generator[str, None, None]:
    """The lines of a text file, decoded one by one so that a wrong byte has a line number."""
    for number, line in enumerate(_raw_lines(path), 1):
        try:
            yield line.decode(encoding if number == 1 else encoding.removesuffix("-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
            ) from None


def _raw_lines(path: Path) -> Generator[bytes, None, None]:
    """The lines of a file, unpacked; binary data and lines or files that are far too long are refused."""
    number = size = 0
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            head = file.read(_HEAD)
            if head.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise ValueError(f"{path} is in UTF-16; save the file as UTF-8")
            if b"\0" in head or head.startswith((b"PK\x03\x04", b"PAR1", b"\x1f\x8b")):
                raise ValueError(
                    f"{path} holds binary data, not text; save the table as CSV, or give the file its right ending"
                )
            file.seek(0)
            while line := file.readline(_LINE + 1):
                number, size = number + 1, size + len(line)
                if len(line) > _LINE:
                    raise ValueError(f"{path}, line {number}: longer than {_LINE:,} bytes, which no table is")
                _refuse_swelling(path, size)
                yield line
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ValueError(f"{path} is no gzip file, or a damaged one") from None


def _refuse_swelling(path: Path, size: int) -> None:
    """Refuse a file that is made to fill the memory: small on disk, huge when it is unpacked."""
    if size > _LARGE and size > _SWELL * path.stat().st_size:
        raise ValueError(
            f"{path} would fill more than {_SWELL} times its size on disk; if you trust it, give it as .csv"
        )


def _names(path: Path, header: list[str], once: Collection[str]) -> list[str]:
    """Names of all columns: one without a name is called by its place, as in pandas; a repeated name gets a number.

    >>> _names(Path("a.csv"), ["", "x", "y"], [])
    ['Unnamed: 0', 'x', 'y']
    """
    if not any(header):
        raise ValueError(f"{path} has no header; the first line must name the columns")
    _refuse_repeated(path, [name for name in header if name in once])
    count: Counter[str] = Counter()
    names = []
    for name in (given or f"Unnamed: {index}" for index, given in enumerate(header)):
        count[name] += 1
        names.append(f"{name} ({count[name]})" if count[name] > 1 else name)
    _refuse_repeated(path, names)
    if len(count) < len(names):
        twice = ", ".join(repr(name) for name in count if count[name] > 1)
        called = ", ".join(repr(name) for name in names if name not in count)
        warn(f"{path} has more than one column {twice}; from here on the later ones are called {called}")
    return names


def _refuse_many(path: Path, n_columns: int, most: int | None) -> None:
    if most is not None and n_columns > most:
        raise ValueError(f"{path} has {n_columns:,} columns; at most {most:,} can be shown; keep those that matter")


def _refuse_repeated(path: Path, names: Collection[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{path} has more than one column {', '.join(map(repr, repeated))}; rename all but one")


def _read_parquet(path: Path, verbatim: Collection[str], most_columns: int | None) -> "pd.DataFrame":
    import pandas as pd
    import pyarrow.parquet as pq

    with _intact(path):
        names, shape = pq.read_schema(path).names, pq.read_metadata(path)
    _refuse_many(path, len(names), most_columns)
    _refuse_repeated(path, names)
    _refuse_swelling(path, 8 * shape.num_rows * shape.num_columns)
    with _intact(path):
        frame = pq.read_table(path).to_pandas()
        named = [name for name in frame.index.names if name is not None]
        frame = (frame.reset_index(level=named) if named else frame).reset_index(drop=True)
    for name in set(verbatim) & set(frame.columns):
        frame[name] = pd.Series(
            [str(value) if known else "" for value, known in zip(frame[name], frame[name].notna(), strict=True)],
            dtype=object,
        )
    return frame.rename(columns=str)


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Report any error of pyarrow, or of pandas about its notes in the file, as a damaged Parquet file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(f"{path} is no Parquet file, or a damaged one") from None
