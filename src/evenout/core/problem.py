"""The problem that the weights solve, in the two ways it can be put, from the sums of one set of rows.

Anchored, the default: the target is a column, ``y = t + S v``, with ``minimise sum beta (S v)^2 + alpha form(y)``.
alpha = 0 is t itself, bit for bit, whatever the base ensemble. The columns of S are centred: a shift of all scores is
no change. Published: ``y = S w``, with ``minimise sum beta (S w - t)^2 + alpha form(y)``, without an intercept.

Columns of S are the scores of detectors and, behind them, how much a row resembles each group, where the score is
corrected by that (`Columns`): no constraint is about these.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from evenout.core.cells import Cells
from evenout.core.constrained import ConstrainedSolutions, constrain
from evenout.core.ray import Ray
from evenout.core.spectrum import Spectrum, factorise
from evenout.core.types import BoolArray, FloatArray, IntArray

Correction: TypeAlias = Literal["weights", "resemblance", "both"]
Method: TypeAlias = Literal["anchored", "published"]
Weights: TypeAlias = Literal["free", "nonnegative", "simplex"]

CORRECTIONS: tuple[Correction, ...] = ("weights", "resemblance", "both")
METHODS: tuple[Method, ...] = ("anchored", "published")
WEIGHTS: tuple[Weights, ...] = ("free", "nonnegative", "simplex")

RIDGE = 1e-4  # of the mean diagonal of A, in noise-aware solutions
CROWDED_RIDGE = 0.1  # the same where columns are many (`CrossFit.crowded`): weights then follow what all rows share


@dataclass(frozen=True)
class Columns:
    """Which columns of S are what, and which of them may move a score away from the target.

    Parameters
    ----------
    correction : {"weights", "resemblance", "both"}
        Detectors, resemblance of groups, or all.
    resembling : int
        So many of the last columns say how much a row resembles each group.
    """

    correction: Correction = "weights"
    resembling: int = 0

    def free(self, k: int) -> BoolArray:
        """The columns that no constraint is about, shape (k,)."""
        return np.arange(k) >= k - self.resembling

    def moving(self, k: int) -> IntArray:
        """The columns that may move."""
        first = k - self.resembling if self.correction == "resemblance" else 0
        return np.arange(first, k)


@dataclass(frozen=True)
class Mixture:
    """A score made of the target and the detectors: ``target t + sum_j weights_j (s_j - centre_j)``.

    Parameters
    ----------
    weights, centre : arrays of shape (k,)
    target : float
    """

    weights: FloatArray
    centre: FloatArray
    target: float

    def apply(self, S: FloatArray, t: FloatArray) -> FloatArray:
        """The score of rows, each by itself: it does not depend on the rows around it."""
        return self.target * t + np.einsum("ij,j->i", S - self.centre, self.weights)

    def parts(self, S: FloatArray, t: FloatArray) -> FloatArray:
        """What each detector adds to a row's score, and last the target: shape (n, k + 1), rows sum to `apply`."""
        return np.column_stack([(S - self.centre) * self.weights, self.target * t])


@dataclass(frozen=True)
class Solutions:
    """All solutions of one problem.

    Parameters
    ----------
    inner : Spectrum, ConstrainedSolutions or Ray
        In the unknowns of the problem.
    shift : array of shape (k + 1,)
        Unknowns plus this are the weights of ``(s, t)``.
    base : array of shape (k,)
        Weights that the detectors have in t, where t is linear in them; else 0.
    centre : array of shape (k,)
        What is taken off the columns of S.
    moving : array of int, optional
        The columns whose weights are the unknowns; the first ones if left out.
    """

    inner: Spectrum | ConstrainedSolutions | Ray
    shift: FloatArray
    base: FloatArray
    centre: FloatArray
    moving: IntArray | None = None

    def mixed(self, alpha: FloatArray) -> FloatArray:
        """Weights of ``(s, t)`` for alphas of shape (m,): shape (m, k + 1)."""
        found = self.inner.solutions(alpha)
        places = np.arange(found.shape[1]) if self.moving is None else self.moving
        whole = np.zeros((len(found), len(self.shift)))
        whole[:, places] = found
        return whole + self.shift

    def weights(self, alpha: FloatArray) -> FloatArray:
        """Weights of the detectors, those that they have in t included where t is linear in them, shape (m, k)."""
        return self.mixed(alpha)[:, :-1] + self.base

    def mixture(self, alpha: float) -> Mixture:
        """The score at one alpha."""
        V = self.mixed(np.array([alpha]))[0]
        return Mixture(V[:-1], self.centre, float(V[-1]))


