"""A later batch against an earlier one: drift of the scores, of the bias and of the group mix."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency, ks_2samp, wasserstein_distance

from evenout.auditing.counted import MEANINGS
from evenout.auditing.result import AuditResult
from evenout.auditing.text import between, chance, number, shown
from evenout.core.intervals import holm
from evenout.storage.output import finite

_EXACT_KS = 1_000  # batches up to here get the exact p-value


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
    group: str | None
    detail: str | None
    earlier: float
    later: float
    change: float
    low: float
    high: float
    p: float
    p_adjusted: float


@dataclass(frozen=True, repr=False)
class DriftResult:
    """What changed between two batches; prints as a short text.

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
        """What changed, in sentences."""
        shift, mix, level = self.get("score_shift"), self.get("group_mix"), 1 - self.confidence
        moved = [c.group for c in self.changes if c.measure == "score_shift" and c.group and c.p_adjusted <= level]
        far = f"{shift.change:.2g} standard deviations on average; corrected p {chance(shift.p_adjusted)}"
        mixed = f"(corrected p {chance(mix.p_adjusted)})"
        if np.isnan(shift.p):
            scores = f"Drift of the scores, not tested: {shift.change:.2g} standard deviations on average."
        elif shift.p_adjusted <= level or moved:
            within = ", and within " + ", ".join(f"'{shown(name)}'" for name in moved) if moved else ""
            scores = f"The scores have moved ({far}){within}."
        else:
            scores = f"No drift of the scores can be told from noise ({far})."
        if np.isnan(mix.p):
            groups = f"Change in the mix of groups, not tested: Cramér's V is {mix.change:.2g}."
        elif mix.p_adjusted <= level:
            groups = f"The mix of groups has changed {mixed}."
        else:
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
        head = f"{self.n_later:,} later rows against {self.n_earlier:,} earlier ones"
        lines = [f"{'':<42} {'earlier':>9} {'later':>9} {'change':>9}  interval"]
        for c in self.changes:
            if c.group is None and c.detail is None and not np.isnan(c.low):
                figures = " ".join(f"{number(x):>9}" for x in (c.earlier, c.later, c.change))
                lines.append(f"{MEANINGS[c.measure].words:<42} {figures}  {between(c.low, c.high)}")
        verdict = [f"* {sentence}" for sentence in self.verdict]
        notes = [f"Note: {note}." for note in self.notes]
        return "\n\n".join("\n".join(part) for part in ([head], lines, verdict, notes) if part)


_BIASES = ("flag_rate_ratio", "demographic_parity", "threshold_free_gap", "conditional_parity")


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
    unit = float(earlier.scores.std()) or 1.0
    tested = []
    for group in (None, *common):
        new, old = (
            audit.scores if group is None else audit.scores[audit.groups == audit.group_names.index(group)]
            for audit in (later, earlier)
        )
        method = "exact" if max(len(new), len(old)) <= _EXACT_KS else "asymp"
        p = float(ks_2samp(new, old, method=method).pvalue)
        tested.append(_change("score_shift", group, float(wasserstein_distance(new, old)) / unit, p))
    names = sorted({*later.group_names, *earlier.group_names})
    sizes = [dict(zip(audit.group_names, audit.group_counts.tolist(), strict=True)) for audit in (later, earlier)]
    table = np.array([[size.get(name, 0) for name in names] for size in sizes])
    test = chi2_contingency(table, correction=False)
    tested.append(_change("group_mix", None, float(np.sqrt(test.statistic / table.sum())), float(test.pvalue)))
    clustered = later.n_clusters is not None or earlier.n_clusters is not None
    if clustered:
        tested = [replace(change, p=float("nan")) for change in tested]
    adjusted = holm(np.array([change.p for change in tested]))
    changes = [replace(change, p_adjusted=float(p)) for change, p in zip(tested, adjusted, strict=True)]
    before = {(m.measure, m.group, m.detail): m for m in earlier.measures}
    for m in later.measures:
        key = (m.measure, m.group, m.detail)
        if key in before and not MEANINGS[m.measure].about_rows:
            old = before[key]
            below, above = (
                np.hypot(m.value - m.low, old.high - old.value),
                np.hypot(m.high - m.value, old.value - old.low),
            )
            change = _change(m.measure, m.group, m.value - old.value, float("nan"))
            low, high = float(change.change - below), float(change.change + above)
            changes.append(replace(change, detail=m.detail, earlier=old.value, later=m.value, low=low, high=high))
    only = [
        f"group {shown(name)!r} is in the {which} batch only, so the gaps are between different groups"
        for which, here, there in (("later", later, earlier), ("earlier", earlier, later))
        for name in here.group_names
        if name not in there.group_names
    ]
    if clustered:
        only.append(
            "drift and mix are not tested where rows come in clusters, because the tests take rows as independent"
        )
    return DriftResult(
        tuple(changes), len(earlier.scores), len(later.scores), later.settings["confidence"], tuple(only)
    )


def _change(measure: str, group: str | None, change: float, p: float) -> Change:
    nan = float("nan")
    return Change(measure, group, None, nan, nan, change, nan, nan, p, nan)
