"""The value that every loader and every simulation returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows with known outliers and known groups.

    Attributes
    ----------
    X : pandas.DataFrame of float64, shape (n, d)
        The features; the protected attribute is never among them.
    y : pandas.Series of 0 and 1, shape (n,)
        1 for an outlier. For evaluation only: the detectors are unsupervised.
    sensitive : pandas.Series, shape (n,), or pandas.DataFrame, shape (n, number of columns asked for)
        The group of each row as a readable label.
    name : str
        The name under which the data was asked for.
    description : str
        What a row, an outlier and a group are, and where the data comes from.
    """

    X: pd.DataFrame
    y: pd.Series
    sensitive: pd.Series | pd.DataFrame
    name: str
    description: str

    def __repr__(self) -> str:
        import pandas as pd

        n, d = self.X.shape
        protected = pd.DataFrame(self.sensitive)
        groups = ", ".join(f"{column}: {protected[column].nunique()} groups" for column in protected)
        return f"Dataset({self.name!r}: {n} rows, {d} features, {self.y.sum()} outliers; {groups})"
