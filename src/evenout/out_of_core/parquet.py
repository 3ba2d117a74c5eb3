"""Folders of Parquet files: columns, rows, partitions.

Footers are compared here, not by `pyarrow.dataset`, which silently fills a column that a file lacks with gaps, reads
text as numbers and skips names that begin with an underscore.
"""

import glob
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError
from evenout.groups.read import GroupProbabilities
from evenout.out_of_core.dask_engine import DaskEngine, dask_client
from evenout.out_of_core.engines import Engine, Partition
from evenout.tables.columns import ColumnFindings
from evenout.tables.encoder import TableEncoder


def learn_table(engine: Engine, keep: Collection[str] = ()) -> TableEncoder:
    """Decide what each column is, by all rows, in one pass; the rules are those of a table in memory.

    Medians are exact up to 16,384 values, then off by less than 1e-3 in rank. Texts are counted exactly as long as
    there are at most 16,384 different ones; beyond, those that are rare in every partition may be missed.
    """

    def look(part: Partition) -> dict[str, ColumnFindings]:
        frame, *_ = part.load()
        with part.located(len(frame), counted_from=1):
            return {str(name): ColumnFindings.of(frame[name]) for name in frame.columns}

    return TableEncoder(keep).learn(engine.reduce(look, lambda one, two: {name: one[name] + two[name] for name in one}))


def encoded(engine: Engine, table: TableEncoder) -> Engine:
    """The engine over encoded rows: numbers without gaps, under the names of their columns."""
    empty = table.encode(engine.header)
    parts = [replace(part, load=partial(_encode, part, table, empty)) for part in engine.parts]
    return replace(engine, parts=parts, header=empty)


def _encode(part: Partition, table: TableEncoder, empty: Any) -> tuple[Any, ...]:
    frame, *chunk = part.load()
    if not len(frame):
        return empty, *chunk
    with part.located(len(frame), counted_from=1):
        return table.encode(frame), *chunk


def count_unknown(engine: Engine, table: TableEncoder) -> dict[str, int]:
    """Rows whose text the fit did not have, by column; these are encoded as none of the known values."""
    if not table.categories_:
        return {}
    return dict(
        engine.reduce(
            lambda part: Counter({name: sum(n.values()) for name, n in table.unknown_values(part.load()[0]).items()}),
            operator.add,
        )
    )


ROWS = 262_144  # row groups are read together up to so many rows

_SCORES = {
    "source": "string", "row": "int64", "group": "string", "base_score": "double", "fair_score": "double",
    "flagged": "bool",
}  # fmt: skip


def parquet_parts(
    where: str | Path | Iterable[str | Path],
    *,
    sensitive: Collection[str] = (),
    features: Collection[str] | None = None,
    exclude: Collection[str] = (),
    given: Collection[str] = (),
    label: str | None = None,
    probable: bool = False,
    text: bool = False,
) -> tuple[list[Partition], Any]:
    """Partitions of Parquet files that all have the same columns, and an empty frame with the feature columns.

    Its columns are of type float, or object for text and dates. A folder stands for all ``*.parquet`` files in it, at
    any depth, in the order of their names. An error names the file that is none, or has other columns than the first.

    ``sensitive`` are the protected columns (``probable``: probabilities of groups), none for rows that are only scored;
    ``given`` may justify a difference, and may be features as well; ``label`` has known outliers (1) and inliers (0).
    ``features`` are by default all columns but these, ``exclude`` and an index that pandas has written. With ``text``
    they may be text or dates and have gaps; `encoded` makes numbers of them.
    """
    footers = {path: _open(path).metadata for path in _files(where)}
    schemas = {path: footer.schema.to_arrow_schema() for path, footer in footers.items()}
    labels = [] if label is None else [label]
    names = _features(*next(iter(schemas.items())), sensitive, features, [*exclude, *labels], given)
    roles = names, list(sensitive), list(given), labels
    texts = _text_columns(_columns(schemas, list(dict.fromkeys(chain(*roles)))), names, allowed=text)
    parts: list[Partition] = []
    for path, footer in footers.items():
        start = 0
        for groups, n_rows in _runs(footer):
            load = partial(_read, path, groups, *roles, probable=probable)
            parts.append(Partition(len(parts), str(path), load, start))
            start += n_rows
    return parts, pd.DataFrame({name: pd.Series(dtype=object if name in texts else float) for name in names})


