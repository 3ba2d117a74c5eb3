"""More rows than memory: a reference in memory; extremes, sums and flags of all rows by passes over partitions.

Detectors are fitted on the reference (`evenout.partitions.reference`). What is said of unseen rows must not rest on
rows that a detector has seen: a row of the reference is scored by detectors without its fold, and any other row by all
detectors, none of which has seen it. Scaling, base ensemble and weights are learnt without the fold for all rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evenout.core.cells import Cells
from evenout.core.exceptions import InputError
from evenout.core.flags import flagged_share
from evenout.core.folds import N_FOLDS
from evenout.core.notions import Notion
from evenout.core.problem import Mixture
from evenout.core.scaling import learn_scaling
from evenout.core.sketch import CAPACITY, QuantileSketch
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.pool import FittedPool
from evenout.fitting.passes import (
    Scorer,
    Walks,
    hashed_folds,
    ranks_weights,
    score_all,
    score_anew,
)
from evenout.fitting.scores import ScoreModel, learn_scores
from evenout.fitting.sources import Memory, Source, TrainingRows, View, check_soft, compared_rows
from evenout.inputs.coder import Coder
from evenout.inputs.grouping import Grouping, is_plain, settle
from evenout.inputs.groups import Groups
from evenout.inputs.rows import column_names
from evenout.partitions.engines import Engine
from evenout.partitions.reference import Settled, draw_reference, settle_groups, survey_rows

EXACT_ROWS = 1_000_000


@dataclass(frozen=True)
class Plan:
    """How partitions are worked through.

    Parameters
    ----------
    engine : Engine
    scratch : callable
        Returns the folder for kept scores.
    exact_rows : int
        Up to so many rows, the ranks behind beta are exact. Beyond, they come from a sketch.
    scores_to : Path, optional
        An empty folder, reachable by all workers, for one file of scores per partition (`parquet.ScoresFile`).
    """

    engine: Engine
    scratch: Any
    exact_rows: int
    scores_to: Path | None


def open_source(plan: Plan, parameters: Mapping[str, Any], seed: int, fairness: Collection[Notion]) -> Source:
    """Check and count all rows, settle the groups, and draw the reference: all rows, or as many as memory takes."""
    _check(parameters)
    size, engine = parameters["reference_size"], plan.engine
    counted = {"unknown_groups": parameters["unknown_groups"], "reference_size": size, "seed": seed}
    survey = survey_rows(engine, **counted, continuous=parameters["continuous"])
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} row(s) in all partitions; at least 2 are needed")
    rules = {name: parameters[name] for name in ("min_group_size", "small_groups")}
    among, grouping = compared_rows(fairness, labelled=survey.labelled), None
    settings = {name: parameters[name] for name in ("continuous", "bands")}
    coder = Coder.learn(survey.sensitive, survey.given, **settings, labelled=among != ["all"])
    if not is_plain(coder, among, parameters["intersections"]):
        survey = survey_rows(engine, **counted, coder=coder)
        grouping = settle(coder, survey.combined, among, parameters)
    quiet = len(coder.attributes) > 1 and not parameters["intersections"]  # crossings are counted, not compared
    groups = settle_groups(survey, **(rules | {"small_groups": "leave_out"} if quiet else rules), quiet=quiet)
    known = None if grouping is None else coder
    reference = draw_reference(engine, survey, groups, reference_size=size, seed=seed, coder=known)
    hard = Groups(reference.codes, groups.labels, groups.left_out)
    check_soft(fairness, hard, parameters, plain=grouping is None)
    soft = None if grouping is None else grouping.members(reference.columns)
    names = column_names(engine.header)
    rows = TrainingRows(reference.X, hard, reference.labels, soft=soft, coder=known, feature_names=names)
    rows = rows.measured(parameters)
    if reference.complete:
        return Memory.of(rows, parameters, seed)
    if parameters["flag_rate_ratio"] is not None:
        raise InputError(
            "{flag_rate_ratio=:g} is searched for on rows in memory, but the reference has {n_drawn} of {n_rows} rows; "
            "set {@reference_size} to {n_rows} or more, or give {@bias_reduction} or {@alpha} instead",
            flag_rate_ratio=parameters["flag_rate_ratio"], n_drawn=len(reference.X), n_rows=survey.n_rows,
        )  # fmt: skip
    return Beyond(rows, groups, plan, parameters, seed, grouping)


@dataclass(frozen=True)
class Beyond:
    """A reference of all rows, and the partitions that hold them; see `evenout.fitting.Source`."""

    rows: TrainingRows
    groups: Settled
    plan: Plan
    parameters: Mapping[str, Any]
    seed: int
    grouping: Grouping | None = None
    n_folds = N_FOLDS

    @cached_property
    def folds(self) -> IntArray:
        """By content, as those of all rows."""
        return hashed_folds(self.rows.content, self.seed)

    @property
    def counts(self) -> IntArray:
        """Rows of each group, in the reference or not."""
        return self.groups.counts[:-1]

    @property
    def n_rows(self) -> int:
        """All rows."""
        return int(self.groups.counts.sum())

    @property
    def capacity(self) -> int | None:
        """Of the sketches."""
        return None if self.n_rows <= self.plan.exact_rows else CAPACITY

    def views(self, pool: FittedPool, raw: FloatArray) -> "BeyondViews":
        """Three passes: raw scores, base scores, sums."""
        plan, folds = self.plan, self.folds
        coder = None if self.grouping is None else self.grouping.coder
        scorer = Scorer(pool, self.groups.codes, plan.engine.n_threads, self.seed, plan.scratch, coder)
        found, walks = score_all(plan.engine, scorer)
        settings = {name: self.parameters[name] for name in ("scaling", "combination")}
        models = [
            learn_scores(pool, raw[folds != f], **settings, seed=self.seed, extremes=found.extremes(f))
            for f in range(-1, self.n_folds)
        ]
        models = [replace(model, base_scaling=learn_scaling("minmax", _UNIT)) for model in models]
        bases = walks.base_scores(models, self.capacity)
        scalings = [learn_scaling("minmax", np.array([[base.low], [base.high]])) for base in bases]
        models = [replace(model, base_scaling=scaling) for model, scaling in zip(models, scalings, strict=True)]
        ranks = [
            base.sketch.mapped(lambda t, scaling=scaling: scaling.transform(t[:, None])[:, 0])  # type: ignore[misc]
            for base, scaling in zip(bases, scalings, strict=True)
        ]
        by_rank = self.parameters["weighting"] == "rank"
        groups, names = self.grouping or len(self.groups.labels), self.groups.labels
        sums = walks.cells(models, ranks if by_rank else None, groups)
        _check_folds(sums.at(slice(3, None, 2)), names if self.grouping is None else self.grouping.names)
        return BeyondViews(self, walks, raw, models, ranks, sums)


@dataclass(frozen=True)
class BeyondViews:
    """What detectors make of all rows; see `evenout.fitting.Views`."""

    source: Beyond
    walks: Walks
    raw: FloatArray
    models: Sequence[ScoreModel]
    sketches: Sequence[QuantileSketch]
    sums: Cells

    @property
    def rank_error(self) -> float:
        """Of the sketch behind the row weights."""
        return self.sketches[0].rank_error if self._by_rank else 0.0

    def learn(self, fold: int, raw: FloatArray) -> View:
        """Scaling and base ensemble were learnt by passes; here they score the reference."""
        model = self.models[fold + 1]
        return View(model, *model.of_raw(raw))

    def cells(self, fold: int, view: View, of: BoolArray, *, inside: bool) -> Cells:
        """All rows; those of the reference as they are seen without the fold, not as by all detectors."""
        place = 2 * (fold + 1) + inside
        total = self.sums.at(slice(place, place + 1))
        if fold < 0:
            return total
        parts = []
        for S, t in (view.model.of_raw(self.raw), (view.S, view.t)):
            beta = ranks_weights(self.sketches[fold + 1], t[of]) if self._by_rank else np.ones(int(of.sum()))
            parts.append(self.source.rows.cells(S, t, beta, of))
        return total - parts[0] + parts[1]

    def ranks(self, fold: int, view: View, of: BoolArray) -> QuantileSketch | None:  # noqa: ARG002
        """See `evenout.fitting.Views`."""
        return self.sketches[fold + 1] if self._by_rank else None

    def flags(self, view: View, mixture: Mixture) -> tuple[float, FloatArray]:
        """Two passes: the threshold, then the rows above it; scores are written on the way."""
        source = self.source
        share = flagged_share(source.parameters["contamination"], source.n_rows)
        fair = self.walks.fair_scores(view.model, mixture, source.capacity)
        above = self.sketches[0].quantile(1.0 - share), fair.quantile(1.0 - share)
        counts = self.walks.flag_rows(view.model, mixture, above, source.groups.labels, source.plan.scores_to)
        return above[1], counts[:-1, 1:] / np.maximum(counts[:-1, :1], 1)

    @property
    def _by_rank(self) -> bool:
        return bool(self.source.parameters["weighting"] == "rank")


def score_partitions(
    engine: Engine,
    scores: ScoreModel,
    mixture: Mixture,
    threshold: float,
    groups: tuple[str, ...],
    scores_to: Path,
    coder: Coder | None = None,
) -> IntArray:
    """Write the scores of all rows, new ones too, into a folder: one file per partition (`parquet.ScoresFile`).

    ``coder`` names the groups where they are not values of columns, such as bands of a number.

    Returns
    -------
    array of shape (G + 1, 2)
        Rows and flagged rows of each group of the fit; the last entry is for rows of other groups, or of none.
    """
    scorer = Scorer(scores.pool, {name: code for code, name in enumerate(groups)}, engine.n_threads, 0, Path, coder)
    walks = score_anew(engine, scorer)
    return walks.flag_rows(scores, mixture, (np.inf, threshold), groups, scores_to)[:, ::2]


_UNIT = np.array([[0.0], [1.0]])


def _check(parameters: Mapping[str, Any]) -> None:
    if parameters["scaling"] != "minmax":  # its extremes merge without any rounding
        raise InputError(
            "{scaling=} needs all rows in memory; over partitions use {scaling='minmax'}",
            scaling=parameters["scaling"],
        )


def _check_folds(held: Cells, labels: tuple[str, ...]) -> None:
    """Refuse groups whose rows all fall into one fold: they have so few different rows that none can be left out."""
    filled = (held.group_counts > 0).sum(axis=0)
    if len(labels) >= 2 and (filled < 2).any():
        raise InputError(
            "the rows of group {group!r} are all alike, so that none of them can be left out as unseen; set "
            "{@reference_size} to the number of rows or more, or leave this group out",
            group=labels[int((filled < 2).argmax())],
        )
