"""The smallest and the largest distance between rows of different groups, with torch.

The rows of a group lie in the order of their lengths. Two rows are no nearer to each other than their lengths differ,
and no further apart than these add up to. So once one pair is known to be near, and one to be far, fused kernels meet
a tile with those rows of another group alone whose lengths leave it open; how near and how far is found by meeting few
rows first, and then more. Kernels find the rows, up to rounding, and float64 measures them.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from evenout.gpu._torch_engines import COLUMNS, NUMBERS, TILE
from evenout.gpu._torch_rows import (
    order_by_cell,
    rounding_of_halves,
    scale_to_halves,
    split,
    squared_distances,
)

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

    def squared(candidates: Tensor, same: float) -> Tensor:
        distances = squared_distances(rows[candidates], rows)
        return distances.masked_fill_(group[candidates, None] == group, same)

    return float(squared(near, np.inf).min()) ** 0.5, float(squared(far, 0.0).max()) ** 0.5


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
    """The same by the fused kernel, in its units, up to rounding; infinite for rows that have no part in the range.

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
        begin, end = (self.bounds[at:, None] for at in (group + 1, group + 2))
        begin = begin[:-1]
        shelf = SHELF * torch.arange(group + 1, self.n_groups, device=own.device)[:, None]

        def place(length: Tensor, *, right: bool = False) -> Tensor:
            return torch.searchsorted(self.shelved, length + shelf, right=right).clamp(begin, end)

        middle, first = place((shortest + longest) / 2), place(shortest - near)
        last, from_far = place(longest + near, right=True), place(far - longest)
        met = torch.maximum(first, middle - width), torch.minimum(last, middle + width), from_far.maximum(end - width)
        complete = (met[0] == first) & (met[1] == last) & (met[2] == from_far)
        whole = [at // COLUMNS * COLUMNS for at in (met[0], met[1] + COLUMNS - 1, met[2])]
        return torch.stack([*whole, end.expand_as(first)]).int().contiguous(), bool(complete.all())
