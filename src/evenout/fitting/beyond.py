"""Fit on a reference in memory, with sums over all partitions beyond it.

Detectors are fitted on the reference (`evenout.out_of_core.survey`). What is said of unseen rows must not rest on
rows that a detector has seen: a row of the reference is scored by detectors without its fold, and any other row by all
detectors, none of which has seen it. The same holds for the classifiers of resemblance, in sums over all rows too.
Scaling, base ensemble and weights are learnt without the fold for all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from evenout.core.base_score import learn_scaling
from evenout.core.cells import Cells
from evenout.core.content import N_FOLDS, row_numbers
from evenout.core.flags import FlagRows
from evenout.core.problem import Mixture
from evenout.core.ruler import Means
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
    above_part,
    base_part,
    cells_part,
    content_in_group,
    fair_part,
    flag_part,
    gather,
    light,
    merge_each,
    rank_weights_by,
    score_all,
    teach,
    unseen_part,
)
from evenout.fitting.resemblance import FittedResemblance
from evenout.fitting.rows import TrainingRows, check_soft, compared_rows
from evenout.fitting.score_model import KnownLabels, ScoreModel, learn_scores
from evenout.fitting.settings import Settings
from evenout.groups.model import Coder, is_plain, of_crossings, settle_grouping
from evenout.groups.read import Codes
from evenout.out_of_core.engines import Engine
from evenout.out_of_core.survey import draw_reference, learn_units, settle_groups, survey_rows
from evenout.tables.rows import column_names, require_labels

if TYPE_CHECKING:
    from evenout.fitting.result import FitResult

EXACT_ROWS = 1_000_000


_UNIT = np.array([[0.0], [1.0]])


@dataclass(frozen=True)
class Partitions:
    """Partitions, and how they are worked through.

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
    codes : mapping
        From the name of a group to its code, once the groups are settled.
    """

    engine: Engine
    scratch: Any
    exact_rows: int
    scores_to: Path | None
    sufficient: bool = False
    codes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """All rows as models see them that were learnt by passes over partitions, on all rows and without each fold.

    Parameters
    ----------
    partitions : Partitions
    rows : TrainingRows
        The reference.
    settings : Settings
    walks : Walks
    raw, without
        Raw scores of the reference by all detectors, and by those without a fold.
    models, ranks : sequences of length K + 1
        And the base score of the rows that each was learnt on.
    sums : Cells
        2 (K + 1) sets; see `evenout.fitting.passes.cells_part`.
    before : Cells
        Of all rows, by the base score that has not learnt from labels.
    coverage : float
        Of the labels.
    """

    partitions: Partitions
    rows: TrainingRows
    settings: Settings
    walks: Walks
    raw: FloatArray
    without: Without
    models: Sequence[ScoreModel]
    ranks: Sequence[QuantileSketch]
    sums: Cells
    before: Cells
    coverage: float = 1.0

    @classmethod
    def over(
        cls,
        partitions: Partitions,
        rows: TrainingRows,
        settings: Settings,
        pool: FittedPool,
        raw: FloatArray,
        without: Without,
        resemblance: FittedResemblance | None = None,
    ) -> "Pass":
        """Three passes: raw scores, base scores, sums; with labels to learn from three more."""
        seen, learnt_from = _seen(rows)[0] if settings.learn else None, None
        if resemblance is not None:
            numbers, first = np.unique(row_numbers(rows.content, rows.seed), return_index=True)
            learnt_from = numbers, raw[first, len(pool.names) :]
        engine, coder = partitions.engine, None if rows.grouping is None else rows.grouping.coder
        kept = partitions.scratch, coder, seen, resemblance, learnt_from, settings.device
        found, walks = score_all(engine, Scorer(pool, partitions.codes, engine.n_threads, rows.seed, *kept))
        rules: dict[str, Any] = {"scaling": settings.scaling, "combination": settings.combination}
        rules |= {"seed": settings.seed, "resemblance": resemblance}
        models = [
            learn_scores(pool, raw[rows.folds != f], **rules, extremes=found.extremes(f)) for f in range(-1, N_FOLDS)
        ]
        models = [replace(model, base_scaling=learn_scaling("minmax", _UNIT)) for model in models]
        capacity = _capacity(partitions, rows)
        bases = walks.walk(base_part, merge_each, light(models), capacity)
        scalings = [learn_scaling("minmax", np.array([[base.low], [base.high]])) for base in bases]
        models = [replace(model, base_scaling=scaling) for model, scaling in zip(models, scalings, strict=True)]
        ranks = [
            base.sketch.mapped(lambda t, scaling=scaling: scaling.transform(t[:, None])[:, 0])
            for base, scaling in zip(bases, scalings, strict=True)
        ]
        sums = _sums(rows, settings, walks, models, ranks)
        untaught = cls(partitions, rows, settings, walks, raw, without, models, ranks, sums, sums.at(slice(1)))
        return untaught._taught(capacity) if settings.learn else untaught

    def _taught(self, capacity: int | None) -> "Pass":
        """The same after the models have learnt from labels."""
        without = cache(self.without)  # each fold is scored here and in `fit_rows`
        labelled, models, coverages = gather(self.walks, self.raw.shape[1]), [], []
        cached, home = replace(self, without=without), _seen(self.rows)[1]
        for fold, model in enumerate(self.models, -1):
            reference = cached.reference(fold)
            sums = cached.cells(fold, *model.of_raw(reference), self.rows.folds != fold, inside=False)
            columns = np.r_[0 : model.n_detectors + 1, -1]  # labels teach nothing of resemblance
            everyone = Population.of_sums(sums.total[0][np.ix_(columns, columns)]), self.ranks[fold + 1]
            raw = labelled.scored(reference, home)
            taught, coverage = teach(model, labelled, fold, raw, *everyone)
            models.append(taught)
            coverages.append(coverage)
        ranks = [base.sketch for base in self.walks.walk(base_part, merge_each, light(models), capacity)]
        sums = _sums(self.rows, self.settings, self.walks, models, ranks)
        return replace(cached, models=models, ranks=ranks, sums=sums, coverage=coverages[0])

    def reference(self, fold: int) -> FloatArray:
        """Raw scores of the reference by detectors without a fold, or by all (-1)."""
        return self.raw if fold < 0 else self.without(fold)

    def cells(self, fold: int, S: FloatArray, t: FloatArray, of: BoolArray, *, inside: bool) -> Cells:
        """Sums over all rows inside of the fold, or outside; ``of`` marks them among the reference.

        Its rows count as they are seen without the fold, by ``S`` and ``t``, not as by all detectors.
        """
        at = 2 * (fold + 1) + inside
        total = self.sums.at(slice(at, at + 1))
        if fold < 0:
            return total
        parts = []
        for columns, base in (self.models[fold + 1].of_raw(self.raw), (S, t)):
            by_rank = self.settings.by_rank
            beta = rank_weights_by(self.ranks[fold + 1], base[of]) if by_rank else np.ones(int(of.sum()))
            parts.append(self.rows.cells(columns, base, beta, of))
        return total - parts[0] + parts[1]

    def counter(self, held: FlagRows) -> Counter:
        """Two passes: the thresholds of each fold, then the rows above them.

        Rows of the reference count as ``held``, by what has not seen them, not as by all detectors.
        """
        rows, share, capacity = (
            self.rows,
            held.share(self.settings.contamination),
            _capacity(self.partitions, self.rows),
        )
        whole, phi, models = self.sums.at(slice(1)), rows.members.weights, light(self.models[1:])
        groups = rows.grouping or len(rows.groups.labels)
        size = np.maximum(whole.effective_counts[0], 1.0)

        def count(V: FloatArray) -> Means:
            sketches = self.walks.walk(unseen_part, merge_each, models, V, capacity)
            above = np.array([[sketch.quantile(1.0 - share) for sketch in fold] for fold in sketches])
            flagged = self.walks.walk(above_part, np.add, models, V, above, groups)
            for fold, weights in enumerate(V):
                inside = held.folds == fold
                by_all = models[fold].of_raw(self.raw[inside])
                for sign, (S, t) in ((-1.0, by_all), (1.0, (held.S[inside], held.t[inside]))):
                    over = (np.column_stack([S, t]) @ weights.T > above[fold]).astype(float)
                    flagged = flagged + sign * np.asarray(csc_array(phi[inside]).T @ over)
            rates = np.clip(flagged[:, 0] / np.maximum(whole.group_counts[0], 1e-9), 0.0, 1.0)
            return Means.of_rates(rates, size, held.sample.compared)

        return count

    def flags(self, model: ScoreModel, mixture: Mixture, share: float) -> tuple[float, FloatArray]:
        """Two passes: the threshold, then the rows above it; scores are written on the way."""
        rows, bare = self.rows, model.without_detectors()
        fair = self.walks.walk(fair_part, QuantileSketch.__add__, bare, mixture, _capacity(self.partitions, rows))
        above = self.ranks[0].quantile(1.0 - share), fair.quantile(1.0 - share)
        written = rows.groups.labels, self.partitions.scores_to, rows.grouping
        counts = self.walks.walk(flag_part, np.add, bare, mixture, above, *written)
        counts = counts[:-1] if rows.grouping is None else counts
        return above[1], counts[:, 1:] / np.maximum(counts[:, :1], 1e-9)


def _capacity(partitions: Partitions, rows: TrainingRows) -> int | None:
    """Of the sketches."""
    return None if rows.n_rows <= partitions.exact_rows else CAPACITY


def _seen(rows: TrainingRows) -> tuple[npt.NDArray[np.uint64], IntArray]:
    """The numbers of the reference's contents, rising, and a row of it for each."""
    return np.unique(content_in_group(rows.content, rows.groups.codes, rows.seed), return_index=True)


