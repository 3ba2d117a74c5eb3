import struct

import numpy as np
import pytest

from evenout.core.content import assign_folds, count_folds, row_numbers


def test_folds_are_balanced_within_groups_and_random():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat([0, 1, -1], [103, 17, 9]))
    S = rng.normal(size=(129, 4))
    folds = assign_folds(S, groups, 5, seed=1)
    for g in (0, 1, -1):
        sizes = np.bincount(folds[groups == g], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    other = assign_folds(S, groups, 5, seed=2)
    assert (folds != other).mean() > 0.5
    # No trace of the scores in the folds: the correlation of a uniformly random split is of order 1 / sqrt(n).
    assert abs(np.corrcoef(folds, S[:, 0])[0, 1]) < 0.3


def test_folds_do_not_depend_on_row_order():
    rng = np.random.default_rng(0)
    S, groups = rng.normal(size=(60, 3)), np.repeat([0, 1, 2], 20)
    S[0, 0] = 0.0
    order = rng.permutation(60)
    folds = assign_folds(S, groups, 5, seed=4)
    np.testing.assert_array_equal(assign_folds(S[order], groups[order], 5, seed=4), folds[order])
    S[0, 0] = -0.0
    np.testing.assert_array_equal(assign_folds(S, groups, 5, seed=4), folds)


def test_number_of_folds_follows_the_smallest_group():
    assert count_folds(np.repeat([0, 1, -1], [30, 3, 1])) == 3
    assert count_folds(np.repeat([0, 1], [30, 8])) == 5


def splitmix64(x):
    """The finaliser of Steele, Lea and Flood (2014), in whole numbers of any size."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_row_numbers_are_splitmix64_of_the_bits():
    S, seed = np.array([[0.0, 1.0], [-2.5, 1e300], [3.0, -1e-9]]), 7
    expected = []
    for row in S:
        number = seed
        for value in row:
            number = splitmix64(number ^ struct.unpack("<Q", struct.pack("<d", value))[0])
        expected.append(number)
    assert row_numbers(S, seed).tolist() == expected


def test_rows_of_a_group_are_dealt_in_the_order_of_their_numbers():
    rng = np.random.default_rng(0)
    S, groups = rng.normal(size=(33, 2)), rng.permutation(np.repeat([-1, 0, 1, 2], [4, 13, 9, 7]))
    folds, numbers = assign_folds(S, groups, 5, seed=3), row_numbers(S, 3)
    for group in range(-1, 3):
        rows = sorted(np.flatnonzero(groups == group), key=lambda row: numbers[row])
        assert folds[rows].tolist() == [place % 5 for place in range(len(rows))]


@pytest.fixture
def people():
    """Rows of 40 people, 1 to 6 of each: scores, groups, clusters."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(40), rng.integers(1, 7, 40))
    groups = clusters % 3 - (clusters % 11 == 0)  # some of no group
    order = rng.permutation(len(clusters))
    return rng.normal(size=(len(clusters), 2)), groups[order], clusters[order]


def test_clusters_are_dealt_whole(people):
    S, groups, clusters = people
    folds = assign_folds(S, groups, 5, 1, clusters)
    for cluster in range(40):
        assert len(set(folds[clusters == cluster])) == 1
    for group in (-1, 0, 1, 2):
        dealt = [folds[clusters == c][0] for c in range(40) if groups[clusters == c][0] == group]
        sizes = np.bincount(dealt, minlength=5)
        assert sizes.max() - sizes.min() <= 1
    assert (folds != assign_folds(S, groups, 5, 2, clusters)).mean() > 0.5


def test_folds_of_clusters_depend_on_neither_row_order_nor_their_codes(people):
    S, groups, clusters = people
    rng = np.random.default_rng(1)
    folds = assign_folds(S, groups, 5, 1, clusters)
    order, renamed = rng.permutation(len(S)), rng.permutation(40)
    moved = assign_folds(S[order], groups[order], 5, 1, renamed[clusters[order]])
    np.testing.assert_array_equal(moved, folds[order])


def test_cluster_counts_as_one_of_the_group_that_most_of_its_rows_belong_to():
    """Ten clusters with two rows of group 0 and one of group 1, and ten the other way round."""
    clusters = np.repeat(np.arange(20), 3)
    groups = np.where(np.arange(60) % 3 < 2, clusters < 10, clusters >= 10).astype(int)
    S = np.random.default_rng(0).normal(size=(60, 2))
    folds = assign_folds(S, groups, 5, 0, clusters)[::3]
    for half in (folds[:10], folds[10:]):
        np.testing.assert_array_equal(np.bincount(half, minlength=5), 2)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n_groups", [1, 3, 200])
def test_many_rows_on_threads_are_dealt_as_one_sort_deals_them(n_groups, n_threads):
    """Equal rows, which have equal numbers, in the order in which they come."""
    rng = np.random.default_rng(n_groups)
    X, groups = rng.integers(0, 60, size=(70_000, 2)).astype(float), rng.integers(-1, n_groups, 70_000)
    order = np.lexsort((row_numbers(X, 3), groups))
    dealt = [order[groups[order] == group] for group in np.unique(groups)]
    expected = np.empty(len(X), dtype=int)
    for rows in dealt:
        expected[rows] = np.arange(len(rows)) % 5
    np.testing.assert_array_equal(assign_folds(X, groups, 5, 3, n_threads=n_threads), expected)
