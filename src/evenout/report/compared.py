"""A section on comparisons beyond plain groups: strata, numbers such as age, each attribute by itself."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from evenout.auditing import AuditResult, audit
from evenout.auditing.sample import CURVE_POINTS
from evenout.core.types import FloatArray
from evenout.estimator import FairOutlierEnsemble
from evenout.exceptions import InputError
from evenout.groups.read import GroupProbabilities
from evenout.groups.rules import Groups
from evenout.outcome import compared_words, probable_words
from evenout.report.people import Fitted, shortened

Ends: TypeAlias = tuple[tuple[float, ...], ...]
WIDTH, HEIGHT = 460, 220  # of a curve's picture
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 10, 34


@dataclass(frozen=True)
class CurvePair:
    """Mean score and flag rate against a number, before and after: value, low and high end at each place."""

    name: str
    at: tuple[float, ...]
    before: Ends
    after: Ends
    rate_before: Ends
    rate_after: Ends


@dataclass(frozen=True)
class Compared:
    """The comparisons of a fit in words, and their results for each attribute, within strata and along a number.

    A line of ``strata`` has a group, how far its mean lies from that of all people in standard deviations of the score,
    the part that goes with the columns that may justify a difference, the rest, and that rest after.
    """

    words: tuple[str, ...]
    judged_on: str
    attributes: dict[str, tuple[float, float]]
    strata: tuple[tuple[str, float, float, float, float], ...]
    curves: tuple[CurvePair, ...]

    @property
    def drawings(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Pictures of average score and share flagged against each number, by its name."""
        return [
            (
                pair.name,
                [
                    _drawn("Average score", pair, pair.before, pair.after, "{:.2f}"),
                    _drawn("Share flagged", pair, pair.rate_before, pair.rate_after, "{:.0%}"),
                ],
            )
            for pair in self.curves
        ]


def collect_compared(fitted: Fitted) -> Compared | None:
    """Collect whom the fit compares; None where each group is simply compared with each other."""
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
    return Compared(
        tuple(words), model.judged_on, attributes if len(attributes) > 1 else {},
        _strata(before, after) if given is not None else (), curves,
    )  # fmt: skip


def _names(columns: Any) -> list[str]:
    """Names of the columns of a frame, or of a series."""
    name = getattr(columns, "name", None)
    return [str(column) for column in getattr(columns, "columns", [] if name is None else [name])]


def _audits(model: FairOutlierEnsemble, scores: FloatArray, sensitive: Any, given: Any) -> Mapping[str, AuditResult]:
    """The audit of all groups, or of each attribute; none where no two groups are large enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit has said it
        try:
            result = audit(
                scores, sensitive_features=sensitive, contamination=model.contamination, resamples=0,
                given=None if isinstance(sensitive, GroupProbabilities) else given,
                groups=Groups.read(model.groups).but(unknown="ignore"),
            )  # fmt: skip
        except InputError:  # too few rows for any comparison
            return {}
    return {"": result} if isinstance(result, AuditResult) else result


def _curves(before: Mapping[str, AuditResult], after: Mapping[str, AuditResult]) -> tuple[CurvePair, ...]:
    """The curves of all audits, each number once."""
    pairs = {  # a number may be in several audits
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


def _strata(
    before: Mapping[str, AuditResult], after: Mapping[str, AuditResult]
) -> tuple[tuple[str, float, float, float, float], ...]:
    """Distances of the groups' means from that of all, and the parts that go with strata."""
    lines = []
    for name, result in before.items():
        for group in result.group_names:
            (apart, explained), now = (
                [float(each.get(measure, group).value) for measure in ("mean_apart", "apart_by_strata")]
                for each in (result, after[name])
            )
            lines.append((shortened(group), apart, explained, apart - explained, now[0] - now[1]))
    return tuple(lines)


def _drawn(title: str, pair: CurvePair, before: Ends, after: Ends, style: str) -> dict[str, Any]:
    """Draw two curves: paths in a box of `WIDTH` x `HEIGHT`, and ticks as (coordinate, label)."""
    both, at = np.array([before, after]), np.array(pair.at)
    ticks, across = nice_ticks(float(both.min()), float(both.max())), nice_ticks(float(at[0]), float(at[-1]), 6)
    low, high = min(ticks[0], float(both.min())), max(ticks[-1], float(both.max()))
    x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (at - at[0]) / (at[-1] - at[0])
    y, heights = (
        _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - values) / (high - low) for values in (both, np.array(ticks))
    )
    ends = [" to ".join(style.format(end) for end in (curve.min(), curve.max())) for curve in both[:, 0]]
    return {
        "title": title,
        "label": f"{title} against {pair.name}: before from {ends[0]}, now from {ends[1]}.",
        "x_ticks": list(zip(np.interp(across, at, x).tolist(), map("{:g}".format, across), strict=True)),
        "y_ticks": list(zip(heights.tolist(), map(style.format, ticks), strict=True)),
    } | {
        name: {"line": _path(x, value), "band": _path([*x, *x[::-1]], [*top, *bottom[::-1]]) + "Z"}
        for name, (value, bottom, top) in zip(("before", "after"), y, strict=True)
    }


def _path(x: Sequence[float], y: Sequence[float]) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within an interval, or its ends if there are none.

    >>> nice_ticks(21.3, 67.0)
    [30.0, 40.0, 50.0, 60.0]
    """
    size = (high - low) / most
    if not size > 0:
        return [low, low + 1.0]
    unit = 10.0 ** np.floor(np.log10(size))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= size)
    ticks = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return [float(f"{tick:.10g}") for tick in ticks] if len(ticks) >= 2 else [low, high]
