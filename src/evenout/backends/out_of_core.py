"""The fair ensemble fitted over partitions of rows.

Detectors are fitted on a reference of rows (`reference`); every partition is scored once (`passes`); scaling, row
weights, cells and thresholds come from sums and sketches over all partitions. From there on everything is as in
memory: the same path, the same choice of alpha. One partition per worker is in memory at a time, whatever the number
of rows.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout.backends.dealing import Folds
from evenout.backends.partitions import Engine
from evenout.backends.passes import RawScores, Scorer, Walks, score_all, score_anew
from evenout.backends.reference import Reference, Settled, draw_reference, settle_groups, survey_rows
from evenout.core.cells import Cells, CrossFit
from evenout.core.combine import learn_combination
from evenout.core.flags import flagged_share
from evenout.core.folds import N_FOLDS, assign_folds
from evenout.core.pairwise import PairSums
from evenout.core.scaling import Scaling, learn_scaling
from evenout.core.similarity import warn_few_pairs
from evenout.core.sketch import CAPACITY
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.pool import FittedPool, fit_pool, standard_units
from evenout.fitting import FitResult
from evenout.pairs import Likeness
from evenout.request import FlagRows, Request
from evenout.rows import as_seed, column_names, own_form_of
from evenout.scores import ScoreModel, warn_constant

REFERENCE_SIZE = 100_000
EXACT_ROWS = 1_000_000

_DEALT = (
    10_000  # rows of a group up to which they are dealt into folds one by one, however many there are in all
)
_AS_IS = learn_scaling("minmax", np.array([[0.0], [1.0]]))

Estimator = TypeVar("Estimator", bound=Any)


def fit_partitions(
    estimator: Estimator,
    engine: Engine,
    *,
    reference_size: int = REFERENCE_SIZE,
    exact_rows: int = EXACT_ROWS,
    scores_to: Path | None = None,
) -> Estimator:
    """Fit a `FairOutlierEnsemble` on all rows of an engine's partitions.

    Parameters
    ----------
    estimator : FairOutlierEnsemble
        Its parameters mean what they mean in memory; ``n_jobs`` is for the detectors' fit on the reference.
    engine : Engine
    reference_size : int
        Rows that the detectors are fitted on, drawn by content, stratified by group; all rows if there are no more.
    exact_rows : int
        Up to so many rows, the ranks behind beta and the folds are those of an in-memory fit. Beyond, ranks come from a
        sketch, and ``rank_error_`` is what they may be off, as a share of the rows.
    scores_to : Path, optional
        An empty folder, reachable by all workers, for one file of scores per partition (`parquet.ScoresFile`).

    Returns
    -------
    the estimator, with its learned attributes and three more
        ``reference_`` has the rows of the reference, and ``outlier_scores_`` and ``target_`` are theirs;
        ``flag_rates_``, (G, 2), the share of each group that the base and the fair score flag among all rows;
        ``rank_error_`` is explained above.

    Notes
    -----
    With the reference and ``exact_rows`` at least as large as the data, weights for a given alpha agree with an
    in-memory fit up to rounding, for detectors that score a training row as in training (all that come with this
    package). What is stated of unseen rows, and the alpha that a request takes, rests on rows that the weights alone
    have not seen (``path_.cross.refitted`` is False): detectors, scaling and target are learnt once, on all.
    Individual fairness compares the rows of the reference: ``path_.standard_error`` has the error of taking these rows
    for all, ``pair_error_`` that of taking a sample of their pairs. A function that gives a form of the user's own is
    called with the reference. With ``device="cuda"`` the detectors are fitted there;
    workers score on their cores.
    """
    _check(estimator, reference_size)
    request = Request.read(estimator.get_params(deep=False))
    seed = as_seed(estimator.random_state)
    start = _start(estimator, engine, reference_size, seed)
    labels, n_rows = start.groups.labels, int(start.groups.counts.sum())
    exact, contamination = n_rows <= exact_rows, flagged_share(estimator.contamination, n_rows)
    with engine.scratch() as scratch:
        scorer = Scorer(start.pool, start.groups.codes, engine.n_threads, scratch)
        raw, kept = score_all(engine, scorer)
        sums = _gather(estimator, raw, kept, start, request.fairness, exact=exact, seed=seed)
        path = request.path(sums.cross)
        S, t = sums.S, sums.model.base(sums.S)
        choice = request.choose(path, FlagRows(S, t, start.reference.codes, sums.folds)).announced()
        mixture = path.mixture(choice.alpha)
        fair = kept.fair_scores(sums.model, mixture, None if exact else CAPACITY)
        threshold = fair.quantile(1.0 - contamination)
        above = sums.base_threshold, threshold
        counts = kept.flag_rows(sums.model, mixture, above, labels, scores_to)[:-1]
    result = FitResult(
        sums.model, path, choice, t, mixture.apply(S, t), threshold, sums.pair_error, sums.effective_pairs
    )
    estimator._store(result)
    estimator.group_names_, estimator.group_counts_ = labels, start.groups.counts[:-1]
    estimator.left_out_groups_ = start.groups.left_out
    estimator.reference_, estimator.rank_error_ = start.reference, sums.rank_error
    estimator.flag_rates_ = counts[:, 1:] / counts[:, :1]
    validate_data(estimator, engine.header, skip_check_array=True)
    return estimator


def score_partitions(estimator: Any, engine: Engine, scores_to: Path) -> IntArray:
    """Write the scores of all rows, new ones too, into a folder: one file per partition (`parquet.ScoresFile`).

    Returns
    -------
    array of shape (G + 1, 2)
        Rows and flagged rows of each group of the fit; the last entry is for rows of other groups, or of none.
    """
    check_is_fitted(estimator)
    validate_data(estimator, engine.header, reset=False, skip_check_array=True)
    names, model = estimator.group_names_, estimator._scores
    scorer = Scorer(model.pool, {name: code for code, name in enumerate(names)}, engine.n_threads, Path)
    above = np.inf, -estimator.offset_
    return score_anew(engine, scorer).flag_rows(model, estimator._mixture, above, names, scores_to)[:, ::2]


@dataclass(frozen=True)
class _Start:
    """Groups of all rows, and detectors fitted on the reference."""

    groups: Settled
    reference: Reference
    pool: FittedPool


@dataclass(frozen=True)
class _Sums:
    """Model, sums and base threshold of all rows; S (m, k) and folds (m,) of the reference; errors."""

    model: ScoreModel
    cross: CrossFit
    S: FloatArray
    folds: IntArray
    base_threshold: float
    rank_error: float
    pair_error: float
    effective_pairs: float


def _start(estimator: Any, engine: Engine, reference_size: int, seed: int) -> _Start:
    """Check and count all rows, draw the reference, fit the detectors."""
    survey = survey_rows(
        engine, unknown_groups=estimator.unknown_groups, reference_size=reference_size, seed=seed
    )
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} row(s) in all partitions; at least 2 are needed")
    groups = settle_groups(
        survey, min_group_size=estimator.min_group_size, small_groups=estimator.small_groups
    )
    reference = draw_reference(engine, survey, groups, reference_size=reference_size, seed=seed)
    if estimator.flag_rate_ratio is not None and not reference.complete:
        raise ValueError(
            f"flag_rate_ratio={estimator.flag_rate_ratio:g} is searched for on rows in memory, but the reference has "
            f"{len(reference.X)} of {survey.n_rows} rows; set reference_size to {survey.n_rows} or more, "
            "or give bias_reduction or alpha instead"
        )
    threads = effective_n_jobs(estimator.n_jobs)
    names = column_names(engine.header)
    units = standard_units(estimator.detectors, reference.X, names) if estimator.standardize else None
    pool, _ = fit_pool(
        estimator.detectors,
        reference.X,
        seed=seed,
        n_threads=threads,
        sensitive_features=reference.labels,
        device=estimator.device,
        units=units,
        feature_names=names,
    )
    return _Start(groups, reference, pool)


def _gather(
    estimator: Any,
    raw: RawScores,
    kept: Walks,
    start: _Start,
    fairness: Collection[str],
    *,
    exact: bool,
    seed: int,
) -> _Sums:
    """From raw scores to cells, in two walks over the kept scores."""
    reference, n_groups = start.reference, len(start.groups.labels)
    unscaled, S = _base_ensemble(estimator, raw.scaling(), start, seed)
    counts = start.groups.counts
    dealt = np.full(n_groups + 1, True) if exact else counts <= _DEALT
    found = kept.base_scores(unscaled, dealt, seed, None if exact else CAPACITY)
    base_scaling = learn_scaling("minmax", np.array([[found.low], [found.high]]))
    model = replace(unscaled, base_scaling=base_scaling)
    sketch = found.sketch.mapped(lambda base: base_scaling.transform(base[:, None])[:, 0])

    folds = Folds.deal(found.rows, dealt, N_FOLDS, seed)
    by_rank = estimator.weighting == "rank"
    cells = kept.cells(model, sketch if by_rank else None, folds, n_groups)
    _check_folds(cells, start.groups.labels)
    if reference.complete:
        own = assign_folds(S, reference.codes, N_FOLDS, seed)
    else:
        own = folds.find(found.rows, S, reference.codes)
    pairs, form, pair_error, effective = None, None, 0.0, float("nan")
    if "individual" in fairness and n_groups >= 2:
        Z = np.column_stack([S, model.base(S)])
        pairs, pair_error, effective = _reference_pairs(estimator, start, Z, own, seed)
    if "own" in fairness and n_groups >= 2:
        form = own_form_of(estimator.fairness, S, reference.codes)
    cross = CrossFit.of_folds(cells, pairs=pairs, own=form, base=model.base_weights())
    threshold = sketch.quantile(1.0 - flagged_share(estimator.contamination, int(counts.sum())))
    rank_error = sketch.rank_error if by_rank else 0.0
    return _Sums(model, cross, S, own, threshold, rank_error, pair_error, effective)


def _base_ensemble(
    estimator: Any, scaling: Scaling, start: _Start, seed: int
) -> tuple[ScoreModel, FloatArray]:
    """The detectors of the base ensemble, chosen on the reference; also the reference's S, (m, k)."""
    warn_constant(start.pool.names, scaling)
    threads, reference = effective_n_jobs(estimator.n_jobs), start.reference
    raw = start.pool.score(reference.X, n_threads=threads, sensitive_features=reference.labels)
    S = scaling.transform(raw)
    usable, families = np.flatnonzero(scaling.varies), start.pool.families
    ensemble = learn_combination(estimator.combination, S, usable, seed, families)
    return ScoreModel(start.pool, scaling, ensemble, _AS_IS), S


