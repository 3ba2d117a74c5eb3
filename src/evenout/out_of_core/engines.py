"""Partitions of rows, and who works on them, in order.

An *engine* runs one function on every partition and merges the small results in the order of the partitions. The
algorithms in `reference`, `survey` and `evenout.fitting.passes` need no more than that: they know nothing of files or
machines.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_array

from evenout.core.parallel import one_blas_thread
from evenout.core.types import FloatArray, IntArray
from evenout.exceptions import InputError
from evenout.groups.model import Coder
from evenout.groups.read import GroupProbabilities, label_rows
from evenout.tables.rows import LARGEST, read_outcomes, read_propensity, refuse_huge

T = TypeVar("T")
U = TypeVar("U")


def in_order(work: Callable[[U], T], parts: Iterable[U], n_threads: int, ahead: int) -> Generator[T]:
    """``work`` on each part by threads, results in the order of the parts; one thread is this one.

    While a result is used, no more than ``ahead`` others are in work or wait. The first error in the order of the parts
    is raised where its result would be; then, or when this is closed, what has not begun never does, and threads end.

    >>> list(in_order(abs, [-3, 1, -2], n_threads=2, ahead=1))
    [3, 1, 2]
    """
    if n_threads <= 1:
        yield from map(work, parts)
        return
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="evenout-parts")
    try:
        for part in _after_earlier(parts, waiting):
            waiting.append(pool.submit(work, part))
            del part  # its thread alone holds it
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _after_earlier(parts: Iterable[U], waiting: Iterable[Future[T]]) -> Iterator[U]:
    """The parts; where the next one cannot be had, an error of those before it is raised first."""
    try:
        yield from parts
    except Exception:
        for earlier in waiting:
            earlier.result()
        raise


def merge_tree(results: Iterable[T], merge: Callable[[T, T], T]) -> T:
    """Merge results pairwise as they come, in their order, holding one of each size at most.

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
class Part:
    """Rows that are read and worked on together.

    Parameters
    ----------
    index : int
        Place among the partitions.
    source : str
        Where the rows come from, for messages and tables: a file, or the number of a partition.
    load : callable
        Returns the features, array or frame of shape (m, d), and the protected columns, (m,) or (m, c), or None; where
        they are asked for also the columns that may justify a difference, labels, and their propensity, or None.
    first_row : int
        Place of the first row in the source.
    """

    index: int
    source: str
    load: Callable[[], tuple[Any, ...]]
    first_row: int = 0


@dataclass(frozen=True)
class Rows:
    """The cleaned rows of one partition.

    Parameters
    ----------
    X : array of shape (m, d)
    names : tuple of str
        The groups that occur here.
    place : array of shape (m,)
        Which of ``names`` each row belongs to; -1 where the group is unknown.
    beside : Beside
        Protected columns, those that may justify a difference, labels and their propensity.
    numbers : array of shape (m, columns)
        Protected columns, strata and labels as numbers, by a `Coder`; no column without one.
    """

    X: FloatArray
    names: tuple[str, ...]
    place: IntArray
    beside: "Beside"
    numbers: FloatArray

    def codes(self, known: Mapping[str, int]) -> IntArray:
        """The code of each row's group among the known ones, shape (m,); -1 for any other."""
        return np.array([*(known.get(name, -1) for name in self.names), -1], dtype=np.intp)[self.place]

    def labels(self) -> Any:
        """The name of each row's group, or None, as an array of objects of shape (m,)."""
        return np.array([*self.names, None], dtype=object)[self.place]

    def known(self) -> FloatArray:
        """The label of each row and the chance with which it became known, NaN where there is none, shape (m, 2)."""
        none = np.full(len(self.X), np.nan)
        columns = self.beside.labels, self.beside.propensity
        return np.column_stack([none if column is None else column for column in columns])


class Beside(NamedTuple):
    """What a partition has beside its features; None for what is not asked for."""

    sensitive: Any = None
    given: Any = None
    labels: FloatArray | None = None
    propensity: FloatArray | None = None


def read_rows(part: Part, coder: Coder | None = None) -> Rows:
    """Load and clean a partition; every complaint begins with where the rows come from."""
    X, *columns = part.load()
    try:
        features = _features(X)
        beside, n = Beside(*columns), len(features)
        if beside.labels is not None:
            beside = beside._replace(labels=read_outcomes(beside.labels, n))
        if beside.propensity is not None:
            beside = beside._replace(propensity=read_propensity(beside.propensity, n))
        numbers = np.empty((n, 0 if coder is None else coder.width))
        if beside.sensitive is None or not n:
            return Rows(features, (), np.full(n, -1), beside, numbers)
        sensitive = beside.sensitive
        if coder is None and isinstance(sensitive, GroupProbabilities):
            likeliest = Coder.of_probable(sensitive.names)
            sensitive = likeliest.hardened(sensitive, likeliest.encode(sensitive, None, None, n))
        if coder is not None:
            numbers = coder.encode(sensitive, beside.given, beside.labels, n)
            sensitive = coder.hardened(sensitive, numbers)
        names, place = _groups(sensitive, n, X)
        return Rows(features, names, place, beside, numbers)
    except ValueError as error:
        raise InputError("{where}: {error}", where=describe(part, len(X)), error=error) from None


