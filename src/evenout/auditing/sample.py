"""What is audited: scores, groups, labels, strata, clusters and weights, checked once."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array

from evenout.core.flags import flag_threshold, flagged_share, weighted_quantile
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.ruler import Sample
from evenout.core.sketch import QuantileSketch
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError, Message
from evenout.groups.model import Attribute, Coded, cross, read_coded
from evenout.groups.read import GroupProbabilities, group_name, label_rows, read_groups, settle, shuffled
from evenout.groups.rules import Groups
from evenout.metrics import read_labels
from evenout.tables.rows import (
    LARGEST,
    read_clusters,
    read_numbers,
    read_outcomes,
    read_propensity,
    read_sample_weight,
    refuse_lone_propensity,
)

if TYPE_CHECKING:
    import pandas as pd


CURVE_POINTS = 12  # where the curve of a number is measured


@dataclass(frozen=True)
class Strata:
    """One code per row, 0.., -1 for none, and a name per code."""

    codes: IntArray
    names: tuple[str, ...]

    def of(self, rows: BoolArray) -> "Strata":
        """The same of some of the rows, by the codes that these have."""
        codes = self.codes[rows]
        used, place = np.unique(codes[codes >= 0], return_inverse=True)
        found = np.full(len(codes), -1, dtype=np.intp)
        found[codes >= 0] = place
        return Strata(found, tuple(self.names[u] for u in used))


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


def group_rows(coded: Coded, clusters: IntArray | None, weight: FloatArray | None, rules: Groups) -> Grouped:
    """The groups that are compared, and those that are too small, by the ``rules`` on small and unknown groups.

    A group is as large as the independent rows that it is worth, and no larger than the members that it is expected to
    have; where rows come in clusters, clusters are counted.
    """
    names, phi = _crossed(coded)
    unknown = np.asarray(phi.sum(axis=1)).ravel() == 0
    if (unknown.any() and rules.unknown == "error") or unknown.all() or len(names) < 2:
        read_groups(coded.sensitive, len(unknown), rules.but(min_size=1))
    every = Sample(Membership(phi, Comparison.of_all(len(names))), weight, clusters)
    nested = clusters is None or len(np.unique(clusters[~unknown])) == every.expected.sum()
    whole = coded.whole and weight is None and nested
    sizes = every.expected if whole else np.minimum(every.size, every.expected)
    tally = {name: max(int(size + 1e-9), 1) for name, size in zip(names, sizes, strict=True)}
    least, unit = rules.min_size, "rows" if clusters is None else "clusters"
    groups = settle(tally, rules, unit)
    if len(groups.labels) < 2:
        named = ", ".join(f"{name!r} ({size})" for name, size in [*groups.left_out.items()][:10])
        named += f" and {len(groups.left_out) - 10} more" if len(groups.left_out) > 10 else ""
        raise InputError(
            "fewer than two groups have {least} {unit} or more, so nothing can be compared; "
            "too small: {named}; lower {@min_size}, set {small='merge'}, or give more rows",
            least=least, unit=unit, named=named,
        )  # fmt: skip
    place = np.array([groups.code_of[name] for name in names], dtype=np.intp)
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
    sizes = [len(attribute.values) for attribute in coder.attributes]
    rows, keys, shares = [], [], []
    for corner in product(*coder.corners(numbers)):
        key, weight = cross(corner, sizes)
        share = np.ones(len(numbers)) if weight is None else weight
        rows.append(np.flatnonzero((key >= 0) & (share > 0)))
        keys.append(key[rows[-1]])
        shares.append(share[rows[-1]])
    found, columns = np.unique(np.concatenate(keys), return_inverse=True)
    at = np.concatenate(rows), columns
    phi = csc_array((np.concatenate(shares), at), shape=(len(numbers), len(found)))
    phi.sum_duplicates()
    values = np.stack(np.unravel_index(found, sizes), axis=1).tolist()
    named = [
        group_name(
            [attribute.name for attribute in coder.attributes],
            [attribute.values[v] for attribute, v in zip(coder.attributes, combination, strict=True)],
        )
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
    for attribute, numbers in coded.coder.by_attribute(coded.numbers):
        if attribute.knots is not None:
            values = numbers[:, 0]
            fine = Attribute.of_bands(attribute.name, QuantileSketch.of(values[~np.isnan(values)]), CURVE_POINTS)
            assert fine.knots is not None
            curves.append(Curve(attribute.name, fine.knots, Membership.of_bands(values, fine.knots)))
    return tuple(curves)


@dataclass(frozen=True, eq=False)
class AuditedAttribute:
    """One protected attribute, or all of them crossed.

    ``codes`` has the place of each row's group in ``names``, -1 where it is unknown.
    """

    name: str
    codes: IntArray
    names: tuple[str, ...]

    def members(self, group: int) -> BoolArray:
        """Whether each row belongs to a group."""
        return self.codes == group


@dataclass(frozen=True, eq=False)
class Everyone:
    """All rows, also those that are not compared because their group is small or unknown.

    Parameters
    ----------
    scores : array of shape (n,)
    flagged : array of shape (n,)
    attributes : tuple of Attribute
        Each column of the sensitive features and, if there are several, last, all crossed.
    strata : Strata or None
    clustered : bool
        Whether rows belong together, so that they are no independent people.
    """

    scores: FloatArray
    flagged: BoolArray
    attributes: tuple[AuditedAttribute, ...]
    strata: Strata | None
    clustered: bool


def read_attributes(sensitive_features: Any, n_rows: int) -> tuple[AuditedAttribute, ...]:
    """The attributes of rows whose groups have been checked.

    >>> [(a.name, a.names) for a in read_attributes([["f", "old"], ["m", "old"]], 2)]
    [('attribute 1', ('f', 'm')), ('attribute 2', ('old',)), ('all crossed', ('f & old', 'm & old'))]
    """
    import pandas as pd

    frame = pd.DataFrame(sensitive_features).reset_index(drop=True)
    plain = [isinstance(name, str) and bool(name) for name in frame.columns]
    names = [str(name) if all(plain) else f"attribute {j + 1}" for j, name in enumerate(frame.columns)]
    if len(names) == 1:
        return (_attribute("group" if not plain[0] else names[0], frame, n_rows),)
    each = [_attribute(name, frame.iloc[:, [j]], n_rows) for j, name in enumerate(names)]
    return (*each, _attribute("all crossed" if not all(plain) else " & ".join(names), frame, n_rows))


def _attribute(name: str, columns: "pd.DataFrame", n_rows: int) -> AuditedAttribute:
    groups = label_rows(columns, n_rows, unknown="ignore")
    return AuditedAttribute(name, groups.codes, groups.labels)


STRATUM_BINS = 5  # a numeric column with more distinct values is cut at its quantiles into so many strata
_SMALLEST = 1e-150  # squares of smaller differences leave the range of numbers
_MOST_PARTS = 125  # that numbers are cut into together: fewer each, the more there are
_COARSE = 0.05  # rows that tie at the threshold, of those to be flagged: from here on the score has steps
MAX_CATEGORIES = 50  # a text column with more distinct values says who, not what


@dataclass(frozen=True)
class Labels:
    """Known labels: 1, 0, or NaN where nobody looked, shape (n,).

    ``weight`` is one over the chance that a row was looked at; None where all rows have a label, or nobody knows the
    chances: then, if ``partial``, what is measured is about the rows with a label alone.
    """

    values: FloatArray
    weight: FloatArray | None
    partial: bool

    @property
    def chosen(self) -> bool:
        """Whether somebody chose the rows, in a way that nobody tells."""
        return self.partial and self.weight is None

    def of(self, rows: BoolArray) -> "Labels":
        """The same of some of the rows."""
        return Labels(self.values[rows], None if self.weight is None else self.weight[rows], self.partial)


@dataclass(frozen=True)
class Alike:
    """Strata of rows alike in what was given, -1 for none, and the numbers that rows of one still differ in."""

    strata: Strata
    numbers: FloatArray | None
    named: tuple[str, ...]

    def of(self, rows: BoolArray) -> "Alike":
        """The same of some of the rows."""
        return Alike(self.strata.of(rows), None if self.numbers is None else self.numbers[rows], self.named)


class Flags(NamedTuple):
    """Who is flagged, shape (n,).

    ``fixed`` says whether the rule is fixed in advance, as by a threshold, and not by these rows' share. ``words`` say
    what rule it is, where it is not the share that was asked for.
    """

    flagged: BoolArray
    fixed: bool
    words: str = ""


@dataclass(frozen=True)
class AuditInputs:
    """What is audited: n rows with a score and a group each; labels, features and strata where given.

    ``background`` has the scores of rows that are not compared, because their group is unknown or small: they count
    towards the share flagged alone. ``left_out`` has rows and flagged rows of small groups, by name. ``grouped`` says
    how much rows belong to groups; ``codes`` is what they belong to most. ``everyone`` has all rows, compared or not,
    for tables.
    """

    scores: FloatArray
    grouped: Grouped
    flags: Flags
    labels: Labels | None
    features: "pd.DataFrame | None"
    alike: Alike | None
    background: FloatArray
    left_out: dict[str, tuple[int, int]]
    notes: tuple[str, ...]
    probable: GroupProbabilities | None
    everyone: Everyone | None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the groups."""
        return self.grouped.names

    @cached_property
    def codes(self) -> IntArray:
        """The group that each row belongs to most, shape (n,)."""
        return self.grouped.codes

    @cached_property
    def counts(self) -> IntArray:
        """Rows of each group, shape (G,); those expected, where groups share rows."""
        return np.rint(np.asarray(self.sample.members.weights.sum(axis=0)).ravel()).astype(np.intp)

    @property
    def sample(self) -> Sample:
        """The rows as they are measured."""
        return self.grouped.sample

    @property
    def clusters(self) -> IntArray | None:
        """Codes, 0.., of the clusters that the rows belong to."""
        return self.grouped.sample.clusters

    @property
    def bounded(self) -> bool:
        """Whether groups are known by probabilities that need not know all that the score uses."""
        return self.probable is not None and not self.probable.sufficient and not self.sample.members.hard

    def units(self, used: BoolArray | None = None) -> int:
        """Independent units among all rows, or those used: the clusters that these belong to, or the rows."""
        if self.clusters is None:
            return len(self.scores) if used is None else int(used.sum())
        return len(np.unique(self.clusters if used is None else self.clusters[used]))


