"""Passes over partitions of rows: raw scores once, then the sketch of the base score, the cells and the fair score.

A partition is scored once. Its raw scores are kept in a scratch file, and the later passes walk through that file, or
score the partition again where the file is lost. Sums over partitions are sums over rows, so what comes out is what
all rows in memory would give.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from evenout.backends.dealing import Collected, Folds
from evenout.backends.parquet import ScoresFile
from evenout.backends.partitions import Engine, Part, read_rows
from evenout.core.cells import Cells, collect_cells
from evenout.core.folds import row_numbers
from evenout.core.problem import Mixture
from evenout.core.scaling import Scaling, learn_scaling
from evenout.core.sketch import QuantileSketch
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.detectors.pool import FittedPool
from evenout.scores import ScoreModel

BLOCK = 65536  # rows of kept scores that are worked on together

T = TypeVar("T")
Blocks: TypeAlias = Iterable[tuple[FloatArray, IntArray]]


@dataclass(frozen=True)
class Scorer:
    """What turns a partition into raw scores, and where these are kept.

    Parameters
    ----------
    pool : FittedPool
    codes : mapping
        From the name of a group to its code; other groups count as unknown.
    n_threads : int
    scratch : callable
        Returns the folder for kept scores.
    """

    pool: FittedPool
    codes: Mapping[str, int]
    n_threads: int
    scratch: Callable[[], Path]

    def score(self, part: Part) -> FloatArray:
        """Raw scores, and the group's code in the last column: shape (m, k + 1)."""
        rows = read_rows(part)
        table = np.full((len(rows.X), len(self.pool.names) + 1), -1.0)
        if len(rows.X):
            labels = rows.labels() if rows.names else None
            table[:, :-1] = self.pool.score(rows.X, n_threads=self.n_threads, sensitive_features=labels)
            table[:, -1] = rows.codes(self.codes)
        return table

    def keep(self, part: Part, table: FloatArray) -> dict[int, Path]:
        """Write the scores of a partition to a file that appears whole; none if there is no room."""
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self.scratch(), suffix=".npy")
            with os.fdopen(handle, "wb") as file:
                np.save(file, table)
            return {part.index: Path(name)}
        return {}

    def blocks(self, part: Part, files: Mapping[int, Path]) -> Iterator[tuple[FloatArray, IntArray]]:
        """Raw scores (b, k) and group codes (b,) of consecutive rows, from the kept file or from the rows."""
        try:
            table = np.load(files[part.index], mmap_mode="r")
        except (KeyError, OSError, ValueError):
            table = self.score(part)
        for start in range(0, len(table), BLOCK):
            block = np.array(table[start : start + BLOCK])
            yield block[:, :-1], block[:, -1].astype(np.intp)


@dataclass(frozen=True)
class RawScores:
    """Where the raw scores of each partition are kept, and their extremes by column.

    Parameters
    ----------
    files : mapping
        From a partition's index to its file.
    low, high : arrays of shape (k,)
    """

    files: Mapping[int, Path]
    low: FloatArray
    high: FloatArray

    def __add__(self, other: "RawScores") -> "RawScores":
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return RawScores({**self.files, **other.files}, low, high)

    def scaling(self) -> Scaling:
        """The min-max scaling that all rows together would have learnt, bit for bit."""
        return learn_scaling("minmax", np.stack([self.low, self.high]))


