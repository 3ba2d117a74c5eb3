"""An audit in words: a short table, and sentences that claim no more than the numbers allow."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from evenout.auditing.result import AuditResult, Measure

from evenout.auditing.kinds import KINDS

FOUR_FIFTHS = 0.8
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
    "effective_pairs",
    "auc_gap",
    "average_precision_gap",
    "true_positive_rate_gap",
    "false_positive_rate_gap",
    "precision_gap",
)


def audit_text(result: "AuditResult") -> str:
    """The whole text: groups, comparisons, features, verdict, notes."""
    settings = result.settings
    head = (
        f"Audit of {len(result.scores):,} rows in {len(result.group_names)} groups, "
        f"{100 * settings['contamination']:.3g}% flagged; {100 * settings['confidence']:.3g}% intervals"
    )
    parts = [[head], _groups(result), _comparisons(result), _drivers(result)]
    parts.append([f"* {sentence}" for sentence in result.verdict])
    parts.append([f"Note: {note}." for note in result.notes])
    return "\n\n".join("\n".join(part) for part in parts if part)


def verdict(result: "AuditResult") -> tuple[str, ...]:
    """What was found, one sentence per question."""
    sentences = [_means(result), _flags(result)]
    if result.has("true_positive_rate_gap"):
        sentences.append(_labels(result))
    if result.has("conditional_parity"):
        sentences.append(_strata(result))
    if result.rough:
        sentences.append(
            f"Few rows or few flagged rows, so rough figures: {', '.join(map(shown, result.rough))}."
        )
    return tuple(sentence for sentence in sentences if sentence)


def shown(name: str, width: int | None = None) -> str:
    """A name from the data, fit to print: no line breaks or control characters, cut to ``width``."""
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return clean if width is None or len(clean) <= width else clean[: width - 1] + "…"


def number(value: float) -> str:
    """Three significant digits, or a dash."""
    return "-" if np.isnan(value) else f"{value:.3g}"


def between(low: float, high: float) -> str:
    """An interval, or nothing."""
    return "" if np.isnan(low) else f"{number(low)} to {number(high)}"


def chance(p: float) -> str:
    """A p-value, or nothing."""
    return "" if np.isnan(p) else ("< 0.001" if p < 0.001 else f"{p:.3f}")


def _means(result: "AuditResult") -> str:
    gap = result.get("demographic_parity")
    if np.isnan(gap.value):
        return "All scores are equal, so the groups cannot differ."
    means = [result.get("mean_score", name) for name in result.group_names]
    high, low = max(means, key=lambda m: m.value), min(means, key=lambda m: m.value)
    apart = (high.value - low.value) / float(result.scores.std())
    who = f"the mean of {_quoted(high)} is {apart:.2g} standard deviations above that of {_quoted(low)}"
    if np.isnan(gap.p):
        return f"Mean scores, not tested: {who}."
    if _beyond_chance(gap, result):
        return f"Scores differ between groups: {who}, more than chance explains ({_p(gap)})."
    if _weak(gap, result):
        return f"A gap in mean scores is likely but not settled: {who} ({_p(gap)})."
    at_most = f": a typical gap of {np.sqrt(gap.high):.2g} standard deviations would still fit these rows"
    return (
        f"No gap in mean scores can be told from noise: {who} ({_p(gap)}). "
        f"That is no proof of evenness{'' if np.isnan(gap.high) else at_most}."
    )


def _flags(result: "AuditResult") -> str:
    ratio = result.get("flag_rate_ratio")
    rates = [result.get("flag_rate", name) for name in result.group_names]
    high, low = max(rates, key=lambda m: m.value), min(rates, key=lambda m: m.value)
    if high.value == 0:
        return "Nobody is flagged: ties leave no row above the threshold."
    who = f"{_quoted(low)} is flagged {low.value:.1%} of the time, {_quoted(high)} {high.value:.1%}"
    ends = "" if np.isnan(ratio.low) else f", interval {ratio.low:.2f} to {ratio.high:.2f}"
    if np.isnan(ratio.p):
        found = "Flag rates, not tested"
    elif _beyond_chance(ratio, result):
        found = "Flag rates differ by more than chance explains"
    elif _weak(ratio, result):
        found = "Flag rates are likely to differ, but that is not settled"
    else:
        found = "No difference in flag rates can be told from noise"
    return f"{found}: {who} (ratio {ratio.value:.2f}{ends}). {_four_fifths(ratio)}"


def _four_fifths(ratio: "Measure") -> str:
    """The rule in these rows, and what the interval says of others like them: another question than the test's."""
    meets = ratio.value >= FOUR_FIFTHS
    here = f"These rows {'meet' if meets else 'fail'} the four-fifths rule"
    if np.isnan(ratio.low):
        return f"{here}."
    if ratio.low >= FOUR_FIFTHS or ratio.high < FOUR_FIFTHS:
        return f"{here}, at every ratio in the interval."
    return f"{here}, but the interval reaches {'below' if meets else 'above'} it."


