"""Exact nearest neighbours of all rows: evenout beside oneDAL (scikit-learn-intelex) and the processor's limit.

    python benchmarks/neighbours.py --n 50000 --d 20 --repeats 3 --json

Both sides run in turn on the same rows, the fastest of their runs counts, and their results are compared in the same
run. The limit is one float32 multiply-add for every pair of rows and feature, at the rate of a large matrix product
by the linear algebra library, measured in the same run. oneDAL is left out where it is not installed.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from evenout.core.types import FloatArray
from evenout.detectors.search import Ids, cut_blocks, nearest_by_blocks
from pool import make_rows

SIDE = 2048  # of the matrices whose product measures the rate of multiply-adds

Found = tuple[FloatArray, Ids]
T = TypeVar("T")


def make_normal(n: int, d: int) -> FloatArray:
    """Standard normal rows: no cluster, so boxes leave little out."""
    return np.random.default_rng(0).normal(size=(n, d))


def by_evenout(X: FloatArray, k: int, n_jobs: int) -> Found:
    """Distances and indices, n x k each."""
    return nearest_by_blocks(cut_blocks(X), k, n_threads=n_jobs)


def by_onedal(X: FloatArray, k: int, n_jobs: int, algorithm: str) -> Found:
    """Find the neighbours by oneDAL."""
    from sklearnex.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=k, algorithm=algorithm, n_jobs=n_jobs).fit(X).kneighbors()


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds and the result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def multiply_adds(n_jobs: int) -> float:
    """Float32 multiply-adds in a second, in 10^9: the fastest of five large matrix products."""
    A = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32)
    with threadpool_limits(n_jobs, user_api="blas"):
        return SIDE**3 / min(timed(lambda: A @ A)[0] for _ in range(5)) / 1e9


def run(X: FloatArray, k: int, n_jobs: int, repeats: int, algorithms: tuple[str, ...]) -> dict[str, float]:
    """Seconds, ratios, agreement, and the share of the processor's limit."""
    by_evenout(X[:1000], k, n_jobs)
    seconds = dict.fromkeys(("evenout", *algorithms), np.inf)
    agreement, rate = {}, 0.0
    for _ in range(repeats):
        rate = max(rate, multiply_adds(n_jobs))
        taken, (distance, found) = timed(partial(by_evenout, X, k, n_jobs))
        seconds["evenout"] = min(seconds["evenout"], taken)
        for name in algorithms:
            taken, (other, others) = timed(partial(by_onedal, X, k, n_jobs, name))
            seconds[name] = min(seconds[name], taken)
            agreement[f"{name}_max_rel_diff"] = float(np.abs(other - distance).max() / distance.max())
            agreement[f"{name}_same_neighbours"] = float((found == others).mean())
    n, d = X.shape
    needed = n * n * d / 1e9
    result = {"n": n, "d": d, "k": k, "n_jobs": n_jobs, **{f"{name}_s": taken for name, taken in seconds.items()}}
    if algorithms:
        result["ratio"] = min(seconds[name] for name in algorithms) / seconds["evenout"]
    limit = {"multiply_adds_1e9": needed, "peak_1e9_per_s": rate, "share_of_peak": needed / rate / seconds["evenout"]}
    return result | agreement | limit


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=20_000, help="rows")
    parser.add_argument("--d", type=int, default=20, help="features")
    parser.add_argument("--k", type=int, default=31, help="neighbours")
    parser.add_argument("--data", choices=("normal", "clusters"), default="normal", help="clusters: those of pool.py")
    parser.add_argument("--algorithms", nargs="*", default=("brute", "kd_tree"), help="of oneDAL")
    parser.add_argument("--n-jobs", type=int, default=2, help="threads of each side")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side, in turn; the fastest counts")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    X = make_normal(options.n, options.d) if options.data == "normal" else make_rows(options.n, options.d, seed=1)
    algorithms = tuple(options.algorithms) if find_spec("sklearnex") else ()
    result = run(X, options.k, options.n_jobs, options.repeats, algorithms)
    print(f"{options.n} rows ({options.data}), {options.d} features, {options.k} neighbours, {options.n_jobs} threads")
    print(f"evenout {result['evenout_s']:.3f} s, {result['share_of_peak']:.0%} of the multiply-add limit of all pairs")
    for name in algorithms:
        same, gap = result[f"{name}_same_neighbours"], result[f"{name}_max_rel_diff"]
        print(f"oneDAL, {name} {result[f'{name}_s']:.3f} s; the same neighbours in {same:.6f} of all places, ", end="")
        print(f"distances differ by {gap:.1e}")
    if algorithms:
        print(f"{result['ratio']:.2f} times as fast as its best")
    else:
        print("oneDAL is left out (not asked for, or scikit-learn-intelex is not installed)")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
