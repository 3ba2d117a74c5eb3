"""The exact nearest points: block by block, or row by row where rows or points are few.

Points lie in blocks of 64, cut by halving the widest side of the data, and each block knows its bounding box. A block
of queries meets the blocks of data whose boxes may hold a nearer point, the likeliest first. Inside a block a product
in float32 says, with a proven margin for its rounding, which points may be near enough; their distances are computed in
float64, and these alone decide.

This one method serves every dimension; where boxes are of no use it is a brute-force search that stays in the cache.
`benchmarks/neighbours.py` compares it with another library, and with what the processor can do.

A block of queries has a bounding box too. Unrelated rows make a large one, which rules out few boxes of data, so up to
`FEW` rows are searched for one by one, which is faster. So are any rows among up to `SMALL_SEARCH` points: that takes
about as long, and half as long to compile.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenout.core.parallel import map_blocks, map_each
from evenout.core.types import BoolArray, Float32Array, FloatArray, IntArray

BLOCK = 64  # points in a block: the bits of one integer say which of them may be near
SMALL_CUT = 2048  # points; up to here they are cut without compiled code, which takes longer to compile than they take
WHOLE = 8192  # points; a part of this size is cut to its end by one thread
QUERY_BLOCKS = 4  # per piece of work handed to a thread

LAST = np.iinfo(np.int32).max  # the id of no point

Ids = npt.NDArray[np.int32]


class Exact(NamedTuple):
    """Points in b blocks of at most ``BLOCK``; unused places of the last block are NaN."""

    points: FloatArray  # b x BLOCK x d
    ids: Ids  # b x BLOCK: the row of each point in the array that was cut; -1 where there is none
    size: IntArray  # b: how many points each block holds
    low: FloatArray  # b x d: the bounding boxes, with high
    high: FloatArray


class Rounded(NamedTuple):
    """Points of blocks relative to a centre, in float32."""

    centre: FloatArray  # d
    values: Float32Array  # b x d x BLOCK: features by point, so that neighbouring points are neighbours in memory
    offsets: Float32Array  # b x BLOCK: minus half of the squared norm
    reach: FloatArray  # b: the largest norm in each block


@dataclass(frozen=True, eq=False)
class Blocks:
    """Points cut into blocks: the data of a search, or its queries."""

    exact: Exact

    @cached_property
    def rounded(self) -> Rounded:
        """Layout for products; computed when the blocks are first searched.

        The centre is a median over the boxes, so a few points far away cost the others no digits. What float32 cannot
        hold becomes infinite, and its block is searched without products.
        """
        exact = self.exact
        with np.errstate(over="ignore", invalid="ignore"):
            centre = np.median(0.5 * exact.low + 0.5 * exact.high, axis=0)
            values = np.ascontiguousarray((exact.points - centre).astype(np.float32).transpose(0, 2, 1))
            squares = np.square(values, dtype=np.float64).sum(axis=1)
            offsets = (-0.5 * squares).astype(np.float32)
        return Rounded(centre, values, offsets, np.sqrt(np.fmax.reduce(squares, axis=1)))

    @cached_property
    def few(self) -> tuple[FloatArray, Ids, FloatArray, FloatArray]:
        """The layout for a search row by row: points (b x d x BLOCK), ids and, both d x b, lows and highs of boxes.

        The features come first, so that vector instructions compare a row with all of them.
        """
        points, ids, _, low, high = self.exact
        values, lows, highs = (np.ascontiguousarray(array) for array in (points.transpose(0, 2, 1), low.T, high.T))
        return values, ids, lows, highs


def cut_blocks(points: FloatArray, *, n_threads: int = 1) -> Blocks:
    """Cut ``points`` (n x d, n >= 1) into blocks of points that lie close together."""
    n, d = points.shape
    n_blocks, order = -(-n // BLOCK), _halving_order(points, n_threads)
    blocks, ids = np.full((n_blocks, BLOCK, d), np.nan), np.full((n_blocks, BLOCK), -1, dtype=np.int32)
    low, high = np.empty((n_blocks, d)), np.empty((n_blocks, d))

    def fill(part: slice) -> None:
        rows = order[part.start * BLOCK : part.stop * BLOCK]
        ids[part].reshape(-1)[: len(rows)] = rows
        blocks[part].reshape(-1, d)[: len(rows)] = points.take(rows, axis=0)
        np.fmin.reduce(blocks[part], axis=1, out=low[part])  # NaN, where there is no point, is not the least
        np.fmax.reduce(blocks[part], axis=1, out=high[part])

    map_blocks(fill, n_blocks, WHOLE // BLOCK, n_threads)
    return Blocks(Exact(blocks, ids, np.minimum(BLOCK, n - BLOCK * np.arange(n_blocks)), low, high))


def _halving_order(points: FloatArray, n_threads: int) -> IntArray:
    """Order of the rows in which consecutive runs of ``BLOCK`` rows lie close together.

    Each part is halved, at a multiple of ``BLOCK`` rows, across the feature with the widest range: level by level, all
    parts of a level at a time, until they are small, and then each small part to its end.
    """
    order, parts = np.arange(len(points)), [(0, len(points))]
    if len(points) <= SMALL_CUT:
        with np.errstate(over="ignore"):
            _halve_to_blocks(points, order)
        return order
    from evenout.detectors._search_kernels import halve_to_blocks, widest_feature

    def halve(part: tuple[int, int]) -> list[tuple[int, int]]:
        start, stop = part
        rows = order[start:stop]
        middle = start + -(-len(rows) // BLOCK) // 2 * BLOCK
        values = points[:, widest_feature(points, rows)].take(rows)
        order[start:stop] = rows[values.argpartition(middle - start)]
        return [(start, middle), (middle, stop)]

    while parts[0][1] > WHOLE:  # all parts have as many blocks as the first, or one more
        parts = [half for halves in map_each(halve, parts, n_threads) for half in halves]
    map_each(lambda part: halve_to_blocks(points, order[slice(*part)], BLOCK), parts, n_threads)
    return order


def _halve_to_blocks(points: FloatArray, rows: IntArray) -> None:
    """Halve as the compiled `evenout.detectors._search_kernels.halve_to_blocks` does."""
    left = -(-len(rows) // BLOCK) // 2 * BLOCK
    if left:
        values = points.take(rows, axis=0)
        rows[:] = rows[np.argpartition(values[:, np.ptp(values, axis=0).argmax()], left)]
        _halve_to_blocks(points, rows[:left])
        _halve_to_blocks(points, rows[left:])


def drop_points(blocks: Blocks, dropped: BoolArray, *, n_threads: int = 1) -> Blocks:
    """Blocks without the points whose ids ``dropped`` marks.

    NaN is no nearer than anything, so a search never finds it; the boxes, and the bounds of norms, stay as they are.
    """
    exact, rounded = blocks.exact, blocks.rounded
    points, offsets = np.empty_like(exact.points), np.empty_like(rounded.offsets)

    def drop(part: slice) -> None:
        gone = dropped[exact.ids[part]]  # places without a point are NaN already, whatever id -1 says
        points[part], offsets[part] = exact.points[part], rounded.offsets[part]
        points[part][gone], offsets[part][gone] = np.nan, np.nan

    map_blocks(drop, len(points), WHOLE // BLOCK, n_threads)
    left = Blocks(exact._replace(points=points))
    left.__dict__["rounded"] = rounded._replace(offsets=offsets)
    return left


def nearest_by_blocks(
    data: Blocks, k: int, *, queries: Blocks | None = None, n_threads: int = 1
) -> tuple[FloatArray, Ids]:
    """Distances and ids of the ``k`` nearest points of ``data``, each m x k, in the order of the queries.

    Neighbours are sorted by (Euclidean distance, id). Without ``queries`` they are those of every point of
    ``data``, the point itself left out. ``data`` must hold at least ``k`` (other) points.
    """
    from evenout.detectors._search_kernels import search_blocks, work_space

    asked = data.exact if queries is None else queries.exact
    m = int(asked.size.sum())
    distances, neighbours = np.full((m, k), np.inf), np.full((m, k), LAST, dtype=np.int32)
    if k > 0:
        known = (data.exact, data.rounded, queries is None)

        def search(part: slice) -> None:
            work = work_space(len(data.exact.size), *asked.points.shape[1:])
            search_blocks(asked, part.start, part.stop, *known, work, distances, neighbours)

        map_blocks(search, len(asked.size), QUERY_BLOCKS, n_threads)
    return distances, neighbours


FEW = 16  # rows; among 100,000 points with 10 features, twice as many were faster as a block
SMALL_SEARCH = 1024  # points; among twice as many, the search by blocks took three quarters of the time
ROWS = 256  # per piece of work handed to a thread


def nearest_by_rows(
    data: Blocks, X: FloatArray, k: int, *, without_self: bool = False, n_threads: int = 1
) -> tuple[FloatArray, Ids]:
    """Distances and ids of the ``k`` nearest points of the rows of ``X`` (m x d), each m x k.

    ``without_self`` says that row i is the point i, which is then left out.
    """
    from evenout.detectors._search_kernels import search_rows

    X, blocks = np.ascontiguousarray(X, dtype=np.float64), data.few  # one kind of array: one kernel is compiled
    distances, neighbours = np.full((len(X), k), np.inf), np.full((len(X), k), LAST, dtype=np.int32)

    def search(part: slice) -> None:
        room = np.empty(len(blocks[1])), np.empty(BLOCK), np.empty(len(blocks[1]), dtype=np.intp)
        search_rows(X, part.start, part.stop, *blocks, without_self, *room, distances, neighbours)

    if k > 0:
        map_blocks(search, len(X), ROWS, n_threads)
    return distances, neighbours


def nearest(data: Blocks, k: int, *, queries: FloatArray | None = None, n_threads: int = 1) -> tuple[FloatArray, Ids]:
    """Find the nearest points, block by block or row by row, whichever suits the number of points."""
    n, points = int(data.exact.size.sum()), data.exact.points
    if n > SMALL_SEARCH:
        return nearest_by_blocks(data, k, queries=None if queries is None else cut_blocks(queries), n_threads=n_threads)
    X = points.reshape(-1, points.shape[2])[data.exact.ids.ravel()[:n].argsort()] if queries is None else queries
    return nearest_by_rows(data, X, k, without_self=queries is None, n_threads=n_threads)
