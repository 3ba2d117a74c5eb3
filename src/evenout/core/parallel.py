"""Compiled kernels, and passes over blocks of rows on threads.

Kernels release the interpreter's lock and do not start threads; `map_blocks` runs them on slices of the rows. So the
number of threads is decided in one place. Results come back in the order of the rows, whatever that number is.

Importing numba takes longer than importing the rest of this package. So only modules named ``_*_kernels`` use
`compiled`, and they are imported when first needed.

numpy releases the interpreter's lock while it copies, sorts and computes, so plain numpy on blocks of rows, or on
columns, runs on several threads. Blocks also stay in the cache between one step and the next.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

from evenout.core.types import AnyArray, BoolArray, FloatArray

A = TypeVar("A")
T = TypeVar("T")

_LIMITING = Lock()
_INSIDE: list[Any] = []  # one entry for each thread inside `one_blas_thread`: the first, which goes last, is the limit


def compiled(
    *, fastmath: bool = False, inline: bool = False, bare: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a kernel with numba; keep the machine code on disk if a folder is writable.

    To compile less, there is no entry for callers in C, and division by zero is not checked: it gives what numpy gives.

    ``fastmath`` lets the compiler reorder sums; only for kernels whose error a test bounds. ``inline`` compiles the
    function into each kernel that calls it, instead of separately. ``bare``: the kernel makes no array and returns
    none, so references are not counted and array expressions are not fused, which leaves less to compile.
    """
    import numba

    _pause_collector()

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        options = {
            "nogil": True,
            "fastmath": fastmath,
            "inline": "always" if inline else "never",
            "error_model": "numpy",
            "no_cfunc_wrapper": True,
            "_nrt": not bare,
            "no_rewrites": bare,
        }
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache: compile once per process instead
            return numba.njit(**options)(function)

    return decorate


@cache
def _pause_collector() -> None:
    """From now on, pause Python's garbage collector while numba compiles.

    Compiling makes millions of small objects, so the collector would run again and again for nothing, for up to a tenth
    of the first call. numba compiles in one thread at a time.
    """
    from numba.core import event

    class Pause(event.Listener):
        depth, enabled = 0, False

        def on_start(self, _: Any) -> None:
            if self.depth == 0:
                self.enabled = gc.isenabled()
                gc.disable()
            self.depth += 1

        def on_end(self, _: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.enabled:
                gc.enable()

    event.register("numba:compile", Pause())


def map_blocks(work: Callable[[slice], T], n_rows: int, block: int, n_threads: int) -> list[T]:
    """Run ``work`` on consecutive slices of ``block`` rows; results are in the order of the rows.

    >>> map_blocks(lambda rows: (rows.start, rows.stop), n_rows=5, block=2, n_threads=1)
    [(0, 2), (2, 4), (4, 5)]
    """
    slices = [slice(start, min(start + block, n_rows)) for start in range(0, n_rows, block)]
    if n_threads <= 1 or len(slices) <= 1:
        return [work(rows) for rows in slices]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(work, slices))


def map_each(work: Callable[[A], T], items: Sequence[A], n_threads: int) -> list[T]:
    """Run ``work`` on each of some items, such as columns; results are in their order.

    >>> map_each(str.upper, ["a", "b"], n_threads=2)
    ['A', 'B']
    """
    return map_blocks(lambda at: work(items[at.start]), len(items), 1, n_threads)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep linear algebra to one thread: with some hundred columns, several only wait for each other.

    The limit is that of the process. The first thread that enters sets it, and the last one that leaves removes it: if
    each restored the limit that it found, one could restore that of another for good.
    """
    with _LIMITING:
        _INSIDE.append(None if _INSIDE else _blas().limit(limits=1))
    try:
        yield
    finally:
        with _LIMITING:
            limit = _INSIDE.pop()
            if limit is not None:
                limit.restore_original_limits()


@contextmanager
def one_openmp_thread() -> Iterator[None]:
    """Keep OpenMP loops of this thread to one thread: if other threads work too, a team waits for its slowest.

    OpenMP counts by thread, so each thread of a pool must enter.
    """
    with threadpool_limits(limits=1, user_api="openmp"):
        yield


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 (it brings a library beside numpy's)

    return ThreadpoolController().select(user_api="blas")


ROWS = 8192  # of a block


def by_rows(
    function: Callable[..., FloatArray], *parts: AnyArray, n_threads: int, width: int | None = None, block: int = ROWS
) -> FloatArray:
    """``function(*parts)`` of arrays (n, ...), where each row of the result depends on the same row of the parts.

    ``width`` is the number of columns of the result; None: it has the shape and layout of the first part.
    """
    n = len(parts[0])
    out = np.empty_like(parts[0], dtype=float) if width is None else np.empty((n, width))
    map_blocks(lambda at: np.copyto(out[at], function(*(part[at] for part in parts))), n, block, n_threads)
    return out


def take_rows(array: FloatArray, rows: AnyArray, n_threads: int) -> FloatArray:
    """``array[rows]``: the rows at some places, or those that a mask marks."""
    indices = np.flatnonzero(rows) if rows.dtype == bool else rows
    out = np.empty((len(indices), *array.shape[1:]), dtype=array.dtype)
    # Other modes than "clip" fill a copy of ``out`` first.
    map_blocks(lambda at: array.take(indices[at], axis=0, out=out[at], mode="clip"), len(indices), ROWS, n_threads)
    return out


def put_rows(into: FloatArray, rows: BoolArray, source: FloatArray, n_threads: int) -> None:
    """``into[rows] = source[rows]``, for the rows that a mask marks."""
    map_blocks(lambda at: np.copyto(into[at], source[at], where=rows[at, None]), len(rows), ROWS, n_threads)


def side_by_side(parts: Sequence[FloatArray], n_threads: int) -> FloatArray:
    """Columns (n,) and tables (n, c) side by side, row by row in memory."""
    tables = [part[:, None] if part.ndim == 1 else part for part in parts]
    out = np.empty((len(tables[0]), sum(table.shape[1] for table in tables)))
    map_blocks(
        lambda at: np.concatenate([table[at] for table in tables], axis=1, out=out[at]), len(out), ROWS, n_threads
    )
    return out


def map_columns(work: Callable[[int], T], columns: Sequence[int], n_rows: int, n_threads: int) -> list[T]:
    """Run ``work`` on each of some columns of ``n_rows`` rows; short ones on one thread."""
    return map_each(work, columns, n_threads if n_rows > ROWS else 1)


def sorted_columns(X: FloatArray, n_threads: int) -> FloatArray:
    """``np.sort(X, axis=0)``, in the layout of X."""
    out = np.empty_like(X)
    map_columns(lambda j: np.copyto(out[:, j], np.sort(X[:, j])), range(X.shape[1]), len(X), n_threads)
    return out
