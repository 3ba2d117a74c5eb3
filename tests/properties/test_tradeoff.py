"""Along the path misfit never falls, raw bias never rises, constraints hold, and no other weights do better."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenout.core.base_score import SCALINGS
from evenout.core.cells import CrossFit
from evenout.core.pairwise import pair_sums
from evenout.core.path import TradeoffPath
from evenout.core.problem import METHODS, WEIGHTS

NOTIONS = st.sampled_from(
    [{"demographic_parity": 1.0}, {"individual": 1.0}, {"demographic_parity": 1.0, "individual": 2.0}]
)
LINEAR = st.booleans()  # whether it is known that the target is linear in the detectors


def open_path(problem, features, notions, **settings):
    """All that is asked here is told by the training rows, so nothing is left out."""
    one = np.zeros_like(problem.folds)
    pairs = pair_sums(features, problem.Z, problem.groups, one, n_groups=problem.groups.max() + 1, n_folds=1)
    form, mass = pairs.total()
    whole = replace(problem.cross().whole, sums={"individual.form": form[None], "individual.mass": mass[None]})
    return TradeoffPath(CrossFit(whole, whole.at(slice(0)), whole.at(slice(0))), notions, **settings)


def alphas_of(path):
    """From 0 to where nothing is left to remove, and far beyond."""
    grid = path.grid(12)
    return np.unique(np.r_[0.0, 1e-300, grid, 1.0, 1e10, 1e200])


def misfit(problem, V, method):
    """``sum beta (y - t)^2``; anchored, a shift of all scores is free."""
    off = problem.Z @ V - problem.t
    if method == "anchored":
        off = off - np.average(off, weights=problem.beta)
    return problem.beta @ off**2


def parity(problem, V):
    y = problem.Z @ V
    means = [y[problem.groups == g].mean() for g in range(problem.groups.max() + 1)]
    return np.mean([(p - q) ** 2 for p, q in combinations(means, 2)])


@given(data=st.data())
def test_misfit_never_falls_and_raw_bias_never_rises(data, tame_tables, wild_tables, pose):
    table = data.draw(tame_tables() | wild_tables())
    problem = pose(table, data.draw(st.sampled_from(SCALINGS)), data.draw(st.sampled_from(["rank", "uniform"])))
    settings = {
        "constraint": data.draw(st.sampled_from(WEIGHTS)),
        "method": data.draw(st.sampled_from(METHODS)),
    }
    path = open_path(problem, table.values, data.draw(NOTIONS), **settings)
    alphas = alphas_of(path)
    f1, f2 = path.f1(alphas), path.f2(alphas)
    assert np.isfinite(f1).all()
    assert np.isfinite(f2).all()
    assert (np.diff(f1) >= -1e-9 * problem.beta.sum()).all()
    assert (np.diff(f2) <= 1e-9 * f2[0] + 1e-25).all()
    assert (f2 >= 0).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", WEIGHTS)
def test_gaps_that_cancel_at_the_start_leave_nothing_to_remove(constraint, method, make_table, pose):
    """Two detectors with gaps of 1/35 and -1/35, which weigh the same at alpha 0: what is left is rounding."""
    groups = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1])
    first, second = np.array([1.0] * 5 + [0.0] * 7), np.array([1.0] * 6 + [0.0] * 2 + [1.0] + [0.0] * 3)
    table = type(make_table(2, 1))(np.column_stack([first, second]), groups)
    problem = pose(table)
    for base in (None, problem.base):
        path = TradeoffPath(problem.cross(base=base), {"demographic_parity": 1.0}, constraint=constraint, method=method)
        assert path.f2(0.0) < 1e-30
        assert path.grid(5).size in (0, 5)
        assert (path.f2(np.array([1.0, 1e9])) < 1e-30).all()


@given(data=st.data())
def test_alpha_zero_is_the_base_score_bit_for_bit(data, tame_tables, wild_tables, pose):
    problem = pose(data.draw(tame_tables() | wild_tables()), data.draw(st.sampled_from(SCALINGS)))
    base = problem.base if data.draw(LINEAR) else None
    settings = {"constraint": data.draw(st.sampled_from(WEIGHTS)), "noise_aware": data.draw(st.booleans())}
    path = TradeoffPath(problem.cross(base=base), {"demographic_parity": 1.0}, **settings)
    np.testing.assert_array_equal(path.mixture(0.0).apply(problem.S, problem.t), problem.t)


@given(data=st.data())
def test_constrained_weights_are_feasible_and_no_others_do_better(data, tame_tables, wild_tables, pose):
    table = data.draw(tame_tables() | wild_tables())
    problem = pose(table, data.draw(st.sampled_from(SCALINGS)))
    constraint, method = data.draw(st.sampled_from(WEIGHTS)), data.draw(st.sampled_from(METHODS))
    base = problem.base if data.draw(LINEAR) else None
    path = TradeoffPath(problem.cross(base=base), {"demographic_parity": 1.0}, constraint=constraint, method=method)
    alphas = alphas_of(path)
    V, W = path.fold_weights(alphas, "training")[0], path.weights(alphas)
    assert np.isfinite(V).all()
    together = method == "anchored" and base is None and constraint == "simplex"  # shares, the target's among them
    held = V if together else W
    if constraint != "free":
        assert (held >= 0).all()
    total = base.sum() if method == "anchored" and base is not None else 1.0
    if constraint == "simplex":
        np.testing.assert_allclose(held.sum(axis=1), total, rtol=1e-12)
    alpha = data.draw(st.sampled_from([0.0, 0.1, 1.0, 50.0]))
    k = problem.S.shape[1] + together
    others = np.array(data.draw(st.lists(st.floats(0.01, 2.0), min_size=k, max_size=k)))
    if constraint == "simplex":
        columns = problem.Z if together else problem.S
        others[(columns == 0).all(axis=0)] = 0.0  # these take no part
        assume(others.any())
        others *= total / others.sum()
    if method == "published":
        rival = np.append(others, 0.0)
    elif together:
        rival = others
    else:
        rival = np.append(others - (0.0 if base is None else base), 1.0)
    best, worse = (
        misfit(problem, v, method) + alpha * parity(problem, v)
        for v in (path.fold_weights(np.array([alpha]), "training")[0, 0], rival)
    )
    assert best <= worse * (1 + 1e-9) + 1e-9


@given(data=st.data())
def test_constrained_ensembles_are_feasible(data, tame_tables, wild_tables, fit):
    table = data.draw(tame_tables() | wild_tables())
    constraint = data.draw(st.sampled_from(WEIGHTS[1:]))
    asked = data.draw(st.sampled_from([{}, {"alpha": 5.0}, {"judged_on": "training"}]))
    combination = data.draw(st.sampled_from(["average", "maximum"]))
    model = fit(table, correction=constraint, combination=combination, **asked)
    assert (model.weights_ >= 0).all()
    if constraint == "simplex" and combination == "average":  # as much as they weigh in the target
        at_first = model.path_.weights(0.0).sum()
        assert model.weights_.sum() == pytest.approx(at_first, rel=1e-12)
    elif constraint == "simplex":
        mixture = model.path_.mixture(model.alpha_)
        assert mixture.target >= 0
        assert mixture.weights.sum() + mixture.target == pytest.approx(1.0, rel=1e-12)


@given(data=st.data())
def test_constant_detectors_get_no_weight(data, tame_tables, numbers, fit):
    table = data.draw(tame_tables())
    values = np.column_stack([table.values, np.full(len(table), data.draw(numbers()))])
    asked = data.draw(st.sampled_from([{}, {"alpha": 5.0}, {"judged_on": "training"}]))
    asked = {**asked, "correction": data.draw(st.sampled_from(["published", "weights", *WEIGHTS[1:]]))}
    model = fit(table.of(values), **asked)
    assert model.weights_[-1] == 0.0
    assert model.weights_.any()


@given(data=st.data())
def test_no_gap_found_leaves_the_base_score_alone(data, tame_tables, fit):
    """Bit for bit, on training rows and on new ones."""
    table = data.draw(tame_tables())
    asked = data.draw(st.sampled_from([{}, {"confidence": 0.9}, {"judged_on": "training"}]))
    model = fit(table, **asked)
    assert (model.alpha_ == 0) or model.gap_detected_
    if not model.gap_detected_:
        new = table.values[::-1] * 1.7
        np.testing.assert_array_equal(model.outlier_scores_, model.target_)
        np.testing.assert_array_equal(model.outlier_scores(new), model.base_scores(new))
        assert np.isnan(model.bias_reduction_)
