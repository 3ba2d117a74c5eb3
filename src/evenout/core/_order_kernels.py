"""Compiled search in sorted columns: where values stand among those that are known."""

from evenout.core.compiled import compiled
from evenout.core.types import FloatArray, IntArray


@compiled(bare=True)
def count_around(known: FloatArray, values: FloatArray, below: IntArray, upto: IntArray) -> None:
    """Write how many of the sorted ``known[:, j]`` are below ``values[i, j]``, and how many are at most that.

    What `np.searchsorted` finds on the left and on the right side, for all columns in one call: that is what counts
    where one row is asked for.
    """
    n, k = known.shape
    for j in range(k):
        for i in range(len(values)):
            value = values[i, j]
            low, high = 0, n
            while low < high:
                middle = (low + high) >> 1
                if known[middle, j] < value:
                    low = middle + 1
                else:
                    high = middle
            below[i, j] = low
            high = n
            while low < high:
                middle = (low + high) >> 1
                if known[middle, j] <= value:
                    low = middle + 1
                else:
                    high = middle
            upto[i, j] = low
