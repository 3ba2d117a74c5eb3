"""Fairness notions as small quadratic forms, and the biases measured from them.

A notion is two functions of the cells: ``form`` gives the (k+1) x (k+1) array C with ``f2 = v' C v``, and ``bias`` the
scale-free bias of one score. ``v`` weighs the columns of ``(s_1, ..., s_k, t)``: ``(w, 0)`` is the ensemble,
``(0, ..., 0, 1)``
the target, so that both are measured by the same code. Where folds carry weights of their own (rows scored by weights
that have not seen them), ``V`` has one ``v`` per fold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import fdtrc

from evenout.core.cells import Cells
from evenout.core.pairwise import PairSums
from evenout.core.types import FloatArray

_LEAST_SPREAD = 1e-14  # of a group mean, in units of the largest: with none its weight would be infinite


@dataclass(frozen=True)
class GroupMoments:
    """Moments of m scores in G groups: ``count`` (G,), ``mean`` and ``variance`` (m, G), ``total_variance`` (m,)."""

    count: FloatArray
    mean: FloatArray
    variance: FloatArray
    total_variance: FloatArray


def group_moments(cells: Cells, V: FloatArray) -> GroupMoments:
    """Moments of the scores ``v_f' (s, t)``, the rows of fold f scored by ``V[f]``.

    Parameters
    ----------
    cells : Cells
    V : array of shape (K, m, k + 1)

    Returns
    -------
    GroupMoments
        Group variances have the divisor n_p - 1, the total variance (over all rows) the divisor n.
    """
    count = cells.plain[:, :, 0, 0].sum(axis=0)
    sums = np.einsum("fgk,fmk->mg", cells.plain[:, :, 0, 1:], V)
    squares = np.einsum("fgkl,fmk,fml->mg", cells.plain[:, :, 1:, 1:], V, V, optimize=True)
    n = count.sum()
    total = np.maximum(squares.sum(axis=1) / n - (sums.sum(axis=1) / n) ** 2, 0.0)
    count, sums, squares = count[:-1], sums[:, :-1], squares[:, :-1]
    mean = sums / count
    variance = np.maximum(squares - count * mean**2, 0.0) / (count - 1)
    return GroupMoments(count, mean, variance, total)


def parity_form(cells: Cells) -> FloatArray:
    """``C = 1/N sum_{p<q} (m_p - m_q)(m_p - m_q)'``, with ``m_p`` the mean of ``(s, t)`` in group p."""
    means = cells.plain[:, :-1, 0, 1:].sum(axis=0) / cells.group_counts[:, None]
    gaps = np.array([means[p] - means[q] for p, q in combinations(range(cells.n_groups), 2)])
    return gaps.T @ gaps / len(gaps)


def parity_noise(cells: Cells) -> FloatArray:
    """``V = 1/N sum_{p<q} (Sigma_p / n_p + Sigma_q / n_q)``: what sampling alone adds to `parity_form`, on average.

    ``Sigma_p`` is the covariance of ``(s, t)`` within group p. ``C - V`` estimates the squared gaps of the population
    without bias; solving with ``C + V`` keeps the weights from evening out noise in the training rows' group means.
    A group of one row, as a fold may leave it, shows no spread and adds nothing.
    """
    n = cells.group_counts
    sums = cells.plain[:, :-1, 0, 1:].sum(axis=0)
    scatter = cells.plain[:, :-1, 1:, 1:].sum(axis=0) - np.einsum("gk,gl->gkl", sums, sums) / n[:, None, None]
    return 2.0 / cells.n_groups * (scatter / (np.maximum(n - 1, 1) * n)[:, None, None]).sum(axis=0)


def parity_bias(cells: Cells, V: FloatArray, *, unseen: bool) -> FloatArray:
    """``DP / Var(y)``; on unseen rows the sampling noise ``s_p^2/n_p + s_q^2/n_q`` is taken off each squared gap.

    On the rows that the weights were solved on no such correction is possible: the weights have used the noise up.
    """
    return parity_from_moments(group_moments(cells, V), corrected=unseen)


