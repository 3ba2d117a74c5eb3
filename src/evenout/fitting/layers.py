"""Which groups a classifier tells apart, and how its probabilities become those that hold."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from evenout.core.membership import Membership
from evenout.core.types import BoolArray, FloatArray, IntArray

_LEAST = 1e-6  # probabilities below are taken as this
_FLATTEST, _STEEPEST = 1e-3, 10.0  # slopes; below the first, nothing is known


@dataclass(frozen=True)
class Calibration:
    """From probabilities to those that hold: ``log P_g = slope log p_g + offset_g``, up to a constant.

    The offsets make the mean probability of each group its share of the rows, so that ``r_g`` has the mean 1. A slope
    below 1 takes back what an eager classifier is too sure of; 0 means that it knows nothing, and ``r_g`` is 1.

    Parameters
    ----------
    slope : float
    offset : array of shape (G,)
    """

    slope: float
    offset: FloatArray

    @classmethod
    def fit(cls, p: FloatArray, actual: FloatArray, weight: FloatArray | None = None) -> "Calibration":
        """Maximum likelihood on probabilities (n, G) of rows that the classifier has not seen.

        ``actual`` (n, G) is 1 for a row's group and 0 for others, or how much it belongs to each; rows sum to 1.
        """
        z, n_groups = _logarithm(p), p.shape[1]
        mass = (np.ones(len(p)) if weight is None else weight)[:, None]
        mass = mass / mass.sum()
        share = np.maximum((actual * mass).sum(axis=0), _LEAST)

        def loss(v: FloatArray) -> tuple[float, FloatArray]:
            found = _log_softmax(v[0] * z + v[1:])
            surplus = (np.exp(found) - actual) * mass
            gradient = np.append((surplus * z).sum(), surplus.sum(axis=0))
            return -float((found * actual * mass).sum()), gradient

        # A classifier that says nothing is where the search begins.
        start = np.append(0.0, np.log(share))
        bounds = [(0.0, _STEEPEST)] + [(None, None)] * n_groups
        v = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-14}).x
        return cls(float(v[0]), v[1:] - v[1:].mean()) if v[0] > _FLATTEST else cls(0.0, np.log(share))

    def apply(self, p: FloatArray) -> FloatArray:
        """Calibrated probabilities, shape (n, G)."""
        if self.slope == 0:
            return np.tile(np.exp(self.offset), (len(p), 1))
        return np.exp(_log_softmax(self.slope * _logarithm(p) + self.offset))


class Layer(NamedTuple):
    """Groups that one classifier tells apart.

    ``groups`` are their places; ``actual`` (n, G' + 1) is how much each row belongs to each of them and, last, to none;
    ``learnt`` (n,) are the rows that are learnt from; ``rest``: whether "none" is a class; ``stands_for`` (n,) is how
    many rows each row stands for, None if each for itself.
    """

    groups: IntArray
    actual: FloatArray
    learnt: BoolArray
    rest: bool
    stands_for: FloatArray | None = None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.groups) + self.rest

    @property
    def plain(self) -> bool:
        """Whether each row is of one class, and counts once."""
        return self.stands_for is None and bool(((self.actual == 0) | (self.actual == 1)).all())

    def shares(self, of: BoolArray) -> FloatArray:
        """P(g) among some rows, shape (G',)."""
        rows = of & self.learnt
        weight = None if self.stands_for is None else self.stands_for[rows]
        return np.maximum(np.average(self.actual[rows, :-1], axis=0, weights=weight), _LEAST)

    def calibrated(self, p: FloatArray, of: BoolArray) -> Calibration:
        """The calibration of probabilities (n, classes) among some rows."""
        rows = of & self.learnt
        weight = None if self.stands_for is None else self.stands_for[rows]
        return Calibration.fit(p[rows], self.actual[rows, : self.classes], weight)


def layers_of(members: Membership, stands_for: FloatArray | None = None) -> list[Layer]:
    """Blocks of groups, as many together as leave no row in more than one group."""
    phi = members.weights.toarray()
    if members.compared.simple and members.hard:  # a row without a group says nothing
        known = phi.sum(axis=1) > 0
        actual = np.column_stack([phi, np.zeros(len(phi))])
        return [Layer(np.arange(phi.shape[1]), actual, known, False, stands_for)]
    found: list[tuple[list[int], FloatArray]] = []
    for block in members.compared.blocks:
        own = phi[:, list(block.groups)].sum(axis=1)
        for groups, used in found:
            if (used + own <= 1.0 + 1e-9).all():
                groups += block.groups
                used += own
                break
        else:
            found.append(([*block.groups], own.copy()))
    every = np.ones(len(phi), dtype=bool)
    parts = []
    for groups, used in found:
        none = np.where(used < 1.0 - 1e-9, 1.0 - used, 0.0)
        actual = np.column_stack([phi[:, groups], none])
        parts.append(Layer(np.array(groups), actual, every, bool(none.any()), stands_for))
    return parts


def _logarithm(p: FloatArray) -> FloatArray:
    return np.log(np.maximum(p, _LEAST))


def _log_softmax(x: FloatArray) -> FloatArray:
    """``x - log(sum_g exp x_g)`` of finite x (n, G); scipy's takes longer than all else here where n is 1."""
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
