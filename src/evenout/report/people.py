"""Who enters and who leaves the flagged list, against the base ensemble."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.report.data import Moves, Person, Range

LISTED_PEOPLE = 1000
Namer: TypeAlias = Callable[[int], tuple[str, str | None]]


@dataclass(frozen=True)
class Crossing:
    """The rows that are flagged by one of two scores alone, shape (m,), and their ranks by the second one."""

    rows: IntArray
    ranks: IntArray


def crossing(scores: FloatArray, flagged: BoolArray, base_flagged: BoolArray) -> Crossing:
    """Rows whose flag differs from that of the base ensemble."""
    rows = np.flatnonzero(flagged != base_flagged)
    return Crossing(rows, ranks_of(scores, rows))


def ranks_of(scores: FloatArray, rows: IntArray) -> IntArray:
    """Ranks of some rows, 1 = highest score; equal scores share the best rank.

    >>> ranks_of(np.array([0.2, 0.9, 0.2]), np.array([0, 1, 2])).tolist()
    [2, 1, 2]
    """
    ordered = np.sort(scores)
    return len(scores) - np.searchsorted(ordered, scores[rows], side="right") + 1


def list_moves(
    crossings: Sequence[Crossing],
    base: FloatArray,
    base_flagged: BoolArray,
    name: Namer,
    smallest: int,
) -> tuple[tuple[Person, ...], tuple[Moves, ...]]:
    """One table of the people whose rank changes most when they cross, and for each step who of them crosses.

    Parameters
    ----------
    crossings : sequence of Crossing
        One per step.
    base, base_flagged : arrays of shape (n,)
        The base ensemble's score, and whom it flags.
    name : callable
        Id of a row, and its group if that is to be shown.
    smallest : int
        If fewer people enter, or leave, at a step, they are neither counted nor listed there.
    """
    counts = [_count(c.rows, base_flagged) for c in crossings]
    shown = [_shown(c, base_flagged, count, smallest) for c, count in zip(crossings, counts, strict=True)]
    rows = np.unique(np.concatenate([c.rows for c in shown]))
    base_ranks = ranks_of(base, rows)
    moved = np.zeros(len(rows), dtype=np.intp)
    for c in shown:
        place = np.searchsorted(rows, c.rows)
        moved[place] = np.maximum(moved[place], np.abs(c.ranks - base_ranks[place]))
    most = np.argsort(-moved, kind="stable")[:LISTED_PEOPLE]
    place_of = np.full(len(base), -1, dtype=np.intp)
    place_of[rows[most]] = np.arange(len(most))
    people = []
    for row, rank in zip(rows[most].tolist(), base_ranks[most].tolist(), strict=True):
        identity, group = name(row)
        people.append(Person(identity, rank, bool(base_flagged[row]), group))
    moves = [_moves(c, count, place_of, smallest) for c, count in zip(shown, counts, strict=True)]
    return tuple(people), tuple(moves)


def _count(rows: IntArray, base_flagged: BoolArray) -> tuple[int, int]:
    """How many enter, how many leave."""
    leave = int(base_flagged[rows].sum())
    return len(rows) - leave, leave


def _shown(c: Crossing, base_flagged: BoolArray, count: tuple[int, int], smallest: int) -> Crossing:
    """The rows of each direction that has enough of them."""
    enough = np.array([n >= smallest for n in count])
    keep = enough[base_flagged[c.rows].astype(np.intp)]
    return Crossing(c.rows[keep], c.ranks[keep])


def _moves(c: Crossing, count: tuple[int, int], place_of: IntArray, smallest: int) -> Moves:
    places = place_of[c.rows]
    known = np.flatnonzero(places >= 0)
    order = known[np.argsort(places[known])]
    enter, leave = (_guarded(n, smallest) for n in count)
    return Moves(enter, leave, tuple(places[order].tolist()), tuple(c.ranks[order].tolist()))


def _guarded(count: int, smallest: int) -> Range:
    """Nobody is nobody; a few are "fewer than"."""
    return (1, smallest - 1) if 0 < count < smallest else (count, count)
