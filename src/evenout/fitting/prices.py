"""What is taken off a score for resembling each group, ``y = t - sum_g lambda_g r_g``, and what it does and costs.

For equal means lambda is a place on the path of the anchored problem whose columns are the resemblances. For even flag
rates it is solved for (`evenout.core.even_rates`), and then judged on rows that it has not seen.
"""

from dataclasses import dataclass

import numpy as np

from evenout.core.choice import SHORTFALL, Choice, no_gap_message
from evenout.core.even_rates import RatioEstimate, estimate_ratio, even_flags, most_kept
from evenout.core.exceptions import NoGapWarning
from evenout.core.flags import flag_threshold, rate_ratio
from evenout.core.intervals import expected_shortfall
from evenout.core.path import SIGNIFICANCE, TradeoffPath
from evenout.core.registry import PARITY
from evenout.core.types import BoolArray, FloatArray
from evenout.fitting.request import FlagRows, first_even, flag_p_value
from evenout.fitting.resemblance import CrossFitted

_HALF, _CLOSE = 0.5, 0.9  # of how far the flagged stand out by the base score


@dataclass(frozen=True)
class Prices:
    """lambda, and what may be said of it.

    Parameters
    ----------
    own : array of shape (G,)
        For new rows.
    without : array of shape (K, G)
        As solved without each fold.
    choice : Choice
    """

    own: FloatArray
    without: FloatArray
    choice: Choice

    @property
    def fold_weights(self) -> FloatArray:
        """Weights of ``(r, t)`` that score the rows of each fold, shape (K, 1, G + 1)."""
        return _weights(self.without)

    def apply(self, t: FloatArray, r: FloatArray) -> FloatArray:
        """The score of rows, each by itself: it does not depend on the rows around it."""
        return t - np.einsum("ig,g->i", r, self.own) if self.own.any() else t.copy()

    def reduction(self, path: TradeoffPath) -> float:
        """Share of the bias that is gone on unseen rows; NaN without a gap."""
        if not path.gap_detected or not np.isnan(self.choice.alpha):
            return self.choice.reached
        return 1.0 - float(PARITY.bias(path.cross, self.fold_weights)[0]) / path.target_bias()


@dataclass(frozen=True)
class FlagState:
    """Whom a score flags before and after.

    Parameters
    ----------
    rates : array of shape (G, 2)
        Share of each group, counted on rows that nothing has seen.
    ratio : RatioEstimate
    cost : dict of str to float
        See ``flag_price_`` of `evenout.BlindRepair`.
    """

    rates: FloatArray
    ratio: RatioEstimate
    cost: dict[str, float]

    @classmethod
    def of(cls, cross: CrossFitted, t: FloatArray, prices: Prices, share: float, *, other: bool) -> "FlagState":
        """Count; ``other`` adds the rule that keeps most of the list."""
        rows = cross.held(t)
        both = np.concatenate([_weights(np.zeros_like(prices.without)), prices.fold_weights], axis=1)
        rates = rows.rates(rows.flagged(both, share))
        ratio = estimate_ratio(rates[:, 1], rows.sizes)
        y = prices.apply(t, cross.own)
        before, after = (score > flag_threshold(score, share) for score in (t, y))
        cost = {
            "mean_score_before": float(t[before].mean()) if before.any() else float("nan"),
            "mean_score": float(t[after].mean()) if after.any() else float("nan"),
            "list_kept": float((before & after).sum() / max(before.sum(), 1)),
        }
        if other:
            counted = float(rate_ratio(rows.rates(after[:, None]))[0])
            kept, mean = most_kept(t, cross.own, flagged=share, ratio=max(counted, 1e-6))
            cost |= {"most_list_kept": kept, "mean_score_most_kept": mean}
        return cls(rates, ratio, cost)


def no_prices(n_folds: int, n_groups: int, choice: Choice) -> Prices:
    """The score as it is."""
    return Prices(np.zeros(n_groups), np.zeros((n_folds, n_groups)), choice)


def mean_prices(path: TradeoffPath, choice: Choice, shares: FloatArray) -> Prices:
    """Lambda at the place on the path that was chosen; ``r @ shares = 1``, so that its sum can be made 0."""
    v, alphas = path.weights(choice.alpha), np.array([choice.alpha])
    if not v.any():
        return no_prices(path.cross.n_folds, len(v), choice)
    return Prices(shares * v.sum() - v, -path.fold_weights(alphas, "unseen")[:, 0, :-1], choice)


