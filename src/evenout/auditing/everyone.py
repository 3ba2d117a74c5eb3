"""All rows of an audit, with each protected attribute by itself and all of them crossed: what tables count."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenout.auditing.membership import Codes
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.inputs.groups import label_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Attribute:
    """One protected attribute, or all of them crossed.

    ``codes`` has the place of each row's group in ``names``, -1 where it is unknown.
    """

    name: str
    codes: IntArray
    names: tuple[str, ...]

    def members(self, group: int) -> BoolArray:
        """Whether each row belongs to a group."""
        return self.codes == group


@dataclass(frozen=True, eq=False)
class Everyone:
    """All rows, also those that are not compared because their group is small or unknown.

    Parameters
    ----------
    scores : array of shape (n,)
    flagged : array of shape (n,)
    attributes : tuple of Attribute
        Each column of the sensitive features and, if there are several, last, all crossed.
    strata : Codes or None
    clustered : bool
        Whether rows belong together, so that they are no independent people.
    """

    scores: FloatArray
    flagged: BoolArray
    attributes: tuple[Attribute, ...]
    strata: Codes | None
    clustered: bool


def read_attributes(sensitive_features: Any, n_rows: int) -> tuple[Attribute, ...]:
    """The attributes of rows whose groups have been checked.

    >>> [(a.name, a.names) for a in read_attributes([["f", "old"], ["m", "old"]], 2)]
    [('attribute 1', ('f', 'm')), ('attribute 2', ('old',)), ('all crossed', ('f & old', 'm & old'))]
    """
    import pandas as pd

    frame = pd.DataFrame(sensitive_features).reset_index(drop=True)
    plain = [isinstance(name, str) and bool(name) for name in frame.columns]
    names = [str(name) if all(plain) else f"attribute {j + 1}" for j, name in enumerate(frame.columns)]
    if len(names) == 1:
        return (_attribute("group" if not plain[0] else names[0], frame, n_rows),)
    each = [_attribute(name, frame.iloc[:, [j]], n_rows) for j, name in enumerate(names)]
    return (*each, _attribute("all crossed" if not all(plain) else " & ".join(names), frame, n_rows))


def _attribute(name: str, columns: "pd.DataFrame", n_rows: int) -> Attribute:
    codes = np.full(n_rows, -1, dtype=np.intp)
    known = columns.notna().all(axis=1).to_numpy()
    if not known.any():
        return Attribute(name, codes, ())
    groups = label_rows(columns[known], int(known.sum()))
    codes[known] = groups.codes
    return Attribute(name, codes, groups.labels)
