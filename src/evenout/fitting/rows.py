"""The rows of a fit, cleaned: all rows, or a reference drawn from those of all partitions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evenout.core.cells import Cells, collect_cells
from evenout.core.content import N_FOLDS, assign_folds, row_numbers
from evenout.core.membership import AMONG, Comparison, Membership
from evenout.core.notions import Notion, pairs_notion
from evenout.core.ruler import Sample, balanced
from evenout.core.sketch import CAPACITY
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.pool import has_named, standard_units
from evenout.detectors.units import Units, feature_labels
from evenout.exceptions import InputError
from evenout.fitting.score_model import KnownLabels
from evenout.fitting.settings import Settings
from evenout.groups.model import (
    LABELS,
    Coder,
    Grouping,
    is_plain,
    of_crossings,
    read_crossed,
    read_grouping,
    settle_grouping,
)
from evenout.groups.read import Codes, GroupProbabilities
from evenout.out_of_core.engines import Engine
from evenout.out_of_core.survey import draw_reference, learn_units, settle_groups, survey_rows
from evenout.tables.rows import (
    column_names,
    read_clusters,
    read_known_labels,
    read_sample_weight,
    refuse_lone_clusters,
    require_labels,
    training_rows,
)

EXACT_ROWS = 1_000_000


@dataclass(frozen=True)
class TrainingRows:
    """Rows to fit on, in memory.

    Clusters are codes of rows that belong together. ``soft`` is how much each row belongs to each group that is
    compared, where that is more than the codes of ``groups``, and comes from ``grouping``. ``known`` are labels that
    the target learns from, ``units`` those in which named pools see the rows; ``sensitive_features``, as given, are for
    detectors that use the group. Folds go by the seed; results do not depend on threads. For ``doubt`` see
    `evenout.core.ruler.Sample`. Where these rows are drawn from more rows, ``drawn_from`` (G + 1,) is how many each
    crossed group has and, last, how many are in none.
    """

    X: FloatArray
    groups: Codes
    sensitive_features: Any
    clusters: IntArray | None = None
    sample_weight: FloatArray | None = None
    soft: Membership | None = None
    grouping: Grouping | None = None
    known: KnownLabels | None = None
    feature_names: Sequence[str] | None = None
    units: Units | None = None
    seed: int = 0
    n_threads: int = 1
    doubt: str = ""
    drawn_from: IntArray | None = None

    @classmethod
    def read(
        cls,
        estimator: Any,
        X: Any,
        settings: Settings,
        *,
        sensitive_features: Any,
        clusters: Any,
        sample_weight: Any,
        given: Any,
        labels: Any,
        label_propensity: Any,
    ) -> "TrainingRows":
        """Clean the arguments of `fit`; the estimator is named in messages, and not touched."""
        features = training_rows(estimator, X)
        n, fairness = len(features), settings.fairness
        known = read_known_labels(labels, label_propensity, n, learn=settings.learn)
        among = compared_rows(fairness, labelled=known is not None)
        outcomes = None if known is None or among == ["all"] else known[0]
        crossed = read_crossed(sensitive_features, settings.groups, n, rows=X, given=given, labels=outcomes)
        grouping = read_grouping(crossed, among, settings.groups)
        soft = None if grouping is None else grouping.members(crossed.numbers)
        check_soft(fairness, None if soft is None else soft.compared)
        codes = None if clusters is None else read_clusters(clusters, n)
        weight = None if sample_weight is None else read_sample_weight(sample_weight, n, fairness)
        rows = cls.of_groups(
            features,
            crossed.groups,
            crossed.sensitive,
            settings,
            grouping,
            soft,
            None if outcomes is None or known is None else KnownLabels(*known),
            probable=isinstance(sensitive_features, GroupProbabilities) and not sensitive_features.sufficient,
            clusters=codes,
            sample_weight=weight,
            known=KnownLabels(*known) if known is not None and settings.learn else None,
            feature_names=column_names(X),
        )
        numbers = crossed.coder.coarse(given, n)  # in which rows of a stratum still differ
        if numbers is not None and rows.soft is not None:
            rows = replace(rows, soft=balanced(rows.soft, numbers, weight, thinned=rows.doubt == "probable"))
        refuse_lone_clusters(rows.members, rows.names, codes, weight)
        return rows.in_units(settings)

    @classmethod
    def of_groups(
        cls,
        X: FloatArray,
        groups: Codes,
        sensitive_features: Any,
        settings: Settings,
        grouping: Grouping | None,
        soft: Membership | None,
        outcomes: KnownLabels | None,
        *,
        probable: bool,
        **more: Any,
    ) -> "TrainingRows":
        """Clean rows in their groups; ``outcomes`` are the labels where known outliers or inliers are compared.

        Each labelled row then stands for similar rows without a label. Where some rows are labelled, and nobody knows
        how they were chosen, labels say nothing about the others.
        """
        doubt = "probable" if probable else ""
        if grouping is not None:
            groups = replace(groups, left_out=grouping.left_out)
        if outcomes is not None and outcomes.propensity is not None and soft is not None:
            soft = soft.times(1.0 / outcomes.propensity, LABELS)
        elif outcomes is not None and np.isnan(outcomes.labels).any():
            doubt = doubt or "labels"
        return cls(
            X, groups, sensitive_features, soft=soft, grouping=grouping, seed=settings.seed,
            n_threads=settings.n_threads, doubt=doubt, **more,
        )  # fmt: skip

    def in_units(self, settings: Settings) -> "TrainingRows":
        """The rows with units learnt from them, where features are to be standardised."""
        if not settings.standardize:
            return self
        return replace(
            self, units=standard_units(settings.detectors, self.X, self.feature_names, n_threads=self.n_threads)
        )

    @property
    def n_rows(self) -> int:
        """All rows, in memory or not."""
        return len(self.X) if self.drawn_from is None else int(self.drawn_from.sum())

    @property
    def counts(self) -> IntArray:
        """Rows that each compared group has, or is expected to have, in memory or not."""
        if self.drawn_from is None:
            return np.rint(np.asarray(self.members.weights.sum(axis=0)).ravel()).astype(np.intp)
        return self.drawn_from[:-1] if self.grouping is None else self.grouping.counts

    @property
    def n_folds(self) -> int:
        """Folds that rows are held out in: five, fewer for few rows or clusters, none without two groups to compare."""
        if self.members.n_groups < 2:
            return 0
        return N_FOLDS if self.drawn_from is not None else int(self.folds.max()) + 1

    @cached_property
    def folds(self) -> IntArray:
        """The fold of each row, shape (n,): dealt evenly or, where there are more rows, by content alone."""
        if self.drawn_from is not None:
            return hashed_folds(self.content, self.seed)
        folds = assign_folds(
            self.content, self.groups.codes, N_FOLDS, self.seed, self.clusters, n_threads=self.n_threads
        )
        if self.members.n_groups >= 2 and folds.max() < 1:
            raise ValueError("clusters has too few values to leave some of them out; give finer ones")
        return folds

    @cached_property
    def members(self) -> Membership:
        """How much each row belongs to each compared group."""
        return self.soft or Membership.of_codes(self.groups.codes, len(self.groups.labels))

    @cached_property
    def sample(self) -> Sample:
        """How the rows are measured; weights that are all equal count as none."""
        if self.drawn_from is not None:
            weight = stands_for(self.groups, self.drawn_from[:-1], self.n_rows)
        else:
            given = self.sample_weight
            weight = None if given is None or bool((given == given[0]).all()) else given
        return Sample(self.members, weight, self.clusters, self.doubt)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the compared groups."""
        return self.groups.labels if self.grouping is None else self.grouping.full_names

    @cached_property
    def content(self) -> FloatArray:
        """The rows in their units: folds and distances do not depend on the units of X."""
        return self.X if self.units is None else self.units.apply(self.X, n_threads=self.n_threads)

    def cells(self, S: FloatArray, t: FloatArray, of: BoolArray, beta: FloatArray | None = None) -> Cells:
        """Sums over some of the rows as one set; ``beta`` has one number for each of them, by default 1."""
        weight, sets = np.zeros(len(of)), np.where(of, 0, -1)
        weight[of] = 1.0 if beta is None else beta
        return collect_cells(
            S, t, weight, self.sample.joined, sets, n_groups=self.members.n_groups, n_sets=1,
            sample_weight=self.sample_weight, clusters=self.clusters, n_threads=self.n_threads,
        )  # fmt: skip


