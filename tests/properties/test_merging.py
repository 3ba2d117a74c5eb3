"""Sums and summaries of chunks of rows add up to those of all rows, however the rows are cut."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import rankdata

from evenout.core.base_score import SCALINGS, learn_scaling
from evenout.core.cells import CrossFit
from evenout.core.pairwise import pair_sums
from evenout.core.sketch import FrequentValues, QuantileSketch
from evenout.fitting.passes import RawScores


def cut(draw, values):
    """Chunks of the rows, some of them empty, merged in any order."""
    places = draw(st.lists(st.integers(0, len(values)), max_size=5).map(sorted))
    return draw(st.permutations(np.split(values, places)))


@given(data=st.data())
def test_cells_of_chunks_add_up(data, wild_tables, pose):
    table = data.draw(wild_tables())
    problem = pose(table, data.draw(st.sampled_from(SCALINGS)))
    merged = reduce(add, [problem.cells(rows) for rows in cut(data.draw, np.arange(len(table)))])
    whole = problem.cells()
    for found, expected in ((merged.plain, whole.plain), (merged.weighted, whole.weighted)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(merged.group_counts.sum(axis=0), np.bincount(table.groups))


@given(data=st.data())
def test_sets_without_a_fold_are_those_of_the_other_rows(data, wild_tables, pose):
    problem = pose(data.draw(wild_tables()))
    fold = data.draw(st.integers(0, problem.folds.max()))
    left, others = problem.cross().training, CrossFit.of_folds(problem.cells(problem.folds != fold)).whole
    np.testing.assert_allclose(left.plain[fold], others.plain[0], rtol=1e-15)
    np.testing.assert_allclose(left.weighted[fold], others.weighted[0], rtol=1e-15)


@given(data=st.data())
def test_pair_sums_of_disjoint_pairs_add_up(data, tame_tables, pose):
    """All rows of the first group with each part of the others: the parts have every pair once."""
    table = data.draw(tame_tables())
    problem = pose(table)
    first = table.groups == 0
    folds, groups = np.zeros(len(table), dtype=np.intp), np.where(first, 0, 1)

    def sums(rows):
        return pair_sums(
            table.values[rows], problem.S[rows], groups[rows], folds[rows], n_groups=2, n_folds=1, scale=2.0
        )

    parts = cut(data.draw, np.flatnonzero(~first))
    of_parts = [sums(np.r_[np.flatnonzero(first), part]) for part in parts]
    whole = sums(np.arange(len(table)))
    np.testing.assert_allclose(sum(part.mass for part in of_parts), whole.mass, rtol=1e-5)
    form, error = sum(part.form for part in of_parts), 1e-5 * np.abs(whole.form).max()
    np.testing.assert_allclose(form, whole.form, rtol=1e-5, atol=error)


@given(data=st.data())
def test_sketches_without_a_limit_are_exact(data, numbers):
    values = data.draw(arrays(float, st.integers(1, 60), elements=numbers()))
    sketch = reduce(add, [QuantileSketch.of(part, None) for part in cut(data.draw, values)])
    np.testing.assert_array_equal(sketch.ranks(values), rankdata(values))
    share = data.draw(st.floats(0.0, 1.0))
    assert sketch.quantile(share) == pytest.approx(np.quantile(values, share), rel=1e-12, abs=1e-12)


@given(data=st.data())
def test_sketches_keep_count_and_stated_error(data, numbers):
    values = data.draw(arrays(float, st.integers(1, 200), elements=numbers()))
    capacity = data.draw(st.integers(2, 16))
    sketch = reduce(add, [QuantileSketch.of(part, capacity) for part in cut(data.draw, values)])
    assert sketch.count == len(values)
    assert max(map(len, sketch.levels)) <= capacity
    off = np.abs(sketch.ranks(values) - rankdata(values)).max()
    assert off <= sketch.rank_error * len(values) * (1 + 1e-12)


@given(data=st.data())
def test_frequent_values_miss_no_more_than_they_say(data):
    values = data.draw(arrays(np.uint64, st.integers(1, 80), elements=st.integers(0, 12)))
    capacity = data.draw(st.integers(1, 8))
    found = reduce(add, [FrequentValues.of(part, capacity) for part in cut(data.draw, values)])
    assert len(found.values) <= capacity
    assert found.missed <= len(values) / (capacity + 1)
    counters = dict(zip(found.values.tolist(), found.counts.tolist(), strict=True))
    for value, count in zip(*np.unique(values, return_counts=True), strict=True):
        assert count - found.missed <= counters.get(int(value), 0) <= count


@given(data=st.data())
def test_extremes_of_chunks_give_the_scaling_of_all_rows(data, wild_tables):
    raw = data.draw(wild_tables()).values
    parts = [part for part in cut(data.draw, raw) if len(part)]
    merged = reduce(add, [RawScores({}, part.min(axis=0)[None], part.max(axis=0)[None]) for part in parts])
    whole, found = learn_scaling("minmax", raw), learn_scaling("minmax", merged.extremes(-1))
    np.testing.assert_array_equal(found.varies, whole.varies)
    np.testing.assert_array_equal(found.transform(raw), whole.transform(raw))
