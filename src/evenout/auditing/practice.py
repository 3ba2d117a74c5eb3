"""Tables as supervisors ask for them.

No table says that anything meets or fails a rule: they count, and name what the counts do not establish.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc
from scipy.stats import fisher_exact

from evenout.auditing.sample import AllRows, Strata
from evenout.auditing.text import between, chance, joined, number, shown
from evenout.core.intervals import holm, normal_value, wilson_interval
from evenout.core.ruler import ratio as divide
from evenout.core.types import BoolArray, FloatArray
from evenout.exceptions import InputError
from evenout.storage.output import finite


class Estimate(NamedTuple):
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


NOTHING = Estimate(np.nan, np.nan, np.nan)


def rate(k: float, n: float, confidence: float) -> Estimate:
    """The share ``k / n``, with Wilson's interval.

    >>> rate(8, 10, 0.95)._asdict()
    {'value': 0.8, 'low': 0.490..., 'high': 0.943...}
    """
    if n == 0:
        return NOTHING
    low, high = wilson_interval(np.array([k / n]), np.array([float(n)]), normal_value(confidence))
    return Estimate(k / n, float(low[0]), float(high[0]))


def ratio(k: float, n: float, k_other: float, n_other: float, confidence: float) -> Estimate:
    """The rate ``k / n`` over the other, with an interval from the normal error of its logarithm (Katz et al. 1978).

    No interval where a count is 0.
    """
    if n == 0 or n_other == 0 or k_other == 0:
        return NOTHING
    value = (k / n) / (k_other / n_other)
    if k == 0:
        return Estimate(value, np.nan, np.nan)
    error = np.sqrt(max(1.0 / k - 1.0 / n + 1.0 / k_other - 1.0 / n_other, 0.0))
    return _log_interval(value, error, normal_value(confidence))


def equal_rates(k: float, n: float, k_other: float, n_other: float) -> tuple[float, float]:
    """Test two rates: their difference over its error, where both are one rate (pooled), and Fisher's exact p-value."""
    if n == 0 or n_other == 0:
        return np.nan, np.nan
    both = (k + k_other) / (n + n_other)
    error = np.sqrt(both * (1.0 - both) * (1.0 / n + 1.0 / n_other))
    z = float((k / n - k_other / n_other) / error) if error > 0 else np.nan
    return z, float(fisher_exact([[int(k), int(n - k)], [int(k_other), int(n_other - k_other)]])[1])


def standardised_difference(values: FloatArray, other: FloatArray, deviation: float, confidence: float) -> Estimate:
    """The difference of two means in standard deviations of all, with Welch's error."""
    if min(len(values), len(other)) < 2 or not deviation > 0:
        return NOTHING
    apart = (values.mean() - other.mean()) / deviation
    error = np.sqrt(values.var(ddof=1) / len(values) + other.var(ddof=1) / len(other)) / deviation
    reach = normal_value(confidence) * error
    return Estimate(float(apart), float(apart - reach), float(apart + reach))


class Stratified(NamedTuple):
    """Two groups compared within strata.

    ``risk`` and ``odds`` are the ratios of rates and of odds of Mantel and Haenszel, ``p`` that of no difference in any
    stratum by their test (without continuity correction), ``used`` the strata with people of both groups.
    """

    risk: Estimate
    odds: Estimate
    statistic: float
    p: float
    used: int


def mantel_haenszel(
    k: FloatArray, n: FloatArray, k_other: FloatArray, n_other: FloatArray, confidence: float
) -> Stratified:
    """Compare rates within strata (Mantel and Haenszel 1959); all arrays have one entry per stratum.

    The interval of the ratio of rates is that of Greenland and Robins (1985), that of the odds that of Robins, Breslow
    and Greenland (1986).
    """
    both = (n > 0) & (n_other > 0)
    a, c = k[both].astype(float), k_other[both].astype(float)
    n1, n0 = n[both].astype(float), n_other[both].astype(float)
    total, hits = n1 + n0, a + c
    z = normal_value(confidence)
    spread = n1 * n0 * hits * (total - hits) / (total**2 * np.maximum(total - 1.0, 1.0))
    statistic = (a - n1 * hits / total).sum() ** 2 / spread.sum() if spread.sum() > 0 else np.nan
    up, down = (a * n0 / total).sum(), (c * n1 / total).sum()
    noise = ((n1 * n0 * hits - a * c * total) / total**2).sum()
    risk = _log_interval(up / down, np.sqrt(noise / (up * down)), z) if up > 0 and down > 0 else NOTHING
    b, d, odds = n1 - a, n0 - c, NOTHING
    r, s, same, other = a * d / total, b * c / total, (a + d) / total, (b + c) / total
    if r.sum() > 0 and s.sum() > 0:
        noise = (same * r).sum() / (2 * r.sum() ** 2) + (other * s).sum() / (2 * s.sum() ** 2)
        noise += (same * s + other * r).sum() / (2 * r.sum() * s.sum())
        odds = _log_interval(r.sum() / s.sum(), np.sqrt(noise), z)
    p = float(chdtrc(1, statistic)) if np.isfinite(statistic) else np.nan
    return Stratified(risk, odds, float(statistic), p, int(both.sum()))


