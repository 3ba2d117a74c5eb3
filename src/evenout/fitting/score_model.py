"""From feature rows to comparable detector scores and the base score of the ensemble."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenout.core.base_score import LINEAR, Combination, Combiner, Scaling, learn_combination, learn_scaling
from evenout.core.cells import CrossFit
from evenout.core.parallel import by_rows, take_rows
from evenout.core.stacking import FLAGGED_AGREEMENT, LEAST_AGREEMENT, LEAST_COVERAGE, Population, Stack, learn_stack
from evenout.core.types import BoolArray, FloatArray, require
from evenout.detectors.pool import FittedPool
from evenout.exceptions import ConstantScoreWarning, ManyColumnsWarning, warn
from evenout.fitting.resemblance import FittedResemblance

_LARGEST = 1e100  # of a row's score by detectors that have not seen it: the square of a larger one has no number


@dataclass(frozen=True)
class ScoreModel:
    """Fitted detectors with what makes their scores comparable and combines them.

    ``pool`` gives raw scores of k detectors, ``scaling`` makes them comparable, ``combination`` is the base ensemble,
    and ``base_scaling`` takes its score to [0, 1] on the training rows. A ``stack`` corrects it by known labels.
    Columns of ``resemblance``, by which the score is corrected, stand behind those of the detectors, among raw scores
    too, and are not scaled.
    """

    pool: FittedPool
    scaling: Scaling
    combination: Combination
    base_scaling: Scaling
    stack: Stack | None = None
    resemblance: FittedResemblance | None = None

    def check(self) -> None:
        """Require that all steps are of the same columns."""
        k = self.n_detectors
        require(len(self.pool.names) in ((0, k) if not self.pool.parts else (k,)), "pool.names", "has the wrong length")
        require(len(self.base_scaling.varies) == 1, "base_scaling", "has the wrong shape")
        require(self.base_scaling.kind != "rank", "base_scaling", "is of no known kind")
        fits = all(bucket.max(initial=0) < k for bucket in self.combination.buckets)
        require(fits, "combination.buckets", "is out of range")
        require(self.stack is None or len(self.stack.weights) == k, "stack.weights", "has the wrong shape")

    @property
    def n_detectors(self) -> int:
        """Columns of detectors, k."""
        return len(self.scaling.varies)

    @property
    def width(self) -> int:
        """All columns."""
        return self.n_detectors + (0 if self.resemblance is None else self.resemblance.n_groups)

    def scaled(
        self, X: FloatArray, *, n_threads: int = 1, sensitive_features: Any = None, device: str = "cpu"
    ) -> FloatArray:
        """``S`` of rows of shape (m, d): shape (m, k), and behind these how much rows resemble each group."""
        raw = self.pool.score(X, n_threads=n_threads, sensitive_features=sensitive_features, device=device)
        S = self.scaling.transform(raw, n_threads=n_threads)
        return S if self.resemblance is None else np.column_stack([S, self.resemblance.of(X)])

    def of_raw(self, raw: FloatArray, *, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """``S`` and ``t`` (m,) of raw scores, with resemblance behind them as it is."""
        S = _comparable(self.scaling, raw, n_threads)
        return S, self.base(S, n_threads=n_threads)

    def base(self, S: FloatArray, *, n_threads: int = 1) -> FloatArray:
        """``t`` of scaled scores of shape (m, k), or with more columns behind them: shape (m,)."""
        S = S[:, : self.n_detectors]
        t = self.base_scaling.transform(_combined(self.combination, S, n_threads))[:, 0]
        return t if self.stack is None else self.stack.apply(S, t)

    def base_weights(self) -> FloatArray | None:
        """Weights of the columns in t, where t is linear in the detectors; else None."""
        if self.combination.kind not in LINEAR:
            return None
        weights = np.zeros(self.n_detectors)
        chosen = self.combination.buckets[0]
        if len(chosen) and self.base_scaling.varies[0]:
            span = float(self.base_scaling.high[0] - self.base_scaling.low[0])
            shares = self.combination.shares
            weights[chosen] = 1.0 / (len(chosen) * span) if shares is None else shares / span
        weights = weights if self.stack is None else self.stack.base_weight * weights + self.stack.weights
        return np.append(weights, np.zeros(self.width - self.n_detectors))

    def taught(
        self,
        S: FloatArray,
        t: FloatArray,
        known: "KnownLabels",
        *,
        coverage: float,
        weight: FloatArray | None = None,
        population: Population | None = None,
    ) -> "ScoreModel":
        """The model whose target has learnt from labels.

        ``S`` (n, k) and ``t`` (n,) are its scores of all rows or, with a ``population`` of all rows, of those with a
        label; ``coverage`` is that of the labels among all rows (`label_coverage`).
        """
        return replace(
            self,
            stack=learn_stack(
                S[:, : self.n_detectors],
                t,
                known.labels,
                propensity=known.propensity,
                sample_weight=weight,
                population=population,
                least_agreement=FLAGGED_AGREEMENT if coverage < LEAST_COVERAGE else LEAST_AGREEMENT,
            ),
        )


@dataclass(frozen=True)
class KnownLabels:
    """Labels (n,), 1, 0 or NaN, and the chances (n,) with which they became known, if these are known."""

    labels: FloatArray
    propensity: FloatArray | None = None

    @classmethod
    def of_columns(cls, known: FloatArray) -> "KnownLabels":
        """From labels and chances side by side, (n, 2); NaN for chances that are not known."""
        labels, chances = known.T
        return cls(labels, None if np.isnan(chances).any() else chances)

    def of(self, rows: BoolArray) -> "KnownLabels":
        """Those of some rows."""
        return KnownLabels(self.labels[rows], None if self.propensity is None else self.propensity[rows])


def learn_scores(
    pool: FittedPool,
    raw: FloatArray,
    outside: BoolArray,
    *,
    scaling: str,
    combination: str | Combiner,
    seed: int,
    extremes: FloatArray | None = None,
    resemblance: FittedResemblance | None = None,
    n_threads: int = 1,
) -> tuple[ScoreModel, FloatArray, FloatArray]:
    """Learn scaling and base ensemble on the rows that ``outside`` marks; also score all rows: S and t.

    These are ``of_raw(raw)``, bit for bit; rows are scaled and combined once, and those outside are not copied. Columns
    of ``raw`` behind those of the k detectors teach nothing. ``extremes`` (2, k) are the lowest and highest scores of
    more rows than these, for ``scaling="minmax"``.
    """
    k = len(pool.names)
    learnt_on = (raw[:, :k], outside) if extremes is None else (extremes, None)
    scaler = learn_scaling(scaling, learnt_on[0], outside=learnt_on[1], n_threads=n_threads)
    S = _comparable(scaler, raw, n_threads)
    scores = S[:, :k]
    by_all = callable(combination) or combination == "greedy"  # what a row adds depends on the others
    known = take_rows(scores, outside, n_threads) if by_all else scores
    ensemble = learn_combination(
        combination, known, np.flatnonzero(scaler.varies), seed, pool.families, n_threads=n_threads
    )
    combined = _combined(ensemble, scores, n_threads)
    own = _combined(ensemble, known, n_threads) if callable(combination) else combined[outside]
    base = learn_scaling("minmax", own)
    model = ScoreModel(pool, scaler, ensemble, base, resemblance=resemblance)
    return model, S, base.transform(combined, n_threads=n_threads)[:, 0]


def _comparable(scaling: Scaling, raw: FloatArray, n_threads: int) -> FloatArray:
    """Raw scores scaled and bounded; columns behind those of the detectors stay as they are."""
    k = len(scaling.varies)

    def of(rows: FloatArray) -> FloatArray:
        S = scaling.transform(rows[:, :k])
        np.clip(S, -_LARGEST, _LARGEST, out=S)
        return S if rows.shape[1] == k else np.column_stack([S, rows[:, k:]])

    return by_rows(of, raw, n_threads=n_threads)


def _combined(combination: Combination, S: FloatArray, n_threads: int = 1) -> FloatArray:
    """The base ensemble's raw score as a column; a user's own function is checked."""
    if not len(combination.buckets[0]):  # every detector is constant
        return np.zeros((len(S), 1))
    scores = np.asarray(combination.apply(S, n_threads=n_threads), dtype=float)
    if scores.shape != (len(S),):
        raise ValueError(f"combination returned shape {scores.shape}; one number per row, shape ({len(S)},), is needed")
    if not np.isfinite(scores).all():
        raise ValueError("combination returned a value that is not finite; one finite number per row is needed")
    return scores[:, None]


def warn_many(sums: CrossFit) -> None:
    """Warn where there are more columns than rows outside of a fold."""
    k, n = sums.whole.n_detectors, sums.rows_outside
    if n < k:
        warn(
            ManyColumnsWarning(
                "there are {k} detectors, but {n:.0f} independent rows to learn their weights from: weights are held "
                "back, and what is stated of unseen rows is less certain. More rows, or fewer detectors, would tell "
                "more.",
                k=k, n=n,
            )
        )  # fmt: skip


def warn_constant(names: tuple[str, ...], scaling: Scaling) -> None:
    """Warn of detectors whose scores are constant."""
    constant = [name for name, varies in zip(names, scaling.varies, strict=True) if not varies]
    if constant:
        warn(
            f"these detectors give every training row the same score and take no part: {', '.join(constant)}",
            ConstantScoreWarning,
        )
