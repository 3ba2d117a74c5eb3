"""Measures by the ruler: rows with weights, probable groups, bands of a number, clusters that span groups.

Where rows cannot be counted and dealt out again, each measure is a mean over a membership (`evenout.core.ruler`) with
its covariance: among all rows, known outliers and inliers, flagged rows, or rows alike in what was given. Intervals
follow from the covariance and tests are Wald's, so that time does not grow with the number of resamples. Where groups
are known by probabilities alone, intervals hold all that these leave open, and nothing is tested.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.sparse import csc_array
from scipy.special import chdtri, ndtr, ndtri, stdtrit

from evenout.auditing.counted import MEANINGS
from evenout.auditing.measures import (
    NAN,
    POWER,
    AuditSettings,
    MeasureColumn,
    detectable_mean_gap,
    detectable_rate_gap,
    gap_interval,
    group_columns,
)
from evenout.auditing.result import Curve, Measure
from evenout.auditing.sample import AuditInputs, Labels, Strata
from evenout.core.intervals import extreme_ends, normal_value, wilson_interval
from evenout.core.membership import Comparison, Membership
from evenout.core.ruler import (
    Means,
    Sample,
    bounded_gap,
    bounded_ratio,
    estimate_ratio,
    mean_bounds,
    residualise,
    small_sample,
)
from evenout.core.types import BoolArray, FloatArray
from evenout.exceptions import InputError

_TAILS = (np.arange(1000) + 0.5) / 1000  # of a chi-square's distribution, whose points are in place of permutations
_MOST_CELLS = 3000  # groups in strata, whose covariance is kept
_LEAST_CELL = 20  # independent rows of a group in a stratum, from which on strata are tested one by one
_MOST_IN_CELLS = 0.8  # of the rows in such cells, for that
Interval: TypeAlias = tuple[float, float, float]  # a value and its ends


@dataclass(frozen=True)
class _Measured:
    """A column by group: its means, the same as if groups did not differ, and bounds of what they may be, (G,) each."""

    means: Means
    null: Means
    low: FloatArray
    high: FloatArray
    bounded: bool = False

    @classmethod
    def of(
        cls, inputs: AuditInputs, z: FloatArray | BoolArray, *, counted: FloatArray | None = None, flags: bool = False
    ) -> "_Measured":
        """Of a column, ``counted`` so much more or less in each row."""
        sample = base = inputs.sample
        moving = inputs.scores if flags and not inputs.flags.fixed else None
        if counted is not None:
            phi = csc_array(base.members.weights.multiply(counted[:, None]))
            phi.eliminate_zeros()
            sample = replace(base, members=replace(base.members, weights=phi))
            base = replace(base, weight=counted if base.weight is None else base.weight * counted)
        means, null = (sample.measure(z, null=own, threshold_of=moving) for own in (False, True))
        return cls.bound(inputs, base, z, means, null)

    @classmethod
    def bound(
        cls, inputs: AuditInputs, sample: Sample, z: FloatArray | BoolArray, means: Means, null: Means
    ) -> "_Measured":
        """Means that were measured, and what they may be where groups are known by probability alone."""
        if not inputs.bounded:
            return cls(means, null, means.mean, means.mean)
        low, high = mean_bounds(sample, z)
        return cls(means, null, np.fmin(low, means.mean), np.fmax(high, means.mean), bounded=True)

    def p_value(self, *, null: bool = True) -> float:
        """Of no difference; NaN where probabilities alone cannot tell."""
        return NAN if self.bounded else (self.null if null else self.means).p_value()

    def ends(self, z: float, *, rate: bool) -> tuple[FloatArray, FloatArray]:
        """Interval of each group's mean, with z standard deviations to each side."""
        if not rate:
            t = stdtrit(np.maximum(self.means.size - 1.0, 1.0), ndtr(z))
            reach = t * np.sqrt(np.maximum(np.diag(self.means.cov), 0.0))
            return self.low - reach, self.high + reach
        rows = np.maximum(self.means.rows_worth(), 1.0)
        return wilson_interval(self.low, rows, z)[0], wilson_interval(self.high, rows, z)[1]

    def ratio(self, confidence: float) -> Interval:
        """Lowest over highest, and its interval."""
        value, _, ends = estimate_ratio(self.means, confidence=confidence)
        if self.bounded:
            low, high = bounded_ratio(self.means, self.low, self.high, confidence)
            ends = min(low, value), max(high, value)
        return value, *ends

    def gap(self, confidence: float) -> Interval:
        """Largest less smallest rate, and its interval."""
        means, compares = self.means, self.means.compares
        if not compares.any():
            return NAN, NAN, NAN
        low, high = extreme_ends(
            means.mean, lambda z: self.ends(z, rate=True), means.correlation(), confidence,
            of_ratio=False, compared=compares,
        )  # fmt: skip
        value = float(np.ptp(means.mean[means.known]))
        return value, min(max(low, 0.0), value), high


