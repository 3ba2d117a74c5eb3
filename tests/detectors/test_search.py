from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from evenout.core.parallel import compiled
from evenout.detectors._search_kernels import (
    MOST_FEATURES,
    TILE,
    UNIT,
    bits_within,
    least,
    near_points,
    points_to_box,
    round_queries,
    squared_distances,
    within,
)
from evenout.detectors.neighbours import distinct_rows
from evenout.detectors.search import BLOCK, Blocks, cut_blocks, drop_points, nearest_by_blocks


def squares(Q, X):
    """Squared distances, summed over the features in their order: what decides, bit for bit."""
    total = np.zeros((len(Q), len(X)))
    with np.errstate(over="ignore"):
        for f in range(X.shape[1]):
            gap = Q[:, f, None] - X[None, :, f]
            total += gap * gap
    return total


def by_sorting(X, k, Q=None):
    """The k nearest by sorting all distances; among equals the smaller index first."""
    D = np.sqrt(squares(X if Q is None else Q, X))
    if Q is None:
        np.fill_diagonal(D, np.nan)  # sorted last, even after infinite distances
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(D, order, axis=1), order


def assert_exact(X, k, Q=None, n_threads=1):
    found = nearest_by_blocks(cut_blocks(X), k, queries=None if Q is None else cut_blocks(Q), n_threads=n_threads)
    for mine, expected in zip(found, by_sorting(X, k, Q), strict=True):
        assert_array_equal(mine, expected)


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def lattice(n, d, values=3, seed=0):
    return np.random.default_rng(seed).integers(0, values, size=(n, d)).astype(float)


def far_clusters(n, d):
    """Dense clusters far from each other and from their common centre: float32 cannot tell their points apart."""
    return normal(n, d) * 1e-3 + 1e4 * np.sign(normal(5, d))[np.arange(n) % 5]


TABLES = {
    "normal": normal(700, 20),
    "low": normal(700, 3),
    "wide": normal(260, 90),
    "ties": lattice(600, 15),
    "far from zero": 1e8 + 1e-3 * normal(500, 16),
    "far clusters": far_clusters(500, 16),
    "mixed scales": normal(500, 18) * 10.0 ** np.arange(-9, 9),
    "heavy tails": np.random.default_rng(0).standard_cauchy((500, 15)) ** 3,
    "beyond float32": 1e200 * normal(400, 16),
    "some beyond float32": np.where(np.arange(400) % 50, 1.0, 1e60)[:, None] * normal(400, 16),
    "squares below float32": 1e-25 * normal(400, 16),
    "squares below float64": 1e-170 * normal(400, 16),
    "subnormal": 5e-324 * lattice(400, 16, values=9),
    "squares beyond float64": 1e160 * normal(200, 15),
}


@pytest.mark.parametrize("name", TABLES)
def test_neighbours_are_those_of_a_full_sort_bit_for_bit(name):
    X = distinct_rows(TABLES[name])[0]
    assert_exact(X, 31)
    Q = np.concatenate([X[:70] * (1.0 + 1e-9), X[-40:], X[5:6] - X[7:8]])
    assert_exact(X, 12, Q)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (40, 39), (64, 63), (65, 64), (129, 128), (400, 300)])
def test_few_rows_and_long_lists(n, k):
    assert_exact(normal(n, 17), k)
    assert_exact(normal(n, 17), min(k + 1, n), normal(3, 17, seed=1))


def test_points_one_rounding_apart():
    base = normal(8, 20)
    X = np.concatenate([base, *(np.nextafter(base, np.inf * sign) for sign in (-1, 1)), normal(300, 20, seed=1)])
    X = np.concatenate([X, X + np.spacing(X) * lattice(len(X), 20)])
    assert_exact(distinct_rows(X)[0], 40)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(66, 300),
    d=st.integers(1, 40),
    values=st.integers(2, 2000),
    spread=st.sampled_from([1e-160, 1e-24, 1e-19, 1e-3, 1.0, 1e15, 1e19, 1e150]),
    offset=st.sampled_from([0.0, 1.0, 1e3, 1e8]),
    k=st.integers(1, 60),
)
def test_any_table(seed, n, d, values, spread, offset, k):
    rng = np.random.default_rng(seed)
    X = rng.integers(-values, values, size=(n, d)) * spread * rng.choice([1.0, 1e-3, 1e4], size=d) + offset * spread
    X = distinct_rows(np.where(rng.random((n, d)) < 0.1, np.nextafter(X, np.inf), X))[0]
    assert_exact(X, min(k, len(X) - 1))
    assert_exact(X, min(k, len(X)), rng.permuted(X, axis=0)[:90])


