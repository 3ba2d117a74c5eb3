"""Folders of Parquet files: columns, rows, partitions.

Footers are compared here, not by `pyarrow.dataset`. It fills a column that a file lacks with gaps, reads text as
numbers and skips names that begin with an underscore, all without a word.
"""

import glob
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError
from evenout.groups.read import GroupProbabilities
from evenout.out_of_core.dask_engine import DaskEngine, dask_client
from evenout.out_of_core.engines import Engine, LocalEngine, Part, describe
from evenout.tables.columns import Found
from evenout.tables.encoder import TableEncoder

SomeEngine = TypeVar("SomeEngine", bound=Engine)


def learn_table(engine: Engine, keep: Collection[str] = ()) -> TableEncoder:
    """What each column is, by all rows, in one pass; the rules are those of a table in memory.

    Medians are exact up to 16,384 values, then off by less than 1e-3 in rank. Texts are counted exactly as long as
    there are at most 16,384 different ones; beyond, those that are rare in every partition may be missed.
    """
    found: dict[str, Found] = engine.reduce(_found_in, _added_columns)
    return TableEncoder(keep).learn(found)


def encoded(engine: SomeEngine, table: TableEncoder) -> SomeEngine:
    """The engine over encoded rows: numbers without gaps, under the names of their columns."""
    given: Any = engine
    parts = [replace(part, load=partial(_encode, part, table)) for part in given.parts]
    return replace(given, parts=parts, header=_nothing(table))


def _nothing(table: TableEncoder) -> Any:
    """Encoded rows, none of them."""
    return table.named(np.empty((0, len(table.get_feature_names_out()))))


def count_unknown(engine: Engine, table: TableEncoder) -> dict[str, int]:
    """Rows whose text the fit did not have, by column; these are encoded as none of the known values."""
    if not table.categories_:
        return {}
    total: Counter[str] = engine.reduce(_unknown_part, _added, table)
    return dict(total)


def _found_in(part: Part) -> dict[str, Found]:
    frame, *_ = part.load()
    with _located(part, len(frame)):
        return {str(name): Found.of(frame[name]) for name in frame.columns}


def _added_columns(columns: dict[str, Found], others: dict[str, Found]) -> dict[str, Found]:
    return {name: found + others[name] for name, found in columns.items()}


def _encode(part: Part, table: TableEncoder) -> tuple[Any, ...]:
    frame, *beside = part.load()
    if not len(frame):
        return _nothing(table), *beside
    with _located(part, len(frame)):
        return table.named(table.encode(frame), frame.index), *beside


def _unknown_part(part: Part, table: TableEncoder) -> Counter[str]:
    frame, *_ = part.load()
    return Counter({name: sum(counts.values()) for name, counts in table.unknown_values(frame).items()})


def _added(counts: Counter[str], others: Counter[str]) -> Counter[str]:
    return counts + others


@contextmanager
def _located(part: Part, n_rows: int) -> Iterator[None]:
    """Complaints about values begin with where the rows come from."""
    try:
        yield
    except ValueError as error:
        raise InputError("{where}: {error}", where=describe(part, n_rows, counted_from=1), error=error) from None


ROWS = 262_144  # row groups are read together up to so many rows

