"""Partitions of rows, and the engine that works through them in order.

An *engine* runs one function on every partition and merges the small results in the order of the partitions. The
algorithms in `survey` and `evenout.fitting.passes` need no more than that: they know nothing of files or machines.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_array

from evenout.core.parallel import one_blas_thread
from evenout.core.types import FloatArray
from evenout.exceptions import InputError
from evenout.groups.model import Attribute, Coder
from evenout.groups.read import Codes, GroupProbabilities, label_rows
from evenout.tables.rows import plain_rows, read_outcomes, read_propensity, refuse_huge

T = TypeVar("T")
U = TypeVar("U")


def in_order(
    work: Callable[..., T], parts: Iterable[Any], n_threads: int, ahead: int, shared: Sequence[Any] = ()
) -> Generator[T]:
    """Run ``work(part, *shared)`` on threads and yield the results in the order of the parts; one thread is this one.

    While a result is used, at most ``ahead`` others are in work or waiting. The first error in the order of the parts
    is raised in place of its result; then, or when the generator is closed, no further part is begun and threads end.

    >>> list(in_order(abs, [-3, 1, -2], n_threads=2, ahead=1))
    [3, 1, 2]
    """
    if n_threads <= 1:
        yield from map(work, parts, *map(repeat, shared))  # map holds no part while its result is used
        return
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="evenout-parts")
    try:
        for part in _after_earlier(parts, waiting):
            waiting.append(pool.submit(work, part, *shared))
            del part  # its thread alone holds it
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _after_earlier(parts: Iterable[U], waiting: Iterable[Future[T]]) -> Iterator[U]:
    """Yield the parts; if the next one cannot be made, an error of the parts before it is raised first."""
    try:
        yield from parts
    except Exception:
        for earlier in waiting:
            earlier.result()
        raise


def merge_tree(results: Iterable[T], merge: Callable[[T, T], T]) -> T:
    """Merge results pairwise as they arrive, in their order, holding at most one of each size.

    >>> merge_tree("abcde", lambda a, b: f"({a}{b})")
    '(((ab)(cd))e)'
    """
    waiting: list[tuple[int, T]] = []  # sizes fall from left to right, as powers of two
    for result in results:
        size = 1
        while waiting and waiting[-1][0] == size:
            result = merge(waiting.pop()[1], result)
            size *= 2
        waiting.append((size, result))
    if not waiting:
        raise ValueError("there are no partitions; give at least one file or partition")
    total = waiting.pop()[1]
    while waiting:
        total = merge(waiting.pop()[1], total)
    return total


AHEAD = 2  # partitions that are read while another is scored


@dataclass(frozen=True)
class Partition:
    """Rows that are read and worked on together.

    ``load`` returns the features, array or frame of shape (m, d), and the fields of a `Chunk`, as far as asked for.
    """

    index: int  # among the partitions
    source: str  # where the rows come from, for messages and tables: a file, or the number of a partition
    load: Callable[[], tuple[Any, ...]]
    first_row: int = 0  # its index in the source

    @contextmanager
    def located(self, n_rows: int, *, counted_from: int = 0) -> Iterator[None]:
        """Begin every complaint about values with the source and, unless they are its first, which of its rows."""
        try:
            yield
        except ValueError as error:
            first = self.first_row + counted_from
            rows = f" (rows from {first} to {first + n_rows - 1}, here counted from {counted_from})"
            raise InputError(
                "{where}: {error}", where=self.source + (rows if self.first_row else ""), error=error
            ) from None


class Chunk(NamedTuple):
    """The columns of a partition other than its features; None for those not asked for."""

    sensitive: Any = None  # protected columns, (m,) or (m, c)
    given: Any = None  # columns that may justify a difference
    labels: FloatArray | None = None  # (m,)
    propensity: FloatArray | None = None  # (m,), of the labels


@dataclass(frozen=True)
class PartitionRows:
    """The cleaned rows of one partition."""

    X: FloatArray  # (m, d)
    groups: Codes  # those that occur here
    chunk: Chunk
    # (m, columns): protected columns, strata and labels as numbers, by a `Coder`; no column without one
    numbers: FloatArray

    def labels(self) -> Any:
        """The name of each row's group, or None, as an array of objects of shape (m,)."""
        return np.array([*self.groups.labels, None], dtype=object)[self.groups.codes]

    def known(self) -> FloatArray:
        """The label of each row and the chance with which it became known, NaN where there is none, shape (m, 2)."""
        none, columns = np.full(len(self.X), np.nan), (self.chunk.labels, self.chunk.propensity)
        return np.column_stack([none if column is None else column for column in columns])


