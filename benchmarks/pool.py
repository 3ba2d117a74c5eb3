"""The paper's 18 detectors: evenout's shared graph and forest against PyOD's detectors in a loop.

    python benchmarks/pool.py --n 50000 --d 6 --n-jobs 2 --json

Both sides see the same rows and seed and their scores are compared in the same run. Detection fits and scores
n training rows; scoring scores n new rows. Compilation is timed apart, from an empty cache. Where scikit-learn-intelex
is installed, its LOF and k-NN (oneDAL) are timed and compared too.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np

from evenout.core.types import FloatArray
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Neighbours

LOF, KNN, TREES = range(5, 31, 5), range(2, 11, 2), range(25, 176, 25)
SEED = 0

T = TypeVar("T")


def make_rows(n: int, d: int, seed: int) -> FloatArray:
    """Five Gaussian clusters, the same for every seed, and 2 % uniform outliers: n x d."""
    centres = np.random.default_rng(0).normal(scale=2.0, size=(5, d))
    rng = np.random.default_rng([1, seed])
    X = centres[rng.integers(0, 5, size=n)] + rng.normal(size=(n, d))
    outlier = rng.random(n) < 0.02
    X[outlier] = rng.uniform(-8.0, 8.0, size=(outlier.sum(), d))
    return X


def fit_evenout(X: FloatArray, n_jobs: int) -> tuple[tuple[Neighbours, Forest], FloatArray]:
    """Fit all 18; the fitted parts and the raw training scores, n x 18."""
    near, near_scores = Neighbours.fit(X, lof=LOF, knn=KNN, n_threads=n_jobs)
    forest, forest_scores = Forest.fit(X, sizes=TREES, random_state=SEED, n_threads=n_jobs)
    return (near, forest), np.hstack([near_scores, forest_scores])


def score_evenout(parts: tuple[Neighbours, Forest], X: FloatArray, n_jobs: int) -> FloatArray:
    """Raw scores of new rows, m x 18."""
    return np.hstack([part.score(X, n_threads=n_jobs) for part in parts])


def fit_pyod(X: FloatArray, n_jobs: int) -> tuple[list[Any], FloatArray]:
    """Fit PyOD's 18 one after another; the detectors and their training scores, n x 18."""
    from pyod.models import iforest, knn, lof

    detectors = [
        *(lof.LOF(n_neighbors=k, n_jobs=n_jobs) for k in LOF),
        *(knn.KNN(n_neighbors=k, n_jobs=n_jobs) for k in KNN),
        *(iforest.IForest(n_estimators=size, random_state=SEED, n_jobs=n_jobs) for size in TREES),
    ]
    return detectors, np.column_stack([detector.fit(X).decision_scores_ for detector in detectors])


def score_pyod(detectors: list[Any], X: FloatArray) -> FloatArray:
    """Scores of new rows by each detector, m x 18."""
    return np.column_stack([detector.decision_function(X) for detector in detectors])


def fit_onedal(X: FloatArray, n_jobs: int) -> FloatArray:
    """Training scores of the LOF and k-NN detectors by oneDAL, one after another: n x 11."""
    from sklearnex.neighbors import LocalOutlierFactor, NearestNeighbors

    factors = [-LocalOutlierFactor(n_neighbors=k, n_jobs=n_jobs).fit(X).negative_outlier_factor_ for k in LOF]
    distances = [NearestNeighbors(n_neighbors=k, n_jobs=n_jobs).fit(X).kneighbors()[0][:, -1] for k in KNN]
    return np.column_stack([*factors, *distances])