def _labels(result: "AuditResult") -> str:
    gap = result.get("true_positive_rate_gap")
    rates = [result.get("true_positive_rate", name) for name in result.group_names]
    known = [rate for rate in rates if not np.isnan(rate.value)]
    if len(known) < 2:
        return "Fewer than two groups have known outliers, so their detection cannot be compared."
    high, low = max(known, key=lambda m: m.value), min(known, key=lambda m: m.value)
    who = f"of the known outliers, {low.value:.1%} in {_quoted(low)} and {high.value:.1%} in {_quoted(high)}"
    if np.isnan(gap.p):
        return f"Outliers found, not tested: {who} are flagged."
    if _beyond_chance(gap, result):
        return f"Outliers are found unevenly, more than chance explains: {who} are flagged ({_p(gap)})."
    return f"No difference in finding outliers can be told from noise: {who} are flagged ({_p(gap)})."


def _strata(result: "AuditResult") -> str:
    gap = result.get("conditional_parity")
    if np.isnan(gap.value):
        return "No stratum has two groups of two rows or more, so nothing can be compared within strata."
    corrected = result.get("conditional_parity_corrected").value
    size = f"typically {np.sqrt(max(corrected, 0.0)):.2g} standard deviations"
    if np.isnan(gap.p):
        return f"Among rows that are alike in the given columns, the gap is {size}, not tested."
    if _beyond_chance(gap, result):
        return f"A gap remains among rows that are alike in the given columns: {size} ({_p(gap)})."
    return f"Among rows that are alike in the given columns, no gap can be told from noise ({_p(gap)})."


def _groups(result: "AuditResult") -> list[str]:
    width = min(max(len(shown(name)) for name in (*result.group_names, "group")), _NAME)
    lines = [f"{'group':<{width}} {'rows':>10} {'mean score':>11} {'flagged':>9} {'flag rate':>10}  interval"]
    for name, n, k in zip(result.group_names, result.group_counts, result.flagged_counts, strict=True):
        rate = result.get("flag_rate", name)
        ends = "" if np.isnan(rate.low) else f"{rate.low:.1%} to {rate.high:.1%}"
        mean = number(result.get("mean_score", name).value)
        lines.append(
            f"{shown(name, width):<{width}} {n:>10,} {mean:>11} {k:>9,} {rate.value:>10.1%}  {ends}".rstrip()
        )
    return lines


def _comparisons(result: "AuditResult") -> list[str]:
    lines = [f"{'between groups':<{_WIDTH}} {'value':>9}  {'interval':<19} p, corrected"]
    for m in result.measures:
        if m.measure in _HEADLINES:
            kind, ends = KINDS[m.measure], between(m.low, m.high)
            p = "" if kind.twin or kind.rest else chance(m.p_adjusted)
            value = f"{m.value:,.0f}" if m.measure == "effective_pairs" else number(m.value)
            lines.append(f"{kind.words:<{_WIDTH}} {value:>9}  {ends:<19} {p}".rstrip())
    return lines


def _drivers(result: "AuditResult") -> list[str]:
    found = [m for m in result.measures if m.measure == "gap_explained"]
    if not found:
        return []
    lines = [
        f"{'part of the gap that goes with a feature':<{_WIDTH}} {'value':>9}  {'interval':<19} p, corrected"
    ]
    lines += [
        f"{shown(str(m.detail), _WIDTH):<{_WIDTH}} {m.value:>9.0%}  "
        f"{'' if np.isnan(m.low) else f'{m.low:.0%} to {m.high:.0%}':<19} {chance(m.p_adjusted)}".rstrip()
        for m in found[:_DRIVERS]
    ]
    return [*lines, f"({len(found) - _DRIVERS} more)"] if len(found) > _DRIVERS else lines


def _beyond_chance(m: "Measure", result: "AuditResult") -> bool:
    return m.p_adjusted <= 1 - result.settings["confidence"]


def _quoted(m: "Measure") -> str:
    return f"'{shown(str(m.group), _NAME)}'"


def _weak(m: "Measure", result: "AuditResult") -> bool:
    """Whether the test alone finds more than chance, but not after the correction for many tests."""
    return m.p <= 1 - result.settings["confidence"] < m.p_adjusted


def _p(m: "Measure") -> str:
    alone = f"p {chance(m.p)}" if m.p < 0.001 else f"p = {chance(m.p)}"
    return alone if m.p == m.p_adjusted else f"{alone}; corrected {chance(m.p_adjusted)}"
