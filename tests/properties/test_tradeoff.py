"""Along the path misfit never falls, raw bias never rises, constraints hold, and no other weights do better."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenout.core.pairwise import pair_sums
from evenout.core.path import WEIGHTS, TradeoffPath
from evenout.core.scaling import SCALINGS

NOTIONS = st.sampled_from(
    [{"demographic_parity": 1.0}, {"individual": 1.0}, {"demographic_parity": 1.0, "individual": 2.0}]
)


def open_path(problem, features, notions, constraint):
    shape = {"n_groups": problem.groups.max() + 1, "n_folds": problem.folds.max() + 1}
    Z = np.column_stack([problem.S, problem.t])
    pairs = pair_sums(features, Z, problem.groups, problem.folds, **shape)
    return TradeoffPath(replace(problem.cells(), pairs=pairs), notions, constraint=constraint)


def alphas_of(path):
    """From 0 to where nothing is left to remove, and far beyond."""
    grid = path.grid(12)
    return np.unique(np.r_[0.0, 1e-300, grid, 1.0, 1e10, 1e200])


def misfit(problem, w):
    return problem.beta @ (problem.S @ w - problem.t) ** 2


def parity(problem, w):
    y = problem.S @ w
    means = [y[problem.groups == g].mean() for g in range(problem.groups.max() + 1)]
    return np.mean([(p - q) ** 2 for p, q in combinations(means, 2)])


@given(data=st.data())
def test_misfit_never_falls_and_raw_bias_never_rises(data, tame_tables, wild_tables, pose):
    table = data.draw(tame_tables() | wild_tables())
    problem = pose(
        table, data.draw(st.sampled_from(SCALINGS)), data.draw(st.sampled_from(["rank", "uniform"]))
    )
    path = open_path(problem, table.values, data.draw(NOTIONS), data.draw(st.sampled_from(WEIGHTS)))
    alphas = alphas_of(path)
    f1, f2 = path.f1(alphas), path.f2(alphas)
    assert np.isfinite(f1).all()
    assert np.isfinite(f2).all()
    assert (np.diff(f1) >= -1e-9 * problem.beta.sum()).all()
    assert (np.diff(f2) <= 1e-9 * f2[0] + 1e-25).all()
    assert (f2 >= 0).all()


@pytest.mark.parametrize("constraint", WEIGHTS)
def test_gaps_that_cancel_at_the_start_leave_nothing_to_remove(constraint, make_table, pose):
    """Two detectors with gaps of 1/35 and -1/35, which weigh the same at alpha 0: what is left is rounding."""
    groups = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1])
    first, second = np.array([1.0] * 5 + [0.0] * 7), np.array([1.0] * 6 + [0.0] * 2 + [1.0] + [0.0] * 3)
    table = type(make_table(2, 1))(np.column_stack([first, second]), groups)
    path = TradeoffPath(pose(table).cells(), {"demographic_parity": 1.0}, constraint=constraint)
    assert path.f2(0.0) < 1e-30
    assert path.grid(5).size in (0, 5)
    assert (path.f2(np.array([1.0, 1e9])) < 1e-30).all()


@given(data=st.data())
def test_constrained_weights_are_feasible_and_no_others_do_better(data, tame_tables, wild_tables, pose):
    table = data.draw(tame_tables() | wild_tables())
    problem = pose(table, data.draw(st.sampled_from(SCALINGS)))
    constraint = data.draw(st.sampled_from(WEIGHTS))
    path = TradeoffPath(problem.cells(), {"demographic_parity": 1.0}, constraint=constraint)
    W = path.weights(alphas_of(path))
    assert np.isfinite(W).all()
    if constraint != "free":
        assert (W >= 0).all()
    if constraint == "simplex":
        np.testing.assert_allclose(W.sum(axis=1), 1.0, rtol=1e-12)
    alpha = data.draw(st.sampled_from([0.0, 0.1, 1.0, 50.0]))
    k = problem.S.shape[1]
    others = np.array(data.draw(st.lists(st.floats(0.01, 2.0), min_size=k, max_size=k)))
    if constraint == "simplex":
        others[(problem.S == 0).all(axis=0)] = 0.0  # these take no part
        assume(others.any())
        others /= others.sum()
    best, rival = (misfit(problem, w) + alpha * parity(problem, w) for w in (path.weights(alpha), others))
    assert best <= rival * (1 + 1e-9) + 1e-9


@given(data=st.data())
def test_constrained_ensembles_are_feasible(data, tame_tables, wild_tables, fit):
    table = data.draw(tame_tables() | wild_tables())
    constraint = data.draw(st.sampled_from(["nonnegative", "simplex"]))
    asked = data.draw(st.sampled_from([{}, {"alpha": 5.0}, {"target": "training"}]))
    weights = fit(table, weights=constraint, **asked).weights_
    assert (weights >= 0).all()
    if constraint == "simplex":
        assert abs(weights.sum() - 1.0) < 1e-12


@given(data=st.data())
def test_constant_detectors_get_no_weight(data, tame_tables, numbers, fit):
    table = data.draw(tame_tables())
    values = np.column_stack([table.values, np.full(len(table), data.draw(numbers()))])
    asked = data.draw(st.sampled_from([{}, {"alpha": 5.0}, {"target": "training"}]))
    weights = data.draw(st.sampled_from(WEIGHTS))
    model = fit(table.of(values), weights=weights, **asked)
    assert model.weights_[-1] == 0.0
    assert model.weights_.any()
