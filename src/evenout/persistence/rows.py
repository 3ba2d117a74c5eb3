"""Training rows that several parts of a pool hold are kept once, and made anew for the others when a file is read."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenout.core.types import FloatArray
from evenout.detectors.nearness import Nearness, turned
from evenout.detectors.neighbours import Neighbours, distinct_rows
from evenout.detectors.tails import Tails
from evenout.storage.fields import Fields

_PRODUCTS = 5e8  # of numbers; turning rows into other coordinates takes a second beyond


def training_rows(parts: Sequence[Any]) -> tuple[int, FloatArray] | None:
    """The first part that holds the training rows as the pool sees them, and these, (n, d), in their own order."""
    for place, part in enumerate(parts):
        found = part.neighbours if isinstance(part, Nearness) and part.turn is None else part
        if isinstance(found, Neighbours):
            return place, np.repeat(found.locations, found.counts, axis=0)
    return None


def drop_copies(parts: Sequence[Any], entries: list[dict[str, Any]]) -> None:
    """Take what follows from the rows of another part out of the entries of parts, and say of which part."""
    known = training_rows(parts)
    if known is None:
        return
    place, rows = known
    for part, entry in zip(parts, entries, strict=True):
        made = _made(part, rows)
        inner = entry["neighbours"] if isinstance(part, Nearness) and made else entry
        if made and all(np.array_equal(inner[name], values) for name, values in made.items()):
            for name in made:
                del inner[name]
            entry["rows_of"] = place


def with_rows(part: Fields, parts: Sequence[Any], kind: type) -> Fields:
    """The fields of a part with what follows from the rows of another, among those that were read before."""
    if "rows_of" not in part:
        return part
    place = part.whole("rows_of", 0, max(len(parts) - 1, 0))
    known = training_rows([None] * place + list(parts[place : place + 1]))
    part.require(known is not None and issubclass(kind, Tails | Nearness), "rows_of", "names a part without rows")
    assert known is not None
    rows = known[1]
    if issubclass(kind, Tails):
        features = part.integers("features", None, low=0, high=rows.shape[1] - 1)
        return part.joined({"known": np.sort(rows[:, features], axis=0)})
    turn = part.floats("turn", rows.shape[1], None)
    locations, counts = _turned_rows(turn, rows)
    inner = part.fields("neighbours").joined({"locations": locations, "counts": counts})
    return part.joined({"neighbours": inner.entries})


def _made(part: Any, rows: FloatArray) -> dict[str, Any]:
    """What of a part follows from the training rows."""
    if isinstance(part, Tails):
        return {"known": np.sort(rows[:, part.features], axis=0)}
    if isinstance(part, Nearness) and part.turn is not None and rows.size * part.turn.shape[1] <= _PRODUCTS:
        return dict(zip(("locations", "counts"), _turned_rows(part.turn, rows), strict=True))
    return {}


def _turned_rows(turn: FloatArray, rows: FloatArray) -> tuple[FloatArray, Any]:
    """Distinct rows in other coordinates, and their counts."""
    locations, counts, _ = distinct_rows(turned(rows, turn, 1))
    return locations, counts.astype(np.int64)