def score_family(inputs: AuditInputs, settings: AuditSettings, rng: np.random.Generator) -> list[Measure]:
    """Measures of scores and groups, by the names that they have where rows are counted."""
    confidence, names, weight = settings.confidence, inputs.names, inputs.sample.weight
    centre = float(np.average(inputs.scores, weights=weight))
    variance = float(np.average((inputs.scores - centre) ** 2, weights=weight))
    scores = _Measured.of(inputs, inputs.scores - centre)
    flags = _Measured.of(inputs, inputs.flags.flagged, flags=True)
    groups, everyone = group_columns(inputs), MeasureColumn(None, None, len(inputs.scores), inputs.units())
    welch = scores.p_value(null=False)
    p_mean, p_flag = (welch, flags.p_value()) if settings.resamples else (NAN, NAN)
    measures = _levels("mean_score", scores, groups, settings, shift=centre)
    measures += _levels("flag_rate", flags, groups, settings, rate=True)
    unflagged = replace(flags.means, mean=1.0 - flags.means.mean)
    spared = replace(flags, means=unflagged, low=1.0 - flags.high, high=1.0 - flags.low)
    for name, rates in (("flag_rate_ratio", flags), ("unflagged_rate_ratio", spared)):
        measures.append(_measure(name, everyone, rates.ratio(confidence), p_flag, settings))
    gaps = _squared(scores, inputs.sample.total, variance, settings, rng)
    measures += [_measure(f"demographic_parity{more}", everyone, gap, p_mean, settings) for more, gap in gaps.items()]
    if settings.resamples and not inputs.bounded:
        measures += [
            _test("mean_score_test", everyone, p_mean, scores),
            _test("flag_rate_test", everyone, p_flag, flags),
        ]
        # the smallest differences that the tests detect, the groups taken as if they shared no rows
        size, chi = scores.means.size, chdtri(max(len(names) - 1, 1), _TAILS)
        noise = np.diag(scores.means.cov) * size / size
        measures += [
            detectable_mean_gap(scores.means.mean, noise, variance, chi, names, confidence, everyone.n),
            detectable_rate_gap("flag_rate", flags.means.mean, flags.means.rows_worth(), chi, names, confidence),
        ]
    measures.append(Measure("welch_test", None, None, float(welch), n=everyone.n))
    everything = replace(inputs.sample, members=Membership.of_codes(np.zeros(len(inputs.scores), dtype=np.intp), 1))
    shares = np.clip(inputs.sample.total / everything.total[0], 0.0, 1.0)
    ends = wilson_interval(shares, np.full(len(shares), everything.size[0]), normal_value(confidence))
    each = zip(groups, *(x.tolist() for x in (shares, *ends)), strict=True)
    return [*(Measure("group_share", at.group, None, v, lo, hi, n=at.n) for at, v, lo, hi in each), *measures]


