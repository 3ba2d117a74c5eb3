"""The audit itself: read, measure, resample, correct for many tests, say what to keep in mind."""

from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.auditing.drivers import TEST_ROWS, gap_drivers
from evenout.auditing.everyone import Everyone
from evenout.auditing.families import individual_family, label_family, score_family, strata_family
from evenout.auditing.individual import MAX_ROWS, pair_limit, sample_rows
from evenout.auditing.inference import holm
from evenout.auditing.inputs import AuditInputs, read_audit_inputs
from evenout.auditing.meanings import MEANINGS
from evenout.auditing.result import AuditResult, LeftOut, Measure
from evenout.auditing.summary import Settings
from evenout.auditing.tables import MAX_LEVELS
from evenout.auditing.words import TOO_FEW
from evenout.core.flags import flagged_share
from evenout.core.similarity import DEFAULT_LENGTH, LengthScale, warn_few_pairs
from evenout.inputs.groups import warn_left_out
from evenout.inputs.parameters import CONFIDENCE, ENSEMBLE, check_parameters, integer
from evenout.inputs.rows import as_seed

if TYPE_CHECKING:
    import pandas as pd

MIN_FLAGGED = 10  # a flag rate that rests on fewer flagged rows is called rough

_SHARED = ("contamination", "length_scale", "min_group_size", "small_groups", "unknown_groups")
_RULES = {name: ENSEMBLE[name] for name in _SHARED} | {
    "n_bootstrap": integer(0),
    "n_permutations": integer(0),
    "confidence": CONFIDENCE,
}


