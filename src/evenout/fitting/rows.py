"""The rows of a fit: all in memory, or a reference and what lies beyond it.

The two differ in how extremes, sums and flags of all rows are found. That is what `Source` and `Views` are for; every
other step of a fit is written once, in `evenout.fitting.fit`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from joblib import effective_n_jobs

from evenout.core.cells import Cells, collect_cells, rank_weights
from evenout.core.content import N_FOLDS, assign_folds
from evenout.core.flags import FlagRows, flagged_share, top_threshold
from evenout.core.membership import AMONG, Comparison, Membership
from evenout.core.notions import Notion, pairs_notion
from evenout.core.problem import Mixture
from evenout.core.ruler import Sample, balanced
from evenout.core.sketch import QuantileSketch
from evenout.core.stacking import label_coverage
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.family import Without
from evenout.detectors.pool import FittedPool, standard_units
from evenout.detectors.units import Units
from evenout.exceptions import InputError
from evenout.fitting.choose import Counter
from evenout.fitting.resemblance import FittedResemblance
from evenout.fitting.score_model import KnownLabels, ScoreModel, learn_on
from evenout.groups.giveaways import find_giveaways, read_attributes, warn_giveaways
from evenout.groups.model import LABELS, Coder, Grouping, read_crossed, read_grouping
from evenout.groups.read import Codes, GroupProbabilities
from evenout.groups.rules import Groups
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
    """Rows to fit on, cleaned.

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
    coder : Coder or None
        What tells the groups of rows over partitions, where they are not hard, crossed groups.
    known : KnownLabels or None
        Labels that the target learns from.
    feature_names : sequence of str or None
        Of the d columns, for the names of score columns.
    soft_names : tuple of str
        Of the groups of ``soft``.
    units : Units or None
        In which named pools see the rows.
    n_threads : int
        For passes over the rows; results do not depend on it.
    doubt : str
        See `evenout.core.ruler.Sample`.
    """

    X: FloatArray
    groups: Codes
    sensitive_features: Any
    clusters: IntArray | None = None
    sample_weight: FloatArray | None = None
    soft: Membership | None = None
    coder: Coder | None = None
    known: KnownLabels | None = None
    feature_names: Sequence[str] | None = None
    soft_names: tuple[str, ...] = ()
    units: Units | None = None
    n_threads: int = 1
    doubt: str = ""

    @classmethod
    def read(
        cls,
        estimator: Any,
        X: Any,
        parameters: Mapping[str, Any],
        fairness: Collection[Notion],
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
        n = len(features)
        known = read_known_labels(labels, label_propensity, n, learn=parameters["learn"])
        among = compared_rows(fairness, labelled=known is not None)
        outcomes = None if known is None or among == ["all"] else known[0]
        doubt = "probable" if in_doubt(sensitive_features) else ""
        rules: Groups = parameters["groups"]
        crossed = read_crossed(sensitive_features, rules, n, rows=X, given=given, labels=outcomes)
        grouping, groups = read_grouping(crossed, among, rules), crossed.groups
        soft = None if grouping is None else grouping.members(crossed.numbers)
        check_soft(fairness, None if soft is None else soft.compared)
        codes = None if clusters is None else read_clusters(clusters, n)
        weight = None if sample_weight is None else read_sample_weight(sample_weight, n, fairness)
        taught = KnownLabels(*known) if known is not None and parameters["learn"] else None
        rows = cls(features, groups, crossed.sensitive, codes, weight, known=taught, feature_names=column_names(X))
        rows = rows if grouping is None or soft is None else rows.grouped(grouping, soft)
        rows = replace(rows, doubt=doubt)
        rows = rows if outcomes is None or known is None else rows.looked_at(*known)
        rows = rows.alike_in(crossed.coder.coarse(given, n))
        refuse_lone_clusters(rows.members, rows.names, codes, weight)
        return rows.measured(parameters)

    def grouped(self, grouping: Grouping, members: Membership, coder: Coder | None = None) -> "TrainingRows":
        """The same where groups are others than hard, crossed ones."""
        groups = replace(self.groups, left_out=grouping.left_out)
        return replace(self, soft=members, soft_names=grouping.full_names, groups=groups, coder=coder)

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

    @cached_property
    def members(self) -> Membership:
        """How much each row belongs to each group that is compared."""
        return self.soft or Membership.of_codes(self.groups.codes, len(self.groups.labels))

    @cached_property
    def sample(self) -> Sample:
        """How the rows are measured; weights that are all the same are none."""
        weight = self.sample_weight
        alike = weight is None or bool((weight == weight[0]).all())
        return Sample(self.members, None if alike else weight, self.clusters, self.doubt)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the groups that are compared."""
        return self.groups.labels if self.soft is None else self.soft_names

    def measured(self, parameters: Mapping[str, Any]) -> "TrainingRows":
        """The same with the units that they have given themselves, where features are to be standardised."""
        n_threads, units = effective_n_jobs(parameters["n_jobs"]), None
        if parameters["standardize"]:
            units = standard_units(parameters["detectors"], self.X, self.feature_names, n_threads=n_threads)
        return replace(self, units=units, n_threads=n_threads)

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


