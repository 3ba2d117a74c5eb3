"""What a fit has reached, in sentences that claim no more than its figures support."""

import math
from typing import Any

from evenout.cli.messages import one_line
from evenout.cli.outcome import Figures

_NAMED = 5  # small groups that are named
_NAME = 40  # characters of a name
_FEATURES = 12  # that are named
_NOTES = 20  # columns of which is told what was done with them


def gap_sentence(outcome: Figures) -> str:
    """How large the gap was: in standard deviations and in people."""
    apart = outcome.gap_in_standard_deviations
    if math.isnan(apart):
        return ""
    beyond, flagged = outcome.flagged_beyond_equal_rates, outcome.flagged_in_groups
    return (
        f"The groups' mean base scores lie up to {apart:.2f} standard deviations apart. In training, "
        f"{beyond.before:,.0f} of {flagged.before:,.0f} flagged people are there beyond what equal rates would give; "
        f"after: {beyond.after:,.0f} of {flagged.after:,.0f}."
    )


def request_sentence(outcome: Figures) -> str:
    """What came of the request, how sure that is, and whether it supports what was asked for."""
    if len(outcome.groups) < 2:
        return "Fewer than two groups have enough rows to be compared: the scores are the base scores."
    return str(outcome.outcome["words"])


def resemblance_sentence(prices: dict[str, float]) -> str:
    """What looking like a group costs, where the score is corrected by that.

    >>> resemblance_sentence({"f": 0.02, "m": -0.02})
    'Taken off for looking like a group, whoever belongs to it: f 0.0200, m -0.0200.'
    """
    first = sorted(prices, key=lambda name: -abs(prices[name]))[:_NAMED]
    named = [f"{_short(name)} {prices[name]:.4f}" for name in prices if name in first]
    named += [f"{len(prices) - _NAMED} more in summary.json"] if len(prices) > _NAMED else []
    return f"Taken off for looking like a group, whoever belongs to it: {', '.join(named)}." if prices else ""


def small_groups_sentence(outcome: Figures) -> str:
    """The groups that are left out of every comparison."""
    small = outcome.left_out_groups
    if not small:
        return ""
    first = sorted(small, key=lambda name: -small[name])[:_NAMED]
    named = [f"{_short(name)} ({small[name]:,})" for name in first]
    named += [f"{len(small) - _NAMED} more in summary.json"] if len(small) > _NAMED else []
    return f"Too few rows to compare: {', '.join(named)}."


def labels_sentence(labels: dict[str, Any] | None) -> str:
    """How much the base score has learnt from labels, and what that did to its bias."""
    if labels is None:
        return ""
    told = f"Labels: {labels['known']:,} rows, {labels['outliers']:,} of them outliers; weight {labels['weight']:.2f}"
    if not labels["weight"] > 0:
        return f"{told}: too few, or they say nothing, so it is as without."
    if labels["bias_before"] is None or math.isnan(labels["bias_before"]):
        return f"{told}."
    gap = f"bias of the base score {labels['bias_before']:.4f} before labels, {labels['bias_after']:.4f} after"
    return f"{told}; {gap}."


def rows_words(outcome: Figures) -> str:
    """Which rows the bias is stated for, in a few words."""
    return "unseen rows" if outcome.unseen_estimate == "everything refitted" else "unseen by the weights"


def _short(name: str) -> str:
    text = one_line(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"


def features_line(names: list[str]) -> str:
    """The columns that serve as features, the first ones by name.

    >>> features_line(["age", "income"])
    'Features: age, income.'
    """
    more = [f"{len(names) - _FEATURES} more in summary.json"] if len(names) > _FEATURES else []
    return f"Features: {', '.join([*map(_short, names[:_FEATURES]), *more])}." if names else ""


def notes_lines(notes: dict[str, str]) -> list[str]:
    """What was done with columns that were not taken as they are, a line for each of the first ones.

    >>> notes_lines({"id": "left out, a running number, different in every row"})
    ["Column 'id': left out, a running number, different in every row"]
    """
    lines = [one_line(f"Column {name!r}: {note}") for name, note in [*notes.items()][:_NOTES]]
    return [*lines, f"... {len(notes) - _NOTES} more: summary.json"] if len(notes) > _NOTES else lines
