"""A population with known P(g | x): three groups with normal features, and a score that depends on them."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

CENTRES = np.array([[0.0, 0.0, 0.0], [1.0, 0.3, 0.0], [0.4, -1.0, 0.5]])
SHARES = np.array([0.5, 0.3, 0.2])


def true_probabilities(X):
    """Bayes' rule for normal features of unit variance."""
    log = np.log(SHARES) - ((X[:, None, :3] - CENTRES) ** 2).sum(axis=2) / 2
    p = np.exp(log - log.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


class Truth(ClassifierMixin, BaseEstimator):
    """A classifier that has nothing to learn."""

    def fit(self, X, y):  # noqa: ARG002
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return true_probabilities(X)


@dataclass(frozen=True)
class Sample:
    X: np.ndarray
    t: np.ndarray
    groups: np.ndarray
    y: np.ndarray  # 1 for true outliers


def draw(n, seed):
    rng = np.random.default_rng(seed)
    groups = rng.choice(3, size=n, p=SHARES)
    X = CENTRES[groups] + rng.normal(size=(n, 3))
    t = score(X)
    labels = rng.random(n) < 1.0 / (1.0 + np.exp(4.0 - t))
    return Sample(X, t, groups, labels.astype(int))


def score(X):
    return np.hypot(X[:, 0], X[:, 1]) + 0.5 * X[:, 0] + 0.3 * X[:, 2] ** 2


@pytest.fixture(scope="session")
def population():
    return draw


@pytest.fixture(scope="session")
def probabilities():
    return true_probabilities


@pytest.fixture
def truth():
    return Truth()
