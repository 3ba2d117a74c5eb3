"""The trees of a fitted gradient boosting classifier as plain arrays: a model file can hold them, and no code is run.

They give the probabilities of scikit-learn's `HistGradientBoostingClassifier` bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from evenout.core.types import AnyArray, BoolArray, FloatArray, IntArray
from evenout.storage.fields import Fields

_LARGEST = np.finfo(float).max


@dataclass(frozen=True)
class Boosted:
    """Trees, one behind the other, whose values add up to a score for each class, or to one for two classes.

    Parameters
    ----------
    classes_ : array of shape (C,)
        Codes.
    start : array of shape (S,)
        Scores before the first tree; S is C, or 1 for two classes.
    first : array of shape (T,)
        The place of each tree's root among the nodes; tree i adds to score ``i % S``.
    feature, left, right : arrays of shape (N,)
        Of each node: which feature decides, and the places of its children, which lie behind it; 0 for a leaf.
    threshold, value : arrays of shape (N,)
        Rows up to the threshold go left; the value of a leaf.
    missing_left : array of shape (N,)
        Where rows without a value go.
    """

    classes_: IntArray
    start: FloatArray
    first: IntArray
    feature: IntArray
    left: IntArray
    right: IntArray
    threshold: FloatArray
    value: FloatArray
    missing_left: BoolArray

    @classmethod
    def of(cls, classifier: Any) -> "Boosted | None":
        """Of a fitted classifier; None if it is of another kind, or has learnt from categories."""
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

    @classmethod
    def read(cls, data: Fields, n_features: int, n_classes: int) -> "Boosted":
        """Out of a model file: every child lies behind its parent, so that each walk comes to an end."""
        classes = data.integers("classes_", None, low=0, high=n_classes - 1)
        data.require(2 <= len(classes) == len(np.unique(classes)), "classes_", "is out of range")
        value = data.floats("value", None)
        N = len(value)
        left, right = (data.integers(name, N, low=0, high=N - 1) for name in ("left", "right"))
        here = np.arange(N)
        leaf = left == 0
        data.require(((left > here) | leaf).all() and ((right > here) | leaf).all(), "left", "is out of order")
        start = data.floats("start", 1 if len(classes) == 2 else len(classes))
        first = data.integers("first", None, low=0, high=N - 1)
        data.require(len(first) % len(start) == 0 and len(first) > 0, "first", "has the wrong length")
        return cls(
            classes, start, first,
            data.integers("feature", N, low=0, high=n_features - 1), left, right,
            data.floats("threshold", N), value, data.flags("missing_left", N),
        )  # fmt: skip

    def predict_proba(self, Z: FloatArray) -> FloatArray:
        """Probabilities of the classes, shape (n, C)."""
        from evenout.fitting._tree_kernels import add_leaves

        raw = np.tile(self.start, (len(Z), 1))
        nodes = (self.feature, self.left, self.right, self.threshold, self.value, self.missing_left)
        rows = np.require(Z, np.float64, ["C", "W"])  # rows that may not be written to would be compiled for anew
        add_leaves(rows, self.first, *nodes, raw)  # in the order in which the classifier adds
        if len(self.start) > 1:
            shifted = np.exp(raw - raw.max(axis=1, keepdims=True))
            return shifted / shifted.sum(axis=1, keepdims=True)
        positive = expit(raw[:, 0])
        return np.column_stack([1.0 - positive, positive])
