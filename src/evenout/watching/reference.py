"""What a watch holds later rows against: scores, flags and groups as they were when it began."""

import hashlib
from dataclasses import dataclass

import numpy as np

from evenout.core.types import FloatArray, IntArray

KNOTS = 1024  # scores that are kept of the reference


@dataclass(frozen=True, eq=False)
class Reference:
    """Rows that came before the watch.

    Parameters
    ----------
    knots : array of shape (m,)
        Ascending scores: all of them, or `KNOTS` of their quantiles.
    rows : int
    threshold : float
        Rows that score above are flagged.
    flagged : float
        Share of the rows that is.
    labels : tuple of str
        Groups that are compared.
    counts : array of shape (G,)
        Rows of each.
    name : str
        What the rows are called, if they were a batch.
    """

    knots: FloatArray
    rows: int
    threshold: float
    flagged: float
    labels: tuple[str, ...]
    counts: IntArray
    name: str = ""

    @classmethod
    def of(
        cls, scores: FloatArray, threshold: float, labels: tuple[str, ...], counts: IntArray, name: str = ""
    ) -> "Reference":
        """Keep what is needed of the scores."""
        knots = np.sort(scores)
        if len(knots) > KNOTS:
            knots = np.quantile(knots, (np.arange(KNOTS) + 0.5) / KNOTS, method="inverted_cdf")
        return cls(knots, len(scores), threshold, float((scores > threshold).mean()), labels, counts, name)

    def ranks(self, scores: FloatArray) -> FloatArray:
        """The share of the reference that scores lower, with half of what scores the same; in [0, 1], shape (n,)."""
        below, upto = (np.searchsorted(self.knots, scores, side=side) for side in ("left", "right"))
        return (below + upto) / (2.0 * len(self.knots))

    @property
    def digest(self) -> str:
        """The same for two watches that began alike."""
        told = hashlib.sha256(self.knots.tobytes() + self.counts.astype(np.int64).tobytes())
        told.update(repr((self.rows, self.threshold, self.labels)).encode())
        return told.hexdigest()
