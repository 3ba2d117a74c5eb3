"""Objects to plain data and back, by the annotated fields of their classes: nothing is written or read by hand.

A saved class is a dataclass, a named tuple, or any class whose constructor takes its annotated attributes by name.
`describe` writes its fields, `read` makes it anew after each of them was checked (`evenout.core.types`), and its
``check()``, where it has one, says whether they go together. Its ``thinned()``, where it has one, is what is written:
the object without what follows from its other fields. What is no plain data, such as a detector of another library, is
put aside among ``objects``, by number.
"""

import sys
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy.sparse import csc_array

from evenout.core.notions import Notion
from evenout.core.registry import NOTIONS, weighted_notions
from evenout.core.types import ANY, FINITE, MOST_ROWS, AnyArray, UnsoundError, Within
from evenout.storage.archive import ModelFileError, plain

T = TypeVar("T")
Names = Mapping[str, type]  # classes that annotations name in quotes

_SIZES = Within(-(2**63), 2**63 - 1)


def describe(value: Any, hint: Any = None, *, objects: list[Any] | None = None, names: Names | None = None) -> Any:
    """Plain data of a value that is annotated as ``hint``, by default as its own class."""
    return _Writer([] if objects is None else objects, names).write(value, type(value) if hint is None else hint)


def read(cls: type[T], data: Any, where: str, *, objects: Any = (), names: Names | None = None) -> T:
    """The object of a class that `describe` wrote; a `ModelFileError` in one line that names what does not fit."""
    with np.errstate(all="ignore"):
        made: T = _Reader(objects, names).read(cls, data, where, {})
    return made


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its marks, and these."""
    hint, marks = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
    alias = get_origin(hint)
    if type(alias).__name__ == "TypeAliasType":  # newer releases of numpy name NDArray so, which Python 3.11 cannot
        hint = alias.__value__[get_args(hint)]
    return hint, marks


def _kinds(hint: Any, marks: tuple[Any, ...]) -> Mapping[str, type] | None:
    """The classes that may stand in a place, by kind; None where the type alone says what it is."""
    if get_origin(hint) in (Union, UnionType):
        options = [option for option in get_args(hint) if hasattr(option, "kind")]
        if len(options) > 1:
            return {option.kind: option for option in options}
    given = next((mark for mark in marks if isinstance(mark, Mapping)), None)
    return {} if given is None and hint is Any else given


def _options(hint: Any) -> list[Any]:
    """The types of a union but None; of any other type itself."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [option for option in options if option is not NoneType]


def _whole_numbers(hint: Any) -> tuple[int | None, ...] | None:
    """The shape of the array that whole numbers are kept in; None for tuples of anything else."""
    inner, more = get_args(hint)[0], get_args(hint)[1:]
    if more != (...,):
        return None
    pair = get_origin(inner) is tuple and {*get_args(inner)} == {int}
    return (None,) if inner is int else (None, len(get_args(inner))) if pair else None


def _dtype(hint: Any) -> np.dtype[Any]:
    (scalar,) = get_args(get_args(hint)[1])
    return np.dtype(np.int64 if scalar is np.intp else scalar)


class _Walker:
    def __init__(self, objects: Any, names: Names | None) -> None:
        self.objects, self.names = objects, dict(names or {})
        self.fields = cache(self._fields)

    def _fields(self, cls: type) -> dict[str, Any]:
        hints = get_type_hints(cls, localns=self.names, include_extras=True)
        return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar and hint is not ClassVar}


class _Writer(_Walker):
    def write(self, value: Any, hint: Any) -> Any:
        hint, marks = _split(hint)
        kinds = _kinds(hint, marks)
        if value is None:
            return None
        if kinds is not None:
            kind = next((kind for kind, cls in kinds.items() if type(value) is cls), None)
            if kind is not None:
                return {"kind": kind, **self._each(value, kinds[kind])}
            return value if isinstance(value, str) else self._aside(value)
        options = _options(hint)
        if len(options) > 1:
            return plain(value)
        (hint, _), origin = _split(options[0]), get_origin(_split(options[0])[0])
        if origin is np.ndarray:
            return np.ascontiguousarray(value, dtype=_dtype(hint))
        if origin is tuple:
            shape = _whole_numbers(hint)
            if shape is not None:
                return np.array(value, dtype=np.int64).reshape([-1 if n is None else n for n in shape])
            inner = get_args(hint)
            each = [inner[0]] * len(value) if inner[1:] == (...,) else inner
            return [self.write(item, one) for item, one in zip(value, each, strict=True)]
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
        return self._each(value, hint) if isinstance(hint, type) and hasattr(hint, "__annotations__") else plain(value)

    def _each(self, value: Any, cls: type) -> dict[str, Any]:
        value = value.thinned() if hasattr(value, "thinned") else value
        return {name: self.write(getattr(value, name), hint) for name, hint in self.fields(cls).items()}

    def _aside(self, value: Any) -> dict[str, int]:
        self.objects.append(value)
        return {"object": len(self.objects) - 1}


