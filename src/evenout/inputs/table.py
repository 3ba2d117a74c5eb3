"""From a table of numbers and text to feature rows, learnt once, so that every later table is encoded alike."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from evenout.core.exceptions import UnknownCategoryWarning, warn
from evenout.core.types import AnyArray, FloatArray
from evenout.inputs.files import require_columns
from evenout.inputs.rows import LARGEST

if TYPE_CHECKING:
    import pandas as pd

MAX_CATEGORIES = 200  # different texts in a column; more are hardly categories
_CODES = 20  # different numbers in a column of text that may still be names, such as codes
_NUMBERS = ("boolean", "integer", "floating", "mixed-integer-float", "decimal")
_TEXTS = ("string", "categorical", "mixed-integer")


class TableEncoder(TransformerMixin, BaseEstimator):
    """Numbers with gaps filled by the median, text one-hot encoded: frames of any column types in, float rows out.

    Missing text is a category of its own, ``"missing"``. Truth values are 0 and 1. Text that was not in the training
    table becomes a row of zeros and is counted in an `UnknownCategoryWarning`. Dates and nested values are refused.

    Attributes
    ----------
    medians_ : dict of str to float
        By name of a column of numbers.
    categories_ : dict of str to list of str
        By name of a column of text, sorted.
    transformer_ : ColumnTransformer
        scikit-learn's imputers and encoder: the numbers first, then the text.
    feature_names_in_ : array of str
    n_features_in_ : int

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [30.0, None, 50.0], "home": ["own", "rent", None]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'home=missing', 'home=own', 'home=rent']
    >>> encoder.transform(table).tolist()
    [[30.0, 0.0, 1.0, 0.0], [40.0, 0.0, 0.0, 1.0], [50.0, 1.0, 0.0, 0.0]]
    """

    def fit(self, X: "pd.DataFrame", y: Any = None) -> Self:  # noqa: ARG002
        """Learn the kinds of the columns, medians and categories from a frame of shape (n, columns)."""
        _refuse_empty(X)
        text = [name for name in X.columns if _is_text(X[name])]
        for name in text:
            _refuse_many(name, X[name])
        numbers = {name: column_numbers(name, X[name]) for name in X.columns if name not in text}
        return self._learn(list(X.columns), numbers, {name: _texts(X[name]) for name in text})

    @classmethod
    def from_learnt(
        cls, columns: Sequence[str], medians: Mapping[str, float], categories: Mapping[str, Sequence[str]]
    ) -> Self:
        """The encoder that has learnt these values: scikit-learn is fitted on the smallest table that teaches them."""
        rows = max([1, *map(len, categories.values())])
        numbers = {name: np.full(rows, median) for name, median in medians.items()}
        texts = {name: np.resize(np.array(values, dtype=object), rows) for name, values in categories.items()}
        return cls()._learn(list(columns), numbers, texts)

    def transform(self, X: "pd.DataFrame") -> FloatArray:
        """Feature rows of shape (m, d) of a frame that has the training columns, in any order, and maybe others."""
        check_is_fitted(self)
        require_columns(self.feature_names_in_, X.columns, where="the table", use="needed by the model")
        for name, found in self.unknown_values(X).items():
            shown = ", ".join(map(repr, sorted(found)[:3])) + (", ..." if len(found) > 3 else "")
            warn(
                f"column {name!r}: {sum(found.values())} of {len(X)} rows have text that the training table did not "
                f"have ({shown}); it counts as none of the known values",
                UnknownCategoryWarning,
            )
        numbers = {name: column_numbers(name, X[name]) for name in self.medians_}
        return self.transformer_.transform(self._frame(numbers, {name: _texts(X[name]) for name in self.categories_}))

    def unknown_values(self, X: "pd.DataFrame") -> dict[str, dict[str, int]]:
        """Text that the training table did not have: by column, how many rows of ``X`` hold each value."""
        found = {}
        for name, known in self.categories_.items():
            values, counts = np.unique(column_texts(X[name]), return_counts=True)
            new = {str(v): int(n) for v, n in zip(values, counts, strict=True) if v not in set(known)}
            if new:
                found[name] = new
        return found

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:  # noqa: ARG002
        """Names of the d encoded features: ``column`` for numbers, ``column=value`` for text."""
        check_is_fitted(self)
        encoded = [f"{name}={value}" for name, values in self.categories_.items() for value in values]
        return np.array([*self.medians_, *encoded], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _learn(self, columns: list[str], numbers: dict[str, FloatArray], texts: dict[str, AnyArray]) -> Self:
        encode = make_pipeline(
            SimpleImputer(strategy="constant", fill_value="missing"),
            OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        )
        steps = [("numbers", SimpleImputer(strategy="median"), list(numbers)), ("text", encode, list(texts))]
        transformer = ColumnTransformer(steps, sparse_threshold=0).fit(self._frame(numbers, texts))
        fitted = transformer.named_transformers_
        medians = fitted["numbers"].statistics_.tolist() if numbers else []
        categories = [values.tolist() for values in fitted["text"][-1].categories_] if texts else []
        self.transformer_ = transformer
        self.medians_ = dict(zip(numbers, medians, strict=True))
        self.categories_ = dict(zip(texts, categories, strict=True))
        self.feature_names_in_ = np.array(columns, dtype=object)
        self.n_features_in_ = len(columns)
        return self

    @staticmethod
    def _frame(numbers: dict[str, FloatArray], texts: dict[str, AnyArray]) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(numbers | texts)


def number_columns(X: "pd.DataFrame", names: Sequence[str]) -> "pd.DataFrame":
    """Some columns of a frame as floats, for a model that encodes nothing and fills no gaps."""
    columns = {name: column_numbers(name, X[name]) for name in names}
    for name, values in columns.items():
        if np.isnan(values).any():
            raise ValueError(
                f"column {name!r} is empty in row {int(np.isnan(values).argmax()) + 1}; fill it in: "
                "this model was fitted on rows without gaps"
            )
    return X[[]].assign(**columns)


def _refuse_empty(X: "pd.DataFrame") -> None:
    if not X.shape[1]:
        raise ValueError("no column is left to serve as a feature")
    empty = [name for name in X.columns if X[name].isna().all()]
    if empty:
        raise ValueError(
            f"no value at all in column {', '.join(map(repr, empty))}; fill it in, or leave it out (--drop)"
        )


def _is_text(column: "pd.Series") -> bool:
    import pandas as pd

    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in _NUMBERS or kind in _TEXTS:
        return kind in _TEXTS
    what = "dates or times" if kind.startswith(("date", "time", "period")) else f"values of kind {kind!r}"
    raise ValueError(
        f"column {column.name!r} holds {what}; turn it into numbers (such as days since a date) or text, "
        "or leave it out (--drop)"
    )


def _refuse_many(name: str, column: "pd.Series") -> None:
    """Refuse text that is no category: a column of numbers with a slip in it, or names and free text."""
    known = column.dropna()
    values = numbers_or_gaps(known)
    slips = values.isna().to_numpy()
    if slips.any() and values.nunique() > _CODES and slips.mean() <= 0.5:
        first = int(slips.argmax())
        row = int(np.flatnonzero(column.notna())[first]) + 1
        raise ValueError(
            f"column {name!r} is mostly numbers, but has {str(known.iloc[first])!r} in row {row} "
            f"({int(slips.sum())} such); correct it, leave it empty, or leave the column out (--drop)"
        )
    if known.nunique() > MAX_CATEGORIES:
        raise ValueError(
            f"column {name!r} holds {known.nunique()} different texts, more than the {MAX_CATEGORIES} that a "
            "category may have; leave it out (--drop), or name it as --id if it tells rows apart"
        )


def numbers_or_gaps(column: "pd.Series") -> "pd.Series":
    """The column as numbers, missing where a value is none."""
    import pandas as pd

    try:
        return pd.to_numeric(column.astype(object), errors="coerce")
    except OverflowError:  # a whole number that is too large to be a float
        small = [np.nan if isinstance(value, int) and abs(value) > LARGEST else value for value in column]
        return pd.to_numeric(pd.Series(small, column.index, dtype=object), errors="coerce")


def column_numbers(name: str, column: "pd.Series") -> FloatArray:
    """The column as floats, NaN where a value is missing."""
    if column.dtype.kind in "mM":  # numpy would count nanoseconds
        _is_text(column)
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):
        slip = int((numbers_or_gaps(column).isna() & column.notna()).to_numpy().argmax())
        raise ValueError(
            f"column {name!r} must hold numbers, but has {str(column.iloc[slip])!r} in row {slip + 1}"
        ) from None
    if np.isinf(values).any():
        raise ValueError(
            f"column {name!r} is infinite in row {int(np.isinf(values).argmax()) + 1}; correct it, or leave it empty"
        )
    huge = np.abs(values) > LARGEST
    if huge.any():
        row = int(huge.argmax())
        raise ValueError(
            f"column {name!r} has {values[row]:.3g} in row {row + 1}; rescale a column with values above {LARGEST:g} "
            "in magnitude, or leave it out (--drop)"
        )
    return values


def _texts(column: "pd.Series") -> AnyArray:
    """The column as an object array of text, NaN where a value is missing."""
    values = np.array([str(value) for value in column], dtype=object)
    values[column.isna().to_numpy()] = np.nan
    return values


def column_texts(column: "pd.Series") -> AnyArray:
    """The column as an object array of text, ``"missing"`` where a value is missing."""
    values = _texts(column)
    values[column.isna().to_numpy()] = "missing"
    return values
