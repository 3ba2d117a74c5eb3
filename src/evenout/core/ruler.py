"""The one ruler: means of groups, their covariance, tests, intervals and ratios of flag rates.

Row i has the weight ``w_i`` (1), belongs to cluster ``c_i`` (itself) and to group g by ``phi_ig >= 0``. The mean of a
column z, such as a score or the flag ``1[y > c]``, in a group is ``m_g = sum_i w_i phi_ig z_i / W_g`` with
``W_g = sum_i w_i phi_ig``, and the influence of a row on it is ``psi_ig = w_i phi_ig (z_i - m_g) / W_g``. The rows of a
cluster are dependent, so their influences are added before they are squared:

    N_gh = sqrt(k_g k_h) sum_c psi_cg psi_ch,    k = e / (e - 1),    e_g = W_g^2 / sum_c (sum_{i in c} w_i phi_ig)^2

is the covariance of the means, and ``e_g`` the effective number of independent rows of a group. Hard groups of
independent rows of equal weight have ``e_g = n_g`` and ``N_gg = s_g^2 / n_g``.

Within one fifth of an income, rows near the upper end differ from those near the lower end in their scores and in their
groups, which alone looks like a gap. Piecewise linear functions of the number, with knots at quantiles, remove it:

- `residualise`: score and membership are both regressed on them, and the residuals are compared (Robinson 1988; Shah
  and Peters 2020). For one finished score.
- `balanced`: members of a group are weighted so that each function has the mean of the whole part (entropy balancing,
  Hainmueller 2012). For any score, and for rates, which stay between 0 and 1, as a fit needs.

The error of both is the *product* of the errors of fitting the score and the groups, so that neither fit needs to be
exact (for the second: Zhao and Percival 2017).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Annotated, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.special import betaincinv, fdtrc, ndtr

from evenout.core.intervals import extreme_ends, normal_value, ratio_ends, tukey_value, wilson_interval
from evenout.core.membership import Comparison, Membership
from evenout.core.types import BoolArray, FloatArray, IntArray, Within, require

ONE_ROW = 1.0 + 1e-9  # effective size up to which the noise of a group is unknown
_LEAST_SPREAD = 1e-14  # of a group mean, in units of the largest, so that no weight is infinite


@dataclass(frozen=True)
class GroupMoments:
    """Moments of m scores in G groups: ``count`` (G,), ``mean`` and ``variance`` (m, G), ``total_variance`` (m,)."""

    count: FloatArray
    mean: FloatArray
    variance: FloatArray
    total_variance: FloatArray


def parity_from_moments(moments: GroupMoments, *, corrected: bool) -> FloatArray:
    """Scale-free demographic parity of each score, shape (m,); NaN for a constant score."""
    noise = moments.variance / moments.count
    pairs = list(combinations(range(len(moments.count)), 2))
    squared = np.zeros(len(moments.mean))
    for p, q in pairs:
        squared += (moments.mean[:, p] - moments.mean[:, q]) ** 2
        if corrected:
            squared -= noise[:, p] + noise[:, q]
    return ratio(squared / len(pairs), moments.total_variance)


def no_gap_p_value(moments: GroupMoments) -> FloatArray:
    """p-value of "all groups have the same mean" for each score (Welch 1951, unequal variances), shape (m,).

    With two groups this is Welch's t-test. A group of constant scores is the limit of groups of ever smaller variance.
    If the scores are constant in all groups, p is 1 if all means are equal, else 0.
    """
    n, mean, G = moments.count, moments.mean, len(moments.count)
    spread = moments.variance / n
    largest, size = spread.max(axis=1, keepdims=True), np.abs(mean).max(axis=1, keepdims=True)
    certain = largest <= 1e-30 * (size**2 + moments.total_variance[:, None])
    unit = np.where(certain, 1.0, largest)  # of squares, so that the scale of the scores does not matter
    weight = 1.0 / np.maximum(spread / unit, _LEAST_SPREAD)
    share = weight / weight.sum(axis=1, keepdims=True)
    distance = (mean - (share * mean).sum(axis=1, keepdims=True)) / np.sqrt(unit)
    doubt = ((1 - share) ** 2 / (n - 1)).sum(axis=1)
    F = (weight * distance**2).sum(axis=1) / (G - 1) / (1 + 2 * (G - 2) / (G**2 - 1) * doubt)
    p = fdtrc(G - 1, (G**2 - 1) / (3 * doubt), F)
    return np.where(certain[:, 0], np.ptp(mean, axis=1) <= 1e-12 * size[:, 0], p)


def wald_test(
    compared: Comparison, known: BoolArray, mean: FloatArray, cov: FloatArray, size: FloatArray, total_variance: float
) -> float:
    """p-value of "all groups that are compared have the same mean", which may share rows; NaN if none are compared.

    Wald's statistic of r independent contrasts, with the small-sample factor and the degrees of freedom of Welch's
    test for r + 1 groups: for hard groups that are all compared it is Welch's test itself. The groups ``known`` (G,)
    take part; ``mean`` (G,) has the covariance ``cov`` (G, G), and ``size`` (G,) are effective rows.
    """
    blocks = compared.groups_among(known)
    if not blocks:
        return float("nan")
    spread = np.diag(cov)
    if len(blocks) == 1 and not np.triu(cov, 1).any():
        g, total = blocks[0], np.array([total_variance])
        return float(no_gap_p_value(GroupMoments(size[g], mean[None, g], (spread * size)[None, g], total))[0])
    D = np.zeros((sum(map(len, blocks)) - len(blocks), compared.n_groups))
    row, doubt = 0, 0.0
    for block in blocks:
        contrasts = slice(row, row + len(block) - 1)
        D[contrasts, block[0]], D[contrasts, block[1:]] = -1.0, np.eye(len(block) - 1)
        row += len(block) - 1
        weight = 1.0 / np.maximum(spread[block], _LEAST_SPREAD * max(spread[block].max(), 1e-300))
        doubt += (((1.0 - weight / weight.sum()) ** 2) / (size[block] - 1.0)).sum()
    values, vectors = np.linalg.eigh(D @ cov @ D.T)
    free = values > 1e-10 * values[-1]
    if not values[-1] > 1e-30 * (np.abs(mean).max() ** 2 + total_variance):
        return 1.0 if np.abs(D @ mean).max() <= 1e-12 * np.abs(mean).max() else 0.0
    r = int(free.sum())
    squares = (vectors.T @ D @ mean)[free] ** 2 / values[free]
    many = (r + 1) ** 2 - 1
    F = squares.sum() / r / (1.0 + 2.0 * (r - 1) / many * doubt)
    return float(fdtrc(r, many / (3.0 * doubt), F))


def smallest_p_value(p_values: Sequence[float]) -> float:
    """The smallest of several p-values times their number (Bonferroni), at most 1; NaN values do not count."""
    tested = [p for p in p_values if not np.isnan(p)]
    return min(1.0, len(tested) * min(tested)) if tested else float("nan")


def ratio(
    numerator: FloatArray | IntArray, denominator: FloatArray | IntArray | float, otherwise: float = np.nan
) -> FloatArray:
    """Divide, without a warning; NaN, or ``otherwise``, where the denominator is not above 0."""
    positive = np.asarray(denominator) > 0
    return np.where(positive, numerator, otherwise) / np.where(positive, denominator, 1.0)


def small_sample(size: FloatArray) -> FloatArray:
    """``sqrt(e / (e - 1))`` of effective sizes e; 0 for a group of one row or less."""
    return np.sqrt(np.where(size > ONE_ROW, size / np.maximum(size - 1.0, 1e-9), 0.0))


_BENDS = 20  # most knots of a number within a part
_ROWS_A_BEND = 60
_STEPS = 50  # of Newton's method


def within_parts(
    numbers: FloatArray | None, parts: IntArray, weight: FloatArray | None = None
) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """The rows of each part, the roots of their weights, and an orthonormal basis (rows, q) of `bent_lines` there.

    Without numbers (n, k), the basis is the constant alone. ``parts`` (n,) are codes 0, 1, ..., or -1 for a row of no
    part. The columns of the basis are times the roots of the weights (n,).
    """
    order = np.argsort(parts, kind="stable")
    edges = np.searchsorted(parts[order], np.arange(int(parts.max(initial=-1)) + 2))
    for start, stop in pairwise(edges.tolist()):
        rows = order[start:stop]
        constant, root = np.ones((len(rows), 1)), np.ones(len(rows)) if weight is None else np.sqrt(weight[rows])
        columns = constant if numbers is None else np.hstack([constant, bent_lines(numbers[rows], len(rows))])
        basis = columns * root[:, None]
        length = np.sqrt((basis**2).sum(axis=0))
        basis /= np.where(length > 0, length, 1.0)
        for _ in range(2):  # the second time corrects rounding errors of the first
            size, turn = np.linalg.eigh(basis.T @ basis)
            kept = size > 1e-10 * size[-1]
            basis = basis @ (turn[:, kept] / np.sqrt(size[kept]))
        yield rows, root, basis


def bent_lines(numbers: FloatArray, n_rows: float) -> FloatArray:
    """Piecewise linear functions of numbers (n, k): each itself, and ``max(0, x - knot)`` at quantiles.

    The number of knots grows with ``n_rows``, the rows that are fitted with them.
    """
    lines, bends = [], int(np.clip(n_rows // (_ROWS_A_BEND * numbers.shape[1]), 0, _BENDS))
    for number in numbers.T:
        spread = float(number.std())
        if spread > 0:
            unit = (number - number.mean()) / spread
            knots = np.unique(np.quantile(unit, np.arange(1, bends + 1) / (bends + 1))) if bends else np.empty(0)
            lines += [unit, *(np.maximum(unit - knot, 0.0) for knot in knots)]
    return np.stack(lines, axis=1) if lines else np.empty((len(numbers), 0))


def residualise(
    columns: FloatArray, numbers: FloatArray | None, parts: IntArray, weight: FloatArray | None = None
) -> FloatArray:
    """Residuals of columns (n, m) on `bent_lines` of numbers (n, k) within each part (n,); 0 for rows of no part.

    >>> z, income = np.array([[1.0], [2.0], [3.0], [9.0]]), np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> np.abs(residualise(z, income, np.array([0, 0, 0, 1]))).max() < 1e-12
    np.True_
    """
    residual = np.zeros_like(columns, dtype=float)
    for rows, root, basis in within_parts(numbers, parts, weight):
        part = columns[rows] * root[:, None]
        residual[rows] = (part - basis @ (basis.T @ part)) / np.where(root > 0, root, np.inf)[:, None]
    return residual


def balanced(
    members: Membership, numbers: FloatArray, weight: FloatArray | None = None, *, thinned: bool = False
) -> Membership:
    """Memberships that do not depend on the numbers (n, k): `bent_lines` have the mean of the block in each group.

    A group keeps its size; with ``thinned``, no membership grows, and a row belongs in part, by chance.
    """
    phi, count = members.weights, np.ones(len(numbers)) if weight is None else weight
    data = phi.data.astype(float)
    for block in members.compared.blocks:
        spans = [slice(phi.indptr[g], phi.indptr[g + 1]) for g in block.groups]
        mass = [count[phi.indices[span]] * phi.data[span] for span in spans]
        smallest = min(float(part.sum() ** 2 / max((part**2).sum(), 1e-300)) for part in mass)
        rows, index = np.unique(np.concatenate([phi.indices[span] for span in spans]), return_inverse=True)
        lines, share = bent_lines(numbers[rows], smallest), np.bincount(index, np.concatenate(mass))
        lines = lines - share @ lines / max(share.sum(), 1e-300)
        values, vectors = np.linalg.eigh((lines * share[:, None]).T @ lines / max(share.sum(), 1e-300))
        kept = values > 1e-6 * values.max(initial=0.0)
        lines = lines @ (vectors[:, kept] / np.sqrt(values[kept]))
        for span, part in zip(spans, mass, strict=True):
            if part.sum() > 0:
                tilt = _tilt(lines[np.searchsorted(rows, phi.indices[span])], part / part.sum())
                data[span] *= tilt / (tilt.max() if thinned else part @ tilt / part.sum())
    return replace(members, weights=csc_array((data, phi.indices, phi.indptr), shape=phi.shape))


def _tilt(lines: FloatArray, share: FloatArray) -> FloatArray:
    """``exp(lines @ a)``, so that the lines have weighted means 0, up to a ridge that is small against their noise."""
    ridge, a = float((share**2).sum()), np.zeros(lines.shape[1])

    def value(at: FloatArray) -> tuple[float, FloatArray]:
        power = lines @ at
        tilt = np.exp(power - power.max(initial=0.0))
        return float(np.log(share @ tilt) + power.max(initial=0.0) + ridge * (at @ at) / 2.0), tilt

    now, tilt = value(a)
    for _ in range(_STEPS):
        tilted = share * tilt / (share @ tilt)
        slope = tilted @ lines + ridge * a
        bend = (lines * tilted[:, None]).T @ lines - np.outer(tilted @ lines, tilted @ lines) + ridge * np.eye(len(a))
        step = np.linalg.solve(bend, slope)
        if float(slope @ step) < 1e-12:
            break
        size = 1.0
        while size > 1e-6 and value(a - size * step)[0] > now - 1e-4 * size * float(slope @ step):
            size /= 2.0
        a = a - size * step
        now, tilt = value(a)
    return tilt


_DRAWS = 2000  # of rates, for the error of their ratio
_LOOSE = 0.05  # correlation of two rates up to which they are drawn independently
_NEAR = 0.2  # of the flagged rows: as many on each side of the threshold count as near it
_CELLS = 20  # parts of similar probability within which bounds are computed
_LEAST_CELL = 50  # rows in such a part


@dataclass(frozen=True, eq=False)
class Means:
    """Means (G,) of one column in G groups, NaN for a group without rows, and their covariance.

    ``cov`` (G, G) is ``N``, the covariance of the means; ``size`` (G,) is ``e_g``, the effective rows of each group.
    """

    mean: FloatArray
    cov: FloatArray
    size: FloatArray
    compared: Comparison

    @property
    def known(self) -> BoolArray:
        """Groups of more than one effective row, without which their noise is unknown, shape (G,)."""
        return (self.size > ONE_ROW) & ~np.isnan(self.mean)

    @property
    def compares(self) -> BoolArray:
        """Pairs of groups that can be compared, shape (G, G)."""
        return self.compared.pairs & self.known & self.known[:, None]

    def p_value(self) -> float:
        """p-value of "all groups that are compared have the same mean"; see `wald_test`.

        Attributes that are compared one by one are tested one by one; the smallest p is multiplied by their number.
        """
        measured = self.known, np.nan_to_num(self.mean), np.nan_to_num(self.cov), self.size, 0.0
        blocks = self.compared.blocks
        parts = [tuple(block for block in blocks if block.of == of) for of in {block.of for block in blocks}]
        return smallest_p_value([wald_test(replace(self.compared, blocks=part), *measured) for part in parts])

    def rows_worth(self) -> FloatArray:
        """Independent rows that each rate is worth by its variance, shape (G,)."""
        binary, noise = self.mean * (1.0 - self.mean), np.diag(self.cov)
        some = (binary > 0) & (noise > 0)
        return np.where(some, 1.0 + binary / np.where(some, noise, 1.0), self.size)

    def correlation(self) -> FloatArray:
        """Correlation of the means, shape (G, G)."""
        error = np.sqrt(np.maximum(np.diag(self.cov), 0.0))
        unit = self.cov / np.where(error > 0, error, np.inf) / np.where(error > 0, error, np.inf)[:, None]
        np.fill_diagonal(unit, 1.0)
        return np.clip(unit, -1.0, 1.0)


class RatioEstimate(NamedTuple):
    """A ratio of flag rates, its standard error and its 95 % interval."""

    value: float
    error: float
    interval: tuple[float, float]


UNKNOWN_RATIO = RatioEstimate(np.nan, np.nan, (np.nan, np.nan))  # no two groups are compared


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows as they are measured: how much each belongs to each group, and which groups are compared.

    ``weight`` (n,) is how much each row counts, on any scale; ``clusters`` (n,) are codes 0, 1, ... of rows that belong
    together. ``doubt`` is a reason for which more rows would not help: groups are known by probabilities alone, or rows
    are unlabelled.
    """

    members: Membership
    weight: Annotated[FloatArray, "n", Within()] | None = None
    clusters: Annotated[IntArray, "n", Within()] | None = None
    doubt: Annotated[str, ("", "probable", "labels")] = ""

    def check(self) -> None:
        """Require weights and clusters of the rows that have a membership."""
        n = self.members.weights.shape[0]
        require(self.weight is None or len(self.weight) == n, "weight", "has the wrong length")
        known = self.clusters is None or (len(self.clusters) == n and self.clusters.max(initial=-1) < max(n, 1))
        require(known, "clusters", "is out of range")

    @property
    def compared(self) -> Comparison:
        """Which groups are compared."""
        return self.members.compared

    @cached_property
    def counted(self) -> csc_array:
        """``w_i phi_ig``, shape (n, G)."""
        phi = self.members.weights
        return phi if self.weight is None else csc_array(phi.multiply(self.weight[:, None]))

    @cached_property
    def total(self) -> FloatArray:
        """``W_g``, shape (G,)."""
        return np.asarray(self.counted.sum(axis=0), dtype=float).ravel()

    @cached_property
    def size(self) -> FloatArray:
        """``e_g``, the effective number of independent rows of each group, shape (G,)."""
        squares = np.asarray(self._by_cluster(self.counted).power(2).sum(axis=0), dtype=float).ravel()
        return self.total**2 / np.where(squares > 0, squares, np.inf)

    @cached_property
    def joined(self) -> Membership:
        """The membership, in which groups that share a cluster overlap, because their means are correlated."""
        if self.clusters is None:
            return self.members
        met = self._by_cluster(self.members.weights)
        shared = np.argwhere(np.triu((met.T @ met).toarray() > 0, 1)).tolist()
        overlaps = tuple(sorted({*self.compared.overlaps, *((g, h) for g, h in shared)}))
        return replace(self.members, compared=replace(self.compared, overlaps=overlaps))

    @cached_property
    def expected(self) -> FloatArray:
        """Expected number of members of each group: rows, or clusters with any row in it, shape (G,)."""
        expected = np.zeros(self.members.n_groups)
        for g in range(self.members.n_groups):
            rows, share = self.members.of(g)
            share = share if self.weight is None else share * (self.weight[rows] > 0)
            if self.clusters is not None:
                order = np.lexsort((share, self.clusters[rows]))
                share = share[order][np.diff(self.clusters[rows][order], append=-1) != 0]  # the largest of a cluster
            expected[g] = share.sum()
        return expected

    def of(self, rows: BoolArray) -> "Sample":
        """Some of the rows."""
        weight, clusters = (None if part is None else part[rows] for part in (self.weight, self.clusters))
        return Sample(self.members.among(np.flatnonzero(rows)), weight, clusters, self.doubt)  # type: ignore[arg-type]

    def means(self, z: FloatArray | BoolArray) -> FloatArray:
        """Means of columns (n,) or (n, m) in each group, shape (G,) or (G, m); NaN for a group without rows."""
        total = np.where(self.total > 0, self.total, np.nan)
        return np.asarray(self.counted.T @ z.astype(float)) / (total if z.ndim == 1 else total[:, None])

    def measure(
        self, z: FloatArray | BoolArray, *, null: bool = False, threshold_of: FloatArray | None = None
    ) -> Means:
        """Means of a column (n,), with their covariance.

        ``null`` takes residuals from the mean of all groups that are compared with each other, as under "the means are
        equal", for a test. The errors of rates of few flagged rows then do not depend on chance.

        With ``threshold_of`` (n,), z flags the rows of the highest scores, and the threshold depends on the rows. To
        first order a rate falls by ``kappa_g`` times the excess of the share of all rows above a fixed threshold, where
        ``kappa_g`` is how much more often rows at the threshold are of group g than all rows are.
        """
        column, mean = np.asarray(z, dtype=float), self.means(z)
        centre, counted = mean.copy(), self.counted
        for block in self.compared.blocks if null else ():
            groups = [g for g in block.groups if self.total[g] > 0]
            if groups:
                centre[groups] = np.average(mean[groups], weights=self.total[groups])
        group = np.repeat(np.arange(self.members.n_groups), np.diff(counted.indptr))
        factor = small_sample(self.size) / np.where(self.total > 0, self.total, 1.0)
        data = counted.data * (column[counted.indices] - np.nan_to_num(centre)[group]) * factor[group]
        psi = self._by_cluster(csc_array((data, counted.indices, counted.indptr), shape=counted.shape))
        cov = np.asarray((psi.T @ psi).toarray())
        if threshold_of is not None and 0 < column.sum() < len(column):
            kappa, shift = self._at_threshold(threshold_of, column)
            across = np.outer(np.asarray(psi.T @ shift), kappa)
            cov += float(shift @ shift) * np.outer(kappa, kappa) - across - across.T
        return Means(mean, cov, self.size, self.compared)

    def among_alike(
        self, z: FloatArray | BoolArray, parts: IntArray, numbers: FloatArray | None = None, *, null: bool = False
    ) -> Means:
        """Means of each group less those of similar rows, in each of S parts; groups (S G,), part by part.

        With residuals on the numbers within the part, ``d_g = sum_i w_i phi~_ig z~_i / W_g``: without numbers the
        group's mean less that of the part. Groups are compared within a part. ``parts`` (n,) are codes 0, 1, ..., or -1
        for a row that is not compared; ``numbers`` (n, k) are further attributes in which rows of a part may differ;
        ``null``: the covariance under "the groups do not differ".
        """
        inside = replace(self, members=self.members.within(parts))
        n, G, phi = len(z), self.members.n_groups, self.members.weights.tocsr()
        total, psi = inside.total.reshape(-1, G), np.zeros((n, G))
        mean, unit = np.full(total.shape, np.nan), np.where(total > 0, total, np.inf)
        factor = small_sample(inside.size.reshape(-1, G)) / unit
        for part, (rows, root, basis) in enumerate(within_parts(numbers, parts, self.weight)):
            belongs, residual = phi[rows].toarray(), np.asarray(z, dtype=float)[rows] * root
            residual -= basis @ (basis.T @ residual)
            members = belongs * root[:, None]
            members -= basis @ (basis.T @ members)
            apart = members.T @ residual / unit[part]
            mean[part] = np.where(total[part] > 0, apart, np.nan)
            moved = members * residual[:, None] - (0.0 if null else belongs * (root**2)[:, None] * apart)
            psi[rows] = moved * factor[part] * np.sqrt(len(rows) / max(len(rows) + 1 - basis.shape[1], 1))
        known = np.flatnonzero(parts >= 0)
        at = np.repeat(known, G), ((parts[known] * G)[:, None] + np.arange(G)).ravel()
        cov = self.covariance(csc_array((psi[known].ravel(), at), shape=(n, mean.size)))
        return Means(mean.ravel(), cov, inside.size, inside.compared)

    def covariance(self, influence: csc_array) -> FloatArray:
        """Covariance of m estimates by the influence of each row (n, m): products of its sums over clusters."""
        psi = self._by_cluster(influence)
        return np.asarray((psi.T @ psi).toarray())

    def _at_threshold(self, scores: FloatArray, flagged: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``kappa`` (G,), and the influence of each cluster on the share of flagged rows (C,)."""
        weight = np.ones(len(scores)) if self.weight is None else self.weight
        width = max(int(_NEAR * min(flagged.sum(), len(flagged) - flagged.sum())), 25)
        order = np.argsort(scores, kind="stable")
        middle = int(np.searchsorted(scores[order], scores[flagged > 0].min()))
        near = np.zeros(len(scores))
        near[order[max(middle - width, 0) : middle + width]] = 1.0
        there, share = np.asarray(self.counted.T @ near) / (weight @ near), weight / weight.sum()
        kappa = there * weight.sum() / np.where(self.total > 0, self.total, np.inf)
        shift = share * (flagged - share @ flagged)
        return kappa, shift if self.clusters is None else np.bincount(self.clusters, shift).astype(float)

    def _by_cluster(self, rows: csc_array) -> csc_array:
        """Sums over the rows of each cluster."""
        if self.clusters is None:
            return rows
        n, C = len(self.clusters), int(self.clusters.max(initial=-1)) + 1
        return csc_array(csr_array((np.ones(n), (self.clusters, np.arange(n))), shape=(C, n)) @ rows)


def lowest_over_highest(means: FloatArray, compares: BoolArray) -> FloatArray:
    """Smallest ratio of the means (G,) or (G, m) of two groups that are compared (G, G); 1 if the larger is 0.

    NaN where no two groups are compared.

    >>> apart = ~np.eye(4, dtype=bool)
    >>> lowest_over_highest(np.array([0.1, 0.2, 0.2, 0.4]), apart).item()
    0.25
    >>> apart[:2, 2:] = apart[2:, :2] = False  # two blocks
    >>> lowest_over_highest(np.array([0.1, 0.2, 0.2, 0.4]), apart).item()
    0.5
    """
    worst, some = np.full(means.shape[1:], np.nan), compares.any(axis=1)
    for block in np.unique(compares[some] | np.eye(len(means), dtype=bool)[some], axis=0):
        worst = np.fmin(worst, ratio(means[block].min(axis=0), means[block].max(axis=0), 1.0))
    return worst


def noisy_ratios(rates: Means) -> FloatArray:
    """Ratios of rates drawn around the counted ones, with their sampling noise."""
    rng, some = np.random.default_rng(0), np.flatnonzero(rates.compares.any(axis=0))
    rows, mean = rates.rows_worth()[some], rates.mean[some]
    shapes = mean * rows + 0.5, (1.0 - mean) * rows + 0.5
    together = rates.correlation()[np.ix_(some, some)]
    if (np.abs(together - np.eye(len(some))) < _LOOSE).all():
        drawn = rng.beta(*shapes, size=(_DRAWS, len(some)))
    else:
        values, vectors = np.linalg.eigh(together)
        normal = rng.standard_normal((_DRAWS, len(some))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        drawn = betaincinv(*shapes, ndtr(normal))
    return lowest_over_highest(drawn.T, rates.compares[np.ix_(some, some)])


def estimate_ratio(rates: Means, *, solved: bool = False, confidence: float = 0.95) -> RatioEstimate:
    """Lowest over highest flag rate of groups that are compared, with its error and interval.

    Noise spreads rates, so a counted ratio is a little low, and a resampled one lower still: the interval is that of
    the most uneven pair (`extreme_ends`), which covers 1 where all rates are equal.

    A rule that was ``solved`` for even counts evens out chance along with the gap. Its counts on held-out folds come
    out as asked, since a chance surplus in one fold is a shortfall in the folds that the rule was solved on. On new
    rows the rule is off by that chance, one way or the other: its ratio is the mean of `noisy_ratios`.
    """
    compares = rates.compares
    if not compares.any():
        return UNKNOWN_RATIO
    again, some = noisy_ratios(rates), np.flatnonzero(compares.any(axis=0))
    value = float(lowest_over_highest(rates.mean, compares))
    mean, worth, own = rates.mean[some], np.maximum(rates.rows_worth()[some], 1.0), np.ix_(some, some)
    low, high = extreme_ends(
        mean, lambda z: wilson_interval(mean, worth, z), rates.correlation()[own], confidence,
        of_ratio=True, compared=compares[own],
    )  # fmt: skip
    if solved:
        value = float(again.mean())
        low = min(low, float(np.percentile(again, 50.0 * (1.0 - confidence))))
    return RatioEstimate(value, float(again.std()), (min(low, value), max(min(high, 1.0), value)))


def mean_bounds(sample: Sample, z: FloatArray | BoolArray) -> tuple[FloatArray, FloatArray]:
    """Bounds of each group's mean, where groups are known by their probabilities alone; (G,) each.

    Among rows of similar probability ``phi_g`` the members of the group may be those of the lowest values, or of the
    highest; the data do not tell. For flags with the rate p these are the bounds of Frechet and Hoeffding,
    ``max(0, phi + p - 1) <= P(g, f) <= min(phi, p)``. They exclude sampling noise; z is of shape (n,).
    """
    n, z = len(z), z.astype(float)
    weight = np.ones(n) if sample.weight is None else sample.weight
    low, high = np.full((2, sample.members.n_groups), np.nan)
    for g in range(sample.members.n_groups):
        rows, phi = sample.members.of(g)
        cells, sums = _cells_of(phi), np.zeros(3)
        for cell in range(int(cells.max(initial=-1)) + 1):
            alike = rows[cells == cell]
            order = alike[np.argsort(z[alike], kind="stable")]
            counted = weight[order]
            upto, inside = np.cumsum(counted), float(weight[alike] @ phi[cells == cell])
            least, most = np.clip([inside - (upto - counted), inside - (upto[-1] - upto)], 0.0, counted)
            sums += inside, least @ z[order], most @ z[order]
        if sums[0] > 0:
            low[g], high[g] = sums[1:] / sums[0]
    return low, high


def _cells_of(phi: FloatArray) -> IntArray:
    """Parts of rows of similar probability: one for each value if these are few, else parts of many rows each."""
    values, cell = np.unique(phi, return_inverse=True)
    if len(values) <= _CELLS:
        return cell
    sure = phi >= 1.0
    parts = int(np.clip((~sure).sum() // _LEAST_CELL, 1, _CELLS))
    edges = np.quantile(phi[~sure], np.arange(1, parts) / parts)
    return np.where(sure, parts, np.searchsorted(np.unique(edges), phi, side="right"))


def bounded_ratio(rates: Means, low: FloatArray, high: FloatArray, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the lowest over the highest rate, where rates have bounds (G,) and sampling noise."""
    compares = rates.compares
    if not compares.any():
        return float("nan"), float("nan")
    some = np.flatnonzero(compares.any(axis=0))
    G, rows = len(some), np.maximum(rates.rows_worth()[some], 1.0)
    value, pairs = np.r_[low[some], high[some]], compares[np.ix_(some, some)]
    (lows, _), (_, highs) = (
        ratio_ends(value, *wilson_interval(value, np.r_[rows, rows], z), np.eye(2 * G))
        for z in (normal_value(confidence), tukey_value(confidence, G))
    )
    return float(lows[:G, G:][pairs].min()), float(min(highs[G:, :G][pairs].min(), 1.0))


def bounded_gap(laplacian: FloatArray, low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Least and largest ``m'Lm`` of means within bounds (G,), pair by pair, without sampling noise."""
    weight = -np.triu(laplacian, 1)
    most = np.fmax(high[:, None] - low, high - low[:, None])
    least = np.maximum(np.fmax(low[:, None] - high, low - high[:, None]), 0.0)
    return float(np.nansum(weight * least**2)), float(np.nansum(weight * most**2))
