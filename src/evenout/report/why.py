"""The features behind the gap between groups, and the reasons of people, where these are asked for."""

from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.types import FloatArray, IntArray
from evenout.estimator import FairOutlierEnsemble
from evenout.reasons.explain import explain_rows
from evenout.reasons.explanation import Explanation
from evenout.report.data import GapFeature, GapFeatures, Reasoned
from evenout.report.groups import People, shortened
from evenout.report.people import Namer, ranks_of

if TYPE_CHECKING:
    from evenout.tables.encoder import TableEncoder

_ROWS = 1000  # of each of two groups, at most
_FEATURES = 10
_PEOPLE = 20  # in each list
_TEXT = 400  # characters of a reason


def gap_features(
    model: FairOutlierEnsemble, X: Any, base: FloatArray, people: People, table: "TableEncoder | None", used: Any = None
) -> GapFeatures | None:
    """The two groups whose mean base scores (n,) lie furthest apart, and what each feature has to do with it.

    ``used`` are the groups of the rows, where detectors use them.

    Parts beside the typical row of all add up to scores, so their means in two groups add up to the gap of these.
    """
    sizes = people.sizes[: people.n_groups]
    shown = np.flatnonzero(sizes >= max(people.smallest, 2))
    if len(shown) < 2 or model._result.background is None:
        return None
    means = np.bincount(people.codes, weights=base, minlength=len(people.sizes))[shown] / sizes[shown]
    high, low = int(shown[means.argmax()]), int(shown[means.argmin()])
    rows = [_evenly(np.flatnonzero(people.codes == group)) for group in (high, low)]
    every = np.concatenate(rows)
    beside = {"table": table, "sensitive_features": _taken(used, every)}
    found = explain_rows(model, _taken(X, every), 1, baseline="typical", **beside)
    parts, first = found.parts.parts, len(rows[0])
    gaps = parts[:first].mean(axis=0) - parts[first:].mean(axis=0)
    order = np.argsort(-np.abs(gaps).max(axis=1), kind="stable")
    features = [
        GapFeature(shortened(found.feature_names[j]), float(gaps[j, 0]), float(gaps[j, 1]), _known(found.tells[j]))
        for j in order[:_FEATURES]
    ]
    others = gaps[order[_FEATURES:]].sum(axis=0)
    if len(order) > _FEATURES:
        features.append(GapFeature(f"{len(order) - _FEATURES} others", float(others[0]), float(others[1]), None))
    before, after = gaps.sum(axis=0).tolist()
    names = shortened(people.names[high]), shortened(people.names[low])
    return GapFeatures(names[0], names[1], len(parts), before, after, tuple(features))


def _known(share: float) -> float | None:
    return None if np.isnan(share) else float(share)


def reasoned_people(
    model: FairOutlierEnsemble,
    X: Any,
    scores: tuple[FloatArray, FloatArray],
    people: People,
    name: Namer,
    *,
    n_reasons: int,
    smallest: int,
    table: "TableEncoder | None",
    used: Any = None,
) -> tuple[tuple[str, tuple[Reasoned, ...]], ...]:
    """Who enters the list, who leaves it and who stays, the most unusual first, each with reasons.

    ``scores`` (n,) are those before and after fairness. Where fewer than ``smallest`` people enter or leave, nobody is
    named; without reasons nobody at all.
    """
    if not n_reasons:
        return ()
    before, after = (score > people.threshold(score) for score in scores)
    lists = {"enter": after & ~before, "leave": before & ~after, "stay": before & after}
    chosen = {}
    for which, rows in lists.items():
        places = np.flatnonzero(rows)
        order = np.argsort(-scores[0 if which == "leave" else 1][places], kind="stable")[:_PEOPLE]
        chosen[which] = places[order] if len(places) >= smallest else places[:0]
    every = np.concatenate([*chosen.values()])
    if not len(every):
        return ()
    beside = {"table": table, "sensitive_features": _taken(used, every)}
    found = explain_rows(model, _taken(X, every), n_reasons, rows="people", **beside)
    ranks = np.column_stack([ranks_of(score, every) for score in scores])
    told, first = [], 0
    for which, places in chosen.items():
        last = first + len(places)
        each = (_reasoned(found, row, name(int(every[row])), ranks[row]) for row in range(first, last))
        told.append((which, tuple(each)))
        first = last
    return tuple(told)


def _reasoned(found: Explanation, row: int, named: tuple[str, str | None], ranks: IntArray) -> Reasoned:
    (identity, group), (before, now) = named, ranks.tolist()
    texts = [text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…" for text in found.texts(row)]
    return Reasoned(identity, before, now, tuple(texts[: found.n_given(row)]), found.move_words(row), group)


def _evenly(places: IntArray) -> IntArray:
    return places[np.linspace(0, len(places) - 1, min(_ROWS, len(places))).round().astype(np.intp)]


def _taken(X: Any, places: IntArray) -> Any:
    if X is None:
        return None
    return X.iloc[places] if hasattr(X, "iloc") else np.asarray(X)[places]
