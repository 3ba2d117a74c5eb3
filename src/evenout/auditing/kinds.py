"""What each measure of an audit means: to a reader, to its test and to its interval."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Kind:
    """One measure.

    Parameters
    ----------
    words : str
        The measure in plain words.
    even : float, optional
        Its value where all groups are treated alike. A level (a mean, a rate) has none.
    worse : {"high", "low"}, optional
        The side on which it is unfair, where it is tested.
    shape : {"level", "squared", "spread", "extremes"}
        How noise enters, which decides on the interval; see `evenout.auditing.inference`.
    largest : float
        The largest value a gap can have; the smallest is 0.
    compares : str, optional
        For ``"extremes"``: the measure per group whose highest and lowest value are compared.
    question : str
        Tests of the same question are corrected together: one asked more of does not weaken the others.
    note : str
        What to keep in mind with every such value.
    tested_as : str, optional
        The measure whose test answers the same question; no second test is made or counted.
    twin : bool
        Whether ``tested_as`` is another estimate of the same quantity, so that its interval serves both.
    """

    words: str
    even: float | None = None
    worse: Literal["high", "low"] | None = None
    shape: Literal["level", "squared", "spread", "extremes"] = "level"
    largest: float = np.inf
    compares: str | None = None
    question: Literal["scores", "labels", "strata", "individuals", "features"] = "scores"
    note: str = ""
    tested_as: str | None = None
    twin: bool = False


def _squared(words: str, **more: Any) -> Kind:
    return Kind(words, 0.0, "high", "squared", **more)


def _difference(words: str, compares: str, note: str = "") -> Kind:
    return Kind(words, 0.0, "high", "extremes", 1.0, compares, "labels", note)


_RATES = "also reflects unequal shares of outliers"
_NOISE = "  the same less sampling noise"

KINDS: dict[str, Kind] = {
    "group_share": Kind("share of the rows"),
    "mean_score": Kind("mean score"),
    "score_quantile": Kind("quantile of the scores"),
    "flag_rate": Kind("flag rate"),
    "flag_rate_ratio": Kind(
        "lowest / highest flag rate (1 is even)", 1.0, "low", "extremes", 1.0, "flag_rate"
    ),
    "demographic_parity_raw": _squared("squared gap of mean scores", tested_as="demographic_parity"),
    "demographic_parity": _squared("squared gap of mean scores / variance"),
    "demographic_parity_corrected": _squared(_NOISE, tested_as="demographic_parity", twin=True),
    "welch_test": Kind("p-value of equal mean scores (Welch)"),
    "threshold_free_gap": Kind("flag-rate gap, mean over all thresholds", 0.0, "high", "spread", 1.0),
    "top_share_drift": _squared("drift of the group mix on top (KL)"),
    "individual_unfairness_raw": Kind(
        "squared gap of similar rows", worse="high", tested_as="individual_unfairness"
    ),
    "individual_unfairness": Kind(
        "squared gap of similar rows / variance", worse="high", question="individuals"
    ),
    "effective_pairs": Kind("pairs of similar rows it rests on", question="individuals"),
    "outlier_rate": Kind("share of known outliers"),
    "auc": Kind("AUC"),
    "average_precision": Kind("average precision"),
    "true_positive_rate": Kind("outliers flagged"),
    "false_positive_rate": Kind("inliers flagged"),
    "precision": Kind("flagged that are outliers"),
    "auc_gap": _difference("gap in AUC", "auc"),
    "average_precision_gap": _difference("gap in average precision", "average_precision", _RATES),
    "true_positive_rate_gap": _difference("gap in outliers flagged", "true_positive_rate"),
    "false_positive_rate_gap": _difference("gap in inliers flagged", "false_positive_rate"),
    "precision_gap": _difference("gap in flagged that are outliers", "precision", _RATES),
    "conditional_parity": _squared("squared gap within strata / variance", question="strata"),
    "conditional_parity_corrected": _squared(_NOISE, tested_as="conditional_parity", twin=True),
    "parity_within": _squared("squared gap in one stratum / variance", question="strata"),
    "gap_explained": Kind("part of the gap that goes with a feature", question="features"),
}
