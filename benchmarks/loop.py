"""Score, plan, look, learn, twenty times over: what chance in the list costs, and what it lets one say.

Every table has known outliers, which a list of 2 % of the rows uncovers in each round. Rows looked into are known from
then on; the score learns from them (`FairOutlierEnsemble.learn_from`) before the next list is made.

    python benchmarks/loop.py --json --workers 2      # everything
    python benchmarks/loop.py --quick                 # a look: three tables, five rounds
    python benchmarks/loop.py --base                  # the base score, which nothing is taken off for fairness

plain      the highest scores, and no learning
0 ... 0.2  share of the looks that goes by chance, with learning; at least one look a round

found      outliers in all lists          auc     of the score at the end, on all rows
gap        largest less smallest share of a group's outliers that was found
covered    share of rounds whose interval for the number of outliers missed holds the truth
Detectors are fitted once for each table, since rounds change nothing but labels. Means over seeds.
"""

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset, make_biased_outliers

TABLES = ("annthyroid", "breastw", "cardio", "communities", "german", "pima", "vowels", "variance", "base_rate")
QUICK = ("breastw", "vowels", "variance")
SIMULATED = ("variance", "base_rate")
WAYS = ("plain", "0", "0.05", "0.1", "0.2")
SHARE = 0.02  # of the rows, in each round
LEAST_KEPT = 0.95  # of the outliers that explore=0 with learning finds, at explore=0.1


def play(task: tuple[str, str, int, int, bool]) -> dict[str, float]:
    """All rounds on one table, in one way."""
    name, way, rounds, seed, base = task
    warnings.simplefilter("ignore")
    data = (
        make_biased_outliers(name, n=2000, random_state=seed)
        if name in SIMULATED
        else load_dataset(name, random_state=seed)
    )
    truth = data.y.astype(float).reset_index(drop=True)
    groups = data.sensitive.reset_index(drop=True)
    first = FairOutlierEnsemble(random_state=seed).fit(data.X, sensitive_features=groups)
    S = first.detector_scores(data.X)
    model = FairOutlierEnsemble("precomputed", alpha=0.0 if base else None, random_state=seed)
    model.fit(S, sensitive_features=groups)
    budget = max(round(SHARE * len(S)), 1)
    explore = 0.0 if way in ("plain", "0") else max(float(way), 1.0 / budget)
    known = pd.Series(np.nan, index=truth.index)
    rounds_played: list[tuple[Any, Any]] = []
    held: list[bool] = []
    for week in range(rounds):
        plan = model.plan(S, budget, explore, groups, random_state=1000 * seed + week, known=known)
        outcomes = truth[plan.to_frame().index]
        known[outcomes.index] = outcomes
        if explore:
            told = plan.estimate(outcomes, earlier=rounds_played).get("missed")
            held.append(told.low <= truth.sum() - known.sum() <= told.high)
            rounds_played.append((plan, outcomes))
        if way != "plain":
            model.learn_from(plan, outcomes)
    shares = (known[truth == 1] == 1).groupby(groups[truth == 1]).mean()
    return {
        "found": float(known.sum()),
        "outliers": float(truth.sum()),
        "auc": float(roc_auc_score(truth, model.outlier_scores_)),
        "gap": float(shares.max() - shares.min()),
        "covered": float(np.mean(held)) if held else float("nan"),
    }


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=TABLES, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--base", action="store_true", help="the base score, without fairness")
    parser.add_argument("--quick", action="store_true", help="three tables, five rounds, one seed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables = options.data or (QUICK if options.quick else TABLES)
    rounds, seeds = (5, 1) if options.quick else (options.rounds, options.seeds)
    tasks = [(name, way, rounds, seed, options.base) for name, way, seed in product(tables, WAYS, range(seeds))]
    print(f"{rounds} rounds of {SHARE:.0%} of the rows; found of all, auc, gap, covered", flush=True)
    rows = []
    with ProcessPoolExecutor(options.workers) as pool:
        for (name, way, _, seed, _), got in zip(tasks, pool.map(play, tasks), strict=True):
            figures = f"{got['found']:4.0f} of {got['outliers']:4.0f}  {got['auc']:.3f}  {got['gap']:.2f}"
            print(f"{name:12s} {seed} {way:6s} {figures}  {got['covered']:.2f}", flush=True)
            rows.append({"table": name, "way": way, **got})
    frame = pd.DataFrame(rows)
    means = frame.groupby(["table", "way"], sort=False).mean()
    summary: dict[str, Any] = {}
    for way in WAYS:
        each = means.xs(way, level="way")
        kept = each["found"] / means.xs("0", level="way")["found"]
        summary[way] = {
            "found_beside_explore_0": float(kept.mean()),
            "auc": float(each["auc"].mean()),
            "gap": float(each["gap"].mean()),
            "covered": float(each["covered"].mean()) if each["covered"].notna().any() else None,
        }
        print(
            f"mean {way:6s} "
            + "  ".join(f"{key} {value:.3f}" for key, value in summary[way].items() if value is not None)
        )
    if options.json:
        tables_json = {name: means.loc[name].replace({np.nan: None}).to_dict("index") for name in tables}
        met = summary["0.1"]["found_beside_explore_0"] >= LEAST_KEPT
        print(
            json.dumps({"rounds": rounds, "seeds": seeds, "tables": tables_json, "mean": summary, "enough_kept": met})
        )


if __name__ == "__main__":
    main()
