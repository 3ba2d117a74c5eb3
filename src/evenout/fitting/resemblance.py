"""How much a row resembles each group, P(g | x) / P(g), cross-fitted.

The classifier that corrects a row must not have seen its group, or an eager one would remember it. And statements about
unseen rows must come from rows that no classifier has seen. With K folds, classifiers are fitted on all rows, without
each fold and without each pair of folds: ``1 + K + K (K - 1) / 2`` fits, 16 for five folds. The one without folds f and
g serves twice: for the rows of g where f is held out, and for those of f where g is.

Groups may be memberships ``phi_ig`` (`evenout.core.membership`): then ``r_g(x) = E[phi_g | x] / E[phi_g]``. A row
counts once for each group that it belongs to, by its weight, and with the rest of its weight for none of them. Groups
that share rows by more than that, such as those of two attributes, have classifiers of their own.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone

from evenout.core.cells import Cells, CrossFit, collect_cells
from evenout.core.flags import Views
from evenout.core.membership import Membership
from evenout.core.parallel import one_blas_thread, one_openmp_thread
from evenout.core.ruler import Sample
from evenout.core.types import FINITE, AnyArray, BoolArray, FloatArray, IntArray, Within, require
from evenout.exceptions import InputError, ProxyWarning, warn

_LARGEST = np.finfo(float).max


@dataclass(frozen=True)
class Boosted:
    """Trees whose values add up to a score for each class, or to one for two classes.

    Probabilities are those of scikit-learn's `HistGradientBoostingClassifier`, bit for bit. Classes (C,) are codes,
    ``start`` (S,) are scores before the first tree; S is C, or 1 for two classes. ``first`` (T,) is the index of each
    tree's root among the N nodes; tree i adds to score ``i % S``. A node has the feature that decides, the indices of
    its children, which lie behind it and are 0 for a leaf, the threshold up to which rows go left, whether rows without
    a value do, and the value of a leaf.
    """

    classes_: Annotated[IntArray, "*", Within()]
    start: Annotated[FloatArray, "*"]
    first: Annotated[IntArray, "*", Within()]
    feature: Annotated[IntArray, "N", Within()]
    left: Annotated[IntArray, "N", Within()]
    right: Annotated[IntArray, "N", Within()]
    threshold: Annotated[FloatArray, "N"]
    value: Annotated[FloatArray, "N"]
    missing_left: Annotated[BoolArray, "N"]

    @classmethod
    def of(cls, classifier: Any) -> "Boosted | None":
        """The trees of a fitted classifier; None if it is of another kind, or has learnt from categories."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        if type(classifier) is not HistGradientBoostingClassifier or classifier.is_categorical_ is not None:
            return None
        nodes: list[AnyArray] = [tree.nodes for step in classifier._predictors for tree in step]
        sizes = np.cumsum([0, *map(len, nodes)])
        every = np.concatenate(nodes)
        inner, first = ~every["is_leaf"].astype(bool), np.repeat(sizes[:-1], np.diff(sizes))
        return cls(
            classes_=np.asarray(classifier.classes_, dtype=np.int64),
            start=np.asarray(classifier._baseline_prediction, dtype=float).ravel(),
            first=sizes[:-1].astype(np.int64),
            feature=np.where(inner, every["feature_idx"], 0).astype(np.int64),
            left=np.where(inner, first + every["left"], 0).astype(np.int64),
            right=np.where(inner, first + every["right"], 0).astype(np.int64),
            threshold=np.where(inner, np.clip(every["num_threshold"], -_LARGEST, _LARGEST), 0.0),
            value=every["value"].astype(float),
            missing_left=every["missing_go_to_left"].astype(bool),
        )

    def check(self) -> None:
        """Require that every child lies behind its parent, so that each walk comes to an end."""
        n_classes, N, here = len(self.classes_), len(self.value), np.arange(len(self.value))
        require(2 <= n_classes == len(np.unique(self.classes_)), "classes_", "is out of range")
        leaf = self.left == 0
        for name in ("left", "right"):
            child = getattr(self, name)
            require(((child > here) | leaf).all() and (child < N).all(), name, "is out of order")
        require(len(self.start) == (1 if n_classes == 2 else n_classes), "start", "has the wrong length")
        require(len(self.first) and len(self.first) % len(self.start) == 0, "first", "has the wrong length")
        require((self.first < N).all(), "first", "is out of range")

    def predict_proba(self, Z: FloatArray) -> FloatArray:
        """Probabilities of the classes, shape (n, C)."""
        from evenout.detectors._tree_kernels import add_leaves

        raw = np.tile(self.start, (len(Z), 1))
        rows = np.require(Z, np.float64, ["C", "W"])  # rows that may not be written to would be compiled for anew
        add_leaves(  # in the order in which the classifier adds
            rows, self.first, self.feature, self.left, self.right, self.threshold, self.value, self.missing_left, raw
        )
        if len(self.start) > 1:
            shifted = np.exp(raw - raw.max(axis=1, keepdims=True))
            return shifted / shifted.sum(axis=1, keepdims=True)
        positive = expit(raw[:, 0])
        return np.column_stack([1.0 - positive, positive])


