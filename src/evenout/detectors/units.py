"""Units of features: what counts as far in a column, learnt once, so that the units of a table never matter."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenout.core.exceptions import ConstantFeatureWarning, warn
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.storage.fields import Fields

GRID = 2.0**-20  # standardised values are multiples of it
NORMAL_IQR = 1.3489795003921634  # interquartile range of the standard normal distribution
APART = np.sqrt(2.0)  # two categories: as far apart as two numbers of variance 1 are, in root mean square
FARTHEST = 2.0**100  # of a new row; squares of such distances are still numbers
_ROUNDING = 1e-13  # a range this small beside the values is no information


@dataclass(frozen=True)
class Units:
    """Where each column is centred and what it is divided by.

    Learnt on all training rows, not without each fold: it knows no group and no label, and one graph of neighbours
    serves every fold only if all folds measure alike.

    Parameters
    ----------
    kept : array of int, shape (m,)
        The columns of X that vary on the training rows; the others are dropped.
    centre, spread : arrays of shape (m,)
        Numbers: median, and interquartile range as a share of that of the standard normal distribution; where that
        range is 0, the standard deviation. Columns of two values: the lower one, and what makes the two
        ``sqrt(2)`` apart. One-hot columns, 0 and 1 with one 1 in each row, stay as they are, so that any two of
        their categories are ``sqrt(2)`` apart and a category counts as one feature.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0, 7.0], [2.0, 0.0, 7.0], [3.0, 1.0, 7.0]])
    >>> units = Units.fit(X)
    >>> units.kept
    array([0, 1])
    >>> units.apply(X).round(2)
    array([[-1.35,  0.  ],
           [ 0.  ,  0.  ],
           [ 1.35,  1.41]])
    """

    kept: IntArray
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def read(cls, data: Fields, n_features: int) -> "Units":
        """Out of a model file."""
        kept = data.integers("kept", None, low=0, high=n_features - 1)
        data.require(len(kept) and (np.diff(kept) > 0).all(), "kept", "is out of order")
        centre, spread = (data.floats(name, len(kept)) for name in ("centre", "spread"))
        data.require((spread > 0).all(), "spread", "is out of range")
        return cls(kept, centre, spread)

    @classmethod
    def fit(cls, X: FloatArray) -> "Units":
        """Learn from training rows of shape (n, d); where no column varies, the first one stays."""
        ordered = np.sort(X, axis=0)  # sums of sorted values are the same in any order of the rows
        low, high = ordered[0], ordered[-1]
        varies = (high - low > _ROUNDING * np.maximum(np.abs(low), np.abs(high))) & (high - low > 1e-250)
        kept = np.flatnonzero(varies) if varies.any() else np.zeros(1, dtype=np.intp)
        centre, spread = _of_numbers(ordered[:, kept])
        low, high = low[kept], high[kept]
        two = ((ordered[:, kept] == low) | (ordered[:, kept] == high)).all(axis=0) & varies[kept]
        centre, spread = np.where(two, low, centre), np.where(two, (high - low) / APART, spread)
        one_hot = np.zeros(len(kept), dtype=bool)
        for start, stop in one_hot_runs(X[:, kept], two & (low == 0.0) & (high == 1.0)):
            one_hot[start:stop] = True
        return cls(kept, centre, np.where(one_hot | ~varies[kept], 1.0, spread))

    def apply(self, X: FloatArray) -> FloatArray:
        """Rows of shape (r, d) in these units, shape (r, m), rounded.

        Multiplying and shifting a column of X changes these quotients by rounding errors alone, and rounding, to
        `GRID` and from 2 on to as many digits, takes those away: not even a tie is broken.
        """
        with np.errstate(over="ignore"):
            z = np.clip((X[:, self.kept] - self.centre) / self.spread, -FARTHEST, FARTHEST)
        step = np.ldexp(GRID, np.maximum(np.frexp(z)[1] - 1, 0))
        return np.ascontiguousarray(np.rint(z / step) * step + 0.0)  # + 0.0: no -0.0 remains

    def warn_dropped(self, names: Sequence[str]) -> None:
        """Name the columns, of all d, that do not vary."""
        dropped = [name for j, name in enumerate(names) if j not in set(self.kept.tolist())]
        if dropped:
            warn(
                f"these columns hold one value in all training rows and are dropped: {', '.join(dropped)}",
                ConstantFeatureWarning,
            )


def feature_labels(names: Sequence[str] | None, n_features: int) -> list[str]:
    """Names of the columns; those without a name are called ``x0``, ``x1``, ..."""
    return [f"x{j}" for j in range(n_features)] if names is None else [str(name) for name in names]


def _of_numbers(ordered: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Median and spread of each column of sorted values."""
    low, span = ordered[0], ordered[-1] - ordered[0]
    span = np.where(span > 0, span, 1.0)
    first, centre, third = np.percentile(ordered, [25, 50, 75], axis=0)
    quartiles = (third - first) / NORMAL_IQR
    deviation = span * ((ordered - low) / span).std(axis=0)  # in ranges: no square leaves the floating-point range
    spread = np.where(quartiles > _ROUNDING * span, quartiles, deviation)
    return centre, np.where(spread > 0, spread, 1.0)


def one_hot_runs(X: FloatArray, candidates: BoolArray) -> list[tuple[int, int]]:
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
