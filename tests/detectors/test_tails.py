import numpy as np
import pytest

from evenout.detectors.tails import Sides, Tails

X = np.array([[1.0, 7.0, 5.0], [2.0, 7.0, 5.0], [3.0, 7.0, 6.0], [4.0, 7.0, 5.0]])


def test_tail_scores_by_hand():
    fitted, scores = Tails.fit(X)
    assert fitted.features.tolist() == [0, 2]  # the second feature is constant
    np.testing.assert_allclose(scores[:, 0], -np.log([0.5, 1.0, 1.0, 0.5]))
    np.testing.assert_allclose(scores[:, 1], -np.log([1.0, 1.0, 0.5, 1.0]))


def test_training_rows_score_as_in_training():
    rows = np.random.default_rng(0).normal(size=(50, 3)).round(1)
    fitted, scores = Tails.fit(rows)
    np.testing.assert_array_equal(fitted.score(rows), scores)


def test_rows_beyond_the_range_are_told_apart():
    fitted, scores = Tails.fit(X)
    far = fitted.score(np.array([[5.0, 0, 5], [9.0, 0, 5], [-40.0, 0, 5]]))[:, 0]
    assert scores[:, 0].max() < far[0] < far[1] < far[2]
    assert far[0] == pytest.approx(-np.log(0.25) + np.log1p(1 / 3))


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(1)
    rows, order = rng.normal(size=(40, 2)), rng.permutation(40)
    np.testing.assert_array_equal(Tails.fit(rows[order])[1], Tails.fit(rows)[1][order])


def test_constant_data_have_no_column():
    assert Tails.fit(np.ones((5, 2)))[1].shape == (5, 0)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("family", [Tails, Sides])
def test_rows_without_a_fold_score_as_new_rows_among_the_others(family, n_threads):
    rng = np.random.default_rng(2)
    rows = np.column_stack(
        [rng.normal(size=(300, 2)), rng.integers(0, 4, 300), np.where(rng.random(300) < 0.5, -0.0, 0)]
    )
    rows[:2] = [[9.0, 0.0, 3.0, 1e-300], [-9.0, 1e200, -5.0, 1.0]]
    folds = rng.integers(0, 3, 300)
    folds[0], folds[1] = 0, 1
    fitted, scores, without = family.cross_fit(rows, folds, n_threads=n_threads)
    np.testing.assert_array_equal(fitted.known, np.sort(rows, axis=0))
    np.testing.assert_array_equal(family(fitted.features, np.sort(rows, axis=0)).score(rows), scores)
    for fold in range(3):
        others = family(fitted.features, np.sort(rows[folds != fold], axis=0))
        np.testing.assert_array_equal(without(fold), others.score(rows))
