from itertools import combinations

import numpy as np
import pytest
from tests.conftest import folded

from evenout.core.cells import CrossFit, collect_cells, unit_target
from evenout.core.path import TradeoffPath, open_path
from evenout.core.registry import NOTIONS, PARITY
from evenout.exceptions import NoGapWarning
from evenout.metrics import demographic_parity

DP = {"demographic_parity": 1.0}
IF = {"individual": 1.0}
BOTH = {"demographic_parity": 1.0, "individual": 3.0}
ALPHAS = np.array([0.0, 1.0, 10.0, 300.0])
METHODS = ["anchored", "published"]


def refit_out_of_fold(problem, alpha, form, method):
    """Weights of ``(s, t)`` without each fold, by plain linear algebra on the rows of the other folds."""
    found = []
    for fold in range(problem.cross.n_folds):
        rows = problem.folds != fold
        S, t, beta = problem.S[rows], problem.t[rows], problem.beta[rows]
        C = form(problem.Z[rows], problem.groups[rows], problem.X[rows])
        scaled = alpha * rows.sum() / len(rows)
        if method == "published":
            w = np.linalg.solve((S.T * beta) @ S + scaled * C[:-1, :-1], S.T @ (beta * t))
            found.append(np.append(w, 0.0))
        else:
            S = S - np.average(S, axis=0, weights=beta)
            v = np.linalg.solve((S.T * beta) @ S + scaled * C[:-1, :-1], -scaled * C[:-1, -1])
            found.append(np.append(v, 1.0))
    return np.array(found)


def parity_by_hand(Z, groups, X):  # noqa: ARG001
    means = np.array([Z[groups == g].mean(axis=0) for g in range(3)])
    gaps = [means[0] - means[1], means[0] - means[2], means[1] - means[2]]
    return sum(np.outer(gap, gap) for gap in gaps) / 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unknown", [0, 11])
