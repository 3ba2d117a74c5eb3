"""Kernels of the neighbour search.

Points are taken relative to a centre c and rounded: x' is x - c in float32. With a = |q'|, the norm of a query, ::

    q' . x' - |x'|^2 / 2  =  (a^2 - |q' - x'|^2) / 2

is the larger the nearer x is, and costs one multiplication and one addition per feature, in float32. For a point within
the distance r of the query, in the float64 arithmetic of the exact search, the computed number is never below `least`.
Let R be the largest |x'| of the block, d at most `MOST_FEATURES`, and u = 2^-24 half the spacing of float32 at 1.

1. Rounding x - c to float64 and then to float32 moves a coordinate by less than 2 u |x'_f|. The same c is taken from
   both points, and drops out whatever its own error. So ``|q' - x'| <= |q - x| + 2 u (a + R)``.
2. A float64 sum of d squares is off by a factor within 1 +- 2^-40, so ``|q - x| <= r (1 + 2^-40)``. `ROOM` is more, for
   the slack of limits and the rounding of `least` itself.
3. The float32 sum of d products and the offset -|x'|^2 / 2, which is rounded once more, is off by at most
   ``(d + 4) u (a R + R^2 / 2)``, in any order, with fused operations or without: a term goes through at most d + 1
   roundings, ``(d + 1) u / (1 - (d + 1) u) <= (d + 2.1) u``, and the sum of the |q'_f x'_f| is at most a R (N. Higham,
   Accuracy and Stability of Numerical Algorithms, section 3.1). That is less than half of ``(d + 8) u (a + R)^2``.
4. Where a number is too small for float32 to hold all its digits, or is set to 0, it is off by 2^-126 at most; `TINY`
   is more than the sum of all such errors. No sum overflows while a + R < `HUGE`.

Where the margin is not small beside r^2 (query and neighbours close together, but far from the centre), or nothing is
known of r yet, `least` is -inf, and the exact distances of the whole block are computed.

Every squared distance that decides is one sum over the features in their order, in float64 and without fused
operations. Rounding is monotone, so the same sum over the gaps to a box never exceeds that of a point inside the box: a
box is left out only if all of its points are too far away, however close the call. Of the points in the other boxes
only those are left out whose rounded products prove them too far away. So no search can change a tie.

Kernels get their work space from outside and loop where numpy would take a whole array: both take a fraction of the
time to compile.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from evenout.core.parallel import compiled
from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray
from evenout.detectors.search import BLOCK, Exact, Rounded

TILE = 4 if "+avx512f" in get_host_cpu_features() else 1  # queries at a time: as many times 64 sums as registers hold
MOST_FEATURES = 4096  # up to here (d + 1)^2 u is at most about 1
UNIT = 2.0**-24
ROOM = 1.0 + 2.0**-38
TINY = 2.0**-110
HUGE = 2.0**62
SHARE = 0.125  # of r^2: a wider margin would let too many points through

_FLOATS, _DOUBLES = ir.VectorType(ir.FloatType(), BLOCK), ir.VectorType(ir.DoubleType(), BLOCK)
_INDEX = ir.IntType(64)
_FIRST = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)


@compiled(bare=True)
def least(norms: FloatArray, reach: float, limits: FloatArray, d: int, out: Float32Array) -> None:
    """Write the least product of a point within each limit, a squared distance; -inf where nothing can be said.

    ``norms`` are the a of the queries and ``reach`` is the R of the block in the proof above.
    """
    for j in range(len(out)):
        both = norms[j] + reach
        margin = (d + 8.0) * UNIT * both * both + TINY
        far = math.sqrt(limits[j]) * ROOM + 2.0 * UNIT * both + TINY
        bound = 0.5 * (norms[j] * norms[j] - far * far - margin)
        bound -= 2.0 * UNIT * abs(bound) + TINY  # so that float32 does not round it up
        proven = (margin <= SHARE * limits[j]) & (both < HUGE) & (d <= MOST_FEATURES)  # an infinite limit gives -inf
        out[j] = bound if proven else -np.inf


@compiled(bare=True)
def round_queries(values: FloatArray, centre: FloatArray, rounded: Float32Array, norms: FloatArray) -> None:
    """Write q' of a block of queries, the columns of ``values``, and their norms."""
    for j in range(len(norms)):
        norms[j] = 0.0
    for f in range(len(centre)):
        for j in range(len(norms)):
            rounded[f, j] = values[f, j] - centre[f]
            norms[j] += np.float64(rounded[f, j]) * np.float64(rounded[f, j])
    for j in range(len(norms)):
        norms[j] = math.sqrt(norms[j])


