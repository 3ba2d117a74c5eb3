"""From rows to a fitted model: detect, scale, combine, leave folds out, sum, solve, choose."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenout import gpu
from evenout.core.cells import Cells, CrossFit, unit_target
from evenout.core.notions import Collector, NotionRows
from evenout.core.registry import PARITY
from evenout.core.types import BoolArray, FloatArray
from evenout.detectors.parts import Without
from evenout.detectors.pool import FittedPool, cross_fit_pool, fit_pool
from evenout.fitting.background import Background
from evenout.fitting.request import FlagRows, Request
from evenout.fitting.result import FitResult, list_kept
from evenout.fitting.scores import warn_constant, warn_labels
from evenout.fitting.sources import Source, TrainingRows, View, Views


def fit_rows(
    source: Source, request: Request, parameters: Mapping[str, Any], *, seed: int, n_threads: int
) -> FitResult:
    """Fit; ``parameters`` are those of the estimator, checked."""
    rows, folds = source.rows, source.folds
    n_folds = source.n_folds if len(rows.groups.labels) >= 2 else 0  # else there is nobody to compare
    ready = isinstance(parameters["detectors"], str) and parameters["detectors"] == "precomputed"
    if n_folds and not ready:
        rows.warn_giveaways()
    pool, raw, without = _detect(source, n_folds, parameters, seed, n_threads)
    collectors = _collectors(source, request, parameters, seed, n_threads) if n_folds else {}
    views = source.views(pool, raw)
    whole = _sums(views, -1, raw, np.ones(len(raw), dtype=bool), collectors)
    warn_constant(pool.names, whole.view.model.scaling)
    warn_labels(whole.view, rows.known)
    none = whole.outside.at(slice(0))
    training, held = [none], [none]
    seen = FlagRows(whole.view.S.copy(), whole.view.t.copy(), rows.groups.codes, folds)
    for fold in range(n_folds):
        inside = folds == fold
        found = _sums(views, fold, without(fold), ~inside, collectors)
        training.append(found.outside)
        held.append(found.inside)
        if request.target == "unseen":
            seen.S[inside], seen.t[inside] = found.view.S[inside], found.view.t[inside]
    path = request.path(CrossFit(whole.outside, Cells.stacked(training), Cells.stacked(held), refitted=not ready))
    choice, (model, S, t) = request.choose(path, seen), whole.view
    mixture = path.mixture(choice.alpha)
    choice.announced(list_kept(t, mixture.apply(S, t), request.contamination))
    threshold, rates = views.flags(whole.view, mixture)
    return FitResult(
        scores=model,
        path=path,
        choice=choice,
        mixture=mixture,
        groups=rows.groups,
        counts=source.counts,
        n_rows=source.n_rows,
        S=S,
        target=t,
        seen=seen,
        threshold=threshold,
        flag_rates=rates,
        label_gap=_label_gap(rows, whole.view),
        rank_error=views.rank_error,
        background=Background.of(rows.X, rows.groups.codes, folds, len(rows.groups.labels)),
    )


def _label_gap(rows: TrainingRows, view: View) -> tuple[float, float]:
    """Bias of the base score on the rows, before and after it has learnt from labels."""
    if rows.known is None or len(rows.groups.labels) < 2:
        return float("nan"), float("nan")
    before = replace(view.model, stack=None).base(view.S)
    one, every = np.ones(len(before)), np.ones(len(before), dtype=bool)
    cells = [rows.cells(view.S, t, one, every) for t in (before, view.t)]
    gaps = [float(PARITY.training_bias(part, unit_target(part)[0])[0]) for part in cells]
    return gaps[0], gaps[1]


class _Sums(NamedTuple):
    """A view, and the sums over the rows outside and inside of its fold."""

    view: View
    outside: Cells
    inside: Cells


def _sums(views: Views, fold: int, raw: FloatArray, outside: BoolArray, collectors: Mapping[str, Collector]) -> _Sums:
    view = views.learn(fold, raw)
    base = view.model.base_weights()

    def completed(of: BoolArray, inside: bool) -> Cells:
        sums = {
            f"{name}.{key}": np.asarray(value)[None]
            for name, collect in collectors.items()
            for key, value in collect(view.S, view.t, of).items()
        }
        cells = views.cells(fold, view, of, inside=inside)
        return replace(cells, sums=sums, base=None if base is None else base[None])

    first = completed(outside, False)
    return _Sums(view, first, first.at(slice(0)) if fold < 0 else completed(~outside, True))


def _detect(
    source: Source, n_folds: int, parameters: Mapping[str, Any], seed: int, n_threads: int
) -> tuple[FittedPool, FloatArray, Without]:
    """Detectors, their raw scores of the rows, and those by detectors that have not seen a fold."""
    rows = source.rows
    settings = {
        "seed": seed,
        "n_threads": n_threads,
        "sensitive_features": rows.sensitive_features,
        "device": parameters["device"],
        "units": rows.units,
        "feature_names": rows.feature_names,
        "sides": rows.known is not None,
    }
    if n_folds:
        return cross_fit_pool(parameters["detectors"], rows.X, source.folds, **settings)
    pool, raw = fit_pool(parameters["detectors"], rows.X, **settings)
    return pool, raw, lambda fold: raw  # noqa: ARG005


def _collectors(
    source: Source, request: Request, parameters: Mapping[str, Any], seed: int, n_threads: int
) -> dict[str, Collector]:
    """What sums up rows for each notion."""
    device = parameters["device"]
    groups = source.rows.groups
    rows = NotionRows(
        source.rows.content,
        groups.codes,
        len(groups.labels),
        source.counts / np.maximum(groups.counts, 1),
        parameters,
        seed,
        n_threads,
        None if device == "cpu" else partial(gpu.pair_sums, device=device),
    )
    return {notion.name: notion.collect(rows) for notion in request.fairness}
