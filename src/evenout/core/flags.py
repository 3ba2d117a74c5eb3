"""Flagged rows, flag rates, and the rule with even flag rates that flags the largest scores.

A rule flags row i with the probability ``f_i``. With ``q_g = sum_i r_ig f_i / n`` the flag rate of group g, where r is
how much a row resembles the group, the best rule solves a linear programme:

    maximise sum_i t_i f_i    with    mean f = share,    low_b <= q_g <= low_b / ratio,    0 <= f <= 1

for each group g of each block b of groups that are compared with each other. Means are by the rows' weights.

Its multipliers give the rule: ``f_i = 1`` where ``t_i - sum_g lambda_g r_ig`` is above a threshold. So the dual is
solved, which has two multipliers for each group and one threshold, whatever the number of rows. Flags are smoothed,
``f = expit((y - threshold) / width)``, a logarithmic barrier keeps the multipliers above 0, and Newton steps follow the
solution while the width falls. Only rows in a band around the threshold matter to a step, and a pass over all rows
renews the band. The total score of the smoothed rule is below the best one by a term of the order of ``width ** 2``,
less than a thousandth at the last width. A rule that is cut at its threshold flags whole rows: the count of each group
is off by up to one, however exactly the programme is solved.

Resemblance among the flagged rows may differ from that among all rows. So the rates of the rule are counted in the
groups themselves, each ``r_g`` is multiplied by the relative error of its count, and the programme is solved again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Annotated, NamedTuple

import numpy as np
from scipy.special import chdtrc, expit

from evenout.core.cells import Cells, CrossFit
from evenout.core.membership import Block
from evenout.core.parallel import one_blas_thread
from evenout.core.ruler import ONE_ROW, Means, Sample, lowest_over_highest, ratio
from evenout.core.types import MOST_ROWS, BoolArray, FloatArray, IntArray, Within, require
from evenout.exceptions import InputError

ENOUGH = 10  # expected flagged rows of a group of a stratum, below which its rate is not compared


def flagged_share(contamination: float, n_rows: int) -> float:
    """The share of rows that is flagged: ``contamination`` itself or, if it is a whole number, that number of rows.

    >>> flagged_share(0.1, 50), flagged_share(10, 50)
    (0.1, 0.2)
    """
    if not isinstance(contamination, Integral):
        return float(contamination)
    if contamination > n_rows // 2:
        raise InputError(
            "{contamination=} is more than half of the {n_rows} rows; use a smaller count, or a share",
            contamination=int(contamination), n_rows=n_rows,
        )  # fmt: skip
    return int(contamination) / n_rows


def flag_threshold(scores: FloatArray, contamination: float, weight: FloatArray | None = None) -> FloatArray:
    """The score above which a row is flagged, for each column of ``scores``; see `flagged_share`.

    With a ``weight`` (n,), the share is one of the weight, and scores are of shape (n, m).
    """
    share = flagged_share(contamination, len(scores))
    if weight is None:
        return np.percentile(scores, 100.0 * (1.0 - share), axis=0)
    return np.array([weighted_quantile(y, weight, 1.0 - share) for y in scores.T])


def weighted_quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """The value below which ``share`` of the weight lies.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    place = int(np.searchsorted(upto, share * upto[-1], side="left"))
    return float(values[order[min(place, len(values) - 1)]])


def flag_rates(scores: FloatArray, groups: IntArray, n_groups: int, contamination: float) -> FloatArray:
    """Share of flagged rows in each group, shape (G,) or (G, m), by scores (n,) or (n, m).

    ``groups`` (n,) are codes; -1 (unknown) counts towards the threshold alone.

    >>> flag_rates(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1]), n_groups=2, contamination=0.25).tolist()
    [0.0, 0.5]
    """
    return group_rates(scores > flag_threshold(scores, contamination), groups, n_groups)


def group_rates(marked: BoolArray, groups: IntArray, n_groups: int) -> FloatArray:
    """Share of the marked rows, (n,) or (n, m), in each group, shape (G,) or (G, m)."""
    return np.array([marked[groups == group].mean(axis=0) for group in range(n_groups)])


def rate_ratio(rates: FloatArray) -> FloatArray:
    """Smallest over largest flag rate along the first axis; 1 if nobody is flagged."""
    return ratio(rates.min(axis=0), rates.max(axis=0), 1.0)


