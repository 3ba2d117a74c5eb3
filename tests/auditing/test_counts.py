"""Every statistic of a table against statsmodels, scipy's distributions, or numbers worked by hand."""

import numpy as np
import pytest
from scipy.stats import hypergeom, norm

from evenout.auditing import practice as counts

statsmodels = pytest.importorskip("statsmodels.stats.api")

TABLES = [(8, 10, 3, 12), (85, 100, 940, 1000), (1, 30, 5, 31), (5000, 6000, 4000, 6000)]


@pytest.mark.parametrize(("k", "n", "k0", "n0"), TABLES)
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_rates_and_ratios_as_in_statsmodels(k, n, k0, n0, confidence):
    from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint, proportions_ztest

    found = counts.rate(k, n, confidence)
    assert found[1:] == pytest.approx(proportion_confint(k, n, 1 - confidence, "wilson"))
    ratio = counts.ratio(k, n, k0, n0, confidence)
    assert ratio.value == pytest.approx((k / n) / (k0 / n0))
    expected = confint_proportions_2indep(k, n, k0, n0, method="log", compare="ratio", alpha=1 - confidence)
    assert ratio[1:] == pytest.approx(expected)
    assert counts.equal_rates(k, n, k0, n0)[0] == pytest.approx(proportions_ztest([k, k0], [n, n0])[0])


@pytest.mark.parametrize(("k", "n", "k0", "n0"), TABLES)
def test_fisher_is_the_sum_over_tables_as_unlikely(k, n, k0, n0):
    chances = hypergeom(n + n0, k + k0, n).pmf(np.arange(n + 1))
    assert counts.equal_rates(k, n, k0, n0)[1] == pytest.approx(
        chances[chances <= chances[k] * (1 + 1e-7)].sum(), rel=1e-6
    )


def test_fisher_of_the_lady_tasting_tea():
    """Fisher 1935: 3 of 4 cups right, 17 of 70 as good or better, and the same on the other side."""
    assert counts.equal_rates(3, 4, 1, 4)[1] == pytest.approx(2 * 17 / 70)


def test_standardised_difference_by_hand():
    found = counts.standardised_difference(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), 2.0, 0.95)
    assert found.value == 0.5
    reach = norm.ppf(0.975) * np.sqrt(1 / 3 + 1 / 3) / 2
    assert found[1:] == pytest.approx((0.5 - reach, 0.5 + reach))


def strata(seed=0, n_strata=5):
    rng = np.random.default_rng(seed)
    n, n0 = rng.integers(20, 200, n_strata), rng.integers(20, 200, n_strata)
    base = rng.uniform(0.2, 0.7, n_strata)
    return rng.binomial(n, base * 0.8), n, rng.binomial(n0, base), n0


@pytest.mark.parametrize("seed", range(4))
def test_mantel_haenszel_as_in_statsmodels(seed):
    k, n, k0, n0 = strata(seed)
    tables = [np.array([[a, m - a], [c, m0 - c]], dtype=float) for a, m, c, m0 in zip(k, n, k0, n0, strict=True)]
    expected = statsmodels.StratifiedTable(tables)
    found = counts.mantel_haenszel(k, n, k0, n0, 0.95)
    assert found.risk.value == pytest.approx(expected.riskratio_pooled)
    assert found.odds.value == pytest.approx(expected.oddsratio_pooled)
    assert found.odds[1:] == pytest.approx(expected.oddsratio_pooled_confint(0.05))
    test = expected.test_null_odds(correction=False)
    assert (found.statistic, found.p) == pytest.approx((test.statistic, test.pvalue))
    assert found.used == 5


def test_a_stratum_without_one_group_has_no_say():
    k, n, k0, n0 = strata()
    more = [np.append(part, end) for part, end in zip((k, n, k0, n0), (7, 20, 0, 0), strict=True)]
    assert counts.mantel_haenszel(*more, 0.95) == counts.mantel_haenszel(k, n, k0, n0, 0.95)


def test_one_stratum_is_a_plain_ratio():
    found = counts.mantel_haenszel(np.array([30]), np.array([100]), np.array([50]), np.array([100]), 0.95)
    assert found.risk.value == pytest.approx(0.6)
    assert found.odds.value == pytest.approx((30 / 70) / (50 / 50))
    assert found.risk[1:] == pytest.approx(counts.ratio(30, 100, 50, 100, 0.95)[1:])


def test_the_interval_of_the_pooled_ratio_holds_the_truth():
    """Greenland and Robins by simulation: 95 % of 2,000 intervals hold 0.8; statsmodels has no such interval."""
    rng = np.random.default_rng(0)
    n, n0, base = np.array([60, 40, 25]), np.array([80, 30, 50]), np.array([0.3, 0.5, 0.7])
    held = 0
    for _ in range(2000):
        found = counts.mantel_haenszel(rng.binomial(n, 0.8 * base), n, rng.binomial(n0, base), n0, 0.95).risk
        held += found.low < 0.8 < found.high
    assert 0.935 < held / 2000 < 0.965


def test_conditional_disparity_by_hand():
    """As in Berkeley's admissions: in each stratum half of the hit and half of the spared are of the group."""
    hit, spared = np.array([40.0, 10.0]), np.array([10.0, 40.0])
    all_hit, all_spared = np.array([80.0, 20.0]), np.array([20.0, 80.0])
    assert counts.conditional_disparity(hit, spared, all_hit, all_spared) == 0
    # 30 of 80 hit and 20 of 20 spared; 10 of 20 hit and 20 of 80 spared; 100 people each
    found = counts.conditional_disparity(np.array([30.0, 10.0]), np.array([20.0, 20.0]), all_hit, all_spared)
    assert found == pytest.approx(((30 / 80 - 1) * 100 + (0.5 - 0.25) * 100) / 200)
    one_outcome = counts.conditional_disparity(np.append(hit, 5), np.append(spared, 0), np.append(all_hit, 9),
                                               np.append(all_spared, 0))  # fmt: skip
    assert one_outcome == 0


def test_nothing_to_count_is_nan():
    assert np.isnan(counts.rate(0, 0, 0.95)).all()
    assert np.isnan(counts.ratio(1, 2, 0, 5, 0.95)).all()
    assert np.isnan(counts.equal_rates(2, 2, 3, 3)[0])
    assert np.isnan(counts.equal_rates(0, 0, 3, 3)).all()
    assert np.isnan(counts.conditional_disparity(*(np.zeros(2),) * 4))
    none = counts.mantel_haenszel(np.array([3]), np.array([5]), np.array([0]), np.array([0]), 0.95)
    assert np.isnan(none.risk.value)
    assert np.isnan(none.p)
