"""Measure features in spreads, so that units do not matter.

The first pass finds the extremes and bounds of the quartiles, the second all the rest. Rows may come in parts, and rows
in memory are one part. Every sum is exact for up to 2^25 rows, so neither the order of the rows nor the cut into parts
changes a bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import numpy as np

from evenout.core.parallel import by_rows, map_blocks, map_columns
from evenout.core.sketch import Narrowed, QuantileSketch
from evenout.core.types import BoolArray, FloatArray, IntArray, Within, require
from evenout.exceptions import ConstantFeatureWarning, warn

QUARTILES = (0.25, 0.5, 0.75)
NORMAL_IQR = 1.3489795003921634  # interquartile range of the standard normal distribution
APART = np.sqrt(2.0)  # two categories: as far apart as two numbers of variance 1 are, in root mean square
_ROUNDING = 1e-13  # a range this small beside the values is no information
_COARSE, _FINE = 2.0**28, 2.0**57  # sums of 2^25 numbers of at most 1, as multiples of 1 / _COARSE, are exact
_BLOCK = 16384


@dataclass(frozen=True)
class Ranges:
    """First pass: the smallest and largest value of each column, (d,), and a sketch of its values."""

    low: FloatArray
    high: FloatArray
    sketches: tuple[QuantileSketch, ...]

    @classmethod
    def of(cls, X: FloatArray, capacity: int | None, *, n_threads: int = 1) -> "Ranges":
        """Read rows of shape (n, d); without a capacity quartiles are exact."""

        def look(j: int) -> tuple[float, float, QuantileSketch]:
            column = X[:, j]
            return column.min(initial=np.inf), column.max(initial=-np.inf), QuantileSketch.of(column, capacity)

        low, high, sketches = zip(*map_columns(look, range(X.shape[1]), len(X), n_threads), strict=True)
        return cls(np.array(low), np.array(high), sketches)

    def __add__(self, other: "Ranges") -> "Ranges":
        return Ranges(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            tuple(one + two for one, two in zip(self.sketches, other.sketches, strict=True)),
        )

    def outline(self, *, n_threads: int = 1) -> "Outline":
        """The columns for the second pass; if none varies, the first one stays."""
        low, high = self.low, self.high
        varies = (high - low > _ROUNDING * np.maximum(np.abs(low), np.abs(high))) & (high - low > 1e-250)
        kept = np.flatnonzero(varies) if varies.any() else np.zeros(1, dtype=np.intp)

        bounds = map_columns(
            lambda j: [self.sketches[j].bounds(share) for share in QUARTILES],
            kept.tolist(),
            self.sketches[0].count,
            n_threads,
        )
        return Outline(kept, varies[kept], low[kept], high[kept], np.array(bounds))


class Outline(NamedTuple):
    """The m columns to keep, (m,), whether they vary, their extremes, and bounds of their quartiles, (m, 3, 2)."""

    kept: IntArray
    varies: BoolArray
    low: FloatArray
    high: FloatArray
    bounds: FloatArray

    @property
    def span(self) -> FloatArray:
        """Largest less smallest value; 1 where that is 0."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)


