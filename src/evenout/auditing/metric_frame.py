"""The measures per group as functions of ``(y_true, y_pred)``, for fairlearn's ``MetricFrame``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from evenout.auditing.inputs import who_is_flagged
from evenout.metrics import average_precision, roc_auc

MetricFunction = Callable[[Any, Any], float]


def metric_functions(scores: Any, *, contamination: float = 0.1) -> dict[str, MetricFunction]:
    """Functions ``metric(y_true, y_pred)``, y_pred being scores, with the flag threshold of *all* the scores.

    ``MetricFrame`` calls a metric with the rows of one group; the threshold must come from all rows, so it is fixed
    here. ``mean_score`` and ``flag_rate`` do not look at ``y_true``: without labels, pass the scores for it too. The
    others are NaN for a group that lacks the rows they need.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher = more outlying.
    contamination : float in (0, 0.5] or int
        Share of the rows that is flagged; a whole number is a count of rows.

    Examples
    --------
    >>> functions = metric_functions([0.1, 0.2, 0.3, 0.9], contamination=0.25)
    >>> functions["flag_rate"]([0, 1], [0.3, 0.9])
    0.5
    """
    values = np.asarray(scores, dtype=float)
    threshold = float(values[who_is_flagged(values, None, contamination).flagged].min(initial=np.inf))

    def rate(y_true: Any, y_pred: Any, label: int) -> float:
        return _mean((np.asarray(y_pred) >= threshold)[np.asarray(y_true) == label])

    def precision(y_true: Any, y_pred: Any) -> float:
        return _mean((np.asarray(y_true) == 1)[np.asarray(y_pred) >= threshold])

    return {
        "mean_score": lambda _, y_pred: _mean(np.asarray(y_pred)),
        "flag_rate": lambda _, y_pred: _mean(np.asarray(y_pred) >= threshold),
        "auc": roc_auc,
        "average_precision": lambda y_true, y_pred: (
            average_precision(y_true, y_pred) if len(np.unique(y_true)) == 2 else float("nan")
        ),
        "true_positive_rate": lambda y_true, y_pred: rate(y_true, y_pred, 1),
        "false_positive_rate": lambda y_true, y_pred: rate(y_true, y_pred, 0),
        "precision": precision,
    }


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