def _log_interval(value: float, error: float, z: float) -> Estimate:
    return Estimate(float(value), float(value * np.exp(-z * error)), float(value * np.exp(z * error)))


def conditional_disparity(hit: FloatArray, spared: FloatArray, all_hit: FloatArray, all_spared: FloatArray) -> float:
    """A group's share among those hit less its share among those spared, averaged over strata by their size.

    Strata in which everybody or nobody is hit have no such difference, and no say. Arrays have one entry per stratum:
    people of the group, and of all groups, who are hit or spared.

    >>> conditional_disparity(np.array([30.0]), np.array([20.0]), np.array([40.0]), np.array([60.0]))
    0.41666...
    """
    said = (all_hit > 0) & (all_spared > 0)
    if not said.any():
        return np.nan
    apart = hit[said] / all_hit[said] - spared[said] / all_spared[said]
    size = all_hit[said] + all_spared[said]
    return float(apart @ size / size.sum())


@dataclass(frozen=True)
class Practice:
    """One practice: what the columns are, in sentences, its sources, and what the table does not establish."""

    title: str
    counted: tuple[str, ...]
    sources: tuple[str, ...]
    limits: tuple[str, ...]


_LAW = (
    "It applies no legal rule: whether a rule covers this score, and what follows from a figure, is for counsel to say."
)
_CAUSE = (
    "A difference is no cause: it may come from the score, from the people who are in the file, or from the records."
)