def _groups(sensitive: Any, n_rows: int, X: Any) -> tuple[tuple[str, ...], IntArray]:
    """The groups that occur, and which of them each row belongs to; -1 where a value is missing."""
    known = _known(sensitive, n_rows)
    if known.all():
        groups = label_rows(sensitive, n_rows, rows=X)
        return groups.labels, groups.codes
    place = np.full(n_rows, -1)
    if not known.any():
        return (), place
    groups = label_rows(_frame(sensitive)[known], int(known.sum()))
    place[known] = groups.codes
    return groups.labels, place


def describe(part: Part, n_rows: int, *, counted_from: int = 0) -> str:
    """The source, and which of its rows, if they are not the first ones."""
    if not part.first_row:
        return part.source
    first = part.first_row + counted_from
    return f"{part.source} (rows from {first} to {first + n_rows - 1}, here counted from {counted_from})"


def _features(X: Any) -> FloatArray:
    plain = _plain(X)
    if plain is not None:
        return plain
    if scipy.sparse.issparse(X):
        raise ValueError("X is sparse; dense data is needed")
    return refuse_huge(check_array(X, dtype=np.float64, order="C", ensure_min_samples=0, input_name="X"))


def _plain(X: Any) -> FloatArray | None:
    """Rows that need no word, as most are: numbers, none of them missing or huge; None of any other, for the long way.

    The long way changes the filters of warnings, which all threads share, and takes three times as long.
    """
    import pandas as pd

    if type(X) not in (pd.DataFrame, np.ndarray) or X.ndim != 2 or not len(X) or not X.shape[1]:
        return None
    kinds = X.dtypes if type(X) is pd.DataFrame else [X.dtype]
    if not all(isinstance(kind, np.dtype) and kind.kind in "fiu" for kind in kinds):
        return None
    rows = np.ascontiguousarray(X, dtype=np.float64)
    return rows if rows.min() >= -LARGEST and rows.max() <= LARGEST else None  # which no gap is


def _known(sensitive: Any, n_rows: int) -> Any:
    """Which rows have a value in every protected column; all of them where the length is wrong (told later)."""
    known = _frame(sensitive).notna().all(axis=1).to_numpy()
    return known if len(known) == n_rows else np.ones(n_rows, dtype=bool)


def _frame(sensitive: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(sensitive)


@dataclass(frozen=True)
class Staged:
    """Work on a partition that takes all threads or a GPU, and leaves to others what takes one thread.

    Parameters
    ----------
    ahead : function of a partition and what is shared
        Reads the rows; it may run while other rows are worked on.
    work : function of what ``ahead`` returns and what is shared
    after : function of what ``work`` returns and what is shared, optional
        Makes the result of it; it too may run meanwhile.
    """

    ahead: Callable[..., Any]
    work: Callable[..., Any]
    after: Callable[..., Any] | None = None

    def __call__(self, part: Part, *shared: Any) -> Any:
        """One step after the other, for an engine that works on other partitions meanwhile."""
        done = self.work(self.ahead(part, *shared), *shared)
        return done if self.after is None else self.after(done, *shared)


class Engine(Protocol):
    """Runs work on all partitions."""

    @property
    def header(self) -> Any:
        """A frame or array without rows that has the columns of the features."""

    @property
    def n_threads(self) -> int:
        """Threads that the work on one partition may use."""

    def share(self, value: T) -> T:
        """Make a value ready to be given to `reduce` more than once; the result stands for the value."""
        ...

    def reduce(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """``work(part, *shared)`` for every partition, merged in a tree, in the order of the partitions."""
        ...

    def scratch(self) -> AbstractContextManager[Callable[[], Path]]:
        """Yield a function that returns a folder for work to keep files in; it is removed at the end."""
        ...


@dataclass(frozen=True)
class LocalEngine:
    """All in this process: a partition for each thread, or, where work takes all threads, one after the other.

    Then two more are read ahead, and one is finished. With one thread nothing runs beside anything else, and memory is
    that of one partition.
    """

    parts: Sequence[Part]
    header: Any
    n_threads: int = 1

    def share(self, value: T) -> T:
        """Nothing to do: everything is in this process."""
        return value

    def reduce(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """See `Engine`."""
        n, few = self.n_threads, min(self.n_threads, AHEAD)
        if not isinstance(work, Staged):
            with one_blas_thread(), closing(in_order(_given(work, shared), self.parts, n, 2 * n)) as results:
                return merge_tree(results, merge)
        with ExitStack() as stages:
            ready = stages.enter_context(closing(in_order(_given(work.ahead, shared), self.parts, few, AHEAD)))
            worked: Iterator[T] = map(_given(work.work, shared), ready)
            if work.after is not None:
                worked = stages.enter_context(closing(in_order(_given(work.after, shared), worked, few, 1)))
            return merge_tree(worked, merge)

    @contextmanager
    def scratch(self) -> Iterator[Callable[[], Path]]:
        """See `Engine`."""
        with tempfile.TemporaryDirectory(prefix="evenout-", ignore_cleanup_errors=True) as folder:
            yield partial(Path, folder)


def _given(work: Callable[..., T], shared: tuple[Any, ...]) -> Callable[[Any], T]:
    return lambda part: work(part, *shared)
