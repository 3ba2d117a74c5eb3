"""LOF and k-NN scores from one graph of neighbours.

A location counts several rows where rows are equal. Expanded to rows, the lists would take more memory than all else in
a fit, so a block of rows is expanded whenever it is needed, and forgotten.

With N_k(x) the k nearest rows of x (x itself left out), dist_k(x) the distance of the k-th of them::

    kNN_k(x)   = dist_k(x)
    reach(x,o) = max(dist(x, o), dist_k(o))
    lrd_k(x)   = 1 / (mean of reach(x, o) over o in N_k(x)  +  1e-10)
    LOF_k(x)   = mean of lrd_k(o) over o in N_k(x)  /  lrd_k(x)

as in scikit-learn. Ties are broken by (distance, then feature values, the larger first), so the order of the rows
and the way of searching never matter. Equal rows are one *location* that counts several rows: searched once, scored
once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, cast

import numpy as np

from evenout.core.checks import Within, require
from evenout.core.content import row_order
from evenout.core.parallel import map_blocks, side_by_side, take_rows
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.family import Without, by_refitting
from evenout.detectors.search import FEW, Blocks, Few, Ids, cut_blocks, drop_points, nearest
from evenout.exceptions import warn

ROWS = 4096  # rows per piece of work handed to a thread


@dataclass(frozen=True, eq=False)
class Slots:
    """The k nearest rows of each of m rows: their distances and locations.

    Parameters
    ----------
    found : arrays of shape (m, listed)
        Distances and ids of locations near each row.
    counts : array of int, shape (u,)
        Rows at each location.
    k : int
    home : array of int32, shape (m,)
        The location of each row, which is not listed a second time; -1 for a row that is at none.
    own : array of int, shape (m,)
        Copies of each row, which come first.
    short : array of int
        Rows, in order, whose lists do not fill k slots, and are taken from ``filled`` instead.
    filled : Slots or None
        Of these rows.
    """

    found: tuple[FloatArray, Ids]
    counts: IntArray
    k: int
    home: Ids
    own: IntArray
    short: IntArray | None = None
    filled: "Slots | None" = None

    def __len__(self) -> int:
        return len(self.own)

    def of(self, rows: slice) -> tuple[FloatArray, Ids]:
        """Distances and locations of the rows near some rows, each (rows, k); -1 where a list is too short."""
        from evenout.detectors._neighbour_kernels import fill_slots

        own = self.own[rows]
        distance, location = np.empty((len(own), self.k)), np.empty((len(own), self.k), dtype=np.int32)
        lists = self.found[0][rows], self.found[1][rows], self.home[rows]
        fill_slots(*lists, own, self.counts, distance, location)
        if self.short is not None and self.filled is not None:
            first, last = np.searchsorted(self.short, (rows.start, rows.start + len(own)))
            if first < last:
                at = self.short[first:last] - rows.start
                distance[at], location[at] = self.filled.of(slice(int(first), int(last)))
        return distance, location

    def distances(self, ks: IntArray, n_threads: int) -> FloatArray:
        """Distances of the k-th nearest rows, shape (m, len(ks)); NaN where a list is too short."""
        out = np.empty((len(self), len(ks)))

        def work(rows: slice) -> None:
            distance, location = (slot.take(ks - 1, axis=1) for slot in self.of(rows))
            distance[location < 0] = np.nan
            out[rows] = distance

        map_blocks(work, len(self), ROWS, n_threads)
        return out


def rate(
    slots: Slots,
    lof: IntArray,
    knn: IntArray,
    n_threads: int,
    search_again: Callable[[IntArray], Slots] | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """k-distances, densities and scores of rows that are neighbours of each other; see `Neighbours`.

    ``search_again`` finds the slots of rows whose lists are too short, by their places.
    """
    from evenout.detectors._neighbour_kernels import densities, factors

    m, distances = len(slots), slots.distances(np.concatenate([lof, knn]), n_threads)
    short = np.flatnonzero(np.isnan(distances).any(axis=1))
    if search_again is not None and len(short):
        filled = search_again(short)
        slots = replace(slots, short=short, filled=filled)
        distances[short] = filled.distances(np.concatenate([lof, knn]), n_threads)
    k_distance = np.ascontiguousarray(distances[:, : len(lof)])
    density, factor = np.empty((m, len(lof))), np.empty((m, len(lof)))
    if not len(lof):
        return k_distance, density, distances

    def weigh(rows: slice) -> None:
        density[rows] = densities(*slots.of(rows), k_distance, lof)

    def compare(rows: slice) -> None:
        factor[rows] = factors(slots.of(rows)[1], density[rows], density, lof)

    map_blocks(weigh, m, ROWS, n_threads)
    map_blocks(compare, m, ROWS, n_threads)
    return k_distance, density, side_by_side([factor, distances[:, len(lof) :]], n_threads)


def rate_new(
    slots: Slots, known: tuple[FloatArray, FloatArray], lof: IntArray, knn: IntArray, n_threads: int
) -> FloatArray:
    """Scores of new rows, whose neighbours have the k-distances and densities that are ``known``."""
    from evenout.detectors._neighbour_kernels import densities, factors

    scores = np.empty((len(slots), len(lof) + len(knn)))

    def work(rows: slice) -> None:
        distance, location = slots.of(rows)
        scores[rows, len(lof) :] = distance[:, knn - 1]
        if len(lof):
            density = densities(distance, location, known[0], lof)
            scores[rows, : len(lof)] = factors(location, density, known[1], lof)

    map_blocks(work, len(slots), ROWS, n_threads)
    return scores


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
        model, home, _ = cls._learn(X, *_capped(lof, knn, len(X)), n_threads)
        return model, take_rows(model.scores, home, n_threads)

    @classmethod
    def cross_fit(
        cls,
        X: FloatArray,
        folds: IntArray,
        *,
        lof: Sequence[int],
        knn: Sequence[int],
        n_threads: int = 1,
    ) -> tuple["Neighbours", FloatArray, Without]:
        """Learn from all rows, and from the rows outside each fold, with one search for all of them.

        The lists of neighbours are somewhat longer than needed, so that enough are left when a fold is dropped
        from them; the few rows for which that fails are searched for again.

        Parameters
        ----------
        X : array, n x d
        folds : array of int, n
            The fold of each row.
        lof, knn, n_threads
            As in `fit`.

        Returns
        -------
        Neighbours, and array, n x (len(lof) + len(knn))
            What `fit` returns, bit for bit.
        function of a fold
            Scores of all rows, bit for bit, by the model that `fit` learns from the rows outside the fold: their
            training scores, and the others as new rows. Fewer rows may cap the numbers of neighbours further.
        """
        lof_k, knn_k = _capped(lof, knn, len(X))
        k_max = _largest(lof_k, knn_k)
        listed = _enough(k_max, np.unique(folds, return_counts=True)[1].max() / len(X))
        model, home, found = cls._learn(X, lof_k, knn_k, n_threads, listed)

        def refit(rows: FloatArray, fold: int) -> tuple[Neighbours, FloatArray]:  # noqa: ARG001
            fitted, place, _ = cls._learn(rows, *_cap(lof_k, knn_k, len(rows)), n_threads)
            return fitted, take_rows(fitted.scores, place, n_threads)

        def without(fold: int) -> FloatArray:
            kept = folds != fold
            if kept.sum() <= k_max:
                return by_refitting(X, folds, refit, n_threads=n_threads)(fold)
            counts = model.counts - np.bincount(home[~kept], minlength=len(model.counts))
            return take_rows(model._scores_without(found, counts, n_threads), home, n_threads)

        return model, take_rows(model.scores, home, n_threads), without

    @classmethod
    def _learn(
        cls,
        X: FloatArray,
        lof: IntArray,
        knn: IntArray,
        n_threads: int,
        listed: int = 0,
    ) -> tuple["Neighbours", IntArray, tuple[FloatArray, Ids]]:
        """The model, where each row is among its locations, and lists of at least ``listed`` neighbours.

        Where more are listed than needed, folds are to be left out: the blocks stay with the model, for lists that
        turn out too short.
        """
        locations, counts, home = distinct_rows(X)
        k_max = _largest(lof, knn)
        k = min(max(k_max, listed), len(locations) - 1)
        blocks = cut_blocks(locations, n_threads=n_threads)
        found = nearest(blocks, k, n_threads=n_threads)
        slots = Slots(found, counts, k_max, np.arange(len(locations), dtype=np.int32), counts - 1)
        model = cls(locations, counts, lof, knn, *rate(slots, lof, knn, n_threads))
        if listed:
            model.__dict__["_cut"] = blocks
        return model, home, found

    def _scores_without(self, found: tuple[FloatArray, Ids], counts: IntArray, n_threads: int) -> FloatArray:
        """Scores at all locations, u x columns, if only ``counts`` rows are left at each.

        A location without rows is scored as a new row. It is no neighbour of any other, so its own k-distance and
        density play no part.
        """
        k_max = _largest(self.lof, self.knn)
        itself, own = np.arange(len(counts), dtype=np.int32), np.maximum(counts - 1, 0)

        def search_again(short: IntArray) -> Slots:
            # One more than needed: a location that is left finds itself.
            k = min(k_max + 1, int((counts > 0).sum()))
            data = drop_points(self.blocks(n_threads), counts == 0, n_threads=n_threads)
            again = nearest(data, k, queries=self.locations[short], n_threads=n_threads)
            return Slots(again, counts, k_max, itself[short], own[short])

        return rate(Slots(found, counts, k_max, itself, own), self.lof, self.knn, n_threads, search_again)[2]

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
        k = min(_largest(self.lof, self.knn), len(self.locations))
        if len(X) <= FEW:
            found = self._few(n_threads).nearest(X, k)
        else:
            found = nearest(self.blocks(n_threads), k, queries=X, n_threads=n_threads)
        return self._score_found(found, n_threads)

    def _score_found(self, found: tuple[FloatArray, Ids], n_threads: int) -> FloatArray:
        """Scores of rows that equal no training row, by the locations that were found near them."""
        nowhere, none = np.full(len(found[0]), -1, dtype=np.int32), np.zeros(len(found[0]), dtype=np.intp)
        slots = Slots(found, self.counts, _largest(self.lof, self.knn), nowhere, none)
        return rate_new(slots, (self.k_distance, self.density), self.lof, self.knn, n_threads)

    def blocks(self, n_threads: int = 1) -> Blocks:
        """The locations, cut for searching, once; they follow from them, so they are no part of the learned state."""
        if "_cut" not in self.__dict__:
            self.__dict__["_cut"] = cut_blocks(self.locations, n_threads=n_threads)
        return cast(Blocks, self.__dict__["_cut"])

    def _few(self, n_threads: int) -> Few:
        """The same for few rows."""
        if "_cut_few" not in self.__dict__:
            self.__dict__["_cut_few"] = Few.of(self.blocks(n_threads))
        return cast(Few, self.__dict__["_cut_few"])


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


def _capped(lof: Sequence[int], knn: Sequence[int], n_rows: int) -> tuple[IntArray, IntArray]:
    """Cap the numbers of neighbours at ``n_rows - 1``, with one warning if any was larger."""
    ks, allowed = [*lof, *knn], n_rows - 1
    if min(ks, default=0) < 1:
        raise ValueError(f"lof={[*lof]}, knn={[*knn]}: give at least one number of neighbours, each >= 1.")
    if max(ks) > allowed >= 1:
        warn(
            f"n_neighbors ({max(ks)}) is greater than the number of other rows (X has {n_rows} rows): "
            f"n_neighbors above {allowed} is set to {allowed}.",
            UserWarning,
        )
    return _cap(lof, knn, n_rows)


def _cap(lof: Sequence[int] | IntArray, knn: Sequence[int] | IntArray, n_rows: int) -> tuple[IntArray, IntArray]:
    if n_rows < 2:
        raise ValueError(f"X has {n_rows} row(s); neighbours need at least 2: give more rows.")
    return np.minimum(lof, n_rows - 1).astype(np.intp), np.minimum(knn, n_rows - 1).astype(np.intp)


def _largest(lof: IntArray, knn: IntArray) -> int:
    return int(max([*lof, *knn]))


def _enough(k: int, share: float) -> int:
    """How many neighbours to list so that k are left when a random ``share`` of all rows goes, at most 4 k.

    Of m rows about ``m (1 - share)`` are left, give or take ``sqrt(m share (1 - share))``.

    >>> _enough(30, 0.2), _enough(30, 0.5)
    (48, 89)
    """
    kept = 1.0 - share
    spread = SPARE * np.sqrt(share * kept)
    root = (spread + np.sqrt(spread**2 + 4.0 * kept * k)) / 2.0  # solves root^2 kept - spread root = k for root kept
    return min(int(np.ceil((root / kept) ** 2)) if kept > 0 else 4 * k, 4 * k)
