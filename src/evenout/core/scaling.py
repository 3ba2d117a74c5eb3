"""Score scalings, learnt on the training rows: raw detector scores in, comparable columns out.

A column that is constant on the training rows says nothing and becomes 0 everywhere. New rows may leave the training
range. They are not clipped, because that would tie the most outlying of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from evenout.core.compiled import map_blocks
from evenout.core.order import counts_around
from evenout.core.rows import by_rows, sorted_columns
from evenout.core.types import BoolArray, FloatArray

SCALINGS = ("minmax", "rank", "zscore", "gaussian")
_FEW = 1000  # rows that are not worth a compiled pass
_BLOCK = 32768  # rows that are summed up one after the other


@dataclass(frozen=True)
class Scaling:
    """A learnt scaling of k score columns.

    Parameters
    ----------
    kind : str
        ``"minmax"``: to [0, 1]. ``"rank"``: the share of training rows below, ties counted half. ``"zscore"``: mean 0
        and standard deviation 1. ``"gaussian"``: ``max(0, erf((s - mean) / (std sqrt 2)))`` (Kriegel et al. 2011).
    low, high, mean, std : arrays of shape (k,)
        Of the training rows.
    varies : array of shape (k,)
        False for constant columns.
    sorted_scores : array of shape (n, k) or (0, k)
        The training scores, sorted by column, where ranks need them.
    """

    kind: str
    low: FloatArray
    high: FloatArray
    mean: FloatArray
    std: FloatArray
    varies: BoolArray
    sorted_scores: FloatArray

    def transform(self, raw: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Scale raw scores of shape (m, k)."""
        return by_rows(self._scaled, raw, n_threads=n_threads)

    def _scaled(self, raw: FloatArray) -> FloatArray:
        if self.kind == "rank":
            scaled = self._ranks(raw)
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

    def _ranks(self, raw: FloatArray) -> FloatArray:
        """Share of training rows below, ties half; outside the training range by the distance to it, in ranges."""
        below, upto = counts_around(self.sorted_scores, raw)
        span = np.where(self.varies, self.high - self.low, 1.0)
        outside = np.maximum(raw - self.high, 0.0) - np.maximum(self.low - raw, 0.0)
        return (below + upto) / (2.0 * len(self.sorted_scores)) + outside / span


def learn_scaling(kind: str, raw: FloatArray, *, outside: BoolArray | None = None, n_threads: int = 1) -> Scaling:
    """Learn a scaling from raw training scores of shape (n, k), of the rows that ``outside`` marks, if it is given.

    >>> learn_scaling("minmax", np.array([[1.0], [3.0]])).transform(np.array([[2.0], [5.0]])).ravel().tolist()
    [0.5, 2.0]
    """
    by_row = raw.shape[1] > 1 and raw.strides[1] == raw.itemsize  # else numpy adds in another order
    if kind == "minmax" and by_row and len(raw) > _FEW:
        return _learn_in_place(raw, np.ones(len(raw), dtype=bool) if outside is None else outside, n_threads)
    raw = raw if outside is None else raw[outside]
    low, high = raw.min(axis=0), raw.max(axis=0)
    varies, span = _spans(low, high)
    # Sums of sorted scores are the same, bit for bit, in any order of the rows.
    ordered = raw if kind == "minmax" else sorted_columns(raw, n_threads)
    known = ordered if kind == "rank" else np.empty((0, raw.shape[1]))
    unit = (ordered - low) / span  # moments in units of the range: no square leaves the floating-point range
    return Scaling(kind, low, high, low + span * unit.mean(axis=0), span * unit.std(axis=0), varies, known)


def _spans(low: FloatArray, high: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Which columns vary, and the range of those that do; 1 for the others."""
    # A range at the level of rounding is no information; dividing by it would turn rounding into scores.
    varies = (high - low > 1e-13 * np.maximum(np.abs(low), np.abs(high))) & (high - low > 1e-250)
    return varies, np.where(varies, high - low, 1.0)


def _learn_in_place(raw: FloatArray, kept: BoolArray, n_threads: int) -> Scaling:
    """``"minmax"`` of the rows that are kept, without a copy of them; sums of blocks are added in their order."""
    from evenout.core._scaling_kernels import add_extremes, add_shares, add_squares

    n, shape = int(kept.sum()), (-(-len(raw) // _BLOCK), raw.shape[1])
    lows, highs, shares, squares = np.full(shape, np.inf), np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape)

    def by_block(add: Callable[..., None], *known: FloatArray, into: Sequence[FloatArray]) -> None:
        def work(rows: slice) -> None:
            add(raw[rows], kept[rows], *known, *(total[rows.start // _BLOCK] for total in into))

        map_blocks(work, len(raw), _BLOCK, n_threads)

    by_block(add_extremes, into=(lows, highs))
    low, high = lows.min(axis=0), highs.max(axis=0)
    varies, span = _spans(low, high)
    by_block(add_shares, low, span, into=(shares,))
    mean = shares.sum(axis=0) / n
    by_block(add_squares, low, span, mean, into=(squares,))
    std = np.sqrt(squares.sum(axis=0) / n)
    return Scaling("minmax", low, high, low + span * mean, span * std, varies, np.empty((0, raw.shape[1])))


def unit_range(scores: FloatArray) -> FloatArray:
    """One score vector scaled to [0, 1]; a constant one becomes 0."""
    return learn_scaling("minmax", scores[:, None]).transform(scores[:, None])[:, 0]