def _sums(
    rows: TrainingRows, settings: Settings, walks: Walks, models: Sequence[ScoreModel], ranks: Sequence[QuantileSketch]
) -> Cells:
    """Sums over all rows; groups whose rows all fall into one fold are refused: none of them can be left out."""
    names = rows.groups.labels if rows.grouping is None else rows.grouping.full_names
    sums = walks.walk(
        cells_part, Cells.__add__, light(models), ranks if settings.by_rank else None, rows.grouping or len(names)
    )
    filled = (sums.at(slice(3, None, 2)).group_counts > 0).sum(axis=0)
    if len(names) >= 2 and (filled < 2).any():
        raise InputError(
            "the rows of group {group!r} are all alike, so that none of them can be left out as unseen; set "
            "{@reference_size} to the number of rows or more, or leave this group out",
            group=names[int((filled < 2).argmax())],
        )
    return sums


def score_partitions(
    engine: Engine, fit: "FitResult", scores_to: Path, coder: Coder | None = None, device: str = "cpu"
) -> IntArray:
    """Write the scores of all rows, new ones too, into a folder: one file per partition (`parquet.scores_file`).

    ``coder`` names the groups where they are not values of columns, such as bands of a number. ``device`` is where
    detectors score, on the machine that has a partition. Returns the rows and flagged rows of each group of the fit,
    shape (G + 1, 2); the last entry is for rows of other groups, or of none.
    """
    labels = fit.groups.labels
    codes = {name: code for code, name in enumerate(labels)}
    machine: dict[str, Any] = {"n_threads": engine.n_threads, "device": device, "scratch": Path, "seed": 0}
    scorer = Scorer(fit.scores.pool, codes, coder=coder, resemblance=fit.scores.resemblance, **machine)
    walks = Walks(engine, engine.share(scorer), engine.share({}), kept=False)  # scored when they are walked through
    shared = fit.scores.without_detectors(), fit.mixture, (np.inf, fit.threshold), labels, scores_to
    return walks.walk(flag_part, np.add, *shared)[:, ::2].astype(np.intp)


