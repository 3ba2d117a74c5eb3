"""The features of a table as a person knows them: one for each column, whatever it was encoded to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.detectors.units import feature_labels
from evenout.inputs.columns import Categories, Dates, Numbers
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
    table : tuple
        The columns of the table, where they were encoded here; see `evenout.inputs.columns`.
    """

    names: tuple[str, ...]
    player: IntArray
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    table: tuple[Numbers | Dates | Categories, ...] = ()

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
        return cls(tuple(str(c.name) for c in columns), player, tuple(c.kind for c in columns), labels, tuple(columns))

    def columns(self, feature: int) -> IntArray:
        """The encoded columns of a feature."""
        return np.flatnonzero(self.player == feature)

    def shown(self, rows: FloatArray, frame: "pd.DataFrame | None" = None) -> AnyArray:
        """What stands in the table, shape (m, p), as objects: numbers, text, dates, or None where nothing stands.

        From encoded rows (m, d), and better from the frame that they were encoded from.
        """
        if not self.table:
            return rows.astype(object)
        columns = [
            _shown_column(column, rows[:, self.columns(j)], None if frame is None else frame[column.name])
            for j, column in enumerate(self.table)
        ]
        return np.column_stack(columns)

    def largest(self, values: FloatArray) -> FloatArray:
        """The largest of the values (d,) of encoded columns, for each feature, shape (p,)."""
        most = np.full(len(self.names), -np.inf)
        np.maximum.at(most, self.player, values)
        return most


def _shown_column(column: Numbers | Dates | Categories, encoded: FloatArray, given: "pd.Series | None") -> AnyArray:
    """What stands in one column of a table, from its encoded columns (m, c), or as given; None where nothing stands."""
    import pandas as pd

    if isinstance(column, Categories):
        place = np.where(encoded.any(axis=1), encoded.argmax(axis=1), -1)
        shown = np.array([*column.values, "no known value"], dtype=object)[place]
    elif isinstance(column, Dates):
        stamps = pd.to_datetime(encoded[:, 0] + column.first, unit="D").floor("s")
        shown = np.array([str(stamp).removesuffix(" 00:00:00") for stamp in stamps], dtype=object)
    else:
        shown = encoded[:, 0].astype(object)
    if given is not None:
        if not isinstance(column, Numbers):
            shown = given.astype(str).to_numpy(dtype=object).copy()
        shown[given.isna().to_numpy()] = None
    return shown


def row_labels(X: Any, n_rows: int) -> Any:
    """The index of a frame, or row numbers from 0."""
    import pandas as pd

    return X.index if hasattr(X, "index") and hasattr(X, "columns") else pd.RangeIndex(n_rows)


def names_of(model: Any, X: Any) -> Any:
    """Names of the columns that a model was fitted on, or None."""
    names = getattr(model, "feature_names_in_", None)
    return column_names(X) if names is None else list(names)
