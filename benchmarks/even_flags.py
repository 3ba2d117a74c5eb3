"""Even flags for many groups: time beside a fit for means, and total score beside the linear programme.

    python benchmarks/even_flags.py                     # 30,000 rows, up to 80 groups, about three minutes on two cores
    python benchmarks/even_flags.py --rows 6000 --json

Sex is crossed with whole ages, as it comes with tables of customers. Of each number of ages: the processor time of the
same fit asked for means and asked for flags, and how often the second is the first. For `core.flags`: the total
score of its rule, over that of scipy's linear programme on all rows, and its lowest over highest rate, at a ratio of
0.9; for as many rows as the linear programme can take.
"""

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from evenout import FairOutlierEnsemble
from evenout.core.flags import _Programme
from evenout.core.parallel import one_blas_thread
from evenout.core.types import FloatArray

RATIO, FLAGGED = 0.9, 0.1


def people(n: int, ages: int, seed: int = 0) -> tuple[FloatArray, pd.DataFrame]:
    """Features that depend on sex and age a little."""
    rng = np.random.default_rng(seed)
    sex, age = rng.integers(1, 3, n), np.minimum(21 + rng.gamma(2.2, ages / 6.0, n).astype(int), 20 + ages)
    X = rng.normal(size=(n, 8))
    X[:, 0] += 0.5 * (sex == 2)
    X[:, 1] += (age - age.mean()) / age.std()
    X[:, 2] *= np.exp(0.1 * (age - age.mean()) / age.std())
    return X, pd.DataFrame({"SEX": sex, "AGE": age.astype(str)})


def timed(n: int, ages: int) -> dict[str, Any]:
    """Processor seconds of the two fits."""
    X, groups = people(n, ages)
    found: dict[str, Any] = {"rows": n}
    requests: dict[str, dict[str, Any]] = {"means": {"bias_reduction": 0.8}, "flags": {"flag_rate_ratio": RATIO}}
    for name, asked in requests.items():
        began = time.process_time()
        model = FairOutlierEnsemble(random_state=0, **asked).fit(X, sensitive_features=groups)
        found[f"{name}_s"] = time.process_time() - began
    return found | {"groups": len(model.group_names_), "times": found["flags_s"] / found["means_s"]}


def compared(n: int, n_groups: int) -> dict[str, Any]:
    """The rule beside the linear programme."""
    rng = np.random.default_rng(n_groups)
    x = rng.normal(size=(n, 4))
    p = np.exp(0.6 * x @ rng.normal(size=(4, n_groups)))
    p /= p.sum(axis=1, keepdims=True)
    r, t, mass = p / p.mean(axis=0), x.sum(axis=1) + rng.normal(size=n), np.full(n, 1.0 / n)
    began = time.process_time()
    with one_blas_thread():
        programme = _Programme(t, r, FLAGGED, RATIO, mass, np.zeros(n_groups, dtype=np.intp))
        dual = programme.solve(np.ones(n_groups))
    assert dual is not None
    ours, began = time.process_time() - began, time.process_time()
    q, one = r.T / n, np.ones((n_groups, 1))
    best = linprog(
        -np.append(t, 0.0) / n,
        A_ub=np.block([[-q, one], [q, -one / RATIO]]),
        b_ub=np.zeros(2 * n_groups),
        A_eq=np.append(mass, 0.0)[None],
        b_eq=[FLAGGED],
        bounds=(0.0, 1.0),
    )
    y = t + r @ dual.worth
    over = y > np.quantile(y, 1.0 - FLAGGED)
    rates = r.T @ over / n
    return {
        "groups": n_groups,
        "rows": n,
        "total_over_best": float((t * mass) @ programme.rule(dual) / -best.fun),
        "whole_rows_over_best": float(t[over].sum() / n / -best.fun),
        "whole_rows_ratio": float(rates.min() / rates.max()),
        "ours_s": ours,
        "linprog_s": time.process_time() - began,
    }


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # small groups, and what cannot be promised
    timed(1000, 3)  # compiles
    fits = [timed(options.rows, ages) for ages in (5, 10, 20, 40)]
    for fit in fits:
        print(
            f"{fit['rows']:,} rows, {fit['groups']} groups: means {fit['means_s']:.1f} s, flags {fit['flags_s']:.1f} s "
            f"({fit['times']:.1f} times)",
            flush=True,
        )
    rules = [compared(min(options.rows, 6000), n_groups) for n_groups in (3, 12, 40, 80)]
    for rule in rules:
        print(
            f"{rule['rows']:,} rows, {rule['groups']} groups: total score {rule['total_over_best']:.5f} of the linear "
            f"programme's, with whole rows {rule['whole_rows_over_best']:.5f} at a ratio of "
            f"{rule['whole_rows_ratio']:.3f}; {rule['ours_s']:.2f} s for {rule['linprog_s']:.2f} s",
            flush=True,
        )
    if options.json:
        print(json.dumps({"fits": fits, "rules": rules}))


if __name__ == "__main__":
    main()
