"""Fit on a reference in memory, with sums over all partitions beyond it.

Detectors are fitted on the reference (`evenout.out_of_core.survey`). What is said of unseen rows must not rest on
rows that a detector has seen: a row of the reference is scored by detectors without its fold, and any other row by all
detectors, none of which has seen it. The same holds for the classifiers of resemblance, in sums over all rows too.
Scaling, base ensemble and weights are learnt without the fold for all rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from evenout.core.base_score import learn_scaling
from evenout.core.cells import Cells
from evenout.core.content import N_FOLDS, row_numbers
from evenout.core.flags import FlagRows, flagged_share
from evenout.core.notions import Notion
from evenout.core.problem import Mixture
from evenout.core.ruler import Means, Sample
from evenout.core.sketch import CAPACITY, QuantileSketch
from evenout.core.stacking import Population
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.family import Without
from evenout.detectors.pool import FittedPool, has_named
from evenout.detectors.units import feature_labels
from evenout.exceptions import InputError
from evenout.fitting.choose import Counter
from evenout.fitting.passes import (
    Scorer,
    Walks,
    content_in_group,
    gather,
    hashed_folds,
    ranks_weights,
    score_all,
    score_anew,
    teach,
)
from evenout.fitting.resemblance import FittedResemblance
from evenout.fitting.rows import Memory, Source, TrainingRows, View, check_soft, compared_rows, stands_for
from evenout.fitting.score_model import KnownLabels, ScoreModel, learn_scores
from evenout.groups.model import Coder, Grouping, is_plain, of_crossings, settle_grouping
from evenout.groups.read import Codes
from evenout.groups.rules import Groups
from evenout.out_of_core.engines import Engine
from evenout.out_of_core.survey import (
    DrawnRows,
    SettledGroups,
    Survey,
    count_again,
    draw_reference,
    learn_units,
    settle_groups,
    survey_rows,
)
from evenout.tables.rows import column_names, require_labels

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
        An empty folder, reachable by all workers, for one file of scores per partition (`parquet.scores_file`).
    sufficient : bool
        Whether probabilities of groups, if any, are said to tell all that a score knows of them.
    """

    engine: Engine
    scratch: Any
    exact_rows: int
    scores_to: Path | None
    sufficient: bool = False


