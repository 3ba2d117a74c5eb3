"""The summary of a fit or a repair, and what the command line prints about it."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from scipy.stats import spearmanr
from sklearn.pipeline import Pipeline

from evenout.cli.inputs import FitInputs
from evenout.cli.messages import one_line
from evenout.core.flags import flag_rates, flag_threshold, rate_ratio
from evenout.core.notions import Notion
from evenout.core.registry import NOTIONS
from evenout.core.types import FloatArray, IntArray
from evenout.estimator import FairOutlierEnsemble
from evenout.fitting.choose import DEFAULT_REDUCTION
from evenout.groups.rules import Groups
from evenout.metrics import average_precision, read_labels, roc_auc
from evenout.outcome import (
    NOBODY,
    BeforeAfter,
    Figures,
    compared_words,
    detection_verdict,
    labels_learnt,
    labels_words,
    percent,
    probable_words,
    resemblance_words,
    short_name,
    with_interval,
)
from evenout.pages import versions
from evenout.repair import BlindRepair, ScoreRepair
from evenout.storage.output import finite
from evenout.tables.encoder import TableEncoder

if TYPE_CHECKING:
    from evenout.reproduce import Results

SCHEMA = 1  # of summary.json, counted up when a key changes its meaning or goes
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow", "skops")
_FEATURES = 12  # named at most
_EVEN = 0.8  # a ratio of flag rates below calls for more
_NOTES = 20  # columns whose notes are printed
_GROUPS = 12  # shown; the others are in summary.json
_NUMBERS = 36  # columns of a terminal that the two columns of numbers may take


def as_json_text(summary: dict[str, Any]) -> str:
    """One JSON object; a number that does not exist is null."""
    return json.dumps(
        finite(summary), indent=2, ensure_ascii=False,
        default=lambda value: finite(vars(value) if isinstance(value, BeforeAfter) else value.tolist()),
    )  # fmt: skip


def summarise_fit(
    pipeline: Pipeline, gives_group_away: dict[str, float], model_sha256: str, *, source: dict[str, Any],
    columns: dict[str, list[str]], labels: Any = None, probable_bound: dict[str, float] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Collect the figures of a fitted pipeline of table and ensemble, as ``docs/command-line.md`` lists them.

    ``source`` has the name and the SHA-256 of what was read, and ``columns`` those that are no features, by role.
    """
    model: FairOutlierEnsemble = pipeline["ensemble"]
    base, fair, figures = model.target_, model.outlier_scores_, Figures.of(model)
    return {
        "schema": SCHEMA,
        "input": {**source, "rows": model.n_rows_, "reference_rows": len(base)},
        "model": {"file": "model.skops", "sha256": model_sha256},
        "settings": _plain_settings(model),
        "columns": {"features": pipeline["table"].columns_used, **columns},
        "column_notes": pipeline["table"].notes_,
        "gives_group_away": gives_group_away,
        "versions": versions("python", *_LIBRARIES),
        "weights": dict(zip(model.detector_names_, model.weights_.tolist(), strict=True)),
        **_moved(base, fair, model.contamination),
        "resemblance": dict(model.lambda_),
        **_detection(labels, base, fair, model.contamination),
        "labels": labels_learnt(model),
        "attribute_bias": {name: (bias.before, bias.after) for name, bias in model.attribute_bias_.items()},
        "probable_bound": probable_bound,
        "rank_error": model.rank_error_,
        **asdict(figures),
        "outcome": figures.outcome.to_dict(),
    }


