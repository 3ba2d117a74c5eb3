"""Draw the README's picture from the variables of the README's own example.

python tools/draw_readme.py
"""

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[1]
BEFORE, AFTER = "#D55E00", "#0072B2"


def main() -> None:
    """Run the example, and draw who is flagged and what each step towards evenness costs."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if code is None:
        raise SystemExit("README.md holds no example in Python")
    names: dict[str, Any] = {}
    exec(compile(code[1], "README.md", "exec"), names)  # the project's own file
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", width_ratios=(1, 1.15))
    draw_rates(left, names["rates"])
    draw_costs(right, names["model"].costs(names["y"]))
    figure.savefig(ROOT / "docs" / "images" / "readme.png", dpi=130)


def draw_rates(ax: Any, rates: Any) -> None:
    """Draw the share of new people flagged, by group, before and after."""
    for group, rate in rates.iterrows():
        ax.plot([rate["before"], rate["after"]], [group, group], color="0.75", zorder=1)
    for name, colour in (("before", BEFORE), ("after", AFTER)):
        ax.scatter(rates[name], rates.index, s=70, color=colour, label=name, zorder=2)
    ax.axvline(0.1, color="0.5", linewidth=0.8, linestyle="--")
    ax.margins(x=0.1, y=0.25)
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.set(title="New clients: who is flagged", xlabel="share flagged (dashed: of all)")
    ax.legend(loc="upper left", frameon=False)


def draw_costs(ax: Any, costs: Any) -> None:
    """Draw what each step costs, on the training rows: list kept, hits among the flagged, AUC."""
    curves = {
        "list_kept": ("of the list kept", AFTER, 8),
        "auc": ("AUC", "#009E73", 8),
        "precision_flagged": ("defaults among the flagged", "#CC79A7", -16),
    }
    ratio = costs["flag_rate_ratio"]
    costs = costs[ratio == ratio.cummax()]  # the first step that reaches each ratio
    for column, (label, colour, above) in curves.items():
        ax.plot(costs["flag_rate_ratio"], costs[column], color=colour)
        middle = costs["flag_rate_ratio"].iloc[[0, -1]].mean()
        height = np.interp(middle, costs["flag_rate_ratio"], costs[column])
        ax.annotate(label, (middle, height), xytext=(0, above), textcoords="offset points", color=colour)
    ax.set_ylim(0, 1.05)
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.set(title="Training clients: what every step costs", xlabel="lowest over highest flag rate: 1 is even")


if __name__ == "__main__":
    main()
