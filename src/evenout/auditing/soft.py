"""Groups that share rows: bands of a number, and groups known by probability.

Group means and rates are means over all rows by how much each belongs to the group. Their covariance is known
(`evenout.core.parity.mean_covariances`), and with it their joint, normal distribution in other samples: intervals come
from draws of it, through the same rules as those of other groups, and tests are Wald's. So the time taken does not grow
with the number of draws times that of the rows.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri

from evenout.auditing.inputs import AuditInputs
from evenout.auditing.measures import Values, over
from evenout.auditing.membership import Soft
from evenout.auditing.result import Curve, Measure
from evenout.auditing.seen import seen_mean_gap, seen_rate_gap
from evenout.auditing.summary import Column, Resamples, Settings, plain_measure, summarise
from evenout.core.forms import GroupMoments, wald_test
from evenout.core.intervals import normal_value, wilson_interval
from evenout.core.membership import Membership
from evenout.core.parity import effective_sizes, mean_covariances
from evenout.core.summing import collect_cells
from evenout.core.types import BoolArray, FloatArray

_TESTS = 1000  # points of a chi-square's distribution, in place of permutations
_COMPARED = ("demographic_parity_raw", "demographic_parity", "demographic_parity_corrected")
_RATIOS = ("flag_rate_ratio", "unflagged_rate_ratio")


class _Means(NamedTuple):
    """Rows that G groups are worth, and the means of score and flag: ``size``, ``rows`` (G,), ``mean`` (2, G).

    ``cov`` (2, G, G) is the covariance of the means, and ``pairs`` (2, P) the same for the pairs that share rows.
    """

    rows: FloatArray
    size: FloatArray
    mean: FloatArray
    cov: FloatArray
    pairs: FloatArray


def soft_family(inputs: AuditInputs, soft: Soft, settings: Settings, rng: np.random.Generator) -> list[Measure]:
    """Measures of scores and groups that share rows, by the names that they have for other groups."""
    means, members = _measure(inputs, soft.members, settings.share), soft.members
    known = means.size > 1.0 + 1e-9
    L = members.compared.laplacian(known[None], means.rows[None])[0]
    variance = float(inputs.scores.var())
    value, drawn = _values(means, means.mean[:, None], L, variance), _draws(means, L, variance, settings, rng)
    n, everyone = len(inputs.scores), Column(None, None, len(inputs.scores), inputs.units())
    groups = [Column(name, None, round(rows), round(size)) for name, rows, size in _sizes(soft, means)]
    columns = {"mean_score": groups, "flag_rate": groups}
    columns |= {name: [everyone] for name in (*_RATIOS, *_COMPARED)}
    measures = summarise(Resamples(value, drawn, {}), columns, settings)
    tested = _tested(measures, means, members, variance, known, everyone)
    if settings.n_permutations:
        measures = [*tested, *_detectable(means, value, soft.names, settings, n, variance)]
    else:
        measures.append(tested[-1])  # Welch's p-value, which is no test of the audit
    shares = means.rows / means.rows.sum()
    low, high = wilson_interval(shares, np.full(len(shares), float(n)), normal_value(settings.confidence))
    at = zip(groups, shares, low, high, strict=True)
    return [*(plain_measure("group_share", place, *ends) for place, *ends in at), *measures]


def measure_curves(inputs: AuditInputs, soft: Soft, settings: Settings) -> tuple[Curve, ...]:
    """Mean score and flag rate at the knots of each number, with pointwise intervals."""
    z, curves = normal_value(settings.confidence), []
    for curve in soft.curves:
        means = _measure(inputs, curve.members, settings.share)
        error = np.sqrt(np.maximum(np.einsum("mgg->mg", means.cov), 0.0))
        score, rate = means.mean
        spread = rate * (1.0 - rate)
        rows = np.where((error[1] > 0) & (spread > 0), over(spread, error[1] ** 2), means.size)
        low, high = wilson_interval(rate, np.maximum(rows, 1.0), z)
        ends = score - z * error[0], score + z * error[0]
        curves.append(Curve(curve.name, curve.knots, np.stack([score, *ends]), np.stack([rate, low, high])))
    return tuple(curves)


def expected_counts(inputs: AuditInputs, soft: Soft, share: float) -> tuple[FloatArray, FloatArray]:
    """Rows and flagged rows that each group is expected to have, shape (G,) each."""
    means = _measure(inputs, soft.members, share)
    return means.rows, means.rows * means.mean[1]


def _measure(inputs: AuditInputs, members: Membership, share: float) -> _Means:
    flagged = (inputs.scores > inputs.threshold(share)).astype(float)
    one, n, G = np.ones(len(flagged)), len(flagged), members.n_groups
    centre = inputs.scores.mean()  # squares of what is far from 0 lose digits
    cells = collect_cells(
        flagged[:, None], inputs.scores - centre, one, members, np.zeros(n, dtype=np.intp), n_groups=G, n_sets=1,
        clusters=inputs.clusters,
    )  # fmt: skip
    rows = cells.group_counts[0]
    mean = (cells.plain[0, :-1, 0, 1:] / np.where(rows > 0, rows, np.nan)[:, None]).T[::-1]
    pairs = np.stack([mean_covariances(cells)[0, :, place, place] for place in (1, 0)])
    cov = np.zeros((2, G, G))
    cov[:, *members.compared.joint] = pairs
    return _Means(rows, effective_sizes(cells)[0], mean + np.array([[centre], [0.0]]), cov, pairs)


def _values(means: _Means, mean: FloatArray, L: FloatArray, variance: float) -> Values:
    """The measures of B sets of group means, ``mean`` of shape (2, B, G)."""
    score, rate = mean
    gap = np.einsum("bg,gh,bh->b", score, L, score)[:, None]
    noise = float(np.einsum("gh,gh->", L, means.cov[0]))
    unit = np.full_like(gap, variance)
    return {
        "mean_score": score,
        "flag_rate": rate,
        "flag_rate_ratio": _ratio(rate),
        "unflagged_rate_ratio": _ratio(1.0 - rate),
        "demographic_parity_raw": gap,
        "demographic_parity": over(gap, unit),
        "demographic_parity_corrected": over(gap - noise, unit),
    }


def _draws(means: _Means, L: FloatArray, variance: float, settings: Settings, rng: np.random.Generator) -> Values:
    """The same in other samples, and what the gaps would be if the groups differed by the errors alone."""
    G = means.mean.shape[1]
    errors = np.zeros((2, settings.n_bootstrap, G))
    for place, cov in enumerate(np.nan_to_num(means.cov)):
        values, vectors = np.linalg.eigh(cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        errors[place] = rng.standard_normal((settings.n_bootstrap, G)) @ root.T
    drawn = means.mean[:, None] + errors
    drawn[1] = np.clip(drawn[1], 0.0, 1.0)
    alone = np.einsum("bg,gh,bh->b", errors[0], L, errors[0])[:, None]
    noise = {"demographic_parity_raw": alone, "demographic_parity": over(alone, np.full_like(alone, variance))}
    return _values(means, drawn, L, variance) | {f"noise of {name}": values for name, values in noise.items()}


def _ratio(rate: FloatArray) -> FloatArray:
    """Lowest over highest rate, shape (B, 1)."""
    return over(np.nanmin(rate, axis=1), np.nanmax(rate, axis=1))[:, None]


def _tested(
    measures: list[Measure], means: _Means, members: Membership, variance: float, known: BoolArray, at: Column
) -> list[Measure]:
    """The measures with the p-values of Wald's tests, and these tests as measures."""
    tests, found = (("mean_score_test", 0, variance), ("flag_rate_test", 1, 1.0)), []
    p_values = {}
    for name, place, total in tests:
        mean = np.nan_to_num(means.mean[place])
        p = wald_test(members.compared, known, mean - mean.mean(), means.cov[place], means.size, total)
        value = float(chdtri(max(int(known.sum()) - 1, 1), p))
        p_values[name] = p
        found.append(Measure(name, None, None, value, np.nan, np.nan, p, np.nan, at.n, ""))
    tested_as = dict.fromkeys(_COMPARED, "mean_score_test") | dict.fromkeys(_RATIOS, "flag_rate_test")
    shown = [replace(m, p=p_values[tested_as[m.measure]]) if m.measure in tested_as else m for m in measures]
    return [*shown, *found, plain_measure("welch_test", at, p_values["mean_score_test"])]


def _detectable(
    means: _Means, value: Values, names: tuple[str, ...], settings: Settings, n: int, variance: float
) -> list[Measure]:
    """The smallest differences that the tests would have seen, the groups taken as if they shared no rows."""
    freedom = max(len(names) - 1, 1)
    null = chdtri(freedom, (np.arange(_TESTS) + 0.5) / _TESTS)[:, None]
    found = Resamples(value, {}, {"mean_score_test": null, "flag_rate_test": null})
    spread = np.einsum("gg->g", means.cov[0]) * means.size
    moments = GroupMoments(means.size, means.mean[:1], spread[None], np.array([variance]))
    gap = seen_mean_gap(found, moments, names, settings.confidence, n)
    return [gap, seen_rate_gap("flag_rate", found, means.size, names, settings.confidence)]


def _sizes(soft: Soft, means: _Means) -> list[tuple[str, float, float]]:
    return list(zip(soft.names, means.rows.tolist(), means.size.tolist(), strict=True))
