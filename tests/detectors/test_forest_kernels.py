import numpy as np
import pytest

from evenout.detectors._tree_kernels import (
    add_seen_paths,
    divide_fold,
    draw_threshold,
    grow_fold_trees,
    shuffle_next,
    uniform,
)


@pytest.fixture(autouse=True)
def _wrap_around():
    with np.errstate(over="ignore"):  # where nothing is compiled, numpy warns of what the generator relies on
        yield


def seeded(number):
    return np.array([number], dtype=np.uint64)


def test_numbers_are_those_of_splitmix64():
    # The first outputs of the published generator for the seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    state = seeded(1234567)
    assert [uniform(state) for _ in expected] == [(x >> 11) * 2.0**-53 for x in expected]


def test_a_shuffle_leaves_earlier_places_alone_and_reaches_all_later_ones():
    found = set()
    for seed in range(60):
        items = np.arange(5)
        shuffle_next(items, 2, seeded(seed))
        assert items[:2].tolist() == [0, 1]
        assert sorted(items) == [0, 1, 2, 3, 4]
        found.add(int(items[2]))
    assert found == {2, 3, 4}


def test_thresholds_lie_between_the_values_of_the_rows():
    X = np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 5.0], [2.0, 5.0 + 2e-8]], dtype=np.float32)
    rows = np.array([0, 1, 3])
    drawn = [draw_threshold(X, rows, 0, seeded(seed)) for seed in range(200)]
    assert 1.0 <= min(drawn) < 1.1
    assert 2.9 < max(drawn) < 3.0
    assert np.isnan(draw_threshold(X, rows, 1, seeded(0)))


def test_rows_at_most_at_the_threshold_come_first():
    X = np.array([[1.0], [3.0], [9.0], [2.0]], dtype=np.float32)
    rows = np.array([2, 1, 0, 3])
    assert divide_fold(X, rows, 0, 2.0) == 2
    assert set(rows[:2]) == {0, 3}
    assert divide_fold(X, rows, 0, 0.5) == 0


def test_a_tree_of_three_rows_isolates_them():
    X = np.array([[0.0], [1.0], [10.0]], dtype=np.float32)
    feature, threshold, level, size = (np.zeros(5, dtype=t) for t in (np.int32, float, np.intp, np.intp))
    child = np.repeat(np.arange(5, dtype=np.int32)[:, None], 2, axis=1)
    grow_fold_trees(X, seeded(3), 0, 1, 3, 2, feature, threshold, child, level, size)
    assert child[0].tolist() == [1, 2]
    assert sorted(size) == [1, 1, 1, 2, 3]
    assert sorted(level) == [0, 1, 1, 2, 2]
    parent = int(np.flatnonzero(size == 2)[0])
    assert child[parent].tolist() == [3, 4]
    assert (child[[v for v in range(1, 5) if v != parent]][:, 0] != parent).all()


def test_a_tree_stops_at_its_depth():
    X = np.arange(4, dtype=np.float32)[:, None]
    feature, threshold, level, size = (np.zeros(7, dtype=t) for t in (np.int32, float, np.intp, np.intp))
    child = np.repeat(np.arange(7, dtype=np.int32)[:, None], 2, axis=1)
    grow_fold_trees(X, seeded(0), 0, 1, 4, 1, feature, threshold, child, level, size)
    assert level.tolist() == [0, 1, 1, 0, 0, 0, 0]
    assert size[0] == size[1] + size[2] == 4


def test_paths_are_added_for_the_rows_that_a_tree_has_drawn():
    X = np.array([[0.0], [2.0], [4.0]], dtype=np.float32)
    # Two trees of one split each, at 1 and at 3; lengths tell the leaves apart.
    feature, root = np.zeros(6, dtype=np.int32), np.array([0, 3])
    threshold, length = np.array([1.0, 0, 0, 3.0, 0, 0]), np.array([0.0, 1, 2, 0, 10, 20])
    child = np.array([[1, 2], [1, 1], [2, 2], [4, 5], [4, 4], [5, 5]], dtype=np.int32)
    seen, total = np.zeros((2, 3), dtype=np.intp), np.zeros((2, 3))
    drawn, sizes = np.array([[0, 1], [1, 2]]), np.array([1, 2])
    add_seen_paths(X, feature, threshold, child, length, root, drawn, sizes, seen, total)
    assert seen.tolist() == [[1, 1, 0], [1, 2, 1]]
    assert total.tolist() == [[1, 2, 0], [1, 12, 20]]
