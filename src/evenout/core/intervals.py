"""Intervals, and bounds that hold at all times at once.

*New people each time.* Let ``x_i`` lie in [0, 1] with mean ``m_i`` given everything before it, and let ``c_i`` in
[-1, 1] and a guess ``g_i`` in [0, 1] be known before ``x_i``. With ``s = sum c_i (x_i - m_i)`` and
``v = sum c_i^2 (x_i - g_i)^2``,

    exp(l s - v (-log(1 - l) - l)),   0 <= l < 1,

is a supermartingale that starts at 1 (Fan, Grama and Liu 2015; Howard, Ramdas, McAuliffe and Sekhon, *Time-uniform,
nonparametric, nonasymptotic confidence sequences*, Annals of Statistics 2021, Theorem 4). Averaged over l with a
density proportional to ``(1 - l)^(rho - 1) exp(l rho)`` it has a closed form, their gamma-exponential mixture.
By Ville's inequality it ever exceeds ``1 / level`` with a probability of at most ``level``, whatever the ``m_i`` do
over time.

*The same people again.* The residuals of a person are then correlated over time, and the above does not hold. The sum
over all batches is compared with its standard error clustered by person, one test at each look, and the level is spent
over the looks (`look_share`). The standard error needs no list of persons: with random signs ``e_cj``, the same for a
person c at all times, each ``z_j = sum_i e_c(i)j c_i (x_i - mean)`` has the clustered variance as its mean square, and
sums of batches add (`person_signs`, `reach_by_person`).
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import chdtri, chndtr, chndtrinc, gammainc, gammaln, ndtr, ndtri, stdtrit

from evenout.core.types import BoolArray, FloatArray, IntArray

_SURE = 1e-12  # a p-value that no selection explains
_NORMAL = 1e4  # noncentrality beyond which the noncentral chi-square is close to normal


def noncentral_interval(
    value: FloatArray, scale: FloatArray, freedom: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Interval of ``scale * L`` where ``value / scale`` is noncentral chi-square with noncentrality L.

    The ends are the L at which the value would be just too large, or just too small. A value below the tenth percentile
    of the central distribution counts as that percentile: no sample proves that L is 0. All arrays are of shape (m,).

    >>> low, high = noncentral_interval(np.array([9.0]), np.array([1.0]), np.array([1.0]), 0.95)
    >>> low.round(2), high.round(2)
    (array([1.08]), array([24.6]))
    """
    tail = (1.0 - confidence) / 2.0
    low, high = np.full(len(value), np.nan), np.full(len(value), np.nan)
    for i in np.flatnonzero(np.isfinite(value) & (scale > 0) & (freedom > 0)):
        x, nu = value[i] / scale[i], freedom[i]
        if x > _NORMAL:
            centre, reach = x - nu, ndtri(1.0 - tail) * np.sqrt(2.0 * nu + 4.0 * max(x - nu, 0.0))
            low[i], high[i] = max(centre - reach, 0.0), centre + reach
        else:
            low[i] = chndtrinc(x, nu, 1.0 - tail) if chndtr(x, nu, 0.0) > 1.0 - tail else 0.0
            high[i] = chndtrinc(max(x, float(chdtri(nu, 0.9))), nu, tail)
    return low * scale, high * scale


def ratio_interval(
    estimate: tuple[float, float], first: tuple[float, float], second: tuple[float, float], correlation: float
) -> tuple[float, float]:
    """Interval of ``a / b`` from intervals of a and b that need not be symmetric; infinite ends where b may be 0.

    NaN where one of the intervals is unknown. ``correlation`` is that of the two estimates.

    Like Fieller's, it asks for which ratios r the difference ``a - r b`` may be 0. The error of the difference is
    combined from the distances of the ends (MOVER; Donner and Zou 2012).
    """
    if np.isnan([*first, *second]).any():
        return float("nan"), float("nan")
    a, b = estimate
    ends = []
    for sign, down, up in ((-1.0, a - first[0], second[1] - b), (1.0, first[1] - a, b - second[0])):
        # (a - r b)^2 = down^2 + r^2 up^2 - 2 r rho down up, a quadratic equation in r
        square, middle = b**2 - up**2, a * b - correlation * down * up
        root = np.sqrt(max(middle**2 - square * (a**2 - down**2), 0.0))
        ends.append(float((middle + sign * root) / square) if square > 0 else sign * np.inf)
    return ends[0], ends[1]


