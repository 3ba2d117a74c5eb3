"""LOF and k-NN scores from one graph of neighbours, as they are or on a logarithmic scale.

With N_k(x) the k nearest rows of x (x itself left out), dist_k(x) the distance of the k-th of them::

    kNN_k(x)   = dist_k(x)
    reach(x,o) = max(dist(x, o), dist_k(o))
    lrd_k(x)   = 1 / (mean of reach(x, o) over o in N_k(x)  +  1e-10)
    LOF_k(x)   = mean of lrd_k(o) over o in N_k(x)  /  lrd_k(x)

as in scikit-learn. Ties are broken by (distance, then feature values, the larger first), so the order of the rows
and the way of searching never matter. Equal rows are one *location* that counts several rows: searched once, scored
once. Lists expanded to rows would take more memory than the rest of a fit, so they are expanded block by block, when
they are needed.

The distance of a row far from all others squeezes those of the other rows into a corner of the range; logarithms keep
them apart. In decorrelated coordinates the neighbours of a row are the rows that deviate from the joint pattern of the
features as it does: a broken dependency between features shows there and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from evenout.core.content import row_order
from evenout.core.parallel import by_rows, map_blocks, one_blas_thread, side_by_side, take_rows
from evenout.core.types import FloatArray, IntArray, Within, require
from evenout.detectors.family import Family, Without, by_refitting
from evenout.detectors.search import FEW, Blocks, Ids, cut_blocks, drop_points, nearest, nearest_by_rows
from evenout.detectors.units import FARTHEST, GRID, Units
from evenout.exceptions import warn

ROWS = 4096  # rows per piece of work handed to a thread


GUARD = 1e-10  # scikit-learn's: keeps the density finite where all neighbours are duplicates


@dataclass(frozen=True, eq=False)
class NeighbourLists:
    """The k nearest rows of each of m rows: their distances and locations."""

    near: tuple[FloatArray, Ids]  # (m, listed): distances and ids of locations near each row
    counts: IntArray  # (u,): rows at each location
    k: int
    # (m,): the location of each row, or -1 for a new row. The other rows there come first, and it is not listed again.
    home: Ids
    # Rows, in order, whose lists do not fill k slots; those of ``filled`` replace them.
    short: IntArray | None = None
    filled: "NeighbourLists | None" = None

    def of(self, rows: slice) -> tuple[FloatArray, Ids]:
        """Distances and locations of the neighbours of some rows, each (rows, k); -1 where a list is too short."""
        from evenout.detectors._neighbour_kernels import fill_slots

        home = self.home[rows]
        distance, location = np.empty((len(home), self.k)), np.empty((len(home), self.k), dtype=np.int32)
        fill_slots(self.near[0][rows], self.near[1][rows], home, self.counts, distance, location)
        if self.short is not None and self.filled is not None:
            first, last = np.searchsorted(self.short, (rows.start, rows.start + len(home)))
            if first < last:
                at = self.short[first:last] - rows.start
                distance[at], location[at] = self.filled.of(slice(int(first), int(last)))
        return distance, location

    def distances(self, ks: IntArray, n_threads: int) -> FloatArray:
        """Distances of the k-th nearest rows, shape (m, len(ks)); NaN where a list is too short."""

        def measured(rows: slice) -> FloatArray:
            distance, location = (values.take(ks - 1, axis=1) for values in self.of(rows))
            return np.where(location < 0, np.nan, distance)

        return np.concatenate(map_blocks(measured, len(self.home), ROWS, n_threads))


def rate(
    lists: NeighbourLists,
    lof: IntArray,
    knn: IntArray,
    n_threads: int,
    search_again: Callable[[IntArray], NeighbourLists] | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """k-distances, densities and scores of rows that are neighbours of each other; see `Neighbours`.

    ``search_again`` finds longer lists for rows, given by index, whose lists are too short.
    """
    from evenout.detectors._neighbour_kernels import means

    m, ks = len(lists.home), np.concatenate([lof, knn])
    distances = lists.distances(ks, n_threads)
    short = np.flatnonzero(np.isnan(distances).any(axis=1))
    if search_again is not None and len(short):
        filled = search_again(short)
        lists = replace(lists, short=short, filled=filled)
        distances[short] = filled.distances(ks, n_threads)
    k_distance = np.ascontiguousarray(distances[:, : len(lof)])
    if not len(lof):
        return k_distance, np.empty((m, 0)), distances

    def densities(rows: slice) -> FloatArray:
        distance, location = lists.of(rows)
        return 1.0 / (means(location, k_distance, lof, distance) + GUARD)

    density = np.concatenate(map_blocks(densities, m, ROWS, n_threads))
    factors = map_blocks(lambda rows: means(lists.of(rows)[1], density, lof) / density[rows], m, ROWS, n_threads)
    return k_distance, density, side_by_side([np.concatenate(factors), distances[:, len(lof) :]], n_threads)


SPARE = 3.0  # standard deviations by which lists are longer than needed, so that a fold may be left out
BATCH = 65536  # new rows scored at a time: bounds the memory for their neighbours to some 50 MB


@dataclass(frozen=True, eq=False)
class Neighbours(Family):
    """LOF and kNN detectors that share one graph; the learned state is plain arrays.

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

    # u x d: the distinct training rows, sorted by their values, first feature first, the largest first.
    locations: Annotated[FloatArray, "* *"]
    counts: Annotated[IntArray, "*", Within(1)]  # training rows at each location
    lof: Annotated[IntArray, "l", Within(1)]  # neighbours of each detector, as knn: fewer than there are training rows
    knn: Annotated[IntArray, "*", Within(1)]
    k_distance: Annotated[FloatArray, "u l"]  # dist_k of the locations' rows
    density: Annotated[FloatArray, "u l"]  # their lrd_k
    scores: Annotated[FloatArray, "u w"]  # their training scores, LOF first
    kind: ClassVar[str] = "neighbours"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.lof) + len(self.knn)

    @property
    def k_max(self) -> int:
        """The largest number of neighbours of any detector."""
        return int(max([*self.lof, *self.knn]))

    def fits(self, n_rows: int, n_features: int) -> None:
        """Refuse counts that do not add up to the rows, and more neighbours than rows."""
        u = len(self.scores)
        require(self.locations.shape == (u, n_features), "locations", "has the wrong shape")
        sound = len(self.counts) == u and self.counts.max(initial=0) <= n_rows and self.counts.sum() == n_rows
        require(sound, "counts", "is out of range")
        for name in ("lof", "knn"):
            require(getattr(self, name).max(initial=1) < n_rows, name, "is out of range")
        require(self.width and self.scores.shape[1] == self.width, "scores", "has the wrong shape")

    @classmethod
    def cross_fit(
        cls, X: FloatArray, folds: IntArray | None, *, lof: Sequence[int], knn: Sequence[int], n_threads: int = 1
    ) -> tuple["Neighbours", FloatArray, Without]:
        """Learn from all rows, and from the rows outside each fold, with one search for all of them.

        The lists of neighbours are somewhat longer than needed, so that enough are left when a fold is dropped from
        them; the few rows for which that fails are searched for again.

        X (n x d) has at least two rows, all finite; ``folds`` (n,) is the fold of each, or None if none is to be left
        out; ``lof`` and ``knn`` are the numbers of neighbours of each detector. Results do not depend on the threads.

        Returns the model; the scores of the training rows, n x (len(lof) + len(knn)), LOF first, higher = more
        outlying; and a function of a fold: the scores of all rows, bit for bit, by the model that `fit` learns from
        the rows outside the fold: their training scores, and the others as new rows. Fewer rows may cap the numbers of
        neighbours further.
        """
        lof_k, knn_k = check_neighbours(lof, knn, len(X))
        locations, counts, home = distinct_rows(X)
        u, k_max = len(locations), int(max([*lof_k, *knn_k]))
        blocks, itself = cut_blocks(locations, n_threads=n_threads), np.arange(u, dtype=np.int32)
        near = nearest(blocks, min(listed_neighbours(k_max, folds), u - 1), n_threads=n_threads)
        lists = NeighbourLists(near, counts, k_max, itself)
        model = cls(locations, counts, lof_k, knn_k, *rate(lists, lof_k, knn_k, n_threads))
        if folds is not None:  # the closures below hold them anyway
            model.__dict__["_cut"] = blocks

        def without(fold: int) -> FloatArray:
            kept = np.asarray(folds) != fold
            if kept.sum() <= k_max:
                ks = {"lof": capped(lof_k, kept.sum()).tolist(), "knn": capped(knn_k, kept.sum()).tolist()}
                return by_refitting(
                    X, folds, lambda rows, _: cls.fit(rows, **ks, n_threads=n_threads), n_threads=n_threads
                )(fold)
            # A location without rows is scored as a new row. It is no neighbour of any other, so its own k-distance
            # and density play no part.
            left = counts - np.bincount(home[~kept], minlength=u)

            def search_again(short: IntArray) -> NeighbourLists:
                data = drop_points(blocks, left == 0, n_threads=n_threads)
                k = min(k_max + 1, int((left > 0).sum()))  # one more than needed: a location that is left finds itself
                again = nearest(data, k, queries=locations[short], n_threads=n_threads)
                return NeighbourLists(again, left, k_max, itself[short])

            fewer = replace(lists, counts=left)
            return take_rows(rate(fewer, lof_k, knn_k, n_threads, search_again)[2], home, n_threads)

        return model, take_rows(model.scores, home, n_threads), without

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Raw scores of the rows of ``X`` (m x d), m x (len(lof) + len(knn)); higher = more outlying.

        A row equal to a training row is scored as that row: one such copy is left out of its neighbours.
        """
        from evenout.detectors._neighbour_kernels import find_rows

        scores, k = np.empty((len(X), self.scores.shape[1])), min(self.k_max, len(self.locations))
        for start in range(0, len(X), BATCH):
            batch = np.array(X[start : start + BATCH])
            home = find_rows(batch, self.locations)
            scores[start : start + BATCH] = self.scores[home]
            new = np.flatnonzero(home < 0)
            if len(new):
                asked, blocks = batch[new], self.blocks(n_threads)
                near = (
                    nearest_by_rows(blocks, asked, k)
                    if len(new) <= FEW
                    else nearest(blocks, k, queries=asked, n_threads=n_threads)
                )
                scores[start + new] = self.score_near(near, n_threads)
        return scores

    def score_near(self, near: tuple[FloatArray, Ids], n_threads: int) -> FloatArray:
        """Scores of rows that equal no training row, by the locations ``near`` them."""
        from evenout.detectors._neighbour_kernels import means

        m, n_lof = len(near[0]), len(self.lof)
        lists = NeighbourLists(near, self.counts, self.k_max, np.full(m, -1, dtype=np.int32))
        scores = np.empty((m, self.scores.shape[1]))

        def work(rows: slice) -> None:
            distance, location = lists.of(rows)
            scores[rows, n_lof:] = distance[:, self.knn - 1]
            if n_lof:
                density = 1.0 / (means(location, self.k_distance, self.lof, distance) + GUARD)
                scores[rows, :n_lof] = means(location, self.density, self.lof) / density

        map_blocks(work, m, ROWS, n_threads)
        return scores

    def blocks(self, n_threads: int = 1) -> Blocks:
        """The locations, cut for searching once; derived from them, and so no part of the learned state."""
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


CLIP = 3.0  # spreads beyond which a value says no more about how features vary together
LEAST = 1e-3  # variance of a direction, beside the largest, below which it is left out
SOUND = 10  # rows per feature; with fewer, decorrelated training rows are all equally far apart, and new rows are not
MANY = 100  # rows per feature; from here on a fold hardly moves the coordinates, and one search serves all folds
_SUMMED = 16384  # rows multiplied at a time
_LIMB = 2.0**12
_PRODUCTS = 5e8  # of numbers; beyond, turning rows takes more than a second, and a file holds turned rows instead


@dataclass(frozen=True, eq=False)
class Nearness(Family):
    """Fitted neighbours whose scores are logarithms."""

    neighbours: Neighbours  # of the rows, or of the turned rows
    # ``X @ turn``, rounded, are the coordinates in which neighbours are sought; None: X itself.
    turn: Annotated[FloatArray, "d m"] | None
    kind: ClassVar[str] = "nearness"

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.neighbours.width

    def without_rows(self, rows: FloatArray) -> "Nearness":
        """Drop the turned rows if they follow from ``rows`` (n, d), which are kept elsewhere."""
        if self.turn is None or rows.size * self.turn.shape[1] > _PRODUCTS:
            return self
        near, (locations, counts, _) = self.neighbours, distinct_rows(turned(rows, self.turn, 1))
        if not (np.array_equal(near.locations, locations) and np.array_equal(near.counts, counts)):
            return self
        return replace(self, neighbours=replace(near, locations=locations[:0], counts=counts[:0]))

    def with_rows(self, rows: FloatArray) -> "Nearness":
        """Turn ``rows`` (n, d) again if they were dropped."""
        if self.turn is None or len(self.neighbours.locations):
            return self
        locations, counts, _ = distinct_rows(turned(rows, self.turn, 1))
        return replace(self, neighbours=replace(self.neighbours, locations=locations, counts=counts))

    def fits(self, n_rows: int, n_features: int) -> None:
        """Check as `Neighbours.fits` does, in turned coordinates."""
        require(self.turn is None or len(self.turn) == n_features, "turn", "has the wrong shape")
        self.neighbours.fits(n_rows, n_features if self.turn is None else self.turn.shape[1])

    @classmethod
    def cross_fit(
        cls,
        X: FloatArray,
        folds: IntArray | None,
        *,
        lof: Sequence[int] = (),
        knn: Sequence[int] = (),
        decorrelate: bool = False,
        n_threads: int = 1,
        cross_fit: Callable[..., Any] = Neighbours.cross_fit,
    ) -> tuple["Nearness", FloatArray, Without]:
        """Fit; the model, the training scores, and a function of a fold: the scores of all rows without the fold.

        Decorrelated coordinates are learnt without the fold as well, which takes a search for each fold. From `MANY`
        rows per feature on they are learnt once, on all rows: each row then has at most 1 % of the influence on them.
        With fewer than `SOUND` rows per feature outside a fold there are none.

        Arguments are those of `Neighbours.cross_fit`, and ``decorrelate``: seek neighbours in decorrelated coordinates.
        ``cross_fit`` is that of `Neighbours`, or its twin on another device.
        """
        if decorrelate:  # the search in plain coordinates has warned
            lof, knn = (capped(ks, len(X)).tolist() for ks in (lof, knn))
        if folds is not None and len(X) - int(np.bincount(folds).max()) < SOUND * X.shape[1]:
            decorrelate = False
        again = decorrelate and folds is not None and len(X) < MANY * X.shape[1]
        turn = decorrelating(X, n_threads=n_threads) if decorrelate else None
        sought: dict[str, Any] = {"lof": lof, "knn": knn, "n_threads": n_threads}
        near, raw, without = cross_fit(X=turned(X, turn, n_threads), folds=None if again else folds, **sought)
        fitted = cls(near, turn)
        logarithms = partial(fitted.logarithms, n_threads=n_threads)
        if not again:
            return fitted, logarithms(raw), lambda fold: logarithms(without(fold))
        return (
            fitted,
            logarithms(raw),
            by_refitting(
                X, folds, lambda rows, _: cls.fit(rows, **sought, decorrelate=True, cross_fit=cross_fit),
                n_threads=n_threads,
            ),
        )  # fmt: skip

    def score(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """``log LOF`` and ``log(1 + distance)`` of rows of shape (r, d), the LOF columns first."""
        raw = self.neighbours.score(turned(X, self.turn, n_threads), n_threads=n_threads)
        return self.logarithms(raw, n_threads=n_threads)

    def logarithms(self, raw: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Logarithms of the scores of ``neighbours``, whose LOF columns come first."""
        n_lof = len(self.neighbours.lof)
        return by_rows(
            lambda rows: np.hstack(
                [np.log(np.maximum(rows[:, :n_lof], np.finfo(float).tiny)), np.log1p(rows[:, n_lof:])]
            ),
            raw,
            n_threads=n_threads,
        )


