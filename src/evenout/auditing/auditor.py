"""The audit itself: read, measure, resample, correct for many tests, say what to keep in mind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from evenout.auditing.attributes import AttributeAudits
from evenout.auditing.drivers import TEST_ROWS, gap_drivers
from evenout.auditing.everyone import Everyone
from evenout.auditing.families import individual_family, label_family, score_family, strata_family
from evenout.auditing.individual import sample_rows
from evenout.auditing.inputs import AuditInputs, read_audit_inputs
from evenout.auditing.meanings import MEANINGS
from evenout.auditing.notes import notes, of_left_out, rough_groups, with_note
from evenout.auditing.result import AuditResult, LeftOut, Measure
from evenout.auditing.soft import expected_counts, measure_curves, soft_family
from evenout.auditing.summary import Settings
from evenout.core.flags import flagged_share
from evenout.core.intervals import holm
from evenout.core.similarity import DEFAULT_LENGTH, LengthScale, warn_few_pairs
from evenout.core.types import IntArray
from evenout.inputs.coder import require_protected
from evenout.inputs.groups import warn_left_out
from evenout.inputs.parameters import CONFIDENCE, ENSEMBLE, check_parameters, integer
from evenout.inputs.probable import GroupProbabilities
from evenout.inputs.rows import as_seed

if TYPE_CHECKING:
    import pandas as pd

# Tests that are corrected together, each with the place of its audit.
Questions: TypeAlias = list[list[tuple[int, Measure]]]

_SHARED = (
    "contamination", "length_scale", "continuous", "bands", "intersections", "min_group_size", "small_groups",
    "unknown_groups",
)  # fmt: skip
_RULES = {name: ENSEMBLE[name] for name in _SHARED} | {
    "n_bootstrap": integer(0),
    "n_permutations": integer(0),
    "confidence": CONFIDENCE,
}


@overload
def audit(
    scores: Any, *, sensitive_features: Any, intersections: Literal[True] = True, **options: Any
) -> AuditResult: ...
@overload
def audit(
    scores: Any, *, sensitive_features: Any, intersections: bool | str, **options: Any
) -> AuditResult | AttributeAudits: ...
def audit(  # type: ignore[misc]  # the overloads leave the names of options to it
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
    continuous: Sequence[str] = (),
    bands: int = 5,
    intersections: bool | str = True,
    min_group_size: int = 30,
    small_groups: str = "leave_out",
    unknown_groups: str = "error",
    random_state: Any = 0,
) -> "AuditResult | AttributeAudits":
    """Audit any outlier score for gaps between groups, with intervals and tests.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher = more outlying.
    sensitive_features : array, series or frame of shape (n,) or (n, c)
        The group of each row; several columns make intersectional groups. Or the `evenout.GroupProbabilities` of each
        row, without ``y``, ``X`` and ``given``.
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
    continuous : tuple of str, default=()
        Protected columns that are numbers, such as age, as in `evenout.FairOutlierEnsemble`: overlapping bands at their
        quantiles are compared, and ``curves`` has mean score and flag rate against the number.
    bands : int, default=5
        How many bands a number has.
    intersections : True, False or "both", default=True
        Several protected columns: compare each combination of their values, or the values of each column by itself, or
        both. Other than True there is an audit for each, corrected for many tests together.
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
    AuditResult, or AttributeAudits with one for each protected column

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

    Bands of a number and probable groups share rows. Their means and rates are those of all rows, by how much a row
    belongs to the group; intervals are drawn from the joint distribution of these means, and tests are Wald's. What
    needs to know the group of each row, as measures with labels and within strata, goes by the band nearest to the row.

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
        "continuous": continuous,
        "bands": bands,
        "intersections": intersections,
        "min_group_size": min_group_size,
        "small_groups": small_groups,
        "unknown_groups": unknown_groups,
    }
    check_parameters(options, _RULES)
    plain = int(contamination) if isinstance(contamination, Integral) else float(contamination)
    options |= {"contamination": plain, "continuous": tuple(continuous), "random_state": as_seed(random_state)}
    parts = _attributes(sensitive_features, intersections, continuous)
    beside = {"y": y, "X": X, "given": given, "clusters": clusters}
    taken = [_Taken.of(scores, columns, options | _own(options, columns), beside) for columns in parts.values()]
    asked = _questions([one.measures for one in taken])
    corrected = _corrected([one.measures for one in taken], asked)
    results = [one.result(measures, asked) for one, measures in zip(taken, corrected, strict=True)]
    return results[0] if parts.keys() == {""} else AttributeAudits(dict(zip(parts, results, strict=True)))


def _attributes(sensitive: Any, intersections: bool | str, continuous: Sequence[str]) -> dict[str, Any]:
    """The columns of each audit by its name; one audit of all columns has none."""
    import pandas as pd

    single = sensitive is None or isinstance(sensitive, GroupProbabilities) or getattr(sensitive, "ndim", 1) != 2
    if intersections is True or single or sensitive.shape[1] == 1:
        return {"": sensitive}
    frame = pd.DataFrame(sensitive)
    require_protected(continuous, [str(name) for name in frame.columns])
    each = {str(name): frame.iloc[:, [place]] for place, name in enumerate(frame.columns)}
    return each | ({" & ".join(each): frame} if intersections == "both" else {})


