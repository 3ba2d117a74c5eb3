"""Groups that are known by their probabilities alone, such as from a name or a place of residence."""

from functools import cached_property
from typing import Any

import numpy as np

from evenout.core.exceptions import InputError
from evenout.core.types import FloatArray


class GroupProbabilities:
    """How likely each row belongs to each group, to be given as ``sensitive_features``.

    A group's mean score is the mean over all rows, weighted by the probability of the group. Where the probabilities
    are right for people of all kinds (*calibrated*: of those with 0.7, 70 % belong to the group), this is the true mean
    if the score and the group have nothing to do with each other among people of the same probabilities. Otherwise the
    mean is off by ``E[Cov(group, score | probabilities)] / E[p]``: members of a group who score higher than others
    with the same probability are missed, and the gap is understated. `bound` says by how much a mean may be off.

    Parameters
    ----------
    frame : frame, of Dask too, or array of shape (n, groups)
        Numbers from 0 to 1; each row sums to 1, or is missing, or all 0: such a row is of unknown group.
    sufficient : bool, default=False
        Your word that the probabilities know all that the score uses: among people of the same probabilities, score and
        group have nothing to do with each other. Otherwise statements carry bounds: how low and how high a group's mean
        may be, given the probabilities alone.

    Attributes
    ----------
    names : tuple of str
    values : array of shape (n, groups)
        NaN where a row's group is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> sure = GroupProbabilities(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]))
    >>> sure
    GroupProbabilities(4 rows; means may be off by at most, in standard deviations: 0 0.71, 1 0.71)
    """

    def __init__(self, frame: Any, *, sufficient: bool = False) -> None:
        self._take(frame, sufficient)
        if not self.lazy:
            _ = self.values

    @classmethod
    def unchecked(cls, frame: Any) -> "GroupProbabilities":
        """The same, looked at when it is used: where errors should tell which partition they are in."""
        found = cls.__new__(cls)
        found._take(frame)
        return found

    def _take(self, frame: Any, sufficient: bool = False) -> None:
        import pandas as pd

        self.sufficient = sufficient
        self.lazy = hasattr(frame, "dask")
        self.frame = frame if self.lazy else pd.DataFrame(frame)
        self.index, self.names = getattr(frame, "index", None), tuple(map(str, self.frame.columns))

    @cached_property
    def values(self) -> FloatArray:
        """The probabilities, shape (n, groups); NaN where a row's group is unknown."""
        try:
            values: FloatArray = self.frame.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise InputError("{@sensitive_features} has probabilities that are no numbers") from None
        if values.shape[1] < 2:
            raise InputError("{@sensitive_features} has one column of probabilities; give one for each group")
        empty = np.isnan(values).any(axis=1) | (values == 0).all(axis=1)
        wrong = ~empty & ~((values >= 0).all(axis=1) & (np.abs(values.sum(axis=1) - 1.0) < 1e-3))
        if wrong.any():
            raise InputError(
                "{@sensitive_features} has probabilities in {#row} that are negative, or do not sum to 1: {found}",
                row=int(wrong.argmax()), found=values[int(wrong.argmax())].round(4).tolist(),
            )  # fmt: skip
        return np.where(empty[:, None], np.nan, values)

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        if self.lazy:
            return f"GroupProbabilities({', '.join(self.names)}; a Dask collection)"
        if self.sufficient:
            return f"GroupProbabilities({len(self)} rows; {', '.join(self.names)}; sufficient=True)"
        bounds = ", ".join(f"{name} {off:.2f}" for name, off in self.bound().items())
        return f"GroupProbabilities({len(self)} rows; means may be off by at most, in standard deviations: {bounds})"

    def bound(self) -> dict[str, float]:
        """How far each group's mean score may be from the truth, in standard deviations of the score.

        If the probabilities are calibrated, ``|m - truth| <= sqrt(E[p (1 - p)]) / E[p]`` (Cauchy and Schwarz). The gap
        of two groups is off by the sum of the two at most. 0 where all probabilities are 0 or 1.
        """
        if self.lazy:
            return GroupProbabilities(self.frame.compute()).bound()
        known = self.values[~np.isnan(self.values).any(axis=1)]
        doubt, share = np.sqrt((known * (1.0 - known)).mean(axis=0)), known.mean(axis=0)
        return dict(zip(self.names, (doubt / np.where(share > 0, share, np.nan)).tolist(), strict=True))
