"""Pair sums of individual fairness against the same sums by cdist, exp and matrix products in float64.

Both sides run in one process on the same data, block by block, and include the pass that finds the range of the
distances. The error is by direction, ``max_v |v'(C~ - C)v| / v'Cv``, over the range of the reference form C.

    python benchmarks/individual.py --n 20000 --d 10 --k 18 --groups 4 --n-jobs 2 [--json]

The limit is `operations` for each pair of rows, at the rate of float32 multiply-adds in a large matrix product by the
linear algebra library, measured in the same run.
"""

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from evenout.core.pairwise import PairSums, pair_sums
from evenout.core.types import FloatArray, IntArray
from neighbours import multiply_adds

FOLDS = 5


class Problem(NamedTuple):
    """Features (n, d), scores (n, k + 1), groups and folds (n,)."""

    X: FloatArray
    Z: FloatArray
    groups: IntArray
    folds: IntArray


def make_problem(n: int, d: int, k: int, n_groups: int) -> Problem:
    """Strongly correlated scores, as detectors give them: one common score, and noise of a tenth of its spread."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    common = np.linalg.norm(X, axis=1, keepdims=True)
    Z = common + 0.1 * common.std() * rng.standard_normal((n, k + 1))
    return Problem(X, Z, rng.integers(0, n_groups, n), rng.integers(0, FOLDS, n))


def ours(problem: Problem, n_groups: int, n_jobs: int) -> PairSums:
    """Compute the same sums with the package."""
    return pair_sums(*problem, n_groups=n_groups, n_folds=FOLDS, n_threads=n_jobs)


def reference(problem: Problem, n_groups: int) -> FloatArray:
    """Sum the form over all pairs of rows from different groups."""
    lo, hi = np.inf, 0.0
    for _, _, distances in cross_blocks(problem, n_groups):
        lo, hi = min(lo, distances.min()), max(hi, distances.max())
    Z = problem.Z - problem.Z.mean(axis=0)
    form = np.zeros((Z.shape[1], Z.shape[1]))
    for left, right, distances in cross_blocks(problem, n_groups):
        M = np.exp((lo - distances) / (hi - lo))
        a, b = Z[left], Z[right]
        product = a.T @ (M @ b)
        form += (a.T * M.sum(axis=1)) @ a + (b.T * M.sum(axis=0)) @ b - product - product.T
    return form


def cross_blocks(problem: Problem, n_groups: int, block: int = 512) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Blocks of rows of one group, the rows of all later groups, and the distances between them."""
    for group in range(n_groups - 1):
        rows, later = np.flatnonzero(problem.groups == group), np.flatnonzero(problem.groups > group)
        for start in range(0, len(rows), block):
            left = rows[start : start + block]
            yield left, later, cdist(problem.X[left], problem.X[later])


def error_by_direction(form: FloatArray, truth: FloatArray) -> float:
    """Largest ``|v'(form - truth)v| / v' truth v`` over the range of ``truth``."""
    values, vectors = np.linalg.eigh(truth)
    kept = values > 1e-12 * values[-1]
    basis = vectors[:, kept] / np.sqrt(values[kept])
    return float(np.abs(np.linalg.eigvalsh(basis.T @ (form - truth) @ basis)).max())


def operations(d: int, k: int) -> int:
    """Operations of a pair, a multiply-add counted as one: widths are multiples of four in the kernels.

    Its distance is computed twice, for the range and for the sums: a difference and a multiply-add for each feature.
    Then two comparisons, the root, the exponent, 13 for the power of two, one sum, and one for each score and the ones.
    """
    features, scores = -(-d // 4) * 4, -(-(k + 2) // 4) * 4
    return 2 * 2 * features + 2 + 2 + 13 + 1 + scores


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("n", 20000), ("d", 10), ("k", 18), ("groups", 4), ("n-jobs", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--no-reference", action="store_true", help="time only ours, for large n")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    first_call = seconds(lambda: ours(make_problem(200, args.d, args.k, args.groups), args.groups, args.n_jobs))
    problem = make_problem(args.n, args.d, args.k, args.groups)
    sizes = np.bincount(problem.groups, minlength=args.groups)
    pairs = int(sizes.sum() ** 2 - (sizes**2).sum()) // 2
    took, rate = np.inf, 0.0
    for _ in range(3):  # in turn, so that what else the machine does falls on both
        rate = max(rate, multiply_adds(args.n_jobs))
        took = min(took, seconds(lambda: ours(problem, args.groups, args.n_jobs)))
    tracemalloc.start()  # sees every NumPy array; the buffers inside the kernels are below 1 MB per thread
    sums = ours(problem, args.groups, args.n_jobs)
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    result = {
        "n": args.n,
        "pairs": pairs,
        "first_call_s": first_call,
        "ns_per_pair": took / pairs * 1e9,
        "peak_mb": peak_mb,
        "operations_per_pair": operations(args.d, args.k),
        "share_of_peak": operations(args.d, args.k) * pairs / 1e9 / rate / took,
    }
    if not args.no_reference:
        start = time.perf_counter()
        truth = reference(problem, args.groups)
        result["reference_ns_per_pair"] = (time.perf_counter() - start) / pairs * 1e9
        result["ratio"] = result["reference_ns_per_pair"] / result["ns_per_pair"]
        result["rel_err"] = error_by_direction(sums.form.sum(axis=(0, 1, 2)), truth)
    for name, value in result.items():
        print(f"{name:24} {value:.4g}")
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
