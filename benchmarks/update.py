"""How long it takes to fold new rows into a fitted model, beside scoring them and beside fitting again.

Scores are ready-made columns in the first part, so that what an update itself takes is seen; in the second, detectors
score the rows. `--json` prints the figures as the last line.
"""

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np

from evenout import FairOutlierEnsemble


def draw(n: int, k: int, seed: int) -> tuple[Any, Any]:
    """Rows of k columns; the second group scores higher."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    rows = rng.exponential(size=(n, 1)) * rng.uniform(0.5, 1.5, k) + rng.exponential(size=(n, k))
    return rows + np.outer(groups == "b", np.linspace(0, 0.5, k)), groups


def timed(model: FairOutlierEnsemble, n: int, width: int) -> dict[str, float]:
    """Seconds of a fit on 20,000 rows, and of scoring and adding n more."""
    X, groups = draw(20_000, width, 0)
    began = time.perf_counter()
    model.fit(X, sensitive_features=groups)
    fitted = time.perf_counter()
    X, groups = draw(n, width, 1)
    start = time.perf_counter()
    model.outlier_scores(X)
    scored, busy = time.perf_counter(), time.process_time()
    model.update(X, sensitive_features=groups)
    done = time.perf_counter()
    seconds = {"fit": fitted - began, "score": scored - start, "update": done - scored}
    seconds["update_cpu"] = time.process_time() - busy
    return {"rows": n, **{name: round(value, 2) for name, value in seconds.items()}}


def main() -> None:
    """Print both parts, and the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--detector-rows", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    found = {
        "ready": timed(FairOutlierEnsemble("precomputed", random_state=0), given.rows, 25),
        "detectors": timed(FairOutlierEnsemble(random_state=0), given.detector_rows, 8),
    }
    for name, part in found.items():
        print(
            f"{name}: {part['rows']:,} rows scored in {part['score']} s, added and solved in {part['update']} s "
            f"({part['update_cpu']} s of one core)"
        )
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
