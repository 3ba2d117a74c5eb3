"""Explain scores: a few rows, a list, or a whole collection."""

from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted

from evenout.exceptions import InputError
from evenout.out_of_core.dask_engine import apply_later
from evenout.out_of_core.engines import Engine, Partition, PartitionRows, Staged, read_rows
from evenout.reasons.attribution import Attribution, draw_orders, similar_rows, typical_rows
from evenout.reasons.explanation import CHANGES, Explanation
from evenout.reasons.words import Features, ReasonWords
from evenout.tables.encoder import TableEncoder
from evenout.tables.rows import column_names, new_rows

BASELINES = ("alike", "typical")


def explain(
    model: Any,
    X: Any,
    n_reasons: int = 3,
    *,
    baseline: str = "alike",
    table: TableEncoder | None = None,
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
    *before, ensemble = [step for _, step in getattr(model, "steps", [("", model)])]
    check_is_fitted(ensemble)
    frame = names = None
    if len(before) == 1 and isinstance(before[0], TableEncoder):
        table = before[0]
    elif before:
        with suppress(AttributeError, ValueError):  # a step may not know the names of its columns
            names = model[:-1].get_feature_names_out(column_names(X))
        X, table = model[:-1].transform(X), None
    if table is not None:
        X, frame = table.transform(X), X
    return explain_rows(
        ensemble, X, n_reasons, baseline=baseline, table=table, frame=frame, sensitive_features=sensitive_features,
        rows=rows, names=names,
    )  # fmt: skip


def explain_rows(
    ensemble: Any,
    X: Any,
    n_reasons: int,
    *,
    baseline: str = "alike",
    table: TableEncoder | None = None,
    frame: pd.DataFrame | None = None,
    sensitive_features: Any = None,
    rows: str = "rows",
    names: Any = None,
) -> Explanation:
    """Explain encoded rows; ``frame`` is what they were encoded from, where that is at hand."""
    result, background = ensemble._result, ensemble._result.background
    if background is None:
        raise InputError("this model was saved before reasons were kept; fit it anew, and save it")
    if not isinstance(n_reasons, int | np.integer) or isinstance(n_reasons, bool) or n_reasons < 1:
        raise InputError("{n_reasons=} is not allowed; use a whole number of at least 1", n_reasons=n_reasons)
    if baseline not in BASELINES:
        raise InputError("{baseline=!r} is unknown; use 'alike' or 'typical'", baseline=baseline)
    array = new_rows(ensemble, X)
    names = getattr(ensemble, "feature_names_in_", column_names(X)) if names is None else names
    features = Features.of(table, array.shape[1], names)
    given = X if frame is None else frame
    similar = similar_rows(background, array) if baseline == "alike" else np.empty((len(array), 0), dtype=np.intp)
    typical = typical_rows(background, similar) if baseline == "alike" else background.typical[None]
    parts = Attribution(result, features.player, draw_orders(len(features.names))).split(
        array, typical, sensitive_features=sensitive_features, n_threads=effective_n_jobs(ensemble.n_jobs)
    )
    values = features.shown(array, frame)
    if parts.resembling is not None:
        likeness = np.take_along_axis(parts.resembling.likeness, parts.resembling.most[:, None], axis=1)
        values = np.column_stack([values, likeness.astype(object)])
    return Explanation(
        words=ReasonWords(background, features, rows),
        parts=parts,
        rows=array,
        beside=np.broadcast_to(typical, array.shape),
        values=values,
        index=given.index if hasattr(given, "index") and hasattr(given, "columns") else pd.RangeIndex(len(array)),
        n_reasons=min(int(n_reasons), parts.parts.shape[1]),
        baseline=baseline,
        base_line=result.base_threshold,
        fair_line=result.threshold,
        similar=similar,
    )


def reason_columns(
    ensemble: Any,
    rows: Any,
    n_reasons: int,
    *,
    table: TableEncoder | None = None,
    frame: pd.DataFrame | None = None,
    sensitive_features: Any = None,
    everybody: bool = False,
) -> pd.DataFrame:
    """Columns ``change``, ``reason_1``, ... of all rows; reasons are empty where neither score flags the row.

    With ``everybody`` every row has reasons; the first one says so where nothing stands out. ``rows`` (m, d) are
    encoded, by ``table`` from ``frame`` if these are at hand; ``sensitive_features`` are for detectors that use them.
    """
    before = ensemble.base_scores(rows, sensitive_features=sensitive_features) > ensemble._result.base_threshold
    after = ensemble.outlier_scores(rows, sensitive_features=sensitive_features) > ensemble._result.threshold
    named, texts = np.flatnonzero(before | after | everybody), np.full((len(before), n_reasons), "", dtype=object)
    if len(named):
        few = rows.iloc[named] if hasattr(rows, "iloc") else rows[named]
        found = explain_rows(
            ensemble, few, n_reasons, table=table, frame=None if frame is None else frame.iloc[named],
            sensitive_features=None
            if sensitive_features is None
            else np.asarray(sensitive_features, dtype=object)[named],
        )  # fmt: skip
        for row, at in enumerate(named):
            reasons = found.texts(row)[: found.n_given(row)] or [found.summary(row)]
            texts[at, : len(reasons)] = reasons
    change = np.array(CHANGES, dtype=object)[2 * before.astype(int) + after]
    return pd.DataFrame({"change": change} | {f"reason_{j + 1}": texts[:, j] for j in range(n_reasons)})


def explain_collection(
    ensemble: Any, X: Any, n_reasons: int = 3, *, sensitive_features: Any = None, **settings: Any
) -> Any:
    """Explain a Dask collection lazily: ``ensemble.explain(...).to_frame()`` as a Dask frame."""
    import dask.dataframe as dd

    kinds = {"rank": int, "feature": object, "value": float, "base_part": float, "fair_part": float, "text": object}
    meta = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})
    frames = apply_later(
        lambda X, **groups: ensemble.explain(X, n_reasons, **groups, **settings).to_frame().astype({"value": float}),
        X, sensitive_features, meta,
    )  # fmt: skip
    return dd.from_delayed(frames, meta=meta, verify_meta=False)


