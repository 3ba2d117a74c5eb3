"""The nearest points of many points, exactly, with one rule for ties.

Points lie in blocks of 64, cut by halving the widest side of the data, and each block knows its bounding box.
A block of queries meets the blocks of data in the order of the distance of their boxes and stops where no
box can hold a nearer point. Inside a block all distances are computed, in vector instructions.

This one method serves every dimension; where boxes are of no use it is a brute-force search that stays in the
cache. 30 neighbours of 50,000 standard normal rows with 2, 6 and 20 features took about 0.1, 0.3 and 3 s on two
cores, scipy's cKDTree 0.13 and 1.05 s with 2 and 6. Float64 is fast enough here that no float32 matrix
product, with an error bound and a second, exact pass, is needed.
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from evenout.core.compiled import map_blocks
from evenout.core.types import BoolArray, FloatArray, IntArray

BLOCK = 64  # points in a block; of 50,000 rows, 32 were slower with 6 and 20 features, 128 with 20
QUERY_BLOCKS = 4  # per piece of work handed to a thread

Ids = npt.NDArray[np.int32]


class Blocks(NamedTuple):
    """Points in b blocks of at most ``BLOCK``; unused columns of the last block are NaN.

    Attributes
    ----------
    values : array, b x d x BLOCK
        Features by point, so that neighbouring points are neighbours in memory.
    ids : array of int32, b x BLOCK
        The row of each point in the array that was cut; -1 where there is none.
    size : array of int, b
        How many points each block holds.
    low, high : arrays, b x d
        The bounding boxes.
    """

    values: FloatArray
    ids: Ids
    size: IntArray
    low: FloatArray
    high: FloatArray


def cut_blocks(points: FloatArray, *, method: Literal["boxes", "brute"] = "boxes") -> Blocks:
    """Cut ``points`` (n x d, n >= 1) into blocks.

    ``method="brute"`` keeps the order of the rows and gives each block all of space as its box: a search over
    such blocks leaves nothing out.
    """
    n, d = points.shape
    n_blocks = -(-n // BLOCK)
    order = np.arange(n) if method == "brute" else _halving_order(points)
    padded = np.full((n_blocks * BLOCK, d), np.nan)
    padded[:n] = points[order]
    ids = np.full(n_blocks * BLOCK, -1, dtype=np.int32)
    ids[:n] = order
    values = np.ascontiguousarray(padded.reshape(n_blocks, BLOCK, d).transpose(0, 2, 1))
    if method == "brute":
        low, high = np.full((n_blocks, d), -np.inf), np.full((n_blocks, d), np.inf)
    else:
        low, high = np.nanmin(values, axis=2), np.nanmax(values, axis=2)
    size = np.minimum(BLOCK, n - BLOCK * np.arange(n_blocks))
    return Blocks(values, ids.reshape(n_blocks, BLOCK), size, low, high)


def _halving_order(points: FloatArray) -> IntArray:
    """Order of the rows in which consecutive runs of ``BLOCK`` rows lie close together.

    Each part is halved, at a multiple of ``BLOCK`` rows, across the feature with the widest range.
    """
    order = np.arange(len(points))
    parts = [(0, len(points))]
    while parts:
        start, stop = parts.pop()
        n_blocks = -(-(stop - start) // BLOCK)
        if n_blocks == 1:
            continue
        rows = order[start:stop]
        part = points[rows]
        left = n_blocks // 2 * BLOCK
        widest = int(np.argmax(np.ptp(part, axis=0)))
        order[start:stop] = rows[np.argpartition(part[:, widest], left)]
        parts += [(start, start + left), (start + left, stop)]
    return order


def drop_points(blocks: Blocks, dropped: BoolArray) -> Blocks:
    """The same blocks without some points; ``dropped`` says which, by their ids.

    NaN is no nearer than anything, so a search never finds it; the boxes stay as they are.
    """
    gone = dropped[blocks.ids]  # places without a point are NaN already, whatever id -1 says
    return blocks._replace(values=np.where(gone[:, None, :], np.nan, blocks.values))


def nearest(data: Blocks, k: int, *, queries: Blocks | None = None, n_threads: int = 1) -> tuple[FloatArray, Ids]:
    """Distances and ids of the ``k`` nearest points of ``data``, each m x k, in the order of the queries.

    Neighbours are sorted by (Euclidean distance, id). Without ``queries`` they are those of every point of
    ``data``, the point itself left out. ``data`` must hold at least ``k`` (other) points.
    """
    from evenout.detectors._neighbour_kernels import search_blocks

    asked = data if queries is None else queries
    m = int(asked.size.sum())
    distances = np.full((m, k), np.inf)
    neighbours = np.full((m, k), np.iinfo(np.int32).max, dtype=np.int32)
    if k > 0:
        map_blocks(
            lambda part: search_blocks(asked, part.start, part.stop, data, queries is None, distances, neighbours),
            n_rows=len(asked.size),
            block=QUERY_BLOCKS,
            n_threads=n_threads,
        )
    return distances, neighbours
