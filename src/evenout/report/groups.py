"""From one score of all rows to what the report shows of it."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from evenout.core.flags import beyond_equal_rates, flag_threshold
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.groups.read import Codes
from evenout.metrics import read_labels
from evenout.outcome import short_name
from evenout.report.privacy import Range, guard_counts, pool_bins

Labels: TypeAlias = Literal["absent", "too few", "shown"]

_LISTED_GROUPS = 40  # shown one by one; of the others the largest flag-rate difference alone
_NAME_LENGTH = 80
SMALL = "too few people to compare"
UNKNOWN = "group not known"
_LOW, _HIGH, _BINS = -3.0, 5.0, 40  # in standard deviations; the end bins hold what lies beyond
EDGES = np.linspace(_LOW, _HIGH, _BINS + 1)


@dataclass(frozen=True)
class Group:
    """A protected group and its number of people."""

    name: str
    size: Range


@dataclass(frozen=True)
class Flags:
    """Flagged people of each group, their share of the group, and the lowest share over the highest.

    ``unflagged`` is the lowest over the highest share of people who are not flagged.
    """

    counts: tuple[Range, ...]
    rates: tuple[Range, ...]
    ratio: Range
    unflagged: Range


@dataclass(frozen=True)
class Spread:
    """Scores in standard deviations from the mean of all people.

    ``means`` by group; ``heights`` by group, a density over the report's bins; ``threshold``: who lies above is
    flagged. None for groups too small to show.
    """

    means: tuple[float | None, ...]
    heights: tuple[tuple[float, ...] | None, ...]
    threshold: float


@dataclass(frozen=True)
class People:
    """The rows of a report by group.

    Rows of groups that are too small to be compared make a cell of their own behind these, and rows of unknown group
    another, if there are any.

    Parameters
    ----------
    codes : array of shape (n,)
    names : tuple of C str
    sizes : array of shape (C,)
    n_groups : int
        The first cells, G of them, are protected groups.
    listed : array of int
        The cells that are shown one by one.
    contamination : float or int
        Share of the rows that is flagged, or how many of them.
    smallest : int
        Cells with fewer people are not shown.
    """

    codes: IntArray
    names: tuple[str, ...]
    sizes: IntArray
    n_groups: int
    listed: IntArray
    contamination: float
    smallest: int

    def groups(self) -> tuple[Group, ...]:
        """Names and guarded sizes of the listed cells."""
        low, high = self._guarded_sizes()
        return tuple(Group(shortened(self.names[g]), (int(low[g]), int(high[g]))) for g in self.listed)

    def flagged(self, scores: FloatArray) -> BoolArray:
        """Who is flagged by a score."""
        return scores > flag_threshold(scores, self.contamination)

    def flags(self, flagged: BoolArray) -> Flags:
        """Guarded counts and rates of each listed cell, and the ratios of rates over all groups."""
        counts = np.bincount(self.codes[flagged], minlength=len(self.sizes))
        low, high = guard_counts(counts, self.sizes - counts, self.smallest)
        least, most = self._guarded_sizes()
        rate_low = low / np.maximum(most, 1)
        rate_high = np.minimum(high / np.maximum(least, 1), 1.0)
        known = slice(0, self.n_groups)
        return Flags(
            counts=tuple((int(low[g]), int(high[g])) for g in self.listed),
            rates=tuple((float(rate_low[g]), float(rate_high[g])) for g in self.listed),
            ratio=_ratio(rate_low[known], rate_high[known]),
            unflagged=_ratio(1.0 - rate_high[known], 1.0 - rate_low[known]),
        )

    def spread(self, scores: FloatArray) -> Spread:
        """Standardised scores by group."""
        mean, scale = scores.mean(), scores.std() or 1.0
        threshold = flag_threshold(scores, self.contamination)
        z = (scores - mean) / scale
        means = np.bincount(self.codes, weights=z, minlength=len(self.sizes)) / np.maximum(self.sizes, 1)
        bins = np.clip((z - _LOW) * (_BINS / (_HIGH - _LOW)), 0, _BINS - 1).astype(np.intp)
        size = len(self.sizes) * _BINS
        table = np.bincount(self.codes * _BINS + bins, minlength=size).reshape(-1, _BINS)
        seen = [bool(self.sizes[g] >= max(self.smallest, 1)) for g in self.listed]
        unit = _BINS / (_HIGH - _LOW)
        return Spread(
            means=tuple(float(means[g]) if ok else None for g, ok in zip(self.listed, seen, strict=True)),
            heights=tuple(
                tuple((pool_bins(table[g], self.smallest) * (unit / self.sizes[g])).tolist()) if ok else None
                for g, ok in zip(self.listed, seen, strict=True)
            ),
            threshold=float((threshold - mean) / scale),
        )

    def taken(self, off: FloatArray, base: FloatArray) -> tuple[float | None, ...]:
        """Mean of what is taken off the people of each listed cell, in standard deviations of the base score."""
        sums = np.bincount(self.codes, weights=off - off.mean(), minlength=len(self.sizes))
        means = sums / np.maximum(self.sizes, 1) / (base.std() or 1.0)
        return tuple(float(means[g]) if self.sizes[g] >= max(self.smallest, 1) else None for g in self.listed)

    def precision(self, flagged: BoolArray, outlier: BoolArray | None) -> float | None:
        """Share of known outliers among the flagged, if there are enough of both kinds."""
        if outlier is None or not flagged.any():
            return None
        found = int((flagged & outlier).sum())
        few = min(found, int(flagged.sum()) - found) < max(self.smallest, 1)
        return None if few else found / int(flagged.sum())

    def apart(self, scores: FloatArray) -> float | None:
        """Largest difference of two groups' averages, in standard deviations; of groups that may be shown."""
        sizes, deviation = self.sizes[: self.n_groups], scores.std()
        shown = sizes >= max(self.smallest, 1)
        if shown.sum() < 2 or not deviation > 0:
            return None
        sums = np.bincount(self.codes, weights=scores, minlength=len(self.sizes))[: self.n_groups]
        return float(np.ptp(sums[shown] / sizes[shown]) / deviation)

    def beyond(self, flagged: BoolArray) -> float | None:
        """Flagged people beyond what equal rates of all groups would give, where every count may be shown."""
        counts = np.bincount(self.codes[flagged], minlength=len(self.sizes))
        low, high = guard_counts(counts, self.sizes - counts, self.smallest)
        groups = slice(0, self.n_groups)
        if self.n_groups < 2 or (low < high)[groups].any():
            return None
        return float(beyond_equal_rates(counts[groups, None].astype(float), self.sizes[groups])[0])

    def _guarded_sizes(self) -> tuple[IntArray, IntArray]:
        return guard_counts(self.sizes, np.full(len(self.sizes), self.sizes.sum()), self.smallest)


