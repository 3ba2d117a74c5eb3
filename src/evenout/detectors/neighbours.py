"""LOF and k-NN scores from one graph of neighbours.

With N_k(x) the k nearest rows of x (x itself left out), dist_k(x) the distance of the k-th of them::

    kNN_k(x)   = dist_k(x)
    reach(x,o) = max(dist(x, o), dist_k(o))
    lrd_k(x)   = 1 / (mean of reach(x, o) over o in N_k(x)  +  1e-10)
    LOF_k(x)   = mean of lrd_k(o) over o in N_k(x)  /  lrd_k(x)

as in scikit-learn. Ties are broken by (distance, then feature values, the larger first), so the order of the rows
and the way of searching never matter. Equal rows are one *location* that counts several rows: searched once, scored
once. Expanded to rows, the lists would take more memory than all else in a fit, so a block of rows is expanded whenever
it is needed, and forgotten.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from evenout.core.content import row_order
from evenout.core.parallel import map_blocks, side_by_side, take_rows
from evenout.core.types import FloatArray, IntArray, Within, require
from evenout.detectors.family import Without, by_refitting
from evenout.detectors.search import FEW, Blocks, Ids, cut_blocks, drop_points, nearest
from evenout.exceptions import warn

ROWS = 4096  # rows per piece of work handed to a thread


@dataclass(frozen=True, eq=False)
class NeighbourLists:
    """The k nearest rows of each of m rows: their distances and locations."""

    near: tuple[FloatArray, Ids]  # (m, listed): distances and ids of locations near each row
    counts: IntArray  # (u,): rows at each location
    k: int
    home: Ids  # (m,): the location of each row, which is not listed a second time; -1 for a row that is at none
    own: IntArray  # (m,): copies of each row, which come first
    # Rows, in order, whose lists do not fill k slots, and are taken from ``filled`` instead.
    short: IntArray | None = None
    filled: "NeighbourLists | None" = None  # of these rows

    def of(self, rows: slice) -> tuple[FloatArray, Ids]:
        """Distances and locations of the rows near some rows, each (rows, k); -1 where a list is too short."""
        from evenout.detectors._neighbour_kernels import fill_slots

        own = self.own[rows]
        distance, location = np.empty((len(own), self.k)), np.empty((len(own), self.k), dtype=np.int32)
        fill_slots(self.near[0][rows], self.near[1][rows], self.home[rows], own, self.counts, distance, location)
        if self.short is not None and self.filled is not None:
            first, last = np.searchsorted(self.short, (rows.start, rows.start + len(own)))
            if first < last:
                at = self.short[first:last] - rows.start
                distance[at], location[at] = self.filled.of(slice(int(first), int(last)))
        return distance, location

    def distances(self, ks: IntArray, n_threads: int) -> FloatArray:
        """Distances of the k-th nearest rows, shape (m, len(ks)); NaN where a list is too short."""
        out = np.empty((len(self.own), len(ks)))

        def work(rows: slice) -> None:
            distance, location = (values.take(ks - 1, axis=1) for values in self.of(rows))
            distance[location < 0] = np.nan
            out[rows] = distance

        map_blocks(work, len(self.own), ROWS, n_threads)
        return out


def rate(
    lists: NeighbourLists,
    lof: IntArray,
    knn: IntArray,
    n_threads: int,
    search_again: Callable[[IntArray], NeighbourLists] | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """k-distances, densities and scores of rows that are neighbours of each other; see `Neighbours`.

    ``search_again`` finds the lists of rows, given by index, whose lists are too short.
    """
    from evenout.detectors._neighbour_kernels import densities, factors

    m, ks = len(lists.own), np.concatenate([lof, knn])
    distances = lists.distances(ks, n_threads)
    short = np.flatnonzero(np.isnan(distances).any(axis=1))
    if search_again is not None and len(short):
        filled = search_again(short)
        lists = replace(lists, short=short, filled=filled)
        distances[short] = filled.distances(ks, n_threads)
    k_distance = np.ascontiguousarray(distances[:, : len(lof)])
    if not len(lof):
        return k_distance, np.empty((m, 0)), distances
    blocks = map_blocks(lambda rows: densities(*lists.of(rows), k_distance, lof), m, ROWS, n_threads)
    density = np.concatenate(blocks)
    blocks = map_blocks(lambda rows: factors(lists.of(rows)[1], density[rows], density, lof), m, ROWS, n_threads)
    return k_distance, density, side_by_side([np.concatenate(blocks), distances[:, len(lof) :]], n_threads)


SPARE = 3.0  # standard deviations by which lists are longer than needed, so that a fold may be left out
BATCH = 65536  # new rows scored at a time: bounds the memory for their neighbours to some 50 MB


@dataclass(frozen=True, eq=False)
class Neighbours:
    """LOF and kNN detectors that share one graph; the learned state is plain arrays.

    Attributes
    ----------
    locations : array, u x d
        The distinct training rows, sorted by their values, first feature first, the largest first.
    counts : array of int, u
        Number of training rows at each location.
    lof, knn : arrays of int
        Neighbours of each LOF and of each kNN detector, at most the number of training rows less one.
    k_distance, density : arrays, u x len(lof)
        dist_k and lrd_k of the locations' rows.
    scores : array, u x (len(lof) + len(knn))
        Training scores of the locations' rows.

    Examples
    --------
    >>> import numpy as np
    >>> model, scores = Neighbours.fit(np.array([[0.0], [1.0], [2.0], [9.0]]), lof=[2], knn=[1, 2])
    >>> scores.round(1)
    array([[0.9, 1. , 2. ],
           [1.3, 1. , 1. ],
           [0.9, 1. , 2. ],
           [4.4, 7. , 8. ]])
    >>> model.score(np.array([[9.0], [4.0]])).round(1)
    array([[4.4, 7. , 8. ],
           [1.5, 2. , 3. ]])
    """

    locations: Annotated[FloatArray, "* *"]
    counts: Annotated[IntArray, "*", Within(1)]
    lof: Annotated[IntArray, "l", Within(1)]
    knn: Annotated[IntArray, "*", Within(1)]
    k_distance: Annotated[FloatArray, "u l"]
    density: Annotated[FloatArray, "u l"]
    scores: Annotated[FloatArray, "u w"]
    kind: ClassVar[str] = "neighbours"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.lof) + len(self.knn)

    @property
    def k_max(self) -> int:
        """Neighbours of the detector that asks for most."""
        return int(max([*self.lof, *self.knn]))

    def fits(self, n_rows: int, n_features: int) -> None:
        """Rows at each location, as many as there are, and no more neighbours than these."""
        u = len(self.scores)
        require(self.locations.shape == (u, n_features), "locations", "has the wrong shape")
        sound = len(self.counts) == u and self.counts.max(initial=0) <= n_rows and self.counts.sum() == n_rows
        require(sound, "counts", "is out of range")
        for name in ("lof", "knn"):
            require(getattr(self, name).max(initial=1) < n_rows, name, "is out of range")
        require(self.width and self.scores.shape[1] == self.width, "scores", "has the wrong shape")

    @classmethod
    def fit(
        cls, X: FloatArray, *, lof: Sequence[int], knn: Sequence[int], n_threads: int = 1
    ) -> tuple["Neighbours", FloatArray]:
        """Learn from the rows of ``X`` (n x d); the model and the raw training scores.

        Parameters
        ----------
        X : array, n x d
            At least two rows, finite.
        lof, knn : sequences of int
            Number of neighbours of each detector.
        n_threads : int
            Threads to use; results do not depend on it.

        Returns
        -------
        Neighbours
            The fitted model.
        array, n x (len(lof) + len(knn))
            Scores of the training rows, LOF first; higher = more outlying.
        """
        return cls.cross_fit(X, None, lof=lof, knn=knn, n_threads=n_threads)[:2]

    @classmethod
    def cross_fit(
        cls,
        X: FloatArray,
        folds: IntArray | None,
        *,
        lof: Sequence[int],
        knn: Sequence[int],
        n_threads: int = 1,
    ) -> tuple["Neighbours", FloatArray, Without]:
        """Learn from all rows, and from the rows outside each fold, with one search for all of them.

        The lists of neighbours are somewhat longer than needed, so that enough are left when a fold is dropped from
        them; the few rows for which that fails are searched for again.

        Parameters
        ----------
        X, lof, knn, n_threads
            As in `fit`.
        folds : array of int, n, or None
            The fold of each row; None: no fold is to be left out.

        Returns
        -------
        Neighbours, and array, n x (len(lof) + len(knn))
            What `fit` returns, bit for bit.
        function of a fold
            Scores of all rows, bit for bit, by the model that `fit` learns from the rows outside the fold: their
            training scores, and the others as new rows. Fewer rows may cap the numbers of neighbours further.
        """
        lof_k, knn_k = check_neighbours(lof, knn, len(X))
        locations, counts, home = distinct_rows(X)
        k_max = int(max([*lof_k, *knn_k]))
        k = min(listed_neighbours(k_max, folds), len(locations) - 1)
        blocks = cut_blocks(locations, n_threads=n_threads)
        near = nearest(blocks, k, n_threads=n_threads)
        lists = NeighbourLists(near, counts, k_max, np.arange(len(locations), dtype=np.int32), counts - 1)
        model = cls(locations, counts, lof_k, knn_k, *rate(lists, lof_k, knn_k, n_threads))
        if folds is not None:  # for lists that turn out too short
            model.__dict__["_cut"] = blocks

        def refit(rows: FloatArray, fold: int) -> tuple[Neighbours, FloatArray]:  # noqa: ARG001
            fewer = [capped(ks, len(rows)).tolist() for ks in (lof_k, knn_k)]
            return cls.fit(rows, lof=fewer[0], knn=fewer[1], n_threads=n_threads)

        def without(fold: int) -> FloatArray:
            kept = np.asarray(folds) != fold
            if kept.sum() <= k_max:
                return by_refitting(X, folds, refit, n_threads=n_threads)(fold)
            left = counts - np.bincount(home[~kept], minlength=len(counts))
            return take_rows(model._scores_without(near, left, n_threads), home, n_threads)

        return model, take_rows(model.scores, home, n_threads), without

    def _scores_without(self, near: tuple[FloatArray, Ids], counts: IntArray, n_threads: int) -> FloatArray:
        """Scores at all locations, u x columns, if only ``counts`` rows are left at each.

        A location without rows is scored as a new row. It is no neighbour of any other, so its own k-distance and
        density play no part.
        """
        k_max = self.k_max
        itself, own = np.arange(len(counts), dtype=np.int32), np.maximum(counts - 1, 0)

        def search_again(short: IntArray) -> NeighbourLists:
            # One more than needed: a location that is left finds itself.
            k = min(k_max + 1, int((counts > 0).sum()))
            data = drop_points(self.blocks(n_threads), counts == 0, n_threads=n_threads)
            again = nearest(data, k, queries=self.locations[short], n_threads=n_threads)
            return NeighbourLists(again, counts, k_max, itself[short], own[short])

        lists = NeighbourLists(near, counts, k_max, itself, own)
        return rate(lists, self.lof, self.knn, n_threads, search_again)[2]

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Raw scores of the rows of ``X`` (m x d), m x (len(lof) + len(knn)); higher = more outlying.

        A row equal to a training row is scored as that row: one such copy is left out of its neighbours.
        """
        from evenout.detectors._neighbour_kernels import find_rows

        scores = np.empty((len(X), self.scores.shape[1]))
        for start in range(0, len(X), BATCH):
            batch = np.array(X[start : start + BATCH])
            into = scores[start : start + BATCH]
            home = find_rows(batch, self.locations)
            known = home >= 0
            if not known.any():
                into[:] = self._score_new(batch, n_threads)
                continue
            into[known] = self.scores[home[known]]
            if not known.all():
                into[~known] = self._score_new(batch[~known], n_threads)
        return scores

    def _score_new(self, X: FloatArray, n_threads: int) -> FloatArray:
        """Scores of rows that equal no training row."""
        k, blocks = min(self.k_max, len(self.locations)), self.blocks(n_threads)
        few = len(X) <= FEW
        near = blocks.few.nearest(X, k) if few else nearest(blocks, k, queries=X, n_threads=n_threads)
        return self.score_near(near, n_threads)

    def score_near(self, near: tuple[FloatArray, Ids], n_threads: int) -> FloatArray:
        """Scores of rows that equal no training row, by the locations ``near`` them."""
        from evenout.detectors._neighbour_kernels import densities, factors

        m, n_lof = len(near[0]), len(self.lof)
        nowhere, none = np.full(m, -1, dtype=np.int32), np.zeros(m, dtype=np.intp)
        lists, scores = NeighbourLists(near, self.counts, self.k_max, nowhere, none), np.empty((m, self.width))

        def work(rows: slice) -> None:
            distance, location = lists.of(rows)
            scores[rows, n_lof:] = distance[:, self.knn - 1]
            if n_lof:
                density = densities(distance, location, self.k_distance, self.lof)
                scores[rows, :n_lof] = factors(location, density, self.density, self.lof)

        map_blocks(work, m, ROWS, n_threads)
        return scores

    def blocks(self, n_threads: int = 1) -> Blocks:
        """The locations, cut for searching, once; they follow from them, so they are no part of the learned state."""
        if "_cut" not in self.__dict__:
            self.__dict__["_cut"] = cut_blocks(self.locations, n_threads=n_threads)
        blocks: Blocks = self.__dict__["_cut"]
        return blocks