_COLUMNS = ("source", "row", "group", "base_score", "fair_score", "flagged")


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
) -> tuple[list[Part], Any]:
    """Partitions of Parquet files that all have the same columns.

    Parameters
    ----------
    where : path, glob or several paths
        A folder stands for all ``*.parquet`` files in it, at any depth, in the order of their names.
    sensitive : names
        The protected columns; none for rows that are only scored.
    features : names, optional
        Default: all columns but the protected, the excluded, the label and an index that pandas has written.
    exclude : names
    given : names
        Columns that may justify a difference; they may be features as well.
    label : name, optional
        Known outliers (1) and inliers (0), missing for others.
    probable : bool
        Whether the protected columns are probabilities of groups.
    text : bool
        Whether features may be text or dates and have gaps; `columns.encoded` makes numbers of them.

    Returns
    -------
    the partitions, and an empty frame with the feature columns: of type float, or object for text and dates

    Raises
    ------
    ValueError
        That names the file which is no Parquet file, lacks a column, or has other columns than the first one.
    """
    import pandas as pd

    files = _files(where)
    footers = {path: _open(path).metadata for path in files}
    labels = [] if label is None else [label]
    names = _features(files[0], _schema(footers[files[0]]), sensitive, features, [*exclude, *labels], given)
    used = list(dict.fromkeys([*names, *sensitive, *given, *labels]))
    columns = _columns({path: _schema(footer) for path, footer in footers.items()}, used)
    texts = _text_columns(columns, names, allowed=text)
    parts: list[Part] = []
    for path, footer in footers.items():
        start = 0
        for groups, n_rows in _runs(footer):
            load = partial(_read, path, groups, names, list(sensitive), list(given), labels)
            load = partial(_read_probable, load) if probable else load
            parts.append(Part(len(parts), str(path), load, start))
            start += n_rows
    return parts, pd.DataFrame({name: pd.Series(dtype=object if name in texts else float) for name in names})


class ScoresFile:
    """A Parquet file of scores of one partition, written block by block; it appears whole."""

    def __init__(self, folder: Path, part: Part, labels: tuple[str, ...]) -> None:
        self._place = folder / f"scores-{part.index:06d}.parquet"
        self._source, self._names = part.source, np.array([*labels, None], dtype=object)

    def __enter__(self) -> "ScoresFile":
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts, scores = ("source", "group"), ("base_score", "fair_score")
        kinds = dict.fromkeys(texts, pa.string()) | {"row": pa.int64(), "flagged": pa.bool_()}
        kinds |= dict.fromkeys(scores, pa.float64())
        self._schema = pa.schema([(name, kinds[name]) for name in _COLUMNS])
        # A name of its own: where a partition is worked on twice at a time, neither writes into the other's file.
        self._unfinished = self._place.with_suffix(f".{uuid4().hex}")
        self._file = pq.ParquetWriter(self._unfinished, self._schema)
        return self

    def write(self, row: int, codes: IntArray, base: FloatArray, fair: FloatArray, flagged: BoolArray) -> None:
        """Append consecutive rows, the first of which is ``row`` of the source."""
        import pyarrow as pa

        columns = [[self._source] * len(codes), np.arange(row, row + len(codes)), self._names[codes]]
        self._file.write_table(pa.table([*columns, base, fair, flagged], schema=self._schema))

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self._file.close()
        if kind is None:
            self._unfinished.replace(self._place)
        else:
            self._unfinished.unlink()


