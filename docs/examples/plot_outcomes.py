"""
People who are flagged wrongly
==============================

Where one group really has more outliers, equal mean scores are bought by scoring its real outliers lower, or innocent
people of the other group higher. With known outcomes something else can be asked for: that people who are known to be
innocent score alike, whatever their group. Half of the outcomes are known here.
"""

import matplotlib.pyplot as plt
import numpy as np

from evenout import FairOutlierEnsemble, audit

rng = np.random.default_rng(0)
n = 6000
group = rng.choice(["a", "b"], n)
fraud = rng.random(n) < np.where(group == "b", 0.2, 0.04)
X = rng.normal(size=(n, 6)) * np.where(fraud, 2.5, 1.0)[:, None]
X[:, 5] = rng.normal(size=n) * np.where(
    group == "b", 1.8, 1.0
)  # says nothing about fraud
known = np.where(rng.random(n) < 0.5, fraud.astype(float), np.nan)

# %%
# Parity, and equal false alarms.

parity = FairOutlierEnsemble(random_state=0).fit(X, sensitive_features=group)
alarms = FairOutlierEnsemble(fairness="equal_false_alarms", random_state=0)
alarms.fit(X, sensitive_features=group, labels=known)

# %%
# Judged on all outcomes, of which half were known to nobody.

scores = {
    "base score": alarms.target_,
    "parity": parity.outlier_scores_,
    "equal false alarms": alarms.outlier_scores_,
}
innocent, guilty = {}, {}
for name, y in scores.items():
    z = (y - y.mean()) / y.std()
    innocent[name] = [z[(group == g) & ~fraud].mean() for g in "ab"]
    result = audit(y, sensitive_features=group, labels=fraud, resamples=200)
    guilty[name] = [result.get("true_positive_rate", g).value for g in "ab"]
    false = [result.get("false_positive_rate", g).value for g in "ab"]
    auc = [result.get("auc", g).value for g in "ab"]
    print(
        f"{name}: AUC in a {auc[0]:.3f}, in b {auc[1]:.3f}; innocent flagged {false[0]:.1%} and {false[1]:.1%}"
    )

# %%
# Parity scores innocent people of ``a`` above innocent people of ``b``, to make up for the frauds of ``b``.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for place, g in enumerate("ab"):
    at = np.arange(3) + 0.35 * (place - 0.5)
    axes[0].bar(
        at, [innocent[name][place] for name in scores], width=0.33, label=f"group {g}"
    )
    axes[1].bar(at, [guilty[name][place] for name in scores], width=0.33)
axes[0].set_ylabel("mean score of the innocent")
axes[1].set_ylabel("known frauds that are flagged")
axes[1].yaxis.set_major_formatter("{x:.0%}")
for ax in axes:
    ax.set_xticks(range(3), list(scores))
axes[0].legend()
plt.show()
