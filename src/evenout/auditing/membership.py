"""Who belongs where: the groups that are large enough to be compared, and clusters of rows that belong together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array

from evenout.core.exceptions import InputError
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.ruler import Sample
from evenout.core.sketch import QuantileSketch
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.inputs.coder import Attribute
from evenout.inputs.grouping import Coded
from evenout.inputs.groups import read_groups, settle_names

CURVE_POINTS = 12  # where the curve of a number is measured


@dataclass(frozen=True)
class Codes:
    """One code per row, 0.., -1 for none, and a name per code."""

    codes: IntArray
    names: tuple[str, ...]

    def of(self, rows: BoolArray) -> "Codes":
        """The same of some of the rows, by the codes that these have."""
        codes = self.codes[rows]
        used, place = np.unique(codes[codes >= 0], return_inverse=True)
        found = np.full(len(codes), -1, dtype=np.intp)
        found[codes >= 0] = place
        return Codes(found, tuple(self.names[u] for u in used))


class Curve(NamedTuple):
    """A number among the protected columns: where its curve is measured, and how much each row belongs there."""

    name: str
    knots: FloatArray
    members: Membership


@dataclass(frozen=True)
class Grouped:
    """How much each of n rows belongs to the groups that are compared.

    Parameters
    ----------
    names : tuple of str
    sample : Sample
        Rows, their weights and clusters.
    left_out : dict of str to float
        The size of each group that is too small.
    small : Membership or None
        How much rows belong to these.
    whole : bool
        Whether groups are hard, rows count alike and each cluster lies within a group: rows can be counted and drawn.
    curves : tuple of Curve
    """

    names: tuple[str, ...]
    sample: Sample
    left_out: dict[str, float]
    small: Membership | None
    whole: bool
    curves: tuple[Curve, ...] = ()

    @property
    def codes(self) -> IntArray:
        """The group that each row belongs to most, shape (n,); -1 for none."""
        return self.sample.members.codes

    def of(self, rows: BoolArray) -> "Grouped":
        """The same of some of the rows."""
        if rows.all():
            return self
        places = np.flatnonzero(rows)
        curves = tuple(curve._replace(members=curve.members.among(places)) for curve in self.curves)
        sample = self.sample.of(rows)
        if sample.clusters is not None:
            sample = replace(sample, clusters=np.unique(sample.clusters, return_inverse=True)[1])
        return replace(self, sample=sample, curves=curves)


def name_clusters(clusters: Any) -> IntArray:
    """Codes of clusters by value, such as a person's number: rows with the same value belong together.

    >>> name_clusters(["p7", "p3", "p7"])
    array([1, 0, 1])
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
    place = np.empty(len(values), dtype=np.intp)  # by name, so that the order of the rows does not matter
    place[np.argsort(np.array([str(value) for value in values], dtype=object), kind="stable")] = np.arange(len(values))
    return place[codes]


