"""Weights that an auditor can read: ``x >= 0``, or shares of a fixed sum, solved exactly for every alpha.

With roots ``F'F = A`` and ``G'G = C``, the problem is one of least squares,

    f1(x) + alpha f2(x)  =  |F x - g|^2 + alpha |G x - h|^2 + constants,

and both constraints lead to nonnegative least squares. Columns that are free of the constraint are projected out of all
others first, and their weights follow from what is left. For shares: where ``1'u = 1`` and ``x = s u``, the squares are
``|E u|^2`` with ``E`` the rows ``s F - g 1'`` and ``sqrt(alpha) (s G - h 1')``, and the ``u >= 0`` that minimises
``|E u|^2 + r^2 (1'u - 1)^2`` is a multiple of the best one: along ``u = q w`` the least value is ``r^2 e / (e + r^2)``,
``e = |E w|^2``, which rises with e.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq, nnls

from evenout.core.compiled import one_blas_thread
from evenout.core.spectrum import root
from evenout.core.types import BoolArray, FloatArray, IntArray

Constraint: TypeAlias = Literal["nonnegative", "simplex"]

_FARTHEST = 1e12  # in units of tr A / tr C; beyond, the misfit has drowned in rounding
_ROUNDS = 100  # per column; about one is usual
_EQUAL = 1e-12  # relative difference of products with equal columns


@dataclass(frozen=True)
class ConstrainedSolutions:
    """Minimisers of ``f1(x) + alpha f2(x)`` under a constraint for all alpha >= 0; see `constrain`.

    f1 never falls and f2 never rises with alpha, as without constraints. An infinite alpha means the limit.

    Parameters
    ----------
    fit_root, goal : arrays of shape (r, u) and (r,)
        ``F`` and ``g``, over the u columns that differ from each other.
    bias_root, bias_goal : arrays of shape (q, u) and (q,)
        ``G`` and ``h``.
    f1_least : float
        The smallest value of f1 without constraints.
    members : array of shape (k, u)
        Each distinct column's weight is shared out evenly among the detectors that have it; columns sum to 1.
    unit : float
        ``tr A / tr C``, the natural unit of alpha.
    start : array of shape (k,), optional
        The solution at alpha = 0, where it is known.
    total : float or None
        The sum of the weights, where it is fixed.
    free : array of shape (u,)
        Columns that the constraint is not about.
    """

    fit_root: FloatArray
    goal: FloatArray
    bias_root: FloatArray
    bias_goal: FloatArray
    f1_least: float
    members: FloatArray
    unit: float
    start: FloatArray | None
    total: float | None
    free: BoolArray

    def solutions(self, alpha: FloatArray) -> FloatArray:
        """``x(alpha)`` for alphas of shape (m,): shape (m, k)."""
        found = self._distinct_weights(alpha) @ self.members.T
        return found if self.start is None else np.where(np.asarray(alpha)[:, None] == 0, self.start, found)

    def f1(self, alpha: FloatArray) -> FloatArray:
        """``f1(x(alpha))``."""
        residual = self._distinct_weights(alpha) @ self.fit_root.T - self.goal
        return self.f1_least + (residual**2).sum(axis=1)

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(x(alpha))``."""
        return ((self._distinct_weights(alpha) @ self.bias_root.T - self.bias_goal) ** 2).sum(axis=1)

    def alpha_at(self, fall: float) -> float:
        """The alpha at which f2 has gone the share ``fall`` (0 < fall < 1) of its way; 0 if it does not fall.

        The way leads from ``f2(x(0))`` to the least value under the constraint, which may be above 0.
        """
        start, end = self.f2(np.array([0.0, np.inf]))
        weights = np.abs(self._distinct_weights(np.zeros(1))[0])
        rounding = 1e-14 * (weights @ np.abs(self.bias_root).T + np.abs(self.bias_goal))
        if start - end <= 1e-12 * start + (rounding**2).sum():
            return 0.0
        level = end + (1.0 - fall) * (start - end)
        low, high = np.log(self.unit / _FARTHEST), np.log(self.unit * _FARTHEST)
        if self.f2(np.exp([low]))[0] <= level:
            return float(np.exp(low))
        return float(np.exp(brentq(lambda x: self.f2(np.exp([x]))[0] - level, low, high, xtol=1e-9)))

    def _distinct_weights(self, alpha: FloatArray) -> FloatArray:
        """Weights of the distinct columns, shape (m, u)."""
        W = np.empty((len(alpha), self.fit_root.shape[1]))
        for i, scale in enumerate(np.sqrt(np.minimum(alpha, self.unit * _FARTHEST))):
            R = np.vstack([self.fit_root, scale * self.bias_root])
            d = np.r_[self.goal, scale * self.bias_goal]
            bound, free = R[:, ~self.free], R[:, self.free]
            if not self.free.any():
                W[i] = self._bound_weights(R, d)
                continue
            U, size, _ = np.linalg.svd(free, full_matrices=False)
            U = U[:, size > np.finfo(float).eps * len(size) * size.max(initial=0.0)]
            W[i, ~self.free] = own = self._bound_weights(bound - U @ (U.T @ bound), d - U @ (U.T @ d))
            W[i, self.free] = np.linalg.lstsq(free, d - bound @ own)[0]
        return W

    def _bound_weights(self, R: FloatArray, d: FloatArray) -> FloatArray:
        """The best weights of the columns of R under the constraint."""
        if not R.shape[1]:
            return np.zeros(0)
        if self.total is None:
            return nnls(R, d, maxiter=_ROUNDS * R.shape[1])[0]
        E = self.total * R - d[:, None]
        r = np.linalg.norm(E) or 1.0
        E, d = np.vstack([E, np.full(E.shape[1], r)]), np.append(np.zeros(len(E)), r)
        shares = nnls(E, d, maxiter=_ROUNDS * R.shape[1])[0]
        return self.total * shares / shares.sum()


