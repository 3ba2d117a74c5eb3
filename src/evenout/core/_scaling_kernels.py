"""Compiled sums of score columns: what numpy's sums along the rows of a table give, bit for bit, without copies."""

from evenout.core.compiled import compiled
from evenout.core.types import BoolArray, FloatArray


@compiled()
def add_extremes(raw: FloatArray, kept: BoolArray, low: FloatArray, high: FloatArray) -> None:
    """Lower ``low`` and raise ``high`` to the extremes of the rows that are kept."""
    for i in range(len(raw)):
        if kept[i]:
            for j in range(len(low)):
                low[j] = min(low[j], raw[i, j])
                high[j] = max(high[j], raw[i, j])


@compiled()
def add_shares(raw: FloatArray, kept: BoolArray, low: FloatArray, span: FloatArray, total: FloatArray) -> None:
    """Add ``(raw - low) / span`` of the rows that are kept, one after the other."""
    for i in range(len(raw)):
        if kept[i]:
            for j in range(len(low)):
                total[j] += (raw[i, j] - low[j]) / span[j]


@compiled()
def add_squares(
    raw: FloatArray, kept: BoolArray, low: FloatArray, span: FloatArray, mean: FloatArray, total: FloatArray
) -> None:
    """Add ``((raw - low) / span - mean)^2`` of the rows that are kept, one after the other."""
    for i in range(len(raw)):
        if kept[i]:
            for j in range(len(low)):
                share = (raw[i, j] - low[j]) / span[j] - mean[j]
                total[j] += share * share
