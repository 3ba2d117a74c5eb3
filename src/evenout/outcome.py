"""What came of a fit: one object, and the one sentence about it that terminal, report and notebooks show.

Only of a uniform bound (`confidence`) is "reached" said. Everything else is an estimate, and is told with its interval.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from evenout.core.path import Choice, TradeoffPath
from evenout.core.ruler import RatioEstimate
from evenout.exceptions import NoGapWarning, UnknownOutcomeWarning
from evenout.fitting.choose import DEFAULT_REDUCTION
from evenout.fitting.drift import Drift
from evenout.fitting.learnt import Learnt, beside_unlearnt
from evenout.fitting.words import gap_words

Status = Literal["assured", "on_target", "short", "no_gap", "unknown", "fixed"]
Kind = Literal["bias_reduction", "flag_rate_ratio", "alpha"]

_SAME = 0.02  # a ratio of flag rates that moves by less is called unchanged
_EVEN_ENOUGH = 0.8  # a ratio that may stay as it is without a word
_LOSS = 0.05  # of AUC, that is said


def flags_verdict(before: float, after: float) -> str:
    """Say so first where flags, which people feel, are no more even than before: lowest over highest rate.

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
    """Say so where known outliers are found no better than by chance, or much worse than before: two AUCs.

    >>> detection_verdict(0.564, 0.492)
    'AUC falls from 0.564 to 0.492, no better than chance at finding known outliers.'
    >>> detection_verdict(0.93, 0.87), detection_verdict(0.93, 0.92)
    ('AUC falls from 0.930 to 0.870.', '')
    """
    if not (after <= 0.5 or after <= before - _LOSS):
        return ""
    chance = ", no better than chance at finding known outliers" if after <= 0.5 else ""
    return f"AUC {'falls' if after < before else 'goes'} from {before:.3f} to {after:.3f}{chance}."


@dataclass(frozen=True)
class Outcome:
    """What came of a fit.

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
        Why the outcome is unknown; see `evenout.core.ruler.Sample` and `evenout.fitting.drift`.
    drift : Drift, optional
        Groups whose latest rows differ from those before; if they could be followed, this outcome is about them.
    reduction_without_labels : float, optional
        Where learning from labels has raised the bias of the base score: the share that is gone of the bias that it has
        without labels.
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
        """From what was chosen, the ratio of flag rates there, parameters, path, drift, and what labels have taught."""
        given: dict[str, float] = {
            name: float(parameters[name])
            for name in ("bias_reduction", "flag_rate_ratio", "alpha")
            if parameters.get(name) is not None
        }
        kind: Any = next(iter(given), "bias_reduction")
        asked, confidence = given.get(kind), parameters["confidence"]
        by_flags = kind == "flag_rate_ratio"
        reached, interval = (ratio.value, ratio.interval) if by_flags else (choice.reached, choice.interval)
        status: Status = "on_target" if choice.met else "short"
        if kind == "alpha":
            status = "fixed"
        elif choice.kind is NoGapWarning or math.isnan(reached):
            status, reached, interval = "no_gap", math.nan, (math.nan, math.nan)
        elif choice.kind is UnknownOutcomeWarning:
            status = "unknown"
        elif choice.met and confidence is not None:
            status = "assured"
        judged_on, refitted = parameters.get("judged_on", "unseen"), path is None or path.cross.refitted
        now = f" like the last {drift.now:,}" if drift is not None and drift.followed else ""
        rows = f"{judged_on} rows{now}"
        if not refitted and judged_on == "unseen":
            rows = f"rows{now} that the weights have not seen"
        return cls(
            status,
            kind,
            asked,
            math.nan if kind == "alpha" else DEFAULT_REDUCTION if asked is None else asked,
            reached,
            interval,
            judged_on,
            rows,
            confidence,
            "gap in flag rates" if by_flags or path is None else gap_words(tuple(path.fairness)),
            choice.doubt if status == "unknown" else "",
            drift,
            learnt.without_labels(choice.reached) if learnt is not None and learnt.raised else None,
        )

    @property
    def words(self) -> str:
        """One sentence, or two."""
        return " ".join(part for part in (self._sentence, self._changed, self._taught) if part)

    @property
    def _taught(self) -> str:
        """What is left of the gap that there was before labels have raised it."""
        gone = self.reduction_without_labels
        if gone is None or math.isnan(gone):
            return "" if gone is None else f"Learning from labels has raised the {self.gap}."
        return f"Learning from labels has raised the {self.gap}: what is left is {beside_unlearnt(gone)}."

    @property
    def _changed(self) -> str:
        """How the latest rows differ from those before, and what would be said of all together."""
        drift = self.drift
        if drift is None or not drift.followed:
            return ""
        then = f"{drift.named} changed after the first {drift.before:,} rows"
        if self.kind == "alpha" or math.isnan(drift.reached):
            return f"Rows of {then}, which are left aside."
        all_rows = replace(self, reached=drift.reached, interval=drift.interval, rows="rows of then and now together")
        stated = all_rows._stated
        return f"Rows of {then}, which are left aside; solved on all of them: {stated[0].lower()}{stated[1:]}."

    @property
    def _sentence(self) -> str:
        if self.status == "no_gap":
            return f"No {self.gap} can be told from noise: the scores are the base scores."
        if math.isnan(self.reached):
            return f"Alpha was given, though no {self.gap} can be told from noise."
        if self.doubt == "probable":
            return f"{self._possible}; probabilities alone cannot say more."
        if self.doubt == "labels":
            return f"{self._stated} among labelled rows; nothing can be said of rows that nobody looked at."
        if self.doubt == "drift":
            return (
                f"What {self.rows} get is not known: rows of {self.drift.named if self.drift else 'some groups'} have "
                "changed, and there are too few new ones to say. The rule is that of all rows, old and new."
            )
        if self.status == "fixed":
            return f"{self._stated}, at the alpha that was given."
        if self.status == "assured":
            return f"{self._stated}. At least {self._figure(self.aim)} is reached with confidence {self.confidence:g}."
        if self.status == "short" and self.interval == (0.0, 0.0):
            return "Nothing was removed, as no step is worth its own standard error: the scores are the base scores."
        aim = f"{self._figure(self.aim)} {'aimed at' if self.asked is None else 'asked for'}"
        if self.status == "on_target":
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

    @property
    def _possible(self) -> str:
        low, high = map(self._figure, self.interval)
        between = f"between {low} and {high}" if math.isfinite(self.interval[0]) else f"anything up to {high}"
        what = "of the highest flag rate for the lowest" if self.kind == "flag_rate_ratio" else f"less {self.gap}"
        return f"What {self.rows} get is not known: {between} {what} is possible"

    def _figure(self, value: float) -> str:
        return f"{value:.2f}" if self.kind == "flag_rate_ratio" else f"{value:.0%}"
