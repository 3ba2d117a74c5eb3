"""Equal flags, solved: of all rules with even enough flag rates, the one that flags the rows of largest total score.

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
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import expit

from evenout.core.flags import top_threshold, weighted_quantile
from evenout.core.ruler import Sample, lowest_over_highest
from evenout.core.types import BoolArray, FloatArray

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
