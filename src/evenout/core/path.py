"""The price of every step of fairness: weights, misfit and bias for every trade-off parameter alpha."""

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from evenout.core.cells import Cells
from evenout.core.constrained import ConstrainedSolutions, constrain
from evenout.core.exceptions import NoGapWarning, TargetNotReachedWarning
from evenout.core.forms import NOTIONS, combined_form, group_moments, no_gap_p_value
from evenout.core.spectrum import Spectrum, factorise
from evenout.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Target: TypeAlias = Literal["unseen", "training"]
Weights: TypeAlias = Literal["free", "nonnegative", "simplex"]

WEIGHTS: tuple[Weights, ...] = ("free", "nonnegative", "simplex")

SIGNIFICANCE = 0.05  # "no gap" is believed above this p-value
_RIDGE = 1e-4  # of the mean diagonal of A, in noise-aware solutions
_GRID = 100  # alphas tried before the bisection
_STILL, _GONE = 0.001, 0.9999  # shares of f2 removed at the two ends of the grid


class TradeoffPath:
    """All solutions ``w(alpha)`` of ``minimise f1 + alpha f2``, and the bias each of them leaves.

    Every method takes one alpha >= 0 or an array of them and answers in the same shape. f1 rises and f2 falls
    with alpha;
    the scale-free bias need not.

    Parameters
    ----------
    cells : Cells
        Sums of the training rows per fold and group.
    fairness : mapping
        Notion to weight. Several notions: each form is divided by the target's own bias.
    noise_aware : bool
        Solve for rows that are not here: demographic parity with ``C + V``, V being what sampling adds to C, so that
        the weights leave alone what is noise in the group means; and with 1e-4 of the mean of A's diagonal added to
        it, so that nearly equal detectors do not get huge weights of opposite sign, which new rows would not
        forgive. False: the published problem.
    constraint : {"free", "nonnegative", "simplex"}
        Any weights, weights of at least 0, or such weights that sum to 1.

    Notes
    -----
    *Unseen* bias: the weights are solved anew without each fold, at ``alpha (n - n_f) / n`` because f1 is a
    sum over rows, the
    fold is scored with them, and the bias is measured on these scores pooled. Detectors, scaling, target and
    row weights
    stay as they are: they use no groups.
    """

    def __init__(
        self,
        cells: Cells,
        fairness: Mapping[str, float],
        *,
        noise_aware: bool = False,
        constraint: Weights = "free",
    ) -> None:
        self.cells = cells
        self.fairness = dict(fairness)
        self.noise_aware = noise_aware
        self.constraint = constraint
        self._solution = self._solve(cells)

    def weights(self, alpha: float | FloatArray) -> FloatArray:
        """Detector weights, shape (k,), or (m, k) for m alphas."""
        alphas = _checked(alpha)
        return self._solution.weights(alphas.ravel()).reshape(*alphas.shape, -1)

    def f1(self, alpha: float | FloatArray) -> FloatArray:
        """``sum_i beta_i (y_i - t_i)^2``: the misfit to the target."""
        alphas = _checked(alpha)
        if not self.noise_aware:
            return self._solution.f1(alphas.ravel()).reshape(alphas.shape)
        A, b, c0 = self.cells.least_squares()
        W = self.weights(alphas)
        return _quadratic(A, W) - 2.0 * W @ b + c0

    def f2(self, alpha: float | FloatArray) -> FloatArray:
        """The raw bias of the paper on the training rows."""
        alphas = _checked(alpha)
        if not self.noise_aware:
            return self._solution.f2(alphas.ravel()).reshape(alphas.shape)
        return _quadratic(combined_form(self.cells, self.fairness)[:-1, :-1], self.weights(alphas))

    def bias(self, alpha: float | FloatArray, target: Target = "unseen") -> FloatArray:
        """Scale-free bias of ``y(alpha)``.

        ``"training"``: on the rows the weights were solved on, as in the paper. ``"unseen"``: cross-fitted; for
        demographic parity corrected for sampling noise, so that it may be negative. Several notions: the
        weighted mean of
        each bias divided by the target's.
        """
        alphas = _checked(alpha)
        return self._measure(self.fold_weights(alphas.ravel(), target), target).reshape(alphas.shape)

    def standard_error(self, alpha: float | FloatArray) -> FloatArray:
        """Standard error of the unseen `bias`, given the weights and the detectors."""
        alphas = _checked(alpha)
        return self._error(self.fold_weights(alphas.ravel(), "unseen")).reshape(alphas.shape)

    def target_standard_error(self) -> float:
        """Standard error of the unseen `target_bias`."""
        return float(self._error(self._unit_target)[0])

    def target_bias(self, target: Target = "unseen") -> float:
        """The bias of the base ensemble's score ``t``, measured in the way of `bias`."""
        return float(self._measure(self._unit_target, target)[0])

    def reduction(self, alpha: float | FloatArray, target: Target = "unseen") -> FloatArray:
        """``1 - bias(alpha) / bias of t``: the share of the base score's bias that is gone. NaN if t has none."""
        base = self.target_bias(target)
        if not base > 0:
            return np.full(np.shape(alpha), np.nan)
        return 1.0 - self.bias(alpha, target) / base

    @cached_property
    def gap_p_value(self) -> float:
        """p-value of "the groups have the same mean base score" (Welch); NaN without group fairness."""
        if "demographic_parity" not in self.fairness:
            return float("nan")
        return float(no_gap_p_value(group_moments(self.cells, self._unit_target))[0])

    @property
    def gap_detected(self) -> bool:
        """Whether the base score has a bias that is more than sampling noise."""
        return bool(self.target_bias("unseen") > 0) and not self.gap_p_value > SIGNIFICANCE

    def alpha_for(self, bias_reduction: float, target: Target = "unseen") -> float:
        """The smallest alpha that removes the share ``bias_reduction`` of the target's scale-free bias.

        Without a detectable gap the answer is 0, with a `NoGapWarning`; if no alpha reaches the request, the
        one of least bias,
        with a `TargetNotReachedWarning`.
        """
        if not self.gap_detected:
            warnings.warn(self._no_gap_message(), NoGapWarning, stacklevel=2)
            return 0.0
        alpha, reached = self.search(lambda alphas: self.reduction(alphas, target), bias_reduction)
        if reached < bias_reduction:
            warnings.warn(
                f"bias_reduction={bias_reduction:g} cannot be reached on {target} rows with these detectors: "
                f"the most is {reached:.3f}, at alpha={alpha:.4g}, which was taken. "
                "More or other detectors may reach more.",
                TargetNotReachedWarning,
                stacklevel=2,
            )
        return alpha

    def search(self, measure: Callable[[FloatArray], FloatArray], request: float) -> tuple[float, float]:
        """The smallest alpha with ``measure(alpha) >= request``, by grid and bisection; else that of largest measure.

        Parameters
        ----------
        measure : callable
            Takes m alphas, returns m values; larger is fairer. It need not be monotone.
        request : float

        Returns
        -------
        alpha, measure at that alpha
        """
        alphas = np.r_[0.0, self.grid(_GRID)]
        values = np.nan_to_num(measure(alphas), nan=-np.inf)
        if not (values >= request).any():
            best = int(values.argmax())
            return float(alphas[best]), float(values[best])
        first = int((values >= request).argmax())
        if first == 0:
            return 0.0, float(values[0])
        low, high, value = alphas[first - 1], alphas[first], float(values[first])
        while high - low > 1e-6 * high:
            middle = np.sqrt(low * high) if low > 0 else high / 2
            there = float(measure(np.array([middle]))[0])
            if there >= request:
                high, value = middle, there
            else:
                low = middle
        return float(high), value

    def grid(self, size: int = _GRID) -> FloatArray:
        """Alphas, even on a log scale, from where f2 has hardly moved (0.1 %) to where 99.99 % of it is gone."""
        low, high = self.alpha_range(_STILL, _GONE)
        return np.geomspace(low, high, size) if 0 < low < high else np.zeros(0)

    def alpha_range(self, first: float, last: float) -> tuple[float, float]:
        """The alphas at which the shares ``first`` and ``last`` of f2 are gone; both 0 if there is none to remove."""
        return self._solution.alpha_at(first), self._solution.alpha_at(last)

    def table(self, alphas: FloatArray | None = None) -> "pd.DataFrame":
        """One row per alpha: f1, f2, the scale-free biases and their reductions; by default for 0 and the `grid`."""
        import pandas as pd

        alphas = np.r_[0.0, self.grid()] if alphas is None else np.atleast_1d(_checked(alphas))
        columns = {"alpha": alphas, "f1": self.f1(alphas), "f2": self.f2(alphas)}
        targets: tuple[Target, ...] = ("training", "unseen")
        for target in targets:
            columns[f"bias_{target}"] = self.bias(alphas, target)
            columns[f"reduction_{target}"] = self.reduction(alphas, target)
        columns["error_unseen"] = self.standard_error(alphas)
        return pd.DataFrame(columns)

    def fold_weights(self, alphas: FloatArray, target: Target) -> FloatArray:
        """The weights that score each fold's rows, shape (K, m, k + 1); the last entry, of the target, is 0."""
        n_folds = self.cells.n_folds
        if target == "training":
            W = np.repeat(self._solution.weights(alphas)[None], n_folds, axis=0)
        elif target == "unseen":
            kept = 1.0 - self.cells.fold_counts / self.cells.fold_counts.sum()
            W = np.stack([self._left_out[f].weights(alphas * kept[f]) for f in range(n_folds)])
        else:
            raise ValueError(f"target={target!r} is unknown; use 'unseen' or 'training'")
        return np.concatenate([W, np.zeros((*W.shape[:2], 1))], axis=2)

    def _solve(self, cells: Cells) -> Spectrum | ConstrainedSolutions:
        A, b, c0 = cells.least_squares()
        C = combined_form(cells, self.fairness, noise_aware=self.noise_aware)[:-1, :-1]
        if self.noise_aware:
            # A detector that is 0 on all rows gets none of it, lest it be taken for one that says something.
            A = A + _RIDGE * np.trace(A) / len(A) * np.diag(np.diag(A) > 0)
        return (
            factorise(A, b, c0, C) if self.constraint == "free" else constrain(A, b, c0, C, self.constraint)
        )

    @cached_property
    def _left_out(self) -> list[Spectrum | ConstrainedSolutions]:
        return [self._solve(self.cells.without(f)) for f in range(self.cells.n_folds)]

    @property
    def _unit_target(self) -> FloatArray:
        V = np.zeros((self.cells.n_folds, 1, self.cells.n_detectors + 1))
        V[:, :, -1] = 1.0
        return V

    def _measure(self, V: FloatArray, target: Target) -> FloatArray:
        """Bias of the scores with fold weights V, shape (m,)."""
        V, unseen = _in_units(V), target == "unseen"
        if len(self.fairness) == 1:
            return NOTIONS[next(iter(self.fairness))].bias(self.cells, V, unseen=unseen)
        parts = [
            weight * NOTIONS[name].bias(self.cells, V, unseen=unseen) / self._unit_bias(name, unseen)
            for name, weight in self.fairness.items()
        ]
        return np.sum(parts, axis=0) / sum(self.fairness.values())

    def _error(self, V: FloatArray) -> FloatArray:
        """Standard error of `_measure` on unseen rows; the errors of several notions are added as if independent."""
        V = _in_units(V)
        if len(self.fairness) == 1:
            return NOTIONS[next(iter(self.fairness))].error(self.cells, V)
        parts = [
            weight * NOTIONS[name].error(self.cells, V) / np.abs(self._unit_bias(name, unseen=True))
            for name, weight in self.fairness.items()
        ]
        return np.sqrt(np.sum(np.square(parts), axis=0)) / sum(self.fairness.values())

    def _unit_bias(self, name: str, unseen: bool) -> FloatArray:
        """The target's bias by one notion, shape (1,); 1 if it has none, as where no two rows are alike."""
        bias = NOTIONS[name].bias(self.cells, self._unit_target, unseen=unseen)
        return np.where(bias == 0, 1.0, bias)

    def _no_gap_message(self) -> str:
        return (
            f"no group gap was found in the base score (p = {self.gap_p_value:.2g} for 'no gap'): what differs between "
            "the groups is within sampling noise, so nothing was removed (alpha = 0). "
            "Give alpha to remove bias all the same."
        )


