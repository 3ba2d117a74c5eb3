"""Passes over partitions: scores, sums, flags and labels of more rows than memory holds.

Detectors are fitted on a reference in memory (`evenout.fitting.rows.open_partitions`). A partition is scored once, by
all threads or a GPU, while the next ones are read. Its raw scores are kept in a scratch file; later passes read that
file, or score the partition again where the file is lost. Sums over partitions are sums over rows, so a pass gives
what all rows in memory would give.

A pass sees the rows through several models at a time: the first was learnt on all rows, the one at index ``f + 1``
without the rows of fold f. No statement about unseen rows may rest on rows that a detector has seen: a row of the
reference is scored by detectors fitted without its fold, and any other row by all detectors, none of which has seen it.
The same holds for the classifiers of resemblance, in sums over all rows too. Scaling, base ensemble and weights are
learnt from all rows outside the fold. Labelled rows are few, so they fit into memory where all rows do not.
"""

import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from evenout import gpu
from evenout.core.base_score import learn_scaling
from evenout.core.cells import Cells, collect_cells
from evenout.core.content import N_FOLDS, row_numbers
from evenout.core.flags import FlagRows
from evenout.core.membership import Membership
from evenout.core.parallel import map_blocks, map_columns
from evenout.core.problem import Mixture
from evenout.core.ruler import Means
from evenout.core.sketch import QuantileSketch, values_below
from evenout.core.stacking import Population, label_floor
from evenout.core.types import MOST_ROWS, AnyArray, BoolArray, FloatArray, IntArray, Within, require
from evenout.detectors.family import Without
from evenout.detectors.pool import FittedPool
from evenout.exceptions import InputError, warn
from evenout.fitting.choose import Counter
from evenout.fitting.resemblance import FittedResemblance
from evenout.fitting.rows import Partitions, TrainingRows, hashed_folds
from evenout.fitting.score_model import KnownLabels, ScoreModel, learn_scores
from evenout.fitting.settings import Settings
from evenout.groups.model import Coder, Grouping
from evenout.out_of_core.engines import Engine, Partition, Staged, read_rows
from evenout.out_of_core.parquet import scores_file

if TYPE_CHECKING:
    from evenout.fitting.result import FitResult

BLOCK = 65536  # rows of kept scores that are worked on together
MOST = 100_000  # labelled rows that are learnt from
KNOTS = 512  # quantiles that are kept of each detector's scores
_ENOUGH = 100_000  # rows among which a move is looked for
_CERTAIN = 0.01  # the chance that any of the detectors is said to have aged and has not
_UNIT = np.array([[0.0], [1.0]])
_ON_DEVICE = Lock()  # threads of a worker take turns: side by side they would be no faster, and need its memory twice

T = TypeVar("T")


class ScoredBlock(NamedTuple):
    """Consecutive rows: raw scores (b, k), encoded columns (b, c), group codes (b,), folds (b,), labels (b, 4 or 0).

    The columns about labels are the label, its propensity, a number in [0, 1] by content, and the row's index in
    `Scorer.seen`, -1 if it is not there.
    """

    raw: FloatArray
    numbers: FloatArray
    codes: IntArray
    folds: IntArray
    known: FloatArray


class Ready(NamedTuple):
    """The rows of a partition, ready to be scored: X (m, d), and X as the named pools see it, ``content``.

    ``labels`` (m,) are the names of the rows' groups, for detectors that use them; ``beside`` (m, c) is everything that
    stands behind the raw scores, in the order of `Scorer.score`.
    """

    X: FloatArray
    content: FloatArray
    labels: Any
    beside: FloatArray


