"""The whole default fit, against the same fit by another commit: time, and whether the scores are the same.

    python benchmarks/whole_fit.py --against HEAD~1 --json
    python benchmarks/whole_fit.py --against HEAD~1 --shapes 300000x10 --repeats 3 --without-search

The commit's sources are unpacked into a temporary folder. Each side runs in a process of its own, which has fitted once
before anything is timed, so compiled code is ready. The two take turns, fit by fit, and the fastest fit of each counts.
With ``--without-search`` the timed fits take over what the first one has found of nearest neighbours, as if a search
took no time: what is left is what a processor does around one that runs on a GPU.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent.parent
SHAPES = ("1000x10", "5000x10")


def serve(shape: str, n_jobs: int, detectors: str, without_search: bool) -> None:
    """Fit once; then fit for every line that comes in, and answer with the seconds; at the end, the scores."""
    from evenout import FairOutlierEnsemble

    warnings.simplefilter("ignore")
    n, d = map(int, shape.split("x"))
    rng = np.random.default_rng(0)
    X, groups = rng.standard_t(4, size=(n, d)), rng.integers(0, 3, size=n)
    X[groups == 0] *= 1.3
    model = FairOutlierEnsemble(detectors, random_state=0, n_jobs=n_jobs)
    if without_search:
        remember_searches()
    model.fit(X, sensitive_features=groups)
    for _ in iter(sys.stdin.readline, "end\n"):
        start, busy = time.perf_counter(), time.process_time()
        model.fit(X, sensitive_features=groups)
        print(time.perf_counter() - start, time.process_time() - busy, flush=True)
    found = {"alpha": model.alpha_, "scores": model.outlier_scores_.tolist()}
    print(json.dumps(found), flush=True)


def remember_searches() -> None:
    """Let a search among all points of a table that was searched before return what it has found then."""
    from evenout.detectors import neighbours

    search: Any = neighbours.nearest  # type: ignore[attr-defined]
    known: dict[Any, Any] = {}

    def nearest(data: Any, k: int, **settings: Any) -> Any:
        if settings.get("queries") is not None:
            return search(data, k, **settings)
        key = (k, data.exact.points.shape, float(data.exact.points[0, 0, 0]))
        if key not in known:
            known[key] = search(data, k, **settings)
        return known[key]

    setattr(neighbours, "nearest", nearest)  # noqa: B010 (it is imported there, not its own)


class Side:
    """The sources in a folder, at work in a process."""

    def __init__(self, sources: Path, shape: str, options: argparse.Namespace):
        command = [sys.executable, __file__, "--serve", shape, "--n-jobs", str(options.n_jobs)]
        command += ["--detectors", options.detectors, *["--without-search"][: options.without_search]]
        environment = {**os.environ, "PYTHONPATH": str(sources / "src")}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, cwd=sources, **pipes)
        self.seconds: list[float] = []
        self.busy: list[float] = []

    def ask(self, line: str) -> str:
        """One line to the process, and its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def fit(self) -> None:
        """Let it fit, and note the time."""
        seconds, busy = map(float, self.ask("fit").split())
        self.seconds.append(seconds)
        self.busy.append(busy)

    def finish(self) -> dict[str, Any]:
        """The last result."""
        found: dict[str, Any] = json.loads(self.ask("end"))
        self.process.wait()
        return found


def unpack(commit: str, folder: Path) -> None:
    """The sources of a commit."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=HERE, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
        sources.extractall(folder, filter="data")


def run(shape: str, before: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Time both."""
    sides = [Side(sources, shape, options) for sources in (before, HERE)]
    for _ in range(options.repeats):
        for side in sides:
            side.fit()
    old, new = (side.finish() for side in sides)
    before_s, now_s = (min(side.seconds) for side in sides)
    before_cpu_s, now_cpu_s = (min(side.busy) for side in sides)
    return {
        "shape": shape,
        "before_s": before_s,
        "now_s": now_s,
        "ratio": now_s / before_s,
        "before_cpu_s": before_cpu_s,
        "now_cpu_s": now_cpu_s,
        "cpu_ratio": now_cpu_s / before_cpu_s,
        "same_alpha": old["alpha"] == new["alpha"],
        "max_diff": float(np.abs(np.subtract(old["scores"], new["scores"])).max()),
    }


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", default="HEAD~1", metavar="COMMIT", help="what to compare with")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxD", help="rows and features")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--detectors", default="default", help="the pool")
    parser.add_argument("--without-search", action="store_true", help="find nearest neighbours in the first fit alone")
    parser.add_argument("--repeats", type=int, default=15, help="fits of each; the fastest counts")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--serve", metavar="NxD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.n_jobs, options.detectors, options.without_search)
        return
    with tempfile.TemporaryDirectory() as folder:
        unpack(options.against, Path(folder))
        results = [run(shape, Path(folder), options) for shape in options.shapes]
    for told in results:
        print(
            f"{told['shape']:>9}  {options.against} {told['before_s']:7.3f} s  now {told['now_s']:7.3f} s  "
            f"{told['ratio']:5.2f} of the time ({told['cpu_ratio']:.2f} of the processor time)  "
            f"largest difference of scores {told['max_diff']:.1e}"
        )
    if options.json:
        print(
            json.dumps(
                {
                    "against": options.against,
                    "n_jobs": options.n_jobs,
                    "detectors": options.detectors,
                    "results": results,
                }
            )
        )


if __name__ == "__main__":
    main()
