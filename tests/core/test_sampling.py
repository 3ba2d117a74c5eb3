from itertools import combinations

import numpy as np
import pytest
from tests.conftest import distance_range, within_folds

from evenout.core import pairwise as sampling
from evenout.core.content import shuffle_copies
from evenout.core.pairwise import PairSums, cell_pairs, estimate_pair_sums, pair_sums, sampled_pair_sums

SHAPE = {"n_groups": 3, "n_folds": 5}


def make_rows(sizes, d=4, q=5, n_folds=5, unknown=0, seed=0):
    """Rows whose scores depend on the features, with heavy tails and copies, groups in random order."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(-1, len(sizes)), [unknown, *sizes]))
    n = len(groups)
    X = rng.standard_normal((n, d)) + 0.3 * groups[:, None]
    X[: n // 10] = X[n // 10 : 2 * (n // 10)]
    Z = np.linalg.norm(X, axis=1, keepdims=True) + 0.5 * np.abs(rng.standard_t(4, (n, q)))
    return X, Z, groups, rng.integers(0, n_folds, n)


def solved_form(sums, groups):
    """The form C of individual fairness, in which all pairs of groups count alike."""
    n = np.bincount(groups[groups >= 0])
    weights = np.array([1.0 / (n[p] * n[q]) for p, q in combinations(range(len(n)), 2)])
    return np.einsum("p,pab->ab", weights, sums.total()[0])


def error_by_direction(form, truth):
    """max |v'(form - truth)v| / v' truth v."""
    values, vectors = np.linalg.eigh(truth)
    basis = vectors / np.sqrt(values)
    return np.abs(np.linalg.eigvalsh(basis.T @ (form - truth) @ basis)).max()


@pytest.fixture(scope="module")
def rows():
    """Cells of about 400 rows, 7 blocks: the smallest sample visits two of the 7 shifts."""
    return make_rows([2000, 2000, 2000], unknown=100)


@pytest.fixture(scope="module", params=["minmax", 0.5])
def repeated(request, rows):
    """Exact sums, and the pilot sample of 40 seeds, by scale."""
    exact = pair_sums(*rows, **SHAPE, scale=request.param)
    runs = [sampled_pair_sums(*rows, **SHAPE, scale=request.param, tolerance=1e9, seed=s) for s in range(40)]
    return exact, runs


def test_sampled_sums_are_unbiased(repeated):
    exact, runs = repeated
    for truth, values in (
        (exact.mass, np.array([sums.mass for sums, _ in runs])),
        (exact.form, np.array([sums.form for sums, _ in runs])),
    ):
        spread = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        z = (values.mean(axis=0) - truth) / spread
        assert (spread > 0).all()
        assert np.abs(z).max() < 6  # of hundreds of entries
        assert 0.8 < np.sqrt((z**2).mean()) < 1.25
        total = values.sum(axis=(1, 2, 3))
        z = (total.mean(axis=0) - truth.sum(axis=(0, 1, 2))) * np.sqrt(len(total)) / total.std(axis=0, ddof=1)
        assert np.abs(z).max() < 4


def test_stated_error_is_that_of_the_sample(repeated, rows):
    exact, runs = repeated
    truth = solved_form(exact, rows[2])
    errors = np.array([error_by_direction(solved_form(sums, rows[2]), truth) for sums, _ in runs])
    stated = np.array([error for _, error in runs])
    assert (errors < 3 * stated).all()
    assert 0.8 < np.sqrt((errors**2).mean() / (stated**2).mean()) < 1.25
    assert stated.std() < 0.3 * stated.mean()


def test_folds_subtract_from_sampled_sums(repeated, rows):
    exact, runs = repeated
    stated = np.mean([error for _, error in runs])
    for sums, _ in runs[:3]:
        for fold in range(5):
            kept = np.arange(5) != fold
            both = np.logical_and.outer(kept, kept)
            left, truth = (PairSums(s.form * both[..., None, None], s.mass * both) for s in (sums, exact))
            error = error_by_direction(solved_form(left, rows[2]), solved_form(truth, rows[2]))
            assert error < 3 * stated * 5 / 4  # (4/5)^2 of the pairs
        within, truth = (within_folds(each.form).sum(axis=(0, 1)) for each in (sums, exact))
        assert error_by_direction(within, truth) < 3 * stated * np.sqrt(5)  # a fifth of the pairs of cells


def test_sampled_sums_are_symmetric_and_positive_semidefinite(repeated):
    _, runs = repeated
    form = runs[0][0].form
    np.testing.assert_array_equal(form, form.swapaxes(-1, -2))
    assert np.linalg.eigvalsh(form).min() > 0


def test_sample_grows_until_the_error_is_tolerable():
    rows = make_rows([8000, 6000, 6000])
    exact = pair_sums(*rows, **SHAPE, scale=0.15)
    _, pilot = sampled_pair_sums(*rows, **SHAPE, scale=0.15, tolerance=1e9)
    sums, error = sampled_pair_sums(*rows, **SHAPE, scale=0.15, tolerance=pilot / 1.5)
    assert 0 < error <= pilot / 1.5
    assert error_by_direction(solved_form(sums, rows[2]), solved_form(exact, rows[2])) < 3 * error


@pytest.mark.parametrize("scale", ["minmax", 0.5, 0.003])  # the last is computed in float64
def test_without_any_tolerance_all_pairs_are_visited(rows, scale):
    exact = pair_sums(*rows, **SHAPE, scale=scale)
    sums, error = sampled_pair_sums(*rows, **SHAPE, scale=scale, tolerance=0.0)
    assert error == 0
    np.testing.assert_allclose(sums.mass, exact.mass, rtol=2e-6)
    np.testing.assert_allclose(sums.form, exact.form, atol=2e-6 * exact.form.max())


def test_pairs_with_small_cells_are_exact():
    rows = make_rows([3000, 2500, 90])
    exact = pair_sums(*rows, **SHAPE, scale=0.5)
    sums, error = sampled_pair_sums(*rows, **SHAPE, scale=0.5, tolerance=1e9)
    np.testing.assert_allclose(sums.mass[1:], exact.mass[1:], rtol=1e-6)
    np.testing.assert_allclose(sums.form[1:], exact.form[1:], atol=1e-6 * exact.form.max())
    assert error > 0
    assert (np.abs(sums.mass[0] / exact.mass[0] - 1) > 1e-5).all()


def test_sample_depends_on_the_seed_not_on_threads_or_row_order(rows):
    sums, error = sampled_pair_sums(*rows, **SHAPE, tolerance=1e9, seed=3)
    order = np.random.default_rng(0).permutation(len(rows[0]))
    moved = [values[order] for values in rows]
    same, same_error = sampled_pair_sums(*moved, **SHAPE, tolerance=1e9, seed=3, n_threads=2)
    np.testing.assert_array_equal(same.form, sums.form)
    np.testing.assert_array_equal(same.mass, sums.mass)
    assert same_error == error
    other, _ = sampled_pair_sums(*rows, **SHAPE, tolerance=1e9, seed=4)
    assert (other.mass != sums.mass).all()


def test_copies_of_a_row_are_shuffled_too():
    order = shuffle_copies(np.zeros(1000), np.zeros(1000), seed=0)
    assert sorted(order) == list(range(1000))
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.15
    assert len(set(np.diff(order))) > 500


def test_copies_stand_apart_among_other_rows():
    values = np.repeat(np.arange(50.0), 20)
    assert (np.diff(values[shuffle_copies(values, values, seed=0)]) == 0).mean() < 0.1


def test_columns_in_many_copies_have_the_error_of_one(rows):
    X, Z, groups, folds = rows
    error = [
        sampled_pair_sums(X, Z[:, columns], groups, folds, **SHAPE, tolerance=1e9)[1] for columns in ([0], [0, 0, 0, 0])
    ]
    assert error[1] == pytest.approx(error[0], rel=0.3)  # the rows are drawn anew


def test_constant_scores_have_no_error(rows):
    X, Z, groups, folds = rows
    sums, error = sampled_pair_sums(X, np.ones_like(Z), groups, folds, **SHAPE, tolerance=0.001)
    assert error == 0
    assert not sums.form.any()
    assert sums.mass.all()


def test_sample_without_rows_that_are_alike_is_not_trusted():
    rows = make_rows([1500, 1200, 1200])
    X = np.arange(3900.0)[:, None] * np.ones(4)
    X[rows[2] == 2] += 0.25
    sums, error = sampled_pair_sums(X, *rows[1:], **SHAPE, scale=1e-3, tolerance=1e9)
    assert error == 0
    np.testing.assert_allclose(sums.mass, pair_sums(X, *rows[1:], **SHAPE, scale=1e-3).mass)


def test_groups_without_rows_have_no_sums():
    X, Z, groups, folds = make_rows([30, 0, 20], unknown=3)
    sums, error = sampled_pair_sums(X, Z, groups, folds, **SHAPE)
    assert error == 0
    assert sums.mass.sum(axis=(1, 2))[[0, 2]].tolist() == [0, 0]
    sums, error = sampled_pair_sums(X, Z, np.minimum(groups, 0), folds, n_groups=1, n_folds=5)
    assert sums.form.shape == (0, 5, 5, 5, 5)
    assert error == 0


@pytest.mark.parametrize("d", [1, 3, 8])
def test_sought_range_is_nearly_the_range(d, monkeypatch):
    rng = np.random.default_rng(d)
    X, groups = rng.standard_normal((6000, d)), rng.integers(0, 3, 6000)
    X[:, 0] += 3 * (groups == 1)
    bounds, order = np.searchsorted(np.sort(groups), np.arange(4)), np.argsort(groups, kind="stable")
    points = X[order] - X.mean(axis=0)
    lo, hi = distance_range(X, groups, 3)
    monkeypatch.setattr(sampling, "_RANGE_PAIRS", 0)
    monkeypatch.setattr(sampling, "_FAR", 600)
    found = sampling._wide_range(points, bounds, 2)
    assert found[1] == pytest.approx(hi, rel=1e-9)
    assert lo - 1e-9 <= found[0] < lo + 0.01 * (hi - lo)
    points[bounds[1]] = points[0]
    assert sampling._wide_range(points, bounds, 1) == (0, pytest.approx(hi, rel=1e-9))


def test_range_of_few_pairs_is_measured_not_sought(monkeypatch):
    points, bounds = np.random.default_rng(0).uniform(-1, 1, (300, 3)), np.array([0, 100, 200, 300])
    monkeypatch.setattr(sampling, "_FAR", 3)  # a search would look at one row of each group
    assert sampling._wide_range(points, bounds, 1) == sampling._range(points, bounds, 1)
    monkeypatch.setattr(sampling, "_RANGE_PAIRS", 100)
    assert sampling._wide_range(points, bounds, 1) != sampling._range(points, bounds, 1)


def test_sums_with_a_sought_range_are_close(monkeypatch, rows):
    exact = pair_sums(*rows, **SHAPE)
    monkeypatch.setattr(sampling, "_RANGE_PAIRS", 0)
    sums, _ = sampled_pair_sums(*rows, **SHAPE, tolerance=0.0)
    np.testing.assert_allclose(sums.mass, exact.mass, rtol=1e-3)


def test_estimate_visits_all_pairs_until_there_are_too_many(monkeypatch, rows):
    exact = pair_sums(*rows, **SHAPE)
    for method in ("exact", "auto"):
        sums, error = estimate_pair_sums(*rows, **SHAPE, method=method)
        np.testing.assert_array_equal(sums.form, exact.form)
        assert error == 0
    monkeypatch.setattr(sampling, "_EXACT_PAIRS", 1e6)
    sampled, error = estimate_pair_sums(*rows, **SHAPE, method="sampled", seed=5)
    automatic, _ = estimate_pair_sums(*rows, **SHAPE, seed=5)
    assert 0 < error <= 0.01
    np.testing.assert_array_equal(automatic.form, sampled.form)


def test_limit_of_the_pairs_is_within_it(monkeypatch, rows):
    assert sampling.cross_pairs(np.array([2, 3, 4])) == 2 * 3 + 2 * 4 + 3 * 4
    monkeypatch.setattr(sampling, "_EXACT_PAIRS", 3 * 2000.0**2)
    assert estimate_pair_sums(*rows, **SHAPE)[1] == 0
    monkeypatch.setattr(sampling, "_EXACT_PAIRS", 3 * 2000.0**2 - 1)
    assert estimate_pair_sums(*rows, **SHAPE)[1] > 0


@pytest.mark.parametrize(("n_groups", "n_folds", "runs"), [(2, 1, 32), (3, 2, 200 // 12), (3, 5, 2)])
def test_runs_are_two_hundred_in_all_within_bounds(monkeypatch, n_groups, n_folds, runs):
    seen = []

    def spy(edges, n_groups, n_folds, runs, width):
        seen.append(runs)
        return cell_pairs(edges, n_groups, n_folds, runs, width)

    monkeypatch.setattr(sampling, "cell_pairs", spy)
    X, Z, groups, folds = make_rows([40] * n_groups, n_folds=n_folds)
    sampled_pair_sums(X, Z, groups, folds, n_groups=n_groups, n_folds=n_folds)
    assert seen == [runs]


@pytest.mark.parametrize("scale", [0, -1.0, np.inf, np.nan])
def test_scale_that_is_no_length_is_refused(rows, scale):
    with pytest.raises(ValueError, match="scale must be 'minmax' or a positive length"):
        sampled_pair_sums(*rows, **SHAPE, scale=scale)


@pytest.mark.parametrize("tolerance", [np.inf, np.nan])
def test_tolerance_that_is_no_number_is_refused(rows, tolerance):
    with pytest.raises(ValueError, match="tolerance must be a number of at least 0"):
        sampled_pair_sums(*rows, **SHAPE, tolerance=tolerance)


def test_wrong_settings_are_refused(rows):
    with pytest.raises(ValueError, match="method must be one of 'exact', 'sampled', 'auto', got 'quick'"):
        estimate_pair_sums(*rows, **SHAPE, method="quick")
    with pytest.raises(ValueError, match="tolerance must be a number of at least 0, got -1"):
        sampled_pair_sums(*rows, **SHAPE, tolerance=-1)
    with pytest.raises(ValueError, match="scale must be 'minmax' or a positive length, got 'max'"):
        sampled_pair_sums(*rows, **SHAPE, scale="max")
