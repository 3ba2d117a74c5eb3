"""Are reasons right? Beside Shapley values by enumeration, outliers made by known changes, tiny changes, and a clock.

    python benchmarks/reasons.py --json                      # everything, some five minutes on one core
    python benchmarks/reasons.py --part planted --quick      # one part, a look

shapley   tables of at most 10 features: reasons of flagged rows that the model has not seen, beside exact Shapley
          values of the model's own scores, from all 2^p mixtures of a row and the typical row; also by family
planted   one or two features of rows that were not flagged are changed, so that they are flagged. `far`: out of the
          range of the training rows, or nearly so; `swapped`: the value of another row, at least half of all rows away,
          so that every value is common and only the combination is not. Is a changed feature the first reason? Also
          with `baseline="typical"`, and on the same rows: plain ablation of the same score (what it loses if one
          feature is made typical), and PyOD's three ways: the tails of each feature in ECOD and COPOD, and the
          z-scores of its `ADEngine`
stable    rows moved by a thousandth of each feature's spread: the same first reason, and the same three? Values that 1%
          of the training rows share, such as 0, are left: beside them nothing is a tiny change
speed     reasons of new rows of credit in times of their scoring, in CPU time; growth with rows and with features
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from evenout import FairOutlierEnsemble
from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.datasets import load_dataset
from evenout.detectors.units import Units
from evenout.reasons.attribution import Attribution, draw_orders
from evenout.reasons.explain import BASELINES

SMALL = ("pima", "annthyroid", "mammography", "breastw", "credit", "vowels", "cardio")
PLANTED = ("pima", "annthyroid", "cardio", "vowels", "credit", "communities")
FEATURES = {"credit": [0, 1, 2, 7, 8, 9, 13, 14, 15, 16], "vowels": [*range(10)], "cardio": [*range(10)]}
QUICK = ("pima", "cardio")
ROWS = 6000  # of a table, at most
FLAGGED = 60  # rows explained in a table
SHARED = 0.01  # of the training rows, from which on a value is one of few that are possible, and is not moved
METHODS = ("evenout", "typical", "ablation", "ecod", "copod", "z-score")

Score = Callable[[FloatArray], FloatArray]


def halves(name: str, *, few: bool, rng: np.random.Generator) -> tuple[FairOutlierEnsemble, FloatArray, FloatArray]:
    """A model of one half of a table, the rows of that half, and those of the other."""
    data = load_dataset(name)
    X, groups = data.X.to_numpy(float), data.sensitive.to_numpy()
    X = X[:, FEATURES[name]] if few and name in FEATURES else X
    order = rng.permutation(len(X))[:ROWS]
    first, second = np.array_split(order, 2)
    model = FairOutlierEnsemble(random_state=0).fit(X[first], sensitive_features=groups[first])
    return model, X[first], X[second]


def pressed(model: FairOutlierEnsemble) -> FairOutlierEnsemble:
    """The model where 80 % of the bias on its own rows is gone, also if that is noise: its fair score is another."""
    alphas = model.path_.grid(40)
    gone = model.path_.bias(alphas, "training") <= 0.2 * model.path_.target_bias("training")
    return model.at(alpha=float(alphas[gone.argmax()]))


def enumerated(score: Score, X: FloatArray, typical: FloatArray) -> FloatArray:
    """Exact Shapley values of score columns, each row beside its typical one: shape (m, p, columns)."""
    p = X.shape[1]
    orders = draw_orders(p, limit=p)
    pairs = zip(X, typical, strict=True)
    return np.concatenate([orders.parts(score(np.where(orders.taken, row, usual))[None])[0] for row, usual in pairs])


def agreement(truth: FloatArray, found: FloatArray) -> dict[str, float]:
    """Same first reason, or one that is as good but for rounding, and overlap of the first three, of parts (m, p)."""
    first = np.take_along_axis(truth, found.argmax(axis=1)[:, None], axis=1)[:, 0] >= truth.max(axis=1) - 1e-9
    three = [np.argsort(-parts, axis=1, kind="stable")[:, :3] for parts in (truth, found)]
    overlap = [len(set(a) & set(b)) / 3 for a, b in zip(*three, strict=True)]
    return {"first": float(first.mean()), "three": float(np.mean(overlap))}


def family_parts(
    model: FairOutlierEnsemble, X: FloatArray, typical: FloatArray, families: dict[str, IntArray]
) -> dict[str, FloatArray]:
    """Parts in the mean of each family's scaled columns, as the model computes them: shape (m, p)."""
    result, orders = model._result, draw_orders(X.shape[1])
    split = Attribution(result, np.arange(X.shape[1]), orders)
    first, last = (result.scores.pool.score(np.array(rows)) for rows in (typical, X))
    mixed = np.concatenate([split.mixed(place, X, np.array(typical), first, last) for place in split.columns], axis=2)
    S = result.scores.scaling.transform(mixed.reshape(-1, mixed.shape[2])).reshape(mixed.shape)
    return {
        name: orders.parts(S[:, :, columns].mean(axis=2, keepdims=True))[0][:, :, 0]
        for name, columns in families.items()
    }


