"""Compiled code: one decorator for every kernel, one way to run a kernel over blocks of rows.

Kernels release the interpreter's lock and know nothing of threads; `map_blocks` runs them on slices of the rows. So
the number of threads is decided in one place. Results come back in the order of the rows, whatever that number is, and
nothing depends on a compiler's own thread pool.

Importing numba takes longer than importing the rest of this package. So only modules named ``_*_kernels`` use this
decorator, and they are imported when first needed.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

A = TypeVar("A")
T = TypeVar("T")

_LIMITING = Lock()
_INSIDE: list[Any] = []  # one entry for each that is inside: the first, which goes last, is the limit


def compiled(
    *, fastmath: bool = False, inline: bool = False, bare: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a kernel with numba; keep the machine code on disk where a folder can be written.

    What no kernel needs is not compiled: an entry for callers in C, and checks of every division, which by zero gives
    what numpy gives.

    Parameters
    ----------
    fastmath : bool
        Let the compiler reorder sums. Only for kernels whose error is bounded by a test.
    inline : bool
        Write the function into each kernel that calls it, instead of compiling it on its own before.
    bare : bool
        It makes no array and returns none, so no references to them are counted, and no expressions of whole arrays
        are looked for, to be made one loop: less to compile.
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
    """From now on, stop Python's search for unused objects while numba compiles.

    Compiling makes millions of small objects, so the search comes again and again, through all that the process holds,
    for nothing: up to a tenth of the first call. numba compiles in one thread at a time.
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
    """Run ``work`` on consecutive slices of ``block`` rows; the results, in the order of the rows.

    >>> map_blocks(lambda rows: (rows.start, rows.stop), n_rows=5, block=2, n_threads=1)
    [(0, 2), (2, 4), (4, 5)]
    """
    slices = [slice(start, min(start + block, n_rows)) for start in range(0, n_rows, block)]
    if n_threads <= 1 or len(slices) <= 1:
        return [work(rows) for rows in slices]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(work, slices))


def map_each(work: Callable[[A], T], items: Sequence[A], n_threads: int) -> list[T]:
    """Run ``work`` on each of some items, such as columns; the results, in their order.

    >>> map_each(str.upper, ["a", "b"], n_threads=2)
    ['A', 'B']
    """
    return map_blocks(lambda at: work(items[at.start]), len(items), 1, n_threads)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep linear algebra to one thread: with some hundred columns, several only wait for each other.

    The limit is that of the process. The first thread that comes here sets it, and the last one that leaves takes it
    away: were each to restore what it has found, one could restore the limit of another for good.
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
    """Keep OpenMP loops to the thread that comes here: beside others at work, a team of threads waits for its slowest.

    OpenMP counts by thread, so each thread of a pool must come here itself.
    """
    with threadpool_limits(limits=1, user_api="openmp"):
        yield


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 (it brings a library beside numpy's)

    return ThreadpoolController().select(user_api="blas")
