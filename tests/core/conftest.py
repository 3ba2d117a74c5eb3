"""Scores with known labels, for the tests of what is learnt from these."""

import numpy as np
import pytest
from scipy.special import expit


def _table(seed, n=2000, k=8):
    """Correlated scores; outliers show in the second column, and a little in the base score."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, k)) + rng.normal(size=(n, 1))
    y = (rng.random(n) < expit(-2.5 + 1.5 * z[:, 1])).astype(float)
    S = expit(z * rng.uniform(0.3, 2.0, k) - 1.0)
    return S, S.mean(axis=1), y


def _some(y, n_labels, seed=0):
    """Labels of randomly drawn rows."""
    labels = np.full(len(y), np.nan)
    rows = np.random.default_rng(seed).permutation(len(y))[:n_labels]
    labels[rows] = y[rows]
    return labels


@pytest.fixture
def table():
    return _table


@pytest.fixture
def some():
    return _some
