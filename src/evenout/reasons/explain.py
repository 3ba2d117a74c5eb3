"""From a fitted model and rows to an explanation."""

from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted

from evenout.core.exceptions import InputError
from evenout.core.flags import top_threshold
from evenout.inputs.rows import column_names, new_rows
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
        Fitted: an ensemble, or a `Pipeline` that ends in one. X is what the pipeline takes. Encoded columns are summed
        up to those of the table where the only other step is a `TableEncoder`.
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
    from evenout.inputs.table import TableEncoder

    *before, ensemble = [step for _, step in getattr(model, "steps", [("", model)])]
    check_is_fitted(ensemble)
    given: dict[str, Any] = {"baseline": baseline, "sensitive_features": sensitive_features, "rows": rows}
    if len(before) == 1 and isinstance(before[0], TableEncoder):
        table = before[0]
    elif before:
        encoded = model[:-1].transform(X)
        return explain_rows(ensemble, encoded, n_reasons, names=_names_out(model[:-1], X), **given)
    if table is None:
        return explain_rows(ensemble, X, n_reasons, **given)
    return explain_rows(ensemble, table.transform(X), n_reasons, table=table, frame=X, **given)


def _names_out(steps: Any, X: Any) -> Any:
    """Names of the columns that the steps of a pipeline make of X; None where a step does not know."""
    try:
        return steps.get_feature_names_out(column_names(X))
    except (AttributeError, ValueError):
        return None


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
    names: Any = None,
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
    named = names_of(ensemble, X) if names is None else list(names)
    features = Features.of_rows(named, array.shape[1]) if table is None else Features.of_table(table)
    company = Company(background)
    similar = company.similar(array) if baseline == "alike" else None
    typical = background.typical[None] if similar is None else company.typical(array, similar)
    split = Attribution(result, features.player, draw_orders(len(features.names)))
    threads = effective_n_jobs(ensemble.n_jobs)
    parts = split.split(array, typical, sensitive_features=sensitive_features, n_threads=threads)
    values = features.shown(array, frame)
    if parts.resembling is not None:
        values = np.column_stack([values, parts.resembling.most(parts.parts[:, -1, 1])[1].astype(object)])
    return Explanation(
        words=Words(background, features, rows),
        parts=parts,
        rows=array,
        beside=np.broadcast_to(typical, array.shape),
        values=values,
        index=row_labels(X if frame is None else frame, len(array)),
        n_reasons=min(int(n_reasons), parts.parts.shape[1]),
        baseline=baseline,
        base_line=base_line(ensemble),
        fair_line=result.threshold,
        similar=similar,
    )


def base_line(ensemble: Any) -> float:
    """The base score above which a row would be flagged without fairness."""
    result = ensemble._result
    share = result.seen.share(ensemble.contamination)
    return float(top_threshold(result.target[:, None], share, result.seen.sample.weight)[0])
