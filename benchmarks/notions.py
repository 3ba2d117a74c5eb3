"""Each notion of fairness asked for 80 %: what a fit says, and what fresh rows get.

A simulated population (`people`) has a number, three attributes, a product that justifies a difference, and outcomes. A
model is fitted on some of its people and judged on others. `credit` is cut into halves at random: one is fitted on, the
other judged. Nothing of a judged row is known to the model.
"""

import argparse
import json
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from evenout import FairOutlierEnsemble, GroupProbabilities, Groups
from evenout.core.cells import collect_cells, variances
from evenout.core.parity import DemographicParity
from evenout.core.registry import weighted_notions
from evenout.core.types import FloatArray
from evenout.datasets import load_dataset
from evenout.fitting.rows import compared_rows
from evenout.groups.model import count_rows, read_crossed, settle_grouping

ASKED, FIT_ROWS, JUDGED_ROWS = 0.8, 10_000, 40_000


@dataclass(frozen=True)
class Asked:
    """A notion: parameters of the estimator, protected columns, and whether strata and outcomes are given."""

    columns: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    labelled: bool = False
    probable: bool = False


@dataclass(frozen=True)
class Table:
    """Rows: features, protected and other columns, outcomes (NaN where they are not known)."""

    X: FloatArray
    columns: pd.DataFrame
    labels: FloatArray

    def at(self, rows: Any) -> "Table":
        """Some of the rows."""
        return Table(self.X[rows], self.columns.iloc[rows].reset_index(drop=True), self.labels[rows])

    def beside(self, asked: Asked) -> dict[str, Any]:
        """Arguments of `fit` beside the features."""
        sensitive: Any = self.columns[list(asked.columns)]
        if asked.probable:
            sensitive = GroupProbabilities(sensitive)
        return {
            "sensitive_features": sensitive,
            "given": self.columns[list(asked.given)] if asked.given else None,
            "labels": self.labels if asked.labelled else None,
        }


PEOPLE = {
    "groups": Asked(("sex",)),
    "number": Asked(("age",), {"groups": Groups(continuous=("age",))}),
    "number and group crossed": Asked(("age", "sex"), {"groups": Groups(continuous=("age",))}),
    "each attribute": Asked(("age", "sex", "region"), {"groups": Groups(continuous=("age",), cross=False)}),
    "each and crossed": Asked(("sex", "region"), {"groups": Groups(cross="both")}),
    "within strata": Asked(("sex",), given=("product",)),
    "equal opportunity": Asked(("sex",), {"fairness": "equal_opportunity"}, labelled=True),
    "equal false alarms": Asked(("sex",), {"fairness": "equal_false_alarms"}, labelled=True),
    "equalized odds": Asked(("sex",), {"fairness": "equalized_odds"}, labelled=True),
    "probable groups": Asked(("female", "male"), probable=True),
}
CREDIT = {
    "age": Asked(("age",), {"groups": Groups(continuous=("age",))}),
    "sex and education, each": Asked(("sex", "education"), {"groups": Groups(cross=False)}),
    "sex and education, crossed": Asked(("sex", "education")),
    "sex, education and marriage, each": Asked(("sex", "education", "marriage"), {"groups": Groups(cross=False)}),
    "education within limits": Asked(("education",), given=("limit",)),
    "age within limits": Asked(("age",), {"groups": Groups(continuous=("age",))}, given=("limit",)),
    "education, equal false alarms": Asked(("education",), {"fairness": "equal_false_alarms"}, labelled=True),
    "age, equal false alarms": Asked(
        ("age",), {"groups": Groups(continuous=("age",)), "fairness": "equal_false_alarms"}, labelled=True
    ),
}


def people(n: int, rng: np.random.Generator) -> Table:
    """Outliers differ in four features; four others vary more with age, for women and in one region, for no reason."""
    age, sex, region = rng.uniform(20, 70, n), rng.integers(0, 2, n), rng.integers(0, 3, n)
    product = (rng.random((n, 2)) < 0.3 + 0.3 * sex[:, None]).sum(axis=1)
    outlier = rng.random(n) < 0.15 + 0.1 * sex
    signal = rng.normal(size=(n, 4)) * np.where(outlier, 2.5, 1.0)[:, None] + 0.8 * product[:, None]
    spread = 1.0 + 0.8 * (age - 20) / 50 + 0.6 * sex + 0.4 * (region == 2)
    nuisance = rng.normal(size=(n, 4)) * spread[:, None]
    sure = np.clip(0.15 + 0.7 * sex + rng.normal(0, 0.1, n), 0.01, 0.99)
    columns = pd.DataFrame({
        "age": age, "sex": np.array(["m", "f"])[sex], "region": region, "product": product,
        "female": sure, "male": 1 - sure,
    })  # fmt: skip
    labels = np.where(rng.random(n) < 0.6, outlier, np.nan)
    return Table(np.column_stack([signal, nuisance]), columns, labels)


