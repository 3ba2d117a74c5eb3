"""What the paper cannot see: the same weights, judged on rows that they were not solved on."""

from typing import TYPE_CHECKING

import numpy as np

from evenout.core.cells import CrossFit, rank_weights
from evenout.core.choice import least_alpha
from evenout.core.folds import assign_folds, count_folds
from evenout.core.path import TradeoffPath
from evenout.core.summing import collect_cells
from evenout.reproduce.experiment import BASES, Scored, derive_seeds, score

if TYPE_CHECKING:
    import pandas as pd

ASKED = 0.8  # share of the scale-free group bias that the training rows are to lose


def held_out(scored: Scored, base: str, seed: int) -> dict[str, float]:
    """Solve for ``ASKED`` less group bias on all rows, as the paper does; cross-fit the weights to see other rows.

    Returns
    -------
    dict with ``training`` and ``unseen``, the shares of the scale-free group bias that are gone (NaN if the target has
    none beyond sampling noise), ``p``, the p-value of "no gap" of the target, and ``alpha``
    """
    t, groups = scored.targets[base], scored.groups
    n_folds = count_folds(groups)
    folds = assign_folds(scored.S, groups, n_folds, seed)
    n_groups = int(groups.max()) + 1
    cells = collect_cells(scored.S, t, rank_weights(t), groups, folds, n_groups=n_groups, n_sets=n_folds)
    path = TradeoffPath(CrossFit.of_folds(cells), {"demographic_parity": 1.0}, method="published")
    found = least_alpha(path, lambda alphas: path.reduction(alphas, "training"), ASKED)
    alpha = float(path.grid()[-1]) if found is None else found  # the farthest that the paper's curves go
    training = float(path.reduction(alpha, "training"))
    unseen = float(path.reduction(alpha, "unseen")) if path.gap_detected else float("nan")
    return {"alpha": alpha, "training": training, "unseen": unseen, "p": path.gap_p_value}


def compare_rows(names: list[str], seed: int, n_repeats: int, *, n_threads: int = 1) -> "pd.DataFrame":
    """One row per data set, base ensemble and repeat, with the columns of `held_out`."""
    import pandas as pd

    rows = []
    for name in names:
        for repeat in range(n_repeats):
            seeds = derive_seeds(seed, name, repeat)
            scored = score(name, seeds, n_threads=n_threads, pairs=False)
            rows += [
                {"dataset": name, "base": base, "repeat": repeat, **held_out(scored, base, seeds.forest)}
                for base in BASES
            ]
    return pd.DataFrame(rows)


def summarise(rows: "pd.DataFrame", titles: dict[str, str]) -> list[dict[str, object]]:
    """Per data set and base ensemble: the median over the repeats with a gap, and in how many there was one."""
    table: list[dict[str, object]] = []
    for (name, base), group in rows.groupby(["dataset", "base"], sort=False):
        unseen = group["unseen"].dropna()
        table.append(
            {
                "dataset": titles[str(name)],
                "base": base,
                "training": float(group["training"].median()),
                "unseen": float(unseen.median()) if len(unseen) else None,
                "least": float(unseen.min()) if len(unseen) else None,
                "most": float(unseen.max()) if len(unseen) else None,
                "with_gap": len(unseen),
                "repeats": len(group),
            }
        )
    return table


def typical(table: list[dict[str, object]]) -> float | None:
    """Median over data sets and base ensembles of what unseen rows got; None if no gap was found anywhere."""
    known = [row["unseen"] for row in table if row["unseen"] is not None]
    return float(np.median(np.array(known, dtype=float))) if known else None