def read_audit_inputs(
    scores: Any,
    sensitive_features: Any,
    *,
    labels: Any = None,
    label_propensity: Any = None,
    X: Any = None,
    given: Any = None,
    clusters: Any = None,
    sample_weight: Any = None,
    contamination: float = 0.1,
    threshold: float | None = None,
    flags: Any = None,
    groups: Groups,
) -> AuditInputs:
    """Check everything that `evenout.audit` was given; rows of unknown and of small groups are set apart."""
    values = read_numbers(scores, "scores")
    n = len(values)
    if 0 < np.ptp(values) < _SMALLEST:
        raise InputError(
            "{@scores} differ by {most:.3g} at most, too little to square; multiply them by a large number",
            most=np.ptp(values),
        )
    if sensitive_features is None:
        raise InputError("{@sensitive_features} is missing; give the group of each row")
    aligned(sensitive_features, "sensitive_features", scores, n)
    members = None if clusters is None else read_clusters(aligned(clusters, "clusters", scores, n), n)
    weight = None
    if sample_weight is not None:
        weight = read_sample_weight(aligned(sample_weight, "sample_weight", scores, n), n)
        weight = weight / weight.mean()
    coded = read_coded(sensitive_features, groups, n)
    grouped = group_rows(coded, members, weight, groups)
    probable = sensitive_features if isinstance(sensitive_features, GroupProbabilities) else None
    known_labels = read_known(labels, label_propensity, scores, n)
    if X is not None:
        _refuse_features(grouped, probable, weight)
    features, unused = (None, []) if X is None else _features(aligned(X, "X", scores, n))
    alike = None if given is None else read_alike(aligned(given, "given", scores, n))
    column = None if flags is None else aligned(flags, "flags", scores, n)
    flagged = who_is_flagged(values, weight, contamination, threshold, column)
    notes = [f"feature {name!r} has more than {MAX_CATEGORIES} distinct texts: left out" for name in unused]
    if alike is not None and (missing := int((alike.strata.codes < 0).sum())):
        notes.append(f"{missing:,} of {n:,} rows have a missing value in given: they are in no stratum")
    everyone = None
    if probable is None and weight is None:
        strata = None if alike is None else alike.strata
        attributes = read_attributes(coded.sensitive, n)
        everyone = Everyone(values, flagged.flagged, attributes, strata, clusters is not None)
    known = np.asarray(grouped.sample.members.weights.sum(axis=1)).ravel() > 0
    small = (
        np.zeros(n, dtype=bool) if grouped.small is None else np.asarray(grouped.small.weights.sum(axis=1)).ravel() > 0
    )
    unknown = int((~known & ~small).sum())
    if unknown:
        notes.append(f"{unknown} of {n} rows have no known group: not compared, but counted when flagging")
    return AuditInputs(
        values[known],
        grouped.of(known),
        flagged._replace(flagged=flagged.flagged[known]),
        None if known_labels is None else known_labels.of(known),
        None if features is None else features[known].reset_index(drop=True),
        None if alike is None else alike.of(known),
        values[~known],
        _left_out(grouped, flagged.flagged),
        tuple(notes),
        probable,
        everyone,
    )