PRACTICES = {
    "hiring": Practice(
        "Rates against the best-off group, as in reviews of hiring",
        (
            "Rate: the share of a group with the favourable outcome. Ratio: that rate over that of the best-off group.",
            "Median rate: the share on the favourable side of the median score of all people, and its ratio likewise.",
            "Flag ratio: the same ratio for flags; where flags are bad, the lowest flag rate over the group's own.",
            "Groups under 2 % of all people are marked, and are never taken as the best-off group. People of unknown "
            "group are counted.",
        ),
        (
            "Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4 D (ratio of selection rates)",
            "New York City, Rules on Automated Employment Decision Tools, 6 RCNY 5-300 to 5-304 (impact ratios of "
            "selection and of scores above the median, by category and crossed; categories under 2 %; unknown counted)",
        ),
        (
            _LAW,
            "The rules named are about selection for something good, in employment; a flag for review is not that.",
            "The best-off group is chosen by its rate: chance alone puts ratios below 1; intervals take it as given.",
            _CAUSE,
        ),
    ),
    "lending": Practice(
        "Rates and scores against a reference group, as in fair-lending reviews",
        (
            "Ratio: the rate of the favourable outcome over that of the reference group (adverse impact ratio), the "
            "best-off one unless another is named. Flag ratio: the flag rate over that of the reference group.",
            "Score difference: mean score less that of the reference group, in standard deviations of all people "
            "(standardised mean difference); above 0 is scored as more outlying.",
            "z: of the two rates, pooled. p: Fisher's exact test, two-sided; corrected by Holm's method by attribute.",
            "Shortfall: how many more people would have had the favourable outcome at the rate of the reference group.",
        ),
        (
            "Interagency Fair Lending Examination Procedures (FFIEC, August 2009): outcomes against a control group",
            "Hall, Cox, Dickerson, Ravi Kannan, Kulkarni and Schmidt, A United States Fair Lending Perspective on "
            "Machine Learning, Frontiers in Artificial Intelligence 4 (2021): adverse impact ratio, standardised mean "
            "difference",
            "Morris and Dunleavy (eds.), Adverse Impact Analysis (2017): Fisher's exact test, z, shortfall",
        ),
        (
            _LAW,
            "Nobody here is matched on creditworthiness or on anything else; a table by strata compares people alike.",
            "A small p-value says that chance is a poor explanation, not that the difference is large, nor its reason.",
            _CAUSE,
        ),
    ),
    "strata": Practice(
        "Rates among people alike in what may justify a difference",
        (
            "Ratio: of the favourable outcome to the reference group's, within strata, pooled by Mantel and Haenszel; "
            "beside it the ratio of all, the ratio of odds, and their test without continuity correction.",
            "Disparity: the group's share among those with the unfavourable outcome less its share among the others, "
            "within strata, averaged by their size (conditional demographic disparity).",
            "Strata without people of both groups, or with one outcome alone, have no say in what they cannot tell.",
        ),
        (
            "Mantel and Haenszel, Journal of the National Cancer Institute 22 (1959); intervals: Greenland and Robins, "
            "Biometrics 41 (1985), and Robins, Breslow and Greenland, Biometrics 42 (1986)",
            "Wachter, Mittelstadt and Russell, Why Fairness Cannot Be Automated, Computer Law and Security Review 41 "
            "(2021): conditional demographic disparity",
        ),
        (
            _LAW,
            "That a column may justify a difference is a choice. It may itself come from unequal treatment.",
            "Differences that point in opposite ways in two strata cancel out in one pooled figure: read the rates.",
            _CAUSE,
        ),
    ),
}


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
    frame: pd.DataFrame
    strata: pd.DataFrame | None
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """The table as a frame."""
        return self.frame

    def to_dict(self) -> dict[str, Any]:
        """Everything, of types that JSON has."""
        return {
            "kind": self.kind,
            **asdict(self.practice),
            "favourable": self.favourable,
            "rows": finite(self.frame.to_dict("records")),
            "strata": None if self.strata is None else finite(self.strata.to_dict("records")),
            "notes": list(self.notes),
        }

    def blocks(self, width: int) -> list[tuple[str, list[tuple[str, list[str]]]]]:
        """The figures as text: for each attribute its groups, each with its cells; names are cut to ``width``."""
        return [
            (
                shown(str(attribute), width),
                [
                    (shown(row["group"], width), [cell(row, how) for _, how in HEADS[self.kind]])
                    for row in rows.to_dict("records")
                ],
            )
            for attribute, rows in self.frame.groupby("attribute", sort=False)
        ]

    def __repr__(self) -> str:
        parts = [[f"{self.practice.title}; favourable is {self.favourable}"]]
        for attribute, rows in self.blocks(_NAME):
            lines = [[attribute, *(head for head, _ in HEADS[self.kind])]]
            lines += [[group, *cells] for group, cells in rows[:_MOST]]
            more = [f"... {len(rows) - _MOST} more groups"] if len(rows) > _MOST else []
            widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
            sides = [str.ljust, *[str.rjust] * (len(widths) - 2), str.ljust]
            aligned = ["  ".join(f(text, n) for f, text, n in zip(sides, line, widths, strict=True)) for line in lines]
            parts.append([*map(str.rstrip, aligned), *more])
        parts += [
            [f"* {sentence}" for sentence in self.practice.counted],
            ["Follows:", *(f"* {source}." for source in self.practice.sources)],
            ["Does not establish:", *(f"* {limit}" for limit in self.practice.limits)],
        ]
        return joined(*parts, notes=self.notes)


