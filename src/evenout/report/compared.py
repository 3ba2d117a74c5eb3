"""Whom a fit compares, where that is more than groups: strata, numbers such as age, each attribute by itself."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenout.auditing import AuditResult, audit
from evenout.auditing.sample import CURVE_POINTS
from evenout.core.types import FloatArray
from evenout.estimator import FairOutlierEnsemble
from evenout.exceptions import InputError
from evenout.groups.read import GroupProbabilities
from evenout.groups.rules import Groups
from evenout.outcome import compared_words, probable_words
from evenout.report.charts import CurvePair, DrawnPair, draw_curves
from evenout.report.data import Fitted
from evenout.report.groups import shortened


@dataclass(frozen=True)
class StratumLine:
    """How far a group's mean is from that of all people, in standard deviations of the score.

    ``explained`` is the part that goes with the columns that may justify a difference, ``within`` the rest; ``now`` is
    that rest after.
    """

    group: str
    apart: float
    explained: float
    within: float
    now: float


@dataclass(frozen=True)
class Compared:
    """Whom the fit compares, in words, and what comes of it for each attribute, within strata, along a number."""

    words: tuple[str, ...]
    judged_on: str
    attributes: dict[str, tuple[float, float]]
    strata: tuple[StratumLine, ...]
    curves: tuple[CurvePair, ...]

    @property
    def drawings(self) -> list[DrawnPair]:
        """The curves as pictures."""
        return [draw_curves(pair) for pair in self.curves]


def collect_compared(fitted: Fitted) -> Compared | None:
    """What the page says of it; None where each group is simply compared with each other."""
    model, sensitive, given = fitted.model, fitted.sensitive, fitted.given
    before, after = (_audits(model, scores, sensitive, given) for scores in fitted.scores)
    probable = isinstance(sensitive, GroupProbabilities)
    numbers = tuple(curve.name for result in before.values() for curve in result.curves)  # named as such, or found
    rules = Groups.read(model.groups).but(continuous=numbers)
    words = compared_words(tuple(model.path_.fairness), rules, [] if probable else _names(sensitive), _names(given))
    if probable:
        note = probable_words(sensitive.bound())
        words.append(f"{note[0].upper()}{note[1:]}. What is shown by group goes by the likeliest group of each person.")
    attributes = {shortened(name): (bias.before, bias.after) for name, bias in model.attribute_bias_.items()}
    enough = len(fitted.scores[0]) >= CURVE_POINTS * max(fitted.people.smallest, 1)
    curves = _curves(before, after) if enough else ()
    if not words and len(attributes) < 2 and not curves:
        return None
    strata = _strata(before, after) if given is not None else ()
    return Compared(tuple(words), model.judged_on, attributes if len(attributes) > 1 else {}, strata, curves)


def _names(columns: Any) -> list[str]:
    if columns is None:
        return []
    name = getattr(columns, "name", None)
    return [str(column) for column in getattr(columns, "columns", [name] if name is not None else [])]


def _audits(model: FairOutlierEnsemble, scores: FloatArray, sensitive: Any, given: Any) -> Mapping[str, AuditResult]:
    """The audit of all groups, or of each attribute; none where no two groups are large enough."""
    settings: dict[str, Any] = {"given": None if isinstance(sensitive, GroupProbabilities) else given}
    settings |= {"contamination": model.contamination, "resamples": 0}
    settings |= {"groups": Groups.read(model.groups).but(unknown="ignore")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit has said it
        try:
            found = audit(scores, sensitive_features=sensitive, **settings)
        except InputError:  # too few rows for any comparison
            return {}
    return {"": found} if isinstance(found, AuditResult) else found


def _curves(before: Mapping[str, AuditResult], after: Mapping[str, AuditResult]) -> tuple[CurvePair, ...]:
    pairs = {
        old.name: CurvePair(
            shortened(old.name),
            tuple(old.at.tolist()),
            *(tuple(map(tuple, curve.mean_score.tolist())) for curve in (old, new)),
            *(tuple(map(tuple, curve.flag_rate.tolist())) for curve in (old, new)),
        )
        for name, result in before.items()
        for old, new in zip(result.curves, after[name].curves, strict=True)
    }
    return tuple(pairs.values())


def _strata(before: Mapping[str, AuditResult], after: Mapping[str, AuditResult]) -> tuple[StratumLine, ...]:
    """How far each group's mean is from that of all, and how much of it goes with strata."""
    lines = []
    for name, result in before.items():
        for group in result.group_names:
            apart, explained = (
                [float(found.get(measure, group).value) for found in (result, after[name])]
                for measure in ("mean_apart", "apart_by_strata")
            )
            within = np.subtract(apart, explained).tolist()
            lines.append(StratumLine(shortened(group), apart[0], explained[0], within[0], within[1]))
    return tuple(lines)
