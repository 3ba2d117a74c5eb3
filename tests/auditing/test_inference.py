import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from evenout import Groups
from evenout.auditing import audit
from evenout.auditing.counted import MEANINGS, Meaning, score_measures
from evenout.auditing.measures import (
    extremes_interval,
    gap_interval,
    level_interval,
    p_value,
    percentiles,
    within_range,
)
from evenout.core.intervals import correlations, difference_ends, holm, normal_value, ratio_ends, wilson_interval
from evenout.core.resampling import level_table

GAP = Meaning("gap", 0.0, "high", "squared")
RATIO = Meaning("ratio", 1.0, "low", "extremes", 1.0, "rate")
RATE = Meaning("rate", shape="rate")
Z = stats.norm.ppf(0.975)
FEW = {"resamples": 150}


def test_p_value_counts_the_value_among_its_permutations():
    permuted = np.array([[0.1], [0.2], [0.3], [0.4]])
    assert p_value(GAP, np.array([0.25]), permuted) == 3 / 5
    assert p_value(GAP, np.array([0.3]), permuted) == 2.5 / 5  # a tie counts half
    assert p_value(RATIO, np.array([0.15]), permuted) == 2 / 5
    assert p_value(GAP, np.array([0.5]), permuted) == 1 / 5
    assert np.isnan(p_value(MEANINGS["mean_score"], np.array([0.5]), permuted))
    assert np.isnan(p_value(GAP, np.array([0.5]), permuted[:0]))


def test_p_value_counts_undefined_permutations_against_the_finding():
    assert p_value(GAP, np.array([1.0]), np.array([[np.nan], [0.0], [0.0]])) == 2 / 4


def test_what_no_permutation_changes_is_no_finding():
    assert p_value(GAP, np.array([0.3]), np.full((9, 1), 0.3)) == 1.0


def test_p_value_of_an_interval_is_where_it_just_holds_0():
    """Two normal levels with errors of 0.1: z = 0.3 / sqrt(0.02), two-sided."""
    value, drawn = np.array([0.5, 0.8]), np.random.default_rng(0).normal(size=(9999, 2))

    def ends(z):
        return value - 0.1 * z, value + 0.1 * z

    rho = float(correlations(drawn)[0, 1])
    expected = 2 * stats.norm.sf(0.3 / np.sqrt(0.02 * (1 - rho)))
    kind = Meaning("gap", 0.0, shape="extremes", by_interval=True)

    def p(value, ends, drawn):
        return extremes_interval(kind, value, ends, drawn, 0.95)[2]

    assert p(value, ends, drawn) == pytest.approx(expected, abs=1e-4)
    assert p(value, lambda z: (value - z, value + z), drawn) == pytest.approx(0.83, abs=0.01)
    assert p(value, lambda _: (value, value), drawn[:99]) == 1 / 100
    assert np.isnan(p(np.array([0.1, np.nan]), ends, drawn))


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.03, 0.005])), [0.06, 0.03, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.9, np.nan, 0.6])), [1.0, np.nan, 1.0])
    assert holm(np.array([])).shape == (0,)


def test_wilson_agrees_with_scipy():
    low, high = wilson_interval(np.array([3.0, 20.0]) / 20, np.array(20.0), normal_value(0.9))
    for count, ends in ((3, (low[0], high[0])), (20, (low[1], high[1]))):
        assert ends == pytest.approx(tuple(stats.binomtest(count, 20).proportion_ci(0.9, method="wilson")))


def test_percentiles_leave_undefined_resamples_out():
    drawn = np.column_stack([np.arange(100.0), np.full(100, np.nan)])
    drawn[50, 0] = np.nan
    low, high = percentiles(drawn, 0.9)
    assert (low[0], high[0]) == pytest.approx(
        (4.0, 95.0)
    )  # the fifth and the 95th of 99, which are the shares 0.05 and 0.95
    assert np.isnan(low[1])


def test_rates_of_nobody_and_everybody_have_an_interval():
    """No resample of 0 of 40 has anybody flagged, and yet the rate need not be 0."""
    drawn = np.column_stack([np.zeros(50), np.ones(50)])
    low, high = level_interval(RATE, np.array([0.0, 1.0]), drawn, np.array([40.0, 40.0]), Z)
    for count, ends in ((0, (low[0], high[0])), (40, (low[1], high[1]))):
        assert ends == pytest.approx(tuple(stats.binomtest(count, 40).proportion_ci(0.95, method="wilson")))


