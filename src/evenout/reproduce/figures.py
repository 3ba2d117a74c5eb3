"""The paper's figures, and the two that its claims lack, drawn from the settings.

One row of panels per figure, one panel per data set, both base ensembles in each. Colours are those of Okabe and Ito,
which the colour-blind can tell apart. Files of equal content are equal in every byte.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from evenout.reproduce.claims import PaperSetting
from evenout.reproduce.experiment import BASES, FAIRNESS, FRAMEWORKS, MAIN, SUPPLEMENT, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels: TypeAlias = dict[str, list[PaperSetting]]  # the settings in each panel, by its title

INK, FAINT = "#24292f", "#d8dee4"
COLOURS = {"maximum": "#0072b2", "greedy": "#d55e00"}
LABELS = {"maximum": "Maximum combination", "greedy": "Greedy selection"}
PARTS = {"main": MAIN, "supplement": SUPPLEMENT}

_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
_PANEL = (2.95, 2.4)  # inches
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.8,
    "svg.fonttype": "none",  # text stays text: small files, and readable aloud
    "svg.hashsalt": "evenout",
    "savefig.transparent": False,
} | dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK
)


@dataclass(frozen=True)
class PaperFigure:
    """A planned figure: the name of its files, a description in words, its size in inches, and how to draw it."""

    name: str
    alt: str
    size: tuple[float, float]
    draw: Callable[["Figure"], None]

    def save(self, folder: Path) -> None:
        """Write ``<name>.png`` and ``<name>.svg``, without touching matplotlib's global state."""
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        with mpl.rc_context(_STYLE):
            figure = Figure(figsize=self.size, layout=ConstrainedLayoutEngine(wspace=0.05))
            self.draw(figure)
            figure.savefig(folder / f"{self.name}.png", dpi=180)
            figure.set_layout_engine("none")  # the layout is found; finding it again would double the time
            figure.savefig(folder / f"{self.name}.svg", transparent=True, metadata={"Date": None})


CURVES = {  # columns of the points to plot against each other, x and y, and their labels
    "distance": ("f2", "f1", "{} bias f2  (left is fairer)", "Distance f1 to the target"),
    "auc": ("f2", "auc", "{} bias f2  (left is fairer)", "AUC"),
    "scale_free": ("bias", "auc", "Scale-free {} bias  (left is fairer)", "AUC"),
}


def plan(settings: Sequence[PaperSetting]) -> list[PaperFigure]:
    """Every figure that the settings allow, in the order of the page."""
    drawings = []
    for (part, titles), fairness in product(PARTS.items(), FAIRNESS):
        panels = {
            titles[name]: [s for s in settings if (s.dataset, s.fairness) == (name, fairness)]
            for name in titles
            if any(s.dataset == name for s in settings)
        }
        if not panels:
            continue
        names = ", ".join(panels)
        for kind, (x, y, label, ylabel) in CURVES.items():
            xlabel = label.format(fairness)
            alt = f"{ylabel} against {xlabel}, curves of both base ensembles on {names}."
            drawings.append(_row(f"{kind}_{fairness}_{part}", alt, panels, partial(_curves, x, y, xlabel, ylabel)))
        alt = f"Boxplots of the cost of {fairness} fairness, weighted beside unweighted, on {names}."
        drawings.append(_row(f"cost_{fairness}_{part}", alt, panels, _costs))
    notions = {f"{name.capitalize()} fairness": [s for s in settings if s.fairness == name] for name in FAIRNESS}
    alt = "Share of the scale-free bias left against the share of f2 removed, a line per data set and base ensemble."
    drawings.append(_row("shrinkage", alt, notions, _shrinkage, (7.4, 3.0), sharey=True))
    alt = "Difference of AUC between the weighted and the unweighted framework at equal scale-free bias, by data set."
    size = 7.4, 1.3 + 0.28 * len({s.dataset for s in settings})
    return [*drawings, _row("equal_bias", alt, notions, _equal_bias, size, sharex=True, sharey=True)]


def count(datasets: Sequence[str]) -> int:
    """Number of figures that `plan` has for these data sets."""
    n_parts = sum(any(name in titles for name in datasets) for titles in PARTS.values())
    return n_parts * len(FAIRNESS) * (len(CURVES) + 1) + 2


def _row(
    name: str, alt: str, panels: Panels, fill: Callable[["Figure", list["Axes"], Panels], None],
    size: tuple[float, float] | None = None, **shared: Any,
) -> PaperFigure:  # fmt: skip
    """A row of panels under one legend, by default with room for its lines; ``shared`` axes as in ``subplots``."""

    def draw(figure: "Figure") -> None:
        from matplotlib.ticker import MaxNLocator

        axes = list(figure.subplots(1, len(panels), squeeze=False, **shared)[0])
        for ax, title in zip(axes, panels, strict=True):
            ax.set_title(title, pad=7)
            # At most four ticks; below, where labels lie side by side, there is room for fewer of them.
            ax.xaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 1.5, 2, 3, 5, 10], min_n_ticks=2))
            ax.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], min_n_ticks=3))
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_formatter(lambda number, _: _plain(number))
        fill(figure, axes, panels)

    legend_rows = 1 if len(panels) > 2 else 5 - len(panels) * 2
    room = _PANEL[0] * len(panels), _PANEL[1] + 0.2 * legend_rows + 0.15
    return PaperFigure(name, alt, size or room, draw)


