"""The fair outlier ensemble as a scikit-learn estimator: parameters, checks, scores of new rows."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout.backends import gpu
from evenout.backends.dask_backend import collection_engine, is_collection, score_collection
from evenout.core.exceptions import NoGapWarning
from evenout.core.path import Target
from evenout.core.problem import Method, Weights
from evenout.core.similarity import DEFAULT_LENGTH, LengthScale
from evenout.core.types import FloatArray, IntArray
from evenout.fitting import FitResult, TrainingRows, fit_rows
from evenout.groups import read_groups, warn_left_out
from evenout.parameters import ENSEMBLE, check_parameters
from evenout.request import Request
from evenout.rows import (
    OwnForm,
    as_seed,
    column_names,
    new_rows,
    read_clusters,
    read_sample_weight,
    refuse_lone_clusters,
    training_rows,
)

PARTITIONED = ("reference_", "flag_rates_", "rank_error_")  # what a fit over partitions adds


class FairOutlierEnsemble(OutlierMixin, BaseEstimator):
    """One outlier score from many detectors that treats protected groups evenly.

    Detectors score the rows (``S``, n x k), a base ensemble combines them into a target ``t``, and the fair score is
    ``y = t + S v`` with the weights that solve

        minimise  sum_i beta_i (s_i' v)^2  +  alpha form(t + S v)

    where the form is the bias of the score between groups. Without bias to remove the score is ``t`` itself. The
    problem as published (Liu et al., *Fairness-aware Outlier Ensemble*) is ``y = S w``; see `paper`. Groups are needed
    in `fit` alone; new rows are scored without them.

    Parameters
    ----------
    detectors : "paper", "diverse", "default", "precomputed" or list, default="paper"
        ``"paper"``: LOF with 5 to 30 neighbours, k-th neighbour distance with 2 to 10, isolation forests of 25 to 175
        trees. ``"diverse"``: these, and each feature alone. ``"default"``: forest, distances, local density, and each
        feature alone. A list of scikit-learn and PyOD detectors and of functions that return scores (higher = more
        outlying), mixed freely, also as ``(name, detector)``. ``"precomputed"``: X is the score matrix.
    standardize : bool, default=True
        Named pools see features in spreads (`evenout.detectors.units`): no unit matters. False is the paper's way.
    combination : {"average", "maximum", "median", "aom", "moa", "greedy"} or callable, default="average"
        The base ensemble, or a function of the scaled (n, k) scores. "diverse" and "default" average by family.
    scaling : {"minmax", "rank", "zscore", "gaussian"}, default="minmax"
        How raw scores become comparable, learnt on the training rows.
    fairness : {"demographic_parity", "individual"}, dict, array or callable, default="demographic_parity"
        Equal mean scores of the groups, or equal scores of similar rows from different groups, or both by weight. Or
        a form of your own: a positive semidefinite k x k array C, or a function of the scaled scores (n, k) and the
        group codes (n,) that returns one; ask by ``alpha`` or ``flag_rate_ratio`` then.
    length_scale : "minmax", float or ("median", factor), default=("median", 0.1)
        Individual fairness: the distance at which likeness fades, in units of the median distance between rows of
        different groups, or as a number, on standardised features; ``"minmax"`` is the published similarity, under
        which nearly all pairs of rows count as alike.
    pairs : {"auto", "exact", "sampled"}, default="auto"
        Individual fairness: visit all pairs of rows, or a sample that leaves a relative error of 1 % (``pair_error_``);
        ``"auto"`` samples beyond 5e9 pairs, some 100,000 rows. A GPU visits all.
    bias_reduction : float in [0, 1], optional
        Share of the base score's scale-free bias to remove. 0.8 if none of the three is given.
    flag_rate_ratio : float in (0, 1], optional
        Least ratio of the groups' flag rates, lowest to highest.
    alpha : float, optional
        The trade-off parameter itself: ``alpha=model.alpha_`` gives the same model. At most one of these three.
    confidence : float in [0.5, 1), optional
        Ask that ``bias_reduction`` is reached with this confidence: the smallest alpha is taken for which it holds,
        by a bound that is valid along the whole path.
    target : {"unseen", "training"}, default="unseen"
        The rows on which a request is meant: unseen ones, or the training rows, as in the paper.
    method : {"anchored", "published"}, default="anchored"
        ``y = t + S v``, or the paper's ``y = S w``.
    weighting : {"rank", "uniform"}, default="rank"
        ``beta_i = exp(rank_i / n)`` by the rank of the target, or 1.
    weights : {"free", "nonnegative", "simplex"}, default="free"
        Any detector weights, as in the paper, where many come out negative; weights of at least 0, which are easier
        to defend; or such weights whose sum is fixed: what they sum to in the base score where that is linear in the
        detectors, else 1 with the base score's own. Constrained weights leave more bias or cost more detection.
    min_group_size : int, default=30
        Groups with fewer rows are small.
    small_groups : {"leave_out", "merge", "error"}, default="leave_out"
        Leave small groups out of the comparison, with a warning that names them: their rows are used for the target
        alone. Or merge them into one group, or refuse them.
    unknown_groups : {"error", "ignore"}, default="error"
        Rows whose group is missing: refuse them, or use them for the target alone.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the training rows that `predict` flags, or how many of them.
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
        Detector weights, in the order of ``detector_names_``; with what they weigh in the base score where that is
        linear in the detectors ("average", "greedy").
    alpha_ : float
    bias_reduction_ : float
        The share of the base score's bias that is gone at ``alpha_``, on the rows that ``target`` names; NaN
        without a detectable gap. On unseen rows it is an estimate from rows that nothing in the model has seen.
    bias_reduction_interval_ : tuple of float
        Its 95 % interval on unseen rows; NaN without a gap and with ``target="training"``.
    request_met_ : bool
        Whether what is stated supports the request: at most 0.05 of it is missing, on average. True for a given alpha.
    gap_detected_ : bool
        False if the base score's group gap, or its gap in flag rates where ``flag_rate_ratio`` is asked for, is
        within sampling noise; the scores are the base scores then, unless alpha was given.
    pair_error_ : float
        Relative error of the individual-fairness form in its worst direction, in root mean square, where pairs were
        sampled; else 0.
    reference_, flag_rates_, rank_error_
        After a fit on a Dask collection alone; see `evenout.backends.out_of_core`.
    path_ : TradeoffPath
        Every other trade-off.
    effective_pairs_ : float
        How many pairs of rows individual fairness rests on; NaN without it.
    detector_names_ : tuple of str
    group_names_ : tuple of str
    group_counts_ : array of int
    left_out_groups_ : dict of str to int
        Groups too small to be measured, and their rows.
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
        standardize: bool = True,
        combination: str | Callable[[FloatArray], FloatArray] = "average",
        scaling: str = "minmax",
        fairness: str | Mapping[str, float] | FloatArray | OwnForm = "demographic_parity",
        length_scale: LengthScale = DEFAULT_LENGTH,
        pairs: Literal["auto", "exact", "sampled"] = "auto",
        bias_reduction: float | None = None,
        flag_rate_ratio: float | None = None,
        alpha: float | None = None,
        confidence: float | None = None,
        target: Target = "unseen",
        method: Method = "anchored",
        weighting: str = "rank",
        weights: Weights = "free",
        min_group_size: int = 30,
        small_groups: str = "leave_out",
        unknown_groups: str = "error",
        contamination: float = 0.1,
        reference_size: int = 100_000,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.detectors = detectors
        self.standardize = standardize
        self.combination = combination
        self.scaling = scaling
        self.fairness = fairness
        self.length_scale = length_scale
        self.pairs = pairs
        self.bias_reduction = bias_reduction
        self.flag_rate_ratio = flag_rate_ratio
        self.alpha = alpha
        self.confidence = confidence
        self.target = target
        self.method = method
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

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The published settings: 18 detectors on raw features, greedy, ``y = S w``, requests on training rows."""
        published: dict[str, Any] = {"detectors": "paper", "standardize": False, "combination": "greedy"}
        published |= {"method": "published", "target": "training"}
        return cls(**(published | changes))

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        sensitive_features: Any = None,
        clusters: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Fit detectors, base ensemble and fair weights.

        Parameters
        ----------
        X : array or frame of shape (n, d), of Dask too
            Features without the protected attribute, or the scores if ``detectors="precomputed"``.
        y : ignored
        sensitive_features : array, series or frame of shape (n,) or (n, c)
            The protected group of each row; several columns make intersectional groups. Required.
        clusters : array of shape (n,), optional
            Which rows belong together, such as several of one person. Folds, errors and tests go by cluster.
        sample_weight : array of shape (n,), optional
            How many rows each row counts for in misfit, bias and errors. Detectors see each row once.
        """
        check_parameters(self.get_params(deep=False), ENSEMBLE)
        if self.device != "cpu":
            gpu.check_device(self.device)
        request = Request.read(self.get_params(deep=False))
        if is_collection(X):
            return self._fit_collection(X, sensitive_features, clusters, sample_weight)
        features = training_rows(self, X)
        groups = read_groups(
            sensitive_features,
            len(features),
            min_group_size=self.min_group_size,
            small_groups=self.small_groups,
            unknown_groups=self.unknown_groups,
            rows=X,
        )
        warn_left_out(groups, self.min_group_size)
        codes = read_clusters(clusters, len(features))
        weight = read_sample_weight(sample_weight, len(features), request.fairness)
        refuse_lone_clusters(groups, codes, weight)
        rows = TrainingRows(features, groups, sensitive_features, codes, weight, column_names(X))
        # Nothing is stored before everything has succeeded: a failed refit leaves the model as it was.
        parameters, seed = self.get_params(deep=False), as_seed(self.random_state)
        result = fit_rows(rows, request, parameters, seed=seed, n_threads=effective_n_jobs(self.n_jobs))
        self._store(result)
        self.group_names_, self.group_counts_ = groups.labels, groups.counts
        self.left_out_groups_ = groups.left_out
        validate_data(self, X, skip_check_array=True)
        for name in PARTITIONED:  # of an earlier fit over partitions
            self.__dict__.pop(name, None)
        return self

    def _fit_collection(self, X: Any, sensitive_features: Any, clusters: Any, sample_weight: Any) -> Self:
        from evenout.backends.out_of_core import fit_partitions

        if clusters is not None or sample_weight is not None:
            raise ValueError(
                "clusters and sample_weight need rows in memory; leave them out for Dask collections"
            )
        engine = collection_engine(X, sensitive_features)
        return fit_partitions(self, engine, reference_size=self.reference_size)

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
        S = self._scaled_scores(X, sensitive_features)
        return self._mixture.apply(S, self._scores.base(S))

    def base_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The base ensemble's score of new rows, on the scale of ``target_`` (new rows may leave [0, 1])."""
        if is_collection(X):
            return score_collection(self.base_scores, X, sensitive_features)
        return self._scores.base(self._scaled_scores(X, sensitive_features))

    def contributions(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """What each detector adds to a row's score and, last, the base score: (m, k + 1); rows sum to the score."""
        if is_collection(X):
            return score_collection(self.contributions, X, sensitive_features, columns=len(self.weights_) + 1)
        S = self._scaled_scores(X, sensitive_features)
        return self._mixture.parts(S, self._scores.base(S))

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

    def _store(self, result: FitResult) -> None:
        self._scores, self.path_ = result.scores, result.path
        self.alpha_ = result.choice.alpha
        self.weights_ = result.path.weights(self.alpha_)
        self._mixture = result.path.mixture(self.alpha_)
        by_flags = self.flag_rate_ratio is not None and result.path.cross.whole.n_groups >= 2
        found = result.choice.kind is not NoGapWarning
        self.gap_detected_ = found if by_flags else result.path.gap_detected
        self.bias_reduction_ = result.choice.reached
        self.bias_reduction_interval_ = result.choice.interval
        self.request_met_ = result.choice.met
        self.pair_error_, self.effective_pairs_ = result.pair_error, result.effective_pairs
        self.target_, self.outlier_scores_ = result.target, result.outlier_scores
        self.offset_ = -result.threshold
        self.detector_names_ = result.scores.pool.names


def _labels(decision: FloatArray) -> IntArray:
    return np.where(decision < 0, -1, 1)
