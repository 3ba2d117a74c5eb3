"""Who enters and who leaves the flagged list, against the base ensemble."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.report.privacy import Range

LISTED_PEOPLE = 1000
Namer: TypeAlias = Callable[[int], tuple[str, str | None]]


@dataclass(frozen=True)
class Moves:
    """Who crosses the line between flagged and not flagged, against the base ensemble.

    ``listed`` holds places in the report's ``people``, ``ranks`` the rank that each of them has now.
    """

    enter: Range
    leave: Range
    listed: tuple[int, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Person:
    """Someone who enters or leaves the flagged list at some alpha; rank 1 is the most outlying."""

    id: str
    rank: int
    leaves: bool
    group: str | None


def ranks_of(scores: FloatArray, rows: IntArray) -> IntArray:
    """Ranks of some rows, 1 = highest score; equal scores share the best rank.

    >>> ranks_of(np.array([0.2, 0.9, 0.2]), np.array([0, 1, 2])).tolist()
    [2, 1, 2]
    """
    ordered = np.sort(scores)
    return len(scores) - np.searchsorted(ordered, scores[rows], side="right") + 1


def list_moves(
    crossings: Sequence[tuple[IntArray, IntArray]],
    base: FloatArray,
    base_flagged: BoolArray,
    name: Namer,
    smallest: int,
) -> tuple[tuple[Person, ...], tuple[Moves, ...]]:
    """One table of the people whose rank changes most when they cross, and for each step who of them crosses.

    Parameters
    ----------
    crossings : sequence of pairs of arrays of shape (m,)
        Of each step, the rows whose flag differs from that of the base ensemble, and their ranks there.
    base, base_flagged : arrays of shape (n,)
        The base ensemble's score, and whom it flags.
    name : callable
        Id of a row, and its group if that is to be shown.
    smallest : int
        If fewer people enter, or leave, at a step, they are neither counted nor listed there.
    """
    counts, shown = [], []
    for rows, ranks in crossings:
        leaves = base_flagged[rows].astype(np.intp)
        counts.append((len(rows) - int(leaves.sum()), int(leaves.sum())))
        keep = np.array([n >= smallest for n in counts[-1]])[leaves]
        shown.append((rows[keep], ranks[keep]))
    every = np.unique(np.concatenate([rows for rows, _ in shown]))
    base_ranks = ranks_of(base, every)
    moved = np.zeros(len(every), dtype=np.intp)
    for rows, ranks in shown:
        at = np.searchsorted(every, rows)
        moved[at] = np.maximum(moved[at], np.abs(ranks - base_ranks[at]))
    most = np.argsort(-moved, kind="stable")[:LISTED_PEOPLE]
    place_of = np.full(len(base), -1, dtype=np.intp)
    place_of[every[most]] = np.arange(len(most))
    people = []
    for row, rank in zip(every[most].tolist(), base_ranks[most].tolist(), strict=True):
        identity, group = name(row)
        people.append(Person(identity, rank, bool(base_flagged[row]), group))
    moves = []
    for (rows, ranks), count in zip(shown, counts, strict=True):
        places = place_of[rows]
        order = np.argsort(places)[(places < 0).sum() :]
        # Nobody is nobody; a few are "fewer than".
        enter, leave = ((1, smallest - 1) if 0 < n < smallest else (n, n) for n in count)
        moves.append(Moves(enter, leave, tuple(places[order].tolist()), tuple(ranks[order].tolist())))
    return tuple(people), tuple(moves)
