"""Growth of time and memory with the number of rows: the whole fit, in a fresh process per size.

Prints a table and fitted exponents (time ~ n^e over the last decade), and draws a picture with --picture FILE.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

D = 10


def measure(n: int, fairness: str, n_jobs: int) -> dict[str, float]:
    """Fit once on n rows in this process; seconds, and the peak of memory above what was there before, in MB."""
    from evenout import FairOutlierEnsemble

    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, size=n)
    X = rng.normal(size=(n, D)) * (1 + 0.3 * groups)[:, None]
    model = FairOutlierEnsemble("paper", fairness=fairness, alpha=1.0, random_state=0, n_jobs=n_jobs)
    few = min(3 * n // 4, 2500)
    model.fit(X[:few], sensitive_features=groups[:few])  # compile first
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    model.fit(X, sensitive_features=groups)
    seconds = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"n": n, "seconds": seconds, "peak_mb": peak}


def exponent(rows: list[dict[str, float]], name: str) -> float:
    """Slope of log(name) against log(n) over the sizes of the last decade."""
    last = [row for row in rows if row["n"] >= rows[-1]["n"] / 10]
    return float(np.polyfit(np.log([r["n"] for r in last]), np.log([max(r[name], 1e-3) for r in last]), 1)[0])


def draw(tables: dict[str, list[dict[str, float]]], file: Path) -> None:
    """Time and memory on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, name, label in zip(axes, ("seconds", "peak_mb"), ("seconds", "peak extra memory, MB"), strict=True):
        for fairness, rows in tables.items():
            ax.loglog([r["n"] for r in rows], [r[name] for r in rows], "o-", label=fairness.replace("_", " "))
        ax.set_xlabel("rows")
        ax.set_ylabel(label)
        ax.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.savefig(file, dpi=150)


def main() -> None:
    """Measure each size in its own process, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--individual-up-to", type=int, default=100_000, help="largest n with individual fairness")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("N", "FAIRNESS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(int(options.one[0]), options.one[1], options.n_jobs)))
        return
    tables: dict[str, list[dict[str, float]]] = {}
    for fairness, limit in (
        ("demographic_parity", max(options.sizes)),
        ("individual", options.individual_up_to),
    ):
        tables[fairness] = []
        for n in (size for size in options.sizes if size <= limit):
            command = [sys.executable, __file__, "--one", str(n), fairness, "--n-jobs", str(options.n_jobs)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            tables[fairness].append(found)
            print(f"{fairness:20s} n {n:>9,}  {found['seconds']:8.2f} s  {found['peak_mb']:8.0f} MB", flush=True)
        slopes = {name: round(exponent(tables[fairness], name), 2) for name in ("seconds", "peak_mb")}
        print(f"{fairness:20s} exponents over the last decade: {slopes}")
    if options.picture:
        draw(tables, options.picture)
    if options.json:
        print(json.dumps(tables))


if __name__ == "__main__":
    main()
