"""Sums over sets of rows: n rows become a few k x k arrays.

With ``z = (1, s_1, ..., s_k, t)`` the augmented row, a set of rows keeps ``sum phi_g z z'`` for each group g, where
``phi_g`` is how much a row belongs to it (`evenout.core.membership`), and ``sum z z'`` and ``sum beta z z'`` over all
its rows. `CrossFit` has three kinds of sets: all rows; for each of K folds the rows outside it, scored by a model that
was fitted to them; and the rows of the fold, scored by the same model. Sums over chunks of rows add.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from evenout.core.membership import Block, Comparison, Membership
from evenout.core.parallel import map_blocks, one_blas_thread
from evenout.core.sketch import average_ranks
from evenout.core.types import FloatArray, IntArray, require

_TINY = np.finfo(float).tiny
_ALIKE = 0.25  # standard deviations, by which mean training and held-out scores may differ
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
        `Comparison.joint`. None where groups are hard and each row is a cluster of weight 1: it equals ``plain`` then.
    compared : Comparison, optional
        Which groups are compared; None: all of them, with no rows in common.
    sums : dict of arrays of shape (K, ...)
        Sums that fairness notions have collected, by ``"name of the notion.name of the sum"``.
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
        """Require that all sums have the same groups, columns and sets."""
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
        """``spread``, or ``plain`` where it is None, shape (K, P, k + 2, k + 2)."""
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

    @property
    def group_means(self) -> FloatArray:
        """Mean of ``(s, t)`` in each group, shape (K, G, k + 1); 0 for a group without rows."""
        return self.plain[:, :-1, 0, 1:] / np.maximum(self.group_counts, _TINY)[:, :, None]

    @property
    def effective_counts(self) -> FloatArray:
        """Effective number of independent rows of each group, ``(sum w)^2 / sum w^2`` over clusters, (K, G)."""
        return self.group_counts**2 / np.maximum(self.joint_spread[:, : self.n_groups, 0, 0], _TINY)

    def widest_gaps(self) -> FloatArray:
        """Largest difference of two groups' mean base scores, in standard deviations of all rows, shape (K,).

        NaN with fewer than two groups, or for a constant base score.
        """
        if self.n_groups < 2:
            return np.full(self.n_sets, np.nan)
        deviation = np.sqrt(variances(self, unit_target(self))[:, 0])
        means = np.where(self.group_counts > 0, self.group_means[:, :, -1], np.nan)
        blocks = [means[:, list(block.groups)] for block in self.comparison.blocks]
        widest = np.max([np.nanmax(block, axis=1) - np.nanmin(block, axis=1) for block in blocks], axis=0)
        return widest / np.where(deviation > 0, deviation, np.nan)

    def _each(self, function: Callable[[list[FloatArray]], FloatArray], *others: "Cells") -> "Cells":
        """``function`` of each array of these cells, listed with the same arrays of ``others``."""
        parts = (self, *others)
        arrays = {name: [getattr(part, name) for part in parts] for name in ("plain", "weighted", "spread", "base")}
        made: dict[str, Any] = {name: None if some[0] is None else function(some) for name, some in arrays.items()}
        return replace(self, **made, sums={name: function([part.sums[name] for part in parts]) for name in self.sums})

    @classmethod
    def stacked(cls, parts: "Sequence[Cells]") -> "Cells":
        """The sets of all parts, one after the other; all parts must have the same kinds of sums."""
        return parts[0]._each(np.concatenate, *parts[1:])

    def at(self, sets: slice) -> "Cells":
        """Some of the sets."""
        return self._each(lambda arrays: arrays[0][sets])

    def only(self, wanted: Callable[[Block], bool]) -> "Cells":
        """The sums of the groups in some of the blocks that are compared."""
        blocks = [block for block in self.comparison.blocks if wanted(block)]
        if len(blocks) == len(self.comparison.blocks):
            return self
        compared, groups, pairs = self.comparison.only(blocks)
        spread = None if self.spread is None else self.spread[:, pairs]
        return replace(self, plain=self.plain[:, [*groups, -1]], spread=spread, compared=compared)

    def __add__(self, other: "Cells") -> "Cells":
        """Merge the sums of two chunks of rows; sums of notions do not merge, because pairs across chunks miss."""
        if self.sums or other.sums:
            raise ValueError("cells with sums of a notion cannot be added: pairs of rows across the chunks are missing")
        plain, none = self.plain + other.plain, self.spread is None and other.spread is None
        spread = None if none else self.joint_spread + other.joint_spread
        return Cells(plain, self.weighted + other.weighted, spread, compared=self.compared)

    def __sub__(self, other: "Cells") -> "Cells":
        """Subtract the sums of some of the rows."""
        return self + other._each(lambda arrays: -arrays[0])


@dataclass(frozen=True)
class CrossFit:
    """Sums over all rows, and for each fold over the rows outside and inside of it.

    ``whole`` is one set: all rows, scored by the model of all rows. ``training`` and ``held`` are K sets: the rows
    outside each fold, and those of the fold, scored by the model of the rows outside. ``refitted``: whether detectors,
    scaling and target were learnt without the fold; if not, the weights alone were.
    """

    whole: Cells
    training: Cells
    held: Cells
    refitted: bool = True

    def check(self) -> None:
        """Require one set of all rows, and sets of the same folds, groups and columns."""
        require(self.whole.n_sets == 1, "whole", "has the wrong shape")
        kind = self.whole.plain.shape[1:], self.whole.spread is None, self.whole.base is None, self.whole.compared
        for name, cells in (("training", self.training), ("held", self.held)):
            same = kind == (cells.plain.shape[1:], cells.spread is None, cells.base is None, cells.compared)
            require(same and cells.n_sets == self.n_folds, name, "does not go with the rest")

    @classmethod
    def of_folds(cls, cells: Cells) -> "CrossFit":
        """From one set for each fold, all rows scored by the same model."""
        whole = cells._each(lambda arrays: arrays[0].sum(axis=0, keepdims=True))
        training = cells._each(  # never by subtraction, so that nothing cancels
            lambda arrays: np.stack([np.delete(arrays[0], f, axis=0).sum(axis=0) for f in range(cells.n_sets)])
        )
        return cls(whole, training, cells, refitted=False)

    @property
    def scores_alike(self) -> bool:
        """Whether models score new rows like those that they have learnt from, by the mean of each column.

        By the median over folds, since a single row may change the mean of one.
        """
        outside, inside = (
            cells.total / np.maximum(cells.counts, _TINY)[:, None, None] for cells in (self.training, self.held)
        )
        spread = np.sqrt(np.maximum(np.diagonal(outside, axis1=1, axis2=2) - outside[:, 0] ** 2, 0.0))
        shift = np.median((inside - outside)[:, 0] / np.maximum(spread, _TINY), axis=0)
        return bool((np.abs(shift[1:]) <= _ALIKE).all())

    def only(self, wanted: Callable[[Block], bool]) -> "CrossFit":
        """Some of the blocks that are compared; see `Cells.only`."""
        return CrossFit(self.whole.only(wanted), self.training.only(wanted), self.held.only(wanted), self.refitted)

    @property
    def n_folds(self) -> int:
        """Number of folds K; 0 without folds."""
        return self.held.n_sets

    @property
    def rows_outside(self) -> float:
        """Independent rows outside of the fold that leaves the fewest; infinite without folds.

        With clusters or weights, the effective rows of all groups, over the number of groups that a row belongs to.
        """
        cells = self.training
        if cells.spread is None:
            return float(cells.counts.min(initial=np.inf))
        rows, times = cells.effective_counts.sum(axis=1), cells.group_counts.sum(axis=1) / cells.counts
        return float((rows / np.maximum(times, 1.0)).min(initial=np.inf))

    @property
    def crowded(self) -> bool:
        """Whether there are fewer than five rows outside of a fold for each column.

        Detectors and weights then overfit the rows that they were learnt on: these score further apart than new ones.
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
    _, level = np.unique(t, return_inverse=True)
    tied = np.bincount(level, sample_weight)
    below = (np.cumsum(tied) - tied / 2.0) / tied.sum()
    return np.exp(below[level] + 0.5 / len(t))


