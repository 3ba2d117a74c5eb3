"""Measures of one score: distance to a target, bias between groups, flag rates, cost of fairness.

Scores are outlier scores, higher = more outlying. Groups go by ``sensitive_features``, as in fairlearn.

``roc_auc_scorer``, ``average_precision_scorer`` and ``flag_rate_ratio_scorer`` are for `GridSearchCV` and
`cross_val_score`; see `OutlierScore`.
"""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_array

from evenout.core import flags
from evenout.core.cells import rank_weights
from evenout.core.individual import DEFAULT_LENGTH, LengthScale, comparable_rows
from evenout.core.pairwise import pair_sums
from evenout.core.ruler import GroupMoments, no_gap_p_value, parity_from_moments
from evenout.core.types import BoolArray, FloatArray
from evenout.exceptions import InputError, Message
from evenout.groups.read import Codes, read_groups
from evenout.groups.rules import Groups
from evenout.tables.parameters import SHARE_OR_COUNT, check_parameters
from evenout.tables.rows import LABELS, read_numbers, read_outcomes

__all__ = [
    "OutlierScore",
    "average_precision",
    "average_precision_scorer",
    "cost_of_fairness",
    "demographic_parity",
    "flag_rate_ratio",
    "flag_rate_ratio_scorer",
    "flag_rates",
    "individual_unfairness",
    "misfit",
    "no_gap_test",
    "roc_auc",
    "roc_auc_scorer",
    "unflagged_rate_ratio",
]


def misfit(scores: Any, target: Any, *, weighting: str = "rank") -> float:
    """``f1 = sum_i beta_i (y_i - t_i)^2``, with ``beta_i = exp(rank_i / n)`` by rank of the target, or 1.

    >>> misfit([0.0, 1.0], [0.5, 1.0], weighting="uniform")
    0.25
    """
    y, t = read_numbers(scores, "scores"), read_numbers(target, "target")
    if len(y) != len(t):
        raise ValueError(f"scores has {len(y)} rows, but target has {len(t)}")
    if weighting not in ("rank", "uniform"):
        raise ValueError(f"weighting={weighting!r} is unknown; use 'rank' or 'uniform'")
    beta = rank_weights(t) if weighting == "rank" else np.ones(len(t))
    return float(beta @ (y - t) ** 2)


def demographic_parity(
    scores: Any, *, sensitive_features: Any, scale_free: bool = False, corrected: bool = False
) -> float:
    """Mean squared gap of the groups' mean scores over all pairs of groups.

    Parameters
    ----------
    scores : array of shape (n,)
    sensitive_features : array, series or frame
    scale_free : bool
        Divide by the variance of the scores: squared gaps in standard deviations, the same after rescaling the scores.
    corrected : bool
        Subtract the sampling noise ``s_p^2/n_p + s_q^2/n_q`` of each squared gap: an unbiased estimate, which
        may be negative.

    >>> demographic_parity([0.0, 0.2, 1.0, 1.2], sensitive_features=["a", "a", "b", "b"])
    1.0
    """
    moments, unit = _moments(scores, sensitive_features)
    if scale_free:
        return float(parity_from_moments(moments, corrected=corrected)[0])
    raw = parity_from_moments(replace(moments, total_variance=np.ones(1)), corrected=corrected)
    return unit**2 * float(raw[0])


def no_gap_test(scores: Any, *, sensitive_features: Any) -> float:
    """p-value of "all groups have the same mean score" (Welch's test, which allows unequal variances)."""
    return float(no_gap_p_value(_moments(scores, sensitive_features)[0])[0])


