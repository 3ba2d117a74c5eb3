"""The people of a report: by group, by score, and by who crosses the line between flagged and not flagged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evenout.core.flags import beyond_equal_rates, flag_threshold
from evenout.core.types import AnyArray, BoolArray, FloatArray, IntArray
from evenout.estimator import FairOutlierEnsemble
from evenout.groups.read import Codes
from evenout.metrics import average_precision, roc_auc
from evenout.outcome import short_name
from evenout.report.data import Flags, Moves, Person, Score, Spread
from evenout.report.privacy import Range, guard_counts, pool_bins
from evenout.tables.encoder import TableEncoder

LISTED_PEOPLE = 1000
_LISTED_GROUPS = 40  # shown one by one; of the others the largest flag-rate difference alone
_NAME_LENGTH = 80
SMALL = "too few people to compare"
UNKNOWN = "group not known"
_LOW, _HIGH, _BINS = -3.0, 5.0, 40  # in standard deviations; the end bins hold what lies beyond
EDGES = np.linspace(_LOW, _HIGH, _BINS + 1)


@dataclass(frozen=True)
class People:
    """The rows of a report by group.

    Rows of groups that are too small to be compared make a cell of their own behind these, and rows of unknown group
    another, if there are any.

    ``ids`` and ``codes`` are of n rows; ``names``, ``sizes``, ``shown`` (whether a cell is large enough for its mean to
    be shown) and the two arrays of ``guarded`` (the lowest and the highest size that may be given away) of C cells, of
    which the first ``n_groups`` are protected groups and those ``listed`` are shown one by one. ``contamination`` is
    the share of the rows that is flagged, or how many of them. Cells with fewer people than ``smallest`` are not shown.
    """

    ids: AnyArray
    codes: IntArray
    names: tuple[str, ...]
    sizes: IntArray
    n_groups: int
    listed: IntArray
    contamination: float
    smallest: int
    shown: BoolArray
    guarded: tuple[IntArray, IntArray]

    @classmethod
    def of(cls, ids: Any, groups: Codes, known: BoolArray, *, contamination: float, smallest: int) -> "People":
        """Gather the rows by group; ``known`` (n,): whether a row has a group at all; ids are numbers if not given."""
        codes, names, n = groups.codes.copy(), groups.labels, len(known)
        values = np.arange(n) if ids is None else np.asarray(ids, dtype=object)
        if values.shape != (n,):
            raise ValueError(f"ids must hold one id for each of the {n} rows, got shape {values.shape}")
        for rows, name in ((known & (groups.codes < 0), SMALL), (~known, UNKNOWN)):
            if rows.any():
                codes[rows], names = len(names), (*names, name)
        sizes = np.bincount(codes, minlength=len(names))
        return cls(
            values, codes, names, sizes, len(groups.labels),
            np.sort(np.argsort(-sizes, kind="stable")[:_LISTED_GROUPS]), contamination, smallest,
            sizes >= max(smallest, 1), guard_counts(sizes, np.full(len(sizes), sizes.sum()), smallest),
        )  # fmt: skip

    def name(self, row: int) -> tuple[str, str | None]:
        """Id of a row, and its group where small cells may be shown: both together are the most telling cell of all."""
        return shortened(self.ids[row]), None if self.smallest else shortened(self.names[self.codes[row]])

    def flagged(self, scores: FloatArray) -> BoolArray:
        """Whether each person is flagged by a score, shape (n,)."""
        return scores > flag_threshold(scores, self.contamination)

    def means(self, values: FloatArray) -> FloatArray:
        """Mean of some values in each cell, shape (C,)."""
        return np.bincount(self.codes, weights=values, minlength=len(self.sizes)) / np.maximum(self.sizes, 1)

    def listed_means(self, values: FloatArray, scale: float = 1.0) -> tuple[float | None, ...]:
        """Means of the listed cells over ``scale``; None for cells too small to show."""
        means = self.means(values) / scale
        return tuple(float(means[g]) if self.shown[g] else None for g in self.listed)

    def measured(
        self, scores: FloatArray, outlier: BoolArray | None, biases: tuple[float, float, float, float]
    ) -> tuple[Score, BoolArray]:
        """Measure one score as the page shows it; also whom it flags.

        ``outlier`` (n,) marks known outliers; ``biases`` are the bias on unseen rows, the ends of its interval, and the
        bias on training rows.
        """
        flagged, (bias, lower, upper, training_bias) = self.flagged(scores), map(float, biases)
        groups, shown, deviation = slice(0, self.n_groups), self.shown[: self.n_groups], scores.std()
        counts, (least, largest) = np.bincount(self.codes[flagged], minlength=len(self.sizes)), self.guarded
        fewest, most = guard_counts(counts, self.sizes - counts, self.smallest)
        low, high = fewest / np.maximum(largest, 1), np.minimum(most / np.maximum(least, 1), 1.0)
        exact = self.n_groups >= 2 and not (fewest < most)[groups].any()
        beyond = beyond_equal_rates(counts[groups, None].astype(float), self.sizes[groups])[0] if exact else None
        apart = shown.sum() >= 2 and deviation > 0
        found = 0 if outlier is None else int((flagged & outlier).sum())
        few = min(found, int(flagged.sum()) - found) < max(self.smallest, 1)
        score = Score(
            bias=bias,
            interval=(lower, upper),
            training_bias=training_bias,
            apart=float(np.ptp(self.means(scores)[groups][shown]) / deviation) if apart else None,
            beyond=None if beyond is None else float(beyond),
            auc=None if outlier is None else roc_auc(outlier, scores),
            average_precision=None if outlier is None else average_precision(outlier, scores),
            precision=None if few else found / int(flagged.sum()),
            flags=Flags(
                counts=self.ranges(fewest, most),
                rates=self.ranges(low, high),
                ratio=_ratio(low[groups], high[groups]),
                unflagged=_ratio(1.0 - high[groups], 1.0 - low[groups]),
            ),
            spread=self._spread(scores, deviation or 1.0),
        )
        return score, flagged

    def _spread(self, scores: FloatArray, scale: float) -> Spread:
        """Standardised scores by group."""
        mean, unit, cells = scores.mean(), _BINS / (_HIGH - _LOW), len(self.sizes)
        z = (scores - mean) / scale
        bins = np.clip((z - _LOW) * unit, 0, _BINS - 1).astype(np.intp)
        table = np.bincount(self.codes * _BINS + bins, minlength=cells * _BINS).reshape(-1, _BINS)
        heights = tuple(
            tuple((pool_bins(table[g], self.smallest) * (unit / self.sizes[g])).tolist()) if self.shown[g] else None
            for g in self.listed
        )
        return Spread(self.listed_means(z), heights, float((flag_threshold(scores, self.contamination) - mean) / scale))

    def ranges(self, low: Any, high: Any) -> tuple[Range, ...]:
        """Lowest and highest values of the listed cells, as plain numbers."""
        return tuple(zip(low[self.listed].tolist(), high[self.listed].tolist(), strict=True))


def _ratio(low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Bounds of the smallest over the largest rate, from bounds of the rates; any value for fewer than two groups."""
    if len(low) < 2:
        return 0.0, 1.0
    bottom = low.min() / high.max() if high.max() > 0 else 1.0
    top = high.min() / low.max() if low.max() > 0 else 1.0
    return float(bottom), float(min(top, 1.0))


