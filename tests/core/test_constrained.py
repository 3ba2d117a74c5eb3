import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from evenout.core.problem import constrain, factorise
from evenout.core.registry import NOTIONS

KINDS = ["nonnegative", "simplex"]
FORMS = {"parity": "demographic_parity", "individual": "individual"}
ALPHAS = np.r_[0.0, np.geomspace(1e-3, 1e8, 45)]


def arrays(problem, form="parity"):
    total, C = problem.cross.whole.weighted[0], NOTIONS[FORMS[form]].form(problem.cross.whole)[0]
    return total[1:-1, 1:-1], total[1:-1, -1], float(total[-1, -1]), C[:-1, :-1]


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
    W = constrain(A, b, c0, C, kind).solutions(alphas)
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
        ours = constrain(A, b, c0, C, kind).solutions(np.array([alpha]))[0]
        assert ours @ H @ ours - 2 * b @ ours + c0 <= found.fun + 1e-9 * c0
        np.testing.assert_allclose(ours, found.x, atol=1e-4)


def test_simplex_by_hand():
    # (w1 - 2)^2 + (w2 + 1)^2 + alpha w1^2 on w1 + w2 = 1 is least at w1 = 4 / (2 + alpha), but at most 1
    solutions = constrain(np.eye(2), np.array([2.0, -1.0]), 5.0, np.diag([1.0, 0.0]), "simplex")
    alphas = np.array([0.0, 1.0, 2.0, 6.0, 14.0])
    w = solutions.solutions(alphas)
    np.testing.assert_allclose(w[:, 0], [1.0, 1.0, 1.0, 0.5, 0.25], atol=1e-12)
    np.testing.assert_allclose(solutions.f1(alphas), (w[:, 0] - 2) ** 2 + (w[:, 1] + 1) ** 2, rtol=1e-12)
    np.testing.assert_allclose(solutions.f2(alphas), w[:, 0] ** 2, rtol=1e-12)


