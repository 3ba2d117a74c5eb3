"""Results: one audit, an audit for each protected column, and a later batch against an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency, ks_2samp, wasserstein_distance

from evenout.auditing import text
from evenout.auditing.counted import MEANINGS
from evenout.auditing.practice import PracticeTable, practice_table
from evenout.auditing.sample import AllRows
from evenout.auditing.text import TOO_FEW, between, chance, joined, number, shown
from evenout.core.intervals import holm
from evenout.core.types import FloatArray, IntArray
from evenout.exceptions import InputError
from evenout.pages import html_table
from evenout.storage.output import atomic_file, finite

_BIASES = ("flag_rate_ratio", "demographic_parity", "threshold_free_gap", "conditional_parity")
_NAME = 80  # characters of a group's name, in a notebook
_GROUPS = 50  # shown there
_EXACT_KS = 1_000  # rows of a batch up to which the test of its scores is exact


@dataclass(frozen=True)
class Measure:
    """One number of an audit.

    Parameters
    ----------
    measure : str
        A name of `evenout.auditing.counted.MEANINGS`.
    group, detail : str or None
        The group it belongs to, None for a comparison of groups; its quantile, share on top, stratum or feature.
    value, low, high : float
        The value and its interval.
    p, p_adjusted : float
        Permutation p-value of "the groups do not matter", and the same after Holm's correction for many tests.
    n, note : int and str
        The rows that the value rests on, and what to keep in mind.
    """

    measure: str
    group: str | None
    detail: str | None
    value: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    p_adjusted: float = np.nan
    n: int = 0
    note: str = ""


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean score and flag rate against a number such as age, with pointwise intervals.

    Parameters
    ----------
    name : str
        The protected column.
    at : array of shape (k,)
        Values of the number. At each, rows count the more the nearer they are.
    mean_score, flag_rate : arrays of shape (3, k)
        Value, low and high end.
    """

    name: str
    at: FloatArray
    mean_score: FloatArray
    flag_rate: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """One row per value of the number: mean_score, low and high end, flag_rate, low and high end."""
        columns = {
            name + end: values
            for name in ("mean_score", "flag_rate")
            for end, values in zip(("", "_low", "_high"), getattr(self, name), strict=True)
        }
        return pd.DataFrame(columns, index=pd.Index(self.at, name=self.name))


@dataclass(frozen=True)
class LeftOut:
    """A group with too few rows to be measured: its name, its rows, and how many of them are flagged."""

    name: str
    rows: int
    flagged: int


class _Pages:
    """Pages of one audit, or of several by attribute."""

    def to_html(self, *, tables: Sequence[str] = (), **options: Any) -> str:
        """One self-contained page to hand over, as a string; see `save`."""
        from evenout.auditing.page import audit_page

        results: Any = self if isinstance(self, Mapping) else {"": self}
        of_tables = {name: options.pop(name) for name in ("flag_means", "reference") if name in options}
        return audit_page(results, [self.table(kind, **of_tables) for kind in tables], **options)  # type: ignore[attr-defined]

    def save(self, path: "str | PathLike[str]", *, tables: Sequence[str] = (), **options: Any) -> None:
        """Write a page to hand over: one HTML file without scripts that asks for nothing. It appears whole or not.

        Parameters
        ----------
        path : str or path
        tables : sequence of {"hiring", "lending", "strata"}
            What to put in; ``flag_means`` and ``reference`` as in `table`.
        title, source, input_sha256 : str, optional
            The page's title, where the data came from, and the hash of the data file.
        date : datetime, optional
            By default now.
        """
        page = self.to_html(tables=tables, **options)
        with atomic_file(Path(path)) as file:
            file.write_text(page, encoding="utf-8", newline="\n")

    def _repr_html_(self) -> str:
        """Groups and findings of each audit, for a notebook."""
        audits: Any = self.values() if isinstance(self, Mapping) else [self]
        return "".join(
            html_table(
                text.GROUP_HEADS,
                text.group_rows(each, _NAME)[:_GROUPS],
                f"Audit of {len(each.scores):,} rows in {len(each.group_names)} groups, {text.flagged_words(each)}",
            )
            + html_table(["found"], [[sentence] for sentence in each.verdict])
            for each in audits
        )


