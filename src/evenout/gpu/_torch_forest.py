"""Isolation forests scored with torch; formulas are those of `evenout.detectors.forest`."""

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenout.core.types import FloatArray, IntArray
from evenout.detectors.forest import Forest, average_path_length
from evenout.detectors.parts import Without
from evenout.gpu._torch_rows import upload

ROWS = 2**20  # rows that go down a tree together


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
    rows = upload(X.astype(np.float32), device)
    out = torch.empty(len(X), len(expected), dtype=torch.float64, device=device)
    for start in range(0, len(X), ROWS):
        total = _path_lengths(forest, rows[start : start + ROWS])
        out[start : start + ROWS] = torch.exp2(-(total / upload(expected, device)[:, None])).T
    return out.cpu().numpy()


def _path_lengths(forest: Forest, X: Tensor) -> Tensor:
    """Path length of each row, summed in order over the first ``sizes[c]`` trees, (len(sizes), m).

    All rows go down a tree together and rest at a leaf, whose children are itself. ``child`` lies flat: the children
    of node v are its elements 2 v and 2 v + 1.
    """
    feature, threshold, child, length = (
        upload(array, X.device)
        for array in (forest.feature.astype(np.int64), forest.threshold, forest.child.ravel(), forest.length)
    )
    columns, row = X.T.contiguous().ravel(), torch.arange(len(X), device=X.device)
    out = length.new_empty(len(forest.sizes), len(X))
    total = length.new_zeros(len(X))
    for t, root in enumerate(forest.root.tolist(), start=1):
        node = torch.full_like(row, root)
        for _ in range(forest.depth):
            value = columns[feature[node] * len(X) + row]
            node = child[2 * node + (value > threshold[node])].long()
        total += length[node]
        out[torch.as_tensor(forest.sizes == t)] = total
    return out
