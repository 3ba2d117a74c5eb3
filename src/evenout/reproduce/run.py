"""From the data to a folder with points, figures and a page: the whole reproduction in one call."""

import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from evenout import __version__
from evenout.core.exceptions import InputError, from_extra
from evenout.reproduce import figures
from evenout.reproduce.claims import Claim, judge
from evenout.reproduce.experiment import TITLES, derive_seeds, run_repeat
from evenout.reproduce.page import render
from evenout.reproduce.settings import read_settings
from evenout.reproduce.ties import compare_searches
from evenout.reproduce.unseen import compare_rows
from evenout.storage.output import atomic_folder

if TYPE_CHECKING:
    import pandas as pd

QUICK_DATASETS = ("german", "breastw", "pima")
QUICK_REPEATS = 2

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Results:
    """What was written where, and what was found.

    Parameters
    ----------
    page, points : Path
        ``index.html`` and ``points.csv``.
    claims : list of Claim
    seconds : dict of float
        By step.
    """

    page: Path
    points: Path
    claims: list[Claim]
    seconds: dict[str, float]


@dataclass
class _Steps:
    """Tells the progress and keeps the time."""

    report: Progress
    total: int
    done: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, label: str, clock: str) -> Iterator[None]:
        self.report(label, self.done, self.total)
        start = time.perf_counter()
        yield
        self.seconds[clock] = self.seconds.get(clock, 0.0) + time.perf_counter() - start
        self.done += 1
        self.report(label, self.done, self.total)


def reproduce(
    out: Path,
    *,
    datasets: Sequence[str] | None = None,
    repeats: int = 5,
    seed: int = 0,
    quick: bool = False,
    n_threads: int = 1,
    progress: Progress = lambda *_: None,
) -> Results:
    """Rerun the paper's experiments and write points, figures, verdicts and a page into ``out``.

    Parameters
    ----------
    out : Path
        A folder; its files are replaced only if everything succeeds.
    datasets : sequence of str, optional
        Names of the paper's data sets; all eight if not given.
    repeats : int
    seed : int
        Decides everything random: two runs with one seed write the same points, whatever the number of threads.
    quick : bool
        At most `QUICK_REPEATS` repeats, and `QUICK_DATASETS` unless data sets are given.
    n_threads : int
    progress : callable
        Called with what is being done, the steps done, and their total.
    """
    names = _checked(datasets if datasets is not None else QUICK_DATASETS if quick else tuple(TITLES), repeats, seed)
    from_extra("matplotlib", "pages", "reproduce")  # told before the work, not after it
    n_repeats = min(repeats, QUICK_REPEATS) if quick else repeats
    steps = _Steps(progress, total=len(names) * n_repeats + figures.count(names) + 3)
    # One BLAS thread: sums of products then do not depend on how many cores the machine has.
    with atomic_folder(out) as folder, threadpool_limits(1):
        points = _write_points(folder, names, n_repeats, seed, n_threads, steps)
        with steps.step("Breast Cancer's ties", "ties"):
            ties = _write_ties(folder, seed, n_repeats) if "breastw" in names else None
        with steps.step("rows that the weights have not seen", "unseen"):
            unseen = _write_unseen(folder, names, seed, n_repeats, n_threads)
        claims = judge(points)
        _draw(folder, points, steps)
        with steps.step("the page", "page"):
            page = render(points, claims, ties, unseen, folder / "figures", seed=seed)
            (folder / "index.html").write_text(page, encoding="utf-8")
        run = {"datasets": names, "repeats": n_repeats, "seed": seed, "quick": quick, "n_threads": n_threads}
        _write_run(folder, run, claims, steps.seconds)
    return Results(out / "index.html", out / "points.csv", claims, steps.seconds)


def _checked(datasets: Sequence[str], repeats: int, seed: int) -> list[str]:
    """The data sets in the paper's order, each once."""
    unknown = [name for name in datasets if name not in TITLES]
    if unknown or not datasets:
        found = ", ".join(map(repr, unknown)) or "nothing"
        known = ", ".join(TITLES)
        raise InputError("{@datasets} has {found}; the paper's data sets are {known}", found=found, known=known)
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; at least 1 is needed")
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or larger")
    return [name for name in TITLES if name in datasets]


def _write_points(
    folder: Path, names: list[str], n_repeats: int, seed: int, n_threads: int, steps: _Steps
) -> "pd.DataFrame":
    """Run every repeat and write ``points.csv``; the table as it reads from there, which all else is computed from."""
    import pandas as pd

    frames = []
    for name in names:
        for repeat in range(n_repeats):
            with steps.step(f"{TITLES[name]}, repeat {repeat + 1} of {n_repeats}", name):
                frames.append(run_repeat(name, seed, repeat, n_threads=n_threads))
    file = folder / "points.csv"
    # Ten digits are more than a figure shows and fewer than rounding can touch.
    pd.concat(frames).to_csv(file, index=False, float_format="%.10g", lineterminator="\n")
    return pd.read_csv(file)


def _write_ties(folder: Path, seed: int, n_repeats: int) -> "pd.DataFrame":
    ties = compare_searches(seed, n_repeats)
    ties.to_csv(folder / "ties.csv", index=False, float_format="%.10g", lineterminator="\n")
    return ties


def _write_unseen(folder: Path, names: list[str], seed: int, n_repeats: int, n_threads: int) -> "pd.DataFrame":
    unseen = compare_rows(names, seed, n_repeats, n_threads=n_threads)
    unseen.to_csv(folder / "unseen.csv", index=False, float_format="%.10g", lineterminator="\n")
    return unseen


def _draw(folder: Path, points: "pd.DataFrame", steps: _Steps) -> None:
    (folder / "figures").mkdir()
    for drawing in figures.plan(read_settings(points)):
        with steps.step(f"figure {drawing.name}", "figures"):
            drawing.save(folder / "figures")


def _write_run(folder: Path, run: dict[str, Any], claims: list[Claim], seconds: dict[str, float]) -> None:
    """``run.json``: what it takes to run this again, how long it took, and the verdicts for machines."""
    packages = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "matplotlib")
    versions = {"evenout": __version__, "python": platform.python_version()}
    report = {
        "versions": versions | {package: version(package) for package in packages},
        "platform": f"{platform.system()} {platform.machine()}",
        "settings": run,
        "seeds": {
            name: [asdict(derive_seeds(run["seed"], name, repeat)) for repeat in range(run["repeats"])]
            for name in run["datasets"]
        },
        "seconds": {step: round(taken, 2) for step, taken in seconds.items()},
        "claims": [asdict(claim) | {"verdict": claim.verdict} for claim in claims],
        "files": sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()),
    }
    (folder / "run.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