def _left_out(grouped: Grouped, flagged: BoolArray) -> dict[str, tuple[int, int]]:
    """Rows and flagged rows of each group that is too small; those expected, where groups share rows."""
    if grouped.small is None:
        return {}
    phi = grouped.small.weights
    rows, hit = (np.asarray(phi.T @ z.astype(float)) for z in (np.ones(len(flagged)), flagged))
    return {name: (round(float(a)), round(float(b))) for name, a, b in zip(grouped.left_out, rows, hit, strict=True)}


def who_is_flagged(
    scores: FloatArray,
    weight: FloatArray | None,
    contamination: float,
    threshold: float | None = None,
    flags: Any = None,
) -> Flags:
    """Who is flagged: by a column, by a threshold, or the share of rows or of weight nearest to the one asked for.

    >>> who_is_flagged(np.array([1.0, 2.0, 3.0, 3.0]), None, 0.25)
    Flags(flagged=array([False, False,  True,  True]), fixed=True, words='50% flagged (25% asked for: ties)')
    """
    if flags is not None:
        flagged = read_labels(flags, name=Message("{@flags}"))
        return Flags(flagged, fixed=True, words=f"{_share(flagged, weight)} flagged by the column given")
    if threshold is not None:
        flagged = scores >= threshold
        return Flags(flagged, fixed=True, words=f"{_share(flagged, weight)} flagged: score of {threshold:g} or more")
    if weight is not None and isinstance(contamination, Integral):
        raise InputError(
            "{contamination=} is a count of rows, which does not go with {@sample_weight}; give a share",
            contamination=int(contamination),
        )
    n = len(scores)
    if weight is None:
        place = int(flag_threshold(np.arange(n, dtype=float), flagged_share(contamination, n)))
        cut, asked = float(np.partition(scores, place)[place]), float(n - 1 - place)
    else:
        asked = float(contamination * weight.sum())
        cut = weighted_quantile(scores, weight, 1.0 - contamination)
    own = np.ones(n) if weight is None else weight
    above, tied = float(own[scores > cut].sum()), float(own[scores == cut].sum())
    nearer = above + tied - asked < asked - above or above == 0.0
    flagged = scores >= cut if nearer and above + tied < own.sum() else scores > cut
    if tied <= max(_COARSE * asked, 1.5 * float(own.max())) or not flagged.any():
        return Flags(flagged, fixed=False)
    wanted = f"{contamination:,} rows" if isinstance(contamination, Integral) else f"{100 * contamination:.3g}%"
    reached = f"{int(flagged.sum()):,} rows" if isinstance(contamination, Integral) else _share(flagged, weight)
    words = f"{reached} flagged ({wanted} asked for: ties)" if reached != wanted else ""
    return Flags(flagged, fixed=True, words=words)


