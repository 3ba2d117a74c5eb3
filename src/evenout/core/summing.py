"""From rows to `Cells`: few rows by products of matrices, many by one compiled pass that makes no copies of them."""

from collections.abc import Sequence

import numpy as np

from evenout.core.cells import Cells
from evenout.core.compiled import map_blocks, one_blas_thread
from evenout.core.membership import Membership
from evenout.core.types import FloatArray, IntArray

FEW = 32768  # rows up to which copies of them are no matter
_PARTS = 64  # blocks at most, each of which has sums of its own


def collect_cells(
    S: FloatArray,
    t: FloatArray,
    beta: FloatArray,
    groups: IntArray | Membership,
    sets: IntArray,
    *,
    n_groups: int,
    n_sets: int,
    sample_weight: FloatArray | None = None,
    clusters: IntArray | None = None,
    n_threads: int = 1,
) -> Cells:
    """Sum the augmented rows ``z = (1, s, t)`` over each group of each set.

    Parameters
    ----------
    S : array of shape (n, k)
    t, beta : arrays of shape (n,)
    groups : Membership, or array of shape (n,)
        How much each row belongs to each group. Or codes in 0..n_groups-1, and -1 for a row that counts in f1 and in
        the variance, but in no group.
    sets : array of shape (n,)
        The set of each row, in 0..n_sets-1; -1 for a row of none.
    n_groups, n_sets : int
        Given, not counted, so that chunks that miss a group or a set still add.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for.
    clusters : array of shape (n,), optional
        Rows of one cluster code belong together, such as those of one person.
    n_threads : int
        Sums are the same whatever that number is.
    """
    members = groups if isinstance(groups, Membership) else Membership.of_codes(groups, n_groups)
    compared, size = members.compared, S.shape[1] + 2
    pairs = list(zip(*(groups.tolist() for groups in compared.joint), strict=True))
    simple = sample_weight is None and clusters is None and members.hard
    plain = np.zeros((n_sets, n_groups + 1, size, size))
    weighted = np.zeros((n_sets, size, size))
    spread = np.zeros((n_sets, 0 if simple else len(pairs), size, size))
    if clusters is None and len(S) > FEW:
        many = _Many(S, t, members, sets, sample_weight, n_threads)
        plain[:, -1], weighted[:] = many.all_rows(n_sets), many.all_rows(n_sets, beta)
        plain[:, :-1] = many.of_groups(n_sets)
        spread[:] = many.of_pairs(n_sets, [] if simple else pairs)
    else:
        for place in range(n_sets):
            rows = np.flatnonzero(sets == place)
            Z = np.column_stack([np.ones(len(rows)), S.take(rows, axis=0), t[rows]])
            weight = None if sample_weight is None else sample_weight[rows]
            of_cluster = None if clusters is None else clusters[rows]
            with one_blas_thread():
                sums = _few_sums(Z, beta[rows], members.among(rows), weight, of_cluster, [] if simple else pairs)
            plain[place], weighted[place], spread[place] = sums
    return Cells(plain, weighted, None if simple else spread, compared=None if compared.simple else compared)


