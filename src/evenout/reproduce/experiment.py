"""The paper's experiments.

One repeat draws the forest's seed, the sampled attribute (where the data has none of its own) and the random alphas
anew. The pool is fitted once per repeat; both base ensembles, both notions of fairness and both frameworks share it.

A third of the rows of Breast Cancer are duplicates, so distances tie and LOF divides by distances of 0. scikit-learn's
three exact searches break ties differently; the same 18 detectors then give different base ensembles.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd

from evenout.core.base_score import learn_combination, learn_scaling, unit_range
from evenout.core.cells import CrossFit, collect_cells, rank_weights
from evenout.core.content import assign_folds, count_folds
from evenout.core.pairwise import PairSums, pair_sums
from evenout.core.parallel import map_blocks
from evenout.core.path import TradeoffPath, least_alpha
from evenout.core.registry import NOTIONS, PARITY
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.datasets import list_datasets, load_dataset
from evenout.detectors.pool import fit_pool
from evenout.groups.read import read_groups
from evenout.metrics import roc_auc

MAIN = {
    "communities": "Communities",
    "german": "German Credit",
    "annthyroid": "Annthyroid",
    "cardio": "Cardiotocography",
}
SUPPLEMENT = {"vowels": "Japanese Vowels", "breastw": "Breast Cancer", "mammography": "Mammography", "pima": "Pima"}
TITLES = MAIN | SUPPLEMENT

BASES = ("maximum", "greedy")
FAIRNESS = {"group": "demographic_parity", "individual": "individual"}
FRAMEWORKS: dict[str, Callable[[FloatArray], FloatArray]] = {"weighted": rank_weights, "unweighted": np.ones_like}

# The columns of points.csv, and what they hold.
COLUMNS = {
    "dataset": "the name of the data set",
    "base": "the base ensemble whose score is the target t: maximum, greedy, or (kind target only) average",
    "fairness": "the notion that f2 and bias measure: group (demographic parity) or individual",
    "framework": "weighted (the paper's, beta = exp(rank / n)), unweighted (beta = 1), or none (kind target)",
    "repeat": "0, 1, ...; each draws forest, sampled groups and random alphas anew",
    "kind": "curve (alpha = 0, then log-spaced), random (log-uniform, for the cost of fairness) or target (t itself)",
    "alpha": "the trade-off parameter; empty for kind target",
    "f1": "sum of beta (y - t)^2: the distance to the target",
    "f2": "the paper's bias, on the training rows",
    "bias": "the scale-free bias: f2's gaps in units of the variance of y, unchanged when all scores are multiplied",
    "auc": "area under the ROC curve against the known outliers, which no score has seen",
    "negative": "how many of the 18 detectors have a weight below 0; empty for kind target",
}

CURVE_ALPHAS = 40  # besides 0
RANDOM_ALPHAS = 100
FIRST_FALL, LAST_FALL = 0.001, 0.99  # shares of f2 that are gone at the two ends of the range of alpha
_BLOCK = 32  # scores ranked at once


@dataclass(frozen=True)
class Seeds:
    """Seeds of one repeat: of the forest, the sampled attribute, and the random alphas."""

    forest: int
    groups: int
    alphas: int


def derive_seeds(seed: int, dataset: str, repeat: int) -> Seeds:
    """Independent seeds from ``SeedSequence((seed, place of the data set in list_datasets(), repeat))``.

    A data set's points do not depend on which others are run, nor a repeat's on how many there are.

    >>> derive_seeds(0, "pima", 0) == derive_seeds(0, "pima", 0)
    True
    >>> derive_seeds(0, "pima", 0) == derive_seeds(0, "pima", 1)
    False
    """
    state = np.random.SeedSequence((seed, list_datasets().index(dataset), repeat)).generate_state(3)
    return Seeds(*(int(number) >> 1 for number in state))  # 31 bits: scikit-learn's range


@dataclass(frozen=True)
class Scored:
    """One repeat before any fairness: n rows scored by k detectors, S (n, k), and by the base ensembles.

    ``targets`` are ``t`` (n,) of the maximum, greedy and average combination; ``pairs`` are over the columns of S, then
    the targets in order; no pairs at all where they were not asked for.
    """

    S: FloatArray
    targets: dict[str, FloatArray]
    outlier: BoolArray
    groups: IntArray
    pairs: PairSums

    def sums(self, base: str, framework: str) -> CrossFit:
        """The sums that define one problem. The paper measures on the training rows, so nothing is left out."""
        t = self.targets[base]
        beta, one, n_groups = FRAMEWORKS[framework](t), np.zeros(len(t), dtype=np.intp), int(self.groups.max()) + 1
        columns = [*range(self.S.shape[1]), self.S.shape[1] + list(self.targets).index(base)]
        form, mass = self.pairs.total()
        whole = replace(
            collect_cells(self.S, t, beta, self.groups, one, n_groups=n_groups, n_sets=1),
            sums={"individual.form": form[None][..., columns, :][..., columns], "individual.mass": mass[None]},
        )
        return CrossFit(whole, whole.at(slice(0)), whole.at(slice(0)))


def score(dataset: str, seeds: Seeds, *, n_threads: int = 1, pairs: bool = True) -> Scored:
    """Fit the paper's 18 detectors on the raw features, scale, combine, and sum over the pairs of rows if wanted."""
    data = load_dataset(dataset, random_state=seeds.groups)
    X = np.ascontiguousarray(data.X.to_numpy())
    groups = read_groups(data.sensitive, len(X))
    _, raw = fit_pool("paper", X, seed=seeds.forest, n_threads=n_threads)
    S, targets = combine(raw)
    sums = pair_sums(
        X, np.column_stack([S, *targets.values()]), groups.codes if pairs else np.full(len(X), -1),
        np.zeros(len(X), dtype=np.intp), n_groups=len(groups.labels), n_folds=1, n_threads=n_threads,
    )  # fmt: skip
    return Scored(S, targets, data.y.to_numpy() == 1, groups.codes, sums)