def parity_from_moments(moments: GroupMoments, *, corrected: bool) -> FloatArray:
    """Scale-free demographic parity of each score, shape (m,); NaN for a constant score."""
    noise = moments.variance / moments.count
    pairs = list(combinations(range(len(moments.count)), 2))
    squared = np.zeros(len(moments.mean))
    for p, q in pairs:
        squared += (moments.mean[:, p] - moments.mean[:, q]) ** 2
        if corrected:
            squared -= noise[:, p] + noise[:, q]
    return _ratio(squared / len(pairs), moments.total_variance)


def parity_error(cells: Cells, V: FloatArray) -> FloatArray:
    """Standard error of the corrected scale-free parity of scores on rows that their weights have not seen, shape (m,).

    The group means m are taken as normal with variances ``v_p = s_p^2 / n_p``, so that ``DP = m'Qm`` has the variance
    ``4 mu'Q diag(v) Q mu + 2 tr((Q diag(v))^2)``; the error of the variance it is divided by is read off the folds.
    """
    moments = group_moments(cells, V)
    G, v = len(moments.count), moments.variance / moments.count
    Q = (G * np.eye(G) - 1.0) * 2.0 / (G * (G - 1))
    pull = moments.mean @ Q
    trace = np.einsum("pq,qp,mp,mq->m", Q, Q, v, v)
    # 4 mu'QvQmu is estimated by 4 m'QvQm - 4 tr; the sum of both terms is at least what it is without any gap.
    numerator = np.maximum(4.0 * np.einsum("mp,mp,mp->m", pull, pull, v) - 2.0 * trace, 2.0 * trace)
    bias = parity_from_moments(moments, corrected=True)
    spread = fold_variances(cells, V)
    level = spread.mean(axis=0)
    relative = (spread / np.where(level > 0, level, 1.0)).var(axis=0, ddof=1) / len(spread)
    return np.sqrt(_ratio(numerator, moments.total_variance**2) + bias**2 * relative)


def fold_variances(cells: Cells, V: FloatArray) -> FloatArray:
    """Variance of each of m scores within each fold, shape (K, m)."""
    n = cells.fold_counts[:, None]
    total = cells.plain.sum(axis=1)
    mean = np.einsum("fk,fmk->fm", total[:, 0, 1:], V) / n
    return np.maximum(np.einsum("fkl,fmk,fml->fm", total[:, 1:, 1:], V, V, optimize=True) / n - mean**2, 0.0)


def no_gap_p_value(moments: GroupMoments) -> FloatArray:
    """p-value of "all groups have the same mean" for each score (Welch 1951, unequal variances), shape (m,).

    With two groups this is Welch's t-test. A group without any spread is taken as the limit of groups with less and
    less of it. If no group has any, there is no doubt: p is 1 if all means are equal, else 0.
    """
    n, mean, G = moments.count, moments.mean, len(moments.count)
    spread = moments.variance / n
    largest, size = spread.max(axis=1, keepdims=True), np.abs(mean).max(axis=1, keepdims=True)
    certain = largest <= 1e-30 * (size**2 + moments.total_variance[:, None])
    unit = np.where(certain, 1.0, largest)  # of squares, so that the scale of the scores does not matter
    weight = 1.0 / np.maximum(spread / unit, _LEAST_SPREAD)
    share = weight / weight.sum(axis=1, keepdims=True)
    distance = (mean - (share * mean).sum(axis=1, keepdims=True)) / np.sqrt(unit)
    doubt = ((1 - share) ** 2 / (n - 1)).sum(axis=1)
    F = (weight * distance**2).sum(axis=1) / (G - 1) / (1 + 2 * (G - 2) / (G**2 - 1) * doubt)
    p = fdtrc(G - 1, (G**2 - 1) / (3 * doubt), F)
    equal = np.ptp(mean, axis=1) <= 1e-12 * size[:, 0]
    return np.where(certain[:, 0], np.where(equal, 1.0, 0.0), p)


def individual_form(cells: Cells) -> FloatArray:
    """``C = 1/N sum_{p<q} 1/(n_p n_q) sum_ij M_ij (z_i - z_j)(z_i - z_j)'``, with ``z = (s, t)``."""
    pairs, n = _pairs(cells), cells.group_counts
    sizes = np.array([n[p] * n[q] for p, q in combinations(range(cells.n_groups), 2)])
    return (pairs.total()[0] / sizes[:, None, None]).mean(axis=0)