def read_rows(part: Partition, coder: Coder | None = None) -> PartitionRows:
    """Load and clean a partition; every complaint begins with where the rows come from."""
    X, *columns = part.load()
    with part.located(len(X)):
        features, chunk = _features(X), Chunk(*columns)
        n, sensitive = len(features), chunk.sensitive
        chunk = chunk._replace(
            labels=None if chunk.labels is None else read_outcomes(chunk.labels, n),
            propensity=None if chunk.propensity is None else read_propensity(chunk.propensity, n),
        )
        numbers, groups = np.empty((n, 0)), Codes(np.full(n, -1), ())
        if coder is not None:
            numbers = coder.encode(sensitive, chunk.given, chunk.labels, n)
            sensitive = coder.hardened(sensitive, numbers)
        elif isinstance(sensitive, GroupProbabilities):
            likeliest = Coder((Attribute("group", sensitive.names, probable=True),))
            sensitive = likeliest.hardened(sensitive, sensitive.values)
        if sensitive is not None:
            groups = label_rows(sensitive, n, rows=X, unknown="ignore")
        return PartitionRows(features, groups, chunk, numbers)


def _features(X: Any) -> FloatArray:
    """Rows as finite numbers; `check_array`, three times as slow, changes warning filters that all threads share."""
    rows = plain_rows(X)
    if rows is not None:
        return rows
    if scipy.sparse.issparse(X):
        raise ValueError("X is sparse; dense data is needed")
    return refuse_huge(check_array(X, dtype=np.float64, order="C", ensure_min_samples=0, input_name="X"))


@dataclass(frozen=True)
class Staged:
    """Work on a partition in steps: the middle one takes all threads or a GPU, the others take one thread."""

    ahead: Callable[..., Any]  # of a partition, reads the rows; it may run while other rows are worked on
    work: Callable[..., Any]  # of the result of ``ahead``
    after: Callable[..., Any] | None = None  # of the result of ``work``; it may run while other rows are worked on

    def __call__(self, part: Partition, *shared: Any) -> Any:
        """One step after the other, for an engine that works on other partitions meanwhile."""
        done = self.work(self.ahead(part, *shared), *shared)
        return done if self.after is None else self.after(done, *shared)


@dataclass(frozen=True)
class Engine:
    """Runs work on all partitions in this process: one per thread or, where work takes all threads, one by one.

    In the latter case two more are read ahead, and one is finished. With one thread nothing runs in parallel, and
    memory is that of one partition.
    """

    parts: Sequence[Partition]
    header: Any  # a frame or array without rows, with the columns of the features
    n_threads: int = 1  # that the work on one partition may use

    def share(self, value: T) -> T:
        """Make a value ready to be given to `reduce` more than once; the result stands for the value."""
        return value

    def reduce(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """``work(part, *shared)`` for every partition, merged in a tree, in the order of the partitions."""
        n, few = self.n_threads, min(self.n_threads, AHEAD)
        if not isinstance(work, Staged):
            with one_blas_thread(), closing(in_order(work, self.parts, n, 2 * n, shared)) as results:
                return merge_tree(results, merge)
        with ExitStack() as stages:
            ready = stages.enter_context(closing(in_order(work.ahead, self.parts, few, AHEAD, shared)))
            worked: Iterator[T] = map(work.work, ready, *map(repeat, shared))
            if work.after is not None:
                worked = stages.enter_context(closing(in_order(work.after, worked, few, 1, shared)))
            return merge_tree(worked, merge)

    @contextmanager
    def scratch(self) -> Iterator[Callable[[], Path]]:
        """Yield a function that returns a folder for work to keep files in; it is removed at the end."""
        with tempfile.TemporaryDirectory(prefix="evenout-", ignore_cleanup_errors=True) as folder:
            yield partial(Path, folder)
