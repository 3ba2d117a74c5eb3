"""A thousand trade-offs after one factorisation, against a thousand solutions of the problem with all its rows.

Both give what the detectors add to the target under demographic parity at the same alphas; the largest difference of
scores, relative to the largest score, is printed.
"""

import argparse
import json
import time

import numpy as np

from evenout.core.cells import CrossFit, collect_cells, rank_weights
from evenout.core.content import assign_folds
from evenout.core.path import TradeoffPath
from evenout.core.registry import PARITY
from evenout.core.types import FloatArray, IntArray


def problem(n: int, k: int, groups: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Correlated scores whose means differ between groups."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, groups, size=n)
    S = rng.exponential(size=(n, 1)) + rng.exponential(size=(n, k)) * rng.uniform(0.1, 1.0, size=k)
    S += 0.2 * codes[:, None] * rng.uniform(size=k)
    S = (S - S.min(axis=0)) / np.ptp(S, axis=0)
    return S, S.max(axis=1), codes


def dense(S: FloatArray, beta: FloatArray, form: FloatArray, alpha: float) -> FloatArray:
    """One alpha from the n rows, columns centred: ``(S' diag(beta) S + alpha C) v = -alpha c``, form (k + 1, k + 1)."""
    centred = S - np.average(S, axis=0, weights=beta)
    A, C, c = (centred.T * beta) @ centred, form[:-1, :-1], form[:-1, -1]
    return np.asarray(np.linalg.solve(A + alpha * C, -alpha * c), dtype=np.float64)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--k", type=int, default=18)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--alphas", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    S, t, codes = problem(options.n, options.k, options.groups)
    beta = rank_weights(t)
    start = time.perf_counter()
    cells = collect_cells(S, t, beta, codes, assign_folds(S, codes, 5, 0), n_groups=options.groups, n_sets=5)
    path = TradeoffPath(CrossFit.of_folds(cells), ((PARITY, 1.0),))
    prepared = time.perf_counter() - start
    alphas = np.r_[0.0, path.grid(options.alphas - 1)]
    start = time.perf_counter()
    weights, _, _ = path.weights(alphas), path.f1(alphas), path.f2(alphas)
    ours = time.perf_counter() - start
    form = PARITY.form(path.cross.whole)[0]
    start = time.perf_counter()
    expected = np.stack([dense(S, beta, form, alpha) for alpha in alphas])
    theirs = time.perf_counter() - start
    centred = S - np.average(S, axis=0, weights=beta)
    difference = np.abs(centred @ (weights - expected).T).max() / np.abs(t).max()
    result = {
        "path_ms": 1e3 * ours,
        "prepare_ms": 1e3 * prepared,
        "dense_ms": 1e3 * theirs,
        "ratio": theirs / ours,
        "max_rel_diff": difference,
    }
    for name, value in result.items():
        print(f"{name:14s} {value:.4g}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