def variances(cells: Cells, V: FloatArray) -> FloatArray:
    """Variance over all rows of each set of the scores with weights V (K, m, k + 1), shape (K, m)."""
    total = cells.total
    n = np.maximum(total[:, 0, 0], _TINY)[:, None]
    mean = np.einsum("fk,fmk->fm", total[:, 0, 1:], V) / n
    return np.maximum(((V @ total[:, 1:, 1:]) * V).sum(axis=2) / n - mean**2, 0.0)


def fold_variances(cross: CrossFit, V: FloatArray) -> FloatArray:
    """Variance of each score over all rows, inside and outside of the fold, scored by each fold's model.

    Where columns are many (`CrossFit.crowded`), it is the variance of held-out rows: that of all rows times a ratio
    which is pooled over the folds, because a fold has few rows.
    """
    both = variances(Cells(cross.training.plain + cross.held.plain, cross.held.weighted), V)
    if not cross.crowded:
        return both
    share = cross.held.counts / cross.held.counts.sum()
    return both * (share @ (variances(cross.held, V) / np.where(both > 0, both, 1.0)))


def unit_target(cells: Cells) -> FloatArray:
    """Weights of ``(s, t)`` that give the base score, for each set, shape (K, 1, k + 1)."""
    return np.tile(np.eye(1, cells.n_detectors + 1, cells.n_detectors), (cells.n_sets, 1, 1))


