from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from evenout.core.notions import combined_form
from evenout.core.problem import METHODS, WEIGHTS, Mixture, solve
from evenout.core.registry import NOTIONS, PARITY, weighted_notions

ALPHAS = np.array([0.0, 0.1, 1.0, 10.0, 300.0, 1e5])
ALWAYS = {"ridge": 0.0, "constraint": "free", "method": "anchored"}


@pytest.fixture(scope="module")
def linear():
    """Weights of a base ensemble that is a mean of three of the five detectors."""
    return np.array([0.5, 0.0, 0.7, 0.0, 0.5])


@pytest.fixture
def averaged(problem, build, linear):
    """The same rows with a target that is linear in the detectors, up to a shift."""
    return build(problem.X, problem.S, problem.S @ linear - 0.2, problem.groups, base=linear)


def solutions(problem, notion="demographic_parity", **changes):
    cells = problem.cross.whole
    return solve(cells, 0, NOTIONS[notion].form(cells)[0], **(ALWAYS | changes))


def weights(found, alphas):
    """Weights of the detectors, including those in t where t is linear in them."""
    return found.mixed(alphas)[:, :-1] + found.base


def mixture(found, alpha):
    V = found.mixed(np.array([alpha]))[0]
    return Mixture(V[:-1], found.centre, float(V[-1]))


def centred(problem, columns):
    return columns - np.average(columns, axis=0, weights=problem.beta)


def gap_root(problem):
    """``R`` with ``|R (v, u)|^2`` the parity of ``S v + u t``, from the means of three groups."""
    means = [problem.Z[problem.groups == g].mean(axis=0) for g in range(3)]
    return np.array([means[0] - means[1], means[0] - means[2], means[1] - means[2]]) / np.sqrt(3)


def loss(problem, alpha, V):
    """``sum beta (y - t)^2``, a shift of all scores being free, plus alpha times the parity of ``y = (S, t) V``."""
    y = problem.Z @ V
    off = centred(problem, y - problem.t)
    return problem.beta @ off**2 + alpha * ((gap_root(problem) @ V) ** 2).sum()


@pytest.mark.parametrize("notion", ["demographic_parity", "individual"])
def test_anchored_solution_equals_a_dense_solve(problem, notion):
    C = NOTIONS[notion].form(problem.cross.whole)[0]
    S = centred(problem, problem.S)
    A = (S.T * problem.beta) @ S
    V = solutions(problem, notion).mixed(ALPHAS)
    for alpha, v in zip(ALPHAS, V, strict=True):
        expected = np.linalg.solve(A + alpha * C[:-1, :-1], -alpha * C[:-1, -1])
        np.testing.assert_allclose(v[:-1], expected, rtol=1e-7, atol=1e-10)
    np.testing.assert_array_equal(V[:, -1], 1.0)


def test_anchored_solution_equals_least_squares_over_rows(problem):
    """An intercept of its own, and the gaps of group means as three more rows."""
    root, R = np.sqrt(problem.beta)[:, None], gap_root(problem)
    for alpha, v in zip(ALPHAS, solutions(problem).mixed(ALPHAS), strict=True):
        rows = root * np.column_stack([problem.S, np.ones(80)])
        rows = np.vstack([rows, np.sqrt(alpha) * np.column_stack([R[:, :-1], np.zeros(3)])])
        expected = np.linalg.lstsq(rows, np.r_[np.zeros(80), -np.sqrt(alpha) * R[:, -1]], rcond=None)[0]
        np.testing.assert_allclose(v[:-1], expected[:-1], rtol=1e-6, atol=1e-9)


def test_published_solution_equals_a_dense_solve(problem):
    C = PARITY.form(problem.cross.whole)[0, :-1, :-1]
    A, b = (problem.S.T * problem.beta) @ problem.S, problem.S.T @ (problem.beta * problem.t)
    found = solutions(problem, method="published")
    for alpha, v in zip(ALPHAS, found.mixed(ALPHAS), strict=True):
        np.testing.assert_allclose(v[:-1], np.linalg.solve(A + alpha * C, b), rtol=1e-7)
        assert v[-1] == 0.0
    np.testing.assert_array_equal(weights(found, ALPHAS), found.mixed(ALPHAS)[:, :-1])
    assert not found.centre.any()