def compared_rows(fairness: Collection[Notion], *, labelled: bool) -> list[str]:
    """The rows that the notions compare: all, known outliers, known inliers."""
    wanted = {kind for notion in fairness for kind in getattr(notion, "among", ())} or {"all"}
    some = [n.name for n in fairness if n.needs_labels or getattr(n, "among", ("all",)) != ("all",)]
    if some and not labelled:
        raise InputError("{fairness=} compares rows of known outcome, but {@labels} is missing", fairness=some[0])
    return [kind for kind in AMONG if kind in wanted]


def in_doubt(sensitive: Any) -> bool:
    """Whether groups are known by probabilities that need not tell all that a score knows of them."""
    return isinstance(sensitive, GroupProbabilities) and not sensitive.sufficient


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


class View(NamedTuple):
    """What was learnt on all rows, or without a fold, and what it makes of the rows in memory: S (n, k) and t (n,).

    ``coverage`` is that of the labels it has learnt from (`label_coverage`).
    """

    model: ScoreModel
    S: FloatArray
    t: FloatArray
    coverage: float = 1.0


class Views(Protocol):
    """All rows, as seen by what was learnt on all of them (fold -1) and without each fold."""

    def learn(self, fold: int) -> View:
        """Learn scaling and base ensemble, from raw scores by detectors without the fold."""
        ...

    def cells(self, fold: int, view: View, of: BoolArray, *, inside: bool) -> Cells:
        """Sums over all rows inside of the fold, or outside; ``of`` marks them among the rows in memory."""
        ...

    def rank_map(self, fold: int, view: View, of: BoolArray) -> QuantileSketch | None:
        """The base score of the rows that a view was learnt on, by which their weights go; None: all count alike."""
        ...

    def before_labels(self, view: View) -> Cells:
        """Sums over all rows, as they are where the base score has not learnt from labels."""
        ...

    def flags(self, view: View, mixture: Mixture) -> tuple[float, FloatArray]:
        """The threshold of the fair score, and the share of each group that base and fair score flag, (G, 2)."""
        ...

    @property
    def rank_error(self) -> float:
        """What ranks may be off, as a share of the rows."""
        ...

    def counter(self, seen: FlagRows) -> Counter | None:
        """What counts whom weights of each fold flag among all rows; None if all of them are in memory, ``seen``."""
        ...


class Source(Protocol):
    """Where rows come from.

    ``rows`` are those in memory, and ``folds`` (n,) their folds, of which there are ``n_folds``; ``sample`` says how
    they are measured. ``counts`` (G,) are the rows that each group that is compared has, or is expected to have,
    ``group_counts`` those of each crossed group, and ``n_rows`` all rows, in memory or not.
    """

    @property
    def rows(self) -> TrainingRows: ...  # noqa: D102
    @property
    def folds(self) -> IntArray: ...  # noqa: D102
    @property
    def n_folds(self) -> int: ...  # noqa: D102
    @property
    def sample(self) -> Sample: ...  # noqa: D102
    @property
    def counts(self) -> IntArray: ...  # noqa: D102
    @property
    def group_counts(self) -> IntArray: ...  # noqa: D102
    @property
    def n_rows(self) -> int: ...  # noqa: D102

    def views(
        self, pool: FittedPool, raw: FloatArray, without: Without, resemblance: FittedResemblance | None = None
    ) -> Views:
        """See all rows through fitted detectors, whose raw scores of the rows in memory are given, as those without."""
        ...


