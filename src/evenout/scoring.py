"""Scores of new rows by a fitted ensemble, in memory and over partitions."""

from pathlib import Path
from typing import Any

from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout.core.types import FloatArray, IntArray
from evenout.fitting.beyond import score_partitions
from evenout.fitting.result import FitResult
from evenout.inputs.coder import Coder
from evenout.inputs.rows import new_rows
from evenout.partitions.dask_engine import is_collection, score_collection
from evenout.partitions.engines import Engine
from evenout.scikit import OutlierScorer


class FittedScores(OutlierScorer):
    """What a fitted ensemble makes of rows.

    X is an array or frame of shape (m, d), of Dask too: then the scores are a lazy Dask array. ``sensitive_features``
    are needed only if a detector uses them itself, such as `FairLOF`.
    """

    _result: FitResult
    n_jobs: int | None
    device: str

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

    def score_partitions(self, engine: Engine, scores_to: Path, *, coder: Coder | None = None) -> IntArray:
        """Write the scores of all rows of an engine's partitions; rows and flagged rows by group, shape (G + 1, 2).

        ``coder`` names the groups where a fit has made them of columns, such as bands of an age.
        """
        check_is_fitted(self)
        validate_data(self, engine.header, reset=False, skip_check_array=True)
        found = self._result
        names = found.groups.labels
        return score_partitions(engine, found.scores, found.mixture, found.threshold, names, scores_to, coder)