def against_shapley(name: str, baseline: str) -> dict[str, Any]:
    """Agreement with enumeration on one table."""
    model, _, unseen = halves(name, few=True, rng=np.random.default_rng(0))
    model = pressed(model)
    result = model._result
    flagged = unseen[model.outlier_scores(unseen) > -model.offset_][:FLAGGED]
    kinds = np.array(result.scores.pool.families)
    families = {str(kind): np.flatnonzero(kinds == kind) for kind in dict.fromkeys(kinds)}

    def score(rows: FloatArray) -> FloatArray:
        S = model.detector_scores(rows)
        t = result.scores.base(S)
        means = [S[:, columns].mean(axis=1) for columns in families.values()]
        return np.column_stack([t, result.mixture.apply(S, t), *means])

    found = model.explain(flagged, baseline=baseline)
    truth = enumerated(score, flagged, found.beside)
    by_family = family_parts(model, flagged, found.beside, families)
    entries = {"base": found.base_parts, "fair": found.fair_parts} | by_family
    told = {key: agreement(truth[:, :, c], parts) for c, (key, parts) in enumerate(entries.items())}
    return {"rows": len(flagged), "features": unseen.shape[1], "training_rows": len(result.target)} | told


def plant(model: FairOutlierEnsemble, known: FloatArray, rows: FloatArray, kind: str, n_changed: int, seed: int
          ) -> tuple[FloatArray, AnyArray]:  # fmt: skip
    """Rows with some features changed that are flagged for it, and which features: (m, d) and (m, d) of truth."""
    rng = np.random.default_rng(seed)
    units = Units.fit(known)
    rows = rows[model.base_scores(rows) < np.quantile(model.target_, 0.8)]
    changed = np.zeros(rows.shape, dtype=bool)
    for i in range(len(rows)):
        changed[i, rng.choice(units.kept, n_changed, replace=False)] = True
    low, high = known.min(axis=0), known.max(axis=0)
    if kind == "far":
        up = rng.random(rows.shape) < 0.5
        out = rng.uniform(-0.1, 0.3, rows.shape) * (high - low)
        new = np.where(up, high + out, low - out)
    else:
        rank = np.array([np.searchsorted(np.sort(known[:, j]), rows[:, j]) for j in range(rows.shape[1])]).T
        other = (rank + rng.uniform(0.5, 1.0, rows.shape) * len(known) * np.where(rank > len(known) / 2, -1, 1)).astype(
            int
        )
        new = np.take_along_axis(np.sort(known, axis=0), np.clip(other, 0, len(known) - 1), axis=0)
    mixed = np.where(changed, new, rows)
    moved = ((mixed != rows) == changed).all(axis=1)
    caught = moved & (model.base_scores(mixed) > np.quantile(model.target_, 0.9))
    return mixed[caught], changed[caught]