def gather(groups: Codes, known: BoolArray, *, contamination: float, smallest: int) -> People:
    """The rows by group, ready to be measured; ``known`` (n,): whether a row has a group at all."""
    n_groups, names = len(groups.labels), groups.labels
    codes = groups.codes.copy()
    for rows, name in ((known & (groups.codes < 0), SMALL), (~known, UNKNOWN)):
        if rows.any():
            codes[rows], names = len(names), (*names, name)
    sizes = np.bincount(codes, minlength=len(names))
    listed = np.sort(np.argsort(-sizes, kind="stable")[:_LISTED_GROUPS])
    return People(codes, names, sizes, n_groups, listed, contamination, smallest)


def show_labels(labels: Any, n: int, smallest: int) -> tuple[BoolArray | None, Labels]:
    """Known outliers as a mask, if there are enough of both kinds to be shown."""
    if labels is None:
        return None, "absent"
    outlier = read_labels(labels, n)
    few = min(int(outlier.sum()), n - int(outlier.sum())) < max(smallest, 1)
    return (None, "too few") if few else (outlier, "shown")


def shortened(text: object) -> str:
    """A name as the page shows it."""
    return short_name(text, _NAME_LENGTH)


def _ratio(low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Bounds of the smallest over the largest rate, from bounds of the rates; any value for fewer than two groups."""
    if len(low) < 2:
        return 0.0, 1.0
    bottom = low.min() / high.max() if high.max() > 0 else 1.0
    top = high.min() / low.max() if low.max() > 0 else 1.0
    return float(bottom), float(min(top, 1.0))
