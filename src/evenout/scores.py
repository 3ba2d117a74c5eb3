"""From feature rows to comparable detector scores and the base ensemble's target."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenout.core.combine import LINEAR, Combination, Combiner, learn_combination
from evenout.core.exceptions import ConstantScoreWarning, warn
from evenout.core.scaling import Scaling, learn_scaling
from evenout.core.types import FloatArray
from evenout.detectors.pool import FittedPool


@dataclass(frozen=True)
class ScoreModel:
    """Fitted detectors with what makes their scores comparable and combines them.

    Parameters
    ----------
    pool : FittedPool
        Raw scores of k detectors.
    scaling : Scaling
        From raw to comparable scores.
    combination : Combination
        The base ensemble.
    base_scaling : Scaling
        From the base ensemble's score to the target, in [0, 1] on the training rows.
    """

    pool: FittedPool
    scaling: Scaling
    combination: Combination
    base_scaling: Scaling

    def scaled(
        self, X: FloatArray, *, n_threads: int = 1, sensitive_features: Any = None, device: str = "cpu"
    ) -> FloatArray:
        """``S`` of rows of shape (m, d): shape (m, k)."""
        raw = self.pool.score(X, n_threads=n_threads, sensitive_features=sensitive_features, device=device)
        return self.scaling.transform(raw)

    def base(self, S: FloatArray) -> FloatArray:
        """``t`` of scaled scores of shape (m, k): shape (m,)."""
        return self.base_scaling.transform(_combined(self.combination, S))[:, 0]

    def base_weights(self) -> FloatArray | None:
        """Weights of the k detectors in t, where t is linear in them; else None."""
        if self.combination.kind not in LINEAR:
            return None
        weights = np.zeros(len(self.scaling.varies))
        chosen = self.combination.buckets[0]
        if len(chosen) and self.base_scaling.varies[0]:
            span = float(self.base_scaling.high[0] - self.base_scaling.low[0])
            shares = self.combination.shares
            weights[chosen] = 1.0 / (len(chosen) * span) if shares is None else shares / span
        return weights

    def without_detectors(self) -> "ScoreModel":
        """The model for scores that are at hand already."""
        return replace(self, pool=FittedPool((), ()))


def learn_scores(
    pool: FittedPool, raw: FloatArray, *, scaling: str, combination: str | Combiner, seed: int
) -> ScoreModel:
    """Learn scaling and base ensemble on the raw scores (n, k) of training rows."""
    scaler = learn_scaling(scaling, raw)
    S = scaler.transform(raw)
    ensemble = learn_combination(combination, S, np.flatnonzero(scaler.varies), seed, pool.families)
    base_scaling = learn_scaling("minmax", _combined(ensemble, S))
    return ScoreModel(pool, scaler, ensemble, base_scaling)


def _combined(combination: Combination, S: FloatArray) -> FloatArray:
    """The base ensemble's raw score as a column; a user's own function is checked."""
    if not len(combination.buckets[0]):  # every detector is constant
        return np.zeros((len(S), 1))
    scores = np.asarray(combination.apply(S), dtype=float)
    if scores.shape != (len(S),):
        raise ValueError(
            f"combination returned shape {scores.shape}; one number per row, shape ({len(S)},), is needed"
        )
    if not np.isfinite(scores).all():
        raise ValueError(
            "combination returned a value that is not finite; one finite number per row is needed"
        )
    return scores[:, None]


def warn_constant(names: tuple[str, ...], scaling: Scaling) -> None:
    """Name the detectors that say nothing."""
    constant = [name for name, varies in zip(names, scaling.varies, strict=True) if not varies]
    if constant:
        warn(
            f"these detectors give every training row the same score and take no part: {', '.join(constant)}",
            ConstantScoreWarning,
        )
