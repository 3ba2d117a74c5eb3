"""What data cannot tell, however many rows there are: stated as bounds, and never called reached.

Groups that are known by their probabilities leave open who of those with the same probabilities is a member. A score
that knows more of the group than the probabilities do may then be anything within bounds (`core.ruler.mean_bounds`).
Labels of rows that somebody chose, by a rule that is not known, say nothing of rows that nobody looked at.
"""

from dataclasses import replace

import numpy as np

from evenout.core.choice import Choice
from evenout.core.exceptions import UnknownOutcomeWarning
from evenout.core.flags import FlagRows
from evenout.core.ruler import RatioEstimate, bounded_gap, bounded_ratio, mean_bounds
from evenout.core.types import FloatArray

_LABELS = (
    "what was reached is known of the labelled rows alone ({found}), as nobody knows how they were chosen: nothing can "
    "be said about outliers that nobody looked at. Give {@label_propensity}, the chance with which each row was looked "
    "at, or label rows that are drawn at random."
)
_PROBABLE = (
    "what was reached cannot be known: {kind} {ends} is possible, and probabilities alone "
    "cannot say more. If they tell all that the score knows of the group, it is {value}; say so by "
    "GroupProbabilities(..., sufficient=True)."
)


def doubted(
    choice: Choice, ratio: RatioEstimate, rows: FlagRows, V: FloatArray, share: float, asked: float | None
) -> tuple[Choice, RatioEstimate]:
    """What was chosen, and the ratio of flag rates, with the bounds of what can be known.

    Parameters
    ----------
    choice : Choice
    ratio : RatioEstimate
    rows : FlagRows
    V : array of shape (K, 1, k + 1)
        The weights of what was chosen, as each fold has them.
    share : float
        Of the rows that is flagged.
    asked : float or None
        The ratio of flag rates, if one was asked for.
    """
    doubt = rows.sample.doubt
    given = asked is None and np.isnan(choice.asked)  # a place on the path: nothing was asked for
    if not doubt or not rows.compares.any() or (doubt == "labels" and given):
        return choice, ratio
    if doubt == "labels":
        found = f"{choice.reached:.2f}" if asked is None else f"{ratio.value:.2f}"
        return _unknown(choice, _LABELS.replace("{found}", found)), ratio
    flags = rows.measured(V, share)
    ratio = ratio._replace(interval=bounded_ratio(flags, *mean_bounds(rows.sample, rows.flagged(V, share)[:, 0])))
    choice = replace(choice, interval=_reduction(rows, V))
    low, high = choice.interval if asked is None else ratio.interval
    if given:
        return choice, ratio
    if low >= (choice.asked if asked is None else asked):
        return replace(choice, met=True, message=""), ratio
    kind = "a reduction" if asked is None else "a ratio of flag rates"
    value = choice.reached if asked is None else ratio.value
    ends = f"between {low:.2f} and {high:.2f}" if np.isfinite(low) else f"of any size up to {high:.2f}"
    words = _PROBABLE.replace("{kind}", kind).replace("{ends}", ends).replace("{value}", f"{value:.2f}")
    return _unknown(choice, words), ratio


def _unknown(choice: Choice, message: str) -> Choice:
    return replace(choice, met=False, message=message, kind=UnknownOutcomeWarning)


def _reduction(rows: FlagRows, V: FloatArray) -> tuple[float, float]:
    """Bounds of the share of the bias that is gone."""
    sample = rows.sample
    known = (sample.size > 1.0 + 1e-9)[None]
    L = sample.compared.laplacian(known, np.where(known[0], sample.total, 0.0)[None])[0]
    ends = []
    for weights in (rows.base(), V):
        z = np.zeros(len(rows.t))
        for fold in range(len(weights)):
            inside, scores = rows.scores(weights, fold)
            y = scores[:, 0]
            z[inside] = (y - y.mean()) / y.std() if len(y) and y.std() > 0 else 0.0
        ends.append(bounded_gap(L, *mean_bounds(sample, z)))
    (before_low, before_high), (after_low, after_high) = ends
    low = 1.0 - after_high / before_low if before_low > 0 else -np.inf
    return float(low), float(1.0 - after_low / before_high) if before_high > 0 else float("nan")
