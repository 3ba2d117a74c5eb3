"""``evenout fit`` and ``evenout repair``: a table in; scores, a model and a summary out."""

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from sklearn.pipeline import Pipeline

from evenout.cli.inputs import (
    FitInputs,
    ensemble_settings,
    is_folder,
    note_doubts,
    offer_bands,
    read_fit_inputs,
    refuse_two_roles,
    require_outside,
    require_sensitive,
    was_given,
)
from evenout.cli.messages import Announce, progress
from evenout.cli.options import OF_GROUPS, split_names
from evenout.cli.show import as_json_text, show_fit, show_repair, summarise_fit, summarise_repair
from evenout.core.registry import needs_labels
from evenout.core.types import FloatArray
from evenout.estimator import FairOutlierEnsemble
from evenout.exceptions import GroupGivenAwayWarning, warn
from evenout.gpu import check_device
from evenout.groups.model import Crossed, read_crossed
from evenout.groups.read import EVERY, GroupProbabilities, read_groups
from evenout.out_of_core.parquet import encoded, learn_table, open_folder
from evenout.persistence import save_model
from evenout.reasons import explain_partitions, reason_columns
from evenout.repair import BlindRepair, ScoreRepair
from evenout.storage.output import atomic_folder, require_apart, write_table
from evenout.tables.columns import NUMBER
from evenout.tables.encoder import TableEncoder
from evenout.tables.files import require_columns, sha256

_RESULTS = ("scores.csv", "model.skops", "summary.json", "report.html")
_PARTS = ("scores/scores-*.parquet", "scores/reasons-*.parquet")
_COLUMNS = ("sensitive", "probable", "label", "given", "drop", "keep", "id_column", "clusters")


