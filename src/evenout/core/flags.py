"""Who is flagged, and the rule with even flag rates that flags the largest scores.

A rule flags row i with the probability ``f_i``. With ``q_g = sum_i r_ig f_i / n`` the flag rate of group g, where r is
how much a row resembles the group, the best rule solves a linear programme:

    maximise sum_i t_i f_i    with    mean f = share,    low_b <= q_g <= low_b / ratio,    0 <= f <= 1

for each group g of each block b of groups that are compared with each other. Means are by the rows' weights.

Its multipliers say which rule that is: ``f_i = 1`` where ``t_i - sum_g lambda_g r_ig`` is above a threshold.

Only rows near the threshold are in doubt, so the programme is solved on these, all others being flagged or not; where
the multipliers contradict that of any row, more rows are taken in. What comes out is exact.

Resemblance need not hold among the flagged as it does among all rows. So the rates of the rule are counted by the
groups themselves, each ``r_g`` is multiplied by how far the count is off, and the programme is solved again.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import chdtrc, expit

from evenout.core.membership import Comparison
from evenout.core.ruler import Means, Sample, lowest_over_highest
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError

ENOUGH = 10  # flagged rows that a group of a stratum must be expected to have, for its rate to be held to a ratio


def flagged_share(contamination: float, n_rows: int) -> float:
    """The share of rows that is flagged: ``contamination`` itself or, where it is a whole number, so many of the rows.

    >>> flagged_share(0.1, 50), flagged_share(10, 50)
    (0.1, 0.2)
    """
    if isinstance(contamination, Integral):
        if contamination > n_rows // 2:
            raise InputError(
                "{contamination=} is more than half of the {n_rows} rows; use a smaller count, or a share",
                contamination=int(contamination), n_rows=n_rows,
            )  # fmt: skip
        return int(contamination) / n_rows
    return float(contamination)


def flag_threshold(scores: FloatArray, contamination: float) -> FloatArray:
    """The score above which a row is flagged, per column of ``scores``: the top share of the rows, or so many rows."""
    return np.percentile(scores, 100.0 * (1.0 - flagged_share(contamination, len(scores))), axis=0)


def weighted_quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """The value below which ``share`` of the weight lies.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    place = np.searchsorted(upto, share * upto[-1], side="left")
    return float(values[order][min(int(place), len(values) - 1)])


def flag_rates(scores: FloatArray, groups: IntArray, n_groups: int, contamination: float) -> FloatArray:
    """Share of flagged rows in each group.

    Parameters
    ----------
    scores : array of shape (n,) or (n, m)
    groups : array of shape (n,)
        Codes; -1 (unknown) counts towards the threshold alone.
    n_groups : int
    contamination : float

    Returns
    -------
    array of shape (G,) or (G, m)

    >>> flag_rates(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1]), n_groups=2, contamination=0.25).tolist()
    [0.0, 0.5]
    """
    flagged = scores > flag_threshold(scores, contamination)
    return group_rates(flagged, groups, n_groups)


def group_rates(marked: BoolArray, groups: IntArray, n_groups: int) -> FloatArray:
    """Share of the marked rows, (n,) or (n, m), in each group, shape (G,) or (G, m)."""
    rates = np.zeros((n_groups, *marked.shape[1:]))
    for group in range(n_groups):
        rates[group] = marked[groups == group].mean(axis=0)
    return rates


def rate_ratio(rates: FloatArray) -> FloatArray:
    """Smallest over largest flag rate along the first axis; 1 if nobody is flagged."""
    largest = rates.max(axis=0)
    return np.where(largest > 0, rates.min(axis=0) / np.where(largest > 0, largest, 1.0), 1.0)


def beyond_equal_rates(flagged: FloatArray, rows: IntArray) -> FloatArray:
    """How many flagged rows are there beyond what equal rates of all groups would give.

    Parameters
    ----------
    flagged : array of shape (G, m)
        Flagged rows of each group by each of m scores.
    rows : array of shape (G,)

    Returns
    -------
    array of shape (m,)

    >>> beyond_equal_rates(np.array([[30.0], [10.0]]), np.array([100, 100])).tolist()
    [10.0]
    """
    even = rows[:, None] * (flagged.sum(axis=0) / max(rows.sum(), 1))
    return np.maximum(flagged - even, 0.0).sum(axis=0)


