"""From a fitted model and rows to an explanation."""

from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted

from evenout.core.exceptions import InputError
from evenout.core.flags import top_threshold
from evenout.inputs.rows import new_rows
from evenout.reasons.attribution import Attribution
from evenout.reasons.company import Company
from evenout.reasons.explanation import Explanation
from evenout.reasons.features import Features, names_of, row_labels
from evenout.reasons.orders import draw_orders
from evenout.reasons.words import Words

if TYPE_CHECKING:
    import pandas as pd

    from evenout.inputs.table import TableEncoder

BASELINES = ("alike", "typical")


def explain(
    model: Any,
    X: Any,
    n_reasons: int = 3,
    *,
    baseline: str = "alike",
    table: "TableEncoder | None" = None,
    sensitive_features: Any = None,
    rows: str = "rows",
) -> Explanation:
    """Split the scores of rows over the features of their table, before and after fairness.

    Parameters
    ----------
    model : FairOutlierEnsemble or Pipeline
        Fitted: an ensemble, or a `Pipeline` of a `TableEncoder` and one, whose X is the table before it is encoded.
    X : array or frame of shape (m, d)
    n_reasons : int, default=3
        Reasons for each row in frames and texts; all parts are there in any case.
    baseline : {"alike", "typical"}, default="alike"
        What each row is held against: the typical row among the 30 training rows most like it, or among all.
    table : TableEncoder, optional
        The encoder that X is to go through, as in a pipeline.
    sensitive_features : array of shape (m,), optional
        Only for detectors that use the group of a row.
    rows : str, default="rows"
        What rows are called in texts, such as ``"people"``.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from evenout.reasons import explain
    >>> explain(make_pipeline(TableEncoder(), model), table).to_frame()  # doctest: +SKIP
    """
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    ensemble, encoder = steps[-1], steps[0] if len(steps) == 2 else table
    check_is_fitted(ensemble)
    given: dict[str, Any] = {"baseline": baseline, "sensitive_features": sensitive_features, "rows": rows}
    if encoder is None:
        return explain_rows(ensemble, X, n_reasons, **given)
    return explain_rows(ensemble, encoder.transform(X), n_reasons, table=encoder, frame=X, **given)


def explain_rows(
    ensemble: Any,
    X: Any,
    n_reasons: int,
    *,
    baseline: str = "alike",
    table: "TableEncoder | None" = None,
    frame: "pd.DataFrame | None" = None,
    sensitive_features: Any = None,
    rows: str = "rows",
) -> Explanation:
    """The same for encoded rows, and what they were encoded from, as far as it is at hand."""
    result = ensemble._result
    if result.background is None:
        raise InputError("this model was saved before reasons were kept; fit it anew, and save it")
    if not isinstance(n_reasons, int | np.integer) or isinstance(n_reasons, bool) or n_reasons < 1:
        raise InputError("{n_reasons=} is not allowed; use a whole number of at least 1", n_reasons=n_reasons)
    if baseline not in BASELINES:
        raise InputError("{baseline=!r} is unknown; use 'alike' or 'typical'", baseline=baseline)
    array, background = new_rows(ensemble, X), result.background
    features = Features.of_rows(names_of(ensemble, X), array.shape[1]) if table is None else Features.of_table(table)
    typical = Company(background).typical(array) if baseline == "alike" else background.typical[None]
    split = Attribution(result, features.player, draw_orders(len(features.names)))
    threads = effective_n_jobs(ensemble.n_jobs)
    return Explanation(
        words=Words(background, features, rows),
        parts=split.split(array, typical, sensitive_features=sensitive_features, n_threads=threads),
        rows=array,
        beside=np.broadcast_to(typical, array.shape),
        values=features.shown(array, frame),
        index=row_labels(X if frame is None else frame, len(array)),
        n_reasons=min(int(n_reasons), len(features.names)),
        baseline=baseline,
        base_line=base_line(ensemble),
        fair_line=result.threshold,
    )


def base_line(ensemble: Any) -> float:
    """The base score above which a row would be flagged without fairness."""
    result = ensemble._result
    share = result.seen.share(ensemble.contamination)
    return float(top_threshold(result.target[:, None], share, result.seen.sample.weight)[0])