def expected_shortfall(asked: float, reached: float, error: float) -> float:
    """``E max(0, asked - X)`` for X normal around ``reached``: the expected shortfall of a request."""
    if not error > 0:
        return max(asked - reached, 0.0)
    z = (asked - reached) / error
    return float(error * (np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi) + z * ndtr(z)))


def picked_share(p: float, level: float) -> float:
    """Share of a gap that is really there, as can be expected where a test of this level has found it with p.

    A test picks samples in which chance widens the gap (the winner's curse; Zhong and Prentice 2008). Let z be the size
    of the gap in standard errors, normal around d, and d anything above 0 alike. This is
    ``E[d | z, found] / E[d | z]``: close to 1 far from the critical value.

    >>> [round(picked_share(p, 0.05), 2) for p in (0.05, 0.01, 0.001, 1e-6)]
    [0.58, 0.7, 0.86, 0.99]
    """
    if p < _SURE:
        return 1.0
    z, least = -ndtri(p / 2.0), -ndtri(level / 2.0)
    d = np.linspace(0.0, z + 6.0, 400)
    density = np.exp(-((z - d) ** 2) / 2.0) + np.exp(-((z + d) ** 2) / 2.0)
    found = ndtr(d - least) + ndtr(-d - least)
    return min(float(np.average(d, weights=density / found) / np.average(d, weights=density)), 1.0)


def extreme_ends(
    value: FloatArray,
    ends: Callable[[float], tuple[FloatArray, FloatArray]],
    correlation: FloatArray,
    confidence: float,
    *,
    of_ratio: bool,
    compared: BoolArray | None = None,
) -> tuple[float, float]:
    """Interval of the largest difference, or of the smallest ratio, between values of G groups.

    For two groups it follows from those of the two values and their correlation (Zou and Donner 2008; for ratios
    Newcombe 2016). With more, the pair that differs most is unknown. Some pair attains the true extreme: so the end on
    the uneven side is the furthest of all pairs. No pair exceeds the true extreme: so the end on the even side is the
    furthest of all pairs too, each with the critical value of Tukey's studentised range instead of the normal one, for
    which all pairs hold simultaneously. For two groups both are the same.

    ``ends`` gives the interval of each group's value (G,) for a critical value z; ``correlation`` is (G, G), and so is
    ``compared``, which groups are compared, all by default. ``of_ratio``: ratios, else differences.
    """
    apart = ~np.eye(len(value), dtype=bool) if compared is None else compared
    n_groups = int(apart.any(axis=1).sum())
    of_pairs = ratio_ends if of_ratio else difference_ends
    plain, wide = (
        of_pairs(value, *ends(z), correlation) for z in (normal_value(confidence), tukey_value(confidence, n_groups))
    )
    if of_ratio:
        return float(plain[0][apart].min()), float(wide[1][apart].min())
    return float(wide[0][apart].max()), float(plain[1][apart].max())


