"""Bounds that hold at all times: the closed form by quadrature, the promise by simulation."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from evenout.core.intervals import (
    SIGNS,
    TIGHTEST,
    change_range,
    log_evidence,
    look_share,
    person_signs,
    reach_by_person,
    start_shares,
    upper_bound,
)


@pytest.mark.parametrize(("s", "v", "level"), [(0.5, 0.1, 0.05), (10.0, 20.0, 0.025), (40.0, 300.0, 0.001)])
def test_evidence_is_the_average_over_all_slopes(s, v, level):
    asked = -2 * np.log(level)
    rho = TIGHTEST / (asked + np.log1p(asked))

    def density(slope):
        return (1 - slope) ** (rho - 1) * np.exp(slope * rho)

    def evidence(slope):
        return density(slope) * np.exp(slope * s + v * (np.log1p(-slope) + slope))

    expected = quad(evidence, 0, 1)[0] / quad(density, 0, 1)[0]
    assert log_evidence(np.array(s), np.array(v), np.array(level)) == pytest.approx(np.log(expected), abs=1e-8)


def test_the_bound_is_where_the_evidence_reaches_the_level():
    v = np.array([0.0, 0.3, 25.0, 1e4, 1e7])
    for level in (0.2, 0.025, 1e-6):
        found = upper_bound(v, level)
        np.testing.assert_allclose(log_evidence(found, v, np.full(5, level)), -np.log(level), rtol=1e-6)
        assert (np.diff(found) > 0).all()


def test_the_bound_is_wider_than_that_for_one_look_and_not_much():
    v = np.array([25.0, 100.0, 1000.0])
    once = norm.isf(0.025) * np.sqrt(v)
    assert (upper_bound(v, 0.025) > once).all()
    assert (upper_bound(v, 0.025) < 1.9 * once).all()


def test_a_single_row_can_never_be_enough():
    assert upper_bound(np.array([0.0]), 0.05)[0] > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.3, 0.5])
def test_the_bound_is_ever_crossed_no_more_often_than_promised(chance):
    """1,000 sequences of 3,000 flags: looking after every row, at 10 %."""
    rng = np.random.default_rng(1)
    x = (rng.random((1000, 3000)) < chance).astype(float)
    n = np.arange(1, 3001)
    guess = np.column_stack([np.full(1000, 0.5), (x.cumsum(axis=1)[:, :-1] + 0.5) / (n[:-1] + 1)])
    s, v = (x - chance).cumsum(axis=1), ((x - guess) ** 2).cumsum(axis=1)
    ever = (log_evidence(np.maximum(s, 0), v, np.array(0.1)) > -np.log(0.1)).any(axis=1).mean()
    assert 0.01 < ever <= 0.1 + 3 * np.sqrt(0.09 / 1000)


def test_starts_share_one_level():
    assert sum(look_share(k) for k in range(1, 1001)) == pytest.approx(1 - 1 / 1001)
    shares = start_shares(np.arange(1, 100_001))
    assert shares[0] == 0.5
    assert shares.sum() == pytest.approx(1.0, abs=1e-4)
    assert shares.sum() < 1.0


def test_signs_are_fair_coins_of_a_person_and_a_salt():
    names = [f"person {i}" for i in range(4000)]
    signs = person_signs(names, "salt")
    assert signs.shape == (4000, SIGNS)
    assert np.abs(signs.mean(axis=0)).max() < 5 / np.sqrt(4000)
    alike = signs.T @ signs / 4000 - np.eye(SIGNS)
    assert np.abs(alike).max() < 5.5 / np.sqrt(4000)
    assert np.array_equal(person_signs(names[:5], "salt"), signs[:5])
    assert np.abs((person_signs(names, "other") * signs).mean()) < 0.01


@pytest.mark.parametrize("sizes", [(200, 200), (30, 400)])
@pytest.mark.parametrize("rate", [None, 0.1])
def test_a_test_by_person_has_its_level(sizes, rate):
    """Sums of people, continuous or flagged or not, of groups of equal and of unequal size; both directions."""
    rng = np.random.default_rng(0)
    n_trials, level = 2000, 0.005
    sums, signed = np.zeros(n_trials), np.zeros((n_trials, 2, SIGNS))
    for g, (n, side) in enumerate(zip(sizes, (1.0, -1.0), strict=True)):
        x = rng.normal(size=(n_trials, n)) if rate is None else (rng.random((n_trials, n)) < rate).astype(float)
        sums += side * x.mean(axis=1)
        left = side * (x - x.mean(axis=1, keepdims=True)) / np.sqrt(n * (n - 1))
        signed[:, g] = left @ person_signs([f"{g}-{i}" for i in range(n)], "salt")
    beyond = np.abs(sums) > reach_by_person(signed, np.array(sizes, dtype=float), level)
    assert beyond.mean() <= 2 * level + 3 * np.sqrt(2 * level / n_trials)
    if sizes == (200, 200):  # a few people prove little
        assert beyond.mean() >= level


def test_nothing_is_said_of_one_person():
    assert np.isinf(reach_by_person(np.ones((2, SIGNS)), np.array([1.0, 50.0]), 0.05))


@pytest.mark.parametrize("place", [0, 10, 25])
def test_the_range_of_a_change_holds_its_place(place):
    """Means of -0.4 before and 0.9 since, variance 1, of 40 places; 95 % is aimed at."""
    rng = np.random.default_rng(1)
    held, width = [], []
    for _ in range(400):
        x = rng.normal(size=40) + np.where(np.arange(40) >= place, 0.9, -0.4)
        first, best, last = change_range(x, np.ones(40))
        assert first <= best <= last
        held.append(first <= place <= last)
        width.append(last - first)
    assert np.mean(held) > 0.92
    assert np.median(width) < 20


def test_places_at_which_nothing_is_known_do_not_matter():
    x = np.array([-1.0, -1.2, 0.0, 0.0, 3.0, 2.5, 2.8])
    weight = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    first, _, last = change_range(x * weight, weight)
    assert (first, last) == (2, 4)
