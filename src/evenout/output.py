"""Files appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``out``; its files are moved into ``out`` only if the block succeeds.

    Each file is replaced in one step, so a reader sees the old or the new one. If the block fails or is
    interrupted, the
    folder is removed and ``out`` is as it was.

    Raises
    ------
    ValueError
        If ``out`` is a file or cannot be written, before any work is done.
    """
    parent = out.absolute().parent
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder; choose another --out")
    if out.is_dir() and not os.access(out, os.W_OK):
        raise ValueError(f"{out} cannot be written; choose another --out")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=parent))
    except OSError as error:
        raise ValueError(f"{out} cannot be written ({error.strerror}); choose another --out") from None
    try:
        yield work
        out.mkdir(exist_ok=True)
        for file in sorted(work.rglob("*")):
            if file.is_file():
                place = out / file.relative_to(work)
                place.parent.mkdir(parents=True, exist_ok=True)
                file.replace(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
