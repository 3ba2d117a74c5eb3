"""Tables from files: CSV or Parquet in, a pandas frame out, and one clear line about a file that is wrong."""

import csv
import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".csv.gz", ".parquet")

# What a CSV file may say for "no value"; written out so that every file is read in the same way for ever.
MISSING = (
    "", "NA", "N/A", "n/a", "na", "n.a.", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None", "?", "-",
    "--", ".", "#DIV/0!", "#VALUE!", "#REF!",
)  # fmt: skip

_HEAD = 65536  # bytes in which binary data is recognised
_LINE = 2**24  # bytes; no table has longer lines
_LARGE = 2**30  # bytes that any packed file may fill; more only up to so many times its own size:
_SWELL = 200


def read_table(path: Path, *, text: Collection[str] = (), verbatim: Collection[str] = ()) -> "pd.DataFrame":
    """Read a file of one of the `SUFFIXES`.

    Parameters
    ----------
    path : Path
        CSV: UTF-8, separated by commas, a header line, quoted where needed; ``MISSING`` lists what counts as missing.
    text : collection of str
        Columns to keep as text even if they look like numbers.
    verbatim : collection of str
        Columns to keep exactly as they are written: text in which nothing is missing.

    Returns
    -------
    DataFrame with at least one row, its columns named and distinct

    Raises
    ------
    ValueError
        With one line that says what is wrong with the file, and where.
    """
    require_file(path)
    name = path.name.lower()
    if name.endswith(".parquet"):
        frame = _read_parquet(path, verbatim)
    elif name.endswith((".csv", ".csv.gz")):
        frame = _read_csv(path, text, verbatim)
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
        near = get_close_matches(path.name, _names_in(path.parent), n=1)
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
    for name in names:
        if name in known:
            continue
        folded = {column.casefold().strip(): column for column in known}
        near = get_close_matches(name.casefold().strip(), folded, n=1)
        listed = ", ".join(map(repr, known[:8])) + (", ..." if len(known) > 8 else "")
        hint = f"did you mean {folded[near[0]]!r}?" if near else f"its columns are {listed}"
        raise ValueError(f"{where} has no column {name!r}{f' ({use})' if use else ''}; {hint}")


def sha256(path: Any) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_csv(path: Path, text: Collection[str], verbatim: Collection[str]) -> "pd.DataFrame":
    import pandas as pd

    header = _check_csv(path)
    # From 3.1 on pandas reads every digit by default, and asking for it is deprecated.
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exact: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
    return pd.read_csv(
        path,
        encoding="utf-8-sig",
        index_col=False,
        dtype=dict.fromkeys({*text, *verbatim} & set(header), str),
        keep_default_na=False,
        na_values={name: list(MISSING) for name in header if name not in verbatim},
        low_memory=False,  # one type for a whole column
        **exact,
    )


def _check_csv(path: Path) -> list[str]:
    """The header, after a pass over all lines: pandas would fill short rows and rename equal columns silently."""
    with closing(_lines(path)) as lines:
        rows = csv.reader(lines, strict=True)
        try:
            header = next(rows, [])
            _check_header(path, header)
            for row in rows:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {rows.line_num}: {_count(len(row), 'field')}, "
                        f"but the header has {len(header)}; quote fields that hold a comma"
                    )
        except csv.Error as error:
            fault = "carriage return outside quotes" if "new-line" in str(error) else error
            raise ValueError(f"{path}, line {rows.line_num}: not valid CSV ({fault})") from None
    return header


def _lines(path: Path) -> Generator[str, None, None]:
    """The lines of a text file, decoded one by one so that a wrong byte has a line number."""
    number = 0
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            _refuse_binary(path, file.read(_HEAD))
            file.seek(0)
            size = 0
            while line := file.readline(_LINE + 1):
                number, size = number + 1, size + len(line)
                if len(line) > _LINE:
                    raise ValueError(f"{path}, line {number}: longer than {_LINE:,} bytes, which no table is")
                _refuse_swelling(path, size)
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ValueError(f"{path} is no gzip file, or a damaged one") from None


def _refuse_swelling(path: Path, size: int) -> None:
    """Refuse a file that is made to fill the memory: small on disk, without end when it is unpacked."""
    if size > _LARGE and size > _SWELL * path.stat().st_size:
        raise ValueError(
            f"{path} would fill more than {_SWELL} times its size on disk; if you trust it, give it as .csv"
        )


def _refuse_binary(path: Path, head: bytes) -> None:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{path} is in UTF-16; save the file as UTF-8")
    if b"\0" in head or head.startswith((b"PK\x03\x04", b"PAR1", b"\x1f\x8b")):
        raise ValueError(
            f"{path} holds binary data, not text; save the table as CSV, or give the file its right ending"
        )


def _check_header(path: Path, header: list[str]) -> None:
    """Refuse columns without a name or with the same name, and tables that another separator cuts."""
    if not any(header):
        raise ValueError(f"{path} has no header; the first line must name the columns")
    if "" in header:
        raise ValueError(
            f"{path}: column {header.index('') + 1} has no name; name it, "
            "or write the file without row numbers (pandas: index=False)"
        )
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise ValueError(f"{path} seems to be separated by another character than a comma; save it with commas")
    _refuse_repeated(path, header)


def _refuse_repeated(path: Path, names: Collection[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{path} has more than one column {', '.join(map(repr, repeated))}; rename all but one")


def _read_parquet(path: Path, verbatim: Collection[str]) -> "pd.DataFrame":
    import pandas as pd
    import pyarrow.parquet as pq

    with _intact(path):
        names, shape = pq.read_schema(path).names, pq.read_metadata(path)
    _refuse_repeated(path, names)
    _refuse_swelling(path, 8 * shape.num_rows * shape.num_columns)
    with _intact(path):
        frame = pq.read_table(path).to_pandas()
        named = [name for name in frame.index.names if name is not None]
        frame = (frame.reset_index(level=named) if named else frame).reset_index(drop=True)
    for name in set(verbatim) & set(frame.columns):
        known = zip(frame[name], frame[name].notna(), strict=True)
        frame[name] = pd.Series([str(value) if there else "" for value, there in known], dtype=object)
    return frame.rename(columns=str)


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Say of a Parquet file that it is damaged, whatever pyarrow, or pandas about its notes in the file, says."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(f"{path} is no Parquet file, or a damaged one") from None


def _names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
