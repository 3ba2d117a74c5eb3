"""Parts are Shapley values: the mean over all orders, and what follows from it."""

import numpy as np
import pytest

from evenout.reasons.attribution import ALL, draw_orders


def _values(orders, function):
    """A function of a set of features, at all mixtures: shape (1, L, 1)."""
    return np.array([[[function(frozenset(np.flatnonzero(taken).tolist()))] for taken in orders.taken]])


def _random_function(p, seed, degree=None):
    """A sum of terms, each of which acts where all of its features are taken; at most ``degree`` of them."""
    rng = np.random.default_rng(seed)
    sets = [frozenset(np.flatnonzero(rng.random(p) < 0.4).tolist()) for _ in range(30)]
    weights = {s: rng.normal() for s in sets if degree is None or len(s) <= degree}
    return lambda taken: sum(weight for s, weight in weights.items() if s <= taken)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_few_features_get_their_shapley_values(p, shapley):
    orders, function = draw_orders(p), _random_function(p, p)
    parts, error = orders.parts(_values(orders, function))
    np.testing.assert_allclose(parts[0, :, 0], shapley(function, p), atol=1e-12)
    assert not error.any()


def test_all_mixtures_are_met_once():
    taken = draw_orders(6).taken
    assert len(np.unique(taken, axis=0)) == len(taken) == 2**6
    assert not taken[0].any()


@pytest.mark.parametrize("p", [ALL + 1, 23])
def test_parts_add_up_and_unused_features_get_nothing(p):
    orders = draw_orders(p)
    function = _random_function(p, 1)
    unused = lambda taken: function(taken - {0, 4})  # noqa: E731
    parts, error = orders.parts(_values(orders, unused))
    everything = frozenset(range(p))
    assert parts.sum() == pytest.approx(unused(everything) - unused(frozenset()), abs=1e-12)
    assert parts[0, 0, 0] == parts[0, 4, 0] == error[0, 0, 0] == 0.0


def test_pairs_of_features_that_act_together_are_split_exactly_by_any_orders():
    p = 12
    function = _random_function(p, 5, degree=2)
    orders = draw_orders(p)
    single = np.array([function(frozenset([j])) - function(frozenset()) for j in range(p)])
    pairs = np.zeros(p)
    for i in range(p):
        for j in range(p):
            if i != j:
                together = function(frozenset([i, j])) - function(frozenset([i])) - function(frozenset([j]))
                pairs[i] += (together + function(frozenset())) / 2
    parts, error = orders.parts(_values(orders, function))
    np.testing.assert_allclose(parts[0, :, 0], single + pairs, atol=1e-12)
    assert error.max() < 1e-12


def test_standard_errors_are_of_the_size_of_the_errors():
    """Truth by the Harsanyi dividends: a term is shared alike by its features."""
    p, ratios = 14, []
    orders = draw_orders(p)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        terms = [(np.flatnonzero(rng.random(p) < 0.5), rng.normal()) for _ in range(25)]
        terms = [(s, w) for s, w in terms if len(s)]
        truth = np.zeros(p)
        for s, w in terms:
            truth[s] += w / len(s)
        values = sum(w * orders.taken[:, s].all(axis=1) for s, w in terms)
        parts, error = orders.parts(values[None, :, None])
        ratios.append((parts[0, :, 0] - truth) / np.maximum(error[0, :, 0], 1e-12))
    assert 0.8 < np.sqrt(np.mean(np.square(ratios))) < 1.4  # Student's t with few degrees of freedom has 1.1 to 1.3


def test_features_that_do_the_same_get_the_same_within_the_error():
    """Exactly up to 10 features; by sampled orders, within their error."""
    function = lambda taken: float(len(taken & {2, 3, 6}) >= 2)  # noqa: E731
    small = draw_orders(8)
    parts, _ = small.parts(_values(small, function))
    assert parts[0, 2, 0] == pytest.approx(parts[0, 3, 0], abs=1e-12)
    large = draw_orders(16)
    parts, error = large.parts(_values(large, function))
    assert abs(parts[0, 2, 0] - parts[0, 3, 0]) <= 4 * np.hypot(error[0, 2, 0], error[0, 3, 0]) + 1e-12
