"""Do flag rates differ? Level and power of the audit's test, and coverage of its intervals, where the truth is known.

Level: tables without any difference, several with a small group; 5 % of them should be rejected. Power: groups as large
as those of communities, or a half or a quarter of that, flagged at the rates that a fit left there (17 of 88, 36 of
219, 14 of 115, 133 of 1572). Beside it stand scipy's chi-square and what was used before: the permuted ratio of the
lowest to the highest rate, which the smallest group rules.

Coverage: 95 % intervals of that ratio. "Group intervals" is what was used before: the ratios that the percentile
intervals of the groups' rates allow. It was stretched to 1 where the permuted ratio did not reject.
"""

import argparse
import json
from collections.abc import Sequence

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from evenout import audit
from evenout.auditing.counted import Meaning, score_measures
from evenout.auditing.measures import p_value
from evenout.core.resampling import level_table
from evenout.core.types import FloatArray, IntArray

COMMUNITIES = np.array([88, 219, 115, 1572])
RATES = np.array([17 / 88, 36 / 219, 14 / 115, 133 / 1572])
NULLS = {
    "two": (180, 220),
    "two, equal": (200, 200),
    "two, one small": (30, 600),
    "communities": tuple(COMMUNITIES),
    "eight": (30,) * 4 + (150,) * 4,
}
OLD = Meaning("lowest / highest flag rate", 1.0, "low")
COVERED = {
    "two, even": ((200, 200), (0.0, 0.0)),
    "two, one small, even": ((40, 800), (0.0, 0.0)),
    "two, one small and low": ((40, 800), (-0.6, 0.0)),
    "communities, even": (tuple(COMMUNITIES), (0.0, 0.0, 0.0, 0.0)),
    "communities, uneven": (tuple(COMMUNITIES), (0.5, 0.3, 0.2, 0.0)),
    "four, the lowest small": ((30, 300, 300, 300), (0.0, 0.2, 0.4, 0.6)),
    "eight, even": ((60,) * 8, (0.0,) * 8),
    "eight, uneven": ((60,) * 8, tuple(np.linspace(0, 0.8, 8).tolist())),
}


def p_values(
    scores: FloatArray, groups: IntArray, n_permutations: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """p-values of one table: the audit's, scipy's chi-square, the permuted ratio."""
    G = int(groups.max()) + 1
    table = level_table(scores, groups, G)
    flagged = scores > np.percentile(scores, 90)
    drawn = [score_measures(c, table.values, 0.1)["flag_rate_ratio"] for c in table.permutations(n_permutations, rng)]
    ratio = score_measures(table.counts[None], table.values, 0.1)["flag_rate_ratio"][0]
    seed = int(rng.integers(2**31))
    found = audit(scores, sensitive_features=groups, resamples=0, random_state=seed)
    counts = np.array([[(flagged[groups == g] == f).sum() for f in (True, False)] for g in range(G)])
    return (
        found.get("flag_rate_test").p,
        float(stats.chi2_contingency(counts, correction=False).pvalue),
        float(p_value(OLD, ratio, np.concatenate(drawn))[0]),
    )


def rejected(
    sizes: Sequence[int], rates: FloatArray, n_tables: int, n_permutations: int, rng: np.random.Generator
) -> dict[str, float]:
    """Share of tables in which each test rejects at 5 %."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    found = []
    for _ in range(n_tables):
        scores = (rng.random(len(groups)) < rates[groups]) + rng.random(len(groups))
        found.append(p_values(scores, groups, n_permutations, rng))
    share = (np.array(found) <= 0.05 + 1e-12).mean(axis=0)
    return dict(zip(("audit", "scipy", "old"), share.tolist(), strict=True))


def coverage(
    sizes: Sequence[int], shifts: Sequence[float], n_tables: int, rng: np.random.Generator
) -> dict[str, list[float]]:
    """Share of intervals that hold the true ratio, and their median length."""
    groups, shift = np.repeat(np.arange(len(sizes)), sizes), np.array(shifts)
    mix = np.array(sizes) / sum(sizes)
    cut = brentq(lambda t: mix @ stats.norm.sf(t - shift) - 0.1, -9, 9)
    rates = stats.norm.sf(cut - shift)
    truth = rates.min() / rates.max()
    ends: dict[str, list[tuple[float, float]]] = {"audit": [], "group intervals": []}
    for i in range(n_tables):
        scores = rng.normal(size=len(groups)) + shift[groups]
        found = audit(scores, sensitive_features=groups, resamples=400, random_state=i)
        ratio = found.get("flag_rate_ratio")
        ends["audit"].append((ratio.low, ratio.high))
        ends["group intervals"].append(group_intervals(scores, groups, rng))
    return {name: [covered(pairs, truth), float(np.median(np.ptp(pairs, axis=1)))] for name, pairs in ends.items()}


def group_intervals(scores: FloatArray, groups: IntArray, rng: np.random.Generator) -> tuple[float, float]:
    """Earlier rule, not stretched to 1: percentile intervals of the rates, and the ratios that they allow."""
    table = level_table(scores, groups, int(groups.max()) + 1)
    drawn = np.concatenate([score_measures(c, table.values, 0.1)["flag_rate"] for c in table.bootstrap(400, rng)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return float(low.min() / high.max()), float(min(high.min() / max(low.max(), 1e-12), 1.0))


def covered(pairs: Sequence[tuple[float, float]], truth: float) -> float:
    """Share of the intervals that hold the truth."""
    return float(np.mean([low <= truth <= high + 1e-9 for low, high in pairs]))


def _line(what: str, name: str, found: dict[str, float]) -> None:
    print(f"{what:6s} {name:28s}" + "".join(f"  {k} {v:6.1%}" for k, v in found.items()), flush=True)


def level_and_power(
    n_tables: int = 2000, n_power: int = 300, n_permutations: int = 199
) -> dict[str, dict[str, dict[str, float]]]:
    """Share of rejected tables, by setting and test: without any difference, and with that of communities."""
    rng = np.random.default_rng(0)
    result: dict[str, dict[str, dict[str, float]]] = {"level": {}, "power": {}}
    for name, sizes in NULLS.items():
        found = rejected(sizes, np.full(len(sizes), 0.1), n_tables, n_permutations, rng)
        result["level"][name] = found
        _line("level", name, found)
    for part in (1.0, 0.5, 0.25):
        sizes = tuple(np.rint(part * COMMUNITIES).astype(int).tolist())
        found = rejected(sizes, RATES, n_power, n_permutations, rng)
        result["power"][f"{part:g}"] = found
        _line("power", f"{part:g} of communities", found)
    return result


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000, help="simulated tables for the level")
    parser.add_argument("--power-tables", type=int, default=300)
    parser.add_argument("--intervals", type=int, default=400, help="simulated intervals per setting; 0 for none")
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, object] = {**level_and_power(options.tables, options.power_tables, options.permutations)}
    held, rng = {}, np.random.default_rng(1)
    for name, (sizes, shifts) in COVERED.items() if options.intervals else ():
        held[name] = coverage(sizes, shifts, options.intervals, rng)
        shown = "".join(f"  {k} {share:6.1%} (length {length:.2f})" for k, (share, length) in held[name].items())
        print(f"covers {name:28s}{shown}", flush=True)
    if options.json:
        print(json.dumps(result | {"coverage": held}))


if __name__ == "__main__":
    main()
