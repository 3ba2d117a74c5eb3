import numpy as np
import pytest
from scipy.optimize import minimize

from evenout.core.problem import factorise
from evenout.core.registry import NOTIONS

ALPHAS = np.array([0.0, 1e-3, 0.1, 1.0, 30.0, 1e4, 1e7])
FORMS = {"parity": "demographic_parity", "individual": "individual"}


def _arrays(problem, form):
    """The published problem: A, b, c0 and C."""
    total, C = problem.cross.whole.weighted[0], NOTIONS[FORMS[form]].form(problem.cross.whole)[0]
    return total[1:-1, 1:-1], total[1:-1, -1], float(total[-1, -1]), C[:-1, :-1]


def _anchored(problem, form):
    """The problem with the target as a column: A of centred columns, b = 0, c0 = 0, C, c and d0."""
    C = NOTIONS[FORMS[form]].form(problem.cross.whole)[0]
    centred = problem.S - np.average(problem.S, axis=0, weights=problem.beta)
    A = (centred.T * problem.beta) @ centred
    return A, np.zeros(len(A)), 0.0, C[:-1, :-1], C[:-1, -1], float(C[-1, -1])


@pytest.mark.parametrize("form", FORMS)
def test_weights_have_zero_gradient(problem, form):
    A, b, c0, C = _arrays(problem, form)
    for alpha, w in zip(ALPHAS, factorise(A, b, c0, C).solutions(ALPHAS), strict=True):
        assert np.abs((A + alpha * C) @ w - b).max() < 1e-9 * np.abs(b).max()


@pytest.mark.parametrize("form", FORMS)
def test_anchored_solutions_have_zero_gradient(problem, form):
    A, b, c0, C, c, d0 = _anchored(problem, form)
    for alpha, x in zip(ALPHAS, factorise(A, b, c0, C, c, d0).solutions(ALPHAS), strict=True):
        scale = alpha * np.abs(c).max() + (np.abs(A + alpha * C) @ np.abs(x)).max()
        assert np.abs((A + alpha * C) @ x + alpha * c).max() <= 1e-12 * scale


