"""The result of explaining: parts of scores, reasons, display."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from evenout.core.types import AnyArray, BoolArray, FloatArray, IntArray
from evenout.exceptions import from_extra
from evenout.groups.read import EVERY, read_groups
from evenout.reasons.attribution import Parts, Resembling
from evenout.reasons.words import ReasonWords, number

_WHERE = {  # in the order of 2 before + after, where flagged is 1
    "not flagged": "is not on the list",
    "entered": "entered the list",
    "left": "left the list",
    "flagged": "stays on the list",
}
CHANGES = tuple(_WHERE)
LEAST = 0.05
RESEMBLANCE = "resemblance to groups"
_SHOWN = 50  # rows, in a notebook
_LINES = 15  # printed, at most
_WIDTH = 160  # characters of a line that is printed


def _of_score(figures: str, score: int) -> property:
    """A property of `Explanation`: figures of the base score (0) or of the fair score (1)."""
    return property(lambda self: getattr(self.parts, figures)[..., score])


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Scores of m rows, split over the p features of their table.

    Each row is held against a typical row: among the training rows most like it, or among all (``baseline``). Each part
    says what a feature adds to the score when the typical row is turned into this one (Shapley values; see
    ``docs/reasons.md``): ``base_parts.sum(axis=1) == base_scores - base_typical``, and likewise for the fair score.

    Where the fair score is corrected by how much a row resembles each group, that is the last part, beside those of the
    features: what the row gets for it, 0 for a row that tells nothing of its group. The typical rows count as such.

    Attributes
    ----------
    feature_names : tuple of str
        As in the table; encoded columns are summed up. Last, where there is such a part, ``"resemblance to groups"``.
    baseline : {"alike", "typical"}
    beside : array of shape (m, d)
        The typical row beside each, by encoded column: medians, and the most frequent categories. Nobody's row.
    base_parts, fair_parts, base_errors, fair_errors : arrays of shape (m, p)
        Parts, and their standard errors from sampling orders of the features; 0 up to 10 features.
    base_scores, fair_scores, base_typical, fair_typical : arrays of shape (m,)
        Of the rows, and of the typical row beside each.
    base_line, fair_line : float
        The scores above which rows are flagged.
    n_reasons : int
    index : Index of length m
    values : array of shape (m, p)
        What stands in the table; for resemblance, how many times as much as other rows a row is like the group that it
        gets most for.
    resembling : Resembling or None
        What rows get for resembling each group, and which features make it; see `evenout.reasons.attribution`.

    Examples
    --------
    >>> from evenout import FairOutlierEnsemble
    >>> from evenout.datasets import load_dataset
    >>> data = load_dataset("pima")
    >>> model = FairOutlierEnsemble(random_state=0).fit(data.X, sensitive_features=data.sensitive)  # doctest: +SKIP
    >>> model.explain(data.X[:2], n_reasons=1).to_frame()[["feature", "text"]]  # doctest: +SKIP
    """

    words: ReasonWords
    parts: Parts
    rows: FloatArray
    beside: FloatArray
    values: AnyArray
    index: Any
    n_reasons: int
    baseline: str
    base_line: float
    fair_line: float
    similar: IntArray  # places in the crowd of the rows most like each, (m, size); none if it is held against all

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def feature_names(self) -> tuple[str, ...]:  # noqa: D102
        names = self.words.features.names
        return names if self.resembling is None else (*names, RESEMBLANCE)

    @property
    def resembling(self) -> Resembling | None:  # noqa: D102
        return self.parts.resembling

    @property
    def tells(self) -> FloatArray:
        """Strength with which each feature tells the group, from 0 (not at all) to 1 (always); NaN for resemblance."""
        tells = np.full(len(self.words.features.names), -np.inf)
        np.maximum.at(tells, self.words.features.player, self.words.background.tells)
        return tells if self.resembling is None else np.append(tells, np.nan)

    base_parts, fair_parts = _of_score("parts", 0), _of_score("parts", 1)
    base_errors, fair_errors = _of_score("error", 0), _of_score("error", 1)
    base_scores, fair_scores = _of_score("scores", 0), _of_score("scores", 1)
    base_typical, fair_typical = _of_score("typical", 0), _of_score("typical", 1)

    @cached_property
    def flagged(self) -> BoolArray:
        """Whether the base and the fair score flag each row, shape (m, 2)."""
        return self.parts.scores > np.array([self.base_line, self.fair_line])

    @cached_property
    def changes(self) -> AnyArray:
        """``"flagged"``, ``"entered"``, ``"left"`` or ``"not flagged"``, for each row: what fairness made of it."""
        return np.array(CHANGES, dtype=object)[self.flagged @ [2, 1]]

    @cached_property
    def order(self) -> IntArray:
        """The features of each row by their part in its fair score, the largest first, shape (m, n_reasons)."""
        return np.argsort(-self.fair_parts, axis=1, kind="stable")[:, : self.n_reasons]

    def to_frame(self) -> pd.DataFrame:
        """One row for each row and reason, indexed as the table: rank, feature, value, base_part, fair_part, text.

        Reasons are ordered by their part in the fair score. ``fair_part - base_part`` is what fairness has added.
        """
        m, chosen = len(self), self.order.ravel()
        at = np.repeat(np.arange(m), self.n_reasons)
        return pd.DataFrame(
            {
                "rank": np.tile(np.arange(1, self.n_reasons + 1), m),
                "feature": np.array(self.feature_names, dtype=object)[chosen],
                "value": self.values[at, chosen],
                "base_part": self.base_parts[at, chosen],
                "fair_part": self.fair_parts[at, chosen],
                "text": [text for row in range(m) for text in self.texts(row)],
            },
            index=self.index[at],
        )

    def texts(self, row: int) -> list[str]:
        """The reasons of a row, by place, in words."""
        chosen = self.order[row].tolist()
        return [self.text(row, feature, chosen[:place]) for place, feature in enumerate(chosen)]

    def text(self, row: int, feature: int, earlier: Sequence[int] = ()) -> str:
        """One feature of a row, in words; ``earlier`` are the features that were named before."""
        if feature == len(self.words.features.names):
            return "for {}: {}".format(*self._resemblance(row))
        beside = self.beside[row] if self.baseline == "alike" else None
        near = self.words.background.crowd[self.similar[row]]
        value = self.words.value(feature, self.values[row, feature], self.rows[row], beside, near)
        return "; ".join([value, *self.words.notes(feature, self.parts.parts[row, feature], earlier)])

    def _resemblance(self, row: int) -> tuple[str, str]:
        """Name the group that a row gets most for, and say how much it gets, how alike it is, and by which features."""
        resembling, got, likeness = self.resembling, self.fair_parts[row, -1], self.values[row, -1]
        assert resembling is not None
        name = f"{'not resembling' if likeness < 1.0 else 'resembling'} group {resembling.names[resembling.most[row]]}"
        by = np.sign(got) * resembling.by_feature[row]
        order = [int(j) for j in np.argsort(-by, kind="stable")[:3] if by[j] > LEAST * np.maximum(by, 0.0).sum()]
        named = ", ".join(f"{self.words.features.names[j]} {self.shown(row, j)}" for j in order)
        like = f"{likeness:.1f} times as much like it as {self.words.rows} in general"
        return name, f"{got:+.3f} ({like}{', by ' if named else ''}{named})"

    def moves(self) -> pd.DataFrame:
        """Why rows entered or left the flagged list: change, text; only those that did, indexed as the table."""
        moved = np.flatnonzero(np.isin(self.changes, ("entered", "left")))
        columns = {"change": self.changes[moved], "text": [self.move_text(int(row)) for row in moved]}
        return pd.DataFrame(columns, index=self.index[moved])

    def move_text(self, row: int) -> str:
        """Say what fairness did to a row: where it is beside the line, and which features changed most."""
        lines = zip(self.parts.scores[row], (self.base_line, self.fair_line), strict=True)
        base, fair = (f"{score:.3f} (flagged above {line:.3f})" for score, line in lines)
        place = f"{_WHERE[str(self.changes[row])]}: base score {base}, fair score {fair}"
        return "; ".join(filter(None, [place, self.move_words(row)]))

    def move_words(self, row: int) -> str:
        """By what fairness raised or lowered the score of a row most, for those who stay by the sum of all."""
        added = np.append(self.fair_parts[row] - self.base_parts[row], self.fair_typical[row] - self.base_typical[row])
        last = f"what all similar {self.words.rows} got" if self.baseline == "alike" else "a shift of all"
        names = [*self.words.features.names, *([] if self.resembling is None else [self._resemblance(row)[0]]), last]
        sign = {"entered": 1.0, "left": -1.0}.get(str(self.changes[row]), float(np.sign(added.sum())) or 1.0)
        most = [int(j) for j in np.argsort(-sign * added, kind="stable")[: self.n_reasons] if sign * added[j] >= 5e-4]
        named = ", ".join(f"{names[j]} ({added[j]:+.3f})" for j in most)
        return f"{'raised' if sign > 0 else 'lowered'} most by {named}" if named else ""

    def influence(self, sensitive_features: Any = None) -> pd.DataFrame:
        """Measure the influence of each feature before and after fairness, or its share of the gaps between groups.

        Parameters
        ----------
        sensitive_features : array, series or frame, optional
            The groups of the rows.

        Returns
        -------
        DataFrame
            Without groups, by feature: ``base`` and ``fair`` are the mean sizes of its parts, ``change`` is fair / base
            - 1, ``tells`` how well it tells the group (0 not at all, 1 always). With groups, by group and feature:
            ``base`` and ``fair`` are the mean part in the group less that over all rows, and ``change`` is fair - base.
            With ``baseline="typical"`` they add up to the group's mean score less that of all rows.
        """
        names = pd.Index(self.feature_names, name="feature")
        if sensitive_features is None:
            base, fair = np.abs(self.parts.parts).mean(axis=0).T
            change = np.divide(fair, base, out=np.full_like(base, np.nan), where=base > 0) - 1.0
            return pd.DataFrame({"base": base, "fair": fair, "change": change, "tells": self.tells}, index=names)
        groups = read_groups(sensitive_features, len(self), EVERY)
        overall, frames = self.parts.parts.mean(axis=0), {}
        for code, label in enumerate(groups.labels):
            base, fair = (self.parts.parts[groups.codes == code].mean(axis=0) - overall).T
            frames[label] = pd.DataFrame({"base": base, "fair": fair, "change": fair - base}, index=names)
        return pd.concat(frames, names=["group"])

    def n_given(self, row: int) -> int:
        """Count the reasons of a row that are worth naming: `LEAST` or more of all that makes it an outlier.

        The first one always, if anything raises the score at all.
        """
        raised = np.maximum(self.fair_parts[row], 0.0)
        return max(int((raised[self.order[row]] > LEAST * raised.sum()).sum()), int(raised.any()))

    def summary(self, row: int) -> str:
        """Whether one of the reasons of a row is rare by itself or in a pair with another; empty if so."""
        p, given = len(self.words.features.names), self.order[row][: self.n_given(row)].tolist()
        near = self.words.background.crowd[self.similar[row]]
        if any(j == p or self.words.stands_out(j, self.rows[row], near) for j in given):
            return ""
        return (
            "no column stands out by itself or in a pair: the score is made of many small differences"
            if self.flagged[row].any()
            else "nothing stands out"
        )

    def lines(self, row: int) -> Iterator[str]:
        """Explain a row, line by line."""
        yield f"{self.index[row]}: {self.move_text(row)}"
        reasons = list(zip(self.order[row], self.texts(row), strict=True))[: self.n_given(row)]
        for rank, (feature, text) in enumerate(reasons, 1):
            base, fair = self.parts.parts[row, feature]
            yield f"  {rank}. {text}  [{base:+.3f} before, {fair:+.3f} after fairness]"
        if self.summary(row):
            yield f"  {self.summary(row)}"

    def __repr__(self) -> str:
        """Explain the first rows in at most 15 lines."""
        beside = "those most like it" if self.baseline == "alike" else "the typical row of all"
        flagged = number(int(self.flagged[:, 1].sum()))
        said, left = [f"{number(len(self))} rows, {flagged} flagged; each is held against {beside}"], len(self)
        for row in range(len(self)):
            told = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in self.lines(row)]
            if len(said) + len(told) > _LINES - 1:
                break
            said, left = said + told, left - 1
        return "\n".join([*said, f"... {number(left)} more: to_frame(), lines(row), plot(row)"] if left else said)

    def shown(self, row: int, feature: int) -> str:
        """The value of a row in a feature, as text."""
        value = self.values[row, feature]
        if value is None:
            return "missing"
        return number(float(value)) if isinstance(value, float | int | np.number) else str(value)

    def plot(self, row: int, *, ax: Any = None) -> "ReasonsDisplay":
        """Draw the parts of one row, by place; needs matplotlib."""
        return ReasonsDisplay.from_explanation(self, row, ax=ax)

    def _repr_html_(self) -> str:
        few = self.to_frame().head(_SHOWN * self.n_reasons)
        more = f"<p>{_SHOWN} of {number(len(self))} rows</p>" if len(self) > _SHOWN else ""
        return few.to_html(float_format=lambda value: f"{value:.3f}") + more


