"""Passes over many rows on several threads; what comes out never depends on their number.

numpy lets go of the interpreter's lock while it copies, sorts and computes, so plain numpy on blocks of rows, or on
columns, runs on as many threads as there are. Blocks also stay in the cache between one step and the next.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from evenout.core.compiled import map_blocks, map_each
from evenout.core.types import AnyArray, BoolArray, FloatArray

T = TypeVar("T")

ROWS = 8192  # of a block


def by_rows(
    function: Callable[..., FloatArray],
    *parts: AnyArray,
    n_threads: int,
    width: int | None = None,
    block: int = ROWS,
) -> FloatArray:
    """``function(*parts)`` of arrays (n, ...), where each row of the result follows from the same row of the parts.

    ``width`` is the number of columns of the result; None: it has the shape of the first part, and its layout.
    """
    n = len(parts[0])
    out = np.empty_like(parts[0], dtype=float) if width is None else np.empty((n, width))

    def work(rows: slice) -> None:
        out[rows] = function(*(part[rows] for part in parts))

    map_blocks(work, n, block, n_threads)
    return out


def take_rows(array: FloatArray, rows: AnyArray, n_threads: int) -> FloatArray:
    """``array[rows]``: the rows at some places, or those that a mask marks."""
    places = np.flatnonzero(rows) if rows.dtype == bool else rows
    out = np.empty((len(places), *array.shape[1:]), dtype=array.dtype)

    def work(at: slice) -> None:
        array.take(places[at], axis=0, out=out[at], mode="clip")  # other modes fill a copy of ``out`` first

    map_blocks(work, len(places), ROWS, n_threads)
    return out


def put_rows(into: FloatArray, rows: BoolArray, source: FloatArray, n_threads: int) -> None:
    """``into[rows] = source[rows]``, for the rows that a mask marks."""

    def work(at: slice) -> None:
        np.copyto(into[at], source[at], where=rows[at, None])

    map_blocks(work, len(rows), ROWS, n_threads)


def side_by_side(parts: Sequence[FloatArray], n_threads: int) -> FloatArray:
    """Columns (n,) and tables (n, c) side by side, row by row in memory."""
    tables = [part[:, None] if part.ndim == 1 else part for part in parts]
    edges = np.cumsum([0, *(table.shape[1] for table in tables)])
    out = np.empty((len(tables[0]), edges[-1]))

    def work(rows: slice) -> None:
        for table, start, stop in zip(tables, edges[:-1], edges[1:], strict=True):
            out[rows, start:stop] = table[rows]

    map_blocks(work, len(out), ROWS, n_threads)
    return out


def map_columns(work: Callable[[int], T], columns: Sequence[int], n_rows: int, n_threads: int) -> list[T]:
    """``work`` of each of some columns, of ``n_rows`` rows each; short ones are not worth a thread."""
    return map_each(work, columns, n_threads if n_rows > ROWS else 1)


def sorted_columns(X: FloatArray, n_threads: int) -> FloatArray:
    """``np.sort(X, axis=0)``, in the layout of X."""
    out = np.empty_like(X)

    def work(j: int) -> None:
        out[:, j] = np.sort(X[:, j])

    map_columns(work, range(X.shape[1]), len(X), n_threads)
    return out