def summarise_repair(
    inputs: FitInputs, model: BlindRepair | ScoreRepair, after: FloatArray, table: TableEncoder | None, codes: IntArray
) -> dict[str, Any]:
    """Collect the figures of a repair; biases and flag rates are of unseen rows, where the group is not used."""
    base: FloatArray = np.asarray(inputs.score, dtype=float)
    blind, names = isinstance(model, BlindRepair), model.group_names_
    rates = np.column_stack([flag_rates(y, codes, len(names), model.contamination) for y in (base, after)])
    rates = model.flag_rates_ if blind else rates
    return {
        "input": {"name": inputs.name, "sha256": inputs.sha256, "rows": len(base)},
        "repair": type(model).__name__,
        "settings": _plain_settings(model),
        "columns": {
            "score": model.score_name_,
            "features": [] if table is None else table.columns_used,
            "sensitive": [str(name) for name in getattr(inputs.sensitive, "columns", ())],
            "given": [] if inputs.given is None else [str(name) for name in inputs.given.columns],
        },
        "column_notes": {} if table is None else table.notes_,
        "versions": versions("python", *_LIBRARIES),
        "groups": dict(zip(names, model.group_counts_.tolist(), strict=True)),
        "left_out_groups": model.left_out_groups_,
        "gap_detected": bool(model.gap_detected_),
        "bias_reduction": model.bias_reduction_,
        "bias_reduction_interval": model.bias_reduction_interval_ if blind else (np.nan, np.nan),
        "outcome": model.outcome_.to_dict() if blind else None,
        "request_met": bool(model.request_met_) if blind else None,
        "flag_rates": {name: BeforeAfter(*pair) for name, pair in zip(names, rates.tolist(), strict=True)},
        "flag_rate_ratio": BeforeAfter(*(rate_ratio(rates).tolist() if len(names) >= 2 else (np.nan, np.nan))),
        "flag_rate_ratio_interval": model.flag_rate_ratio_interval_ if blind else (np.nan, np.nan),
        "resemblance": model.lambda_ if blind else {},
        "strength": None if blind else model.strength_,
        **_moved(base, after, model.contamination),
        **_detection(inputs.labels, base, after, model.contamination),
    }


def _plain_settings(model: Any) -> dict[str, Any]:
    """The parameters of an estimator; those of an object in it as a dict."""
    settings = model.get_params(deep=False)
    if isinstance(settings.get("fairness"), dict):  # a notion may be an object
        settings["fairness"] = {
            each if isinstance(each, str) else repr(each): weight for each, weight in settings["fairness"].items()
        }
    return {name: _plain_settings(value) if hasattr(value, "get_params") else value for name, value in settings.items()}


def _moved(base: FloatArray, fair: FloatArray, contamination: float) -> dict[str, Any]:
    """Distance of the fair score from the base score, in ranks and in flags."""
    before, after = (scores > flag_threshold(scores, contamination) for scores in (base, fair))
    varies = np.ptp(base) > 0 and np.ptp(fair) > 0  # or there is no correlation
    return {
        "rank_correlation": float(spearmanr(base, fair).statistic) if varies else float("nan"),
        "flagged": int(after.sum()),
        "flagged_kept": int((before & after).sum()),
    }


def _detection(labels: Any, base: FloatArray, fair: FloatArray, contamination: float) -> dict[str, BeforeAfter | None]:
    """Measures of how well known outliers are found, before and after; None without labels."""

    def precision(outlier: Any, scores: FloatArray) -> float:
        flagged = scores > flag_threshold(scores, contamination)
        return float(read_labels(outlier, len(flagged))[flagged].mean()) if flagged.any() else float("nan")

    measures = {"auc": roc_auc, "average_precision": average_precision, "precision_flagged": precision}
    return {
        name: None if labels is None else BeforeAfter(*(float(measure(labels, scores)) for scores in (base, fair)))
        for name, measure in measures.items()
    }


