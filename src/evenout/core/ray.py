"""The straight way from the base score to a score that was solved for elsewhere, in the place of a path of solutions.

A request for flag rates is not met along the path of equal means: its rule is solved for at the threshold itself
(`evenout.core.even_rates`). What lies between the base score and this rule is ``t + alpha S v``, alpha from 0 to 1, and
is measured as every other path is.
"""

from dataclasses import dataclass

import numpy as np

from evenout.core.types import FloatArray


@dataclass(frozen=True)
class Rule:
    """Where the way leads.

    Parameters
    ----------
    own : array of shape (k,)
        Weights that are added to the base score.
    without : array of shape (K, k)
        The same as solved without each fold.
    """

    own: FloatArray
    without: FloatArray


@dataclass(frozen=True)
class Ray:
    """``x(alpha) = alpha direction``, with ``f1 = x'Ax`` and ``f2 = x'Cx + 2c'x + d0``; has what `Spectrum` has."""

    direction: FloatArray
    A: FloatArray
    C: FloatArray
    c: FloatArray
    d0: float

    def solutions(self, alpha: FloatArray) -> FloatArray:
        """``x(alpha)`` for alphas of shape (m,): shape (m, k)."""
        return np.asarray(alpha)[:, None] * self.direction

    def f1(self, alpha: FloatArray) -> FloatArray:
        """``f1(x(alpha))``."""
        return np.asarray(alpha) ** 2 * float(self.direction @ self.A @ self.direction)

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(x(alpha))``."""
        square, push = float(self.direction @ self.C @ self.direction), float(self.c @ self.direction)
        return np.maximum(np.asarray(alpha) ** 2 * square + 2.0 * np.asarray(alpha) * push + self.d0, 0.0)

    def alpha_at(self, fall: float) -> float:
        """The share of the way itself; 0 if there is none."""
        return fall if self.direction.any() else 0.0
