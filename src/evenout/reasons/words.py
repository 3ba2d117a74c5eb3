"""Reasons in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.detectors.units import feature_labels
from evenout.fitting.result import SHARES, Background
from evenout.tables.columns import Categories, Dates, Numbers
from evenout.tables.encoder import TableEncoder


@dataclass(frozen=True)
class Features:
    """The p features of a table, and which of the d encoded columns each is made of."""

    names: tuple[str, ...]
    player: IntArray  # (d,): the feature that each encoded column belongs to
    kinds: tuple[str, ...]  # of the features: "numbers", "dates" or "categories"
    labels: tuple[str, ...]  # of the encoded columns: home=own, joined (month)
    table: tuple[Numbers | Dates | Categories, ...] = ()  # the columns, where they were encoded here

    @classmethod
    def of(cls, table: TableEncoder | None, d: int, names: Any = None) -> "Features":
        """Of the columns that an encoder has learnt; of rows that were not encoded here each column is a feature."""
        if table is None:
            labels = tuple(feature_labels(names, d))
            return cls(labels, np.arange(d), ("numbers",) * d, labels)
        columns = table.encoded_columns
        player = np.repeat(np.arange(len(columns)), [len(column.features) for column in columns])
        names, kinds = zip(*((str(column.name), column.kind) for column in columns), strict=True)
        return cls(names, player, kinds, tuple(table.get_feature_names_out()), tuple(columns))

    def columns(self, feature: int) -> IntArray:
        """The encoded columns of a feature."""
        return np.flatnonzero(self.player == feature)

    def shown(self, rows: FloatArray, frame: pd.DataFrame | None = None) -> AnyArray:
        """Values of the table, (m, p), as numbers, text, dates, or None where one is missing.

        From encoded rows (m, d), and better from the frame that they were encoded from.
        """
        if not self.table:
            return rows.astype(object)
        return np.column_stack(
            [
                _shown_column(column, rows[:, self.columns(j)], None if frame is None else frame[column.name])
                for j, column in enumerate(self.table)
            ]
        )


def _shown_column(column: Numbers | Dates | Categories, encoded: FloatArray, given: pd.Series | None) -> AnyArray:
    """Values of one column of a table, from its encoded columns (m, c) or as given; None where one is missing."""
    if isinstance(column, Categories):
        place = np.where(encoded.any(axis=1), encoded.argmax(axis=1), -1)
        shown = np.array([*column.values, "no known value"], dtype=object)[place]
    elif isinstance(column, Dates):
        stamps = pd.to_datetime(encoded[:, 0] + column.first, unit="D").floor("s")
        shown = np.array([str(stamp).removesuffix(" 00:00:00") for stamp in stamps], dtype=object)
    else:
        shown = encoded[:, 0].astype(object)
    if given is not None:
        if not isinstance(column, Numbers):
            shown = given.astype(str).to_numpy(dtype=object).copy()
        shown[given.isna().to_numpy()] = None
    return shown


PROXY = 0.25  # how well a feature tells the group, from 0 to 1, from which on this is said
UNUSUAL = 0.75  # share of rows beyond which a value is called higher or lower
_MOSTLY = 3.0  # times its part before
_RARE = 0.1  # share of rows with a category, below which it is rare by itself
_TOGETHER = 0.95  # share of rows alike in another feature beyond which a common value is rare among them
_AMONG_LIKE = 0.9  # the same, of the rows most similar
_ALIKE, _FEWEST = 100, 20  # rows alike in another feature: about so many of the crowd, and at least
_CHANGED = 0.25  # of a part, from which on it is said that fairness has changed it
_BELOW, _ABOVE = np.append(0.0, SHARES), np.append(1.0 - SHARES, 0.0)  # rows beyond a value, by its place in the levels
_LOW, _HIGH = (int(np.searchsorted(SHARES, share)) for share in (0.1, 0.9))


@dataclass(frozen=True)
class ReasonWords:
    """The words of a model; ``rows`` is what rows are called: ``"rows"``, ``"people"``, ``"clients"``."""

    background: Background
    features: Features
    rows: str = "rows"

    def value(
        self, feature: int, shown: Any, row: FloatArray, beside: FloatArray | None, near: FloatArray | None = None
    ) -> str:
        """A feature, what it is in a row (d,), and how usual that is: among all, beside the typical row and near it."""
        name, columns = self.features.names[feature], self.features.columns(feature)
        if self.features.kinds[feature] == "categories":
            return f"{name}: {self._category(feature, shown, row, beside, near)}"
        if shown is None:
            return f"{name}: missing, taken as {number(row[columns[0]])}"
        column = self._oddest(feature, row)
        if self.features.kinds[feature] == "numbers":
            return f"{name}: {number(row[column])}, {self._place(feature, row, beside, near)}"
        if column == columns[0]:
            return f"{name}: {shown}, {self._place(feature, row, None, near, dated=True)}"
        part = self.features.labels[column].removeprefix(name).strip(" ()")
        return f"{name}: {shown}, {part} {number(row[column])}, {self._place(feature, row, beside, near)}"

    def stands_out(self, feature: int, row: FloatArray, near: FloatArray | None) -> bool:
        """Whether what a row has in a feature is rare: by itself, with another feature, or among similar rows."""
        if self.features.kinds[feature] == "categories":
            held = self._held(feature, row)
            alone = held is None or bool(self.background.means[held] < _RARE)
        else:
            column = self._oddest(feature, row)
            alone = max(self.beyond(float(row[column]), column)) >= UNUSUAL
        return alone or bool(self._together(feature, row, near))

    def beyond(self, value: float, column: int) -> tuple[float, float]:
        """At least this share of the training rows lies below the value, and at least this share above."""
        levels = self.background.levels[:, column]
        below, upto = np.searchsorted(levels, value, side="left"), np.searchsorted(levels, value, side="right")
        return float(_BELOW[below]), float(_ABOVE[upto])

    def _held(self, feature: int, row: FloatArray) -> int | None:
        """The encoded column of the category that a row has; None for one that no training row has."""
        columns = self.features.columns(feature)
        return next(iter(columns[row[columns] == 1.0].tolist()), None)

    def _oddest(self, feature: int, row: FloatArray) -> int:
        """The encoded column of a feature in which a row is furthest out."""
        return max(self.features.columns(feature).tolist(), key=lambda j: max(self.beyond(float(row[j]), j)))

    def _place(
        self, feature: int, row: FloatArray, beside: FloatArray | None, near: FloatArray | None, *, dated: bool = False
    ) -> str:
        column, words = self._oddest(feature, row), ("later", "earlier") if dated else ("higher", "lower")
        value, levels = float(row[column]), self.background.levels[:, column]
        said = [] if dated else [f"80% of {self.rows}: {number(levels[_LOW])} to {number(levels[_HIGH])}"]
        similar = "" if beside is None or beside[column] == value else f"those most similar: {number(beside[column])}"
        usual = f" ({'; '.join(filter(None, [*said, similar]))})" if said or similar else ""
        for share, word in zip(self.beyond(value, column), words, strict=True):
            if share >= 1.0:
                return f"{word} than in any training row{usual}"
            if share >= UNUSUAL:
                return f"{word} than {percent(share)} of {self.rows}{usual}"
        if value == (self.background.typical if beside is None else beside)[column]:
            return "the typical value"
        rare = self._together(feature, row, near, words)
        return f"common by itself{usual}, {f'but {rare}' if rare else 'and in no pair with another column rare'}"

    def _category(
        self, feature: int, shown: Any, row: FloatArray, beside: FloatArray | None, near: FloatArray | None
    ) -> str:
        text, held = "missing" if shown is None else str(shown), self._held(feature, row)
        if held is None:
            return f"{text}, which no training row has"
        columns, share = self.features.columns(feature), float(self.background.means[held])
        company, means = ("most frequent", self.background.means) if beside is None else ("those most similar", beside)
        most = columns[means[columns].argmax()]
        usual = "" if held == most else f" ({company}: {self.features.labels[most].partition('=')[2]})"
        rare = self._together(feature, row, near) if share >= _RARE else ""
        said = f"{text}, as {percent(share)} of {self.rows}{usual}"
        return f"{said}, but {rare}" if rare else said

    def _together(
        self, feature: int, row: FloatArray, near: FloatArray | None, words: tuple[str, str] = ("higher", "lower")
    ) -> str:
        """With which other feature, or among which rows, a common value is rare, in counts; empty if with none."""
        column = self._oddest(feature, row)
        crowd, best, rare = self.background.crowd, _TOGETHER, ""
        for other in (j for j in range(len(self.features.names)) if j != feature):
            alike, having = self._alike(other, row)
            if len(alike) >= _FEWEST:
                share, said = self._among(crowd[alike, column], row[column], feature, words)
                if share > best:
                    best, rare = share, f"{said} {len(alike)} training rows with {having}"
        if not rare and near is not None and len(near) >= _FEWEST:
            share, said = self._among(near[:, column], row[column], feature, words)
            rare = f"{said} the {len(near)} most similar rows" if share >= _AMONG_LIKE else ""
        return rare

    def _among(self, values: FloatArray, value: float, feature: int, words: tuple[str, str]) -> tuple[float, str]:
        """Share of some rows on the other side of a value, or with another category; and in words."""
        if self.features.kinds[feature] == "categories":
            other = int((values != value).sum())
            return other / len(values), f"unlike {other} of"
        below, above = int((values < value).sum()), int((values > value).sum())
        most, word = (below, words[0]) if below >= above else (above, words[1])
        return most / len(values), f"{word} than in {most} of"

    def _alike(self, feature: int, row: FloatArray) -> tuple[IntArray, str]:
        """Rows of the crowd with the same category, or with the nearest numbers and all that tie; and in words."""
        crowd, (order, ordered) = self.background.crowd, self._ordered
        if self.features.kinds[feature] == "categories":
            held = self._held(feature, row)
            if held is None:
                return np.empty(0, np.intp), ""
            return np.flatnonzero(crowd[:, held] == 1.0), self.features.labels[held].replace("=", " ", 1)
        column, size = self.features.columns(feature)[0], min(_ALIKE, max(_FEWEST, len(crowd) // 10), len(crowd))
        values, middle = ordered[:, column], int(np.searchsorted(ordered[:, column], row[column]))
        start = min(max(0, middle - size // 2), len(values) - size)
        first, last = np.searchsorted(values, values[start]), np.searchsorted(values, values[start + size - 1], "right")
        return order[first:last, column], f"a similar {self.features.names[feature]}"

    @cached_property
    def _ordered(self) -> tuple[IntArray, FloatArray]:
        """Places of the crowd by column, ascending, and the values there."""
        order = np.argsort(self.background.crowd, axis=0, kind="stable")
        return order, np.take_along_axis(self.background.crowd, order, axis=0)

    def notes(self, feature: int, parts: FloatArray, earlier: Sequence[int]) -> list[str]:
        """Notes to a reason, from its parts (2,) in base and fair score and the reasons named before it."""
        said, (base, fair) = [], parts
        if fair > _MOSTLY * max(base, 0.0):
            said.append("counts mostly because of fairness")
        elif base > 0 and fair <= 0:
            said.append("no longer counts after fairness")
        elif base > 0 and abs(fair - base) >= _CHANGED * base:
            said.append(f"counts {percent(abs(fair / base - 1))} {'less' if fair < base else 'more'} after fairness")
        kin = [set(self.background.kin[self.features.columns(j)].tolist()) for j in (feature, *earlier)]
        alike = [self.features.names[j] for j, other in zip(earlier, kin[1:], strict=True) if kin[0] & other]
        if alike:
            said.append(f"moves together with {alike[0]}")
        tells = float(self.background.tells[self.features.columns(feature)].max())
        if tells >= PROXY:
            chance = 1.0 / self.background.n_groups
            right = tells * (1.0 - chance) + chance
            said.append(
                f"it tells the group: {percent(right)} of guesses from it alone are right, {percent(chance)} by chance"
            )
        return said


def number(value: float) -> str:
    """A number for people: four digits that count, thousands apart.

    >>> number(1684.0), number(0.031246), number(-12.5), number(1234567.8), number(1e-9)
    ('1,684', '0.03125', '-12.5', '1,234,568', '1e-09')
    """
    if value == 0 or not 1e-4 <= abs(value) < 1e15:
        return f"{value:.4g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float) -> str:
    """A share in percent, with a digit after the point where it says more.

    >>> percent(0.98), percent(0.998), percent(0.0004), percent(0.3)
    ('98%', '99.8%', '0.04%', '30%')
    """
    shown = 100.0 * share
    if 99 < shown < 100 or 0.1 <= shown < 1:
        return f"{shown:.1f}%"
    return f"{shown:.0f}%" if shown >= 1 or shown == 0 else f"{shown:.1g}%"
