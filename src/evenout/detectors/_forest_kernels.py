"""Compiled passes over the trees of an isolation forest: rows walk down, trees are grown."""

from typing import Any

import numpy as np

from evenout.core.compiled import compiled
from evenout.core.types import AnyArray, Float32Array, FloatArray, IntArray


@compiled(bare=True)
def path_lengths(
    X: Float32Array, feature: AnyArray, threshold: FloatArray, child: AnyArray, length: FloatArray,
    root: IntArray, depth: int, sizes: IntArray, node: AnyArray, total: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Write ``out[c, i]``: path length of row i, summed in order over the first ``sizes[c]`` trees.

    All rows go down a tree together, one level at a time, and rest at a leaf, whose children are itself: no
    branch depends on the data, which is three times faster than walking row by row. ``node`` and ``total`` are room
    for the node of each row and the sum of its paths.
    """
    for i in range(len(X)):
        total[i] = 0.0
    for t in range(len(root)):
        for i in range(len(X)):
            node[i] = root[t]
        for _ in range(depth):
            for i in range(len(X)):
                v = node[i]
                node[i] = child[v, np.intp(X[i, feature[v]] > threshold[v])]
        for i in range(len(X)):
            total[i] += length[node[i]]
        for c in range(len(sizes)):
            if sizes[c] == t + 1:
                for i in range(len(X)):  # assigning the whole row takes seconds to compile
                    out[c, i] = total[i]


@compiled(bare=True)
def add_seen_paths(
    X: Float32Array, feature: AnyArray, threshold: FloatArray, child: AnyArray, length: FloatArray,
    root: IntArray, drawn: IntArray, sizes: IntArray, seen: IntArray, total: FloatArray,
) -> None:  # fmt: skip
    """Add up, for each row, the paths through the trees that were grown from it.

    ``drawn[t]`` lists the rows of tree t. Of the first ``sizes[c]`` trees, ``seen[c, i]`` have drawn row i, and
    ``total[c, i]`` is its path length in these.
    """
    for t in range(len(root)):
        for i in drawn[t]:
            v = root[t]
            while child[v, 0] != v:
                v = child[v, np.intp(X[i, feature[v]] > threshold[v])]
            for c in range(len(sizes)):
                if t < sizes[c]:
                    seen[c, i] += 1
                    total[c, i] += length[v]


@compiled()
def uniform(state: AnyArray) -> Any:
    """The next number in [0, 1) of the generator splitmix64, whose state (1,) moves on."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    x = state[0]
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@compiled()
def shuffle_next(items: IntArray, place: int, state: AnyArray) -> None:
    """Exchange ``items[place]`` with one drawn from it and all later ones."""
    other = place + np.intp(uniform(state) * (len(items) - place))
    items[place], items[other] = items[other], items[place]


@compiled()
def draw_threshold(X: Float32Array, rows: IntArray, feature: int, state: AnyArray) -> Any:
    """A number drawn between the least and the largest value of a feature, or NaN if they are as good as equal."""
    low = high = X[rows[0], feature]
    for i in rows:
        low, high = min(low, X[i, feature]), max(high, X[i, feature])
    if high <= low + np.float32(1e-7):  # scikit-learn's notion of a constant feature
        return np.nan
    drawn = np.float64(low) + (np.float64(high) - np.float64(low)) * uniform(state)
    return drawn if drawn < high else np.float64(low)


@compiled()
def divide(X: Float32Array, rows: IntArray, feature: int, threshold: float) -> Any:
    """Bring the rows whose value is at most the threshold to the front; how many they are."""
    front = 0
    for j in range(len(rows)):  # without a branch, which would be guessed wrong every other time
        row, first = rows[j], rows[front]
        low = X[row, feature] <= threshold
        rows[front], rows[j] = (row if low else first), (first if low else row)
        front += low
    return front


@compiled()
def grow_trees(
    X: Float32Array, states: AnyArray, start: int, stop: int, max_samples: int, max_depth: int,
    feature: AnyArray, threshold: FloatArray, child: AnyArray, level: IntArray, size: IntArray,
) -> None:  # fmt: skip
    """Grow the isolation trees ``start..stop``, tree t from ``states[t]``, into room for ``2 max_samples - 1`` nodes.

    A node is split at a random threshold of a feature drawn among those that vary in it, unless all are constant
    or it lies at ``max_depth``. ``level`` is its depth, ``size`` the number of its rows. All come filled with 0, and
    ``child`` with the nodes themselves: a node that is not split is a leaf.
    """
    n, d = X.shape
    rows, features = np.empty(n, dtype=np.intp), np.empty(d, dtype=np.intp)
    begin, end = np.empty(2 * max_samples, dtype=np.intp), np.empty(2 * max_samples, dtype=np.intp)
    for t in range(start, stop):
        state = states[t : t + 1]
        for j in range(n):
            rows[j] = j
        for j in range(d):
            features[j] = j
        for j in range(max_samples):
            shuffle_next(rows, j, state)
        first = t * (2 * max_samples - 1)
        begin[0], end[0], used = 0, max_samples, 1
        v = 0
        while v < used:  # nodes are numbered as they come into being, so each is met after its parent
            own = rows[begin[v] : end[v]]
            size[first + v] = len(own)
            cut, j = np.nan, 0
            while level[first + v] < max_depth and len(own) > 1 and j < d and np.isnan(cut):
                shuffle_next(features, j, state)
                cut = draw_threshold(X, own, features[j], state)
                j += 1
            if not np.isnan(cut):
                feature[first + v], threshold[first + v] = features[j - 1], cut
                middle = begin[v] + divide(X, own, features[j - 1], cut)
                begin[used], end[used] = begin[v], middle
                begin[used + 1], end[used + 1] = middle, end[v]
                for side in range(2):
                    child[first + v, side] = first + used
                    level[first + used] = level[first + v] + 1
                    used += 1
            v += 1
