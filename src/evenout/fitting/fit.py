"""From rows to a fitted model: detect, scale, combine, leave folds out, sum, solve, choose."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenout import gpu
from evenout.core.cells import Cells, CrossFit, unit_target, variances
from evenout.core.flags import FlagRows, top_threshold
from evenout.core.notions import Collector, NotionRows
from evenout.core.parallel import put_rows, side_by_side
from evenout.core.path import SIGNIFICANCE
from evenout.core.registry import PARITY
from evenout.core.sketch import QuantileSketch
from evenout.core.stages import stage
from evenout.core.types import BoolArray, FloatArray
from evenout.detectors.family import Without
from evenout.detectors.pool import FittedPool, cross_fit_pool, fit_pool
from evenout.fitting.choose import Request
from evenout.fitting.learnt import Learnt
from evenout.fitting.resemblance import CrossFitted, cross_fit_resemblance, warn_proxy
from evenout.fitting.result import Background, FitResult, attribute_bias, list_kept, warn_rising
from evenout.fitting.rows import Source, View, Views
from evenout.fitting.score_model import ScoreModel, warn_constant, warn_labels, warn_many
from evenout.fitting.update import Maps, keep_columns


def fit_rows(
    source: Source, request: Request, parameters: Mapping[str, Any], *, seed: int, n_threads: int
) -> FitResult:
    """Fit; ``parameters`` are those of the estimator, checked."""
    rows, folds = source.rows, source.folds
    n_folds = source.n_folds if rows.members.n_groups >= 2 else 0  # else there is nobody to compare
    ready = isinstance(parameters["detectors"], str) and parameters["detectors"] == "precomputed"
    if n_folds and not ready:
        rows.warn_giveaways()
    stage("Fitting detectors")
    pool, raw, without = _detect(source, n_folds, parameters, seed, n_threads)
    stage("Summing up the rows" if request.correction == "weights" else "Learning resemblance to groups")
    cross = _resemblance(source, request, seed, n_threads) if n_folds else None
    if cross is not None:
        raw, without = side_by_side([raw, cross.own], n_threads), _beside(without, cross.without, n_threads)
    collectors = _collectors(source, request, parameters, seed, n_threads) if n_folds else {}
    views = source.views(pool, raw, without, None if cross is None else cross.model)
    whole = _sums(views, -1, np.ones(len(raw), dtype=bool), collectors)
    warn_constant(pool.names, whole.view.model.scaling)
    warn_labels(whole.view.coverage)
    none = whole.outside.at(slice(0))
    training, held, models, ranks = [none], [none], [whole.view.model], [whole.ranks]
    nested = None if cross is None else cross.without
    copied = side_by_side([whole.view.S], n_threads)
    seen = FlagRows(copied, whole.view.t.copy(), source.sample, folds, nested, source.n_rows)
    fresh = seen.S if request.judged_on == "unseen" else side_by_side([whole.view.S], n_threads)
    for fold in range(n_folds):
        stage(f"Scoring held-out rows, part {fold + 1} of {n_folds}")
        inside = folds == fold
        found = _sums(views, fold, ~inside, collectors)
        training.append(found.outside)
        held.append(found.inside)
        models.append(found.view.model)
        ranks.append(found.ranks)
        put_rows(fresh, inside, found.view.S, n_threads)
        if request.judged_on == "unseen":
            seen.t[inside] = found.view.t[inside]
    sums = CrossFit(whole.outside, Cells.stacked(training), Cells.stacked(held), refitted=not ready)
    if request.judged_on == "unseen":
        warn_many(sums)
    path = request.path(sums, 0 if cross is None else cross.own.shape[1])
    stage("Choosing the trade-off")
    path, choice, ratio, price = request.settle(path, seen, views.counter(seen))
    model, S, t, _ = whole.view
    mixture = path.mixture(choice.alpha)
    choice.announced(list_kept(t, mixture.apply(S, t), request.contamination), asked=request.asked, ratio=ratio)
    warn_rising(attribute_bias(path, choice.alpha, request.judged_on))
    learnt = _learnt(views, whole, request) if n_folds and parameters["learn"] else Learnt()
    learnt.announced(choice.reached)
    threshold, rates = views.flags(whole.view, mixture)
    share = seen.share(request.contamination)
    return FitResult(
        scores=model,
        path=path,
        choice=choice,
        mixture=mixture,
        groups=rows.groups,
        names=rows.names,
        counts=source.counts,
        n_rows=source.n_rows,
        S=S,
        target=t,
        seen=seen,
        flag_ratio=ratio,
        flag_price=price,
        known={} if cross is None else dict(zip(rows.names, cross.known.tolist(), strict=True)),
        threshold=threshold,
        base_threshold=float(top_threshold(t[:, None], share, seen.sample.weight)[0]),
        flag_rates=rates,
        learnt=learnt,
        rank_error=views.rank_error,
        maps=_maps(models, ranks, (S, fresh), source.n_rows, seed, n_threads),
        background=Background.of(rows.X, rows.groups.codes, folds, len(rows.groups.labels), n_threads=n_threads),
    )


def _resemblance(source: Source, request: Request, seed: int, n_threads: int) -> CrossFitted | None:
    """How much the rows in memory resemble each group; None where the score is not corrected by that."""
    if request.correction == "weights":
        return None
    rows, sample = source.rows, source.sample
    settings: dict[str, Any] = {"seed": seed, "n_jobs": n_threads, "stands_for": sample.weight}
    found = cross_fit_resemblance(request.classifier, rows.X, sample.members, source.folds, **settings)
    warn_proxy(found.known)
    return found


def _beside(without: Without, r: FloatArray, n_threads: int) -> Without:
    """Raw scores without each fold, and resemblance behind them."""
    return lambda fold: side_by_side([without(fold), r[fold]], n_threads)


def _maps(
    models: list[ScoreModel],
    ranks: list[QuantileSketch | None],
    scores: tuple[FloatArray, FloatArray],
    n_rows: int,
    seed: int,
    n_threads: int,
) -> Maps:
    known = tuple(sketch for sketch in ranks if sketch is not None)
    light = tuple(replace(model.without_detectors(), resemblance=None) for model in models)
    whole, fresh = (keep_columns(S[:, : light[0].n_detectors], n_threads=n_threads) for S in scores)
    return Maps(light, known if len(known) == len(models) else None, whole, fresh, n_rows, seed)


class _Sums(NamedTuple):
    """A view, and the sums over the rows outside and inside of its fold."""

    view: View
    outside: Cells
    inside: Cells
    ranks: QuantileSketch | None


def _learnt(views: Views, whole: _Sums, request: Request) -> Learnt:
    """What learning from labels has made of the gap between the groups' mean base scores.

    Or of the gap of a notion that is asked for, where none compares all rows.
    """
    cells = views.before_labels(whole.view), whole.outside
    compared = {block.among for block in whole.outside.comparison.blocks}
    pursued = [notion for notion in request.fairness if compared & {*getattr(notion, "among", ())}]
    notion = PARITY if "all" in compared else pursued[0]
    before, after = (float(notion.training_bias(part, unit_target(part)[0])[0]) for part in cells)
    stack, spread = whole.view.model.stack, [float(np.sqrt(variances(part, unit_target(part))[0, 0])) for part in cells]
    if stack is None or not stack.label_weight or not min(spread) > 0:
        return Learnt(before, after)
    moved = np.eye(cells[0].plain.shape[-1])  # from (1, s, t) to what t has become, less what it was
    moved[-1, 1 : 1 + len(stack.weights)] = stack.weights / spread[1]
    moved[-1, -1] = stack.base_weight / spread[1] - 1.0 / spread[0]
    together = None if cells[0].spread is None else moved @ cells[0].spread @ moved.T
    change = replace(cells[0], plain=moved @ cells[0].plain @ moved.T, spread=together)
    by_chance = notion.gap_p_value(change) > SIGNIFICANCE
    return Learnt(before, after, raised=after > before and not by_chance)


def _sums(views: Views, fold: int, outside: BoolArray, collectors: Mapping[str, Collector]) -> _Sums:
    view = views.learn(fold)
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
    ranks = views.rank_map(fold, view, outside)
    return _Sums(view, first, first.at(slice(0)) if fold < 0 else completed(~outside, True), ranks)


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
        "sides": parameters["learn"],
        "content": rows.content,
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
        source.group_counts / np.maximum(groups.counts, 1),
        seed,
        n_threads,
        None if device == "cpu" else partial(gpu.pair_sums, device=device),
    )
    return {notion.name: notion.collect(rows) for notion in request.fairness}
