"""What a fit has learnt, and the same fit elsewhere on its path."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.choice import Choice
from evenout.core.flags import FlagRows, flag_threshold, top_threshold
from evenout.core.path import TradeoffPath
from evenout.core.problem import Mixture
from evenout.core.ruler import RatioEstimate
from evenout.core.types import FloatArray, IntArray
from evenout.fitting.attributes import attribute_bias, warn_rising
from evenout.fitting.background import Background
from evenout.fitting.request import Request
from evenout.fitting.scores import ScoreModel
from evenout.inputs.groups import Groups

if TYPE_CHECKING:
    from evenout.fitting.updating import Maps


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
        Of the rows in memory, crossed and hard: bands and probable groups by what a row belongs to most.
    names : tuple of str
        The groups that are compared.
    counts : array of shape (G,)
        Rows that each of these has, or is expected to have, in memory or not.
    n_rows : int
        All rows, in memory or not.
    S : array of shape (n, k)
        Detector scores of the rows in memory.
    target : array of shape (n,)
        Their base score.
    seen : FlagRows
        The same rows, each scored by what has not seen it.
    flag_ratio : RatioEstimate
        Ratio of flag rates on unseen rows.
    flag_price : dict of str to float
        What the score costs at the threshold, on the rows in memory as they are seen by what has not seen them.
    known : dict of str to float
        For each group that rows may resemble, how much of its indicator the features predict; empty where the score is
        not corrected by that.
    threshold : float
        Rows that score above are flagged.
    flag_rates : array of shape (G, 2)
        Share of each group, of all rows, that base and fair score flag.
    label_gap : tuple of float
        Scale-free demographic parity of the base score before and after it has learnt from labels; NaN without.
    rank_error : float
        What the ranks behind the row weights may be off, as a share of the rows.
    maps : Maps or None
        What folds new rows in.
    background : Background or None
        The features of the rows in memory, for reasons; None in models that were saved before there were any.
    """

    scores: ScoreModel
    path: TradeoffPath
    choice: Choice
    mixture: Mixture
    groups: Groups
    names: tuple[str, ...]
    counts: IntArray
    n_rows: int
    S: FloatArray
    target: FloatArray
    seen: FlagRows
    flag_ratio: RatioEstimate
    flag_price: dict[str, float]
    known: dict[str, float]
    threshold: float
    flag_rates: FloatArray
    label_gap: tuple[float, float]
    rank_error: float
    maps: "Maps | None" = None
    background: Background | None = None

    @property
    def prices(self) -> dict[str, float]:
        """What is taken off for resembling each group; empty where the score is not corrected by that."""
        model = self.scores.resemblance
        if model is None:
            return {}
        found = model.levelled(-self.mixture.weights[self.scores.n_detectors :])
        return dict(zip(self.known, found.tolist(), strict=True))

    @property
    def beyond_crossed(self) -> str:
        """The argument, for a message, by which this is no fit of crossed groups of independent rows that count alike.

        Empty if it is one.
        """
        cells, sample = self.path.cross.whole, self.seen.sample
        if cells.compared is None and cells.spread is None:
            return ""
        rows = "{@clusters}" if sample.clusters is not None else "{@sample_weight}"
        other = rows if cells.spread is not None else "{@given}"  # of which one stratum has two groups
        return sample.compared.beyond_crossed or other

    @property
    def fair(self) -> FloatArray:
        """The fair score of the rows in memory, shape (n,)."""
        return self.mixture.apply(self.S, self.target)

    def at(self, request: Request) -> "FitResult":
        """The same fit elsewhere on its path. Rows beyond those in memory are taken to score like these."""
        path, choice, ratio, price = request.settle(self.path, self.seen)
        mixture = path.mixture(choice.alpha)
        fair = mixture.apply(self.S, self.target)
        choice.announced(list_kept(self.target, fair, request.contamination), asked=request.asked)
        warn_rising(attribute_bias(path, choice.alpha, request.target))
        both = np.column_stack([self.target, fair])
        sample = self.seen.sample
        above = top_threshold(both, self.seen.share(request.contamination), sample.weight)
        rates = sample.means(both > above)
        found: dict[str, Any] = {"path": path, "choice": choice, "mixture": mixture, "flag_ratio": ratio}
        return replace(self, **found, flag_price=price, threshold=float(above[1]), flag_rates=rates)


def list_kept(base: FloatArray, fair: FloatArray, contamination: float) -> str:
    """How much of the list of the rows that the base score flags is still flagged, in words."""
    before, after = (y > flag_threshold(y, contamination) for y in (base, fair))
    kept = (before & after).sum() / max(before.sum(), 1)
    return f" and {kept:.0%} of the flagged list is kept"
