"""Results of partitions in their order: made by threads, with bounds on what is in memory, and merged in a tree."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