@dataclass(frozen=True, repr=False, eq=False)
class AuditResult(_Pages):
    """Findings of `evenout.audit`; prints as a short text.

    Attributes
    ----------
    measures : tuple of Measure
    group_names : tuple of str
    group_counts, flagged_counts : array of int, shape (G,)
    n_clusters : int or None
        Clusters of rows that belong together, where these were given.
    left_out : tuple of LeftOut
        Groups with too few rows to be measured: they take no part in any comparison, test or interval.
    settings : dict
        ``contamination``, ``threshold``, ``confidence``, ``resamples``, ``length_scale``, ``groups`` and
        ``random_state`` of the call.
    rough, notes : tuple of str
        Groups with few flagged rows, in words; what was left out, rounded or sampled.
    scores, groups : arrays of shape (n,)
        Scores, and places of the rows' groups in ``group_names``; of groups that share rows, the likeliest.
    shared : bool
        Whether groups share rows, as bands of a number and probable groups do, or rows do not count alike.
    curves : tuple of Curve
        For each protected column that is a number, such as age.
    everyone : AllRows or None
        All rows, compared or not, by each attribute alone and crossed: what `table` counts.
    flag_words : str
        Who is flagged, where it is not the share that was asked for.
    bounded, weighted, chosen : bool
        Whether intervals hold all that probabilities of groups leave open; rows count by weights; labels are partial,
        and nobody tells how the rows were chosen.
    alike_in : tuple of str
        Numbers in ``given`` that are taken out within strata.
    """

    measures: tuple[Measure, ...]
    group_names: tuple[str, ...]
    group_counts: IntArray
    flagged_counts: IntArray
    n_clusters: int | None
    left_out: tuple[LeftOut, ...]
    settings: dict[str, Any]
    rough: tuple[str, ...]
    notes: tuple[str, ...]
    scores: FloatArray
    groups: IntArray
    shared: bool = False
    curves: tuple[Curve, ...] = ()
    everyone: AllRows | None = None
    flag_words: str = ""
    bounded: bool = False
    weighted: bool = False
    chosen: bool = False
    alike_in: tuple[str, ...] = ()

    @cached_property
    def _by_key(self) -> dict[tuple[str, str | None, str | None], Measure]:
        return {(m.measure, m.group, m.detail): m for m in self.measures}

    def get(self, measure: str, group: str | None = None, detail: str | None = None) -> Measure:
        """One measure by name, group and detail; a KeyError names those there are."""
        try:
            return self._by_key[measure, group, detail]
        except KeyError:
            known = ", ".join(dict.fromkeys(m.measure for m in self.measures))
            raise KeyError(f"no {measure!r} for group {group!r}, detail {detail!r}; measures: {known}") from None

    def has(self, measure: str) -> bool:
        """Whether the audit has such a measure."""
        return any(m.measure == measure for m in self.measures)

    @property
    def verdict(self) -> tuple[str, ...]:
        """Findings, in sentences."""
        return text.verdict(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per measure: measure, group, detail, value, low, high, p, p_adjusted, n, note."""
        return pd.DataFrame([asdict(m) for m in self.measures])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the rows, of types that JSON has; a number that does not exist is None."""
        return {
            "n_rows": len(self.scores),
            "n_clusters": self.n_clusters,
            "groups": dict(zip(self.group_names, self.group_counts.tolist(), strict=True)),
            "flagged": dict(zip(self.group_names, self.flagged_counts.tolist(), strict=True)),
            "flagging": text.flagged_words(self),
            "left_out": [asdict(group) | {"note": TOO_FEW} for group in self.left_out],
            "settings": self.settings,
            "verdict": list(self.verdict),
            "rough": list(self.rough),
            "notes": list(self.notes),
            "measures": finite([asdict(m) for m in self.measures]),
            "curves": {c.name: finite(c.to_frame().reset_index().to_dict("records")) for c in self.curves},
        }

    def table(self, kind: str, *, flag_means: str = "bad", reference: str | Sequence[str] = ()) -> PracticeTable:
        """Counts of all rows in a shape that supervisors ask for, with its sources and what it does not establish.

        Parameters
        ----------
        kind : {"hiring", "lending", "strata"}
            Rates against the best-off group; rates, scores and tests against a reference group; rates within strata,
            which needs ``given`` in the audit.
        flag_means : {"bad", "good"}, default="bad"
            Whether *not* being flagged is the favourable outcome, or being flagged.
        reference : str or sequence of str
            Groups to compare with, one of an attribute; by default the best-off one, which "hiring" always takes.
        """
        if self.everyone is None:
            beside = "{@sample_weight}" if self.weighted else "probabilities of groups"
            raise InputError(f"a table counts people of known groups, which does not go with {beside}")
        return practice_table(self.everyone, kind, flag_means, reference, self.settings["confidence"])

    def compare(self, baseline: "AuditResult") -> "DriftResult":
        """Hold this batch against an earlier one; see `evenout.auditing.compare_batches`."""
        return compare_batches(self, baseline)

    def __repr__(self) -> str:
        return text.audit_text(self)


@dataclass(frozen=True)
class Change:
    """One figure of two batches.

    Parameters
    ----------
    measure : str
        ``score_shift`` (Wasserstein distance in standard deviations of the earlier scores, tested by
        Kolmogorov-Smirnov), ``group_mix`` (Cramér's V of batch and group, tested by chi-square), or a measure of the
        audits.
    group, detail : str or None
    earlier, later : float
        NaN for a distance between the batches.
    change : float
        Later less earlier, or the distance.
    low, high : float
        Interval of the change.
    p, p_adjusted : float
        p-value of "the same distribution", alone and by Holm's method.
    """

    measure: str
    group: str | None = None
    detail: str | None = None
    earlier: float = np.nan
    later: float = np.nan
    change: float = np.nan
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    p_adjusted: float = np.nan


@dataclass(frozen=True, repr=False)
class DriftResult:
    """Changes between two batches; prints as a short text.

    Attributes
    ----------
    changes : tuple of Change
    n_earlier, n_later : int
    confidence : float
    notes : tuple of str
        Groups that only one batch has, and what could not be tested.
    """

    changes: tuple[Change, ...]
    n_earlier: int
    n_later: int
    confidence: float
    notes: tuple[str, ...]

    def get(self, measure: str, group: str | None = None, detail: str | None = None) -> Change:
        """One change by name, group and detail."""
        for change in self.changes:
            if (change.measure, change.group, change.detail) == (measure, group, detail):
                return change
        raise KeyError(f"no change of {measure!r} for group {group!r}, detail {detail!r}")

    @property
    def verdict(self) -> tuple[str, ...]:
        """The changes, in sentences."""
        shift, mix, level = self.get("score_shift"), self.get("group_mix"), 1 - self.confidence
        moved = [c.group for c in self.changes if c.measure == "score_shift" and c.group and c.p_adjusted <= level]
        far = f"{shift.change:.2g} standard deviations on average"
        in_full, mixed = f"({far}; corrected p {chance(shift.p_adjusted)})", f"(corrected p {chance(mix.p_adjusted)})"
        within = ", and within " + ", ".join(f"'{shown(name)}'" for name in moved) if moved else ""
        scores, groups = f"The scores have moved {in_full}{within}.", f"The mix of groups has changed {mixed}."
        if np.isnan(shift.p):
            scores = f"Drift of the scores, not tested: {far}."
        elif shift.p_adjusted > level and not moved:
            scores = f"No drift of the scores can be told from noise {in_full}."
        if np.isnan(mix.p):
            groups = f"Change in the mix of groups, not tested: Cramér's V is {mix.change:.2g}."
        elif mix.p_adjusted > level:
            groups = f"No change in the mix of groups can be told from noise {mixed}."
        biases = [c for c in self.changes if c.measure in _BIASES and not np.isnan(c.low)]
        names = [MEANINGS[c.measure].words.split(" (")[0] for c in biases if c.low > 0 or c.high < 0]
        bias = "No change in bias can be told from noise."
        if not biases:
            bias = "The change in bias has no interval, so it cannot be told from noise."
        elif names:
            bias = f"Bias has changed (0 lies outside the interval of the change): {'; '.join(names)}."
        return scores, groups, bias

    def to_frame(self) -> pd.DataFrame:
        """One row per change: measure, group, detail, earlier, later, change, low, high, p, p_adjusted."""
        return pd.DataFrame([asdict(change) for change in self.changes])

    def to_dict(self) -> dict[str, Any]:
        """Everything, of types that JSON has; NaN is None."""
        return {
            "n_earlier": self.n_earlier,
            "n_later": self.n_later,
            "confidence": self.confidence,
            "verdict": list(self.verdict),
            "notes": list(self.notes),
            "changes": finite([asdict(change) for change in self.changes]),
        }

    def __repr__(self) -> str:
        lines = [f"{'':<42} {'earlier':>9} {'later':>9} {'change':>9}  interval"]
        for c in self.changes:
            if c.group is None and c.detail is None and not np.isnan(c.low):
                figures = " ".join(f"{number(x):>9}" for x in (c.earlier, c.later, c.change))
                lines.append(f"{MEANINGS[c.measure].words:<42} {figures}  {between(c.low, c.high)}")
        head = f"{self.n_later:,} later rows against {self.n_earlier:,} earlier ones"
        return joined([head], lines, verdict=self.verdict, notes=self.notes)


def compare_batches(later: AuditResult, earlier: AuditResult) -> DriftResult:
    """Compare the audits of two batches scored by the same model.

    Intervals of a change follow from those of the two values, which are independent:
    ``d - sqrt((v1 - l1)^2 + (u0 - v0)^2)`` to ``d + sqrt((u1 - v1)^2 + (v0 - l0)^2)`` with ``d = v1 - v0`` (Zou and
    Donner 2008; for shares of groups this is Newcombe's interval).

    Raises
    ------
    ValueError
        If the audits flag different shares of the rows or have no group in common.
    """
    for name in ("contamination", "confidence"):
        if later.settings[name] != earlier.settings[name]:
            raise ValueError(
                f"the two audits have {name}={later.settings[name]:g} and {earlier.settings[name]:g}; "
                "audit both batches with the same"
            )
    if later.shared or earlier.shared:
        raise ValueError(
            "bands of a number, probable groups, weights and clusters that span groups are not compared between "
            "batches; give groups that both have, such as fixed classes of age, of rows that count alike"
        )
    common = [name for name in later.group_names if name in earlier.group_names]
    if not common:
        raise ValueError("the two audits have no group in common; give both batches the same group names")
    unit, tested = float(earlier.scores.std()) or 1.0, []
    for group in (None, *common):
        new, old = (
            audit.scores if group is None else audit.scores[audit.groups == audit.group_names.index(group)]
            for audit in (later, earlier)
        )
        method = "exact" if max(len(new), len(old)) <= _EXACT_KS else "asymp"
        p, distance = float(ks_2samp(new, old, method=method).pvalue), float(wasserstein_distance(new, old)) / unit
        tested.append(Change("score_shift", group, change=distance, p=p))
    sizes = [dict(zip(audit.group_names, audit.group_counts.tolist(), strict=True)) for audit in (later, earlier)]
    table = np.array([[size.get(name, 0) for name in sorted({*sizes[0], *sizes[1]})] for size in sizes])
    test = chi2_contingency(table, correction=False)
    tested.append(Change("group_mix", change=float(np.sqrt(test.statistic / table.sum())), p=float(test.pvalue)))
    notes = [
        f"group {shown(name)!r} is in the {which} batch only, so the gaps are between different groups"
        for which, here, there in (("later", *sizes), ("earlier", *sizes[::-1]))
        for name in here
        if name not in there
    ]
    if later.n_clusters is not None or earlier.n_clusters is not None:
        tested = [replace(change, p=np.nan) for change in tested]
        notes.append(
            "drift and mix are not tested where rows come in clusters, because the tests take rows as independent"
        )
    adjusted = holm(np.array([change.p for change in tested])).tolist()
    changes = [replace(change, p_adjusted=p) for change, p in zip(tested, adjusted, strict=True)]
    for m in later.measures:
        old = earlier._by_key.get((m.measure, m.group, m.detail))
        if old is not None and not MEANINGS[m.measure].about_rows:
            apart = m.value - old.value
            low = float(apart - np.hypot(m.value - m.low, old.high - old.value))
            high = float(apart + np.hypot(m.high - m.value, old.value - old.low))
            changes.append(Change(m.measure, m.group, m.detail, old.value, m.value, apart, low, high))
    return DriftResult(
        tuple(changes), len(earlier.scores), len(later.scores), later.settings["confidence"], tuple(notes)
    )


Found = TypeVar("Found", bound=AuditResult | DriftResult)


class PerAttribute(dict[str, Found]):
    """A result for each protected column, by its name."""

    def __missing__(self, name: str) -> Found:
        raise KeyError(f"no attribute {name!r}; there are {', '.join(map(repr, self))}")

    @property
    def verdict(self) -> tuple[str, ...]:
        """Findings, in sentences, each with its column."""
        return tuple(f"{name}: {sentence}" for name, result in self.items() for sentence in result.verdict)

    def to_frame(self) -> pd.DataFrame:
        """The rows of each result, with the column in front."""
        frames = {name: result.to_frame() for name, result in self.items()}
        return pd.concat(frames, names=["attribute"]).reset_index("attribute").reset_index(drop=True)

    def to_dict(self) -> dict[str, Any]:
        """Each result, of types that JSON has."""
        return {name: result.to_dict() for name, result in self.items()}

    def __repr__(self) -> str:
        return "\n\n".join(f"{name}\n{'=' * len(name)}\n{result!r}" for name, result in self.items())


class AttributeAudits(_Pages, PerAttribute[AuditResult]):
    """An audit for each protected column, by its name, and perhaps one for their crossing.

    Corrected p-values are corrected for the tests of all columns together.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from evenout import Groups, audit
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"sex": rng.choice(["f", "m"], 400), "region": rng.choice(["n", "s"], 400)})
    >>> scores = rng.normal(size=400) + (people["sex"] == "f")
    >>> found = audit(scores, sensitive_features=people, groups=Groups(cross=False))
    >>> list(found)
    ['sex', 'region']
    >>> found["region"].get("demographic_parity").p > 0.05
    True
    """

    def compare(self, baseline: "AttributeAudits") -> PerAttribute[DriftResult]:
        """Hold each column of this batch against the same of an earlier one."""
        return PerAttribute({name: audit.compare(baseline[name]) for name, audit in self.items()})

    def table(self, kind: str, *, flag_means: str = "bad", reference: str | Sequence[str] = ()) -> PracticeTable:
        """One table of all columns; see `AuditResult.table`."""
        parts = [audit.everyone for audit in self.values() if audit.everyone is not None]
        people = replace(parts[0], attributes=tuple(part.attributes[-1] for part in parts))
        return practice_table(people, kind, flag_means, reference, next(iter(self.values())).settings["confidence"])
