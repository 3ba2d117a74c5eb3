"""The first call in a fresh process: with nothing compiled before, and with all of it on disk; kernel by kernel.

    python benchmarks/first_call.py --against HEAD~1 --json

A process imports the package, fits the default ensemble on 1000 x 10 rows and scores 500 others. The first one finds an
empty folder for compiled code, the second what the first has left. With ``--against``, the same of another commit, in
turn. Of all runs the fastest of each figure counts. Seconds of a kernel are processor time, and its own, without those
that it calls.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from whole_fit import HERE, unpack

FIGURES = ("import_s", "empty_s", "empty_cpu_s", "full_s", "compile_cpu_s")


def first_call() -> None:
    """Run in one fresh process, and print its seconds."""
    start = time.perf_counter()
    import evenout

    light = "numba" not in sys.modules
    imported = time.perf_counter()
    import numpy as np

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X, groups = rng.standard_t(4, size=(1000, 10)), rng.integers(0, 3, size=1000)
    begin, busy = time.perf_counter(), time.process_time()
    own = listen()  # imports numba, which the call would do
    model = evenout.FairOutlierEnsemble(random_state=0).fit(X, sensitive_features=groups)
    model.decision_function(X[:500] + 0.1)
    call = {"call_s": time.perf_counter() - begin, "cpu_s": time.process_time() - busy}
    print(json.dumps({"import_s": imported - start, "light": light, **call, "kernels": own}))


def listen() -> dict[str, float]:
    """Own seconds of everything that is compiled from here on, by name; of numba's own functions, as one."""
    from numba.core import event

    own: dict[str, float] = {}

    class Clock(event.Listener):
        open: list[list[float]] = []  # noqa: RUF012

        def on_start(self, event: Any) -> None:  # noqa: ARG002
            self.open.append([time.process_time(), 0.0])

        def on_end(self, event: Any) -> None:
            begin, inside = self.open.pop()
            taken = time.process_time() - begin
            if self.open:
                self.open[-1][1] += taken
            function = event.data["dispatcher"].py_func
            ours = function.__module__.startswith("evenout.")
            name = f"{function.__module__.rsplit('.')[-1]}.{function.__name__}" if ours else "numba's own"
            own[name] = own.get(name, 0.0) + taken - inside

    event.register("numba:compile", Clock())
    return own


def ask(sources: Path, cache: str) -> dict[str, Any]:
    """`first_call` by the sources in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(sources / "src"), "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, __file__, "--serve"]
    done = subprocess.run(command, env=environment, cwd=sources, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def measure(sources: Path) -> dict[str, Any]:
    """One first call with an empty folder, and one with the folder that it has left."""
    with tempfile.TemporaryDirectory() as cache:
        empty, full = ask(sources, cache), ask(sources, cache)
    return {
        "import_s": min(empty["import_s"], full["import_s"]),
        "empty_s": empty["call_s"],
        "empty_cpu_s": empty["cpu_s"],
        "full_s": full["call_s"],
        "compile_cpu_s": sum(empty["kernels"].values()),
        "kernels": empty["kernels"],
        "numba_at_import": not (empty["light"] and full["light"]),
    }


def least(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest of each figure."""
    kernels = {name: min(run["kernels"][name] for run in runs) for name in runs[0]["kernels"]}
    figures = {name: min(run[name] for run in runs) for name in FIGURES}
    return {**figures, "kernels": kernels, "numba_at_import": any(run["numba_at_import"] for run in runs)}


def tell(name: str, told: dict[str, Any]) -> None:
    """Print what was measured."""
    print(
        f"{name:>10}  import {told['import_s']:.2f} s   fit and score: nothing compiled {told['empty_s']:.2f} s, "
        f"all of it {told['full_s']:.2f} s   "
        f"compiling {len(told['kernels'])} functions {told['compile_cpu_s']:.2f} s of processor time   "
        f"numba {'LOADED' if told['numba_at_import'] else 'not loaded'} by the import"
    )


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", metavar="COMMIT", help="compare with this one")
    parser.add_argument("--repeats", type=int, default=3, help="runs; the fastest counts")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        first_call()
        return
    with tempfile.TemporaryDirectory() as folder:
        sides = {"now": HERE}
        if options.against:
            unpack(options.against, Path(folder))
            sides = {options.against: Path(folder), **sides}
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        for _ in range(options.repeats):
            for name, sources in sides.items():
                runs[name].append(measure(sources))
    results = {name: least(found) for name, found in runs.items()}
    for name, told in results.items():
        tell(name, told)
    if options.against:
        old, new = results[options.against], results["now"]
        ratio, cpu = (new[name] / old[name] for name in ("empty_s", "empty_cpu_s"))
        print(f"{ratio:.2f} of the time with nothing compiled ({cpu:.2f} of the processor time)")
    for name, seconds in sorted(results["now"]["kernels"].items(), key=lambda entry: -entry[1]):
        print(f"{seconds:10.3f} s  {name}")
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
