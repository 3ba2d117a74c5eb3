"""Fit over a folder of Parquet files: rows per second and peak memory, for growing numbers of rows.

By Dask workers, or with ``--workers 0`` by threads of one process, and with ``--device cuda`` on a GPU. Each size runs
in a process of its own. Prints the seconds of every pass, what the score pass does in them, the size of what passes
hand to the driver, the ratio of the peak memory at the last and at the first size, and what 10^8 rows would take. That
is reckoned from the last size: what passes take grows with the rows; the rest, the fit on the reference, does not.
"""

import argparse
import json
import operator
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from evenout import FairOutlierEnsemble
from evenout.detectors.pool import FittedPool
from evenout.fitting.passes import Scorer
from evenout.out_of_core.dask_engine import DaskEngine
from evenout.out_of_core.engines import Engine, Partition, Staged
from evenout.out_of_core.parquet import parquet_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

D = 10
FILE_ROWS = 500_000
ROW_GROUP = 125_000
WARM_UP = 20_000  # rows of a first, small fit in one process: compiled code and the GPU are ready before the clock runs
FAR = 100_000_000  # rows that are reckoned

T = TypeVar("T")


def generate(folder: Path, n: int, labels: float) -> int:
    """Write n rows of ten features, a group column and labels of a share of the rows; the bytes written."""
    lengths = [min(FILE_ROWS, n - start) for start in range(0, n, FILE_ROWS)]
    with ThreadPoolExecutor() as pool:
        return sum(pool.map(partial(write_file, folder, labels), range(len(lengths)), lengths))


def write_file(folder: Path, labels: float, number: int, n: int) -> int:
    """Write one file; its bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(number)
    groups = rng.choice(3, size=n, p=[0.7, 0.25, 0.05])
    X = rng.normal(size=(n, D)) * (1 + 0.3 * groups)[:, None]
    columns: dict[str, Any] = {f"x{j}": X[:, j] for j in range(D)}
    columns["group"] = np.array(["a", "b", "c"])[groups]
    if labels:
        outlier = (X[:, 0] > 2.0).astype(float)
        columns["known"] = pa.array(outlier, mask=rng.random(len(outlier)) >= labels)
    place = folder / f"part-{number:04d}.parquet"
    pq.write_table(pa.table(columns), place, row_group_size=ROW_GROUP)
    return place.stat().st_size


class Timed:
    """An engine with the seconds of each pass, the size of its merged result, and of what is shared."""

    passes: dict[str, dict[str, float]] = {}  # noqa: RUF012 (one engine in this process)
    sent_mb: list[float] = []  # noqa: RUF012

    def share(self, value: T) -> T:
        """Take the size of a value that every worker gets."""
        self.sent_mb.append(_mb(value))
        return super().share(value)  # type: ignore[misc]

    def reduce(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """Run one pass and take its time."""
        start = time.perf_counter()
        result = super().reduce(work, merge, *shared)  # type: ignore[misc]
        seconds = time.perf_counter() - start
        step = next(filter(callable, shared), work)  # passes over scored rows say what is done with these
        step = step.args[0] if isinstance(step, partial) else step.work if isinstance(step, Staged) else step
        name = step.__name__.strip("_").removesuffix("_part")
        name = f"{name} again" if name in self.passes else name
        self.passes[name] = {"seconds": seconds, "result_mb": _mb(result)}
        return result


class TimedDask(Timed, DaskEngine):
    """Dask workers."""


class TimedLocal(Timed, Engine):
    """Threads of this process, which are sent nothing."""

    def share(self, value: T) -> T:
        """The value itself."""
        return value


class Stages:
    """Seconds of each stage of the score pass, added up over threads: stages of different partitions overlap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._adding = Lock()

    def timed(self, name: str, work: Callable[..., T]) -> Callable[..., T]:
        """Wrap a function so that its seconds are added to a stage."""

        def run(*args: Any, **settings: Any) -> T:
            start = time.perf_counter()
            result = work(*args, **settings)
            with self._adding:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return result

        return run

    @contextmanager
    def watched(self) -> "Iterator[None]":
        """Take the time of what a scorer does."""
        read, score, keep, pool = Scorer.read, Scorer.score, Scorer.keep, FittedPool.score
        reading = lambda scorer, part: read(scorer, replace(part, load=self.timed("read", part.load)))  # noqa: E731
        watched: dict[str, Any] = {"read": self.timed("read and clean", reading), "keep": self.timed("keep", keep)}
        watched["score"] = self.timed("score and stack", score)
        try:
            for name, function in watched.items():
                setattr(Scorer, name, function)
            FittedPool.score = self.timed("score", pool)  # type: ignore[method-assign]
            yield
        finally:
            Scorer.read, Scorer.score, Scorer.keep, FittedPool.score = read, score, keep, pool  # type: ignore[method-assign]

    def apart(self) -> dict[str, float]:
        """The stages without what is counted in another."""
        found = dict(self.seconds)
        found["clean"] = found.pop("read and clean") - found["read"]
        found["stack"] = found.pop("score and stack") - found["score"]
        return {name: found[name] for name in ("read", "clean", "score", "stack", "keep")}