def _few_sums(
    Z: FloatArray,
    beta: FloatArray,
    members: Membership,
    weight: FloatArray | None,
    clusters: IntArray | None,
    pairs: Sequence[tuple[int, int]],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``plain``, ``weighted`` and ``spread`` of one set of `Cells` for augmented rows Z."""
    size, hard = Z.shape[1], members.hard
    counted = Z if weight is None else Z * weight[:, None]
    plain, spread = np.empty((members.n_groups + 1, size, size)), np.empty((len(pairs), size, size))
    plain[-1] = Z.T @ counted
    parts = []
    for group in range(members.n_groups):
        own, phi = members.of(group)
        belongs = counted.take(own, axis=0)
        belongs = belongs if hard else belongs * phi[:, None]
        plain[group] = Z.take(own, axis=0).T @ belongs
        if pairs:
            parts.append((own, belongs) if clusters is None else _cluster_sums(belongs, clusters[own]))
    for pair, (g, h) in enumerate(pairs):
        spread[pair] = _joint(parts[g], parts[h]) if g <= h else spread[pair - 1].T
    return plain, (Z.T * beta) @ counted, spread


def _joint(one: tuple[IntArray, FloatArray], two: tuple[IntArray, FloatArray]) -> FloatArray:
    """``sum_c u_c v_c'`` over the clusters, or rows, that two groups share; each group has them in order."""
    if one is two:
        return one[1].T @ two[1]
    first, second = _shared(one[0], two[0])
    return one[1][first].T @ two[1][second]


def _shared(one: IntArray, two: IntArray) -> tuple[IntArray, IntArray]:
    """Where two lists of codes, each in order, have those that are in both."""
    place = np.searchsorted(one, two)
    second = np.flatnonzero(np.append(one, -1)[place] == two)
    return place[second], second


def _cluster_sums(Z: FloatArray, clusters: IntArray) -> tuple[IntArray, FloatArray]:
    """The clusters that occur, and the sum of the rows of each."""
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    return clusters[order][starts], np.add.reduceat(Z[order], starts, axis=0) if len(order) else Z


def sum_products(
    S: FloatArray, t: FloatArray, rows: IntArray, place: IntArray, share: FloatArray, n_places: int, n_threads: int
) -> FloatArray:
    """``sum share z z'`` over the entries of each place, with ``z = (1, s, t)`` of their rows; place -1 does not count.

    Each block of entries is summed by itself, and blocks are added in their order.
    """
    from evenout.core._cell_kernels import add_products

    size = S.shape[1] + 2

    def work(at: slice) -> FloatArray:
        total = np.zeros((n_places, size, size))
        add_products(S, t, rows[at], place[at], share[at], np.empty(size), total)
        return total

    block = max(FEW, -(-len(rows) // _PARTS))
    lower = sum(map_blocks(work, len(rows), block, n_threads), start=np.zeros((n_places, size, size)))
    return lower + np.tril(lower, -1).swapaxes(1, 2)


class _Many:
    """The sums of `Cells` over many rows, on threads."""

    def __init__(
        self,
        S: FloatArray,
        t: FloatArray,
        members: Membership,
        sets: IntArray,
        weight: FloatArray | None,
        n_threads: int,
    ) -> None:
        self.S, self.t, self.members, self.sets, self.n_threads = S, t, members, sets, n_threads
        self.weight = np.ones(len(t)) if weight is None else weight

    def all_rows(self, n_sets: int, beta: FloatArray | None = None) -> FloatArray:
        """``sum z z'``, or ``sum beta z z'``, over each set."""
        share = self.weight if beta is None else self.weight * beta
        return sum_products(self.S, self.t, np.arange(len(share)), self.sets, share, n_sets, self.n_threads)

    def of_groups(self, n_sets: int) -> FloatArray:
        """``sum phi_g z z'`` over each set, (n_sets, G, ...)."""
        weights, n_groups = self.members.weights, self.members.n_groups
        rows, group = weights.indices, np.repeat(np.arange(n_groups), np.diff(weights.indptr))
        return self._of(rows, group, weights.data * self.weight[rows], n_sets, n_groups)

    def of_pairs(self, n_sets: int, pairs: Sequence[tuple[int, int]]) -> FloatArray:
        """``sum phi_g phi_h z z'`` over each set for pairs of groups, by squared weights, (n_sets, pairs, ...)."""
        entries = [self._pair(place, *pair) for place, pair in enumerate(pairs)]
        if not entries:
            return np.zeros((n_sets, 0, 1, 1))
        rows, pair, share = (np.concatenate(part) for part in zip(*entries, strict=True))
        return self._of(rows, pair, share * self.weight[rows] ** 2, n_sets, len(pairs))

    def _pair(self, place: int, g: int, h: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Rows that two groups share, the place of the pair, and the product of what the row belongs to each."""
        one, two = self.members.of(g), self.members.of(h)
        first, second = _shared(one[0], two[0])
        return one[0][first], np.full(len(first), place), one[1][first] * two[1][second]

    def _of(self, rows: IntArray, kind: IntArray, share: FloatArray, n_sets: int, n_kinds: int) -> FloatArray:
        of = self.sets[rows]
        place = np.where(of < 0, -1, of * n_kinds + kind)
        sums = sum_products(self.S, self.t, rows, place, share, n_sets * n_kinds, self.n_threads)
        return sums.reshape(n_sets, n_kinds, *sums.shape[1:])
