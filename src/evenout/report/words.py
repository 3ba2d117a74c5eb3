"""The sentences and figures of the page, for every step, so that page, table and test all say the same."""

import math
from typing import Any, NamedTuple

from evenout.outcome import detection_verdict, flags_verdict, gap_words, number, percent, scientific
from evenout.report.data import ReportData, Score, Step
from evenout.report.privacy import Range


class Headline(NamedTuple):
    """The first thing to read: ``tone`` is "good", "caution" or "neutral"."""

    tone: str
    title: str
    text: str


def headline(data: ReportData) -> Headline:
    """Sum up the outcome of the fit; what speaks against it comes first."""
    outcome, by_flags = data.outcome, data.outcome.kind == "flag_rate_ratio"
    gap, asked = gap_words(data.fairness), outcome.asked is not None
    if data.n_groups < 2:
        text = "Fewer than two groups have enough people to be compared, so the scores are the base scores."
        return Headline("neutral", "There is nobody to compare", text)
    step = data.steps[data.chosen]
    if outcome.kind == "alpha":
        doubt = "" if data.gap_detected else " But what differed before was within sampling noise."
        before, now = (score_words(data, score)["bias"] for score in (data.base, step.score))
        text = (
            f"Alpha {scientific(step.alpha)} was given. For unseen people the {gap} goes from "
            f"{before} to {now}.{doubt} {_cost(data)}"
        )
        return Headline("neutral", "The fairness pressure was set by hand", text)
    if not data.gap_detected:
        p = "" if by_flags or math.isnan(data.gap_p_value) else f" (p = {data.gap_p_value:.2g} for “no gap”)"
        text = (
            f"What differs between the groups’ {'flag rates' if by_flags else 'average base scores'} is within "
            f"sampling noise{p}, so nothing was removed. That is not proof that the groups are treated "
            "alike: look at the flag rates."
        )
        return Headline("neutral", f"No {'gap in flag rates' if by_flags else gap} was detected", text)
    changed = step.alpha > 0
    verdict = flags_verdict(*data.flag_ratio) if changed else ""
    if outcome.status in ("short", "unknown"):
        title = "Flag rates may be less even than asked for"
        if not by_flags:
            smaller = f"smaller, but perhaps not by as much as {'asked' if asked else 'aimed at'}"
            title = f"The {gap} is {smaller if outcome.reached > 0 else 'not smaller'}"
        text = f"{verdict} {outcome.words} {_cost(data)} Other or more detectors may do better."
        return Headline("caution", title, text.strip())
    if not changed:
        return Headline("neutral", "Already even enough", f"{outcome.words} No pressure was needed.")
    if verdict:
        title = "Scores are more even, flags are " + ("less even" if "less even" in verdict else "not")
        return Headline("caution", title, f"{verdict} {outcome.words} {_cost(data)}")
    title = "Flag rates are more even" if by_flags else f"The {gap} is smaller"
    text = f"{outcome.words} {_flags(data)} {_cost(data)}"
    return Headline("good", f"{title}, as asked" if asked else title, text)


def step_words(data: ReportData, place: int) -> dict[str, Any]:
    """Every text of the page that changes with the slider."""
    step = data.steps[place]
    now, (least, most) = score_words(data, step.score), step.kept  # of the flagged list
    marks = {"chosen setting": place == data.chosen, "no fairness pressure": place == 0}
    setting = [name for name, applies in marks.items() if applies]
    return {
        **now,
        "alpha": scientific(step.alpha),
        "place": f"Step {place + 1} of {len(data.steps)}",
        "setting": " · ".join(setting),
        "summary": _summary(data, step, now, ", ".join(setting)),
        "removed": _removed(data, step),
        "f1": number(step.f1),
        "f2": scientific(step.f2),
        "distance": number(step.distance),
        "enter": people(step.moves.enter, data.smallest_cell),
        "leave": people(step.moves.leave, data.smallest_cell),
        "against": _against(step),
        "weights": [number(weight) for weight in step.weights],
        "kept": f"at least {100 * least:.1f}%"
        if least < most and most >= 1
        else ratio_text(step.kept, "{:.1%}", at_least=False),
        "prices": [number(price) for price in step.prices],
        "taken": [number(mean) for mean in step.taken],
    }


