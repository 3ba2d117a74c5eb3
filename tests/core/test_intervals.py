import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import ndtr, ndtri

from evenout.core.intervals import expected_shortfall, noncentral_interval, picked_share, ratio_interval


def intervals(x, freedom, confidence=0.95, scale=1.0):
    ones = np.ones(len(x))
    return noncentral_interval(scale * x, scale * ones, freedom * ones, confidence)


@pytest.mark.parametrize("freedom", [1.0, 2.5, 8.0])
def test_ends_are_where_the_value_would_be_just_too_large_or_too_small(freedom):
    x = np.array([2.0, 12.0, 40.0, 300.0, 3000.0]) + freedom
    low, high = intervals(x, freedom)
    above = low > 0
    np.testing.assert_allclose(stats.ncx2.cdf(x[above], freedom, low[above]), 0.975, rtol=1e-6)
    np.testing.assert_allclose(stats.ncx2.cdf(x, freedom, high), 0.025, rtol=1e-4)
    assert (stats.chi2.cdf(x[~above], freedom) <= 0.975).all()
    assert above[1:].all()


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize(("freedom", "noncentrality"), [(1, 0.0), (1, 4.0), (2, 0.0), (2, 30.0), (6, 15.0)])
def test_covers_in_simulation(freedom, noncentrality, confidence):
    rng = np.random.default_rng(0)
    x = ((rng.normal(size=(4000, freedom)) + np.sqrt(noncentrality / freedom)) ** 2).sum(axis=1)
    low, high = intervals(x, float(freedom), confidence, scale=1e-3)
    covered = np.mean((low <= 1e-3 * noncentrality) & (1e-3 * noncentrality <= high))
    assert covered > confidence - 3.5 * np.sqrt(confidence * (1 - confidence) / 4000)
    if noncentrality > 10:  # where nothing is cut off at 0, it is no wider than it must be
        assert covered < confidence + 3.5 * np.sqrt(confidence * (1 - confidence) / 4000)
    else:
        assert covered < (3 + confidence) / 4 + 0.02


def test_no_sample_proves_that_there_is_nothing():
    x = np.array([0.0, 1e-12, stats.chi2.ppf(0.1, 2.0) - 1e-9, stats.chi2.ppf(0.1, 2.0)])
    low, high = intervals(x, 2.0)
    np.testing.assert_array_equal(low, 0.0)
    np.testing.assert_allclose(high, high[-1], rtol=1e-6)
    assert high[0] > 1.0
    below = noncentral_interval(np.array([-5.0]), np.ones(1), np.array([2.0]), 0.95)  # estimates can be negative
    np.testing.assert_allclose(np.concatenate(below), [0.0, high[0]])


def test_large_values_go_over_to_the_normal_smoothly():
    x = np.array([0.9999e4, 1.0001e4])
    reach = 1.96 * np.sqrt(6.0 + 4.0 * (x - 3.0))
    for end, normal in zip(intervals(x, 3.0), (x - 3.0 - reach, x - 3.0 + reach), strict=True):
        np.testing.assert_allclose(end, normal, atol=0.03 * reach[0])


def test_unit_of_the_value_does_not_matter():
    x = np.array([0.5, 20.0, 5e4])
    for one, two in zip(intervals(x, 2.0), intervals(x, 2.0, scale=1e-6), strict=True):
        np.testing.assert_allclose(two, 1e-6 * one, rtol=1e-9)


def test_what_is_not_known_is_nan():
    unknown = np.array([np.nan, 1.0, 1.0, np.inf])
    scale, freedom = np.array([1.0, 0.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
    for end in noncentral_interval(unknown, scale, freedom, 0.95):
        assert np.isnan(end).all()


def fieller(a, b, va, vb, cab, z):
    """Fieller (1954): the r with ``(a - r b)^2 <= z^2 (va - 2 r cab + r^2 vb)``, where these are an interval."""
    A, B, C = b**2 - z**2 * vb, a * b - z**2 * cab, a**2 - z**2 * va
    root = np.sqrt(B**2 - A * C)
    return (B - root) / A, (B + root) / A


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.9])
@pytest.mark.parametrize(("a", "b"), [(1.0, 4.0), (3.0, 3.5), (-0.5, 3.0), (8.0, 2.5)])
def test_symmetric_intervals_give_fiellers(a, b, rho):
    z, sa, sb = ndtri(0.975), 0.6, 0.8
    found = ratio_interval((a, b), (a - z * sa, a + z * sa), (b - z * sb, b + z * sb), rho)
    assert found == pytest.approx(fieller(a, b, sa**2, sb**2, rho * sa * sb, z), rel=1e-9)