def individual_bias(cells: Cells, V: FloatArray, *, unseen: bool) -> FloatArray:
    """``sum M (y_i - y_j)^2 / sum M / Var(y)``, the mean over group pairs; unseen: pairs with both rows in one fold."""
    variance = group_moments(cells, V).total_variance
    if unseen:
        form, mass = _pairs(cells).within()
        squared = np.einsum("pfkl,fmk,fml->mp", form, V, V, optimize=True)
        return _ratio(_per_mass(squared, mass.sum(axis=1)), variance)
    form, mass = _pairs(cells).total()  # one score for all rows, so pairs across folds count too
    squared = np.einsum("pkl,mk,ml->mp", form, V[0], V[0], optimize=True)
    return _ratio(_per_mass(squared, mass), variance)


def individual_error(cells: Cells, V: FloatArray) -> FloatArray:
    """Standard error of `individual_bias` on unseen rows, from its spread over the folds, shape (m,)."""
    form, mass = _pairs(cells).within()
    squared = np.einsum("pfkl,fmk,fml->fmp", form, V, V, optimize=True)
    by_fold = _per_mass(squared, mass.T[:, None, :])
    total = group_moments(cells, V).total_variance
    return _ratio(by_fold.std(axis=0, ddof=1) / np.sqrt(len(by_fold)), total)


def own_form(cells: Cells) -> FloatArray:
    """The user's own C, with nothing said of the target."""
    if cells.own is None:
        raise ValueError("no form of your own was given")
    return np.pad(cells.own, (0, 1))


def own_bias(cells: Cells, V: FloatArray, *, unseen: bool) -> FloatArray:  # noqa: ARG001 (V says which rows are meant)
    """``w'Cw / Var(y)``, each fold's weights counted by its rows; 0 for the target, of which C says nothing."""
    share = cells.fold_counts / cells.fold_counts.sum()
    squared = np.einsum("f,fmk,kl,fml->m", share, V, own_form(cells), V, optimize=True)
    return _ratio(squared, group_moments(cells, V).total_variance)


def own_error(cells: Cells, V: FloatArray) -> FloatArray:  # noqa: ARG001
    """Unknown: C is taken as it is given."""
    return np.full(V.shape[1], np.nan)


class _Form(Protocol):
    def __call__(self, cells: Cells) -> FloatArray: ...


class _Bias(Protocol):
    def __call__(self, cells: Cells, V: FloatArray, *, unseen: bool) -> FloatArray: ...


class _Error(Protocol):
    def __call__(self, cells: Cells, V: FloatArray) -> FloatArray: ...


class Notion(NamedTuple):
    """A fairness notion: the form that is solved with, the scale-free bias that is reported, and its error."""

    form: _Form
    bias: _Bias
    error: _Error


NOTIONS: dict[str, Notion] = {
    "demographic_parity": Notion(parity_form, parity_bias, parity_error),
    "individual": Notion(individual_form, individual_bias, individual_error),
    "own": Notion(own_form, own_bias, own_error),
}
NAMED_NOTIONS = ("demographic_parity", "individual")  # those that a user asks for by name


def combined_form(cells: Cells, fairness: Mapping[str, float], *, noise_aware: bool = False) -> FloatArray:
    """``sum_m weight_m C_m / f2_m(t)``: each notion in units of the target's bias; one alone is left as published.

    ``noise_aware`` adds `parity_noise` to demographic parity.
    """
    forms = {name: NOTIONS[name].form(cells) for name in fairness}
    if noise_aware and "demographic_parity" in forms:
        forms["demographic_parity"] = forms["demographic_parity"] + parity_noise(cells)
    if len(forms) == 1:
        return next(iter(forms.values()))
    return np.sum([fairness[name] * C / (C[-1, -1] or 1.0) for name, C in forms.items()], axis=0)


def _pairs(cells: Cells) -> PairSums:
    if cells.pairs is None:
        raise ValueError("individual fairness needs the pair sums of the cells; none were collected")
    return cells.pairs


def _per_mass(squared: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of ``squared / mass`` over pairs of groups (the last axis); 0 for a pair without any similar rows."""
    return (squared / np.maximum(mass, np.finfo(float).tiny)).mean(axis=-1)


def _ratio(numerator: FloatArray, denominator: FloatArray | float) -> FloatArray:
    """Quotient that is NaN, without a warning, where the denominator is 0."""
    positive = np.asarray(denominator) > 0
    return np.where(positive, numerator, np.nan) / np.where(positive, denominator, 1.0)
