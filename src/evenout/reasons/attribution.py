"""Base and fair score of each row, split over the features of the table."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evenout.core.compiled import map_blocks
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.adapt import GroupAware
from evenout.detectors.named import OWN
from evenout.fitting.result import FitResult
from evenout.reasons.mixtures import CROWD, Crowd, Mixtures, column_features, crowd_of, is_by_feature, mixed_scores
from evenout.reasons.orders import Orders

_NUMBERS = 2**21  # held at a time


@dataclass(frozen=True)
class Parts:
    """Scores and their parts; the last axis is base score, fair score.

    Parameters
    ----------
    scores, typical : arrays of shape (m, 2)
        Of the rows, and of the typical row in their place.
    parts : array of shape (m, p, 2)
        What each feature adds: ``parts.sum(axis=1) == scores - typical``.
    error : array of shape (m, p, 2)
        Standard errors of the parts, from sampling orders; 0 where all were taken.
    """

    scores: FloatArray
    typical: FloatArray
    parts: FloatArray
    error: FloatArray


@dataclass(frozen=True, eq=False)
class Attribution:
    """A fitted model, ready to split scores.

    Parameters
    ----------
    result : FitResult
    typical : array of shape (d,)
    player : array of int, shape (d,)
        The feature of the table, of p, that each column of X belongs to.
    orders : Orders
    """

    result: FitResult
    typical: FloatArray
    player: IntArray
    orders: Orders

    def split(self, X: FloatArray, *, sensitive_features: Any = None, n_threads: int = 1) -> Parts:
        """Scores of rows of shape (m, d) and their parts, by blocks of rows: the mixtures of all are never held."""
        pool = self.result.scores.pool
        groups = None if sensitive_features is None else np.asarray(sensitive_features, dtype=object)
        own = groups if any(isinstance(part, GroupAware) for part in pool.parts) else None
        first = self.typical[None] if own is None else np.repeat(self.typical[None], len(X), axis=0)
        ends = [
            pool.score(rows, n_threads=n_threads, sensitive_features=sensitive_features)
            for rows in (np.ascontiguousarray(first), X)
        ]
        ends[0] = np.broadcast_to(ends[0], ends[1].shape)
        width = self.orders.p * CROWD + len(self.orders.taken) * ends[1].shape[1]
        found = map_blocks(
            lambda rows: self._block(X[rows], ends[0][rows], ends[1][rows], None if own is None else own[rows]),
            n_rows=len(X),
            block=max(1, _NUMBERS // width),
            n_threads=n_threads,
        )
        parts, error = (np.concatenate(each) for each in zip(*found, strict=True))
        return Parts(self._scores(ends[1]), self._scores(ends[0]), parts, error)

    def _block(self, X: FloatArray, typical: FloatArray, raw: FloatArray, groups: Any) -> tuple[FloatArray, FloatArray]:
        """Parts and errors of some rows; ``typical`` and ``raw`` are the raw scores at the two ends, (m, k)."""
        weights = self._weights
        if weights is None:
            mixed = np.concatenate([self._mixed(place, X, typical, raw, groups) for place in self._columns], axis=2)
            both = self._scores(mixed.reshape(-1, mixed.shape[2])).reshape(*mixed.shape[:2], 2)
            return self.orders.parts(both)
        both, lone = np.zeros((len(X), len(self.orders.taken), 2)), np.zeros((len(X), self.orders.p, 2))
        for place, columns in self._columns.items():
            part = self.result.scores.pool.parts[place]
            if is_by_feature(part):
                change = (raw - typical)[:, columns, None] * weights[columns]
                for c, feature in enumerate(column_features(part, self._inside(part)[0].shape[0])):
                    lone[:, self._inside(part)[1][feature]] += change[:, c]
            else:
                both += self._mixed(place, X, typical, raw, groups) @ weights[columns]
        parts, error = self.orders.parts(both)
        return parts + lone, error

    def _mixed(self, place: int, X: FloatArray, typical: FloatArray, raw: FloatArray, groups: Any) -> FloatArray:
        """Raw scores of one part of the pool at all mixtures, shape (m, L, columns), exact at the two ends."""
        part, columns = self.result.scores.pool.parts[place], self._columns[place]
        start, player = self._inside(part)
        rows = self.result.scores.pool.inside(X) if isinstance(part, OWN) else X
        typical, raw = typical[:, None, columns], raw[:, None, columns]
        if is_by_feature(part):
            of = player[column_features(part, len(start))]
            return typical + (raw - typical) * self.orders.taken[:, of]
        crowd = self._crowds.get(place)
        found = mixed_scores(part, Mixtures(rows, start, player, self.orders, groups), crowd)
        return found if crowd is None else self._matched(found, typical, raw)

    def _matched(self, found: FloatArray, typical: FloatArray, raw: FloatArray) -> FloatArray:
        """Scores by a crowd, moved to what they are at the ends; features share the difference by size of part."""
        size = np.abs(self.orders.parts(found)[0])
        total = size.sum(axis=1, keepdims=True)
        share = np.divide(size, total, out=np.full_like(size, 1.0 / self.orders.p), where=total > 0)
        begin = typical - found[:, :1]
        gap = (raw - found[:, self.orders.end : self.orders.end + 1]) - begin
        return found + begin + gap * (self.orders.taken @ share)

    def _inside(self, part: Any) -> tuple[FloatArray, IntArray]:
        """The typical row as a part of the pool sees it, and the features of the table that its columns belong to."""
        units = self.result.scores.pool.units
        if units is None or not isinstance(part, OWN):
            return self.typical, self.player
        return units.apply(self.typical[None])[0], self.player[units.kept]

    def _scores(self, raw: FloatArray) -> FloatArray:
        """Base and fair score of raw scores (m, k), shape (m, 2)."""
        S = self.result.scores.scaling.transform(raw)
        t = self.result.scores.base(S)
        return np.column_stack([t, self.result.mixture.apply(S, t)])

    @cached_property
    def _weights(self) -> FloatArray | None:
        """Of the raw scores in base and fair score, shape (k, 2), where both are linear in them; else None."""
        scores, mixture = self.result.scores, self.result.mixture
        base, scaling = scores.base_weights(), scores.scaling
        if base is None or scaling.kind not in ("minmax", "zscore"):
            return None
        unit = scaling.high - scaling.low if scaling.kind == "minmax" else scaling.std
        slope = np.divide(1.0, unit, out=np.zeros_like(unit), where=scaling.varies)
        return np.column_stack([base, mixture.target * base + mixture.weights]) * slope[:, None]

    @cached_property
    def _columns(self) -> dict[int, slice]:
        """The columns of each part of the pool."""
        found, first, pool = {}, 0, self.result.scores.pool
        for place, part in enumerate(pool.parts):
            names = getattr(part, "width", None) or len(getattr(part, "names", " "))
            last = len(pool.names) if place == len(pool.parts) - 1 else first + names
            found[place] = slice(first, last)
            first = last
        return found

    @cached_property
    def _crowds(self) -> dict[int, Crowd]:
        found = {place: crowd_of(part) for place, part in enumerate(self.result.scores.pool.parts)}
        return {place: crowd for place, crowd in found.items() if crowd is not None}
