"""
Each attribute, where crossings are tiny
========================================

Twelve regions, six age classes and two sexes make 144 crossed groups, most of them too small to be measured. The model
leaves those out and evens out the few that are left. Compared each by itself, every attribute has rows enough.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from evenout import FairOutlierEnsemble, Groups, audit
from evenout.exceptions import EvenoutWarning

rng = np.random.default_rng(0)
n = 3500
people = pd.DataFrame(
    {
        "sex": rng.choice(["f", "m"], n),
        "age": rng.choice(["18", "25", "35", "45", "55", "65"], n),
        "region": rng.choice([f"r{i:02}" for i in range(12)], n),
    }
)
X = rng.normal(size=(n, 6))
X[:, 0] *= np.where(people["sex"] == "f", 1.8, 1.0)
X[:, 1] *= np.where(people["region"].isin(["r00", "r01"]), 2.5, 1.0)
X[:, 2] *= np.where(people["age"] == "65", 2.0, 1.0)

# %%
# Crossed, few groups can be compared.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", EvenoutWarning)
    crossed = FairOutlierEnsemble(bias_reduction=0.7, random_state=0)
    crossed.fit(X, sensitive_features=people)
left = sum(crossed.left_out_groups_.values())
print(
    f"{len(crossed.left_out_groups_)} of 144 crossed groups are too small; {left:,} of {n:,} rows are in them"
)

# %%
# Each by itself: what each attribute gets is told.

each = FairOutlierEnsemble(groups=Groups(cross=False), bias_reduction=0.7, random_state=0)
each.fit(X, sensitive_features=people)
for name, bias in each.attribute_bias_.items():
    print(
        f"{name}: bias {bias.before:.4f} before, {bias.after:.4f} after, on unseen rows"
    )

# %%
# Audits of the three scores, attribute by attribute.

scores = {
    "base score": each.target_,
    "crossed": crossed.outlier_scores_,
    "each": each.outlier_scores_,
}
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for place, (label, y) in enumerate(scores.items()):
    gaps = [
        audit(y, sensitive_features=people[name], resamples=0).get(
            "demographic_parity_corrected"
        )
        for name in people
    ]
    value = np.array([gap.value for gap in gaps])
    sides = np.array([[gap.value - gap.low, gap.high - gap.value] for gap in gaps]).T
    at = np.arange(len(gaps)) + 0.2 * (place - 1)
    ax.errorbar(at, value, yerr=sides, fmt="o", label=label, capsize=3)
ax.set_xticks(range(len(people.columns)), list(people.columns))
ax.set_ylabel("squared gap / variance")
ax.legend(loc="upper center")
plt.show()