_LEAST = 1e-6  # probabilities below are taken as this
_FLATTEST, _STEEPEST = 1e-3, 10.0  # slopes; below the first, nothing is known


@dataclass(frozen=True)
class Calibration:
    """Calibrates probabilities: ``log P_g = slope log p_g + offset_g``, offsets (G,), up to a constant.

    The offsets make the mean probability of each group its share of the rows, so that ``r_g`` has the mean 1. A slope
    below 1 corrects an overconfident classifier; 0 means that it knows nothing, and ``r_g`` is 1.
    """

    slope: Annotated[float, FINITE]
    offset: Annotated[FloatArray, "*"]

    @classmethod
    def fit(cls, p: FloatArray, actual: FloatArray, weight: FloatArray | None = None) -> "Calibration":
        """Maximum likelihood on probabilities (n, G) of rows that the classifier has not seen.

        ``actual`` (n, G) is 1 for a row's group and 0 for others, or how much it belongs to each; rows sum to 1.
        """
        z = np.log(np.maximum(p, _LEAST))
        mass = (np.ones(len(p)) if weight is None else weight)[:, None]
        mass = mass / mass.sum()
        share = np.maximum((actual * mass).sum(axis=0), _LEAST)

        def loss(v: FloatArray) -> tuple[float, FloatArray]:
            log_p = _log_softmax(v[0] * z + v[1:])
            surplus = (np.exp(log_p) - actual) * mass
            return -float((log_p * actual * mass).sum()), np.append((surplus * z).sum(), surplus.sum(axis=0))

        start = np.append(0.0, np.log(share))  # a classifier that says nothing
        bounds = [(0.0, _STEEPEST)] + [(None, None)] * p.shape[1]
        v = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-14}).x
        return cls(float(v[0]), v[1:] - v[1:].mean()) if v[0] > _FLATTEST else cls(0.0, np.log(share))

    def apply(self, p: FloatArray) -> FloatArray:
        """Calibrated probabilities, shape (n, G)."""
        if self.slope == 0:
            return np.tile(np.exp(self.offset), (len(p), 1))
        return np.exp(_log_softmax(self.slope * np.log(np.maximum(p, _LEAST)) + self.offset))


class DisjointGroups(NamedTuple):
    """Groups that one classifier tells apart.

    ``groups`` (G',) are their codes; ``actual`` (n, classes) is how much each row belongs to each of them and, last, if
    that is a class, to none; ``learnt`` (n,) marks the training rows of the classifier; ``stands_for`` (n,) is how many
    rows each row stands for, None if each for itself.
    """

    groups: IntArray
    actual: FloatArray
    learnt: BoolArray
    stands_for: FloatArray | None = None


def disjoint_groups(members: Membership, stands_for: FloatArray | None = None) -> list[DisjointGroups]:
    """Blocks of groups, as many together as leave no row in more than one group."""
    phi = members.weights.toarray()
    if members.compared.simple and members.hard:  # a row without a group says nothing
        return [DisjointGroups(np.arange(phi.shape[1]), np.ascontiguousarray(phi), phi.sum(axis=1) > 0, stands_for)]
    layers: list[tuple[list[int], FloatArray]] = []
    for block in members.compared.blocks:
        share = phi[:, list(block.groups)].sum(axis=1)
        for groups, used in layers:
            if (used + share <= 1.0 + 1e-9).all():
                groups += block.groups
                used += share
                break
        else:
            layers.append(([*block.groups], share.copy()))
    parts = []
    for groups, used in layers:
        none = np.where(used < 1.0 - 1e-9, 1.0 - used, 0.0)
        actual = np.column_stack([phi[:, groups], none] if none.any() else [phi[:, groups]])
        parts.append(DisjointGroups(np.array(groups), actual, np.ones(len(phi), dtype=bool), stands_for))
    return parts


