"""Audit any score: gaps between groups with intervals and tests."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, overload

import numpy as np
import pandas as pd

from evenout.auditing import by_ruler
from evenout.auditing import measures as by_counts
from evenout.auditing.counted import MEANINGS
from evenout.auditing.drivers import MAX_ROWS, TEST_ROWS, gap_drivers, individual_family, pair_limit
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

MIN_FLAGGED = 10  # a flag rate that rests on fewer flagged rows is called rough


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
    options: dict[str, Any] = {
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
    beside = {
        "labels": labels, "label_propensity": label_propensity, "X": X, "given": given, "clusters": clusters,
        "sample_weight": sample_weight, "flags": flags, "contamination": plain, "threshold": threshold,
    }  # fmt: skip
    audits = []
    for columns in parts.values():
        own = rules
        if rules.cross is not True:
            names = {str(name) for name in getattr(columns, "columns", ())}
            own = rules.but(continuous=[name for name in rules.continuous if name in names])
        inputs = read_audit_inputs(scores, columns, **beside, groups=own)
        share = flagged_share(plain, len(inputs.scores) + len(inputs.background))
        settings = by_counts.AuditSettings(share, resamples, float(confidence), length_scale)
        measures = _measures(inputs, settings, options["random_state"])
        for pairs in (m.value for m in measures if m.measure == "effective_pairs"):
            warn_few_pairs(pairs)
        small = {name: size for name, (size, *_) in inputs.left_out.items()}
        warn_left_out(small, len(inputs.names), own.min_size, "rows" if clusters is None else "clusters")
        audits.append((inputs, settings, own, measures))
    corrected, tests = _correct([measures for *_, measures in audits])
    results = [
        _result(inputs, settings, own, measures, options, tests)
        for (inputs, settings, own, _), measures in zip(audits, corrected, strict=True)
    ]
    return results[0] if parts.keys() == {""} else AttributeAudits(dict(zip(parts, results, strict=True)))


def _attributes(sensitive: Any, rules: Groups) -> dict[str, Any]:
    """The columns of each audit by its name; one audit of all columns has none."""
    single = sensitive is None or isinstance(sensitive, GroupProbabilities) or getattr(sensitive, "ndim", 1) != 2
    if rules.cross is True or single or sensitive.shape[1] == 1:
        return {"": sensitive}
    frame = pd.DataFrame(sensitive)
    require_protected(rules.continuous, [str(name) for name in frame.columns])
    each = {str(name): frame.iloc[:, [j]] for j, name in enumerate(frame.columns)}
    return each | ({" & ".join(each): frame} if rules.cross == "both" else {})


def _result(
    inputs: AuditInputs,
    settings: by_counts.AuditSettings,
    rules: Groups,
    measures: list[Measure],
    options: dict[str, Any],
    tests: list[int],
) -> AuditResult:
    """The result, with the measures as they are after the correction for all tests that were asked together."""
    flagged_counts = np.rint(inputs.sample.members.weights.T @ inputs.flags.flagged.astype(float)).astype(np.intp)
    left_out = tuple(LeftOut(name, rows, flagged) for name, (_, rows, flagged) in inputs.left_out.items())
    noted = []
    for m in measures:  # a measure that rests on few rows says so
        flagged = round(m.value * m.n) if m.measure == "flag_rate" else MIN_FLAGGED
        said = (
            m.note,
            MEANINGS[m.measure].note,
            f"only {m.n} rows" if m.n < rules.min_size else "",
            f"only {flagged} flagged" if flagged < MIN_FLAGGED else "",
        )
        noted.append(replace(m, note="; ".join(filter(None, said))))
    noted += [
        Measure(f"left_out_{name}", group.name, None, float(value), n=group.rows, note=TOO_FEW)
        for group in left_out
        for name, value in (("rows", group.rows), ("flagged", group.flagged))
    ]
    each = zip(inputs.names, inputs.counts.tolist(), flagged_counts.tolist(), strict=True)
    return AuditResult(
        measures=tuple(noted),
        group_names=inputs.names,
        group_counts=inputs.counts,
        flagged_counts=flagged_counts,
        n_clusters=None if inputs.sample.clusters is None else inputs.units(),
        left_out=left_out,
        settings=options | {"groups": rules.get_params(deep=False)},
        rough=tuple(f"{name!r} ({n:,} rows, {k:,} flagged)" for name, n, k in each if k < MIN_FLAGGED),
        notes=(*inputs.notes, *notes(inputs, settings, tests, gap_found=gap_found(measures, settings))),
        scores=inputs.scores,
        groups=inputs.sample.members.codes,
        shared=not inputs.whole,
        curves=by_ruler.measure_curves(inputs, settings),
        everyone=inputs.everyone,
        flag_words=inputs.flags.words,
        bounded=inputs.bounded,
        weighted=inputs.sample.weight is not None,
        chosen=inputs.labels is not None and inputs.labels.chosen,
        alike_in=() if inputs.alike is None else inputs.alike.numbers_named,
    )


def notes(
    inputs: AuditInputs, settings: by_counts.AuditSettings, tests: Iterable[int], *, gap_found: bool
) -> list[str]:
    """Say what was rounded, sampled or could not be shown; ``tests`` are the numbers that are corrected together."""
    n, levels, limit = len(inputs.scores), len(np.unique(inputs.scores)), pair_limit(len(inputs.names))
    labels, probable, clustered = inputs.labels, inputs.probable, inputs.sample.clusters is not None
    vague = probable is not None and not probable.sufficient
    how = "by chances that are unknown" if labels and labels.chosen else "each counted by one over its chance"
    labelled = 0 if labels is None else int((~np.isnan(labels.values)).sum())
    with_features, few = inputs.features is not None, 1 - settings.confidence
    said = (
        (bool(inputs.curves), f"bands of {', '.join(map(repr, inputs.curves))} overlap: a row between two counts in "
         "both, by how near it is"),
        (bool(inputs.curves),
         "squared gaps between bands are the share of the scores' variance that lies between them"),
        (probable is not None and not vague,
         "groups are known by probability, and taken at your word to know all that the score uses"),
        (vague, "" if probable is None else probable_words(probable.bound())),
        (vague, "intervals of probable groups hold all that the probabilities leave open, and nothing is tested"),
        (inputs.sample.weight is not None, "rows count by their weights; counts of rows do not"),
        (labels is not None and labels.partial, f"{labelled:,} of {n:,} rows have a label, {how}"),
        (levels == 1, "all scores are equal: there is nothing to compare"),
        (levels > MAX_LEVELS and inputs.whole,
         f"intervals and tests use the scores rounded to {MAX_LEVELS:,} levels at most"),
        (with_features and n > limit,
         f"individual unfairness: the value is of {min(n, MAX_ROWS):,} rows, the interval of {limit:,}"),
        (with_features and not gap_found,
         "no gap in mean scores can be told from noise, so no features behind it are listed"),
        (with_features and gap_found and clustered,
         "features are not tested where rows come in clusters: their intervals say how sure they are"),
        (with_features and gap_found and not clustered and n > TEST_ROWS,
         f"tests of single features use {TEST_ROWS:,} rows"),
        *((inputs.whole and asked / (1 + settings.resamples) > few,
           f"{settings.resamples} permutations are too few for {asked} tests: no corrected p-value can be small; "
           f"set resamples={int(np.ceil(asked / few))} or more") for asked in tests),
    )  # fmt: skip
    return [words for applies, words in said if applies]


def _measures(inputs: AuditInputs, settings: by_counts.AuditSettings, seed: int) -> list[Measure]:
    """All families, each with random numbers of its own, so that asking for more does not change the rest."""
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)]
    whole, labels, alike = inputs.whole, inputs.labels, inputs.alike
    measures = (by_counts if whole else by_ruler).score_family(inputs, settings, streams[0])
    if labels is not None and whole and not labels.partial:
        measures += by_counts.label_family(inputs, labels.values.astype(np.intp), settings, streams[1])
    elif labels is not None:
        measures += by_ruler.label_family(inputs, labels, settings)
    if alike is not None:
        family = by_counts if whole and alike.numbers is None else by_ruler
        measures += family.strata_family(inputs, alike, settings, streams[2])
    if inputs.features is not None:
        measures += individual_family(inputs, inputs.features, settings, streams[3])
        if gap_found(measures, settings):
            measures += gap_drivers(inputs, inputs.features, settings, streams[4])
    return measures


def gap_found(measures: list[Measure], settings: by_counts.AuditSettings) -> bool:
    """Whether there is a gap for features to explain: by permutation, or by Welch's test without permutations."""
    gap, welch = (next(m for m in measures if m.measure == name) for name in ("demographic_parity", "welch_test"))
    return (welch.value if np.isnan(gap.p) else gap.p) <= 1 - settings.confidence


