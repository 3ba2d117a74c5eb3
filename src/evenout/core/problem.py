"""Minimise the misfit plus alpha times the bias, for every alpha at once.

    minimise  x'Ax - 2 b'x  +  alpha (x'Cx + 2 c'x)

With ``P = A + tau C`` and a basis ``B`` in which ``B'PB = I`` and ``B'CB = diag(mu)``, also ``B'AB = diag(a)``,
``a = 1 - tau mu``, so

    x(alpha) = B diag(1 / (a + alpha mu)) (B'b - alpha B'c)

and f1 and f2 are sums of terms that each rise and fall with alpha. The published problem ``y = S w`` has ``c = 0``;
with the target as a column, ``y = t + S v``, it is b that is 0, and ``x(0) = 0`` exactly.

With roots ``F'F = A`` and ``G'G = C``, the problem is one of least squares,

    f1(x) + alpha f2(x)  =  |F x - g|^2 + alpha |G x - h|^2 + constants,

and both constraints lead to nonnegative least squares. Columns that are free of the constraint are projected out of all
others first, and their weights follow from what is left. For shares: where ``1'u = 1`` and ``x = s u``, the squares are
``|E u|^2`` with ``E`` the rows ``s F - g 1'`` and ``sqrt(alpha) (s G - h 1')``, and the ``u >= 0`` that minimises
``|E u|^2 + r^2 (1'u - 1)^2`` is a multiple of the best one: along ``u = q w`` the least value is ``r^2 e / (e + r^2)``,
``e = |E w|^2``, which rises with e.

A request for flag rates is not met along the path of equal means: its rule is solved for at the threshold itself
(`evenout.core.flags`). The straight path ``t + alpha S v``, alpha from 0 to 1, leads from the base score to this rule
and is measured like every other path.

Anchored, the default: the target is a column, ``y = t + S v``, with ``minimise sum beta (S v)^2 + alpha form(y)``.
alpha = 0 is t itself, bit for bit, whatever the base ensemble. The columns of S are centred: a shift of all scores is
no change. Published: ``y = S w``, with ``minimise sum beta (S w - t)^2 + alpha form(y)``, without an intercept.

Columns of S are the scores of detectors and, where the score is corrected by resemblance (`Columns`), how much a row
resembles each group; constraints do not apply to the latter.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq, nnls

from evenout.core.cells import Cells
from evenout.core.parallel import one_blas_thread
from evenout.core.ruler import ratio
from evenout.core.types import FINITE, BoolArray, FloatArray, IntArray, Within, require

_FAR = 1e150  # larger alphas count as infinite


@dataclass(frozen=True)
class Spectrum:
    """Minimisers of ``f1(x) + alpha f2(x)`` for all alpha >= 0; see `factorise`.

    ``basis`` (k, r) is ``B``, whose columns span the ranges of A and C; ``misfit`` and ``bias`` (r,) are ``a`` and
    ``mu``, the cost of a unit step along each column in f1 and in f2; ``pull`` and ``push`` (r,) are ``B'b`` and
    ``B'c``; ``f1_least`` is reached at alpha = 0, ``f2_least`` at infinity.
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
        return self.f1_least + ((self._coordinates(alpha) - ratio(self.pull, self.misfit, 0.0)) ** 2) @ self.misfit

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(x(alpha)) = f2_least + (x - x(inf))' C (x - x(inf))``."""
        return self.f2_least + self._left(alpha)

    def alpha_at(self, fall: float) -> float:
        """The alpha at which f2 has made the share ``fall`` (0 < fall < 1) of its fall; 0 if it does not fall."""
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
        """Coordinates at alpha = 0 less those at infinity."""
        return np.where(self.misfit > 0, ratio(self.pull, self.misfit, 0.0) + ratio(self.push, self.bias, 0.0), 0.0)

    def _left(self, alpha: FloatArray) -> FloatArray:
        """``f2 - f2_least``: each term is that of alpha = 0 times ``(a / (a + alpha mu))^2``."""
        cost = self.misfit + np.minimum(alpha, _FAR)[:, None] * self.bias
        return (ratio(self.misfit, cost, 0.0) * self._start) ** 2 @ self.bias

    def _coordinates(self, alpha: FloatArray) -> FloatArray:
        """``B``-coordinates of x(alpha), shape (m, r); a direction that f1 does not depend on stays at 0."""
        costs, bounded = self.misfit > 0, np.minimum(alpha, _FAR)[:, None]  # beyond, all quotients are the same
        moved = np.where(self.bias > 0, self.pull - bounded * self.push, self.pull)
        return np.where(costs, moved, 0.0) / np.where(costs, self.misfit + bounded * self.bias, 1.0)


