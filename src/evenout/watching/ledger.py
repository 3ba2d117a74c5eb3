"""The sums that a watch keeps of each batch, and the comparisons that follow from them.

Groups are compared within each batch: the mean of a group with the means of all others, mixed as in the reference. What
moves all scores of a batch moves no gap, and neither does another mix of groups. Batches add up by how much each says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evenout.core.sequences import upper_bound
from evenout.core.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class BatchSums:
    """One batch, in sums of each of G groups, all of shape (G,).

    Parameters
    ----------
    name : str
    place : int
        Which batch it was where it was counted, from 1.
    counts : array
        Rows.
    ranks, flagged : array
        Sums of the ranks, and flagged rows.
    rank_spread, flag_spread : array
        Sums of squared distances from what was guessed before the batch came.
    others : dict
        Rows of groups that are not compared; those without a group are under "".
    """

    name: str
    place: int
    counts: FloatArray
    ranks: FloatArray
    flagged: FloatArray
    rank_spread: FloatArray
    flag_spread: FloatArray
    others: Mapping[str, int]

    def same(self, other: "BatchSums") -> bool:
        """Whether both are of the same rows: guesses may differ, rows do not."""
        parts = ("counts", "ranks", "flagged")
        equal = all(np.array_equal(getattr(self, name), getattr(other, name)) for name in parts)
        return equal and dict(self.others) == dict(other.others)


def sum_batch(
    name: str,
    place: int,
    ranks: FloatArray,
    flagged: FloatArray,
    codes: IntArray,
    guesses: tuple[FloatArray, FloatArray],
    others: Mapping[str, int],
) -> BatchSums:
    """Sums of rows with a rank, a flag of 0 or 1, and a group; ``guesses`` are of mean rank and flag rate, (G,)."""
    n_groups = len(guesses[0])

    def total(values: FloatArray) -> FloatArray:
        return np.bincount(codes, weights=values, minlength=n_groups).astype(float)

    spreads = [total((x - guess[codes]) ** 2) for x, guess in zip((ranks, flagged), guesses, strict=True)]
    counts = total(np.ones(len(codes)))
    return BatchSums(name, place, counts, total(ranks), total(flagged), spreads[0], spreads[1], others)


@dataclass(frozen=True)
class Contrast:
    """Differences between each group and the rest, by place: weighted sums, their spread and weights, (P, G) each."""

    sums: FloatArray
    spread: FloatArray
    weight: FloatArray

    def since(self) -> "Contrast":
        """From each place on: everything that came later is added."""
        return Contrast(*(part[::-1].cumsum(axis=0)[::-1] for part in (self.sums, self.spread, self.weight)))

    def until(self) -> "Contrast":
        """Up to each place: everything that came before is added."""
        return Contrast(*(part.cumsum(axis=0) for part in (self.sums, self.spread, self.weight)))

    def interval(self, level: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Ends of the difference, each missed with a chance of ``level`` at most; -1 and 1 where nothing is known."""
        reach = upper_bound(self.spread, level)
        known = self.weight > 0
        weight = np.where(known, self.weight, 1.0)
        low = np.where(known, (self.sums - reach) / weight, -1.0)
        high = np.where(known, (self.sums + reach) / weight, 1.0)
        return np.maximum(low, -1.0), np.minimum(high, 1.0)


class Ledger:
    """All batches of a watch, each counted once, in the order of their places."""

    def __init__(self, batches: Mapping[str, BatchSums], n_groups: int) -> None:
        self.batches = sorted(batches.values(), key=lambda batch: (batch.place, batch.name))
        self.n_groups = n_groups
        places = np.array([batch.place for batch in self.batches], dtype=np.int64)
        self.places, self._at = np.unique(places, return_inverse=True)

    def names(self, place: int) -> str:
        """What the batches at one place, counted from 0, are called."""
        return ", ".join(batch.name for batch, at in zip(self.batches, self._at, strict=True) if at == place)

    def column(self, name: str) -> FloatArray:
        """One kind of sum, of all batches: (B, G)."""
        return np.array([getattr(batch, name) for batch in self.batches]).reshape(-1, self.n_groups)

    def total(self, name: str) -> FloatArray:
        """One kind of sum over all batches, shape (G,)."""
        return self.column(name).sum(axis=0)

    def by_place(self, values: FloatArray) -> FloatArray:
        """Sum (B, ...) over the batches of each place: (P, ...)."""
        summed = np.zeros((len(self.places), *values.shape[1:]))
        np.add.at(summed, self._at, values)
        return summed

    def contrast(self, name: str, shares: FloatArray, own: float = 1.0, rest: float = 1.0) -> Contrast:
        """``own`` times a group's mean less ``rest`` times that of all others, of "ranks" or "flagged".

        The others are mixed as in the reference, by their ``shares`` (G,), whatever the mix of the batch.
        """
        n, x = self.column("counts"), self.column(name)
        spread = self.column("rank_spread" if name == "ranks" else "flag_spread")
        size, part = np.maximum(n, 1.0), shares * (n > 0)
        known = (n > 0) & (_others(n) > 0)
        left = np.where(known, _others(part), 1.0)
        even = 1.0 / (1.0 / size + _others(part**2 / size) / left**2)  # as the inverse of a variance
        most = np.where(part > 0, size / np.where(part > 0, part, 1.0), np.inf).min(axis=1, keepdims=True)
        weight = np.where(known, np.minimum(even, most * left), 0.0)  # no row counts more than once
        here, there = own * weight / size, rest * weight / left
        sums = here * x - there * _others(part * x / size)
        noise = here**2 * spread + there**2 * _others((part / size) ** 2 * spread)
        return Contrast(self.by_place(sums), self.by_place(noise), self.by_place(weight))


def _others(values: FloatArray) -> FloatArray:
    """The sum over all other groups, shape (B, G)."""
    return np.maximum(values.sum(axis=1, keepdims=True) - values, 0.0)