def _own(options: Mapping[str, Any], columns: Any) -> dict[str, Any]:
    """Of the numbers those that an audit has."""
    names = {str(name) for name in getattr(columns, "columns", ())}
    several = options["intersections"] is not True
    return {"continuous": tuple(name for name in options["continuous"] if name in names)} if several else {}


@dataclass(frozen=True)
class _Taken:
    """What an audit has measured, before the correction for many tests."""

    inputs: AuditInputs
    settings: Settings
    measures: list[Measure]
    options: dict[str, Any]

    @classmethod
    def of(cls, scores: Any, sensitive: Any, options: dict[str, Any], beside: Mapping[str, Any]) -> "_Taken":
        rules = {name: options[name] for name in ("min_group_size", "small_groups", "unknown_groups")}
        numbers = {name: options[name] for name in ("continuous", "bands")}
        inputs = read_audit_inputs(scores, sensitive, **beside, **numbers, **rules)
        share = flagged_share(options["contamination"], len(inputs.scores) + len(inputs.background))
        drawn = {name: options[name] for name in ("n_bootstrap", "n_permutations", "length_scale")}
        settings = Settings(share, confidence=float(options["confidence"]), **drawn)
        measures = _measures(inputs, settings, options["random_state"])
        for m in measures:
            if m.measure == "effective_pairs":
                warn_few_pairs(m.value)
        unit = "rows" if beside["clusters"] is None else "clusters"
        warn_left_out(inputs.groups, options["min_group_size"], unit)
        return cls(inputs, settings, measures, options)

    def result(self, corrected: list[Measure], asked: Questions) -> AuditResult:
        """With the measures as they are after the correction for all tests that were asked together."""
        return _result(self.inputs, corrected, self.settings, self.options, asked)


def _everyone(inputs: AuditInputs, threshold: float) -> Everyone | None:
    """All rows for tables, unless groups are known by probability: nobody can be counted then."""
    if inputs.everyone is None or (inputs.soft is not None and inputs.soft.probable is not None):
        return None
    scores, attributes, strata = inputs.everyone
    return Everyone(scores, scores > threshold, attributes, strata, inputs.clusters is not None)


def _result(
    inputs: AuditInputs, measures: list[Measure], settings: Settings, options: dict[str, Any], asked: Questions
) -> AuditResult:
    threshold = inputs.threshold(settings.share)
    names, counts, flagged_counts = _counts(inputs, settings.share)
    left_out = tuple(LeftOut(name, len(y), int((y > threshold).sum())) for name, y in inputs.left_out.items())
    noted = [with_note(m, options["min_group_size"]) for m in measures]
    return AuditResult(
        measures=(*noted, *of_left_out(left_out)),
        group_names=names,
        group_counts=counts,
        flagged_counts=flagged_counts,
        n_clusters=None if inputs.clusters is None else inputs.units(),
        left_out=left_out,
        settings=options,
        rough=tuple(rough_groups(names, counts.tolist(), flagged_counts.tolist())),
        notes=(*inputs.notes, *notes(inputs, settings, map(len, asked), gap_found=gap_found(measures, settings))),
        scores=inputs.scores,
        groups=inputs.groups.codes,
        shared=inputs.soft is not None,
        curves=() if inputs.soft is None else measure_curves(inputs, inputs.soft, settings),
        everyone=_everyone(inputs, threshold),
    )


def _counts(inputs: AuditInputs, share: float) -> tuple[tuple[str, ...], IntArray, IntArray]:
    """Names, rows and flagged rows of the groups; those expected, where groups share rows."""
    if inputs.soft is not None:
        rows, flagged = (np.rint(found).astype(np.intp) for found in expected_counts(inputs, inputs.soft, share))
        return inputs.soft.names, rows, flagged
    flagged = inputs.groups.codes[inputs.scores > inputs.threshold(share)]
    return inputs.groups.labels, inputs.groups.counts, np.bincount(flagged, minlength=len(inputs.groups.labels))


def _measures(inputs: AuditInputs, settings: Settings, seed: int) -> list[Measure]:
    """All families, each with random numbers of its own, so that asking for more does not change the rest."""
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)]
    if inputs.soft is not None:
        measures = soft_family(inputs, inputs.soft, settings, streams[0])
    else:
        measures = score_family(inputs, settings, streams[0])
    if inputs.labels is not None:
        measures += label_family(inputs, inputs.labels, settings, streams[1])
    if inputs.strata is not None:
        measures += strata_family(inputs, inputs.strata, settings, streams[2])
    if inputs.features is not None:
        measures += individual_family(inputs, inputs.features, settings, streams[3])
        if gap_found(measures, settings):
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
