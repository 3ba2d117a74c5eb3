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
CALIBRATED = ("communities", "breastw", "credit")
TITLES = {"scenarios": "variance, shift, measurement noise", "credit": "credit (education)"}


def calibration(found: dict[str, Any], ax: Axes, method: str) -> None:
    """Achieved against asked, one line per data set."""
    ax.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle=":")
    for name, data in found["per_dataset"].items():
        achieved = data["achieved"][method]
        asked = [float(request) for request in achieved]
        real = name in CALIBRATED
        ax.plot(
            asked,
            list(achieved.values()),
            "o-",
            color=COLOURS[method],
            alpha=1.0 if real else 0.35,
            linewidth=1.6 if real else 1.0,
            markersize=4,
        )
        if real:
            ax.annotate(
                name,
                (asked[-1], list(achieved.values())[-1]),
                xytext=(5, -3),
                textcoords="offset points",
                fontsize=8,
            )
    error = found["calibration_error"][method]
    ax.set_title(f"{method}: mean miss {error:.2f}", fontsize=10)
    ax.set(xlim=(0.4, 1.12), ylim=(-0.6, 1.3), xlabel="share of the bias asked for")
    ax.grid(alpha=0.25)


def detection(found: dict[str, Any], ax: Axes, where: str) -> None:
    """AUC of each method where it has removed 80 % of the bias on unseen rows, beside the base."""
    values = {k: v for k, v in found["auc_at_80_unseen"][where].items() if k in COLOURS and v is not None}
    places = np.arange(len(values))
    ax.bar(places, list(values.values()), color=[COLOURS[name] for name in values], width=0.7)
    for place, value in zip(places, values.values(), strict=True):
        ax.annotate(f"{value:.3f}", (place, value), ha="center", va="bottom", fontsize=8)
    ax.set_xticks(places, list(values), fontsize=8)
    low, high = min(values.values()), max(values.values())
    ax.set_ylim(low - 0.6 * (high - low) - 0.01, high + 0.25 * (high - low))
    ax.set_title(TITLES[where], fontsize=10)
    ax.grid(axis="y", alpha=0.25)


def main() -> None:
    """Read, draw, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("found", type=Path, help="output of frontier.py --json")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args()
    found = json.loads(options.found.read_text().strip().splitlines()[-1])
    options.folder.mkdir(parents=True, exist_ok=True)
    for file, draw, keys in (
        ("calibration.png", calibration, ("paper", "evenout")),
        ("detection.png", detection, ("scenarios", "credit")),
    ):
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        axes = figure.subplots(1, 2)
        for ax, key in zip(axes, keys, strict=True):
            draw(found, ax, key)
            for side in ("top", "right"):
                ax.spines[side].set_visible(False)
        axes[0].set_ylabel(
            "share removed on unseen rows"
            if file == "calibration.png"
            else "AUC at 80 % less bias, unseen rows"
        )
        figure.savefig(options.folder / file, dpi=150)


if __name__ == "__main__":
    main()