def decorrelating(X: FloatArray, *, n_threads: int = 1) -> FloatArray:
    """The symmetric matrix that gives the rows, in their units, the unit matrix as covariance: shape (d, d).

    With z the rows in the `Units` of X, at most `CLIP` spreads from the centre, C their covariance and
    ``C = V diag(w) V'``, it is ``V diag(w^-1/2) V'``, whichever V a solver finds, applied to X in these units.
    Directions whose variance is below `LEAST` times the largest are left out: they are rounding, or columns that
    follow from others. A column that does not vary plays no part.
    """
    units = Units.fit(X, n_threads=n_threads)
    variance, directions = np.linalg.eigh(_clipped_covariance(X, units, n_threads))
    kept, turn = variance > LEAST * variance[-1], np.zeros((X.shape[1], X.shape[1]))
    if kept.any():
        V = directions[:, kept] / variance[kept] ** 0.25
        turn[np.ix_(units.kept, units.kept)] = (V @ V.T) / units.spread[:, None]
    return turn


def _clipped_covariance(X: FloatArray, units: Units, n_threads: int) -> FloatArray:
    """Covariance of the rows in their units, clipped, shape (m, m); it does not depend on the order of the rows.

    Values are whole numbers of `GRID`, less than 2^22, so their sum is exact. About the whole number next to the mean
    they are less than 2^23, which is ``2^12 high + low`` with high and low of 12 bits: sums of products of these are
    exact up to 2^29 rows, in every order and by every way to multiply matrices.
    """

    def whole(rows: slice) -> FloatArray:
        return np.clip(units.apply(X[rows]), -CLIP, CLIP) / GRID

    def products(rows: slice) -> tuple[FloatArray, ...]:
        around = whole(rows) - centre
        high = np.floor(around / _LIMB)
        low = around - _LIMB * high
        return around.sum(axis=0), high.T @ high, high.T @ low, low.T @ low

    n = len(X)
    centre = np.rint(sum(map_blocks(lambda rows: whole(rows).sum(axis=0), n, _SUMMED, n_threads)) / n)
    with one_blas_thread():
        parts = map_blocks(products, n, _SUMMED, n_threads)
    total, of_high, mixed, of_low = (sum(part) for part in zip(*parts, strict=True))
    second = (_LIMB**2 * of_high + _LIMB * (mixed + mixed.T)) + of_low
    return (second / n - np.outer(total / n, total / n)) * GRID**2


def turned(X: FloatArray, turn: FloatArray | None, n_threads: int) -> FloatArray:
    """``X @ turn`` on the grid, summed feature by feature: the other rows do not change a row's coordinates."""
    if turn is None:
        return X

    def product(rows: FloatArray) -> FloatArray:
        if len(rows) <= FEW:
            out = np.cumsum(rows[:, :, None] * turn, axis=1)[:, -1]  # the same sums in fewer calls
        else:
            out = np.zeros((len(rows), turn.shape[1]))
            for column, weights in zip(rows.T, turn, strict=True):
                out += column[:, None] * weights
        return np.rint(np.clip(out, -FARTHEST, FARTHEST) / GRID) * GRID + 0.0

    return by_rows(product, X, width=turn.shape[1], n_threads=n_threads, block=ROWS)
