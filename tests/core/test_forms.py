from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from evenout.core.cells import collect_cells
from evenout.core.folds import assign_folds
from evenout.core.forms import (
    GroupMoments,
    combined_form,
    fold_variances,
    group_moments,
    individual_bias,
    individual_error,
    individual_form,
    no_gap_p_value,
    own_bias,
    own_error,
    own_form,
    parity_bias,
    parity_error,
    parity_form,
    parity_noise,
)

SIZES = [(30, 12), (25, 14, 9), (20, 15, 8, 5)]


def literal_parity(y, groups):
    """The paper's DP, pair of groups by pair of groups."""
    total, pairs = 0.0, 0
    for p, q in combinations(sorted(set(groups[groups >= 0])), 2):
        total += (
            np.mean([y[i] for i in range(len(y)) if groups[i] == p])
            - np.mean([y[j] for j in range(len(y)) if groups[j] == q])
        ) ** 2
        pairs += 1
    return total / pairs


def literal_individual(y, X, groups):
    """The paper's IF and its scale-free form, by a double loop over the rows."""
    distance = {}
    for i in range(len(y)):
        for j in range(len(y)):
            if 0 <= groups[i] < groups[j]:
                distance[i, j] = np.sqrt(((X[i] - X[j]) ** 2).sum())
    low, high = min(distance.values()), max(distance.values())
    raw, free, pairs = 0.0, 0.0, 0
    for p, q in combinations(sorted(set(groups[groups >= 0])), 2):
        squared = mass = count = 0.0
        for (i, j), delta in distance.items():
            if groups[i] == p and groups[j] == q:
                M = np.exp(-(delta - low) / (high - low))
                squared, mass, count = squared + M * (y[i] - y[j]) ** 2, mass + M, count + 1
        raw, free, pairs = raw + squared / count, free + squared / mass, pairs + 1
    return raw / pairs, free / pairs / np.var(y)


def _vector(problem, w):
    return np.broadcast_to(np.r_[w, 0.0], (problem.cells.n_folds, 1, len(w) + 1))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("unknown", [0, 7])
def test_parity_equals_literal_loop(make, sizes, unknown):
    problem = make(sizes, unknown=unknown)
    w = np.random.default_rng(1).normal(size=problem.S.shape[1])
    y = problem.S @ w
    literal = literal_parity(y, problem.groups)
    C = parity_form(problem.cells)
    assert w @ C[:-1, :-1] @ w == pytest.approx(literal, rel=1e-10)
    assert C[-1, -1] == pytest.approx(literal_parity(problem.t, problem.groups), rel=1e-10)
    assert parity_bias(problem.cells, _vector(problem, w), unseen=False)[0] == pytest.approx(
        literal / y.var(), rel=1e-9
    )


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("unknown", [0, 7])
def test_individual_equals_literal_double_loop(make, sizes, unknown):
    problem = make(sizes, unknown=unknown)
    w = np.random.default_rng(1).normal(size=problem.S.shape[1])
    raw, free = literal_individual(problem.S @ w, problem.X, problem.groups)
    C = individual_form(problem.cells)
    assert w @ C[:-1, :-1] @ w == pytest.approx(
        raw, rel=1e-5
    )  # pair sums are accumulated from float32 kernels
    assert individual_bias(problem.cells, _vector(problem, w), unseen=False)[0] == pytest.approx(
        free, rel=1e-5
    )
    raw_t, _ = literal_individual(problem.t, problem.X, problem.groups)
    assert C[-1, -1] == pytest.approx(raw_t, rel=1e-5)


def test_moments_equal_numpy(problem):
    w = np.array([0.5, -1.0, 2.0, 0.0, 1.0])
    y = problem.S @ w
    moments = group_moments(problem.cells, _vector(problem, w))
    for g in range(3):
        part = y[problem.groups == g]
        assert moments.mean[0, g] == pytest.approx(part.mean())
        assert moments.variance[0, g] == pytest.approx(part.var(ddof=1))
    assert moments.total_variance[0] == pytest.approx(y.var())


def fold_scores(problem, V):
    """The score of each row by the weights of its fold."""
    Z = np.column_stack([problem.S, problem.t])
    return np.array([Z[i] @ V[problem.folds[i], 0] for i in range(len(Z))])


def varied_weights(problem, seed=1):
    """Weights that differ a little from fold to fold, shape (K, 1, k + 1)."""
    rng = np.random.default_rng(seed)
    k = problem.S.shape[1]
    V = rng.random(k) + 0.2 * rng.random((problem.cells.n_folds, 1, k))
    return np.concatenate([V, np.zeros((len(V), 1, 1))], axis=2)