def explain_partitions(
    engine: Engine,
    ensemble: Any,
    n_reasons: int,
    to: Path,
    *,
    table: TableEncoder | None = None,
    everybody: bool = False,
) -> int:
    """Write the reasons of an engine's flagged rows, encoded by ``table``, or of all; return how many rows these are.

    ``to`` is a folder, reachable by all workers, for one file per partition, ``reasons-000000.parquet``: ``source`` and
    ``row`` say which row of the input it is; ``change``, ``reason_1``, ...
    """
    work = Staged(lambda part, *_: (part, read_rows(part)), _explain_part)
    return int(engine.reduce(work, int.__add__, engine.share((ensemble, table)), n_reasons, to, everybody))


def _explain_part(
    ready: tuple[Partition, PartitionRows], model: tuple[Any, Any], n_reasons: int, to: Path, everybody: bool
) -> int:
    (part, rows), (ensemble, table) = ready, model
    if not len(rows.X):
        return 0
    names = getattr(ensemble, "feature_names_in_", None)
    X = rows.X if names is None else pd.DataFrame(rows.X, columns=names)
    groups = rows.labels() if rows.groups.labels else None
    reasons = reason_columns(ensemble, X, n_reasons, table=table, sensitive_features=groups, everybody=everybody)
    reasons.insert(0, "row", part.first_row + np.arange(len(reasons)))
    reasons.insert(0, "source", part.source)
    kept = reasons[(reasons["change"] != "not flagged") | everybody]
    target = to / f"reasons-{part.index:06d}.parquet"
    unfinished = target.with_suffix(f".{uuid4().hex}")
    kept.to_parquet(unfinished, index=False)
    unfinished.replace(target)
    return len(kept)