def audit(
    scores: Any,
    *,
    sensitive_features: Any,
    y: Any = None,
    X: Any = None,
    given: Any = None,
    clusters: Any = None,
    contamination: float | int = 0.1,
    n_bootstrap: int = 1000,
    n_permutations: int = 1000,
    confidence: float = 0.95,
    length_scale: LengthScale = DEFAULT_LENGTH,
    min_group_size: int = 30,
    small_groups: str = "leave_out",
    unknown_groups: str = "error",
    random_state: Any = 0,
) -> AuditResult:
    """Audit any outlier score for gaps between groups, with intervals and tests.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher = more outlying.
    sensitive_features : array, series or frame of shape (n,) or (n, c)
        The group of each row; several columns make intersectional groups.
    y : array of shape (n,), optional
        Known labels, 1 for outliers, 0 for inliers: adds AUC, average precision, rates and precision by group.
    X : array or frame of shape (n, d), optional
        Features without the protected attribute: adds individual unfairness, and which features go with the gap.
    given : array, series or frame of shape (n,) or (n, c), optional
        Columns that may justify a difference: adds gaps among rows that are alike in them. Numbers with more than
        five values are cut at their quintiles.
    clusters : array of shape (n,), optional
        Rows with the same value belong together, such as several rows of one person; all must be of one group.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the rows that is flagged; a whole number is a count of rows, such as the 200 that can be looked at.
    n_bootstrap, n_permutations : int, default=1000
        0 leaves out intervals, or tests.
    confidence : float in [0.5, 1), default=0.95
        Of the intervals; tests reject at ``1 - confidence``.
    length_scale : "minmax", float or ("median", factor), default=("median", 0.1)
        With ``X``: the distance at which rows stop being similar, as in `evenout.FairOutlierEnsemble`.
    min_group_size : int, default=30
        Groups with fewer rows are small.
    small_groups : {"leave_out", "merge", "error"}, default="leave_out"
        Small groups take no part in comparisons, tests and intervals, and are shown apart, with a warning; or they are
        merged into one; or they are an error. Fewer than two groups that can be measured are an error.
    unknown_groups : {"error", "ignore"}, default="error"
        Rows whose group is missing: refuse them, or do not compare them. Like rows of small groups they are still
        among all rows when a share of these is flagged.
    random_state : int, RandomState or None, default=0

    Returns
    -------
    AuditResult

    Notes
    -----
    Intervals come from a bootstrap within each group; no test has a say in them. p-values come from shuffling the
    groups, which answers "do the groups matter at all?": among all rows; for measures with labels among rows of the
    same label; for gaps within strata within each of them. Mean scores and flag rates are tested by chi-squares, which
    small groups do not rule. Holm's method corrects the p-values within each question: do the scores differ; are
    outliers found evenly; do scores differ within strata; among similar rows; which features go with the gap.

    ``mean_score_detectable``, ``flag_rate_detectable`` and the like are the smallest differences between two groups
    that their test finds with 80 % power, on its own and at ``confidence``; their notes say what is held fixed.

    With ``clusters``, the bootstrap draws whole clusters, and whole clusters swap groups; within a label or a stratum,
    the part of a cluster that lies in it does, in each by itself. Variances are those between clusters, and
    a group is as large as its number of clusters. A cluster of several groups is an error. Features are not tested.

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
    options = {
        "contamination": contamination,
        "n_bootstrap": n_bootstrap,
        "n_permutations": n_permutations,
        "confidence": confidence,
        "length_scale": length_scale,
        "min_group_size": min_group_size,
        "small_groups": small_groups,
        "unknown_groups": unknown_groups,
    }
    check_parameters(options, _RULES)
    inputs = read_audit_inputs(
        scores,
        sensitive_features,
        y,
        X,
        given,
        clusters,
        min_group_size=min_group_size,
        small_groups=small_groups,
        unknown_groups=unknown_groups,
    )
    share = flagged_share(contamination, len(inputs.scores) + len(inputs.background))
    settings = Settings(share, n_bootstrap, n_permutations, float(confidence), length_scale)
    seed = as_seed(random_state)
    measures = _corrected(_measures(inputs, settings, seed))
    for m in measures:
        if m.measure == "effective_pairs":
            warn_few_pairs(m.value)
    warn_left_out(inputs.groups, min_group_size, "rows" if clusters is None else "clusters")
    plain = int(contamination) if isinstance(contamination, Integral) else float(contamination)
    return _result(inputs, measures, settings, {**options, "contamination": plain, "random_state": seed})


def _result(inputs: AuditInputs, measures: list[Measure], settings: Settings, options: dict[str, Any]) -> AuditResult:
    threshold = inputs.threshold(settings.share)
    values, attributes, strata = inputs.everyone
    flagged = inputs.groups.codes[inputs.scores > threshold]
    flagged_counts = np.bincount(flagged, minlength=len(inputs.groups.labels))
    left_out = tuple(LeftOut(name, len(y), int((y > threshold).sum())) for name, y in inputs.left_out.items())
    noted = [_noted(m, options["min_group_size"]) for m in measures]
    return AuditResult(
        measures=(*noted, *_of_left_out(left_out)),
        group_names=inputs.groups.labels,
        group_counts=inputs.groups.counts,
        flagged_counts=flagged_counts,
        n_clusters=None if inputs.clusters is None else inputs.units(),
        left_out=left_out,
        settings=options,
        rough=tuple(_rough(inputs, flagged_counts.tolist())),
        notes=(*inputs.notes, *_notes(inputs, measures, settings)),
        scores=inputs.scores,
        groups=inputs.groups.codes,
        everyone=Everyone(values, values > threshold, attributes, strata, inputs.clusters is not None),
    )


def _measures(inputs: AuditInputs, settings: Settings, seed: int) -> list[Measure]:
    """All families, each with random numbers of its own, so that asking for more does not change the rest."""
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)]
    measures = score_family(inputs, settings, streams[0])
    if inputs.labels is not None:
        measures += label_family(inputs, inputs.labels, settings, streams[1])
    if inputs.strata is not None:
        measures += strata_family(inputs, inputs.strata, settings, streams[2])
    if inputs.features is not None:
        measures += individual_family(inputs, inputs.features, settings, streams[3])
        if _gap_found(measures, settings):
            measures += _driver_family(inputs, inputs.features, settings, streams[4])
    return measures


def _driver_family(
    inputs: AuditInputs, features: "pd.DataFrame", settings: Settings, rng: np.random.Generator
) -> list[Measure]:
    codes, G = inputs.groups.codes, len(inputs.groups.labels)
    drivers = gap_drivers(
        inputs.scores,
        features,
        codes,
        G,
        n_bootstrap=settings.n_bootstrap,
        n_permutations=settings.n_permutations,
        confidence=settings.confidence,
        rng=rng,
        test_rows=sample_rows(codes, G, TEST_ROWS, rng),
        clusters=inputs.clusters,
    )
    return [
        Measure("gap_explained", None, d.feature, d.share, d.low, d.high, d.p, float("nan"), len(codes), "")
        for d in drivers
    ]


def _gap_found(measures: list[Measure], settings: Settings) -> bool:
    """Whether there is a gap for features to explain: by permutation, or by Welch's test without permutations."""
    gap = next(m for m in measures if m.measure == "demographic_parity")
    welch = next(m for m in measures if m.measure == "welch_test")
    return (welch.value if np.isnan(gap.p) else gap.p) <= 1 - settings.confidence