def _correct(audits: Sequence[list[Measure]]) -> tuple[list[list[Measure]], list[int]]:
    """Holm's correction within each question, over all audits together, and the number of tests of each.

    A measure tested as another shares that one's p-value.
    """
    asked: dict[str, list[tuple[int, Measure]]] = {}
    for audited, measures in enumerate(audits):
        for m in measures:
            if MEANINGS[m.measure].tested_as is None and not np.isnan(m.p):
                asked.setdefault(MEANINGS[m.measure].question, []).append((audited, m))
    adjusted: dict[tuple[int, str, str | None], float] = {}
    for together in asked.values():
        for (audited, m), p in zip(together, holm(np.array([m.p for _, m in together])), strict=True):
            adjusted[audited, m.measure, m.detail] = float(p)
    corrected = [
        [
            replace(m, p_adjusted=adjusted.get((audited, MEANINGS[m.measure].tested_as or m.measure, m.detail), np.nan))
            for m in measures
        ]
        for audited, measures in enumerate(audits)
    ]
    return corrected, [len(together) for together in asked.values()]


def metric_functions(scores: Any, *, contamination: float = 0.1) -> dict[str, Callable[[Any, Any], float]]:
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

    def mean(values: Any) -> float:
        return float(np.mean(values)) if len(values) else float("nan")

    return {
        "mean_score": lambda _, y_pred: mean(np.asarray(y_pred)),
        "flag_rate": lambda _, y_pred: mean(np.asarray(y_pred) >= threshold),
        "auc": roc_auc,
        "average_precision": lambda y_true, y_pred: (
            average_precision(y_true, y_pred) if len(np.unique(y_true)) == 2 else float("nan")
        ),
        "true_positive_rate": lambda y_true, y_pred: mean((np.asarray(y_pred) >= threshold)[np.asarray(y_true) == 1]),
        "false_positive_rate": lambda y_true, y_pred: mean((np.asarray(y_pred) >= threshold)[np.asarray(y_true) == 0]),
        "precision": lambda y_true, y_pred: mean((np.asarray(y_true) == 1)[np.asarray(y_pred) >= threshold]),
    }
