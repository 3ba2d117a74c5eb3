"""The features behind the gap between groups, and the reasons of people, where these are asked for."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from evenout.core.types import IntArray
from evenout.outcome import short_name
from evenout.reasons.explain import explain_rows
from evenout.reasons.explanation import Explanation
from evenout.reasons.words import PROXY
from evenout.report.people import Fitted, ranks_of, shortened

_ROWS = 1000  # of each of two groups, at most
_FEATURES = 10
_PEOPLE = 20  # in each list
_TEXT = 400  # characters of a reason


@dataclass(frozen=True)
class GapFeatures:
    """The two groups that lie furthest apart before fairness, and their gap in ``rows`` of their people, by feature.

    ``features`` are names, whether each tells the group, and its share of the gap before and after fairness;
    ``widest`` is the largest share.
    """

    high: str
    low: str
    rows: int
    features: tuple[tuple[str, bool, float, float], ...]
    widest: float
    base: float
    fair: float


@dataclass(frozen=True)
class Reasoned:
    """A person with ranks before and after fairness, reasons, and what fairness did; ``group`` only where shown."""

    id: str
    group: str | None
    rank_before: int
    rank_now: int
    reasons: tuple[str, ...]
    moved: str


def gap_features(fitted: Fitted) -> GapFeatures | None:
    """Split the gap between the two groups whose mean base scores lie furthest apart over the features.

    Parts beside the typical row of all add up to scores, so their means in two groups add up to the gap of these.
    """
    people = fitted.people
    shown = np.flatnonzero(people.sizes[: people.n_groups] >= max(people.smallest, 2))
    if len(shown) < 2 or fitted.model._result.background is None:
        return None
    means = people.means(fitted.scores[0])[shown]
    ends = shown[[means.argmax(), means.argmin()]]
    members = (np.flatnonzero(people.codes == group) for group in ends)
    rows = [each[np.linspace(0, len(each) - 1, min(_ROWS, len(each))).round().astype(np.intp)] for each in members]
    explanation = _explained(fitted, np.concatenate(rows), 1, baseline="typical")
    parts, first = explanation.parts.parts, len(rows[0])
    gaps = parts[:first].mean(axis=0) - parts[first:].mean(axis=0)
    order = np.argsort(-np.abs(gaps).max(axis=1), kind="stable")
    names, tells = explanation.feature_names, explanation.tells >= PROXY
    features = [(shortened(names[j]), bool(tells[j]), *gaps[j].tolist()) for j in order[:_FEATURES]]
    others = order[_FEATURES:]
    if len(others):
        features.append((f"{len(others)} others", False, *gaps[others].sum(axis=0).tolist()))
    high, low = (shortened(people.names[group]) for group in ends)
    widest = max((abs(share) for *_, base, fair in features for share in (base, fair)), default=0.0) or 1.0
    return GapFeatures(high, low, len(parts), tuple(features), widest, *gaps.sum(axis=0).tolist())


def reasoned_people(fitted: Fitted) -> dict[str, tuple[Reasoned, ...]] | None:
    """List who enters the flagged list, who leaves it and who stays, the most unusual first, each with reasons.

    Where too few people enter or leave, nobody is named; without reasons nobody at all.
    """
    people, scores = fitted.people, fitted.scores
    if not fitted.reasons:
        return None
    before, after = map(people.flagged, scores)
    chosen = {}
    for which, flagged in {"enter": after & ~before, "leave": before & ~after, "stay": before & after}.items():
        rows = np.flatnonzero(flagged)
        order = np.argsort(-scores[0 if which == "leave" else 1][rows], kind="stable")[:_PEOPLE]
        chosen[which] = rows[order] if len(rows) >= people.smallest else rows[:0]
    every = np.concatenate([*chosen.values()])
    if not len(every):
        return None
    explanation = _explained(fitted, every, fitted.reasons, rows="people")
    told = []
    both = zip(*(ranks_of(score, every).tolist() for score in scores), strict=True)
    for place, (rank_before, rank_now) in enumerate(both):
        texts = explanation.texts(place)[: explanation.n_given(place)]
        reasons, moved = tuple(short_name(text, _TEXT) for text in texts), explanation.move_words(place)
        told.append(Reasoned(*people.name(every[place]), rank_before, rank_now, reasons, moved))
    remaining = iter(told)
    return {which: tuple(islice(remaining, len(rows))) for which, rows in chosen.items()}


def _explained(fitted: Fitted, places: IntArray, n_reasons: int, **settings: Any) -> Explanation:
    """Explain some rows."""
    X, used = fitted.X, None if fitted.used is None else fitted.used[places]
    some = X.iloc[places] if hasattr(X, "iloc") else np.asarray(X)[places]
    return explain_rows(fitted.model, some, n_reasons, table=fitted.table, sensitive_features=used, **settings)
