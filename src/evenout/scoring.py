"""A fitted ensemble: scores of new rows, in memory and over partitions, and the same model elsewhere on its path."""

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout.core.exceptions import InputError
from evenout.core.types import FloatArray, IntArray
from evenout.fitting.beyond import score_partitions
from evenout.fitting.request import Request
from evenout.fitting.result import FitResult
from evenout.inputs.parameters import ENSEMBLE, check_parameters
from evenout.inputs.rows import new_rows
from evenout.partitions.dask_engine import is_collection, score_collection
from evenout.partitions.engines import Engine
from evenout.scikit import OutlierScorer

if TYPE_CHECKING:
    from evenout.reasons import Explanation


class FittedScores(OutlierScorer):
    """What a fitted ensemble makes of rows.

    X is an array or frame of shape (m, d), of Dask too: then the scores are a lazy Dask array. ``sensitive_features``
    are needed only if a detector uses them itself, such as `FairLOF`.
    """

    _result: FitResult
    _store: Callable[[FitResult], None]
    get_params: Callable[..., dict[str, Any]]
    n_jobs: int | None
    device: str

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
        if flag_rate_ratio is not None and self._result.n_rows > len(self._result.target):
            raise InputError(
                "{flag_rate_ratio=:g} is searched for on rows in memory, which has {n} of {n_rows} rows; "
                "give {@bias_reduction} or {@alpha} instead",
                flag_rate_ratio=flag_rate_ratio, n=len(self._result.target), n_rows=self._result.n_rows,
            )  # fmt: skip
        other = copy(self).set_params(**asked)
        other._store(self._result.at(Request.read(parameters)))
        return other

    def outlier_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The fair score of new rows, shape (m,), higher = more outlying."""
        if is_collection(X):
            return score_collection(self.outlier_scores, X, sensitive_features)
        S = self.detector_scores(X, sensitive_features=sensitive_features)
        return self._result.mixture.apply(S, self._result.scores.base(S))

    def base_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """The base ensemble's score of new rows, on the scale of ``target_`` (new rows may leave [0, 1])."""
        if is_collection(X):
            return score_collection(self.base_scores, X, sensitive_features)
        return self._result.scores.base(self.detector_scores(X, sensitive_features=sensitive_features))

    def detector_scores(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """``S``: the scaled score of new rows by each of the ``detector_names_``, shape (m, k)."""
        if is_collection(X):
            return score_collection(self.detector_scores, X, sensitive_features, columns=self._result.S.shape[1])
        check_is_fitted(self)
        rows = new_rows(self, X)
        machine: dict[str, Any] = {"n_threads": effective_n_jobs(self.n_jobs), "device": self.device}
        return self._result.scores.scaled(rows, sensitive_features=sensitive_features, **machine)

    def contributions(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """What each detector adds to a row's score and, last, the base score: (m, k + 1); rows sum to the score."""
        if is_collection(X):
            return score_collection(self.contributions, X, sensitive_features, columns=self._result.S.shape[1] + 1)
        S = self.detector_scores(X, sensitive_features=sensitive_features)
        return self._result.mixture.parts(S, self._result.scores.base(S))

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

    def score_partitions(self, engine: Engine, scores_to: Path) -> IntArray:
        """Write the scores of all rows of an engine's partitions; rows and flagged rows by group, shape (G + 1, 2)."""
        check_is_fitted(self)
        validate_data(self, engine.header, reset=False, skip_check_array=True)
        found = self._result
        return score_partitions(engine, found.scores, found.mixture, found.threshold, found.groups.labels, scores_to)