@one_blas_thread()
def factorise(
    A: FloatArray, b: FloatArray, c0: float, C: FloatArray, c: FloatArray | None = None, d0: float = 0.0
) -> Spectrum:
    """Factor ``minimise x'Ax - 2b'x + c0 + alpha (x'Cx + 2c'x + d0)`` once for every alpha.

    Rank rule: ``A + tau C`` with ``tau = tr A / tr C`` is factored, and its eigenvalues below ``eps k lambda_max`` are
    dropped. Inside what is left, a direction that A cannot tell from 0 at the same precision keeps the weight 0.

    A and C (k, k) are symmetric and positive semidefinite, b (k,) is in the range of A, and c (k,), or 0, in that of C.

    >>> spectrum = factorise(np.eye(2), np.array([1.0, 1.0]), 2.0, np.diag([1.0, 0.0]))
    >>> spectrum.solutions(np.array([0.0, 1.0, np.inf])).round(12) + 0.0
    array([[1. , 1. ],
           [0.5, 1. ],
           [0. , 1. ]])
    """
    eps, tau = len(b) * np.finfo(float).eps, _natural_unit(A, C)
    values, vectors = eigh(A + tau * C)
    kept = values > max(eps * values[-1], 0.0)
    half = vectors[:, kept] / np.sqrt(values[kept])
    _, singular, rotation = np.linalg.svd(np.sqrt(tau) * root(C, eps) @ half)  # scipy's refuses an empty array
    share = np.zeros(half.shape[1])  # eigenvalues in [0, 1], exact zeros beyond the rank
    share[: len(singular)] = np.minimum(singular**2, 1.0)[: len(share)]
    share[share < eps] = 0.0
    misfit = np.where(1.0 - share < eps, 0.0, 1.0 - share)
    basis, bias = half @ rotation.T, share / tau
    pull = np.where(misfit > 0, basis.T @ b, 0.0)
    push = np.zeros_like(pull) if c is None else np.where((share > 0) & (misfit > 0), basis.T @ c, 0.0)
    f1_least = c0 - float(ratio(pull**2, misfit, 0.0).sum())
    f2_least = d0 - float(ratio(push**2, bias, 0.0).sum())
    return Spectrum(basis, misfit, bias, pull, push, max(f1_least, 0.0), max(f2_least, 0.0))


def _natural_unit(A: FloatArray, C: FloatArray) -> float:
    """``tr A / tr C``, the natural unit of alpha; 1 if one of them is 0."""
    trace_A, trace_C = float(np.trace(A)), float(np.trace(C))
    return trace_A / trace_C if trace_A > 0 and trace_C > 0 else 1.0


def root(C: FloatArray, eps: float) -> FloatArray:
    """``R`` of full row rank with ``R'R = C``, so that directions outside the range of C cost exactly 0."""
    values, vectors = eigh(C)
    kept = values > max(eps * values[-1], 0.0)
    return (vectors[:, kept] * np.sqrt(values[kept])).T


Constraint: TypeAlias = Literal["nonnegative", "simplex"]

_FARTHEST = 1e12  # in units of tr A / tr C; beyond, the misfit has drowned in rounding
_ROUNDS = 100  # per column; about one is usual
_EQUAL = 1e-12  # relative difference of products with equal columns


