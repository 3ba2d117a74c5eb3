"""Which mixtures of a row and the typical row are scored, and how their scores become one part for each feature.

A *mixture* takes some features from the row and all others from the typical row. With v(T) the score of the mixture
that takes the features T from the row, the part of feature j is its Shapley value

    part_j = mean over all orders of the features of  v(those before j, and j) - v(those before j):

what it adds to the score when the typical row is turned into this one, feature by feature, in no particular order.
Parts add up to ``v(all) - v(none)``, a feature at its typical value has the part 0, and features that do the same have
the same part.

Up to `ALL` features, all mixtures are scored. Beyond, at least `PAIRS` random orders are walked there and back:
features enter one by one and leave in the same order, which is the opposite order of entering. Where no more than two
features act together, one such pair is exact already (antithetic sampling; Mitchell et al. 2022). The orders are the
same for all rows, so that rows that hardly differ get reasons that hardly differ.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np

from evenout.core.types import BoolArray, FloatArray, IntArray

ALL = 10
PAIRS = 6
_MIXTURES = 256  # of few features, so many are scored at least
_SEED = 20240229


@dataclass(frozen=True, eq=False)
class Orders:
    """A walk over mixtures of p features.

    Parameters
    ----------
    steps : array of int, shape (L - 1,)
        The feature that enters or leaves at each step; the walk begins at the typical row.
    p, pairs : int
        Number of features, and of orders walked there and back; 0 pairs: the walk meets every mixture once.
    """

    steps: IntArray
    p: int
    pairs: int

    @cached_property
    def taken(self) -> BoolArray:
        """Whether each mixture takes each feature from the row, shape (L, p)."""
        entered = np.zeros((len(self.steps) + 1, self.p), dtype=np.intp)
        entered[np.arange(1, len(entered)), self.steps] = 1
        return entered.cumsum(axis=0) % 2 == 1

    @property
    def end(self) -> int:
        """The place of the row itself, among the mixtures."""
        return int(self.taken.all(axis=1).argmax())

    def parts(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Parts of the features and their standard errors, shape (m, p, c), of values at the mixtures, (m, L, c).

        The error is that of taking some orders for all, 0 where all mixtures were scored.
        """
        if not self.pairs:
            without, entered, weight = self._entries
            parts = np.einsum("ph,mphc->mpc", weight, values[:, entered] - values[:, without])
            return parts, np.zeros_like(parts)
        changes = np.diff(values, axis=1).reshape(len(values), self.pairs, 2, self.p, -1)
        each = (changes[:, :, 0] - changes[:, :, 1]) / 2.0  # entering, and leaving
        back = np.argsort(self.steps.reshape(self.pairs, 2, self.p)[:, 0], axis=1)
        each = np.take_along_axis(each, back[None, :, :, None], axis=2)
        return each.mean(axis=1), each.std(axis=1, ddof=1) / np.sqrt(self.pairs)

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """All mixtures without each feature, the same with it, and the share of the orders in which it so enters.

        Each has the shape (p, 2^(p - 1)).
        """
        number = self.taken @ (1 << np.arange(self.p))
        place = np.argsort(number)
        without = np.array([np.flatnonzero(~self.taken[:, j]) for j in range(self.p)])
        entered = place[number[without] + (1 << np.arange(self.p))[:, None]]
        share = 1.0 / (self.p * np.array([comb(self.p - 1, size) for size in range(self.p)]))
        return without, entered, share[self.taken.sum(axis=1)[without]]


@lru_cache(maxsize=32)
def draw_orders(p: int, *, limit: int = ALL) -> Orders:
    """The walk for p features; of p alone, so that every model and every row of as many features has the same.

    >>> draw_orders(3).taken.astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1], [0, 0, 1]]
    """
    if p <= limit:  # Gray's code: the feature that changes is the place of the lowest 1 in the number of the step
        number = np.arange(1, 2**p)
        return Orders(np.log2(number & -number).astype(np.intp), p, 0)
    rng, pairs = np.random.default_rng(_SEED), max(PAIRS, _MIXTURES // (2 * p))
    orders = np.array([rng.permutation(p) for _ in range(pairs)])
    return Orders(np.repeat(orders, 2, axis=0).ravel(), p, pairs)
