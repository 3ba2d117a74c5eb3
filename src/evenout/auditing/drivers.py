"""Which features go with the gap: the part of it that goes away if a feature were spread alike in all groups."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse
from scipy.stats import chi2_contingency

from evenout.auditing.inference import percentiles
from evenout.auditing.inputs import bin_column
from evenout.core.types import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

TEST_ROWS = 30_000  # rows in the permutations
_BINS = 10
_BLOCK = 100  # permutations at once


class Driver(NamedTuple):
    """Share of the gap of mean scores that one feature explains, with its interval and p-value."""

    feature: str
    share: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class _Cells:
    """Rows of each group in each bin of one feature: count, mean and variance of their scores, shape (G, B) each."""

    count: FloatArray
    mean: FloatArray
    variance: FloatArray


def gap_drivers(
    scores: FloatArray,
    features: "pd.DataFrame",
    groups: IntArray,
    n_groups: int,
    *,
    n_bootstrap: int,
    n_permutations: int,
    confidence: float,
    rng: np.random.Generator,
    test_rows: IntArray,
    clusters: IntArray | None = None,
) -> list[Driver]:
    """Each feature's share of the gap of mean scores, largest share first.

    The scores are fitted by ``y = a_group + h(bin)``, the bins being the feature's values or ten quantile bins. With
    ``e_g`` the mean of h in group g, the part of the group's mean that its mix of bins accounts for, and ``m_g`` the
    mean score, the share is ``sum_{p<q} (m_p - m_q)(e_p - e_q) / sum_{p<q} (m_p - m_q)^2``: 1 if the gap is all
    composition (Kitagawa 1955, Oaxaca 1973; group effects in the fit as in Jann 2008).

    Parameters
    ----------
    scores : array of shape (n,)
    features : frame of shape (n, d)
    groups : array of shape (n,)
    n_groups, n_bootstrap, n_permutations : int
    confidence : float
    rng : numpy Generator
    test_rows : array of int
        The rows used in the permutations.
    clusters : array of shape (n,), optional
        Codes of clusters of rows, each within one group: whole ones are drawn by the bootstrap. There are no p-values
        then, because both tests take rows as independent.

    Notes
    -----
    Features are taken one at a time: correlated ones claim the same part, shares need not add up to 1, a feature
    whose effect differs between groups is averaged, and none of this is causal. A feature that merely restates
    the group explains nothing, because within groups it does not vary.

    To drive the gap a feature must differ between groups *and* move the score within them; p is the larger of the
    p-values of these two (chi-square; permutation of the scores within groups). The bootstrap draws the bins' counts
    as rows would fall, and their sums from the normal approximation.
    """
    y = (scores - scores.mean()) / scores.std()
    bins = [bin_column(features[name], _BINS).codes for name in features]
    within = _permutation_p(
        y[test_rows],
        [codes[test_rows] for codes in bins],
        groups[test_rows],
        n_groups,
        n_permutations if clusters is None else 0,
        rng,
    )
    times = None if clusters is None else cluster_draws(clusters, groups, n_groups, n_bootstrap, rng)
    drivers = []
    for name, codes, p in zip(features, bins, within, strict=True):
        cells = _cells(y, codes, groups, n_groups)
        drawn = (
            _resampled_shares(cells, n_bootstrap, rng)
            if clusters is None or times is None
            else _cluster_shares(y, codes, groups, n_groups, clusters, times)
        )
        low, high = percentiles(drawn[:, None], confidence)
        share = float(_shares(cells.count, cells.count * cells.mean)[0])
        p = float("nan") if np.isnan(p) else max(float(p), _mix_p(cells.count))
        drivers.append(Driver(str(name), share, float(low[0]), float(high[0]), p))
    return sorted(drivers, key=lambda driver: -driver.share)


def cluster_draws(clusters: IntArray, groups: IntArray, n_groups: int, size: int, rng: np.random.Generator) -> IntArray:
    """How often each cluster is drawn, with replacement within its group, shape (clusters, size)."""
    owner = np.empty(int(clusters.max()) + 1, dtype=np.intp)
    owner[clusters] = groups
    times = np.zeros((len(owner), size), dtype=np.intp)
    for group in range(n_groups):
        mine = np.flatnonzero(owner == group)
        times[mine] = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=size).T
    return times


def _cells(scores: FloatArray, bins: IntArray, groups: IntArray, n_groups: int) -> _Cells:
    n_bins = int(bins.max()) + 1
    place, size = groups * n_bins + bins, n_groups * n_bins
    count = np.bincount(place, minlength=size).astype(float)
    mean = np.bincount(place, weights=scores, minlength=size) / np.maximum(count, 1)
    variance = np.bincount(place, weights=(scores - mean[place]) ** 2, minlength=size) / np.maximum(count, 1)
    return _Cells(*(part.reshape(n_groups, n_bins) for part in (count, mean, variance)))


def _shares(count: FloatArray, sums: FloatArray) -> FloatArray:
    """Share explained for each of m tables of bin sums, shape (m, G, B); ``count`` has the same shape or (G, B).

    With the group effects taken out, h solves ``(D - N' diag(1/n) N) h = T - N' m``: D, T the bins' counts and
    sums, N the counts by group and bin.
    """
    sums = sums.reshape(-1, *count.shape[-2:])
    n = count.sum(axis=-1)
    mix = count / n[..., None]
    mean = sums.sum(axis=-1) / n  # (m, G)
    normal = np.eye(count.shape[-1]) * count.sum(axis=-2)[..., None, :] - np.swapaxes(count, -1, -2) @ mix
    right = sums.sum(axis=-2) - (np.swapaxes(count, -1, -2) @ mean[..., None])[..., 0]
    # h is known up to a constant, and less where bins hold no row or groups share no bin: a trace of a ridge decides
    ridge = 1e-9 * count.sum(axis=(-1, -2))[..., None, None] * np.eye(count.shape[-1])
    h = np.linalg.solve(normal + ridge, right[..., None])[..., 0]
    explained = (mix @ h[..., None])[..., 0]
    gap, part = (x - x.mean(axis=-1, keepdims=True) for x in (mean, explained))
    square = (gap**2).sum(axis=-1)
    return np.where(square > 0, (gap * part).sum(axis=-1), np.nan) / np.where(square > 0, square, 1.0)


def _resampled_shares(cells: _Cells, size: int, rng: np.random.Generator) -> FloatArray:
    count = np.stack(
        [rng.multinomial(int(row.sum()), row / row.sum(), size=size) for row in cells.count], axis=1
    ).astype(float)
    sums = count * cells.mean + np.sqrt(count * cells.variance) * rng.standard_normal(count.shape)
    return _shares(count, sums)


def _cluster_shares(
    scores: FloatArray,
    bins: IntArray,
    groups: IntArray,
    n_groups: int,
    clusters: IntArray,
    times: IntArray,
) -> FloatArray:
    """Share explained in each resample of clusters, shape (size,)."""
    n_bins = int(bins.max()) + 1
    shape, places = (n_groups * n_bins, len(times)), (groups * n_bins + bins, clusters)
    count, sums = (
        np.asarray(scipy.sparse.coo_array((values, places), shape=shape).tocsr() @ times, dtype=float).T
        for values in (np.ones(len(bins)), scores)
    )
    return _shares(count.reshape(-1, n_groups, n_bins), sums.reshape(-1, n_groups, n_bins))


def _permutation_p(
    scores: FloatArray,
    bins: list[IntArray],
    groups: IntArray,
    n_groups: int,
    size: int,
    rng: np.random.Generator,
) -> FloatArray:
    """p-value, per feature, of "within groups the score does not depend on it": scores are shuffled within groups."""
    if size == 0:
        return np.full(len(bins), np.nan)
    order = np.argsort(groups, kind="stable")
    y, edges = scores[order], np.searchsorted(groups[order], np.arange(n_groups + 1))
    member = [_indicator(groups[order], codes[order], n_groups) for codes in bins]
    counts = [np.asarray(m.sum(axis=1), dtype=float).reshape(n_groups, -1) for m in member]

    def shares(shuffled: FloatArray) -> FloatArray:
        sums = [(m @ shuffled.T).T for m in member]
        return np.column_stack([_shares(n, s.reshape(-1, *n.shape)) for n, s in zip(counts, sums, strict=True)])

    least = np.abs(shares(y[None])) * (1 - 1e-10)
    as_large = np.zeros(len(bins))
    for start in range(0, size, _BLOCK):
        shuffled = np.tile(y, (min(_BLOCK, size - start), 1))
        for first, last in pairwise(edges):
            shuffled[:, first:last] = rng.permuted(shuffled[:, first:last], axis=1)
        as_large += (np.abs(shares(shuffled)) >= least).sum(axis=0)
    return (1 + as_large) / (1 + size)


def _indicator(groups: IntArray, bins: IntArray, n_groups: int) -> scipy.sparse.csr_array:
    """Which rows lie in which cell, shape (G B, n)."""
    n, n_bins = len(bins), int(bins.max()) + 1
    places = (groups * n_bins + bins, np.arange(n))
    return scipy.sparse.csr_array((np.ones(n), places), shape=(n_groups * n_bins, n))


def _mix_p(count: FloatArray) -> float:
    """p-value of "all groups have the same mix of bins" (chi-square)."""
    used = count[:, count.sum(axis=0) > 0]
    return float(chi2_contingency(used, correction=False).pvalue) if used.shape[1] > 1 else 1.0
