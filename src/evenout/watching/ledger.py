"""The sums that a watch keeps, and figures made of them: gaps, alarms with their dates, flag rates, drift and mix.

Any two groups are compared within each batch, so what moves all scores of a batch moves no gap, and neither does
another mix of groups. Batches add up by how much each says. Nothing that is kept is about fewer than `FEWEST` people.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from evenout.core.intervals import (
    change_range,
    log_evidence,
    look_share,
    person_signs,
    reach_by_person,
    start_shares,
    upper_bound,
)
from evenout.core.membership import Membership
from evenout.core.ruler import Sample, ratio
from evenout.core.types import FINITE, MOST_ROWS, BoolArray, FloatArray, IntArray, Within, require
from evenout.exceptions import InputError

FEWEST = 5  # people of a group, at the start and in a batch, of whom anything is kept
KNOTS = 1024  # at most so many means of scores are kept of the start,
_ROWS = 10  # each of at least so many rows
SUMS = ("counts", "ranks", "flagged", "rank_spread", "flag_spread", "people")
_MEASURED = SUMS[1:3]
Persons = tuple[IntArray, list[str]]  # codes of the rows, and what the codes stand for
_PEOPLE = 20  # of the smaller group, from which on a test by person has its level


@dataclass(frozen=True, eq=False)
class Baseline:
    """The start of a watch, which later rows are ranked among and held against."""

    knots: Annotated[FloatArray, "m"]  # means of scores next to each other, ascending, each of `_ROWS` rows or more
    rows: Annotated[int, Within(1, MOST_ROWS)]
    threshold: Annotated[float, FINITE]  # rows that score above are flagged
    labels: tuple[str, ...]  # groups that are compared; of each its rows, mean rank and flag rate:
    counts: Annotated[IntArray, "G", Within(FEWEST, MOST_ROWS)]
    ranks: Annotated[FloatArray, "G", Within(0, 1)]
    flagged: Annotated[FloatArray, "G", Within(0, 1)]
    low: Annotated[FloatArray, "Q", Within(-1, 1)]  # ends of the gap of mean ranks of each pair of groups,
    high: Annotated[FloatArray, "Q", Within(-1, 1)]  # the first less the second
    left_out: Mapping[str, Annotated[int, Within(0, MOST_ROWS)]]  # groups of fewer than `FEWEST` people, and their rows
    name: str = ""  # of the rows, if they were a batch

    def check(self) -> None:
        """Groups have a name each, and pairs of them an interval."""
        G = len(self.labels)
        require(0 < len(self.knots) <= KNOTS and (np.diff(self.knots) >= 0).all(), "knots", "are not in order")
        require(len({*self.labels}) == G == len(self.counts) >= 2, "labels", "are no groups")
        intervals = len(self.low) == G * (G - 1) // 2 and (self.low <= self.high).all()
        require(intervals, "low", "and high are no intervals")

    @classmethod
    def of(
        cls,
        knots: FloatArray,
        threshold: float,
        labels: tuple[str, ...],
        left_out: Mapping[str, int],
        ranks: FloatArray,
        flagged: BoolArray,
        codes: IntArray,
        people: IntArray | None,
        level: float,
        name: str = "",
    ) -> "Baseline":
        """Sum up rows with a rank, a flag, a group, -1 for none, and perhaps a person.

        Gaps have errors by person, and each end is missed with a chance of ``level`` (Student's t). One more row of a
        uniform rank, 1/12, counts towards a group's error, so that five equal rows are not taken for a law.
        """
        sample = Sample(Membership.of_codes(codes, len(labels)), clusters=people)
        means, first, second = sample.measure(ranks), *np.triu_indices(len(labels), 1)
        counts, size = np.bincount(codes[codes >= 0]), np.maximum(means.size, 2.0)
        noise = np.diag(means.cov) + 1.0 / (12.0 * size * (size - 1.0))
        noise = noise[first] + noise[second] - 2.0 * means.cov[first, second]
        reach = -stdtrit(np.minimum(size[first], size[second]) - 1.0, level) * np.sqrt(np.maximum(noise, 0.0))
        gap, rates = means.mean[first] - means.mean[second], sample.means(flagged)
        low, high = np.maximum(gap - reach, -1.0), np.minimum(gap + reach, 1.0)
        return cls(knots, len(ranks), threshold, labels, counts, means.mean, rates, low, high, left_out, name)

    @property
    def digest(self) -> str:
        """Equal for two watches that began alike, and the salt of their persons."""
        settings = repr((self.rows, self.threshold, self.labels)).encode()
        numbers = self.knots.tobytes() + self.counts.astype(np.int64).tobytes()
        return hashlib.sha256(numbers + settings + self.low.tobytes() + self.high.tobytes()).hexdigest()


def summarise(scores: FloatArray) -> FloatArray:
    """Means of scores next to each other, ascending: no single score, but for those that many rows share."""
    parts = np.array_split(np.sort(scores), max(1, min(KNOTS, len(scores) // _ROWS)))
    return np.array([np.clip(part.mean(), part[0], part[-1]) for part in parts])


def rank_among(knots: FloatArray, scores: FloatArray) -> FloatArray:
    """The share of the knots that is lower, with half of what is the same; in [0, 1], shape (n,)."""
    below, upto = (np.searchsorted(knots, scores, side=side) for side in ("left", "right"))
    return (below + upto) / (2.0 * len(knots))


def sum_rows(
    scores: FloatArray, codes: IntArray, persons: Persons | None, start: Baseline, guesses: FloatArray
) -> tuple[FloatArray, FloatArray, dict[str, int]]:
    """Both kinds of sums of one batch (see `Ledger`), and the rows of groups with too few people.

    Rows have a group, -1 for none, and perhaps a person; ``guesses`` (2, G) are of mean rank and flag rate.
    """
    G = len(start.labels)
    who, names = (np.arange(len(codes)), []) if persons is None else persons
    people = np.bincount(np.unique(who * (G + 1) + codes + 1) % (G + 1), minlength=G + 1)[1:].astype(float)
    few = people < FEWEST
    others = {start.labels[g]: int((codes == g).sum()) for g in np.flatnonzero(few & (people > 0))}
    kept = (codes >= 0) & ~few[codes]
    codes, who, scores, people = codes[kept], who[kept], scores[kept], np.where(few, 0.0, people)

    def total(column: FloatArray) -> FloatArray:
        return np.bincount(codes, weights=column, minlength=G).astype(float)

    values = rank_among(start.knots, scores), (scores > start.threshold).astype(float)
    counts, sums = total(np.ones(len(codes))), [total(x) for x in values]
    spreads = [total((x - guess[codes]) ** 2) for x, guess in zip(values, guesses, strict=True)]
    if persons is None:
        return np.array([counts, *sums, *spreads, 0.0 * people]), np.zeros((2, G, 0)), others
    signs, scale = person_signs(names, start.digest), np.sqrt(people / np.maximum(people - 1.0, 1.0))
    signed = []
    for x, added in zip(values, sums, strict=True):
        left = x - (added / np.maximum(counts, 1.0))[codes]
        of_each = np.bincount(who * G + codes, weights=left, minlength=len(names) * G)
        signed.append(scale[:, None] * (of_each.reshape(len(names), G).T @ signs))
    return np.array([counts, *sums, *spreads, people]), np.array(signed), others


@dataclass(frozen=True)
class Contrast:
    """Differences between two groups, by place: weighted sums, their weights and spread, (P, Q) each.

    ``people`` (P, Q, 2) are those of each group in any one batch, and ``signed`` (P, Q, 2, S) each group's part of the
    sums with signs; where people are not known, S is 0.
    """

    sums: FloatArray
    weight: FloatArray
    spread: FloatArray
    people: FloatArray
    signed: FloatArray

    def __getitem__(self, which: Any) -> "Contrast":
        """Some of the places, or of the pairs."""
        return Contrast(*(part[which] for part in vars(self).values()))

    def until(self) -> "Contrast":
        """Up to each place: everything that came before is added."""
        people = np.maximum.accumulate(self.people)
        return replace(Contrast(*(part.cumsum(axis=0) for part in vars(self).values())), people=people)

    def since(self) -> "Contrast":
        """From each place on: everything that came later is added."""
        return self[::-1].until()[::-1]

    def reach(self, level: FloatArray | float) -> FloatArray:
        """Bound on the error of the sums, exceeded with a chance of ``level`` at most."""
        if not self.signed.shape[-1]:
            return upper_bound(self.spread, level)
        return np.where(self.people.min(axis=-1) >= _PEOPLE, reach_by_person(self.signed, self.people, level), np.inf)

    def interval(self, level: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Ends of the difference, each missed with a chance of ``level`` at most; -1 and 1 where nothing is known."""
        reach, known = self.reach(level), self.weight > 0
        weight = np.where(known, self.weight, 1.0)
        low, high = (np.where(known, (self.sums + sign * reach) / weight, sign) for sign in (-1.0, 1.0))
        return np.maximum(low, -1.0), np.minimum(high, 1.0)

    @property
    def mean(self) -> FloatArray:
        """The difference itself, NaN where nothing is known."""
        return ratio(self.sums, self.weight)


class Ledger:
    """Sums of B batches in G groups, in the order of their places; all 0 for a group of fewer than `FEWEST` people.

    Parameters
    ----------
    names : tuple of str
    places : array of shape (B,)
        Which batch each was where it was counted, from 1; merged watches may have several at one place.
    sums : array of shape (B, 6, G)
        `SUMS`: rows, their ranks, those flagged, squared distances of ranks and flags from what was guessed before the
        batch came, and people, 0 if they are not known.
    signed : array of shape (B, 2, G, S)
        Sums of ranks and of flags less their means in the batch and group, with the signs of the persons; S is 0 if
        these are not known.
    others : tuple of dict of str to int
        Rows that are not compared; those without a group are under "".
    """

    def __init__(
        self,
        names: tuple[str, ...],
        places: IntArray,
        sums: FloatArray,
        signed: FloatArray,
        others: tuple[dict[str, int], ...],
    ) -> None:
        self.names, self.places, self.sums, self.signed, self.others = names, places, sums, signed, others
        self.by_person = bool(signed.shape[-1])
        self.distinct, self._at = np.unique(places, return_inverse=True)  # the P places that occur
        self.columns = dict(zip(SUMS, np.moveaxis(sums, 1, 0), strict=True))  # (B, G) each
        self.total = {name: column.sum(axis=0) for name, column in self.columns.items()}  # (G,) each

    def joined(self, other: "Ledger") -> "Ledger":
        """Batches of both; those that both have must be of the same rows, though guesses may differ."""
        if not self.names or not other.names:
            return self if self.names else other
        if self.by_person != other.by_person:
            raise InputError("a watch with {@person} and one without it cannot be merged; give it to both or none")
        new = []
        for j, name in enumerate(other.names):
            i = self.names.index(name) if name in self.names else None
            if i is None:
                new.append(j)
            elif not (
                np.array_equal(self.sums[i, :3], other.sums[j, :3])
                and np.array_equal(self.signed[i], other.signed[j])
                and self.others[i] == other.others[j]
            ):
                raise InputError(
                    "both watches have a batch {name!r}, with different rows; give each batch a name of its own",
                    name=name,
                )
        names, others = (*self.names, *(other.names[j] for j in new)), (*self.others, *(other.others[j] for j in new))
        places, sums, signed = (
            np.concatenate([getattr(self, part), getattr(other, part)[new]]) for part in ("places", "sums", "signed")
        )
        order = sorted(range(len(names)), key=lambda b: (places[b], names[b]))
        names, others = tuple(names[b] for b in order), tuple(others[b] for b in order)
        return Ledger(names, places[order], sums[order], signed[order], others)

    def names_at(self, place: int) -> str:
        """Names of the batches at one of the P places, counted from 0."""
        return ", ".join(name for name, at in zip(self.names, self._at, strict=True) if at == place)

    def by_place(self, values: FloatArray) -> FloatArray:
        """Sum (B, ...) over the batches of each place: (P, ...)."""
        summed = np.zeros((len(self.distinct), *values.shape[1:]))
        np.add.at(summed, self._at, values)
        return summed

    def contrast(self, name: str, own: float = 1.0, rest: float = 1.0) -> Contrast:
        """``own`` times the mean of the first of each pair less ``rest`` times that of the second.

        Of "ranks" or "flagged". Within a batch a pair counts by the inverse of its variance, so that no row counts
        more than once.
        """
        k, (first, second) = _MEASURED.index(name), np.triu_indices(self.sums.shape[-1], 1)
        n, x, spread, people = self.sums[:, 0], self.sums[:, 1 + k], self.sums[:, 3 + k], self.sums[:, 5]
        size = np.maximum(n, 1.0)
        both = (n[:, first] > 0) & (n[:, second] > 0)
        weight = np.where(both, 1.0 / (1.0 / size[:, first] + 1.0 / size[:, second]), 0.0)
        here, there = own * weight / size[:, first], rest * weight / size[:, second]
        most = np.zeros((len(self.distinct), len(first), 2))
        np.maximum.at(most, self._at, np.stack([people[:, first], people[:, second]], axis=-1))
        parts = here[..., None] * self.signed[:, k, first], -there[..., None] * self.signed[:, k, second]
        return Contrast(
            self.by_place(here * x[:, first] - there * x[:, second]),
            self.by_place(weight),
            self.by_place(here**2 * spread[:, first] + there**2 * spread[:, second]),
            most,
            self.by_place(np.stack(parts, axis=2)),
        )

    def means(self, name: str, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of "ranks" or "flagged" of each group over all batches, and its ends, (G,) each; NaN without rows."""
        k, people = _MEASURED.index(name), self.columns["people"].max(axis=0, initial=0.0)
        n, x, spread = (self.sums[:, i].sum(axis=0) for i in (0, 1 + k, 3 + k))
        signed = self.signed[:, k].sum(axis=0)
        whole = Contrast(x[None], n[None], spread[None], people[None, :, None], signed[None, :, None])
        low, high = (np.where(n > 0, end[0], np.nan) for end in whole.interval(level))
        return whole.mean[0], np.maximum(low, 0.0), high


@dataclass(frozen=True)
class WatchSettings:
    """The arguments of `FairnessMonitor`, checked."""

    tolerance: float | str | dict[str, float]
    flag_rate_ratio: float | None
    false_alarms: float
    contamination: float
    min_size: int
    small: str
    unknown: str


@dataclass(frozen=True)
class Alarm:
    """A promise that is not kept.

    Parameters
    ----------
    promise : {"ranks", "flags"}
    group, than : str
        The group that is ranked higher, or flagged more, and the group that it is compared with.
    since : str
        The batch since which this is likeliest so.
    earliest, latest : str
        The range of batches in which it began.
    raised : str
        The batch with which it became certain.
    low, high : float
        Ends of the gap on average since ``since``: of mean ranks, or of flag rates.
    """

    promise: Annotated[str, ("ranks", "flags")]
    group: str
    than: str
    since: str
    earliest: str
    latest: str
    raised: str
    low: Annotated[float, FINITE]
    high: Annotated[float, FINITE]


class Shift(NamedTuple):
    """Intervals of a mean at the start and since; ``moved`` is 1 or -1 if it is higher or lower since, else 0."""

    before: tuple[float, float]
    since: tuple[float, float]
    moved: int


class Findings:
    """All figures of a watch, from its start and its sums, at one look (counted from 1)."""

    def __init__(self, reference: Baseline, ledger: Ledger, settings: WatchSettings, look: int) -> None:
        self.reference, self.ledger, self.settings, self.look = reference, ledger, settings, look
        self.first, self.second = np.triu_indices(len(reference.labels), 1)
        given, labels = settings.tolerance, reference.labels
        own = given if isinstance(given, Mapping) else dict.fromkeys(labels, 0.0 if given == "start" else given)
        each = np.array([own.get(label, 0.0) for label in labels], dtype=float)
        most = np.maximum(each[self.first], each[self.second])
        # Gaps of ranks within the promise, ends for each pair (Q,): as far apart as the larger of two tolerances, or
        # as at the start, or nearer.
        self.promised = -most, most
        if given == "start":
            self.promised = np.minimum(reference.low, 0.0), np.maximum(reference.high, 0.0)
        # The rate of what is said beside alarms, at this look, and that of one pair, promise and direction.
        self._rate = settings.false_alarms * (look_share(max(look, 1)) if ledger.by_person else 1.0)
        n_promises = (given != 1) + (settings.flag_rate_ratio is not None)
        self.level = self._rate * (0.5 if given == "start" else 1.0) / (2.0 * max(n_promises, 1) * len(self.first))

    def kept(self, promise: str) -> bool:
        """Whether all batches together show that no two groups are further apart than promised: "ranks" or "flags"."""
        if not self.ledger.names:
            return False
        if promise == "ranks":
            (_, low, high), (least, most) = self.gaps, self.promised
            return bool(((least <= low) & (high <= most)).all())
        ratio, level = self.settings.flag_rate_ratio, 0.5 * self.level
        assert ratio is not None
        (_, high), (low, _) = (
            self.ledger.contrast("flagged", **part).until()[-1:].interval(level)
            for part in ({"own": ratio}, {"rest": ratio})
        )
        return bool((high <= 0).all() and (low >= 0).all())

    @cached_property
    def gaps(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The gap of ranks of each pair over all batches, or at the start if there is none; and its ends, (Q,) each."""
        if not self.ledger.names:
            means = self.reference.ranks
            return means[self.first] - means[self.second], self.reference.low, self.reference.high
        whole = self.ledger.contrast("ranks").until()[-1:]
        low, high = whole.interval(0.5 * self.level)
        return whole.mean[0], low[0], high[0]

    def alarms(self) -> list[Alarm]:
        """Pairs of groups whose gap, since one batch or another, is certain to be too large; the surest first."""
        if not self.ledger.names:
            return []
        (low, high), ratio, contrast = self.promised, self.settings.flag_rate_ratio, self.ledger.contrast
        ranks = contrast("ranks")
        alarms = self._beyond("ranks", ranks, 1.0, high, ranks) + self._beyond("ranks", ranks, -1.0, -low, ranks)
        if ratio is not None:
            flags, none = contrast("flagged"), np.zeros(len(self.first))
            alarms += self._beyond("flags", contrast("flagged", own=ratio), 1.0, none, flags)
            alarms += self._beyond("flags", contrast("flagged", rest=ratio), -1.0, none, flags)
        return [alarm for _, alarm in sorted(alarms, key=lambda each: -each[0])]

    def _beyond(
        self, promise: str, tested: Contrast, sign: float, bound: FloatArray, shown: Contrast
    ) -> list[tuple[float, Alarm]]:
        """Alarms in one direction, where ``sign * tested`` is certain to be above the bound; with the least excess."""
        since, level = tested.since(), self.level * start_shares(self.ledger.distinct)[:, None]
        beyond = sign * since.sums - bound * since.weight
        alarms = []
        if self.ledger.by_person:
            exceeded = beyond > since.reach(level)
        else:
            exceeded = log_evidence(np.maximum(beyond, 0.0), since.spread, level) > -np.log(level)
        for q in np.flatnonzero(exceeded.any(axis=0)).tolist():
            one, at = since[:, [q]], tested[:, [q]]
            least = float(((beyond[:, [q]] - one.reach(level)) / np.where(one.weight > 0, one.weight, np.inf)).max())
            noise = max(float(at.spread.sum() / at.weight.sum()), 1e-12)
            excess = (sign * at.sums - bound[q] * at.weight)[:, 0]
            began = change_range(excess / noise, at.weight[:, 0] / noise, free=self.ledger.by_person)
            ends = sorted(float(sign * end[began[1], 0]) for end in shown.since()[:, [q]].interval(level))
            group, than = (self.reference.labels[g] for g in (self.first[q], self.second[q])[:: int(sign)])
            earliest, best, latest, raised = map(self.ledger.names_at, (*began, len(self.ledger.distinct) - 1))
            alarms.append((least, Alarm(promise, group, than, best, earliest, latest, raised, *ends)))
        return alarms

    @cached_property
    def flag_rates(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Flag rate of each group over all batches, and its ends, (G,) each; at the start if there is no batch."""
        if not self.ledger.names:
            unknown = np.full(len(self.reference.labels), np.nan)
            return self.reference.flagged, unknown, unknown
        return self.ledger.means("flagged", self._rate / (2.0 * len(self.reference.labels)))

    def shifts(self, name: str) -> dict[str, Shift]:
        """The mean of "ranks" or "flagged" of each group."""
        level = self._rate / (8.0 * len(self.reference.labels))
        _, low, high = self.ledger.means(name, level)
        return self._shifted(getattr(self.reference, name), self.reference.counts, low, high, level)

    @cached_property
    def mix(self) -> dict[str, Shift]:
        """The share of each group among the rows that are compared; unknown where people come again."""
        n, counts = self.ledger.total["counts"], self.reference.counts
        if self.ledger.by_person or not n.sum():
            return {}
        before, level = counts / counts.sum(), self._rate / (4.0 * len(n))
        reach = upper_bound(n * (1.0 - before) ** 2 + (n.sum() - n) * before**2, level)
        low, high = np.maximum((n - reach) / n.sum(), 0.0), np.minimum((n + reach) / n.sum(), 1.0)
        return self._shifted(before, counts.sum(), low, high, level)

    @cached_property
    def farthest(self) -> list[tuple[int, int, float]]:
        """For each group the one that it is furthest from, the place of the pair, and the pair's sign for the group."""
        pairs = []
        for g in range(len(self.reference.labels)):
            own = np.flatnonzero((self.first == g) | (self.second == g))
            q = int(own[np.nan_to_num(np.abs(self.gaps[0][own])).argmax()])
            pairs.append((int(self.first[q] + self.second[q] - g), q, 1.0 if self.first[q] == g else -1.0))
        return pairs

    def _shifted(
        self, before: FloatArray, rows: IntArray, low: FloatArray, high: FloatArray, level: float
    ) -> dict[str, Shift]:
        """Means of ``rows`` numbers in [0, 1] before (Hoeffding's bound), and their ends since, by group."""
        reach = np.sqrt(-np.log(level) / (2.0 * rows))
        least, most = np.maximum(before - reach, 0.0), np.minimum(before + reach, 1.0)
        moved = (low > most).astype(int) - (high < least).astype(int)
        each = zip(self.reference.labels, *(x.tolist() for x in (least, most, low, high, moved)), strict=True)
        return {name: Shift((a, b), (c, d), sign) for name, a, b, c, d, sign in each}