@dataclass(frozen=True)
class Measures:
    """Second pass over the m columns that are kept."""

    outline: Outline
    n_rows: int
    quartiles: tuple[tuple[Narrowed, ...], ...]  # three of each column
    sums: FloatArray  # (m, 4): sums of ``u = (x - low) / span`` and of ``u^2``, each in two numbers that are exact
    two: BoolArray  # (m,): whether there is no value but the smallest and the largest
    ones: IntArray  # (m,): how many values are 1
    # (m,): of columns from 0 to 1, the nearest such column to the left that is ever 1 where this one is; -1 for none.
    before: IntArray

    @classmethod
    def of(cls, X: FloatArray, outline: Outline, capacity: int | None, *, n_threads: int = 1) -> "Measures":
        """Read rows of shape (n, d); the capacity is that of the sketches between the bounds of quartiles."""

        def look(at: int) -> tuple[Any, ...]:
            column = np.ascontiguousarray(X[:, outline.kept[at]])
            low, high, bounds = outline.low[at], outline.high[at], outline.bounds[at].tolist()
            quartiles = tuple(Narrowed.of(column, (a, b), capacity) for a, b in bounds)
            share, two = (column - low) / outline.span[at], (column == low) | (column == high)
            return quartiles, [*_exact_sum(share), *_exact_sum(share**2)], bool(two.all()), int((column == 1.0).sum())

        quartiles, sums, two, ones = zip(*map_columns(look, range(len(outline.kept)), len(X), n_threads), strict=True)
        before = _before(X, outline.kept, (outline.low == 0.0) & (outline.high == 1.0), n_threads)
        return cls(outline, len(X), quartiles, np.array(sums), np.array(two), np.array(ones), before)

    def __add__(self, other: "Measures") -> "Measures":
        quartiles = tuple(
            tuple(one + two for one, two in zip(*columns, strict=True))
            for columns in zip(self.quartiles, other.quartiles, strict=True)
        )
        return Measures(
            self.outline,
            self.n_rows + other.n_rows,
            quartiles,
            self.sums + other.sums,
            self.two & other.two,
            self.ones + other.ones,
            np.maximum(self.before, other.before),
        )

    def units(self) -> "Units":
        """Centre and spread of each column."""
        outline, span = self.outline, self.outline.span
        first, centre, third = np.array(
            [[each.quantile(q) for each, q in zip(column, QUARTILES, strict=True)] for column in self.quartiles]
        ).T
        quartiles = (third - first) / NORMAL_IQR
        usable = quartiles > _ROUNDING * span
        spread = quartiles if usable.all() else np.where(usable, quartiles, self._deviations())
        spread = np.where(spread > 0, spread, 1.0)
        two = self.two & outline.varies
        centre, spread = np.where(two, outline.low, centre), np.where(two, span / APART, spread)
        one_hot = self._one_hot(two & (outline.low == 0.0) & (outline.high == 1.0))
        return Units(outline.kept, centre, np.where(one_hot | ~outline.varies, 1.0, spread))

    def _deviations(self) -> FloatArray:
        """Standard deviations, rounded once: in ranges, so that no square leaves the floating-point range."""
        variances = []
        for sums in self.sums.tolist():
            coarse, fine, coarse_squares, fine_squares = (Fraction(total) / self.n_rows for total in sums)
            variances.append(float(max(coarse_squares + fine_squares - (coarse + fine) ** 2, Fraction(0))))
        return self.outline.span * np.sqrt(np.array(variances))

    def _one_hot(self, candidates: BoolArray) -> BoolArray:
        """Columns in a run of columns of 0 and 1 that sum to 1 in every row, as a mask."""
        one_hot, start = np.zeros(len(candidates), dtype=bool), 0
        while start < len(candidates):
            total, stop = 0, start
            # No two of the columns from start to stop are 1 in one row, so total counts the rows in which one is.
            while stop < len(candidates) and candidates[stop] and self.before[stop] < start and total < self.n_rows:
                total += int(self.ones[stop])
                stop += 1
            whole = total == self.n_rows
            one_hot[start:stop] |= whole
            start = stop if whole else start + 1
        return one_hot


def _exact_sum(values: FloatArray) -> tuple[float, float]:
    """The sum of values from 0 to 1 in two numbers, each a sum without rounding, up to 2^-58 for each value."""
    coarse = np.rint(values * _COARSE) / _COARSE
    return float(coarse.sum()), float((np.rint((values - coarse) * _FINE) / _FINE).sum())


