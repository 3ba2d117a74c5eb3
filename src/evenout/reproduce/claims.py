"""The paper's claims, each judged by a stated rule.

A setting is a data set, a base ensemble and a notion of fairness: one curve of one panel of the paper. Everything here
follows from the table of points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from evenout.core.types import FloatArray
from evenout.reproduce.experiment import FAIRNESS, LAST_FALL, TITLES

LEAST_COMMON = 0.05  # frameworks are compared at equal bias if both can remove this share of it
_LEVELS = 20  # of equal bias
_NUMBERS = ("alpha", "f1", "f2", "bias", "auc", "negative")


class PaperSetting:
    """One data set, base ensemble and notion of fairness, over R repeats; single numbers are of the median repeat.

    Parameters
    ----------
    dataset, base, fairness : str
    curves, draws : dict of dict of arrays of shape (R, m)
        By framework and column of the points: the curve, whose first alpha is 0, and the random alphas; alphas ascend.
    target_auc, average_auc : arrays of shape (R,)
        AUC of the base ensemble's own score, and of the average combination.

    Attributes
    ----------
    good_target : bool
        Whether t's AUC is at least the average combination's.
    monotone : bool
        Whether f2 never rises and f1 never falls along the curve, in both frameworks and every repeat.
    auc_start, median_target_auc : float
        AUC at alpha = 0 of the weighted framework, and of t.
    auc_changes, auc_rises : arrays of shape (R,)
        AUC at the end of the weighted curve less that at alpha = 0, and the largest rise from one point to a later one.
    auc_change, auc_change_halfway, auc_rise : float
        Their medians, and the change where the weighted curve has lost half of f2.
    correlation, auc_falls : float, bool
        Spearman's, of f2 and AUC along the weighted curve, 0 if one is constant; and whether AUC falls with the bias:
        it is lower at the end of the curve, and rises with f2 along it.
    cof, median_cof, median_size : dict of arrays of shape (R, m), dicts of float
        The paper's cost of fairness at the random alphas, by framework, NaN where AUC has not moved; its median over
        alphas and repeats, and that of its absolute value.
    lower_cof : int
        Repeats in which the weighted median cof is the lower one.
    gains, gain : array of shape (R,), float
        AUC of the weighted less the unweighted framework by `equal_bias_gain`; the median, NaN unless most compare.
    scale_free_left, negative_weights : float, array of shape (2,)
        Share of the scale-free bias left at the end of the weighted curve; negative weights at alpha = 0 and there.
    alpha_ratio : float
        The weighted over the unweighted alpha at the end of the curve, where the same share of f2 is gone.
    """

    def __init__(
        self, dataset: str, base: str, fairness: str, curves: dict[str, dict[str, FloatArray]],
        draws: dict[str, dict[str, FloatArray]], target_auc: FloatArray, average_auc: FloatArray,
    ) -> None:  # fmt: skip
        self.dataset, self.base, self.fairness, self.curves = dataset, base, fairness, curves
        self.target_auc, self.average_auc = target_auc, average_auc
        weighted, unweighted = curves["weighted"], curves["unweighted"]
        f2, bias, auc = (weighted[name] for name in ("f2", "bias", "auc"))
        self.good_target = bool(np.median(target_auc - average_auc) >= 0)
        self.monotone = all(
            bool((np.diff(curve["f2"]) <= 0).all() and (np.diff(curve["f1"]) >= 0).all()) for curve in curves.values()
        )
        self.auc_start, self.median_target_auc = float(np.median(auc[:, 0])), float(np.median(target_auc))
        self.auc_changes = auc[:, -1] - auc[:, 0]
        self.auc_rises = (auc - np.minimum.accumulate(auc, axis=1)).max(axis=1)
        self.auc_change, self.auc_rise = float(np.median(self.auc_changes)), float(np.median(self.auc_rises))
        middle = np.median(f2, axis=0)
        self.auc_change_halfway = float(np.median(auc[:, int(np.argmax(middle <= middle[0] / 2))] - auc[:, 0]))
        self.correlation = float(
            np.median([
                0.0 if np.ptp(a) == 0 or np.ptp(b) == 0 else np.corrcoef(rankdata(a), rankdata(b))[0, 1]
                for a, b in zip(f2, auc, strict=True)
            ])
        )  # fmt: skip
        self.auc_falls = self.auc_change < 0 and self.correlation > 0
        self.cof = {}
        for name, draw in draws.items():
            lost = curves[name]["auc"][:, :1] - draw["auc"]
            self.cof[name] = (curves[name]["f2"][:, :1] - draw["f2"]) / np.where(lost == 0, np.nan, lost)
        self.median_cof = {name: _median(cof) for name, cof in self.cof.items()}
        self.median_size = {name: _median(np.abs(cof)) for name, cof in self.cof.items()}
        self.lower_cof = sum(
            _median(w) < _median(u) for w, u in zip(self.cof["weighted"], self.cof["unweighted"], strict=True)
        )
        self.gains = np.array([*map(equal_bias_gain, bias, auc, unweighted["bias"], unweighted["auc"])])
        self.gain = _median(self.gains) if np.isfinite(self.gains).mean() > 0.5 else float("nan")
        self.scale_free_left = float(np.median(bias[:, -1] / bias[:, 0]))
        self.negative_weights = np.median(weighted["negative"][:, [0, -1]], axis=0)
        self.alpha_ratio = float(np.median(weighted["alpha"][:, -1] / unweighted["alpha"][:, -1]))


Details: TypeAlias = Callable[[Sequence[PaperSetting], Sequence[PaperSetting]], str]  # settings that agree, and others


def read_settings(points: pd.DataFrame) -> list[PaperSetting]:
    """Read the settings from a table of points, in its order."""
    targets, settings = points[points["kind"] == "target"], []
    for key, group in points[points["kind"] != "target"].groupby(["dataset", "base", "fairness"], sort=False):
        dataset, base, fairness = map(str, key)
        of_data = targets[(targets["dataset"] == dataset) & (targets["fairness"] == fairness)]
        shape = group["repeat"].nunique(), -1
        curves, draws = (
            {
                str(name): {column: rows[column].to_numpy(dtype=float).reshape(shape) for column in _NUMBERS}
                for name, rows in group[group["kind"] == kind].groupby("framework", sort=False)
            }
            for kind in ("curve", "random")
        )
        target, average = (of_data.loc[of_data["base"] == name, "auc"].to_numpy() for name in (base, "average"))
        settings.append(PaperSetting(dataset, base, fairness, curves, draws, target, average))
    return settings


def equal_bias_gain(bias_w: FloatArray, auc_w: FloatArray, bias_u: FloatArray, auc_u: FloatArray) -> float:
    """AUC along one curve less AUC along another, at equal scale-free bias; arrays of shape (m,), alpha ascending.

    The scale-free bias need not fall with alpha. To ask a curve for the bias b is to take its smallest alpha with a
    bias of b or less, interpolated between neighbouring points. The gain is the mean over evenly spaced b from the
    least bias that both curves reach up to the smaller of their biases at alpha = 0; NaN if that range is shorter than
    `LEAST_COMMON` of its upper end.

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
    """One claim and its verdict.

    Its ``origin`` is ``"paper"``, or ``"added"`` for a claim that a reader needs to judge the paper; ``rule`` says when
    a setting agrees, and ``details`` gives the numbers. Of the settings (or numbers) ``tested``, ``held`` agree.
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


def breast_cancer_aucs(points: pd.DataFrame) -> dict[str, float]:
    """Breast Cancer's AUC at alpha = 0 by base ensemble, and the average combination's; medians over repeats."""
    group = points[(points["dataset"] == "breastw") & (points["fairness"] == "group")]
    start = group[(group["kind"] == "curve") & (group["framework"] == "weighted") & (group["alpha"] == 0)]
    rows = {base: start[start["base"] == base] for base in ("greedy", "maximum")}
    rows["average"] = group[(group["kind"] == "target") & (group["base"] == "average")]
    return {base: float(part["auc"].median()) for base, part in rows.items() if len(part)}


def _name(held: Sequence[PaperSetting], against: Sequence[PaperSetting]) -> str:
    """Name the settings that disagree, or else those that agree, if they are few."""
    for title, named in (("Not in", against), ("Only in", held)):
        if 0 < len(named) <= _NAMED and held and against:
            return f"{title} {'; '.join(f'{TITLES[s.dataset]} ({s.base}, {s.fairness})' for s in named)}."
    return f"{len(held)} settings." if not against else f"{len(held)} of {len(held) + len(against)} settings."


def _count(held: Sequence[PaperSetting], against: Sequence[PaperSetting]) -> str:
    every = (*held, *against)
    by_notion = {notion: [s in held for s in every if s.fairness == notion] for notion in FAIRNESS}
    return (
        "; ".join(f"{kind.capitalize()}: {sum(each)} of {len(each)}" for kind, each in by_notion.items() if each) + "."
    )


def _range(values: FloatArray) -> str:
    return f"{values.min():+.4f} to {values.max():+.4f}".replace("-", "\N{MINUS SIGN}")


def _ranges(title: str, measure: str, held: Sequence[PaperSetting], against: Sequence[PaperSetting]) -> str:
    """The range of a measure over the repeats, setting by setting."""
    ranges = "; ".join(f"{s.base} {_range(getattr(s, measure))}" for s in (*held, *against))
    return f"{title} over the repeats: {ranges}."


def _gains(held: Sequence[PaperSetting], against: Sequence[PaperSetting]) -> str:
    gains = np.array([s.gain for s in (*held, *against)])
    middle = f"{np.median(gains):+.4f}".replace("-", "\N{MINUS SIGN}")
    return f"Difference of AUC {middle} in the median setting, {_range(gains)}. {_count(held, against)}"


def _left(held: Sequence[PaperSetting], against: Sequence[PaperSetting]) -> str:
    left = np.array([s.scale_free_left for s in (*held, *against)])
    return f"Left: {np.median(left):.1%} in the median setting, {left.min():.1%} to {left.max():.1%}."


def judge(points: pd.DataFrame) -> list[Claim]:
    """Judge every claim that the points speak to; claims about data sets that were not run are left out."""
    settings, aucs = read_settings(points), breast_cancer_aucs(points)

    def claim(
        key: str, origin: str, statement: str, rule: str, agrees: Callable[[PaperSetting], bool],
        concerns: Callable[[PaperSetting], bool] = lambda _: True, details: Details = _name,
    ) -> Claim:  # fmt: skip
        """Count the settings that agree among those that a claim concerns."""
        concerned = [s for s in settings if concerns(s)]
        held = [s for s in concerned if agrees(s)]
        text = details(held, [s for s in concerned if s not in held]) if concerned else ""
        return Claim(key, origin, statement, rule, len(held), len(concerned), text)

    claims = [
        claim(
            "A1", "paper",
            "The bias f2 falls and the distance f1 to the target rises with alpha, in every setting.",
            "From each alpha of the curve to the next f2 does not rise and f1 does not fall, in both frameworks and "
            "every repeat.",
            lambda s: s.monotone,
        ),
        claim(
            "A2", "paper",
            "The AUC falls as the bias falls.",
            "The AUC at the largest alpha is below that at alpha = 0, and Spearman's correlation of f2 and AUC along "
            "the weighted curve is positive, each in the median repeat.",
            lambda s: s.auc_falls,
        ),
        claim(
            "A2a", "paper",
            "It always does: nowhere does the AUC rise while the bias falls.",
            f"From no point of the weighted curve to a later one does the AUC rise by more than {NOTABLE}, in the "
            "median repeat.",
            lambda s: s.auc_rise <= NOTABLE,
            details=_count,
        ),
        claim(
            "A2b", "paper",
            "Exception: on Breast Cancer under group fairness the AUC rises as the bias falls.",
            "A2 with both signs turned around.",
            lambda s: s.auc_change > 0 > s.correlation,
            concerns=lambda s: (s.dataset, s.fairness) == ("breastw", "group"),
            details=partial(_ranges, "Change of AUC", "auc_changes"),
        ),
        claim(
            "A2c", "paper",
            "Exception: on Mammography under individual fairness the AUC fluctuates.",
            f"From some point of the weighted curve to a later one the AUC rises by more than {NOTABLE}, in the median "
            "repeat.",
            lambda s: s.auc_rise > NOTABLE,
            concerns=lambda s: (s.dataset, s.fairness) == ("mammography", "individual"),
            details=partial(_ranges, "Largest rise of AUC", "auc_rises"),
        ),
        claim(
            "A2d", "added",
            "Where the target is good, as the method assumes, the AUC falls as the bias falls.",
            "A2, where the target's AUC is at least the average combination's in the median repeat.",
            lambda s: s.auc_falls,
            concerns=lambda s: s.good_target,
        ),
        claim(
            "A3", "paper",
            "The cost of fairness (cof) is lower with beta than without.",
            "The median of cof over the random alphas of all repeats is lower in the weighted framework.",
            lambda s: s.median_cof["weighted"] < s.median_cof["unweighted"],
            details=_count,
        ),
        claim(
            "A3a", "paper",
            "Its absolute value is lower with beta than without, which is said where cof is negative.",
            "A3, for the median of the absolute value of cof.",
            lambda s: s.median_size["weighted"] < s.median_size["unweighted"],
            details=_count,
        ),
        claim(
            "A3b", "added",
            "The answer to A3 does not hang on the draw of forest, groups and alphas.",
            "The weighted median of cof is the lower one in every repeat, or in none.",
            lambda s: s.lower_cof in (0, len(s.gains)),
            details=_count,
        ),
        claim(
            "A3c", "added",
            "The fair version of A3: at equal scale-free bias the AUC is higher with beta than without.",
            "The mean difference of AUC over 20 levels of bias, each framework at its smallest alpha that reaches the "
            f"level, is above 0 in the median repeat; where both can remove {LEAST_COMMON:.0%} of the bias.",
            lambda s: s.gain > 0,
            concerns=lambda s: bool(np.isfinite(s.gain)),
            details=_gains,
        ),
        Claim(
            "B1", "paper",
            f"Breast Cancer's AUC at alpha = 0: {'; '.join(f'{base} {auc}' for base, auc in PAPER_AUC.items())}.",
            f"The median over the repeats is within {CLOSE} of the paper's number (average: the combination itself).",
            sum(abs(auc - PAPER_AUC[base]) <= CLOSE for base, auc in aucs.items()),
            len(aucs),
            f"Found: {'; '.join(f'{base} {auc:.4f}' for base, auc in aucs.items())}.",
        ),
        claim(
            "C1", "added",
            "Group bias falls by more than a shrinking of all scores.",
            f"Where {LAST_FALL:.0%} of f2 is gone, at most {HALF:.0%} of the scale-free bias at alpha = 0 is left, in "
            "the median repeat.",
            lambda s: s.scale_free_left <= HALF,
            concerns=lambda s: s.fairness == "group",
            details=_left,
        ),
        claim(
            "C2", "added",
            "Individual bias falls by more than a shrinking of all scores.",
            "C1, for individual fairness.",
            lambda s: s.scale_free_left <= HALF,
            concerns=lambda s: s.fairness == "individual",
            details=_left,
        ),
        claim(
            "C3", "added",
            "No detector counts backwards: every weight is 0 or more.",
            "No weight is below 0 at alpha = 0, nor at the largest alpha, in the median repeat.",
            lambda s: max(s.negative_weights) == 0,
            details=lambda held, against: (
                "Below 0: {:g} of 18 weights at alpha = 0, {:g} at the largest alpha, in the median setting."
            ).format(*np.median([s.negative_weights for s in (*held, *against)], axis=0)),
        ),
    ]  # fmt: skip
    return [each for each in claims if each.tested]
