"""Fairness notions: each gives a form to solve with and a scale-free bias to state, from sums over sets of rows.

``V`` weighs the columns of ``(s_1, ..., s_k, t)``: the ensemble ``t + S v`` is ``(v, 1)``, the base score
``(0, ..., 0, 1)``, so that both are measured by the same code. On held-out rows every fold has weights of its own.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from evenout.core.cells import Cells, CrossFit, Pairs
from evenout.core.forms import ratio
from evenout.core.parity import DemographicParity, fold_variances, unit_target, variances
from evenout.core.types import FloatArray


class Notion(Protocol):
    """A fairness notion; arrays as in `DemographicParity`."""

    def form(self, cells: Cells) -> FloatArray:
        """The form of ``(s, t)`` to solve with, for each set."""

    def noise(self, cells: Cells) -> FloatArray:
        """What sampling alone adds to the form, on average."""

    def training_bias(self, cells: Cells, V: FloatArray) -> FloatArray:
        """Scale-free bias on the rows that the weights were solved on."""

    def bias(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """Scale-free bias on unseen rows, right on average."""

    def choice(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """The same with less variance, to compare alphas with."""

    def target_bias(self, cross: CrossFit) -> FloatArray:
        """The base score's bias on unseen rows."""

    def covariance(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """Covariance of the biases and, last, of the base score's."""


class _Plain:
    """What notions share whose bias carries no correction for sampling noise."""

    def noise(self: Notion, cells: Cells) -> FloatArray:
        """None is known."""
        return np.zeros_like(self.form(cells))

    def choice(self: Notion, cross: CrossFit, V: FloatArray) -> FloatArray:
        """`bias` itself."""
        return self.bias(cross, V)

    def target_bias(self: Notion, cross: CrossFit) -> FloatArray:
        """`bias` of the base score, shape (1,)."""
        return self.bias(cross, unit_target(cross.held))


class Individual(_Plain):
    """Equal scores of similar rows from different groups."""

    def form(self, cells: Cells) -> FloatArray:
        """``1/N sum_{p<q} 1/(n_p n_q) sum_ij M_ij (z_i - z_j)(z_i - z_j)'`` of each set, shape (K, k + 1, k + 1)."""
        n = cells.group_counts
        p, q = np.triu_indices(cells.n_groups, 1)
        return (_pairs(cells).form / np.maximum(n[:, p] * n[:, q], 1.0)[:, :, None, None]).mean(axis=1)

    def training_bias(self, cells: Cells, V: FloatArray) -> FloatArray:
        """``sum M (y_i - y_j)^2 / sum M / Var(y)``, the mean over pairs of groups, on the rows of one set."""
        pairs = _pairs(cells)
        squared = np.einsum("pkl,mk,ml->mp", pairs.form[0], V, V, optimize=True)
        return ratio(_per_mass(squared, pairs.mass[0]), variances(cells, V[None])[0])

    def bias(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """The same on pairs with both rows in one fold."""
        squared, mass = self._squared(cross, V)
        return _per_mass(squared.sum(axis=0), mass.sum(axis=0))

    def covariance(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """Covariance of `bias` of m scores and, last, of the base score, from the spread over the folds."""
        squared, mass = self._squared(cross, np.concatenate([V, unit_target(cross.held)], axis=1))
        by_fold = _per_mass(squared, mass[:, None, :])
        return np.cov(by_fold.T, ddof=1).reshape((V.shape[1] + 1,) * 2) / len(by_fold)

    def _squared(self, cross: CrossFit, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of squared differences in units of the variance (K, m, N), and masses (K, N)."""
        pairs = _pairs(cross.held)
        squared = np.einsum("fpkl,fmk,fml->fmp", pairs.form, V, V, optimize=True)
        return ratio(squared, fold_variances(cross, V)[:, :, None]), pairs.mass


class Own(_Plain):
    """A form of the user's own, ``w'Cw`` of the detectors' weights, those that they have in t included.

    Where t is not linear in the detectors, nothing is said of it.
    """

    def form(self, cells: Cells) -> FloatArray:
        """``J'CJ`` of each set, where ``J (v, 1) = v + base`` are the weights of the sum."""
        if cells.own is None:
            raise ValueError("no form of your own was given")
        k = cells.n_detectors
        base = np.zeros((cells.n_sets, k)) if cells.base is None else cells.base
        J = np.concatenate([np.broadcast_to(np.eye(k), (cells.n_sets, k, k)), base[:, :, None]], axis=2)
        return J.swapaxes(1, 2) @ cells.own @ J

    def training_bias(self, cells: Cells, V: FloatArray) -> FloatArray:
        """``w'Cw / Var(y)``."""
        squared = np.einsum("mk,kl,ml->m", V, self.form(cells)[0], V, optimize=True)
        return ratio(squared, variances(cells, V[None])[0])

    def bias(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """The same with C of each fold's held-out rows; the mean over folds by their rows."""
        share = cross.held.counts / cross.held.counts.sum()
        squared = np.einsum("fmk,fkl,fml->fm", V, self.form(cross.held), V, optimize=True)
        return share @ ratio(squared, fold_variances(cross, V))

    def covariance(self, cross: CrossFit, V: FloatArray) -> FloatArray:  # noqa: ARG002
        """Unknown: C is taken as it is given."""
        return np.full((V.shape[1] + 1,) * 2, np.nan)


PARITY = DemographicParity()
NOTIONS: dict[str, Notion] = {"demographic_parity": PARITY, "individual": Individual(), "own": Own()}
NAMED_NOTIONS = ("demographic_parity", "individual")  # those that a user asks for by name


def combined_form(cells: Cells, fairness: Mapping[str, float], *, noise_aware: bool = False) -> FloatArray:
    """``sum_m weight_m C_m / f2_m(t)`` of each set: each notion in units of the target's bias; one alone as it is.

    ``noise_aware`` adds what sampling adds to a form once more: to solve with ``C + V`` keeps the weights from evening
    out noise in the training rows. All zeros where there are not two groups to compare.
    """
    if cells.n_groups < 2:
        return np.zeros((cells.n_sets, cells.n_detectors + 1, cells.n_detectors + 1))
    forms = {name: NOTIONS[name].form(cells) for name in fairness}
    if noise_aware:
        forms = {name: C + NOTIONS[name].noise(cells) for name, C in forms.items()}
    if len(forms) == 1:
        return next(iter(forms.values()))
    units = {name: np.where(C[:, -1, -1] == 0, 1.0, C[:, -1, -1])[:, None, None] for name, C in forms.items()}
    return np.sum([fairness[name] * C / units[name] for name, C in forms.items()], axis=0)


def _pairs(cells: Cells) -> Pairs:
    if cells.pairs is None:
        raise ValueError("individual fairness needs the pair sums of the cells; none were collected")
    return cells.pairs


def _per_mass(squared: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of ``squared / mass`` over pairs of groups (the last axis); 0 for a pair without any similar rows."""
    return (squared / np.maximum(mass, np.finfo(float).tiny)).mean(axis=-1)
