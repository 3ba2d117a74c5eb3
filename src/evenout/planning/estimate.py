"""Estimates for all rows from the outcomes of a list: outliers missed, recall, false alarms, with intervals and tests.

Rows on the list have known probabilities pi, and weights ``w = 1 / pi``. For a group, or all rows,

    missed = sum (w - 1) y        over the rows on the list

is unbiased for the outliers among rows that were not investigated (Horvitz and Thompson). Rows chosen by score have
w = 1 and add nothing, neither to the estimate nor to its variance. A ratio divides two such sums (Hajek).

*Intervals.* Outliers found by chance are few, and a sum of few weighted counts is skew. As a sum of weighted Poisson
counts it lies between two gamma distributions (Fay and Feuer 1997): one with the mean and the variance of the estimate,
and one with a further find. They give it the largest weight of all; here it has the mean weight of those found and the
largest possible, which keeps the level where weights differ. The variance of a find is ``w (w - 1)``, since a row that
is investigated is not missed, times what a sample of fixed size saves (Hajek's approximation of the variance, by
stratum, over that of independent draws). Without a find the bound is one-sided.

*Missing outcomes* are taken as missing at random among rows chosen alike, by score or by chance, in the same group: a
second draw with the share that came back as its probability. What they hide is one more count of this kind.

*Tests between groups* ask whether all groups could have the same rate in the long run, so the outliers that there
happen to be count as a sample too. With recall r in all groups, ``sum y (1 - r w)`` has mean 0 in each; its variance is
that under this hypothesis, so that a group without a find by chance is not taken for one without outliers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import chdtrc
from scipy.stats import gamma

from evenout.core.types import BoolArray, FloatArray, IntArray

ALL = "all"
_LEAST_SAVED = 0.1  # of the variance of independent draws that a fixed size leaves at least
_FEW = 5  # chance draws in a stratum


@dataclass(frozen=True)
class ListOutcomes:
    """The m rows on a list with their outcomes, and the G groups that they are from.

    ``outcome`` is 1, 0, or NaN where missing; ``stratum`` that of the draw. ``smallest`` is the smallest probability of
    all rows of a group, 0 if chance could not reach some of them. ``n_known`` are rows whose outcome was known before.
    ``n_chance``, the planned number of rows drawn by chance, is the weight of this list among several.
    """

    outcome: FloatArray
    probability: FloatArray
    group: IntArray
    stratum: IntArray
    smallest: FloatArray
    n_rows: IntArray
    n_known: IntArray
    n_known_outliers: IntArray
    n_chance: int

    def responses(self) -> FloatArray:
        """Rows on the list per outcome that came back, among rows chosen alike; NaN where none did."""
        back, chance = ~np.isnan(self.outcome), self.probability < 1.0
        raised = np.full(len(back), np.nan)
        for part in (chance, ~chance):
            for group in range(len(self.n_rows)):
                alike = part & (self.group == group)
                pool = alike if back[alike].any() else part
                if back[pool].any():
                    raised[alike] = pool.sum() / back[pool].sum()
        return raised


@dataclass(frozen=True)
class Count:
    """An estimated number of outliers among at most ``most`` rows of unknown outcome.

    ``step`` and ``step_variance`` are what a find of the largest weight would add. The estimate says as much as
    ``n_finds`` finds of equal weight. ``known`` of the outliers have been found since.
    """

    value: float
    variance: float
    step: float
    step_variance: float
    n_finds: float
    most: float
    known: float = 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        """Both ends, or 0 and a one-sided bound where nothing was found."""
        low, high, tail = 0.0, np.inf, 0.5 * (1.0 - confidence)
        if np.isfinite(self.value) and np.isfinite(self.step):
            if self.n_finds:
                low = _quantile(tail, self.value, self.variance)
                share = 1.0 / (self.n_finds + 1.0)  # one more find, of the mean weight of the finds and the largest
                mean = self.value + share * (self.value + self.step)
                high = _quantile(1.0 - tail, mean, self.variance + share * (self.variance + self.step_variance))
            else:
                high = _quantile(1.0 - 2.0 * tail, self.step, self.step_variance)
        most = self.most + self.known
        return max(min(low, most) - self.known, 0.0), max(min(high, most) - self.known, 0.0)


def _quantile(share: float, mean: float, variance: float) -> float:
    """A quantile of the gamma distribution with this mean and variance."""
    return float(gamma.ppf(share, mean**2 / variance, scale=variance / mean)) if mean > 0 and variance > 0 else mean


@dataclass(frozen=True)
class Finds:
    """Outliers of a group, or of all rows, that are on a list, and those that it missed."""

    n_rows: int
    n_looks: int
    n_known: int
    confirmed: int
    pending: Count
    missed: Count

    @classmethod
    def of(cls, outcomes: ListOutcomes, groups: BoolArray) -> "Finds":
        """For the rows of the groups that are marked, together."""
        inside = groups[outcomes.group]
        pi, raised, back = outcomes.probability, outcomes.responses(), ~np.isnan(outcomes.outcome)
        hit, chance = inside & (outcomes.outcome == 1.0), pi < 1.0
        known, known_outliers = int(outcomes.n_known[groups].sum()), int(outcomes.n_known_outliers[groups].sum())
        n_rows, n_looks = int(outcomes.n_rows[groups].sum()), int(inside.sum())
        unlooked, n_pending = n_rows - known - n_looks, int((inside & ~back).sum())
        # What missing outcomes hide: a draw of those that came back.
        r = raised[hit]
        step = float(np.max(raised[inside], initial=1.0)) - 1.0  # NaN where nothing came back
        # How many came back is fixed, not a matter of chance.
        fixed = max(1.0 - hit.sum() / max((inside & back).sum(), 1), _LEAST_SAVED)
        pending = Count(
            float((r - 1.0).sum()) if np.isfinite(step) else np.nan, fixed * float((r * (r - 1.0)).sum()), step,
            fixed * (step + 1.0) * step, _effective(r - 1.0), n_pending,
        )  # fmt: skip
        w, r = 1.0 / pi[hit & chance], raised[hit & chance]
        smallest = float(np.min(outcomes.smallest[groups], initial=1.0))
        largest = np.inf if smallest == 0.0 else 1.0 / smallest
        most_raised = float(np.max(raised[inside & chance], initial=1.0)) if (inside & chance).any() else 1.0
        saved = _saved(outcomes, hit & chance, raised)
        value = float((r * (w - 1.0)).sum()) if np.isfinite(largest) and np.isfinite(most_raised) else np.nan
        missed = Count(
            value if unlooked else 0.0, saved * float(_variance(w, r).sum()), most_raised * (largest - 1.0),
            saved * float(_variance(largest, most_raised)) if np.isfinite(largest) else np.inf,
            _effective(r * (w - 1.0)), unlooked,
        )  # fmt: skip
        return cls(n_rows, n_looks, known, known_outliers + int(hit.sum()), pending, missed)


def _effective(weight: FloatArray) -> float:
    """The number of finds of equal weight that say as much as these; 1 at least if there is any."""
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares > 0 else float(len(weight) > 0)


def _variance(w: FloatArray | float, r: FloatArray | float) -> FloatArray:
    """The variance that a find of weight w adds to ``missed``; it stands for r finds, r - 1 with missing outcomes."""
    return np.asarray(r * w * (w - 1.0) + r * (r - 1.0) * (w - 1.0) ** 2)


def _saved(outcomes: ListOutcomes, hit: BoolArray, raised: FloatArray) -> float:
    """Hajek's variance of the sum of weights of the hits, as a share of that of independent draws."""
    if not hit.any():
        return 1.0
    drawn = (outcomes.probability < 1.0) & ~np.isnan(outcomes.outcome)
    pi, z, stratum = outcomes.probability[drawn] / raised[drawn], hit[drawn].astype(float), outcomes.stratum[drawn]
    left = np.bincount(stratum, weights=1.0 - pi)
    centre = np.bincount(stratum, weights=(1.0 - pi) * z / pi) / np.where(left > 0, left, 1.0)
    count = np.bincount(stratum)
    centre[count < _FEW] = 0.0  # too few draws to tell what a fixed number of them saves
    size = np.where(count >= _FEW, count / np.maximum(count - 1, 1), 1.0)
    scatter = size[stratum] * (1.0 - pi) / pi**2 * (z - pi * centre[stratum]) ** 2
    least = (len(z) - z.sum() + 1.0) / (len(z) + 2.0)  # even if every draw was a find
    return float(np.clip(scatter.sum() / ((1.0 - pi) / pi**2 * z).sum(), 0.5 * least, 1.0))


