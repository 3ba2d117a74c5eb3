"""Compare what fits say of unseen rows with what these get: promises of means and of flags, with detectors fitted anew.

    python benchmarks/promises.py --json --workers 16   # 100 fits each: six hours of one core, divided by the workers
    python benchmarks/promises.py --quick               # 4 fits each of 1000 and 2000 rows, some minutes

*Populations*: so many rows of a drawn population are fitted on, and 50,000 others of it are judged. The estimate of
flag rates was worked out while looking at these; ``matrix.py`` has others. *Tables*: so many rows of a bundled table
are fitted on, half of it at most, and the other half is judged, then the other way round. Pools are ``default`` and
``paper`` of `FairOutlierEnsemble`, and `BlindRepair` of the default pool's base score. Each is asked for 80 % less
bias, and for flag rates of at least 0.8 and 0.9 of each other.

*Said less got* is to be between -0.05 and 0.02 on average, over fits that found a gap; ``found`` is their share. The
last lines take all populations together. Where few fits find a gap, it is mostly chance in these, and what they say is
too low: they were picked for it. A ratio of counted rates is too low where few are counted: in tables ``got`` is too
low, and ``got_pooled``, from the rates of all fits together, too high, as errors of single rules cancel there.
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from evenout import BlindRepair, FairOutlierEnsemble, Groups
from evenout.core.flags import flag_rates, rate_ratio
from evenout.core.types import FloatArray, IntArray
from evenout.groups.read import read_groups
from evenout.metrics import demographic_parity
from halves import load

FIRST = {"two groups": (0.3, 1.5), "a minority of 6 %": (0.06, 1.5), "a small gap": (0.3, 0.7)}  # share, shift
OTHERS: dict[str, tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], int]] = {  # shares, shifts, spreads, d
    "equal halves": ((0.5, 0.5), (0.0, 1.6), (1.0, 1.8), 6),
    "a wide quarter": ((0.75, 0.25), (0.0, 0.0), (1.0, 3.0), 5),
    "three groups": ((0.6, 0.3, 0.1), (0.0, 0.8, 1.6), (1.0, 1.3, 1.6), 6),
    "a minority of 5 %": ((0.95, 0.05), (0.0, 1.6), (1.0, 2.0), 6),
    "heavy tails": ((0.9, 0.1), (0.0, 1.5), (1.0, 1.8), 10),
}
POPULATIONS = (*FIRST, *OTHERS)
ALL = "all populations"
TABLES = ("credit", "communities", "mammography")
SIZES = (1000, 2000, 5000, 10_000)
POOLS = ("default", "paper", "BlindRepair")
REQUESTS = (("bias_reduction", 0.8), ("flag_rate_ratio", 0.8), ("flag_rate_ratio", 0.9))
JUDGED = 50_000
FLAGGED = 0.1
LEAST, MOST = -0.05, 0.02  # of said less got, on average


def population(name: str, n: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Some features, two or three of which a group has more of; a few rows lie far out."""
    if name in OTHERS:
        shares, shifts, spreads, d = OTHERS[name]
        groups = rng.choice(len(shares), n, p=shares)
        X = rng.standard_t(4, size=(n, d)) if name == "heavy tails" else rng.normal(size=(n, d))
        X += 0.4 * rng.normal(size=(n, 1))
        X[:, 0] += np.array(shifts)[groups]
        X[:, -1] *= np.array(spreads)[groups]
        X[rng.random(n) < 0.04] *= 3.0
        return X, groups
    share, shift = FIRST[name]
    groups = (rng.random(n) < share).astype(np.intp)
    X = rng.normal(size=(n, 8)) + 0.6 * rng.normal(size=(n, 1))
    X[:, :2] += np.where(groups == 1, shift, 0.0)[:, None]
    X[:, 2] *= np.where(groups == 1, 1.3, 1.0)
    X[rng.random(n) < 0.05] *= 2.5
    return X, groups


