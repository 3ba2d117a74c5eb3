"""What a fit has reached, in sentences that claim no more than its figures support."""

import math
from typing import Any

from evenout.cli.messages import one_line
from evenout.cli.outcome import Outcome
from evenout.fitting.words import gap_words

_NAMED = 5  # small groups that are named
_NAME = 40  # characters of a name
_FEATURES = 12  # that are named
_NOTES = 20  # columns of which is told what was done with them


def gap_sentence(outcome: Outcome) -> str:
    """How large the gap was: in standard deviations and in people."""
    apart = outcome.gap_in_standard_deviations
    if math.isnan(apart):
        return ""
    beyond, flagged = outcome.flagged_beyond_equal_rates, outcome.flagged_in_groups
    return (
        f"The groups' mean base scores lie up to {apart:.2f} standard deviations apart. {beyond.before:,.0f} of "
        f"{flagged.before:,.0f} flagged people are there beyond what equal rates would give; "
        f"after: {beyond.after:,.0f} of {flagged.after:,.0f}."
    )


def request_sentence(outcome: Outcome) -> str:
    """What was removed, how sure that is, and whether it supports what was asked for."""
    by_flags = "flag_rate_ratio" in outcome.request
    if len(outcome.groups) < 2:
        return "Fewer than two groups have enough rows to be compared: the scores are the base scores."
    if not outcome.gap_detected and "alpha" not in outcome.request:
        gap = "gap in flag rates" if by_flags else _gap(outcome)
        return f"No {gap} can be told from noise: the scores are the base scores."
    if not math.isnan(outcome.bias_reduction):
        return f"{_removed(outcome)}{_verdict(outcome)}"
    if by_flags:
        return f"{_verdict(outcome).removeprefix('. ')} No {_gap(outcome)} can be told from noise."
    return f"alpha = {outcome.alpha:.4g} was given, though no {_gap(outcome)} can be told from noise."


def resemblance_sentence(prices: dict[str, float]) -> str:
    """What looking like a group costs, where the score is corrected by that.

    >>> resemblance_sentence({"f": 0.02, "m": -0.02})
    'Taken off for looking like a group, whoever belongs to it: f 0.0200, m -0.0200.'
    """
    first = sorted(prices, key=lambda name: -abs(prices[name]))[:_NAMED]
    named = [f"{_short(name)} {prices[name]:.4f}" for name in prices if name in first]
    named += [f"{len(prices) - _NAMED} more in summary.json"] if len(prices) > _NAMED else []
    return f"Taken off for looking like a group, whoever belongs to it: {', '.join(named)}." if prices else ""


def small_groups_sentence(outcome: Outcome) -> str:
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


def rows_words(outcome: Outcome) -> str:
    """Which rows the bias is stated for, in a few words."""
    return "unseen rows" if outcome.unseen_estimate == "everything refitted" else "unseen by the weights"


def _removed(outcome: Outcome) -> str:
    share = outcome.bias_reduction
    if outcome.alpha == 0 and share == 0:
        return "Nothing was removed, the scores are the base scores"
    gap = _gap(outcome)
    what = f"Removed {min(share, 1.0):.0%} of the {gap}" if share >= 0 else f"Widened the {gap} by {-share:.0%}"
    if outcome.request["target"] == "training":
        return f"{what} on the training rows"
    low, high = outcome.bias_reduction_interval
    where = "unseen rows" if outcome.unseen_estimate == "everything refitted" else "rows that the weights have not seen"
    ends = f"{_percent(low)} to {_percent(high)}" if math.isfinite(low) else f"at most {_percent(high)}"
    return f"{what} on {where} (95% interval {ends})"


def _verdict(outcome: Outcome) -> str:
    """Whether that supports the request."""
    request, met = outcome.request, outcome.request_met
    if "alpha" in request:
        return f", at the given alpha = {outcome.alpha:.4g}."
    if "flag_rate_ratio" in request:
        reached = "is reached" if met else "is not reached"
        return f". A ratio of flag rates of {request['flag_rate_ratio']:g} {reached} on {request['target']} rows."
    asked = f"the {request['bias_reduction']:.0%} asked for"
    if request["confidence"] is not None:
        asked += f" with confidence {request['confidence']:g}"
    if met:
        return f": this supports {asked}."
    within = outcome.bias_reduction_interval[1] >= request["bias_reduction"]
    if request["target"] == "unseen" and within:
        return f": this cannot tell whether {asked} is reached."
    return f": less than {asked}."


def _gap(outcome: Outcome) -> str:
    return gap_words(outcome.notions)


def _percent(share: float) -> str:
    return f"{share:.0%}"


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
