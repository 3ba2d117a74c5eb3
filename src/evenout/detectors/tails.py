"""Tail scores: how far out a row lies in each feature alone.

With one column per feature the fair solution can leave out the very features in which groups differ for no good reason,
and keep the others; detectors that mix features do not allow that.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np

from evenout.core.content import changes, counts_around
from evenout.core.parallel import by_rows, map_columns
from evenout.core.types import BoolArray, FloatArray, IntArray, Within, require
from evenout.detectors.family import Family, Without

_ROWS = 16384  # rated at a time


@dataclass(frozen=True)
class Tails(Family):
    """The distribution of each feature on the training rows."""

    # Columns of X that vary on the training rows; the others have no score.
    features: Annotated[IntArray, "m", Within()]
    known: Annotated[FloatArray, "n m"]  # their training values, each column sorted
    kind: ClassVar[str] = "tails"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.features)

    @classmethod
    def cross_fit(
        cls, X: FloatArray, folds: IntArray | None, *, n_threads: int = 1
    ) -> tuple["Tails", FloatArray, Without]:
        """Fit as `fit` does, and return a function of a fold as well: the scores of all rows, learnt without it.

        A feature that varies keeps its column, also where it is constant on the rows outside a fold. Each is sorted
        once, and rated in that order; features run on threads.
        """
        features = np.flatnonzero(np.ptp(X, axis=0) > 0)
        order = np.empty((len(features), len(X)), dtype=np.int32 if len(X) < 1 << 31 else np.intp)
        ordered = np.empty(order.shape)

        def sort(j: int) -> None:
            column = np.ascontiguousarray(X[:, features[j]])
            order[j] = np.argsort(column)
            ordered[j] = column[order[j]]

        def rated(kept: BoolArray) -> FloatArray:
            scores = np.empty(order.shape)

            def rate(j: int) -> None:
                values, mask = ordered[j], kept[order[j]]
                below, upto = _counts_of_kept(values, mask)
                first, last = int(mask.argmax()), len(mask) - 1 - int(mask[::-1].argmax())
                known = int(upto[-1]), values[first], values[last]
                for part in (slice(0, first), slice(first, last + 1), slice(last + 1, None)):  # only the middle is long
                    scores[j, order[j][part]] = cls._rate(values[part], below[part], upto[part], *known)

            map_columns(rate, range(len(features)), len(X), n_threads)
            return scores.T

        map_columns(sort, range(len(features)), len(X), n_threads)
        return (
            cls(features, ordered.T),
            rated(np.ones(len(X), dtype=bool)),
            lambda fold: rated(np.asarray(folds) != fold),
        )

    def without_rows(self, rows: FloatArray) -> Self:
        """Drop the values if they are those of ``rows`` (n, d), which are kept elsewhere."""
        same = np.array_equal(np.sort(rows[:, self.features], axis=0), self.known)
        return replace(self, known=self.known[:0]) if same else self

    def with_rows(self, rows: FloatArray) -> Self:
        """Take the values from ``rows`` (n, d) if they were dropped."""
        if len(self.known):
            return self
        require(self.features.max(initial=0) < rows.shape[1], "features", "is out of range")
        return replace(self, known=np.sort(rows[:, self.features], axis=0))

    def fits(self, n_rows: int, n_features: int) -> None:
        """Refuse values that are not those of all rows, sorted, of features that rows have."""
        require(self.features.max(initial=0) < n_features, "features", "is out of range")
        require(len(self.known) == n_rows, "known", "has the wrong length")
        ordered = (np.diff(self.known, axis=0) >= 0).all() and (self.known[-1] > self.known[0]).all()
        require(ordered, "known", "is out of order")

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """``-log min(1, 2 min(P(<= x), P(>= x)))`` for each feature, shape (m_rows, m); higher = further out.

        Probabilities are shares of training rows. Outside their range, where both shares of an end are 0, half a row is
        counted, and the logarithm of the distance to the range, in units of the range, is added: no two such rows are
        tied. A range of one point is no unit, and nothing is added.
        """

        def rated(rows: FloatArray) -> FloatArray:
            values, known = np.ascontiguousarray(rows[:, self.features]), self.known
            return self._rate(values, *counts_around(known, values), len(known), known[0], known[-1])

        return by_rows(rated, X, width=len(self.features), n_threads=n_threads, block=_ROWS)

    @staticmethod
    def _rate(
        values: FloatArray, below: IntArray, upto: IntArray, n: int, lowest: FloatArray, highest: FloatArray
    ) -> FloatArray:
        """Scores of values (...) of which ``below`` of n training values are smaller, and ``upto`` no larger."""
        share = np.maximum(np.minimum(upto, n - below), 0.5) / n
        outside = np.maximum(values - highest, 0.0) + np.maximum(lowest - values, 0.0)
        return -np.log(np.minimum(2.0 * share, 1.0)) + (
            _log1p_ratio(outside, highest - lowest) if outside.any() else 0.0
        )


class Sides(Tails):
    """The side of each feature on which a row lies: labels can give it a meaning; alone it says nothing of outliers."""

    kind: ClassVar[str] = "sides"

    @staticmethod
    def _rate(values: FloatArray, below: IntArray, upto: IntArray, n: int, *_: FloatArray) -> FloatArray:  # noqa: ARG004
        """``log P(<= x) - log P(>= x)`` for each feature, where half a row is counted for none."""
        return np.log(np.maximum(upto, 0.5)) - np.log(np.maximum(n - below, 0.5))


def _counts_of_kept(ordered: FloatArray, kept: BoolArray) -> tuple[IntArray, IntArray]:
    """For each of n sorted values, the number of kept values that are smaller, and that are no larger."""
    upto = np.cumsum(kept, dtype=np.intp)
    new = np.flatnonzero(changes(ordered))  # where a value begins
    if len(new) == len(ordered):
        return upto - kept, upto
    times = np.diff(new, append=len(ordered))
    return np.repeat((upto - kept)[new], times), np.repeat(upto[new + times - 1], times)


def _log1p_ratio(outside: FloatArray, span: FloatArray) -> FloatArray:
    """``log(1 + outside / span)``, column by column, finite also where the quotient is not; 0 where the span is 0."""
    unit = np.where(span > 0, span, np.inf)
    with np.errstate(over="ignore"):
        logarithm = np.log1p(outside / unit)
    huge = np.isinf(logarithm)
    if huge.any():
        logarithm[huge] = (np.log(outside, where=huge, out=np.zeros_like(outside)) - np.log(unit))[huge]
    return logarithm
