"""The compiled search of `evenout.detectors._search_kernels` for few rows: no block of queries is made of them.

What is found is the same, bit for bit: distances are the same sums, and the rule for ties knows no order of visits.
"""

from typing import TYPE_CHECKING

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, FloatArray
from evenout.detectors._search_kernels import ALL, any_within, offer, squared_distances

if TYPE_CHECKING:
    from evenout.detectors.few import Few


@compiled(bare=True)
def row_to_boxes(point: FloatArray, lows: FloatArray, highs: FloatArray, out: FloatArray) -> None:
    """Write the squared distance of a point from each box, a column of ``lows`` and ``highs``."""
    out[:] = 0.0
    for f in range(len(point)):
        x = point[f]
        for b in range(len(out)):
            gap = max(max(lows[f, b] - x, x - highs[f, b]), 0.0)
            out[b] += gap * gap


@compiled(bare=True)
def offer_block(
    point: FloatArray, data: "Few", b: int, limit: float, squares: FloatArray, distances: FloatArray, ids: AnyArray
) -> float:
    """Offer the points of a block to one row's list; the largest squared distance that can still enter it."""
    squared_distances(point, data.values[b], squares)
    if any_within(squares, limit):
        limit = offer(squares, ALL, data.ids[b], -2, limit, distances, ids)
    return limit


@compiled(bare=True)
def sink(heap: AnyArray, size: int, place: int, bounds: FloatArray) -> None:
    """Let a box sink to its place in a heap whose nearest box is on top; sorting takes seconds to compile."""
    moved = heap[place]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and bounds[heap[child + 1]] < bounds[heap[child]]:
            child += 1
        if bounds[heap[child]] >= bounds[moved]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved


@compiled()
def search_rows(X: FloatArray, data: "Few", distances: FloatArray, neighbours: AnyArray) -> None:
    """Fill the lists of nearest points of each row: the nearest box first, then those within its limit by distance."""
    n_blocks = len(data.values)
    bounds, squares, heap = np.empty(n_blocks), np.empty(data.values.shape[2]), np.empty(n_blocks, dtype=np.intp)
    for i in range(len(X)):
        row_to_boxes(X[i], data.lows, data.highs, bounds)
        first = 0
        for b in range(1, n_blocks):
            first = b if bounds[b] < bounds[first] else first
        limit = offer_block(X[i], data, first, np.inf, squares, distances[i], neighbours[i])
        left = 0
        for b in range(n_blocks):
            if bounds[b] <= limit and b != first:
                heap[left] = b
                left += 1
        for place in range(left // 2 - 1, -1, -1):
            sink(heap, left, place, bounds)
        while left > 0 and bounds[heap[0]] <= limit:
            limit = offer_block(X[i], data, heap[0], limit, squares, distances[i], neighbours[i])
            left -= 1
            heap[0] = heap[left]
            sink(heap, left, 0, bounds)
