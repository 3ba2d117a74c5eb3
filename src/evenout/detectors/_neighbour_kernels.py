"""Compiled passes over blocks of points: exact search for the nearest, densities, local outlier factors.

Every squared distance is one sum over the features in their order, in float64 and without fused operations.
Rounding is monotone, so the same sum over the gaps to a box never exceeds that of a point inside the box:
a box is left out only if all of its points are too far away, however close the call, and no search can
change a tie.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, FloatArray, IntArray

if TYPE_CHECKING:
    from evenout.detectors.search import Blocks

# sqrt can round unequal squares to the same distance; with this slack a limit on squares keeps all of them.
SLACK = 1.0 + 4.0 * np.finfo(np.float64).eps
GUARD = 1e-10  # scikit-learn's: keeps the density finite where all neighbours are duplicates


@compiled()
def squared_distances(point: FloatArray, values: FloatArray, out: FloatArray) -> None:
    """Write ``out[c] = sum_f (point[f] - values[f, c])^2``, four features a pass: fewer loads of ``out``."""
    d, width = values.shape
    out[:] = 0.0
    for f in range(0, d - 3, 4):
        p0, p1, p2, p3 = point[f], point[f + 1], point[f + 2], point[f + 3]
        for c in range(width):
            total = out[c] + (p0 - values[f, c]) * (p0 - values[f, c])
            total += (p1 - values[f + 1, c]) * (p1 - values[f + 1, c])
            total += (p2 - values[f + 2, c]) * (p2 - values[f + 2, c])
            out[c] = total + (p3 - values[f + 3, c]) * (p3 - values[f + 3, c])
    for f in range(d - d % 4, d):
        for c in range(width):
            out[c] += (point[f] - values[f, c]) * (point[f] - values[f, c])


@compiled()
def points_to_box(values: FloatArray, low: FloatArray, high: FloatArray, out: FloatArray) -> None:
    """Write the squared distance of every point (a column of ``values``) from the box ``[low, high]``."""
    d, width = values.shape
    out[:] = 0.0
    for f in range(d):
        for c in range(width):
            gap = max(max(low[f] - values[f, c], values[f, c] - high[f]), 0.0)
            out[c] += gap * gap


@compiled()
def box_to_boxes(low: FloatArray, high: FloatArray, lows: FloatArray, highs: FloatArray) -> Any:
    """Squared distance of one box from each of many, the rows of ``lows`` and ``highs``."""
    out = np.zeros(len(lows))
    for b in range(len(lows)):
        for f in range(len(low)):
            gap = max(max(lows[b, f] - high[f], low[f] - highs[b, f]), 0.0)
            out[b] += gap * gap
    return out


@compiled()
def insert(distances: FloatArray, ids: AnyArray, distance: float, identity: int) -> None:
    """Insert into a list sorted by (distance, id); its last entry, which must be a later one, drops out."""
    place = len(distances) - 1
    while place > 0 and (
        distances[place - 1] > distance or (distances[place - 1] == distance and ids[place - 1] > identity)
    ):
        distances[place] = distances[place - 1]
        ids[place] = ids[place - 1]
        place -= 1
    distances[place] = distance
    ids[place] = identity


@compiled()
def visit(
    queries: "Blocks", a: int, data: "Blocks", b: int, without_self: bool,
    limit: FloatArray, work: FloatArray, distances: FloatArray, neighbours: AnyArray,
) -> None:  # fmt: skip
    """Offer the points of data block ``b`` to the lists of all queries in block ``a``.

    ``limit[j]`` is the largest squared distance that can still enter the list of query j.
    """
    near, squares = work[0], work[1]
    points_to_box(queries.values[a], data.low[b], data.high[b], near)
    for j in range(queries.size[a]):
        if near[j] > limit[j]:
            continue
        squared_distances(queries.values[a, :, j], data.values[b], squares)
        allowed, hits = limit[j], 0
        for c in range(len(squares)):  # most blocks hold no hit: count without a branch first
            hits += squares[c] <= allowed
        if hits == 0:
            continue
        row = queries.ids[a, j]
        nearest, ids = distances[row], neighbours[row]
        for c in range(data.size[b]):
            if squares[c] > allowed or (without_self and data.ids[b, c] == row):
                continue
            distance, identity = np.sqrt(squares[c]), data.ids[b, c]
            if distance < nearest[-1] or (distance == nearest[-1] and identity < ids[-1]):
                insert(nearest, ids, distance, identity)
                allowed = nearest[-1] * nearest[-1] * SLACK
        limit[j] = allowed


@compiled()
def largest(values: FloatArray, stop: int) -> Any:
    """The largest of the first ``stop`` values; plain loops, here and below, take a fraction of the time to compile."""
    found = values[0]
    for j in range(1, stop):
        found = max(found, values[j])
    return found


@compiled()
def select(values: FloatArray, limit: float) -> Any:
    """Places and values of those that are at most ``limit``, in their order."""
    count = 0
    for b in range(len(values)):
        count += values[b] <= limit
    places, chosen = np.empty(count, dtype=np.intp), np.empty(count)
    count = 0
    for b in range(len(values)):
        if values[b] <= limit:
            places[count], chosen[count] = b, values[b]
            count += 1
    return places, chosen


@compiled()
def search_blocks(
    queries: "Blocks", start: int, stop: int, data: "Blocks", without_self: bool,
    distances: FloatArray, neighbours: AnyArray,
) -> None:  # fmt: skip
    """Fill the lists of nearest points for the query blocks ``start..stop``.

    The nearest block sets the first limits; those within them follow, nearest first, until none can help.
    """
    width = queries.values.shape[2]
    limit, work = np.empty(width), np.empty((2, width))
    for a in range(start, stop):
        limit[:] = np.inf
        bounds = box_to_boxes(queries.low[a], queries.high[a], data.low, data.high)
        first = np.argmin(bounds)
        visit(queries, a, data, first, without_self, limit, work, distances, neighbours)
        rest, within = select(bounds, largest(limit, queries.size[a]))
        for place in np.argsort(within):
            b = rest[place]
            if bounds[b] > largest(limit, queries.size[a]):
                break
            if b != first:
                visit(queries, a, data, b, without_self, limit, work, distances, neighbours)


@compiled()
def find_rows(points: FloatArray, locations: FloatArray) -> Any:
    """Index of each point among the distinct ``locations``, largest first; -1 where it is not one of them."""
    found = np.full(len(points), -1, dtype=np.intp)
    d = points.shape[1]
    for i in range(len(points)):
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


@compiled()
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
            if neighbours[i, j] == home[i]:
                continue
            stop = min(filled + counts[neighbours[i, j]], n_slots)
            slot_distance[i, filled:stop] = distances[i, j]
            slot_neighbour[i, filled:stop] = neighbours[i, j]
            filled = stop
        slot_neighbour[i, filled:] = -1


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
