"""A whole fit with both notions of fairness on one GPU, stage by stage, and its results against the CPU.

    python benchmarks/gpu.py --n 1000000 --d 10 --groups 3 --json

The rows are Gaussian clusters with 2 % outliers, of which later groups have more. The 18 detectors of the paper are
fitted once, on all rows, demographic parity and the exact individual-fairness form are collected, and 30 % of the bias
is removed. A fit of 20,000 rows comes first: it compiles the kernels, and its pair sums are compared with those of the
CPU.

Up to 2 million rows the form is also timed with the short scale of the estimator's default, 0.1 of the median distance.

How far the two quadratic parts are from the limits of the chip is counted. The search multiplies 3 d + 2 numbers, in
whole chunks, for each pair of rows: beside the rate of a large product of half-precision matrices in the same run. The
form needs a root and a power for each pair: a multiprocessor makes 16 in a cycle, and cycles are those at full clock.

Checks, each on rows drawn at random: distances of training rows to their neighbours, searched by the CPU among all
rows; all 18 scores of new rows; pair sums by direction, ``max_v |v'(C~ - C)v| / v'Cv``.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from evenout import gpu
from evenout.core.base_score import learn_combination, learn_scaling, unit_range
from evenout.core.cells import CrossFit, collect_cells, rank_weights
from evenout.core.content import N_FOLDS, assign_folds
from evenout.core.individual import DEFAULT_LENGTH, comparable_rows
from evenout.core.pairwise import PairSums, pair_sums
from evenout.core.parallel import side_by_side
from evenout.core.path import TradeoffPath
from evenout.core.registry import weighted_notions
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.search import cut_blocks, nearest_by_blocks

LOF, KNN, TREES = range(5, 31, 5), range(2, 11, 2), range(25, 176, 25)
FAIRNESS = weighted_notions({"demographic_parity": 1.0, "individual": 1.0})
REDUCTION = 0.3  # share of the bias to remove, the mean of the two notions
SMALL = 20_000  # rows of the first fit
LARGE = 2_000_000  # rows up to which the form with a short scale is timed, too
SIDE = 8192  # of the matrices whose product measures the rate of half precision
CHECKED = 5_000  # rows whose neighbours are searched on the CPU, fewer where it takes long


class Fitted(NamedTuple):
    """Results of a fit: detectors, scaled scores with the target (n, k + 1), folds, pair sums, weights."""

    neighbours: Neighbours
    forest: Forest
    scores: FloatArray
    folds: IntArray
    pairs: PairSums
    weights: FloatArray


class Clock:
    """Seconds of each stage, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time a block of code; all work on the GPU is waited for."""
        _wait()
        start = time.perf_counter()
        yield
        _wait()
        self.seconds[stage] = time.perf_counter() - start
        print(f"{stage:24} {self.seconds[stage]:8.3f} s", file=sys.stderr, flush=True)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def make_rows(n: int, d: int, n_groups: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Five clusters, the same for every seed, and 2 % uniform outliers (n, d), later groups more often; groups (n,)."""
    centres = np.random.default_rng(0).normal(scale=2.0, size=(5, d))
    rng = np.random.default_rng([1, seed])
    X = centres[rng.integers(0, 5, size=n)] + rng.normal(size=(n, d))
    groups = rng.integers(0, n_groups, size=n)
    outlier = rng.random(n) < 0.04 * groups / (n_groups - 1)
    X[outlier] = rng.uniform(-8.0, 8.0, size=(outlier.sum(), d))
    return X, groups


