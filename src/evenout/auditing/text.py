"""An audit in words."""

from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from evenout.auditing.counted import MEANINGS
from evenout.outcome import percent

if TYPE_CHECKING:
    from evenout.auditing.result import AuditResult, Measure


TOO_FEW = "too few rows to measure"


def shown(name: str, width: int | None = None) -> str:
    """A name from the data, fit to print: no line breaks or control characters, cut to ``width``."""
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return clean if width is None or len(clean) <= width else clean[: width - 1] + "…"


def number(value: float, style: str = ".3g") -> str:
    """Three significant digits, or as ``style`` says; a dash if there is no number."""
    return "-" if np.isnan(value) else f"{value:{style}}"


def between(low: float, high: float, style: str = ".3g") -> str:
    """An interval, or nothing."""
    return "" if np.isnan(low) else f"{number(low, style)} to {number(high, style)}"


def chance(p: float) -> str:
    """A p-value, or nothing."""
    return "" if np.isnan(p) else ("< 0.001" if p < 0.001 else f"{p:.3f}")


_NAME = 40  # of a group's name
_LISTED = 10  # groups left out that are named
_NOISE = 3  # the grade of what cannot be told from noise
_NAMED = 3  # groups named with what they have beyond equal rates
_NO_MORE = "probabilities alone cannot say more"


def verdict(result: "AuditResult") -> tuple[str, ...]:
    """Findings, one sentence or two per question."""
    sentences = [_means(result), _flags(result)]
    if result.has("true_positive_rate_gap"):
        sentences.append(_labels(result))
    if result.has("conditional_parity"):
        sentences.append(_strata(result))
    if result.left_out:
        named = [
            f"'{shown(g.name, _NAME)}' ({g.rows:,} row{'s' * (g.rows != 1)}, {g.flagged:,} flagged)"
            for g in result.left_out
        ]
        more = f" and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
        sentences.append(f"Too few rows to measure, so left out: {', '.join(named[:_LISTED])}{more}.")
    if result.rough:
        sentences.append(f"Few flagged rows, so rough figures: {', '.join(map(shown, result.rough))}.")
    return tuple(sentence for sentence in sentences if sentence)


def _means(result: "AuditResult") -> str:
    gap = result.get("demographic_parity")
    if np.isnan(gap.value):
        return "All scores are equal, so the groups cannot differ."
    if result.bounded and np.isnan(gap.low):
        return f"Mean scores of groups known by probability: {_NO_MORE} than bounds, and no intervals were asked for."
    if result.bounded:
        least, most = (np.sqrt(max(end, 0.0)) for end in (gap.low, gap.high))
        sure = "Mean scores differ, whoever the members are" if least > 0 else "Whether mean scores differ is open"
        return f"{sure}: a typical gap between {least:.2g} and {most:.2g} standard deviations is possible; {_NO_MORE}."
    low, high = _ends(result, "mean_score")
    spread = np.sqrt(result.get("demographic_parity_raw").value / gap.value) if gap.value > 0 else np.nan
    apart = (high.value - low.value) / spread if spread > 0 else 0.0
    who = f"the mean of {_quoted(high)} is {apart:.2g} standard deviations above that of {_quoted(low)}"
    return _graded(
        gap, result, "mean_score",
        f"Mean scores, not tested: {who}.",
        f"Scores differ between groups: {who}, more than chance explains ({_p(gap)}).",
        f"A gap in mean scores is likely but not settled: {who} ({_p(gap)}).",
        f"No gap in mean scores can be told from noise: {who} ({_p(gap)}).",
    )  # fmt: skip


def _flags(result: "AuditResult") -> str:
    ratio, rest = result.get("flag_rate_ratio"), result.get("unflagged_rate_ratio")
    low, high = _ends(result, "flag_rate")
    if high.value == 0:
        return "Nobody is flagged."
    who = f"{_quoted(low)} is flagged {low.value:.1%} of the time, {_quoted(high)} {high.value:.1%}"
    if result.bounded and np.isnan(ratio.low):
        return f"Flag rates of groups known by probability: by its probabilities {who}."
    if result.bounded:
        sure = "Flag rates differ, whoever the members are" if ratio.high < 1 else "Whether flag rates differ is open"
        return (
            f"{sure}: by its probabilities {who}. For the lowest flag rate over the highest, between {ratio.low:.2f} "
            f"and {ratio.high:.2f} is possible; {_NO_MORE}."
        )
    if low.value == high.value:
        who = f"all groups are flagged {low.value:.1%} of the time"
    shares = [
        f"{m.value:.2f} of the highest{'' if np.isnan(m.low) else f' (interval {m.low:.2f} to {m.high:.2f})'}"
        for m in (ratio, rest)
    ]
    found = (
        f"{who}. The lowest flag rate is {shares[0]}; the lowest rate of not being flagged is {shares[1]}."
        f"{'' if result.weighted else ' ' + _people(result)}"
    )
    return _graded(
        ratio, result, "flag_rate",
        f"Flag rates, not tested: {found}",
        f"Flag rates differ by more than chance explains ({_p(ratio)}): {found}",
        f"Flag rates are likely to differ, but that is not settled ({_p(ratio)}): {found}",
        f"No difference in flag rates can be told from noise ({_p(ratio)}): {found}",
    )  # fmt: skip