@one_blas_thread()
def constrain(
    A: FloatArray,
    b: FloatArray,
    c0: float,
    C: FloatArray,
    kind: Constraint,
    *,
    push: tuple[FloatArray, float] | None = None,
    start: FloatArray | None = None,
    free: BoolArray | None = None,
) -> ConstrainedSolutions:
    """Prepare ``minimise x'Ax - 2b'x + c0 + alpha (x'Cx + 2c'x + d0)`` over ``x >= 0`` or such x of a fixed sum.

    Detectors with equal columns get equal weights, and one that is 0 on all rows gets none. Where detectors
    depend on each other in other ways, several weights may be optimal; one is taken that uses few detectors.

    Parameters
    ----------
    A, C : arrays of shape (k, k), symmetric and positive semidefinite
    b : array of shape (k,), in the range of A
    c0 : float
    kind : {"nonnegative", "simplex"}
        With ``"simplex"`` the sum is that of ``start``, or 1.
    push : pair of array of shape (k,) and float, optional
        ``c`` and ``d0``; 0 if not given.
    start : array of shape (k,), optional
        The solution at alpha = 0, where it is known.
    free : array of shape (k,), optional
        Columns that the constraint is not about; none if not given.

    >>> A, b, C = np.eye(2), np.array([2.0, -1.0]), np.diag([1.0, 0.0])
    >>> constrain(A, b, 5.0, C, "nonnegative").solutions(np.array([0.0, 1.0])).round(12)
    array([[2., 0.],
           [1., 0.]])
    >>> constrain(A, b, 5.0, C, "simplex").solutions(np.array([0.0, 9.0])).round(12)
    array([[1. , 0. ],
           [0.3636..., 0.6363...]])
    """
    k = len(b)
    eps = k * np.finfo(float).eps
    free = np.zeros(k, dtype=bool) if free is None else free
    c, d0 = (np.zeros(k), 0.0) if push is None else push
    trace_A, trace_C = float(np.trace(A)), float(np.trace(C))
    unit = trace_A / trace_C if trace_A > 0 and trace_C > 0 else 1.0
    label = _first_equal(np.vstack([A, unit * C, b, unit * c]))
    label[free] = np.flatnonzero(free)
    label[np.diag(A) <= 0] = -1
    if (label < 0).all():  # nothing to choose from
        label[:] = 0
    columns = np.unique(label[label >= 0])
    members = (label[:, None] == columns).astype(float)
    fit_root, goal = _least_squares(A[np.ix_(columns, columns)], b[columns], eps)
    bias_root, bias_goal = _least_squares(C[np.ix_(columns, columns)], -c[columns], eps)
    rest = max(d0 - float(bias_goal @ bias_goal), 0.0)  # what no weights can remove
    return ConstrainedSolutions(
        fit_root=fit_root,
        goal=goal,
        bias_root=np.vstack([bias_root, np.zeros(len(columns))]),
        bias_goal=np.r_[bias_goal, np.sqrt(rest)],
        f1_least=max(c0 - float(goal @ goal), 0.0),
        members=members / members.sum(axis=0),
        unit=unit,
        start=start,
        total=None if kind == "nonnegative" else 1.0 if start is None else float(start[~free].sum()),
        free=free[columns],
    )


def _first_equal(columns: FloatArray) -> IntArray:
    """For each column, the first one equal to it up to rounding."""
    apart = np.abs(columns[:, :, None] - columns[:, None, :]).max(axis=0)
    return np.argmax(apart <= _EQUAL * np.abs(columns).max(), axis=1)


def _least_squares(A: FloatArray, b: FloatArray, eps: float) -> tuple[FloatArray, FloatArray]:
    """``F`` and ``g`` with ``|F x - g|^2 = x'Ax - 2b'x`` and a constant; rows of F are orthogonal."""
    F = root(A, eps)
    return F, F @ b / (F**2).sum(axis=1)
