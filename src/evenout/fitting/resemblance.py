"""How much a row resembles each group, ``r_g(x) = P(g | x) / P(g)``, learnt by a classifier and cross-fitted.

What a row is corrected by must not have seen its group, or an eager classifier would remember it. And what is stated of
unseen rows must come from rows that nothing has seen. With K folds, classifiers are fitted on all rows, without each
fold and without each pair of folds: ``1 + K + K (K - 1) / 2`` fits, 16 for five folds. The one without folds f and g
serves twice: for the rows of g where f is held out, and for those of f where g is.

Groups may be memberships ``phi_ig`` (`evenout.core.membership`): then ``r_g(x) = E[phi_g | x] / E[phi_g]``. A row is
learnt from once for each group that it belongs to, by its weight, and for the rest of it as one that belongs to none.
Groups that share rows by more than that, such as those of two attributes, are told apart by classifiers of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone

from evenout.core.cells import Cells, CrossFit
from evenout.core.compiled import one_blas_thread, one_openmp_thread
from evenout.core.exceptions import InputError, ProxyWarning, warn
from evenout.core.flags import FlagRows
from evenout.core.membership import Membership
from evenout.core.ruler import Sample
from evenout.core.summing import collect_cells
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.fitting.layers import Calibration, Layer, layers_of
from evenout.fitting.trees import Boosted

_TELLING = 0.9  # share of a group's indicator that is predicted, from which on the group is known


@dataclass(frozen=True)
class Told:
    """What tells the groups of one layer apart.

    Parameters
    ----------
    groups : array of shape (G',)
        Their places.
    classifier : object
        Fitted on all rows, with places in the layer as classes.
    calibration : Calibration
    shares : array of shape (G',)
        P(g).
    """

    groups: IntArray
    classifier: Any
    calibration: Calibration
    shares: FloatArray

    def of(self, Z: FloatArray) -> FloatArray:
        """``r_g`` of rows, shape (n, G')."""
        classes = len(self.calibration.offset)
        if isinstance(self.classifier, Boosted):
            p = _probabilities(self.classifier, Z, classes)
        else:  # to find the libraries whose threads are to be limited takes milliseconds
            with one_openmp_thread():
                p = _probabilities(self.classifier, Z, classes)
        return self.calibration.apply(p)[:, : len(self.groups)] / self.shares


@dataclass(frozen=True)
class Resemblance:
    """What says how much new rows resemble each group.

    Parameters
    ----------
    parts : tuple of Told
    n_groups : int
    """

    parts: tuple[Told, ...]
    n_groups: int

    @property
    def shares(self) -> FloatArray:
        """P(g), shape (G,)."""
        found = np.ones(self.n_groups)
        for part in self.parts:
            found[part.groups] = part.shares
        return found

    def levelled(self, prices: FloatArray) -> FloatArray:
        """Prices (G,) that make the same score, up to a constant, with the sum 0 wherever every row is in one group."""
        found = prices.copy()
        for part in self.parts:
            if len(part.calibration.offset) == len(part.groups):  # then r @ shares = 1
                found[part.groups] -= part.shares * prices[part.groups].sum()
        return found

    def of(self, Z: FloatArray) -> FloatArray:
        """``r_g`` of rows, shape (n, G)."""
        found = np.ones((len(Z), self.n_groups))
        for part in self.parts:
            found[:, part.groups] = part.of(Z)
        return found


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
    known : array of shape (G,)
        Share of the variance of each group's indicator that is predicted; 1 if it is known for sure.
    """

    model: Resemblance
    own: FloatArray
    without: FloatArray
    folds: IntArray
    known: FloatArray

    def held(self, t: FloatArray, sample: Sample, share: float) -> FlagRows:
        """The rows, each as it is seen by what has not seen its fold, of which a share is flagged."""
        S = np.zeros_like(self.own)
        for fold, r in enumerate(self.without):
            S[self.folds == fold] = r[self.folds == fold]
        return FlagRows(S, t, sample, self.folds).narrowed(share)

    def sums(self, t: FloatArray, sample: Sample) -> CrossFit:
        """Sums of ``(1, r_1, ..., r_G, t)`` over all rows, and outside and inside of each fold."""
        sample = replace(sample, members=sample.joined)  # of all rows: each fold has the same pairs
        whole = _cells(self.own, t, sample)
        parts = [(r, self.folds == fold) for fold, r in enumerate(self.without)]
        training = Cells.stacked([_cells(r[~inside], t[~inside], sample.of(~inside)) for r, inside in parts])
        held = Cells.stacked([_cells(r[inside], t[inside], sample.of(inside)) for r, inside in parts])
        return CrossFit(whole, training, held, refitted=False)


def warn_proxy(known: FloatArray) -> None:
    """Say so where rows tell their groups nearly for sure."""
    most = float(known.max(initial=0.0))
    if most > _TELLING:
        text = (
            "{@X} tells groups nearly for sure ({known:.0%} of what differs): to go by resemblance is then to go by "
            "the group itself. Ask whether the group may be used; see ScoreRepair."
        )
        warn(ProxyWarning(text, known=most))


def default_classifier() -> Any:
    """Few small trees: groups are often hard to tell, and a classifier that is too sure must be taken back."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # takes long to import

    return HistGradientBoostingClassifier(
        max_iter=50, max_leaf_nodes=8, min_samples_leaf=40, early_stopping=False, categorical_features=None
    )


@one_blas_thread()
def cross_fit_resemblance(
    classifier: Any,
    Z: FloatArray,
    members: Membership,
    folds: IntArray,
    *,
    seed: int,
    n_jobs: int | None,
    stands_for: FloatArray | None = None,
) -> CrossFitted:
    """Fit a classifier of the groups on all rows, without each fold, and without each pair of folds.

    Parameters
    ----------
    classifier : object or None
        scikit-learn classifier with ``predict_proba``; copies are fitted. Its open random states get the seed. None:
        gradient boosting.
    Z : array of shape (n, d)
    members : Membership
        Of two groups at least. Where groups are hard, a row without one is predicted, but not learnt from.
    folds : array of shape (n,)
    seed : int
    n_jobs : int or None
        Fits side by side, in threads.
    stands_for : array of shape (n,), optional
        How many rows each row stands for.
    """
    K, G = int(folds.max()) + 1, members.n_groups
    left_out = [(), *((f,) for f in range(K)), *combinations(range(K), 2)]
    layers = layers_of(members, stands_for)
    tasks = [
        delayed(_fit_without)(_fresh(classifier, seed), Z, layer, folds, out) for layer in layers for out in left_out
    ]
    fits = iter(Parallel(n_jobs=n_jobs, prefer="threads")(tasks))
    own, without, known = np.ones((len(Z), G)), np.ones((K, len(Z), G)), np.zeros(G)
    parts, every = [], np.ones(len(Z), dtype=bool)
    for layer in layers:
        found = {out: next(fits) for out in left_out}
        p = _put_together([(folds == f, found[(f,)][1][f]) for f in range(K)])
        calibration = layer.calibrated(p, every)
        told = Told(layer.groups, found[()][0], calibration, layer.shares(every))
        own[:, layer.groups] = calibration.apply(p)[:, : len(layer.groups)] / told.shares
        for f in range(K):
            without[f][:, layer.groups] = _seen_without(f, found, layer, folds)
        known[layer.groups] = _known(own[:, layer.groups] * told.shares, layer)
        parts.append(told)
    return CrossFitted(Resemblance(tuple(parts), G), own, without, folds, known)


def _fresh(classifier: Any, seed: int) -> Any:
    """A clone, with every random state that was left open set from ``seed``."""
    fresh = default_classifier() if classifier is None else clone(classifier)
    settings = fresh.get_params(deep=True).items()
    return fresh.set_params(**{key: seed for key, value in settings if key.endswith("random_state") and value is None})


@one_openmp_thread()
def _fit_without(
    classifier: Any, Z: FloatArray, layer: Layer, folds: IntArray, out: Sequence[int]
) -> tuple[Any, dict[int, FloatArray]]:
    """A classifier fitted without some folds, and the probabilities that it gives their rows."""
    rows = layer.learnt & ~np.isin(folds, out)
    actual = layer.actual[:, : layer.classes]
    if layer.plain:
        classifier.fit(Z[rows], actual[rows].argmax(axis=1))
    else:
        at, classes = np.nonzero(actual * rows[:, None])
        weight = actual[at, classes] * (1.0 if layer.stands_for is None else layer.stands_for[at])
        try:
            classifier.fit(Z[at], classes, sample_weight=weight * len(at) / weight.sum())
        except TypeError as error:
            raise InputError(
                "{@classifier} takes no weights of rows ({error}), which these groups need; use another one",
                error=error,
            ) from None
    fitted = Boosted.of(classifier) or classifier
    return fitted, {f: _probabilities(fitted, Z[folds == f], layer.classes) for f in out}


def _seen_without(f: int, found: Mapping[tuple[int, ...], Any], layer: Layer, folds: IntArray) -> FloatArray:
    """Resemblance of all rows by what can be known without fold f."""
    others = sorted(set(folds.tolist()) - {f})
    parts = [(folds == g, found[(min(f, g), max(f, g))][1][g]) for g in others]
    p, outside = _put_together([(folds == f, found[(f,)][1][f]), *parts]), folds != f
    return layer.calibrated(p, outside).apply(p)[:, : len(layer.groups)] / layer.shares(outside)


def _put_together(parts: list[tuple[BoolArray, FloatArray]]) -> FloatArray:
    whole = np.zeros((len(parts[0][0]), parts[0][1].shape[1]))
    for rows, values in parts:
        whole[rows] = values
    return whole


def _known(p: FloatArray, layer: Layer) -> FloatArray:
    """Share of the variance of each group's indicator that is predicted."""
    actual = layer.actual[layer.learnt, :-1]
    missed = ((p[layer.learnt] - actual) ** 2).mean(axis=0)
    return 1.0 - missed / np.maximum(actual.var(axis=0), np.finfo(float).tiny)


def _cells(r: FloatArray, t: FloatArray, sample: Sample) -> Cells:
    one = np.zeros(len(t), dtype=np.intp)
    counted: dict[str, Any] = {"sample_weight": sample.weight, "clusters": sample.clusters}
    groups = sample.members
    return collect_cells(r, t, np.ones(len(t)), groups, one, n_groups=groups.n_groups, n_sets=1, **counted)


def _probabilities(classifier: Any, Z: FloatArray, classes: int) -> FloatArray:
    """Probabilities of all classes, 0 for one that the classifier has not met."""
    found = np.zeros((len(Z), classes))
    if len(Z):
        found[:, np.asarray(classifier.classes_, dtype=np.intp)] = classifier.predict_proba(Z)
    return found
