"""Draw what `frontier.py --json` found: its last line in, two pictures out.

python benchmarks/frontier.py --json | tee frontier.txt
python benchmarks/draw_frontier.py frontier.txt docs/images
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLOURS = {
    "base": "#555555",
    "paper": "#D55E00",
    "evenout": "#0072B2",
    "diverse": "#009E73",
    "repair": "#CC79A7",
}
TITLES = {"scenarios": "Simulated spurious bias", "credit": "Card clients, by education"}


def calibration(found: dict[str, Any], figure: Figure) -> None:
    """Draw the share removed on unseen rows when 80 % was asked for: one line per data set, the widest gap on top."""
    ax = figure.subplots()
    sets = sorted(found["per_dataset"].items(), key=lambda item: item[1]["gap_before"])
    places = np.arange(len(sets))
    ax.axvline(0.8, color="#999999", linewidth=1, linestyle=":")
    for method, marker in (("paper", "s"), ("evenout", "o")):
        achieved = [data["achieved"][method]["0.8"] for _, data in sets]
        ax.plot(achieved, places, marker, color=COLOURS[method], markersize=6, label=method, alpha=0.9)
    names = [f"{name.replace('_', ' ')}  ({data['gap_before']:.3f})" for name, data in sets]
    ax.set_yticks(places, names, fontsize=8)
    ax.set_xlabel("share of the bias removed on unseen rows, 80 % asked for")
    ax.set_title("data set (corrected gap before)", fontsize=9, loc="left")
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, loc="upper left")
    _open(ax)


def detection(found: dict[str, Any], figure: Figure) -> None:
    """AUC of each method where it has removed 80 % of the bias on unseen rows, beside the base."""
    axes = figure.subplots(1, 2)
    for ax, (where, title) in zip(axes, TITLES.items(), strict=True):
        values = {k: v for k, v in found["auc_at_80_unseen"][where].items() if k in COLOURS and v is not None}
        places = np.arange(len(values))[::-1]
        ax.axvline(values["base"], color="#999999", linewidth=1, linestyle=":")
        for place, (method, value) in zip(places, values.items(), strict=True):
            ax.plot(value, place, "o", color=COLOURS[method], markersize=9)
            ax.annotate(f"{value:.3f}", (value, place), xytext=(0, 8), textcoords="offset points", ha="center")
        ax.set_yticks(places, list(values))
        ax.margins(x=0.15, y=0.15)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("AUC on unseen rows, 80 % of the bias removed")
        ax.grid(alpha=0.25)
        _open(ax)


def _open(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def main() -> None:
    """Read, draw, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("found", type=Path, help="output of frontier.py --json")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args()
    found = json.loads(options.found.read_text().strip().splitlines()[-1])
    options.folder.mkdir(parents=True, exist_ok=True)
    for draw, size in ((calibration, (7.5, 4.6)), (detection, (8.4, 3.2))):
        figure = Figure(figsize=size, layout="constrained")
        draw(found, figure)
        figure.savefig(options.folder / f"{draw.__name__}.png", dpi=150)


if __name__ == "__main__":
    main()