def label_family(inputs: AuditInputs, labels: Labels, settings: AuditSettings) -> list[Measure]:
    """Rates of finding known outliers; labelled rows count by one over the chance of a label, where it is known."""
    y, flagged = np.nan_to_num(labels.values), inputs.flags.flagged.astype(float)
    looked_at = (~np.isnan(labels.values)).astype(float) * (1.0 if labels.weight is None else labels.weight)
    among = {
        "outlier_rate": (looked_at, y),
        "true_positive_rate": (looked_at * y, flagged),
        "false_positive_rate": (looked_at * (1.0 - y), flagged),
        "precision": (looked_at * flagged, y),
        "auc": (looked_at, y),
    }
    measures, silent = [], labels.chosen or settings.resamples == 0
    for name, (counted, z) in among.items():
        used, of_flags, auc = counted > 0, name.endswith("positive_rate"), name == "auc"
        if auc and inputs.bounded:
            continue
        measured = _auc(inputs, counted, z) if auc else _Measured.of(inputs, z, counted=counted, flags=of_flags)
        measures += _levels(name, measured, group_columns(inputs, used), settings, rate=True)
        if name == "outlier_rate":
            continue
        at, p = MeasureColumn(None, None, int(used.sum()), inputs.units(used)), NAN if silent else measured.p_value()
        measures.append(_measure(f"{name}_gap", at, measured.gap(settings.confidence), p, settings))
        if of_flags and not np.isnan(p):
            measures.append(_test(f"{name}_test", at, p, measured))
        if name == "true_positive_rate" and not np.isnan(p):
            rates, sizes = measured.means.mean, measured.means.rows_worth()
            chi = chdtri(max(len(inputs.names) - 1, 1), _TAILS)
            measures.append(detectable_rate_gap(name, rates, sizes, chi, inputs.names, settings.confidence))
    return [replace(m, note="of the labelled rows alone") for m in measures] if labels.chosen else measures


def _auc(inputs: AuditInputs, looked_at: FloatArray, y: FloatArray) -> _Measured:
    """AUC of each group, with the covariance of its two-sample influence (DeLong et al. 1988)."""
    sample, G = inputs.sample, len(inputs.names)
    value, psi, e = np.full(G, np.nan), np.zeros((len(y), G)), np.zeros(G)
    for g in range(G):
        rows, phi = sample.members.of(g)
        own = looked_at[rows] * phi * (1.0 if sample.weight is None else sample.weight[rows])
        out, rest = own * y[rows], own * (1.0 - y[rows])
        if not (out.sum() > 0 and rest.sum() > 0):
            continue
        levels, level = np.unique(inputs.scores[rows], return_inverse=True)
        out, rest = out / out.sum(), rest / rest.sum()
        of_rest, of_out = (np.bincount(level, part, minlength=len(levels)) for part in (rest, out))
        below, above = np.cumsum(of_rest) - 0.5 * of_rest, 1.0 - np.cumsum(of_out) + 0.5 * of_out
        value[g], e[g] = float(of_out @ below), 1.0 / (out**2).sum()
        psi[rows, g] = out * (below[level] - value[g]) + rest * (above[level] - value[g])
    means = Means(value, sample.covariance(csc_array(psi * small_sample(e))), e, sample.compared)
    return _Measured(means, means, value, value)


