"""Which alpha to take: the smallest that does what is asked, and no price for nothing where none does.

*Choosing* wants low variance and goes by `TradeoffPath.choice`. *Stating* what was reached wants honesty and goes by
`TradeoffPath.reduction` and its interval. A request counts as met if, by what is stated, no more than 0.05 of it is
missing on average, and half of it is reached even at the lower end of the interval. With a ``confidence`` the
smallest alpha is taken for which ``b(alpha) - (1 - r) b_0 <= 0`` holds with that confidence, whichever alpha is
picked: the bound is uniform along the path.

Where a request is not met, going on must pay: the smallest alpha is taken from which on no larger one removes more than
the standard error of the difference. If no alpha reaches it at all, none is considered where the score's correlation
with the base score is below 0.9.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenout.core.cells import CrossFit
from evenout.core.exceptions import (
    EvenoutWarning,
    NoGapWarning,
    TargetNotReachedWarning,
    UnknownOutcomeWarning,
    warn,
)
from evenout.core.intervals import expected_shortfall
from evenout.core.parity import DemographicParity
from evenout.core.path import SIGNIFICANCE, Target, TradeoffPath
from evenout.core.registry import PARITY
from evenout.core.types import FloatArray

LEAST_CORRELATION = 0.9
HALF_SHARED = 0.5**0.5  # correlation at which two scores share half of their variance
SHORTFALL = 0.05  # mean shortfall up to which a request counts as met
_ROUNDING = 1e-9  # of the bias at alpha = 0: a gain below is none
_DRAWS = 4000  # of the largest error along the path
_MORE = "detectors ({detectors='diverse'}), or ScoreRepair where the group may be used, may reach more."
_ANYWAY = "Give {@alpha} to remove bias all the same."


@dataclass(frozen=True)
class Choice:
    """An alpha, and what may be said of it.

    Parameters
    ----------
    alpha : float
    asked : float
        The share of the bias to remove.
    met : bool
        Whether what is stated supports the request.
    reached : float
        The stated share; NaN without a gap.
    interval : pair of float
        Of the stated share, 95 %; NaN on training rows.
    correlation : float
        Of the score with the base score.
    message : str
        What a user must know, the template of `kind`; empty if all is well.
    kind : type of EvenoutWarning
    """

    alpha: float
    asked: float
    met: bool
    reached: float
    interval: tuple[float, float]
    correlation: float
    message: str = ""
    kind: type[EvenoutWarning] = TargetNotReachedWarning

    def found_gap(self, *, changed: bool) -> bool:
        """Whether a gap in flag rates was found, given whether anything was ``changed`` to even it out."""
        return self.kind is not NoGapWarning and (changed or self.kind is not UnknownOutcomeWarning)

    def announced(self, price: str = "", *, asked: bool = True) -> "Choice":
        """Give the message, with the price put in, as a warning; the choice itself.

        Where nothing was ``asked`` for, there is nothing to miss.
        """
        if self.message and (asked or self.kind is not TargetNotReachedWarning):
            aims = {"bias_reduction": self.asked, "flag_rate_ratio": self.asked}
            warn(self.kind(self.message, alpha=self.alpha, price=price, **aims))
        return self


def choose(
    path: TradeoffPath,
    bias_reduction: float,
    target: Target,
    confidence: float | None = None,
    *,
    least: float = 0.0,
    more: str = _MORE,
    anyway: str = _ANYWAY,
) -> Choice:
    """Choose alpha for a share of the bias to remove; see the head of this module.

    ``least`` is the correlation with the base score below which a request is not met, whatever the bias: that would be
    another score. ``more`` ends the message "Other ... may reach more" where it is not met, and ``anyway`` that of no
    gap.
    """
    nan = float("nan")
    if not path.gap_detected:
        message = no_gap_message(path.gap_p_value, anyway)
        return Choice(0.0, bias_reduction, False, nan, (nan, nan), 1.0, message, NoGapWarning)
    if confidence is not None and target == "unseen":
        alpha = least_alpha(path, _bound(path, bias_reduction, confidence), 0.0)
    else:
        base = path.target_bias(target)
        alpha = least_alpha(path, lambda alphas: 1.0 - path.choice(alphas, target) / base, bias_reduction)
    stated = _State.at(path, 0.0 if alpha is None else alpha, bias_reduction, target)
    lost = stated.correlation if stated.correlation < least else None
    alpha = alpha if lost is None else None
    met, message = alpha is not None and (stated.supports or confidence is not None), ""
    if not met:
        stated = _State.at(path, worthwhile_alpha(path, target, alpha), bias_reduction, target)
        message = _missed(target, confidence, stated, more, lost, promised=alpha is not None)
    return Choice(stated.alpha, bias_reduction, met, stated.reached, stated.interval, stated.correlation, message)


@dataclass(frozen=True)
class _State:
    """What is stated of one alpha; ``supports``: whether that supports the request."""

    alpha: float
    reached: float
    interval: tuple[float, float]
    correlation: float
    supports: bool

    @classmethod
    def at(cls, path: TradeoffPath, alpha: float, asked: float, target: Target) -> "_State":
        reached, correlation = float(path.reduction(alpha, target)), float(path.correlation(alpha))
        if target == "training":
            return cls(alpha, reached, (float("nan"), float("nan")), correlation, reached >= asked - 1e-9)
        missing = expected_shortfall(asked, reached, path.reduction_error(alpha))
        low, high = map(float, path.reduction_interval(alpha))
        supports = missing <= SHORTFALL and low >= (asked if path.cross.crowded else asked / 2.0)
        return cls(alpha, reached, (low, high), correlation, supports)


def least_alpha(path: TradeoffPath, measure: Callable[[FloatArray], FloatArray], request: float) -> float | None:
    """The smallest alpha with ``measure(alpha) >= request``, by grid and bisection; None if there is none.

    ``measure`` takes m alphas and returns m values, larger is fairer. It need not be monotone.
    """
    alphas = np.r_[0.0, path.grid()]
    reached = np.nan_to_num(measure(alphas), nan=-np.inf) >= request
    if not reached.any():
        return None
    first = int(reached.argmax())
    if first == 0:
        return 0.0
    low, high = alphas[first - 1], alphas[first]
    while high - low > 1e-6 * high:
        middle = np.sqrt(low * high) if low > 0 else high / 2
        if measure(np.array([middle]))[0] >= request:
            high = middle
        else:
            low = middle
    return float(high)


def worthwhile_alpha(path: TradeoffPath, target: Target, aimed: float | None = None) -> float:
    """The smallest alpha from which on no larger one, up to the one aimed at, pays; see the head of this module."""
    if aimed is None:
        alphas = close_alphas(path)
    else:
        below = path.grid()
        alphas = np.r_[0.0, below[below < aimed], aimed]
    left = path.choice(alphas, target)
    error = np.zeros((len(alphas),) * 2)
    if target == "unseen":
        cov = path.covariance(alphas)[:-1, :-1]
        spread = np.diag(cov)
        error = np.sqrt(np.maximum(spread[:, None] + spread - 2.0 * cov, 0.0))
    gain = np.triu(left[:, None] - left, 1)
    pays = (gain > np.nan_to_num(error) + _ROUNDING * abs(left[0])).any(axis=1)
    return float(alphas[int((~pays).argmax())])


def close_alphas(path: TradeoffPath) -> FloatArray:
    """0, and those alphas of the grid whose score keeps close to the base score."""
    alphas = path.grid()
    return np.r_[0.0, alphas[~(path.correlation(alphas) < LEAST_CORRELATION)]]


def open_path(cross: CrossFit, fairness: Mapping[Any, float], **settings: Any) -> TradeoffPath:
    """The path; of several notions, those of groups are left out, with a warning, where they have no gap to remove."""
    path = TradeoffPath(cross, fairness, **settings)
    if len(path.notions) < 2 or cross.whole.n_groups < 2:
        return path
    groups = [notion for notion, _ in path.notions if isinstance(notion, DemographicParity)]
    even = [notion for notion in groups if not TradeoffPath(cross, {notion: 1.0}).gap_detected]
    rest = {notion: weight for notion, weight in path.notions if notion not in even}
    if not even or not rest:
        return TradeoffPath(cross, {even[0]: 1.0}, **settings) if even else path
    named = " and ".join(notion.name for notion in rest)
    what = "" if even == [PARITY] else f" by {' and '.join(notion.name for notion in even)}"
    p = min(notion.gap_p_value(cross.whole) for notion in even)
    warn(
        f"no group gap was found in the base score{what} (p = {p:.2g} for 'no gap'); only {named} fairness is pursued",
        NoGapWarning,
    )
    return TradeoffPath(cross, rest if len(rest) > 1 else dict.fromkeys(rest, 1.0), **settings)


def no_gap_message(p: float, anyway: str = _ANYWAY) -> str:
    """Why nothing was changed."""
    tested = "" if np.isnan(p) else f" (p = {p:.2g} for 'no gap')"
    why = "what differs between the groups is within sampling noise"
    what = f"no group gap was found in the base score{tested}: {why}"
    if p <= SIGNIFICANCE:
        what = f"the group gap of the base score{tested} or the groups are too small to be measured on held-out rows"
    return f"{what}, so the scores are the base scores, unchanged. {anyway}".rstrip()


def _bound(path: TradeoffPath, asked: float, confidence: float) -> Callable[[FloatArray], FloatArray]:
    """Minus the upper bound of ``b(alpha) - (1 - r) b_0``, valid for all alphas at once.

    The bound takes errors as normal. So that it promises no more than the interval that is stated, the interval's lower
    end must reach the request too.
    """

    def error(alphas: FloatArray) -> FloatArray:
        change = np.column_stack([np.eye(len(alphas)), np.full(len(alphas), asked - 1.0)])
        return change @ path.covariance(alphas) @ change.T

    cov = error(np.r_[0.0, path.grid()])
    spread = np.sqrt(np.maximum(np.diag(cov), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(cov / np.outer(spread, spread))
    draws = np.random.default_rng(0).standard_normal((_DRAWS, len(values)))
    highest = (draws * np.sqrt(np.maximum(values, 0.0)) @ vectors.T).max(axis=1)
    reach = float(np.quantile(highest, confidence))

    def measure(alphas: FloatArray) -> FloatArray:
        difference = path.bias(alphas) - (1.0 - asked) * path.target_bias()
        bound = difference + reach * np.sqrt(np.maximum(np.diag(error(alphas)), 0.0))
        return np.minimum(-bound, path.reduction_interval(alphas, confidence)[0] - asked)

    return measure


def _missed(
    target: Target, confidence: float | None, stated: _State, other: str, lost: float | None, *, promised: bool
) -> str:
    """What was reached, what it cost and what would reach more; a template."""
    low, high = stated.interval
    ends = f" (95 % interval {low:.2f} to {high:.2f})"
    if not np.isfinite(low):
        ends = "" if np.isnan(low) else f" (95 % interval up to {high:.2f})"
    sure = "" if confidence is None else f" with confidence {confidence:g}"
    if stated.alpha == 0:
        found = "no step away from the base score removes more than its own standard error, so it is kept as it is"
    else:
        found = (
            f"the estimate is {stated.reached:.2f}{ends}, at {{alpha=:.4g}}, "
            f"where the score's correlation with the base score is {stated.correlation:.2f}{{price}}"
        )
    if promised:
        head, more = f"cannot be promised on {target} rows", "More rows would tell; other"
    else:
        why = "Going on would gain less than its own standard error."
        if lost is not None:
            why = f"Where it is, the correlation is {lost:.2f}, and the score is another one."
        head, more = f"is not reached on {target} rows{sure}", f"{why} Other"
    return f"{{bias_reduction=:g}} {head}: {found}. {more} {other}"