@intrinsic
def near_points(
    _: Any, queries: Any, chosen: Any, start: Any, values: Any, offsets: Any, lowest: Any, masks: Any
) -> Any:
    """Write the points of a block that may be near each of ``TILE`` queries, as the bits of ``masks``.

    Bit c of ``masks[i]`` is set if ``q' . x' + offset >= lowest[j]`` for the query j = ``chosen[start + i]`` and
    the point c; never for NaN. ``queries`` and ``values`` are d x BLOCK, ``offsets`` and ``lowest`` have BLOCK numbers,
    all float32.

    Written in the compiler's own terms, with vectors of 64 numbers, so that all sums stay in registers while the
    features go by. Plain loops write and read them once every few features, which took several times as long.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, given)
            for kind, given in zip(signature.args, args, strict=True)
            if kind != start
        ]
        query, index, value, offset, low, mask = (array.data for array in arrays)
        n_features = builder.extract_value(arrays[2].shape, 0)
        tile = builder.gep(index, [args[2]])
        rows = [builder.load(builder.gep(tile, [_INDEX(i)])) for i in range(TILE)]
        before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        begin = _vector(builder, offset)
        builder.branch(loop)

        builder.position_at_end(loop)
        f, sums = builder.phi(_INDEX), [builder.phi(_FLOATS) for _ in rows]
        place = builder.mul(f, _INDEX(BLOCK))
        points = _vector(builder, builder.gep(value, [place]))
        totals = []
        for i in range(TILE):  # fused where the processor can
            coordinate = _spread(builder, builder.load(builder.gep(query, [builder.add(place, rows[i])])))
            product = builder.fmul(coordinate, points, flags=("contract",))
            totals.append(builder.fadd(sums[i], product, flags=("contract",)))
        following = builder.add(f, _INDEX(1))
        builder.cbranch(builder.icmp_signed("<", following, n_features), loop, after)
        for variable, first, later in [(f, _INDEX(0), following), *((sums[i], begin, totals[i]) for i in range(TILE))]:
            variable.add_incoming(first, before)
            variable.add_incoming(later, loop)

        builder.position_at_end(after)
        for i in range(TILE):
            bits = _bits(builder, ">=", totals[i], builder.load(builder.gep(low, [rows[i]])))
            builder.store(bits, builder.gep(mask, [_INDEX(i)]))
        return context.get_dummy_value()

    return types.void(queries, chosen, start, values, offsets, lowest, masks), generate


@intrinsic
def bits_within(_: Any, squares: Any, limit: Any) -> Any:
    """Which of BLOCK numbers are at most ``limit``, as bits."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return _bits(builder, "<=", _vector(builder, data, _DOUBLES), args[1])

    return types.uint64(squares, limit), generate


@intrinsic
def lowest_bit(_: Any, mask: Any) -> Any:
    """Index of the lowest bit that is set; there must be one."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.intp(mask), generate


if config.DISABLE_JIT:  # without the compiler

    def near_points(
        queries: Float32Array, chosen: Any, start: int, values: Float32Array, offsets: Float32Array,
        lowest: Float32Array, masks: Any,
    ) -> None:  # fmt: skip
        for i in range(TILE):
            near = queries[:, chosen[start + i]] @ values + offsets >= lowest[chosen[start + i]]
            masks[i] = np.packbits(near, bitorder="little").view(np.uint64)[0]

    def bits_within(squares: FloatArray, limit: float) -> Any:
        return np.packbits(squares <= limit, bitorder="little").view(np.uint64)[0]

    def lowest_bit(mask: Any) -> int:
        return (int(mask) & -int(mask)).bit_length() - 1


def _vector(builder: ir.IRBuilder, pointer: Any, kind: Any = _FLOATS) -> Any:
    """The BLOCK numbers from there on."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def _spread(builder: ir.IRBuilder, number: Any) -> Any:
    """One number BLOCK times."""
    nothing = ir.Constant(ir.VectorType(number.type, BLOCK), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, number, ir.IntType(32)(0)), nothing, _FIRST)