def _reference_pairs(
    estimator: Any, start: _Start, Z: FloatArray, folds: IntArray, seed: int
) -> tuple[PairSums, float, float]:
    """Pair sums of the reference, or of a sample of its pairs, scaled up to all rows; their error; effective pairs."""
    reference, n_groups = start.reference, len(start.groups.labels)
    likeness = Likeness.of(
        start.pool.inside(reference.X),
        reference.codes,
        estimator.length_scale,
        method=estimator.pairs,
        seed=seed,
        n_threads=effective_n_jobs(estimator.n_jobs),
        device=estimator.device,
    )
    effective = likeness.effective_pairs(reference.codes)
    warn_few_pairs(effective, n_weights=Z.shape[1] - 1)
    pairs, error = likeness.sums(Z, reference.codes, folds, n_groups=n_groups, n_folds=N_FOLDS)
    drawn = np.bincount(reference.codes[reference.codes >= 0], minlength=n_groups)
    stands_for = start.groups.counts[:-1] / np.maximum(drawn, 1)
    p, q = np.triu_indices(n_groups, 1)
    factor = (stands_for[p] * stands_for[q])[:, None, None]
    return PairSums(pairs.form * factor[..., None, None], pairs.mass * factor), error, effective


def _check(estimator: Any, reference_size: int) -> None:
    if estimator.scaling != "minmax":  # its extremes merge without any rounding
        raise ValueError(
            f"scaling={estimator.scaling!r} needs all rows in memory; over partitions use scaling='minmax'"
        )
    if reference_size < 2:
        raise ValueError(f"reference_size={reference_size} is not allowed; use an integer of at least 2")


def _check_folds(cells: Cells, labels: tuple[str, ...]) -> None:
    """Refuse groups whose rows all fall into one fold: they have so few different scores that none can be left out."""
    filled = (cells.group_counts > 0).sum(axis=0)
    if cells.n_sets > 1 and (filled < 2).any():
        raise ValueError(
            f"the rows of group {labels[int((filled < 2).argmax())]!r} all have the same scores, so that none of them "
            "can be left out as unseen; set exact_rows to the number of rows or more, or leave this group out"
        )
