"""Where values stand among known ones, and the order of rows by their content."""

import numpy as np
import numpy.typing as npt

from evenout.core.types import AnyArray, BoolArray, FloatArray, IntArray


def counts_around(known: FloatArray, values: FloatArray) -> tuple[IntArray, IntArray]:
    """How many known values are below each value, and how many are at most that, column by column.

    Parameters
    ----------
    known : array of shape (n, k)
        Each column sorted.
    values : array of shape (m, k)

    Returns
    -------
    two arrays of int, shape (m, k)

    Examples
    --------
    >>> counts_around(np.array([[1.0], [2.0], [2.0]]), np.array([[2.0], [9.0]]))
    (array([[1], [3]]), array([[3], [3]]))
    """
    from evenout.core._order_kernels import count_around

    below, upto = np.empty(values.shape, dtype=np.intp), np.empty(values.shape, dtype=np.intp)
    count_around(known, np.ascontiguousarray(values), below, upto)
    return below, upto


def row_order(X: FloatArray) -> tuple[IntArray, BoolArray]:
    """Order of rows (n, d), n >= 1, by their values, first column first, and which of them differ from the one before.

    The order is that of `np.lexsort`, but for equal rows, which come in any order. Only rows that are tied so far are
    sorted by a further column: where the first one has no ties, it is the only one that is sorted.

    Examples
    --------
    >>> row_order(np.array([[2.0, 1.0], [1.0, 5.0], [2.0, 0.0]]))
    (array([1, 2, 0]), array([ True,  True,  True]))
    """
    order = np.argsort(X[:, 0])
    new = changes(X[order, 0])
    for column in X.T[1:]:
        at = _unsettled(X, order, new)
        if not len(at):
            break
        rows, run = order[at], np.cumsum(new, dtype=np.intp)[at]
        inside = np.lexsort((column[rows], _short(run)))
        order[at] = rows[inside]
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


def _unsettled(X: FloatArray, order: IntArray, new: BoolArray) -> IntArray:
    """Places of the rows that are tied so far with one that they do not equal."""
    tied = np.flatnonzero(~new)
    unlike = tied[(X[order[tied]] != X[order[tied - 1]]).any(axis=1)]
    run = np.cumsum(new)
    unsettled = np.zeros(len(new) + 1, dtype=bool)
    unsettled[run[unlike]] = True
    return np.flatnonzero(unsettled[run])


def _short(run: IntArray) -> npt.NDArray[np.integer]:
    """The same numbers, rising in steps of 0 or 1, in 16 bits where they fit: those are sorted without comparisons."""
    run = np.cumsum(np.diff(run, prepend=run[0]) > 0)
    return run.astype(np.uint16) if run[-1] < 1 << 16 else run