def test_free_solution_is_kept_where_it_is_feasible():
    rng = np.random.default_rng(1)
    S = rng.random((200, 6))
    t = S @ np.full(6, 1 / 6) + 0.02 * rng.normal(size=200)
    A, b, c0, C = S.T @ S, S.T @ t, float(t @ t), np.eye(6)
    alphas = np.array([0.0, 0.5, 5.0])
    free = factorise(A, b, c0, C).solutions(alphas)
    assert (free > 0).all()
    np.testing.assert_allclose(constrain(A, b, c0, C, "nonnegative").solutions(alphas), free, rtol=1e-10)
    # A target whose free weights sum to 1 at alpha = 0 needs no simplex either.
    t = S @ np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.2])
    w = constrain(A, S.T @ t, float(t @ t), C, "simplex").solutions(np.zeros(1))[0]
    np.testing.assert_allclose(w, [0.3, 0.2, 0.1, 0.1, 0.1, 0.2], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_f1_and_f2_equal_their_definitions(problem, kind, form):
    A, b, c0, C = arrays(problem, form)
    solutions = constrain(A, b, c0, C, kind)
    W = solutions.solutions(ALPHAS)
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
    w = constrain(*arrays(problem), kind).solutions(ALPHAS)
    v = assert_optimal(*arrays(twice), kind)
    assert (w[:, [1, 4]] > 0).any(axis=0).all()
    np.testing.assert_allclose(v[:, [1, 5, 7]], w[:, [1]] / 3 @ np.ones((1, 3)), atol=1e-9)
    np.testing.assert_allclose(v[:, [4, 6]], w[:, [4]] / 2 @ np.ones((1, 2)), atol=1e-9)
    np.testing.assert_allclose(v[:, [0, 2, 3]], w[:, [0, 2, 3]], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_detector_gets_no_weight(problem, build, kind):
    padded = build(problem.X, np.column_stack([problem.S, np.zeros((len(problem.S), 2))]), problem.t, problem.groups)
    w = constrain(*arrays(padded), kind).solutions(ALPHAS)
    np.testing.assert_array_equal(w[:, -2:], 0.0)
    np.testing.assert_allclose(w[:, :-2], constrain(*arrays(problem), kind).solutions(ALPHAS), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_the_detectors_changes_nothing(problem, kind):
    A, b, c0, C = arrays(problem)
    order = np.random.default_rng(3).permutation(len(b))
    shuffled = constrain(A[np.ix_(order, order)], b[order], c0, C[np.ix_(order, order)], kind).solutions(ALPHAS)
    np.testing.assert_allclose(shuffled, constrain(A, b, c0, C, kind).solutions(ALPHAS)[:, order], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_each_alpha_has_one_answer_whatever_is_asked_beside_it(problem, kind):
    solutions = constrain(*arrays(problem), kind)
    together = solutions.solutions(ALPHAS[::-1])[::-1]
    alone = np.concatenate([solutions.solutions(ALPHAS[i : i + 1]) for i in range(len(ALPHAS))])
    np.testing.assert_array_equal(together, alone)
    assert solutions.solutions(np.zeros(0)).shape == (0, 5)
    assert solutions.f2(np.zeros(0)).shape == (0,)


def test_one_detector_alone():
    A, b, C = np.array([[4.0]]), np.array([2.0]), np.array([[1.0]])
    alphas = np.array([0.0, 4.0, np.inf])
    np.testing.assert_allclose(
        constrain(A, b, 1.5, C, "nonnegative").solutions(alphas)[:, 0], [0.5, 0.25, 0], atol=1e-11
    )
    simplex = constrain(A, b, 1.5, C, "simplex")
    np.testing.assert_array_equal(simplex.solutions(alphas), np.ones((3, 1)))
    np.testing.assert_allclose(simplex.f1(alphas), 4 - 4 + 1.5, rtol=1e-12)
    assert simplex.alpha_at(0.5) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_one_detector_beside_zero_ones_keeps_all_the_weight(kind):
    A, b, C = np.diag([4.0, 0.0]), np.array([4.0, 0.0]), np.diag([1.0, 0.0])
    np.testing.assert_allclose(constrain(A, b, 4.0, C, kind).solutions(np.zeros(1)), [[1.0, 0.0]], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_alpha_counts_in_units_of_the_misfit(problem, kind, factor):
    A, b, c0, C = arrays(problem)
    alphas = np.r_[ALPHAS, np.inf]
    one, other = constrain(A, b, c0, C, kind), constrain(factor * A, factor * b, factor * c0, C, kind)
    np.testing.assert_allclose(other.solutions(factor * alphas), one.solutions(alphas), atol=1e-7)
    assert other.alpha_at(0.7) == pytest.approx(factor * one.alpha_at(0.7), rel=1e-6)


def test_nothing_to_solve():
    zero = np.zeros((3, 3))
    np.testing.assert_array_equal(constrain(zero, np.zeros(3), 1.5, zero, "nonnegative").solutions(np.ones(1)), 0.0)
    simplex = constrain(zero, np.zeros(3), 1.5, zero, "simplex")
    np.testing.assert_allclose(simplex.solutions(np.ones(1)), 1 / 3, rtol=1e-15)
    assert simplex.f1(np.ones(1))[0] == 1.5


def test_target_that_points_away_gets_zero_weights():
    w = constrain(np.eye(2), np.array([-1.0, -2.0]), 5.0, np.eye(2), "nonnegative").solutions(ALPHAS)
    np.testing.assert_array_equal(w, 0.0)


def slsqp(H, g, k, total):
    """Minimise ``x'Hx + 2g'x`` over ``x >= 0``, and of a fixed sum unless ``total`` is None, by a generic optimiser."""
    found = minimize(
        lambda x: x @ H @ x + 2 * g @ x,
        np.full(k, (total or 1.0) / k),
        jac=lambda x: 2 * (H @ x + g),
        bounds=[(0, None)] * k,
        constraints=[]
        if total is None
        else [{"type": "eq", "fun": lambda x: x.sum() - total, "jac": lambda x: np.ones_like(x)}],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return found.x


@pytest.mark.parametrize("kind", KINDS)
def test_push_of_the_form_is_followed(kind):
    """``x'Ax + alpha (x'Cx + 2c'x + d0)``: a form with a part that no weights remove."""
    A, _, _, C = correlated(6, 6, 0.3, seed=3, gaps=3)
    c = -C @ np.array([0.5, -0.3, 0.8, 0.0, 0.2, -0.1])
    d0 = 2.0 + float(c @ np.linalg.lstsq(C, c, rcond=None)[0])
    solutions = constrain(A, np.zeros(6), 0.0, C, kind, push=(c, d0))
    unit = np.trace(A) / np.trace(C)
    for alpha in (0.0, 0.1 * unit, unit, 100 * unit):
        x = solutions.solutions(np.array([alpha]))[0]
        expected = slsqp(A / unit + alpha / unit * C, alpha / unit * c, 6, 1.0 if kind == "simplex" else None)
        np.testing.assert_allclose(x, expected, atol=2e-5)
        assert solutions.f1(np.array([alpha]))[0] == pytest.approx(x @ A @ x, rel=1e-9, abs=1e-12)
        f2 = x @ C @ x + 2 * c @ x + d0
        assert solutions.f2(np.array([alpha]))[0] == pytest.approx(f2, rel=1e-9)
    assert solutions.f2(np.array([np.inf]))[0] >= 2.0


@pytest.mark.parametrize("total", [0.3, 1.0, 4.0])
def test_shares_have_the_sum_of_the_start(total):
    A, _, _, C = correlated(6, 6, 0.3, seed=3)
    start = total * np.array([0.5, 0.2, 0.0, 0.1, 0.1, 0.1])
    solutions = constrain(A, A @ start, float(start @ A @ start), C, "simplex", start=start)
    unit = np.trace(A) / np.trace(C)
    W = solutions.solutions(unit * np.array([0.0, 0.1, 1.0, 30.0, np.inf]))
    np.testing.assert_array_equal(W[0], start)
    np.testing.assert_allclose(W.sum(axis=1), total, rtol=1e-12)
    assert (W >= 0).all()
    for factor, w in zip((0.1, 1.0, 30.0), W[1:], strict=False):
        expected = slsqp(A / unit + factor * C, -A @ start / unit, 6, total)
        np.testing.assert_allclose(w, expected, atol=1e-4 * total)


@pytest.mark.parametrize("kind", KINDS)
def test_known_start_is_given_back_bit_for_bit(kind):
    A, _, _, C = correlated(18, 6, 1e-6, seed=0)
    start = np.random.default_rng(0).dirichlet(np.ones(18))
    solutions = constrain(A, A @ start, float(start @ A @ start), C, kind, start=start)
    found = solutions.solutions(np.array([0.0, 1e-9, 0.0]))
    np.testing.assert_array_equal(found[[0, 2]], [start, start])
    assert solutions.f1(np.zeros(1))[0] < 1e-12 * (start @ A @ start)
    assert constrain(A, np.zeros(18), 0.0, C, "nonnegative", start=np.zeros(18)).solutions(np.zeros(1)).max() == 0


def test_nonnegative_step_from_nothing_equals_scipy(problem):
    """The anchored problem with weights of at least 0: nonnegative least squares of stacked roots."""
    C = NOTIONS["demographic_parity"].form(problem.cross.whole)[0]
    centred = problem.S - np.average(problem.S, axis=0, weights=problem.beta)
    root = np.sqrt(problem.beta)[:, None] * centred
    values, vectors = np.linalg.eigh(C)
    R = (vectors * np.sqrt(np.maximum(values, 0.0))).T  # R'R = C, over (s, t)
    A, push = root.T @ root, (C[:-1, -1], float(C[-1, -1]))
    solutions = constrain(A, np.zeros(5), 0.0, C[:-1, :-1], "nonnegative", push=push, start=np.zeros(5))
    for alpha in (1.0, 100.0, 1e5):
        stacked = np.vstack([root, np.sqrt(alpha) * R[:, :-1]])
        expected = nnls(stacked, np.r_[np.zeros(80), -np.sqrt(alpha) * R[:, -1]])[0]
        np.testing.assert_allclose(solutions.solutions(np.array([alpha]))[0], expected, atol=1e-8)
