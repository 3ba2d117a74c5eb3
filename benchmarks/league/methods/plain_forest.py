"""A plain isolation forest: what it costs to do nothing."""

import numpy as np
from sklearn.ensemble import IsolationForest

from evenout.core.types import FloatArray
from league.contract import BASE, Method, Scorer, Settings, Task


def forest_scores(X: FloatArray, new: FloatArray, seed: int) -> FloatArray:
    """Scores of new rows by scikit-learn's forest as its users find it, shape (m,)."""
    forest = IsolationForest(random_state=seed).fit(np.asarray(X))
    return -forest.score_samples(np.asarray(new))


def forest_of(task: Task) -> Scorer:
    """Score rows by a forest of the half to learn from."""
    return lambda X, new: forest_scores(X, new, task.seed)


def scores(task: Task) -> Settings:
    """The forest alone."""
    yield BASE, forest_scores(task.X, task.new, task.seed)


METHOD = Method("isolation forest", "Liu, Ting and Zhou (2008), Isolation forest; scikit-learn's", scores)