def _before(X: FloatArray, kept: IntArray, binary: BoolArray, n_threads: int) -> IntArray:
    """See `Measures`; -1 for columns that are not binary."""
    before, columns = np.full(len(kept), -1, dtype=np.intp), np.flatnonzero(binary)

    def look(rows: slice) -> IntArray:
        is_one = X[rows, kept[columns]] == 1.0
        last = np.maximum.accumulate(np.where(is_one, columns, -1), axis=1)
        return np.where(is_one[:, 1:], last[:, :-1], -1).max(axis=0)

    before[columns[1:]] = np.max(map_blocks(look, len(X), _BLOCK, n_threads), axis=0, initial=-1)
    return before


GRID = 2.0**-20  # standardised values are multiples of it
FARTHEST = 2.0**100  # of a new row; squares of such distances are still numbers


@dataclass(frozen=True)
class Units:
    """Centre and spread of each column.

    Learnt on all training rows, not without each fold: no group and no label enters, and one graph of neighbours
    serves every fold only if all folds share their units.

    Parameters
    ----------
    kept : array of int, shape (m,)
        The columns of X that vary on the training rows; the others are dropped.
    centre, spread : arrays of shape (m,)
        Numbers: median, and interquartile range as a share of that of the standard normal distribution; where that
        range is 0, the standard deviation. Columns of two values: the lower one, and what makes the two
        ``sqrt(2)`` apart. One-hot columns, 0 and 1 with one 1 in each row, stay as they are, so that any two of
        their categories are ``sqrt(2)`` apart and a category counts as one feature.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0, 7.0], [2.0, 0.0, 7.0], [3.0, 1.0, 7.0]])
    >>> units = Units.fit(X)
    >>> units.kept
    array([0, 1])
    >>> units.apply(X).round(2)
    array([[-1.35,  0.  ],
           [ 0.  ,  0.  ],
           [ 1.35,  1.41]])
    """

    kept: Annotated[IntArray, "m", Within()]
    centre: Annotated[FloatArray, "m"]
    spread: Annotated[FloatArray, "m", Within(np.nextafter(0.0, 1.0))]

    def check(self) -> None:
        """Refuse columns that are out of order."""
        require(len(self.kept) and (np.diff(self.kept) > 0).all(), "kept", "is out of order")

    @staticmethod
    def fit(X: FloatArray, *, n_threads: int = 1) -> "Units":
        """Learn from training rows of shape (n, d); where no column varies, the first one stays."""
        outline = Ranges.of(X, None, n_threads=n_threads).outline(n_threads=n_threads)
        return Measures.of(X, outline, None, n_threads=n_threads).units()

    def apply(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Rows of shape (r, d) in these units, shape (r, m), rounded.

        Multiplying and shifting a column of X changes these quotients by rounding errors alone, and rounding, to
        `GRID` and from 2 on to as many digits, takes those away: not even a tie is broken.
        """

        def rounded(rows: FloatArray) -> FloatArray:
            with np.errstate(over="ignore"):
                z = np.clip((rows.take(self.kept, axis=1) - self.centre) / self.spread, -FARTHEST, FARTHEST)
            step = np.ldexp(GRID, np.maximum(np.frexp(z)[1] - 1, 0))
            return np.rint(z / step) * step + 0.0  # + 0.0: no -0.0 remains

        return by_rows(rounded, X, width=len(self.kept), n_threads=n_threads)

    def warn_dropped(self, names: Sequence[str]) -> None:
        """Name the columns, of all d, that do not vary."""
        dropped = [name for j, name in enumerate(names) if j not in set(self.kept.tolist())]
        if dropped:
            warn(
                f"these columns hold one value in all training rows and are dropped: {', '.join(dropped)}",
                ConstantFeatureWarning,
            )


def feature_labels(names: Sequence[str] | None, n_features: int) -> list[str]:
    """Names of the columns; those without a name are called ``x0``, ``x1``, ..."""
    return [f"x{j}" for j in range(n_features)] if names is None else [str(name) for name in names]
