"""How often a watch is wrong, how soon it is right, and whether it dates a gap rightly: simulated years of batches.

Years without unfairness, in several populations, count false alarms; so do five years of months in which the same
people come again, and months that are held to a start with a gap. Years in which one group is lifted by 0.2 standard
deviations from some week on count the rows until the alarm, and how often its range of dates holds that week; panels
with a gap count those that are found. `--json` prints the figures as the last line.
"""

import argparse
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
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


def watch_year(population: Population, gap: float, begin: int, weeks: int, seed: int) -> tuple[int, int, bool]:
    """Week of the first alarm, -1 for none, rows since ``begin`` until then, and whether its range holds ``begin``."""
    rng = np.random.default_rng(seed)
    monitor = FairnessMonitor(flag_rate_ratio=1.0 if population.flags else None)
    scores, groups = population.reference(rng)
    monitor.start(scores, sensitive_features=groups)
    rows = 0
    for week in range(weeks):
        scores, groups = population.week(week, gap if week >= begin else 0.0, rng)
        rows += len(scores) if week >= begin else 0
        if monitor.update(scores, sensitive_features=groups, batch=str(week)).alarm:
            first = monitor.alarms[0]
            return week, rows, int(first.earliest) <= begin <= int(first.latest)
    return -1, rows, False


def watch_panel(people: int, correlation: float, gap: float, uneven: bool, by_person: bool, seed: int) -> int:
    """Month of the first alarm in five years, -1 for none, where the same people come each month.

    ``uneven``: one group has a tenth of the people, and a ratio of flag rates of 1 is promised as well.
    """
    rng = np.random.default_rng(seed)
    share = 0.1 if uneven else 0.5
    groups, own = (rng.random(people) < share), rng.normal(size=people) * np.sqrt(correlation)
    monitor = FairnessMonitor(flag_rate_ratio=1.0 if uneven else None)
    monitor.start(rng.normal(size=2000), sensitive_features=(rng.random(2000) < share).astype(str))
    for month in range(60):
        scores = own + rng.normal(size=people) * np.sqrt(1.0 - correlation) + gap * groups
        person = np.arange(people) if by_person else None
        if monitor.update(scores, sensitive_features=groups.astype(str), person=person).alarm:
            return month
    return -1


def watch_start(rows: int, seed: int) -> bool:
    """Whether three years of months of 500 people alarm that are held to a start with the same gap as they have."""
    rng = np.random.default_rng(seed)
    monitor = FairnessMonitor("start")
    for n in (rows, *[500] * 36):
        groups = rng.choice(3, size=n, p=(0.5, 0.3, 0.2))
        monitor.update(rng.normal(size=n) + 0.45 * (groups == 1), sensitive_features=groups.astype(str))
    return monitor.alarm


def alarms(name: str, found: Iterable[bool]) -> dict[str, Any]:
    """How many of the watches had an alarm, and the upper 95 % bound of their share (Clopper and Pearson)."""
    every = list(found)
    n, wrong = len(every), sum(every)
    bound = float(beta.ppf(0.95, wrong + 1, n - wrong)) if wrong < n else 1.0
    print(f"{name:<52} {wrong:>4} of {n} watches with an alarm", flush=True)
    return {"watches": n, "alarms": wrong, "share": wrong / n, "bound": round(bound, 4)}


def repeated_tests(population: Population, years: int) -> dict[str, Any]:
    """Alarms of a plain test of all rows so far, at 5 %, repeated every week: what a watch must not be."""
    wrong = []
    for seed in range(years):
        rng = np.random.default_rng(seed)
        rows = [population.week(week, 0.0, rng) for week in range(WEEKS)]
        scores, last = (np.concatenate([part[i] for part in rows]) for i in (0, 1))
        one, ends = last == np.unique(last)[-1], np.cumsum([len(part[0]) for part in rows])
        wrong.append(any(ttest_ind(scores[:n][one[:n]], scores[:n][~one[:n]]).pvalue < 0.05 for n in ends))
    return alarms("a plain test every week, two groups", wrong)


def delays(population: Population, begin: int, years: int, gap: float = 0.2) -> dict[str, Any]:
    """Rows since the gap came until the alarm, and how often its range of dates holds the week in which it came."""
    found = [watch_year(population, gap, begin, begin + 5 * WEEKS, 10_000 + seed) for seed in range(years)]
    early = sum(0 <= week < begin for week, *_ in found)
    late = [(rows, held) for week, rows, held in found if week >= begin]
    quantiles = {f"rows_{q}": int(np.quantile([rows for rows, _ in late], q / 100)) for q in (50, 90)}
    dated = float(np.mean([held for _, held in late]))
    return {
        "begin_week": begin, "years": years, "early": early, "missed": years - early - len(late), **quantiles,
        "dated": dated,
    }  # fmt: skip


def panels(n: int) -> dict[str, Any]:
    """False alarms of panels without a gap, and panels with one in which it is found within 12 and 60 months."""
    calm = {}
    for people, r, uneven in product((400, 2000), (0.3, 0.8), (False, True)):
        name = f"{people} people, correlation {r}{', uneven, flags too' if uneven else ''}"
        calm[name] = alarms(name, (watch_panel(people, r, 0.0, uneven, True, seed) >= 0 for seed in range(n)))
    few = range(min(n, 100))
    plain = alarms(
        "400 people, correlation 0.8, person not given",
        (watch_panel(400, 0.8, 0.0, False, False, seed) >= 0 for seed in few),
    )
    power = []
    for people, r, gap in ((400, 0.8, 0.4), (400, 0.8, 0.5), (400, 0.3, 0.3), (2000, 0.8, 0.2)):
        found = np.array([watch_panel(people, r, gap, False, True, 10_000 + seed) for seed in few])
        year, five = (float(np.mean((found >= 0) & (found < months))) for months in (12, 60))
        power.append({"people": people, "correlation": r, "gap": gap, "watches": len(found)})
        power[-1] |= {"within_12": year, "within_60": five}
        within = f"found in {year:.0%} within a year, {five:.0%} within five"
        print(f"{people} people, correlation {r}, gap of {gap} sd: {within}", flush=True)
    return {"false_alarms": calm, "without_person": plain, "power": power}


def main() -> None:
    """Print a table, and the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=1000)
    parser.add_argument("--delays", type=int, default=200, help="years for each of the delays")
    parser.add_argument("--panels", type=int, default=400, help="watches for each of the panels and starts")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.perf_counter()
    level = {
        name: alarms(name, (watch_year(population, 0.0, 0, WEEKS, seed)[0] >= 0 for seed in range(given.years)))
        for name, population in POPULATIONS.items()
    }
    plain = repeated_tests(POPULATIONS["two groups"], given.years)
    held = {
        rows: alarms(f"held to a start of {rows} rows", (watch_start(rows, seed) for seed in range(given.panels)))
        for rows in (200, 2000)
    }
    panel = panels(given.panels)
    delay = []
    for name in ("two groups", "five groups"):
        for begin in (0, 20, 51):
            delay.append({"population": name, **delays(POPULATIONS[name], begin, given.delays)})
            d = delay[-1]
            after = f"{d['rows_50']:,} rows (median), {d['rows_90']:,} (90 %)"
            print(
                f"{name}, 0.2 sd from week {begin + 1}: found after {after}; date in range: {d['dated']:.0%}",
                flush=True,
            )
    if given.json:
        found = {"false_alarms": level, "repeated_tests": plain, "held_to_start": held, "panels": panel}
        print(json.dumps({**found, "delays": delay, "seconds": round(time.perf_counter() - began, 1)}))


if __name__ == "__main__":
    main()
