"""Small cells are guarded: ranges in place of counts, wide bins in place of narrow ones."""

from typing import TypeAlias

import numpy as np

from evenout.core.types import FloatArray, IntArray

SMALLEST_CELL = 10
Range: TypeAlias = tuple[float, float]  # the lowest and the highest value that a page gives away


def guard_counts(counts: IntArray, rest: IntArray, smallest: int) -> tuple[IntArray, IntArray]:
    """The lowest and the highest count of each cell that a page with known total may give away.

    A cell is small if fewer than ``smallest`` people are inside, or outside of it in the same group. It becomes
    the range that "fewer than" allows. Because the total is known, one hidden cell could be had by
    subtraction: so the largest other cell becomes the range that follows from the hidden ones. Where it has no
    room for that, no cell is shown.

    Parameters
    ----------
    counts : array of shape (G,)
        People in each cell.
    rest : array of shape (G,)
        The other people of the same group; large numbers if these need no care.
    smallest : int

    Returns
    -------
    low, high : arrays of shape (G,)

    >>> low, high = guard_counts(np.array([4, 30, 66]), np.array([46, 270, 584]), smallest=10)
    >>> low.tolist(), high.tolist()
    ([0, 30, 61], [9, 30, 70])
    """
    few, most = counts < smallest, rest < smallest
    small = few | most
    if not small.any():
        return counts, counts
    # A group that is small as a whole must not give its size away.
    size = np.maximum(counts + rest, smallest - 1)
    low = np.where(few, 0, np.where(most, size - smallest + 1, counts))
    high = np.where(most, size, np.where(few, smallest - 1, counts))
    partner = int(np.where(small, -1, counts).argmax())
    low[partner] = counts[partner] - (high - counts)[small].sum()
    high[partner] = counts[partner] + (counts - low)[small].sum()
    if small[partner] or low[partner] < smallest or size[partner] - high[partner] < smallest:
        return np.zeros_like(counts), size
    return low, high


def pool_bins(counts: IntArray, smallest: int) -> FloatArray:
    """A histogram, shape (B,), in which bins of 1 to ``smallest - 1`` people share evenly with their neighbours.

    From the fullest bin outwards, bins are pooled until they hold enough; what is left beyond the last pool is counted
    in that pool. The sum stays the same, and empty bins may stay empty.

    >>> pool_bins(np.array([0, 3, 20, 12, 4, 6, 1]), smallest=10).tolist()
    [0.0, 0.0, 23.0, 12.0, 5.5, 5.5, 0.0]
    """
    top = int(counts.argmax())
    if counts[top] < smallest:
        ends = np.flatnonzero(counts)[[0, -1]]
        even = np.zeros(len(counts))
        even[ends[0] : ends[1] + 1] = counts.sum() / (ends[1] + 1 - ends[0])
        return even
    left, missing = _pool_outwards(counts[:top][::-1], smallest)
    right, _ = _pool_outwards(counts[top:], smallest)
    right[0] += missing
    return np.concatenate([left[::-1], right])


def _pool_outwards(counts: IntArray, smallest: int) -> tuple[FloatArray, float]:
    """Pooled counts, and the people that found no pool."""
    pooled = np.zeros(len(counts))
    start, held, last = 0, 0, slice(0, 0)
    for place, count in enumerate(counts.tolist()):
        held += count
        if held >= smallest:
            last = slice(start, place + 1)
            pooled[last] = held / (place + 1 - start)
        if held >= smallest or held == 0:
            start, held = place + 1, 0
    if last.stop == 0:
        return pooled, float(held)
    pooled[last] += held / (last.stop - last.start)
    return pooled, 0.0
