"""evenout: detector weights, at several requests. One fit serves all of them."""

from typing import Literal

from evenout import FairOutlierEnsemble, Groups
from league.contract import BASE, Method, Scorer, Settings, Task

REQUESTS = (0.5, 0.8, 0.9, 0.95)


def scores(task: Task) -> Settings:
    """The base is the average of the default pool."""
    yield from requested(task, "weights")


def requested(task: Task, correction: Literal["weights", "resemblance", "both"]) -> Settings:
    """Base and fair scores by one way of correcting, for each request."""
    model = FairOutlierEnsemble(
        bias_reduction=REQUESTS[0], correction=correction, groups=Groups(min_size=10), random_state=task.seed
    )
    model.fit(task.X, sensitive_features=task.groups)
    yield BASE, model.base_scores(task.new)
    for request in REQUESTS:
        yield f"{request:g}", model.at(bias_reduction=request).outlier_scores(task.new)


def base_of(task: Task) -> Scorer:
    """Score rows by the base score of the default pool, for peers that take any detector."""
    ensemble = FairOutlierEnsemble(alpha=0.0, groups=Groups(min_size=2), random_state=task.seed)
    return lambda X, new: ensemble.fit(X, sensitive_features=task.groups).base_scores(new)


METHOD = Method("evenout", "FairOutlierEnsemble, detector weights", scores, ours=True)