def strata_family(
    inputs: AuditInputs, alike: Strata, settings: AuditSettings, rng: np.random.Generator
) -> list[Measure]:
    """Gaps among rows alike in what was given, numbers taken out within each stratum."""
    inside = alike.codes >= 0
    inputs, alike, G = inputs.of(inside), alike.of(inside), len(inputs.names)
    sample, strata, numbers = inputs.sample, alike.codes, alike.numbers
    if len(alike.names) * G > _MOST_CELLS:
        raise InputError(
            "{@given} has {n} strata, too many for {groups} groups by weights or numbers; give fewer columns",
            n=len(alike.names), groups=G,
        )  # fmt: skip
    mean = float(np.average(inputs.scores, weights=sample.weight))
    spread = float(np.sqrt(np.average((inputs.scores - mean) ** 2, weights=sample.weight)))
    z = (inputs.scores - mean) / (spread or np.nan)
    within, null = (sample.among_alike(z, strata, numbers, null=own) for own in (False, True))
    left = residualise(z[:, None], numbers, strata, sample.weight)[:, 0]
    inner = replace(sample, members=sample.members.within(strata))
    measured = _Measured.bound(inputs, inner, left, within, null)
    silent = inputs.bounded or settings.resamples == 0 or not spread > 0
    p = NAN if silent else _strata_p(null, inner.total, G)
    at = MeasureColumn(None, None, len(z), inputs.units())
    gaps = _squared(measured, inner.total, 1.0, settings, rng)
    measures = [_measure(f"conditional_parity{more}", at, gaps[more], p, settings) for more in ("", "_corrected")]
    sizes = np.bincount(strata, minlength=len(alike.names)).tolist()
    for part, (name, size) in enumerate(zip(alike.names, sizes, strict=True)):
        cells, block = slice(part * G, (part + 1) * G), within.compared.blocks[part]
        compared = Comparison(G, (replace(block, groups=tuple(range(G)), weight=1.0),))
        own, own_null = (Means(m.mean[cells], m.cov[cells, cells], m.size[cells], compared) for m in (within, null))
        alone = _Measured(own, own_null, measured.low[cells], measured.high[cells], measured.bounded)
        gap, p_own = _squared(alone, np.ones(G), 1.0, settings, rng)[""], NAN if silent else alone.p_value()
        measures.append(_measure("parity_within", MeasureColumn(None, name, size, size), gap, p_own, settings))
    everyone, columns = np.zeros(len(z), dtype=np.intp), group_columns(inputs)
    for name, column in (("mean_apart", z), ("apart_by_strata", z - left)):
        apart = sample.among_alike(column, everyone)
        measures += _levels(name, _Measured.bound(inputs, sample, column, apart, apart), columns, settings)
    if not silent:
        measures += [_test("strata_test", at, p, measured), _detectable_within(null, inputs.names, settings, at.n)]
    return measures


def _strata_p(null: Means, total: FloatArray, n_groups: int) -> float:
    """p-value of no gap in any stratum; of none on average over strata, where most of these are small."""
    large = null.size >= _LEAST_CELL
    if total[large].sum() >= _MOST_IN_CELLS * total.sum():
        return replace(null, mean=np.where(large, null.mean, np.nan)).p_value()
    shares = total.reshape(-1, n_groups) / np.maximum(total.reshape(-1, n_groups).sum(axis=0), 1e-300)
    pool = np.concatenate([np.diag(row) for row in shares], axis=1)  # (G, S G)
    mean, size = pool @ np.nan_to_num(null.mean), null.size.reshape(-1, n_groups).sum(axis=0)
    return Means(mean, pool @ null.cov @ pool.T, size, Comparison.of_all(n_groups)).p_value()


def measure_curves(inputs: AuditInputs, settings: AuditSettings) -> tuple[Curve, ...]:
    """Mean score and flag rate at the knots of each number, with pointwise intervals."""
    z, curves = normal_value(settings.confidence), []
    for name, (knots, members) in inputs.curves.items():
        by_band = replace(inputs, sample=replace(inputs.sample, members=members))
        score, rate = by_band.sample.measure(inputs.scores), _Measured.of(by_band, inputs.flags.flagged, flags=True)
        ends = score.mean + z * np.sqrt(np.diag(score.cov)) * np.array([[0.0], [-1.0], [1.0]])
        curves.append(Curve(name, knots, ends, np.stack([rate.means.mean, *rate.ends(z, rate=True)])))
    return tuple(curves)


