"""A target learnt from known labels: a linear stack of the detectors, shrunk towards the base score.

On labelled rows the probability of a 1 is modelled by

    logit P = b + c z + R w,        c ~ N(1, 1),   w ~ N(0, tau^2 I / v),

where ``z`` is the base score with mean 0 and deviation 1 over *all* rows, ``R`` are the residuals on ``z`` of the k
detector scores, which have deviation 1 themselves, and ``v`` is the sum of the variances of R: the stack moves the
logit by about ``tau`` from that of the base score alone, ``w = 0``. It is an average over ``tau`` in `STRENGTHS`,
weighted by marginal likelihood (Laplace's approximation). With ``B`` the Bayes factor of the stack against the base
score,

    label_weight = max(0, (2 B - 1) / (2 B + 1)),        target = (1 - label_weight) t + label_weight u,

where ``u`` is the stack with the mean and the deviation of ``t``. The label weight is the posterior probability of the
stack less that of the base score, with prior odds of 2. Labels that speak against the stack, ``B <= 1/2``, leave the
base score as it is, bit for bit. Nothing is drawn at random and no label is held out.

In ``u`` the coefficient c is at least `LEAST_BASE`, and the correlation with ``t`` at least `LEAST_AGREEMENT`. This
costs little and bounds the effect of wrong labels.

Which rows have a label may depend on the scores, which are in the model. Where it depends on something else, inverse
propensities correct for it. They reduce the effective number of labels, so they are flattened, ``propensity ^ -power``
with ``power <= 1``, until enough are left (Shimodaira 2000); see `inverse_propensity`. No weight corrects for a kind of
row that was never labelled; see `label_coverage`.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.special import expit

from evenout.core.flags import weighted_quantile
from evenout.core.types import FINITE, MOST_ROWS, FloatArray, Within, require

STRENGTHS = (0.7, 1.4)  # tau
LEAST_BASE = 0.3
LEAST_AGREEMENT = 0.3
FLAGGED_AGREEMENT = 0.7  # advisable where labels come from flagged rows alone; see `label_coverage`
PRIOR_ODDS = 2.0  # of the stack against the base score, before the labels
KEPT_SHARE, ENOUGH_LABELS = 0.7, 300.0  # of labels, when propensities are flattened
LEAST_COVERAGE = 0.5
LEAST_OF_A_KIND = 2  # labelled rows of either kind, below which nothing is learnt
_BASE = np.array([0.0, 1.0])  # prior means of the intercept's shift and of c
_BASE_PRECISION = np.array([1.0 / 25.0, 1.0])
_BLOCK = 1 << 16
_LARGEST_LOG = 700.0
_STEPS = 100
_CONSTANT = 1e-9  # a deviation below this share of the size of a column is rounding
_DIFFERENCE = 1e-12  # so is a variance that is less than this share of the squares whose difference it is


@dataclass(frozen=True)
class Stack:
    """A learnt target, linear in the detector scores S and the base score t.

    ``target = base_weight t + S weights + intercept``, with weights (k,) of the scaled detectors. ``label_weight``
    in [0, 1] is the weight of the stack, 0 the base score itself; ``agreement`` the correlation of the target with the
    base score over all rows. ``effective_labels`` is the effective number of labels, less than ``n_labels`` where
    propensities differ. ``propensity_power`` in [0, 1] is that of `inverse_propensity`; 1 without propensities.
    """

    weights: Annotated[FloatArray, "k"]
    base_weight: Annotated[float, FINITE]
    intercept: Annotated[float, FINITE]
    label_weight: Annotated[float, FINITE]
    agreement: Annotated[float, FINITE]
    n_labels: Annotated[int, Within(0, MOST_ROWS)]
    n_positive: Annotated[int, Within(0, MOST_ROWS)]
    effective_labels: Annotated[float, FINITE]
    propensity_power: Annotated[float, FINITE] = 1.0

    def check(self) -> None:
        """Require no more outliers than labels."""
        require(self.n_positive <= self.n_labels, "n_positive", "is out of range")

    def apply(self, S: FloatArray, t: FloatArray) -> FloatArray:
        """The target of rows with scores S (m, k) and base score t (m,), shape (m,)."""
        if self.label_weight == 0.0:
            return t.copy()
        return self.base_weight * t + np.einsum("ij,j->i", S, self.weights) + self.intercept


@dataclass(frozen=True)
class Population:
    """Mean (k + 1,) and covariance (k + 1, k + 1) of the columns (s, t) over all rows, labelled or not."""

    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, S: FloatArray, t: FloatArray, sample_weight: FloatArray | None = None) -> "Population":
        """Population of scores S (n, k) and base score t (n,), in blocks: no copy of S is made."""
        n, k = S.shape
        weight = np.ones(n) if sample_weight is None else sample_weight
        total = weight.sum()
        mean = np.r_[weight @ S, weight @ t] / total
        covariance = np.zeros((k + 1, k + 1))
        for start in range(0, n, _BLOCK):
            rows = slice(start, start + _BLOCK)
            centred = np.column_stack([S[rows], t[rows]]) - mean
            covariance += (centred.T * weight[rows]) @ centred
        return cls(mean, covariance / total)

    @classmethod
    def of_sums(cls, sums: FloatArray) -> "Population":
        """From ``sum z z'`` over all rows, z = (1, s, t): shape (k + 2, k + 2), as in `evenout.core.cells`."""
        mean, square = sums[0, 1:] / sums[0, 0], sums[1:, 1:] / sums[0, 0]
        covariance = square - np.outer(mean, mean)
        varies = covariance.diagonal() > _DIFFERENCE * square.diagonal()
        return cls(mean, np.where(np.outer(varies, varies), covariance, 0.0))


