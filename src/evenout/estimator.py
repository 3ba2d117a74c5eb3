"""The fair outlier ensemble as a scikit-learn estimator: check, detect, scale, combine, sum, solve."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout.backends import gpu
from evenout.backends.dask_backend import collection_engine, is_collection, score_collection
from evenout.core.cells import Cells, collect_cells, rank_weights
from evenout.core.combine import COMBINATIONS
from evenout.core.flags import flag_threshold, weigh
from evenout.core.folds import assign_folds, count_folds
from evenout.core.path import WEIGHTS, Target, TradeoffPath, Weights
from evenout.core.sampling import METHODS
from evenout.core.scaling import SCALINGS
from evenout.core.similarity import LengthScale
from evenout.core.types import FloatArray, IntArray
from evenout.groups import Groups, read_groups
from evenout.pairs import similar_pairs
from evenout.parameters import (
    ANY_JOBS,
    CALLABLE,
    MEDIAN_MULTIPLE,
    NONE,
    check_parameters,
    number,
    one_of,
    whole,
)
from evenout.request import Request
from evenout.rows import OwnForm, as_seed, new_rows, own_form_of, training_rows
from evenout.scores import learn_scores

_RULES = {
    "combination": one_of(COMBINATIONS) | CALLABLE,
    "scaling": one_of(SCALINGS),
    "length_scale": one_of(("minmax",)) | number(0, np.inf, open_low=True) | MEDIAN_MULTIPLE,
    "pairs": one_of(METHODS),
    "bias_reduction": NONE | number(0, 1),
    "flag_rate_ratio": NONE | number(0, 1, open_low=True),
    "alpha": NONE | number(0, np.inf),
    "target": one_of(("unseen", "training")),
    "weighting": one_of(("rank", "uniform")),
    "weights": one_of(WEIGHTS),
    "min_group_size": whole(2),
    "small_groups": one_of(("error", "merge")),
    "unknown_groups": one_of(("error", "ignore")),
    "contamination": number(0, 0.5, open_low=True),
    "reference_size": whole(2),
    "n_jobs": ANY_JOBS,
    "device": one_of(("cpu", "cuda")),
}

PARTITIONED = ("reference_", "flag_rates_", "rank_error_")  # what a fit over partitions adds


class FairOutlierEnsemble(OutlierMixin, BaseEstimator):
    """One outlier score from many detectors that treats protected groups evenly.

    Detectors score the rows (``S``, n x k), a base ensemble combines them into a target ``t``, and the weights solve

        minimise  sum_i beta_i (s_i' w - t_i)^2  +  alpha w' C w

    where ``w' C w`` is the bias of the score ``S w`` between groups (Liu et al., *Fairness-aware Outlier Ensemble*).
    Groups are needed in `fit` alone; new rows are scored without them.

    Parameters
    ----------
    detectors : "paper", "diverse", "precomputed" or list, default="paper"
        ``"paper"``: LOF with 5 to 30 neighbours, k-th neighbour distance with 2 to 10, isolation forests of 25 to 175
        trees. ``"diverse"``: these, and how far out a row lies in each feature alone. A list of scikit-learn and PyOD
        detectors and of functions that return scores (higher = more outlying), mixed freely, also as
        ``(name, detector)``. ``"precomputed"``: X is the score matrix, higher = more outlying.
    combination : {"average", "maximum", "median", "aom", "moa", "greedy"} or callable, default="greedy"
        The base ensemble, or a function from the scaled (n, k) scores to n numbers.
    scaling : {"minmax", "rank", "zscore", "gaussian"}, default="minmax"
        How raw scores become comparable, learnt on the training rows.
    fairness : {"demographic_parity", "individual"}, dict, array or callable, default="demographic_parity"
        Equal mean scores of the groups, or equal scores of similar rows from different groups, or both by weight. Or
        a form of your own: a positive semidefinite k x k array C, or a function of the scaled scores (n, k) and the
        group codes (n,) that returns one; ask by ``alpha`` or ``flag_rate_ratio`` then.
    length_scale : "minmax", float or ("median", factor), default=("median", 0.05)
        Individual fairness: the distance at which likeness fades, in units of the median distance between rows of
        different groups, or as a number, on standardised features; ``"minmax"`` is the published similarity, under
        which nearly all pairs of rows count as alike.
    pairs : {"auto", "exact", "sampled"}, default="auto"
        Individual fairness: visit all pairs of rows, or a sample that leaves a relative error of 1 % (``pair_error_``);
        ``"auto"`` samples beyond 5e9 pairs, some 100,000 rows. A GPU visits all.
    bias_reduction : float in [0, 1], optional
        Share of the base score's scale-free bias to remove. 0.8 if none of the three is given.
    flag_rate_ratio : float in (0, 1], optional
        Least ratio of the groups' flag rates, for example 0.8 for the four-fifths rule.
    alpha : float, optional
        The paper's trade-off parameter itself. At most one of these three.
    target : {"unseen", "training"}, default="unseen"
        The rows on which a request is meant: unseen ones (cross-fitted), or the training rows, as in the paper.
    weighting : {"rank", "uniform"}, default="rank"
        ``beta_i = exp(rank_i / n)`` by the rank of the target, or 1.
    weights : {"free", "nonnegative", "simplex"}, default="free"
        Any detector weights, as in the paper, where many come out negative; weights of at least 0, which are easier
        to defend; or shares that sum to 1. Constrained weights leave more bias or cost more detection.
    min_group_size : int, default=2
        Groups with fewer rows are small.
    small_groups : {"error", "merge"}, default="error"
        Refuse small groups, or merge them into one.
    unknown_groups : {"error", "ignore"}, default="error"
        Rows whose group is missing: refuse them, or use them for the target alone.
    contamination : float in (0, 0.5], default=0.1
        Share of the training rows that `predict` flags.
    reference_size : int, default=100_000
        Rows that detectors are fitted on where X is a Dask collection; see `evenout.backends.out_of_core`.
    random_state : int, RandomState or None, default=None
        Seed of the forests, of open random states in given detectors, and of the folds.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores.
    device : {"cpu", "cuda"}, default="cpu"
        Where the named pools and individual fairness are computed; ``"cuda"`` needs the extra ``gpu``.

    Attributes
    ----------
    outlier_scores_ : array of shape (n,)
        The fair score of the training rows, higher = more outlying.
    target_ : array of shape (n,)
        The base ensemble's score of the training rows, in [0, 1].
    weights_ : array of shape (k,)
        Detector weights, in the order of ``detector_names_``.
    alpha_ : float
    bias_reduction_ : float
        The share of the base score's bias that is gone at ``alpha_``, on the rows that ``target`` names; NaN
        without a detectable gap.
    gap_detected_ : bool
        False if the base score's group gap is within sampling noise.
    pair_error_ : float
        Relative error of the individual-fairness form in its worst direction, in root mean square, where pairs were
        sampled; else 0.
    reference_, flag_rates_, rank_error_
        After a fit on a Dask collection alone; see `evenout.backends.out_of_core`.
    path_ : TradeoffPath
        Every other trade-off.
    detector_names_ : tuple of str
    group_names_ : tuple of str
    group_counts_ : array of int
    offset_ : float
        ``decision_function = score_samples - offset_``; negative means flagged.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only where X had string column names.

    Examples
    --------
    >>> from evenout import FairOutlierEnsemble
    >>> from evenout.datasets import load_dataset
    >>> data = load_dataset("breastw")
    >>> model = FairOutlierEnsemble(random_state=0).fit(data.X, sensitive_features=data.sensitive)
    >>> model.outlier_scores(data.X).shape
    (683,)
    """

    def __init__(
        self,
        detectors: Any = "paper",
        *,
        combination: str | Callable[[FloatArray], FloatArray] = "greedy",
        scaling: str = "minmax",
        fairness: str | Mapping[str, float] | FloatArray | OwnForm = "demographic_parity",
        length_scale: LengthScale = ("median", 0.05),
        pairs: Literal["auto", "exact", "sampled"] = "auto",
        bias_reduction: float | None = None,
        flag_rate_ratio: float | None = None,
        alpha: float | None = None,
        target: Target = "unseen",
        weighting: str = "rank",
        weights: Weights = "free",
        min_group_size: int = 2,
        small_groups: str = "error",
        unknown_groups: str = "error",
        contamination: float = 0.1,
        reference_size: int = 100_000,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.detectors = detectors
        self.combination = combination
        self.scaling = scaling
        self.fairness = fairness
        self.length_scale = length_scale
        self.pairs = pairs
        self.bias_reduction = bias_reduction
        self.flag_rate_ratio = flag_rate_ratio
        self.alpha = alpha
        self.target = target
        self.weighting = weighting
        self.weights = weights
        self.min_group_size = min_group_size
        self.small_groups = small_groups
        self.unknown_groups = unknown_groups
        self.contamination = contamination
        self.reference_size = reference_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:  # noqa: ARG002
        """Fit detectors, base ensemble and fair weights.

        Parameters
        ----------
        X : array or frame of shape (n, d), of Dask too
            Features without the protected attribute, or the scores if ``detectors="precomputed"``.
        y : ignored
        sensitive_features : array, series or frame of shape (n,) or (n, c)
            The protected group of each row; several columns make intersectional groups. Required.
        """
        check_parameters(self.get_params(deep=False), _RULES)
        if self.device != "cpu":
            gpu.check_device(self.device)
        request = Request.read(self.get_params(deep=False))
        if is_collection(X):
            from evenout.backends.out_of_core import fit_partitions

            engine = collection_engine(X, sensitive_features)
            return fit_partitions(self, engine, reference_size=self.reference_size)
        features = training_rows(self, X)
        groups = read_groups(
            sensitive_features,
            len(features),
            min_group_size=self.min_group_size,
            small_groups=self.small_groups,
            unknown_groups=self.unknown_groups,
            rows=X,
        )
        # Nothing is stored before everything has succeeded: a failed refit leaves the model as it was.
        seed = as_seed(self.random_state)
        model, S, t = learn_scores(
            self.detectors,
            features,
            scaling=self.scaling,
            combination=self.combination,
            seed=seed,
            n_threads=effective_n_jobs(self.n_jobs),
            device=self.device,
            sensitive_features=sensitive_features,
        )
        folds = assign_folds(S, groups.codes, count_folds(groups.codes), seed)
        cells, pair_error = self._cells(S, t, features, groups, folds, request.fairness, seed)
        path = request.path(cells)
        alpha = request.alpha_on(path, S, groups.codes, folds, len(groups.labels))
        self._store(path, alpha, S)
        self.pair_error_ = pair_error
        self._scores, self.target_, self.detector_names_ = model, t, model.pool.names
        self.group_names_, self.group_counts_ = groups.labels, groups.counts
        validate_data(self, X, skip_check_array=True)
        for name in PARTITIONED:  # of an earlier fit over partitions
            self.__dict__.pop(name, None)
        return self

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> IntArray:
        """Fit, and flag the training rows: -1 for outliers, 1 for inliers."""
        if is_collection(X):
            return self.fit(X, y, **params).predict(X, **params)
        return _labels(-self.fit(X, y, **params).outlier_scores_ - self.offset_)

    def outlier_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The fair score of new rows, shape (m,), higher = more outlying.

        Groups are needed only if a detector uses them itself, such as `FairLOF`; so in all methods for new rows.
        """
        if is_collection(X):
            return score_collection(self.outlier_scores, X, sensitive_features)
        return weigh(self._scaled_scores(X, sensitive_features), self.weights_)

    def base_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The base ensemble's score of new rows, on the scale of ``target_`` (new rows may leave [0, 1])."""
        if is_collection(X):
            return score_collection(self.base_scores, X, sensitive_features)
        return self._scores.base(self._scaled_scores(X, sensitive_features))

    def contributions(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Each detector's part ``w_j S_ij`` of a row's score, shape (m, k); rows sum to `outlier_scores`."""
        if is_collection(X):
            return score_collection(self.contributions, X, sensitive_features, columns=len(self.weights_))
        return self._scaled_scores(X, sensitive_features) * self.weights_

    def score_samples(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """scikit-learn's sign: the lower, the more outlying; ``-outlier_scores(X)``."""
        return -self.outlier_scores(X, sensitive_features=sensitive_features)

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """``score_samples(X) - offset_``: negative for rows that `predict` flags."""
        return self.score_samples(X, sensitive_features=sensitive_features) - self.offset_

    def predict(self, X: Any, *, sensitive_features: Any = None) -> IntArray:
        """-1 for outliers, 1 for inliers."""
        return _labels(self.decision_function(X, sensitive_features=sensitive_features))

    def _scaled_scores(self, X: Any, sensitive_features: Any = None) -> FloatArray:
        check_is_fitted(self)
        features = new_rows(self, X)
        threads = effective_n_jobs(self.n_jobs)
        return self._scores.scaled(
            features, n_threads=threads, sensitive_features=sensitive_features, device=self.device
        )

    def _cells(
        self,
        S: FloatArray,
        t: FloatArray,
        X: FloatArray,
        groups: Groups,
        folds: IntArray,
        fairness: Mapping[str, float],
        seed: int,
    ) -> tuple[Cells, float]:
        """Sums of the cells, and the error of their pair sums."""
        beta = rank_weights(t) if self.weighting == "rank" else np.ones(len(t))
        shape = {"n_groups": len(groups.labels), "n_folds": int(folds.max()) + 1}
        cells, error = collect_cells(S, t, beta, groups.codes, folds, **shape), 0.0
        if "own" in fairness:
            cells = replace(cells, own=own_form_of(self.fairness, S, groups.codes))
        if "individual" in fairness:
            pairs, error = similar_pairs(
                X,
                np.column_stack([S, t]),
                groups.codes,
                folds,
                **shape,
                length_scale=self.length_scale,
                method=self.pairs,
                seed=seed,
                n_threads=effective_n_jobs(self.n_jobs),
                device=self.device,
            )
            cells = replace(cells, pairs=pairs)
        return cells, error

    def _store(self, path: TradeoffPath, alpha: float, S: FloatArray) -> None:
        self.path_, self.alpha_ = path, alpha
        self.weights_ = path.weights(alpha)
        self.gap_detected_ = path.gap_detected
        self.bias_reduction_ = (
            float(path.reduction(alpha, self.target)) if self.gap_detected_ else float("nan")
        )
        self.outlier_scores_ = weigh(S, self.weights_)
        self.offset_ = -float(flag_threshold(self.outlier_scores_, self.contamination))


def _labels(decision: FloatArray) -> IntArray:
    return np.where(decision < 0, -1, 1)
