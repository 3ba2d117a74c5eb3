"""Units: hand-worked spreads, categories as one feature, and units of a table that do not matter at all."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset
from evenout.detectors.pool import cross_fit_pool, fit_pool, standard_units
from evenout.detectors.units import GRID, NORMAL_IQR, Measures, Ranges, Units, _exact_sum
from evenout.exceptions import ConstantFeatureWarning


def other_units(X, seed, offset=100.0):
    """Each column in another unit, from another zero: up to a million times, up to some hundred spreads away."""
    rng = np.random.default_rng(seed)
    factor = 10.0 ** rng.uniform(-6, 6, X.shape[1])
    return X * factor + offset * rng.normal(size=X.shape[1]) * factor * X.std(axis=0)


def test_threads_change_nothing():
    rng = np.random.default_rng(8)
    X = np.column_stack([rng.standard_cauchy((40_000, 2)), np.eye(3)[rng.integers(0, 3, 40_000)], np.ones(40_000)])
    one, three = Units.fit(X), Units.fit(X, n_threads=3)
    for name in ("kept", "centre", "spread"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))
    np.testing.assert_array_equal(one.apply(X), three.apply(X, n_threads=3))


def test_numbers_are_centred_at_the_median_and_divided_by_the_quartiles():
    X = np.array([[1.0], [2.0], [3.0], [4.0], [50.0]])
    units = Units.fit(X)
    assert units.centre == [3.0]
    assert_allclose(units.spread, 2.0 / NORMAL_IQR)  # quartiles 2 and 4
    assert_allclose(units.apply(X)[:, 0], np.array([-2, -1, 0, 1, 47]) * NORMAL_IQR / 2, rtol=1e-6)


def test_normal_numbers_have_variance_1():
    X = np.random.default_rng(0).normal(5.0, 3.0, size=(100_000, 1))
    assert_allclose(Units.fit(X).apply(X).std(), 1.0, rtol=0.01)


def test_even_samples_interpolate():
    units = Units.fit(np.array([[0.0], [1.0], [2.0], [7.0]]))
    assert units.centre == [1.5]
    assert_allclose(units.spread, (3.25 - 0.75) / NORMAL_IQR)


def test_where_quartiles_agree_the_standard_deviation_serves():
    X = np.array([0.0] * 8 + [1.0, 3.0])[:, None]
    assert_allclose(Units.fit(X).spread, X.std())
    assert Units.fit(X).centre == [0.0]


@pytest.mark.parametrize("unit", [1e-200, 1e-5, 1.0, 1e29])
def test_no_square_leaves_the_floating_point_range(unit):
    X = np.array([0.0] * 8 + [1.0, 3.0])[:, None]
    assert_array_equal(Units.fit(X * unit).apply(X * unit), Units.fit(X).apply(X))


def test_two_values_lie_as_far_apart_as_two_numbers_do():
    """Two independent numbers of variance 1 differ by sqrt(2) in root mean square."""
    X = np.array([[7.0, 0.0], [9.0, 0.0], [9.0, 1.0], [9.0, 0.0]])
    z = Units.fit(X).apply(X)
    assert_allclose(z, np.array([[0, 0], [1, 0], [1, 1], [1, 0]]) * np.sqrt(2), atol=GRID)


def test_a_category_counts_as_one_feature_however_many_columns_it_has():
    rng = np.random.default_rng(0)
    codes = rng.integers(5, size=200)
    number = rng.normal(size=(200, 1))
    X = np.hstack([number, np.eye(5)[codes], rng.integers(2, size=(200, 1))])
    z = Units.fit(X).apply(X)[:, 1:6]
    apart = np.linalg.norm(z[:, None] - z[None], axis=2)
    assert_allclose(apart, np.where(codes[:, None] == codes[None], 0.0, np.sqrt(2)), atol=1e-12)


def test_columns_of_0_and_1_are_no_category_unless_they_sum_to_1():
    X = np.array([[1.0, 0], [1, 1], [0, 1], [0, 0]])
    assert_allclose(Units.fit(X).spread, [1 / np.sqrt(2)] * 2)
    X = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    assert_allclose(Units.fit(X).spread, [1.0, 1.0])


def test_a_category_that_no_row_has_does_not_break_its_block():
    X = np.array([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]])
    units = Units.fit(X)
    assert units.kept.tolist() == [0, 2]
    assert_allclose(units.spread, [1.0, 1.0])


def test_constant_columns_are_dropped_and_named_once():
    X = np.array([[1.0, 5.0, 0.1, 2.0], [2.0, 5.0, 0.1, 1.0], [3.0, 5.0, 0.1, 7.0]])
    with pytest.warns(ConstantFeatureWarning, match="dropped: age, x2$") as caught:
        units = standard_units("paper", X, ["a", "age", "x2", "b"])
    assert len(caught) == 1
    assert units.kept.tolist() == [0, 3]


def test_where_nothing_varies_one_column_of_zeros_is_left():
    X = np.full((6, 3), 4.0)
    assert_array_equal(Units.fit(X).apply(X), np.zeros((6, 1)))


def test_rounding_is_monotone_and_fits_into_single_precision():
    X = np.r_[np.random.default_rng(1).standard_cauchy(size=5000), 1e25][:, None]
    z = Units.fit(X).apply(X)
    assert (np.diff(z[np.argsort(X[:, 0])], axis=0) >= 0).all()
    assert_array_equal(z.astype(np.float32).astype(float), z)
    near = np.abs(z) < 1
    assert_array_equal(z[near] / GRID, np.rint(z[near] / GRID))


def test_new_rows_beyond_all_bounds_stay_finite():
    X = np.random.default_rng(0).normal(size=(50, 1)) * 1e-240
    assert np.isfinite(Units.fit(X).apply(np.array([[1e30], [-1e30]])) ** 2).all()


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(2)
    X, order = rng.normal(size=(101, 4)), rng.permutation(101)
    assert_array_equal(Units.fit(X[order]).apply(X), Units.fit(X).apply(X))


@pytest.mark.parametrize("name", ["breastw", "german", "cardio", "communities", "credit"])
def test_units_of_a_real_table_change_nothing(name):
    X = load_dataset(name).X.to_numpy()
    expected = Units.fit(X).apply(X)
    for seed in range(5):
        changed = other_units(X, seed)
        assert_array_equal(Units.fit(changed).apply(changed), expected)


@pytest.mark.parametrize("detectors", ["paper", "diverse", "default"])
@pytest.mark.parametrize("name", ["breastw", pytest.param("credit", marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_units_change_no_score_at_all(name, detectors):
    """Base and fair score, weights and stated bias, of training and of new rows, bit for bit."""
    data = load_dataset(name)
    rows = np.random.default_rng(0).permutation(len(data.X))[:3000]
    X, groups = data.X.to_numpy()[rows], np.asarray(data.sensitive)[rows]
    changed, half = other_units(X, seed=3), len(X) // 2
    models = []
    for table in (X, changed):
        model = FairOutlierEnsemble(detectors, standardize=True, random_state=0, bias_reduction=0.5)
        models.append(model.fit(table[:half], sensitive_features=groups[:half]))
    first, second = models
    assert first.alpha_ == second.alpha_
    assert_array_equal(first.target_, second.target_)
    assert_array_equal(first.outlier_scores_, second.outlier_scores_)
    assert_array_equal(first.outlier_scores(X[half:]), second.outlier_scores(changed[half:]))


def test_without_units_the_unit_decides():
    """What the test above would find otherwise."""
    data = load_dataset("breastw")
    X = data.X.to_numpy()
    plain, changed = (fit_pool("paper", table, seed=0)[1] for table in (X, other_units(X, seed=3)))
    assert not np.allclose(plain[:, :6], changed[:, :6])


def test_given_detectors_see_the_rows_as_they_are():
    X = np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 50.0, 1e4]
    units = standard_units(["default", _norm], X)
    folds = np.arange(60) % 3
    pool, raw, without = cross_fit_pool(["default", _norm], X, folds, seed=0, units=units)
    assert_array_equal(raw[:, -1], _norm(X))
    assert_array_equal(without(1)[:, -1], _norm(X))
    inside, expected = fit_pool("default", units.apply(X), seed=0)
    assert_array_equal(raw[:, :-1], expected)
    new = X[:7] + 0.5
    assert_array_equal(pool.score(new)[:, :-1], inside.score(units.apply(new)))
    assert_array_equal(pool.score(new)[:, -1], _norm(new))


def test_detectors_and_scores_that_are_given_have_no_units():
    X = np.random.default_rng(0).normal(size=(30, 2))
    assert standard_units([_norm], X) is None
    assert standard_units("precomputed", X) is None
    assert isinstance(standard_units([_norm, "paper"], X), Units)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_constant_column_changes_nothing():
    data = load_dataset("breastw")
    X = data.X.assign(always=3.0)
    model = FairOutlierEnsemble(standardize=True, random_state=0)
    without = model.fit(data.X, sensitive_features=data.sensitive).outlier_scores_
    assert_array_equal(model.fit(X, sensitive_features=data.sensitive).outlier_scores_, without)
    assert_array_equal(model.outlier_scores(X), without)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_columns_carry_the_names_of_their_features():
    data = load_dataset("breastw")
    X = pd.DataFrame({"always": 1.0, **data.X})
    model = FairOutlierEnsemble("default", standardize=True, random_state=0)
    model.fit(X, sensitive_features=data.sensitive)
    assert [n for n in model.detector_names_ if n.startswith("tail")] == [f"tail:{n}" for n in data.X.columns]
    model.fit(X.to_numpy(), sensitive_features=data.sensitive)
    assert model.detector_names_[-9:] == tuple(f"tail:x{j}" for j in range(1, 10))


@pytest.mark.parametrize("wrong", [1, None, "yes"])
def test_standardize_is_true_or_false(wrong):
    X, a = np.random.default_rng(0).normal(size=(80, 2)), np.arange(80) % 2
    with pytest.raises(ValueError, match=r"standardize=.* is not allowed; use True or False"):
        FairOutlierEnsemble(standardize=wrong).fit(X, sensitive_features=a)


def test_the_published_settings_leave_the_features_alone():
    assert FairOutlierEnsemble.paper().standardize is False


def _norm(X):
    return np.abs(X).sum(axis=1)


def test_differences_beyond_what_numbers_can_tell_are_none():
    X = np.array([[1e-300], [-1e-300], [1e-300], [-1e-300]])
    assert Units.fit(X).spread == [1.0]
    assert_array_equal(Units.fit(X).apply(X), np.zeros((4, 1)))


def mixed(n, seed):
    """Every kind of column: numbers, zeros and a few amounts, ties, two values, categories, one value, wild ones."""
    rng = np.random.default_rng(seed)
    zeros = np.where(rng.random(n) < 0.8, 0.0, rng.pareto(1.0, n) * 1e3)
    columns = [rng.normal(5.0, 2.0, n), zeros, rng.integers(0, 4, n) / 3.0, np.where(rng.random(n) < 0.2, 7.0, -2.0)]
    category = np.eye(4)[rng.integers(4, size=n)]
    return np.column_stack([*columns, category, np.full(n, 0.1), rng.standard_cauchy(n), rng.integers(0, 2, (n, 3))])


def in_parts(X, cuts, capacity, narrow=None):
    """Units by two looks at parts of the rows."""
    parts = np.split(X, cuts)
    ranges = [Ranges.of(part, capacity) for part in parts]
    outline = sum(ranges[1:], ranges[0]).outline()
    measures = [Measures.of(part, outline, narrow) for part in parts]
    return sum(measures[1:], measures[0])


@pytest.mark.parametrize("n", [3, 50, 3001])
@pytest.mark.parametrize("capacity", [None, 16, 200])
def test_units_of_parts_are_those_of_all_rows_bit_for_bit(n, capacity):
    for seed in range(5):
        X, rng = mixed(n, seed), np.random.default_rng(seed)
        right = Units.fit(X)
        cuts = np.sort(rng.integers(0, n + 1, size=6))  # empty parts too
        found = in_parts(X[rng.permutation(n)], cuts, capacity).units()
        for name in ("kept", "centre", "spread"):
            assert_array_equal(getattr(found, name), getattr(right, name))


def test_quartiles_of_a_second_sketch_are_within_its_error():
    X = np.random.default_rng(0).lognormal(size=(40_000, 2))
    measures = in_parts(X, np.arange(2000, 40_000, 2000), capacity=32, narrow=32)
    parts = [quartile.between for column in measures.quartiles for quartile in column]
    error = max(part.rank_error * part.count for part in parts) / len(X)
    assert 0 < error < 0.01
    found, quantiles = measures.units(), np.quantile(X, [0.25, 0.5, 0.75], axis=0)
    ranks = [(X[:, j] <= found.centre[j]).mean() for j in range(2)]
    assert np.abs(np.array(ranks) - 0.5).max() <= error + 1e-4
    assert_allclose(found.spread, (quantiles[2] - quantiles[0]) / NORMAL_IQR, rtol=0.05)


def test_one_hot_columns_are_those_that_sum_to_1_in_every_row():
    """Against the definition, tried on all runs of columns from left to right."""
    rng, told = np.random.default_rng(3), 0
    for _ in range(400):
        n, blocks = int(rng.integers(4, 12)), []
        for _ in range(rng.integers(1, 4)):
            width = int(rng.integers(1, 4))
            category = np.eye(width)[rng.integers(width, size=n)]
            blocks.append(np.where(rng.random((n, width)) < rng.choice([0.0, 0.05]), 1.0 - category, category))
        X = np.hstack(blocks)
        units = Units.fit(X)
        expected = one_hot_by_sums(X[:, units.kept]) if X.std(axis=0).any() else np.ones(1, dtype=bool)
        told += expected.sum()
        assert_array_equal(units.spread == 1.0, expected)
    assert told > 100


def one_hot_by_sums(X):
    found, start = np.zeros(X.shape[1], dtype=bool), 0
    while start < X.shape[1]:
        stops = [stop for stop in range(start + 1, X.shape[1] + 1) if (X[:, start:stop].sum(axis=1) == 1.0).all()]
        if stops:
            found[start : stops[0]] = True
        start = stops[0] if stops else start + 1
    return found


def test_sums_of_shares_are_exact_in_any_order_and_any_parts():
    rng = np.random.default_rng(0)
    values = rng.random(20_000) ** 8
    whole = _exact_sum(values)
    for _ in range(5):
        parts = np.array_split(rng.permutation(values), 7)
        assert tuple(np.sum([_exact_sum(part) for part in parts], axis=0)) == whole
    error = sum(map(Fraction, values.tolist())) - sum(map(Fraction, whole))
    assert abs(error) <= len(values) * Fraction(1, 2**58)
