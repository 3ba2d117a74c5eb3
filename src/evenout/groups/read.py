"""Read protected columns: codes, or probabilities."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from evenout.core.types import MOST_ROWS, FloatArray, IntArray, Within, require
from evenout.exceptions import InputError, SmallGroupWarning, warn
from evenout.groups.rules import Groups
from evenout.tables.rows import as_pandas, is_number

STRICT = Groups(min_size=2, small="error")
EVERY = Groups(min_size=1, unknown="ignore")  # all groups, however small


@dataclass(frozen=True)
class Codes:
    """Group codes of n rows: 0..G-1 in the order of ``labels``; -1 where the group is unknown, or left out.

    ``left_out`` are the groups that are too small to be measured, and their rows.
    """

    codes: Annotated[IntArray, "n", Within(-1)]
    labels: tuple[str, ...]
    left_out: dict[str, Annotated[int, Within(0, MOST_ROWS)]] = field(default_factory=dict)

    def check(self) -> None:
        """A name for each code."""
        require(self.codes.max(initial=-1) < len(self.labels), "codes", "is out of range")

    @property
    def counts(self) -> IntArray:
        """Rows in each group, shape (G,)."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.labels))

    def recoded(self, code_of: Mapping[str, int]) -> IntArray:
        """The code of each row's group by other codes of their names, shape (n,); -1 for a name without one."""
        return np.array([*(code_of.get(name, -1) for name in self.labels), -1], dtype=np.intp)[self.codes]


class KeptGroups(NamedTuple):
    """Names of the groups that are compared, the code of each name that occurs (-1: left out), and those left out."""

    labels: tuple[str, ...]
    code_of: dict[str, int]
    left_out: dict[str, int]


def settle(counts: Mapping[str, int], rules: Groups, unit: str = "rows") -> KeptGroups:
    """Refuse, leave out or merge small groups, from the rows of each name.

    Merged groups that are still too few together are joined by the next smallest.

    >>> settle({"a": 40, "b": 3, "c": 50, "d": 2}, Groups(small="merge"))
    KeptGroups(labels=('c', 'merged: a + b + d'), code_of={'a': 1, 'b': 1, 'c': 0, 'd': 1}, left_out={})
    """
    names = sorted(counts)
    _require_two(names)
    small = [name for name in names if counts[name] < rules.min_size]
    if small and rules.small == "error":
        raise InputError(
            "{@sensitive_features} has groups of fewer than {least} {unit}: {named}; "
            "merge or bin values yourself, or set {small='leave_out'} or {small='merge'}",
            least=rules.min_size, unit=unit, named=with_sizes({name: counts[name] for name in small}, 10),
        )  # fmt: skip
    together: list[str] = []
    if small and rules.small == "merge":
        by_size = sorted(names, key=counts.__getitem__)
        enough = int(np.searchsorted(np.cumsum([counts[name] for name in by_size]), rules.min_size)) + 1
        together, small = sorted(by_size[: max(len(small), enough)]), []
    labels = [name for name in names if name not in {*small, *together}]
    code_of = dict.fromkeys(names, -1) | {name: code for code, name in enumerate(labels)}
    if together:
        code_of |= dict.fromkeys(together, len(labels))
        labels.append(f"merged: {' + '.join(together[:3])}{' + ...' if len(together) > 3 else ''}")
        _require_two(labels)
    return KeptGroups(tuple(labels), code_of, {name: int(counts[name]) for name in small})