def beyond_equal_rates(flagged: FloatArray, rows: IntArray) -> FloatArray:
    """Number of flagged rows (m,) beyond those that equal rates of all groups would give.

    ``flagged`` (G, m) are the flagged rows of each group by each of m scores, ``rows`` (G,) all of its rows.

    >>> beyond_equal_rates(np.array([[30.0], [10.0]]), np.array([100, 100])).tolist()
    [10.0]
    """
    even = rows[:, None] * (flagged.sum(axis=0) / max(rows.sum(), 1))
    return np.maximum(flagged - even, 0.0).sum(axis=0)


@dataclass(frozen=True)
class Views:
    """The rows as 1 + K models score them, of all rows and without each fold: what rules for flags are solved on.

    A model scores the rows that it has learnt from as its training rows, the others as new ones. So a rule that is
    solved on the rows outside a fold, by the model without it, has seen nothing of that fold, and is made just as the
    rule of all rows is. This needs training rows that score like new ones (`CrossFit.scores_alike`). ``t`` (1 + K, n)
    are base scores, and ``r`` (1 + K, n, G) is how much rows resemble each group, ``r = Z @ maps`` of the moving
    columns Z (n, c), the first of which is 1.
    """

    t: Annotated[FloatArray, "V n"]
    r: Annotated[FloatArray, "V n G"]
    maps: Annotated[FloatArray, "V c G"]

    @classmethod
    def learn(cls, S: FloatArray, t: FloatArray, cells: Cells, moving: IntArray) -> "Views":
        """One view: the rows by a model learnt on those whose sums are ``cells``, one set."""
        maps = linear_resemblance(cells, moving)
        return cls(t[None], (maps[0] + S[:, moving[0] : moving[-1] + 1] @ maps[1:])[None], maps[None])

    @classmethod
    def of_held(cls, S: FloatArray, t: FloatArray, held: Cells, moving: IntArray) -> "Views":
        """The views of held-out rows, each scored by one model alone; ``held`` are their sums, by fold."""
        cross = CrossFit.of_folds(held)
        training = (cross.training.at(slice(fold, fold + 1)) for fold in range(cross.n_folds))
        return cls.stacked([cls.learn(S, t, cells, moving) for cells in (cross.whole, *training)])

    @classmethod
    def stacked(cls, views: Sequence["Views"]) -> "Views":
        """Several views of the same rows."""
        return cls(*(np.concatenate([getattr(view, name) for view in views]) for name in ("t", "r", "maps")))

    def of_new(self, scored: Iterable[tuple[FloatArray, FloatArray]]) -> "Views":
        """These views of new rows, by the same maps, from their moving columns and base scores by each model."""
        parts = [(t, maps[0] + Z @ maps[1:]) for maps, (Z, t) in zip(self.maps, scored, strict=True)]
        return Views(np.stack([t for t, _ in parts]), np.stack([r for _, r in parts]), self.maps)

    def among(self, rows: BoolArray | slice) -> "Views":
        """Those of some rows."""
        return Views(self.t[:, rows], self.r[:, rows], self.maps)

    def __add__(self, other: "Views") -> "Views":
        """Those of these rows, and of others behind them."""
        return Views(np.append(self.t, other.t, axis=1), np.append(self.r, other.r, axis=1), self.maps)