@dataclass(frozen=True)
class Beyond:
    """A reference of all rows, and the partitions that hold them; see `evenout.fitting.Source`."""

    rows: TrainingRows
    groups: SettledGroups
    plan: Plan
    parameters: Mapping[str, Any]
    seed: int
    grouping: Grouping | None = None
    n_folds = N_FOLDS

    @cached_property
    def folds(self) -> IntArray:
        """By content, as those of all rows."""
        return hashed_folds(self.rows.content, self.seed)

    @cached_property
    def sample(self) -> Sample:
        """How the rows of the reference are measured: each stands for some of its crossed group."""
        weight = stands_for(self.rows.groups, self.group_counts, self.n_rows)
        return Sample(self.rows.members, weight, doubt=self.rows.doubt)

    @property
    def counts(self) -> IntArray:
        """Rows that each group is expected to have, in the reference or not."""
        return self.group_counts if self.grouping is None else self.grouping.counts

    @property
    def group_counts(self) -> IntArray:
        """Rows of each crossed group, in the reference or not."""
        return self.groups.counts[:-1]

    @property
    def n_rows(self) -> int:
        """All rows."""
        return int(self.groups.counts.sum())

    @property
    def capacity(self) -> int | None:
        """Of the sketches."""
        return None if self.n_rows <= self.plan.exact_rows else CAPACITY

    def views(
        self, pool: FittedPool, raw: FloatArray, without: Without, resemblance: FittedResemblance | None = None
    ) -> "BeyondViews":
        """Three passes: raw scores, base scores, sums; with labels to learn from three more."""
        plan, folds, learn = self.plan, self.folds, self.parameters["learn"]
        coder = None if self.grouping is None else self.grouping.coder
        seen, learnt_from = self._seen[0] if learn else None, None
        if resemblance is not None:
            numbers, first = np.unique(row_numbers(self.rows.content, self.seed), return_index=True)
            learnt_from = numbers, raw[first, len(pool.names) :]
        kept = plan.scratch, coder, seen, resemblance, learnt_from, self.parameters["device"]
        found, walks = score_all(plan.engine, Scorer(pool, self.groups.codes, plan.engine.n_threads, self.seed, *kept))
        settings: dict[str, Any] = {name: self.parameters[name] for name in ("scaling", "combination")}
        settings |= {"seed": self.seed, "resemblance": resemblance}
        models = [
            learn_scores(pool, raw[folds != f], **settings, extremes=found.extremes(f)) for f in range(-1, self.n_folds)
        ]
        models = [replace(model, base_scaling=learn_scaling("minmax", _UNIT)) for model in models]
        bases = walks.base_scores(models, self.capacity)
        scalings = [learn_scaling("minmax", np.array([[base.low], [base.high]])) for base in bases]
        models = [replace(model, base_scaling=scaling) for model, scaling in zip(models, scalings, strict=True)]
        ranks = [
            base.sketch.mapped(lambda t, scaling=scaling: scaling.transform(t[:, None])[:, 0])  # type: ignore[misc]
            for base, scaling in zip(bases, scalings, strict=True)
        ]
        views = BeyondViews(self, walks, raw, without, models, ranks, self._sums(walks, models, ranks))
        return self._taught(views) if learn else views

    def _sums(self, walks: Walks, models: Sequence[ScoreModel], ranks: Sequence[QuantileSketch]) -> Cells:
        by_rank = self.parameters["weighting"] == "rank"
        groups, names = self.grouping or len(self.groups.labels), self.groups.labels
        sums = walks.cells(models, ranks if by_rank else None, groups)
        _check_folds(sums.at(slice(3, None, 2)), names if self.grouping is None else self.grouping.full_names)
        return sums

    @cached_property
    def _seen(self) -> tuple[npt.NDArray[np.uint64], IntArray]:
        """The numbers of the reference's contents, rising, and a row of it for each."""
        return np.unique(content_in_group(self.rows.content, self.rows.groups.codes, self.seed), return_index=True)

    def _taught(self, views: "BeyondViews") -> "BeyondViews":
        """The same after the models have learnt from labels."""
        views = replace(views, without=cache(views.without))  # each fold is scored here and in `fit_rows`
        walks, models, coverages = views.walks, [], []
        labelled = gather(walks, views.raw.shape[1])
        for fold in range(-1, self.n_folds):
            view = views.learn(fold)
            sums = views.cells(fold, view, self.folds != fold, inside=False)
            raw = labelled.scored(views.reference(fold), self._seen[1])
            columns = np.r_[0 : view.model.n_detectors + 1, -1]  # labels teach nothing of resemblance
            everyone = Population.of_sums(sums.total[0][np.ix_(columns, columns)]), views.ranks[fold + 1]
            model, coverage = teach(view.model, labelled, fold, raw, *everyone)
            models.append(model)
            coverages.append(coverage)
        ranks = [base.sketch for base in walks.base_scores(models, self.capacity)]
        sums, before = self._sums(walks, models, ranks), views.sums.at(slice(1))
        return replace(views, models=models, ranks=ranks, sums=sums, before=before, coverage=coverages[0])