def _people(result: "AuditResult") -> str:
    """Flagged rows beyond what equal rates give, by group: the size of the gap in people."""
    flagged, n = int(result.flagged_counts.sum()), result.group_counts
    beyond = np.rint(result.flagged_counts - n * flagged / n.sum()).astype(int)
    order = [g for g in np.argsort(-beyond, kind="stable") if beyond[g] > 0]
    total = int(beyond[order].sum())
    if not order:
        return f"Equal rates would flag as many of each group, of {flagged:,} in all."
    parts = [f"{beyond[g]:,} in '{shown(result.group_names[g], _NAME)}'" for g in order[:_NAMED]]
    others = total - int(beyond[order[:_NAMED]].sum())
    parts += [f"{others:,} in other groups"] if others else []
    named = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    rows = "flagged row" if flagged == 1 else f"{flagged:,} flagged rows"
    return f"Of the {rows}, {named} {'is' if total == 1 else 'are'} beyond what equal rates give."


def _labels(result: "AuditResult") -> str:
    gap = result.get("true_positive_rate_gap")
    if np.isnan(gap.value):
        return "Fewer than two groups have known outliers, so their detection cannot be compared."
    low, high = _ends(result, "true_positive_rate")
    who = f"of the known outliers, {low.value:.1%} in {_quoted(low)} and {high.value:.1%} in {_quoted(high)}"
    if result.chosen:
        return (
            f"Outliers found among the labelled rows alone: {who} are flagged. Outliers that nobody looked at may be "
            "found otherwise: label a random draw of rows, or give label_propensity, the chance that each had."
        )
    if result.bounded:
        return (
            f"Outliers found, by probabilities of groups: {who} are flagged; a gap between {gap.low:.2f} and "
            f"{gap.high:.2f} is possible; {_NO_MORE}."
        )
    return _graded(
        gap, result, "true_positive_rate",
        f"Outliers found, not tested: {who} are flagged.",
        f"Outliers are found unevenly, more than chance explains: {who} are flagged ({_p(gap)}).",
        f"Outliers are likely to be found unevenly, but that is not settled: {who} are flagged ({_p(gap)}).",
        f"No difference in finding outliers can be told from noise: {who} are flagged ({_p(gap)}).",
    )  # fmt: skip


def _strata(result: "AuditResult") -> str:
    gap = result.get("conditional_parity")
    if np.isnan(gap.value):
        return "No stratum has two groups of two rows or more, so nothing can be compared within strata."
    corrected = result.get("conditional_parity_corrected").value
    size = f"typically {np.sqrt(max(corrected, 0.0)):.2g} standard deviations"
    numbers = f", up to a smooth curve in {' and '.join(map(repr, result.alike_in))}"
    alike = "mong rows that are alike in the given columns" + (numbers if result.alike_in else "")
    if result.bounded:
        least, most = (np.sqrt(max(end, 0.0)) for end in (gap.low, gap.high))
        return f"A{alike}, a typical gap between {least:.2g} and {most:.2g} is possible; {_NO_MORE}."
    return _explained(result) + _graded(
        gap, result, "conditional",
        f"A{alike}, the gap is {size}, not tested.",
        f"A gap remains a{alike}: {size} ({_p(gap)}).",
        f"A{alike}, a gap is likely but not settled: {size} ({_p(gap)}).",
        f"A{alike}, no gap can be told from noise ({_p(gap)}).",
    )  # fmt: skip


def _explained(result: "AuditResult") -> str:
    """Of the group that is furthest from all rows, what goes with the given columns."""
    furthest = max((result.get("mean_apart", name) for name in result.group_names), key=lambda m: abs(m.value))
    if not abs(furthest.value) >= 0.005:
        return ""
    part = result.get("apart_by_strata", furthest.group).value
    side = "above" if furthest.value > 0 else "below"
    return (
        f"The mean of {_quoted(furthest)} is {abs(furthest.value):.2f} standard deviations {side} that of all rows; "
        f"{part * np.sign(furthest.value):.2f} of this goes with the given columns. "
    )


def _detectable(result: "AuditResult", what: str) -> str:
    """Words on what would have been detected: not finding a difference is no proof that there is none."""
    if not result.has(f"{what}_detectable"):
        return "That is no proof of evenness."
    m = result.get(f"{what}_detectable")
    rate = what in ("flag_rate", "true_positive_rate")
    thing, held = "difference" if rate else "gap", f" ({m.note})" if m.note else ""
    if np.isnan(m.value):
        return f"That is no proof of evenness: rows like these show no {thing} reliably{held}."
    size = f"{100 * m.value:.1f} percentage points" if rate else f"{m.value:.2g} standard deviations"
    return (
        f"That is no proof of evenness: rows like these show a {thing} of {size} 80% of the time, and smaller ones "
        f"less often{held}."
    )


