"""A fairness form of the user's own, over the weights of the detectors."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from evenout.core.cells import Cells
from evenout.core.notions import Collector, Notion, NotionRows
from evenout.core.types import BoolArray, FloatArray, IntArray

OwnForm: TypeAlias = Callable[[FloatArray, IntArray], FloatArray]


class Own(Notion):
    """``w'Cw`` of the detectors' weights, those that they have in t included.

    Where t is not linear in the detectors, nothing is said of it.

    Parameters
    ----------
    given : array of shape (k, k), or function of the scores (n, k) and the group codes (n,) that returns one
        Positive semidefinite. None for one that has been collected already.
    """

    name = "own"

    def __init__(self, given: FloatArray | OwnForm | None = None) -> None:
        self.given = given

    def collect(self, rows: NotionRows) -> Collector:
        """The form of each set of rows."""

        def sums(S: FloatArray, t: FloatArray, of: BoolArray) -> dict[str, FloatArray]:  # noqa: ARG001
            return {"form": _checked(self.given, S[of], rows.groups[of])}

        return sums

    def read_sums(self, data: Any, n_sets: int, n_groups: int, k: int) -> dict[str, FloatArray]:  # noqa: ARG002
        """With the shape that it must have."""
        return {"form": data.floats("own.form", n_sets, k, k)}

    def form(self, cells: Cells) -> FloatArray:
        """``J'CJ`` of each set, where ``J (v, 1) = v + base`` are the weights of the sum."""
        k = cells.n_detectors
        base = np.zeros((cells.n_sets, k)) if cells.base is None else cells.base
        J = np.concatenate([np.broadcast_to(np.eye(k), (cells.n_sets, k, k)), base[:, :, None]], axis=2)
        return J.swapaxes(1, 2) @ cells.sums["own.form"] @ J


def _checked(given: Any, S: FloatArray, groups: IntArray) -> FloatArray:
    """The form of scores (n, k) and group codes (n,)."""
    k = S.shape[1]
    form = np.asarray(given(S, groups) if callable(given) else given, dtype=float)
    if form.shape != (k, k) or not np.isfinite(form).all():
        raise ValueError(
            f"fairness is a form of shape {form.shape}; {k} detectors need a finite array of shape ({k}, {k})"
        )
    form = (form + form.T) / 2
    least, most = np.linalg.eigvalsh(form)[[0, -1]]
    if least < -1e-9 * max(most, 0.0) - 1e-300:
        raise ValueError(f"fairness is a form with the eigenvalue {least:.3g}; it must be positive semidefinite")
    return form
