"""Third stage of a report: one file, whole or not at all."""

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenout.core.exceptions import from_extra
from evenout.estimator import FairOutlierEnsemble
from evenout.report.collect import collect
from evenout.report.render import render
from evenout.storage.output import atomic_file

if TYPE_CHECKING:
    from evenout.inputs.table import TableEncoder


def write_report(
    model: FairOutlierEnsemble,
    path: str | os.PathLike[str],
    *,
    X: Any,
    sensitive_features: Any,
    y: Any = None,
    ids: Any = None,
    given: Any = None,
    title: str | None = None,
    source: str | None = None,
    input_sha256: str | None = None,
    model_sha256: str | None = None,
    show_small_cells: bool = False,
    reasons: int = 0,
    table: "TableEncoder | None" = None,
    date: datetime | None = None,
) -> Path:
    """Write the report of a fitted model: one HTML page that opens anywhere, without a network.

    Parameters
    ----------
    model : FairOutlierEnsemble
        Fitted.
    path : str or path
        The file to write or to replace.
    X : array or frame of shape (n, d)
        The rows that the model was fitted on.
    sensitive_features : array, series or frame of shape (n,) or (n, c)
        Their protected groups, as given to `fit`.
    y : array of shape (n,), optional
        1 for known outliers, 0 for others; to evaluate alone.
    ids : array of shape (n,), optional
        What to call the rows in the list of people who enter or leave the flagged list; by default row numbers.
    given : array, series or frame of shape (n,) or (n, c), optional
        The columns that may justify a difference, as given to `fit`.
    title, source : str, optional
        The page's title, and where the data came from.
    input_sha256, model_sha256 : str, optional
        Hashes of the data file and of the stored model.
    show_small_cells : bool, default=False
        Show counts of fewer than 10 people too, and the group beside each id. These can identify people.
    reasons : int, default=0
        Name the most unusual people who enter, leave and stay on the flagged list, each with so many reasons in words.
        These hold values of their rows.
    table : TableEncoder, optional
        That X was encoded by: features are then called as in its table.
    date : datetime, optional
        The date on the page; by default now.

    Returns
    -------
    Path
        Of the file.

    Examples
    --------
    >>> from evenout.report import write_report
    >>> write_report(model, "report.html", X=X, sensitive_features=groups)  # doctest: +SKIP
    """
    place = Path(path)
    from_extra("vl_convert", "pages", "the report")  # told before the work, not after it
    with atomic_file(place) as draft:
        data = collect(
            model, X=X, sensitive_features=sensitive_features, y=y, ids=ids, given=given,
            show_small_cells=show_small_cells, title=title, source=source, input_sha256=input_sha256,
            model_sha256=model_sha256, date=date, reasons=reasons, table=table,
        )  # fmt: skip
        draft.write_text(render(data), encoding="utf-8", newline="\n")
    return place
