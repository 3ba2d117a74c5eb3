"""The one ruler: means of groups, their covariance, tests, intervals and ratios of flag rates.

Rows of one fifth of an income are not alike: those near its upper end differ from those near its lower end, in their
scores and in their groups, and that alone looks like a gap. Lines of the number that bend at quantiles take it out, in
one of two ways:

- `residualise`: score and membership are both regressed on the lines, and what is left of one is held against what is
  left of the other (Robinson 1988; Shah and Peters 2020). For one finished score.
- `balanced`: members of a group are weighted so that each line has the mean of the whole part (entropy balancing,
  Hainmueller 2012). For any score, and for rates, which stay between 0 and 1: what a fit needs.

The error of both is the *product* of what lines miss of the score and of the groups, so that neither needs to be exact
(for the second: Zhao and Percival 2017).

Row i has the weight ``w_i`` (1), belongs to cluster ``c_i`` (itself) and to group g by ``phi_ig >= 0``. Of a measured
column z, such as a score or the flag ``1[y > c]``, a group has the mean ``m_g = sum_i w_i phi_ig z_i / W_g`` with
``W_g = sum_i w_i phi_ig``, and a row the influence ``psi_ig = w_i phi_ig (z_i - m_g) / W_g`` on it. Rows of a cluster
go together, so their influences are added before they are squared:

    N_gh = sqrt(k_g k_h) sum_c psi_cg psi_ch,    k = e / (e - 1),    e_g = W_g^2 / sum_c (sum_{i in c} w_i phi_ig)^2

is the covariance of the means, and ``e_g`` the number of independent rows that a group is worth. Hard groups of
independent rows that count alike have ``e_g = n_g`` and ``N_gg = s_g^2 / n_g``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Annotated, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.special import betaincinv, fdtrc, ndtr

from evenout.core.checks import Within, require
from evenout.core.intervals import extreme_ends, normal_value, ratio_ends, tukey_value, wilson_interval
from evenout.core.membership import Comparison, Membership
from evenout.core.types import BoolArray, FloatArray, IntArray

ONE_ROW = 1.0 + 1e-9  # of an effective size, up to which nothing can be said of a group's noise
_LEAST_SPREAD = 1e-14  # of a group mean, in units of the largest: with none its weight would be infinite


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

    With two groups this is Welch's t-test. A group without any spread is taken as the limit of groups with less and
    less of it. If no group has any, there is no doubt: p is 1 if all means are equal, else 0.
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
    equal = np.ptp(mean, axis=1) <= 1e-12 * size[:, 0]
    return np.where(certain[:, 0], np.where(equal, 1.0, 0.0), p)


def wald_test(
    compared: Comparison, known: BoolArray, mean: FloatArray, cov: FloatArray, size: FloatArray, total_variance: float
) -> float:
    """p-value of "all groups that are compared have the same mean", which may share rows; NaN if none are compared.

    Wald's statistic of r independent contrasts, with the small-sample factor and the degrees of freedom of Welch's
    test for r + 1 groups: for hard groups that are all compared it is Welch's test itself. The groups ``known`` (G,)
    take part; ``mean`` (G,) has the covariance ``cov`` (G, G), and ``size`` (G,) is what the groups are worth.
    """
    blocks = [[g for g in block.groups if known[g]] for block in compared.blocks]
    blocks = [block for block in blocks if len(block) >= 2]
    if not blocks:
        return float("nan")
    spread = np.diag(cov)
    if len(blocks) == 1 and not np.triu(cov, 1).any():
        own, total = blocks[0], np.array([total_variance])
        return float(no_gap_p_value(GroupMoments(size[own], mean[None, own], (spread * size)[None, own], total))[0])
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


def ratio(
    numerator: FloatArray | IntArray, denominator: FloatArray | IntArray | float, otherwise: float = np.nan
) -> FloatArray:
    """Quotient that is NaN, or ``otherwise``, without a warning, where the denominator is not above 0."""
    positive = np.asarray(denominator) > 0
    return np.where(positive, numerator, otherwise) / np.where(positive, denominator, 1.0)


def small_sample(size: FloatArray) -> FloatArray:
    """``sqrt(e / (e - 1))`` of effective sizes e; 0 for a group that is worth no more than one row."""
    return np.sqrt(np.where(size > ONE_ROW, size / np.maximum(size - 1.0, 1e-9), 0.0))


_BENDS = 20  # of a line within a part, at most
_ROWS_A_BEND = 60
_STEPS = 50  # of Newton's method


def within_parts(
    numbers: FloatArray | None, parts: IntArray, weight: FloatArray | None = None
) -> Iterator[tuple[IntArray, FloatArray]]:
    """The rows of each part, and an orthonormal basis (rows, q) of what the numbers (n, k) can explain there.

    Without numbers, that is the part's mean alone. ``parts`` (n,) are codes 0, 1, ..., or -1 for a row of no part. With
    weights (n,), the basis is one of ``sqrt(weight)`` times the columns.
    """
    order = np.argsort(parts, kind="stable")
    edges = np.searchsorted(parts[order], np.arange(int(parts.max(initial=-1)) + 2))
    for start, stop in pairwise(edges.tolist()):
        rows = order[start:stop]
        columns = np.ones((len(rows), 1))
        if numbers is not None:
            columns = np.hstack([columns, bent_lines(numbers[rows], len(rows))])
        basis = columns * (1.0 if weight is None else np.sqrt(weight[rows])[:, None])
        length = np.sqrt((basis**2).sum(axis=0))
        basis /= np.where(length > 0, length, 1.0)
        for _ in range(2):  # the second time makes up for what rounding left of the first
            size, turn = np.linalg.eigh(basis.T @ basis)
            kept = size > 1e-10 * size[-1]
            basis = basis @ (turn[:, kept] / np.sqrt(size[kept]))
        yield rows, basis


def bent_lines(numbers: FloatArray, n_rows: float) -> FloatArray:
    """Of numbers (n, k): a line of each, and bends at quantiles, more of them the more rows they are to serve."""
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
    """Columns (n, m) less what numbers (n, k) explain of them within each part (n,); 0 for rows of no part.

    >>> z, income = np.array([[1.0], [2.0], [3.0], [9.0]]), np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> np.abs(residualise(z, income, np.array([0, 0, 0, 1]))).max() < 1e-12
    np.True_
    """
    left = np.zeros_like(columns, dtype=float)
    for rows, basis in within_parts(numbers, parts, weight):
        root = np.ones(len(rows)) if weight is None else np.sqrt(weight[rows])
        part = columns[rows] * root[:, None]
        part = part - basis @ (basis.T @ part)
        left[rows] = part / np.where(root > 0, root, np.inf)[:, None]
    return left


def balanced(
    members: Membership, numbers: FloatArray, weight: FloatArray | None = None, *, thinned: bool = False
) -> Membership:
    """Memberships in which the numbers (n, k) say nothing of the group: each group has the lines' means of its block.

    A group keeps its size, or with ``thinned`` no row belongs more than before: it does in part, by chance.
    """
    phi, count = members.weights, np.ones(len(numbers)) if weight is None else weight
    data = phi.data.astype(float)
    for block in members.compared.blocks:
        spans = [slice(phi.indptr[g], phi.indptr[g + 1]) for g in block.groups]
        mass = [count[phi.indices[span]] * phi.data[span] for span in spans]
        smallest = min(float(own.sum() ** 2 / max((own**2).sum(), 1e-300)) for own in mass)
        rows, index = np.unique(np.concatenate([phi.indices[span] for span in spans]), return_inverse=True)
        lines, share = bent_lines(numbers[rows], smallest), np.bincount(index, np.concatenate(mass))
        lines = lines - share @ lines / max(share.sum(), 1e-300)
        values, vectors = np.linalg.eigh((lines * share[:, None]).T @ lines / max(share.sum(), 1e-300))
        kept = values > 1e-6 * values.max(initial=0.0)
        lines = lines @ (vectors[:, kept] / np.sqrt(values[kept]))
        for span, own in zip(spans, mass, strict=True):
            if own.sum() > 0:
                tilt = _tilt(lines[np.searchsorted(rows, phi.indices[span])], own / own.sum())
                data[span] *= tilt / (tilt.max() if thinned else own @ tilt / own.sum())
    return replace(members, weights=csc_array((data, phi.indices, phi.indptr), shape=phi.shape))


def _tilt(lines: FloatArray, share: FloatArray) -> FloatArray:
    """``exp(lines @ a)`` with which the rows' shares have means 0, up to a ridge that is small beside their noise."""
    ridge, a = float((share**2).sum()), np.zeros(lines.shape[1])

    def value(at: FloatArray) -> tuple[float, FloatArray]:
        power = lines @ at
        tilt = np.exp(power - power.max(initial=0.0))
        return float(np.log(share @ tilt) + power.max(initial=0.0) + ridge * (at @ at) / 2.0), tilt

    now, tilt = value(a)
    for _ in range(_STEPS):
        own = share * tilt / (share @ tilt)
        slope = own @ lines + ridge * a
        bend = (lines * own[:, None]).T @ lines - np.outer(own @ lines, own @ lines) + ridge * np.eye(len(a))
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
_LOOSE = 0.05  # correlation of two rates up to which they are drawn by themselves
_NEAR = 0.2  # of the flagged rows, as many on each side of the threshold show who lies there
_CELLS = 20  # parts of like probability within which bounds are sought
_LEAST_CELL = 50  # rows in such a part