@dataclass(frozen=True)
class BeyondViews:
    """What detectors make of all rows; see `evenout.fitting.Views`."""

    source: Beyond
    walks: Walks
    raw: FloatArray
    without: Without
    models: Sequence[ScoreModel]
    ranks: Sequence[QuantileSketch]
    sums: Cells
    before: Cells | None = None
    coverage: float = 1.0

    @property
    def rank_error(self) -> float:
        """Of the sketch behind the row weights."""
        return self.ranks[0].rank_error if self._by_rank else 0.0

    def reference(self, fold: int) -> FloatArray:
        """Raw scores of the reference by detectors without a fold, or by all (-1)."""
        return self.raw if fold < 0 else self.without(fold)

    def learn(self, fold: int) -> View:
        """Scaling and base ensemble were learnt by passes; here they score the reference."""
        model = self.models[fold + 1]
        return View(model, *model.of_raw(self.reference(fold)), self.coverage)

    def cells(self, fold: int, view: View, of: BoolArray, *, inside: bool) -> Cells:
        """All rows; those of the reference as they are seen without the fold, not as by all detectors."""
        place = 2 * (fold + 1) + inside
        total = self.sums.at(slice(place, place + 1))
        if fold < 0:
            return total
        parts = []
        for S, t in (view.model.of_raw(self.raw), (view.S, view.t)):
            beta = ranks_weights(self.ranks[fold + 1], t[of]) if self._by_rank else np.ones(int(of.sum()))
            parts.append(self.source.rows.cells(S, t, beta, of))
        return total - parts[0] + parts[1]

    def rank_map(self, fold: int, view: View, of: BoolArray) -> QuantileSketch | None:  # noqa: ARG002
        """See `evenout.fitting.Views`."""
        return self.ranks[fold + 1] if self._by_rank else None

    def before_labels(self, view: View) -> Cells:  # noqa: ARG002
        """See `Views`."""
        return self.sums.at(slice(1)) if self.before is None else self.before

    def counter(self, seen: FlagRows) -> Counter:
        """Two passes: the thresholds of each fold, then the rows above them.

        Rows of the reference count as ``seen``, by what has not seen them, not as by all detectors.
        """
        source, share = self.source, seen.share(self.source.parameters["contamination"])
        whole, phi = self.sums.at(slice(1)), source.rows.members.weights
        size = np.maximum(whole.effective_counts[0], 1.0)

        def count(V: FloatArray) -> Means:
            sketches = self.walks.unseen_scores(self.models[1:], V, source.capacity)
            above = np.array([[sketch.quantile(1.0 - share) for sketch in fold] for fold in sketches])
            flagged = self.walks.unseen_flags(self.models[1:], V, above, source.grouping or len(source.groups.labels))
            for fold, weights in enumerate(V):
                rows = seen.folds == fold
                by_all = self.models[fold + 1].of_raw(self.raw[rows])
                for sign, (S, t) in ((-1.0, by_all), (1.0, (seen.S[rows], seen.t[rows]))):
                    over = (np.column_stack([S, t]) @ weights.T > above[fold]).astype(float)
                    flagged = flagged + sign * np.asarray(csc_array(phi[rows]).T @ over)
            rates = np.clip(flagged[:, 0] / np.maximum(whole.group_counts[0], 1e-9), 0.0, 1.0)
            return Means.of_rates(rates, size, seen.sample.compared)

        return count

    def flags(self, view: View, mixture: Mixture) -> tuple[float, FloatArray]:
        """Two passes: the threshold, then the rows above it; scores are written on the way."""
        source = self.source
        share = flagged_share(source.parameters["contamination"], source.n_rows)
        fair = self.walks.fair_scores(view.model, mixture, source.capacity)
        above = self.ranks[0].quantile(1.0 - share), fair.quantile(1.0 - share)
        settings = source.groups.labels, source.plan.scores_to, source.grouping
        counts = self.walks.flag_rows(view.model, mixture, above, *settings)
        counts = counts[:-1] if source.grouping is None else counts
        return above[1], counts[:, 1:] / np.maximum(counts[:, :1], 1e-9)

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
    device: str = "cpu",
) -> IntArray:
    """Write the scores of all rows, new ones too, into a folder: one file per partition (`parquet.scores_file`).

    ``coder`` names the groups where they are not values of columns, such as bands of a number. ``device`` is where
    detectors score, on the machine that has a partition.

    Returns
    -------
    array of shape (G + 1, 2)
        Rows and flagged rows of each group of the fit; the last entry is for rows of other groups, or of none.
    """
    codes = {name: code for code, name in enumerate(groups)}
    machine: dict[str, Any] = {"n_threads": engine.n_threads, "device": device}
    scorer = Scorer(scores.pool, codes, seed=0, scratch=Path, coder=coder, resemblance=scores.resemblance, **machine)
    walks = score_anew(engine, scorer)
    return walks.flag_rows(scores, mixture, (np.inf, threshold), groups, scores_to)[:, ::2].astype(np.intp)


_UNIT = np.array([[0.0], [1.0]])


def _check_folds(held: Cells, labels: tuple[str, ...]) -> None:
    """Refuse groups whose rows all fall into one fold: they have so few different rows that none can be left out."""
    filled = (held.group_counts > 0).sum(axis=0)
    if len(labels) >= 2 and (filled < 2).any():
        raise InputError(
            "the rows of group {group!r} are all alike, so that none of them can be left out as unseen; set "
            "{@reference_size} to the number of rows or more, or leave this group out",
            group=labels[int((filled < 2).argmax())],
        )