def score_words(data: ReportData, score: Score) -> dict[str, Any]:
    """The figures of one score, of the base ensemble or of a step."""
    flags, smallest = score.flags, data.smallest_cell
    return {
        # within its interval: an estimate without bias may be below 0, where no gap can be
        "bias": number(max(score.bias, score.interval[0])),
        "interval": " to ".join(map(number, score.interval)),
        "apart": "not shown" if score.apart is None else f"{score.apart:.2f}",
        "beyond": "not shown" if score.beyond is None else f"{score.beyond:,.0f}",
        "training_bias": number(score.training_bias),
        "auc": number(score.auc),
        "average_precision": number(score.average_precision),
        "precision": "not shown" if score.precision is None else percent(score.precision),
        "ratio": ratio_text(flags.ratio),
        "unflagged": ratio_text(flags.unflagged),
        "rates": [ratio_text(rate, "{:.1%}", at_least=False) for rate in flags.rates],
        "counts": [
            people(count, smallest, hidden=count[0] == 0 and count[1] >= group.size[0])
            for count, group in zip(flags.counts, data.groups, strict=True)
        ],
        "means": [number(mean) for mean in score.spread.means],
    }


def people(count: Range, smallest: int, *, hidden: bool = False) -> str:
    """A number of people, or what may be said of it."""
    low, high = count
    if low == high:
        return f"{low:,.0f}"
    if high < smallest:
        return f"fewer than {smallest}"
    return "not shown" if hidden else f"{low:,.0f}–{high:,.0f}"


def ratio_text(ends: Range, style: str = "{:.2f}", *, at_least: bool = True) -> str:
    """A ratio of rates, or a rate, or what may be said of it: one value where both ends read alike, else bounds.

    ``at_least``: whether a lower bound alone is shown.
    """
    low, high = map(style.format, ends)
    if low == high:
        return low
    if ends[1] >= 1:
        return f"at least {low}" if at_least and ends[0] > 0 else "not shown"
    return f"at most {high}" if ends[0] == 0 else f"{low}–{high}"


def _summary(data: ReportData, step: Step, now: dict[str, Any], setting: str) -> str:
    """One paragraph that tells what all panels show; ``now`` are the figures of the step's score."""
    before, named = score_words(data, data.base), f" ({setting})" if setting else ""
    parts = [
        f"Alpha {scientific(step.alpha)}{named}: the {gap_words(data.fairness)} is {now['bias']} for unseen people "
        f"(95% interval {now['interval']}); before: {before['bias']} ({before['interval']}).",
        f"In training, lowest over highest flag rate: {now['ratio']}; before: {before['ratio']}. "
        f"Lowest over highest rate of not being flagged: {now['unflagged']}; before: {before['unflagged']}.",
    ]
    if data.labels == "shown":
        parts.append(f"AUC: {now['auc']}; before: {before['auc']}.")
    enter, leave = (people(count, data.smallest_cell) for count in (step.moves.enter, step.moves.leave))
    parts.append(f"Entering the flagged list: {enter}; leaving it: {leave}.")
    if step.prices:
        taken = ", ".join(
            f"{group.name} {number(mean)}"
            for group, mean in zip(data.groups, step.taken, strict=True)
            if mean is not None
        )
        parts.append(f"Taken off for looking like a group, on average, in standard deviations: {taken}.")
    return " ".join(parts)


def _removed(data: ReportData, step: Step) -> str:
    """The change of the bias against the base score."""
    if not data.gap_detected or not data.base.bias > 0:
        return "no gap was detected before"
    share = 1 - step.score.bias / data.base.bias
    if share > 1:
        return "nothing left that is more than noise"
    return f"{percent(share)} less than before" if share >= 0 else f"{percent(-share)} more than before"


def _against(step: Step) -> str:
    """Count the detectors that count against being flagged."""
    negative = sum(weight < 0 for weight in step.weights)
    if not negative:
        return "No detector has a negative weight."
    have = "has a negative weight" if negative == 1 else "have negative weights"
    return f"{negative} of {len(step.weights)} detectors {have}: a high value there lowers the score."


def _cost(data: ReportData) -> str:
    """Say what the chosen setting costs."""
    step = data.steps[data.chosen]
    if step.score.auc is None or data.base.auc is None:
        return f"A score changes by {number(step.distance)} typically, on a scale from 0 to 1."
    return detection_verdict(data.base.auc, step.score.auc) or (
        "The AUC, which tells how well outliers are found, goes from "
        f"{number(data.base.auc)} to {number(step.score.auc)}."
    )


def _flags(data: ReportData) -> str:
    """Say how even the flags are, which even averages do not imply."""
    now, before = data.steps[data.chosen].score.flags, data.base.flags
    even = "" if data.outcome.kind == "flag_rate_ratio" else "Equal averages are not equal flags. "
    return (
        f"{even}Of the rows shown here {percent(data.contamination)} are flagged: the lowest flag rate is "
        f"{ratio_text(now.ratio)} of the highest, before {ratio_text(before.ratio)}; the lowest rate of not being "
        f"flagged is {ratio_text(now.unflagged)} of the highest, before {ratio_text(before.unflagged)}."
    )
