"""
A difference that is justified
==============================

Women hold more loans, and fraud is more common with loans than with cards. A score that finds fraud then flags more
women, and parity between women and men takes that away: it has to look elsewhere. ``given`` compares people who hold
the same product. Here there is something to correct within products, too: one feature varies more for women, for no
reason.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from evenout import FairOutlierEnsemble, audit
from evenout.metrics import roc_auc

rng = np.random.default_rng(0)
n = 6000
sex = rng.choice(["women", "men"], n)
loan = rng.random(n) < np.where(sex == "women", 0.8, 0.2)
fraud = rng.random(n) < np.where(loan, 0.3, 0.02)
X = rng.normal(size=(n, 6)) * np.where(fraud, 2.5, 1.0)[:, None]
X[:, 5] = rng.normal(size=n) * np.where(sex == "women", 2.0, 1.0)
product = pd.Series(np.where(loan, "loan", "card"), name="product")

# %%
# The same request, twice.

fair = FairOutlierEnsemble(random_state=0)
parity = fair.fit(X, sensitive_features=sex).outlier_scores_
within = fair.fit(X, sensitive_features=sex, given=product).outlier_scores_
base = fair.target_

# %%
# The audit says how much of the difference goes with the product. That part stays where products are given.

found = {
    name: audit(scores, sensitive_features=sex, given=product, resamples=200)
    for name, scores in (
        ("base score", base),
        ("parity", parity),
        ("given product", within),
    )
}
rows = []
for result in found.values():
    apart = result.get("mean_apart", "women").value
    explained = result.get("apart_by_strata", "women").value
    rows.append([apart, explained, apart - explained])
table = pd.DataFrame(
    rows, found, columns=["women above all", "by product", "within products"]
)
table["AUC"] = [roc_auc(fraud, scores) for scores in (base, parity, within)]
print(table.round(3).to_string())

# %%
# Parity makes the means of women and men equal by turning the difference within products around: a woman with a loan is
# scored below a man with a loan. Given the product, women and men with the same product are scored alike.

figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for ax, (name, scores) in zip(
    axes,
    {"base score": base, "parity": parity, "given product": within}.items(),
    strict=True,
):
    z = pd.Series((scores - scores.mean()) / scores.std())
    means = z.groupby([product, sex]).mean().unstack()
    for place, group in enumerate(("men", "women")):
        ax.plot(means.index, means[group], "os"[place] + "-", label=group)
    ax.set_title(name)
axes[0].set_ylabel("mean score, standard deviations")
axes[0].legend()
plt.show()
