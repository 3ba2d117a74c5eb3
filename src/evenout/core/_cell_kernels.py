"""Compiled sums of products of augmented rows: `evenout.core.summing` for many rows."""

from evenout.core.compiled import compiled
from evenout.core.types import FloatArray, IntArray


@compiled(fastmath=True, bare=True)
def add_products(
    S: FloatArray, t: FloatArray, rows: IntArray, place: IntArray, share: FloatArray, z: FloatArray, total: FloatArray
) -> None:
    """Add ``share z z'`` of each entry, with ``z = (1, s, t)`` of its row, to ``total[place]``; to none at place -1.

    That is symmetric, so above the diagonal ``total`` stays as it is.
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
