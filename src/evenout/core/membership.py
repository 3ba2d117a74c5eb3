"""Groups as weights: how much each row belongs to each group, and which groups are compared.

A row i belongs to group g with the weight ``phi_ig >= 0``. Hard groups are 0 and 1, and an unknown group is a row of
zeros. A probable group has probabilities, a continuous attribute has overlapping bands, several attributes have columns
side by side, and a stratum multiplies. Means are ``m_g = sum_i phi_ig z_i / sum_i phi_ig``.

With the weight ``w_gh`` of the comparison of two groups, parity is ``sum_{g<h} w_gh (m_g - m_h)^2 = m'Lm``, where
``L = diag(W 1) - W`` is the Laplacian of the comparisons: form, noise and errors are all written with it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy.sparse import csc_array, hstack

from evenout.core.types import FINITE, BoolArray, FloatArray, IntArray, Within, require

AMONG = ("all", "outliers", "inliers")


@dataclass(frozen=True)
class Block:
    """Groups that are compared with each other, each pair of them.

    ``weight`` is that of these comparisons: equal for attributes, the number of rows for strata. If not ``by_size``,
    all pairs have equal weight, and the block is the mean squared difference; else a pair has the weight ``p_g p_h``,
    with ``p`` the share of the rows, and the block is the variance between groups, as for bands. ``among`` says which
    rows are compared: all, or those that are labelled as outliers, or as inliers. ``of`` is the attribute of the
    groups, where attributes are compared one by one.
    """

    groups: tuple[int, ...]
    weight: Annotated[float, FINITE] = 1.0
    by_size: bool = False
    among: Annotated[str, AMONG] = "all"
    of: str = ""


@dataclass(frozen=True)
class Comparison:
    """Which of G groups are compared, in ``blocks``, and which pairs (g, h), g < h, may have rows in common."""

    n_groups: Annotated[int, Within(0, 2**31)]
    blocks: tuple[Block, ...]
    overlaps: tuple[tuple[int, int], ...] = ()

    def check(self) -> None:
        """Require that all groups are in range."""
        compared = (g for block in self.blocks for g in block.groups)
        require(all(0 <= g < self.n_groups for g in compared), "blocks", "have groups out of range")
        require(all(0 <= g < self.n_groups for pair in self.overlaps for g in pair), "overlaps", "is out of range")

    @classmethod
    def of_all(cls, n_groups: int) -> "Comparison":
        """All groups are compared with each other, and no row is in two of them."""
        return cls(n_groups, (Block(tuple(range(n_groups))),))

    @property
    def simple(self) -> bool:
        """Whether all groups are compared with each other with equal weight, and no two share rows."""
        return self == Comparison.of_all(self.n_groups)

    @property
    def beyond_crossed(self) -> str:
        """The argument, for a message, by which groups are not just crossed; empty if there is none."""
        kinds = [(block.of, block.among) for block in self.blocks]
        holds = {
            "{@labels}": any(among != "all" for _, among in kinds),
            "{@continuous}": any(block.by_size for block in self.blocks),
            "{@given}": len(set(kinds)) < len(kinds),
            "{@cross}": len(kinds) > 1,
            "GroupProbabilities": bool(self.overlaps),
        }
        return next((argument for argument in holds if holds[argument]), "")

    @cached_property
    def joint(self) -> tuple[IntArray, IntArray]:
        """Pairs of groups whose means are correlated, as two index arrays: each (g, g), then both (g, h) and (h, g)."""
        both = [pair for g, h in self.overlaps for pair in ((g, h), (h, g))]
        pairs = np.array([*((g, g) for g in range(self.n_groups)), *both], dtype=np.intp).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    @cached_property
    def pairs(self) -> BoolArray:
        """Which groups are compared with each other, shape (G, G)."""
        pairs = np.zeros((self.n_groups, self.n_groups), dtype=bool)
        for block in self.blocks:
            pairs[np.ix_(block.groups, block.groups)] = True
        return pairs & ~np.eye(self.n_groups, dtype=bool)

    def groups_among(self, known: BoolArray) -> list[list[int]]:
        """The ``known`` (G,) groups of each block that has two of them or more."""
        blocks = [[g for g in block.groups if known[g]] for block in self.blocks]
        return [groups for groups in blocks if len(groups) >= 2]

    def only(self, blocks: "Sequence[Block]") -> "tuple[Comparison, IntArray, IntArray]":
        """A comparison of some of the blocks alone, the places of its groups here, and of its pairs in `joint`."""
        groups = sorted({g for block in blocks for g in block.groups})
        new = {g: index for index, g in enumerate(groups)}
        moved = tuple(replace(block, groups=tuple(new[g] for g in block.groups)) for block in blocks)
        overlaps = tuple((new[g], new[h]) for g, h in self.overlaps if g in new and h in new)
        pairs = np.isin(self.joint[0], groups) & np.isin(self.joint[1], groups)
        return Comparison(len(groups), moved, overlaps), np.array(groups, dtype=np.intp), np.flatnonzero(pairs)

    def root(self, known: BoolArray, size: FloatArray) -> FloatArray:
        """R of each of K sets, with ``L = R'R``, of the groups ``known`` (K, G) in it, of ``size`` (K, G) rows.

        The shape is (K, rows, G). Each block has a row for each of its groups: the group less the block's mean, times
        the root of its weight.
        """
        rows, counted = [], np.zeros((len(known), 1, 1))
        for block in self.blocks:
            g = list(block.groups)
            inside, n = (
                np.where(known[:, g], size[:, g] if block.by_size else 1.0, 0.0),
                known[:, g].sum(axis=1)[:, None],
            )
            share = inside / np.where(n >= 2, inside.sum(axis=1, keepdims=True), np.inf)
            weight = block.weight * (share if block.by_size else 2.0 * share * n / np.maximum(n - 1, 1))
            part = np.zeros((len(known), len(g), self.n_groups))
            part[:, :, g] = np.sqrt(weight)[:, :, None] * (np.eye(len(g)) - share[:, None])
            rows.append(part)
            counted += np.where(n >= 2, block.weight, 0.0)[:, :, None]
        return np.concatenate(rows, axis=1) / np.sqrt(np.where(counted > 0, counted, 1.0))

    def laplacian(self, known: BoolArray, size: FloatArray) -> FloatArray:
        """``L`` of each of K sets, shape (K, G, G); see `root`."""
        root = self.root(known, size)
        return root.swapaxes(1, 2) @ root


@dataclass(frozen=True)
class Membership:
    """How much each of n rows belongs to each of G groups: ``weights`` (n, G), by columns."""

    weights: csc_array
    compared: Comparison

    def check(self) -> None:
        """Require a column for each group."""
        require(self.weights.shape[1] == self.n_groups, "weights", "has the wrong shape")

    @classmethod
    def of_codes(cls, codes: IntArray, n_groups: int) -> "Membership":
        """Hard groups by their codes 0..G-1; -1 for a row without a group."""
        rows = np.flatnonzero(codes >= 0)
        weights = csc_array((np.ones(len(rows)), (rows, codes[rows])), shape=(len(codes), n_groups))
        return cls(weights, Comparison.of_all(n_groups))

    @classmethod
    def of_bands(cls, values: FloatArray, knots: FloatArray) -> "Membership":
        """Overlapping bands of a number (n,): band g is 1 at knot g and falls to 0 at the knots beside it.

        NaN is a row without a value. Knots (G,) increase; values beyond them belong to the first or last band.
        """
        known, G = np.flatnonzero(~np.isnan(values)), len(knots)
        position = np.clip(np.interp(values[known], knots, np.arange(G)), 0, G - 1)
        low = np.minimum(position.astype(np.intp), max(G - 2, 0))
        share = np.concatenate([1.0 - (position - low), position - low])
        at = np.tile(known, 2), np.concatenate([low, np.minimum(low + 1, G - 1)])
        weights = csc_array((share, at), shape=(len(values), G))
        weights.eliminate_zeros()
        overlaps = tuple((g, g + 1) for g in range(G - 1))
        return cls(weights, Comparison(G, (Block(tuple(range(G)), by_size=True),), overlaps))

    def within(self, strata: IntArray) -> "Membership":
        """The groups of each stratum separately: rows are compared within their stratum alone.

        Strata (n,) are codes 0, 1, ..., or -1 for a row that is not compared. Their weights are their rows.
        """
        parts = [
            csc_array(self.weights.multiply((strata == stratum).astype(float)[:, None]))
            for stratum in range(int(strata.max(initial=-1)) + 1)
        ]
        sizes = [float(part.sum()) for part in parts]
        joined = csc_array(hstack(parts))
        joined.eliminate_zeros()
        firsts = range(0, joined.shape[1], self.n_groups)
        blocks = tuple(
            Block(tuple(first + g for g in block.groups), block.weight * size / sum(sizes), block.by_size)
            for first, size in zip(firsts, sizes, strict=True)
            for block in self.compared.blocks
        )
        overlaps = tuple((first + g, first + h) for first in firsts for g, h in self.compared.overlaps)
        return Membership(joined, Comparison(joined.shape[1], blocks, overlaps))

    @property
    def n_groups(self) -> int:
        """Number of groups G."""
        return self.compared.n_groups

    @property
    def hard(self) -> bool:
        """Whether each row belongs to one group or to none."""
        return not self.compared.overlaps and bool((self.weights.data == 1.0).all())

    @cached_property
    def codes(self) -> IntArray:
        """The group that each row belongs to most, the first of equal ones, shape (n,); -1 for a row of none."""
        largest, codes = np.zeros(self.weights.shape[0]), np.full(self.weights.shape[0], -1, dtype=np.intp)
        for group in range(self.n_groups):
            rows, weight = self.of(group)
            more = weight > largest[rows]
            codes[rows[more]], largest[rows[more]] = group, weight[more]
        return codes

    def of(self, group: int) -> tuple[IntArray, FloatArray]:
        """The rows of one group, and how much each belongs to it."""
        inside = slice(*self.weights.indptr[group : group + 2])
        return self.weights.indices[inside].astype(np.intp, copy=False), self.weights.data[inside]

    def times(self, factor: FloatArray, kinds: Collection[str]) -> "Membership":
        """Multiply each row's weights by a factor (n,) in the blocks of some kinds of rows (`Block.among`)."""
        phi, chosen = self.weights, np.zeros(self.n_groups, dtype=bool)
        chosen[[g for block in self.compared.blocks if block.among in kinds for g in block.groups]] = True
        data = np.where(np.repeat(chosen, np.diff(phi.indptr)), phi.data * factor[phi.indices], phi.data)
        return replace(self, weights=csc_array((data, phi.indices, phi.indptr), shape=phi.shape))

    def among(self, rows: IntArray) -> "Membership":
        """The membership of some of the rows, which are in order."""
        phi = self.weights
        if len(rows) == phi.shape[0]:
            return self
        new = np.full(phi.shape[0], -1, dtype=np.intp)
        new[rows] = np.arange(len(rows))
        at = new[phi.indices]
        kept = at >= 0
        entries = phi.data[kept], at[kept], np.r_[0, np.cumsum(kept)][phi.indptr]
        return replace(self, weights=csc_array(entries, shape=(len(rows), self.n_groups)))