def _require_two(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise InputError(
            "{@sensitive_features} has {found}; fairness compares at least two groups",
            found=f"one group only ({labels[0]!r})" if labels else "no known group",
        )


def with_sizes(sizes: Mapping[str, int], most: int) -> str:
    """Name groups with their sizes, at most so many of them.

    >>> with_sizes({"a": 3, "b": 20, "c": 1}, 2)
    "'a' (3), 'b' (20) and 1 more"
    """
    named = ", ".join(f"{name!r} ({n})" for name, n in [*sizes.items()][:most])
    return named + (f" and {len(sizes) - most} more" if len(sizes) > most else "")


def read_groups(sensitive_features: Any, n_rows: int, rules: Groups = STRICT, *, rows: Any = None) -> Codes:
    """Read protected groups, (n,) or (n, c); several columns give one group per combination of values that occurs.

    The rules are on small groups and missing values; all columns are crossed here. Rows of small groups that are left
    out, and those without a group, have code -1; fewer than two groups may be left. ``rows`` are the data themselves:
    if both carry an index, a different order of the same labels is refused.

    >>> groups = read_groups([["f", "old"], ["m", "old"], ["f", "old"], ["m", "old"]], 4)
    >>> groups.codes.tolist(), groups.labels
    ([0, 1, 0, 1], ('f & old', 'm & old'))
    """
    every = label_rows(sensitive_features, n_rows, rows=rows, unknown="ignore")
    refuse_unknown(every.codes, rules)
    labels, code_of, left_out = settle(dict(zip(every.labels, every.counts.tolist(), strict=True)), rules)
    return Codes(every.recoded(code_of), labels, left_out)


def refuse_unknown(
    codes: IntArray, rules: Groups, instead: str = "set {unknown='ignore'} to use these rows without a group"
) -> None:
    """Refuse rows without a group, unless they are to be ignored; ``instead`` is a template."""
    unknown = codes < 0
    if unknown.any() and rules.unknown == "error":
        raise InputError(
            f"{{@sensitive_features}} has missing values in {{unknown}} of {{n_rows}} rows (first: {{#row}}); "
            f"fill them in, or {instead}",
            unknown=int(unknown.sum()), n_rows=len(codes), row=int(unknown.argmax()),
        )  # fmt: skip


def warn_left_out(left_out: Mapping[str, int], n_compared: int, min_size: int, unit: str = "rows") -> None:
    """Name the groups that are too small to be measured; say so if too few are left to compare."""
    if left_out:
        warn(
            SmallGroupWarning(
                "groups of fewer than {least} {unit} are left out: {named}; {rest}. "
                "Lower {@min_size}, or set {small='merge'}, to measure them.",
                least=min_size, unit=unit, named=with_sizes(left_out, 4),
                rest="their rows are scored, but not compared"
                if n_compared >= 2
                else "fewer than two groups are left to compare, so nothing is evened out",
            )
        )  # fmt: skip


def label_rows(sensitive_features: Any, n_rows: int, *, rows: Any = None, unknown: str = "error") -> Codes:
    """Groups of rows, however few and small; a missing group is an error, or has code -1.

    There is one code per combination of values that occurs, in the order of the names.
    """
    columns = protected_columns(sensitive_features, n_rows, rows)
    (codes, first), *others = [coded(column) for column in columns]
    values = [(name,) for name in first]
    for more, names in others:
        known = (codes >= 0) & (more >= 0)
        joined, pairs = pd.factorize((codes * len(names) + more)[known])
        codes = np.full(len(known), -1, dtype=np.intp)
        codes[known] = joined
        values = [(*values[pair // len(names)], names[pair % len(names)]) for pair in pairs.tolist()]
    refuse_unknown(codes, Groups(unknown=unknown), "leave these rows out")
    labels = [group_name([str(column.name) for column in columns], combination) for combination in values]
    order = np.array(sorted(range(len(labels)), key=labels.__getitem__), dtype=np.intp)
    return Codes(np.append(np.argsort(order), -1)[codes], tuple(labels[g] for g in order))


def match_groups(
    sensitive_features: Any, n_rows: int, labels: Sequence[str], *, rows: Any = None, unknown: str = "error",
    unseen: str = "error",
) -> Codes:  # fmt: skip
    """Code new rows by the ``labels`` that are known from fitting, or by these without names of columns.

    Rows of ``unknown`` group and ``unseen`` groups are an "error", or get code -1; the latter are left out.
    """
    groups = label_rows(sensitive_features, n_rows, rows=rows, unknown=unknown)
    code_of = {label: code for code, label in enumerate(labels)}
    plain = {" & ".join(part.partition("=")[2] or part for part in name.split(", ")): n for name, n in code_of.items()}
    code_of = (plain if len(plain) == len(code_of) else {}) | code_of
    others = {name: n for name, n in zip(groups.labels, groups.counts.tolist(), strict=True) if name not in code_of}
    if others and unseen == "error":
        raise InputError(
            "{@sensitive_features} has groups that were not there in fit: {named}; known are {known}: fit again with "
            "rows of all groups",
            named=", ".join(map(repr, [*others][:10])), known=", ".join(map(repr, labels[:10])),
        )  # fmt: skip
    return Codes(groups.recoded(code_of), tuple(labels), others)


def protected_columns(
    sensitive_features: Any, n_rows: int, rows: Any, *, name: str = "sensitive_features"
) -> list[Any]:
    """The columns of one value per row as pandas series, after a check of length and order."""
    if sensitive_features is None:
        raise ValueError(
            "sensitive_features is missing: the group of every row is needed; "
            "pass sensitive_features=<array, Series or DataFrame>"
        )
    if isinstance(sensitive_features, str):
        raise InputError(
            "{$name} is the text {text!r}; pass the column itself, such as table[{text!r}]",
            name=name, text=sensitive_features,
        )  # fmt: skip
    if np.ndim(sensitive_features) not in (1, 2):
        raise ValueError(
            f"{name} must hold one value per row (n,), or several (n, columns), "
            f"got {type(sensitive_features).__name__} with {np.ndim(sensitive_features)} dimensions"
        )
    frame = pd.DataFrame(as_pandas(sensitive_features))
    if len(frame) != n_rows:
        raise ValueError(
            f"{name} has {len(frame)} rows, but X has {n_rows}; "
            f"give one {'group' if name == 'sensitive_features' else 'row'} per row of X"
        )
    if shuffled(sensitive_features, rows):
        raise ValueError(
            f"{name} and X have the same index in a different order; align them first, for example {name}.loc[X.index]"
        )
    if frame.shape[1] == 0:
        raise ValueError(f"{name} has no column")
    return [frame.iloc[:, j] for j in range(frame.shape[1])]


def shuffled(values: Any, rows: Any) -> bool:
    """Whether both carry an index, of the same labels in another order."""
    index, order = getattr(values, "index", None), getattr(rows, "index", None)
    return (
        isinstance(index, pd.Index)
        and isinstance(order, pd.Index)
        and not index.equals(order)
        and bool(index.sort_values().equals(order.sort_values()))
    )


def coded(column: Any) -> tuple[IntArray, list[str]]:
    """Codes of one column's values in the order in which they first occur, -1 for missing ones, and their names."""
    try:
        codes, values = pd.factorize(column.to_numpy(dtype=object, na_value=None))
    except TypeError:  # a value without a hash
        raise InputError(
            "{@sensitive_features} holds lists or other nested values in column {name!r}; give one value per row",
            name=column.name,
        ) from None
    # Values of one name, such as 1 and "1", are one group: later rows are matched by name.
    name_of, names = pd.factorize(np.array([str(value) for value in values], dtype=object))
    return np.append(name_of, -1).astype(np.intp)[codes], list(names)


def group_name(columns: Sequence[str], values: Sequence[str]) -> str:
    """Name a group by the values of its columns.

    Text of a single column stands by itself. Numbers, yes and no are preceded by their column, and so is every value
    where several columns are crossed, unless the columns are those of an array, whose names are numbers.

    >>> group_name(["sex"], ["female"]), group_name(["SEX"], ["1"]), group_name(["0"], ["1"])
    ('female', 'SEX=1', '1')
    >>> group_name(["SEX", "AGE"], ["1", "AGE 2: 30 to 39"]), group_name(["0", "1"], ["f", "old"])
    ('SEX=1, AGE 2: 30 to 39', 'f & old')
    """
    crossed, named = len(values) > 1, not any(column.isdigit() for column in columns)
    between = ", " if named else " & "

    def word(column: str, value: str) -> str:
        if crossed and (between in f" {value} " or value.startswith('"')):
            value = json.dumps(value, ensure_ascii=False)  # or it would read like several values
        vague = is_number(value) or value.lower() in ("true", "false", "yes", "no")
        carries = named and (crossed or vague) and not value.startswith(f"{column} ")
        return f"{column}={value}" if carries else value

    return between.join(map(word, columns, values))


class GroupProbabilities:
    """How likely each row belongs to each group, to be given as ``sensitive_features``.

    A group's mean score is the mean over all rows, weighted by the probability of the group. Where the probabilities
    are right for people of all kinds (*calibrated*: of those with 0.7, 70 % belong to the group), this is the true mean
    if the score and the group have nothing to do with each other among people of the same probabilities. Otherwise the
    mean is off by ``E[Cov(group, score | probabilities)] / E[p]``: members of a group who score higher than others
    with the same probability are missed, and the gap is understated. `bound` says by how much a mean may be off.

    Parameters
    ----------
    frame : frame, of Dask too, or array of shape (n, groups)
        Numbers from 0 to 1; each row sums to 1, or is missing, or all 0: such a row is of unknown group.
    sufficient : bool, default=False
        Your word that the probabilities know all that the score uses: among people of the same probabilities, score and
        group have nothing to do with each other. Otherwise statements carry bounds: how low and how high a group's mean
        may be, given the probabilities alone.

    Attributes
    ----------
    names : tuple of str
    values : array of shape (n, groups)
        NaN where a row's group is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> sure = GroupProbabilities(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]))
    >>> sure
    GroupProbabilities(4 rows; means may be off by at most, in standard deviations: 0 0.71, 1 0.71)
    """

    def __init__(self, frame: Any, *, sufficient: bool = False) -> None:
        self._take(frame, sufficient)
        if not self.lazy:
            _ = self.values

    @classmethod
    def unchecked(cls, frame: Any) -> "GroupProbabilities":
        """Probabilities that are checked when they are used, so that errors can say which partition they are in."""
        probabilities = cls.__new__(cls)
        probabilities._take(frame)
        return probabilities

    def _take(self, frame: Any, sufficient: bool = False) -> None:
        self.sufficient, self.lazy = sufficient, hasattr(frame, "dask")
        self.frame = frame if self.lazy else pd.DataFrame(as_pandas(frame))
        self.index, self.names = getattr(frame, "index", None), tuple(map(str, self.frame.columns))

    @cached_property
    def values(self) -> FloatArray:
        """The probabilities, shape (n, groups); NaN where a row's group is unknown."""
        try:
            values: FloatArray = self.frame.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise InputError("{@sensitive_features} has probabilities that are no numbers") from None
        if values.shape[1] < 2:
            raise InputError("{@sensitive_features} has one column of probabilities; give one for each group")
        empty = np.isnan(values).any(axis=1) | (values == 0).all(axis=1)
        wrong = ~empty & ~((values >= 0).all(axis=1) & (np.abs(values.sum(axis=1) - 1.0) < 1e-3))
        if wrong.any():
            raise InputError(
                "{@sensitive_features} has probabilities in {#row} that are negative, or do not sum to 1: {found}",
                row=int(wrong.argmax()), found=values[int(wrong.argmax())].round(4).tolist(),
            )  # fmt: skip
        return np.where(empty[:, None], np.nan, values)

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        if self.lazy:
            return f"GroupProbabilities({', '.join(self.names)}; a Dask collection)"
        if self.sufficient:
            return f"GroupProbabilities({len(self)} rows; {', '.join(self.names)}; sufficient=True)"
        bounds = ", ".join(f"{name} {off:.2f}" for name, off in self.bound().items())
        return f"GroupProbabilities({len(self)} rows; means may be off by at most, in standard deviations: {bounds})"

    def bound(self) -> dict[str, float]:
        """How far each group's mean score may be from the truth, in standard deviations of the score.

        If the probabilities are calibrated, ``|m - truth| <= sqrt(E[p (1 - p)]) / E[p]`` (Cauchy and Schwarz). The gap
        of two groups is off by the sum of the two at most. 0 where all probabilities are 0 or 1.
        """
        if self.lazy:
            return GroupProbabilities(self.frame.compute()).bound()
        known = self.values[~np.isnan(self.values).any(axis=1)]
        doubt, share = np.sqrt((known * (1.0 - known)).mean(axis=0)), known.mean(axis=0)
        return dict(zip(self.names, (doubt / np.where(share > 0, share, np.nan)).tolist(), strict=True))
