"""A data set, and protected groups sampled for those that have none."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenout.core.types import IntArray
from evenout.exceptions import Message


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
        n, d = self.X.shape
        protected = pd.DataFrame(self.sensitive)
        groups = ", ".join(f"{column}: {protected[column].nunique()} groups" for column in protected)
        return f"Dataset({self.name!r}: {n} rows, {d} features, {self.y.sum()} outliers; {groups})"


RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None


def sample_groups(
    y: npt.ArrayLike, n_groups: int, *, strength: float = 1.0, random_state: RandomState = None
) -> pd.Series:
    """Give every row a group, outliers falling into later groups more often.

    Rows are drawn independently, with groups j = 1..g and strength s:

        P(group = j | inlier)  = 1 / g
        P(group = j | outlier) = 10^(s (j-1)/(g-1)) / sum_l 10^(s (l-1)/(g-1))

    so the last group expects 10^s times as many outliers as the first: tenfold at strength 1, about the
    ratio of outlier rates between the groups of ``communities`` (0.57 to 0.06). At strength 0 the group
    says nothing about the label. If a draw leaves a group empty, a random row of the largest moves there.

    Parameters
    ----------
    y : array-like of 0 and 1, shape (n,)
        1 for an outlier.
    n_groups : int
        The number of groups g, at least 2 and at most n.
    strength : float
        s above, the logarithm to base 10 of the last group's outliers over the first's; a negative value
        favours earlier groups.
    random_state : int, RandomState, Generator or None
        The seed. None draws another attribute each time.

    Returns
    -------
    pandas.Series of str, shape (n,)
        ``"group 1"`` to ``"group g"``, none empty, named ``"group"``, with the index of `y` if it has one.

    Examples
    --------
    >>> groups = sample_groups([0] * 900 + [1] * 100, 2, random_state=0)
    >>> groups[900:].value_counts().to_dict()
    {'group 2': 93, 'group 1': 7}
    """
    from evenout.metrics import read_labels  # imports scikit-learn in turn

    labels = read_labels(y, name=Message("y"))
    n = labels.size
    if not 2 <= n_groups <= n:
        raise ValueError(f"n_groups is {n_groups}; it must lie between 2 and the number of rows, {n}.")
    check_strength(strength, least=-np.inf)
    rng = random_generator(random_state)

    exponent = strength * np.arange(n_groups) / (n_groups - 1)
    odds = 10.0 ** (exponent - exponent.max())
    upper = np.cumsum(odds)[:-1] / odds.sum()
    draw = rng.random_sample(n)
    codes = np.where(labels, np.searchsorted(upper, draw, side="right"), (draw * n_groups).astype(np.intp))
    sizes = np.bincount(codes, minlength=n_groups)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        codes[rng.choice(np.flatnonzero(codes == largest))] = empty
        sizes[largest], sizes[empty] = sizes[largest] - 1, 1
    return group_series(codes, index=y.index if isinstance(y, pd.Series) else None)


def group_series(codes: IntArray, *, index: Any = None) -> pd.Series:
    """Name the groups 0..g-1 (shape (n,)) ``"group 1"`` to ``"group g"``."""
    names = np.array([f"group {j + 1}" for j in range(codes.max() + 1)], dtype=object)
    return pd.Series(names[codes], index=index, name="group")


def random_generator(random_state: RandomState) -> np.random.RandomState:
    """A ``RandomState``, as scikit-learn uses; it shares the state of a numpy Generator if one is given."""
    from sklearn.utils import check_random_state  # imports pandas in turn

    if isinstance(random_state, np.random.Generator):
        return np.random.RandomState(random_state.bit_generator)
    return check_random_state(random_state)


def check_strength(strength: float, *, least: float) -> None:
    """Raise unless `strength` is a finite number of at least `least`."""
    if not (np.isfinite(strength) and strength >= least):
        allowed = "a finite number" if np.isinf(least) else f"a finite number, at least {least:g}"
        raise ValueError(f"strength is {strength}; it must be {allowed} (0 means no bias, 1 a clear one).")
