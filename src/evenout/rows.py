"""Feature rows and seeds, cleaned once at the door into what the inner code trusts."""

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from evenout.core.types import FloatArray

_LARGEST = 1e30  # squares of larger numbers leave the range in which distances are exact


def training_rows(estimator: Any, X: Any) -> FloatArray:
    """Training rows as a C-contiguous float64 array, without touching the estimator."""
    _refuse_sparse(X)
    rows = check_array(
        X, dtype=np.float64, order="C", ensure_min_samples=2, estimator=estimator, input_name="X"
    )
    return _refuse_huge(rows)


def new_rows(estimator: Any, X: Any) -> FloatArray:
    """New rows likewise, with the columns that the fitted estimator knows."""
    _refuse_sparse(X)
    return _refuse_huge(validate_data(estimator, X, dtype=np.float64, order="C", reset=False))


def as_seed(random_state: Any) -> int:
    """An integer is used as it is, so that detectors agree with scikit-learn's under the same seed."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _refuse_sparse(X: Any) -> None:
    if scipy.sparse.issparse(X):
        raise ValueError("X is sparse; dense data is needed: pass X.toarray()")


def _refuse_huge(X: FloatArray) -> FloatArray:
    if np.abs(X).max(initial=0.0) > _LARGEST:
        row, column = np.unravel_index(np.abs(X).argmax(), X.shape)
        raise ValueError(
            f"X has {X[row, column]:.3g} in row {row}, column {column}; rescale values above {_LARGEST:g} in magnitude"
        )
    return X