@dataclass(frozen=True)
class Partitions:
    """Partitions, and how they are worked through.

    ``scratch`` returns the folder for kept scores. Up to ``exact_rows``, the ranks behind beta are exact; beyond, they
    come from a sketch. ``scores_to`` is an empty folder, reachable by all workers, for one file of scores per partition
    (`parquet.scores_file`). ``sufficient``: whether probabilities of groups, if any, are said to tell all that a score
    knows of them. ``codes`` are those of groups by name, once these are settled, and ``capacity`` is that of the
    sketches of all rows, once these are counted; None: they are exact.
    """

    engine: Engine
    scratch: Any
    exact_rows: int
    scores_to: Path | None
    sufficient: bool = False
    codes: Mapping[str, int] = field(default_factory=dict)
    capacity: int | None = None


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
    survey = survey_rows(engine, **counted, measure=settings.standardize and has_named(settings.detectors))
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} row(s) in all partitions; at least 2 are needed")
    if settings.learn:
        require_labels(survey.known)
    among = compared_rows(fairness, labelled=survey.known is not None)
    labelled = among != ["all"]
    learnt = Coder.learn(survey.sensitive, survey.given, rules, labelled=labelled, probable=survey.probable)
    if coarse := [cut.name for cut in learnt.cuts if cut.coarse]:
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
    groups, counts = settle_groups(
        replace(survey, probable=probable), of_crossings(rules, learnt), quiet=grouping is not None
    )
    drawn, complete = draw_reference(
        engine, survey, groups.code_of, counts, reference_size=size, seed=seed, coder=coder, units=units
    )
    known = KnownLabels.of_columns(drawn.known)
    if labelled and known.propensity is not None and not complete:
        raise InputError(
            "{@label_propensity} with {fairness=} needs all rows in memory; raise {@reference_size}",
            fairness=next(notion.name for notion in fairness),
        )
    check_soft(fairness, None if grouping is None else grouping.compared)
    rows = TrainingRows.of_groups(
        drawn.X,
        Codes(drawn.codes, groups.labels, groups.left_out),
        drawn.labels,
        settings,
        grouping,
        None if grouping is None else grouping.members(drawn.columns),
        known if labelled else None,
        probable=bool(probable) and not partitions.sufficient,
        feature_names=column_names(engine.header),
    )
    if complete:
        return replace(rows, known=known if settings.learn else None).in_units(settings), None
    if units is not None:
        units.warn_dropped(feature_labels(rows.feature_names, rows.X.shape[1]))
    capacity = None if counts.sum() <= exact else CAPACITY
    return replace(rows, units=units, drawn_from=counts), replace(partitions, codes=groups.code_of, capacity=capacity)