def _corrected(measures: list[Measure]) -> list[Measure]:
    """Holm's correction within each set of questions; a measure tested as another shares that one's p-value."""
    adjusted: dict[tuple[str, str | None], float] = {}
    for asked in _questions(measures):
        for m, p in zip(asked, holm(np.array([m.p for m in asked])), strict=True):
            adjusted[m.measure, m.detail] = float(p)
    return [
        replace(m, p_adjusted=adjusted.get((MEANINGS[m.measure].tested_as or m.measure, m.detail), float("nan")))
        for m in measures
    ]


def _questions(measures: list[Measure]) -> list[list[Measure]]:
    """The tests made, by the question that they are corrected with."""
    asked: dict[str, list[Measure]] = {}
    for m in measures:
        if MEANINGS[m.measure].tested_as is None and not np.isnan(m.p):
            asked.setdefault(MEANINGS[m.measure].question, []).append(m)
    return list(asked.values())


def _noted(m: Measure, min_group_size: int) -> Measure:
    """The measure with a warning where it rests on few rows."""
    notes = [note for note in (m.note, MEANINGS[m.measure].note) if note]
    if m.n < min_group_size:
        notes.append(f"only {m.n} rows")
    if m.measure == "flag_rate" and round(m.value * m.n) < MIN_FLAGGED:
        notes.append(f"only {round(m.value * m.n)} flagged")
    return replace(m, note="; ".join(notes))


def _of_left_out(groups: tuple[LeftOut, ...]) -> list[Measure]:
    """Rows and flagged rows of groups that are too small for anything else."""
    nan = float("nan")
    return [
        Measure(name, group.name, None, float(value), nan, nan, nan, nan, group.rows, TOO_FEW)
        for group in groups
        for name, value in (("left_out_rows", group.rows), ("left_out_flagged", group.flagged))
    ]


def _rough(inputs: AuditInputs, flagged: list[int]) -> list[str]:
    """Groups whose flag rates rest on few flagged rows, in words."""
    return [
        f"{name!r} ({n:,} rows, {k:,} flagged)"
        for name, n, k in zip(inputs.groups.labels, inputs.groups.counts.tolist(), flagged, strict=True)
        if k < MIN_FLAGGED
    ]


def _notes(inputs: AuditInputs, measures: list[Measure], settings: Settings) -> list[str]:
    """What was rounded, sampled or could not be shown."""
    n, notes = len(inputs.scores), []
    levels = len(np.unique(inputs.scores))
    if levels == 1:
        notes.append("all scores are equal: there is nothing to compare")
    if levels > MAX_LEVELS:
        notes.append(f"intervals and tests use the scores rounded to {MAX_LEVELS:,} levels at most")
    if inputs.features is not None:
        limit = pair_limit(len(inputs.groups.labels))
        if n > limit:
            notes.append(
                f"individual unfairness: the value is of {min(n, MAX_ROWS):,} rows, interval and test of {limit:,}"
            )
        if not _gap_found(measures, settings):
            notes.append("no gap in mean scores can be told from noise, so no features behind it are listed")
        elif inputs.clusters is not None:
            notes.append("features are not tested where rows come in clusters: their intervals say how sure they are")
        elif n > TEST_ROWS:
            notes.append(f"tests of single features use {TEST_ROWS:,} rows")
    for asked in _questions(measures):
        least = len(asked) / (1 + settings.n_permutations)
        if least > 1 - settings.confidence:
            enough = int(np.ceil(len(asked) / (1 - settings.confidence)))
            notes.append(
                f"{settings.n_permutations} permutations are too few for {len(asked)} tests: no corrected p-value "
                f"can be small; set n_permutations={enough} or more"
            )
    return notes
