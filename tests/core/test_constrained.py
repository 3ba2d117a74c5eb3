import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from evenout.core.constrained import _KNOTS, _descend, constrain, nonnegative_least_squares
from evenout.core.forms import individual_form, parity_form
from evenout.core.spectrum import factorise

KINDS = ["nonnegative", "simplex"]
FORMS = {"parity": parity_form, "individual": individual_form}
ALPHAS = np.r_[0.0, np.geomspace(1e-3, 1e8, 45)]


def arrays(problem, form="parity"):
    A, b, c0 = problem.cells.least_squares()
    return A, b, c0, FORMS[form](problem.cells)[:-1, :-1]


def correlated(k, rank, noise, seed, gaps=2):
    """Scores that mix a few sources: A has the condition number 1 / noise^2, or is singular without noise."""
    rng = np.random.default_rng(seed)
    S = rng.random((300, rank)) @ rng.dirichlet(np.ones(rank), size=k).T + noise * rng.random((300, k))
    t = S.max(axis=1)
    G = rng.normal(size=(gaps, k))
    return S.T @ S, S.T @ t, float(t @ t), G.T @ G


def violation(A, b, C, alpha, w, kind):
    """Largest breach of the optimality conditions, in units of the terms that cancel in the gradient.

    The gradient is 0 (simplex: one constant) where w > 0, and nowhere lower.
    """
    H = A + alpha * C
    gradient = H @ w - b
    if kind == "simplex":
        gradient = gradient - np.average(gradient, weights=w)
    scale = np.abs(b).max() + (np.abs(H) @ w).max()
    return max(np.abs(gradient[w > 0]).max(initial=0.0), -gradient.min()) / scale


