"""Columns that no constraint is about, and the straight way to a rule that was solved for elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import lsq_linear, minimize
from tests.conftest import make_problem

from evenout.core.path import TradeoffPath
from evenout.core.problem import Columns, FlagRule, constrain


def _squares(k=5, seed=0):
    rng = np.random.default_rng(seed)
    F, G = rng.normal(size=(12, k)), rng.normal(size=(3, k))
    g, h = rng.normal(size=12), rng.normal(size=3)
    return F, g, G, h


@pytest.mark.parametrize("alpha", [0.0, 0.3, 20.0])
def test_free_columns_may_be_negative_while_others_may_not(alpha):
    F, g, G, h = _squares()
    free = np.array([False, False, True, False, True])
    found = constrain(
        F.T @ F, F.T @ g, float(g @ g), G.T @ G, "nonnegative", push=(-G.T @ h, float(h @ h)), free=free
    ).solutions(np.array([alpha]))[0]
    stacked, goal = np.vstack([F, np.sqrt(alpha) * G]), np.r_[g, np.sqrt(alpha) * h]
    best = lsq_linear(stacked, goal, bounds=(np.where(free, -np.inf, 0.0), np.inf), tol=1e-14)
    assert_allclose(found, best.x, atol=1e-7)
    assert alpha > 1 or (best.x[free] < 0).any()  # else the test would say nothing


def test_free_columns_are_no_part_of_a_fixed_sum():
    F, g, G, h = _squares(4)
    free, alpha = np.array([False, False, False, True]), 0.5
    start = np.array([0.5, 0.25, 0.25, 0.0])
    found = constrain(
        F.T @ F, F.T @ g, float(g @ g), G.T @ G, "simplex", push=(-G.T @ h, float(h @ h)), start=start, free=free
    ).solutions(np.array([alpha]))[0]

    def loss(x):
        return ((F @ x - g) ** 2).sum() + alpha * ((G @ x - h) ** 2).sum()

    bounds = [(0, None)] * 3 + [(None, None)]
    fixed = {"type": "eq", "fun": lambda x: x[:3].sum() - 1}
    best = minimize(loss, start, bounds=bounds, constraints=fixed, options={"ftol": 1e-14})
    assert found[:3].sum() == pytest.approx(1.0)
    assert loss(found) <= best.fun + 1e-8


@pytest.mark.parametrize("correction", ["resemblance", "both"])
def test_only_columns_that_may_move_do(correction):
    problem = make_problem((120, 80, 60), k=6)
    path = TradeoffPath(problem.cross, {"demographic_parity": 1.0}, columns=Columns(correction, 2))
    v = path.weights(10.0)
    assert v[-2:].any()
    assert v[:-2].any() == (correction == "both")
    assert not path.weights(0.0).any()
    assert path.f2(1e4) < path.f2(10.0) < path.f2(0.0)


def test_the_way_to_a_rule_is_straight_and_measured_like_any_path():
    problem = make_problem((120, 80, 60), k=4)
    rng = np.random.default_rng(0)
    rule = FlagRule(rng.normal(size=4) * 0.1, rng.normal(size=(problem.cross.n_folds, 4)) * 0.1)
    means = TradeoffPath(problem.cross, {"demographic_parity": 1.0})
    path = replace(means, rule=rule)
    assert_array_equal(path.weights(1.0), rule.own)
    assert_allclose(path.weights(0.25), 0.25 * rule.own)
    assert_allclose(path.fold_weights(np.ones(1), "unseen")[:, 0, :-1], rule.without)
    assert path.target_bias() == means.target_bias() == path.bias(0.0)
    y = path.mixture(1.0).apply(problem.S, problem.t)
    d = problem.S @ rule.own
    d -= np.average(d, weights=problem.beta)
    assert path.f1(1.0) == pytest.approx(problem.beta @ d**2)
    gaps = [y[problem.groups == g].mean() for g in range(3)]
    squared = np.mean([(gaps[0] - gaps[1]) ** 2, (gaps[0] - gaps[2]) ** 2, (gaps[1] - gaps[2]) ** 2])
    assert path.f2(1.0) == pytest.approx(squared)
    assert path.grid()[0] > 0
    assert path.grid()[-1] == pytest.approx(1.0, abs=1e-3)
    assert_array_equal(replace(path, rule=None).weights(3.0), means.weights(3.0))
