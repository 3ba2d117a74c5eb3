"""What a saved field may hold, said beside its type; files are read by it (`evenout.storage.walker`).

An annotation may name the axes of an array, ``Annotated[FloatArray, "n k"]``: within one object the same name is the
same length, a number is itself and ``*`` any length. `Within` bounds a number or every entry of an array. `FINITE` is
for numbers and `ANY` for arrays: by default a number may be NaN, as where nothing is known, and an array may not. A
tuple has the texts that are allowed, and a dict the classes that may stand there, by their ``kind``.

What fields have to do with each other is said by ``check()`` of the class.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
    """What is refused in this block is an entry of the part ``name``."""
    try:
        yield
    except UnsoundError as error:
        raise UnsoundError(f"{name}.{error.name}", error.fault) from None
