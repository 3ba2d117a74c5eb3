"""Folds over partitions: by content, and as in memory wherever the rows' numbers can be collected."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from evenout.core.folds import row_numbers
from evenout.core.types import BoolArray, FloatArray, IntArray

Numbers: TypeAlias = npt.NDArray[np.uint64]
SmallInts: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Collected:
    """Row numbers and group codes of the rows to deal out, by the partition's index, in the order of its rows."""

    numbers: Mapping[int, Numbers]
    codes: Mapping[int, IntArray]

    def __add__(self, other: "Collected") -> "Collected":
        return Collected({**self.numbers, **other.numbers}, {**self.codes, **other.codes})

    def joined(self) -> tuple[Numbers, IntArray]:
        """Numbers and codes of all partitions, in their order."""
        parts = sorted(self.numbers)
        return (
            np.concatenate([self.numbers[part] for part in parts]),
            np.concatenate([self.codes[part] for part in parts]),
        )


@dataclass(frozen=True)
class Folds:
    """Folds of all rows.

    The rows of some groups are collected and dealt out in the order of their numbers, as `core.folds.assign_folds`
    does, so that fold sizes differ by one at most; a row of any other group goes to fold ``number mod K``.

    Parameters
    ----------
    n_folds : int
    seed : int
    dealt : array of bool, (G + 1,)
        Which groups are dealt out; the last entry is for rows of unknown group.
    given : mapping
        From a partition's index to the folds of its dealt rows, in their order.
    """

    n_folds: int
    seed: int
    dealt: BoolArray
    given: Mapping[int, SmallInts]

    @classmethod
    def deal(cls, rows: Collected, dealt: BoolArray, n_folds: int, seed: int) -> "Folds":
        """Deal the collected rows of each group out."""
        numbers, codes = rows.joined()
        folds = np.empty(len(numbers), dtype=np.int8)
        for code in np.unique(codes):
            own = np.flatnonzero(codes == code)
            folds[own[np.argsort(numbers[own], kind="stable")]] = np.arange(len(own)) % n_folds
        parts = sorted(rows.numbers)
        cuts = np.cumsum([len(rows.numbers[part]) for part in parts])[:-1]
        return cls(n_folds, seed, dealt, dict(zip(parts, np.split(folds, cuts), strict=True)))

    def of(self, S: FloatArray, codes: IntArray, given: Iterator[np.int8]) -> IntArray:
        """Folds of rows with scores S, shape (m,); ``given`` has those of the dealt rows that come next."""
        folds = self._hashed(row_numbers(S, self.seed))
        rows = np.flatnonzero(self.dealt[codes])
        folds[rows] = np.fromiter(given, dtype=np.int8, count=len(rows))
        return folds

    def find(self, rows: Collected, S: FloatArray, codes: IntArray) -> IntArray:
        """Folds of rows that are among all rows, found by their scores and groups, shape (m,)."""
        numbers = row_numbers(S, self.seed)
        folds = self._hashed(numbers)
        known, known_codes = rows.joined()
        known_folds = np.concatenate([self.given[part] for part in sorted(self.given)])
        for code in np.unique(codes[self.dealt[codes]]):
            own = np.flatnonzero(known_codes == code)
            own = own[np.argsort(known[own])]
            place = np.searchsorted(known[own], numbers[codes == code])
            folds[codes == code] = known_folds[own[np.minimum(place, len(own) - 1)]]
        return folds

    def _hashed(self, numbers: Numbers) -> IntArray:
        return (numbers % np.uint64(self.n_folds)).astype(np.intp)