_MOST = 10  # features that are drawn; the others are one bar
_BEFORE, _AFTER = "#999999", "#0072B2"


class ReasonsDisplay:
    """Parts of one row's score, the largest on top; grey before fairness, blue after.

    Use `from_explanation`, or ``Explanation.plot``. Bars to the right make the row more of an outlier.

    ``names`` are those of the features, the most important first; ``parts`` (features, 2) are in the base and in the
    fair score.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    bars_ : dict of matplotlib BarContainer
        ``"before"`` and ``"after"``.
    """

    ax_: Any
    figure_: Any
    bars_: dict[str, Any]

    def __init__(self, *, names: list[str], parts: FloatArray, title: str) -> None:
        self.names = names
        self.parts = parts
        self.title = title

    @classmethod
    def from_explanation(cls, explanation: "Explanation", row: int, *, ax: Any = None) -> Self:
        """Draw a row of an explanation, by place."""
        parts = explanation.parts.parts[row]
        order = np.argsort(-np.abs(parts).max(axis=1), kind="stable")
        first, rest = order[:_MOST], order[_MOST:]
        names = [f"{explanation.feature_names[j]} = {explanation.shown(row, j)}" for j in first]
        shown = parts[first]
        if len(rest):
            names, shown = [*names, f"{len(rest)} others"], np.vstack([shown, parts[rest].sum(axis=0)])
        return cls(names=names, parts=shown, title=f"{explanation.index[row]}: {explanation.changes[row]}").plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into ``ax``, or into a new figure."""
        plt = from_extra("matplotlib.pyplot", "pages", "a display")
        self.ax_ = plt.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        place = np.arange(len(self.names))[::-1]
        self.bars_ = {
            "before": self.ax_.barh(place + 0.2, self.parts[:, 0], 0.38, color=_BEFORE, label="before fairness"),
            "after": self.ax_.barh(place - 0.2, self.parts[:, 1], 0.38, color=_AFTER, label="after fairness"),
        }
        self.ax_.axvline(0.0, color="0.3", linewidth=0.8)
        self.ax_.set_yticks(place, self.names)
        self.ax_.set(xlabel="added to the score, beside the typical row", title=self.title)
        self.ax_.legend(frameon=False)
        return self
