"""How much a row resembles each group, ``r_g(x) = P(g | x) / P(g)``, learnt by a classifier and cross-fitted.

What a row is corrected by must not have seen its group, or an eager classifier would remember it. And what is stated of
unseen rows must come from rows that nothing has seen. With K folds, classifiers are fitted on all rows, without each
fold and without each pair of folds: ``1 + K + K (K - 1) / 2`` fits, 16 for five folds. The one without folds f and g
serves twice: for the rows of g where f is held out, and for those of f where g is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone

from evenout.core.cells import Cells, CrossFit, collect_cells
from evenout.core.compiled import one_blas_thread, one_openmp_thread
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.fitting.request import FlagRows

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
    def fit(cls, p: FloatArray, codes: IntArray) -> "Calibration":
        """Maximum likelihood on probabilities (n, G) of rows that the classifier has not seen."""
        z, n_groups = _logarithm(p), p.shape[1]
        actual = np.eye(n_groups)[codes]
        share = actual.mean(axis=0)

        def loss(v: FloatArray) -> tuple[float, FloatArray]:
            found = log_softmax(v[0] * z + v[1:], axis=1)
            surplus = np.exp(found) - actual
            gradient = np.append((surplus * z).sum(), surplus.sum(axis=0)) / len(z)
            return -float((found * actual).sum()) / len(z), gradient

        # A classifier that says nothing is where the search begins.
        start = np.append(0.0, np.log(share))
        bounds = [(0.0, _STEEPEST)] + [(None, None)] * n_groups
        v = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-14}).x
        return cls(float(v[0]), v[1:] - v[1:].mean()) if v[0] > _FLATTEST else cls(0.0, np.log(share))

    def apply(self, p: FloatArray) -> FloatArray:
        """Calibrated probabilities, shape (n, G)."""
        if self.slope == 0:
            return np.tile(np.exp(self.offset), (len(p), 1))
        return np.exp(log_softmax(self.slope * _logarithm(p) + self.offset, axis=1))


@dataclass(frozen=True)
class Resemblance:
    """What says how much new rows resemble each group.

    Parameters
    ----------
    classifier : object
        Fitted on all rows whose group is known, with group codes as classes.
    calibration : Calibration
    shares : array of shape (G,)
        P(g).
    """

    classifier: Any
    calibration: Calibration
    shares: FloatArray

    def of(self, Z: FloatArray) -> FloatArray:
        """``r_g`` of rows, shape (n, G)."""
        return self.calibration.apply(_probabilities(self.classifier, Z, len(self.shares))) / self.shares


@dataclass(frozen=True)
class CrossFitted:
    """Resemblance of the training rows by classifiers that have not seen them.

    Parameters
    ----------
    model : Resemblance
        For new rows.
    own : array of shape (n, G)
        Of each row by the classifier that was fitted without its fold.
    without : array of shape (K, n, G)
        What can be known without fold f: of the rows inside by the classifier fitted without f, of those outside by
        the one fitted without f and the row's own fold; calibrated on the rows outside.
    folds : array of shape (n,)
    codes : array of shape (n,)
        Groups; -1 for a row without one.
    """

    model: Resemblance
    own: FloatArray
    without: FloatArray
    folds: IntArray
    codes: IntArray

    def held(self, t: FloatArray) -> FlagRows:
        """The rows, each as it is seen by what has not seen its fold."""
        S = np.zeros_like(self.own)
        for fold, r in enumerate(self.without):
            S[self.folds == fold] = r[self.folds == fold]
        return FlagRows(S, t, self.codes, self.folds)

    @property
    def known(self) -> FloatArray:
        """Share of the variance of each group's indicator that is predicted, shape (G,); 1 if it is known for sure."""
        rows = self.codes >= 0
        actual, share = np.eye(len(self.model.shares))[self.codes[rows]], self.model.shares
        missed = ((self.own[rows] * share - actual) ** 2).mean(axis=0)
        return 1.0 - missed / (share * (1.0 - share))

    def sums(self, t: FloatArray) -> CrossFit:
        """Sums of ``(1, r_1, ..., r_G, t)`` over all rows, and outside and inside of each fold; rows count alike."""
        whole = self._cells(self.own, t, np.ones(len(t), dtype=bool))
        parts = [(r, self.folds == fold) for fold, r in enumerate(self.without)]
        training = Cells.stacked([self._cells(r, t, ~inside) for r, inside in parts])
        held = Cells.stacked([self._cells(r, t, inside) for r, inside in parts])
        return CrossFit(whole, training, held, refitted=False)

    def _cells(self, r: FloatArray, t: FloatArray, of: BoolArray) -> Cells:
        n, n_groups = int(of.sum()), r.shape[1]
        one = np.zeros(n, dtype=np.intp)
        return collect_cells(r[of], t[of], np.ones(n), self.codes[of], one, n_groups=n_groups, n_sets=1)


