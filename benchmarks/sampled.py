"""Sampled pair sums of individual fairness against all pairs: time, error by direction, and the error stated.

For the published similarity and for the default length. Both sides run in one process on the same data. The error is
``max_v |v'(C~ - C)v| / v'Cv`` for the form C that is solved with, over a few seeds (root mean square); the form within
folds, which is what unseen unfairness is measured from, has fewer pairs and a larger error.

    python benchmarks/sampled.py --n 100000 --d 10 [--k 18 --groups 4 --tolerance 0.01 --seeds 3 --n-jobs 2] [--json]
"""

import argparse
import json
import time
from itertools import combinations
from typing import Any

import numpy as np

from evenout.core.individual import DEFAULT_LENGTH, LengthScale, comparable_rows
from evenout.core.pairwise import PairSums, pair_sums, sampled_pair_sums
from evenout.core.types import FloatArray, IntArray
from individual import FOLDS, Problem, error_by_direction, make_problem

SCALES: dict[str, LengthScale] = {"minmax": "minmax", "median": DEFAULT_LENGTH}


def solved_form(sums: PairSums, groups: IntArray, n_groups: int) -> FloatArray:
    """Weigh the forms of all pairs of groups alike."""
    sizes = np.bincount(groups, minlength=n_groups).astype(float)
    weights = [1 / (sizes[p] * sizes[q]) for p, q in combinations(range(n_groups), 2)]
    form: FloatArray = np.einsum("p,pab->ab", weights, sums.total()[0])
    return form


def compare(problem: Problem, length: LengthScale, options: argparse.Namespace) -> dict[str, float]:
    """Sample a few times; then visit all pairs, unless that is not wanted."""
    rows, scale = comparable_rows(problem.X, problem.groups, length)
    data = (rows, problem.Z, problem.groups, problem.folds)
    shape: dict[str, Any] = {"n_groups": options.groups, "n_folds": FOLDS, "scale": scale}
    runs, took = [], []
    for seed in range(options.seeds):
        start = time.perf_counter()
        runs.append(sampled_pair_sums(*data, **shape, tolerance=options.tolerance, seed=seed, n_threads=options.n_jobs))
        took.append(time.perf_counter() - start)
    result = {"sampled_s": min(took), "stated_error": float(np.mean([error for _, error in runs]))}
    if options.no_exact:
        return result
    start = time.perf_counter()
    exact = pair_sums(*data, **shape, n_threads=options.n_jobs)
    result["exact_s"] = time.perf_counter() - start
    result["ratio"] = result["exact_s"] / result["sampled_s"]
    truth = solved_form(exact, problem.groups, options.groups)
    within = np.einsum("nffab->ab", exact.form)
    errors = [
        (
            error_by_direction(solved_form(sums, problem.groups, options.groups), truth),
            error_by_direction(np.einsum("nffab->ab", sums.form), within),
        )
        for sums, _ in runs
    ]
    result["error"], result["error_within_folds"] = np.sqrt(np.mean(np.square(errors), axis=0)).tolist()
    return result


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("n", 100000), ("d", 10), ("k", 18), ("groups", 4), ("n-jobs", 2), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tolerance", type=float, default=0.01)
    parser.add_argument("--no-exact", action="store_true", help="only sample, for large n")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    small = make_problem(2000, options.d, options.k, options.groups)  # compiles
    sampled_pair_sums(*small, n_groups=options.groups, n_folds=FOLDS, tolerance=1.0)
    problem = make_problem(options.n, options.d, options.k, options.groups)
    result = {name: compare(problem, length, options) for name, length in SCALES.items()}
    for name, values in result.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:20} {value:.4g}")
    if options.json:
        print(json.dumps({"n": options.n, "d": options.d, "tolerance": options.tolerance, **result}))


if __name__ == "__main__":
    main()