def _bits(builder: ir.IRBuilder, relation: str, numbers: Any, bound: Any) -> Any:
    """Which of BLOCK numbers are in this relation to a bound, never NaN, as the bits of an integer."""
    return builder.bitcast(builder.fcmp_ordered(relation, numbers, _spread(builder, bound)), _INDEX)


# sqrt can round unequal squares to the same distance; with this slack a limit on squares keeps all of them.
SLACK = 1.0 + 4.0 * np.finfo(np.float64).eps
ONE = np.uint64(1)


def work_space(b: int, m: int, d: int) -> tuple[AnyArray, ...]:
    """Allocate the work space of a search over b blocks for one block of m queries with d features.

    Features by query (d x m), also rounded for products; norms of the rounded queries, and the largest squared distance
    that can still enter the list of each; the least product that is near, or -inf; distances of the queries from a box,
    and of all points of a block from one query; features by point of a block of data (d x m); the queries that meet a
    block by products, and as bits the points that may be near some of them; squared distances of the b boxes from that
    of the queries, and of their middles; the blocks that may help, in the order in which they are visited.
    """
    values, points = (np.empty((d, m)) for _ in range(2))
    norms, limit, near, squares = (np.empty(m) for _ in range(4))
    rounded, lowest = np.empty((d, m), np.float32), np.empty(m, np.float32)
    chosen, masks = np.empty(m + TILE, np.intp), np.empty(TILE, np.uint64)
    boxes = np.empty(b), np.empty(b), np.empty(b, np.intp)
    return values, rounded, norms, limit, lowest, near, squares, points, chosen, masks, *boxes


@compiled(bare=True)
def squared_distances(point: FloatArray, values: FloatArray, out: FloatArray) -> None:
    """Write ``out[c] = sum_f (point[f] - values[f, c])^2``, four features a pass: fewer loads of ``out``."""
    d, width = values.shape
    for c in range(width):
        out[c] = 0.0
    for f in range(0, d - 3, 4):
        p0, p1, p2, p3 = point[f], point[f + 1], point[f + 2], point[f + 3]
        for c in range(width):
            g0, g1, g2, g3 = p0 - values[f, c], p1 - values[f + 1, c], p2 - values[f + 2, c], p3 - values[f + 3, c]
            out[c] = out[c] + g0 * g0 + g1 * g1 + g2 * g2 + g3 * g3
    for f in range(d - d % 4, d):
        for c in range(width):
            gap = point[f] - values[f, c]
            out[c] += gap * gap


@compiled(bare=True)
def turn(points: FloatArray, out: FloatArray) -> None:
    """Write the transpose of ``points``."""
    for j in range(len(points)):
        for f in range(points.shape[1]):
            out[f, j] = points[j, f]


@compiled(bare=True)
def points_to_box(values: FloatArray, low: FloatArray, high: FloatArray, out: FloatArray) -> None:
    """Write the squared distance of every point (a column of ``values``) from the box ``[low, high]``."""
    d, width = values.shape
    for c in range(width):
        out[c] = 0.0
    for f in range(0, d - 1, 2):
        l0, h0, l1, h1 = low[f], high[f], low[f + 1], high[f + 1]
        for c in range(width):
            gap = max(l0 - values[f, c], values[f, c] - h0, 0.0)
            next_gap = max(l1 - values[f + 1, c], values[f + 1, c] - h1, 0.0)
            out[c] = out[c] + gap * gap + next_gap * next_gap
    if d % 2:
        for c in range(width):
            gap = max(low[d - 1] - values[d - 1, c], values[d - 1, c] - high[d - 1], 0.0)
            out[c] += gap * gap


