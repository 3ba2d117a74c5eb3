"""Isolation trees as plain arrays, grown by compiled code, or by scikit-learn: the same, bit for bit."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenout.core.compiled import map_blocks
from evenout.core.types import AnyArray, FloatArray, IntArray

ROWS = 256  # rows drawn for each tree, where there are as many
PIECES = 2  # of work for each thread
FEW, MANY = 0.01, 0.99  # between these shares of all rows, scikit-learn draws them by a shuffle


class Trees(NamedTuple):
    """T trees, over all v nodes.

    Attributes
    ----------
    feature : array of int32, v
        Feature that a node compares; 0 in a leaf.
    threshold : array, v
        A row with ``float32(x[feature]) <= threshold`` goes to the first child, else to the second.
    child : array of int32, v x 2
        The children; a leaf is its own.
    level, size : array of int, v
        Depth of a node, and number of its rows.
    root : array of int, T
        First node of each tree.
    drawn : array of int, T x m
        Rows that each tree has drawn.
    """

    feature: npt.NDArray[np.int32]
    threshold: FloatArray
    child: npt.NDArray[np.int32]
    level: AnyArray
    size: AnyArray
    root: IntArray
    drawn: IntArray


def grow(X: FloatArray, n_trees: int, random_state: int, n_threads: int = 1) -> Trees:
    """Grow trees on X (n x d) from scikit-learn's random numbers; the result does not depend on the threads."""
    from evenout.detectors._growth_kernels import grow_trees

    n, m = len(X), min(ROWS, len(X))
    max_depth = int(np.ceil(np.log2(max(m, 2))))
    X, y = np.ascontiguousarray(X), _random(random_state).uniform(size=n)
    seeds = _random(random_state).randint(2**31 - 1, size=n_trees).astype(np.int64)

    def work(part: slice) -> Trees:
        drawn, states = _draw(seeds[part], n, m)
        trees = _empty(len(drawn) * (2 * m - 1), drawn)  # as many nodes as isolate every row
        used = grow_trees(X, y, drawn, states, max_depth, *_room(m, X.shape[1], max_depth), *trees[:-1])
        made: list[Any] = [*(array[:used] for array in trees[:5]), trees.root, drawn]
        return Trees(*made)

    parts = map_blocks(work, n_rows=n_trees, block=-(-n_trees // (PIECES * n_threads)), n_threads=n_threads)
    first = 0
    for part in parts:
        part.child[:] += first
        part.root[:] += first
        first += len(part.feature)
    whole: list[Any] = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    return Trees(*whole)


def _empty(v: int, drawn: IntArray) -> Trees:
    """Room for v nodes of trees that have drawn these rows."""
    feature, level, size = (np.empty(v, dtype=np.int32) for _ in range(3))
    child, root = np.empty((v, 2), dtype=np.int32), np.empty(len(drawn), dtype=np.intp)
    return Trees(feature, np.empty(v), child, level, size, root, drawn)


def _random(seed: int) -> np.random.RandomState:
    return np.random.RandomState(seed)  # its numbers are scikit-learn's


def _draw(seeds: AnyArray, n: int, m: int) -> tuple[IntArray, AnyArray]:
    """The m rows among n that each tree draws, in ascending order, and the states that their growth begins with."""
    from evenout.detectors._growth_kernels import WORDS, draw_few_rows, draw_rows

    drawn, states = np.empty((len(seeds), m), dtype=np.intp), np.empty(len(seeds), dtype=np.int64)
    words = np.empty(WORDS, dtype=np.uint32), np.empty(WORDS, dtype=np.uint32)
    if m / n <= FEW:
        draw_few_rows(seeds, n, *words, drawn, states)
    else:
        draw_rows(seeds, n, *words, np.empty(2 * n, dtype=np.uint16), drawn, states)  # n < 25,600
    if MANY <= m / n < 1.0:
        from sklearn.utils.random import sample_without_replacement

        for rows, seed in zip(drawn, seeds, strict=True):
            rows[:] = sample_without_replacement(n, m, random_state=int(seed))
    drawn.sort(axis=1)
    return drawn, states


def _room(m: int, d: int, max_depth: int) -> tuple[AnyArray, ...]:
    """Where a thread works: rows, their values and targets, features, constant ones, nodes that wait."""
    return (
        np.empty(m, dtype=np.uint32),
        np.empty(m, dtype=np.float32),
        np.empty(m),
        np.empty(d, dtype=np.uint32),
        np.empty(d, dtype=np.uint32),
        np.empty((max_depth + 2, 4), dtype=np.intp),
        np.empty(max_depth + 2),
    )


def of_scikit_learn(X: FloatArray, n_trees: int, random_state: int) -> Trees:
    """The same, grown by scikit-learn."""
    from sklearn.ensemble import IsolationForest

    # One job: growing small trees holds the interpreter's lock, and two threads took longer than one.
    grown = IsolationForest(n_estimators=n_trees, random_state=random_state, n_jobs=1).fit(X)
    trees = [estimator.tree_ for estimator in grown.estimators_]
    root = np.cumsum([0] + [tree.node_count for tree in trees[:-1]])
    return Trees(
        feature=np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int32),
        threshold=np.concatenate([tree.threshold for tree in trees]),
        child=np.concatenate([_children(tree, first) for tree, first in zip(trees, root, strict=True)]),
        level=np.concatenate([tree.compute_node_depths() - 1 for tree in trees]).astype(np.int32),
        size=np.concatenate([tree.n_node_samples for tree in trees]),
        root=root,
        drawn=np.sort(grown.estimators_samples_, axis=1),
    )


def _children(tree: Any, first: int) -> npt.NDArray[np.int32]:
    """Children of each node, v x 2, in a tree that begins at node ``first``; a leaf (-1) becomes its own."""
    child = np.stack([tree.children_left, tree.children_right], axis=1)
    return (np.where(child < 0, np.arange(len(child))[:, None], child) + first).astype(np.int32)
