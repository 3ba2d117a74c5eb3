"""Tail scores: how far out a row lies in each feature alone.

One column per feature gives the fair solution something that mixed detectors cannot: it can turn away from the very
features in which groups differ for no good reason, and keep the others.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.parts import Without
from evenout.storage.fields import Fields


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
        order = np.argsort(X[:, fitted.features], axis=0)

        def without(fold: int) -> FloatArray:
            found = np.empty_like(scores)
            for j, feature in enumerate(fitted.features):
                found[order[:, j], j] = cls._column(*_counts(X[order[:, j], feature], (folds != fold)[order[:, j]]))
            return found

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

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002 (sorting is quick)
        """``-log min(1, 2 min(P(<= x), P(>= x)))`` for each feature, shape (m_rows, m); higher = further out.

        Probabilities are shares of training rows. Outside their range, where both shares of an end are 0, half a row is
        counted, and the logarithm of the distance to the range, in units of the range, is added: no two such rows are
        tied. A range of one point is no unit, and nothing is added.
        """
        scores = np.empty((len(X), len(self.features)))
        for j, feature in enumerate(self.features):
            known, values = self.known[:, j], X[:, feature]
            below = np.searchsorted(known, values, side="right")
            above = len(known) - np.searchsorted(known, values, side="left")
            scores[:, j] = self._column(below, above, len(known), values, float(known[0]), float(known[-1]))
        return scores

    @staticmethod
    def _column(
        below: IntArray, above: IntArray, n: int, values: FloatArray, lowest: float, highest: float
    ) -> FloatArray:
        """Scores of values of a feature, up to which, and from which on, ``below`` and ``above`` of n rows lie."""
        share = np.maximum(np.minimum(below, above), 0.5) / n
        outside = np.maximum(values - highest, 0.0) + np.maximum(lowest - values, 0.0)
        tail = -np.log(np.minimum(2.0 * share, 1.0))
        span = highest - lowest
        return tail + _log1p_ratio(outside, span) if span > 0 else tail


class Sides(Tails):
    """On which side of each feature a row lies: what labels can learn from, and no sign of an outlier."""

    kind: ClassVar[str] = "sides"

    @staticmethod
    def _column(
        below: IntArray,
        above: IntArray,
        n: int,  # noqa: ARG004
        values: FloatArray,  # noqa: ARG004
        lowest: float,  # noqa: ARG004
        highest: float,  # noqa: ARG004
    ) -> FloatArray:
        """``log P(<= x) - log P(>= x)``, where half a row is counted for none."""
        return np.log(np.maximum(below, 0.5)) - np.log(np.maximum(above, 0.5))


def _counts(ordered: FloatArray, kept: BoolArray) -> tuple[IntArray, IntArray, int, FloatArray, float, float]:
    """What `Tails._column` asks for, of sorted values, where the rows that count are those that are kept."""
    upto = np.cumsum(kept, dtype=np.intp)
    new = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # where a value begins
    times = np.diff(new, append=len(ordered))
    below = np.repeat(upto[new + times - 1], times)
    above = upto[-1] - np.repeat((upto - kept)[new], times)
    known = ordered[kept]
    return below, above, len(known), ordered, float(known[0]), float(known[-1])


def _log1p_ratio(outside: FloatArray, span: float) -> FloatArray:
    """``log(1 + outside / span)``, finite also where the quotient is not."""
    with np.errstate(over="ignore"):
        logarithm = np.log1p(outside / span)
    huge = np.isinf(logarithm)
    logarithm[huge] = np.log(outside[huge]) - np.log(span)
    return logarithm