@dataclass(frozen=True, eq=False)
class Means:
    """Means (G,) of one column in G groups, NaN for a group without rows, and how far they may be off.

    ``cov`` (G, G) is ``N``, the covariance of the means, and ``size`` (G,) is ``e_g``, independent rows that each group
    is worth.
    """

    mean: FloatArray
    cov: FloatArray
    size: FloatArray
    compared: Comparison

    @classmethod
    def of_rates(cls, rates: FloatArray, size: FloatArray, compared: Comparison) -> "Means":
        """Rates that were counted among so many independent rows of disjoint groups."""
        noise = rates * (1.0 - rates) / np.maximum(size - 1.0, 1.0)
        return cls(rates, np.diag(np.nan_to_num(noise)), size, compared)

    @property
    def known(self) -> BoolArray:
        """Groups that are worth more than one row, without which nothing can be said of their noise, shape (G,)."""
        return (self.size > ONE_ROW) & ~np.isnan(self.mean)

    @property
    def compares(self) -> BoolArray:
        """Pairs of groups that can be compared, shape (G, G)."""
        return self.compared.pairs & self.known & self.known[:, None]

    def ratio(self) -> float:
        """Lowest over highest mean of any two groups that are compared; NaN without any. 1 if all means are 0."""
        return float(lowest_over_highest(self.mean, self.compares))

    def p_value(self) -> float:
        """p-value of "all groups that are compared have the same mean"; see `wald_test`.

        Attributes beside each other are tested one by one, and the smallest p counts, times their number.
        """
        measured = self.known, np.nan_to_num(self.mean), np.nan_to_num(self.cov), self.size, 0.0
        p_values = []
        for of in sorted({block.of for block in self.compared.blocks}):
            blocks = tuple(block for block in self.compared.blocks if block.of == of)
            p_values.append(wald_test(replace(self.compared, blocks=blocks), *measured))
        tested = [p for p in p_values if not np.isnan(p)]
        return min(1.0, len(tested) * min(tested)) if tested else float("nan")

    def rows_worth(self) -> FloatArray:
        """Independent rows that each rate is worth by its variance, shape (G,)."""
        binary, noise = self.mean * (1.0 - self.mean), np.diag(self.cov)
        some = (binary > 0) & (noise > 0)
        return np.where(some, 1.0 + binary / np.where(some, noise, 1.0), self.size)

    def correlation(self) -> FloatArray:
        """Of the means, shape (G, G)."""
        error = np.sqrt(np.maximum(np.diag(self.cov), 0.0))
        unit = self.cov / np.where(error > 0, error, np.inf) / np.where(error > 0, error, np.inf)[:, None]
        np.fill_diagonal(unit, 1.0)
        return np.clip(unit, -1.0, 1.0)


