"""Every two options together, many times: whether what is said holds in the population.

The cases are those of ``tests/matrix``: each is drawn anew, fitted or measured, and held against fresh rows of the same
population, once with gaps between groups and once without any. Printed are the coverage of each interval, the level of
each test where there is no gap, and what is missing on average where a request is said to be met. Lines that leave the
limits by more than two Monte-Carlo errors end with what is wrong.

    python benchmarks/matrix.py --replicates 400 --workers 16 --json matrix.json
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes share the cores already
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "matrix"))

import numpy as np
from matrix_design import Case, design, rows_needed
from matrix_people import GAP, draw
from matrix_places import Statement, state

COVERAGE, LEVEL, SHORTFALL = (0.92, 0.99), (0.03, 0.07), 0.05
FRESH = 150_000  # rows that a score is judged on at most
NEEDS = {"dask": "dask", "loaded": "skops"}  # what a place cannot do without


def replicate(case: Case, seed: int, each: int) -> dict[str, Any]:
    """One draw with gaps and one without: what is said, and what is true."""
    n, started = rows_needed(case, each), time.perf_counter()
    found = {}
    for place, gap in enumerate((GAP, 0.0)):
        rng = np.random.default_rng([seed, place])
        sample, fresh = draw(case, n, rng, gap), draw(case, min(20 * n, FRESH), rng, gap, sampled=False)
        found["without" if gap == 0 else "with"] = _plain(state(case, sample, fresh))
    return {**found, "seconds": time.perf_counter() - started}


def _plain(found: Statement) -> dict[str, Any]:
    return asdict(found) | {"claims": [asdict(claim) | {"holds": claim.holds} for claim in found.claims]}


def replicates(case: Case, seeds: list[int], each: int) -> list[dict[str, Any]]:
    """Several draws of a case; one that fails says so."""
    found = []
    for seed in seeds:
        try:
            found.append(replicate(case, seed, each))
        except Exception as error:
            found.append({"error": f"{type(error).__name__}: {error}"})
    return found


def summary(case: Case, drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each interval, each test, and the request."""
    errors = [one["error"] for one in drawn if "error" in one]
    drawn = [one for one in drawn if "error" not in one]
    lines: list[tuple[str, list[float], dict[str, float], str]] = []
    lines += [("errors", [1.0] * len(errors), {}, errors[0])] if errors else []
    for part in ("with", "without"):
        claims = defaultdict(list)
        for one in drawn:
            for claim in one[part]["claims"]:
                claims[claim["name"]].append(claim)
        for name, own in claims.items():
            if np.isnan(own[0]["low"]) or (part == "without" and name != "flag_rate_ratio"):
                continue
            held = [float(claim["holds"]) for claim in own]
            means = {key: float(np.mean([claim[key] for claim in own])) for key in ("value", "truth")}
            lines.append((f"coverage of {name}, {part} gaps", held, means, _apart(held, COVERAGE)))
    for name, rejected in _tests(case, drawn).items():
        lines.append((f"level of {name}", rejected, {}, _apart(rejected, LEVEL)))
    said = [one["with"] for one in drawn]
    if case.place == "monitor":
        alarms = [float(one["alarm"]) for one in said]
        lines.append(("false alarms", alarms, {}, _apart(alarms, (0.0, 0.05))))
    met = [max(one["asked"] - one["got"], 0.0) for one in said if one["met"] and not np.isnan(one["asked"])]
    if met:
        over = np.mean(met) - 2.0 * np.std(met) / len(met) ** 0.5 > SHORTFALL
        lines.append(("shortfall where met", met, {}, "too much is missing" if over else ""))
    return [
        {"case": str(case), "what": what, "n": len(values), "share": float(np.mean(values)), **more, "off": off}
        for what, values, more, off in lines
    ]


def _tests(case: Case, drawn: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Whether each test of "no gap" rejects where there is none."""
    if case.place == "audit":
        if case.labelled:  # outliers are more frequent in one group: among all rows there is a gap
            own = ["true_positive_rate_test"] if case.given == "none" else []
        else:
            own = ["strata_test"] if case.given != "none" else ["flag_rate_test", "mean_score_test"]
        names = [name for name in drawn[0]["without"]["p"] if name.split()[0] in own] if drawn else []
        return {name: [float(one["without"]["p"][name] <= 0.05) for one in drawn] for name in names}
    if case.notion == "individual" and case.request != "flag_rate_ratio":  # which always has something to remove
        return {}
    name = "the flag test" if case.request == "flag_rate_ratio" else "the test of means"
    return {name: [float(one["without"]["gap"]) for one in drawn]}


def _apart(values: list[float], limits: tuple[float, float]) -> str:
    low, high = limits
    error = [2.0 * (limit * (1.0 - limit) / len(values)) ** 0.5 for limit in limits]
    return "too low" if np.mean(values) < low - error[0] else "too high" if np.mean(values) > high + error[1] else ""


def main() -> None:
    """Draw, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=400)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--cases", default="", help="those alone whose name has this text")
    parser.add_argument("--each", type=int, default=200, help="independent rows that every group is worth")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    cases = [case for case in design() if asked.cases in f"{case}, {case.place}"]
    able = [case for case in cases if find_spec(NEEDS.get(case.place, "numpy")) is not None]
    parts = np.array_split(np.arange(asked.replicates), max(asked.replicates // 10, 1))
    chunks = [(case, part.tolist()) for case in able for part in parts]
    results: dict[Case, list[dict[str, Any]]] = defaultdict(list)
    with ProcessPoolExecutor(asked.workers) as pool:
        runs = [pool.submit(replicates, case, seeds, asked.each) for case, seeds in chunks]
        for (case, _), run in zip(chunks, runs, strict=True):
            results[case] += run.result()
            if len(results[case]) == asked.replicates:
                _show(case, results[case], asked.each)
    left = sorted({str(case) for case in cases if case not in able})
    lines = [line for case, drawn in results.items() for line in summary(case, drawn)]
    print(
        f"{len(able)} cases, {len(lines)} lines, {sum(bool(line['off']) for line in lines)} of them outside the limits"
    )
    if left:
        print(f"not drawn, for want of a package: {'; '.join(left)}")
    if asked.json is not None:
        told = {"replicates": asked.replicates, "each": asked.each, "not_drawn": left, "lines": lines}
        asked.json.write_text(json.dumps(told, indent=1))


def _show(case: Case, drawn: list[dict[str, Any]], each: int) -> None:
    seconds = np.mean([one["seconds"] for one in drawn if "seconds" in one] or [np.nan])
    print(f"{case}  ({rows_needed(case, each):,} rows, {seconds:.2f} s a draw)")
    for line in summary(case, drawn):
        said = f"  said {line['value']:.3f}, true {line['truth']:.3f}" if "truth" in line else ""
        print(
            f"    {line['what']:<55} {line['share']:6.3f} of {line['n']:4d}{said}  {line['off']}".rstrip(), flush=True
        )


if __name__ == "__main__":
    main()
