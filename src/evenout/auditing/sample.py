"""Inputs of an audit: scores, groups, labels, strata, clusters and weights, checked once."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csc_array

from evenout.core.flags import flag_threshold, flagged_share, weighted_quantile
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.ruler import Sample
from evenout.core.sketch import QuantileSketch
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError, Message
from evenout.groups.model import Attribute, Coded, cross, read_coded
from evenout.groups.read import GroupProbabilities, group_name, label_rows, read_groups, settle, shuffled, with_sizes
from evenout.groups.rules import Groups
from evenout.metrics import read_labels
from evenout.tables.rows import LARGEST, read_clusters, read_known_labels, read_numbers, read_sample_weight

CURVE_POINTS = 12  # where the curve of a number is measured


@dataclass(frozen=True, eq=False)
class Strata:
    """Parts of the rows: values of what was given, or of one protected attribute."""

    codes: IntArray  # 0, 1, ... in the order of the names; -1 for none
    names: tuple[str, ...]
    name: str = ""  # of the attribute, or of all of them crossed
    numbers: FloatArray | None = None  # (n, k), that were cut: rows of one stratum still differ in them
    numbers_named: tuple[str, ...] = ()

    def of(self, rows: BoolArray) -> "Strata":
        """Some of the rows, by the codes that these have."""
        used, codes = np.unique(np.append(-1, self.codes[rows]), return_inverse=True)
        names, numbers = tuple(self.names[u] for u in used[1:]), None if self.numbers is None else self.numbers[rows]
        return replace(self, codes=codes[1:] - 1, names=names, numbers=numbers)


def group_rows(
    coded: Coded, clusters: IntArray | None, weight: FloatArray | None, flagged: BoolArray, rules: Groups
) -> tuple[tuple[str, ...], Sample, bool, dict[str, tuple[int, int, int]], int]:
    """Set small and unknown groups apart from those that are compared, by the ``rules`` on them.

    A group is as large as the independent rows that it is worth, and no larger than the members that it is expected to
    have; where rows come in clusters, clusters are counted. Returns the first fields of `AuditInputs` that follow the
    scores, and the number of rows without a group.
    """
    names, phi = _crossed(coded)
    unknown = np.asarray(phi.sum(axis=1)).ravel() == 0
    if (unknown.any() and rules.unknown == "error") or unknown.all() or len(names) < 2:
        read_groups(coded.sensitive, len(unknown), rules.but(min_size=1))
    every = Sample(Membership(phi, Comparison.of_all(len(names))), weight, clusters)
    nested = clusters is None or len(np.unique(clusters[~unknown])) == every.expected.sum()
    whole = not coded.coder.soft and weight is None and nested
    sizes = every.expected if whole else np.minimum(every.size, every.expected)
    tally = {name: max(int(size + 1e-9), 1) for name, size in zip(names, sizes, strict=True)}
    unit = "rows" if clusters is None else "clusters"
    labels, code_of, small = settle(tally, rules, unit)
    G = len(labels)
    if G < 2:
        raise InputError(
            "fewer than two groups have {least} {unit} or more, so nothing can be compared; "
            "too small: {named}; lower {@min_size}, set {small='merge'}, or give more rows",
            least=rules.min_size, unit=unit, named=with_sizes(small, 10),
        )  # fmt: skip
    code = np.array([code_of[name] for name in names], dtype=np.intp)
    bands = any(attribute.knots is not None for attribute in coded.coder.attributes)  # these are compared by their size
    shared = tuple(combinations(range(G), 2)) if coded.coder.soft else ()
    compared, out = Comparison(G, (Block(tuple(range(G)), by_size=bands),), shared), np.flatnonzero(code < 0)
    # rows and flagged rows; those expected, where groups share rows
    counts = np.asarray(phi[:, out].T @ np.column_stack([np.ones(len(flagged)), flagged])).tolist()
    left_out = {names[g]: (int(sizes[g]), round(n), round(k)) for g, (n, k) in zip(out, counts, strict=True)}
    sample = replace(every, members=Membership(csc_array(phi @ Membership.of_codes(code, G).weights), compared))
    return labels, sample, whole, left_out, int(unknown.sum())


def _crossed(coded: Coded) -> tuple[list[str], csc_array]:
    """All groups of the protected columns, crossed, and how much each row belongs to each, shape (n, groups)."""
    coder, numbers = coded.coder, coded.numbers
    if coder.attributes[0].probable:
        return list(coder.attributes[0].values), csc_array(np.nan_to_num(numbers))
    sizes = [len(attribute.values) for attribute in coder.attributes]
    keys, weights = zip(*(cross(corner, sizes) for corner in product(*coder.corners(numbers))), strict=True)
    key, share = np.stack(keys), np.stack(weights) if coder.soft else np.ones((1, len(numbers)))
    held = (key >= 0) & (share > 0)
    occurring, columns = np.unique(key[held], return_inverse=True)
    phi = csc_array((share[held], (np.nonzero(held)[1], columns)), shape=(len(numbers), len(occurring)))
    columns_named, codes = [each.name for each in coder.attributes], np.transpose(np.unravel_index(occurring, sizes))
    values = [[each.values[v] for each, v in zip(coder.attributes, row, strict=True)] for row in codes.tolist()]
    return [group_name(columns_named, combination) for combination in values], phi


def _curves(coded: Coded) -> dict[str, tuple[FloatArray, Membership]]:
    """Finer bands of each number among the protected columns: where its curve is measured, and how much rows belong."""
    curves = {}
    for attribute, numbers in coded.coder.by_attribute(coded.numbers):
        if attribute.knots is not None:
            values = numbers[:, 0]
            fine = Attribute.of_bands(attribute.name, QuantileSketch.of(values[~np.isnan(values)]), CURVE_POINTS)
            assert fine.knots is not None
            curves[attribute.name] = fine.knots, Membership.of_bands(values, fine.knots)
    return curves


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows, also those that are not compared because their group is small or unknown."""

    scores: FloatArray
    flagged: BoolArray
    attributes: tuple[Strata, ...]  # each column of the sensitive features and, if there are several, last, all crossed
    strata: Strata | None
    clustered: bool  # rows belong together, so that they are no independent people


