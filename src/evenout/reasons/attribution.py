"""Split a score over features by scoring mixtures of a row and a typical row.

A *mixture* takes some features from the row and all others from the typical row. With v(T) the score of the mixture
that takes the features T from the row, the part of feature j is its Shapley value

    part_j = mean over all orders of the features of  v(those before j, and j) - v(those before j):

what it adds to the score when the typical row is turned into this one, feature by feature, in no particular order.
Parts add up to ``v(all) - v(none)``, a feature at its typical value has the part 0, and features that do the same have
the same part.

Up to `ALL` features, all mixtures are scored. Beyond, at least `PAIRS` random orders are walked there and back:
features enter one by one and leave in the same order, which is the opposite order of entering. Where no more than two
features act together, one such pair is exact already (antithetic sampling; Mitchell et al. 2022). The orders are the
same for all rows, so that rows that hardly differ get reasons that hardly differ.

- *Trees*: all mixtures go down a tree in one list, parted where the row and the typical row part.
- *Distances and densities*: squared distances to a crowd change by one vector when a feature enters. The crowd is all
  training rows, or some of them, `CROWD` at least, with as many fewer neighbours: a detector on a sample. What that is
  off at the two ends, where the score is known, is shared out over the features by the size of their parts.
- *Tails* and ready scores: a column is one feature.
- *Other detectors* score the mixtures as rows.

A row that is unusual in one feature is beside ordinary rows in all others. Held against these, and not against the
middle of all rows, it is told by that feature and no other: where one or two features of a row had been changed, this
named them first more often than the middle of all rows, or the loss of a feature, did (`benchmarks/reasons.py`).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import comb
from typing import Any

import numpy as np

from evenout.core.parallel import map_blocks
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.adapt import GroupAware
from evenout.detectors.forest import Forest, average_path_length
from evenout.detectors.neighbours import Nearness, Neighbours, turned
from evenout.detectors.pool import OWN, Precomputed
from evenout.detectors.tails import Tails
from evenout.detectors.units import GRID, Units
from evenout.fitting.result import CROWD, Background, FitResult, category_runs

ALL = 10
PAIRS = 6
_MIXTURES = 256  # of few features, so many are scored at least
_SEED = 20240229


@dataclass(frozen=True, eq=False)
class Orders:
    """A walk over mixtures of p features, which begins at the typical row."""

    steps: IntArray  # (L - 1,): the features that enter or leave
    p: int
    pairs: int  # orders walked there and back; 0: the walk meets every mixture once

    @cached_property
    def taken(self) -> BoolArray:
        """Whether each mixture takes each feature from the row, shape (L, p)."""
        entered = np.zeros((len(self.steps) + 1, self.p), dtype=np.intp)
        entered[np.arange(1, len(entered)), self.steps] = 1
        return entered.cumsum(axis=0) % 2 == 1

    def parts(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Parts of the features and their standard errors, shape (m, p, c), of values at the mixtures, (m, L, c).

        The error is that of taking some orders for all, 0 where all mixtures were scored.
        """
        if not self.pairs:
            without, entered, weight = self._entries
            parts = np.einsum("ph,mphc->mpc", weight, values[:, entered] - values[:, without])
            return parts, np.zeros_like(parts)
        changes = np.diff(values, axis=1).reshape(len(values), self.pairs, 2, self.p, -1)
        each = (changes[:, :, 0] - changes[:, :, 1]) / 2.0  # entering, and leaving
        back = np.argsort(self.steps.reshape(self.pairs, 2, self.p)[:, 0], axis=1)
        each = np.take_along_axis(each, back[None, :, :, None], axis=2)
        return each.mean(axis=1), each.std(axis=1, ddof=1) / np.sqrt(self.pairs)

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """All mixtures without each feature, and with it, and the share of orders in which it enters so: (p, 2^p/2)."""
        number = self.taken @ (1 << np.arange(self.p))
        without = np.array([np.flatnonzero(~self.taken[:, j]) for j in range(self.p)])
        entered = np.argsort(number)[number[without] + (1 << np.arange(self.p))[:, None]]
        share = 1.0 / (self.p * np.array([comb(self.p - 1, size) for size in range(self.p)]))
        return without, entered, share[self.taken.sum(axis=1)[without]]


