"""More rows than memory: a reference in memory; extremes, sums and flags of all rows by passes over partitions.

Detectors are fitted on the reference (`evenout.partitions.reference`). What is said of unseen rows must not rest on
rows that a detector has seen: a row of the reference is scored by detectors without its fold, and any other row by all
detectors, none of which has seen it. The same holds for the classifiers of resemblance, in sums over all rows too.
Scaling, base ensemble and weights are learnt without the fold for all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from evenout.core.cells import Cells
from evenout.core.exceptions import InputError
from evenout.core.flags import FlagRows, flagged_share
from evenout.core.folds import N_FOLDS, row_numbers
from evenout.core.parity import effective_sizes
from evenout.core.problem import Mixture
from evenout.core.ruler import Means, Sample
from evenout.core.scaling import learn_scaling
from evenout.core.sketch import CAPACITY, QuantileSketch
from evenout.core.stacking import Population
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.parts import Without
from evenout.detectors.pool import FittedPool
from evenout.fitting.even import Counter
from evenout.fitting.passes import Walks, ranks_weights, score_all, score_anew
from evenout.fitting.resemblance import Resemblance
from evenout.fitting.scorer import Scorer, content_in_group, hashed_folds
from evenout.fitting.scores import ScoreModel, learn_scores
from evenout.fitting.sources import TrainingRows, View, stands_for
from evenout.fitting.teaching import gather, teach
from evenout.inputs.coder import Coder
from evenout.inputs.grouping import Grouping
from evenout.partitions.engines import Engine
from evenout.partitions.reference import Settled

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
        self, pool: FittedPool, raw: FloatArray, without: Without, resemblance: Resemblance | None = None
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
        _check_folds(sums.at(slice(3, None, 2)), names if self.grouping is None else self.grouping.names)
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
        size = np.maximum(effective_sizes(whole)[0], 1.0)

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
    """Write the scores of all rows, new ones too, into a folder: one file per partition (`parquet.ScoresFile`).

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
