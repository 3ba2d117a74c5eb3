"""From feature rows to a fitted model: detect, scale, combine, leave folds out, sum, solve, choose."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenout.core.cells import Cells, CrossFit, collect_cells, rank_weights
from evenout.core.choice import Choice
from evenout.core.flags import flag_threshold
from evenout.core.folds import N_FOLDS, assign_folds
from evenout.core.path import TradeoffPath
from evenout.core.similarity import warn_few_pairs
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.pool import FittedPool, cross_fit_pool, fit_pool, standard_units
from evenout.detectors.units import Units
from evenout.groups import Groups
from evenout.pairs import Likeness
from evenout.request import FlagRows, Request
from evenout.rows import own_form_of
from evenout.scores import ScoreModel, learn_scores, warn_constant

_LARGEST = (
    1e100  # of a row's score by detectors that have not seen it: the square of a larger one has no number
)


@dataclass(frozen=True)
class FitResult:
    """All that a fit has learnt.

    Parameters
    ----------
    scores : ScoreModel
        From feature rows to detector scores and target.
    path : TradeoffPath
    choice : Choice
    target, outlier_scores : arrays of shape (n,)
        Base and fair score of the training rows.
    threshold : float
        Rows that score above are flagged.
    pair_error : float
        Of individual fairness, where pairs were sampled.
    effective_pairs : float
        How many pairs of rows individual fairness rests on; NaN without it.
    """

    scores: ScoreModel
    path: TradeoffPath
    choice: Choice
    target: FloatArray
    outlier_scores: FloatArray
    threshold: float
    pair_error: float
    effective_pairs: float = float("nan")


@dataclass(frozen=True)
class TrainingRows:
    """Rows to fit on, cleaned.

    Parameters
    ----------
    X : array of shape (n, d)
    groups : Groups
    sensitive_features : object
        As given, for detectors that use the group.
    clusters : array of shape (n,) or None
        Codes of rows that belong together.
    sample_weight : array of shape (n,) or None
    feature_names : sequence of str or None
        Of the d columns, for the names of score columns.
    """

    X: FloatArray
    groups: Groups
    sensitive_features: Any
    clusters: IntArray | None
    sample_weight: FloatArray | None
    feature_names: Sequence[str] | None = None


def fit_rows(
    rows: TrainingRows, request: Request, parameters: Mapping[str, Any], *, seed: int, n_threads: int
) -> FitResult:
    """Fit on rows in memory; ``parameters`` are those of the estimator, checked."""
    named, names = parameters["detectors"], rows.feature_names
    units = standard_units(named, rows.X, names) if parameters["standardize"] else None
    content = rows.X if units is None else units.apply(rows.X)  # units must not move a row to another fold
    folds = assign_folds(content, rows.groups.codes, N_FOLDS, seed, rows.clusters)
    n_folds = int(folds.max()) + 1  # few rows or clusters fill fewer folds
    crossed = len(rows.groups.labels) >= 2  # else there is nobody to compare
    if crossed and n_folds < 2:
        raise ValueError("clusters has too few values to leave some of them out; give finer ones")
    pool, raw, without = _detect(rows, parameters, units, folds if crossed else None, seed, n_threads)
    adding = _Adding.up(replace(rows, X=content), request, parameters, seed, n_threads)
    pairs = float("nan") if adding.likeness is None else adding.likeness.effective_pairs(rows.groups.codes)
    if not np.isnan(pairs):
        warn_few_pairs(pairs, n_weights=len(pool.names))
    everyone = np.ones(len(rows.X), dtype=bool)
    model, S, t = adding.learn(pool, raw, everyone)
    warn_constant(pool.names, model.scaling)
    whole, pair_error = adding.cells(model, S, t, everyone)
    training, held, seen = (
        [whole.none()],
        [whole.none()],
        FlagRows(S.copy(), t.copy(), rows.groups.codes, folds),
    )
    for fold in range(n_folds if crossed else 0):
        inside = folds == fold
        view = adding.learn(pool, without(fold), ~inside)
        training.append(adding.cells(*view, ~inside)[0])
        held.append(adding.cells(*view, inside)[0])
        if request.target == "unseen":
            seen.S[inside], seen.t[inside] = view[1][inside], view[2][inside]
    refitted = not _is_precomputed(parameters["detectors"])
    path = request.path(CrossFit(whole, Cells.stacked(training), Cells.stacked(held), refitted))
    choice = request.choose(path, seen)
    fair = path.mixture(choice.alpha).apply(S, t)
    choice.announced(f" and {_list_kept(t, fair, request.contamination):.0%} of the flagged list is kept")
    threshold = float(flag_threshold(fair, request.contamination))
    return FitResult(model, path, choice, t, fair, threshold, pair_error, pairs)


def _detect(
    rows: TrainingRows,
    parameters: Mapping[str, Any],
    units: Units | None,
    folds: IntArray | None,
    seed: int,
    n_threads: int,
) -> tuple[FittedPool, FloatArray, Callable[[int], FloatArray]]:
    """Detectors, their raw scores of the rows, and those by detectors that have not seen a fold."""
    settings = {
        "seed": seed,
        "n_threads": n_threads,
        "sensitive_features": rows.sensitive_features,
        "device": parameters["device"],
        "units": units,
        "feature_names": rows.feature_names,
    }
    if folds is not None:
        return cross_fit_pool(parameters["detectors"], rows.X, folds, **settings)
    pool, raw = fit_pool(parameters["detectors"], rows.X, **settings)
    return pool, raw, lambda fold: raw  # noqa: ARG005


def _is_precomputed(detectors: Any) -> bool:
    return isinstance(detectors, str) and detectors == "precomputed"


def _list_kept(base: FloatArray, fair: FloatArray, contamination: float) -> float:
    """Share of the rows that the base score flags that are still flagged."""
    before, after = (y > flag_threshold(y, contamination) for y in (base, fair))
    return float((before & after).sum() / max(before.sum(), 1))


@dataclass(frozen=True)
class _Adding:
    """What it takes to learn on some of the rows and to add up some of them."""

    rows: TrainingRows
    request: Request
    parameters: Mapping[str, Any]
    likeness: Likeness | None
    seed: int

    @classmethod
    def up(
        cls, rows: TrainingRows, request: Request, parameters: Mapping[str, Any], seed: int, n_threads: int
    ) -> "_Adding":
        likeness = None
        if "individual" in request.fairness and len(rows.groups.labels) >= 2:
            likeness = Likeness.of(
                rows.X,
                rows.groups.codes,
                parameters["length_scale"],
                method=parameters["pairs"],
                seed=seed,
                n_threads=n_threads,
                device=parameters["device"],
            )
        return cls(rows, request, parameters, likeness, seed)

    def learn(
        self, pool: FittedPool, raw: FloatArray, on: BoolArray
    ) -> tuple[ScoreModel, FloatArray, FloatArray]:
        """Learn scaling and base ensemble on some rows; the model, and S (n, k) and t (n,) of all rows."""
        model = learn_scores(
            pool,
            raw[on],
            scaling=self.parameters["scaling"],
            combination=self.parameters["combination"],
            seed=self.seed,
        )
        S = np.clip(model.scaling.transform(raw), -_LARGEST, _LARGEST)
        return model, S, model.base(S)

    def cells(self, model: ScoreModel, S: FloatArray, t: FloatArray, of: BoolArray) -> tuple[Cells, float]:
        """Sums over some rows as one set, and the error of their pair sums."""
        codes, n_groups, weight = (
            self.rows.groups.codes,
            len(self.rows.groups.labels),
            self.rows.sample_weight,
        )
        counted = None if weight is None else weight[of]
        beta = (
            rank_weights(t[of], counted) if self.parameters["weighting"] == "rank" else np.ones(int(of.sum()))
        )
        cells = collect_cells(
            S[of],
            t[of],
            beta,
            codes[of],
            np.zeros(int(of.sum()), dtype=np.intp),
            n_groups=n_groups,
            n_sets=1,
            sample_weight=counted,
            clusters=None if self.rows.clusters is None else self.rows.clusters[of],
        )
        base, error = model.base_weights(), 0.0
        if base is not None:
            cells = replace(cells, base=base[None])
        if "own" in self.request.fairness and n_groups >= 2:
            cells = replace(cells, own=own_form_of(self.parameters["fairness"], S[of], codes[of])[None])
        if self.likeness is not None:
            pairs, error = self.likeness.among(np.column_stack([S, t]), np.where(of, codes, -1), n_groups)
            cells = replace(cells, pairs=pairs)
        return cells, error
