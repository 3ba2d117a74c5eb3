"""Isolation forests scored with torch; formulas are those of `evenout.detectors.forest`."""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.forest import Forest, average_path_length
from evenout.detectors.parts import Without
from evenout.gpu._torch_kept import kept
from evenout.gpu._torch_rows import upload

ROWS = 2**20  # rows that go down a tree together
NODES = 2**20  # rows times trees, up to which rows go down all trees together


def fit(X: FloatArray, device: str, **settings: Any) -> tuple[Forest, FloatArray]:
    """See `Forest.fit`."""
    walked, scores = _walked(device).fit(X, **settings)
    return _plain(walked), scores


def cross_fit(X: FloatArray, folds: IntArray, device: str, **settings: Any) -> tuple[Forest, FloatArray, Without]:
    """See `Forest.cross_fit`: all rows go down the trees on the device, each tree's own rows on the CPU."""
    walked, scores, without = _walked(device).cross_fit(X, folds, **settings)
    return _plain(walked), scores, without


def _walked(device: str) -> type[Forest]:
    class Walked(Forest):
        """A forest whose training rows are scored on the device: `Forest.fit` asks for this method."""

        def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:  # noqa: ARG002
            return score(self, X, device)

    return Walked


def _plain(walked: Forest) -> Forest:
    return Forest(**{field.name: getattr(walked, field.name) for field in fields(Forest)})


def score(forest: Forest, X: FloatArray, device: str) -> FloatArray:
    """See `Forest.score`."""
    expected = forest.sizes * average_path_length(np.array([forest.max_samples]))
    if not expected.all():  # a single training row: every path has length 0
        return np.full((len(X), len(forest.sizes)), 0.5)
    trees, rows = kept(forest, device, _send), upload(X.astype(np.float32), device)
    walk = _path_lengths_of_few if len(X) * len(forest.root) <= NODES else _path_lengths
    total = [walk(forest, trees, rows[start : start + ROWS]) for start in range(0, len(X), ROWS)]
    paths = torch.cat(total, dim=1).cpu().numpy() if total else np.empty((len(expected), 0))
    # As on the CPU, to the last digit: a power of torch may be another one, by the place of a row among others.
    return np.stack([2 ** -(path / mean) for path, mean in zip(paths, expected, strict=True)], axis=1)


class _Sent(NamedTuple):
    """The nodes of a forest on a device; ``child`` lies flat: the children of node v are 2 v and 2 v + 1."""

    feature: Tensor
    threshold: Tensor
    child: Tensor
    length: Tensor
    root: Tensor


def _send(forest: Forest, device: torch.device) -> _Sent:
    feature, child = forest.feature.astype(np.int64), forest.child.ravel()
    return _Sent(*(upload(array, device) for array in (feature, forest.threshold, child, forest.length, forest.root)))


def _path_lengths(forest: Forest, trees: _Sent, X: Tensor) -> Tensor:
    """Path length of each row, summed in order over the first ``sizes[c]`` trees, (len(sizes), m).

    All rows go down a tree together and rest at a leaf, whose children are itself.
    """
    columns, row = X.T.contiguous().ravel(), torch.arange(len(X), device=X.device)
    out = trees.length.new_empty(len(forest.sizes), len(X))
    total = trees.length.new_zeros(len(X))
    for t, root in enumerate(forest.root.tolist(), start=1):
        node = _leaves(trees, columns, row, torch.full_like(row, root), forest.depth)
        total += trees.length[node]
        out[torch.as_tensor(forest.sizes == t)] = total
    return out


def _path_lengths_of_few(forest: Forest, trees: _Sent, X: Tensor) -> Tensor:
    """The same, where rows go down all trees at once: a call takes as long for few nodes as for one.

    To add in order takes a call for each tree on a device, and one on the CPU.
    """
    columns, row = X.T.contiguous().ravel(), torch.arange(len(X), device=X.device)
    root = trees.root[:, None].expand(-1, len(X))
    lengths = trees.length[_leaves(trees, columns, row, root, forest.depth)].cpu().numpy()
    return torch.from_numpy(np.cumsum(lengths, axis=0)[forest.sizes - 1])


def _leaves(trees: _Sent, columns: Tensor, row: Tensor, node: Tensor, depth: int) -> Tensor:
    """Where rows come to that stand at ``node``; ``columns`` are the features one behind the other."""
    for _ in range(depth):
        value = columns[trees.feature[node] * len(row) + row]
        node = trees.child[2 * node + (value > trees.threshold[node])].long()
    return node
