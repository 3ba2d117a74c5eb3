"""Passes over partitions of rows: raw scores once, then sketches, sums and flags.

A partition is scored once, by all threads or a GPU, while the next ones are read. Its raw scores are kept in a scratch
file, and the later passes walk through that file, or score the partition again where the file is lost. Sums over
partitions are sums over rows, so what comes out is what all rows in memory would give.

Passes see the rows through several models at a time: the first was learnt on all rows, and the one at place ``f + 1``
without the rows of fold f.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from evenout.core.cells import Cells
from evenout.core.folds import N_FOLDS
from evenout.core.membership import Membership
from evenout.core.problem import Mixture
from evenout.core.sketch import QuantileSketch
from evenout.core.summing import collect_cells
from evenout.core.types import FloatArray
from evenout.fitting.scorer import Block, Ready, Scorer
from evenout.fitting.scores import ScoreModel
from evenout.inputs.grouping import Grouping
from evenout.partitions.engines import Engine, Part, Staged
from evenout.partitions.parquet import ScoresFile

T = TypeVar("T")


@dataclass(frozen=True)
class RawScores:
    """Where the raw scores of each partition are kept, and their extremes by fold and column.

    Parameters
    ----------
    files : mapping
        From a partition's index to its file.
    low, high : arrays of shape (K, k)
    kept : bool
        Whether there was room for all of them.
    """

    files: Mapping[int, Path]
    low: FloatArray
    high: FloatArray
    kept: bool = True

    def __add__(self, other: "RawScores") -> "RawScores":
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return RawScores({**self.files, **other.files}, low, high, self.kept and other.kept)

    def extremes(self, fold: int) -> FloatArray:
        """Lowest and highest scores of the rows outside of a fold, or of all (-1), shape (2, k)."""
        others = np.arange(len(self.low)) != fold
        return np.stack([self.low[others].min(axis=0), self.high[others].max(axis=0)])


@dataclass(frozen=True)
class BaseScores:
    """The base score of all rows, or of those outside of a fold: ranks and extremes."""

    sketch: QuantileSketch
    low: float
    high: float

    @classmethod
    def of(cls, scores: FloatArray, capacity: int | None) -> "BaseScores":
        """Summarise scores of shape (n,)."""
        low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
        return cls(QuantileSketch.of(scores, capacity), float(low), float(high))

    def __add__(self, other: "BaseScores") -> "BaseScores":
        low, high = min(self.low, other.low), max(self.high, other.high)
        return BaseScores(self.sketch + other.sketch, low, high)


@dataclass(frozen=True)
class Walks:
    """Scored partitions that can be walked through again and again.

    Parameters
    ----------
    engine : Engine
    scorer : Scorer
        Shared with the workers.
    files : mapping
        Where the scores of a partition are kept, if they are; shared too.
    kept : bool
        Whether all of them are: else partitions are read and scored on the way.
    """

    engine: Engine
    scorer: Scorer
    files: Mapping[int, Path]
    kept: bool

    def base_scores(self, models: Sequence[ScoreModel], capacity: int | None) -> list[BaseScores]:
        """The base score by each model, of the rows that it was learnt on."""
        return self.walk(_base_part, _added, _light(models), capacity)

    def cells(
        self, models: Sequence[ScoreModel], ranks: Sequence[QuantileSketch] | None, groups: Grouping | int
    ) -> Cells:
        """Sums as each model sees them, the rows outside of its fold and those inside: 2 (K + 1) sets.

        ``beta = exp(rank / n)`` by the sketches, 1 without them. Groups are those of the codes, so many, or by columns.
        """
        return self.walk(_cells_part, Cells.__add__, _light(models), ranks, groups)

    def fair_scores(self, model: ScoreModel, mixture: Mixture, capacity: int | None) -> QuantileSketch:
        """Sketch of the fair score."""
        return self.walk(_fair_part, QuantileSketch.__add__, model.without_detectors(), mixture, capacity)

    def unseen_scores(
        self, models: Sequence[ScoreModel], V: FloatArray, capacity: int | None
    ) -> list[list[QuantileSketch]]:
        """Sketches of m scores of the rows of each fold, by the model without it and weights V (K, m, k + 1)."""
        return self.walk(_unseen_part, _merged, _light(models), V, capacity)

    def unseen_flags(
        self, models: Sequence[ScoreModel], V: FloatArray, above: FloatArray, groups: Grouping | int
    ) -> FloatArray:
        """Rows of each group whose scores lie above the thresholds (K, m) of their fold: shape (G, m)."""
        return self.walk(_above_part, np.add, _light(models), V, above, groups)

    def flag_rows(
        self,
        model: ScoreModel,
        mixture: Mixture,
        above: tuple[float, float],
        labels: tuple[str, ...],
        to: Path | None,
        grouping: Grouping | None = None,
    ) -> FloatArray:
        """Count rows, rows flagged by the base score and rows flagged by the fair one, by group: shape (G + 1, 3).

        The last entry is for rows of no group. With a grouping, groups are its own, without such an entry.

        Parameters
        ----------
        above : pair of float
            The thresholds of base and fair score.
        labels : tuple of str
        to : Path or None
            A folder for one Parquet file per partition: ``source`` and ``row`` say which row of the input it is;
            ``group`` (null where it is not known, or too small to be compared), ``base_score``, ``fair_score``,
            ``flagged``.
        """
        return self.walk(_flag_part, np.add, model.without_detectors(), mixture, above, labels, to, grouping)

    def walk(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """``work(part, blocks, *shared)`` for every partition, merged."""
        ready = (self.scorer, self.files, *map(self.engine.share, shared))
        return self.engine.reduce(_walk_part if self.kept else _SCORING_WALK, merge, work, *ready)


def score_all(engine: Engine, scorer: Scorer) -> tuple[RawScores, Walks]:
    """Score every partition and keep the scores."""
    shared = engine.share(scorer)
    raw = engine.reduce(Staged(_read_part, _score_part, _keep_part), RawScores.__add__, shared)
    return raw, Walks(engine, shared, engine.share(raw.files), raw.kept)


def score_anew(engine: Engine, scorer: Scorer) -> Walks:
    """Partitions that are scored when they are walked through."""
    return Walks(engine, engine.share(scorer), engine.share({}), kept=False)


def _light(models: Sequence[ScoreModel]) -> list[ScoreModel]:
    return [model.without_detectors() for model in models]


def _added(first: list[BaseScores], second: list[BaseScores]) -> list[BaseScores]:
    return [one + two for one, two in zip(first, second, strict=True)]


def _read_part(part: Part, scorer: Scorer) -> Ready:
    return scorer.read(part)


def _score_part(ready: Ready, scorer: Scorer) -> tuple[Part, FloatArray]:
    return ready.part, scorer.score(ready)


def _keep_part(scored: tuple[Part, FloatArray], scorer: Scorer) -> RawScores:
    (part, table), k = scored, len(scorer.pool.names)
    folds = [table[table[:, -1] == fold, :k] for fold in range(N_FOLDS)]
    low = np.stack([raw.min(axis=0, initial=np.inf) for raw in folds])
    high = np.stack([raw.max(axis=0, initial=-np.inf) for raw in folds])
    files = scorer.keep(part, table)
    return RawScores(files, low, high, kept=bool(files))


# A walk is given what it does with a partition, the scorer, the kept files, and what it shares.


def _find_part(
    part: Part, work: Callable[..., Any], scorer: Scorer, files: Mapping[int, Path], *shared: Any  # noqa: ARG001
) -> tuple[Part, Ready | FloatArray]:  # fmt: skip
    return part, scorer.find(part, files)


def _score_found(
    found: tuple[Part, Ready | FloatArray], work: Callable[..., Any], scorer: Scorer, *shared: Any  # noqa: ARG001
) -> tuple[Part, FloatArray]:  # fmt: skip
    part, rows = found
    return part, scorer.score(rows) if isinstance(rows, Ready) else rows


def _walk_scored(
    scored: tuple[Part, FloatArray],
    work: Callable[..., T],
    scorer: Scorer,
    files: Mapping[int, Path],  # noqa: ARG001
    *shared: Any,
) -> T:
    part, table = scored
    return work(part, scorer.blocks(table), *shared)


_SCORING_WALK = Staged(_find_part, _score_found, _walk_scored)


def _walk_part(part: Part, *given: Any) -> Any:
    """The same in one step: nothing, or next to nothing, is left to be scored."""
    return _SCORING_WALK(part, *given)


def _base_part(
    part: Part,  # noqa: ARG001
    blocks: Iterable[Block],
    models: Sequence[ScoreModel],
    capacity: int | None,
) -> list[BaseScores]:
    found = [BaseScores.of(np.empty(0), capacity) for _ in models]
    for block in blocks:
        parts = [
            BaseScores.of(model.of_raw(block.raw[block.folds != place - 1])[1], capacity)
            for place, model in enumerate(models)
        ]
        found = _added(found, parts)
    return found


def _cells_part(
    part: Part,  # noqa: ARG001
    blocks: Iterable[Block],
    models: Sequence[ScoreModel],
    ranks: Sequence[QuantileSketch] | None,
    groups: Grouping | int,
) -> Cells:
    def of(block: Block) -> Cells:
        members, parts = _members(block, groups), []
        for place, model in enumerate(models):
            S, t = model.of_raw(block.raw)
            beta = np.ones(len(t)) if ranks is None else ranks_weights(ranks[place], t)
            inside = (block.folds == place - 1).astype(np.intp)
            parts.append(collect_cells(S, t, beta, members, inside, n_groups=members.n_groups, n_sets=2))
        return Cells.stacked(parts)

    nobody = np.empty(0, dtype=np.intp)
    width = 0 if isinstance(groups, int) else groups.coder.width
    nothing = np.empty((0, models[0].width))
    total = of(Block(nothing, np.empty((0, width)), nobody, nobody, nothing))
    for block in blocks:
        total = total + of(block)
    return total


def ranks_weights(ranks: QuantileSketch, t: FloatArray) -> FloatArray:
    """``beta = exp(rank / n)`` by a sketch of the base score."""
    return np.exp(ranks.ranks(t) / ranks.count)


def _fair_part(
    part: Part,  # noqa: ARG001
    blocks: Iterable[Block],
    model: ScoreModel,
    mixture: Mixture,
    capacity: int | None,
) -> QuantileSketch:
    sketch = QuantileSketch.of(np.empty(0), capacity)
    for block in blocks:
        sketch = sketch + QuantileSketch.of(mixture.apply(*model.of_raw(block.raw)), capacity)
    return sketch


def _unseen(block: Block, fold: int, model: ScoreModel, weights: FloatArray) -> FloatArray:
    """Scores of the rows of a fold, shape (b, m)."""
    S, t = model.of_raw(block.raw[block.folds == fold])
    return np.column_stack([S, t]) @ weights.T


def _members(block: Block, groups: Grouping | int) -> Membership:
    """How much each row belongs to each group: those of the codes, so many, or by columns."""
    return Membership.of_codes(block.codes, groups) if isinstance(groups, int) else groups.members(block.numbers)


def _merged(first: list[list[QuantileSketch]], second: list[list[QuantileSketch]]) -> list[list[QuantileSketch]]:
    return [[a + b for a, b in zip(one, two, strict=True)] for one, two in zip(first, second, strict=True)]


def _unseen_part(
    part: Part,  # noqa: ARG001
    blocks: Iterable[Block],
    models: Sequence[ScoreModel],
    V: FloatArray,
    capacity: int | None,
) -> list[list[QuantileSketch]]:
    found = [[QuantileSketch.of(np.empty(0), capacity) for _ in weights] for weights in V]
    for block in blocks:
        scores = [_unseen(block, fold, model, V[fold]) for fold, model in enumerate(models)]
        found = _merged(found, [[QuantileSketch.of(y, capacity) for y in part.T] for part in scores])
    return found


def _above_part(
    part: Part,  # noqa: ARG001
    blocks: Iterable[Block],
    models: Sequence[ScoreModel],
    V: FloatArray,
    above: FloatArray,
    groups: Grouping | int,
) -> FloatArray:
    counts = np.zeros((groups if isinstance(groups, int) else len(groups.columns), V.shape[1]))
    for block in blocks:
        over = np.zeros((len(block.folds), V.shape[1]))
        for fold, model in enumerate(models):
            over[block.folds == fold] = _unseen(block, fold, model, V[fold]) > above[fold]
        counts += np.asarray(_members(block, groups).weights.T @ over)
    return counts


def _flag_part(
    part: Part,
    blocks: Iterable[Block],
    model: ScoreModel,
    mixture: Mixture,
    above: tuple[float, float],
    labels: tuple[str, ...],
    to: Path | None,
    grouping: Grouping | None,
) -> FloatArray:
    counts = np.zeros((len(labels) + 1 if grouping is None else len(grouping.columns), 3))
    row = part.first_row
    with nullcontext() if to is None else ScoresFile(to, part, labels) as file:
        for block in blocks:
            S, base = model.of_raw(block.raw)
            fair = mixture.apply(S, base)
            flagged = np.column_stack([np.ones(len(S), dtype=bool), base > above[0], fair > above[1]])
            if grouping is None:
                np.add.at(counts, block.codes, flagged)
            else:
                counts += np.asarray(grouping.members(block.numbers).weights.T @ flagged.astype(float))
            if file is not None:
                file.write(row, block.codes, base, fair, flagged[:, 2])
            row += len(S)
    return counts
