"""Isolation forests: scikit-learn's trees, grown and scored by compiled code.

With h_t(x) the depth of x's leaf in tree t, plus the expected depth c(m) of a further tree on the m rows in
that leaf, and s the number of rows drawn for each tree::

    score_T(x) = 2 ** -( sum_{t <= T} h_t(x) / (T c(s)) ),    c(m) = 2 (ln(m - 1) + gamma) - 2 (m - 1) / m

which is minus the ``score_samples`` of scikit-learn's ``IsolationForest(n_estimators=T)``, bit for bit: the trees are
the same, compared with X in float32 and summed in the same order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from evenout.core.parallel import map_blocks
from evenout.core.types import AnyArray, FloatArray, IntArray, Within, require
from evenout.detectors.family import Family, Without, by_refitting

ROWS_PER_TREE = 256  # rows drawn for each tree, where there are as many
PIECES = 2  # of work for each thread
FEW_SHARE, MANY_SHARE = 0.01, 0.99  # between these shares of all rows, scikit-learn draws them by a shuffle


def grow(X: FloatArray, sizes: Sequence[int], random_state: int, n_threads: int = 1) -> tuple["Forest", IntArray]:
    """Grow trees on X (n x d) from scikit-learn's random numbers; the result does not depend on the threads.

    Returns the forest, and the rows that each tree has drawn, in ascending order.
    """
    n, m, n_trees = len(X), min(ROWS_PER_TREE, len(X)), max(sizes)
    max_depth = int(np.ceil(np.log2(max(m, 2))))
    X, y = np.ascontiguousarray(X), np.random.RandomState(random_state).uniform(size=n)  # scikit-learn's numbers
    seeds = np.random.RandomState(random_state).randint(2**31 - 1, size=n_trees).astype(np.int64)

    def work(part: slice) -> tuple[AnyArray, ...]:
        drawn, states = _draw(seeds[part], n, m)
        return *_grow(X, y, drawn, states, max_depth), drawn

    parts = map_blocks(work, n_rows=n_trees, block=-(-n_trees // (PIECES * n_threads)), n_threads=n_threads)
    first = 0
    for feature, _, child, _, _, root, _ in parts:
        child[:] += first
        root[:] += first
        first += len(feature)
    *nodes, drawn = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Forest.of_nodes(nodes, sizes, top=1.0), drawn


def _grow(X: FloatArray, y: FloatArray, drawn: IntArray, states: AnyArray, max_depth: int) -> tuple[AnyArray, ...]:
    """Grow trees from the rows that each has drawn, the random target y (n,), and the states of their xorshifts.

    Returns the nodes as `Forest.of_nodes` takes them.
    """
    from evenout.detectors._tree_kernels import grow_trees

    (n_trees, m), d = drawn.shape, X.shape[1]
    v = n_trees * (2 * m - 1)  # as many nodes as isolate every row
    feature, level, size = (np.empty(v, dtype=np.int32) for _ in range(3))
    nodes = feature, np.empty(v), np.empty((v, 2), dtype=np.int32), level, size
    root = np.empty(n_trees, dtype=np.intp)
    # Work space: rows, their values and targets, features, constant ones; waiting nodes and their variances.
    rows, features, constant = (np.empty(length, dtype=np.uint32) for length in (m, d, d))
    space = rows, np.empty(m, dtype=np.float32), np.empty(m), features, constant
    waiting = np.empty((max_depth + 2, 4), dtype=np.intp), np.empty(max_depth + 2)
    used = grow_trees(X, y, drawn, states, max_depth, *space, *waiting, *nodes, root)
    return *(array[:used] for array in nodes), root


def _draw(seeds: AnyArray, n: int, m: int) -> tuple[IntArray, AnyArray]:
    """Draw m rows among n for each tree, in ascending order; these, and the first states of the xorshifts."""
    from evenout.detectors._tree_kernels import WORDS, draw_few_rows, draw_rows

    drawn, states = np.empty((len(seeds), m), dtype=np.intp), np.empty(len(seeds), dtype=np.int64)
    words, top = np.empty((2, WORDS), dtype=np.uint32), 2 ** max((n - 1).bit_length(), 1) - 1
    if m / n <= FEW_SHARE:
        draw_few_rows(seeds, n, top, *words, drawn, states)
    else:
        draw_rows(seeds, n, top, *words, np.empty(2 * n, dtype=np.uint16), drawn, states)  # n < 25,600
    if MANY_SHARE <= m / n < 1.0:
        from sklearn.utils.random import sample_without_replacement

        for rows, seed in zip(drawn, seeds, strict=True):
            rows[:] = sample_without_replacement(n, m, random_state=int(seed))
    drawn.sort(axis=1)
    return drawn, states


def of_scikit_learn(X: FloatArray, sizes: Sequence[int], random_state: int) -> tuple["Forest", IntArray]:
    """Let scikit-learn `grow` the trees."""
    from sklearn.ensemble import IsolationForest

    # One job: growing small trees holds the interpreter's lock, and two threads took longer than one.
    grown = IsolationForest(n_estimators=max(sizes), random_state=random_state, n_jobs=1).fit(X)
    trees = [estimator.tree_ for estimator in grown.estimators_]
    n_nodes = [tree.node_count for tree in trees]
    root = np.cumsum([0, *n_nodes[:-1]])
    feature, threshold, left, right, size = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("feature", "threshold", "children_left", "children_right", "n_node_samples")
    )
    child = np.stack([left, right], axis=1)
    child = np.where(child < 0, np.arange(len(child))[:, None], child + np.repeat(root, n_nodes)[:, None])
    level = np.concatenate([tree.compute_node_depths() - 1 for tree in trees])
    nodes = np.maximum(feature, 0).astype(np.int32), threshold, child.astype(np.int32), level, size, root
    return Forest.of_nodes(nodes, sizes, top=1.0), np.sort(grown.estimators_samples_, axis=1)


ROWS = 1024  # rows that go down a tree together: their nodes and features stay in the cache
TREES = 25  # trees per piece of work handed to a thread
FEW = 1000  # rows; with fewer, each tree draws so large a share that leaving out a fold takes new trees


@dataclass(frozen=True, eq=False)
class Forest(Family):
    """Isolation forests that share their trees; the learned state is plain arrays over all v nodes.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.r_[np.random.default_rng(0).normal(size=(99, 2)), [[9.0, 9.0]]]
    >>> forest, scores = Forest.fit(X, sizes=[25, 50], random_state=0)
    >>> scores.shape, scores.argmax(axis=0)
    ((100, 2), array([99, 99]))
    """

    feature: Annotated[npt.NDArray[np.int32], "v", Within()]  # that a node compares; 0 in a leaf
    # A row with ``float32(x[feature]) <= threshold`` goes to the first child, else to the second.
    threshold: Annotated[FloatArray, "v"]
    child: Annotated[npt.NDArray[np.int32], "v 2", Within()]  # a leaf is its own
    length: Annotated[FloatArray, "v"]  # of the path of a row that ends in this node
    root: Annotated[IntArray, "*", Within()]  # first node of each tree
    sizes: Annotated[IntArray, "*", Within(1)]  # number of trees of each forest
    depth: Annotated[int, Within()]  # of the deepest leaf
    max_samples: Annotated[int, Within(1)]  # rows drawn for each tree
    kind: ClassVar[str] = "forest"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.sizes)

    @classmethod
    def of_nodes(cls, nodes: Sequence[AnyArray], sizes: Sequence[int], *, top: float) -> "Forest":
        """Make a forest of the features, thresholds, children, levels and sizes of its nodes, and of the roots.

        A root has the level 0, and the rows of its tree as size. To scikit-learn it has depth 1, which is the ``top``
        that paths are rounded with.
        """
        feature, threshold, child, level, size, root = nodes
        max_samples, depth = int(size.max()), int(level.max())
        length = level + top + average_path_length(np.arange(max_samples + 1))[size] - top
        return cls(feature, threshold, child, length, root, np.array(sizes, dtype=np.intp), depth, max_samples)

    def check(self) -> None:
        """Refuse children outside their tree."""
        v, root = len(self.threshold), self.root
        require(len(root) and root[0] == 0 and root[-1] < v and (np.diff(root) > 0).all(), "root", "is out of order")
        size_of_tree = np.diff(root, append=v)
        first = np.repeat(root, size_of_tree)[:, None]  # of the tree that a node is in
        inside = (first <= self.child) & (self.child < first + np.repeat(size_of_tree, size_of_tree)[:, None])
        require(inside.all(), "child", "leaves its tree")
        require(self.sizes.max(initial=0) <= len(root), "sizes", "is out of range")
        require(self.depth <= size_of_tree.max(), "depth", "is out of range")

    def fits(self, n_rows: int, n_features: int) -> None:
        """Refuse nodes that compare features that rows do not have."""
        require(self.feature.max(initial=0) < n_features, "feature", "is out of range")
        require(self.max_samples <= n_rows, "max_samples", "is out of range")

    @classmethod
    def cross_fit(
        cls,
        X: FloatArray,
        folds: IntArray | None,
        *,
        sizes: Sequence[int],
        random_state: int,
        n_threads: int = 1,
        scikit_learn: bool = False,
        score: Callable[..., FloatArray] | None = None,
    ) -> tuple["Forest", FloatArray, Without]:
        """Learn from all rows, and score each fold by trees that were not grown from it.

        X (n x d) is finite, also in float32; ``folds`` (n,) is the fold of each row, or None if none is to be left out;
        ``sizes`` are the numbers of trees of each forest. scikit-learn's forests with this seed are the same. Results
        do not depend on the threads. ``score`` may be the twin of `Forest.score` on another device, for the training
        rows.

        ``scikit_learn`` lets scikit-learn grow the trees, many times slower. From its release 1.8 on they are the same,
        and before it where no values of a feature lie closer than 1e-7; should a later one draw other random numbers,
        these are its trees.

        Returns the model; the scores of the training rows, n x len(sizes), higher = more outlying; and a function of a
        fold: the scores of all rows. With fewer than `FEW` rows, a forest is grown from those outside the fold, by the
        same law. Else a row of the fold is scored by the trees that have not drawn it, though they may have drawn other
        rows of the fold, and the others keep their scores. A row that every tree has drawn keeps its score too.
        """
        forest, drawn = (
            of_scikit_learn(X, sizes, random_state) if scikit_learn else grow(X, sizes, random_state, n_threads)
        )
        scores = (score or cls.score)(forest, X, n_threads=n_threads)
        if len(X) < FEW:

            def regrow(rows: FloatArray, fold: int) -> tuple[Forest, FloatArray]:
                new = Forest.grow(rows, sizes=sizes, seed=(random_state, fold), n_threads=n_threads)
                return new, new.score(rows, n_threads=n_threads)

            return forest, scores, by_refitting(X, folds, regrow, n_threads=n_threads)
        unseen = scores if folds is None else forest._unseen_scores(X, scores, drawn)
        return forest, scores, lambda fold: np.where((np.asarray(folds) == fold)[:, None], unseen, scores)

    @classmethod
    def grow(cls, X: FloatArray, *, sizes: Sequence[int], seed: int | Sequence[int], n_threads: int = 1) -> "Forest":
        """Grow ``max(sizes)`` trees by the law of scikit-learn's, but not from the same random numbers: much faster."""
        from evenout.detectors._tree_kernels import grow_fold_trees

        n_trees, max_samples = max(sizes), min(ROWS_PER_TREE, len(X))
        max_depth = int(np.ceil(np.log2(max(max_samples, 2))))
        width = 2 * max_samples - 1  # nodes of a tree that isolates every row
        n_nodes = n_trees * width
        feature, threshold = np.zeros(n_nodes, dtype=np.int32), np.zeros(n_nodes)
        child = np.repeat(np.arange(n_nodes, dtype=np.int32)[:, None], 2, axis=1)
        level, size = np.zeros(n_nodes, dtype=np.intp), np.zeros(n_nodes, dtype=np.intp)
        states = np.random.SeedSequence(seed).generate_state(n_trees, np.uint64)
        rows, nodes = X.astype(np.float32), (feature, threshold, child, level, size)

        map_blocks(
            lambda part: grow_fold_trees(rows, states, part.start, part.stop, max_samples, max_depth, *nodes),
            n_trees,
            TREES,
            n_threads,
        )
        return cls.of_nodes([*nodes, width * np.arange(n_trees)], sizes, top=0.0)

    def _unseen_scores(self, X: FloatArray, scores: FloatArray, drawn: IntArray) -> FloatArray:
        """Scores of the training rows, n x len(sizes), by the trees that have not drawn them.

        ``drawn[t]`` lists the rows of tree t. Their paths through it are subtracted from the sum over all trees.
        """
        from evenout.detectors._tree_kernels import add_seen_paths

        seen, paths = np.zeros((len(self.sizes), len(X)), dtype=np.intp), np.zeros((len(self.sizes), len(X)))
        add_seen_paths(
            X.astype(np.float32), self.feature, self.threshold, self.child, self.length, self.root,
            drawn.astype(np.intp), self.sizes, seen, paths,
        )  # fmt: skip
        expected = average_path_length(np.array([self.max_samples]))
        left, whole = self.sizes - seen.T, -np.log2(scores) * (self.sizes * expected)
        unseen = 2 ** -((whole - paths.T) / (np.maximum(left, 1) * expected))
        return np.where((seen.T > 0) & (left > 0), unseen, scores)

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Raw scores of the rows of ``X`` (m x d), m x len(sizes); higher = more outlying."""
        from evenout.detectors._tree_kernels import path_lengths

        total = np.empty((len(self.sizes), len(X)))
        trees = (self.feature, self.threshold, self.child, self.length, self.root, self.depth, self.sizes)

        def work(rows: slice) -> None:
            part = X[rows].astype(np.float32)
            path_lengths(part, *trees, np.empty(len(part), dtype=np.uint32), np.empty(len(part)), total[:, rows])

        map_blocks(work, n_rows=len(X), block=ROWS, n_threads=n_threads)
        expected = self.sizes * average_path_length(np.array([self.max_samples]))
        if not expected.all():  # a single training row: every path has length 0
            return np.full((len(X), len(self.sizes)), 0.5)
        return np.stack([2 ** -(path / mean) for path, mean in zip(total, expected, strict=True)], axis=1)


def average_path_length(n_rows: IntArray) -> FloatArray:
    """Return c(m), the expected depth of a tree that isolates each of m rows: 0 for one row, 1 for two.

    >>> average_path_length(np.array([1, 2, 256])).round(3)
    array([ 0. ,  1. , 10.245])
    """
    expected = np.where(n_rows == 2, 1.0, 0.0)
    many = n_rows > 2
    m = n_rows[many]
    expected[many] = 2.0 * (np.log(m - 1.0) + np.euler_gamma) - 2.0 * (m - 1.0) / m
    return expected
