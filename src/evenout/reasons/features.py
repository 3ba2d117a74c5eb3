"""The features of a table as a person knows them: one for each column, whatever it was encoded to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.detectors.units import feature_labels
from evenout.inputs.columns import Categories, Dates
from evenout.inputs.rows import column_names

if TYPE_CHECKING:
    import pandas as pd

    from evenout.inputs.table import TableEncoder


@dataclass(frozen=True)
class Features:
    """The p features of a table, and which of the d encoded columns each is made of.

    Parameters
    ----------
    names : tuple of str
        Of the features.
    player : array of int, shape (d,)
        The feature that each encoded column belongs to.
    kinds : tuple of {"numbers", "dates", "categories"}
        Of the features.
    labels : tuple of str
        Of the encoded columns: ``home=own``, ``joined (month)``.
    """

    names: tuple[str, ...]
    player: IntArray
    kinds: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def of_rows(cls, names: Any, d: int) -> "Features":
        """Of rows that were not encoded here: each column is a feature."""
        labels = tuple(feature_labels(names, d))
        return cls(labels, np.arange(d), ("numbers",) * d, labels)

    @classmethod
    def of_table(cls, table: "TableEncoder") -> "Features":
        """Of the columns that an encoder has learnt, in the order of the encoded ones."""
        columns = table.encoded_columns
        player = np.repeat(np.arange(len(columns)), [len(column.features) for column in columns])
        labels = tuple(label for column in columns for label in column.features)
        return cls(tuple(str(c.name) for c in columns), player, tuple(c.kind for c in columns), labels)

    def columns(self, feature: int) -> IntArray:
        """The encoded columns of a feature."""
        return np.flatnonzero(self.player == feature)

    def largest(self, values: FloatArray) -> FloatArray:
        """The largest of the values (d,) of encoded columns, for each feature, shape (p,)."""
        most = np.full(len(self.names), -np.inf)
        np.maximum.at(most, self.player, values)
        return most


def shown_values(rows: FloatArray, features: Features, X: Any, table: "TableEncoder | None") -> AnyArray:
    """What stands in the table, shape (m, p), as objects: numbers, text, dates, or None where nothing stands."""
    if table is None:
        return rows.astype(object)
    shown = np.empty((len(rows), len(features.names)), dtype=object)
    for j, column in enumerate(table.encoded_columns):
        first = int(features.columns(j)[0])
        missing = _missing(X[column.name])
        if isinstance(column, Categories | Dates):
            shown[:, j] = X[column.name].astype(str).to_numpy(dtype=object)
        else:
            shown[:, j] = rows[:, first].astype(object)
        shown[missing, j] = None
    return shown


def _missing(column: "pd.Series") -> AnyArray:
    return column.isna().to_numpy()


def row_labels(X: Any, n_rows: int) -> Any:
    """The index of a frame, or row numbers from 0."""
    import pandas as pd

    return X.index if hasattr(X, "index") and hasattr(X, "columns") else pd.RangeIndex(n_rows)


def names_of(model: Any, X: Any) -> Any:
    """Names of the columns that a model was fitted on, or None."""
    names = getattr(model, "feature_names_in_", None)
    return column_names(X) if names is None else list(names)
