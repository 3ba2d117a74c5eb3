"""What each measure of an audit means: to a reader, to its test and to its interval."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Meaning:
    """One measure.

    Parameters
    ----------
    words : str
        The measure in plain words.
    even : float, optional
        Its value where all groups are treated alike. A level (a mean, a rate) has none.
    worse : {"high", "low"}, optional
        The side on which it is unfair, where it is tested.
    shape : {"level", "rate", "squared", "gap", "extremes", "none"}
        How noise enters, which decides on the interval; see `evenout.auditing.inference`. ``"none"``: no interval.
    largest : float
        The largest value a gap can have; the smallest is 0.
    compares : str, optional
        For ``"extremes"``: the measure per group whose highest and lowest value are compared.
    rest : bool
        For ``"extremes"``: one less that measure is compared.
    question : str
        Tests of the same question are corrected together: one asked more of does not weaken the others.
    note : str
        What to keep in mind with every such value.
    tested_as : str, optional
        The measure whose test answers the same question; no second test is made or counted.
    by_interval : bool
        Whether its p-value is that at which its interval just holds the even value. Shuffled groups would keep unequal
        shares of outliers, and answer whether there is more than these explain, which the interval does not ask.
    twin : str, optional
        Another estimate of the same quantity, whose interval serves both.
    about_rows : bool
        Whether it says more about the number of rows than about the scores, so that batches are not compared by it.
    """

    words: str
    even: float | None = None
    worse: Literal["high", "low"] | None = None
    shape: Literal["level", "rate", "squared", "gap", "extremes", "none"] = "level"
    largest: float = np.inf
    compares: str | None = None
    rest: bool = False
    question: Literal["scores", "labels", "strata", "individuals", "features"] = "scores"
    note: str = ""
    tested_as: str | None = None
    by_interval: bool = False
    twin: str | None = None
    about_rows: bool = False


def _squared(words: str, **more: Any) -> Meaning:
    return Meaning(words, 0.0, "high", "squared", **more)


def _difference(words: str, compares: str, **more: Any) -> Meaning:
    by_interval = "tested_as" not in more
    return Meaning(words, 0.0, "high", "extremes", 1.0, compares, question="labels", by_interval=by_interval, **more)


def _ratio(words: str, **more: Any) -> Meaning:
    return Meaning(words, 1.0, "low", "extremes", 1.0, "flag_rate", tested_as="flag_rate_test", **more)


def _test(words: str, **more: Any) -> Meaning:
    return Meaning(words, worse="high", shape="none", about_rows=True, **more)


def _seen(words: str) -> Meaning:
    return Meaning(words, shape="none", about_rows=True)


_RATES = "also reflects unequal shares of outliers"
_NOISE = "  the same less sampling noise"

MEANINGS: dict[str, Meaning] = {
    "group_share": Meaning("share of the rows"),
    "left_out_rows": Meaning("rows of a group left out", shape="none", about_rows=True),
    "left_out_flagged": Meaning("of these flagged", shape="none", about_rows=True),
    "mean_score": Meaning("mean score"),
    "score_quantile": Meaning("quantile of the scores"),
    "flag_rate": Meaning("flag rate", shape="rate"),
    "flag_rate_ratio": _ratio("lowest / highest flag rate (1 is even)"),
    "unflagged_rate_ratio": _ratio("lowest / highest rate of not being flagged", rest=True),
    "flag_rate_test": _test("chi-square of groups and flags"),
    "demographic_parity_raw": _squared("squared gap of mean scores", tested_as="mean_score_test"),
    "demographic_parity": _squared("squared gap of mean scores / variance", tested_as="mean_score_test"),
    "demographic_parity_corrected": _squared(_NOISE, tested_as="mean_score_test", twin="demographic_parity"),
    "mean_score_test": _test("chi-square of mean scores, each by its precision"),
    "mean_score_detectable": _seen("gap of mean scores seen with 80% power"),
    "flag_rate_detectable": _seen("difference of flag rates seen with 80% power"),
    "welch_test": Meaning("p-value of equal mean scores (Welch)", shape="none", about_rows=True),
    "threshold_free_gap": Meaning("flag-rate gap, mean over all thresholds", 0.0, "high", "gap", 1.0),
    "top_share_drift": _squared("drift of the group mix on top (KL)"),
    "individual_unfairness_raw": Meaning("squared gap of similar rows", question="individuals"),
    "individual_unfairness": Meaning("squared gap of similar rows / variance", question="individuals"),
    "individual_unfairness_shuffled": Meaning("  the same with shuffled groups", shape="none", question="individuals"),
    "effective_pairs": Meaning(
        "pairs of similar rows it rests on", shape="none", question="individuals", about_rows=True
    ),
    "outlier_rate": Meaning("share of known outliers", shape="rate"),
    "auc": Meaning("AUC"),
    "average_precision": Meaning("average precision"),
    "true_positive_rate": Meaning("outliers flagged", shape="rate"),
    "false_positive_rate": Meaning("inliers flagged", shape="rate"),
    "precision": Meaning("flagged that are outliers", shape="rate"),
    "auc_gap": _difference("gap in AUC", "auc"),
    "average_precision_gap": _difference("gap in average precision", "average_precision", note=_RATES),
    "true_positive_rate_gap": _difference(
        "gap in outliers flagged", "true_positive_rate", tested_as="true_positive_rate_test"
    ),
    "false_positive_rate_gap": _difference(
        "gap in inliers flagged", "false_positive_rate", tested_as="false_positive_rate_test"
    ),
    "precision_gap": _difference("gap in flagged that are outliers", "precision", note=_RATES),
    "true_positive_rate_test": _test("chi-square of groups and flagged outliers", question="labels"),
    "false_positive_rate_test": _test("chi-square of groups and flagged inliers", question="labels"),
    "true_positive_rate_detectable": _seen("difference of outliers flagged seen with 80% power"),
    "conditional_detectable": _seen("gap within strata seen with 80% power"),
    "conditional_parity": _squared("squared gap within strata / variance", tested_as="strata_test"),
    "conditional_parity_corrected": _squared(_NOISE, tested_as="strata_test", twin="conditional_parity"),
    "mean_apart": Meaning("mean score less that of all rows, in deviations"),
    "apart_by_strata": Meaning("part of that which goes with the strata"),
    "strata_test": _test("chi-square of mean scores within strata", question="strata"),
    "parity_within": _squared("squared gap in one stratum / variance", question="strata"),
    "gap_explained": Meaning("part of the gap that goes with a feature", question="features"),
}