def shortened(text: object) -> str:
    """A name as the page shows it."""
    return short_name(text, _NAME_LENGTH)


@dataclass(frozen=True)
class Fitted:
    """The input of the sections of a page.

    ``scores`` are those before and after fairness, ``used`` the groups of the rows where detectors use them, and
    ``reasons`` is how many of them each person gets; the rest is as in `write_report`.
    """

    model: FairOutlierEnsemble
    X: Any
    sensitive: Any
    given: Any
    table: TableEncoder | None
    used: Any
    scores: tuple[FloatArray, FloatArray]
    people: People
    reasons: int


class Section(NamedTuple):
    """A part of the page.

    ``collect`` gives what it shows as plain data, its ``part`` in the template; where that is None, it is left out.
    Its template is ``template``, or the file of its name.
    """

    name: str
    collect: Callable[[Fitted], Any] | None = None
    template: str = ""


def ranks_of(scores: FloatArray, rows: IntArray) -> IntArray:
    """Ranks of some rows, 1 = highest score; equal scores share the best rank.

    >>> ranks_of(np.array([0.2, 0.9, 0.2]), np.array([0, 1, 2])).tolist()
    [2, 1, 2]
    """
    return len(scores) - np.searchsorted(np.sort(scores), scores[rows], side="right") + 1


def list_moves(
    people: People, crossings: Sequence[tuple[IntArray, IntArray]], base: FloatArray, base_flagged: BoolArray
) -> tuple[tuple[Person, ...], tuple[Moves, ...]]:
    """One table of the people whose rank changes most when they cross, and for each step who of them crosses.

    ``crossings`` are, for each step, the rows whose flag differs from that of the base ensemble, and their ranks there;
    ``base`` and ``base_flagged`` (n,) the base ensemble's score, and whom it flags. Where fewer people enter, or leave,
    than the smallest cell has, they are neither counted nor listed.
    """
    counts, shown, smallest = [], [], people.smallest
    for rows, ranks in crossings:
        leaves = base_flagged[rows].astype(np.intp)
        counts.append((len(rows) - int(leaves.sum()), int(leaves.sum())))
        keep = np.array([n >= smallest for n in counts[-1]])[leaves]
        shown.append((rows[keep], ranks[keep]))
    every = np.unique(np.concatenate([rows for rows, _ in shown]))
    base_ranks = ranks_of(base, every)
    moved = np.zeros(len(every), dtype=np.intp)
    for rows, ranks in shown:
        at = np.searchsorted(every, rows)
        moved[at] = np.maximum(moved[at], np.abs(ranks - base_ranks[at]))
    most = np.argsort(-moved, kind="stable")[:LISTED_PEOPLE]
    rows, place_of = every[most], np.full(len(base), -1, dtype=np.intp)
    place_of[rows] = np.arange(len(rows))
    known = zip(map(people.name, rows), base_ranks[most].tolist(), base_flagged[rows].tolist(), strict=True)
    listed = tuple(Person(identity, rank, leaves, group) for (identity, group), rank, leaves in known)
    moves = []
    for (rows, ranks), count in zip(shown, counts, strict=True):
        places = place_of[rows]
        order = np.argsort(places)[(places < 0).sum() :]
        # Nobody is nobody; a few are "fewer than".
        enter, leave = ((1, smallest - 1) if 0 < n < smallest else (n, n) for n in count)
        moves.append(Moves(enter, leave, tuple(places[order].tolist()), tuple(ranks[order].tolist())))
    return listed, tuple(moves)
