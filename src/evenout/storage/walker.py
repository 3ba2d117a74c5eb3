"""Objects to plain data and back, by the annotated fields of their classes.

A saved class is a dataclass, a named tuple, or any class whose constructor takes its annotated attributes by name.
`describe` writes its fields. `read` checks each of them (`evenout.core.types`), makes the object anew, and calls its
``check()``, if it has one, which says whether the fields go together. An object with ``thinned()`` is written as what
that returns: itself without what follows from its other fields. Objects that are not plain data, such as detectors of
other libraries, are put into the list ``objects`` and written as their number.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy.sparse import csc_array

from evenout.core.notions import Notion
from evenout.core.registry import NOTIONS, weighted_notions
from evenout.core.types import ANY, FINITE, MOST_ROWS, AnyArray, UnsoundError, Within
from evenout.storage.archive import ModelFileError, plain

T = TypeVar("T")

_SIZES = Within(-(2**63), 2**63 - 1)
_SCALARS = {bool: "is no truth value", int: "is no whole number", float: "is no number", str: "is no text"}


def describe(value: Any, hint: Any = None, *, objects: list[Any] | None = None) -> Any:
    """Plain data of a value that is annotated as ``hint``, by default as its own class."""
    return _Walker([] if objects is None else objects).write(value, type(value) if hint is None else hint)


def read(cls: type[T], data: Any, where: str, *, objects: Any = ()) -> T:
    """The object of a class that `describe` wrote; a `ModelFileError` in one line names the first misfit."""
    with np.errstate(all="ignore"):
        made: T = _Walker(objects).read(cls, data, where, {})
    return made


def _parsed(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """A type without its marks and None, the marks, and whether None is allowed."""
    marks, optional = (), False
    while True:
        if get_origin(hint) is Annotated:
            hint, marks = hint.__origin__, marks + hint.__metadata__
        elif type(alias := get_origin(hint)).__name__ == "TypeAliasType":  # NDArray in newer releases of numpy
            hint = alias.__value__[get_args(hint)]
        elif alias in (Union, UnionType) and NoneType in get_args(hint):
            hint, optional = reduce(or_, (option for option in get_args(hint) if option is not NoneType)), True
        else:
            return hint, marks, optional


def _classes(hint: Any, marks: tuple[Any, ...]) -> Mapping[str, type] | None:
    """The classes that a field may hold, by their ``kind``; None if the type alone decides."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    by_kind = {option.kind: option for option in options if hasattr(option, "kind")}
    if len(by_kind) > 1:
        return by_kind
    return next((mark for mark in marks if isinstance(mark, Mapping)), {} if hint is Any else None)


def _items(hint: Any, value: Any) -> tuple[tuple[int, ...] | None, tuple[Any, ...]]:
    """The shape, -1 for any length, of the array that a tuple of whole numbers, or of pairs of them, is kept in.

    None for other tuples; the second is the type of each item of these.
    """
    inner, *more = get_args(hint)
    if more != [...]:
        return None, get_args(hint)
    if inner is int:
        return (-1,), ()
    if get_origin(inner) is tuple and {*get_args(inner)} == {int}:
        return (-1, len(get_args(inner))), ()
    return None, (inner,) * len(value)


def _dtype(hint: Any) -> np.dtype[Any]:
    (scalar,) = get_args(get_args(hint)[1])
    return np.dtype(np.int64 if scalar is np.intp else scalar)


@cache
def _fields(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint for name, hint in hints.items() if ClassVar not in (hint, get_origin(hint))}


