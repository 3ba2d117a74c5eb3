"""Reasons in words and numbers that a person can check."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenout.core.types import FloatArray, IntArray
from evenout.fitting.background import SHARES, Background, guessed_share
from evenout.reasons.features import Features

PROXY = 0.25  # how well a feature tells the group, from 0 to 1, from which on this is said
UNUSUAL = 0.75  # share of rows beyond which a value is called higher or lower
_MOSTLY = 3.0  # times its part before
_CHANGED = 0.25  # of a part, from which on it is said that fairness has changed it
_LOW, _HIGH = (int(np.searchsorted(SHARES, share)) for share in (0.1, 0.9))


@dataclass(frozen=True)
class Words:
    """The words of a model.

    Parameters
    ----------
    background : Background
    features : Features
    rows : str
        What rows are called: ``"rows"``, ``"people"``, ``"clients"``.
    """

    background: Background
    features: Features
    rows: str = "rows"

    def value(self, feature: int, shown: Any, row: FloatArray, beside: FloatArray | None) -> str:
        """A feature, what it is in a row, encoded (d,), and how usual that is: among all, and beside its company."""
        name, columns = self.features.names[feature], self.features.columns(feature)
        if self.features.kinds[feature] == "categories":
            return f"{name}: {self._category(shown, row, beside, columns)}"
        if shown is None:
            return f"{name}: missing, taken as {number(row[columns[0]])}"
        column = max(columns.tolist(), key=lambda j: max(self.beyond(float(row[j]), j)))
        if self.features.kinds[feature] == "numbers":
            return f"{name}: {number(row[column])}, {self._place(row, beside, column)}"
        if column == columns[0]:
            return f"{name}: {shown}, {self._place(row, None, column, words=('later', 'earlier'), span=False)}"
        part = self.features.labels[column].removeprefix(name).strip(" ()")
        return f"{name}: {shown}, {part} {number(row[column])}, {self._place(row, beside, column)}"

    def beyond(self, value: float, column: int) -> tuple[float, float]:
        """At least this share of the training rows lies below the value, and at least this share above."""
        levels = self.background.levels[:, column]
        below, upto = np.searchsorted(levels, value, side="left"), np.searchsorted(levels, value, side="right")
        above = 1.0 - SHARES[upto] if upto < len(SHARES) else 0.0
        return (float(SHARES[below - 1]) if below else 0.0), 1.0 if upto == 0 else float(above)

    def _place(
        self,
        row: FloatArray,
        beside: FloatArray | None,
        column: int,
        words: tuple[str, str] = ("higher", "lower"),
        *,
        span: bool = True,
    ) -> str:
        value, levels = float(row[column]), self.background.levels[:, column]
        said = [f"80% of {self.rows}: {number(levels[_LOW])} to {number(levels[_HIGH])}"] if span else []
        similar = "" if beside is None or beside[column] == value else f"those most similar: {number(beside[column])}"
        usual = f" ({'; '.join(filter(None, [*said, similar]))})" if said or similar else ""
        for share, word in zip(self.beyond(value, column), words, strict=True):
            if share >= 1.0:
                return f"{word} than in any training row{usual}"
            if share >= UNUSUAL:
                return f"{word} than {percent(share)} of {self.rows}{usual}"
        if value == (self.background.typical if beside is None else beside)[column]:
            return "the typical value"
        return f"common by itself{usual}"

    def _category(self, shown: Any, row: FloatArray, beside: FloatArray | None, columns: IntArray) -> str:
        text = "missing" if shown is None else str(shown)
        held = columns[row[columns] == 1.0]
        if not len(held):
            return f"{text}, which no training row has"
        usual = self.background.means[columns] if beside is None else beside[columns]
        most = columns[usual.argmax()]
        share = f"{text}, as {percent(float(self.background.means[held[0]]))} of {self.rows}"
        if held[0] == most:
            return share
        label = self.features.labels[most].partition("=")[2]
        return f"{share} ({'most frequent' if beside is None else 'those most similar'}: {label})"

    def notes(self, feature: int, parts: FloatArray, earlier: list[int]) -> list[str]:
        """What else must be said of a reason: parts (2,) in base and fair score, and the reasons named before it."""
        said = []
        base, fair = parts
        if fair > _MOSTLY * max(base, 0.0):
            said.append("counts mostly because of fairness")
        elif base > 0 and fair <= 0:
            said.append("no longer counts after fairness")
        elif base > 0 and abs(fair - base) >= _CHANGED * base:
            said.append(f"counts {percent(abs(fair / base - 1))} {'less' if fair < base else 'more'} after fairness")
        kin = self.kin(feature)
        alike = [self.features.names[other] for other in earlier if kin & self.kin(other)]
        if alike:
            said.append(f"moves together with {alike[0]}")
        tells = float(self.background.tells[self.features.columns(feature)].max())
        if tells >= PROXY:
            right, chance = guessed_share(tells, self.background.n_groups), 1.0 / self.background.n_groups
            said.append(
                f"it tells the group: {percent(right)} of guesses from it alone are right, {percent(chance)} by chance"
            )
        return said

    def kin(self, feature: int) -> set[int]:
        """The chains of columns that move together, to which a feature belongs."""
        return set(self.background.kin[self.features.columns(feature)].tolist())

    def text(
        self,
        feature: int,
        shown: Any,
        row: FloatArray,
        beside: FloatArray | None,
        parts: FloatArray,
        earlier: list[int],
    ) -> str:
        """A whole reason, as one line; ``beside`` is the typical row of the row's company, None: that of all rows."""
        return "; ".join([self.value(feature, shown, row, beside), *self.notes(feature, parts, earlier)])


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