@dataclass(frozen=True)
class FlagRows:
    """Rows whose flags are counted, each scored by what has not seen it.

    Parameters
    ----------
    S : array of shape (n, k)
    t : array of shape (n,)
    sample : Sample
        Whom the flags are counted for, and how.
    folds : array of shape (n,)
        A row of fold f is scored by the weights that were solved without f.
    nested : array of shape (K, n, G), optional
        The last G columns of S as all rows are seen by what was learnt without each fold.
    n_rows : int, optional
        All rows, where these are some of them.
    """

    S: FloatArray
    t: FloatArray
    sample: Sample
    folds: IntArray
    nested: FloatArray | None = None
    n_rows: int | None = None

    @cached_property
    def compares(self) -> BoolArray:
        """Pairs of groups whose rates are compared, shape (G, G)."""
        known = self.sample.size > 1.0 + 1e-9
        return self.sample.compared.pairs & known & known[:, None]

    def share(self, contamination: float) -> float:
        """The share of all rows that is flagged, those included that these stand for."""
        return flagged_share(contamination, len(self.t) if self.n_rows is None else self.n_rows)

    def scores(self, V: FloatArray, fold: int) -> tuple[IntArray, FloatArray]:
        """The rows of a fold, and m scores of theirs by the weights V (K, m, k + 1), shape (b, m)."""
        rows = np.flatnonzero(self.folds == fold)
        Z = np.column_stack([self.S.take(rows, axis=0), self.t[rows]])
        return rows, np.einsum("ik,mk->im", Z, V[fold])

    def flagged(self, V: FloatArray, share: float) -> BoolArray:
        """Who is flagged at weights V (K, m, k + 1), shape (n, m).

        The top ``share`` of each fold is flagged: scores of different folds have different scales.
        """
        over = np.zeros((len(self.t), V.shape[1]), dtype=bool)
        for fold in range(len(V)):
            rows, scores = self.scores(V, fold)
            if len(rows):
                weight = None if self.sample.weight is None else self.sample.weight[rows]
                over[rows] = scores > top_threshold(scores, share, weight)
        return over

    def measured(self, V: FloatArray, share: float, *, null: bool = False) -> Means:
        """Flag rates of the groups at weights V (K, 1, k + 1); see `Sample.measure`."""
        standing = np.zeros(len(self.t))
        for fold in range(len(V)):
            rows, scores = self.scores(V, fold)
            standing[rows] = np.argsort(np.argsort(scores[:, 0], kind="stable")) / max(len(rows), 1)
        return self.sample.measure(self.flagged(V, share)[:, 0], null=null, threshold_of=standing)

    def base(self) -> FloatArray:
        """The weights of the base score, shape (K, 1, k + 1)."""
        V = np.zeros((int(self.folds.max()) + 1, 1, self.S.shape[1] + 1))
        V[..., -1] = 1.0
        return V

    def ratio(self, marked: BoolArray) -> FloatArray:
        """Lowest over highest share of marked rows (n, m) of groups that are compared, shape (m,)."""
        return lowest_over_highest(self.sample.means(marked), self.compares)

    def spread(self, V: FloatArray, share: float, counted: float | None = None) -> float:
        """What other rows would make of a rule: the standard error of the log of its ratio of flag rates.

        By the jackknife over folds: the rules V (K, 1, k + 1), each solved without a fold, flag the same rows. Where
        more rows than these were ``counted``, only these have had a say in the rule, and the others show what it does.
        """
        if not self.compares.any():
            return float("nan")
        rules = np.stack([self.flagged(np.broadcast_to(rule, V.shape), share)[:, 0] for rule in V], axis=1)
        ratio = np.log(np.maximum(self.ratio(rules), 1.0 / len(self.t)))
        known = 1.0 if counted is None else min(1.0, self.sample.size.sum() / counted)
        return float(np.sqrt((len(V) - 1) * ratio.var() * known))

    def without(self, fold: int) -> FloatArray:
        """The columns of all rows, as far as they can be known without a fold, shape (n, k)."""
        if self.nested is None:
            return self.S
        return np.column_stack([self.S[:, : -self.nested.shape[2]], self.nested[fold]])

    def narrowed(self, share: float) -> "FlagRows":
        """The same without groups of a stratum that are too small for a ratio of flag rates; see `ENOUGH`.

        Where all groups are compared with each other they stay, however small: what they allow is said by intervals.
        """
        compared = self.sample.compared
        if len({(block.of, block.among) for block in compared.blocks}) == len(compared.blocks):
            return self
        rates = self.sample.means(self.flagged(self.base(), share)[:, 0])
        size = self.sample.size * (1.0 if self.n_rows is None else self.n_rows / len(self.t))
        blocks = []
        for block in compared.blocks:
            own = [g for g in block.groups if size[g] > 1.0 + 1e-9]
            rate = np.average(rates[own], weights=self.sample.total[own]) if own else 0.0
            kept = tuple(g for g in own if rate * size[g] >= ENOUGH)
            blocks += [replace(block, groups=kept)] if len(kept) >= 2 else []
        narrow = Comparison(compared.n_groups, tuple(blocks), compared.overlaps)
        return replace(self, sample=replace(self.sample, members=replace(self.sample.members, compared=narrow)))


