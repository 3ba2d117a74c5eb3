"""
An age is a number
==================

Many laws protect age, and age is no group. Cut into young and old it may look even where it is not: here the young and
the old are both scored higher than people in their forties, so that the two halves have the same mean. Overlapping
bands at the quantiles see it, and a curve shows it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from evenout import AuditResult, FairOutlierEnsemble, Groups, audit

rng = np.random.default_rng(0)
n = 6000
people = pd.DataFrame({"age": rng.uniform(20, 70, n)})
X = rng.normal(size=(n, 5))
X[:, 0] *= 1 + ((people["age"] - 45) / 25) ** 2
X[:, 1] *= 1 + ((people["age"] - 45) / 25) ** 2

# %%
# A number: the bias is the share of the score's variance between bands.

model = FairOutlierEnsemble(
    groups=Groups(continuous=("age",)), bias_reduction=0.7, random_state=0
)
model.fit(X, sensitive_features=people)
print("a gap between the bands:", model.gap_detected_)
print(f"gone on unseen rows: {model.bias_reduction_:.0%}, said with", end=" ")
print("{:.0%} to {:.0%}".format(*model.bias_reduction_interval_))

# %%
# Two halves of the same base score, by an audit: nothing to be seen.

halves = np.where(people["age"] < 45, "under 45", "45 and over")
result = audit(model.target_, sensitive_features=halves, resamples=200)
print(result.verdict[0])

# %%
# Mean score and flag rate against age, with pointwise intervals, from audits of both scores.

scores = {"base score": model.target_, "fair score": model.outlier_scores_}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, color in zip(scores, ("0.5", "#0072B2"), strict=True):
    found = audit(
        scores[name],
        sensitive_features=people,
        groups=Groups(continuous=("age",)),
        resamples=0,
    )
    assert isinstance(found, AuditResult)  # one audit, not one of each column
    curve = found.curves[0].to_frame()
    for ax, what in zip(axes, ("mean_score", "flag_rate"), strict=True):
        ax.plot(curve.index, curve[what], color=color, label=name)
        ax.fill_between(
            curve.index,
            curve[f"{what}_low"],
            curve[f"{what}_high"],
            color=color,
            alpha=0.2,
        )
axes[0].set_ylabel("mean score")
axes[1].set_ylabel("share flagged")
axes[1].yaxis.set_major_formatter("{x:.0%}")
for ax in axes:
    ax.set_xlabel("age")
axes[0].legend()
plt.show()
