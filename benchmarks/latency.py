"""How long a service waits for the score of one row, of ten and of a thousand, and while four threads ask at once.

    python benchmarks/latency.py --json                                   # some ten minutes, most of them for the fits
    python benchmarks/latency.py --rows 5000 --seconds 0.1 --json         # a look: under two minutes
    python benchmarks/latency.py --cases default everything --no-peers    # some of the models
    python benchmarks/latency.py --cases default everything --no-peers --device cuda

All models are fitted on the same rows and score the same new ones, none of which is a training row. Models and sizes
take turns, so that whatever else the machine does falls on all of them. Quantiles are over calls; a thousand rows are
asked for so seldom that their p99 is the longest call. "cpu" is the median of the processor's time for one row: what is
left of p50 where nothing else runs.

Ours are 18 detectors with everything that makes one fair score of them, 28 where labels are learnt from:

default        the default fit; standardize=True is part of it
unstandardized standardize=False
labels         learn=True with 2000 labels
resemblance    correction="resemblance"
both           correction="both"
everything     correction="both", learn=True, scaling="rank"
frame          the same, asked with a frame of one row
loaded         the same, saved and loaded
blind          BlindRepair of a ready score

Beside them single detectors of others with their default settings; IsolationForest and IForest have 100 trees.

Four threads: each asks for its share of the rows, one by one; "same" says whether all scores are those, bit for bit,
that one thread gets for the rows one after the other; "alone" whether these are the scores of the rows all together.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenout import BlindRepair, FairOutlierEnsemble
from evenout.core.types import FloatArray
from evenout.persistence import load_model, save_model
from pool import make_rows

SIZES = (1, 10, 1000)
THREADS, SHARE = 4, 100  # rows that each thread asks for
ROUNDS = 5  # turns of each model and size
NEW = 4000
N_LABELS = 2000
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "unstandardized": {"standardize": False},
    "labels": {"learn": True},
    "resemblance": {"correction": "resemblance"},
    "both": {"correction": "both"},
    "everything": {"correction": "both", "learn": True, "scaling": "rank"},
}
OURS = (*SETTINGS, "frame", "loaded", "blind")

Scorer = Callable[[FloatArray], FloatArray]


def make_groups(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Three groups that the first feature says something of, and labels of some rows, NaN for the others."""
    rng = np.random.default_rng(2)
    n = len(X)
    groups = (X[:, 0] + 2.0 * rng.normal(size=n) > 0) + (rng.random(n) < 0.2).astype(float)
    labels, known = np.full(n, np.nan), rng.choice(n, min(N_LABELS, n // 2), replace=False)
    labels[known] = np.abs(X[known]).max(axis=1) > 6.0
    return groups, labels


def our_models(X: FloatArray, wanted: list[str], machine: dict[str, Any]) -> Iterator[tuple[str, Scorer]]:
    """Name and scorer of each model that is wanted, fitted by so many threads, and on a device where that is asked."""
    groups, labels = make_groups(X)
    for name, settings in SETTINGS.items():
        needed = {name, "frame", "loaded"} if name == "everything" else {name}
        if not needed & {*wanted}:
            continue
        model = FairOutlierEnsemble(random_state=0, **machine, **settings)
        model.fit(X, sensitive_features=groups, labels=labels if "learn" in settings else None)
        model.set_params(n_jobs=None)
        yield name, model.score_samples
        if name == "everything":
            yield "loaded", again(model).score_samples
            yield "frame", with_names(model, X.shape[1])
    if "blind" in wanted:
        repair = BlindRepair(random_state=0).fit(np.abs(X).sum(axis=1), X, sensitive_features=groups)
        yield "blind", lambda rows: repair.transform(np.abs(rows).sum(axis=1), rows)


def again(model: Any) -> Any:
    """The model out of a file."""
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "model.skops")
        return load_model(Path(folder) / "model.skops")


def with_names(model: Any, n_features: int) -> Scorer:
    """The scores of frames, by a model that knows the names of their columns."""
    names = [f"x{j}" for j in range(n_features)]
    named = again(model)
    named.feature_names_in_ = np.array(names, dtype=object)
    return lambda rows: named.score_samples(pd.DataFrame(rows, columns=names))


def peers(X: FloatArray) -> Iterator[tuple[str, Scorer]]:
    """Detectors of scikit-learn and PyOD."""
    from pyod.models import iforest, knn, lof
    from sklearn.ensemble import IsolationForest
    from sklearn.neighbors import LocalOutlierFactor

    yield "scikit-learn LOF", LocalOutlierFactor(novelty=True).fit(X).score_samples
    yield "scikit-learn IsolationForest", IsolationForest(random_state=0).fit(X).score_samples
    yield "PyOD LOF", lof.LOF().fit(X).decision_function
    yield "PyOD KNN", knn.KNN().fit(X).decision_function
    yield "PyOD IForest", iforest.IForest(random_state=0).fit(X).decision_function


def timed(scorer: Scorer, rows: FloatArray) -> tuple[FloatArray, tuple[float, float]]:
    """The scores, and how long they took, in seconds by the clock and of the processor."""
    busy, begin = time.thread_time(), time.perf_counter()
    scores = scorer(rows)
    return scores, (time.perf_counter() - begin, time.thread_time() - busy)


def call_times(scorer: Scorer, new: FloatArray, size: int, seconds: float, start: int) -> list[tuple[float, float]]:
    """Times of calls, on other rows every time, until the time is up; three calls at least."""
    times: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        at = (start + size * len(times)) % (len(new) - size + 1)
        times.append(timed(scorer, new[at : at + size])[1])
    return times


def quantiles(times: list[tuple[float, float]]) -> dict[str, float]:
    """Milliseconds."""
    clock, cpu = 1e3 * np.array(times).T
    p50, p99 = np.quantile(clock, [0.5, 0.99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "cpu_ms": float(np.median(cpu)), "calls": len(times)}


def one_by_one(scorer: Scorer, rows: FloatArray) -> tuple[FloatArray, list[tuple[float, float]]]:
    """The score of each row, asked for alone, and how long each took."""
    found = [timed(scorer, rows[i : i + 1]) for i in range(len(rows))]
    return np.concatenate([scores for scores, _ in found]), [times for _, times in found]


def under_load(scorer: Scorer, new: FloatArray) -> dict[str, Any]:
    """Times of one row while all threads ask, and whether the scores are those of one thread, and of many rows."""
    rows = new[: THREADS * SHARE]
    alone, _ = one_by_one(scorer, rows)
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(lambda part: one_by_one(scorer, part), np.split(rows, THREADS)))
    found = np.concatenate([scores for scores, _ in parts])
    return {
        **quantiles([pair for _, times in parts for pair in times]),
        "same": bool(np.array_equal(found, alone)),
        "alone": bool(np.array_equal(scorer(rows), alone)),
    }


def measure(models: dict[str, Scorer], new: FloatArray, seconds: float) -> dict[str, dict[str, Any]]:
    """Quantiles by model and size, and under load."""
    found: dict[str, dict[str, Any]] = {}
    for name, scorer in models.items():
        found[name] = {"first_ms": 1e3 * timed(scorer, new[:1])[1][0]}
        for size in SIZES:
            scorer(new[:size])
    times: dict[tuple[str, int], list[tuple[float, float]]] = {(name, size): [] for name in models for size in SIZES}
    for turn in range(ROUNDS):
        for (name, size), so_far in times.items():
            so_far += call_times(models[name], new, size, seconds / ROUNDS, turn * 701)
    for name, scorer in models.items():
        found[name] |= {str(size): quantiles(times[name, size]) for size in SIZES}
        found[name]["threads"] = under_load(scorer, new)
    return found


def show(found: dict[str, dict[str, Any]]) -> None:
    """One line for each model."""
    heads = [f"{size} row{'s' * (size > 1)}" for size in SIZES] + [f"1 row, {THREADS} threads"]
    print(f"{'milliseconds: p50 / p99':29}{'cpu':>7}" + "".join(f"{head:>20}" for head in heads) + "   same  alone")
    for name, case in found.items():
        parts = [case[str(size)] for size in SIZES] + [case["threads"]]
        cells = "".join(f"{part['p50_ms']:>10.2f} / {part['p99_ms']:7.2f}" for part in parts)
        marks = f"{case['threads']['same']!s:>7}{case['threads']['alone']!s:>7}"
        print(f"{name:29}{case['1']['cpu_ms']:7.2f}{cells}{marks}")


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows to train on")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each model and number of rows")
    parser.add_argument("--cases", nargs="+", choices=OURS, default=list(OURS), metavar="CASE", help=", ".join(OURS))
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--n-jobs", type=int, default=os.cpu_count(), help="threads of the fits; scoring has one")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of ours but for blind and loaded")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    machine = {"n_jobs": options.n_jobs, "device": options.device}
    warnings.simplefilter("ignore")
    X, new = make_rows(options.rows, options.features, seed=1), make_rows(NEW, options.features, seed=2)
    models = {name: scorer for name, scorer in our_models(X, options.cases, machine) if name in options.cases}
    models |= {} if options.no_peers else dict(peers(X))
    found = measure(models, new, options.seconds)
    print(f"{options.rows} training rows, {options.features} features")
    show(found)
    if options.json:
        print(json.dumps({"rows": options.rows, "features": options.features, "cases": found}))


if __name__ == "__main__":
    main()