def test_a_rate_has_the_rows_that_its_spread_stands_for():
    """Resamples of 12 of 60 that vary as 30 rows would: Wilson's interval of 6 of 30."""
    drawn = 0.2 + np.sqrt(0.2 * 0.8 / 30) * np.array([[-1.0], [1.0]])
    low, high = level_interval(RATE, np.array([0.2]), drawn, np.array([60.0]), Z)
    expected = stats.binomtest(6, 30).proportion_ci(0.95, method="wilson")
    assert (low[0], high[0]) == pytest.approx(tuple(expected))


def test_interval_of_a_squared_gap_of_two_means_is_that_of_the_gap():
    """With two groups the noise is one normal number: (d - z se)^2 to (d + z se)^2, and 0 where 0 is within."""
    noise = 0.3 * stats.norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None]
    for d in (0.2, 1.0, -1.0):
        drawn = (d + noise) ** 2
        low, high = gap_interval(GAP, np.array([d**2]), drawn, noise**2, 0.95)
        assert low[0] == pytest.approx(max(abs(d) - Z * 0.3, 0) ** 2, abs=1e-3)
        assert high[0] == pytest.approx((abs(d) + Z * 0.3) ** 2, abs=0.02)


def test_differences_of_two_rates_are_newcombes():
    """56 of 70 against 48 of 80: 0.0524 to 0.3339 (Newcombe 1998, method 10)."""
    low, high = wilson_interval(np.array([56 / 70, 48 / 80]), np.array([70.0, 80.0]), Z)
    ends = difference_ends(np.array([0.8, 0.6]), low, high, np.eye(2))
    assert (ends[0][0, 1], ends[1][0, 1]) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert (ends[0][1, 0], ends[1][1, 0]) == pytest.approx((-0.3339, -0.0524), abs=5e-5)


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.4])
def test_ends_of_a_ratio_are_where_the_difference_may_be_none(rho):
    value, low, high = np.array([0.08, 0.2]), np.array([0.05, 0.15]), np.array([0.24, 0.41])
    correlation = np.array([[1.0, rho], [rho, 1.0]])

    def at(ratio, end):
        scaled = [np.array([1.0, ratio]) * x for x in (value, low, high)]
        return difference_ends(*scaled, correlation)[end][0, 1]

    found = ratio_ends(value, low, high, correlation)
    assert found[0][0, 1] == pytest.approx(brentq(lambda r: at(r, 0), 1e-6, 0.4))
    assert found[1][0, 1] == pytest.approx(brentq(lambda r: at(r, 1), 0.4, 5))


def test_a_ratio_to_a_rate_that_may_be_0_has_no_upper_end():
    value, low, high = np.array([0.1, 0.1]), np.array([0.05, 0.0]), np.array([0.2, 0.3])
    smallest, largest = ratio_ends(value, low, high, np.eye(2))
    assert largest[0, 1] == np.inf
    assert np.isfinite(largest[1, 0])
    assert (smallest >= 0).all()


def test_the_uneven_end_is_that_of_one_pair_and_the_even_end_holds_for_all():
    """Four normal levels, equally far apart: Tukey's critical value is 3.633 / sqrt(2)."""
    value, asked = np.array([0.0, 1.0, 2.0, 3.0]), []

    def ends(z):
        asked.append(z)
        return value - 0.1 * z, value + 0.1 * z

    low, high, p = extremes_interval(Meaning("gap", 0.0, shape="extremes"), value, ends, np.zeros((9, 4)), 0.95)
    assert asked == pytest.approx([1.95996, 3.633 / np.sqrt(2)], abs=5e-4)
    assert np.isnan(p)  # tested by permutations
    assert high == pytest.approx(3 + np.sqrt(2) * 0.1 * asked[0])
    assert low == pytest.approx(3 - np.sqrt(2) * 0.1 * asked[1])


def test_extremes_need_two_groups_with_values():
    value = np.array([0.1, np.nan])
    assert np.isnan(extremes_interval(RATIO, value, lambda _: (value, value), np.ones((5, 2)), 0.9)).all()


