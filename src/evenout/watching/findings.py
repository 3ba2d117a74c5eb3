"""What the sums of a watch say: gaps, alarms, flag rates, and what else has changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from evenout.core.sequences import log_evidence, start_shares, upper_bound
from evenout.core.types import FloatArray, IntArray
from evenout.watching.ledger import Contrast, Ledger
from evenout.watching.reference import Reference

if TYPE_CHECKING:
    import pandas as pd


class Promises(Protocol):
    """What was promised, and how sure an alarm must be."""

    @property
    def tolerance(self) -> float | Mapping[str, float]:
        """Gap of ranks, of all groups or of each."""

    @property
    def flag_rate_ratio(self) -> float | None:
        """Ratio of flag rates."""

    @property
    def false_alarms(self) -> float:
        """Chance of any alarm while promises are kept."""


@dataclass(frozen=True)
class Alarm:
    """A promise that is not kept.

    Parameters
    ----------
    promise : {"ranks", "flags"}
    group : str
    direction : {"higher", "lower"}
        Where it stands among all others.
    since : str
        The batch from which on this is most certain.
    raised : str
        The batch with which it became so.
    low, high : float
        Ends of the gap since then: of mean ranks, or of flag rates.
    """

    promise: str
    group: str
    direction: str
    since: str
    raised: str
    low: float
    high: float


class Shift(NamedTuple):
    """A share at the start and since, each with its interval, and whether these are apart."""

    before: tuple[float, float]
    since: tuple[float, float]

    @property
    def moved(self) -> bool:
        """Whether the two intervals have nothing in common."""
        return self.since[0] > self.before[1] or self.since[1] < self.before[0]


class Findings:
    """All figures of a watch, from its reference and its sums."""

    def __init__(self, reference: Reference, ledger: Ledger, promises: Promises) -> None:
        self.reference, self.ledger, self.promises = reference, ledger, promises

    @cached_property
    def compared(self) -> IntArray:
        """Groups that are held against all others; of two, the second."""
        n = len(self.reference.labels)
        return np.array([1]) if n == 2 else np.arange(n)

    @cached_property
    def promised(self) -> FloatArray:
        """The gap of ranks that is within the promise, shape (G,)."""
        given, labels = self.promises.tolerance, self.reference.labels
        each = np.array([given.get(label, 0.0) if isinstance(given, Mapping) else given for label in labels])
        return np.full(2, each.min()) if len(each) == 2 else each  # two groups have one gap between them

    @property
    def kept(self) -> bool:
        """Whether no gap can be larger than promised."""
        _, low, high = self.gaps
        return bool((np.maximum(-low, high) <= self.promised)[self.compared].all())

    @property
    def level(self) -> float:
        """The false-alarm rate of one group, promise and direction."""
        n_promises = 1 if self.promises.flag_rate_ratio is None else 2
        return self.promises.false_alarms / (2.0 * n_promises * len(self.compared))

    @cached_property
    def gaps(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The gap of ranks of each group over all batches, and its ends, (G,) each."""
        if not len(self.ledger.places):
            return tuple(np.full(len(self.reference.labels), x) for x in (np.nan, -1.0, 1.0))  # type: ignore[return-value]
        whole = self._last(self._contrast("ranks").until())
        low, high = whole.interval(0.5 * self.level)
        return _mean(whole)[0], low[0], high[0]

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the largest gap, whichever its direction."""
        _, low, high = (part[self.compared] for part in self.gaps)
        return float(np.maximum(np.maximum(low, -high), 0.0).max()), float(np.maximum(-low, high).max())

    def alarms(self) -> list[Alarm]:
        """Groups and promises whose gap, since one batch or another, is certain to be too large."""
        if not len(self.ledger.places):
            return []
        found = []
        ratio = self.promises.flag_rate_ratio
        ranks = self._contrast("ranks")
        for sign in (1.0, -1.0):
            found += self._beyond("ranks", ranks, sign, self.promised, ranks)
        if ratio is not None:
            flags = self._contrast("flagged")
            for sign, excess in ((1.0, self._contrast("flagged", own=ratio)),
                                 (-1.0, self._contrast("flagged", rest=ratio))):  # fmt: skip
                found += self._beyond("flags", excess, sign, 0.0 * self.promised, flags)
        return found

    def _contrast(self, name: str, **factors: float) -> Contrast:
        return self.ledger.contrast(name, self.reference.counts / self.reference.counts.sum(), **factors)

    def _beyond(
        self, promise: str, tested: Contrast, sign: float, tolerance: FloatArray, shown: Contrast
    ) -> list[Alarm]:
        """Alarms in one direction: where ``sign * tested`` is certain to be above the tolerance."""
        since, level = tested.since(), self.level * start_shares(self.ledger.places)[:, None]
        beyond = np.maximum(sign * since.sums - tolerance * since.weight, 0.0)
        certain = log_evidence(beyond, since.spread, level) > -np.log(level)
        return [
            self._alarm(promise, g, sign, self._surest(beyond, since, level, g), shown.since(), level)
            for g in self.compared
            if certain[:, g].any()
        ]

    def _surest(self, beyond: FloatArray, since: Contrast, level: FloatArray, g: int) -> int:
        """The place since which the least that a gap can be is largest."""
        excess = beyond[:, g] - upper_bound(since.spread[:, g], level[:, 0])
        return int((excess / np.where(since.weight[:, g] > 0, since.weight[:, g], np.inf)).argmax())

    def _alarm(self, promise: str, g: int, sign: float, start: int, shown: Contrast, level: FloatArray) -> Alarm:
        low, high = (float(end[start, g]) for end in shown.interval(level))
        since, raised = self.ledger.names(start), self.ledger.names(len(self.ledger.places) - 1)
        if sign < 0 and len(self.reference.labels) == 2:  # the other one is higher
            g, sign, low, high = 1 - g, 1.0, -high, -low
        return Alarm(promise, self.reference.labels[g], "higher" if sign > 0 else "lower", since, raised, low, high)

    @cached_property
    def flag_rates(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Flag rate of each group over all batches, and its ends, (G,) each."""
        level = self.promises.false_alarms / (2.0 * len(self.reference.labels))
        flagged, spread, n = (self.ledger.total(name) for name in ("flagged", "flag_spread", "counts"))
        return _rate(flagged, spread, n, level)

    @cached_property
    def score_shift(self) -> Shift:
        """The mean rank of all rows: 0.5 at the start."""
        sums, spread, n = (self.ledger.total(name).sum() for name in ("ranks", "rank_spread", "counts"))
        return self._shift(0.5, sums, spread, n, 2)

    @cached_property
    def flag_shift(self) -> Shift:
        """The share of all rows that is flagged."""
        sums, spread, n = (self.ledger.total(name).sum() for name in ("flagged", "flag_spread", "counts"))
        return self._shift(self.reference.flagged, sums, spread, n, 2)

    @cached_property
    def mix(self) -> dict[str, Shift]:
        """The share of each group among the rows that are compared."""
        n, counts = self.ledger.total("counts"), self.reference.counts
        before = counts / counts.sum()
        spread = n * (1.0 - before) ** 2 + (n.sum() - n) * before**2
        each = zip(before, n, spread, strict=True)
        found = [self._shift(p, k, v, n.sum(), len(n)) for p, k, v in each]
        return dict(zip(self.reference.labels, found, strict=True))

    @property
    def others(self) -> dict[str, int]:
        """Rows that are not compared, by group; those without one under ""."""
        found: dict[str, int] = {}
        for batch in self.ledger.batches:
            for name, n in batch.others.items():
                found[name] = found.get(name, 0) + n
        return found

    def groups(self) -> "pd.DataFrame":
        """See `FairnessMonitor.to_frame`."""
        import pandas as pd

        (gap, low, high), (rate, rate_low, rate_high) = self.gaps, self.flag_rates
        counts, n = self.reference.counts, self.ledger.total("counts")
        return pd.DataFrame({
            "group": self.reference.labels,
            "rows": n.astype(int),
            "share_at_start": counts / counts.sum(),
            "share": n / n.sum() if n.sum() else np.full(len(n), np.nan),
            "promised": self.promised, "gap": gap, "low": low, "high": high,
            "flagged": self.ledger.total("flagged").astype(int),
            "flag_rate": rate, "flag_low": rate_low, "flag_high": rate_high,
        })  # fmt: skip

    def history(self) -> "pd.DataFrame":
        """See `FairnessMonitor.history`."""
        import pandas as pd

        until = self._contrast("ranks").until()
        low, high = until.interval(0.5 * self.level)
        gap = _mean(until)
        n, ranks, flagged = (self.ledger.by_place(self.ledger.column(name)) for name in ("counts", "ranks", "flagged"))
        rows = []
        for p in range(len(self.ledger.places)):
            for g, label in enumerate(self.reference.labels):
                size = n[p, g] or np.nan
                rows.append({
                    "batch": self.ledger.names(p), "group": label, "rows": int(n[p, g]),
                    "mean_rank": ranks[p, g] / size, "flag_rate": flagged[p, g] / size,
                    "gap": gap[p, g], "low": low[p, g], "high": high[p, g],
                })  # fmt: skip
        return pd.DataFrame(rows)

    def _shift(self, before: float, sums: float, spread: float, n: float, n_questions: int) -> Shift:
        """A mean of numbers in [0, 1] before (Hoeffding's bound) and since; one half of the rate for each."""
        level = self.promises.false_alarms / (4.0 * n_questions)
        reach = float(np.sqrt(-np.log(level) / (2.0 * self.reference.rows)))
        _, low, high = _rate(np.array([sums]), np.array([spread]), np.array([n]), level)
        return Shift((max(before - reach, 0.0), min(before + reach, 1.0)), (float(low[0]), float(high[0])))

    @staticmethod
    def _last(until: Contrast) -> Contrast:
        return Contrast(until.sums[-1:], until.spread[-1:], until.weight[-1:])


def _mean(contrast: Contrast) -> FloatArray:
    return np.divide(
        contrast.sums, contrast.weight, out=np.full(contrast.sums.shape, np.nan), where=contrast.weight > 0
    )


def _rate(
    sums: FloatArray, spread: FloatArray, n: FloatArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A mean of numbers in [0, 1] and its ends, each missed with a chance of ``level`` at most."""
    reach, size = upper_bound(spread, level), np.maximum(n, 1.0)
    rate = np.where(n > 0, sums / size, np.nan)
    low = np.where(n > 0, np.maximum((sums - reach) / size, 0.0), 0.0)
    return rate, low, np.where(n > 0, np.minimum((sums + reach) / size, 1.0), 1.0)
