"""Pair sums of individual fairness: which rows are alike, and whether all pairs are visited or a sample of them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evenout.backends import gpu
from evenout.core.cells import Pairs
from evenout.core.pairwise import PairSums
from evenout.core.sampling import estimate_pair_sums
from evenout.core.similarity import LengthScale, comparable_rows, effective_pairs
from evenout.core.types import FloatArray, IntArray


@dataclass(frozen=True)
class Likeness:
    """Rows that can be compared, and how.

    Parameters
    ----------
    rows : array of shape (n, d)
        Features on the scale on which distances are measured.
    scale : "minmax" or float
        The distance at which likeness fades.
    method : {"auto", "exact", "sampled"}
        Visit all pairs, or a sample; a GPU visits all.
    seed, n_threads : int
    device : {"cpu", "cuda"}
    """

    rows: FloatArray
    scale: Literal["minmax"] | float
    method: Literal["auto", "exact", "sampled"]
    seed: int
    n_threads: int
    device: str

    @classmethod
    def of(
        cls,
        X: FloatArray,
        groups: IntArray,
        length_scale: LengthScale,
        *,
        method: Literal["auto", "exact", "sampled"],
        seed: int,
        n_threads: int,
        device: str,
    ) -> "Likeness":
        """Likeness of feature rows X (n, d), of which some are in groups."""
        return cls(*comparable_rows(X, groups, length_scale), method, seed, n_threads, device)

    def effective_pairs(self, groups: IntArray) -> float:
        """How many pairs of rows of different groups the likeness rests on."""
        return effective_pairs(self.rows, groups, self.scale)

    def sums(
        self, Z: FloatArray, groups: IntArray, folds: IntArray, *, n_groups: int, n_folds: int
    ) -> tuple[PairSums, float]:
        """Sums over pairs of rows of different groups, weighted by likeness, and the error of a sample of them.

        Parameters
        ----------
        Z : array of shape (n, k + 1)
            Detector scores and target, whose differences are summed.
        groups, folds : arrays of shape (n,)
        n_groups, n_folds : int

        Returns
        -------
        sums : PairSums
        error : float
            Relative error in the worst direction, in root mean square; 0 where all pairs were visited.
        """
        shape: dict[str, Any] = {"n_groups": n_groups, "n_folds": n_folds}
        if self.device != "cpu":
            found = gpu.pair_sums(self.rows, Z, groups, folds, **shape, scale=self.scale, device=self.device)
            return found, 0.0
        way: dict[str, Any] = {
            "scale": self.scale,
            "method": self.method,
            "seed": self.seed,
            "n_threads": self.n_threads,
        }
        return estimate_pair_sums(self.rows, Z, groups, folds, **shape, **way)

    def among(self, Z: FloatArray, groups: IntArray, n_groups: int) -> tuple[Pairs, float]:
        """The sums over the pairs of all rows with a group, as one set, and their error."""
        one = np.zeros(len(Z), dtype=np.intp)
        sums, error = self.sums(Z, groups, one, n_groups=n_groups, n_folds=1)
        form, mass = sums.total()
        return Pairs(form[None], mass[None]), error
