from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from tests.conftest import distance_range, within_folds

from evenout.core.pairwise import PairSums, _row_blocks, _standardised, nearest_psd, pair_sums


def literal_sums(X, Z, groups, folds, n_groups, n_folds, scale="minmax"):
    """The definition: one pair of rows after the other, in float64."""
    distance = cdist(X, X)
    cross = (groups[:, None] != groups) & (groups[:, None] >= 0) & (groups >= 0)
    lo, hi = distance[cross].min(), distance[cross].max()
    index = {pair: number for number, pair in enumerate(combinations(range(n_groups), 2))}
    form = np.zeros((len(index), n_folds, n_folds, Z.shape[1], Z.shape[1]))
    mass = np.zeros((len(index), n_folds, n_folds))
    for i in range(len(X)):
        for j in range(len(X)):
            if (groups[i], groups[j]) not in index:
                continue
            if scale == "minmax":
                delta = (distance[i, j] - lo) / (hi - lo) if hi > lo else 0.0
            else:
                delta = distance[i, j] / scale
            cell = (index[groups[i], groups[j]], folds[i], folds[j])
            form[cell] += np.exp(-delta) * np.outer(Z[i] - Z[j], Z[i] - Z[j])
            mass[cell] += np.exp(-delta)
    return PairSums(form, mass)


def quick_form(X, Z, groups, length_of):
    """The form over all pairs from whole matrices, in float64; ``length_of`` turns distances into delta."""
    form = np.zeros((Z.shape[1], Z.shape[1]))
    for p in range(groups.max()):
        left, right = groups == p, groups > p
        M = np.exp(-length_of(cdist(X[left], X[right])))
        product = Z[left].T @ M @ Z[right]
        form += (Z[left].T * M.sum(axis=1)) @ Z[left] + (Z[right].T * M.sum(axis=0)) @ Z[right]
        form -= product + product.T
    return form


def error_by_direction(form, truth):
    """max |v'(form - truth)v| / v' truth v over the range of truth."""
    values, vectors = np.linalg.eigh(truth)
    kept = values > 1e-12 * values[-1]
    basis = vectors[:, kept] / np.sqrt(values[kept])
    return np.abs(np.linalg.eigvalsh(basis.T @ (form - truth) @ basis)).max()