def test_weights_without_a_fold_equal_explicit_refits(make, unknown, method):
    problem = make(unknown=unknown, pairs=False)
    path = TradeoffPath(problem.cross, DP, method=method)
    for alpha in ALPHAS:
        V = path.fold_weights(np.array([alpha]), "unseen")[:, 0]
        expected = refit_out_of_fold(problem, alpha, parity_by_hand, method)
        np.testing.assert_allclose(V, expected, rtol=1e-6, atol=1e-9)
        assert path.bias(alpha) == pytest.approx(PARITY.bias(problem.cross, expected[:, None])[0], rel=1e-6)
        assert path.choice(alpha) == pytest.approx(PARITY.choice(problem.cross, expected[:, None])[0], rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_unseen_individual_equals_explicit_refits(problem, method):
    """Held-out pairs are those with both rows in one fold; the distances keep the range of all cross-group pairs."""
    X, groups, folds = problem.X, problem.groups, problem.folds
    distance = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    cross = groups[:, None] != groups[None]
    low, high = distance[cross].min(), distance[cross].max()
    M = np.exp(-(distance - low) / (high - low))

    def form(Z, g, rows_X):
        rows = np.array([np.flatnonzero((x == X).all(axis=1))[0] for x in rows_X])
        C = np.zeros((Z.shape[1], Z.shape[1]))
        for p, q in combinations(range(3), 2):
            P, Q = np.flatnonzero(g == p), np.flatnonzero(g == q)
            D = Z[P][:, None] - Z[Q][None]
            C += np.einsum("ij,ijk,ijl->kl", M[np.ix_(rows[P], rows[Q])], D, D) / (len(P) * len(Q)) / 3
        return C

    path = TradeoffPath(problem.cross, IF, method=method)
    for alpha in (0.0, 50.0):
        V = refit_out_of_fold(problem, alpha, form, method)
        squared = mass = 0.0
        for f in range(5):
            y = problem.Z @ V[f]
            held = (folds[:, None] == f) & (folds[None] == f)
            pairs = [held & (groups[:, None] == p) & (groups[None] == q) for p, q in combinations(range(3), 2)]
            gaps = M * (y[:, None] - y[None]) ** 2 / y.var()
            squared = squared + np.array([gaps[pair].sum() for pair in pairs])
            mass = mass + np.array([M[pair].sum() for pair in pairs])
        assert path.bias(alpha) == pytest.approx((squared / mass).mean(), rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise_aware", [False, True])
@pytest.mark.parametrize("fairness", [DP, IF])
def test_f1_and_f2_equal_their_definitions_on_scores(problem, fairness, noise_aware, method):
    path = TradeoffPath(problem.cross, fairness, method=method, noise_aware=noise_aware)
    C = NOTIONS[next(iter(fairness))].form(problem.cross.whole)[0]
    for alpha in ALPHAS:
        y = path.mixture(alpha).apply(problem.S, problem.t)
        off = y - problem.t
        if method == "anchored":  # a shift of all scores is free, and the columns are centred: there is none
            assert np.average(off, weights=problem.beta) == pytest.approx(0.0, abs=1e-12)
        assert path.f1(alpha) == pytest.approx(problem.beta @ off**2, rel=1e-8, abs=1e-15)
        V = path.fold_weights(np.array([alpha]), "training")[0, 0]
        assert path.f2(alpha) == pytest.approx(V @ C @ V, rel=1e-6)
        if fairness == DP:
            raw = demographic_parity(y, sensitive_features=problem.groups)
            assert path.f2(alpha) == pytest.approx(raw, rel=1e-6, abs=1e-15)
    assert path.f1(ALPHAS.reshape(2, 2)).shape == path.f2(ALPHAS.reshape(2, 2)).shape == (2, 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", ["free", "nonnegative", "simplex"])
def test_f1_never_falls_and_f2_never_rises(problem, constraint, method):
    path = TradeoffPath(problem.cross, DP, method=method, constraint=constraint)
    alphas = np.r_[0.0, np.geomspace(1e-6, 1e12, 120), np.inf]
    f1, f2 = path.f1(alphas), path.f2(alphas)
    assert (np.diff(f1) >= -1e-9 * f1[-1]).all()
    assert (np.diff(f2) <= 1e-12 * f2[0]).all()


def test_alpha_zero_is_the_base_score(problem):
    for noise_aware in (False, True):
        path = TradeoffPath(problem.cross, DP, noise_aware=noise_aware)
        assert (path.mixture(0.0).apply(problem.S, problem.t) == problem.t).all()
        assert path.f1(0.0) == 0.0
        assert path.correlation(0.0) == pytest.approx(1.0, abs=1e-12)
        for target in ("unseen", "training"):
            assert path.bias(0.0, target) == pytest.approx(path.target_bias(target), rel=1e-12)
            assert path.reduction(0.0, target) == pytest.approx(0.0, abs=1e-12)


def test_published_start_is_the_projection_and_not_the_base_score(problem):
    path = TradeoffPath(problem.cross, DP, method="published")
    root = np.sqrt(problem.beta)
    w = np.linalg.lstsq(problem.S * root[:, None], problem.t * root, rcond=None)[0]
    np.testing.assert_allclose(path.weights(0.0), w, rtol=1e-7)
    assert path.mixture(0.0).target == 0.0
    assert abs(path.reduction(0.0, "training")) > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_correlation_is_that_of_the_scores(problem, method):
    path = TradeoffPath(problem.cross, DP, method=method)
    for alpha in ALPHAS:
        y = path.mixture(alpha).apply(problem.S, problem.t)
        assert path.correlation(alpha) == pytest.approx(np.corrcoef(y, problem.t)[0, 1], rel=1e-8)


def test_correlation_counts_rows_by_weight(make):
    weight = np.random.default_rng(0).random(80)
    problem = make(sample_weight=weight, pairs=False)
    path = TradeoffPath(problem.cross, DP)
    y = path.mixture(30.0).apply(problem.S, problem.t)
    cov = np.cov(y, problem.t, aweights=weight)
    assert path.correlation(30.0) == pytest.approx(cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]), rel=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_training_bias_is_the_plain_scale_free_measure(problem, method):
    path = TradeoffPath(problem.cross, DP, method=method)
    for alpha in ALPHAS:
        y = path.mixture(alpha).apply(problem.S, problem.t)
        expected = demographic_parity(y, sensitive_features=problem.groups, scale_free=True)
        assert path.bias(alpha, "training") == pytest.approx(expected, rel=1e-7, abs=1e-14)
    expected = demographic_parity(problem.t, sensitive_features=problem.groups, scale_free=True)
    assert path.target_bias("training") == pytest.approx(expected, rel=1e-9)


def test_weights_of_a_linear_target_are_those_of_the_sum(problem, build):
    base = np.array([0.4, 0.4, 0.0, 0.4, 0.0])
    linear = build(problem.X, problem.S, problem.S @ base, problem.groups, base=base)
    path = TradeoffPath(linear.cross, DP)
    np.testing.assert_array_equal(path.weights(0.0), base)
    for alpha in ALPHAS:
        y = path.mixture(alpha).apply(linear.S, linear.t)
        assert np.ptp(y - linear.S @ path.weights(alpha)) < 1e-10


def test_methods_are_vectorised(problem):
    path = TradeoffPath(problem.cross, DP)
    square = ALPHAS.reshape(2, 2)
    assert path.weights(1.0).shape == (5,)
    assert path.weights(square).shape == (2, 2, 5)
    for method in (
        path.f1,
        path.f2,
        path.bias,
        path.choice,
        path.reduction,
        path.correlation,
        path.standard_error,
    ):
        assert method(square).shape == (2, 2)
        assert method(square)[1, 0] == pytest.approx(method(10.0))
        assert np.shape(method(10.0)) == ()
    for end, alone in zip(path.interval(square), path.interval(10.0), strict=True):
        assert end.shape == (2, 2)
        assert end[1, 0] == pytest.approx(alone)
    assert path.fold_weights(ALPHAS, "unseen").shape == (5, 4, 6)
    assert path.fold_weights(ALPHAS, "training").shape == (1, 4, 6)


def test_notion_that_says_nothing_of_the_target_has_no_reduction(make):
    path = TradeoffPath(make(own=np.eye(5), pairs=False).cross, {"own": 1.0})
    assert path.target_bias() == 0.0
    assert np.isnan(path.reduction(ALPHAS)).all()
    assert not path.gap_detected
    assert np.isnan(path.gap_p_value)


def test_own_form_of_a_linear_target_is_compared_with_it(make, summed):
    base = np.full(5, 0.2)
    rows = make(pairs=False)
    cells = collect_cells(rows.S, rows.S @ base, rows.beta, rows.groups, rows.folds, n_groups=3, n_sets=5)
    path = TradeoffPath(summed(folded(cells, base), own=np.diag([1.0, 0, 0, 0, 0])), {"own": 1.0})
    start, far = path.weights(np.array([0.0, 1e6]))
    np.testing.assert_array_equal(start, base)
    assert abs(far[0]) < 1e-3  # the detector that the form is about is gone
    assert path.target_bias("training") == pytest.approx(0.04 / (rows.S @ base).var(), rel=1e-9)
    assert path.reduction(1e6) > 0.99
    assert path.reduction_interval(1e6)[0] > 0.9  # by the spread over the folds


def test_two_notions_without_a_group_gap_become_one(make):
    even, uneven = make((80, 60), gap=0.0, seed=1), make((80, 60), gap=6.0)
    assert not TradeoffPath(even.cross, DP).gap_detected
    with pytest.warns(NoGapWarning, match="only individual fairness"):
        path = open_path(even.cross, BOTH, noise_aware=True, constraint="simplex", method="published")
    assert (path.fairness, path.noise_aware, path.constraint) == (IF, True, "simplex")
    assert path.method == "published"
    assert open_path(uneven.cross, BOTH).fairness == BOTH
    assert open_path(even.cross, DP).fairness == DP  # one notion is kept, and nothing said of it yet


def test_covariances_of_two_notions_add_as_if_independent(problem):
    path = TradeoffPath(problem.cross, BOTH)
    V = path.fold_weights(ALPHAS, "unseen")
    parts = [
        (weight / NOTIONS[name].target_bias(problem.cross)[0]) ** 2 * NOTIONS[name].covariance(problem.cross, V)
        for name, weight in BOTH.items()
    ]
    np.testing.assert_allclose(path.covariance(ALPHAS), sum(parts) / 16, rtol=1e-9)
    np.testing.assert_allclose(path.standard_error(ALPHAS) ** 2, np.diag(sum(parts) / 16)[:-1], rtol=1e-9)


def test_both_notions_measure_in_units_of_the_target(problem):
    path = TradeoffPath(problem.cross, BOTH)
    assert path.target_bias("training") == path.target_bias("unseen") == 1.0
    whole, V = problem.cross.whole, path.fold_weights(np.array([5.0]), "training")[0]
    unit = unit_target(whole)[0]
    shares = {
        name: NOTIONS[name].training_bias(whole, V)[0] / NOTIONS[name].training_bias(whole, unit)[0] for name in BOTH
    }
    expected = (shares["demographic_parity"] + 3 * shares["individual"]) / 4
    assert path.bias(5.0, "training") == pytest.approx(expected)
    assert path.bias(0.0, "training") == pytest.approx(1.0)
    assert path.bias(0.0) == pytest.approx(1.0)


def test_errors_are_those_of_the_notion(problem):
    path = TradeoffPath(problem.cross, DP)
    V = path.fold_weights(ALPHAS, "unseen")
    cov = PARITY.covariance(problem.cross, V)
    np.testing.assert_allclose(path.covariance(ALPHAS), cov, rtol=1e-9)
    np.testing.assert_allclose(path.standard_error(ALPHAS), np.sqrt(np.diag(cov)[:-1]), rtol=1e-9)
    assert path.target_standard_error() == pytest.approx(np.sqrt(cov[-1, -1]), rel=1e-9)
    assert path.reduction_error(0.0) == 0.0  # the base score itself
    for i, alpha in enumerate(ALPHAS):
        if alpha == 0:
            continue
        left = 1.0 - path.reduction(alpha)
        slope = np.array([1.0, -left]) / path.target_bias()
        variance = max(slope @ cov[np.ix_([i, 4], [i, 4])] @ slope, 0.0)
        assert path.reduction_error(alpha) == pytest.approx(np.sqrt(variance), rel=1e-6)


def test_intervals_hold_their_estimate_and_grow_with_confidence(make):
    problem = make((200, 150, 100), gap=2.0)
    for fairness in (DP, IF, BOTH):
        path = TradeoffPath(problem.cross, fairness)
        for alpha in (0.0, 10.0, 1000.0):
            bias, share = path.bias(alpha), path.reduction(alpha)
            inner, outer = path.interval(alpha, 0.8), path.interval(alpha)
            assert 0 <= outer[0] <= inner[0] <= max(bias, 0.0) <= inner[1] <= outer[1]
            inner, outer = path.reduction_interval(alpha, 0.8), path.reduction_interval(alpha)
            assert outer[0] <= inner[0] <= min(share, 1.0) <= inner[1] <= outer[1] <= 1.0


def test_base_score_that_may_have_no_bias_leaves_the_reduction_open(make):
    problem = make((40, 30), gap=0.5, pairs=False)
    path = TradeoffPath(problem.cross, DP)
    assert path.target_interval()[0] == 0.0
    assert path.reduction_interval(10.0)[0] == -np.inf


def test_groups_without_any_noise_leave_no_doubt():
    """Each group has one score: bias and interval are the gap itself."""
    groups = np.repeat([0, 1], 20)
    S = np.column_stack([groups, np.tile([0.0, 1.0], 20)])
    cells = collect_cells(S, S[:, 0], np.ones(40), groups, np.arange(40) % 5, n_groups=2, n_sets=5)
    path = TradeoffPath(CrossFit.of_folds(cells), DP)
    assert path.bias(0.0) == pytest.approx(4.0)  # a gap of two standard deviations
    assert path.interval(0.0) == pytest.approx((4.0, 4.0))
    assert path.reduction_interval(0.0) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_no_gap_in_the_population_is_said(make):
    detected = [TradeoffPath(make((80, 60), gap=0.0, seed=s, pairs=False).cross, DP).gap_detected for s in range(60)]
    assert np.mean(detected) < 0.15  # the test's level is 5 %
    seed = detected.index(False)
    path = TradeoffPath(make((80, 60), gap=0.0, seed=seed, pairs=False).cross, DP)
    with pytest.warns(NoGapWarning, match="sampling noise"):
        assert path.alpha_for(0.8) == 0.0


def test_real_gap_is_detected(make):
    assert all(TradeoffPath(make((80, 60), gap=6.0, seed=s, pairs=False).cross, DP).gap_detected for s in range(20))


@pytest.mark.parametrize("method", METHODS)
def test_rows_in_another_order_and_renamed_groups_change_nothing(problem, build, method):
    order = np.random.default_rng(7).permutation(len(problem.t))
    renamed = np.array([2, 0, 1])[problem.groups]
    other = build(problem.X[order], problem.S[order], problem.t[order], renamed[order])
    for fairness in (DP, IF):
        one, two = (TradeoffPath(p.cross, fairness, method=method) for p in (problem, other))
        tolerance = 1e-9 if fairness is DP else 1e-5  # float32 kernels behind the pair sums
        np.testing.assert_allclose(one.weights(ALPHAS), two.weights(ALPHAS), rtol=tolerance, atol=tolerance)
        for measure in (TradeoffPath.bias, TradeoffPath.choice, TradeoffPath.standard_error):
            np.testing.assert_allclose(
                measure(one, ALPHAS), measure(two, ALPHAS), rtol=tolerance * 10, atol=tolerance * 10
            )


def test_table_lists_what_the_methods_say(problem):
    path = TradeoffPath(problem.cross, DP)
    table = path.table(ALPHAS)
    assert list(table.columns) == [
        "alpha",
        "f1",
        "f2",
        "correlation",
        "bias_training",
        "reduction_training",
        "bias_unseen",
        "reduction_unseen",
        "error_unseen",
        "low_unseen",
        "high_unseen",
    ]
    np.testing.assert_allclose(table["bias_unseen"], path.bias(ALPHAS))
    np.testing.assert_allclose(table["low_unseen"], path.interval(ALPHAS)[0])
    np.testing.assert_allclose(table["correlation"], path.correlation(ALPHAS))
    assert path.table()["alpha"].iloc[0] == 0.0
    assert len(path.table()) == 101


def test_bad_alpha_and_target_are_refused(problem):
    path = TradeoffPath(problem.cross, DP)
    with pytest.raises(ValueError, match="alpha must be 0 or larger"):
        path.weights(-1.0)
    with pytest.raises(ValueError, match="alpha must be 0 or larger"):
        path.f1(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="'unseen' or 'training'"):
        path.bias(1.0, "test")


@pytest.mark.parametrize("method", METHODS)
def test_constant_target_has_no_gap(make, method):
    problem = make(pairs=False)
    flat = np.zeros_like(problem.t)
    cells = collect_cells(problem.S, flat, problem.beta, problem.groups, problem.folds, n_groups=3, n_sets=5)
    path = TradeoffPath(CrossFit.of_folds(cells), DP, method=method)
    assert not path.gap_detected
    assert np.isnan(path.reduction(1.0))
    assert path.weights(1.0) == pytest.approx(np.zeros(5))
    assert np.isnan(path.bias(1.0))
    assert np.isnan(path.correlation(1.0))
    assert path.alpha_range(0.001, 0.99) == (0.0, 0.0)
    assert path.grid().shape == (0,)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fairness", [DP, IF])
def test_alpha_range_goes_the_shares_asked_for(problem, fairness, method):
    path = TradeoffPath(problem.cross, fairness, method=method)
    first, there, last = path.f2(np.array([0.0, *path.alpha_range(0.001, 0.99)]))
    end = path.f2(np.inf)
    assert [(first - there) / (first - end), (first - last) / (first - end)] == pytest.approx([0.001, 0.99], rel=1e-5)
    assert path.grid(7)[[0, -1]] == pytest.approx(path.alpha_range(0.001, 0.9999))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", ["nonnegative", "simplex"])
def test_noise_aware_path_gives_a_zero_detector_no_weight(problem, build, constraint, method):
    padded = np.column_stack([problem.S, np.zeros(len(problem.S))])
    cross = build(problem.X, padded, problem.t, problem.groups, pairs=False).cross
    path = TradeoffPath(cross, DP, noise_aware=True, constraint=constraint, method=method)
    W = path.weights(np.r_[ALPHAS, 1e6])
    np.testing.assert_array_equal(W[:, -1], 0.0)
    if method == "published":
        assert (W[:, :-1].sum(axis=1) > 0.01).all()


def test_bias_stays_what_it_is_where_the_weights_vanish(problem):
    path = TradeoffPath(problem.cross, IF, method="published")
    assert np.abs(path.weights(1e200)).max() < 1e-140
    assert path.bias(1e200) == pytest.approx(path.bias(1e20), rel=1e-6)
    assert path.standard_error(1e200) == pytest.approx(path.standard_error(1e20), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_noise_aware_weights_solve_their_equations(problem, method):
    whole = problem.cross.whole
    S = problem.S - (np.average(problem.S, axis=0, weights=problem.beta) if method == "anchored" else 0.0)
    A = (S.T * problem.beta) @ S
    H = A + 1e-4 * np.diag(A).mean() * np.eye(5)
    C = (PARITY.form(whole) + PARITY.noise(whole))[0]
    path = TradeoffPath(problem.cross, DP, noise_aware=True, method=method)
    for alpha in ALPHAS:
        right = problem.S.T @ (problem.beta * problem.t) if method == "published" else -alpha * C[:-1, -1]
        expected = np.linalg.solve(H + alpha * C[:-1, :-1], right)
        np.testing.assert_allclose(path.weights(alpha), expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_noise_aware_path_keeps_nearly_equal_detectors_from_cancelling(problem, build, method):
    """Two detectors that differ by one part in a million, and a target or gaps that need their difference."""
    rng = np.random.default_rng(0)
    twin = problem.S[:, 0] + 1e-6 * (rng.normal(size=len(problem.t)) + problem.groups)
    t = problem.t + 1e5 * (twin - problem.S[:, 0])
    near = build(problem.X, np.column_stack([problem.S, twin]), (t - t.min()) / np.ptp(t), problem.groups)
    published, robust = (
        TradeoffPath(near.cross, DP, noise_aware=aware, method=method).weights(10.0) for aware in (False, True)
    )
    assert np.abs(published).max() > 1e3
    assert np.abs(robust).max() < 10


def test_noise_aware_path_removes_more_of_the_true_gap_as_published():
    """Many detectors, few rows, a small true gap: solved against noise, the population keeps less of it."""
    rng = np.random.default_rng(4)
    left = {False: [], True: []}
    for _ in range(12):
        groups = np.repeat([0, 1], 60)
        direction = rng.uniform(0.5, 1.0, size=25)
        shared = rng.exponential(size=(120, 1))
        S = shared + rng.exponential(size=(120, 25)) + 0.5 * groups[:, None] * direction
        t = S.mean(axis=1)
        cells = collect_cells(S, t, np.ones(120), groups, np.arange(120) % 5, n_groups=2, n_sets=5)
        for aware in left:
            path = TradeoffPath(CrossFit.of_folds(cells), DP, noise_aware=aware, method="published")
            w = path.weights(1e6)
            variance = 1.0 * w.sum() ** 2 + (w**2).sum()  # of the shared and of the own parts
            left[aware].append((0.5 * w @ direction) ** 2 / variance)
    assert np.mean(left[True]) < np.mean(left[False])


def test_detectors_refitted_without_a_fold_are_judged_by_their_own_scores(make, build):
    """Each fold has rows of its own: those outside and inside of it, as seen by what was learnt outside."""
    whole = make((60, 50), pairs=False)
    rng = np.random.default_rng(0)
    views = [
        build(whole.X, whole.S + 0.1 * rng.normal(size=whole.S.shape), whole.t, whole.groups, pairs=False)
        for _ in range(3)
    ]
    folds = whole.folds % 3
    parts = {"training": [], "held": []}
    for f, view in enumerate(views):
        for name, rows in (("training", folds != f), ("held", folds == f)):
            args = (part[rows] for part in (view.S, view.t, view.beta, view.groups))
            zero = np.zeros(rows.sum(), dtype=int)
            parts[name].append(collect_cells(*args, zero, n_groups=2, n_sets=1))
    stacked = {name: type(sets[0]).stacked(sets) for name, sets in parts.items()}
    cross = CrossFit(whole.cross.whole, **stacked)
    path = TradeoffPath(cross, DP)
    for f, view in enumerate(views):
        rows = folds != f
        S, beta = view.S[rows], view.beta[rows]
        C = parity_of_two(view.Z[rows], view.groups[rows])
        S = S - np.average(S, axis=0, weights=beta)
        alpha = 20.0 * rows.mean()
        expected = np.linalg.solve((S.T * beta) @ S + alpha * C[:-1, :-1], -alpha * C[:-1, -1])
        found = path.fold_weights(np.array([20.0]), "unseen")[f, 0]
        np.testing.assert_allclose(found, np.append(expected, 1.0), rtol=1e-7, atol=1e-9)
    assert cross.refitted
    assert np.isfinite(path.bias(20.0))


def parity_of_two(Z, groups):
    gap = Z[groups == 0].mean(axis=0) - Z[groups == 1].mean(axis=0)
    return np.outer(gap, gap)
