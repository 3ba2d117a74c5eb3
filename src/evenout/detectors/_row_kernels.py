"""The compiled search of `evenout.detectors._search_kernels` row by row: no block of queries is made of them.

What is found is the same, bit for bit: distances are the same sums, and the rule for ties knows no order of visits.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, FloatArray
from evenout.detectors._product_kernels import bits_within
from evenout.detectors._search_kernels import offer, squared_distances

if TYPE_CHECKING:
    from evenout.detectors.few import Few

ZERO: Any = np.intp(0)  # a plain 0 is a type of its own: what is called with it would be compiled once more


@compiled(bare=True)
def row_to_boxes(point: FloatArray, lows: FloatArray, highs: FloatArray, out: FloatArray) -> None:
    """Write the squared distance of a point from each box, a column of ``lows`` and ``highs``."""
    for b in range(len(out)):
        out[b] = 0.0
    for f in range(len(point)):
        x = point[f]
        for b in range(len(out)):
            below, above = lows[f, b] - x, x - highs[f, b]
            gap = below if below > above else above
            gap = gap if gap > 0.0 else 0.0
            out[b] += gap * gap


@compiled(bare=True)
def sink(heap: AnyArray, size: int, place: int, bounds: FloatArray) -> None:
    """Let a box sink to its place in a heap whose nearest box is on top; sorting takes seconds to compile."""
    moved, child = heap[place], 2 * place + 1
    while child < size:
        if child + 1 < size and bounds[heap[child + 1]] < bounds[heap[child]]:
            child += 1
        if bounds[heap[child]] >= bounds[moved]:
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = moved


@compiled(bare=True)
def search_rows(
    X: FloatArray, start: int, stop: int, data: "Few", without_self: bool, bounds: FloatArray, squares: FloatArray,
    heap: AnyArray, distances: FloatArray, neighbours: AnyArray,
) -> None:  # fmt: skip
    """Fill the lists of nearest points of the rows ``start..stop``; ``bounds``, ``squares`` and ``heap`` are room.

    The nearest box comes first, alone, and sets a limit; then those within it, by their distance.
    """
    for i in range(start, stop):
        row_to_boxes(X[i], data.lows, data.highs, bounds)
        first = 0
        for b in range(1, len(bounds)):
            first = b if bounds[b] < bounds[first] else first
        heap[0], left, limit = first, 1, np.inf
        for _ in range(2):
            while left > 0 and bounds[heap[0]] <= limit:
                b = heap[0]
                squared_distances(X[i], data.values[b], squares)
                mask = bits_within(squares, limit)
                limit = offer(squares, mask, data.ids[b], i if without_self else -2, limit, distances[i], neighbours[i])
                bounds[b] = np.nan  # no number is: it is not visited again
                left -= 1
                heap[0] = heap[left]
                sink(heap, left, ZERO, bounds)
            left = ZERO
            for b in range(len(bounds)):
                if bounds[b] <= limit:
                    heap[left] = b
                    left += 1
            for place in range(left // 2 - 1, -1, -1):
                sink(heap, left, place, bounds)
