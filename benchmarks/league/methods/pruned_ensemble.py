"""An ensemble pruned for fairness, the idea of DEAN-Fair: submodels whose own scores tell the groups apart are dropped.

A submodel is a small network without an output bias that is taught to say 1 of every row, from a few features drawn
for it; it is off by ``|f(x) - mean f|``. The ensemble's score is the mean of the ninth powers of that. A submodel is
unfair by ``|AUC - 1/2|``, the AUC with which its scores tell a group from the others, here on the rows fitted on and
averaged over the groups. Published are 1000 networks with three layers of 256, of which 1, 5 or 10 % are dropped, by
the groups of the judged rows; here 128 with two layers of 32, and larger shares as well.
"""

from typing import Any

import numpy as np
import torch

from evenout.core.types import FloatArray, IntArray
from evenout.metrics import roc_auc
from league.contract import BASE, Method, Settings, Task
from league.networks import Stack, apply, batches, descend, seeded, unit_range

SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
NETWORKS, FEATURES, HIDDEN = 128, 5, (32, 32)
STEPS = 500
POWER = 9


def scores(task: Task) -> Settings:
    """The whole ensemble, and what is left of it after some share was dropped."""
    known, new = submodels(task)
    order = np.argsort(unfairness(known, task.groups), kind="stable")
    yield BASE, (new**POWER).mean(axis=0)
    for share in SHARES:
        kept = order[: max(1, round((1 - share) * len(order)))]
        yield f"{share:.0%} dropped", (new[kept] ** POWER).mean(axis=0)


def submodels(task: Task) -> tuple[FloatArray, FloatArray]:
    """By how much each network is off on the rows fitted on, (networks, n), and on the new ones, (networks, m)."""
    X, new = unit_range(task.X, task.new)
    generator, d = seeded(task.seed), task.X.shape[1]
    bags = torch.stack([torch.randperm(d, generator=generator)[: min(FEATURES, d)] for _ in range(NETWORKS)])
    networks = Stack((bags.shape[1], *HIDDEN, 1), NETWORKS, generator)
    networks.shifts[-1] = torch.zeros_like(networks.shifts[-1])
    step = descend(networks.parameters)
    for rows in batches(len(X), task.steps(STEPS), generator):
        step((networks(_of_bags(X[rows], bags)) - 1).abs().mean(dim=(1, 2)).sum())
    said = [apply(lambda rows: networks(_of_bags(rows, bags))[..., 0], each) for each in (X, new)]
    usual = said[0].mean(axis=1, keepdims=True)
    return np.abs(said[0] - usual), np.abs(said[1] - usual)


def unfairness(found: FloatArray, groups: IntArray) -> FloatArray:
    """How well each submodel's scores tell the groups apart, shape (networks,)."""
    G = int(groups.max()) + 1
    each = [np.abs(roc_auc((groups == g).astype(int), found.T) - 0.5) for g in range(G)]
    return np.mean(each, axis=0)


def _of_bags(X: Any, bags: Any) -> Any:
    """Features of each network, shape (networks, n, features)."""
    return X[:, bags].movedim(0, 1)


METHOD = Method(
    "pruned ensemble",
    "Klüttermann, Katzke and Müller (2025), Unsupervised surrogate anomaly detection, ECML PKDD",
    scores,
)
