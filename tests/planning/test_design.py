"""Inclusion probabilities are what they say, and rows are drawn by them."""

import time

import numpy as np
import pytest

from evenout.planning.design import draw, inclusion_probabilities


def one(n):
    return np.zeros(n, dtype=np.intp)


@pytest.mark.parametrize(("budget", "n_chance"), [(40, 20), (40, 40), (290, 100), (1, 1), (299, 1)])
def test_probabilities_sum_to_the_budget_and_are_never_0(budget, n_chance):
    rng = np.random.default_rng(0)
    scores, strata = rng.normal(size=300), rng.integers(3, size=300)
    pi, by_score = inclusion_probabilities(scores, budget, n_chance, strata)
    assert pi.sum() == pytest.approx(budget, abs=1e-9)
    assert pi.min() > 0
    assert pi.max() <= 1
    assert by_score.sum() == budget - n_chance
    assert (pi[by_score] == 1).all()
    assert scores[by_score].min(initial=np.inf) > scores[~by_score].max()


def test_chances_rise_with_the_score_and_each_group_has_its_share():
    rng = np.random.default_rng(1)
    strata = rng.integers(3, size=3000)
    scores = rng.normal(size=3000) + strata
    pi, by_score = inclusion_probabilities(scores, 300, 100, strata)
    for group in range(3):
        rest = np.flatnonzero((strata == group) & ~by_score)
        assert (np.diff(pi[rest[np.argsort(scores[rest])]]) >= 0).all()
        assert pi[rest].sum() == pytest.approx(100 * len(rest) / (~by_score).sum())
        assert 1 / pi[rest].min() <= 2.01 / pi[rest].mean()


def test_rows_of_equal_score_share_the_last_places():
    scores = np.r_[np.full(5, 2.0), np.full(10, 1.0), np.zeros(85)]
    pi, by_score = inclusion_probabilities(scores, 10, 0, one(100))
    np.testing.assert_allclose(pi, np.r_[np.ones(5), np.full(10, 0.5), np.zeros(85)])
    assert by_score.sum() == 5
    np.testing.assert_allclose(inclusion_probabilities(np.ones(100), 10, 2, one(100))[0], 0.1)


@pytest.mark.parametrize("n_groups", [1, 3])
def test_rows_are_drawn_as_often_as_their_probabilities_say(n_groups):
    rng = np.random.default_rng(2)
    scores, strata = rng.normal(size=120).round(1), rng.integers(n_groups, size=120)
    pi, _ = inclusion_probabilities(scores, 30, 15, strata)
    draws, counts = 20_000, np.zeros(120)
    for _ in range(draws):
        rows = draw(pi, strata, rng)
        assert len(rows) == 30
        counts[rows] += 1
    assert (counts[pi == 1] == draws).all()
    error = (counts / draws - pi)[pi < 1] / np.sqrt(pi * (1 - pi) / draws)[pi < 1]
    assert np.abs(error).max() < 4.5
    assert 0.8 < error.std() < 1.2


@pytest.mark.long
def test_a_million_rows_are_planned_in_two_seconds():
    rng = np.random.default_rng(0)
    scores, strata = rng.normal(size=1_000_000), rng.integers(3, size=1_000_000)
    start = time.process_time()
    pi, _ = inclusion_probabilities(scores, 2000, 200, strata)
    assert len(draw(pi, strata, rng)) == 2000
    assert time.process_time() - start < 2
