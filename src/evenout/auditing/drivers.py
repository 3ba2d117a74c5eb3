"""Which features drive a gap, and how rows that are alike score."""

from itertools import combinations, pairwise
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from scipy.spatial.distance import cdist
from scipy.stats import chi2_contingency

from evenout.auditing.counted import Values
from evenout.auditing.inference import percentiles
from evenout.auditing.result import Measure
from evenout.auditing.sample import bin_column
from evenout.core.individual import LengthScale
from evenout.core.types import FloatArray, IntArray
from evenout.metrics import individual_unfairness

TEST_ROWS = 30_000  # rows in the permutations
_BINS = 10
_BLOCK = 100  # permutations at once


class _Cells(NamedTuple):
    """Rows of each group in each bin of one feature, and mean and variance of their scores, shape (G, B) each."""

    rows: FloatArray
    mean: FloatArray
    variance: FloatArray


def gap_drivers(
    scores: FloatArray,
    features: pd.DataFrame,
    groups: IntArray,
    n_groups: int,
    *,
    resamples: int,
    confidence: float,
    rng: np.random.Generator,
    test_rows: IntArray,
    clusters: IntArray | None = None,
) -> list[Measure]:
    """Each feature's share of the gap of mean scores, largest share first.

    The scores are fitted by ``y = a_group + h(bin)``, the bins being the feature's values or ten quantile bins. With
    ``e_g`` the mean of h in group g, the part of the group's mean that its mix of bins accounts for, and ``m_g`` the
    mean score, the share is ``sum_{p<q} (m_p - m_q)(e_p - e_q) / sum_{p<q} (m_p - m_q)^2``: 1 if the gap is all
    composition (Kitagawa 1955, Oaxaca 1973; group effects in the fit as in Jann 2008). Permutations use ``test_rows``.
    Clusters, each within one group, are drawn whole; there are no p-values then, as tests take rows as independent.

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
        resamples if clusters is None else 0,
        rng,
    )
    times = None if clusters is None else cluster_draws(clusters, groups, n_groups, resamples, rng)
    drivers = []
    for name, codes, p in zip(features, bins, within, strict=True):
        cells = _cells(y, codes, groups, n_groups)
        drawn = (
            _resampled_shares(cells, resamples, rng)
            if clusters is None or times is None
            else _cluster_shares(y, codes, groups, n_groups, clusters, times)
        )
        low, high = percentiles(drawn[:, None], confidence)
        share = float(_shares(cells.rows, cells.rows * cells.mean)[0])
        used = cells.rows[:, cells.rows.sum(axis=0) > 0]
        # of "all groups have the same mix of bins"
        mix_p = float(chi2_contingency(used, correction=False).pvalue) if used.shape[1] > 1 else 1.0
        p = float("nan") if np.isnan(p) else max(float(p), mix_p)
        ends = float(low[0]), float(high[0])
        drivers.append(Measure("gap_explained", None, str(name), share, *ends, p, n=len(scores)))
    return sorted(drivers, key=lambda driver: -driver.value)


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
    cell, size = groups * n_bins + bins, n_groups * n_bins
    count = np.bincount(cell, minlength=size).astype(float)
    mean = np.bincount(cell, weights=scores, minlength=size) / np.maximum(count, 1)
    variance = np.bincount(cell, weights=(scores - mean[cell]) ** 2, minlength=size) / np.maximum(count, 1)
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
        [rng.multinomial(int(row.sum()), row / row.sum(), size=size) for row in cells.rows], axis=1
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
    shape, cells = (n_groups * n_bins, len(times)), (groups * n_bins + bins, clusters)
    count, sums = (
        np.asarray(scipy.sparse.coo_array((values, cells), shape=shape).tocsr() @ times, dtype=float).T
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
    member = [
        scipy.sparse.csr_array(
            (np.ones(len(order)), (groups[order] * (codes.max() + 1) + codes[order], np.arange(len(order)))),
            shape=(n_groups * (codes.max() + 1), len(order)),
        )
        for codes in bins
    ]
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


MAX_ROWS = 20_000  # rows in the value itself, whose cost is their square
_PAIR_ROWS = 1_000  # rows in the resamples
_BATCH = 250  # resamples at once


class PairMeasures:
    """Individual unfairness of a sample of the rows, for any weights of the rows in each group.

    As in `evenout.metrics.individual_unfairness`, with the likeness fixed to that of the rows as they are:
    ``sum M_ij (y_i - y_j)^2 / (n_p n_q)`` and ``sum M (y_i - y_j)^2 / sum M / Var(y)``, means over pairs of groups.
    """

    def __init__(
        self,
        scores: FloatArray,
        rows: FloatArray,
        groups: IntArray,
        n_groups: int,
        scale: Literal["minmax"] | float,
        clusters: IntArray | None = None,
    ) -> None:
        self.groups, self.n_groups = groups, n_groups
        given = np.arange(len(groups)) if clusters is None else clusters
        _, self._first, self._unit_of = np.unique(given, return_index=True, return_inverse=True)
        self._z = (scores - scores.mean()) / (scores.std() or 1.0)
        self._unit = float(scores.std()) or 1.0
        self._similar = _likeness(rows, groups, scale)
        self._squared = self._similar * (self._z[:, None] - self._z) ** 2

    def __call__(self, weights: FloatArray) -> Values:
        """Measures for weights of shape (b, G, m), arrays of shape (b, 1)."""
        total = weights.sum(axis=1)
        n = total.sum(axis=1)
        variance = np.maximum(total @ self._z**2 / n - (total @ self._z / n) ** 2, 0.0)
        raw, free = np.zeros(len(weights)), np.zeros(len(weights))
        pairs = list(combinations(range(self.n_groups), 2))
        for p in range(self.n_groups - 1):
            mass, squared = weights[:, p] @ self._similar, weights[:, p] @ self._squared
            for q in range(p + 1, self.n_groups):
                gap = np.einsum("bm,bm->b", squared, weights[:, q])
                raw += gap / (weights[:, p].sum(axis=1) * weights[:, q].sum(axis=1)) / len(pairs)
                alike = np.einsum("bm,bm->b", mass, weights[:, q])
                free += gap / np.maximum(alike, np.finfo(float).tiny) / len(pairs)
        scale_free = np.where(variance > 0, free, np.nan) / np.where(variance > 0, variance, 1.0)
        return {
            "individual_unfairness_raw": self._unit**2 * raw[:, None],
            "individual_unfairness": scale_free[:, None],
        }

    def value(self) -> Values:
        """Measures of the sampled rows themselves."""
        return self(self._indicator(self.groups[None]))

    def resampled(self, size: int, rng: np.random.Generator, *, shuffled: bool = False) -> Values:
        """Measures of resamples, drawn within each group with replacement, or with the group labels shuffled."""
        owner, members = self.groups[self._first], self._indicator(self.groups[None])
        parts: list[Values] = []
        for start in range(0, size, _BATCH):
            batch = min(_BATCH, size - start)
            if shuffled:
                labels = rng.permuted(np.tile(owner, (batch, 1)), axis=1)
                parts.append(self(self._indicator(labels[:, self._unit_of])))
            else:
                times = cluster_draws(self._unit_of, self.groups, self.n_groups, batch, rng).T
                parts.append(self(members * times[:, None, self._unit_of]))
        names = ("individual_unfairness_raw", "individual_unfairness")
        return {name: np.concatenate([np.empty((0, 1)), *(part[name] for part in parts)]) for name in names}

    def _indicator(self, groups: IntArray) -> FloatArray:
        return (groups[:, None] == np.arange(self.n_groups)[:, None]).astype(float)


def pair_rows(groups: IntArray, units: IntArray, n_groups: int, rng: np.random.Generator) -> IntArray:
    """Rows for `PairMeasures`: all of them if few, else those of some units, whole, with the groups' shares.

    ``units`` has a code for every row: clusters, or the rows themselves.
    """
    codes, first = np.unique(units, return_index=True)
    limit = pair_limit(n_groups) * len(codes) // len(units)
    chosen = sample_rows(groups[first], n_groups, limit, rng)
    return np.flatnonzero(np.isin(units, codes[chosen]))


def pair_limit(n_groups: int) -> int:
    """Rows in the resamples: fewer for many groups, so that the work stays the same."""
    return int(_PAIR_ROWS * np.sqrt(2 / n_groups))


def sample_rows(groups: IntArray, n_groups: int, limit: int, rng: np.random.Generator) -> IntArray:
    """At most ``limit`` rows (but two of each group), drawn within each group in proportion, ascending."""
    if len(groups) <= limit:
        return np.arange(len(groups))
    parts = []
    for group in range(n_groups):
        rows = np.flatnonzero(groups == group)
        parts.append(rng.choice(rows, max(min(2, len(rows)), len(rows) * limit // len(groups)), replace=False))
    return np.sort(np.concatenate(parts))


def individual_values(scores: FloatArray, X: FloatArray, groups: IntArray, length_scale: LengthScale) -> Values:
    """Raw and scale-free individual unfairness of the rows, arrays of shape (1, 1)."""
    raw, free = (
        individual_unfairness(scores, X, sensitive_features=groups, scale_free=scale_free, length_scale=length_scale)
        for scale_free in (False, True)
    )
    return {"individual_unfairness_raw": np.array([[raw]]), "individual_unfairness": np.array([[free]])}


def _likeness(rows: FloatArray, groups: IntArray, scale: Literal["minmax"] | float) -> FloatArray:
    """``M_ij``, of all pairs of rows; the published range of distances is that between different groups."""
    distance = cdist(rows, rows)
    if scale != "minmax":
        return np.exp(-distance / scale)
    across = distance[groups[:, None] != groups]
    width = np.ptp(across)
    return np.exp(-(distance - across.min()) / width) if width > 0 else np.ones_like(distance)