@dataclass(frozen=True)
class Memory:
    """All rows are in memory."""

    rows: TrainingRows
    parameters: Mapping[str, Any]
    folds: IntArray
    seed: int

    @classmethod
    def of(cls, rows: TrainingRows, parameters: Mapping[str, Any], seed: int) -> "Memory":
        """Deal the rows into folds."""
        folds = assign_folds(rows.content, rows.groups.codes, N_FOLDS, seed, rows.clusters, n_threads=rows.n_threads)
        if rows.members.n_groups >= 2 and folds.max() < 1:
            raise ValueError("clusters has too few values to leave some of them out; give finer ones")
        return cls(rows, parameters, folds, seed)

    @property
    def n_folds(self) -> int:
        """Few rows or clusters fill fewer than five."""
        return int(self.folds.max()) + 1

    @property
    def sample(self) -> Sample:
        """How the rows are measured."""
        return self.rows.sample

    @property
    def counts(self) -> IntArray:
        """Rows that each group is expected to have."""
        return expected_rows(self.rows.members)

    @property
    def group_counts(self) -> IntArray:
        """Rows of each crossed group."""
        return self.rows.groups.counts

    @property
    def n_rows(self) -> int:
        """All rows."""
        return len(self.rows.X)

    def views(
        self, pool: FittedPool, raw: FloatArray, without: Without, resemblance: FittedResemblance | None = None
    ) -> "MemoryViews":
        """See `Source`."""
        return MemoryViews(self, pool, raw, without, resemblance)


@dataclass(frozen=True)
class MemoryViews:
    """What detectors make of rows in memory; see `Views`."""

    source: Memory
    pool: FittedPool
    raw: FloatArray
    without: Without
    resemblance: FittedResemblance | None = None
    rank_error = 0.0

    def learn(self, fold: int) -> View:
        """See `Views`."""
        raw = self.raw if fold < 0 else self.without(fold)
        settings: dict[str, Any] = {name: self.source.parameters[name] for name in ("scaling", "combination")}
        outside, rows = self.source.folds != fold, self.source.rows
        settings |= {"seed": self.source.seed, "resemblance": self.resemblance, "n_threads": rows.n_threads}
        model, S, t = learn_on(self.pool, raw, outside, **settings)
        if rows.known is None:
            return View(model, S, t)
        weight, known = None if rows.sample_weight is None else rows.sample_weight[outside], rows.known.of(outside)
        coverage = label_coverage(t[outside], known.labels, known.propensity)
        model = model.taught(S[outside], t[outside], known, coverage=coverage, weight=weight)
        return View(model, S, model.base(S), coverage)

    def cells(self, fold: int, view: View, of: BoolArray, *, inside: bool) -> Cells:  # noqa: ARG002
        """See `Views`."""
        weight = self.source.rows.sample_weight
        beta = np.ones(int(of.sum()))
        if self.source.parameters["weighting"] == "rank" and len(beta):
            beta = rank_weights(view.t[of], None if weight is None else weight[of])
        return self.source.rows.cells(view.S, view.t, beta, of)

    def rank_map(self, fold: int, view: View, of: BoolArray) -> QuantileSketch | None:  # noqa: ARG002
        """See `Views`."""
        by_rank = self.source.parameters["weighting"] == "rank"
        return QuantileSketch.of(view.t[of], None) if by_rank else None

    def before_labels(self, view: View) -> Cells:
        """See `Views`."""
        n = len(view.S)
        return self.source.rows.cells(view.S, view.model.untaught().base(view.S), np.ones(n), np.ones(n, dtype=bool))

    def counter(self, seen: FlagRows) -> None:  # noqa: ARG002
        """See `Views`."""
        return

    def flags(self, view: View, mixture: Mixture) -> tuple[float, FloatArray]:
        """See `Views`."""
        both, sample = np.column_stack([view.t, mixture.apply(view.S, view.t)]), self.source.sample
        share = flagged_share(self.source.parameters["contamination"], len(both))
        above = top_threshold(both, share, sample.weight)
        return float(above[1]), sample.means(both > above)
