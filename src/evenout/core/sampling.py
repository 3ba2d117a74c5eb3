"""Pair sums of individual fairness from a sample of the pairs, with the error that the sample leaves.

The sums of `evenout.core.pairwise` take a time that grows with the square of the number of rows. Here a few of the m
shifts of every pair of cells are visited (see `evenout.core.cycles`), with the rows of a cell in random order. With
``F_s`` the sum over shift s, ``m / c sum_s F_s`` over c of the shifts has the expectation F over the random orders, is
positive semidefinite, and belongs to one pair of cells, so that folds subtract as they do in the exact sums.

The shifts are visited in runs. How the runs differ, times ``1 - c / m``, gives the variance of the estimate (simple
random sampling without replacement); pairs of cells are uncorrelated, so that their variances add. The error that
matters is the one by direction,

    max_v |v'(C~ - C)v| / v'Cv,    C = sum_{p<q} F_pq / (n_p n_q),

the largest eigenvalue of a random matrix. Its root mean square is estimated by giving the runs' deviations random signs
(the wild bootstrap). No fixed direction has a larger standard error.
"""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.spatial import cKDTree

from evenout.core.compiled import map_blocks, one_blas_thread
from evenout.core.cycles import BLOCK, Rows, Sample, cell_pairs
from evenout.core.folds import row_numbers
from evenout.core.pairwise import (
    PairSums,
    _by_cell,
    _exponent,
    _padded,
    _range,
    _standardised,
    _uncorrelated,
    nearest_psd,
    pair_sums,
)
from evenout.core.types import FloatArray, IntArray

METHODS = ("exact", "sampled", "auto")

_EXACT_PAIRS = 5e9  # "auto" visits all of them up to here: about ten seconds on two cores
_RANGE_PAIRS = 1e9  # up to here the range of the distances is found among all of them: about a second
_DEVIATIONS = 200  # runs in all pairs of cells together, from which the error is known to some 5 %
_RUNS = 2, 32  # at least and at most, in each pair of cells
_SIGNS = 100  # draws of the signs
_NULL = 1e-9  # directions in which C is below this times its largest value are outside its range
_FAR = 2**14  # rows among which the largest distance is sought
_SLACK = 6.0, 0.2  # of the search for the smallest distance: at most, and for each dimension


def estimate_pair_sums(
    X: FloatArray,
    Z: FloatArray,
    groups: IntArray,
    folds: IntArray,
    *,
    n_groups: int,
    n_folds: int,
    scale: Literal["minmax"] | float = "minmax",
    method: Literal["exact", "sampled", "auto"] = "auto",
    tolerance: float = 0.01,
    seed: int = 0,
    n_threads: int = 1,
) -> tuple[PairSums, float]:
    """Pair sums over all pairs of rows, or over a sample of them where there are very many.

    Parameters
    ----------
    X, Z, groups, folds, n_groups, n_folds, scale, n_threads
        As in `evenout.core.pairwise.pair_sums`.
    method : {"exact", "sampled", "auto"}
        ``"auto"`` visits all pairs up to 5e9 of them, which takes two cores about ten seconds, and else a sample.
    tolerance, seed
        As in `sampled_pair_sums`.

    Returns
    -------
    sums : PairSums
    error : float
        Relative error by direction, in root mean square; 0 where all pairs were visited.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    settings: dict[str, Any] = {
        "n_groups": n_groups,
        "n_folds": n_folds,
        "scale": scale,
        "n_threads": n_threads,
    }
    sizes = np.bincount(groups[groups >= 0], minlength=n_groups)
    if method == "exact" or (method == "auto" and _cross_pairs(sizes) <= _EXACT_PAIRS):
        return pair_sums(X, Z, groups, folds, **settings), 0.0
    return sampled_pair_sums(X, Z, groups, folds, **settings, tolerance=tolerance, seed=seed)


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
    """Estimate the pair sums without bias, from as many pairs as the tolerance asks for.

    Every pair of cells gets about the same number of sampled pairs, since groups count alike in C; where it has not
    twice as many, all are visited. The sample grows until the estimated error is within the tolerance, or everything
    is visited.

    Parameters
    ----------
    X, Z, groups, folds, n_groups, n_folds, n_threads
        As in `evenout.core.pairwise.pair_sums`.
    scale : "minmax" or float
        As there. Of more than 1e9 pairs, the range of the distances for ``"minmax"`` is sought, not measured.
    tolerance : float
        Relative error by direction, in root mean square, to stop at.
    seed : int
        Of the shuffles, which depend on the values of the rows, not on their order.

    Returns
    -------
    sums : PairSums
    error : float
        Estimated root mean square over shuffles of ``max_v |v'(C~ - C)v| / v'Cv``, v in the range of C.

    Notes
    -----
    *Range.* If the smallest distance found is too large, or the largest too small, by a share e of the range,
    similarities are off by factors between 1 and ``exp(e)``, nearly the same for all pairs: a change of alpha. With
    normal rows in up to 20 dimensions e was at most 0.002. The error does not include this.

    *Short lengths.* Where only close rows are alike, few pairs count, and the same error takes more of them: some 1e6
    for 1 % with ``"minmax"``, 1e7 to 1e9 with a twentieth of the median distance, nearly all with a hundredth. What did
    not pay: visiting all pairs within the leaves of a k-d tree takes 10 to 50 % off the variance, since most close rows
    lie in different leaves; drawing pairs of leaves by their distance could divide it by five to ten, but one shift of
    every pair of leaves has more pairs than the whole sample needs now. With a length so short that a handful of
    pairs decides, a sample that has missed them shows too small an error.

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
    if scale != "minmax" and not (isinstance(scale, int | float) and 0 < scale < np.inf):
        raise ValueError(f"scale must be 'minmax' or a positive length, got {scale!r}")
    order = _shuffled(X, Z, groups, folds, seed)
    by_cell, edges = _by_cell(groups[order], folds[order], n_groups, n_folds)
    order = order[by_cell]
    points, unit = _standardised(X[order])
    if scale == "minmax":
        slope, offset = _exponent(*_wide_range(points, edges[::n_folds], n_threads))
    else:
        slope, offset = _exponent(0.0, max(scale / unit, 1e-30))
    basis, coordinates = _uncorrelated(Z[order])
    z = _padded(np.column_stack([np.ones(len(order)), basis]), np.float32)
    rows = Rows(_padded(points, slope.dtype), z, slope, offset)
    samples, error = _sampled(rows, edges, n_groups, n_folds, tolerance, seed, n_threads)
    mass = np.array([sample.factor * sample.mass.sum() for sample in samples])
    form = np.array([sample.factor * sample.form.sum(axis=0) for sample in samples])
    form = form.reshape(len(samples), z.shape[1], z.shape[1])
    form = coordinates.T @ nearest_psd(form[:, 1 : 1 + Z.shape[1], 1 : 1 + Z.shape[1]]) @ coordinates
    shape = n_groups * (n_groups - 1) // 2, n_folds, n_folds
    form = ((form + form.swapaxes(-1, -2)) / 2).reshape(*shape, *form.shape[1:])
    return PairSums(form, mass.reshape(shape)), error


