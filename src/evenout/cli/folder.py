"""``evenout fit`` and ``evenout score`` over a folder or glob of Parquet files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from evenout.cli.messages import one_line, progress

Command = TypeVar("Command", bound=Callable[..., Any])


def is_folder(data: str) -> bool:
    """Whether the argument names many files: a folder, or a pattern."""
    return Path(data).is_dir() or any(mark in data for mark in "*?[")


def engine_options(command: Command) -> Command:
    """Who works on the files of a folder."""
    for option in (
        click.option("--scheduler", metavar="ADDRESS", help="Folders: a Dask scheduler.  [default: this machine]"),
        click.option("--engine", type=click.Choice(["local", "dask"]), default="local", show_default=True,
                     help="Folders: this process, one file part at a time, or Dask workers."),
    ):  # fmt: skip
        command = option(command)
    return command


def fit_folder(
    data: str, out: Path, *, sensitive: str, drop: str, engine: str, scheduler: str | None, quiet: bool,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Fit, write ``scores/*.parquet``, ``model.skops`` and ``summary.json``, and show flag rates by group."""
    from joblib import effective_n_jobs

    from evenout.backends.folders import open_folder
    from evenout.backends.out_of_core import fit_partitions
    from evenout.estimator import FairOutlierEnsemble
    from evenout.output import atomic_folder
    from evenout.persistence import save_model

    if not sensitive:
        raise ValueError(f"{data}: --sensitive is missing; name the column of the protected group")
    columns: dict[str, Any] = {
        "sensitive": sensitive.split(","),
        "exclude": [name for name in drop.split(",") if name],
    }
    workers: dict[str, Any] = {
        "engine": engine,
        "scheduler": scheduler,
        "n_threads": effective_n_jobs(settings["n_jobs"]),
    }
    model = FairOutlierEnsemble(**settings)
    with progress(quiet=quiet) as step, atomic_folder(out) as folder:
        step(f"Fitting over {data}")
        (folder / "scores").mkdir()
        with open_folder(data, **columns, **workers) as source:
            fit_partitions(model, source, reference_size=model.reference_size, scores_to=folder / "scores")
        save_model(model, folder / "model.skops")
        summary = _summary(data, model)
        (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    elif not quiet:
        _show(summary)
        click.echo(one_line(f"Written to {out}: scores, model.skops, summary.json"))


def score_folder(
    model: Path, data: str, out: Path, *, engine: str, scheduler: str | None, n_jobs: int, quiet: bool,
) -> None:  # fmt: skip
    """Write one Parquet file of scores per part of the input into the folder ``out``."""
    from joblib import effective_n_jobs

    from evenout.backends.folders import open_folder
    from evenout.backends.out_of_core import score_partitions
    from evenout.output import atomic_folder
    from evenout.persistence import load_model

    fitted = load_model(model)
    names = list(fitted.feature_names_in_)
    workers: dict[str, Any] = {
        "engine": engine,
        "scheduler": scheduler,
        "n_threads": effective_n_jobs(n_jobs),
    }
    with progress(quiet=quiet) as step, atomic_folder(out) as folder:
        step(f"Scoring {data}")
        with open_folder(data, features=names, **workers) as source:
            rows, flagged = score_partitions(fitted, source, folder).sum(axis=0)
    if not quiet:
        click.echo(one_line(f"{rows:,} rows, {flagged:,} flagged ({flagged / rows:.1%}): {out}"))


def _summary(data: str, model: Any) -> dict[str, Any]:
    path, alpha = model.path_, model.alpha_
    reduction = float(path.reduction(alpha, model.target))
    return {
        "input": data,
        "rows": int(path.cells.fold_counts.sum()),
        "groups": dict(zip(model.group_names_, model.group_counts_.tolist(), strict=True)),
        "reference_rows": len(model.reference_.X),
        "rank_error": model.rank_error_,
        "alpha": alpha,
        "weights": dict(zip(model.detector_names_, model.weights_.tolist(), strict=True)),
        "gap_detected": model.gap_detected_,
        "bias_unseen": [path.target_bias("unseen"), float(path.bias(alpha, "unseen"))],
        "bias_reduction": reduction if np.isfinite(reduction) else None,
        "flag_rates": dict(zip(model.group_names_, model.flag_rates_.tolist(), strict=True)),
    }


def _show(summary: dict[str, Any]) -> None:
    before, after = summary["bias_unseen"]
    click.echo(one_line(f"{summary['input']}: {summary['rows']:,} rows, {len(summary['groups'])} groups"))
    click.echo(f"Group bias, unseen rows: {before:.4f} before, {after:.4f} after")
    for group, (base, fair) in summary["flag_rates"].items():
        click.echo(one_line(f"Flagged: {group}: {base:.1%} before, {fair:.1%} after"))
    rates = np.array(list(summary["flag_rates"].values()))
    base, fair = rates.min(axis=0) / np.maximum(rates.max(axis=0), 1e-300)
    click.echo(f"Lowest / highest flag rate: {base:.2f} before, {fair:.2f} after")
