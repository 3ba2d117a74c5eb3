"""Sums over sets of rows: n rows become a few k x k arrays.

With ``z = (1, s_1, ..., s_k, t)`` the augmented row, a set of rows keeps ``sum phi_g z z'`` for each group g, where
``phi_g`` is how much a row belongs to it (`evenout.core.membership`), and ``sum z z'`` and ``sum beta z z'`` over all
its rows. Three kinds of sets are needed (`CrossFit`): all rows; for each of K folds the rows outside it,
scored by what was learnt on them; and the rows of the fold, scored by the same. Chunks of rows add. How rows are summed
is in `evenout.core.cells`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from evenout.core.checks import require
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.parallel import map_blocks, one_blas_thread
from evenout.core.sketch import average_ranks
from evenout.core.types import FloatArray, IntArray

_ROWS_PER_COLUMN = 5  # outside of a fold, below which columns are many


@dataclass(frozen=True)
class Cells:
    """Sums over K sets of rows with G groups.

    Parameters
    ----------
    plain : array of shape (K, G + 1, k + 2, k + 2)
        ``sum phi_g z z'`` of each group, each row counted by its sample weight. The last slot has ``sum z z'`` over all
        rows, those without a group too.
    weighted : array of shape (K, k + 2, k + 2)
        ``sum beta z z'`` over all rows, by sample weight too.
    spread : array of shape (K, P, k + 2, k + 2), optional
        ``sum_c u_cg u_ch'`` with ``u_cg = sum phi_g z`` over the rows of cluster c, by sample weight, for the P pairs
        of groups (g, h) that share rows: how much the group means vary together. The pairs are those of
        `Comparison.joint`. Left out where groups are hard and each row is a cluster of weight 1: it is ``plain`` then.
    compared : Comparison, optional
        Which groups are compared; each with each other if left out, none sharing rows.
    sums : dict of arrays of shape (K, ...)
        What fairness notions have collected for themselves, as ``"name of the notion.name of the sum"``.
    base : array of shape (K, k), optional
        Weights of the detectors in t, where t is linear in them.
    """

    plain: Annotated[FloatArray, "K g c c"]
    weighted: Annotated[FloatArray, "K c c"]
    spread: Annotated[FloatArray, "K p c c"] | None = None
    sums: Mapping[str, FloatArray] = field(default_factory=dict)
    base: Annotated[FloatArray, "K k"] | None = None
    compared: Comparison | None = None

    def check(self) -> None:
        """All sums are of the same groups, columns and sets."""
        require(self.n_groups >= 0 and self.n_detectors >= 0, "plain", "has the wrong shape")
        require(self.comparison.n_groups == self.n_groups, "compared", "has the wrong number of groups")
        require(self.base is None or self.base.shape[1] == self.n_detectors, "base", "has the wrong shape")
        pairs = len(self.comparison.joint[0])
        require(self.spread is None or self.spread.shape[1] == pairs, "spread", "has the wrong shape")
        for name, values in self.sums.items():
            require(len(values) == self.n_sets, name, "has the wrong shape")

    @property
    def comparison(self) -> Comparison:
        """Which groups are compared."""
        return Comparison.of_all(self.n_groups) if self.compared is None else self.compared

    @property
    def joint_spread(self) -> FloatArray:
        """``spread``, also where it is left out, shape (K, P, k + 2, k + 2)."""
        return self.plain[:, :-1] if self.spread is None else self.spread

    @property
    def total(self) -> FloatArray:
        """``sum z z'`` over all rows of each set, shape (K, k + 2, k + 2)."""
        return self.plain[:, -1]

    @property
    def n_sets(self) -> int:
        """Number of sets K."""
        return self.plain.shape[0]

    @property
    def n_groups(self) -> int:
        """Number of groups G."""
        return self.plain.shape[1] - 1

    @property
    def n_detectors(self) -> int:
        """Number of detectors k."""
        return self.plain.shape[2] - 2

    @property
    def group_counts(self) -> FloatArray:
        """Rows of each group, by sample weight, shape (K, G)."""
        return self.plain[:, :-1, 0, 0]

    @property
    def counts(self) -> FloatArray:
        """All rows of each set, by sample weight, shape (K,)."""
        return self.total[:, 0, 0]

    def widest_gaps(self) -> FloatArray:
        """Largest difference of two groups' mean base scores, in standard deviations of all rows, shape (K,).

        NaN with fewer than two groups, or for a constant base score.
        """
        total, n = self.total[:, [0, -1], -1], np.maximum(self.counts, np.finfo(float).tiny)
        deviation = np.sqrt(np.maximum(total[:, 1] / n - (total[:, 0] / n) ** 2, 0.0))
        if self.n_groups < 2:
            return np.full(self.n_sets, np.nan)
        means = self.plain[:, :-1, 0, -1] / np.where(self.group_counts > 0, self.group_counts, np.nan)
        blocks = [means[:, list(block.groups)] for block in self.comparison.blocks]
        widest = np.max([np.nanmax(block, axis=1) - np.nanmin(block, axis=1) for block in blocks], axis=0)
        return widest / np.where(deviation > 0, deviation, np.nan)

    @classmethod
    def stacked(cls, parts: "Sequence[Cells]") -> "Cells":
        """The sets of all parts, one after the other; all parts must have the same kinds of sums."""

        def joined(arrays: "list[FloatArray | None]") -> FloatArray | None:
            known = [array for array in arrays if array is not None]
            return np.concatenate(known) if known else None

        return cls(
            np.concatenate([part.plain for part in parts]),
            np.concatenate([part.weighted for part in parts]),
            joined([part.spread for part in parts]),
            {name: np.concatenate([part.sums[name] for part in parts]) for name in parts[0].sums},
            joined([part.base for part in parts]),
            parts[0].compared,
        )

    def only(self, wanted: Callable[[Block], bool]) -> "Cells":
        """The sums of the groups in some of the blocks that are compared."""
        blocks = [block for block in self.comparison.blocks if wanted(block)]
        if len(blocks) == len(self.comparison.blocks):
            return self
        compared, groups, pairs = self.comparison.only(blocks)
        spread = None if self.spread is None else self.spread[:, pairs]
        return replace(self, plain=self.plain[:, [*groups, -1]], spread=spread, compared=compared)

    def at(self, sets: slice) -> "Cells":
        """Some of the sets."""
        arrays = {name: getattr(self, name) for name in ("plain", "weighted", "spread", "base")}
        some: dict[str, Any] = {name: None if array is None else array[sets] for name, array in arrays.items()}
        return replace(self, sums={name: array[sets] for name, array in self.sums.items()}, **some)

    def __add__(self, other: "Cells") -> "Cells":
        """Merge the sums of two chunks of rows; what notions have collected does not merge, as pairs across chunks."""
        return self._joined(other, 1.0)

    def __sub__(self, other: "Cells") -> "Cells":
        """Take the sums of some of the rows away."""
        return self._joined(other, -1.0)

    def _joined(self, other: "Cells", sign: float) -> "Cells":
        if self.sums or other.sums:
            raise ValueError("cells with sums of a notion cannot be added: pairs of rows across the chunks are missing")
        both = self.plain + sign * other.plain, self.weighted + sign * other.weighted
        if self.spread is None and other.spread is None:
            return Cells(*both, compared=self.compared)
        return Cells(*both, self.joint_spread + sign * other.joint_spread, compared=self.compared)


