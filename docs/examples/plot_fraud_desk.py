"""
Six weeks of a fraud desk
=========================

A desk can look into 300 of 6000 accounts a week. The usual list has the highest scores, and what it
misses nobody knows. Here a third of the looks goes by chance, with known probabilities: so the desk
learns how much it misses, and of whom. The accounts are simulated, and the truth is known. Fraud in
the branch "south" stands out less.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from evenout import FairOutlierEnsemble, InvestigationPlan
from evenout.exceptions import EvenoutWarning

warnings.simplefilter("ignore", EvenoutWarning)
rng = np.random.default_rng(4)
n = 6000
branch = pd.Series(rng.choice(["north", "south"], n, p=[0.6, 0.4]), name="branch")
fraud = pd.Series((rng.random(n) < 0.06).astype(float))
X = rng.normal(size=(n, 6))
X[:, :2] *= np.where((fraud == 1) & (branch == "north"), 4.0, 1.0)[:, None]
X[:, 2] += 1.3 * ((fraud == 1) & (branch == "south"))
X = pd.DataFrame(X, columns=[f"x{i}" for i in range(6)])

model = FairOutlierEnsemble(random_state=0, n_jobs=-1)
model.fit(X, sensitive_features=branch)

# %%
# Week 1. Every account has a chance, and it rises with the score.

plan = model.plan(X, budget=300, explore=1 / 3, sensitive_features=branch, random_state=1)
print(plan)
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for name, color in (("north", "#0072B2"), ("south", "#D55E00")):
    rows = (branch == name).to_numpy()
    ax.plot(plan.scores[rows], plan.propensity[rows], ".", color=color, label=name, ms=3)
ax.set(xlabel="fair score", ylabel="probability of a look", yscale="log")
ax.legend()
plt.show()

# %%
# Outcomes come back, and say something about everybody. One week of looks leaves wide intervals.

outcomes = fraud[plan.to_frame().index]
told = plan.estimate(outcomes, sensitive_features=branch)
print(told)
figure, ax = plt.subplots(figsize=(7, 2), layout="constrained")
for place, name in enumerate(("north", "south")):
    recall = told.get("recall", name)
    found = outcomes[(outcomes == 1) & (branch[outcomes.index] == name)].sum()
    truth = found / fraud[branch == name].sum()
    ax.plot([recall.low, recall.high], [place, place], color="#0072B2", lw=3)
    ax.plot(recall.value, place, "o", color="#0072B2")
    ax.plot(truth, place, "kx")
ax.set(yticks=[0, 1], yticklabels=["north", "south"], ylim=(-0.5, 1.5), xlim=(0, 1))
ax.set_xlabel("share of the fraud that the list found: 95 % interval, and the truth (x)")
plt.show()

# %%
# Six weeks: the desk looks, the model learns, and nobody is looked into twice. Beside it, the plain
# list of the first model.

known, plain = pd.Series(np.nan, index=X.index), pd.Series(np.nan, index=X.index)
first = model.outlier_scores_.copy()
rounds: list[tuple[InvestigationPlan, pd.Series]] = []
weeks: list[dict[str, float]] = []
for week in range(6):
    plan = model.plan(
        X, 300, 1 / 3, sensitive_features=branch, random_state=week, known=known
    )
    outcomes = fraud[plan.to_frame().index]
    missed = plan.estimate(outcomes, earlier=rounds).get("missed")
    rounds.append((plan, outcomes))
    known[outcomes.index] = outcomes
    usual = InvestigationPlan.of(first, budget=300, explore=0, known=plain).chosen
    plain.iloc[usual] = fraud.iloc[usual]
    model.learn_from(plan, outcomes)
    print(f"week {week + 1}: {known.sum():.0f} found; {model.lesson_}")
    kinds = {
        f"{kind} {name}": had[(fraud == 1) & (branch == name)].eq(1).mean()
        for kind, had in (("plain list", plain), ("with chance", known))
        for name in ("north", "south")
    }
    weeks.append(
        {
            "found": known.sum(),
            "found plain": plain.sum(),
            "missed": missed.value,
            "low": missed.low,
            "high": missed.high,
            "truth": fraud.sum() - known.sum(),
            **kinds,
        }
    )
history = pd.DataFrame(weeks, index=np.arange(1, 7))

# %%
# What is still missed, estimated each week from all rounds so far, and the truth.

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.fill_between(
    history.index, history["low"], history["high"], color="#0072B2", alpha=0.2
)
ax.plot(history.index, history["missed"], "o-", color="#0072B2", label="estimated")
ax.plot(history.index, history["truth"], "kx", label="truth")
ax.set(xlabel="week", ylabel="fraud not found yet", ylim=(0, None))
ax.legend()
plt.show()

# %%
# What both ways have found.

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.plot(
    history.index,
    history["found"],
    "o-",
    color="#0072B2",
    label="with chance and learning",
)
ax.plot(history.index, history["found plain"], "o--", color="0.5", label="plain list")
ax.set(xlabel="week", ylabel="fraud found", ylim=(0, None))
ax.legend()
plt.show()

# %%
# And of whom: fraud in the south is harder to find for both, but only the list with chance in it
# can tell.


figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for name, color in (("north", "#0072B2"), ("south", "#D55E00")):
    ax.plot(history.index, history[f"with chance {name}"], "o-", color=color, label=name)
    ax.plot(history.index, history[f"plain list {name}"], "o--", color=color, alpha=0.4)
ax.set(xlabel="week", ylabel="share of fraud found", ylim=(0, 1))
ax.legend(title="with chance; dashed: plain list")
plt.show()
