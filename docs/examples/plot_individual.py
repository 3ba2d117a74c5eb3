"""
Similar people, similar scores
==============================

Individual fairness asks that similar rows of different groups get similar scores. Pairs count by their likeness, which
fades with the distance of their features. In this simulation small groups lie elsewhere in one feature that means
nothing, so even near their neighbours from the large group they look odd.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.preprocessing import StandardScaler

from evenout import FairOutlierEnsemble, Individual
from evenout.datasets import make_biased_outliers
from evenout.metrics import individual_unfairness, roc_auc

data = make_biased_outliers("under_representation", n=2000, random_state=0)
notion = Individual(length_scale=("median", 0.1))
model = FairOutlierEnsemble(
    fairness=notion, bias_reduction=0.6, random_state=0, n_jobs=-1
)
model.fit(data.X, sensitive_features=data.sensitive)
low, high = model.bias_reduction_interval_
print(f"removed on unseen pairs: {model.bias_reduction_:.0%} ({low:.0%} to {high:.0%})")
print(f"that rests on about {model.effective_pairs_:,.0f} pairs of similar rows")

# %%
# For every row of the small group, its nearest row of the large one. Points on the line are pairs that are scored
# alike.

features = StandardScaler().fit_transform(data.X)
small = np.flatnonzero(data.sensitive == "group 2")
large = np.flatnonzero(data.sensitive == "group 1")
partner = large[cdist(features[small], features[large]).argmin(axis=1)]
figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
scores = {"base ensemble": model.target_, "fair ensemble": model.outlier_scores_}
for ax, (name, score) in zip(axes, scores.items(), strict=True):
    unit = (score - score.mean()) / score.std()
    ax.scatter(unit[partner], unit[small], s=16, color="#0072B2", alpha=0.7)
    ends = [unit.min(), np.percentile(unit, 99.5)]
    ax.plot(ends, ends, color="0.4", linewidth=0.8)
    gap = np.mean(unit[small] - unit[partner])
    ax.set(
        title=f"{name}\nmean difference {gap:+.2f} sd",
        xlabel="score of the nearest row in the large group",
    )
axes[0].set_ylabel("score of the row in the small group")
plt.show()

# %%
# Individual unfairness, free of the score's scale, with the same likeness as in the fit; and what detection says.

for name, score in scores.items():
    unfair = individual_unfairness(
        score,
        data.X,
        sensitive_features=data.sensitive,
        scale_free=True,
        length_scale=notion.length_scale,
    )
    print(f"{name}: individual unfairness {unfair:.3f}, AUC {roc_auc(data.y, score):.3f}")
