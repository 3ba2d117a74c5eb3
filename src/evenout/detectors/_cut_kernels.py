"""Compiled halving of points into blocks that lie close together; see `evenout.detectors.search`."""

from typing import Any

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import FloatArray, IntArray


@compiled()
def widest_feature(points: FloatArray, rows: IntArray) -> Any:
    """The feature in which some of the points have the widest range, the first of equal ones."""
    d = points.shape[1]
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    for row in rows:
        for f in range(d):
            low[f] = min(low[f], points[row, f])
            high[f] = max(high[f], points[row, f])
    widest = 0
    for f in range(1, d):
        widest = f if high[f] - low[f] > high[widest] - low[widest] else widest
    return widest


@compiled()
def select(values: FloatArray, rows: IntArray, place: int) -> None:
    """Let no value before ``place`` be larger, and none behind it smaller, than the one there; rows move with them."""
    first, last = 0, len(values) - 1
    while first < last:
        a, b, c = values[first], values[(first + last) // 2], values[last]
        pivot = max(min(a, b), min(max(a, b), c))  # the middle one of three
        i, j = first, last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if place <= j:
            last = j
        elif place >= i:
            first = i
        else:
            return


@compiled()
def halve_to_blocks(points: FloatArray, rows: IntArray, block: int) -> None:
    """Order ``rows`` of the points so that each run of ``block`` of them lies close together."""
    starts, stops, values = np.zeros(64, np.intp), np.zeros(64, np.intp), np.empty(len(rows))
    stops[0], waiting = len(rows), 1
    while waiting > 0:
        waiting -= 1
        start, stop = starts[waiting], stops[waiting]
        if stop - start <= block:
            continue
        left = ((stop - start + block - 1) // block) // 2 * block
        part, found = rows[start:stop], values[start:stop]
        widest = widest_feature(points, part)
        for i in range(len(part)):
            found[i] = points[part[i], widest]
        select(found, part, left)
        starts[waiting], stops[waiting] = start, start + left
        starts[waiting + 1], stops[waiting + 1] = start + left, stop
        waiting += 2
