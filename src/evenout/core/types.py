"""Array types of the signatures, and marks for the values that a saved field may have.

`evenout.storage.walker` reads files by the annotations of a class. An annotation may name the axes of an array,
``Annotated[FloatArray, "n k"]``: within one object the same name is the same length, a number is itself and ``*`` any
length. `Within` bounds a number or every entry of an array. `FINITE` is for numbers and `ANY` for arrays: by default a
number may be NaN, for an unknown value, and an array may not. A tuple lists the texts that are allowed, and a dict the
classes, by their ``kind``. ``check()`` of a class requires that its fields go together.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.intp]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
AnyArray: TypeAlias = npt.NDArray[Any]

FINITE, ANY = object(), object()
MOST_ROWS = 2**53  # whole numbers up to here are exact in sums


@dataclass(frozen=True)
class Within:
    """Bounds of a number, both included."""

    low: float = 0
    high: float = math.inf


class UnsoundError(ValueError):
    """An entry that does not go with the others."""

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{name} {fault}")
        self.name, self.fault = name, fault


def require(holds: Any, name: str, fault: str) -> None:
    """Refuse an object, because of its entry ``name``, unless ``holds``."""
    if not holds:
        raise UnsoundError(name, fault)


@contextmanager
def entries_of(name: str) -> Iterator[None]:
    """Name the part ``name`` in the errors of this block."""
    try:
        yield
    except UnsoundError as error:
        raise UnsoundError(f"{name}.{error.name}", error.fault) from None