def individual_unfairness(
    scores: Any,
    X: Any,
    *,
    sensitive_features: Any,
    scale_free: bool = False,
    length_scale: LengthScale = DEFAULT_LENGTH,
) -> float:
    """Squared differences between the scores of similar rows of different groups.

    The mean over pairs of groups of ``sum M_ij (y_i - y_j)^2 / (n_p n_q)``, or of
    ``sum M_ij (y_i - y_j)^2 / sum M_ij / Var(y)`` where scale-free. The similarity is
    ``M_ij = exp(-distance of the feature rows)``, by default that of `evenout.FairOutlierEnsemble` and `evenout.audit`.

    Parameters
    ----------
    scores : array of shape (n,)
    X : array or frame of shape (n, d)
        Features without the protected attribute.
    sensitive_features : array, series or frame
    scale_free : bool
    length_scale : "minmax", float or ("median", factor), default=("median", 0.1)
        A number or a multiple of the median distance between rows of different groups: distances of standardised
        features in that unit. ``"minmax"``: distances of raw features, scaled to [0, 1], as published.
    """
    z, unit, groups = _in_units(scores, sensitive_features)
    features = check_array(X, dtype=np.float64, input_name="X")
    if len(features) != len(z):
        raise ValueError(f"X has {len(features)} rows, but scores has {len(z)}")
    rows, scale = comparable_rows(features, groups.codes, length_scale)
    G, folds = len(groups.labels), np.zeros(len(z), dtype=np.intp)
    pairs = pair_sums(rows, z[:, None], groups.codes, folds, n_groups=G, n_folds=1, scale=scale)
    squared, mass = pairs.form[:, 0, 0, 0, 0], pairs.mass[:, 0, 0]
    if scale_free:
        mean = float(np.mean(squared / np.maximum(mass, np.finfo(float).tiny)))
        return mean / float(z.var()) if z.var() > 0 else float("nan")
    sizes = [groups.counts[p] * groups.counts[q] for p, q in combinations(range(G), 2)]
    return unit**2 * float(np.mean(squared / sizes))


def flag_rates(scores: Any, *, sensitive_features: Any, contamination: float = 0.1) -> dict[str, float]:
    """Share of each group that is flagged, by group name.

    Parameters
    ----------
    scores : array of shape (n,)
    sensitive_features : array, series or frame
    contamination : float in (0, 0.5] or int, default=0.1
        The share of all rows that is flagged, those with the highest scores; a whole number is a count of rows.

    >>> flag_rates([1.0, 2.0, 3.0, 4.0], sensitive_features=["a", "b", "a", "b"], contamination=1)
    {'a': 0.0, 'b': 0.5}
    """
    check_parameters({"contamination": contamination}, {"contamination": SHARE_OR_COUNT})
    y = read_numbers(scores, "scores")
    groups = read_groups(sensitive_features, len(y), rows=scores)
    rates = flags.flag_rates(y, groups.codes, len(groups.labels), contamination)
    return dict(zip(groups.labels, rates.tolist(), strict=True))


def flag_rate_ratio(scores: Any, *, sensitive_features: Any, contamination: float = 0.1) -> float:
    """Smallest over largest flag rate of the groups; 1 is even. The parameters are those of `flag_rates`.

    Being flagged is mostly a burden. `unflagged_rate_ratio` compares how often groups are spared it: with few rows
    flagged it is near 1 whatever this one is.
    """
    rates = flag_rates(scores, sensitive_features=sensitive_features, contamination=contamination)
    return float(flags.rate_ratio(np.array(list(rates.values()))))


def unflagged_rate_ratio(scores: Any, *, sensitive_features: Any, contamination: float = 0.1) -> float:
    """Smallest over largest rate of *not* being flagged, of the groups; 1 is even. As `flag_rate_ratio` otherwise.

    >>> unflagged_rate_ratio([1.0, 2.0, 3.0, 4.0], sensitive_features=["a", "b", "a", "b"], contamination=1)
    0.5
    """
    rates = flag_rates(scores, sensitive_features=sensitive_features, contamination=contamination)
    return float(flags.rate_ratio(1.0 - np.array(list(rates.values()))))


def roc_auc(y_true: Any, scores: Any) -> Any:
    """Area under the ROC curve: the chance that an outlier (1) scores above an inlier (0); a tie counts half.

    A float, or one for each column of ``scores``; NaN where there are no outliers or nothing else.

    >>> roc_auc([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4])
    0.75
    """
    outlier = np.asarray(y_true) == 1
    n_outliers = int(outlier.sum())
    pairs = n_outliers * (len(outlier) - n_outliers) or np.nan
    ranks = rankdata(scores, axis=0)[outlier].sum(axis=0)
    auc = (ranks - n_outliers * (n_outliers + 1) / 2) / pairs
    return auc if np.ndim(auc) else float(auc)


def average_precision(y_true: Any, scores: Any) -> float:
    """Precision at each outlier, averaged over the outliers; see `sklearn.metrics.average_precision_score`."""
    from sklearn.metrics import average_precision_score  # loads much that `import evenout` should not

    return float(average_precision_score(y_true, scores))


def cost_of_fairness(f2_start: float, f2: float, auc_start: float, auc: float) -> float:
    """The paper's cof: ``(f2(w_0) - f2(w)) / (AUC(w_0) - AUC(w))``, bias removed per AUC lost.

    It grows when more bias goes per AUC lost, changes sign when AUC rises, and is NaN where AUC has not moved.
    """
    lost = auc_start - auc
    return (f2_start - f2) / lost if lost != 0 else float("nan")


