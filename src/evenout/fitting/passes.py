"""Passes over partitions: scores, sums, flags, labels.

A partition is scored once, by all threads or a GPU, while the next ones are read. Its raw scores are kept in a scratch
file, and the later passes walk through that file, or score the partition again where the file is lost. Sums over
partitions are sums over rows, so what comes out is what all rows in memory would give.

Passes see the rows through several models at a time: the first was learnt on all rows, and the one at place ``f + 1``
without the rows of fold f.

Labelled rows are few, so they fit into memory where all rows do not. A model without a fold learns from the labels
outside of it. Rows of the reference are then scored by detectors without the fold, as in memory; no detector has seen
the others.
"""

import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from evenout import gpu
from evenout.core.cells import Cells, collect_cells
from evenout.core.content import N_FOLDS, row_numbers
from evenout.core.membership import Membership
from evenout.core.problem import Mixture
from evenout.core.sketch import QuantileSketch
from evenout.core.stacking import Population, label_floor
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.pool import FittedPool
from evenout.exceptions import InputError, warn
from evenout.fitting.resemblance import FittedResemblance
from evenout.fitting.rows import hashed_folds
from evenout.fitting.score_model import KnownLabels, ScoreModel
from evenout.groups.model import Coder, Grouping
from evenout.out_of_core.engines import Engine, Partition, PartitionRows, Staged, read_rows
from evenout.out_of_core.parquet import scores_file

BLOCK = 65536  # rows of kept scores that are worked on together
_ON_DEVICE = Lock()  # threads of a worker take turns: side by side they would be no faster, and need its memory twice


class ScoredBlock(NamedTuple):
    """Consecutive rows: raw scores (b, k), columns as numbers (b, c), codes of the groups (b,), folds (b,), labels.

    What is known of labels has the columns of `Scorer.known`, (b, 4), or none.
    """

    raw: FloatArray
    numbers: FloatArray
    codes: IntArray
    folds: IntArray
    known: FloatArray


class Ready(NamedTuple):
    """A partition that only its detectors have not seen yet.

    Attributes
    ----------
    part : Partition
    X : array of shape (m, d)
    content : array of shape (m, c)
        X as the named pools see it.
    labels : array of objects, (m,), or None
        The name of each row's group, for detectors that use it.
    beside : array of shape (m, c)
        What stands behind the raw scores, in the order of `Scorer.score`.
    """

    part: Partition
    X: FloatArray
    content: FloatArray
    labels: Any
    beside: FloatArray


def content_in_group(content: FloatArray, codes: IntArray, seed: int) -> npt.NDArray[np.uint64]:
    """A number that rows of the same content and group share, shape (n,): every detector scores them alike."""
    return row_numbers(np.column_stack([content, codes]), seed)