def _curves(x: str, y: str, xlabel: str, ylabel: str, figure: "Figure", axes: list["Axes"], panels: Panels) -> None:
    """Draw the median over the repeats at each step of alpha, and the range of y over the repeats as a band."""
    for ax, settings in zip(axes, panels.values(), strict=True):
        for setting in settings:
            points, colour = setting.curves["weighted"], COLOURS[setting.base]
            across, heights = np.median(points[x], axis=0), points[y]
            middle = np.median(heights, axis=0)
            ax.fill_between(across, heights.min(axis=0), heights.max(axis=0), color=colour, alpha=0.18, linewidth=0)
            ax.plot(across, middle, color=colour)
            ax.plot(across[:1], middle[:1], "s", color=colour, markersize=5.5)
        ax.margins(x=0.07, y=0.07)
        if x == "bias":  # from 0, so that a bias that hardly moves is seen to
            ax.set_xlim(0, 1.08 * max(np.median(s.curves["weighted"]["bias"], axis=0).max() for s in settings))
    axes[0].set_ylabel(ylabel)
    figure.supxlabel(xlabel[0].upper() + xlabel[1:], fontsize=8.5)
    _legend(figure, len(axes), len(next(iter(panels.values()))[0].target_auc))


def _legend(figure: "Figure", n_panels: int, n_repeats: int = 0) -> None:
    """Name the base ensembles and, of curves over some repeats, the mark at alpha = 0 and the band."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Line2D | Patch] = [Line2D([], [], color=COLOURS[base], label=LABELS[base]) for base in BASES]
    if n_repeats:
        handles.append(Line2D([], [], color=INK, marker="s", linestyle="none", markersize=5, label="alpha = 0"))
    if n_repeats > 1:
        handles.append(Patch(color=INK, alpha=0.18, linewidth=0, label=f"range over {n_repeats} repeats"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4 if n_panels > 2 else n_panels)


def _costs(figure: "Figure", axes: list["Axes"], panels: Panels) -> None:
    """Draw boxes of cof: weighted filled, unweighted hollow; whiskers to 1.5 times the box, points beyond left out."""
    from matplotlib.patches import Patch

    for ax, settings in zip(axes, panels.values(), strict=True):
        ax.axhline(0, color=INK, linewidth=0.7)
        for position, setting in enumerate(settings):
            for side, framework in zip((-0.2, 0.2), FRAMEWORKS, strict=True):
                values, colour = setting.cof[framework], COLOURS[setting.base]
                face = f"{colour}8c" if framework == "weighted" else "none"
                thin = {"color": colour, "linewidth": 1.1}
                ax.boxplot(
                    values[np.isfinite(values)], positions=[position + side], widths=0.3, showfliers=False,
                    patch_artist=True, manage_ticks=False, whiskerprops=thin, capprops=thin,
                    boxprops={"facecolor": face, "edgecolor": colour, "linewidth": 1.1},
                    medianprops={"color": colour, "linewidth": 2.0},
                )  # fmt: skip
        ax.set_xticks(range(len(settings)), [s.base.capitalize() for s in settings])
        ax.set_xlim(-0.6, len(settings) - 0.4)
        ax.grid(visible=False, axis="x")
    axes[0].set_ylabel("Cost of fairness (cof)")
    handles = [
        Patch(facecolor=INK, alpha=0.55, label="weighted (with beta)"),
        Patch(facecolor="none", edgecolor=INK, label="unweighted"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4 if len(axes) > 2 else len(axes))


def _shrinkage(figure: "Figure", axes: list["Axes"], panels: Panels) -> None:
    """Draw how much of the scale-free bias is left as f2 is removed: shrinking the scores alone leaves all of it."""
    for ax, settings in zip(axes, panels.values(), strict=True):
        for setting in settings:
            f2, bias = (setting.curves["weighted"][name] for name in ("f2", "bias"))
            gone, left = 1 - np.median(f2 / f2[:, :1], axis=0), np.median(bias / bias[:, :1], axis=0)
            ax.plot(gone, left, color=COLOURS[setting.base], linewidth=1.1, alpha=0.8)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes[0].set(ylim=(-0.04, None), ylabel="Scale-free bias left")
    figure.supxlabel("Raw bias f2 removed", fontsize=8.5)
    _legend(figure, 2)


def _equal_bias(figure: "Figure", axes: list["Axes"], panels: Panels) -> None:
    """Draw the fair version of Q3: differences of AUC at equal scale-free bias, dots on the range over the repeats."""
    names = list(dict.fromkeys(s.dataset for settings in panels.values() for s in settings))
    for ax, settings in zip(axes, panels.values(), strict=True):
        comparable = [s for s in settings if np.isfinite(s.gain)]
        ax.grid(visible=False, axis="y")
        ax.axvline(0, color=INK, linewidth=0.7)
        for s in comparable:
            height, colour = names.index(s.dataset) + (-0.17 if s.base == BASES[0] else 0.17), COLOURS[s.base]
            ax.hlines(height, np.nanmin(s.gains), np.nanmax(s.gains), color=colour, alpha=0.35, linewidth=3)
            ax.plot(s.gain, height, "o", color=colour, markersize=5.5)
        for height, name in enumerate(names):
            if all(s.dataset != name for s in comparable):
                ax.text(
                    0.03, height, "not comparable", transform=ax.get_yaxis_transform(), va="center", fontsize=7.5,
                    alpha=0.6,
                )  # fmt: skip
    axes[0].set_yticks(range(len(names)), [TITLES[name] for name in names])
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel("AUC with beta less AUC without, at equal scale-free bias  (right: beta helps)", fontsize=8.5)
    _legend(figure, 2)


def _plain(number: float) -> str:
    """Write a tick as ``0.02`` or ``150``, and with powers of ten only for very small numbers."""
    if number == 0 or abs(number) >= 1e-4:
        return f"{number:,.10g}".replace("-", "\N{MINUS SIGN}")
    digits, power = f"{number:.3e}".split("e")
    return f"{float(digits):g}\N{MULTIPLICATION SIGN}10{str(int(power)).translate(_RAISED)}"
