"""Labels over partitions: all rows that have one, gathered by one pass over kept scores, teach the base score.

Labelled rows are few, so they fit into memory where all rows do not. A model without a fold learns from the labels
outside of it. Rows of the reference are then scored by detectors without the fold, as in memory; no detector has seen
the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from evenout.core.exceptions import warn
from evenout.core.sketch import QuantileSketch
from evenout.core.stacking import Population, label_floor
from evenout.core.types import FloatArray, IntArray
from evenout.fitting.passes import Walks
from evenout.fitting.scorer import Block
from evenout.fitting.scores import KnownLabels, ScoreModel
from evenout.partitions.engines import Part

MOST = 100_000  # labelled rows that are learnt from


@dataclass(frozen=True)
class Labelled:
    """Rows with a label: raw scores (m, k), `Scorer.known` (m, 4) and folds (m,).

    Of more than ``most`` rows those with the smallest numbers by content stay; ``total`` counts all of them.
    """

    raw: FloatArray
    known: FloatArray
    folds: IntArray
    total: int
    most: int

    @classmethod
    def of(cls, block: Block, most: int) -> "Labelled":
        """Those of some rows."""
        there = ~np.isnan(block.known[:, 0])
        return cls(block.raw[there], block.known[there], block.folds[there], int(there.sum()), most)._shortened()

    def __add__(self, other: "Labelled") -> "Labelled":
        raw, known = np.concatenate([self.raw, other.raw]), np.concatenate([self.known, other.known])
        folds = np.concatenate([self.folds, other.folds])
        return Labelled(raw, known, folds, self.total + other.total, self.most)._shortened()

    def ordered(self) -> "Labelled":
        """In the order of their content, so that sums over them do not depend on partitions."""
        label, chance, number, _ = self.known.T
        order = np.lexsort((chance, label, number))[: self.most]
        return replace(self, raw=self.raw[order], known=self.known[order], folds=self.folds[order])

    def _shortened(self) -> "Labelled":
        return self.ordered() if len(self.raw) > self.most else self

    def scored(self, raw: FloatArray, home: IntArray) -> FloatArray:
        """Raw scores (m, k), where ``raw`` are others of the reference, and ``home`` says which row of it is where."""
        place = self.known[:, 3].astype(np.intp)
        return np.where((place >= 0)[:, None], raw[home[place]], self.raw)


def gather(walks: Walks, n_columns: int) -> Labelled:
    """All rows with a label, or as many as are learnt from."""
    found = walks.walk(_labelled_part, Labelled.__add__, n_columns, MOST).ordered()
    if found.total > len(found.raw):
        warn(f"{found.total:,} rows have a label: the base score learns from {found.most:,} of them, drawn by content")
    return found


def teach(
    model: ScoreModel, rows: Labelled, fold: int, raw: FloatArray, population: Population, ranks: QuantileSketch
) -> tuple[ScoreModel, float]:
    """The model that has learnt from the labels outside of a fold, and their coverage.

    Parameters
    ----------
    model : ScoreModel
        Learnt without the fold.
    rows : Labelled
    fold : int
    raw : array of shape (m, k)
        Of the labelled rows, by detectors without the fold.
    population : Population
        Of all rows outside of the fold.
    ranks : QuantileSketch
        Of their base scores.
    """
    outside = rows.folds != fold
    S, t = model.of_raw(raw[outside])
    known, coverage = KnownLabels.of_columns(rows.known[outside, :2]), ranks.share_from(label_floor(t))
    return model.taught(S, t, known, coverage=coverage, population=population), coverage


def _labelled_part(part: Part, blocks: Iterable[Block], n_columns: int, most: int) -> Labelled:  # noqa: ARG001
    nobody = np.empty(0, dtype=np.intp)
    found = Labelled(np.empty((0, n_columns)), np.empty((0, 4)), nobody, 0, most)
    for block in blocks:
        found = found + Labelled.of(block, most)
    return found
