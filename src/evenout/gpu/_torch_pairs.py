"""Sums over pairs of rows on a GPU.

The fused engine rounds M to half precision, and uses the rounded M in every term: the form is then exact for an M
that is off by 2^-11 at most, so that ``v' F v`` is too, for every v. Where similarities span many octaves, so that few
pairs count and those are close, ``wide=True`` keeps 16 bits of M, and distances are known well enough for that.

The rows of a group lie in the order of their lengths. Two rows are no nearer to each other than their lengths differ,
and no further apart than these add up to. So once one pair is known to be near, and one to be far, fused kernels meet
a tile with those rows of another group alone whose lengths leave it open; how near and how far is found by meeting few
rows first, and then more. Kernels find the rows, up to rounding, and float64 measures them.

Mathematics and notation are those of `evenout.core.pairwise`. Rows lie in the order of their cells (a fold of a
group). For each cell, an engine computes ``M z`` with every cell of the later groups, and the column sums of M; what
remains is small and done in float64.
"""

from itertools import combinations, pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evenout.core.pairwise import _COARSE, PairSums, _exponent, nearest_psd
from evenout.core.types import FloatArray, IntArray
from evenout.gpu._torch_rows import (
    can_fuse,
    order_by_cell,
    rounding_of_halves,
    scale_to_halves,
    split,
    squared_distances,
    upload,
)

TILE = 128  # rows of a tile of the fused kernels; cells are padded to whole tiles
COLUMNS = 64  # columns of a tile
SEGMENT = 16  # tiles that are added up on the tensor cores before the sum is rounded
PEAK = 14.0  # the largest similarity is scaled to 2^PEAK: half precision has room for the smaller ones
OCTAVES = 2.0  # between the largest and the smallest similarity, for half precision
STEEPEST = 1500.0  # slope: above it, float32 coordinates are not enough
DOUBT = 2.0**-12  # an exponent that may be off by more than this is computed from differences of coordinates
FLATTEST = 1e-12  # slope: such a one makes all rows alike, and still sets those apart that are not there
WIDEST = 128  # columns of scores that the fused kernels take
NUMBERS = 2**26  # in a block: bounds the memory for it to some 1 GB


class PaddedRows(NamedTuple):
    """Rows in the order of their cells, each cell padded with copies of its last row to whole tiles."""

    points: Tensor  # (N, d): features, shifted to mean 0 and scaled to a largest entry of 1
    scores: Tensor  # (N, w): 1 and the scores, uncorrelated and of variance 1; all 0 in padding
    starts: list[int]  # first row of each cell, and the end of the last