def fit(X: FloatArray, groups: IntArray, n_groups: int, device: str, n_jobs: int, clock: Clock) -> Fitted:
    """The stages of `FairOutlierEnsemble.fit`, the heavy ones on the device, the others on threads of the CPU."""
    threads: dict[str, Any] = {"n_threads": n_jobs}
    with clock("neighbours"):
        neighbours, near, _ = gpu.cross_fit_neighbours(X, None, lof=LOF, knn=KNN, device=device, **threads)
    with clock("forest"):
        forest, isolation, _ = gpu.cross_fit_forest(X, None, sizes=TREES, random_state=0, device=device, **threads)
    with clock("scale, combine, fold"):
        raw = side_by_side([near, isolation], n_jobs)
        scaling = learn_scaling("minmax", raw, **threads)
        S = scaling.transform(raw, **threads)
        combination = learn_combination("greedy", S, np.flatnonzero(scaling.varies), 0, **threads)
        t = unit_range(combination.apply(S, **threads))
        folds = assign_folds(X, groups, N_FOLDS, 0, **threads)
    with clock("cells"):
        shape: dict[str, Any] = {"n_groups": n_groups, "n_sets": N_FOLDS}
        cells = collect_cells(S, t, rank_weights(t), groups, folds, **shape, **threads)
        scores = side_by_side([S, t], n_jobs)
    with clock("individual form"):
        pairs = gpu.pair_sums(X, scores, groups, folds, n_groups=n_groups, n_folds=N_FOLDS, device=device)
    with clock("solve"):
        whole = CrossFit.of_folds(cells).whole
        form, mass = pairs.total()
        whole = replace(whole, sums={"individual.form": form[None], "individual.mass": mass[None]})
        path = TradeoffPath(CrossFit(whole, whole.at(slice(0)), whole.at(slice(0))), FAIRNESS, noise_aware=True)
        weights = path.weights(path.alpha_for(REDUCTION, "training"))
    return Fitted(neighbours, forest, scores, folds, pairs, weights)


def error_by_direction(form: FloatArray, truth: FloatArray) -> float:
    """Largest ``|v'(form - truth)v| / v' truth v`` over the range of ``truth``."""
    values, vectors = np.linalg.eigh(truth)
    kept = values > 1e-12 * values[-1]
    basis = vectors[:, kept] / np.sqrt(values[kept])
    return float(np.abs(np.linalg.eigvalsh(basis.T @ (form - truth) @ basis)).max())


def local_pairs(
    X: FloatArray, groups: IntArray, n_groups: int, fitted: Fitted, device: str, clock: Clock
) -> tuple[FloatArray, float, PairSums]:
    """Standardised features, the short scale, and the pair sums with them."""
    features, scale = comparable_rows(X, groups, DEFAULT_LENGTH)
    shape = {"n_groups": n_groups, "n_folds": fitted.pairs.mass.shape[1]}
    with clock("local form"):
        pairs = gpu.pair_sums(features, fitted.scores, groups, fitted.folds, **shape, scale=scale, device=device)
    return features, float(scale), pairs


def error_of_pairs(pairs: PairSums, truth: PairSums) -> float:
    """Error of the pair sums by direction, over all pairs and over those within each fold, the largest."""
    forms = [(pairs.total()[0].sum(axis=0), truth.total()[0].sum(axis=0))]
    within = (np.einsum("nffab->fab", sums.form) for sums in (pairs, truth))
    forms += list(zip(*within, strict=True))
    return max(error_by_direction(form, true) for form, true in forms)