def solve(
    cells: Cells,
    place: int,
    form: FloatArray,
    *,
    method: Method,
    constraint: Weights,
    ridge: float,
    columns: Columns = Columns(),  # noqa: B008
    direction: FloatArray | None = None,
) -> Solutions:
    """Solve for every alpha.

    Parameters
    ----------
    cells : Cells
    place : int
        The set of rows to solve on.
    form : array of shape (k + 1, k + 1)
        Of ``(s, t)``.
    method : {"anchored", "published"}
    constraint : {"free", "nonnegative", "simplex"}
        Of the weights of the sum where t is linear in the detectors or the problem is the published one; else of v, and
        for ``"simplex"`` of v and the target's weight together. Resemblance is free of it.
    ridge : float
        Add this share of the mean of A's diagonal to it, so that nearly equal detectors do not get huge weights of
        opposite sign, which new rows would not forgive.
    columns : Columns
        Which columns may move; for ``"anchored"``.
    direction : array of shape (k,), optional
        Solved for already: the straight way from t to there (`evenout.core.ray`).
    """
    k, total = cells.n_detectors, cells.weighted[place]
    none = np.zeros(k)
    if method == "published":
        A = _ridged(total[1:-1, 1:-1], ridge)
        problem = A, total[1:-1, -1], float(total[-1, -1]), form[:-1, :-1]
        inner = factorise(*problem) if constraint == "free" else constrain(*problem, constraint)
        return Solutions(inner, np.zeros(k + 1), none, none)
    centre = total[0, 1:] / total[0, 0]
    joint = total[1:, 1:] - total[0, 0] * np.outer(centre, centre)
    A, C, c, d0 = _ridged(joint[:-1, :-1], ridge), form[:-1, :-1], form[:-1, -1], float(form[-1, -1])
    base = none if cells.base is None else cells.base[place]
    anchor = np.append(none, 1.0)
    if direction is not None:
        return Solutions(Ray(direction, joint[:-1, :-1], C, c, d0), anchor, base, centre[:-1])
    if constraint == "free" or columns.correction == "resemblance" or joint[-1, -1] <= 0:
        # With a constant target nothing pushes, and v is 0.
        own = columns.moving(k)
        inner = factorise(A[np.ix_(own, own)], none[own], 0.0, C[np.ix_(own, own)], c[own], d0)
        return Solutions(inner, anchor, base, centre[:-1], own)
    free = columns.free(k)
    if cells.base is not None:
        start = constrain(A, A @ base, float(base @ A @ base), C, constraint, start=base, free=free)
        return Solutions(start, np.append(-base, 1.0), base, centre[:-1])
    if constraint == "nonnegative":
        start = constrain(A, none, 0.0, C, constraint, push=(c, d0), start=none, free=free)
        return Solutions(start, anchor, base, centre[:-1])
    joint = _ridged(joint, ridge)
    bound = np.append(free, False)
    start = constrain(joint, joint[:, -1], float(joint[-1, -1]), form, constraint, start=anchor, free=bound)
    return Solutions(start, np.zeros(k + 1), base, centre[:-1])


def _ridged(A: FloatArray, ridge: float) -> FloatArray:
    """A detector that is 0 on all rows gets no ridge, lest it be taken for one that says something."""
    return A + ridge * np.trace(A) / len(A) * np.diag(np.diag(A) > 0) if ridge else A