@dataclass(frozen=True)
class BaseScores:
    """The base score of all rows, and the rows that are to be dealt into folds."""

    sketch: QuantileSketch
    low: float
    high: float
    rows: Collected

    def __add__(self, other: "BaseScores") -> "BaseScores":
        return BaseScores(
            self.sketch + other.sketch,
            min(self.low, other.low),
            max(self.high, other.high),
            self.rows + other.rows,
        )


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
    """

    engine: Engine
    scorer: Scorer
    files: Mapping[int, Path]

    def base_scores(self, model: ScoreModel, dealt: BoolArray, seed: int, capacity: int | None) -> BaseScores:
        """Sketch and extremes of the base score, and the numbers of the rows of the groups to deal out."""
        return self._walk(_base_part, BaseScores.__add__, model.without_detectors(), dealt, seed, capacity)

    def cells(self, model: ScoreModel, ranks: QuantileSketch | None, folds: Folds, n_groups: int) -> Cells:
        """Sums of all rows; ``beta = exp(rank / n)`` by the sketch, 1 without one."""
        return self._walk(_cells_part, Cells.__add__, model.without_detectors(), ranks, folds, n_groups)

    def fair_scores(self, model: ScoreModel, mixture: Mixture, capacity: int | None) -> QuantileSketch:
        """Sketch of the fair score."""
        return self._walk(_fair_part, QuantileSketch.__add__, model.without_detectors(), mixture, capacity)

    def flag_rows(
        self,
        model: ScoreModel,
        mixture: Mixture,
        above: tuple[float, float],
        labels: tuple[str, ...],
        to: Path | None,
    ) -> IntArray:
        """Count rows, rows flagged by the base score and rows flagged by the fair one, by group: shape (G + 1, 3).

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
        return self._walk(_flag_part, np.add, model.without_detectors(), mixture, above, labels, to)

    def _walk(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """``work(part, blocks, *shared)`` for every partition, merged."""
        ready = (self.scorer, self.files, *map(self.engine.share, shared))
        return self.engine.reduce(_walk_part, merge, work, *ready)


def score_all(engine: Engine, scorer: Scorer) -> tuple[RawScores, Walks]:
    """Score every partition and keep the scores."""
    shared = engine.share(scorer)
    raw = engine.reduce(_score_part, RawScores.__add__, shared)
    return raw, Walks(engine, shared, engine.share(raw.files))


def score_anew(engine: Engine, scorer: Scorer) -> Walks:
    """Partitions that are scored when they are walked through."""
    return Walks(engine, engine.share(scorer), engine.share({}))


def _score_part(part: Part, scorer: Scorer) -> RawScores:
    table = scorer.score(part)
    low, high = table.min(axis=0, initial=np.inf), table.max(axis=0, initial=-np.inf)
    return RawScores(scorer.keep(part, table), low[:-1], high[:-1])


def _walk_part(
    part: Part, work: Callable[..., T], scorer: Scorer, files: Mapping[int, Path], *shared: Any
) -> T:
    return work(part, scorer.blocks(part, files), *shared)


def _base_part(
    part: Part, blocks: Blocks, model: ScoreModel, dealt: BoolArray, seed: int, capacity: int | None
) -> BaseScores:
    sketch, low, high = QuantileSketch.of(np.empty(0), capacity), np.inf, -np.inf
    numbers, kept = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.intp)]
    for raw, codes in blocks:
        S = model.scaling.transform(raw)
        base = model.base(S)
        sketch = sketch + QuantileSketch.of(base, capacity)
        low, high = min(low, base.min()), max(high, base.max())
        rows = dealt[codes]
        numbers.append(row_numbers(S[rows], seed))
        kept.append(codes[rows])
    collected = {part.index: np.concatenate(numbers)}, {part.index: np.concatenate(kept)}
    return BaseScores(sketch, float(low), float(high), Collected(*collected))


def _cells_part(
    part: Part, blocks: Blocks, model: ScoreModel, ranks: QuantileSketch | None, folds: Folds, n_groups: int
) -> Cells:
    shape: dict[str, Any] = {"n_groups": n_groups, "n_sets": folds.n_folds}
    none, nobody = np.empty(0), np.empty(0, dtype=np.intp)
    total = collect_cells(np.empty((0, len(model.scaling.low))), none, none, nobody, nobody, **shape)
    given = iter(folds.given[part.index])
    for raw, codes in blocks:
        S = model.scaling.transform(raw)
        t = model.base(S)
        beta = np.ones(len(t)) if ranks is None else np.exp(ranks.ranks(t) / ranks.count)
        total = total + collect_cells(S, t, beta, codes, folds.of(S, codes, given), **shape)
    return total


def _fair_part(
    part: Part,  # noqa: ARG001
    blocks: Blocks,
    model: ScoreModel,
    mixture: Mixture,
    capacity: int | None,
) -> QuantileSketch:
    sketch = QuantileSketch.of(np.empty(0), capacity)
    for raw, _ in blocks:
        S = model.scaling.transform(raw)
        sketch = sketch + QuantileSketch.of(mixture.apply(S, model.base(S)), capacity)
    return sketch


def _flag_part(
    part: Part,
    blocks: Blocks,
    model: ScoreModel,
    mixture: Mixture,
    above: tuple[float, float],
    labels: tuple[str, ...],
    to: Path | None,
) -> IntArray:
    counts, row = np.zeros((len(labels) + 1, 3), dtype=np.intp), part.first_row
    with nullcontext() if to is None else ScoresFile(to, part, labels) as file:
        for raw, codes in blocks:
            S = model.scaling.transform(raw)
            base = model.base(S)
            fair = mixture.apply(S, base)
            flagged = np.column_stack([np.ones(len(S), dtype=bool), base > above[0], fair > above[1]])
            np.add.at(counts, codes, flagged)
            if file is not None:
                file.write(row, codes, base, fair, flagged[:, 2])
            row += len(S)
    return counts
