"""Bounds that hold at all times at once, so that one may look as often as one likes; and when a change came.

*New people each time.* Let ``x_i`` lie in [0, 1] with mean ``m_i`` given everything before it, and let ``c_i`` in
[-1, 1] and a guess ``g_i`` in [0, 1] be known before ``x_i`` is. With ``s = sum c_i (x_i - m_i)`` and
``v = sum c_i^2 (x_i - g_i)^2``,

    exp(l s - v (-log(1 - l) - l)),   0 <= l < 1,

is a supermartingale that starts at 1 (Fan, Grama and Liu 2015; Howard, Ramdas, McAuliffe and Sekhon, *Time-uniform,
nonparametric, nonasymptotic confidence sequences*, Annals of Statistics 2021, Theorem 4). Averaged over l with a
density proportional to ``(1 - l)^(rho - 1) exp(l rho)`` it has a closed form, their gamma-exponential mixture.
By Ville's inequality it ever exceeds ``1 / level`` with a chance of at most ``level``, whatever the ``m_i`` do over
time.

*The same people again.* What is left of ``x_i`` then goes with what the person had before, and nothing above holds. The
sum over all batches is compared with its standard error by person, one test at each look, and the level is spent
over the looks (`look_share`). The standard error needs no list of persons: with random signs ``e_cj``, the same for a
person c at all times, each ``z_j = sum_i e_c(i)j c_i (x_i - mean)`` has the variance by person as its mean square, and
sums of batches add (`person_signs`, `reach_by_person`).
"""

import hashlib

import numpy as np
from scipy.special import gammainc, gammaln, stdtrit

from evenout.core.types import FloatArray, IntArray

TIGHTEST = 25.0  # the v at which the bound is at its best; some 1,200 rows of two groups of equal size
SIGNS = 64  # of a person
_STEPS = 60  # of bisection: the bound to 1e-18 of where it was looked for
_DATED = 3.7  # log-likelihood below the best at which a date is left out; see `change_range`


def log_evidence(s: FloatArray, v: FloatArray, level: FloatArray) -> FloatArray:
    """Logarithm of the mixture at sums ``s >= 0`` and ``v >= 0``; arrays that broadcast."""
    rho = _rho(level)
    shape, rate = v + rho, s + v + rho
    one = gammaln(rho) + np.log(gammainc(rho, rho)) - rho * np.log(rho)
    return s + v + gammaln(shape) + np.log(gammainc(shape, rate)) - shape * np.log(rate) - one


def upper_bound(v: FloatArray, level: FloatArray | float) -> FloatArray:
    """The s that is ever exceeded with a chance of at most ``level``, as a function of v.

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
    """How a level is shared out over starts: one half to the first, the rest to all later ones; same shape.

    What begins at the p-th place, ``p >= 2``, gets ``1 / (2 p (p - 1))``; without end these add up to one half.

    >>> start_shares(np.array([1, 2, 3]))
    array([0.5       , 0.25      , 0.08333333])
    """
    p = np.asarray(places, dtype=float)
    return np.where(p <= 1, 0.5, 0.5 / np.maximum(p * (p - 1.0), 1.0))


def look_share(look: int) -> float:
    """What the look, counted from 1, may spend of a level: ``1 / (k (k + 1))``; without end these add up to one."""
    return 1.0 / (look * (look + 1.0))


def person_signs(persons: list[str], salt: str) -> FloatArray:
    """Random signs of each person, shape (n, `SIGNS`): the bits of a salted hash.

    >>> person_signs(["anna", "bert", "anna"], "salt")[:, :4]
    array([[-1., -1.,  1.,  1.],
           [ 1.,  1., -1., -1.],
           [-1., -1.,  1.,  1.]])
    """
    told = [hashlib.blake2b(who.encode(), digest_size=SIGNS // 8, key=salt[:64].encode()).digest() for who in persons]
    bits = np.unpackbits(np.frombuffer(b"".join(told), dtype=np.uint8)).reshape(len(persons), SIGNS)
    return 2.0 * bits.astype(np.float64) - 1.0


def reach_by_person(signed: FloatArray, people: FloatArray, level: FloatArray | float) -> FloatArray:
    """The s that is exceeded with a chance of about ``level`` at one look.

    The sum has parts, one of each group. Its variance is that of the signed sums, or that which the parts would have if
    persons of all groups varied alike, whichever is larger: a small group in which few are flagged looks surer than
    it is. Student's t has the degrees of freedom that the signed sums and the people of the smallest group leave.

    Parameters
    ----------
    signed : array of shape (..., g, SIGNS)
    people : array of shape (..., g)
        Of each group; the reach is infinite where one has fewer than two.
    """
    n, parts = np.maximum(people, 2.0), (signed**2).mean(axis=-1)
    alike = (n**2 * parts).sum(axis=-1) / n.sum(axis=-1) * (1.0 / n).sum(axis=-1)
    variance = np.maximum((signed.sum(axis=-2) ** 2).mean(axis=-1), alike)
    freedom = 1.0 / (1.0 / SIGNS + 1.0 / (n.min(axis=-1) - 1.0))
    found = np.sqrt(variance) * -stdtrit(freedom, np.asarray(level, dtype=float))
    return np.where(people.min(axis=-1) > 1.0, found, np.inf)


def change_range(sums: FloatArray, weight: FloatArray, *, free: bool = False) -> tuple[int, int, int]:
    """Places since which a mean may have been above 0: the earliest, the likeliest and the latest.

    Independent ``x_p`` have means of at most 0 before some place and of at least 0 from it on, and variances
    ``1 / weight``. Each place is tried, with the likeliest mean on either side, and is left out where its
    log-likelihood is more than 3.7 below the best: the excess of the best over the truth is about the larger of two
    exponential variables (Siegmund, *Boundary crossing probabilities and statistical applications*, Annals of
    Statistics 1986), which is below 3.7 with a chance of 0.95.

    Parameters
    ----------
    sums, weight : array of shape (P,)
        ``x_p`` times its weight, and the weight; 0 where nothing is known.
    free : bool
        Let the mean before the change be of any sign.

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
