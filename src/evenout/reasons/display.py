"""A picture of one row: what each feature adds to its score, before and after fairness."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from evenout.core.exceptions import from_extra
from evenout.core.types import FloatArray

if TYPE_CHECKING:
    from evenout.reasons.explanation import Explanation

_MOST = 10  # features that are drawn; the others are one bar
_BEFORE, _AFTER = "#999999", "#0072B2"


class ReasonsDisplay:
    """Parts of one row's score, the largest on top; grey before fairness, blue after.

    Use `from_explanation`, or ``Explanation.plot``. Bars to the right make the row more of an outlier.

    Parameters
    ----------
    names : sequence of str
        Of the features, the most important first.
    parts : array of shape (features, 2)
        In the base and in the fair score.
    title : str

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
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
        title = f"{explanation.index[row]}: {explanation.changes[row]}"
        return cls(names=names, parts=shown, title=title).plot(ax)

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