def credit() -> Table:
    """The bundled card clients with their age as a number, which the loader cuts into bands."""
    from importlib.resources import files

    data = load_dataset("credit", sensitive=["sex", "education", "marriage"])
    with (files("evenout.datasets") / "data" / "credit.csv.gz").open("rb") as file:
        age = pd.read_csv(file, compression="gzip", usecols=["AGE"])["AGE"]
    columns = data.sensitive.assign(age=age.to_numpy(), limit=data.X["LIMIT_BAL"].to_numpy())
    return Table(data.X.to_numpy(), columns, data.y.to_numpy().astype(float))


def judge(asked: Asked, fitted: Table, judged: Table, seed: int) -> dict[str, Any]:
    """Fit on one table, and say what the other gets."""
    model = FairOutlierEnsemble(bias_reduction=ASKED, random_state=seed, **asked.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(fitted.X, **fitted.beside(asked))
        before, after = biases(model, asked, judged, (model.base_scores(judged.X), model.outlier_scores(judged.X)))
    return {
        "gap_found": model.gap_detected_,
        "says_met": model.request_met_,
        "said": model.bias_reduction_,
        "low": model.bias_reduction_interval_[0],
        "high": model.bias_reduction_interval_[1],
        "base_bias": before,
        "got": 1.0 - after / before,
        "correlation": float(model.path_.correlation(model.alpha_)),
    }


def biases(
    model: FairOutlierEnsemble, asked: Asked, table: Table, scores: tuple[FloatArray, FloatArray]
) -> tuple[float, float]:
    """Corrected bias of two scores on rows that nothing has seen, by the groups of these rows."""
    rules = Groups.read(model.groups)
    ((notion, _),) = weighted_notions({model.fairness: 1.0})
    assert isinstance(notion, DemographicParity)
    beside, n = table.beside(asked), len(table.X)
    sensitive = beside.pop("sensitive_features")
    among = compared_rows([notion], labelled=asked.labelled)
    crossed = read_crossed(sensitive, rules, n, **beside)
    members = settle_grouping(crossed.coder, count_rows(crossed.coder, crossed.numbers), among, rules).members(
        crossed.numbers
    )
    one = np.zeros(n, dtype=np.intp)
    base, fair = scores
    cells = collect_cells(fair[:, None], base, np.ones(n), members, one, n_groups=members.n_groups, n_sets=1)
    form = (notion.form(cells) - notion.noise(cells))[0]
    V = np.eye(2)
    found = np.diag(form) / variances(cells, V[None])[0]
    return float(found[1]), float(found[0])


def summarise(fits: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over fits in which a gap was found."""
    found = [fit for fit in fits if fit["gap_found"]]
    mean = {name: float(np.mean([fit[name] for fit in found])) if found else None for name in _SHOWN}
    inside = float(np.mean([fit["low"] <= fit["got"] <= fit["high"] for fit in found])) if found else None
    pooled = (
        1.0 - sum(f["base_bias"] * (1 - f["got"]) for f in found) / sum(f["base_bias"] for f in found)
        if found
        else None
    )
    found_share = len(found) / len(fits)
    return {"fits": len(fits), "gap_found": found_share, **mean, "got_pooled": pooled, "in_interval": inside}


_SHOWN = ("base_bias", "said", "got", "correlation", "says_met")


def chosen(asked: dict[str, Asked], only: str | None) -> list[tuple[str, Asked]]:
    """All notions, or the one of this name."""
    return [(name, one) for name, one in asked.items() if only in (None, name)]


def main() -> None:
    """Print a line for each notion, or all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=8, help="simulated fits of each notion")
    parser.add_argument("--splits", type=int, default=10, help="halvings of credit")
    parser.add_argument("--only", help="the notion of this name alone")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, dict[str, Any]] = {"people": {}, "credit": {}}
    for name, asked in chosen(PEOPLE, arguments.only) if arguments.fits else ():
        fits = []
        for seed in range(arguments.fits):
            rng = np.random.default_rng((seed, 11))
            rows = 2 * FIT_ROWS if asked.labelled else FIT_ROWS  # known outliers are few
            fits.append(judge(asked, people(rows, rng), people(JUDGED_ROWS, rng), seed))
        results["people"][name] = _shown(name, summarise(fits), quiet=arguments.json)
    whole = credit()
    for name, asked in chosen(CREDIT, arguments.only) if arguments.splits else ():
        fits = []
        for seed in range(arguments.splits):
            order = np.random.default_rng(seed).permutation(len(whole.X))
            first, second = np.array_split(order, 2)
            fits.append(judge(asked, whole.at(first), whole.at(second), seed))
        results["credit"][name] = _shown(name, summarise(fits), quiet=arguments.json)
    if arguments.json:
        print(json.dumps(results, indent=2))


def _shown(name: str, found: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    if not quiet:
        numbers = "  ".join(f"{key} {value:.3f}" for key, value in found.items() if isinstance(value, float))
        print(f"{name:36s} {numbers}", flush=True)
    return found


if __name__ == "__main__":
    main()