def top_threshold(scores: FloatArray, share: float, weight: FloatArray | None = None) -> FloatArray:
    """The score above which the top ``share`` of the rows, or of their weight, lies; for each column of (n, m)."""
    if weight is None:
        return flag_threshold(scores, share)
    return np.array([weighted_quantile(y, weight, 1.0 - share) for y in scores.T])


def flag_p_value(rows: FlagRows, share: float) -> float:
    """p-value of "the base score flags all groups alike"; NaN where none are compared.

    Hard groups that are all compared with each other, of independent rows that count alike, have their chi-square;
    others the ruler's test, with the errors that there are where rates do not differ.
    """
    sample = rows.sample
    if not (sample.plain and sample.compared.simple):
        return rows.measured(rows.base(), share, null=True).p_value()
    n = sample.total[rows.compares.any(axis=0)]
    flagged = sample.means(rows.flagged(rows.base(), share)[:, 0])[rows.compares.any(axis=0)] * n
    if not 0 < flagged.sum() < n.sum():
        return 1.0
    expected = n * flagged.sum() / n.sum()
    statistic = ((flagged - expected) ** 2 / expected + (flagged - expected) ** 2 / (n - expected)).sum()
    return float(chdtrc(len(n) - 1, statistic))


def first_even(rows: FlagRows, flagged: BoolArray) -> int:
    """The first of m scores, by whom they flag (n, m), whose ratio is within one standard error of the best one's.

    Most rows are flagged by both of two scores or by none; the error of the difference stems from the others.
    """
    rates, found = rows.sample.means(flagged), rows.ratio(flagged)
    best = int(found.argmax())
    against = np.where(rows.compares, rates[:, best, None] / np.maximum(rates[:, best], 1e-12), np.inf)
    low, high = np.unravel_index(int(against.argmin()), against.shape)
    moved = rows.sample.means(flagged != flagged[:, [best]]) / rows.sample.size[:, None]
    error = np.sqrt(moved[low] + found[best] ** 2 * moved[high]) / np.maximum(rates[high, best], 1e-12)
    return int((found >= found[best] - error).argmax())


_ROUNDS = 8  # of counting and solving again
_CLOSE = 0.002  # a ratio counts as met up to this, or to half of what one row of the smallest group makes
_NEAR = 500  # rows in doubt, to begin with
_MANY = 12  # groups up to which the programme is solved exactly
_WIDTHS, _STEPS = (0.3, 0.1, 0.03, 0.01), 25  # of smoothed flags, in deviations of the score; steps at each
_RIDGE = 0.01  # of the mean variance of columns, in what they say of the groups
_VANISHING = 1e-280  # a mean square too small to divide by
_LEAST = 0.01  # factors of a group's resemblance are kept between this and its inverse


