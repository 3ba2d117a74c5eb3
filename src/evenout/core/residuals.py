"""What a number leaves unexplained: residuals of scores and memberships on numbers, within parts of like rows.

Rows of one fifth of an income are not alike: those near its upper end differ from those near its lower end, in their
scores and in their groups, and that alone looks like a gap. Within each part, score and membership are both regressed
on the number, by lines that bend at quantiles; what is left of one is then held against what is left of the other. The
error of that is the *product* of what the two regressions miss (Robinson 1988; Shah and Peters 2020), so that neither
needs to be exact.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from evenout.core.types import FloatArray, IntArray

_BENDS = 20  # of a line within a part, at most
_ROWS_A_BEND = 60


def within_parts(
    numbers: FloatArray | None, parts: IntArray, weight: FloatArray | None = None
) -> Iterator[tuple[IntArray, FloatArray]]:
    """The rows of each part, and an orthonormal basis (rows, q) of what the numbers can explain there.

    Parameters
    ----------
    numbers : array of shape (n, k), optional
        Without any, the part's mean alone is explained.
    parts : array of shape (n,)
        Codes 0, 1, ...; -1 for a row of no part.
    weight : array of shape (n,), optional
        The basis is one of ``sqrt(weight)`` times the columns.
    """
    order = np.argsort(parts, kind="stable")
    edges = np.searchsorted(parts[order], np.arange(int(parts.max(initial=-1)) + 2))
    for start, stop in pairwise(edges.tolist()):
        rows = order[start:stop]
        columns = [np.ones(len(rows))]
        for number in () if numbers is None else numbers[rows].T:
            columns += _bent_lines(number, numbers.shape[1] if numbers is not None else 1)
        basis = np.stack(columns, axis=1) * (1.0 if weight is None else np.sqrt(weight[rows])[:, None])
        length = np.sqrt((basis**2).sum(axis=0))
        basis /= np.where(length > 0, length, 1.0)
        for _ in range(2):  # the second time makes up for what rounding left of the first
            size, turn = np.linalg.eigh(basis.T @ basis)
            kept = size > 1e-10 * size[-1]
            basis = basis @ (turn[:, kept] / np.sqrt(size[kept]))
        yield rows, basis


def _bent_lines(number: FloatArray, n_numbers: int) -> list[FloatArray]:
    """A line, and a bend at each of a few quantiles: more of them the more rows there are."""
    spread = float(number.std())
    if not spread > 0:
        return []
    unit = (number - number.mean()) / spread
    bends = int(np.clip(len(number) // (_ROWS_A_BEND * n_numbers), 0, _BENDS))
    knots = np.unique(np.quantile(unit, np.arange(1, bends + 1) / (bends + 1))) if bends else np.empty(0)
    return [unit, *(np.maximum(unit - knot, 0.0) for knot in knots)]


def residualise(
    columns: FloatArray, numbers: FloatArray | None, parts: IntArray, weight: FloatArray | None = None
) -> FloatArray:
    """Columns (n, m) less what numbers (n, k) explain of them within each part (n,); 0 for rows of no part.

    >>> z, income = np.array([[1.0], [2.0], [3.0], [9.0]]), np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> np.abs(residualise(z, income, np.array([0, 0, 0, 1]))).max() < 1e-12
    np.True_
    """
    left = np.zeros_like(columns, dtype=float)
    for rows, basis in within_parts(numbers, parts, weight):
        root = np.ones(len(rows)) if weight is None else np.sqrt(weight[rows])
        part = columns[rows] * root[:, None]
        part = part - basis @ (basis.T @ part)
        left[rows] = part / np.where(root > 0, root, np.inf)[:, None]
    return left