def checked(n: int) -> int:
    """Rows to check on the CPU, among n."""
    return min(CHECKED, 10_000_000_000 // n)


def compare_training(neighbours: Neighbours, n_jobs: int) -> float:
    """Largest relative difference of kNN scores from distances that the CPU finds among all training rows."""
    rng = np.random.default_rng(2)
    single = np.flatnonzero(neighbours.counts == 1)
    chosen = rng.choice(single, min(checked(len(neighbours.locations)), len(single)), replace=False)
    k = int(neighbours.knn.max())
    asked = cut_blocks(neighbours.locations[chosen])
    distances, _ = nearest_by_blocks(neighbours.blocks(n_jobs), k + 1, queries=asked, n_threads=n_jobs)
    truth = distances[:, neighbours.knn]  # the first is the row itself, at distance 0
    return largest_difference(neighbours.scores[chosen][:, len(neighbours.lof) :], truth)


def compare_new(part: Neighbours | Forest, X: FloatArray, device: str, n_jobs: int) -> float:
    """Largest relative difference of new rows' scores on the two devices."""
    return largest_difference(gpu.score(part, X, device=device), part.score(X, n_threads=n_jobs))


def shares_of_limits(n: int, d: int, seconds: dict[str, float], pairs: int) -> dict[str, float]:
    """Of the rate of half-precision products in the search, and of roots and powers in the form; none without a GPU."""
    if not torch.cuda.is_available():
        return {}
    A = torch.randn(SIDE, SIDE, device="cuda").half()
    taken = np.inf
    for _ in range(5):
        _wait()
        start = time.perf_counter()
        A @ A
        _wait()
        taken = min(taken, time.perf_counter() - start)
    used = 3 * d + 2
    width = 32 if used <= 32 else -(-used // 64) * 64
    chip = torch.cuda.get_device_properties(0)
    asked = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    clock = float(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()[0])
    special = 16 * chip.multi_processor_count * clock * 1e6
    return {
        "half_products_1e12_per_s": SIDE**3 / taken / 1e12,
        "search_share_of_products": n * n * width * taken / SIDE**3 / seconds["neighbours"],
        "form_share_of_special": 2 * pairs / special / seconds["individual form"],
    }


def largest_difference(scores: FloatArray, truth: FloatArray) -> float:
    """Largest difference relative to the true score."""
    return float((np.abs(scores - truth) / np.abs(truth)).max())


def run(n: int, d: int, n_groups: int, device: str, n_jobs: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds of each stage, and the summary."""
    first = Clock()
    few, few_groups = make_rows(SMALL, d, n_groups, seed=0)
    with first("whole"):
        small = fit(few, few_groups, n_groups, device, n_jobs, first)
    arrays = (small.scores, few_groups, small.folds)
    shape = {"n_groups": n_groups, "n_folds": small.pairs.mass.shape[1]}
    pair_error = error_of_pairs(small.pairs, pair_sums(few, *arrays, **shape, n_threads=n_jobs))
    features, scale, local = local_pairs(few, few_groups, n_groups, small, device, first)
    truth = pair_sums(features, *arrays, **shape, scale=scale, n_threads=n_jobs)
    local_error = error_of_pairs(local, truth)
    X, groups = make_rows(n, d, n_groups, seed=1)
    clock = Clock()
    with clock("whole"):
        fitted = fit(X, groups, n_groups, device, n_jobs, clock)
    if n <= LARGE:
        local_pairs(X, groups, n_groups, fitted, device, clock)
    new, _ = make_rows(checked(n), d, n_groups, seed=2)
    sizes = np.bincount(groups, minlength=n_groups)
    pairs = int(n**2 - (sizes**2).sum()) // 2
    seconds = clock.seconds
    summary: dict[str, Any] = {
        "n": n,
        "d": d,
        "groups": n_groups,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else device,
        "fit_s": seconds.pop("whole"),
        "first_fit_s": first.seconds["whole"],
        "pool_s": seconds["neighbours"] + seconds["forest"],
        "if_s": seconds["individual form"],
        "pairs": pairs,
        "ns_per_pair": seconds["individual form"] / pairs * 1e9,
        "local_if_s": seconds.pop("local form", np.nan),
        "agree": {
            "training_knn": compare_training(fitted.neighbours, n_jobs),
            "new_lof_knn": compare_new(fitted.neighbours, new, device, n_jobs),
            "new_forest": compare_new(fitted.forest, new, device, n_jobs),
            "individual_by_direction": pair_error,
            "local_by_direction": local_error,
        },
        "limits": shares_of_limits(n, d, seconds, pairs),
        "gpu_peak_mb": torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else 0.0,
    }
    return seconds, summary


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="rows")
    parser.add_argument("--d", type=int, default=10, help="features")
    parser.add_argument("--groups", type=int, default=3, help="groups of equal size")
    parser.add_argument("--device", default="cuda", help="cpu: the same code without a GPU, to try it")
    parser.add_argument("--n-jobs", type=int, default=2, help="threads of the CPU")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    seconds, summary = run(options.n, options.d, options.groups, options.device, options.n_jobs)
    print(f"{options.n} rows, {options.d} features, {options.groups} groups, {summary['device']}")
    for stage, took in seconds.items():
        print(f"{stage:24} {took:8.3f} s")
    print(f"{'whole fit':24} {summary['fit_s']:8.3f} s   (first fit, {SMALL} rows, {summary['first_fit_s']:.1f} s)")
    print(f"{'individual form':24} {1e3 * summary['ns_per_pair']:8.3f} ps a pair")
    print(f"{'with a short scale':24} {summary['local_if_s']:8.3f} s")
    for name, share in summary["limits"].items():
        print(f"{name:24} {share:8.3g}")
    for name, difference in summary["agree"].items():
        print(f"{name:24} {difference:8.1e} largest difference from the CPU")
    if options.json:
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
