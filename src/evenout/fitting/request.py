"""What is asked of a fit: which notions of fairness, and how far to go towards them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from evenout.core.cells import CrossFit
from evenout.core.choice import Choice, choose, close_alphas, least_alpha, no_gap_message, open_path
from evenout.core.combine import LINEAR
from evenout.core.exceptions import InputError, NoGapWarning
from evenout.core.flags import flag_threshold, flagged_share, group_rates, rate_ratio
from evenout.core.notions import Notion
from evenout.core.own import Own
from evenout.core.path import SIGNIFICANCE, Target, TradeoffPath
from evenout.core.problem import Method, Weights
from evenout.core.registry import NOTIONS, weighted_notions
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.inputs.parameters import number

DEFAULT_REDUCTION = 0.8


@dataclass(frozen=True)
class FlagRows:
    """Rows whose flags are counted, each scored by what has not seen it.

    Parameters
    ----------
    S : array of shape (n, k)
    t : array of shape (n,)
    groups : array of shape (n,)
    folds : array of shape (n,)
        A row of fold f is scored by the weights that were solved without f.
    """

    S: FloatArray
    t: FloatArray
    groups: IntArray
    folds: IntArray

    @property
    def sizes(self) -> FloatArray:
        """Rows of each group, shape (G,)."""
        return np.bincount(self.groups[self.groups >= 0]).astype(float)

    def flagged(self, V: FloatArray, share: float) -> BoolArray:
        """Who is flagged at weights V (K, m, k + 1), shape (n, m).

        The top ``share`` of each fold is flagged: scores of different folds have different scales.
        """
        over = np.zeros((len(self.t), V.shape[1]), dtype=bool)
        Z = np.column_stack([self.S, self.t])
        for fold, weights in enumerate(V):
            rows = np.flatnonzero(self.folds == fold)
            if not len(rows):
                continue
            scores = np.einsum("ik,mk->im", Z[rows], weights)
            over[rows] = scores > flag_threshold(scores, share)
        return over

    def rates(self, marked: BoolArray) -> FloatArray:
        """Share of the marked rows (n, m) in each group, shape (G, m)."""
        return group_rates(marked, self.groups, len(self.sizes))


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
        rest = {name: parameters[name] for name in ("confidence", "target", "method", "weights", "contamination")}
        return cls(_notions(parameters), **ways, **rest)

    def path(self, cross: CrossFit) -> TradeoffPath:
        """Every trade-off. What is meant for unseen rows is solved against sampling noise."""
        noise_aware = self.target == "unseen"
        return open_path(cross, self.fairness, method=self.method, noise_aware=noise_aware, constraint=self.weights)

    def choose(self, path: TradeoffPath, rows: FlagRows) -> Choice:
        """The alpha that does what is asked; flags are counted among the rows."""
        if path.cross.whole.n_groups < 2:  # nobody to compare, which has been said
            nan = float("nan")
            return Choice(0.0, nan, False, nan, (nan, nan), 1.0)
        if self.alpha is not None:
            return self._given(path, float(self.alpha))
        if self.flag_rate_ratio is not None:
            return self._by_flags(path, rows, self.flag_rate_ratio)
        asked = DEFAULT_REDUCTION if self.bias_reduction is None else self.bias_reduction
        return choose(path, asked, self.target, self.confidence)

    def _given(self, path: TradeoffPath, alpha: float) -> Choice:
        """What may be said of an alpha that was not chosen here."""
        nan = float("nan")
        reached, interval = nan, (nan, nan)
        if path.gap_detected:
            reached = float(path.reduction(alpha, self.target))
            if self.target == "unseen":
                low, high = path.reduction_interval(alpha)
                interval = float(low), float(high)
        return Choice(alpha, nan, True, reached, interval, float(path.correlation(alpha)))

    def _by_flags(self, path: TradeoffPath, rows: FlagRows, asked: float) -> Choice:
        """The smallest alpha with an even enough share of flagged rows; first, whether there is a gap at all."""
        share = flagged_share(self.contamination, len(rows.t))
        if self.target == "training":
            rows = FlagRows(rows.S, rows.t, rows.groups, np.zeros_like(rows.folds))
        p = flag_p_value(rows, share)
        if p > SIGNIFICANCE:
            nan = float("nan")
            message = no_gap_message(p).replace(
                "no group gap was found in the base score", "no gap in flag rates was found"
            )
            return Choice(0.0, asked, False, nan, (nan, nan), 1.0, message, NoGapWarning)

        def ratios(alphas: FloatArray) -> FloatArray:
            return rate_ratio(rows.rates(rows.flagged(path.fold_weights(alphas, self.target), share)))

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


def flag_p_value(rows: FlagRows, share: float) -> float:
    """p-value of "the base score flags all groups alike" (chi-square)."""
    base = np.zeros((int(rows.folds.max()) + 1, 1, rows.S.shape[1] + 1))
    base[..., -1] = 1.0
    n = rows.sizes
    flagged = rows.rates(rows.flagged(base, share))[:, 0] * n
    expected = n * flagged.sum() / n.sum()
    if not 0 < flagged.sum() < n.sum():
        return 1.0
    statistic = ((flagged - expected) ** 2 / expected + (flagged - expected) ** 2 / (n - expected)).sum()
    return float(chdtrc(len(n) - 1, statistic))


def first_even(rows: FlagRows, flagged: BoolArray) -> int:
    """The first of m scores, by whom they flag (n, m), whose ratio is within one standard error of the best one's.

    Most rows are flagged by both of two scores or by none; the error of the difference stems from the others.
    """
    rates = rows.rates(flagged)
    found = rate_ratio(rates)
    best = int(found.argmax())
    low, high = rates[:, best].argmin(), rates[:, best].argmax()
    moved = rows.rates(flagged != flagged[:, [best]]) / rows.sizes[:, None]
    error = np.sqrt(moved[low] + found[best] ** 2 * moved[high]) / np.maximum(rates[high, best], 1e-12)
    return int((found >= found[best] - error).argmax())


def _missed(reached: float, given: Choice, target: Target) -> str:
    return (
        f"{{flag_rate_ratio=:g}} is not reached on {target} rows with these detectors: {reached:.2f} is, at "
        f"{{alpha=:.4g}}, where the score's correlation with the base score is {given.correlation:.2f}"
        "{price}; "
        "going on would gain less than its own standard error, or lose the base score. Other detectors "
        "({detectors='diverse'}), or ScoreRepair where the group may be used, may reach more."
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