def group_rows(coded: Coded, clusters: IntArray | None, weight: FloatArray | None, rules: Mapping[str, Any]) -> Grouped:
    """The groups that are compared, and those that are too small, by the ``rules`` on small and unknown groups.

    A group is as large as the independent rows that it is worth, and no larger than the members that it is expected to
    have; where rows come in clusters, clusters are counted.
    """
    names, phi = _crossed(coded)
    unknown = np.asarray(phi.sum(axis=1)).ravel() == 0
    if (unknown.any() and rules["unknown_groups"] == "error") or unknown.all() or len(names) < 2:
        read_groups(coded.sensitive, len(unknown), min_group_size=1, unknown_groups=rules["unknown_groups"])
    every = Sample(Membership(phi, Comparison.of_all(len(names))), weight, clusters)
    nested = clusters is None or len(np.unique(clusters[~unknown])) == every.expected.sum()
    whole = coded.whole and weight is None and nested
    sizes = every.expected if whole else np.minimum(every.size, every.expected)
    tally = {name: max(int(size + 1e-9), 1) for name, size in zip(names, sizes, strict=True)}
    least, unit = rules["min_group_size"], "rows" if clusters is None else "clusters"
    small = {name for name, size in zip(names, sizes, strict=True) if size < least - 1e-9}
    if small and rules["small_groups"] == "error":
        named = ", ".join(f"{name!r} ({tally[name]})" for name in sorted(small)[:10])
        more = f" and {len(small) - 10} more" if len(small) > 10 else ""
        raise InputError(
            "{@sensitive_features} has groups of fewer than {min_group_size=} {unit}: {named}{more}; "
            "merge or bin values yourself, or set {small_groups='leave_out'} or {small_groups='merge'}",
            min_group_size=least, unit=unit, named=named, more=more,
        )  # fmt: skip
    groups, code_of = settle_names(tally, min_group_size=least, small_groups=rules["small_groups"])
    if len(groups.labels) < 2:
        named = ", ".join(f"{name!r} ({size})" for name, size in [*groups.left_out.items()][:10])
        named += f" and {len(groups.left_out) - 10} more" if len(groups.left_out) > 10 else ""
        raise InputError(
            "fewer than two groups have {min_group_size=} {unit} or more, so nothing can be compared; "
            "too small: {named}; lower {@min_group_size}, set {small_groups='merge'}, or give more rows",
            min_group_size=least, unit=unit, named=named,
        )  # fmt: skip
    place = np.array([code_of[name] for name in names], dtype=np.intp)
    kept, out = place >= 0, np.flatnonzero(place < 0)
    joined = csc_array(phi[:, kept] @ _indicator(place[kept], len(groups.labels)))
    joined.eliminate_zeros()
    members = Membership(joined, _compared(coded, len(groups.labels), whole or coded.whole))
    left = Membership(csc_array(phi[:, out]), Comparison.of_all(len(out))) if len(out) else None
    sized = {names[g]: float(sizes[g]) for g in out}
    return Grouped(groups.labels, replace(every, members=members), sized, left, whole, _curves(coded))


def _crossed(coded: Coded) -> tuple[list[str], csc_array]:
    """All groups of the protected columns, crossed, and how much each row belongs to each, shape (n, groups)."""
    coder, numbers = coded.coder, coded.numbers
    if coder.attributes[0].probable:
        return list(coder.attributes[0].values), csc_array(np.nan_to_num(numbers))
    own = zip(coder.attributes, coder.attribute_columns(), strict=True)
    corners = [attribute.corners(numbers[:, at]) for attribute, at in own]
    sizes = [len(attribute.values) for attribute in coder.attributes]
    rows, keys, shares = [], [], []
    for corner in product(*corners):
        key, share = np.zeros(len(numbers), dtype=np.intp), np.ones(len(numbers))
        for (values, weight), size in zip(corner, sizes, strict=True):
            key = np.where((key >= 0) & (values >= 0), key * size + values, -1)
            share = share if weight is None else share * weight
        rows.append(np.flatnonzero((key >= 0) & (share > 0)))
        keys.append(key[rows[-1]])
        shares.append(share[rows[-1]])
    found, columns = np.unique(np.concatenate(keys), return_inverse=True)
    at = np.concatenate(rows), columns
    phi = csc_array((np.concatenate(shares), at), shape=(len(numbers), len(found)))
    phi.sum_duplicates()
    values = np.stack(np.unravel_index(found, sizes), axis=1).tolist()
    named = [
        " & ".join(attribute.values[v] for attribute, v in zip(coder.attributes, combination, strict=True))
        for combination in values
    ]
    return named, phi


def _indicator(place: IntArray, width: int) -> csc_array:
    return csc_array((np.ones(len(place)), (np.arange(len(place)), place)), shape=(len(place), width))


def _compared(coded: Coded, n_groups: int, hard: bool) -> Comparison:
    """Each group with each other; bands of a number by their size."""
    if hard:
        return Comparison.of_all(n_groups)
    bands = any(attribute.knots is not None for attribute in coded.coder.attributes)
    overlaps = tuple((g, h) for g in range(n_groups) for h in range(g + 1, n_groups))
    return Comparison(n_groups, (Block(tuple(range(n_groups)), by_size=bands),), overlaps)


def _curves(coded: Coded) -> tuple[Curve, ...]:
    """Finer bands of each number, for its curve."""
    curves = []
    for attribute, at in zip(coded.coder.attributes, coded.coder.attribute_columns(), strict=True):
        if attribute.knots is not None:
            values = coded.numbers[:, at][:, 0]
            fine = Attribute.of_bands(attribute.name, QuantileSketch.of(values[~np.isnan(values)]), CURVE_POINTS)
            assert fine.knots is not None
            curves.append(Curve(attribute.name, fine.knots, Membership.of_bands(values, fine.knots)))
    return tuple(curves)