def read_attributes(sensitive_features: Any, n_rows: int) -> tuple[Strata, ...]:
    """The attributes of rows whose groups have been checked, and last, if there are several, all crossed.

    >>> [(a.name, a.names) for a in read_attributes([["f", "old"], ["m", "old"]], 2)]
    [('attribute 1', ('f', 'm')), ('attribute 2', ('old',)), ('all crossed', ('f & old', 'm & old'))]
    """
    frame = pd.DataFrame(sensitive_features).reset_index(drop=True)
    plain = all(isinstance(name, str) and bool(name) for name in frame.columns)
    names = [str(name) if plain else f"attribute {j + 1}" for j, name in enumerate(frame.columns)]
    parts = [(name, frame.iloc[:, [j]]) for j, name in enumerate(names)]
    if len(parts) == 1:
        parts = [(names[0] if plain else "group", frame)]
    else:
        parts.append((" & ".join(names) if plain else "all crossed", frame))
    groups = [(name, label_rows(columns, n_rows, unknown="ignore")) for name, columns in parts]
    return tuple(Strata(coded.codes, coded.labels, name) for name, coded in groups)


STRATUM_BINS = 5  # a numeric column with more distinct values is cut at its quantiles into so many strata
_SMALLEST = 1e-150  # squares of smaller differences leave the range of numbers
_MOST_PARTS = 125  # that numbers are cut into together: fewer each, the more there are
_COARSE = 0.05  # rows that tie at the threshold, of those to be flagged: from here on the score has steps
MAX_CATEGORIES = 50  # a text column with more distinct values says who, not what


@dataclass(frozen=True)
class Labels:
    """Known labels: 1, 0, or NaN for unlabelled rows, shape (n,); some rows have none if ``partial``.

    ``weight`` is one over the chance of a label; None where all rows have one, or the chances are unknown: then, if
    ``partial``, rows were ``chosen`` for labelling in an unknown way, and measures are about the labelled rows alone.
    """

    values: FloatArray
    weight: FloatArray | None
    partial: bool
    chosen: bool


class FlaggedRows(NamedTuple):
    """Flags of rows, shape (n,).

    ``fixed`` says whether the rule is fixed in advance, as by a threshold, and not by these rows' share. ``words`` say
    what rule it is, where it is not the share that was asked for.
    """

    flagged: BoolArray
    fixed: bool
    words: str = ""