def ablated(model: FairOutlierEnsemble, X: FloatArray) -> FloatArray:
    """Loss of the base score if one feature is made typical, shape (m, d)."""
    background = model._result.background
    assert background is not None
    whole, lost = model.base_scores(X), []
    for j in range(X.shape[1]):
        without = X.copy()
        without[:, j] = background.typical[j]
        lost.append(whole - model.base_scores(without))
    return np.column_stack(lost)


def dimensional(kind: str, known: FloatArray, X: FloatArray) -> FloatArray:
    """Scores of each feature by PyOD's detectors, for rows beside the known ones: shape (m, d)."""
    if kind == "z-score":
        spread = known.std(axis=0)
        return np.abs(X - known.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    from pyod.models.copod import COPOD
    from pyod.models.ecod import ECOD

    detector = (ECOD if kind == "ecod" else COPOD)().fit(known)
    detector.decision_function(X)  # leaves the scores of known and new rows in O, as its plots need them
    return np.asarray(detector.O)[-len(X) :]


def planted(name: str, seeds: range) -> dict[str, Any]:
    """First reasons that are right, by kind and number of changed features, for every method."""
    model, known, unseen = halves(name, few=False, rng=np.random.default_rng(1))
    found: dict[str, Any] = {}
    for kind, n_changed in product(("far", "swapped"), (1, 2)):
        drawn = [plant(model, known, unseen, kind, n_changed, seed) for seed in seeds]
        X, changed = (np.concatenate(parts)[:300] for parts in zip(*drawn, strict=True))
        if len(X) < 10:
            continue
        importance = {
            "evenout": model.explain(X).base_parts,
            "typical": model.explain(X, baseline="typical").base_parts,
            "ablation": ablated(model, X),
            **{kind: dimensional(kind, known, X) for kind in METHODS[3:]},
        }
        right = {}
        for method, parts in importance.items():
            order = np.argsort(-parts, axis=1, kind="stable")
            hits = np.take_along_axis(changed, order, axis=1)
            right[method] = {"first": float(hits[:, 0].mean()), "all": float((hits[:, :n_changed].all(axis=1)).mean())}
        found[f"{kind} {n_changed}"] = {"rows": len(X)} | right
    return found


def stable(name: str) -> dict[str, float]:
    """Same reasons for rows that hardly differ."""
    model, known, unseen = halves(name, few=False, rng=np.random.default_rng(2))
    model = pressed(model)
    units, rng = Units.fit(known), np.random.default_rng(0)
    flagged = unseen[model.outlier_scores(unseen) > -model.offset_][:200]
    step = np.zeros_like(flagged)
    step[:, units.kept] = 1e-3 * units.spread * rng.choice([-1.0, 1.0], (len(flagged), len(units.kept)))
    shared = np.array([(known[:, j] == flagged[:, j, None]).mean(axis=1) for j in range(known.shape[1])]).T
    moved = np.where(shared < SHARED, flagged + step, flagged)
    told = agreement(model.explain(flagged).fair_parts, model.explain(moved).fair_parts)
    return told | {"values_moved": float((moved != flagged).mean())}


def clock(run: Callable[[], Any], repeats: int = 3) -> float:
    """The least CPU time of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def speed(rows: int) -> dict[str, Any]:
    """Reasons in times of scoring, for new rows of credit, and growth."""
    data = load_dataset("credit")
    X, groups = data.X.to_numpy(float), data.sensitive.to_numpy()
    rng = np.random.default_rng(0)
    new = X[rng.permutation(len(X))[:rows]] * (1.0 + 1e-6 * rng.random((rows, X.shape[1])))
    model = FairOutlierEnsemble(random_state=0).fit(X, sensitive_features=groups)
    model.explain(new[:10])
    scoring, reasons = clock(lambda: model.outlier_scores(new)), clock(lambda: model.explain(new), 1)
    half = clock(lambda: model.explain(new[: rows // 2]), 1)
    frame = model.explain(new[: rows // 10])
    told: dict[str, Any] = {"rows": rows, "scoring_s": scoring, "reasons_s": reasons, "times": reasons / scoring}
    told |= {"twice_the_rows": reasons / half, "frame_s_per_10000": clock(frame.to_frame, 1) * 10 * 10_000 / rows}
    some, several = X[:6000], new[: rows // 10]
    by_width = {}
    for copies in (1, 2, 4):
        wide = [
            np.hstack([part * (1 + 0.1 * rng.random(part.shape)) for _ in range(copies)]) for part in (some, several)
        ]
        one = FairOutlierEnsemble(random_state=0).fit(wide[0], sensitive_features=groups[:6000])
        one.explain(wide[1][:10])
        by_width[str(wide[0].shape[1])] = clock(lambda: one.explain(wide[1]), 2)  # noqa: B023
    return told | {"seconds_by_features": by_width}


def show(title: str, entries: dict[str, Any]) -> None:
    """Nested figures, one line each."""
    print(f"\n{title}")
    for key, value in entries.items():
        if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
            print(f"  {key}")
            for inner, figures in value.items():
                print(f"    {inner:12s} {_figures(figures)}")
        else:
            print(f"  {key:14s} {_figures(value)}")


def _figures(value: Any) -> str:
    if isinstance(value, dict):
        return "   ".join(f"{key} {_figures(item)}" for key, item in value.items())
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def mean_agreement(found: dict[str, Any]) -> dict[str, Any]:
    """Over tables, of base and fair score and of each family."""
    keys = [key for key, value in next(iter(found.values())).items() if isinstance(value, dict)]
    return {
        key: {what: float(np.mean([entry[key][what] for entry in found.values()])) for what in ("first", "three")}
        for key in keys
    }


def pooled(found: dict[str, Any]) -> dict[str, Any]:
    """Shares of right first reasons over all tables, by kind, weighted by rows."""
    told: dict[str, Any] = {}
    for kind in dict.fromkeys(key for entry in found.values() for key in entry):
        entries = [entry[kind] for entry in found.values() if kind in entry]
        weight = np.array([entry["rows"] for entry in entries], dtype=float)
        told[kind] = {
            method: float(np.average([entry[method]["first"] for entry in entries], weights=weight))
            for method in METHODS
        } | {"rows": int(weight.sum())}
    return told


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["shapley", "planted", "stable", "speed"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = [options.part] if options.part else ["shapley", "planted", "stable", "speed"]
    told: dict[str, Any] = {}
    if "shapley" in parts:
        for baseline in BASELINES:
            found = {name: against_shapley(name, baseline) for name in (QUICK if options.quick else SMALL)}
            show(f"same first reason as exact Shapley values, overlap of the first three, beside {baseline}", found)
            told[f"shapley, {baseline}"] = found
            told[f"shapley, {baseline}, mean"] = mean_agreement(found)
            show("mean of the tables", told[f"shapley, {baseline}, mean"])
    if "planted" in parts:
        seeds = range(1 if options.quick else 3)
        told["planted"] = {name: planted(name, seeds) for name in (QUICK if options.quick else PLANTED)}
        show("first reason right (all: every changed feature before any other)", told["planted"])
        told["planted, all tables"] = pooled(told["planted"])
        show("first reason right, all tables", told["planted, all tables"])
    if "stable" in parts:
        told["stable"] = {name: stable(name) for name in (QUICK if options.quick else PLANTED)}
        show("same reasons after moving each value by a thousandth of its spread", told["stable"])
    if "speed" in parts:
        told["speed"] = speed(1000 if options.quick else 10_000)
        show("speed", told["speed"])
    if options.json:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
