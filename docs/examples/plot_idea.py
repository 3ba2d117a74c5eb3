"""
The idea in three pictures
==========================

An outlier detector flags what is unusual. If a group of people varies more than others in something that has nothing
to do with what is looked for, its people are unusual too, and are flagged for it. Here is such a case, made on
purpose, so that the truth is known: outliers are outliers in the four *informative* features; the second group
merely varies more in the four *nuisance* features.
"""

import matplotlib.pyplot as plt
import numpy as np

from evenout import FairOutlierEnsemble
from evenout.datasets import make_biased_outliers
from evenout.displays import GroupScoresDisplay, TradeoffDisplay
from evenout.metrics import flag_rates, roc_auc

data = make_biased_outliers("variance", n=2000, random_state=0)
model = FairOutlierEnsemble("diverse", random_state=0, n_jobs=-1)
model.fit(data.X, sensitive_features=data.sensitive)

# %%
# Who is flagged
# --------------
# Left: the base ensemble, an average of detectors that knows nothing of groups. It flags far from the centre in *any*
# direction, and that is where the second group lies. Right: the same detectors with fair weights. Flags have moved
# towards the direction that matters.

scores = {"base ensemble": model.target_, "fair ensemble": model.outlier_scores_}
x, y = data.X["informative_1"].to_numpy(), data.X["nuisance_1"].to_numpy()
figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
for ax, (name, score) in zip(axes, scores.items(), strict=True):
    flagged = score > np.percentile(score, 90)
    for group, colour in {"group 1": "#0072B2", "group 2": "#D55E00"}.items():
        rows = np.asarray(data.sensitive == group)
        others, found = rows & ~flagged, rows & flagged
        ax.scatter(x[others], y[others], s=3, color=colour, alpha=0.18)
        label = f"{group}: {flagged[rows].mean():.0%} flagged"
        ax.scatter(x[found], y[found], s=18, color=colour, label=label)
    ax.set(title=name, xlabel="an informative feature")
    ax.legend(loc="upper left", markerscale=1.4)
axes[0].set_ylabel("a nuisance feature")
plt.show()

# %%
# At every threshold
# ------------------
# The share of each group that lies above a score. Where the curves lie on each other, the groups are flagged alike.
# They come closer, but one number, the mean score, was evened out, not the whole distribution.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
for ax, (name, score) in zip(axes, scores.items(), strict=True):
    GroupScoresDisplay.from_scores(score, sensitive_features=data.sensitive, ax=ax)
    ax.set_title(name)
plt.show()

# %%
# What it costs
# -------------
# Every point of the curve is one trade-off: down is fairer, right is further away from the base score. All of them
# come from one factorisation. The dot is where 80 % of the bias is gone *on rows that nothing in the model has seen*;
# the band is the 95 % interval of what is left there.

TradeoffDisplay.from_estimator(model)
plt.show()

# %%
# In numbers: the gap shrinks, and detection gets better, because this gap was no signal.

for name, score in scores.items():
    rates = flag_rates(score, sensitive_features=data.sensitive)
    shown = ", ".join(f"{group} {rate:.0%}" for group, rate in rates.items())
    print(f"{name}: flagged {shown}; AUC {roc_auc(data.y, score):.2f}")
