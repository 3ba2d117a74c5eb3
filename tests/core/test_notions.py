from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from evenout.core.cells import fold_variances, unit_target
from evenout.core.notions import combined_form
from evenout.core.parity import Own
from evenout.core.registry import NOTIONS, PARITY, weighted_notions

SIZES = [(30, 12), (25, 14, 9), (20, 15, 8, 5)]
INDIVIDUAL, OWN = NOTIONS["individual"], Own()


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


def varied_weights(problem, seed=1):
    """Weights that differ a little from fold to fold, shape (K, 1, k + 1)."""
    rng = np.random.default_rng(seed)
    k = problem.S.shape[1]
    return rng.random(k + 1) + 0.2 * rng.random((problem.cross.n_folds, 1, k + 1))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("unknown", [0, 7])
def test_individual_equals_literal_double_loop(make, sizes, unknown):
    problem = make(sizes, unknown=unknown)
    v = np.random.default_rng(1).normal(size=problem.S.shape[1] + 1)
    raw, free = literal_individual(problem.Z @ v, problem.X, problem.groups)
    C = INDIVIDUAL.form(problem.cross.whole)[0]
    assert v @ C @ v == pytest.approx(raw, rel=1e-5)  # pair sums are accumulated from float32 kernels
    assert INDIVIDUAL.training_bias(problem.cross.whole, v[None])[0] == pytest.approx(free, rel=1e-5)
    raw_t, free_t = literal_individual(problem.t, problem.X, problem.groups)
    assert C[-1, -1] == pytest.approx(raw_t, rel=1e-5)
    unit = unit_target(problem.cross.whole)[0]
    assert INDIVIDUAL.training_bias(problem.cross.whole, unit)[0] == pytest.approx(free_t, rel=1e-5)


def test_individual_bias_on_unseen_rows_is_that_of_pairs_within_folds(problem):
    """Each fold in units of the variance of its own score over all rows; folds by the mass of their pairs."""
    V = varied_weights(problem)
    form, mass = (problem.cross.held.sums[f"individual.{name}"] for name in ("form", "mass"))
    squared = np.array(
        [[V[f, 0] @ form[f, p] @ V[f, 0] / (problem.Z @ V[f, 0]).var() for p in range(3)] for f in range(5)]
    )
    expected = (squared.sum(axis=0) / mass.sum(axis=0)).mean()
    assert INDIVIDUAL.bias(problem.cross, V)[0] == pytest.approx(expected, rel=1e-9)
    assert INDIVIDUAL.choice(problem.cross, V)[0] == INDIVIDUAL.bias(problem.cross, V)[0]
    unit = unit_target(problem.cross.held)
    assert INDIVIDUAL.target_bias(problem.cross)[0] == INDIVIDUAL.bias(problem.cross, unit)[0]


def test_individual_covariance_is_the_spread_over_folds(problem):
    V = varied_weights(problem)
    both = np.concatenate([V, unit_target(problem.cross.held)], axis=1)
    form, mass = (problem.cross.held.sums[f"individual.{name}"] for name in ("form", "mass"))
    by_fold = [
        [np.mean([v @ form[f, p] @ v / mass[f, p] for p in range(3)]) / (problem.Z @ v).var() for v in both[f]]
        for f in range(5)
    ]
    expected = np.cov(np.array(by_fold).T) / 5
    np.testing.assert_allclose(INDIVIDUAL.covariance(problem.cross, V), expected, rtol=1e-9)


def test_groups_without_any_rows_that_are_alike_have_no_bias(problem):
    sums = {name: 0 * values for name, values in problem.cross.whole.sums.items()}
    none = replace(problem.cross.whole, sums=sums)
    assert INDIVIDUAL.training_bias(none, np.ones((1, 6))).tolist() == [0.0]


def test_constant_score_has_no_bias_and_no_error(problem):
    V = np.zeros((5, 1, 6))
    assert fold_variances(problem.cross, V).tolist() == [[0.0]] * 5
    assert np.isnan(INDIVIDUAL.bias(problem.cross, V)).tolist() == [True]
    assert np.isnan(INDIVIDUAL.covariance(problem.cross, V)[0, 0])
    assert np.isfinite(INDIVIDUAL.covariance(problem.cross, V)[1, 1])


