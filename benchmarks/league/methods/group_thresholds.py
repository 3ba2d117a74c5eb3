"""A threshold for each group, at every flag rate: the order of rows is by their place within their own group."""

from evenout import Groups, ScoreRepair
from evenout.core.types import FloatArray
from league.contract import BASE, Method, Settings, Task
from league.methods.plain_forest import forest_scores

STRENGTHS = (0.5, 1.0)


def scores(task: Task) -> Settings:
    """Repair in part and in full; in full, equal shares of all groups are above any threshold."""
    fitted = forest_scores(task.X, task.X, task.seed)
    base: FloatArray = forest_scores(task.X, task.new, task.seed)
    yield BASE, base
    for strength in STRENGTHS:
        repair = ScoreRepair(strength=strength, groups=Groups(min_size=2)).fit(fitted, sensitive_features=task.groups)
        yield f"strength {strength:g}", repair.transform(base, sensitive_features=task.new_groups)


METHOD = Method(
    "thresholds per group",
    "common practice; Feldman et al. (2015), Certifying and removing disparate impact; after an isolation forest",
    scores,
    uses_group=True,
)