@pytest.mark.parametrize("form", FORMS)
def test_anchored_solution_starts_at_nothing_exactly(problem, form):
    spectrum = factorise(*_anchored(problem, form))
    assert not spectrum.solutions(np.zeros(1)).any()
    assert spectrum.f1(np.zeros(1)).tolist() == [0.0]
    assert spectrum.f2(np.zeros(1))[0] == pytest.approx(_anchored(problem, form)[-1], rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_anchored_f1_and_f2_equal_their_definitions(problem, form):
    A, b, c0, C, c, d0 = _anchored(problem, form)
    spectrum = factorise(A, b, c0, C, c, d0)
    for x, f1, f2 in zip(spectrum.solutions(ALPHAS), spectrum.f1(ALPHAS), spectrum.f2(ALPHAS), strict=True):
        y = problem.S @ x
        spread = problem.beta @ (y - np.average(y, weights=problem.beta)) ** 2
        assert f1 == pytest.approx(spread, rel=1e-9, abs=1e-20)
        assert f2 == pytest.approx(x @ C @ x + 2 * c @ x + d0, rel=1e-6, abs=1e-12 * d0)


def test_pull_and_push_together(problem):
    """No problem of this package has both; the algebra has."""
    A, b, c0, C = _arrays(problem, "individual")
    c = C @ np.array([0.3, -1.0, 2.0, 0.0, 0.5])
    d0 = float(c @ np.linalg.solve(C, c)) + 0.1
    spectrum = factorise(A, b, c0, C, c, d0)
    for alpha, x in zip(ALPHAS[:-1], spectrum.solutions(ALPHAS[:-1]), strict=True):
        np.testing.assert_allclose(x, np.linalg.solve(A + alpha * C, b - alpha * c), rtol=1e-6, atol=1e-9)
    assert spectrum.f2_least == pytest.approx(0.1, rel=1e-6)
    alpha = spectrum.alpha_at(0.7)
    start, there = spectrum.f2(np.array([0.0, alpha]))
    assert (start - there) / (start - 0.1) == pytest.approx(0.7, rel=1e-6)


def test_infinity_is_the_limit(problem):
    for arrays in (
        _arrays(problem, "parity"),
        _anchored(problem, "parity"),
        _anchored(problem, "individual"),
    ):
        spectrum = factorise(*arrays)
        far, there = spectrum.solutions(np.array([1e13, np.inf]))
        np.testing.assert_allclose(far, there, rtol=1e-5, atol=1e-7)
        assert spectrum.f2(np.array([np.inf]))[0] == pytest.approx(spectrum.f2_least, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("form", FORMS)
def test_weights_equal_generic_optimiser(problem, form):
    A, b, c0, C = _arrays(problem, form)
    S, t, beta = problem.S, problem.t, problem.beta

    def loss(w, alpha):
        return beta @ (S @ w - t) ** 2 + alpha * w @ C @ w

    for alpha in (0.0, 5.0, 500.0):
        found = minimize(loss, np.zeros(S.shape[1]), args=(alpha,), method="BFGS", options={"gtol": 1e-7})
        ours = factorise(A, b, c0, C).solutions(np.array([alpha]))[0]
        assert loss(ours, alpha) <= found.fun * (1 + 1e-9)
        np.testing.assert_allclose(ours, found.x, rtol=1e-3, atol=1e-4)


def test_alpha_zero_is_weighted_least_squares(problem):
    root = np.sqrt(problem.beta)
    expected = np.linalg.lstsq(problem.S * root[:, None], problem.t * root, rcond=None)[0]
    A, b, c0, C = _arrays(problem, "parity")
    np.testing.assert_allclose(factorise(A, b, c0, C).solutions(np.zeros(1))[0], expected, rtol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_f1_and_f2_equal_their_definitions(problem, form):
    A, b, c0, C = _arrays(problem, form)
    spectrum = factorise(A, b, c0, C)
    for alpha, w, f1, f2 in zip(
        ALPHAS, spectrum.solutions(ALPHAS), spectrum.f1(ALPHAS), spectrum.f2(ALPHAS), strict=True
    ):
        assert f1 == pytest.approx(problem.beta @ (problem.S @ w - problem.t) ** 2, rel=1e-9), alpha
        assert f2 == pytest.approx(w @ C @ w, rel=1e-6, abs=1e-18), alpha


@pytest.mark.parametrize("arrays", [_arrays, _anchored])
@pytest.mark.parametrize("form", FORMS)
def test_f1_never_falls_and_f2_never_rises(problem, arrays, form):
    spectrum = factorise(*arrays(problem, form))
    alphas = np.r_[0.0, np.geomspace(1e-8, 1e12, 2000)]
    assert (np.diff(spectrum.f1(alphas)) >= 0).all()
    assert (np.diff(spectrum.f2(alphas)) <= 0).all()


def test_parity_tends_to_zero_while_the_score_does_not(problem):
    spectrum = factorise(*_arrays(problem, "parity"))
    far = np.array([1e14, np.inf])
    assert (spectrum.f2(far) < 1e-20).all()
    assert np.abs(spectrum.solutions(far)).max() > 0.01


def test_anchored_by_hand():
    # x^2 + alpha (x + 1)^2 is least at -alpha / (1 + alpha); what is left of the form, 1 / (1 + alpha)^2, and 0.5
    spectrum = factorise(np.eye(2), np.zeros(2), 0.0, np.diag([1.0, 0.0]), np.array([1.0, 0.0]), 1.5)
    alphas = np.array([0.0, 1.0, 3.0, np.inf])
    np.testing.assert_allclose(spectrum.solutions(alphas)[:, 0], [0.0, -0.5, -0.75, -1.0], atol=1e-15)
    np.testing.assert_array_equal(spectrum.solutions(alphas)[:, 1], 0.0)
    np.testing.assert_allclose(spectrum.f1(alphas), [0.0, 0.25, 0.5625, 1.0], atol=1e-15)
    np.testing.assert_allclose(spectrum.f2(alphas), [1.5, 0.75, 0.5625, 0.5], atol=1e-15)
    assert spectrum.alpha_at(0.75) == pytest.approx(1.0, rel=1e-9)


def test_alpha_at_by_hand():
    # w1 = 1 / (1 + alpha), so that f2 = w1^2 has fallen by three quarters at alpha = 1
    spectrum = factorise(np.eye(2), np.array([1.0, 1.0]), 2.0, np.diag([1.0, 0.0]))
    assert spectrum.alpha_at(0.75) == pytest.approx(1.0, rel=1e-9)
    assert factorise(np.eye(2), np.array([0.0, 1.0]), 1.0, np.diag([1.0, 0.0])).alpha_at(0.75) == 0.0


@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_alpha_counts_in_units_of_the_misfit(problem, factor):
    A, b, c0, C = _arrays(problem, "parity")
    one, other = factorise(A, b, c0, C), factorise(factor * A, factor * b, factor * c0, C)
    np.testing.assert_allclose(other.solutions(factor * ALPHAS), one.solutions(ALPHAS), rtol=1e-6)
    np.testing.assert_allclose(other.f1(factor * ALPHAS), factor * one.f1(ALPHAS), rtol=1e-6)
    assert other.alpha_at(0.7) == pytest.approx(factor * one.alpha_at(0.7), rel=1e-6)


@pytest.mark.parametrize("arrays", [_arrays, _anchored])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fall", [0.01, 0.5, 0.99, 0.9999])
def test_alpha_at_finds_the_share_of_the_way(problem, arrays, form, fall):
    spectrum = factorise(*arrays(problem, form))
    start, there, end = spectrum.f2(np.array([0.0, spectrum.alpha_at(fall), np.inf]))
    assert (start - there) / (start - end) == pytest.approx(fall, rel=1e-6)
    if arrays is _arrays:
        assert end < 1e-9 * start  # all of it can go


def test_duplicate_detectors_share_the_weight_of_one(problem, build):
    twice = build(problem.X, np.column_stack([problem.S, problem.S[:, 0]]), problem.t, problem.groups)
    once, doubled = factorise(*_arrays(problem, "parity")), factorise(*_arrays(twice, "parity"))
    w, v = once.solutions(ALPHAS), doubled.solutions(ALPHAS)
    np.testing.assert_allclose(v[:, 0], v[:, -1], rtol=1e-6)  # minimum norm: equal shares
    np.testing.assert_allclose(twice.S @ v.T, problem.S @ w.T, atol=1e-8)


def test_constant_zero_detector_gets_no_weight(problem, build):
    padded = build(problem.X, np.column_stack([problem.S, np.zeros(len(problem.S))]), problem.t, problem.groups)
    w = factorise(*_arrays(padded, "parity")).solutions(ALPHAS)
    np.testing.assert_array_equal(w[:, -1], 0.0)
    np.testing.assert_allclose(w[:, :-1], factorise(*_arrays(problem, "parity")).solutions(ALPHAS), rtol=1e-7)


def test_all_equal_detectors_act_as_one(problem, build):
    column = problem.S[:, :1]
    same = build(problem.X, np.repeat(column, 4, axis=1), problem.t, problem.groups)
    w = factorise(*_arrays(same, "parity")).solutions(np.zeros(1))[0]
    expected = (problem.beta * problem.t) @ column[:, 0] / (problem.beta @ column[:, 0] ** 2)
    np.testing.assert_allclose(w, expected / 4, rtol=1e-9)


def test_form_that_sees_the_null_space():
    A = np.diag([2.0, 1.0, 0.0])
    v = np.array([1.0, 0.0, 1.0])  # C pulls on the third weight, of which A knows nothing
    spectrum = factorise(A, np.array([2.0, 1.0, 0.0]), 3.0, np.outer(v, v))
    for alpha, w in zip(ALPHAS, spectrum.solutions(ALPHAS), strict=True):
        np.testing.assert_allclose((A + alpha * np.outer(v, v)) @ w, [2.0, 1.0, 0.0], atol=1e-9 + 1e-14 * alpha)
    assert np.isfinite(spectrum.solutions(ALPHAS)).all()
    # The free weight cancels the bias at no cost, so every alpha above 0 reaches f2 = 0 and keeps f1.
    np.testing.assert_allclose(spectrum.f2(ALPHAS[1:]), 0.0, atol=1e-12)
    np.testing.assert_allclose(spectrum.f1(ALPHAS), spectrum.f1_least, atol=1e-12)


def test_direction_that_only_the_form_sees_gets_no_weight():
    rounding = 1e-17  # of a sum that is 0
    b, C = np.array([2.0, 1.0, rounding]), np.diag([0.0, 0.0, 1.0])
    spectrum = factorise(np.diag([1.0, 1.0, 0.0]), b, 6.0, C)
    np.testing.assert_allclose(spectrum.solutions(ALPHAS), [[2.0, 1.0, 0.0]] * len(ALPHAS), rtol=1e-12)
    np.testing.assert_allclose(spectrum.f1(ALPHAS), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(spectrum.f2(ALPHAS), 0.0)
    assert spectrum.alpha_at(0.5) == 0.0


def test_form_without_any_bias_leaves_the_weights_alone(problem):
    A, b, c0, C = _arrays(problem, "parity")
    spectrum = factorise(A, b, c0, np.zeros_like(C))
    np.testing.assert_allclose(spectrum.solutions(ALPHAS), [np.linalg.solve(A, b)] * len(ALPHAS), rtol=1e-8)
    np.testing.assert_array_equal(spectrum.f2(ALPHAS), 0.0)
    assert spectrum.alpha_at(0.5) == 0.0


def test_nothing_to_solve_gives_zero_weights():
    spectrum = factorise(np.zeros((2, 2)), np.zeros(2), 1.5, np.zeros((2, 2)))
    np.testing.assert_array_equal(spectrum.solutions(np.array([0.0, 1.0])), np.zeros((2, 2)))
    assert spectrum.f1(np.zeros(1))[0] == 1.5
    assert spectrum.alpha_at(0.5) == 0.0
