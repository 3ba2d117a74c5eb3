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
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from threadpoolctl import threadpool_limits

from evenout import __version__
from evenout.datasets import load_dataset
from evenout.exceptions import InputError, from_extra
from evenout.pages import template, versions
from evenout.reproduce import experiment, figures
from evenout.reproduce.claims import LEAST_COMMON, NOTABLE, PAPER_AUC, Claim, breast_cancer_aucs, judge, read_settings
from evenout.reproduce.experiment import BASES, FAIRNESS, TITLES
from evenout.storage.output import atomic_folder


def render(
    points: pd.DataFrame, claims: Sequence[Claim], ties: pd.DataFrame | None, unseen: pd.DataFrame, folder: Path, *,
    seed: int,
) -> str:  # fmt: skip
    """Render the page as HTML; ``folder`` holds the SVG files to put into it."""
    settings, (held_out, typical) = read_settings(points), experiment.summarise(unseen)
    names = list(dict.fromkeys(points["dataset"]))
    targets = points[(points["kind"] == "target") & (points["fairness"] == "group")]
    medians = targets.groupby(["dataset", "base"], sort=False)["auc"].median()  # over the repeats
    by_fairness = {fairness: [s for s in settings if s.fairness == fairness] for fairness in FAIRNESS}
    measures = {"half": "auc_change_halfway", "end": "auc_change", "left": "scale_free_left"}
    found = {  # the numbers that the prose speaks of, over the settings of each notion of fairness, and over all
        **{
            key: {name: _spread([getattr(s, measure) for s in part]) for name, part in by_fairness.items()}
            for key, measure in measures.items()
        },
        "alpha_ratio": _spread([s.alpha_ratio for s in settings]),
        "negative_first": _spread([s.negative_weights[0] for s in settings]),
        "negative_last": _spread([s.negative_weights[1] for s in settings]),
        "negative_cof": sum(s.median_cof["weighted"] < 0 for s in settings),
        "good": sum(s.good_target for s in settings),
        "tested": len(settings),
        "incomparable": sum(not np.isfinite(s.gain) for s in settings),
    }
    page = template(
        "evenout.reproduce", "index.html.j2", number=_number, percent=lambda share, digits=0: f"{share:.{digits}%}",
        signed=lambda value, digits=3: ("" if value < 0 else "+") + _number(value, digits),
        significant=lambda value: _number(value, "#.3g").rstrip("."),
    )  # fmt: skip
    return page.render(
        version=__version__,
        seed=seed,
        n_repeats=points["repeat"].nunique(),
        n_points=len(points),
        datasets=[_dataset(name) for name in names],
        all_datasets=len(names) == len(TITLES),
        claims=claims,
        verdict={claim.id: claim for claim in claims},
        settings=[(TITLES[s.dataset], s) for s in settings],
        found=found,
        base_aucs=[
            {"title": TITLES[name], "auc": {base: float(medians[name, base]) for base in (*BASES, "average")}}
            for name in dict.fromkeys(targets["dataset"])
        ],
        breast_cancer=breast_cancer_aucs(points),
        paper_auc=PAPER_AUC,
        ties=None
        if ties is None
        else [
            {"search": search, "auc": {base: _spread(part["auc"]) for base, part in rows.groupby("base", sort=False)}}
            for search, rows in ties.groupby("search", sort=False)
        ],
        unseen=held_out,
        unseen_typical=typical,
        asked=experiment.ASKED,
        figures={drawing.name: _inline(drawing.name, drawing.alt, folder) for drawing in figures.plan(settings)},
        columns=experiment.COLUMNS,
        design={
            "curve": experiment.CURVE_ALPHAS, "random": experiment.RANDOM_ALPHAS, "first": experiment.FIRST_FALL,
            "last": experiment.LAST_FALL,
        },
        mean_beta=math.e - 1,  # the limit of the mean of exp(rank / n)
        least_common=LEAST_COMMON,
        notable=NOTABLE,
        duplicates=float(load_dataset("breastw").X.duplicated().mean()),
    )  # fmt: skip


def _spread(values: Sequence[float] | pd.Series) -> dict[str, float]:
    return {"median": float(np.median(values)), "least": float(np.min(values)), "most": float(np.max(values))}


def _dataset(name: str) -> dict[str, Any]:
    data = load_dataset(name)
    about = dict(line.split(": ", 1) for line in data.description.splitlines())
    return {
        "name": name,
        "title": TITLES[name],
        "rows": len(data.X),
        "features": data.X.shape[1],
        "outliers": int(data.y.sum()),
        "groups": data.sensitive.nunique(),
        "attribute": "sampled" if about["Groups"].startswith("sampled") else "its own",
        "source": about["Source"],
    }


