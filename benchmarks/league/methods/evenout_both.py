"""evenout: detector weights and resemblance to groups together, at several requests."""

from league.contract import Method, Settings, Task
from league.methods.evenout_weights import requested


def scores(task: Task) -> Settings:
    """The base is that of `league.methods.evenout_weights`."""
    yield from requested(task, "both")


METHOD = Method("evenout, both", "FairOutlierEnsemble, weights and resemblance together", scores, ours=True)