@dataclass(frozen=True)
class AuditInputs:
    """n rows with a score and a group each; labels, features and strata where given."""

    scores: FloatArray
    names: tuple[str, ...]  # of the groups that are compared
    sample: Sample  # how much rows belong to groups; their weights and clusters
    whole: bool  # groups are hard, rows count alike, each cluster lies within a group: rows can be counted and drawn
    left_out: dict[str, tuple[int, int, int]]  # size, rows and flagged rows of each small group
    curves: dict[str, tuple[FloatArray, Membership]]  # knots and bands of each protected number
    flags: FlaggedRows
    labels: Labels | None
    features: pd.DataFrame | None
    alike: Strata | None
    background: FloatArray  # scores of rows of unknown or small groups, which count towards the share flagged alone
    notes: tuple[str, ...]
    probable: GroupProbabilities | None
    everyone: AllRows | None

    @cached_property
    def counts(self) -> IntArray:
        """Rows of each group, shape (G,); those expected, where groups share rows."""
        return np.rint(np.asarray(self.sample.members.weights.sum(axis=0)).ravel()).astype(np.intp)

    @property
    def bounded(self) -> bool:
        """Whether groups are known by probabilities that need not know all that the score uses."""
        return self.probable is not None and not self.probable.sufficient and not self.sample.members.hard

    def of(self, rows: BoolArray) -> "AuditInputs":
        """Some of the rows."""
        if rows.all():
            return self
        sample, labels, alike, features = self.sample.of(rows), self.labels, self.alike, self.features
        if sample.clusters is not None:
            sample = replace(sample, clusters=np.unique(sample.clusters, return_inverse=True)[1])
        if labels is not None:
            weight = None if labels.weight is None else labels.weight[rows]
            labels = replace(labels, values=labels.values[rows], weight=weight)
        return replace(
            self,
            scores=self.scores[rows],
            sample=sample,
            curves={name: (at, bands.among(np.flatnonzero(rows))) for name, (at, bands) in self.curves.items()},
            flags=self.flags._replace(flagged=self.flags.flagged[rows]),
            labels=labels,
            features=None if features is None else features[rows].reset_index(drop=True),
            alike=None if alike is None else alike.of(rows),
        )

    def units(self, used: BoolArray | None = None) -> int:
        """Independent units among all rows, or those used: the clusters that these belong to, or the rows."""
        clusters, rows = self.sample.clusters, slice(None) if used is None else used
        return len(self.scores[rows] if clusters is None else np.unique(clusters[rows]))


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
    """Check the arguments of `evenout.audit`; rows of unknown and of small groups are set apart."""
    values = read_numbers(scores, "scores")
    n = len(values)
    if 0 < np.ptp(values) < _SMALLEST:
        raise InputError(
            "{@scores} differ by {most:.3g} at most, too little to square; multiply them by a large number",
            most=np.ptp(values),
        )
    if sensitive_features is None:
        raise InputError("{@sensitive_features} is missing; give the group of each row")
    columns = {
        "sensitive_features": sensitive_features, "clusters": clusters, "sample_weight": sample_weight,
        "labels": labels, "X": X, "given": given, "flags": flags,
    }  # fmt: skip
    for name, column in columns.items():
        if column is not None:
            aligned(column, name, scores, n)
    cluster_codes = None if clusters is None else read_clusters(clusters, n)
    weight = None if sample_weight is None else read_sample_weight(sample_weight, n)
    weight = None if weight is None else weight / weight.mean()
    coded = read_coded(sensitive_features, groups, n)
    flagged = who_is_flagged(values, weight, contamination, threshold, flags)
    names, sample, whole, left_out, n_unknown = group_rows(coded, cluster_codes, weight, flagged.flagged, groups)
    curves = _curves(coded)
    probable = sensitive_features if isinstance(sensitive_features, GroupProbabilities) else None
    # X compares single rows: not where these have no one group, or do not count alike
    spanning = clusters is not None and not whole and not curves
    beside = "{@sample_weight}" if weight is not None else "{@clusters} that span groups" if spanning else ""
    beside = "{@sensitive_features} that are probabilities" if probable is not None else beside
    if X is not None and beside:
        raise InputError(f"{{@X}} does not go with {beside}: it compares single rows of known groups; leave it out")
    known_labels = _read_labels(labels, label_propensity, n)
    features, unused = (None, []) if X is None else _features(X)
    alike = None if given is None else read_strata(given)
    notes = [f"feature {name!r} has more than {MAX_CATEGORIES} distinct texts: left out" for name in unused]
    if alike is not None and (missing := int((alike.codes < 0).sum())):
        notes.append(f"{missing:,} of {n:,} rows have a missing value in given: they are in no stratum")
    if n_unknown:
        notes.append(f"{n_unknown} of {n} rows have no known group: not compared, but counted when flagging")
    everyone = None
    if probable is None and weight is None:
        everyone = AllRows(values, flagged.flagged, read_attributes(coded.sensitive, n), alike, clusters is not None)
    known = np.asarray(sample.members.weights.sum(axis=1)).ravel() > 0
    return AuditInputs(
        values, names, sample, whole, left_out, curves, flagged, known_labels, features, alike, values[~known],
        tuple(notes), probable, everyone,
    ).of(known)  # fmt: skip


