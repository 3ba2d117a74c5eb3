"""Weights, bias and intervals at every alpha, and the smallest alpha that meets a request.

Alphas are *compared* by an estimate of low variance, `TradeoffPath.choice`. The result is *stated* by an unbiased one,
`TradeoffPath.reduction`, with its interval. A request counts as met if the expected shortfall of the stated value is at
most 0.05 and the lower end of its interval reaches half of the request. With a ``confidence``, the smallest alpha is
taken for which ``b(alpha) - (1 - r) b_0 <= 0`` holds with that confidence, uniformly along the path.

Where a request is not met, a larger alpha must pay: the smallest alpha is taken beyond which no larger one removes more
than the standard error of the difference. If no alpha reaches the request, only those alphas are considered whose score
keeps a correlation of at least 0.9 with the base score.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec, TypeAlias

import numpy as np

from evenout.core.cells import Cells, CrossFit, unit_target
from evenout.core.intervals import expected_shortfall, noncentral_interval, normal_value, ratio_interval
from evenout.core.notions import Notion, combined_form
from evenout.core.parity import DemographicParity
from evenout.core.problem import CROWDED_RIDGE, RIDGE, Columns, FlagRule, Method, Mixture, Solutions, Weights, solve
from evenout.core.registry import PARITY, weighted_notions
from evenout.core.ruler import RatioEstimate, ratio
from evenout.core.types import FINITE, FloatArray, Within, require
from evenout.exceptions import EvenoutWarning, NoGapWarning, TargetNotReachedWarning, UnknownOutcomeWarning, warn

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
Target: TypeAlias = Literal["unseen", "training"]

SIGNIFICANCE = 0.05  # "no gap" is believed above this p-value
GRID = 100  # alphas tried before the bisection
_STILL, _GONE = 0.001, 0.9999  # shares of the fall of f2 at the two ends of the grid


def _checked(alpha: float | FloatArray) -> FloatArray:
    alphas = np.asarray(alpha, dtype=float)
    if not (alphas >= 0).all():
        raise ValueError(f"alpha must be 0 or larger, got {alpha!r}")
    return alphas


def _of_any_shape(
    method: "Callable[Concatenate[TradeoffPath, FloatArray, P], FloatArray]",
) -> "Callable[Concatenate[TradeoffPath, float | FloatArray, P], FloatArray]":
    """Let a method of alphas (m,) take one alpha, or an array of any shape, and answer in that shape."""

    @wraps(method)
    def reshaped(path: "TradeoffPath", alpha: float | FloatArray, /, *args: P.args, **kwargs: P.kwargs) -> FloatArray:
        alphas = _checked(alpha)
        return np.asarray(method(path, alphas.ravel(), *args, **kwargs)).reshape(alphas.shape)

    return reshaped


@dataclass(eq=False, repr=False)
class TradeoffPath:
    """All solutions of ``minimise f1 + alpha f2``, and the bias that each of them leaves.

    Every method takes one alpha >= 0 or an array of them and answers in the same shape. f1 rises and f2 falls with
    alpha; the scale-free bias need not.

    Parameters
    ----------
    cross : CrossFit
        Sums over all training rows, and over the rows outside and inside of each fold.
    notions : pairs, or mapping
        Notion, or its name, and its weight. With several notions, each form is divided by the base score's bias.
    method : {"anchored", "published"}
        ``y = t + S v``, or the paper's ``y = S w``; see `evenout.core.problem`.
    noise_aware : bool
        Solve for new rows: demographic parity with ``C + V``, where V is what sampling noise adds to C, so that the
        weights do not even out noise in the group means; and with a ridge, which is small unless there are many columns
        for the rows. False: the form as published.
    constraint : {"free", "nonnegative", "simplex"}
        Any weights, weights of at least 0, or such weights of a fixed sum.
    columns : Columns
        Which columns may move a score away from the target.
    rule : FlagRule, optional
        A score that was solved for elsewhere: the path is the straight line to it from the base score, alpha from 0 to
        1.

    Notes
    -----
    *Unseen* bias is measured on held-out rows. For each fold the weights are solved on the rows outside, at
    ``alpha (n - n_f) / n`` because f1 is a sum over rows, and the fold is scored with them. ``cross.refitted`` says
    whether detectors, scaling and target were learnt without the fold too, or the weights alone. Weights of all n rows
    are a little fairer than those of ``n - n_f`` rows: see `evenout.core.parity.DemographicParity.bias`.
    """

    # The saved fields; solutions are not saved.
    cross: CrossFit
    notions: tuple[tuple[Notion, Annotated[float, Within(np.finfo(float).tiny), FINITE]], ...]
    method: Method = "anchored"
    noise_aware: bool = False
    constraint: Weights = "free"
    columns: Columns = field(default_factory=Columns)
    rule: FlagRule | None = None

    def __post_init__(self) -> None:
        self.notions = weighted_notions(self.notions)
        self.fairness = {notion.name: weight for notion, weight in self.notions}

    def check(self) -> None:
        """Require a notion with its sums, columns and a rule that fit the sums, and a solution."""
        require(self.notions, "notions", "is empty")
        k, n_groups = self.cross.whole.n_detectors, self.cross.whole.n_groups
        for notion, _ in self.notions if n_groups >= 2 else ():
            for name, shape in notion.shapes(n_groups, k).items():
                key = f"{notion.name}.{name}"
                for cells in (self.cross.whole, self.cross.training, self.cross.held):
                    require(key in cells.sums, key, "is missing")
                    require(cells.sums[key].shape == (cells.n_sets, *shape), key, "has the wrong shape")
        require(self.columns.resembling <= k, "columns", "has more than there are")
        require(self.rule is None or self.rule.without.shape == (self.cross.n_folds, k), "rule", "has the wrong shape")
        self.mixture(0.0)  # fails for sums that no rows can have

    def weights(self, alpha: float | FloatArray) -> FloatArray:
        """Detector weights, shape (k,), or (m, k) for m alphas, including those in t where t is linear in S."""
        alphas = _checked(alpha)
        return (self._solution.mixed(alphas.ravel())[:, :-1] + self._solution.base).reshape(*alphas.shape, -1)

    def mixture(self, alpha: float) -> Mixture:
        """The score at one alpha, ready for rows."""
        V = self._solution.mixed(np.array([float(_checked(alpha))]))[0]
        return Mixture(V[:-1], self._solution.centre, float(V[-1]))

    @_of_any_shape
    def f1(self, alphas: FloatArray) -> FloatArray:
        """``sum_i beta_i (y_i - t_i)^2``: the distance to the target; anchored, a shift of all scores is free."""
        if self.method == "published" and not self.noise_aware:
            return self._solution.inner.f1(alphas)  # type: ignore[union-attr]  # straight paths are anchored
        total, V = self.cross.whole.weighted[0], self._solution.mixed(alphas)
        if self.method == "published":
            W = V[:, :-1]
            return np.maximum(_quadratic(total[1:-1, 1:-1], W) - 2.0 * W @ total[1:-1, -1] + total[-1, -1], 0.0)
        centre = total[0, 1:] / total[0, 0]
        joint = total[1:, 1:] - total[0, 0] * np.outer(centre, centre)
        return np.maximum(_quadratic(joint, V - unit_target(self.cross.whole)[0]), 0.0)

    @_of_any_shape
    def f2(self, alphas: FloatArray) -> FloatArray:
        """The raw bias of the paper on the training rows."""
        if not self.noise_aware:
            return self._solution.inner.f2(alphas)
        return _quadratic(combined_form(self.cross.whole, self.notions)[0], self._solution.mixed(alphas))

    @_of_any_shape
    def correlation(self, alphas: FloatArray) -> FloatArray:
        """Correlation of ``y(alpha)`` with the base score on the training rows; NaN for a constant score."""
        total, V = self.cross.whole.total[0], self._solution.mixed(alphas)
        mean = total[0, 1:] / total[0, 0]
        cov = total[1:, 1:] / total[0, 0] - np.outer(mean, mean)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.clip(V @ cov[:, -1] / np.sqrt(np.maximum(_quadratic(cov, V) * cov[-1, -1], 0.0)), -1.0, 1.0)

    @_of_any_shape
    def bias(self, alphas: FloatArray, target: Target = "unseen", *, choosing: bool = False) -> FloatArray:
        """Scale-free bias of ``y(alpha)``; NaN where there are not two groups to compare.

        ``"training"``: on the rows that the weights were solved on, as in the paper. ``"unseen"``: on held-out rows;
        for demographic parity squared within folds and corrected for sampling noise, so that it is right on average, or
        a little high at large alpha, and may be negative. With several notions, the weighted mean of each bias divided
        by the base score's. ``choosing``: the estimate of `choice`.
        """
        if self.cross.whole.n_groups < 2:
            return np.full(len(alphas), np.nan)
        V, parts = _in_units(self.fold_weights(alphas, target)), []
        for notion, weight in self.notions:
            measure = notion.choice if choosing else notion.bias
            bias = notion.training_bias(self.cross.whole, V[0]) if target == "training" else measure(self.cross, V)
            unit = 1.0 if self._only is not None else self._target_bias(notion, target) or 1.0
            parts.append(weight * bias / unit)
        return np.sum(parts, axis=0) / sum(self.fairness.values())

    def choice(self, alpha: float | FloatArray, target: Target = "unseen") -> FloatArray:
        """The bias that alphas are compared by: as `bias`, with less variance; a little too low on unseen rows."""
        return self.bias(alpha, target, choosing=True)

    @_of_any_shape
    def standard_error(self, alphas: FloatArray) -> FloatArray:
        """Standard error of the unseen `bias`."""
        return np.sqrt(np.diag(self.covariance(alphas))[:-1])

    def interval(self, alpha: float | FloatArray, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Interval of the unseen bias of ``y(alpha)``, for an alpha that was not chosen to make it small."""
        shape, alphas = np.shape(alpha), _checked(alpha).ravel()
        bias, reach = self.bias(alphas), normal_value(confidence) * self.standard_error(alphas)
        low, high = np.maximum(bias - reach, 0.0), bias + reach
        V = _in_units(self.fold_weights(alphas, "unseen"))
        chi_square = self._only.chi_square(self.cross, V) if self._only else None
        if chi_square is not None:
            lowest, highest = noncentral_interval(*chi_square, confidence)
            # A gap that was learnt from noise has an error that is nearly normal, with the higher lower end.
            low, high = np.fmax(low, lowest), np.where(np.isnan(highest), high, highest)
        if self.method == "anchored" and (alphas == 0).any():  # the base score itself
            low[alphas == 0], high[alphas == 0] = self.target_interval(confidence)
        return low.reshape(shape), high.reshape(shape)

    def target_bias(self, target: Target = "unseen") -> float:
        """Bias of the base score ``t`` on training rows, or on held-out rows, folds pooled; 1 for several notions."""
        if self.cross.whole.n_groups < 2:
            return float("nan")
        return 1.0 if self._only is None else self._target_bias(self._only, target)

    def target_standard_error(self) -> float:
        """Standard error of the unseen `target_bias`."""
        return float(np.sqrt(self.covariance(np.zeros(0))[-1, -1]))

    def target_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Interval of the unseen `target_bias`."""
        bias, reach = self.target_bias(), normal_value(confidence) * self.target_standard_error()
        low, high = float(np.maximum(bias - reach, 0.0)), bias + reach
        chi_square = self._only.chi_square(self.cross) if self._only else None
        if chi_square is not None:
            (lowest,), (highest,) = noncentral_interval(*chi_square, confidence)
            low, high = low if np.isnan(lowest) else float(lowest), high if np.isnan(highest) else float(highest)
        return low, high

    def reduction(self, alpha: float | FloatArray, target: Target = "unseen") -> FloatArray:
        """``1 - bias(alpha) / bias of t``: the share of the base score's bias that is removed. NaN if t has none."""
        base = self.target_bias(target)
        return 1.0 - self.bias(alpha, target) / base if base > 0 else np.full(np.shape(alpha), np.nan)

    def reduction_interval(self, alpha: float | FloatArray, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Interval of the unseen `reduction`; it may reach down to minus infinity where t's bias is small.

        The base score's bias is an estimate too: like Fieller's interval, this one asks for which shares r the
        difference ``bias - (1 - r) bias of t`` may be 0, with the covariance of the two.
        """
        shape, alphas = np.shape(alpha), _checked(alpha).ravel()
        cov, bias, base = self.covariance(alphas), self.bias(alphas), self.target_bias()
        rho = ratio(cov[:-1, -1], np.sqrt(np.maximum(np.diag(cov)[:-1] * cov[-1, -1], 0.0)), 0.0)
        of_base, ends = self.target_interval(confidence), np.zeros((2, len(alphas)))
        for i, of_bias in enumerate(zip(*self.interval(alphas, confidence), strict=True)):
            if not self.is_target(alphas[i]):
                low, high = ratio_interval((float(bias[i]), base), of_bias, of_base, float(rho[i]))
                ends[:, i] = 1.0 - max(high, 0.0), min(1.0 - low, 1.0)
        return ends[0].reshape(shape), ends[1].reshape(shape)

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
        return bool(self.target_bias("unseen") > 0) and not self.gap_p_value > SIGNIFICANCE

    def alpha_for(self, bias_reduction: float, target: Target = "unseen", *, confidence: float | None = None) -> float:
        """The smallest alpha that removes the share ``bias_reduction`` of the target's scale-free bias.

        Without a detectable gap the answer is 0, with a `NoGapWarning`. If the request is not reached, a
        `TargetNotReachedWarning` says so; see `evenout.core.path` for the alpha that is taken then, and for
        ``confidence``.
        """
        return choose(self, bias_reduction, target, confidence).announced().alpha

    def grid(self, size: int = GRID) -> FloatArray:
        """Alphas, even on a log scale, from where f2 has made 0.1 % of its fall to where it has made 99.99 %."""
        low, high = self.alpha_range(_STILL, _GONE)
        return np.geomspace(low, high, size) if 0 < low < high else np.zeros(0)

    def alpha_range(self, first: float, last: float) -> tuple[float, float]:
        """The alphas at which f2 has made the shares ``first`` and ``last`` of its fall; both 0 if it does not fall."""
        return self._solution.inner.alpha_at(first), self._solution.inner.alpha_at(last)

    def table(self, alphas: FloatArray | None = None) -> "pd.DataFrame":
        """One row per alpha: f1, f2, the scale-free biases and their reductions; by default for 0 and the `grid`."""
        import pandas as pd

        alphas = np.r_[0.0, self.grid()] if alphas is None else np.atleast_1d(_checked(alphas))
        columns = {
            "alpha": alphas,
            "f1": self.f1(alphas),
            "f2": self.f2(alphas),
            "correlation": self.correlation(alphas),
        }
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
        kept = self.cross.training.counts / self.cross.whole.counts if self.rule is None else [1.0] * self.cross.n_folds
        V = [solution.mixed(alphas * share) for solution, share in zip(self._left_out, kept, strict=True)]
        return np.stack(V) if V else np.zeros((0, len(alphas), self.cross.whole.n_detectors + 1))

    def covariance(self, alphas: FloatArray) -> FloatArray:
        """Covariance of the unseen biases at m alphas and, last, of the base score's: shape (m + 1, m + 1)."""
        if self.cross.whole.n_groups < 2:
            return np.full((len(alphas) + 1,) * 2, np.nan)
        V = _in_units(self.fold_weights(alphas, "unseen"))
        if self._only is not None:
            return self._only.covariance(self.cross, V)
        parts = [
            (weight / (self._target_bias(notion, "unseen") or 1.0)) ** 2 * notion.covariance(self.cross, V)
            for notion, weight in self.notions
        ]
        return np.sum(parts, axis=0) / sum(self.fairness.values()) ** 2  # as if independent

    def is_target(self, alpha: float) -> bool:
        """Whether the score is the base score itself, with nothing to estimate."""
        return self.method == "anchored" and alpha == 0

    @property
    def _only(self) -> Notion | None:
        """The notion where there is one, and two groups to compare."""
        return self.notions[0][0] if len(self.notions) == 1 and self.cross.whole.n_groups >= 2 else None

    @cached_property
    def _solution(self) -> Solutions:
        return self._solve(self.cross.whole, None if self.rule is None else [self.rule.own])[0]

    @cached_property
    def _left_out(self) -> list[Solutions]:
        return self._solve(self.cross.training, None if self.rule is None else self.rule.without)

    def _solve(self, cells: Cells, directions: Sequence[FloatArray] | FloatArray | None) -> list[Solutions]:
        """The solutions of each set of ``cells``; of a rule, the straight paths along ``directions``."""
        forms = combined_form(cells, self.notions, noise_aware=self.noise_aware)
        ridge = self.noise_aware * (CROWDED_RIDGE if self.cross.crowded else RIDGE)
        return [
            solve(
                cells, i, form, method=self.method, constraint=self.constraint, ridge=ridge, columns=self.columns,
                direction=None if directions is None else directions[i],
            )
            for i, form in enumerate(forms)
        ]  # fmt: skip

    def _target_bias(self, notion: Notion, target: Target) -> float:
        if target == "training":
            return float(notion.training_bias(self.cross.whole, unit_target(self.cross.whole)[0])[0])
        return float(notion.target_bias(self.cross)[0])


def _in_units(V: FloatArray) -> FloatArray:
    """Fold weights of shape (K, m, k + 1), the largest of each score made 1: where weights vanish, biases do not."""
    largest = np.abs(V).max(axis=(0, 2), keepdims=True, initial=0.0)
    return V / np.where(largest > 0, largest, 1.0)


def _quadratic(form: FloatArray, W: FloatArray) -> FloatArray:
    """``w' form w`` for weights along the last axis."""
    return np.einsum("...k,kl,...l->...", W, form, W)


LEAST_CORRELATION = 0.9
HALF_SHARED = 0.5**0.5  # correlation at which two scores share half of their variance
SHORTFALL = 0.05  # mean shortfall up to which a request counts as met
_ROUNDING = 1e-9  # of the bias at alpha = 0: a gain below is none
_DRAWS = 4000  # of the largest error along the path
_MORE = "detectors ({detectors='diverse'}), or ScoreRepair where the group may be used, may reach more."
_ANYWAY = "Give {@alpha} to remove bias all the same."


@dataclass(frozen=True)
class Choice:
    """An alpha, and the outcome that may be stated for it.

    ``asked`` is the share of the bias to remove, ``reached`` the stated share, NaN without a gap, and ``interval`` its
    95 % interval, NaN on training rows; ``met``: whether the stated outcome supports the request. ``correlation`` is
    that of the score with the base score. ``message`` is the template of a warning of this ``kind``, empty if there is
    nothing to warn of. ``doubt``, which is "", "probable", "labels" or "drift", says why the outcome cannot be known;
    see `evenout.core.ruler.Sample` and `evenout.fitting.update`.
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
        """Warn with the message, with the price and the outcome's ratio put in, and return the choice itself.

        Where nothing was ``asked`` for, no warning says that it was missed.
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

    ``least`` is the correlation with the base score below which a request counts as not met, whatever the bias.
    ``more`` ends the message "Other ... may reach more" of a request that is not met, and ``anyway`` that of no gap.
    """
    if not path.gap_detected:
        message = no_gap_message(path.gap_p_value, anyway)
        return Choice(0.0, bias_reduction, False, np.nan, (np.nan, np.nan), 1.0, message, NoGapWarning)
    if confidence is not None and target == "unseen":
        alpha = least_alpha(path, _bound(path, bias_reduction, confidence), 0.0)
    else:
        base = path.target_bias(target)
        alpha = least_alpha(path, lambda alphas: 1.0 - path.choice(alphas, target) / base, bias_reduction)
    stated = _stated(path, 0.0 if alpha is None else alpha, bias_reduction, target)
    lost = stated.correlation if stated.correlation < least else None
    alpha = alpha if lost is None else None
    if alpha is not None and (stated.met or confidence is not None):
        return replace(stated, met=True)
    stated = _stated(path, worthwhile_alpha(path, target, alpha), bias_reduction, target)
    message = _missed(target, confidence, stated, more, lost, promised=alpha is not None)
    return replace(stated, met=False, message=message)


def _stated(path: TradeoffPath, alpha: float, asked: float, target: Target) -> Choice:
    """The outcome that is stated for one alpha, and whether it meets the request."""
    reached, correlation = float(path.reduction(alpha, target)), float(path.correlation(alpha))
    if target == "training":
        return Choice(alpha, asked, reached >= asked - 1e-9, reached, (float("nan"), float("nan")), correlation)
    missing = expected_shortfall(asked, reached, path.reduction_error(alpha))
    low, high = map(float, path.reduction_interval(alpha))
    met = missing <= SHORTFALL and low >= (asked if path.cross.crowded else asked / 2.0)
    return Choice(alpha, asked, met, reached, (low, high), correlation)


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
        low, high = (low, middle) if measure(np.array([middle]))[0] >= request else (middle, high)
    return float(high)


def worthwhile_alpha(path: TradeoffPath, target: Target, aimed: float | None = None) -> float:
    """The smallest alpha beyond which no larger one, up to the one aimed at, pays; see the head of this module."""
    grid = path.grid()
    alphas = close_alphas(path) if aimed is None else np.r_[0.0, grid[grid < aimed], aimed]
    left = path.choice(alphas, target)
    error = np.zeros((len(alphas),) * 2)
    if target == "unseen":
        cov = path.covariance(alphas)[:-1, :-1]
        spread = np.diag(cov)
        error = np.sqrt(np.maximum(spread[:, None] + spread - 2.0 * cov, 0.0))
    pays = (np.triu(left[:, None] - left, 1) > np.nan_to_num(error) + _ROUNDING * abs(left[0])).any(axis=1)
    return float(alphas[int((~pays).argmax())])


def close_alphas(path: TradeoffPath) -> FloatArray:
    """0, and the alphas of the grid whose score keeps a correlation of 0.9 with the base score."""
    alphas = path.grid()
    return np.r_[0.0, alphas[~(path.correlation(alphas) < LEAST_CORRELATION)]]


def open_path(cross: CrossFit, fairness: Mapping[Any, float], **settings: Any) -> TradeoffPath:
    """Make the path; of several notions, group notions without a detectable gap are left out, with a warning."""
    path = TradeoffPath(cross, weighted_notions(fairness), **settings)
    if len(path.notions) < 2 or cross.whole.n_groups < 2:
        return path
    groups = [notion for notion, _ in path.notions if isinstance(notion, DemographicParity)]
    even = [notion for notion in groups if not TradeoffPath(cross, ((notion, 1.0),)).gap_detected]
    rest = tuple((notion, weight) for notion, weight in path.notions if notion not in even)
    if not even or not rest:
        return replace(path, notions=((even[0], 1.0),)) if even else path
    named = " and ".join(notion.name for notion, _ in rest)
    what = "" if even == [PARITY] else f" by {' and '.join(notion.name for notion in even)}"
    p = min(notion.gap_p_value(cross.whole) for notion in even)
    warn(
        f"no group gap was found in the base score{what} (p = {p:.2g} for 'no gap'); only {named} fairness is pursued",
        NoGapWarning,
    )
    return replace(path, notions=rest if len(rest) > 1 else ((rest[0][0], 1.0),))


def no_gap_message(p: float, anyway: str = _ANYWAY) -> str:
    """Say why the scores are unchanged."""
    tested = "" if np.isnan(p) else f" (p = {p:.2g} for 'no gap')"
    why = f"no group gap was found in the base score{tested}: what differs between the groups is within sampling noise"
    if p <= SIGNIFICANCE:
        why = f"the group gap of the base score{tested} or the groups are too small to be measured on held-out rows"
    return f"{why}, so the scores are the base scores, unchanged. {anyway}".rstrip()


def _bound(path: TradeoffPath, asked: float, confidence: float) -> Callable[[FloatArray], FloatArray]:
    """Minus the upper bound of ``b(alpha) - (1 - r) b_0``, valid for all alphas at once.

    The bound takes errors as normal. So that it promises no more than the stated interval does, the lower end of that
    interval must reach the request too.
    """

    def error(alphas: FloatArray) -> FloatArray:
        change = np.column_stack([np.eye(len(alphas)), np.full(len(alphas), asked - 1.0)])
        return change @ path.covariance(alphas) @ change.T

    cov = error(np.r_[0.0, path.grid()])
    spread = np.sqrt(np.maximum(np.diag(cov), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(cov / np.outer(spread, spread))
    draws = np.random.default_rng(0).standard_normal((_DRAWS, len(values)))
    drawn = draws * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    reach = float(np.quantile(drawn.max(axis=1), confidence))

    def measure(alphas: FloatArray) -> FloatArray:
        difference = path.bias(alphas) - (1.0 - asked) * path.target_bias()
        bound = difference + reach * np.sqrt(np.maximum(np.diag(error(alphas)), 0.0))
        return np.minimum(-bound, path.reduction_interval(alphas, confidence)[0] - asked)

    return measure


def _missed(
    target: Target, confidence: float | None, stated: Choice, other: str, lost: float | None, *, promised: bool
) -> str:
    """Template of the warning: the reduction that was reached, its price, and how to reach more."""
    low, high = stated.interval
    ends = f" (95 % interval {low:.2f} to {high:.2f})"
    if not np.isfinite(low):
        ends = "" if np.isnan(low) else f" (95 % interval up to {high:.2f})"
    sure = "" if confidence is None else f" with confidence {confidence:g}"
    if stated.alpha == 0:
        outcome = "no step away from the base score removes more than its own standard error, so it is kept as it is"
    else:
        outcome = (
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
    return f"{{bias_reduction=:g}} {head}: {outcome}. {more} {other}"