@dataclass(frozen=True)
class FlagRows:
    """Held-out rows whose flags are counted, with their groups, weights and clusters in ``sample``.

    S and t are by models that have not seen the row: a row of fold f is scored by the model, and by the weights, that
    were made without f. Without ``views``, rules are solved on these scores. ``n_rows`` is the number of all rows,
    where these are some of them.
    """

    S: Annotated[FloatArray, "n k"]
    t: Annotated[FloatArray, "n"]
    sample: Sample
    folds: Annotated[IntArray, "n", Within(0, 2**31)]
    views: Views | None = None
    n_rows: Annotated[int, Within(0, MOST_ROWS)] | None = None

    def check(self) -> None:
        """Require a membership of each row, and a view of each fold."""
        n, G = self.sample.members.weights.shape
        require(n == len(self.t), "sample", "has the wrong number of rows")
        if self.views is not None:
            require(len(self.views.t) >= int(self.folds.max(initial=-1)) + 2, "views", "has too few folds")
            require(self.views.r.shape[1:] == (n, G), "views", "has the wrong shape")

    def among(self, rows: BoolArray | slice, sample: Sample, n_rows: int | None) -> "FlagRows":
        """Some of the rows, with their ``sample``."""
        views = None if self.views is None else self.views.among(rows)
        return FlagRows(self.S[rows], self.t[rows], sample, self.folds[rows], views, n_rows)

    @cached_property
    def compares(self) -> BoolArray:
        """Pairs of groups whose rates are compared, shape (G, G)."""
        known = self.sample.size > ONE_ROW
        return self.sample.compared.pairs & known & known[:, None]

    def share(self, contamination: float) -> float:
        """The share of all rows that is flagged."""
        return flagged_share(contamination, len(self.t) if self.n_rows is None else self.n_rows)

    def scores(self, V: FloatArray, fold: int) -> tuple[IntArray, FloatArray]:
        """The rows of a fold, and their m scores with the weights V (K, m, k + 1), shape (b, m)."""
        rows = np.flatnonzero(self.folds == fold)
        return rows, np.einsum("ik,mk->im", np.column_stack([self.S.take(rows, axis=0), self.t[rows]]), V[fold])

    def flagged(self, V: FloatArray, share: float) -> BoolArray:
        """Whether each row is flagged with the weights V (K, m, k + 1), shape (n, m).

        The top ``share`` of each fold is flagged: scores of different folds have different scales.
        """
        over = np.zeros((len(self.t), V.shape[1]), dtype=bool)
        for fold in range(len(V)):
            rows, scores = self.scores(V, fold)
            if len(rows):
                weight = None if self.sample.weight is None else self.sample.weight[rows]
                over[rows] = scores > flag_threshold(scores, share, weight)
        return over

    def measured(self, V: FloatArray, share: float, *, null: bool = False) -> Means:
        """Flag rates of the groups with the weights V (K, 1, k + 1); see `Sample.measure`."""
        ranks = np.zeros(len(self.t))
        for fold in range(len(V)):
            rows, scores = self.scores(V, fold)
            ranks[rows] = np.argsort(np.argsort(scores[:, 0], kind="stable")) / max(len(rows), 1)
        return self.sample.measure(self.flagged(V, share)[:, 0], null=null, threshold_of=ranks)

    def base(self) -> FloatArray:
        """The weights of the base score, shape (K, 1, k + 1)."""
        k = self.S.shape[1]
        return np.tile(np.eye(1, k + 1, k), (int(self.folds.max()) + 1, 1, 1))

    def ratio(self, marked: BoolArray) -> FloatArray:
        """Lowest over highest share of marked rows (n, m) of groups that are compared, shape (m,)."""
        return lowest_over_highest(self.sample.means(marked), self.compares)

    def narrowed(self, share: float) -> "FlagRows":
        """The rows without groups of a stratum that are too small for a ratio of flag rates; see `ENOUGH`.

        Without strata all groups stay, however small: the interval of the ratio shows what they allow.
        """
        sample, compared = self.sample, self.sample.compared
        if len({(block.of, block.among) for block in compared.blocks}) == len(compared.blocks):
            return self
        rates = sample.means(self.flagged(self.base(), share)[:, 0])
        size = sample.size * (1.0 if self.n_rows is None else self.n_rows / len(self.t))
        blocks: list[Block] = []
        for block in compared.blocks:
            known = [g for g in block.groups if size[g] > ONE_ROW]
            rate = np.average(rates[known], weights=sample.total[known]) if known else 0.0
            kept = tuple(g for g in known if rate * size[g] >= ENOUGH)
            blocks += [replace(block, groups=kept)] if len(kept) >= 2 else []
        members = replace(sample.members, compared=replace(compared, blocks=tuple(blocks)))
        return replace(self, sample=replace(sample, members=members))


def flag_p_value(rows: FlagRows, share: float) -> float:
    """p-value of "the base score flags all groups alike"; NaN where none are compared.

    By the chi-square test for hard groups that are all compared with each other, of independent rows of equal weight;
    else by the ruler's test, with the errors under equal rates.
    """
    sample, some = rows.sample, rows.compares.any(axis=0)
    plain = sample.weight is None and sample.clusters is None and sample.members.hard
    if not (plain and sample.compared.simple):
        return rows.measured(rows.base(), share, null=True).p_value()
    n = sample.total[some]
    flagged = sample.means(rows.flagged(rows.base(), share)[:, 0])[some] * n
    if not 0 < flagged.sum() < n.sum():
        return 1.0
    expected = n * flagged.sum() / n.sum()
    statistic = ((flagged - expected) ** 2 / expected + (flagged - expected) ** 2 / (n - expected)).sum()
    return float(chdtrc(len(n) - 1, statistic))


