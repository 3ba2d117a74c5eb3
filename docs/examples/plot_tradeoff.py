"""
The whole trade-off
===================

`FairOutlierEnsemble` chooses one trade-off, and keeps all of them in ``model.path_``, a `TradeoffPath`. Here are the
communities of the paper: 1994 places in the United States, grouped by their largest ethnic group.
"""

import matplotlib.pyplot as plt
import numpy as np

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset
from evenout.metrics import flag_rate_ratio, roc_auc

data = load_dataset("communities")
model = FairOutlierEnsemble(random_state=0, n_jobs=-1).fit(
    data.X, sensitive_features=data.sensitive
)
path = model.path_

# %%
# One row per alpha: misfit f1, raw bias f2, scale-free bias on training rows and, with a 95 % interval, on unseen rows.

alphas = np.array([0.0, 1e2, 1e3, 1e4, 1e5])
columns = [
    "alpha",
    "f1",
    "f2",
    "bias_training",
    "bias_unseen",
    "low_unseen",
    "high_unseen",
]
print(path.table(alphas)[columns].round(3))

# %%
# Bias against alpha, on the rows that everything was learnt on and on rows that nothing in the model has seen; the band
# is the 95 % interval. :doc:`/choosing` shows data where the two differ more.

grid = path.grid()
figure, ax = plt.subplots(layout="constrained")
ax.plot(grid, path.bias(grid), color="#0072B2", label="unseen rows (cross-fitted)")
ax.fill_between(grid, *path.interval(grid), color="#0072B2", alpha=0.15)
ax.plot(grid, path.bias(grid, "training"), "--", color="#D55E00", label="training rows")
ax.axhline(path.target_bias(), color="0.4", label="base score, unseen rows")
chosen = (model.alpha_, float(path.bias(model.alpha_)))
ax.plot(*chosen, "o", color="#0072B2")
ax.annotate("80 % asked", chosen, (8, 8), textcoords="offset points")
ax.set(xscale="log", xlabel="alpha", ylabel="group bias, scale-free")
ax.legend()
plt.show()

# %%
# What people feel is the flag, and what the user pays is detection. Scores at any alpha are one product away: the base
# score is the last column of `contributions`, and what the detectors add goes with their weights.

parts = model.contributions(data.X)
detectors, base = parts[:, :-1] / path.mixture(model.alpha_).weights, parts[:, -1:]
added = np.array([path.mixture(alpha).weights for alpha in grid])
scores = base + detectors @ added.T
ratios = [flag_rate_ratio(score, sensitive_features=data.sensitive) for score in scores.T]
aucs = [roc_auc(data.y, score) for score in scores.T]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
axes[0].plot(path.reduction(grid), ratios, color="#009E73")
before = flag_rate_ratio(model.target_, sensitive_features=data.sensitive)
axes[0].axhline(before, color="0.5", linestyle="--")
axes[0].set(ylabel="lowest / highest flag rate", ylim=(0, 1), title="dashed: base score")
axes[1].plot(path.reduction(grid), aucs, color="#CC79A7")
axes[1].axhline(roc_auc(data.y, model.target_), color="0.5", linestyle="--")
axes[1].set(ylabel="AUC", title="dashed: base score")
for ax in axes:
    ax.set_xlabel("share of the bias removed, unseen rows")
    ax.xaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# Here the group and the label go together, so a score that is blind to the group pays for fairness. Ask for the ratio
# of flag rates itself if that is what counts; ``alpha`` is then found for it.

asked = FairOutlierEnsemble(flag_rate_ratio=0.4, random_state=0).fit(
    data.X, sensitive_features=data.sensitive
)
print(f"alpha {asked.alpha_:.3g}, bias removed {asked.bias_reduction_:.0%}")
