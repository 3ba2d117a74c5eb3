"""Sums over pairs of rows with torch: in fused kernels on a GPU, or block by block on any device.

Mathematics and notation are those of `evenout.core.pairwise`. Rows lie in the order of their cells (a fold of a
group). For each cell, an engine computes ``M z`` with every cell of the later groups, and the column sums of M; what
remains is small and done in float64.
"""

from itertools import combinations
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from evenout.core.pairwise import _COARSE, PairSums, _exponent, nearest_psd
from evenout.core.types import FloatArray, IntArray
from evenout.gpu._torch_engines import (
    FLATTEST,
    NUMBERS,
    OCTAVES,
    PEAK,
    STEEPEST,
    TILE,
    WIDEST,
    Fused,
    PaddedRows,
    PairEngine,
    Plain,
)
from evenout.gpu._torch_range import measure_range
from evenout.gpu._torch_rows import can_fuse, order_by_cell, upload


def pair_sums(
    X: FloatArray, Z: FloatArray, groups: IntArray, folds: IntArray, *,
    n_groups: int, n_folds: int, scale: Literal["minmax"] | float, device: str,
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
    rows = PaddedRows(points[order], scores, starts, n_folds)
    place = upload(groups, device)
    lo, hi = measure_range(points, place, n_groups, fused=fused)
    if scale != "minmax":
        slope, offset = _exponent(0.0, max(scale / unit, 1e-30))
    else:
        if hi > 0 and hi - lo <= _COARSE:
            lo, hi = measure_range(points, place, n_groups, fused=False, dtype=torch.float64)
        slope, offset = _exponent(lo, hi)
    wide = slope * (hi - lo) > OCTAVES and slope < STEEPEST
    engine: PairEngine
    if fused and (wide or slope.dtype != np.float64):
        engine = Fused(rows, real, wide=bool(wide))
    else:
        engine = Plain(rows, torch.float64 if slope.dtype == np.float64 else torch.float32)
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
    rows: PaddedRows, engine: PairEngine, n_groups: int, exponent: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Form (N, K, K, w, w), not yet symmetric, and mass (N, K, K) of all pairs of groups."""
    K, w, device = rows.n_folds, rows.scores.shape[1], rows.scores.device
    pairs = list(combinations(range(n_groups), 2))
    form = np.zeros((len(pairs), K, K, w, w))
    mass = np.zeros((len(pairs), K, K))
    for p in range(n_groups - 1):
        columns = torch.zeros(K, rows.starts[-1], dtype=torch.float64, device=device)
        here = [pairs.index((p, q)) for q in range(p + 1, n_groups)]
        for f in range(K):
            left, total = _sum_rows(rows, engine, p * K + f, exponent, columns[f])
            form[here, f] = left.reshape(-1, K, w, w)
            mass[here, f] = total.reshape(-1, K)
        for c in range((p + 1) * K, rows.n_cells):
            right = slice(rows.starts[c], rows.starts[c + 1])
            z = rows.scores[right]
            weighted = z.T @ (columns[:, right, None] * z)
            form[here[c // K - p - 1], :, c % K] += weighted.cpu().numpy()
    return form, mass


def _sum_rows(
    rows: PaddedRows, engine: PairEngine, cell: int, exponent: tuple[float, float], column: Tensor
) -> tuple[FloatArray, FloatArray]:
    """``Z' diag(r) Z - 2 Z' M Z_c`` (cells, w, w) and ``sum r`` (cells,) of a cell with each c of later groups."""
    first_cell, w = rows.later(cell), rows.scores.shape[1]
    n_cells = rows.n_cells - first_cell
    form = rows.scores.new_zeros(n_cells, w, w)
    mass = rows.scores.new_zeros(n_cells)
    step = max(NUMBERS // (n_cells * 2 * w * engine.tile), 1) * engine.tile
    for first in range(rows.starts[cell], rows.starts[cell + 1], step):
        last = min(first + step, rows.starts[cell + 1])
        product = engine.products(first, last, first_cell, exponent, column)
        z = rows.scores[first:last]
        form += z.T @ (product[..., :1] * z - 2 * product)
        mass += product[..., 0] @ z[:, 0]
    return form.cpu().numpy(), mass.cpu().numpy()
