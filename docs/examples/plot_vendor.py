"""
A vendor's score, repaired without the group
============================================

A lender buys a score from a vendor and has nothing but its numbers. People with a graduate degree are flagged more
often than others. `BlindRepair` takes off how much a client *looks like* each group, judged by the client's features
and score, and needs no group when clients are scored. Where the law sees that as using the group, do not use it; see
:doc:`/blind-or-aware`.

Here the vendor is an isolation forest, fitted on card clients that we never see.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.model_selection import train_test_split

from evenout import BlindRepair, audit
from evenout.datasets import load_dataset
from evenout.metrics import roc_auc

data = load_dataset("credit")
kept = data.sensitive != "other"  # too few to be judged
X, groups, y = data.X[kept], data.sensitive[kept], data.y[kept]
theirs, X, _, groups, _, y = train_test_split(
    X, groups, y, train_size=0.3, random_state=0
)
vendor = IsolationForest(random_state=0).fit(theirs)
score = -vendor.score_samples(X)  # higher = more outlying

# %%
# The repair learns on old clients, whose education is known. Asked is that no group is flagged less than 0.8 times
# as often as another.

X_old, X_new, old, new, a_old, a_new, _, y_new = train_test_split(
    X, score, groups, y, train_size=0.6, stratify=groups, random_state=0
)
repair = BlindRepair(flag_rate_ratio=0.8, random_state=0)
repair.fit(old, X_old, sensitive_features=a_old)
low, high = repair.flag_rate_ratio_interval_
print(
    f"ratio on clients it has not seen: {repair.flag_rate_ratio_:.2f} "
    f"(95 % interval {low:.2f} to {high:.2f})"
)

# %%
# What was learnt is one number for each group, beside a classifier of the groups. The features tell little of the
# education of a client, so nobody is treated as a member of a group for sure.

for group in repair.group_names_:
    print(
        f"{group:16} lambda {repair.lambda_[group]:+.4f}   "
        f"told by the features: {repair.group_known_[group]:.0%}"
    )

# %%
# New clients are scored without their education, and audited with it.

fair = repair.transform(new, X_new)
results = {
    name: audit(s, sensitive_features=a_new, resamples=300)
    for name, s in {"vendor": new, "repaired": fair}.items()
}
for name, result in results.items():
    ratio = result.get("flag_rate_ratio")
    scores = new if name == "vendor" else fair
    print(
        f"{name:9} flag-rate ratio {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), "
        f"AUC {roc_auc(y_new, scores):.3f}"
    )

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
colours = ("#D55E00", "#0072B2")
for shift, colour, (name, result) in zip(
    (0.12, -0.12), colours, results.items(), strict=True
):
    rates = [result.get("flag_rate", group) for group in result.group_names]
    values = np.array([rate.value for rate in rates])
    sides = np.abs(np.array([[rate.low, rate.high] for rate in rates]).T - values)
    places = np.arange(len(rates)) + shift
    ax.errorbar(values, places, xerr=sides, fmt="o", color=colour, capsize=3, label=name)
ax.set_yticks(range(len(rates)), result.group_names)
ax.margins(y=0.25)
ax.xaxis.set_major_formatter("{x:.0%}")
ax.set_xlabel("new clients flagged, with the 95 % interval")
ax.legend()
plt.show()

# %%
# The price. The rule flags the clients of largest total score that these rates allow. Another rule would keep more
# of the vendor's list, and fill it up with clients whose score is ordinary.

price = repair.flag_price_
print(
    f"list kept {price['list_kept']:.0%}, at most {price['most_list_kept']:.0%}\n"
    f"mean vendor score of the flagged: {price['mean_score_before']:.3f} before, "
    f"{price['mean_score']:.3f} repaired, {price['mean_score_most_kept']:.3f} where most is kept"
)
