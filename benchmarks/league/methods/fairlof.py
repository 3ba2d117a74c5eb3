"""FairLOF in both directions: the printed sign, and the one that evens the groups out on the rows fitted on."""

from typing import Any

from sklearn.preprocessing import StandardScaler

from evenout import FairLOF
from league.contract import BASE, Method, Settings, Task

NEIGHBOURS = (20, 40)
STRENGTHS = ("auto", 1.0)


def scores(task: Task) -> Settings:
    """The base is plain LOF with the first number of neighbours."""
    scaler = StandardScaler().fit(task.X)
    known, new = scaler.transform(task.X), scaler.transform(task.new)

    def fair(k: int, **settings: Any) -> FairLOF:
        return FairLOF(min(k, len(known) - 1), **settings).fit(known, sensitive_features=task.groups)

    yield BASE, fair(NEIGHBOURS[0], lambda_=0.0).outlier_scores(new, sensitive_features=task.new_groups)
    for k in NEIGHBOURS:
        for strength in STRENGTHS:
            for direction in ("even", "printed"):
                model = fair(k, lambda_=strength, direction=direction)
                named = f"k {k}, lambda {strength}, {direction}"
                yield named, model.outlier_scores(new, sensitive_features=task.new_groups)


METHOD = Method("FairLOF", "P and Abraham (2020), Fair outlier detection, WISE", scores, uses_group=True)
