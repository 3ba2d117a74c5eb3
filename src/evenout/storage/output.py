"""Results on disk: they appear whole or not at all, and no text in a table can act as a formula."""

import csv
import math
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_ACTIVE = re.compile(r"'*[=+\-@\t\r\n]")  # starts of a formula, also behind the quotes of `inert`
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")


@contextmanager
def atomic_folder(out: Path, *, stale: str | Sequence[str] = ()) -> Iterator[Path]:
    """Yield an empty folder beside ``out``; its files move into ``out`` only if the block succeeds.

    A new ``out`` appears in one step; in an existing one each file is replaced in one step, and other files are left
    alone, but for those that match the patterns ``stale``: parts of an earlier result, which are removed. If the block
    fails or is interrupted, ``out`` is as it was.

    Raises
    ------
    ValueError
        If ``out`` is a file or cannot be written, before any work is done.
    """
    if (out.exists() or out.is_symlink()) and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder; choose another place")
    if out.is_dir() and not os.access(out, os.W_OK):
        raise ValueError(f"{out} cannot be written; choose another place")
    with _workplace(out) as work:
        folder = work / "out"  # made by mkdir, so that it has the usual permissions, which `work` has not
        folder.mkdir()
        yield folder
        with _uninterrupted():
            _move(folder, out, stale)


@contextmanager
def atomic_file(out: Path) -> Iterator[Path]:
    """Yield a path to write to; the file replaces ``out`` in one step if the block succeeds.

    Raises
    ------
    ValueError
        If ``out`` is a folder or cannot be written, before any work is done.
    """
    if out.exists() and not out.is_file():
        kind = "folder" if out.is_dir() else "device or a pipe"
        raise ValueError(f"{out} is a {kind}, not a file; choose another place")
    with _workplace(out) as work:
        yield work / out.name
        out.parent.mkdir(parents=True, exist_ok=True)
        with (work / out.name).open("rb") as written:
            os.fsync(written.fileno())  # on the disk before it takes the place of what was there
        (work / out.name).replace(out)


def require_apart(out: Path, *inputs: Path, option: str = "--out") -> None:
    """Raise a ValueError if a result at ``out`` would replace one of the files that it is computed from."""
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise ValueError(f"{option} {out} would replace the file that it is computed from; choose another place")


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not know, by None, at any depth."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(frame: "pd.DataFrame", path: Path) -> None:
    """Write a frame as CSV (UTF-8, text quoted, full precision) in which all text is inert.

    Text in cells and headers that a spreadsheet would run as a formula is marked by `inert`.
    """
    safe = frame.copy(deep=False)
    for name in safe.columns[[dtype.kind not in "biuf" for dtype in safe.dtypes]]:
        safe[name] = safe[name].astype(object).map(inert, na_action="ignore")
    headers = [inert(str(name)) for name in safe.columns]
    # All text is quoted: Python 3.11 leaves a field with a lone carriage return unquoted otherwise.
    safe.to_csv(path, index=False, header=headers, quoting=csv.QUOTE_NONNUMERIC)


def inert(value: Any) -> Any:
    r"""Put a single quote before text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break.

    Numbers stay as they are, also as text. To undo, take one quote away from text that begins with quotes followed by
    one of these characters: ``re.sub(r"^'('*[=+\-@\t\r\n])", r"\1", text)``.

    >>> [inert(text) for text in ("=1+1", "-5.2", "-x", "'=1+1", "plain")]
    ["'=1+1", '-5.2', "'-x", "''=1+1", 'plain']
    """
    if isinstance(value, str) and _ACTIVE.match(value) and not _NUMBER.match(value):
        return "'" + value
    return value


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """A private folder on the same disk as ``out``, in the nearest folder above it that exists."""
    above = out.absolute().parent
    while not above.exists():
        above = above.parent
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=above))
    except OSError as error:
        raise ValueError(f"{out} cannot be written ({error.strerror}); choose another place") from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move(folder: Path, out: Path, stale: str | Sequence[str]) -> None:
    """Move all files of a folder into ``out``, and remove files there that match ``stale`` and are not new."""
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(out)
        return
    moves = {out / file.relative_to(folder): file for file in sorted(folder.rglob("*")) if file.is_file()}
    for target in moves:  # nothing is moved unless everything can be
        if target.is_dir():
            raise ValueError(f"{target} is a folder where a result belongs; choose another place")
        if target.parent.exists() and not target.parent.is_dir():
            raise ValueError(f"{target.parent} is a file where results belong; choose another place")
    for target, file in moves.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    for pattern in [stale] if isinstance(stale, str) else stale:
        for old in {*out.glob(pattern)} - {*moves}:
            old.unlink()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back for the moment in which several files are moved: all of them are new, or none."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
