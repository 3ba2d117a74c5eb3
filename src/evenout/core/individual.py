"""Individual fairness: equal scores of similar rows from different groups."""

from typing import Any, Literal

import numpy as np

from evenout.core.cells import Cells, CrossFit, fold_variances, variances
from evenout.core.forms import ratio
from evenout.core.notions import Collector, Notion, NotionRows
from evenout.core.sampling import estimate_pair_sums
from evenout.core.similarity import comparable_rows, effective_pairs, warn_few_pairs
from evenout.core.types import BoolArray, FloatArray

_TINY = np.finfo(float).tiny


class Individual(Notion):
    """Equal scores of similar rows from different groups.

    Of each set of rows and each of the N pairs of groups it keeps ``individual.form`` (K, N, k + 1, k + 1), which is
    ``sum M_ij (z_i - z_j)(z_i - z_j)'``, and ``individual.mass`` (K, N), ``sum M_ij``. ``individual.error`` (K,) is the
    relative error of a sample of the pairs, and ``individual.pairs`` (K,) how many pairs the likeness rests on.
    """

    name = "individual"

    def collect(self, rows: NotionRows) -> Collector:
        """Likeness is a matter of the features, found once; scores are compared along it."""
        features, scale = comparable_rows(rows.X, rows.groups, rows.settings["length_scale"])
        found = effective_pairs(features, rows.groups, scale)
        p, q = np.triu_indices(rows.n_groups, 1)
        stands_for = rows.stands_for[p] * rows.stands_for[q]
        warned = False

        def sums(S: FloatArray, t: FloatArray, of: BoolArray) -> dict[str, FloatArray]:
            nonlocal warned
            if not warned:  # now the number of weights is known
                warn_few_pairs(found, n_weights=S.shape[1])
                warned = True
            form, mass, error = _pair_sums(rows, features, scale, np.column_stack([S, t]), of)
            form, mass = form * stands_for[:, None, None], mass * stands_for
            return {"form": form, "mass": mass, "error": np.array(error), "pairs": np.array(found)}

        return sums

    def read_sums(self, data: Any, n_sets: int, n_groups: int, k: int) -> dict[str, FloatArray]:
        """With the shapes that they must have."""
        N = n_groups * (n_groups - 1) // 2
        shapes = {"form": (N, k + 1, k + 1), "mass": (N,), "error": (), "pairs": ()}
        return {name: data.floats(f"individual.{name}", n_sets, *shape) for name, shape in shapes.items()}

    def form(self, cells: Cells) -> FloatArray:
        """``1/N sum_{p<q} 1/(n_p n_q) sum_ij M_ij (z_i - z_j)(z_i - z_j)'`` of each set, shape (K, k + 1, k + 1)."""
        n, (form, _) = cells.group_counts, _kept(cells)
        p, q = np.triu_indices(cells.n_groups, 1)
        return (form / np.maximum(n[:, p] * n[:, q], 1.0)[:, :, None, None]).mean(axis=1)

    def training_bias(self, cells: Cells, V: FloatArray) -> FloatArray:
        """``sum M (y_i - y_j)^2 / sum M / Var(y)``, the mean over pairs of groups, on the rows of one set."""
        form, mass = _kept(cells)
        squared = np.einsum("pkl,mk,ml->mp", form[0], V, V, optimize=True)
        return ratio(_per_mass(squared, mass[0]), variances(cells, V[None])[0])

    def bias(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """The same on pairs with both rows in one fold."""
        squared, mass = self._squared(cross, V)
        return _per_mass(squared.sum(axis=0), mass.sum(axis=0))

    def fold_biases(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """The same of each fold."""
        squared, mass = self._squared(cross, V)
        return _per_mass(squared, mass[:, None, :])

    def _squared(self, cross: CrossFit, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of squared differences in units of the variance (K, m, N), and masses (K, N)."""
        form, mass = _kept(cross.held)
        squared = np.einsum("fpkl,fmk,fml->fmp", form, V, V, optimize=True)
        return ratio(squared, fold_variances(cross, V)[:, :, None]), mass


def _pair_sums(
    rows: NotionRows, features: FloatArray, scale: Literal["minmax"] | float, Z: FloatArray, of: BoolArray
) -> tuple[FloatArray, FloatArray, float]:
    """Sums over the pairs of rows of different groups in one set, and the error of a sample of them."""
    one = np.zeros(len(Z), dtype=np.intp)
    given = features, Z, np.where(of, rows.groups, -1), one
    shape: dict[str, Any] = {"n_groups": rows.n_groups, "n_folds": 1, "scale": scale}
    if rows.pair_sums is not None:
        return *rows.pair_sums(*given, **shape).total(), 0.0
    shape |= {
        "method": rows.settings["pairs"],
        "seed": rows.seed,
        "n_threads": rows.n_threads,
    }
    found, error = estimate_pair_sums(*given, **shape)
    return *found.total(), error


def _kept(cells: Cells) -> tuple[FloatArray, FloatArray]:
    if "individual.form" not in cells.sums:
        raise ValueError("individual fairness needs the pair sums of the cells; none were collected")
    return cells.sums["individual.form"], cells.sums["individual.mass"]


def _per_mass(squared: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of ``squared / mass`` over pairs of groups (the last axis); 0 for a pair without any similar rows."""
    return (squared / np.maximum(mass, _TINY)).mean(axis=-1)
