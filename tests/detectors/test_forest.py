import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import IsolationForest

from evenout.datasets import load_dataset
from evenout.detectors.forest import Forest, average_path_length

SIZES = (25, 50, 75, 100, 125, 150, 175)


def simulated(n=600, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.arange(1, d + 1)


def scikit_learn_scores(X, Q, sizes=SIZES, seed=0):
    forests = [IsolationForest(n_estimators=size, random_state=seed).fit(X) for size in sizes]
    return np.column_stack([-forest.score_samples(Q) for forest in forests])


@pytest.mark.parametrize(
    "X",
    [
        simulated(),
        load_dataset("pima").X.to_numpy(dtype=float),
        load_dataset("german").X.to_numpy(dtype=float),
    ],
    ids=["simulated", "pima", "german"],
)
def test_all_sizes_equal_scikit_learn_bit_for_bit(X):
    forest, scores = Forest.fit(X, sizes=SIZES, random_state=7)
    Q = np.concatenate([X[:100] * 1.01, X[-100:] + 0.3])
    expected = scikit_learn_scores(X, np.concatenate([X, Q]), seed=7)
    assert_array_equal(np.concatenate([scores, forest.score(Q)]), expected)


def test_rows_at_a_threshold_go_the_way_of_scikit_learn():
    X = simulated(400, 2)
    forest, _ = Forest.fit(X, sizes=[25], random_state=0)
    at = forest.threshold[forest.child[:, 0] != np.arange(len(forest.threshold))][:500]
    Q = np.concatenate([np.column_stack([np.nextafter(at, side), at]) for side in (-np.inf, np.inf)])
    assert_array_equal(forest.score(Q), scikit_learn_scores(X, Q, sizes=[25]))


@pytest.mark.parametrize("X", [simulated(1), simulated(2), simulated(3), np.ones((50, 3)), simulated(300, 1)])
def test_few_rows_equal_rows_and_one_feature_equal_scikit_learn(X):
    forest, scores = Forest.fit(X, sizes=[3, 10], random_state=1)
    assert_array_equal(scores, scikit_learn_scores(X, X, sizes=[3, 10], seed=1))
    assert_array_equal(forest.score(X + 1.0), scikit_learn_scores(X, X + 1.0, sizes=[3, 10], seed=1))


def test_large_values_equal_scikit_learn():
    X = simulated(300, 3) * np.array([1e-300, 1.0, 1e29])
    _, scores = Forest.fit(X, sizes=[25], random_state=0)
    assert_array_equal(scores, scikit_learn_scores(X, X, sizes=[25]))


def test_sizes_may_come_in_any_order():
    X = simulated()
    _, ascending = Forest.fit(X, sizes=[10, 20, 30], random_state=0)
    _, mixed = Forest.fit(X, sizes=[30, 10, 30, 20], random_state=0)
    assert_array_equal(mixed, ascending[:, [2, 0, 2, 1]])


def test_training_rows_score_as_in_training_whatever_the_threads_and_batches():
    X = simulated(2500)
    forest, scores = Forest.fit(X, sizes=SIZES, random_state=0, n_threads=2)
    assert_array_equal(forest.score(X), scores)
    assert_array_equal(np.concatenate([forest.score(X[:1]), forest.score(X[1:])]), scores)
    assert forest.score(X[:0]).shape == (0, len(SIZES))


def test_read_only_and_memory_mapped_rows_are_accepted(tmp_path):
    X = simulated(300)
    _, scores = Forest.fit(X, sizes=[25], random_state=0)
    np.save(tmp_path / "X.npy", X)
    X.flags.writeable = False
    for rows in (X, np.load(tmp_path / "X.npy", mmap_mode="r")):
        forest, same = Forest.fit(rows, sizes=[25], random_state=0)
        assert_array_equal(same, scores)
        assert_array_equal(forest.score(rows), scores)


def test_learned_state_is_plain_arrays_and_numbers():
    X = simulated(300)
    forest, scores = Forest.fit(X, sizes=[25, 50], random_state=0)
    state = {field.name: getattr(forest, field.name) for field in dataclasses.fields(forest)}
    assert all(type(value) in (np.ndarray, int) for value in state.values())
    assert forest.child.dtype == forest.feature.dtype == np.int32
    assert_array_equal(Forest(**state).score(X), scores)


def test_average_path_length_is_the_mean_depth_of_random_search_trees():
    # c(m) = 2 H(m - 1) - 2 (m - 1) / m, with the harmonic number H in its asymptotic form
    m = np.array([1, 2, 10, 256])
    harmonic = np.array([sum(1.0 / j for j in range(1, size)) for size in m])
    exact = 2.0 * harmonic - 2.0 * (m - 1) / m
    assert_array_equal(average_path_length(m)[:2], [0.0, 1.0])
    assert_allclose(average_path_length(m)[2:], exact[2:], rtol=0.04)
    assert_allclose(average_path_length(m)[3], exact[3], rtol=5e-4)