def _share(flagged: BoolArray, weight: FloatArray | None) -> str:
    return f"{100 * np.average(flagged, weights=weight):.3g}%"


def read_known(labels: Any, label_propensity: Any, scores: Any, n: int) -> Labels | None:
    """Labels, which may have gaps, and the chance with which each row got one."""
    if labels is None:
        refuse_lone_propensity(labels, label_propensity)
        return None
    values = read_outcomes(aligned(labels, "labels", scores, n))
    gaps = np.isnan(values)
    if gaps.all():
        raise InputError("{@labels} has no label at all; give some, or leave {@labels} out")
    if not gaps.any():
        read_labels(labels, both=True)
    if not gaps.any() or label_propensity is None:
        return Labels(values, None, bool(gaps.any()))
    return Labels(values, 1.0 / read_propensity(label_propensity, n), partial=True)


def _refuse_features(grouped: Grouped, probable: GroupProbabilities | None, weight: FloatArray | None) -> None:
    """Refuse what compares single rows, where these have no one group, or do not count alike."""
    spanning = grouped.sample.clusters is not None and not grouped.whole and not grouped.curves
    beside = "{@sample_weight}" if weight is not None else "{@clusters} that span groups" if spanning else ""
    beside = "{@sensitive_features} that are probabilities" if probable is not None else beside
    if beside:
        raise InputError(f"{{@X}} does not go with {beside}: it compares single rows of known groups; leave it out")


