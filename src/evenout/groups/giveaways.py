"""Features that nearly give the group away, such as ``relationship=Husband`` of the sex.

A value of a feature *tells* the group of its rows if at least 95 % of them are of one group, and the odds of that group
are 19 times those among all rows: of two groups of equal size, 95 % are 19 to 1. A feature gives the group away if it
tells the group of a quarter of the rows. Values count from 30 rows on, so chance does not do that, nor does any feature
of the bundled tables (at most 17 % of the rows, crowded housing and race in communities). A measure over all rows, such
as Cramer's V, would miss husbands: half of the men are none, and V is .6.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from evenout.core.types import FloatArray, IntArray
from evenout.exceptions import GroupGivenAwayWarning, warn

TOLD = 0.25  # share of the rows whose group is told
CERTAIN = 0.95
_ODDS = 19.0
_BINS = 20  # of equal numbers of rows, where a feature has more values
_LEAST = 30  # rows of a value
_ROWS = 20_000  # looked at, evenly spaced


class Giveaway(NamedTuple):
    """A feature by its place, the protected attribute that it tells, and the share of rows for which it does."""

    feature: int
    attribute: str
    share: float


def find_giveaways(X: FloatArray, attributes: Mapping[str, IntArray]) -> list[Giveaway]:
    """Features of X (n, d) that give an attribute away; codes (n,) are -1 where a group is unknown."""
    step = -(-len(X) // _ROWS)
    found = []
    for feature, column in enumerate(X[::step].T):
        values, bins = np.unique(column, return_inverse=True)
        if len(values) > _BINS:
            edges = np.unique(np.quantile(column, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
            bins = np.searchsorted(edges, column, side="right")
        shares = {name: told_share(bins, codes[::step]) for name, codes in attributes.items()}
        name = max(shares, key=shares.__getitem__)
        if shares[name] >= TOLD:
            found.append(Giveaway(feature, name, shares[name]))
    return found


def told_share(bins: IntArray, codes: IntArray) -> float:
    """Share of the rows whose group their bin tells.

    >>> husband, male = np.repeat([1, 0, 0], 40), np.repeat([1, 1, 0], 40)
    >>> round(told_share(husband, male), 2)
    0.33
    """
    known = codes >= 0
    bins, codes = bins[known], codes[known]
    if not len(codes):
        return 0.0
    n_groups = int(codes.max()) + 1
    joint = np.bincount(bins * n_groups + codes, minlength=(int(bins.max()) + 1) * n_groups).reshape(-1, n_groups)
    rows, prior = joint.sum(axis=1), joint.sum(axis=0)
    certain = joint >= CERTAIN * rows[:, None]
    lifted = joint * (len(codes) - prior) >= _ODDS * (rows[:, None] - joint) * prior
    told = (certain & lifted & (prior < len(codes))).any(axis=1) & (rows >= _LEAST)
    return float(rows[told].sum() / len(codes))


def read_attributes(sensitive_features: Any, codes: IntArray) -> dict[str, IntArray]:
    """The groups, and each protected column alone where there are several."""
    frame = pd.DataFrame(sensitive_features)
    if frame.shape[1] == 1:
        name = frame.columns[0]
        return {name if isinstance(name, str) else "the group": codes}
    return {"the group": codes} | {str(name): pd.factorize(frame[name])[0].astype(np.intp) for name in frame.columns}


def warn_giveaways(found: Sequence[Giveaway], names: Sequence[str]) -> None:
    """Name the features; the field ``shares`` of the warning has the share of rows that each tells, by its name."""
    if not found:
        return
    said = [
        f"{names[each.feature]!r} tells {each.attribute} in {each.share:.0%} of the rows"
        for each in sorted(found, key=lambda each: -each.share)
    ]
    more = [f"and {len(said) - 5} more features"] if len(said) > 5 else []
    warn(
        GroupGivenAwayWarning(
            "features nearly give the group away: {said}. What is scored by them is scored by group; leave them out "
            "unless they are needed",
            said="; ".join(said[:5] + more), shares={str(names[each.feature]): each.share for each in found},
        )
    )  # fmt: skip
