"""Who belongs where: the groups that are large enough to be compared, and clusters of rows that belong together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from evenout.core.exceptions import InputError
from evenout.core.membership import Membership
from evenout.core.sketch import QuantileSketch
from evenout.core.types import FloatArray, IntArray
from evenout.inputs.coder import Attribute
from evenout.inputs.grouping import Coded, count_rows, settle
from evenout.inputs.groups import Groups, read_groups
from evenout.inputs.probable import GroupProbabilities

CURVE_POINTS = 12  # where the curve of a number is measured


@dataclass(frozen=True)
class Codes:
    """One code per row, 0.., and a name per code."""

    codes: IntArray
    names: tuple[str, ...]


class Curve(NamedTuple):
    """A number among the protected columns: where its curve is measured, and how much each row belongs there."""

    name: str
    knots: FloatArray
    members: Membership


@dataclass(frozen=True)
class Soft:
    """How much rows belong to groups that may share rows: bands of a number, or groups known by probability.

    Parameters
    ----------
    members : Membership
    names : tuple of str
    curves : tuple of Curve
        One for each number.
    probable : GroupProbabilities or None
    """

    members: Membership
    names: tuple[str, ...]
    curves: tuple[Curve, ...] = ()
    probable: GroupProbabilities | None = None

    @classmethod
    def of(cls, sensitive: Any, coded: Coded, parameters: Mapping[str, Any]) -> "Soft":
        """By the groups that are large enough to be compared."""
        coder, numbers = coded.coder, coded.numbers
        grouping = settle(coder, count_rows(coder, numbers), ["all"], parameters)
        curves = []
        for attribute, at in zip(coder.attributes, coder.attribute_columns(), strict=True):
            if attribute.knots is not None:
                values = numbers[:, at][:, 0]
                fine = Attribute.of_bands(attribute.name, QuantileSketch.of(values[~np.isnan(values)]), CURVE_POINTS)
                assert fine.knots is not None
                curves.append(Curve(attribute.name, fine.knots, Membership.of_bands(values, fine.knots)))
        probable = sensitive if isinstance(sensitive, GroupProbabilities) else None
        return cls(grouping.members(numbers), grouping.names, tuple(curves), probable)

    def among(self, rows: IntArray) -> "Soft":
        """The same of some of the rows, which are in order."""
        curves = [curve._replace(members=curve.members.among(rows)) for curve in self.curves]
        return replace(self, members=self.members.among(rows), curves=tuple(curves))


def name_clusters(clusters: Any) -> Codes:
    """Clusters by value, such as a person's number: rows with the same value belong together.

    >>> name_clusters(["p7", "p3", "p7"])
    Codes(codes=array([1, 0, 1]), names=('p3', 'p7'))
    """
    import pandas as pd

    dimensions = getattr(clusters, "ndim", 1)
    if isinstance(clusters, str) or dimensions != 1:
        raise ValueError(f"clusters must hold one value per row, shape (n,), got {dimensions} dimensions")
    try:
        codes, values = pd.factorize(pd.Series(clusters).astype(object), use_na_sentinel=True)
    except TypeError:  # what has no hash cannot be told apart
        raise InputError("{@clusters} holds lists or other nested values; give one value per row") from None
    if (codes < 0).any():
        raise InputError(
            "{@clusters} has missing values in {unknown} of {n_rows} rows (first: {#row}); "
            "give a row that belongs to no other a value of its own",
            unknown=(codes < 0).sum(), n_rows=len(codes), row=(codes < 0).argmax(),
        )  # fmt: skip
    names = np.array([str(value) for value in values], dtype=object)
    order = np.argsort(names, kind="stable")
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return Codes(place[codes], tuple(names[order]))


def compared_groups(
    sensitive_features: Any,
    scores: FloatArray,
    clusters: Codes | None,
    *,
    min_group_size: int,
    small_groups: str,
    unknown_groups: str,
) -> tuple[Groups, dict[str, FloatArray]]:
    """The groups that are compared, and the scores of those that are too small, by name.

    Where rows come in clusters, a group is as large as its number of clusters.
    """
    every = read_groups(sensitive_features, len(scores), min_group_size=1, unknown_groups=unknown_groups)
    names = np.array([*every.labels, None], dtype=object)
    unit, of_unit, first = "rows", np.arange(len(scores)), np.arange(len(scores))
    if clusters is not None:
        unit, of_unit = "clusters", clusters.codes
        first = _first_known(every, clusters)
    groups = read_groups(
        names[every.codes[first]],
        len(first),
        min_group_size=min_group_size,
        small_groups=small_groups,
        unknown_groups=unknown_groups,
        unit=unit,
    )
    if len(groups.labels) < 2:
        named = ", ".join(f"{name!r} ({size})" for name, size in [*groups.left_out.items()][:10])
        named += f" and {len(groups.left_out) - 10} more" if len(groups.left_out) > 10 else ""
        raise InputError(
            "fewer than two groups have {min_group_size=} {unit} or more, so nothing can be compared; "
            "too small: {named}; lower {@min_group_size}, set {small_groups='merge'}, or give more rows",
            min_group_size=min_group_size, unit=unit, named=named,
        )  # fmt: skip
    codes = np.where(every.codes >= 0, groups.codes[of_unit], -1)
    left_out = {name: scores[every.codes == every.labels.index(name)] for name in groups.left_out}
    return Groups(codes, groups.labels, groups.left_out), left_out


def _first_known(groups: Groups, clusters: Codes) -> IntArray:
    """A row of each cluster, one with a known group if there is any; all known ones must be of one group."""
    order = np.lexsort((groups.codes < 0, clusters.codes))
    _, start = np.unique(clusters.codes[order], return_index=True)
    first = order[start]
    mixed = (groups.codes >= 0) & (groups.codes != groups.codes[first[clusters.codes]])
    if mixed.any():
        row = int(mixed.argmax())
        cluster = clusters.codes[row]
        both = [groups.labels[groups.codes[i]] for i in (first[cluster], row)]
        raise ValueError(
            f"the rows of cluster {clusters.names[cluster]!r} are of different groups ({both[0]!r} and {both[1]!r}); "
            "a cluster must lie within one group, because it is drawn and shuffled as a whole"
        )
    return first