def flag_prices(cross: CrossFitted, t: FloatArray, share: float, asked: float, more: str) -> Prices:
    """Solve for even flag rates.

    The programme is solved for the ratio that is asked for. Where rows that it has not seen do not show it, for larger
    ones. A request counts as met if, by what these rows show, no more than 0.05 of it is missing on average, and half
    of it is reached even at the lower end of the interval. And the flagged must stand out: their mean base score must
    be above that of all rows by half of what it was at least, for a rule that flags ordinary rows is even for a wrong
    reason. Where none is met, going on must pay: smaller ratios are solved for too, and the least even rule is taken
    that is within one standard error of the most even one, among those whose flagged stand out by nine tenths at least.

    Parameters
    ----------
    cross : CrossFitted
    t : array of shape (n,)
    share : float
        Of the rows that is flagged.
    asked : float
        The ratio.
    more : str
        What may reach more, as the last sentence of a message.
    """
    rows, n_groups = cross.held(t), cross.own.shape[1]
    p = flag_p_value(rows, share)
    if p > SIGNIFICANCE:
        nan = float("nan")
        message = no_gap_message(p, "").replace(
            "no group gap was found in the base score", "no gap in flag rates was found"
        )
        choice = Choice(nan, asked, False, nan, (nan, nan), 1.0, message, NoGapWarning)
        return no_prices(len(cross.without), n_groups, choice)
    tried = []
    for aim in (asked, (1.0 + asked) / 2.0, 1.0):
        tried.append(_Tried.solve(cross, rows, share, aim))
        if tried[-1].supports(asked):
            return tried[-1].prices(asked, True, "")
    base = _Tried.none(cross, rows, share)
    before = base.ratio.value
    lower = [before + part * (asked - before) for part in (1.0 / 3.0, 2.0 / 3.0) if 0 < before < asked]
    tried = [base, *(_Tried.solve(cross, rows, share, aim) for aim in lower), *tried]
    close = [found for found in tried if found.stands_out >= _CLOSE]
    taken = close[first_even(rows, np.column_stack([found.flagged for found in close]))]
    return taken.prices(asked, False, taken.missed(more))


@dataclass(frozen=True)
class _Tried:
    """One rule: lambda of all rows and without each fold, whom the latter flag (n, 1), and what that shows.

    ``stands_out`` is how far the mean base score of the flagged is above that of all rows, as a share of what it was.
    """

    own: FloatArray
    without: FloatArray
    flagged: BoolArray
    ratio: RatioEstimate
    correlation: float
    stands_out: float

    @classmethod
    def solve(cls, cross: CrossFitted, rows: FlagRows, share: float, aim: float) -> "_Tried":
        def solved(r: FloatArray, of: BoolArray) -> FloatArray:
            shares = np.bincount(cross.codes[of & (cross.codes >= 0)], minlength=r.shape[1])
            return even_flags(rows.t[of], r[of], cross.codes[of], shares / shares.sum(), flagged=share, ratio=aim)

        own = solved(cross.own, np.ones(len(rows.t), dtype=bool))
        without = np.stack([solved(r, rows.folds != fold) for fold, r in enumerate(cross.without)])
        return cls._judged(cross, rows, share, own, without)

    @classmethod
    def none(cls, cross: CrossFitted, rows: FlagRows, share: float) -> "_Tried":
        """The base score."""
        n_groups = cross.own.shape[1]
        return cls._judged(cross, rows, share, np.zeros(n_groups), np.zeros((len(cross.without), n_groups)))

    @classmethod
    def _judged(
        cls, cross: CrossFitted, rows: FlagRows, share: float, own: FloatArray, without: FloatArray
    ) -> "_Tried":
        flagged = rows.flagged(_weights(without), share)
        ratio = estimate_ratio(rows.rates(flagged)[:, 0], rows.sizes)
        y = rows.t - cross.own @ own
        correlation = float(np.corrcoef(rows.t, y)[0, 1]) if y.std() > 0 else 0.0
        before, after = (rows.t[score > flag_threshold(score, share)].mean() - rows.t.mean() for score in (rows.t, y))
        return cls(own, without, flagged, ratio, correlation, float(after / before))

    def supports(self, asked: float) -> bool:
        """Whether what unseen rows show supports the request."""
        missing = expected_shortfall(asked, self.ratio.value, self.ratio.error)
        return missing <= SHORTFALL and self.ratio.interval[0] >= asked / 2.0 and self.stands_out >= _HALF

    def prices(self, asked: float, met: bool, message: str) -> Prices:
        nan = float("nan")
        return Prices(self.own, self.without, Choice(nan, asked, met, nan, (nan, nan), self.correlation, message))

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


def _weights(without: FloatArray) -> FloatArray:
    """Weights of ``(r, t)`` for lambda of each fold (K, G), shape (K, 1, G + 1)."""
    return np.pad(-without, ((0, 0), (0, 1)), constant_values=((0.0, 0.0), (0.0, 1.0)))[:, None]
