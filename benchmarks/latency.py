"""How long a service waits for the score of one row, of ten and of a thousand, and while four threads ask at once.

    python benchmarks/latency.py --json                                   # some ten minutes, most of them for the fits
    python benchmarks/latency.py --rows 5000 --seconds 0.1 --json         # a look: under two minutes
    python benchmarks/latency.py --cases default everything --no-peers    # some of the models

All models are fitted on the same rows and score the same new ones, none of which is a training row. Models and sizes
take turns, so that whatever else the machine does falls on all of them. Quantiles are over calls; a thousand rows are
asked for so seldom that their p99 is the longest call.

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


def our_models(X: FloatArray, wanted: list[str], n_jobs: int) -> Iterator[tuple[str, Scorer]]:
    """Name and scorer of each model that is wanted."""
    groups, labels = make_groups(X)
    for name, settings in SETTINGS.items():
        needed = {name, "frame", "loaded"} if name == "everything" else {name}
        if not needed & {*wanted}:
            continue
        model = FairOutlierEnsemble(random_state=0, n_jobs=n_jobs, **settings)
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


def call_times(scorer: Scorer, new: FloatArray, size: int, seconds: float, start: int) -> list[float]:
    """Seconds of each call, on other rows every time, until the time is up; three calls at least."""
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        at = (start + size * len(times)) % (len(new) - size + 1)
        rows = new[at : at + size]
        begin = time.perf_counter()
        scorer(rows)
        times.append(time.perf_counter() - begin)
    return times


def quantiles(times: list[float]) -> dict[str, float]:
    """Milliseconds."""
    p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
    return {"p50_ms": float(p50), "p99_ms": float(p99), "calls": len(times)}


def one_by_one(scorer: Scorer, rows: FloatArray) -> tuple[FloatArray, list[float]]:
    """The score of each row, asked for alone, and how long each took."""
    scores, times = np.empty(len(rows)), []
    for i in range(len(rows)):
        begin = time.perf_counter()
        scores[i] = scorer(rows[i : i + 1])[0]
        times.append(time.perf_counter() - begin)
    return scores, times


def under_load(scorer: Scorer, new: FloatArray) -> dict[str, Any]:
    """Times of one row while all threads ask, and whether the scores are those of one thread, and of many rows."""
    rows = new[: THREADS * SHARE]
    alone, _ = one_by_one(scorer, rows)
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(lambda part: one_by_one(scorer, part), np.split(rows, THREADS)))
    found = np.concatenate([scores for scores, _ in parts])
    return {
        **quantiles([seconds for _, times in parts for seconds in times]),
        "same": bool(np.array_equal(found, alone)),
        "alone": bool(np.array_equal(scorer(rows), alone)),
    }


def measure(models: dict[str, Scorer], new: FloatArray, seconds: float) -> dict[str, dict[str, Any]]:
    """Quantiles by model and size, and under load."""
    found: dict[str, dict[str, Any]] = {}
    for name, scorer in models.items():
        begin = time.perf_counter()
        scorer(new[:1])
        found[name] = {"first_ms": 1e3 * (time.perf_counter() - begin)}
        for size in SIZES:
            scorer(new[:size])
    times: dict[tuple[str, int], list[float]] = {(name, size): [] for name in models for size in SIZES}
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
    print(f"{'milliseconds: p50 / p99':30}" + "".join(f"{head:>20}" for head in heads) + f"{'same':>7}{'alone':>7}")
    for name, case in found.items():
        parts = [case[str(size)] for size in SIZES] + [case["threads"]]
        cells = "".join(f"{part['p50_ms']:>11.2f} / {part['p99_ms']:6.2f}" for part in parts)
        print(f"{name:30}{cells}{case['threads']['same']!s:>7}{case['threads']['alone']!s:>7}")


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows to train on")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each model and number of rows")
    parser.add_argument("--cases", nargs="+", choices=OURS, default=list(OURS), metavar="CASE", help=", ".join(OURS))
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--n-jobs", type=int, default=os.cpu_count(), help="threads of the fits; scoring has one")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, new = make_rows(options.rows, options.features, seed=1), make_rows(NEW, options.features, seed=2)
    models = {name: scorer for name, scorer in our_models(X, options.cases, options.n_jobs) if name in options.cases}
    models |= {} if options.no_peers else dict(peers(X))
    found = measure(models, new, options.seconds)
    print(f"{options.rows} training rows, {options.features} features")
    show(found)
    if options.json:
        print(json.dumps({"rows": options.rows, "features": options.features, "cases": found}))


if __name__ == "__main__":
    main()
