"""The programme for even flags against rules that can be found by hand, and against the linear programme itself."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from evenout.core.cells import collect_cells
from evenout.core.flags import (
    _Programme,
    even_flags,
    flag_threshold,
    group_rates,
    linear_resemblance,
    most_kept,
    rate_ratio,
)
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.ruler import Means, Sample, estimate_ratio


def _sample(codes, weight=None):
    return Sample(Membership.of_codes(codes, int(codes.max()) + 1), weight)


def _hard(sizes, seed=0):
    """Groups that are known for sure; later ones score higher."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shares = np.array(sizes) / sum(sizes)
    return rng.normal(size=len(codes)) + codes, np.eye(len(sizes))[codes] / shares, codes, shares


def test_known_groups_get_the_top_of_each_group():
    t, r, codes, _ = _hard((600, 300, 100))
    price = even_flags(t, r, _sample(codes), flagged=0.1, ratio=1.0)
    assert_allclose(price.sum(), 0.0, atol=1e-12)
    y = t - r @ price
    over = y > flag_threshold(y, 0.1)
    best = np.zeros(len(t), dtype=bool)
    for g, n in enumerate((600, 300, 100)):
        rows = np.flatnonzero(codes == g)
        best[rows[np.argsort(-t[rows])[: n // 10]]] = True
    assert (over != best).sum() <= 4  # a row or two at the threshold


@pytest.mark.parametrize("ratio", [0.5, 0.8, 0.95])
def test_the_ratio_is_met_and_not_exceeded(ratio):
    t, r, codes, _ = _hard((3000, 1500, 900))
    y = t - r @ even_flags(t, r, _sample(codes), flagged=0.1, ratio=ratio)
    rates = group_rates(y > flag_threshold(y, 0.1), codes, 3)
    assert rate_ratio(rates) == pytest.approx(ratio, abs=0.04)


def test_a_score_that_is_even_enough_is_left_alone():
    t, r, codes, _ = _hard((2000, 2000))
    assert_array_equal(even_flags(t - codes, r, _sample(codes), flagged=0.1, ratio=0.5), np.zeros(2))


def test_resemblance_that_is_off_among_the_flagged_is_set_right():
    """The classifier underrates group 1 where scores are high: what it says of rates is wrong, the count is right."""
    rng = np.random.default_rng(0)
    n = 8000
    x = rng.normal(size=n)
    p = 1.0 / (1.0 + np.exp(-1.5 * x))
    codes = (rng.random(n) < p).astype(np.intp)
    t = x + rng.normal(size=n)
    said = np.where(t > 1.5, p * 0.8, p)
    said *= codes.mean() / said.mean()
    shares = np.bincount(codes) / n
    r = np.column_stack([1.0 - said, said]) / shares
    r[:, 0] = (1.0 - r[:, 1] * shares[1]) / shares[0]
    y = t - r @ even_flags(t, r, _sample(codes), flagged=0.1, ratio=0.8)
    assert rate_ratio(group_rates(y > flag_threshold(y, 0.1), codes, 2)) == pytest.approx(0.8, abs=0.04)


def test_the_scale_of_the_score_does_not_matter():
    t, r, codes, _ = _hard((600, 300))
    one = even_flags(t, r, _sample(codes), flagged=0.1, ratio=0.9)
    other = even_flags(1e6 * t - 3e7, r, _sample(codes), flagged=0.1, ratio=0.9)
    assert_allclose(other, 1e6 * one, rtol=1e-4)


def test_the_rule_that_keeps_most_keeps_more_and_flags_lower_scores():
    t, r, codes, _ = _hard((3000, 1500))
    y = t - r @ even_flags(t, r, _sample(codes), flagged=0.1, ratio=0.8)
    base, over = (s > flag_threshold(s, 0.1) for s in (t, y))
    kept, mean = most_kept(t, r, _sample(codes), flagged=0.1, ratio=0.8)
    assert kept >= (base & over).sum() / base.sum() - 0.01
    assert mean <= t[over].mean() + 0.01


def _counted(rates, sizes):
    noise = np.diag(np.nan_to_num(rates * (1.0 - rates) / np.maximum(sizes - 1.0, 1.0)))
    return estimate_ratio(Means(rates, noise, sizes, Comparison.of_all(len(rates))))


def test_many_equal_groups_may_be_equal():
    """Noise alone makes the lowest of ten rates .6 of the highest; the interval knows."""
    rng = np.random.default_rng(1)
    sizes = np.full(10, 500.0)
    found = [_counted(rng.binomial(500, np.full(10, 0.1)) / 500, sizes) for _ in range(200)]
    assert np.mean([f.interval[1] == 1.0 for f in found]) > 0.93


def test_a_ratio_is_a_little_low_and_its_interval_holds_the_truth():
    rng = np.random.default_rng(0)
    sizes, truth = np.array([2000.0, 800.0, 400.0]), np.array([0.10, 0.09, 0.08])
    found = [_counted(rng.binomial(sizes.astype(int), truth) / sizes, sizes) for _ in range(300)]
    assert 0.7 < np.mean([f.value for f in found]) < 0.8
    assert np.mean([f.interval[0] <= 0.8 <= f.interval[1] for f in found]) > 0.93
    nobody = _counted(np.array([0.1, 0.0]), np.array([100.0, 50.0]))
    assert nobody.value == nobody.interval[0] == 0.0


def test_one_group_has_no_ratio():
    assert np.isnan(_counted(np.array([0.1]), np.array([100.0])).value)


def _soft(n, seed=0):
    """Three groups that are known by half."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=(n, 2)) + np.array([[0, 0], [1, 0], [0, 1]])[codes]
    log = np.log([0.5, 0.3, 0.2]) - ((x[:, None] - np.array([[0, 0], [1, 0], [0, 1]])) ** 2).sum(axis=2) / 2
    p = np.exp(log)
    p /= p.sum(axis=1, keepdims=True)
    return x.sum(axis=1) + rng.normal(size=n), p / p.mean(axis=0), codes


def _best(t, r, mass, blocks, flagged, ratio):
    """The linear programme itself, all rows at once: the largest total score, and the rule."""
    q, lowest = r.T * mass, np.zeros((r.shape[1], len(blocks)))
    for b, block in enumerate(blocks):
        lowest[block, b] = 1.0
    found = linprog(
        -np.append(t * mass, np.zeros(len(blocks))),
        A_ub=np.block([[-q, lowest], [q, -lowest / ratio]]),
        b_ub=np.zeros(2 * len(q)),
        A_eq=np.append(mass, np.zeros(len(blocks)))[None],
        b_eq=[flagged],
        bounds=(0.0, 1.0),
    )
    return -found.fun, found.x[: len(t)]


def _attributes(n, sizes, seed=12):
    """Soft groups of several attributes side by side, and weights; r is what features tell of each attribute."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    weight = rng.uniform(0.3, 3.0, size=n)
    mass, parts = weight / weight.sum(), []
    for size in sizes:
        p = np.exp(0.6 * x @ rng.normal(size=(4, size)))
        p /= p.sum(axis=1, keepdims=True)
        parts.append(p / (mass @ p))
    ends = np.cumsum([0, *sizes])
    blocks = [list(range(a, b)) for a, b in pairwise(ends)]
    t = x.sum(axis=1) + rng.normal(size=n)
    return (t - t.mean()) / t.std(), np.column_stack(parts), mass, blocks


@pytest.mark.parametrize("ratio", [0.6, 0.9])
@pytest.mark.parametrize(("n", "sizes"), [(1500, (3,)), (1500, (2, 3, 4)), (1200, (30,)), (1200, (12, 20, 15))])
def test_the_rule_has_the_largest_total_score_of_all_even_ones(n, sizes, ratio):
    t, r, mass, blocks = _attributes(n, sizes)
    programme = _Programme(t, r, 0.1, ratio, mass, np.repeat(np.arange(len(sizes)), sizes))
    dual = programme.solve(np.ones(r.shape[1]))
    rule, (best, _) = programme.rule(dual), _best(t, r, mass, blocks, 0.1, ratio)
    assert (t * mass) @ rule == pytest.approx(best, rel=1e-3)
    assert mass @ rule == pytest.approx(0.1, abs=1e-4)
    rates = r.T @ (mass * rule)
    assert min(rates[block].min() / rates[block].max() for block in blocks) > ratio - 1e-3
    y = t + r @ dual.worth  # a threshold flags whole rows, the programme parts of as many rows as there are groups
    over = y > np.sort(y)[np.searchsorted(np.cumsum(mass[np.argsort(y)]), 0.9)]
    assert ((over - rule) ** 2 * mass).sum() < (sum(sizes) + 2) / n


def test_hard_groups_of_few_rows_get_the_best_rule_too():
    rng = np.random.default_rng(1)
    codes = rng.integers(25, size=1500)
    t = rng.normal(size=1500) + 0.7 * rng.normal(size=25)[codes]
    r = np.eye(25)[codes] / (np.bincount(codes) / 1500)
    mass = np.full(1500, 1 / 1500)
    programme = _Programme(t, r, 0.1, 0.9, mass, np.zeros(25, dtype=int))
    rule = programme.rule(programme.solve(np.ones(25)))
    best, _ = _best(t, r, mass, [list(range(25))], 0.1, 0.9)
    assert (t * mass) @ rule == pytest.approx(best, rel=1e-3)


def test_columns_that_groups_follow_from_give_the_same_rule_as_groups_of_their_own():
    """Resemblance of twelve groups by three columns: steps are taken in these, to the same end."""
    rng = np.random.default_rng(4)
    Z = rng.normal(size=(2000, 3))
    r = 1.0 + 0.2 * Z @ rng.normal(size=(3, 12))
    t = Z.sum(axis=1) + rng.normal(size=2000)
    mass, block = np.full(2000, 1 / 2000), np.zeros(12, dtype=int)
    few = _Programme(t, r, 0.1, 0.9, mass, block)
    assert few.columns.shape == (2000, 4)
    assert_allclose(few.columns @ few.mix, r, atol=1e-9)
    best, _ = _best(t, r, mass, [list(range(12))], 0.1, 0.9)
    assert (t * mass) @ few.rule(few.solve(np.ones(12))) == pytest.approx(best, rel=2e-3)


def test_rates_that_no_rule_can_even_out_are_known_as_such():
    t = np.random.default_rng(0).normal(size=1000)
    programme = _Programme(t, np.ones((1000, 2)), 0.1, 0.9, np.full(1000, 1e-3), np.zeros(2, dtype=int))
    assert programme.solve(np.array([1.0, 2.0])) is None


def test_a_row_that_stands_for_three_counts_as_three():
    t, r, codes = _soft(1500)
    counts = np.where(codes == 0, 3, 1)
    r = r / (r * counts[:, None]).sum(axis=0) * counts.sum()
    settings = {"flagged": 0.1, "ratio": 0.8}
    weighed = even_flags(t, r, _sample(codes, counts.astype(float)), **settings)
    rows = np.repeat(np.arange(1500), counts)
    repeated = even_flags(t[rows], r[rows], _sample(codes[rows]), **settings)
    assert_allclose(weighed, repeated, atol=0.05 * np.abs(repeated).max())


def test_linear_resemblance_is_least_squares_on_the_indicator():
    _, r, codes = _soft(5000)
    rng = np.random.default_rng(1)
    Z = np.column_stack([r[:, 1], rng.normal(size=5000), r[:, 2] + 0.1 * rng.normal(size=5000)])
    cells = collect_cells(Z, r[:, 0], np.ones(5000), codes, np.zeros(5000, dtype=int), n_groups=3, n_sets=1)
    predicted = np.column_stack([np.ones(5000), Z]) @ linear_resemblance(cells, np.arange(3))
    design = np.column_stack([np.ones(5000), Z])
    shares = np.bincount(codes) / 5000
    for g in range(3):
        fitted = design @ np.linalg.lstsq(design, (codes == g) / shares[g])[0]
        assert np.corrcoef(fitted, predicted[:, g])[0, 1] > 0.999
    assert_allclose(predicted @ shares, 1.0, atol=1e-10)


def test_each_block_is_evened_out_by_itself():
    """Strata of different rates: groups are compared within them alone."""
    rng = np.random.default_rng(3)
    stratum, group = rng.integers(2, size=6000), rng.integers(2, size=6000)
    codes = 2 * stratum + group
    t = rng.normal(size=6000) + 1.0 * stratum + 0.5 * group
    compared = Comparison(4, (Block((0, 1), 0.5), Block((2, 3), 0.5)))
    sample = Sample(Membership(Membership.of_codes(codes, 4).weights, compared))
    r = np.eye(4)[codes] / (np.bincount(codes) / 6000)
    y = t - r @ even_flags(t, r, sample, flagged=0.1, ratio=0.9)
    rates = group_rates(y > flag_threshold(y, 0.1), codes, 4)
    assert rates[0] / rates[1] == pytest.approx(0.9, abs=0.05)
    assert rates[2] / rates[3] == pytest.approx(0.9, abs=0.03)
    assert rates[:2].max() < 0.5 * rates[2:].min()  # what the stratum explains stays


def test_steps_that_do_not_settle_are_no_solution(monkeypatch):
    """Else the multipliers of a dual that was left half way would pass for a rule."""
    t, r, codes, _ = _hard((600, 300, 100))
    monkeypatch.setattr("evenout.core.flags._STEPS", 1)
    monkeypatch.setattr("evenout.core.flags._PASSES", 1)
    assert_array_equal(even_flags(t, r, _sample(codes), flagged=0.1, ratio=0.9), np.zeros(3))
    assert np.isnan(most_kept(t, r, _sample(codes), flagged=0.1, ratio=0.9)).all()


def test_what_a_ratio_lacks_at_many_groups_is_the_rounding_to_whole_rows():
    """The smoothed rule has the ratio; cut at its threshold, each of the groups is off by up to a row of ten."""
    rng = np.random.default_rng(1)
    codes = rng.integers(80, size=8000)
    n = np.bincount(codes)
    t, r = rng.normal(size=8000) + 0.6 * rng.normal(size=80)[codes], np.eye(80)[codes] * 8000 / n
    programme = _Programme(t, r, 0.1, 0.9, np.full(8000, 1 / 8000), np.zeros(80, dtype=np.intp))
    smoothed = programme.rates(programme.rule(programme.solve(np.ones(80))))
    assert smoothed.min() / smoothed.max() == pytest.approx(0.9, abs=0.001)
    y = t - r @ even_flags(t, r, _sample(codes), flagged=0.1, ratio=0.9)
    counted = np.bincount(codes, y > flag_threshold(y, 0.1))
    assert np.abs(counted - n * smoothed).max() < 1.0
    assert 0.7 < rate_ratio(counted / n) < 0.85
