"""Repair a finished score: with the group (`ScoreRepair`) or without it (`BlindRepair`)."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout.core.content import N_FOLDS, assign_folds
from evenout.core.flags import FlagRows, flag_threshold, flagged_share
from evenout.core.path import SIGNIFICANCE, Choice, TradeoffPath
from evenout.core.registry import GROUP_NOTIONS, NOTIONS
from evenout.core.ruler import UNKNOWN_RATIO, GroupMoments, RatioEstimate, no_gap_p_value, parity_from_moments
from evenout.core.types import ANY, FINITE, MOST_ROWS, FloatArray, IntArray, Within, require
from evenout.detectors.adapt import outlier_labels
from evenout.exceptions import InputError, NoGapWarning, TargetNotReachedWarning, warn
from evenout.fitting.choose import flag_price, settle
from evenout.fitting.resemblance import FittedResemblance, cross_fit_resemblance, warn_proxy
from evenout.fitting.result import announce
from evenout.fitting.rows import TrainingRows
from evenout.fitting.settings import Settings
from evenout.groups.model import ColumnTally
from evenout.groups.read import (
    Codes,
    GroupProbabilities,
    label_rows,
    match_groups,
    protected_columns,
    read_groups,
    warn_left_out,
)
from evenout.groups.rules import Groups, TakesSettings
from evenout.outcome import Outcome
from evenout.planning.plan import InvestigationPlan
from evenout.tables.parameters import CLASSIFIER, ENSEMBLE, check_parameters, one_of
from evenout.tables.rows import as_seed, column_name, new_rows, on_index, read_numbers

_GRID = np.linspace(0.0, 1.0, 1001)  # strengths tried before the root is refined

_RULES = {name: ENSEMBLE[name] for name in ("bias_reduction", "contamination")} | {
    "strength": ENSEMBLE["bias_reduction"]
}


class ScoreRepair(TakesSettings, TransformerMixin, BaseEstimator):
    """Make the score distributions of groups alike, in part or in full; any score, from any model.

    With ``F_g`` the distribution function of the scores of group g, ``Q_g`` its inverse and ``p_g`` the group's
    share of the rows, a row of group g with score y gets

        (1 - s) y  +  s Q(F_g(y)),        Q(u) = sum_h p_h Q_h(u)

    where s is the strength and Q belongs to the Wasserstein barycentre of the groups: of all distributions that
    the groups could share, the one that the scores reach with the least squared movement. Within a group no two
    rows change places.

    **The group is used when a decision is made.** Two people with the same data and different groups get
    different scores. This is disparate treatment. Some laws forbid it, others allow or even require adjustments
    of this kind; which of them applies depends on the place and the use, and nothing here is legal advice.

    `FairOutlierEnsemble` scores new rows without their group and is the first choice. Prefer this repair where the
    group may be used and is known for every new row, and the ensemble pays too much: if groups differ in their
    share of true outliers, a score that is blind to the group can be even only by detecting less. Remember that the
    repair then treats that real difference as bias too.

    Parameters
    ----------
    strength : float in [0, 1], optional
        s; 1 if neither parameter is given. 0 changes nothing, 1 gives all groups the same distribution.
    bias_reduction : float in [0, 1], optional
        Take the least strength that removes this share of the scale-free group bias on unseen rows. Not both.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the training rows that is flagged, or how many of them: those with the highest repaired scores.
    groups : Groups, optional
        Which groups are repaired, as in `FairOutlierEnsemble`: scores of small groups are returned as they are, or
        repaired as those of one group. With fewer than two groups that can be measured, all scores are returned as they
        are. Numbers, attributes one by one and missing groups do not go with this repair: it needs the group of a row.

    Attributes
    ----------
    strength_ : float
    bias_reduction_ : float
        The share of the score's scale-free group bias that is gone, as expected on unseen rows; NaN without a
        detectable gap, and where the repair leaves all scores equal.
    gap_detected_ : bool
        False if the group gap is within sampling noise (Welch's test), or nothing could be compared.
    group_names_ : tuple of str
        The groups that are compared.
    group_counts_ : array of int
    left_out_groups_ : dict of str to int
        Small groups that are left as they are, and their rows.
    threshold_ : float
        Rows that score above are flagged.
    score_name_, sensitive_names_ : str or None, and tuple of str
        Names of the score and of the protected columns, where they were columns of frames.

    Notes
    -----
    ``F_g`` counts half of the ties, so equal scores stay equal, and is linear between the training scores of the
    group. Scores beyond these are moved by as much as the outermost one: no new row is clipped.

    Strength 1 leaves no gap on the training rows, but the map has then used up their noise, and unseen rows still
    have one. With ``y_s`` the repaired score and ``m_g`` its training mean in group g, the squared gap to expect on
    unseen rows is, to first order and without bias,

        (m_p - m_q)^2  -  sum over g in (p, q) of  (2 (1 - s) Cov_g(y, y_s) - Var_g(y_s)) / n_g

    At s = 0 this is the corrected gap of `evenout.metrics.demographic_parity`, at s = 1 it is the noise itself. So
    small groups limit what any strength can promise; a request beyond that is met as far as possible, with a
    warning.

    References
    ----------
    Feldman, Friedler, Moeller, Scheidegger and Venkatasubramanian (2015), *Certifying and removing disparate impact*.
    Chzhen, Denis, Hebiri, Oneto and Pontil (2020), *Fair regression with Wasserstein barycenters*.

    Examples
    --------
    >>> from evenout import Groups, ScoreRepair
    >>> scores, groups = [1.0, 2.0, 3.0, 5.0, 6.0, 7.0], ["a", "a", "a", "b", "b", "b"]
    >>> repair = ScoreRepair(groups=Groups(min_size=3)).fit(scores, sensitive_features=groups)
    >>> repair.transform(scores, sensitive_features=groups)
    array([3., 4., 5., 3., 4., 5.])
    >>> repair.transform([0.0, 2.5, 9.0], sensitive_features=["a", "a", "b"])
    array([2. , 4.5, 7. ])
    """

    def __init__(
        self,
        *,
        strength: float | None = None,
        bias_reduction: float | None = None,
        contamination: float = 0.1,
        groups: Groups | None = None,
    ) -> None:
        self.strength = strength
        self.bias_reduction = bias_reduction
        self.contamination = contamination
        self.groups = groups

    def fit(self, scores: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:  # noqa: ARG002
        """Learn the groups' distributions.

        Parameters
        ----------
        scores : array of shape (n,)
            Any score; only the differences between groups matter, not its sign or scale.
        y : ignored
        sensitive_features : array, series or frame of shape (n,) or (n, c)
            The group of each row; several columns make intersectional groups. Required.
        """
        check_parameters(self.get_params(deep=False), _RULES)
        if self.strength is not None and self.bias_reduction is not None:
            raise ValueError("strength and bias_reduction were given; give at most one of them")
        values = read_numbers(scores, "scores")
        share = flagged_share(self.contamination, len(values))
        groups, places = self._read_groups(sensitive_features, scores, len(values))
        distributions = tuple(_Distribution.of(values[groups.codes == g]) for g in range(len(groups.labels)))
        shares = groups.counts / max(groups.counts.sum(), 1)
        moved = _transport(distributions, shares, values, groups.codes)
        strength, gap, reduction = 0.0, False, float("nan")
        if len(groups.labels) >= 2:
            bias = _UnseenBias(values, moved, groups)
            strength, gap = self._choose_strength(bias), bias.gap_detected
            reduction = float(bias.reduction(np.array([strength]))[0]) if gap else reduction
        names = [column_name(column) for column in protected_columns(sensitive_features, len(values), scores)]
        # Nothing is stored before everything has succeeded: a failed refit leaves the model as it was.
        return self._take(
            GroupMaps(
                groups=groups.labels,
                counts=groups.counts,
                left_out=groups.left_out,
                places=places,
                distributions=distributions,
                shares=shares,
                strength=strength,
                gap_detected=gap,
                bias_reduction=reduction,
                threshold=float(flag_threshold(_mixed(values, moved, strength, groups.codes), share)),
                score_name=column_name(scores),
                sensitive_names=tuple(str(name) for name in names) if all(names) else (),
            )
        )

    def _take(self, result: "GroupMaps") -> Self:
        """Set the learned attributes from a fit, new or saved."""
        self._result = result
        self.group_names_, self.group_counts_, self.left_out_groups_ = result.groups, result.counts, result.left_out
        self.strength_, self.gap_detected_ = result.strength, result.gap_detected
        self.bias_reduction_, self.threshold_ = result.bias_reduction, result.threshold
        self.score_name_, self.sensitive_names_ = result.score_name, result.sensitive_names
        return self

    def transform(self, scores: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Repaired scores of shape (m,), of the training rows or of new ones.

        Parameters
        ----------
        scores : array of shape (m,)
        sensitive_features : array, series or frame
            The group of each row, in the columns given to `fit`. A group that `fit` has not seen is an error; the
            scores of one that was left out stay as they are.
        """
        check_is_fitted(self)
        y, result = read_numbers(scores, "scores"), self._result
        known = match_groups(sensitive_features, len(y), tuple(result.places), rows=scores).codes
        codes = np.array(list(result.places.values()), dtype=np.intp)[known]
        return _mixed(y, _transport(result.distributions, result.shares, y, codes), result.strength, codes)

    def predict(self, scores: Any, *, sensitive_features: Any = None) -> IntArray:
        """-1 for rows whose repaired score is above ``threshold_``, and 1 for all others, shape (m,)."""
        repaired = self.transform(scores, sensitive_features=sensitive_features)
        return outlier_labels(self.threshold_ - repaired)

    def fit_transform(self, scores: Any, y: Any = None, *, sensitive_features: Any = None) -> FloatArray:  # noqa: ARG002
        """Fit, and repair the training scores."""
        return self.fit(scores, sensitive_features=sensitive_features).transform(
            scores, sensitive_features=sensitive_features
        )

    def _read_groups(self, sensitive_features: Any, scores: Any, n_rows: int) -> tuple[Codes, dict[str, int]]:
        """The groups that are compared, and the code of every group among them, -1 for one that is left out."""
        rules = Groups.read(self.groups)
        rules.refuse(
            {"continuous": (), "cross": True, "unknown": "error"}, "ScoreRepair, which needs the group of each row"
        )
        if isinstance(sensitive_features, GroupProbabilities):
            raise InputError(
                "ScoreRepair moves the score of a row by its group, but {@sensitive_features} has GroupProbabilities; "
                "give the group of each row"
            )
        for column in () if sensitive_features is None else protected_columns(sensitive_features, n_rows, None):
            if ColumnTally.of(column).continuous:
                raise InputError(
                    "ScoreRepair moves the score of a row by its group, but {@sensitive_features} has numbers in "
                    "column {name!r}; give the group of each row, such as bands of your own",
                    name=str(column.name),
                )
        every = label_rows(sensitive_features, n_rows, rows=scores)
        groups = read_groups(sensitive_features, n_rows, rules)
        warn_left_out(groups.left_out, len(groups.labels), rules.min_size)
        _, first = np.unique(every.codes, return_index=True)
        return groups, dict(zip(every.labels, groups.codes[first].tolist(), strict=True))

    def _choose_strength(self, bias: "_UnseenBias") -> float:
        if self.bias_reduction is None:
            return 1.0 if self.strength is None else float(self.strength)
        if not bias.gap_detected:
            warn(
                f"no group gap was found in the scores (p = {bias.p_value:.2g} for 'no gap'): what differs between the "
                "groups is within sampling noise, so nothing was changed. Give strength to repair all the same.",
                NoGapWarning,
            )
            return 0.0
        strength, reached = bias.least_strength(self.bias_reduction)
        if reached < self.bias_reduction:
            warn(
                f"bias_reduction={self.bias_reduction:g} cannot be promised on unseen rows with so few rows per group: "
                f"the most is {reached:.3f}, at strength {strength:.3f}, which was taken. More rows would allow more.",
                TargetNotReachedWarning,
            )
        return strength


@dataclass(frozen=True)
class _Distribution:
    """Distinct scores, ascending, and the share of rows below each of them, with half of its ties."""

    values: Annotated[FloatArray, "n"]
    levels: Annotated[FloatArray, "n"]

    def check(self) -> None:
        rising = (np.diff([self.values, self.levels]) > 0).all()
        require(len(self.values) and rising, "values", "is no order")

    @classmethod
    def of(cls, scores: FloatArray) -> "_Distribution":
        values, counts = np.unique(scores, return_counts=True)
        return cls(values, (np.cumsum(counts) - counts / 2) / len(scores))


@dataclass(frozen=True)
class GroupMaps:
    """All that a `ScoreRepair` has learnt; ``places`` has the code of every group, -1 for one that is left out."""

    groups: tuple[str, ...]
    counts: Annotated[IntArray, "G", Within(0, MOST_ROWS)]
    left_out: dict[str, Annotated[int, Within(0, MOST_ROWS)]]
    places: dict[str, Annotated[int, Within(-1)]]
    distributions: tuple[_Distribution, ...]
    shares: Annotated[FloatArray, "G"]
    strength: Annotated[float, FINITE]
    gap_detected: bool
    bias_reduction: float
    threshold: Annotated[float, FINITE]
    score_name: str | None
    sensitive_names: tuple[str, ...]

    def check(self) -> None:
        """A distribution for each group."""
        G = len(self.groups)
        require(len(self.counts) == G, "counts", "has the wrong length")
        require(len(self.distributions) == G, "distributions", "has the wrong length")
        require(all(place < G for place in self.places.values()), "places", "is out of range")


def _mixed(y: FloatArray, moved: FloatArray, strength: float, codes: IntArray) -> FloatArray:
    """``(1 - s) y + s moved`` for rows of a group; all others stay as they are."""
    return np.where(codes >= 0, (1.0 - strength) * y + strength * moved, y)


def _transport(
    distributions: tuple[_Distribution, ...], shares: FloatArray, y: FloatArray, codes: IntArray
) -> FloatArray:
    """``Q(F_g(y))`` for rows of group ``codes``; beyond the training scores, the shift of the outermost one.

    Rows without a group, -1, stay as they are.
    """
    moved = y.copy()
    for group, before in enumerate(distributions):
        rows = codes == group
        inside = np.clip(y[rows], before.values[0], before.values[-1])
        level = np.interp(inside, before.values, before.levels)
        moved[rows] = y[rows] - inside
        # One group after the other, not by a matrix product, whose rounding would depend on the rows around.
        for share, other in zip(shares, distributions, strict=True):
            moved[rows] += share * np.interp(level, other.levels, other.values)
    return moved


class _UnseenBias:
    """The scale-free bias to expect on unseen rows at every strength; see the notes of `ScoreRepair`.

    ``mean`` (G, 2) and ``cov`` (G, 2, 2) are the moments of the score and the fully repaired score in each group,
    ``total`` (2, 2) is their covariance over all rows.
    """

    def __init__(self, y: FloatArray, moved: FloatArray, groups: Codes) -> None:
        # In units of the range of the scores: none of this depends on it, and no square underflows.
        Z = (np.column_stack([y, moved]) - y.min()) / (np.ptp(y) or 1.0)
        parts = [Z[groups.codes == g] for g in range(len(groups.labels))]
        self.count, self.total = groups.counts.astype(float), np.cov(Z.T, ddof=0)
        self.mean = np.array([part.mean(axis=0) for part in parts])
        self.cov = np.array([np.cov(part.T) for part in parts])
        start = self.moments(np.zeros(1))
        self.p_value = float(no_gap_p_value(start)[0])
        self.gap_detected = bool(parity_from_moments(start, corrected=True)[0] > 0) and self.p_value <= SIGNIFICANCE

    def moments(self, strength: FloatArray) -> GroupMoments:
        """Group moments at each strength, with variances that turn the usual correction into that for unseen rows."""
        v = np.column_stack([1.0 - strength, strength])
        noise = 2.0 * v[:, :1] * (v @ self.cov[:, 0].T) - np.einsum("ma,gab,mb->mg", v, self.cov, v)
        total = np.maximum(np.einsum("ma,ab,mb->m", v, self.total, v), 0.0)
        return GroupMoments(self.count, v @ self.mean.T, noise, total)

    def reduction(self, strength: FloatArray) -> FloatArray:
        """Share of the bias that is gone at each strength."""
        bias = parity_from_moments(self.moments(np.r_[0.0, strength]), corrected=True)
        return 1.0 - bias[1:] / bias[0]

    def least_strength(self, request: float) -> tuple[float, float]:
        """The least strength that meets the request, or the best one, and the reduction there."""
        reached = np.nan_to_num(self.reduction(_GRID), nan=-np.inf)  # NaN: the score has become constant
        first = int((reached >= request).argmax())
        if first == 0:  # at once, or nowhere
            best = 0 if reached[0] >= request else int(reached.argmax())
            return float(_GRID[best]), float(reached[best])
        low, high = _GRID[first - 1], _GRID[first]
        return float(brentq(lambda s: self.reduction(np.array([s]))[0] - request, low, high, xtol=1e-12)), request


_SHARED = ("bias_reduction", "flag_rate_ratio", "confidence", "contamination", "n_jobs")
_BLIND_RULES = {name: ENSEMBLE[name] for name in _SHARED} | {
    "fairness": one_of(GROUP_NOTIONS),
    "classifier": CLASSIFIER,
}


class BlindRepair(TakesSettings, TransformerMixin, BaseEstimator):
    """Make any score fair without the group of the rows that are scored, by the smallest change that does it.

    Of all scores that do not see the group, the one closest to the score t that has equal group means is

        t(x)  -  sum_g lambda_g r_g(x),        r_g(x) = P(g | x) / P(g),        sum_g lambda_g = 0

    where ``r_g`` is how much a row resembles group g: 1 for a row that tells nothing. A threshold on a score of this
    form flags, of all rules with the same flag rates of the groups, the rows with the largest total t.

    **The score is corrected by how much somebody looks like a group.** The group itself is neither needed nor used when
    a decision is made, and two rows with the same data get the same score. But who looks like a member of a group is
    treated a little like one, member or not. Where the law, or your sense of right, sees that as using the group, do
    not use this; `FairOutlierEnsemble` weighs detectors instead. Nothing here is legal advice.

    Parameters
    ----------
    bias_reduction : float in [0, 1], optional
        Share of the score's scale-free group bias to remove on unseen rows. 0.8 if neither this nor the next is given.
    flag_rate_ratio : float in (0, 1], optional
        Least ratio of the groups' flag rates, lowest to highest, on unseen rows; solved for directly. Not both.
    confidence : float in [0.5, 1), optional
        Confidence with which ``bias_reduction`` must be reached.
    contamination : float in (0, 0.5] or int, default=0.1
        Share of the training rows that is flagged, or how many of them.
    classifier : scikit-learn classifier, optional
        Tells groups apart from X and the score, by ``predict_proba``; copies of it are fitted. By default a
        `HistGradientBoostingClassifier` of 50 small trees.
    fairness : {"demographic_parity", "equal_opportunity", "equal_false_alarms", "equalized_odds"}
        Whose mean scores are to be equal: those of all rows, of known outliers, of known inliers, or of each of these
        two; all but the first need ``labels``. Flag rates are those of the same rows.
    groups : Groups, optional
        Which groups are compared, as in `FairOutlierEnsemble`; ``min_size`` is 5 at least.
    random_state : int, RandomState or None, default=None
        Seed of the folds, and of unset random states in the classifier.
    n_jobs : int or None, default=None
        Classifiers that are fitted side by side; 16 are fitted in all.

    Attributes
    ----------
    lambda_, group_known_ : dict of str to float
        As in `FairOutlierEnsemble`. All of ``lambda_`` is 0 if the score is unchanged; where ``group_known_`` is 0,
        nothing can be repaired.
    bias_reduction_, flag_rate_ratio_ : float
        As estimated on held-out rows; the first is NaN without a detectable gap.
    bias_reduction_interval_, flag_rate_ratio_interval_ : tuple of float
        Their 95 % intervals; the first is NaN without a gap and where flag rates were asked for.
    flag_rates_ : array of shape (G, 2)
        Share of each group that the score flags before and after, counted on held-out rows.
    flag_price_ : dict of str to float
        As in `FairOutlierEnsemble`, for the given score and on the training rows.
    request_met_ : bool
        Whether the estimates support the request: at most 0.05 of it is missing, on average. Never with a score that
        shares less than half of its variance with the given one (correlation below 0.71), or, for flag rates, where
        the flagged stand out by less than half of what they did: such a score is even because it says little.
    outcome_ : Outcome
        The result of the request, as in `FairOutlierEnsemble`.
    gap_detected_ : bool
        False if the gap, in means or in flag rates as was asked, is within sampling noise; nothing is changed then.
    path_ : TradeoffPath
        Every trade-off between closeness and equal means; the columns are the resemblances. None without two groups.
    alpha_ : float
        The place on the path; NaN where flag rates were asked for.
    scores_ : array of shape (n,)
        The repaired training scores, each by a classifier that was fitted without the row.
    threshold_ : float
        Rows that score above are flagged.
    score_name_ : str or None
        Name of the score, where it was a column of a frame.
    group_names_, group_counts_, left_out_groups_
        The groups that are compared, the number of rows that each has, or is expected to have, and the groups too small
        to be measured, with their rows.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only where X had string column names.

    Notes
    -----
    Give the training rows scores as new rows would get them. A detector scores rows that it was fitted on differently:
    score them by one fitted elsewhere, or by cross-validation.

    `fit_transform` returns ``scores_``, as scikit-learn's `TargetEncoder` does: `transform` would score the training
    rows by a classifier that was fitted on their groups.

    Examples
    --------
    >>> import numpy as np
    >>> from evenout import BlindRepair
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=4000)
    >>> X = rng.normal(size=(4000, 2)) + np.outer(group, [1.0, 0.0])
    >>> score = X.sum(axis=1) + rng.normal(size=4000)
    >>> repair = BlindRepair(bias_reduction=0.8, random_state=0).fit(score, X, sensitive_features=group)
    >>> repair.request_met_, sorted(repair.lambda_)
    (True, ['0', '1'])
    >>> repair.transform(score, X).shape  # no group
    (4000,)
    """

    # Scores are data, not metadata.
    __metadata_request__fit = {"scores": UNUSED}  # noqa: RUF012
    __metadata_request__transform = {"scores": UNUSED}  # noqa: RUF012
    __metadata_request__predict = {"scores": UNUSED}  # noqa: RUF012

    def __init__(
        self,
        *,
        bias_reduction: float | None = None,
        flag_rate_ratio: float | None = None,
        confidence: float | None = None,
        contamination: float = 0.1,
        classifier: Any = None,
        fairness: str = "demographic_parity",
        groups: Groups | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.bias_reduction = bias_reduction
        self.flag_rate_ratio = flag_rate_ratio
        self.confidence = confidence
        self.contamination = contamination
        self.classifier = classifier
        self.fairness = fairness
        self.groups = groups
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        scores: Any,
        X: Any,
        *,
        sensitive_features: Any = None,
        given: Any = None,
        labels: Any = None,
        label_propensity: Any = None,
        clusters: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn how much rows resemble each group, and what to take off for it.

        Parameters
        ----------
        scores : array of shape (n,)
            Any score, higher = more outlying. It need not be a function of X.
        X : array or frame of shape (n, d)
            Features without the protected attribute, as they are known of new rows.
        sensitive_features : array, series or frame of shape (n,) or (n, c)
            The group of each row; several columns make intersectional groups. Or its `evenout.GroupProbabilities`.
            Required.
        given, labels, label_propensity, clusters, sample_weight
            See `FairOutlierEnsemble.fit`; ``labels`` are for ``fairness``.
        """
        settings, t = self._settings(), read_numbers(scores, "scores")
        settings = replace(settings, seed=as_seed(self.random_state))
        rows = TrainingRows.read(
            self, X, settings, sensitive_features=sensitive_features, clusters=clusters, sample_weight=sample_weight,
            given=given, labels=labels, label_propensity=label_propensity,
        )  # fmt: skip
        _refuse_other_length(t, rows.X)
        sample, share = rows.sample, flagged_share(self.contamination, len(t))
        nan, nobody = float("nan"), np.full((len(rows.names), 2), np.nan)
        result = Repaired(
            names=rows.names,
            counts=rows.counts,
            left_out=rows.groups.left_out,
            known=nobody[:, 0],
            prices=np.zeros(len(nobody)),
            flag_rates=nobody,
            scores=t.copy(),
            threshold=float(flag_threshold(t[:, None], share, sample.weight)[0]),
            score_name=column_name(scores),
            choice=Choice(nan, nan, False, nan, (nan, nan), 1.0),
            flag_ratio=UNKNOWN_RATIO,
        )
        if len(rows.names) >= 2:
            Z = np.column_stack([rows.X, t])
            folds = assign_folds(Z, rows.groups.codes, N_FOLDS, settings.seed, rows.clusters)
            cross = cross_fit_resemblance(
                self.classifier, Z, sample.members, folds,
                seed=settings.seed, n_jobs=self.n_jobs, stands_for=sample.weight,
            )  # fmt: skip
            held = FlagRows(cross.without[folds, np.arange(len(t))], t, sample, folds, cross.views(t))
            path = TradeoffPath(cross.sums(t, sample), tuple(settings.fairness.items()), noise_aware=True)
            path, choice, ratio, price = settle(settings, path, held, cross=cross)
            v, V = path.weights(choice.alpha), path.fold_weights(np.array([choice.alpha]), "unseen")
            if v.any():
                result = replace(result, prices=cross.model.levelled(-v) if path.rule is None else -v)
            both = np.column_stack([t, result.apply(t, cross.own)])
            above = flag_threshold(both, share, sample.weight)
            announce(settings, choice, ratio, both)
            if result.prices.any():
                warn_proxy(cross.known)
            result = replace(
                result,
                model=cross.model,
                path=path,
                choice=choice,
                flag_ratio=ratio,
                flag_price=price | flag_price(t, t > above[0], both[:, 1] > above[1], None),
                flag_rates=sample.means(held.flagged(np.concatenate([held.base(), V], axis=1), share)),
                known=cross.known,
                scores=both[:, 1].copy(),
                threshold=float(above[1]),
            )
        # Nothing is stored before everything has succeeded: a failed refit leaves the model as it was.
        return self._take(result, X)

    def transform(self, scores: Any, X: Any) -> FloatArray:
        """Repaired scores of new rows, shape (m,); no group is needed.

        Parameters
        ----------
        scores : array of shape (m,)
        X : array or frame of shape (m, d)
            The columns given to `fit`.
        """
        check_is_fitted(self)
        t, features = read_numbers(scores, "scores"), new_rows(self, X)
        _refuse_other_length(t, features)
        result = self._result
        if result.model is None or not result.prices.any():
            return t.copy()
        return result.apply(t, result.model.of(np.column_stack([features, t])))

    def predict(self, scores: Any, X: Any) -> IntArray:
        """-1 for rows whose repaired score is above ``threshold_``, and 1 for all others, shape (m,)."""
        repaired = self.transform(scores, X)
        return outlier_labels(self.threshold_ - repaired)

    def plan(
        self,
        scores: Any,
        X: Any,
        budget: int = 200,
        explore: float = 0.1,
        sensitive_features: Any = None,
        random_state: Any = None,
        *,
        known: Any = None,
    ) -> InvestigationPlan:
        """Plan which rows to investigate next, by their repaired scores; see `InvestigationPlan.of`."""
        plan = InvestigationPlan.of(
            on_index(self.transform(scores, X), X),
            budget=budget,
            explore=explore,
            sensitive_features=sensitive_features,
            random_state=random_state,
            known=known,
        )
        return replace(plan, promised=self.flag_rate_ratio)

    def fit_transform(self, scores: Any, X: Any, **beside: Any) -> FloatArray:
        """Fit, and repair the training scores, each by a classifier that has not seen the row."""
        return self.fit(scores, X, **beside).scores_

    def _settings(self) -> Settings:
        check_parameters(self.get_params(deep=False), _BLIND_RULES)
        if self.bias_reduction is not None and self.flag_rate_ratio is not None:
            raise InputError("{@bias_reduction} and {@flag_rate_ratio} were given; give at most one of them")
        if self.confidence is not None and self.flag_rate_ratio is not None:
            raise InputError(
                "{@confidence} goes with {@bias_reduction}, but {@flag_rate_ratio} was given; leave one out"
            )
        rules = Groups.read(self.groups)
        if rules.min_size < N_FOLDS:  # two of the folds are left out at once, and each group must be in the rest
            raise InputError(
                "{min_size=} is not allowed; use an integer of at least {least}", min_size=rules.min_size, least=N_FOLDS
            )
        return Settings(
            {NOTIONS[self.fairness]: 1.0},
            self.bias_reduction,
            self.flag_rate_ratio,
            confidence=self.confidence,
            correction="resemblance",
            classifier=self.classifier,
            contamination=self.contamination,
            groups=rules,
            n_threads=effective_n_jobs(self.n_jobs),
        )

    def _take(self, result: "Repaired", X: Any) -> Self:
        """Set the learned attributes from a fit, new or saved."""
        validate_data(self, X, skip_check_array=True)
        self._result, path, choice, names = result, result.path, result.choice, result.names
        by_flags = self.flag_rate_ratio is not None
        self.path_ = path if path is None or path.rule is None else replace(path, rule=None)
        self.scores_, self.threshold_, self.score_name_ = result.scores, result.threshold, result.score_name
        self.group_names_, self.group_counts_, self.left_out_groups_ = names, result.counts, result.left_out
        self.group_known_ = dict(zip(names, result.known.tolist(), strict=True))
        self.lambda_ = dict(zip(names, result.prices.tolist(), strict=True))
        self.request_met_, self.gap_detected_ = choice.met, path is not None and path.gap_detected
        if by_flags and path is not None:
            self.gap_detected_ = choice.found_gap(changed=bool(result.prices.any()))
        self.alpha_ = float("nan") if by_flags else choice.alpha
        self.bias_reduction_, self.bias_reduction_interval_ = choice.reached, choice.interval
        self.flag_rates_, self.flag_price_ = result.flag_rates, result.flag_price
        self.flag_rate_ratio_, self.flag_rate_ratio_interval_ = result.flag_ratio.value, result.flag_ratio.interval
        self.outcome_ = Outcome.of(choice, result.flag_ratio, self.get_params(deep=False), path)
        return self


@dataclass(frozen=True)
class Repaired:
    """Everything that a `BlindRepair` has learnt; ``model`` and ``path`` are None without two groups to compare.

    ``names``, ``counts``, ``known`` and ``prices``, which is lambda, are of the groups that are compared. Where flag
    rates were solved for, the path leads to the rule, as in `evenout.fitting.result.FitResult`. The rest is as in
    `BlindRepair`.
    """

    names: tuple[str, ...]
    counts: Annotated[IntArray, "G", Within(0, MOST_ROWS)]
    left_out: dict[str, Annotated[int, Within(0, MOST_ROWS)]]
    known: Annotated[FloatArray, "G", ANY]
    prices: Annotated[FloatArray, "G"]
    flag_rates: Annotated[FloatArray, "G 2", ANY]
    scores: Annotated[FloatArray, "n"]
    threshold: Annotated[float, FINITE]
    score_name: str | None
    choice: Choice
    flag_ratio: RatioEstimate
    model: FittedResemblance | None = None
    path: TradeoffPath | None = None
    flag_price: dict[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Require that all parts are of the same groups."""
        G, model, path = len(self.names), self.model, self.path
        require(len(self.counts) == G, "names", "has the wrong length")
        require((model is None) == (path is None), "path", "does not go with the rest")
        if model is not None and path is not None:
            require(model.n_groups == path.cross.whole.n_detectors == G, "model", "has the wrong length")
            require(np.isfinite(self.flag_rates).all(), "flag_rates", "is not finite")

    def filled(self, n_features: int) -> "Repaired":
        """The repair, read from a file, after a check against the columns of a fit."""
        if self.model is not None:
            self.model.fits(n_features + 1)  # the score is a column too
        return self

    def apply(self, t: FloatArray, r: FloatArray) -> FloatArray:
        """The score of rows, each by itself: it does not depend on the rows around it."""
        return t - np.einsum("ig,g->i", r, self.prices) if self.prices.any() else t.copy()


def _refuse_other_length(t: FloatArray, X: FloatArray) -> None:
    if len(t) != len(X):
        raise InputError(
            "{@scores} has {n} rows, but {@X} has {m}; give the score and the features of each row", n=len(t), m=len(X)
        )
