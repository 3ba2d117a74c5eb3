"""From a fitted model and rows to an explanation."""

from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted

from evenout.core.exceptions import InputError
from evenout.inputs.rows import new_rows
from evenout.reasons.attribution import Attribution
from evenout.reasons.explanation import Explanation
from evenout.reasons.features import Features, names_of, row_labels, shown_values
from evenout.reasons.orders import draw_orders
from evenout.reasons.words import Words

if TYPE_CHECKING:
    from evenout.inputs.table import TableEncoder


def explain(
    model: Any,
    X: Any,
    n_reasons: int = 3,
    *,
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
    ensemble, table = steps[-1], steps[0] if len(steps) == 2 else table
    check_is_fitted(ensemble)
    result = ensemble._result
    if result.background is None:
        raise InputError("this model was saved before reasons were kept; fit it anew, and save it")
    encoded = X if table is None else table.transform(X)
    array = new_rows(ensemble, encoded)
    names = names_of(ensemble, encoded)
    features = Features.of_rows(names, array.shape[1]) if table is None else Features.of_table(table)
    attribution = Attribution(result, result.background.typical, features.player, draw_orders(len(features.names)))
    parts = attribution.split(array, sensitive_features=sensitive_features, n_threads=effective_n_jobs(ensemble.n_jobs))
    base = result.thresholds(result.target[:, None], ensemble.contamination)
    return Explanation(
        words=Words(result.background, features, rows),
        parts=parts,
        rows=array,
        values=shown_values(array, features, X, table),
        index=row_labels(X, len(array)),
        n_reasons=n_reasons,
        base_line=float(np.ravel(base)[0]),
        fair_line=result.threshold,
    )
