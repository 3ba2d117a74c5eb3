"""Tail scores: how far out a row lies in each feature alone.

One column per feature gives the fair solution something that mixed detectors cannot: it can turn away from the very
features in which groups differ for no good reason, and keep the others.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenout.core.compiled import map_blocks
from evenout.core.order import counts_around
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.parts import Without
from evenout.storage.fields import Fields

_ROWS = 16384  # rated at a time


@dataclass(frozen=True)
class Tails:
    """Learnt distribution of each feature.

    Parameters
    ----------
    features : array of shape (m,)
        The columns of X that vary on the training rows; the others say nothing and have no score.
    known : array of shape (n, m)
        Their training values, each column sorted.
    """

    features: IntArray
    known: FloatArray
    kind: ClassVar[str] = "tails"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.features)

    @classmethod
    def fit(cls, X: FloatArray) -> tuple["Tails", FloatArray]:
        """Learn from training rows of shape (n, d); the fitted object and the training scores of shape (n, m)."""
        return cls._learn(X, np.flatnonzero(np.ptp(X, axis=0) > 0))

    @classmethod
    def cross_fit(cls, X: FloatArray, folds: IntArray) -> tuple["Tails", FloatArray, Without]:
        """What `fit` returns, and a function of a fold: the scores of all rows, learnt without the fold.

        A feature that varies keeps its column, also where it is constant on the rows outside a fold.
        """
        fitted, scores = cls.fit(X)
        values = X[:, fitted.features]
        order = np.argsort(values, axis=0)
        ordered = np.take_along_axis(values, order, axis=0)

        def without(fold: int) -> FloatArray:
            kept = (folds != fold)[order]
            known = ordered.T[kept.T].reshape(len(fitted.features), int((folds != fold).sum())).T
            counts = np.empty((2, *values.shape), dtype=np.intp)
            for j in range(values.shape[1]):
                counts[:, order[:, j], j] = _counts_of_kept(ordered[:, j], kept[:, j])
            return cls(fitted.features, known)._rate(values, *counts)

        return fitted, scores, without

    @classmethod
    def read(cls, data: Fields, n_rows: int, n_features: int) -> "Tails":
        """Out of a model file."""
        features = data.integers("features", None, low=0, high=n_features - 1)
        known = data.floats("known", n_rows, len(features))
        ordered = (np.diff(known, axis=0) >= 0).all() and (known[-1] > known[0]).all()
        data.require(ordered, "known", "is out of order")
        return cls(features, known)

    @classmethod
    def _learn(cls, X: FloatArray, features: IntArray) -> tuple["Tails", FloatArray]:
        fitted = cls(features, np.sort(X[:, features], axis=0))
        return fitted, fitted.score(X)

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """``-log min(1, 2 min(P(<= x), P(>= x)))`` for each feature, shape (m_rows, m); higher = further out.

        Probabilities are shares of training rows. Outside their range, where both shares of an end are 0, half a row is
        counted, and the logarithm of the distance to the range, in units of the range, is added: no two such rows are
        tied. A range of one point is no unit, and nothing is added.
        """
        scores = np.empty((len(X), len(self.features)))

        def work(rows: slice) -> None:
            values = np.ascontiguousarray(X[rows][:, self.features])
            scores[rows] = self._rate(values, *counts_around(self.known, values))

        map_blocks(work, len(X), _ROWS, n_threads)
        return scores

    def _rate(self, values: FloatArray, below: IntArray, upto: IntArray) -> FloatArray:
        """Scores of values of which ``below`` training values are smaller, and ``upto`` no larger; all (m_rows, m)."""
        n, lowest, highest = len(self.known), self.known[0], self.known[-1]
        share = np.maximum(np.minimum(upto, n - below), 0.5) / n
        outside = np.maximum(values - highest, 0.0) + np.maximum(lowest - values, 0.0)
        return -np.log(np.minimum(2.0 * share, 1.0)) + _log1p_ratio(outside, highest - lowest)


class Sides(Tails):
    """On which side of each feature a row lies: what labels can learn from, and no sign of an outlier."""

    kind: ClassVar[str] = "sides"

    def _rate(self, values: FloatArray, below: IntArray, upto: IntArray) -> FloatArray:  # noqa: ARG002
        """``log P(<= x) - log P(>= x)`` for each feature, where half a row is counted for none, shape (m_rows, m)."""
        return np.log(np.maximum(upto, 0.5)) - np.log(np.maximum(len(self.known) - below, 0.5))


def _counts_of_kept(ordered: FloatArray, kept: BoolArray) -> tuple[IntArray, IntArray]:
    """For each of n sorted values, how many of those that are kept are smaller, and how many are no larger."""
    upto = np.cumsum(kept, dtype=np.intp)
    new = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # where a value begins
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
