"""evenout: the base score repaired by how much a row resembles each group, at several requests."""

import numpy as np

from evenout import FairOutlierEnsemble
from evenout.blind import BlindRepair
from evenout.core.folds import N_FOLDS
from evenout.core.types import FloatArray
from league.contract import BASE, Method, Settings, Task

REQUESTS = (0.5, 0.8, 0.9, 0.95)


def scores(task: Task) -> Settings:
    """The base is the average of the default pool, as for `league.methods.evenout_weights`."""
    base = _pool(task, np.ones(len(task.X), dtype=bool))
    new = base.base_scores(task.new)
    yield BASE, new
    fitted = _unseen(task)
    for request in REQUESTS:
        repair = BlindRepair(bias_reduction=request, min_group_size=10, random_state=task.seed)
        repair.fit(fitted, task.X, sensitive_features=task.groups)
        yield f"{request:g}", repair.transform(new, task.new)


def _pool(task: Task, rows: FloatArray) -> FairOutlierEnsemble:
    model = FairOutlierEnsemble(alpha=0.0, min_group_size=2, random_state=task.seed)
    return model.fit(task.X[rows], sensitive_features=task.groups[rows])


def _unseen(task: Task) -> FloatArray:
    """Scores of the fitted rows as new rows would get them: each by a pool that has not seen it."""
    folds = np.random.default_rng(task.seed).permutation(len(task.X)) % N_FOLDS
    found = np.empty(len(task.X))
    for fold in range(N_FOLDS):
        found[folds == fold] = _pool(task, folds != fold).base_scores(task.X[folds == fold])
    return found


METHOD = Method("evenout by resemblance", "BlindRepair after the default pool", scores, ours=True)
