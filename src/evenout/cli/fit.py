"""evenout fit: a file, a folder or a bundled data set."""

import glob
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import numpy as np

from evenout.cli.messages import one_line, plain_messages, progress
from evenout.cli.options import (
    NonEmptyPath,
    columns_option,
    common_options,
    estimator_options,
    reasons_option,
    split_names,
)
from evenout.exceptions import GroupGivenAwayWarning, warn

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.pipeline import Pipeline

    from evenout.cli.inputs import FitInputs
    from evenout.cli.show import FitSummary
    from evenout.core.types import FloatArray
    from evenout.groups.model import Crossed


class Giveaways:
    """What a fit has warned of; the ensemble itself sees encoded columns, which have no names."""

    def __init__(self) -> None:
        self.names: Sequence[str] = ()
        self.found: dict[str, float] = {}

    def name(self, features: Sequence[str]) -> None:
        """Name the features of the fit."""
        self.names = features


@contextmanager
def noticed_giveaways() -> Iterator[Giveaways]:
    """Keep what the fit inside warns of, and warn by name; other warnings pass."""
    from evenout.groups.giveaways import warn_giveaways

    giveaways = Giveaways()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield giveaways
        finally:
            said = list(caught)
    for each in said:
        if isinstance(each.message, GroupGivenAwayWarning):
            found = each.message.fields["found"]
            giveaways.found = {str(giveaways.names[one.feature]): one.share for one in found}
            warn_giveaways(found, giveaways.names)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


Command = TypeVar("Command", bound=Callable[..., Any])


def is_folder(data: str) -> bool:
    """Whether the argument names many files: a folder, or a pattern."""
    pattern = not Path(data).exists() and any(mark in data for mark in "*?[")
    return pattern or (data != "" and Path(data).is_dir())


def engine_options(command: Command) -> Command:
    """Who works on the files of a folder."""
    for option in (
        click.option("--scheduler", metavar="ADDRESS", help="Folders: a Dask scheduler.  [default: this machine]"),
        click.option("--engine", type=click.Choice(["local", "dask"]), default="local", show_default=True,
                     help="Folders: this process, a file part for each thread, or Dask workers."),
    ):  # fmt: skip
        command = option(command)
    return command


def fit_folder(
    data: str, out: Path, *, sensitive: Sequence[str], drop: Sequence[str], keep: Sequence[str], given: Sequence[str],
    probable: bool, label: str | None, engine: str, scheduler: str | None, quiet: bool, as_json: bool,
    reasons: int | None = None, everybody: bool = False, updatable: bool = False, **settings: Any,
) -> None:  # fmt: skip
    """Fit, write ``scores/*.parquet``, ``model.skops`` and ``summary.json``, and show flag rates by group."""
    from joblib import effective_n_jobs
    from sklearn.pipeline import Pipeline

    from evenout.cli.inputs import note_doubts, refuse_two_roles
    from evenout.cli.show import show_fit, summarise
    from evenout.estimator import FairOutlierEnsemble
    from evenout.out_of_core.parquet import encoded, learn_table, open_folder
    from evenout.persistence import save_model
    from evenout.reasons import explain_partitions
    from evenout.storage.output import atomic_folder
    from evenout.tables.files import require_columns, sha256

    _require_settings(data, out, sensitive, label, settings)
    listed = {"sensitive": sensitive, "exclude": drop, "given": given}
    columns: dict[str, Any] = {use: split_names(names) for use, names in listed.items()}
    roles = {"--sensitive": columns["sensitive"], "--label": [label] if label else [], "--drop": columns["exclude"]}
    refuse_two_roles(roles | {"--keep": split_names(keep)})
    columns |= {"label": label, "probable": probable}
    workers = {"engine": engine, "scheduler": scheduler, "n_threads": effective_n_jobs(settings["n_jobs"])}
    model = FairOutlierEnsemble(**settings)
    with (
        progress(quiet=quiet) as step,
        atomic_folder(out, stale=("scores/scores-*.parquet", "scores/reasons-*.parquet")) as folder,
    ):
        step(f"Fitting over {data}")
        (folder / "scores").mkdir()
        scores = settings["detectors"] == "precomputed"
        with open_folder(data, **columns, **workers, text=not scores) as source, noticed_giveaways() as giveaways:
            names = [*source.header.columns]
            kept = split_names(keep, names)
            require_columns(kept, names, where=data, use="--keep")
            table = learn_table(source, names if scores else kept)
            note_doubts(table, labelled=label is not None)
            giveaways.name(table.get_feature_names_out().tolist())
            model.fit_partitions(encoded(source, table), scores_to=folder / "scores")
            if reasons is not None:
                step("Finding reasons")
                where = folder / "scores"
                explain_partitions(encoded(source, table), model, reasons, where, table=table, everybody=everybody)
        pipeline = Pipeline([("table", table), ("ensemble", model)])
        save_model(pipeline, folder / "model.skops", updatable=updatable)
        roles = {"sensitive": columns["sensitive"], "given": columns["given"], "clusters": []}
        source_name = {"name": data, "sha256": None}
        summary = summarise(pipeline, source_name, roles, giveaways.found, sha256(folder / "model.skops"))
        (folder / "summary.json").write_text(summary.to_json() + "\n", encoding="utf-8")
    if as_json:
        click.echo(summary.to_json())
    elif not quiet:
        show_fit(summary, str(out), ["scores", "model.skops", "summary.json"])


