"""Detectors of other libraries, and scikit-learn's conventions.

Recognised by interface, so that no other library need be imported:

- ``decision_scores_`` after ``fit`` (PyOD): these are the training scores, ``decision_function`` scores new rows;
  higher is more outlying.
- ``score_samples``, else ``decision_function`` (scikit-learn): lower is more outlying. ``negative_outlier_factor_`` has
  the training scores where it exists, because a local outlier factor leaves the row itself out.
- a function of X: its scores are taken as they are, higher is more outlying.

A pipeline counts as its last step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin, clone

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.family import Without
from evenout.groups.read import label_rows


@dataclass(frozen=True)
class Foreign:
    """A fitted foreign detector, or a scoring function, as one score column."""

    name: str  # for messages
    scorer: Any  # a bound method or function of X
    sign: float  # -1 where the scorer's high values mean inliers

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002 (it has its own n_jobs)
        """Scores of shape (m, 1), higher = more outlying."""
        return _column(self.name, self.scorer(X), len(X), self.sign)


@dataclass(frozen=True)
class GroupAware:
    """A fitted detector that uses the group of every row that it scores, such as `FairLOF`."""

    name: str
    detector: Any

    def score(self, X: FloatArray, *, sensitive_features: Any, n_threads: int = 1) -> FloatArray:  # noqa: ARG002
        """Scores of shape (m, 1), higher = more outlying."""
        return _column(self.name, self.detector.outlier_scores(X, sensitive_features=sensitive_features), len(X), 1.0)


def fit_group_aware(
    name: str, detector: Any, X: FloatArray, folds: IntArray | None, sensitive_features: Any
) -> tuple[GroupAware, FloatArray, Without]:
    """Fit a clone of a detector with ``needs_groups``.

    Returns the fitted column, its training scores of shape (n, 1), and a function of a fold: the scores of all rows,
    fitted without the fold. A row whose group no row outside its fold has keeps its training score.
    """

    def fit(rows: BoolArray) -> tuple[GroupAware, FloatArray]:
        fitted = clone(detector)
        fitted.fit(X[rows], sensitive_features=_some_rows(sensitive_features, rows))
        return GroupAware(name, fitted), _column(name, fitted.outlier_scores_, int(rows.sum()), 1.0)

    def without(fold: int) -> FloatArray:
        codes, kept = label_rows(sensitive_features, len(X)).codes, np.asarray(folds) != fold
        asked, out = ~kept & np.isin(codes, codes[kept]), scores.copy()
        refitted, out[kept] = fit(kept)
        if asked.any():
            out[asked] = refitted.score(X[asked], sensitive_features=_some_rows(sensitive_features, asked))
        return out

    part, scores = fit(np.ones(len(X), dtype=bool))
    return part, scores, without


def fit_foreign(name: str, detector: Any, X: FloatArray, seed: int) -> tuple[Foreign, FloatArray]:
    """Fit a clone of a foreign detector; the fitted column and its training scores of shape (n, 1).

    Every random state that was left open is set from ``seed``.
    """
    if isinstance(detector, type):
        raise ValueError(f"detector {name!r} is a class; pass an instance, for example {detector.__name__}()")
    if not hasattr(detector, "fit"):
        if not callable(detector):
            raise ValueError(
                f"detector {name!r} ({type(detector).__name__}) has no fit method and is not callable; "
                "pass a scikit-learn or PyOD detector, or a function that returns one score per row"
            )
        column = Foreign(name, detector, 1.0)
        return column, column.score(X)
    fitted = clone(detector, safe=False)
    given: dict[str, Any] = fitted.get_params(deep=True) if hasattr(fitted, "get_params") else {}
    settings = {key: seed for key, value in given.items() if key.endswith("random_state") and value is None}
    # scikit-learn's LocalOutlierFactor scores new rows in this mode only.
    settings |= {key: True for key, value in given.items() if key.split("__")[-1] == "novelty" and value is False}
    if settings:
        fitted.set_params(**settings)
    fitted.fit(X)
    last = fitted
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    if hasattr(last, "decision_scores_"):
        return Foreign(name, fitted.decision_function, 1.0), _column(name, last.decision_scores_, len(X), 1.0)
    for method in ("score_samples", "decision_function"):
        if hasattr(fitted, method):
            column = Foreign(name, getattr(fitted, method), -1.0)
            factors = getattr(last, "negative_outlier_factor_", None)
            return column, column.score(X) if factors is None else _column(name, factors, len(X), -1.0)
    raise ValueError(
        f"detector {name!r} ({type(detector).__name__}) has none of score_samples, decision_function and "
        "decision_scores_ after fit; wrap it in an object that has one of them"
    )


def _some_rows(values: Any, rows: BoolArray) -> Any:
    """Select rows of an array, series, frame or list."""
    if values is None or rows.all():
        return values
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if hasattr(values, "dtype") else [v for v, kept in zip(values, rows, strict=True) if kept]


def _column(name: str, scores: Any, n_rows: int, sign: float) -> FloatArray:
    try:
        values = np.asarray(scores, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"detector {name!r} returned {type(scores).__name__}, not one number per row") from None
    if values.shape not in ((n_rows,), (n_rows, 1)):
        raise ValueError(
            f"detector {name!r} returned scores of shape {values.shape}; "
            f"one score per row, shape ({n_rows},), is needed"
        )
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values.ravel())))
        raise ValueError(
            f"detector {name!r} returned {values.ravel()[row]} for row {row}; every score must be a finite number"
        )
    return sign * values.reshape(n_rows, 1)


class OutlierScorer(OutlierMixin):
    """scikit-learn's methods, made of ``outlier_scores(X)`` and, after fit, ``outlier_scores_`` and ``offset_``."""

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