def even_flags(t: FloatArray, r: FloatArray, sample: Sample, *, flagged: float, ratio: float) -> FloatArray:
    """``lambda`` of the best rule of a ratio, shape (G,); its sum is 0 where every row is of one group.

    Parameters
    ----------
    t : array of shape (n,)
        Not constant.
    r : array of shape (n, G)
        Resemblance, mean 1.
    sample : Sample
        The groups whose rates are compared.
    flagged : float
        Share of the rows that is flagged.
    ratio : float
        Smallest over largest flag rate of the groups that are compared.
    """
    mass, blocks = _mass(sample.weight, len(t)), _blocks(sample)
    compares = sample.compared.pairs & (sample.total > 0) & (sample.total > 0)[:, None]
    deviation, n_groups = t.std(), r.shape[1]
    z = (t - t.mean()) / deviation
    smallest = max(float(sample.size[compares.any(axis=0)].min(initial=np.inf)), 1.0)
    close = max(_CLOSE, 0.5 / (smallest * flagged))
    factor, best, reached = np.ones(n_groups), np.zeros(n_groups), (-1.0, 0.0)
    worth: FloatArray | None = None
    for _ in range(_ROUNDS):
        programme = _Programme(z, r * factor, flagged, ratio, mass, blocks)
        found = programme.solve(None if worth is None else worth / factor)
        if found is None:
            break
        worth = found.worth * factor
        price = -worth
        if sample.compared.simple:  # then r @ shares = 1, and a multiple of the shares changes nothing
            price += sample.total / sample.total.sum() * worth.sum()
        over = _above(z - r @ price, flagged, sample.weight)
        rates = np.nan_to_num(sample.means(over))
        counted = float(lowest_over_highest(rates, compares))
        value = min(counted, ratio - close), float((z * mass) @ over)
        if value > reached:
            best, reached = price, value
        if abs(counted - ratio) <= close or not price.any():
            break
        expected = np.maximum((r * mass[:, None]).T @ over, 1e-12)
        factor = np.clip(np.sqrt(factor * np.maximum(rates / expected, 1e-12)), _LEAST, 1.0 / _LEAST)
    return best * deviation


def most_kept(t: FloatArray, r: FloatArray, sample: Sample, *, flagged: float, ratio: float) -> tuple[float, float]:
    """Share of t's flagged list that a rule of this ratio can keep at most, and the mean t of whom it flags."""
    mass = _mass(sample.weight, len(t))
    base = _above(t, flagged, sample.weight).astype(float)
    found = _Programme(base, r, flagged, ratio, mass, _blocks(sample)).solve()
    if found is None:
        return float("nan"), float("nan")
    chosen = found.rule * mass
    return float(chosen @ base / max(mass @ base, 1e-12)), float(chosen @ t / max(chosen.sum(), 1e-12))


def linear_resemblance(Z: FloatArray, sample: Sample) -> tuple[FloatArray, FloatArray]:
    """What columns say of the groups by least squares: ``r_g = 1 + (z - centre)' B_g``, the centre and B (c, G).

    A score may then move by these columns alone, ``t - sum_g lambda_g r_g = t - (z - centre)' B lambda + constant``.
    A ridge keeps near-equal columns from weights of opposite sign.

    Parameters
    ----------
    Z : array of shape (n, c)
    sample : Sample
    """
    phi = sample.members.weights
    known = np.zeros(len(Z), dtype=bool)
    known[phi.indices] = True
    share = _mass(None if sample.weight is None else sample.weight[known], int(known.sum()))
    centre = share @ Z[known]
    D = Z[known] - centre
    A = (D.T * share) @ D
    size = np.trace(A) / len(A)
    if not size > _VANISHING:  # columns that do not vary say nothing
        return centre, np.zeros((len(A), sample.members.n_groups))
    A += _RIDGE * size * np.eye(len(A))
    return centre, np.asarray(np.linalg.solve(A, np.nan_to_num(sample.means(Z - centre)).T), dtype=float)


