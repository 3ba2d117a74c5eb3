"""The outcome of a fit: its figures, the sentences about them, and how numbers and names are written.

Terminal, report, notebooks and ``summary.json`` take values and words from here. "Reached" is said only of a uniform
bound (`confidence`). Everything else is an estimate, and is stated with its interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from evenout.core.flags import beyond_equal_rates, rate_ratio
from evenout.core.path import Choice, TradeoffPath
from evenout.core.registry import NOTIONS
from evenout.core.ruler import RatioEstimate
from evenout.core.types import FloatArray
from evenout.exceptions import NoGapWarning, UnknownOutcomeWarning
from evenout.fitting.choose import DEFAULT_REDUCTION
from evenout.fitting.result import Drift, Learnt, beside_unlearnt
from evenout.groups.rules import Groups

Status = Literal["assured", "on_target", "short", "no_gap", "unknown", "fixed"]
Kind = Literal["bias_reduction", "flag_rate_ratio", "alpha"]

NOBODY = "Fewer than two groups have enough rows to be compared: the scores are the base scores."
_SAME = 0.02  # a ratio of flag rates that moves by less is called unchanged
_EVEN_ENOUGH = 0.8  # a ratio that may stay as it is without a word
_LOSS = 0.05  # of AUC, that is said
_NAMED = 5  # groups in a sentence
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None) -> str:
    """Four decimals for small numbers, three digits that count for the others; a true minus."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 1e6:
        return scientific(value)
    digits = 4 if abs(value) < 0.1 else 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    text = f"{value:,.{digits}f}"
    return (text[1:] if float(text.replace(",", "")) == 0 and value < 0 else text).replace("-", "−")


def scientific(value: float) -> str:
    """``2.33 × 10⁶`` for large and small numbers, three digits otherwise."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent; a dash where there is none."""
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f}%"


def with_interval(value: float, ends: tuple[float, float] = (math.nan, math.nan)) -> str:
    """A figure with two decimals, and its interval where there is one.

    >>> with_interval(0.8, (0.626, 1.0)), with_interval(0.8), with_interval(math.nan)
    ('0.80 (0.63–1.00)', '0.80', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if math.isnan(ends[0]) else f"{value:.2f} ({ends[0]:.2f}–{ends[1]:.2f})"


def short_name(name: object, length: int = 40) -> str:
    """A name of at most so many characters."""
    text = str(name)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def some_of(shown: Mapping[str, str]) -> str:
    """The first few of these, each with its figure, and how many more there are."""
    first = [f"{short_name(name)} {figure}" for name, figure in [*shown.items()][:_NAMED]]
    return ", ".join([*first, *([f"{len(shown) - _NAMED} more in summary.json"] if len(shown) > _NAMED else [])])


def gap_words(notions: Sequence[str]) -> str:
    """Name the gap that the bias of these notions measures."""
    name = notions[0]
    return "unfairness" if len(notions) > 1 else NOTIONS[name].words if name in NOTIONS else f"bias by {name}"


def compared_words(notions: Sequence[str], rules: Groups, attributes: Sequence[str], given: Sequence[str]) -> list[str]:
    """Sentences on which rows are compared, where that is not simply each group with each other.

    Parameters
    ----------
    notions : names of the notions of fairness
    rules : which groups are compared
    attributes, given : names of the protected columns, and of those that may justify a difference
    """
    sentences = []
    if given:
        sentences.append(
            f"People are compared with others who have the same {listed(given)}: a difference that goes with "
            f"{'these columns' if len(given) > 1 else 'this column'} counts as justified."
        )
    numbers = [name for name in attributes if name in rules.continuous]
    if numbers:
        sentences.append(
            f"{listed(numbers).capitalize()} counts as a number: overlapping bands of it are compared, at most "
            f"{rules.bands}; where people are counted by band, each is in the nearest one."
        )
    if len(attributes) > 1 and rules.cross is not True:
        crossed = ", and once more crossed" if rules.cross == "both" else ""
        sentences.append(f"{listed(attributes).capitalize()} are compared each by itself{crossed}, and count alike.")
    among = [NOTIONS[name].whom for name in notions if name in NOTIONS and NOTIONS[name].whom]
    if among:
        sentences.append(f"Only {listed(among)} are compared; all others are scored.")
    return sentences


def probable_words(bound: Mapping[str, float]) -> str:
    """A sentence on groups that are known by probability; ``bound`` is `evenout.GroupProbabilities.bound`."""
    off = ", ".join(f"{name!r} {size:.2g}" for name, size in bound.items())
    return (
        "groups are known by probability: if these are calibrated (of people with 0.7, 70 % are members), mean scores "
        f"may be off by at most so many standard deviations: {off}; a gap may be understated"
    )


def listed(names: Sequence[str]) -> str:
    """``a, b and c``.

    >>> listed(["sex"]), listed(["sex", "age", "region"])
    ('sex', 'sex, age and region')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), str(names[-1]))))