def open_partitions(partitions: Partitions, settings: Settings) -> tuple[TrainingRows, Partitions | None]:
    """Check and count all rows, settle the groups, and draw the reference: all rows, or as many as memory takes.

    Partitions are None where the reference is all rows.
    """
    if settings.scaling != "minmax":  # its extremes merge without any rounding
        raise InputError(
            "{scaling=} needs all rows in memory; over partitions use {scaling='minmax'}", scaling=settings.scaling
        )
    engine, fairness, rules = partitions.engine, settings.fairness, settings.groups
    size, seed, exact = settings.reference_size, settings.seed, partitions.exact_rows
    counted: dict[str, Any] = {"rules": rules, "reference_size": size, "seed": seed}
    measured = settings.standardize and has_named(settings.detectors)
    survey = survey_rows(engine, **counted, measure=measured)
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} row(s) in all partitions; at least 2 are needed")
    if settings.learn:
        require_labels(survey.known)
    among = compared_rows(fairness, labelled=survey.known is not None)
    labelled = among != ["all"]
    learnt = Coder.learn(survey.sensitive, survey.given, rules, labelled=labelled, probable=survey.probable)
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
        units = learn_units(engine, survey.ranges, exact=survey.n_rows <= exact)
    if coder is not None or units is not None:
        survey = survey_rows(engine, **counted, coder=coder, units=units)
    if coder is not None:
        grouping = settle_grouping(coder, survey.combined, among, rules)
    counted_rules = of_crossings(rules, learnt)
    groups, counts = settle_groups(replace(survey, probable=probable), counted_rules, quiet=grouping is not None)
    drawn, complete = draw_reference(
        engine, survey, groups.code_of, counts, reference_size=size, seed=seed, coder=coder, units=units
    )
    rows = TrainingRows(
        drawn.X,
        Codes(drawn.codes, groups.labels, groups.left_out),
        drawn.labels,
        feature_names=column_names(engine.header),
        seed=seed,
        n_threads=settings.n_threads,
        doubt="probable" if probable and not partitions.sufficient else "",
    )
    rows = rows if grouping is None else rows.grouped(grouping, grouping.members(drawn.columns))
    if labelled:
        known = KnownLabels.of_columns(drawn.known)
        if known.propensity is not None and not complete:
            raise InputError(
                "{@label_propensity} with {fairness=} needs all rows in memory; raise {@reference_size}",
                fairness=next(notion.name for notion in fairness),
            )
        rows = rows.looked_at(known.labels, known.propensity)
    check_soft(fairness, None if grouping is None else grouping.compared)
    if complete:
        rows = replace(rows, known=KnownLabels.of_columns(drawn.known)) if settings.learn else rows
        return rows.in_units(settings), None
    if units is not None:
        units.warn_dropped(feature_labels(rows.feature_names, rows.X.shape[1]))
    return replace(rows, units=units, drawn_from=counts), replace(partitions, codes=groups.code_of)