class _Counts:
    """Counts of one attribute's G groups; arrays have shape (G + 1,), people of unknown group last.

    ``base`` is the group to compare with: the one asked for, or the best-off one of those that are not small.
    """

    def __init__(
        self, people: AllRows, attribute: Strata, reference: Sequence[str], confidence: float, *, bad: bool
    ) -> None:
        self.people, self.attribute, self.confidence, self.bad = people, attribute, confidence, bad
        self.favoured = ~people.flagged if bad else people.flagged
        self.G = G = len(attribute.names)
        self.codes = np.where(attribute.codes < 0, G, attribute.codes)
        self.size, self.k, flagged = (
            np.bincount(self.codes[rows], minlength=G + 1) for rows in (slice(None), self.favoured, people.flagged)
        )
        self.flag_rate = divide(flagged, self.size)
        self.large = [g for g in range(G) if self.size[g] >= SMALL * len(self.codes)] or [*range(G)]
        named = [attribute.names.index(name) for name in reference if name in attribute.names]
        if len(named) > 1:
            raise InputError("two groups of {name!r} are given to compare with; give one", name=attribute.name)
        self.base = named[0] if named else max(self.large, key=lambda g: float(self.k[g] / self.size[g]))
        self.base_note = "reference" if named else "reference, best off"
        self.compared = ~np.isin(np.arange(G + 1), (self.base, G))
        self.tested = self.compared & (not people.clustered)
        pairs = list(zip(self.k.tolist(), self.size.tolist(), strict=True))
        self.pairs = [(*pair, *pairs[self.base]) for pair in pairs]
        self.ratios = [ratio(*pair, confidence) for pair in self.pairs]

    def frame(self, kind: str) -> pd.DataFrame:
        """One row per group and, last, one of people of unknown group, whom a table by strata leaves out."""
        n, more = len(self.codes), {"hiring": self.hiring, "lending": self.lending, "strata": self.strata}[kind]()
        notes = [f"under {SMALL:.0%} of all people" if size < SMALL * n else "" for size in self.size]
        notes[self.base] = "; ".join(filter(None, (self.base_note, notes[self.base])))
        if kind == "hiring":
            notes[self.base] = "best off"
        columns = {
            "attribute": self.attribute.name,
            "group": (*self.attribute.names, "unknown"),
            "people": self.size,
            "share": self.size / n,
            "favoured": self.k,
            **self.estimates("rate", [rate(k, size, self.confidence) for k, size, *_ in self.pairs]),
            "note": [*notes[: self.G], "no known group"],
            **more,
        }
        if kind != "hiring":
            columns["p_adjusted"] = holm(more["p"])
        return pd.DataFrame(columns)[: self.G + (kind != "strata" and self.size[self.G] > 0)]

    def estimates(
        self, name: str, estimates: Sequence[Estimate], known: BoolArray | bool = True, ends: str | None = None
    ) -> dict[str, FloatArray]:
        """Columns of the estimates that are ``known``, without intervals where rows are no independent people."""
        value, low, high = np.where(known, np.array(estimates).T, np.nan)
        if self.people.clustered:
            low = high = np.full(len(value), np.nan)
        return {name: value, f"{ends or name}_low": low, f"{ends or name}_high": high}

    def by_stratum(self) -> tuple[FloatArray, FloatArray]:
        """Favoured people and people of each group in each of S strata, shape (G + 1, S)."""
        strata = self.people.strata
        assert strata is not None
        shape = self.G + 1, len(strata.names)
        cell, inside = self.codes * shape[1] + strata.codes, strata.codes >= 0
        k, n = (np.bincount(cell[rows], minlength=shape[0] * shape[1]) for rows in (inside & self.favoured, inside))
        return k.reshape(shape).astype(float), n.reshape(shape).astype(float)

    def stratum_frame(self, strata: tuple[str, ...]) -> pd.DataFrame:
        """One row per stratum and group: people, favoured people and their rate."""
        k, n = (counts[: self.G].T.ravel().astype(int) for counts in self.by_stratum())
        columns = {
            "attribute": self.attribute.name,
            "stratum": [stratum for stratum in strata for _ in range(self.G)],
            "group": self.attribute.names * len(strata),
            "people": n,
            "favoured": k,
        }
        return pd.DataFrame(
            columns | self.estimates("rate", [rate(*each, self.confidence) for each in zip(k, n, strict=True)])
        )

    def hiring(self) -> dict[str, Any]:
        """Rates against the best-off group, by the outcome and by the side of the median."""
        scores, flags = self.people.scores, self.flag_rate
        side = scores < float(np.median(scores)) if self.bad else scores > float(np.median(scores))
        sides = divide(np.bincount(self.codes[side], minlength=self.G + 1), self.size)
        known, ratios = np.arange(self.G + 1) < self.G, [*self.ratios]
        ratios[self.base] = Estimate(1.0, np.nan, np.nan)
        of_flags = divide(flags[self.base], flags) if self.bad else divide(flags, flags[self.base])
        return {
            **self.estimates("ratio", ratios, known),
            "median_rate": sides,
            "median_ratio": np.where(known, divide(sides, sides[self.large].max()), np.nan),
            "flag_rate": flags,
            "flag_ratio": np.where(known, of_flags, np.nan),
        }

    def lending(self) -> dict[str, Any]:
        """Rates, scores and tests against the reference group."""
        scores, known = self.people.scores, self.codes < self.G
        deviation = float(scores[known].std(ddof=1)) if known.sum() > 1 else np.nan
        parts = [scores[self.codes == g] for g in range(self.G + 1)]
        apart = [standardised_difference(part, parts[self.base], deviation, self.confidence) for part in parts]
        shortfall = np.maximum(self.size * (self.k[self.base] / self.size[self.base]) - self.k, 0.0)
        z, p = np.where(self.tested, np.array([equal_rates(*pair) for pair in self.pairs]).T, np.nan)
        return {
            **self.estimates("ratio", self.ratios, self.compared),
            "flag_rate": self.flag_rate,
            "flag_ratio": np.where(self.compared, divide(self.flag_rate, self.flag_rate[self.base]), np.nan),
            **self.estimates("score_difference", apart, self.compared, "score"),
            "z": z,
            "p": p,
            "shortfall": np.where(self.compared, shortfall, np.nan),
        }

    def strata(self) -> dict[str, Any]:
        """Rates against the reference group among people alike in what was given."""
        k, n = self.by_stratum()
        all_k, all_n = k[: self.G].sum(axis=0), n[: self.G].sum(axis=0)
        within = [mantel_haenszel(*own, k[self.base], n[self.base], self.confidence) for own in zip(k, n, strict=True)]
        return {
            "strata": [each.used for each in within],
            "ratio_all": np.where(self.compared, [each.value for each in self.ratios], np.nan),
            **self.estimates("ratio", [each.risk for each in within], self.compared),
            **self.estimates("odds_ratio", [each.odds for each in within], self.compared, "odds"),
            "statistic": np.where(self.tested, [each.statistic for each in within], np.nan),
            "p": np.where(self.tested, [each.p for each in within], np.nan),
            "disparity": [conditional_disparity(b - a, a, all_n - all_k, all_k) for a, b in zip(k, n, strict=True)],
        }