def test_ridge_adds_a_ten_thousandth_of_the_mean_diagonal(problem):
    C = PARITY.form(problem.cross.whole)[0]
    S = centred(problem, problem.S)
    for method, columns in (("anchored", S), ("published", problem.S)):
        A = (columns.T * problem.beta) @ columns
        A = A + 1e-4 * np.diag(A).mean() * np.eye(5)
        b = np.zeros(5) if method == "anchored" else problem.S.T @ (problem.beta * problem.t)
        c = C[:-1, -1] if method == "anchored" else np.zeros(5)
        V = solutions(problem, method=method, ridge=1e-4).mixed(ALPHAS)
        for alpha, v in zip(ALPHAS, V, strict=True):
            expected = np.linalg.solve(A + alpha * C[:-1, :-1], b - alpha * c)
            np.testing.assert_allclose(v[:-1], expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("constraint", WEIGHTS)
@pytest.mark.parametrize("ridge", [0.0, 1e-4, 0.1])
def test_alpha_zero_is_the_target_bit_for_bit(problem, averaged, constraint, ridge):
    rng = np.random.default_rng(0)
    S, t = rng.normal(size=(50, 5)) * 10.0 ** rng.integers(-9, 9, (50, 5)), rng.random(50)
    for rows in (problem, averaged):
        found = solutions(rows, constraint=constraint, ridge=ridge)
        np.testing.assert_array_equal(mixture(found, 0.0).apply(S, t), t)
        np.testing.assert_array_equal(found.mixed(np.zeros(1)), [[0, 0, 0, 0, 0, 1]])
        np.testing.assert_array_equal(weights(found, np.zeros(1))[0], found.base)


def generic(problem, alpha, constraint, base):
    """The best weights of ``(s, t)`` by a generic optimiser, with v + base, v, or (v, target) constrained."""
    linear = base is not None

    def full(x):
        if constraint == "simplex" and not linear:
            return x
        return np.append(x - base if linear else x, 1.0)

    x0 = base if linear else np.zeros(5) if constraint == "nonnegative" else np.eye(6)[-1]
    unit = loss(problem, alpha, full(x0)) + 1.0
    total = {"type": "eq", "fun": lambda x: x.sum() - x0.sum()}
    found = minimize(
        lambda x: loss(problem, alpha, full(x)) / unit,
        x0,
        bounds=[(0, None)] * len(x0),
        constraints=[total] if constraint == "simplex" else [],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return full(found.x)


@pytest.mark.parametrize("constraint", WEIGHTS[1:])
@pytest.mark.parametrize("linear_base", [False, True])
def test_constrained_solution_equals_a_generic_optimiser(problem, averaged, linear, constraint, linear_base):
    rows = averaged if linear_base else problem
    found = solutions(rows, constraint=constraint)
    for alpha in (1.0, 30.0, 3000.0):
        V = found.mixed(np.array([alpha]))[0]
        expected = generic(rows, alpha, constraint, linear if linear_base else None)
        assert loss(rows, alpha, V) <= loss(rows, alpha, expected) * (1 + 1e-7) + 1e-9
        np.testing.assert_allclose(V, expected, atol=5e-3)


def test_constraints_bind_on_what_they_are_meant_for(problem, averaged, linear):
    for rows, base in ((problem, None), (averaged, linear)):
        free, above, shares = (solutions(rows, constraint=c) for c in WEIGHTS)
        assert (weights(free, ALPHAS) < 0).any()
        assert (weights(above, ALPHAS) >= 0).all()
        assert (weights(shares, ALPHAS) >= 0).all()
        np.testing.assert_array_equal(above.mixed(ALPHAS)[:, -1], 1.0)
        if base is None:  # of v and the target together
            np.testing.assert_allclose(shares.mixed(ALPHAS).sum(axis=1), 1.0, rtol=1e-12)
            assert (shares.mixed(ALPHAS)[:, -1] >= 0).all()
        else:  # of the weights that the detectors have in the sum
            np.testing.assert_allclose(weights(shares, ALPHAS).sum(axis=1), base.sum(), rtol=1e-12)
            assert (shares.mixed(ALPHAS)[:, :-1] < 0).any()  # some go down, from what they have in t


def test_nonnegative_weights_beside_the_target_equal_scipy(problem):
    root, R = np.sqrt(problem.beta)[:, None] * centred(problem, problem.S), gap_root(problem)
    found = solutions(problem, constraint="nonnegative").mixed(ALPHAS)
    for alpha, v in zip(ALPHAS, found, strict=True):
        stacked = np.vstack([root, np.sqrt(alpha) * R[:, :-1]])
        expected = nnls(stacked, np.r_[np.zeros(80), -np.sqrt(alpha) * R[:, -1]])[0]
        np.testing.assert_allclose(v[:-1], expected, atol=1e-7)


def test_nonnegative_weights_of_a_linear_target_equal_scipy(averaged, linear):
    root, R = np.sqrt(averaged.beta)[:, None] * centred(averaged, averaged.S), gap_root(averaged)
    found = weights(solutions(averaged, constraint="nonnegative"), ALPHAS)
    for alpha, w in zip(ALPHAS, found, strict=True):
        expected = nnls(np.vstack([root, np.sqrt(alpha) * R[:, :-1]]), np.r_[root @ linear, np.zeros(3)])[0]
        np.testing.assert_allclose(w, expected, atol=1e-7)


def test_free_weights_need_not_know_whether_the_target_is_linear(averaged, linear):
    cells = averaged.cross.whole
    known = solutions(averaged)
    unknown = solve(replace(cells, base=None), 0, PARITY.form(cells)[0], **ALWAYS)
    np.testing.assert_array_equal(known.mixed(ALPHAS), unknown.mixed(ALPHAS))
    np.testing.assert_array_equal(weights(known, ALPHAS), weights(unknown, ALPHAS) + linear)
    # y is S w, up to a shift
    y = averaged.Z @ known.mixed(ALPHAS).T
    assert np.ptp(y - averaged.S @ weights(known, ALPHAS).T, axis=0).max() < 1e-10


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", WEIGHTS)
def test_each_set_is_solved_on_its_own_rows(problem, build, method, constraint):
    training = problem.cross.training
    forms = combined_form(training, weighted_notions({"demographic_parity": 1.0}))
    for fold in (0, 3):
        rows = problem.folds != fold
        alone = build(problem.X[rows], problem.S[rows], problem.t[rows], problem.groups[rows], pairs=False)
        beta = problem.beta[rows] / alone.beta  # ranks among all rows, and among these
        assert np.ptp(beta) > 0
        cells = replace(alone.cross.whole, weighted=training.weighted[fold : fold + 1])
        settings = {"method": method, "constraint": constraint, "ridge": 1e-4}
        one = solve(training, fold, forms[fold], **settings).mixed(ALPHAS)
        two = solve(cells, 0, PARITY.form(cells)[0], **settings).mixed(ALPHAS)
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)


def test_mixture_scores_each_row_by_itself(problem):
    score = mixture(solutions(problem), 30.0)
    S, t = problem.S, problem.t
    centre = np.average(S, axis=0, weights=problem.beta)
    np.testing.assert_allclose(score.centre, centre, rtol=1e-12)
    np.testing.assert_allclose(score.apply(S, t), t + (S - centre) @ score.weights, rtol=1e-10)
    alone = np.concatenate([score.apply(S[i : i + 1], t[i : i + 1]) for i in range(80)])
    np.testing.assert_array_equal(score.apply(S, t), alone)
    parts = score.parts(S, t)
    assert parts.shape == (80, 6)
    np.testing.assert_allclose(parts.sum(axis=1), score.apply(S, t), rtol=1e-12)
    np.testing.assert_array_equal(parts[:, -1], t)


def test_mixture_by_hand():
    mixture = Mixture(np.array([2.0, -1.0]), np.array([0.5, 0.25]), 0.5)
    S, t = np.array([[1.0, 1.0], [0.5, 0.25]]), np.array([4.0, 6.0])
    np.testing.assert_array_equal(mixture.apply(S, t), [2.0 + 1.0 - 0.75, 3.0])
    np.testing.assert_array_equal(mixture.parts(S, t), [[1.0, -0.75, 2.0], [0.0, 0.0, 3.0]])


def test_shift_of_all_scores_of_a_detector_changes_nothing(problem, build):
    moved = build(problem.X, problem.S + np.array([3.0, -1.0, 0.0, 0.5, 9.0]), problem.t, problem.groups)
    for constraint in WEIGHTS:
        one, two = (solutions(rows, constraint=constraint) for rows in (problem, moved))
        np.testing.assert_allclose(two.mixed(ALPHAS), one.mixed(ALPHAS), rtol=1e-5, atol=1e-8)
        fair = [mixture(s, 30.0).apply(r.S, r.t) for s, r in ((one, problem), (two, moved))]
        np.testing.assert_allclose(*fair, atol=1e-8)


@pytest.mark.parametrize("constraint", WEIGHTS)
def test_constant_target_stays_what_it_is(problem, build, constraint):
    flat = build(problem.X, problem.S, np.zeros(80), problem.groups)
    for base in (None, np.zeros(5)):
        cells = replace(flat.cross.whole, base=None if base is None else base[None])
        found = solve(cells, 0, PARITY.form(cells)[0], **(ALWAYS | {"constraint": constraint}))
        np.testing.assert_array_equal(found.mixed(ALPHAS), np.tile(np.eye(6)[-1], (len(ALPHAS), 1)))


def test_detector_that_is_zero_gets_no_weight(problem, build):
    padded = build(problem.X, np.column_stack([problem.S, np.zeros(80)]), problem.t, problem.groups)
    for constraint in WEIGHTS:
        for method in METHODS:
            settings = {"constraint": constraint, "method": method, "ridge": 1e-4}
            W = weights(solutions(padded, **settings), ALPHAS)
            np.testing.assert_array_equal(W[:, -1], 0.0)
            expected = weights(solutions(problem, **settings), ALPHAS)
            # The ridge is a share of the mean over the diagonal, which has one more entry here.
            np.testing.assert_allclose(W[:, :-1], expected, rtol=1e-2, atol=1e-3)
