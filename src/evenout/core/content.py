"""The order of rows and their folds, by their content rather than their place."""

import numpy as np
import numpy.typing as npt

from evenout.core.parallel import ROWS, map_blocks, map_each
from evenout.core.types import AnyArray, BoolArray, FloatArray, IntArray


def counts_around(known: FloatArray, values: FloatArray) -> tuple[IntArray, IntArray]:
    """Count the known values (n, k) below each value (m, k), and those up to it; columns are sorted.

    >>> counts_around(np.array([[1.0], [2.0], [2.0]]), np.array([[2.0], [9.0]]))
    (array([[1], [3]]), array([[3], [3]]))
    """
    from evenout.core._column_kernels import count_around

    below, upto = np.empty(values.shape, dtype=np.intp), np.empty(values.shape, dtype=np.intp)
    count_around(known, np.ascontiguousarray(values), below, upto)
    return below, upto


def row_order(X: FloatArray) -> tuple[IntArray, BoolArray]:
    """Order of rows (n, d), n >= 1, by their values, first column first, and which of them differ from the one before.

    The order is that of `np.lexsort`, except that equal rows come in any order. Only rows that are tied so far are
    sorted by a further column: if the first one has no ties, no other is sorted.

    Examples
    --------
    >>> row_order(np.array([[2.0, 1.0], [1.0, 5.0], [2.0, 0.0]]))
    (array([1, 2, 0]), array([ True,  True,  True]))
    """
    order = np.argsort(X[:, 0])
    new = changes(X[order, 0])
    for column in X.T[1:]:
        tied, run = np.flatnonzero(~new), np.cumsum(new)
        unsettled = np.zeros(len(new) + 1, dtype=bool)  # runs in which two rows are tied so far, but not equal
        unsettled[run[tied[(X[order[tied]] != X[order[tied - 1]]).any(axis=1)]]] = True
        at = np.flatnonzero(unsettled[run])
        if not len(at):
            break
        rows, run = order[at], np.cumsum(np.diff(run[at], prepend=run[at[0]]) > 0)  # numbers in steps of 0 or 1
        short = run.astype(np.uint16) if run[-1] < 1 << 16 else run  # 16 bits: sorted by radix
        order[at] = rows[np.lexsort((column[rows], short))]
        new[at] |= changes(column[order[at]])
    return order, new


def changes(values: AnyArray) -> BoolArray:
    """Which values (n,) differ from the one before; the first one does.

    >>> changes(np.array([1.0, 1.0, 2.0])).tolist()
    [True, False, True]
    """
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def shuffle_copies(values: AnyArray, content: FloatArray, seed: int) -> IntArray:
    """A random order of rows by their ``content`` (n,), where equal neighbours among ``values`` (n,) are copies.

    Copies would draw the same number and stay together; so they are numbered from 0, and draw by that number too.
    """
    first = np.flatnonzero(changes(values))
    copies = np.arange(len(values)) - np.repeat(first, np.diff(first, append=len(values)))
    return np.argsort(row_numbers(np.column_stack([content, copies]), seed), kind="stable")


N_FOLDS = 5
_U64 = np.uint64


def count_folds(groups: IntArray) -> int:
    """K = min(5, size of the smallest group); rows of unknown group (-1) do not count."""
    return int(min(N_FOLDS, np.bincount(groups[groups >= 0]).min()))


def assign_folds(
    X: FloatArray, groups: IntArray, n_folds: int, seed: int, clusters: IntArray | None = None, *, n_threads: int = 1
) -> IntArray:
    """Deal the rows of each group into ``n_folds`` folds whose sizes differ by at most one.

    Each row draws a number from its content and the seed, and the rows of a group are dealt in the order of these
    numbers: a uniformly random split that does not depend on the order of the rows. Clusters are dealt whole, each in
    the group of most of its rows.

    Equal rows of X (n, d), features or scores, are interchangeable. The group -1 (unknown) is dealt like any other;
    ``clusters`` (n,) are codes 0, 1, ... of rows that belong together.

    >>> S = np.arange(6.0).reshape(6, 1)
    >>> folds = assign_folds(S, np.array([0, 0, 0, 1, 1, 1]), n_folds=3, seed=0)
    >>> sorted(folds[:3].tolist()), sorted(folds[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    """
    numbers = row_numbers(X, seed, n_threads=n_threads)
    if clusters is None:
        return _dealt(numbers, groups, n_folds, n_threads)
    n = int(clusters.max()) + 1
    joined = np.zeros(n, dtype=np.uint64)
    np.add.at(joined, clusters, numbers)  # the sum does not depend on the order of the rows
    votes = np.zeros((n, int(groups.max()) + 2), dtype=np.intp)
    np.add.at(votes, (clusters, groups + 1), 1)
    return _dealt(_mix(joined), votes.argmax(axis=1) - 1, n_folds, n_threads)[clusters]


def _dealt(numbers: npt.NDArray[np.uint64], groups: IntArray, n_folds: int, n_threads: int) -> IntArray:
    """Deal within each group in the order of the numbers; runs of equal first bits are sorted in parallel."""
    n, slots = len(groups), int(groups.max(initial=-1)) + 2
    bits = min((n // (slots * ROWS)).bit_length(), 8)
    runs = np.empty(n, dtype=np.uint16 if slots << bits <= 1 << 16 else np.int64)  # 16 bits: sorted by radix

    def code(rows: slice) -> None:
        first_bits = numbers[rows] >> _U64(1) >> _U64(63 - bits)
        runs[rows] = (groups[rows] + 1 << bits) | first_bits.astype(np.int64)

    map_blocks(code, n, ROWS, n_threads)
    order = np.argsort(runs, kind="stable")
    runs = runs[order]
    edges = np.append(np.flatnonzero(changes(runs)), n)
    starts = edges[np.searchsorted(runs[edges[:-1]] >> bits, runs[edges[:-1]] >> bits)]  # of the group of each run
    folds = np.empty(n, dtype=np.intp)

    def deal(run: int) -> None:
        rows = order[edges[run] : edges[run + 1]]
        turn = np.arange(edges[run], edges[run + 1]) - starts[run]
        folds[rows[np.argsort(numbers[rows], kind="stable")]] = turn % n_folds

    map_each(deal, range(len(starts)), n_threads if n > ROWS else 1)
    return folds


def row_numbers(X: FloatArray, seed: int, *, n_threads: int = 1) -> npt.NDArray[np.uint64]:
    """One well-mixed 64-bit number per row, from its bits and the seed (the splitmix64 finaliser per column)."""
    numbers = np.full(len(X), seed, dtype=np.uint64)

    def work(rows: slice) -> None:
        for column in (X[rows] + 0.0).T:  # + 0.0 turns -0.0 into 0.0: equal values get equal bits
            numbers[rows] = _mix(numbers[rows] ^ np.ascontiguousarray(column).view(np.uint64))

    map_blocks(work, len(X), ROWS, n_threads)
    return numbers


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = x + _U64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return x ^ (x >> _U64(31))
