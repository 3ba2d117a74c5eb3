import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from evenout import metrics

GROUPS = np.array(["a", "a", "a", "b", "b", "c", "c", "c", "c"])
SCORES = np.array([0.1, 0.3, 0.2, 0.9, 0.7, 0.4, 0.4, 0.6, 0.2])


def test_misfit_by_hand():
    assert metrics.misfit([1.0, 0.0], [0.0, 1.0]) == pytest.approx(np.exp(0.5) + np.exp(1.0))
    assert metrics.misfit([1.0, 0.0], [0.0, 1.0], weighting="uniform") == 2.0


def test_demographic_parity_by_hand():
    a, b, c = 0.2, 0.8, 0.4
    expected = ((a - b) ** 2 + (a - c) ** 2 + (b - c) ** 2) / 3
    assert metrics.demographic_parity(SCORES, sensitive_features=GROUPS) == pytest.approx(expected)
    free = metrics.demographic_parity(SCORES, sensitive_features=GROUPS, scale_free=True)
    assert free == pytest.approx(expected / SCORES.var())
    assert metrics.demographic_parity(7 * SCORES - 3, sensitive_features=GROUPS, scale_free=True) == pytest.approx(free)


def test_correction_subtracts_the_sampling_noise():
    parts = [SCORES[g == GROUPS] for g in "abc"]
    noise = sum(part.var(ddof=1) / len(part) for part in parts) * 2 / 3  # each group is in two of the three pairs
    plain = metrics.demographic_parity(SCORES, sensitive_features=GROUPS)
    assert metrics.demographic_parity(SCORES, sensitive_features=GROUPS, corrected=True) == pytest.approx(plain - noise)


def test_no_gap_test_is_welch_for_two_groups():
    groups = np.where(GROUPS == "a", "a", "b")
    expected = stats.ttest_ind(SCORES[groups == "a"], SCORES[groups == "b"], equal_var=False).pvalue
    assert metrics.no_gap_test(SCORES, sensitive_features=groups) == pytest.approx(expected)


def test_individual_unfairness_by_hand():
    X, y = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([0.0, 0.5, 1.0, 0.25])
    groups = ["p", "p", "q", "q"]  # distances 3 4 2 3, scaled .5 1 0 .5
    M = np.exp(-np.array([0.5, 1.0, 0.0, 0.5]))
    squared = np.array([1.0, 0.0625, 0.25, 0.0625])
    published = {"sensitive_features": groups, "length_scale": "minmax"}
    raw = metrics.individual_unfairness(y, X, **published)
    assert raw == pytest.approx((M * squared).sum() / 4, rel=1e-6)
    free = metrics.individual_unfairness(y, X, **published, scale_free=True)
    assert free == pytest.approx((M * squared).sum() / M.sum() / y.var(), rel=1e-6)
    moved = metrics.individual_unfairness(5 * y + 1, X, **published, scale_free=True)
    assert moved == pytest.approx(free, rel=1e-6)


def test_flag_rates_and_ratio():
    rates = metrics.flag_rates(SCORES, sensitive_features=pd.Series(GROUPS), contamination=0.3)
    assert rates == {"a": 0.0, "b": 1.0, "c": 0.25}
    assert metrics.flag_rate_ratio(SCORES, sensitive_features=GROUPS, contamination=0.3) == 0.0
    assert metrics.unflagged_rate_ratio(SCORES, sensitive_features=GROUPS, contamination=0.3) == 0.0
    half = {"sensitive_features": ["a", "b"] * 10, "contamination": 0.25}  # 2 of 10 and 3 of 10 are flagged
    assert metrics.flag_rate_ratio(np.arange(20.0), **half) == pytest.approx(0.2 / 0.3)
    assert metrics.unflagged_rate_ratio(np.arange(20.0), **half) == pytest.approx(0.7 / 0.8)


def test_a_whole_contamination_is_a_count_of_rows():
    scores, groups = np.arange(40.0), ["a", "b"] * 20
    assert metrics.flag_rates(scores, sensitive_features=groups, contamination=1) == {"a": 0.0, "b": 0.05}
    assert metrics.flag_rates(scores, sensitive_features=groups, contamination=10) == {"a": 0.25, "b": 0.25}
    with pytest.raises(ValueError, match="contamination=21 is more than half of the 40 rows"):
        metrics.flag_rates(scores, sensitive_features=groups, contamination=21)
    with pytest.raises(ValueError, match=r"contamination=1.5 is not allowed; use a share .* or a count of rows"):
        metrics.flag_rate_ratio(scores, sensitive_features=groups, contamination=1.5)


def test_cost_of_fairness_by_hand():
    assert metrics.cost_of_fairness(0.04, 0.01, 0.9, 0.8) == pytest.approx(0.3)
    assert metrics.cost_of_fairness(0.04, 0.01, 0.8, 0.9) == pytest.approx(-0.3)
    assert np.isnan(metrics.cost_of_fairness(0.04, 0.04, 0.9, 0.9))


def test_roc_auc_counts_ordered_pairs():
    assert metrics.roc_auc([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]) == pytest.approx(3 / 4)
    assert metrics.roc_auc([0, 1, 0, 1], [[1, 2], [1, 1], [1, 2], [1, 1]]).tolist() == [0.5, 0.0]
    assert np.isnan(metrics.roc_auc([1, 1], [0.1, 0.2]))


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=40))
def test_roc_auc_is_that_of_scikit_learn_also_with_ties(rows):
    y, scores = zip(*rows, strict=True)
    if len(set(y)) == 2:
        assert metrics.roc_auc(y, scores) == pytest.approx(roc_auc_score(y, scores))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.misfit([1.0], [1.0, 2.0]), "scores has 1 rows, but target has 2"),
        (lambda: metrics.misfit([1.0], [1.0], weighting="x"), "weighting='x' is unknown"),
        (lambda: metrics.demographic_parity([[1.0, 2.0]], sensitive_features=["a"]), "one number per row"),
        (
            lambda: metrics.demographic_parity([1.0, np.nan], sensitive_features=["a", "b"]),
            "scores has missing or infinite values in 1 of",
        ),
        (
            lambda: metrics.individual_unfairness(SCORES, [[1.0]], sensitive_features=GROUPS),
            "X has 1 rows, but scores has 9",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_constant_score_has_no_scale_free_bias():
    assert np.isnan(metrics.demographic_parity(np.ones(9), sensitive_features=GROUPS, scale_free=True))
    assert metrics.demographic_parity(np.ones(9), sensitive_features=GROUPS) == 0.0