def read_alike(given: Any) -> Alike:
    """Strata of rows alike in the columns given, and the numbers among these that were cut.

    Texts are told apart by value, numbers too if they are few, else they are cut at quantiles. A missing value puts a
    row in no stratum.
    """
    frame = _frame(given, "given")
    strata, numbers, named = read_strata(frame), [], []
    for j in range(frame.shape[1]):
        column = frame.iloc[:, j]
        if _is_cut(column):
            numbers.append(column.to_numpy(dtype=float, na_value=np.nan))
            named.append("the number given" if isinstance(frame.columns[j], int) else str(frame.columns[j]))
    return Alike(strata, np.nan_to_num(np.stack(numbers, axis=1)) if numbers else None, tuple(named))


def read_strata(given: Any) -> Strata:
    """Strata of equal rows: texts by value, numbers by value if few, else cut at quantiles; none where one is missing.

    >>> read_strata(["b", "a", "b"])
    Strata(codes=array([1, 0, 1]), names=('a', 'b'))
    """
    frame = _frame(given, "given")
    numbers = sum(_is_cut(frame.iloc[:, j]) for j in range(frame.shape[1]))
    bins = min(STRATUM_BINS, int(_MOST_PARTS ** (1 / max(numbers, 1)) + 1e-9))
    columns = [
        bin_column(frame.iloc[:, j], bins if _is_cut(frame.iloc[:, j]) else STRATUM_BINS) for j in range(frame.shape[1])
    ]
    named = not all(isinstance(name, int) for name in frame.columns)
    table = np.column_stack([column.codes for column in columns])
    known = (table >= 0).all(axis=1)
    combos, place = np.unique(table[known], axis=0, return_inverse=True)
    codes = np.full(len(table), -1, dtype=np.intp)
    codes[known] = place.ravel()
    names = [
        " & ".join(
            f"{frame.columns[j]} {column.names[c]}" if named else column.names[c]
            for j, (column, c) in enumerate(zip(columns, combo, strict=True))
        )
        for combo in combos
    ]
    return Strata(codes, tuple(names))


