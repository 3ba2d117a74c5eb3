"""The figures behind an outcome: how large the gap was, what is left of it, for whom, and at which price."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evenout.core.flags import beyond_equal_rates, rate_ratio
from evenout.core.types import FloatArray
from evenout.estimator import FairOutlierEnsemble
from evenout.outcome import Outcome, flags_verdict


@dataclass(frozen=True)
class BeforeAfter:
    """A figure of the base score (before) and of the fair score (after), with standard errors where known."""

    before: float
    after: float
    before_error: float | None = None
    after_error: float | None = None


@dataclass(frozen=True)
class Figures:
    """What a fitted model has reached.

    Attributes
    ----------
    outcome : Outcome
        What came of the request.
    notions : tuple of str
        Notions of fairness that are pursued.
    groups, left_out_groups : dict of str to int
        Rows of each group that is compared, and of each that is too small for that.
    alpha : float
    gap_detected : bool
    gap_p_value : float
        Of "the groups have the same mean base score".
    gap_in_standard_deviations : float
        Largest difference of two groups' mean base scores, over the standard deviation of the base score.
    bias_reduction : float
        Share of the base score's bias that is gone on the rows that ``outcome.judged_on`` names.
    bias_reduction_interval : pair of float
        Its 95 % interval.
    unseen_estimate : {"everything refitted", "weights only"}
        What has not seen the rows that stand for unseen ones.
    bias_unseen, bias_training : BeforeAfter
        Scale-free bias, on unseen rows and on the training rows.
    bias_unseen_interval : dict of str to pair of float
        95 % intervals, ``before`` and ``after``.
    flag_rates : dict of str to BeforeAfter
        By group, of training rows.
    flag_rate_ratio, unflagged_rate_ratio : BeforeAfter
        Lowest over highest rate of being flagged, and of not being flagged, among training rows.
    flag_rate_ratio_unseen : BeforeAfter
        Lowest over highest flag rate on unseen rows.
    flag_rate_ratio_unseen_interval : pair of float
        95 % interval of the one after.
    flagged_in_groups : BeforeAfter
        Flagged rows of all groups that are compared.
    flagged_beyond_equal_rates : BeforeAfter
        How many of them are there beyond what equal rates would give.
    correlation : float
        Of base and fair score.
    """

    outcome: Outcome
    notions: tuple[str, ...]
    groups: dict[str, int]
    left_out_groups: dict[str, int]
    alpha: float
    gap_detected: bool
    gap_p_value: float
    gap_in_standard_deviations: float
    bias_reduction: float
    bias_reduction_interval: tuple[float, float]
    unseen_estimate: str
    bias_unseen: BeforeAfter
    bias_unseen_interval: dict[str, tuple[float, float]]
    bias_training: BeforeAfter
    flag_rates: dict[str, BeforeAfter]
    flag_rate_ratio: BeforeAfter
    unflagged_rate_ratio: BeforeAfter
    flag_rate_ratio_unseen: BeforeAfter
    flag_rate_ratio_unseen_interval: tuple[float, float]
    flagged_in_groups: BeforeAfter
    flagged_beyond_equal_rates: BeforeAfter
    correlation: float

    @classmethod
    def of(cls, model: FairOutlierEnsemble) -> "Figures":
        """From a fitted model."""
        path, alpha, names, rates = model.path_, model._result.choice.alpha, model.group_names_, model.flag_rates_
        flagged = rates * model.group_counts_[:, None]
        low, high = path.interval(alpha)
        compared = len(names) >= 2
        return cls(
            outcome=model.outcome_,
            notions=tuple(path.fairness),
            groups=dict(zip(names, model.group_counts_.tolist(), strict=True)),
            left_out_groups=dict(model.left_out_groups_),
            alpha=float(model.alpha_),
            gap_detected=bool(model.gap_detected_),
            gap_p_value=float(path.gap_p_value),
            gap_in_standard_deviations=float(path.cross.whole.widest_gaps()[0]),
            bias_reduction=float(model.bias_reduction_),
            bias_reduction_interval=model.bias_reduction_interval_,
            unseen_estimate="everything refitted" if path.cross.refitted else "weights only",
            bias_unseen=BeforeAfter(
                path.target_bias("unseen"),
                float(path.bias(alpha, "unseen")),
                path.target_standard_error(),
                float(path.standard_error(alpha)),
            ),
            bias_unseen_interval={"before": path.target_interval(), "after": (float(low), float(high))},
            bias_training=BeforeAfter(path.target_bias("training"), float(path.bias(alpha, "training"))),
            flag_rates={name: BeforeAfter(*rates[g].tolist()) for g, name in enumerate(names)},
            flag_rate_ratio=_change(rate_ratio(rates) if compared else None),
            unflagged_rate_ratio=_change(rate_ratio(1.0 - rates) if compared else None),
            flag_rate_ratio_unseen=BeforeAfter(
                model._result.base_flag_ratio(model.contamination), float(model.flag_rate_ratio_)
            ),
            flag_rate_ratio_unseen_interval=model.flag_rate_ratio_interval_,
            flagged_in_groups=_change(flagged.sum(axis=0)),
            flagged_beyond_equal_rates=_change(beyond_equal_rates(flagged, model.group_counts_)),
            correlation=float(path.correlation(alpha)),
        )

    @property
    def bias_shown(self) -> BeforeAfter:
        """``bias_unseen`` within its intervals: an estimate without bias may be below 0, where no gap can be."""
        unseen, ends = self.bias_unseen, self.bias_unseen_interval
        return BeforeAfter(max(unseen.before, ends["before"][0]), max(unseen.after, ends["after"][0]))

    @property
    def flags_verdict(self) -> str:
        """See `evenout.outcome.flags_verdict`; nothing where the scores are the base scores."""
        ratio = self.flag_rate_ratio_unseen
        return flags_verdict(ratio.before, ratio.after) if self.correlation < 1.0 - 1e-12 else ""


def labels_learnt(model: FairOutlierEnsemble) -> dict[str, Any] | None:
    """What labels have taught the base score; None where it was not to learn.

    Rows with a label, outliers among them, the weight of what was learnt, and the bias of the base score before and
    after.
    """
    stack, (before, after) = model._result.scores.stack, model.label_gap_
    if stack is None:
        return None
    counts = {"known": stack.n_labels, "outliers": stack.n_positive}
    return counts | {"weight": model.label_weight_, "bias_before": before, "bias_after": after}


def _change(pair: FloatArray | None) -> BeforeAfter:
    return BeforeAfter(*(np.full(2, np.nan) if pair is None else pair).tolist())