@pytest.mark.parametrize("gap", [0.0, 3.0])  # what noise alone would show, and far more
@pytest.mark.parametrize("sizes", SIZES)
def test_parity_error_equals_its_formula(make, sizes, gap):
    problem = make(sizes, gap=gap, pairs=False)
    V, G = varied_weights(problem), len(sizes)
    y = fold_scores(problem, V)
    parts = [y[problem.groups == g] for g in range(G)]
    means, v = np.array([part.mean() for part in parts]), [part.var(ddof=1) / len(part) for part in parts]
    steps = [np.eye(G)[p] - np.eye(G)[q] for p, q in combinations(range(G), 2)]
    Q = sum(np.outer(step, step) for step in steps) / len(steps)
    trace = np.trace(Q @ np.diag(v) @ Q @ np.diag(v))
    slope = means @ Q @ np.diag(v) @ Q @ means - trace  # without what noise adds
    numerator = 4 * max(slope, 0.0) + 2 * trace
    bias = (means @ Q @ means - np.trace(Q @ np.diag(v))) / y.var()
    spread = np.array([y[problem.folds == f].var() for f in range(problem.cells.n_folds)])
    relative = spread.var(ddof=1) / len(spread) / spread.mean() ** 2
    expected = np.sqrt(numerator / y.var() ** 2 + bias**2 * relative)
    assert parity_error(problem.cells, V)[0] == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(fold_variances(problem.cells, V)[:, 0], spread, rtol=1e-9)
    assert parity_bias(problem.cells, V, unseen=True)[0] == pytest.approx(bias, rel=1e-8)


def test_constant_score_has_no_bias_and_no_error(problem):
    V = np.zeros((5, 1, 6))
    assert fold_variances(problem.cells, V).tolist() == [[0.0]] * 5
    for measured in (
        parity_error(problem.cells, V),
        parity_bias(problem.cells, V, unseen=True),
        individual_bias(problem.cells, V, unseen=True),
        individual_error(problem.cells, V),
    ):
        assert np.isnan(measured).tolist() == [True]


def test_individual_error_is_the_spread_over_folds(problem):
    V = varied_weights(problem)
    form, mass = problem.cells.pairs.within()
    by_fold = [np.mean([V[f, 0] @ form[p, f] @ V[f, 0] / mass[p, f] for p in range(3)]) for f in range(5)]
    variance = fold_scores(problem, V).var()
    expected = np.std(by_fold, ddof=1) / np.sqrt(5) / variance
    assert individual_error(problem.cells, V)[0] == pytest.approx(expected, rel=1e-9)


def test_own_form_counts_folds_by_their_rows_and_leaves_out_the_target(make):
    problem = make((23, 14, 9), unknown=3)
    root = np.random.default_rng(0).normal(size=(5, 5))
    cells, V = replace(problem.cells, own=root @ root.T), varied_weights(problem)
    V[..., -1] = 7.0  # of the target, C says nothing
    np.testing.assert_array_equal(own_form(cells)[:-1, :-1], cells.own)
    assert not own_form(cells)[-1].any()
    assert not own_form(cells)[:, -1].any()
    squared = [V[f, 0, :-1] @ cells.own @ V[f, 0, :-1] for f in problem.folds]  # a term for each row
    expected = np.mean(squared) / fold_scores(problem, V).var()
    assert own_bias(cells, V, unseen=True)[0] == pytest.approx(expected, rel=1e-9)
    assert np.isnan(own_error(cells, V)).tolist() == [True]
    with pytest.raises(ValueError, match="no form of your own"):
        own_form(problem.cells)


def welch_anova(n, mean, variance):
    """Welch (1951), as the paper writes it."""
    G, w = len(n), n / variance
    grand = (w @ mean) / w.sum()
    doubt = sum((1 - w[p] / w.sum()) ** 2 / (n[p] - 1) for p in range(G))
    F = (w @ (mean - grand) ** 2) / (G - 1) / (1 + 2 * (G - 2) * doubt / (G**2 - 1))
    return stats.f.sf(F, G - 1, (G**2 - 1) / (3 * doubt))


@pytest.mark.parametrize("sizes", SIZES)
def test_no_gap_test_equals_welch(make, sizes):
    problem = make(sizes, gap=0.3, pairs=False)
    moments = group_moments(problem.cells, varied_weights(problem))
    expected = welch_anova(moments.count, moments.mean[0], moments.variance[0])
    assert no_gap_p_value(moments)[0] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("means", "p"), [([0.0, 0.0, 0.0], 1.0), ([0.3, 0.3, 0.3], 1.0), ([0.3, 0.3, 0.4], 0.0)]
)
def test_groups_without_spread_leave_no_doubt(means, p):
    mean = np.array([means])
    moments = GroupMoments(np.array([5.0, 4.0, 3.0]), mean, np.zeros((1, 3)), mean.var(axis=1))
    assert no_gap_p_value(moments).tolist() == [p]


def test_no_gap_test_with_two_groups_is_welch(make):
    problem = make((30, 12), gap=0.3)
    unit = np.zeros((problem.cells.n_folds, 1, problem.S.shape[1] + 1))
    unit[..., -1] = 1.0
    t, groups = problem.t, problem.groups
    expected = stats.ttest_ind(t[groups == 0], t[groups == 1], equal_var=False).pvalue
    assert no_gap_p_value(group_moments(problem.cells, unit))[0] == pytest.approx(expected, rel=1e-9)


