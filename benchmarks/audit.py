"""How long audits take: hard groups, with weights, with clusters; beside those of another checkout of the project.

    python benchmarks/audit.py [--rows 1000000] [--resamples 1000] [--before PATH/src] [--json]

Each audit runs in a process of its own, and the least processor time of several counts. `--json` prints the figures as
the last line.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KINDS = ("plain", "weights", "clusters", "labels", "given")
HERE = Path(__file__).resolve().parents[1] / "src"


def once(kind: str, n_rows: int, resamples: int) -> float:
    """Processor seconds of one audit."""
    import numpy as np

    from evenout import audit

    rng = np.random.default_rng(0)
    each = 10 if kind == "clusters" else 1
    group = np.repeat(rng.choice(["a", "b", "c"], n_rows // each, p=[0.6, 0.3, 0.1]), each)
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "weights": {"sample_weight": rng.uniform(0.5, 2.0, n_rows)},
        "clusters": {"clusters": np.repeat(np.arange(n_rows // each), each)},
        "labels": {"labels": rng.random(n_rows) < 0.1},
        "given": {"given": rng.lognormal(size=n_rows)},
    }
    more, scores, drawn = kinds[kind], rng.normal(size=n_rows), ["resamples"]
    if "n_bootstrap" in inspect.signature(audit).parameters:  # the names of 0.2
        drawn, more = (
            ["n_bootstrap", "n_permutations"],
            {"y" if name == "labels" else name: more[name] for name in more},
        )
    few: dict[str, Any] = dict.fromkeys(drawn, 2)
    many: dict[str, Any] = more | dict.fromkeys(drawn, resamples)
    audit(scores[:2000], sensitive_features=group[:2000], **few)  # imports
    start = time.process_time()
    audit(scores, sensitive_features=group, **many)
    return time.process_time() - start


def elsewhere(source: Path, kind: str, rows: int, resamples: int) -> float:
    """Run in a process of its own, with the project of ``source``."""
    command = [sys.executable, __file__, "--rows", str(rows), "--resamples", str(resamples), "--one", kind]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else float("nan")


def main() -> None:
    """Time all kinds and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--before", type=Path, help="the folder src of an earlier checkout")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(once(asked.one, asked.rows, asked.resamples))
        return
    sources = {"now": HERE} | ({"before": asked.before} if asked.before else {})
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        times = {
            name: min(elsewhere(source, kind, asked.rows, asked.resamples) for _ in range(asked.repeats))
            for name, source in sources.items()
        }
        times = {name: seconds for name, seconds in times.items() if seconds == seconds}  # else it was refused
        found[kind] = times | {"to plain": times["now"] / found["plain"]["now"] if found else 1.0}
        if "before" in times:
            found[kind]["to before"] = times["now"] / times["before"]
        print(f"{kind:<10}" + "  ".join(f"{name} {value:.2f}" for name, value in found[kind].items()), flush=True)
    if asked.json:
        print(json.dumps({"rows": asked.rows, "resamples": asked.resamples, "kinds": found}))


if __name__ == "__main__":
    main()
