"""The features behind the gap between groups, and the reasons of people, where these are asked for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evenout.core.types import IntArray
from evenout.outcome import short_name
from evenout.reasons.explain import explain_rows
from evenout.reasons.explanation import Explanation
from evenout.reasons.words import PROXY
from evenout.report.data import Fitted
from evenout.report.groups import shortened
from evenout.report.people import ranks_of

_ROWS = 1000  # of each of two groups, at most
_FEATURES = 10
_PEOPLE = 20  # in each list
_TEXT = 400  # characters of a reason


@dataclass(frozen=True)
class GapFeature:
    """A feature's share of the gap between two groups, before and after fairness, and whether it tells the group."""

    name: str
    base: float
    fair: float
    tells: bool


@dataclass(frozen=True)
class GapFeatures:
    """The two groups that lie furthest apart before fairness, their gap in ``rows`` of their people, by feature."""

    high: str
    low: str
    rows: int
    base: float
    fair: float
    features: tuple[GapFeature, ...]

    @property
    def widest(self) -> float:
        """The largest share, for the bars."""
        return max((abs(share) for each in self.features for share in (each.base, each.fair)), default=0.0) or 1.0


@dataclass(frozen=True)
class Reasoned:
    """A person with ranks before and after fairness, reasons, and what fairness did; ``group`` only where shown."""

    id: str
    rank_before: int
    rank_now: int
    reasons: tuple[str, ...]
    moved: str
    group: str | None


def gap_features(fitted: Fitted) -> GapFeatures | None:
    """The two groups whose mean base scores lie furthest apart, and what each feature has to do with it.

    Parts beside the typical row of all add up to scores, so their means in two groups add up to the gap of these.
    """
    people, base = fitted.people, fitted.scores[0]
    sizes = people.sizes[: people.n_groups]
    shown = np.flatnonzero(sizes >= max(people.smallest, 2))
    if len(shown) < 2 or fitted.model._result.background is None:
        return None
    means = np.bincount(people.codes, weights=base, minlength=len(people.sizes))[shown] / sizes[shown]
    high, low = int(shown[means.argmax()]), int(shown[means.argmin()])
    rows = [_evenly(np.flatnonzero(people.codes == group)) for group in (high, low)]
    every = np.concatenate(rows)
    told = _explained(fitted, every, 1, baseline="typical")
    parts, first = told.parts.parts, len(rows[0])
    gaps = parts[:first].mean(axis=0) - parts[first:].mean(axis=0)
    order = np.argsort(-np.abs(gaps).max(axis=1), kind="stable")
    features = [
        GapFeature(shortened(told.feature_names[j]), float(gaps[j, 0]), float(gaps[j, 1]), bool(told.tells[j] >= PROXY))
        for j in order[:_FEATURES]
    ]
    others = gaps[order[_FEATURES:]].sum(axis=0)
    if len(order) > _FEATURES:
        features.append(GapFeature(f"{len(order) - _FEATURES} others", float(others[0]), float(others[1]), False))
    before, after = gaps.sum(axis=0).tolist()
    names = shortened(people.names[high]), shortened(people.names[low])
    return GapFeatures(names[0], names[1], len(parts), before, after, tuple(features))


def reasoned_people(fitted: Fitted) -> dict[str, tuple[Reasoned, ...]] | None:
    """Who enters the list, who leaves it and who stays, the most unusual first, each with reasons.

    Where too few people enter or leave, nobody is named; without reasons nobody at all.
    """
    people, scores = fitted.people, fitted.scores
    if not fitted.reasons:
        return None
    before, after = map(people.flagged, scores)
    lists = {"enter": after & ~before, "leave": before & ~after, "stay": before & after}
    chosen = {}
    for which, flagged in lists.items():
        rows = np.flatnonzero(flagged)
        order = np.argsort(-scores[0 if which == "leave" else 1][rows], kind="stable")[:_PEOPLE]
        chosen[which] = rows[order] if len(rows) >= people.smallest else rows[:0]
    every = np.concatenate([*chosen.values()])
    if not len(every):
        return None
    told = _explained(fitted, every, fitted.reasons, rows="people")
    ranks = np.column_stack([ranks_of(score, every) for score in scores])
    each = []
    for place, row in enumerate(every.tolist()):
        texts = [short_name(text, _TEXT) for text in told.texts(place)][: told.n_given(place)]
        identity, group = fitted.name(row)
        was, now = ranks[place].tolist()
        each.append(Reasoned(identity, was, now, tuple(texts), told.move_words(place), group))
    ends = np.cumsum([len(rows) for rows in chosen.values()]).tolist()
    return {which: tuple(each[end - len(rows) : end]) for (which, rows), end in zip(chosen.items(), ends, strict=True)}


def _evenly(rows: IntArray) -> IntArray:
    return rows[np.linspace(0, len(rows) - 1, min(_ROWS, len(rows))).round().astype(np.intp)]


def _explained(fitted: Fitted, places: IntArray, n_reasons: int, **settings: Any) -> Explanation:
    """The reasons of some rows."""
    X, used = fitted.X, fitted.used
    some = X.iloc[places] if hasattr(X, "iloc") else np.asarray(X)[places]
    beside: dict[str, Any] = {"table": fitted.table, "sensitive_features": None if used is None else used[places]}
    return explain_rows(fitted.model, some, n_reasons, **beside, **settings)