@dataclass(frozen=True)
class ConstrainedSolutions:
    """Minimisers of ``f1(x) + alpha f2(x)`` under a constraint for all alpha >= 0; see `constrain`.

    f1 never falls and f2 never rises with alpha, as without constraints. An infinite alpha means the limit.

    ``fit_root`` (r, u) and ``goal`` (r,) are ``F`` and ``g``, over the u columns that differ from each other;
    ``bias_root`` (q, u) and ``bias_goal`` (q,) are ``G`` and ``h``; ``f1_least`` is the least f1 without constraints.
    ``members`` (k, u) splits each distinct column's weight evenly among the detectors that have it; its columns sum to
    1. ``unit`` is ``tr A / tr C``, the natural unit of alpha; ``start`` (k,) the solution at alpha = 0, where it is
    known; ``total`` the sum of the weights, where it is fixed; ``free`` (u,) marks columns without a constraint.
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
        x = self._distinct_weights(alpha) @ self.members.T
        return x if self.start is None else np.where(np.asarray(alpha)[:, None] == 0, self.start, x)

    def f1(self, alpha: FloatArray) -> FloatArray:
        """``f1(x(alpha))``."""
        return self.f1_least + ((self._distinct_weights(alpha) @ self.fit_root.T - self.goal) ** 2).sum(axis=1)

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(x(alpha))``."""
        return ((self._distinct_weights(alpha) @ self.bias_root.T - self.bias_goal) ** 2).sum(axis=1)

    def alpha_at(self, fall: float) -> float:
        """The alpha at which f2 has made the share ``fall`` (0 < fall < 1) of its fall; 0 if it does not fall.

        It falls from ``f2(x(0))`` to the least value under the constraint, which may be above 0.
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
            R, d = np.vstack([self.fit_root, scale * self.bias_root]), np.r_[self.goal, scale * self.bias_goal]
            if not self.free.any():
                W[i] = self._bound_weights(R, d)
                continue
            bound, free = R[:, ~self.free], R[:, self.free]
            U, size, _ = np.linalg.svd(free, full_matrices=False)
            U = U[:, size > np.finfo(float).eps * len(size) * size.max(initial=0.0)]
            W[i, ~self.free] = weights = self._bound_weights(bound - U @ (U.T @ bound), d - U @ (U.T @ d))
            W[i, self.free] = np.linalg.lstsq(free, d - bound @ weights)[0]
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

    A, b, c0 and C are as in `factorise`. With ``"simplex"`` the sum is that of ``start``, or 1. ``push`` are ``c`` (k,)
    and ``d0``, 0 if not given; ``start`` (k,) is the solution at alpha = 0, where it is known; ``free`` (k,) marks
    columns without a constraint.

    >>> A, b, C = np.eye(2), np.array([2.0, -1.0]), np.diag([1.0, 0.0])
    >>> constrain(A, b, 5.0, C, "nonnegative").solutions(np.array([0.0, 1.0])).round(12)
    array([[2., 0.],
           [1., 0.]])
    >>> constrain(A, b, 5.0, C, "simplex").solutions(np.array([0.0, 9.0])).round(12)
    array([[1. , 0. ],
           [0.3636..., 0.6363...]])
    """
    k, unit = len(b), _natural_unit(A, C)
    free = np.zeros(k, dtype=bool) if free is None else free
    c, d0 = (np.zeros(k), 0.0) if push is None else push
    products = np.vstack([A, unit * C, b, unit * c])
    apart = np.abs(products[:, :, None] - products[:, None, :]).max(axis=0)
    label = np.argmax(apart <= _EQUAL * np.abs(products).max(), axis=1)  # the first column that is equal to each
    label[free] = np.flatnonzero(free)
    label[np.diag(A) <= 0] = -1
    if (label < 0).all():  # nothing to choose from
        label[:] = 0
    columns = np.unique(label[label >= 0])
    members = (label[:, None] == columns).astype(float)
    eps, block = k * np.finfo(float).eps, np.ix_(columns, columns)
    fit_root, bias_root = root(A[block], eps), root(C[block], eps)
    goal, bias_goal = (F @ d / (F**2).sum(axis=1) for F, d in ((fit_root, b[columns]), (bias_root, -c[columns])))
    rest = max(d0 - float(bias_goal @ bias_goal), 0.0)  # the bias that no weights can remove
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


