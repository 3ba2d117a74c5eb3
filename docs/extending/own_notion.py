"""A fairness notion of one's own: equal mean scores among the rows on top, where the flags are."""

import numpy as np

from evenout.core.cells import Cells
from evenout.core.notions import Collector, Notion, NotionRows
from evenout.core.types import BoolArray, FloatArray


class TopParity(Notion):
    """Mean squared gap between groups among the rows whose base score is in the top ``share``."""

    name = "top_parity"

    def __init__(self, share: float = 0.2) -> None:
        self.share = share

    def collect(self, rows: NotionRows) -> Collector:
        """Group means of ``(s, t)`` among the top rows of a set; a group without any has the mean of all of them."""

        def sums(S: FloatArray, t: FloatArray, of: BoolArray) -> dict[str, FloatArray]:
            top = of & (t >= np.quantile(t[of], 1.0 - self.share))
            Z = np.column_stack([S, t])
            groups = [top & (rows.groups == g) for g in range(rows.n_groups)]
            return {"means": np.stack([Z[group if group.any() else top].mean(axis=0) for group in groups])}

        return sums

    def form(self, cells: Cells) -> FloatArray:
        """``1/N sum_{p<q} (m_p - m_q)(m_p - m_q)'`` of each set."""
        means = cells.sums["top_parity.means"]
        centred = means - means.mean(axis=1, keepdims=True)
        return 2.0 * centred.swapaxes(1, 2) @ centred / (cells.n_groups - 1)
