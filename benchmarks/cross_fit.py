"""The detectors of a pool with scores by detectors that have not seen a fold, against the plain fit; and the whole fit.

    python benchmarks/cross_fit.py --pool default --json

Cross-fitting is the fit on all rows and the scores without each of the folds, one after the other. In the same run
every fold's LOF and k-NN scores are compared with those of a model refitted on the other rows, for the paper's pool.
The whole fit is `FairOutlierEnsemble.fit`; the plain one is the pool's plain fit and the same on its scores, which come
ready and are not learnt anew. Compilation comes first and is not timed; memory is the peak of what numpy allocates.
"""

import argparse
import json
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from evenout import FairOutlierEnsemble
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.pool import cross_fit_pool, fit_pool, standard_units
from pool import KNN, LOF, make_rows

SHAPES = ("1000x10", "10000x10", "50000x20")
NEAR = len(LOF) + len(KNN)  # the first columns of the pool


def deal(n: int, n_folds: int) -> IntArray:
    """Folds of equal size at random."""
    return np.random.default_rng(0).permutation(n) % n_folds


def cross_fit(pool: str, X: FloatArray, folds: IntArray, n_jobs: int) -> None:
    """Fit, and ask for the scores without each fold."""
    _, _, without = cross_fit_pool(pool, X, folds, seed=0, n_threads=n_jobs)
    for fold in range(folds.max() + 1):
        without(fold)


def seconds(works: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Least of ``repeats`` runs of each; they take turns, so that what else the machine does falls on all of them."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, times in zip(works, taken, strict=True):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return [min(times) for times in taken]


def peak_mb(work: Callable[[], object]) -> float:
    """Most memory that numpy and Python hold at a time, in MB."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def difference_from_refits(X: FloatArray, folds: IntArray, n_jobs: int) -> float:
    """Largest relative difference of LOF and k-NN scores from those of a refit, over all folds."""
    _, _, without = cross_fit_pool("paper", X, folds, seed=0, n_threads=n_jobs)
    worst = 0.0
    for fold in range(folds.max() + 1):
        kept, found = folds != fold, without(fold)[:, :NEAR]
        model, training = Neighbours.fit(X[kept], lof=LOF, knn=KNN, n_threads=n_jobs)
        expected = np.empty_like(found)
        expected[kept], expected[~kept] = training, model.score(X[~kept], n_threads=n_jobs)
        worst = max(worst, float(np.abs(found / expected - 1.0).max()))
    return worst


def whole_fits(pool: str, X: FloatArray, n_jobs: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """The plain whole fit and the cross-fitted one, of rows in three groups."""
    groups = np.random.default_rng(0).integers(0, 3, size=len(X))

    def plain() -> object:
        units = standard_units(pool, X)
        _, raw = fit_pool(pool, X, seed=0, n_threads=n_jobs, units=units)
        ready = FairOutlierEnsemble("precomputed", random_state=0, n_jobs=n_jobs)
        return ready.fit(raw, sensitive_features=groups)

    def crossed() -> object:
        return FairOutlierEnsemble(pool, random_state=0, n_jobs=n_jobs).fit(X, sensitive_features=groups)

    return plain, crossed


def run(pool: str, shape: str, n_folds: int, n_jobs: int, repeats: int) -> dict[str, float]:
    """Time both on n x d rows."""
    n, d = map(int, shape.split("x"))
    X, folds = make_rows(n, d, seed=1), deal(n, n_folds)

    def plain() -> object:
        return fit_pool(pool, X, seed=0, n_threads=n_jobs)

    def crossed() -> None:
        cross_fit(pool, X, folds, n_jobs)

    works = plain, crossed, *whole_fits(pool, X, n_jobs)
    fit_s, cross_s, whole_s, cross_whole_s = seconds(works, repeats)
    fit_mb, cross_mb = peak_mb(plain), peak_mb(crossed)
    return {
        "n": n,
        "d": d,
        "fit_s": fit_s,
        "cross_fit_s": cross_s,
        "ratio": cross_s / fit_s,
        "whole_s": whole_s,
        "cross_whole_s": cross_whole_s,
        "whole_ratio": cross_whole_s / whole_s,
        "fit_mb": fit_mb,
        "cross_fit_mb": cross_mb,
        "memory_ratio": cross_mb / fit_mb,
        "max_rel_diff": difference_from_refits(X, folds, n_jobs) if pool == "paper" else np.nan,
    }


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", choices=("paper", "diverse", "default"), default="paper")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxD", help="rows and features")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each timing; the fastest counts")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for n in (500, 2500):  # small and large tables leave the folds of a forest out, and are cut, in two ways
        rows = make_rows(n, 10, seed=2)
        cross_fit(options.pool, rows, np.arange(n) // 100, options.n_jobs)  # one compiles the second search too
        fit_pool(options.pool, rows, seed=0)[0].score(rows + 0.1)
        for work in whole_fits(options.pool, rows, options.n_jobs):
            work()
    results = []
    for shape in options.shapes:
        results.append(run(options.pool, shape, options.folds, options.n_jobs, options.repeats))
        told = results[-1]
        print(
            f"{shape:>9}  fit {told['fit_s']:7.3f} s  with folds {told['cross_fit_s']:7.3f} s  "
            f"{told['ratio']:5.2f} x   whole fit {told['whole_s']:7.3f} s, {told['cross_whole_s']:7.3f} s  "
            f"{told['whole_ratio']:5.2f} x   memory {told['fit_mb']:6.1f} MB, {told['cross_fit_mb']:6.1f} MB  "
            f"{told['memory_ratio']:5.2f} x   largest difference from refits {told['max_rel_diff']:.1e}",
            flush=True,
        )
    if options.json:
        print(json.dumps({"pool": options.pool, "folds": options.folds, "n_jobs": options.n_jobs, "results": results}))


if __name__ == "__main__":
    main()
