"""The league is no part of the package: its folder is put on the path, and halves of known truth are made for it."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from evenout.datasets import make_biased_outliers
from league.tables import Halving


def half(scenario="variance", rows=600, seed=0, **more):
    """Two halves of a simulation: as many rows in each, drawn apart."""
    parts = [make_biased_outliers(scenario, rows, random_state=seed + i, **more) for i in (0, 1)]
    codes = [np.unique(part.sensitive, return_inverse=True)[1] for part in parts]
    X = [part.X.to_numpy() for part in parts]
    return Halving(X[0], codes[0], X[1], codes[1], parts[1].y.to_numpy())


@pytest.fixture(scope="session")
def halving():
    """Three groups, the later ones varying more in features that say nothing about outliers."""
    return half(n_groups=3, rows=900)


@pytest.fixture(scope="session")
def make_half():
    return half
