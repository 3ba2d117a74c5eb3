"""Units of features: what counts as far in a column, learnt once, so that the units of a table never matter."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenout.core.exceptions import ConstantFeatureWarning, warn
from evenout.core.rows import by_rows
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.measuring import Measures, Ranges
from evenout.storage.fields import Fields

GRID = 2.0**-20  # standardised values are multiples of it
FARTHEST = 2.0**100  # of a new row; squares of such distances are still numbers


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
    def fit(cls, X: FloatArray, *, n_threads: int = 1) -> "Units":
        """Learn from training rows of shape (n, d); where no column varies, the first one stays."""
        outline = Ranges.of(X, None, n_threads=n_threads).outline(n_threads=n_threads)
        return cls.of(Measures.of(X, outline, None, n_threads=n_threads))

    @classmethod
    def of(cls, measures: Measures) -> "Units":
        """From what all training rows tell, in memory or in parts."""
        return cls(measures.outline.kept, *measures.centres_and_spreads())

    def apply(self, X: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """Rows of shape (r, d) in these units, shape (r, m), rounded.

        Multiplying and shifting a column of X changes these quotients by rounding errors alone, and rounding, to
        `GRID` and from 2 on to as many digits, takes those away: not even a tie is broken.
        """
        return by_rows(self._rounded, X, width=len(self.kept), n_threads=n_threads)

    def _rounded(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            z = np.clip((X.take(self.kept, axis=1) - self.centre) / self.spread, -FARTHEST, FARTHEST)
        step = np.ldexp(GRID, np.maximum(np.frexp(z)[1] - 1, 0))
        return np.rint(z / step) * step + 0.0  # + 0.0: no -0.0 remains

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