def _mb(value: Any) -> float:
    return len(pickle.dumps(value)) / 2**20


def peak_mb() -> float:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def device_peak_mb(device: str) -> float:
    """Peak of the GPU's memory in tensors of this process."""
    if device == "cpu":
        return 0.0
    import torch

    return torch.cuda.max_memory_allocated() / 2**20


def empty_pass_ms(n_parts: int = 1000) -> float:
    """Milliseconds per partition of a pass that does nothing: what the scheduler takes."""
    parts = [Partition(index, "", lambda: (None, None)) for index in range(n_parts)]
    start = time.perf_counter()
    DaskEngine(parts, None).reduce(lambda _: 1, operator.add)
    return 1000 * (time.perf_counter() - start) / n_parts


def fit(options: argparse.Namespace, engine: Timed, n_jobs: int) -> tuple[FairOutlierEnsemble, float]:
    """A model of all rows, and the seconds of its fit."""
    Timed.passes.clear()
    Timed.sent_mb.clear()
    asked: dict[str, Any] = {"n_jobs": n_jobs, "reference_size": options.reference_size, "device": options.device}
    start = time.perf_counter()
    model = FairOutlierEnsemble(options.detectors, random_state=0, learn=options.labels > 0, **asked)
    model.fit_partitions(engine)  # type: ignore[arg-type]
    return model, time.perf_counter() - start


