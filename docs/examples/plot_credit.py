"""
Credit, from start to finish
============================

30,000 card clients in Taiwan, of whom some defaulted in the following month (I-Cheng Yeh, *Default of Credit Card
Clients*). A bank looks for unusual accounts without knowing who will default. Are clients flagged for their
education? This example goes all the way: load, fit, choose, audit, save, score, report.
"""

import tempfile
import textwrap
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from evenout import FairOutlierEnsemble, audit
from evenout.datasets import load_dataset
from evenout.metrics import flag_rates, roc_auc
from evenout.persistence import load_model, save_model
from evenout.report import write_report

# %%
# Load
# ----
# The features are amounts and payment states. Education is the protected attribute and never a feature; the few
# clients of whom it is not known are left out. A third is kept aside, to see what people whom the model has never met
# would get.

data = load_dataset("credit")
print(data)
known = data.sensitive != "other"
X, X_new, groups, groups_new, y, y_new = train_test_split(
    data.X[known],
    data.sensitive[known],
    data.y[known],
    test_size=1 / 3,
    stratify=data.sensitive[known],
    random_state=0,
)

# %%
# Fit
# ---
# The request is in words: remove 80 % of the gap between groups, on clients not seen. Labels take no part.

model = FairOutlierEnsemble("diverse", bias_reduction=0.8, random_state=0, n_jobs=-1)
model.fit(X, sensitive_features=groups)
low, high = model.bias_reduction_interval_
print(f"removed: {model.bias_reduction_:.0%} (95 % interval {low:.0%} to {high:.0%})")
print("does that support the request?", model.request_met_)

# %%
# Choose
# ------
# What would other requests have cost? Nothing is fitted again: every trade-off is on the path. The bias of the base
# score comes first; what is stated rests on clients that neither detectors nor weights have seen.

path = model.path_
low, high = path.target_interval()
print(f"base score: bias {path.target_bias():.4f} ({low:.4f} to {high:.4f})")
for share in (0.5, 0.8, 0.9):
    alpha = path.alpha_for(share)
    bias, least, most = map(float, (path.bias(alpha), *path.interval(alpha)))
    close = float(path.correlation(alpha))
    print(
        f"remove {share:.0%}: bias {bias:.4f} ({least:.4f} to {most:.4f}), "
        f"correlation with the base score {close:.2f}"
    )

# %%
# See what the new clients get
# ----------------------------
# No group is passed in: the score is blind to it.

before, after = model.base_scores(X_new), model.outlier_scores(X_new)
rates = {
    name: flag_rates(score, sensitive_features=groups_new)
    for name, score in {"base ensemble": before, "fair ensemble": after}.items()
}
levels = list(rates["base ensemble"])
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for level in levels:
    ax.plot([rate[level] for rate in rates.values()], [level, level], color="0.7")
for (name, rate), colour in zip(rates.items(), ("#D55E00", "#0072B2"), strict=True):
    ax.scatter(list(rate.values()), levels, s=70, color=colour, label=name, zorder=2)
ax.axvline(0.1, color="0.5", linewidth=0.8, linestyle="--")
ax.margins(y=0.15)
ax.xaxis.set_major_formatter("{x:.0%}")
ax.set(xlabel="share of new clients flagged (dashed: of all)")
ax.legend()
plt.show()

# %%
# Labels were never used, so they can judge: a higher AUC means that defaults rank higher.

print(f"AUC on new clients before: {roc_auc(y_new, before):.3f}")
print(f"AUC on new clients after:  {roc_auc(y_new, after):.3f}")

# %%
# Audit
# -----
# Numbers without error bars persuade nobody. The audit of the new clients has an interval and a test for each.

measure = partial(audit, sensitive_features=groups_new, labels=y_new, resamples=1000)
result = measure(after)
for sentence in result.verdict:
    print(textwrap.fill(sentence, 90))

# %%
# The same measures, before and after. A gap of means is told more exactly than a ratio of flag rates, which rests on
# the two extreme groups and on one threshold.

earlier = measure(before)
for name in ("flag_rate_ratio", "demographic_parity_corrected"):
    was, now = earlier.get(name), result.get(name)
    print(f"{name} before: {was.value:.3f} [{was.low:.3f}, {was.high:.3f}]")
    print(f"{name} after:  {now.value:.3f} [{now.low:.3f}, {now.high:.3f}]")

# %%
# Save, load, score
# -----------------
# A model file is plain data: loading it runs no code. It holds the training features, so keep it as safe as these.

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
save_model(model, folder / "model.skops")
loaded = load_model(folder / "model.skops")
first = X_new[:100]
print("same scores:", np.array_equal(loaded.outlier_scores(first), after[:100]))
print("flagged among the first 100 new clients:", (loaded.predict(first) == -1).sum())

# %%
# Report
# ------
# One HTML page with a slider over every trade-off, to show to colleagues and regulators; it opens without a network.

page = write_report(
    model, folder / "report.html", X=X, sensitive_features=groups, labels=y, title="Cards"
)
print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")
