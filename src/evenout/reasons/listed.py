"""Reasons of the rows that a score flags, as columns beside the scores: in memory and over partitions."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from evenout.partitions.dask_engine import frame_collection
from evenout.partitions.engines import Engine, Part, Rows, Staged, read_rows
from evenout.reasons.explain import base_line, explain_rows
from evenout.reasons.explanation import CHANGES

if TYPE_CHECKING:
    import pandas as pd

    from evenout.inputs.table import TableEncoder


def reason_columns(
    ensemble: Any,
    rows: Any,
    n_reasons: int,
    *,
    table: "TableEncoder | None" = None,
    frame: "pd.DataFrame | None" = None,
    sensitive_features: Any = None,
    everybody: bool = False,
) -> "pd.DataFrame":
    """Columns ``change``, ``reason_1``, ... of all rows; reasons are empty where neither score flags the row.

    Of ``everybody``: no row is without; the first says so where nothing stands out.

    Parameters
    ----------
    ensemble : FairOutlierEnsemble
    rows : array or frame of shape (m, d)
        Encoded.
    n_reasons : int
    table : TableEncoder, optional
        That the rows were encoded by, from ``frame``, if that is at hand.
    frame : DataFrame, optional
    sensitive_features : array of shape (m,), optional
        Only for detectors that use the group of a row.
    """
    import pandas as pd

    given = {"sensitive_features": sensitive_features}
    before = ensemble.base_scores(rows, **given) > base_line(ensemble)
    after = ensemble.outlier_scores(rows, **given) > ensemble._result.threshold
    named, texts = np.flatnonzero(before | after | everybody), np.full((len(before), n_reasons), "", dtype=object)
    if len(named):
        few = rows.iloc[named] if hasattr(rows, "iloc") else rows[named]
        shown = None if frame is None else frame.iloc[named]
        groups = None if sensitive_features is None else np.asarray(sensitive_features, dtype=object)[named]
        found = explain_rows(ensemble, few, n_reasons, table=table, frame=shown, sensitive_features=groups)
        for row, place in enumerate(named):
            said = found.texts(row)[: found.n_given(row)] or [found.summary(row)]
            texts[place, : len(said)] = said
    change = np.array(CHANGES, dtype=object)[2 * before.astype(int) + after]
    return pd.DataFrame({"change": change} | {f"reason_{j + 1}": texts[:, j] for j in range(n_reasons)})


def explain_collection(
    ensemble: Any, X: Any, n_reasons: int = 3, *, sensitive_features: Any = None, **settings: Any
) -> Any:
    """What ``ensemble.explain(...).to_frame()`` gives, of a Dask collection: a Dask frame, lazy."""
    import pandas as pd

    kinds = {"rank": int, "feature": object, "value": float, "base_part": float, "fair_part": float, "text": object}
    meta = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})
    return frame_collection(partial(_frame_of, ensemble, n_reasons, settings), X, meta, sensitive_features)


def _frame_of(
    ensemble: Any, n_reasons: int, settings: dict[str, Any], X: Any, sensitive_features: Any = None
) -> "pd.DataFrame":
    frame = ensemble.explain(X, n_reasons, sensitive_features=sensitive_features, **settings).to_frame()
    return frame.astype({"value": float})


def explain_partitions(
    engine: Engine,
    ensemble: Any,
    n_reasons: int,
    to: Path,
    *,
    table: "TableEncoder | None" = None,
    everybody: bool = False,
) -> int:
    """Write the reasons of all flagged rows, or of all, of an engine's encoded partitions; how many rows these are.

    Parameters
    ----------
    engine : Engine
        Over encoded rows; see `evenout.partitions.columns.encoded`.
    ensemble : FairOutlierEnsemble
    n_reasons : int
    to : Path
        A folder, reachable by all workers, for one file per partition, ``reasons-000000.parquet``: ``source`` and
        ``row`` say which row of the input it is; ``change``, ``reason_1``, ...
    table : TableEncoder, optional
        That the rows were encoded by.
    """
    shared = engine.share((ensemble, table))
    return int(engine.reduce(Staged(_read_part, _explain_part), int.__add__, shared, n_reasons, to, everybody))


def _read_part(part: Part, *shared: Any) -> tuple[Part, Rows]:  # noqa: ARG001
    return part, read_rows(part)


def _explain_part(ready: tuple[Part, Rows], model: tuple[Any, Any], n_reasons: int, to: Path, everybody: bool) -> int:
    import pandas as pd

    (part, rows), (ensemble, table) = ready, model
    if not len(rows.X):
        return 0
    names = getattr(ensemble, "feature_names_in_", None)
    X = rows.X if names is None else pd.DataFrame(rows.X, columns=names)
    groups = rows.labels() if rows.names else None
    found = reason_columns(ensemble, X, n_reasons, table=table, sensitive_features=groups, everybody=everybody)
    kept = (found["change"] != "not flagged") | everybody
    found.insert(0, "row", part.first_row + np.arange(len(found)))
    found.insert(0, "source", part.source)
    place = to / f"reasons-{part.index:06d}.parquet"
    unfinished = place.with_suffix(f".{uuid4().hex}")
    found[kept].to_parquet(unfinished, index=False)
    unfinished.replace(place)
    return int(kept.sum())