def fit_data(
    warned: list[warnings.WarningMessage], *, data: str, out: Path, show_small_cells: bool, updatable: bool,
    reasons: int | None, everybody: bool, engine: str, scheduler: str | None, quiet: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Fit on a file, a folder or a bundled data set; write the results whole, then show them."""
    many, columns = is_folder(data), {name: options.pop(name) for name in _COLUMNS}
    settings = ensemble_settings(options)
    if settings["learn"] and columns["label"] is None:
        raise ValueError(f"{data}: --learn needs --label, the column with 1, 0, and gaps where nobody knows")
    if settings["device"] != "cpu":
        check_device(settings["device"])
    if many:
        require_outside(out, out / "scores", data)
    for name in () if many else _RESULTS:
        require_apart(out / name, Path(data))
    with progress(quiet=quiet) as step, atomic_folder(out, stale=_PARTS if many else "report.html") as folder:
        fit = partial(_fit_folder, engine=engine, scheduler=scheduler) if many else _fit_file
        pipeline, facts, page = fit(folder, data, columns, settings, reasons, step, everybody=everybody)
        save_model(pipeline, folder / "model.skops", updatable=updatable)
        given_away = {
            name: share
            for each in warned
            if isinstance(each.message, GroupGivenAwayWarning)
            for name, share in each.message.fields["shares"].items()
        }
        summary = summarise_fit(pipeline, given_away, sha256(folder / "model.skops"), **facts)
        (folder / "summary.json").write_text(as_json_text(summary) + "\n", encoding="utf-8")
        if page is not None:
            from evenout.report import write_report

            step("Writing the report")
            page |= {"input_sha256": summary["input"]["sha256"], "model_sha256": summary["model"]["sha256"]}
            try:
                write_report(pipeline["ensemble"], folder / "report.html", show_small_cells=show_small_cells, **page)
            except ImportError as missing:
                warn(f"report.html is not written: {missing}")
        files = [name for name in ("scores", *_RESULTS) if (folder / name).exists()]
    if as_json:
        click.echo(as_json_text(summary))
    elif not quiet:
        show_fit(summary, pipeline["ensemble"], str(out), files)


Fitted = tuple[Pipeline, dict[str, Any], dict[str, Any] | None]  # the model, facts for the summary and for the report


def _fit_file(
    folder: Path, data: str, columns: dict[str, Any], settings: dict[str, Any], reasons: int | None, step: Announce,
    *, everybody: bool,
) -> Fitted:  # fmt: skip
    """Fit on a table in memory and write its scores."""
    step(f"Reading {data}")
    inputs = read_fit_inputs(data, **columns, learn=settings["learn"], gaps=needs_labels(settings["fairness"]))
    offer_bands(inputs.sensitive, settings["groups"].continuous)
    step(f"Fitting on {len(inputs.features):,} rows")
    ready = settings["detectors"] == "precomputed"
    table = TableEncoder(keep=list(inputs.features.columns) if ready else inputs.keep).fit(inputs.features)
    for column in table.columns_ if ready else ():
        if getattr(column, "way", "") != NUMBER or getattr(column, "unit", ""):
            raise ValueError(f"column {column.name!r} holds text; scores must be numbers")
    note_doubts(table, labelled=inputs.known is not None)
    model, rows, known = FairOutlierEnsemble(**settings), table.transform(inputs.features), inputs.sensitive
    crossed = read_crossed(known, settings["groups"], len(rows))
    model.fit(rows, sensitive_features=known, clusters=inputs.clusters, given=inputs.given, labels=inputs.known)
    step("Writing results")
    frame = _score_table(inputs, crossed, model.target_, model.outlier_scores_, -model.offset_)
    if reasons is not None:
        why = reason_columns(model, rows, reasons, table=table, frame=inputs.features, everybody=everybody)
        frame = pd.concat([frame, why], axis=1)
    write_table(frame, folder / "scores.csv")
    facts = {
        "source": {"name": inputs.name, "sha256": inputs.sha256},
        "columns": {
            "sensitive": [*map(str, known.names if isinstance(known, GroupProbabilities) else known.columns)],
            "given": [] if inputs.given is None else [*map(str, inputs.given.columns)],
            "clusters": [] if inputs.clusters is None else [str(inputs.clusters.name)],
        },
        "labels": inputs.labels,
        "probable_bound": known.bound() if isinstance(known, GroupProbabilities) else None,
    }
    page = {
        "X": rows, "ids": inputs.ids, "labels": inputs.labels, "sensitive_features": known, "given": inputs.given,
        "title": inputs.name, "source": inputs.name, "table": table, "reasons": reasons or 0,
    }  # fmt: skip
    return Pipeline([("table", table), ("ensemble", model)]), facts, page


def _fit_folder(
    folder: Path, data: str, columns: dict[str, Any], settings: dict[str, Any], reasons: int | None, step: Announce,
    *, everybody: bool, engine: str, scheduler: str | None,
) -> Fitted:  # fmt: skip
    """Fit over Parquet files and write ``scores/*.parquet``."""
    if columns["clusters"] is not None:
        raise ValueError(f"{data}: --clusters needs the rows in memory; give one file, not a folder")
    require_sensitive(data, columns["sensitive"])
    sensitive, given = split_names(columns["sensitive"]), split_names(columns["given"])
    dropped = split_names([*columns["drop"], *filter(None, [columns["id_column"]])])
    label, ready = columns["label"], settings["detectors"] == "precomputed"
    refuse_two_roles({
        "--sensitive": sensitive, "--label": [label] if label else [], "--drop": dropped,
        "--keep": split_names(columns["keep"]),
    })  # fmt: skip
    model, scores = FairOutlierEnsemble(**settings), folder / "scores"
    step(f"Fitting over {data}")
    scores.mkdir()
    with open_folder(
        data, sensitive=sensitive, exclude=dropped, given=given, probable=columns["probable"], label=label,
        engine=engine, scheduler=scheduler, n_threads=effective_n_jobs(settings["n_jobs"]), text=not ready,
    ) as source:  # fmt: skip
        names = [*source.header.columns]
        kept = split_names(columns["keep"], names)
        require_columns(kept, names, where=data, use="--keep")
        table = learn_table(source, names if ready else kept)
        note_doubts(table, labelled=label is not None)
        rows = encoded(source, table)
        model.fit_partitions(rows, scores_to=scores)
        if reasons is not None:
            step("Finding reasons")
            explain_partitions(rows, model, reasons, scores, table=table, everybody=everybody)
    facts = {
        "source": {"name": data, "sha256": None},
        "columns": {"sensitive": sensitive, "given": given, "clusters": []},
    }
    return Pipeline([("table", table), ("ensemble", model)]), facts, None


def repair_score(
    *, file: Path, score: str, sensitive: Sequence[str], aware: bool, out: Path, id_column: str | None,
    label: str | None, given: Sequence[str], drop: Sequence[str], keep: Sequence[str], n_jobs: int, quiet: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Even out the score of a file; write the results whole, then show them."""
    settings, results = ensemble_settings(_options_of_aware(options) if aware else options), _RESULTS[:3]
    for name in results:
        require_apart(out / name, file)
    with progress(quiet=quiet) as step, atomic_folder(out) as folder:
        step(f"Reading {file}")
        inputs = read_fit_inputs(
            str(file), sensitive=sensitive, label=label, id_column=id_column, drop=drop, given=given, keep=keep,
            gaps=needs_labels(settings.get("fairness", "")), score=score,
        )  # fmt: skip
        offer_bands(inputs.sensitive, settings["groups"].continuous)
        step(f"Repairing {len(inputs.features):,} scores")
        model: BlindRepair | ScoreRepair
        table = None
        if aware:
            model = ScoreRepair(**settings)
            after = model.fit_transform(inputs.score, sensitive_features=inputs.sensitive)
        else:
            table = TableEncoder(keep=inputs.keep).fit(inputs.features)
            note_doubts(table, labelled=inputs.known is not None)
            model = BlindRepair(**settings, n_jobs=n_jobs)
            after = model.fit(
                inputs.score, table.transform(inputs.features), sensitive_features=inputs.sensitive,
                given=inputs.given, labels=inputs.known,
            ).scores_  # fmt: skip
        crossed = read_crossed(inputs.sensitive, settings["groups"], len(after))
        write_table(_score_table(inputs, crossed, inputs.score, after, model.threshold_), folder / "scores.csv")
        save_model(model if table is None else Pipeline([("table", table), ("repair", model)]), folder / "model.skops")
        summary = summarise_repair(inputs, model, after, table, crossed.groups.codes)
        summary["model"] = {"file": "model.skops", "sha256": sha256(folder / "model.skops")}
        (folder / "summary.json").write_text(as_json_text(summary) + "\n", encoding="utf-8")
    if as_json:
        click.echo(as_json_text(summary))
    elif not quiet:
        show_repair(summary, str(out), [*results])


def _options_of_aware(options: dict[str, Any]) -> dict[str, Any]:
    """The options that `ScoreRepair` knows; any other is refused if it was given."""
    known = {*ScoreRepair().get_params(), *OF_GROUPS}
    for name in (*options, "given"):  # the repair itself refuses the other options of groups
        if was_given(name) and name not in known - {"bands"} | {"random_state"}:
            raise ValueError(f"--aware does not go with --{name.replace('_', '-')}; leave one of them out")
    return {name: value for name, value in options.items() if name in known}


def _score_table(
    inputs: FitInputs, crossed: Crossed, before: FloatArray | pd.Series, after: FloatArray, threshold: float
) -> pd.DataFrame:
    """Make the table of ``scores.csv``: scores, ranks and flags; higher scores and lower ranks stand out.

    A row has its group also where that has too few rows to be compared, and none where it is not known.
    """
    groups, base, fair = crossed.groups, pd.Series(np.asarray(before)), pd.Series(after)
    every = read_groups(crossed.sensitive, len(base), EVERY)
    compared, named = (np.array([*each.labels, ""], dtype=object)[each.codes] for each in (groups, every))
    return pd.DataFrame(
        {
            "id": inputs.ids,
            "group": np.where(groups.codes >= 0, compared, named),
            "base_score": base,
            "fair_score": fair,
            "base_rank": base.rank(ascending=False, method="min").astype(int),
            "fair_rank": fair.rank(ascending=False, method="min").astype(int),
            "flagged": (fair > threshold).astype(int),
        }
    )
