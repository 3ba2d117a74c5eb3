"""scikit-learn's methods for estimators whose scores are "higher = more outlying": the one place where signs go out."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin

from evenout.core.types import FloatArray, IntArray


class OutlierScorer(OutlierMixin):
    """What follows from ``outlier_scores(X)``, and after fit from ``outlier_scores_`` and ``offset_``."""

    fit: Callable[..., Any]
    outlier_scores: Callable[..., FloatArray]
    offset_: float

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> IntArray:
        """Fit, and flag the training rows: -1 for outliers, 1 for inliers."""
        return outlier_labels(-self.fit(X, y, **params).outlier_scores_ - self.offset_)

    def score_samples(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """scikit-learn's sign: the lower, the more outlying; ``-outlier_scores(X)``."""
        return -self.outlier_scores(X, sensitive_features=sensitive_features)

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """``score_samples(X) - offset_``: negative for rows that `predict` flags."""
        return self.score_samples(X, sensitive_features=sensitive_features) - self.offset_

    def predict(self, X: Any, *, sensitive_features: Any = None) -> IntArray:
        """-1 for outliers, 1 for inliers."""
        return outlier_labels(self.decision_function(X, sensitive_features=sensitive_features))


def outlier_labels(decision: FloatArray) -> IntArray:
    """-1 for outliers, whose decision is negative, and 1 for inliers."""
    return np.where(decision < 0, -1, 1)