class Plain:
    """Block after block with torch alone, the distances in ``dtype`` and all products in float64."""

    tile = 1

    def __init__(self, rows: PaddedRows, dtype: torch.dtype) -> None:
        self.rows, self.points = rows, rows.points.to(dtype)

    def products(self, first: int, last: int, cell: int, exponent: tuple[float, float], column: Tensor) -> Tensor:
        """``M z`` of rows ``first..last - 1`` of one group with each cell from ``cell`` on, (cells, rows, w).

        Adds the column sums of M to ``column`` (N,). ``M_ij = 2^(offset - slope * distance)``, and ``exponent = (slope,
        offset)``.
        """
        rows, n_cells, (slope, offset) = self.rows, len(self.rows.starts) - 1, exponent
        out = rows.scores.new_zeros(n_cells - cell, last - first, rows.scores.shape[1])
        for c in range(cell, n_cells):
            right = slice(rows.starts[c], rows.starts[c + 1])
            step = max(NUMBERS // max(right.stop - right.start, 1), 1)
            for start in range(first, last, step):
                block = slice(start, min(start + step, last))
                squared = squared_distances(self.points[block], self.points[right])
                M = torch.exp2(offset - slope * squared.sqrt_()).double()
                out[c - cell, block.start - first : block.stop - first] = M @ rows.scores[right]
                column[right] += rows.scores[block, 0] @ M
        return out


class Fused:
    """One kernel for distances, similarities and products; nothing but the products leaves the chip."""

    tile = TILE

    def __init__(self, rows: PaddedRows, real: Tensor, *, wide: bool) -> None:
        self.rows, self.wide, self.unit = rows, wide, scale_to_halves(rows.points)
        scaled = rows.points * self.unit
        self.halves = split(scaled)
        self.features = scaled.float().T.contiguous() if wide else self.halves.norm
        self.starts = torch.tensor(rows.starts, dtype=torch.int32, device=rows.points.device)
        width = max(16, 1 << (rows.scores.shape[1] - 1).bit_length())
        scores = torch.nn.functional.pad(rows.scores, (0, width - rows.scores.shape[1]))
        kind = torch.bfloat16 if wide else torch.float16
        self.real = real.to(kind)
        self.high = scores.to(kind)
        self.low = (scores - self.high.double()).to(kind)

    def products(self, first: int, last: int, cell: int, exponent: tuple[float, float], column: Tensor) -> Tensor:
        """See `Plain`."""
        from evenout.gpu._triton_kernels import pair_products

        n_cells, width = len(self.rows.starts) - 1 - cell, self.high.shape[1]
        slope, offset = exponent[0] / self.unit, exponent[1]
        product = self.halves.norm.new_empty(n_cells, last - first, width)
        few = width <= 32  # then, held to 168 registers, three programs share a multiprocessor
        tile, n_numbers = TILE // 2 if few and self.wide else TILE, self.halves.left.shape[1]
        pair_products[(last - first) // tile, n_cells](
            self.halves.left, self.halves.right, self.halves.norm, self.real, self.features, self.high, self.low,
            self.starts, product, column, slope, offset, slope * DOUBT, first // tile, cell, last - first,
            len(self.real), self.rows.points.shape[1], WIDTH=n_numbers, CHUNK=self.halves.chunk, ROWS=tile,
            COLUMNS=COLUMNS, SCORES=width, SEGMENT=SEGMENT, WIDE=self.wide, num_warps=4 if few else 8,
            num_stages=3 if n_numbers == self.halves.chunk else 2, maxnreg=168 if few else None,
        )  # fmt: skip
        return product[..., : self.rows.scores.shape[1]].double()


CANDIDATES = 64  # rows whose distances to all others are measured in float64, to find the extreme ones
GROWTH = 16  # how many times as many rows are met in the next round
SHELF = 2.0**16  # each group has its lengths, below 2^15, on a shelf of its own
_WIDER = 1.0 + 1e-5  # for the rounding of lengths and roots


def measure_range(
    points: Tensor, groups: Tensor, n_groups: int, *, fused: bool, dtype: torch.dtype = torch.float32
) -> tuple[float, float]:
    """Range of the distances between rows (n, d) of different groups, 0 to ``n_groups - 1``; (0, 0) without any.

    Without fused kernels, rows are found by all distances in ``dtype``.
    """
    by_length = points.norm(dim=1).argsort()
    order, starts = order_by_cell(groups[by_length], n_groups, TILE if fused else 1)
    rows = points[by_length[order]]
    low, high = ByLength(rows, starts).extremes() if fused else _extremes_of_all(rows.to(dtype), starts)
    if not torch.isfinite(low).any():  # no row has a row of a later group to be compared with
        return 0.0, 0.0
    near = torch.topk(low, min(CANDIDATES, len(low)), largest=False).indices
    far = torch.topk(high, min(CANDIDATES, len(low))).indices
    bounds = torch.tensor(starts, device=rows.device)
    group = torch.searchsorted(bounds, torch.arange(len(rows), device=rows.device), right=True)
    to_near = squared_distances(rows[near], rows).masked_fill_(group[near, None] == group, np.inf)
    to_far = squared_distances(rows[far], rows).masked_fill_(group[far, None] == group, 0.0)
    return float(to_near.min()) ** 0.5, float(to_far.max()) ** 0.5


def _extremes_of_all(points: Tensor, starts: list[int]) -> tuple[Tensor, Tensor]:
    """Smallest and largest squared distance of each row to the rows of later groups, block by block."""
    low = points.new_full((len(points),), torch.inf)
    high = -low
    for first, last in pairwise(starts[:-1]):
        later = points[last:]
        step = max(NUMBERS // max(len(later), 1), 1)
        for start in range(first, last if len(later) else first, step):
            block = slice(start, min(start + step, last))
            squared = squared_distances(points[block], later)
            low[block], high[block] = squared.amin(dim=1), squared.amax(dim=1)
    return low, high


class ByLength:
    """Extremes by the fused kernel, in its units, up to rounding; infinite for rows that have no part in the range.

    Rows are of whole tiles, and those of a group in the order of their lengths.
    """

    def __init__(self, points: Tensor, starts: list[int]) -> None:
        scaled = points * scale_to_halves(points)
        self.halves, self.length, self.starts = split(scaled), scaled.norm(dim=1), starts
        self.n_groups, self.n_features = len(starts) - 1, points.shape[1]
        self.bounds = torch.tensor(starts, device=points.device)
        group = torch.repeat_interleave(torch.arange(self.n_groups, device=points.device), self.bounds.diff())
        self.shelved = self.length + SHELF * group  # in order over all rows
        self.low = self.halves.norm.new_full((len(points),), torch.inf)
        self.high = -self.low

    def extremes(self) -> tuple[Tensor, Tensor]:
        """Meet few rows and then more, until all are met that matter."""
        if not len(self.length):
            return self.low, self.high
        slack = float(rounding_of_halves(self.length.max(), self.halves.left.shape[1], self.n_features))
        largest, width, complete = int(np.diff(self.starts).max()), COLUMNS, False
        while not complete:
            near = (float(self.low.min()) + slack) ** 0.5 * _WIDER
            far = max(float(self.high.max()) - slack, 0.0) ** 0.5 / _WIDER
            met = [self._meet(group, near, far, width) for group in range(self.n_groups - 1)]
            complete = all(met)
            width = width * GROWTH if width * GROWTH * 4 < largest else largest
        return self.low, self.high

    def _meet(self, group: int, near: float, far: float, width: int) -> bool:
        """Let a group's tiles meet some ``width`` rows of each later group; whether these are all that matter."""
        from evenout.gpu._triton_kernels import pair_extremes

        first, last = self.starts[group : group + 2]
        if first == last:
            return True
        spans, complete = self._spans(group, near, far, width)
        halves, shape = self.halves, (spans.shape[1], last - first)
        nearest, farthest = halves.norm.new_empty(shape), halves.norm.new_empty(shape)
        pair_extremes[(last - first) // TILE, spans.shape[1]](
            halves.left, halves.right, halves.norm, spans, nearest, farthest, first // TILE, (last - first) // TILE,
            WIDTH=halves.left.shape[1], CHUNK=halves.chunk, ROWS=TILE, COLUMNS=COLUMNS, num_warps=8,
            num_stages=3 if halves.left.shape[1] == halves.chunk else 2,
        )  # fmt: skip
        self.low[first:last] = torch.minimum(self.low[first:last], nearest.amin(dim=0))
        self.high[first:last] = torch.maximum(self.high[first:last], farthest.amax(dim=0))
        return complete

    def _spans(self, group: int, near: float, far: float, width: int) -> tuple[Tensor, bool]:
        """Rows of each later group that each tile is to meet (4, groups, tiles), and whether these are all that matter.

        Where they begin and end: for the smallest distance, rows of about the same length; for the largest, the
        longest.
        """
        own = self.length[self.starts[group] : self.starts[group + 1]].unflatten(0, (-1, TILE))
        shortest, longest = own[:, 0], own[:, -1]
        begin, end = self.bounds[group + 1 : -1, None], self.bounds[group + 2 :, None]
        shelf = SHELF * torch.arange(group + 1, self.n_groups, device=own.device)[:, None]

        def index_of(length: Tensor, *, right: bool = False) -> Tensor:
            return torch.searchsorted(self.shelved, length + shelf, right=right).clamp(begin, end)

        middle, first = index_of((shortest + longest) / 2), index_of(shortest - near)
        last, from_far = index_of(longest + near, right=True), index_of(far - longest)
        met = torch.maximum(first, middle - width), torch.minimum(last, middle + width), from_far.maximum(end - width)
        complete = (met[0] == first) & (met[1] == last) & (met[2] == from_far)
        whole = [at // COLUMNS * COLUMNS for at in (met[0], met[1] + COLUMNS - 1, met[2])]
        return torch.stack([*whole, end.expand_as(first)]).int().contiguous(), bool(complete.all())


def pair_sums(
    X: FloatArray, Z: FloatArray, groups: IntArray, folds: IntArray, *,
    n_groups: int, n_folds: int, device: str, scale: Literal["minmax"] | float = "minmax",
) -> PairSums:  # fmt: skip
    """See `evenout.core.pairwise.pair_sums`."""
    if scale != "minmax" and not (isinstance(scale, int | float) and 0 < scale < np.inf):
        raise ValueError(f"scale must be 'minmax' or a positive length, got {scale!r}")
    n_cells, width = n_groups * n_folds, Z.shape[1] + 1
    fused = width <= WIDEST and can_fuse(device, len(X) + n_cells * TILE, max(3 * X.shape[1] + 64, 2 * width))
    cells = upload(np.where(groups < 0, -1, groups * n_folds + folds), device)
    order, starts = order_by_cell(cells, n_cells, TILE if fused else 1)
    points, unit = _standardised(upload(X, device), cells >= 0)
    basis, coordinates = _uncorrelated(upload(Z, device), cells >= 0)
    real = torch.ones_like(order, dtype=torch.bool)
    real[1:] = order[1:] != order[:-1]
    scores = torch.cat([torch.ones_like(basis[:, :1]), basis], dim=1)[order] * real[:, None]
    rows = PaddedRows(points[order], scores, starts)
    members = upload(groups, device)
    lo, hi = measure_range(points, members, n_groups, fused=fused)
    if scale == "minmax" and hi > 0 and hi - lo <= _COARSE:
        lo, hi = measure_range(points, members, n_groups, fused=False, dtype=torch.float64)
    slope, offset = _exponent(lo, hi) if scale == "minmax" else _exponent(0.0, max(scale / unit, 1e-30))
    wide = slope * (hi - lo) > OCTAVES and slope < STEEPEST
    engine: Plain | Fused = (
        Fused(rows, real, wide=bool(wide))
        if fused and (wide or slope.dtype != np.float64)
        else Plain(rows, torch.float64 if slope.dtype == np.float64 else torch.float32)
    )
    # Similarities are computed in units of 2^-PEAK times the largest, and at the end in those that were asked for.
    peak = float(slope) * lo + PEAK
    factor = 2.0 ** (float(offset) - peak)
    form, mass = _sum_cells(rows, engine, n_groups, (max(float(slope), FLATTEST), peak))
    form = coordinates.T @ nearest_psd(form[..., 1:, 1:] * factor) @ coordinates
    return PairSums((form + form.swapaxes(-1, -2)) / 2, mass * factor)


def _standardised(rows: Tensor, known: Tensor) -> tuple[Tensor, float]:
    """Shift rows to mean 0 and divide them by one number, both of the known rows; their largest entry becomes 1."""
    unit = 1.0
    for centre in (False, True):
        if centre:
            rows = rows - rows[known].mean(dim=0)
        largest = float(rows[known].abs().max()) if known.any() else 0.0
        rows = rows / (largest or 1.0)
        unit *= largest or 1.0
    return rows, max(unit, np.finfo(float).tiny)


def _uncorrelated(Z: Tensor, known: Tensor) -> tuple[Tensor, FloatArray]:
    """Write Z, less the mean, as ``B R`` with uncorrelated columns of variance 1 in B, over the known rows."""
    Z, unit = _standardised(Z, known)
    some = Z[known]
    variances, axes = np.linalg.eigh((some.T @ some / max(len(some), 1)).cpu().numpy())
    spread = np.sqrt(np.maximum(variances, np.finfo(float).eps * variances[-1]))
    spread[spread == 0] = 1.0
    return Z @ torch.as_tensor(axes / spread).to(Z.device), unit * spread[:, None] * axes.T


def _sum_cells(
    rows: PaddedRows, engine: Plain | Fused, n_groups: int, exponent: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Form (N, K, K, w, w), not yet symmetric, and mass (N, K, K) of all pairs of groups."""
    n_all, w = len(rows.starts) - 1, rows.scores.shape[1]  # cells, and scores
    K = n_all // max(n_groups, 1)
    pairs = list(combinations(range(n_groups), 2))
    form, mass = np.zeros((len(pairs), K, K, w, w)), np.zeros((len(pairs), K, K))
    for p in range(n_groups - 1):
        columns = torch.zeros(K, rows.starts[-1], dtype=torch.float64, device=rows.scores.device)
        here, later = [pairs.index((p, q)) for q in range(p + 1, n_groups)], (p + 1) * K
        n_cells = n_all - later
        step = max(NUMBERS // (n_cells * 2 * w * engine.tile), 1) * engine.tile
        for f in range(K):
            # ``Z' diag(r) Z - 2 Z' M Z_c`` (cells, w, w) and ``sum r`` (cells,), with each cell c of later groups.
            left, total = rows.scores.new_zeros(n_cells, w, w), rows.scores.new_zeros(n_cells)
            start, stop = rows.starts[p * K + f : p * K + f + 2]
            for first in range(start, stop, step):
                z = rows.scores[first : min(first + step, stop)]
                product = engine.products(first, first + len(z), later, exponent, columns[f])
                left += z.T @ (product[..., :1] * z - 2 * product)
                total += product[..., 0] @ z[:, 0]
            form[here, f], mass[here, f] = left.cpu().numpy().reshape(-1, K, w, w), total.cpu().numpy().reshape(-1, K)
        for c in range(later, n_all):
            right = slice(rows.starts[c], rows.starts[c + 1])
            z = rows.scores[right]
            form[here[c // K - p - 1], :, c % K] += (z.T @ (columns[:, right, None] * z)).cpu().numpy()
    return form, mass
