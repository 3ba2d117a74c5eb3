"""What a fitted ensemble promised: the gaps that it left on rows that nothing in it had seen."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from evenout.core.exceptions import InputError
from evenout.core.flags import flagged_share
from evenout.core.types import FloatArray, IntArray
from evenout.fitting.result import FitResult
from evenout.watching.reference import Reference


@dataclass(frozen=True)
class Promise:
    """What is watched for a model; see `FairnessMonitor`."""

    tolerance: dict[str, float]
    flag_rate_ratio: float | None
    contamination: float
    reference: Reference


def promise_of(model: Any, level: float) -> Promise:
    """The far end of each group's gap of ranks, and the lower end of the ratio of flag rates if one was asked for.

    Each row is scored by detectors and weights that have not seen it, unless the model was fitted for its training
    rows. Ends are missed with a chance of ``level`` at most, all together, by normal approximation.
    """
    ensemble = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not hasattr(ensemble, "path_") and not hasattr(ensemble, "_store"):
        raise InputError(
            "{kind} makes no promise that can be read; use FairnessMonitor(tolerance=...) and start()",
            kind=type(model).__name__,
        )
    check_is_fitted(ensemble)
    found: FitResult = ensemble._result
    if len(found.groups.labels) < 2:
        raise InputError("the model compares fewer than two groups, so it promises nothing that could be watched")
    if found.path.cross.whole.compared is not None:
        raise InputError(
            "it compares bands, strata, probable groups, attributes by themselves or rows of known outcome; what "
            "it promised crossed groups is not known: use FairnessMonitor(tolerance=...) and start()"
        )
    codes = found.groups.codes
    known, n_groups = codes >= 0, len(found.groups.labels)
    ranks = _unseen_ranks(found, ensemble.target, found.choice.alpha)
    asked = ensemble.flag_rate_ratio
    questions = n_groups if asked is None else n_groups * (n_groups + 1) / 2
    z = float(-ndtri(level / (2.0 * questions)))
    ratio = None
    if asked is not None:
        share = flagged_share(ensemble.contamination, len(ranks))
        ratio = least_ratio(ranks[known] > 1.0 - share, codes[known], n_groups, z)
    scores = found.mixture.apply(found.seen.S, found.seen.t)
    reference = Reference.of(scores, found.threshold, found.groups.labels, found.counts)
    far = far_gaps(ranks[known], codes[known], found.counts, z)
    return Promise(dict(zip(found.groups.labels, far.tolist(), strict=True)), ratio, ensemble.contamination, reference)


def far_gaps(values: FloatArray, codes: IntArray, counts: IntArray, z: float) -> FloatArray:
    """The largest gap of each group to the others, mixed by ``counts``, within ``z`` standard errors; shape (G,)."""
    parts = [values[codes == g] for g in range(len(counts))]
    means = np.array([part.mean() for part in parts])
    noise = np.array([part.var(ddof=1) / len(part) for part in parts])
    far = np.zeros(len(counts))
    for g in range(len(counts)):
        rest = np.where(np.arange(len(counts)) == g, 0.0, counts)
        rest /= rest.sum()
        far[g] = abs(means[g] - rest @ means) + z * np.sqrt(noise[g] + rest**2 @ noise)
    return np.minimum(far, 1.0)


def least_ratio(flagged: Any, codes: IntArray, n_groups: int, z: float) -> float:
    """The least ratio of flag rates within ``z`` standard errors, on the log scale, of one that was found."""
    n = np.bincount(codes, minlength=n_groups)
    k = np.bincount(codes, weights=flagged, minlength=n_groups) + 0.5  # half a row: a rate of 0 has no logarithm
    rate = np.log(k / (n + 1.0))
    noise = 1.0 / k - 1.0 / (n + 1.0)
    far = max(abs(rate[g] - rate[h]) + z * float(np.sqrt(noise[g] + noise[h])) for g, h in _pairs(n_groups))
    return float(np.exp(-far))


def _pairs(n_groups: int) -> list[tuple[int, int]]:
    return list(combinations(range(n_groups), 2))


def _unseen_ranks(found: FitResult, target: Any, alpha: float) -> FloatArray:
    """The rank in (0, 1) of each row's score among those of its fold, which have weights of their own."""
    seen, V = found.seen, found.path.fold_weights(np.array([alpha]), target)[:, 0]
    folds = seen.folds if len(V) > 1 else np.zeros_like(seen.folds)
    Z, ranks = np.column_stack([seen.S, seen.t]), np.zeros(len(seen.t))
    for fold, weights in enumerate(V):
        rows = np.flatnonzero(folds == fold)
        ranks[rows] = (rankdata(Z[rows] @ weights) - 0.5) / max(len(rows), 1)
    return ranks
