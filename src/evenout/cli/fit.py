"""``evenout fit``: a file in; fair scores, a model, a summary and a report out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.folder import engine_options, fit_folder, is_folder
from evenout.cli.giveaways import Giveaways, noticed_giveaways
from evenout.cli.messages import plain_messages, progress
from evenout.cli.options import (
    NonEmptyPath,
    columns_option,
    common_options,
    estimator_options,
    reasons_option,
)
from evenout.core.exceptions import warn

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.pipeline import Pipeline

    from evenout.cli.inputs import FitInputs
    from evenout.cli.summary import FitSummary
    from evenout.core.types import FloatArray
    from evenout.inputs.grouping import Crossed

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
  model.skops   the model, for "evenout score"; keep it as safe as the data
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
  evenout fit a.csv --sensitive age,sex --continuous age --intersections both
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
@reasons_option
@estimator_options()
@engine_options
@common_options
def fit(
    data: str, sensitive: Sequence[str], probable: bool, out: Path, id_column: str | None, label: str | None,
    given: Sequence[str], clusters: str | None, drop: Sequence[str], keep: Sequence[str],
    show_small_cells: bool, reasons: int | None, everybody: bool, engine: str, scheduler: str | None, n_jobs: int,
    quiet: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Fit on a file or a bundled data set; write the results whole, then show them."""
    with plain_messages():
        if is_folder(data):
            if clusters is not None:
                raise ValueError(f"{data}: --clusters needs the rows in memory; give one file, not a folder")
            fit_folder(
                data, out, sensitive=sensitive, drop=[*drop, *filter(None, [id_column])], keep=keep,
                given=given, probable=probable, label=label, engine=engine, scheduler=scheduler, quiet=quiet,
                as_json=as_json, n_jobs=n_jobs, reasons=reasons, everybody=everybody, **settings,
            )  # fmt: skip
            return
        from evenout.cli.inputs import read_fit_inputs
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
            step(f"Fitting on {len(inputs.features):,} rows")
            with noticed_giveaways() as giveaways:
                pipeline, crossed = _fit(inputs, settings | {"n_jobs": n_jobs})
                giveaways.name(pipeline["table"].get_feature_names_out().tolist())
            step("Writing results")
            summary = _write(folder, inputs, pipeline, crossed, giveaways, reasons, everybody=everybody)
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
    from evenout.inputs.grouping import read_crossed
    from evenout.inputs.table import TableEncoder

    scores = settings["detectors"] == "precomputed"
    table = TableEncoder(keep=list(inputs.features.columns) if scores else inputs.keep).fit(inputs.features)
    if scores:
        refuse_text(table)
    note_doubts(table, labelled=inputs.known is not None)
    ensemble = FairOutlierEnsemble(**settings)
    crossed = read_crossed(inputs.sensitive, ensemble.get_params(deep=False), len(inputs.features))
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
) -> "FitSummary":
    from evenout.cli.summary import summarise
    from evenout.inputs.files import sha256
    from evenout.persistence import save_model
    from evenout.storage.output import write_table

    model = pipeline["ensemble"]
    scores = score_table(inputs, crossed, model.target_, model.outlier_scores_, -model.offset_)
    if reasons is not None:
        from evenout.cli.explain import with_reasons

        scores = with_reasons(
            scores, pipeline["table"], pipeline["ensemble"], inputs.features, reasons, everybody=everybody
        )
    write_table(scores, folder / "scores.csv")
    save_model(pipeline, folder / "model.skops")
    summary = summarise(inputs, pipeline, giveaways.found, sha256(folder / "model.skops"))
    (folder / "summary.json").write_text(summary.to_json() + "\n", encoding="utf-8")
    return summary


def _write_report(
    path: Path, inputs: "FitInputs", pipeline: "Pipeline", summary: "FitSummary", shown: dict[str, Any]
) -> None:
    """The page for colleagues and regulators."""
    from evenout.report import write_report

    write_report(
        pipeline["ensemble"], path, X=pipeline["table"].transform(inputs.features), y=inputs.labels, ids=inputs.ids,
        sensitive_features=inputs.sensitive, given=inputs.given, title=inputs.name, source=inputs.name,
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
    from evenout.inputs.groups import read_groups

    groups, named = crossed.groups, crossed.sensitive
    each = read_groups(named, len(named), min_group_size=1, unknown_groups="ignore")
    compared = np.array([*groups.labels, ""], dtype=object)[groups.codes]
    return np.where(groups.codes >= 0, compared, np.array([*each.labels, ""], dtype=object)[each.codes])
