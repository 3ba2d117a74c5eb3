"""The table that ``evenout fit`` prints."""

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenout.cli.messages import one_line
from evenout.cli.summary import Change, FitSummary

_GROUPS = 12  # shown; the others are in summary.json
_NUMBERS = 40  # columns of a terminal that the two columns of numbers may take
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
        "Bias, both notions",
        "Bias: mean over both notions of the share that is left of the base score's.",
    ),
}


def show_fit(summary: FitSummary, out: str) -> None:
    """What a person wants to know: is it fairer, for whom, and at which price."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    sensitive = " and ".join(summary.columns["sensitive"])
    rows = f"{summary.input['rows']:,} rows, {len(summary.groups)} groups by {sensitive}"
    console.print(one_line(f"{summary.input['name']}: {rows}"))
    console.print(_table(summary, label_width=max(20, console.width - _NUMBERS)))
    console.print(*_sentences(summary), sep="\n")
    console.print(
        one_line(f"Written to {out}: scores.csv, model.skops, summary.json, report.html"), soft_wrap=True
    )


def _table(summary: FitSummary, label_width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=label_width)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)

    def add(label: str, before: str, after: str) -> None:
        table.add_row(Text(one_line(label)), before, after)

    name, _ = _bias(summary)
    add(f"{name}, unseen rows", *_with_errors(summary.bias_unseen))
    if summary.settings["target"] == "training":
        add(f"{name}, training rows", *_figures(summary.bias_training, "{:.4f}"))
    largest = sorted(summary.groups, key=lambda group: -summary.groups[group])[:_GROUPS]
    for group, rate in summary.flag_rates.items():
        if group in largest:
            add(f"Flagged: {group}", *_figures(rate, "{:.1%}"))
    if len(summary.groups) > _GROUPS:
        add(f"... {len(summary.groups) - _GROUPS} smaller groups: summary.json", "", "")
    add("Lowest / highest flag rate", *_figures(summary.flag_rate_ratio, "{:.2f}"))
    for label, change in (("AUC", summary.auc), ("Average precision", summary.average_precision)):
        if change is not None:
            add(label, *_figures(change, "{:.3f}"))
    return table


def _sentences(summary: FitSummary) -> list[str]:
    rows, alpha = summary.settings["target"], f"alpha = {summary.alpha:.4g}"
    removed = (
        f"Removed {summary.bias_reduction:.0%} of the bias on {rows} rows ({alpha})."
        if summary.gap_detected
        else f"The groups' base scores differ by no more than sampling noise ({alpha})."
    )
    replaced = f"{summary.flagged - summary.flagged_kept:,} of {summary.flagged:,} flagged rows replaced"
    auc = "" if summary.auc is None else f", AUC {summary.auc.after - summary.auc.before:+.3f}"
    return [_bias(summary)[1], removed, f"Price: {replaced}{auc}."]


def _bias(summary: FitSummary) -> tuple[str, str]:
    """The bias that was reduced, in a few words and in more."""
    fairness = summary.settings["fairness"]
    notions = [fairness] if isinstance(fairness, str) else list(fairness)
    return _BIAS[notions[0] if len(notions) == 1 else "both"]


def _figures(change: Change, style: str) -> tuple[str, str]:
    return style.format(change.before), style.format(change.after)


def _with_errors(change: Change) -> tuple[str, str]:
    return (
        f"{change.before:.4f} ± {change.before_error:.4f}",
        f"{change.after:.4f} ± {change.after_error:.4f}",
    )
