"""How often a watch is wrong, and how soon it is right: simulated years of weekly batches.

Years without unfairness, in several populations, count false alarms. Years in which one group is lifted by 0.2 standard
deviations from some week on count the rows until the alarm. `--json` prints the figures as the last line.
"""

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, ttest_ind

from evenout import FairnessMonitor

WEEKS = 52


@dataclass(frozen=True)
class Population:
    """Who comes, and what they score.

    Parameters
    ----------
    shares : tuple of float
        Of the groups.
    rows : int
        In a week, on average.
    drift : float
        Standard deviations by which all scores have moved after a year.
    mix : float
        By how much the first group's share has changed after a year.
    skew : bool
        Scores have a long tail, and are rounded to few values.
    flags : bool
        Watch a ratio of flag rates as well.
    """

    shares: tuple[float, ...]
    rows: int = 200
    drift: float = 0.0
    mix: float = 0.0
    skew: bool = False
    flags: bool = False

    def week(self, week: int, gap: float, rng: np.random.Generator) -> tuple[Any, Any]:
        """Scores and groups; the last group is lifted by ``gap``."""
        part = week / WEEKS
        shares = np.array(self.shares)
        shares[0], shares[1:] = shares[0] + self.mix * part, shares[1:] * (1 - self.mix * part / (1 - shares[0]))
        groups = rng.choice(len(shares), size=max(int(rng.poisson(self.rows)), 2), p=shares)
        noise = rng.normal(size=len(groups)) + gap * (groups == len(shares) - 1) + self.drift * part
        scores = np.round(np.exp(noise), 1) if self.skew else noise
        return scores, groups.astype(str)

    def reference(self, rng: np.random.Generator) -> tuple[Any, Any]:
        """A year's rows from before."""
        rows = [self.week(0, 0.0, rng) for _ in range(10)]
        return np.concatenate([s for s, _ in rows]), np.concatenate([g for _, g in rows])


POPULATIONS = {
    "two groups": Population((0.5, 0.5)),
    "two groups, drift and mix": Population((0.6, 0.4), drift=1.0, mix=0.3),
    "two groups, skewed and tied, flags too": Population((0.7, 0.3), skew=True, flags=True),
    "five groups": Population((0.4, 0.3, 0.15, 0.1, 0.05)),
    "five groups, drift and mix, flags too": Population((0.3, 0.3, 0.2, 0.1, 0.1), drift=1.0, mix=0.3, flags=True),
}


def watch_year(population: Population, gap: float, begin: int, weeks: int, seed: int) -> tuple[int, int]:
    """Week of the first alarm, -1 for none, and rows since ``begin`` until then."""
    rng = np.random.default_rng(seed)
    monitor = FairnessMonitor(flag_rate_ratio=1.0 if population.flags else None)
    scores, groups = population.reference(rng)
    monitor.start(scores, sensitive_features=groups)
    rows = 0
    for week in range(weeks):
        scores, groups = population.week(week, gap if week >= begin else 0.0, rng)
        rows += len(scores) if week >= begin else 0
        if monitor.update(scores, sensitive_features=groups).alarm:
            return week, rows
    return -1, rows


def false_alarms(population: Population, years: int) -> dict[str, Any]:
    """Share of years with an alarm, and the upper 95 % bound of it (Clopper and Pearson)."""
    wrong = sum(watch_year(population, 0.0, 0, WEEKS, seed)[0] >= 0 for seed in range(years))
    bound = float(beta.ppf(0.95, wrong + 1, years - wrong)) if wrong < years else 1.0
    return {"years": years, "alarms": wrong, "share": wrong / years, "bound": round(bound, 4)}


def repeated_tests(population: Population, years: int) -> dict[str, Any]:
    """The same of a plain test of all rows so far, at 5 %, made anew every week: what a watch must not be."""
    wrong = 0
    for seed in range(years):
        rng = np.random.default_rng(seed)
        rows = [population.week(week, 0.0, rng) for week in range(WEEKS)]
        scores, last = (np.concatenate([part[i] for part in rows]) for i in (0, 1))
        one, ends = last == np.unique(last)[-1], np.cumsum([len(part[0]) for part in rows])
        wrong += any(ttest_ind(scores[:n][one[:n]], scores[:n][~one[:n]]).pvalue < 0.05 for n in ends)
    return {"years": years, "alarms": wrong, "share": wrong / years}


def delays(population: Population, begin: int, years: int, gap: float = 0.2) -> dict[str, Any]:
    """Rows since the gap came until the alarm."""
    found = [watch_year(population, gap, begin, begin + 5 * WEEKS, 10_000 + seed) for seed in range(years)]
    early = sum(0 <= week < begin for week, _ in found)
    rows = np.array([n for week, n in found if week >= begin])
    quantiles = {f"rows_{q}": int(np.quantile(rows, q / 100)) for q in (50, 90)}
    return {"begin_week": begin, "years": years, "early": early, "missed": years - early - len(rows), **quantiles}


def main() -> None:
    """Print a table, and the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=1000)
    parser.add_argument("--delays", type=int, default=200, help="years for each of the delays")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.perf_counter()
    level = {name: false_alarms(population, given.years) for name, population in POPULATIONS.items()}
    for name, found in level.items():
        print(f"{name:<42} {found['alarms']:>4} of {found['years']} years with an alarm")
    plain = repeated_tests(POPULATIONS["two groups"], given.years)
    print(f"{'a plain test every week, two groups':<42} {plain['alarms']:>4} of {plain['years']} years with an alarm")
    delay = []
    for name in ("two groups", "five groups"):
        for begin in (0, 12, 51):
            delay.append({"population": name, **delays(POPULATIONS[name], begin, given.delays)})
            d = delay[-1]
            after = f"{d['rows_50']:,} rows (median), {d['rows_90']:,} (90 %)"
            print(f"{name}, 0.2 sd from week {begin + 1}: found after {after}")
    if given.json:
        seconds = round(time.perf_counter() - began, 1)
        print(json.dumps({"false_alarms": level, "repeated_tests": plain, "delays": delay, "seconds": seconds}))


if __name__ == "__main__":
    main()
