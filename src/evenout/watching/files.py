"""The state of a watch in one file: settings, reference and the sums of each batch, and no row of any table.

Five numbers per batch and group are kept, so ten years of weekly batches in five groups take some 300 kB. The file is
plain data in the format of models; a kill at any moment leaves the old file or the new one.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import evenout
from evenout.core.exceptions import InputError
from evenout.storage.archive import ModelFileError, plain, read_plain, write_plain
from evenout.storage.fields import Fields
from evenout.storage.output import atomic_file
from evenout.watching.findings import Alarm
from evenout.watching.ledger import BatchSums
from evenout.watching.reference import KNOTS, Reference

if TYPE_CHECKING:
    from evenout.watching.monitor import FairnessMonitor

FORMAT = 1
_MOST = 2**53  # whole numbers up to here are exact in sums
_SUMS = ("counts", "ranks", "flagged", "rank_spread", "flag_spread")


def save_monitor(monitor: "FairnessMonitor", path: Path) -> None:
    """Write a watch that has begun."""
    if monitor.reference is None:
        raise InputError("the watch has not begun, so there is nothing to save; call start() or update() first")
    batches, reference = monitor.findings.ledger.batches, monitor.reference
    data = {
        "watch": FORMAT,
        "evenout": evenout.__version__,
        "settings": asdict(monitor.settings),
        "reference": {**vars(reference), "counts": reference.counts.astype(np.int64)},
        "names": [batch.name for batch in batches],
        "places": np.array([batch.place for batch in batches], dtype=np.int64),
        "sums": np.array([[getattr(batch, name) for name in _SUMS] for batch in batches]).reshape(
            len(batches), len(_SUMS), len(reference.labels)
        ),
        "others": [dict(batch.others) for batch in batches],
        "alarms": [asdict(alarm) for alarm in monitor.alarms],
    }
    with atomic_file(path) as file:
        write_plain(plain(data), file)


def load_monitor(path: Path) -> "FairnessMonitor":
    """Read a watch."""
    try:
        return _restore(Fields(read_plain(path), "watch"))
    except ModelFileError as error:
        words = str(error).replace("model file", "file of a watch").replace("model", "watch")
        raise ModelFileError(f"{path} cannot be loaded: {words}") from None


def _restore(data: Fields) -> "FairnessMonitor":
    from evenout.watching.monitor import FairnessMonitor

    data.require("watch" in data, "watch", "is missing: it is no watch")
    data.require(data.whole("watch", 1, 2**31) <= FORMAT, "watch", "is of a later version: update evenout")
    reference = _reference(data.fields("reference"))
    settings, G = data.fields("settings"), len(reference.labels)
    try:
        given = {name: settings.raw(name) for name in settings.names()}
        monitor = FairnessMonitor(**given)
    except (TypeError, ValueError):
        raise ModelFileError("its settings are not allowed") from None
    names = data.items("names")
    data.require(all(isinstance(n, str) for n in names) and len({*names}) == len(names), "names", "is no list of names")
    B, others = len(names), data.parts("others")
    places = data.integers("places", B, low=1, high=2**31)
    sums = data.floats("sums", B, len(_SUMS), G)
    data.require(len(others) == B, "others", "has the wrong length")
    n, ranks, flagged, *spreads = np.moveaxis(sums, 1, 0)
    sound = (n >= 0) & (n <= _MOST) & (ranks >= 0) & (ranks <= n) & (flagged >= 0) & (flagged <= n)
    sound &= np.all([(spread >= 0) & (spread <= n) for spread in spreads], axis=0)
    data.require(sound.all(), "sums", "are those of no rows")
    monitor.reference = reference
    for b, name in enumerate(names):
        rest = {key: others[b].whole(key, 0, _MOST) for key in others[b].names()}
        columns = dict(zip(_SUMS, sums[b], strict=True))
        monitor._batches[name] = BatchSums(name, int(places[b]), others=rest, **columns)
    monitor.alarms = tuple(_alarm(item) for item in data.parts("alarms"))
    return monitor


def _reference(data: Fields) -> Reference:
    knots, labels = data.floats("knots", None), data.texts("labels")
    data.require(0 < len(knots) <= KNOTS and (np.diff(knots) >= 0).all(), "knots", "are not in order")
    data.require(len(labels) >= 2 and len({*labels}) == len(labels), "labels", "are no groups")
    flagged = data.number("flagged")
    data.require(0 <= flagged <= 1, "flagged", "is no share")
    counts = data.integers("counts", len(labels), low=0, high=_MOST)
    data.require((counts > 0).all(), "counts", "are those of no rows")
    rows, threshold, name = data.whole("rows", 1, _MOST), data.number("threshold"), data.text("name")
    return Reference(knots, rows, threshold, flagged, labels, counts, name)


def _alarm(data: Fields) -> Alarm:
    texts = {field.name: data.text(field.name) for field in fields(Alarm) if field.type is str}
    data.require(texts["promise"] in ("ranks", "flags"), "promise", "is of no known kind")
    data.require(texts["direction"] in ("higher", "lower"), "direction", "is of no known kind")
    return Alarm(**texts, low=data.number("low"), high=data.number("high"))
