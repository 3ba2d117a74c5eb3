"""Sums over all pairs of rows of different groups, exact or sampled.

Rows with close features should have close scores. With ``M_ij = exp(-delta_ij)`` the similarity of rows i and j, the
unfairness of the score ``y = Z v`` between groups p and q is ``sum_ij M_ij (y_i - y_j)^2 = v' F v``, where

    F = sum_ij M_ij (z_i - z_j)(z_i - z_j)' = Z_p' diag(r) Z_p + Z_q' diag(c) Z_q - Z_p' M Z_q - (Z_p' M Z_q)'

with ``r = M 1`` and ``c = M' 1``. Only tiles of M ever exist, and every pair is visited once.

M is computed in float32. F is a sum of non-negative terms, so a relative error in M is one in ``v' F v``, for every v.
Rounding in the products would hurt those v in which the scores hardly differ; in a basis of uncorrelated scores of
equal variance there is no such v, unless only rows of nearly the same score are similar. Where float32 is too coarse
for the distances, they are computed in float64.

The rows of two cells, in random order, are cut into m blocks each. *Shift* s pairs block a of one cell with block
``(a + s) mod m`` of the other: one m-th of the pairs. The effect of single rows, which is most of the variance of
independently drawn pairs, is the same in every shift. All m shifts are all pairs.

Visiting all of them takes a time that grows with the square of the number of rows. `sampled_pair_sums` visits a few of
the m shifts of every pair of cells. With ``F_s`` the sum over shift s, ``m / c sum_s F_s`` over c of the shifts has the
expectation F over the random orders, is positive semidefinite, and belongs to one pair of cells, so that folds subtract
as they do in the exact sums.

The shifts are visited in runs. The variance between runs, times ``1 - c / m``, gives the variance of the estimate
(simple random sampling without replacement); pairs of cells are uncorrelated, so that their variances add. The relevant
error is the one by direction,

    max_v |v'(C~ - C)v| / v'Cv,    C = sum_{p<q} F_pq / (n_p n_q),

the largest eigenvalue of a random matrix. Its root mean square is estimated by giving the runs' deviations random signs
(the wild bootstrap). No fixed direction has a larger standard error.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from evenout.core.content import row_numbers, shuffle_copies
from evenout.core.parallel import map_blocks, map_each, one_blas_thread
from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray

_COARSE = 0.01  # a range of distances, in units of the largest coordinate, for which float32 is too coarse
_ROUNDING = 1e-14  # distances that differ by less than this times the largest are equal


@dataclass(frozen=True)
class PairSums:
    """Sums over pairs of rows from two groups, for each pair of groups and each pair of folds.

    ``form`` (N, K, K, q, q) is ``sum_ij M_ij (z_i - z_j)(z_i - z_j)'`` over i in fold f of group p and j in fold f' of
    group q, for the N = G(G-1)/2 pairs p < q in the order of ``itertools.combinations(range(G), 2)``; each is symmetric
    and positive semidefinite. ``mass`` (N, K, K) is ``sum_ij M_ij``.
    """

    form: FloatArray
    mass: FloatArray

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

    X (n, d) are features, without protected attributes, and Z (n, q) scores, all finite. ``groups`` (n,) are codes in
    0..n_groups-1, or -1 for a row that is left out; ``folds`` (n,) are in 0..n_folds-1. With ``dist`` the Euclidean
    distance, ``scale="minmax"`` is ``delta = (dist - lo) / (hi - lo)`` over the smallest and largest distance between
    rows of different groups (the paper), 0 if these are equal; a number is ``delta = dist / scale``, where similarities
    below 1e-38 count as 0. The sums are the same, bit for bit, for any number of threads.

    Examples
    --------
    One row against two, at distances 3 and 5: the similarities are 1 and 1/e.

    >>> sums = pair_sums(np.array([[0.0], [3.0], [5.0]]), np.array([[0.0], [2.0], [1.0]]), np.array([0, 1, 1]),
    ...                  np.array([0, 0, 0]), n_groups=2, n_folds=1)
    >>> sums.mass.round(4).tolist(), sums.form.round(4).tolist()
    ([[[1.3679]]], [[[[[4.3679]]]]])
    """
    order, edges = _by_cell(groups, folds, n_groups, n_folds)
    rows, coordinates = _prepared(X[order], Z[order], scale, lambda points: _range(points, edges[::n_folds], n_threads))
    sums = [_group_sums(rows, edges[first:], n_folds, n_threads) for first in range(0, n_groups * n_folds, n_folds)]
    form = _restored(np.concatenate([form for form, _ in sums]), coordinates)
    return PairSums(form, np.concatenate([mass for _, mass in sums]))


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