@dataclass(frozen=True)
class Scorer:
    """What turns a partition into raw scores, and where these are kept.

    Parameters
    ----------
    pool : FittedPool
    codes : mapping
        From the name of a group to its code; other groups count as unknown.
    n_threads, seed : int
    scratch : callable
        Returns the folder for kept scores.
    coder : Coder, optional
        Makes numbers of protected and other columns.
    seen : array of uint64, rising, optional
        `content_in_group` of the reference; if given, labels are kept too.
    resemblance : FittedResemblance, optional
        Its columns stand behind those of the detectors.
    learnt_from : pair of arrays, (m,) of uint64, rising, and (m, G), optional
        `row_numbers` of the contents that resemblance was learnt from, and what classifiers say of them that have not
        seen them.
    device : {"cpu", "cuda"}
        Where detectors score: a GPU of the machine that has the partition. Resemblance stays on the CPU.
    """

    pool: FittedPool
    codes: Mapping[str, int]
    n_threads: int
    seed: int
    scratch: Callable[[], Path]
    coder: Coder | None = None
    seen: npt.NDArray[np.uint64] | None = None
    resemblance: FittedResemblance | None = None
    learnt_from: tuple[npt.NDArray[np.uint64], FloatArray] | None = None
    device: str = "cpu"

    @property
    def n_columns(self) -> int:
        """Columns of raw scores, resemblance included."""
        return len(self.pool.names) + (0 if self.resemblance is None else self.resemblance.n_groups)

    def read(self, part: Partition) -> Ready:
        """Read and clean a partition, in one thread, and number its groups and folds."""
        if self.device != "cpu":  # refuse a machine that cannot score the rows, by its name: others may have the device
            try:
                gpu.check_device(self.device)
            except InputError as error:
                raise InputError("machine {machine!r}: {error}", machine=platform.node(), error=error) from None
        rows = read_rows(part, self.coder)
        labels, content = rows.labels() if rows.names else None, self.pool.inside(rows.X)
        codes, folds = rows.codes(self.codes), hashed_folds(content, self.seed)
        beside = np.column_stack([rows.numbers, self.known(rows, content, codes), codes, folds])
        return Ready(part, rows.X, content, labels, beside)

    def score(self, ready: Ready) -> FloatArray:
        """Raw scores, columns as numbers, what is `known`, and last the codes of groups and the folds."""
        if not len(ready.X):
            return np.empty((0, self.n_columns + ready.beside.shape[1]))
        machine: dict[str, Any] = {"n_threads": self.n_threads, "device": self.device}
        with nullcontext() if self.device == "cpu" else _ON_DEVICE:
            raw = [self.pool.score(ready.X, sensitive_features=ready.labels, content=ready.content, **machine)]
        if self.resemblance is not None:
            raw.append(self.resemblance.of(ready.X))
        if self.learnt_from is not None:  # what a row is told by must not have seen it
            numbers, unseen = self.learnt_from
            place = _place(row_numbers(ready.content, self.seed), numbers)
            raw[-1][place >= 0] = unseen[place[place >= 0]]
        return np.column_stack([*raw, ready.beside])

    def known(self, rows: PartitionRows, content: FloatArray, codes: IntArray) -> FloatArray:
        """What is known of labels, (m, 4): label, propensity, a number in [0, 1] by content, and place in ``seen``.

        The place is -1 for a row that is not in the reference. No column if labels are not kept.
        """
        if self.seen is None:
            return np.empty((len(content), 0))
        numbers = content_in_group(content, codes, self.seed)
        return np.column_stack([rows.known(), numbers / 2.0**64, _place(numbers, self.seen)])

    def keep(self, part: Partition, table: FloatArray) -> dict[int, Path]:
        """Write the scores of a partition to a file that appears whole; none if there is no room."""
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self.scratch(), suffix=".npy")
            with os.fdopen(handle, "wb") as file:
                np.save(file, table)
            return {part.index: Path(name)}
        return {}

    def find(self, part: Partition, files: Mapping[int, Path]) -> Ready | FloatArray:
        """The kept scores of a partition, as they lie on disk; or its rows, to be scored again."""
        try:
            table: FloatArray = np.load(files[part.index], mmap_mode="r")
        except (KeyError, OSError, ValueError):
            return self.read(part)
        return table

    def blocks(self, table: FloatArray) -> Iterator[ScoredBlock]:
        """The rows of a partition that is scored."""
        k = self.n_columns
        last = table.shape[1] - 2 - (0 if self.seen is None else 4)
        for start in range(0, len(table), BLOCK):
            block = np.array(table[start : start + BLOCK])
            codes, folds = block[:, -2:].T.astype(np.intp)
            yield ScoredBlock(block[:, :k], block[:, k:last], codes, folds, block[:, last:-2])


