"""Audit any score: gaps between groups with intervals and tests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from evenout.auditing import by_ruler
from evenout.auditing import measures as families
from evenout.auditing.drivers import MAX_ROWS, TEST_ROWS, gap_drivers, pair_limit, sample_rows
from evenout.auditing.inference import MEANINGS
from evenout.auditing.measures import Settings
from evenout.auditing.result import AttributeAudits, AuditResult, LeftOut, Measure
from evenout.auditing.sample import AuditInputs, read_audit_inputs, who_is_flagged
from evenout.auditing.text import TOO_FEW
from evenout.core.flags import flagged_share
from evenout.core.individual import DEFAULT_LENGTH, LengthScale, warn_few_pairs
from evenout.core.intervals import holm
from evenout.core.resampling import MAX_LEVELS
from evenout.exceptions import InputError
from evenout.groups.model import require_protected
from evenout.groups.read import GroupProbabilities, warn_left_out
from evenout.groups.rules import Groups
from evenout.metrics import average_precision, roc_auc
from evenout.outcome import probable_words
from evenout.tables.parameters import (
    CONFIDENCE,
    ENSEMBLE,
    INDIVIDUAL,
    Allowed,
    check_parameters,
    integer,
    number,
    without_old_names,
)
from evenout.tables.rows import as_seed

if TYPE_CHECKING:
    import pandas as pd


MIN_FLAGGED = 10  # a flag rate that rests on fewer flagged rows is called rough


def with_note(m: Measure, min_size: int) -> Measure:
    """The measure with a warning where it rests on few rows."""
    notes = [note for note in (m.note, MEANINGS[m.measure].note) if note]
    if m.n < min_size:
        notes.append(f"only {m.n} rows")
    if m.measure == "flag_rate" and round(m.value * m.n) < MIN_FLAGGED:
        notes.append(f"only {round(m.value * m.n)} flagged")
    return replace(m, note="; ".join(notes))


def of_left_out(groups: tuple[LeftOut, ...]) -> list[Measure]:
    """Rows and flagged rows of groups that are too small for anything else."""
    nan = float("nan")
    return [
        Measure(name, group.name, None, float(value), nan, nan, nan, nan, group.rows, TOO_FEW)
        for group in groups
        for name, value in (("left_out_rows", group.rows), ("left_out_flagged", group.flagged))
    ]


def rough_groups(names: Sequence[str], counts: list[int], flagged: list[int]) -> list[str]:
    """Groups whose flag rates rest on few flagged rows, in words."""
    return [
        f"{name!r} ({n:,} rows, {k:,} flagged)"
        for name, n, k in zip(names, counts, flagged, strict=True)
        if k < MIN_FLAGGED
    ]


def notes(inputs: AuditInputs, settings: Settings, tests: Iterable[int], *, gap_found: bool) -> list[str]:
    """What was rounded, sampled or could not be shown; ``tests`` are the numbers that are corrected together."""
    n, found = len(inputs.scores), _soft_notes(inputs)
    levels = len(np.unique(inputs.scores))
    if levels == 1:
        found.append("all scores are equal: there is nothing to compare")
    if levels > MAX_LEVELS and inputs.grouped.whole:
        found.append(f"intervals and tests use the scores rounded to {MAX_LEVELS:,} levels at most")
    if inputs.features is not None:
        limit = pair_limit(len(inputs.names))
        if n > limit:
            found.append(f"individual unfairness: the value is of {min(n, MAX_ROWS):,} rows, the interval of {limit:,}")
        if not gap_found:
            found.append("no gap in mean scores can be told from noise, so no features behind it are listed")
        elif inputs.clusters is not None:
            found.append("features are not tested where rows come in clusters: their intervals say how sure they are")
        elif n > TEST_ROWS:
            found.append(f"tests of single features use {TEST_ROWS:,} rows")
    for asked in tests if inputs.grouped.whole else ():
        least = asked / (1 + settings.resamples)
        if least > 1 - settings.confidence:
            enough = int(np.ceil(asked / (1 - settings.confidence)))
            found.append(
                f"{settings.resamples} permutations are too few for {asked} tests: no corrected p-value "
                f"can be small; set resamples={enough} or more"
            )
    return found


def _soft_notes(inputs: AuditInputs) -> list[str]:
    """What it means that groups share rows, or that rows do not count alike."""
    found = []
    if inputs.grouped.curves:
        named = ", ".join(repr(curve.name) for curve in inputs.grouped.curves)
        found.append(f"bands of {named} overlap: a row between two counts in both, by how near it is")
        found.append("squared gaps between bands are the share of the scores' variance that lies between them")
    if inputs.probable is not None and inputs.probable.sufficient:
        found.append("groups are known by probability, and taken at your word to know all that the score uses")
    elif inputs.probable is not None:
        found.append(probable_words(inputs.probable.bound()))
        found.append("intervals of probable groups hold all that the probabilities leave open, and nothing is tested")
    if inputs.sample.weight is not None:
        found.append("rows count by their weights; counts of rows do not")
    if inputs.labels is not None and inputs.labels.partial:
        known = int((~np.isnan(inputs.labels.values)).sum())
        how = "by chances that are unknown" if inputs.labels.chosen else "each counted by one over its chance"
        found.append(f"{known:,} of {len(inputs.scores):,} rows have a label, {how}")
    return found


# Tests that are corrected together, each with the place of its audit.
Questions: TypeAlias = list[list[tuple[int, Measure]]]

_RULES = {
    "contamination": ENSEMBLE["contamination"],
    "threshold": Allowed(lambda value: value is None or number(-np.inf, np.inf).allows(value), "a number"),
    "resamples": integer(0),
    "confidence": CONFIDENCE,
    "length_scale": INDIVIDUAL["length_scale"],
}


@overload
def audit(scores: Any, *, sensitive_features: Any, groups: None = None, **options: Any) -> AuditResult: ...
@overload
def audit(
    scores: Any, *, sensitive_features: Any, groups: Groups | None, **options: Any
) -> AuditResult | AttributeAudits: ...
@without_old_names  # type: ignore[misc]  # the overloads leave the names of options to it
def audit(
    scores: Any,
    *,
    sensitive_features: Any,
    labels: Any = None,
    label_propensity: Any = None,
    X: Any = None,
    given: Any = None,
    clusters: Any = None,
    sample_weight: Any = None,
    groups: Groups | None = None,
    length_scale: LengthScale = DEFAULT_LENGTH,
    contamination: float | int = 0.1,
    threshold: float | None = None,
    flags: Any = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    random_state: Any = 0,
) -> AuditResult | AttributeAudits:
    """Audit any outlier score for gaps between groups, with intervals and tests.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher = more outlying.
    sensitive_features : array, series or frame of shape (n,) or (n, c)
        The group of each row; several columns make intersectional groups. Or the `evenout.GroupProbabilities` of each
        row: unless these are ``sufficient``, intervals hold all that the probabilities leave open.
    labels : array of shape (n,), optional
        Known labels, 1 for outliers, 0 for inliers: adds AUC, average precision, rates and precision by group. NaN
        where nobody looked: then measures are about the labelled rows alone, unless ``label_propensity`` is given.
    label_propensity : float or array of shape (n,), optional
        The chance with which a row was looked at: one number for a random draw, or one for each row.
    X : array or frame of shape (n, d), optional
        Features without the protected attribute: adds individual unfairness, and which features go with the gap.
    given : array, series or frame of shape (n,) or (n, c), optional
        Columns that may justify a difference: adds gaps among rows that are alike in them. Numbers with more than
        five values are cut at their quintiles, and what they explain within these is taken out of scores and groups. A
        row with a missing value is in no stratum.
    clusters : array of shape (n,), optional
        Rows with the same value belong together, such as several rows of one person.
    sample_weight : array of shape (n,), optional
        How many people of the population each row stands for, as in a survey; the scale does not matter.
    groups : Groups, optional
        Which groups are compared; see `evenout.Groups`. Of numbers such as age, ``curves`` has mean score and flag rate
        against the number. With ``cross`` other than True there is an audit for each protected column, corrected for
        many tests together. Small groups are shown apart; fewer than two groups that can be measured are an error.
        Rows of small and of missing groups are still among all rows when a share of these is flagged.
    length_scale : "minmax", float or ("median", factor), default=("median", 0.1)
        With ``X``: the distance at which rows stop being similar, as in `evenout.Individual`.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the rows, or of the weight, that is flagged; a whole number is a count of rows, such as the 200 that
        can be looked at. Where scores tie, the share nearest to it.
    threshold : float, optional
        Instead: rows with this score or more are flagged.
    flags : array of shape (n,), optional
        Instead: 1 for the rows that are flagged.
    confidence : float in [0.5, 1), default=0.95
        Of the intervals; tests reject at ``1 - confidence``.
    resamples : int, default=1000
        Bootstrap resamples and permutations; 0 leaves out intervals and tests.
    random_state : int, RandomState or None, default=0

    Returns
    -------
    AuditResult, or AttributeAudits with one for each protected column

    Notes
    -----
    Intervals come from a bootstrap within each group. p-values come from shuffling the
    groups, which answers "do the groups matter at all?": among all rows; for measures with labels among rows of the
    same label; for gaps within strata within each of them; ties count half, and gaps in AUC, average precision and
    precision are tested by their own intervals. Mean scores and flag rates are tested by chi-squares, which
    small groups do not rule. Holm's method corrects the p-values within each question: do the scores differ; are
    outliers found evenly; do scores differ within strata; among similar rows; which features go with the gap.

    ``mean_score_detectable``, ``flag_rate_detectable`` and the like are the smallest differences between two groups
    that their test finds with 80 % power, on its own and at ``confidence``; their notes say what is held fixed.

    With ``clusters``, each within one group, the bootstrap draws whole clusters, and whole clusters swap groups; within
    a label or a stratum, the part of a cluster that lies in it does, in each by itself. Variances are those between
    clusters, and a group is as large as its number of clusters. Features are not tested.

    Weights, bands of a number, probable groups and clusters that span groups are measured by means over memberships
    with their covariance (`evenout.core.ruler`): intervals follow from it, and tests are Wald's. Quantiles, average
    precision and gaps over all thresholds are left out there.

    An interval that leaves out evenness has a p-value of at most ``1 - confidence``. The converse need not hold with
    three groups or more: a test may tell that groups differ where the size of the largest difference is still open.

    For intervals and tests, but not for the values, more than 4,096 distinct scores are rounded to so many
    levels, finest on top; the time taken then hardly grows with n.

    Examples
    --------
    >>> from evenout.auditing import audit
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(["a", "b"], 200)
    >>> result = audit(rng.normal(size=400) + (groups == "b"), sensitive_features=groups)
    >>> print(result.verdict[0])
    Scores differ between groups: ...
    """
    rules = Groups.read(groups)
    options = {
        "contamination": contamination,
        "threshold": threshold,
        "resamples": resamples,
        "confidence": confidence,
        "length_scale": length_scale,
    }
    check_parameters(options, _RULES)
    plain = int(contamination) if isinstance(contamination, Integral) else float(contamination)
    options |= {"contamination": plain, "random_state": as_seed(random_state)}
    parts = _attributes(sensitive_features, rules)
    if threshold is not None and flags is not None:
        raise InputError("{@threshold} does not go with {@flags}: both say who is flagged; give one")
    beside = {"labels": labels, "label_propensity": label_propensity, "X": X, "given": given, "clusters": clusters}
    beside |= {"sample_weight": sample_weight, "flags": flags}
    taken = [_Taken.of(scores, columns, _own(rules, columns), options, beside) for columns in parts.values()]
    asked = _questions([one.measures for one in taken])
    corrected = _corrected([one.measures for one in taken], asked)
    results = [one.result(measures, asked) for one, measures in zip(taken, corrected, strict=True)]
    return results[0] if parts.keys() == {""} else AttributeAudits(dict(zip(parts, results, strict=True)))


def _attributes(sensitive: Any, rules: Groups) -> dict[str, Any]:
    """The columns of each audit by its name; one audit of all columns has none."""
    import pandas as pd

    single = sensitive is None or isinstance(sensitive, GroupProbabilities) or getattr(sensitive, "ndim", 1) != 2
    if rules.cross is True or single or sensitive.shape[1] == 1:
        return {"": sensitive}
    frame = pd.DataFrame(sensitive)
    require_protected(rules.continuous, [str(name) for name in frame.columns])
    each = {str(name): frame.iloc[:, [place]] for place, name in enumerate(frame.columns)}
    return each | ({" & ".join(each): frame} if rules.cross == "both" else {})


def _own(rules: Groups, columns: Any) -> Groups:
    """The rules of one audit of several: of the numbers those that it has."""
    names = {str(name) for name in getattr(columns, "columns", ())}
    return rules if rules.cross is True else rules.but(continuous=[name for name in rules.continuous if name in names])


@dataclass(frozen=True)
class _Taken:
    """What an audit has measured, before the correction for many tests."""

    inputs: AuditInputs
    settings: Settings
    measures: list[Measure]
    rules: Groups
    options: dict[str, Any]

    @classmethod
    def of(
        cls, scores: Any, sensitive: Any, rules: Groups, options: dict[str, Any], beside: Mapping[str, Any]
    ) -> "_Taken":
        flagged = {name: options[name] for name in ("contamination", "threshold")}
        inputs = read_audit_inputs(scores, sensitive, **beside, **flagged, groups=rules)
        share = flagged_share(options["contamination"], len(inputs.scores) + len(inputs.background))
        drawn = {name: options[name] for name in ("resamples", "length_scale")}
        settings = Settings(share, confidence=float(options["confidence"]), **drawn)
        measures = _measures(inputs, settings, options["random_state"])
        for m in measures:
            if m.measure == "effective_pairs":
                warn_few_pairs(m.value)
        unit = "rows" if beside["clusters"] is None else "clusters"
        small = {name: int(size) for name, size in inputs.grouped.left_out.items()}
        warn_left_out(small, len(inputs.names), rules.min_size, unit)
        return cls(inputs, settings, measures, rules, options)

    def result(self, corrected: list[Measure], asked: Questions) -> AuditResult:
        """With the measures as they are after the correction for all tests that were asked together."""
        return _result(self.inputs, corrected, self.settings, self.rules, self.options, asked)


def _result(
    inputs: AuditInputs,
    measures: list[Measure],
    settings: Settings,
    rules: Groups,
    options: dict[str, Any],
    asked: Questions,
) -> AuditResult:
    flagged_counts = np.rint(inputs.sample.members.weights.T @ inputs.flags.flagged.astype(float)).astype(np.intp)
    left_out = tuple(LeftOut(name, *found) for name, found in inputs.left_out.items())
    noted = [with_note(m, rules.min_size) for m in measures]
    return AuditResult(
        measures=(*noted, *of_left_out(left_out)),
        group_names=inputs.names,
        group_counts=inputs.counts,
        flagged_counts=flagged_counts,
        n_clusters=None if inputs.clusters is None else inputs.units(),
        left_out=left_out,
        settings=options | {"groups": rules.get_params(deep=False)},
        rough=tuple(rough_groups(inputs.names, inputs.counts.tolist(), flagged_counts.tolist())),
        notes=(*inputs.notes, *notes(inputs, settings, map(len, asked), gap_found=gap_found(measures, settings))),
        scores=inputs.scores,
        groups=inputs.codes,
        shared=not inputs.grouped.whole,
        curves=by_ruler.measure_curves(inputs, settings),
        everyone=inputs.everyone,
        flag_words=inputs.flags.words,
        bounded=inputs.bounded,
        weighted=inputs.sample.weight is not None,
        chosen=inputs.labels is not None and inputs.labels.chosen,
        alike_in=() if inputs.alike is None else inputs.alike.named,
    )


def _measures(inputs: AuditInputs, settings: Settings, seed: int) -> list[Measure]:
    """All families, each with random numbers of its own, so that asking for more does not change the rest."""
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)]
    whole, labels, alike = inputs.grouped.whole, inputs.labels, inputs.alike
    score_family = families.score_family if whole else by_ruler.score_family
    measures = score_family(inputs, settings, streams[0])
    if labels is not None and whole and not labels.partial:
        measures += families.label_family(inputs, labels.values.astype(np.intp), settings, streams[1])
    elif labels is not None:
        measures += by_ruler.label_family(inputs, labels, settings)
    if alike is not None and whole and alike.numbers is None:
        measures += families.strata_family(inputs, alike.strata, settings, streams[2])
    elif alike is not None:
        measures += by_ruler.strata_family(inputs, alike, settings, streams[2])
    if inputs.features is not None:
        measures += families.individual_family(inputs, inputs.features, settings, streams[3])
        if gap_found(measures, settings):
            measures += _driver_family(inputs, inputs.features, settings, streams[4])
    return measures


def _driver_family(
    inputs: AuditInputs, features: "pd.DataFrame", settings: Settings, rng: np.random.Generator
) -> list[Measure]:
    codes, G = inputs.codes, len(inputs.names)
    drivers = gap_drivers(
        inputs.scores,
        features,
        codes,
        G,
        resamples=settings.resamples,
        confidence=settings.confidence,
        rng=rng,
        test_rows=sample_rows(codes, G, TEST_ROWS, rng),
        clusters=inputs.clusters,
    )
    return [
        Measure("gap_explained", None, d.feature, d.share, d.low, d.high, d.p, float("nan"), len(codes), "")
        for d in drivers
    ]


def gap_found(measures: list[Measure], settings: Settings) -> bool:
    """Whether there is a gap for features to explain: by permutation, or by Welch's test without permutations."""
    gap = next(m for m in measures if m.measure == "demographic_parity")
    welch = next(m for m in measures if m.measure == "welch_test")
    return (welch.value if np.isnan(gap.p) else gap.p) <= 1 - settings.confidence