FEW = 32768  # rows up to which they are copied rather than summed by a kernel
_PARTS = 64  # blocks at most that are summed separately


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

    ``groups`` say how much each row belongs to each group; or they are codes (n,) in 0..n_groups-1, and -1 for a row
    that counts in f1 and in the variance, but in no group. ``sets`` (n,) are in 0..n_sets-1; -1 for a row of none. The
    numbers of groups and sets are given, so that chunks without a row of some of them still add. ``sample_weight`` (n,)
    is how many rows each row counts for, ``clusters`` (n,) are codes of rows that belong together, such as those of one
    person. The sums do not depend on ``n_threads``.
    """
    members = groups if isinstance(groups, Membership) else Membership.of_codes(groups, n_groups)
    compared, size = members.compared, S.shape[1] + 2
    simple = sample_weight is None and clusters is None and members.hard
    pairs = [] if simple else list(zip(*(groups.tolist() for groups in compared.joint), strict=True))
    plain = np.zeros((n_sets, n_groups + 1, size, size))
    weighted = np.zeros((n_sets, size, size))
    spread = np.zeros((n_sets, len(pairs), size, size))
    if clusters is None and len(S) > FEW:
        weight, phi = np.ones(len(t)) if sample_weight is None else sample_weight, members.weights

        def summed(rows: IntArray, kind: IntArray | int, share: FloatArray, n_kinds: int) -> FloatArray:
            """``sum share z z'`` over the entries of each set and kind, (n_sets, n_kinds, ...)."""
            place = np.where(sets[rows] < 0, -1, sets[rows] * n_kinds + kind)
            sums = sum_products(S, t, rows, place, share, n_sets * n_kinds, n_threads)
            return sums.reshape(n_sets, n_kinds, size, size)

        everybody, group = np.arange(len(t)), np.repeat(np.arange(n_groups), np.diff(phi.indptr))
        plain[:, -1:] = summed(everybody, 0, weight, 1)
        weighted[:] = summed(everybody, 0, weight * beta, 1)[:, 0]
        plain[:, :-1] = summed(phi.indices, group, phi.data * weight[phi.indices], n_groups)
        entries = []
        for pair, (g, h) in enumerate(pairs):
            (rows_g, phi_g), (rows_h, phi_h) = members.of(g), members.of(h)
            _, first, second = np.intersect1d(rows_g, rows_h, assume_unique=True, return_indices=True)
            entries.append((rows_g[first], np.full(len(first), pair), phi_g[first] * phi_h[second]))
        if entries:
            rows, kind, share = (np.concatenate(part) for part in zip(*entries, strict=True))
            spread[:] = summed(rows, kind, share * weight[rows] ** 2, len(pairs))
    else:
        for index in range(n_sets):
            rows = np.flatnonzero(sets == index)
            Z = np.column_stack([np.ones(len(rows)), S.take(rows, axis=0), t[rows]])
            weights, of_cluster = (None if part is None else part[rows] for part in (sample_weight, clusters))
            with one_blas_thread():
                sums = _few_sums(Z, beta[rows], members.among(rows), weights, of_cluster, pairs)  # type: ignore[arg-type]
            plain[index], weighted[index], spread[index] = sums
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
    parts = []  # of each group: its rows, or clusters, in order, and their sums
    for group in range(members.n_groups):
        units, phi = members.of(group)
        belongs = counted.take(units, axis=0) * (1.0 if hard else phi[:, None])
        plain[group] = Z.take(units, axis=0).T @ belongs
        if pairs and clusters is not None and len(units):
            order = np.argsort(clusters[units], kind="stable")
            units = clusters[units][order]
            starts = np.flatnonzero(np.diff(units, prepend=-1))
            units, belongs = units[starts], np.add.reduceat(belongs[order], starts, axis=0)
        parts.append((units, belongs))
    for pair, (g, h) in enumerate(pairs):
        if g == h:
            spread[pair] = parts[g][1].T @ parts[g][1]
        elif g < h:
            _, first, second = np.intersect1d(parts[g][0], parts[h][0], assume_unique=True, return_indices=True)
            spread[pair] = parts[g][1][first].T @ parts[h][1][second]
        else:
            spread[pair] = spread[pair - 1].T
    return plain, (Z.T * beta) @ counted, spread


def sum_products(
    S: FloatArray, t: FloatArray, rows: IntArray, place: IntArray, share: FloatArray, n_places: int, n_threads: int
) -> FloatArray:
    """``sum share z z'`` over the entries of each place, with ``z = (1, s, t)`` of their rows; place -1 does not count.

    Blocks of entries are summed separately and added in their order.
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