def _squared(
    measured: _Measured, rows: FloatArray, variance: float, settings: AuditSettings, rng: np.random.Generator
) -> dict[str, Interval]:
    """The squared gap raw, over the variance (""), and that less noise, each with its interval."""
    means, known = measured.means, measured.means.known
    if not means.compares.any():
        return dict.fromkeys(("_raw", "", "_corrected"), (NAN, NAN, NAN))
    L = means.compared.laplacian(known[None], np.where(known, rows, 0.0)[None])[0]
    m, cov = np.where(known, means.mean, 0.0), np.where(known & known[:, None], means.cov, 0.0)
    value, noise = float(m @ L @ m), float((L * cov).sum())
    values, vectors = np.linalg.eigh(cov)
    errors = rng.standard_normal((max(settings.resamples, 1), len(m))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    drawn, alone = (np.einsum("bg,gh,bh->b", e, L, e)[:, None] for e in (m + errors, errors))
    ends = gap_interval(MEANINGS["demographic_parity"], np.array([value]), drawn, alone, settings.confidence)
    low, high = (float(end[0]) for end in ends)
    if measured.bounded:
        push, most = np.sqrt(np.quantile(alone, settings.confidence)), bounded_gap(L, measured.low, measured.high)
        low, high = max(np.sqrt(most[0]) - push, 0.0) ** 2, (np.sqrt(most[1]) + push) ** 2
    unit = variance if variance > 0 else NAN
    of = {"_raw": (value, 1.0), "": (value, unit), "_corrected": (value - noise, unit)}
    return {name: (v / by, min(low, v) / by, max(high, v) / by) for name, (v, by) in of.items()}


def _levels(
    name: str,
    measured: _Measured,
    columns: list[MeasureColumn],
    settings: AuditSettings,
    *,
    shift: float = 0.0,
    rate: bool = False,
) -> list[Measure]:
    figures = np.array([measured.means.mean, *measured.ends(normal_value(settings.confidence), rate=rate)]) + shift
    return [_measure(name, at, tuple(own), NAN, settings) for at, own in zip(columns, figures.T.tolist(), strict=True)]


def _measure(name: str, at: MeasureColumn, interval: Interval, p: float, settings: AuditSettings) -> Measure:
    """A measure with its interval; one that leaves evenness out while the test does not is stretched to it."""
    (value, low, high), even = interval, MEANINGS[name].even
    if settings.resamples == 0 or np.isnan(value):
        low = high = NAN
    elif even is not None and p > 1 - settings.confidence:
        low, high = min(low, even), max(high, even)
    return Measure(name, at.group, at.detail, float(value), float(low), float(high), float(p), n=at.n)


def _test(name: str, at: MeasureColumn, p: float, measured: _Measured) -> Measure:
    compares, blocks = measured.means.compares, measured.means.compared.blocks
    freedom = sum(max(int(compares[list(block.groups)].any(axis=1).sum()) - 1, 0) for block in blocks)
    return Measure(name, None, None, float(chdtri(max(freedom, 1), max(p, 1e-300))), p=p, n=at.n)


def _detectable_within(means: Means, names: tuple[str, ...], settings: AuditSettings, n: int) -> Measure:
    """The gap between the two largest groups, the same in every stratum, that its mean shows with 80 % power."""
    size = means.size.reshape(-1, len(names))
    one, two = np.sort(np.argsort(size.sum(axis=0))[-2:]).tolist()
    both = np.minimum(size[:, one], size[:, two])
    contrast = np.zeros_like(size)
    contrast[:, one], contrast[:, two] = both / both.sum(), -both / both.sum()
    variance = float(contrast.ravel() @ np.nan_to_num(means.cov) @ contrast.ravel())
    gap = float(np.sqrt(max(variance, 0.0)) * (normal_value(settings.confidence) + ndtri(POWER)))
    held = f"between '{names[one]}' and '{names[two]}'; the same in every stratum, sizes as they are"
    return Measure("conditional_detectable", None, None, gap, n=n, note=held)
