"""Scores of mixtures of a row and the typical row, family by family, much faster than one by one.

- *Trees*: all mixtures go down a tree in one list, which is parted where the row and the typical row part.
- *Distances and densities*: squared distances to a crowd change by one vector when a feature enters. The crowd is all
  training rows, or some of them, `CROWD` at least, with as many fewer neighbours: a detector on a sample. What that is
  off at the two ends, where the score is known, is shared out over the features by the size of their parts.
- *Tails* and ready scores: a column is one feature.
- *Other detectors* score the mixtures as rows.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.adapt import GroupAware
from evenout.detectors.forest import Forest, average_path_length
from evenout.detectors.nearness import Nearness
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.pool import Precomputed
from evenout.detectors.tails import Tails
from evenout.detectors.units import GRID
from evenout.fitting.background import CROWD
from evenout.reasons.orders import Orders

_LEAST = 3  # neighbours in a crowd
_DISTANCES = 2**18  # of mixtures to the crowd, for each row


@dataclass(frozen=True)
class Mixtures:
    """All mixtures of some rows with the typical row, as a part of a pool sees them.

    Parameters
    ----------
    X : array of shape (m, d)
    typical : array of shape (m, d)
        The typical row beside each.
    player : array of int, shape (d,)
        Which of the p features of the table each of these columns belongs to.
    orders : Orders
    groups : array of shape (m,) or None
        For detectors that use the group.
    """

    X: FloatArray
    typical: FloatArray
    player: IntArray
    orders: Orders
    groups: Any = None

    def rows(self) -> FloatArray:
        """All mixtures, one after the other, shape (m L, d)."""
        mixed = np.where(self.orders.taken[:, self.player], self.X[:, None, :], self.typical[:, None, :])
        return mixed.reshape(-1, self.X.shape[1])

    def joined(self, scores: FloatArray) -> FloatArray:
        """Scores of all mixtures, shape (m L, columns), by row: shape (m, L, columns)."""
        return scores.reshape(len(self.X), len(self.orders.taken), -1)


class Crowd:
    """The rows among which mixtures seek their neighbours: all training rows, or some of them."""

    def __init__(self, fitted: Neighbours, size: int) -> None:
        n = int(fitted.counts.sum())
        self.model = fitted
        self._known: tuple[FloatArray, FloatArray] | None = None
        if n > size:  # evenly spaced in the order of the values: the same rows for every order of the table
            places = np.linspace(0, n - 1, size).round().astype(np.intp)
            rows = np.repeat(np.arange(len(fitted.counts)), fitted.counts)[places]
            lof, knn = (_fewer(k, size / n) for k in (fitted.lof, fitted.knn))
            self.model, _ = Neighbours.fit(fitted.locations[rows], lof=lof, knn=knn)

    def _each(self, d: int, turn: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """What a unit of each column adds to the coordinates (d, D), and to the products with the crowd (d, M)."""
        if self._known is None:
            each = np.eye(d) if turn is None else turn
            self._known = each, np.ascontiguousarray(each @ self.model.locations.T)
        return self._known

    def walk(self, mixtures: Mixtures, ends: FloatArray, turn: FloatArray | None) -> FloatArray:
        """Raw scores of all mixtures; ``ends`` are the rows in the coordinates of the neighbours, shape (m, D)."""
        from evenout.detectors._neighbour_kernels import find_rows
        from evenout.reasons._reason_kernels import walk_crowd

        orders, model = mixtures.orders, self.model
        start = np.ascontiguousarray(mixtures.typical if turn is None else mixtures.typical @ turn)
        change, own = mixtures.X - mixtures.typical, find_rows(ends, model.locations)
        way = (start, change, mixtures.player, *self._each(len(mixtures.player), turn), own, orders.steps, orders.p)
        known = (model.locations, model.counts, model.k_distance, model.density, model.lof, model.knn)
        out = np.empty((len(change), len(orders.taken), model.width))
        walk_crowd(*way, *known, int(max([*model.lof, *model.knn])), 0.0 if turn is None else GRID, out)
        return out


def _fewer(ks: IntArray, share: float) -> list[int]:
    """Numbers of neighbours among a share of the rows."""
    return [int(min(k, max(_LEAST, round(k * share)))) for k in ks]


def crowd_of(part: Any, orders: Orders) -> Crowd | None:
    """Of a part with neighbours; the fewer mixtures there are, the more rows can be afforded."""
    size = max(CROWD, _DISTANCES // len(orders.taken))
    if isinstance(part, Nearness):
        return Crowd(part.neighbours, size)
    return Crowd(part, size) if isinstance(part, Neighbours) else None


def is_by_feature(part: Any) -> bool:
    """Whether each column of a part follows from one feature alone."""
    return isinstance(part, Tails | Precomputed)


def column_features(part: Any) -> IntArray:
    """The feature behind each column of such a part."""
    return part.features if isinstance(part, Tails) else np.arange(part.width)


@singledispatch
def mixed_scores(part: Any, mixtures: Mixtures, crowd: Crowd | None) -> FloatArray:  # noqa: ARG001
    """Raw score columns of one part of a pool at all mixtures of some rows, shape (m, L, columns)."""
    rows = mixtures.rows()
    if isinstance(part, GroupAware):
        groups = np.repeat(np.asarray(mixtures.groups, dtype=object), len(mixtures.orders.taken), axis=0)
        return mixtures.joined(part.score(rows, sensitive_features=groups))
    return mixtures.joined(part.score(rows))


@mixed_scores.register
def _(part: Forest, mixtures: Mixtures, crowd: Crowd | None) -> FloatArray:  # noqa: ARG001
    from evenout.reasons._reason_kernels import walk_trees

    taken = np.ascontiguousarray(mixtures.orders.taken.T)
    total = np.empty((len(mixtures.X), taken.shape[1], part.width))
    rows, typical = (np.ascontiguousarray(each, dtype=np.float32) for each in (mixtures.X, mixtures.typical))
    trees = (part.feature, part.threshold, part.child, part.length, part.root, part.depth, part.sizes)
    walk_trees(rows, typical, mixtures.player, taken, *trees, total)
    expected = part.sizes * average_path_length(np.array([part.max_samples]))
    return 2 ** -(total / expected) if expected.all() else np.full(total.shape, 0.5)


@mixed_scores.register
def _(part: Neighbours, mixtures: Mixtures, crowd: Crowd) -> FloatArray:  # noqa: ARG001
    return crowd.walk(mixtures, np.array(mixtures.X), None)


@mixed_scores.register
def _(part: Nearness, mixtures: Mixtures, crowd: Crowd) -> FloatArray:
    raw = crowd.walk(mixtures, np.array(part.turned(mixtures.X)), part.turn)
    return mixtures.joined(part.logarithms(raw.reshape(-1, part.width)))
