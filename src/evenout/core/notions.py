"""Fairness notions: a form to solve with, a scale-free bias to state, its error, and the sums that these need.

``V`` are weights of the columns ``(s_1, ..., s_k, t)``: the ensemble ``t + S v`` is ``(v, 1)``, the base score
``(0, ..., 0, 1)``, so that both are measured by the same code. On held-out rows every fold has its own weights.

A notion is one class in one file, such as `evenout.core.individual`, and one line in `evenout.core.registry`. A user's
notion gives a name and a form, and inherits the rest from `Notion`; ``docs/extending.md`` shows one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from evenout.core.cells import Cells, CrossFit, fold_variances, unit_target, variances
from evenout.core.pairwise import PairSums
from evenout.core.ruler import ratio
from evenout.core.types import BoolArray, FloatArray, IntArray

# From S (n, k), t (n,) and the rows of a set, as a mask (n,), to the sums of the notion over that set, by name.
Collector: TypeAlias = Callable[[FloatArray, FloatArray, BoolArray], dict[str, FloatArray]]
ChiSquare: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]  # value, scale and degrees of freedom


@dataclass(frozen=True)
class NotionRows:
    """The rows that a notion may use before any score is known.

    ``X`` (n, d) are features, ``groups`` (n,) codes, -1 for a row without a group; each row of a group stands for
    ``stands_for`` (G,) rows. ``pair_sums`` is `evenout.core.pairwise.pair_sums` on another device.
    """

    X: FloatArray
    groups: IntArray
    n_groups: int
    stands_for: FloatArray
    seed: int
    n_threads: int
    pair_sums: Callable[..., PairSums] | None = None


class Notion(ABC):
    """A fairness notion. A custom one needs `form`, and `collect` where the form needs more than group means.

    Attributes
    ----------
    name : str
        Its name in ``fairness`` and on the command line.
    needs_pairs : bool
        It compares pairs of rows: that takes features, hard crossed groups and rows of equal weight, and its sums over
        chunks of rows do not add.
    needs_labels : bool
        It compares rows of known outcome.
    option, words, whom, label : str
        Texts: its request in the help of the command line; the gap that its bias measures; the people it compares, if
        not everybody; the name of its bias in a table.
    """

    name = option = words = whom = ""
    needs_pairs = needs_labels = False
    label = "Bias, all notions"

    def collect(self, rows: NotionRows) -> Collector:  # noqa: ARG002
        """Return the function that sums up the rows of a set; called once for a fit. No sums by default."""
        return lambda S, t, of: {}  # noqa: ARG005

    def shapes(self, n_groups: int, k: int) -> dict[str, tuple[int, ...]]:  # noqa: ARG002
        """Shapes of the sums of `collect`, to check those of a model file; none by default."""
        return {}

    @abstractmethod
    def form(self, cells: Cells) -> FloatArray:
        """The positive semidefinite form of ``(s, t)`` to solve with, for each set, shape (K, k + 1, k + 1)."""

    def noise(self, cells: Cells) -> FloatArray:
        """Mean of what sampling noise adds to the form; 0 by default."""
        return np.zeros((cells.n_sets, cells.n_detectors + 1, cells.n_detectors + 1))

    def training_bias(self, cells: Cells, V: FloatArray) -> FloatArray:
        """Scale-free bias, ``form / Var(y)``, on the rows of one set, weights V (m, k + 1), shape (m,)."""
        squared = np.einsum("mk,kl,ml->m", V, self.form(cells)[0], V, optimize=True)
        return ratio(np.maximum(squared, 0.0), variances(cells, V[None])[0])

    def fold_biases(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """`training_bias` on the held-out rows of each fold, weights V (K, m, k + 1), shape (K, m)."""
        squared = np.einsum("fmk,fkl,fml->fm", V, self.form(cross.held) - self.noise(cross.held), V, optimize=True)
        return ratio(squared, fold_variances(cross, V))

    def bias(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """Scale-free bias on held-out rows, shape (m,): the mean over folds, by their rows."""
        return cross.held.counts / cross.held.counts.sum() @ self.fold_biases(cross, V)

    def choice(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """`bias` with less variance, to compare alphas with; `bias` itself by default."""
        return self.bias(cross, V)

    def target_bias(self, cross: CrossFit) -> FloatArray:
        """The base score's bias on held-out rows by `choice`, shape (1,): no weights were solved for."""
        return self.choice(cross, unit_target(cross.held))

    def covariance(self, cross: CrossFit, V: FloatArray) -> FloatArray:
        """Covariance of `bias` of m scores and, last, of the base score, from the spread over the folds."""
        by_fold = self.fold_biases(cross, np.concatenate([V, unit_target(cross.held)], axis=1))
        return np.cov(by_fold.T, ddof=1).reshape((V.shape[1] + 1,) * 2) / len(by_fold)

    def chi_square(self, cross: CrossFit, V: FloatArray | None = None) -> ChiSquare | None:  # noqa: ARG002
        """The bias as a shifted noncentral chi-square; see `DemographicParity`. None: its error is taken as normal."""
        return None

    def gap_p_value(self, cells: Cells) -> float:  # noqa: ARG002
        """p-value of "the base score has no bias"; NaN where there is no such test."""
        return float("nan")


Weighted: TypeAlias = Sequence[tuple[Notion, float]]


def pairs_notion(fairness: Iterable[Notion]) -> str:
    """Name of the first notion that compares pairs of rows; empty if none does."""
    return next((notion.name for notion in fairness if notion.needs_pairs), "")


def combined_form(cells: Cells, fairness: Weighted, *, noise_aware: bool = False) -> FloatArray:
    """``sum_m weight_m C_m / f2_m(t)`` of each set: each notion in units of the base score's bias; one alone as it is.

    ``noise_aware`` adds the sampling noise V of a form C: solving with ``C + V`` keeps the weights from evening out
    noise in the training rows. All zeros where there are not two groups to compare.
    """
    if cells.n_groups < 2:
        return np.zeros((cells.n_sets, cells.n_detectors + 1, cells.n_detectors + 1))
    forms = [notion.form(cells) + (notion.noise(cells) if noise_aware else 0.0) for notion, _ in fairness]
    if len(forms) == 1:
        return forms[0]
    bases = [np.where(C[:, -1, -1] == 0, 1.0, C[:, -1, -1])[:, None, None] for C in forms]
    return np.sum([weight * C / base for (_, weight), C, base in zip(fairness, forms, bases, strict=True)], axis=0)
