"""Data cut into a half to fit on and a half to judge on, with every detector fitted on the first alone."""

from dataclasses import dataclass

import numpy as np

from evenout.core.cells import Cells, collect_cells, rank_weights
from evenout.core.folds import assign_folds, count_folds
from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.datasets import list_scenarios, load_dataset, make_biased_outliers
from evenout.groups import read_groups
from evenout.scores import learn_scores

SCENARIO_ROWS = 10_000
PAPER = 18  # detectors of the paper's pool, the first columns of the diverse one


@dataclass(frozen=True)
class Half:
    """Rows of one half: features, scores of all detectors, target, groups and labels (for judging only)."""

    X: FloatArray
    S: FloatArray
    t: FloatArray
    groups: IntArray
    y: AnyArray


@dataclass(frozen=True)
class Split:
    """The half that is fitted on, with its folds, and the half that is judged."""

    fit: Half
    judge: Half
    folds: IntArray
    n_groups: int

    def cells(self, columns: slice) -> Cells:
        """Sums of the fitted half over the given detectors."""
        return collect_cells(
            self.fit.S[:, columns],
            self.fit.t,
            rank_weights(self.fit.t),
            self.fit.groups,
            self.folds,
            n_groups=self.n_groups,
            n_folds=int(self.folds.max()) + 1,
        )


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
    """One random halving, stratified by group; detectors, scaling and target are learnt on the first half."""
    X, y, groups = load(name, split)
    rng = np.random.default_rng(1000 + split)
    first = np.zeros(len(X), dtype=bool)
    for group in range(groups.max() + 1):
        rows = rng.permutation(np.flatnonzero(groups == group))
        first[rows[: len(rows) // 2]] = True
    fitted, judged = np.ascontiguousarray(X[first]), np.ascontiguousarray(X[~first])
    paper = _of_paper(combination)
    model, S, t = learn_scores("diverse", fitted, combination=paper, seed=split, n_threads=n_threads)
    S_judged = model.scaled(judged, n_threads=n_threads)
    codes = groups[first]
    return Split(
        Half(fitted, S, t, codes, y[first]),
        Half(judged, S_judged, model.base(S_judged), groups[~first], y[~first]),
        assign_folds(S, codes, count_folds(codes), split),
        int(groups.max()) + 1,
    )


def _of_paper(combination: str):  # type: ignore[no-untyped-def]
    """The base ensemble over the paper's detectors alone, so that every method has the same target."""
    if combination == "average":
        return lambda S: S[:, :PAPER].mean(axis=1)
    return lambda S: S[:, :PAPER].max(axis=1)