def first_even(rows: FlagRows, flagged: BoolArray) -> int:
    """The first of m scores, given their flags (n, m), whose ratio is within one standard error of the best one's.

    Most rows are flagged by both of two scores or by none; the error of the difference is due to the others.
    """
    rates, ratio = rows.sample.means(flagged), rows.ratio(flagged)
    best = int(ratio.argmax())
    against = np.where(rows.compares, rates[:, best, None] / np.maximum(rates[:, best], 1e-12), np.inf)
    low, high = np.unravel_index(int(against.argmin()), against.shape)
    moved = rows.sample.means(flagged != flagged[:, [best]]) / rows.sample.size[:, None]
    error = np.sqrt(moved[low] + ratio[best] ** 2 * moved[high]) / np.maximum(rates[high, best], 1e-12)
    return int((ratio >= ratio[best] - error).argmax())


_ROUNDS = 8  # of counting and solving again
_CLOSE = 0.002  # a ratio counts as met up to this, or up to half of the effect of one row of the smallest group
_WIDTHS = tuple(np.geomspace(0.3, 0.003, 8))  # of smoothed flags, in spreads of the score around the threshold
_WARM = 5  # widths that are skipped from a solution which is nearly right
_BAND = 15.0  # widths from the threshold beyond which a row's flag is certain
_SAMPLED = 6000  # rows of the band that are enough while it is wide
_STEPS, _PASSES = 40, 8  # most Newton steps and passes over all rows at one width
_SMALL = 0.02  # slack times multiplier, in widths times flagged share of a group
_EVEN = 0.998  # the most even ratio solved for: equal rates leave no slack, and no sample distinguishes the two
_RIDGE = 0.01  # of the mean variance of columns, in `linear_resemblance`
_VANISHING = 1e-280  # a mean square too small to divide by
_LEAST = 0.01  # factors of a group's resemblance are kept between this and its inverse


@one_blas_thread()
def even_flags(t: FloatArray, r: FloatArray, sample: Sample, *, flagged: float, ratio: float) -> FloatArray:
    """``lambda`` of the best rule of a ratio, shape (G,); its sum is 0 where every row belongs to one group.

    ``t`` (n,) is not constant, ``r`` (n, G) is resemblance, of mean 1, and ``flagged`` the share of the rows that is
    flagged. ``ratio`` is the smallest over the largest flag rate of the groups that are compared; above 0.998, that is
    solved for.
    """
    held, block = _compared(sample)
    compares = sample.compared.pairs & (sample.total > 0) & (sample.total > 0)[:, None]
    deviation, best, reached = t.std(), np.zeros(r.shape[1]), (-1.0, 0.0)
    z = (t - t.mean()) / deviation
    smallest = max(float(sample.size[compares.any(axis=0)].min(initial=np.inf)), 1.0)
    close = max(_CLOSE, 0.5 / (smallest * flagged))
    if not len(held):
        return best
    programme = _Programme(z, r[:, held], flagged, ratio, _mass(sample.weight, len(t)), block)
    factor, dual = np.ones(len(held)), None
    for _ in range(_ROUNDS):
        dual = programme.solve(factor, dual)
        if dual is None:
            break
        price = np.zeros(r.shape[1])
        price[held] = -factor * dual.worth
        if sample.compared.simple:  # then r @ shares = 1, and a multiple of the shares changes nothing
            price -= sample.total / sample.total.sum() * price.sum()
        moved = z - r @ price
        over = moved > flag_threshold(moved[:, None], flagged, sample.weight)
        rates = np.nan_to_num(sample.means(over))
        counted = float(lowest_over_highest(rates, compares))
        value = min(counted, ratio - close), float((z * programme.mass) @ over)
        if value > reached:
            best, reached = price, value
        if abs(counted - ratio) <= close or not price.any():
            break
        expected = np.maximum(programme.rates(over), 1e-12)
        factor = np.clip(np.sqrt(factor * np.maximum(rates[held] / expected, 1e-12)), _LEAST, 1.0 / _LEAST)
    return best * deviation


