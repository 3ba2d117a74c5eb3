from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from evenout.core.ruler import GroupMoments, no_gap_p_value, parity_from_moments, ratio

SIZES = [(30, 12), (25, 14, 9), (20, 15, 8, 5)]


def moments_of(scores, groups):
    """Moments of the columns of ``scores`` in each group."""
    parts = [scores[groups == g] for g in range(groups.max() + 1)]
    return GroupMoments(
        np.array([float(len(part)) for part in parts]),
        np.stack([part.mean(axis=0) for part in parts], axis=1),
        np.stack([part.var(axis=0, ddof=1) for part in parts], axis=1),
        scores.var(axis=0),
    )


@pytest.mark.parametrize("sizes", SIZES)
def test_parity_is_the_mean_over_pairs_of_groups(make, sizes):
    problem = make(sizes, pairs=False)
    moments = moments_of(problem.S, problem.groups)
    parts = [problem.S[problem.groups == g] for g in range(len(sizes))]
    gaps, noise = [], []
    for a, b in combinations(parts, 2):
        gaps.append((a.mean(axis=0) - b.mean(axis=0)) ** 2)
        noise.append(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
    plain, corrected = (parity_from_moments(moments, corrected=corrected) for corrected in (False, True))
    np.testing.assert_allclose(plain, np.mean(gaps, axis=0) / problem.S.var(axis=0), rtol=1e-10)
    expected = (np.mean(gaps, axis=0) - np.mean(noise, axis=0)) / problem.S.var(axis=0)
    np.testing.assert_allclose(corrected, expected, rtol=1e-10)


def welch_anova(n, mean, variance):
    """Welch (1951), as the paper writes it."""
    G, w = len(n), n / variance
    grand = (w @ mean) / w.sum()
    doubt = sum((1 - w[p] / w.sum()) ** 2 / (n[p] - 1) for p in range(G))
    F = (w @ (mean - grand) ** 2) / (G - 1) / (1 + 2 * (G - 2) * doubt / (G**2 - 1))
    return stats.f.sf(F, G - 1, (G**2 - 1) / (3 * doubt))


@pytest.mark.parametrize("sizes", SIZES)
def test_no_gap_test_equals_welch(make, sizes):
    problem = make(sizes, gap=0.3, pairs=False)
    moments = moments_of(problem.S, problem.groups)
    found = no_gap_p_value(moments)
    for j in range(5):
        expected = welch_anova(moments.count, moments.mean[j], moments.variance[j])
        assert found[j] == pytest.approx(expected, rel=1e-8)


def test_no_gap_test_with_two_groups_is_welchs_t_test(make):
    problem = make((30, 12), gap=0.3, pairs=False)
    S, groups = problem.S, problem.groups
    expected = stats.ttest_ind(S[groups == 0], S[groups == 1], equal_var=False).pvalue
    np.testing.assert_allclose(no_gap_p_value(moments_of(S, groups)), expected, rtol=1e-9)


@pytest.mark.parametrize(("means", "p"), [([0.0, 0.0, 0.0], 1.0), ([0.3, 0.3, 0.3], 1.0), ([0.3, 0.3, 0.4], 0.0)])
def test_groups_without_spread_leave_no_doubt(means, p):
    mean = np.array([means])
    moments = GroupMoments(np.array([5.0, 4.0, 3.0]), mean, np.zeros((1, 3)), mean.var(axis=1))
    assert no_gap_p_value(moments).tolist() == [p]


def test_no_gap_test_holds_its_level_with_four_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), (40, 30, 20, 15))
    scores = rng.normal(size=(105, 4000)) * (1.0 + groups[:, None])  # of unequal variance
    assert 0.04 < np.mean(no_gap_p_value(moments_of(scores, groups)) < 0.05) < 0.06


def test_corrected_gap_is_unbiased_in_simulation():
    """The squared gap of two sample means is biased upward; less its sampling noise it is not."""
    rng = np.random.default_rng(3)
    shift, groups = 0.3, np.repeat([0, 1], [20, 12])
    moments = moments_of(rng.normal(size=(32, 6000)) + shift * groups[:, None], groups)
    moments = GroupMoments(moments.count, moments.mean, moments.variance, np.ones(6000))
    plain, corrected = (parity_from_moments(moments, corrected=corrected) for corrected in (False, True))
    error = np.std(corrected) / np.sqrt(len(corrected))
    assert abs(np.mean(corrected) - shift**2) < 3 * error
    assert np.mean(plain) - shift**2 > 10 * error


def test_quotient_by_nothing_is_nan():
    np.testing.assert_array_equal(ratio(np.array([1.0, 0.0, 3.0]), np.array([2.0, 0.0, -1.0])), [0.5, np.nan, np.nan])
