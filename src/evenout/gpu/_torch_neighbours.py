"""Nearest points, LOF and k-NN scores on a GPU.

Points lie in random order in blocks of 128. A fused kernel finds, for each query, the smallest squared distance to
every block, up to rounding. The k-th smallest of these, ``kth``, bounds the distance of the k-th nearest point, and any
point within that bound lies in a block whose minimum is within it: with ``e`` the bound on the rounding, no block above
``kth + 2 e`` can matter. That is seldom more than k blocks, and hardly more points than k lie within the bound; their
distances are computed in float64, as on the CPU, and sorted by (distance, id). Where there are many blocks, the minima
of groups of them are as good a bound, and only groups within it are looked into.

Queries with more blocks or points in reach than there was room for are asked again with more room and a kernel that
rounds less, and then on the CPU.

Sums run over the neighbours in their order, one vector operation for all rows at a time: the results are those of the
CPU, bit for bit.
"""

from collections.abc import Callable, Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor

from evenout.core.parallel import ROWS, map_blocks, take_rows
from evenout.core.types import FloatArray, IntArray
from evenout.detectors import search
from evenout.detectors._neighbour_kernels import find_rows
from evenout.detectors.family import Without
from evenout.detectors.neighbours import GUARD, Neighbours, check_neighbours, listed_neighbours
from evenout.gpu._torch_rows import (
    can_fuse,
    download,
    kept,
    roots,
    rounding_of_differences,
    rounding_of_halves,
    scale_to_halves,
    split,
    squared_distances,
    upload,
)

BLOCK = 128  # points in a block, and queries in a tile
LANES = 4  # blocks that lie in as many tiles together
GROUPS = 512  # at least, where several blocks make a group whose minimum is looked at first
NUMBERS = 2**27  # in a block of distances: bounds the memory for it to 1 GB
SHARE = 16  # of a device's memory, for the minima of a block of queries, in float32
FEW_DISTANCES = 2**24  # distances, up to which all are computed: a hundred calls for few queries take longer
NO_ID = torch.iinfo(torch.int64).max