@dataclass(frozen=True)
class Scorer:
    """Turns a partition into raw scores, and keeps these.

    ``codes`` are those of groups by name; other groups count as unknown. ``scratch`` returns the folder for kept
    scores, and ``coder`` encodes protected and other columns as numbers. ``seen`` are `row_numbers` of the reference,
    ascending, by content and group; if given, labels are kept too. Columns of ``resemblance`` stand behind those of the
    detectors; ``learnt_from`` has `row_numbers`, ascending, of the rows that it was learnt from, and their resemblance
    (m, G) by classifiers that have not seen them. Detectors score on a ``device`` of the machine that has the
    partition, and resemblance stays on the CPU.
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
        labels, content = rows.labels() if rows.groups.labels else None, self.pool.inside(rows.X)
        codes = rows.groups.recoded(self.codes)
        beside: list[AnyArray] = [rows.numbers]
        if self.seen is not None:
            numbers = row_numbers(np.column_stack([content, codes]), self.seed)  # equal rows are scored alike
            beside += [rows.known(), numbers / 2.0**64, _indices(numbers, self.seen)]
        return Ready(rows.X, content, labels, np.column_stack([*beside, codes, hashed_folds(content, self.seed)]))

    def score(self, ready: Ready) -> FloatArray:
        """Raw scores, encoded columns, columns about labels, and last the codes of groups and the folds."""
        if not len(ready.X):
            return np.empty((0, self.n_columns + ready.beside.shape[1]))
        with nullcontext() if self.device == "cpu" else _ON_DEVICE:
            raw = [
                self.pool.score(
                    ready.X, sensitive_features=ready.labels, content=ready.content,
                    n_threads=self.n_threads, device=self.device,
                )
            ]  # fmt: skip
        if self.resemblance is not None:
            raw.append(self.resemblance.of(ready.X))
        if self.learnt_from is not None:  # a row's resemblance must come from classifiers that have not seen it
            numbers, unseen = self.learnt_from
            index = _indices(row_numbers(ready.content, self.seed), numbers)
            raw[-1][index >= 0] = unseen[index[index >= 0]]
        return np.column_stack([*raw, ready.beside])

    def keep(self, part: Partition, table: FloatArray) -> dict[int, Path]:
        """Write the scores of a partition to a file that appears whole; none if there is no room."""
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self.scratch(), suffix=".npy")
            with os.fdopen(handle, "wb") as file:
                np.save(file, table)
            return {part.index: Path(name)}
        return {}

    def blocks(self, table: FloatArray) -> Iterator[ScoredBlock]:
        """The rows of a scored partition; one empty block if it has none."""
        k = self.n_columns
        last = table.shape[1] - 2 - (0 if self.seen is None else 4)
        for start in range(0, max(len(table), 1), BLOCK):
            block = np.array(table[start : start + BLOCK])
            codes, folds = block[:, -2:].T.astype(np.intp)
            yield ScoredBlock(block[:, :k], block[:, k:last], codes, folds, block[:, last:-2])


def _indices(numbers: npt.NDArray[np.uint64], among: npt.NDArray[np.uint64]) -> IntArray:
    """The index of each number among ascending ones, -1 if it is not there."""
    index = np.minimum(np.searchsorted(among, numbers), len(among) - 1)
    return np.where(among[index] == numbers, index, -1)


@dataclass(frozen=True)
class RawScores:
    """Files of the partitions' raw scores, by index, where there was room; extremes (K, k) by fold and column."""

    files: Mapping[int, Path]
    low: FloatArray
    high: FloatArray

    def __add__(self, other: "RawScores") -> "RawScores":
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return RawScores({**self.files, **other.files}, low, high)

    def extremes(self, fold: int) -> FloatArray:
        """Lowest and highest scores of the rows outside of a fold, or of all (-1), shape (2, k)."""
        others = np.arange(len(self.low)) != fold
        return np.stack([self.low[others].min(axis=0), self.high[others].max(axis=0)])


