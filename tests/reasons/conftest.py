"""Small tables whose rows stand out for known reasons, and the literal formula of Shapley values."""

from functools import cache
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble


def _shapley(value, p):
    """The mean over all orders of what a feature adds when it enters: ``value`` of a set of features, p! orders."""
    parts = np.zeros(p)
    orders = list(permutations(range(p)))
    for order in orders:
        before = frozenset()
        for j in order:
            parts[j] += value(before | {j}) - value(before)
            before = before | {j}
    return parts / len(orders)


def _mixture_value(score, row, typical, player):
    """The score of the mixture that takes some features from the row; ``score`` of rows (1, d)."""

    @cache
    def value(features):
        taken = np.isin(player, list(features))
        return float(score(np.where(taken, row, typical)[None])[0])

    return value


@pytest.fixture(scope="session")
def shapley():
    return _shapley


@pytest.fixture(scope="session")
def mixture_value():
    return _mixture_value


@pytest.fixture(scope="session")
def table():
    """Rows of five numbers, two of which hang together, and two groups; the first rows stand out in one of them."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 5))
    X[:, 1] = X[:, 0] + 0.1 * rng.normal(size=240)
    X[:3, 2] += 9.0
    X[:, 4] = rng.integers(0, 3, size=240)
    groups = np.where(rng.random(240) < 1 / (1 + np.exp(-2 * X[:, 3])), "a", "b")
    return pd.DataFrame(X, columns=["one", "two", "three", "four", "five"]), groups


@pytest.fixture(scope="session")
def model(table):
    X, groups = table
    return FairOutlierEnsemble(alpha=100.0, random_state=0).fit(X, sensitive_features=groups)


@pytest.fixture(scope="session")
def new(table):
    """Rows that are no training rows, every second one far out."""
    rows = table[0].iloc[:12].copy()
    rows.iloc[:, :4] += 0.01
    rows.iloc[::2, 3] += 4.0
    return rows