def open_source(plan: Plan, parameters: Mapping[str, Any], seed: int, fairness: Collection[Notion]) -> Source:
    """Check and count all rows, settle the groups, and draw the reference: all rows, or as many as memory takes."""
    _check(parameters)
    size, engine = parameters["reference_size"], plan.engine
    rules: Groups = parameters["groups"]
    counted = {"rules": rules, "reference_size": size, "seed": seed}
    measured = parameters["standardize"] and has_named(parameters["detectors"])
    survey = survey_rows(engine, **counted, measure=measured)
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} row(s) in all partitions; at least 2 are needed")
    if parameters["learn"]:
        require_labels(survey.known)
    among = compared_rows(fairness, labelled=survey.known is not None)
    learnt = _coder(survey, rules, labelled=among != ["all"])
    coarse = [cut.name for cut in learnt.cuts if cut.coarse]
    if coarse:
        raise InputError(
            "{@given} has many numbers in column {name!r}, in which rows are made alike where all are in memory; give "
            "parts of it as text, or fit in memory",
            name=coarse[0],
        )
    coder = None if is_plain(learnt, among, rules) else learnt
    units, grouping, probable = None, None, survey.probable
    if survey.ranges is not None and survey.n_rows > size:
        units = learn_units(engine, survey.ranges, exact=survey.n_rows <= plan.exact_rows)
    if coder is not None or units is not None:
        survey = count_again(engine, **counted, coder=coder, units=units)
    if coder is not None:
        grouping = settle_grouping(coder, survey.combined, among, rules)
    counted_rules = of_crossings(rules, learnt)
    groups = settle_groups(replace(survey, probable=probable), counted_rules, quiet=grouping is not None)
    drawn = draw_reference(engine, survey, groups, reference_size=size, seed=seed, coder=coder, units=units)
    rows = _training_rows(drawn, groups, grouping, column_names(engine.header))
    rows = replace(rows, doubt="probable" if probable and not plan.sufficient else "")
    if among != ["all"]:
        known = KnownLabels.of_columns(drawn.known)
        if known.propensity is not None and not drawn.complete:
            raise InputError(
                "{@label_propensity} with {fairness=} needs all rows in memory; raise {@reference_size}",
                fairness=next(notion.name for notion in fairness),
            )
        rows = rows.looked_at(known.labels, known.propensity)
    check_soft(fairness, None if grouping is None else grouping.compared)
    if drawn.complete:
        return Memory.of(_labelled(rows, drawn, parameters).measured(parameters), parameters, seed)
    if units is not None:
        units.warn_dropped(feature_labels(rows.feature_names, rows.X.shape[1]))
    return Beyond(replace(rows, units=units), groups, plan, parameters, seed, grouping)


def _coder(survey: Survey, rules: Groups, *, labelled: bool) -> Coder:
    if survey.probable:
        return Coder.of_probable(survey.probable, survey.given, labelled=labelled)
    return Coder.learn(survey.sensitive, survey.given, rules, labelled=labelled)


def _training_rows(
    drawn: DrawnRows, groups: SettledGroups, grouping: Grouping | None, names: Sequence[str] | None
) -> TrainingRows:
    hard = Codes(drawn.codes, groups.labels, groups.left_out)
    rows = TrainingRows(drawn.X, hard, drawn.labels, feature_names=names)
    if grouping is None:
        return rows
    return rows.grouped(grouping, grouping.members(drawn.columns), coder=grouping.coder)


def _labelled(rows: TrainingRows, drawn: DrawnRows, parameters: Mapping[str, Any]) -> TrainingRows:
    """All rows with their labels, if the base score is to learn from them."""
    if not parameters["learn"]:
        return rows
    return replace(rows, known=KnownLabels.of_columns(drawn.known))


def _check(parameters: Mapping[str, Any]) -> None:
    if parameters["scaling"] != "minmax":  # its extremes merge without any rounding
        raise InputError(
            "{scaling=} needs all rows in memory; over partitions use {scaling='minmax'}",
            scaling=parameters["scaling"],
        )