def _log_softmax(x: FloatArray) -> FloatArray:
    """``x - log(sum_g exp x_g)`` of finite x (n, G); scipy's takes longer than all else here where n is 1."""
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


_TELLING = 0.9  # share of a group's indicator that is predicted, from which on the group is known


@dataclass(frozen=True)
class GroupClassifier:
    """Tells disjoint groups apart: their codes ``groups`` (G',) and shares P(g) (G',).

    The ``classifier`` is fitted on all rows; its classes are indices of ``groups``.
    """

    groups: Annotated[IntArray, "g", Within()]
    classifier: Annotated[Any, {"trees": Boosted}]
    calibration: Calibration
    shares: Annotated[FloatArray, "g", Within(np.nextafter(0.0, 1.0))]

    def check(self) -> None:
        """Require a class for each group, and perhaps one for all others."""
        require(len(self.calibration.offset) - len(self.groups) in (0, 1), "calibration", "has the wrong length")
        require(hasattr(self.classifier, "predict_proba"), "classifier", "is no classifier")


@dataclass(frozen=True)
class FittedResemblance:
    """Computes how much new rows resemble each of ``n_groups`` groups, by classifiers of disjoint ones."""

    parts: tuple[GroupClassifier, ...]
    n_groups: Annotated[int, Within(2, 2**31 - 1)]

    def check(self) -> None:
        """Require codes of groups that exist."""
        require(all(part.groups.max(initial=0) < self.n_groups for part in self.parts), "parts", "are out of range")

    def fits(self, n_features: int) -> None:
        """Require features and classes that exist, of trees."""
        for part in self.parts:
            trees = part.classifier
            if isinstance(trees, Boosted):
                require(trees.feature.max(initial=0) < n_features, "feature", "is out of range")
                require(trees.classes_.max() < len(part.calibration.offset), "classes_", "is out of range")

    def levelled(self, prices: FloatArray) -> FloatArray:
        """Prices (G,) that make the same score, up to a constant, with the sum 0 wherever every row is in one group."""
        level = prices.copy()
        for part in self.parts:
            if len(part.calibration.offset) == len(part.groups):  # then r @ shares = 1
                level[part.groups] -= part.shares * prices[part.groups].sum()
        return level

    def of(self, Z: FloatArray) -> FloatArray:
        """``r_g`` of rows, shape (n, G)."""
        r = np.ones((len(Z), self.n_groups))
        for part in self.parts:
            # To find the libraries whose threads are to be limited takes milliseconds.
            with nullcontext() if isinstance(part.classifier, Boosted) else one_openmp_thread():
                p = _probabilities(part.classifier, Z, len(part.calibration.offset))
            r[:, part.groups] = part.calibration.apply(p)[:, : len(part.groups)] / part.shares
        return r


@dataclass(frozen=True)
class CrossFitted:
    """Resemblance of the training rows by classifiers that have not seen them; ``model`` is for new rows.

    ``own`` (n, G) is that of each row by the classifier that was fitted without its fold. ``without`` (K, n, G) is that
    without fold f: of the rows inside by the classifier fitted without f, of those outside by the one fitted without f
    and the row's own fold; calibrated on the rows outside. ``known`` (G,) is the share of the variance of each group's
    indicator that is predicted; 1 if it is known for sure.
    """

    model: FittedResemblance
    own: FloatArray
    without: FloatArray
    folds: IntArray
    known: FloatArray

    def views(self, t: FloatArray) -> Views:
        """Resemblance beside a given score (n,), which no model learns."""
        r = np.concatenate([self.own[None], self.without])
        return Views(np.tile(t, (len(r), 1)), r, np.tile(np.eye(r.shape[2] + 1, r.shape[2], -1), (len(r), 1, 1)))

    def sums(self, t: FloatArray, sample: Sample) -> CrossFit:
        """Sums of ``(1, r_1, ..., r_G, t)`` over all rows, and outside and inside of each fold."""
        sample = replace(sample, members=sample.joined)  # of all rows: each fold has the same pairs

        def cells(r: FloatArray, of: BoolArray) -> Cells:
            part, n = sample.of(of), int(of.sum())
            return collect_cells(
                r[of], t[of], np.ones(n), part.members, np.zeros(n, dtype=np.intp), n_groups=part.members.n_groups,
                n_sets=1, sample_weight=part.weight, clusters=part.clusters,
            )  # fmt: skip

        return CrossFit(
            cells(self.own, np.ones(len(t), dtype=bool)),
            Cells.stacked([cells(r, self.folds != fold) for fold, r in enumerate(self.without)]),
            Cells.stacked([cells(r, self.folds == fold) for fold, r in enumerate(self.without)]),
            refitted=False,
        )