def _require_settings(
    data: str, out: Path, sensitive: Sequence[str], label: str | None, settings: dict[str, Any]
) -> None:
    """Refuse what cannot be fitted before the folder is opened."""
    from evenout.cli.inputs import require_label
    from evenout.gpu import check_device

    if not split_names(sensitive):
        raise ValueError(f"{data}: --sensitive is missing; name the column of the protected group")
    if settings["learn"]:
        require_label(data, label)
    if settings["device"] != "cpu":
        check_device(settings["device"])
    _require_apart(out, out / "scores", data)


def score_folder(
    model: Path, data: str, out: Path, *, device: str, engine: str, scheduler: str | None, n_jobs: int, quiet: bool,
    as_json: bool, reasons: int | None = None, everybody: bool = False, trusted: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write one Parquet file of scores per part of the input into the folder ``out``."""
    from joblib import effective_n_jobs

    from evenout.cli.inputs import feature_names, parts_of, require_ensemble
    from evenout.out_of_core.parquet import count_unknown, encoded, open_folder
    from evenout.persistence import load_model
    from evenout.reasons import explain_partitions
    from evenout.storage.output import atomic_folder

    _require_apart(out, out, data)
    table, ensemble = parts_of(load_model(model, trusted=trusted))
    require_ensemble(ensemble, model, "a folder").set_params(device=device)
    names = feature_names(table or ensemble, model)
    workers: dict[str, Any] = {
        "engine": engine,
        "scheduler": scheduler,
        "n_threads": effective_n_jobs(n_jobs),
    }
    with progress(quiet=quiet) as step, atomic_folder(out, stale=("scores-*.parquet", "reasons-*.parquet")) as folder:
        step(f"Scoring {data}")
        with open_folder(data, features=names, text=table is not None, **workers) as source:
            rows = source if table is None else encoded(source, table)
            n_rows, flagged = ensemble.score_partitions(rows, folder).sum(axis=0).tolist()
            if not n_rows:
                raise ValueError(f"{data} has no rows in any file")
            unknown = {} if table is None else count_unknown(source, table)
            if reasons is not None:
                step("Finding reasons")
                explain_partitions(rows, ensemble, reasons, folder, table=table, everybody=everybody)
    for name, count in unknown.items():
        warnings.warn(
            f"column {name!r}: {count} of {n_rows} rows have text that the training table did not have; "
            "it counts as none of the known values",
            stacklevel=2,
        )
    if as_json:
        found = {"rows": n_rows, "flagged": flagged, "unknown_values": unknown}
        click.echo(json.dumps({"input": data, **found, "out": str(out)}, indent=2, ensure_ascii=False))
    elif not quiet:
        click.echo(one_line(f"{n_rows:,} rows, {flagged:,} flagged ({flagged / n_rows:.1%}): {out}"))


def _require_apart(out: Path, results: Path, data: str) -> None:
    """Refuse to write into the folder that is read, where results would replace rows or be read as rows next time."""
    pattern = str(Path(glob.escape(data), "**", "*.parquet")) if Path(data).is_dir() else data
    sources = {os.path.realpath(Path(file).parent) for file in glob.glob(pattern, recursive=True)}  # noqa: PTH207
    nested = Path(data).is_dir() and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(data))
    if sources and (nested or os.path.realpath(results) in sources):
        raise ValueError(f"--out {out} lies in the folder of the rows, {data}; choose a place outside of it")


_RESULTS = ("scores.csv", "model.skops", "summary.json", "report.html")

_HELP = """\
Fit a fair outlier ensemble on DATA, and show what fairness costs.

DATA is a file (.csv, .csv.gz or .parquet), a folder or a pattern of Parquet files ("data/*.parquet"), of any size, or
a bundled data set: communities, german, annthyroid, cardio, vowels, breastw, mammography, pima or credit. Files and
folders need --sensitive. Every column that has no role is a feature: text is one-hot encoded, gaps are filled (numbers
by the median, text as "missing"), dates become days, month and weekday. Columns of one value, and those that only tell
rows apart, are left out. What was done with each column is printed. The protected columns, the label, the id and the
clusters are never features.

\b
DIR gets
  scores.csv    id, group, base and fair score, their ranks, flagged or not;
                with --reasons, why
  model.skops   the model, for "evenout score"; it holds feature values: keep
                it as safe as the data
  summary.json  settings, versions, hashes, bias, flag rates, weights
  report.html   a page with a slider over every trade-off (extra: pages)
Over a folder: scores/*.parquet in place of scores.csv, and no report;
reasons of flagged rows are in scores/reasons-*.parquet.

In CSV, text that a spreadsheet would run as a formula has a single quote put before it; to undo, take one leading
quote away before = + - @ tab or line break.
"""

_EXAMPLES = """
\b
Examples:
  evenout fit credit
      fair scores for the bundled card clients, by education
  evenout fit credit --sensitive age,sex
      by groups of age and sex together
  evenout fit people.csv --sensitive sex --id person --drop notes --out fair
      your own file
  evenout fit people.parquet --sensitive sex --flag-rate-ratio 0.9
      until each group is flagged at least 0.9 times as often as any other
  evenout fit visits.csv --sensitive sex --clusters person --contamination 200
      several rows of one person, and time to look at 200 rows
  evenout fit people.csv --sensitive sex --given product,region
      only differences among people with the same product and region count
  evenout fit a.csv --sensitive age,sex --continuous age --cross both
      age as a number and sex, each by itself and crossed
  evenout fit a.csv --sensitive sex --label x --fairness equal_false_alarms
      people who are known to be innocent score alike
  evenout fit people.csv --sensitive sex --confidence 0.95
      until 80% of the gap is gone on unseen rows with that confidence
  evenout fit people.csv --sensitive sex --reasons 3
      three reasons in words for each person who is flagged
  evenout fit people.csv.gz --sensitive sex --label fraud --json
      also AUC against known cases; figures as JSON
"""


@click.command(help=_HELP, epilog=_EXAMPLES, short_help="Fit a fair model on a file or a bundled data set.")
@click.argument("data")
@columns_option("--sensitive", help="The protected group; several columns are crossed.")
@click.option(
    "--probable", is_flag=True,
    help="The protected columns are probabilities, one column for each group.",
)  # fmt: skip
@click.option(
    "--out", type=NonEmptyPath(), default=Path("evenout-out"), show_default=True, metavar="DIR",
    help="Folder for the results.",
)  # fmt: skip
@click.option("--id", "id_column", metavar="COL", help="Column that tells rows apart.  [default: row number from 1]")
@click.option(
    "--label",
    metavar="COL",
    help="Known outliers (1) and inliers (0): for evaluation, for notions of fairness that need them, or with --learn.",
)
@columns_option(
    "--given",
    help="What may justify a difference: compare rows that are alike in these columns. They stay features.",
)
@click.option(
    "--clusters", metavar="COL", help="Rows of one value here belong together, such as several of one person."
)
@columns_option("--drop", help="Columns to leave out.")
@columns_option("--keep", help="Features even if they look like ids.")
@click.option(
    "--show-small-cells",
    is_flag=True,
    help="Report: also show counts of fewer than 10 people, and the group beside each id.",
)
@click.option(
    "--updatable", is_flag=True,
    help="Keep the group of every row in model.skops, for updates in Python, other flag rates, and 'evenout watch'.",
)  # fmt: skip
@reasons_option
@estimator_options()
@engine_options
@common_options
def fit(
    data: str, sensitive: Sequence[str], probable: bool, out: Path, id_column: str | None, label: str | None,
    given: Sequence[str], clusters: str | None, drop: Sequence[str], keep: Sequence[str],
    show_small_cells: bool, updatable: bool, reasons: int | None, everybody: bool, engine: str,
    scheduler: str | None, n_jobs: int, quiet: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Fit on a file or a bundled data set; write the results whole, then show them."""
    with plain_messages():
        if is_folder(data):
            if clusters is not None:
                raise ValueError(f"{data}: --clusters needs the rows in memory; give one file, not a folder")
            fit_folder(
                data, out, sensitive=sensitive, drop=[*drop, *filter(None, [id_column])], keep=keep,
                given=given, probable=probable, label=label, engine=engine, scheduler=scheduler, quiet=quiet,
                as_json=as_json, n_jobs=n_jobs, reasons=reasons, everybody=everybody, updatable=updatable, **settings,
            )  # fmt: skip
            return
        from evenout.cli.inputs import offer_bands, read_fit_inputs
        from evenout.cli.show import show_fit
        from evenout.core.registry import needs_labels
        from evenout.storage.output import atomic_folder, require_apart

        for name in _RESULTS:
            require_apart(out / name, Path(data))
        with progress(quiet=quiet) as step, atomic_folder(out, stale="report.html") as folder:
            step(f"Reading {data}")
            inputs = read_fit_inputs(
                data, sensitive=sensitive, label=label, id_column=id_column, clusters=clusters, drop=drop, given=given,
                keep=keep, probable=probable, learn=settings["learn"], gaps=needs_labels(settings["fairness"]),
            )  # fmt: skip
            offer_bands(inputs.sensitive, settings["groups"].continuous)
            step(f"Fitting on {len(inputs.features):,} rows")
            with noticed_giveaways() as giveaways:
                pipeline, crossed = _fit(inputs, settings | {"n_jobs": n_jobs})
                giveaways.name(pipeline["table"].get_feature_names_out().tolist())
            step("Writing results")
            told = {"everybody": everybody, "updatable": updatable}
            summary = _write(folder, inputs, pipeline, crossed, giveaways, reasons, **told)
            step("Writing the report")
            try:
                shown = {"show_small_cells": show_small_cells, "reasons": reasons or 0}
                _write_report(folder / "report.html", inputs, pipeline, summary, shown)
            except ImportError as missing:
                warn(f"report.html is not written: {missing}")
            files = [name for name in _RESULTS if (folder / name).exists()]
        if as_json:
            click.echo(summary.to_json())
        elif not quiet:
            show_fit(summary, str(out), files)


def _fit(inputs: "FitInputs", settings: dict[str, Any]) -> "tuple[Pipeline, Crossed]":
    """Encoder and ensemble, fitted one after the other, and the groups by which they were fitted."""
    from sklearn.pipeline import Pipeline

    from evenout.cli.inputs import note_doubts, refuse_text
    from evenout.estimator import FairOutlierEnsemble
    from evenout.groups.model import read_crossed
    from evenout.tables.encoder import TableEncoder

    scores = settings["detectors"] == "precomputed"
    table = TableEncoder(keep=list(inputs.features.columns) if scores else inputs.keep).fit(inputs.features)
    if scores:
        refuse_text(table)
    note_doubts(table, labelled=inputs.known is not None)
    ensemble = FairOutlierEnsemble(**settings)
    crossed = read_crossed(inputs.sensitive, settings["groups"], len(inputs.features))
    rows = table.transform(inputs.features)
    beside = {"clusters": inputs.clusters, "given": inputs.given, "labels": inputs.known}
    ensemble.fit(rows, sensitive_features=inputs.sensitive, **beside)
    return Pipeline([("table", table), ("ensemble", ensemble)]), crossed


def _write(
    folder: Path,
    inputs: "FitInputs",
    pipeline: "Pipeline",
    crossed: "Crossed",
    giveaways: Giveaways,
    reasons: int | None,
    *,
    everybody: bool,
    updatable: bool,
) -> "FitSummary":
    from evenout.cli.show import summarise
    from evenout.groups.read import GroupProbabilities
    from evenout.persistence import save_model
    from evenout.storage.output import write_table
    from evenout.tables.files import sha256

    model = pipeline["ensemble"]
    scores = score_table(inputs, crossed, model.target_, model.outlier_scores_, -model.offset_)
    if reasons is not None:
        from evenout.cli.score import with_reasons

        scores = with_reasons(
            scores, pipeline["table"], pipeline["ensemble"], inputs.features, reasons, everybody=everybody
        )
    write_table(scores, folder / "scores.csv")
    save_model(pipeline, folder / "model.skops", updatable=updatable)
    given, clusters, probable = inputs.given, inputs.clusters, None
    if isinstance(inputs.sensitive, GroupProbabilities):
        probable, sensitive = inputs.sensitive.bound(), [*inputs.sensitive.names]
    else:
        sensitive = [*map(str, inputs.sensitive.columns)]
    columns = {
        "sensitive": sensitive,
        "given": [] if given is None else [*map(str, given.columns)],
        "clusters": [] if clusters is None else [str(clusters.name)],
    }
    summary = summarise(
        pipeline, {"name": inputs.name, "sha256": inputs.sha256}, columns, giveaways.found,
        sha256(folder / "model.skops"), labels=inputs.labels, probable_bound=probable,
    )  # fmt: skip
    (folder / "summary.json").write_text(summary.to_json() + "\n", encoding="utf-8")
    return summary


def _write_report(
    path: Path, inputs: "FitInputs", pipeline: "Pipeline", summary: "FitSummary", shown: dict[str, Any]
) -> None:
    """The page for colleagues and regulators."""
    from evenout.report import write_report

    write_report(
        pipeline["ensemble"], path, X=pipeline["table"].transform(inputs.features), ids=inputs.ids,
        labels=inputs.labels, sensitive_features=inputs.sensitive, given=inputs.given, title=inputs.name,
        source=inputs.name,
        table=pipeline["table"], input_sha256=summary.input["sha256"], model_sha256=summary.model["sha256"], **shown,
    )  # fmt: skip


def score_table(
    inputs: "FitInputs", crossed: "Crossed", before: "FloatArray", after: "FloatArray", threshold: float
) -> "pd.DataFrame":
    """What ``scores.csv`` holds: scores, ranks and flags of all rows; higher scores and lower ranks stand out."""
    import pandas as pd

    base, fair = pd.Series(before), pd.Series(after)
    return pd.DataFrame(
        {
            "id": inputs.ids,
            "group": _group_names(crossed),
            "base_score": base,
            "fair_score": fair,
            "base_rank": base.rank(ascending=False, method="min").astype(int),
            "fair_rank": fair.rank(ascending=False, method="min").astype(int),
            "flagged": (fair > threshold).astype(int),
        }
    )


def _group_names(crossed: "Crossed") -> Any:
    """The group of each row, also where it has too few rows to be compared; empty where it is not known."""
    from evenout.groups.read import EVERY, read_groups

    groups, named = crossed.groups, crossed.sensitive
    each = read_groups(named, len(named), EVERY)
    compared = np.array([*groups.labels, ""], dtype=object)[groups.codes]
    return np.where(groups.codes >= 0, compared, np.array([*each.labels, ""], dtype=object)[each.codes])