@dataclass(frozen=True)
class CrossFit:
    """All rows, and for each fold the rows outside and inside of it, as seen by what was learnt outside.

    Parameters
    ----------
    whole : Cells
        One set: all rows, scored by what was learnt on all.
    training : Cells
        K sets: the rows outside each fold, scored by what was learnt on them.
    held : Cells
        K sets: the rows of each fold, scored by what was learnt without them.
    refitted : bool
        Whether detectors, scaling and target were learnt without the fold. If not, the weights alone were.
    """

    whole: Cells
    training: Cells
    held: Cells
    refitted: bool = True

    def check(self) -> None:
        """All rows are one set, and both kinds of the others are of the same folds, groups and columns."""
        require(self.whole.n_sets == 1, "whole", "has the wrong shape")
        shape = self.whole.plain.shape[1:], self.whole.spread is None, self.whole.base is None, self.whole.compared
        for name, cells in (("training", self.training), ("held", self.held)):
            same = cells.plain.shape[1:], cells.spread is None, cells.base is None, cells.compared
            require(same == shape and cells.n_sets == self.n_folds, name, "does not go with the rest")

    @classmethod
    def of_folds(cls, cells: Cells, base: FloatArray | None = None) -> "CrossFit":
        """From sums over each fold, all rows scored by what was learnt on all rows: folds subtract.

        Parameters
        ----------
        cells : Cells
            One set for each fold.
        base : array of shape (k,), optional
        """

        def added(add: Callable[[FloatArray], FloatArray]) -> Cells:
            spread = None if cells.spread is None else add(cells.spread)
            return replace(cells, plain=add(cells.plain), weighted=add(cells.weighted), spread=spread)

        whole, training, held = added(_total), added(_others), cells
        if base is not None:
            whole, training, held = (
                replace(part, base=np.repeat(base[None], part.n_sets, axis=0)) for part in (whole, training, held)
            )
        return cls(whole, training, held, refitted=False)

    def only(self, wanted: Callable[[Block], bool]) -> "CrossFit":
        """The same of some of the blocks that are compared; see `Cells.only`."""
        whole, training, held = (cells.only(wanted) for cells in (self.whole, self.training, self.held))
        return CrossFit(whole, training, held, self.refitted)

    @property
    def n_folds(self) -> int:
        """Number of folds K; 0 where nothing was left out."""
        return self.held.n_sets

    @property
    def kept_share(self) -> FloatArray:
        """Share of all rows that is outside each fold, shape (K,)."""
        return self.training.counts / self.whole.counts

    @property
    def rows_outside(self) -> float:
        """Independent rows outside of the fold that leaves the fewest; infinite without folds.

        With clusters or weights, what the groups are worth, once for each time that a row is in one of them.
        """
        cells = self.training
        if cells.spread is None:
            return float(cells.counts.min(initial=np.inf))
        n = cells.group_counts
        own = cells.spread[:, : cells.n_groups, 0, 0]
        worth = (n**2 / np.maximum(own, np.finfo(float).tiny)).sum(axis=1)
        return float((worth / np.maximum(n.sum(axis=1) / cells.counts, 1.0)).min(initial=np.inf))

    @property
    def crowded(self) -> bool:
        """Whether there are fewer than five rows outside of a fold for each column.

        Detectors and weights then know the rows that they were learnt on: these score further apart than new ones, and
        weights that are free to follow them do.
        """
        return self.rows_outside < _ROWS_PER_COLUMN * self.whole.n_detectors