def _mass(weight: FloatArray | None, n: int) -> FloatArray:
    """What each row counts; the sum is 1."""
    return np.full(n, 1.0 / n) if weight is None else weight / weight.sum()


def _blocks(sample: Sample) -> list[list[int]]:
    """Groups that are compared with each other, those without rows left out."""
    found = [[g for g in block.groups if sample.total[g] > 0] for block in sample.compared.blocks]
    return [block for block in found if len(block) >= 2]


def _above(scores: FloatArray, flagged: float, weight: FloatArray | None) -> BoolArray:
    return np.asarray(scores > top_threshold(scores[:, None], flagged, weight)[0])


class _Solved(NamedTuple):
    """What the rate of each group is worth (G,), the threshold, and how much each row is flagged (n,)."""

    worth: FloatArray
    threshold: float
    rule: FloatArray


@dataclass(frozen=True)
class _Programme:
    """The linear programme of n rows, ``gain`` (n,) in the place of t; ``mass`` (n,) is what a row counts, in all 1."""

    gain: FloatArray
    r: FloatArray
    flagged: float
    ratio: float
    mass: FloatArray
    blocks: list[list[int]]

    def solve(self, start: FloatArray | None = None) -> _Solved | None:
        """Solve it; None if no rule is even. ``start`` is a guess of what the rates are worth.

        Exactly for few groups; for many by its dual, with flags that are smoothed a little.
        """
        n, n_groups = self.r.shape
        if sum(map(len, self.blocks)) > _MANY:
            return self._smooth(start)
        every, nobody = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
        if n <= 2 * _NEAR:
            return self._among(every, nobody)
        if start is None:
            some = np.argsort(self.gain, kind="stable")[:: -(-n // _NEAR)]
            mass = self.mass[some] / self.mass[some].sum()
            found = replace(self, gain=self.gain[some], r=self.r[some], mass=mass).solve()
            start = np.zeros(n_groups) if found is None else found.worth
        size, worth = _NEAR, start
        while size < n:
            y = self.gain + self.r @ worth
            threshold = weighted_quantile(y, self.mass, 1.0 - self.flagged)
            doubt = np.zeros(n, dtype=bool)
            doubt[np.argpartition(np.abs(y - threshold), size)[:size]] = True
            sure = ~doubt & (y > threshold)
            found = self._among(doubt, sure)
            if found is not None:
                worth = found.worth
                if not (~doubt & ((self.gain + self.r @ worth > found.threshold) != sure)).any():
                    return found
            size *= 2
        return self._among(every, nobody)

    def _smooth(self, start: FloatArray | None) -> _Solved:
        """Solve the dual, whose unknowns are what the rate of each group is worth, by Newton steps on active sets.

        A row is flagged by ``expit((gain + r'w - threshold) / width)``, and the width falls. A group's ``w_g`` is above
        0 where its rate is held at the lowest one of its block, below 0 where it is held at the highest, else 0, and in
        each block ``sum w_g k_g = 0`` with ``k = 1`` and ``1 / ratio`` for these two: the lowest rate is free. A step
        takes one pass over the rows, and one more over those near the threshold.
        """
        held = np.array([g for block in self.blocks for g in block], dtype=np.intp)
        block = np.repeat(np.arange(len(self.blocks)), [len(own) for own in self.blocks])
        r, deviation = self.r[:, held], float(self.gain.std()) or 1.0
        w = np.zeros(len(held)) if start is None else start[held].copy()
        lowest = np.full(len(self.blocks), np.nan)
        threshold, flags = 0.0, np.zeros(len(self.gain))
        for width in (deviation * np.array(_WIDTHS))[0 if start is None else -1 :]:
            for _ in range(_STEPS):
                y = self.gain + r @ w
                threshold = _smooth_threshold(y, self.mass, self.flagged, width)
                flags = expit((y - threshold) / width)
                q, slope = r.T @ (flags * self.mass), flags * (1.0 - flags) * self.mass / width
                near = slope > 1e-6 * slope.max()
                R, own = r[near], slope[near]
                J = (R.T * own) @ R - np.outer(R.T @ own, R.T @ own) / own.sum()
                J[np.diag_indices_from(J)] += 1e-4 * np.trace(J) / len(J) + 1e-12
                for b in range(len(lowest)):
                    if not w[block == b].any() or np.isnan(lowest[b]):
                        ends = q[block == b].min(), q[block == b].max()
                        lowest[b] = np.sqrt(max(ends[0] * ends[1], 1e-24) * self.ratio)
                at = np.diag(J)
                low = w - (q - lowest[block]) / at > 0
                high = w - (q - lowest[block] / self.ratio) / at < 0
                active = np.flatnonzero(low | high)
                step = -w
                if len(active):
                    k = np.where(low, 1.0, 1.0 / self.ratio)[active]
                    K = k[:, None] * (block[active][:, None] == np.arange(len(lowest)))
                    some = K.any(axis=0)
                    K, size = K[:, some], len(active)
                    left = np.block([[J[np.ix_(active, active)], -K], [K.T, np.zeros((K.shape[1],) * 2)]])
                    off = J[np.ix_(active, np.arange(len(w)))] @ np.where(low | high, 0.0, -w)
                    found = np.linalg.lstsq(left, np.append(-q[active] - off, -K.T @ w[active]))[0]
                    step[active], lowest[some] = found[:size], np.maximum(found[size:], 1e-12)
                moved = float(np.abs(r @ step).max(initial=0.0))
                w = w + step * min(1.0, deviation / max(moved, 1e-300))
                if moved < 1e-3 * width:
                    break
        worth = np.zeros(self.r.shape[1])
        worth[held] = w
        return _Solved(worth, threshold, flags)

    def _among(self, doubt: BoolArray, sure: BoolArray) -> _Solved | None:
        """Solve for the rows in doubt, where the sure ones are flagged and the others are not."""
        held = np.array([g for block in self.blocks for g in block], dtype=np.intp)
        lowest = np.repeat(np.eye(len(self.blocks)), [len(block) for block in self.blocks], axis=0)
        r, own, none = self.r[:, held], self.mass[doubt], np.zeros(len(self.blocks))
        q, fixed = r[doubt].T * own, r[sure].T @ self.mass[sure]
        found = linprog(
            -np.append(self.gain[doubt] * own, none),
            A_ub=np.block([[-q, lowest], [q, -lowest / self.ratio]]),
            b_ub=np.append(fixed, -fixed),
            A_eq=np.append(own, none)[None],
            b_eq=[self.flagged - self.mass[sure].sum()],
            bounds=(0.0, 1.0),
            method="highs",
        )
        if found.status != 0:
            return None
        low, high = np.split(-found.ineqlin.marginals, 2)
        worth, rule = np.zeros(self.r.shape[1]), sure.astype(float)
        worth[held] = low - high
        rule[doubt] = found.x[: len(own)]
        return _Solved(worth, -float(found.eqlin.marginals[0]), rule)


def _smooth_threshold(y: FloatArray, mass: FloatArray, flagged: float, width: float) -> float:
    """Where ``sum_i mass_i expit((y_i - threshold) / width)`` is the share that is flagged."""
    low, high = float(y.min()) - 40.0 * width, float(y.max()) + 40.0 * width
    at = weighted_quantile(y, mass, 1.0 - flagged)
    for _ in range(60):
        flags = expit((y - at) / width)
        surplus = float(mass @ flags) - flagged
        low, high = (at, high) if surplus > 0 else (low, at)
        slope = float(mass @ (flags * (1.0 - flags))) / width
        new = at + surplus / slope if slope > 0 else 0.5 * (low + high)
        new = new if low < new < high else 0.5 * (low + high)
        if abs(new - at) < 1e-6 * width:
            return new
        at = new
    return at
