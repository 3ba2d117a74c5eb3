"""From raw detector scores to comparable columns S and the base score t.

A column that is constant on the training rows has no information and becomes 0 everywhere. Scores of new rows beyond
the training range are not clipped, because that would tie the most outlying of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from scipy.special import erf

from evenout.core.cells import FEW, sum_products
from evenout.core.content import counts_around
from evenout.core.parallel import by_rows, map_blocks, map_columns, one_blas_thread, sorted_columns
from evenout.core.types import BoolArray, FloatArray, IntArray, Within, require

SCALINGS = ("minmax", "rank", "zscore", "gaussian")
_FEW = 1000  # rows up to which a compiled pass does not pay
_BLOCK = 32768  # rows that are summed sequentially


@dataclass(frozen=True)
class Scaling:
    """A learnt scaling of k score columns.

    ``"minmax"``: to [0, 1]. ``"rank"``: the share of training rows below, ties counted half. ``"zscore"``: mean 0 and
    standard deviation 1. ``"gaussian"``: ``max(0, erf((s - mean) / (std sqrt 2)))`` (Kriegel et al. 2011). All numbers
    are those of the training rows; ``varies`` is False for constant columns. ``sorted_scores`` (n, k) are the training
    scores, sorted by column, where ranks need them, else (0, k).
    """

    kind: Annotated[str, SCALINGS]
    low: Annotated[FloatArray, "k"]
    high: Annotated[FloatArray, "k"]
    mean: Annotated[FloatArray, "k"]
    std: Annotated[FloatArray, "k"]
    varies: Annotated[BoolArray, "k"]
    sorted_scores: Annotated[FloatArray, "n k"]

    def check(self) -> None:
        """Require sorted scores for ranks, and for ranks alone."""
        require((self.kind == "rank") == (len(self.sorted_scores) > 0), "sorted_scores", "has the wrong shape")

    def transform(self, raw: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Scale raw scores of shape (m, k)."""
        return by_rows(self._scaled, raw, n_threads=n_threads)

    def _scaled(self, raw: FloatArray) -> FloatArray:
        if self.kind == "rank":  # plus the distance to the training range, in units of the range
            below, upto = counts_around(self.sorted_scores, raw)
            span = np.where(self.varies, self.high - self.low, 1.0)
            outside = np.maximum(raw - self.high, 0.0) - np.maximum(self.low - raw, 0.0)
            scaled = (below + upto) / (2.0 * len(self.sorted_scores)) + outside / span
        elif self.kind == "minmax":
            scaled = raw - np.where(self.varies, self.low, 0.0)
            scaled /= np.where(self.varies, self.high - self.low, 1.0)
        else:
            scaled = raw - self.mean
            scaled /= np.where(self.varies, self.std, 1.0)
            if self.kind == "gaussian":
                scaled = np.maximum(erf(scaled / np.sqrt(2.0)), 0.0)
        scaled[:, ~self.varies] = 0.0
        return scaled


def learn_scaling(kind: str, raw: FloatArray, *, outside: BoolArray | None = None, n_threads: int = 1) -> Scaling:
    """Learn a scaling from raw training scores of shape (n, k), or from the rows that ``outside`` marks.

    >>> learn_scaling("minmax", np.array([[1.0], [3.0]])).transform(np.array([[2.0], [5.0]])).ravel().tolist()
    [0.5, 2.0]
    """
    by_row = raw.shape[1] > 1 and raw.strides[1] == raw.itemsize  # else numpy adds in another order
    if kind == "minmax" and by_row and len(raw) > _FEW:
        return _learn_in_place(raw, np.ones(len(raw), dtype=bool) if outside is None else outside, n_threads)
    raw = raw if outside is None else raw[outside]
    low, high = raw.min(axis=0), raw.max(axis=0)
    varies, span = _spans(low, high)
    # Sums of sorted scores do not depend on the order of the rows.
    ordered = raw if kind == "minmax" else sorted_columns(raw, n_threads)
    known = ordered if kind == "rank" else np.empty((0, raw.shape[1]))
    unit = (ordered - low) / span  # moments in units of the range: no square overflows
    return Scaling(kind, low, high, low + span * unit.mean(axis=0), span * unit.std(axis=0), varies, known)


