"""LOF and kNN scores with torch; formulas and rules are those of `evenout.detectors.neighbours`.

Sums run over the neighbours in their order, one vector operation for all rows at a time: the results are those of the
CPU, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenout.core.types import FloatArray, IntArray
from evenout.detectors._neighbour_kernels import GUARD, find_rows
from evenout.detectors.neighbours import Neighbours, _capped, _largest
from evenout.detectors.parts import Without
from evenout.detectors.search import Ids
from evenout.gpu._torch_kept import kept
from evenout.gpu._torch_rows import upload
from evenout.gpu._torch_search import Index, index_of, nearest

FEW = 4096  # new rows whose neighbours are found on the device and weighed on the CPU: hundreds of calls are dearer


def fit(
    X: FloatArray, lof: Sequence[int], knn: Sequence[int], device: str, n_threads: int
) -> tuple[Neighbours, FloatArray]:
    """See `Neighbours.fit`."""
    lof_k, knn_k = _capped(lof, knn, len(X))
    k_max = _largest(lof_k, knn_k)
    locations, counts, home = distinct_rows(upload(X, device))
    found = nearest(locations, min(k_max, len(locations) - 1), n_threads=n_threads)
    distance, neighbour = _slots(*found, counts, counts - 1, k_max)
    k_distance = distance[:, lof_k - 1]
    density = _densities(distance, neighbour, k_distance, lof_k)
    scores = torch.cat([_factors(neighbour, density, density, lof_k), distance[:, knn_k - 1]], dim=1)
    state = [array.cpu().numpy() for array in (k_distance.contiguous(), density, scores)]
    model = Neighbours(locations.cpu().numpy(), counts.cpu().numpy(), lof_k, knn_k, *state)
    return model, scores[home].cpu().numpy()


def cross_fit(
    X: FloatArray, folds: IntArray, lof: Sequence[int], knn: Sequence[int], device: str, n_threads: int
) -> tuple[Neighbours, FloatArray, Without]:
    """See `Neighbours.cross_fit`: the search runs on the device, what follows from its lists on the CPU."""

    def search(locations: FloatArray, k: int) -> tuple[FloatArray, Ids]:
        distances, ids = nearest(upload(locations, device), k, n_threads=n_threads)
        return distances.cpu().numpy(), ids.cpu().numpy().astype(np.int32)

    return Neighbours.cross_fit(X, folds, lof=lof, knn=knn, n_threads=n_threads, search=search)


def score(model: Neighbours, X: FloatArray, device: str, n_threads: int) -> FloatArray:
    """See `Neighbours.score`."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    home = find_rows(X, model.locations)
    scores = model.scores[home]
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
        blocks=lambda: model._blocks,
    )
    if len(found[0]) <= FEW:
        here = found[0].cpu().numpy(), found[1].cpu().numpy().astype(np.int32)
        scores[new] = model._score_found(here, n_threads)
        return scores
    distance, neighbour = _slots(*found, sent.counts, sent.counts.new_zeros(len(found[0])), k_max)
    own = _densities(distance, neighbour, sent.k_distance, model.lof)
    columns = [_factors(neighbour, own, sent.density, model.lof), distance[:, model.knn - 1]]
    scores[new] = torch.cat(columns, dim=1).cpu().numpy()
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


def _slots(distances: Tensor, ids: Tensor, counts: Tensor, own: Tensor, k_max: int) -> tuple[Tensor, Tensor]:
    """Expand neighbouring locations to ``k_max`` neighbouring rows; the ``own[i]`` copies of row i come first."""
    itself = torch.arange(len(own), device=own.device)
    taken = torch.cat([own[:, None], counts[ids]], dim=1).cumsum(dim=1)
    slot = torch.arange(k_max, device=own.device).expand(len(own), k_max).contiguous()
    place = torch.searchsorted(taken, slot, right=True)
    distances = torch.cat([distances.new_zeros(len(own), 1), distances], dim=1)
    ids = torch.cat([itself[:, None], ids], dim=1)
    return distances.gather(1, place), ids.gather(1, place)


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
