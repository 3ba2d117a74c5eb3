"""The points of one setting, and what is measured on them.

A setting is a data set, a base ensemble and a notion of fairness: one curve of one panel of the paper. Everything here
comes from the table of points alone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from evenout.core.types import FloatArray
from evenout.reproduce.experiment import FRAMEWORKS

if TYPE_CHECKING:
    import pandas as pd

LEAST_COMMON = 0.05  # frameworks are compared at equal bias if both can remove this share of it
_LEVELS = 20  # of equal bias
_NUMBERS = ("alpha", "f1", "f2", "bias", "auc", "negative")


@dataclass(frozen=True, eq=False)
class Points:
    """Points of one setting and framework, each array of shape (R repeats, m alphas); alphas ascend."""

    alpha: FloatArray
    f1: FloatArray
    f2: FloatArray
    bias: FloatArray
    auc: FloatArray
    negative: FloatArray


@dataclass(frozen=True, eq=False)
class Setting:
    """One data set, base ensemble and notion of fairness, over R repeats.

    Parameters
    ----------
    dataset, base, fairness : str
    curves, draws : dict of Points
        By framework: the curve (its first alpha is 0) and the random alphas.
    target_auc, average_auc : arrays of shape (R,)
        AUC of the base ensemble's own score, and of the average combination.
    """

    dataset: str
    base: str
    fairness: str
    curves: dict[str, Points]
    draws: dict[str, Points]
    target_auc: FloatArray
    average_auc: FloatArray

    @property
    def good_target(self) -> bool:
        """Whether t's AUC is at least the average combination's, in the median repeat."""
        return bool(np.median(self.target_auc - self.average_auc) >= 0)

    @property
    def monotone(self) -> bool:
        """Whether f2 never rises and f1 never falls along the curve, in both frameworks and every repeat."""
        return all(
            bool((np.diff(curve.f2) <= 0).all() and (np.diff(curve.f1) >= 0).all()) for curve in self.curves.values()
        )

    @property
    def auc_start(self) -> float:
        """AUC at alpha = 0 of the weighted framework, in the median repeat."""
        return float(np.median(self.curves["weighted"].auc[:, 0]))

    @property
    def median_target_auc(self) -> float:
        """AUC of t, in the median repeat."""
        return float(np.median(self.target_auc))

    @property
    def auc_change(self) -> float:
        """AUC at the end of the weighted curve less that at alpha = 0, in the median repeat."""
        return float(np.median(self.auc_changes(-1)))

    @property
    def auc_change_halfway(self) -> float:
        """AUC where the weighted curve has lost half of f2 less AUC at alpha = 0, in the median repeat."""
        f2 = np.median(self.curves["weighted"].f2, axis=0)
        return float(np.median(self.auc_changes(int(np.argmax(f2 <= f2[0] / 2)))))

    def auc_changes(self, step: int) -> FloatArray:
        """AUC at a step of the weighted curve less AUC at alpha = 0, shape (R,)."""
        auc = self.curves["weighted"].auc
        return auc[:, step] - auc[:, 0]

    @property
    def auc_rise(self) -> float:
        """The median of `auc_rises`."""
        return float(np.median(self.auc_rises))

    @property
    def auc_rises(self) -> FloatArray:
        """The largest rise of AUC from a point of the weighted curve to a later one, shape (R,)."""
        auc = self.curves["weighted"].auc
        return (auc - np.minimum.accumulate(auc, axis=1)).max(axis=1)

    @property
    def correlation(self) -> float:
        """Spearman's correlation of f2 and AUC along the weighted curve, in the median repeat; 0 if AUC is constant."""
        curve = self.curves["weighted"]
        return float(np.median([_spearman(f2, auc) for f2, auc in zip(curve.f2, curve.auc, strict=True)]))

    @property
    def auc_falls(self) -> bool:
        """Whether AUC falls with the bias: it is lower at the end of the curve, and rises with f2 along it."""
        return self.auc_change < 0 and self.correlation > 0

    def cof(self, framework: str) -> FloatArray:
        """The paper's cost of fairness at the random alphas, shape (R, m); NaN where AUC has not moved."""
        start, draw = self.curves[framework], self.draws[framework]
        lost = start.auc[:, :1] - draw.auc
        return (start.f2[:, :1] - draw.f2) / np.where(lost == 0, np.nan, lost)

    def median_cof(self, *, absolute: bool = False) -> dict[str, float]:
        """The median of cof, or of its absolute value, over alphas and repeats by framework."""
        return {name: _median(np.abs(self.cof(name)) if absolute else self.cof(name)) for name in FRAMEWORKS}

    @property
    def repeats_with_lower_cof(self) -> tuple[int, int]:
        """In how many repeats the weighted median cof is the lower one, and the number of repeats."""
        lower = [_median(w) < _median(u) for w, u in zip(self.cof("weighted"), self.cof("unweighted"), strict=True)]
        return sum(lower), len(lower)

    @cached_property
    def gains(self) -> FloatArray:
        """AUC of the weighted less the unweighted framework by `equal_bias_gain`, shape (R,)."""
        w, u = self.curves["weighted"], self.curves["unweighted"]
        return np.array([equal_bias_gain(*pair) for pair in zip(w.bias, w.auc, u.bias, u.auc, strict=True)])

    @property
    def gain(self) -> float:
        """The median of `gains`; NaN unless most repeats can be compared."""
        return _median(self.gains) if np.isfinite(self.gains).mean() > 0.5 else float("nan")

    @property
    def scale_free_left(self) -> float:
        """The share of the scale-free bias that is left at the end of the weighted curve, in the median repeat."""
        bias = self.curves["weighted"].bias
        return float(np.median(bias[:, -1] / bias[:, 0]))

    @property
    def negative_weights(self) -> tuple[float, float]:
        """How many weights are negative at alpha = 0 and at the end of the weighted curve, in the median repeat."""
        first, last = np.median(self.curves["weighted"].negative[:, [0, -1]], axis=0)
        return float(first), float(last)

    @property
    def alpha_ratio(self) -> float:
        """The weighted over the unweighted alpha at the end of the curve, where the same share of f2 is gone."""
        return float(np.median(self.curves["weighted"].alpha[:, -1] / self.curves["unweighted"].alpha[:, -1]))


