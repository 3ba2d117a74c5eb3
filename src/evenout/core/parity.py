"""Equal means of groups: demographic parity, its variants among known outliers and inliers, and custom forms.

With ``m_g`` the mean of ``(s, t)`` in group g and L the Laplacian of the comparisons (`evenout.core.membership`), the
mean squared gap is ``m'Lm``. Sampling alone adds ``tr(L N)`` to it, on average, where ``N_gh`` is the covariance of
``m_g`` and ``m_h``, which is not 0 where groups share rows.

On held-out rows the gaps are squared within each fold. Pooling the folds first would be less noisy but optimistic: the
weights of a fold were fitted to the noise of the other folds, so that errors cancel in the sum. `choice` pools them all
the same, because low variance matters most where alphas are compared with each other.

A block of groups may be restricted to known outliers or to known inliers (`evenout.core.membership.Block.among`): each
notion here is parity over such blocks. Biases are in units of the variance over all rows, labelled or not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np

from evenout.core.cells import Cells, CrossFit, fold_variances, unit_target, variances
from evenout.core.membership import Comparison
from evenout.core.notions import ChiSquare, Collector, Notion, NotionRows
from evenout.core.parallel import one_blas_thread
from evenout.core.ruler import ONE_ROW, ratio, small_sample, smallest_p_value, wald_test
from evenout.core.types import BoolArray, FloatArray, IntArray

Sums = TypeVar("Sums", Cells, CrossFit)

_SOUND = 30  # rows from which a group's spread is known well enough
_WIDER = 1.7  # factor of the stated variance where columns are many (`CrossFit.crowded`)


@dataclass(frozen=True, eq=False)
class FoldMeans:
    """Group means of m scores in K sets, in standard deviations of each score.

    ``mean`` (K, m, G); ``cov`` (K, P, m, m), the covariance of the m means of one group with those of another, for the
    pairs of `Comparison.joint`; ``size`` (K, G), rows; ``known`` (K, G), whether a group has more than one independent
    row in a set, without which its noise is unknown.
    """

    mean: FloatArray
    cov: FloatArray
    size: FloatArray
    known: BoolArray
    compared: Comparison

    @cached_property
    def laplacian(self) -> FloatArray:
        """Laplacian of the groups known in each set, shape (K, G, G)."""
        return self.compared.laplacian(self.known, self.size)

    @cached_property
    def own(self) -> FloatArray:
        """``cov`` of each score with itself, shape (K, P, m)."""
        return np.einsum("fpmm->fpm", self.cov)

    @cached_property
    def shares(self) -> FloatArray:
        """Weight of each set, by its rows, shape (K,); 0 for a set without two groups to compare."""
        rows = np.where(self.laplacian.any(axis=(1, 2)), (self.size * self.known).sum(axis=1), 0.0)
        return rows / rows.sum() if rows.sum() > 0 else np.full(len(rows), np.nan)

    @cached_property
    def portions(self) -> FloatArray:
        """Share of each group's rows in each set, shape (K, G); 0 for a set where the group is not known."""
        size = np.where(self.known, self.size, 0.0)
        return size / np.maximum(size.sum(axis=0), np.finfo(float).tiny)

    @cached_property
    def pooled(self) -> "FoldMeans":
        """All sets as one: a group's mean is that of its rows in all sets where it is known."""
        portion, (g, h) = self.portions, self.compared.joint
        known = np.asarray(self.known.any(axis=0))[None]
        mean = np.einsum("fg,fmg->mg", portion, self.mean)[None]
        cov = np.einsum("fp,fpmn->pmn", portion[:, g] * portion[:, h], self.cov)[None]
        size = self.size.sum(axis=0, keepdims=True)
        return FoldMeans(_centred(mean, known[:, None]), cov, size, known, self.compared)

    @cached_property
    def squared(self) -> tuple[FloatArray, FloatArray]:
        """Mean squared gap of the known groups that are compared, and the part due to noise, shape (K, m) each."""
        L, (g, h) = self.laplacian, self.compared.joint
        squared = np.maximum(((self.mean @ L) * self.mean).sum(axis=2), 0.0)
        return squared, np.einsum("fp,fpm->fm", L[:, g, h], self.own)

    def traces(self, noise: FloatArray) -> FloatArray:
        """``tr(L N_ij L N_ij')`` of each set, for covariances (K, P, ...) of group means as in ``cov``: (K, ...)."""
        g, h = self.compared.joint
        both = [L[np.ix_(g, g)] * L[np.ix_(h, h)] for L in self.laplacian]
        return np.stack([(N * np.tensordot(weight, N, 1)).sum(axis=0) for weight, N in zip(both, noise, strict=True)])


