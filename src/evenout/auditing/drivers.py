"""Features that drive a gap, and gaps between similar rows."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse
from scipy.spatial.distance import cdist
from scipy.stats import chi2_contingency

from evenout.auditing.counted import Values
from evenout.auditing.measures import AuditSettings, MeasureColumn, Resamples, percentiles, summarise
from evenout.auditing.result import Measure
from evenout.auditing.sample import AuditInputs, bin_column
from evenout.core.individual import comparable_rows, effective_pairs
from evenout.core.ruler import ratio
from evenout.core.types import FloatArray, IntArray
from evenout.metrics import individual_unfairness

TEST_ROWS = 30_000  # rows in the permutations
MAX_ROWS = 20_000  # rows in the value of individual unfairness, whose cost is their square
_BINS = 10
_BLOCK = 100  # permutations at once
_PAIR_ROWS = 1_000  # rows in the resamples of individual unfairness
_BATCH = 250  # such resamples at once
_SHUFFLES = 100  # of groups, for the mean of individual unfairness


def gap_drivers(
    inputs: AuditInputs, features: pd.DataFrame, settings: AuditSettings, rng: np.random.Generator
) -> list[Measure]:
    """Each feature's share of the gap of mean scores, largest share first.

    The scores are fitted by ``y = a_group + h(bin)``, the bins being the feature's values or ten quantile bins. With
    ``e_g`` the mean of h in group g, the part of the group's mean that its mix of bins accounts for, and ``m_g`` the
    mean score, the share is ``sum_{p<q} (m_p - m_q)(e_p - e_q) / sum_{p<q} (m_p - m_q)^2``: 1 if the gap is all
    composition (Kitagawa 1955, Oaxaca 1973; group effects in the fit as in Jann 2008). Clusters, each within one group,
    are drawn whole; there are no p-values then, as tests take rows as independent.

    Notes
    -----
    Features are taken one at a time: correlated ones claim the same part, shares need not add up to 1, a feature
    whose effect differs between groups is averaged, and none of this is causal. A feature that merely restates
    the group explains nothing, because within groups it does not vary.

    To drive the gap a feature must differ between groups *and* move the score within them; p is the larger of the
    p-values of these two (chi-square; permutation of the scores within groups). The bootstrap draws the bins' counts
    as rows would fall, and their sums from the normal approximation.
    """
    groups, G, clusters = inputs.sample.members.codes, len(inputs.names), inputs.sample.clusters
    y = (inputs.scores - inputs.scores.mean()) / inputs.scores.std()
    bins = [bin_column(features[name], _BINS).codes for name in features]
    rows, within, times = sample_rows(groups, G, TEST_ROWS, rng), np.full(len(bins), np.nan), np.empty(0, dtype=np.intp)
    if clusters is not None:
        times = cluster_draws(clusters, groups, G, settings.resamples, rng)
    elif settings.resamples:
        within = _permutation_p(y[rows], [codes[rows] for codes in bins], groups[rows], G, settings.resamples, rng)
    drivers = []
    for name, codes, p in zip(features, bins, within.tolist(), strict=True):
        n_bins = int(codes.max()) + 1
        cell, size, shape = groups * n_bins + codes, G * n_bins, (G, n_bins)
        count = np.bincount(cell, minlength=size).astype(float)
        mean = np.bincount(cell, weights=y, minlength=size) / np.maximum(count, 1)
        variance = np.bincount(cell, weights=(y - mean[cell]) ** 2, minlength=size) / np.maximum(count, 1)
        count, mean, variance = (part.reshape(shape) for part in (count, mean, variance))
        if clusters is None:
            each = [rng.multinomial(int(row.sum()), row / row.sum(), size=settings.resamples) for row in count]
            drawn = np.stack(each, axis=1).astype(float)
            sums = drawn * mean + np.sqrt(drawn * variance) * rng.standard_normal(drawn.shape)
        else:
            drawn, sums = (
                (scipy.sparse.coo_array((values, (cell, clusters)), shape=(size, len(times))).tocsr() @ times)
                .T.reshape(-1, *shape)
                .astype(float)
                for values in (np.ones(len(y)), y)
            )
        low, high = percentiles(_shares(drawn, sums)[:, None], settings.confidence)
        used = count[:, count.sum(axis=0) > 0]
        # of "all groups have the same mix of bins"
        mix_p = float(chi2_contingency(used, correction=False).pvalue) if used.shape[1] > 1 else 1.0
        numbers = float(_shares(count, count * mean)[0]), float(low[0]), float(high[0]), float(np.maximum(p, mix_p))
        drivers.append(Measure("gap_explained", None, str(name), *numbers, n=len(y)))
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
    explained = (mix @ np.linalg.solve(normal + ridge, right[..., None]))[..., 0]
    gap, part = (x - x.mean(axis=-1, keepdims=True) for x in (mean, explained))
    return ratio((gap * part).sum(axis=-1), (gap**2).sum(axis=-1))


def _permutation_p(
    scores: FloatArray, bins: list[IntArray], groups: IntArray, n_groups: int, size: int, rng: np.random.Generator
) -> FloatArray:
    """p-value, per feature, of "within groups the score does not depend on it": scores are shuffled within groups."""
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
        return np.column_stack([_shares(n, (m @ shuffled.T).T) for n, m in zip(counts, member, strict=True)])

    least = np.abs(shares(y[None])) * (1 - 1e-10)
    as_large = np.zeros(len(bins))
    for start in range(0, size, _BLOCK):
        shuffled = np.tile(y, (min(_BLOCK, size - start), 1))
        for first, last in pairwise(edges):
            shuffled[:, first:last] = rng.permuted(shuffled[:, first:last], axis=1)
        as_large += (np.abs(shares(shuffled)) >= least).sum(axis=0)
    return (1 + as_large) / (1 + size)


class PairMeasures:
    """Individual unfairness of a sample of the rows, for any weights of the rows in each group.

    As in `evenout.metrics.individual_unfairness`, with the likeness fixed to that of the rows as they are:
    ``sum M_ij (y_i - y_j)^2 / (n_p n_q)`` and ``sum M (y_i - y_j)^2 / sum M / Var(y)``, means over pairs of groups. The
    published range of distances is that between rows of different groups.
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
        self._members = (groups == np.arange(n_groups)[:, None]).astype(float)[None]
        units = np.arange(len(groups)) if clusters is None else clusters
        _, self._first, self._unit_of = np.unique(units, return_index=True, return_inverse=True)
        self._unit = float(scores.std()) or 1.0
        self._z = (scores - scores.mean()) / self._unit
        distance = cdist(rows, rows)
        if scale == "minmax":
            across = distance[groups[:, None] != groups]
            distance, scale = distance - across.min(), float(np.ptp(across)) or np.inf
        self._similar = np.exp(-distance / scale)
        self._squared = self._similar * (self._z[:, None] - self._z) ** 2

    def __call__(self, weights: FloatArray | None = None) -> Values:
        """Measures for weights of shape (b, G, m), by default of the rows as they are; arrays of shape (b, 1)."""
        weights = self._members if weights is None else weights
        total = weights.sum(axis=1)
        n = total.sum(axis=1)
        variance = np.maximum(total @ self._z**2 / n - (total @ self._z / n) ** 2, 0.0)
        (raw, free), G = np.zeros((2, len(weights))), self.n_groups
        for p in range(G - 1):
            mass, squared = weights[:, p] @ self._similar, weights[:, p] @ self._squared
            for q in range(p + 1, G):
                alike, gap = (np.einsum("bm,bm->b", part, weights[:, q]) for part in (mass, squared))
                raw += gap / (weights[:, p].sum(axis=1) * weights[:, q].sum(axis=1)) / (G * (G - 1) // 2)
                free += gap / np.maximum(alike, np.finfo(float).tiny) / (G * (G - 1) // 2)
        scale_free = ratio(free, variance)
        return {"individual_unfairness_raw": self._unit**2 * raw[:, None], "individual_unfairness": scale_free[:, None]}

    def resampled(self, size: int, rng: np.random.Generator, *, shuffled: bool = False) -> Values:
        """Measures of resamples, drawn within each group with replacement, or with the group labels shuffled."""
        parts = [{name: value[:0] for name, value in self().items()}]
        for start in range(0, size, _BATCH):
            batch = min(_BATCH, size - start)
            if shuffled:
                labels = rng.permuted(np.tile(self.groups[self._first], (batch, 1)), axis=1)
                members = labels[:, None, self._unit_of] == np.arange(self.n_groups)[:, None]
                parts.append(self(members.astype(float)))
            else:
                times = cluster_draws(self._unit_of, self.groups, self.n_groups, batch, rng).T
                parts.append(self(self._members * times[:, None, self._unit_of]))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def pair_limit(n_groups: int) -> int:
    """Rows in the resamples: fewer for many groups, so that the work stays the same."""
    return int(_PAIR_ROWS * np.sqrt(2 / n_groups))


def sample_rows(
    groups: IntArray, n_groups: int, limit: int, rng: np.random.Generator, units: IntArray | None = None
) -> IntArray:
    """At most ``limit`` rows (but two of each group), drawn within each group in proportion, ascending.

    Rows with the same code of ``units``, such as clusters, are drawn together; their number is then about ``limit``.
    """
    if units is not None:
        codes, first = np.unique(units, return_index=True)
        chosen = sample_rows(groups[first], n_groups, limit * len(codes) // len(units), rng)
        return np.flatnonzero(np.isin(units, codes[chosen]))
    if len(groups) <= limit:
        return np.arange(len(groups))
    parts = []
    for group in range(n_groups):
        rows = np.flatnonzero(groups == group)
        parts.append(rng.choice(rows, max(min(2, len(rows)), len(rows) * limit // len(groups)), replace=False))
    return np.sort(np.concatenate(parts))


def individual_family(
    inputs: AuditInputs, features: pd.DataFrame, settings: AuditSettings, rng: np.random.Generator
) -> list[Measure]:
    """Individual unfairness; resampled on m of the n rows, the interval narrowed by ``sqrt(m / n)`` accordingly.

    There is no test: shuffling groups among rows whose features differ by group has another law, so that a score which
    is a function of the features would be rejected. The value with shuffled groups is shown beside.
    """
    G, codes, n = len(inputs.names), inputs.sample.members.codes, len(inputs.scores)
    X = pd.get_dummies(features, dtype=float).to_numpy(dtype=float)
    rows = sample_rows(codes, G, MAX_ROWS, rng)
    options: Any = {"sensitive_features": codes[rows], "length_scale": settings.length_scale}
    value = {
        name: np.array([[individual_unfairness(inputs.scores[rows], X[rows], scale_free=free, **options)]])
        for name, free in (("individual_unfairness_raw", False), ("individual_unfairness", True))
    }
    comparable, scale = comparable_rows(X[rows], codes[rows], settings.length_scale)
    units = np.arange(n) if inputs.sample.clusters is None else inputs.sample.clusters
    part = sample_rows(codes[rows], G, pair_limit(G), rng, units[rows])
    sample = rows[part]
    pairs = PairMeasures(inputs.scores[sample], comparable[part], codes[sample], G, scale, units[sample])
    there, drawn = pairs(), pairs.resampled(settings.resamples, rng)
    narrow = np.sqrt(len(np.unique(units[sample])) / inputs.units())
    resamples = Resamples(value, {name: value[name] + narrow * (drawn[name] - there[name]) for name in value}, {})
    columns = {("all", "everyone"): [MeasureColumn(None, None, len(rows), inputs.units())]}
    measures = summarise(resamples, columns, settings)
    if settings.resamples > 0:
        permuted = pairs.resampled(min(settings.resamples, _SHUFFLES), rng, shuffled=True)["individual_unfairness"]
        shuffled = float(value["individual_unfairness"][0, 0] + (permuted - there["individual_unfairness"]).mean())
        measures.append(Measure("individual_unfairness_shuffled", None, None, shuffled, n=len(rows)))
    alike = effective_pairs(comparable, codes[rows], scale) * (n / len(rows)) ** 2
    return [*measures, Measure("effective_pairs", None, None, float(alike), n=len(rows))]
