"""Distances and local outlier factors on a logarithmic scale, in the rows' own coordinates or in decorrelated ones.

A row far from all others has a distance that squeezes those of the other rows into a corner of the range; logarithms
leave them apart. In decorrelated coordinates a row is local to rows that deviate from the joint pattern of the
features as it does: what breaks a dependency between features shows there and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.few import FEW
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.parts import Without, by_refitting
from evenout.detectors.units import FARTHEST, GRID, Units
from evenout.storage.fields import Fields

Fit: TypeAlias = Callable[..., Any]

CLIP = 3.0  # spreads beyond which a value says no more about how features vary together
LEAST = 1e-3  # variance of a direction, beside the largest, below which it is left out
MANY = 100  # rows per feature from which on a fold's rows hardly move the coordinates: one search serves all folds
_ROWS = 4096  # turned at a time


@dataclass(frozen=True, eq=False)
class Nearness:
    """Fitted neighbours whose scores are logarithms.

    Parameters
    ----------
    neighbours : Neighbours
        Of the rows, or of the turned rows.
    turn : array of shape (d, m) or None
        ``X @ turn``, rounded, are the coordinates in which neighbours are sought; None: X itself.
    """

    neighbours: Neighbours
    turn: FloatArray | None
    kind: ClassVar[str] = "nearness"

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.neighbours.width

    @classmethod
    def read(cls, data: Fields, n_rows: int, n_features: int) -> "Nearness":
        """Out of a model file."""
        turn = data.floats("turn", n_features, None) if "turn" in data else None
        inside = n_features if turn is None else turn.shape[1]
        return cls(Neighbours.read(data.fields("neighbours"), n_rows, inside), turn)

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        *,
        lof: Sequence[int] = (),
        knn: Sequence[int] = (),
        decorrelate: bool = False,
        n_threads: int = 1,
        fit: Fit = Neighbours.fit,
    ) -> tuple["Nearness", FloatArray]:
        """Learn from training rows of shape (n, d); the fitted object and the training scores.

        Parameters
        ----------
        X : array of shape (n, d)
        lof, knn : sequences of int
            Numbers of neighbours, as in `Neighbours`.
        decorrelate : bool
            Seek neighbours in decorrelated coordinates.
        n_threads : int
        fit : function
            `Neighbours.fit`, or its twin on another device.
        """
        if decorrelate:
            lof, knn = _capped(lof, len(X)), _capped(knn, len(X))
        turn = decorrelating(X) if decorrelate else None
        found, raw = fit(X=_turned(X, turn), lof=lof, knn=knn, n_threads=n_threads)
        fitted = cls(found, turn)
        return fitted, fitted.logarithms(raw)

    @classmethod
    def cross_fit(
        cls,
        X: FloatArray,
        folds: IntArray,
        *,
        lof: Sequence[int] = (),
        knn: Sequence[int] = (),
        decorrelate: bool = False,
        n_threads: int = 1,
        fit: Fit = Neighbours.fit,
        cross_fit: Fit = Neighbours.cross_fit,
    ) -> tuple["Nearness", FloatArray, Without]:
        """What `fit` returns, and a function of a fold: the scores of all rows, learnt without the fold.

        Decorrelated coordinates are learnt without the fold as well, which takes a search for each fold. From `MANY`
        rows per feature on they are learnt once, on all rows: one row then has 1 % of a say in them or less.
        """
        sought: dict[str, Any] = {"lof": lof, "knn": knn, "n_threads": n_threads}
        if decorrelate and len(X) < MANY * X.shape[1]:
            fitted, scores = cls.fit(X, decorrelate=True, fit=fit, **sought)

            def refit(rows: FloatArray, fold: int) -> tuple[Nearness, FloatArray]:  # noqa: ARG001
                return cls.fit(rows, decorrelate=True, fit=fit, **sought)

            return fitted, scores, by_refitting(X, folds, refit, n_threads=n_threads)
        turn = decorrelating(X) if decorrelate else None
        found, raw, without = cross_fit(X=_turned(X, turn), folds=folds, **sought)
        one = cls(found, turn)
        return one, one.logarithms(raw), lambda fold: one.logarithms(without(fold))

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """``log LOF`` and ``log(1 + distance)`` of rows of shape (r, d), the LOF columns first."""
        return self.logarithms(self.neighbours.score(self.turned(X), n_threads=n_threads))

    def turned(self, X: FloatArray) -> FloatArray:
        """Rows of shape (r, d) in the coordinates in which neighbours are sought."""
        return _turned(X, self.turn)

    def logarithms(self, raw: FloatArray) -> FloatArray:
        """Of the scores of ``neighbours``, whose LOF columns come first."""
        n_lof = len(self.neighbours.lof)
        factors = np.maximum(raw[:, :n_lof], np.finfo(float).tiny)
        return np.hstack([np.log(factors), np.log1p(raw[:, n_lof:])])


def decorrelating(X: FloatArray) -> FloatArray:
    """The symmetric matrix that gives the rows, in their units, the unit matrix as covariance: shape (d, d).

    With z the rows in the `Units` of X, at most `CLIP` spreads from the centre, C their covariance and
    ``C = V diag(w) V'``, it is ``V diag(w^-1/2) V'``, whichever V a solver finds, applied to X in these units.
    Directions whose variance is below `LEAST` times the largest are left out: they are rounding, or columns that
    follow from others. A column that does not vary plays no part.
    """
    units = Units.fit(X)
    z = np.clip(units.apply(X), -CLIP, CLIP)
    z = z[np.lexsort(z.T)]  # in the order of their content: the sums do not depend on that of the rows
    centred = z - z.mean(axis=0)
    variance, directions = np.linalg.eigh(centred.T @ centred / len(z))
    told = variance > LEAST * variance[-1]
    if not told.any():
        return np.zeros((X.shape[1], X.shape[1]))
    V = directions[:, told] / variance[told] ** 0.25
    turn = np.zeros((X.shape[1], X.shape[1]))
    turn[np.ix_(units.kept, units.kept)] = (V @ V.T) / units.spread[:, None]
    return turn


def _capped(ks: Sequence[int], n_rows: int) -> list[int]:
    """Numbers of neighbours that ``n_rows`` rows have."""
    return [min(int(k), max(n_rows - 1, 1)) for k in ks]


def _turned(X: FloatArray, turn: FloatArray | None) -> FloatArray:
    """``X @ turn`` on the grid, feature by feature: a row has the same coordinates in every company."""
    if turn is None:
        return X
    if len(X) <= FEW:
        return _on_grid(np.cumsum(X[:, :, None] * turn, axis=1)[:, -1])  # the same sums in fewer calls
    out = np.zeros((len(X), turn.shape[1]))
    for start in range(0, len(X), _ROWS):
        rows, into = X[start : start + _ROWS], out[start : start + _ROWS]
        for column, weights in zip(rows.T, turn, strict=True):
            into += column[:, None] * weights
    return _on_grid(out)


def _on_grid(out: FloatArray) -> FloatArray:
    return np.rint(np.clip(out, -FARTHEST, FARTHEST) / GRID) * GRID + 0.0
