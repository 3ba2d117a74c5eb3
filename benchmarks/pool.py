"""The paper's 18 detectors: evenout's shared graph and forest against PyOD's detectors in a loop.

    python benchmarks/pool.py --n 50000 --d 6 --n-jobs 2 --json

Both sides see the same rows and seed and their scores are compared in the same run. Detection fits and scores
n training rows; scoring scores n new rows. Compilation is timed apart, from an empty cache.

Where scikit-learn-intelex is installed, its LOF and k-NN (oneDAL) are timed and compared too. Where isotree is
installed, growing 175 trees of 256 rows and scoring n rows by them is compared with it; ours are scikit-learn's trees,
and are compared with these bit for bit.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np

from evenout.core.types import FloatArray
from evenout.detectors.forest import Forest, grow, of_scikit_learn
from evenout.detectors.neighbours import Neighbours

LOF, KNN, TREES = range(5, 31, 5), range(2, 11, 2), range(25, 176, 25)
SEED = 0
PAUSE = 0.02  # seconds: after its work isotree's threads wait busily for some ms, on cores that others then lack

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


def compare_isotree(X: FloatArray, n_jobs: int, repeats: int) -> dict[str, Any]:
    """Growing 175 trees and scoring n rows by them, evenout and isotree in turns; empty without isotree."""
    try:
        from isotree import IsolationForest
    except ImportError:
        return {}
    n_trees, settings = max(TREES), {"ndim": 1, "max_depth": 8, "missing_action": "fail", "nthreads": n_jobs}

    def theirs() -> Any:
        return IsolationForest(ntrees=n_trees, sample_size=256, random_seed=SEED, **settings).fit(X)

    grow(X[:600], [n_trees], SEED)  # compiles both ways to draw rows
    ours, fitted = Forest.fit(X, sizes=[n_trees], random_state=SEED, n_threads=n_jobs)[0], theirs()
    grow_s, isotree_s, score_s, isotree_score_s = np.inf, np.inf, np.inf, np.inf
    for _ in range(max(repeats, 7)):
        grow_s = min(grow_s, rested(lambda: grow(X, [n_trees], SEED, n_jobs)))
        isotree_s = min(isotree_s, rested(theirs))
        score_s = min(score_s, rested(lambda: ours.score(X, n_threads=n_jobs)))
        isotree_score_s = min(isotree_score_s, rested(lambda: fitted.predict(X)))
    scikit_learn_s, (expected, _) = timed(lambda: of_scikit_learn(X, [n_trees], SEED))
    (found, drawn), alone_s = grow(X, [n_trees], SEED), min(rested(lambda: grow(X, [n_trees], SEED)) for _ in range(7))
    node, visits, steps = np.repeat(found.root[:, None], drawn.shape[1], axis=1), 0, len(X) * n_trees * found.depth
    for _ in range(found.depth):  # the rows of each tree go down it
        visits += int((found.child[node, 0] != node).sum())
        right = X.astype(np.float32)[drawn, found.feature[node]] > found.threshold[node]
        node = found.child[node, right.astype(np.intp)].astype(np.intp)
    same = all(np.array_equal(getattr(found, field.name), getattr(expected, field.name)) for field in fields(Forest))
    return {
        "grow_s": grow_s,
        "isotree_grow_s": isotree_s,
        "grow_ratio": grow_s / isotree_s,
        "scikit_learn_grow_s": scikit_learn_s,
        "same_trees": same,
        "visits": visits,  # of a row to a node that is split
        "ns_per_visit": 1e9 * alone_s / visits,
        "ns_per_step": 1e9 * score_s * n_jobs / steps,  # of a row, one level down
        "score_trees_s": score_s,
        "isotree_score_s": isotree_score_s,
        "score_trees_ratio": score_s / isotree_score_s,
    }


def tell_isotree(told: dict[str, Any]) -> None:
    """Print what `compare_isotree` has found."""
    if not told:
        print("isotree is not installed: pip install isotree compares growing and scoring with it")
        return
    print(
        f"grow 175 trees   evenout {1e3 * told['grow_s']:6.1f} ms   isotree {1e3 * told['isotree_grow_s']:6.1f} ms   "
        f"{told['grow_ratio']:5.2f} of its time   scikit-learn {1e3 * told['scikit_learn_grow_s']:6.1f} ms   "
        f"trees {'the same as' if told['same_trees'] else 'DIFFERENT from'} scikit-learn's"
    )
    print(
        f"score by them    evenout {1e3 * told['score_trees_s']:6.1f} ms   "
        f"isotree {1e3 * told['isotree_score_s']:6.1f} ms   {told['score_trees_ratio']:5.2f} of its time"
    )
    print(
        f"on one core      {told['ns_per_visit']:.1f} ns for each of {told['visits']} visits of a row to a node that "
        f"is split, drawing rows included; {told['ns_per_step']:.2f} ns for each step of a row down a tree"
    )


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


def rested(work: Callable[[], Any]) -> float:
    """Seconds of a run that begins after a pause, so that no thread of the one before is still awake."""
    time.sleep(PAUSE)
    return timed(work)[0]


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
    score_evenout(fit_evenout(make_rows(30_000, d, seed=3), n_jobs)[0], new[:100], n_jobs)  # what small tables need not
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
    parser.add_argument("--trees", action="store_true", help="compare with isotree alone")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    if options.trees:
        trees = compare_isotree(make_rows(options.n, options.d, seed=1), options.n_jobs, options.repeats)
        tell_isotree(trees)
        if options.json:
            print(json.dumps(trees))
        return
    with tempfile.TemporaryDirectory() as cache:
        os.environ["NUMBA_CACHE_DIR"] = cache  # the first call shall compile
        result = run(options.n, options.d, options.n_jobs, options.repeats)
        trees = compare_isotree(make_rows(options.n, options.d, seed=1), options.n_jobs, options.repeats)
    print(f"{options.n} rows, {options.d} features, 18 detectors, {options.n_jobs} threads")
    for task, prefix in (("fit", ""), ("score", "score_")):
        ours, theirs = result[f"{prefix}evenout_s"], result[f"{prefix}pyod_s"]
        print(f"{task:6} evenout {ours:8.2f} s   PyOD {theirs:8.2f} s   {result[f'{prefix}ratio']:6.1f} x")
    print(f"largest difference of scaled scores {result['max_rel_diff']:.1e}")
    print(f"first call, with compilation {result['first_call_s']:.1f} s")
    tell_isotree(trees)
    if "near_onedal_s" in result:
        ours, theirs = result["near_evenout_s"], result["near_onedal_s"]
        print(f"LOF, k-NN: evenout {ours:.2f} s   oneDAL {theirs:.2f} s   {result['near_onedal_ratio']:.1f} x", end="")
        print(f"   largest difference {result['near_onedal_max_rel_diff']:.1e}")
    else:
        print("oneDAL is not installed (scikit-learn-intelex): left out")
    if options.json:
        print(json.dumps(result | trees))


if __name__ == "__main__":
    main()
