"""A request for flag rates, solved at the threshold itself and judged on rows that the rule has not seen.

``y = t - sum_g lambda_g r_g``, where ``r_g`` is how much a row resembles group g, or what the columns of an ensemble
say of that by least squares; lambda is solved for (`evenout.core.even_rates`) on all rows and without each fold.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from evenout.core.choice import SHORTFALL, no_gap_message
from evenout.core.even_rates import even_flags, linear_resemblance, most_kept
from evenout.core.exceptions import InputError, SmallGroupWarning, warn
from evenout.core.flags import ENOUGH, FlagRows, first_even, flag_p_value, top_threshold
from evenout.core.intervals import expected_shortfall
from evenout.core.path import SIGNIFICANCE
from evenout.core.ray import Rule
from evenout.core.ruler import Means, RatioEstimate, Sample, estimate_ratio, noisy_ratios
from evenout.core.types import BoolArray, FloatArray, IntArray

_HALF, _CLOSE = 0.5, 0.9  # of how far the flagged stand out by the base score

# From weights of (columns, t) of each fold (K, 1, k + 1) to flag rates on unseen rows, where there are more than memory
# holds.
Counter = Callable[[FloatArray], Means]


@dataclass(frozen=True)
class Looks:
    """Rows, and how much they look like each group.

    Parameters
    ----------
    rows : FlagRows
        Their columns are the resemblances, each as seen by what has not seen the row.
    own : array of shape (n, G)
        For the rule of all rows.
    without : array of shape (K, n, G)
        For the rules without each fold.
    count : callable, optional
        From lambda of each fold (K, G) to flag rates, where there are more rows than these.
    """

    rows: FlagRows
    own: FloatArray
    without: FloatArray
    count: Callable[[FloatArray], Means] | None = None


@dataclass(frozen=True)
class Even:
    """Lambda, and what may be said of it.

    Parameters
    ----------
    own : array of shape (G,)
    without : array of shape (K, G)
    ratio : RatioEstimate
        Of flag rates on unseen rows.
    met : bool
    message : str
        A template; empty if all is well.
    gap : bool
        Whether the base score has a gap in flag rates at all.
    other : pair of float, optional
        The other optimum at this ratio: the share of the flagged list that a rule can keep at most, and the mean base
        score of whom it flags.
    """

    own: FloatArray
    without: FloatArray
    ratio: RatioEstimate
    met: bool
    message: str = ""
    gap: bool = True
    other: tuple[float, float] | None = None


def even_rule(looks: Looks, share: float, asked: float, more: str) -> Even:
    """Solve for even flag rates.

    The programme is solved for the ratio that is asked for. Where rows that it has not seen do not show it, for larger
    ones. A request counts as met if, by what these rows show, no more than 0.05 of it is missing on average, and half
    of it is reached even at the lower end of the interval. And the flagged must stand out: their mean base score must
    be above that of all rows by half of what it was at least, for a rule that flags ordinary rows is even for a wrong
    reason. Where none is met, the first rule is taken whose counts alone show what is asked, though chance may have
    made them. Where there is none, going on must pay: smaller ratios are solved for too, and the least even rule is
    taken that is within one standard error of the most even one, among those whose flagged stand out by nine tenths.

    Parameters
    ----------
    looks : Looks
    share : float
        Of the rows that is flagged.
    asked : float
        The ratio.
    more : str
        What may reach more, as the last sentence of a message.
    """
    base = _Tried.none(looks, share)
    p = flag_p_value(looks.rows, share)
    if p > SIGNIFICANCE:
        message = no_gap_message(p, "").replace(
            "no group gap was found in the base score", "no gap in flag rates was found"
        )
        return Even(base.own, base.without, base.ratio, False, message, gap=False)
    tried = []
    for aim in (asked, (1.0 + asked) / 2.0, 1.0):
        tried.append(_Tried.solve(looks, share, aim))
        if tried[-1].promises(asked):
            return tried[-1].even(True, "")
    for found in tried:
        if found.shows(asked):
            return found.even(False, found.missed(more))
    before = base.ratio.value
    lower = [before + part * (asked - before) for part in (1.0 / 3.0, 2.0 / 3.0) if 0 < before < asked]
    tried = [base, *(_Tried.solve(looks, share, aim) for aim in lower), *tried]
    close = [found for found in tried if found.stands_out >= _CLOSE]
    taken = close[first_even(looks.rows, np.column_stack([found.flagged for found in close]))]
    return taken.even(False, taken.missed(more))


def even_columns(
    rows: FlagRows, moving: IntArray, share: float, asked: float, more: str, count: Counter | None = None
) -> tuple[Even, Rule]:
    """Solve for even flag rates by what some columns say of the groups; lambda, and the weights that it makes.

    Parameters
    ----------
    rows : FlagRows
    moving : array of int
        The columns that may move.
    share, asked, more : see `even_rule`
    count : callable, optional
        Counts flags among more rows than these.
    """
    k, K = rows.S.shape[1], int(rows.folds.max()) + 1

    def learnt(Z: FloatArray, of: BoolArray, sample: Sample) -> tuple[FloatArray, FloatArray]:
        centre, B = linear_resemblance(Z[of], sample)
        return 1.0 + (Z - centre) @ B, B

    own, B = learnt(rows.S[:, moving], np.ones(len(rows.t), dtype=bool), rows.sample)
    outside = [rows.folds != f for f in range(K)]
    parts = [learnt(rows.without(f)[:, moving], of, rows.sample.of(of)) for f, of in enumerate(outside)]

    def weights(prices: FloatArray, B: FloatArray) -> FloatArray:
        found = np.zeros(k)
        found[moving] = -B @ prices
        return found

    def of_folds(without: FloatArray) -> FloatArray:
        return np.stack([weights(prices, part[1]) for prices, part in zip(without, parts, strict=True)])

    def counted(without: FloatArray) -> Means:
        rates = count(np.column_stack([of_folds(without), np.ones(K)])[:, None])  # type: ignore[misc]
        return replace(rates, compared=rows.sample.compared)

    held = np.zeros_like(own)
    for f, (r, _) in enumerate(parts):
        held[rows.folds == f] = r[rows.folds == f]
    shown = FlagRows(held, rows.t, rows.sample, rows.folds, n_rows=rows.n_rows)
    looks = Looks(shown, own, np.stack([r for r, _ in parts]), None if count is None else counted)
    found = even_rule(looks, share, asked, more)
    found = replace(found, other=other_optimum(looks, found, share)) if found.own.any() else found
    return found, Rule(weights(found.own, B), of_folds(found.without))


def require_compared(rows: FlagRows, sample: Sample, *, asked: bool) -> None:
    """Where flag rates are asked for: say how many groups of a stratum have few flagged rows; refuse if all have."""
    every, some = sample.compared.pairs.any(axis=0), rows.sample.compared.pairs.any(axis=0)
    if asked and (every & ~some).any() and some.any():
        text = (
            "{n} of {m} groups within strata of {@given} can be expected to have fewer than {least} flagged rows: "
            "their flag rates are left out of the ratio. Give fewer or coarser columns, or more rows, to compare them."
        )
        warn(SmallGroupWarning(text, n=int((every & ~some).sum()), m=int(every.sum()), least=ENOUGH))
    if asked and every.any() and not rows.compares.any():
        raise InputError(
            "{@flag_rate_ratio} compares groups that can be expected to have {n} flagged rows, and no stratum of "
            "{@given} has two such groups; give fewer or coarser columns, or more rows",
            n=ENOUGH,
        )


def other_optimum(looks: Looks, found: Even, share: float) -> tuple[float, float]:
    """What the rule of fewest changes keeps of the list, at the ratio that the rule found has; and whom it flags."""
    rows = looks.rows
    y = rows.t - looks.own @ found.own
    counted = float(rows.ratio(y[:, None] > top_threshold(y[:, None], share, rows.sample.weight))[0])
    return most_kept(rows.t, looks.own, rows.sample, flagged=share, ratio=max(counted, 1e-6))


def flag_price(
    t: FloatArray, before: BoolArray, after: BoolArray, other: tuple[float, float] | None
) -> dict[str, float]:
    """What a score costs at the threshold; see ``flag_price_`` of `evenout.BlindRepair`.

    Parameters
    ----------
    t : array of shape (n,)
        The base score.
    before, after : arrays of shape (n,)
        Whom the base score and the other one flag.
    other : pair of float, optional
        See `Even`.
    """
    cost = {
        "mean_score_before": float(t[before].mean()) if before.any() else float("nan"),
        "mean_score": float(t[after].mean()) if after.any() else float("nan"),
        "list_kept": float((before & after).sum() / max(before.sum(), 1)),
    }
    return cost if other is None else cost | {"most_list_kept": other[0], "mean_score_most_kept": other[1]}


@dataclass(frozen=True)
class _Tried:
    """One rule: lambda of all rows and without each fold, whom the latter flag (n, 1), and what that shows.

    ``counted`` is the ratio among these rows, ``ratio`` what it is on new ones, and ``noisy`` what it may be there.
    ``stands_out`` is how far the mean base score of the flagged is above that of all rows, as a share of what it was.
    """

    own: FloatArray
    without: FloatArray
    flagged: BoolArray
    counted: RatioEstimate
    ratio: RatioEstimate
    noisy: FloatArray
    stands_out: float

    @classmethod
    def solve(cls, looks: Looks, share: float, aim: float) -> "_Tried":
        rows = looks.rows
        own = even_flags(rows.t, looks.own, rows.sample, flagged=share, ratio=aim)
        parts = [(r, rows.folds != fold) for fold, r in enumerate(looks.without)]
        without = np.stack(
            [even_flags(rows.t[of], r[of], rows.sample.of(of), flagged=share, ratio=aim) for r, of in parts]
        )
        return cls._judged(looks, share, own, without)

    @classmethod
    def none(cls, looks: Looks, share: float) -> "_Tried":
        """The base score."""
        n_groups = looks.own.shape[1]
        return cls._judged(looks, share, np.zeros(n_groups), np.zeros((len(looks.without), n_groups)))

    @classmethod
    def _judged(cls, looks: Looks, share: float, own: FloatArray, without: FloatArray) -> "_Tried":
        rows = looks.rows
        V = fold_weights(without)
        flagged = rows.flagged(V, share)
        rates = rows.measured(V, share) if looks.count is None else looks.count(without)
        y = rows.t - looks.own @ own
        before, after = (_standing(rows, score, share) for score in (rows.t, y))
        spread = rows.spread(V, share, rates.size.sum()) if without.any() else None
        counted, ratio, noisy = estimate_ratio(rates), estimate_ratio(rates, spread), noisy_ratios(rates, spread)
        return cls(own, without, flagged, counted, ratio, noisy, after / before if before > 0 else 1.0)

    def promises(self, asked: float) -> bool:
        """Whether new rows will get what is asked, as far as can be known."""
        missing = float(np.maximum(asked - self.noisy, 0.0).mean())
        return missing <= SHORTFALL and self.ratio.interval[0] >= asked / 2.0 and self.stands_out >= _HALF

    def shows(self, asked: float) -> bool:
        """Whether the counts show what is asked, chance or not."""
        missing = expected_shortfall(asked, self.counted.value, self.counted.error)
        return missing <= SHORTFALL and self.counted.interval[0] >= asked / 2.0 and self.stands_out >= _HALF

    def even(self, met: bool, message: str) -> Even:
        return Even(self.own, self.without, self.ratio, met, message)

    def missed(self, more: str) -> str:
        """What was reached, at which price; a template."""
        low, high = self.ratio.interval
        if not self.own.any():
            found = (
                "no step away from the base score is worth its own standard error and leaves the flagged standing out, "
                "so it is kept as it is"
            )
        else:
            found = (
                f"the estimate is {self.ratio.value:.2f} (95 % interval {low:.2f} to {high:.2f}), where the flagged "
                f"stand out by {self.stands_out:.0%} of what they did{{price}}"
            )
        return f"{{flag_rate_ratio=:g}} cannot be promised on unseen rows: {found}. {more}"


def _standing(rows: FlagRows, score: FloatArray, share: float) -> float:
    """How far the mean base score of the flagged is above that of all rows; 0 if nobody is flagged."""
    weight = rows.sample.weight
    over = score > top_threshold(score[:, None], share, weight)
    some = None if weight is None else weight[over]
    return float(np.average(rows.t[over], weights=some) - np.average(rows.t, weights=weight)) if over.any() else 0.0


def fold_weights(without: FloatArray) -> FloatArray:
    """Weights of ``(r, t)`` for lambda of each fold (K, G), shape (K, 1, G + 1)."""
    return np.pad(-without, ((0, 0), (0, 1)), constant_values=((0.0, 0.0), (0.0, 1.0)))[:, None]