def test_individual_needs_pair_sums(make):
    with pytest.raises(ValueError, match="pair sums"):
        INDIVIDUAL.form(make(pairs=False).cross.whole)


def test_own_form_counts_folds_by_their_rows(make):
    root = np.random.default_rng(0).normal(size=(5, 5))
    C = root @ root.T
    problem = make((23, 14, 9), unknown=3, own=C, pairs=False)
    V, cross = varied_weights(problem), problem.cross
    w = V[:, 0, :-1]
    squared = [w[f] @ C @ w[f] / (problem.Z @ V[f, 0]).var() for f in problem.folds]  # a term for each row
    assert OWN.bias(cross, V)[0] == pytest.approx(np.mean(squared), rel=1e-9)
    y = problem.Z @ V[0, 0]
    assert OWN.training_bias(cross.whole, V[0])[0] == pytest.approx(w[0] @ C @ w[0] / y.var(), rel=1e-9)
    by_fold = [[w[f] @ C @ w[f] / (problem.Z @ V[f, 0]).var(), 0.0] for f in range(5)]
    np.testing.assert_allclose(OWN.covariance(cross, V), np.cov(np.array(by_fold).T) / 5, rtol=1e-9)


def test_own_form_counts_the_weights_that_detectors_have_in_the_target(make):
    rng = np.random.default_rng(0)
    root, base = rng.normal(size=(5, 5)), rng.random(5)
    C = root @ root.T
    cross = make(own=C, base=base, pairs=False).cross
    V = np.concatenate([rng.normal(size=(3, 5)), np.ones((3, 1))], axis=1)
    for cells in (cross.whole, cross.training):
        for form in OWN.form(cells):
            for v in V:
                assert v @ form @ v == pytest.approx((v[:-1] + base) @ C @ (v[:-1] + base), rel=1e-10)
            assert form[-1, -1] == pytest.approx(base @ C @ base)


def test_own_form_says_nothing_of_a_target_that_is_not_made_of_the_detectors(make):
    problem = make(own=np.eye(5), pairs=False)
    np.testing.assert_array_equal(OWN.form(problem.cross.whole)[0], np.diag([1.0] * 5 + [0.0]))


def test_combined_form_is_in_units_of_the_target(problem):
    whole = problem.cross.whole
    C = combined_form(whole, weighted_notions({"demographic_parity": 2.0, "individual": 3.0}))
    assert C[0, -1, -1] == pytest.approx(5.0)
    parity, individual = PARITY.form(whole)[0], INDIVIDUAL.form(whole)[0]
    np.testing.assert_allclose(C[0], 2 * parity / parity[-1, -1] + 3 * individual / individual[-1, -1])
    training = problem.cross.training
    C = combined_form(training, weighted_notions({"demographic_parity": 2.0, "individual": 3.0}))
    np.testing.assert_allclose(C[:, -1, -1], 5.0)  # each fold's own unit


def test_one_notion_alone_stays_as_it_is(problem):
    whole = problem.cross.whole
    np.testing.assert_array_equal(combined_form(whole, weighted_notions({"individual": 7.0})), INDIVIDUAL.form(whole))


def test_target_without_bias_by_a_notion_is_no_unit(make):
    even = make(own=np.eye(5), pairs=False).cross.whole
    C = combined_form(even, weighted_notions({"demographic_parity": 1.0, "own": 2.0}))
    parity = PARITY.form(even)
    np.testing.assert_allclose(C, parity / parity[:, -1:, -1:] + 2 * OWN.form(even))


def test_noise_is_added_to_parity_alone(problem):
    whole = problem.cross.whole
    aware = combined_form(whole, weighted_notions({"demographic_parity": 1.0}), noise_aware=True)
    np.testing.assert_array_equal(aware, PARITY.form(whole) + PARITY.noise(whole))
    individual = combined_form(whole, weighted_notions({"individual": 1.0}), noise_aware=True)
    np.testing.assert_array_equal(individual, INDIVIDUAL.form(whole))


def test_notions_that_users_name_are_known():
    outcomes = ["equal_opportunity", "equalized_odds", "equal_false_alarms"]
    assert list(NOTIONS) == ["demographic_parity", "individual", *outcomes]
