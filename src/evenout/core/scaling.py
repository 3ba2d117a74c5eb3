"""Score scalings, learnt on the training rows: raw detector scores in, comparable columns out.

A column that is constant on the training rows says nothing and becomes 0 everywhere. New rows may leave the training
range. They are not clipped, because that would tie the most outlying of them.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from evenout.core.order import counts_around
from evenout.core.types import BoolArray, FloatArray

SCALINGS = ("minmax", "rank", "zscore", "gaussian")
_ROWS = 16384  # ranked at a time


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

    def transform(self, raw: FloatArray) -> FloatArray:
        """Scale raw scores of shape (m, k)."""
        low = np.where(self.varies, self.low, 0.0)
        if self.kind == "minmax":
            scaled = (raw - low) / np.where(self.varies, self.high - self.low, 1.0)
        elif self.kind == "rank":
            parts = [self._ranks(raw[at : at + _ROWS]) for at in range(0, len(raw), _ROWS)]
            scaled = np.concatenate(parts) if parts else np.empty(raw.shape)
        else:
            scaled = (raw - self.mean) / np.where(self.varies, self.std, 1.0)
            if self.kind == "gaussian":
                scaled = np.maximum(erf(scaled / np.sqrt(2.0)), 0.0)
        return np.where(self.varies, scaled, 0.0)

    def _ranks(self, raw: FloatArray) -> FloatArray:
        """Share of training rows below, ties half; outside the training range by the distance to it, in ranges."""
        below, upto = counts_around(self.sorted_scores, raw)
        span = np.where(self.varies, self.high - self.low, 1.0)
        outside = np.maximum(raw - self.high, 0.0) - np.maximum(self.low - raw, 0.0)
        return (below + upto) / (2.0 * len(self.sorted_scores)) + outside / span


def learn_scaling(kind: str, raw: FloatArray) -> Scaling:
    """Learn a scaling from raw training scores of shape (n, k).

    >>> learn_scaling("minmax", np.array([[1.0], [3.0]])).transform(np.array([[2.0], [5.0]])).ravel().tolist()
    [0.5, 2.0]
    """
    low, high = raw.min(axis=0), raw.max(axis=0)
    # A range at the level of rounding is no information; dividing by it would turn rounding into scores.
    varies = (high - low > 1e-13 * np.maximum(np.abs(low), np.abs(high))) & (high - low > 1e-250)
    # Sums of sorted scores are the same, bit for bit, in any order of the rows.
    ordered = raw if kind == "minmax" else np.sort(raw, axis=0)
    known = ordered if kind == "rank" else np.empty((0, raw.shape[1]))
    span = np.where(varies, high - low, 1.0)
    unit = (ordered - low) / span  # moments in units of the range: no square leaves the floating-point range
    return Scaling(kind, low, high, low + span * unit.mean(axis=0), span * unit.std(axis=0), varies, known)


def unit_range(scores: FloatArray) -> FloatArray:
    """One score vector scaled to [0, 1]; a constant one becomes 0."""
    return learn_scaling("minmax", scores[:, None]).transform(scores[:, None])[:, 0]
