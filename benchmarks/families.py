"""Value of the choices behind the default pool: units, decorrelated coordinates, and its four families.

    python benchmarks/families.py --json        # about three minutes on two cores
    python benchmarks/families.py --quick       # three tables, one split

Each table is halved at random; detectors are fitted on one half and judged on the other by AUC and average precision.
*Units*: the distance to the 10th neighbour on raw features, on z-scores, and in the units of `evenout.detectors.units`,
on the bundled tables. *Coordinates*: the mean log LOF of 10, 20 and 30 neighbours in these units, and decorrelated.
*Families*: every set of the four families of the default pool, each family with the same say, on the bundled tables and
the scenarios; and for each table the set that is best by the sum of AUC and average precision on all the others.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any, TypeAlias

import numpy as np

from evenout.core.base_score import learn_scaling
from evenout.core.types import FloatArray
from evenout.datasets import list_datasets, list_scenarios
from evenout.detectors.neighbours import Nearness, Neighbours
from evenout.detectors.pool import fit_pool
from evenout.detectors.units import Units
from target import halve, quality

FAMILIES = ("iforest", "knn", "lof", "tail")
SETS = list(chain.from_iterable(combinations(FAMILIES, size) for size in range(1, 5)))
NAMES = ["+".join(chosen) for chosen in SETS]
QUICK = ("german", "breastw", "pima")
Tables: TypeAlias = dict[str, dict[str, tuple[float, ...]]]


def in_units(fit: FloatArray, judged: FloatArray) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Both halves in three units, learnt on the first."""
    spread = fit.std(axis=0)
    centre, spread = fit.mean(axis=0), np.where(spread > 0, spread, 1.0)
    units = Units.fit(fit)
    yield "raw", fit, judged
    yield "z-scores", (fit - centre) / spread, (judged - centre) / spread
    yield "units", units.apply(fit), units.apply(judged)


def by_neighbours(fit: FloatArray, judged: FloatArray) -> dict[str, FloatArray]:
    """Scores of the second half by distance in each unit, and by LOF in two kinds of coordinates."""
    scores = {}
    for name, first, second in in_units(fit, judged):
        scores[f"10th neighbour, {name}"] = Neighbours.fit(first, lof=(), knn=(10,))[0].score(second)[:, 0]
    for decorrelate, name in ((False, "in units"), (True, "decorrelated")):
        found, _ = Nearness.fit(first, lof=(10, 20, 30), decorrelate=decorrelate)
        scores[f"LOF, {name}"] = found.score(second).mean(axis=1)
    return scores


def by_family(fit: FloatArray, judged: FloatArray, seed: int) -> dict[str, FloatArray]:
    """Scores of the second half by every set of families."""
    pool, raw = fit_pool("default", fit, seed=seed, units=Units.fit(fit))
    S, families = learn_scaling("minmax", raw).transform(pool.score(judged)), np.array(pool.families)
    each = {family: S[:, families == family].mean(axis=1) for family in FAMILIES}
    return {"+".join(chosen): np.mean([each[family] for family in chosen], axis=0) for chosen in SETS}


def means_of(tables: Tables) -> dict[str, list[float]]:
    """Mean AUC and average precision over tables, by way."""
    ways = next(iter(tables.values()))
    return {way: np.mean([found[way] for found in tables.values()], axis=0).round(3).tolist() for way in ways}


def left_out(tables: Tables) -> dict[str, str]:
    """For each table the set of families that is best on all the others."""
    total = np.array([[sum(found[name]) for name in NAMES] for found in tables.values()])
    return {table: NAMES[int((total.sum(axis=0) - own).argmax())] for table, own in zip(tables, total, strict=True)}


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rows", type=int, default=12_000, help="of a table, at most")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    bundled = QUICK if options.quick else tuple(list_datasets())
    near: Tables = {}
    sets: Tables = {}
    for name in bundled if options.quick else (*bundled, *list_scenarios()):
        rows = []
        for split in range(1 if options.quick else options.splits):
            (X, _, _), (judged, y, _) = halve(name, split, options.rows)
            scores = by_family(X, judged, split) | (by_neighbours(X, judged) if name in bundled else {})
            rows.append({way: quality(y, score) for way, score in scores.items()})
        means = {way: tuple(np.mean([row[way] for row in rows], axis=0).tolist()) for way in rows[0]}
        sets[name] = {way: found for way, found in means.items() if way in NAMES}
        if name in bundled:
            near[name] = {way: found for way, found in means.items() if way not in NAMES}
    result: dict[str, Any] = {"near": means_of(near), "families": means_of(sets), "without_each_table": left_out(sets)}
    for kind in ("near", "families"):
        print(*(f"{way:32s} AUC {auc:.3f}   AP {ap:.3f}" for way, (auc, ap) in result[kind].items()), sep="\n")
    print(*(f"without {table:22s} {way}" for table, way in result["without_each_table"].items()), sep="\n")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