def test_no_gap_test_holds_its_level_with_four_groups(make):
    p = []
    for seed in range(400):
        problem = make((40, 30, 20, 15), k=1, d=1, seed=seed, gap=0.0, pairs=False)
        V = np.zeros((problem.cells.n_folds, 1, 2))
        V[..., 0] = 1.0
        p.append(no_gap_p_value(group_moments(problem.cells, V))[0])
    rejected = np.mean(np.array(p) < 0.05)
    assert 0.02 < rejected < 0.09


def test_corrected_gap_is_unbiased_in_simulation(make):
    """The squared gap of two sample means is biased upward; less its sampling noise it is not."""
    rng = np.random.default_rng(3)
    shift, plain, corrected = 0.3, [], []
    for _ in range(3000):
        a, b = rng.normal(size=20), rng.normal(size=12) + shift
        gap = (a.mean() - b.mean()) ** 2
        plain.append(gap)
        corrected.append(gap - a.var(ddof=1) / 20 - b.var(ddof=1) / 12)
    error = np.std(corrected) / np.sqrt(len(corrected))
    assert abs(np.mean(corrected) - shift**2) < 3 * error
    assert np.mean(plain) - shift**2 > 10 * error
    # The cells' correction is this one.
    problem = make((20, 12), k=1, pairs=False)
    V = np.zeros((problem.cells.n_folds, 1, 2))
    V[..., 0] = 1.0
    a, b = (problem.S[problem.groups == g, 0] for g in (0, 1))
    by_hand = (a.mean() - b.mean()) ** 2 - a.var(ddof=1) / 20 - b.var(ddof=1) / 12
    assert parity_bias(problem.cells, V, unseen=True)[0] == pytest.approx(
        by_hand / problem.S[:, 0].var(), rel=1e-8
    )


def test_combined_form_is_in_units_of_the_target(problem):
    C = combined_form(problem.cells, {"demographic_parity": 2.0, "individual": 3.0})
    assert C[-1, -1] == pytest.approx(5.0)
    np.testing.assert_allclose(
        C,
        2 * parity_form(problem.cells) / parity_form(problem.cells)[-1, -1]
        + 3 * individual_form(problem.cells) / individual_form(problem.cells)[-1, -1],
    )


def test_noise_is_added_to_parity_alone(problem):
    parity, noise = parity_form(problem.cells), parity_noise(problem.cells)
    aware = combined_form(problem.cells, {"demographic_parity": 1.0}, noise_aware=True)
    np.testing.assert_array_equal(aware, parity + noise)
    individual = combined_form(problem.cells, {"individual": 1.0}, noise_aware=True)
    np.testing.assert_array_equal(individual, individual_form(problem.cells))


def test_individual_needs_pair_sums(make):
    with pytest.raises(ValueError, match="pair sums"):
        individual_form(make(pairs=False).cells)


def test_noise_is_what_sampling_adds_to_the_form(make):
    """Averaged over draws without any gap in the population, C is V: the squared gaps are noise alone."""
    forms, noises = [], []
    for seed in range(400):
        cells = make((30, 20, 12), k=2, gap=0.0, seed=1000 + seed, pairs=False).cells
        forms.append(np.diag(parity_form(cells)))
        noises.append(np.diag(parity_noise(cells)))
    ratio = np.mean(forms, axis=0) / np.mean(noises, axis=0)
    np.testing.assert_allclose(ratio, 1.0, atol=0.15)


def test_noise_by_hand(problem):
    Z = np.column_stack([problem.S, problem.t])
    parts = [Z[problem.groups == g] for g in range(3)]
    cov = [np.cov(part.T) / len(part) for part in parts]
    expected = ((cov[0] + cov[1]) + (cov[0] + cov[2]) + (cov[1] + cov[2])) / 3
    np.testing.assert_allclose(parity_noise(problem.cells), expected, rtol=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_parity_error_covers_in_simulation(shift):
    """Skewed scores, three groups: the truth lies within 1.96 standard errors in about 95 % of the draws.

    Without any gap the interval is on the safe side: the error is estimated to be largest where the gap looks largest.
    """
    rng = np.random.default_rng(2)
    means, sizes = np.array([0.0, shift, 2 * shift]), (150, 80, 60)
    share = np.array(sizes) / sum(sizes)
    variance = 1.0 + share @ means**2 - (share @ means) ** 2
    truth = (
        ((means[0] - means[1]) ** 2 + (means[0] - means[2]) ** 2 + (means[1] - means[2]) ** 2) / 3 / variance
    )
    groups = np.repeat([0, 1, 2], sizes)
    covered = []
    for seed in range(300):
        y = rng.exponential(size=290) - 1.0 + means[groups]
        folds = assign_folds(y[:, None], groups, 5, seed)
        cells = collect_cells(y[:, None], y, np.ones(290), groups, folds, n_groups=3, n_folds=5)
        V = np.zeros((5, 1, 2))
        V[..., 0] = 1.0
        error = abs(parity_bias(cells, V, unseen=True)[0] - truth) / parity_error(cells, V)[0]
        covered.append(error < 1.96)
    assert np.mean(covered) > 0.91
    assert shift == 0.0 or np.mean(covered) < 0.985