@one_blas_thread()
def most_kept(t: FloatArray, r: FloatArray, sample: Sample, *, flagged: float, ratio: float) -> tuple[float, float]:
    """Largest share of t's flagged list that a rule of this ratio can keep, and the mean t of the rows it flags."""
    mass, (held, block) = _mass(sample.weight, len(t)), _compared(sample)
    base = (t > flag_threshold(t[:, None], flagged, sample.weight)).astype(float)
    programme = _Programme(base, r[:, held], flagged, ratio, mass, block)
    dual = programme.solve(np.ones(len(held)))
    if dual is None:
        return float("nan"), float("nan")
    chosen = programme.rule(dual) * mass
    return float(chosen @ base / max(mass @ base, 1e-12)), float(chosen @ t / max(chosen.sum(), 1e-12))


def linear_resemblance(cells: Cells, moving: IntArray) -> FloatArray:
    """Resemblance that is linear in the moving columns, ``r_g = 1 + (z - centre)' B_g`` by least squares.

    Returns the map from (1, z) to r, shape (c + 1, G), from the sums of one set of rows. A score may then move by these
    columns alone: ``t - sum_g lambda_g r_g`` is ``t - (z - centre)' B lambda + constant``. A ridge keeps near-equal
    columns from weights of opposite sign.
    """
    moments = cells.total[0][np.ix_(np.r_[0, 1 + moving], np.r_[0, 1 + moving])] / cells.counts[0]
    centre = moments[0, 1:]
    A, B = moments[1:, 1:] - np.outer(centre, centre), np.zeros((len(moving), cells.n_groups))
    size = np.trace(A) / len(A)
    if size > _VANISHING:  # constant columns have no information
        apart = np.where(cells.group_counts[0][:, None] > 0, cells.group_means[0][:, moving] - centre, 0.0)
        B = np.linalg.solve(A + _RIDGE * size * np.eye(len(A)), apart.T)
    return np.vstack([1.0 - centre @ B, B])


def _mass(weight: FloatArray | None, n: int) -> FloatArray:
    """Weights of the rows, which sum to 1."""
    return np.full(n, 1.0 / n) if weight is None else weight / weight.sum()


def _compared(sample: Sample) -> tuple[IntArray, IntArray]:
    """Groups with rows that are compared with others, and the block of each."""
    blocks = sample.compared.groups_among(sample.total > 0)
    held = np.array([g for block in blocks for g in block], dtype=np.intp)
    return held, np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])


class _Dual(NamedTuple):
    """Point of the Newton iteration.

    ``rise`` and ``fall`` (G,) are the multipliers of "not below the lowest rate" and "not above the highest"; in each
    block ``sum rise = sum fall / ratio``, because the lowest rate is free. A row is flagged by
    ``expit((y - threshold) / width)``.
    """

    rise: FloatArray
    fall: FloatArray
    threshold: float
    width: float

    @property
    def worth(self) -> FloatArray:
        """Multiplier of the rate of each group, shape (G,)."""
        return self.rise - self.fall


class _Band(NamedTuple):
    """Rows near the threshold, ``inside`` (n,); others that are flagged, ``sure`` (n,), with their rates and share.

    ``value`` is that of the dual without smoothing, over all rows.
    """

    gain: FloatArray
    columns: FloatArray
    mass: FloatArray
    inside: BoolArray
    sure: BoolArray
    rates: FloatArray
    share: float
    value: float


