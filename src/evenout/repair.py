"""Repair of a finished score: move each group's scores towards the distribution that all groups share."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from evenout.core.exceptions import InputError, NoGapWarning, TargetNotReachedWarning, warn
from evenout.core.flags import flag_threshold, flagged_share
from evenout.core.forms import GroupMoments, no_gap_p_value, parity_from_moments
from evenout.core.path import SIGNIFICANCE
from evenout.core.types import FloatArray, IntArray
from evenout.inputs.coder import Seen
from evenout.inputs.groups import Groups, label_rows, match_groups, protected_columns, read_groups, warn_left_out
from evenout.inputs.parameters import ENSEMBLE, check_parameters
from evenout.inputs.probable import GroupProbabilities
from evenout.inputs.rows import column_name
from evenout.metrics import one_per_row
from evenout.scikit import outlier_labels

_GRID = np.linspace(0.0, 1.0, 1001)  # strengths tried before the root is refined

_RULES = {name: ENSEMBLE[name] for name in ("bias_reduction", "contamination", "min_group_size", "small_groups")} | {
    "strength": ENSEMBLE["bias_reduction"]
}


class ScoreRepair(TransformerMixin, BaseEstimator):
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
    min_group_size : int, default=30
        Groups with fewer rows are small: their quantiles would be noise.
    small_groups : {"leave_out", "merge", "error"}, default="leave_out"
        The scores of small groups are returned as they are, with a warning in `fit` that names them; or small groups
        are repaired as one; or they are an error. With fewer than two groups that can be measured, all scores are
        returned as they are.

    Attributes
    ----------
    strength_ : float
    bias_reduction_ : float
        The share of the score's scale-free group bias that is gone, as expected on unseen rows; NaN without a
        detectable gap, and where the repair leaves all scores equal.
    gap_detected_ : bool
        False if the group gap is within sampling noise (Welch's test), or nothing could be compared.
    groups_ : tuple of str
        The groups that are compared.
    group_counts_ : array of int
    left_out_ : dict of str to int
        Small groups that are left as they are, and their rows.
    threshold_ : float
        Rows that score above are flagged.
    score_name_ : str or None
        Name of the score, where it was a column of a frame.
    sensitive_names_ : tuple of str
        Names of the protected columns, where they were columns of a frame.

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
    >>> from evenout.repair import ScoreRepair
    >>> scores, groups = [1.0, 2.0, 3.0, 5.0, 6.0, 7.0], ["a", "a", "a", "b", "b", "b"]
    >>> repair = ScoreRepair(min_group_size=3).fit(scores, sensitive_features=groups)
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
        min_group_size: int = 30,
        small_groups: str = "leave_out",
    ) -> None:
        self.strength = strength
        self.bias_reduction = bias_reduction
        self.contamination = contamination
        self.min_group_size = min_group_size
        self.small_groups = small_groups

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
        values = one_per_row(scores, "scores")
        share = flagged_share(self.contamination, len(values))
        groups, places = self._read_groups(sensitive_features, scores, len(values))
        distributions = tuple(_Distribution.of(values[groups.codes == g]) for g in range(len(groups.labels)))
        shares = groups.counts / max(groups.counts.sum(), 1)
        strength, found, reduction = 0.0, False, float("nan")
        if len(groups.labels) >= 2:
            bias = _UnseenBias.of(values, _transport(distributions, shares, values, groups.codes), groups)
            strength, found = self._choose_strength(bias), bias.gap_detected
            reduction = float(bias.reduction(np.array([strength]))[0]) if found else reduction
        # Nothing is stored before everything has succeeded: a failed refit leaves the model as it was.
        self.groups_, self.group_counts_, self.left_out_ = groups.labels, groups.counts, groups.left_out
        self._places, self._distributions, self._shares = places, distributions, shares
        self.strength_, self.gap_detected_, self.bias_reduction_ = strength, found, reduction
        self.threshold_ = float(flag_threshold(self._repaired(values, groups.codes), share))
        names = [column_name(column) for column in protected_columns(sensitive_features, len(values), scores)]
        self.score_name_, self.sensitive_names_ = column_name(scores), tuple(names) if all(names) else ()
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
        y = one_per_row(scores, "scores")
        known = match_groups(sensitive_features, len(y), tuple(self._places), rows=scores)
        codes = np.array(list(self._places.values()), dtype=np.intp)[known]
        return self._repaired(y, codes)

    def predict(self, scores: Any, *, sensitive_features: Any = None) -> IntArray:
        """-1 for rows whose repaired score is above ``threshold_``, and 1 for all others, shape (m,)."""
        repaired = self.transform(scores, sensitive_features=sensitive_features)
        return outlier_labels(self.threshold_ - repaired)

    def fit_transform(self, scores: Any, y: Any = None, *, sensitive_features: Any = None) -> FloatArray:  # noqa: ARG002
        """Fit, and repair the training scores."""
        return self.fit(scores, sensitive_features=sensitive_features).transform(
            scores, sensitive_features=sensitive_features
        )

    def _repaired(self, y: FloatArray, codes: IntArray) -> FloatArray:
        moved = _transport(self._distributions, self._shares, y, codes)
        return np.where(codes >= 0, (1.0 - self.strength_) * y + self.strength_ * moved, y)

    def _read_groups(self, sensitive_features: Any, scores: Any, n_rows: int) -> tuple[Groups, dict[str, int]]:
        """The groups that are compared, and the place of every group among them, -1 for one that is left out."""
        _refuse_other_groups(sensitive_features, n_rows)
        every = label_rows(sensitive_features, n_rows, rows=scores)
        groups = read_groups(
            sensitive_features, n_rows, min_group_size=self.min_group_size, small_groups=self.small_groups
        )
        warn_left_out(groups, self.min_group_size)
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


def _refuse_other_groups(sensitive_features: Any, n_rows: int) -> None:
    """Refuse protected columns that do not put each row into one group."""
    if isinstance(sensitive_features, GroupProbabilities):
        raise InputError(
            "ScoreRepair moves the score of a row by its group, but {@sensitive_features} has GroupProbabilities; give "
            "the group of each row"
        )
    columns = [] if sensitive_features is None else protected_columns(sensitive_features, n_rows, None)
    numbers = [str(column.name) for column in columns if Seen.of(column).many]
    if numbers:
        raise InputError(
            "ScoreRepair moves the score of a row by its group, but {@sensitive_features} has numbers in column "
            "{name!r}; give the group of each row, such as bands of your own",
            name=numbers[0],
        )


@dataclass(frozen=True)
class _Distribution:
    """Distinct scores, ascending, and the share of the rows below each of them, half of its ties included."""

    values: FloatArray
    levels: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> "_Distribution":
        values, counts = np.unique(scores, return_counts=True)
        return cls(values, (np.cumsum(counts) - counts / 2) / len(scores))


def _transport(
    distributions: tuple[_Distribution, ...], shares: FloatArray, y: FloatArray, codes: IntArray
) -> FloatArray:
    """``Q(F_g(y))`` for rows of group ``codes``; beyond the training scores, the shift of the outermost one.

    Rows without a group, -1, stay as they are.
    """
    moved = y.copy()
    for group, own in enumerate(distributions):
        rows = codes == group
        inside = np.clip(y[rows], own.values[0], own.values[-1])
        level = np.interp(inside, own.values, own.levels)
        moved[rows] = y[rows] - inside
        # One group after the other, not by a matrix product, whose rounding would depend on the rows around.
        for share, other in zip(shares, distributions, strict=True):
            moved[rows] += share * np.interp(level, other.levels, other.values)
    return moved


@dataclass(frozen=True)
class _UnseenBias:
    """The scale-free bias to expect on unseen rows at every strength; see the notes of `ScoreRepair`.

    ``mean`` (G, 2) and ``cov`` (G, 2, 2) are the moments of the score and the fully repaired score in each group,
    ``total`` (2, 2) is their covariance over all rows.
    """

    count: FloatArray
    mean: FloatArray
    cov: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, y: FloatArray, moved: FloatArray, groups: Groups) -> "_UnseenBias":
        # In units of the range of the scores: none of this depends on it, and no square underflows.
        Z = (np.column_stack([y, moved]) - y.min()) / (np.ptp(y) or 1.0)
        parts = [Z[groups.codes == g] for g in range(len(groups.labels))]
        return cls(
            count=groups.counts.astype(float),
            mean=np.array([part.mean(axis=0) for part in parts]),
            cov=np.array([np.cov(part.T) for part in parts]),
            total=np.cov(Z.T, ddof=0),
        )

    def moments(self, strength: FloatArray) -> GroupMoments:
        """Group moments at each strength, with variances that turn the usual correction into that for unseen rows."""
        v = np.column_stack([1.0 - strength, strength])
        own = np.einsum("ma,gab,mb->mg", v, self.cov, v)
        shared = v @ self.cov[:, 0].T
        total = np.maximum(np.einsum("ma,ab,mb->m", v, self.total, v), 0.0)
        return GroupMoments(self.count, v @ self.mean.T, 2.0 * v[:, :1] * shared - own, total)

    @property
    def p_value(self) -> float:
        return float(no_gap_p_value(self.moments(np.zeros(1)))[0])

    @property
    def gap_detected(self) -> bool:
        bias = parity_from_moments(self.moments(np.zeros(1)), corrected=True)[0]
        return bool(bias > 0) and self.p_value <= SIGNIFICANCE

    def reduction(self, strength: FloatArray) -> FloatArray:
        """Share of the bias that is gone at each strength."""
        bias = parity_from_moments(self.moments(np.r_[0.0, strength]), corrected=True)
        return 1.0 - bias[1:] / bias[0]

    def least_strength(self, request: float) -> tuple[float, float]:
        """The least strength that meets the request, or the best one, and the reduction there."""
        reached = np.nan_to_num(self.reduction(_GRID), nan=-np.inf)  # NaN: the score has become constant
        if not (reached >= request).any():
            best = int(reached.argmax())
            return float(_GRID[best]), float(reached[best])
        first = int((reached >= request).argmax())
        if first == 0:
            return 0.0, float(reached[0])
        strength = brentq(
            lambda s: self.reduction(np.array([s]))[0] - request, _GRID[first - 1], _GRID[first], xtol=1e-12
        )
        return float(strength), request
