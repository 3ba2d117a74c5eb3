"""Who is flagged by a score, and how often each group is among the flagged."""

from numbers import Integral

import numpy as np

from evenout.core.exceptions import InputError
from evenout.core.types import BoolArray, FloatArray, IntArray


def flagged_share(contamination: float, n_rows: int) -> float:
    """The share of rows that is flagged: ``contamination`` itself or, where it is a whole number, so many of the rows.

    >>> flagged_share(0.1, 50), flagged_share(10, 50)
    (0.1, 0.2)
    """
    if isinstance(contamination, Integral):
        if contamination > n_rows // 2:
            raise InputError(
                "{contamination=} is more than half of the {n_rows} rows; use a smaller count, or a share",
                contamination=int(contamination), n_rows=n_rows,
            )  # fmt: skip
        return int(contamination) / n_rows
    return float(contamination)


def flag_threshold(scores: FloatArray, contamination: float) -> FloatArray:
    """The score above which a row is flagged, per column of ``scores``: the top share of the rows, or so many rows."""
    return np.percentile(scores, 100.0 * (1.0 - flagged_share(contamination, len(scores))), axis=0)


def weighted_quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """The value below which ``share`` of the weight lies.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    place = np.searchsorted(upto, share * upto[-1], side="left")
    return float(values[order][min(int(place), len(values) - 1)])


def flag_rates(scores: FloatArray, groups: IntArray, n_groups: int, contamination: float) -> FloatArray:
    """Share of flagged rows in each group.

    Parameters
    ----------
    scores : array of shape (n,) or (n, m)
    groups : array of shape (n,)
        Codes; -1 (unknown) counts towards the threshold alone.
    n_groups : int
    contamination : float

    Returns
    -------
    array of shape (G,) or (G, m)

    >>> flag_rates(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1]), n_groups=2, contamination=0.25).tolist()
    [0.0, 0.5]
    """
    flagged = scores > flag_threshold(scores, contamination)
    return group_rates(flagged, groups, n_groups)


def group_rates(marked: BoolArray, groups: IntArray, n_groups: int) -> FloatArray:
    """Share of the marked rows, (n,) or (n, m), in each group, shape (G,) or (G, m)."""
    rates = np.zeros((n_groups, *marked.shape[1:]))
    for group in range(n_groups):
        rates[group] = marked[groups == group].mean(axis=0)
    return rates


def rate_ratio(rates: FloatArray) -> FloatArray:
    """Smallest over largest flag rate along the first axis; 1 if nobody is flagged."""
    largest = rates.max(axis=0)
    return np.where(largest > 0, rates.min(axis=0) / np.where(largest > 0, largest, 1.0), 1.0)


def beyond_equal_rates(flagged: FloatArray, rows: IntArray) -> FloatArray:
    """How many flagged rows are there beyond what equal rates of all groups would give.

    Parameters
    ----------
    flagged : array of shape (G, m)
        Flagged rows of each group by each of m scores.
    rows : array of shape (G,)

    Returns
    -------
    array of shape (m,)

    >>> beyond_equal_rates(np.array([[30.0], [10.0]]), np.array([100, 100])).tolist()
    [10.0]
    """
    even = rows[:, None] * (flagged.sum(axis=0) / max(rows.sum(), 1))
    return np.maximum(flagged - even, 0.0).sum(axis=0)
