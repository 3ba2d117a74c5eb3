"""Tables in the shape that supervisors ask for: counts by attribute, the practice that each follows, and its limits.

No table says that anything meets or fails a rule: they count, and name what the counts do not establish.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.auditing import counts
from evenout.auditing.everyone import Attribute, Everyone
from evenout.auditing.practices import PRACTICES, Practice
from evenout.core.exceptions import InputError
from evenout.core.intervals import holm
from evenout.core.types import BoolArray, FloatArray

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = "no known group"
SMALL = 0.02  # groups under this share of all people are marked, and never the best-off one


@dataclass(frozen=True, eq=False, repr=False)
class PracticeTable:
    """One table to hand over; prints as text.

    Attributes
    ----------
    kind : {"hiring", "lending", "strata"}
    practice : Practice
        What it follows, its sources, and what it does not establish.
    favourable : str
        The outcome whose rates are compared, in words.
    frame : DataFrame
        One row per attribute and group.
    strata : DataFrame or None
        Rates by stratum, one row per attribute, stratum and group.
    notes : tuple of str
    """

    kind: str
    practice: Practice
    favourable: str
    frame: "pd.DataFrame"
    strata: "pd.DataFrame | None"
    notes: tuple[str, ...]

    def to_frame(self) -> "pd.DataFrame":
        """The table as a frame."""
        return self.frame

    def to_dict(self) -> dict[str, Any]:
        """Everything, of types that JSON has."""
        from dataclasses import asdict

        from evenout.storage.output import finite

        return {
            "kind": self.kind,
            **asdict(self.practice),
            "favourable": self.favourable,
            "rows": finite(self.frame.to_dict("records")),
            "strata": None if self.strata is None else finite(self.strata.to_dict("records")),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        from evenout.auditing.practice_text import practice_text

        return practice_text(self)


@dataclass(frozen=True)
class _Outcome:
    """What is favourable, and how intervals are made."""

    people: Everyone
    favoured: BoolArray
    bad: bool
    confidence: float

    def count(self, members: BoolArray) -> tuple[int, int]:
        """Favoured among the members, and members."""
        return int(self.favoured[members].sum()), int(members.sum())

    def rate(self, members: BoolArray) -> counts.Estimate:
        """The favourable rate of the members."""
        return self.sure(counts.rate(*self.count(members), self.confidence))

    def ratio(self, members: BoolArray, others: BoolArray) -> counts.Estimate:
        """The favourable rate of the members over that of the others."""
        return self.sure(counts.ratio(*self.count(members), *self.count(others), self.confidence))

    def flag_rate(self, members: BoolArray) -> float:
        """The share of the members that is flagged."""
        return float(self.people.flagged[members].mean()) if members.any() else counts.NAN

    def sure(self, found: counts.Estimate) -> counts.Estimate:
        """The estimate, without its interval where rows are no independent people."""
        return counts.Estimate(found.value, counts.NAN, counts.NAN) if self.people.clustered else found


def practice_table(
    people: Everyone, kind: str, *, flag_means: str = "bad", reference: Sequence[str] = (), confidence: float = 0.95
) -> PracticeTable:
    """A table of one kind.

    Parameters
    ----------
    people : Everyone
    kind : {"hiring", "lending", "strata"}
    flag_means : {"bad", "good"}
        Whether being flagged is the harm, so that *not* being flagged is favourable, or the benefit.
    reference : sequence of str
        Groups to compare with ("lending", "strata"), at most one of an attribute; by default that which is best off.
    confidence : float
    """
    if kind not in PRACTICES:
        raise InputError("{kind!r} is no table; use 'hiring', 'lending' or 'strata'", kind=kind)
    if flag_means not in ("bad", "good"):
        raise InputError("{flag_means=} is not allowed; use 'bad' or 'good'", flag_means=flag_means)
    if kind == "strata" and people.strata is None:
        raise InputError("a table by strata needs {@given}: the columns that may justify a difference")
    reference = [reference] if isinstance(reference, str) else [*reference]
    for name in reference:
        if not any(name in attribute.names for attribute in people.attributes):
            raise InputError("{name!r} is no group of any attribute, so nothing can be compared with it", name=name)
    bad = flag_means == "bad"
    outcome = _Outcome(people, ~people.flagged if bad else people.flagged, bad, confidence)
    rows = [row for attribute in people.attributes for row in _ROWS[kind](outcome, attribute, reference)]
    import pandas as pd

    strata = pd.DataFrame(_by_stratum(outcome)) if kind == "strata" else None
    favourable = "not being flagged" if bad else "being flagged"
    frame = pd.DataFrame(rows)
    return PracticeTable(kind, PRACTICES[kind], favourable, frame, strata, tuple(_notes(people)))


def _notes(people: Everyone) -> list[str]:
    notes = []
    if people.clustered:
        notes.append("rows come in clusters, so intervals and tests that take rows as independent are left out")
    if people.strata is not None and (missing := int((people.strata.codes < 0).sum())):
        notes.append(f"{missing:,} people have a missing value in what was given: they are in no stratum")
    for attribute in people.attributes:
        unknown = int((attribute.codes < 0).sum())
        if unknown:
            notes.append(f"{attribute.name}: {unknown:,} of {len(attribute.codes):,} people have no known group")
    return notes


def _groups(outcome: _Outcome, attribute: Attribute) -> Iterator[tuple[dict[str, Any], BoolArray]]:
    """What every table begins with, for each group and, last, for people without one."""
    n = len(attribute.codes)
    for group in (*range(len(attribute.names)), -1):
        members = attribute.members(group)
        if group < 0 and not members.any():
            return
        k, size = outcome.count(members)
        found = outcome.rate(members)
        note = "" if group >= 0 else UNKNOWN
        if group >= 0 and size < SMALL * n:
            note = f"under {SMALL:.0%} of all people"
        yield {
            "attribute": attribute.name,
            "group": attribute.names[group] if group >= 0 else "unknown",
            "people": size,
            "share": size / n,
            "favoured": k,
            "rate": found.value, "rate_low": found.low, "rate_high": found.high,
            "note": note,
        }, members  # fmt: skip


def _hiring(outcome: _Outcome, attribute: Attribute, reference: Sequence[str]) -> list[dict[str, Any]]:  # noqa: ARG001
    """Rates against the best-off group, by the outcome and by the side of the median."""
    rows, median = [*_groups(outcome, attribute)], float(np.median(outcome.people.scores))
    side = outcome.people.scores < median if outcome.bad else outcome.people.scores > median
    known = [(row, members) for row, members in rows if row["note"] != UNKNOWN]
    compared = [(row, members) for row, members in known if not row["note"]] or known
    if not known:
        return [row for row, _ in rows]
    best, best_members = max(compared, key=lambda pair: pair[0]["rate"])
    sides = {id(row): float(side[members].mean()) for row, members in rows}
    best_side = max(sides[id(row)] for row, _ in compared)
    flags = {id(row): outcome.flag_rate(members) for row, members in rows}
    best_flags = (min if outcome.bad else max)(flags[id(row)] for row, _ in compared)
    for row, members in rows:
        there = row["note"] != UNKNOWN
        found = outcome.ratio(members, best_members) if there else counts.NOTHING
        if row is best:
            found, row["note"] = counts.Estimate(1.0, counts.NAN, counts.NAN), "best off"
        own, other = (best_flags, flags[id(row)]) if outcome.bad else (flags[id(row)], best_flags)
        row |= {
            "ratio": found.value, "ratio_low": found.low, "ratio_high": found.high,
            "median_rate": sides[id(row)],
            "median_ratio": _divided(sides[id(row)], best_side) if there else counts.NAN,
            "flag_rate": flags[id(row)],
            "flag_ratio": _divided(own, other) if there else counts.NAN,
        }  # fmt: skip
    return [row for row, _ in rows]


def _lending(outcome: _Outcome, attribute: Attribute, reference: Sequence[str]) -> list[dict[str, Any]]:
    """Rates, scores and tests against one reference group."""
    scores = outcome.people.scores
    with_whom, chosen = _reference(outcome, attribute, reference)
    rows, others = [], attribute.members(with_whom)
    deviation = float(scores[attribute.codes >= 0].std(ddof=1)) if (attribute.codes >= 0).sum() > 1 else counts.NAN
    tested = []
    for row, members in _groups(outcome, attribute):
        compared = row["note"] != UNKNOWN and row["group"] != attribute.names[with_whom]
        found = outcome.ratio(members, others) if compared else counts.NOTHING
        apart = counts.standardised_difference(scores[members], scores[others], deviation, outcome.confidence)
        apart = outcome.sure(apart) if compared else counts.NOTHING
        sure = compared and not outcome.people.clustered
        row |= {
            "ratio": found.value, "ratio_low": found.low, "ratio_high": found.high,
            "flag_rate": outcome.flag_rate(members),
            "flag_ratio": _divided(outcome.flag_rate(members), outcome.flag_rate(others)) if compared else counts.NAN,
            "score_difference": apart.value, "score_low": apart.low, "score_high": apart.high,
            "z": counts.z_of_rates(*outcome.count(members), *outcome.count(others)) if sure else counts.NAN,
            "p": counts.fisher(*outcome.count(members), *outcome.count(others)) if sure else counts.NAN,
            "shortfall": counts.shortfall(*outcome.count(members), outcome.rate(others).value)
            if compared else counts.NAN,
        }  # fmt: skip
        if row["group"] == attribute.names[with_whom] and row["note"] != UNKNOWN:
            row["note"] = "; ".join(filter(None, (chosen, row["note"])))
        rows.append(row)
        tested.append(row["p"])
    return _corrected(rows, tested)


def _strata(outcome: _Outcome, attribute: Attribute, reference: Sequence[str]) -> list[dict[str, Any]]:
    """Rates against one reference group among people alike in what was given."""
    (with_whom, chosen), rows, tested = _reference(outcome, attribute, reference), [], []
    known = attribute.codes >= 0
    k0, n0 = _per_stratum(outcome, attribute.members(with_whom))
    all_k, all_n = _per_stratum(outcome, known)
    for row, members in _groups(outcome, attribute):
        if row["note"] == UNKNOWN:
            continue
        k, n = _per_stratum(outcome, members)
        compared = row["group"] != attribute.names[with_whom]
        found = counts.mantel_haenszel(k, n, k0, n0, outcome.confidence)
        risk, odds = (outcome.sure(x) if compared else counts.NOTHING for x in (found.risk, found.odds))
        sure = compared and not outcome.people.clustered
        row |= {
            "strata": found.used,
            "ratio_all": outcome.ratio(members, attribute.members(with_whom)).value if compared else counts.NAN,
            "ratio": risk.value, "ratio_low": risk.low, "ratio_high": risk.high,
            "odds_ratio": odds.value, "odds_low": odds.low, "odds_high": odds.high,
            "statistic": found.statistic if sure else counts.NAN,
            "p": found.p if sure else counts.NAN,
            "disparity": counts.conditional_disparity(n - k, k, all_n - all_k, all_k),
        }  # fmt: skip
        row["note"] = "; ".join(filter(None, ("" if compared else chosen, row["note"])))
        rows.append(row)
        tested.append(row["p"])
    return _corrected(rows, tested)


def _by_stratum(outcome: _Outcome) -> list[dict[str, Any]]:
    strata, rows = outcome.people.strata, []
    assert strata is not None
    for attribute in outcome.people.attributes:
        known, shape = (attribute.codes >= 0) & (strata.codes >= 0), (len(strata.names), max(len(attribute.names), 1))
        place = strata.codes * shape[1] + attribute.codes
        n = np.bincount(place[known], minlength=shape[0] * shape[1]).reshape(shape)
        k = np.bincount(place[known & outcome.favoured], minlength=shape[0] * shape[1]).reshape(shape)
        for s, g in np.ndindex(len(strata.names), len(attribute.names)):
            found = outcome.sure(counts.rate(int(k[s, g]), int(n[s, g]), outcome.confidence))
            rows.append({
                "attribute": attribute.name, "stratum": strata.names[s], "group": attribute.names[g],
                "people": int(n[s, g]), "favoured": int(k[s, g]),
                "rate": found.value, "rate_low": found.low, "rate_high": found.high,
            })  # fmt: skip
    return rows


def _per_stratum(outcome: _Outcome, members: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Favoured members and members, of each stratum."""
    strata = outcome.people.strata
    assert strata is not None
    size, members = len(strata.names), members & (strata.codes >= 0)
    k = np.bincount(strata.codes[members & outcome.favoured], minlength=size).astype(float)
    return k, np.bincount(strata.codes[members], minlength=size).astype(float)


