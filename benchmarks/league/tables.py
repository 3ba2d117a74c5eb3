"""What the league is played on: bundled tables, simulations, and tables of your own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.datasets import list_datasets, list_scenarios
from evenout.exceptions import InputError
from evenout.groups.read import label_rows
from evenout.tables.encoder import TableEncoder
from halves import load
from league.contract import Task

LEAST_ROWS = 20  # of a group in a half; smaller groups are left out of the table
PROTECTED = ("communities", "german", "credit", "credit_with_other")
KINDS = {
    "protected": "a protected attribute of its own",
    "sampled": "a protected attribute that was sampled, drawn anew for every halving",
    "simulated": "rows drawn anew for every halving",
    "own": "a table of your own",
}


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with known outliers and groups; features are an array, or a frame to be encoded as the first half says."""

    features: Any
    labels: AnyArray
    groups: AnyArray


@dataclass(frozen=True, eq=False)
class Source:
    """A table by name; what it gives may differ from halving to halving. ``own`` holds a table from a file."""

    name: str
    own: Table | None = None

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        if self.own is not None:
            return "own"
        if self.name in list_scenarios():
            return "simulated"
        return "protected" if self.name in PROTECTED else "sampled"

    @property
    def overlapping(self) -> bool:
        """Whether halvings share rows: errors over them are larger than their spread says."""
        return self.kind != "simulated"

    def draw(self, half: int) -> Table:
        """The table of one halving."""
        if self.own is not None:
            return self.own
        X, y, groups = load(self.name, half)
        return Table(X, y, groups)


@dataclass(frozen=True, eq=False)
class Halving:
    """One half to fit on, and one to judge on with its labels and groups."""

    X: FloatArray
    groups: IntArray
    new: FloatArray
    new_groups: IntArray
    labels: IntArray

    def task(self, *, uses_group: bool, seed: int, length: float) -> Task:
        """What a method is shown of it."""
        return Task(self.X, self.groups, self.new, self.new_groups if uses_group else None, seed, length)


def list_tables() -> list[str]:
    """Names of all tables that need no file. Education "other" is left out of credit, as in all benchmarks here."""
    return [*list_datasets(), *list_scenarios()]


def known_source(name: str) -> Source:
    """A bundled table or a simulation."""
    if name not in (*list_tables(), *PROTECTED):
        raise InputError("no table is called {name!r}; those are {known}", name=name, known=", ".join(list_tables()))
    return Source(name)


def own_source(path: str, sensitive: str | None, label: str | None) -> Source:
    """A CSV or Parquet file, read as ``evenout fit`` reads it; columns that only tell rows apart are left out."""
    from evenout.cli.inputs import read_fit_inputs  # needs what the command line needs, and no other table does

    if not sensitive or not label:
        raise InputError("{path} needs --sensitive and --label: the protected columns, and 1 for an outlier", path=path)
    inputs = read_fit_inputs(path, sensitive=[sensitive], label=label, id_column=None, drop=())
    groups = label_rows(inputs.sensitive, len(inputs.sensitive))
    names = np.asarray(groups.labels)[groups.codes]
    used = TableEncoder().fit(inputs.features).columns_used
    return Source(Path(path).name.partition(".")[0], Table(inputs.features[used], inputs.labels, names))


def halve(table: Table, seed: Sequence[int], rows: int) -> Halving:
    """Two halves at random, of ``rows`` rows at most, with the same share of each group."""
    rng = np.random.default_rng(seed)
    kept = np.flatnonzero(_large_enough(table.groups, 2 * rows))
    chosen = rng.permutation(kept)[: 2 * rows]
    _, codes = np.unique(table.groups[chosen].astype(str), return_inverse=True)
    order = np.lexsort((rng.random(len(chosen)), codes))
    fit, judged = chosen[order[0::2]], chosen[order[1::2]]
    X, new = _features(table.features, fit, judged)
    return Halving(X, codes[order[0::2]], new, codes[order[1::2]], table.labels[judged])


def _features(features: Any, fit: IntArray, judged: IntArray) -> tuple[FloatArray, FloatArray]:
    """Rows of numbers of both halves; what columns are, and what fills their gaps, is learnt on the first."""
    if isinstance(features, np.ndarray):
        return np.ascontiguousarray(features[fit]), np.ascontiguousarray(features[judged])
    encoder = TableEncoder(keep=list(features.columns)).fit(features.iloc[fit])
    first, second = (np.asarray(encoder.transform(features.iloc[half]), dtype=float) for half in (fit, judged))
    return first, second


def _large_enough(groups: AnyArray, rows: int) -> AnyArray:
    """Rows of groups that have `LEAST_ROWS` in a half."""
    names, codes, counts = np.unique(groups.astype(str), return_inverse=True, return_counts=True)
    large = counts * min(1.0, rows / len(groups)) >= 2 * LEAST_ROWS
    if large.sum() < 2:
        raise InputError(
            "fewer than two of the {n} groups have {least} rows in a half; nothing can be compared",
            n=len(names), least=LEAST_ROWS,
        )  # fmt: skip
    return large[codes]
