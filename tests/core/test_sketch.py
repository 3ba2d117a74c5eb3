from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata

from evenout.core.sketch import CAPACITY, FrequentValues, Narrowed, QuantileSketch


def _values(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "normal": lambda: rng.normal(size=n),
        "sorted": lambda: np.arange(n, dtype=float),
        "falling": lambda: -np.arange(n, dtype=float),
        "heavy": lambda: rng.pareto(0.5, size=n),
        "ties": lambda: rng.integers(0, 7, size=n).astype(float),
        "constant": lambda: np.full(n, 0.25),
    }[kind]()


def _merged(parts, capacity, shape):
    sketches = [QuantileSketch.of(part, capacity) for part in parts]
    if shape == "chain":
        return sum(sketches[1:], sketches[0])
    while len(sketches) > 1:
        sketches = [sum(sketches[i + 1 : i + 2], sketches[i]) for i in range(0, len(sketches), 2)]
    return sketches[0]


def test_ranks_are_exact_without_a_capacity():
    values = np.random.default_rng(0).integers(0, 50, size=400) / 7.0
    sketch = _merged(np.array_split(values, 9), None, "tree")
    np.testing.assert_array_equal(sketch.ranks(values), rankdata(values))
    assert sketch.rank_error == 0
    distinct = _values("normal", 400)
    for sample in (values, distinct):
        sketch = QuantileSketch.of(sample, None)
        for share in (0.0, 0.123, 0.5, 0.9, 1.0):
            assert sketch.quantile(share) == pytest.approx(np.quantile(sample, share), rel=1e-14)


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("kind", ["normal", "sorted", "falling", "heavy", "ties", "constant"])
def test_true_error_stays_within_the_stated_one(kind, shape):
    values = _values(kind, 30_011)
    sketch = _merged(np.array_split(values, 37), 256, shape)
    worst = np.abs(sketch.ranks(values) - rankdata(values)).max() / len(values)
    levels = len(sketch.levels)
    assert 0 < sketch.rank_error <= levels / (2 * 256) + 2.0**levels / len(values)
    assert worst <= sketch.rank_error
    assert sketch.count == len(values)


def test_unequal_chunks_and_empty_ones_keep_count_and_bound():
    values = _values("normal", 20_000)
    cuts = np.sort(np.random.default_rng(1).integers(0, 20_000, size=60))
    parts = [*np.split(values, cuts), np.empty(0), values[:0]]
    sketch = _merged(parts, 128, "tree")
    assert sketch.count == 20_000
    assert np.abs(sketch.ranks(values) - rankdata(values)).max() <= sketch.rank_error * 20_000


def test_default_error_is_below_one_in_a_thousand():
    values = _values("heavy", 1_500_000)
    sketch = _merged(np.array_split(values, 40), CAPACITY, "tree")
    assert sketch.rank_error < 1e-3
    assert np.abs(sketch.ranks(values) - rankdata(values)).max() / len(values) <= sketch.rank_error
    assert abs((values <= sketch.quantile(0.9)).mean() - 0.9) <= sketch.rank_error + 1e-6
    # The bound of the docstring at 10^12 values, where the levels are 27.
    assert (np.ceil(np.log2(1e12 / CAPACITY)) + 1) / (2 * CAPACITY) < 1e-3
    assert sum(map(len, sketch.levels)) <= CAPACITY * len(sketch.levels)


def test_mapped_sketch_ranks_the_mapped_values():
    values = _values("normal", 5_000)
    sketch = QuantileSketch.of(values, 100)
    mapped = replace(sketch, levels=tuple(3.0 * level - 1.0 for level in sketch.levels))
    np.testing.assert_array_equal(mapped.ranks(3.0 * values - 1.0), sketch.ranks(values))


@pytest.mark.parametrize("pieces", [1, 5, 40])
def test_frequent_values_are_never_missed(pieces):
    rng = np.random.default_rng(0)
    values = rng.permutation(np.r_[np.repeat([3, 5, 8], [900, 400, 90]), np.arange(100, 5_100)]).astype(np.uint64)
    parts = [FrequentValues.of(part, 50) for part in np.array_split(values, pieces)]
    found = sum(parts[1:], parts[0])
    assert len(found.values) <= 50
    assert found.missed <= len(values) / 51
    truth = dict(zip(*np.unique(values, return_counts=True), strict=True))
    for value, count in zip(found.values, found.counts, strict=True):
        assert truth[value] - found.missed <= count <= truth[value]
    assert {3, 5} <= set(found.values[found.counts + found.missed >= 400].tolist())


def test_nothing_is_lost_up_to_the_capacity():
    values = _values("normal", 64)
    sketch = QuantileSketch.of(values[:40], 64) + QuantileSketch.of(values[40:], 64)
    assert sketch.rank_error == 0
    np.testing.assert_array_equal(sketch.ranks(values), rankdata(values))
    assert QuantileSketch.of(_values("normal", 65), 64).rank_error > 0
    found = FrequentValues.of(np.array([4, 4, 4, 9, 9], dtype=np.uint64), capacity=2)
    assert (found.values.tolist(), found.counts.tolist(), found.missed) == ([4, 9], [3, 2], 0)


