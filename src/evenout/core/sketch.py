"""Mergeable summaries of streams of rows: ranks with a guaranteed error, and frequent values.

Both are small, add up over chunks of rows in any order, and have an error bound that holds for every input: nothing
here is random.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Annotated

import numpy as np
import numpy.typing as npt

from evenout.core.content import changes
from evenout.core.types import MOST_ROWS, FloatArray, IntArray, Within, require

LEVELS = 50  # in a file; each has twice the weight of the one before
CAPACITY = 16384  # values per level: rank error below 1e-3 for up to 10^12 values


@dataclass(frozen=True)
class QuantileSketch:
    """Values with weights 1, 2, 4, ... that represent a longer list of values.

    Level h holds at most ``capacity`` values of weight ``2^h``. A level that grows longer is sorted, and every
    second value of it moves up with twice the weight (Munro and Paterson 1980). For any x, that changes the weight of
    the values up to x by at most ``2^h``, upwards if the odd places stay and downwards if the even ones do, and the two
    alternate so that both bounds grow alike. One level is compacted at most ``n / (2^h capacity)`` times:

        rank error  <=  (number of levels) / (2 capacity)  of n, nearly

    and the stated error is the sum of the errors of its compactions.

    ``levels`` hold the values of each level, unsorted; without a ``capacity`` every value is kept, and ranks are exact.
    The number of values up to any x is overstated by at most ``above`` and understated by at most ``below``.

    Examples
    --------
    >>> sketch = QuantileSketch.of(np.array([0.3, 0.1]), None) + QuantileSketch.of(np.array([0.3]), None)
    >>> sketch.ranks(np.array([0.1, 0.3])).tolist(), sketch.quantile(0.5)
    ([1.0, 2.5], 0.3)
    """

    levels: tuple[Annotated[FloatArray, "*"], ...]
    capacity: Annotated[int, Within(1)] | None = CAPACITY
    above: Annotated[int, Within(0)] = 0
    below: Annotated[int, Within(0)] = 0

    def check(self) -> None:
        """Require at least one value, and no more than can be counted."""
        require(1 <= len(self.levels) <= LEVELS and 1 <= self.count <= MOST_ROWS, "levels", "has the wrong length")

    @classmethod
    def of(cls, values: FloatArray, capacity: int | None = CAPACITY) -> "QuantileSketch":
        """Summarise values of shape (n,)."""
        return cls((values,), capacity)._compacted()

    def __add__(self, other: "QuantileSketch") -> "QuantileSketch":
        """Summarise two lists of values together."""
        levels = tuple(map(np.concatenate, zip_longest(self.levels, other.levels, fillvalue=np.empty(0))))
        return replace(self, levels=levels, above=self.above + other.above, below=self.below + other.below)._compacted()

    @property
    def count(self) -> int:
        """Number n of values that the sketch represents."""
        return sum(len(values) << h for h, values in enumerate(self.levels))

    @property
    def rank_error(self) -> float:
        """Bound of the error of a rank, as a share of n."""
        return max(self.above, self.below) / max(self.count, 1)

    def ranks(self, x: FloatArray) -> FloatArray:
        """Rank of each x (m,) among the values, 1..n, ties averaged."""
        values, upto = self._table
        order = np.argsort(x)  # lookups in rising order are close together in memory
        rising, ranks = x[order], np.empty(len(x))
        first, last = np.searchsorted(values, rising, side="left"), np.searchsorted(values, rising, side="right")
        ranks[order] = (upto[first] + upto[last] + 1) / 2.0
        return ranks

    def share_from(self, x: float) -> float:
        """Share of the values that are x or more."""
        values, upto = self._table
        return 1.0 - float(upto[np.searchsorted(values, x, side="left")]) / max(self.count, 1)

    def quantile(self, share: float) -> float:
        """The value below which ``share`` of the values lie, linear between neighbours, as `numpy.quantile`."""
        return _between_neighbours(self.at, share, self.count)

    def at(self, place: int) -> float:
        """The value at a place from 0 to n - 1 in rising order."""
        values, upto = self._table
        return float(values[np.searchsorted(upto, place, side="right") - 1])

    def bounds(self, share: float) -> tuple[float, float]:
        """Two values of the sketch with the quantile of all values between them; infinite where there is none.

        A value with at most k values below it is no more than the one at place k, and one with more than k values up
        to it no less; ``above`` and ``below`` bound the error of counts by the sketch.
        """
        place = share * (self.count - 1)
        if len(self.levels) == 1 and self.count:  # every value is kept: the two neighbours, without sorting
            ends = [int(np.floor(place)), int(np.ceil(place))]
            low, high = np.partition(self.levels[0], ends)[ends]
            return float(low), float(high)
        values, upto = self._table
        first = int(np.searchsorted(upto, np.floor(place) - self.below, side="right")) - 1
        last = int(np.searchsorted(upto, np.ceil(place) + 1 + self.above, side="left")) - 1
        return (float(values[first]) if first >= 0 else -np.inf, float(values[last]) if last < len(values) else np.inf)

    @cached_property
    def _table(self) -> tuple[FloatArray, IntArray]:
        """The values sorted, shape (m,), and the weight before each of them and after the last, shape (m + 1,)."""
        if len(self.levels) == 1:
            return np.sort(self.levels[0]), np.arange(len(self.levels[0]) + 1)
        values = np.concatenate(self.levels)
        weights = np.repeat(1 << np.arange(len(self.levels)), [len(level) for level in self.levels])
        order = np.argsort(values, kind="stable")
        return values[order], np.r_[0, np.cumsum(weights[order])]

    def _compacted(self) -> "QuantileSketch":
        """Move values up until no level is longer than the capacity."""
        if self.capacity is None:
            return self
        levels, above, below = list(self.levels), self.above, self.below
        for h, values in enumerate(levels):  # the list grows while it is walked through
            if len(values) <= self.capacity:
                continue
            even, ordered, odd = len(values) // 2 * 2, np.sort(values), above <= below
            above, below = (above + (1 << h), below) if odd else (above, below + (1 << h))
            levels[h] = ordered[even:]
            if h + 1 == len(levels):
                levels.append(np.empty(0))
            levels[h + 1] = np.concatenate([levels[h + 1], ordered[0 if odd else 1 : even : 2]])
        return replace(self, levels=tuple(levels), above=above, below=below)


@dataclass(frozen=True)
class Narrowed:
    """A second pass over values, which keeps all of those between two bounds of a quantile.

    ``low`` and ``high`` are the bounds (`QuantileSketch.bounds`), ``count`` is the number of all values, ``upto`` that
    of values up to ``low``, and ``between`` a sketch of the values above ``low`` and below ``high``.
    """

    low: float
    high: float
    count: int
    upto: int
    between: QuantileSketch

    @classmethod
    def of(cls, values: FloatArray, bounds: tuple[float, float], capacity: int | None = CAPACITY) -> "Narrowed":
        """Summarise values of shape (n,)."""
        low, high = bounds
        between = values[(values > low) & (values < high)]
        return cls(low, high, len(values), int((values <= low).sum()), QuantileSketch.of(between, capacity))

    def __add__(self, other: "Narrowed") -> "Narrowed":
        """Summarise two lists of values together."""
        count, upto = self.count + other.count, self.upto + other.upto
        return replace(self, count=count, upto=upto, between=self.between + other.between)

    def quantile(self, share: float) -> float:
        """The quantile between the bounds, as `QuantileSketch.quantile`."""
        return _between_neighbours(self._at, share, self.count)

    def _at(self, place: int) -> float:
        inside = place - self.upto
        if inside < 0:
            return self.low
        return self.between.at(inside) if inside < self.between.count else self.high


def _between_neighbours(at: Callable[[int], float], share: float, count: int) -> float:
    place = share * (count - 1)
    low, high = at(int(np.floor(place))), at(int(np.ceil(place)))
    return float(low + (high - low) * (place - np.floor(place)))


@dataclass(frozen=True)
class FrequentValues:
    """Values that may make up a large share of a list (Misra and Gries 1982).

    Of n values, one that occurs c times has a counter of at least ``c - n / (capacity + 1)`` and at most c. ``values``
    (m,) are distinct and sorted, m at most ``capacity``, with their ``counts`` (m,); ``missed`` bounds the occurrences
    that a counter, or a value without one, has missed. So ``values[counts + missed >= c]`` are all values that occur c
    times or more, and perhaps some that occur less often.

    Examples
    --------
    >>> frequent = FrequentValues.of(np.array([7, 7, 7, 1, 2, 3], dtype=np.uint64), capacity=2)
    >>> frequent.values.tolist(), frequent.counts.tolist(), frequent.missed
    ([7], [2], 1)
    """

    values: npt.NDArray[np.uint64]
    counts: IntArray
    capacity: int
    missed: int = 0

    @classmethod
    def of(cls, values: npt.NDArray[np.uint64], capacity: int) -> "FrequentValues":
        """Count values of shape (n,)."""
        distinct, counts = np.unique(values, return_counts=True)
        return cls(distinct, counts, capacity)._shortened()

    def __add__(self, other: "FrequentValues") -> "FrequentValues":
        """Count two lists together."""
        distinct, index = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        counts = np.zeros(len(distinct), dtype=np.intp)
        np.add.at(counts, index, np.concatenate([self.counts, other.counts]))
        return FrequentValues(distinct, counts, self.capacity, self.missed + other.missed)._shortened()

    def _shortened(self) -> "FrequentValues":
        """Subtract from all counters the largest one that does not fit."""
        if len(self.values) <= self.capacity:
            return self
        excess = int(np.partition(self.counts, -self.capacity - 1)[-self.capacity - 1])
        kept = self.counts > excess
        return replace(self, values=self.values[kept], counts=self.counts[kept] - excess, missed=self.missed + excess)


def values_below(ordered: FloatArray, shares: FloatArray) -> FloatArray:
    """The least values up to which at least these shares of the rows lie, of sorted columns (n, k).

    They are numpy's quantiles by the method ``"inverted_cdf"``, but many times faster for many shares.

    >>> values_below(np.array([[1.0], [2.0], [4.0]]), np.array([0.0, 0.5, 1.0])).ravel().tolist()
    [1.0, 2.0, 4.0]
    """
    return ordered[np.maximum(np.ceil(len(ordered) * shares - 1.0).astype(np.intp), 0)]


def average_ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1 to n of values (n,), ties averaged.

    >>> average_ranks(np.array([0.1, 0.9, 0.5, 0.5])).tolist()
    [1.0, 4.0, 2.5, 2.5]
    """
    order, ranks = np.argsort(values), np.empty(len(values))
    first = np.flatnonzero(changes(values[order]))
    count = np.diff(first, append=len(values))
    ranks[order] = np.repeat(first + (count + 1) / 2.0, count)
    return ranks