def nearest(
    points: Tensor,
    k: int,
    queries: Tensor | None = None,
    *,
    n_threads: int = 1,
    index: "Index | None" = None,
    blocks: Callable[[], search.Blocks] | None = None,
) -> tuple[Tensor, Tensor]:
    """Distances and ids of the ``k`` nearest of the ``points`` (n, d), sorted by (distance, id), each (m, k).

    Without ``queries`` (m, d) they are those of every point, the point itself left out. ``n_threads`` of the CPU search
    for queries that the GPU could not settle. ``index`` and ``blocks`` are the points as prepared by `index_of` and
    `search.cut_blocks`; they are made here if they are needed and not given.
    """
    asked, device = points if queries is None else queries, points.device
    # A point finds itself first; one more neighbour makes up for it.
    wanted = k + 1 if queries is None else k
    few = len(asked) * len(points) <= FEW_DISTANCES
    index = index_of(points, wanted) if index is None and not few else index
    distances, ids = points.new_empty(len(asked), k), torch.empty(len(asked), k, dtype=torch.int64, device=device)
    if index is None or few:  # compute and compare all distances, block by block
        step = max(NUMBERS // max(len(points), 1), 1)
        for start in range(0, len(asked) if k else 0, step):
            block = slice(start, start + step)
            measured = roots(squared_distances(asked[block], points))
            if queries is None:
                measured.diagonal(start).fill_(torch.inf)
            distances[block], ids[block] = _smallest(measured, k)
        return distances, ids
    index, left = index.reaching(asked), torch.arange(len(asked), device=device)
    numbers = torch.cuda.get_device_properties(device).total_memory // SHARE // 4 if points.is_cuda else NUMBERS
    step = max(numbers // index.n_blocks // BLOCK, 1) * BLOCK
    for times, by_differences in ((2, False), (16, True)):
        room = 1 << (times * wanted - 1).bit_length()
        failed = []
        for rows in left.split(step):
            own = rows if queries is None else None
            near, names, complete = index.search(asked[rows], wanted, room, own, by_differences)
            if not complete.all():
                failed.append(rows[~complete])
                rows, near, names = rows[complete], near[complete], names[complete]
            distances[rows], ids[rows] = near[:, :k], names[:, :k]
        left = torch.cat([left[:0], *failed])
        if not len(left):
            return distances, ids
    data = search.cut_blocks(points.cpu().numpy(), n_threads=n_threads) if blocks is None else blocks()
    exact, exact_ids = search.nearest(data, wanted, queries=asked[left].cpu().numpy(), n_threads=n_threads)
    if queries is None:
        others = exact_ids != left.cpu().numpy()[:, None]
        exact, exact_ids = exact[others].reshape(-1, k), exact_ids[others].reshape(-1, k)
    distances[left] = torch.as_tensor(exact).to(distances)
    ids[left] = torch.as_tensor(exact_ids.astype(np.int64)).to(ids)
    return distances, ids


def index_of(points: Tensor, wanted: int) -> "Index | None":
    """Prepare the points for the fused kernels, where these find ``wanted`` neighbours faster; else None."""
    fused = can_fuse(points.device, len(points) + BLOCK, 3 * points.shape[1] + 64)
    return Index(points) if fused and len(points) >= 4 * wanted * BLOCK else None


def _smallest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k smallest of each row with their columns, sorted by (value, column)."""
    listed = min(k + 8, values.shape[1])
    few, columns = torch.topk(values, listed, largest=False)
    columns, order = columns.sort(dim=1)
    few, order = few.gather(1, order).sort(dim=1, stable=True)
    columns = columns.gather(1, order)
    if listed < values.shape[1]:  # a tie that reaches the end of the list may go on beyond it
        tied = (few[:, -1] == few[:, k - 1]).nonzero()[:, 0]
        if len(tied):
            whole, order = values[tied].sort(dim=1, stable=True)
            few[tied], columns[tied] = whole[:, :listed], order[:, :listed]
    return few[:, :k], columns[:, :k]


def _stages(halves: Tensor) -> int:
    """Tiles that `block_minima` loads ahead: several, where two programs find room for them in a multiprocessor."""
    memory = getattr(torch.cuda.get_device_properties(halves.device), "shared_memory_per_multiprocessor", 0)
    return 3 if halves.shape[1] == 32 and memory >= 220_000 else 1


class Index:
    """Points in random order and whole blocks, ready to be searched. It does not change: threads may share it."""

    def __init__(self, points: Tensor) -> None:
        n, d = points.shape
        self.n_points, self.group = n, 1 << max(n // BLOCK // GROUPS, 1).bit_length() - 1
        self.group = self.group if self.group >= LANES else 1
        whole = max(LANES, self.group) * BLOCK
        self.n_blocks = -(-n // whole) * whole // BLOCK
        shuffle = torch.randperm(n, generator=torch.Generator(points.device).manual_seed(0), device=points.device)
        # Places beyond the last point hold infinity.
        self.columns = points.new_full((d, self.n_blocks * BLOCK), torch.inf)
        self.columns[:, :n] = points[shuffle].T
        self.ids = torch.full((self.n_blocks * BLOCK,), NO_ID, device=points.device)
        self.ids[:n] = shuffle
        self.centre = points.median(dim=0).values  # not the mean: rounding grows with the distance from here
        self._scale_to(scale_to_halves(points - self.centre))

    def _scale_to(self, unit: float) -> None:
        self.unit = unit
        scaled = self.columns.new_zeros(self.columns.shape[::-1])
        scaled[: self.n_points] = self._scaled(self.columns[:, : self.n_points].T)
        self.right = _in_lanes(split(scaled, real=self.n_points).right)

    def reaching(self, queries: Tensor) -> "Index":
        """The index itself or, for queries further out than its points, one whose scale has room for them."""
        unit = scale_to_halves(queries - self.centre)
        if unit >= self.unit:
            return self
        wider = copy(self)
        wider._scale_to(unit)
        return wider

    def _scaled(self, rows: Tensor) -> Tensor:
        return (rows - self.centre) * self.unit

    def search(
        self, asked: Tensor, wanted: int, room: int, itself: Tensor | None, by_differences: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Distances and ids (m, room) sorted by both, ``itself`` and empty places last, and where they are complete."""
        scaled, m = self._scaled(asked), len(asked)
        tiles = torch.nn.functional.pad(scaled, (0, 0, 0, -m % BLOCK))  # whole ones, with rows of 0
        minima, grouped = self._minima_by_differences(tiles) if by_differences else self._minima(tiles)
        minima, grouped = minima[:m], grouped[:m]
        group = self.group if 2 * room <= self.n_blocks // self.group else 1
        grouped = grouped if group > 1 else minima
        n_listed = min(room, grouped.shape[1])
        near, blocks = torch.topk(grouped, n_listed, largest=False)
        kth = near[:, wanted - 1].double().clamp(min=0.0)
        length = 1.01 * (scaled.norm(dim=1) + kth.sqrt())
        slack = (
            rounding_of_differences(length, 1.01 * kth.sqrt(), asked.shape[1])
            if by_differences
            else rounding_of_halves(length, self.right.shape[1], asked.shape[1])
        )
        reach = kth + 2 * slack
        visited = (near <= reach[:, None]).sum(dim=1)
        complete = (visited < n_listed) | (n_listed == grouped.shape[1])
        if group > 1:  # what was listed are groups
            blocks, visited = self._near_blocks(minima, blocks, visited, reach, room)
            complete &= visited <= room
        limit = (kth + slack) / self.unit / self.unit * (1 + 1e-9)
        squared, places, count = self._near_points(asked, blocks, visited.clamp(max=room), limit, room)
        complete &= (count >= wanted) & (count <= room)
        ids = torch.where(places < 0, NO_ID, self.ids[places])
        distances = roots(squared)
        if itself is not None:
            distances.masked_fill_(ids == itself[:, None], torch.inf)
        ids, order = ids.sort(dim=1)
        distances, order = distances.gather(1, order).sort(dim=1, stable=True)
        return distances, ids.gather(1, order), complete

    def _minima(self, scaled: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest squared distance of each query to each block (m, n_blocks) and to each group, by half precision."""
        from evenout.gpu._triton_kernels import block_minima

        halves = split(scaled)
        n_parts, n_group = self.n_blocks // LANES, max(self.group // LANES, 1)
        minima, grid, n_each = self._minima_grid(len(halves.left), n_parts, n_group)
        n_group = n_group if self.group > 1 else n_each
        grouped = minima.new_empty(len(minima), -(-n_parts // n_group))
        block_minima[grid](
            halves.left, self.right, halves.norm, minima, grouped, n_parts, n_each, n_group,
            WIDTH=halves.left.shape[1], CHUNK=halves.chunk, ROWS=BLOCK, COLUMNS=BLOCK, LANES=LANES, num_warps=8,
            num_stages=_stages(halves.left),
        )  # fmt: skip
        return minima, grouped

    def _minima_by_differences(self, scaled: Tensor) -> tuple[Tensor, Tensor]:
        """Minima likewise, from differences of coordinates: slower, and with less rounding."""
        from evenout.gpu._triton_kernels import block_minima_by_differences

        rows = scaled.float().T.contiguous()
        columns = self._scaled(self.columns.T).float().T.contiguous()
        minima, grid, n_each = self._minima_grid(rows.shape[1], self.n_blocks, 1)
        block_minima_by_differences[grid](
            rows, columns, minima, rows.shape[1], columns.shape[1], self.n_blocks, n_each, len(rows),
            ROWS=BLOCK, COLUMNS=BLOCK, num_warps=8,
        )  # fmt: skip
        return minima, minima.unflatten(1, (-1, self.group)).amin(dim=2)

    def _minima_grid(self, n_rows: int, n_pieces: int, together: int) -> tuple[Tensor, tuple[int, int], int]:
        """Room for the minima, programs by tiles of rows and parts of the pieces, and pieces in each part.

        Of the pieces, so many must stay ``together``.
        """
        n_tiles = n_rows // BLOCK
        n_parts = min(n_pieces // together, max(1, 4096 // n_tiles))
        n_each = -(-n_pieces // together // n_parts) * together
        return torch.empty(n_rows, self.n_blocks, device=self.ids.device), (n_tiles, n_parts), n_each

    def _near_blocks(
        self, minima: Tensor, groups: Tensor, visited: Tensor, reach: Tensor, room: int
    ) -> tuple[Tensor, Tensor]:
        """Blocks (m, room) whose minima are within reach, of the first ``visited`` groups, and how many they are."""
        from evenout.gpu._triton_kernels import near_blocks

        blocks = torch.empty(len(minima), room, dtype=torch.int32, device=minima.device)
        count = torch.empty(len(minima), dtype=torch.int32, device=minima.device)
        near_blocks[(len(minima),)](
            minima, groups.int(), visited.int(), reach, blocks, count, self.n_blocks, groups.shape[1],
            GROUP=self.group, ROOM=room, num_warps=1,
        )  # fmt: skip
        return blocks, count

    def _near_points(
        self, asked: Tensor, blocks: Tensor, visited: Tensor, limit: Tensor, room: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Squared distances and places (m, room) of the points within the limits, and how many they are (m,)."""
        from evenout.gpu._triton_kernels import near_points

        m, d = asked.shape
        squared = asked.new_full((m, room), torch.inf)
        places = torch.full((m, room), -1, dtype=torch.int32, device=asked.device)
        count = torch.empty(m, dtype=torch.int32, device=asked.device)
        near_points[(m,)](
            self.columns, asked.contiguous(), blocks.int(), visited.int(), limit, squared, places, count,
            self.columns.shape[1], d, blocks.shape[1], COLUMNS=BLOCK, ROOM=room, num_warps=1,
            enable_fp_fusion=False,
        )  # fmt: skip
        return squared, places.long(), count


def _in_lanes(rows: Tensor) -> Tensor:
    """Rows of whole blocks as `block_minima` meets them: in each tile, two of each of LANES blocks in turn."""
    parted = rows.unflatten(0, (-1, LANES, LANES, BLOCK // LANES // 2, 2))
    return parted.permute(0, 2, 3, 1, 4, 5).reshape(rows.shape)


SLICE = 2**20  # rows whose lists are expanded together: bounds the memory for that to some 3 GB
FEW = 4096  # new rows whose neighbours are found on the device and weighed on the CPU: hundreds of calls are dearer


def cross_fit(
    X: FloatArray, folds: IntArray | None, device: str, *, lof: Sequence[int], knn: Sequence[int], n_threads: int = 1
) -> tuple[Neighbours, FloatArray, Without]:
    """See `Neighbours.cross_fit`."""
    lof_k, knn_k = check_neighbours(lof, knn, len(X))
    k_max = int(max([*lof_k, *knn_k]))
    if folds is not None and len(X) - np.unique(folds, return_counts=True)[1].max() <= k_max:
        # So few are left without a fold that numbers of neighbours change.
        return Neighbours.cross_fit(X, folds, lof=lof_k.tolist(), knn=knn_k.tolist(), n_threads=n_threads)
    locations, counts, home = distinct_rows(upload(X, device))
    itself = torch.arange(len(locations), device=locations.device)
    graph = nearest(locations, min(listed_neighbours(k_max, folds), len(locations) - 1), n_threads=n_threads)
    rated = _rate(*_rows_near(*graph, itself, counts, k_max), lof_k, knn_k)
    known, rows, *state, scores = (download(array, n_threads) for array in (locations, counts, *rated, rated[2][home]))

    def without(fold: int) -> FloatArray:
        left = torch.bincount(home[upload(np.asarray(folds) != fold, device)], minlength=len(locations))
        distance, neighbour = _rows_near(*graph, itself, left, k_max)
        short = (neighbour[:, -1] < 0).nonzero()[:, 0]
        if len(short):  # search again among the locations that are left
            there = left.nonzero()[:, 0]
            k = min(k_max + 1, len(there))  # one more than needed: a location that is left finds itself
            near, ids = nearest(locations[there], k, locations[short], n_threads=n_threads)
            distance[short], neighbour[short] = _rows_near(near, there[ids], short, left, k_max)
        return download(_rate(distance, neighbour, lof_k, knn_k)[2][home], n_threads)

    return Neighbours(known, rows, lof_k, knn_k, *state), scores, without


def score(model: Neighbours, X: FloatArray, device: str, n_threads: int) -> FloatArray:
    """See `Neighbours.score`."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    parts = map_blocks(lambda rows: find_rows(X[rows], model.locations), len(X), ROWS, n_threads)
    home = np.concatenate([np.empty(0, dtype=np.intp), *parts])
    scores, new = take_rows(model.scores, home, n_threads), home < 0
    if not new.any():
        return scores
    locations, counts, k_distance, density, index = kept(model, device, _send)
    k, asked = min(model.k_max, len(locations)), upload(X[new], device)
    near, ids = nearest(locations, k, asked, n_threads=n_threads, index=index, blocks=lambda: model.blocks(n_threads))
    if len(asked) <= FEW:
        scores[new] = model.score_near((near.cpu().numpy(), ids.cpu().numpy().astype(np.int32)), n_threads)
    else:
        rows_near = _rows_near(near, ids, counts.new_full((len(asked),), -1), counts, model.k_max)
        scores[new] = download(_rate(*rows_near, model.lof, model.knn, known=(k_distance, density))[2], n_threads)
    return scores


def _send(model: Neighbours, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Index | None]:
    """Locations, counts, k-distances and densities on a device, and the index where the fused kernels search them."""
    arrays = model.locations, model.counts, model.k_distance, model.density
    locations, counts, k_distance, density = (upload(array, device) for array in arrays)
    return locations, counts, k_distance, density, index_of(locations, min(model.k_max, len(locations)))


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


def _rows_near(distances: Tensor, ids: Tensor, home: Tensor, counts: Tensor, k_max: int) -> tuple[Tensor, Tensor]:
    """Expand neighbouring locations to ``k_max`` neighbouring rows; the other rows at ``home`` come first.

    Row i is at the location ``home[i]``, which is not listed a second time, or at none (-1). Of the rows at each
    location, ``counts``, it is one itself, if there are any.
    """
    if len(home) > SLICE:
        slices = zip(distances.split(SLICE), ids.split(SLICE), home.split(SLICE), strict=True)
        parts = [_rows_near(*rows, counts, k_max) for rows in slices]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    own = torch.where(home < 0, 0, (counts[home] - 1).clamp(min=0))
    filled = torch.cat([own[:, None], counts[ids].masked_fill_(ids == home[:, None], 0)], dim=1).cumsum(dim=1)
    slot = torch.arange(k_max, device=own.device).expand(len(own), k_max).contiguous()
    listed = torch.searchsorted(filled, slot, right=True)
    # Beyond the last of the list there is nothing.
    distances = torch.nn.functional.pad(torch.nn.functional.pad(distances, (1, 0)), (0, 1), value=torch.inf)
    ids = torch.nn.functional.pad(torch.cat([home[:, None], ids], dim=1), (0, 1), value=-1)
    return distances.gather(1, listed), ids.gather(1, listed)


def _rate(
    distance: Tensor, neighbour: Tensor, lof: IntArray, knn: IntArray, known: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """k-distances, densities and scores of rows that are neighbours of each other.

    Or their neighbours are other rows, whose k-distances and densities are ``known``.
    """
    k_distance = distance[:, lof - 1].contiguous()
    density = 1.0 / (_means(distance, neighbour, k_distance if known is None else known[0], lof) + GUARD)
    factor = _means(None, neighbour, density if known is None else known[1], lof) / density
    return k_distance, density, torch.cat([factor, distance[:, knn - 1]], dim=1)


def _means(distance: Tensor | None, neighbour: Tensor, value: Tensor, ks: IntArray) -> Tensor:
    """Mean of ``max(distance(i, o), value(o))``, or of the values, over the first k neighbours o, (m, len(ks))."""
    out = value.new_empty(len(neighbour), len(ks))
    for c, k in enumerate(ks.tolist()):
        total = value.new_zeros(len(neighbour))
        for j in range(k):
            there = value[neighbour[:, j], c]
            total += there if distance is None else torch.maximum(distance[:, j], there)
        # Rounded once: by a plain number, torch on a GPU multiplies with the rounded 1 / k instead.
        out[:, c] = total / torch.full_like(total, k)
    return out
