"""A small table with three groups in two protected columns, cut into partitions in several ways."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import pytest

from evenout.out_of_core.engines import Engine, Partition


@dataclass(frozen=True)
class Table:
    X: pd.DataFrame
    sensitive: pd.DataFrame

    @property
    def joined(self):
        return pd.concat([self.X, self.sensitive], axis=1)

    def taken(self, rows):
        return Table(self.X.iloc[rows], self.sensitive.iloc[rows])


def _rows(frames, rows):
    return tuple(frame.iloc[rows] for frame in frames)


def local_engine(table, cuts):
    """An engine over the rows between consecutive cuts, or over that many parts of nearly equal size."""
    n = len(table.X)
    if isinstance(cuts, int):
        cuts = np.linspace(0, n, cuts + 1).astype(int)[1:-1]
    pieces = np.split(np.arange(n), cuts)
    load = partial(_rows, (table.X, table.sensitive))
    parts = [Partition(i, f"part-{i}", partial(load, rows)) for i, rows in enumerate(pieces)]
    return Engine(parts, table.X.iloc[:0])


def make_table(n=450, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(n, 4)) * (1 + 0.4 * group)[:, None] + 0.3 * group[:, None]
    X[rng.random(n) < 0.1] = X[0]  # ties
    sensitive = pd.DataFrame({"sex": np.array(["f", "f", "m"])[group], "old": (group > 0).astype(int)})
    return Table(pd.DataFrame(X, columns=list("abcd")), sensitive)


@pytest.fixture(scope="session")
def table():
    return make_table()


@pytest.fixture
def tables():
    return make_table


@pytest.fixture
def engine():
    return local_engine