@dataclass(frozen=True)
class Walks:
    """Scored partitions that can be walked through again and again.

    ``scorer``, and ``files`` of kept scores by the index of the partition, are shared with the workers. ``kept``:
    whether all partitions have a file; else they are read and scored on the way.
    """

    engine: Engine
    scorer: Scorer
    files: Mapping[int, Path]
    kept: bool

    def over_parts(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """``work(part, table, scorer, *shared)`` for every scored partition, merged."""
        steps = _WALK.__call__ if self.kept else _WALK  # in one step where nothing, or next to nothing, is to be scored
        return self.engine.reduce(steps, merge, self.scorer, self.files, work, *map(self.engine.share, shared))

    def walk(self, work: Callable[..., T], merge: Callable[[T, T], T], *shared: Any) -> T:
        """``work(block, *shared)`` for every block of rows, merged."""
        return self.over_parts(partial(_merge_blocks, work, merge), merge, *shared)


def _find_part(
    part: Partition, scorer: Scorer, files: Mapping[int, Path], *_: Any
) -> tuple[Partition, Ready | FloatArray]:
    """The kept scores of a partition, as they lie on disk; or its rows, to be scored."""
    try:
        return part, np.load(files[part.index], mmap_mode="r")
    except (KeyError, OSError, ValueError):
        return part, scorer.read(part)


def _score_found(found: tuple[Partition, Ready | FloatArray], scorer: Scorer, *_: Any) -> tuple[Partition, FloatArray]:
    part, rows = found
    return part, scorer.score(rows) if isinstance(rows, Ready) else rows


def _work_on(
    scored: tuple[Partition, FloatArray], scorer: Scorer, _: Mapping[int, Path], work: Callable[..., T], *shared: Any
) -> T:
    return work(*scored, scorer, *shared)


_WALK = Staged(_find_part, _score_found, _work_on)


def _merge_blocks(
    work: Callable[..., T], merge: Callable[[T, T], T], _: Partition, table: FloatArray, scorer: Scorer, *shared: Any
) -> T:
    return reduce(merge, (work(block, *shared) for block in scorer.blocks(table)))


def keep_part(part: Partition, table: FloatArray, scorer: Scorer) -> RawScores:
    """Keep the scores of a partition; by `Walks.over_parts`, those of all partitions."""
    parts = [table[table[:, -1] == fold, : len(scorer.pool.names)] for fold in range(N_FOLDS)]
    return RawScores(
        scorer.keep(part, table),
        np.stack([raw.min(axis=0, initial=np.inf) for raw in parts]),
        np.stack([raw.max(axis=0, initial=-np.inf) for raw in parts]),
    )


BaseScores = tuple[QuantileSketch, float, float]  # the base score of some rows: its ranks, lowest and highest value


def _base_scores(block: ScoredBlock, models: Sequence[ScoreModel], capacity: int | None) -> list[BaseScores]:
    """The base score by each model, of the rows that it was learnt on."""
    scores = [model.of_raw(block.raw[block.folds != fold])[1] for fold, model in enumerate(models, -1)]
    return [
        (QuantileSketch.of(t, capacity), float(t.min(initial=np.inf)), float(t.max(initial=-np.inf))) for t in scores
    ]


def _merge_bases(first: list[BaseScores], second: list[BaseScores]) -> list[BaseScores]:
    return [(one[0] + two[0], min(one[1], two[1]), max(one[2], two[2])) for one, two in zip(first, second, strict=True)]


def _members(block: ScoredBlock, groups: Grouping | int) -> Membership:
    return Membership.of_codes(block.codes, groups) if isinstance(groups, int) else groups.members(block.numbers)


def sum_block(
    block: ScoredBlock, models: Sequence[ScoreModel], ranks: Sequence[QuantileSketch] | None, groups: Grouping | int
) -> Cells:
    """Sums as K + 1 models see rows, outside of the fold of each and inside: 2 (K + 1) sets.

    ``beta = exp(rank / n)`` by the sketches, 1 without them. A number of groups goes by codes, a `Grouping` by columns.
    """
    parts, members = [], _members(block, groups)
    for i, model in enumerate(models):
        S, t = model.of_raw(block.raw)
        beta = np.ones(len(t)) if ranks is None else np.exp(ranks[i].ranks(t) / ranks[i].count)
        sets = (block.folds == i - 1).astype(np.intp)
        parts.append(collect_cells(S, t, beta, members, sets, n_groups=members.n_groups, n_sets=2))
    return Cells.stacked(parts)


def _fair_scores(block: ScoredBlock, model: ScoreModel, mixture: Mixture, capacity: int | None) -> QuantileSketch:
    return QuantileSketch.of(mixture.apply(*model.of_raw(block.raw)), capacity)


def _held_out(
    block: ScoredBlock, models: Sequence[ScoreModel], V: FloatArray
) -> Iterator[tuple[BoolArray, FloatArray]]:
    """For each fold its rows and their scores (m, 1), by the model without it and weights V (K, 1, k + 1)."""
    for fold, model in enumerate(models):
        rows = block.folds == fold
        yield rows, np.column_stack(model.of_raw(block.raw[rows])) @ V[fold].T


def _held_out_sketches(
    block: ScoredBlock, models: Sequence[ScoreModel], V: FloatArray, capacity: int | None
) -> list[QuantileSketch]:
    return [QuantileSketch.of(scores[:, 0], capacity) for _, scores in _held_out(block, models, V)]


def _merge_sketches(first: list[QuantileSketch], second: list[QuantileSketch]) -> list[QuantileSketch]:
    return [one + two for one, two in zip(first, second, strict=True)]


def _count_above(
    block: ScoredBlock, models: Sequence[ScoreModel], V: FloatArray, above: FloatArray, groups: Grouping | int
) -> FloatArray:
    """Rows of each group whose scores lie above the threshold of their fold, of K: shape (G, 1)."""
    over = np.zeros((len(block.folds), 1))
    for (rows, scores), threshold in zip(_held_out(block, models, V), above, strict=True):
        over[rows] = scores > threshold
    return np.asarray(_members(block, groups).weights.T @ over)


def _flag_part(
    part: Partition,
    table: FloatArray,
    scorer: Scorer,
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
        for block in scorer.blocks(table):
            S, base = model.of_raw(block.raw)
            fair = mixture.apply(S, base)
            flagged = np.column_stack([np.ones(len(S), dtype=bool), base > above[0], fair > above[1]])
            if grouping is None:
                np.add.at(counts, block.codes, flagged)
            else:
                counts += np.asarray(grouping.members(block.numbers).weights.T @ flagged.astype(float))
            if write is not None and len(S):
                write(row, block.codes, base, fair, flagged[:, 2])
            row += len(S)
    return counts


@dataclass(frozen=True)
class Labelled:
    """Rows with a label, (m, k + 5): raw scores, the columns about labels (`ScoredBlock`), and the fold.

    Of more than ``most`` rows those with the smallest numbers by content stay; ``total`` counts all of them.
    """

    rows: FloatArray
    total: int
    most: int

    def __add__(self, other: "Labelled") -> "Labelled":
        both = Labelled(np.concatenate([self.rows, other.rows]), self.total + other.total, self.most)
        return both.ordered() if len(both.rows) > self.most else both

    def ordered(self) -> "Labelled":
        """Sort by content, so that sums over the rows do not depend on partitions."""
        label, chance, number = self.rows[:, -5:-2].T
        return replace(self, rows=self.rows[np.lexsort((chance, label, number))[: self.most]])


def _labelled(block: ScoredBlock, most: int) -> Labelled:
    some = ~np.isnan(block.known[:, 0])
    rows = np.column_stack([part[some] for part in (block.raw, block.known, block.folds.astype(float))])
    return Labelled(rows, len(rows), most)


@dataclass(frozen=True)
class Pass:
    """All rows of partitions, as scored by models that were learnt on all rows and without each fold.

    ``rows`` are the reference, ``raw`` has its raw scores by detectors without a fold, or by all (-1). There are K + 1
    ``models``, without their detectors, and ``ranks``: the base score of the rows that each was learnt on. ``sums`` are
    2 (K + 1) sets (`sum_block`); those ``before`` are of all rows, by the base score that has not learnt from labels,
    whose ``coverage`` is the last field.
    """

    partitions: Partitions
    rows: TrainingRows
    settings: Settings
    walks: Walks
    raw: Without
    models: Sequence[ScoreModel]
    ranks: Sequence[QuantileSketch]
    sums: Cells
    before: Cells
    coverage: float = 1.0

    @classmethod
    def over(
        cls,
        partitions: Partitions,
        rows: TrainingRows,
        settings: Settings,
        pool: FittedPool,
        raw: Without,
        resemblance: FittedResemblance | None = None,
    ) -> "Pass":
        """Three passes: raw scores, base scores, sums; three more where labels are to be learnt from."""
        seen = home = learnt_from = None
        if settings.learn:
            numbers = row_numbers(np.column_stack([rows.content, rows.groups.codes]), rows.seed)
            seen, home = np.unique(numbers, return_index=True)
        if resemblance is not None:
            numbers, first = np.unique(row_numbers(rows.content, rows.seed), return_index=True)
            learnt_from = numbers, raw(-1)[first, len(pool.names) :]
        engine, coder = partitions.engine, None if rows.grouping is None else rows.grouping.coder
        scorer = Scorer(
            pool, partitions.codes, engine.n_threads, rows.seed, partitions.scratch, coder, seen, resemblance,
            learnt_from, settings.device,
        )  # fmt: skip
        walks = Walks(engine, engine.share(scorer), engine.share({}), kept=False)
        scores = walks.over_parts(keep_part, RawScores.__add__)
        walks = replace(walks, files=engine.share(scores.files), kept=len(scores.files) == len(engine.parts))
        learnt = (
            learn_scores(
                pool, raw(-1), rows.folds != fold, scaling=settings.scaling, combination=settings.combination,
                seed=settings.seed, resemblance=resemblance, extremes=scores.extremes(fold),
            )[0]
            for fold in range(-1, N_FOLDS)
        )  # fmt: skip
        none, unit = FittedPool((), ()), learn_scaling("minmax", _UNIT)
        models = [replace(model, pool=none, base_scaling=unit) for model in learnt]
        bases = walks.walk(_base_scores, _merge_bases, models, partitions.capacity)
        scalings = [learn_scaling("minmax", np.array([[low], [high]])) for _, low, high in bases]
        models = [replace(model, base_scaling=scaling) for model, scaling in zip(models, scalings, strict=True)]
        ranks = [
            replace(sketch, levels=tuple(scaling.transform(t[:, None])[:, 0] for t in sketch.levels))
            for (sketch, _, _), scaling in zip(bases, scalings, strict=True)
        ]
        sums = _sums(rows, settings, walks, models, ranks)
        untaught = cls(partitions, rows, settings, walks, raw, models, ranks, sums, sums.at(slice(1)))
        return untaught if home is None else untaught._taught(home)

    def _taught(self, home: IntArray) -> "Pass":
        """The pass after the models have learnt from labels; ``home`` has the reference row of each `Scorer.seen`.

        A model without a fold learns from the labels outside of it. Rows of the reference are then scored by detectors
        without the fold, as in memory.
        """
        cached = replace(self, raw=cache(self.raw))  # each fold is scored here and in `fit_rows`
        labelled = self.walks.walk(_labelled, Labelled.__add__, MOST).ordered()
        if labelled.total > len(labelled.rows):
            warn(
                f"{labelled.total:,} rows have a label: the base score learns from {labelled.most:,} of them, drawn by "
                "content"
            )
        index, folds = labelled.rows[:, -2:].T.astype(np.intp)
        raw, columns_known = labelled.rows[:, :-5], labelled.rows[:, -5:-3]
        models, coverages = [], []
        for fold, model in enumerate(self.models, -1):
            reference, outside = cached.raw(fold), folds != fold
            sums = cached.cells(fold, *model.of_raw(reference), self.rows.folds != fold, inside=False)
            columns = np.r_[0 : model.n_detectors + 1, -1]  # labels teach nothing about resemblance
            population = Population.of_sums(sums.total[0][np.ix_(columns, columns)])
            S, t = model.of_raw(np.where((index >= 0)[:, None], reference[home[index]], raw)[outside])
            known = KnownLabels.of_columns(columns_known[outside])
            coverages.append(self.ranks[fold + 1].share_from(label_floor(t, known.propensity)))
            models.append(model.taught(S, t, known, coverage=coverages[-1], population=population))
        ranks = [
            sketch for sketch, _, _ in self.walks.walk(_base_scores, _merge_bases, models, self.partitions.capacity)
        ]
        sums = _sums(self.rows, self.settings, self.walks, models, ranks)
        return replace(cached, models=models, ranks=ranks, sums=sums, coverage=coverages[0])

    def cells(self, fold: int, S: FloatArray, t: FloatArray, of: BoolArray, *, inside: bool) -> Cells:
        """Sums over all rows inside of the fold, or outside; ``of`` marks them among the reference.

        Its rows count as scored without the fold, by ``S`` and ``t``, not as scored by all detectors.
        """
        at = 2 * (fold + 1) + inside
        total = self.sums.at(slice(at, at + 1))
        if fold < 0:
            return total
        parts, ranks = [], self.ranks[fold + 1]
        for columns, base in (self.models[fold + 1].of_raw(self.raw(-1)), (S, t)):
            beta = np.exp(ranks.ranks(base[of]) / ranks.count) if self.settings.weighting == "rank" else None
            parts.append(self.rows.cells(columns, base, of, beta))
        return total - parts[0] + parts[1]

    def counter(self, held: FlagRows) -> Counter:
        """Counts flags among all rows, in two passes: the thresholds of each fold, then the rows above them.

        Rows of the reference count as ``held``, by detectors that have not seen them, not as scored by all detectors.
        """
        rows, capacity, share = self.rows, self.partitions.capacity, held.share(self.settings.contamination)
        whole, phi, models = self.sums.at(slice(1)), rows.members.weights, self.models[1:]
        groups = rows.grouping or len(rows.groups.labels)
        size = np.maximum(whole.effective_counts[0], 1.0)

        def count(V: FloatArray) -> Means:
            sketches = self.walks.walk(_held_out_sketches, _merge_sketches, models, V, capacity)
            above = np.array([sketch.quantile(1.0 - share) for sketch in sketches])
            flagged = self.walks.walk(_count_above, np.add, models, V, above, groups)
            for fold, weights in enumerate(V):
                inside = held.folds == fold
                by_all, unseen = models[fold].of_raw(self.raw(-1)[inside]), (held.S[inside], held.t[inside])
                for sign, scored in ((-1.0, by_all), (1.0, unseen)):
                    over = (np.column_stack(scored) @ weights.T > above[fold]).astype(float)
                    flagged = flagged + sign * np.asarray(csc_array(phi[inside]).T @ over)
            rates = np.clip(flagged[:, 0] / np.maximum(whole.group_counts[0], 1e-9), 0.0, 1.0)
            noise = np.nan_to_num(rates * (1.0 - rates) / np.maximum(size - 1.0, 1.0))  # of independent rows
            return Means(rates, np.diag(noise), size, held.sample.compared)

        return count

    def flags(self, mixture: Mixture, share: float) -> tuple[float, FloatArray]:
        """The threshold, and the share of each group that base and fair score flag, (G, 2), in two passes.

        Scores are written on the way.
        """
        rows, of = self.rows, (self.models[0], mixture)
        fair = self.walks.walk(_fair_scores, QuantileSketch.__add__, *of, self.partitions.capacity)
        above = self.ranks[0].quantile(1.0 - share), fair.quantile(1.0 - share)
        counts = self.walks.over_parts(
            _flag_part, np.add, *of, above, rows.groups.labels, self.partitions.scores_to, rows.grouping
        )
        counts = counts[:-1] if rows.grouping is None else counts
        return above[1], counts[:, 1:] / np.maximum(counts[:, :1], 1e-9)


def _sums(
    rows: TrainingRows, settings: Settings, walks: Walks, models: Sequence[ScoreModel], ranks: Sequence[QuantileSketch]
) -> Cells:
    """Sums over all rows; groups whose rows all fall into one fold are refused: none of them can be left out."""
    names, groups = rows.names, rows.grouping or len(rows.names)
    sums = walks.walk(sum_block, Cells.__add__, models, ranks if settings.weighting == "rank" else None, groups)
    filled = (sums.at(slice(3, None, 2)).group_counts > 0).sum(axis=0)
    if len(names) >= 2 and (filled < 2).any():
        raise InputError(
            "the rows of group {group!r} are all alike, so that none of them can be left out as unseen; set "
            "{@reference_size} to the number of rows or more, or leave this group out",
            group=names[int((filled < 2).argmax())],
        )
    return sums


@dataclass(frozen=True, eq=False)
class UpdateMaps:
    """Maps from new rows to sums.

    There are K + 1 models, without their detectors: learnt on all rows, and without each fold. ``ranks`` are of the
    base score by each model, of the rows it was learnt on: ``beta = exp(rank / n)``; None: ``beta = 1``. ``columns``
    (q, k) are quantiles of the detectors' scores of the fit's ``rows``, by all detectors, and ``fresh_columns`` by
    those without the row's fold. Folds go by the seed.
    """

    models: tuple[ScoreModel, ...]
    ranks: tuple[QuantileSketch, ...] | None
    columns: Annotated[FloatArray, "q k"]
    fresh_columns: Annotated[FloatArray, "q k"]
    rows: Annotated[int, Within(1, MOST_ROWS)]
    seed: Annotated[int, Within(0, 2**32 - 1)]

    def check(self) -> None:
        """All models are of the same columns, and have ranks or have none."""
        require(self.models, "models", "is empty")
        columns = {model.n_detectors for model in self.models}
        require(columns == {self.columns.shape[1]}, "models", "have the wrong shape")
        ranked = [len(model.scaling.sorted_scores) for model in self.models]
        counts = [0] * len(ranked) if self.ranks is None else [sketch.count for sketch in self.ranks]
        require(len(counts) == len(ranked), "ranks", "has the wrong length")
        for name, sizes in (("models", ranked), ("ranks", counts)):  # each row is outside of all folds but one
            others = max(len(sizes) - 2, 0) * sizes[0]
            require(sizes[0] in (0, self.rows) and sum(sizes[1:]) == others, name, "has the wrong length")
        require(1 <= len(self.columns) <= KNOTS, "columns", "has the wrong length")
        for name in ("columns", "fresh_columns"):
            require((np.diff(getattr(self, name), axis=0) >= 0).all(), name, "are not in order")

    def cells(self, raw: FloatArray, codes: IntArray, folds: IntArray, n_groups: int, n_threads: int = 1) -> Cells:
        """Sums as each model sees the rows, outside of its fold and inside: 2 (K + 1) sets."""
        none = raw[:, :0]
        parts = map_blocks(
            lambda at: sum_block(
                ScoredBlock(raw[at], none[at], codes[at], folds[at], none[at]), self.models, self.ranks, n_groups
            ),
            len(raw),
            BLOCK,
            n_threads,
        )
        return reduce(Cells.__add__, parts)

    def moved(self, S: FloatArray, fresh: FloatArray) -> FloatArray:
        """How far each detector's scores of n new rows have moved since the fit, in ranks, (k,); 0 if by chance.

        The smaller of two Kolmogorov-Smirnov distances: of scores by all detectors, ``S`` (n, k), from those of the
        training rows, which a forest knows; and of ``fresh`` (n, k), scaled as without a fold, from those by detectors
        without it, which find fewer neighbours. Chance is bounded for both samples (Massart 1990).
        """
        both = 1.0 / np.sqrt(len(S)) + 1.0 / np.sqrt(self.rows)
        chance = np.sqrt(np.log(4.0 * S.shape[1] / _CERTAIN) / 2.0) * both + 0.5 / len(self.columns)
        some = slice(None, None, max(len(S) // _ENOUGH, 1))
        far = np.minimum(_distances(S[some], self.columns), _distances(fresh[some], self.fresh_columns))
        return np.where(far > chance, far, 0.0)


def keep_columns(S: FloatArray, *, n_threads: int = 1) -> FloatArray:
    """Quantiles of each column, for `UpdateMaps`."""
    q = min(len(S), KNOTS)
    shares = (np.arange(q) + 0.5) / q
    return np.column_stack(
        map_columns(lambda j: values_below(np.sort(S[:, j]), shares), range(S.shape[1]), len(S), n_threads)
    )


def _distances(S: FloatArray, columns: FloatArray) -> FloatArray:
    """The largest difference of two distributions, column by column, at the quantiles of one: shape (k,)."""
    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    far = np.empty(S.shape[1])
    for j, old in enumerate(columns.T):
        new = np.sort(S[:, j])
        shares = [[np.searchsorted(values, old, side=side) / len(values) for values in (new, old)] for side in sides]
        far[j] = max(np.abs(one - two).max() for one, two in shares)
    return far


def score_partitions(
    engine: Engine, fit: "FitResult", scores_to: Path, coder: Coder | None = None, device: str = "cpu"
) -> IntArray:
    """Write the scores of all rows, new ones too, into a folder: one file per partition (`parquet.scores_file`).

    ``coder`` names the groups where they are not values of columns, such as bands of a number. ``device`` is where
    detectors score, on the machine that has a partition. Returns the rows and flagged rows of each group of the fit,
    shape (G + 1, 2); the last entry is for rows of other groups, or of none.
    """
    labels = fit.groups.labels
    scorer = Scorer(
        fit.scores.pool,
        {name: code for code, name in enumerate(labels)},
        engine.n_threads,
        seed=0,
        scratch=Path,
        coder=coder,
        resemblance=fit.scores.resemblance,
        device=device,
    )
    walks = Walks(engine, engine.share(scorer), engine.share({}), kept=False)  # scored when they are walked through
    shared = replace(fit.scores, pool=FittedPool((), ())), fit.mixture, (np.inf, fit.threshold), labels, scores_to
    return walks.over_parts(_flag_part, np.add, *shared)[:, ::2].astype(np.intp)
