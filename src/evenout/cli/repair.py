"""``evenout repair``: a file with a finished score in; the repaired score, a model and a summary out."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenout.cli.messages import plain_messages, progress
from evenout.cli.options import (
    NonEmptyPath,
    column_options,
    columns_option,
    common_options,
    estimator_options,
    id_option,
    out_option,
)

if TYPE_CHECKING:
    from evenout.cli.inputs import FitInputs
    from evenout.core.types import FloatArray, IntArray

_SETTINGS = (
    "bias_reduction", "flag_rate_ratio", "confidence", "contamination", "fairness", "groups", "random_state",
)  # fmt: skip
_RESULTS = ("scores.csv", "model.skops", "summary.json")

_EXAMPLES = """
\b
Examples:
  evenout repair vendor.csv --score risk --sensitive sex --id person --out repaired
      the vendor's score, evened out; new rows need no group
  evenout repair vendor.csv --score risk --sensitive sex --flag-rate-ratio 0.9
      until each group is flagged at least 0.9 times as often as any other
  evenout repair vendor.csv --score risk --sensitive sex --aware
      by the group itself, where the law allows that
  evenout score repaired/model.skops new.csv --id person --out new-scores.csv
      repair the scores of new rows
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=NonEmptyPath())
@click.option("--score", required=True, metavar="COL", help="Column with the score, higher = more outlying.")
@columns_option("--sensitive", required=True, help="The protected group; several columns are crossed.")
@click.option(
    "--aware", is_flag=True,
    help="Use the group of each row, of new ones too: all groups get the same distribution of scores, or with "
    "--bias-reduction go that far towards it.",
)  # fmt: skip
@out_option
@id_option
@click.option("--label", metavar="COL", help="Known outliers (1) and inliers (0), for evaluation or for --fairness.")
@columns_option("--given", help="What may justify a difference: compare rows that are alike in these columns.")
@column_options
@estimator_options(*_SETTINGS)
@common_options
@click.pass_context
def repair(
    ctx: click.Context, /, file: Path, score: str, sensitive: Sequence[str], aware: bool, out: Path,
    id_column: str | None, label: str | None, given: Sequence[str], drop: Sequence[str], keep: Sequence[str],
    n_jobs: int, quiet: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Even out the score in FILE (.csv, .csv.gz or .parquet) between groups, whatever model it comes from.

    By default no group is needed for new rows: a multiple of how much a row looks like each group, by its other
    columns, is taken off its score. That is the smallest change that does it, and who looks like a member of a group is
    treated a little like one. With --aware the group of each row is used instead, which some laws forbid.

    DIR gets scores.csv, model.skops (for "evenout score") and summary.json.
    """
    with plain_messages():
        from evenout.cli.inputs import offer_bands, read_fit_inputs
        from evenout.core.registry import needs_labels
        from evenout.storage.output import atomic_folder, require_apart

        settings = _chosen(ctx, settings, aware=aware)
        for name in _RESULTS:
            require_apart(out / name, file)
        with progress(quiet=quiet) as step, atomic_folder(out) as folder:
            step(f"Reading {file}")
            inputs = read_fit_inputs(
                str(file), sensitive=sensitive, label=label, id_column=id_column, drop=drop, given=given, keep=keep,
                gaps=needs_labels(settings.get("fairness", "")), score=score,
            )  # fmt: skip
            offer_bands(inputs.sensitive, settings["groups"].continuous)
            step(f"Repairing {len(inputs.features):,} scores")
            summary = _repair(inputs, settings, n_jobs, folder, aware=aware)
        if as_json:
            click.echo(_json(summary))
        elif not quiet:
            _show(summary, out)


def _chosen(ctx: click.Context, settings: dict[str, Any], *, aware: bool) -> dict[str, Any]:
    """The settings of the repair that was chosen; an option that it does not know is refused if it was given."""
    if not aware:
        return settings
    from evenout.repair import ScoreRepair

    known = ScoreRepair().get_params()
    for name in (*settings, "given", "bands"):  # other options of groups are refused by the repair itself
        given = ctx.get_parameter_source(name) not in (None, click.core.ParameterSource.DEFAULT)
        if given and name != "random_state" and name not in known:
            raise ValueError(f"--aware does not go with --{name.replace('_', '-')}; leave one of them out")
    return {name: value for name, value in settings.items() if name in known}


def _repair(inputs: "FitInputs", settings: dict[str, Any], n_jobs: int, folder: Path, *, aware: bool) -> dict[str, Any]:
    """Fit, write the results into the folder, and sum up."""
    from sklearn.pipeline import Pipeline

    from evenout.cli.fit import score_table
    from evenout.cli.inputs import note_doubts
    from evenout.groups.model import read_crossed
    from evenout.persistence import save_model
    from evenout.repair import BlindRepair, ScoreRepair
    from evenout.storage.output import write_table
    from evenout.tables.encoder import TableEncoder
    from evenout.tables.files import sha256

    assert inputs.score is not None
    model: BlindRepair | ScoreRepair
    if aware:
        model, table = ScoreRepair(**settings), None
        after = model.fit_transform(inputs.score, sensitive_features=inputs.sensitive)
    else:
        table = TableEncoder(keep=inputs.keep).fit(inputs.features)
        note_doubts(table, labelled=inputs.known is not None)
        model, rows = BlindRepair(**settings, n_jobs=n_jobs), table.transform(inputs.features)
        beside = {"sensitive_features": inputs.sensitive, "given": inputs.given, "labels": inputs.known}
        after = model.fit(inputs.score, rows, **beside).scores_
    crossed = read_crossed(inputs.sensitive, settings["groups"], len(after))
    write_table(score_table(inputs, crossed, inputs.score.to_numpy(), after, model.threshold_), folder / "scores.csv")
    save_model(model if table is None else Pipeline([("table", table), ("repair", model)]), folder / "model.skops")
    summary = _summary(inputs, model, after, table, crossed.groups.codes)
    summary["model"] = {"file": "model.skops", "sha256": sha256(folder / "model.skops")}
    (folder / "summary.json").write_text(_json(summary) + "\n", encoding="utf-8")
    return summary


def _json(summary: dict[str, Any]) -> str:
    from evenout.outcome import BeforeAfter
    from evenout.storage.output import finite

    def plain(value: Any) -> Any:
        return finite(vars(value) if isinstance(value, BeforeAfter) else value.tolist())

    return json.dumps(finite(summary), indent=2, ensure_ascii=False, default=plain)


def _summary(inputs: "FitInputs", model: Any, after: "FloatArray", table: Any, codes: "IntArray") -> dict[str, Any]:
    """What came of the repair; biases and flag rates are of unseen rows, where the group is not used."""
    from evenout.cli.show import LIBRARIES, moved, plain_settings
    from evenout.core.flags import flag_rates, rate_ratio
    from evenout.outcome import BeforeAfter
    from evenout.pages import versions
    from evenout.repair import BlindRepair

    base: FloatArray = np.asarray(inputs.score, dtype=float)
    blind, names = isinstance(model, BlindRepair), model.group_names_
    rates = np.column_stack([flag_rates(y, codes, len(names), model.contamination) for y in (base, after)])
    rates = model.flag_rates_ if blind else rates
    ratio = rate_ratio(rates) if len(names) >= 2 else np.full(2, np.nan)
    return {
        "input": {"name": inputs.name, "sha256": inputs.sha256, "rows": len(base)},
        "repair": type(model).__name__,
        "settings": plain_settings(model),
        "columns": {
            "score": model.score_name_,
            "features": [] if table is None else table.columns_used,
            "sensitive": [str(name) for name in getattr(inputs.sensitive, "columns", ())],
            "given": [] if inputs.given is None else [str(name) for name in inputs.given.columns],
        },
        "column_notes": {} if table is None else table.notes_,
        "versions": versions("python", *LIBRARIES),
        "groups": dict(zip(names, model.group_counts_.tolist(), strict=True)),
        "left_out_groups": model.left_out_groups_,
        "gap_detected": bool(model.gap_detected_),
        "bias_reduction": model.bias_reduction_,
        "bias_reduction_interval": model.bias_reduction_interval_ if blind else (np.nan, np.nan),
        "outcome": model.outcome_.to_dict() if blind else None,
        "request_met": bool(model.request_met_) if blind else None,
        "flag_rates": {name: BeforeAfter(*pair) for name, pair in zip(names, rates.tolist(), strict=True)},
        "flag_rate_ratio": BeforeAfter(*ratio.tolist()),
        "flag_rate_ratio_interval": model.flag_rate_ratio_interval_ if blind else (np.nan, np.nan),
        "resemblance": model.lambda_ if blind else {},
        "strength": None if blind else model.strength_,
        **moved(inputs.labels, base, after, model.contamination),
    }


def _show(summary: dict[str, Any], out: Path) -> None:
    """Print the summary as a table and a few sentences."""
    from evenout.cli.show import flag_rows, show_results
    from evenout.outcome import NOBODY, percent, resemblance_words, with_interval

    ratio, (low, high) = summary["flag_rate_ratio"], summary["flag_rate_ratio_interval"]
    rows = flag_rows(summary["groups"], summary["flag_rates"])
    rows.append(("Lowest / highest flag rate", with_interval(ratio.before), with_interval(ratio.after)))
    if len(summary["groups"]) < 2:
        told = [NOBODY]
    elif summary["outcome"] is None and not summary["gap_detected"] and not summary["strength"]:
        told = ["No gap between groups can be told from noise: the scores are as they were."]
    elif summary["outcome"] is None:
        gone = summary["bias_reduction"]
        told = [
            "" if math.isnan(gone) else f"{percent(gone)} of the gap between mean scores is gone on unseen rows.",
            "Flag rates are those of this file. The group is used, and needed for new rows.",
        ]
    else:
        ends = "" if math.isnan(low) else f"; 95% interval of lowest / highest: {low:.2f} to {high:.2f}"
        told = [summary["outcome"]["words"], f"Flag rates are those of rows that the repair has not seen{ends}."]
    replaced = f"{summary['flagged'] - summary['flagged_kept']:,} of {summary['flagged']:,} flagged people replaced"
    price = f"Price: {replaced}, rank correlation with the score {summary['rank_correlation']:.2f}."
    show_results(summary, rows, [*told, resemblance_words(summary["resemblance"]), price], str(out), [*_RESULTS])
