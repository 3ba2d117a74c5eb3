"""Equal flags, solved: of all rules with even enough flag rates, the one that flags the rows of largest total score.

A rule flags row i with the probability ``f_i``. With ``q_g = sum_i r_ig f_i / n`` the flag rate of group g, where r is
how much a row resembles the group, the best rule solves a linear programme:

    maximise sum_i t_i f_i    with    mean f = share,    low <= q_g <= low / ratio  for each g,    0 <= f <= 1

Its multipliers say which rule that is: ``f_i = 1`` where ``t_i - sum_g lambda_g r_ig`` is above a threshold.

Only rows near the threshold are in doubt, so the programme is solved on these, all others being flagged or not; where
the multipliers contradict that of any row, more rows are taken in. What comes out is exact.

Resemblance need not hold among the flagged as it does among all rows. So the rates of the rule are counted by the
groups themselves, each ``r_g`` is multiplied by how far the count is off, and the programme is solved again.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from evenout.core.flags import flag_threshold, group_rates, rate_ratio, weighted_quantile
from evenout.core.types import BoolArray, FloatArray, IntArray

_ROUNDS = 8  # of counting and solving again
_CLOSE = 0.002  # a ratio counts as met up to this, or to half of what one row of the smallest group makes
_NEAR = 500  # rows in doubt, to begin with
_RIDGE = 0.01  # of the mean variance of columns, in what they say of the groups
_VANISHING = 1e-280  # a mean square too small to divide by
_LEAST = 0.01  # factors of a group's resemblance are kept between this and its inverse
_DRAWS = 2000  # of rates, for the error of their ratio


class RatioEstimate(NamedTuple):
    """A ratio of flag rates, its standard error and its 95 % interval."""

    value: float
    error: float
    interval: tuple[float, float]


def estimate_ratio(rates: FloatArray, sizes: FloatArray, spread: float | None = None) -> RatioEstimate:
    """The smallest of G rates over the largest, from rates that were counted among ``sizes`` rows.

    Noise spreads rates, so a counted ratio is a little low. The lower end of the interval is what noise may make of the
    counted rates once more; the upper end is as far away, in proportion.

    A rule that was *solved* for even counts evens out chance along with the gap: without each fold counts come out as
    asked, and on new rows the rule is off by that chance, one way or the other. Its ratio is the median of what noise
    makes of the counts; see `noisy_ratios` for its ``spread``.
    """
    if len(rates) < 2:
        nan = float("nan")
        return RatioEstimate(nan, nan, (nan, nan))
    again, found = noisy_ratios(rates, sizes, spread), float(rate_ratio(rates))
    low = min(float(np.percentile(again, 2.5)), found)
    high = min(found**2 / low, 1.0) if low > 0 else 1.0
    return RatioEstimate(found if spread is None else float(np.median(again)), float(again.std()), (low, high))


def noisy_ratios(rates: FloatArray, sizes: FloatArray, spread: float | None = None) -> FloatArray:
    """What noise makes of the ratio of rates that were counted among ``sizes`` rows, many times.

    ``spread`` is the noise of the rule itself, in the logarithm of the ratio; see `FlagRows.spread`.
    """
    flagged, rng = rates * sizes, np.random.default_rng(0)
    drawn = rng.beta(flagged + 0.5, sizes - flagged + 0.5, size=(_DRAWS, len(rates)))
    if spread is not None:
        drawn *= np.exp(spread / np.sqrt(2.0) * rng.normal(size=drawn.shape))
    return rate_ratio(drawn.T)


def even_flags(
    t: FloatArray,
    r: FloatArray,
    codes: IntArray,
    shares: FloatArray,
    *,
    flagged: float,
    ratio: float,
    stands_for: FloatArray | None = None,
) -> FloatArray:
    """``lambda`` of the best rule of a ratio, shape (G,); its sum is 0.

    Parameters
    ----------
    t : array of shape (n,)
        Not constant.
    r : array of shape (n, G)
        Resemblance, mean 1.
    codes : array of shape (n,)
        Groups; -1 for a row without one.
    shares : array of shape (G,)
        P(g), with ``r @ shares = 1``.
    flagged : float
        Share of the rows that is flagged.
    ratio : float
        Smallest over largest flag rate of the groups.
    stands_for : array of shape (n,), optional
        How many rows each row stands for, the same for all rows of a group.
    """
    mass = _mass(stands_for, len(t))
    deviation, n_groups = t.std(), r.shape[1]
    z = (t - t.mean()) / deviation
    smallest = max(int(np.bincount(codes[codes >= 0], minlength=n_groups).min()), 1)
    close = max(_CLOSE, 0.5 / (smallest * flagged))
    factor, best, reached = np.ones(n_groups), np.zeros(n_groups), (-1.0, 0.0)
    worth: FloatArray | None = None
    for _ in range(_ROUNDS):
        found = _programme(z, r * factor, flagged, ratio, mass, None if worth is None else worth / factor)
        if found is None:
            break
        worth = found.worth * factor
        price = shares * worth.sum() - worth
        over = _above(z - r @ price, flagged, mass)
        rates = group_rates(over, codes, n_groups)
        counted = float(rate_ratio(rates))
        value = min(counted, ratio - close), float((z * mass) @ over)
        if value > reached:
            best, reached = price, value
        if abs(counted - ratio) <= close or not price.any():
            break
        expected = np.maximum((r * mass[:, None]).T @ over, 1e-12)
        factor = np.clip(np.sqrt(factor * np.maximum(rates / expected, 1e-12)), _LEAST, 1.0 / _LEAST)
    return best * deviation


def most_kept(
    t: FloatArray, r: FloatArray, *, flagged: float, ratio: float, stands_for: FloatArray | None = None
) -> tuple[float, float]:
    """Share of t's flagged list that a rule of this ratio can keep at most, and the mean t of whom it flags."""
    mass = _mass(stands_for, len(t))
    base = _above(t, flagged, mass).astype(float)
    found = _programme(base, r, flagged, ratio, mass)
    if found is None:
        return float("nan"), float("nan")
    chosen = found.rule * mass
    return float(chosen @ base / max(mass @ base, 1e-12)), float(chosen @ t / max(chosen.sum(), 1e-12))


