"""FairOD: an autoencoder whose errors are not to tell the group, while rows keep their places within each group.

With ``s_i = |x_i - x'_i|^2`` on features in [0, 1], and ``b_i`` in [0, 1] the scores of the same network without
fairness, from whose weights the fair one starts, each batch has the loss

    alpha mean_ij (x_ij - x'_ij)^2  +  (1 - alpha) sum_g |corr(s, [group = g])|  +  gamma sum_g (1 - NDCG_g)

    NDCG_g = sum_{i in g} (2^b_i - 1) / log2(1 + rank_i)  /  the most that this sum can be
    rank_i = 1 + sum_{k in g, k != i} sigmoid(c (s_k - s_i)),      c = 100 as in the released code

With two groups the sum of correlations is the paper's one, twice. The base is the best of several restarts by its
reconstruction of the rows fitted on, since some end as constants.
"""

from typing import Any

import numpy as np
import torch

from league.contract import BASE, Method, Settings, Task
from league.networks import Stack, apply, batches, descend, seeded, unit_range

ALPHAS, GAMMAS = (0.01, 0.5, 0.9), (0.01, 0.1, 1.0)
HIDDEN = 8
RESTARTS = 8
STEPS = 1500  # of the base, and again of the fair networks
SHARPNESS = 100.0


def scores(task: Task) -> Settings:
    """The base, and nine fair networks that start from it."""
    grid = [(alpha, gamma) for alpha in ALPHAS for gamma in GAMMAS]
    X, new = unit_range(task.X, task.new)
    base = train_base(X, task.steps(STEPS), task.seed)
    yield BASE, apply(lambda rows: errors(base, rows), new)[0]
    fair = train_fair(base, X, torch.from_numpy(task.groups), grid, task.steps(STEPS), task.seed)
    found = apply(lambda rows: errors(fair, rows), new)
    for (alpha, gamma), each in zip(grid, found, strict=True):
        yield f"alpha {alpha:g}, gamma {gamma:g}", each


def errors(network: Stack, X: Any) -> Any:
    """Squared distance of each row to its reconstruction, shape (networks, n)."""
    return ((network(X) - X) ** 2).sum(dim=-1)


def train_base(X: Any, steps: int, seed: int) -> Stack:
    """The autoencoder with the best reconstruction among some restarts."""
    generator, d = seeded(seed), X.shape[1]
    networks = Stack((d, HIDDEN, HIDDEN, HIDDEN, d), RESTARTS, generator)
    step = descend(networks.parameters)
    for rows in batches(len(X), steps, generator):
        step(errors(networks, X[rows]).mean(dim=1).sum() / d)
    return networks.copies(int(apply(lambda rows: errors(networks, rows), X).mean(axis=1).argmin()), 1)


def train_fair(base: Stack, X: Any, groups: Any, grid: list[tuple[float, float]], steps: int, seed: int) -> Stack:
    """One network for each (alpha, gamma)."""
    alpha, gamma = torch.tensor(grid).T
    of_base = apply(lambda rows: errors(base, rows), X)[0]
    b = torch.from_numpy((of_base - of_base.min()) / (np.ptp(of_base) or 1.0)).float()
    networks = base.copies(0, len(grid))
    step = descend(networks.parameters)
    for rows in batches(len(X), steps, seeded(seed + 1)):
        s = errors(networks, X[rows])
        member = torch.nn.functional.one_hot(groups[rows]).T.float()
        loss = (
            alpha * s.mean(dim=1) / X.shape[1]
            + (1 - alpha) * parity(s, member)
            + gamma * infidelity(s, b[rows], member)
        )
        step(loss.sum())
    return networks


def parity(s: Any, member: Any) -> Any:
    """Sum over groups of ``|corr(s, group)|``, shape (networks,); s is (networks, n), member (G, n)."""
    s = s - s.mean(dim=1, keepdim=True)
    member = member - member.mean(dim=1, keepdim=True)
    size = s.norm(dim=1)[:, None] * member.norm(dim=1) + 1e-12
    return ((s @ member.T) / size).abs().sum(dim=1)


def infidelity(s: Any, b: Any, member: Any) -> Any:
    """Sum over groups of 1 - NDCG of the order by s against the gains of b, shape (networks,)."""
    together = member.T @ member - torch.eye(len(b))
    rank = 1 + (torch.sigmoid(SHARPNESS * (s[:, None, :] - s[:, :, None])) * together).sum(dim=2)
    gain = 2**b - 1
    found = (gain / torch.log2(1 + rank)) @ member.T
    best = (gain / torch.log2(1 + _places(b, member))) @ member.T
    return torch.where(best > 0, 1 - found / best.clamp_min(1e-12), 0.0).sum(dim=1)


def _places(b: Any, member: Any) -> Any:
    """Place of each row within its group when they are in the order of b, the largest first, shape (n,)."""
    above = (b[None, :] > b[:, None]) | ((b[None, :] == b[:, None]) & torch.ones(len(b), len(b)).tril(-1).bool())
    return 1 + (above * (member.T @ member)).sum(dim=1)


METHOD = Method("FairOD", "Shekhar, Shah and Akoglu (2021), FairOD: fairness-aware outlier detection, AIES", scores)
