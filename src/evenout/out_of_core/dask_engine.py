"""Dask as the engine: its collections as partitions, its scheduler for the work, on one machine or a cluster.

Every pass is one graph: a task per partition, and a tree of merges over the small results. A lost worker costs the
tasks whose results it held, which Dask runs again. Work on a partition uses one thread, and Dask runs as many
partitions at a time as its workers have threads, so that no core is oversubscribed.
"""

import importlib.util
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from threadpoolctl import threadpool_limits

from evenout.core.types import FloatArray
from evenout.groups.read import GroupProbabilities
from evenout.out_of_core.engines import Engine, Partition
from evenout.tables.rows import refuse_lone_propensity

T = TypeVar("T")

_FAN_IN = 8  # results that one task merges
# The model travels in a graph on purpose: the scheduler keeps graphs, so it can send it again.
_QUIET = {"distributed.admin.large-graph-warning-threshold": "1GiB"}


def is_collection(X: Any) -> bool:
    """Whether X is a Dask collection; works without Dask.

    >>> is_collection(np.zeros((2, 2)))
    False
    """
    return hasattr(type(X), "__dask_graph__")


@dataclass(frozen=True)
class DaskEngine(Engine):
    """Runs work on Dask: on the current client or, without one, on its scheduler in this process."""

    # The result of `Partition.load` for each partition, where Dask holds it; otherwise the parts load it.
    data: Sequence[tuple[Any, ...]] | None = None

    def share(self, value: T) -> T:
        """Put a value on the workers; the scheduler can make it again if those that have it are lost."""
        import dask

        node, client = dask.delayed(value, name=f"evenout-{uuid4().hex}", traverse=False), _client()
        with dask.config.set(_QUIET):
            return node if client is None else client.persist(node)

    def reduce(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """See `Engine`. Nothing is read ahead: other partitions are worked on meanwhile."""
        import dask

        if not self.parts:
            raise ValueError("there are no partitions; give at least one file or partition")
        run, join = dask.delayed(_run, pure=False), dask.delayed(lambda *given: reduce(merge, given), pure=False)
        data = [()] * len(self.parts) if self.data is None else self.data
        results = [run(work, part, shared, *given) for part, given in zip(self.parts, data, strict=True)]
        while len(results) > 1:
            results = [join(*results[i : i + _FAN_IN]) for i in range(0, len(results), _FAN_IN)]
        # Workers of a client have been started with one thread for linear algebra.
        with threadpool_limits(1) if _client() is None else nullcontext():
            return results[0].compute()

    @contextmanager
    def scratch(self) -> Iterator[Callable[[], Path]]:
        """A folder on each worker's own disk, or on this machine without a client."""
        client = _client()
        if client is None:
            with super().scratch() as folder:
                yield folder
            return
        name = f"evenout-{uuid4().hex}"
        try:
            yield partial(_worker_folder, name)
        finally:
            client.run(
                lambda dask_worker: shutil.rmtree(Path(dask_worker.local_directory) / name, ignore_errors=True),
                on_error="ignore",
            )


def collection_engine(
    X: Any, sensitive_features: Any, given: Any = None, labels: Any = None, label_propensity: Any = None
) -> DaskEngine:
    """The engine of a Dask DataFrame, or array of shape (n, d), and of the columns beside it, with the same partitions.

    These are Dask Series, DataFrames or arrays of shape (n,) or (n, c), or `GroupProbabilities` of a DataFrame.
    """
    refuse_lone_propensity(labels, label_propensity)
    if sensitive_features is None:
        raise ValueError(
            "sensitive_features is missing: fairness needs the group of every training row; "
            "pass sensitive_features=<Dask Series, DataFrame or array>"
        )
    probable = isinstance(sensitive_features, GroupProbabilities)
    groups = _aligned(X, sensitive_features.frame if probable else sensitive_features, "sensitive_features")
    if probable:
        import dask

        groups = [dask.delayed(GroupProbabilities.unchecked)(part) for part in groups]
    named = {"given": given, "labels": labels, "label_propensity": label_propensity}
    others = [_aligned(X, columns, name) for name, columns in named.items()]
    data = list(zip(_partitions(X, "X"), groups, *others, strict=True))
    # Dask hands the rows over, so that none are loaded.
    parts = [Partition(index, f"partition {index}", tuple) for index in range(len(data))]
    header = X._meta if hasattr(X, "npartitions") and hasattr(X, "columns") else np.empty((0, X.shape[1]))
    return DaskEngine(parts, header, data=data)


def score_collection(
    score: Callable[..., FloatArray], X: Any, sensitive_features: Any = None, *, columns: int | None = None
) -> Any:
    """Apply a method of a fitted model to every partition: a Dask array of shape (m,), or (m, columns); lazy.

    It is called as ``score(rows)``, or as ``score(rows, sensitive_features=...)`` where these are given.
    """
    import dask.array as da

    tail = () if columns is None else (columns,)
    results = apply_later(score, X, sensitive_features, np.empty((0, *tail)))
    lengths = X.chunks[0] if hasattr(X, "chunks") else [np.nan] * len(results)
    blocks = [
        da.from_delayed(result, shape=(length, *tail), dtype=float)
        for result, length in zip(results, lengths, strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def apply_later(method: Callable[..., Any], X: Any, sensitive_features: Any, empty: Any) -> list[Any]:
    """Results of a method for each partition, delayed; ``empty`` for a partition without rows."""
    import dask

    shared, run = DaskEngine((), None).share(method), dask.delayed(_apply, pure=False)
    pairs = zip(_partitions(X, "X"), _aligned(X, sensitive_features, "sensitive_features"), strict=True)
    return [run(shared, empty, rows, groups) for rows, groups in pairs]


def _apply(method: Callable[..., Any], empty: Any, rows: Any, groups: Any) -> Any:
    if not len(rows):
        return empty
    return method(rows) if groups is None else method(rows, sensitive_features=groups)


@contextmanager
def dask_client(address: str | None = None, *, timeout: float = 10.0) -> Iterator[Any]:
    """A client of the scheduler at ``address``, or of a local cluster with one worker of one thread per core."""
    if importlib.util.find_spec("distributed") is None:
        raise ValueError("the engine 'dask' needs Dask; install it with: pip install 'evenout[dask]'")
    from distributed import Client, LocalCluster

    if address is None:
        with LocalCluster(threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(address, timeout=timeout)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address} ({type(error).__name__})") from None
    with client:
        yield client


def _client() -> Any:
    """The current client of a distributed scheduler; None if there is none."""
    if importlib.util.find_spec("distributed") is None:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


def _run(work: Callable[..., T], part: Partition, shared: tuple[Any, ...], *given: Any) -> T:
    """Work on one partition, whose data are given or which loads itself."""
    return work(replace(part, load=lambda: given) if given else part, *shared)


def _partitions(collection: Any, name: str) -> list[Any]:
    """The partitions of a collection as delayed objects; an array is cut by rows alone."""
    if not is_collection(collection) or not hasattr(collection, "to_delayed"):
        raise ValueError(
            f"{name} is {type(collection).__name__}; over partitions give Dask DataFrames, Series or arrays"
        )
    if hasattr(collection, "chunks"):
        if collection.ndim not in (1, 2):
            raise ValueError(f"{name} has {collection.ndim} dimensions; give one row per case")
        return list((collection.rechunk({1: -1}) if collection.ndim == 2 else collection).to_delayed().ravel())
    # Otherwise Dask joins small files, not the same ones for all columns, and rows would be paired with wrong groups.
    return list(collection.to_delayed(optimize_graph=False))


def _aligned(X: Any, columns: Any, name: str) -> list[Any]:
    """Partitions of some columns, as many as X has, or None for each; arrays of known length are cut where X is."""
    n_parts = len(_partitions(X, "X"))
    if columns is None:
        return [None] * n_parts
    if hasattr(X, "chunks") and hasattr(columns, "chunks"):
        rows, lengths = X.chunks[0], columns.chunks[0]
        if rows != lengths and not np.isnan([*rows, *lengths]).any():
            if sum(rows) != sum(lengths):
                raise ValueError(f"{name} has {sum(lengths)} rows, but X has {sum(rows)}; give one value per row of X")
            columns = columns.rechunk({0: rows})
    parts = _partitions(columns, name)
    if len(parts) != n_parts:
        raise ValueError(
            f"{name} has {len(parts)} partitions, but X has {n_parts}; "
            "take both from one frame, or repartition them alike"
        )
    return parts


def _worker_folder(name: str) -> Path:
    from distributed import get_worker

    folder = Path(get_worker().local_directory) / name
    folder.mkdir(exist_ok=True)
    return folder