class OutlierScore(BaseEstimator):
    """A scorer for outlier detectors of scikit-learn's kind, higher = better: ``scorer(model, X, y)``.

    scikit-learn's own ``scoring="roc_auc"`` ranks detectors upside down where labels are 1 for an outlier, because
    ``decision_function`` is low for outliers.

    Parameters
    ----------
    measure : {"roc_auc", "average_precision", "flag_rate_ratio"}
        The first two hold the scores against ``y``, 1 for an outlier and 0 for none; both must occur in every part of
        the rows, so let `StratifiedKFold` part them. The third is the lowest over the highest share of a group that
        the model flags; groups of fewer than 30 rows are left out, and it is NaN where nothing can be compared. It
        needs ``sensitive_features``, which scikit-learn hands on where metadata routing is on.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> from evenout.datasets import load_dataset
    >>> from evenout.metrics import roc_auc_scorer
    >>> data = load_dataset("breastw")
    >>> bool(roc_auc_scorer(IsolationForest(random_state=0).fit(data.X), data.X, data.y) > 0.9)
    True
    """

    # The model is no metadata; the groups are handed on without being asked for.
    __metadata_request__score = {"estimator": UNUSED, "sensitive_features": True}  # noqa: RUF012

    def __init__(self, measure: str) -> None:
        self.measure = measure

    def score(self, estimator: Any, X: Any, y: Any = None, *, sensitive_features: Any = None) -> float:
        """Score a fitted detector, or a pipeline that ends in one, on rows X."""
        decision = np.asarray(estimator.decision_function(X))
        if self.measure != "flag_rate_ratio":
            if y is None:
                raise InputError("{measure}_scorer needs y, 1 for an outlier and 0 for none", measure=self.measure)
            labels = read_labels(y, len(decision), both=True, name=Message("y"))
            return float((roc_auc if self.measure == "roc_auc" else average_precision)(labels, -decision))
        if sensitive_features is None:
            raise InputError(
                "flag_rate_ratio_scorer needs {@sensitive_features}: call "
                "sklearn.set_config(enable_metadata_routing=True) and pass them to the search's fit"
            )
        groups, flagged = read_groups(sensitive_features, len(decision), Groups(unknown="ignore")), decision < 0
        if len(groups.labels) < 2 or not flagged[groups.codes >= 0].any():
            return float("nan")
        return float(flags.rate_ratio(flags.group_rates(flagged, groups.codes, len(groups.labels))))

    __call__ = score


roc_auc_scorer = OutlierScore("roc_auc")
average_precision_scorer = OutlierScore("average_precision")
flag_rate_ratio_scorer = OutlierScore("flag_rate_ratio")


def _in_units(scores: Any, sensitive_features: Any) -> tuple[FloatArray, float, Codes]:
    """Scores from 0 to 1 at most, the power of 2 that divided them, so that no square underflows, and the groups."""
    y = read_numbers(scores, "scores")
    unit = 2.0 ** float(np.frexp(np.ptp(y))[1])
    return (y - y.min()) / unit, unit, read_groups(sensitive_features, len(y), rows=scores)


def _moments(scores: Any, sensitive_features: Any) -> tuple[GroupMoments, float]:
    """Group moments of scores in units, and the unit."""
    z, unit, groups = _in_units(scores, sensitive_features)
    parts = [z[groups.codes == g] for g in range(len(groups.labels))]
    mean = np.array([[part.mean() for part in parts]])
    variance = np.array([[part.var(ddof=1) for part in parts]])
    return GroupMoments(groups.counts.astype(float), mean, variance, np.array([z.var()])), unit


def read_labels(known: Any, n_rows: int | None = None, *, both: bool = False, name: Message = LABELS) -> BoolArray:
    """Known outliers as a mask, from one 0 or 1 per row; ``name`` is for messages, ``both``: whether both must occur.

    >>> read_labels([0, 1, True, "no"])
    array([False,  True,  True, False])
    """
    outlier: BoolArray = read_outcomes(known, n_rows, gaps=False, name=name) == 1.0
    if both and (outlier.all() or not outlier.any()):
        raise InputError(
            "{name} is {value} in every row; to evaluate, both 0 and 1 must occur", name=name, value=int(outlier[0])
        )
    return outlier
