"""Whether the latest rows differ from those before, group by group, and how a fit follows them.

Sums of old and new rows add, and so do their gaps: after a drift the sum is about nobody. So an update compares the
latest rows with those before: mean base score, mean fair score and flag rate of each group. Two windows are tried, the
new rows and all rows that updates have added, which shows what is too small for one batch. The j-th update since the
fit spends ``1 / (j (j + 1))`` of a false-alarm rate of 5 %, so that this is the rate of all updates together.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from evenout.core.cells import Cells
from evenout.core.flags import FlagRows, top_threshold
from evenout.core.intervals import holm
from evenout.core.path import Choice
from evenout.core.ruler import Means
from evenout.core.types import BoolArray, FloatArray
from evenout.exceptions import UnknownOutcomeWarning

if TYPE_CHECKING:
    from evenout.fitting.result import FitResult

FALSE_ALARMS = 0.05
_UNKNOWN = (
    "rows of {groups} differ from those before by more than chance, and the last {now} rows are too few to solve for: "
    "what people get from now on is not known. The rule is that of all {all} rows; more rows will tell."
)


@dataclass(frozen=True, eq=False)
class Recent:
    """Rows that updates have added since the fit, or since the last drift.

    Parameters
    ----------
    cells : Cells
        Their sums, as `evenout.fitting.update.Maps.cells` gives them.
    kept : int
        How many of the last rows in memory these are.
    updates : int
    """

    cells: Cells
    kept: int
    updates: int


@dataclass(frozen=True)
class Drift:
    """A difference between the latest rows and those before.

    Parameters
    ----------
    groups : tuple of str
        The groups whose rows differ.
    before : int
        Rows before.
    now : int
        Rows since.
    followed : bool
        Whether these were enough to solve for; if not, the rule is that of all rows.
    reached : float
        What would be stated of all rows together, had the rule been solved for them.
    interval : pair of float
    """

    groups: tuple[str, ...]
    before: int
    now: int
    followed: bool
    reached: float
    interval: tuple[float, float]

    @property
    def named(self) -> str:
        """The groups, for people."""
        more = f" and {len(self.groups) - 5} more groups" if len(self.groups) > 5 else ""
        return ", ".join(map(repr, self.groups[:5])) + more

    def doubted(self, choice: Choice) -> Choice:
        """What was chosen on all rows says nothing of the rows of now, where these are too few to be followed."""
        if self.followed or choice.doubt:
            return choice
        words = {"{groups}": self.named, "{now}": f"{self.now:,}", "{all}": f"{self.before + self.now:,}"}
        message = _UNKNOWN
        for field, value in words.items():
            message = message.replace(field, value.replace("{", "{{").replace("}", "}}"))
        return replace(choice, met=False, message=message, kind=UnknownOutcomeWarning, doubt="drift")


def group_p_values(rule: "FitResult", rows: "FitResult", last: int, share: float) -> FloatArray:
    """p-values of "the ``last`` rows in memory are like those before", by Holm's method, shape (3, G).

    Of each group's mean base score; and, against all groups, of its mean fair score by ``rule`` and of its rate among
    the top ``share`` of the rows. Rows of the fit are known to its detectors, and new ones are not; those that were
    fitted without a fold have seen fewer rows. That moves scores of all groups a little, one way or the other: a
    difference counts where both ways of scoring the rows of the fit show it, on the same side.
    """
    latest = np.arange(len(rows.target)) >= len(rows.target) - last
    path, alpha = rule.path, np.array([rule.choice.alpha])
    known = FlagRows(rows.S, rows.target, rows.seen.sample, np.zeros_like(rows.seen.folds))
    views = (known, path.fold_weights(alpha, "training")), (rows.seen, path.fold_weights(alpha, "unseen"))
    z = np.stack([_differences(*view, latest, share) for view in views])
    least = np.where((z > 0).all(axis=0) | (z < 0).all(axis=0), np.abs(z).min(axis=0), 0.0)
    return np.asarray(holm(2.0 * ndtr(-least).ravel())).reshape(least.shape)


def _differences(rows: FlagRows, V: FloatArray, latest: BoolArray, share: float) -> FloatArray:
    """The latest rows of each group against those before, as standard normal values, shape (3, G)."""
    y, flagged = np.zeros(len(rows.t)), np.zeros(len(rows.t), dtype=bool)
    for fold in range(len(V)):
        own, scores = rows.scores(V, fold)
        y[own] = scores[:, 0]
        for part in (own[latest[own]], own[~latest[own]]):
            weight = None if rows.sample.weight is None else rows.sample.weight[part]
            flagged[part] = len(part) > 0 and y[part] > top_threshold(y[part][:, None], share, weight)
    parts = [(rows.sample.of(of), of) for of in (~latest, latest)]
    found = []
    for column, against_all in ((rows.t, False), (y, True), (flagged, True)):
        old, new = (sample.measure(column[of]) for sample, of in parts)
        found.append(_compared(old, new, parts[0][0].total if against_all else None))
    return np.stack(found)


def _compared(old: Means, new: Means, against: FloatArray | None) -> FloatArray:
    """New means less old ones, of known groups and less those of all groups by weight ``against``, over their error.

    Student's distribution with the degrees of freedom of Welch makes them standard normal.
    """
    known = old.known & new.known
    share = np.zeros(len(known)) if against is None else np.where(known, against, 0.0)
    A = np.eye(len(known)) - share / max(share.sum(), 1e-300)
    noise = [np.where(known, part.size - 1.0, 1.0) for part in (old, new)]
    cov = [A @ np.diag(np.where(known, np.diag(part.cov), 0.0)) @ A.T for part in (old, new)]
    spread = np.stack([np.diag(part) for part in cov])
    total = spread.sum(axis=0)
    some = known & (total > 0)
    df = total**2 / np.maximum((spread**2 / noise).sum(axis=0), np.finfo(float).tiny)
    apart = A @ (np.where(known, new.mean, 0.0) - np.where(known, old.mean, 0.0))
    t = apart / np.sqrt(np.where(some, total, 1.0))
    return np.where(some, -np.sign(t) * ndtri(student.cdf(-np.abs(t), np.where(some, df, 1.0))), 0.0)
