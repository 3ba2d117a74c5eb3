"""Labels of rows that were not drawn at random: what weights mend and what they cannot."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import rankdata

from evenout.core.stacking import (
    LEAST_AGREEMENT,
    LEAST_COVERAGE,
    coverage_warning,
    inverse_propensity,
    label_coverage,
    learn_stack,
)
from evenout.metrics import roc_auc


def two_branches(rng, n=20_000):
    """Outliers of one branch show in the first column, those of the other in the second; no score tells the branch."""
    z = rng.normal(size=(n, 6))
    branch = rng.random(n) < 0.5
    y = (rng.random(n) < expit(-3.0 + 2.5 * np.where(branch, z[:, 0], z[:, 1]))).astype(float)
    S = expit(z + 0.5 * rng.normal(size=(n, 1)))
    return S, S.mean(axis=1), y, branch


def test_propensities_mend_labels_that_come_from_one_branch():
    """Known truth: base 0.607, 2000 random labels 0.754; those of one branch 0.687, weighted 0.746."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        S, t, y, branch = two_branches(rng)
        S_new, t_new, y_new, _ = two_branches(rng)
        propensity = np.where(branch, 0.2, 0.01)
        random, looked = rng.random(len(y)) < 0.1, rng.random(len(y)) < propensity
        stacks = [
            learn_stack(S, t, np.where(random, y, np.nan)),
            learn_stack(S, t, np.where(looked, y, np.nan)),
            learn_stack(S, t, np.where(looked, y, np.nan), propensity=propensity),
        ]
        found.append([roc_auc(y_new, stack.apply(S_new, t_new)) for stack in stacks])
    random_rows, unweighted, weighted = np.mean(found, axis=0)
    assert unweighted < random_rows - 0.05
    assert weighted > random_rows - 0.02


def test_labels_chosen_by_the_base_score_need_no_weights(table, some):
    """The base score is in the model, so what it decides is not missing from it."""
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        S, t, y = table(seed, n=4000)
        S_new, t_new, y_new = table(1000 + seed, n=8000)
        order = np.argsort(rng.exponential(size=len(t)) / np.exp(4.0 * rankdata(t) / len(t)))
        chosen = np.full(len(t), np.nan)
        chosen[order[:150]] = y[order[:150]]
        stacks = [learn_stack(S, t, some(y, 150, seed)), learn_stack(S, t, chosen)]
        found.append([roc_auc(y_new, stack.apply(S_new, t_new)) for stack in stacks])
    random_rows, by_score = np.mean(found, axis=0)
    assert by_score > random_rows - 0.01


def test_flagged_by_a_foreign_rule():
    """What cannot be mended: a rule that leans too much on a good column makes it look bad among those it flags.

    The damage is bounded by the agreement that is kept.
    """
    loss = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z, hidden = rng.normal(size=(20_000, 6)), rng.normal(size=20_000)
        y = (z[:, 0] + hidden + 0.3 * rng.normal(size=20_000) > 2.2).astype(float)
        S = expit(z + 0.5 * rng.normal(size=(20_000, 1)))
        t = (2 * S[:, 0] + S.sum(axis=1)) / 8
        flagged = np.argsort(-hidden - 3 * z[:, 0])[:1000]
        labels = np.full(20_000, np.nan)
        labels[flagged[:200]] = y[flagged[:200]]
        stacks = [learn_stack(S, t, labels, least_agreement=least) for least in (0.0, LEAST_AGREEMENT, 0.8)]
        loss.append([roc_auc(y, t) - roc_auc(y, stack.apply(S, t)) for stack in stacks])
    free, kept, close = np.mean(loss, axis=0)
    assert close <= kept <= free
    assert kept < 0.03


def test_propensities_by_hand():
    weight, power = inverse_propensity(np.array([0.1, 0.2, 0.4, 0.4]))
    np.testing.assert_allclose(weight, [10.0, 5.0, 2.5, 2.5])
    assert power == 1.0  # (sum w)^2 / sum w^2 = 400 / 137.5, more than 0.7 * 4


def test_propensities_are_flattened_until_enough_labels_count():
    rng = np.random.default_rng(0)
    for n, expected in ((100, 70.0), (2000, 300.0)):
        weight, power = inverse_propensity(np.exp(-rng.exponential(3.0, n)))
        assert 0 < power < 1
        assert weight.sum() ** 2 / (weight @ weight) == pytest.approx(expected, rel=1e-4)


def test_coverage_tells_random_labels_from_flagged_ones(some):
    t = np.random.default_rng(0).random(1000)
    labels = np.full(1000, np.nan)
    assert label_coverage(t, labels) == 0.0
    labels[np.argsort(-t)[:100:2]] = 1.0
    assert label_coverage(t, labels) == pytest.approx(0.1, abs=0.01)
    assert label_coverage(t, some(np.zeros(1000), 50)) > 0.85


def test_a_few_random_rows_beside_flagged_ones_cover_all_if_their_chances_are_known():
    t = np.random.default_rng(0).random(1000)
    labels, chances = np.full(1000, np.nan), np.full(1000, 0.02)
    labels[np.argsort(-t)[:200]] = labels[np.random.default_rng(1).permutation(1000)[:20]] = 0.0
    chances[np.argsort(-t)[:200]] = 1.0
    assert label_coverage(t, labels) < 0.7
    assert label_coverage(t, labels, chances) > 0.85


def test_warning_names_the_share_and_the_remedy():
    assert coverage_warning(LEAST_COVERAGE) is None
    text = coverage_warning(0.1)
    assert "10.0% of rows" in text
    assert "at random" in text
