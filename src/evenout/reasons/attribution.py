"""Base and fair score of each row, split over the features of the table."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evenout.core.compiled import map_blocks
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.adapt import GroupAware
from evenout.detectors.named import OWN
from evenout.fitting.background import CROWD
from evenout.fitting.result import FitResult
from evenout.reasons.mixtures import Crowd, Mixtures, column_features, crowd_of, is_by_feature, mixed_scores
from evenout.reasons.orders import Orders

_NUMBERS = 2**21  # held at a time


@dataclass(frozen=True)
class Resembling:
    """What the fair score takes off or adds for resembling groups; a row that tells nothing of its group gets 0.

    Parameters
    ----------
    names : tuple of str
        Of the G groups.
    likeness : array of shape (m, G)
        How much each row resembles each group, 1 where it tells nothing.
    added : array of shape (m, G)
        What each row gets for that.
    by_feature : array of shape (m, p)
        What each feature adds to the sum of that, beside the typical row of all rows.
    """

    names: tuple[str, ...]
    likeness: FloatArray
    added: FloatArray
    by_feature: FloatArray

    def most(self, total: FloatArray) -> tuple[IntArray, FloatArray]:
        """The group that each row gets most for, in the direction of its total (m,), and how much it resembles it.

        Groups that it does resemble come before those that it does not.
        """
        towards = np.sign(total)[:, None] * self.added
        alike = np.where(self.likeness >= 1.0, towards, -np.inf)
        group = np.where(alike.max(axis=1) > 0.0, alike.argmax(axis=1), towards.argmax(axis=1))
        return group, self.likeness[np.arange(len(group)), group]


@dataclass(frozen=True)
class Parts:
    """Scores and their parts; the last axis is base score, fair score.

    Parameters
    ----------
    scores, typical : arrays of shape (m, 2)
        Of the rows, and of the typical rows beside them, as if these told nothing of their group.
    parts : array of shape (m, p, 2), or (m, p + 1, 2)
        What each feature adds and, last, resemblance, where the score is corrected by that:
        ``parts.sum(axis=1) == scores - typical``.
    error : array of the same shape
        Standard errors of the parts, from sampling orders; 0 where all were taken.
    resembling : Resembling or None
    """

    scores: FloatArray
    typical: FloatArray
    parts: FloatArray
    error: FloatArray
    resembling: Resembling | None = None


@dataclass(frozen=True, eq=False)
class Attribution:
    """A fitted model, ready to split scores.

    Parameters
    ----------
    result : FitResult
    player : array of int, shape (d,)
        The feature of the table, of p, that each column of X belongs to.
    orders : Orders
    """

    result: FitResult
    player: IntArray
    orders: Orders

    def split(self, X: FloatArray, typical: FloatArray, *, sensitive_features: Any = None, n_threads: int = 1) -> Parts:
        """Scores of rows (m, d), less those of typical rows (m, d) or (1, d), and their parts.

        Rows are worked on in blocks: the mixtures of all are never held.
        """
        pool = self.result.scores.pool
        own = None
        if any(isinstance(part, GroupAware) for part in pool.parts) and sensitive_features is not None:
            own = np.asarray(sensitive_features, dtype=object)
            typical = np.ascontiguousarray(np.broadcast_to(typical, X.shape))
        ends = [self._raw(rows, own, n_threads) for rows in (typical, X)]
        ends[0], typical = (np.broadcast_to(one, many.shape) for one, many in ((ends[0], ends[1]), (typical, X)))
        width = self.orders.p * CROWD + len(self.orders.taken) * ends[1].shape[1]
        found = map_blocks(
            lambda rows: self._block(
                X[rows], typical[rows], ends[0][rows], ends[1][rows], None if own is None else own[rows]
            ),
            n_rows=len(X),
            block=max(1, _NUMBERS // width),
            n_threads=n_threads,
        )
        acts = self._acts(X, typical)[:, :, None]  # what does not act has no part, not even by rounding
        parts, error = (np.where(acts, np.concatenate(each), 0.0) for each in zip(*found, strict=True))
        scores, usual = self._scores(ends[1]), self._scores(ends[0])
        model = self.result.scores.resemblance
        if model is None:
            return Parts(scores, usual, parts, error)
        n, weights = self.result.scores.n_detectors, self.result.mixture.weights
        likeness = model.of(X)
        both = self._scores(np.column_stack([ends[1][:, :n], likeness]))
        last = (both - scores)[:, None, :]
        added = -model.levelled(-weights[n:]) * (likeness - 1.0)
        told = Resembling(tuple(self.result.known), likeness, added, self._resembling(X, weights[n:]))
        return Parts(both, usual, np.append(parts, last, axis=1), np.append(error, 0.0 * last, axis=1), told)

    def _raw(self, X: FloatArray, groups: Any, n_threads: int) -> FloatArray:
        """Raw scores of rows by all detectors, and behind them 1 for each group, as if rows told nothing of theirs."""
        scores = self.result.scores
        raw = scores.pool.score(X, n_threads=n_threads, sensitive_features=groups)
        return np.column_stack([raw, np.ones((len(raw), scores.width - scores.n_detectors))])

    def _acts(self, X: FloatArray, typical: FloatArray) -> BoolArray:
        """Whether a part of the pool can see that a feature differs from its typical value, shape (m, p)."""
        pool = self.result.scores.pool
        acts = np.zeros((len(X), self.orders.p), dtype=bool)
        for inside in {isinstance(part, OWN) for part in pool.parts}:
            rows, usual = (pool.inside(each) if inside else each for each in (X, typical))
            player = self.player[pool.units.kept] if inside and pool.units is not None else self.player
            for column, feature in enumerate(player):
                acts[:, feature] |= rows[:, column] != usual[:, column]
        return acts

    def _block(
        self, X: FloatArray, typical: FloatArray, first: FloatArray, last: FloatArray, groups: Any
    ) -> tuple[FloatArray, FloatArray]:
        """Parts and errors of some rows; ``first`` and ``last`` are the raw scores of typical rows and rows, (m, k)."""
        weights = self._weights
        if weights is None:
            n = self.result.scores.n_detectors
            neutral = np.broadcast_to(first[:, None, n:], (len(X), len(self.orders.taken), first.shape[1] - n))
            each = [self.mixed(place, X, typical, first, last, groups) for place in self.columns]
            mixed = np.concatenate([*each, neutral], axis=2)
            # To the last digit, since ranks change at once: whatever is the row, or the typical one, has its score.
            taken, idle = self.orders.taken, ~self._acts(X, typical)[:, None, :]
            for end, same in ((first, ~taken | idle), (last, taken | idle)):
                mixed = np.where(same.all(axis=2, keepdims=True), end[:, None, :], mixed)
            both = self._scores(mixed.reshape(-1, mixed.shape[2])).reshape(*mixed.shape[:2], 2)
            return self.orders.parts(both)
        both = np.zeros((len(X), len(self.orders.taken), 2))
        lone = np.zeros((len(X), self.orders.p, 2))
        for place, columns in self.columns.items():
            part = self.result.scores.pool.parts[place]
            if is_by_feature(part):
                change = (last - first)[:, columns, None] * weights[columns]
                for c, player in enumerate(self._players(part)[column_features(part)]):
                    lone[:, player] += change[:, c]
            else:
                both += self.mixed(place, X, typical, first, last, groups) @ weights[columns]
        parts, error = self.orders.parts(both)
        return parts + lone, error

    def mixed(
        self, place: int, X: FloatArray, typical: FloatArray, first: FloatArray, last: FloatArray, groups: Any = None
    ) -> FloatArray:
        """Raw scores of one part of the pool at all mixtures, shape (m, L, columns), exact at the two ends.

        ``first`` and ``last`` are those of all parts at the ends, (m, k).
        """
        pool, columns = self.result.scores.pool, self.columns[place]
        part, player = pool.parts[place], self._players(pool.parts[place])
        first, last = first[:, None, columns], last[:, None, columns]
        if is_by_feature(part):
            return first + (last - first) * self.orders.taken[:, player[column_features(part)]]
        if isinstance(part, OWN):
            X, typical = pool.inside(X), pool.inside(typical)
        crowd = self._crowds.get(place)
        found = mixed_scores(part, Mixtures(X, typical, player, self.orders, groups), crowd)
        return found if crowd is None else self._matched(found, first, last)

    def _resembling(self, X: FloatArray, weights: FloatArray) -> FloatArray:
        """What each feature adds to what rows get for resembling groups, beside the typical row of all, shape (m, p).

        The rows most like a row resemble the same groups, so beside these nothing would be told.
        """
        model, background = self.result.scores.resemblance, self.result.background
        assert model is not None
        assert background is not None
        size = max(1, _NUMBERS // (len(self.orders.taken) * X.shape[1]))
        found = []
        for start in range(0, len(X), size):
            rows = X[start : start + size]
            mixtures = Mixtures(rows, np.broadcast_to(background.typical, rows.shape), self.player, self.orders)
            found.append(self.orders.parts(mixtures.joined(model.of(mixtures.rows()) @ weights))[0][:, :, 0])
        return np.concatenate(found)

    def _matched(self, found: FloatArray, first: FloatArray, last: FloatArray) -> FloatArray:
        """Scores by a crowd, moved to what they are at the ends; features share the difference by size of part."""
        size = np.abs(self.orders.parts(found)[0])
        total = size.sum(axis=1, keepdims=True)
        share = np.divide(size, total, out=np.full_like(size, 1.0 / self.orders.p), where=total > 0)
        begin = first - found[:, :1]
        gap = (last - found[:, self.orders.end : self.orders.end + 1]) - begin
        return found + begin + gap * (self.orders.taken @ share)

    def _players(self, part: Any) -> IntArray:
        """The features of the table that the columns belong to which a part of the pool sees."""
        units = self.result.scores.pool.units
        return self.player if units is None or not isinstance(part, OWN) else self.player[units.kept]

    def _scores(self, raw: FloatArray) -> FloatArray:
        """Base and fair score of raw scores (m, k), shape (m, 2)."""
        S, t = self.result.scores.of_raw(raw)
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
        slope = np.append(slope, np.ones(len(mixture.weights) - len(slope)))  # resemblance is not scaled
        return np.column_stack([base, mixture.target * base + mixture.weights]) * slope[:, None]

    @cached_property
    def columns(self) -> dict[int, slice]:
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
        found = {place: crowd_of(part, self.orders) for place, part in enumerate(self.result.scores.pool.parts)}
        return {place: crowd for place, crowd in found.items() if crowd is not None}
