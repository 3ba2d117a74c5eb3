"""The repaired scores: the formula, its limits and what it leaves alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

from evenout import Groups
from evenout.repair import ScoreRepair


def literal_repair(y, groups, new, new_groups, strength):
    """The formula, one row at a time: quantile functions as broken lines through (mid-rank, score)."""
    lines = {}
    for g in sorted(set(groups)):
        values = sorted(set(y[groups == g]))
        own = y[groups == g]
        levels = [(np.sum(own < v) + 0.5 * np.sum(own == v)) / len(own) for v in values]
        lines[g] = (values, levels, len(own) / len(y))

    def line(x, xs, ys):
        if x <= xs[0] or len(xs) == 1:
            return ys[0]
        for x0, x1, y0, y1 in zip(xs, xs[1:], ys, ys[1:], strict=False):
            if x <= x1:
                return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        return ys[-1]

    out = []
    for score, g in zip(new, new_groups, strict=True):
        values, levels, _ = lines[g]
        inside = min(max(score, values[0]), values[-1])
        u = line(inside, values, levels)
        moved = sum(share * line(u, lev, val) for val, lev, share in lines.values()) + score - inside
        out.append((1 - strength) * score + strength * moved)
    return out


@pytest.mark.parametrize("ties", [None, 1])
@pytest.mark.parametrize("strength", [0.4, 1.0])
def test_repair_equals_the_formula_row_by_row(ties, strength, simulated):
    y, groups = simulated((60, 30, 12), ties=ties)
    repair = ScoreRepair(strength=strength, groups=Groups(min_size=10)).fit(y, sensitive_features=groups)
    new, new_groups = simulated((30, 20, 10), seed=1)
    new = 1.5 * new - 0.5  # beyond both ends of the training scores
    for scores, g in ((y, groups), (new, new_groups)):
        assert_allclose(
            repair.transform(scores, sensitive_features=g),
            literal_repair(y, groups, scores, g, strength),
            rtol=1e-12,
            atol=1e-12,
        )


@pytest.mark.parametrize("seed", range(12))
def test_order_within_each_group_is_kept(seed, simulated):
    ties = [None, 1, 0][seed % 3]
    y, groups = simulated(2 + 2 * (seed % 2), seed, ties=ties)
    new, new_groups = simulated(2 + 2 * (seed % 2), seed + 100, ties=ties)
    for strength in (0.3, 1.0):
        repair = ScoreRepair(strength=strength).fit(y, sensitive_features=groups)
        for scores, g in ((y, groups), (3 * new - 2, new_groups)):
            repaired = repair.transform(scores, sensitive_features=g)
            for name in np.unique(g):
                before, after = np.unique(scores[g == name]), []
                for value in before:  # equal scores stay equal
                    found = repaired[(g == name) & (scores == value)]
                    assert np.ptp(found) == 0
                    after.append(found[0])
                assert (np.diff(after) > 0).all()  # and unequal ones unequal, in the same order


@pytest.mark.parametrize("n_groups", [2, 4])
def test_full_strength_gives_equal_distributions(n_groups, simulated):
    y, groups = simulated(n_groups)
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    names = np.unique(groups)
    for p in names:
        for q in names[names > p]:
            one, two = repaired[groups == p], repaired[groups == q]
            assert ks_2samp(one, two).statistic <= 0.5 / len(one) + 0.5 / len(two) + 1e-12
            assert ks_2samp(y[groups == p], y[groups == q]).statistic > 0.2
    # the common distribution is the barycentre: its quantiles are the mean quantiles of the groups
    levels = np.linspace(0.05, 0.95, 19)
    quantiles = [np.quantile(y[groups == g], levels, method="hazen") for g in names]
    shares = [np.mean(groups == g) for g in names]
    for g in names:
        found = np.quantile(repaired[groups == g], levels, method="hazen")
        assert_allclose(found, shares @ np.array(quantiles), rtol=0.02, atol=0.02)


def test_full_strength_makes_groups_of_equal_size_identical(simulated):
    y, groups = simulated((80, 80, 80))
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    a, b, c = (np.sort(repaired[groups == g]) for g in "abc")
    assert_allclose(a, b, rtol=1e-12)
    assert_allclose(a, c, rtol=1e-12)
    assert_allclose(a, np.mean([np.sort(y[groups == g]) for g in "abc"], axis=0), rtol=1e-12)


def test_the_barycentre_moves_scores_the_least(simulated):
    y, groups = simulated((80, 80))
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    moved = np.mean((repaired - y) ** 2)
    for other in (
        "a",
        "b",
    ):  # giving all groups the distribution of one of them is even as well, at a higher price
        ranks = np.empty(len(y), dtype=int)
        for g in "ab":
            ranks[groups == g] = y[groups == g].argsort().argsort()
        alternative = np.sort(y[groups == other])[ranks]
        assert moved < np.mean((alternative - y) ** 2)


def test_strength_zero_changes_nothing(simulated):
    y, groups = simulated(ties=1)
    new, new_groups = simulated(seed=3)
    repair = ScoreRepair(strength=0.0).fit(y, sensitive_features=groups)
    assert_array_equal(repair.transform(y, sensitive_features=groups), y)
    assert_array_equal(repair.transform(7 * new - 9, sensitive_features=new_groups), 7 * new - 9)


def test_half_strength_is_half_way(simulated):
    y, groups = simulated()
    full = ScoreRepair().fit_transform(y, sensitive_features=groups)
    half = ScoreRepair(strength=0.5).fit_transform(y, sensitive_features=groups)
    assert_allclose(half, (y + full) / 2, rtol=1e-12)


def test_rows_beyond_the_training_scores_keep_their_distances(simulated):
    y, groups = simulated()
    repair = ScoreRepair(strength=0.6).fit(y, sensitive_features=groups)
    for g in "abcd":
        top = y[groups == g].max()
        ends = repair.transform(top + np.array([0.0, 1.0, 5.0, 1e3]), sensitive_features=[g] * 4)
        assert_allclose(np.diff(ends), [1.0, 4.0, 995.0], rtol=1e-9)


def test_new_rows_of_one_group_alone_and_rows_in_any_order(simulated):
    y, groups = simulated()
    repair = ScoreRepair().fit(y, sensitive_features=groups)
    together = repair.transform(y, sensitive_features=groups)
    for g in "abcd":
        alone = repair.transform(y[groups == g], sensitive_features=groups[groups == g])
        assert_array_equal(alone, together[groups == g])
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = ScoreRepair().fit(y[order], sensitive_features=groups[order])
    assert_allclose(shuffled.transform(y, sensitive_features=groups), together, rtol=1e-12)


@pytest.mark.parametrize("params", [{"strength": 0.7}, {"bias_reduction": 0.6}])
def test_units_of_the_score_do_not_matter(params, simulated):
    y, groups = simulated()
    one = ScoreRepair(**params).fit(y, sensitive_features=groups)
    two = ScoreRepair(**params).fit(1e3 * y - 50, sensitive_features=groups)
    assert one.strength_ == pytest.approx(two.strength_, rel=1e-7)
    assert one.bias_reduction_ == pytest.approx(two.bias_reduction_, rel=1e-7)
    assert_allclose(
        two.transform(1e3 * y - 50, sensitive_features=groups),
        1e3 * one.transform(y, sensitive_features=groups) - 50,
        rtol=1e-6,
    )
