"""Scores, groups, labels, features and strata, cleaned once at the door."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.auditing.everyone import Attribute, read_attributes
from evenout.auditing.membership import Codes, Soft, compared_groups, name_clusters
from evenout.core.exceptions import InputError
from evenout.core.flags import flag_threshold
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.inputs.grouping import read_coded
from evenout.inputs.groups import Groups
from evenout.inputs.rows import LARGEST
from evenout.metrics import read_labels

if TYPE_CHECKING:
    import pandas as pd

STRATUM_BINS = 5  # a numeric column with more distinct values is cut at its quantiles into so many strata
_SMALLEST = 1e-150  # squares of smaller differences leave the range of numbers
MAX_CATEGORIES = 50  # a text column with more distinct values says who, not what


@dataclass(frozen=True)
class AuditInputs:
    """What is audited: n rows with a score and a group each; labels, features and strata where given.

    ``background`` has the scores of rows that are not compared, because their group is unknown or small: they count
    towards the share flagged alone. ``left_out`` has those of small groups, by name. ``clusters`` has the codes, 0..,
    of the clusters that the rows belong to, each within one group. ``soft`` says how much rows belong to groups that
    share rows, such as bands of an age; their ``groups`` are what they belong to most. ``everyone`` has scores,
    attributes and strata of all rows, compared or not.
    """

    scores: FloatArray
    groups: Groups
    labels: IntArray | None
    features: "pd.DataFrame | None"
    strata: Codes | None
    clusters: IntArray | None
    background: FloatArray
    left_out: dict[str, FloatArray]
    notes: tuple[str, ...]
    soft: "Soft | None" = None
    everyone: "tuple[FloatArray, tuple[Attribute, ...], Codes | None] | None" = None

    def units(self, used: BoolArray | None = None) -> int:
        """Independent units among all rows, or those used: the clusters that these belong to, or the rows."""
        if self.clusters is None:
            return len(self.scores) if used is None else int(used.sum())
        return len(np.unique(self.clusters if used is None else self.clusters[used]))

    def threshold(self, contamination: float) -> float:
        """The score above which a row is flagged, of all rows."""
        return float(flag_threshold(np.concatenate([self.scores, self.background]), contamination))


def read_audit_inputs(
    scores: Any,
    sensitive_features: Any,
    y: Any,
    X: Any,
    given: Any,
    clusters: Any = None,
    *,
    continuous: Sequence[str] = (),
    bands: int = 5,
    **group_rules: Any,
) -> AuditInputs:
    """Check everything that `evenout.audit` was given; rows of unknown and of small groups are set apart."""
    values = read_numbers(scores, "scores")
    if len(values) == 0:
        raise InputError("{@scores} has no rows; give one score per row")
    if 0 < np.ptp(values) < _SMALLEST:
        raise InputError(
            "{@scores} differ by {most:.3g} at most, too little to square; multiply them by a large number",
            most=np.ptp(values),
        )
    if sensitive_features is not None:
        aligned(sensitive_features, "sensitive_features", scores, len(values))
    members = None if clusters is None else name_clusters(aligned(clusters, "clusters", scores, len(values)))
    if sensitive_features is None:
        raise InputError("{@sensitive_features} is missing; give the group of each row")
    parameters = {"continuous": continuous, "bands": bands, "intersections": True, **group_rules}
    coded = read_coded(sensitive_features, parameters, len(values))
    groups, left_out = compared_groups(coded.sensitive, values, members, **group_rules)
    soft = None if coded.whole else Soft.of(sensitive_features, coded, parameters)
    if soft is not None and soft.probable:
        _refuse_beside({"y": y, "X": X, "given": given})
    labels = None if y is None else _labels(aligned(y, "y", scores, len(values)))
    features, unused = (None, []) if X is None else _features(aligned(X, "X", scores, len(values)))
    strata = None if given is None else read_strata(aligned(given, "given", scores, len(values)))
    notes = [f"feature {name!r} has more than {MAX_CATEGORIES} distinct texts: left out" for name in unused]
    everyone = values, read_attributes(coded.sensitive, len(values)), strata
    known = groups.codes >= 0
    unknown = int((~known).sum()) - sum(map(len, left_out.values()))
    if unknown:
        notes.append(f"{unknown} of {len(known)} rows have no known group: not compared, but counted when flagging")
    if known.all():
        codes = None if members is None else members.codes
        return AuditInputs(
            values, groups, labels, features, strata, codes, np.empty(0), {}, tuple(notes), soft, everyone
        )
    return AuditInputs(
        values[known],
        Groups(groups.codes[known], groups.labels, groups.left_out),
        None if labels is None else _labels(labels[known]),
        None if features is None else features[known].reset_index(drop=True),
        None if strata is None else _used(strata, known),
        None if members is None else _used(members, known).codes,
        values[~known],
        left_out,
        tuple(notes),
        None if soft is None else soft.among(np.flatnonzero(known)),
        everyone,
    )


def _refuse_beside(given: dict[str, Any]) -> None:
    """Refuse what needs to know the group of each row, where groups are known by probability."""
    for name, value in given.items():
        if value is not None:
            raise InputError(
                "{name} is held against the group of each row, but {@sensitive_features} has probabilities; "
                "leave it out, or give groups",
                name=name,
            )


def read_strata(given: Any) -> Codes:
    """Strata of equal rows: texts by value, numbers by value if few, else cut at quantiles; a missing value is one too.

    >>> read_strata(["b", "a", "b"])
    Codes(codes=array([1, 0, 1]), names=('a', 'b'))
    """
    frame = _frame(given, "given")
    columns = [bin_column(frame.iloc[:, j], STRATUM_BINS) for j in range(frame.shape[1])]
    named = not all(isinstance(name, int) for name in frame.columns)
    table = np.column_stack([column.codes for column in columns])
    combos, codes = np.unique(table, axis=0, return_inverse=True)
    names = [
        " & ".join(
            f"{frame.columns[j]} {column.names[c]}" if named else column.names[c]
            for j, (column, c) in enumerate(zip(columns, combo, strict=True))
        )
        for combo in combos
    ]
    return Codes(codes.ravel(), tuple(names))


def bin_column(column: "pd.Series", n_bins: int) -> Codes:
    """Codes of one column: its values, or quantile bins ``low to high`` of a numeric one with more than ``n_bins``."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(dtype=float, na_value=np.nan)
        present = numbers[~np.isnan(numbers)]
        if len(np.unique(present)) > n_bins:
            return _quantile_bins(numbers, present, n_bins)
    codes, values = pd.factorize(column, sort=True, use_na_sentinel=True)
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return _with_missing(codes.astype(np.intp), names)


