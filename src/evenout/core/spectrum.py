"""One factorisation that solves ``(A + alpha C) w = b`` for every alpha.

With ``P = A + tau C`` and a basis ``B`` in which ``B'PB = I`` and ``B'CB = diag(mu)``, also ``B'AB =
diag(a)``, ``a = 1 - tau mu``, so

    w(alpha) = B diag(1 / (a + alpha mu)) B'b

and f1 and f2 are sums of terms that each rise and fall with alpha.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, svd
from scipy.optimize import brentq

from evenout.core.types import FloatArray


@dataclass(frozen=True)
class Spectrum:
    """Minimisers of ``f1(w) + alpha f2(w)`` for all alpha >= 0; see `factorise`.

    Parameters
    ----------
    basis : array of shape (k, r)
        ``B``; its columns span everything that A or C can see.
    misfit, bias : arrays of shape (r,)
        ``a`` and ``mu``: what a unit step along each column of B costs in f1 and in f2.
    pull : array of shape (r,)
        ``B'b``: how far the target pulls along each column.
    f1_least : float
        The smallest value of f1, reached at alpha = 0.
    """

    basis: FloatArray
    misfit: FloatArray
    bias: FloatArray
    pull: FloatArray
    f1_least: float

    def weights(self, alpha: FloatArray) -> FloatArray:
        """``w(alpha)`` for alphas of shape (m,): shape (m, k)."""
        return self._coordinates(alpha) @ self.basis.T

    def f1(self, alpha: FloatArray) -> FloatArray:
        """``f1(w(alpha)) = f1_least + (w - w(0))' A (w - w(0))``, free of cancellation where the fit is close."""
        still = self.misfit > 0
        start = np.where(still, self.pull / np.where(still, self.misfit, 1.0), 0.0)
        return self.f1_least + ((self._coordinates(alpha) - start) ** 2) @ self.misfit

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(w(alpha))``."""
        return self._coordinates(alpha) ** 2 @ self.bias

    def alpha_at(self, fall: float) -> float:
        """The alpha at which f2 has fallen by the share ``fall`` (0 < fall < 1); 0 if there is no f2 to fall."""
        start = float(self.f2(np.zeros(1))[0])
        active = (self.bias > 0) & (self.misfit > 0) & (self.pull != 0)
        if start <= 0 or not active.any():
            return 0.0
        knees = self.misfit[active] / self.bias[active]  # alpha where a term has fallen by three quarters
        # One term alone falls by `fall` at reach * knee, so the sum does so between the first and the last of these.
        reach = 1.0 / np.sqrt(1.0 - fall) - 1.0
        low, high = np.log(reach * knees.min()) - 1e-9, np.log(reach * knees.max()) + 1e-9
        return float(np.exp(brentq(lambda x: self.f2(np.exp([x]))[0] / start - (1.0 - fall), low, high)))

    def _coordinates(self, alpha: FloatArray) -> FloatArray:
        """``B``-coordinates of w(alpha), shape (m, r); directions with no pull stay at 0, so 0/0 never arises."""
        # alpha * mu may be inf * 0 at alpha = inf: a direction without bias keeps its place.
        with np.errstate(over="ignore", invalid="ignore"):
            cost = self.misfit + np.where(self.bias > 0, np.multiply.outer(alpha, self.bias), 0.0)
        pulled = (self.pull != 0) & (cost > 0)
        return np.where(pulled, self.pull, 0.0) / np.where(pulled, cost, 1.0)


def factorise(A: FloatArray, b: FloatArray, c0: float, C: FloatArray) -> Spectrum:
    """Factor the problem ``minimise w'Aw - 2b'w + c0 + alpha w'Cw`` once for every alpha.

    Rank rule: ``A + tau C`` with ``tau = tr A / tr C`` is factored, and its eigenvalues below ``eps k
    lambda_max`` are dropped;
    inside what is left, a direction that A cannot tell from 0 at the same precision keeps the weight 0 (minimum norm).

    Parameters
    ----------
    A, C : arrays of shape (k, k), symmetric and positive semidefinite
    b : array of shape (k,), in the range of A
    c0 : float

    >>> spectrum = factorise(np.eye(2), np.array([1.0, 1.0]), 2.0, np.diag([1.0, 0.0]))
    >>> spectrum.weights(np.array([0.0, 1.0, np.inf])).round(12) + 0.0
    array([[1. , 1. ],
           [0.5, 1. ],
           [0. , 1. ]])
    """
    k = len(b)
    eps = k * np.finfo(float).eps
    trace_A, trace_C = float(np.trace(A)), float(np.trace(C))
    tau = trace_A / trace_C if trace_A > 0 and trace_C > 0 else 1.0
    values, vectors = eigh(A + tau * C)
    kept = values > max(eps * values[-1], 0.0)
    if not kept.any():
        return Spectrum(np.zeros((k, 0)), np.zeros(0), np.zeros(0), np.zeros(0), max(c0, 0.0))
    half = vectors[:, kept] / np.sqrt(values[kept])
    share, rotation = _shares(np.sqrt(tau) * _root(C, eps) @ half)
    share[share < eps] = 0.0
    misfit = 1.0 - share
    misfit[misfit < eps] = 0.0
    basis = half @ rotation
    pull = np.where(misfit > 0, basis.T @ b, 0.0)
    least = c0 - float(np.sum(pull[misfit > 0] ** 2 / misfit[misfit > 0]))
    return Spectrum(basis, misfit, share / tau, pull, max(least, 0.0))


def _root(C: FloatArray, eps: float) -> FloatArray:
    """``R`` of full row rank with ``R'R = C``: a form of few gaps stays exactly blind to all other directions."""
    values, vectors = eigh(C)
    kept = values > max(eps * values[-1], 0.0)
    return (vectors[:, kept] * np.sqrt(values[kept])).T


def _shares(R: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues of ``R'R`` in [0, 1], and its eigenvectors as columns; exact zeros beyond the rank of R."""
    if len(R) == 0:
        return np.zeros(R.shape[1]), np.eye(R.shape[1])
    _, singular, rotation = svd(R)
    share = np.zeros(R.shape[1])
    share[: len(singular)] = np.minimum(singular**2, 1.0)[: len(share)]
    return share, rotation.T
