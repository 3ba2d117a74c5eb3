"""The encoder of a table in a model file: what each column was taken for, as plain data, and back with every check."""

from dataclasses import asdict
from typing import Any

from sklearn.utils.validation import check_is_fitted

from evenout.storage.archive import plain
from evenout.storage.fields import Fields
from evenout.tables.columns import DATE, DATE_PARTS, KINDS, NUMBERS, OTHER, Categories, Column, Dates, LeftOut, Numbers
from evenout.tables.encoder import TableEncoder

_LATEST = 1e7  # days since 1970: the year 29349


def describe_table(table: TableEncoder) -> dict[str, Any]:
    """The columns as plain data."""
    check_is_fitted(table)
    return {"columns": [plain({"kind": column.kind} | asdict(column)) for column in table.columns_]}


def read_table(data: Fields) -> TableEncoder:
    """The encoder that has learnt the columns of a file."""
    columns = [_read_column(part) for part in data.parts("columns")]
    names = {column.name for column in columns}
    data.require(len(names) == len(columns), "columns", "names one twice")
    data.require(any(column.features for column in columns), "columns", "holds no feature")
    return TableEncoder.of_columns(columns)


def _read_column(data: Fields) -> Column:
    kind, name, note = data.text("kind", KINDS), data.text("name"), data.text("note")
    if kind == LeftOut.kind:
        return LeftOut(name, note)
    if kind == Categories.kind:
        values, rest = data.texts("values"), data.flag("rest")
        data.require(len({*values}) == len(values), "values", "names one twice")
        data.require(OTHER in values or not rest, "values", "has no place for the rest")
        return Categories(name, values, rest, note)
    if kind == Numbers.kind:
        return Numbers(name, data.number("median"), data.text("way", NUMBERS), data.text("unit"), note)
    median, first, way = data.number("median"), data.number("first"), data.text("way")
    data.require(max(abs(median), abs(first)) < _LATEST, "median", "is out of range")
    data.require(way.startswith(DATE), "way", "is of no known kind")
    parts = data.items("parts")
    data.require(all(part in DATE_PARTS for part in parts), "parts", "is of no known kind")
    return Dates(name, median, first, way, tuple(parts), note)
