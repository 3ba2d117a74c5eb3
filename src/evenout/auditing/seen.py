"""The smallest differences that the tests of an audit would have seen, as measures."""

from typing import NamedTuple

import numpy as np

from evenout.auditing.power import Seen, mean_gap, rate_gap
from evenout.auditing.result import Measure
from evenout.auditing.strata import strata_precision
from evenout.auditing.summary import Resamples
from evenout.auditing.tables import Table
from evenout.auditing.words import shown
from evenout.core.forms import GroupMoments
from evenout.core.types import FloatArray

_NAME = 40  # of a group's name


class Pair(NamedTuple):
    """Two of the groups: those with the lowest and the highest value."""

    low: int
    high: int


def lowest_and_highest(values: FloatArray) -> Pair:
    """The groups with the lowest and the highest value; NaN is neither."""
    return Pair(int(np.nanargmin(values)), int(np.nanargmax(values)))


def seen_mean_gap(
    found: Resamples, moments: GroupMoments, names: tuple[str, ...], confidence: float, n: int
) -> Measure:
    """Between the groups with the lowest and the highest mean, in standard deviations of all n scores."""
    pair = lowest_and_highest(found.value["mean_score"][0])
    noise = moments.variance[0] / moments.count
    permuted = found.permuted["mean_score_test"][:, 0]
    spread = float(np.sqrt(moments.total_variance[0]))
    gap = float("nan")
    if spread > 0:
        error = float(np.sqrt(noise[pair.low] + noise[pair.high]))
        gap = mean_gap(error, permuted, len(names) - 1, confidence) / spread
    held = "sizes and spreads of the groups as they are" + _others(names, "in between")
    return _measure("mean_score_detectable", gap, f"{_between(names, pair)}; {held}", n)


def seen_rate_gap(
    measure: str, found: Resamples, sizes: FloatArray, names: tuple[str, ...], confidence: float
) -> Measure:
    """Between the groups with the lowest and the highest rate, ``measure``, of groups with ``sizes`` rows."""
    rates, n = found.value[measure][0], int(sizes.sum())
    known = ~np.isnan(rates)
    if known.sum() < 2:
        return _measure(f"{measure}_detectable", float("nan"), "", n)
    pair = lowest_and_highest(rates)
    if pair.low == pair.high:  # all the same
        first, second = np.flatnonzero(known)[:2].tolist()
        pair = Pair(first, second)
    share = float((rates[known] * sizes[known]).sum() / sizes[known].sum())
    permuted = found.permuted[f"{measure}_test"][:, 0]

    def seen(low: int, high: int) -> Seen:
        sized = float(sizes[low]), float(sizes[high])
        return rate_gap(*sized, share, permuted, int(known.sum()) - 1, confidence)

    first, above = seen(*pair), f"{_quoted(names[pair.high])} above {_quoted(names[pair.low])}"
    held = "sizes of the groups and rate of all rows as they are" + _others(names, "at that rate")
    if np.isnan(first.difference) and not np.isnan(first.power):
        none = f"even none in {_quoted(names[pair.low])} is seen only {first.power:.0%} of the time"
        held = f"the other way round {none}; {held}"
        first, above = (
            seen(pair.high, pair.low),
            f"{_quoted(names[pair.low])} above {_quoted(names[pair.high])}",
        )
    return _measure(f"{measure}_detectable", first.difference, f"{above}; {held}", n)


def seen_strata_gap(
    found: Resamples, table: Table, means: FloatArray, names: tuple[str, ...], confidence: float
) -> Measure:
    """The same gap in every stratum, between the groups with the lowest and the highest mean.

    If these do not meet in any stratum, between the two groups of which the strata tell most.
    """
    precision, freedom = strata_precision(table.counts, table.values, table.edges)
    pair = lowest_and_highest(means)
    if not precision[pair] > 0:
        pair = Pair(*divmod(int(precision.argmax()), len(names)))
    n, rows = int(table.counts.sum()), table.counts.sum(axis=0)
    spread = float(np.sqrt(np.cov(table.values, fweights=rows, ddof=0)))
    gap = float("nan")
    if precision[pair] > 0 and spread > 0:
        permuted = found.permuted["strata_test"][:, 0]
        unit = max(float(permuted.mean()) / max(freedom, 1), 1.0) if len(permuted) else 1.0
        gap = mean_gap(float(np.sqrt(unit / precision[pair])), permuted, freedom, confidence) / spread
    held = "the same in every stratum, sizes as they are" + _others(names, "in between")
    return _measure("conditional_detectable", gap, f"{_between(names, pair)}; {held}", n)


def _measure(name: str, value: float, note: str, n: int) -> Measure:
    nan = float("nan")
    return Measure(name, None, None, value, nan, nan, nan, nan, n, note)


def _between(names: tuple[str, ...], pair: Pair) -> str:
    return f"between {_quoted(names[pair.low])} and {_quoted(names[pair.high])}"


def _quoted(name: str) -> str:
    return f"'{shown(name, _NAME)}'"


def _others(names: tuple[str, ...], where: str) -> str:
    return f", other groups {where}" if len(names) > 2 else ""
