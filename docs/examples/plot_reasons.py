"""
Why this one?
=============

A score that flags people must be able to say why. `explain` splits each score over the columns of the table, before and
after fairness. The rows are the communities of ``communities``, the groups their largest ethnic groups.
"""

import matplotlib.pyplot as plt
import numpy as np

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset

data = load_dataset("communities")
model = FairOutlierEnsemble(random_state=0)
model.fit(data.X, sensitive_features=data.sensitive)

# %%
# The three most unusual rows, each with three reasons. A reason says how the value compares with all rows, and with
# those most similar; whether fairness changed its weight; and whether it tells the group.

top = np.argsort(-model.outlier_scores_)[:3]
found = model.explain(data.X.iloc[top], rows="communities")
for row in range(3):
    print("\n".join(found.lines(row)))

# %%
# All parts of one row. They add up to its score less that of the typical row among those most like it.

found.plot(1)

# %%
# Held against one typical row, parts add up over rows too: these are the columns behind the gap between two groups.

some, groups = data.X.iloc[::4], data.sensitive.iloc[::4]
gaps = model.explain(some, baseline="typical").influence(groups)
gap = gaps.loc["hispanic"] - gaps.loc["white"]
most = gap.loc[gap["base"].abs().nlargest(10).index][::-1]
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
place = np.arange(len(most))
ax.barh(place + 0.2, most["base"], 0.38, color="#999999", label="before fairness")
ax.barh(place - 0.2, most["fair"], 0.38, color="#0072B2", label="after fairness")
ax.set_yticks(place, most.index)
ax.set(xlabel="share of the gap between 'hispanic' and 'white' in the mean score")
ax.legend(frameon=False)
plt.show()
