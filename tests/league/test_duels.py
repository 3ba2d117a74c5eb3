"""Errors over halvings, corrections for many comparisons, and who wins, against slow or known answers."""

import numpy as np
import pytest
from scipy import stats

from league.duels import compare, holm, over_halves, tally


def test_drawn_anew_the_error_is_that_of_a_paired_t_test():
    differences = np.random.default_rng(0).normal(0.3, 1.0, size=12)
    mean, error, p = over_halves(differences, 0.0)
    assert p == pytest.approx(stats.ttest_1samp(differences, 0.0).pvalue)
    assert (mean, error) == pytest.approx((differences.mean(), stats.sem(differences)))


def test_halves_of_the_same_rows_have_the_error_of_nadeau_and_bengio():
    differences = np.array([1.0, 2.0, 4.0])
    _, error, _ = over_halves(differences, 1.0)
    assert error == pytest.approx(differences.std(ddof=1) * np.sqrt(1 / 3 + 1))


def test_the_plain_error_over_halvings_says_too_much_and_the_corrected_one_does_not():
    """Two means of noise on random halves of one table: nothing differs, so p below 0.05 should be rare."""
    rng = np.random.default_rng(1)
    found = {0.0: 0, 1.0: 0}
    for _ in range(300):
        table = rng.normal(size=(60, 2))
        halves = [rng.permutation(60)[:30] for _ in range(10)]
        differences = np.array([np.subtract(*table[rows].mean(axis=0)) for rows in halves])
        for overlap in found:
            found[overlap] += over_halves(differences, overlap)[2] < 0.05
    assert found[0.0] > 90  # of 300, where 15 are allowed
    assert found[1.0] <= 30


def test_one_halving_decides_nothing():
    mean, error, p = over_halves(np.array([0.4]), 1.0)
    assert (mean, p) == (0.4, 1.0)
    assert np.isnan(error)


@pytest.mark.parametrize(("differences", "p"), [(np.zeros(4), 1.0), (np.full(4, 0.5), 0.0)])
def test_differences_without_spread_are_certain(differences, p):
    assert over_halves(differences, 1.0)[1:] == (0.0, p)


def test_holm_is_the_slow_rule():
    p = np.array([0.004, 0.2, 0.011, 0.04, 0.011])
    order = sorted(range(5), key=lambda i: p[i])
    slow = {i: min(1.0, max(p[j] * (5 - place) for place, j in enumerate(order[: order.index(i) + 1]))) for i in order}
    assert holm(p).tolist() == pytest.approx([slow[i] for i in range(5)])


def results(table, method, setting, bias, aucs):
    return [
        {"table": table, "half": i, "method": method, "setting": setting, "rank_bias": bias, "bias": bias, "auc": auc}
        for i, auc in enumerate(aucs)
    ]


def league(aucs, bias=0.02):
    """Ours at a bias of 0.02 and AUC of about 0.8, and a peer with two settings, one of them unfair and good."""
    found = results("t", "evenout", "base", 0.1, [0.85] * 6)
    found += results("t", "evenout", "0.8", 0.02, [0.79, 0.8, 0.81, 0.8, 0.79, 0.81])
    found += results("t", "peer", "base", 0.5, [0.99] * 6)
    return found + results("t", "peer", "fair", bias, aucs)


@pytest.mark.parametrize(("level", "outcome"), [(0.7, "win"), (0.8, "tie"), (0.9, "loss")])
def test_only_settings_as_fair_as_ours_count(level, outcome):
    aucs = level + np.array([0.001, -0.01, 0.003, 0.01, -0.001, -0.003])
    (duel,) = compare(league(aucs), {"t": True}, ["peer"])
    assert (duel.setting, duel.outcome) == ("fair", outcome)
    assert duel.difference == pytest.approx(0.8 - level, abs=1e-9)
    assert duel.low < duel.difference < duel.high
    assert duel.difference == pytest.approx(duel.base_difference - duel.our_price + duel.their_price)


def test_a_peer_that_never_becomes_as_fair_is_neither_beaten_nor_lost_to():
    (duel,) = compare(league([0.5] * 6, bias=0.03), {"t": True}, ["peer"])
    assert (duel.outcome, duel.setting) == ("never as fair", "fair")
    assert tally([duel]) == {"win": 0, "tie": 0, "loss": 0, "never as fair": 1}


def test_where_neither_has_a_bias_a_little_more_noise_is_no_unfairness():
    found = league(np.full(6, 0.9))
    for each in found:
        each["rank_bias"] = {"0.8": -0.002, "fair": 0.0009}.get(each["setting"], 0.5)
    assert compare(found, {"t": True}, ["peer"])[0].outcome == "loss"


def test_the_more_is_compared_the_surer_a_win_must_be():
    aucs = 0.79 + np.array([0.001, -0.01, 0.003, 0.01, -0.001, -0.003])
    alone = compare(league(aucs), {"t": False}, ["peer"])
    many = [{**each, "table": f"t{i}"} for i in range(40) for each in league(aucs)]
    all_of_them = compare(many, {f"t{i}": False for i in range(40)}, ["peer"])
    assert alone[0].p == pytest.approx(all_of_them[0].p)
    assert all_of_them[0].adjusted == pytest.approx(min(1.0, 40 * alone[0].p))