@dataclass(frozen=True)
class FlagRule:
    """End of a straight path: weights (k,) added to the base score, and those solved without each fold, (K, k)."""

    own: Annotated[FloatArray, "k"]
    without: Annotated[FloatArray, "K k"]


@dataclass(frozen=True)
class StraightPath:
    """``x(alpha) = alpha direction``, with ``f2 = x'Cx + 2c'x + d0``."""

    direction: FloatArray
    C: FloatArray
    c: FloatArray
    d0: float

    def solutions(self, alpha: FloatArray) -> FloatArray:
        """``x(alpha)`` for alphas of shape (m,): shape (m, k)."""
        return np.asarray(alpha)[:, None] * self.direction

    def f2(self, alpha: FloatArray) -> FloatArray:
        """``f2(x(alpha))``."""
        square, push = float(self.direction @ self.C @ self.direction), float(self.c @ self.direction)
        return np.maximum(np.asarray(alpha) ** 2 * square + 2.0 * np.asarray(alpha) * push + self.d0, 0.0)

    def alpha_at(self, fall: float) -> float:
        """The share itself; 0 if the path has no direction."""
        return fall if self.direction.any() else 0.0


Correction: TypeAlias = Literal["weights", "resemblance", "both"]
Method: TypeAlias = Literal["anchored", "published"]
Weights: TypeAlias = Literal["free", "nonnegative", "simplex"]

CORRECTIONS: tuple[Correction, ...] = ("weights", "resemblance", "both")
METHODS: tuple[Method, ...] = ("anchored", "published")
WEIGHTS: tuple[Weights, ...] = ("free", "nonnegative", "simplex")

RIDGE = 1e-4  # of the mean diagonal of A, in noise-aware solutions
CROWDED_RIDGE = 0.1  # where columns are many (`CrossFit.crowded`): weights then follow what all rows share


@dataclass(frozen=True)
class Columns:
    """Which columns may move a score away from the target: detectors, resemblance of groups, or both.

    The last ``resembling`` columns of S say how much a row resembles each group.
    """

    correction: Correction = "weights"
    resembling: Annotated[int, Within(0)] = 0

    def check(self) -> None:
        """Require resemblance where it is to move the score."""
        require(self.correction == "weights" or self.resembling > 0, "resembling", "does not go with the rest")

    def free(self, k: int) -> BoolArray:
        """The columns without a constraint, shape (k,)."""
        return np.arange(k) >= k - self.resembling

    def moving(self, k: int) -> IntArray:
        """The columns that may move."""
        return np.arange(k - self.resembling if self.correction == "resemblance" else 0, k)


@dataclass(frozen=True)
class Mixture:
    """Score of target and detectors: ``target t + sum_j weights_j (s_j - centre_j)``, arrays of shape (k,)."""

    weights: Annotated[FloatArray, "k"]
    centre: Annotated[FloatArray, "k"]
    target: Annotated[float, FINITE]

    def apply(self, S: FloatArray, t: FloatArray) -> FloatArray:
        """Score rows, each independently of the others."""
        return self.target * t + np.einsum("ij,j->i", S - self.centre, self.weights)

    def parts(self, S: FloatArray, t: FloatArray) -> FloatArray:
        """The part of each detector in a row's score, and last of the target, (n, k + 1); rows sum to `apply`."""
        return np.column_stack([(S - self.centre) * self.weights, self.target * t])


