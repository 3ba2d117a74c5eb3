"""Rows as tensors, and what is kept on the device."""

import math
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from evenout.core.parallel import ROWS, map_blocks
from evenout.core.types import AnyArray

T = TypeVar("T")

_KEPT: WeakKeyDictionary[Any, dict[torch.device, Any]] = WeakKeyDictionary()
_SENDING = Lock()


def kept(part: Any, device: torch.device | str, send: Callable[[Any, torch.device], T]) -> T:
    """``send(part, device)``, called once for each part and device, by one thread while others wait.

    Parts do not change after a fit, so that nothing kept is ever out of date; they are told apart by identity. What
    ``send`` returns must not hold the part: it is freed with it. It is neither copied, pickled nor saved.
    """
    where = torch.device(device)
    if where.type == "cuda" and where.index is None:  # which of several
        where = torch.device("cuda", torch.cuda.current_device())
    with _SENDING:
        sent = _KEPT.setdefault(part, {})
        if where not in sent:
            sent[where] = send(part, where)
        return sent[where]


_LARGEST = 14  # scaled rows are shorter than 2^14: twice that is still a number of half precision
_NORM = 2.0**13  # the squared length of such a row, divided by this, is one too


def upload(array: AnyArray, device: torch.device | str) -> Tensor:
    """The array as a tensor on the device; it must not be written to, since on the CPU the memory is shared."""
    return torch.as_tensor(np.require(array, requirements=["C", "W"])).to(device)


def download(tensor: Tensor, n_threads: int) -> AnyArray:
    """The tensor as an array. Several threads touch its memory first: the system hands that over slowly to one."""
    here = torch.empty_like(tensor, device="cpu")
    array = here.numpy()
    map_blocks(lambda rows: array[rows].fill(0), len(array), ROWS, n_threads)
    here.copy_(tensor)
    return array


def can_fuse(device: torch.device | str, n_rows: int, width: int) -> bool:
    """Whether fused kernels can run: they need Triton, which torch brings along on Linux, and count in 32 bits."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return torch.device(device).type == "cuda" and n_rows * width < 2**31


def order_by_cell(cells: Tensor, n_cells: int, tile: int) -> tuple[Tensor, list[int]]:
    """Rows (of cell 0, 1, ...; none of cell -1) with the last of each cell repeated to whole tiles, and the starts.

    >>> order_by_cell(torch.tensor([1, -1, 0, 1, 1]), 2, 2)
    (tensor([2, 2, 0, 3, 4, 4]), [0, 2, 6])
    """
    ordered, order = torch.sort(cells, stable=True)
    ends = torch.searchsorted(ordered, torch.arange(-1, n_cells, device=cells.device), right=True)
    sizes = ends[1:] - ends[:-1]
    padded = (sizes + tile - 1) // tile * tile
    starts = torch.cat([padded.new_zeros(1), padded.cumsum(0)])
    cell = torch.repeat_interleave(torch.arange(n_cells, device=cells.device), padded)
    inside = torch.arange(len(cell), device=cells.device) - starts[cell]
    return order[ends[cell] + inside.minimum(sizes[cell] - 1)], starts.tolist()


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """``|a_i - b_j|^2``, shape (len(a), len(b)): one sum over the features in their order, as on the CPU."""
    total = torch.zeros(len(a), len(b), dtype=a.dtype, device=a.device)
    gap = torch.empty_like(total)
    for f in range(a.shape[1]):
        torch.sub(a[:, f, None], b[None, :, f], out=gap)
        total += gap.square_()
    return total


def roots(squared: Tensor) -> Tensor:
    """Square roots, rounded correctly; those of torch on a CPU, unlike NumPy's, may be off by the last digit."""
    return squared.sqrt() if squared.is_cuda else torch.from_numpy(np.sqrt(squared.numpy()))


class Halves(NamedTuple):
    """Rows split into numbers of half precision; see `evenout.gpu._triton_kernels`."""

    left: Tensor  # (n, width), as right: ``norm_i + left_i . right_j`` is the squared distance of two rows
    right: Tensor
    norm: Tensor  # (n,): squared length of each scaled row
    chunk: int  # how much of the width a kernel takes at a time


def scale_to_halves(*parts: Tensor) -> float:
    """The power of two by which rows (n, d) must be multiplied before `split`."""
    longest = max([float(part.norm(dim=1).max()) for part in parts if part.numel()], default=0.0)
    return math.ldexp(1.0, min(_LARGEST - math.frexp(longest)[1], 1000))


def split(points: Tensor, *, real: int | None = None) -> Halves:
    """Split scaled rows (n, d) of float64, of which the first ``real`` are there and the others infinitely far away."""
    high, low = _two_halves(points)
    norm = points.square().sum(dim=1)
    far_high, far_low = _two_halves(norm[:, None] / _NORM)
    if real is not None:
        far_high[real:] = torch.inf
    used = 3 * points.shape[1] + 2
    chunk = 32 if used <= 32 else 64
    empty, one = high.new_zeros(len(points), -used % chunk), torch.full_like(far_high, _NORM)
    left = torch.cat([high, high, low, one, one, empty], dim=1)
    right = torch.cat([-2 * high, -2 * low, -2 * high, far_high, far_low, empty], dim=1)
    return Halves(left, right, norm.float(), chunk)


def _two_halves(numbers: Tensor) -> tuple[Tensor, Tensor]:
    high = numbers.half()
    return high, (numbers - high.double()).half()


def rounding_of_halves(length: Tensor, width: int, n_features: int) -> Tensor:
    """Bound on the error of ``norm_i + left_i . right_j`` for two rows no longer than ``length``.

    Half precision keeps 22 bits of a number, or multiples of 2^-24; the products of two low halves are left out; each
    of the ``width`` products is added up with 24 bits.
    """
    return length * (length * (width + 18) * 2.0**-23 + n_features**0.5 * 2.0**-22) + 2.0**-11


def rounding_of_differences(length: Tensor, distance: Tensor, n_features: int) -> Tensor:
    """Bound on the error of a squared distance near ``distance^2`` of two such rows, by differences in float32."""
    shift = length * 2.0**-23
    return shift * (2 * distance + shift) + distance**2 * (n_features + 2) * 2.0**-23