def flags_verdict(before: float, after: float) -> str:
    """A warning if flag rates (lowest over highest) are no more even than before; else empty.

    >>> flags_verdict(0.57, 0.41)
    'Flag rates are less even than before: the lowest is 0.41 of the highest, before 0.57.'
    >>> flags_verdict(0.572, 0.569)
    'Flag rates are as uneven as before: the lowest is 0.57 of the highest, before 0.57.'
    >>> flags_verdict(0.57, 0.8), flags_verdict(0.95, 0.95)
    ('', '')
    """
    if not after < before + _SAME or (before - _SAME < after and before > _EVEN_ENOUGH):
        return ""
    kind = "as uneven as" if after > before - _SAME else "less even than"
    return f"Flag rates are {kind} before: the lowest is {after:.2f} of the highest, before {before:.2f}."


def detection_verdict(before: float, after: float) -> str:
    """A warning if known outliers are found no better than by chance, or much worse than before (AUC); else empty.

    >>> detection_verdict(0.564, 0.492)
    'AUC falls from 0.56 to 0.49, no better than chance at finding known outliers.'
    >>> detection_verdict(0.93, 0.87), detection_verdict(0.93, 0.92)
    ('AUC falls from 0.93 to 0.87.', '')
    """
    if not (after <= 0.5 or after <= before - _LOSS):
        return ""
    chance = ", no better than chance at finding known outliers" if after <= 0.5 else ""
    return f"AUC {'falls' if after < before else 'goes'} from {before:.2f} to {after:.2f}{chance}."


