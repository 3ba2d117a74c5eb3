"""Choose what does what is asked: an alpha for means, a rule for flags.

Groups that are known by their probabilities leave open who of those with the same probabilities is a member. A score
that knows more of the group than the probabilities do may then be anything within bounds (`core.ruler.mean_bounds`).
Labels of rows that somebody chose, by a rule that is not known, say nothing of rows that nobody looked at.

``y = t - sum_g lambda_g r_g``, where ``r_g`` is how much a row resembles group g, or what the columns of an ensemble
say of that by least squares; lambda is solved for (`evenout.core.flags`) on all rows and without each fold.

For equal means lambda is a place on the path of the anchored problem whose columns are the resemblances. For even flag
rates it is solved for (`evenout.fitting.choose`), and then judged on rows that it has not seen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from evenout.core.base_score import LINEAR
from evenout.core.cells import CrossFit
from evenout.core.checks import ANY, FINITE, MOST_ROWS, Within, require
from evenout.core.flags import (
    ENOUGH,
    FlagRows,
    even_flags,
    first_even,
    flag_p_value,
    linear_resemblance,
    most_kept,
    top_threshold,
)
from evenout.core.individual import Individual
from evenout.core.intervals import expected_shortfall
from evenout.core.notions import Notion, pairs_notion
from evenout.core.parity import DemographicParity, Own
from evenout.core.path import (
    HALF_SHARED,
    SHORTFALL,
    SIGNIFICANCE,
    Choice,
    Target,
    TradeoffPath,
    choose,
    close_alphas,
    least_alpha,
    no_gap_message,
    open_path,
)
from evenout.core.problem import Columns, Correction, Method, Rule, Weights
from evenout.core.registry import NOTIONS, weighted_notions
from evenout.core.ruler import (
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
from evenout.exceptions import (
    InputError,
    NoGapWarning,
    SmallGroupWarning,
    TargetNotReachedWarning,
    UnknownOutcomeWarning,
    warn,
)
from evenout.fitting.resemblance import CrossFitted, FittedResemblance
from evenout.groups.rules import Resemblance
from evenout.tables.parameters import INDIVIDUAL, check_parameters, number

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


def doubted(
    choice: Choice, ratio: RatioEstimate, rows: FlagRows, V: FloatArray, share: float, asked: float | None
) -> tuple[Choice, RatioEstimate]:
    """What was chosen, and the ratio of flag rates, with the bounds of what can be known.

    Parameters
    ----------
    choice : Choice
    ratio : RatioEstimate
    rows : FlagRows
    V : array of shape (K, 1, k + 1)
        The weights of what was chosen, as each fold has them.
    share : float
        Of the rows that is flagged.
    asked : float or None
        The ratio of flag rates, if one was asked for.
    """
    doubt = rows.sample.doubt
    given = asked is None and np.isnan(choice.asked)  # a place on the path: nothing was asked for
    if not doubt or not rows.compares.any() or (doubt == "labels" and given):
        return choice, ratio
    if doubt == "labels":
        found = f"{choice.reached:.2f}" if asked is None else f"{ratio.value:.2f}"
        return _unknown(choice, _LABELS.replace("{found}", found), doubt), ratio
    flags = rows.measured(V, share)
    ratio = ratio._replace(interval=bounded_ratio(flags, *mean_bounds(rows.sample, rows.flagged(V, share)[:, 0])))
    choice = replace(choice, interval=_reduction(rows, V))
    low, high = choice.interval if asked is None else ratio.interval
    if given:
        return choice, ratio
    if low >= (choice.asked if asked is None else asked):
        return replace(choice, met=True, message=""), ratio
    kind = "a reduction" if asked is None else "a ratio of flag rates"
    value = choice.reached if asked is None else ratio.value
    ends = f"between {low:.2f} and {high:.2f}" if np.isfinite(low) else f"of any size up to {high:.2f}"
    words = _PROBABLE.replace("{kind}", kind).replace("{ends}", ends).replace("{value}", f"{value:.2f}")
    return _unknown(choice, words, doubt), ratio


def _unknown(choice: Choice, message: str, doubt: str) -> Choice:
    return replace(choice, met=False, message=message, kind=UnknownOutcomeWarning, doubt=doubt)


def _reduction(rows: FlagRows, V: FloatArray) -> tuple[float, float]:
    """Bounds of the share of the bias that is gone."""
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
    low = 1.0 - after_high / before_low if before_low > 0 else -np.inf
    return float(low), float(1.0 - after_low / before_high) if before_high > 0 else float("nan")


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
        """What was reached, at which price; a template, filled with the figures of the outcome."""
        if not self.own.any():
            found = (
                "no step away from the base score is worth its own standard error and leaves the flagged standing out, "
                "so it is kept as it is"
            )
        else:
            found = (
                "the estimate is {ratio:.2f} (95 % interval {low:.2f} to {high:.2f}), where the flagged "
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

    own: Annotated[FloatArray, "G"]
    without: Annotated[FloatArray, "K G"]
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

    rates: Annotated[FloatArray, "G 2"]
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
    """All that a repair has learnt; ``model``, ``path`` and ``flags`` are None without two groups to compare.

    ``names``, ``counts`` and ``known`` are of the groups that are compared; the rest is as in `evenout.BlindRepair`.
    """

    model: FittedResemblance | None
    path: TradeoffPath | None
    prices: Prices
    flags: FlagState | None
    names: tuple[str, ...]
    counts: Annotated[IntArray, "G", Within(0, MOST_ROWS)]
    known: Annotated[FloatArray, "G", ANY]
    left_out: dict[str, Annotated[int, Within(0, MOST_ROWS)]]
    scores: Annotated[FloatArray, "n"]
    threshold: Annotated[float, FINITE]
    score_name: str | None

    def check(self) -> None:
        """Its parts are of the same groups."""
        G, n_folds = len(self.names), 0 if self.path is None else self.path.cross.n_folds
        require(len(self.counts) == G, "names", "has the wrong length")
        require(self.prices.without.shape == (n_folds, G), "prices", "has the wrong shape")
        compared = {self.model is None, self.path is None, self.flags is None}
        require(len(compared) == 1, "path", "does not go with the rest")
        if self.model is not None and self.path is not None and self.flags is not None:
            require(self.model.n_groups == self.path.cross.whole.n_detectors == G, "model", "has the wrong length")
            require(len(self.flags.rates) == G, "flags", "has the wrong shape")

    def filled(self, n_features: int) -> "Repaired":
        """Out of a file, after it was held against the columns of a fit."""
        if self.model is not None:
            self.model.fits(n_features + 1)  # the score is a column too
        return self


def no_prices(n_folds: int, n_groups: int, choice: Choice | None = None) -> Prices:
    """The score as it is."""
    nan = float("nan")
    none = Choice(nan, nan, False, nan, (nan, nan), 1.0)
    return Prices(np.zeros(n_groups), np.zeros((n_folds, n_groups)), choice or none)


def mean_prices(path: TradeoffPath, choice: Choice, model: FittedResemblance) -> Prices:
    """Lambda at the place on the path that was chosen."""
    v, alphas = path.weights(choice.alpha), np.array([choice.alpha])
    if not v.any():
        return no_prices(path.cross.n_folds, len(v), choice)
    return Prices(model.levelled(-v), -path.fold_weights(alphas, "unseen")[:, 0, :-1], choice)


def flag_prices(cross: CrossFitted, t: FloatArray, sample: Sample, share: float, asked: float, more: str) -> Prices:
    """Lambda that is solved for even flag rates; see `evenout.fitting.choose.even_rule`."""
    rows = cross.held(t, sample, share)
    even = even_rule(Looks(rows, cross.own, cross.without), share, asked, more)
    nan, y = float("nan"), t - cross.own @ even.own
    correlation = float(np.corrcoef(t, y)[0, 1]) if y.std() > 0 and t.std() > 0 else 0.0
    kind = TargetNotReachedWarning if even.gap else NoGapWarning
    choice = Choice(nan, asked, even.met, nan, (nan, nan), correlation if even.own.any() else 1.0, even.message, kind)
    return Prices(even.own, even.without, choice)


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
    judged_on : {"unseen", "training"}
    correction : {"weights", "resemblance", "both"}
        Which columns may move the score.
    weights : {"free", "nonnegative", "simplex"}
    method : {"anchored", "published"}
    classifier : object
        Of resemblance.
    contamination : float or int
    """

    fairness: dict[Notion, float]
    bias_reduction: float | None
    flag_rate_ratio: float | None
    alpha: float | None
    confidence: float | None
    judged_on: Target
    correction: Correction
    weights: Weights
    method: Method
    classifier: Any
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
        if parameters["confidence"] is not None and parameters["judged_on"] == "training":
            raise InputError(
                "{@confidence} is about unseen rows, but {judged_on='training'} was given; leave one of them out"
            )
        corrected = _correction(parameters["correction"])
        rest = {name: parameters[name] for name in ("confidence", "judged_on", "contamination")}
        return cls(_notions(parameters, corrected), **ways, **rest, **corrected)

    @property
    def asked(self) -> bool:
        """Whether anything was asked for; else the aim is `DEFAULT_REDUCTION`."""
        return (self.bias_reduction, self.flag_rate_ratio, self.alpha, self.confidence) != (None,) * 4

    def path(self, cross: CrossFit, resembling: int = 0) -> TradeoffPath:
        """Every trade-off. What is meant for unseen rows is solved against sampling noise.

        So many of the last columns, ``resembling``, say how much rows resemble each group.
        """
        settings: dict[str, Any] = {"method": self.method, "noise_aware": self.judged_on == "unseen"}
        columns = Columns(self.correction, resembling)
        return open_path(cross, self.fairness, **settings, constraint=self.weights, columns=columns)

    def settle(self, path: TradeoffPath, rows: FlagRows, count: Counter | None = None) -> "Settled":
        """The way to what is asked, the place on it, and the ratio of flag rates there.

        Flags are counted among the rows, or by ``count`` among more rows than these.
        """
        path, whole = path.towards(None) if path.rule is not None else path, rows.sample
        rows = rows.narrowed(rows.share(self.contamination))
        require_compared(rows, whole, asked=self.flag_rate_ratio is not None and self.judged_on == "unseen")
        if path.cross.whole.n_groups < 2 or not rows.compares.any():
            return Settled(path, self.choose(path, rows), RatioEstimate.unknown(), {})
        share, moving, other = rows.share(self.contamination), self._moving(path), None
        if self.flag_rate_ratio is not None and len(moving):
            path, choice, other = self._solved(path, rows, moving, self.flag_rate_ratio, count)
        else:
            choice = self.choose(path, rows)
        V = path.fold_weights(np.array([choice.alpha]), self.judged_on)
        judged = rows if self.judged_on == "unseen" else replace(rows, folds=np.zeros_like(rows.folds))
        before, after = judged.flagged(np.concatenate([judged.base(), V], axis=1), share).T
        rates = judged.measured(V, share)
        if count is not None and self.judged_on == "unseen":
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
        if self.method == "published" or self.judged_on == "training" or not parity:
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
            return choose(path, asked, self.judged_on, self.confidence)
        more = _more(self.correction).replace("Other ", "")
        return choose(path, asked, self.judged_on, self.confidence, least=HALF_SHARED, more=more)

    def _given(self, path: TradeoffPath, alpha: float, wider: float = 1.0) -> Choice:
        """What may be said of an alpha that was not chosen here, its interval so much wider."""
        nan = float("nan")
        reached, interval = nan, (nan, nan)
        if path.gap_detected:
            reached = float(path.reduction(alpha, self.judged_on))
            if self.judged_on == "unseen":
                low, high = map(float, path.reduction_interval(alpha))
                middle = min(max(reached, low), high)
                interval = middle - wider * (middle - low), min(middle + wider * (high - middle), max(high, 1.0))
        return Choice(alpha, nan, True, reached, interval, float(path.correlation(alpha)))

    def _by_flags(self, path: TradeoffPath, rows: FlagRows, asked: float) -> Choice:
        """The smallest alpha of the path of means with an even enough share of flagged rows, where none is solved for.

        First, whether there is a gap at all.
        """
        share = rows.share(self.contamination)
        if self.judged_on == "training":
            rows = replace(rows, folds=np.zeros_like(rows.folds))
        p = flag_p_value(rows, share)
        if p > SIGNIFICANCE:
            nan = float("nan")
            message = no_gap_message(p).replace(
                "no group gap was found in the base score", "no gap in flag rates was found"
            )
            return Choice(0.0, asked, False, nan, (nan, nan), 1.0, message, NoGapWarning)

        def ratios(alphas: FloatArray) -> FloatArray:
            return rows.ratio(rows.flagged(path.fold_weights(alphas, self.judged_on), share))

        alpha = least_alpha(path, ratios, asked)
        met = alpha is not None
        if alpha is None:
            alphas = close_alphas(path)
            flagged = rows.flagged(path.fold_weights(alphas, self.judged_on), share)
            alpha = float(alphas[first_even(rows, flagged)])
        given = self._given(path, alpha)
        message = "" if met else _missed(given, self.judged_on)
        return Choice(alpha, asked, met, given.reached, given.interval, given.correlation, message)