def difference_ends(
    value: FloatArray, low: FloatArray, high: FloatArray, correlation: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends of ``value[i] - value[j]`` from the ends of each group, shape (G, G) each."""
    below, above, apart = value - low, high - value, value[:, None] - value
    down, up = (
        np.sqrt(np.maximum(one[:, None] ** 2 + other**2 - 2 * correlation * one[:, None] * other, 0.0))
        for one, other in ((below, above), (above, below))
    )
    return apart - down, apart + up


def ratio_ends(
    value: FloatArray, low: FloatArray, high: FloatArray, correlation: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends of ``value[i] / value[j]`` from the ends of each group, shape (G, G) each; infinite if value j may be 0.

    They are the ratios at which 0 leaves the interval of ``value[i] - ratio value[j]``.
    """

    def terms(one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        middle = value[:, None] * value - correlation * one[:, None] * other
        top, bottom = (value**2 - one**2)[:, None], value**2 - other**2
        return top, middle + np.sqrt(np.maximum(middle**2 - top * bottom, 0.0)), bottom

    top, root, _ = terms(value - low, high - value)
    smallest = np.where(root > 0, np.maximum(top, 0.0), 0.0) / np.where(root > 0, root, 1.0)
    _, root, bottom = terms(high - value, value - low)
    return smallest, np.where(bottom > 0, root, np.inf) / np.where(bottom > 0, bottom, 1.0)


def correlations(drawn: FloatArray) -> FloatArray:
    """Correlations of the columns over the resamples without NaN; 0 for a constant column."""
    drawn = drawn[~np.isnan(drawn).any(axis=1)]
    if len(drawn) < 3:
        return np.eye(drawn.shape[1])
    centred = drawn - drawn.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    unit = centred / np.where(size > 0, size, 1.0)
    return np.clip(unit.T @ unit, -1.0, 1.0)


def holm(p: FloatArray) -> FloatArray:
    """Holm's adjustment of p-values, NaN left out: ``max over j <= i of min(1, (m - j + 1) p_(j))``.

    >>> holm(np.array([0.01, 0.04, np.nan, 0.03])).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted[order] = np.minimum(np.maximum.accumulate((len(order) - np.arange(len(order))) * p[order]), 1.0)
    return adjusted


def wilson_interval(share: FloatArray, n: FloatArray, z: float) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval of a share of n, with z standard deviations to each side."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def normal_value(confidence: float) -> float:
    """Standard deviations to each side of a normal interval."""
    return float(ndtri((1 + confidence) / 2))


@lru_cache(maxsize=64)
def tukey_value(confidence: float, n_groups: int) -> float:
    """Critical value of the largest difference among all pairs of groups; the normal one for two."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(confidence, n_groups, np.inf) / np.sqrt(2))


def tukey_p_value(z: float, n_groups: int) -> float:
    """Probability that some pair of groups is z or more standard errors apart; the normal one for two.

    >>> round(tukey_p_value(tukey_value(0.95, 4), 4), 6)
    0.05
    """
    from scipy.stats import studentized_range

    return float(2.0 * ndtr(-z)) if n_groups == 2 else float(studentized_range.sf(z * np.sqrt(2), n_groups, np.inf))


TIGHTEST = 25.0  # the v at which the bound is tightest; some 1,200 rows of two groups of equal size
SIGNS = 64  # of a person
_STEPS = 60  # of bisection: to 1e-18 of the first bracket
_DATED = 3.7  # log-likelihood below the best at which a date is excluded; see `change_range`


def log_evidence(s: FloatArray, v: FloatArray, level: FloatArray) -> FloatArray:
    """Logarithm of the mixture at sums ``s >= 0`` and ``v >= 0``; arrays that broadcast."""
    rho = _rho(level)
    shape, rate = v + rho, s + v + rho
    one = gammaln(rho) + np.log(gammainc(rho, rho)) - rho * np.log(rho)
    return s + v + gammaln(shape) + np.log(gammainc(shape, rate)) - shape * np.log(rate) - one


def upper_bound(v: FloatArray, level: FloatArray | float) -> FloatArray:
    """The s that is ever exceeded with a probability of at most ``level``, as a function of v.

    >>> upper_bound(np.array([0.0, 25.0, 2500.0]), 0.025).round(1)
    array([  6.4,  18.5, 186.3])
    """
    v, level = np.broadcast_arrays(np.asarray(v, dtype=float), np.asarray(level, dtype=float))
    asked = -np.log(level)
    low, high = np.zeros(v.shape), 2.0 * np.sqrt((v + _rho(level)) * asked) + 4.0 * asked
    while (short := log_evidence(high, v, level) < asked).any():
        high = np.where(short, 2.0 * high, high)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        above = log_evidence(middle, v, level) >= asked
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


def start_shares(places: IntArray) -> FloatArray:
    """Shares of a level for tests that start at different places: one half for the first, the rest for later ones.

    A test that starts at the p-th place, ``p >= 2``, gets ``1 / (2 p (p - 1))``; the infinite sum is one half.

    >>> start_shares(np.array([1, 2, 3]))
    array([0.5       , 0.25      , 0.08333333])
    """
    p = np.asarray(places, dtype=float)
    return np.where(p <= 1, 0.5, 0.5 / np.maximum(p * (p - 1.0), 1.0))


def look_share(look: int) -> float:
    """Share of a level for the k-th look, counted from 1: ``1 / (k (k + 1))``; the infinite sum is one."""
    return 1.0 / (look * (look + 1.0))


def person_signs(persons: list[str], salt: str) -> FloatArray:
    """Random signs of each person, shape (n, `SIGNS`): the bits of a salted hash.

    >>> person_signs(["anna", "bert", "anna"], "salt")[:, :4]
    array([[-1., -1.,  1.,  1.],
           [ 1.,  1., -1., -1.],
           [-1., -1.,  1.,  1.]])
    """
    hashes = [hashlib.blake2b(who.encode(), digest_size=SIGNS // 8, key=salt[:64].encode()).digest() for who in persons]
    bits = np.unpackbits(np.frombuffer(b"".join(hashes), dtype=np.uint8)).reshape(len(persons), SIGNS)
    return 2.0 * bits.astype(np.float64) - 1.0


def reach_by_person(signed: FloatArray, people: FloatArray, level: FloatArray | float) -> FloatArray:
    """The s that is exceeded with a probability of about ``level`` at one look.

    The sum has parts, one of each group. Its variance is that of the signed sums, or the one under equal variances in
    all groups, whichever is larger: the variance of a small group in which few are flagged is underestimated. Student's
    t has the degrees of freedom of the signed sums and of the people of the smallest group. ``signed`` is
    (..., g, SIGNS), ``people`` (..., g); the reach is infinite where a group has fewer than two.
    """
    n, parts = np.maximum(people, 2.0), (signed**2).mean(axis=-1)
    alike = (n**2 * parts).sum(axis=-1) / n.sum(axis=-1) * (1.0 / n).sum(axis=-1)
    variance = np.maximum((signed.sum(axis=-2) ** 2).mean(axis=-1), alike)
    freedom = 1.0 / (1.0 / SIGNS + 1.0 / (n.min(axis=-1) - 1.0))
    reach = np.sqrt(variance) * -stdtrit(freedom, np.asarray(level, dtype=float))
    return np.where(people.min(axis=-1) > 1.0, reach, np.inf)


def change_range(sums: FloatArray, weight: FloatArray, *, free: bool = False) -> tuple[int, int, int]:
    """Places since which a mean may have been above 0: the earliest, the most likely and the latest.

    Independent ``x_p`` have means of at most 0 before some place and of at least 0 from it on, and variances
    ``1 / weight``. Each place is tried, with the most likely mean on either side, and is excluded if its log-likelihood
    is more than 3.7 below the best: the excess of the best over the truth is about the larger of two exponential
    variables (Siegmund, *Boundary crossing probabilities and statistical applications*, Annals of Statistics 1986),
    which is below 3.7 with a probability of 0.95.

    ``sums`` (P,) are ``x_p`` times its ``weight`` (P,), 0 for missing data. ``free``: the mean before the change may
    have any sign.

    >>> x = np.array([0.1, -0.2, 0.0, 0.1, 2.2, 1.9, 2.1, 2.0])
    >>> change_range(x * 4.0, np.full(8, 4.0))
    (4, 4, 4)
    """
    before, known = (np.concatenate([[0.0], np.cumsum(part)[:-1]]) for part in (sums, weight))
    after, left = sums.sum() - before, weight.sum() - known
    first, second = (a / np.where(b > 0, b, 1.0) for a, b in ((before, known), (after, left)))
    first, second = first if free else np.minimum(first, 0.0), np.maximum(second, 0.0)
    likelihood = first * before - first**2 * known / 2.0 + second * after - second**2 * left / 2.0
    inside = np.flatnonzero(likelihood >= likelihood.max() - _DATED)
    return int(inside[0]), int(likelihood.argmax()), int(inside[-1])


def _rho(level: FloatArray) -> FloatArray:
    """The spread of l for which the bound is tightest near ``v = TIGHTEST`` (Howard et al. 2021, Section 3.5)."""
    asked = 2.0 * -np.log(np.asarray(level, dtype=float))
    return TIGHTEST / (asked + np.log1p(asked))
