"""A fitted ensemble: scores of new rows, in memory and over partitions, and the same model elsewhere on its path."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout.core.exceptions import InputError
from evenout.core.types import FloatArray, IntArray
from evenout.fitting.beyond import score_partitions
from evenout.fitting.costs import cost_table
from evenout.fitting.request import Request
from evenout.fitting.result import FitResult
from evenout.fitting.updating import update_fit
from evenout.inputs.coder import Coder
from evenout.inputs.parameters import ENSEMBLE, check_parameters
from evenout.inputs.rows import new_rows
from evenout.metrics import read_labels
from evenout.pages import html_table
from evenout.partitions.dask_engine import is_collection, score_collection
from evenout.partitions.engines import Engine
from evenout.scikit import OutlierScorer

if TYPE_CHECKING:
    import pandas as pd

    from evenout.reasons import Explanation


class FittedScores(OutlierScorer, BaseEstimator):
    """What a fitted ensemble makes of rows.

    X is an array or frame of shape (m, d), of Dask too: then the scores are a lazy Dask array. ``sensitive_features``
    are needed only if a detector uses them itself, such as `FairLOF`.
    """

    _result: FitResult
    _store: Callable[[FitResult], None]
    get_params: Callable[..., dict[str, Any]]
    n_jobs: int | None
    device: str
    contamination: float

    def at(
        self,
        *,
        bias_reduction: float | None = None,
        flag_rate_ratio: float | None = None,
        alpha: float | None = None,
        confidence: float | None = None,
    ) -> Self:
        """The fitted model elsewhere on its path, at once: nothing is fitted again, and this model stays as it is.

        Parameters
        ----------
        bias_reduction, flag_rate_ratio, alpha, confidence
            As in the constructor; all that is not given is None.
        """
        check_is_fitted(self)
        asked = {
            "bias_reduction": bias_reduction,
            "flag_rate_ratio": flag_rate_ratio,
            "alpha": alpha,
            "confidence": confidence,
        }
        parameters = self.get_params(deep=False) | asked
        check_parameters(parameters, ENSEMBLE)
        other = copy(self).set_params(**asked)
        other._store(self._result.at(Request.read(parameters)))
        return other

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._fitted_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._fitted_html()
        return bundle

    def _fitted_html(self) -> str:
        """What the fit has come to, under scikit-learn's own picture; nothing before a fit."""
        if not hasattr(self, "_result"):
            return ""
        found, path = self._result, self._result.path
        alpha = found.choice.alpha
        rows = [["rows", f"{found.n_rows:,}", ""], ["alpha", "0", f"{alpha:.4g}"]]
        if path.cross.whole.n_groups >= 2:
            before, after = path.target_bias("unseen"), float(path.bias(alpha))
            rows.append(["bias on unseen rows", f"{before:.4f}", f"{after:.4f}"])
        names, rates = found.names, found.flag_rates
        rows += [
            [f"flagged: {name}", *(f"{x:.1%}" for x in pair)] for name, pair in zip(names[:12], rates, strict=False)
        ]
        rows += [[f"... {len(names) - 12} more groups", "", ""]] if len(names) > 12 else []
        return html_table(["fitted", "base score", "fair score"], rows)

    def update(self, X: Any, *, sensitive_features: Any = None) -> Self:
        """Fold new rows into the fit, and solve the weights again; the detectors stay as they are.

        The result is that of solving on all rows, with scaling, base ensemble, row weights and folds as they were
        learnt at the fit: the same request, alpha chosen anew. Where the detectors' scores of the new rows lie
        elsewhere than at the fit, an `evenout.AgedDetectorsWarning` says that a refit is due. Not for individual
        fairness, whose pairs do not add, nor for groups other than crossed ones.

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
        parameters = self.get_params(deep=False)
        rows, n_threads = new_rows(self, X), effective_n_jobs(self.n_jobs)
        self._store(update_fit(self._result, Request.read(parameters), parameters, rows, sensitive_features, n_threads))
        return self

    def outlier_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The fair score of new rows, shape (m,), higher = more outlying."""
        if is_collection(X):
            return score_collection(self.outlier_scores, X, sensitive_features)
        S = self._columns(X, sensitive_features)
        return self._result.mixture.apply(S, self._result.scores.base(S))

    def base_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The base ensemble's score of new rows, on the scale of ``target_`` (new rows may leave [0, 1])."""
        if is_collection(X):
            return score_collection(self.base_scores, X, sensitive_features)
        return self._result.scores.base(self.detector_scores(X, sensitive_features=sensitive_features))

    def detector_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """``S``: the scaled score of new rows by each of the ``detector_names_``, shape (m, k)."""
        if is_collection(X):
            k = self._result.scores.n_detectors
            return score_collection(self.detector_scores, X, sensitive_features, columns=k)
        return self._columns(X, sensitive_features, resemblance=False)

    def resemblance(self, X: Any) -> FloatArray:
        """How much new rows resemble each group, ``P(g | x) / P(g)``, shape (m, G), where that was learnt."""
        check_is_fitted(self)
        model = self._result.scores.resemblance
        if model is None:
            raise InputError("no resemblance was learnt: {correction='weights'} does not go by it")
        return model.of(new_rows(self, X))

    def _columns(self, X: Any, sensitive_features: Any, *, resemblance: bool = True) -> FloatArray:
        """All columns beside the target: detectors and, where it was learnt, resemblance."""
        if not hasattr(self, "_result"):
            check_is_fitted(self)
        rows, scores = new_rows(self, X), self._result.scores
        scores = scores if resemblance else replace(scores, resemblance=None)
        machine: dict[str, Any] = {"n_threads": effective_n_jobs(self.n_jobs), "device": self.device}
        return scores.scaled(rows, sensitive_features=sensitive_features, **machine)

    def contributions(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """What each detector adds to a row's score and, last, the base score: (m, k + 1); rows sum to the score.

        Where the score is corrected by resemblance, what that of each group adds stands before the base score.
        """
        if is_collection(X):
            return score_collection(self.contributions, X, sensitive_features, columns=self._result.S.shape[1] + 1)
        S = self._columns(X, sensitive_features)
        return self._result.mixture.parts(S, self._result.scores.base(S))

    def costs(self, y: Any = None, *, alphas: FloatArray | None = None) -> "pd.DataFrame":
        """What every step of ``path_`` costs at the threshold, one row per alpha.

        Parameters
        ----------
        y : array of shape (n,), optional
            1 for a known outlier among the training rows, else 0; adds ``auc``, ``average_precision`` and
            ``precision_flagged``.
        alphas : array of shape (m,), optional
            By default 0, the path's grid and the place of this model.

        Returns
        -------
        DataFrame
            ``alpha``; on rows that nothing has seen, ``flag_rate_ratio``, ``list_kept``, the share of the base score's
            flagged list that is still flagged, and ``mean_base_score``, that of the flagged.
        """
        check_is_fitted(self)
        found = self._result
        if found.path.cross.n_folds == 0:
            raise InputError("fewer than two groups were compared, so there is no path to go along")
        if alphas is None:
            alphas = np.unique(np.r_[0.0, found.path.grid(), found.choice.alpha])
        labels = None if y is None else read_labels(y, len(found.target)).astype(float)
        return cost_table(found.path, found, found.seen.share(self.contamination), np.atleast_1d(alphas), labels)

    def explain(
        self,
        X: Any,
        n_reasons: int = 3,
        *,
        baseline: str = "alike",
        sensitive_features: Any = None,
        rows: str = "rows",
    ) -> "Explanation":
        """Why rows stand out, in their own features, before and after fairness; see `evenout.reasons.explain`.

        Of Dask collections, what ``explain(...).to_frame()`` gives, lazy.
        """
        from evenout.reasons import explain, explain_collection

        told = explain_collection if is_collection(X) else explain
        return told(self, X, n_reasons, baseline=baseline, sensitive_features=sensitive_features, rows=rows)

    def score_partitions(self, engine: Engine, scores_to: Path, *, coder: Coder | None = None) -> IntArray:
        """Write the scores of all rows of an engine's partitions; rows and flagged rows by group, shape (G + 1, 2).

        ``coder`` names the groups where a fit has made them of columns, such as bands of an age.
        """
        check_is_fitted(self)
        validate_data(self, engine.header, reset=False, skip_check_array=True)
        found, names = self._result, self._result.groups.labels
        told = found.scores, found.mixture, found.threshold, names, scores_to, coder, self.device
        return score_partitions(engine, *told)