@contextmanager
def scores_file(folder: Path, part: Partition, labels: tuple[str, ...]) -> Iterator[Callable[..., None]]:
    """Yield a function that appends rows to a Parquet file of scores of one partition; the file appears whole."""
    import pyarrow.parquet as pq

    path, schema = folder / f"scores-{part.index:06d}.parquet", pa.schema(_SCORES.items())
    names = np.array([*labels, None], dtype=object)

    def write(row: int, codes: IntArray, base: FloatArray, fair: FloatArray, flagged: BoolArray) -> None:
        """Append consecutive rows, the first of which is ``row`` of the source."""
        columns = [[part.source] * len(codes), np.arange(row, row + len(codes)), names[codes], base, fair, flagged]
        file.write_table(pa.table(columns, schema=schema))

    # A unique name: where a partition is worked on twice at a time, neither writes into the other's file.
    unfinished = path.with_suffix(f".{uuid4().hex}")
    try:
        with pq.ParquetWriter(unfinished, schema) as file:
            yield write
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _files(where: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(where, str | Path):
        files = [Path(path) for path in where]
    elif Path(where).is_dir():
        files = sorted(path for path in Path(where).rglob("*.parquet") if path.is_file())
    elif Path(where).exists():
        files = [Path(where)]
    else:
        files = [Path(path) for path in sorted(glob.glob(str(where), recursive=True))]  # noqa: PTH207 (may be absolute)
    if not files:
        raise ValueError(f"{where} has no Parquet file; name a folder, a file or a pattern such as data/*.parquet")
    return files


def _open(path: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except (pa.ArrowException, OSError):
        raise ValueError(f"{path} is no Parquet file, or a damaged one") from None


def _features(
    path: Path,
    schema: Any,
    sensitive: Collection[str],
    features: Collection[str] | None,
    exclude: Collection[str],
    given: Collection[str],
) -> list[str]:
    """The feature columns, after a check that all named columns exist."""
    for name in [*sensitive, *(features or ()), *exclude, *given]:
        if name not in schema.names:
            raise ValueError(f"{path} has no column {name!r}; its columns are {', '.join(map(repr, schema.names))}")
    repeated = [name for name in {*schema.names} if schema.names.count(name) > 1]
    if repeated:
        raise ValueError(f"{path} has more than one column {min(repeated)!r}; rename all but one")
    if features is None:
        features = [n for n in schema.names if n not in (*sensitive, *exclude) and not n.startswith("__index_level_")]
    if not features:
        raise ValueError(f"{path} has no feature column beside {', '.join(map(repr, [*sensitive, *exclude]))}")
    return list(features)


def _columns(schemas: dict[Path, Any], names: list[str]) -> dict[str, tuple[Path, Any]]:
    """The type of each column, and the first file that shows it; a column of gaps alone goes with any type."""
    columns: dict[str, tuple[Path, Any]] = {}
    for path, schema in schemas.items():
        for name in names:
            if schema.names.count(name) != 1:
                raise ValueError(
                    f"{path} has {schema.names.count(name)} columns {name!r}, but {next(iter(schemas))} has one"
                )
            kind = schema.field(name).type
            first, known = columns.get(name, (path, pa.null()))
            if pa.types.is_null(known):
                columns[name] = path, kind
            elif not pa.types.is_null(kind) and _kind(kind) != _kind(known):
                raise ValueError(
                    f"{path}: column {name!r} holds {_kind(kind)}, but {_kind(known)} in {first}; "
                    "write all files with the same types"
                )
    return columns


def _text_columns(columns: dict[str, tuple[Path, Any]], features: list[str], *, allowed: bool) -> list[str]:
    """Those that hold text or dates; columns that hold neither numbers nor what is allowed are refused."""
    numbers = pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null
    others = [name for name in features if not any(holds(columns[name][1]) for holds in numbers)]
    for name in others:
        path, kind = columns[name]
        if not (allowed and (_kind(kind) == "text" or pa.types.is_temporal(kind) or pa.types.is_decimal(kind))):
            raise InputError(
                "{path}: column {name!r} holds {kind}, not numbers{more}; encode it, or {-name}",
                path=path, name=name, kind=_kind(kind), more=", dates or text" if allowed else "",
            )  # fmt: skip
    return others


def _kind(kind: Any) -> str:
    """The name of a type; the ways to store text are one."""
    stored = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "text" if "string" in str(stored) else str(stored)


def _runs(metadata: Any) -> list[tuple[list[int], int]]:
    """Consecutive row groups with at most ``ROWS`` rows, or a single larger one, and the number of their rows."""
    runs: list[tuple[list[int], int]] = []
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if runs and runs[-1][1] + n_rows <= ROWS:
            runs[-1] = ([*runs[-1][0], group], runs[-1][1] + n_rows)
        else:
            runs.append(([group], n_rows))
    return runs


def _read(path: Path, groups: list[int], features: list[str], *others: list[str], probable: bool) -> tuple[Any, ...]:
    """Features of some row groups; then protected columns, columns that may justify a difference, and labels."""
    file, used = _open(path), list(dict.fromkeys(chain(features, *others)))
    try:
        table = file.read_row_groups(groups, columns=used, use_threads=False)
    except (pa.ArrowException, OSError):
        raise ValueError(f"{path} is a damaged Parquet file") from None
    table = table.replace_schema_metadata()  # drops the notes of pandas, which make an index of some columns
    # Whole numbers stay whole beside missing values: group 1 must not become group 1.0 in some files.
    protected, strata, labels = (
        table.select(names).to_pandas(integer_object_nulls=True) if names else None for names in others
    )
    protected = GroupProbabilities.unchecked(protected) if probable else protected
    return table.select(features).to_pandas(), protected, strata, None if labels is None else labels.iloc[:, 0]


ENGINES = ("local", "dask")


@contextmanager
def open_folder(
    where: str | Path, *, engine: str = "local", scheduler: str | None = None, n_threads: int = 1, **columns: Any
) -> Iterator[Engine]:
    """Yield the engine over a folder, glob or file of Parquet, with the ``columns`` of `parquet_parts`.

    ``engine`` is "local", this process with ``n_threads`` threads, or "dask". The workers of a Dask ``scheduler`` must
    be able to read the files; without its address there is a cluster on this machine, for this time.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; use {' or '.join(map(repr, ENGINES))}")
    if scheduler is not None and engine != "dask":
        raise InputError("{scheduler=} needs {engine='dask'}", scheduler=scheduler)
    parts, header = parquet_parts(where, **columns)
    with nullcontext() if engine == "local" else dask_client(scheduler):
        yield Engine(parts, header, n_threads) if engine == "local" else DaskEngine(parts, header)