def _ends(result: "AuditResult", measure: str) -> tuple["Measure", "Measure"]:
    """The groups with the lowest and the highest value."""
    measures = [result.get(measure, name) for name in result.group_names]
    known = [m for m in measures if not np.isnan(m.value)]
    return min(known, key=lambda m: m.value), max(known, key=lambda m: m.value)


def grade(m: "Measure", result: "AuditResult") -> int:
    """0: not tested; 1: more than chance explains; 2: so by this test, but not corrected for many tests; 3: noise."""
    level = 1 - result.settings["confidence"]
    return 0 if np.isnan(m.p) else 1 if m.p_adjusted <= level else 2 if m.p <= level else _NOISE


def _graded(m: "Measure", result: "AuditResult", what: str, *sentences: str) -> str:
    """The sentence for the grade of a test; after noise, what would have been seen."""
    graded = grade(m, result)
    return sentences[graded] + (f" {_detectable(result, what)}" if graded == _NOISE else "")


def _quoted(m: "Measure") -> str:
    return f"'{shown(str(m.group), _NAME)}'"


def _p(m: "Measure") -> str:
    alone = f"p {chance(m.p)}" if m.p < 0.001 else f"p = {chance(m.p)}"
    return alone if m.p == m.p_adjusted else f"{alone}; corrected {chance(m.p_adjusted)}"


_WIDTH = 42  # of the column of words
_DRIVERS = 5  # features shown


def audit_text(result: "AuditResult") -> str:
    """The whole text: groups, comparisons, features, verdict, notes."""
    clusters = "" if result.n_clusters is None else f" of {result.n_clusters:,} clusters"
    head = (
        f"Audit of {len(result.scores):,} rows{clusters} in {len(result.group_names)} groups, {flagged_words(result)}; "
        f"{100 * result.settings['confidence']:.3g}% intervals"
    )
    rows = [GROUP_HEADS, *group_rows(result, _NAME)]
    rows += [(shown(g.name, _NAME), f"{g.rows:,}", "", f"{g.flagged:,}", "", TOO_FEW) for g in result.left_out]
    width = max(len(name) for name, *_ in rows)
    groups = [
        f"{name:<{width}} {n:>10} {mean:>11} {k:>9} {rate:>10}  {ends}".rstrip()
        for name, n, mean, k, rate, ends in rows
    ]
    parts = [head], groups, _comparisons(result), _drivers(result)
    return joined(*parts, verdict=result.verdict, notes=result.notes)


def joined(*parts: list[str], verdict: Iterable[str] = (), notes: Iterable[str] = ()) -> str:
    """A text of parts, those without lines left out, then of findings and notes."""
    every = (*parts, [f"* {sentence}" for sentence in verdict], [f"Note: {note}." for note in notes])
    return "\n\n".join("\n".join(part) for part in every if part)


def flagged_words(result: "AuditResult") -> str:
    """Flagging rule in words: the share or the rows asked for, or what took its place."""
    asked = result.settings["contamination"]
    return result.flag_words or f"{f'{asked:,} rows' if isinstance(asked, Integral) else f'{100 * asked:.3g}%'} flagged"


GROUP_HEADS = ("group", "rows", "mean score", "flagged", "flag rate", "interval")


def group_rows(result: "AuditResult", width: int) -> list[tuple[str, ...]]:
    """Figures of each group under `GROUP_HEADS`; its name is cut to ``width``."""
    rows: list[tuple[str, ...]] = []
    for name, n, k in zip(result.group_names, result.group_counts, result.flagged_counts, strict=True):
        rate, mean = result.get("flag_rate", name), number(result.get("mean_score", name).value)
        share, ends = percent(rate.value, 1), between(rate.low, rate.high, ".1%")
        rows.append((shown(name, width), f"{n:,}", mean, f"{k:,}", share, ends))
    return rows


def _comparisons(result: "AuditResult") -> list[str]:
    lines = [f"{'between groups':<{_WIDTH}} {'value':>9}  {'interval':<19} {'p':<8} corrected"]
    for m in result.measures:
        kind, ends = MEANINGS[m.measure], between(m.low, m.high)
        if kind.headline:
            p, corrected = ("", "") if kind.twin or kind.rest else (chance(m.p), chance(m.p_adjusted))
            p = "labelled rows alone" if result.chosen and kind.question == "labels" else p
            value = f"{m.value:,.0f}" if m.measure == "effective_pairs" else number(m.value)
            lines.append(f"{kind.words:<{_WIDTH}} {value:>9}  {ends:<19} {p:<8} {corrected}".rstrip())
    return lines


def _drivers(result: "AuditResult") -> list[str]:
    drivers = [m for m in result.measures if m.measure == "gap_explained"]
    if not drivers:
        return []
    lines = [f"{'part of the gap that goes with a feature':<{_WIDTH}} {'value':>9}  {'interval':<19} p, corrected"]
    lines += [
        f"{shown(str(m.detail), _WIDTH):<{_WIDTH}} {m.value:>9.0%}  "
        f"{between(m.low, m.high, '.0%'):<19} {chance(m.p_adjusted)}".rstrip()
        for m in drivers[:_DRIVERS]
    ]
    return [*lines, f"({len(drivers) - _DRIVERS} more)"] if len(drivers) > _DRIVERS else lines
