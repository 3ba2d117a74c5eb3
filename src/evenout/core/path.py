"""Weights, bias and intervals at every alpha, and the smallest alpha that does what is asked.

*Choosing* wants low variance and goes by `TradeoffPath.choice`. *Stating* what was reached wants honesty and goes by
`TradeoffPath.reduction` and its interval. A request counts as met if, by what is stated, no more than 0.05 of it is
missing on average, and half of it is reached even at the lower end of the interval. With a ``confidence`` the
smallest alpha is taken for which ``b(alpha) - (1 - r) b_0 <= 0`` holds with that confidence, whichever alpha is
picked: the bound is uniform along the path.

Where a request is not met, going on must pay: the smallest alpha is taken from which on no larger one removes more than
the standard error of the difference. If no alpha reaches it at all, none is considered where the score's correlation
with the base score is below 0.9.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np

from evenout.core.cells import CrossFit, unit_target
from evenout.core.checks import FINITE, Within, require
from evenout.core.intervals import expected_shortfall, noncentral_interval, normal_interval, ratio_interval
from evenout.core.notions import Notion, combined_form
from evenout.core.parity import DemographicParity
from evenout.core.problem import CROWDED_RIDGE, RIDGE, Columns, FlagRule, Method, Mixture, Solutions, Weights, solve
from evenout.core.registry import PARITY, weighted_notions
from evenout.core.ruler import RatioEstimate
from evenout.core.types import FloatArray
from evenout.exceptions import EvenoutWarning, NoGapWarning, TargetNotReachedWarning, UnknownOutcomeWarning, warn

if TYPE_CHECKING:
    import pandas as pd


Target: TypeAlias = Literal["unseen", "training"]

SIGNIFICANCE = 0.05  # "no gap" is believed above this p-value
GRID = 100  # alphas tried before the bisection
_STILL, _GONE = 0.001, 0.9999  # shares of the way of f2 at the two ends of the grid


class TradeoffPath:
    """All solutions of ``minimise f1 + alpha f2``, and the bias each of them leaves.

    Every method takes one alpha >= 0 or an array of them and answers in the same shape. f1 rises and f2 falls with
    alpha; the scale-free bias need not.

    Parameters
    ----------
    cross : CrossFit
        Sums of the training rows, and of what is outside and inside of each fold.
    notions : mapping, or pairs
        Notion, or its name, to weight. Several notions: each form is divided by the target's own bias.
    method : {"anchored", "published"}
        ``y = t + S v``, or the paper's ``y = S w``; see `evenout.core.problem`.
    noise_aware : bool
        Solve for rows that are not here: demographic parity with ``C + V``, V being what sampling adds to C, so that
        the weights leave alone what is noise in the group means; and with a ridge, which is small unless there are many
        columns for the rows. False: the form as published.
    constraint : {"free", "nonnegative", "simplex"}
        Any weights, weights of at least 0, or such weights of a fixed sum.
    columns : Columns
        Which columns may move a score away from the target.
    rule : FlagRule, optional
        A score that was solved for elsewhere: the path leads straight to it from the base score, alpha from 0 to 1.

    Notes
    -----
    *Unseen* bias: what a row is scored by has not seen it. For each fold the weights are solved on the rows outside, at
    ``alpha (n - n_f) / n`` because f1 is a sum over rows, and the fold is scored with them. ``cross.refitted`` says
    whether detectors, scaling and target were learnt without the fold too, or the weights alone.
    The weights judged stem from ``n - n_f`` rows, and those of all rows are a little fairer: see
    `evenout.core.parity.DemographicParity.bias` for what is taken off.
    """

    # What is saved; the rest is solved again.
    cross: CrossFit
    notions: tuple[tuple[Notion, Annotated[float, Within(np.finfo(float).tiny), FINITE]], ...]
    method: Method
    noise_aware: bool
    constraint: Weights
    columns: Columns
    rule: FlagRule | None

    def __init__(
        self,
        cross: CrossFit,
        notions: Mapping[Any, float] | Sequence[tuple[Notion, float]],
        *,
        method: Method = "anchored",
        noise_aware: bool = False,
        constraint: Weights = "free",
        columns: Columns = Columns(),  # noqa: B008
        rule: FlagRule | None = None,
    ) -> None:
        self.cross = cross
        self.notions = tuple(weighted_notions(notions))
        self.fairness = {notion.name: weight for notion, weight in self.notions}
        self.method = method
        self.noise_aware = noise_aware
        self.constraint = constraint
        self.columns = columns
        self.rule = rule

    def check(self) -> None:
        """There is a notion, with the sums that it needs, a weight of the rule for each column, and a solution."""
        require(self.notions, "notions", "is empty")
        k, n_groups = self.cross.whole.n_detectors, self.cross.whole.n_groups
        for notion, _ in self.notions if n_groups >= 2 else ():
            for name, shape in notion.shapes(n_groups, k).items():
                for cells in (self.cross.whole, self.cross.training, self.cross.held):
                    values = cells.sums.get(f"{notion.name}.{name}")
                    require(values is not None, f"{notion.name}.{name}", "is missing")
                    fits = values is not None and values.shape == (cells.n_sets, *shape)
                    require(fits, f"{notion.name}.{name}", "has the wrong shape")
        require(self.columns.resembling <= k, "columns", "has more than there are")
        fits = self.rule is None or self.rule.without.shape == (self.cross.n_folds, k)
        require(fits, "rule", "has the wrong shape")
        self.mixture(0.0)  # sums that no rows can have show here

    @cached_property
    def _solution(self) -> Solutions:
        return self._solve(training=False)[0]

    def weights(self, alpha: float | FloatArray) -> FloatArray:
        """Detector weights, shape (k,), or (m, k) for m alphas; those in t are included where t is linear in S."""
        alphas = _checked(alpha)
        return self._solution.weights(alphas.ravel()).reshape(*alphas.shape, -1)

    def mixture(self, alpha: float) -> Mixture:
        """The score at one alpha, ready for rows."""
        return self._solution.mixture(float(_checked(alpha)))

    def towards(self, rule: FlagRule | None) -> "TradeoffPath":
        """The straight way from the base score to a rule, or back to the path of solutions."""
        settings: dict[str, Any] = {"method": self.method, "noise_aware": self.noise_aware}
        settings |= {"constraint": self.constraint, "columns": self.columns, "rule": rule}
        return TradeoffPath(self.cross, dict(self.notions), **settings)

    def f1(self, alpha: float | FloatArray) -> FloatArray:
        """``sum_i beta_i (y_i - t_i)^2``: the distance to the target; anchored, a shift of all scores is free."""
        alphas = _checked(alpha)
        total, V = self.cross.whole.weighted[0], self._mixed(alphas)
        if self.method == "published":
            if not self.noise_aware:
                return self._solution.inner.f1(alphas.ravel()).reshape(alphas.shape)
            W = V[:, :-1]
            f1 = _quadratic(total[1:-1, 1:-1], W) - 2.0 * W @ total[1:-1, -1] + total[-1, -1]
        else:
            V = V - unit_target(self.cross.whole)[0]
            centre = total[0, 1:] / total[0, 0]
            f1 = _quadratic(total[1:, 1:] - total[0, 0] * np.outer(centre, centre), V)
        return np.maximum(f1, 0.0).reshape(alphas.shape)

    def f2(self, alpha: float | FloatArray) -> FloatArray:
        """The raw bias of the paper on the training rows."""
        alphas = _checked(alpha)
        if not self.noise_aware:
            return self._solution.inner.f2(alphas.ravel()).reshape(alphas.shape)
        form = combined_form(self.cross.whole, self.notions)[0]
        return _quadratic(form, self._mixed(alphas)).reshape(alphas.shape)

    def correlation(self, alpha: float | FloatArray) -> FloatArray:
        """Correlation of ``y(alpha)`` with the base score on the training rows; NaN for a constant score."""
        alphas = _checked(alpha)
        total = self.cross.whole.total[0]
        mean = total[0, 1:] / total[0, 0]
        cov = total[1:, 1:] / total[0, 0] - np.outer(mean, mean)
        V = self._mixed(alphas)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = V @ cov[:, -1] / np.sqrt(np.maximum(_quadratic(cov, V) * cov[-1, -1], 0.0))
        return np.clip(found, -1.0, 1.0).reshape(alphas.shape)

    def bias(self, alpha: float | FloatArray, target: Target = "unseen") -> FloatArray:
        """Scale-free bias of ``y(alpha)``.

        ``"training"``: on the rows the weights were solved on, as in the paper. ``"unseen"``: on held-out rows; for
        demographic parity squared within folds and corrected for sampling noise, so that it is right on average, or a
        little high at strong alpha, and may be negative. Several notions: the weighted mean of each bias divided by the
        target's.
        """
        alphas = _checked(alpha)
        return self._measure(alphas.ravel(), target).reshape(alphas.shape)

    def choice(self, alpha: float | FloatArray, target: Target = "unseen") -> FloatArray:
        """The bias that alphas are chosen by: as `bias`, but of less variance; a little too low on unseen rows."""
        alphas = _checked(alpha)
        return self._measure(alphas.ravel(), target, choosing=True).reshape(alphas.shape)

    def standard_error(self, alpha: float | FloatArray) -> FloatArray:
        """Standard error of the unseen `bias`."""
        alphas = _checked(alpha)
        return np.sqrt(np.diag(self.covariance(alphas.ravel()))[:-1]).reshape(alphas.shape)

    def interval(self, alpha: float | FloatArray, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Interval of the unseen bias of ``y(alpha)``, for an alpha that was not chosen to make it small."""
        alphas = _checked(alpha)
        low, high = self._bias_interval(alphas.ravel(), confidence)
        return low.reshape(alphas.shape), high.reshape(alphas.shape)

    def target_bias(self, target: Target = "unseen") -> float:
        """The bias of the base ensemble's score ``t`` on training rows, or on held-out rows, folds pooled."""
        return float(self._of_target(target)[0])

    def target_standard_error(self) -> float:
        """Standard error of the unseen `target_bias`."""
        return float(np.sqrt(self.covariance(np.zeros(0))[-1, -1]))

    def target_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Interval of the unseen `target_bias`."""
        error = np.array([self.target_standard_error()])
        low, high = normal_interval(self._of_target("unseen"), error, confidence)
        shape = self._only.target_chi_square(self.cross) if self._only else None
        if shape is not None:
            ends = noncentral_interval(*shape, confidence)
            low, high = (np.where(np.isnan(end), normal, end) for end, normal in zip(ends, (low, high), strict=True))
        return float(low[0]), float(high[0])

    def reduction(self, alpha: float | FloatArray, target: Target = "unseen") -> FloatArray:
        """``1 - bias(alpha) / bias of t``: the share of the base score's bias that is gone. NaN if t has none."""
        base = self.target_bias(target)
        if not base > 0:
            return np.full(np.shape(alpha), np.nan)
        return 1.0 - self.bias(alpha, target) / base

    def reduction_interval(self, alpha: float | FloatArray, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Interval of the unseen `reduction`; it may reach down to minus infinity where t's bias is small.

        The base score's bias is an estimate too: like Fieller's interval, this one asks for which shares r the
        difference ``bias - (1 - r) bias of t`` may be 0, with the covariance of the two.
        """
        alphas = _checked(alpha)
        flat = alphas.ravel()
        cov, bias, base = self.covariance(flat), self.bias(flat), self.target_bias()
        spread = np.sqrt(np.maximum(np.diag(cov)[:-1] * cov[-1, -1], 0.0))
        rho = np.where(spread > 0, cov[:-1, -1], 0.0) / np.where(spread > 0, spread, 1.0)
        of_base = self.target_interval(confidence)
        ends = np.zeros((2, len(flat)))
        for i, own in enumerate(zip(*self._bias_interval(flat, confidence), strict=True)):
            if not self.is_target(flat[i]):
                low, high = ratio_interval((float(bias[i]), base), own, of_base, float(rho[i]))
                ends[:, i] = 1.0 - max(high, 0.0), min(1.0 - low, 1.0)
        return ends[0].reshape(alphas.shape), ends[1].reshape(alphas.shape)

    def reduction_error(self, alpha: float) -> float:
        """Standard error of the unseen `reduction`, to first order."""
        if self.is_target(alpha):
            return 0.0
        cov, base = self.covariance(np.array([alpha])), self.target_bias()
        if not base > 0:
            return float("nan")
        change = np.array([1.0, -float(self.bias(alpha)) / base])
        return float(np.sqrt(max(change @ cov @ change, 0.0)) / base)

    @cached_property
    def gap_p_value(self) -> float:
        """p-value of "the groups have the same mean base score" (Welch); NaN for notions without such a test."""
        return float(np.fmin.reduce([notion.gap_p_value(self.cross.whole) for notion, _ in self.notions]))

    @cached_property
    def gap_detected(self) -> bool:
        """Whether the base score has a bias that is more than sampling noise."""
        if self.cross.whole.n_groups < 2:
            return False
        return bool(self.target_bias("unseen") > 0) and not self.gap_p_value > SIGNIFICANCE

    def alpha_for(self, bias_reduction: float, target: Target = "unseen", *, confidence: float | None = None) -> float:
        """The smallest alpha that removes the share ``bias_reduction`` of the target's scale-free bias.

        Without a detectable gap the answer is 0, with a `NoGapWarning`. What is not reached is said in a
        `TargetNotReachedWarning`; see `evenout.core.path` for the alpha that is taken then, and for ``confidence``.
        """
        return choose(self, bias_reduction, target, confidence).announced().alpha

    def grid(self, size: int = GRID) -> FloatArray:
        """Alphas, even on a log scale, from where f2 has hardly moved (0.1 %) to where 99.99 % of its way is gone."""
        low, high = self.alpha_range(_STILL, _GONE)
        return np.geomspace(low, high, size) if 0 < low < high else np.zeros(0)

    def alpha_range(self, first: float, last: float) -> tuple[float, float]:
        """The alphas at which f2 has gone the shares ``first`` and ``last`` of its way; both 0 if it has none."""
        return self._solution.inner.alpha_at(first), self._solution.inner.alpha_at(last)

    def table(self, alphas: FloatArray | None = None) -> "pd.DataFrame":
        """One row per alpha: f1, f2, the scale-free biases and their reductions; by default for 0 and the `grid`."""
        import pandas as pd

        alphas = np.r_[0.0, self.grid()] if alphas is None else np.atleast_1d(_checked(alphas))
        measures = {"f1": self.f1, "f2": self.f2, "correlation": self.correlation}
        columns = {"alpha": alphas} | {name: measure(alphas) for name, measure in measures.items()}
        targets: tuple[Target, ...] = ("training", "unseen")
        for target in targets:
            columns[f"bias_{target}"] = self.bias(alphas, target)
            columns[f"reduction_{target}"] = self.reduction(alphas, target)
        columns["error_unseen"] = self.standard_error(alphas)
        columns["low_unseen"], columns["high_unseen"] = self.interval(alphas)
        return pd.DataFrame(columns)

    def _repr_html_(self) -> str:
        """A dozen trade-offs for a notebook."""
        alphas = np.r_[0.0, self.grid()]
        some = alphas[np.unique(np.linspace(0, len(alphas) - 1, 12).astype(int))]
        return str(self.table(some).to_html(index=False, float_format=lambda x: f"{x:.4g}", border=0))

    def fold_weights(self, alphas: FloatArray, target: Target) -> FloatArray:
        """Weights of ``(s, t)`` that score each fold's rows, or all rows: shape (K, m, k + 1), or (1, m, k + 1)."""
        if target == "training":
            return self._solution.mixed(alphas)[None]
        if target != "unseen":
            raise ValueError(f"target={target!r} is unknown; use 'unseen' or 'training'")
        kept = self.cross.kept_share if self.rule is None else np.ones(self.cross.n_folds)
        found = [left_out.mixed(alphas * kept[f]) for f, left_out in enumerate(self._left_out)]
        return np.stack(found) if found else np.zeros((0, len(alphas), self.cross.whole.n_detectors + 1))

    def covariance(self, alphas: FloatArray) -> FloatArray:
        """Covariance of the unseen biases at m alphas and, last, of the base score's: shape (m + 1, m + 1)."""
        if self.cross.whole.n_groups < 2:
            return np.full((len(alphas) + 1,) * 2, np.nan)
        V = _in_units(self.fold_weights(alphas, "unseen"))
        if self._only is not None:
            return self._only.covariance(self.cross, V)
        parts = [
            (weight / self._unit_bias(notion, "unseen")) ** 2 * notion.covariance(self.cross, V)
            for notion, weight in self.notions
        ]
        return np.sum(parts, axis=0) / sum(self.fairness.values()) ** 2  # as if independent

    def is_target(self, alpha: float) -> bool:
        """Whether the score is the base score itself, of which nothing need be estimated."""
        return self.method == "anchored" and alpha == 0

    @property
    def _only(self) -> Notion | None:
        """The notion where there is one, and two groups to compare."""
        return self.notions[0][0] if len(self.notions) == 1 and self.cross.whole.n_groups >= 2 else None

    def _mixed(self, alphas: FloatArray) -> FloatArray:
        return self._solution.mixed(alphas.ravel())

    def _solve(self, *, training: bool) -> list[Solutions]:
        cells = self.cross.training if training else self.cross.whole
        forms = combined_form(cells, self.notions, noise_aware=self.noise_aware)
        rules: dict[str, Any] = {
            "method": self.method,
            "constraint": self.constraint,
            "ridge": self.noise_aware * (CROWDED_RIDGE if self.cross.crowded else RIDGE),
            "columns": self.columns,
        }
        to: list[Any] = [None] * len(forms)
        if self.rule is not None:
            to = [*self.rule.without] if training else [self.rule.own]
        return [
            solve(cells, place, form, **rules, direction=direction)
            for place, (form, direction) in enumerate(zip(forms, to, strict=True))
        ]

    @cached_property
    def _left_out(self) -> list[Solutions]:
        return self._solve(training=True)

    def _measure(self, alphas: FloatArray, target: Target, *, choosing: bool = False) -> FloatArray:
        """Bias at alphas of shape (m,); NaN where there are not two groups to compare."""
        if self.cross.whole.n_groups < 2:
            return np.full(len(alphas), np.nan)
        V = _in_units(self.fold_weights(alphas, target))
        parts = []
        for notion, weight in self.notions:
            measure = notion.choice if choosing else notion.bias
            bias = notion.training_bias(self.cross.whole, V[0]) if target == "training" else measure(self.cross, V)
            parts.append(weight * bias / self._unit_bias(notion, target))
        return np.sum(parts, axis=0) / sum(self.fairness.values())

    def _of_target(self, target: Target) -> FloatArray:
        """The base score's bias, shape (1,); 1 by definition of the mean of several notions."""
        if self.cross.whole.n_groups < 2:
            return np.full(1, np.nan)
        return np.ones(1) if self._only is None else self._target_bias(self._only, target)

    def _target_bias(self, notion: Notion, target: Target) -> FloatArray:
        if target == "training":
            return notion.training_bias(self.cross.whole, unit_target(self.cross.whole)[0])
        return notion.target_bias(self.cross)

    def _unit_bias(self, notion: Notion, target: Target) -> float:
        """1 for one notion; of several the target's bias by this one, or 1 if it has none."""
        return 1.0 if self._only is not None else float(self._target_bias(notion, target)[0]) or 1.0

    def _bias_interval(self, alphas: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
        low, high = normal_interval(self.bias(alphas), self.standard_error(alphas), confidence)
        V = _in_units(self.fold_weights(alphas, "unseen"))
        shape = self._only.chi_square(self.cross, V) if self._only else None
        if shape is not None:
            lowest, highest = noncentral_interval(*shape, confidence)
            # A gap that was learnt from noise has an error that is nearly normal, with the higher lower end.
            low, high = np.fmax(low, lowest), np.where(np.isnan(highest), high, highest)
        if self.method == "anchored" and (alphas == 0).any():  # the base score itself
            low[alphas == 0], high[alphas == 0] = self.target_interval(confidence)
        return low, high


def _in_units(V: FloatArray) -> FloatArray:
    """Fold weights of shape (K, m, k + 1), the largest of each score made 1: where weights vanish, biases do not."""
    largest = np.abs(V).max(axis=(0, 2), keepdims=True, initial=0.0)
    return V / np.where(largest > 0, largest, 1.0)


def _quadratic(form: FloatArray, W: FloatArray) -> FloatArray:
    """``w' form w`` for weights along the last axis."""
    return np.einsum("...k,kl,...l->...", W, form, W)


def _checked(alpha: float | FloatArray) -> FloatArray:
    alphas = np.asarray(alpha, dtype=float)
    if not (alphas >= 0).all():
        raise ValueError(f"alpha must be 0 or larger, got {alpha!r}")
    return alphas


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
    doubt : {"", "probable", "labels", "drift"}
        Why the outcome cannot be known; see `evenout.core.ruler.Sample` and `evenout.fitting.update`.
    """

    alpha: float
    asked: float
    met: bool
    reached: float
    interval: tuple[float, float]
    correlation: float
    message: str = ""
    kind: type[EvenoutWarning] = TargetNotReachedWarning
    doubt: str = ""

    def found_gap(self, *, changed: bool) -> bool:
        """Whether a gap in flag rates was found, given whether anything was ``changed`` to even it out."""
        return self.kind is not NoGapWarning and (changed or self.kind is not UnknownOutcomeWarning)

    def announced(self, price: str = "", *, asked: bool = True, ratio: RatioEstimate | None = None) -> "Choice":
        """Give the message, with the price and the outcome's ratio put in, as a warning; the choice itself.

        Where nothing was ``asked`` for, there is nothing to miss.
        """
        if self.message and (asked or self.kind is not TargetNotReachedWarning):
            fields: dict[str, Any] = {"bias_reduction": self.asked, "flag_rate_ratio": self.asked}
            if ratio is not None:
                fields |= {"ratio": ratio.value, "low": ratio.interval[0], "high": ratio.interval[1]}
            warn(self.kind(self.message, alpha=self.alpha, price=price, **fields))
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
