"""Compiled search for the nearest points, block by block.

Every squared distance that decides is one sum over the features in their order, in float64 and without fused
operations. Rounding is monotone, so the same sum over the gaps to a box never exceeds that of a point inside the box: a
box is left out only if all of its points are too far away, however close the call. Of the points in the other boxes
only those are left out whose rounded products (`_product_kernels`) prove them too far away. So no search can change a
tie.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, Float32Array, FloatArray
from evenout.detectors._product_kernels import TILE, least, lowest_bit, near_points, round_queries

if TYPE_CHECKING:
    from evenout.detectors.search import Exact, Rounded

# sqrt can round unequal squares to the same distance; with this slack a limit on squares keeps all of them.
SLACK = 1.0 + 4.0 * np.finfo(np.float64).eps
ONE = np.uint64(1)


class Work(NamedTuple):
    """What a search over the blocks keeps of one block of m queries with d features.

    Attributes
    ----------
    values : array, d x m
        Features by query.
    rounded : array of float32, d x m
        The same, rounded for products.
    norms, limit : arrays, m
        Norms of the rounded queries; the largest squared distance that can still enter the list of each.
    lowest : array of float32, m
        What a product must reach to be near, or -inf.
    near, squares : arrays, m
        Distances of the queries from a box, of all points of a block from one query.
    points : array, d x m
        Features by point of a block of data.
    chosen, masks : arrays of integers
        The queries that meet a block by products; the points that may be near some of them.
    """

    values: FloatArray
    rounded: Float32Array
    norms: FloatArray
    limit: FloatArray
    lowest: Float32Array
    near: FloatArray
    squares: FloatArray
    points: FloatArray
    chosen: AnyArray
    masks: AnyArray

    @classmethod
    def empty(cls, m: int, d: int) -> "Work":
        """Nothing yet. Made by the interpreter: the compiler would take a second longer for these lines."""
        tables, rows = (np.empty((d, m)) for _ in range(2)), (np.empty(m) for _ in range(4))
        values, points = tables
        norms, limit, near, squares = rows
        rounded, lowest = np.empty((d, m), np.float32), np.empty(m, np.float32)
        chosen, masks = np.empty(m + TILE, np.intp), np.empty(TILE, np.uint64)
        return cls(values, rounded, norms, limit, lowest, near, squares, points, chosen, masks)


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
def turn(points: FloatArray, out: FloatArray) -> None:
    """Write the transpose of ``points``."""
    for j in range(len(points)):
        for f in range(points.shape[1]):
            out[f, j] = points[j, f]


@compiled()
def points_to_box(values: FloatArray, low: FloatArray, high: FloatArray, out: FloatArray) -> None:
    """Write the squared distance of every point (a column of ``values``) from the box ``[low, high]``."""
    d, width = values.shape
    out[:] = 0.0
    for f in range(0, d - 1, 2):
        l0, h0, l1, h1 = low[f], high[f], low[f + 1], high[f + 1]
        for c in range(width):
            gap = max(max(l0 - values[f, c], values[f, c] - h0), 0.0)
            next_gap = max(max(l1 - values[f + 1, c], values[f + 1, c] - h1), 0.0)
            out[c] = out[c] + gap * gap + next_gap * next_gap
    if d % 2:
        for c in range(width):
            gap = max(max(low[d - 1] - values[d - 1, c], values[d - 1, c] - high[d - 1]), 0.0)
            out[c] += gap * gap


@compiled()
def box_to_boxes(low: FloatArray, high: FloatArray, lows: FloatArray, highs: FloatArray) -> Any:
    """Squared distances of one box from each of many, the rows of ``lows`` and ``highs``; the same of their middles."""
    gaps, middles = np.zeros(len(lows)), np.zeros(len(lows))
    for b in range(len(lows)):
        for f in range(len(low)):
            gap = max(max(lows[b, f] - high[f], low[f] - highs[b, f]), 0.0)
            gaps[b] += gap * gap
            middle = 0.5 * (lows[b, f] - low[f]) + 0.5 * (highs[b, f] - high[f])
            middles[b] += middle * middle
    return gaps, middles


@compiled()
def insert(distance: float, identity: int, limit: float, distances: FloatArray, ids: AnyArray) -> Any:
    """Insert into a list sorted by (distance, id), whose last entry drops out, unless it comes after that one.

    Returns the new limit: the largest squared distance that can still enter the list.
    """
    place = len(distances) - 1
    if not (distance < distances[place] or (distance == distances[place] and identity < ids[place])):
        return limit
    while place > 0 and (
        distances[place - 1] > distance or (distances[place - 1] == distance and ids[place - 1] > identity)
    ):
        distances[place] = distances[place - 1]
        ids[place] = ids[place - 1]
        place -= 1
    distances[place] = distance
    ids[place] = identity
    return distances[-1] * distances[-1] * SLACK


@compiled()
def offer_all(
    query: FloatArray, points: FloatArray, names: AnyArray, itself: int,
    limit: float, squares: FloatArray, distances: FloatArray, ids: AnyArray,
) -> Any:  # fmt: skip
    """Offer all points, the columns of ``points``, to the list of one query; the new limit.

    The point called ``itself`` does not enter it.
    """
    squared_distances(query, points, squares)
    hits = 0
    for c in range(len(squares)):  # most blocks hold no hit: count without a branch first
        hits += squares[c] <= limit
    if hits > 0:
        for c in range(len(squares)):
            if squares[c] <= limit and names[c] != itself:
                limit = insert(np.sqrt(squares[c]), names[c], limit, distances, ids)
    return limit


@compiled()
def offer_some(
    query: FloatArray, points: FloatArray, names: AnyArray, itself: int,
    limit: float, mask: Any, squares: FloatArray, distances: FloatArray, ids: AnyArray,
) -> Any:  # fmt: skip
    """Offer the rows of ``points`` that are bits of ``mask``; otherwise as `offer_all`."""
    rest = mask
    while rest:  # all sums first: none waits for another, or for a list
        c = lowest_bit(rest)
        rest &= rest - ONE
        total = 0.0
        for f in range(len(query)):
            total += (query[f] - points[c, f]) * (query[f] - points[c, f])
        squares[c] = total
    while mask:
        c = lowest_bit(mask)
        mask &= mask - ONE
        if squares[c] <= limit and names[c] != itself:
            limit = insert(np.sqrt(squares[c]), names[c], limit, distances, ids)
    return limit


@compiled()
def visit(
    queries: "Exact", a: int, data: "Exact", rounded: "Rounded", b: int, without_self: bool,
    work: Work, distances: FloatArray, neighbours: AnyArray,
) -> None:  # fmt: skip
    """Offer the points of data block ``b`` to the lists of all queries in block ``a``.

    Queries whose products say nothing meet all points; the others, ``TILE`` at a time, those that may be near.
    """
    limit, chosen = work.limit, work.chosen
    points_to_box(work.values, data.low[b], data.high[b], work.near)
    least(work.norms, rounded.reach[b], limit, len(work.values), work.lowest)
    count, copied = 0, False
    for j in range(queries.size[a]):
        if work.near[j] > limit[j]:
            continue
        if work.lowest[j] > -np.inf:
            chosen[count] = j
            count += 1
            continue
        if not copied:
            turn(data.points[b], work.points)
            copied = True
        row = queries.ids[a, j]
        limit[j] = offer_all(
            queries.points[a, j], work.points, data.ids[b], row if without_self else -2,
            limit[j], work.squares, distances[row], neighbours[row],
        )  # fmt: skip
    for i in range(count, count + TILE):
        chosen[i] = 0  # a tile is always full
    for start in range(0, count, TILE):
        near_points(
            work.rounded, chosen[start : start + TILE], rounded.values[b], rounded.offsets[b], work.lowest, work.masks
        )
        for i in range(min(TILE, count - start)):
            if work.masks[i]:
                j = chosen[start + i]
                row = queries.ids[a, j]
                limit[j] = offer_some(
                    queries.points[a, j], data.points[b], data.ids[b], row if without_self else -2,
                    limit[j], work.masks[i], work.squares, distances[row], neighbours[row],
                )  # fmt: skip


@compiled()
def largest(values: FloatArray, stop: int) -> Any:
    """The largest of the first ``stop`` values; plain loops, here and below, take a fraction of the time to compile."""
    found = values[0]
    for j in range(1, stop):
        found = max(found, values[j])
    return found


@compiled()
def within(values: FloatArray, limit: float, keys: FloatArray) -> Any:
    """Places of the values that are at most ``limit``, sorted by their keys.

    A shell sort with Knuth's steps: numpy's sorting, compiled, would add a second to the first call.
    """
    count, step = 0, 1
    places, sorted_keys = np.empty(len(values), np.intp), np.empty(len(values))
    for b in range(len(values)):
        if values[b] <= limit:
            places[count], sorted_keys[count] = b, keys[b]
            count += 1
    while step < count // 3:
        step = 3 * step + 1
    while step > 0:
        for i in range(step, count):
            place, key, j = places[i], sorted_keys[i], i
            while j >= step and sorted_keys[j - step] > key:
                places[j], sorted_keys[j] = places[j - step], sorted_keys[j - step]
                j -= step
            places[j], sorted_keys[j] = place, key
        step //= 3
    return places[:count]


@compiled()
def search_blocks(
    queries: "Exact", start: int, stop: int, data: "Exact", rounded: "Rounded", without_self: bool,
    work: Work, distances: FloatArray, neighbours: AnyArray,
) -> None:  # fmt: skip
    """Fill the lists of nearest points for the query blocks ``start..stop``.

    The block with the nearest middle sets the first limits; those within them follow in the order of their middles,
    as long as they can help.
    """
    for a in range(start, stop):
        work.limit[:] = np.inf
        turn(queries.points[a], work.values)
        round_queries(work.values, rounded.centre, work.rounded, work.norms)
        gaps, middles = box_to_boxes(queries.low[a], queries.high[a], data.low, data.high)
        blocks = within(middles, middles[np.argmin(middles)], middles)
        for _ in range(2):
            for b in blocks:
                if gaps[b] <= largest(work.limit, queries.size[a]):
                    visit(queries, a, data, rounded, b, without_self, work, distances, neighbours)
                    gaps[b] = np.nan  # no number is: it is not visited again
            blocks = within(gaps, largest(work.limit, queries.size[a]), middles)
