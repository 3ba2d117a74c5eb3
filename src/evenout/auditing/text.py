"""An audit as text: short tables, and the sentences of `evenout.auditing.sentences`."""

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from evenout.auditing.meanings import MEANINGS
from evenout.auditing.words import TOO_FEW, between, chance, number, shown

if TYPE_CHECKING:
    from evenout.auditing.result import AuditResult

_WIDTH = 42  # of the column of words
_NAME = 40  # of a group's name
_DRIVERS = 5  # features shown

_HEADLINES = (
    "flag_rate_ratio",
    "unflagged_rate_ratio",
    "threshold_free_gap",
    "demographic_parity",
    "demographic_parity_corrected",
    "conditional_parity",
    "conditional_parity_corrected",
    "individual_unfairness",
    "individual_unfairness_shuffled",
    "effective_pairs",
    "auc_gap",
    "average_precision_gap",
    "true_positive_rate_gap",
    "false_positive_rate_gap",
    "precision_gap",
)


def audit_text(result: "AuditResult") -> str:
    """The whole text: groups, comparisons, features, verdict, notes."""
    clusters = "" if result.n_clusters is None else f" of {result.n_clusters:,} clusters"
    head = (
        f"Audit of {len(result.scores):,} rows{clusters} in {len(result.group_names)} groups, {flagged_words(result)}; "
        f"{100 * result.settings['confidence']:.3g}% intervals"
    )
    parts = [[head], _groups(result), _comparisons(result), _drivers(result)]
    parts.append([f"* {sentence}" for sentence in result.verdict])
    parts.append([f"Note: {note}." for note in result.notes])
    return "\n\n".join("\n".join(part) for part in parts if part)


def flagged_words(result: "AuditResult") -> str:
    """Who is flagged: the share or the rows asked for, or how it came to be otherwise."""
    asked = result.settings["contamination"]
    return result.flag_words or f"{f'{asked:,} rows' if isinstance(asked, Integral) else f'{100 * asked:.3g}%'} flagged"


def _groups(result: "AuditResult") -> list[str]:
    apart = [group.name for group in result.left_out]
    width = min(max(len(shown(name)) for name in (*result.group_names, *apart, "group")), _NAME)
    lines = [f"{'group':<{width}} {'rows':>10} {'mean score':>11} {'flagged':>9} {'flag rate':>10}  interval"]
    for name, n, k in zip(result.group_names, result.group_counts, result.flagged_counts, strict=True):
        rate = result.get("flag_rate", name)
        ends = "" if np.isnan(rate.low) else f"{rate.low:.1%} to {rate.high:.1%}"
        mean = number(result.get("mean_score", name).value)
        lines.append(f"{shown(name, width):<{width}} {n:>10,} {mean:>11} {k:>9,} {rate.value:>10.1%}  {ends}".rstrip())
    lines += [
        f"{shown(g.name, width):<{width}} {g.rows:>10,} {'':>11} {g.flagged:>9,} {'':>10}  {TOO_FEW}"
        for g in result.left_out
    ]
    return lines


def _comparisons(result: "AuditResult") -> list[str]:
    lines = [f"{'between groups':<{_WIDTH}} {'value':>9}  {'interval':<19} {'p':<8} corrected"]
    for m in result.measures:
        if m.measure in _HEADLINES:
            kind, ends = MEANINGS[m.measure], between(m.low, m.high)
            p, corrected = ("", "") if kind.twin or kind.rest else (chance(m.p), chance(m.p_adjusted))
            p = "labelled rows alone" if result.chosen and kind.question == "labels" else p
            value = f"{m.value:,.0f}" if m.measure == "effective_pairs" else number(m.value)
            lines.append(f"{kind.words:<{_WIDTH}} {value:>9}  {ends:<19} {p:<8} {corrected}".rstrip())
    return lines


def _drivers(result: "AuditResult") -> list[str]:
    found = [m for m in result.measures if m.measure == "gap_explained"]
    if not found:
        return []
    lines = [f"{'part of the gap that goes with a feature':<{_WIDTH}} {'value':>9}  {'interval':<19} p, corrected"]
    lines += [
        f"{shown(str(m.detail), _WIDTH):<{_WIDTH}} {m.value:>9.0%}  "
        f"{'' if np.isnan(m.low) else f'{m.low:.0%} to {m.high:.0%}':<19} {chance(m.p_adjusted)}".rstrip()
        for m in found[:_DRIVERS]
    ]
    return [*lines, f"({len(found) - _DRIVERS} more)"] if len(found) > _DRIVERS else lines
