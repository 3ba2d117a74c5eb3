"""Choose an alpha for even means, or a rule for even flags, by what is asked, and state what it reaches.

The rule for flags is ``y = t - sum_g lambda_g r_g``, where ``r_g`` is how much a row resembles group g, or what the
columns of an ensemble predict of that by least squares; lambda is solved for (`evenout.core.flags`) on all rows and
without each fold, as the model of these scores them, and judged on held-out rows. For equal means lambda is a point on
the path of the anchored problem whose columns are the resemblances.

Groups that are known by their probabilities leave open which of the rows with the same probabilities are members. The
outcome of a score that knows more about the group than the probabilities do is known within bounds alone
(`core.ruler.mean_bounds`). Labels of rows that were chosen by an unknown rule say nothing about rows without a label.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from evenout.core.cells import CrossFit
from evenout.core.flags import (
    ENOUGH,
    FlagRows,
    Views,
    even_flags,
    first_even,
    flag_p_value,
    flag_threshold,
    most_kept,
)
from evenout.core.intervals import expected_shortfall, picked_share
from evenout.core.parity import DemographicParity
from evenout.core.path import (
    HALF_SHARED,
    SHORTFALL,
    SIGNIFICANCE,
    Choice,
    TradeoffPath,
    choose,
    close_alphas,
    least_alpha,
    no_gap_message,
    open_path,
)
from evenout.core.problem import Columns, FlagRule
from evenout.core.ruler import (
    UNKNOWN_RATIO,
    Means,
    RatioEstimate,
    Sample,
    bounded_gap,
    bounded_ratio,
    estimate_ratio,
    mean_bounds,
    noisy_ratios,
)
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError, NoGapWarning, SmallGroupWarning, UnknownOutcomeWarning, warn
from evenout.fitting.resemblance import CrossFitted
from evenout.fitting.settings import Settings

_LABELS = (
    "what was reached is known of the labelled rows alone ({found}), as nobody knows how they were chosen: nothing can "
    "be said about outliers that nobody looked at. Give {@label_propensity}, the chance with which each row was looked "
    "at, or label rows that are drawn at random."
)
_PROBABLE = (
    "what was reached cannot be known: {kind} {ends} is possible, and probabilities alone "
    "cannot say more. If they tell all that the score knows of the group, it is {value}; say so by "
    "GroupProbabilities(..., sufficient=True)."
)


def _stated(
    choice: Choice, rows: FlagRows, V: FloatArray, share: float, asked: float | None, ratio: RatioEstimate
) -> tuple[Choice, RatioEstimate]:
    """The choice and the ratio of flag rates, as far as they can be known.

    ``V`` (K, 1, k + 1) are the chosen weights of each fold, ``asked`` is the ratio that was asked for, if one was.
    """
    doubt = rows.sample.doubt
    given = asked is None and np.isnan(choice.asked)  # a place on the path: nothing was asked for
    if not doubt or not rows.compares.any() or (doubt == "labels" and given):
        return choice, ratio
    unknown = replace(choice, met=False, kind=UnknownOutcomeWarning, doubt=doubt)
    if doubt == "labels":
        known = f"{choice.reached:.2f}" if asked is None else f"{ratio.value:.2f}"
        return replace(unknown, message=_LABELS.replace("{found}", known)), ratio
    bounds = bounded_ratio(rows.measured(V, share), *mean_bounds(rows.sample, rows.flagged(V, share)[:, 0]))
    ratio, interval = ratio._replace(interval=bounds), _reduction(rows, V)
    low, high = interval if asked is None else bounds
    if given:
        return replace(choice, interval=interval), ratio
    if low >= (choice.asked if asked is None else asked):
        return replace(choice, interval=interval, met=True, message=""), ratio
    kind = "a reduction" if asked is None else "a ratio of flag rates"
    value = choice.reached if asked is None else ratio.value
    ends = f"between {low:.2f} and {high:.2f}" if np.isfinite(low) else f"of any size up to {high:.2f}"
    words = _PROBABLE.replace("{kind}", kind).replace("{ends}", ends).replace("{value}", f"{value:.2f}")
    return replace(unknown, interval=interval, message=words), ratio


def _reduction(rows: FlagRows, V: FloatArray) -> tuple[float, float]:
    """Bounds of the share of the bias that is removed."""
    sample = rows.sample
    known = (sample.size > 1.0 + 1e-9)[None]
    L = sample.compared.laplacian(known, np.where(known[0], sample.total, 0.0)[None])[0]
    ends = []
    for weights in (rows.base(), V):
        z = np.zeros(len(rows.t))
        for fold in range(len(weights)):
            inside, scores = rows.scores(weights, fold)
            y = scores[:, 0]
            z[inside] = (y - y.mean()) / y.std() if len(y) and y.std() > 0 else 0.0
        ends.append(bounded_gap(L, *mean_bounds(sample, z)))
    (before_low, before_high), (after_low, after_high) = ends
    low = float(1.0 - after_high / before_low) if before_low > 0 else -np.inf
    return low, float(1.0 - after_low / before_high) if before_high > 0 else _NAN


DEFAULT_REDUCTION = 0.8
_HALF, _CLOSE = 0.5, 0.9  # of how far the flagged stand out by the base score
_SILENT = 0.01  # share of a group's indicator that is predicted, up to which nothing is known
_OF_A_RULE = 1.4  # how much wider intervals of the bias are where flags are solved for: the rule itself is noisy
_MORE = "or ScoreRepair where the group may be used, may reach more."
_FLAGS_ALIKE = "no group gap was found in the base score", "no gap in flag rates was found"  # in messages, for flags
_NAN = float("nan")
_UNCHANGED = Choice(0.0, _NAN, False, _NAN, (_NAN, _NAN), 1.0)

# From weights of (columns, t) of each fold (K, 1, k + 1) to flag rates on unseen rows, where there are more than memory
# holds.
Counter = Callable[[FloatArray], Means]


@dataclass(frozen=True)
class EvenRule:
    """A candidate rule: lambda from all rows (G,) and from each training fold (K, G), and the held-out rows it flags.

    ``flagged`` (n, 1) marks these rows. ``counted`` is the ratio of their flag rates, ``ratio`` its estimate for new
    rows, and ``noisy`` draws of it there. ``stands_out`` is how far the mean base score of the flagged is above that of
    all rows, as a share of the same for the base score. ``message`` is a template, empty if all is well; ``gap`` says
    whether the base score has a gap in flag rates at all.
    """

    own: FloatArray
    without: FloatArray
    flagged: BoolArray
    counted: RatioEstimate
    ratio: RatioEstimate
    noisy: FloatArray
    stands_out: float
    met: bool = False
    message: str = ""
    gap: bool = True

    @classmethod
    def solve(
        cls, rows: FlagRows, views: Views, share: float, aim: float, luck: FloatArray, count: Counter | None
    ) -> "EvenRule":
        """Solve for the best rule of a ratio; 0 is the base score itself.

        The columns of ``rows`` are resemblances by models that have not seen the row. The rules by which held-out
        folds are counted were solved without ``1 / K`` of the rows. What a rule loses on new rows falls as one over
        the rows it was solved on, so the rule of all rows loses ``1 / K`` less. ``luck`` (G,) is the factor by which
        chance has raised each rate, as far as the test picked the gap for it; rates by the rule are raised alike.
        """
        t, r, without = views.t, views.r, np.zeros((len(views.r) - 1, views.r.shape[2]))
        own = even_flags(t[0], r[0], rows.sample, flagged=share, ratio=aim) if aim > 0 else without[0]
        if own.any():
            parts = [(f, rows.folds != f - 1) for f in range(1, len(r))]
            without = np.stack(
                [even_flags(t[f][of], r[f][of], rows.sample.of(of), flagged=share, ratio=aim) for f, of in parts]
            )
        V = np.column_stack([-without, np.ones(len(without))])[:, None]  # of (r, t)
        rates = expected = rows.measured(V, share) if count is None else count(without)
        before, after = (_marked(score, rows.sample, share) for score in (t[0], t[0] - r[0] @ own))
        if own.any() and count is None and rows.views is not None:  # rules that have seen these rows, and not the fold
            trained = rows.sample.means(after)
            mean = np.clip((rates.mean + (trained - rates.mean) / len(without)) / luck, 0.0, 1.0)
            scale = np.sqrt(np.nan_to_num(mean / np.where(rates.mean > 0, rates.mean, np.nan), nan=1.0))
            expected = replace(rates, mean=mean, cov=rates.cov * np.outer(scale, scale))
        stood, stands = (_standing(t[0], over, rows.sample) for over in (before, after))
        return cls(
            own,
            without,
            flagged=rows.flagged(V, share),
            counted=estimate_ratio(rates),
            ratio=estimate_ratio(expected, solved=bool(own.any())),
            noisy=noisy_ratios(expected),
            stands_out=stands / stood if stood > 0 else 1.0,
        )

    def reaches(self, asked: float, *, promised: bool) -> bool:
        """Whether new rows get the ratio asked for, as far as can be known; or, not ``promised``, whether counts do."""
        missing = expected_shortfall(asked, self.counted.value, self.counted.error)
        if promised:
            missing = float(np.maximum(asked - self.noisy, 0.0).mean())
        low = (self.ratio if promised else self.counted).interval[0]
        return missing <= SHORTFALL and low >= asked / 2.0 and self.stands_out >= _HALF

    def missed(self, hint: str) -> "EvenRule":
        """The rule with a message that says what was reached, as the outcome states it, and at which price."""
        reached = (
            "no step away from the base score is worth its own standard error and leaves the flagged standing out, "
            "so it is kept as it is"
        )
        if self.own.any():
            reached = (
                "the estimate is {ratio:.2f} (95 % interval {low:.2f} to {high:.2f}), where the flagged "
                f"stand out by {self.stands_out:.0%} of what they did{{price}}"
            )
        return replace(self, message=f"{{flag_rate_ratio=:g}} cannot be promised on unseen rows: {reached}. {hint}")


def even_rule(
    rows: FlagRows, views: Views, share: float, asked: float, hint: str, count: Counter | None = None
) -> EvenRule:
    """Solve for even flag rates of the ``share`` of rows that is flagged; ``hint`` ends the message where it is missed.

    The programme is solved for the ratio that is asked for and, where held-out rows do not show it, for larger ones. A
    request counts as met if, by held-out rows, at most 0.05 of it is missing on average, and half of it is reached even
    at the lower end of the interval. And the flagged must stand out: their mean base score must be above that of all
    rows by at least half of the same for the base score, for a rule that flags ordinary rows is even for a wrong
    reason. If no rule meets that, the first one is taken whose counts alone show the ratio, though perhaps by chance.
    If there is none, going further must pay: smaller ratios are solved for too, and among the rules whose flagged stand
    out by nine tenths, the least even one is taken that is within one standard error of the most even one.

    The columns of ``rows`` are resemblances, as in `EvenRule.solve`; ``count`` maps lambda of each fold (K, G) to flag
    rates, where there are more rows than these.
    """
    luck = np.ones(rows.sample.members.n_groups)
    base = EvenRule.solve(rows, views, share, 0.0, luck, count)
    p = flag_p_value(rows, share)
    if p > SIGNIFICANCE:
        return replace(base, message=no_gap_message(p, "").replace(*_FLAGS_ALIKE), gap=False)
    sample, kept = rows.sample, picked_share(p, SIGNIFICANCE)
    rates = (sample.means(base.flagged[:, 0]) * sample.size + 0.5) / (sample.size + 1.0)  # none is 0
    for groups in sample.compared.groups_among(np.asarray(rows.compares.any(axis=0))):
        luck[groups] = (rates[groups] / np.average(rates[groups], weights=sample.total[groups])) ** (1.0 - kept)
    tried = []
    for aim in (asked, (1.0 + asked) / 2.0, 1.0):
        tried.append(EvenRule.solve(rows, views, share, aim, luck, count))
        if tried[-1].reaches(asked, promised=True):
            return replace(tried[-1], met=True)
    for rule in tried:
        if rule.reaches(asked, promised=False):
            return rule.missed(hint)
    before = base.ratio.value
    lower = [before + part * (asked - before) for part in (1.0 / 3.0, 2.0 / 3.0) if 0 < before < asked]
    tried = [base, *(EvenRule.solve(rows, views, share, aim, luck, count) for aim in lower), *tried]
    close = [rule for rule in tried if rule.stands_out >= _CLOSE]
    return close[first_even(rows, np.column_stack([rule.flagged for rule in close]))].missed(hint)


def even_columns(
    rows: FlagRows, views: Views, moving: IntArray, share: float, asked: float, hint: str, count: Counter | None = None
) -> tuple[EvenRule, FlagRule, tuple[float, float] | None]:
    """Solve for even flag rates by what the ``moving`` columns predict of the groups.

    Returns the rule (`even_rule`), the weights that its lambda makes and, if any column moves, the other optimum at
    this ratio (`other_optimum`). ``count`` counts flags among more rows than these.
    """
    k, K = rows.S.shape[1], len(views.t) - 1

    def weights(prices: FloatArray, maps: FloatArray) -> FloatArray:
        """Weights of the columns (m, k) by lambda (m, G) and maps from columns to groups."""
        V = np.zeros((len(prices), k))
        V[:, moving] = [-each[1:] @ price for each, price in zip(maps, prices, strict=True)]
        return V

    def counted(prices: FloatArray) -> Means:
        V = np.column_stack([weights(prices, views.maps[1:]), np.ones(K)])
        return replace(count(V[:, None]), compared=rows.sample.compared)  # type: ignore[misc]

    held = replace(rows, S=views.r[1 + rows.folds, np.arange(len(rows.t))])
    even = even_rule(held, views, share, asked, hint, None if count is None else counted)
    rule = FlagRule(weights(even.own[None], views.maps[:1])[0], weights(even.without, views.maps[1:]))
    return even, rule, other_optimum(rows, views, even.own, share) if even.own.any() else None


def _require_compared(rows: FlagRows, sample: Sample) -> None:
    """Warn of groups within strata with few flagged rows; refuse to compare flag rates if all have few."""
    every, some = sample.compared.pairs.any(axis=0), rows.sample.compared.pairs.any(axis=0)
    if (every & ~some).any() and some.any():
        warn(
            SmallGroupWarning(
                "{n} of {m} groups within strata of {@given} can be expected to have fewer than {least} flagged rows: "
                "their flag rates are left out of the ratio. Give fewer or coarser columns, or more rows, to compare "
                "them.",
                n=int((every & ~some).sum()), m=int(every.sum()), least=ENOUGH,
            )
        )  # fmt: skip
    if every.any() and not rows.compares.any():
        raise InputError(
            "{@flag_rate_ratio} compares groups that can be expected to have {n} flagged rows, and no stratum of "
            "{@given} has two such groups; give fewer or coarser columns, or more rows",
            n=ENOUGH,
        )


def other_optimum(rows: FlagRows, views: Views, own: FloatArray, share: float) -> tuple[float, float]:
    """Share of the list that the rule of fewest changes keeps, at the ratio of lambda ``own``; mean score it flags."""
    t, r = views.t[0], views.r[0]
    counted = float(rows.ratio(_marked(t - r @ own, rows.sample, share)[:, None])[0])
    return most_kept(t, r, rows.sample, flagged=share, ratio=max(counted, 1e-6))


def flag_price(
    t: FloatArray, before: BoolArray, after: BoolArray, other: tuple[float, float] | None
) -> dict[str, float]:
    """The price of a score at the threshold; see ``flag_price_`` of `evenout.BlindRepair`.

    ``before`` and ``after`` (n,) mark the rows that the base score ``t`` and the other one flag; see `other_optimum`.
    """
    cost = {
        "mean_score_before": float(t[before].mean()) if before.any() else float("nan"),
        "mean_score": float(t[after].mean()) if after.any() else float("nan"),
        "list_kept": float((before & after).sum() / max(before.sum(), 1)),
    }
    return cost if other is None else cost | {"most_list_kept": other[0], "mean_score_most_kept": other[1]}


def _marked(score: FloatArray, sample: Sample, share: float) -> BoolArray:
    """Whether each row is among the top ``share``."""
    return score > flag_threshold(score[:, None], share, sample.weight)


def _standing(t: FloatArray, over: BoolArray, sample: Sample) -> float:
    """How far the mean base score of the flagged is above that of all rows; 0 if nobody is flagged."""
    some = None if sample.weight is None else sample.weight[over]
    return float(np.average(t[over], weights=some) - np.average(t, weights=sample.weight)) if over.any() else 0.0


def open_tradeoffs(settings: Settings, cross: CrossFit, resembling: int = 0) -> TradeoffPath:
    """The path of all trade-offs, solved against sampling noise where it is meant for unseen rows.

    The last ``resembling`` columns are how much rows resemble each group.
    """
    return open_path(
        cross, settings.fairness, method=settings.method, noise_aware=settings.judged_on == "unseen",
        constraint=settings.weights, columns=Columns(settings.correction, resembling),
    )  # fmt: skip


class Decision(NamedTuple):
    """A path, the choice on it, and the ratio of flag rates and the price of flags there."""

    path: TradeoffPath
    choice: Choice
    ratio: RatioEstimate
    price: dict[str, float]


def settle(
    settings: Settings,
    path: TradeoffPath,
    rows: FlagRows,
    count: Counter | None = None,
    cross: CrossFitted | None = None,
) -> Decision:
    """Choose by what is asked, along the path or by a rule for flags.

    Flags are counted among the rows, or by ``count`` among more rows than these. ``cross`` is the resemblance of the
    rows where a given score is repaired: then the columns are how much rows resemble each group, and nothing else.
    """
    unseen, whole = settings.judged_on == "unseen", rows.sample
    path = path if path.rule is None else replace(path, rule=None)
    share, asked = rows.share(settings.contamination), settings.flag_rate_ratio
    rows = rows.narrowed(share)
    if asked is not None and unseen:
        _require_compared(rows, whole)
    judged = rows if unseen else replace(rows, folds=np.zeros_like(rows.folds))
    if path.cross.whole.n_groups < 2 or not rows.compares.any():
        return Decision(path, choose_place(settings, path, judged, cross), UNKNOWN_RATIO, {})
    moving, other, ratio = moving_columns(settings, path.columns, path.cross.whole.n_detectors), None, None
    if asked is not None and len(moving):
        path, choice, ratio, other = _solved(settings, path, rows, moving, asked, count, cross)
    else:
        choice = choose_place(settings, path, judged, cross)
    V = path.fold_weights(np.array([choice.alpha]), settings.judged_on)
    before, after = judged.flagged(np.concatenate([judged.base(), V], axis=1), share).T
    if ratio is None:
        rates = judged.measured(V, share) if count is None or not unseen else count(V)
        ratio = estimate_ratio(replace(rates, compared=rows.sample.compared))
    choice, ratio = _stated(choice, judged, V, share, asked, ratio)
    return Decision(path, choice, ratio, flag_price(rows.t, before, after, other))


def _solved(
    settings: Settings,
    path: TradeoffPath,
    rows: FlagRows,
    moving: IntArray,
    asked: float,
    count: Counter | None,
    cross: CrossFitted | None,
) -> tuple[TradeoffPath, Choice, RatioEstimate, tuple[float, float] | None]:
    """The path to the rule that is solved for even flags, its end, at 1, its ratio, and the other optimum.

    Of a given score no interval of the bias is stated.
    """
    share, hint = rows.share(settings.contamination), f"Other {_features(cross)}"
    if settings.correction == "weights":
        hint = f"{{correction='resemblance'}}, {_MORE}"
    views = rows.views or Views.of_held(rows.S, rows.t, path.cross.held, moving)
    even, rule, other = even_columns(rows, views, moving, share, asked, hint, count)
    path = replace(path, rule=rule) if rule.own.any() else path
    choice = _given(settings, path, float(rule.own.any()), _OF_A_RULE)
    choice = replace(choice, asked=asked, met=even.met, message=even.message)
    if cross is not None or not even.gap:
        choice = replace(choice, interval=(_NAN, _NAN), reached=choice.reached if cross is not None else _NAN)
    return path, choice if even.gap else replace(choice, kind=NoGapWarning), even.ratio, other


def _features(cross: CrossFitted | None) -> str:
    """The end of a message on what may reach more than this resemblance."""
    silent = cross is not None and float(cross.known.max()) < _SILENT
    return f"features{' (these say next to nothing of the groups)' if silent else ''}, {_MORE}"


def moving_columns(settings: Settings, columns: Columns, k: int) -> IntArray:
    """The columns, of k, by which flag rates are solved for: those without a constraint."""
    parity = all(isinstance(notion, DemographicParity) for notion in settings.fairness)
    if settings.method == "published" or settings.judged_on == "training" or not parity:
        return np.zeros(0, dtype=np.intp)
    moving = columns.moving(k)
    return moving if settings.weights == "free" else moving[columns.free(k)[moving]]


def choose_place(settings: Settings, path: TradeoffPath, rows: FlagRows, cross: CrossFitted | None = None) -> Choice:
    """The alpha on the path that does what is asked; flags are counted among the rows."""
    if path.cross.whole.n_groups < 2:  # nobody to compare, as a warning has said
        return _UNCHANGED
    if settings.alpha is not None:
        return _given(settings, path, float(settings.alpha))
    if settings.flag_rate_ratio is not None:
        return _by_flags(settings, path, rows, settings.flag_rate_ratio)
    asked = DEFAULT_REDUCTION if settings.bias_reduction is None else settings.bias_reduction
    rules: dict[str, Any] = {} if cross is None else {"anyway": ""}
    if settings.correction != "weights":
        rules |= {"least": HALF_SHARED, "more": _features(cross)}
    return choose(path, asked, settings.judged_on, settings.confidence, **rules)


def _given(settings: Settings, path: TradeoffPath, alpha: float, wider: float = 1.0) -> Choice:
    """The statement about an alpha that was not chosen here, its interval wider by a factor."""
    reached, interval = _NAN, (_NAN, _NAN)
    if path.gap_detected:
        reached = float(path.reduction(alpha, settings.judged_on))
        if settings.judged_on == "unseen":
            low, high = map(float, path.reduction_interval(alpha))
            middle = min(max(reached, low), high)
            interval = middle - wider * (middle - low), min(middle + wider * (high - middle), max(high, 1.0))
    return Choice(alpha, _NAN, True, reached, interval, float(path.correlation(alpha)))


def _by_flags(settings: Settings, path: TradeoffPath, rows: FlagRows, asked: float) -> Choice:
    """The smallest alpha of the path of means with even enough flag rates, where no rule is solved for."""
    share = rows.share(settings.contamination)
    p = flag_p_value(rows, share)
    if p > SIGNIFICANCE:
        message = no_gap_message(p).replace(*_FLAGS_ALIKE)
        return replace(_UNCHANGED, asked=asked, message=message, kind=NoGapWarning)

    def flagged(alphas: FloatArray) -> BoolArray:
        return rows.flagged(path.fold_weights(alphas, settings.judged_on), share)

    alpha = least_alpha(path, lambda alphas: rows.ratio(flagged(alphas)), asked)
    met = alpha is not None
    if alpha is None:
        alphas = close_alphas(path)
        alpha = float(alphas[first_even(rows, flagged(alphas))])
    given = _given(settings, path, alpha)
    message = (
        f"{{flag_rate_ratio=:g}} is not reached on {settings.judged_on} rows with these detectors: {{ratio:.2f}} is, "
        f"at {{alpha=:.4g}}, where the score's correlation with the base score is {given.correlation:.2f}{{price}}; "
        "going on would gain less than its own standard error, or lose the base score. Other detectors "
        "({detectors='diverse'}), or ScoreRepair where the group may be used, may reach more."
    )
    return replace(given, asked=asked, met=met, message="" if met else message)
