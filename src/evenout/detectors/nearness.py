"""Distances and local outlier factors on a logarithmic scale, in the rows' own coordinates or in decorrelated ones.

A row far from all others has a distance that squeezes those of the other rows into a corner of the range; logarithms
leave them apart. In decorrelated coordinates a row is local to rows that deviate from the joint pattern of the
features as it does: what breaks a dependency between features shows there and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from evenout.core.parallel import by_rows, map_blocks, one_blas_thread
from evenout.core.types import FloatArray, IntArray, require
from evenout.detectors.family import Without, by_refitting
from evenout.detectors.neighbours import Neighbours, capped, distinct_rows
from evenout.detectors.search import FEW
from evenout.detectors.units import FARTHEST, GRID, Units

CLIP = 3.0  # spreads beyond which a value says no more about how features vary together
LEAST = 1e-3  # variance of a direction, beside the largest, below which it is left out
SOUND = 10  # rows per feature below which nobody can tell how features vary together: in coordinates that fit the
# rows to be learnt from, these are all equally far from each other, and new ones are not
MANY = 100  # rows per feature from which on a fold's rows hardly move the coordinates: one search serves all folds
_ROWS = 4096  # turned at a time
_SUMMED = 16384  # multiplied at a time
_LIMB = 2.0**12
_PRODUCTS = 5e8  # of numbers; turning rows takes a second beyond, and a file holds turned rows instead


@dataclass(frozen=True, eq=False)
class Nearness:
    """Fitted neighbours whose scores are logarithms."""

    neighbours: Neighbours  # of the rows, or of the turned rows
    # ``X @ turn``, rounded, are the coordinates in which neighbours are sought; None: X itself.
    turn: Annotated[FloatArray, "d m"] | None
    kind: ClassVar[str] = "nearness"

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.neighbours.width

    def without_rows(self, rows: FloatArray) -> "Nearness":
        """Without the turned rows, where they follow from rows that something else keeps."""
        if self.turn is None or rows.size * self.turn.shape[1] > _PRODUCTS:
            return self
        own, (locations, counts, _) = self.neighbours, distinct_rows(turned(rows, self.turn, 1))
        if not (np.array_equal(own.locations, locations) and np.array_equal(own.counts, counts)):
            return self
        return replace(self, neighbours=replace(own, locations=locations[:0], counts=counts[:0]))

    def with_rows(self, rows: FloatArray) -> "Nearness":
        """With rows (n, d) turned, where it has none."""
        if self.turn is None or len(self.neighbours.locations):
            return self
        locations, counts, _ = distinct_rows(turned(rows, self.turn, 1))
        return replace(self, neighbours=replace(self.neighbours, locations=locations, counts=counts))

    def fits(self, n_rows: int, n_features: int) -> None:
        """As `Neighbours.fits`, in turned coordinates."""
        require(self.turn is None or len(self.turn) == n_features, "turn", "has the wrong shape")
        self.neighbours.fits(n_rows, n_features if self.turn is None else self.turn.shape[1])

    @classmethod
    def fit(cls, X: FloatArray, **settings: Any) -> tuple["Nearness", FloatArray]:
        """Learn from training rows of shape (n, d); the fitted object and the training scores; see `cross_fit`."""
        return cls.cross_fit(X, None, **settings)[:2]

    @classmethod
    def cross_fit(
        cls,
        X: FloatArray,
        folds: IntArray | None,
        *,
        lof: Sequence[int] = (),
        knn: Sequence[int] = (),
        decorrelate: bool = False,
        n_threads: int = 1,
        cross_fit: Callable[..., Any] = Neighbours.cross_fit,
    ) -> tuple["Nearness", FloatArray, Without]:
        """The fitted object, the training scores, and a function of a fold: the scores of all rows without the fold.

        Decorrelated coordinates are learnt without the fold as well, which takes a search for each fold. From `MANY`
        rows per feature on they are learnt once, on all rows: one row then has 1 % of a say in them or less. Below
        `SOUND` rows outside of a fold per feature there are none.

        Parameters
        ----------
        X : array of shape (n, d)
        folds : array of int, shape (n,), or None
        lof, knn : sequences of int
            Numbers of neighbours, as in `Neighbours`.
        decorrelate : bool
            Seek neighbours in decorrelated coordinates.
        n_threads : int
        cross_fit : function
            `Neighbours.cross_fit`, or its twin on another device.
        """
        if decorrelate:  # the search in plain coordinates has warned
            lof, knn = (capped(ks, len(X)).tolist() for ks in (lof, knn))
        if folds is not None and len(X) - int(np.bincount(folds).max()) < SOUND * X.shape[1]:
            decorrelate = False
        again = decorrelate and folds is not None and len(X) < MANY * X.shape[1]
        turn = decorrelating(X, n_threads=n_threads) if decorrelate else None
        sought: dict[str, Any] = {"lof": lof, "knn": knn, "n_threads": n_threads}
        near, raw, without = cross_fit(X=turned(X, turn, n_threads), folds=None if again else folds, **sought)
        fitted = cls(near, turn)
        logarithms = partial(fitted.logarithms, n_threads=n_threads)
        if not again:
            return fitted, logarithms(raw), lambda fold: logarithms(without(fold))
        sought |= {"decorrelate": True, "cross_fit": cross_fit}
        leave_out = by_refitting(X, folds, lambda rows, _: cls.fit(rows, **sought), n_threads=n_threads)
        return fitted, logarithms(raw), leave_out

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """``log LOF`` and ``log(1 + distance)`` of rows of shape (r, d), the LOF columns first."""
        raw = self.neighbours.score(turned(X, self.turn, n_threads), n_threads=n_threads)
        return self.logarithms(raw, n_threads=n_threads)

    def logarithms(self, raw: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Of the scores of ``neighbours``, whose LOF columns come first."""
        n_lof = len(self.neighbours.lof)

        def of(rows: FloatArray) -> FloatArray:
            factors = np.maximum(rows[:, :n_lof], np.finfo(float).tiny)
            return np.hstack([np.log(factors), np.log1p(rows[:, n_lof:])])

        return by_rows(of, raw, n_threads=n_threads)


