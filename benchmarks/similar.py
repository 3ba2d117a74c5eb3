"""Individual fairness on rows that were never seen.

Are similar rows of different groups scored alike? Fits on one half of each of the paper's data sets, asks for less
scale-free unfairness at the default length scale, and judges the other half: the similarity-weighted mean squared score
difference across groups over the variance, and AUC, before and after.
"""

import argparse
import json
import warnings

import numpy as np
from sklearn.model_selection import train_test_split

from evenout import FairOutlierEnsemble, Individual
from evenout.datasets import list_datasets
from evenout.metrics import individual_unfairness, roc_auc
from halves import load


def judge(name: str, split: int, options: argparse.Namespace) -> tuple[float, float, float, float]:
    """Unfairness and AUC of one judged half, before and after."""
    X, y, groups = load(name, split)
    fit, held = train_test_split(np.arange(len(X)), test_size=0.5, stratify=groups, random_state=split)
    model = FairOutlierEnsemble(
        options.detectors,
        fairness=Individual(length_scale=("median", options.length)),
        combination="average",
        bias_reduction=options.ask,
        random_state=split,
        n_jobs=options.n_jobs,
    ).fit(X[fit], sensitive_features=groups[fit])
    before, after = model.base_scores(X[held]), model.outlier_scores(X[held])
    settings = {"sensitive_features": groups[held], "scale_free": True, "length_scale": ("median", options.length)}
    unfair = [individual_unfairness(scores, X[held], **settings) for scores in (before, after)]
    return unfair[0], unfair[1], roc_auc(y[held], before), roc_auc(y[held], after)


def main() -> None:
    """Run and print."""
    names = [name for name in list_datasets() if name != "credit"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--detectors", choices=["paper", "diverse"], default="diverse")
    parser.add_argument("--ask", type=float, default=0.5, help="share of the unfairness to remove")
    parser.add_argument("--length", type=float, default=0.1, help="length scale, in median distances")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # what is out of reach is in the table
    result = {}
    for name in options.data:
        runs = [judge(name, split, options) for split in range(options.splits)]
        before, after, auc_before, auc_after = np.mean(runs, axis=0)
        result[name] = {"before": before, "after": after, "auc_before": auc_before, "auc_after": auc_after}
        print(
            f"{name:12s} unfairness {before:.3f} -> {after:.3f} ({1 - after / before:+.0%} removed)   "
            f"AUC {auc_before:.3f} -> {auc_after:.3f}",
            flush=True,
        )
    halved = [found for found in result.values() if found["after"] <= 0.5 * found["before"]]
    if halved:
        change = np.mean([found["auc_after"] - found["auc_before"] for found in halved])
        print(f"at least halved on {len(halved)} of {len(result)}; mean change of AUC there {change:+.4f}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
