"""The test of "no gap" against Welch's formula, also where a group or all scores are constant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evenout import metrics


def welch(a, b):
    """Two-sided p-value of equal means: ``t = (mean a - mean b) / se`` with Satterthwaite's degrees of freedom."""
    noise = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    freedom = noise.sum() ** 2 / (noise**2 / [len(a) - 1, len(b) - 1]).sum()
    return 2 * stats.t.sf(abs(a.mean() - b.mean()) / np.sqrt(noise.sum()), freedom)


@given(data=st.data())
def test_two_groups_are_compared_by_welch(data):
    levels = st.lists(st.integers(-3, 3), min_size=2, max_size=9).map(lambda x: np.array(x, dtype=float))
    a = data.draw(levels | st.integers(2, 9).map(np.zeros))
    b = data.draw(levels.filter(lambda x: np.ptp(x) > 0))
    scores, groups = np.r_[a, b], np.repeat(["a", "b"], [len(a), len(b)])
    unit = data.draw(st.sampled_from([1e-250, 1e-5, 1.0, 1e25]))
    assert metrics.no_gap_test(unit * scores, sensitive_features=groups) == pytest.approx(welch(a, b), rel=1e-6)


@given(data=st.data())
def test_a_group_without_spread_is_the_limit_of_groups_with_little(data, tame_tables):
    table = data.draw(tame_tables(max_width=1))
    scores, little = table.values[:, 0].copy(), table.values[:, 0].copy()
    mine = table.groups == 0
    scores[mine] = 1.0
    little[mine] = 1.0 + 1e-7 * (little[mine] - little[mine].mean())
    none, some = (metrics.no_gap_test(y, sensitive_features=table.names) for y in (scores, little))
    assert none == pytest.approx(some, rel=1e-4, abs=1e-12)


@given(data=st.data())
def test_constant_scores_have_no_gap_and_constant_groups_no_doubt(data, wild_tables, numbers):
    table = data.draw(wild_tables(max_width=1))
    number = data.draw(numbers())
    groups = {"sensitive_features": table.names}
    assert metrics.no_gap_test(np.full(len(table), number), **groups) == 1.0
    assert metrics.no_gap_test(np.where(table.groups == 0, 0.1, 0.3), **groups) == 0.0