def decorrelating(X: FloatArray, *, n_threads: int = 1) -> FloatArray:
    """The symmetric matrix that gives the rows, in their units, the unit matrix as covariance: shape (d, d).

    With z the rows in the `Units` of X, at most `CLIP` spreads from the centre, C their covariance and
    ``C = V diag(w) V'``, it is ``V diag(w^-1/2) V'``, whichever V a solver finds, applied to X in these units.
    Directions whose variance is below `LEAST` times the largest are left out: they are rounding, or columns that
    follow from others. A column that does not vary plays no part.
    """
    units = Units.fit(X, n_threads=n_threads)
    variance, directions = np.linalg.eigh(_clipped_covariance(X, units, n_threads))
    told = variance > LEAST * variance[-1]
    if not told.any():
        return np.zeros((X.shape[1], X.shape[1]))
    V = directions[:, told] / variance[told] ** 0.25
    turn = np.zeros((X.shape[1], X.shape[1]))
    turn[np.ix_(units.kept, units.kept)] = (V @ V.T) / units.spread[:, None]
    return turn


def _clipped_covariance(X: FloatArray, units: Units, n_threads: int) -> FloatArray:
    """Covariance of the rows in their units, clipped, the same for every order of the rows: shape (m, m).

    Values are whole numbers of `GRID`, less than 2^22, so their sum is exact. About the whole number next to the mean
    they are less than 2^23, which is ``2^12 high + low`` with high and low of 12 bits: sums of products of these are
    exact up to 2^29 rows, in every order and by every way to multiply matrices.
    """

    def whole(rows: slice) -> FloatArray:
        return np.clip(units.apply(X[rows]), -CLIP, CLIP) / GRID

    def products(rows: slice) -> tuple[FloatArray, ...]:
        around = whole(rows) - centre
        high = np.floor(around / _LIMB)
        low = around - _LIMB * high
        return around.sum(axis=0), high.T @ high, high.T @ low, low.T @ low

    n = len(X)
    centre = np.rint(sum(map_blocks(lambda rows: whole(rows).sum(axis=0), n, _SUMMED, n_threads)) / n)
    with one_blas_thread():
        parts = map_blocks(products, n, _SUMMED, n_threads)
    total, of_high, mixed, of_low = (sum(part) for part in zip(*parts, strict=True))
    second = (_LIMB**2 * of_high + _LIMB * (mixed + mixed.T)) + of_low
    return (second / n - np.outer(total / n, total / n)) * GRID**2


def turned(X: FloatArray, turn: FloatArray | None, n_threads: int) -> FloatArray:
    """``X @ turn`` on the grid, feature by feature: a row has the same coordinates in every company."""
    if turn is None:
        return X
    if len(X) <= FEW:
        return _on_grid(np.cumsum(X[:, :, None] * turn, axis=1)[:, -1])  # the same sums in fewer calls

    def of(rows: FloatArray) -> FloatArray:
        out = np.zeros((len(rows), turn.shape[1]))
        for column, weights in zip(rows.T, turn, strict=True):
            out += column[:, None] * weights
        return _on_grid(out)

    return by_rows(of, X, width=turn.shape[1], n_threads=n_threads, block=_ROWS)


def _on_grid(out: FloatArray) -> FloatArray:
    return np.rint(np.clip(out, -FARTHEST, FARTHEST) / GRID) * GRID + 0.0
