"""Feature rows, seeds and forms of the user's own, cleaned once at the door into what the inner code trusts."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from evenout.core.types import FloatArray, IntArray

OwnForm: TypeAlias = Callable[[FloatArray, IntArray], FloatArray]

LARGEST = 1e30  # squares of larger numbers leave the range in which distances are exact


def training_rows(estimator: Any, X: Any) -> FloatArray:
    """Training rows as a C-contiguous float64 array, without touching the estimator."""
    _refuse_sparse(X)
    rows = check_array(
        X, dtype=np.float64, order="C", ensure_min_samples=2, estimator=estimator, input_name="X"
    )
    return refuse_huge(rows)


def new_rows(estimator: Any, X: Any) -> FloatArray:
    """New rows likewise, with the columns that the fitted estimator knows."""
    _refuse_sparse(X)
    return refuse_huge(validate_data(estimator, X, dtype=np.float64, order="C", reset=False))


def as_seed(random_state: Any) -> int:
    """An integer is used as it is, so that detectors agree with scikit-learn's under the same seed."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def own_form_of(fairness: Any, S: FloatArray, groups: IntArray) -> FloatArray:
    """A fairness form that the user gave or computes from scores (n, k) and group codes (n,), checked."""
    k = S.shape[1]
    form = np.asarray(fairness(S, groups) if callable(fairness) else fairness, dtype=float)
    if form.shape != (k, k) or not np.isfinite(form).all():
        raise ValueError(
            f"fairness is a form of shape {form.shape}; {k} detectors need a finite array of shape ({k}, {k})"
        )
    form = (form + form.T) / 2
    least, most = np.linalg.eigvalsh(form)[[0, -1]]
    if least < -1e-9 * max(most, 0.0) - 1e-300:
        raise ValueError(
            f"fairness is a form with the eigenvalue {least:.3g}; it must be positive semidefinite"
        )
    return form


def _refuse_sparse(X: Any) -> None:
    if scipy.sparse.issparse(X):
        raise ValueError("X is sparse; dense data is needed: pass X.toarray()")


def refuse_huge(X: FloatArray) -> FloatArray:
    """X itself, unless it holds a value that distances cannot be computed with."""
    if np.abs(X).max(initial=0.0) > LARGEST:
        row, column = np.unravel_index(np.abs(X).argmax(), X.shape)
        raise ValueError(
            f"X has {X[row, column]:.3g} in row {row}, column {column}; rescale values above {LARGEST:g} in magnitude"
        )
    return X
