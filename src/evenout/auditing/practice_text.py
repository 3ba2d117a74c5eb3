"""A table to hand over as text."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenout.auditing.words import between, chance, number, shown

if TYPE_CHECKING:
    from evenout.auditing.practice import PracticeTable

_NAME = 32  # of a group or an attribute
_MOST = 40  # rows shown of one table; all are in to_frame()

Column = tuple[str, str]


def heads(kind: str) -> list[Column]:
    """Headings of a table's columns, each with how it is shown: see `cell`."""
    first = [("people", "people"), ("favoured", "favoured"), ("rate", "rate%")]
    ratio = [("ratio", "ratio±")]
    more = {
        "hiring": [("median rate", "median_rate%"), ("median ratio", "median_ratio"), ("flag ratio", "flag_ratio")],
        "lending": [
            ("flag ratio", "flag_ratio"), ("score difference", "score_difference±score"), ("z", "z"),
            ("p", "p?"), ("p, corrected", "p_adjusted?"), ("shortfall", "shortfall"),
        ],
        "strata": [
            ("ratio of all", "ratio_all"), ("ratio of odds", "odds_ratio±odds"), ("p", "p?"),
            ("p, corrected", "p_adjusted?"), ("disparity", "disparity"),
        ],
    }  # fmt: skip
    return [*first, *ratio, *more[kind], ("", "note")]


def cell(row: Any, how: str) -> str:
    """One figure: counts whole, ``%`` a share with its interval, ``±`` a value with its interval, ``?`` a p-value."""
    name, _, ends = how.partition("±")
    name = name.rstrip("%?")
    value = row[name]
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if pd.isna(value):
        return ""
    if how.endswith("?"):
        return chance(value)
    if how.endswith("%"):
        low, high = row.get(f"{name}_low", np.nan), row.get(f"{name}_high", np.nan)
        return f"{value:.1%}" + ("" if pd.isna(low) else f" ({low:.1%} to {high:.1%})")
    if "±" in how:
        inside = between(row[f"{ends or name}_low"], row[f"{ends or name}_high"])
        return number(value) + (f" ({inside})" if inside else "")
    return f"{value:,.0f}" if name == "shortfall" else number(value)


def practice_text(table: "PracticeTable") -> str:
    """Title, one block per attribute, what was counted, sources, limits."""
    parts = [[f"{table.practice.title}; favourable is {table.favourable}"]]
    columns = heads(table.kind)
    for attribute, rows in table.frame.groupby("attribute", sort=False):
        lines = [[shown(str(attribute), _NAME), *(head for head, _ in columns)]]
        lines += [
            [shown(row["group"], _NAME), *(cell(row, how) for _, how in columns)]
            for row in rows[:_MOST].to_dict("records")
        ]
        more = [f"... {len(rows) - _MOST} more groups"] if len(rows) > _MOST else []
        parts.append([*_aligned(lines), *more])
    parts.append([f"* {sentence}" for sentence in table.practice.counted])
    parts.append(["Follows:", *(f"* {source}." for source in table.practice.sources)])
    parts.append(["Does not establish:", *(f"* {limit}" for limit in table.practice.limits)])
    parts.append([f"Note: {note}." for note in table.notes])
    return "\n\n".join("\n".join(part) for part in parts if part)


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
    last = len(widths) - 1
    return [
        "  ".join(
            text.ljust(width) if j in (0, last) else text.rjust(width)
            for j, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
