"""
A promise that is watched
=========================

A vendor's score is audited, repaired, put to use, and watched for twelve months. In the eighth
month one group changes in features that mean nothing. The watch says so, new rows are folded
into the model, and the score is audited again. The people are simulated, so that the truth is
known: no gap here is about outliers.
"""

import warnings
from copy import copy

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.ensemble import IsolationForest

from evenout import FairnessMonitor, FairOutlierEnsemble, audit
from evenout.datasets import make_biased_outliers
from evenout.exceptions import AgedDetectorsWarning, EvenoutWarning

first = make_biased_outliers("shift", n=6000, strength=0.5, random_state=0)
vendor = IsolationForest(random_state=0).fit(first.X)
scores = -vendor.score_samples(first.X)
before = audit(scores, sensitive_features=first.sensitive)
print(before.verdict[1])

# %%
# For a supervisor there is a table in the shape that is asked for, and a page that holds it:
# ``before.save("audit.html", tables=["hiring"])``.

table = before.table("hiring")
print(
    table.to_frame()[
        ["group", "people", "favoured", "rate", "ratio", "flag_ratio"]
    ].round(3)
)

# %%
# The repair: an ensemble that is even, and needs no group when it is used. It states what it
# left on people whom it has not seen, and that is what the watch holds it to.

# what warnings say is printed here: how much is gone, and that features tell the group
warnings.simplefilter("ignore", EvenoutWarning)
model = FairOutlierEnsemble("diverse", random_state=0, n_jobs=-1)
model.fit(first.X, sensitive_features=first.sensitive)
low, high = model.bias_reduction_interval_
print(
    f"{model.bias_reduction_:.0%} of the gap is gone on unseen people ({low:.0%} to {high:.0%})"
)
monitor = FairnessMonitor.of(model)

# %%
# Twelve months in use. One may look after every batch: the chance of a false alarm is that of
# all looks together.

months = [
    make_biased_outliers(
        "shift", n=1500, strength=0.5 if month < 8 else 0.8, random_state=month
    )
    for month in range(1, 13)
]
for month, people in enumerate(months, 1):
    in_use = model.outlier_scores(people.X)
    monitor.update(in_use, sensitive_features=people.sensitive, batch=f"month {month}")
print(monitor)

# %%
# The gap of all months so far with its interval, and what was promised.

history = monitor.history().query("group == 'group 2'")
promised = monitor.to_frame().set_index("group").loc["group 2"]
figure, ax = plt.subplots(layout="constrained")
place = range(1, 13)
ax.fill_between(place, history["low"], history["high"], color="#0072B2", alpha=0.2)
ax.plot(place, history["gap"], "o-", color="#0072B2", label="gap of all months so far")
ends = promised["promised_low"], promised["promised_high"]
ax.axhspan(*ends, color="0.6", alpha=0.25, label="promised")
ax.axvline(int(monitor.alarms[0].raised.split()[1]), color="#D55E00", label="alarm")
ax.set(xlabel="month", ylabel="mean rank of group 2 less that of group 1")
ax.legend(loc="upper left")
plt.show()

# %%
# Keep the promise: the months since the change are folded into the sums of the fit, and the
# weights are solved again. The detectors stay as they are. Where they have aged, it is said.

as_it_was = copy(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", AgedDetectorsWarning)
    for people in months[7:]:
        model.update(people.X, sensitive_features=people.sensitive)
print(caught[-1].message if caught else "no detector has aged")

# %%
# The next month, scored as it would have been, after the update, and by a fit on the months
# since the change.

recent = FairOutlierEnsemble("diverse", random_state=0, n_jobs=-1)
since = months[7:]
recent.fit(
    pd.concat([people.X for people in since], ignore_index=True),
    sensitive_features=pd.concat(
        [people.sensitive for people in since], ignore_index=True
    ),
)
later = make_biased_outliers("shift", n=3000, strength=0.8, random_state=99)
for name, each in {
    "as it was": as_it_was,
    "after the update": model,
    "fitted again": recent,
}.items():
    found = audit(each.outlier_scores(later.X), sensitive_features=later.sensitive)
    ratio = found.get("flag_rate_ratio")
    print(
        f"{name}: lowest / highest flag rate {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    )