def test_dropped_points_are_not_found():
    X, gone = normal(400, 20), np.random.default_rng(1).random(400) < 0.4
    gone[cut_blocks(X).exact.ids[2]] = True  # a whole block
    distance, found = nearest_by_blocks(drop_points(cut_blocks(X), gone), 31, queries=cut_blocks(X[gone]))
    expected_distance, expected = by_sorting(X[~gone], 31, X[gone])
    assert_array_equal(distance, expected_distance)
    assert_array_equal(found, np.flatnonzero(~gone)[expected])


def test_threads_do_not_matter():
    X = normal(1500, 20)
    for one, three in zip(
        nearest_by_blocks(cut_blocks(X), 31), nearest_by_blocks(cut_blocks(X), 31, n_threads=3), strict=True
    ):
        assert_array_equal(one, three)


def without_products(X):
    """Blocks whose products never say that a point is near."""
    blocks = cut_blocks(X)
    blind = Blocks(blocks.exact)
    offsets = np.full_like(blocks.rounded.offsets, -np.inf)
    blind.__dict__["rounded"] = blocks.rounded._replace(offsets=offsets)
    return blind


def share_found_by_products(X):
    return (nearest_by_blocks(cut_blocks(X), 10)[1] != nearest_by_blocks(without_products(X), 10)[1]).mean()


def test_products_are_asked_where_they_can_tell():
    assert share_found_by_products(normal(900, 20)) > 0.5
    assert share_found_by_products(normal(900, 4)) > 0.2
    assert share_found_by_products(far_clusters(900, 20)) < 0.1
    assert share_found_by_products(1e30 * normal(900, 20)) == 0.0


def test_one_point_far_away_costs_the_others_no_digits():
    X = normal(900, 20)
    X[0] = 1e12
    assert np.sort(cut_blocks(X).rounded.reach)[-2] < 20.0


@compiled()
def near_mask(rounded, chosen, start, values, offsets, lowest, masks):
    near_points(rounded, chosen, start, values, offsets, lowest, masks)


@compiled(bare=True)
def bits_of(numbers, limit):
    return bits_within(numbers, limit)


@pytest.mark.parametrize("limit", [-1.0, 0.0, 31.0, np.inf])
def test_bits_tell_the_numbers_up_to_a_limit(limit):
    numbers = np.random.default_rng(0).permutation(np.arange(float(BLOCK)))
    numbers[[3, BLOCK - 1]] = np.nan, np.inf
    expected = sum(1 << c for c in range(BLOCK) if numbers[c] <= limit)
    assert int(bits_of(numbers, limit)) == expected


def products_of(Q, X, limits):
    """For BLOCK queries and points: which points products hold for near (queries x points), and the bounds for it."""
    data, d = cut_blocks(X).rounded, X.shape[1]
    rounded, norms = np.empty((d, BLOCK), np.float32), np.empty(BLOCK)
    lowest, masks = np.empty(BLOCK, np.float32), np.empty(TILE, np.uint64)
    round_queries(np.ascontiguousarray(Q.T), data.centre, rounded, norms)
    least(norms, data.reach[0], limits, d, lowest)
    bits = []
    for start in range(0, BLOCK, TILE):
        near_mask(rounded, np.arange(BLOCK), start, data.values[0], data.offsets[0], lowest, masks)
        bits += [[int(mask) >> c & 1 for c in range(BLOCK)] for mask in masks]
    return np.array(bits, dtype=bool), lowest


def adversarial(rng, shape):
    """Numbers just above and below powers of two, and halfway between those that float32 has: they round the most."""
    power = 2.0 ** rng.integers(-2, 2, size=shape)
    return rng.choice([-1.0, 1.0], size=shape) * power * (1.0 + rng.integers(-3, 4, size=shape) * UNIT * 1.0000001)


@pytest.mark.parametrize("d", [1, 5, 20, 300])
@pytest.mark.parametrize("draw", [adversarial, lambda rng, shape: rng.normal(size=shape)])
def test_a_point_at_the_limit_is_always_held_for_near(draw, d):
    rng = np.random.default_rng(d)
    Q, X = draw(rng, (BLOCK, d)), draw(rng, (BLOCK, d))
    D, told = squares(Q, X), 0
    for c in range(BLOCK):
        bits, lowest = products_of(Q, X, D[:, c])
        told += (lowest > -np.inf).sum()
        assert bits[:, c][lowest > -np.inf].all()
    assert told > 0.8 * BLOCK**2  # all but points at the same place


def test_products_tell_near_from_far():
    Q, X = normal(BLOCK, 20), normal(BLOCK, 20, seed=1)
    D = squares(Q, X)
    limits = np.median(D, axis=1)
    bits, _ = products_of(Q, X, limits)
    assert_array_equal(bits, limits[:, None] >= D)  # none of these is close to its limit