@dataclass(frozen=True)
class _Walker:
    objects: Any

    def write(self, value: Any, hint: Any) -> Any:
        """Plain data of a value that is annotated as ``hint``."""
        hint, marks, _ = _parsed(hint)
        classes, origin = _classes(hint, marks), get_origin(hint)
        if value is None or (classes is not None and isinstance(value, str)):
            return value
        if classes is not None:
            kind = next((kind for kind, cls in classes.items() if type(value) is cls), None)
            return self._aside(value) if kind is None else {"kind": kind, **self._entries(value, classes[kind])}
        if origin is np.ndarray:
            return np.ascontiguousarray(value, dtype=_dtype(hint))
        if origin is tuple:
            shape, types = _items(hint, value)
            if shape is not None:
                return np.array(value, dtype=np.int64).reshape(shape)
            return [self.write(item, of) for item, of in zip(value, types, strict=True)]
        if origin is type:
            return value.__name__
        if origin in (dict, Mapping):
            return {key: self.write(item, get_args(hint)[1]) for key, item in value.items()}
        if hint is csc_array:
            starts, rows = value.indptr.astype(np.int64), value.indices.astype(np.int64)
            return {"starts": starts, "rows": rows, "share": value.data, "n_rows": value.shape[0]}
        if hint is Notion:
            known = type(value) is type(NOTIONS.get(value.name)) or value.name == "own"
            return value.name if known else self._aside(value)
        return self._entries(value, hint) if hasattr(hint, "__annotations__") else plain(value)

    def _entries(self, value: Any, cls: type) -> dict[str, Any]:
        value = value.thinned() if hasattr(value, "thinned") else value
        return {name: self.write(getattr(value, name), hint) for name, hint in _fields(cls).items()}

    def _aside(self, value: Any) -> dict[str, int]:
        self.objects.append(value)
        return {"object": len(self.objects) - 1}

    def read(self, hint: Any, data: Any, where: str, axes: dict[str, int]) -> Any:
        """The value that `write` has described; ``axes`` are the lengths that its object has named so far."""
        hint, marks, optional = _parsed(hint)
        classes, origin = _classes(hint, marks), get_origin(hint)
        if data is None and optional:
            return None
        if classes is not None:
            return self._one_of(classes, data, where, marks)
        if origin in (Union, UnionType):
            for option in get_args(hint):  # the first type that fits
                try:
                    return self.read(option, data, where, {})
                except ModelFileError:
                    continue
            raise ModelFileError(f"its {where} is of no known kind")
        if origin is np.ndarray:
            return _array(data, _dtype(hint), where, marks, axes)
        if origin is tuple:
            return self._tuple(hint, data, where, axes)
        if origin in (dict, Mapping):
            _require(isinstance(data, dict), where, "is no table of entries")
            return {name: self.read(get_args(hint)[1], item, f"{where}.{name}", {}) for name, item in data.items()}
        if origin in (Literal, type):
            options = get_args(hint) if origin is Literal else subclasses(get_args(hint)[0])
            known = {getattr(option, "__name__", option): option for option in options}
            _require(isinstance(data, str) and data in known, where, "is of no known kind")
            return known[data]
        if hint is csc_array:
            return _sparse(data, where)
        if hint is Notion:
            if isinstance(data, str) and (data in NOTIONS or data == "own"):
                return weighted_notions({data: 1.0})[0][0]
            kept = self._kept(data, where) if isinstance(data, dict) and "object" in data else None
            _require(isinstance(kept, Notion), where, "is of no known kind")
            return kept
        return _scalar(hint, data, where, marks) if hint in _SCALARS else self._object(hint, data, where)

    def _object(self, cls: type, data: Any, where: str) -> Any:
        """An object by its fields."""
        _require(isinstance(data, dict), where, "is no table of entries")
        hints, axes, values = _fields(cls), dict[str, int](), dict[str, Any]()
        for name in data:
            _require(name in hints, f"{where}.{name}", "is unknown: update evenout")
        for name, hint in hints.items():
            _require(name in data, f"{where}.{name}", "is missing")
            values[name] = self.read(hint, data[name], f"{where}.{name}", axes)
        made = sound(where, lambda: cls(**values))
        if hasattr(made, "check"):
            sound(where, made.check)
        return made

    def _one_of(self, classes: Mapping[str, type], data: Any, where: str, marks: tuple[Any, ...]) -> Any:
        """An object of one of several classes; or one of the ``objects``, or a text, where that is allowed."""
        texts = next((mark for mark in marks if isinstance(mark, tuple)), None)
        if texts is not None and isinstance(data, str):
            _require(data in texts, where, "is of no known kind")
            return data
        _require(isinstance(data, dict), where, "is no table of entries")
        if "object" in data and "kind" not in data:
            return self._kept(data, where)
        kind = data.get("kind")
        _require(isinstance(kind, str) and kind in classes, f"{where}.kind", "is of no known kind")
        return self._object(classes[kind], {name: item for name, item in data.items() if name != "kind"}, where)

    def _kept(self, data: dict[str, Any], where: str) -> Any:
        number = _scalar(int, data["object"], f"{where}.object", (Within(0, max(len(self.objects) - 1, 0)),))
        _require(number < len(self.objects), f"{where}.object", "is missing")
        return self.objects[number]

    def _tuple(self, hint: Any, data: Any, where: str, axes: dict[str, int]) -> Any:
        shape, types = _items(hint, data if isinstance(data, list) else ())
        if shape is not None:
            names = " ".join("*" if n < 0 else str(n) for n in shape)
            values = _array(data, np.dtype(np.int64), where, (names,), {}).tolist()
            return tuple(map(tuple, values)) if len(shape) > 1 else tuple(values)
        _require(isinstance(data, list), where, "is no list")
        _require(len(types) == len(data), where, "has the wrong length")
        items = zip(types, data, strict=True)
        return tuple(self.read(of, item, f"{where}[{i}]", axes) for i, (of, item) in enumerate(items))