def practice_table(
    people: AllRows, kind: str, flag_means: str, reference: Sequence[str], confidence: float
) -> PracticeTable:
    """Count all people in a table of one kind."""
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
    bad, named = flag_means == "bad", () if kind == "hiring" else reference
    counts = [_Counts(people, attribute, named, confidence, bad=bad) for attribute in people.attributes]
    notes, strata = [], None
    if people.clustered:
        notes.append("rows come in clusters, so intervals and tests that take rows as independent are left out")
    if people.strata is not None and (missing := int((people.strata.codes < 0).sum())):
        notes.append(f"{missing:,} people have a missing value in what was given: they are in no stratum")
    notes += [
        f"{each.attribute.name}: {each.size[-1]:,} of {len(each.codes):,} people have no known group"
        for each in counts
        if each.size[-1]
    ]
    if kind == "strata" and people.strata is not None:
        strata = pd.concat([each.stratum_frame(people.strata.names) for each in counts], ignore_index=True)
    frame = pd.concat([each.frame(kind) for each in counts], ignore_index=True)
    return PracticeTable(
        kind, PRACTICES[kind], "not being flagged" if bad else "being flagged", frame, strata, tuple(notes)
    )


_NAME = 32  # of a group or an attribute
_MOST = 40  # rows shown of one table; all are in to_frame()

# Headings of a table's columns, each with how it is shown: see `cell`.
HEADS: dict[str, list[tuple[str, str]]] = {
    kind: [("people", "people"), ("favoured", "favoured"), ("rate", "rate%"), ("ratio", "ratio±"), *more, ("", "note")]
    for kind, more in {
        "hiring": [("median rate", "median_rate%"), ("median ratio", "median_ratio"), ("flag ratio", "flag_ratio")],
        "lending": [
            ("flag ratio", "flag_ratio"), ("score difference", "score_difference±score"), ("z", "z"),
            ("p", "p?"), ("p, corrected", "p_adjusted?"), ("shortfall", "shortfall"),
        ],
        "strata": [
            ("ratio of all", "ratio_all"), ("ratio of odds", "odds_ratio±odds"), ("p", "p?"),
            ("p, corrected", "p_adjusted?"), ("disparity", "disparity"),
        ],
    }.items()
}  # fmt: skip


def cell(row: Any, how: str) -> str:
    """One figure: counts whole, ``%`` a share with its interval, ``±`` a value with its interval, ``?`` a p-value."""
    name, _, ends = how.partition("±")
    name = name.rstrip("%?")
    value = row[name]
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if pd.isna(value):
        return ""
    if how.endswith("?"):
        return chance(value)
    low, high = (row.get(f"{ends or name}_{end}", np.nan) for end in ("low", "high"))
    shown_as, inside = number(value), between(low, high) if "±" in how else ""
    if how.endswith("%"):
        shown_as, inside = f"{value:.1%}", between(low, high, ".1%")
    if name == "shortfall":
        shown_as = f"{value:,.0f}"
    return shown_as + (f" ({inside})" if inside else "")
