"""Encode a table of numbers, text and dates as feature rows, every later table like the first."""

from collections.abc import Collection, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from evenout.core.types import AnyArray, FloatArray
from evenout.exceptions import UnknownCategoryWarning, warn
from evenout.tables.columns import (
    Categories,
    Column,
    ColumnFindings,
    Dates,
    DroppedColumn,
    Numbers,
    SlipError,
    column_numbers,
    column_texts,
    likely_role,
    taken_for,
)
from evenout.tables.files import require_columns
from evenout.tables.rows import as_pandas


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode frames of any columns as frames of floats; the kind of each column is learnt once and kept.

    - Numbers have their gaps filled by the median. Text such as ``"1,234"``, ``"12%"`` or ``"5 kg"`` is read as numbers
      if all of a column is, yes and no as 1 and 0.
    - Dates become days since the first one, month, weekday and hour.
    - Text is one-hot encoded, the most frequent value first, so that other names for the values change nothing. (Values
      that are equally frequent are in the order of the alphabet.) Gaps are a category, ``"missing"``. Of more than 50
      different texts those that are rarer than the 50 most frequent are one category, ``"other"``.
    - Columns without a value, with one value alone, and those that tell rows apart and nothing more are left out:
      text that differs in 90 % of the rows, running numbers, and whole numbers whose name says that they are ids.

    Text that was not in the training table is ``"other"`` where the column has that category, and otherwise a row of
    zeros, counted in an `UnknownCategoryWarning`. Nested values are refused.

    Parameters
    ----------
    keep : collection of str, default=()
        Columns that are features even if they are constant or look like ids.

    Attributes
    ----------
    columns_ : tuple
        The kind of each column; see `evenout.tables.columns`.
    notes_ : dict of str to str
        How each column was changed that was not taken as it is.
    doubts_ : dict of str to str
        Features that may be something else, by name and shape: an ``"outcome"``, a ``"score"`` of another model, or a
        ``"person number"``. They are features all the same, unless you leave them out.
    medians_, categories_ : dict of str to float, and to list of str
        By name of a column of numbers, and of text.
    feature_names_in_, n_features_in_ : array of str, int

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [30.0, None, 50.0], "home": ["own", "rent", "own"]})
    >>> table["paid"] = ["$5", "$1,200", "$7"]
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'paid', 'home=own', 'home=rent']
    >>> encoder.transform(table)
        age    paid  home=own  home=rent
    0  30.0     5.0       1.0        0.0
    1  40.0  1200.0       0.0        1.0
    2  50.0     7.0       1.0        0.0
    >>> encoder.notes_
    {'age': '1 gap filled by the median, 40', 'paid': 'numbers written as text, in $'}
    """

    def __init__(self, keep: Collection[str] = ()) -> None:
        self.keep = keep

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:  # noqa: ARG002
        """Learn what the columns of a frame of shape (n, columns), of pandas or polars, are; medians and categories."""
        X = as_pandas(X)
        repeated = X.columns[X.columns.duplicated()]
        if len(repeated):
            raise ValueError(f"the table has more than one column {repeated[0]!r}; rename all but one")
        if len(X) == 1:
            raise ValueError("the table has one row, 1 sample; at least 2 are needed to hold rows against each other")
        try:
            return self.learn({name: ColumnFindings.of(X[name], None) for name in X.columns})
        except SlipError as slip:
            found = column_texts(X[slip.fields["name"]]) == slip.fields["text"]
            slip.fields["where"] = f" in row {found.argmax() + 1}"
            raise

    def learn(self, found: dict[str, ColumnFindings]) -> Self:
        """Learn from a summary of each column."""
        self.take_columns([taken_for(name, each, keep=name in self.keep) for name, each in found.items()])
        roles = {name: likely_role(name, found[name]) for name in self.columns_used if name not in self.keep}
        self.doubts_ = {name: role for name, role in roles.items() if role}
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame | FloatArray:
        """Feature rows of shape (m, d) of a frame that has the columns used, in any order, and maybe others.

        A pandas frame with the names of the features, so that what comes after knows them. After
        ``set_output(transform="polars")`` a polars frame, after ``set_output(transform="default")`` an array.
        """
        check_is_fitted(self)
        X = as_pandas(X)
        require_columns(self.columns_used, X.columns, where="the table", use="needed by the model")
        for name, found in self.unknown_values(X).items():
            shown = ", ".join(map(repr, sorted(found)[:3])) + (", ..." if len(found) > 3 else "")
            warn(
                f"column {name!r}: {sum(found.values())} of {len(X)} rows have text that the training table did not "
                f"have ({shown}); it counts as none of the known values",
                UnknownCategoryWarning,
            )
        return self.encode(X)

    def encode(self, X: pd.DataFrame) -> pd.DataFrame | FloatArray:
        """`transform` without a warning of new text: where threads encode many parts, it is counted over all."""
        rows = np.column_stack([column.encode(X[column.name]) for column in self.encoded_columns])
        plain = getattr(self, "_sklearn_output_config", {}).get("transform") == "default"
        return rows if plain else pd.DataFrame(rows, columns=self.get_feature_names_out(), index=X.index)

    def unknown_values(self, X: pd.DataFrame) -> dict[str, dict[str, int]]:
        """Text that the training table did not have: by column, how many rows of ``X`` hold each value."""
        unknown = {each.name: each.unknown(X[each.name]) for each in self.columns_ if isinstance(each, Categories)}
        return {name: counts for name, counts in unknown.items() if counts}

    @property
    def columns_used(self) -> list[str]:
        """The columns that a table must have, in their order."""
        return [column.name for column in self.columns_ if not isinstance(column, DroppedColumn)]

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:  # noqa: ARG002
        """Names of the d features: ``column`` for numbers, ``column (month)`` for dates, ``column=value`` for text."""
        check_is_fitted(self)
        return np.array([feature for column in self.encoded_columns for feature in column.features], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    @property
    def encoded_columns(self) -> list[Numbers | Dates | Categories]:
        """The columns in the order of the features: numbers and dates first, then text."""
        return [
            *(column for column in self.columns_ if isinstance(column, Numbers | Dates)),
            *(column for column in self.columns_ if isinstance(column, Categories)),
        ]

    def take_columns(self, columns: Sequence[Column]) -> Self:
        """Encode as learnt from a table with these columns."""
        if all(isinstance(column, DroppedColumn) for column in columns):
            more = f"; and {len(columns) - 3} more" if len(columns) > 3 else ""
            notes = "; ".join(f"{column.name!r} is {column.note}" for column in columns[:3])
            raise ValueError(f"no column is left to serve as a feature{f': {notes}' if notes else ''}{more}")
        self.columns_, self.doubts_ = tuple(columns), {}
        self.notes_ = {column.name: column.note for column in columns if column.note}
        self.medians_ = {column.name: column.median for column in columns if isinstance(column, Numbers)}
        self.categories_ = {column.name: [*column.values] for column in columns if isinstance(column, Categories)}
        self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        self.n_features_in_ = len(columns)
        return self


def number_columns(X: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Some columns of a frame as floats, for a model that encodes nothing and fills no gaps."""
    columns = {name: column_numbers(name, X[name]) for name in names}
    for name, values in columns.items():
        if np.isnan(values).any():
            raise ValueError(
                f"column {name!r} is empty in row {int(np.isnan(values).argmax()) + 1}; fill it in: "
                "this model was fitted on rows without gaps"
            )
    return X[[]].assign(**columns)
