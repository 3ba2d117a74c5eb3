"""What a fit keeps: the typical row, how well features tell the group, which move together, and a crowd."""

import numpy as np
import pytest

from evenout.fitting.result import CROWD, SHARES, Background, evenly_spaced, told
from evenout.reasons.attribution import similar_rows, typical_rows


def _background(X, codes=None, n_groups=1):
    codes = np.zeros(len(X), dtype=int) if codes is None else codes
    return Background.of(X, codes, np.arange(len(X)) % 5, n_groups)


def _beside(X, row):
    """The typical row among the rows of X most like a row."""
    background = _background(X)
    return typical_rows(background, similar_rows(background, row))[0]


def test_the_typical_row_is_made_of_medians_and_the_most_frequent_categories():
    rng = np.random.default_rng(0)
    home = np.eye(3)[rng.choice(3, 500, p=[0.4, 0.35, 0.25])]  # no category has half of the rows
    X = np.column_stack([rng.normal(size=500), rng.integers(0, 9, 500), home])
    typical = _background(X).typical
    assert typical[0] == np.sort(X[:, 0])[249]
    assert typical[1] in X[:, 1]
    assert typical[2:].tolist() == np.eye(3)[home.sum(axis=0).argmax()].tolist()


def test_a_group_is_told_as_well_as_the_best_guess_could():
    """Two groups, normal with means 0 and 2: the best guess is right in Phi(1) = 84 % of the rows."""
    rng = np.random.default_rng(1)
    codes = (rng.random(20_000) < 0.2).astype(int)  # sizes must not matter
    X = np.column_stack([rng.normal(size=20_000) + 2 * codes, rng.normal(size=20_000), codes])
    background = _background(X, codes, 2)
    right = 0.5 + background.tells / 2
    assert right[0] == pytest.approx(0.841, abs=0.01)
    assert right[1] == pytest.approx(0.5, abs=0.01)
    assert right[2] == 1.0


def test_nothing_is_told_by_chance_nor_of_one_group():
    rng = np.random.default_rng(2)
    told_by_chance = [
        told(column, np.quantile(column, np.linspace(0, 1, 107)), rng.integers(0, 3, 90), np.arange(90) % 5, 3)
        for column in rng.normal(size=(200, 90))
    ]
    assert np.mean(told_by_chance) < 0.06  # a mean of zeros and of what chance has above 0
    assert _background(rng.normal(size=(50, 2))).tells.tolist() == [0.0, 0.0]


def test_a_column_that_always_tells_the_group_is_at_one_and_not_a_rounding_beyond():
    column = np.tile(np.arange(10.0), 4)  # shares of a fifth, ten of them
    levels = np.quantile(column, SHARES, method="inverted_cdf")
    assert told(column, levels, (column // 5).astype(int), np.repeat(np.arange(4), 10), 2) == 1.0


def test_columns_move_together_in_chains():
    rng = np.random.default_rng(3)
    one = rng.normal(size=2000)
    X = np.column_stack([one, -np.exp(one), rng.normal(size=2000), one + 0.3 * rng.normal(size=2000)])
    kin = _background(X).kin
    assert kin[0] == kin[1] == kin[3] != kin[2]


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(4)
    X, codes, folds = rng.normal(size=(3000, 3)), rng.integers(0, 2, 3000), rng.integers(0, 5, 3000)
    order = rng.permutation(3000)
    one, other = Background.of(X, codes, folds, 2), Background.of(X[order], codes[order], folds[order], 2)
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)
    assert len(one.crowd) == CROWD
    assert len(evenly_spaced(X[:5], 10)) == 5


def test_the_company_of_a_row_is_ordinary_where_the_row_is_not():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(800, 4))
    X[:, 1] = X[:, 0] + 0.05 * rng.normal(size=800)
    row = np.array([[1.5, -2.0, 0.0, 0.0]])  # the second does not go with the first
    beside = _beside(X, row)
    assert beside[0] == pytest.approx(beside[1], abs=0.3)
    far = np.array([[0.0, 0.0, 50.0, 1.0]])
    beside = _beside(X, far)
    assert abs(beside[2]) < 2
    assert beside[3] == pytest.approx(1.0, abs=0.6)


def test_a_training_row_is_no_company_of_its_own():
    X = np.arange(8.0)[:, None] ** 2
    assert similar_rows(_background(X), X[7:]).shape == (1, 2)
    assert _beside(X, X[7:])[0] == 25.0  # of 25 and 36, and not of 36 and 49
