"""What is asked of a fit: which notions of fairness, and how far to go towards them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from evenout.core.cells import CrossFit
from evenout.core.choice import HALF_SHARED, Choice, choose, close_alphas, least_alpha, no_gap_message, open_path
from evenout.core.combine import LINEAR
from evenout.core.exceptions import InputError, NoGapWarning
from evenout.core.flags import FlagRows, first_even, flag_p_value
from evenout.core.notions import Notion
from evenout.core.own import Own
from evenout.core.parity import DemographicParity
from evenout.core.path import SIGNIFICANCE, Target, TradeoffPath
from evenout.core.problem import Columns, Correction, Method, Weights
from evenout.core.ray import Rule
from evenout.core.registry import NOTIONS, weighted_notions
from evenout.core.ruler import RatioEstimate, estimate_ratio
from evenout.core.types import FloatArray, IntArray
from evenout.fitting.doubt import doubted
from evenout.fitting.even import Counter, even_columns, flag_price, require_compared
from evenout.inputs.parameters import number

DEFAULT_REDUCTION = 0.8
_OF_A_RULE = 1.4  # how much wider intervals of the bias are where flags are solved for: the rule itself is noisy


@dataclass(frozen=True)
class Request:
    """The estimator's parameters of the same names, checked against each other; see `FairOutlierEnsemble`.

    Parameters
    ----------
    fairness : dict
        Notion to weight.
    bias_reduction, flag_rate_ratio, alpha : float or None
        At most one is given.
    confidence : float or None
    target : {"unseen", "training"}
    method : {"anchored", "published"}
    weights : {"free", "nonnegative", "simplex"}
    contamination : float or int
    correction : {"weights", "resemblance", "both"}
    """

    fairness: dict[Notion, float]
    bias_reduction: float | None
    flag_rate_ratio: float | None
    alpha: float | None
    confidence: float | None
    target: Target
    method: Method
    weights: Weights
    contamination: float
    correction: Correction = "weights"

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> "Request":
        """Take the request out of an estimator's parameters; contradictions are refused."""
        ways = {name: parameters[name] for name in ("bias_reduction", "flag_rate_ratio", "alpha")}
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            named = " and ".join(f"{{@{name}}}" for name in given)
            raise InputError(
                named + " were given; give at most one of {@bias_reduction}, {@flag_rate_ratio} and {@alpha}"
            )
        if parameters["confidence"] is not None and given and given[0] != "bias_reduction":
            raise InputError(
                "{@confidence} goes with {@bias_reduction}, but {$given} was given; leave one of them out",
                given=given[0],
            )
        if parameters["confidence"] is not None and parameters["target"] == "training":
            raise InputError(
                "{@confidence} is about unseen rows, but {target='training'} was given; leave one of them out"
            )
        _check_correction(parameters)
        rest = ("confidence", "target", "method", "weights", "contamination", "correction")
        return cls(_notions(parameters), **ways, **{name: parameters[name] for name in rest})

    @property
    def asked(self) -> bool:
        """Whether anything was asked for; else the aim is `DEFAULT_REDUCTION`."""
        return (self.bias_reduction, self.flag_rate_ratio, self.alpha, self.confidence) != (None,) * 4

    def path(self, cross: CrossFit, resembling: int = 0) -> TradeoffPath:
        """Every trade-off. What is meant for unseen rows is solved against sampling noise.

        So many of the last columns, ``resembling``, say how much rows resemble each group.
        """
        settings: dict[str, Any] = {"method": self.method, "noise_aware": self.target == "unseen"}
        columns = Columns(self.correction, resembling)
        return open_path(cross, self.fairness, **settings, constraint=self.weights, columns=columns)

    def settle(self, path: TradeoffPath, rows: FlagRows, count: Counter | None = None) -> "Settled":
        """The way to what is asked, the place on it, and the ratio of flag rates there.

        Flags are counted among the rows, or by ``count`` among more rows than these.
        """
        path, whole = path.towards(None) if path.rule is not None else path, rows.sample
        rows = rows.narrowed(rows.share(self.contamination))
        require_compared(rows, whole, asked=self.flag_rate_ratio is not None and self.target == "unseen")
        if path.cross.whole.n_groups < 2 or not rows.compares.any():
            return Settled(path, self.choose(path, rows), RatioEstimate.unknown(), {})
        share, moving, other = rows.share(self.contamination), self._moving(path), None
        if self.flag_rate_ratio is not None and len(moving):
            path, choice, other = self._solved(path, rows, moving, self.flag_rate_ratio, count)
        else:
            choice = self.choose(path, rows)
        V = path.fold_weights(np.array([choice.alpha]), self.target)
        judged = rows if self.target == "unseen" else replace(rows, folds=np.zeros_like(rows.folds))
        before, after = judged.flagged(np.concatenate([judged.base(), V], axis=1), share).T
        rates = judged.measured(V, share)
        if count is not None and self.target == "unseen":
            rates = replace(count(V), compared=rows.sample.compared)
        solved = path.rule is not None
        ratio = estimate_ratio(rates, judged.spread(V, share, rates.size.sum()) if solved else None)
        choice, ratio = doubted(choice, ratio, judged, V, share, self.flag_rate_ratio)
        return Settled(path, choice, ratio, flag_price(rows.t, before, after, other))

    def _solved(
        self, path: TradeoffPath, rows: FlagRows, moving: IntArray, asked: float, count: Counter | None
    ) -> tuple[TradeoffPath, Choice, tuple[float, float] | None]:
        """The way to the rule that is solved for even flags, its end, at 1, and the other optimum."""
        share, more = rows.share(self.contamination), _more(self.correction)
        even, rule = even_columns(rows, moving, share, asked, more, count)
        rule = _in_own_units(rule, path, rows)
        path = path.towards(rule) if rule.own.any() else path
        choice = self._given(path, float(rule.own.any()), _OF_A_RULE)
        if not even.gap:
            nan = float("nan")
            choice = replace(choice, reached=nan, interval=(nan, nan), kind=NoGapWarning)
        return path, replace(choice, asked=asked, met=even.met, message=even.message), even.other

    def _moving(self, path: TradeoffPath) -> IntArray:
        """The columns by which flag rates are solved for: those that no constraint is about."""
        k = path.cross.whole.n_detectors
        parity = all(isinstance(notion, DemographicParity) for notion in self.fairness)
        if self.method == "published" or self.target == "training" or not parity:
            return np.zeros(0, dtype=np.intp)
        own = path.columns.moving(k)
        return own if self.weights == "free" else own[path.columns.free(k)[own]]

    def choose(self, path: TradeoffPath, rows: FlagRows) -> Choice:
        """The alpha on the path that does what is asked; flags are counted among the rows."""
        if path.cross.whole.n_groups < 2:  # nobody to compare, which has been said
            nan = float("nan")
            return Choice(0.0, nan, False, nan, (nan, nan), 1.0)
        if self.alpha is not None:
            return self._given(path, float(self.alpha))
        if self.flag_rate_ratio is not None:
            return self._by_flags(path, rows, self.flag_rate_ratio)
        asked = DEFAULT_REDUCTION if self.bias_reduction is None else self.bias_reduction
        if self.correction == "weights":
            return choose(path, asked, self.target, self.confidence)
        more = _more(self.correction).replace("Other ", "")
        return choose(path, asked, self.target, self.confidence, least=HALF_SHARED, more=more)

    def _given(self, path: TradeoffPath, alpha: float, wider: float = 1.0) -> Choice:
        """What may be said of an alpha that was not chosen here, its interval so much wider."""
        nan = float("nan")
        reached, interval = nan, (nan, nan)
        if path.gap_detected:
            reached = float(path.reduction(alpha, self.target))
            if self.target == "unseen":
                low, high = map(float, path.reduction_interval(alpha))
                middle = min(max(reached, low), high)
                interval = middle - wider * (middle - low), min(middle + wider * (high - middle), max(high, 1.0))
        return Choice(alpha, nan, True, reached, interval, float(path.correlation(alpha)))

    def _by_flags(self, path: TradeoffPath, rows: FlagRows, asked: float) -> Choice:
        """The smallest alpha of the path of means with an even enough share of flagged rows, where none is solved for.

        First, whether there is a gap at all.
        """
        share = rows.share(self.contamination)
        if self.target == "training":
            rows = replace(rows, folds=np.zeros_like(rows.folds))
        p = flag_p_value(rows, share)
        if p > SIGNIFICANCE:
            nan = float("nan")
            message = no_gap_message(p).replace(
                "no group gap was found in the base score", "no gap in flag rates was found"
            )
            return Choice(0.0, asked, False, nan, (nan, nan), 1.0, message, NoGapWarning)

        def ratios(alphas: FloatArray) -> FloatArray:
            return rows.ratio(rows.flagged(path.fold_weights(alphas, self.target), share))

        alpha = least_alpha(path, ratios, asked)
        met = alpha is not None
        if alpha is None:
            alphas = close_alphas(path)
            flagged = rows.flagged(path.fold_weights(alphas, self.target), share)
            alpha = float(alphas[first_even(rows, flagged)])
        reached = float(ratios(np.array([alpha]))[0])
        given = self._given(path, alpha)
        message = "" if met else _missed(reached, given, self.target)
        return Choice(alpha, asked, met, given.reached, given.interval, given.correlation, message)