class Settled(NamedTuple):
    """The way to what is asked, the place on it, and the ratio of flag rates and the price of flags there."""

    path: TradeoffPath
    choice: Choice
    ratio: RatioEstimate
    price: dict[str, float]


def _missed(given: Choice, judged_on: Target) -> str:
    return (
        f"{{flag_rate_ratio=:g}} is not reached on {judged_on} rows with these detectors: {{ratio:.2f}} is, at "
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


_CORRECTIONS: dict[str, dict[str, str]] = {  # what each word changes of the default
    "weights": {},
    "nonnegative": {"weights": "nonnegative"},
    "simplex": {"weights": "simplex"},
    "resemblance": {"correction": "resemblance"},
    "both": {"correction": "both"},
    "published": {"method": "published"},
}
CORRECTIONS = tuple(_CORRECTIONS)


def _correction(asked: Any) -> dict[str, Any]:
    """The four settings that ``correction`` stands for."""
    plain = {"correction": "weights", "weights": "free", "method": "anchored", "classifier": None}
    if isinstance(asked, Resemblance):
        asked.check()
        by = "resemblance" if asked.weights is None else "both"
        return plain | {"correction": by, "weights": asked.weights or "free", "classifier": asked.classifier}
    if not isinstance(asked, str) or asked not in _CORRECTIONS:
        words = f"{', '.join(map(repr, CORRECTIONS))} or evenout.Resemblance(...)"
        raise InputError("{correction=} is not allowed; use {words}", correction=asked, words=words)
    return plain | _CORRECTIONS[asked]


def _notions(parameters: Mapping[str, Any], corrected: Mapping[str, Any]) -> dict[Notion, float]:
    """The notions asked for, with their weights."""
    asked, detectors = parameters["fairness"], parameters["detectors"]
    if isinstance(asked, np.ndarray) or (callable(asked) and not isinstance(asked, Notion)):
        base, published = parameters["combination"], corrected["method"] == "published"
        linear = isinstance(base, str) and base in LINEAR
        if corrected["correction"] != "weights":
            raise InputError(
                "{correction=} adds columns beside the target, which a form of your own in {@fairness} has no place "
                "for; leave one of them out",
                correction=parameters["correction"],
            )
        if published and parameters["alpha"] is None and parameters["flag_rate_ratio"] is None:
            raise InputError(
                "{@fairness} is a form of your own, which has no target to compare with in {correction='published'}; "
                "give {@alpha} or {@flag_rate_ratio}"
            )
        if not published and not linear:
            raise InputError(
                "{@fairness} is a form of your own, over detector weights, but {combination=} is no weighted mean of "
                "the detectors, which it could measure; use 'average' or 'greedy', or {correction='published'}",
                combination=base,
            )
        return {Own(asked): 1.0}
    given = asked if isinstance(asked, Mapping) else {asked: 1.0} if isinstance(asked, str | Notion) else {}
    if not given or not all(isinstance(notion, Notion) or notion in NOTIONS for notion in given):
        known = ", ".join(map(repr, NOTIONS))
        raise ValueError(
            f"fairness={asked!r} is not allowed; use {known}, Individual(...), a Notion of your own, or a dict of "
            "these and their weights"
        )
    for notion, weight in given.items():
        if not number(0, np.inf, open_low=True).allows(weight):
            raise InputError(
                "{@fairness} has the weight {weight!r} for {name!r}; weights must be numbers above 0",
                weight=weight, name=getattr(notion, "name", notion),
            )  # fmt: skip
    notions = dict(weighted_notions(given))
    individual = next((notion for notion in notions if isinstance(notion, Individual)), None)
    if individual is not None:
        check_parameters(individual.get_params(deep=False), INDIVIDUAL)
    if len({notion.name for notion in notions}) < len(notions):
        raise InputError("{@fairness} has two notions of one name; give each its own")
    if (name := pairs_notion(notions)) and isinstance(detectors, str) and detectors == "precomputed":
        raise InputError(
            "{fairness=} compares feature rows, but {detectors='precomputed'} has scores alone; "
            "use {fairness='demographic_parity'}, or detectors that score features",
            fairness=name,
        )
    return notions
