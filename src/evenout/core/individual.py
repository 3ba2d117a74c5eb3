"""Individual fairness: similar rows of different groups should have similar scores."""

from functools import cache, partial
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator

from evenout.core.cells import Cells, CrossFit, fold_variances, variances
from evenout.core.content import row_numbers, shuffle_copies
from evenout.core.notions import Collector, Notion, NotionRows
from evenout.core.pairwise import cross_pairs, estimate_pair_sums
from evenout.core.ruler import ratio
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import FewPairsWarning, warn

LengthScale: TypeAlias = Literal["minmax"] | float | tuple[Literal["median"], float]

# The shortest of 0.02, 0.05, 0.1, 0.2 and 0.5 median distances at which, on every bundled table, there are five similar
# rows of other groups to a row, by `effective_pairs`: benchmarks/similar_scale.py.
DEFAULT_LENGTH: LengthScale = ("median", 0.1)

LEAST_LENGTH = 1e-150  # below it, the quotient of a distance and a length may overflow

_SAMPLE = 2000  # rows from which the median distance is estimated
_PAIR_SAMPLE = 3000  # rows from which the effective pairs are estimated
_FEW_PAIRS = 100  # the mean square of so many differences has a relative error of sqrt(2 / 100), one in seven
_PER_WEIGHT = 10  # pairs for every weight that is fitted to them


def comparable_rows(
    X: FloatArray, groups: IntArray, length_scale: LengthScale
) -> tuple[FloatArray, Literal["minmax"] | float]:
    """Features (n, d) and scale for `pair_sums`.

    ``"minmax"``: raw features, distances scaled to [0, 1], as published; every similarity then is in [1/e, 1], so that
    nearly all pairs have similar weight. A number: standardised features, ``exp(-distance / length_scale)``.
    ``("median", factor)``: the same, with ``factor`` times the median distance between rows of different groups.
    """
    if length_scale == "minmax":
        return X, "minmax"
    largest = np.abs(X).max(axis=0)
    unit = X / np.where(largest > 0, largest, 1.0)  # no square of a huge or tiny value is ever taken
    ordered = np.sort(unit, axis=0)  # so that sums do not depend on the order of the rows
    spread = ordered.std(axis=0)
    features = (unit - ordered.mean(axis=0)) / np.where(spread > 1e-13, spread, 1.0)
    if isinstance(length_scale, tuple):
        return features, max(length_scale[1] * median_distance(features, groups), LEAST_LENGTH)
    return features, float(length_scale)


def median_distance(features: FloatArray, groups: IntArray) -> float:
    """Median distance between rows of different known groups, from at most 2000 rows drawn by content."""
    drawn = draw_rows(features, groups, _SAMPLE)
    distances = cdist(features[drawn], features[drawn])
    across = groups[drawn][:, None] != groups[drawn]
    return float(np.median(distances[across])) if across.any() else 1.0


def effective_pairs(rows: FloatArray, groups: IntArray, scale: Literal["minmax"] | float) -> float:
    """Effective number of pairs of rows from different groups, weighted by similarity: ``(sum M)^2 / sum M^2``.

    If all pairs are equally similar, that is their number; if a few near-duplicates have most of the weight, it is
    about their number. Counted on at most 3000 rows, drawn by content, and scaled up to all pairs. ``rows`` (n, d) and
    ``scale`` are those of `comparable_rows`; the group -1 is left out.

    Examples
    --------
    Two pairs of equal rows, and rows far away from everything: two pairs count.

    >>> rows = np.array([[0.0], [9.0], [30.0], [0.0], [9.0], [99.0]])
    >>> round(effective_pairs(rows, np.array([0, 0, 0, 1, 1, 1]), 0.1), 6)
    2.0
    """
    drawn = draw_rows(rows, groups, _PAIR_SAMPLE)
    codes = groups[drawn]
    distances = cdist(rows[drawn], rows[drawn])[np.triu(codes[:, None] != codes)]
    if len(distances) == 0:
        return 0.0
    length = (np.ptp(distances) or 1.0) if scale == "minmax" else scale
    similar = np.exp(-(distances - distances.min()) / length)  # a common factor cancels; no sum is 0
    all_pairs = cross_pairs(np.bincount(groups[groups >= 0]))
    return float(similar.sum() ** 2 / (similar**2).sum()) * all_pairs / len(distances)


def warn_few_pairs(effective: float, *, n_weights: int = 0) -> None:
    """Warn if individual fairness rests on too few pairs.

    Too few are less than 100, whose mean square has a relative error of one in seven; and less than ten for each of
    the ``n_weights`` that are fitted to them, 0 where a given score is measured.
    """
    needed = max(_FEW_PAIRS, _PER_WEIGHT * n_weights)
    if effective >= needed:
        return
    what = f"choose {n_weights} weights" if n_weights else "measure a score"
    message = (
        "individual fairness rests on about {effective:.0f} pairs of similar rows, too few to {what} by them "
        "({needed} are wanted): a few of them decide. Give more rows or a longer {@length_scale}, "
        "say {length_scale=('median', 0.2)}."
    )
    warn(FewPairsWarning(message, effective=effective, what=what, needed=needed))


def draw_rows(features: FloatArray, groups: IntArray, size: int) -> IntArray:
    """Draw at most ``size`` rows of known groups, by content, not by place; copies are drawn independently."""
    known = np.flatnonzero(groups >= 0)
    if len(known) <= size:
        return known
    content = row_numbers(np.column_stack([features[known], groups[known]]), seed=0)
    order = np.argsort(content, kind="stable")
    return known[order[shuffle_copies(content[order], content[order].astype(float), seed=0)[:size]]]