def _sampled(
    rows: Rows, edges: IntArray, n_groups: int, n_folds: int, tolerance: float, seed: int, n_threads: int
) -> tuple[list[Sample], float]:
    """Sample all pairs of cells until the relative error that is left is within the tolerance."""
    count = n_groups * (n_groups - 1) // 2 * n_folds**2
    runs = min(max(_DEVIATIONS // max(count, 1), _RUNS[0]), _RUNS[1])
    samples = cell_pairs(edges, n_groups, n_folds, runs, rows.z.shape[1])
    # As many pairs for each pair of cells: those in one shift of each run between the largest cells.
    goal, error = float(runs * BLOCK * np.diff(edges).max()), np.inf

    def grow(task: slice) -> Sample:
        return samples[task.start].grown(rows, goal)

    while error > tolerance:
        samples = map_blocks(grow, len(samples), 1, n_threads)
        error = _error_by_direction(samples, seed)
        goal *= np.clip(1.1 * (error / max(tolerance, 1e-9)) ** 2, 2.0, 32.0)
    return samples, error


def _error_by_direction(samples: list[Sample], seed: int) -> float:
    """Root mean square of the largest relative error of ``sum weight factor form`` in any direction."""
    sampled = [sample for sample in samples if sample.visited < sample.pairs]
    if not sampled:
        return 0.0
    if not any(sample.mass.any() for sample in samples):
        return np.inf  # no rows that are alike have been met
    deviations = np.concatenate([sample.weight * sample.deviations for sample in sampled])
    total = np.sum([sample.weight * sample.factor * sample.form.sum(axis=0) for sample in samples], axis=0)
    values, vectors = np.linalg.eigh(total[1:, 1:])  # what is left of the ones is rounding
    kept = values > _NULL * values[-1]
    basis = vectors[:, kept] / np.sqrt(values[kept])  # the total is the identity in this basis
    relative = basis.T @ deviations[:, 1:, 1:] @ basis
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(_SIGNS, len(relative)))
    drawn = np.linalg.eigvalsh(np.einsum("sr,rab->sab", signs, relative, optimize=True))
    return float(np.sqrt((np.abs(drawn).max(axis=1, initial=0.0) ** 2).mean()))


def _shuffled(X: FloatArray, Z: FloatArray, groups: IntArray, folds: IntArray, seed: int) -> IntArray:
    """Random order of the rows that depends on what they hold, not on where they stand.

    Copies of a row would draw the same number and stay together; so they are numbered, and draw again.
    """
    numbers = row_numbers(X, seed) ^ row_numbers(Z, seed + 1)
    order = np.lexsort((folds, groups, numbers))
    numbers = numbers[order]
    first = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]][: len(order)])
    copy = np.arange(len(order)) - np.repeat(first, np.diff(np.r_[first, len(order)]))
    drawn = row_numbers(np.column_stack([(numbers >> np.uint64(11)).astype(float), copy]), seed)
    return order[np.argsort(drawn, kind="stable")]


def _cross_pairs(sizes: IntArray) -> float:
    """Pairs of rows from different groups of these sizes."""
    return float(sizes.sum(dtype=float) ** 2 - (sizes.astype(float) ** 2).sum()) / 2


def _wide_range(points: FloatArray, bounds: IntArray, n_threads: int) -> tuple[float, float]:
    """Range of the distances between standardised rows of different groups, sought where there are too many pairs.

    The largest is sought among the rows of each group that are farthest from the centre, the smallest with a k-d tree
    that passes over boxes in which no row can be closer than the closest so far divided by ``1 + slack``.
    """
    sizes = np.diff(bounds)
    if _cross_pairs(sizes) <= _RANGE_PAIRS:
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
