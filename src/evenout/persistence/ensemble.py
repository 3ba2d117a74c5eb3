"""A fitted ensemble as plain data, and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from evenout.core.cells import Cells
from evenout.core.flags import FlagRows
from evenout.core.membership import Comparison
from evenout.core.path import Choice, TradeoffPath
from evenout.core.registry import NOTIONS
from evenout.core.types import IntArray
from evenout.detectors.pool import FAMILIES, FittedPool
from evenout.estimator import FairOutlierEnsemble
from evenout.fitting.learnt import Learnt
from evenout.fitting.result import Background, FitResult
from evenout.fitting.score_model import ScoreModel
from evenout.fitting.update import Maps
from evenout.groups.read import Groups
from evenout.persistence.parts import (
    KINDS_OF_CHOICE,
    ratio_entries,
    read_choice,
    read_drift,
    read_maps,
    read_mixture,
    read_path,
    read_ratio,
    read_recent,
    read_sample,
    read_scores,
    sample_entries,
)
from evenout.persistence.resemblance import describe_resemblance
from evenout.persistence.rows import drop_copies
from evenout.storage.archive import plain
from evenout.storage.fields import Fields

_MACHINE = ("n_jobs", "device")  # parameters that belong to the machine, not to the model
_MOST = 2**31 - 1  # rows and features are numbered in 32 bits


def describe_ensemble(model: FairOutlierEnsemble, objects: list[Any]) -> dict[str, Any]:
    """A fitted ensemble as plain data; what plain data cannot hold is put into ``objects``."""
    check_is_fitted(model)
    found = model._result
    scores, seen, names = found.scores, found.seen, getattr(model, "feature_names_in_", None)
    known = found.background
    return plain(
        {
            "parameters": parameter_entries(model, objects),
            "n_features": model.n_features_in_,
            "feature_names": None if names is None else [*names],
            "groups": {
                "codes": found.groups.codes.astype(np.int64),
                "labels": found.groups.labels,
                "left_out": found.groups.left_out,
                "names": found.names,
                "counts": found.counts.astype(np.int64),
                "rates": found.flag_rates,
            },
            "rows": {
                "n": found.n_rows,
                "S": found.S,
                "target": found.target,
                "seen_S": seen.S,
                "seen_t": seen.t,
                "folds": seen.folds.astype(np.int64),
                "nested": seen.nested,
                "members": sample_entries(seen.sample),
            },
            "known": found.known,
            "flag_price": found.flag_price,
            "flag_ratio": ratio_entries(found.flag_ratio),
            "choice": choice_entries(found.choice),
            "mixture": found.mixture,  # kept, so that scores are the same bit for bit wherever the path is solved again
            "threshold": found.threshold,
            "rank_error": found.rank_error,
            "learnt": found.learnt,
            "scores": {
                "pool": _pool(scores.pool, objects),
                **_score_map(scores, objects),
                "resemblance": describe_resemblance(scores.resemblance, objects),
            },
            "path": path_entries(found.path, objects),
            "maps": None if found.maps is None else _maps(found.maps, objects),
            "background": None if known is None else {**vars(known), "rows": len(known.crowd)},
            "recent": None if found.recent is None else {**vars(found.recent), "cells": _cells(found.recent.cells)},
            "drift": None if found.drift is None else {**vars(found.drift), "interval": [*found.drift.interval]},
        }
    )


def read_ensemble(data: Fields, objects: Sequence[Any]) -> FairOutlierEnsemble:
    """The ensemble; a `ModelFileError` if any of its parts does not fit the others."""
    rows, groups, d = data.fields("rows"), data.fields("groups"), data.whole("n_features", 1, _MOST)
    n = len(rows.floats("target", None))
    rows.require(2 <= n <= _MOST, "target", "is out of range")
    labels = groups.texts("labels") if groups.items("labels") else ()
    names = groups.texts("names") if groups.items("names") else ()
    G, left_out, gap = len(names), groups.fields("left_out"), data.fields("learnt")
    codes = groups.integers("codes", n, low=-1, high=len(labels) - 1)
    scores = read_scores(data.fields("scores"), n, d, objects)
    k = scores.width
    known, price = data.fields("known"), data.fields("flag_price")
    data.require(len(known.names()) == k - scores.n_detectors, "known", "has the wrong length")
    folds = rows.integers("folds", n, low=0, high=_MOST)
    model = unfitted(FairOutlierEnsemble, data.fields("parameters"), objects)
    path = read_path(data.fields("path"), G, k, objects)
    compared = path.cross.whole.comparison
    data.require(compared.n_groups == G, "groups", "do not go with the rest")
    model._store(
        FitResult(
            scores=scores,
            path=path,
            choice=read_choice(data.fields("choice")),
            mixture=read_mixture(data.fields("mixture"), k),
            groups=Groups(codes, labels, {name: left_out.whole(name, 0, 2**53) for name in left_out.names()}),
            names=names,
            counts=groups.integers("counts", G, low=0, high=2**53),
            n_rows=rows.whole("n", n, 2**53),
            S=rows.floats("S", n, k),
            target=rows.floats("target", n),
            seen=_read_seen(rows, n, k, k - scores.n_detectors, compared, folds),
            flag_ratio=read_ratio(data.fields("flag_ratio")),
            flag_price={name: price.number(name, finite=False) for name in price.names()},
            known={name: known.number(name) for name in known.names()},
            threshold=data.number("threshold"),
            flag_rates=groups.floats("rates", G, 2),
            learnt=Learnt(gap.number("before", finite=False), gap.number("after", finite=False), gap.flag("raised")),
            rank_error=data.number("rank_error"),
            maps=read_maps(data.fields("maps"), scores.n_detectors, objects) if "maps" in data else None,
            background=Background.read(data.fields("background"), d) if "background" in data else None,
            recent=read_recent(data.fields("recent"), path.cross, n) if "recent" in data else None,
            drift=read_drift(data.fields("drift")) if "drift" in data else None,
        )
    )
    model.n_features_in_ = d
    if "feature_names" in data:
        model.feature_names_in_ = np.array(data.texts("feature_names", d), dtype=object)
    return model


def _read_seen(rows: Fields, n: int, k: int, resembling: int, compared: Comparison, folds: IntArray) -> FlagRows:
    """The rows as what has not seen them scores them."""
    n_folds = int(folds.max()) + 1
    nested = rows.floats("nested", None, n, resembling) if "nested" in rows else None
    rows.require((nested is None) == (resembling == 0), "nested", "does not go with the rest")
    rows.require(nested is None or len(nested) >= n_folds, "nested", "has too few folds")
    sample = read_sample(rows.fields("members"), n, compared)
    S, t = rows.floats("seen_S", n, k), rows.floats("seen_t", n)
    return FlagRows(S, t, sample, folds, nested, rows.whole("n", n, 2**53))


def _score_map(scores: ScoreModel, objects: list[Any]) -> dict[str, Any]:
    """A score model without its detectors."""
    return {
        "scaling": scores.scaling,
        "combination": _with_object(scores.combination.kind, "kind", objects)
        | {"buckets": scores.combination.buckets, "shares": scores.combination.shares},
        "base_scaling": scores.base_scaling,
        "stack": scores.stack,
    }


def _maps(maps: Maps, objects: list[Any]) -> dict[str, Any]:
    ranks = None
    if maps.ranks is not None:
        ranks = [{"levels": list(sketch.levels), "count": sketch.count} for sketch in maps.ranks]
    models = [_score_map(model, objects) | {"rows": len(model.scaling.sorted_scores)} for model in maps.models]
    kept = {
        "columns": maps.columns,
        "fresh_columns": maps.fresh_columns,
        "knots": len(maps.columns),
        "rows": maps.rows,
        "seed": maps.seed,
    }
    return {"models": models, "ranks": ranks, **kept}


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _with_object(value: Any, name: str, objects: list[Any]) -> dict[str, Any]:
    """Text as it is; anything else by its place among the objects."""
    if isinstance(value, str):
        return {name: value}
    objects.append(value)
    return {"object": len(objects) - 1}


def _pool(pool: FittedPool, objects: list[Any]) -> dict[str, Any]:
    parts = []
    for part in pool.parts:
        kind = next((kind for kind, family in FAMILIES.items() if type(part) is family), None)
        if kind is not None:
            parts.append({"kind": kind, **plain(part)})
        else:
            parts.append(_with_object(part, "kind", objects) | {"width": len(getattr(part, "names", " "))})
    drop_copies(pool.parts, parts)
    return {"names": pool.names, "parts": parts, "families": pool.families, "units": pool.units}


def choice_entries(choice: Choice) -> dict[str, Any]:
    """What was chosen, as plain data."""
    kind = next(name for name, kind in KINDS_OF_CHOICE.items() if choice.kind is kind)
    low, high = choice.interval
    return {**_without(vars(choice), "kind", "interval"), "kind": kind, "low": low, "high": high}


def path_entries(path: TradeoffPath, objects: list[Any]) -> dict[str, Any]:
    """A path by its sums, as plain data."""
    notions = []
    for notion, weight in path.notions:
        known = notion in NOTIONS.values() or notion.name == "own"
        stored = {} if known else _with_object(notion, "name", objects)
        notions.append({"name": notion.name, "weight": weight, **stored})
    cross = path.cross
    parts = {"whole": cross.whole, "training": cross.training, "held": cross.held}
    return {
        "cross": {name: _cells(cells) for name, cells in parts.items()} | {"refitted": cross.refitted},
        "notions": notions,
        "method": path.method,
        "noise_aware": path.noise_aware,
        "constraint": path.constraint,
        "columns": path.columns,
        "rule": path.rule,
    }


def _cells(cells: Cells) -> dict[str, Any]:
    compared = None
    if cells.compared is not None:
        blocks = [{**vars(block), "groups": np.array(block.groups)} for block in cells.compared.blocks]
        overlaps = np.array(cells.compared.overlaps, dtype=np.int64).reshape(-1, 2)
        compared = {"blocks": blocks, "overlaps": overlaps}
    return {**_without(vars(cells), "compared"), "compared": compared}


def parameter_entries(model: Any, objects: list[Any]) -> dict[str, Any]:
    """The parameters of an estimator, as plain data."""
    values = _without(model.get_params(deep=False), *_MACHINE)
    if not isinstance(values.get("random_state", 0), int | np.integer):
        values["random_state"] = None  # a generator that has moved on since
    for name, value in values.items():
        try:
            plain(value)
        except TypeError:
            values[name] = _with_object(value, name, objects)
    return values


def unfitted(kind: Any, data: Fields, objects: Sequence[Any]) -> Any:
    """An estimator with the parameters of a file."""
    known = set(kind._get_param_names()) - set(_MACHINE)
    values: dict[str, Any] = {}
    for name in data.names():
        data.require(name in known, name, "is unknown: update evenout")
        value = data.raw(name)
        if isinstance(value, dict) and list(value) == ["object"]:
            value = objects[data.fields(name).whole("object", 0, len(objects) - 1)]
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
