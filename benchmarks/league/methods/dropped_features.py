"""An isolation forest without the features that tell the group best."""

import numpy as np

from evenout.core.types import FloatArray, IntArray
from league.contract import BASE, Method, Settings, Task
from league.methods.plain_forest import forest_scores

SHARES = (0.1, 0.25, 0.5, 0.75)


def telling(X: FloatArray, groups: IntArray) -> FloatArray:
    """How well each feature tells the group: the share of its variance that is between groups, shape (d,)."""
    G = int(groups.max()) + 1
    counts = np.bincount(groups, minlength=G)
    means = np.stack([X[groups == g].mean(axis=0) for g in range(G)])
    between = counts @ (means - X.mean(axis=0)) ** 2 / len(X)
    variance = X.var(axis=0)
    return np.where(variance > 0, between / np.where(variance > 0, variance, 1.0), 0.0)


def scores(task: Task) -> Settings:
    """Forests on the features that are left when some share is dropped, the most telling first; one always stays."""
    yield BASE, forest_scores(task.X, task.new, task.seed)
    order = np.argsort(telling(task.X, task.groups), kind="stable")
    for share in SHARES:
        kept = np.sort(order[: max(1, round((1 - share) * len(order)))])
        yield f"{share:.0%} dropped", forest_scores(task.X[:, kept], task.new[:, kept], task.seed)


METHOD = Method("features dropped", "common practice; before an isolation forest", scores)
