"""What is asked of a fit: which notions of fairness, and how far to go towards them."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenout.core.cells import Cells
from evenout.core.exceptions import TargetNotReachedWarning
from evenout.core.flags import fold_rate_ratios
from evenout.core.forms import NAMED_NOTIONS
from evenout.core.path import Target, TradeoffPath, Weights, open_path
from evenout.core.types import FloatArray, IntArray
from evenout.parameters import number

_DEFAULT_REDUCTION = 0.8


@dataclass(frozen=True)
class Request:
    """The estimator's parameters of the same names, checked against each other; see `FairOutlierEnsemble`.

    Parameters
    ----------
    fairness : dict
        Notion to weight; ``{"own": 1.0}`` for a form of the user's own.
    bias_reduction, flag_rate_ratio, alpha : float or None
        At most one is given.
    target : {"unseen", "training"}
    weights : {"free", "nonnegative", "simplex"}
    contamination : float
    """

    fairness: dict[str, float]
    bias_reduction: float | None
    flag_rate_ratio: float | None
    alpha: float | None
    target: Target
    weights: Weights
    contamination: float

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> "Request":
        """Take the request out of an estimator's parameters; contradictions are refused."""
        ways = {name: parameters[name] for name in ("bias_reduction", "flag_rate_ratio", "alpha")}
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} were given; give at most one of bias_reduction, flag_rate_ratio and alpha"
            )
        rest = {name: parameters[name] for name in ("target", "weights", "contamination")}
        return cls(_notions(parameters), **ways, **rest)

    def path(self, cells: Cells) -> TradeoffPath:
        """Every trade-off. A request for unseen rows is solved against sampling noise; alpha means the paper's form."""
        noise_aware = self.target == "unseen" and self.alpha is None
        return open_path(cells, self.fairness, noise_aware=noise_aware, constraint=self.weights)

    def alpha_on(
        self, path: TradeoffPath, S: FloatArray, groups: IntArray, folds: IntArray, n_groups: int
    ) -> float:
        """The alpha that does what is asked; flag rates are those of rows with scores S (n, k) in groups and folds."""
        if self.alpha is not None:
            return float(self.alpha)
        if self.flag_rate_ratio is None:
            reduction = _DEFAULT_REDUCTION if self.bias_reduction is None else self.bias_reduction
            return path.alpha_for(reduction, self.target)

        def ratios(alphas: FloatArray) -> FloatArray:
            V = path.fold_weights(alphas, self.target)[:, :, :-1]
            return fold_rate_ratios(S, V, groups, folds, n_groups, self.contamination)

        alpha, reached = path.search(ratios, self.flag_rate_ratio)
        if reached < self.flag_rate_ratio:
            warnings.warn(
                f"flag_rate_ratio={self.flag_rate_ratio:g} cannot be reached on {self.target} rows with these "
                f"detectors: the most is {reached:.3f}, at alpha={alpha:.4g}, which was taken. "
                "More or other detectors may reach more.",
                TargetNotReachedWarning,
                stacklevel=3,
            )
        return alpha


def _notions(parameters: Mapping[str, Any]) -> dict[str, float]:
    """The notions asked for, with their weights."""
    asked, detectors = parameters["fairness"], parameters["detectors"]
    if callable(asked) or isinstance(asked, np.ndarray):
        if parameters["alpha"] is None and parameters["flag_rate_ratio"] is None:
            raise ValueError(
                "fairness is a form of your own, which has no target to compare with; give alpha or flag_rate_ratio"
            )
        return {"own": 1.0}
    notions = {asked: 1.0} if isinstance(asked, str) else asked
    if not isinstance(notions, Mapping) or not notions or not set(notions) <= set(NAMED_NOTIONS):
        known = ", ".join(map(repr, NAMED_NOTIONS))
        raise ValueError(
            f"fairness={asked!r} is not allowed; use {known}, or a dict of these names and their weights"
        )
    for name, weight in notions.items():
        if not number(0, np.inf, open_low=True).allows(weight):
            raise ValueError(
                f"fairness has the weight {weight!r} for {name!r}; weights must be numbers above 0"
            )
    if "individual" in notions and isinstance(detectors, str) and detectors == "precomputed":
        raise ValueError(
            "fairness='individual' compares feature rows, but detectors='precomputed' has scores alone; "
            "use fairness='demographic_parity', or pass features and a list of detectors"
        )
    return dict(notions)
