"""Fit over a folder of Parquet files by Dask workers: rows per second and peak memory, for growing numbers of rows.

Each size runs in a process of its own with a fresh local cluster. Prints the seconds of every pass and the size of what
it hands to the driver, and at the end the ratio of the workers' peak memory at the last and at the first size.
"""

import argparse
import json
import operator
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from evenout.partitions.dask_engine import DaskEngine
from evenout.partitions.engines import Part

D = 10
FILE_ROWS = 500_000
ROW_GROUP = 125_000

T = TypeVar("T")


def generate(folder: Path, n: int, labels: float) -> int:
    """Write n rows of ten features, a group column and labels of a share of the rows; the bytes written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, start in enumerate(range(0, n, FILE_ROWS)):
        rng = np.random.default_rng(number)
        groups = rng.choice(3, size=min(FILE_ROWS, n - start), p=[0.7, 0.25, 0.05])
        X = rng.normal(size=(len(groups), D)) * (1 + 0.3 * groups)[:, None]
        columns: dict[str, Any] = {f"x{j}": X[:, j] for j in range(D)}
        columns["group"] = np.array(["a", "b", "c"])[groups]
        if labels:
            outlier = (X[:, 0] > 2.0).astype(float)
            columns["known"] = pa.array(outlier, mask=rng.random(len(outlier)) >= labels)
        place = folder / f"part-{number:04d}.parquet"
        pq.write_table(pa.table(columns), place, row_group_size=ROW_GROUP)
    return sum(file.stat().st_size for file in folder.iterdir())


class TimedEngine(DaskEngine):
    """The engine, with the seconds of each pass, the size of its merged result, and of what workers are sent."""

    passes: dict[str, dict[str, float]] = {}  # noqa: RUF012 (one engine in this process)
    sent_mb: list[float] = []  # noqa: RUF012

    def share(self, value: T) -> T:
        """Take the size of a value that every worker gets."""
        self.sent_mb.append(_mb(value))
        return super().share(value)

    def reduce(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """Run one pass and take its time."""
        start = time.perf_counter()
        result = super().reduce(work, merge, *shared)
        seconds = time.perf_counter() - start
        name = (shared[0] if work.__name__ == "_walk_part" else work).__name__
        name = name.strip("_").removesuffix("_part")
        name = f"{name} again" if name in self.passes else name
        self.passes[name] = {"seconds": seconds, "result_mb": _mb(result)}
        return result


def _mb(value: Any) -> float:
    return len(pickle.dumps(value)) / 2**20


def peak_mb() -> float:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def empty_pass_ms(n_parts: int = 1000) -> float:
    """Milliseconds per partition of a pass that does nothing: what the scheduler takes."""
    parts = [Part(index, "", lambda: (None, None)) for index in range(n_parts)]
    start = time.perf_counter()
    DaskEngine(parts, None).reduce(lambda _: 1, operator.add)
    return 1000 * (time.perf_counter() - start) / n_parts


def measure(n: int, reference_size: int, n_workers: int, labels: float) -> dict[str, Any]:
    """Generate n rows, fit over the folder, and report."""
    from distributed import Client, LocalCluster

    from evenout import FairOutlierEnsemble
    from evenout.partitions.parquet import parquet_parts

    with tempfile.TemporaryDirectory() as folder:
        size = generate(Path(folder), n, labels)
        settings = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**settings) as cluster, Client(cluster) as client:
            start = time.perf_counter()
            engine = TimedEngine(*parquet_parts(folder, sensitive=["group"], label="known" if labels else None))
            asked: dict[str, Any] = {"n_jobs": n_workers, "reference_size": reference_size, "learn": labels > 0}
            model = FairOutlierEnsemble("paper", random_state=0, **asked)
            model.fit_partitions(engine)
            seconds = time.perf_counter() - start
            workers = client.run(peak_mb)
            overhead = empty_pass_ms()
    return {
        "rows": n,
        "reference": len(model.target_),
        "workers": n_workers,
        "parquet_mb": size / 2**20,
        "seconds": seconds,
        "rows_per_second": n / seconds,
        "worker_peak_mb": max(workers.values()),
        "driver_peak_mb": peak_mb(),
        "rank_error": model.rank_error_,
        "empty_pass_ms_per_partition": overhead,
        "sent_to_each_worker_mb": sum(TimedEngine.sent_mb),
        "passes": TimedEngine.passes,
    }


def show(found: dict[str, Any]) -> None:
    """One line per size, and one with its passes."""
    print(
        f"rows {found['rows']:>11,}  reference {found['reference']:>7,}  {found['seconds']:8.1f} s  "
        f"{found['rows_per_second']:9,.0f} rows/s  worker peak {found['worker_peak_mb']:6.0f} MB  "
        f"driver peak {found['driver_peak_mb']:6.0f} MB  rank error {found['rank_error']:.1e}  "
        f"sent to each worker {found['sent_to_each_worker_mb']:.1f} MB"
    )
    print(f"   a pass that does nothing: {found['empty_pass_ms_per_partition']:.1f} ms per partition")
    for name, cost in found["passes"].items():
        print(f"   {name:12s} {cost['seconds']:8.1f} s  merged result {cost['result_mb']:8.4f} MB", flush=True)


def main() -> None:
    """Measure each size in its own process and compare the peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6])
    parser.add_argument("--reference-size", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--labels", type=float, default=0.0, help="share of the rows with a label to learn from")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        asked = options.reference_size, options.workers, options.labels
        print(json.dumps(measure(int(options.rows[0]), *asked)))
        return
    table = []
    for n in options.rows:
        command = [sys.executable, __file__, "--one", "--rows", str(n)]
        command += ["--reference-size", str(options.reference_size), "--workers", str(options.workers)]
        command += ["--labels", str(options.labels)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        table.append(json.loads(output.splitlines()[-1]))
        if not options.json:
            show(table[-1])
    ratio = table[-1]["worker_peak_mb"] / table[0]["worker_peak_mb"]
    if options.json:
        print(json.dumps({"sizes": table, "worker_peak_ratio": ratio}))
    elif len(table) > 1:
        print(f"worker peak at the last size / at the first: {ratio:.2f}")


if __name__ == "__main__":
    main()
