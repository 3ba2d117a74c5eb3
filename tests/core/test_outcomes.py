"""Notions of known outcome, and bands and strata beside them: literal formulas, populations, and where no gap is."""

import numpy as np
import pytest
from tests.conftest import probable

from evenout.core.cells import CrossFit, collect_cells
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.path import TradeoffPath
from evenout.core.registry import NOTIONS, PARITY

KINDS = {"equal_opportunity": (1,), "equal_false_alarms": (0,), "equalized_odds": (1, 0)}
AMONG = {1: "outliers", 0: "inliers"}


def outcome_members(groups, labels, G=3, *, everybody=False):
    """Groups of known outliers, of known inliers and, if asked for, of all rows, as `Block.among` tells them apart."""
    parts, blocks = [], []
    for label in (*AMONG, None) if everybody else AMONG:
        first = G * len(parts)
        codes = groups if label is None else np.where(labels == label, groups, -1)
        parts.append(Membership.of_codes(codes, G).weights.toarray())
        blocks.append(Block(tuple(range(first, first + G)), among=AMONG.get(label, "all")))
    found = probable(np.column_stack(parts)).weights
    return Membership(found, Comparison(G * len(parts), tuple(blocks)))


def people(n, rng, *, gap=0.5, base_rate=0.2):
    """Scores of people: outliers score higher, and those of later groups higher still, by ``gap`` among inliers."""
    groups = rng.integers(0, 3, n)
    labels = (rng.random(n) < 0.2 + base_rate * groups / 2).astype(float)
    nuisance = rng.normal(size=n) + gap * groups
    signal = rng.normal(size=n) + 2.0 * labels
    S = np.column_stack([signal + 0.3 * rng.normal(size=n), nuisance, signal + nuisance])
    labels[rng.random(n) < 0.3] = np.nan
    return S, S.mean(axis=1), groups, labels


def cross_of(n, rng, **more):
    S, t, groups, labels = people(n, rng, **more)
    members = outcome_members(groups, labels, everybody=True)
    cells = collect_cells(S, t, np.ones(n), members, np.arange(n) % 5, n_groups=members.n_groups, n_sets=5)
    return CrossFit.of_folds(cells)


def literal(y, groups, labels, kinds):
    """Mean over pairs of groups of the squared gap among rows of a label, the mean over labels, in units of Var(y)."""
    gaps = []
    for label in kinds:
        means = [y[(groups == g) & (labels == label)].mean() for g in range(3)]
        gaps.append(np.mean([(means[g] - means[h]) ** 2 for g in range(3) for h in range(g)]))
    return np.mean(gaps) / y.var()


@pytest.mark.parametrize("name", KINDS)
def test_form_is_the_literal_formula(name):
    rng, v = np.random.default_rng(0), np.array([[0.3, -0.2, 0.1, 1.0]])
    S, t, groups, labels = people(400, rng)
    members = outcome_members(groups, labels, everybody=True)
    one = np.zeros(400, dtype=int)
    cells = collect_cells(S, t, np.ones(400), members, one, n_groups=members.n_groups, n_sets=1)
    y = np.column_stack([S, t]) @ v[0]
    notion = NOTIONS[name]
    assert v[0] @ notion.form(cells)[0] @ v[0] == pytest.approx(literal(y, groups, labels, KINDS[name]) * y.var())
    assert notion.training_bias(cells, v)[0] == pytest.approx(literal(y, groups, labels, KINDS[name]))


@pytest.mark.parametrize("name", [*KINDS, "demographic_parity"])
def test_each_notion_sees_its_own_rows_alone(name):
    """Sums with the blocks of other notions beside them say what those of its own blocks alone say."""
    cross, notion = cross_of(500, np.random.default_rng(1)), NOTIONS[name]
    alone = cross.only(lambda block: block.among in notion.among)
    assert alone.whole.n_groups == 3 * len(notion.among)
    V = np.ones((5, 1, 4)) * np.array([0.2, -0.4, 0.1, 1.0])
    for method in ("bias", "choice", "covariance"):
        np.testing.assert_array_equal(getattr(notion, method)(cross, V), getattr(notion, method)(alone, V))
    np.testing.assert_array_equal(notion.noise(cross.whole), notion.noise(alone.whole))
    assert notion.gap_p_value(cross.whole) == notion.gap_p_value(alone.whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_unseen_bias_is_that_of_the_population(name):
    """The mean over fits of what is said is the mean of what fresh people get, at an alpha that removes much."""
    rng, fresh = np.random.default_rng(2), people(200_000, np.random.default_rng(3))
    Z = np.column_stack(fresh[:2])
    said, got, base = [], [], []
    for _ in range(60):
        path = TradeoffPath(cross_of(600, rng), {name: 1.0}, noise_aware=True)
        said.append(float(path.bias(5000.0)))
        base.append(path.target_bias())
        y = Z @ path.fold_weights(np.array([5000.0]), "training")[0, 0]
        got.append(literal(y, *fresh[2:], KINDS[name]))
    truth = literal(fresh[1], *fresh[2:], KINDS[name])
    assert abs(np.mean(base) - truth) < 3.5 * np.std(base) / np.sqrt(60)
    assert abs(np.mean(np.array(said) - got)) < 3.5 * np.std(np.array(said) - got) / np.sqrt(60) + 0.02 * truth
    assert np.mean(got) < 0.5 * truth


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_no_gap_is_found_where_there_is_none(name):
    """Outliers are more frequent in later groups, and nothing else differs: parity has a gap, these have none."""
    rng, p, parity = np.random.default_rng(4), [], []
    for _ in range(300):
        cross = cross_of(500, rng, gap=0.0, base_rate=0.5)
        p.append(NOTIONS[name].gap_p_value(cross.whole))
        parity.append(PARITY.gap_p_value(cross.whole))
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.085
    assert np.mean(np.array(parity) < 0.05) > 0.9