def by_workers(options: argparse.Namespace, folder: str) -> tuple[FairOutlierEnsemble, dict[str, Any]]:
    """Fit by Dask workers of one thread each."""
    from distributed import Client, LocalCluster

    settings = {"n_workers": options.workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        model, seconds = fit(options, TimedDask(*opened(options, folder)), options.workers)
        found = {"seconds": seconds, "worker_peak_mb": max(client.run(peak_mb).values())}
        return model, found | {"empty_pass_ms_per_partition": empty_pass_ms()}


def by_threads(options: argparse.Namespace, folder: str) -> tuple[FairOutlierEnsemble, dict[str, Any]]:
    """Fit in this process, after a small fit."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as small:
        generate(Path(small), WARM_UP, options.labels)
        few = argparse.Namespace(**(vars(options) | {"reference_size": WARM_UP // 4}))
        fit(few, TimedLocal(*opened(options, small), options.threads), options.threads)
    warm_up, stages = time.perf_counter() - start, Stages()
    with stages.watched():
        model, seconds = fit(options, TimedLocal(*opened(options, folder), options.threads), options.threads)
    found = {"seconds": seconds, "warm_up_seconds": warm_up, "score_stages": stages.apart()}
    return model, found | {"device_peak_mb": device_peak_mb(options.device)}


def opened(options: argparse.Namespace, folder: str) -> tuple[list[Partition], Any]:
    """The partitions of a folder, and their header."""
    return parquet_parts(folder, sensitive=["group"], label="known" if options.labels else None)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Generate rows, fit over the folder, and report."""
    n = int(options.rows[0])
    with tempfile.TemporaryDirectory() as folder:
        size = generate(Path(folder), n, options.labels)
        model, found = (by_workers if options.workers else by_threads)(options, folder)
    passes = sum(cost["seconds"] for cost in Timed.passes.values())
    settings = {name: getattr(options, name) for name in ("detectors", "device", "workers", "threads")}
    return (
        settings
        | found
        | {
            "rows": n,
            "reference": len(model.target_),
            "columns": len(model.detector_names_),
            "parquet_mb": size / 2**20,
            "kept_mb": 8 * (len(model.detector_names_) + 2 + 4 * (options.labels > 0)) * n / 2**20,
            "rows_per_second": n / found["seconds"],
            "driver_peak_mb": peak_mb(),
            "rank_error": model.rank_error_,
            "sent_to_each_worker_mb": sum(Timed.sent_mb),
            "passes": Timed.passes,
            "passes_seconds": passes,
            "fixed_seconds": found["seconds"] - passes,
            "reckoned_rows": FAR,
            "reckoned_seconds": found["seconds"] - passes + passes * FAR / n,
        }
    )


def show(found: dict[str, Any]) -> None:
    """One line per size, and one for each of its passes."""
    who = f"{found['workers']} workers" if found["workers"] else f"{found['threads']} threads, {found['device']}"
    print(
        f"rows {found['rows']:>11,}  {who}  {found['columns']} detectors ({found['detectors']})  "
        f"reference {found['reference']:>7,}  {found['seconds']:8.1f} s  {found['rows_per_second']:9,.0f} rows/s  "
        f"rank error {found['rank_error']:.1e}"
    )
    memory = f"worker {found['worker_peak_mb']:.0f} MB, driver" if found["workers"] else "process"
    print(
        f"   peak memory: {memory} {found['driver_peak_mb']:.0f} MB, GPU {found.get('device_peak_mb', 0.0):.0f} MB;  "
        f"shared {found['sent_to_each_worker_mb']:.1f} MB;  disk: rows {found['parquet_mb']:.0f} MB, kept scores "
        f"{found['kept_mb']:.0f} MB"
    )
    if found["workers"]:
        print(f"   a pass that does nothing: {found['empty_pass_ms_per_partition']:.1f} ms per partition")
    for name, cost in found["passes"].items():
        rate = found["rows"] / cost["seconds"]
        print(
            f"   {name:12s} {cost['seconds']:8.1f} s  {rate:12,.0f} rows/s  merged result {cost['result_mb']:8.4f} MB"
        )
    if not found["workers"]:
        stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found["score_stages"].items())
        print(f"   stages of the score pass, added up over threads: {stages}")
    print(f"   passes {found['passes_seconds']:.1f} s, all else {found['fixed_seconds']:.1f} s", flush=True)


def reckoned(found: dict[str, Any]) -> str:
    """Extrapolate to many more rows, and show how."""
    fixed, passes, n = found["fixed_seconds"], found["passes_seconds"], found["rows"]
    disk = (found["parquet_mb"] + found["kept_mb"]) * FAR / n / 1024
    return (
        f"reckoned for {FAR:,} rows: all else + passes x rows / measured rows = {fixed:.1f} s + {passes:.1f} s x "
        f"{FAR:,} / {n:,} = {found['reckoned_seconds']:,.0f} s; disk {disk:.0f} GB"
    )


def main() -> None:
    """Measure each size in its own process and compare the peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6])
    parser.add_argument("--reference-size", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2, help="Dask workers; 0: this process, no Dask")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of this process, with --workers 0")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--detectors", choices=["paper", "default"], default="default")
    parser.add_argument("--labels", type=float, default=0.0, help="share of the rows with a label to learn from")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options)))
        return
    table = []
    for n in options.rows:
        command = [sys.executable, __file__, "--one", "--rows", str(n)]
        for name in ("reference_size", "workers", "threads", "device", "detectors", "labels"):
            command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        table.append(json.loads(output.splitlines()[-1]))
        if not options.json:
            show(table[-1])
    peak = "worker_peak_mb" if options.workers else "driver_peak_mb"
    ratio = table[-1][peak] / table[0][peak]
    if options.json:
        print(json.dumps({"sizes": table, "peak_ratio": ratio}))
        return
    if len(table) > 1:
        of = "a worker" if options.workers else "the process"
        print(f"peak memory of {of} at the last size / at the first: {ratio:.2f}")
    print(reckoned(table[-1]))


if __name__ == "__main__":
    main()
