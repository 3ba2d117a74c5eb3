"""What to keep in mind with an audit: few rows, groups left out, what was rounded or sampled, shared rows."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from evenout.auditing.drivers import TEST_ROWS
from evenout.auditing.individual import MAX_ROWS, pair_limit
from evenout.auditing.inputs import AuditInputs
from evenout.auditing.meanings import MEANINGS
from evenout.auditing.result import LeftOut, Measure
from evenout.auditing.summary import Settings
from evenout.auditing.tables import MAX_LEVELS
from evenout.auditing.words import TOO_FEW
from evenout.fitting.words import probable_words

MIN_FLAGGED = 10  # a flag rate that rests on fewer flagged rows is called rough


def with_note(m: Measure, min_group_size: int) -> Measure:
    """The measure with a warning where it rests on few rows."""
    notes = [note for note in (m.note, MEANINGS[m.measure].note) if note]
    if m.n < min_group_size:
        notes.append(f"only {m.n} rows")
    if m.measure == "flag_rate" and round(m.value * m.n) < MIN_FLAGGED:
        notes.append(f"only {round(m.value * m.n)} flagged")
    return replace(m, note="; ".join(notes))


def of_left_out(groups: tuple[LeftOut, ...]) -> list[Measure]:
    """Rows and flagged rows of groups that are too small for anything else."""
    nan = float("nan")
    return [
        Measure(name, group.name, None, float(value), nan, nan, nan, nan, group.rows, TOO_FEW)
        for group in groups
        for name, value in (("left_out_rows", group.rows), ("left_out_flagged", group.flagged))
    ]


def rough_groups(names: Sequence[str], counts: list[int], flagged: list[int]) -> list[str]:
    """Groups whose flag rates rest on few flagged rows, in words."""
    return [
        f"{name!r} ({n:,} rows, {k:,} flagged)"
        for name, n, k in zip(names, counts, flagged, strict=True)
        if k < MIN_FLAGGED
    ]


def notes(inputs: AuditInputs, settings: Settings, tests: Iterable[int], *, gap_found: bool) -> list[str]:
    """What was rounded, sampled or could not be shown; ``tests`` are the numbers that are corrected together."""
    n, found = len(inputs.scores), _soft_notes(inputs)
    levels = len(np.unique(inputs.scores))
    if levels == 1:
        found.append("all scores are equal: there is nothing to compare")
    if levels > MAX_LEVELS and inputs.grouped.whole:
        found.append(f"intervals and tests use the scores rounded to {MAX_LEVELS:,} levels at most")
    if inputs.features is not None:
        limit = pair_limit(len(inputs.names))
        if n > limit:
            found.append(f"individual unfairness: the value is of {min(n, MAX_ROWS):,} rows, the interval of {limit:,}")
        if not gap_found:
            found.append("no gap in mean scores can be told from noise, so no features behind it are listed")
        elif inputs.clusters is not None:
            found.append("features are not tested where rows come in clusters: their intervals say how sure they are")
        elif n > TEST_ROWS:
            found.append(f"tests of single features use {TEST_ROWS:,} rows")
    for asked in tests if inputs.grouped.whole else ():
        least = asked / (1 + settings.n_permutations)
        if least > 1 - settings.confidence:
            enough = int(np.ceil(asked / (1 - settings.confidence)))
            found.append(
                f"{settings.n_permutations} permutations are too few for {asked} tests: no corrected p-value "
                f"can be small; set n_permutations={enough} or more"
            )
    return found


def _soft_notes(inputs: AuditInputs) -> list[str]:
    """What it means that groups share rows, or that rows do not count alike."""
    found = []
    if inputs.grouped.curves:
        named = ", ".join(repr(curve.name) for curve in inputs.grouped.curves)
        found.append(f"bands of {named} overlap: a row between two counts in both, by how near it is")
        found.append("squared gaps between bands are the share of the scores' variance that lies between them")
    if inputs.probable is not None and inputs.probable.sufficient:
        found.append("groups are known by probability, and taken at your word to know all that the score uses")
    elif inputs.probable is not None:
        found.append(probable_words(inputs.probable.bound()))
        found.append("intervals of probable groups hold all that the probabilities leave open, and nothing is tested")
    if inputs.sample.weight is not None:
        found.append("rows count by their weights; counts of rows do not")
    if inputs.labels is not None and inputs.labels.partial:
        known = int((~np.isnan(inputs.labels.values)).sum())
        how = "by chances that are unknown" if inputs.labels.chosen else "each counted by one over its chance"
        found.append(f"{known:,} of {len(inputs.scores):,} rows have a label, {how}")
    return found