def combine(raw: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Scale raw scores (n, k) to [0, 1]; the scaled scores, and ``t`` by each base ensemble and by the average."""
    scaling = learn_scaling("minmax", raw)
    S, usable = scaling.transform(raw), np.flatnonzero(scaling.varies)
    return S, {base: unit_range(learn_combination(base, S, usable, seed=0).apply(S)) for base in (*BASES, "average")}


def run_repeat(dataset: str, seed: int, repeat: int, *, n_threads: int = 1) -> pd.DataFrame:
    """Compute all points of one repeat on one data set, in a fixed order; with `COLUMNS`."""
    seeds = derive_seeds(seed, dataset, repeat)
    scored = score(dataset, seeds, n_threads=n_threads)
    frames, rng = [_target_points(scored)], np.random.default_rng(seeds.alphas)
    for base in BASES:
        sums = {framework: scored.sums(base, framework) for framework in FRAMEWORKS}
        for fairness, notion in FAIRNESS.items():
            paths = {
                name: TradeoffPath(sums[name], ((NOTIONS[notion], 1.0),), method="published") for name in FRAMEWORKS
            }
            # As in the paper, both frameworks see the same random alphas: those of the weighted one's range.
            low, high = np.log(paths["weighted"].alpha_range(FIRST_FALL, LAST_FALL))
            drawn = np.sort(np.exp(rng.uniform(low, high, RANDOM_ALPHAS)))
            for framework, path in paths.items():
                points = _path_points(scored, path, drawn, n_threads)
                frames.append(points.assign(base=base, fairness=fairness, framework=framework))
    return pd.concat(frames, ignore_index=True).assign(dataset=dataset, repeat=repeat)[list(COLUMNS)]


def _path_points(scored: Scored, path: TradeoffPath, drawn: FloatArray, n_threads: int) -> pd.DataFrame:
    """The curve of one problem, alpha = 0 first, and the random alphas."""
    curve = np.r_[0.0, np.geomspace(*path.alpha_range(FIRST_FALL, LAST_FALL), CURVE_ALPHAS)]
    alphas = np.r_[curve, drawn]
    W = path.weights(alphas)
    return pd.DataFrame(
        {
            "kind": np.repeat(["curve", "random"], [len(curve), len(drawn)]),
            "alpha": alphas,
            "f1": path.f1(alphas),
            "f2": path.f2(alphas),
            "bias": path.bias(alphas, "training"),
            "auc": weighted_aucs(scored.S, W, scored.outlier, n_threads=n_threads),
            "negative": (W < 0).sum(axis=1),
        }
    )


def _target_points(scored: Scored) -> pd.DataFrame:
    """The base ensembles' own scores: distance 0 to themselves, their bias and their AUC."""
    rows = []
    for base, t in scored.targets.items():
        sums, auc = scored.sums(base, "unweighted"), roc_auc(scored.outlier, t)
        for fairness, notion in FAIRNESS.items():
            f2 = NOTIONS[notion].form(sums.whole)[0, -1, -1]
            bias = TradeoffPath(sums, ((NOTIONS[notion], 1.0),), method="published").target_bias("training")
            rows.append({"base": base, "fairness": fairness, "f2": f2, "bias": bias, "auc": auc})
    return pd.DataFrame(rows).assign(framework="none", kind="target", alpha=np.nan, f1=0.0, negative=np.nan)


def weighted_aucs(S: FloatArray, W: FloatArray, outlier: BoolArray, *, n_threads: int = 1) -> FloatArray:
    """AUC of the scores ``S @ w``, S of shape (n, k), for each of the m rows w of W.

    >>> S = np.array([[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]])
    >>> weighted_aucs(S, np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array([False, False, True])).tolist()
    [1.0, 0.0, 0.5]
    """
    # Equal rows must tie exactly. A product of matrices may round by position, so each distinct row is taken once.
    distinct, place = np.unique(S, axis=0, return_inverse=True)
    return np.concatenate(
        map_blocks(lambda block: roc_auc(outlier, (distinct @ W[block].T)[place.ravel()]), len(W), _BLOCK, n_threads)
    )


SEARCHES = ("kd_tree", "ball_tree", "brute")


def compare_searches(seed: int, n_repeats: int) -> pd.DataFrame:
    """AUC on Breast Cancer of each base ensemble's score, by the search behind LOF: evenout's, then scikit-learn's."""
    from sklearn.neighbors import LocalOutlierFactor

    data = load_dataset("breastw")
    X, outlier, factors, rows = np.ascontiguousarray(data.X.to_numpy()), data.y.to_numpy() == 1, {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the duplicates, which are the point here
        for search in SEARCHES:
            fitted = (LocalOutlierFactor(k, algorithm=search).fit(X) for k in (5, 10, 15, 20, 25, 30))
            factors[search] = np.column_stack([-lof.negative_outlier_factor_ for lof in fitted])
    for repeat in range(n_repeats):
        pool, raw = fit_pool("paper", X, seed=derive_seeds(seed, "breastw", repeat).forest)
        lof = [name.startswith("lof_") for name in pool.names]
        for search in ("evenout", *SEARCHES):
            scores = raw.copy()
            if search in factors:
                scores[:, lof] = factors[search]
            targets = combine(scores)[1].items()
            rows += [{"repeat": repeat, "search": search, "base": b, "auc": roc_auc(outlier, t)} for b, t in targets]
    return pd.DataFrame(rows)


ASKED = 0.8  # share of the scale-free group bias that the training rows are to lose


def held_out(scored: Scored, base: str, seed: int) -> dict[str, float]:
    """Solve for ``ASKED`` less group bias on all rows, as the paper does, and cross-fit the weights for held-out rows.

    Gives ``training`` and ``unseen``, the shares of the scale-free group bias that are gone (NaN if the target has
    none beyond sampling noise), ``p``, the p-value of "no gap" of the target, and ``alpha``.
    """
    S, t, groups, n_folds = scored.S, scored.targets[base], scored.groups, count_folds(scored.groups)
    folds, n_groups = assign_folds(S, groups, n_folds, seed), int(groups.max()) + 1
    cells = collect_cells(S, t, rank_weights(t), groups, folds, n_groups=n_groups, n_sets=n_folds)
    path = TradeoffPath(CrossFit.of_folds(cells), ((PARITY, 1.0),), method="published")
    reached = least_alpha(path, lambda alphas: path.reduction(alphas, "training"), ASKED)
    alpha = float(path.grid()[-1]) if reached is None else reached  # the farthest that the paper's curves go
    return {
        "alpha": alpha,
        "training": float(path.reduction(alpha, "training")),
        "unseen": float(path.reduction(alpha, "unseen")) if path.gap_detected else float("nan"),
        "p": path.gap_p_value,
    }


def compare_rows(names: list[str], seed: int, n_repeats: int, *, n_threads: int = 1) -> pd.DataFrame:
    """One row per data set, repeat and base ensemble, with the columns of `held_out`."""
    rows = []
    for name, repeat in product(names, range(n_repeats)):
        seeds = derive_seeds(seed, name, repeat)
        scored = score(name, seeds, n_threads=n_threads, pairs=False)
        rows += [
            {"dataset": name, "base": base, "repeat": repeat, **held_out(scored, base, seeds.forest)} for base in BASES
        ]
    return pd.DataFrame(rows)


def summarise(rows: pd.DataFrame) -> tuple[list[dict[str, object]], float | None]:
    """Per data set and base ensemble: the median over the repeats with a gap, and in how many there was one.

    Then the median over these of the reduction on unseen rows; None if there was no gap anywhere.
    """
    table: list[dict[str, object]] = []
    for (name, base), group in rows.groupby(["dataset", "base"], sort=False):
        unseen = group["unseen"].dropna()
        table.append(
            {
                "dataset": TITLES[str(name)],
                "base": base,
                "training": float(group["training"].median()),
                "unseen": float(unseen.median()) if len(unseen) else None,
                "least": float(unseen.min()) if len(unseen) else None,
                "most": float(unseen.max()) if len(unseen) else None,
                "with_gap": len(unseen),
                "repeats": len(group),
            }
        )
    known = [row["unseen"] for row in table if row["unseen"] is not None]
    return table, float(np.median(np.array(known, dtype=float))) if known else None
