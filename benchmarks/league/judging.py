"""Every method on one halving of one table, measured on rows that nothing has seen."""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from evenout.core.flags import flag_threshold
from evenout.core.types import FloatArray
from evenout.metrics import average_precision, demographic_parity, flag_rate_ratio, roc_auc
from league.contract import BASE, Method, find_methods
from league.tables import Halving, Source, halve

FLAGGED = 0.1  # share of the judged rows that is flagged


@dataclass(frozen=True)
class Plan:
    """How the league is played: seed, halvings of each table, rows of a half at most, length of training."""

    seed: int = 0
    halves: int = 10
    rows: int = 15_000
    length: float = 1.0


@dataclass(frozen=True)
class Result:
    """One setting of one method on one judged half.

    Attributes
    ----------
    bias : float
        Mean squared gap of the groups' mean scores in standard deviations, less its sampling noise.
    rank_bias : float
        The same of the ranks of the scores, which no change of their scale can alter.
    flag_ratio : float
        Lowest over highest flag rate of the groups.
    list_kept : float
        Share of the rows flagged by the method's own base that it flags too.
    auc, ap : float
    seconds : float
        Since the setting before it; all but this is the same in every run with the same seed.
    """

    table: str
    half: int
    method: str
    setting: str
    bias: float
    rank_bias: float
    flag_ratio: float
    list_kept: float
    auc: float
    ap: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, rounded to what a figure can mean."""
        return {
            name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in asdict(self).items()
        }


def play(sources: Sequence[Source], methods: Sequence[str], plan: Plan, jobs: int) -> Iterator[list[Result]]:
    """All results, one list for each halving of each table, as they come; large tables first."""
    by_size = sorted(sources, key=lambda source: -min(plan.rows, len(source.draw(0).labels) // 2))
    rounds = [(source, half) for source in by_size for half in range(plan.halves)]
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(play_round)(source, half, methods, plan) for source, half in rounds
    )


def play_round(source: Source, half: int, methods: Sequence[str], plan: Plan) -> list[Result]:
    """All methods on one halving, on one core."""
    known, _ = find_methods()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # groups too small, requests not reached: that is what is measured here
        _one_thread_of_torch()
        halving = halve(source.draw(half), (plan.seed, half), plan.rows)
        return [
            Result(source.name, half, name, *found)
            for name in methods
            for found in judge(known[name], halving, plan.seed * 1000 + half, plan.length)
        ]


def judge(method: Method, halving: Halving, seed: int, length: float = 1.0) -> Iterator[tuple[Any, ...]]:
    """Setting, measures and seconds of every setting of a method."""
    task = halving.task(uses_group=method.uses_group, seed=seed, length=length)
    base: FloatArray | None = None
    start = time.process_time()
    for setting, found in method.scores(task):
        seconds = time.process_time() - start
        scores = _usable(found)
        if (base is None) != (setting == BASE):
            raise ValueError(f"{method.name}: its first setting, and no other, must be {BASE!r}, but found {setting!r}")
        base = scores if base is None else base
        yield setting, *measure(scores, base, halving), seconds
        start = time.process_time()


def measure(scores: FloatArray, base: FloatArray, halving: Halving) -> tuple[float, ...]:
    """Bias, bias of ranks, flag ratio, list kept, AUC and AP. A score that is the same for all is even."""
    groups, labels = halving.new_groups, halving.labels
    constant = np.ptp(scores) == 0
    gaps = [
        0.0 if constant else demographic_parity(y, sensitive_features=groups, scale_free=True, corrected=True)
        for y in (scores, rankdata(scores))
    ]
    ratio = 1.0 if constant else flag_rate_ratio(scores, sensitive_features=groups, contamination=FLAGGED)
    before, after = (y > flag_threshold(y, FLAGGED) for y in (base, scores))
    kept = float((before & after).sum() / max(before.sum(), 1))
    return *gaps, ratio, kept, roc_auc(labels, scores), average_precision(labels, scores)


def _usable(scores: FloatArray) -> FloatArray:
    """Scores that a training which has gone astray left without a number are the same for all."""
    scores = np.asarray(scores, dtype=float)
    return scores if np.isfinite(scores).all() and np.abs(scores).max() < 1e30 else np.zeros(len(scores))


def _one_thread_of_torch() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