_TINY = np.finfo(float).tiny


class Individual(Notion, BaseEstimator):
    """Individual fairness: equal scores of similar rows from different groups.

    Parameters
    ----------
    length_scale : "minmax", float or ("median", factor), default=("median", 0.1)
        The distance at which similarity falls by e, in units of the median distance between rows of different groups,
        or as a number, on standardised features; ``"minmax"`` is the published similarity, under which nearly all pairs
        of rows count as similar.
    pairs : {"auto", "exact", "sampled"}, default="auto"
        Visit all pairs of rows, or a sample that leaves a relative error of 1 % (``pair_error_``); ``"auto"`` samples
        beyond 5e9 pairs, some 100,000 rows. A GPU visits all.

    Notes
    -----
    Of each set of rows and each of the N pairs of groups it keeps ``individual.form`` (K, N, k + 1, k + 1), which is
    ``sum M_ij (z_i - z_j)(z_i - z_j)'``, and ``individual.mass`` (K, N), ``sum M_ij``. ``individual.error`` (K,) is the
    relative error of a sample of the pairs, and ``individual.pairs`` (K,) the effective number of pairs.
    """

    name, option, needs_pairs = "individual", "equal scores of similar rows", True
    words = "gap between similar people"
    label = "Bias between similar rows"

    def __init__(
        self, length_scale: LengthScale = DEFAULT_LENGTH, pairs: Literal["auto", "exact", "sampled"] = "auto"
    ) -> None:
        self.length_scale = length_scale
        self.pairs = pairs

    def collect(self, rows: NotionRows) -> Collector:
        """Find similar rows once, by the features, and sum up the differences of their scores."""
        features, scale = comparable_rows(rows.X, rows.groups, self.length_scale)
        effective = effective_pairs(features, rows.groups, scale)
        p, q = np.triu_indices(rows.n_groups, 1)
        stands_for = rows.stands_for[p] * rows.stands_for[q]
        shape: dict[str, Any] = {"n_groups": rows.n_groups, "n_folds": 1, "scale": scale}
        warn_once = cache(partial(warn_few_pairs, effective))

        def sums(S: FloatArray, t: FloatArray, of: BoolArray) -> dict[str, FloatArray]:
            warn_once(n_weights=S.shape[1])  # only now is their number known
            given = features, np.column_stack([S, t]), np.where(of, rows.groups, -1), np.zeros(len(S), dtype=np.intp)
            if rows.pair_sums is None:
                how = shape | {"method": self.pairs, "seed": rows.seed, "n_threads": rows.n_threads}
                pairs, error = estimate_pair_sums(*given, **how)
            else:
                pairs, error = rows.pair_sums(*given, **shape), 0.0
            form, mass = pairs.total()
            return {
                "form": form * stands_for[:, None, None], "mass": mass * stands_for,
                "error": np.array(error), "pairs": np.array(effective),
            }  # fmt: skip

        return sums

    def shapes(self, n_groups: int, k: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the form and mass of each pair of groups, of the error and of the effective pairs."""
        N = n_groups * (n_groups - 1) // 2
        return {"form": (N, k + 1, k + 1), "mass": (N,), "error": (), "pairs": ()}

    def form(self, cells: Cells) -> FloatArray:
        """``1/N sum_{p<q} 1/(n_p n_q) sum_ij M_ij (z_i - z_j)(z_i - z_j)'`` of each set, shape (K, k + 1, k + 1)."""
        n, (form, _) = cells.group_counts, _kept(cells)
        p, q = np.triu_indices(cells.n_groups, 1)
        return (form / np.maximum(n[:, p] * n[:, q], 1.0)[:, :, None, None]).mean(axis=1)

    def training_bias(self, cells: Cells, V: FloatArray) -> FloatArray:
        """``sum M (y_i - y_j)^2 / sum M / Var(y)``, the mean over pairs of groups, on the rows of one set."""
        form, mass = _kept(cells)
        squared = np.einsum("pkl,mk,ml->mp", form[0], V, V, optimize=True)
        return ratio(_per_mass(squared, mass[0]), variances(cells, V[None])[0])

    def bias(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """`training_bias` on pairs with both rows in one fold."""
        return _per_mass(*(part.sum(axis=0) for part in self._squared(cross, V)))

    def fold_biases(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """`bias` of each fold."""
        return _per_mass(*self._squared(cross, V))

    def _squared(self, cross: CrossFit, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of squared differences in units of the variance (K, m, N), and masses (K, 1, N)."""
        form, mass = _kept(cross.held)
        squared = np.einsum("fpkl,fmk,fml->fmp", form, V, V, optimize=True)
        return ratio(squared, fold_variances(cross, V)[:, :, None]), mass[:, None]


def _kept(cells: Cells) -> tuple[FloatArray, FloatArray]:
    if "individual.form" not in cells.sums:
        raise ValueError("individual fairness needs the pair sums of the cells; none were collected")
    return cells.sums["individual.form"], cells.sums["individual.mass"]


def _per_mass(squared: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of ``squared / mass`` over pairs of groups (the last axis); 0 for a pair without any similar rows."""
    return (squared / np.maximum(mass, _TINY)).mean(axis=-1)
