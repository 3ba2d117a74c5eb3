"""Estimates from a list, held against populations of which everything is known: bias, coverage, level and power."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from evenout.planning import InvestigationPlan


@dataclass(frozen=True)
class People:
    """Scores, groups and the truth of everybody."""

    scores: np.ndarray
    groups: np.ndarray
    outlier: np.ndarray

    @classmethod
    def simulated(cls, seed, n=8000, shares=(0.7, 0.3), rate=0.06, heights=(1.5, 1.5), heavy=False):
        """Outliers of group g score higher by ``heights[g]``; with ``heavy`` tails of the score are long."""
        rng = np.random.default_rng(seed)
        codes = rng.choice(len(shares), size=n, p=shares)
        outlier = rng.random(n) < rate
        scores = rng.standard_t(2, size=n) if heavy else rng.normal(size=n)
        return cls(scores + outlier * np.array(heights)[codes], np.array(["a", "b", "c"])[codes], outlier)


@dataclass(frozen=True)
class Verdict:
    """Over plans: errors of ``missed`` and recall, whether intervals hold, finds by chance, p-values."""

    missed: np.ndarray
    recall: np.ndarray
    covered: np.ndarray
    chance_finds: np.ndarray
    p: np.ndarray

    def unbiased(self, errors=2.5):
        return (np.abs(self.missed.mean(0)) <= errors * self.missed.std(0, ddof=1) / np.sqrt(len(self.missed))).all()


def judge(people, plans, lost=0.0, **settings):
    """Plan again and again for the same people."""
    rng, rows = np.random.default_rng(99), []
    names = ["all", *np.unique(people.groups)]
    inside = [np.ones(len(people.scores), dtype=bool)] + [people.groups == name for name in names[1:]]
    for seed in range(plans):
        plan = InvestigationPlan.of(people.scores, sensitive_features=people.groups, random_state=seed, **settings)
        frame = plan.to_frame()
        outcomes = pd.Series(people.outlier)[frame.index]
        outcomes = outcomes[rng.random(len(outcomes)) >= lost]
        told = plan.estimate(outcomes, sensitive_features=people.groups)
        looked = np.zeros(len(people.scores), dtype=bool)
        looked[frame.index] = True
        chance = np.zeros(len(people.scores), dtype=bool)
        chance[outcomes.index[frame["chosen by"][outcomes.index] == "chance"]] = True
        row = []
        for name, rows_of in zip(names, inside, strict=True):
            truth = people.outlier & rows_of
            missed, recall = (truth & ~looked).sum(), (truth & looked).sum() / truth.sum()
            m, r, f = (told.get(measure, name) for measure in ("missed", "recall", "false_alarms"))
            alarms = (looked & rows_of & ~truth).sum() / (rows_of & ~truth).sum()
            holds = [m.low <= missed <= m.high, r.low <= recall <= r.high, f.low <= alarms <= f.high]
            row.append([m.value - missed, r.value - recall, *holds, (chance & truth).sum()])
        rows.append((np.array(row), [told.get(measure).p for measure in ("precision", "recall", "false_alarms")]))
    missed, recall, *covered, finds = np.array([row for row, _ in rows]).transpose(2, 0, 1)
    return Verdict(missed, recall, np.array(covered), finds, np.array([p for _, p in rows]))


SUSPICION = {"heights": (2.5, 0.0)}  # outliers of group b score like everybody
POPULATIONS = {
    "even": ({}, {"budget": 800, "explore": 0.5}),
    "few finds": ({}, {"budget": 400, "explore": 0.1}),
    "biased suspicion": (SUSPICION, {"budget": 800, "explore": 0.5}),
    "three groups, long tails": (
        {"n": 5000, "shares": (0.5, 0.3, 0.2), "rate": 0.25, "heights": (1, 1, 1), "heavy": True},
        {"budget": 1000, "explore": 0.4},
    ),
    "half of all are looked into": ({"n": 3000, "rate": 0.1}, {"budget": 1500, "explore": 0.7}),
    "a third never comes back": ({}, {"budget": 800, "explore": 0.5, "lost": 0.33}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", POPULATIONS)
def test_500_plans_are_unbiased_and_intervals_hold(name):
    people, settings = POPULATIONS[name]
    found = judge(People.simulated(7, **people), 500, **settings)
    assert found.unbiased(errors=3.0)  # of 21 means in all
    enough = found.chance_finds.mean(0) >= 10
    assert (np.abs(found.recall.mean(0))[enough] <= 0.05).all()
    coverage = found.covered.mean(1)
    assert ((coverage[:, enough] >= 0.92) & (coverage[:2, enough].max(initial=0) <= 0.99)).all(), coverage
    assert (coverage >= 0.88).all(), coverage


def test_some_plans_are_unbiased_and_intervals_hold():
    found = judge(People.simulated(7, n=3000, rate=0.1), 40, budget=600, explore=0.5)
    assert found.unbiased(errors=3.5)
    assert (found.covered.mean(1) >= 0.85).all()
    assert found.missed.std(0)[0] > 10  # there was something to miss


@pytest.mark.long
def test_equal_recall_is_rejected_at_the_level_over_populations():
    found = [judge(People.simulated(seed), 1, budget=800, explore=0.5) for seed in range(300)]
    assert (np.concatenate([each.p for each in found]) < 0.05).mean(0).max() <= 0.09


@pytest.mark.long
def test_biased_suspicion_is_found_with_80_percent_power_at_600_looks():
    found = judge(People.simulated(7, **SUSPICION), 300, budget=600, explore=0.4)
    assert (found.p[:, 1] < 0.05).mean() >= 0.8
    plain = judge(People.simulated(7, **SUSPICION), 1, budget=600, explore=0.0)
    assert np.isnan(plain.p[:, 1]).all()
    assert np.isnan(plain.missed).all()


def test_none_found_by_chance_gives_a_bound_that_holds():
    rng = np.random.default_rng(0)
    scores, outlier = rng.normal(size=2000), np.zeros(2000, dtype=bool)
    outlier[rng.permutation(2000)[:12]] = True
    held, silent = [], 0
    for seed in range(300):
        plan = InvestigationPlan.of(scores, budget=100, explore=1.0, random_state=seed)
        if outlier[plan.chosen].any():
            held.append(True)
            continue
        missed = plan.estimate(pd.Series(0, index=plan.to_frame().index)).get("missed")
        assert (missed.value, missed.low) == (0.0, 0.0)
        held.append(missed.high >= 12)
        silent += 1
    assert silent > 100
    assert np.mean(held) >= 0.95


def test_rounds_on_the_same_rows_are_unbiased_together():
    """Each round knows the last; the average of both rounds has the smaller error."""
    people = People.simulated(3, n=3000, rate=0.1)
    truth, errors, covered = pd.Series(people.outlier.astype(float)), [], []
    for seed in range(60):
        first = InvestigationPlan.of(people.scores, budget=200, explore=0.5, random_state=seed)
        one = truth[first.to_frame().index]
        second = InvestigationPlan.of(people.scores, budget=200, explore=0.5, random_state=1000 + seed, known=one)
        two = truth[second.to_frame().index]
        assert not set(one.index) & set(two.index)
        missed = truth.sum() - one.sum() - two.sum()
        alone = second.estimate(two).get("missed")
        both = second.estimate(two, earlier=[(first, one)]).get("missed")
        errors.append([alone.value - missed, both.value - missed])
        covered.append(both.low <= missed <= both.high)
    mean, spread = np.mean(errors, 0), np.std(errors, 0, ddof=1)
    assert (np.abs(mean) <= 3 * spread / np.sqrt(60)).all()
    assert spread[1] < 0.9 * spread[0]
    assert np.mean(covered) >= 0.88