@pytest.mark.parametrize("d", [1, 2, 7, 20, 64])
def test_the_error_of_products_is_within_the_bound(d):
    """Steps 1 and 3 of the proof, in exact arithmetic, for float32 sums in three orders without fused operations."""
    rng = np.random.default_rng(d)
    worst = 0.0
    for _ in range(40):
        scale, centre = 10.0 ** rng.integers(-6, 7), rng.normal(size=d) * 1e3
        q, x = (adversarial(rng, d) * scale + centre for _ in range(2))
        q32, x32 = ((p - centre).astype(np.float32) for p in (q, x))
        exact_q, exact_x = ([Fraction(float(v)) for v in p] for p in (q32, x32))
        a, R = (float(np.sqrt(np.square(p, dtype=np.float64).sum())) for p in (q32, x32))
        for rounded, point in ((exact_q, q), (exact_x, x)):
            for f in range(d):
                moved = abs(rounded[f] - (Fraction(float(point[f])) - Fraction(float(centre[f]))))
                assert moved <= Fraction(2 * UNIT) * abs(rounded[f])
        truth = sum((u * v for u, v in zip(exact_q, exact_x, strict=True)), Fraction(0))
        truth -= sum((v * v for v in exact_x), Fraction(0)) / 2
        offset = np.float32(-0.5 * np.square(x32, dtype=np.float64).sum())
        for order in (np.arange(d), np.arange(d)[::-1], np.argsort(np.abs(q32 * x32))[::-1]):
            total = offset
            for f in order:
                total = np.float32(total + np.float32(q32[f] * x32[f]))
            error = abs(float(Fraction(float(total)) - truth)) / (UNIT * (a * R + 0.5 * R * R))
            worst = max(worst, error)
            assert error <= d + 4
    assert worst > 0.3  # the bound is not idle


@pytest.mark.parametrize("d", [1, 20, MOST_FEATURES])
@pytest.mark.parametrize("r", [1, 7, 300, 2**20])
@pytest.mark.parametrize(("a", "R"), [(1.0, 1.0), (0.0, 0.3), (1.7, 0.01)])
def test_bounds_leave_room_for_every_error_of_the_proof(a, R, r, d):
    lowest = np.empty(1, np.float32)
    least(np.array([a]), R, np.array([float(r * r)]), d, lowest)
    norm, reach, u = Fraction(a), Fraction(R), Fraction(UNIT)
    far = r * (1 + Fraction(2) ** -40) + 2 * u * (norm + reach)
    needed = (norm**2 - far**2) / 2 - (d + 4) * u * (norm * reach + reach**2 / 2)
    assert -np.inf < lowest[0]
    assert needed - Fraction(1, 100) * far**2 < Fraction(float(lowest[0])) <= needed


def test_bounds_are_given_only_where_the_proof_holds():
    lowest = np.empty(5, np.float32)
    limits = np.array([1.0, np.inf, 0.0, 1e-9, np.nan])
    least(np.ones(5), 1.0, limits, 20, lowest)
    assert_array_equal(lowest > -np.inf, [True, False, False, False, False])
    for norm, reach, d in [(1.0, np.inf, 20), (np.nan, 1.0, 20), (1e20, 1.0, 20), (1.0, 1.0, MOST_FEATURES + 1)]:
        least(np.full(5, norm), reach, np.full(5, 1e39), d, lowest)
        assert_array_equal(lowest, np.full(5, -np.inf))


@pytest.mark.parametrize("d", [1, 3, 4, 5, 8, 11])  # with and without features left over from passes of two and four
def test_squared_distances_are_summed_over_all_features_in_their_order(d):
    rng = np.random.default_rng(d)
    point, values, out = rng.normal(size=d), rng.normal(size=(d, 6)), np.full(6, 9.0)
    squared_distances(point, values, out)
    assert_array_equal(out, squares(point[None], values.T)[0])
    points_to_box(values, np.full(d, -0.5), np.full(d, 0.5), out)
    np.testing.assert_allclose(out, (np.maximum(np.abs(values) - 0.5, 0.0) ** 2).sum(axis=0), rtol=1e-14)


def test_places_within_a_limit_are_sorted_by_their_keys():
    keys, places = np.array([3.0, 2.0, 1.0, 0.0, 5.0]), np.empty(5, dtype=np.intp)
    count = within(np.array([3.0, 1.0, 2.0, 5.0, np.nan]), 3.0, keys, places)
    assert places[:count].tolist() == [2, 1, 0]
    values, keys = np.random.default_rng(0).random((2, 500))
    expected = [place for place in np.argsort(keys) if values[place] <= 0.7]
    places = np.empty(500, dtype=np.intp)
    assert places[: within(values, 0.7, keys, places)].tolist() == expected