@dataclass(frozen=True)
class Row:
    """One line of an estimate."""

    measure: str
    group: str
    value: float
    low: float
    high: float
    p: float = float("nan")


def estimate_rows(lists: Sequence[ListOutcomes], names: Sequence[str], confidence: float) -> list[Row]:
    """All measures for all rows, then for each group.

    ``lists`` are of the same rows; the last is reported, and each knows the outcomes of those before it.
    """
    n_groups = len(names)
    domains = [(ALL, np.ones(n_groups, dtype=bool))]
    domains += zip(names, np.eye(n_groups, dtype=bool), strict=True) if n_groups > 1 else []
    rows: list[Row] = []
    p = group_tests(lists[-1]) if n_groups > 1 else {}
    for name, groups in domains:
        found = averaged([Finds.of(outcomes, groups) for outcomes in lists], [outcomes.n_chance for outcomes in lists])
        rows += _rows(name, found, confidence, p if name == ALL else {})
    return rows


def averaged(rounds: Sequence[Finds], chance_looks: Sequence[int]) -> Finds:
    """The last round, with the outliers of all rows averaged over rounds, weighted by their planned chance draws.

    Given the past, each round is unbiased for the outliers of all rows, and the errors of rounds are uncorrelated.
    """
    last, share = rounds[-1], np.array(chance_looks, dtype=float)
    if len(rounds) == 1 or not np.isfinite([each.missed.value for each in rounds]).all() or not share.sum():
        return last
    share /= share.sum()
    weighted = list(zip(share, rounds, strict=True))
    # Outliers that later rounds have found were missed by earlier ones.
    found = last.confirmed + last.pending.value
    step, step_variance = max((a * each.missed.step, a**2 * each.missed.step_variance) for a, each in weighted)
    missed = Count(
        float(sum(a * each.missed.value for a, each in weighted)),
        float(sum(a**2 * each.missed.variance for a, each in weighted)), step, step_variance,
        sum(each.missed.n_finds for each in rounds), last.missed.most,
        float(sum(a * (found - each.confirmed - each.pending.value) for a, each in weighted)),
    )  # fmt: skip
    return replace(last, missed=missed)