def sound(where: str, make: Any) -> Any:
    """Call ``make``; any exception that damaged data cause there becomes a `ModelFileError` of one line."""
    try:
        return make()
    except UnsoundError as error:
        raise ModelFileError(f"its {where}.{error.name} {error.fault}") from None
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"its {where} has no solution ({type(error).__name__})") from error


def _require(holds: Any, where: str, fault: str) -> None:
    if not holds:
        raise ModelFileError(f"its {where} {fault}")


def subclasses(cls: type) -> list[type]:
    """A class and all below it."""
    children: list[type] = cls.__subclasses__()
    return [cls, *(below for child in children for below in subclasses(child))]


def _scalar(kind: type, data: Any, where: str, marks: tuple[Any, ...]) -> Any:
    allowed = (int, float) if kind is float else kind
    _require(isinstance(data, allowed) and (kind is bool or not isinstance(data, bool)), where, _SCALARS[kind])
    if kind is str:
        texts = next((mark for mark in marks if isinstance(mark, tuple)), None)
        _require(texts is None or data in texts, where, "is of no known kind")
    elif kind is not bool:
        _require(isinstance(data, float) or abs(data) <= sys.float_info.max, where, "is out of range")
        _require(FINITE not in marks or np.isfinite(float(data)), where, "is not finite")
        for bounds in [*(mark for mark in marks if isinstance(mark, Within)), *([_SIZES] if kind is int else [])]:
            _require(data != data or bounds.low <= data <= bounds.high, where, "is out of range")
    return data


def _array(data: Any, dtype: np.dtype[Any], where: str, marks: tuple[Any, ...], axes: dict[str, int]) -> AnyArray:
    _require(isinstance(data, np.ndarray) and data.dtype == dtype, where, "is no such array")
    names = next((mark.split() for mark in marks if isinstance(mark, str)), None)
    _require(data.ndim > 0 if names is None else data.ndim == len(names), where, "has the wrong shape")
    for name, length in zip(names or (), data.shape, strict=names is not None):
        wanted = int(name) if name.isdigit() else length if name == "*" else axes.setdefault(name, length)
        _require(length == wanted, where, "has the wrong shape")
    _require(ANY in marks or dtype.kind != "f" or np.isfinite(data).all(), where, "is not finite")
    for bounds in (mark for mark in marks if isinstance(mark, Within)):
        _require(((bounds.low <= data) & (data <= bounds.high)).all(), where, "is out of range")
    return np.ascontiguousarray(data)


def _sparse(data: Any, where: str) -> csc_array:
    """A sparse array by columns, of no negative entries; rows are in order within each column."""
    _require(isinstance(data, dict) and {*data} == {"starts", "rows", "share", "n_rows"}, where, "is no such array")
    n = _scalar(int, data["n_rows"], f"{where}.n_rows", (Within(0, MOST_ROWS),))
    whole, axes = np.dtype(np.int64), dict[str, int]()
    rows = _array(data["rows"], whole, f"{where}.rows", ("e", Within(0, n - 1)), axes)
    share = _array(data["share"], np.dtype(float), f"{where}.share", ("e", Within()), axes)
    starts = _array(data["starts"], whole, f"{where}.starts", ("*", Within(0, len(rows))), axes)
    ends = len(starts) > 0 and starts[0] == 0 and starts[-1] == len(rows)
    _require(ends and (np.diff(starts) >= 0).all(), f"{where}.starts", "are not in order")
    inside = np.diff(rows) > 0
    inside[starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] < len(rows))] - 1] = True
    _require(inside.all(), f"{where}.rows", "are not in order")
    return csc_array((share, rows, starts), shape=(n, len(starts) - 1))
