"""A repaired score keeps the order within each group, and stays finite."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenout import Groups
from evenout.exceptions import NoGapWarning, TargetNotReachedWarning
from evenout.repair import ScoreRepair

REQUESTS = st.sampled_from([{}, {"strength": 0.0}, {"strength": 0.3}, {"bias_reduction": 0.7}])


def repaired(table, request):
    with warnings.catch_warnings():
        for category in (NoGapWarning, TargetNotReachedWarning):
            warnings.simplefilter("ignore", category)
        return ScoreRepair(groups=Groups(min_size=2), **request).fit(table.values[:, 0], sensitive_features=table.names)


@given(data=st.data())
def test_order_within_groups_is_kept(data, tame_tables, wild_tables, numbers):
    table = data.draw(tame_tables(max_width=1) | wild_tables(max_width=1, most=15))
    repair = repaired(table, data.draw(REQUESTS))
    new = np.array(data.draw(st.lists(numbers(), min_size=len(table), max_size=len(table))))
    for scores in (table.values[:, 0], new):
        moved = repair.transform(scores, sensitive_features=table.names)
        assert np.isfinite(moved).all()
        rounding = 1e-13 * max(np.abs(scores).max(), np.abs(table.values).max())
        for group in range(table.groups.max() + 1):
            mine = table.groups == group
            order = np.argsort(scores[mine], kind="stable")
            before, after = np.diff(scores[mine][order]), np.diff(moved[mine][order])
            assert (after >= -rounding).all()
            assert (after[before == 0] == 0).all()


@given(data=st.data())
def test_strength_lies_in_its_range_and_the_reduction_is_known(data, tame_tables, wild_tables):
    table = data.draw(tame_tables(max_width=1) | wild_tables(max_width=1, most=15))
    repair = repaired(table, data.draw(REQUESTS))
    assert 0.0 <= repair.strength_ <= 1.0
    moved = repair.transform(table.values[:, 0], sensitive_features=table.names)
    level = np.ptp(moved) <= 1e-12 * np.abs(table.values).max()
    assert np.isfinite(repair.bias_reduction_) or not repair.gap_detected_ or level


def test_groups_without_spread_cannot_be_evened_out_by_half():
    """Any strength below 1 only shrinks the score, and strength 1 makes it constant: no reduction is reached."""
    repair = ScoreRepair(groups=Groups(min_size=2), bias_reduction=0.5)
    with pytest.warns(TargetNotReachedWarning, match="the most is"):
        repair.fit([1.0, 1.0, 0.0, 0.0, 1.0], sensitive_features=["a", "a", "b", "b", "a"])
    assert repair.strength_ < 1.0
    assert abs(repair.bias_reduction_) < 1e-9


@given(data=st.data())
def test_scale_and_row_order_of_the_score_do_not_matter(data, tame_tables):
    table = data.draw(tame_tables(max_width=1))
    request = data.draw(REQUESTS)
    order = np.array(data.draw(st.permutations(range(len(table)))))
    unit = 2.0 ** data.draw(st.integers(-990, 90))
    one = repaired(table, request)
    two = repaired(table[order].of(unit * table.values[order]), request)
    assert abs(two.strength_ - one.strength_) < 1e-9
    moved = one.transform(table.values[:, 0], sensitive_features=table.names)
    again = two.transform(unit * table.values[order, 0], sensitive_features=table.names[order])
    np.testing.assert_allclose(again / unit, moved[order], rtol=1e-9)
