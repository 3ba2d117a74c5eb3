"""Run the reproduction, and write its page.

Collect first (plain numbers and strings), render later (``templates/index.html.j2``). Every result on the page comes
from the points; the template holds words alone.
"""

import json
import math
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from evenout import __version__
from evenout.datasets import load_dataset
from evenout.exceptions import InputError, from_extra
from evenout.pages import template
from evenout.reproduce import figures
from evenout.reproduce.claims import (
    LEAST_COMMON,
    NOTABLE,
    PAPER_AUC,
    Claim,
    Setting,
    breast_cancer_aucs,
    judge,
    read_settings,
)
from evenout.reproduce.experiment import (
    ASKED,
    BASES,
    COLUMNS,
    CURVE_ALPHAS,
    FAIRNESS,
    FIRST_FALL,
    LAST_FALL,
    RANDOM_ALPHAS,
    TITLES,
    compare_rows,
    compare_searches,
    derive_seeds,
    run_repeat,
    summarise,
    typical,
)
from evenout.reproduce.figures import COLOURS, FAINT, INK, plan
from evenout.storage.output import atomic_folder

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup


_MEAN_BETA = math.e - 1  # the limit of the mean of exp(rank / n)


def render(
    points: "pd.DataFrame",
    claims: Sequence[Claim],
    ties: "pd.DataFrame | None",
    unseen: "pd.DataFrame",
    folder: Path,
    *,
    seed: int,
) -> str:
    """The page as a string of HTML; ``folder`` holds the SVG files to put into it."""
    settings = read_settings(points)
    filters = {"signed": _signed, "number": _number, "percent": _percent, "significant": _significant}
    names = list(dict.fromkeys(points["dataset"]))
    return template("evenout.reproduce", "index.html.j2", **filters).render(
        version=__version__,
        seed=seed,
        n_repeats=points["repeat"].nunique(),
        n_points=len(points),
        datasets=[_dataset(name) for name in names],
        all_datasets=len(names) == len(TITLES),
        claims=claims,
        verdict={claim.id: claim for claim in claims},
        settings=[(TITLES[s.dataset], s) for s in settings],
        found=_found(settings),
        base_aucs=_base_aucs(points),
        breast_cancer=breast_cancer_aucs(points),
        paper_auc=PAPER_AUC,
        ties=None if ties is None else _ties(ties),
        unseen=(held := summarise(unseen, TITLES)),
        unseen_typical=typical(held),
        asked=ASKED,
        figures={drawing.name: _inline(drawing.name, drawing.alt, folder) for drawing in plan(settings)},
        columns=COLUMNS,
        design={"curve": CURVE_ALPHAS, "random": RANDOM_ALPHAS, "first": FIRST_FALL, "last": LAST_FALL},
        mean_beta=_MEAN_BETA,
        least_common=LEAST_COMMON,
        notable=NOTABLE,
        duplicates=float(load_dataset("breastw").X.duplicated().mean()),
    )


def _found(settings: Sequence[Setting]) -> dict[str, Any]:
    """The numbers that the prose speaks of, over the settings of each notion of fairness."""
    own = {fairness: [s for s in settings if s.fairness == fairness] for fairness in FAIRNESS}
    measures = {
        "half": lambda s: s.auc_change_halfway,
        "end": lambda s: s.auc_change,
        "left": lambda s: s.scale_free_left,
    }
    cofs = [s.median_cof()["weighted"] for s in settings]
    return {
        **{key: {name: _spread(map(measure, part)) for name, part in own.items()} for key, measure in measures.items()},
        "alpha_ratio": _spread(s.alpha_ratio for s in settings),
        "negative_first": _spread(s.negative_weights[0] for s in settings),
        "negative_last": _spread(s.negative_weights[1] for s in settings),
        "negative_cof": sum(cof < 0 for cof in cofs),
        "good": sum(s.good_target for s in settings),
        "tested": len(settings),
        "incomparable": sum(not np.isfinite(s.gain) for s in settings),
    }


def _spread(values: Any) -> dict[str, float]:
    numbers = np.array(list(values))
    return {"median": float(np.median(numbers)), "least": float(numbers.min()), "most": float(numbers.max())}


def _dataset(name: str) -> dict[str, Any]:
    data = load_dataset(name)
    groups = data.sensitive.nunique()
    about = dict(line.split(": ", 1) for line in data.description.splitlines())
    return {
        "name": name,
        "title": TITLES[name],
        "rows": len(data.X),
        "features": data.X.shape[1],
        "outliers": int(data.y.sum()),
        "groups": groups,
        "attribute": "sampled" if about["Groups"].startswith("sampled") else "its own",
        "source": about["Source"],
    }


def _base_aucs(points: "pd.DataFrame") -> list[dict[str, Any]]:
    """The AUC of each base ensemble's own score, medians over the repeats, one row per data set."""
    targets = points[(points["kind"] == "target") & (points["fairness"] == "group")]
    medians = targets.groupby(["dataset", "base"], sort=False)["auc"].median()
    return [
        {"title": TITLES[name], "auc": {base: float(medians[name, base]) for base in (*BASES, "average")}}
        for name in dict.fromkeys(targets["dataset"])
    ]


def _ties(ties: "pd.DataFrame") -> list[dict[str, Any]]:
    """The AUCs on Breast Cancer by neighbour search: median, least and most over the repeats."""
    return [
        {
            "search": search,
            "auc": {base: _spread(part["auc"]) for base, part in rows.groupby("base", sort=False)},
        }
        for search, rows in ties.groupby("search", sort=False)
    ]


def _inline(name: str, alt: str, folder: Path) -> "Markup":
    """An SVG file as part of the page: its ink follows the page's colours, and its ids are its own."""
    from markupsafe import Markup, escape

    svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>| xmlns(:\w+)?=\"[^\"]*\"", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"(?:href=\"|url\()#([^\")]+)", svg))
    svg = re.sub(r" id=\"([^\"]*)\"", lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"(href=\"|url\()#", rf"\1#{name}-", svg)
    svg = svg.replace(INK, "currentColor").replace(FAINT, "var(--line)")
    for base, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{base})")
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1))


def _signed(value: float, digits: int = 3) -> str:
    """A change, with its sign."""
    return _number(value, digits) if value < 0 else f"+{_number(value, digits)}"


def _percent(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


def _significant(value: float) -> str:
    """A number of any size, with three digits that count."""
    return f"{value:#.3g}".rstrip(".").replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "\N{EN DASH}"


def _number(value: float, digits: int = 3) -> str:
    """A number with a true minus; a dash where there is none."""
    if not math.isfinite(value):
        return "\N{EN DASH}"
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


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
