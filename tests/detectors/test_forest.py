import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2_contingency, ks_2samp
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
        pytest.param(load_dataset("pima").X.to_numpy(dtype=float), marks=pytest.mark.long),
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


def mixed_rows(n=300):
    """Skewed, rounded and constant features, and copies of a row."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.exponential(size=n), np.round(rng.normal(size=n)), np.ones(n), rng.normal(size=n)])
    X[-20:] = X[0]
    return X


@pytest.fixture(scope="module")
def two_growths():
    """The same number of trees by scikit-learn and by our own code, from independent random numbers."""
    X = mixed_rows()
    theirs = [Forest.fit(X, sizes=[25], random_state=seed, scikit_learn=True)[0] for seed in range(40)]
    ours = [Forest.grow(X, sizes=[25], seed=seed) for seed in range(40)]
    return X, theirs, ours


def test_grown_trees_give_the_path_lengths_of_scikit_learns(two_growths):
    X, theirs, ours = two_growths
    Q = np.concatenate([X, X[:50] * 1.5 + 0.2])  # new rows too
    a, b = (-np.log2([forest.score(Q)[:, 0] for forest in forests]) for forests in (theirs, ours))
    z = (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt((a.var(axis=0, ddof=1) + b.var(axis=0, ddof=1)) / 40)
    assert np.abs(z).max() < 4.5
    assert 0.3 < (z**2).mean() < 2.0
    assert_allclose(b.std(axis=0, ddof=1).mean(), a.std(axis=0, ddof=1).mean(), rtol=0.05)


def leaves(forests):
    """Of every tree: number of leaves, their mean depth, and the mean of the expected rest of the path."""
    told = []
    for forest in forests:
        for root in forest.root:
            stack, found = [(root, 0)], []
            while stack:
                v, level = stack.pop()
                if forest.child[v, 0] == v:
                    found.append((level, forest.length[v] - level))
                else:
                    stack += [(child, level + 1) for child in forest.child[v]]
            told.append((len(found), *np.mean(found, axis=0)))
    return np.transpose(told)


def test_grown_trees_have_leaves_like_scikit_learns(two_growths):
    _, theirs, ours = two_growths
    assert [forest.depth for forest in ours] == [forest.depth for forest in theirs] == [8] * 40
    for a, b in zip(leaves(theirs), leaves(ours), strict=True):
        assert ks_2samp(a, b).pvalue > 0.001
        assert abs(a.mean() - b.mean()) < 4 * np.sqrt((a.var() + b.var()) / len(a))


def test_grown_trees_split_first_as_scikit_learns_do(two_growths):
    _, theirs, ours = two_growths
    roots = [
        [np.concatenate([getattr(f, name)[f.root] for f in forests]) for name in ("feature", "threshold")]
        for forests in (theirs, ours)
    ]
    table = np.array([np.bincount(feature, minlength=4) for feature, _ in roots])
    assert (table[:, 2] == 0).all()  # the constant one
    assert chi2_contingency(table[:, [0, 1, 3]]).pvalue > 0.001
    for feature in (0, 1, 3):
        a, b = (threshold[chosen == feature] for chosen, threshold in roots)
        assert ks_2samp(a, b).pvalue > 0.001


def test_growth_depends_on_the_seed_alone():
    X = simulated(900)
    one, two = (Forest.grow(X, sizes=[60], seed=5, n_threads=threads) for threads in (1, 2))
    for field in dataclasses.fields(Forest):
        assert_array_equal(getattr(one, field.name), getattr(two, field.name))
    assert (Forest.grow(X, sizes=[60], seed=6).score(X) != one.score(X)).mean() > 0.9
    fewer = Forest.grow(X, sizes=[30], seed=5)
    assert_array_equal(fewer.score(X), Forest.grow(X, sizes=[30, 60], seed=5).score(X)[:, :1])


@pytest.mark.parametrize("X", [simulated(1), simulated(2), np.ones((50, 3))])
def test_growth_where_nothing_is_random_equals_scikit_learn(X):
    grown = Forest.grow(X, sizes=[3, 10], seed=0)
    assert_array_equal(grown.score(X), scikit_learn_scores(X, X, sizes=[3, 10]))


def test_growth_tells_values_apart_as_float32_does():
    X = np.array([[1.0], [1.0 + 1e-9], [2.0]])  # the first two are one number in float32
    scores = Forest.grow(X, sizes=[20], seed=0).score(X)
    assert_array_equal(scores, scikit_learn_scores(X, X, sizes=[20]))
    assert scores[0] == scores[1]