def warn_proxy(known: FloatArray) -> None:
    """Warn where features predict the groups almost perfectly."""
    most = float(known.max(initial=0.0))
    if most > _TELLING:
        warn(
            ProxyWarning(
                "{@X} tells groups nearly for sure ({known:.0%} of what differs): to go by resemblance is then to go "
                "by the group itself. Ask whether the group may be used; see ScoreRepair.",
                known=most,
            )
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

    Copies of a scikit-learn classifier with ``predict_proba`` are fitted, ``n_jobs`` side by side, in threads; their
    open random states get the seed. None: gradient boosting by few small trees, as groups are often hard to tell, and
    overconfidence costs. There are two groups at least. Where they are hard, a row without one is predicted, but not
    learnt from. ``stands_for`` (n,) is how many rows each row stands for.
    """
    if classifier is None:
        from sklearn.ensemble import HistGradientBoostingClassifier  # takes long to import

        classifier = HistGradientBoostingClassifier(
            max_iter=50, max_leaf_nodes=8, min_samples_leaf=40, early_stopping=False, categorical_features=None
        )
    K, G = int(folds.max()) + 1, members.n_groups
    left_out = [(), *((f,) for f in range(K)), *combinations(range(K), 2)]
    layers, unfitted = disjoint_groups(members, stands_for), clone(classifier)
    given = unfitted.get_params(deep=True).items()
    unfitted.set_params(**{key: seed for key, value in given if key.endswith("random_state") and value is None})
    fits = iter(
        Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_fit_without)(clone(unfitted), Z, layer, folds, out) for layer in layers for out in left_out
        )
    )
    own, without, known, parts = np.ones((len(Z), G)), np.ones((K, len(Z), G)), np.zeros(G), []
    for layer in layers:
        fitted = {out: next(fits) for out in left_out}
        for f in range(-1, K):
            p = np.zeros(layer.actual.shape)
            for g in range(K):  # rows of fold g, by the classifier without g and f
                p[folds == g] = fitted[tuple(sorted({f, g} - {-1}))][1][g]
            learnt = layer.learnt & (folds != f)
            weight = None if stands_for is None else stands_for[learnt]
            calibration = Calibration.fit(p[learnt], layer.actual[learnt], weight)
            actual = layer.actual[:, : len(layer.groups)]
            shares = np.maximum(np.average(actual[learnt], axis=0, weights=weight), _LEAST)
            r = calibration.apply(p)[:, : len(layer.groups)] / shares
            if f >= 0:
                without[f][:, layer.groups] = r
                continue
            own[:, layer.groups] = r
            missed = ((r * shares - actual)[layer.learnt] ** 2).mean(axis=0)
            known[layer.groups] = 1.0 - missed / np.maximum(actual[layer.learnt].var(axis=0), np.finfo(float).tiny)
            parts.append(GroupClassifier(layer.groups, fitted[()][0], calibration, shares))
    return CrossFitted(FittedResemblance(tuple(parts), G), own, without, folds, known)


@one_openmp_thread()
def _fit_without(
    classifier: Any, Z: FloatArray, layer: DisjointGroups, folds: IntArray, out: Sequence[int]
) -> tuple[Any, dict[int, FloatArray]]:
    """A classifier fitted without some folds, and the probabilities that it gives their rows."""
    rows = layer.learnt & ~np.isin(folds, out)
    actual = layer.actual
    if layer.stands_for is None and bool(((actual == 0) | (actual == 1)).all()):  # each row is of one class
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
    return fitted, {f: _probabilities(fitted, Z[folds == f], actual.shape[1]) for f in out}


def _probabilities(classifier: Any, Z: FloatArray, classes: int) -> FloatArray:
    """Probabilities of all classes, 0 for one that the classifier has not met."""
    p = np.zeros((len(Z), classes))
    if len(Z):
        p[:, np.asarray(classifier.classes_, dtype=np.intp)] = classifier.predict_proba(Z)
    return p
