"""The verdict on every claim, by stated rules, from the table of points alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenout.core.types import FloatArray
from evenout.reproduce.experiment import LAST_FALL, TITLES
from evenout.reproduce.settings import LEAST_COMMON, Setting, read_settings

if TYPE_CHECKING:
    import pandas as pd

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