def _corrected(rows: list[dict[str, Any]], tested: list[float]) -> list[dict[str, Any]]:
    """p-values by Holm's method within an attribute."""
    p = np.array(tested)
    adjusted = np.full(len(p), np.nan)
    if (~np.isnan(p)).any():
        adjusted[~np.isnan(p)] = holm(p[~np.isnan(p)])
    for row, value in zip(rows, adjusted.tolist(), strict=True):
        row["p_adjusted"] = value
    return rows


def _reference(outcome: _Outcome, attribute: Attribute, asked: Sequence[str]) -> tuple[int, str]:
    """The group to compare with: that which was asked for, or the best-off one of those that are not small."""
    named = [attribute.names.index(name) for name in asked if name in attribute.names]
    if len(named) > 1:
        raise InputError("two groups of {name!r} are given to compare with; give one", name=attribute.name)
    if named:
        return named[0], "reference"
    size = np.bincount(attribute.codes[attribute.codes >= 0], minlength=max(len(attribute.names), 1))
    hits = np.bincount(attribute.codes[(attribute.codes >= 0) & outcome.favoured], minlength=len(size))
    large = size >= SMALL * len(attribute.codes)
    rate = np.where(large if large.any() else size > 0, hits / np.maximum(size, 1), -1.0)
    return int(rate.argmax()), "reference, best off"


def _divided(value: float, by: float) -> float:
    return value / by if by > 0 else counts.NAN


_ROWS: dict[str, Callable[[_Outcome, Attribute, Sequence[str]], list[dict[str, Any]]]] = {
    "hiring": _hiring,
    "lending": _lending,
    "strata": _strata,
}