class Settled(NamedTuple):
    """The way to what is asked, the place on it, and the ratio of flag rates and the price of flags there."""

    path: TradeoffPath
    choice: Choice
    ratio: RatioEstimate
    price: dict[str, float]


def _missed(reached: float, given: Choice, target: Target) -> str:
    return (
        f"{{flag_rate_ratio=:g}} is not reached on {target} rows with these detectors: {reached:.2f} is, at "
        f"{{alpha=:.4g}}, where the score's correlation with the base score is {given.correlation:.2f}"
        "{price}; "
        "going on would gain less than its own standard error, or lose the base score. Other detectors "
        "({detectors='diverse'}), or ScoreRepair where the group may be used, may reach more."
    )


def _in_own_units(rule: Rule, path: TradeoffPath, rows: FlagRows) -> Rule:
    """The rule for the scores of the whole fit, where it was solved on rows as they are seen by what has not seen them.

    Without a fold, scores range a little less far, so that the same row scores a little higher; resemblance has no such
    unit. So its weights are taken back by as much.
    """
    total, mass = path.cross.whole.total[0], rows.sample.weight
    spread = np.sqrt(max(total[-1, -1] / total[0, 0] - (total[0, -1] / total[0, 0]) ** 2, 0.0))
    seen = np.sqrt(np.average((rows.t - np.average(rows.t, weights=mass)) ** 2, weights=mass))
    free = path.columns.free(len(rule.own))
    return replace(rule, own=np.where(free, rule.own * (spread / seen if seen > 0 else 1.0), rule.own))


