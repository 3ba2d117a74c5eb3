"""The rows of a fit, cleaned: all rows, or a reference drawn from those of all partitions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evenout.core.cells import Cells, collect_cells
from evenout.core.content import N_FOLDS, assign_folds, row_numbers
from evenout.core.membership import AMONG, Comparison, Membership
from evenout.core.notions import Notion, pairs_notion
from evenout.core.ruler import Sample, balanced
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.pool import standard_units
from evenout.detectors.units import Units
from evenout.exceptions import InputError
from evenout.fitting.score_model import KnownLabels
from evenout.fitting.settings import Settings
from evenout.groups.giveaways import find_giveaways, read_attributes, warn_giveaways
from evenout.groups.model import LABELS, Grouping, read_crossed, read_grouping
from evenout.groups.read import Codes, GroupProbabilities
from evenout.tables.rows import (
    column_names,
    read_clusters,
    read_known_labels,
    read_sample_weight,
    refuse_lone_clusters,
    training_rows,
)


@dataclass(frozen=True)
class TrainingRows:
    """Rows to fit on, in memory.

    Parameters
    ----------
    X : array of shape (n, d)
    groups : Codes
    sensitive_features : object
        As given, for detectors that use the group.
    clusters : array of shape (n,) or None
        Codes of rows that belong together.
    sample_weight : array of shape (n,) or None
    soft : Membership or None
        How much each row belongs to each group that is compared; None: as ``groups`` says.
    grouping : Grouping or None
        Where ``soft`` comes from.
    known : KnownLabels or None
        Labels that the target learns from.
    feature_names : sequence of str or None
        Of the d columns, for the names of score columns.
    units : Units or None
        In which named pools see the rows.
    seed : int
        Of the folds.
    n_threads : int
        For passes over the rows; results do not depend on it.
    doubt : str
        See `evenout.core.ruler.Sample`.
    drawn_from : array of shape (G + 1,) or None
        Where these are drawn from more rows: how many each crossed group has and, last, how many are in none.
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
        """Clean what a user has given; the estimator is named in messages, and not touched."""
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
        probable = isinstance(sensitive_features, GroupProbabilities) and not sensitive_features.sufficient
        rows = cls(
            features,
            crossed.groups,
            crossed.sensitive,
            codes,
            weight,
            known=KnownLabels(*known) if known is not None and settings.learn else None,
            feature_names=column_names(X),
            seed=settings.seed,
            n_threads=settings.n_threads,
            doubt="probable" if probable else "",
        )
        rows = rows if grouping is None or soft is None else rows.grouped(grouping, soft)
        rows = rows if outcomes is None or known is None else rows.looked_at(*known)
        rows = rows.alike_in(crossed.coder.coarse(given, n))
        refuse_lone_clusters(rows.members, rows.names, codes, weight)
        return rows.in_units(settings)

    def grouped(self, grouping: Grouping, members: Membership) -> "TrainingRows":
        """The same where groups are others than hard, crossed ones."""
        groups = replace(self.groups, left_out=grouping.left_out)
        return replace(self, soft=members, grouping=grouping, groups=groups)

    def looked_at(self, labels: FloatArray, propensity: FloatArray | None) -> "TrainingRows":
        """The same where known outliers or inliers are compared: a row stands for those like it that were not seen.

        Where labels are some, and nobody knows how these were chosen, they say nothing of other rows.
        """
        if propensity is None or self.soft is None:
            partial = bool(np.isnan(labels).any())
            return replace(self, doubt=self.doubt or ("labels" if partial else ""))
        return replace(self, soft=self.soft.times(1.0 / propensity, LABELS))

    def alike_in(self, numbers: FloatArray | None) -> "TrainingRows":
        """The same where rows of a stratum still differ in some numbers, which may justify a difference too."""
        if numbers is None or self.soft is None:
            return self
        thinned = self.doubt == "probable"
        return replace(self, soft=balanced(self.soft, numbers, self.sample_weight, thinned=thinned))

    def in_units(self, settings: Settings) -> "TrainingRows":
        """The same with the units that they have given themselves, where features are to be standardised."""
        if not settings.standardize:
            return self
        units = standard_units(settings.detectors, self.X, self.feature_names, n_threads=self.n_threads)
        return replace(self, units=units)

    @property
    def n_rows(self) -> int:
        """All rows, in memory or not."""
        return len(self.X) if self.drawn_from is None else int(self.drawn_from.sum())

    @property
    def group_counts(self) -> IntArray:
        """Rows of each crossed group, in memory or not."""
        return self.groups.counts if self.drawn_from is None else self.drawn_from[:-1]

    @property
    def counts(self) -> IntArray:
        """Rows that each group that is compared has, or is expected to have, in memory or not."""
        if self.drawn_from is None:
            return expected_rows(self.members)
        return self.group_counts if self.grouping is None else self.grouping.counts

    @property
    def n_folds(self) -> int:
        """Few rows or clusters fill fewer than five."""
        return N_FOLDS if self.drawn_from is not None else int(self.folds.max()) + 1

    @cached_property
    def folds(self) -> IntArray:
        """The fold of each row, shape (n,): dealt evenly or, where there are more rows, by content alone."""
        if self.drawn_from is not None:
            return hashed_folds(self.content, self.seed)
        settings: dict[str, Any] = {"n_threads": self.n_threads}
        folds = assign_folds(self.content, self.groups.codes, N_FOLDS, self.seed, self.clusters, **settings)
        if self.members.n_groups >= 2 and folds.max() < 1:
            raise ValueError("clusters has too few values to leave some of them out; give finer ones")
        return folds

    @cached_property
    def members(self) -> Membership:
        """How much each row belongs to each group that is compared."""
        return self.soft or Membership.of_codes(self.groups.codes, len(self.groups.labels))

    @cached_property
    def sample(self) -> Sample:
        """How the rows are measured; weights that are all the same are none."""
        if self.drawn_from is not None:
            weight = stands_for(self.groups, self.group_counts, self.n_rows)
        else:
            given = self.sample_weight
            weight = None if given is None or bool((given == given[0]).all()) else given
        return Sample(self.members, weight, self.clusters, self.doubt)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the groups that are compared."""
        return self.groups.labels if self.grouping is None else self.grouping.full_names

    @cached_property
    def content(self) -> FloatArray:
        """The rows in their units, in which no unit moves a row to another fold or away from another row."""
        return self.X if self.units is None else self.units.apply(self.X, n_threads=self.n_threads)

    def warn_giveaways(self) -> None:
        """Warn of features that nearly tell the group; without names they are counted from 0."""
        found = find_giveaways(self.X, read_attributes(self.sensitive_features, self.groups.codes))
        warn_giveaways(found, self.feature_names or [f"feature {i}" for i in range(self.X.shape[1])])

    def cells(self, S: FloatArray, t: FloatArray, beta: FloatArray, of: BoolArray) -> Cells:
        """Sums over some of the rows as one set; ``beta`` has one number for each of them."""
        sums: dict[str, Any] = {"sample_weight": self.sample_weight, "clusters": self.clusters}
        weight, sets = np.zeros(len(of)), np.where(of, 0, -1)
        weight[of] = beta
        sums |= {"n_groups": self.members.n_groups, "n_sets": 1, "n_threads": self.n_threads}
        return collect_cells(S, t, weight, self.sample.joined, sets, **sums)


def hashed_folds(content: FloatArray, seed: int, n_folds: int = N_FOLDS) -> IntArray:
    """The fold of each row, by its content and the seed: rows need not be together to be dealt out."""
    return (row_numbers(content, seed) % np.uint64(n_folds)).astype(np.intp)


def compared_rows(fairness: Collection[Notion], *, labelled: bool) -> list[str]:
    """The rows that the notions compare: all, known outliers, known inliers."""
    wanted = {kind for notion in fairness for kind in getattr(notion, "among", ())} or {"all"}
    some = [n.name for n in fairness if n.needs_labels or getattr(n, "among", ("all",)) != ("all",)]
    if some and not labelled:
        raise InputError("{fairness=} compares rows of known outcome, but {@labels} is missing", fairness=some[0])
    return [kind for kind in AMONG if kind in wanted]


def check_soft(fairness: Collection[Notion], compared: Comparison | None) -> None:
    """Refuse what is about hard, crossed groups where the groups that are compared are others."""
    if compared is not None and (name := pairs_notion(fairness)):
        other = compared.beyond_crossed or "{@given}"  # one stratum with two groups
        raise InputError(
            f"{{fairness=}} compares rows of crossed groups, but {other} asks for other groups; leave one of them out",
            fairness=name,
        )


def stands_for(groups: Codes, counts: IntArray, n_rows: int) -> FloatArray | None:
    """How many rows each row in memory stands for, shape (n,); None if each stands for itself.

    Parameters
    ----------
    groups : Codes
        Of the rows in memory.
    counts : array of shape (G,)
        All rows of each group.
    n_rows : int
        All rows.
    """
    if n_rows == len(groups.codes):
        return None
    drawn = np.append(groups.counts, (groups.codes < 0).sum())
    rows = np.append(counts, n_rows - counts.sum())
    return (rows / np.maximum(drawn, 1))[groups.codes]


def expected_rows(members: Membership) -> IntArray:
    """Rows that each group is expected to have, rounded."""
    return np.rint(np.asarray(members.weights.sum(axis=0)).ravel()).astype(np.intp)