def who_is_flagged(
    scores: FloatArray,
    weight: FloatArray | None,
    contamination: float,
    threshold: float | None = None,
    flags: Any = None,
) -> FlaggedRows:
    """Flag rows by a column, by a threshold, or the share of rows or of weight nearest to the one asked for.

    >>> who_is_flagged(np.array([1.0, 2.0, 3.0, 3.0]), None, 0.25)
    FlaggedRows(flagged=array([False, False,  True,  True]), fixed=True, words='50% flagged (25% asked for: ties)')
    """

    def share(flagged: BoolArray) -> str:
        return f"{100 * np.average(flagged, weights=weight):.3g}%"

    if flags is not None:
        flagged = read_labels(flags, name=Message("{@flags}"))
        return FlaggedRows(flagged, fixed=True, words=f"{share(flagged)} flagged by the column given")
    if threshold is not None:
        flagged = scores >= threshold
        return FlaggedRows(flagged, fixed=True, words=f"{share(flagged)} flagged: score of {threshold:g} or more")
    if weight is not None and isinstance(contamination, Integral):
        raise InputError(
            "{contamination=} is a count of rows, which does not go with {@sample_weight}; give a share",
            contamination=int(contamination),
        )
    n, own = len(scores), np.ones(len(scores)) if weight is None else weight
    if weight is None:
        last = int(flag_threshold(np.arange(n, dtype=float), flagged_share(contamination, n)))
        cut, asked = float(np.partition(scores, last)[last]), float(n - 1 - last)
    else:
        cut, asked = weighted_quantile(scores, weight, 1.0 - contamination), float(contamination * weight.sum())
    above, tied = float(own[scores > cut].sum()), float(own[scores == cut].sum())
    nearer = above + tied - asked < asked - above or above == 0.0
    flagged = scores >= cut if nearer and above + tied < own.sum() else scores > cut
    if tied <= max(_COARSE * asked, 1.5 * float(own.max())) or not flagged.any():
        return FlaggedRows(flagged, fixed=False)
    wanted, reached = f"{100 * contamination:.3g}%", share(flagged)
    if isinstance(contamination, Integral):
        wanted, reached = f"{contamination:,} rows", f"{int(flagged.sum()):,} rows"
    words = f"{reached} flagged ({wanted} asked for: ties)" if reached != wanted else ""
    return FlaggedRows(flagged, fixed=True, words=words)


def _read_labels(labels: Any, label_propensity: Any, n: int) -> Labels | None:
    """Labels, which may have gaps, and one over the chance with which each row got one."""
    read = read_known_labels(labels, label_propensity, n, learn=False)
    if read is None:
        return None
    (values, chances), gaps = read, np.isnan(read[0])
    if gaps.all():
        raise InputError("{@labels} has no label at all; give some, or leave {@labels} out")
    if not gaps.any():
        read_labels(values.astype(int), both=True)
        return Labels(values, None, partial=False, chosen=False)
    return Labels(values, None if chances is None else 1.0 / chances, partial=True, chosen=chances is None)