def _is_cut(column: "pd.Series") -> bool:
    """Whether a column is a number of so many values that it is cut at its quantiles."""
    import pandas as pd

    plain = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return bool(plain and column.nunique() > STRATUM_BINS)


def bin_column(column: "pd.Series", n_bins: int) -> Strata:
    """Codes of one column: its values, or quantile bins ``low to high`` of a numeric one with more than ``n_bins``."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(dtype=float, na_value=np.nan)
        present = numbers[~np.isnan(numbers)]
        if len(np.unique(present)) > n_bins:
            return _quantile_bins(numbers, present, n_bins)
    codes, values = pd.factorize(column, sort=True, use_na_sentinel=True)
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return Strata(codes.astype(np.intp), tuple(names))


def _quantile_bins(numbers: FloatArray, present: FloatArray, n_bins: int) -> Strata:
    cuts = np.unique(np.quantile(present, np.arange(1, n_bins) / n_bins))
    _, codes = np.unique(np.searchsorted(cuts, present), return_inverse=True)
    ends = [(present[codes == c].min(), present[codes == c].max()) for c in range(codes.max() + 1)]
    names = [f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high in ends]
    everyone = np.full(len(numbers), -1, dtype=np.intp)
    everyone[~np.isnan(numbers)] = codes
    return Strata(everyone, tuple(names))


def _features(X: Any) -> tuple["pd.DataFrame", list[str]]:
    """Features as a frame with text names, and the names of text columns with too many values, left out."""
    import pandas as pd

    frame = _frame(X, "X")
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)
    if frame.columns.has_duplicates:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError("{@X} has more than one column {twice!r}; give each once", twice=twice)
    gaps = frame.isna().sum()
    if gaps.any():
        raise InputError(
            "{@X} has missing values in {n} columns (first: {first!r}); fill them in, or leave these columns out",
            n=(gaps > 0).sum(), first=gaps.index[gaps > 0][0],
        )  # fmt: skip
    texts = [str(name) for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    left_out = [name for name in texts if frame[name].nunique() > MAX_CATEGORIES]
    frame = frame.drop(columns=left_out)
    if frame.shape[1] == 0:
        raise InputError("{@X} has no usable column; give features, or leave {@X} out")
    if not (np.abs(frame.select_dtypes("number").to_numpy(dtype=float)) <= LARGEST).all():
        raise InputError(
            "{@X} has infinite values, or values above {most:g} in magnitude; rescale them, or leave them out",
            most=LARGEST,
        )
    return frame, left_out


def _frame(values: Any, name: str) -> "pd.DataFrame":
    import pandas as pd

    if isinstance(values, str) or np.ndim(values) not in (1, 2):
        raise ValueError(f"{name} must hold one value per row (n,), or several (n, columns)")
    frame = pd.DataFrame(values)
    if frame.shape[1] == 0:
        raise ValueError(f"{name} has no column")
    for j in range(frame.shape[1]):
        try:
            frame.iloc[:, j].nunique()
        except TypeError:  # what has no hash cannot be told apart
            raise InputError(
                "{$name} holds lists or other nested values in column {column!r}; leave it out",
                name=name, column=frame.columns[j],
            ) from None  # fmt: skip
    return frame


def aligned(values: Any, name: str, scores: Any, n_rows: int) -> Any:
    """The values, if they have one row per score and, where both carry an index, the same order."""
    length = len(values) if hasattr(values, "__len__") else -1
    if length != n_rows:
        found = f"has {length} rows" if length >= 0 else "has no rows"
        raise ValueError(f"{name} {found}, but scores has {n_rows}; give one row per score")
    if shuffled(values, scores):
        raise ValueError(
            f"{name} and scores have the same index in a different order; align them first, "
            f"for example {name}.loc[scores.index]"
        )
    return values