class _Programme:
    """The linear programme of n rows and G groups, all of them compared.

    ``gain`` (n,) is in the place of t, ``mass`` (n,) what a row counts, in all 1, and ``block`` (G,) says which groups
    are compared with each other. ``r = columns @ mix``: where r follows from few columns, as it does if detectors alone
    may move, steps cost what these do.
    """

    def __init__(
        self, gain: FloatArray, r: FloatArray, flagged: float, ratio: float, mass: FloatArray, block: IntArray
    ) -> None:
        self.gain, self.flagged, self.ratio, self.mass, self.block = gain, flagged, ratio, mass, block
        self.rho = min(ratio, _EVEN)
        self.order = np.argsort(gain, kind="stable")
        upto = np.cumsum(mass[self.order]) / mass.sum()
        at = np.searchsorted(upto, 1.0 - flagged * np.array([2.0, 1.0, 0.5]))
        low, self.cut, high = gain[self.order[np.minimum(at, len(gain) - 1)]].tolist()
        self.unit = (high - low) or float(gain.std()) or 1.0
        part = np.clip(flagged - (upto - mass[self.order]), 0.0, mass[self.order])
        self.worst = float(part @ gain[self.order])  # the smallest total that any rule of this budget has
        over, tied = gain > self.cut, gain == self.cut
        self.top = over + tied * ((flagged - mass @ over) / (mass @ tied))  # the rule without any multiplier
        self.columns, self.mix = r, np.eye(len(block))
        _, size, across = np.linalg.svd(r[:: max(len(r) // (4 * len(block)), 1)], full_matrices=False)
        rank = int((size > 1e-9 * size[0]).sum())
        if 2 * rank < len(block):
            columns = r @ across[:rank].T
            if np.abs(columns @ across[:rank] - r).max() < 1e-9 * np.abs(r).max():
                self.columns, self.mix = columns, across[:rank]
        size = np.maximum(np.abs(mass @ r), 1e-300)
        self.typical = np.einsum("ig,ig,i->g", r, r, mass) / size  # how much members resemble their own group

    def solve(self, factor: FloatArray, start: _Dual | None = None) -> _Dual | None:
        """Solve it with the columns of r times ``factor`` (G,); None if no rule is even, or none was found.

        ``start`` is the solution of a programme that hardly differs. Steps that have not settled at the last width are
        no solution: mostly there is none, and the dual falls without end.
        """
        unit, G, mix = self.unit, len(self.block), self.mix * factor
        rates = factor * self.rates(self.top)
        if (rates[:, None] >= self.ratio * rates)[self.block[:, None] == self.block].all():
            return _Dual(np.zeros(G), np.zeros(G), self.cut, unit * _WIDTHS[-1])
        price = np.full(G, 10.0 * _SMALL * unit * _WIDTHS[0] / G)
        cold = start is None or not start.rise.any()
        dual = _Dual(price, self.rho * price, self.cut, unit) if start is None or cold else start
        for width in unit * np.array(_WIDTHS[0 if cold else _WARM :]):
            dual, reach, last = dual._replace(width=float(width)), _BAND, width == unit * _WIDTHS[-1]
            for _ in range(_PASSES):
                band = self._band(mix, dual, reach, sampled=not last)
                if band.value < self.worst:  # no rule can have so small a total: the dual has no lower bound
                    return None
                dual, settled = self._newton(mix, band, dual, 0.05 if last else 0.5)
                # A row outside the band may be on the other side of the threshold by now.
                over = self._scores(mix, dual) > dual.threshold if settled and last else band.sure
                if settled and not (~band.inside & (over != band.sure)).any():
                    break
                reach *= 1.5 if settled else 1.0
            else:
                if not cold:  # the start was too far away
                    return self.solve(factor)
                if last:
                    return None
        return dual

    def rates(self, flags: FloatArray | BoolArray) -> FloatArray:
        """Flag rates by resemblance, shape (G,)."""
        return np.asarray(self.mix.T @ (self.columns.T @ (self.mass * flags)))

    def rule(self, dual: _Dual) -> FloatArray:
        """How much each row is flagged where all factors are 1, shape (n,)."""
        if not dual.worth.any():
            return self.top
        return np.asarray(expit((self._scores(self.mix, dual) - dual.threshold) / dual.width))

    def _scores(self, mix: FloatArray, dual: _Dual) -> FloatArray:
        return self.gain + self.columns @ (mix @ dual.worth)

    def _band(self, mix: FloatArray, dual: _Dual, reach: float, *, sampled: bool) -> _Band:
        """The rows within ``reach`` widths of the threshold, or some of them, evenly over their gains."""
        y = self._scores(mix, dual) - dual.threshold
        inside = np.abs(y) < reach * dual.width
        sure, near = (y > 0) & ~inside, self.order[inside[self.order]]
        mass, over = self.mass[near], self.mass * sure
        if sampled and len(near) > _SAMPLED:
            near = near[:: -(-len(near) // _SAMPLED)]
            mass = self.mass[near] * (mass.sum() / self.mass[near].sum())
        rates, value = mix.T @ (self.columns.T @ over), self.flagged * dual.threshold + self.mass @ np.maximum(y, 0.0)
        return _Band(self.gain[near], self.columns[near], mass, inside, sure, rates, float(over.sum()), float(value))

    def _newton(self, mix: FloatArray, band: _Band, dual: _Dual, tolerance: float) -> tuple[_Dual, bool]:
        """Take steps until scores in the band move by less than ``tolerance`` widths, which is said, or leave it.

        They descend ``flagged c + sum m width log(1 + exp((y - c) / width)) - nu sum log(rise fall)``, the smoothed
        dual. With ``p = q + J dw - h dc`` the rates after a step, ``A = rise^2 / nu`` and ``B = fall^2 / nu``, it makes
        ``rise' = 2 rise - A (p - low)`` and ``fall' = 2 fall - B (low / rho - p)``. What is left are linear equations
        in ``dw = rise' - fall' - w``, ``dc`` and the lowest rates ``low``.
        """
        rise, fall, threshold, width = dual
        G, n_blocks, rho = len(rise), int(self.block.max()) + 1, self.rho
        of = (self.block[:, None] == np.arange(n_blocks)).astype(float)
        nu, diagonal, left = _SMALL * width * self.flagged / G, np.arange(G), _BAND / 2.0 * width
        M, wanted = np.zeros((G + 1 + n_blocks,) * 2), np.zeros(G + 1 + n_blocks)
        whole = bool(band.inside.all())

        def smoothed(rise: FloatArray, fall: FloatArray, threshold: float) -> float:
            worth = rise - fall
            y = band.gain + band.columns @ (mix @ worth) - threshold
            soft = width * (band.mass @ np.logaddexp(0.0, y / width)) - nu * (np.log(rise) + np.log(fall)).sum()
            return float((self.flagged - band.share) * threshold + band.rates @ worth + soft)

        value = smoothed(rise, fall, threshold)
        for _ in range(_STEPS):
            worth = rise - fall
            flags = expit((band.gain + band.columns @ (mix @ worth) - threshold) / width)
            own = flags * band.mass
            slope = own * (1.0 - flags) / width
            steep = band.columns * slope[:, None]
            J, h = mix.T @ (band.columns.T @ steep) @ mix, mix.T @ steep.sum(axis=0)
            q, surplus = band.rates + mix.T @ (band.columns.T @ own), band.share + own.sum() - self.flagged
            A, B = rise**2 / nu, fall**2 / nu
            stiff, pull = A + B, A + B / rho
            M[:G, :G], M[:G, G], M[G, :G], M[G, G] = J, -h, -h, slope.sum() + 1e-12
            M[diagonal, diagonal] += 1.0 / stiff
            M[:G, G + 1 :] = -(pull / stiff)[:, None] * of
            M[G + 1 :, :G] = -M[:G, G + 1 :].T
            M[G + 1 :, G + 1 :] = np.diag(of.T @ (A * B / stiff)) * (1.0 / rho - 1.0) ** 2
            wanted[:G], wanted[G] = worth / stiff - q, surplus
            wanted[G + 1 :] = of.T @ (pull * worth / stiff - 2.0 * rise + 2.0 * fall / rho)
            step = np.linalg.solve(M, wanted)
            dw, dc, low = step[:G], float(step[G]), step[G + 1 :][self.block]
            p = q + J @ dw - h * dc
            up, down = rise - A * (p - low), fall - B * (low / rho - p)
            moved = float(np.sqrt((slope @ (band.columns @ (mix @ dw) - dc) ** 2) / max(slope.sum(), 1e-300)))
            if not whole:  # groups may have no row in the band that would show how far they move
                moved = max(moved, 0.25 * float(np.abs(dw * self.typical).max()))
            length = min(1.0, _BAND / 2.0 * width / max(moved, 1e-300))
            for at, change in ((rise, up), (fall, down)):
                length = min(length, 0.95 / max(float((-change / at).max()), 0.95))
            slant = (q - nu / rise) @ up - (q + nu / fall) @ down - surplus * dc
            reached = value
            while length > 1e-9:
                reached = smoothed(rise + length * up, fall + length * down, threshold + length * dc)
                if reached <= value + 0.01 * length * min(slant, 0.0) + 1e-12 * abs(value):
                    break
                length /= 2.0
            rise, fall, threshold = rise + length * up, fall + length * down, threshold + length * dc
            value, left = reached, left - length * moved
            settled = length > 0.9 and moved < tolerance * width
            if settled or left < 0 or length <= 1e-9:
                break
        return _Dual(rise, fall, threshold, width), settled