def test_correlations_are_those_of_numpy_and_0_for_what_does_not_vary():
    drawn = np.random.default_rng(0).normal(size=(50, 3)) @ np.array([[1.0, 0.5, 0], [0, 1, 0], [0, 0, 0]])
    found = correlations(np.vstack([drawn, [np.nan, 1, 1]]))
    np.testing.assert_allclose(found[:2, :2], np.corrcoef(drawn[:, :2].T))
    assert found[2].tolist() == [0, 0, 0]


def test_an_interval_holds_its_value_and_stays_in_range():
    value, low, high = np.array([-0.1, 0.3, 0.9]), np.array([0.1, -0.2, 0.2]), np.array([0.5, 0.4, 7.0])
    low, high = within_range(Meaning("gap", 0.0, largest=1.0), value, low, high)
    assert low.tolist() == [-0.1, 0.0, 0.2]
    assert high.tolist() == [0.5, 0.4, 1.0]


def test_an_interval_that_leaves_evenness_out_has_a_test_that_rejects():
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], [40, 60, 300])
    rest = {"sensitive_features": groups, "labels": rng.integers(0, 2, 400), "given": rng.integers(0, 3, 400)}
    scores = rng.normal(size=400) + 0.3 * (groups == "b")
    found = audit(scores, **rest, resamples=100)
    not_rejected = [m for m in found.measures if m.p > 0.05]
    assert len(not_rejected) > 5
    for m in not_rejected:
        even = MEANINGS[m.measure].even
        assert MEANINGS[m.measure].about_rows or even is None or m.low <= even <= m.high or np.isnan(m.low), m


def resampled(scores, groups, rng, n_bootstrap, n_permutations):
    table = level_table(scores, groups, groups.max() + 1)
    batches = table.bootstrap(n_bootstrap, rng), table.permutations(n_permutations, rng)
    found = [[score_measures(counts, table.values, 0.1) for counts in draws] for draws in batches]
    value = score_measures(table.counts[None], table.values, 0.1)
    return value, *({name: np.concatenate([b[name] for b in part]) for name in value} for part in found)


@pytest.mark.long
def test_permutation_p_values_are_uniform_without_a_gap():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [20, 15, 5])
    names = ("demographic_parity", "threshold_free_gap")
    p = {name: [] for name in names}
    for _ in range(300):
        value, _, permuted = resampled(rng.standard_t(3, 40), groups, rng, 1, 99)
        for name in names:
            p[name] += p_value(MEANINGS[name], value[name][0], permuted[name]).tolist()
    for values in p.values():
        assert stats.kstest(np.array(values) - rng.random(300) / 100, "uniform").pvalue > 0.01
        assert np.mean(np.array(values) <= 0.05) < 0.08


@pytest.mark.long
def test_flag_test_has_its_level_and_its_power():
    """A population with one small group, without and with a difference: chi-square finds what a ratio does not."""
    rng = np.random.default_rng(0)
    sizes = np.array([30, 60, 210])
    groups = np.repeat([0, 1, 2], sizes)
    found = {}
    for rates in ((0.1, 0.1, 0.1), (0.1, 0.28, 0.06)):
        p = {"flag_rate_test": [], "flag_rate_ratio": []}
        for _ in range(300):
            scores = (rng.random(300) < np.array(rates)[groups]) + rng.random(300)
            value, _, permuted = resampled(scores, groups, rng, 1, 99)
            for name in p:
                p[name] += p_value(MEANINGS[name], value[name][0], permuted[name]).tolist()
        found[rates] = {name: np.mean(np.array(values) <= 0.05) for name, values in p.items()}
    even, uneven = found.values()
    assert 0.02 < even["flag_rate_test"] < 0.085
    assert uneven["flag_rate_test"] > 0.8
    assert uneven["flag_rate_test"] > uneven["flag_rate_ratio"] + 0.2