def mean_covariances(cells: Cells) -> FloatArray:
    """Covariance ``N_gh`` of the means of ``(s, t)`` in two groups, shape (K, P, k + 1, k + 1); 0 for a single row.

    The pairs (g, h) are those of `Comparison.joint`. With clusters c whose members of g count ``n_cg`` and sum to
    ``u_cg``, it is ``sqrt(c_g c_h) sum_c (u_cg - n_cg m_g)(u_ch - n_ch m_h)' / (n_g n_h)``, to first order, with
    ``c = e / (e - 1)`` and e the effective size. With hard groups and each row a cluster, this is ``Sigma / n``.
    """
    g, h = cells.comparison.joint
    spread, mean = cells.joint_spread, cells.group_means
    across = np.einsum("fpk,fpl->fpkl", spread[:, :, 1:, 0], mean[:, h])
    back = np.einsum("fpk,fpl->fpkl", mean[:, g], spread[:, :, 0, 1:])
    square = np.einsum("fp,fpk,fpl->fpkl", spread[:, :, 0, 0], mean[:, g], mean[:, h])
    factor = small_sample(cells.effective_counts) / np.where(cells.group_counts > 0, cells.group_counts, 1.0)
    return (spread[:, :, 1:, 1:] - across - back + square) * (factor[:, g] * factor[:, h])[:, :, None, None]