class PairRows(NamedTuple):
    """Input of the kernels, rows of all cells: x (n, d), z (n, w), slope and offset of the exponent."""

    x: AnyArray
    z: Float32Array
    slope: np.floating[Any]
    offset: np.floating[Any]


def _prepared(
    X: FloatArray,
    Z: FloatArray,
    scale: Literal["minmax"] | float,
    find_range: Callable[[FloatArray], tuple[float, float]],
) -> tuple[PairRows, FloatArray]:
    """Rows for the kernels, with a first column of ones in z, and the coordinates R (q, q) of Z in its basis B.

    The centred Z is ``B R``, with B (n, q) uncorrelated columns of variance 1, or less if all is rounding.
    """
    if scale != "minmax" and not (isinstance(scale, int | float) and 0 < scale < np.inf):
        raise ValueError(f"scale must be 'minmax' or a positive length, got {scale!r}")
    points, unit = _standardised(X)
    slope, offset = _exponent(*(find_range(points) if scale == "minmax" else (0.0, max(scale / unit, 1e-30))))
    centred, unit = _standardised(Z)
    variances, axes = np.linalg.eigh(centred.T @ centred / max(len(Z), 1))
    spread = np.sqrt(np.maximum(variances, np.finfo(float).eps * variances[-1]))
    spread[spread == 0] = 1.0
    # Not a matrix product: with so few columns einsum is as fast, and leaves no threads of BLAS spinning behind.
    z = _padded(np.column_stack([np.ones(len(Z)), np.einsum("ni,ij->nj", centred, axes / spread)]), np.float32)
    return PairRows(_padded(points, slope.dtype), z, slope, offset), unit * spread[:, None] * axes.T


def _restored(form: FloatArray, coordinates: FloatArray) -> FloatArray:
    """Forms (..., w, w) of the columns of `_prepared` as forms (..., q, q) of Z."""
    q = len(coordinates)
    form = coordinates.T @ nearest_psd(form[..., 1 : 1 + q, 1 : 1 + q]) @ coordinates
    return (form + form.swapaxes(-1, -2)) / 2


def _by_cell(groups: IntArray, folds: IntArray, n_groups: int, n_folds: int) -> tuple[IntArray, IntArray]:
    """Order of the known rows by (group, fold), where each of these cells begins, and where the last one ends."""
    order = np.lexsort((folds, groups))
    order = order[groups[order] >= 0]
    return order, np.searchsorted(groups[order] * n_folds + folds[order], np.arange(n_groups * n_folds + 1))


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


def _range(points: FloatArray, bounds: IntArray, n_threads: int) -> tuple[float, float]:
    """Range of the distances between standardised rows of different groups; group p starts at row ``bounds[p]``.

    The two pairs of rows are found in float32, or in float64 where that is too coarse, and measured in float64.
    """
    from evenout.core._pair_kernels import block_extremes

    starts, lo, hi = bounds[1:], 0.0, 0.0
    blocks = [(first, last, starts[p]) for p, first, last in _row_blocks(bounds) if starts[p] < len(points)]
    for dtype in (np.float32, np.float64) if blocks else ():
        x = _padded(points, dtype)
        extremes = map_each(lambda block: block_extremes(x, *block), blocks, n_threads)  # noqa: B023 (called at once)
        near, far = min(extremes, key=lambda extreme: extreme[0])[1], max(extremes, key=lambda extreme: extreme[2])[3]
        # Distances of all rows of earlier groups to these two.
        earlier = bounds[np.searchsorted(bounds, (near, far), side="right") - 1].tolist()
        short, long = (cdist(points[:n], points[[row]]) for n, row in zip(earlier, (near, far), strict=True))
        lo, hi = float(short.min()), float(long.max())
        if not (hi > 0 and hi - lo <= _COARSE):
            break
    return lo, hi