def open_path(
    cells: Cells, fairness: Mapping[str, float], *, noise_aware: bool = False, constraint: Weights = "free"
) -> TradeoffPath:
    """The path; of two notions, group fairness is left out, with a warning, where there is no group gap to remove."""
    settings: dict[str, Any] = {"noise_aware": noise_aware, "constraint": constraint}
    path = TradeoffPath(cells, fairness, **settings)
    if len(fairness) > 1 and not TradeoffPath(cells, {"demographic_parity": 1.0}).gap_detected:
        warnings.warn(
            f"no group gap was found in the base score (p = {path.gap_p_value:.2g} for 'no gap'); "
            "only individual fairness is pursued",
            NoGapWarning,
            stacklevel=3,
        )
        return TradeoffPath(cells, {"individual": 1.0}, **settings)
    return path


def _in_units(V: FloatArray) -> FloatArray:
    """Fold weights of shape (K, m, k + 1), the largest of each score made 1: where weights vanish, biases do not."""
    largest = np.abs(V).max(axis=(0, 2), keepdims=True)
    return V / np.where(largest > 0, largest, 1.0)


def _quadratic(form: FloatArray, W: FloatArray) -> FloatArray:
    """``w' form w`` for weights along the last axis."""
    return np.einsum("...k,kl,...l->...", W, form, W)


def _checked(alpha: float | FloatArray) -> FloatArray:
    alphas = np.asarray(alpha, dtype=float)
    if not (alphas >= 0).all():
        raise ValueError(f"alpha must be 0 or larger, got {alpha!r}")
    return alphas
