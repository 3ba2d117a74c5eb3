"""A family of score columns of one's own: how far out a row lies along random directions."""

from dataclasses import dataclass

import numpy as np

from evenout.core.types import FloatArray


@dataclass(frozen=True)
class FittedProjections:
    """Directions (d, m), and the median and spread (m,) of the training rows along each."""

    directions: FloatArray
    median: FloatArray
    spread: FloatArray

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [f"direction {j + 1}" for j in range(len(self.median))]

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002
        """Distance from the median in units of the spread, shape (rows, m), higher = more outlying."""
        return np.abs(X @ self.directions - self.median) / self.spread


class RandomProjections:
    """Projections on random directions; ``fit_columns`` is all that a family needs."""

    def __init__(self, n_directions: int = 8) -> None:
        self.n_directions = n_directions

    def fit_columns(self, X: FloatArray, *, seed: int, n_threads: int) -> tuple[FittedProjections, FloatArray]:  # noqa: ARG002
        """The fitted family, and the scores of the training rows."""
        directions = np.random.default_rng(seed).normal(size=(X.shape[1], self.n_directions))
        along = X @ directions
        median = np.median(along, axis=0)
        spread = np.median(np.abs(along - median), axis=0)
        part = FittedProjections(directions, median, np.where(spread > 0, spread, 1.0))
        return part, part.score(X)