@compiled(bare=True)
def box_to_boxes(
    low: FloatArray, high: FloatArray, lows: FloatArray, highs: FloatArray, gaps: FloatArray, middles: FloatArray
) -> Any:
    """Write squared distances of one box from each of many, the rows of ``lows`` and ``highs``, and of their middles.

    Returns the least distance of middles.
    """
    least_middle = np.inf
    for b in range(len(lows)):
        gaps[b], middles[b] = 0.0, 0.0
        for f in range(len(low)):
            gap = max(lows[b, f] - high[f], low[f] - highs[b, f], 0.0)
            gaps[b] += gap * gap
            middle = 0.5 * (lows[b, f] - low[f]) + 0.5 * (highs[b, f] - high[f])
            middles[b] += middle * middle
        least_middle = middles[b] if middles[b] < least_middle else least_middle
    return least_middle


@compiled(bare=True)
def insert(distance: float, identity: int, limit: float, distances: FloatArray, ids: AnyArray) -> Any:
    """Insert into a list sorted by (distance, id), whose last entry drops out, unless it comes after that one.

    Returns the new limit: the largest squared distance that can still enter the list.
    """
    last = place = len(distances) - 1
    if not (distance < distances[place] or (distance == distances[place] and identity < ids[place])):
        return limit
    while place > 0 and (
        distances[place - 1] > distance or (distances[place - 1] == distance and ids[place - 1] > identity)
    ):
        distances[place], ids[place] = distances[place - 1], ids[place - 1]
        place -= 1
    distances[place], ids[place] = distance, identity
    return distances[last] * distances[last] * SLACK


@compiled(bare=True)
def some_squared_distances(query: FloatArray, points: FloatArray, mask: Any, out: FloatArray) -> None:
    """Write the squared distances of the rows of ``points`` that are bits of ``mask``; no sum waits for a list."""
    while mask:
        c = lowest_bit(mask)
        mask &= mask - ONE
        total = 0.0
        for f in range(len(query)):
            gap = query[f] - points[c, f]
            total += gap * gap
        out[c] = total


@compiled(bare=True)
def offer(
    squares: FloatArray, mask: Any, names: AnyArray, itself: int, limit: float, distances: FloatArray, ids: AnyArray
) -> Any:
    """Offer the points that are bits of ``mask``, at these squared distances, to the list of one query; the new limit.

    The point called ``itself`` does not enter it.
    """
    while mask:
        c = lowest_bit(mask)
        mask &= mask - ONE
        if squares[c] <= limit and names[c] != itself:
            limit = insert(math.sqrt(squares[c]), names[c], limit, distances, ids)
    return limit


@compiled(inline=True)
def visit(
    queries: Exact, a: int, data: Exact, rounded: Rounded, b: int, without_self: bool,
    work: tuple[AnyArray, ...], distances: FloatArray, neighbours: AnyArray,
) -> Any:  # fmt: skip
    """Offer the points of data block ``b`` to the lists of all queries in block ``a``; the largest limit then.

    Queries whose products say nothing meet all points; the others, ``TILE`` at a time, those that may be near.
    """
    values, rounded_queries, norms, limit, lowest, near, squares, points, chosen, masks, _, _, _ = work
    points_to_box(values, data.low[b], data.high[b], near)
    least(norms, rounded.reach[b], limit, len(values), lowest)
    count, copied = 0, False
    for j in range(queries.size[a]):
        if near[j] > limit[j]:
            continue
        if lowest[j] > -np.inf:
            chosen[count] = j
            count += 1
            continue
        if not copied:
            turn(data.points[b], points)
            copied = True
        squared_distances(queries.points[a, j], points, squares)
        mask = bits_within(squares, limit[j])
        if mask:
            row = queries.ids[a, j]
            limit[j] = offer(
                squares, mask, data.ids[b], row if without_self else -2, limit[j], distances[row], neighbours[row]
            )
    for i in range(count, count + TILE):
        chosen[i] = 0  # a tile is always full
    for start in range(0, count, TILE):
        near_points(rounded_queries, chosen, start, rounded.values[b], rounded.offsets[b], lowest, masks)
        for i in range(min(TILE, count - start)):
            if masks[i]:
                j = chosen[start + i]
                row = queries.ids[a, j]
                some_squared_distances(queries.points[a, j], data.points[b], masks[i], squares)
                limit[j] = offer(
                    squares, masks[i], data.ids[b], row if without_self else -2, limit[j], distances[row],
                    neighbours[row],
                )  # fmt: skip
    largest = limit[0]
    for j in range(1, queries.size[a]):
        largest = limit[j] if limit[j] > largest else largest
    return largest


