"""Weights that an auditor can read: ``w >= 0``, or shares that sum to 1, solved exactly for every alpha.

With roots ``F'F = A`` and ``G'G = C`` and the goal ``g`` of ``F'g = b``, the problem is one of least squares,

    f1(w) + alpha f2(w)  =  |F w - g|^2 + alpha |G w|^2 + f1_least,

and both constraints lead to nonnegative least squares. For shares: where ``1'w = 1``, the squares are
``|E w|^2`` with ``E`` the rows ``F - g 1'`` and ``sqrt(alpha) G``, and the ``u >= 0`` that minimises
``|E u|^2 + s^2 (1'u - 1)^2`` is a multiple of the best ``w``: along ``u = r w`` the least value is
``s^2 q / (q + s^2)``, ``q = |E w|^2``, which rises with q.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from scipy.linalg import eigh, lstsq
from scipy.optimize import brentq

from evenout.core.types import BoolArray, FloatArray, IntArray

Constraint: TypeAlias = Literal["nonnegative", "simplex"]

_FARTHEST = 1e12  # in units of tr A / tr C; beyond, the misfit has drowned in rounding
# In the same units. These are solved once; any other alpha starts from the nearest of them below.
_KNOTS = np.r_[0.0, np.geomspace(1e-8, 1e8, 33)]
_ROUNDS = 20  # per column; about one is usual from a cold start
_EQUAL = 1e-12  # relative difference of products with equal columns
_TOLERANCE = 1e-13  # of |column| |goal|: a slope that is rounding alone


@dataclass(frozen=True)
class ConstrainedSolutions:
    """Minimisers of ``f1(w) + alpha f2(w)`` under a constraint for all alpha >= 0; see `constrain`.

    f1 never falls and f2 never rises with alpha, as without constraints. An infinite alpha means the limit.

    Parameters
    ----------
    fit_root : array of shape (r, u)
        ``F``, over the u columns that differ from each other.
    goal : array of shape (r,)
        ``g``.
    bias_root : array of shape (q, u)
        ``G``.
    f1_least : float
        The smallest value of f1 without constraints.
    members : array of shape (k, u)
        Each distinct column's weight is shared out evenly among the detectors that have it; columns sum to 1.
    unit : float
        ``tr A / tr C``, the natural unit of alpha.
    kind : {"nonnegative", "simplex"}
    """

    fit_root: FloatArray
    goal: FloatArray
    bias_root: FloatArray
    f1_least: float
    members: FloatArray
    unit: float
    kind: Constraint

    def weights(self, alpha: FloatArray) -> FloatArray:
        """``w(alpha)`` for alphas of shape (m,): shape (m, k)."""
        return self._distinct_weights(alpha) @ self.members.T

    def f1(self, alpha: FloatArray) -> FloatArray:
        """``f1(w(alpha))``."""
        residual = self._distinct_weights(alpha) @ self.fit_root.T - self.goal
        return self.f1_least + (residual**2).sum(axis=1)

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(w(alpha))``."""
        return ((self._distinct_weights(alpha) @ self.bias_root.T) ** 2).sum(axis=1)

    def alpha_at(self, fall: float) -> float:
        """The alpha at which f2 has gone the share ``fall`` (0 < fall < 1) of its way; 0 if it does not fall.

        The way leads from ``f2(w(0))`` to the least value under the constraint. With ``"nonnegative"`` that is
        0, as without constraints. Shares cannot shrink: with ``"simplex"`` some bias may stay at any alpha.
        """
        start, end = self.f2(np.array([0.0, np.inf]))
        rounding = 1e-14 * self._knots[0] @ np.abs(self.bias_root).T  # of G w(0), where its terms cancel
        if start - end <= 1e-12 * start + (rounding**2).sum():
            return 0.0
        level = end + (1.0 - fall) * (start - end)
        low, high = np.log(self.unit / _FARTHEST), np.log(self.unit * _FARTHEST)
        if self.f2(np.exp([low]))[0] <= level:
            return float(np.exp(low))
        return float(np.exp(brentq(lambda x: self.f2(np.exp([x]))[0] - level, low, high, xtol=1e-9)))

    @cached_property
    def _knots(self) -> FloatArray:
        """Solutions at ``unit * _KNOTS``, each found from the one before, shape (34, u)."""
        W = np.zeros((len(_KNOTS) + 1, self.fit_root.shape[1]))
        for i, knot in enumerate(_KNOTS):
            W[i + 1] = self._solve(self.unit * knot, W[i])
        return W[1:]

    def _distinct_weights(self, alpha: FloatArray) -> FloatArray:
        alphas = np.minimum(alpha, self.unit * _FARTHEST)
        below = np.searchsorted(self.unit * _KNOTS, alphas, side="right") - 1
        if not len(alphas):
            return np.zeros((0, self.fit_root.shape[1]))
        return np.stack([self._solve(a, self._knots[i]) for a, i in zip(alphas, below, strict=True)])

    def _solve(self, alpha: float, start: FloatArray) -> FloatArray:
        if self.kind == "nonnegative":
            R = np.vstack([self.fit_root, np.sqrt(alpha) * self.bias_root])
            return nonnegative_least_squares(R, np.r_[self.goal, np.zeros(len(self.bias_root))], start)
        E = np.vstack([self.fit_root - self.goal[:, None], np.sqrt(alpha) * self.bias_root])
        s = np.linalg.norm(E) or 1.0
        R = np.vstack([E, np.full(E.shape[1], s)])
        w = nonnegative_least_squares(R, np.r_[np.zeros(len(E)), s], start)
        return w / w.sum()


