"""
An audit with error bars
========================

An auditor often has no model, only a file: one score and one group per row. `audit` measures the gaps between groups
and says which of them are more than noise. The score here comes from scikit-learn's isolation forest, on the card
clients of ``credit``.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import IsolationForest

from evenout import audit
from evenout.datasets import load_dataset

data = load_dataset("credit")
forest = IsolationForest(random_state=0).fit(data.X)
scores = -forest.score_samples(data.X)  # higher = more outlying

# %%
# Group sizes, means and flag rates; gaps between groups; sentences. Labels are optional, and add errors by group.

groups = data.sensitive
measure = partial(audit, scores, sensitive_features=groups, resamples=500)
result = measure(labels=data.y)
print(result)

# %%
# Every figure is a `Measure` with a value, an interval and p-values, by name or as a table.

rates = [result.get("flag_rate", group) for group in result.group_names]
values = np.array([rate.value for rate in rates])
sides = np.abs(np.array([[rate.low, rate.high] for rate in rates]).T - values)
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.errorbar(values, range(len(rates)), xerr=sides, fmt="o", color="#0072B2", capsize=4)
ax.axvline(0.1, color="0.5", linewidth=0.8, linestyle="--")
labels = [f"{rate.group}\n({rate.n:,} clients)" for rate in rates]
ax.set_yticks(range(len(rates)), labels)
ax.margins(y=0.2)
ax.xaxis.set_major_formatter("{x:.0%}")
ax.set_xlabel("share flagged, with its 95 % interval (dashed: of all clients)")
plt.show()

# %%
# The small group has a wide interval: its rate may be the highest by chance. What can be said is in the verdict.

table = result.to_frame().query("group.isna()").round(3)
print(table[["measure", "value", "low", "high", "p_adjusted"]].head(8))

# %%
# May a difference be justified? Given the credit limit, clients are compared with others of a like limit only.

given = measure(given=data.X["LIMIT_BAL"])
for name in ("demographic_parity_corrected", "conditional_parity_corrected"):
    m = given.get(name)
    print(f"{name}: {m.value:.4f} [{m.low:.4f}, {m.high:.4f}]")

# %%
# Less of the gap is left among clients of a like limit, and its interval nearly reaches 0.