def rank_weights(t: FloatArray, sample_weight: FloatArray | None = None) -> FloatArray:
    """``beta_i = exp(rank_i / n)``, ranks of ``t`` ascending from 1 to n, ties averaged.

    With sample weights, ``rank_i / n`` is the share of the weight below, half of the ties included, plus ``1 / 2n``.

    >>> np.log(rank_weights(np.array([0.1, 0.9, 0.5, 0.5]))).round(12).tolist()
    [0.25, 1.0, 0.625, 0.625]
    """
    if sample_weight is None:
        return np.exp(average_ranks(t) / len(t))
    _, place = np.unique(t, return_inverse=True)
    tied = np.bincount(place, sample_weight)
    below = (np.cumsum(tied) - tied / 2.0) / tied.sum()
    return np.exp(below[place] + 0.5 / len(t))


def variances(cells: Cells, V: FloatArray) -> FloatArray:
    """Variance over all rows of each set of the scores with weights V (K, m, k + 1), shape (K, m)."""
    total = cells.total
    n = np.maximum(total[:, 0, 0], np.finfo(float).tiny)[:, None]
    mean = np.einsum("fk,fmk->fm", total[:, 0, 1:], V) / n
    square = ((V @ total[:, 1:, 1:]) * V).sum(axis=2) / n
    return np.maximum(square - mean**2, 0.0)


def fold_variances(cross: CrossFit, V: FloatArray) -> FloatArray:
    """Variance of each score over all rows, those of the fold and those outside, as each fold's model sees them.

    Where columns are many (`CrossFit.crowded`), it is the variance of held-out rows, as a share of that one the same
    for all folds: a fold has few rows.
    """
    both = variances(Cells(cross.training.plain + cross.held.plain, cross.held.weighted), V)
    if not cross.crowded:
        return both
    share = cross.held.counts / cross.held.counts.sum()
    return both * (share @ (variances(cross.held, V) / np.where(both > 0, both, 1.0)))


def unit_target(cells: Cells) -> FloatArray:
    """The weights that make the base score of ``(s, t)``, for each set, shape (K, 1, k + 1)."""
    V = np.zeros((cells.n_sets, 1, cells.n_detectors + 1))
    V[:, :, -1] = 1.0
    return V


def _total(part: FloatArray) -> FloatArray:
    return part.sum(axis=0, keepdims=True)


def _others(part: FloatArray) -> FloatArray:
    """Sum of all other entries along the first axis, never by taking away, so that nothing cancels."""
    return np.stack([np.delete(part, f, axis=0).sum(axis=0) for f in range(len(part))])


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
    from evenout.core._column_kernels import add_products

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
