"""Fused kernels over tiles of pairs of rows: distances on the tensor cores, and what is made of them, in registers.

A coordinate is the sum of two half-precision numbers, ``x = h + l``, which keep 22 bits of it, and so is a squared
length, ``norm = 2^13 (h + l)``. With the rows ``left_i = (h, h, l, 2^13, 2^13)`` and ``right_j = (-2 h, -2 l, -2 h,
h of norm, l of norm)``, WIDTH numbers each, one matrix product gives

    |x_i - x_j|^2  =  norm_i + left_i . right_j

as exactly as float32 can by this formula, at the speed of half precision. Arrays of rows are padded to whole tiles.
"""

# Triton reads the annotations of its functions, so they have no other ones.
# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["first_tile", "n_tiles"])
def pair_extremes(
    left, right, norm, spans, low, high, first_tile, n_tiles,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the extreme squared distances of each row of a tile to rows of a group, (n_groups, n_tiles * ROWS) each.

    The program (t, g) meets the tile ``first_tile + t`` with whole blocks of COLUMNS rows: for the smallest distance
    those from ``spans[0, g, t]`` to ``spans[1, g, t] - 1``, for the largest from ``spans[2, g, t]`` to
    ``spans[3, g, t] - 1``.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    left += (first_tile + tl.program_id(0)) * ROWS * WIDTH
    spans += tl.program_id(1) * n_tiles + tl.program_id(0)
    step = tl.num_programs(1) * n_tiles
    x = _first_chunk(left, WIDTH, CHUNK, ROWS)
    near = tl.full([ROWS, COLUMNS], float("inf"), tl.float32)
    for j in range(tl.load(spans), tl.load(spans + step), COLUMNS):
        near = tl.minimum(near, _products(x, left, right + j * WIDTH, WIDTH, CHUNK, ROWS, COLUMNS))
    far = tl.full([ROWS, COLUMNS], float("-inf"), tl.float32)
    for j in range(tl.load(spans + 2 * step), tl.load(spans + 3 * step), COLUMNS):
        far = tl.maximum(far, _products(x, left, right + j * WIDTH, WIDTH, CHUNK, ROWS, COLUMNS))
    own = tl.load(norm + first_tile * ROWS + row)
    place = tl.program_id(1).to(tl.int64) * n_tiles * ROWS + row
    tl.store(low + place, tl.min(near, axis=1) + own)
    tl.store(high + place, tl.max(far, axis=1) + own)


@triton.jit(do_not_specialize=["first_tile", "first_cell", "n_rows", "n_points", "n_features"])
def pair_products(
    left, right, norm, real, points, z_high, z_low, starts, product, column, slope, offset, doubt,
    first_tile, first_cell, n_rows, n_points, n_features,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, SCORES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    SEGMENT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Multiply ``M_ij = 2^(offset - slope * distance)`` by the scores of a cell.

    The program (t, c) meets the tile ``first_tile + t`` with the cell ``first_cell + c``. It writes ``M z`` into
    ``product`` (n_cells, n_rows, SCORES) and adds the column sums of M to ``column``, one float64 for every row. What
    is not ``real`` (1 or 0) has no part in column sums; it has no scores either.

    M is rounded to half precision; or, if WIDE, it is the sum of two numbers of the type bfloat16, whose range is that
    of float32. Then a tile with a pair closer than ``doubt`` times its norms is measured again by differences of the
    ``points`` (n_features, n_points).
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    left += (first_tile + tl.program_id(0)) * ROWS * WIDTH
    own = tl.load(norm + first_tile * ROWS + row)
    begin = tl.load(starts + first_cell + tl.program_id(1))
    n_tiles = (tl.load(starts + first_cell + tl.program_id(1) + 1) - begin) // COLUMNS
    # Tiles that run side by side begin at different places, so that they do not all add to the same columns.
    shift = (tl.program_id(0) * 61) % tl.maximum(n_tiles, 1)
    kind = z_high.dtype.element_ty
    lane = tl.arange(0, COLUMNS)
    score = tl.arange(0, COLUMNS)[:, None] * SCORES + tl.arange(0, SCORES)[None, :]
    x = _first_chunk(left, WIDTH, CHUNK, ROWS)
    # 16 times the same, since a product has no fewer rows; the first is taken.
    ones = tl.broadcast_to(tl.load(real + first_tile * ROWS + row)[None, :], [16, ROWS])
    total = tl.zeros([ROWS, SCORES], tl.float32)
    # Tensor cores cut off what they add up; after each segment the sum is added to the total with rounding.
    for segment in range(0, n_tiles, SEGMENT):
        part = tl.zeros([ROWS, SCORES], tl.float32)
        for tile in range(segment, tl.minimum(segment + SEGMENT, n_tiles)):
            turned = tile + shift
            j = begin + tl.where(turned >= n_tiles, turned - n_tiles, turned) * COLUMNS
            squared = _products(x, left, right + j * WIDTH, WIDTH, CHUNK, ROWS, COLUMNS) + own[:, None]
            if WIDE:
                norms = own[:, None] + tl.load(norm + j + lane)[None, :]
                margin = squared - (doubt * norms) * (doubt * norms)
                if tl.min(tl.min(margin, axis=1), axis=0) < 0:
                    squared = _differences(
                        points + first_tile * ROWS + row, points + j + lane, n_points, n_points, n_features
                    )
            m = tl.exp2(offset - slope * tl.sqrt(tl.abs(squared)))
            rest = m
            if WIDE:  # the upper 16 bits of a float32 are a bfloat16
                m = (m.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
                rest -= m
            m = m.to(kind)
            sums = tl.dot(ones, m)
            z = tl.load(z_high + j * SCORES + score)
            part = tl.dot(m, z, part)
            part = tl.dot(m, tl.load(z_low + j * SCORES + score), part)
            if WIDE:
                rest = rest.to(kind)
                sums = tl.dot(ones, rest, sums)
                part = tl.dot(rest, z, part)
            place = (column + j + lane)[None, :] + tl.zeros([16, 1], tl.int32)
            tl.atomic_add(place, sums.to(tl.float64), mask=(tl.arange(0, 16) == 0)[:, None], sem="relaxed")
        total += part
    place = (tl.program_id(1).to(tl.int64) * n_rows + row) * SCORES
    tl.store(product + place[:, None] + tl.arange(0, SCORES)[None, :], total)


@triton.jit(do_not_specialize=["n_parts", "n_each", "n_group"])
def block_minima(
    left, right, own_norm, minima, grouped, n_parts, n_each, n_group,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Write the smallest squared distance of each row to each block of COLUMNS rows j, (n_rows, LANES * n_parts).

    LANES blocks lie in LANES tiles, and each has a share of every tile: what one thread holds of a product. So no
    thread waits for another. The program (t, b) meets tile t of the rows with LANES blocks at a time, the parts from
    ``b * n_each`` on. The minimum of ``n_group`` parts goes into ``grouped`` (n_rows, n_parts / n_group), rounded up.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    left += tl.program_id(0) * ROWS * WIDTH
    own = tl.load(own_norm + row)
    x = _first_chunk(left, WIDTH, CHUNK, ROWS)
    first = tl.program_id(1) * n_each
    last = tl.minimum(first + n_each, n_parts)
    lane = tl.arange(0, LANES)
    for begin in range(first, last, n_group):
        lowest = tl.full([ROWS, LANES], float("inf"), tl.float32)
        for part in range(begin, tl.minimum(begin + n_group, last)):
            low = tl.full([ROWS, LANES], float("inf"), tl.float32)
            for tile in tl.static_range(LANES):
                j = (part * LANES + tile) * COLUMNS
                s = _products(x, left, right + j * WIDTH, WIDTH, CHUNK, ROWS, COLUMNS)
                s = tl.reshape(s, [ROWS, COLUMNS // (2 * LANES), LANES, 2])
                low = tl.minimum(low, tl.min(tl.min(s, axis=3), axis=1))
            place = (row.to(tl.int64) * n_parts + part) * LANES
            tl.store(minima + place[:, None] + lane[None, :], low + own[:, None])
            lowest = tl.minimum(lowest, low)
        place = row.to(tl.int64) * tl.cdiv(n_parts, n_group) + begin // n_group
        tl.store(grouped + place, tl.min(lowest, axis=1) + own)


@triton.jit(do_not_specialize=["n_rows", "n_columns", "n_blocks", "n_each", "n_features"])
def block_minima_by_differences(
    rows, columns, minima, n_rows, n_columns, n_blocks, n_each, n_features,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the smallest squared distance to each block of columns, (n_rows, n_blocks), without `_products`.

    ``rows`` (n_features, n_rows) and ``columns`` (n_features, n_columns) are float32. This takes longer, and its
    error does not grow with the squared length of the rows.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * n_each
    for block in range(first, tl.minimum(first + n_each, n_blocks)):
        y = columns + block * COLUMNS + tl.arange(0, COLUMNS)
        total = _differences(rows + row, y, n_rows, n_columns, n_features)
        tl.store(minima + row.to(tl.int64) * n_blocks + block, tl.min(total, axis=1))


@triton.jit(do_not_specialize=["n_blocks", "n_listed"])
def near_blocks(
    minima, groups, n_visited, reach, blocks, count, n_blocks, n_listed, GROUP: tl.constexpr, ROOM: tl.constexpr
):  # fmt: skip
    """Collect the blocks whose ``minima`` (n_queries, n_blocks) are within ``reach``, from the first groups of a query.

    ``groups`` is (n_queries, n_listed), of which ``n_visited`` are looked into. ``blocks`` (n_queries, ROOM) gets what
    is found, as far as there is room for it, and ``count`` how much that is. One program serves one query.
    """
    query = tl.program_id(0).to(tl.int64)
    bound = tl.load(reach + query)
    found = 0
    for place in range(tl.load(n_visited + query)):
        block = tl.load(groups + query * n_listed + place) * GROUP + tl.arange(0, GROUP)
        hit = tl.load(minima + query * n_blocks + block).to(tl.float64) <= bound
        slot = found + tl.cumsum(hit.to(tl.int32), axis=0) - 1
        tl.store(blocks + query * ROOM + slot, block, mask=hit & (slot < ROOM))
        found += tl.sum(hit.to(tl.int32), axis=0)
    tl.store(count + query, found)


@triton.jit(do_not_specialize=["n_points", "n_features", "n_listed"])
def near_points(
    points, queries, blocks, n_visited, limit, squared, ids, count, n_points, n_features, n_listed,
    COLUMNS: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Collect the points within ``limit`` (squared) of each query from the first ``n_visited`` of its blocks.

    ``points`` is (n_features, n_points) and ``queries`` (n_queries, n_features), both float64; each squared distance
    is one sum over the features in their order. ``squared`` and ``ids`` (n_queries, ROOM) get what is found, as far
    as there is room for it, and ``count`` how much that is. One program serves one query.
    """
    query = tl.program_id(0).to(tl.int64)
    bound = tl.load(limit + query)
    found = 0
    for place in range(tl.load(n_visited + query)):
        column = tl.load(blocks + query * n_listed + place) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros([COLUMNS], tl.float64)
        value = points + column
        for f in range(n_features):
            gap = tl.load(queries + query * n_features + f) - tl.load(value)
            total += gap * gap
            value += n_points
        hit = total <= bound
        slot = found + tl.cumsum(hit.to(tl.int32), axis=0) - 1
        kept = hit & (slot < ROOM)
        tl.store(squared + query * ROOM + slot, total, mask=kept)
        tl.store(ids + query * ROOM + slot, column, mask=kept)
        found += tl.sum(hit.to(tl.int32), axis=0)
    tl.store(count + query, found)


@triton.jit(do_not_specialize=["n_rows", "n_sizes"])
def path_lengths(
    columns, feature, threshold, child, length, root, sizes, paths, n_rows, n_sizes,
    DEPTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the path length of each row, summed in order over the first ``sizes[c]`` trees, (n_sizes, n_rows).

    ``columns`` (n_features, n_rows) are float32. The children of node v are ``child[2 v]`` and ``child[2 v + 1]``; a
    leaf is its own child.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < n_rows
    total = tl.zeros([ROWS], tl.float64)
    for size in range(n_sizes):
        for t in range(tl.load(sizes + size - 1, mask=size > 0, other=0), tl.load(sizes + size)):
            node = tl.load(root + t) + tl.zeros([ROWS], tl.int32)
            for _ in range(DEPTH):
                value = tl.load(columns + tl.load(feature + node).to(tl.int64) * n_rows + row, mask=there, other=0.0)
                right = value.to(tl.float64) > tl.load(threshold + node)
                node = tl.load(child + 2 * node + right.to(tl.int32))
            total += tl.load(length + node)
        tl.store(paths + row, total, mask=there)
        paths += n_rows


@triton.jit
def _first_chunk(left, WIDTH: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr):
    """The first CHUNK numbers of ROWS rows; where that is all of them, they are loaded once and stay."""
    return tl.load(left + tl.arange(0, ROWS)[:, None] * WIDTH + tl.arange(0, CHUNK)[None, :])


@triton.jit
def _products(x, left, right, WIDTH: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """``left_i . right_j`` for a tile, in steps of CHUNK numbers; x is the first chunk of the rows i."""
    k = tl.arange(0, CHUNK)[None, :]
    s = tl.dot(x, tl.trans(tl.load(right + tl.arange(0, COLUMNS)[:, None] * WIDTH + k)))
    for c in range(CHUNK, WIDTH, CHUNK):
        a = tl.load(left + tl.arange(0, ROWS)[:, None] * WIDTH + (c + k))
        b = tl.load(right + tl.arange(0, COLUMNS)[:, None] * WIDTH + (c + k))
        s = tl.dot(a, tl.trans(b), s)
    return s


@triton.jit
def _differences(x, y, x_step, y_step, n_features):
    """Squared distances of a tile, feature by feature; x and y point to the first feature of its rows and columns."""
    total = tl.zeros([x.shape[0], y.shape[0]], tl.float32)
    for _ in range(n_features):
        gap = tl.load(x)[:, None] - tl.load(y)[None, :]
        total += gap * gap
        x += x_step
        y += y_step
    return total