def _place(numbers: npt.NDArray[np.uint64], among: npt.NDArray[np.uint64]) -> IntArray:
    """The place of each number among rising ones, -1 if it is not there."""
    place = np.minimum(np.searchsorted(among, numbers), len(among) - 1)
    return np.where(among[place] == numbers, place, -1)


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

    def walk(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """``work(part, blocks, *shared)`` for every partition, merged."""
        ready = (self.scorer, self.files, *map(self.engine.share, shared))
        return self.engine.reduce(_walk_part if self.kept else _SCORING_WALK, merge, work, *ready)


def score_all(engine: Engine, scorer: Scorer) -> tuple[RawScores, Walks]:
    """Score every partition and keep the scores."""
    shared = engine.share(scorer)
    raw = engine.reduce(Staged(_read_part, _score_part, _keep_part), RawScores.__add__, shared)
    return raw, Walks(engine, shared, engine.share(raw.files), raw.kept)


def light(models: Sequence[ScoreModel]) -> list[ScoreModel]:
    """Models for scores that are at hand already."""
    return [model.without_detectors() for model in models]


def _read_part(part: Partition, scorer: Scorer) -> Ready:
    return scorer.read(part)


def _score_part(ready: Ready, scorer: Scorer) -> tuple[Partition, FloatArray]:
    return ready.part, scorer.score(ready)


def _keep_part(scored: tuple[Partition, FloatArray], scorer: Scorer) -> RawScores:
    (part, table), k = scored, len(scorer.pool.names)
    folds = [table[table[:, -1] == fold, :k] for fold in range(N_FOLDS)]
    low = np.stack([raw.min(axis=0, initial=np.inf) for raw in folds])
    high = np.stack([raw.max(axis=0, initial=-np.inf) for raw in folds])
    files = scorer.keep(part, table)
    return RawScores(files, low, high, kept=bool(files))


# A walk is given what it does with a partition, the scorer, the kept files, and what it shares.


def _find_part(
    part: Partition, work: Callable[..., Any], scorer: Scorer, files: Mapping[int, Path], *shared: Any  # noqa: ARG001
) -> tuple[Partition, Ready | FloatArray]:  # fmt: skip
    return part, scorer.find(part, files)


def _score_found(
    found: tuple[Partition, Ready | FloatArray], work: Callable[..., Any], scorer: Scorer, *shared: Any  # noqa: ARG001
) -> tuple[Partition, FloatArray]:  # fmt: skip
    part, rows = found
    return part, scorer.score(rows) if isinstance(rows, Ready) else rows


def _walk_scored(
    scored: tuple[Partition, FloatArray],
    work: Callable[..., T],
    scorer: Scorer,
    files: Mapping[int, Path],  # noqa: ARG001
    *shared: Any,
) -> T:
    part, table = scored
    return work(part, scorer.blocks(table), *shared)


_SCORING_WALK = Staged(_find_part, _score_found, _walk_scored)


def _walk_part(part: Partition, *given: Any) -> Any:
    """The same in one step: nothing, or next to nothing, is left to be scored."""
    return _SCORING_WALK(part, *given)


# What is done with each partition: ``part`` and ``blocks`` come from the walk, all else is shared.


def base_part(
    part: Partition,  # noqa: ARG001
    blocks: Iterable[ScoredBlock],
    models: Sequence[ScoreModel],
    capacity: int | None,
) -> list[BaseScores]:
    """The base score by each model, of the rows that it was learnt on."""
    scores = [BaseScores.of(np.empty(0), capacity) for _ in models]
    for block in blocks:
        outside = [block.raw[block.folds != fold] for fold in range(-1, len(models) - 1)]
        more = [BaseScores.of(model.of_raw(raw)[1], capacity) for model, raw in zip(models, outside, strict=True)]
        scores = merge_each(scores, more)
    return scores


def merge_each(first: list[Any], second: list[Any]) -> list[Any]:
    """Add what two partitions gave, one by one; lists within are added likewise."""
    pairs = zip(first, second, strict=True)
    return [merge_each(one, two) if isinstance(one, list) else one + two for one, two in pairs]


def cells_part(
    part: Partition,  # noqa: ARG001
    blocks: Iterable[ScoredBlock],
    models: Sequence[ScoreModel],
    ranks: Sequence[QuantileSketch] | None,
    groups: Grouping | int,
) -> Cells:
    """Sums as each model sees the rows; groups are those of the codes, so many, or by columns."""

    def of(block: ScoredBlock) -> Cells:
        members = _members(block, groups)
        return sums_by_models(models, ranks, block.raw, block.folds, members, members.n_groups)

    nobody = np.empty(0, dtype=np.intp)
    width = 0 if isinstance(groups, int) else groups.coder.width
    nothing = np.empty((0, models[0].width))
    total = of(ScoredBlock(nothing, np.empty((0, width)), nobody, nobody, nothing))
    for block in blocks:
        total = total + of(block)
    return total


def sums_by_models(
    models: Sequence[ScoreModel],
    ranks: Sequence[QuantileSketch] | None,
    raw: FloatArray,
    folds: IntArray,
    members: Membership | IntArray,
    n_groups: int,
) -> Cells:
    """Sums as K + 1 models see rows, outside of the fold of each and inside: 2 (K + 1) sets.

    ``beta = exp(rank / n)`` by the sketches, 1 without them.
    """
    parts = []
    for i, model in enumerate(models):
        S, t = model.of_raw(raw)
        beta = np.ones(len(t)) if ranks is None else rank_weights_by(ranks[i], t)
        inside = (folds == i - 1).astype(np.intp)
        parts.append(collect_cells(S, t, beta, members, inside, n_groups=n_groups, n_sets=2))
    return Cells.stacked(parts)


def rank_weights_by(ranks: QuantileSketch, t: FloatArray) -> FloatArray:
    """``beta = exp(rank / n)`` by a sketch of the base score."""
    return np.exp(ranks.ranks(t) / ranks.count)


def fair_part(
    part: Partition,  # noqa: ARG001
    blocks: Iterable[ScoredBlock],
    model: ScoreModel,
    mixture: Mixture,
    capacity: int | None,
) -> QuantileSketch:
    """Sketch of the fair score."""
    sketch = QuantileSketch.of(np.empty(0), capacity)
    for block in blocks:
        sketch = sketch + QuantileSketch.of(mixture.apply(*model.of_raw(block.raw)), capacity)
    return sketch


def _unseen(block: ScoredBlock, fold: int, model: ScoreModel, weights: FloatArray) -> FloatArray:
    """Scores of the rows of a fold, shape (b, m)."""
    S, t = model.of_raw(block.raw[block.folds == fold])
    return np.column_stack([S, t]) @ weights.T


def _members(block: ScoredBlock, groups: Grouping | int) -> Membership:
    """How much each row belongs to each group: those of the codes, so many, or by columns."""
    return Membership.of_codes(block.codes, groups) if isinstance(groups, int) else groups.members(block.numbers)


def unseen_part(
    part: Partition,  # noqa: ARG001
    blocks: Iterable[ScoredBlock],
    models: Sequence[ScoreModel],
    V: FloatArray,
    capacity: int | None,
) -> list[list[QuantileSketch]]:
    """Sketches of m scores of the rows of each fold, by the model without it and weights V (K, m, k + 1)."""
    sketches = [[QuantileSketch.of(np.empty(0), capacity) for _ in weights] for weights in V]
    for block in blocks:
        scores = [_unseen(block, fold, model, V[fold]) for fold, model in enumerate(models)]
        sketches = merge_each(sketches, [[QuantileSketch.of(y, capacity) for y in part.T] for part in scores])
    return sketches


def above_part(
    part: Partition,  # noqa: ARG001
    blocks: Iterable[ScoredBlock],
    models: Sequence[ScoreModel],
    V: FloatArray,
    above: FloatArray,
    groups: Grouping | int,
) -> FloatArray:
    """Rows of each group whose scores lie above the thresholds (K, m) of their fold: shape (G, m)."""
    counts = np.zeros((groups if isinstance(groups, int) else len(groups.columns), V.shape[1]))
    for block in blocks:
        over = np.zeros((len(block.folds), V.shape[1]))
        for fold, model in enumerate(models):
            over[block.folds == fold] = _unseen(block, fold, model, V[fold]) > above[fold]
        counts += np.asarray(_members(block, groups).weights.T @ over)
    return counts


def flag_part(
    part: Partition,
    blocks: Iterable[ScoredBlock],
    model: ScoreModel,
    mixture: Mixture,
    above: tuple[float, float],
    labels: tuple[str, ...],
    to: Path | None,
    grouping: Grouping | None = None,
) -> FloatArray:
    """Count rows, rows flagged by the base score and rows flagged by the fair one, by group: shape (G + 1, 3).

    The last entry is for rows of no group. With a grouping, groups are its own, without such an entry. ``above`` are
    the thresholds of base and fair score, and ``to`` is a folder for one Parquet file per partition: ``source`` and
    ``row`` say which row of the input it is; ``group`` (null where it is not known, or too small to be compared),
    ``base_score``, ``fair_score``, ``flagged``.
    """
    counts = np.zeros((len(labels) + 1 if grouping is None else len(grouping.columns), 3))
    row = part.first_row
    with nullcontext() if to is None else scores_file(to, part, labels) as write:
        for block in blocks:
            S, base = model.of_raw(block.raw)
            fair = mixture.apply(S, base)
            flagged = np.column_stack([np.ones(len(S), dtype=bool), base > above[0], fair > above[1]])
            if grouping is None:
                np.add.at(counts, block.codes, flagged)
            else:
                counts += np.asarray(grouping.members(block.numbers).weights.T @ flagged.astype(float))
            if write is not None:
                write(row, block.codes, base, fair, flagged[:, 2])
            row += len(S)
    return counts


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
    def of(cls, block: ScoredBlock, most: int) -> "Labelled":
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
    known = KnownLabels.of_columns(rows.known[outside, :2])
    coverage = ranks.share_from(label_floor(t, known.propensity))
    return model.taught(S, t, known, coverage=coverage, population=population), coverage


def _labelled_part(part: Partition, blocks: Iterable[ScoredBlock], n_columns: int, most: int) -> Labelled:  # noqa: ARG001
    nobody = np.empty(0, dtype=np.intp)
    found = Labelled(np.empty((0, n_columns)), np.empty((0, 4)), nobody, 0, most)
    for block in blocks:
        found = found + Labelled.of(block, most)
    return found
