"""Detectors and pair sums on a GPU, with torch: what the CPU computes, from the same rows, many times faster.

Each function is the twin of one on the CPU and returns the same type. Neighbours, LOF, kNN and forest scores are the
same bit for bit, and pair sums within 5e-4 in every direction. A fitted model is plain arrays: it may be fitted on one
device and used on another. What it needs on a device to score rows is sent there once, and stays while the model lives.

torch is imported when a function here is called, never before. ``device="cpu"`` runs the same code without a GPU, for
tests.
"""

from functools import partial
from typing import Any

from evenout.core.pairwise import PairSums
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.family import Without
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Nearness, Neighbours, turned
from evenout.exceptions import InputError, from_extra


def check_device(device: str) -> None:
    """Refuse a device that cannot be used, in one line that says what to do.

    >>> check_device("abacus")
    Traceback (most recent call last):
        ...
    ValueError: device='abacus' is not allowed; use 'cpu' or 'cuda'
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r} is not allowed; use 'cpu' or 'cuda'")
    torch = from_extra("torch", "gpu", f"device={device!r}")
    if device != "cpu" and not torch.cuda.is_available():
        raise InputError("{device=} was asked for, but torch finds no CUDA device; use {device='cpu'}", device=device)


def pair_sums(
    X: FloatArray, Z: FloatArray, groups: IntArray, folds: IntArray, *, device: str = "cuda", **settings: Any
) -> PairSums:
    """`evenout.core.pairwise.pair_sums`, whose arguments these are, on a device.

    With ``"minmax"`` similarities are rounded to half precision, by 2^-11 at most; a bias ``v' F v`` is off by no more,
    for any v, and the same bit for bit when repeated. Over many pairs rounding averages out: with 20,000 rows the
    largest error by direction was 3e-6. With a length as scale, 16 bits are kept, and repeated sums may differ in the
    last digits.
    """
    check_device(device)
    from evenout.gpu import _torch_pairs

    return _torch_pairs.pair_sums(X, Z, groups, folds, device=device, **settings)


def cross_fit_neighbours(
    X: FloatArray, folds: IntArray | None, *, device: str = "cuda", **settings: Any
) -> tuple[Neighbours, FloatArray, Without]:
    """`Neighbours.cross_fit`, whose arguments these are, with the one search on a device: the same bit for bit."""
    check_device(device)
    from evenout.gpu import _torch_neighbours

    return _torch_neighbours.cross_fit(X, folds, device, **settings)


def cross_fit_forest(
    X: FloatArray, folds: IntArray | None, *, device: str = "cuda", **settings: Any
) -> tuple[Forest, FloatArray, Without]:
    """`Forest.cross_fit`, whose arguments these are: trees are grown on the CPU, rows go down them on a device."""
    check_device(device)
    from evenout.gpu import _torch_forest

    return Forest.cross_fit(X, folds, **settings, score=partial(_torch_forest.score, device=device))


def score(part: Any, X: FloatArray, *, n_threads: int = 1, device: str = "cuda") -> FloatArray:
    """``part.score(X, n_threads=n_threads)`` of a fitted detector, neighbours and forests on the device."""
    check_device(device)
    from evenout.gpu import _torch_forest, _torch_neighbours

    if isinstance(part, Nearness):
        raw = score(part.neighbours, turned(X, part.turn, n_threads), n_threads=n_threads, device=device)
        return part.logarithms(raw, n_threads=n_threads)
    if isinstance(part, Neighbours):
        return _torch_neighbours.score(part, X, device, n_threads)
    if isinstance(part, Forest):
        return _torch_forest.score(part, X, device, n_threads)
    return part.score(X, n_threads=n_threads)
