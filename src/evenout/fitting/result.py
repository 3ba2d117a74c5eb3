"""What a fit has learnt, and the same fit elsewhere on its path."""

from dataclasses import dataclass, replace

import numpy as np

from evenout.core.choice import Choice
from evenout.core.flags import flag_threshold, flagged_share, group_rates, weighted_quantile
from evenout.core.path import TradeoffPath
from evenout.core.problem import Mixture
from evenout.core.types import FloatArray, IntArray
from evenout.fitting.background import Background
from evenout.fitting.request import FlagRows, Request
from evenout.fitting.scores import ScoreModel
from evenout.inputs.groups import Groups


@dataclass(frozen=True)
class FitResult:
    """All that a fit has learnt.

    Parameters
    ----------
    scores : ScoreModel
        From feature rows to detector scores and target.
    path : TradeoffPath
    choice : Choice
    mixture : Mixture
        The fair score at the chosen alpha.
    groups : Groups
        Of the rows in memory.
    counts : array of shape (G,)
        Rows of each group, in memory or not.
    n_rows : int
        All rows, in memory or not.
    S : array of shape (n, k)
        Detector scores of the rows in memory.
    target : array of shape (n,)
        Their base score.
    seen : FlagRows
        The same rows, each scored by what has not seen it.
    threshold : float
        Rows that score above are flagged.
    flag_rates : array of shape (G, 2)
        Share of each group, of all rows, that base and fair score flag.
    label_gap : tuple of float
        Scale-free demographic parity of the base score before and after it has learnt from labels; NaN without.
    rank_error : float
        What the ranks behind the row weights may be off, as a share of the rows.
    background : Background or None
        The features of the rows in memory, for reasons; None in models that were saved before there were any.
    """

    scores: ScoreModel
    path: TradeoffPath
    choice: Choice
    mixture: Mixture
    groups: Groups
    counts: IntArray
    n_rows: int
    S: FloatArray
    target: FloatArray
    seen: FlagRows
    threshold: float
    flag_rates: FloatArray
    label_gap: tuple[float, float]
    rank_error: float
    background: Background | None = None

    @property
    def fair(self) -> FloatArray:
        """The fair score of the rows in memory, shape (n,)."""
        return self.mixture.apply(self.S, self.target)

    def at(self, request: Request) -> "FitResult":
        """The same fit elsewhere on its path. Rows beyond those in memory are taken to score like these."""
        choice = request.choose(self.path, self.seen)
        mixture = self.path.mixture(choice.alpha)
        fair = mixture.apply(self.S, self.target)
        choice.announced(list_kept(self.target, fair, request.contamination))
        both, codes = np.column_stack([self.target, fair]), self.groups.codes
        above = self.thresholds(both, request.contamination)
        rates = group_rates(both > above, codes, len(self.counts))
        return replace(self, choice=choice, mixture=mixture, threshold=float(above[1]), flag_rates=rates)

    def thresholds(self, scores: FloatArray, contamination: float) -> FloatArray:
        """The score above which a row is flagged, for each column of scores of the rows in memory, shape (n, m)."""
        weight = self._weight()
        if weight is None:
            return flag_threshold(scores, contamination)
        share = 1.0 - flagged_share(contamination, self.n_rows)
        return np.array([weighted_quantile(y, weight, share) for y in scores.T])

    def _weight(self) -> FloatArray | None:
        """How many rows each row in memory stands for, shape (n,); None if each stands for itself."""
        if self.n_rows == len(self.target):
            return None
        drawn = np.append(self.groups.counts, (self.groups.codes < 0).sum())
        rows = np.append(self.counts, self.n_rows - self.counts.sum())
        return (rows / np.maximum(drawn, 1))[self.groups.codes]


def list_kept(base: FloatArray, fair: FloatArray, contamination: float) -> str:
    """How much of the list of the rows that the base score flags is still flagged, in words."""
    before, after = (y > flag_threshold(y, contamination) for y in (base, fair))
    kept = (before & after).sum() / max(before.sum(), 1)
    return f" and {kept:.0%} of the flagged list is kept"
