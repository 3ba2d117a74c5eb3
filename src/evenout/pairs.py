"""Pair sums of individual fairness: which rows are alike, and who visits the pairs, a GPU, all cores, or a sample."""

from typing import Literal

from evenout.backends import gpu
from evenout.core.pairwise import PairSums
from evenout.core.sampling import estimate_pair_sums
from evenout.core.similarity import LengthScale, comparable_rows
from evenout.core.types import FloatArray, IntArray


def similar_pairs(
    X: FloatArray,
    Z: FloatArray,
    groups: IntArray,
    folds: IntArray,
    *,
    n_groups: int,
    n_folds: int,
    length_scale: LengthScale,
    method: Literal["auto", "exact", "sampled"],
    seed: int,
    n_threads: int,
    device: str,
) -> tuple[PairSums, float]:
    """Sums over pairs of rows of different groups, weighted by likeness, and the error of a sample of them.

    Parameters
    ----------
    X : array of shape (n, d)
        Features, which tell what is alike.
    Z : array of shape (n, k + 1)
        Detector scores and target, whose differences are summed.
    groups, folds : arrays of shape (n,)
    n_groups, n_folds : int
    length_scale, method, device
        As the estimator's ``length_scale``, ``pairs`` and ``device``; a GPU visits all pairs.
    seed, n_threads : int

    Returns
    -------
    sums : PairSums
    error : float
        Relative error in the worst direction, in root mean square; 0 where all pairs were visited.
    """
    rows, scale = comparable_rows(X, groups, length_scale)
    shape = {"n_groups": n_groups, "n_folds": n_folds}
    if device != "cpu":
        return gpu.pair_sums(rows, Z, groups, folds, **shape, scale=scale, device=device), 0.0
    return estimate_pair_sums(
        rows, Z, groups, folds, **shape, scale=scale, method=method, seed=seed, n_threads=n_threads
    )
