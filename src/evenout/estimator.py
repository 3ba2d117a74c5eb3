"""The fair outlier ensemble as a scikit-learn estimator."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout import gpu
from evenout.core.notions import Notion
from evenout.core.parity import OwnForm
from evenout.core.path import Target
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.adapt import OutlierScorer
from evenout.exceptions import InputError
from evenout.fitting.fit import fit_rows
from evenout.fitting.passes import score_partitions
from evenout.fitting.result import FitResult, attribute_bias
from evenout.fitting.rows import EXACT_ROWS, Partitions, TrainingRows, open_partitions
from evenout.fitting.settings import Settings
from evenout.fitting.update import update_fit
from evenout.groups.model import Coder
from evenout.groups.rules import Groups, Resemblance, TakesSettings
from evenout.metrics import average_precision, read_labels, roc_auc
from evenout.out_of_core.dask_engine import collection_engine, is_collection, score_collection
from evenout.out_of_core.engines import Engine
from evenout.outcome import Outcome
from evenout.pages import html_table
from evenout.tables.parameters import without_old_names
from evenout.tables.rows import as_pandas, as_seed, new_rows, on_index

if TYPE_CHECKING:
    import pandas as pd

    from evenout.planning.plan import InvestigationPlan
    from evenout.reasons import Explanation


class FairOutlierEnsemble(TakesSettings, OutlierScorer, BaseEstimator):
    """One outlier score from many detectors that treats protected groups evenly.

    Detectors score the rows (``S``, n x k), a base ensemble combines them into a target ``t``, and the fair score is
    ``y = t + S v`` with the weights that solve

        minimise  sum_i beta_i (s_i' v)^2  +  alpha form(t + S v)

    where the form is the bias of the score between groups. Without bias to remove the score is ``t`` itself. The
    problem as published (Liu et al., *Fairness-aware Outlier Ensemble*) is ``y = S w``; see `paper`. Groups are needed
    in `fit` alone; new rows are scored without them.

    Parameters
    ----------
    detectors : "default", "diverse", "paper", "precomputed" or list, default="default"
        ``"paper"``: LOF with 5 to 30 neighbours, k-th neighbour distance with 2 to 10, isolation forests of 25 to 175
        trees. ``"diverse"``: these, and each feature alone. ``"default"``: forest, distances, local density, and each
        feature alone. A list of scikit-learn and PyOD detectors and of functions that return scores (higher = more
        outlying), mixed freely, also as ``(name, detector)``. ``"precomputed"``: X is the score matrix.
    combination : {"average", "maximum", "median", "aom", "moa", "greedy"} or callable, default="average"
        The base ensemble, or a function of the scaled (n, k) scores. "diverse" and "default" average by family.
    scaling : {"minmax", "rank", "zscore", "gaussian"}, default="minmax"
        How raw scores become comparable, learnt on the training rows.
    standardize : bool, default=True
        Whether named pools use standardised features (`evenout.detectors.units`), which makes them independent of
        units. The paper does not.
    fairness : str, Individual, Notion, dict, array or callable, default="demographic_parity"
        ``"demographic_parity"``: equal mean scores of the groups. ``"individual"``, or `Individual` for details: equal
        scores of similar rows from different groups. With ``labels``, equal mean scores of known outliers
        (``"equal_opportunity"``), of known inliers (``"equal_false_alarms"``), or both (``"equalized_odds"``). Several
        by weight, as a dict. Or a form of your own: a positive semidefinite k x k array C, or a function of the scaled
        scores (n, k) and the group codes (n,) that returns one; ask by ``alpha`` or ``flag_rate_ratio`` then.
    bias_reduction : float in [0, 1], optional
        Share of the base score's scale-free bias to remove. 0.8 if none of the three is given.
    flag_rate_ratio : float in (0, 1], optional
        Least ratio of the groups' flag rates, lowest to highest. Solved for at the threshold itself: of all rules that
        ``correction`` allows, the one that flags the largest base scores. Searched for along the path with
        ``judged_on="training"``, with a constraint that leaves no weight free, and for notions other than those of
        group means.
    alpha : float, optional
        The trade-off parameter itself: ``alpha=model.alpha_`` gives the same model. At most one of these three.
    confidence : float in [0.5, 1), optional
        Confidence with which ``bias_reduction`` must be reached: takes the smallest alpha for which a bound that is
        valid along the whole path says so.
    judged_on : {"unseen", "training"}, default="unseen"
        The rows that a request is about: unseen ones, or the training rows, as in the paper.
    correction : str or Resemblance, default="weights"
        How a score moves away from the base score. ``"weights"``: by the weights of the detectors. Many of them come
        out negative; ``"nonnegative"`` ones are easier to defend, and ``"simplex"`` also fixes their sum: to that of
        the base score where that is linear in the detectors, else to 1 with the base score's own. Constrained weights
        leave more bias or cost more detection. ``"resemblance"``: by how much a row resembles each group,
        ``P(g | x) / P(g)``, as a classifier learns it from X, which is the smallest change of all that do not use the
        group. Who looks like a member of a group is treated a little like one: see `BlindRepair`, and
        ``docs/blind-or-aware.md``. ``"both"``: by free weights and resemblance; `Resemblance` has the details.
        ``"published"``: the paper's ``y = S w``.
    weighting : {"rank", "uniform"}, default="rank"
        ``beta_i = exp(rank_i / n)`` by the rank of the target, or 1.
    groups : Groups, optional
        Which groups are compared: numbers such as age, several columns crossed or one by one, small and missing
        groups; see `Groups`. By default ``Groups()``.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the training rows that `predict` flags, or how many of them.
    learn : bool, default=False
        Let the base score learn from the ``labels`` given to `fit`; ``label_weight_`` says how much was learnt. Labels
        without information mostly leave it as it is. Labels carry the bias of those who gave them: see ``label_gap_``.
    reference_size : int, default=100_000
        Rows in memory, on which detectors are fitted, where X is a Dask collection or a folder. ``outlier_scores_`` and
        ``target_`` are those of these rows then.
    random_state : int, RandomState or None, default=None
        Seed of the forests, of unset random states in given detectors, and of the folds.
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
        Detector weights, in the order of ``detector_names_``; they include those of the base score where that is linear
        in the detectors ("average", "greedy").
    lambda_ : dict of str to float
        What is taken off for resembling each group, where ``correction`` goes by that; the sum is 0 if each row is in
        one group.
    group_known_ : dict of str to float
        Share of the variance of each group's indicator that the features predict on unseen rows, where ``correction``
        goes by resemblance: 0 if they say nothing of the group, and 1 if they determine it.
    alpha_ : float
        The place on the path; NaN where flag rates were solved for: then ``path_`` leads straight from the base score
        to the rule that was found, alpha from 0 to 1.
    bias_reduction_ : float
        Share of the base score's bias that is gone at ``alpha_``, on the rows that ``judged_on`` names; NaN without a
        detectable gap. On unseen rows it is estimated on held-out rows.
    bias_reduction_interval_ : tuple of float
        Its 95 % interval on unseen rows; NaN without a gap and with ``judged_on="training"``.
    request_met_ : bool
        Whether the estimates support the request: at most 0.05 of it is missing, on average. True for a given alpha.
        With ``correction`` by resemblance and for flag rates never with a score that says little, as in `BlindRepair`.
    outcome_ : Outcome
        The result of the request: ``status``, ``aim``, ``reached``, ``interval``, and ``words`` for people; see
        `evenout.outcome.Outcome`.
    gap_detected_ : bool
        False if the base score's group gap, or its gap in flag rates if ``flag_rate_ratio`` is asked for, is within
        sampling noise; the scores are the base scores then, unless alpha was given.
    pair_error_ : float
        Relative error of the individual-fairness form in its worst direction, in root mean square, where pairs were
        sampled; else 0.
    flag_rates_ : array of shape (G, 2)
        Share of each group that the base and the fair score flag, among all rows of the fit.
    rank_error_ : float
        Error of the ranks behind the row weights, as a share of the rows; 0 in memory.
    flag_rate_ratio_ : float
        Ratio of the groups' flag rates, lowest to highest, on the rows that ``judged_on`` names. Within strata of
        ``given``, of groups with ten flagged rows or more, as expected.
    flag_rate_ratio_interval_ : tuple of float
        Its 95 % interval.
    flag_price_ : dict of str to float
        On unseen rows: ``mean_score_before`` and ``mean_score``, the mean base score among the flagged;
        ``list_kept``, the share of the flagged that stay flagged; and, where flag rates were solved for, the other
        optimum: ``most_list_kept`` is what a rule of that ratio can keep at most, and ``mean_score_most_kept`` what it
        flags then, which is more ordinary rows.
    attribute_bias_ : dict of str to (before, after, error)
        Bias of base and fair score for each attribute that is compared by itself, on the rows that ``judged_on`` names,
        and the standard error of the change; empty where only crossed groups are compared.
    path_ : TradeoffPath
        Every other trade-off.
    effective_pairs_ : float
        How many pairs of rows individual fairness rests on; NaN without it.
    detector_names_, group_names_ : tuple of str
    group_counts_ : array of int
    n_rows_ : int
        Rows of the fit, more than ``reference_size`` over partitions. After an update that has followed a drift, the
        rows since, which all attributes are about then.
    left_out_groups_ : dict of str to int
        Groups too small to be measured, and their rows.
    label_weight_ : float
        How much of the target was learnt from labels, in [0, 1].
    label_gap_ : tuple of float
        Scale-free bias of the base score on the training rows before and after it has learnt from labels. If it rises,
        a `BiasedLabelsWarning` says so.
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

    _lessons: tuple[Any, ...]  # outcomes of plans
    label_weight_: float

    def __init__(
        self,
        detectors: Any = "default",
        *,
        combination: str | Callable[[FloatArray], FloatArray] = "average",
        scaling: str = "minmax",
        standardize: bool = True,
        fairness: str | Notion | Mapping[Any, float] | FloatArray | OwnForm = "demographic_parity",
        bias_reduction: float | None = None,
        flag_rate_ratio: float | None = None,
        alpha: float | None = None,
        confidence: float | None = None,
        judged_on: Target = "unseen",
        correction: str | Resemblance = "weights",
        weighting: str = "rank",
        groups: Groups | None = None,
        contamination: float = 0.1,
        learn: bool = False,
        reference_size: int = 100_000,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.detectors = detectors
        self.combination = combination
        self.scaling = scaling
        self.standardize = standardize
        self.fairness = fairness
        self.bias_reduction = bias_reduction
        self.flag_rate_ratio = flag_rate_ratio
        self.alpha = alpha
        self.confidence = confidence
        self.judged_on = judged_on
        self.correction = correction
        self.weighting = weighting
        self.groups = groups
        self.contamination = contamination
        self.learn = learn
        self.reference_size = reference_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The published settings: 18 detectors on raw features, greedy, ``y = S w``, requests on training rows."""
        published: dict[str, Any] = {
            "detectors": "paper", "standardize": False, "combination": "greedy", "correction": "published",
            "judged_on": "training",
        }  # fmt: skip
        return cls(**(published | changes))

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        labels: Any = None,
        label_propensity: Any = None,
        given: Any = None,
        clusters: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Fit detectors, base ensemble and fair weights.

        Parameters
        ----------
        X : array or frame (of pandas, polars or Dask) of shape (n, d)
            Features without the protected attribute, or the scores if ``detectors="precomputed"``.
        y : ignored
            As in scikit-learn's outlier detectors; known labels are ``labels``.
        sensitive_features : array, series or frame of shape (n,) or (n, c)
            The protected group of each row; several columns make intersectional groups. Required. Or the
            `evenout.GroupProbabilities` of each row.
        labels : array of shape (n,), optional
            1 for a known outlier, 0 for a known inlier, missing where nobody knows; for ``learn=True``, and for notions
            of fairness that need them.
        label_propensity : float, or array of shape (n,), optional
            The probability with which each row was investigated; a number where rows were drawn at random. Without it,
            labels of some rows say nothing about rows that nobody investigated, and notions that compare rows of known
            outcome state nothing about these.
        given : array, series or frame of shape (n,) or (n, c), optional
            What may justify a difference: rows are compared only with rows alike in these columns. Numbers are cut at
            quantiles into five parts. Strata count by their rows; a row with a missing value is in none.
        clusters : array of shape (n,), optional
            Which rows belong together, such as several of one person. Folds, errors and tests go by cluster.
        sample_weight : array of shape (n,), optional
            How many rows each row counts for in misfit, bias and errors. Detectors count each row once.
        """
        settings = self._settings()
        if y is not None and labels is None and (self.learn or any(each.needs_labels for each in settings.fairness)):
            raise InputError("{@labels} is missing: y is ignored, as in all outlier detectors; pass labels=y")
        if is_collection(X):
            if clusters is not None or sample_weight is not None:
                raise ValueError("clusters and sample_weight need rows in memory; leave them out for Dask collections")
            return self.fit_partitions(
                collection_engine(X, sensitive_features, given, labels, label_propensity),
                sufficient=getattr(sensitive_features, "sufficient", False),
            )
        settings = replace(settings, seed=as_seed(self.random_state))
        rows = TrainingRows.read(
            self, X, settings, sensitive_features=sensitive_features, clusters=clusters, sample_weight=sample_weight,
            given=given, labels=labels, label_propensity=label_propensity,
        )  # fmt: skip
        return self._take(fit_rows(rows, settings), X)

    def fit_partitions(
        self, engine: Engine, *, exact_rows: int = EXACT_ROWS, scores_to: Path | None = None, sufficient: bool = False
    ) -> Self:
        """Fit on all rows of an engine's partitions, such as a folder of Parquet files; see ``docs/scale.md``.

        Parameters
        ----------
        engine : Engine
            See `evenout.out_of_core.parquet.open_folder`.
        exact_rows : int
            Up to so many rows, units and the ranks behind beta are exact. Beyond, they come from sketches, and
            ``rank_error_`` is what ranks may be off, as a share of the rows.
        scores_to : Path, optional
            An empty folder, reachable by all workers, for one file of scores per partition.
        sufficient : bool
            Of probabilities of groups; see `evenout.GroupProbabilities`.
        """
        settings = replace(self._settings(), seed=as_seed(self.random_state))
        with engine.scratch() as scratch:
            rows, more = open_partitions(Partitions(engine, scratch, exact_rows, scores_to, sufficient), settings)
            self._take(fit_rows(rows, settings, more), engine.header)
        if scores_to is not None and more is None:
            self.score_partitions(engine, scores_to, coder=None if rows.grouping is None else rows.grouping.coder)
        return self

    def _settings(self) -> Settings:
        settings = Settings.read(self.get_params(deep=False))
        if settings.device != "cpu":  # of this machine, which fits the reference; workers check their own
            gpu.check_device(settings.device)
        return settings

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> IntArray:
        """Fit, and flag the training rows: -1 for outliers, 1 for inliers."""
        if is_collection(X):
            return self.fit(X, y, **params).predict(X, sensitive_features=params.get("sensitive_features"))
        return super().fit_predict(X, y, **params)

    def update(self, X: Any, *, sensitive_features: Any = None) -> Self:
        """Fold new rows into the fit, and solve for the weights again; the detectors stay as they are.

        The result is that of solving on all rows, with scaling, base ensemble, row weights and folds of the first fit:
        the same request, alpha chosen anew. If the latest rows of a group differ from the earlier ones by more than
        chance explains, only the latest rows are solved on, with a `DriftWarning`, and ``outcome_`` is about rows like
        these; if they are too few for that, ``outcome_`` is ``"unknown"``. Scores and flag rates are compared group by
        group, with a false-alarm rate of 5 % for all updates since the fit together. If the detectors' scores of the
        new rows lie elsewhere than at the fit, an `AgedDetectorsWarning` says that a refit is due. Individual fairness,
        whose pairs do not add, and groups other than crossed ones cannot be updated.

        Parameters
        ----------
        X : array or frame of shape (m, d)
            New rows: those of the fit are counted already.
        sensitive_features : array, series or frame of shape (m,) or (m, c)
            Their groups, all known from the fit.
        """
        check_is_fitted(self)
        if is_collection(X):
            raise InputError("an update takes rows in memory; give the partitions of {@X} one after the other")
        return self._take(
            update_fit(self._result, Settings.read(self.get_params(deep=False)), new_rows(self, X), sensitive_features)
        )

    def at(
        self,
        *,
        bias_reduction: float | None = None,
        flag_rate_ratio: float | None = None,
        alpha: float | None = None,
        confidence: float | None = None,
    ) -> Self:
        """Return the fitted model at another place of its path, at once: nothing is refitted, this model is unchanged.

        Parameters
        ----------
        bias_reduction, flag_rate_ratio, alpha, confidence
            As in the constructor; all that is not given is None.

        Notes
        -----
        A model that was saved without the groups of its rows (`evenout.persistence.save_model`) moves to another
        ``bias_reduction`` or ``alpha``, but knows no flag rates there: they are NaN. The rest it refuses.
        """
        check_is_fitted(self)
        asked = {
            "bias_reduction": bias_reduction,
            "flag_rate_ratio": flag_rate_ratio,
            "alpha": alpha,
            "confidence": confidence,
        }
        settings, result, nan = Settings.read(self.get_params(deep=False) | asked), self._result, float("nan")
        if result.drift is not None:  # the figures of all rows are known for the request of the update only
            result = replace(result, drift=replace(result.drift, reached=nan, interval=(nan, nan)))
        return copy(self).set_params(**asked)._take(result.at(settings))

    def learn_from(self, plan: Any, outcomes: Any, *, sensitive_features: Any = None) -> Self:
        """Fit again with the outcomes of a plan of `plan`, and of all plans before it, as labels.

        Labels are weighted by the probability with which rows were chosen, as far as that leaves enough of them
        (`evenout.core.stacking`). Outcomes that speak against what would be learnt leave the score unchanged, and are
        kept for the next time; ``lesson_`` says what was done. The model that has learnt has ``learn=True``, as after
        ``set_params(learn=True)``: the fit, a clone and a saved file agree. A file keeps what was learnt, not the
        outcomes: after `load_model`, give them to `plan` as ``known``.

        Parameters
        ----------
        plan : InvestigationPlan, or several
            Rows of the fit, or new ones: the fit is on the rows of all plans.
        outcomes : series, or one for each plan
            1 for an outlier, 0 for none, on the index of ``plan.to_frame()``; some may be missing.
        sensitive_features : array, series or frame, optional
            Groups of all rows of the plan; needed unless they were given to `plan`, or the rows are those of the fit.
        """
        from evenout.planning.learning import Trial, add_rounds, training_table

        check_is_fitted(self)
        lessons = add_rounds(self._lessons, plan, outcomes, sensitive_features)
        trial, table = Trial.of(self, lessons, self._lessons), training_table(self, lessons)
        if trial is not None and trial.worse:
            self.lesson_ = (
                f"left as it was: on the new outcomes, before they were known, AUC {trial.before:.2f}; "
                f"learning would make it {trial.after:.2f}"
            )
        else:
            learner = clone(self).set_params(learn=True).fit(**table)
            self.learn = True
            self._take(learner._result)
            n_labels = np.count_nonzero(~np.isnan(table["labels"]))
            self.lesson_ = f"learnt from {n_labels:,} outcomes: label weight {self.label_weight_:.2f}"
        self._lessons = tuple(lessons)
        return self

    def outlier_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Fair scores of new rows, shape (m,), higher = more outlying.

        Parameters
        ----------
        X : array or frame (of pandas, polars or Dask) of shape (m, d)
            Of Dask, the scores are a lazy Dask array; this holds for all methods that score rows.
        sensitive_features : array, series or frame of shape (m,) or (m, c), optional
            Needed only if a detector uses the group itself, such as `FairLOF`.
        """
        return self._scored(lambda fit, S: fit.mixture.apply(S, fit.scores.base(S)), X, sensitive_features)

    def base_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The base ensemble's scores of new rows, on the scale of ``target_`` (new rows may leave [0, 1])."""
        return self._scored(lambda fit, S: fit.scores.base(S), X, sensitive_features, resemblance=False)

    def detector_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """``S``: the scaled scores of new rows by each of the ``detector_names_``, shape (m, k)."""
        return self._scored(
            lambda _, S: S, X, sensitive_features, columns=lambda fit: fit.scores.n_detectors, resemblance=False
        )

    def contributions(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Parts of the scores of new rows: one of each detector and, last, the base score, shape (m, k + 1).

        They sum to the score. With a correction by resemblance, the parts of the groups precede the base score.
        """
        return self._scored(
            lambda fit, S: fit.mixture.parts(S, fit.scores.base(S)),
            X,
            sensitive_features,
            columns=lambda fit: fit.S.shape[1] + 1,
        )

    def _scored(
        self,
        score: Callable[[FitResult, FloatArray], FloatArray],
        X: Any,
        sensitive_features: Any = None,
        *,
        columns: Callable[[FitResult], int] | None = None,
        resemblance: bool = True,
    ) -> FloatArray:
        """``score(fit, S)`` for the scaled scores S of rows, and their resemblance where it was learnt; lazy for Dask.

        ``columns`` is the number of columns of the result, None for shape (m,).
        """
        if not hasattr(self, "_result"):  # check_is_fitted alone takes longer than scoring one row
            check_is_fitted(self)
        fit = self._result
        if is_collection(X):
            of_rows = partial(self._scored, score, resemblance=resemblance)
            return score_collection(of_rows, X, sensitive_features, columns=columns and columns(fit))
        model = fit.scores if resemblance else replace(fit.scores, resemblance=None)
        return score(
            fit,
            model.scaled(
                new_rows(self, X),
                n_threads=effective_n_jobs(self.n_jobs),
                sensitive_features=sensitive_features,
                device=self.device,
            ),
        )

    def resemblance(self, X: Any) -> FloatArray:
        """Resemblance of new rows to each group, ``P(g | x) / P(g)``, shape (m, G), if it was learnt."""
        check_is_fitted(self)
        model = self._result.scores.resemblance
        if model is None:
            raise InputError("no resemblance was learnt; fit with {correction='resemblance'} or 'both'")
        return model.of(new_rows(self, X))

    @without_old_names
    def costs(self, labels: Any = None, *, alphas: FloatArray | None = None) -> "pd.DataFrame":
        """A table of the costs of fairness at the threshold, one row per alpha of ``path_``.

        Parameters
        ----------
        labels : array of shape (n,), optional
            1 for a known outlier among the training rows, else 0; adds ``auc``, ``average_precision`` and
            ``precision_flagged``.
        alphas : array of shape (m,), optional
            By default 0, the path's grid and the alpha of this model.

        Returns
        -------
        DataFrame
            ``alpha``; on held-out rows, each fold by what was solved without it, ``flag_rate_ratio``, ``list_kept``,
            the share of the base score's flagged list that is still flagged, and ``mean_base_score``, that of the
            flagged. At the end of a path that was solved for even flags the counted ratio is a little better than new
            rows can expect, which ``flag_rate_ratio_`` states.
        """
        import pandas as pd

        check_is_fitted(self)
        fit = self._result
        fit.require_rows("a table of costs")
        if fit.path.cross.n_folds == 0:
            raise InputError("fewer than two groups were compared, so there is no path to go along")
        if alphas is None:
            alphas = np.unique(np.r_[0.0, fit.path.grid(), fit.choice.alpha])
        known = None if labels is None else read_labels(labels, len(fit.target)).astype(float)
        rows, path, alphas = fit.seen, fit.path, np.atleast_1d(alphas)
        V = path.fold_weights(np.r_[0.0, alphas], "unseen")
        flagged = rows.flagged(V, rows.share(self.contamination))
        before, after = flagged[:, :1], flagged[:, 1:]
        counted = np.maximum(after.sum(axis=0), 1)
        columns = {
            "alpha": alphas,
            "flag_rate_ratio": rows.ratio(after),
            "list_kept": (after & before).sum(axis=0) / max(before.sum(), 1),
            "mean_base_score": rows.t @ after / counted,
        }
        if known is not None:
            scores = [path.mixture(alpha).apply(fit.S, fit.target) for alpha in alphas]
            columns["auc"] = np.array([roc_auc(known, y) for y in scores])
            columns["average_precision"] = np.array([average_precision(known, y) for y in scores])
            columns["precision_flagged"] = (known == 1).astype(float) @ after / counted
        return pd.DataFrame(columns)

    def explain(
        self, X: Any, n_reasons: int = 3, *, baseline: str = "alike", sensitive_features: Any = None, rows: str = "rows"
    ) -> "Explanation":
        """Explain why rows stand out, by their features, before and after fairness; see `evenout.reasons.explain`.

        For Dask collections, a lazy frame of the form of ``explain(...).to_frame()``.
        """
        from evenout.reasons import explain, explain_collection

        explained = explain_collection if is_collection(X) else explain
        return explained(self, X, n_reasons, baseline=baseline, sensitive_features=sensitive_features, rows=rows)

    def plan(
        self,
        X: Any,
        budget: int = 200,
        explore: float = 0.1,
        sensitive_features: Any = None,
        random_state: Any = None,
        *,
        known: Any = None,
    ) -> "InvestigationPlan":
        """Plan which rows to investigate next: the highest fair scores, and some of all other rows by chance.

        Parameters
        ----------
        X : array or frame of shape (n, d)
        budget, explore, sensitive_features, random_state
            See `InvestigationPlan.of`.
        known : series or array, optional
            Outcomes of rows that were investigated before, and are not again. By default those that `learn_from` was
            given for the same X.
        """
        from evenout.planning.plan import InvestigationPlan, reasons_by

        if is_collection(X):
            raise InputError("a plan takes rows in memory; plan by scores: InvestigationPlan.of(scores)")
        X = as_pandas(X)
        if known is None:
            known = next((lesson.labels for lesson in self._lessons if lesson.same_rows(X)), None)
        plan = InvestigationPlan.of(
            on_index(self.outlier_scores(X, sensitive_features=sensitive_features), X),
            budget=budget,
            explore=explore,
            sensitive_features=sensitive_features,
            random_state=random_state,
            known=known,
        )
        given = X, sensitive_features
        return replace(
            plan, promised=self.flag_rate_ratio, reasons=partial(reasons_by, copy(self), *given), source=given
        )

    def score_partitions(self, engine: Engine, scores_to: Path, *, coder: Coder | None = None) -> IntArray:
        """Write the scores of all rows of an engine's partitions; rows and flagged rows by group, shape (G + 1, 2).

        ``coder`` names the groups where a fit has made them of columns, such as bands of an age.
        """
        check_is_fitted(self)
        validate_data(self, engine.header, reset=False, skip_check_array=True)
        return score_partitions(engine, self._result, scores_to, coder, self.device)

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._fitted_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._fitted_html()
        return bundle

    def _fitted_html(self) -> str:
        """A table of the main results for notebooks, below scikit-learn's own picture; empty before a fit."""
        if not hasattr(self, "_result"):
            return ""
        path, alpha, names = self.path_, self._result.choice.alpha, self.group_names_
        rows = [["rows", f"{self.n_rows_:,}", ""], ["alpha", "0", f"{alpha:.4g}"]]
        if path.cross.whole.n_groups >= 2:
            rows.append(["bias on unseen rows", f"{path.target_bias('unseen'):.4f}", f"{float(path.bias(alpha)):.4f}"])
        rows += [
            [f"flagged: {name}", f"{before:.1%}", f"{after:.1%}"]
            for name, (before, after) in zip(names[:12], self.flag_rates_, strict=False)
        ]
        rows += [[f"... {len(names) - 12} more groups", "", ""]] if len(names) > 12 else []
        return html_table(["fitted", "base score", "fair score"], rows)

    def _take(self, result: FitResult, X: Any = None) -> Self:
        """Set the learned attributes from a fit, new or saved; with X, its column names too.

        Nothing is stored before a fit has succeeded: a failed refit leaves the model as it was.
        """
        if X is not None:
            validate_data(self, X, skip_check_array=True)
            self._lessons = ()
        path, choice, sums, stack = result.path, result.choice, result.path.cross.whole.sums, result.scores.stack
        self._result, self.path_, fair = result, path, result.mixture.apply(result.S, result.target)
        self.alpha_ = choice.alpha if path.rule is None else float("nan")
        self.weights_ = path.weights(choice.alpha)[: result.scores.n_detectors]
        self.lambda_, self.group_known_ = result.prices, result.known
        self.flag_rate_ratio_, self.flag_rate_ratio_interval_ = result.flag_ratio.value, result.flag_ratio.interval
        by_flags = self.flag_rate_ratio is not None and path.cross.whole.n_groups >= 2
        self.gap_detected_ = choice.found_gap(changed=choice.alpha != 0) if by_flags else path.gap_detected
        self.bias_reduction_, self.bias_reduction_interval_ = choice.reached, choice.interval
        self.outcome_ = Outcome.of(
            choice, result.flag_ratio, self.get_params(deep=False), path, result.drift, result.learnt
        )
        self.request_met_ = choice.met
        self.attribute_bias_ = attribute_bias(path, choice.alpha, self.judged_on)
        self.pair_error_ = float(sums.get("individual.error", np.zeros(1))[0])
        self.effective_pairs_ = float(sums.get("individual.pairs", np.full(1, np.nan))[0])
        self.target_, self.outlier_scores_, self.offset_ = result.target, fair, -result.threshold
        self.flag_rates_, self.flag_price_, self.rank_error_ = result.flag_rates, result.flag_price, result.rank_error
        self.group_names_, self.group_counts_ = result.names, result.counts
        self.left_out_groups_, self.n_rows_ = result.groups.left_out, result.n_rows
        self.detector_names_ = result.scores.pool.names
        self.label_weight_ = 0.0 if stack is None else stack.label_weight
        self.label_gap_ = result.learnt.before, result.learnt.after
        return self
