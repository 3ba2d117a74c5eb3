import numpy as np
import pytest
from scipy import stats

from evenout.auditing.inference import (
    bounded,
    extremes_interval,
    holm,
    interval,
    p_value,
    percentiles,
    wilson,
)
from evenout.auditing.kinds import KINDS, Kind
from evenout.auditing.measures import score_measures
from evenout.auditing.tables import level_table

GAP = Kind("gap", 0.0, "high", "squared")
RATIO = Kind("ratio", 1.0, "low", "extremes", 1.0, "rate")


def test_p_value_counts_the_value_among_its_permutations():
    permuted = np.array([[0.1], [0.2], [0.3], [0.4]])
    assert p_value(GAP, np.array([0.3]), permuted) == 3 / 5
    assert p_value(RATIO, np.array([0.15]), permuted) == 2 / 5
    assert p_value(GAP, np.array([0.5]), permuted) == 1 / 5
    assert np.isnan(p_value(KINDS["mean_score"], np.array([0.5]), permuted))
    assert np.isnan(p_value(GAP, np.array([0.5]), permuted[:0]))


def test_p_value_counts_undefined_permutations_against_the_finding():
    assert p_value(GAP, np.array([1.0]), np.array([[np.nan], [0.0], [0.0]])) == 2 / 4


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.03, 0.005])), [0.06, 0.03, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.9, np.nan, 0.6])), [1.0, np.nan, 1.0])
    assert holm(np.array([])).shape == (0,)


def test_wilson_agrees_with_scipy():
    low, high = wilson(np.array([3.0, 20.0]), 20, 0.9)
    for count, ends in ((3, (low[0], high[0])), (20, (low[1], high[1]))):
        assert ends == pytest.approx(tuple(stats.binomtest(count, 20).proportion_ci(0.9, method="wilson")))


def test_percentiles_leave_undefined_resamples_out():
    drawn = np.column_stack([np.arange(101.0), np.full(101, np.nan)])
    drawn[50, 0] = np.nan
    low, high = percentiles(drawn, 0.9)
    kept = np.delete(np.arange(101.0), 50)
    assert (low[0], high[0]) == pytest.approx(tuple(np.quantile(kept, [0.05, 0.95])))
    assert np.isnan(low[1])


def test_interval_shifts_by_the_push_of_noise():
    drawn, value = np.linspace(2.0, 4.0, 101)[:, None], np.array([2.5])  # pushed up by 0.5
    for directions, shift in ((1, 0.0), (2, 0.5), (4, 0.75)):
        low, high = interval(GAP, value, drawn, 0.9, directions)
        assert (low[0], high[0]) == pytest.approx((2.1 - shift, 3.9 - shift))


def test_extremes_interval_of_ratio_and_difference():
    low, high = np.array([0.1, np.nan, 0.3]), np.array([0.2, np.nan, 0.5])
    assert extremes_interval(RATIO, low, high) == pytest.approx((0.1 / 0.5, 0.2 / 0.3))
    assert extremes_interval(KINDS["auc_gap"], low, high) == pytest.approx((0.1, 0.4))
    assert np.isnan(extremes_interval(RATIO, low[:2], high[:2])).all()


def test_bounds_hold_the_value_and_what_the_test_allows():
    value, low, high = np.array([-0.1, 0.3, 0.3]), np.array([0.1, 0.2, 0.2]), np.array([0.5, 0.4, 0.4])
    low, high = bounded(GAP, value, low, high, np.array([0.5, 0.2, 0.01]), 0.95)
    assert low.tolist() == [-0.1, 0.0, 0.2]
    assert high.tolist() == [0.5, 0.4, 0.4]


def resampled(scores, groups, rng, n_bootstrap, n_permutations):
    table = level_table(scores, groups, groups.max() + 1)
    batches = table.bootstrap(n_bootstrap, rng), table.permutations(n_permutations, rng)
    found = [[score_measures(counts, table.values, 0.1) for counts in draws] for draws in batches]
    value = score_measures(table.counts[None], table.values, 0.1)
    return value, *({name: np.concatenate([b[name] for b in part]) for name in value} for part in found)


def test_permutation_p_values_are_uniform_without_a_gap():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [20, 15, 5])
    names = ("demographic_parity", "threshold_free_gap")
    p = {name: [] for name in names}
    for _ in range(300):
        value, _, permuted = resampled(rng.standard_t(3, 40), groups, rng, 1, 99)
        for name in names:
            p[name] += p_value(KINDS[name], value[name][0], permuted[name]).tolist()
    for values in p.values():
        assert stats.kstest(np.array(values) - rng.random(300) / 100, "uniform").pvalue > 0.01
        assert np.mean(np.array(values) <= 0.05) < 0.08


@pytest.mark.parametrize("gaps", [(0.0, 0.0), (0.0, 0.5), (0.0, 0.0, 0.0, 0.0), (0.0, 0.2, 0.4, 0.2)])
def test_intervals_cover_the_truth(gaps):
    """90 % intervals, in simulations where the truth is known; gaps are allowed to cover more."""
    rng, n = np.random.default_rng(0), 60
    groups = np.repeat(np.arange(len(gaps)), n)
    shift = np.array(gaps)[groups]
    squared = np.mean([(a - b) ** 2 for i, a in enumerate(gaps) for b in gaps[i + 1 :]])
    truth = {"mean_score": np.array(gaps), "demographic_parity": squared / (1 + np.var(gaps))}
    covered = {name: [] for name in truth}
    for _ in range(150):
        value, drawn, permuted = resampled(rng.normal(size=len(groups)) + shift, groups, rng, 100, 60)
        for name, true in truth.items():
            kind, v = KINDS[name], value[name][0]
            low, high = interval(kind, v, drawn[name], 0.9, len(gaps) - 1)
            low, high = bounded(kind, v, low, high, p_value(kind, v, permuted[name]), 0.9)
            covered[name] += ((low <= true + 1e-9) & (true <= high)).tolist()
    assert 0.85 < np.mean(covered["mean_score"]) < 0.94
    assert np.mean(covered["demographic_parity"]) > 0.85
