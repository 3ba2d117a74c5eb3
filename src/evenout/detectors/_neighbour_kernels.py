"""Compiled passes over rows and their lists of neighbours: known rows, densities, local outlier factors."""

import numpy as np

from evenout.core.parallel import compiled
from evenout.core.types import AnyArray, FloatArray, IntArray


def find_rows(points: FloatArray, locations: FloatArray) -> IntArray:
    """Index of each point among the distinct ``locations``, largest first; -1 where it is not one of them."""
    found = np.empty(len(points), dtype=np.intp)
    _find_rows(points, locations, found)
    return found


@compiled(bare=True)
def _find_rows(points: FloatArray, locations: FloatArray, found: IntArray) -> None:
    m, d = points.shape
    for i in range(m):
        found[i] = -1
        low, high = 0, len(locations)
        while low < high:
            middle = (low + high) >> 1
            f = 0
            while f < d and points[i, f] == locations[middle, f]:
                f += 1
            if f == d:
                found[i] = middle
                break
            if points[i, f] > locations[middle, f]:
                high = middle
            else:
                low = middle + 1


@compiled(bare=True)
def fill_slots(
    distances: FloatArray, neighbours: AnyArray, home: AnyArray, counts: IntArray, slot_distance: FloatArray,
    slot_neighbour: AnyArray,
) -> None:  # fmt: skip
    """Expand lists of locations to lists of rows.

    Slots of row i: first the other rows at its location ``home[i]``, at distance 0, unless that is -1; then the other
    listed locations, each as often as it counts rows, until all slots are full. Slots that stay empty because the list
    is too short have the location -1.
    """
    m, listed = distances.shape
    _, n_slots = slot_distance.shape
    for i in range(m):
        copies, filled = counts[home[i]] - 1 if home[i] >= 0 else 0, 0
        while filled < copies and filled < n_slots:
            slot_distance[i, filled], slot_neighbour[i, filled] = 0.0, home[i]
            filled += 1
        for j in range(listed):
            if filled == n_slots:
                break
            distance, near = distances[i, j], neighbours[i, j]
            there = 0 if near == home[i] else counts[near]
            slot_distance[i, filled], slot_neighbour[i, filled] = distance, near
            filled += there > 0  # no branch: whether a fold has emptied a location cannot be foreseen
            while there > 1 and filled < n_slots:
                slot_distance[i, filled], slot_neighbour[i, filled] = distance, near
                filled += 1
                there -= 1
        for empty in range(filled, n_slots):
            slot_neighbour[i, empty] = -1


def means(neighbour: AnyArray, value: FloatArray, ks: IntArray, distance: FloatArray | None = None) -> FloatArray:
    """Mean of ``max(distance(i, o), value(o))`` over the k nearest rows o, for each k; the distance is 0 if not given.

    No value is below 0.
    """
    out = np.empty((len(neighbour), len(ks)))
    _add_up(np.zeros(neighbour.shape) if distance is None else distance, neighbour, value, ks, out)
    return out


@compiled(bare=True)
def _add_up(distance: FloatArray, neighbour: AnyArray, value: FloatArray, ks: IntArray, out: FloatArray) -> None:
    for i in range(len(distance)):
        for c in range(len(ks)):
            total = 0.0
            for j in range(ks[c]):
                near, there = distance[i, j], value[neighbour[i, j], c]
                total += there if there > near else near
            out[i, c] = total / ks[c]
