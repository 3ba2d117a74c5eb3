"""Feature rows, seeds, clusters and weights, cleaned once at the door into what the inner code trusts."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from evenout.core.membership import Membership
from evenout.core.notions import Notion, pairs_notion
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import InputError, Message

LARGEST = 1e30  # squares of larger numbers leave the range in which distances are exact
LABELS = Message("{@labels}")
_TRUTHS = {"yes": 1.0, "y": 1.0, "true": 1.0, "t": 1.0, "no": 0.0, "n": 0.0, "false": 0.0, "f": 0.0}


def training_rows(estimator: Any, X: Any) -> FloatArray:
    """Training rows as a C-contiguous float64 array, without touching the estimator."""
    validate_data(BaseEstimator(), X, skip_check_array=True)  # refuses columns of mixed name types
    with _clear_errors(estimator, X):
        rows = check_array(X, dtype=np.float64, order="C", ensure_min_samples=2, estimator=estimator, input_name="X")
    return refuse_huge(rows)


def new_rows(estimator: Any, X: Any) -> FloatArray:
    """New rows likewise, with the columns that the fitted estimator knows."""
    names = getattr(estimator, "feature_names_in_", None)
    as_fitted = type(X) is np.ndarray if names is None else np.array_equal(getattr(X, "columns", ()), names)
    rows = plain_rows(X) if as_fitted else None
    if rows is not None and rows.shape[1] == estimator.n_features_in_:
        return rows  # the checks below take longer than scoring one row
    with _clear_errors(estimator, X):
        rows = validate_data(estimator, X, dtype=np.float64, order="C", reset=False)
    return refuse_huge(rows)


def plain_rows(X: Any) -> FloatArray | None:
    """Fast path: X as a C-contiguous float64 array if it is an array or frame of valid numbers alone, else None."""
    if type(X) not in (np.ndarray, pd.DataFrame) or X.ndim != 2 or not X.size:
        return None
    kinds = [X.dtype] if type(X) is np.ndarray else X.dtypes
    if not all(isinstance(kind, np.dtype) and kind.kind in "fiu" for kind in kinds):
        return None
    rows = np.ascontiguousarray(X, dtype=np.float64)
    return rows if rows.min() >= -LARGEST and rows.max() <= LARGEST else None  # False for NaN


@contextmanager
def _clear_errors(estimator: Any, X: Any) -> Iterator[None]:
    """Refuse sparse data; name the columns of a frame that hold text or have gaps, and the encoder for them."""
    if scipy.sparse.issparse(X):
        raise ValueError("X is sparse; dense data is needed: pass X.toarray()")
    try:
        yield
    except (TypeError, ValueError):
        X = as_pandas(X)
        if not hasattr(X, "iloc") or getattr(X, "ndim", 0) != 2:
            raise
        wrong = [str(name) for i, name in enumerate(X.columns) if not _is_complete(X.iloc[:, i])]
        if not wrong:
            raise
        raise InputError(
            "{@X} has text, dates or gaps in column {named}{more}; encode it: make_pipeline(TableEncoder(), {model}())",
            named=", ".join(map(repr, wrong[:5])), more=f" and {len(wrong) - 5} more" if len(wrong) > 5 else "",
            model=type(estimator).__name__,
        ) from None  # fmt: skip


def _is_complete(column: Any) -> bool:
    """Whether all values are numbers."""
    try:
        return bool(np.isfinite(column.to_numpy(dtype=np.float64, na_value=np.nan)).all()) and column.dtype.kind != "M"
    except (TypeError, ValueError):
        return False


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a frame; None where X has none, or not all are text."""
    names = list(getattr(X, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def column_name(values: Any) -> str | None:
    """Name of a column of a frame; None where it has none."""
    name = getattr(values, "name", None)
    return name if isinstance(name, str) and name else None


def as_pandas(values: Any) -> Any:
    """A frame or series of another library, such as polars, as pandas; anything else as it is."""
    if not hasattr(values, "to_pandas"):
        return values
    converted = values.to_pandas()
    return converted.rename(None) if getattr(converted, "name", None) == "" else converted  # polars: no name is ""


def on_index(values: FloatArray, X: Any) -> Any:
    """Values as a series on the index of a frame X; as they are beside an array."""
    return pd.Series(values, index=X.index) if isinstance(getattr(X, "index", None), pd.Index) else values


def as_seed(random_state: Any) -> int:
    """A seed; an integer is used as it is, so that detectors agree with scikit-learn's under the same seed."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    if not isinstance(random_state, int | np.integer) or not 0 <= random_state < 2**32:
        raise ValueError(
            f"random_state={random_state!r} is not allowed; use an integer from 0 to 4294967295, a RandomState or None"
        )
    return int(random_state)


def read_numbers(values: Any, name: str) -> FloatArray:
    """Finite numbers, one per row, shape (n,); an error names the first row without one."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        row, value = next((i, value) for i, value in enumerate(values) if not is_number(value))
        raise InputError(
            "{$name} must be numbers, one per row; got {value!r} (first: {#row}); correct it, or leave the row out",
            name=name, value=str(value), row=row,
        ) from None  # fmt: skip
    if numbers.ndim != 1:
        raise InputError(
            "{$name} must have one number per row, shape (n,), got shape {shape!r}",
            name=name, shape=numbers.shape,
        )  # fmt: skip
    if not len(numbers):
        raise InputError("{$name} has no rows; give one number per row", name=name)
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise InputError(
            "{$name} has missing or infinite values in {bad} of {n_rows} rows (first: {#row}); "
            "leave these rows out",
            name=name, bad=bad.sum(), n_rows=len(bad), row=bad.argmax(),
        )  # fmt: skip
    if np.abs(numbers).max() > LARGEST:
        row = int(np.abs(numbers).argmax())
        raise InputError(
            "{$name} has the value {value:.3g} (first: {#row}); rescale values above {most:g} in magnitude",
            name=name, value=numbers[row], row=row, most=LARGEST,
        )  # fmt: skip
    return numbers


def is_number(value: Any) -> bool:
    """Whether `float` reads the value."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def read_clusters(clusters: Any, n_rows: int) -> IntArray:
    """Codes of clusters by value, such as a person's number: rows with the same value belong together.

    >>> read_clusters(["p7", "p3", "p7"], 3)
    array([1, 0, 1])
    """
    shape = getattr(clusters, "shape", (len(clusters),))
    if isinstance(clusters, str) or shape != (n_rows,):
        raise ValueError(f"clusters must hold one value per row, shape ({n_rows},), got shape {shape}")
    try:
        codes, values = pd.factorize(np.asarray(pd.Series(clusters), dtype=object))
    except TypeError:  # a value without a hash
        raise InputError("{@clusters} holds lists or other nested values; give one value per row") from None
    if (codes < 0).any():
        raise InputError(
            "{@clusters} has missing values in {unknown} of {n_rows} rows (first: {#row}); "
            "give a row that belongs to no other a value of its own",
            unknown=(codes < 0).sum(), n_rows=n_rows, row=(codes < 0).argmax(),
        )  # fmt: skip
    # By name, so that the order of the rows does not matter.
    return np.argsort(np.argsort([str(value) for value in values], kind="stable"))[codes]


def read_sample_weight(sample_weight: Any, n_rows: int, fairness: Collection[Notion] = ()) -> FloatArray:
    """Weights of the rows, 0 or more and not all 0."""
    if name := pairs_notion(fairness):
        raise ValueError(f"sample_weight does not go with fairness={name!r}, which compares rows; leave it out")
    weights = read_numbers(sample_weight, "sample_weight")
    if len(weights) != n_rows:
        raise ValueError(f"sample_weight must hold one number per row, shape ({n_rows},), got shape {weights.shape}")
    if (weights < 0).any() or not weights.any():
        raise InputError("{@sample_weight} has negative numbers or zeros alone; give numbers of 0 or more")
    return weights


def numbers_or_gaps(column: pd.Series) -> pd.Series:
    """The column as numbers, missing where a value is not a number."""
    try:
        return pd.to_numeric(column.astype(object), errors="coerce")
    except OverflowError:  # a whole number that is too large to be a float
        small = [np.nan if isinstance(value, int) and abs(value) > LARGEST else value for value in column]
        return pd.to_numeric(pd.Series(small, column.index, dtype=object), errors="coerce")


def label_numbers(labels: Any) -> tuple[FloatArray, BoolArray]:
    """Labels of shape (n,) as 1 and 0, and which of them are neither; missing ones are NaN.

    Truth values and the words yes, no, true and false are read, in any case.

    >>> label_numbers(["Yes", "no", True, 0, "1", None, "ja"])[0].tolist()
    [1.0, 0.0, 1.0, 0.0, 1.0, nan, nan]
    """
    column = pd.Series(np.asarray(labels, dtype=object))
    values = numbers_or_gaps(column).to_numpy(float, copy=True)
    unread = np.isnan(values) & column.notna().to_numpy()
    values[unread] = [_TRUTHS.get(str(text).strip().casefold(), np.nan) for text in column[unread]]
    return values, ~np.isin(values, (0.0, 1.0)) & column.notna().to_numpy()


def read_outcomes(labels: Any, n_rows: int | None = None, *, gaps: bool = True, name: Message = LABELS) -> FloatArray:
    """1 for a known outlier, 0 for a known inlier, NaN for a row of unknown outcome, unless ``gaps`` are refused."""
    column = np.asarray(labels, dtype=object)
    if column.ndim != 1 or n_rows not in (None, len(column)):
        raise InputError(
            "{name} must hold one label per row, shape {wanted}, got shape {got!r}",
            name=name, wanted=f"({'n' if n_rows is None else n_rows},)", got=column.shape,
        )  # fmt: skip
    values, wrong = label_numbers(column)
    refused = wrong if gaps else wrong | np.isnan(values)
    if refused.any():
        row = int(refused.argmax())
        raise InputError(
            "{name} is {found} in {#row}; labels must be 0, or 1 for an outlier (or no and yes){missing}",
            name=name, found=repr(str(column[row])) if wrong[row] else "empty", row=row,
            missing=", or missing" if gaps else "",
        )  # fmt: skip
    return values


def read_known_labels(
    labels: Any, label_propensity: Any, n_rows: int, *, learn: bool
) -> tuple[FloatArray, FloatArray | None] | None:
    """Labels, 1, 0 or NaN where nobody knows, and the chances with which they became known; None if there are none."""
    refuse_lone_propensity(labels, label_propensity)
    values = None if labels is None else read_outcomes(labels, n_rows)
    if learn:
        require_labels(None if values is None else int((~np.isnan(values)).sum()))
    if values is None:
        return None
    return values, None if label_propensity is None else read_propensity(label_propensity, n_rows)


def require_labels(n_known: int | None) -> None:
    """Refuse to learn from no labels, or from a column without any."""
    if n_known is None:
        raise InputError("{learn=} needs {@labels}: 1 for an outlier, 0 for none, missing where unknown", learn=True)
    if n_known == 0:
        raise InputError("{@labels} has no label at all; give some, or leave {@learn} out")


def refuse_lone_propensity(labels: Any, label_propensity: Any) -> None:
    """Refuse the chances of labels that are not there."""
    if labels is None and label_propensity is not None:
        raise InputError("{@label_propensity} goes with {@labels}, which are missing; give both, or none")


def read_propensity(label_propensity: Any, n_rows: int) -> FloatArray:
    """The chance with which the label of each row became known, shape (n,)."""
    chances = np.full(n_rows, label_propensity) if np.ndim(label_propensity) == 0 else label_propensity
    chances = check_array(chances, ensure_2d=False, dtype=float, input_name="label_propensity", ensure_min_samples=0)
    if chances.shape != (n_rows,) or not ((chances > 0) & (chances <= 1)).all():
        raise InputError(
            "{@label_propensity} must be a chance above 0 and at most 1, or hold one per row, ({n},)", n=n_rows
        )
    return chances


def refuse_lone_clusters(
    members: Membership, names: Sequence[str], clusters: IntArray | None, sample_weight: FloatArray | None
) -> None:
    """Refuse a group of fewer than two clusters, or two rows, of positive weight."""
    n_rows = members.weights.shape[0]
    counted = np.ones(n_rows, dtype=bool) if sample_weight is None else sample_weight > 0
    kind, units = ("rows", np.arange(n_rows)) if clusters is None else ("clusters", clusters)
    for code, label in enumerate(names):
        rows, _ = members.of(code)
        n = len(np.unique(units[rows[counted[rows]]]))
        if n < 2:
            raise ValueError(
                f"group {label!r} has {n} {kind} of positive weight; at least 2 are needed to tell a gap from chance: "
                f"give other weights or finer clusters, or leave its rows out"
            )


def refuse_huge(X: FloatArray) -> FloatArray:
    """X itself, unless it holds a value that distances cannot be computed with."""
    if np.abs(X).max(initial=0.0) > LARGEST:
        row, column = np.unravel_index(np.abs(X).argmax(), X.shape)
        raise ValueError(
            f"X has {X[row, column]:.3g} in row {row}, column {column}; rescale values above {LARGEST:g} in magnitude"
        )
    return X