def hashed_folds(content: FloatArray, seed: int, n_folds: int = N_FOLDS) -> IntArray:
    """The fold of each row by its content and the seed alone, whatever other rows there are."""
    return (row_numbers(content, seed) % np.uint64(n_folds)).astype(np.intp)


def compared_rows(fairness: Collection[Notion], *, labelled: bool) -> list[str]:
    """The rows that the notions compare: all, known outliers, known inliers."""
    wanted = {kind for notion in fairness for kind in getattr(notion, "among", ())} or {"all"}
    some = [n.name for n in fairness if n.needs_labels or getattr(n, "among", ("all",)) != ("all",)]
    if some and not labelled:
        raise InputError("{fairness=} compares rows of known outcome, but {@labels} is missing", fairness=some[0])
    return [kind for kind in AMONG if kind in wanted]


def check_soft(fairness: Collection[Notion], compared: Comparison | None) -> None:
    """Refuse notions of hard, crossed groups where other groups are compared."""
    if compared is not None and (name := pairs_notion(fairness)):
        other = compared.beyond_crossed or "{@given}"  # one stratum with two groups
        raise InputError(
            f"{{fairness=}} compares rows of crossed groups, but {other} asks for other groups; leave one of them out",
            fairness=name,
        )


def stands_for(groups: Codes, counts: IntArray, n_rows: int) -> FloatArray | None:
    """How many rows each row in memory stands for, shape (n,); None if each stands for itself.

    ``groups`` are those of the rows in memory, ``counts`` (G,) and ``n_rows`` count all rows.
    """
    if n_rows == len(groups.codes):
        return None
    drawn = np.append(groups.counts, (groups.codes < 0).sum())
    rows = np.append(counts, n_rows - counts.sum())
    return (rows / np.maximum(drawn, 1))[groups.codes]
