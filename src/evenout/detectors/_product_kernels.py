"""Which points of a block may be near a query, by products of rounded coordinates, with a proven margin.

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
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from evenout.core.compiled import compiled
from evenout.core.types import Float32Array, FloatArray

WIDTH = 64  # points in a block: as many as an unsigned integer has bits
TILE = 4 if "+avx512f" in get_host_cpu_features() else 1  # queries at a time: as many times 64 sums as registers hold
MOST_FEATURES = 4096  # up to here (d + 1)^2 u is at most about 1
UNIT = 2.0**-24
ROOM = 1.0 + 2.0**-38
TINY = 2.0**-110
HUGE = 2.0**62
SHARE = 0.125  # of r^2: a wider margin would let too many points through

_FLOATS, _DOUBLES = ir.VectorType(ir.FloatType(), WIDTH), ir.VectorType(ir.DoubleType(), WIDTH)
_INDEX = ir.IntType(64)
_FIRST = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)


@compiled(bare=True)
def least(norms: FloatArray, reach: float, limits: FloatArray, d: int, out: Float32Array) -> None:
    """Write what a point within each limit, a squared distance, cannot fall below; -inf where nothing can be said.

    ``norms`` are the a of the queries and ``reach`` is the R of the block in the proof above.
    """
    for j in range(len(out)):
        both = norms[j] + reach
        margin = (d + 8.0) * UNIT * both * both + TINY
        far = math.sqrt(limits[j]) * ROOM + 2.0 * UNIT * both + TINY
        bound = 0.5 * (norms[j] * norms[j] - far * far - margin)
        bound -= 2.0 * UNIT * abs(bound) + TINY  # so that float32 does not round it up
        told = (margin <= SHARE * limits[j]) & (both < HUGE) & (d <= MOST_FEATURES)  # an infinite limit gives -inf
        out[j] = bound if told else -np.inf


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
    the point c; never for NaN. ``queries`` and ``values`` are d x WIDTH, ``offsets`` and ``lowest`` have WIDTH numbers,
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
        tile = _at(builder, index, args[2])
        rows = [builder.load(_at(builder, tile, _INDEX(i))) for i in range(TILE)]
        before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        begin = _vector(builder, offset)
        builder.branch(loop)

        builder.position_at_end(loop)
        f, sums = builder.phi(_INDEX), [builder.phi(_FLOATS) for _ in rows]
        place = builder.mul(f, _INDEX(WIDTH))
        points = _vector(builder, _at(builder, value, place))
        totals = [_add(builder, sums[i], _at(builder, query, builder.add(place, rows[i])), points) for i in range(TILE)]
        following = builder.add(f, _INDEX(1))
        builder.cbranch(builder.icmp_signed("<", following, n_features), loop, after)
        for variable, first, later in [(f, _INDEX(0), following), *((sums[i], begin, totals[i]) for i in range(TILE))]:
            variable.add_incoming(first, before)
            variable.add_incoming(later, loop)

        builder.position_at_end(after)
        for i in range(TILE):
            bits = _bits(builder, ">=", totals[i], builder.load(_at(builder, low, rows[i])))
            builder.store(bits, _at(builder, mask, _INDEX(i)))
        return context.get_dummy_value()

    return types.void(queries, chosen, start, values, offsets, lowest, masks), generate


@intrinsic
def bits_within(_: Any, squares: Any, limit: Any) -> Any:
    """The places of those of WIDTH numbers that are at most ``limit``, as bits."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return _bits(builder, "<=", _vector(builder, data, _DOUBLES), args[1])

    return types.uint64(squares, limit), generate


@intrinsic
def lowest_bit(_: Any, mask: Any) -> Any:
    """The place of the lowest bit that is set; there must be one."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.intp(mask), generate


if config.DISABLE_JIT:  # without the compiler, the same in plain words

    def near_points(
        queries: Float32Array,
        chosen: Any,
        start: int,
        values: Float32Array,
        offsets: Float32Array,
        lowest: Float32Array,
        masks: Any,
    ) -> None:
        for i in range(TILE):
            near = queries[:, chosen[start + i]] @ values + offsets >= lowest[chosen[start + i]]
            masks[i] = np.packbits(near, bitorder="little").view(np.uint64)[0]

    def bits_within(squares: FloatArray, limit: float) -> Any:
        return np.packbits(squares <= limit, bitorder="little").view(np.uint64)[0]

    def lowest_bit(mask: Any) -> int:
        return (int(mask) & -int(mask)).bit_length() - 1


def _at(builder: ir.IRBuilder, pointer: Any, place: Any) -> Any:
    return builder.gep(pointer, [place])


def _vector(builder: ir.IRBuilder, pointer: Any, kind: Any = _FLOATS) -> Any:
    """The WIDTH numbers from there on."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def _spread(builder: ir.IRBuilder, number: Any) -> Any:
    """One number WIDTH times."""
    nothing = ir.Constant(ir.VectorType(number.type, WIDTH), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, number, ir.IntType(32)(0)), nothing, _FIRST)


def _bits(builder: ir.IRBuilder, relation: str, numbers: Any, bound: Any) -> Any:
    """Which of WIDTH numbers are in this relation to a bound, never NaN, as the bits of an integer."""
    return builder.bitcast(builder.fcmp_ordered(relation, numbers, _spread(builder, bound)), _INDEX)


def _add(builder: ir.IRBuilder, total: Any, pointer: Any, points: Any) -> Any:
    """``total`` plus a query's coordinate times those of all points, fused where the processor can."""
    product = builder.fmul(_spread(builder, builder.load(pointer)), points, flags=("contract",))
    return builder.fadd(total, product, flags=("contract",))
