"""An audit as one page to hand over: words and figures are collected here, the template has the order.

The page has no script and asks for nothing: it opens anywhere, prints on paper, and follows light and dark.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

import evenout
from evenout.auditing.counted import MEANINGS
from evenout.auditing.practice import HEADS, PracticeTable, cell
from evenout.auditing.text import between, chance, flagged_words, grade, group_rows, number, shown
from evenout.pages import policy, safe, static, style, template, versions

if TYPE_CHECKING:
    from evenout.auditing.result import AuditResult

_NAME = 80  # characters of a group's name
_FEATURES = 20  # that go with the gap

# Question, measure, what its test could have seen, what that is in.
_QUESTIONS = (
    ("Do the groups' mean scores differ?", "demographic_parity", "mean_score_detectable", "standard deviations"),
    ("Are groups flagged unevenly?", "flag_rate_ratio", "flag_rate_detectable", "percentage points"),
    ("Are known outliers found unevenly?", "true_positive_rate_gap", "true_positive_rate_detectable",
     "percentage points"),
    ("Do rows alike in the given columns differ?", "conditional_parity", "conditional_detectable",
     "standard deviations"),
)  # fmt: skip
_ANSWERS = ("not tested", "yes, more than chance explains", "likely, but not settled", "cannot tell")


def audit_page(
    results: "Mapping[str, AuditResult]",
    tables: Sequence[PracticeTable] = (),
    *,
    title: str | None = None,
    source: str | None = None,
    input_sha256: str | None = None,
    date: datetime | None = None,
) -> str:
    """The page as a string; ``results`` by attribute, under "" if there is one of all."""
    first = next(iter(results.values()))
    return template("evenout.auditing", "audit.html.j2").render(
        title=shown(title or "Audit of an outlier score", _NAME),
        parts=[_part(name, result) for name, result in results.items()],
        tables=[_table(table) for table in tables],
        rows=len(first.scores) if first.everyone is None else len(first.everyone.scores),
        flagged=flagged_words(first),
        confidence=f"{100 * first.settings['confidence']:.3g}%",
        made=(date or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        source=shown(source or "not named", 200),
        digest=input_sha256 or _digest(results),
        digest_of="data file" if input_sha256 else "scores and groups, as they were read",
        settings=[(name, str(value)) for name, value in first.settings.items()],
        versions=[*({"evenout": evenout.__version__} | versions("Python", "numpy", "scipy", "pandas")).items()],
        style=safe(style() + static("evenout.auditing", "audit.css")),
        policy=policy(),
    )


def _part(name: str, result: "AuditResult") -> dict[str, Any]:
    """One audit in words."""
    comparisons = []
    for m in result.measures:
        kind = MEANINGS[m.measure]
        if m.group is None and m.detail is None and kind.shape not in ("level", "rate", "none"):
            p = ("", "") if kind.twin or kind.rest else (chance(m.p), chance(m.p_adjusted))
            comparisons.append((kind.words.strip(), number(m.value), between(m.low, m.high), *p, m.note))
    return {
        "name": shown(name, _NAME),
        "verdict": [shown(sentence) for sentence in result.verdict],
        "questions": _questions(result),
        "groups": _groups(result),
        "left_out": [(shown(g.name, _NAME), f"{g.rows:,}", f"{g.flagged:,}") for g in result.left_out],
        "comparisons": comparisons,
        "features": [
            (shown(str(m.detail), _NAME), f"{m.value:.0%}", between(m.low, m.high, ".1%"), chance(m.p_adjusted))
            for m in result.measures
            if m.measure == "gap_explained"
        ][:_FEATURES],
        "notes": [shown(note) for note in result.notes],
    }


def _questions(result: "AuditResult") -> list[dict[str, str]]:
    """Each question with its answer, and the smallest difference that could have been seen."""
    rows = []
    for words, measure, seen, unit in _QUESTIONS:
        if not result.has(measure):
            continue
        m, least = result.get(measure), result.get(seen) if result.has(seen) else None
        graded, times = grade(m, result), 100.0 if unit == "percentage points" else 1.0
        size = "nothing reliably" if least is None or np.isnan(least.value) else f"{number(times * least.value)} {unit}"
        rows.append({
            "words": words,
            "answer": _ANSWERS[graded] if not np.isnan(m.value) else "cannot tell",
            "tone": ("none", "found", "likely", "open")[graded],
            "p": chance(m.p_adjusted) or "–",
            "seen": size,
            "held": least.note if least is not None else "",
        })  # fmt: skip
    return rows


def _groups(result: "AuditResult") -> list[dict[str, Any]]:
    """One row per group, with the ends of a picture of its flag rate in percent of the widest."""
    rates, rows = [result.get("flag_rate", name) for name in result.group_names], []
    most = max((x for m in rates for x in (m.value, m.high) if not np.isnan(x)), default=0.0) or 1.0
    for m, cells in zip(rates, group_rows(result, _NAME), strict=True):
        low, high = (m.low, m.high) if not np.isnan(m.low) else (m.value, m.value)
        picture = {"at": m.value, "from": low, "wide": high - low}
        rows.append({"cells": cells} | {name: f"{100 * np.nan_to_num(x) / most:.2f}" for name, x in picture.items()})
    return rows


def _table(table: PracticeTable) -> dict[str, Any]:
    """A table to hand over, one block per attribute."""
    return {
        "practice": table.practice,
        "favourable": table.favourable,
        "heads": [head for head, _ in HEADS[table.kind]],
        "blocks": table.blocks(_NAME),
        "strata": None if table.strata is None else [
            (shown(f"{row['attribute']}: {row['group']}", _NAME), shown(row["stratum"], _NAME), f"{row['people']:,}",
             f"{row['favoured']:,}", cell(row, "rate%"))
            for row in table.strata.to_dict("records")
            if row["people"]
        ],
        "notes": [shown(note) for note in table.notes],
    }  # fmt: skip


def _digest(results: "Mapping[str, AuditResult]") -> str:
    """A hash of all scores and groups."""
    digest = hashlib.sha256()
    for name, result in results.items():
        digest.update(repr((name, result.group_names)).encode())
        digest.update(result.scores.astype(np.float64).tobytes() + result.groups.astype(np.int64).tobytes())
    return digest.hexdigest()