def test_compaction_keeps_every_second_value_by_hand():
    sketch = QuantileSketch.of(np.array([5.0, 1.0, 4.0, 2.0, 3.0]), 4)
    assert [level.tolist() for level in sketch.levels] == [[5.0], [1.0, 3.0]]
    assert (sketch.above, sketch.below) == (1, 0)  # two values up to 1, where there is one
    twice = sketch + QuantileSketch.of(np.array([6.0, 7.0, 8.0, 9.0]), 4)  # the other places this time
    assert [level.tolist() for level in twice.levels] == [[9.0], [1.0, 3.0, 6.0, 8.0]]
    assert (twice.above, twice.below) == (1, 1)


def test_counters_lose_the_largest_count_that_does_not_fit():
    values, counts = (
        np.arange(3000, dtype=np.uint64),
        np.random.default_rng(0).permutation(np.arange(1, 3001)),
    )
    nothing = FrequentValues.of(values[:0], capacity=40)
    found = FrequentValues(values, counts, capacity=40) + nothing
    assert found.missed == 2960  # the 41st largest
    np.testing.assert_array_equal(found.values, np.flatnonzero(counts > 2960))
    np.testing.assert_array_equal(found.counts, counts[counts > 2960] - 2960)


KINDS = ["normal", "sorted", "falling", "heavy", "ties", "constant"]


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_look_between_bounds_finds_quantiles_exactly(kind, shape):
    values = _values(kind, 30_011)
    parts = np.array_split(values, 23)
    sketch = _merged(parts, 256, shape)
    assert sketch.rank_error > 0
    ordered = np.sort(values)
    for share in (0.0, 0.01, 0.25, 0.5, 0.75, 1.0):
        low, high = sketch.bounds(share)
        place = share * (len(values) - 1)
        assert low <= ordered[int(np.floor(place))]
        assert ordered[int(np.ceil(place))] <= high
        looks = [Narrowed.of(part, (low, high), None) for part in parts]
        found = sum(looks[1:], looks[0])
        assert found.quantile(share) == QuantileSketch.of(values, None).quantile(share)
        assert found.quantile(share) == pytest.approx(np.quantile(values, share), rel=1e-13, abs=1e-300)
        assert found.between.count <= 5 * sketch.rank_error * len(values) + 2 ** len(sketch.levels)
        assert found.between.rank_error == 0.0


def test_a_second_look_that_is_sketched_too_states_its_error():
    values = _values("normal", 60_000)
    parts, ordered = np.array_split(values, 11), np.sort(values)
    bounds = _merged(parts, 64, "tree").bounds(0.5)
    looks = [Narrowed.of(part, bounds, 64) for part in parts]
    found = sum(looks[1:], looks[0])
    rank = np.searchsorted(ordered, found.quantile(0.5)) / len(values)
    error = found.between.rank_error * found.between.count / found.count
    assert 0 < error < 0.02
    assert abs(rank - 0.5) <= error + 1 / len(values)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.93, 1.0])
def test_no_value_of_the_sketch_is_a_closer_bound(share):
    """What lies below the upper one, and above the lower one, does not reach the quantile, whatever counts are off."""
    sketch = QuantileSketch.of(np.random.default_rng(0).normal(size=5000), 64)
    values = np.concatenate(sketch.levels)
    weights = np.concatenate([np.full(len(level), 2**i) for i, level in enumerate(sketch.levels)])
    place, (low, high) = share * (sketch.count - 1), sketch.bounds(share)
    if np.isfinite(high):
        assert weights[values < high].sum() < np.ceil(place) + 1 + sketch.above <= weights[values <= high].sum()
    if np.isfinite(low):
        assert weights[values <= low].sum() > np.floor(place) - sketch.below >= weights[values < low].sum()
    assert np.isfinite(high if share < 0.5 else low)


def test_the_outermost_values_of_a_sketch_are_bounds_too():
    sketch = QuantileSketch.of(np.random.default_rng(0).normal(size=5000), 64)
    values = np.concatenate(sketch.levels)
    low, high = np.array([sketch.bounds(share) for share in np.linspace(0.0, 1.0, 5000)]).T
    assert low[np.isfinite(low)].min() == values.min()
    assert high[np.isfinite(high)].max() == values.max()


def test_exact_sketches_have_no_room_between_bounds():
    sketch = QuantileSketch.of(np.array([3.0, 1.0, 2.0, 4.0]), None)
    assert sketch.bounds(0.5) == (2.0, 3.0)
    assert sketch.bounds(1.0) == (4.0, 4.0)


def test_share_from_counts_values_and_ties():
    values = _values("ties", 5000)
    sketch = _merged(np.array_split(values, 7), None, "tree")
    for x in (-1.0, 0.0, 2.5, 3.0, 6.0, 7.0):
        assert sketch.share_from(x) == pytest.approx((values >= x).mean(), abs=1e-15)
