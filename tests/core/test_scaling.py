import numpy as np
import pytest
from scipy import stats

from evenout.core.base_score import SCALINGS, learn_scaling, unit_range

RAW = np.array([[1.0, 10.0, 4.0], [2.0, 30.0, 4.0], [2.0, 20.0, 4.0], [5.0, 90.0, 4.0]])
NEW = np.array([[3.0, 0.0, 9.0], [7.0, 200.0, 4.0]])


@pytest.mark.parametrize("k", [1, 2, 8, 19])
@pytest.mark.parametrize("n", [20, 1001, 9000])
def test_rows_outside_are_scaled_as_a_table_of_their_own(n, k):
    """The compiled sums are those of numpy along the rows of a copy, bit for bit."""
    rng = np.random.default_rng(n + k)
    raw, outside = rng.lognormal(sigma=2.0, size=(n, k + 1)), rng.random(n) < 0.7
    raw[:, 0] = 4.0
    for table in (raw, raw[:, :k], np.asfortranarray(raw)):
        own = table[outside]
        low, span = own.min(axis=0), np.ptp(own, axis=0)
        unit = (own - low) / np.where(span > 0, span, 1.0)
        for n_threads in (1, 3):
            found = learn_scaling("minmax", table, outside=outside, n_threads=n_threads)
            np.testing.assert_array_equal(found.low, low)
            np.testing.assert_array_equal(found.high, own.max(axis=0))
            np.testing.assert_array_equal(found.varies, span > 0)
            np.testing.assert_array_equal(found.mean, low + np.where(span > 0, span, 1.0) * unit.mean(axis=0))
            np.testing.assert_array_equal(found.std, np.where(span > 0, span, 1.0) * unit.std(axis=0))


def test_minmax_is_zero_to_one_on_training_rows_and_not_clipped_on_new():
    scaling = learn_scaling("minmax", RAW)
    np.testing.assert_allclose(scaling.transform(RAW)[:, 0], [0, 0.25, 0.25, 1])
    np.testing.assert_allclose(scaling.transform(NEW)[:, :2], [[0.5, -0.125], [1.5, 2.375]])


def test_rank_is_the_share_below_with_ties_half():
    scaling = learn_scaling("rank", RAW)
    expected = (stats.rankdata(RAW[:, :2], axis=0) - 0.5) / 4
    np.testing.assert_allclose(scaling.transform(RAW)[:, :2], expected)
    new = scaling.transform(NEW)
    assert new[0, 0] == pytest.approx(0.75)
    assert new[1, 0] > scaling.transform(RAW)[:, 0].max()  # beyond the training range, and told apart
    assert scaling.transform(np.array([[8.0, 0, 0]]))[0, 0] > new[1, 0]


def test_zscore_and_gaussian_equal_their_definitions():
    z = (RAW[:, :2] - RAW[:, :2].mean(axis=0)) / RAW[:, :2].std(axis=0)
    np.testing.assert_allclose(learn_scaling("zscore", RAW).transform(RAW)[:, :2], z)
    unified = np.maximum(2 * stats.norm.cdf(z) - 1, 0)
    np.testing.assert_allclose(learn_scaling("gaussian", RAW).transform(RAW)[:, :2], unified)


@pytest.mark.parametrize("kind", SCALINGS)
def test_constant_columns_become_zero(kind):
    scaling = learn_scaling(kind, RAW)
    assert scaling.varies.tolist() == [True, True, False]
    np.testing.assert_array_equal(scaling.transform(RAW)[:, 2], 0)
    np.testing.assert_array_equal(scaling.transform(NEW)[:, 2], 0)


@pytest.mark.parametrize("kind", SCALINGS)
def test_order_is_kept(kind):
    rng = np.random.default_rng(0)
    raw, new = rng.normal(size=(50, 1)), np.sort(rng.normal(size=(50, 1)) * 3, axis=0)
    scaled = learn_scaling(kind, raw).transform(new)[:, 0]
    assert (np.diff(scaled) >= 0).all()
    assert scaled[-1] > scaled[0]


def test_rounding_noise_is_no_information():
    noisy = 1e6 + np.array([[0.0], [1e-10], [0.0]])
    assert not learn_scaling("minmax", noisy).varies[0]
    np.testing.assert_array_equal(unit_range(noisy[:, 0]), 0)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e30])
def test_extreme_scales_stay_finite(scale):
    raw = scale * np.array([[1.0], [2.0], [4.0]])
    for kind in SCALINGS:
        assert np.isfinite(learn_scaling(kind, raw).transform(np.array([[0.0], [1e30]]))).all()


@pytest.mark.parametrize("kind", SCALINGS)
def test_many_rows_are_scaled_the_same_in_any_layout(kind):
    raw = np.random.default_rng(0).exponential(size=(1500, 3))
    rows, columns = learn_scaling(kind, raw), learn_scaling(kind, np.asfortranarray(raw))
    assert rows.kind == columns.kind == kind
    np.testing.assert_allclose(rows.transform(raw), columns.transform(raw), rtol=1e-12, atol=1e-14)