def assert_optimal(A, b, c0, C, kind, alphas=ALPHAS):
    W = constrain(A, b, c0, C, kind).weights(alphas)
    assert (W >= 0).all()
    if kind == "simplex":
        np.testing.assert_allclose(W.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    for alpha, w in zip(alphas, W, strict=True):
        assert violation(A, b, C, alpha, w, kind) < 1e-8, alpha
    return W


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_weights_satisfy_the_optimality_conditions(make, kind, form):
    W = [assert_optimal(*arrays(make(k=8, seed=seed), form), kind) for seed in range(5)]
    assert (np.array(W) == 0).any()  # the constraint binds, else this would test nothing new


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("k", "rank", "noise"), [(18, 6, 3e-4), (18, 6, 1e-6), (18, 6, 0.0), (100, 10, 1e-3), (100, 30, 0.0)]
)
def test_ill_conditioned_and_singular_problems_are_solved_exactly(kind, k, rank, noise):
    A, b, c0, C = correlated(k, rank, noise, seed=0)
    assert np.linalg.cond(A) > 1e5
    assert_optimal(A, b, c0, C, kind, np.r_[0.0, np.geomspace(1e-4, 1e6, 11)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_weights_equal_a_generic_optimiser(problem, kind, form):
    A, b, c0, C = arrays(problem, form)
    k = len(b)
    together = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones_like(w)}
    for alpha in (0.0, 20.0, 2000.0):
        H = A + alpha * C
        found = minimize(
            lambda w, H=H: w @ H @ w - 2 * b @ w + c0,
            np.full(k, 1 / k),
            jac=lambda w, H=H: 2 * (H @ w - b),
            bounds=[(0, None)] * k,
            constraints=[together] if kind == "simplex" else [],
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        ours = constrain(A, b, c0, C, kind).weights(np.array([alpha]))[0]
        assert ours @ H @ ours - 2 * b @ ours + c0 <= found.fun + 1e-9 * c0
        np.testing.assert_allclose(ours, found.x, atol=1e-4)


def test_nonnegative_least_squares_equals_scipy_from_any_start():
    rng = np.random.default_rng(0)
    for _ in range(20):
        R, d = rng.normal(size=(15, 8)), rng.normal(size=15)
        expected = nnls(R, d)[0]
        for start in (np.zeros(8), np.ones(8), rng.random(8) * (rng.random(8) > 0.5)):
            np.testing.assert_allclose(nonnegative_least_squares(R, d, start), expected, atol=1e-12)


def descend_literally(R, d, w):
    """Lawson and Hanson's inner loop, column by column."""
    free, w = set(np.flatnonzero(w > 0)), w.copy()
    while free:
        columns = sorted(free)
        z = dict(zip(columns, np.linalg.lstsq(R[:, columns], d, rcond=None)[0], strict=True))
        step, first = min(((w[j] / (w[j] - z[j]), j) for j in columns if z[j] <= 0), default=(1.0, None))
        for j in columns:
            w[j] += step * (z[j] - w[j])
        if first is None:
            break
        w[first] = 0.0
        free.remove(first)
    return w


def test_descent_stops_where_a_weight_reaches_zero():
    rng = np.random.default_rng(0)
    for _ in range(100):
        R, d, w = rng.normal(size=(12, 10)), rng.normal(size=12), rng.random(10)
        moved = _descend(R, d, w, w > 0)
        np.testing.assert_allclose(moved, descend_literally(R, d, w), atol=1e-10)
        assert np.linalg.norm(R @ moved - d) <= np.linalg.norm(R @ w - d)


def test_simplex_by_hand():
    # (w1 - 2)^2 + (w2 + 1)^2 + alpha w1^2 on w1 + w2 = 1 is least at w1 = 4 / (2 + alpha), but at most 1
    solutions = constrain(np.eye(2), np.array([2.0, -1.0]), 5.0, np.diag([1.0, 0.0]), "simplex")
    alphas = np.array([0.0, 1.0, 2.0, 6.0, 14.0])
    w = solutions.weights(alphas)
    np.testing.assert_allclose(w[:, 0], [1.0, 1.0, 1.0, 0.5, 0.25], atol=1e-12)
    np.testing.assert_allclose(solutions.f1(alphas), (w[:, 0] - 2) ** 2 + (w[:, 1] + 1) ** 2, rtol=1e-12)
    np.testing.assert_allclose(solutions.f2(alphas), w[:, 0] ** 2, rtol=1e-12)


def test_free_solution_is_kept_where_it_is_feasible():
    rng = np.random.default_rng(1)
    S = rng.random((200, 6))
    t = S @ np.full(6, 1 / 6) + 0.02 * rng.normal(size=200)
    A, b, c0, C = S.T @ S, S.T @ t, float(t @ t), np.eye(6)
    alphas = np.array([0.0, 0.5, 5.0])
    free = factorise(A, b, c0, C).weights(alphas)
    assert (free > 0).all()
    np.testing.assert_allclose(constrain(A, b, c0, C, "nonnegative").weights(alphas), free, rtol=1e-10)
    # A target whose free weights sum to 1 at alpha = 0 needs no simplex either.
    t = S @ np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.2])
    w = constrain(A, S.T @ t, float(t @ t), C, "simplex").weights(np.zeros(1))[0]
    np.testing.assert_allclose(w, [0.3, 0.2, 0.1, 0.1, 0.1, 0.2], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_f1_and_f2_equal_their_definitions(problem, kind, form):
    A, b, c0, C = arrays(problem, form)
    solutions = constrain(A, b, c0, C, kind)
    W = solutions.weights(ALPHAS)
    misfit = problem.beta @ (problem.S @ W.T - problem.t[:, None]) ** 2
    np.testing.assert_allclose(solutions.f1(ALPHAS), misfit, rtol=1e-9)
    np.testing.assert_allclose(solutions.f2(ALPHAS), np.einsum("mk,kl,ml->m", W, C, W), rtol=1e-6, atol=1e-16)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_f1_never_falls_and_f2_never_rises(problem, kind, form):
    solutions = constrain(*arrays(problem, form), kind)
    alphas = np.r_[0.0, np.geomspace(1e-6, 1e12, 400), np.inf]
    f1, f2 = solutions.f1(alphas), solutions.f2(alphas)
    assert (np.diff(f1) >= -1e-12 * f1[0]).all()
    assert (np.diff(f2) <= 1e-12 * f2[0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_constraints_cost_something(kind):
    problem = correlated(8, 4, 0.1, 2)
    free, held = factorise(*problem), constrain(*problem, kind)
    objective = held.f1(ALPHAS) + ALPHAS * held.f2(ALPHAS)
    least = free.f1(ALPHAS) + ALPHAS * free.f2(ALPHAS)
    assert (objective > least * 1.001).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fall", [0.001, 0.5, 0.9999])
def test_alpha_at_finds_the_share_of_the_fall(problem, kind, fall):
    solutions = constrain(*arrays(problem, "individual"), kind)
    alpha = solutions.alpha_at(fall)
    start, there, end = solutions.f2(np.array([0.0, alpha, np.inf]))
    assert (start - there) / (start - end) == pytest.approx(fall, rel=1e-6)
    if kind == "nonnegative":
        assert end < 1e-15 * start  # all of it can go
    else:
        assert end > 0.01 * start  # scores that sum to one cannot shrink away


@pytest.mark.parametrize("kind", KINDS)
def test_alpha_at_is_zero_where_nothing_falls(kind):
    A, b, c0, C = correlated(4, 4, 0.1, 0)
    assert constrain(A, b, c0, np.zeros_like(C), kind).alpha_at(0.5) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_alpha_at_is_zero_where_the_bias_is_rounding(kind):
    rng = np.random.default_rng(0)
    gap = np.array([0.3, 0.7, -0.54])
    for _ in range(20):
        S, w = rng.random((50, 3)), np.array([0.2, 0.3, 0.5])  # the gaps of the three cancel
        t = S @ w
        solutions = constrain(S.T @ S, S.T @ t, float(t @ t), np.outer(gap, gap), kind)
        assert solutions.f2(np.zeros(1))[0] < 1e-25
        assert solutions.alpha_at(0.5) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_alpha_at_is_tiny_where_bias_costs_nothing_to_remove(kind):
    # Two detectors that the misfit cannot tell apart; the second has no bias, and any alpha prefers it.
    solutions = constrain(np.ones((2, 2)), np.ones(2), 1.0, np.diag([1.0, 0.0]), kind)
    alpha = solutions.alpha_at(0.5)
    assert 0 < alpha < 1e-11
    start, there = solutions.f2(np.array([0.0, alpha]))
    assert start > 0.1
    assert there < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_duplicate_detectors_share_the_weight_of_one(problem, build, kind):
    twice = build(problem.X, np.column_stack([problem.S, problem.S[:, [1, 4, 1]]]), problem.t, problem.groups)
    w = constrain(*arrays(problem), kind).weights(ALPHAS)
    v = assert_optimal(*arrays(twice), kind)
    assert (w[:, [1, 4]] > 0).any(axis=0).all()
    np.testing.assert_allclose(v[:, [1, 5, 7]], w[:, [1]] / 3 @ np.ones((1, 3)), atol=1e-9)
    np.testing.assert_allclose(v[:, [4, 6]], w[:, [4]] / 2 @ np.ones((1, 2)), atol=1e-9)
    np.testing.assert_allclose(v[:, [0, 2, 3]], w[:, [0, 2, 3]], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_detector_gets_no_weight(problem, build, kind):
    padded = build(
        problem.X, np.column_stack([problem.S, np.zeros((len(problem.S), 2))]), problem.t, problem.groups
    )
    w = constrain(*arrays(padded), kind).weights(ALPHAS)
    np.testing.assert_array_equal(w[:, -2:], 0.0)
    np.testing.assert_allclose(w[:, :-2], constrain(*arrays(problem), kind).weights(ALPHAS), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_the_detectors_changes_nothing(problem, kind):
    A, b, c0, C = arrays(problem)
    order = np.random.default_rng(3).permutation(len(b))
    shuffled = constrain(A[np.ix_(order, order)], b[order], c0, C[np.ix_(order, order)], kind).weights(ALPHAS)
    np.testing.assert_allclose(shuffled, constrain(A, b, c0, C, kind).weights(ALPHAS)[:, order], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_each_alpha_has_one_answer_whatever_is_asked_beside_it(problem, kind):
    solutions = constrain(*arrays(problem), kind)
    together = solutions.weights(ALPHAS[::-1])[::-1]
    alone = np.concatenate([solutions.weights(ALPHAS[i : i + 1]) for i in range(len(ALPHAS))])
    np.testing.assert_array_equal(together, alone)
    assert solutions.weights(np.zeros(0)).shape == (0, 5)
    assert solutions.f2(np.zeros(0)).shape == (0,)


def test_one_detector_alone():
    A, b, C = np.array([[4.0]]), np.array([2.0]), np.array([[1.0]])
    alphas = np.array([0.0, 4.0, np.inf])
    np.testing.assert_allclose(
        constrain(A, b, 1.5, C, "nonnegative").weights(alphas)[:, 0], [0.5, 0.25, 0], atol=1e-11
    )
    simplex = constrain(A, b, 1.5, C, "simplex")
    np.testing.assert_array_equal(simplex.weights(alphas), np.ones((3, 1)))
    np.testing.assert_allclose(simplex.f1(alphas), 4 - 4 + 1.5, rtol=1e-12)
    assert simplex.alpha_at(0.5) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_one_detector_beside_zero_ones_keeps_all_the_weight(kind):
    A, b, C = np.diag([4.0, 0.0]), np.array([4.0, 0.0]), np.diag([1.0, 0.0])
    np.testing.assert_allclose(constrain(A, b, 4.0, C, kind).weights(np.zeros(1)), [[1.0, 0.0]], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_alpha_counts_in_units_of_the_misfit(problem, kind, factor):
    A, b, c0, C = arrays(problem)
    alphas = np.r_[ALPHAS, np.inf]
    one, other = constrain(A, b, c0, C, kind), constrain(factor * A, factor * b, factor * c0, C, kind)
    np.testing.assert_allclose(other.weights(factor * alphas), one.weights(alphas), atol=1e-7)
    assert other.alpha_at(0.7) == pytest.approx(factor * one.alpha_at(0.7), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_knots_are_solutions(problem, kind):
    solutions = constrain(*arrays(problem), kind)
    expected = solutions.weights(solutions.unit * _KNOTS)
    np.testing.assert_allclose(solutions._knots @ solutions.members.T, expected, atol=1e-9)


def test_nothing_to_solve():
    zero = np.zeros((3, 3))
    np.testing.assert_array_equal(
        constrain(zero, np.zeros(3), 1.5, zero, "nonnegative").weights(np.ones(1)), 0.0
    )
    simplex = constrain(zero, np.zeros(3), 1.5, zero, "simplex")
    np.testing.assert_allclose(simplex.weights(np.ones(1)), 1 / 3, rtol=1e-15)
    assert simplex.f1(np.ones(1))[0] == 1.5


def test_target_that_points_away_gets_zero_weights():
    w = constrain(np.eye(2), np.array([-1.0, -2.0]), 5.0, np.eye(2), "nonnegative").weights(ALPHAS)
    np.testing.assert_array_equal(w, 0.0)