def _inline(name: str, alt: str, folder: Path) -> Markup:
    """Read an SVG file for the page: its ink follows the page's colours, and its ids are unique on the page."""
    svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>| xmlns(:\w+)?=\"[^\"]*\"", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"(?:href=\"|url\()#([^\")]+)", svg))
    svg = re.sub(r" id=\"([^\"]*)\"", lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"(href=\"|url\()#", rf"\1#{name}-", svg)
    svg = svg.replace(figures.INK, "currentColor").replace(figures.FAINT, "var(--line)")
    for base, colour in figures.COLOURS.items():
        svg = svg.replace(colour, f"var(--{base})")
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1))


def _number(value: float, digits: int | str = 3) -> str:
    """Format a number with a true minus; ``digits`` behind the point or a format; a dash where it is not finite."""
    shown = f"{value:.{digits}f}" if isinstance(digits, int) else f"{value:{digits}}"
    return shown.replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "\N{EN DASH}"


QUICK_DATASETS = ("german", "breastw", "pima")
QUICK_REPEATS = 2

Progress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Results:
    """Paths of ``index.html`` and ``points.csv``, the judged claims, and the seconds of each step."""

    page: Path
    points: Path
    claims: list[Claim]
    seconds: dict[str, float]


def reproduce(
    out: Path, *, datasets: Sequence[str] | None = None, repeats: int = 5, seed: int = 0, quick: bool = False,
    n_threads: int = 1, progress: Progress = lambda *_: None,
) -> Results:  # fmt: skip
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
    asked = datasets if datasets is not None else QUICK_DATASETS if quick else tuple(TITLES)
    unknown = ", ".join(repr(name) for name in asked if name not in TITLES)
    if unknown or not asked:
        raise InputError(
            "{@datasets} has {found}; the paper's data sets are {known}", found=unknown or "nothing",
            known=", ".join(TITLES),
        )  # fmt: skip
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; at least 1 is needed")
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or larger")
    from_extra("matplotlib", "pages", "reproduce")  # a missing extra is reported before the work, not after it
    names = [name for name in TITLES if name in asked]
    n_repeats = min(repeats, QUICK_REPEATS) if quick else repeats
    n_steps, done, seconds = len(names) * n_repeats + figures.count(names) + 3, 0, dict[str, float]()

    @contextmanager
    def step(label: str, clock: str) -> Iterator[None]:
        nonlocal done
        progress(label, done, n_steps)
        start = time.perf_counter()
        yield
        seconds[clock] = seconds.get(clock, 0.0) + time.perf_counter() - start
        done += 1
        progress(label, done, n_steps)

    # One BLAS thread: sums of products then do not depend on how many cores the machine has.
    with atomic_folder(out) as folder, threadpool_limits(1):
        frames, ties = [], None
        for name, repeat in product(names, range(n_repeats)):
            with step(f"{TITLES[name]}, repeat {repeat + 1} of {n_repeats}", name):
                frames.append(experiment.run_repeat(name, seed, repeat, n_threads=n_threads))
        points = _written(folder / "points.csv", pd.concat(frames))  # all else is computed from the written table
        with step("Breast Cancer's ties", "ties"):
            if "breastw" in names:
                ties = experiment.compare_searches(seed, n_repeats)
                _written(folder / "ties.csv", ties)
        with step("rows that the weights have not seen", "unseen"):
            unseen = experiment.compare_rows(names, seed, n_repeats, n_threads=n_threads)
            _written(folder / "unseen.csv", unseen)
        claims = judge(points)
        (folder / "figures").mkdir()
        for drawing in figures.plan(read_settings(points)):
            with step(f"figure {drawing.name}", "figures"):
                drawing.save(folder / "figures")
        with step("the page", "page"):
            (folder / "index.html").write_text(
                render(points, claims, ties, unseen, folder / "figures", seed=seed), encoding="utf-8"
            )
        run = {  # how to run this again, how long it took, and the verdicts for machines
            "versions": {"evenout": __version__}
            | versions("python", "numpy", "scipy", "scikit-learn", "numba", "pandas", "matplotlib"),
            "platform": f"{platform.system()} {platform.machine()}",
            "settings": {
                "datasets": names, "repeats": n_repeats, "seed": seed, "quick": quick, "n_threads": n_threads
            },
            "seeds": {
                name: [asdict(experiment.derive_seeds(seed, name, repeat)) for repeat in range(n_repeats)]
                for name in names
            },
            "seconds": {clock: round(taken, 2) for clock, taken in seconds.items()},
            "claims": [asdict(claim) | {"verdict": claim.verdict} for claim in claims],
            "files": sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()),
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
    return Results(out / "index.html", out / "points.csv", claims, seconds)


def _written(file: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Write a table and read it back: ten digits, more than a figure shows and fewer than rounding can touch."""
    table.to_csv(file, index=False, float_format="%.10g", lineterminator="\n")
    return pd.read_csv(file)