@dataclass(frozen=True)
class Solutions:
    """All solutions of one problem.

    ``inner`` has them in the unknowns of the problem: the weights of the columns ``moving``, the first ones if left
    out. Unknowns plus ``shift`` (k + 1,) are the weights of ``(s, t)``; ``base`` (k,) are the detectors' weights in t,
    where t is linear in them, else 0; ``centre`` (k,) is subtracted from the columns of S.
    """

    inner: Spectrum | ConstrainedSolutions | StraightPath
    shift: FloatArray
    base: FloatArray
    centre: FloatArray
    moving: IntArray | None = None

    def mixed(self, alpha: FloatArray) -> FloatArray:
        """Weights of ``(s, t)`` for alphas of shape (m,): shape (m, k + 1)."""
        x = self.inner.solutions(alpha)
        whole = np.zeros((len(x), len(self.shift)))
        whole[:, slice(x.shape[1]) if self.moving is None else self.moving] = x
        return whole + self.shift


def solve(
    cells: Cells,
    place: int,
    form: FloatArray,
    *,
    method: Method,
    constraint: Weights,
    ridge: float,
    columns: Columns = Columns(),
    direction: FloatArray | None = None,
) -> Solutions:
    """Solve on one set of rows, for every alpha.

    ``place`` is the set of the cells to solve on, ``form`` (k + 1, k + 1) that of ``(s, t)``. The constraint is one of
    the weights of the sum where t is linear in the detectors or the problem is the published one; else of v, and for
    ``"simplex"`` of v and the target's weight together. It does not apply to resemblance. The share ``ridge`` of the
    mean of A's diagonal is added to the diagonal, so that nearly equal detectors do not get huge weights of opposite
    sign. ``columns`` says which columns may move, for ``"anchored"``. With a ``direction`` (k,), the straight path from
    t is taken instead of solving.
    """
    k, total = cells.n_detectors, cells.weighted[place]
    none = np.zeros(k)
    if method == "published":
        problem = _ridged(total[1:-1, 1:-1], ridge), total[1:-1, -1], float(total[-1, -1]), form[:-1, :-1]
        inner = factorise(*problem) if constraint == "free" else constrain(*problem, constraint)
        return Solutions(inner, np.zeros(k + 1), none, none)
    centre = total[0, 1:] / total[0, 0]
    joint = total[1:, 1:] - total[0, 0] * np.outer(centre, centre)
    A, C, c, d0 = _ridged(joint[:-1, :-1], ridge), form[:-1, :-1], form[:-1, -1], float(form[-1, -1])
    base = none if cells.base is None else cells.base[place]
    anchor, moving, free = np.append(none, 1.0), columns.moving(k), columns.free(k)
    if direction is not None:
        return Solutions(StraightPath(direction, C, c, d0), anchor, base, centre[:-1])
    if constraint == "free" or columns.correction == "resemblance" or joint[-1, -1] <= 0:
        # With a constant target nothing pushes, and v is 0.
        block = np.ix_(moving, moving)
        inner = factorise(A[block], none[moving], 0.0, C[block], c[moving], d0)
        return Solutions(inner, anchor, base, centre[:-1], moving)
    shift = anchor
    if cells.base is not None:
        inner = constrain(A, A @ base, float(base @ A @ base), C, constraint, start=base, free=free)
        shift = np.append(-base, 1.0)
    elif constraint == "nonnegative":
        inner = constrain(A, none, 0.0, C, constraint, push=(c, d0), start=none, free=free)
    else:
        joint, free = _ridged(joint, ridge), np.append(free, False)
        inner = constrain(joint, joint[:, -1], float(joint[-1, -1]), form, constraint, start=anchor, free=free)
        shift = np.zeros(k + 1)
    return Solutions(inner, shift, base, centre[:-1])


def _ridged(A: FloatArray, ridge: float) -> FloatArray:
    """Add a ridge to A, but none for a detector that is 0 on all rows: its weight stays 0."""
    return A + ridge * np.trace(A) / len(A) * np.diag(np.diag(A) > 0) if ridge else A