def compare_onedal(X: FloatArray, n_jobs: int, repeats: int) -> dict[str, float]:
    """Time LOF and k-NN alone, evenout's beside oneDAL's, in turn; nothing where oneDAL is not installed."""
    if find_spec("sklearnex") is None:
        return {}
    fit_onedal(X[:500], n_jobs)
    ours, theirs = [], []
    for _ in range(repeats):
        seconds, (_, scores) = timed(lambda: Neighbours.fit(X, lof=LOF, knn=KNN, n_threads=n_jobs))
        ours.append(seconds)
        seconds, expected = timed(lambda: fit_onedal(X, n_jobs))
        theirs.append(seconds)
    return {
        "near_evenout_s": min(ours),
        "near_onedal_s": min(theirs),
        "near_onedal_ratio": min(theirs) / min(ours),
        "near_onedal_max_rel_diff": largest_difference(scores, expected),
    }


def timed(work: Callable[[], T], repeats: int = 1) -> tuple[float, T]:
    """Least seconds of ``repeats`` runs, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def largest_difference(a: FloatArray, b: FloatArray) -> float:
    """Largest difference of two score matrices, each column scaled to [0, 1] (PyOD shifts the forest's)."""
    return float(np.abs(_unit(a) - _unit(b)).max())


def _unit(S: FloatArray) -> FloatArray:
    return (S - S.min(axis=0)) / np.ptp(S, axis=0)


def run(n: int, d: int, n_jobs: int, repeats: int) -> dict[str, float]:
    """Time both sides on n x d rows; seconds, ratios and the largest difference of the scores."""
    X, new, few = make_rows(n, d, seed=1), make_rows(n, d, seed=2), make_rows(500, d, seed=3)
    first_s, (parts, _) = timed(lambda: fit_evenout(few, n_jobs))
    first_score_s, _ = timed(lambda: score_evenout(parts, few + 0.1, n_jobs))
    fit_pyod(few, n_jobs)
    evenout_s, (parts, scores) = timed(lambda: fit_evenout(X, n_jobs), repeats)
    score_s, new_scores = timed(lambda: score_evenout(parts, new, n_jobs), repeats)
    pyod_s, (detectors, expected) = timed(lambda: fit_pyod(X, n_jobs), repeats)
    score_pyod_s, new_expected = timed(lambda: score_pyod(detectors, new), repeats)
    difference = max(largest_difference(scores, expected), largest_difference(new_scores, new_expected))
    return {
        "n": n,
        "d": d,
        "n_jobs": n_jobs,
        "evenout_s": evenout_s,
        "pyod_s": pyod_s,
        "ratio": pyod_s / evenout_s,
        "max_rel_diff": difference,
        "score_evenout_s": score_s,
        "score_pyod_s": score_pyod_s,
        "score_ratio": score_pyod_s / score_s,
        "first_call_s": first_s + first_score_s,
        **compare_onedal(X, n_jobs, repeats),
    }


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=50_000, help="rows to train on, and new rows to score")
    parser.add_argument("--d", type=int, default=6, help="features")
    parser.add_argument("--n-jobs", type=int, default=2, help="threads of evenout, n_jobs of PyOD")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each timing; the fastest counts")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["NUMBA_CACHE_DIR"] = cache  # the first call shall compile
        result = run(options.n, options.d, options.n_jobs, options.repeats)
    print(f"{options.n} rows, {options.d} features, 18 detectors, {options.n_jobs} threads")
    for task, prefix in (("fit", ""), ("score", "score_")):
        ours, theirs = result[f"{prefix}evenout_s"], result[f"{prefix}pyod_s"]
        print(f"{task:6} evenout {ours:8.2f} s   PyOD {theirs:8.2f} s   {result[f'{prefix}ratio']:6.1f} x")
    print(f"largest difference of scaled scores {result['max_rel_diff']:.1e}")
    print(f"first call, with compilation {result['first_call_s']:.1f} s")
    if "near_onedal_s" in result:
        ours, theirs = result["near_evenout_s"], result["near_onedal_s"]
        print(f"LOF, k-NN: evenout {ours:.2f} s   oneDAL {theirs:.2f} s   {result['near_onedal_ratio']:.1f} x", end="")
        print(f"   largest difference {result['near_onedal_max_rel_diff']:.1e}")
    else:
        print("oneDAL is not installed (scikit-learn-intelex): left out")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