@dataclass(frozen=True)
class Outcome:
    """The outcome of a fit.

    Parameters
    ----------
    status : {"assured", "on_target", "short", "no_gap", "unknown", "fixed"}
        ``"assured"``: a bound that holds with the ``confidence`` asked for. ``"on_target"``: by the estimate no more
        than 0.05 of the aim is missing on average, and half of it is there at the lower end of the interval.
        ``"unknown"``: no number of such rows could tell. ``"fixed"``: alpha was given.
    kind : {"bias_reduction", "flag_rate_ratio", "alpha"}
        The figure that is aimed at.
    asked : float or None
        What was asked for; None if nothing was.
    aim : float
        What was aimed at: 0.8 less bias if nothing was asked for. NaN if alpha was given.
    reached : float
        The estimate; NaN without a gap.
    interval : pair of float
        95 %, or the bounds of what is possible where the status is ``"unknown"``; NaN on training rows.
    judged_on : {"unseen", "training"}
    rows : str
        The rows that this is about, in words.
    confidence : float or None
    gap : str
        What differs between groups, in words.
    doubt : {"", "probable", "labels", "drift"}
        Why the outcome is unknown; see `evenout.core.ruler.Sample` and `evenout.fitting.update`.
    drift : Drift, optional
        Groups whose latest rows differ from those before; if they could be followed, this outcome is about them.
    reduction_without_labels : float, optional
        If learning from labels raised the bias of the base score: the share that is gone of its bias without labels.
    """

    status: Status
    kind: Kind
    asked: float | None
    aim: float
    reached: float
    interval: tuple[float, float]
    judged_on: str = "unseen"
    rows: str = "unseen rows"
    confidence: float | None = None
    gap: str = "gap between groups"
    doubt: str = ""
    drift: Drift | None = None
    reduction_without_labels: float | None = None

    @classmethod
    def of(
        cls,
        choice: Choice,
        ratio: RatioEstimate,
        parameters: dict[str, Any],
        path: TradeoffPath | None,
        drift: Drift | None = None,
        learnt: Learnt | None = None,
    ) -> "Outcome":
        """From the choice on a path, the ratio of flag rates there, the parameters, drift, and learning from labels."""
        given: dict[str, Any] = {name: parameters.get(name) for name in ("bias_reduction", "flag_rate_ratio", "alpha")}
        kind: Any = next((name for name, value in given.items() if value is not None), "bias_reduction")
        asked = None if given[kind] is None else float(given[kind])
        by_flags, confidence = kind == "flag_rate_ratio", parameters["confidence"]
        reached, interval = (ratio.value, ratio.interval) if by_flags else (choice.reached, choice.interval)
        status: Status = "short"
        if kind == "alpha":
            status = "fixed"
        elif choice.kind is NoGapWarning or math.isnan(reached):
            status, reached, interval = "no_gap", math.nan, (math.nan, math.nan)
        elif choice.kind is UnknownOutcomeWarning:
            status = "unknown"
        elif choice.met:
            status = "on_target" if confidence is None else "assured"
        judged_on = parameters.get("judged_on", "unseen")
        now = f" like the last {drift.now:,}" if drift is not None and drift.followed else ""
        refitted = path is None or path.cross.refitted or judged_on != "unseen"
        return cls(
            status=status,
            kind=kind,
            asked=asked,
            aim=math.nan if kind == "alpha" else DEFAULT_REDUCTION if asked is None else asked,
            reached=reached,
            interval=interval,
            judged_on=judged_on,
            rows=f"{judged_on} rows{now}" if refitted else f"rows{now} that the weights have not seen",
            confidence=confidence,
            gap="gap in flag rates" if by_flags or path is None else gap_words(tuple(path.fairness)),
            doubt=choice.doubt if status == "unknown" else "",
            drift=drift,
            reduction_without_labels=learnt.without_labels(choice.reached) if learnt and learnt.raised else None,
        )

    @property
    def words(self) -> str:
        """One sentence, or two."""
        parts, gone = [self._sentence, self._changed], self.reduction_without_labels
        if gone is not None:
            left = "" if math.isnan(gone) else f": what is left is {beside_unlearnt(gone)}"
            parts.append(f"Learning from labels has raised the {self.gap}{left}.")
        return " ".join(filter(None, parts))

    @property
    def _changed(self) -> str:
        """A sentence on rows that have drifted, with the outcome for all rows together."""
        drift = self.drift
        if drift is None or not drift.followed:
            return ""
        change = f"Rows of {drift.named} changed after the first {drift.before:,} rows, which are left aside"
        if self.kind == "alpha" or math.isnan(drift.reached):
            return f"{change}."
        all_rows = replace(self, reached=drift.reached, interval=drift.interval, rows="rows of then and now together")
        return f"{change}; solved on all of them: {all_rows._stated[0].lower()}{all_rows._stated[1:]}."

    @property
    def _sentence(self) -> str:
        aim = f"{self._figure(self.aim)} {'aimed at' if self.asked is None else 'asked for'}"
        match self.status, self.doubt:
            case "no_gap", _:
                return f"No {self.gap} can be told from noise: the scores are the base scores."
            case _ if math.isnan(self.reached):
                return f"Alpha was given, though no {self.gap} can be told from noise."
            case _, "probable":
                low, high = map(self._figure, self.interval)
                range_ = f"between {low} and {high}" if math.isfinite(self.interval[0]) else f"anything up to {high}"
                by_flags = self.kind == "flag_rate_ratio"
                what = "of the highest flag rate for the lowest" if by_flags else f"less {self.gap}"
                return (
                    f"What {self.rows} get is not known: {range_} {what} is possible; probabilities alone cannot say "
                    "more."
                )
            case _, "labels":
                return f"{self._stated} among labelled rows; nothing can be said of rows that nobody looked at."
            case _, "drift":
                return (
                    f"What {self.rows} get is not known: rows of {self.drift.named if self.drift else 'some groups'} "
                    "have changed, and there are too few new ones to say. The rule is that of all rows, old and new."
                )
            case "fixed", _:
                return f"{self._stated}, at the alpha that was given."
            case "assured", _:
                return (
                    f"{self._stated}. At least {self._figure(self.aim)} is reached with confidence {self.confidence:g}."
                )
            case "short", _ if self.interval == (0.0, 0.0):
                return (
                    "Nothing was removed, as no step is worth its own standard error: the scores are the base scores."
                )
            case "on_target", _:
                return f"{self._stated}. The estimate is on target for the {aim}."
        if self.interval[1] >= self.aim:
            return f"{self._stated}: this cannot tell whether the {aim} is reached."
        return f"{self._stated}, less than the {aim}."

    def __str__(self) -> str:
        return self.words

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with its words."""
        return asdict(self) | {"words": self.words}

    @property
    def _stated(self) -> str:
        low, high = self.interval
        ends = f" (95% interval {self._figure(low)} to {self._figure(high)})"
        if not math.isfinite(low):
            ends = "" if math.isnan(low) else f" (95% interval: at most {self._figure(high)})"
        if self.kind == "flag_rate_ratio":
            return f"The lowest flag rate is {self._figure(self.reached)} of the highest on {self.rows}{ends}"
        if self.reached < 0:
            return f"The {self.gap} is {-self.reached:.0%} wider on {self.rows}{ends}"
        return f"{self._figure(min(self.reached, 1.0))} of the {self.gap} is gone on {self.rows}{ends}"

    def _figure(self, value: float) -> str:
        return f"{value:.2f}" if self.kind == "flag_rate_ratio" else f"{value:.0%}"


@dataclass(frozen=True)
class BeforeAfter:
    """A figure of the base score (before) and of the fair score (after), with standard errors where known."""

    before: float
    after: float
    before_error: float | None = None
    after_error: float | None = None


@dataclass(frozen=True)
class Figures:
    """The figures of a fitted model.

    Attributes
    ----------
    outcome : Outcome
    notions : tuple of str
        Notions of fairness that are pursued.
    groups, left_out_groups : dict of str to int
        Rows of each group that is compared, and of each that is too small for that.
    alpha, gap_detected, bias_reduction, bias_reduction_interval
        As in `evenout.FairOutlierEnsemble`.
    gap_p_value, gap_in_standard_deviations : float
        p-value of "the groups have the same mean base score", and the largest difference of two groups' means.
    unseen_estimate : {"everything refitted", "weights only"}
        The part of the model that was refitted without the rows that stand for unseen ones.
    bias_unseen, bias_training : BeforeAfter
        Scale-free bias, on unseen rows and on the training rows.
    bias_unseen_interval : dict of str to pair of float
        95 % intervals, ``before`` and ``after``.
    flag_rates : dict of str to BeforeAfter
        By group, of training rows.
    flag_rate_ratio, unflagged_rate_ratio : BeforeAfter
        Lowest over highest rate of being flagged, and of not being flagged, among training rows.
    flag_rate_ratio_unseen, flag_rate_ratio_unseen_interval : BeforeAfter, and pair of float
        Lowest over highest flag rate on unseen rows, and the 95 % interval of the one after.
    flagged_in_groups, flagged_beyond_equal_rates : BeforeAfter
        Flagged rows of all groups that are compared, and how many of them equal rates would not flag.
    correlation : float
        Of base and fair score.
    """

    outcome: Outcome
    notions: tuple[str, ...]
    groups: dict[str, int]
    left_out_groups: dict[str, int]
    alpha: float
    gap_detected: bool
    gap_p_value: float
    gap_in_standard_deviations: float
    bias_reduction: float
    bias_reduction_interval: tuple[float, float]
    unseen_estimate: str
    bias_unseen: BeforeAfter
    bias_unseen_interval: dict[str, tuple[float, float]]
    bias_training: BeforeAfter
    flag_rates: dict[str, BeforeAfter]
    flag_rate_ratio: BeforeAfter
    unflagged_rate_ratio: BeforeAfter
    flag_rate_ratio_unseen: BeforeAfter
    flag_rate_ratio_unseen_interval: tuple[float, float]
    flagged_in_groups: BeforeAfter
    flagged_beyond_equal_rates: BeforeAfter
    correlation: float

    @classmethod
    def of(cls, model: Any) -> "Figures":
        """From a fitted `evenout.FairOutlierEnsemble`."""
        path, alpha, names, rates = model.path_, model._result.choice.alpha, model.group_names_, model.flag_rates_
        flagged = rates * model.group_counts_[:, None]
        low, high = path.interval(alpha)
        compared = len(names) >= 2
        return cls(
            outcome=model.outcome_,
            notions=tuple(path.fairness),
            groups=dict(zip(names, model.group_counts_.tolist(), strict=True)),
            left_out_groups=dict(model.left_out_groups_),
            alpha=float(model.alpha_),
            gap_detected=bool(model.gap_detected_),
            gap_p_value=float(path.gap_p_value),
            gap_in_standard_deviations=float(path.cross.whole.widest_gaps()[0]),
            bias_reduction=float(model.bias_reduction_),
            bias_reduction_interval=model.bias_reduction_interval_,
            unseen_estimate="everything refitted" if path.cross.refitted else "weights only",
            bias_unseen=BeforeAfter(
                path.target_bias("unseen"),
                float(path.bias(alpha, "unseen")),
                path.target_standard_error(),
                float(path.standard_error(alpha)),
            ),
            bias_unseen_interval={"before": path.target_interval(), "after": (float(low), float(high))},
            bias_training=BeforeAfter(path.target_bias("training"), float(path.bias(alpha, "training"))),
            flag_rates={name: BeforeAfter(*rates[g].tolist()) for g, name in enumerate(names)},
            flag_rate_ratio=_change(rate_ratio(rates) if compared else None),
            unflagged_rate_ratio=_change(rate_ratio(1.0 - rates) if compared else None),
            flag_rate_ratio_unseen=BeforeAfter(
                model._result.base_flag_ratio(model.contamination), float(model.flag_rate_ratio_)
            ),
            flag_rate_ratio_unseen_interval=model.flag_rate_ratio_interval_,
            flagged_in_groups=_change(flagged.sum(axis=0)),
            flagged_beyond_equal_rates=_change(beyond_equal_rates(flagged, model.group_counts_)),
            correlation=float(path.correlation(alpha)),
        )

    @property
    def bias_shown(self) -> BeforeAfter:
        """``bias_unseen`` within its intervals: an estimate without bias may be below 0, where no gap can be."""
        unseen, ends = self.bias_unseen, self.bias_unseen_interval
        return BeforeAfter(max(unseen.before, ends["before"][0]), max(unseen.after, ends["after"][0]))

    @property
    def flags_verdict(self) -> str:
        """See `evenout.outcome.flags_verdict`; nothing where the scores are the base scores."""
        ratio = self.flag_rate_ratio_unseen
        return flags_verdict(ratio.before, ratio.after) if self.correlation < 1.0 - 1e-12 else ""

    @property
    def words(self) -> list[str]:
        """Sentences on groups that are too small, on the gap in numbers of people, and on the request."""
        small = sorted(self.left_out_groups.items(), key=lambda each: -each[1])
        beyond, flagged = self.flagged_beyond_equal_rates, self.flagged_in_groups
        before = f"{beyond.before:,.0f} of {flagged.before:,.0f} flagged people were beyond equal rates"
        return [
            f"Too few rows to compare: {some_of({name: f'({n:,})' for name, n in small})}." if small else "",
            "" if math.isnan(self.gap_in_standard_deviations) else f"In training, {before}; now {beyond.after:,.0f}.",
            NOBODY if len(self.groups) < 2 else self.outcome.words,
        ]


def _change(pair: FloatArray | None) -> BeforeAfter:
    return BeforeAfter(*(np.full(2, np.nan) if pair is None else pair).tolist())


def labels_learnt(model: Any) -> dict[str, Any] | None:
    """Figures on what the base score has learnt from labels; None if it was not to learn.

    Rows with a label, outliers among them, the weight of what was learnt, and the bias of the base score before and
    after.
    """
    stack, (before, after) = model._result.scores.stack, model.label_gap_
    if stack is None:
        return None
    return {
        "known": stack.n_labels,
        "outliers": stack.n_positive,
        "weight": model.label_weight_,
        "bias_before": before,
        "bias_after": after,
    }


def labels_words(labels: dict[str, Any] | None) -> str:
    """Sentences on the figures of `labels_learnt`."""
    if labels is None:
        return ""
    told = f"Labels: {labels['known']:,} rows, {labels['outliers']:,} of them outliers; weight {labels['weight']:.2f}"
    if not labels["weight"] > 0:
        return f"{told}: too few, or they say nothing, so it is as without."
    if labels["bias_before"] is None or math.isnan(labels["bias_before"]):
        return f"{told}."
    return (
        f"{told}; bias of the base score {labels['bias_before']:.2f} before labels, {labels['bias_after']:.2f} after."
    )


def resemblance_words(prices: Mapping[str, float]) -> str:
    """A sentence on the prices of resembling a group, if the score is corrected by that.

    >>> resemblance_words({"f": 0.02, "m": -0.02})
    'Taken off for looking like a group, whoever belongs to it: f 0.0200, m -0.0200.'
    """
    largest = sorted(prices, key=lambda name: -abs(prices[name]))
    kept = [*(name for name in prices if name in largest[:_NAMED]), *largest[_NAMED:]]
    shown = some_of({name: f"{prices[name]:.4f}" for name in kept})
    return f"Taken off for looking like a group, whoever belongs to it: {shown}." if prices else ""