def _rows(name: str, found: Finds, confidence: float, p: dict[str, float]) -> list[Row]:
    missed, hidden = found.missed.value - found.missed.known, found.pending.value
    missed_ends, hidden_ends = found.missed.interval(confidence), found.pending.interval(confidence)
    n_looks = found.n_looks + found.n_known
    listed = found.confirmed + hidden  # outliers among those looked into
    listed_ends = found.confirmed + hidden_ends[0], found.confirmed + hidden_ends[1]
    alarms, alarm_ends = n_looks - listed, (n_looks - listed_ends[1], n_looks - listed_ends[0])
    possible = float(np.clip(missed, 0.0, found.missed.most))  # an unbiased count may be beyond it; NaN stays
    clear = found.n_rows - n_looks - possible  # inliers among all others
    clear_ends = found.n_rows - n_looks - missed_ends[1], found.n_rows - n_looks - missed_ends[0]
    low, high = (_share(end, n_looks - end) for end in listed_ends)
    return [
        Row("precision", name, _share(listed, alarms), low, high, p.get("precision", np.nan)),
        Row("recall", name, _share(listed, possible), *_share_ends(listed, listed_ends, possible, missed_ends),
            p.get("recall", np.nan)),
        Row("missed", name, missed, *missed_ends),
        Row("false_alarms", name, _share(alarms, clear), *_share_ends(alarms, alarm_ends, clear, clear_ends),
            p.get("false_alarms", np.nan)),
    ]  # fmt: skip


