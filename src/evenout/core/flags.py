"""Who is flagged by a score, and how often each group is among the flagged."""

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral

import numpy as np
from scipy.special import chdtrc

from evenout.core.exceptions import InputError
from evenout.core.membership import Comparison
from evenout.core.ruler import Means, Sample, lowest_over_highest
from evenout.core.types import BoolArray, FloatArray, IntArray

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
