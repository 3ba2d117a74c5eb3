"""From rows to a fitted model: detect, scale, combine, leave folds out, sum, solve, choose.

Where there are more rows than memory holds, a `Pass` finds extremes, sums and flags of all of them. Every other step
is the same for rows in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenout import gpu
from evenout.core.cells import Cells, CrossFit, rank_weights, unit_target, variances
from evenout.core.flags import FlagRows, top_threshold
from evenout.core.notions import Collector, NotionRows
from evenout.core.parallel import put_rows, side_by_side
from evenout.core.path import SIGNIFICANCE
from evenout.core.problem import Mixture
from evenout.core.registry import PARITY
from evenout.core.sketch import QuantileSketch
from evenout.core.stacking import label_coverage
from evenout.core.stages import stage
from evenout.core.types import BoolArray, FloatArray
from evenout.detectors.family import Without
from evenout.detectors.pool import FittedPool, cross_fit_pool, fit_pool
from evenout.fitting.beyond import Partitions, Pass
from evenout.fitting.choose import open_tradeoffs, settle
from evenout.fitting.learnt import Learnt
from evenout.fitting.resemblance import FittedResemblance, cross_fit_resemblance, warn_proxy
from evenout.fitting.result import Background, FitResult, attribute_bias, list_kept, warn_rising
from evenout.fitting.rows import TrainingRows
from evenout.fitting.score_model import ScoreModel, learn_on, warn_constant, warn_labels, warn_many
from evenout.fitting.settings import Settings
from evenout.fitting.update import UpdateMaps, keep_columns


def fit_rows(rows: TrainingRows, settings: Settings, partitions: Partitions | None = None) -> FitResult:
    """Fit on rows in memory, and on those that they are drawn from, if ``partitions`` hold more."""
    folds, sample, n_threads = rows.folds, rows.sample, settings.n_threads
    n_folds = rows.n_folds if rows.members.n_groups >= 2 else 0  # else there is nobody to compare
    if n_folds and not settings.precomputed:
        rows.warn_giveaways()
    stage("Fitting detectors")
    pool, raw, without = _detect(rows, n_folds, settings)
    by_weights = settings.correction == "weights"
    stage("Summing up the rows" if by_weights else "Learning resemblance to groups")
    cross, columns = None, without
    if n_folds and not by_weights:
        machine: dict[str, Any] = {"seed": settings.seed, "n_jobs": n_threads, "stands_for": sample.weight}
        cross = cross_fit_resemblance(settings.classifier, rows.X, sample.members, folds, **machine)
        warn_proxy(cross.known)
        raw, alike = side_by_side([raw, cross.own], n_threads), cross.without

        def columns(fold: int) -> FloatArray:
            return side_by_side([without(fold), alike[fold]], n_threads)

    collectors = _collectors(rows, settings) if n_folds else {}
    resemblance, beyond = None if cross is None else cross.model, None
    if partitions is not None:
        beyond = Pass.over(partitions, rows, settings, pool, raw, columns, resemblance)
    views = _Views(rows, settings, pool, raw, columns, resemblance, collectors, beyond)
    whole = views.learn(-1)
    warn_constant(pool.names, whole.model.scaling)
    warn_labels(whole.coverage)
    none = whole.outside.at(slice(0))
    training, held, models, ranks = [none], [none], [whole.model], [whole.ranks]
    S, t = side_by_side([whole.S], n_threads), whole.t.copy()  # of each row by what has not seen it
    for fold in range(n_folds):
        stage(f"Scoring held-out rows, part {fold + 1} of {n_folds}")
        view, inside = views.learn(fold), folds == fold
        training.append(view.outside)
        held.append(view.inside)
        models.append(view.model)
        ranks.append(view.ranks)
        put_rows(S, inside, view.S, n_threads)
        t[inside] = view.t[inside]
    sums = CrossFit(whole.outside, Cells.stacked(training), Cells.stacked(held), refitted=not settings.precomputed)
    unseen, nested = settings.judged_on == "unseen", None if cross is None else cross.without
    judged = FlagRows(*((S, t) if unseen else (whole.S, whole.t)), sample, folds, nested, rows.n_rows)
    if unseen:
        warn_many(sums)
    path = open_tradeoffs(settings, sums, 0 if cross is None else cross.own.shape[1])
    stage("Choosing the trade-off")
    path, choice, ratio, price = settle(settings, path, judged, None if beyond is None else beyond.counter(judged))
    mixture = path.mixture(choice.alpha)
    kept = list_kept(whole.t, mixture.apply(whole.S, whole.t), settings.contamination)
    choice.announced(kept, asked=settings.asked, ratio=ratio)
    warn_rising(attribute_bias(path, choice.alpha, settings.judged_on))
    learnt = _learnt(views, whole) if n_folds and settings.learn else Learnt()
    learnt.announced(choice.reached)
    share = judged.share(settings.contamination)
    threshold, rates = views.flags(whole, mixture, share)
    return FitResult(
        scores=whole.model,
        path=path,
        choice=choice,
        mixture=mixture,
        groups=rows.groups,
        names=rows.names,
        counts=rows.counts,
        n_rows=rows.n_rows,
        S=whole.S,
        target=whole.t,
        seen=judged,
        flag_ratio=ratio,
        flag_price=price,
        known={} if cross is None else dict(zip(rows.names, cross.known.tolist(), strict=True)),
        threshold=threshold,
        base_threshold=float(top_threshold(whole.t[:, None], share, sample.weight)[0]),
        flag_rates=rates,
        learnt=learnt,
        rank_error=0.0 if beyond is None or not settings.by_rank else beyond.ranks[0].rank_error,
        maps=_maps(models, ranks, (whole.S, S), rows),
        background=Background.of(rows.X, rows.groups.codes, folds, len(rows.groups.labels), n_threads=n_threads),
    )


class _View(NamedTuple):
    """What was learnt on all rows, or without a fold, and what it makes of the rows in memory: S (n, k) and t (n,).

    ``coverage`` is that of the labels it has learnt from (`label_coverage`), ``outside`` and ``inside`` are sums over
    all rows out of the fold and in it. Rows count by ``ranks`` of the base score; None: all alike.
    """

    model: ScoreModel
    S: FloatArray
    t: FloatArray
    coverage: float
    outside: Cells
    inside: Cells
    ranks: QuantileSketch | None


@dataclass(frozen=True)
class _Views:
    """All rows, as seen by what is learnt on all of them (fold -1) and without each fold."""

    rows: TrainingRows
    settings: Settings
    pool: FittedPool
    raw: FloatArray
    without: Without
    resemblance: FittedResemblance | None
    collectors: Mapping[str, Collector]
    beyond: Pass | None

    def learn(self, fold: int) -> _View:
        """Learn scaling and base ensemble, from raw scores by detectors without the fold, and sum up the rows."""
        of = self.rows.folds != fold
        if self.beyond is not None:  # then they were learnt by passes, and score the reference here
            model, coverage = self.beyond.models[fold + 1], self.beyond.coverage
            S, t = model.of_raw(self.beyond.reference(fold))
            ranks: QuantileSketch | None = self.beyond.ranks[fold + 1]
        else:
            model, S, t, coverage = self._learn_in_memory(fold, of)
            ranks = QuantileSketch.of(t[of], None) if self.settings.by_rank else None
        base = model.base_weights()

        def summed(of: BoolArray, *, inside: bool) -> Cells:
            cells = self._cells(S, t, of) if self.beyond is None else self.beyond.cells(fold, S, t, of, inside=inside)
            sums = {
                f"{name}.{key}": np.asarray(value)[None]
                for name, collect in self.collectors.items()
                for key, value in collect(S, t, of).items()
            }
            return replace(cells, sums=sums, base=None if base is None else base[None])

        outside = summed(of, inside=False)
        inside = outside.at(slice(0)) if fold < 0 else summed(~of, inside=True)
        return _View(model, S, t, coverage, outside, inside, ranks if self.settings.by_rank else None)

    def _learn_in_memory(self, fold: int, of: BoolArray) -> tuple[ScoreModel, FloatArray, FloatArray, float]:
        raw, rows = self.raw if fold < 0 else self.without(fold), self.rows
        rules: dict[str, Any] = {"scaling": self.settings.scaling, "combination": self.settings.combination}
        rules |= {"seed": self.settings.seed, "resemblance": self.resemblance, "n_threads": rows.n_threads}
        model, S, t = learn_on(self.pool, raw, of, **rules)
        if rows.known is None:
            return model, S, t, 1.0
        weight, known = None if rows.sample_weight is None else rows.sample_weight[of], rows.known.of(of)
        coverage = label_coverage(t[of], known.labels, known.propensity)
        model = model.taught(S[of], t[of], known, coverage=coverage, weight=weight)
        return model, S, model.base(S), coverage

    def _cells(self, S: FloatArray, t: FloatArray, of: BoolArray) -> Cells:
        weight, beta = self.rows.sample_weight, np.ones(int(of.sum()))
        if self.settings.by_rank and len(beta):
            beta = rank_weights(t[of], None if weight is None else weight[of])
        return self.rows.cells(S, t, beta, of)

    def before_labels(self, view: _View) -> Cells:
        """Sums over all rows, as they are where the base score has not learnt from labels."""
        if self.beyond is not None:
            return self.beyond.before
        n = len(view.S)
        return self.rows.cells(view.S, view.model.untaught().base(view.S), np.ones(n), np.ones(n, dtype=bool))

    def flags(self, view: _View, mixture: Mixture, share: float) -> tuple[float, FloatArray]:
        """The threshold of the fair score, and the share of each group that base and fair score flag, (G, 2)."""
        if self.beyond is not None:
            return self.beyond.flags(view.model, mixture, share)
        both, sample = np.column_stack([view.t, mixture.apply(view.S, view.t)]), self.rows.sample
        above = top_threshold(both, share, sample.weight)
        return float(above[1]), sample.means(both > above)


def _maps(
    models: list[ScoreModel],
    ranks: list[QuantileSketch | None],
    scores: tuple[FloatArray, FloatArray],
    rows: TrainingRows,
) -> UpdateMaps:
    known = tuple(sketch for sketch in ranks if sketch is not None)
    light = tuple(replace(model.without_detectors(), resemblance=None) for model in models)
    whole, fresh = (keep_columns(S[:, : light[0].n_detectors], n_threads=rows.n_threads) for S in scores)
    return UpdateMaps(light, known if len(known) == len(models) else None, whole, fresh, rows.n_rows, rows.seed)


def _learnt(views: _Views, whole: _View) -> Learnt:
    """What learning from labels has made of the gap between the groups' mean base scores.

    Or of the gap of a notion that is asked for, where none compares all rows.
    """
    cells = views.before_labels(whole), whole.outside
    compared = {block.among for block in whole.outside.comparison.blocks}
    pursued = [notion for notion in views.settings.fairness if compared & {*getattr(notion, "among", ())}]
    notion = PARITY if "all" in compared else pursued[0]
    before, after = (float(notion.training_bias(part, unit_target(part)[0])[0]) for part in cells)
    stack, spread = whole.model.stack, [float(np.sqrt(variances(part, unit_target(part))[0, 0])) for part in cells]
    if stack is None or not stack.label_weight or not min(spread) > 0:
        return Learnt(before, after)
    moved = np.eye(cells[0].plain.shape[-1])  # from (1, s, t) to what t has become, less what it was
    moved[-1, 1 : 1 + len(stack.weights)] = stack.weights / spread[1]
    moved[-1, -1] = stack.base_weight / spread[1] - 1.0 / spread[0]
    together = None if cells[0].spread is None else moved @ cells[0].spread @ moved.T
    change = replace(cells[0], plain=moved @ cells[0].plain @ moved.T, spread=together)
    by_chance = notion.gap_p_value(change) > SIGNIFICANCE
    return Learnt(before, after, raised=after > before and not by_chance)


def _detect(rows: TrainingRows, n_folds: int, settings: Settings) -> tuple[FittedPool, FloatArray, Without]:
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
    if n_folds:
        return cross_fit_pool(settings.detectors, rows.X, rows.folds, **beside)
    pool, raw = fit_pool(settings.detectors, rows.X, **beside)
    return pool, raw, lambda fold: raw  # noqa: ARG005


def _collectors(rows: TrainingRows, settings: Settings) -> dict[str, Collector]:
    """What sums up rows for each notion."""
    groups = rows.groups
    seen = NotionRows(
        rows.content,
        groups.codes,
        len(groups.labels),
        rows.group_counts / np.maximum(groups.counts, 1),
        settings.seed,
        settings.n_threads,
        None if settings.device == "cpu" else partial(gpu.pair_sums, device=settings.device),
    )
    return {notion.name: notion.collect(seen) for notion in settings.fairness}