@lru_cache(maxsize=32)
def draw_orders(p: int, *, limit: int = ALL) -> Orders:
    """The walk for p features; of p alone, so that every model and every row of as many features has the same.

    >>> draw_orders(3).taken.astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1], [0, 0, 1]]
    """
    if p <= limit:  # Gray's code: the feature that changes is the place of the lowest 1 in the number of the step
        number = np.arange(1, 2**p)
        return Orders(np.log2(number & -number).astype(np.intp), p, 0)
    rng, pairs = np.random.default_rng(_SEED), max(PAIRS, _MIXTURES // (2 * p))
    orders = np.array([rng.permutation(p) for _ in range(pairs)])
    return Orders(np.repeat(orders, 2, axis=0).ravel(), p, pairs)


_LEAST = 3  # neighbours in a crowd
_DISTANCES = 2**18  # of mixtures to the crowd, for each row


@dataclass(frozen=True)
class Mixtures:
    """All mixtures of rows X (m, d) with the typical row (m, d) beside each, as a part of a pool sees them."""

    X: FloatArray
    typical: FloatArray
    player: IntArray  # (d,): which of the p features of the table each of these columns belongs to
    orders: Orders
    groups: Any = None  # (m,), for detectors that use the group

    def rows(self) -> FloatArray:
        """All mixtures, one after the other, shape (m L, d)."""
        mixed = np.where(self.orders.taken[:, self.player], self.X[:, None, :], self.typical[:, None, :])
        return mixed.reshape(-1, self.X.shape[1])

    def joined(self, scores: FloatArray) -> FloatArray:
        """Scores of all mixtures, shape (m L, columns), by row: shape (m, L, columns)."""
        return scores.reshape(len(self.X), len(self.orders.taken), -1)


class Crowd:
    """The rows among which mixtures seek their neighbours: all training rows of a part, or ``size`` of them."""

    def __init__(self, part: Neighbours | Nearness, size: int) -> None:
        self.part, self._turn = part, part.turn if isinstance(part, Nearness) else None
        self.model = fitted = part.neighbours if isinstance(part, Nearness) else part
        n = int(fitted.counts.sum())
        if n > size:  # evenly spaced in the order of the values: independent of the order of the table
            indices = np.linspace(0, n - 1, size).round().astype(np.intp)
            rows = np.repeat(np.arange(len(fitted.counts)), fitted.counts)[indices]
            share = size / n  # so are the numbers of neighbours
            lof, knn = ([int(min(k, max(_LEAST, round(k * share)))) for k in ks] for ks in (fitted.lof, fitted.knn))
            self.model, _ = Neighbours.fit(fitted.locations[rows], lof=lof, knn=knn)
        # What a unit of each column adds to the coordinates, and to products with the crowd.
        self._each = np.eye(self.model.locations.shape[1]) if self._turn is None else self._turn
        self._products = np.ascontiguousarray(self._each @ self.model.locations.T)

    def scores(self, mixtures: Mixtures) -> FloatArray:
        """Raw scores of all mixtures, shape (m, L, columns)."""
        from evenout.detectors._neighbour_kernels import find_rows
        from evenout.reasons._reason_kernels import walk_crowd

        orders, model, turn = mixtures.orders, self.model, self._turn
        start = np.ascontiguousarray(mixtures.typical if turn is None else mixtures.typical @ turn)
        itself = find_rows(np.array(turned(mixtures.X, turn, 1)), model.locations)
        raw = np.empty((len(start), len(orders.taken), model.width))
        walk_crowd(
            start, mixtures.X - mixtures.typical, mixtures.player, self._each, self._products, itself, orders.steps,
            orders.p, model.locations, model.counts, model.k_distance, model.density, model.lof, model.knn,
            model.k_max, 0.0 if turn is None else GRID, raw,
        )  # fmt: skip
        if not isinstance(self.part, Nearness):
            return raw
        return mixtures.joined(self.part.logarithms(raw.reshape(-1, self.part.width)))


def mixed_scores(part: Any, mixtures: Mixtures, crowd: Crowd | None) -> FloatArray:
    """Raw scores of one part of a pool at all mixtures, shape (m, L, columns); a part with neighbours has a crowd."""
    if crowd is not None:
        return crowd.scores(mixtures)
    if isinstance(part, Forest):
        from evenout.reasons._reason_kernels import walk_trees

        taken = np.ascontiguousarray(mixtures.orders.taken.T)
        total = np.empty((len(mixtures.X), taken.shape[1], part.width))
        rows, typical = (np.ascontiguousarray(each, dtype=np.float32) for each in (mixtures.X, mixtures.typical))
        walk_trees(
            rows, typical, mixtures.player, taken, part.feature, part.threshold, part.child, part.length, part.root,
            part.depth, part.sizes, total,
        )  # fmt: skip
        expected = part.sizes * average_path_length(np.array([part.max_samples]))
        return 2 ** -(total / expected) if expected.all() else np.full(total.shape, 0.5)
    if isinstance(part, GroupAware):
        groups = np.repeat(np.asarray(mixtures.groups, dtype=object), len(mixtures.orders.taken), axis=0)
        return mixtures.joined(part.score(mixtures.rows(), sensitive_features=groups))
    return mixtures.joined(part.score(mixtures.rows()))


COMPANY = 30
SATURATED = 2.0  # spreads beyond which a feature makes two rows no less alike: one odd value has no say in the rest
_ROWS = 64  # compared at a time


def similar_rows(background: Background, X: FloatArray) -> IntArray:
    """Indices of the 30 rows of the crowd, or of its quarter, most like each row but itself, shape (m, size)."""
    from evenout.reasons._reason_kernels import saturated_distances

    crowd, similar = background.crowd, []
    size, units = min(COMPANY, max(1, len(crowd) // 4)), Units.fit(crowd)
    inside = np.ascontiguousarray(units.apply(crowd).T)
    for rows in (X[start : start + _ROWS] for start in range(0, len(X), _ROWS)):
        distance = np.empty((len(rows), len(crowd)))
        saturated_distances(units.apply(rows), inside, SATURATED, distance)
        itself = (distance.min(axis=1) == 0.0) & (crowd[distance.argmin(axis=1)] == rows).all(axis=1)
        distance[itself, distance[itself].argmin(axis=1)] = np.inf
        similar.append(np.argpartition(distance, size - 1, axis=1)[:, :size])
    return np.concatenate(similar)


def typical_rows(background: Background, similar: IntArray) -> FloatArray:
    """Medians of the rows most like each row, and their most frequent categories, shape (m, d)."""
    half, runs, typical = (similar.shape[1] - 1) // 2, category_runs(background.crowd), []
    for start in range(0, len(similar), _ROWS):
        near = background.crowd[similar[start : start + _ROWS]]
        typical.append(np.partition(near, half, axis=1)[:, half])
        for first, last in runs:
            most = near[:, :, first:last].sum(axis=1).argmax(axis=1)
            typical[-1][:, first:last] = np.arange(last - first) == most[:, None]
    return np.concatenate(typical)


_NUMBERS = 2**21  # held at a time


@dataclass(frozen=True)
class Resembling:
    """Corrections of the fair score for resembling groups; a row that tells nothing of its group gets 0."""

    names: tuple[str, ...]
    likeness: FloatArray  # (m, G): how much each row resembles each of the groups, 1 where it tells nothing
    added: FloatArray  # (m, G): what each row gets for that
    by_feature: FloatArray  # (m, p): what each feature adds to the sum of that, beside the typical row of all rows
    most: IntArray  # (m,): the group that each row gets most for, in the direction of the sum


@dataclass(frozen=True)
class Parts:
    """Scores and their parts; the last axis is base score, fair score.

    ``scores`` and ``typical`` (m, 2) are of the rows, and of the typical rows beside them, as if these told nothing of
    their group. ``parts`` (m, p, 2), or (m, p + 1, 2), are what each feature adds and, last, resemblance, where the
    score is corrected by that: ``parts.sum(axis=1) == scores - typical``. ``error``, of the same shape, are standard
    errors of the parts, from sampling orders; 0 where all were taken.
    """

    scores: FloatArray
    typical: FloatArray
    parts: FloatArray
    error: FloatArray
    resembling: Resembling | None = None


@dataclass(frozen=True, eq=False)
class Attribution:
    """A fitted model, ready to split scores; ``player`` (d,) is the feature of the table that a column belongs to."""

    result: FitResult
    player: IntArray
    orders: Orders

    def split(self, X: FloatArray, typical: FloatArray, *, sensitive_features: Any = None, n_threads: int = 1) -> Parts:
        """Scores of rows (m, d), less those of typical rows (m, d) or (1, d), and their parts.

        Rows are worked on in blocks: the mixtures of all are never held.
        """
        result, groups = self.result.scores, None
        if any(isinstance(part, GroupAware) for part in result.pool.parts) and sensitive_features is not None:
            groups = np.asarray(sensitive_features, dtype=object)
            typical = np.ascontiguousarray(np.broadcast_to(typical, X.shape))
        n, model = result.n_detectors, result.resemblance
        raw = [result.pool.score(rows, n_threads=n_threads, sensitive_features=groups) for rows in (typical, X)]
        # Behind raw scores there is 1 for each group, as if rows told nothing of theirs.
        first, last = (np.column_stack([each, np.ones((len(each), result.width - n))]) for each in raw)
        first, typical = np.broadcast_to(first, last.shape), np.broadcast_to(typical, X.shape)
        width = self.orders.p * CROWD + len(self.orders.taken) * last.shape[1]
        blocks = map_blocks(
            lambda rows: self._block(
                X[rows], typical[rows], first[rows], last[rows], None if groups is None else groups[rows]
            ),
            len(X), max(1, _NUMBERS // width), n_threads,
        )  # fmt: skip
        acts = self._acts(X, typical)[:, :, None]  # what does not act has no part, not even by rounding
        parts, error = (np.where(acts, np.concatenate(each), 0.0) for each in zip(*blocks, strict=True))
        scores, usual = self._scores(last), self._scores(first)
        if model is None:
            return Parts(scores, usual, parts, error)
        weights, likeness = self.result.mixture.weights, model.of(X)
        both = self._scores(np.column_stack([last[:, :n], likeness]))
        got = (both - scores)[:, None, :]
        added = -model.levelled(-weights[n:]) * (likeness - 1.0)
        towards = np.sign(got[:, :, 1]) * added
        alike = np.where(likeness >= 1.0, towards, -np.inf)  # groups that a row does resemble come first
        most = np.where(alike.max(axis=1) > 0.0, alike.argmax(axis=1), towards.argmax(axis=1))
        resembling = Resembling(tuple(self.result.known), likeness, added, self._resembling(X, weights[n:]), most)
        return Parts(both, usual, np.append(parts, got, axis=1), np.append(error, 0.0 * got, axis=1), resembling)

    def _acts(self, X: FloatArray, typical: FloatArray) -> BoolArray:
        """Whether a part of the pool can see that a feature differs from its typical value, shape (m, p)."""
        pool = self.result.scores.pool
        acts = np.zeros((len(X), self.orders.p), dtype=bool)
        for inside in {isinstance(part, OWN) for part in pool.parts}:
            rows, usual = (pool.inside(each) if inside else each for each in (X, typical))
            for column, feature in enumerate(self._players(inside=inside)):
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
            if (features := self._column_features(place)) is not None:
                change = (last - first)[:, columns, None] * weights[columns]
                for c, feature in enumerate(features):
                    lone[:, feature] += change[:, c]
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
        part, crowd = pool.parts[place], self._crowds.get(place)
        first, last = first[:, None, columns], last[:, None, columns]
        if (features := self._column_features(place)) is not None:
            return first + (last - first) * self.orders.taken[:, features]
        inside = isinstance(part, OWN)
        X, typical = (pool.inside(each) if inside else each for each in (X, typical))
        mixed = mixed_scores(part, Mixtures(X, typical, self._players(inside=inside), self.orders, groups), crowd)
        if crowd is None:
            return mixed
        # Scores by a crowd are moved to what they are at the ends; features share the difference by size of part.
        size = np.abs(self.orders.parts(mixed)[0])
        total = size.sum(axis=1, keepdims=True)
        share = np.divide(size, total, out=np.full_like(size, 1.0 / self.orders.p), where=total > 0)
        begin, end = first - mixed[:, :1], int(self.orders.taken.all(axis=1).argmax())
        gap = (last - mixed[:, end : end + 1]) - begin
        return mixed + begin + gap * (self.orders.taken @ share)

    def _resembling(self, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Parts of the features in what rows get for resembling groups, beside the typical row of all, shape (m, p).

        The rows most like a row resemble the same groups, so beside these nothing would be told.
        """
        model, background = self.result.scores.resemblance, self.result.background
        assert model is not None
        assert background is not None
        parts, size = [], max(1, _NUMBERS // (len(self.orders.taken) * X.shape[1]))
        for rows in (X[start : start + size] for start in range(0, len(X), size)):
            mixtures = Mixtures(rows, np.broadcast_to(background.typical, rows.shape), self.player, self.orders)
            parts.append(self.orders.parts(mixtures.joined(model.of(mixtures.rows()) @ weights))[0][:, :, 0])
        return np.concatenate(parts)

    def _players(self, *, inside: bool) -> IntArray:
        """The feature behind each column that parts of the pool are given; ``inside``: in the pool's units."""
        units = self.result.scores.pool.units
        return self.player if units is None or not inside else self.player[units.kept]

    def _column_features(self, place: int) -> IntArray | None:
        """The feature behind each score column of a part whose columns follow from one feature each; else None."""
        part = self.result.scores.pool.parts[place]
        if not isinstance(part, Precomputed | Tails):
            return None
        columns = part.features if isinstance(part, Tails) else np.arange(part.width)
        return self._players(inside=isinstance(part, OWN))[columns]

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
        pool = self.result.scores.pool
        widths = [getattr(part, "width", None) or len(getattr(part, "names", " ")) for part in pool.parts[:-1]]
        ends = [0, *accumulate(widths), len(pool.names)]
        return {place: slice(*between) for place, between in enumerate(pairwise(ends))}

    @cached_property
    def _crowds(self) -> dict[int, Crowd]:
        """A crowd for each part with neighbours; the fewer mixtures there are, the more rows can be afforded."""
        size, parts = max(CROWD, _DISTANCES // len(self.orders.taken)), enumerate(self.result.scores.pool.parts)
        return {place: Crowd(part, size) for place, part in parts if isinstance(part, Neighbours | Nearness)}