def make_rows(sizes, d=3, q=4, n_folds=3, unknown=5, seed=0):
    """Rows of groups of the given sizes, and some of unknown group, in random order."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(-1, len(sizes)), [unknown, *sizes]))
    n = len(groups)
    return rng.standard_normal((n, d)), rng.random((n, q)), groups, rng.integers(0, n_folds, n)


@pytest.fixture(scope="module")
def large():
    """Enough rows for several tiles and tasks: 3000 rows, 4 groups of unequal size, unknown rows, 5 folds."""
    return make_rows([1500, 700, 300, 100], d=6, q=7, n_folds=5, unknown=400, seed=1)


@pytest.mark.parametrize("scale", ["minmax", 0.7, 3.0])
@pytest.mark.parametrize("sizes", [[13, 40], [30, 7, 21], [11, 1, 25, 18]])
def test_pair_sums_equal_the_double_loop(sizes, scale):
    rows = make_rows(sizes)
    sums = pair_sums(*rows, n_groups=len(sizes), n_folds=3, scale=scale)
    truth = literal_sums(*rows, len(sizes), 3, scale)
    assert sums.form.shape == truth.form.shape
    np.testing.assert_allclose(sums.mass, truth.mass, rtol=1e-6)
    np.testing.assert_allclose(sums.form, truth.form, atol=2e-6 * np.abs(truth.form).max())
    assert error_by_direction(sums.form.sum(axis=(0, 1, 2)), truth.form.sum(axis=(0, 1, 2))) < 1e-6


def test_pair_sums_of_two_pairs_worked_by_hand():
    X, Z = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 4.0]])
    sums = pair_sums(X, Z, np.array([0, 1, 1]), np.array([0, 0, 1]), n_groups=2, n_folds=2, scale=1.0)
    np.testing.assert_allclose(sums.mass[0], [[np.exp(-1), np.exp(-2)], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(sums.form[0, 0, 0], np.exp(-1) * np.array([[4, 0], [0, 0]]), atol=1e-6)
    np.testing.assert_allclose(sums.form[0, 0, 1], np.exp(-2) * np.array([[0, 0], [0, 9]]), atol=1e-6)
    assert not sums.form[0, 1].any()


def test_pair_sums_over_many_tiles_equal_float64(large):
    X, Z, groups, folds = large
    sums = pair_sums(X, Z, groups, folds, n_groups=4, n_folds=5, n_threads=2)
    known = groups >= 0
    lo, hi = distance_range(X, groups, 4)
    truth = quick_form(X[known], Z[known], groups[known], lambda distance: (distance - lo) / (hi - lo))
    assert error_by_direction(sums.form.sum(axis=(0, 1, 2)), truth) < 1e-6
    for fold in range(5):
        inside = known & (folds == fold)
        truth = quick_form(X[inside], Z[inside], groups[inside], lambda distance: (distance - lo) / (hi - lo))
        assert error_by_direction(within_folds(sums.form).sum(axis=0)[fold], truth) < 1e-6


def test_pair_sums_do_not_depend_on_threads(large):
    one, two = (pair_sums(*large, n_groups=4, n_folds=5, n_threads=n_threads) for n_threads in (1, 2))
    np.testing.assert_array_equal(one.form, two.form)
    np.testing.assert_array_equal(one.mass, two.mass)
    assert distance_range(large[0], large[2], 4) == distance_range(large[0], large[2], 4, n_threads=2)


def test_pair_sums_do_not_depend_on_row_order_or_origin(large):
    X, Z, groups, folds = large
    sums = pair_sums(*large, n_groups=4, n_folds=5)
    order = np.random.default_rng(0).permutation(len(X))
    moved = pair_sums(X[order] + 100.0, Z[order] - 7.0, groups[order], folds[order], n_groups=4, n_folds=5)
    np.testing.assert_allclose(moved.mass, sums.mass, rtol=1e-6)
    assert error_by_direction(moved.form.sum(axis=(0, 1, 2)), sums.form.sum(axis=(0, 1, 2))) < 1e-6


def test_pair_sums_without_a_fold_are_those_of_the_other_rows():
    X, Z, groups, folds = make_rows([30, 20, 25])
    sums = pair_sums(X, Z, groups, folds, n_groups=3, n_folds=3, scale=1.3)
    kept, others = folds != 1, np.ix_(range(3), [0, 2], [0, 2])
    recomputed = pair_sums(X[kept], Z[kept], groups[kept], folds[kept], n_groups=3, n_folds=3, scale=1.3)
    np.testing.assert_allclose(sums.mass[others], recomputed.mass[others], rtol=1e-6)
    np.testing.assert_allclose(sums.form[others], recomputed.form[others], atol=1e-6 * recomputed.form.max())
    assert not recomputed.form[:, 1].any()
    assert not recomputed.mass[:, :, 1].any()


def test_total_of_pair_sums_is_over_all_pairs_of_folds():
    rng = np.random.default_rng(0)
    sums = PairSums(rng.random((3, 2, 2, 4, 4)), rng.random((3, 2, 2)))
    form, mass = sums.total()
    expected = sums.mass[:, 0, 0] + sums.mass[:, 0, 1] + sums.mass[:, 1, 0] + sums.mass[:, 1, 1]
    np.testing.assert_allclose(mass, expected)
    np.testing.assert_allclose(form[0, 1, 2], sums.form[0, :, :, 1, 2].sum())


def test_pair_sums_are_exact_in_directions_where_scores_hardly_differ():
    rng = np.random.default_rng(0)
    X, common = rng.standard_normal((1500, 10)), rng.random((1500, 1))
    Z = common + 0.0028 * rng.standard_normal((1500, 19))
    Z[:, 1] = Z[:, 0] + 1e-4 * rng.standard_normal(1500)
    assert np.corrcoef(Z.T)[2, 3] == pytest.approx(0.9999, abs=2e-5)
    groups, folds = rng.integers(0, 3, 1500), np.zeros(1500, dtype=int)
    lo, hi = distance_range(X, groups, 3)
    truth = quick_form(X, Z - Z.mean(axis=0), groups, lambda distance: (distance - lo) / (hi - lo))
    assert np.linalg.cond(truth) > 1e8
    form = pair_sums(X, Z, groups, folds, n_groups=3, n_folds=1).form.sum(axis=(0, 1, 2))
    assert error_by_direction(form, truth) < 1e-6  # 1e-7 when written


def test_pair_sums_are_symmetric_and_positive_semidefinite():
    rows = make_rows([2, 3, 9], q=8)  # cells of a row or two: most directions have no difference at all
    form = pair_sums(*rows, n_groups=3, n_folds=3).form
    np.testing.assert_array_equal(form, form.swapaxes(-1, -2))
    assert np.linalg.eigvalsh(form).min() > -1e-15 * form.max()


@pytest.mark.parametrize("scale", ["minmax", 2.0])
def test_pair_sums_with_equal_rows_in_different_groups(scale):
    X, Z, groups, folds = make_rows([20, 20, 20], d=5)
    X[groups == 1] = X[groups == 0]
    X[groups == 2] = X[groups == 0] + 1e-5
    sums, truth = (
        pair_sums(X, Z, groups, folds, n_groups=3, n_folds=3, scale=scale),
        literal_sums(X, Z, groups, folds, 3, 3, scale),
    )
    assert distance_range(X, groups, 3)[0] == 0
    np.testing.assert_allclose(sums.mass, truth.mass, rtol=1e-6)
    assert error_by_direction(sums.form.sum(axis=(0, 1, 2)), truth.form.sum(axis=(0, 1, 2))) < 1e-6


def test_pair_sums_with_equal_distances_have_similarity_one():
    _, Z, groups, folds = make_rows([12, 9])
    for X in (np.full((len(Z), 2), 3.3), np.where(groups[:, None] == 0, 0.1, [[0.7, 0.2]])):
        sums = pair_sums(X, Z, groups, folds, n_groups=2, n_folds=3)
        np.testing.assert_allclose(sums.mass.sum(), 12 * 9, rtol=1e-7)


@pytest.mark.parametrize("scale", ["minmax", 1.0])
@pytest.mark.parametrize("gap", [1e3, 1e6])
def test_pair_sums_stay_exact_when_groups_lie_far_apart(gap, scale):
    X, Z, groups, folds = make_rows([30, 40])
    X[:, 0] += gap * (groups == 1)
    length = scale if scale == "minmax" else scale * gap / 20
    sums, truth = (
        pair_sums(X, Z, groups, folds, n_groups=2, n_folds=3, scale=length),
        literal_sums(X, Z, groups, folds, 2, 3, length),
    )
    np.testing.assert_allclose(sums.mass, truth.mass, rtol=1e-5)
    assert error_by_direction(sums.form.sum(axis=(0, 1, 2)), truth.form.sum(axis=(0, 1, 2))) < 1e-5


@pytest.mark.parametrize("factor", [1e-310, 1e-200, 1e30, 1e307])
def test_pair_sums_take_features_of_any_size(factor):
    X, Z, groups, folds = make_rows([15, 12])
    sums, scaled = (pair_sums(data, Z, groups, folds, n_groups=2, n_folds=3) for data in (X, X * factor))
    np.testing.assert_allclose(scaled.mass, sums.mass, rtol=1e-6)
    assert error_by_direction(scaled.form.sum(axis=(0, 1, 2)), sums.form.sum(axis=(0, 1, 2))) < 1e-6


def test_pair_sums_of_far_pairs_vanish_with_a_short_length():
    X, Z, groups, folds = make_rows([10, 10])
    X[groups == 0, :] = X[groups == 1, :]
    sums = pair_sums(X, Z, groups, folds, n_groups=2, n_folds=3, scale=1e-250)
    assert sums.mass.sum() == pytest.approx(10, rel=1e-6)


def test_pair_sums_of_groups_without_rows_are_zero():
    X, Z, groups, folds = make_rows([10, 0, 5], unknown=2)
    sums = pair_sums(X, Z, groups, folds, n_groups=3, n_folds=3)
    assert sums.mass.sum(axis=(1, 2))[[0, 2]].tolist() == [0, 0]
    assert sums.mass[1].sum() > 0
    for none in (np.full_like(groups, -1), np.zeros_like(groups)):
        empty = pair_sums(X, Z, none, folds, n_groups=2, n_folds=3)
        assert empty.form.shape == (1, 3, 3, 4, 4)
        assert not empty.form.any()
        assert distance_range(X, none, 2) == (0.0, 0.0)


def test_pair_sums_leave_read_only_input_alone():
    rows = make_rows([10, 12])
    copies = [array.copy() for array in rows]
    for array in rows:
        array.setflags(write=False)
    pair_sums(*rows, n_groups=2, n_folds=3)
    for array, copy in zip(rows, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("scale", [0, -1.0, np.inf, np.nan, "max"])
def test_pair_sums_refuse_a_scale_that_is_no_length(scale):
    with pytest.raises(ValueError, match="scale must be 'minmax' or a positive length"):
        pair_sums(*make_rows([5, 5]), n_groups=2, n_folds=3, scale=scale)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_standardised_rows_have_mean_zero_and_largest_entry_one(sign):
    X = sign * np.array([[-7.0, 1.0], [2.0, 0.0], [2.0, 2.0]])
    rows, unit = _standardised(X.copy())
    assert np.abs(rows).max() == 1.0
    np.testing.assert_allclose(rows.sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(rows * unit, X - X.mean(axis=0), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("d", [1, 4, 30])
def test_distance_range_is_that_of_cross_group_pairs_of_known_rows(d):
    X, _, groups, _ = make_rows([400, 300, 600], d=d, unknown=50)
    X[groups == -1] *= 1e6
    cross = (groups[:, None] != groups) & (groups[:, None] >= 0) & (groups >= 0)
    distance = cdist(X, X)[cross]
    lo, hi = distance_range(X, groups, 3)
    assert hi == pytest.approx(distance.max(), rel=1e-12)
    assert lo == pytest.approx(distance.min(), abs=1e-6 * hi)


def test_distance_range_finds_a_very_close_pair():
    X, _, groups, _ = make_rows([300, 300], d=8)
    close = X[groups == 0][7]
    X[np.flatnonzero(groups == 1)[5]] = close + 1e-9
    assert distance_range(X, groups, 2)[0] == pytest.approx(1e-9 * np.sqrt(8), rel=1e-5)


def test_distance_range_of_groups_far_apart_is_found_in_float64():
    X, _, groups, _ = make_rows([200, 150], d=2, unknown=0)
    X[:, 0] += 1e7 * groups  # the distances differ in their eighth digit
    distance = cdist(X[groups == 0], X[groups == 1])
    lo, hi = distance_range(X, groups, 2)
    assert lo == pytest.approx(distance.min(), abs=1e-6)
    assert hi == pytest.approx(distance.max(), abs=1e-6)


def test_cells_are_cut_into_blocks_of_a_tile_at_most():
    blocks = _row_blocks(np.array([0, 300, 300, 812, 825]))
    assert blocks == [(0, 0, 150), (0, 150, 300), (2, 300, 556), (2, 556, 812), (3, 812, 825)]


def test_nearest_psd_drops_negative_eigenvalues_only():
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((2, 4, 4)))[0]
    values = np.array([[3.0, 1.0, -0.5, 0.0], [2.0, 5.0, 1.0, -4.0]])
    form = (vectors * values[:, None, :]) @ vectors.swapaxes(-1, -2)
    expected = (vectors * np.maximum(values, 0)[:, None, :]) @ vectors.swapaxes(-1, -2)
    np.testing.assert_allclose(nearest_psd(form), expected, atol=1e-14)