class DemographicParity(Notion):
    """Equal mean scores of the groups; ``among`` are the kinds of blocks that it compares (`Block.among`)."""

    name, option = "demographic_parity", "equal mean scores of groups"
    words = "gap between groups"
    label = "Group bias"
    among: tuple[str, ...] = ("all",)

    def _own(self, sums: Sums) -> Sums:
        """The sums of the blocks that this notion compares."""
        return sums.only(lambda block: block.among in self.among)

    def form(self, cells: Cells) -> FloatArray:
        """``sum_gh L_gh m_g m_h'`` of each set, shape (K, k + 1, k + 1): the mean of ``(m_g - m_h)(m_g - m_h)'``."""
        cells = self._own(cells)
        n = cells.group_counts
        mean = _centred(cells.group_means.swapaxes(1, 2), (n > 0)[:, None])
        gaps = mean @ cells.comparison.root(n > 0, n).swapaxes(1, 2)
        return gaps @ gaps.swapaxes(1, 2)

    def noise(self, cells: Cells) -> FloatArray:
        """``sum_gh L_gh N_gh``: the mean of what sampling noise adds to `form`."""
        cells = self._own(cells)
        n = cells.group_counts
        L, (g, h) = cells.comparison.laplacian(n > 0, n), cells.comparison.joint
        return np.einsum("fp,fpkl->fkl", L[:, g, h], mean_covariances(cells))

    def bias(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """Corrected ``DP / Var(y)`` on held-out rows, squared within folds; the mean over folds by their rows.

        Two refinements, neither of which changes the estimand:

        - The folds' weights were solved on ``n - n_f`` rows, those of the fit on n, which leave less bias: the bias due
          to noise in the solved rows falls as one over their number. Weights that remove all of the gap in the rows
          they were solved on add half of the difference between other rows and those, each corrected for sampling
          noise; weights that remove the share J of it add J times as much. Of that, ``n_f / n`` is taken off.
        - Within folds, the change against the base score is measured, whose own bias is known with less noise
          (`target_bias`): correlated scores share their noise, and the base score has the same bias both ways.
        """
        return _HeldOut.on(self._own(cross), V).stated

    def choice(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """`bias` with the folds pooled before squaring: less noise, a little too low; to compare alphas with."""
        cross = self._own(cross)
        pooled = _means(cross, V, cross.held).pooled
        return np.subtract(*pooled.squared)[0] if pooled.laplacian.any() else np.full(V.shape[1], np.nan)

    def chi_square(self, cross: CrossFit, V: FloatArray | None = None) -> ChiSquare:
        """The bias of scores on held-out rows as ``a (X - freedom)``, X a noncentral chi-square; (m,) each.

        Gives ``bias + a freedom``; ``a``, so that the part of the variance that grows with the bias b is ``4 a b``; and
        the degrees of freedom, so that the rest of the variance is ``2 a^2 freedom``. Without V, those of the base
        score, folds pooled.
        """
        cross = self._own(cross)
        if V is None:
            means = _means(cross, unit_target(cross.held), cross.held).pooled
            return _chi_square(self.target_bias(cross), means, 2.0 * means.traces(means.own)[0])
        held = _HeldOut.on(cross, V)
        value, scale, freedom = _chi_square(held.stated, held.means, np.diag(held.free_covariance()))
        return value, scale * held.wider, freedom / held.wider

    def covariance(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """Covariance of `bias` of m scores and, last, of `target_bias`: shape (m + 1, m + 1).

        Group means are taken as normal, with the form ``Q`` of the mean squared gap and the covariances ``N_ij`` of the
        means of two scores. The part that grows with the gap is ``4 mu_i'Q N_ij Q mu_j`` per fold, where ``mu`` are the
        means, shrunk by what noise adds to their square; the rest is `_HeldOut.free_covariance`.
        """
        held = _HeldOut.on(self._own(cross), V)
        means, pooled, share = held.means, held.means.pooled, held.means.shares
        squared = np.append((share @ means.squared[0])[:-1], pooled.squared[0][0, -1])
        systematic = np.append(held.bias - held.learnt, self.target_bias(cross))
        shrink = np.sqrt(np.clip(np.nan_to_num(ratio(systematic, squared)), 0.0, 1.0))
        weight = np.repeat(share[:, None, None], means.mean.shape[1], axis=1) * np.ones(means.size.shape[1])
        weight[:, -1] = means.portions  # weight of an error of a group mean in an estimate
        pull = means.mean @ means.laplacian  # half of the derivative of the mean squared gap by each group mean
        pull[:, -1] = (pooled.mean @ pooled.laplacian)[0, -1]
        pull *= 2.0 * shrink[:, None] * weight
        g, h = means.compared.joint
        total = np.einsum("fip,fpij,fjp->ij", pull[:, :, g], means.cov, pull[:, :, h], optimize=True)
        total[:-1, :-1] += held.free_covariance()
        with_base = 2.0 * share**3 @ means.traces(means.cov[..., -1])[:, :-1]
        total[:-1, -1] += with_base
        total[-1, :-1] += with_base
        total[-1, -1] += 2.0 * pooled.traces(pooled.cov[:, :, -1, -1])[0]
        return total * held.wider

    def gap_p_value(self, cells: Cells) -> float:
        """p-value of "the groups have the same mean base score" (Welch); NaN with fewer than two groups.

        The smallest group dominates Welch's test, so the groups of 30 rows and more are tested alone too, and the
        smaller p of the two tests is doubled. Attributes that are compared one by one are tested one by one, and the
        smallest p is multiplied by their number: crossings nearly determine attributes, which a joint test would count
        twice.
        """
        cells = self._own(cells)
        attributes = {block.of for block in cells.comparison.blocks}
        if len(attributes) > 1:
            parts = [cells.only(lambda block, of=of: block.of == of) for of in sorted(attributes)]  # type: ignore[misc]
            return min(1.0, len(parts) * float(np.fmin.reduce([self.gap_p_value(part) for part in parts])))
        e, unit = cells.effective_counts[0], float(variances(cells, unit_target(cells))[0, 0])
        compared, cov = cells.comparison, np.zeros((cells.n_groups, cells.n_groups))
        cov[compared.joint] = mean_covariances(cells)[0, :, -1, -1]
        sets = {known.tobytes(): known for known in (e > ONE_ROW, e >= _SOUND)}.values()
        mean = cells.group_means[0, :, -1]
        return smallest_p_value([wald_test(compared, known, mean, cov, e, unit) for known in sets])


@dataclass(frozen=True)
class _HeldOut:
    """Estimates for m scores from held-out rows, and from the rows that their weights were solved on.

    ``means`` of the held-out rows, for the m scores and, last, the base score. ``bias`` (m,) of the folds' weights: the
    base score's bias, plus the change against it within folds. ``removed`` (m,), the share of the gap in the solved
    rows that is removed. ``learnt`` (m,), the part of the bias that is due to noise in the solved rows. ``kept``, the
    share of the rows that the weights of a fold were solved on; 1 where columns are many, and nothing is taken off.
    ``stated`` (m,), the bias of weights that are solved on all rows; see `DemographicParity.bias`. ``wider``, the
    factor of the variance of biases.
    """

    means: FoldMeans
    bias: FloatArray
    removed: FloatArray
    learnt: FloatArray
    kept: float
    stated: FloatArray
    wider: float

    @classmethod
    def on(cls, cross: CrossFit, V: FloatArray) -> "_HeldOut":
        """Measure scores with weights V of shape (K, m, k + 1)."""
        both = np.concatenate([V, unit_target(cross.held)], axis=1)
        means, solved = (_means(cross, both, cells) for cells in (cross.held, cross.training))
        share, unseen, (gap, noise) = means.shares, np.subtract(*means.squared), solved.squared
        left = np.nan_to_num(ratio(gap, gap[:, -1:]), nan=1.0)  # no gap in the solved rows: nothing was removed
        removed = 1.0 - np.sqrt(np.clip(left, 0.0, 1.0))
        learnt = share @ (removed / 2.0 * (unseen - gap + noise))
        within, base = share @ unseen, np.subtract(*means.pooled.squared)[0, -1]
        bias = within[:-1] - within[-1] + base
        kept = 1.0 if cross.crowded else float(share @ (cross.training.counts / cross.whole.counts))
        stated, wider = bias - (1.0 - kept) * learnt[:-1], _WIDER if cross.crowded else 1.0
        return cls(means, bias, (share @ removed)[:-1], learnt[:-1], kept, stated, wider)

    def free_covariance(self) -> FloatArray:
        """Covariance of the biases where all that is left of the gap is noise, shape (m, m).

        With ``e_f`` and ``h_f`` the errors of the group means of a score and of the base score in one of K folds, the
        bias has the error ``1/K sum (e_f^2 - N) - D - 2 J / (K (K - 1)) sum_{f != g} h_g e_f``. The first part is
        squared noise within folds. The second is that of the base score, ``D = 1/K sum (h_f^2 - N) - (1/K sum h_f)^2 +
        N/K``. The third is noise of the other folds that the weights have removed with the gap: a gap in this fold.
        """
        means, K, J = self.means, len(self.means.shares), self.removed
        T = np.tensordot(means.shares, means.traces(means.cov), 1)
        own, mixed, base = np.maximum(T[:-1, :-1], 0.0), np.maximum(T[:-1, -1], 0.0), float(T[-1, -1])
        part = 1.0 - (1.0 - self.kept) / 2.0 * J  # `bias` takes off the rest with ``learnt``
        squares = 2.0 / K * np.outer(part, part) * own
        shared = 2.0 * (K - 1) / K**2 * part * mixed + 4.0 / K**2 * J * part * np.sqrt(base * mixed)
        crossed = 4.0 / (K * (K - 1)) * (np.sqrt(base * own) + np.sqrt(np.outer(mixed, mixed)))
        return squares + 2.0 * (K - 1) / K**2 * base + np.outer(J * part, J * part) * crossed - shared[:, None] - shared


@one_blas_thread()
def _means(cross: CrossFit, V: FloatArray, cells: Cells) -> FoldMeans:
    """Group means of the rows in ``cells``, the inside or the outside of each fold, less the mean over groups."""
    deviation = np.sqrt(fold_variances(cross, V))
    unit = V / np.where(deviation > 0, deviation, np.nan)[:, :, None]
    known = cells.effective_counts > ONE_ROW
    mean = np.einsum("fgk,fmk->fmg", cells.group_means, unit)
    cov = unit[:, None] @ mean_covariances(cells) @ unit[:, None].swapaxes(2, 3)
    return FoldMeans(_centred(mean, known[:, None]), cov, cells.group_counts, known, cells.comparison)


def _chi_square(bias: FloatArray, means: FoldMeans, free: FloatArray) -> ChiSquare:
    """Value, scale and degrees of freedom of biases of shape (m,), whose variance without any gap is ``free``."""
    share, m = means.shares, len(bias)
    squared, noise = (share @ part for part in means.squared)
    pull, (g, h) = means.mean @ means.laplacian, means.compared.joint
    along = share**2 @ np.einsum("fmp,fmp,fpm->fm", pull[:, :, g], pull[:, :, h], means.own)
    scale = ratio(share**2 @ means.traces(means.own), noise)
    # Where the gap is clear, the noise that counts is that of the groups it lies between.
    scale = np.fmax(scale, np.where(squared > 3.0 * noise, ratio(along, squared), 0.0))[:m]
    freedom = ratio(np.maximum(free[:m], 0.0), 2.0 * scale**2)
    return bias + scale * freedom, scale, freedom


def _centred(mean: FloatArray, known: BoolArray) -> FloatArray:
    """Group means less their mean over the known groups; 0 for the others."""
    mean = np.where(known, mean, 0.0)
    centre = mean.sum(axis=-1, keepdims=True) / np.maximum(known.sum(axis=-1, keepdims=True), 1)
    return np.where(known, mean - centre, 0.0)


class _KnownOutcomes(DemographicParity):
    """Parity among rows of known outcome."""

    needs_labels = True
    label = "Group bias, known outcomes"


class EqualOpportunity(_KnownOutcomes):
    """Equal mean scores of the known outliers of all groups, so that none is overlooked for the group."""

    name, among, option = "equal_opportunity", ("outliers",), "equal means of known outliers"
    words, whom = "gap between known outliers of different groups", "people known to be outliers"


class EqualFalseAlarms(_KnownOutcomes):
    """Equal mean scores of the known inliers of all groups, so that none is flagged wrongly for the group."""

    name, among, option = "equal_false_alarms", ("inliers",), "equal means of known inliers"
    words, whom = "gap between known inliers of different groups", "people known to be no outliers"


class EqualizedOdds(_KnownOutcomes):
    """Equal mean scores of known outliers, and of known inliers; both have equal weight."""

    name, among = "equalized_odds", ("outliers", "inliers")
    option = "equal means of known outliers, and of known inliers"
    words = "gap between people of the same known outcome"
    whom = "people known to be outliers, and people known to be none,"


OwnForm: TypeAlias = Callable[[FloatArray, IntArray], FloatArray]


class Own(Notion):
    """``w'Cw`` of the detectors' weights, including those in t.

    Where t is not linear in the detectors, its own bias counts as 0. ``given`` is the positive semidefinite C (k, k),
    or a function of the scores (n, k) and the group codes (n,) that returns it; None for a form that was collected
    already.
    """

    name = "own"

    def __init__(self, given: FloatArray | OwnForm | None = None) -> None:
        self.given = given

    def collect(self, rows: NotionRows) -> Collector:
        """Check the form of each set of rows."""

        def sums(S: FloatArray, t: FloatArray, of: BoolArray) -> dict[str, FloatArray]:  # noqa: ARG001
            k, given = S.shape[1], self.given
            form = np.asarray(given(S[of], rows.groups[of]) if callable(given) else given, dtype=float)
            if form.shape != (k, k) or not np.isfinite(form).all():
                raise ValueError(
                    f"fairness is a form of shape {form.shape}; {k} detectors need a finite array of shape ({k}, {k})"
                )
            form = (form + form.T) / 2
            least, most = np.linalg.eigvalsh(form)[[0, -1]]
            if least < -1e-9 * max(most, 0.0) - 1e-300:
                raise ValueError(
                    f"fairness is a form with the eigenvalue {least:.3g}; it must be positive semidefinite"
                )
            return {"form": form}

        return sums

    def shapes(self, n_groups: int, k: int) -> dict[str, tuple[int, ...]]:  # noqa: ARG002
        """Shape of the form."""
        return {"form": (k, k)}

    def form(self, cells: Cells) -> FloatArray:
        """``J'CJ`` of each set, where ``J (v, 1) = v + base`` are the weights of the sum."""
        k = cells.n_detectors
        base = np.zeros((cells.n_sets, k)) if cells.base is None else cells.base
        J = np.concatenate([np.broadcast_to(np.eye(k), (cells.n_sets, k, k)), base[:, :, None]], axis=2)
        return J.swapaxes(1, 2) @ cells.sums["own.form"] @ J
