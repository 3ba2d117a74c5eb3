"""
Is it still fair? Two batches
=============================

A model that was even in May need not be in June: people change, and so do measurements. Audit each batch, and hold the
later one against the earlier. In this simulation the second group moves further away in the features that mean
nothing, once not at all and once by much; the model stays as it is.
"""

import matplotlib.pyplot as plt
import numpy as np

from evenout import FairOutlierEnsemble, audit
from evenout.auditing import AuditResult
from evenout.datasets import Dataset, make_biased_outliers

may = make_biased_outliers("shift", n=6000, strength=0.4, random_state=0)
model = FairOutlierEnsemble("diverse", standardize=False, random_state=0, n_jobs=-1)
model.fit(may.X, sensitive_features=may.sensitive)


def audited(batch: Dataset) -> AuditResult:
    """Measure a batch with the model as it is."""
    return audit(model.outlier_scores(batch.X), sensitive_features=batch.sensitive)


june = make_biased_outliers("shift", n=3000, strength=0.4, random_state=2)
july = make_biased_outliers("shift", n=3000, strength=1.0, random_state=1)
audits = {"May": audited(may), "June": audited(june), "July": audited(july)}

# %%
# June: new people, the same world. Nothing can be told from noise.

for sentence in audits["June"].compare(audits["May"]).verdict:
    print(sentence)

# %%
# July: the second group has moved.

print(audits["July"].compare(audits["May"]))

# %%
# Flag rates by group, with their intervals.

figure, ax = plt.subplots(layout="constrained")
for group, colour, place in (("group 1", "#0072B2", -0.06), ("group 2", "#D55E00", 0.06)):
    rates = [result.get("flag_rate", group) for result in audits.values()]
    values = np.array([rate.value for rate in rates])
    sides = np.abs(np.array([[rate.low, rate.high] for rate in rates]).T - values)
    x = np.arange(len(audits)) + place
    ax.errorbar(x, values, yerr=sides, fmt="o", capsize=4, color=colour, label=group)
ax.set_xticks(range(len(audits)), list(audits))
ax.yaxis.set_major_formatter("{x:.0%}")
ax.set(ylabel="share flagged, 95 % interval")
ax.margins(x=0.15)
ax.legend()
plt.show()