@pytest.mark.parametrize(
    "gaps",
    [
        (0.0, 0.5),
        pytest.param((0.0, 0.0, 0.0, 0.0), marks=pytest.mark.long),
        pytest.param((0.0, 0.0), marks=pytest.mark.long),
        pytest.param((0.0, 0.2, 0.4, 0.2), marks=pytest.mark.long),
    ],
)
def test_intervals_cover_the_truth(gaps):
    """90 % intervals, in simulations where the truth is known; gaps are allowed to cover more."""
    rng, n = np.random.default_rng(0), 60
    groups = np.repeat(np.arange(len(gaps)), n)
    shift = np.array(gaps)[groups]
    squared = np.mean([(a - b) ** 2 for i, a in enumerate(gaps) for b in gaps[i + 1 :]])
    x = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    every = np.concatenate([x + gap for gap in gaps])
    spread = np.ptp([stats.norm.cdf(every - gap) for gap in gaps], axis=0).mean()
    truth = {
        "mean_score": np.array(gaps),
        "demographic_parity": squared / (1 + np.var(gaps)),
        "threshold_free_gap": spread,
    }
    covered = {name: [] for name in truth}
    for i in range(150):
        scores = rng.normal(size=len(groups)) + shift
        found = audit(scores, sensitive_features=groups, confidence=0.9, **FEW, random_state=i)
        means = [found.get("mean_score", str(g)) for g in range(len(gaps))]
        covered["mean_score"] += [m.low <= true <= m.high for m, true in zip(means, gaps, strict=True)]
        for name in ("demographic_parity", "threshold_free_gap"):
            m = found.get(name)
            covered[name].append(m.low <= truth[name] + 1e-9 and truth[name] <= m.high)
    assert 0.85 < np.mean(covered["mean_score"]) < 0.94
    assert np.mean(covered["demographic_parity"]) > 0.85
    assert np.mean(covered["threshold_free_gap"]) > 0.85


@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "shifts"),
    [
        ((30, 400), (0.0, 0.0)),
        ((30, 400), (-0.6, 0.0)),
        ((30, 60, 60, 400), (0.0, 0.0, 0.0, 0.0)),
        ((30, 60, 60, 400), (0.0, 0.5, 0.2, 0.0)),
        ((60, 60, 60, 60, 60, 60), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_ratios_of_flag_rates_cover_the_truth(sizes, shifts):
    """90 % intervals of both ratios, with a small group and with many; the threshold is drawn too."""
    rng, shifts = np.random.default_rng(1), np.array(shifts)
    groups, share = np.repeat(np.arange(len(sizes)), sizes), np.array(sizes) / sum(sizes)
    cut = brentq(lambda t: share @ stats.norm.sf(t - shifts) - 0.1, -5, 9)
    rates = stats.norm.sf(cut - shifts)
    truth = {
        "flag_rate_ratio": rates.min() / rates.max(),
        "unflagged_rate_ratio": (1 - rates).min() / (1 - rates).max(),
    }
    covered, rate_covered = {name: [] for name in truth}, []
    for i in range(150):
        scores = rng.normal(size=len(groups)) + shifts[groups]
        found = audit(scores, sensitive_features=groups, confidence=0.9, **FEW, random_state=i)
        for name, true in truth.items():
            m = found.get(name)
            covered[name].append(m.low <= true <= m.high + 1e-12)
        ends = [found.get("flag_rate", str(g)) for g in range(len(sizes))]
        rate_covered += [m.low <= rate <= m.high for m, rate in zip(ends, rates, strict=True)]
    assert np.mean(covered["flag_rate_ratio"]) > 0.85
    assert np.mean(covered["unflagged_rate_ratio"]) > 0.85
    assert np.mean(rate_covered) > 0.85


@pytest.mark.long
@pytest.mark.parametrize("gap", [0.6, 0.0])
def test_gaps_within_small_strata_cover_the_truth(gap):
    """Ten rows or so of each group in a stratum, a third of that in the smallest group; 90 % intervals."""
    rng = np.random.default_rng(2)
    covered = []
    for i in range(100):
        groups, strata = rng.choice(3, 300, p=[0.1, 0.3, 0.6]), rng.integers(0, 8, 300)
        scores = rng.normal(size=300) + 0.5 * strata + gap * (groups == 0)
        found = audit(
            scores, sensitive_features=groups, given=strata.astype(str), groups=Groups(min_size=2), confidence=0.9,
            random_state=i, **FEW,
        )  # fmt: skip
        m, truth = found.get("conditional_parity"), 2 / 3 * gap**2 / scores.var()
        covered.append(m.low <= truth + 1e-12 and truth <= m.high)
    assert np.mean(covered) > 0.85
