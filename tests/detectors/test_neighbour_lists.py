"""Lists of locations expanded to rows, against plain loops."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from evenout.detectors.neighbours import ROWS, NeighbourLists

K = 6


def expanded(near, counts, home):
    """Distances and locations of the nearest rows, as many as the lists give, at most K of each."""
    lists = []
    for distances, ids, at in zip(*near, home, strict=True):
        row = [(0.0, at)] * (counts[at] - 1)
        for distance, near in zip(distances, ids, strict=True):
            row += [] if near == at else [(distance, near)] * counts[near]
        lists.append(row[:K])
    return lists


def case(listed, most, seed=0, m=60):
    rng = np.random.default_rng(seed)
    found = (
        np.sort(rng.random((m, listed)), axis=1),
        rng.permuted(np.tile(np.arange(m, dtype=np.int32), (m, 1)), axis=1),
    )
    counts = rng.integers(0, most + 1, m)
    return NeighbourLists((found[0], found[1][:, :listed].copy()), counts, K, np.arange(m, dtype=np.int32))


@pytest.mark.parametrize("most", [1, 2, 9])
@pytest.mark.parametrize("listed", [3, 7, 20])
def test_slots_are_filled_by_copies_and_then_by_the_lists(listed, most):
    slots = case(listed, most)
    expected = expanded(slots.near, slots.counts, slots.home)
    distance, location = slots.of(slice(0, len(slots.home)))
    measured = slots.distances(np.array([6, 1, 3, 1]), n_threads=2)
    for i, row in enumerate(expected):
        assert_array_equal(distance[i, : len(row)], [near for near, _ in row])
        assert_array_equal(location[i], [at for _, at in row] + [-1] * (K - len(row)))
        asked = [row[k - 1][0] if k <= len(row) else np.nan for k in (6, 1, 3, 1)]
        assert_array_equal(measured[i], asked)


def test_short_lists_are_taken_from_others():
    slots, others = case(3, 1), case(20, 1, seed=1)
    short = np.flatnonzero(slots.of(slice(0, 60))[1][:, -1] < 0)
    picked = NeighbourLists((others.near[0][short], others.near[1][short]), others.counts, K, others.home[short])
    both = NeighbourLists(slots.near, slots.counts, K, slots.home, short, picked)
    own, replaced = slots.of(slice(0, 60)), picked.of(slice(0, len(short)))
    for rows in (slice(0, 60), slice(7, 23), slice(50, 60)):
        distance, location = both.of(rows)
        for i in range(rows.start, rows.stop):
            source, at = (replaced, int(np.searchsorted(short, i))) if i in short else (own, i)
            assert_array_equal(distance[i - rows.start], source[0][at])
            assert_array_equal(location[i - rows.start], source[1][at])


def test_threads_share_the_rows():
    slots = case(20, 1, m=60)
    many = NeighbourLists(
        tuple(np.tile(part, (200, 1)) for part in slots.near),
        slots.counts,
        K,
        np.tile(slots.home, 200),
    )
    assert len(many.home) > 2 * ROWS
    assert_array_equal(many.distances(np.array([1, 6]), 3), np.tile(slots.distances(np.array([1, 6]), 1), (200, 1)))
