"""``evenout fit`` and ``evenout score`` over a folder or glob of Parquet files."""

import glob
import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evenout.cli.messages import one_line, progress
from evenout.cli.options import split_names

if TYPE_CHECKING:
    from evenout.cli.outcome import Figures

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
    reasons: int | None = None, everybody: bool = False, **settings: Any,
) -> None:  # fmt: skip
    """Fit, write ``scores/*.parquet``, ``model.skops`` and ``summary.json``, and show flag rates by group."""
    from joblib import effective_n_jobs
    from sklearn.pipeline import Pipeline

    from evenout.cli.giveaways import noticed_giveaways
    from evenout.cli.inputs import note_doubts, refuse_two_roles
    from evenout.cli.outcome import Figures
    from evenout.estimator import FairOutlierEnsemble
    from evenout.inputs.files import require_columns
    from evenout.partitions.columns import encoded, learn_table
    from evenout.partitions.folders import open_folder
    from evenout.persistence import save_model
    from evenout.reasons import explain_partitions
    from evenout.storage.output import atomic_folder

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
        save_model(Pipeline([("table", table), ("ensemble", model)]), folder / "model.skops")
        outcome = Figures.of(model)
        notes = {"features": table.columns_used, "column_notes": table.notes_, "gives_group_away": giveaways.found}
        summary = _summary(data, model, outcome) | notes
        (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    elif not quiet:
        _show(summary, outcome)
        click.echo(one_line(f"Written to {out}: scores, model.skops, summary.json"))


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
    from evenout.partitions.columns import count_unknown, encoded
    from evenout.partitions.folders import open_folder
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


def _summary(data: str, model: Any, outcome: "Figures") -> dict[str, Any]:
    """As plain data; biases and flag rates are pairs, before and after."""
    from evenout.cli.outcome import labels_learnt
    from evenout.storage.output import finite

    found = outcome.to_dict()
    return {
        "input": data,
        "rows": model.n_rows_,
        "reference_rows": len(model.target_),
        "rank_error": model.rank_error_,
        "weights": dict(zip(model.detector_names_, model.weights_.tolist(), strict=True)),
        "resemblance": dict(model.lambda_),
        "labels": finite(labels_learnt(model)),
        **found,
        "bias_unseen": [found["bias_unseen"][when] for when in ("before", "after")],
        "flag_rates": dict(zip(model.group_names_, model.flag_rates_.tolist(), strict=True)),
    }


def _show(summary: dict[str, Any], outcome: "Figures") -> None:
    from evenout.cli.sentences import (
        features_line,
        gap_sentence,
        labels_sentence,
        notes_lines,
        request_sentence,
        rows_words,
        small_groups_sentence,
    )

    click.echo(one_line(f"{summary['input']}: {summary['rows']:,} rows, {len(outcome.groups)} groups"))
    (low, high), (low_after, high_after) = (outcome.bias_unseen_interval[w] for w in ("before", "after"))
    bias, ends = outcome.bias_unseen, "95% interval"
    click.echo(
        f"Bias, {rows_words(outcome)}: {bias.before:.4f} before ({ends} {low:.4f} to {high:.4f}), "
        f"{bias.after:.4f} after ({ends} {low_after:.4f} to {high_after:.4f})"
    )
    ratio, (low, high) = outcome.flag_rate_ratio_unseen, outcome.flag_rate_ratio_unseen_interval
    if not math.isnan(ratio.after):
        click.echo(
            f"Lowest / highest flag rate, {rows_words(outcome)}: {ratio.before:.2f} before, {ratio.after:.2f} after "
            f"({ends} {low:.2f} to {high:.2f})"
        )
    for group, rate in outcome.flag_rates.items():
        click.echo(one_line(f"Flagged in training: {group}: {rate.before:.1%} before, {rate.after:.1%} after"))
    of_outcome = (say(outcome) for say in (small_groups_sentence, gap_sentence, request_sentence))
    click.echo("\n".join(filter(None, [labels_sentence(summary["labels"]), *of_outcome])))
    click.echo(f"Price: correlation with the base score {outcome.correlation:.2f}.")
    for line in [features_line(summary["features"]), *notes_lines(summary["column_notes"])]:
        click.echo(line)
