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

from evenout.core.checks import FINITE, Within, require
from evenout.core.types import BoolArray, FloatArray, IntArray

AMONG = ("all", "outliers", "inliers")


@dataclass(frozen=True)
class Block:
    """Groups that are compared with each other, each pair of them.

    Parameters
    ----------
    groups : tuple of int
    weight : float
        How much these comparisons count, in all: attributes count alike, strata by their rows.
    by_size : bool
        False: each pair counts alike, and the block is the mean squared difference. True: a pair counts ``p_g p_h``,
        with ``p`` the share of the rows, and the block is the variance between groups, as for bands.
    among : {"all", "outliers", "inliers"}
        The rows that are compared: all, or those whose label says that they are known outliers, or known inliers.
    of : str
        The attribute whose values the groups are, where attributes are compared one by one.
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
        """No other groups are compared than there are."""
        groups = [g for block in self.blocks for g in block.groups]
        require(all(0 <= g < self.n_groups for g in groups), "blocks", "have groups out of range")
        overlaps = [g for pair in self.overlaps for g in pair]
        require(all(0 <= g < self.n_groups for g in overlaps), "overlaps", "is out of range")

    @classmethod
    def of_all(cls, n_groups: int) -> "Comparison":
        """Each of the groups with each other, no row being in two of them."""
        return cls(n_groups, (Block(tuple(range(n_groups))),))

    @property
    def simple(self) -> bool:
        """Whether each group is compared with each other alike, and no two share rows."""
        return self == Comparison.of_all(self.n_groups)

    @property
    def beyond_crossed(self) -> str:
        """The argument, for a message, that asks for other groups than crossed ones; empty if none does."""
        kinds = [(block.of, block.among) for block in self.blocks]
        if any(among != "all" for _, among in kinds):
            return "{@labels}"
        if any(block.by_size for block in self.blocks):
            return "{@continuous}"
        if len(set(kinds)) < len(kinds):
            return "{@given}"
        if len(kinds) > 1:
            return "{@cross}"
        return "GroupProbabilities" if self.overlaps else ""

    @cached_property
    def joint(self) -> tuple[IntArray, IntArray]:
        """Pairs of groups whose means go together, as two index arrays: each (g, g), then both (g, h) and (h, g)."""
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
        """Some of the blocks by themselves, their groups' places here, and those of their pairs in `joint`."""
        groups = sorted({g for block in blocks for g in block.groups})
        place = {g: new for new, g in enumerate(groups)}
        moved = tuple(replace(block, groups=tuple(place[g] for g in block.groups)) for block in blocks)
        overlaps = tuple((place[g], place[h]) for g, h in self.overlaps if g in place and h in place)
        pairs = np.isin(self.joint[0], groups) & np.isin(self.joint[1], groups)
        return Comparison(len(groups), moved, overlaps), np.array(groups, dtype=np.intp), np.flatnonzero(pairs)

    def root(self, known: BoolArray, size: FloatArray) -> FloatArray:
        """R of each of K sets, with ``L = R'R``, among the groups ``known`` (K, G) there, of ``size`` (K, G) rows.

        The shape is (K, rows, G). Each block has a row for each of its groups: the group less the block's mean, times
        the root of its weight.
        """
        rows, counted = [], np.zeros((len(known), 1, 1))
        for block in self.blocks:
            own = list(block.groups)
            inside = np.where(known[:, own], size[:, own] if block.by_size else 1.0, 0.0)
            n = known[:, own].sum(axis=1)[:, None]
            share = inside / np.where(n >= 2, inside.sum(axis=1, keepdims=True), np.inf)
            weight = block.weight * (share if block.by_size else 2.0 * share * n / np.maximum(n - 1, 1))
            part = np.zeros((len(known), len(own), self.n_groups))
            part[:, :, own] = np.sqrt(weight)[:, :, None] * (np.eye(len(own)) - share[:, None])
            rows.append(part)
            counted += np.where(n >= 2, block.weight, 0.0)[:, :, None]
        return np.concatenate(rows, axis=1) / np.sqrt(np.where(counted > 0, counted, 1.0))

    def laplacian(self, known: BoolArray, size: FloatArray) -> FloatArray:
        """``L`` of each of K sets, shape (K, G, G); see `root`."""
        root = self.root(known, size)
        return root.swapaxes(1, 2) @ root


@dataclass(frozen=True)
class Membership:
    """How much each of n rows belongs to each of G groups.

    Parameters
    ----------
    weights : sparse array of shape (n, G), by columns
    compared : Comparison
    """

    weights: csc_array
    compared: Comparison

    def check(self) -> None:
        """A column for each group."""
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

        NaN is a row without a value. Knots (G,) increase; values beyond them belong to the band at the end.
        """
        known, G = np.flatnonzero(~np.isnan(values)), len(knots)
        place = np.clip(np.interp(values[known], knots, np.arange(G)), 0, G - 1)
        low = np.minimum(place.astype(np.intp), max(G - 2, 0))
        share = np.concatenate([1.0 - (place - low), place - low])
        at = np.tile(known, 2), np.concatenate([low, np.minimum(low + 1, G - 1)])
        weights = csc_array((share, at), shape=(len(values), G))
        weights.eliminate_zeros()
        overlaps = tuple((g, g + 1) for g in range(G - 1))
        return cls(weights, Comparison(G, (Block(tuple(range(G)), by_size=True),), overlaps))

    def within(self, strata: IntArray) -> "Membership":
        """The groups of each stratum by itself: rows are compared with others of their stratum alone.

        Strata (n,) are codes 0, 1, ..., or -1 for a row that is compared with none. They count by their rows.
        """
        parts = [
            csc_array(self.weights.multiply((strata == stratum).astype(float)[:, None]))
            for stratum in range(int(strata.max(initial=-1)) + 1)
        ]
        sizes = [float(part.sum()) for part in parts]
        joined = csc_array(hstack(parts))
        joined.eliminate_zeros()
        blocks, overlaps, G = [], [], self.n_groups
        for first, size in zip(range(0, len(parts) * G, G), sizes, strict=True):
            for block in self.compared.blocks:
                groups = tuple(first + g for g in block.groups)
                blocks.append(Block(groups, block.weight * size / sum(sizes), block.by_size))
            overlaps += [(first + g, first + h) for g, h in self.compared.overlaps]
        return Membership(joined, Comparison(len(parts) * G, tuple(blocks), tuple(overlaps)))

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
        """The same with each row's weights times a factor (n,) in the blocks of rows of some kinds (`Block.among`)."""
        own = np.zeros(self.n_groups, dtype=bool)
        own[[g for block in self.compared.blocks if block.among in kinds for g in block.groups]] = True
        entries = np.repeat(own, np.diff(self.weights.indptr))
        data = np.where(entries, self.weights.data * factor[self.weights.indices], self.weights.data)
        whole = self.weights
        return replace(self, weights=csc_array((data, whole.indices, whole.indptr), shape=whole.shape))

    def among(self, rows: IntArray) -> "Membership":
        """The same of some of the rows, which are in order."""
        if len(rows) == self.weights.shape[0]:
            return self
        moved = np.full(self.weights.shape[0], -1, dtype=np.intp)
        moved[rows] = np.arange(len(rows))
        at = moved[self.weights.indices]
        kept = at >= 0
        starts = np.r_[0, np.cumsum(kept)][self.weights.indptr]
        return replace(
            self, weights=csc_array((self.weights.data[kept], at[kept], starts), shape=(len(rows), self.n_groups))
        )