@compiled(bare=True)
def within(values: FloatArray, limit: float, keys: FloatArray, places: AnyArray) -> Any:
    """Write the places of the values that are at most ``limit``, sorted by their keys; how many they are.

    A shell sort with Knuth's steps: numpy's sorting, compiled, would add a second to the first call.
    """
    count, step = 0, 1
    for b in range(len(values)):
        if values[b] <= limit:
            places[count] = b
            count += 1
    while step < count // 3:
        step = 3 * step + 1
    while step > 0:
        for i in range(step, count):
            place, j = places[i], i
            while j >= step and keys[places[j - step]] > keys[place]:
                places[j] = places[j - step]
                j -= step
            places[j] = place
        step //= 3
    return count


@compiled(bare=True)
def search_blocks(
    queries: Exact, start: int, stop: int, data: Exact, rounded: Rounded, without_self: bool,
    work: tuple[AnyArray, ...], distances: FloatArray, neighbours: AnyArray,
) -> None:  # fmt: skip
    """Fill the lists of nearest points for the query blocks ``start..stop``.

    The block with the nearest middle sets the first limits; those within them follow in the order of their middles,
    as long as they can help.
    """
    values, rounded_queries, norms, limit, _, _, _, _, _, _, gaps, middles, blocks = work
    for a in range(start, stop):
        largest = np.inf
        for j in range(len(limit)):
            limit[j] = np.inf
        turn(queries.points[a], values)
        round_queries(values, rounded.centre, rounded_queries, norms)
        nearest = box_to_boxes(queries.low[a], queries.high[a], data.low, data.high, gaps, middles)
        count = within(middles, nearest, middles, blocks)
        for _ in range(2):
            for i in range(count):
                b = blocks[i]
                if gaps[b] <= largest:
                    largest = visit(queries, a, data, rounded, b, without_self, work, distances, neighbours)
                    gaps[b] = np.nan  # no number is: it is not visited again
            count = within(gaps, largest, middles, blocks)


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
    X: FloatArray, start: int, stop: int, values: FloatArray, ids: AnyArray, lows: FloatArray, highs: FloatArray,
    without_self: bool, bounds: FloatArray, squares: FloatArray, heap: AnyArray, distances: FloatArray,
    neighbours: AnyArray,
) -> None:  # fmt: skip
    """Fill the lists of nearest points of the rows ``start..stop``; ``bounds``, ``squares``, ``heap``: work space.

    The nearest box comes first, alone, and sets a limit; then those within it, by their distance.
    """
    for i in range(start, stop):
        row_to_boxes(X[i], lows, highs, bounds)
        first = 0
        for b in range(1, len(bounds)):
            first = b if bounds[b] < bounds[first] else first
        heap[0], left, limit = first, 1, np.inf
        for _ in range(2):
            while left > 0 and bounds[heap[0]] <= limit:
                b = heap[0]
                squared_distances(X[i], values[b], squares)
                mask = bits_within(squares, limit)
                limit = offer(squares, mask, ids[b], i if without_self else -2, limit, distances[i], neighbours[i])
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
        part, along = rows[start:stop], values[start:stop]
        widest = widest_feature(points, part)
        for i in range(len(part)):
            along[i] = points[part[i], widest]
        select(along, part, left)
        starts[waiting], stops[waiting] = start, start + left
        starts[waiting + 1], stops[waiting + 1] = start + left, stop
        waiting += 2