def _spans(low: FloatArray, high: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Which columns vary, and the range of those that do; 1 for the others."""
    # A range at the level of rounding has no information; dividing by it would turn rounding into scores.
    varies = (high - low > 1e-13 * np.maximum(np.abs(low), np.abs(high))) & (high - low > 1e-250)
    return varies, np.where(varies, high - low, 1.0)


def _learn_in_place(raw: FloatArray, kept: BoolArray, n_threads: int) -> Scaling:
    """``"minmax"`` of the kept rows, without a copy of them; sums of blocks are added in their order."""
    from evenout.core._column_kernels import add_extremes, add_shares, add_squares

    n, shape = int(kept.sum()), (-(-len(raw) // _BLOCK), raw.shape[1])
    lows, highs, shares, squares = np.full(shape, np.inf), np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape)

    def by_block(add: Callable[..., None], *known: FloatArray, into: Sequence[FloatArray]) -> None:
        map_blocks(
            lambda rows: add(raw[rows], kept[rows], *known, *(total[rows.start // _BLOCK] for total in into)),
            len(raw), _BLOCK, n_threads,
        )  # fmt: skip

    by_block(add_extremes, into=(lows, highs))
    low, high = lows.min(axis=0), highs.max(axis=0)
    varies, span = _spans(low, high)
    by_block(add_shares, low, span, into=(shares,))
    mean = shares.sum(axis=0) / n
    by_block(add_squares, low, span, mean, into=(squares,))
    std = np.sqrt(squares.sum(axis=0) / n)
    return Scaling("minmax", low, high, low + span * mean, span * std, varies, np.empty((0, raw.shape[1])))


def unit_range(scores: FloatArray) -> FloatArray:
    """Scale one score vector to [0, 1]; a constant one becomes 0."""
    return learn_scaling("minmax", scores[:, None]).transform(scores[:, None])[:, 0]


Combiner: TypeAlias = Callable[[FloatArray], FloatArray]

COMBINATIONS = ("average", "maximum", "median", "aom", "moa", "greedy")
SILENT = "side"  # a family whose columns are used for learning from labels, but not in the base score
LINEAR = ("average", "greedy")  # combinations that are a mean of chosen detectors
_BUCKETS = 5
_TOP_SHARE = 0.1


@dataclass(frozen=True)
class Combination:
    """A base ensemble of chosen detectors.

    ``kind`` is one of `COMBINATIONS`, or a function of the score matrix; ``buckets`` are the detectors in use, one
    bucket, or several for ``"aom"`` and ``"moa"``; ``shares`` are the weights of the detectors in an ``"average"``,
    None: equal weights.
    """

    kind: Annotated[str | Combiner, COMBINATIONS, {}]
    buckets: tuple[Annotated[IntArray, "*", Within(0)], ...]
    shares: Annotated[FloatArray, "*"] | None = None

    def check(self) -> None:
        """Require a bucket, and a share of each of its detectors."""
        require(self.buckets, "buckets", "is empty")
        require(self.shares is None or len(self.shares) == len(self.buckets[0]), "shares", "has the wrong length")

    def apply(self, S: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Combine scores of shape (m, k) into m numbers."""
        if callable(self.kind):
            return self.kind(S)
        return by_rows(lambda rows: self._combined(rows)[:, None], S, width=1, n_threads=n_threads)[:, 0]

    def _combined(self, S: FloatArray) -> FloatArray:
        buckets = [S.T.take(bucket, axis=0).T for bucket in self.buckets]  # columns are contiguous
        if self.kind == "aom":
            return np.mean([columns.max(axis=1) for columns in buckets], axis=0)
        if self.kind == "moa":
            return np.max([_total(columns) / columns.shape[1] for columns in buckets], axis=0)
        columns = buckets[0]
        if self.kind == "maximum":
            return columns.max(axis=1)
        if self.shares is not None:
            return _total(columns * self.shares)
        return np.median(columns, axis=1) if self.kind == "median" else _total(columns) / columns.shape[1]


def _total(columns: FloatArray) -> FloatArray:
    """Sum the columns (m, c) sequentially: a row has the same sum alone as among others.

    ``sum`` adds contiguous columns sequentially, but not the numbers of a single row.
    """
    return np.cumsum(columns, axis=1)[:, -1] if len(columns) == 1 else np.asfortranarray(columns).sum(axis=1)


def learn_combination(
    kind: str | Combiner,
    S: FloatArray,
    usable: IntArray,
    seed: int,
    families: Sequence[str] = (),
    *,
    n_threads: int = 1,
) -> Combination:
    """Choose the detectors of a base ensemble from scaled training scores S (n, k).

    ``usable`` are the columns that may take part (those that are not constant); ``seed`` is that of the random buckets
    of ``"aom"`` (average of maxima) and ``"moa"`` (maximum of averages). With the family of each column, ``"average"``
    is the mean over families of the mean within a family, so that many columns of one kind do not outvote a few of
    another.
    """
    usable = usable[[families[j] != SILENT for j in usable]] if families else usable
    if len(usable) == 0:
        return Combination(kind, (usable,))
    if kind in ("aom", "moa"):
        shuffled = np.random.default_rng(seed).permutation(usable)
        buckets = np.array_split(shuffled, min(_BUCKETS, len(usable)))
        return Combination(kind, tuple(np.sort(bucket) for bucket in buckets))
    if kind == "greedy":
        known = S if len(usable) == S.shape[1] else S[:, usable]
        return Combination(kind, (usable[select_greedily(known, n_threads=n_threads)],))
    if kind == "average" and families:
        _, family, size = np.unique([families[j] for j in usable], return_inverse=True, return_counts=True)
        return Combination(kind, (usable,), 1.0 / (len(size) * size[family]))
    return Combination(kind, (usable,))


def select_greedily(S: FloatArray, *, n_threads: int = 1) -> IntArray:
    """Greedy model selection (Schubert et al. 2012): a small, diverse set of detectors that agrees with the pool.

    The pool's opinion is the union of every detector's top tenth of the rows. These rows have half of the weight,
    the rest the other half. Start with the detector of highest weighted correlation to that opinion. Then try the
    detector least correlated with the running average, and keep it only if the average then correlates better.

    S is (n, k); returns the chosen columns, ascending.
    """
    n, k = S.shape
    top = max(1, round(_TOP_SHARE * n))
    highest = np.array(map_columns(lambda j: np.partition(S[:, j], n - top)[n - top], range(k), n, n_threads))
    opinion = by_rows(lambda rows: (highest <= rows).any(axis=1)[:, None], S, width=1, n_threads=n_threads)[:, 0]
    if opinion.all():  # heavy ties: the pool has no opinion, so all detectors stay
        return np.arange(k)
    weight = np.where(opinion, 0.5 / opinion.sum(), 0.5 / (n - opinion.sum()))
    covariance = _weighted_covariance(S, opinion, weight, n_threads)

    def correlation(chosen: list[int], other: list[int]) -> float:
        """Weighted Pearson correlation of the averages of two sets of columns."""
        scale = covariance[np.ix_(chosen, chosen)].sum() * covariance[np.ix_(other, other)].sum()
        return float(covariance[np.ix_(chosen, other)].sum() / np.sqrt(scale)) if scale > 0 else -1.0

    chosen = [int(np.argmax([correlation([j], [k]) for j in range(k)]))]
    left = [j for j in range(k) if j != chosen[0]]
    while left:
        candidate = min(left, key=lambda j: correlation([j], chosen))
        left.remove(candidate)
        if correlation([*chosen, candidate], [k]) > correlation(chosen, [k]):
            chosen.append(candidate)
    return np.sort(np.array(chosen, dtype=np.intp))


def _weighted_covariance(S: FloatArray, opinion: FloatArray, weight: FloatArray, n_threads: int) -> FloatArray:
    """Covariance of the columns of S and the opinion, (k + 1, k + 1); the weights sum to 1."""
    if len(S) > FEW:
        rows, one = np.arange(len(S)), np.zeros(len(S), dtype=np.intp)
        sums = sum_products(S, opinion, rows, one, weight, 1, n_threads)[0]
        return sums[1:, 1:] - np.outer(sums[0, 1:], sums[0, 1:])
    with one_blas_thread():
        joint = np.column_stack([S, opinion])
        centred = joint - weight @ joint
        return (centred.T * weight) @ centred
