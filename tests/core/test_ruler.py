"""The ruler against literal loops, known special cases and populations."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from tests.conftest import probable

from evenout.core.membership import Comparison, Membership
from evenout.core.ruler import (
    Means,
    Sample,
    bounded_gap,
    bounded_ratio,
    estimate_ratio,
    lowest_over_highest,
    mean_bounds,
)


def slow_covariance(phi, z, weight, clusters):
    W = (weight[:, None] * phi).sum(axis=0)
    mean = (weight[:, None] * phi * z[:, None]).sum(axis=0) / W
    G, names = phi.shape[1], np.unique(clusters)
    psi, share = np.zeros((len(names), G)), np.zeros((len(names), G))
    for i in range(len(z)):
        c = int(np.searchsorted(names, clusters[i]))
        for g in range(G):
            psi[c, g] += weight[i] * phi[i, g] * (z[i] - mean[g]) / W[g]
            share[c, g] += weight[i] * phi[i, g]
    e = W**2 / (share**2).sum(axis=0)
    k = e / (e - 1)
    return mean, np.sqrt(np.outer(k, k)) * (psi.T @ psi), e


def test_means_covariance_and_sizes_are_those_of_the_literal_sums():
    rng = np.random.default_rng(0)
    phi, z = rng.dirichlet([1, 1, 1], size=60), rng.normal(size=60)
    weight, clusters = rng.exponential(size=60) + 0.1, rng.integers(20, size=60)
    sample = Sample(probable(phi), weight, np.unique(clusters, return_inverse=True)[1])
    found = sample.measure(z)
    for ours, theirs in zip(
        (found.mean, found.cov, found.size), slow_covariance(phi, z, weight, clusters), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    again = Sample(sample.members, 7.0 * weight, sample.clusters).measure(z)
    np.testing.assert_allclose(again.cov, found.cov, rtol=1e-12)


def test_hard_groups_have_their_textbook_variances_and_tests():
    rng = np.random.default_rng(1)
    codes, z = np.repeat([0, 1], [40, 70]), rng.normal(size=110)
    sample = Sample(Membership.of_codes(codes, 2))
    found = sample.measure(z)
    np.testing.assert_allclose(np.diag(found.cov), [z[codes == g].var(ddof=1) / (codes == g).sum() for g in (0, 1)])
    assert found.size.tolist() == [40, 70]
    assert found.p_value() == pytest.approx(stats.ttest_ind(z[:40], z[40:], equal_var=False).pvalue)
    flags = sample.measure(z > 1)
    np.testing.assert_allclose(flags.rows_worth(), [40, 70])


def test_a_row_twice_in_a_cluster_is_no_news():
    rng = np.random.default_rng(2)
    codes, z = rng.integers(3, size=90), rng.normal(size=90)
    once = Sample(Membership.of_codes(codes, 3)).measure(z)
    both = np.tile(np.arange(90), 2)
    twice = Sample(Membership.of_codes(codes[both], 3), clusters=both).measure(z[both])
    np.testing.assert_allclose(twice.cov, once.cov, rtol=1e-12)
    np.testing.assert_allclose(twice.size, once.size)


def test_no_two_groups_of_one_block_say_nothing():
    assert np.isnan(lowest_over_highest(np.array([0.1, 0.2]), np.zeros((2, 2), dtype=bool)))
    alone = Means(np.array([0.1]), np.array([[0.01]]), np.array([30.0]), Comparison.of_all(1))
    assert np.isnan(estimate_ratio(alone).value)
    assert np.isnan(alone.p_value())


def draw(kind, rng, n=1200, gap=0.25):
    """Rows of a population in which the flag rates of two groups at the top tenth are known."""
    codes, weight, clusters = rng.integers(2, size=n), None, None
    y = rng.normal(size=n) + gap * codes
    if kind == "weights":  # half of the rows with high scores are not asked, those asked count twice
        asked = (y < 0.5) | (rng.random(n) < 0.5)
        codes, y, weight = codes[asked], y[asked], np.where(y[asked] < 0.5, 1.0, 2.0)
    if kind == "clusters":
        clusters = np.repeat(np.arange(n // 4), 4)
        codes = codes[clusters]
        y = np.sqrt(0.7) * rng.normal(size=n // 4)[clusters] + np.sqrt(0.3) * rng.normal(size=n) + gap * codes
    return codes, y, weight, clusters


def top_tenth(y, weight):
    order = np.argsort(y)
    upto = np.cumsum(np.ones(len(y)) if weight is None else weight[order])
    flagged = np.zeros(len(y), dtype=bool)
    flagged[order[upto > 0.9 * upto[-1]]] = True
    return flagged


def truth():
    cut = brentq(lambda c: stats.norm.sf(c) + stats.norm.sf(c - 0.25) - 0.2, 0, 3)
    return stats.norm.sf(cut) / stats.norm.sf(cut - 0.25)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", pytest.param("weights", marks=pytest.mark.long), "clusters"])
def test_interval_of_the_ratio_holds_the_population(kind):
    """The threshold is a share of the rows, so it moves with them."""
    rng, held, true = np.random.default_rng(5), 0, truth()
    for _ in range(200):
        codes, y, weight, clusters = draw(kind, rng)
        flagged = top_tenth(y, weight)
        sample = Sample(Membership.of_codes(codes, 2), weight, clusters)
        low, high = estimate_ratio(sample.measure(flagged, threshold_of=y)).interval
        held += low <= true <= high
    assert 0.9 <= held / 200 <= 0.995


@pytest.mark.parametrize("kind", ["plain", "weights", "clusters"])
def test_level_of_the_flag_test(kind):
    rng, rejected = np.random.default_rng(6), 0
    for _ in range(400):
        codes, y, weight, clusters = draw(kind, rng, gap=0.0)
        flagged = top_tenth(y, weight)
        sample = Sample(Membership.of_codes(codes, 2), weight, clusters)
        rejected += sample.measure(flagged, null=True, threshold_of=y).p_value() < 0.05
    assert 0.03 - 0.018 <= rejected / 400 <= 0.07 + 0.022


def test_bounds_hold_whatever_the_score_knows_of_the_group():
    """A calibrated probability, and a score that uses the group itself."""
    rng = np.random.default_rng(7)
    p = rng.choice([0.1, 0.3, 0.6, 0.9], size=20_000)
    group = rng.random(len(p)) < p
    for effect in (0.0, 1.0, -1.0, 3.0):
        y = rng.normal(size=len(p)) + effect * group + p
        flagged = y > np.quantile(y, 0.9)
        sample = Sample(probable(np.column_stack([1 - p, p])))
        low, high = mean_bounds(sample, flagged)
        rates = np.array([flagged[~group].mean(), flagged[group].mean()])
        assert (low <= rates + 0.01).all()
        assert (rates <= high + 0.01).all()
        ends = bounded_ratio(sample.measure(flagged), low, high)
        assert ends[0] <= rates.min() / rates.max() <= ends[1]
        mean_low, mean_high = mean_bounds(sample, y)
        gap = bounded_gap(np.array([[1.0, -1.0], [-1.0, 1.0]]), mean_low, mean_high)
        assert gap[0] - 0.02 <= (y[group].mean() - y[~group].mean()) ** 2 <= gap[1] + 0.02


def test_sure_groups_have_no_bounds_but_their_means():
    rng = np.random.default_rng(8)
    codes, y = rng.integers(3, size=300), rng.normal(size=300)
    sample = Sample(probable(np.eye(3)[codes]))
    np.testing.assert_allclose(mean_bounds(sample, y), [sample.means(y)] * 2)


def test_members_that_are_expected_are_rows_or_clusters_with_any_part_in_a_group():
    phi = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    members = probable(phi)
    np.testing.assert_allclose(Sample(members).expected, [1.7, 2.3])
    np.testing.assert_allclose(Sample(members, np.array([1.0, 0.0, 2.0, 1.0])).expected, [1.2, 1.8])
    np.testing.assert_allclose(Sample(members, clusters=np.array([0, 0, 1, 1])).expected, [1.5, 1.8])


def test_among_alike_is_the_plain_comparison_within_parts_where_there_is_no_number():
    rng = np.random.default_rng(0)
    codes, parts, z = rng.integers(0, 3, 400), rng.integers(-1, 2, 400), rng.normal(size=400)
    weight, clusters = rng.exponential(size=400) + 0.2, rng.integers(0, 150, 400)
    for more in ({}, {"weight": weight}, {"weight": weight, "clusters": np.unique(clusters, return_inverse=True)[1]}):
        sample = Sample(Membership.of_codes(codes, 3), **more)
        found = sample.among_alike(z, parts)
        plain = Sample(sample.members.within(parts), **more).measure(z)
        contrasts = np.zeros((4, 6))
        for row, (g, h) in enumerate(((0, 1), (0, 2), (3, 4), (3, 5))):
            contrasts[row, [g, h]] = 1.0, -1.0
        np.testing.assert_allclose(contrasts @ found.mean, contrasts @ plain.mean, atol=1e-10)
        one, two = (contrasts @ means.cov @ contrasts.T for means in (found, plain))
        np.testing.assert_allclose(one, two, rtol=0.03, atol=0.03 * np.diag(two).max())


def test_a_line_within_a_part_is_no_gap_and_a_step_between_groups_is():
    rng = np.random.default_rng(1)
    number = rng.uniform(0, 1, 2000)
    codes, parts = (rng.random(2000) < number).astype(int), (number > 0.5).astype(int)
    sample = Sample(Membership.of_codes(codes, 2))
    lines = sample.among_alike(3.0 * number, parts, number[:, None])
    np.testing.assert_allclose(lines.mean, 0.0, atol=1e-9)
    noise = rng.normal(size=2000)
    step = sample.among_alike(3.0 * number + noise + codes, parts, number[:, None])
    assert step.p_value() < 1e-6
    assert sample.among_alike(3.0 * number + noise, parts, number[:, None], null=True).p_value() > 0.01
    assert sample.among_alike(3.0 * number + noise, parts).p_value() < 1e-3  # without the number there is one
