"""Access to what a model file holds: nothing is believed before its type, shape and range have been checked."""

import sys
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from evenout.core.types import AnyArray, BoolArray, FloatArray, IntArray
from evenout.storage.archive import ModelFileError

Shape = tuple[int | None, ...]


class Fields:
    """One dict of a model file.

    Every method returns the entry ``name``, or raises a `ModelFileError` that names it. A shape has None for a length
    that may be any; ranges include both ends.
    """

    def __init__(self, data: Any, where: str = "model") -> None:
        self._where = where
        if not isinstance(data, dict):
            raise ModelFileError(f"its {where} is no table of entries")
        self._data = data

    def __contains__(self, name: str) -> bool:
        return self._data.get(name) is not None

    @property
    def entries(self) -> dict[str, Any]:
        """All entries, as they are."""
        return self._data

    def joined(self, more: dict[str, Any]) -> "Fields":
        """The same with more entries."""
        return Fields(self._data | more, self._where)

    def names(self) -> list[str]:
        """The names of the entries."""
        return list(self._data)

    def raw(self, name: str) -> Any:
        """The entry as it is."""
        self.require(name in self._data, name, "is missing")
        return self._data[name]

    def require(self, holds: Any, name: str, fault: str) -> None:
        """Refuse the file, because of entry ``name``, unless ``holds``."""
        if not holds:
            raise ModelFileError(f"its {self._where}.{name} {fault}")

    def fields(self, name: str) -> "Fields":
        """A dict."""
        return Fields(self.raw(name), f"{self._where}.{name}")

    def items(self, name: str) -> list[Any]:
        """A list."""
        value = self.raw(name)
        self.require(isinstance(value, list), name, "is no list")
        return list(value)

    def parts(self, name: str) -> list["Fields"]:
        """A list of dicts."""
        return [Fields(item, f"{self._where}.{name}[{i}]") for i, item in enumerate(self.items(name))]

    def text(self, name: str, allowed: Collection[str] | None = None) -> str:
        """Text, one of ``allowed`` if given."""
        value = self.raw(name)
        self.require(isinstance(value, str), name, "is no text")
        self.require(allowed is None or value in allowed, name, "is of no known kind")
        return str(value)

    def texts(self, name: str, length: int | None = None) -> tuple[str, ...]:
        """A list of text, not empty."""
        values = self.items(name)
        self.require(all(isinstance(value, str) for value in values), name, "is no list of text")
        self.require(len(values) == (length or max(1, len(values))), name, "has the wrong length")
        return tuple(values)

    def number(self, name: str, *, finite: bool = True) -> float:
        """A number."""
        value = self.raw(name)
        self.require(isinstance(value, int | float) and not isinstance(value, bool), name, "is no number")
        self.require(isinstance(value, float) or abs(value) <= sys.float_info.max, name, "is out of range")
        self.require(not finite or np.isfinite(float(value)), name, "is not finite")
        return float(value)

    def whole(self, name: str, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        value = self.raw(name)
        self.require(isinstance(value, int) and not isinstance(value, bool), name, "is no whole number")
        self.require(low <= value <= high, name, "is out of range")
        return int(value)

    def flag(self, name: str) -> bool:
        """A truth value."""
        value = self.raw(name)
        self.require(isinstance(value, bool), name, "is no truth value")
        return bool(value)

    def floats(self, name: str, *shape: int | None) -> FloatArray:
        """An array of finite float64."""
        values = self._array(name, np.float64, shape)
        self.require(np.isfinite(values).all(), name, "is not finite")
        return values

    def array(self, name: str) -> FloatArray:
        """An array of finite float64, of any shape but that of a single number."""
        values = self.raw(name)
        shape = (None,) * max(np.ndim(values), 1)
        return self.floats(name, *shape)

    def bytes(self, name: str) -> bytes:
        """An array of bytes."""
        return self._array(name, np.uint8, (None,)).tobytes()

    def flags(self, name: str, *shape: int | None) -> BoolArray:
        """An array of truth values."""
        return self._array(name, np.bool_, shape)

    def integers(self, name: str, *shape: int | None, low: int, high: int, dtype: npt.DTypeLike = np.int64) -> IntArray:
        """An array of integers in [low, high]."""
        values = self._array(name, dtype, shape)
        self.require(((low <= values) & (values <= high)).all(), name, "is out of range")
        return values

    def _array(self, name: str, dtype: npt.DTypeLike, shape: Shape) -> AnyArray:
        values = self.raw(name)
        self.require(isinstance(values, np.ndarray) and values.dtype == dtype, name, "is no such array")
        fits = values.ndim == len(shape) and all(
            want in (None, have) for want, have in zip(shape, values.shape, strict=True)
        )
        self.require(fits, name, "has the wrong shape")
        return np.ascontiguousarray(values)
