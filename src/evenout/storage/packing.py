"""Large arrays in less space, without the loss of a bit.

Columns of few values, such as one-hot ones, are kept as bytes and a table; numbers that fit into 32 bits, such as those
on the grid of `evenout.detectors.units`, in 32 bits; matrices that are symmetric but for rounding by one triangle, and
bytes for the rounding. A packed array is a dict with the entry ``packed``. Unpacked it is at most eight times as large:
a file cannot ask for more memory than that.
"""

from typing import Any

import numpy as np

from evenout.core.types import AnyArray, FloatArray

SMALLEST = 4096  # numbers; smaller arrays are kept as they are
_TABLE = 256  # values of a column that fit into bytes
_STEP = 2.0**-20
_MIDDLE = 128  # of a byte
_BYTES, _SINGLE, _GRID, _DOUBLE = range(4)
_NAMES = {_BYTES: "bytes", _SINGLE: "single", _GRID: "grid", _DOUBLE: "double"}


def packed(value: Any) -> Any:
    """Pack the large arrays of plain data where that saves space and gives the same bits back."""
    match value:
        case dict():
            return {name: packed(item) for name, item in value.items()}
        case list():
            return [packed(item) for item in value]
        case np.ndarray() if value.size >= SMALLEST and value.dtype == np.int64:
            small = next((kind for kind in (np.uint8, np.int32) if (value == value.astype(kind)).all()), None)
            made = None if small is None else {"packed": "whole", "values": value.astype(small)}
        case np.ndarray() if value.size >= SMALLEST and value.dtype == np.float64:
            made = _pack_floats(value)
        case _:
            return value
    if made is None or sum(part.nbytes for part in made.values() if isinstance(part, np.ndarray)) >= 0.9 * value.nbytes:
        return value
    same = np.array_equal(unpacked(made).view(np.int64), value.view(np.int64))  # by bits: 0.0 is not -0.0
    return made if same else value


def unpacked(value: Any) -> Any:
    """Undo `packed`; a `ValueError` if a packed array is damaged."""
    match value:
        case list():
            return [unpacked(item) for item in value]
        case {"packed": "whole"}:
            return np.asarray(value["values"]).astype(np.int64)
        case {"packed": "triangle"}:
            return _unpack_triangle(value)
        case {"packed": "columns"}:
            return _unpack_columns(value)
        case dict():
            return {name: unpacked(item) for name, item in value.items()}
    return value


def _pack_floats(values: FloatArray) -> dict[str, Any] | None:
    if not np.isfinite(values).all():
        return None
    d = values.shape[-1]
    if values.ndim >= 2 and values.shape[-2] == d:
        rows, columns = np.triu_indices(d)
        upper, lower = (np.ascontiguousarray(values[..., i, j]) for i, j in ((rows, columns), (columns, rows)))
        apart = lower.view(np.int64) - upper.view(np.int64)  # in steps of the last bit, as far as products of floats go
        if np.abs(apart).max() < _MIDDLE:
            made = {"packed": "triangle", "values": upper, "size": d}
            return made | ({"apart": (apart + _MIDDLE).astype(np.uint8)} if apart.any() else {})
    return _pack_columns(values) if values.ndim <= 2 else None


def _unpack_triangle(data: dict[str, Any]) -> FloatArray:
    d, values = int(data["size"]), data["values"]
    if values.shape[-1] != d * (d + 1) // 2:
        raise ValueError("a triangle has the wrong size")
    rows, columns = np.triu_indices(d)
    out, lower = np.empty((*values.shape[:-1], d, d)), values
    if "apart" in data:
        lower = (values.view(np.int64) + (data["apart"].astype(np.int64) - _MIDDLE)).view(np.float64)
    out[..., columns, rows] = lower
    out[..., rows, columns] = values
    return out


def _pack_columns(values: FloatArray) -> dict[str, Any]:
    """Each column in the way that takes the least space; an array of one axis is one column."""
    kinds, tables = [], []
    parts: dict[int, list[AnyArray]] = {kind: [] for kind in _NAMES}
    packed_column: AnyArray
    for column in values.reshape(len(values), -1).T:
        table, codes = np.unique(column, return_inverse=True)
        if len(table) <= _TABLE:
            kind, packed_column = _BYTES, codes.astype(np.uint8)
            tables.append(table)
        elif (column == column.astype(np.float32)).all():
            kind, packed_column = _SINGLE, column.astype(np.float32)
        elif np.abs(column).max() < 2**31 * _STEP and (column / _STEP == np.rint(column / _STEP)).all():
            kind, packed_column = _GRID, (column / _STEP).astype(np.int32)
        else:
            kind, packed_column = _DOUBLE, column
        kinds.append(kind)
        parts[kind].append(packed_column)
    kept = {_NAMES[kind]: np.array(columns) for kind, columns in parts.items() if columns}
    if tables:
        kept |= {"tables": np.concatenate(tables), "lengths": np.array([len(t) for t in tables], dtype=np.int64)}
    return {"packed": "columns", "axes": values.ndim, "kinds": np.array(kinds, dtype=np.uint8), **kept}


def _unpack_columns(data: dict[str, Any]) -> FloatArray:
    kinds, ends = data["kinds"], np.cumsum(data.get("lengths", np.zeros(0, dtype=np.int64)))
    n = next(data[name].shape[1] for name in _NAMES.values() if name in data)
    out = np.empty((n, len(kinds)))
    for kind, name in _NAMES.items():
        positions = np.flatnonzero(kinds == kind)
        columns = data[name] if len(positions) else ()
        if len(columns) != len(positions):
            raise ValueError("a packed array has the wrong number of columns")
        for j, column in zip(positions, columns, strict=True):
            out[:, j] = column * _STEP if kind == _GRID else column
    for j, column, end, length in zip(
        np.flatnonzero(kinds == _BYTES), data.get("bytes", ()), ends, data.get("lengths", ()), strict=True
    ):
        out[:, j] = data["tables"][end - length : end][column]
    if not np.isin(kinds, list(_NAMES)).all():
        raise ValueError("a packed array has a column of no known kind")
    return out[:, 0] if data["axes"] == 1 else out