def cut(source: str, n: int, fit: int) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Rows to fit on and rows to judge on."""
    index = (*POPULATIONS, *TABLES).index(source)
    if source in POPULATIONS:
        rng = np.random.default_rng([fit, n, index])
        return *population(source, n, rng), *population(source, JUDGED, rng)
    X, _, groups = load(source, fit // 2)
    halves = np.array_split(np.random.default_rng([fit // 2, n, index]).permutation(len(X)), 2)
    own, judged = halves[fit % 2][:n], halves[1 - fit % 2]  # in turn: a half that is more even is judged as well
    return X[own], groups[own], X[judged], groups[judged]


def _kept(jobs: list[tuple[Any, ...]], path: Path | None, workers: int) -> Iterator[dict[str, Any]]:
    """Results of all jobs; those that a file has are not run again, and it gets the others one by one."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    before = {json.dumps(job): found for job, found in map(json.loads, lines)}
    left = [job for job in jobs if json.dumps(job) not in before]
    for job in jobs:
        yield from before.get(json.dumps(job), [])
    parts = Parallel(n_jobs=workers, return_as="generator")(delayed(run)(*job) for job in left)
    for job, found in zip(left, parts, strict=True):
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps([job, found]) + "\n")
        yield from found


@cache
def _sizes(source: str, sizes: tuple[int, ...]) -> list[int]:
    """Sizes that differ: of a small table a half is all that can be fitted on."""
    if source in POPULATIONS:
        return list(sizes)
    half = len(load(source, 0)[0]) // 2
    return sorted({min(size, half) for size in sizes})


def run(source: str, n: int, detectors: str, pools: list[str], fit: int) -> list[dict[str, Any]]:
    """One fit of some detectors, asked for each of the requests in each of their pools."""
    X, groups, new, new_groups = cut(source, n, fit)
    settings: dict[str, Any] = {"random_state": fit, "n_jobs": 1, "groups": Groups(min_size=10)}
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FairOutlierEnsemble(detectors, **settings).fit(X, sensitive_features=groups)
        kept = read_groups(groups, len(groups), settings["groups"]).labels
        compared = np.isin(new_groups.astype(str), kept)
        codes = np.unique(new_groups[compared], return_inverse=True)[1]
        S = model.detector_scores(new)
        base = model._result.scores.base(S)
        for pool, (way, asked) in product(pools, REQUESTS):
            if pool == "BlindRepair":
                repair = BlindRepair(**(settings | {way: asked}))
                told: Any = repair.fit(model.target_, X, sensitive_features=groups)
                fair = repair.transform(base, new)
            else:
                told = model.at(**{way: asked})
                fair = told._result.mixture.apply(S, base)
            outcome = told.outcome_
            before, after = (_judge(way, y, compared, codes) for y in (base, fair))
            rates = flag_rates(fair, _padded(codes, compared), int(codes.max()) + 1, FLAGGED)
            cell = {"source": source, "rows": len(X), "size": n, "pool": pool, "request": way, "asked": asked}
            got = 1.0 - after / before if way == "bias_reduction" else after
            found.append(
                cell
                | {"status": outcome.status, "said": outcome.reached, "interval": outcome.interval, "got": float(got)}
                | {"base": float(before), "rates": rates.tolist()}
            )
    return found


def _padded(codes: IntArray, compared: Any) -> IntArray:
    every = np.full(len(compared), -1, dtype=np.intp)
    every[compared] = codes
    return every


def _judge(way: str, y: FloatArray, compared: Any, codes: IntArray) -> float:
    if way == "bias_reduction":
        return demographic_parity(y[compared], sensitive_features=codes, scale_free=True, corrected=True)
    rates = flag_rates(y, _padded(codes, compared), int(codes.max()) + 1, FLAGGED)
    return float(rate_ratio(rates))


