"""The paper's claims, each judged by a stated rule.

A setting is a data set, a base ensemble and a notion of fairness: one curve of one panel of the paper. Everything here
comes from the table of points alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from evenout.core.types import FloatArray
from evenout.reproduce.experiment import FRAMEWORKS, LAST_FALL, TITLES

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


NOTABLE = 0.001  # a rise of AUC that counts
CLOSE = 0.02  # AUCs this close to the paper's agree
HALF = 0.5
PAPER_AUC = {"greedy": 0.7696, "maximum": 0.8954, "average": 0.9784}  # Breast Cancer, supplement of the paper
_NAMED = 6  # settings that details name before they only count


@dataclass(frozen=True)
class Claim:
    """One claim and what became of it.

    Parameters
    ----------
    id : str
    origin : str
        ``"paper"``, or ``"added"`` for what a reader needs to judge the paper's claims.
    statement, rule, details : str
        What is claimed, when a setting counts as agreeing, and the numbers found.
    held, tested : int
        Settings (or numbers) that agree, and how many there are.
    """

    id: str
    origin: str
    statement: str
    rule: str
    held: int
    tested: int
    details: str

    @property
    def verdict(self) -> str:
        """``"holds"``, ``"holds in x of y"`` or ``"does not hold"``."""
        if self.held == self.tested:
            return "holds"
        return f"holds in {self.held} of {self.tested}" if self.held else "does not hold"


def judge(points: "pd.DataFrame") -> list[Claim]:
    """Judge every claim that the points speak to; those about data sets that were not run are left out."""
    settings = read_settings(points)
    claims = [rule.apply(settings) for rule in RULES] + [_breast_cancer(points)]
    return sorted((claim for claim in claims if claim.tested), key=lambda claim: claim.id)


def breast_cancer_aucs(points: "pd.DataFrame") -> dict[str, float]:
    """Breast Cancer's AUC at alpha = 0 by base ensemble, and the average combination's; medians over repeats."""
    own = points[(points["dataset"] == "breastw") & (points["fairness"] == "group")]
    start = own[(own["kind"] == "curve") & (own["framework"] == "weighted") & (own["alpha"] == 0)]
    rows = {base: start[start["base"] == base] for base in ("greedy", "maximum")}
    rows["average"] = own[(own["kind"] == "target") & (own["base"] == "average")]
    return {base: float(part["auc"].median()) for base, part in rows.items() if len(part)}


def _breast_cancer(points: "pd.DataFrame") -> Claim:
    found = breast_cancer_aucs(points)
    published = "; ".join(f"{base} {auc}" for base, auc in PAPER_AUC.items())
    return Claim(
        "B1",
        "paper",
        f"Breast Cancer's AUC at alpha = 0: {published}.",
        f"The median over the repeats is within {CLOSE} of the paper's number (average: the combination itself).",
        sum(abs(auc - PAPER_AUC[base]) <= CLOSE for base, auc in found.items()),
        len(found),
        f"Found: {'; '.join(f'{base} {auc:.4f}' for base, auc in found.items())}.",
    )


def _name(held: Sequence[Setting], against: Sequence[Setting]) -> str:
    """Name the settings that disagree, or else those that agree, if they are few."""
    for title, named in (("Not in", against), ("Only in", held)):
        if 0 < len(named) <= _NAMED and held and against:
            return f"{title} {'; '.join(_title(s) for s in named)}."
    return f"{len(held)} settings." if not against else f"{len(held)} of {len(held) + len(against)} settings."


def _title(setting: Setting) -> str:
    return f"{TITLES[setting.dataset]} ({setting.base}, {setting.fairness})"


def _count(held: Sequence[Setting], against: Sequence[Setting]) -> str:
    by_notion = {"group": [0, 0], "individual": [0, 0]}
    for s in (*held, *against):
        by_notion[s.fairness][0] += s in held
        by_notion[s.fairness][1] += 1
    return "; ".join(f"{notion.capitalize()}: {n} of {m}" for notion, (n, m) in by_notion.items() if m) + "."


def _changes(held: Sequence[Setting], against: Sequence[Setting]) -> str:
    parts = (f"{s.base} {_signed(s.auc_changes(-1))}" for s in (*held, *against))
    return f"Change of AUC over the repeats: {'; '.join(parts)}."


def _rises(held: Sequence[Setting], against: Sequence[Setting]) -> str:
    parts = (f"{s.base} {_signed(s.auc_rises)}" for s in (*held, *against))
    return f"Largest rise of AUC over the repeats: {'; '.join(parts)}."


def _signed(values: FloatArray) -> str:
    """The range of some changes."""
    return f"{values.min():+.4f} to {values.max():+.4f}".replace("-", "\N{MINUS SIGN}")


def _gains(held: Sequence[Setting], against: Sequence[Setting]) -> str:
    gains = np.array([s.gain for s in (*held, *against)])
    middle = f"{np.median(gains):+.4f}".replace("-", "\N{MINUS SIGN}")
    return f"Difference of AUC {middle} in the median setting, {_signed(gains)}. {_count(held, against)}"


def _left(held: Sequence[Setting], against: Sequence[Setting]) -> str:
    left = np.array([s.scale_free_left for s in (*held, *against)])
    return f"Left: {np.median(left):.1%} in the median setting, {left.min():.1%} to {left.max():.1%}."


def _negative(held: Sequence[Setting], against: Sequence[Setting]) -> str:
    counts = np.array([s.negative_weights for s in (*held, *against)])
    first, last = np.median(counts, axis=0)
    return f"Below 0: {first:g} of 18 weights at alpha = 0, {last:g} at the largest alpha, in the median setting."


@dataclass(frozen=True)
class ClaimRule:
    """A claim about settings: which of them it speaks of, when one agrees, and what to tell of both sides."""

    id: str
    origin: str
    statement: str
    rule: str
    agrees: Callable[[Setting], bool]
    concerns: Callable[[Setting], bool] = lambda _: True
    details: Callable[[Sequence[Setting], Sequence[Setting]], str] = _name

    def apply(self, settings: Sequence[Setting]) -> Claim:
        """Count the settings that agree."""
        concerned = [s for s in settings if self.concerns(s)]
        held = [s for s in concerned if self.agrees(s)]
        against = [s for s in concerned if s not in held]
        details = self.details(held, against) if concerned else ""
        return Claim(self.id, self.origin, self.statement, self.rule, len(held), len(concerned), details)


def _lower(medians: dict[str, float]) -> bool:
    return medians["weighted"] < medians["unweighted"]


def _about(dataset: str, fairness: str) -> Callable[[Setting], bool]:
    return lambda s: (s.dataset, s.fairness) == (dataset, fairness)


RULES = (
    ClaimRule(
        "A1", "paper",
        "The bias f2 falls and the distance f1 to the target rises with alpha, in every setting.",
        "From each alpha of the curve to the next f2 does not rise and f1 does not fall, in both frameworks and "
        "every repeat.",
        lambda s: s.monotone,
    ),
    ClaimRule(
        "A2", "paper",
        "The AUC falls as the bias falls.",
        "The AUC at the largest alpha is below that at alpha = 0, and Spearman's correlation of f2 and AUC along the "
        "weighted curve is positive, each in the median repeat.",
        lambda s: s.auc_falls,
    ),
    ClaimRule(
        "A2a", "paper",
        "It always does: nowhere does the AUC rise while the bias falls.",
        f"From no point of the weighted curve to a later one does the AUC rise by more than {NOTABLE}, in the median "
        "repeat.",
        lambda s: s.auc_rise <= NOTABLE,
        details=_count,
    ),
    ClaimRule(
        "A2b", "paper",
        "Exception: on Breast Cancer under group fairness the AUC rises as the bias falls.",
        "A2 with both signs turned around.",
        lambda s: s.auc_change > 0 > s.correlation,
        concerns=_about("breastw", "group"),
        details=_changes,
    ),
    ClaimRule(
        "A2c", "paper",
        "Exception: on Mammography under individual fairness the AUC fluctuates.",
        f"From some point of the weighted curve to a later one the AUC rises by more than {NOTABLE}, in the median "
        "repeat.",
        lambda s: s.auc_rise > NOTABLE,
        concerns=_about("mammography", "individual"),
        details=_rises,
    ),
    ClaimRule(
        "A2d", "added",
        "Where the target is good, as the method assumes, the AUC falls as the bias falls.",
        "A2, where the target's AUC is at least the average combination's in the median repeat.",
        lambda s: s.auc_falls,
        concerns=lambda s: s.good_target,
    ),
    ClaimRule(
        "A3", "paper",
        "The cost of fairness (cof) is lower with beta than without.",
        "The median of cof over the random alphas of all repeats is lower in the weighted framework.",
        lambda s: _lower(s.median_cof()),
        details=_count,
    ),
    ClaimRule(
        "A3a", "paper",
        "Its absolute value is lower with beta than without, which is said where cof is negative.",
        "A3, for the median of the absolute value of cof.",
        lambda s: _lower(s.median_cof(absolute=True)),
        details=_count,
    ),
    ClaimRule(
        "A3b", "added",
        "The answer to A3 does not hang on the draw of forest, groups and alphas.",
        "The weighted median of cof is the lower one in every repeat, or in none.",
        lambda s: s.repeats_with_lower_cof[0] in (0, s.repeats_with_lower_cof[1]),
        details=_count,
    ),
    ClaimRule(
        "A3c", "added",
        "The fair version of A3: at equal scale-free bias the AUC is higher with beta than without.",
        "The mean difference of AUC over 20 levels of bias, each framework at its smallest alpha that reaches the "
        f"level, is above 0 in the median repeat; where both can remove {LEAST_COMMON:.0%} of the bias.",
        lambda s: s.gain > 0,
        concerns=lambda s: bool(np.isfinite(s.gain)),
        details=_gains,
    ),
    ClaimRule(
        "C1", "added",
        "Group bias falls by more than a shrinking of all scores.",
        f"Where {LAST_FALL:.0%} of f2 is gone, at most {HALF:.0%} of the scale-free bias at alpha = 0 is left, in the "
        "median repeat.",
        lambda s: s.scale_free_left <= HALF,
        concerns=lambda s: s.fairness == "group",
        details=_left,
    ),
    ClaimRule(
        "C2", "added",
        "Individual bias falls by more than a shrinking of all scores.",
        "C1, for individual fairness.",
        lambda s: s.scale_free_left <= HALF,
        concerns=lambda s: s.fairness == "individual",
        details=_left,
    ),
    ClaimRule(
        "C3", "added",
        "No detector counts backwards: every weight is 0 or more.",
        "No weight is below 0 at alpha = 0, nor at the largest alpha, in the median repeat.",
        lambda s: max(s.negative_weights) == 0,
        details=_negative,
    ),
)  # fmt: skip