def distinct_rows(X: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Distinct rows of ``X``, largest values first, how often each occurs, and which of them each row is.

    >>> distinct_rows(np.array([[2.0, 0.0], [1.0, 5.0], [2.0, -0.0]]))
    (array([[2., 0.], [1., 5.]]), array([2, 1]), array([0, 1, 0]))
    """
    order, new = row_order(X)
    order, new = order[::-1], np.append(True, new[:0:-1])
    home = np.empty(len(X), dtype=np.intp)
    home[order] = np.cumsum(new) - 1
    return X.take(order[new], axis=0) + 0.0, np.diff(np.flatnonzero(new), append=len(X)), home  # + 0.0: no -0.0 remains


def check_neighbours(lof: Sequence[int], knn: Sequence[int], n_rows: int) -> tuple[IntArray, IntArray]:
    """Cap the numbers of neighbours at ``n_rows - 1``, with one warning if any was larger."""
    ks, allowed = [*lof, *knn], n_rows - 1
    if n_rows < 2:
        raise ValueError(f"X has {n_rows} row(s); neighbours need at least 2: give more rows.")
    if min(ks, default=0) < 1:
        raise ValueError(f"lof={[*lof]}, knn={[*knn]}: give at least one number of neighbours, each >= 1.")
    if max(ks) > allowed:
        warn(
            f"n_neighbors ({max(ks)}) is greater than the number of other rows (X has {n_rows} rows): "
            f"n_neighbors above {allowed} is set to {allowed}.",
            UserWarning,
        )
    return capped(lof, n_rows), capped(knn, n_rows)


def capped(ks: Sequence[int] | IntArray, n_rows: int) -> IntArray:
    """Numbers of neighbours that ``n_rows`` rows have."""
    return np.minimum(ks, max(n_rows - 1, 1)).astype(np.intp)


def listed_neighbours(k: int, folds: IntArray | None) -> int:
    """How many neighbours to list so that k are left when the rows of a fold go, at most 4 k.

    Of m rows about ``m (1 - share)`` are left, give or take ``sqrt(m share (1 - share))``, if the largest fold is a
    random ``share`` of all rows.

    >>> listed_neighbours(30, np.arange(100) % 5), listed_neighbours(30, np.arange(100) % 2)
    (48, 89)
    """
    if folds is None:
        return k
    share = np.unique(folds, return_counts=True)[1].max() / len(folds)
    kept = 1.0 - share
    spread = SPARE * np.sqrt(share * kept)
    root = (spread + np.sqrt(spread**2 + 4.0 * kept * k)) / 2.0  # solves root^2 kept - spread root = k for root kept
    return min(int(np.ceil((root / kept) ** 2)) if kept > 0 else 4 * k, 4 * k)
