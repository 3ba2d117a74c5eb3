"""Sums over pairs of rows from different groups, from which individual fairness is measured and solved.

Rows with close features should have close scores. With ``M_ij = exp(-delta_ij)`` the similarity of rows i and j, the
unfairness of the score ``y = Z v`` between groups p and q is ``sum_ij M_ij (y_i - y_j)^2 = v' F v``, where

    F = sum_ij M_ij (z_i - z_j)(z_i - z_j)' = Z_p' diag(r) Z_p + Z_q' diag(c) Z_q - Z_p' M Z_q - (Z_p' M Z_q)'

with ``r = M 1`` and ``c = M' 1``. Only tiles of M ever exist, and every pair is visited once.

M is computed in float32. F is a sum of non-negative terms, so a relative error in M is one in ``v' F v``, for every v.
Rounding in the products would hurt those v in which the scores hardly differ; in a basis of uncorrelated scores of
equal variance there is no such v, unless only rows of nearly the same score are alike. Where float32 cannot tell the
distances apart, they are computed in float64.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from evenout.core.compiled import map_blocks, one_blas_thread
from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray

_COARSE = 0.01  # where delta counts in lengths below this times the largest coordinate, float32 is too coarse
_ROUNDING = 1e-14  # distances that differ by less than this times the largest are equal


@dataclass(frozen=True)
class PairSums:
    """Sums over pairs of rows from two groups, for each pair of groups and each pair of folds.

    Parameters
    ----------
    form : array of shape (N, K, K, q, q)
        ``sum_ij M_ij (z_i - z_j)(z_i - z_j)'`` over i in fold f of group p and j in fold f' of group q, for the
        N = G(G-1)/2 pairs p < q in the order of ``itertools.combinations(range(G), 2)``. Each is symmetric and
        positive semidefinite.
    mass : array of shape (N, K, K)
        ``sum_ij M_ij``.
    """

    form: FloatArray
    mass: FloatArray

    def __add__(self, other: "PairSums") -> "PairSums":
        """Add the sums over two disjoint sets of pairs."""
        return PairSums(self.form + other.form, self.mass + other.mass)

    def within(self) -> tuple[FloatArray, FloatArray]:
        """Form and mass of the pairs with both rows in one fold, shapes (N, K, q, q) and (N, K)."""
        return np.einsum("nffab->nfab", self.form), np.einsum("nff->nf", self.mass)

    def total(self) -> tuple[FloatArray, FloatArray]:
        """Form and mass over all folds, shapes (N, q, q) and (N,)."""
        return self.form.sum(axis=(1, 2)), self.mass.sum(axis=(1, 2))


@one_blas_thread()
def pair_sums(
    X: FloatArray,
    Z: FloatArray,
    groups: IntArray,
    folds: IntArray,
    *,
    n_groups: int,
    n_folds: int,
    scale: Literal["minmax"] | float = "minmax",
    n_threads: int = 1,
) -> PairSums:
    """Sum ``M_ij`` and ``M_ij (z_i - z_j)(z_i - z_j)'`` over all pairs of rows from different groups.

    Parameters
    ----------
    X : array of shape (n, d)
        Features, without protected attributes; finite.
    Z : array of shape (n, q)
        Scores; finite.
    groups : array of shape (n,)
        Codes in 0..n_groups-1, or -1 for a row that is left out.
    folds : array of shape (n,)
        Folds in 0..n_folds-1.
    n_groups, n_folds : int
    scale : "minmax" or float
        With ``dist`` the Euclidean distance, ``delta = (dist - lo) / (hi - lo)`` over the smallest and largest distance
        between rows of different groups (the paper), 0 if these are equal; or ``delta = dist / scale``, where
        similarities below 1e-38 count as 0.
    n_threads : int
        The sums are the same, bit for bit, for any number of threads.

    Returns
    -------
    PairSums

    Examples
    --------
    One row against two, at distances 3 and 5: the similarities are 1 and 1/e.

    >>> sums = pair_sums(np.array([[0.0], [3.0], [5.0]]), np.array([[0.0], [2.0], [1.0]]), np.array([0, 1, 1]),
    ...                  np.array([0, 0, 0]), n_groups=2, n_folds=1)
    >>> sums.mass.round(4).tolist(), sums.form.round(4).tolist()
    ([[[1.3679]]], [[[[[4.3679]]]]])
    """
    if scale != "minmax" and not (isinstance(scale, int | float) and 0 < scale < np.inf):
        raise ValueError(f"scale must be 'minmax' or a positive length, got {scale!r}")
    order, edges = _by_cell(groups, folds, n_groups, n_folds)
    points, unit = _standardised(X[order])
    if scale == "minmax":
        slope, offset = _exponent(*_range(points, edges[::n_folds], n_threads))
    else:
        slope, offset = _exponent(0.0, max(scale / unit, 1e-30))
    basis, coordinates = _uncorrelated(Z[order])
    x, z = _padded(points, slope.dtype), _padded(np.column_stack([np.ones(len(order)), basis]), np.float32)
    sums = [
        _group_sums(x, z, edges[first:], n_folds, slope, offset, n_threads)
        for first in range(0, n_groups * n_folds, n_folds)
    ]
    form = np.concatenate([form for form, _ in sums])[..., 1 : 1 + Z.shape[1], 1 : 1 + Z.shape[1]]
    form = coordinates.T @ nearest_psd(form) @ coordinates
    return PairSums((form + form.swapaxes(-1, -2)) / 2, np.concatenate([mass for _, mass in sums]))


def distance_range(X: FloatArray, groups: IntArray, n_groups: int, *, n_threads: int = 1) -> tuple[float, float]:
    """Smallest and largest Euclidean distance between rows of different groups; both 0 if there is no such pair.

    The two pairs of rows are found in float32 and measured in float64. Where several pairs are so close to an extreme
    that float32 cannot tell which it is (1e-6 of the largest distance), any of them may be the one measured.

    >>> distance_range(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), np.array([0, 1, 1]), 2)
    (5.0, 10.0)
    """
    order, bounds = _by_cell(groups, np.zeros_like(groups), n_groups, 1)
    points, unit = _standardised(X[order])
    lo, hi = _range(points, bounds, n_threads)
    return lo * unit, hi * unit


def nearest_psd(form: FloatArray) -> FloatArray:
    """Find the positive semidefinite array nearest to ``form``, shape (..., q, q), in the Frobenius norm.

    >>> nearest_psd(np.array([[2.0, 0.0], [0.0, -1.0]])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    form = (form + form.swapaxes(-1, -2)) / 2
    for cell in np.ndindex(form.shape[:-2]):
        try:
            np.linalg.cholesky(form[cell])  # a fraction of the time of the eigenvalues, and mostly all that is needed
        except np.linalg.LinAlgError:
            values, vectors = eigh(form[cell], subset_by_value=(-np.inf, 0.0))
            form[cell] -= (vectors * values) @ vectors.T
    return form


def _by_cell(groups: IntArray, folds: IntArray, n_groups: int, n_folds: int) -> tuple[IntArray, IntArray]:
    """Order the known rows by (group, fold), and tell where each of these cells begins, and the last one ends."""
    order = np.lexsort((folds, groups))
    order = order[groups[order] >= 0]
    cells = groups[order] * n_folds + folds[order]
    return order, np.searchsorted(cells, np.arange(n_groups * n_folds + 1))


def _standardised(rows: FloatArray) -> tuple[FloatArray, float]:
    """Shift the rows, in place, to mean 0 and divide them by one number, also returned: the largest entry becomes 1."""
    rows, unit = np.asarray(rows, dtype=np.float64), 1.0
    for centre in (False, True):  # the division comes first too: the sum of huge values would overflow
        if centre:
            rows -= rows.sum(axis=0) / max(len(rows), 1)
        largest = float(max(rows.max(initial=0.0), -rows.min(initial=0.0))) or 1.0
        rows /= largest
        unit *= largest
    return rows, max(unit, np.finfo(float).tiny)


def _uncorrelated(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Write the centred Z as ``B R``, with B (n, q) uncorrelated columns of variance 1, or less if all is rounding."""
    Z, unit = _standardised(Z)
    variances, axes = np.linalg.eigh(Z.T @ Z / max(len(Z), 1))
    spread = np.sqrt(np.maximum(variances, np.finfo(float).eps * variances[-1]))
    spread[spread == 0] = 1.0
    # Not a matrix product: with so few columns einsum is as fast, and leaves no threads of BLAS spinning behind.
    return np.einsum("ni,ij->nj", Z, axes / spread), unit * spread[:, None] * axes.T


def _range(points: FloatArray, bounds: IntArray, n_threads: int) -> tuple[float, float]:
    """Range of the distances between standardised rows of different groups; group p starts at row ``bounds[p]``."""
    lo, hi = _range_found_in(np.float32, points, bounds, n_threads)
    if hi > 0 and hi - lo <= _COARSE:
        lo, hi = _range_found_in(np.float64, points, bounds, n_threads)
    return lo, hi


def _range_found_in(dtype: npt.DTypeLike, points: FloatArray, bounds: IntArray, n_threads: int) -> tuple[float, float]:
    """Find the two pairs of rows in numbers of this type, and measure them in float64."""
    from evenout.core._pairwise_kernels import block_extremes

    x = _padded(points, dtype)
    blocks = [
        (first, last, bounds[group + 1])
        for group, first, last in _row_blocks(bounds)
        if bounds[group + 1] < len(points)
    ]
    if not blocks:
        return 0.0, 0.0
    found = map_blocks(lambda task: block_extremes(x, *blocks[task.start]), len(blocks), 1, n_threads)

    def distances(row: int) -> FloatArray:
        """Distances of all rows of earlier groups to this one."""
        own = bounds[np.searchsorted(bounds, row, side="right") - 1]
        return cdist(points[:own], points[row : row + 1])

    _, near, _, _ = min(found, key=lambda extremes: extremes[0])
    _, _, _, far = max(found, key=lambda extremes: extremes[2])
    return float(distances(near).min()), float(distances(far).max())


def _exponent(lo: float, hi: float) -> tuple[np.floating[Any], np.floating[Any]]:
    """Slope and offset of ``exp(-(distance - lo) / (hi - lo)) = 2^(offset - slope * distance)``, or of 1 if lo is hi.

    Their type is the one to compute distances in: the rounding of coordinates near 1 must be small against ``hi - lo``.
    """
    if hi - lo <= _ROUNDING * hi:
        return np.float32(0), np.float32(0)
    dtype = np.float32 if hi - lo > _COARSE else np.float64
    slope = np.log2(np.e) / (hi - lo)
    return dtype(slope), dtype(slope * lo)


def _group_sums(
    x: AnyArray,
    z: Float32Array,
    edges: IntArray,
    n_folds: int,
    slope: np.floating[Any],
    offset: np.floating[Any],
    n_threads: int,
) -> tuple[FloatArray, FloatArray]:
    """Form (G', K, K, w, w), not yet symmetric, and mass (G', K, K) of one group with each of the G' groups after it.

    Cell b holds the rows ``edges[b]..edges[b + 1] - 1``; the first K cells are those of the group.
    """
    from evenout.core._pairwise_kernels import block_sums

    blocks, later = _row_blocks(edges[: n_folds + 1]), edges[n_folds:]
    cells, width = len(later) - 1, z.shape[1]

    def visit(task: slice) -> tuple[FloatArray, FloatArray]:
        _, first, last = blocks[task.start]
        form, mass = np.zeros((cells, width, width)), np.zeros(cells)
        block_sums(x, z, first, last, later[:-1], later[1:], slope, offset, form, mass)
        return form, mass

    form, mass = np.zeros((n_folds, cells, width, width)), np.zeros((n_folds, cells))
    for (fold, _, _), part in zip(blocks, map_blocks(visit, len(blocks), 1, n_threads), strict=True):
        form[fold] += part[0]
        mass[fold] += part[1]
    shape = (n_folds, cells // n_folds, n_folds)
    return form.reshape(*shape, width, width).swapaxes(0, 1), mass.reshape(shape).swapaxes(0, 1)


def _row_blocks(edges: IntArray) -> list[tuple[int, int, int]]:
    """Cut every cell into nearly equal blocks of rows, one task each: (cell, first row, last row + 1).

    The size is fixed, so that the sums do not depend on the number of threads.
    """
    from evenout.core._pairwise_kernels import TILE

    blocks = []
    for cell, (start, stop) in enumerate(pairwise(edges.tolist())):
        cuts = np.linspace(start, stop, -(-(stop - start) // TILE) + 1).astype(int).tolist()
        blocks += [(cell, first, last) for first, last in pairwise(cuts)]
    return blocks


def _padded(rows: FloatArray, dtype: npt.DTypeLike) -> AnyArray:
    """Copy the rows, with columns of 0 added so that their number is a multiple of four."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 4) * 4), dtype)
    padded[:, : rows.shape[1]] = rows
    return padded
