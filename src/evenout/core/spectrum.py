"""One factorisation that solves the trade-off between misfit and bias for every alpha.

    minimise  x'Ax - 2 b'x  +  alpha (x'Cx + 2 c'x)

With ``P = A + tau C`` and a basis ``B`` in which ``B'PB = I`` and ``B'CB = diag(mu)``, also ``B'AB = diag(a)``,
``a = 1 - tau mu``, so

    x(alpha) = B diag(1 / (a + alpha mu)) (B'b - alpha B'c)

and f1 and f2 are sums of terms that each rise and fall with alpha. The published problem ``y = S w`` has ``c = 0``;
with the target as a column, ``y = t + S v``, it is b that is 0, and ``x(0) = 0`` exactly.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from evenout.core.compiled import one_blas_thread
from evenout.core.types import FloatArray

_FAR = 1e150  # the largest alpha that is told apart from infinity


@dataclass(frozen=True)
class Spectrum:
    """Minimisers of ``f1(x) + alpha f2(x)`` for all alpha >= 0; see `factorise`.

    Parameters
    ----------
    basis : array of shape (k, r)
        ``B``; its columns span everything that A or C can see.
    misfit, bias : arrays of shape (r,)
        ``a`` and ``mu``: what a unit step along each column of B costs in f1 and in f2.
    pull, push : arrays of shape (r,)
        ``B'b`` and ``B'c``: how far misfit and bias pull along each column.
    f1_least, f2_least : float
        The smallest values of f1, reached at alpha = 0, and of f2, reached at infinity.
    """

    basis: FloatArray
    misfit: FloatArray
    bias: FloatArray
    pull: FloatArray
    push: FloatArray
    f1_least: float
    f2_least: float

    def solutions(self, alpha: FloatArray) -> FloatArray:
        """``x(alpha)`` for alphas of shape (m,): shape (m, k)."""
        return self._coordinates(alpha) @ self.basis.T

    def f1(self, alpha: FloatArray) -> FloatArray:
        """``f1(x(alpha)) = f1_least + (x - x(0))' A (x - x(0))``, free of cancellation where the fit is close."""
        start = _quotient(self.pull, self.misfit)
        return self.f1_least + ((self._coordinates(alpha) - start) ** 2) @ self.misfit

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(x(alpha)) = f2_least + (x - x(inf))' C (x - x(inf))``."""
        return self.f2_least + self._left(alpha)

    def alpha_at(self, fall: float) -> float:
        """The alpha at which f2 has gone the share ``fall`` (0 < fall < 1) of its way; 0 if it has nowhere to go."""
        start = float(self._left(np.zeros(1))[0])
        active = (self.bias > 0) & (self.misfit > 0) & (self._start != 0)
        if start <= 0 or not active.any():
            return 0.0
        knees = self.misfit[active] / self.bias[active]  # alpha where a term has fallen by three quarters
        # One term alone falls by `fall` at reach * knee, so the sum does so between the first and the last of these.
        reach = 1.0 / np.sqrt(1.0 - fall) - 1.0
        low, high = np.log(reach * knees.min()) - 1e-9, np.log(reach * knees.max()) + 1e-9
        return float(np.exp(brentq(lambda x: self._left(np.exp([x]))[0] / start - (1.0 - fall), low, high)))

    @property
    def _start(self) -> FloatArray:
        """Coordinates at alpha = 0, as seen from those at infinity."""
        return np.where(self.misfit > 0, _quotient(self.pull, self.misfit) + _quotient(self.push, self.bias), 0.0)

    def _left(self, alpha: FloatArray) -> FloatArray:
        """``f2 - f2_least``: each term is that of alpha = 0 times ``(a / (a + alpha mu))^2``."""
        shrunk = _quotient(self.misfit, self._cost(alpha)) * self._start
        return shrunk**2 @ self.bias

    def _coordinates(self, alpha: FloatArray) -> FloatArray:
        """``B``-coordinates of x(alpha), shape (m, r); a direction that f1 cannot see stays at 0."""
        seen = self.misfit > 0
        moved = np.where(self.bias > 0, self.pull - _bounded(alpha) * self.push, self.pull)
        return np.where(seen, moved, 0.0) / np.where(seen, self._cost(alpha), 1.0)

    def _cost(self, alpha: FloatArray) -> FloatArray:
        """``a + alpha mu``, shape (m, r)."""
        return self.misfit + _bounded(alpha) * self.bias


@one_blas_thread()
def factorise(
    A: FloatArray,
    b: FloatArray,
    c0: float,
    C: FloatArray,
    c: FloatArray | None = None,
    d0: float = 0.0,
) -> Spectrum:
    """Factor ``minimise x'Ax - 2b'x + c0 + alpha (x'Cx + 2c'x + d0)`` once for every alpha.

    Rank rule: ``A + tau C`` with ``tau = tr A / tr C`` is factored, and its eigenvalues below ``eps k lambda_max`` are
    dropped. Inside what is left, a direction that A cannot tell from 0 at the same precision keeps the weight 0.

    Parameters
    ----------
    A, C : arrays of shape (k, k), symmetric and positive semidefinite
    b : array of shape (k,), in the range of A
    c0 : float
    c : array of shape (k,), in the range of C; 0 if not given
    d0 : float

    >>> spectrum = factorise(np.eye(2), np.array([1.0, 1.0]), 2.0, np.diag([1.0, 0.0]))
    >>> spectrum.solutions(np.array([0.0, 1.0, np.inf])).round(12) + 0.0
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
    half = vectors[:, kept] / np.sqrt(values[kept])
    share, rotation = _shares(np.sqrt(tau) * root(C, eps) @ half)
    share[share < eps] = 0.0
    misfit = 1.0 - share
    misfit[misfit < eps] = 0.0
    basis = half @ rotation
    pull = np.where(misfit > 0, basis.T @ b, 0.0)
    push = np.zeros_like(pull) if c is None else np.where((share > 0) & (misfit > 0), basis.T @ c, 0.0)
    bias = share / tau
    least = c0 - float(_quotient(pull**2, misfit).sum())
    bias_least = d0 - float(_quotient(push**2, bias).sum())
    return Spectrum(basis, misfit, bias, pull, push, max(least, 0.0), max(bias_least, 0.0))


def _bounded(alpha: FloatArray) -> FloatArray:
    """Alphas as a column; infinity, too, is one, for beyond this bound all quotients are the same."""
    return np.minimum(alpha, _FAR)[:, None]


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """``numerator / denominator``, 0 where the denominator is 0."""
    some = denominator > 0
    return np.where(some, numerator, 0.0) / np.where(some, denominator, 1.0)


def root(C: FloatArray, eps: float) -> FloatArray:
    """``R`` of full row rank with ``R'R = C``: a form of few gaps stays exactly blind to all other directions."""
    values, vectors = eigh(C)
    kept = values > max(eps * values[-1], 0.0)
    return (vectors[:, kept] * np.sqrt(values[kept])).T


def _shares(R: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues of ``R'R`` in [0, 1], and its eigenvectors as columns; exact zeros beyond the rank of R."""
    _, singular, rotation = np.linalg.svd(R)  # scipy's refuses an empty array
    share = np.zeros(R.shape[1])
    share[: len(singular)] = np.minimum(singular**2, 1.0)[: len(share)]
    return share, rotation.T