def show_fit(summary: dict[str, Any], model: FairOutlierEnsemble, out: str, files: list[str]) -> None:
    """Show what was uneven and what is now, what speaks against it, what it cost, and what to try next."""
    figures, auc, settings, columns = Figures.of(model), summary["auc"], summary["settings"], summary["columns"]
    bias = (NOTIONS[figures.notions[0]] if len(figures.notions) == 1 else Notion).label
    where = "unseen rows" if figures.unseen_estimate == "everything refitted" else "unseen by the weights"
    shown, ends = figures.bias_shown, figures.bias_unseen_interval
    training, ratio = figures.outcome.judged_on == "training", figures.flag_rate_ratio_unseen
    even = with_interval(ratio.after, figures.flag_rate_ratio_unseen_interval)
    rows = [
        (f"{bias}, {where}", with_interval(shown.before, ends["before"]), with_interval(shown.after, ends["after"])),
        *([_row(f"{bias}, training rows", figures.bias_training)] if training else []),
        (f"Lowest / highest flag rate, {where}", with_interval(ratio.before), even),
        *_flag_rows(figures.groups, figures.flag_rates, " in training"),
    ]
    biases = [f"{name} {before:.2f}, after {after:.2f}" for name, (before, after) in summary["attribute_bias"].items()]
    bound = "" if summary["probable_bound"] is None else probable_words(summary["probable_bound"])
    lost = "" if auc is None else f", AUC {round(auc.after - auc.before, 2) + 0.0:+.2f}"
    sentences = [
        figures.flags_verdict,
        "" if auc is None else detection_verdict(auc.before, auc.after),
        labels_words(summary["labels"]),
        *compared_words(figures.notions, Groups(**settings["groups"]), columns["sensitive"], columns["given"]),
        f"Bias of each attribute: {'; '.join(biases)}." if len(biases) > 1 else "",
        f"{bound[0].upper()}{bound[1:]}. Flag rates count each row by its probabilities." if bound else "",
        *figures.words,
        resemblance_words(summary["resemblance"]),
        f"Price: {_replaced(summary)}, correlation with the base score {figures.correlation:.2f}{lost}.",
        next_sentence(figures, settings, known=auc is not None),
    ]
    _show(summary, rows, sentences, out, files, "(95% interval)")


def next_sentence(figures: Figures, settings: Mapping[str, Any], *, known: bool) -> str:
    """Say what to try next; ``known``: whether there are labels."""
    ratio, ideas = figures.flag_rate_ratio_unseen.after, []
    if settings["flag_rate_ratio"] is None and ratio < _EVEN and settings["fairness"] == "demographic_parity":
        ideas.append(f"--flag-rate-ratio {_EVEN:g} for even flags")
    if not settings["learn"]:
        ideas.append("--learn to use the labels" if known else "--label COL --learn if some outliers are known")
    return f"Try next: {'; '.join(ideas)}." if ideas else ""


def show_repair(summary: dict[str, Any], out: str, files: list[str]) -> None:
    """Show flag rates before and after a repair, what is gone of the gap, and the price."""
    low, high = summary["flag_rate_ratio_interval"]
    rows = [
        *_flag_rows(summary["groups"], summary["flag_rates"]),
        _row("Lowest / highest flag rate", summary["flag_rate_ratio"]),
    ]
    if len(summary["groups"]) < 2:
        sentences = [NOBODY]
    elif summary["outcome"] is None and not summary["gap_detected"] and not summary["strength"]:
        sentences = ["No gap between groups can be told from noise: the scores are as they were."]
    elif summary["outcome"] is None:
        gone = summary["bias_reduction"]
        missed = summary["settings"]["bias_reduction"] is None and gone < DEFAULT_REDUCTION
        short = f", less than the {percent(DEFAULT_REDUCTION)} aimed at" if missed else ""
        sentences = [
            ""
            if math.isnan(gone)
            else f"{percent(gone)} of the gap between mean scores is gone on unseen rows{short}.",
            "Flag rates are those of this file. The group is used, and needed for new rows.",
        ]
    else:
        ends = "" if math.isnan(low) else f"; 95% interval of lowest / highest: {low:.2f} to {high:.2f}"
        sentences = [summary["outcome"]["words"], f"Flag rates are those of rows that the repair has not seen{ends}."]
    price = f"Price: {_replaced(summary)}, rank correlation with the score {summary['rank_correlation']:.2f}."
    _show(summary, rows, [*sentences, resemblance_words(summary["resemblance"]), price], out, files)