def learn_stack(
    S: FloatArray,
    t: FloatArray,
    labels: FloatArray,
    *,
    propensity: FloatArray | None = None,
    sample_weight: FloatArray | None = None,
    population: Population | None = None,
    least_agreement: float = LEAST_AGREEMENT,
) -> Stack:
    """Learn a target from labels, shrunk towards the base score; see the top of this module.

    S (n, k) are scaled scores of the detectors, t (n,) the base score, and ``labels`` (n,) are 1 for an outlier, 0 for
    an inlier, NaN if unknown. ``propensity`` (n,) is the probability, in (0, 1], that the label of a row became known;
    only those of labelled rows are read, which are weighted by its inverse, flattened where this would leave too few.
    ``population`` is that of all rows, where S holds only some of them, with all the labelled ones;
    ``least_agreement``, in [0, 1), the least correlation of the learnt score with t over all rows.
    """
    known = ~np.isnan(labels)
    y, positive = labels[known], int(np.nansum(labels))
    weight, power = np.ones(len(y)), 1.0
    if propensity is not None and len(y):
        weight, power = inverse_propensity(propensity[known])
    if sample_weight is not None:
        weight = weight * sample_weight[known]
    squares = float(weight @ weight)
    weight = weight * (weight.sum() / squares) if squares > 0 else np.zeros(len(y))  # sum: effective number of labels
    base = Stack(np.zeros(S.shape[1]), 1.0, 0.0, 0.0, 1.0, len(y), positive, float(weight.sum()), power)
    if min(positive, len(y) - positive) < LEAST_OF_A_KIND or not weight.sum() > 0:
        return base
    population = Population.of(S, t, sample_weight) if population is None else population
    mean, covariance = population.mean, population.covariance
    deviation = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    varies = deviation > _CONSTANT * np.abs(mean)
    use = varies[:-1]
    if not (varies[-1] and use.any()):  # t is constant, or all detectors are
        return base
    unit, base_unit = deviation[:-1][use], float(deviation[-1])
    shared = covariance[-1, :-1][use] / (unit * base_unit)  # correlations with t
    z = (t[known] - mean[-1]) / base_unit
    R = (S[known][:, use] - mean[:-1][use]) / unit - np.outer(z, shared)
    w, c, label_weight = _average(R, z, y, weight, float((1.0 - shared**2).sum()))
    if label_weight == 0.0:
        return base
    correlation = covariance[:-1, :-1][np.ix_(use, use)] / np.outer(unit, unit)
    across = max(float(w @ correlation @ w - (shared @ w) ** 2), 0.0)  # the variance of R w
    c = max(c, LEAST_BASE, least_agreement * np.sqrt(across / (1.0 - least_agreement**2)))
    share = label_weight / np.sqrt(c**2 + across)
    weights = np.zeros(len(use))
    weights[use] = share * w * base_unit / unit
    base_weight, along = float(1.0 - label_weight + share * (c - shared @ w)), 1.0 - label_weight + share * c
    return replace(
        base,
        weights=weights,
        base_weight=base_weight,
        intercept=float((1.0 - base_weight) * mean[-1] - mean[:-1] @ weights),
        label_weight=label_weight,
        agreement=float(along / np.sqrt(along**2 + share**2 * across)),
    )


def inverse_propensity(propensity: FloatArray) -> tuple[FloatArray, float]:
    """Weights ``propensity ^ -power`` of the labelled rows, and the power.

    The power is the largest one up to 1 that keeps the effective number ``(sum w)^2 / sum w^2`` at `KEPT_SHARE` of the
    labels, or at `ENOUGH_LABELS` where there are many.

    >>> inverse_propensity(np.array([0.5, 0.5, 0.25, 0.25]))
    (array([2., 2., 4., 4.]), 1.0)
    """
    log = np.log(propensity.min()) - np.log(propensity)  # of weights, the largest being 1

    def effective(power: float) -> float:
        weight = np.exp(power * log)
        return float(weight.sum() ** 2 / (weight @ weight))

    least = min(KEPT_SHARE * len(propensity), ENOUGH_LABELS)
    short = effective(1.0) < least
    power = float(brentq(lambda power: effective(power) - least, 0.0, 1.0, xtol=1e-9)) if short else 1.0
    return propensity**-power, power


