"""What every step of a path costs where people feel it: at the threshold, on rows that the weights have not seen."""

from typing import TYPE_CHECKING

import numpy as np

from evenout.core.path import TradeoffPath
from evenout.core.types import FloatArray
from evenout.fitting.result import FitResult
from evenout.metrics import average_precision, roc_auc

if TYPE_CHECKING:
    import pandas as pd


def cost_table(
    path: TradeoffPath, found: FitResult, share: float, alphas: FloatArray, labels: FloatArray | None
) -> "pd.DataFrame":
    """One row per alpha.

    ``flag_rate_ratio``, ``list_kept`` and ``mean_base_score`` (of the flagged) are counted on unseen rows: each fold by
    what was solved without it. At the end of a way that was solved for even flags the counted ratio is a little better
    than what new rows can expect, which ``flag_rate_ratio_`` states. With labels, 1 for outliers: ``auc`` and
    ``average_precision`` of the training scores, and ``precision_flagged``, the share of outliers among the flagged.
    """
    import pandas as pd

    rows = found.seen
    V = path.fold_weights(np.r_[0.0, alphas], "unseen")
    flagged = rows.flagged(V, share)
    before, after = flagged[:, :1], flagged[:, 1:]
    counted = np.maximum(after.sum(axis=0), 1)
    columns = {
        "alpha": alphas,
        "flag_rate_ratio": rows.ratio(after),
        "list_kept": (after & before).sum(axis=0) / max(before.sum(), 1),
        "mean_base_score": rows.t @ after / counted,
    }
    if labels is not None:
        scores = [path.mixture(alpha).apply(found.S, found.target) for alpha in alphas]
        columns["auc"] = np.array([roc_auc(labels, y) for y in scores])
        columns["average_precision"] = np.array([average_precision(labels, y) for y in scores])
        columns["precision_flagged"] = (labels == 1).astype(float) @ after / counted
    return pd.DataFrame(columns)
