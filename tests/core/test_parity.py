from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from evenout.core.cells import CrossFit, collect_cells, fold_variances, rank_weights, unit_target, variances
from evenout.core.content import assign_folds
from evenout.core.membership import Comparison
from evenout.core.parity import FoldMeans, _HeldOut, mean_covariances
from evenout.core.path import TradeoffPath
from evenout.core.registry import PARITY
from evenout.metrics import demographic_parity, no_gap_test


def fold_bias(cross, V):
    """Bias of the folds' own weights, nothing taken off for the rows that they were solved without."""
    return _HeldOut.on(cross, V).bias


SIZES = [(30, 12), (25, 14, 9), (20, 15, 8, 5)]


@pytest.fixture(params=["plain", "weighted", "clustered", "both"])
def counted(make, build, request):
    """Three groups and rows of none, counted in each of the ways in which rows can be."""
    rows, rng = make((60, 40, 30), unknown=7, gap=3.0, pairs=False), np.random.default_rng(8)
    weight = rng.integers(0, 3, 137) * rng.random(137) + (rng.random(137) < 0.5)
    codes = rng.integers(0, 60, 137) % (np.bincount(rows.groups + 1) // 2)[rows.groups + 1]
    clusters = np.unique(100 * rows.groups + codes, return_inverse=True)[1]
    return build(
        rows.X,
        rows.S,
        rows.t,
        rows.groups,
        pairs=False,
        sample_weight=weight if request.param in ("weighted", "both") else None,
        clusters=clusters if request.param in ("clustered", "both") else None,
    )


def varied_weights(problem):
    """Weights of two scores that take part of the gap away, different from fold to fold, shape (K, 2, k + 1)."""
    path = TradeoffPath(problem.cross, {"demographic_parity": 1.0})
    return path.fold_weights(np.array([10.0, 1000.0]), "unseen")


def weights_of(problem):
    return np.ones(len(problem.t)) if problem.sample_weight is None else problem.sample_weight


def clusters_of(problem):
    return np.arange(len(problem.t)) if problem.clusters is None else problem.clusters


def literal_group(y, rows, problem):
    """Mean of a score in some rows of one group, the noise of this mean, and the effective size; row by row."""
    w, clusters = weights_of(problem), clusters_of(problem)
    n = sum(w[i] for i in rows)
    mean = sum(w[i] * y[i] for i in rows) / n
    sums, sizes = {}, {}
    for i in rows:
        sums[clusters[i]] = sums.get(clusters[i], 0.0) + w[i] * (y[i] - mean)
        sizes[clusters[i]] = sizes.get(clusters[i], 0.0) + w[i]
    e = n**2 / sum(size**2 for size in sizes.values())
    return mean, e / (e - 1) * sum(u**2 for u in sums.values()) / n**2, e


def literal_gap(y, rows, problem):
    """Mean squared gap over pairs of groups among some rows, and what noise adds to it."""
    found = [
        literal_group(y, np.flatnonzero(rows & (problem.groups == g)), problem)[:2] for g in range(problem.n_groups)
    ]
    pairs = list(combinations(found, 2))
    gap = np.mean([(p[0] - q[0]) ** 2 for p, q in pairs])
    return gap, np.mean([p[1] + q[1] for p, q in pairs])


def literal_variance(y, problem):
    w = weights_of(problem)
    return np.average((y - np.average(y, weights=w)) ** 2, weights=w)


def literal_base(problem):
    """The base score's bias on held-out rows: each fold in units of its own, less its mean over groups."""
    y, w = problem.t / np.sqrt(literal_variance(problem.t, problem)), weights_of(problem)
    K, G = problem.cross.n_folds, problem.n_groups
    mean, noise, size = np.zeros((K, G)), np.zeros((K, G)), np.zeros((K, G))
    for f in range(K):
        for g in range(G):
            rows = np.flatnonzero((problem.folds == f) & (problem.groups == g))
            mean[f, g], noise[f, g], _ = literal_group(y, rows, problem)
            size[f, g] = w[rows].sum()
        mean[f] -= mean[f].mean()
    portion = size / size.sum(axis=0)
    pooled, left = (portion * mean).sum(axis=0), (portion**2 * noise).sum(axis=0)
    pairs = list(combinations(range(G), 2))
    return np.mean([(pooled[p] - pooled[q]) ** 2 - left[p] - left[q] for p, q in pairs])


def literal_biases(problem, V):
    """Bias on held-out rows of the folds' weights and of the fit's, by the formulas that `bias` states."""
    w, grouped = weights_of(problem), problem.groups >= 0
    K = problem.cross.n_folds
    share = np.array([w[grouped & (problem.folds == f)].sum() for f in range(K)])
    share = share / share.sum()
    of_folds = learnt = kept = 0.0
    for f in range(K):
        inside, outside = problem.folds == f, problem.folds != f
        scores = {"fair": problem.Z @ V[f], "base": problem.t}
        unseen, solved, raw = {}, {}, {}
        for name, y in scores.items():
            y = y / np.sqrt(literal_variance(y, problem))
            unseen[name] = np.subtract(*literal_gap(y, inside, problem))
            raw[name], noise = literal_gap(y, outside, problem)
            solved[name] = raw[name] - noise
        removed = 1.0 - np.sqrt(min(raw["fair"] / raw["base"], 1.0))
        of_folds += share[f] * (unseen["fair"] - unseen["base"])
        learnt += share[f] * removed / 2 * (unseen["fair"] - solved["fair"])
        kept += share[f] * w[outside].sum() / w.sum()
    of_folds += literal_base(problem)
    return of_folds, of_folds - (1 - kept) * learnt


def test_group_means_and_their_noise_equal_literal_loops(counted):
    cells, rng = counted.cross.whole, np.random.default_rng(0)
    v = rng.normal(size=counted.Z.shape[1])
    y, V = counted.Z @ v, mean_covariances(cells)
    for g in range(3):
        rows = np.flatnonzero(counted.groups == g)
        mean, noise, e = literal_group(y, rows, counted)
        assert cells.plain[0, g, 0, 1:] @ v / cells.group_counts[0, g] == pytest.approx(mean, rel=1e-10)
        assert v @ V[0, g] @ v == pytest.approx(noise, rel=1e-9)
        assert cells.effective_counts[0, g] == pytest.approx(e, rel=1e-12)
    assert variances(cells, v[None, None])[0, 0] == pytest.approx(literal_variance(y, counted), rel=1e-9)


def test_form_and_noise_equal_literal_loops(counted):
    v = np.random.default_rng(0).normal(size=counted.Z.shape[1])
    for cells, rows in (
        (counted.cross.whole, [np.ones(137, dtype=bool)]),
        (counted.cross.held, [counted.folds == f for f in range(5)]),
        (counted.cross.training, [counted.folds != f for f in range(5)]),
    ):
        form, noise = PARITY.form(cells), PARITY.noise(cells)
        for place, some in enumerate(rows):
            gap, left = literal_gap(counted.Z @ v, some, counted)
            assert v @ form[place] @ v == pytest.approx(gap, rel=1e-9)
            assert v @ noise[place] @ v == pytest.approx(left, rel=1e-9)


def test_training_bias_equals_literal_loops(counted):
    V = varied_weights(counted)[0]
    found = PARITY.training_bias(counted.cross.whole, V)
    for m in range(2):
        y = counted.Z @ V[m]
        expected = literal_gap(y, counted.groups >= 0, counted)[0] / literal_variance(y, counted)
        assert found[m] == pytest.approx(expected, rel=1e-9)


def test_unseen_bias_equals_literal_loops(counted):
    V = varied_weights(counted)
    of_folds, own = fold_bias(counted.cross, V), PARITY.bias(counted.cross, V)
    for m in range(2):
        expected = literal_biases(counted, V[:, m])
        assert of_folds[m] == pytest.approx(expected[0], rel=1e-9)
        assert own[m] == pytest.approx(expected[1], rel=1e-9)
    assert abs(own - of_folds).min() > 1e-6  # what is taken off is something
    assert PARITY.target_bias(counted.cross)[0] == pytest.approx(literal_base(counted), rel=1e-9)


@pytest.mark.parametrize("sizes", SIZES)
def test_parity_equals_the_papers_on_plain_rows(make, sizes):
    problem = make(sizes, unknown=7, pairs=False)
    known, V = problem.groups >= 0, varied_weights(problem)[0]
    form = PARITY.form(problem.cross.whole)[0]
    for m in range(2):
        raw = demographic_parity((problem.Z @ V[m])[known], sensitive_features=problem.groups[known])
        assert V[m] @ form @ V[m] == pytest.approx(raw, rel=1e-9)
    raw = demographic_parity(problem.t[known], sensitive_features=problem.groups[known])
    assert form[-1, -1] == pytest.approx(raw, rel=1e-9)


def test_base_score_has_one_bias_by_all_ways(counted):
    """At alpha = 0 nothing was learnt, and what is measured within folds is no change."""
    cross, unit = counted.cross, unit_target(counted.cross.held)
    expected = PARITY.target_bias(cross)[0]
    assert PARITY.bias(cross, unit)[0] == pytest.approx(expected, rel=1e-12)
    assert PARITY.choice(cross, unit)[0] == pytest.approx(expected, rel=1e-12)
    assert fold_bias(cross, unit)[0] == pytest.approx(expected, rel=1e-12)


def test_base_scores_bias_is_close_to_the_corrected_measure(make):
    problem = make((300, 200, 100), gap=1.5, pairs=False)
    expected = demographic_parity(problem.t, sensitive_features=problem.groups, scale_free=True, corrected=True)
    assert PARITY.target_bias(problem.cross)[0] == pytest.approx(expected, rel=0.02)
    # The folds' means lose nothing to the means of all rows but for the sizes of folds, which differ by a row.
    assert PARITY.choice(problem.cross, unit_target(problem.cross.held))[0] == pytest.approx(expected, rel=0.02)


def test_units_and_shifts_of_scores_do_not_matter(counted):
    V, cross = varied_weights(counted), counted.cross
    unit = np.array([1.0, 1e-9, 1e9, 3.0, 0.5])[:, None, None]  # each fold may have its own
    for measure in (PARITY.bias, fold_bias, PARITY.choice):
        np.testing.assert_allclose(measure(cross, unit * V), measure(cross, V), rtol=1e-7)
    shape = {"n_groups": 3, "n_sets": 5}
    rows = counted.beta, counted.groups, counted.folds
    more = {"sample_weight": counted.sample_weight, "clusters": counted.clusters}
    moved = CrossFit.of_folds(collect_cells(counted.S + 7.0, counted.t - 2.0, *rows, **shape, **more))
    np.testing.assert_allclose(PARITY.bias(moved, V), PARITY.bias(cross, V), rtol=1e-8)
    np.testing.assert_allclose(PARITY.covariance(moved, V), PARITY.covariance(cross, V), rtol=1e-7)


def test_a_weight_of_two_is_a_row_that_comes_twice(make):
    """In sums, means, forms and biases on training rows; two equal rows are one cluster, not two."""
    problem = make((40, 25, 15), pairs=False)
    twice = np.repeat(np.arange(80), 2)
    weight = np.full(80, 2.0)
    shape = {"n_groups": 3, "n_sets": 5}
    args = problem.S, problem.t, problem.beta, problem.groups, problem.folds
    heavy = collect_cells(*args, **shape, sample_weight=weight)
    rows = [part[twice] for part in args]
    repeated = collect_cells(*rows, **shape)
    together = collect_cells(*rows, **shape, clusters=twice)
    for cells in (repeated, together):
        np.testing.assert_allclose(cells.plain, heavy.plain, rtol=1e-12)
        np.testing.assert_allclose(cells.weighted, heavy.weighted, rtol=1e-12)
        np.testing.assert_allclose(PARITY.form(cells), PARITY.form(heavy), rtol=1e-9)
    np.testing.assert_allclose(together.spread, heavy.spread, rtol=1e-12)
    np.testing.assert_allclose(mean_covariances(heavy), mean_covariances(problem.cells), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(mean_covariances(together), mean_covariances(problem.cells), rtol=1e-9, atol=1e-15)
    assert (repeated.effective_counts == 2 * problem.cells.effective_counts).all()
    V = varied_weights(problem)
    one, two = (CrossFit.of_folds(cells) for cells in (problem.cells, together))
    for measure in (PARITY.bias, fold_bias, PARITY.choice, PARITY.covariance):
        np.testing.assert_allclose(measure(two, V), measure(one, V), rtol=1e-7)
    assert PARITY.gap_p_value(two.whole) == pytest.approx(PARITY.gap_p_value(one.whole), rel=1e-9)


def test_unit_of_sample_weights_does_not_matter_to_biases(counted):
    weight = weights_of(counted)
    rows = counted.S, counted.t, counted.beta, counted.groups, counted.folds
    one, two = (
        CrossFit.of_folds(
            collect_cells(*rows, n_groups=3, n_sets=5, sample_weight=unit * weight, clusters=counted.clusters)
        )
        for unit in (1.0, 1e-3)
    )
    V = varied_weights(counted)
    for measure in (PARITY.bias, PARITY.choice, PARITY.covariance):
        np.testing.assert_allclose(measure(two, V), measure(one, V), rtol=1e-8)
    assert PARITY.gap_p_value(two.whole) == pytest.approx(PARITY.gap_p_value(one.whole), rel=1e-9)


def test_no_gap_test_is_the_one_of_the_metrics_on_plain_rows(make):
    problem = make((60, 40, 35), gap=0.3, unknown=5, pairs=False)
    known = problem.groups >= 0
    expected = no_gap_test(problem.t[known], sensitive_features=problem.groups[known])
    assert PARITY.gap_p_value(problem.cross.whole) == pytest.approx(expected, rel=1e-9)


def test_no_gap_test_goes_by_effective_sizes(counted):
    """Two groups: Welch's test with the noise of the means, and effective sizes for the degrees of freedom."""
    two = replace_groups(counted, np.where(counted.groups == 2, -1, counted.groups))
    (a, va, ea), (b, vb, eb) = (literal_group(counted.t, np.flatnonzero(counted.groups == g), counted) for g in (0, 1))
    freedom = (va + vb) ** 2 / (va**2 / (ea - 1) + vb**2 / (eb - 1))
    expected = 2 * stats.t.sf(abs(a - b) / np.sqrt(va + vb), freedom)
    assert PARITY.gap_p_value(two) == pytest.approx(expected, rel=1e-8)


def replace_groups(problem, groups):
    return collect_cells(
        problem.S,
        problem.t,
        problem.beta,
        groups,
        np.zeros_like(problem.folds),
        n_groups=int(groups.max()) + 1,
        n_sets=1,
        sample_weight=problem.sample_weight,
        clusters=problem.clusters,
    )


def test_one_group_alone_has_no_gap_to_test(problem):
    assert np.isnan(PARITY.gap_p_value(replace_groups(problem, np.zeros_like(problem.groups))))


def test_covariance_of_means_equals_a_bootstrap_by_clusters():
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 7, 150)
    clusters = np.repeat(np.arange(150), sizes)
    n = len(clusters)
    S = rng.normal(size=(150, 2))[clusters] + 0.5 * rng.normal(size=(n, 2))
    t, weight = S.sum(axis=1) + 0.3 * rng.normal(size=n), rng.random(n)
    zero = np.zeros(n, dtype=int)
    cells = collect_cells(S, t, np.ones(n), zero, zero, n_groups=1, n_sets=1, sample_weight=weight, clusters=clusters)
    sums = np.stack(
        [(weight[:, None] * np.column_stack([np.ones(n), S, t]))[clusters == c].sum(axis=0) for c in range(150)]
    )
    drawn = rng.multinomial(150, np.full(150, 1 / 150), size=20_000) @ sums
    expected = np.cov((drawn[:, 1:] / drawn[:, :1]).T)
    found = mean_covariances(cells)[0, 0]
    np.testing.assert_allclose(found, expected, atol=0.03 * expected.max())
    rowwise = collect_cells(S, t, np.ones(n), zero, zero, n_groups=1, n_sets=1, sample_weight=weight)
    assert (np.diag(found) > 2.0 * np.diag(mean_covariances(rowwise)[0, 0])).all()


@pytest.mark.slow
@pytest.mark.parametrize("clustered", [False, True])
def test_noise_is_what_sampling_adds_to_the_form(clustered):
    """Averaged over draws without any gap in the population, C is V: the squared gaps are noise alone."""
    rng = np.random.default_rng(1)
    groups = np.repeat([0, 1, 2], (36, 24, 12))
    clusters = np.arange(72) // 3 if clustered else None
    forms, noises = [], []
    for _ in range(1500):
        S = rng.exponential(size=(24, 2)).repeat(3, axis=0) if clustered else rng.exponential(size=(72, 2))
        zero = np.zeros(72, dtype=int)
        cells = collect_cells(S, S[:, 0], np.ones(72), groups, zero, n_groups=3, n_sets=1, clusters=clusters)
        forms.append(np.diag(PARITY.form(cells)[0]))
        noises.append(np.diag(PARITY.noise(cells)[0]))
    difference = np.array(forms) - np.array(noises)
    error = difference.std(axis=0) / np.sqrt(len(difference))
    assert (np.abs(difference.mean(axis=0)) < 3.5 * error).all()
    assert (np.mean(noises, axis=0) > 10 * error).all()


def test_group_that_is_missing_in_a_fold_is_left_out_there(make):
    """Three rows of a group in five folds: it counts where two of its rows are, as if the others were not there."""
    problem = make((40, 30, 6), pairs=False)
    folds = problem.folds.copy()
    few = np.flatnonzero(problem.groups == 2)
    folds[few] = [0, 0, 0, 1, 2, 2]
    cells = collect_cells(problem.S, problem.t, problem.beta, problem.groups, folds, n_groups=3, n_sets=5)
    cross, V = CrossFit.of_folds(cells), varied_weights(problem)
    found = np.r_[PARITY.bias(cross, V), PARITY.choice(cross, V), np.diag(PARITY.covariance(cross, V))]
    assert np.isfinite(found).all()
    # A fold's gap is that of the groups that it knows, and a group's single row says nothing.
    y = problem.Z @ V[1, 0] / np.sqrt((problem.Z @ V[1, 0]).var())
    two = [y[(folds == 1) & (problem.groups == g)] for g in (0, 1)]
    gap = (two[0].mean() - two[1].mean()) ** 2 - sum(part.var(ddof=1) / len(part) for part in two)
    only = replace(cross, training=_place(cross.training, 1), held=_place(cross.held, 1))
    t = problem.t / problem.t.std()
    base = [t[(folds == 1) & (problem.groups == g)] for g in (0, 1)]
    base_gap = (base[0].mean() - base[1].mean()) ** 2 - sum(part.var(ddof=1) / len(part) for part in base)
    assert PARITY.choice(only, V[1:2])[0] == pytest.approx(gap, rel=1e-9)
    assert PARITY.target_bias(only)[0] == pytest.approx(base_gap, rel=1e-9)


def _place(cells, place):
    return replace(cells, plain=cells.plain[place : place + 1], weighted=cells.weighted[place : place + 1])


def test_groups_of_one_row_in_each_fold_say_nothing(make):
    problem = make((5, 5), pairs=False)
    cross, V = problem.cross, np.ones((5, 1, 6))
    for found in (
        PARITY.bias(cross, V),
        PARITY.choice(cross, V),
        PARITY.target_bias(cross),
        PARITY.covariance(cross, V)[0],
    ):
        assert np.isnan(found).all()


def test_held_out_means_that_are_equal_have_an_error():
    """No gap at all between the means of any fold, exactly: what is left is noise, whose error is known."""
    groups, folds = np.repeat([0, 1], 20), np.arange(40) % 5
    y = np.tile(np.repeat([0.0, 1.0], 5), 4)
    cells = collect_cells(y[:, None], y, np.ones(40), groups, folds, n_groups=2, n_sets=5)
    cov = PARITY.covariance(CrossFit.of_folds(cells), np.ones((5, 1, 2)))
    assert np.isfinite(cov).all()
    assert (np.diag(cov) > 0).all()


def test_no_gap_in_the_solved_rows_is_none_that_was_removed(make):
    """One fold's other rows have equal means of t, exactly: nothing was removed there, which is no NaN."""
    problem = make((20, 20), pairs=False)
    rows = np.arange(40)
    groups, folds = rows // 20, rows % 5
    t = np.where(folds == 0, groups, rows // 5 % 2).astype(float)
    cells = collect_cells(problem.S, t, np.ones(40), groups, folds, n_groups=2, n_sets=5)
    cross = CrossFit.of_folds(cells)
    assert PARITY.form(cross.training)[0, -1, -1] == 0.0
    V = np.ones((5, 1, 6))
    assert np.isfinite(PARITY.bias(cross, V)).all()


def test_constant_score_has_no_bias_and_no_error(problem):
    V = np.zeros((5, 1, 6))
    assert fold_variances(problem.cross, V).tolist() == [[0.0]] * 5
    for measure in (PARITY.bias, fold_bias, PARITY.choice):
        assert np.isnan(measure(problem.cross, V)).tolist() == [True]
    assert np.isnan(PARITY.covariance(problem.cross, V)[0, 0])
    assert np.isfinite(PARITY.covariance(problem.cross, V)[-1, -1])
    assert np.isnan(PARITY.training_bias(problem.cross.whole, V[0])).tolist() == [True]


def quadratic(G):
    """``Q`` of the mean squared gap over pairs of G groups."""
    steps = [np.eye(G)[p] - np.eye(G)[q] for p, q in combinations(range(G), 2)]
    return sum(np.outer(step, step) for step in steps) / len(steps)


@pytest.mark.parametrize("G", [2, 3])
def test_free_covariance_is_that_of_the_error_it_is_derived_from(G):
    """Errors of group means drawn at random, put together as its docstring says; groups of proportional noise."""
    rng = np.random.default_rng(0)
    K, m, kept, n = 5, 2, 0.8, 200_000
    root = rng.normal(size=(m + 1, m + 1)) / 3 + np.eye(m + 1) + 0.5
    cov, size = root @ root.T, 1.0 + np.arange(G)
    removed = np.array([0.9, 0.4])
    means = FoldMeans(
        np.zeros((K, m + 1, G)),
        np.broadcast_to(cov / size[:, None, None], (K, G, m + 1, m + 1)),
        np.ones((K, G)),
        np.ones((K, G), dtype=bool),
        Comparison.of_all(G),
    )
    found = _HeldOut(means, np.zeros(m), removed, np.zeros(m), kept, np.zeros(m), 1.0).free_covariance()
    E = np.einsum("ij,nfgj->nifg", root, rng.normal(size=(n, K, G, m + 1))) / np.sqrt(size)
    Q = quadratic(G)
    N = np.array([np.trace(Q @ np.diag(cov[i, i] / size)) for i in range(m + 1)])
    squares = np.einsum("nifg,gh,nifh->ni", E, Q, E, optimize=True) / K - N
    sums = E.sum(axis=2)
    h, total = E[:, -1], sums[:, -1]
    base = squares[:, -1] - np.einsum("ng,gh,nh->n", total, Q, total) / K**2 + N[-1] / K
    part = 1 - (1 - kept) / 2 * removed
    crossed = np.einsum("ng,gh,nih->ni", total, Q, sums[:, :-1]) - np.einsum(
        "nfg,gh,nifh->ni", h, Q, E[:, :-1], optimize=True
    )
    error = part * (squares[:, :-1] - 2 * removed / (K * (K - 1)) * crossed) - base[:, None]
    np.testing.assert_allclose(found, np.cov(error.T), rtol=0.03)


@pytest.mark.long
@pytest.mark.slow
def test_covariance_of_plain_scores_covers_in_simulation():
    """Skewed scores, three unequal groups, weights that were not learnt: the estimates spread as is stated."""
    rng = np.random.default_rng(2)
    groups = np.repeat([0, 1, 2], (150, 80, 60))
    means = 0.4 * groups
    V = np.zeros((5, 1, 3))
    V[..., 0] = 1.0
    biases, stated = [], []
    for seed in range(300):
        S = rng.exponential(size=(290, 2)) + means[:, None]
        t = S.mean(axis=1)
        folds = assign_folds(S, groups, 5, seed)
        cross = CrossFit.of_folds(collect_cells(S, t, np.ones(290), groups, folds, n_groups=3, n_sets=5))
        biases.append([PARITY.bias(cross, V)[0], PARITY.target_bias(cross)[0]])
        stated.append(PARITY.covariance(cross, V))
    spread, said = np.cov(np.array(biases).T), np.mean(stated, axis=0)
    # Var(y) is taken as known, which here makes the stated error a little large: gap and variance rise together.
    np.testing.assert_allclose(np.sqrt(np.diag(said) / np.diag(spread)), 1.0, atol=0.2)
    found, expected = (c[0, 1] / np.sqrt(c[0, 0] * c[1, 1]) for c in (said, spread))
    assert found == pytest.approx(expected, abs=0.15)


def test_chi_square_has_the_mean_and_the_variance_of_the_bias(problem):
    V = varied_weights(problem)
    value, scale, freedom = PARITY.chi_square(problem.cross, V)
    np.testing.assert_allclose(value - scale * freedom, PARITY.bias(problem.cross, V), rtol=1e-12)
    free = np.diag(_HeldOut.on(problem.cross, V).free_covariance())
    np.testing.assert_allclose(2 * scale**2 * freedom, free, rtol=1e-12)
    value, scale, freedom = PARITY.chi_square(problem.cross)
    np.testing.assert_allclose(value - scale * freedom, PARITY.target_bias(problem.cross), rtol=1e-12)


def test_rank_weights_enter_no_bias(problem):
    other = collect_cells(problem.S, problem.t, np.ones(80), problem.groups, problem.folds, n_groups=3, n_sets=5)
    V = varied_weights(problem)
    assert (rank_weights(problem.t) != 1).all()
    np.testing.assert_array_equal(PARITY.bias(CrossFit.of_folds(other), V), PARITY.bias(problem.cross, V))
