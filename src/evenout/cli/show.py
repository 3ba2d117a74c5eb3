"""The table that ``evenout fit`` prints."""

import math
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenout.cli.messages import one_line
from evenout.cli.outcome import BeforeAfter
from evenout.cli.sentences import (
    features_line,
    gap_sentence,
    labels_sentence,
    notes_lines,
    request_sentence,
    resemblance_sentence,
    rows_words,
    small_groups_sentence,
)
from evenout.cli.summary import FitSummary
from evenout.fitting.words import compared_words, probable_words

_GROUPS = 12  # shown; the others are in summary.json
_NUMBERS = 36  # columns of a terminal that the two columns of numbers may take
_OUTCOMES = (
    "Group bias, known outcomes",
    "Group bias: mean squared gap between groups' mean scores among rows of known outcome, over the variance of all.",
)
_BIAS = {
    "demographic_parity": (
        "Group bias",
        "Group bias: mean squared gap between groups' mean scores, over the variance.",
    ),
    "individual": (
        "Bias between similar rows",
        "Bias: mean squared gap between similar rows of two groups, over the variance.",
    ),
    "both": (
        "Bias, all notions",
        "Bias: mean over the notions of the share that is left of the base score's.",
    ),
    **dict.fromkeys(("equal_opportunity", "equalized_odds", "equal_false_alarms"), _OUTCOMES),
}


def show_fit(summary: FitSummary, out: str, files: list[str]) -> None:
    """What a person wants to know: is it fairer, for whom, and at which price."""
    console, width = terminal()
    sensitive = " and ".join(summary.columns["sensitive"])
    n = len(summary.outcome.groups)
    rows = f"{summary.input['rows']:,} rows, {n} group{'' if n == 1 else 's'} by {sensitive}"
    console.print(one_line(f"{summary.input['name']}: {rows}"))
    console.print(_table(summary, width))
    features = features_line(summary.columns["features"])
    for sentence in filter(None, [*_sentences(summary), features, *notes_lines(summary.column_notes)]):
        console.print(sentence)
    console.print(one_line(f"Written to {out}: {', '.join(files)}"), soft_wrap=True)


def terminal() -> tuple[Console, int]:
    """Where results are printed, and how wide labels may be there."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    return console, max(20, console.width - _NUMBERS)


Row = tuple[str, str, str]  # what, before, after


def before_after(rows: list[Row], label_width: int) -> Table:
    """A table of figures before and after."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=label_width)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    for label, before, after in rows:
        indent = label[: len(label) - len(label.lstrip())]
        table.add_row(Text(indent + one_line(label)), before, after)
    return table


def flag_rows(
    groups: dict[str, int], rates: dict[str, BeforeAfter], ratio: BeforeAfter | None = None, where: str = ""
) -> list[Row]:
    """Flag rates of the largest groups, and the lowest over the highest; ``where`` says of which rows."""
    largest = sorted(groups, key=lambda group: -groups[group])[:_GROUPS]
    rows = [
        (f"Flagged{where}: {group}", *_figures(rate, "{:.1%}")) for group, rate in rates.items() if group in largest
    ]
    if len(groups) > _GROUPS:
        rows.append((f"... {len(groups) - _GROUPS} smaller groups: summary.json", "", ""))
    return rows if ratio is None else [*rows, ("Lowest / highest flag rate", *_figures(ratio, "{:.2f}"))]


def detection_rows(found: dict[str, BeforeAfter | None]) -> list[Row]:
    """What is known of detection, where labels are."""
    named = {"AUC": "auc", "Average precision": "average_precision"}
    named |= {"Known outliers among the flagged": "precision_flagged"}
    changes = [(label, found[name]) for label, name in named.items()]
    return [(label, *_figures(change, "{:.3f}")) for label, change in changes if change is not None]


def _table(summary: FitSummary, label_width: int) -> Table:
    outcome, (name, _) = summary.outcome, _bias(summary)
    low, high = (_interval(outcome.bias_unseen_interval[when]) for when in ("before", "after"))
    rows: list[Row] = [(f"{name}, {rows_words(outcome)}", *_figures(outcome.bias_unseen, "{:.4f}"))]
    rows.append(("  95% interval", low, high))
    if outcome.request["target"] == "training":
        rows.append((f"{name}, training rows", *_figures(outcome.bias_training, "{:.4f}")))
    ratio, (least, most) = outcome.flag_rate_ratio_unseen, outcome.flag_rate_ratio_unseen_interval
    rows.append((f"Lowest / highest flag rate, {rows_words(outcome)}", *_figures(ratio, "{:.2f}")))
    rows.append(("  95% interval", "", "–" if math.isnan(least) else f"{least:.2f} to {most:.2f}"))
    rows += flag_rows(outcome.groups, outcome.flag_rates, where=" in training")
    return before_after([*rows, *detection_rows(vars(summary))], label_width)


def _sentences(summary: FitSummary) -> list[str]:
    replaced = f"{summary.flagged - summary.flagged_kept:,} of {summary.flagged:,} flagged people replaced"
    close = f"correlation with the base score {summary.outcome.correlation:.2f}"
    auc = "" if summary.auc is None else f", AUC {summary.auc.after - summary.auc.before:+.3f}"
    return [
        labels_sentence(summary.labels),
        *compared_words(
            summary.outcome.notions, summary.settings, summary.columns["sensitive"], summary.columns["given"]
        ),
        *_attributes(summary.attribute_bias),
        _probable(summary.probable_bound),
        small_groups_sentence(summary.outcome),
        _bias(summary)[1],
        gap_sentence(summary.outcome),
        request_sentence(summary.outcome),
        resemblance_sentence(summary.resemblance),
        f"Price: {replaced}, {close}{auc}.",
    ]


def _attributes(biases: dict[str, tuple[float, float]]) -> list[str]:
    """What becomes of each attribute, where there are several."""
    found = [f"{name} {before:.4f}, after {after:.4f}" for name, (before, after) in biases.items()]
    return [one_line(f"Bias of each attribute: {'; '.join(found)}.")] if len(found) > 1 else []


def _probable(bound: dict[str, float] | None) -> str:
    if bound is None:
        return ""
    note = one_line(probable_words(bound))
    return f"{note[0].upper()}{note[1:]}. Flag rates count each row by its probabilities."


def _bias(summary: FitSummary) -> tuple[str, str]:
    """The bias that was reduced, in a few words and in more."""
    notions = summary.outcome.notions
    return _BIAS[notions[0] if len(notions) == 1 else "both"]


def _figures(change: BeforeAfter, style: str) -> tuple[str, str]:
    before, after = ("–" if math.isnan(x) else style.format(x) for x in (change.before, change.after))
    return before, after


def _interval(ends: tuple[float, float]) -> str:
    return "–" if math.isnan(ends[0]) else f"{ends[0]:.4f} to {ends[1]:.4f}"
