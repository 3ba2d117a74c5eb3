"""A partition as raw scores: computed once, kept in a scratch file, and walked through in blocks."""

import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenout import gpu
from evenout.core.exceptions import InputError
from evenout.core.folds import N_FOLDS, row_numbers
from evenout.core.types import FloatArray, IntArray
from evenout.detectors.pool import FittedPool
from evenout.fitting.resemblance import Resemblance
from evenout.inputs.coder import Coder
from evenout.partitions.engines import Part, Rows, read_rows

BLOCK = 65536  # rows of kept scores that are worked on together
_ON_DEVICE = Lock()  # threads of a worker take turns: side by side they would be no faster, and need its memory twice


class Block(NamedTuple):
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
    part : Part
    X : array of shape (m, d)
    content : array of shape (m, c)
        X as the named pools see it.
    labels : array of objects, (m,), or None
        The name of each row's group, for detectors that use it.
    beside : array of shape (m, c)
        What stands behind the raw scores, in the order of `Scorer.score`.
    """

    part: Part
    X: FloatArray
    content: FloatArray
    labels: Any
    beside: FloatArray


def hashed_folds(X: FloatArray, seed: int) -> IntArray:
    """The fold of each row, by its content and the seed: rows need not be together to be dealt out."""
    return (row_numbers(X, seed) % np.uint64(N_FOLDS)).astype(np.intp)


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
    resemblance : Resemblance, optional
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
    resemblance: Resemblance | None = None
    learnt_from: tuple[npt.NDArray[np.uint64], FloatArray] | None = None
    device: str = "cpu"

    @property
    def n_columns(self) -> int:
        """Columns of raw scores, resemblance included."""
        return len(self.pool.names) + (0 if self.resemblance is None else self.resemblance.n_groups)

    def read(self, part: Part) -> Ready:
        """Read and clean a partition, in one thread, and number its groups and folds."""
        self._require_device()
        rows = read_rows(part, self.coder)
        labels, content = rows.labels() if rows.names else None, self.pool.inside(rows.X)
        codes, folds = rows.codes(self.codes), hashed_folds(content, self.seed)
        beside = np.column_stack([rows.numbers, self.known(rows, content, codes), codes, folds])
        return Ready(part, rows.X, content, labels, beside)

    def _require_device(self) -> None:
        """Refuse to read rows on a machine that cannot score them, by its name: others may have the device."""
        if self.device == "cpu":
            return
        try:
            gpu.check_device(self.device)
        except InputError as error:
            raise InputError("machine {machine!r}: {error}", machine=platform.node(), error=error) from None

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

    @property
    def width(self) -> int:
        """Columns of `known`."""
        return 0 if self.seen is None else 4

    def known(self, rows: Rows, content: FloatArray, codes: IntArray) -> FloatArray:
        """What is known of labels, (m, 4): label, propensity, a number in [0, 1] by content, and place in ``seen``.

        The place is -1 for a row that is not in the reference. No column if labels are not kept.
        """
        if self.seen is None:
            return np.empty((len(content), 0))
        numbers = content_in_group(content, codes, self.seed)
        return np.column_stack([rows.known(), numbers / 2.0**64, _place(numbers, self.seen)])

    def keep(self, part: Part, table: FloatArray) -> dict[int, Path]:
        """Write the scores of a partition to a file that appears whole; none if there is no room."""
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self.scratch(), suffix=".npy")
            with os.fdopen(handle, "wb") as file:
                np.save(file, table)
            return {part.index: Path(name)}
        return {}

    def find(self, part: Part, files: Mapping[int, Path]) -> Ready | FloatArray:
        """The kept scores of a partition, as they lie on disk; or its rows, to be scored again."""
        try:
            table: FloatArray = np.load(files[part.index], mmap_mode="r")
        except (KeyError, OSError, ValueError):
            return self.read(part)
        return table

    def blocks(self, table: FloatArray) -> Iterator[Block]:
        """The rows of a partition that is scored."""
        k = self.n_columns
        last = table.shape[1] - 2 - self.width
        for start in range(0, len(table), BLOCK):
            block = np.array(table[start : start + BLOCK])
            codes, folds = block[:, -2:].T.astype(np.intp)
            yield Block(block[:, :k], block[:, k:last], codes, folds, block[:, last:-2])


def _place(numbers: npt.NDArray[np.uint64], among: npt.NDArray[np.uint64]) -> IntArray:
    """The place of each number among rising ones, -1 if it is not there."""
    place = np.minimum(np.searchsorted(among, numbers), len(among) - 1)
    return np.where(among[place] == numbers, place, -1)
