"""Data cut into a half to fit on and a half to judge on, with everything fitted on the first alone."""

import warnings
from dataclasses import dataclass

import numpy as np

from evenout import FairOutlierEnsemble, Groups
from evenout.core.path import TradeoffPath
from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.datasets import list_scenarios, load_dataset, make_biased_outliers
from evenout.groups.read import read_groups

SCENARIO_ROWS = 10_000
PAPER = 18  # detectors of the paper's pool, the first columns of the diverse one


@dataclass(frozen=True)
class Half:
    """Rows of one half: features, groups, labels (for judging only)."""

    X: FloatArray
    groups: IntArray
    y: AnyArray


@dataclass(frozen=True)
class Pool:
    """A model fitted on the first half, and how it scores the second: Z is (s, t), shape (n, k + 1)."""

    model: FairOutlierEnsemble
    Z: FloatArray

    def judged(self, path: TradeoffPath, alphas: FloatArray) -> FloatArray:
        """Scores of the judged rows along a path of this pool, shape (n, m)."""
        return self.Z @ path.fold_weights(alphas, "training")[0].T


@dataclass(frozen=True)
class Split:
    """The half that is fitted on and the half that is judged, scored by two pools of detectors."""

    fit: Half
    judge: Half
    n_groups: int
    paper: Pool
    diverse: Pool


def load(name: str, split: int) -> tuple[FloatArray, AnyArray, IntArray]:
    """Features, labels and group codes; scenarios and sampled attributes are drawn anew for every split."""
    if name in list_scenarios():
        data = make_biased_outliers(name, SCENARIO_ROWS, random_state=split)
    elif name in ("credit", "credit_with_other"):
        data = load_dataset("credit")
    else:
        data = load_dataset(name, random_state=split)
    kept = np.ones(len(data.X), dtype=bool)
    if name == "credit":
        kept = np.asarray(data.sensitive != "other")
    groups = read_groups(np.asarray(data.sensitive)[kept], int(kept.sum()))
    return data.X.to_numpy()[kept], data.y.to_numpy()[kept], groups.codes


def cut(name: str, split: int, combination: str, n_threads: int) -> Split:
    """One random halving, stratified by group; the two pools have the same target, that of the paper's detectors."""
    X, y, groups = load(name, split)
    rng = np.random.default_rng(1000 + split)
    first = np.zeros(len(X), dtype=bool)
    for group in range(groups.max() + 1):
        rows = rng.permutation(np.flatnonzero(groups == group))
        first[rows[: len(rows) // 2]] = True
    fit = Half(np.ascontiguousarray(X[first]), groups[first], y[first])
    judge = Half(np.ascontiguousarray(X[~first]), groups[~first], y[~first])
    combine = _mean_of_paper if combination == "average" else _maximum_of_paper
    pools = []
    for detectors, base in (("paper", combination), ("diverse", combine)):
        model = FairOutlierEnsemble(
            detectors,
            standardize=False,
            combination=base,
            groups=Groups(min_size=10),
            random_state=split,
            n_jobs=n_threads,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(fit.X, sensitive_features=fit.groups)
        S = model.detector_scores(judge.X)
        pools.append(Pool(model, np.column_stack([S, model._result.scores.base(S)])))
    return Split(fit, judge, int(groups.max()) + 1, *pools)


def _mean_of_paper(S: FloatArray) -> FloatArray:
    return S[:, :PAPER].mean(axis=1)


def _maximum_of_paper(S: FloatArray) -> FloatArray:
    return S[:, :PAPER].max(axis=1)
