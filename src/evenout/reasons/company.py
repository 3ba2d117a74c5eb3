"""The company of a row: the training rows most like it, and what is typical among them.

A row that is unusual in one feature is beside ordinary rows in all others. Held against these, and not against the
middle of all rows, it is told by that feature and no other: where one or two features of a row had been changed, this
named them first more often than the middle of all rows, or the loss of a feature, did (`benchmarks/reasons.py`).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.units import Units
from evenout.fitting.background import Background, category_runs

COMPANY = 30
SATURATED = 2.0  # spreads beyond which a feature makes two rows no less alike: one odd value has no say in the rest
_ROWS = 64  # compared at a time


@dataclass(frozen=True, eq=False)
class Company:
    """Finds the typical row among those most like a row; groups play no part."""

    background: Background

    @property
    def size(self) -> int:
        """How many rows it is made of."""
        return min(COMPANY, max(1, len(self.background.crowd) // 4))

    def similar(self, X: FloatArray) -> IntArray:
        """Places of the company of each row in the crowd, shape (m, size)."""
        return np.concatenate([self._block(X[start : start + _ROWS]) for start in range(0, len(X), _ROWS)])

    def typical(self, X: FloatArray, similar: IntArray | None = None) -> FloatArray:
        """Medians of the company of each row, and its most frequent categories, shape (m, d)."""
        similar = self.similar(X) if similar is None else similar
        return np.concatenate([self._middle(similar[start : start + _ROWS]) for start in range(0, len(X), _ROWS)])

    def _middle(self, similar: IntArray) -> FloatArray:
        near = self.background.crowd[similar]
        middle = np.partition(near, (self.size - 1) // 2, axis=1)[:, (self.size - 1) // 2]
        for start, stop in self._runs:
            most = near[:, :, start:stop].sum(axis=1).argmax(axis=1)
            middle[:, start:stop] = np.arange(stop - start) == most[:, None]
        return middle

    def _block(self, X: FloatArray) -> IntArray:
        from evenout.reasons._reason_kernels import saturated_distances

        units, inside = self._inside
        distance = np.empty((len(X), len(self.background.crowd)))
        saturated_distances(units.apply(X), inside, SATURATED, distance)
        own = (distance.min(axis=1) == 0.0) & (self.background.crowd[distance.argmin(axis=1)] == X).all(axis=1)
        distance[own, distance[own].argmin(axis=1)] = np.inf  # the row itself
        return np.argpartition(distance, self.size - 1, axis=1)[:, : self.size]

    @cached_property
    def _inside(self) -> tuple[Units, FloatArray]:
        """Units in which rows are compared, and the crowd in them, by column."""
        units = Units.fit(self.background.crowd)
        return units, np.ascontiguousarray(units.apply(self.background.crowd).T)

    @cached_property
    def _runs(self) -> list[tuple[int, int]]:
        return category_runs(self.background.crowd)
