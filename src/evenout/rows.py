"""Feature rows, seeds and forms of the user's own, cleaned once at the door into what the inner code trusts."""

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from evenout.core.types import FloatArray, IntArray
from evenout.groups import Groups

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


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a frame; None where X has none, or not all are text."""
    names = list(getattr(X, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def as_seed(random_state: Any) -> int:
    """An integer is used as it is, so that detectors agree with scikit-learn's under the same seed."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def read_clusters(clusters: Any, n_rows: int) -> IntArray | None:
    """Codes 0, 1, ... of the clusters of rows; None if each row stands for itself."""
    import pandas as pd

    if clusters is None:
        return None
    if np.ndim(clusters) != 1 or len(clusters) != n_rows:
        raise ValueError(
            f"clusters must hold one value per row, shape ({n_rows},), got shape {np.shape(clusters)}"
        )
    codes, _ = pd.factorize(np.asarray(pd.Series(clusters), dtype=object))
    if (codes < 0).any():
        raise ValueError(
            f"clusters has missing values in {(codes < 0).sum()} of {n_rows} rows (first: row {(codes < 0).argmax()}); "
            "give these rows a value of their own"
        )
    return codes.astype(np.intp)


def read_sample_weight(sample_weight: Any, n_rows: int, fairness: Collection[str]) -> FloatArray | None:
    """Weights of the rows, 0 or more and not all 0; None if all count alike."""
    if sample_weight is None:
        return None
    if "individual" in fairness:
        raise ValueError(
            "sample_weight does not go with fairness='individual', which compares rows; leave it out"
        )
    weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must hold one number per row, shape ({n_rows},), got shape {weights.shape}"
        )
    if (weights < 0).any() or not weights.any():
        raise ValueError("sample_weight has negative numbers or zeros alone; give numbers of 0 or more")
    return weights


def refuse_lone_clusters(groups: Groups, clusters: IntArray | None, sample_weight: FloatArray | None) -> None:
    """Raise an error for a group that one cluster alone, or one row of positive weight, stands for."""
    counted = np.ones(len(groups.codes), dtype=bool) if sample_weight is None else sample_weight > 0
    units = np.arange(len(groups.codes)) if clusters is None else clusters
    for code, label in enumerate(groups.labels):
        n = len(np.unique(units[counted & (groups.codes == code)]))
        if n < 2:
            kind = "rows" if clusters is None else "clusters"
            raise ValueError(
                f"group {label!r} has {n} {kind} of positive weight; at least 2 are needed to tell a gap from chance: "
                f"give other weights or finer clusters, or leave its rows out"
            )


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
