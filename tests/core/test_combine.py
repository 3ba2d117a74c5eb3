import numpy as np
import pytest

from evenout.core import base_score as combine
from evenout.core.base_score import learn_combination, select_greedily

S = np.array([[0.1, 0.9, 0.2], [0.5, 0.4, 0.3], [1.0, 0.0, 0.8]])
ALL = np.arange(3)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("average", [0.4, 0.4, 0.6]), ("maximum", [0.9, 0.5, 1.0]), ("median", [0.2, 0.4, 0.8])],
)
def test_simple_combinations_by_hand(kind, expected):
    np.testing.assert_allclose(learn_combination(kind, S, ALL, seed=0).apply(S), expected)


def test_aom_and_moa_with_one_detector_a_bucket():
    """With at most five detectors each bucket holds one: AOM is the average, MOA the maximum."""
    np.testing.assert_allclose(learn_combination("aom", S, ALL, seed=0).apply(S), S.mean(axis=1))
    np.testing.assert_allclose(learn_combination("moa", S, ALL, seed=0).apply(S), S.max(axis=1))


def test_aom_and_moa_equal_their_definitions_on_the_learnt_buckets():
    wide = np.random.default_rng(0).random((20, 13))
    for kind, inner, outer in (("aom", np.max, np.mean), ("moa", np.mean, np.max)):
        combination = learn_combination(kind, wide, np.arange(13), seed=3)
        assert sorted(np.concatenate(combination.buckets)) == list(range(13))
        assert len(combination.buckets) == 5
        expected = outer([inner(wide[:, bucket], axis=1) for bucket in combination.buckets], axis=0)
        np.testing.assert_allclose(combination.apply(wide), expected)
        again = learn_combination(kind, wide, np.arange(13), seed=3)
        np.testing.assert_array_equal(np.concatenate(again.buckets), np.concatenate(combination.buckets))


def test_unusable_columns_take_no_part():
    combination = learn_combination("median", S, np.array([0, 2]), seed=0)
    np.testing.assert_allclose(combination.apply(S), np.median(S[:, [0, 2]], axis=1))


def test_own_function_is_applied():
    combination = learn_combination(lambda scores: scores[:, 1] * 2, S, ALL, seed=0)
    np.testing.assert_allclose(combination.apply(S), S[:, 1] * 2)


def weighted_pearson(x, y, weight):
    x, y = x - weight @ x, y - weight @ y
    return (weight @ (x * y)) / np.sqrt((weight @ x**2) * (weight @ y**2))


def greedy_literally(S, share=0.1):
    """Schubert et al. 2012 on the rows themselves, step by step."""
    n, k = S.shape
    top = max(1, round(share * n))
    union = set()
    for j in range(k):
        cut = sorted(S[:, j])[-top]
        union |= {i for i in range(n) if S[i, j] >= cut}
    target = np.array([i in union for i in range(n)], dtype=float)
    weight = np.where(target == 1, 0.5 / len(union), 0.5 / (n - len(union)))
    first = max(range(k), key=lambda j: weighted_pearson(S[:, j], target, weight))
    chosen, left = [first], [j for j in range(k) if j != first]
    while left:
        average = S[:, chosen].mean(axis=1)
        candidate = min(left, key=lambda j: weighted_pearson(S[:, j], average, weight))
        left.remove(candidate)
        new = S[:, [*chosen, candidate]].mean(axis=1)
        if weighted_pearson(new, target, weight) > weighted_pearson(average, target, weight):
            chosen.append(candidate)
    return sorted(chosen)


@pytest.mark.parametrize("seed", range(8))
def test_greedy_equals_the_literal_procedure(seed):
    rng = np.random.default_rng(seed)
    base = rng.exponential(size=(200, 1))
    pool = base + rng.exponential(size=(200, 9)) * rng.uniform(0.1, 3, size=9)
    assert select_greedily(pool).tolist() == greedy_literally(pool)


def test_greedy_selects_the_same_of_many_rows_on_threads(monkeypatch):
    pool = np.random.default_rng(1).exponential(size=(20_000, 1)) + np.random.default_rng(2).normal(size=(20_000, 6))
    weight = np.random.default_rng(3).dirichlet(np.ones(20_000))
    whole, few = select_greedily(pool).tolist(), combine._weighted_covariance(pool, pool[:, 0] > 1, weight, 1)
    monkeypatch.setattr(combine, "FEW", 3000)
    assert select_greedily(pool, n_threads=2).tolist() == whole == greedy_literally(pool)
    opinion = (pool[:, 0] > 1).astype(float)
    np.testing.assert_allclose(combine._weighted_covariance(pool, opinion, weight, 2), few, rtol=1e-12)


@pytest.mark.parametrize("kind", ["average", "moa", "median"])
def test_a_row_has_the_same_score_alone_as_among_others(kind):
    S = np.random.default_rng(5).random((40, 23))
    combination = learn_combination(kind, S, np.arange(23), 0)
    alone = [combination.apply(S[i : i + 1])[0] for i in range(40)]
    np.testing.assert_array_equal(alone, combination.apply(S))


def test_greedy_passes_over_columns_that_may_not_take_part():
    rng = np.random.default_rng(4)
    pool = rng.exponential(size=(200, 1)) + rng.exponential(size=(200, 5))
    usable = np.array([1, 2, 4, 5, 6])
    padded = np.insert(pool, [0, 2], 0.0, axis=1)
    np.testing.assert_array_equal(padded[:, usable], pool)
    chosen = learn_combination("greedy", padded, usable, 0).buckets[0]
    assert chosen.tolist() == usable[greedy_literally(pool)].tolist() != usable.tolist()


def test_greedy_survives_ties_everywhere():
    assert select_greedily(np.ones((10, 3))).tolist() == [0, 1, 2]
    binary = np.random.default_rng(0).integers(0, 2, size=(40, 4)).astype(float)
    assert len(select_greedily(binary)) >= 1


def test_greedy_takes_no_copy_of_a_detector():
    x = np.random.default_rng(0).exponential(size=(50, 1))
    assert select_greedily(np.repeat(x, 3, axis=1)).tolist() == [0]


def test_greedy_takes_no_detector_that_cancels_another():
    x = np.arange(17) / 16.0  # the average of both columns is 1/2 on every row, and says nothing
    assert len(select_greedily(np.column_stack([x, 1.0 - x]))) == 1


def test_average_of_families_by_hand():
    """One family of two columns, one of one: (0.1 + 0.9) / 4 + 0.2 / 2, and so on."""
    combination = learn_combination("average", S, ALL, 0, ["knn", "knn", "forest"])
    np.testing.assert_allclose(combination.apply(S), [0.35, 0.375, 0.65])


def test_families_of_unusable_columns_count_for_nothing():
    combination = learn_combination("average", S, np.array([0, 1]), 0, ["knn", "forest", "tail"])
    np.testing.assert_allclose(combination.apply(S), [0.5, 0.45, 0.5])


def test_families_mean_nothing_to_other_combinations():
    for kind in ("maximum", "median", "greedy", "aom"):
        found = learn_combination(kind, S, ALL, 0, ["knn", "knn", "forest"]).apply(S)
        np.testing.assert_array_equal(found, learn_combination(kind, S, ALL, 0).apply(S))