def _files(where: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(where, str | Path):
        found = [Path(path) for path in where]
    elif Path(where).is_dir():
        found = sorted(path for path in Path(where).rglob("*.parquet") if path.is_file())
    elif Path(where).exists():
        found = [Path(where)]
    else:
        found = [Path(path) for path in sorted(glob.glob(str(where), recursive=True))]  # noqa: PTH207 (may be absolute)
    if not found:
        raise ValueError(f"{where} has no Parquet file; name a folder, a file or a pattern such as data/*.parquet")
    return found


def _open(path: Path) -> Any:
    import pyarrow as pa
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
        aside = {*sensitive, *exclude}
        features = [n for n in schema.names if n not in aside and not n.startswith("__index_level_")]
    if not features:
        raise ValueError(f"{path} has no feature column beside {', '.join(map(repr, [*sensitive, *exclude]))}")
    return list(features)


def _schema(footer: Any) -> Any:
    return footer.schema.to_arrow_schema()


def _columns(schemas: dict[Path, Any], names: list[str]) -> dict[str, tuple[Path, Any]]:
    """The type of each column, and the first file that shows it; a column of gaps alone goes with any type."""
    import pyarrow as pa

    found: dict[str, tuple[Path, Any]] = {}
    for path, schema in schemas.items():
        for name in names:
            if schema.names.count(name) != 1:
                raise ValueError(
                    f"{path} has {schema.names.count(name)} columns {name!r}, but {next(iter(schemas))} has one"
                )
            kind = schema.field(name).type
            first, known = found.get(name, (path, pa.null()))
            if pa.types.is_null(known):
                found[name] = path, kind
            elif not pa.types.is_null(kind) and _kind(kind) != _kind(known):
                raise ValueError(
                    f"{path}: column {name!r} holds {_kind(kind)}, but {_kind(known)} in {first}; "
                    "write all files with the same types"
                )
    return found


def _text_columns(columns: dict[str, tuple[Path, Any]], features: list[str], *, allowed: bool) -> list[str]:
    """Those that hold text or dates; columns that hold neither numbers nor what is allowed are refused."""
    import pyarrow as pa

    numbers = pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null
    others = [name for name in features if not any(holds(columns[name][1]) for holds in numbers)]
    for name in others:
        path, kind = columns[name]
        if not (allowed and (_kind(kind) == "text" or pa.types.is_temporal(kind) or pa.types.is_decimal(kind))):
            wanted = "numbers, dates or text" if allowed else "numbers"
            raise InputError(
                "{path}: column {name!r} holds {kind}, not {wanted}; encode it, or {-name}",
                path=path, name=name, kind=_kind(kind), wanted=wanted,
            )  # fmt: skip
    return others


def _kind(kind: Any) -> str:
    """The name of a type; the ways to store text are one."""
    import pyarrow as pa

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


def _read(
    path: Path, groups: list[int], features: list[str], sensitive: list[str], given: list[str], label: list[str]
) -> tuple[Any, ...]:
    """Features, protected columns, columns that may justify a difference, and labels of some row groups."""
    import pyarrow as pa

    file, used = _open(path), list(dict.fromkeys([*features, *sensitive, *given, *label]))
    try:
        table = file.read_row_groups(groups, columns=used, use_threads=False)
    except (pa.ArrowException, OSError):
        raise ValueError(f"{path} is a damaged Parquet file") from None
    table = table.replace_schema_metadata()  # notes of pandas, who would make an index of some columns
    X = table.select(features).to_pandas()
    # Whole numbers stay whole beside missing values: group 1 must not become group 1.0 in some files.
    frames = [table.select(names).to_pandas(integer_object_nulls=True) for names in (sensitive, given, label)]
    protected, beside, labels = (frame if len(frame.columns) else None for frame in frames)
    return X, protected, beside, None if labels is None else labels.iloc[:, 0]


def _read_probable(load: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The same with the protected columns as probabilities of groups."""
    X, protected, *others = load()
    return X, GroupProbabilities.unchecked(protected), *others


ENGINES = ("local", "dask")


@contextmanager
def open_folder(
    where: str | Path,
    *,
    sensitive: Collection[str] = (),
    features: Collection[str] | None = None,
    exclude: Collection[str] = (),
    given: Collection[str] = (),
    label: str | None = None,
    probable: bool = False,
    text: bool = False,
    engine: str = "local",
    scheduler: str | None = None,
    n_threads: int = 1,
) -> Iterator[Engine]:
    """Yield the engine over a folder, glob or file of Parquet, for `fit_partitions` and `score_partitions`.

    Parameters
    ----------
    where, sensitive, features, exclude, given, label, probable, text : see `parquet_parts`
    engine : {"local", "dask"}
        This process with ``n_threads`` threads, or Dask workers.
    scheduler : str, optional
        Address of a Dask scheduler whose workers can read the files; default: a cluster on this machine, for this time.
    n_threads : int
    """
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; use {' or '.join(map(repr, ENGINES))}")
    if scheduler is not None and engine != "dask":
        raise InputError("{scheduler=} needs {engine='dask'}", scheduler=scheduler)
    columns: dict[str, Any] = {"sensitive": sensitive, "features": features, "exclude": exclude}
    parts, header = parquet_parts(where, **columns, given=given, label=label, probable=probable, text=text)
    if engine == "local":
        yield LocalEngine(parts, header, n_threads)
        return
    with dask_client(scheduler):
        yield DaskEngine(parts, header)
