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
    lengths = trees[3].new_empty(len(expected), len(X))  # of paths, summed in order over the trees of each forest
    if can_fuse(device, 1, 1):
        from evenout.gpu._triton_kernels import path_lengths

        path_lengths[(-(-len(X) // BLOCK),)](
            columns, *trees, lengths, len(X), len(expected), DEPTH=forest.depth, ROWS=BLOCK
        )
    else:
        for part in (slice(start, start + SLICE) for start in range(0, len(X), SLICE)):
            _walk(trees, columns[:, part].contiguous(), forest.depth, lengths[:, part])
    paths, scores = lengths.cpu().numpy(), np.empty((len(X), len(expected)))

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


def _walk(trees: tuple[Tensor, ...], columns: Tensor, depth: int, paths: Tensor) -> None:
    """Write path lengths by torch alone: rows go down a tree together and rest at a leaf, whose children are itself."""
    m, (feature, threshold, child, length, roots, sizes) = columns.shape[1], trees
    values, row = columns.ravel(), torch.arange(m, device=columns.device)
    total = length.new_zeros(m)
    for t, root in enumerate(roots.tolist(), start=1):
        node = torch.full_like(row, root)
        for _ in range(depth):
            node = child[2 * node + (values[feature[node] * m + row] > threshold[node])].long()
        total += length[node]
        paths[sizes == t] = total
