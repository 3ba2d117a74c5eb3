"""Interfaces of fitted score columns, and scores by detectors that were fitted without a fold of the rows."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np

from evenout.core.types import FloatArray, IntArray

# Raw scores of all n rows by detectors that were fitted without the rows of the given fold.
Without: TypeAlias = Callable[[int], FloatArray]


class ScoreColumns(Protocol):
    """A fitted source of one or more score columns."""

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Raw scores of shape (m, columns)."""


class Family:
    """A fitted family of score columns whose state is plain arrays, so that a dataclass of them can be saved as it is.

    Besides the methods here and ``score`` of `ScoreColumns` it has ``width``, the number of columns, and
    ``fits(n_rows, n_features)``, which refuses (`evenout.core.types.require`) a state that was not fitted on so many
    rows and columns.

    A user's own family is an object with ``fit_columns(X, seed=..., n_threads=...)``, which returns `ScoreColumns`
    and the scores of the training rows, (n, columns); the former may have ``names`` of the columns. See
    ``docs/extending.md``.
    """

    kind: ClassVar[str]
    cross_fit: ClassVar[Callable[..., Any]]

    @classmethod
    def fit(cls, X: FloatArray, **settings: Any) -> tuple[Self, FloatArray]:
        """Learn from the rows of ``X`` (n, d): the first two results of ``cross_fit``, the model and its scores."""
        model, scores, _ = cls.cross_fit(X, None, **settings)
        return model, scores


def by_refitting(
    X: FloatArray,
    folds: IntArray | None,
    fit: Callable[[FloatArray, int], tuple[ScoreColumns, FloatArray]],
    *,
    n_threads: int = 1,
) -> Without:
    """Leave folds out by fitting on the other rows and scoring the rows of the fold as new rows.

    ``fit`` takes the rows that are left and the number of the fold, and returns the fitted columns and their scores.
    """

    def without(fold: int) -> FloatArray:
        kept = np.asarray(folds) != fold
        fitted, training = fit(X[kept], fold)
        scores = np.empty((len(X), training.shape[1]))
        scores[kept] = training
        scores[~kept] = fitted.score(X[~kept], n_threads=n_threads)
        return scores

    return without