def read_settings(points: "pd.DataFrame") -> list[Setting]:
    """The settings of a table of points, in its order."""
    targets = points[points["kind"] == "target"]
    settings = []
    for key, group in points[points["kind"] != "target"].groupby(["dataset", "base", "fairness"], sort=False):
        dataset, base, fairness = map(str, key)
        own = targets[(targets["dataset"] == dataset) & (targets["fairness"] == fairness)]
        curves = {name: _points(group, name, "curve") for name in FRAMEWORKS}
        draws = {name: _points(group, name, "random") for name in FRAMEWORKS}
        target, average = (own.loc[own["base"] == name, "auc"].to_numpy() for name in (base, "average"))
        settings.append(Setting(dataset, base, fairness, curves, draws, target, average))
    return settings


def equal_bias_gain(bias_w: FloatArray, auc_w: FloatArray, bias_u: FloatArray, auc_u: FloatArray) -> float:
    """AUC along one curve less AUC along another, at equal scale-free bias.

    The scale-free bias need not fall with alpha. To ask a curve for the bias b is to take its smallest alpha with a
    bias of b or less, interpolated between neighbouring points. The gain is the mean over evenly spaced b from the
    least bias that both curves reach up to the smaller of their biases at alpha = 0; NaN if that range is shorter than
    `LEAST_COMMON` of its upper end.

    Parameters
    ----------
    bias_w, auc_w, bias_u, auc_u : arrays of shape (m,)
        Along alpha, ascending.

    >>> round(equal_bias_gain(*np.array([[1.0, 0.0], [0.9, 0.7], [1.0, 0.0], [0.8, 0.7]])), 6)
    0.05
    """
    low, high = max(bias_w.min(), bias_u.min()), min(bias_w[0], bias_u[0])
    if not high - low >= LEAST_COMMON * high:
        return float("nan")
    levels = np.linspace(low, high, _LEVELS)
    return float(np.mean(_auc_at(bias_w, auc_w, levels) - _auc_at(bias_u, auc_u, levels)))


def _auc_at(bias: FloatArray, auc: FloatArray, levels: FloatArray) -> FloatArray:
    """AUC at the smallest alpha with a bias of each level or less."""
    after = np.argmax(bias <= levels[:, None], axis=1)
    before = np.maximum(after - 1, 0)
    fall = bias[before] - bias[after]
    share = np.where(fall > 0, (bias[before] - levels) / np.where(fall > 0, fall, 1.0), 1.0)
    return auc[before] + np.clip(share, 0.0, 1.0) * (auc[after] - auc[before])


def _points(group: "pd.DataFrame", framework: str, kind: str) -> Points:
    rows = group[(group["framework"] == framework) & (group["kind"] == kind)]
    n_repeats = rows["repeat"].nunique()
    return Points(*(rows[name].to_numpy(dtype=float).reshape(n_repeats, -1) for name in _NUMBERS))


def _spearman(a: FloatArray, b: FloatArray) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _median(values: FloatArray) -> float:
    """The median of the finite values; NaN if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")
