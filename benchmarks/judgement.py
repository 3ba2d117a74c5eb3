"""Does the tool say only what is true? Fits on simulated people, judged on a million others from the same population.

    python benchmarks/judgement.py --json               # all of it, about twenty minutes on two cores
    python benchmarks/judgement.py --fits 10 --null 20  # a quick look

cells                 For two sizes of the gap and two numbers of rows: how often a fit says that the request (80 % less
                      bias) is met, and how much is missing in those fits on a million fresh rows.
met_with_confidence   Of the fits with confidence=0.95 that say so, how many keep their word.
null                  Groups drawn at random for bundled tables: nothing is to be found. Where none is found, the scores
                      must be the base scores bit for bit; where chance shows a gap, little detection may be lost.
flag_test             Level and power of the audit's test of flag rates; see benchmarks/flag_test.py.

The simulated people have eight features. Two groups of equal size differ in the spread of three of them, which say
nothing of anybody; outliers stand out in the others. Ten detectors score them: each feature's distance from the
middle, and the length of both halves of the row. They are functions of the row, so that a million fresh rows can be
judged in a moment.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from evenout import FairOutlierEnsemble
from evenout.core.types import FloatArray, IntArray
from evenout.datasets import load_dataset
from evenout.metrics import demographic_parity, roc_auc
from flag_test import level_and_power

ASKED = 0.8
GAPS = (0.01, 0.05)
SIZES = (1000, 10_000)
FRESH = 1_000_000
FEATURES, NUISANCE = 8, 3
SPREAD = {0.01: 1.061, 0.05: 1.149}  # of the second group in the nuisance features; gives about that gap
TABLES = ("breastw", "cardio")


def people(n: int, spread: float, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Feature rows of n people, and their groups."""
    groups = np.arange(n) % 2
    X = rng.standard_normal((n, FEATURES))
    outlier = rng.random(n) < 0.05
    X[:, NUISANCE:] *= np.where(outlier, 2.5, 1.0)[:, None]
    X[:, :NUISANCE] *= np.where(groups == 1, spread, 1.0)[:, None]
    return X, groups


def _of_feature(j: int) -> Callable[[FloatArray], FloatArray]:
    return lambda X: np.abs(X[:, j])


def _of_part(part: slice) -> Callable[[FloatArray], FloatArray]:
    return lambda X: np.linalg.norm(X[:, part], axis=1)


DETECTORS = [
    *((f"feature_{j}", _of_feature(j)) for j in range(FEATURES)),
    ("nuisance", _of_part(slice(0, NUISANCE))),
    ("signal", _of_part(slice(NUISANCE, FEATURES))),
]


@dataclass(frozen=True)
class Judged:
    """One fit: what it says, and what fresh rows got."""

    gap_found: bool
    says_met: bool
    said: float
    got: float


def judge(gap: float, n: int, seed: int, confidence: float | None = None) -> Judged:
    """Fit on n people, judge on a million others."""
    X, groups = people(n, SPREAD[gap], np.random.default_rng((seed, n, round(1000 * gap))))
    model = FairOutlierEnsemble(DETECTORS, bias_reduction=ASKED, confidence=confidence, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, sensitive_features=groups)
    if not model.gap_detected_:
        return Judged(False, False, float("nan"), float("nan"))
    fresh, their_groups = people(FRESH, SPREAD[gap], np.random.default_rng(12345))
    before, after = (
        demographic_parity(y, sensitive_features=their_groups, scale_free=True, corrected=True)
        for y in (model.base_scores(fresh), model.outlier_scores(fresh))
    )
    return Judged(True, model.request_met_, model.bias_reduction_, 1.0 - after / before)


def summarise(fits: list[Judged]) -> dict[str, Any]:
    """Statements of the fits, and the truth about them."""
    met = [fit for fit in fits if fit.says_met]
    found = [fit for fit in fits if fit.gap_found]
    missing = [max(0.0, ASKED - fit.got) for fit in met]
    return {
        "n": len(fits),
        "gap_found": len(found) / len(fits),
        "says_met": len(met) / len(fits),
        "mean_shortfall": float(np.mean(missing)) if met else None,
        "mean_miss": float(np.mean([abs(ASKED - fit.got) for fit in met])) if met else None,
        "mean_said": float(np.mean([fit.said for fit in found])) if found else None,
        "mean_got": float(np.mean([fit.got for fit in found])) if found else None,
    }


def null(table: str, seed: int) -> tuple[bool, bool, float]:
    """Random groups: whether a gap was found, whether the scores are the base scores, and the AUC lost."""
    data = load_dataset(table)
    rng = np.random.default_rng((seed, len(data.X)))
    groups = rng.integers(int(rng.integers(2, 5)), size=len(data.X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FairOutlierEnsemble("paper", standardize=False, random_state=seed).fit(
            data.X, sensitive_features=groups
        )
    base, fair = model.target_, model.outlier_scores_
    lost = roc_auc(data.y, base) - roc_auc(data.y, fair)
    return model.gap_detected_, bool(np.array_equal(base, fair)), lost


def judge_null(outcomes: list[tuple[bool, bool, float]]) -> dict[str, Any]:
    """Of random groupings: false alarms, and what they cost."""
    alarms = [lost for found, _, lost in outcomes if found]
    unchanged = [same for found, same, _ in outcomes if not found]
    return {
        "n": len(outcomes),
        "false_alarms": len(alarms) / len(outcomes),
        "unchanged_without_gap": bool(all(unchanged)),
        "mean_auc_lost": float(np.mean(alarms)) if alarms else 0.0,
        "worst_auc_lost": float(np.max(alarms)) if alarms else 0.0,
    }


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=100, help="per gap and number of rows")
    parser.add_argument("--null", type=int, default=300, help="random groupings of each bundled table")
    parser.add_argument("--flag-tables", type=int, default=2000, help="simulated tables for the level of the flag test")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    work = Parallel(n_jobs=options.n_jobs)
    cells = {}
    for gap in GAPS:
        for n in SIZES:
            fits = work(delayed(judge)(gap, n, seed) for seed in range(options.fits))
            cells[f"{gap:g}, {n}"] = summarise(fits)
            print(f"gap {gap:g}, {n} rows: {cells[f'{gap:g}, {n}']}", flush=True)
    sure = work(delayed(judge)(GAPS[-1], SIZES[-1], seed, 0.95) for seed in range(1000, 1000 + options.fits + 20))
    met = [fit for fit in sure if fit.says_met]
    kept = float(np.mean([fit.got >= ASKED for fit in met])) if met else None
    confident = {"share": kept, "n": len(met), "asked": len(sure)}
    print(f"with confidence 0.95: {confident}", flush=True)
    outcomes = {name: work(delayed(null)(name, seed) for seed in range(options.null)) for name in TABLES}
    nulls = {name: judge_null(found) for name, found in outcomes.items()}
    nulls["all"] = judge_null([one for found in outcomes.values() for one in found])
    print(f"random groups: {nulls}", flush=True)
    tests = level_and_power(options.flag_tables)
    flags = {
        "level": float(np.mean([found["audit"] for found in tests["level"].values()])),
        "power": {part: found["audit"] for part, found in tests["power"].items()},
        "power_of_chi_square": {part: found["scipy"] for part, found in tests["power"].items()},
    }
    print(f"test of flag rates: {flags}", flush=True)
    if options.json:
        result = {
            "cells": cells,
            "met_with_confidence": confident,
            "null": nulls["all"],
            "null_by_table": nulls,
        }
        print(json.dumps(result | {"flag_test": flags}))


if __name__ == "__main__":
    main()