Row = tuple[str, str, str]  # name, before, after


def _row(name: str, change: BeforeAfter) -> Row:
    return name, with_interval(change.before), with_interval(change.after)


def _flag_rows(groups: dict[str, int], rates: dict[str, BeforeAfter], where: str = "") -> list[Row]:
    """Flag rates of the largest groups; ``where`` says of which rows."""
    largest = sorted(groups, key=lambda group: -groups[group])[:_GROUPS]
    rows = [
        (f"Flagged{where}: {name}", percent(rate.before, 1), percent(rate.after, 1))
        for name, rate in rates.items()
        if name in largest
    ]
    hidden = len(groups) - _GROUPS
    return [*rows, (f"... {hidden} smaller groups: summary.json", "", "")] if hidden > 0 else rows


def _replaced(summary: dict[str, Any]) -> str:
    return f"{summary['flagged'] - summary['flagged_kept']:,} of {summary['flagged']:,} flagged people replaced"


def _show(
    summary: dict[str, Any], rows: list[Row], sentences: list[str], out: str, files: list[str], head: str = ""
) -> None:
    """Print a table of figures before and after, sentences about them, and what was done with columns.

    ``head`` stands over the names of the figures.
    """
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    named = Column(head, no_wrap=True, overflow="ellipsis", max_width=max(20, console.width - _NUMBERS))
    table = Table(
        named, *(Column(name, justify="right", no_wrap=True) for name in ("before", "after")),
        box=None, pad_edge=False, padding=(0, 2, 0, 0),
    )  # fmt: skip
    detection = {"AUC": summary["auc"], "Known outliers among the flagged": summary["precision_flagged"]}
    for label, before, after in [*rows, *(_row(name, each) for name, each in detection.items() if each)]:
        table.add_row(Text(one_line(label)), before, after)
    n, names = len(summary["groups"]), summary["columns"]["features"]
    counted = f"{summary['input']['rows']:,} rows, {n} group{'' if n == 1 else 's'}"
    console.print(one_line(f"{summary['input']['name']}: {counted} by {' and '.join(summary['columns']['sensitive'])}"))
    console.print(table)
    more = [f"{len(names) - _FEATURES} more in summary.json"] if len(names) > _FEATURES else []
    features = f"Features: {', '.join([*map(short_name, names[:_FEATURES]), *more])}." if names else ""
    notes = [f"Column {name!r}: {note}" for name, note in summary["column_notes"].items()]
    hidden = [f"... {len(notes) - _NOTES} more: summary.json"] if len(notes) > _NOTES else []
    for sentence in filter(None, [*sentences, features, *notes[:_NOTES], *hidden]):
        console.print(one_line(sentence))
    console.print(one_line(f"Written to {out}: {', '.join(files)}"), soft_wrap=True)


def show_claims(results: "Results") -> None:
    """Show the verdict on every claim of the paper, and where the page is."""
    table = Table(
        Column(""), Column("claim", ratio=1), Column("verdict", no_wrap=True),
        title="The paper's claims, and those added (+)", title_justify="left",
    )  # fmt: skip
    colours = {"holds": "green", "does not hold": "red"}
    for claim in results.claims:
        table.add_row(
            claim.id + ("+" if claim.origin == "added" else ""), claim.statement,
            f"[{colours.get(claim.verdict, 'yellow')}]{claim.verdict}[/]",
        )  # fmt: skip
    Console(highlight=False).print(table)
    click.echo(one_line(f"Page: {results.page}"))
    click.echo(one_line(f"Points: {results.points}"))
    click.echo(f"Took {sum(results.seconds.values()):.0f} s.")
