"""`FairOutlierEnsemble(device="cuda")` as a user calls it: time of the whole fit, and agreement with the CPU.

Both notions of fairness, exact pairs, the published similarity. Agreement: a fit of 20,000 rows on both devices.
"""

import argparse
import json
import time

import numpy as np

from evenout import FairOutlierEnsemble, Individual
from evenout.core.types import FloatArray, IntArray

SMALL = 20_000
BOTH = {"demographic_parity": 1.0, Individual("minmax"): 1.0}


def rows(n: int, d: int) -> tuple[FloatArray, IntArray]:
    """Gaussian rows whose spread grows with the group."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, size=n)
    return rng.normal(size=(n, d)) * (1 + 0.3 * groups)[:, None], groups


def fit(X: FloatArray, groups: IntArray, device: str, n_jobs: int) -> tuple[FairOutlierEnsemble, float]:
    """A fitted model and the seconds it took."""
    model = FairOutlierEnsemble("paper", fairness=BOTH, alpha=1e4, random_state=0, n_jobs=n_jobs, device=device)
    start = time.perf_counter()
    model.fit(X, sensitive_features=groups)
    return model, time.perf_counter() - start


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=10)
    parser.add_argument("--n-jobs", type=int, default=-1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    X, groups = rows(options.n, options.d)
    ours, first = fit(X[:SMALL], groups[:SMALL], "cuda", options.n_jobs)
    expected, cpu = fit(X[:SMALL], groups[:SMALL], "cpu", options.n_jobs)
    difference = np.abs(ours.outlier_scores_ - expected.outlier_scores_).max() / np.ptp(expected.outlier_scores_)
    _, seconds = fit(X, groups, "cuda", options.n_jobs)
    result = {
        "n": options.n,
        "fit_s": seconds,
        "first_small_fit_s": first,
        "cpu_small_fit_s": cpu,
        "max_score_difference": float(difference),
    }
    for name, value in result.items():
        print(f"{name:22s} {value:.4g}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
