"""LOF and kNN scores with torch; formulas and rules are those of `evenout.detectors.neighbours`.

Sums run over the neighbours in their order, one vector operation for all rows at a time: the results are those of the
CPU, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenout.core.compiled import map_blocks
from evenout.core.rows import ROWS, take_rows
from evenout.core.types import FloatArray, IntArray
from evenout.detectors._neighbour_kernels import GUARD, find_rows
from evenout.detectors.neighbours import Neighbours, _capped, _enough, _largest
from evenout.detectors.parts import Without
from evenout.gpu._torch_kept import kept
from evenout.gpu._torch_rows import download, upload
from evenout.gpu._torch_search import Index, index_of, nearest

SLICE = 2**20  # rows whose lists are expanded together: bounds the memory for that to some 3 GB
FEW = 4096  # new rows whose neighbours are found on the device and weighed on the CPU: hundreds of calls are dearer


def fit(
    X: FloatArray, lof: Sequence[int], knn: Sequence[int], device: str, n_threads: int
) -> tuple[Neighbours, FloatArray]:
    """See `Neighbours.fit`."""
    model, scores, _ = _learn(X, *_capped(lof, knn, len(X)), device, n_threads)
    return model, scores


def cross_fit(
    X: FloatArray, folds: IntArray, lof: Sequence[int], knn: Sequence[int], device: str, n_threads: int
) -> tuple[Neighbours, FloatArray, Without]:
    """See `Neighbours.cross_fit`."""
    lof_k, knn_k = _capped(lof, knn, len(X))
    k_max, largest = _largest(lof_k, knn_k), np.unique(folds, return_counts=True)[1].max()
    if len(X) - largest <= k_max:  # so few are left without a fold that numbers of neighbours change
        return Neighbours.cross_fit(X, folds, lof=lof_k.tolist(), knn=knn_k.tolist(), n_threads=n_threads)
    model, scores, graph = _learn(X, lof_k, knn_k, device, n_threads, _enough(k_max, largest / len(X)))

    def without(fold: int) -> FloatArray:
        slots = graph.without(upload(folds != fold, device), k_max, n_threads)
        return download(_rate(*slots, lof_k, knn_k)[2][graph.home], n_threads)

    return model, scores, without


@dataclass(frozen=True)
class _Graph:
    """Distinct rows and their nearest others, somewhat more than are needed, on a device.

    Attributes
    ----------
    locations : tensor, (u, d)
    home : tensor of int, (n,)
        Where each row is among them.
    distances : tensor, (u, k)
    ids : tensor of int, (u, k)
    """

    locations: Tensor
    home: Tensor
    distances: Tensor
    ids: Tensor

    def slots(self, counts: Tensor, k_max: int) -> tuple[Tensor, Tensor]:
        """Neighbouring rows of those at each location, where so many are left at each; ids are -1 beyond the last."""
        itself = torch.arange(len(counts), device=counts.device)
        return _slots(self.distances, self.ids, itself, counts, k_max)

    def without(self, left: Tensor, k_max: int, n_threads: int) -> tuple[Tensor, Tensor]:
        """The same with the rows that are left (n,); lists that are too short are sought again among these."""
        counts = torch.bincount(self.home[left], minlength=len(self.locations))
        distance, neighbour = self.slots(counts, k_max)
        short = (neighbour[:, -1] < 0).nonzero()[:, 0]
        if len(short):
            there = counts.nonzero()[:, 0]
            # One more than needed: a location that is left finds itself.
            k = min(k_max + 1, len(there))
            found, ids = nearest(self.locations[there], k, self.locations[short], n_threads=n_threads)
            distance[short], neighbour[short] = _slots(found, there[ids], short, counts, k_max)
        return distance, neighbour


def _learn(
    X: FloatArray, lof: IntArray, knn: IntArray, device: str, n_threads: int, listed: int = 0
) -> tuple[Neighbours, FloatArray, _Graph]:
    """The model, the scores of its rows, and their graph with lists of at least ``listed`` neighbours."""
    locations, counts, home = distinct_rows(upload(X, device))
    k_max = _largest(lof, knn)
    found = nearest(locations, min(max(k_max, listed), len(locations) - 1), n_threads=n_threads)
    graph = _Graph(locations, home, *found)
    rated = _rate(*graph.slots(counts, k_max), lof, knn)
    known, rows, *state, scores = (download(array, n_threads) for array in (locations, counts, *rated, rated[2][home]))
    return Neighbours(known, rows, lof, knn, *state), scores, graph


def score(model: Neighbours, X: FloatArray, device: str, n_threads: int) -> FloatArray:
    """See `Neighbours.score`."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    parts = map_blocks(lambda rows: find_rows(X[rows], model.locations), len(X), ROWS, n_threads)
    home = np.concatenate([np.empty(0, dtype=np.intp), *parts])
    scores = take_rows(model.scores, home, n_threads)
    new = home < 0
    if not new.any():
        return scores
    sent, k_max = kept(model, device, _send), _largest(model.lof, model.knn)
    found = nearest(
        sent.locations,
        min(k_max, len(sent.locations)),
        upload(X[new], device),
        n_threads=n_threads,
        index=sent.index,
        blocks=lambda: model.blocks(n_threads),
    )
    if len(found[0]) <= FEW:
        here = found[0].cpu().numpy(), found[1].cpu().numpy().astype(np.int32)
        scores[new] = model._score_found(here, n_threads)
        return scores
    nowhere = sent.counts.new_full((len(found[0]),), -1)
    distance, neighbour = _slots(*found, nowhere, sent.counts, k_max)
    own = _densities(distance, neighbour, sent.k_distance, model.lof)
    columns = [_factors(neighbour, own, sent.density, model.lof), distance[:, model.knn - 1]]
    scores[new] = download(torch.cat(columns, dim=1), n_threads)
    return scores