def constrain(
    A: FloatArray, b: FloatArray, c0: float, C: FloatArray, kind: Constraint
) -> ConstrainedSolutions:
    """Prepare ``minimise w'Aw - 2b'w + c0 + alpha w'Cw`` over ``w >= 0`` and, if ``"simplex"``, ``sum w = 1``.

    Detectors with equal columns get equal weights, and one that is 0 on all rows gets none. Where detectors
    depend on each other in other ways, several weights may be optimal; one is taken that uses few detectors.

    Parameters
    ----------
    A, C : arrays of shape (k, k), symmetric and positive semidefinite
    b : array of shape (k,), in the range of A
    c0 : float
    kind : {"nonnegative", "simplex"}

    >>> A, b, C = np.eye(2), np.array([2.0, -1.0]), np.diag([1.0, 0.0])
    >>> constrain(A, b, 5.0, C, "nonnegative").weights(np.array([0.0, 1.0])).round(12)
    array([[2., 0.],
           [1., 0.]])
    >>> constrain(A, b, 5.0, C, "simplex").weights(np.array([0.0, 9.0])).round(12)
    array([[1. , 0. ],
           [0.3636..., 0.6363...]])
    """
    k = len(b)
    eps = k * np.finfo(float).eps
    trace_A, trace_C = float(np.trace(A)), float(np.trace(C))
    unit = trace_A / trace_C if trace_A > 0 and trace_C > 0 else 1.0
    label = _first_equal(np.vstack([A, unit * C, b]))
    label[np.diag(A) <= 0] = -1
    if (label < 0).all():  # nothing to choose from
        label[:] = 0
    columns = np.unique(label[label >= 0])
    members = (label[:, None] == columns).astype(float)
    values, vectors = _eigen(A[np.ix_(columns, columns)], eps)
    goal = vectors.T @ b[columns] / np.sqrt(values)
    bias_values, bias_vectors = _eigen(C[np.ix_(columns, columns)], eps)
    return ConstrainedSolutions(
        fit_root=(vectors * np.sqrt(values)).T,
        goal=goal,
        bias_root=(bias_vectors * np.sqrt(bias_values)).T,
        f1_least=max(c0 - float(goal @ goal), 0.0),
        members=members / members.sum(axis=0),
        unit=unit,
        kind=kind,
    )


def nonnegative_least_squares(R: FloatArray, d: FloatArray, start: FloatArray) -> FloatArray:
    """Minimise ``|R w - d|^2`` over ``w >= 0`` by active sets (Lawson and Hanson 1974, chapter 23).

    Columns are free or held at 0. The free ones are solved for; the step towards that solution stops where a
    weight reaches 0, which is then held; at a solution, the held column of steepest slope is freed. The sum of
    squares falls with every column freed, so no free set comes twice. A limit on the rounds, never met in
    trials, keeps rounding from undoing this.

    Parameters
    ----------
    R : array of shape (r, u)
    d : array of shape (r,)
    start : array of shape (u,), nonnegative
        The closer to the solution, the fewer the steps.

    Returns
    -------
    array of shape (u,), with slope ``R_j'(d - R w)`` 0 where ``w_j > 0``, and at most 0 where ``w_j = 0``
    """
    flat = _TOLERANCE * np.linalg.norm(R, axis=0) * np.linalg.norm(d)
    w = _descend(R, d, start, start > 0)
    refused = np.zeros(len(w), dtype=bool)
    for _ in range(_ROUNDS * len(w)):
        slope = R.T @ (d - R @ w)
        open_ = (w == 0) & (slope > flat) & ~refused
        if not open_.any():
            break
        j = int(np.argmax(np.where(open_, slope, -np.inf)))
        free = w > 0
        free[j] = True
        moved = _descend(R, d, w, free)
        if np.array_equal(moved > 0, w > 0):  # j came back at once: its slope was rounding
            refused[j] = True
        else:
            w, refused[:] = moved, False
    return w


def _descend(R: FloatArray, d: FloatArray, w: FloatArray, free: BoolArray) -> FloatArray:
    """Move from ``w`` to the least-squares solution over the free columns; those that reach 0 are held."""
    while free.any():
        z = np.zeros_like(w)
        z[free] = lstsq(R[:, free], d, lapack_driver="gelsy", check_finite=False)[0]
        blocking = free & (z <= 0)
        if not blocking.any():
            return z
        room = np.full(len(w), np.inf)
        room[blocking] = w[blocking] / np.maximum(w[blocking] - z[blocking], np.finfo(float).tiny)
        w = w + room.min() * (z - w)
        free = free & (room > room.min())
        w = np.where(free, np.maximum(w, 0.0), 0.0)
    return np.zeros_like(w)


def _first_equal(columns: FloatArray) -> IntArray:
    """For each column, the first one equal to it up to rounding."""
    apart = np.abs(columns[:, :, None] - columns[:, None, :]).max(axis=0)
    return np.argmax(apart <= _EQUAL * np.abs(columns).max(), axis=1)


def _eigen(A: FloatArray, eps: float) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues above rounding, and their vectors as columns."""
    values, vectors = eigh(A)
    kept = values > max(eps * values[-1], 0.0)
    return values[kept], vectors[:, kept]
