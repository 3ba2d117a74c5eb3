"""A folder of Parquet files and an engine by name, as the command line asks for them."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenout.core.exceptions import InputError
from evenout.partitions.dask_engine import DaskEngine, dask_client
from evenout.partitions.engines import Engine, LocalEngine
from evenout.partitions.parquet import parquet_parts

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