def test_denominator_that_may_be_zero_leaves_the_ratio_open():
    z = ndtri(0.975)
    low, high = ratio_interval((1.0, 1.0), (1 - 0.2 * z, 1 + 0.2 * z), (1 - 0.8 * z, 1 + 0.8 * z), 0.0)
    assert (low, high) == (-np.inf, np.inf)
    # It may be 0 on one side alone: the far end of the ratio is open then, the near one is not.
    low, high = ratio_interval((1.0, 1.0), (0.8, 1.2), (0.0, 1.5), 0.0)
    assert 0 < low < 1
    assert high == np.inf


def test_unknown_intervals_leave_the_ratio_unknown():
    nan = float("nan")
    assert np.isnan(ratio_interval((1.0, 1.0), (nan, nan), (0.5, 1.5), 0.0)).all()
    assert np.isnan(ratio_interval((1.0, 1.0), (0.5, 1.5), (nan, nan), 0.0)).all()


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_ratio_of_normals_is_covered_in_simulation(rho):
    rng = np.random.default_rng(1)
    truth, z = np.array([1.0, 4.0]), ndtri(0.975)
    cov = np.array([[0.25, rho * 0.5], [rho * 0.5, 1.0]])
    drawn = rng.multivariate_normal(truth, cov, size=4000)
    covered = []
    for a, b in drawn:
        low, high = ratio_interval((a, b), (a - z * 0.5, a + z * 0.5), (b - z, b + z), rho)
        covered.append(low <= 0.25 <= high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize(("above", "below", "most"), [(2.0, 25.0, 1.0), (20.0, 80.0, 0.97)])
def test_ratio_of_squares_is_covered_in_simulation(above, below, most):
    """Independent noncentral chi-squares, less their freedom: what the biases of two scores are like."""
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=(2000, 2)) + np.sqrt([above, below])).T ** 2
    ends = [intervals(part, 1.0) for part in (x, y)]
    covered = []
    for i in range(2000):
        first, second = ((low[i], high[i]) for low, high in ends)
        low, high = ratio_interval((x[i] - 1, y[i] - 1), first, second, 0.0)
        covered.append(low <= above / below <= high)
    assert 0.935 < np.mean(covered) <= most


@pytest.mark.parametrize("error", [1e-3, 0.1, 3.0])
@pytest.mark.parametrize("reached", [-0.5, 0.75, 0.8, 1.0])
def test_shortfall_equals_numerical_integration(reached, error):
    expected, _ = quad(
        lambda x: max(0.8 - x, 0.0) * stats.norm.pdf(x, reached, error),
        reached - 12 * error,
        min(0.8, reached + 12 * error),
        epsabs=1e-13,
        limit=200,
    )
    assert expected_shortfall(0.8, reached, error) == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_shortfall_without_any_error_is_what_is_missing():
    for error in (0.0, float("nan")):
        assert expected_shortfall(0.8, 0.7, error) == pytest.approx(0.1)
        assert expected_shortfall(0.8, 0.9, error) == 0.0


@pytest.mark.parametrize("d", [2.0, 2.5, 3.0, 4.0, 8.0])
def test_a_gap_that_a_test_has_picked_is_larger_than_the_true_one_by_the_share_that_is_taken_off(d):
    z = np.abs(np.random.default_rng(0).normal(d, 1.0, size=6000))
    z = z[z > -ndtri(0.025)]
    share = np.array([picked_share(2.0 * ndtr(-each), 0.05) for each in z])
    assert (share * z).mean() == pytest.approx(d, abs=0.3)
    assert d > 3.0 or z.mean() > d + 0.25  # without it


def test_nothing_is_taken_off_a_gap_that_is_beyond_doubt():
    shares = [picked_share(p, 0.05) for p in (0.05, 0.02, 1e-3, 1e-8, 1e-11, 1e-13, 0.0)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert 0.5 < shares[0] < 0.6