@dataclass(frozen=True)
class _Sent:
    """A model on a device; ``index`` where the fused kernels search it."""

    locations: Tensor
    counts: Tensor
    k_distance: Tensor
    density: Tensor
    index: Index | None


def _send(model: Neighbours, device: torch.device) -> _Sent:
    locations, counts, k_distance, density = (
        upload(array, device) for array in (model.locations, model.counts, model.k_distance, model.density)
    )
    wanted = min(_largest(model.lof, model.knn), len(locations))
    return _Sent(locations, counts, k_distance, density, index_of(locations, wanted))


def distinct_rows(X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `evenout.detectors.neighbours.distinct_rows`: distinct rows, largest first, their counts, where each row is.

    >>> distinct_rows(torch.tensor([[2.0, 0.0], [1.0, 5.0], [2.0, -0.0]]))
    (tensor([[2., 0.], [1., 5.]]), tensor([2, 1]), tensor([0, 1, 0]))
    """
    X = X + 0.0  # no -0.0 remains
    order = torch.arange(len(X), device=X.device)
    for f in reversed(range(X.shape[1])):
        order = order[X[order, f].sort(descending=True, stable=True).indices]
    ordered = X[order]
    is_new = torch.ones(len(X), dtype=torch.bool, device=X.device)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(dim=1)
    home = torch.empty_like(order)
    home[order] = is_new.cumsum(0) - 1
    return ordered[is_new], torch.bincount(home), home


def _slots(distances: Tensor, ids: Tensor, home: Tensor, counts: Tensor, k_max: int) -> tuple[Tensor, Tensor]:
    """Expand neighbouring locations to ``k_max`` neighbouring rows; the other rows at ``home`` come first.

    Row i is at the location ``home[i]``, which is not listed a second time, or at none (-1). Of the rows at each
    location, ``counts``, it is one itself, if there are any.
    """
    parts = [
        _some_slots(*rows, counts, k_max)
        for rows in zip(distances.split(SLICE), ids.split(SLICE), home.split(SLICE), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _some_slots(distances: Tensor, ids: Tensor, home: Tensor, counts: Tensor, k_max: int) -> tuple[Tensor, Tensor]:
    own = torch.where(home < 0, 0, (counts[home] - 1).clamp(min=0))
    each = counts[ids].masked_fill_(ids == home[:, None], 0)
    taken = torch.cat([own[:, None], each], dim=1).cumsum(dim=1)
    slot = torch.arange(k_max, device=own.device).expand(len(own), k_max).contiguous()
    place = torch.searchsorted(taken, slot, right=True)
    # Beyond the last of the list there is nothing.
    distances = torch.nn.functional.pad(torch.nn.functional.pad(distances, (1, 0)), (0, 1), value=torch.inf)
    ids = torch.nn.functional.pad(torch.cat([home[:, None], ids], dim=1), (0, 1), value=-1)
    return distances.gather(1, place), ids.gather(1, place)


def _rate(distance: Tensor, neighbour: Tensor, lof: IntArray, knn: IntArray) -> tuple[Tensor, Tensor, Tensor]:
    """k-distances, densities and scores of rows that are neighbours of each other."""
    k_distance = distance[:, lof - 1].contiguous()
    density = _densities(distance, neighbour, k_distance, lof)
    return k_distance, density, torch.cat([_factors(neighbour, density, density, lof), distance[:, knn - 1]], dim=1)


def _densities(distance: Tensor, neighbour: Tensor, k_distance: Tensor, ks: IntArray) -> Tensor:
    """``1 / (mean_o max(distance(i, o), k_distance(o)) + guard)`` for each k, (m, len(ks))."""
    out = distance.new_empty(len(distance), len(ks))
    for c, k in enumerate(ks.tolist()):
        total = distance.new_zeros(len(distance))
        for j in range(k):
            total += torch.maximum(distance[:, j], k_distance[neighbour[:, j], c])
        out[:, c] = 1.0 / (_divided(total, k) + GUARD)
    return out


def _factors(neighbour: Tensor, own_density: Tensor, density: Tensor, ks: IntArray) -> Tensor:
    """Mean density of the neighbours over the row's own for each k, (m, len(ks))."""
    out = torch.empty_like(own_density)
    for c, k in enumerate(ks.tolist()):
        total = own_density.new_zeros(len(neighbour))
        for j in range(k):
            total += density[neighbour[:, j], c]
        out[:, c] = _divided(total, k) / own_density[:, c]
    return out


def _divided(total: Tensor, k: int) -> Tensor:
    """``total / k``, rounded once: by a plain number, torch on a GPU multiplies with the rounded 1 / k instead."""
    return total / torch.full_like(total, k)
