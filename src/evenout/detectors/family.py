"""Interfaces of fitted score columns, and scores by detectors that have not seen a fold of the rows."""

from collections.abc import Callable
from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from evenout.core.types import FloatArray, IntArray

# The raw scores of all n rows by detectors that were fitted without the rows of the given fold.
Without: TypeAlias = Callable[[int], FloatArray]


class ScoreColumns(Protocol):
    """A fitted source of one or more score columns."""

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Raw scores of shape (m, columns)."""


class Family(ScoreColumns, Protocol):
    """A fitted family of score columns whose state is plain arrays: a dataclass of them can be saved as it is.

    A family of a user's own is an object with ``fit_columns(X, seed=..., n_threads=...)``, which returns `ScoreColumns`
    and the scores of the training rows, (n, columns); the former may have ``names`` of the columns. See
    ``docs/extending.md``.
    """

    kind: ClassVar[str]

    @property
    def width(self) -> int:
        """Number of columns."""

    def fits(self, n_rows: int, n_features: int) -> None:
        """Refuse (`evenout.core.types.require`) what was not fitted on so many rows and columns."""


def by_refitting(
    X: FloatArray,
    folds: IntArray | None,
    fit: Callable[[FloatArray, int], tuple[ScoreColumns, FloatArray]],
    *,
    n_threads: int = 1,
) -> Without:
    """Leave folds out by fitting on the other rows, and scoring the rows of the fold as new ones.

    ``fit``, a function of the rows that are left and the number of the fold, returns the fitted columns and the scores
    of these rows.
    """

    def without(fold: int) -> FloatArray:
        kept = np.asarray(folds) != fold
        fitted, training = fit(X[kept], fold)
        scores = np.empty((len(X), training.shape[1]))
        scores[kept] = training
        scores[~kept] = fitted.score(X[~kept], n_threads=n_threads)
        return scores

    return without
