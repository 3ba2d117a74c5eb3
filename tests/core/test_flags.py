import numpy as np

from evenout.core.flags import flag_rates, flag_threshold, fold_rate_ratios, rate_ratio


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


def test_fold_rate_ratios_score_each_fold_with_its_own_weights():
    rng = np.random.default_rng(0)
    S, V = rng.random((60, 3)), rng.normal(size=(4, 7, 3))
    groups, folds = rng.integers(0, 3, 60), rng.integers(0, 4, 60)
    expected = []
    for m in range(7):
        scores = np.array([S[i] @ V[folds[i], m] for i in range(60)])
        flagged = scores > np.quantile(scores, 0.8)
        rates = [flagged[groups == group].mean() for group in range(3)]
        expected.append(min(rates) / max(rates))
    np.testing.assert_allclose(fold_rate_ratios(S, V, groups, folds, 3, contamination=0.2), expected)