class RatioEstimate(NamedTuple):
    """A ratio of flag rates, its standard error and its 95 % interval."""

    value: float
    error: float
    interval: tuple[float, float]

    @classmethod
    def unknown(cls) -> "RatioEstimate":
        """No two groups are compared."""
        nan = float("nan")
        return cls(nan, nan, (nan, nan))


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows as they are measured.

    Parameters
    ----------
    members : Membership
        How much each of n rows belongs to each of G groups, and which groups are compared.
    weight, clusters : arrays of shape (n,), optional
        How much each row counts, on any scale; codes 0, 1, ... of rows that belong together.
    doubt : {"", "probable", "labels"}
        What no number of such rows could tell: who is in a group that is known by probabilities alone, or what the
        rows are like that nobody has labelled.
    """

    members: Membership
    weight: Annotated[FloatArray, "n", Within()] | None = None
    clusters: Annotated[IntArray, "n", Within()] | None = None
    doubt: Annotated[str, ("", "probable", "labels")] = ""

    def check(self) -> None:
        """Weights and clusters are of the rows that have a membership."""
        n = self.members.weights.shape[0]
        require(self.weight is None or len(self.weight) == n, "weight", "has the wrong length")
        known = self.clusters is None or (len(self.clusters) == n and self.clusters.max(initial=-1) < max(n, 1))
        require(known, "clusters", "is out of range")

    @property
    def compared(self) -> Comparison:
        """Which groups are compared."""
        return self.members.compared

    @cached_property
    def plain(self) -> bool:
        """Whether groups are hard, and rows are independent and count alike."""
        return self.weight is None and self.clusters is None and self.members.hard

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
        """``e_g``, independent rows that each group is worth, shape (G,)."""
        squares = np.asarray(self._by_cluster(self.counted).power(2).sum(axis=0), dtype=float).ravel()
        return self.total**2 / np.where(squares > 0, squares, np.inf)

    @cached_property
    def joined(self) -> Membership:
        """The membership, with groups that meet in a cluster among those whose means go together."""
        if self.clusters is None:
            return self.members
        met = self._by_cluster(self.members.weights)
        together = np.argwhere(np.triu((met.T @ met).toarray() > 0, 1))
        overlaps = tuple(sorted({*self.compared.overlaps, *((int(g), int(h)) for g, h in together)}))
        return replace(self.members, compared=replace(self.compared, overlaps=overlaps))

    @cached_property
    def expected(self) -> FloatArray:
        """Members that each group is expected to have: rows, or clusters with any part in it, shape (G,)."""
        expected = np.zeros(self.members.n_groups)
        for g in range(self.members.n_groups):
            rows, share = self.members.of(g)
            share = share if self.weight is None else share * (self.weight[rows] > 0)
            if self.clusters is not None:
                order = np.lexsort((share, self.clusters[rows]))
                last = np.diff(self.clusters[rows][order], append=-1) != 0
                share = share[order][last]
            expected[g] = share.sum()
        return expected

    def of(self, rows: BoolArray) -> "Sample":
        """Some of the rows."""
        weight, clusters = (None if part is None else part[rows] for part in (self.weight, self.clusters))
        members = self.members.among(np.flatnonzero(rows))
        return Sample(members, weight, clusters, self.doubt)  # type: ignore[arg-type]

    def means(self, z: FloatArray | BoolArray) -> FloatArray:
        """Means of columns (n,) or (n, m) in each group, shape (G,) or (G, m); NaN for a group without rows."""
        total = np.where(self.total > 0, self.total, np.nan)
        return np.asarray(self.counted.T @ z.astype(float)) / (total if z.ndim == 1 else total[:, None])

    def measure(
        self, z: FloatArray | BoolArray, *, null: bool = False, threshold_of: FloatArray | None = None
    ) -> Means:
        """Means of a column (n,), with their covariance.

        ``null`` takes residuals from the mean of all groups that are compared with each other, as they are if the means
        do not differ: what a test asks. Rates of few flagged rows then have errors that do not depend on chance.

        With ``threshold_of`` (n,), z are flags of the rows whose score here is among the highest: the threshold moves
        with the rows. To first order a rate falls by ``kappa_g`` times what the share of all rows above a fixed
        threshold is too high by, where ``kappa_g`` is how much more often group g is found at the threshold than among
        all rows.
        """
        column, mean = np.asarray(z, dtype=float), self.means(z)
        psi = self._influence(column, np.nan_to_num(self._pooled(mean) if null else mean))
        cov = np.asarray((psi.T @ psi).toarray())
        if threshold_of is not None and 0 < column.sum() < len(column):
            kappa, shift = self._at_threshold(threshold_of, column)
            across = np.outer(np.asarray(psi.T @ shift), kappa)
            cov += float(shift @ shift) * np.outer(kappa, kappa) - across - across.T
        return Means(mean, cov, self.size, self.compared)

    def among_alike(
        self, z: FloatArray | BoolArray, parts: IntArray, numbers: FloatArray | None = None, *, null: bool = False
    ) -> Means:
        """How far the members of each group lie above all rows alike, in each of S parts; groups (S G,), part by part.

        With residuals on the numbers within the part, ``d_g = sum_i w_i phi~_ig z~_i / W_g``: without numbers the
        group's mean less that of the part. Differences of groups within a part are what is compared. ``parts`` (n,) are
        codes 0, 1, ..., or -1 for a row that is compared with none; ``numbers`` (n, k) are what rows of a part may
        still differ in; ``null``: the covariance as it is if groups do not differ.
        """
        inside = replace(self, members=self.members.within(parts))
        n, G, phi = len(z), self.members.n_groups, self.members.weights.tocsr()
        total, psi = inside.total.reshape(-1, G), np.zeros((n, G))
        mean, unit = np.full(total.shape, np.nan), np.where(total > 0, total, np.inf)
        factor = small_sample(inside.size.reshape(-1, G)) / unit
        for part, (rows, basis) in enumerate(within_parts(numbers, parts, self.weight)):
            root = np.ones(len(rows)) if self.weight is None else np.sqrt(self.weight[rows])
            own, left = phi[rows].toarray(), np.asarray(z, dtype=float)[rows] * root
            left -= basis @ (basis.T @ left)
            members = own * root[:, None]
            members -= basis @ (basis.T @ members)
            apart = members.T @ left / unit[part]
            mean[part] = np.where(total[part] > 0, apart, np.nan)
            moved = members * left[:, None] - (0.0 if null else own * (root**2)[:, None] * apart)
            psi[rows] = moved * factor[part] * np.sqrt(len(rows) / max(len(rows) + 1 - basis.shape[1], 1))
        known = np.flatnonzero(parts >= 0)
        at = np.repeat(known, G), ((parts[known] * G)[:, None] + np.arange(G)).ravel()
        cov = self.covariance(csc_array((psi[known].ravel(), at), shape=(n, mean.size)))
        return Means(mean.ravel(), cov, inside.size, inside.compared)

    def covariance(self, influence: csc_array) -> FloatArray:
        """Covariance of m figures on which rows have an influence (n, m): squares of its sums over clusters."""
        psi = self._by_cluster(influence)
        return np.asarray((psi.T @ psi).toarray())

    def _at_threshold(self, scores: FloatArray, flagged: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``kappa`` (G,), and how much each cluster moves the share of all rows that is flagged (C,)."""
        weight = np.ones(len(scores)) if self.weight is None else self.weight
        cut = scores[flagged > 0].min()
        width = max(int(_NEAR * min(flagged.sum(), len(flagged) - flagged.sum())), 25)
        order = np.argsort(scores, kind="stable")
        middle = int(np.searchsorted(scores[order], cut))
        near = np.zeros(len(scores))
        near[order[max(middle - width, 0) : middle + width]] = 1.0
        there = np.asarray(self.counted.T @ near) / (weight @ near)
        kappa = there * weight.sum() / np.where(self.total > 0, self.total, np.inf)
        share = weight / weight.sum()
        shift = share * (flagged - share @ flagged)
        return kappa, shift if self.clusters is None else np.bincount(self.clusters, shift).astype(float)

    def _influence(self, z: FloatArray, centre: FloatArray) -> csc_array:
        """``sqrt(k_g) psi_cg`` of each cluster, shape (C, G)."""
        counted, group = self.counted, np.repeat(np.arange(self.members.n_groups), np.diff(self.counted.indptr))
        factor = small_sample(self.size) / np.where(self.total > 0, self.total, 1.0)
        data = counted.data * (z[counted.indices] - centre[group]) * factor[group]
        return self._by_cluster(csc_array((data, counted.indices, counted.indptr), shape=counted.shape))

    def _by_cluster(self, rows: csc_array) -> csc_array:
        """Sums over the rows of each cluster."""
        if self.clusters is None:
            return rows
        n, C = len(self.clusters), int(self.clusters.max(initial=-1)) + 1
        return csc_array(csr_array((np.ones(n), (self.clusters, np.arange(n))), shape=(C, n)) @ rows)

    def _pooled(self, mean: FloatArray) -> FloatArray:
        """For each group the mean of all groups of its block, shape (G,)."""
        pooled = mean.copy()
        for block in self.compared.blocks:
            own = [g for g in block.groups if self.total[g] > 0]
            if own:
                pooled[own] = np.average(mean[own], weights=self.total[own])
        return pooled


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
    worst = np.full(means.shape[1:], np.nan)
    blocks = np.unique(compares[compares.any(axis=1)] | np.eye(len(means), dtype=bool)[compares.any(axis=1)], axis=0)
    for block in blocks:
        least, most = means[block].min(axis=0), means[block].max(axis=0)
        worst = np.fmin(worst, np.where(most > 0, least / np.where(most > 0, most, 1.0), 1.0))
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
    the most uneven pair (`extreme_ends`), which holds 1 where all groups are alike.

    A rule that was ``solved`` for even counts evens out chance along with the gap. Its counts on held-out folds come
    out as asked, since a chance surplus in one fold is a shortfall in the folds that the rule was solved on. On new
    rows the rule is off by that chance, one way or the other: its ratio is the median of `noisy_ratios`.
    """
    compares = rates.compares
    if not compares.any():
        return RatioEstimate.unknown()
    again, value, some = noisy_ratios(rates), rates.ratio(), np.flatnonzero(compares.any(axis=0))
    mean, worth, own = rates.mean[some], np.maximum(rates.rows_worth()[some], 1.0), np.ix_(some, some)
    low, high = extreme_ends(
        mean, lambda z: wilson_interval(mean, worth, z), rates.correlation()[own], confidence,
        of_ratio=True, compared=compares[own],
    )  # fmt: skip
    if solved:
        value = float(np.median(again))
        low = min(low, float(np.percentile(again, 50.0 * (1.0 - confidence))))
    return RatioEstimate(value, float(again.std()), (min(low, value), max(min(high, 1.0), value)))


def mean_bounds(sample: Sample, z: FloatArray | BoolArray) -> tuple[FloatArray, FloatArray]:
    """How low and how high each group's mean may be, where groups are known by their probabilities alone; (G,) each.

    Among rows of like probability ``phi_g`` the members of the group may be those of the lowest values, or of the
    highest; nothing in the data tells. For flags with the rate p these are the bounds of Frechet and Hoeffding,
    ``max(0, phi + p - 1) <= P(g, f) <= min(phi, p)``. Sampling noise comes on top; z is of shape (n,).
    """
    n, z = len(z), z.astype(float)
    weight = np.ones(n) if sample.weight is None else sample.weight
    low, high = np.full((2, sample.members.n_groups), np.nan)
    for g in range(sample.members.n_groups):
        rows, phi = sample.members.of(g)
        cells, sums = _cells_of(phi), np.zeros(3)
        for cell in range(int(cells.max(initial=-1)) + 1):
            own = rows[cells == cell]
            order = own[np.argsort(z[own], kind="stable")]
            upto = np.cumsum(weight[order])
            inside = float(weight[own] @ phi[cells == cell])
            least, most = (np.clip(part, 0.0, weight[order]) for part in (inside - (upto - weight[order]),
                                                                         inside - (upto[-1] - upto)))  # fmt: skip
            sums += inside, least @ z[order], most @ z[order]
        if sums[0] > 0:
            low[g], high[g] = sums[1:] / sums[0]
    return low, high


def _cells_of(phi: FloatArray) -> IntArray:
    """Parts of rows of like probability: one for each value if these are few, else parts of many rows each."""
    values, cell = np.unique(phi, return_inverse=True)
    if len(values) <= _CELLS:
        return cell
    sure = phi >= 1.0
    parts = int(np.clip((~sure).sum() // _LEAST_CELL, 1, _CELLS))
    edges = np.quantile(phi[~sure], np.arange(1, parts) / parts)
    return np.where(sure, parts, np.searchsorted(np.unique(edges), phi, side="right"))


def bounded_ratio(rates: Means, low: FloatArray, high: FloatArray, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the lowest over the highest rate, where rates are known within bounds (G,) and up to noise."""
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
    """Least and largest ``m'Lm`` of means within bounds (G,), pair by pair; sampling noise comes on top."""
    weight = -np.triu(laplacian, 1)
    most = np.fmax(high[:, None] - low, high - low[:, None])
    least = np.maximum(np.fmax(low[:, None] - high, low - high[:, None]), 0.0)
    return float(np.nansum(weight * least**2)), float(np.nansum(weight * most**2))
