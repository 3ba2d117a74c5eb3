"""Compiled passes over rows and their lists of neighbours: places of known rows, densities, local outlier factors."""

from typing import Any

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, FloatArray, IntArray

GUARD = 1e-10  # scikit-learn's: keeps the density finite where all neighbours are duplicates


@compiled()
def find_rows(points: FloatArray, locations: FloatArray) -> Any:
    """Index of each point among the distinct ``locations``, largest first; -1 where it is not one of them."""
    found = np.empty(len(points), dtype=np.intp)
    d = points.shape[1]
    for i in range(len(points)):
        found[i] = -1
        low, high = 0, len(locations)
        while low < high:
            middle = (low + high) // 2
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
    return found


@compiled(bare=True)
def fill_slots(
    distances: FloatArray, neighbours: AnyArray, home: AnyArray, copies: IntArray, counts: IntArray,
    slot_distance: FloatArray, slot_neighbour: AnyArray,
) -> None:  # fmt: skip
    """Expand lists of locations to lists of rows.

    Slots of row i: first its ``copies[i]`` own copies, at distance 0 and location ``home[i]``, then the other
    listed locations, each as often as it counts rows, until all slots are full. Slots that stay empty because
    the list is too short have the location -1.
    """
    n_slots = slot_distance.shape[1]
    for i in range(len(slot_distance)):
        filled = min(copies[i], n_slots)
        slot_distance[i, :filled] = 0.0
        slot_neighbour[i, :filled] = home[i]
        for j in range(distances.shape[1]):
            if filled == n_slots:
                break
            near = neighbours[i, j]
            copies_there = 0 if near == home[i] else counts[near]
            slot_distance[i, filled], slot_neighbour[i, filled] = distances[i, j], near
            filled += min(copies_there, 1)  # no branch: whether a fold has emptied a location cannot be foreseen
            for _ in range(1, min(copies_there, n_slots - filled + 1)):
                slot_distance[i, filled], slot_neighbour[i, filled] = distances[i, j], near
                filled += 1
        slot_neighbour[i, filled:] = -1


@compiled()
def slot_distances(
    distances: FloatArray, neighbours: AnyArray, home: AnyArray, copies: IntArray, counts: IntArray,
    ks: IntArray, out: FloatArray,
) -> None:  # fmt: skip
    """Write the distances that `fill_slots` puts into the slots ``ks - 1``, rising; NaN where a list is too short."""
    for i in range(len(out)):
        filled, place = copies[i], 0
        while place < len(ks) and ks[place] <= filled:
            out[i, place] = 0.0
            place += 1
        for j in range(distances.shape[1]):
            if place == len(ks):
                break
            near = neighbours[i, j]
            filled += 0 if near == home[i] else counts[near]
            while place < len(ks) and ks[place] <= filled:
                out[i, place] = distances[i, j]
                place += 1
        out[i, place:] = np.nan


@compiled()
def densities(distance: FloatArray, neighbour: AnyArray, k_distance: FloatArray, ks: IntArray) -> Any:
    """Local reachability density for each k: ``1 / (mean_o max(distance(i, o), k_distance(o)) + guard)``."""
    out = np.empty((len(distance), len(ks)))
    for i in range(len(distance)):
        for c in range(len(ks)):
            total = 0.0
            for j in range(ks[c]):
                total += max(distance[i, j], k_distance[neighbour[i, j], c])
            out[i, c] = 1.0 / (total / ks[c] + GUARD)
    return out


@compiled()
def factors(neighbour: AnyArray, own_density: FloatArray, density: FloatArray, ks: IntArray) -> Any:
    """Local outlier factor for each k: the mean density of the neighbours over the row's own."""
    out = np.empty((len(neighbour), len(ks)))
    for i in range(len(neighbour)):
        for c in range(len(ks)):
            total = 0.0
            for j in range(ks[c]):
                total += density[neighbour[i, j], c]
            out[i, c] = total / ks[c] / own_density[i, c]
    return out
