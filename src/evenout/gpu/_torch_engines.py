"""Two engines for the sums over pairs of rows: fused kernels, and plain torch.

The fused engine rounds M to half precision, and uses the rounded M in every term: the form is then exact for an M
that is off by 2^-11 at most, so that ``v' F v`` is too, for every v. Where similarities span many octaves, so that few
pairs count and those are close, ``wide=True`` keeps 16 bits of M, and distances are known well enough for that.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from evenout.gpu._torch_rows import scale_to_halves, split, squared_distances

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
    """Rows in the order of their cells, each cell padded with copies of its last row to whole tiles.

    Attributes
    ----------
    points : tensor of float64, (N, d)
        Features, shifted to mean 0 and scaled to a largest entry of 1.
    scores : tensor of float64, (N, w)
        1 and the scores, uncorrelated and of variance 1; all 0 in padding.
    starts : list of int
        First row of each cell, and the end of the last.
    n_folds : int
        Cells of a group.
    """

    points: Tensor
    scores: Tensor
    starts: list[int]
    n_folds: int

    @property
    def n_cells(self) -> int:
        """Number of cells, of all groups."""
        return len(self.starts) - 1

    def later(self, cell: int) -> int:
        """First cell of the groups after that of ``cell``."""
        return (cell // self.n_folds + 1) * self.n_folds


class PairEngine(Protocol):
    """Computes on the rows ``first..last - 1`` of one group and all cells from ``cell`` on."""

    tile: int

    def products(self, first: int, last: int, cell: int, exponent: tuple[float, float], column: Tensor) -> Tensor:
        """``M z`` with each cell, (cells, rows, w); adds the column sums of M to ``column`` (N,).

        ``M_ij = 2^(offset - slope * distance)``, and ``exponent = (slope, offset)``.
        """


class Plain:
    """Block after block with torch alone, the distances in ``dtype`` and all products in float64."""

    tile = 1

    def __init__(self, rows: PaddedRows, dtype: torch.dtype) -> None:
        self.rows, self.points = rows, rows.points.to(dtype)

    def _blocks(self, first: int, last: int, n_columns: int) -> list[slice]:
        step = max(NUMBERS // max(n_columns, 1), 1)
        return [slice(start, min(start + step, last)) for start in range(first, last, step)]

    def products(self, first: int, last: int, cell: int, exponent: tuple[float, float], column: Tensor) -> Tensor:
        """See `PairEngine`."""
        rows, (slope, offset) = self.rows, exponent
        out = rows.scores.new_zeros(rows.n_cells - cell, last - first, rows.scores.shape[1])
        for c in range(cell, rows.n_cells):
            right = slice(rows.starts[c], rows.starts[c + 1])
            for block in self._blocks(first, last, right.stop - right.start):
                distance = squared_distances(self.points[block], self.points[right]).sqrt_()
                M = torch.exp2(offset - slope * distance).double()
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

    def _shape(self, tile: int) -> dict[str, Any]:
        return {
            "WIDTH": self.halves.left.shape[1],
            "CHUNK": self.halves.chunk,
            "ROWS": tile,
            "COLUMNS": COLUMNS,
            "num_stages": 3 if self.halves.left.shape[1] == self.halves.chunk else 2,
        }

    def products(self, first: int, last: int, cell: int, exponent: tuple[float, float], column: Tensor) -> Tensor:
        """See `PairEngine`."""
        from evenout.gpu._triton_kernels import pair_products

        n_cells, width = self.rows.n_cells - cell, self.high.shape[1]
        slope, offset = exponent[0] / self.unit, exponent[1]
        product = self.halves.norm.new_empty(n_cells, last - first, width)
        few = width <= 32  # then, held to 168 registers, three programs share a multiprocessor
        tile = TILE // 2 if few and self.wide else TILE
        pair_products[(last - first) // tile, n_cells](
            self.halves.left, self.halves.right, self.halves.norm, self.real, self.features, self.high, self.low,
            self.starts, product, column, slope, offset, slope * DOUBT, first // tile, cell, last - first,
            len(self.real), self.rows.points.shape[1], **self._shape(tile), SCORES=width, SEGMENT=SEGMENT,
            WIDE=self.wide, num_warps=4 if few else 8, maxnreg=168 if few else None,
        )  # fmt: skip
        return product[..., : self.rows.scores.shape[1]].double()