def summarise(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Said and got for each source, size, pool and request, over fits that say anything."""
    cells = defaultdict(list)
    for one in found:
        cells[one["source"], one["size"], one["pool"], one["request"], one["asked"]].append(one)
    table = []
    for (source, size, pool, request, asked), every in cells.items():
        fits = [one for one in every if np.isfinite(one["said"]) and one["base"] > 0]
        names = ("source", "size", "pool", "request", "asked")
        cell: dict[str, Any] = dict(zip(names, (source, size, pool, request, asked), strict=True))
        cell |= {"rows": every[0]["rows"], "fits": len(every), "found": len(fits) / len(every)}
        if fits:
            said, got = (np.array([one[name] for one in fits]) for name in ("said", "got"))
            ends = np.array([one["interval"] for one in fits])
            met = np.array([one["status"] in ("on_target", "assured") for one in fits])
            off = said - got
            cell |= {
                "said": float(said.mean()),
                "got": float(got.mean()),
                "said_less_got": float(off.mean()),
                "error": float(off.std(ddof=1) / np.sqrt(len(off))) if len(off) > 1 else None,
                "interval_holds": float(((ends[:, 0] <= got) & (got <= ends[:, 1])).mean()),
                "on_target": float(met.mean()),
                "got_where_on_target": float(got[met].mean()) if met.any() else None,
            }
            same = len({len(one["rates"]) for one in fits}) == 1
            if request == "flag_rate_ratio" and same and source != ALL:
                cell["got_pooled"] = float(rate_ratio(np.mean([one["rates"] for one in fits], axis=0)))
            cell["honest"] = bool(LEAST <= cell["said_less_got"] <= MOST)
        table.append(cell)
    return table


def show(table: list[dict[str, Any]]) -> None:
    """One line per cell."""
    print(f"{'source':18} {'size':>6} {'pool':12} {'asked':20} fits found  said   got  less (error)  holds  pooled")
    for cell in table:
        asked = f"{cell['request']} {cell['asked']:g}"
        head = f"{cell['source']:18} {cell['rows']:6} {cell['pool']:12} {asked:20}"
        head = f"{head} {cell['fits']:4} {cell['found']:5.2f}"
        if "said" not in cell:
            print(f"{head}  nothing is said")
            continue
        error = "" if cell["error"] is None else f"({cell['error']:.3f})"
        pooled = f"{cell['got_pooled']:6.3f}" if "got_pooled" in cell else ""
        print(
            f"{head} {cell['said']:5.3f} {cell['got']:5.3f} {cell['said_less_got']:+.3f} {error:8} "
            f"{cell['interval_holds']:5.2f} {pooled} {'' if cell['honest'] else '!'}"
        )


def main() -> None:
    """Read the command line, fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=list(POOLS))
    parser.add_argument("--sources", nargs="+", choices=[*POPULATIONS, *TABLES], default=[*POPULATIONS, *TABLES])
    parser.add_argument("--quick", action="store_true", help="4 fits each of 1000 and 2000 rows")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one thread")
    parser.add_argument(
        "--kept", type=Path, help="a file of single fits, read and added to: what it has is not run again"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    fits, sizes = (4, [1000, 2000]) if given.quick else (given.fits, given.sizes)
    by_detectors = {"paper": [pool for pool in given.pools if pool == "paper"]}
    by_detectors["default"] = [pool for pool in given.pools if pool != "paper"]
    jobs = [
        (source, n, detectors, pools, fit)
        for fit, source, (detectors, pools) in product(range(fits), given.sources, by_detectors.items())
        for n in _sizes(source, tuple(sizes))
        if pools
    ]
    found = list(_kept(jobs, given.kept, given.workers))
    table = summarise([*found, *(one | {"source": ALL} for one in found if one["source"] in POPULATIONS)])
    show(table)
    if given.json:
        print(json.dumps(table))


if __name__ == "__main__":
    main()
