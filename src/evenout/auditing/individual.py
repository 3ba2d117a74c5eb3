"""Individual unfairness of resamples: a sum over pairs of rows, so on at most a thousand rows or so."""

from collections.abc import Callable
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from evenout.auditing.measures import Values
from evenout.core.similarity import LengthScale
from evenout.core.types import FloatArray, IntArray
from evenout.metrics import individual_unfairness

MAX_ROWS = 20_000  # rows in the value itself, whose cost is their square
_PAIR_ROWS = 1_000  # rows in the resamples
_BATCH = 250  # resamples at once


class PairMeasures:
    """Individual unfairness of a sample of the rows, for any weights of the rows in each group.

    As in `evenout.metrics.individual_unfairness`, with the likeness fixed to that of the rows as they are:
    ``sum M_ij (y_i - y_j)^2 / (n_p n_q)`` and ``sum M (y_i - y_j)^2 / sum M / Var(y)``, means over pairs of groups.

    Parameters
    ----------
    scores : array of shape (m,)
    rows : array of shape (m, d)
        Features as of `evenout.core.similarity.comparable_rows`.
    groups : array of shape (m,)
    n_groups : int
    scale : "minmax" or float
    clusters : array of shape (m,), optional
        Rows with the same code, all of one group, are drawn and shuffled together; each row by itself if left out.
    """

    def __init__(
        self,
        scores: FloatArray,
        rows: FloatArray,
        groups: IntArray,
        n_groups: int,
        scale: Literal["minmax"] | float,
        clusters: IntArray | None = None,
    ) -> None:
        self.groups, self.n_groups = groups, n_groups
        given = np.arange(len(groups)) if clusters is None else clusters
        _, self._first, self._unit_of = np.unique(given, return_index=True, return_inverse=True)
        self._z = (scores - scores.mean()) / (scores.std() or 1.0)
        self._unit = float(scores.std()) or 1.0
        self._similar = _likeness(rows, groups, scale)
        self._squared = self._similar * (self._z[:, None] - self._z) ** 2

    def __call__(self, weights: FloatArray) -> Values:
        """Measures for weights of shape (b, G, m), arrays of shape (b, 1)."""
        total = weights.sum(axis=1)
        n = total.sum(axis=1)
        variance = np.maximum(total @ self._z**2 / n - (total @ self._z / n) ** 2, 0.0)
        raw, free = np.zeros(len(weights)), np.zeros(len(weights))
        pairs = list(combinations(range(self.n_groups), 2))
        for p in range(self.n_groups - 1):
            mass, squared = weights[:, p] @ self._similar, weights[:, p] @ self._squared
            for q in range(p + 1, self.n_groups):
                gap = np.einsum("bm,bm->b", squared, weights[:, q])
                raw += gap / (weights[:, p].sum(axis=1) * weights[:, q].sum(axis=1)) / len(pairs)
                alike = np.einsum("bm,bm->b", mass, weights[:, q])
                free += gap / np.maximum(alike, np.finfo(float).tiny) / len(pairs)
        scale_free = np.where(variance > 0, free, np.nan) / np.where(variance > 0, variance, 1.0)
        return {
            "individual_unfairness_raw": self._unit**2 * raw[:, None],
            "individual_unfairness": scale_free[:, None],
        }

    def value(self) -> Values:
        """Measures of the sampled rows themselves."""
        return self(self._indicator(self.groups[None]))

    def bootstrap(self, size: int, rng: np.random.Generator) -> Values:
        """Measures of resamples, drawn within each group with replacement."""
        owner = self.groups[self._first]

        def weights(batch: int) -> FloatArray:
            times = np.zeros((batch, len(owner)))
            for group in range(self.n_groups):
                units = np.flatnonzero(owner == group)
                times[:, units] = rng.multinomial(len(units), np.full(len(units), 1 / len(units)), size=batch)
            return self._indicator(self.groups[None]) * times[:, None, self._unit_of]

        return self._in_batches(weights, size)

    def permutations(self, size: int, rng: np.random.Generator) -> Values:
        """Measures with the group labels shuffled."""
        owner = self.groups[self._first]

        def weights(batch: int) -> FloatArray:
            return self._indicator(rng.permuted(np.tile(owner, (batch, 1)), axis=1)[:, self._unit_of])

        return self._in_batches(weights, size)

    def _in_batches(self, weights: Callable[[int], FloatArray], size: int) -> Values:
        parts = [self(weights(min(_BATCH, size - start))) for start in range(0, size, _BATCH)]
        return {
            name: np.concatenate([np.empty((0, 1)), *(part[name] for part in parts)])
            for name in ("individual_unfairness_raw", "individual_unfairness")
        }

    def _indicator(self, groups: IntArray) -> FloatArray:
        return (groups[:, None] == np.arange(self.n_groups)[:, None]).astype(float)


def pair_rows(groups: IntArray, units: IntArray, n_groups: int, rng: np.random.Generator) -> IntArray:
    """Rows for `PairMeasures`: all of them if few, else those of some units, whole, with the groups' shares.

    ``units`` has a code for every row: clusters, or the rows themselves.
    """
    codes, first = np.unique(units, return_index=True)
    limit = pair_limit(n_groups) * len(codes) // len(units)
    chosen = sample_rows(groups[first], n_groups, limit, rng)
    return np.flatnonzero(np.isin(units, codes[chosen]))


def pair_limit(n_groups: int) -> int:
    """Rows in the resamples: fewer for many groups, so that the work stays the same."""
    return int(_PAIR_ROWS * np.sqrt(2 / n_groups))


def sample_rows(groups: IntArray, n_groups: int, limit: int, rng: np.random.Generator) -> IntArray:
    """At most ``limit`` rows (but two of each group), drawn within each group in proportion, ascending."""
    if len(groups) <= limit:
        return np.arange(len(groups))
    parts = []
    for group in range(n_groups):
        rows = np.flatnonzero(groups == group)
        parts.append(rng.choice(rows, max(min(2, len(rows)), len(rows) * limit // len(groups)), replace=False))
    return np.sort(np.concatenate(parts))


def individual_values(scores: FloatArray, X: FloatArray, groups: IntArray, length_scale: LengthScale) -> Values:
    """Raw and scale-free individual unfairness of the rows, arrays of shape (1, 1)."""
    raw, free = (
        individual_unfairness(scores, X, sensitive_features=groups, scale_free=scale_free, length_scale=length_scale)
        for scale_free in (False, True)
    )
    return {"individual_unfairness_raw": np.array([[raw]]), "individual_unfairness": np.array([[free]])}


def _likeness(rows: FloatArray, groups: IntArray, scale: Literal["minmax"] | float) -> FloatArray:
    """``M_ij``, of all pairs of rows; the published range of distances is that between different groups."""
    distance = cdist(rows, rows)
    if scale != "minmax":
        return np.exp(-distance / scale)
    across = distance[groups[:, None] != groups]
    width = np.ptp(across)
    return np.exp(-(distance - across.min()) / width) if width > 0 else np.ones_like(distance)
