"""Isolation forests scored with torch; formulas are those of `evenout.detectors.forest`."""

import numpy as np
import torch
from torch import Tensor

from evenout.core.parallel import map_blocks
from evenout.core.types import FloatArray
from evenout.detectors.forest import Forest, average_path_length
from evenout.gpu._torch_rows import can_fuse, kept, upload

FEW = 256  # rows up to which the CPU is as fast
BLOCK = 128  # rows of a program of the fused kernel
ROWS = 2**16  # rows whose scores a thread of the CPU makes of their paths
SLICE = 2**20  # rows that go down a tree together without Triton


def score(forest: Forest, X: FloatArray, device: str, n_threads: int) -> FloatArray:
    """See `Forest.score`."""
    expected = forest.sizes * average_path_length(np.array([forest.max_samples]))
    if len(X) <= FEW or not expected.all():
        return Forest.score(forest, X, n_threads=n_threads)
    trees, columns = kept(forest, device, _send), upload(X, device).float().T.contiguous()
    walk = _path_lengths if can_fuse(device, 1, 1) else _plain_path_lengths
    paths, scores = walk(trees, columns, forest.depth).cpu().numpy(), np.empty((len(X), len(expected)))

    # As on the CPU, to the last digit: a power of torch may be another one, by the place of a row among others.
    def power(rows: slice) -> None:
        for column, path, mean in zip(scores[rows].T, paths[:, rows], expected, strict=True):
            column[:] = 2 ** -(path / mean)

    map_blocks(power, len(X), ROWS, n_threads)
    return scores


def _send(forest: Forest, device: torch.device) -> tuple[Tensor, ...]:
    """Feature, threshold, child, length, root and sizes on a device; the children of node v are 2 v and 2 v + 1."""
    root, sizes = forest.root.astype(np.int32), forest.sizes.astype(np.int32)
    nodes = (forest.feature, forest.threshold, forest.child.ravel(), forest.length, root, sizes)
    return tuple(upload(array, device) for array in nodes)


def _path_lengths(trees: tuple[Tensor, ...], columns: Tensor, depth: int) -> Tensor:
    """Path length of each row, summed in order over the first ``sizes[c]`` trees, (len(sizes), m)."""
    from evenout.gpu._triton_kernels import path_lengths

    m, (*_, length, _, sizes) = columns.shape[1], trees
    paths = length.new_empty(len(sizes), m)
    path_lengths[(-(-m // BLOCK),)](columns, *trees, paths, m, len(sizes), DEPTH=depth, ROWS=BLOCK)
    return paths


def _plain_path_lengths(trees: tuple[Tensor, ...], columns: Tensor, depth: int) -> Tensor:
    """Path lengths by torch alone: rows go down a tree together and rest at a leaf, whose children are itself."""
    if columns.shape[1] > SLICE:
        parts = [part.contiguous() for part in columns.split(SLICE, dim=1)]
        return torch.cat([_plain_path_lengths(trees, part, depth) for part in parts], dim=1)
    m, (feature, threshold, child, length, roots, sizes) = columns.shape[1], trees
    values, row = columns.ravel(), torch.arange(m, device=columns.device)
    paths, total = length.new_empty(len(sizes), m), length.new_zeros(m)
    for t, root in enumerate(roots.tolist(), start=1):
        node = torch.full_like(row, root)
        for _ in range(depth):
            value = values[feature[node] * m + row]
            node = child[2 * node + (value > threshold[node])].long()
        total += length[node]
        paths[sizes == t] = total
    return paths
