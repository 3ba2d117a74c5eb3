"""From rows to a fitted model: detect, scale, combine, leave folds out, sum, solve, choose.

Where there are more rows than memory holds, a `Pass` finds extremes, sums and flags of all of them; it is None where
all rows are in memory. Every other step is the same for both.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenout import gpu
from evenout.core.cells import Cells, CrossFit, rank_weights, unit_target, variances
from evenout.core.flags import FlagRows, Views
from evenout.core.notions import Collector, NotionRows
from evenout.core.parallel import put_rows, side_by_side
from evenout.core.path import SIGNIFICANCE
from evenout.core.problem import Columns
from evenout.core.registry import PARITY
from evenout.core.sketch import QuantileSketch
from evenout.core.stacking import coverage_warning, label_coverage
from evenout.core.stages import stage
from evenout.core.types import BoolArray, FloatArray
from evenout.detectors.family import Without
from evenout.detectors.pool import FittedPool, cross_fit_pool, fit_pool
from evenout.exceptions import LabelCoverageWarning, warn
from evenout.fitting.choose import moving_columns, open_tradeoffs, settle
from evenout.fitting.passes import Pass, UpdateMaps, keep_columns
from evenout.fitting.resemblance import FittedResemblance, cross_fit_resemblance, warn_proxy
from evenout.fitting.result import Background, FitResult, Learnt, settled_fields
from evenout.fitting.rows import Partitions, TrainingRows
from evenout.fitting.score_model import ScoreModel, learn_scores, warn_constant, warn_many
from evenout.fitting.settings import Settings
from evenout.groups.giveaways import find_giveaways, read_attributes, warn_giveaways


def fit_rows(rows: TrainingRows, settings: Settings, partitions: Partitions | None = None) -> FitResult:
    """Fit on rows in memory, and on those that they are drawn from, if ``partitions`` hold more."""
    folds, sample, n_threads, n_folds = rows.folds, rows.sample, settings.n_threads, rows.n_folds
    precomputed = isinstance(settings.detectors, str) and settings.detectors == "precomputed"  # X is the score matrix
    if n_folds and not precomputed:
        giveaways = find_giveaways(rows.X, read_attributes(rows.sensitive_features, rows.groups.codes))
        warn_giveaways(giveaways, rows.feature_names or [f"feature {i}" for i in range(rows.X.shape[1])])
    stage("Fitting detectors")
    pool, raw, without = _detect(rows, settings)
    by_weights = settings.correction == "weights"
    stage("Summing up the rows" if by_weights else "Learning resemblance to groups")
    cross = None
    if n_folds and not by_weights:
        cross = cross_fit_resemblance(
            settings.classifier, rows.X, sample.members, folds,
            seed=settings.seed, n_jobs=n_threads, stands_for=sample.weight,
        )  # fmt: skip
        warn_proxy(cross.known)
        raw = side_by_side([raw, cross.own], n_threads)

    def columns(fold: int) -> FloatArray:
        """Raw scores, and resemblance behind them, by models without a fold, or by those of all rows (-1)."""
        if fold < 0:
            return raw
        return without(fold) if cross is None else side_by_side([without(fold), cross.without[fold]], n_threads)

    resemblance, beyond = None if cross is None else cross.model, None
    collectors = _collectors(rows, settings) if n_folds else {}
    if partitions is not None:
        beyond = Pass.over(partitions, rows, settings, pool, columns, resemblance)
    learn = partial(_learn, rows, settings, pool, columns, resemblance, collectors, beyond)
    whole = learn(-1)
    warn_constant(pool.names, whole.model.scaling)
    if message := coverage_warning(whole.coverage):
        warn(message, LabelCoverageWarning)
    none = whole.outside.at(slice(0))
    training, held, models, ranks, views = [none], [none], [whole.model], [whole.ranks], [*whole.view]
    S, t = side_by_side([whole.S], n_threads), whole.t.copy()  # of each row, by models that have not seen it
    for fold in range(n_folds):
        stage(f"Scoring held-out rows, part {fold + 1} of {n_folds}")
        part, inside = learn(fold), folds == fold
        training.append(part.outside)
        held.append(part.inside)
        models.append(part.model)
        ranks.append(part.ranks)
        views += part.view
        put_rows(S, inside, part.S, n_threads)
        t[inside] = part.t[inside]
    sums = CrossFit(whole.outside, Cells.stacked(training), Cells.stacked(held), refitted=not precomputed)
    judged_scores = whole.S, whole.t
    if settings.judged_on == "unseen":
        judged_scores = S, t
        warn_many(sums)
    judged = FlagRows(
        *judged_scores, sample, folds, Views.stacked(views) if views and sums.scores_alike else None, rows.n_rows
    )
    path = open_tradeoffs(settings, sums, 0 if cross is None else cross.own.shape[1])
    stage("Choosing the trade-off")
    decision = settle(settings, path, judged, None if beyond is None else beyond.counter(judged))
    settled = settled_fields(settings, decision, whole.S, whole.t, sample, rows.n_rows)
    learnt = _learnt(rows, settings, whole, beyond) if n_folds and settings.learn else Learnt()
    learnt.announced(decision.choice.reached)
    if beyond is not None:
        flags = beyond.flags(settled["mixture"], judged.share(settings.contamination))
        settled["threshold"], settled["flag_rates"] = flags
    light = tuple(replace(model, pool=FittedPool((), ()), resemblance=None) for model in models)
    ranked = tuple(sketch for sketch in ranks if sketch is not None)  # of every model, or of none
    kept, kept_held = (keep_columns(scores[:, : len(pool.names)], n_threads=n_threads) for scores in (whole.S, S))
    return FitResult(
        **settled,
        scores=whole.model,
        groups=rows.groups,
        names=rows.names,
        counts=rows.counts,
        n_rows=rows.n_rows,
        S=whole.S,
        target=whole.t,
        seen=judged,
        known={} if cross is None else dict(zip(rows.names, cross.known.tolist(), strict=True)),
        learnt=learnt,
        rank_error=0.0 if beyond is None or settings.weighting != "rank" else beyond.ranks[0].rank_error,
        maps=UpdateMaps(light, ranked or None, kept, kept_held, rows.n_rows, rows.seed),
        background=Background.of(rows.X, rows.groups.codes, folds, len(rows.groups.labels), n_threads=n_threads),
    )


class _Scored(NamedTuple):
    """A model learnt on all rows, or without a fold, and its scores of the rows in memory: S (n, k) and t (n,).

    ``view`` is what a rule for flags is solved on, if one may be asked for. ``coverage`` is that of the labels it has
    learnt from (`label_coverage`), ``outside`` and ``inside`` are sums over all rows out of the fold and in it. Rows
    count by ``ranks`` of the base score; None: all alike.
    """

    model: ScoreModel
    S: FloatArray
    t: FloatArray
    coverage: float
    outside: Cells
    inside: Cells
    ranks: QuantileSketch | None
    view: tuple[Views, ...]


def _learn(
    rows: TrainingRows,
    settings: Settings,
    pool: FittedPool,
    raw: Without,
    resemblance: FittedResemblance | None,
    collectors: Mapping[str, Collector],
    beyond: Pass | None,
    fold: int,
) -> _Scored:
    """Learn scaling and base ensemble, from raw scores by detectors without the fold, and sum up all rows."""
    outside, weight, by_rank, coverage = rows.folds != fold, rows.sample_weight, settings.weighting == "rank", 1.0
    if beyond is not None:  # the models were learnt by passes, and score the reference here
        model, coverage = replace(beyond.models[fold + 1], pool=pool), beyond.coverage
        S, t = model.of_raw(beyond.raw(fold))
        ranks = beyond.ranks[fold + 1] if by_rank else None
    else:
        model, S, t = learn_scores(
            pool, raw(fold), outside, scaling=settings.scaling, combination=settings.combination, seed=settings.seed,
            resemblance=resemblance, n_threads=rows.n_threads,
        )  # fmt: skip
        if rows.known is not None:
            known, counted = rows.known.of(outside), None if weight is None else weight[outside]
            coverage = label_coverage(t[outside], known.labels, known.propensity)
            model = model.taught(S[outside], t[outside], known, coverage=coverage, weight=counted)
            t = model.base(S)
        ranks = QuantileSketch.of(t[outside], None) if by_rank else None
    base = model.base_weights()

    def summed(of: BoolArray, *, inside: bool) -> Cells:
        if beyond is not None:
            cells = beyond.cells(fold, S, t, of, inside=inside)
        else:
            counted = None if weight is None else weight[of]
            cells = rows.cells(S, t, of, rank_weights(t[of], counted) if by_rank and of.any() else None)
        sums = {
            f"{name}.{key}": np.asarray(value)[None]
            for name, collect in collectors.items()
            for key, value in collect(S, t, of).items()
        }
        return replace(cells, sums=sums, base=None if base is None else base[None])

    sums, k = summed(outside, inside=False), len(pool.names)
    held = sums.at(slice(0)) if fold < 0 else summed(~outside, inside=True)
    moving = moving_columns(settings, Columns(settings.correction, S.shape[1] - k), S.shape[1])
    view = (Views.learn(S, t, sums, moving),) if rows.n_folds and len(moving) else ()
    return _Scored(model, S, t, coverage, sums, held, ranks, view)


def _learnt(rows: TrainingRows, settings: Settings, whole: _Scored, beyond: Pass | None) -> Learnt:
    """How learning from labels has changed the gap between the groups' mean base scores.

    Or the gap of a notion that is asked for, where none compares all rows.
    """
    if beyond is not None:
        untaught = beyond.before
    else:
        base = replace(whole.model, stack=None).base(whole.S)
        untaught = rows.cells(whole.S, base, np.ones(len(base), dtype=bool))
    cells = untaught, whole.outside
    compared = {block.among for block in whole.outside.comparison.blocks}
    pursued = [notion for notion in settings.fairness if compared & {*getattr(notion, "among", ())}]
    notion = PARITY if "all" in compared else pursued[0]
    before, after = (float(notion.training_bias(part, unit_target(part)[0])[0]) for part in cells)
    stack, spread = whole.model.stack, [float(np.sqrt(variances(part, unit_target(part))[0, 0])) for part in cells]
    if stack is None or not stack.label_weight or not min(spread) > 0:
        return Learnt(before, after)
    moved = np.eye(untaught.plain.shape[-1])  # from (1, s, t) to t after labels less t before, in units of spread
    moved[-1, 1 : 1 + len(stack.weights)] = stack.weights / spread[1]
    moved[-1, -1] = stack.base_weight / spread[1] - 1.0 / spread[0]
    together = None if untaught.spread is None else moved @ untaught.spread @ moved.T
    change = replace(untaught, plain=moved @ untaught.plain @ moved.T, spread=together)
    return Learnt(before, after, raised=after > before and not notion.gap_p_value(change) > SIGNIFICANCE)


def _detect(rows: TrainingRows, settings: Settings) -> tuple[FittedPool, FloatArray, Without]:
    """Detectors, their raw scores of the rows, and those by detectors that have not seen a fold."""
    beside: dict[str, Any] = {
        "seed": settings.seed,
        "n_threads": settings.n_threads,
        "sensitive_features": rows.sensitive_features,
        "device": settings.device,
        "units": rows.units,
        "feature_names": rows.feature_names,
        "sides": settings.learn,
        "content": rows.content,
    }
    if rows.n_folds:
        return cross_fit_pool(settings.detectors, rows.X, rows.folds, **beside)
    pool, raw = fit_pool(settings.detectors, rows.X, **beside)
    return pool, raw, lambda fold: raw  # noqa: ARG005


def _collectors(rows: TrainingRows, settings: Settings) -> dict[str, Collector]:
    """The function of each notion that sums up rows for it."""
    groups = rows.groups
    seen = NotionRows(
        rows.content,
        groups.codes,
        len(groups.labels),
        (groups.counts if rows.drawn_from is None else rows.drawn_from[:-1]) / np.maximum(groups.counts, 1),
        settings.seed,
        settings.n_threads,
        None if settings.device == "cpu" else partial(gpu.pair_sums, device=settings.device),
    )
    return {notion.name: notion.collect(seen) for notion in settings.fairness}
