"""Choosing rows to investigate: inclusion probabilities, and a draw of a fixed number of rows that keeps them exactly.

Of a budget of B rows, m are drawn by chance and B - m are the highest scores. With ``base`` = 1 for these, 0 for the
rest, and ``places / tied`` for rows that tie for the last places, row i of stratum h has the probability

    pi_i = base_i + (1 - base_i) c_i,        c_i = min(1, k_h (1 + 4 u_i^3) / 2),

where ``u_i`` in (0, 1] is the rank of the score in the rest of the stratum, and ``k_h`` gives the stratum its share of
the m rows, by its size. Half of the chance is uniform, which bounds the weights 1 / pi at twice their mean, and half
rises with the score; by ranks, so that no unit matters. The power is a compromise between finding more outliers and
less variance.

Rows are drawn by systematic sampling: strata one after the other, in random order within each. The number of rows is
fixed, in each stratum up to one, and pi is exact whatever the order.
"""

import numpy as np
from scipy.stats import rankdata

from evenout.core.types import BoolArray, FloatArray, IntArray

UNIFORM = 0.5  # share of the chance draws that does not depend on the score
POWER = 3  # of the rank


def inclusion_probabilities(
    scores: FloatArray, budget: int, n_chance: int, strata: IntArray
) -> tuple[FloatArray, BoolArray]:
    """The probability of every row to be on the list, and which rows are on it by their score alone; shape (n,).

    Of the ``budget``, at most n, ``n_chance`` rows are drawn by chance; ``strata`` (n,) are codes 0, 1, ...

    >>> scores = np.array([5.0, 4.0, 1.0, 1.0, 1.0, 1.0])
    >>> inclusion_probabilities(scores, 4, 2, np.zeros(6, dtype=np.intp))[0].tolist()
    [1.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    """
    n, n_score = len(scores), budget - n_chance
    base = np.zeros(n)
    if n_score:
        cut = np.partition(scores, n - n_score)[n - n_score]
        above, tied = scores > cut, scores == cut
        base[above] = 1.0
        base[tied] = (n_score - above.sum()) / tied.sum()
    by_score, rest = base == 1.0, 1.0 - base
    chance = np.zeros(n)
    if n_chance:
        left, open_rows = np.bincount(strata, weights=rest), np.flatnonzero(~by_score)
        open_rows = open_rows[np.argsort(strata[open_rows], kind="stable")]
        ends = np.cumsum(np.bincount(strata[open_rows], minlength=len(left)))
        for stratum in np.flatnonzero(left > 0):
            rows = open_rows[ends[stratum - 1] if stratum else 0 : ends[stratum]]
            height = (rankdata(scores[rows]) / len(rows)) ** POWER
            size = UNIFORM + (1.0 - UNIFORM) * height * rest[rows].sum() / (rest[rows] @ height)
            chance[rows] = _capped(size, rest[rows], n_chance * left[stratum] / left.sum())
    return np.minimum(base + rest * chance, 1.0), by_score


def _capped(size: FloatArray, rest: FloatArray, total: float) -> FloatArray:
    """``min(1, k size)`` with the k for which it sums to ``total``, each row counted by ``rest``."""
    certain = np.zeros(len(size), dtype=bool)
    while True:
        left = rest[~certain] @ size[~certain]
        factor = (total - rest[certain].sum()) / left if left > 0 else 0.0
        more = ~certain & (factor * size > 1.0)
        if not more.any():
            return np.where(certain, 1.0, factor * size)
        certain |= more


def draw(probability: FloatArray, strata: IntArray, rng: np.random.Generator) -> IntArray:
    """Rows of a sample of fixed size, in ascending order; row i is in it with probability ``probability[i]`` exactly.

    >>> draw(np.array([1.0, 0.0, 0.5, 0.5]), np.zeros(4, dtype=np.intp), np.random.default_rng(0)).tolist()
    [0, 3]
    """
    certain = np.flatnonzero(probability >= 1.0)
    open_rows = np.flatnonzero((probability > 0.0) & (probability < 1.0))
    order = open_rows[np.argsort(strata[open_rows] + rng.random(len(open_rows)))]
    upto = np.cumsum(probability[order])
    size = round(float(upto[-1])) if len(upto) else 0
    if size:
        upto *= size / upto[-1]  # rounding of a long sum
        upto[-1] = np.inf
    chosen = order[np.searchsorted(upto, rng.random() + np.arange(size), side="right")]
    return np.sort(np.concatenate([certain, chosen]))
