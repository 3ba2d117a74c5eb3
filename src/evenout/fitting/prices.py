"""What is taken off a score for resembling each group, ``y = t - sum_g lambda_g r_g``, and what it does and costs.

For equal means lambda is a place on the path of the anchored problem whose columns are the resemblances. For even flag
rates it is solved for (`evenout.fitting.even`), and then judged on rows that it has not seen.
"""

from dataclasses import dataclass

import numpy as np

from evenout.core.choice import Choice
from evenout.core.exceptions import NoGapWarning, TargetNotReachedWarning
from evenout.core.flags import top_threshold
from evenout.core.path import TradeoffPath
from evenout.core.ray import Rule
from evenout.core.ruler import RatioEstimate, Sample, estimate_ratio
from evenout.core.types import FloatArray
from evenout.fitting.even import Even, Looks, even_rule, flag_price, fold_weights, other_optimum
from evenout.fitting.resemblance import CrossFitted, Resemblance
from evenout.inputs.groups import Groups


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

    def apply(self, t: FloatArray, r: FloatArray) -> FloatArray:
        """The score of rows, each by itself: it does not depend on the rows around it."""
        return t - np.einsum("ig,g->i", r, self.own) if self.own.any() else t.copy()

    def reduction(self, path: TradeoffPath) -> float:
        """Share of the bias that is gone on unseen rows; NaN without a gap."""
        if not path.gap_detected or not np.isnan(self.choice.alpha):
            return self.choice.reached
        return float(path.towards(Rule(-self.own, -self.without)).reduction(1.0))


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
    def unknown(cls, n_groups: int) -> "FlagState":
        """Nothing is compared."""
        return cls(np.full((n_groups, 2), np.nan), RatioEstimate.unknown(), {})

    @classmethod
    def of(
        cls, cross: CrossFitted, t: FloatArray, sample: Sample, prices: Prices, share: float, *, other: bool
    ) -> "FlagState":
        """Count; ``other`` adds the rule that keeps most of the list."""
        rows = cross.held(t, sample, share)
        both = np.concatenate([fold_weights(np.zeros_like(prices.without)), fold_weights(prices.without)], axis=1)
        rates = sample.means(rows.flagged(both, share))
        solved = other and prices.without.any()
        ratio = estimate_ratio(rows.measured(both[:, 1:], share), rows.spread(both[:, 1:], share) if solved else None)
        y = prices.apply(t, cross.own)
        kept = None
        if other and rows.compares.any():
            looks = Looks(rows, cross.own, cross.without)
            kept = other_optimum(looks, Even(prices.own, prices.without, ratio, prices.choice.met), share)
        before, after = (score > top_threshold(score[:, None], share, sample.weight) for score in (t, y))
        cost = flag_price(t, before, after, kept)
        return cls(rates, ratio, cost)


@dataclass(frozen=True)
class Repaired:
    """All that a repair has learnt; ``model``, ``path`` and ``flags`` are None without two groups to compare."""

    model: Resemblance | None
    path: TradeoffPath | None
    prices: Prices
    flags: FlagState | None
    groups: Groups


def no_prices(n_folds: int, n_groups: int, choice: Choice | None = None) -> Prices:
    """The score as it is."""
    nan = float("nan")
    none = Choice(nan, nan, False, nan, (nan, nan), 1.0)
    return Prices(np.zeros(n_groups), np.zeros((n_folds, n_groups)), choice or none)


def mean_prices(path: TradeoffPath, choice: Choice, model: Resemblance) -> Prices:
    """Lambda at the place on the path that was chosen."""
    v, alphas = path.weights(choice.alpha), np.array([choice.alpha])
    if not v.any():
        return no_prices(path.cross.n_folds, len(v), choice)
    return Prices(model.levelled(-v), -path.fold_weights(alphas, "unseen")[:, 0, :-1], choice)


def flag_prices(cross: CrossFitted, t: FloatArray, sample: Sample, share: float, asked: float, more: str) -> Prices:
    """Lambda that is solved for even flag rates; see `evenout.fitting.even.even_rule`."""
    rows = cross.held(t, sample, share)
    even = even_rule(Looks(rows, cross.own, cross.without), share, asked, more)
    nan, y = float("nan"), t - cross.own @ even.own
    correlation = float(np.corrcoef(t, y)[0, 1]) if y.std() > 0 and t.std() > 0 else 0.0
    kind = TargetNotReachedWarning if even.gap else NoGapWarning
    choice = Choice(nan, asked, even.met, nan, (nan, nan), correlation if even.own.any() else 1.0, even.message, kind)
    return Prices(even.own, even.without, choice)