def _more(correction: str) -> str:
    """What may reach more."""
    other = "{correction='resemblance'}" if correction == "weights" else "Other features"
    return f"{other}, or ScoreRepair where the group may be used, may reach more."


def _check_correction(parameters: Mapping[str, Any]) -> None:
    """Refuse what resemblance cannot go with."""
    fairness, published = parameters["fairness"], parameters["method"] == "published"
    if parameters["correction"] != "weights" and (published or callable(fairness) or isinstance(fairness, np.ndarray)):
        raise InputError(
            "{correction=} adds columns beside the target, which {name} has no place for; leave one of them out",
            correction=parameters["correction"],
            name="method='published'" if published else "a form of your own in fairness",
        )


def _notions(parameters: Mapping[str, Any]) -> dict[Notion, float]:
    """The notions asked for, with their weights."""
    asked, detectors = parameters["fairness"], parameters["detectors"]
    if callable(asked) or isinstance(asked, np.ndarray):
        base, method = parameters["combination"], parameters["method"]
        linear = isinstance(base, str) and base in LINEAR
        if method == "published" and parameters["alpha"] is None and parameters["flag_rate_ratio"] is None:
            raise ValueError(
                "fairness is a form of your own, which has no target to compare with in method='published'; "
                "give alpha or flag_rate_ratio"
            )
        if method == "anchored" and not linear:
            raise ValueError(
                f"fairness is a form of your own, over detector weights, but combination={base!r} is no weighted mean "
                "of the detectors, which it could measure; use 'average' or 'greedy', or method='published'"
            )
        return {Own(asked): 1.0}
    given = asked if isinstance(asked, Mapping) else {asked: 1.0} if isinstance(asked, str | Notion) else {}
    if not given or not all(isinstance(notion, Notion) or notion in NOTIONS for notion in given):
        known = ", ".join(map(repr, NOTIONS))
        raise ValueError(
            f"fairness={asked!r} is not allowed; use {known}, a Notion, or a dict of these and their weights"
        )
    for notion, weight in given.items():
        if not number(0, np.inf, open_low=True).allows(weight):
            raise InputError(
                "{@fairness} has the weight {weight!r} for {name!r}; weights must be numbers above 0",
                weight=weight, name=getattr(notion, "name", notion),
            )  # fmt: skip
    notions = dict(weighted_notions(given))
    if len({notion.name for notion in notions}) < len(notions):
        raise InputError("{@fairness} has two notions of one name; give each its own")
    if NOTIONS["individual"] in notions and isinstance(detectors, str) and detectors == "precomputed":
        raise InputError(
            "{fairness='individual'} compares feature rows, but {detectors='precomputed'} has scores alone; "
            "use {fairness='demographic_parity'}, or detectors that score features"
        )
    return notions
