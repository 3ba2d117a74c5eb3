import numpy as np
import pytest

from evenout.reproduce.claims import equal_bias_gain, read_settings


def test_cof_is_bias_removed_per_auc_lost(setting):
    draws = [(3.0, 0.8), (1.0, 1.2), (0.0, 0.9)]
    (one,) = read_settings(setting(random={"weighted": draws}))
    assert one.cof["weighted"][0] == pytest.approx([1 / 0.1, 3 / -0.3, np.nan], nan_ok=True)


def test_settings_keep_the_order_of_the_points_and_their_repeats(setting):
    (one,) = read_settings(setting(repeats=3, weighted=lambda r: {"auc": [0.9 - r / 10, 0.5, 0.4, 0.3]}))
    assert one.curves["weighted"]["auc"][:, 0] == pytest.approx([0.9, 0.8, 0.7])
    assert one.auc_start == pytest.approx(0.8)
    assert one.target_auc.tolist() == [0.9] * 3
    assert one.average_auc.tolist() == [0.8] * 3


def test_halfway_is_the_first_step_with_half_of_f2_gone(setting):
    (one,) = read_settings(setting(weighted={"f2": [4.0, 2.1, 1.9, 0.1]}))
    assert one.auc_change_halfway == pytest.approx(0.7 - 0.9)
    assert one.auc_change == pytest.approx(0.6 - 0.9)


def test_alpha_ratio_compares_the_ends_of_the_curves(setting):
    (one,) = read_settings(setting(alphas={"weighted": [0, 1, 2, 9], "unweighted": [0, 1, 2, 4.5]}))
    assert one.alpha_ratio == pytest.approx(2.0)


def walk(bias, auc, level):
    """AUC where the curve, walked in small steps, first has this bias or less."""
    steps = np.linspace(0, len(bias) - 1, 200_001)
    fine = np.interp(steps, np.arange(len(bias)), bias)
    return np.interp(steps[np.argmax(fine <= level + 1e-12)], np.arange(len(bias)), auc)


@pytest.mark.parametrize("seed", range(4))
def test_equal_bias_gain_agrees_with_walking_along_curves_that_turn(seed):
    rng = np.random.default_rng(seed)
    w, u = (np.r_[4.0, rng.uniform(1.0, 6.0, 6), end] for end in (0.5, 0.8))
    auc_w, auc_u = rng.uniform(0.5, 1.0, (2, 8))
    low, high = max(w.min(), u.min()), min(w[0], u[0])
    levels = np.linspace(low, high, 20)
    slow = np.mean([walk(w, auc_w, level) - walk(u, auc_u, level) for level in levels])
    assert equal_bias_gain(w, auc_w, u, auc_u) == pytest.approx(slow, abs=1e-4)


def test_equal_bias_gain_of_a_curve_over_itself_is_zero():
    bias, auc = np.array([2.0, 3.0, 1.0]), np.array([0.9, 0.8, 0.7])
    assert equal_bias_gain(bias, auc, bias, auc) == 0.0


def test_equal_bias_gain_needs_a_common_range():
    falling, rising, auc = np.array([2.0, 1.0]), np.array([2.0, 3.0]), np.array([0.9, 0.8])
    assert np.isnan(equal_bias_gain(falling, auc, rising, auc))
    apart = np.array([0.9, 0.1])
    assert np.isnan(equal_bias_gain(falling, auc, apart, auc))
