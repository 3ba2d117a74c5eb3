import numpy as np
import pytest

from evenout.core.flags import flag_rates, flag_threshold, flagged_share, rate_ratio


def test_threshold_flags_the_share_asked_for():
    scores = np.random.default_rng(0).permutation(1000.0 * np.arange(1000))
    assert (scores > flag_threshold(scores, 0.1)).sum() == 100


def test_rates_and_ratio_by_hand():
    scores = np.array([9.0, 8.0, 1.0, 2.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, -1])
    rates = flag_rates(scores, groups, 2, contamination=0.3)
    np.testing.assert_allclose(rates, [2 / 4, 1 / 5])
    assert rate_ratio(rates) == 0.4
    both = flag_rates(np.column_stack([scores, -scores]), groups, 2, contamination=0.3)
    np.testing.assert_allclose(both[:, 0], rates)


def test_nobody_flagged_is_even():
    assert rate_ratio(np.zeros(3)) == 1.0
    np.testing.assert_array_equal(rate_ratio(np.array([[0.0, 0.1], [0.0, 0.0]])), [1.0, 0.0])


def test_score_at_the_threshold_is_not_flagged():
    scores = np.arange(5.0)  # the threshold of the top quarter is 3
    assert flag_rates(scores, np.array([0, 0, 1, 1, 1]), 2, contamination=0.25).tolist() == [0, 1 / 3]


def test_whole_number_counts_rows():
    assert flagged_share(10, 50) == 0.2
    assert flagged_share(0.1, 50) == 0.1
    assert flagged_share(25, 50) == 0.5
    with pytest.raises(ValueError, match="contamination=26 is more than half of the 50 rows"):
        flagged_share(26, 50)
    scores = np.random.default_rng(0).permutation(np.arange(50.0))
    assert (scores > flag_threshold(scores, 7)).sum() == 7
