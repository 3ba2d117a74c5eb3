"""Numbers that rows of one part still differ in, taken out within the part.

Rows of one fifth of an income are not alike: those near its upper end differ from those near its lower end, in their
scores and in their groups, and that alone looks like a gap. Lines of the number that bend at quantiles take it out, in
one of two ways:

- `residualise`: score and membership are both regressed on the lines, and what is left of one is held against what is
  left of the other (Robinson 1988; Shah and Peters 2020). For one finished score.
- `balanced`: members of a group are weighted so that each line has the mean of the whole part (entropy balancing,
  Hainmueller 2012). For any score, and for rates, which stay between 0 and 1: what a fit needs.

The error of both is the *product* of what lines miss of the score and of the groups, so that neither needs to be exact
(for the second: Zhao and Percival 2017).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array

from evenout.core.membership import Membership
from evenout.core.types import FloatArray, IntArray

_BENDS = 20  # of a line within a part, at most
_ROWS_A_BEND = 60
_STEPS = 50  # of Newton's method


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
        columns = np.ones((len(rows), 1))
        if numbers is not None:
            columns = np.hstack([columns, bent_lines(numbers[rows], len(rows))])
        basis = columns * (1.0 if weight is None else np.sqrt(weight[rows])[:, None])
        length = np.sqrt((basis**2).sum(axis=0))
        basis /= np.where(length > 0, length, 1.0)
        for _ in range(2):  # the second time makes up for what rounding left of the first
            size, turn = np.linalg.eigh(basis.T @ basis)
            kept = size > 1e-10 * size[-1]
            basis = basis @ (turn[:, kept] / np.sqrt(size[kept]))
        yield rows, basis


def bent_lines(numbers: FloatArray, n_rows: float) -> FloatArray:
    """Of numbers (n, k): a line of each, and bends at quantiles, more of them the more rows they are to serve."""
    lines, bends = [], int(np.clip(n_rows // (_ROWS_A_BEND * numbers.shape[1]), 0, _BENDS))
    for number in numbers.T:
        spread = float(number.std())
        if spread > 0:
            unit = (number - number.mean()) / spread
            knots = np.unique(np.quantile(unit, np.arange(1, bends + 1) / (bends + 1))) if bends else np.empty(0)
            lines += [unit, *(np.maximum(unit - knot, 0.0) for knot in knots)]
    return np.stack(lines, axis=1) if lines else np.empty((len(numbers), 0))


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


def balanced(
    members: Membership, numbers: FloatArray, weight: FloatArray | None = None, *, thinned: bool = False
) -> Membership:
    """Memberships in which the numbers (n, k) say nothing of the group: each group has the lines' means of its block.

    A group keeps its size, or with ``thinned`` no row belongs more than before: it does in part, by chance.
    """
    phi, count = members.weights, np.ones(len(numbers)) if weight is None else weight
    data = phi.data.astype(float)
    for block in members.compared.blocks:
        spans = [slice(phi.indptr[g], phi.indptr[g + 1]) for g in block.groups]
        mass = [count[phi.indices[span]] * phi.data[span] for span in spans]
        smallest = min(float(own.sum() ** 2 / max((own**2).sum(), 1e-300)) for own in mass)
        rows, place = np.unique(np.concatenate([phi.indices[span] for span in spans]), return_inverse=True)
        lines, share = bent_lines(numbers[rows], smallest), np.bincount(place, np.concatenate(mass))
        lines = lines - share @ lines / max(share.sum(), 1e-300)
        values, vectors = np.linalg.eigh((lines * share[:, None]).T @ lines / max(share.sum(), 1e-300))
        kept = values > 1e-6 * values.max(initial=0.0)
        lines = lines @ (vectors[:, kept] / np.sqrt(values[kept]))
        for span, own in zip(spans, mass, strict=True):
            if own.sum() > 0:
                tilt = _tilt(lines[np.searchsorted(rows, phi.indices[span])], own / own.sum())
                data[span] *= tilt / (tilt.max() if thinned else own @ tilt / own.sum())
    return replace(members, weights=csc_array((data, phi.indices, phi.indptr), shape=phi.shape))


def _tilt(lines: FloatArray, share: FloatArray) -> FloatArray:
    """``exp(lines @ a)`` with which the rows' shares have means 0, up to a ridge that is small beside their noise."""
    ridge, a = float((share**2).sum()), np.zeros(lines.shape[1])

    def value(at: FloatArray) -> tuple[float, FloatArray]:
        power = lines @ at
        tilt = np.exp(power - power.max(initial=0.0))
        return float(np.log(share @ tilt) + power.max(initial=0.0) + ridge * (at @ at) / 2.0), tilt

    found, tilt = value(a)
    for _ in range(_STEPS):
        own = share * tilt / (share @ tilt)
        slope = own @ lines + ridge * a
        bend = (lines * own[:, None]).T @ lines - np.outer(own @ lines, own @ lines) + ridge * np.eye(len(a))
        step = np.linalg.solve(bend, slope)
        if float(slope @ step) < 1e-12:
            break
        size = 1.0
        while size > 1e-6 and value(a - size * step)[0] > found - 1e-4 * size * float(slope @ step):
            size /= 2.0
        a = a - size * step
        found, tilt = value(a)
    return tilt
