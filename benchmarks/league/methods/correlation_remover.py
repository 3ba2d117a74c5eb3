"""fairlearn's CorrelationRemover before an isolation forest."""

from collections.abc import Callable

import numpy as np
from fairlearn.preprocessing import CorrelationRemover
from sklearn.preprocessing import StandardScaler

from evenout.core.types import FloatArray, IntArray
from league.contract import BASE, Method, Scorer, Settings, Task
from league.methods.plain_forest import forest_of

ALPHAS = (0.5, 0.9, 1.0)


def scores(task: Task, detector: Callable[[Task], Scorer] = forest_of) -> Settings:
    """Detectors on features from which the linear share of the groups is taken off, in part and in full."""
    assert task.new_groups is not None
    score = detector(task)
    yield BASE, score(task.X, task.new)
    scaler = StandardScaler().fit(task.X)
    known, new = (
        np.column_stack([indicators(groups, task.n_groups), scaler.transform(X)])
        for X, groups in ((task.X, task.groups), (task.new, task.new_groups))
    )
    for alpha in ALPHAS:
        remover = CorrelationRemover(sensitive_feature_ids=list(range(task.n_groups - 1)), alpha=alpha).fit(known)
        yield f"alpha {alpha:g}", score(remover.transform(known), remover.transform(new))


def indicators(groups: IntArray, n_groups: int) -> FloatArray:
    """One column for each group but the first, shape (n, G - 1)."""
    return (groups[:, None] == np.arange(1, n_groups)).astype(float)


METHOD = Method(
    "correlation remover",
    "fairlearn (Weerts et al. 2023), preprocessing.CorrelationRemover; before an isolation forest",
    scores,
    uses_group=True,
)
