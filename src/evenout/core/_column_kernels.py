"""Kernels over columns of scores: sums by cell, ranks, scaling."""

from evenout.core.parallel import compiled
from evenout.core.types import BoolArray, FloatArray, IntArray


@compiled(fastmath=True, bare=True)
def add_products(
    S: FloatArray, t: FloatArray, rows: IntArray, place: IntArray, share: FloatArray, z: FloatArray, total: FloatArray
) -> None:
    """Add ``share z z'`` of each entry, with ``z = (1, s, t)`` of its row, to ``total[place]``; -1 does not count.

    The sums are symmetric, so only the lower triangle is filled.
    """
    k = S.shape[1]
    z[0] = 1.0
    for e in range(len(rows)):
        p = place[e]
        if p < 0:
            continue
        for j in range(k):
            z[j + 1] = S[rows[e], j]
        z[k + 1] = t[rows[e]]
        for a in range(k + 2):
            factor = share[e] * z[a]
            for b in range(a + 1):
                total[p, a, b] += factor * z[b]


@compiled(bare=True)
def count_around(known: FloatArray, values: FloatArray, below: IntArray, upto: IntArray) -> None:
    """Count the sorted ``known[:, j]`` that are below ``values[i, j]``, and those up to it.

    The counts are those of `np.searchsorted`, left and right, for all columns in one call: much faster for one row.
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


@compiled()
def add_extremes(raw: FloatArray, kept: BoolArray, low: FloatArray, high: FloatArray) -> None:
    """Lower ``low`` and raise ``high`` to the extremes of the kept rows."""
    for i in range(len(raw)):
        if kept[i]:
            for j in range(len(low)):
                low[j] = min(low[j], raw[i, j])
                high[j] = max(high[j], raw[i, j])


@compiled()
def add_shares(raw: FloatArray, kept: BoolArray, low: FloatArray, span: FloatArray, total: FloatArray) -> None:
    """Add ``(raw - low) / span`` of the kept rows, in their order."""
    for i in range(len(raw)):
        if kept[i]:
            for j in range(len(low)):
                total[j] += (raw[i, j] - low[j]) / span[j]


@compiled()
def add_squares(
    raw: FloatArray, kept: BoolArray, low: FloatArray, span: FloatArray, mean: FloatArray, total: FloatArray
) -> None:
    """Add ``((raw - low) / span - mean)^2`` of the kept rows, in their order."""
    for i in range(len(raw)):
        if kept[i]:
            for j in range(len(low)):
                share = (raw[i, j] - low[j]) / span[j] - mean[j]
                total[j] += share * share
