"""Compiled trees against scikit-learn's own: the same arrays, bit for bit."""

from dataclasses import fields

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.tree import ExtraTreeRegressor
from sklearn.utils.random import sample_without_replacement

from evenout.detectors._tree_kernels import (
    WORDS,
    divide,
    draw_rows,
    first_words,
    next_state,
    next_words,
    variances,
)
from evenout.detectors.forest import Forest, _draw, _grow, grow, of_scikit_learn


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def rounded(n, d):
    return np.round(normal(n, d))


def with_constants(n, d):
    X = normal(n, d)
    X[:, ::2] = 3.0
    return X


def with_copies(n, d):
    return normal(n, d)[np.random.default_rng(1).integers(0, n // 10 + 1, size=n)]


def close_in_float32(n, d):
    return 1.0 + 1e-7 * np.random.default_rng(2).integers(0, 5, size=(n, d))


def wide(n, d):
    return normal(n, d) * 10.0 ** np.linspace(-30, 30, d)


def huge(n, d):
    return np.sign(normal(n, d)) * 3e38 * np.random.default_rng(3).uniform(0.5, 1.0, size=(n, d))


def sparse(n, d):
    """Features that are constant in most nodes, and are known to be so further down."""
    return normal(n, d) * (np.random.default_rng(4).random((n, d)) < 0.03)


def assert_same(a, b):
    """Forests whose trees, and rows drawn for them, are the same."""
    for field in fields(Forest):
        assert_array_equal(getattr(a[0], field.name), getattr(b[0], field.name), err_msg=field.name)
    assert_array_equal(a[1], b[1])


def splits_closer_than_1e_7():
    """Whether scikit-learn does so: its releases 1.6 and 1.7 meant to take such values as equal, and did not."""
    return of_scikit_learn(np.array([[0.0], [5e-8]]), [1], 0)[0].depth > 0


@pytest.mark.parametrize("make", [normal, rounded, with_constants, with_copies, close_in_float32, wide, huge, sparse])
@pytest.mark.parametrize(("n", "d"), [(90, 5), (700, 12)])
def test_trees_are_those_of_scikit_learn(make, n, d):
    if make in (close_in_float32, wide) and splits_closer_than_1e_7():
        pytest.skip("this release of scikit-learn splits values closer than 1e-7")
    X = make(n, d)
    for seed in (0, 2**32 - 1):
        assert_same(grow(X, [12], seed, n_threads=2), of_scikit_learn(X, [12], seed))


# Rows are drawn in another way up to 256 rows, up to 258, up to 25,599 and beyond.
@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 257, 258, 259, 25_599, 25_600, 70_000])
def test_trees_are_those_of_scikit_learn_for_any_number_of_rows(n):
    X = normal(n, 3)
    assert_same(grow(X, [5], 3), of_scikit_learn(X, [5], 3))


@pytest.mark.parametrize("d", [1, 2, 300])
def test_trees_are_those_of_scikit_learn_for_any_number_of_features(d):
    X = normal(400, d)
    assert_same(grow(X, [5], 1), of_scikit_learn(X, [5], 1))


def test_equal_rows_make_trees_of_one_leaf():
    forest, drawn = grow(np.full((300, 4), 2.5), [7], 0)
    assert_array_equal(forest.root, np.arange(7))
    assert_array_equal(forest.child, np.column_stack([np.arange(7)] * 2))
    assert_same((forest, drawn), of_scikit_learn(np.full((300, 4), 2.5), [7], 0))


def test_threads_and_the_layout_of_rows_change_nothing():
    X = normal(900, 6)
    one = grow(X, [41], 5)
    for rows, threads in ((X, 2), (X, 5), (np.asfortranarray(X), 1)):
        assert_same(grow(rows, [41], 5, n_threads=threads), one)
    fewer = grow(X, [20], 5)[0].threshold
    assert_array_equal(fewer, one[0].threshold[: len(fewer)])


def nearly_equal(n):
    return 0.5 + 2e-7 * np.random.default_rng(0).uniform(size=n)


def few_values(n):
    return np.random.default_rng(0).integers(0, 3, size=n) / 3.0


def balanced(n):
    """Splits that leave the variance as it is are frequent."""
    return np.arange(n) % 2 + 1e-8 * np.random.default_rng(0).uniform(size=n)