def label_coverage(t: FloatArray, labels: FloatArray, propensity: FloatArray | None = None) -> float:
    """Share of all rows that score at least as high as the lowest labelled ones, but for 5 % of those.

    Close to 1 for labels of random rows; 0.1 if only the tenth of highest base score was labelled. With propensities,
    the 5 % are of the rows that the labelled ones represent.
    """
    known = ~np.isnan(labels)
    return float((t >= label_floor(t[known], None if propensity is None else propensity[known])).mean())


def label_floor(t: FloatArray, propensity: FloatArray | None = None) -> float:
    """The base score that all labelled rows but 5 % reach; t (m,) are their base scores."""
    if not len(t):
        return np.inf
    return float(np.quantile(t, 0.05)) if propensity is None else weighted_quantile(t, 1.0 / propensity, 0.05)


def coverage_warning(coverage: float) -> str | None:
    """Warning if labels are known almost only for rows of high base score, else None."""
    if coverage >= LEAST_COVERAGE:
        return None
    return (
        f"labels are known almost only among the {max(coverage, 0.001):.1%} of rows with the highest base score, as if "
        "only flagged rows had been looked at: outliers of a kind that was never flagged cannot be learnt from them, "
        "whatever their weights; have some rows drawn at random labelled too (50 are a start), and give "
        "label_propensity if rows were chosen by anything else than their scores"
    )


def _average(
    R: FloatArray, z: FloatArray, y: FloatArray, weight: FloatArray, variance: float
) -> tuple[FloatArray, float, float]:
    """``w`` and ``c`` averaged over the strengths by their evidence, and the label weight.

    The prior of w is isotropic, so a solution lies in the span of the labelled rows, and k columns can be rotated into
    as few as there are labelled rows.
    """
    k = R.shape[1]
    if variance <= _CONSTANT * k:  # every detector is a multiple of t
        return np.zeros(k), 1.0, 0.0
    rotation = np.eye(k)
    if len(R) < k:
        left, size, rotation = np.linalg.svd(R, full_matrices=False)
        R = left * size
    share = (weight @ y + 0.5) / (weight.sum() + 1.0)
    offset = np.full(len(y), np.log(share) - np.log1p(-share))
    start, known = _fit(np.column_stack([np.ones(len(y)), z]), y, weight, offset, _BASE, _BASE_PRECISION)
    F = np.column_stack([np.ones(len(y)), z, R])
    centre = np.r_[_BASE, np.zeros(R.shape[1])]
    point, points, evidence = np.r_[start, np.zeros(R.shape[1])], [], []
    for strength in STRENGTHS:
        precision = np.r_[_BASE_PRECISION, np.full(R.shape[1], variance / strength**2)]
        point, explained = _fit(F, y, weight, offset, centre, precision, point)
        points.append(point)
        evidence.append(explained - known)
    best = max(evidence)
    shares = np.exp(np.array(evidence) - best)
    odds = PRIOR_ODDS * float(shares.mean() * np.exp(min(best, _LARGEST_LOG)))
    point = shares / shares.sum() @ np.array(points)
    return rotation.T @ point[2:], float(point[1]), max(0.0, (odds - 1.0) / (odds + 1.0))


def _fit(
    F: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    offset: FloatArray,
    centre: FloatArray,
    precision: FloatArray,
    start: FloatArray | None = None,
) -> tuple[FloatArray, float]:
    """Minimise ``sum weight (log(1 + e^g) - y g) + 1/2 sum precision (x - centre)^2``, ``g = offset + F x``.

    The function is strictly convex; Newton's steps are halved until they descend. Returns x and the logarithm of the
    marginal likelihood by Laplace's approximation.
    """

    def value(x: FloatArray) -> float:
        g = offset + F @ x
        return float(weight @ (np.logaddexp(0.0, g) - y * g)) + 0.5 * float(precision @ (x - centre) ** 2)

    x = centre.copy() if start is None else start
    now = value(x)
    for _ in range(_STEPS):
        p = expit(offset + F @ x)
        slope = F.T @ (weight * (p - y)) + precision * (x - centre)
        root = cho_factor((F.T * (weight * p * (1.0 - p))) @ F + np.diag(precision))
        step = cho_solve(root, slope)
        fall = float(slope @ step)
        if fall <= 1e-14 * max(1.0, abs(now)):
            break
        size = 1.0
        while (then := value(x - size * step)) > now - 1e-4 * size * fall and size > 1e-8:
            size *= 0.5
        if then >= now:  # rounding
            break
        x, now = x - size * step, then
    half_log_determinant = float(np.log(np.abs(np.diagonal(root[0]))).sum())
    return x, -now + 0.5 * float(np.log(precision).sum()) - half_log_determinant
