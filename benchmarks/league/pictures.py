"""The frontiers as pictures: AUC over the gap between groups, every method at all of its settings, on judged halves."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from league.contract import BASE
from league.page import League

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart, and markers that differ too.
OURS = "#0072B2"
COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F", "#8C564B")
MARKERS = "s^DvP*Xh"
OWN_LOOKS = (("o", "-"), ("<", "--"), (">", ":"))
COLUMNS = 3


def draw_frontiers(league: League, folder: Path) -> Path:
    """One panel for each table, in one picture."""
    tables, n_rows = league.tables, -(-(len(league.tables) + 1) // COLUMNS)
    figure = Figure(figsize=(3.3 * COLUMNS, 2.6 * n_rows), layout="constrained")
    axes = np.atleast_2d(figure.subplots(n_rows, COLUMNS)).ravel()
    for ax, table in zip(axes, tables, strict=False):
        _panel(league, table, ax)
    handles, names = axes[0].get_legend_handles_labels()
    for ax in axes[len(tables) :]:
        ax.axis("off")
    axes[len(tables)].legend(
        handles,
        names,
        frameon=False,
        fontsize=8,
        loc="center",
        title="hollow: its base   * uses the group",
        title_fontsize=8,
    )
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "league.png", dpi=130)
    return folder / "league.png"


def _panel(league: League, table: str, ax: Axes) -> None:
    """A gap is the root of the bias of ranks, in standard deviations; below 0 is noise, and shown as 0."""
    own = [name for name, method in league.record["methods"].items() if method["ours"]]
    for place, method in enumerate([*league.peers, *own]):
        settings = league.scores.settings(table, method)
        if not settings:
            continue
        gap = np.sqrt([max(0.0, league.scores.mean(table, method, setting, "rank_bias")) for setting in settings])
        auc = np.array([league.scores.mean(table, method, setting, "auc") for setting in settings])
        mine = method in own
        colour = OURS if mine else COLOURS[place % len(COLOURS)]
        marker, line = OWN_LOOKS[own.index(method) % 3] if mine else (MARKERS[place % len(MARKERS)], "none")
        fair = np.array([setting != BASE for setting in settings])
        look: dict[str, Any] = {"marker": marker, "color": colour, "linestyle": line, "linewidth": 1.2}
        name = method + "*" * league.record["methods"][method]["uses_group"]
        size, depth, alpha = (5, 3, 1.0) if mine else (4, 2, 0.7)
        ax.plot(gap[fair], auc[fair], markersize=size, zorder=depth, alpha=alpha, label=name, **look)
        ax.plot(gap[~fair], auc[~fair], marker, markersize=5, fillstyle="none", color=colour)
    ax.set_title(table.replace("_", " "), fontsize=9)
    ax.set_xlabel("gap of mean ranks, deviations", fontsize=7)
    ax.set_ylabel("AUC", fontsize=7)
    ax.tick_params(labelsize=7)
    ax.grid(alpha=0.25)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