@pytest.mark.parametrize("make", [nearly_equal, few_values, balanced])
def test_the_target_decides_as_in_scikit_learn(make):
    """In a forest it is uniform and decides nothing but by rare chance; here it decides often."""
    n, d, depth = 200, 3, 8
    X, y = rounded(n, d), make(n)
    leaves_by_target = 0
    for seed in range(60):
        tree = ExtraTreeRegressor(max_features=1, max_depth=depth, random_state=seed).fit(X, y).tree_
        states = np.array([np.random.RandomState(seed).randint(0, 2**31 - 1)], dtype=np.int64)
        _, threshold, child, level, size, _ = _grow(X, y, np.arange(n)[None], states, depth)
        leaf = child[:, 0] == np.arange(len(child))
        assert_array_equal(threshold, tree.threshold)
        assert_array_equal(np.where(leaf, -1, child.T), [tree.children_left, tree.children_right])
        assert_array_equal(size, tree.n_node_samples)
        leaves_by_target += ((size > 1) & (level < depth) & leaf).sum()
    assert leaves_by_target > 60


@pytest.mark.parametrize("n", [256, 300, 3000, 25_600, 10**6])
def test_rows_are_drawn_as_scikit_learn_draws_them(n):
    seeds = np.array([0, 1, 12345, 2**31 - 2])
    drawn, states = _draw(seeds, n, 256)
    for rows, state, seed in zip(drawn, states, seeds, strict=True):
        assert_array_equal(rows, np.sort(sample_without_replacement(n, 256, random_state=int(seed))))
        of_tree = np.random.RandomState(seed).randint(2**31 - 1)
        assert state == np.random.RandomState(of_tree).randint(0, 2**31 - 1)


@pytest.mark.parametrize("m", [1, 100, 256])
@pytest.mark.parametrize("n", [257, 259, 511, 512, 513, 1023, 1024, 1025, 16_383, 16_384, 16_385, 20_000, 25_599])
def test_shuffled_rows_are_the_first_of_numpys_permutation(n, m):
    """From each power of two on words are cut to fewer bits; what is too large stays in the room of twice n."""
    seeds, words = np.array([0, 1, 2, 3, 12345, 2**31 - 2]), np.empty((2, WORDS), dtype=np.uint32)
    drawn, line = np.empty((len(seeds), m), dtype=np.intp), np.full(2 * n + 2**16, 77, dtype=np.uint16)
    draw_rows(seeds, n, 2 ** (n - 1).bit_length() - 1, *words, line, drawn, np.empty(len(seeds), dtype=np.int64))
    expected = [np.random.RandomState(seed).permutation(n)[:m] for seed in seeds]
    assert_array_equal(np.sort(drawn, axis=1), np.sort(expected, axis=1))
    assert_array_equal(line[2 * n :], 77)


def test_words_are_those_of_numpys_mersenne_twister():
    state, words = np.empty(WORDS, dtype=np.uint32), np.empty(WORDS, dtype=np.uint32)
    expected = np.random.RandomState(4321).randint(0, 2**32, size=3 * WORDS, dtype=np.uint32)
    assert first_words(4321, state, words) == np.random.RandomState(4321).randint(2**31 - 1)
    for turn in range(3):
        assert_array_equal(words, expected[turn * WORDS : (turn + 1) * WORDS])
        next_words(state, words)


def test_states_are_those_of_the_published_xorshift():
    # Marsaglia, Xorshift RNGs (2003): the triple 13, 17, 5 from 2463534242.
    assert next_state(2463534242) == 723471715
    assert next_state(0) == next_state(1) == 270369


def test_rows_at_most_at_the_threshold_come_first():
    values = np.array([9.0, 3.0, 1.0, 2.0], dtype=np.float32)
    rows, target = np.arange(4), np.arange(4.0)
    assert divide(rows, values, target, 0, 4, 2.0) == 2
    assert set(rows[:2]) == {2, 3}
    assert_array_equal(target, rows)
    assert divide(rows, values, target, 0, 4, 0.5) == 0


@pytest.mark.parametrize("middle", [2, 5, 9])
def test_variances_are_those_of_both_parts(middle):
    y = np.random.default_rng(0).uniform(size=12)
    found = variances(y, 1, middle, 11, y[1:11].sum(), (y[1:11] ** 2).sum())
    np.testing.assert_allclose(found, [y[1:middle].var(), y[middle:11].var()], rtol=1e-10)
