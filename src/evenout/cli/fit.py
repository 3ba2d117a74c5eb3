"""evenout fit: a file, a folder or a bundled data set."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.messages import Announce, plain_messages, progress
from evenout.cli.options import (
    Sectioned,
    column_options,
    columns_option,
    common_options,
    engine_options,
    estimator_options,
    id_option,
    out_option,
    reasons_option,
    sensitive_option,
    split_names,
)
from evenout.exceptions import GroupGivenAwayWarning, warn

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.pipeline import Pipeline

    from evenout.cli.inputs import FitInputs
    from evenout.core.types import FloatArray
    from evenout.groups.model import Crossed

_RESULTS = ("scores.csv", "model.skops", "summary.json", "report.html")
_PARTS = ("scores/scores-*.parquet", "scores/reasons-*.parquet")

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


@click.command(cls=Sectioned, help=_HELP, epilog=_EXAMPLES)
@click.argument("data")
@sensitive_option
@click.option("--probable", is_flag=True, help="The protected columns are probabilities, one column for each group.")
@out_option
@id_option
@click.option(
    "--label", metavar="COL",
    help="Known outliers (1) and inliers (0): for evaluation, for notions of fairness that need them, or with --learn.",
)  # fmt: skip
@columns_option(
    "--given",
    help="What may justify a difference: compare rows that are alike in these columns. They stay features.",
)
@click.option(
    "--clusters", metavar="COL", help="Rows of one value here belong together, such as several of one person."
)
@column_options
@click.option(
    "--show-small-cells", is_flag=True,
    help="Report: also show counts of fewer than 10 people, and the group beside each id.",
)  # fmt: skip
@click.option(
    "--updatable",
    is_flag=True,
    help="Keep the group of every row in model.skops, for updates in Python, other flag rates, and 'evenout watch'.",
)
@reasons_option
@estimator_options()
@engine_options
@common_options
def fit(
    data: str, out: Path, show_small_cells: bool, updatable: bool, reasons: int | None, everybody: bool, engine: str,
    scheduler: str | None, quiet: bool, as_json: bool, sensitive: Sequence[str], probable: bool, label: str | None,
    given: Sequence[str], drop: Sequence[str], keep: Sequence[str], id_column: str | None, clusters: str | None,
    **settings: Any,
) -> None:  # fmt: skip
    """Fit on a file, a folder or a bundled data set; write the results whole, then show them."""
    with plain_messages() as said:
        from evenout.cli.inputs import is_folder, require_outside
        from evenout.cli.show import show_fit, summarise
        from evenout.gpu import check_device
        from evenout.persistence import save_model
        from evenout.storage.output import atomic_folder, require_apart
        from evenout.tables.files import sha256

        many = is_folder(data)
        if settings["learn"] and label is None:
            raise ValueError(f"{data}: --learn needs --label, the column with 1, 0, and gaps where nobody knows")
        if settings["device"] != "cpu":
            check_device(settings["device"])
        columns: dict[str, Any] = {"sensitive": sensitive, "probable": probable, "label": label, "given": given}
        columns |= {"drop": drop, "keep": keep, "id_column": id_column, "clusters": clusters}
        told = {"reasons": reasons, "everybody": everybody}
        if many:
            require_outside(out, out / "scores", data)
        for name in () if many else _RESULTS:
            require_apart(out / name, Path(data))
        with progress(quiet=quiet) as step, atomic_folder(out, stale=_PARTS if many else "report.html") as folder:
            inputs = None
            if many:
                workers = {"engine": engine, "scheduler": scheduler}
                pipeline, facts = _fit_folder(folder / "scores", data, columns, settings, workers, told, step)
            else:
                pipeline, facts, inputs = _fit_file(folder / "scores.csv", data, columns, settings, told, step)
            save_model(pipeline, folder / "model.skops", updatable=updatable)
            warned = [each.message for each in said if isinstance(each.message, GroupGivenAwayWarning)]
            given_away = {name: share for warning in warned for name, share in warning.fields["shares"].items()}
            summary = summarise(pipeline, given_away, sha256(folder / "model.skops"), **facts)
            (folder / "summary.json").write_text(summary.to_json() + "\n", encoding="utf-8")
            if inputs is not None:
                step("Writing the report")
                hashes = {"input_sha256": summary.input["sha256"], "model_sha256": summary.model["sha256"]}
                _write_report(folder, inputs, pipeline, reasons or 0, show_small_cells=show_small_cells, **hashes)
            files = [name for name in ("scores", *_RESULTS) if (folder / name).exists()]
        if as_json:
            click.echo(summary.to_json())
        elif not quiet:
            show_fit(summary, str(out), files)


def _fit_file(
    scores: Path, data: str, columns: dict[str, Any], settings: dict[str, Any], told: dict[str, Any], step: Announce
) -> "tuple[Pipeline, dict[str, Any], FitInputs]":
    """Fit on a table in memory and write its scores; the model, facts for the summary, and the table."""
    from sklearn.pipeline import Pipeline

    from evenout.cli.inputs import note_doubts, offer_bands, read_fit_inputs, refuse_text
    from evenout.cli.score import with_reasons
    from evenout.core.registry import needs_labels
    from evenout.estimator import FairOutlierEnsemble
    from evenout.groups.model import read_crossed
    from evenout.groups.read import GroupProbabilities
    from evenout.storage.output import write_table
    from evenout.tables.encoder import TableEncoder

    step(f"Reading {data}")
    inputs = read_fit_inputs(data, **columns, learn=settings["learn"], gaps=needs_labels(settings["fairness"]))
    offer_bands(inputs.sensitive, settings["groups"].continuous)
    step(f"Fitting on {len(inputs.features):,} rows")
    ready = settings["detectors"] == "precomputed"
    table = TableEncoder(keep=list(inputs.features.columns) if ready else inputs.keep).fit(inputs.features)
    if ready:
        refuse_text(table)
    note_doubts(table, labelled=inputs.known is not None)
    model = FairOutlierEnsemble(**settings)
    crossed = read_crossed(inputs.sensitive, settings["groups"], len(inputs.features))
    beside = {"clusters": inputs.clusters, "given": inputs.given, "labels": inputs.known}
    model.fit(table.transform(inputs.features), sensitive_features=inputs.sensitive, **beside)
    step("Writing results")
    frame = score_table(inputs, crossed, model.target_, model.outlier_scores_, -model.offset_)
    if told["reasons"] is not None:
        frame = with_reasons(frame, table, model, inputs.features, **told)
    write_table(frame, scores)
    known: Any = inputs.sensitive
    probable = isinstance(known, GroupProbabilities)
    facts = {
        "source": {"name": inputs.name, "sha256": inputs.sha256},
        "columns": {
            "sensitive": [*map(str, known.names if probable else known.columns)],
            "given": [] if inputs.given is None else [*map(str, inputs.given.columns)],
            "clusters": [] if inputs.clusters is None else [str(inputs.clusters.name)],
        },
        "labels": inputs.labels,
        "probable_bound": known.bound() if probable else None,
    }
    return Pipeline([("table", table), ("ensemble", model)]), facts, inputs


def _fit_folder(
    scores: Path, data: str, columns: dict[str, Any], settings: dict[str, Any], workers: dict[str, Any],
    told: dict[str, Any], step: Announce,
) -> "tuple[Pipeline, dict[str, Any]]":  # fmt: skip
    """Fit over Parquet files and write ``scores/*.parquet``; the model and facts for the summary."""
    from joblib import effective_n_jobs
    from sklearn.pipeline import Pipeline

    from evenout.cli.inputs import note_doubts, refuse_two_roles, require_sensitive
    from evenout.estimator import FairOutlierEnsemble
    from evenout.out_of_core.parquet import encoded, learn_table, open_folder
    from evenout.reasons import explain_partitions
    from evenout.tables.files import require_columns

    if columns["clusters"] is not None:
        raise ValueError(f"{data}: --clusters needs the rows in memory; give one file, not a folder")
    require_sensitive(data, columns["sensitive"])
    sensitive, given = split_names(columns["sensitive"]), split_names(columns["given"])
    dropped = split_names([*columns["drop"], *filter(None, [columns["id_column"]])])
    label, ready = columns["label"], settings["detectors"] == "precomputed"
    roles = {"--sensitive": sensitive, "--label": [label] if label else [], "--drop": dropped}
    refuse_two_roles(roles | {"--keep": split_names(columns["keep"])})
    read = {"sensitive": sensitive, "exclude": dropped, "given": given, "probable": columns["probable"]}
    workers |= {"n_threads": effective_n_jobs(settings["n_jobs"])}
    model = FairOutlierEnsemble(**settings)
    step(f"Fitting over {data}")
    scores.mkdir()
    with open_folder(data, **read, label=label, **workers, text=not ready) as source:
        names = [*source.header.columns]
        kept = split_names(columns["keep"], names)
        require_columns(kept, names, where=data, use="--keep")
        table = learn_table(source, names if ready else kept)
        note_doubts(table, labelled=label is not None)
        rows = encoded(source, table)
        model.fit_partitions(rows, scores_to=scores)
        if told["reasons"] is not None:
            step("Finding reasons")
            explain_partitions(rows, model, told["reasons"], scores, table=table, everybody=told["everybody"])
    facts = {
        "source": {"name": data, "sha256": None},
        "columns": {"sensitive": sensitive, "given": given, "clusters": []},
    }
    return Pipeline([("table", table), ("ensemble", model)]), facts


def _write_report(folder: Path, inputs: "FitInputs", pipeline: "Pipeline", reasons: int, **shown: Any) -> None:
    """Write the page for colleagues and regulators; without the extra that it needs, a note says so."""
    from evenout.report import write_report

    try:
        write_report(
            pipeline["ensemble"], folder / "report.html", X=pipeline["table"].transform(inputs.features),
            ids=inputs.ids, labels=inputs.labels, sensitive_features=inputs.sensitive, given=inputs.given,
            title=inputs.name, source=inputs.name, table=pipeline["table"], reasons=reasons, **shown,
        )  # fmt: skip
    except ImportError as missing:
        warn(f"report.html is not written: {missing}")


def score_table(
    inputs: "FitInputs", crossed: "Crossed", before: "FloatArray", after: "FloatArray", threshold: float
) -> "pd.DataFrame":
    """What ``scores.csv`` holds: scores, ranks and flags of all rows; higher scores and lower ranks stand out.

    A row has its group also where that has too few rows to be compared, and none where it is not known.
    """
    import pandas as pd

    from evenout.groups.read import EVERY, read_groups

    groups, base, fair = crossed.groups, pd.Series(before), pd.Series(after)
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