def read_strata(given: Any) -> Strata:
    """Strata of equal rows: texts by value, numbers by value if few, else cut at quantiles; none where one is missing.

    >>> strata = read_strata(["b", "a", "b"])
    >>> strata.codes.tolist(), strata.names
    ([1, 0, 1], ('a', 'b'))
    """
    frame = _frame(given, "given")
    columns = [frame.iloc[:, j] for j in range(frame.shape[1])]
    cut = [j for j, column in enumerate(columns) if column.dtype.kind in "iuf" and column.nunique() > STRATUM_BINS]
    bins = min(STRATUM_BINS, int(_MOST_PARTS ** (1 / max(len(cut), 1)) + 1e-9))
    parts = [bin_column(column, bins if j in cut else STRATUM_BINS) for j, column in enumerate(columns)]
    named = not all(isinstance(name, int) for name in frame.columns)
    table = np.column_stack([part.codes for part in parts])
    known = (table >= 0).all(axis=1)
    combos, part_of = np.unique(table[known], axis=0, return_inverse=True)
    codes = np.full(len(table), -1, dtype=np.intp)
    codes[known] = part_of.ravel()
    words = [
        [f"{name} {value}" if named else value for value in part.names]
        for name, part in zip(frame.columns, parts, strict=True)
    ]
    names = tuple(" & ".join(own[c] for own, c in zip(words, combo, strict=True)) for combo in combos)
    numbers = [np.nan_to_num(columns[j].to_numpy(dtype=float, na_value=np.nan)) for j in cut]
    of_numbers = ["the number given" if isinstance(frame.columns[j], int) else str(frame.columns[j]) for j in cut]
    return Strata(codes, names, "", np.stack(numbers, axis=1) if cut else None, tuple(of_numbers))


def bin_column(column: pd.Series, n_bins: int) -> Strata:
    """Codes of one column: its values, or quantile bins ``low to high`` of a numeric one with more than ``n_bins``."""
    if column.dtype.kind in "iuf" and column.nunique() > n_bins:
        numbers = column.to_numpy(dtype=float, na_value=np.nan)
        present = numbers[~np.isnan(numbers)]
        cuts = np.unique(np.quantile(present, np.arange(1, n_bins) / n_bins))
        _, bins = np.unique(np.searchsorted(cuts, present), return_inverse=True)
        ends = [(present[bins == b].min(), present[bins == b].max()) for b in range(bins.max() + 1)]
        codes = np.full(len(numbers), -1, dtype=np.intp)
        codes[~np.isnan(numbers)] = bins
        return Strata(codes, tuple(f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high in ends))
    codes, values = pd.factorize(column, sort=True, use_na_sentinel=True)
    names = tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return Strata(codes.astype(np.intp), names)


def _features(X: Any) -> tuple[pd.DataFrame, list[str]]:
    """Features as a frame with text names, and the names of text columns with too many values, left out."""
    frame = _frame(X, "X")
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError("{@X} has more than one column {twice!r}; give each once", twice=twice[0])
    gaps = frame.isna().sum()
    if gaps.any():
        raise InputError(
            "{@X} has missing values in {n} columns (first: {first!r}); fill them in, or leave these columns out",
            n=(gaps > 0).sum(), first=gaps.index[gaps > 0][0],
        )  # fmt: skip
    left_out = [
        str(name)
        for name, column in frame.items()
        if not pd.api.types.is_numeric_dtype(column) and column.nunique() > MAX_CATEGORIES
    ]
    frame = frame.drop(columns=left_out)
    if frame.shape[1] == 0:
        raise InputError("{@X} has no usable column; give features, or leave {@X} out")
    if not (np.abs(frame.select_dtypes("number").to_numpy(dtype=float)) <= LARGEST).all():
        raise InputError(
            "{@X} has infinite values, or values above {most:g} in magnitude; rescale them, or leave them out",
            most=LARGEST,
        )
    return frame, left_out


def _frame(values: Any, name: str) -> pd.DataFrame:
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
        found = length if length >= 0 else "no"
        raise ValueError(f"{name} has {found} rows, but scores has {n_rows}; give one row per score")
    if shuffled(values, scores):
        raise ValueError(
            f"{name} and scores have the same index in a different order; align them first, "
            f"for example {name}.loc[scores.index]"
        )
    return values