def _share_ends(
    part: float, part_ends: tuple[float, float], rest: float, rest_ends: tuple[float, float]
) -> tuple[float, float]:
    """Ends of ``part / (part + rest)``: both distances of the log odds, added as independent errors are."""
    if part_ends[0] < part_ends[1] and min(part_ends[0], rest_ends[0], rest) > 0:
        down = np.hypot(np.log(part / part_ends[0]), np.log(rest_ends[1] / rest))
        up = np.hypot(np.log(part_ends[1] / part), np.log(rest / rest_ends[0]))
        return _share(part, rest * np.exp(down)), _share(part, rest * np.exp(-up))
    return _share(part_ends[0], rest_ends[1], 0.0), _share(part_ends[1], rest_ends[0], 1.0)


def _share(part: float, rest: float, empty: float = float("nan")) -> float:
    """``part / (part + rest)``."""
    whole = part + rest
    return float(np.clip(part / whole, 0.0, 1.0)) if whole > 0 else (empty if whole == 0 else np.nan)


def group_tests(outcomes: ListOutcomes) -> dict[str, float]:
    """p-values of "the same in all groups", by measure; a measure that cannot be tested is not there."""
    n_groups = len(outcomes.n_rows)
    found = [Finds.of(outcomes, group) for group in np.eye(n_groups, dtype=bool)]
    listed = np.array([each.confirmed + each.pending.value for each in found])
    looked = np.array([each.n_looks + each.n_known for each in found], dtype=float)
    missed, spread, extra = np.array(
        [(each.missed.value, each.missed.variance, each.pending.variance) for each in found]
    ).T.copy()
    p = {"precision": _same_share(listed, looked, extra)}
    if np.isfinite(missed).all():
        inliers = outcomes.n_rows - listed - missed
        alarm = float((looked - listed).sum() / max(inliers.sum(), 1.0))
        p["false_alarms"] = _same_share(looked - listed, inliers, extra + alarm**2 * spread)
        chance = outcomes.probability < 1.0
        drawn = [1.0 / outcomes.probability[chance & (outcomes.group == g)] for g in range(n_groups)]
        typical = np.array([w.mean() if len(w) else 1.0 for w in drawn])
        p["recall"] = _same_recall(listed, missed, typical, extra)
    return {name: value for name, value in p.items() if np.isfinite(value)}


def _same_share(part: FloatArray, whole: FloatArray, extra: FloatArray) -> float:
    """Pearson's test that ``part / whole`` is the same in all groups, with variance beyond the binomial one."""
    some = whole > 0
    if some.sum() < 2 or not part[some].sum():
        return np.nan
    share = part[some].sum() / whole[some].sum()
    variance = whole[some] * share * (1.0 - share) + extra[some]
    if not (variance > 0).all():
        return np.nan
    # The share that fits all groups best, by their variances.
    share = (part[some] * whole[some] / variance).sum() / (whole[some] ** 2 / variance).sum()
    statistic = float(((part[some] - share * whole[some]) ** 2 / variance).sum())
    return float(chdtrc(some.sum() - 1, statistic))


def _same_recall(listed: FloatArray, missed: FloatArray, weight: FloatArray, extra: FloatArray) -> float:
    """The least ``sum_g D_g^2 / V_g`` over r, where ``D = listed - r total`` and V is its variance if recall is r."""
    total = listed + missed
    some = total > 0
    if some.sum() < 2:
        return np.nan
    listed, total, weight, extra = listed[some], total[some], weight[some], extra[some]

    def statistic(r: float) -> float:
        pi = 1.0 / weight
        by_score = np.clip((r - pi) / np.maximum(1.0 - pi, 1e-12), 0.0, 1.0)
        each = by_score * (1.0 - r) ** 2 + (1.0 - by_score) * pi * (1.0 - r * weight) ** 2
        return float(((listed - r * total) ** 2 / np.maximum(total * each + extra, 1e-12)).sum())

    grid = np.linspace(0.005, 0.995, 199)
    best = grid[int(np.argmin([statistic(r) for r in grid]))]
    least = minimize_scalar(statistic, bounds=(max(best - 0.005, 1e-3), min(best + 0.005, 0.999)), method="bounded")
    return float(chdtrc(some.sum() - 1, least.fun))
