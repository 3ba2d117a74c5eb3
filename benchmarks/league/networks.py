"""Many small networks of one shape, trained side by side: one batched product for a layer of all of them.

Weights have the shape (networks, in, out). The loss is summed over the networks and Adam works number by number, so
each is trained as if it were alone, at a fraction of the time.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from evenout.core.types import AnyArray, FloatArray

BATCH = 128
RATE = 1e-3
_ROWS = 4096  # scored at once


class Stack:
    """Networks with layers of the given sizes: ReLU within, the last one linear.

    Parameters
    ----------
    sizes : sequence of int
        Of the input, the hidden layers and the output.
    count : int
        How many networks.
    generator : torch.Generator
        Draws the weights, uniform within ``1 / sqrt(in)``.
    """

    def __init__(self, sizes: Sequence[int], count: int, generator: Any) -> None:
        self.weights: list[Any] = []
        self.shifts: list[Any] = []
        for inner, outer in pairwise(sizes):
            bound = inner**-0.5
            for shape, kept in (((count, inner, outer), self.weights), ((count, 1, outer), self.shifts)):
                kept.append(torch.empty(shape).uniform_(-bound, bound, generator=generator).requires_grad_())

    @property
    def parameters(self) -> list[Any]:
        """What is trained."""
        return [tensor for tensor in (*self.weights, *self.shifts) if tensor.requires_grad]

    def __call__(self, x: Any) -> Any:
        """Outputs of shape (networks, n, out) for rows (n, in), or for rows of each network (networks, n, in)."""
        x = x.expand(len(self.weights[0]), *x.shape[-2:])
        for layer, (weight, shift) in enumerate(zip(self.weights, self.shifts, strict=True)):
            x = torch.baddbmm(shift, x, weight)
            if layer < len(self.weights) - 1:
                x = torch.relu(x)
        return x

    def copies(self, place: int, count: int) -> "Stack":
        """Some copies of one network, to be trained on from there."""
        found = Stack.__new__(Stack)
        for name in ("weights", "shifts"):
            tensors = [
                tensor[place : place + 1].detach().repeat(count, 1, 1).requires_grad_(tensor.requires_grad)
                for tensor in getattr(self, name)
            ]
            setattr(found, name, tensors)
        return found


def seeded(seed: int) -> Any:
    """A source of random numbers of its own."""
    return torch.Generator().manual_seed(seed)


def batches(n: int, steps: int, generator: Any, size: int = BATCH) -> Iterator[Any]:
    """Rows of each step: all rows in random order, then in another."""
    size = min(size, n)
    order, place = torch.randperm(n, generator=generator), 0
    for _ in range(steps):
        if place + size > n:
            order, place = torch.randperm(n, generator=generator), 0
        yield order[place : place + size]
        place += size


def descend(parameters: Sequence[Any], rate: float = RATE, weight_decay: float = 0.0) -> Callable[[Any], None]:
    """A function that makes one step of Adam down a loss; only ``parameters`` move."""
    adam = torch.optim.Adam(parameters, lr=rate, weight_decay=weight_decay)

    def step(loss: Any) -> None:
        for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = slope
        adam.step()

    return step


def unit_range(X: FloatArray, *others: FloatArray) -> list[Any]:
    """Features scaled to [0, 1] on the first rows, as tensors; a constant one is 0 there."""
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    return [_tensor((rows - low) / np.where(span > 0, span, 1.0)) for rows in (X, *others)]


def z_scores(X: FloatArray, *others: FloatArray) -> list[Any]:
    """Features with mean 0 and deviation 1 on the first rows, as tensors; a constant one is 0 there."""
    mean, spread = X.mean(axis=0), X.std(axis=0)
    return [_tensor((rows - mean) / np.where(spread > 0, spread, 1.0)) for rows in (X, *others)]


def apply(function: Callable[[Any], Any], X: Any) -> FloatArray:
    """A function of rows (n, ...) that gives (networks, n), block by block and without slopes; shape (networks, n)."""
    with torch.no_grad():
        parts = [function(X[..., start : start + _ROWS, :]) for start in range(0, X.shape[-2], _ROWS)]
    found: FloatArray = torch.cat(parts, dim=1).double().numpy()
    return found


def _tensor(rows: AnyArray) -> Any:
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