@one_blas_thread()
def cross_fit_resemblance(
    classifier: Any, Z: FloatArray, codes: IntArray, folds: IntArray, *, seed: int, n_jobs: int | None
) -> CrossFitted:
    """Fit a classifier of the groups on all rows, without each fold, and without each pair of folds.

    Parameters
    ----------
    classifier : object
        scikit-learn classifier with ``predict_proba``; copies are fitted. Its open random states get the seed.
    Z : array of shape (n, d)
    codes : array of shape (n,)
        Groups 0..G-1, two at least; -1 for a row without one, which is predicted, but not learnt from.
    folds : array of shape (n,)
    seed : int
    n_jobs : int or None
        Fits side by side, in threads.
    """
    K, n_groups = int(folds.max()) + 1, int(codes.max()) + 1
    left_out = [(), *((f,) for f in range(K)), *combinations(range(K), 2)]
    task = delayed(_fit_without)
    fits = Parallel(n_jobs=n_jobs, prefer="threads")(
        task(_fresh(classifier, seed), Z, codes, folds, out, n_groups) for out in left_out
    )
    found = dict(zip(left_out, fits, strict=True))
    known = codes >= 0
    shares = np.bincount(codes[known], minlength=n_groups) / known.sum()
    p = np.zeros((len(Z), n_groups))
    for f in range(K):
        p[folds == f] = found[(f,)][1][f]
    calibration = Calibration.fit(p[known], codes[known])
    without = [_seen_without(f, found, codes, folds) for f in range(K)]
    model = Resemblance(found[()][0], calibration, shares)
    return CrossFitted(model, calibration.apply(p) / shares, np.stack(without), folds, codes)


def _fresh(classifier: Any, seed: int) -> Any:
    """A clone, with every random state that was left open set from ``seed``."""
    fresh = clone(classifier)
    settings = fresh.get_params(deep=True).items()
    return fresh.set_params(**{key: seed for key, value in settings if key.endswith("random_state") and value is None})


@one_openmp_thread()
def _fit_without(
    classifier: Any, Z: FloatArray, codes: IntArray, folds: IntArray, out: tuple[int, ...], n_groups: int
) -> tuple[Any, dict[int, FloatArray]]:
    """A classifier fitted without some folds, and the probabilities that it gives their rows."""
    rows = (codes >= 0) & ~np.isin(folds, out)
    classifier.fit(Z[rows], codes[rows])
    return classifier, {f: _probabilities(classifier, Z[folds == f], n_groups) for f in out}


def _seen_without(f: int, found: Mapping[tuple[int, ...], Any], codes: IntArray, folds: IntArray) -> FloatArray:
    """Resemblance of all rows by what can be known without fold f."""
    own = found[(f,)][1][f]
    p = np.zeros((len(folds), own.shape[1]))
    p[folds == f] = own
    for g in set(folds.tolist()) - {f}:
        p[folds == g] = found[(min(f, g), max(f, g))][1][g]
    outside = (folds != f) & (codes >= 0)
    shares = np.bincount(codes[outside], minlength=p.shape[1]) / outside.sum()
    return Calibration.fit(p[outside], codes[outside]).apply(p) / shares


def _probabilities(classifier: Any, Z: FloatArray, n_groups: int) -> FloatArray:
    """Probabilities of all groups, 0 for one that the classifier has not met."""
    found = np.zeros((len(Z), n_groups))
    if len(Z):
        found[:, np.asarray(classifier.classes_, dtype=np.intp)] = classifier.predict_proba(Z)
    return found


def _logarithm(p: FloatArray) -> FloatArray:
    return np.log(np.maximum(p, _LEAST))
