"""What a fit keeps of its features, so that a saved model alone can say why a row stands out."""

from dataclasses import dataclass

import numpy as np

from evenout.core.order import row_order
from evenout.core.rows import map_columns, sorted_columns
from evenout.core.sketch import average_ranks, values_below
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.storage.fields import Fields

SHARES = np.array([0, 0.1, 0.2, 0.5, *range(1, 100), 99.5, 99.8, 99.9, 100]) / 100.0
CROWD = 1024
ALIKE = 0.8  # rank correlation from which on two features are said to move together
_BINS = 20
_ROWS = 20_000  # for the correlations, and fewer where there are hundreds of columns
_PRODUCTS = 4e9  # of numbers, at most


@dataclass(frozen=True)
class Background:
    """The training rows, feature by feature.

    Parameters
    ----------
    typical : array of shape (d,)
        The median of each column, and of one-hot columns the most frequent category: nobody's row.
    levels : array of shape (shares, d)
        The values below which `SHARES` of the rows lie.
    means : array of shape (d,)
        Of one-hot columns, the share of each category.
    tells : array of shape (d,)
        How well each column alone tells the group: 0 is not at all, 1 is always; see `guessed_share`.
    kin : array of int, shape (d,)
        Columns with the same number move together: a chain of rank correlations of at least `ALIKE`.
    crowd : array of shape (rows, d)
        At most `CROWD` of the rows, evenly spaced in the order of their values: the company of a row is sought there.
    n_groups : int
    """

    typical: FloatArray
    levels: FloatArray
    means: FloatArray
    tells: FloatArray
    kin: IntArray
    crowd: FloatArray
    n_groups: int

    @classmethod
    def of(cls, X: FloatArray, codes: IntArray, folds: IntArray, n_groups: int, *, n_threads: int = 1) -> "Background":
        """Of training rows (n, d), with the codes of their groups, -1 where unknown, and their folds."""
        ordered = sorted_columns(X, n_threads)
        levels = values_below(ordered, SHARES)
        typical = levels[np.flatnonzero(SHARES == 0.5)[0]].copy()
        means = ordered.mean(axis=0)
        for start, stop in category_runs(X):
            typical[start:stop] = np.arange(stop - start) == means[start:stop].argmax()

        def tell(j: int) -> float:
            return told(X[:, j], levels[:, j], codes, folds, n_groups)

        tells = np.array(map_columns(tell, range(X.shape[1]), len(X), n_threads))
        some = evenly_spaced(X, _ROWS)
        return cls(typical, levels, means, tells, _kin(some), evenly_spaced(some, CROWD), n_groups)

    @classmethod
    def read(cls, data: Fields, n_features: int) -> "Background":
        """Out of a model file."""
        levels = data.floats("levels", len(SHARES), n_features)
        data.require((np.diff(levels, axis=0) >= 0).all(), "levels", "is out of order")
        typical, means, tells = (data.floats(name, n_features) for name in ("typical", "means", "tells"))
        data.require(((tells >= 0) & (tells <= 1)).all(), "tells", "is out of range")
        kin = data.integers("kin", n_features, low=0, high=n_features - 1)
        crowd = data.floats("crowd", data.whole("rows", 1, CROWD), n_features)
        return cls(typical, levels, means, tells, kin, crowd, data.whole("n_groups", 0, 2**31))


def category_runs(X: FloatArray) -> list[tuple[int, int]]:
    """First and last column, plus 1, of every run of one-hot columns."""
    truth = np.array([((column == 0.0) | (column == 1.0)).all() for column in X.T]) & (np.ptp(X, axis=0) > 0)
    return _runs(X, truth)


def told(column: FloatArray, levels: FloatArray, codes: IntArray, folds: IntArray, n_groups: int) -> float:
    """How well a column tells the group: the share of right guesses beyond chance, of all that could be beyond it.

    The column is cut into bins of equal numbers of rows. In each bin the group is guessed whose rows are most often in
    it. Every group counts the same, and rows are guessed by what the other half of the rows, by folds, has shown: a
    column that tells nothing is at 0, whatever the number of bins.
    """
    known = codes >= 0
    if n_groups < 2 or not known.any():
        return 0.0
    edges = np.unique(levels[np.searchsorted(SHARES, np.linspace(0.0, 1.0, _BINS + 1)[1:-1])])
    bins, half = np.searchsorted(edges, column[known], side="right"), folds[known] % 2
    shape = (2, len(edges) + 1, n_groups)
    place = (half * shape[1] + bins) * n_groups + codes[known]
    counts = np.bincount(place, minlength=2 * shape[1] * n_groups).reshape(shape).astype(float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    guess = shares[::-1].argmax(axis=2)  # by the other half
    right = np.take_along_axis(shares, guess[:, :, None], axis=2).sum() / (2 * n_groups)
    return float(np.clip((right - 1.0 / n_groups) / (1.0 - 1.0 / n_groups), 0.0, 1.0))  # sums of shares may pass 1


def guessed_share(tells: float, n_groups: int) -> float:
    """Share of right guesses of a group, every group counting the same, by a column that tells so much.

    >>> guessed_share(0.5, 2)
    0.75
    """
    return tells * (1.0 - 1.0 / n_groups) + 1.0 / n_groups


def evenly_spaced(X: FloatArray, size: int) -> FloatArray:
    """At most ``size`` rows, evenly spaced in the order of their values: the same for every order of the rows."""
    order, _ = row_order(X)
    places = np.linspace(0, len(X) - 1, min(size, len(X))).round().astype(np.intp)
    return X[order[places]] + 0.0  # + 0.0: no -0.0 remains, which may stand before or after a 0.0


def _kin(X: FloatArray) -> IntArray:
    """Numbers of the chains of columns that move together."""
    from scipy.sparse.csgraph import connected_components

    n, d = X.shape
    if n * d**2 > _PRODUCTS:
        X = evenly_spaced(X, max(1000, int(_PRODUCTS / d**2)))
    ranks = np.column_stack([average_ranks(column) for column in X.T])
    centred = ranks - ranks.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    correlation = (centred.T @ centred) / np.maximum(np.outer(size, size), 1.0)
    return connected_components(np.abs(correlation) >= ALIKE, directed=False)[1].astype(np.int64)


def _runs(X: FloatArray, candidates: BoolArray) -> list[tuple[int, int]]:
    """First and last column, plus 1, of every run of columns of 0 and 1 that sum to 1 in every row."""
    found, start = [], 0
    while start < X.shape[1]:
        total, stop = np.zeros(len(X)), start
        while stop < X.shape[1] and candidates[stop] and total.min() < 1.0:
            total = total + X[:, stop]
            stop += 1
            if total.max() > 1.0:
                break
        if (total == 1.0).all():
            found.append((start, stop))
            start = stop
        else:
            start += 1
    return found
