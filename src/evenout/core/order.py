"""Where values stand among known ones."""

import numpy as np

from evenout.core.types import FloatArray, IntArray


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