def _quantile_bins(numbers: FloatArray, present: FloatArray, n_bins: int) -> Codes:
    cuts = np.unique(np.quantile(present, np.arange(1, n_bins) / n_bins))
    _, codes = np.unique(np.searchsorted(cuts, present), return_inverse=True)
    ends = [(present[codes == c].min(), present[codes == c].max()) for c in range(codes.max() + 1)]
    names = [f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high in ends]
    everyone = np.full(len(numbers), -1, dtype=np.intp)
    everyone[~np.isnan(numbers)] = codes
    return _with_missing(everyone, names)


def _with_missing(codes: IntArray, names: list[str]) -> Codes:
    if (codes < 0).any():
        return Codes(np.where(codes < 0, len(names), codes), (*names, "missing"))
    return Codes(codes, tuple(names))


def _used(strata: Codes, known: BoolArray) -> Codes:
    used, codes = np.unique(strata.codes[known], return_inverse=True)
    return Codes(codes, tuple(strata.names[u] for u in used))


def read_numbers(values: Any, name: str) -> FloatArray:
    """Finite numbers, one per row; the error names the first row that has none."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        row, value = next((i, value) for i, value in enumerate(values) if not _is_number(value))
        raise InputError(
            "{$name} must be numbers, one per row; got {value!r} (first: {#row}); correct it, or leave the row out",
            name=name, value=str(value), row=row,
        ) from None  # fmt: skip
    if numbers.ndim != 1:
        raise InputError(
            "{$name} must have one number per row, shape (n,), got shape {shape!r}",
            name=name,
            shape=numbers.shape,
        )
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise InputError(
            "{$name} has missing or infinite values in {bad} of {n_rows} rows (first: {#row}); "
            "leave these rows out",
            name=name, bad=bad.sum(), n_rows=len(bad), row=bad.argmax(),
        )  # fmt: skip
    if np.abs(numbers).max(initial=0.0) > LARGEST:
        row = int(np.abs(numbers).argmax())
        raise InputError(
            "{$name} has the value {value:.3g} (first: {#row}); rescale values above {most:g} in magnitude",
            name=name, value=numbers[row], row=row, most=LARGEST,
        )  # fmt: skip
    return numbers


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _labels(y: Any) -> IntArray:
    return read_labels(y, both=True).astype(np.intp)


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
    import pandas as pd

    length = len(values) if hasattr(values, "__len__") else -1
    if length != n_rows:
        found = f"has {length} rows" if length >= 0 else "has no rows"
        raise ValueError(f"{name} {found}, but scores has {n_rows}; give one row per score")
    index: Any = getattr(values, "index", None)
    order: Any = getattr(scores, "index", None)
    both = isinstance(index, pd.Index) and isinstance(order, pd.Index)
    if both and not index.equals(order) and index.sort_values().equals(order.sort_values()):
        raise ValueError(
            f"{name} and scores have the same index in a different order; align them first, "
            f"for example {name}.loc[scores.index]"
        )
    return values
