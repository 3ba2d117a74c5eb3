"""evenout: the base score corrected by how much a row resembles each group, at several requests."""

from league.contract import Method, Settings, Task
from league.methods.evenout_weights import requested


def scores(task: Task) -> Settings:
    """The base is that of `league.methods.evenout_weights`."""
    yield from requested(task, "resemblance")


METHOD = Method("evenout, resemblance", "FairOutlierEnsemble, corrected by resemblance to groups", scores, ours=True)
