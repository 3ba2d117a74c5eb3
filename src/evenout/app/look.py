"""A first look at a table: its first rows, the type of each column, and which columns tell a group.

Run in a process of its own, as every other step of the page, so that no file can take the page down.
"""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

from evenout.cli.messages import one_line, plain_messages, progress
from evenout.groups.giveaways import find_giveaways
from evenout.tables.columns import (
    Categories,
    Column,
    ColumnFindings,
    Dates,
    DroppedColumn,
    Numbers,
    likely_role,
    taken_for,
)

MOST_COLUMNS = 1000
_SHOWN_ROWS = 5
_SHOWN_TEXT = 40  # characters of a cell
_GROUPS = 20  # values that a protected column may have to be looked for in others
_PROTECTED = 10  # columns that are looked for in others

_CREDIT = ("education", "age", "sex", "marriage")  # protected columns of that data set
_GROUP_NAME = re.compile(
    r"(?i)(.*[ _.-])?(sex|gender|race|ethnic\w*|nationality|religion|disab\w+|marital\w*|marriage|origin|group)"
    r"([ _.-].*)?"
)
_NUMBER_NAME = re.compile(r"(?i)age|age[ _.-]?(years|in[ _.-]years)|(.*[ _.-])age")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--bundled", default="", help="Write this bundled data set to FILE first.")
def look(file: Path, out: Path, bundled: str) -> None:
    """Look at FILE, and write what is there to OUT as JSON."""
    from evenout.tables.files import read_table

    with plain_messages(), progress(quiet=True) as step:
        if bundled:
            from evenout.datasets import load_dataset

            step(f"Unpacking {bundled}")
            known = load_dataset(bundled, sensitive=_CREDIT if bundled == "credit" else None)
            # a file with everything in it: features, protected columns and the known outcome
            pd.concat([known.X, pd.DataFrame(known.sensitive), known.y], axis=1).to_csv(file, index=False)
        step(f"Reading {file}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            frame = read_table(file, most_columns=MOST_COLUMNS)
        step(f"Looking at {len(frame.columns):,} columns")
        notes = [one_line(str(warning.message)) for warning in caught if issubclass(warning.category, UserWarning)]
        out.write_text(json.dumps({**_seen(frame), "notes": notes}), encoding="utf-8")


def _seen(frame: pd.DataFrame) -> dict[str, Any]:
    described = [_column(name, frame[name]) for name in frame.columns]
    columns = [seen for seen, _ in described]
    kept = [column for _, column in described if column is not None and not isinstance(column, DroppedColumn)]
    _suggest(columns)
    first = [[*map(_text, row)] for row in frame.head(_SHOWN_ROWS).itertuples(index=False, name=None)]
    return {"rows": len(frame), "columns": columns, "first": first, "tells": _tells(frame, columns, kept)}


def _column(name: str, values: pd.Series) -> tuple[dict[str, Any], Column | None]:
    """One column as plain data, and as the encoder would take it; None where it cannot be a feature."""
    seen: dict[str, Any] = {"name": name, "role": "feature", "likely": "", "distinct": 0}
    try:
        found = ColumnFindings.of(values, None)
        column = taken_for(name, found)
    except ValueError as error:  # one column must not hide the others
        told = one_line(str(error)).removeprefix(f"column {name!r} ")
        return seen | {"kind": "unreadable", "note": told, "role": "out"}, None
    seen |= {"kind": _kind(found, column), "note": column.note, "distinct": found.distinct}
    left_out = isinstance(column, DroppedColumn)
    return seen | ({"role": "out"} if left_out else {"likely": likely_role(name, found)}), column


def _kind(found: ColumnFindings, column: Column) -> str:
    """In the words of the encoder."""
    if not found.known:
        return "empty"
    if found.distinct == 1:
        return "constant"
    if isinstance(column, DroppedColumn):
        return "text" if "different texts" in column.note else "id"
    return "text" if isinstance(column, Categories) else "date" if isinstance(column, Dates) else "number"


def _suggest(columns: list[dict[str, Any]]) -> None:
    """Roles by name and shape, each at most once but for groups; whoever looks at the page may change them."""
    for column in columns:
        few = 2 <= column["distinct"] <= _GROUPS
        if column["kind"] == "number" and not few and _NUMBER_NAME.fullmatch(column["name"]):
            column["role"] = "number"
        elif few and (_GROUP_NAME.fullmatch(column["name"]) or _NUMBER_NAME.fullmatch(column["name"])):
            column["role"] = "group"
    for likely, role in {"outcome": "label", "score": "score", "person number": "id"}.items():
        first = role
        for column in columns:
            if column["likely"] == likely and column["role"] == "feature":
                column["role"], first = first, "out"
    numbered = [column for column in columns if column["kind"] == "id"]
    if numbered and not any(column["role"] == "id" for column in columns):
        numbered[0]["role"] = "id"


def _tells(
    frame: pd.DataFrame, columns: list[dict[str, Any]], kept: list[Numbers | Dates | Categories]
) -> dict[str, dict[str, float]]:
    """By column that may be protected: columns that give it away, and the share of rows for which they do."""
    few = [column for column in columns if 2 <= column["distinct"] <= _GROUPS]
    few.sort(key=lambda column: column["role"] != "group")
    parts = [(column.name, column.encode(frame[column.name])) for column in kept]
    tells: dict[str, dict[str, float]] = {}
    for name in [column["name"] for column in few[:_PROTECTED]]:
        others = [(other, rows) for other, rows in parts if other != name]
        if others:
            owners = [other for other, rows in others for _ in range(rows.shape[1])]
            codes = pd.factorize(frame[name])[0].astype(np.intp)
            shares: dict[str, float] = {}
            for each in find_giveaways(np.column_stack([rows for _, rows in others]), {name: codes}):
                shares[owners[each.feature]] = max(each.share, shares.get(owners[each.feature], 0.0))
            tells |= {name: shares} if shares else {}
    return tells


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    text = one_line(f"{value:.6g}" if isinstance(value, float) else str(value))
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"


if __name__ == "__main__":
    look()