class _Reader(_Walker):
    def read(self, hint: Any, data: Any, where: str, axes: dict[str, int]) -> Any:
        hint, marks = _split(hint)
        kinds = _kinds(hint, marks)
        if kinds is not None:
            return self._one_of(kinds, data, where, marks)
        options = _options(hint)
        if data is None and NoneType in get_args(hint):
            return None
        if len(options) > 1:
            return self._first(options, data, where)
        hint, more = _split(options[0])
        marks, origin = marks + more, get_origin(hint)
        if origin is np.ndarray:
            return _array(data, _dtype(hint), where, marks, axes)
        if origin is tuple:
            return self._tuple(hint, data, where, axes)
        if origin in (dict, Mapping):
            _require(isinstance(data, dict), where, "is no table of entries")
            return {name: self.read(get_args(hint)[1], item, f"{where}.{name}", {}) for name, item in data.items()}
        if origin is Literal:
            _require(isinstance(data, str) and data in get_args(hint), where, "is of no known kind")
            return next(known for known in get_args(hint) if known == data)
        if origin is type:
            known = {cls.__name__: cls for cls in subclasses(get_args(hint)[0])}
            _require(isinstance(data, str) and data in known, where, "is of no known kind")
            return known[data]
        if hint is csc_array:
            return _sparse(data, where)
        if hint is Notion:
            return self._notion(data, where)
        return _scalar(hint, data, where, marks) if hint in _SCALARS else self._object(hint, data, where)

    def _object(self, cls: type, data: Any, where: str) -> Any:
        """An object by its fields."""
        _require(isinstance(data, dict), where, "is no table of entries")
        hints, axes, values = self.fields(cls), dict[str, int](), dict[str, Any]()
        for name in data:
            _require(name in hints, f"{where}.{name}", "is unknown: update evenout")
        for name, hint in hints.items():
            _require(name in data, f"{where}.{name}", "is missing")
            values[name] = self.read(hint, data[name], f"{where}.{name}", axes)
        return sound(where, lambda: _checked(cls(**values)))

    def _one_of(self, kinds: Mapping[str, type], data: Any, where: str, marks: tuple[Any, ...]) -> Any:
        """An object of one of several classes; or one that was put aside, or a text, where that is allowed."""
        texts = next((mark for mark in marks if isinstance(mark, tuple)), None)
        if texts is not None and isinstance(data, str):
            _require(data in texts, where, "is of no known kind")
            return data
        _require(isinstance(data, dict), where, "is no table of entries")
        if "object" in data and "kind" not in data:
            return self._kept(data, where)
        kind = data.get("kind")
        _require(isinstance(kind, str) and kind in kinds, f"{where}.kind", "is of no known kind")
        return self._object(kinds[kind], {name: item for name, item in data.items() if name != "kind"}, where)

    def _kept(self, data: dict[str, Any], where: str) -> Any:
        place = _scalar(int, data["object"], f"{where}.object", (Within(0, max(len(self.objects) - 1, 0)),))
        _require(place < len(self.objects), f"{where}.object", "is missing")
        return self.objects[place]

    def _notion(self, data: Any, where: str) -> Notion:
        if isinstance(data, dict) and "object" in data:
            kept = self._kept(data, where)
            _require(isinstance(kept, Notion), where, "is of no known kind")
            return kept
        _require(isinstance(data, str) and (data in NOTIONS or data == "own"), where, "is of no known kind")
        return weighted_notions({data: 1.0})[0][0]

    def _first(self, options: list[Any], data: Any, where: str) -> Any:
        """By the first of several types that fits."""
        for option in options:
            try:
                return self.read(option, data, where, {})
            except ModelFileError:
                continue
        raise ModelFileError(f"its {where} is of no known kind")

    def _tuple(self, hint: Any, data: Any, where: str, axes: dict[str, int]) -> Any:
        shape, inner = _whole_numbers(hint), get_args(hint)
        if shape is not None:
            names = ("*" if n is None else str(n) for n in shape)
            values = _array(data, np.dtype(np.int64), where, (" ".join(names),), {})
            return tuple(tuple(row) for row in values.tolist()) if len(shape) > 1 else tuple(values.tolist())
        _require(isinstance(data, list), where, "is no list")
        each = [inner[0]] * len(data) if inner[1:] == (...,) else inner
        _require(len(each) == len(data), where, "has the wrong length")
        return tuple(
            self.read(one, item, f"{where}[{i}]", axes) for i, (one, item) in enumerate(zip(each, data, strict=True))
        )


def sound(where: str, make: Any) -> Any:
    """What ``make`` makes; whatever it says of data that no fit has left is a `ModelFileError` in one line."""
    try:
        return make()
    except UnsoundError as error:
        raise ModelFileError(f"its {where}.{error.name} {error.fault}") from None
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"its {where} has no solution ({type(error).__name__})") from error


def _checked(made: Any) -> Any:
    if hasattr(made, "check"):
        made.check()
    return made


def _require(holds: Any, where: str, fault: str) -> None:
    if not holds:
        raise ModelFileError(f"its {where} {fault}")


def subclasses(cls: type) -> list[type]:
    """A class and all below it."""
    children: list[type] = cls.__subclasses__()
    return [cls, *(below for child in children for below in subclasses(child))]


_SCALARS = {bool: "is no truth value", int: "is no whole number", float: "is no number", str: "is no text"}


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