def _corrected(audits: Sequence[list[Measure]], asked: Questions) -> list[list[Measure]]:
    """Holm's correction within each set of questions; a measure tested as another shares that one's p-value."""
    adjusted: dict[tuple[int, str, str | None], float] = {}
    for together in asked:
        for (place, m), p in zip(together, holm(np.array([m.p for _, m in together])), strict=True):
            adjusted[place, m.measure, m.detail] = float(p)

    def corrected(place: int, m: Measure) -> Measure:
        key = place, MEANINGS[m.measure].tested_as or m.measure, m.detail
        return replace(m, p_adjusted=adjusted.get(key, float("nan")))

    return [[corrected(place, m) for m in measures] for place, measures in enumerate(audits)]


def _questions(audits: Sequence[list[Measure]]) -> Questions:
    """The tests made, each with the place of its audit, by the question that they are corrected with."""
    asked: dict[str, list[tuple[int, Measure]]] = {}
    for place, measures in enumerate(audits):
        for m in measures:
            if MEANINGS[m.measure].tested_as is None and not np.isnan(m.p):
                asked.setdefault(MEANINGS[m.measure].question, []).append((place, m))
    return list(asked.values())


MetricFunction = Callable[[Any, Any], float]


def metric_functions(scores: Any, *, contamination: float = 0.1) -> dict[str, MetricFunction]:
    """Functions ``metric(y_true, y_pred)``, y_pred being scores, with the flag threshold of *all* the scores.

    ``MetricFrame`` calls a metric with the rows of one group; the threshold must come from all rows, so it is fixed
    here. ``mean_score`` and ``flag_rate`` do not look at ``y_true``: without labels, pass the scores for it too. The
    others are NaN for a group that lacks the rows they need.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher = more outlying.
    contamination : float in (0, 0.5] or int
        Share of the rows that is flagged; a whole number is a count of rows.

    Examples
    --------
    >>> functions = metric_functions([0.1, 0.2, 0.3, 0.9], contamination=0.25)
    >>> functions["flag_rate"]([0, 1], [0.3, 0.9])
    0.5
    """
    values = np.asarray(scores, dtype=float)
    threshold = float(values[who_is_flagged(values, None, contamination).flagged].min(initial=np.inf))

    def rate(y_true: Any, y_pred: Any, label: int) -> float:
        return _mean((np.asarray(y_pred) >= threshold)[np.asarray(y_true) == label])

    def precision(y_true: Any, y_pred: Any) -> float:
        return _mean((np.asarray(y_true) == 1)[np.asarray(y_pred) >= threshold])

    return {
        "mean_score": lambda _, y_pred: _mean(np.asarray(y_pred)),
        "flag_rate": lambda _, y_pred: _mean(np.asarray(y_pred) >= threshold),
        "auc": roc_auc,
        "average_precision": lambda y_true, y_pred: (
            average_precision(y_true, y_pred) if len(np.unique(y_true)) == 2 else float("nan")
        ),
        "true_positive_rate": lambda y_true, y_pred: rate(y_true, y_pred, 1),
        "false_positive_rate": lambda y_true, y_pred: rate(y_true, y_pred, 0),
        "precision": precision,
    }


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
