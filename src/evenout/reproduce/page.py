"""One self-contained page: the figures, the tables and the verdicts, in the order of the paper's questions.

Collect first (plain numbers and strings), render later (``templates/index.html.j2``). Every result on the page comes
from the points; the template holds words alone.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout import __version__
from evenout.datasets import load_dataset
from evenout.pages import template
from evenout.reproduce.claims import NOTABLE, PAPER_AUC, Claim, breast_cancer_aucs
from evenout.reproduce.experiment import (
    BASES,
    COLUMNS,
    CURVE_ALPHAS,
    FAIRNESS,
    FIRST_FALL,
    LAST_FALL,
    RANDOM_ALPHAS,
    TITLES,
)
from evenout.reproduce.figures import COLOURS, FAINT, INK, plan
from evenout.reproduce.settings import LEAST_COMMON, Setting, read_settings
from evenout.reproduce.unseen import ASKED, summarise, typical

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
