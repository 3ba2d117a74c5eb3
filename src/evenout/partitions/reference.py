"""The reference: the rows that detectors are fitted on when there are too many rows to fit on all of them.

Whether a row is drawn is decided by its own content, in units where there are some, and the seed, so the reference
depends neither on how the rows are cut into partitions nor on their order. Every group keeps a share of its own, so
that small groups are present.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.units import Units
from evenout.inputs.coder import Coder
from evenout.inputs.groups import settle_names, warn_left_out
from evenout.partitions.engines import Engine, Part, read_rows
from evenout.partitions.survey import Numbers, Survey, content_numbers

_LEAST = 1000  # rows of each group in the reference, where it has as many and the reference has room
_UNIT = 2.0**64  # row numbers lie below this


@dataclass(frozen=True)
class Settled:
    """The groups of all rows.

    Parameters
    ----------
    labels : tuple of str
    codes : mapping
        From each name that occurs to its group's place in ``labels``; small groups may share one. -1 for a group that
        is left out.
    counts : array of int, (G + 1,)
        Rows of each group; the last entry counts those of unknown group, or of one that is left out.
    left_out : dict of str to int
        Groups that are too small to be measured, and their rows.
    """

    labels: tuple[str, ...]
    codes: Mapping[str, int]
    counts: IntArray
    left_out: dict[str, int]


@dataclass(frozen=True)
class Reference:
    """Drawn rows: features (m, d), group codes (m,), group names (m,), columns as numbers (m, c), `Rows.known` (m, 2).

    If ``complete``, all rows in their order.
    """

    X: FloatArray
    codes: IntArray
    labels: npt.NDArray[np.object_]
    columns: FloatArray
    known: FloatArray
    complete: bool


def settle_groups(survey: Survey, *, min_group_size: int, small_groups: str, quiet: bool = False) -> Settled:
    """Refuse or merge small groups by the rules for rows in memory; probable groups are settled elsewhere."""
    if survey.probable:
        total = np.array([*(survey.tally[name] for name in survey.probable), survey.unknown], dtype=np.intp)
        return Settled(survey.probable, {name: code for code, name in enumerate(survey.probable)}, total, {})
    groups, codes = settle_names(survey.tally, min_group_size=min_group_size, small_groups=small_groups)
    names = sorted(survey.tally)
    counts = np.array([survey.tally[name] for name in names], dtype=np.intp)
    total = np.zeros(len(groups.labels) + 1, dtype=np.intp)
    np.add.at(total, [codes[name] for name in names], counts)
    total[-1] += survey.unknown
    if not quiet:
        warn_left_out(groups, min_group_size)
    return Settled(groups.labels, codes, total, groups.left_out)


def draw_reference(
    engine: Engine,
    survey: Survey,
    groups: Settled,
    *,
    reference_size: int,
    seed: int,
    coder: Coder | None = None,
    units: Units | None = None,
) -> Reference:
    """Draw about ``reference_size`` rows, or take all if there are no more.

    Rows that occur more than ``n / reference_size`` times are drawn in proportion; of others all copies come or none.
    """
    rates = sampling_rates(groups.counts, reference_size)
    often = survey.frequent.at_least(1.0 / rates.min()) if rates.min() < 1 else np.empty(0, dtype=np.uint64)
    shared = groups.codes, rates, often, seed, coder, engine.share(units)
    drawn = engine.reduce(_draw_part, _Drawn.__add__, *shared)
    complete = bool((rates == 1).all())
    copies = drawn.copies(rates)
    rows = np.repeat(np.arange(len(copies)), copies)
    if not complete:  # by content, as forests depend on the order
        rows = rows[np.argsort(drawn.numbers[rows], kind="stable")]
    X, codes, labels = drawn.X[rows], drawn.codes[rows], drawn.labels[rows]
    return Reference(X, codes, labels, drawn.columns[rows], drawn.known[rows], complete)


def sampling_rates(counts: IntArray, reference_size: int) -> FloatArray:
    """Share of each group's rows to draw, shape as ``counts``; 1 for an empty group.

    Every group gets up to 1000 rows, half of the reference at most together; the rest is drawn in proportion.

    >>> sampling_rates(np.array([10, 100_000, 0]), 1000).round(6).tolist()
    [1.0, 0.0099, 1.0]
    """
    n = int(counts.sum())
    if n <= reference_size:
        return np.ones(len(counts))
    room = reference_size // (2 * int(np.count_nonzero(counts)))
    least = np.minimum(counts, min(_LEAST, room))
    share = (reference_size - least.sum()) / (n - least.sum())
    wanted = least + share * (counts - least)
    return np.where(counts > 0, wanted / np.maximum(counts, 1), 1.0)


@dataclass(frozen=True)
class _Drawn:
    """Candidates: rows that count once, and rows that occur often, with how often they were seen."""

    X: FloatArray
    codes: IntArray
    labels: npt.NDArray[np.object_]
    columns: FloatArray
    known: FloatArray
    numbers: Numbers
    counts: IntArray
    often: BoolArray

    def __add__(self, other: "_Drawn") -> "_Drawn":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Drawn(*(np.concatenate(pair) for pair in pairs))._joined()

    def _joined(self) -> "_Drawn":
        """Equal rows that occur often become one row with their counts added."""
        often = np.flatnonzero(self.often)
        _, first, place = np.unique(self.numbers[often], return_index=True, return_inverse=True)
        kept = np.sort(np.r_[np.flatnonzero(~self.often), often[first]])
        counts = self.counts.copy()
        counts[often[first]] = np.bincount(place, self.counts[often], minlength=len(first)).astype(np.intp)
        parts = {**vars(self), "counts": counts}
        return _Drawn(**{name: values[kept] for name, values in parts.items()})

    def copies(self, rates: FloatArray) -> IntArray:
        """How often each candidate enters the reference, shape (m,)."""
        rate, chance = rates[self.codes], self.numbers / _UNIT
        expected = self.counts * rate
        thinned = np.where(expected >= 1, np.floor(expected + chance), self.counts * (chance < rate))
        return np.where(self.often, thinned, 1).astype(np.intp)


def _draw_part(
    part: Part,
    known: Mapping[str, int],
    rates: FloatArray,
    often: Numbers,
    seed: int,
    coder: Coder | None,
    units: Units | None,
) -> _Drawn:
    rows = read_rows(part, coder)
    codes, numbers = rows.codes(known), content_numbers(rows, seed, units)
    repeated = np.isin(numbers, often) & (rates[codes] < 1)
    taken = repeated | (numbers / _UNIT < rates[codes]) | (rates[codes] >= 1)
    counts = np.ones(len(codes), dtype=np.intp)
    candidates = _Drawn(rows.X, codes, rows.labels(), rows.numbers, rows.known(), numbers, counts, repeated)
    return _Drawn(*(values[taken] for values in vars(candidates).values()))._joined()