def _exponent(lo: float, hi: float) -> tuple[np.floating[Any], np.floating[Any]]:
    """Slope and offset of ``exp(-(distance - lo) / (hi - lo)) = 2^(offset - slope * distance)``, or of 1 if lo is hi.

    Their type is the one to compute distances in: the rounding of coordinates near 1 must be small against ``hi - lo``.
    """
    if hi - lo <= _ROUNDING * hi:
        return np.float32(0), np.float32(0)
    dtype = np.float32 if hi - lo > _COARSE else np.float64
    slope = np.log2(np.e) / (hi - lo)
    return dtype(slope), dtype(slope * lo)


def _group_sums(rows: PairRows, edges: IntArray, n_folds: int, n_threads: int) -> tuple[FloatArray, FloatArray]:
    """Form (G', K, K, w, w), not yet symmetric, and mass (G', K, K) of one group with each of the G' groups after it.

    Cell b holds the rows ``edges[b]..edges[b + 1] - 1``; the first K cells are those of the group.
    """
    from evenout.core._pair_kernels import block_sums

    blocks, later = _row_blocks(edges[: n_folds + 1]), edges[n_folds:]
    cells, width = len(later) - 1, rows.z.shape[1]

    def visit(task: slice) -> tuple[FloatArray, FloatArray]:
        _, first, last = blocks[task.start]
        form, mass = np.zeros((cells, width, width)), np.zeros(cells)
        block_sums(rows.x, rows.z, first, last, later[:-1], later[1:], rows.slope, rows.offset, form, mass)
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
    from evenout.core._pair_kernels import TILE

    blocks = []
    for cell, (start, stop) in enumerate(pairwise(edges.tolist())):
        cuts = np.linspace(start, stop, -(-(stop - start) // TILE) + 1).astype(int).tolist()
        blocks += [(cell, first, last) for first, last in pairwise(cuts)]
    return blocks


def _padded(rows: FloatArray, dtype: npt.DTypeLike) -> AnyArray:
    """Copy the rows, with columns of 0 appended so that their number is a multiple of four."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 4) * 4), dtype)
    padded[:, : rows.shape[1]] = rows
    return padded


BLOCK = 64  # rows of the smaller cell in a block; with fewer, a shift is hardly faster, and has fewer pairs
GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly


@dataclass(frozen=True)
class PairSample:
    """Sums over the visited pairs of two cells, in R runs of equally many shifts, or in one if all are visited.

    ``small`` and ``large`` are the first row of each cell, and its last row + 1; ``weight`` is the weight of a pair in
    the sum over all pairs of cells, ``start`` in [0, 1) where in the cycle the first run begins. ``form`` (R, w, w) and
    ``mass`` (R,) are as in `PairSums`, of each run; ``shifts`` is their number in each run, ``visited`` that of all
    visited pairs.
    """

    small: tuple[int, int]
    large: tuple[int, int]
    weight: float
    start: float
    form: FloatArray
    mass: FloatArray
    shifts: int = 0
    visited: int = 0

    @property
    def pairs(self) -> int:
        """All pairs of the two cells."""
        return (self.small[1] - self.small[0]) * (self.large[1] - self.large[0])

    @property
    def factor(self) -> float:
        """Pairs for each visited one."""
        return self.pairs / max(self.visited, 1)

    @property
    def deviations(self) -> FloatArray:
        """R uncorrelated arrays of mean 0 with the covariance of the estimate ``factor * form.sum(axis=0)``, (R, w, w).

        Runs are taken as a simple random sample without replacement.
        """
        runs = len(self.form)
        return self.factor * np.sqrt((1 - 1 / self.factor) * runs / (runs - 1)) * (self.form - self.form.mean(axis=0))

    def grown(self, rows: PairRows, goal: float) -> Self:
        """Visit more shifts, for ``goal`` pairs in all, or every pair if there are not twice as many."""
        from evenout.core._pair_kernels import TILE

        if self.visited == self.pairs:
            return self
        n, runs = self.small[1] - self.small[0], len(self.mass)
        blocks = -(-n // BLOCK)
        shifts = max(1, round(goal / self.pairs * blocks / runs))
        if 2 * runs * shifts > blocks:
            blocks = -(-n // TILE)
            form, mass, visited = self._visit(rows, blocks, shift=0, length=blocks, runs=1)
            return replace(self, form=form, mass=mass, shifts=blocks, visited=visited)
        if shifts <= self.shifts:
            return self
        form, mass, visited = self._visit(rows, blocks, runs * self.shifts, shifts - self.shifts, runs)
        return replace(
            self, form=self.form + form, mass=self.mass + mass, shifts=shifts, visited=self.visited + visited
        )

    def _visit(
        self, rows: PairRows, blocks: int, shift: int, length: int, runs: int
    ) -> tuple[FloatArray, FloatArray, int]:
        """Sums of ``runs`` runs of ``length`` shifts, from ``shift`` on, and the number of pairs in them."""
        from evenout.core._pair_kernels import cycle_sums

        left, right = (np.linspace(first, last, blocks + 1).astype(np.intp) for first, last in (self.small, self.large))
        shift += int(self.start * blocks)
        form, mass = np.zeros((2 * runs, *self.form.shape[1:])), np.zeros(2 * runs)
        cycle_sums(rows.x, rows.z, left, right, shift, length, rows.slope, rows.offset, form, mass)
        form, mass = form[::2] + form[1::2], mass[::2] + mass[1::2]
        first = (np.arange(blocks) + shift) % blocks
        before = np.r_[0, np.cumsum(np.tile(np.diff(right), 2))]
        visited = np.diff(left) @ (before[first + runs * length] - before[first])
        return (form + form.swapaxes(-1, -2)) / 2, mass, int(visited)


def cell_pairs(edges: IntArray, n_groups: int, n_folds: int, runs: int, width: int) -> list[PairSample]:
    """Empty samples of all pairs of cells from different groups, in the order of `PairSums`.

    Cell b, which is a fold of group ``b // n_folds``, holds the rows ``edges[b]..edges[b + 1] - 1``. A pair counts
    ``1 / (n_p n_q)`` in groups of n_p and n_q rows. Blocks differ in size by a row, so that some rows have a few more
    partners than others: cycles begin at different places, so that these are not the same rows for all pairs of cells.
    """
    cells, sizes = list(pairwise(edges.tolist())), np.diff(edges[::n_folds]).tolist()
    nothing = np.zeros((runs, width, width)), np.zeros(runs)
    samples: list[PairSample] = []
    for p, q in combinations(range(n_groups), 2):
        for f, g in product(range(n_folds), repeat=2):
            a, b = cells[p * n_folds + f], cells[q * n_folds + g]
            small, large = (a, b) if a[1] - a[0] <= b[1] - b[0] else (b, a)
            start = GOLDEN * len(samples) % 1.0
            samples.append(PairSample(small, large, 1.0 / max(sizes[p] * sizes[q], 1), start, *nothing))
    return samples


METHODS = ("exact", "sampled", "auto")

_EXACT_PAIRS = 5e9  # "auto" visits all of them up to here: about ten seconds on two cores
_RANGE_PAIRS = 1e9  # up to here the range of the distances is found among all of them: about a second
_DEVIATIONS = 200  # runs in all pairs of cells together, which give the error to some 5 %
_RUNS = 2, 32  # at least and at most, in each pair of cells
_SIGNS = 100  # draws of the signs
_NULL = 1e-9  # directions in which C is below this times its largest value are outside its range
_FAR = 2**14  # rows among which the largest distance is searched
_SLACK = 6.0, 0.2  # of the search for the smallest distance: at most, and for each dimension


def estimate_pair_sums(
    X: FloatArray,
    Z: FloatArray,
    groups: IntArray,
    folds: IntArray,
    *,
    method: Literal["exact", "sampled", "auto"] = "auto",
    tolerance: float = 0.01,
    seed: int = 0,
    **shape: Any,
) -> tuple[PairSums, float]:
    """Pair sums, and their error: over all pairs of rows, or over a sample where there are very many.

    ``method="auto"`` visits all pairs up to 5e9 of them, which takes two cores about ten seconds, else a sample. All
    other arguments are those of `pair_sums` and `sampled_pair_sums`; the error is 0 if all pairs were visited.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if method == "exact" or (method == "auto" and cross_pairs(np.bincount(groups[groups >= 0])) <= _EXACT_PAIRS):
        return pair_sums(X, Z, groups, folds, **shape), 0.0
    return sampled_pair_sums(X, Z, groups, folds, **shape, tolerance=tolerance, seed=seed)


@one_blas_thread()
def sampled_pair_sums(
    X: FloatArray,
    Z: FloatArray,
    groups: IntArray,
    folds: IntArray,
    *,
    n_groups: int,
    n_folds: int,
    scale: Literal["minmax"] | float = "minmax",
    tolerance: float = 0.01,
    seed: int = 0,
    n_threads: int = 1,
) -> tuple[PairSums, float]:
    """Estimate the pair sums without bias, from as many pairs as the tolerance needs.

    Every pair of cells gets about the same number of sampled pairs, since groups have equal weight in C; if it has not
    twice as many, all are visited. The sample grows until the estimated error is within the tolerance, or everything
    is visited.

    Arguments are as in `pair_sums`; of more than 1e9 pairs, the range of the distances for ``"minmax"`` is approximate.
    ``tolerance`` is the relative error by direction, in root mean square, to stop at; ``seed`` that of the shuffles,
    which depend on the values of the rows, not on their order. The error, beside the sums, is the estimated root mean
    square over shuffles of ``max_v |v'(C~ - C)v| / v'Cv``, v in the range of C.

    Notes
    -----
    *Range.* If the smallest distance found is too large, or the largest too small, by a share e of the range,
    similarities are off by factors between 1 and ``exp(e)``, nearly the same for all pairs: a change of alpha. With
    normal rows in up to 20 dimensions e was at most 0.002. The error does not include this.

    *Short lengths.* Where only close rows are similar, few pairs count, and the same error takes more of them: some 1e6
    for 1 % with ``"minmax"``, 1e7 to 1e9 with a twentieth of the median distance, nearly all with a hundredth. Two
    alternatives did not pay: visiting all pairs within the leaves of a k-d tree takes 10 to 50 % off the variance,
    since most close rows lie in different leaves; drawing pairs of leaves by their distance could divide it by five to
    ten, but one shift of every pair of leaves has more pairs than the whole sample needs now. With a length so short
    that a handful of pairs decides, a sample that has missed them understates the error.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, Z, groups, folds = rng.random((20000, 2)), rng.random((20000, 3)), np.arange(20000) % 2, np.zeros(20000, int)
    >>> sums, error = sampled_pair_sums(X, Z, groups, folds, n_groups=2, n_folds=1)
    >>> 0 < error <= 0.01
    True
    """
    if not 0 <= tolerance < np.inf:
        raise ValueError(f"tolerance must be a number of at least 0, got {tolerance!r}")
    numbers = row_numbers(X, seed) ^ row_numbers(Z, seed + 1)
    order = np.lexsort((folds, groups, numbers))  # by content, not by place
    order = order[shuffle_copies(numbers[order], (numbers[order] >> np.uint64(11)).astype(float), seed)]
    by_cell, edges = _by_cell(groups[order], folds[order], n_groups, n_folds)
    order, bounds = order[by_cell], edges[::n_folds]
    rows, coordinates = _prepared(X[order], Z[order], scale, lambda points: _wide_range(points, bounds, n_threads))
    width, shape = rows.z.shape[1], (n_groups * (n_groups - 1) // 2, n_folds, n_folds)
    runs = min(max(_DEVIATIONS // max(int(np.prod(shape)), 1), _RUNS[0]), _RUNS[1])
    samples = cell_pairs(edges, n_groups, n_folds, runs, width)
    # As many pairs for each pair of cells: those in one shift of each run between the largest cells.
    goal, error = float(runs * BLOCK * np.diff(edges).max()), np.inf
    while error > tolerance:
        samples = map_each(lambda sample: sample.grown(rows, goal), samples, n_threads)  # noqa: B023 (called at once)
        error = _error_by_direction(samples, seed)
        goal *= np.clip(1.1 * (error / max(tolerance, 1e-9)) ** 2, 2.0, 32.0)
    mass = np.array([sample.factor * sample.mass.sum() for sample in samples])
    form = np.array([sample.factor * sample.form.sum(axis=0) for sample in samples])
    form = _restored(form.reshape(len(samples), width, width), coordinates)
    return PairSums(form.reshape(*shape, *form.shape[1:]), mass.reshape(shape)), error


def _error_by_direction(samples: list[PairSample], seed: int) -> float:
    """Root mean square of the largest relative error of ``sum weight factor form`` in any direction."""
    sampled = [sample for sample in samples if sample.visited < sample.pairs]
    if not sampled:
        return 0.0
    if not any(sample.mass.any() for sample in samples):
        return np.inf  # the sample has no similar rows
    deviations = np.concatenate([sample.weight * sample.deviations for sample in sampled])
    total = np.sum([sample.weight * sample.factor * sample.form.sum(axis=0) for sample in samples], axis=0)
    values, vectors = np.linalg.eigh(total[1:, 1:])  # the column of ones has only rounding errors
    kept = values > _NULL * values[-1]
    basis = vectors[:, kept] / np.sqrt(values[kept])  # the total is the identity in this basis
    relative = basis.T @ deviations[:, 1:, 1:] @ basis
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(_SIGNS, len(relative)))
    drawn = np.linalg.eigvalsh(np.einsum("sr,rab->sab", signs, relative, optimize=True))
    return float(np.sqrt((np.abs(drawn).max(axis=1, initial=0.0) ** 2).mean()))


def cross_pairs(sizes: IntArray) -> float:
    """Number of pairs of rows from different groups of these sizes."""
    return float(sizes.sum(dtype=float) ** 2 - (sizes.astype(float) ** 2).sum()) / 2


def _wide_range(points: FloatArray, bounds: IntArray, n_threads: int) -> tuple[float, float]:
    """Range of the distances between standardised rows of different groups, approximate if there are many pairs.

    The largest is searched among the rows of each group that are farthest from the centre, the smallest with a k-d tree
    that skips boxes in which no row can be closer than the closest so far divided by ``1 + slack``.
    """
    sizes = np.diff(bounds)
    if cross_pairs(sizes) <= _RANGE_PAIRS:
        return _range(points, bounds, n_threads)
    norms = np.einsum("ij,ij->i", points, points)
    far = [
        first + np.argsort(-norms[first:last], kind="stable")[: _FAR // len(sizes)]
        for first, last in pairwise(bounds.tolist())
    ]
    _, hi = _range(points[np.concatenate(far)], np.cumsum([0, *map(len, far)]), n_threads)
    lo, slack = hi, min(_SLACK[0], _SLACK[1] * points.shape[1])
    for first, last in pairwise(bounds[:-1].tolist()):
        tree = cKDTree(points[last:], balanced_tree=False, compact_nodes=False)
        for start in range(first, last, _FAR):
            if lo > 0:
                part = points[start : min(start + _FAR, last)]
                near, _ = tree.query(part, eps=slack, distance_upper_bound=lo, workers=n_threads)
                lo = min(lo, np.min(near))
    return float(lo), hi
