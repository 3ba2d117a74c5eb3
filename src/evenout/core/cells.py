"""Sums per cell: the few small arrays that answer every later question without touching the rows again.

Rows are split into K folds, and a *cell* is one fold of one group. With ``z = (1, s_1, ..., s_k, t)`` the augmented
row, a cell keeps ``sum z z'`` and ``sum beta z z'``; for individual fairness, pairs of cells keep the pair sums.
Chunks of rows add, folds subtract, groups combine.
"""

from dataclasses import dataclass, replace

import numpy as np

from evenout.core.pairwise import PairSums
from evenout.core.types import FloatArray, IntArray


@dataclass(frozen=True)
class Cells:
    """Sums over the rows of each cell, K folds by G groups.

    Parameters
    ----------
    plain : array of shape (K, G + 1, k + 2, k + 2)
        ``sum z z'`` over the cell's rows. The last group slot holds the rows of unknown group.
    weighted : array of shape (K, G + 1, k + 2, k + 2)
        ``sum beta z z'``.
    pairs : PairSums or None
        Sums over pairs of rows from different groups, when individual fairness is asked for.
    own : array of shape (k, k) or None
        A fairness form of the user's own; it stands for all rows and knows neither folds nor the target.
    """

    plain: FloatArray
    weighted: FloatArray
    pairs: PairSums | None = None
    own: FloatArray | None = None

    @property
    def n_folds(self) -> int:
        """Number of folds K."""
        return self.plain.shape[0]

    @property
    def n_groups(self) -> int:
        """Number of groups G."""
        return self.plain.shape[1] - 1

    @property
    def n_detectors(self) -> int:
        """Number of detectors k."""
        return self.plain.shape[2] - 2

    @property
    def group_counts(self) -> FloatArray:
        """Rows in each group, shape (G,)."""
        return self.plain[:, :-1, 0, 0].sum(axis=0)

    @property
    def fold_counts(self) -> FloatArray:
        """Rows in each fold, unknown groups included, shape (K,)."""
        return self.plain[:, :, 0, 0].sum(axis=1)

    def least_squares(self) -> tuple[FloatArray, FloatArray, float]:
        """``A = S' diag(beta) S``, ``b = S' diag(beta) t`` and ``c0 = t' diag(beta) t``."""
        total = self.weighted.sum(axis=(0, 1))
        return total[1:-1, 1:-1], total[1:-1, -1], float(total[-1, -1])

    def __add__(self, other: "Cells") -> "Cells":
        """Merge the sums of two chunks of rows (pair sums do not merge: pairs across chunks are missing)."""
        if self.pairs is not None or other.pairs is not None:
            raise ValueError(
                "cells with pair sums cannot be added: pairs of rows across the chunks are missing"
            )
        return Cells(self.plain + other.plain, self.weighted + other.weighted)

    def without(self, fold: int) -> "Cells":
        """The cells of all rows outside ``fold``."""
        kept = (np.arange(self.n_folds) != fold)[:, None, None, None]
        pairs = None if self.pairs is None else self.pairs.without(fold)
        return replace(self, plain=self.plain * kept, weighted=self.weighted * kept, pairs=pairs)


def rank_weights(t: FloatArray) -> FloatArray:
    """``beta_i = exp(rank_i / n)``, ranks of ``t`` ascending from 1 to n, ties averaged.

    >>> np.log(rank_weights(np.array([0.1, 0.9, 0.5, 0.5]))).round(12).tolist()
    [0.25, 1.0, 0.625, 0.625]
    """
    from scipy.stats import rankdata  # takes longer to import than the rest of this package

    return np.exp(rankdata(t) / len(t))


def collect_cells(
    S: FloatArray,
    t: FloatArray,
    beta: FloatArray,
    groups: IntArray,
    folds: IntArray,
    *,
    n_groups: int,
    n_folds: int,
) -> Cells:
    """Sum the augmented rows ``z = (1, s, t)`` over each cell.

    Parameters
    ----------
    S : array of shape (n, k)
    t, beta : arrays of shape (n,)
    groups : array of shape (n,)
        Codes in 0..n_groups-1, or -1 for a row that counts in f1 and in the variance, but in no group.
    folds : array of shape (n,)
        Folds in 0..n_folds-1.
    n_groups, n_folds : int
        Given, not counted, so that chunks that miss a group or a fold still add.
    """
    size = S.shape[1] + 2
    plain = np.zeros((n_folds, n_groups + 1, size, size))
    weighted = np.zeros_like(plain)
    for fold in range(n_folds):
        for group in range(-1, n_groups):  # -1 is the last slot, where the unknown rows belong
            rows = np.flatnonzero((folds == fold) & (groups == group))
            Z = np.column_stack([np.ones(len(rows)), S[rows], t[rows]])
            plain[fold, group] = Z.T @ Z
            weighted[fold, group] = (Z.T * beta[rows]) @ Z
    return Cells(plain, weighted)