def linear_resemblance(
    Z: FloatArray, codes: IntArray, n_groups: int, mass: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What columns say of the groups by least squares: ``r_g = 1 + (z - centre)' B_g``, the centre and B (c, G).

    A score may then move by these columns alone, ``t - sum_g lambda_g r_g = t - (z - centre)' B lambda + constant``.
    A ridge keeps near-equal columns from weights of opposite sign.

    Parameters
    ----------
    Z : array of shape (n, c)
    codes : array of shape (n,)
        Groups; -1 for a row without one.
    n_groups : int
    mass : array of shape (n,)
        What each row counts.
    """
    known = codes >= 0
    share = mass[known] / mass[known].sum()
    centre = share @ Z[known]
    D = Z[known] - centre
    A = (D.T * share) @ D
    size = np.trace(A) / len(A)
    if not size > _VANISHING:  # columns that do not vary say nothing
        return centre, np.zeros((len(A), n_groups))
    A += _RIDGE * size * np.eye(len(A))
    of_group = share[:, None] * (codes[known, None] == np.arange(n_groups))
    means = D.T @ (of_group / np.maximum(of_group.sum(axis=0), np.finfo(float).tiny))
    return centre, np.linalg.solve(A, means)


def _mass(stands_for: FloatArray | None, n: int) -> FloatArray:
    """What each row counts; the sum is 1."""
    return np.full(n, 1.0 / n) if stands_for is None else stands_for / stands_for.sum()


def _above(scores: FloatArray, flagged: float, mass: FloatArray) -> BoolArray:
    if (mass == mass[0]).all():
        return np.asarray(scores > flag_threshold(scores, flagged))
    return scores > weighted_quantile(scores, mass, 1.0 - flagged)


class _Solved(NamedTuple):
    """What the rate of each group is worth (G,), the threshold, and how much each row is flagged (n,)."""

    worth: FloatArray
    threshold: float
    rule: FloatArray


def _programme(
    gain: FloatArray,
    r: FloatArray,
    flagged: float,
    ratio: float,
    mass: FloatArray,
    start: FloatArray | None = None,
) -> _Solved | None:
    """Solve the programme, exactly; None if no rule is even. ``start`` is a guess of what the rates are worth."""
    n, n_groups = r.shape
    every, nobody = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    if n <= 2 * _NEAR:
        return _programme_among(gain, r, flagged, ratio, mass, every, nobody)
    if start is None:
        some = np.argsort(gain, kind="stable")[:: -(-n // _NEAR)]
        found = _programme(gain[some], r[some], flagged, ratio, mass[some] / mass[some].sum())
        start = np.zeros(n_groups) if found is None else found.worth
    size, worth = _NEAR, start
    while size < n:
        y = gain + r @ worth
        threshold = weighted_quantile(y, mass, 1.0 - flagged)
        doubt = np.zeros(n, dtype=bool)
        doubt[np.argpartition(np.abs(y - threshold), size)[:size]] = True
        sure = ~doubt & (y > threshold)
        found = _programme_among(gain, r, flagged, ratio, mass, doubt, sure)
        if found is not None:
            worth = found.worth
            if not (~doubt & ((gain + r @ worth > found.threshold) != sure)).any():
                return found
        size *= 2
    return _programme_among(gain, r, flagged, ratio, mass, every, nobody)


def _programme_among(
    gain: FloatArray,
    r: FloatArray,
    flagged: float,
    ratio: float,
    mass: FloatArray,
    doubt: BoolArray,
    sure: BoolArray,
) -> _Solved | None:
    """Solve for the rows in doubt, where the sure ones are flagged and the others are not."""
    one = np.ones((r.shape[1], 1))
    q, fixed, own = r[doubt].T * mass[doubt], r[sure].T @ mass[sure], mass[doubt]
    found = linprog(
        -np.append(gain[doubt] * own, 0.0),
        A_ub=np.block([[-q, one], [q, -one / ratio]]),
        b_ub=np.append(fixed, -fixed),
        A_eq=np.append(own, 0.0)[None],
        b_eq=[flagged - mass[sure].sum()],
        bounds=(0.0, 1.0),
        method="highs",
    )
    if found.status != 0:
        return None
    low, high = np.split(-found.ineqlin.marginals, 2)
    rule = sure.astype(float)
    rule[doubt] = found.x[:-1]
    return _Solved(low - high, -float(found.eqlin.marginals[0]), rule)
