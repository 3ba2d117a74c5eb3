"""Plain torch on the CPU, and on a CUDA device where there is one, against the compiled code of the CPU."""

import sys
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from evenout import gpu
from evenout.core.pairwise import pair_sums
from evenout.detectors.forest import Forest
from evenout.detectors.neighbours import Neighbours
from evenout.detectors.pool import cross_fit_pool, fit_pool
from evenout.detectors.search import cut_blocks, nearest_by_blocks
from evenout.detectors.tails import Tails

STATE = ("locations", "counts", "lof", "knn", "k_distance", "density", "scores")


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param


def make_rows(n, d, seed=0):
    """Normal rows; a third are copies of others, and a third lie on a grid, where distances are tied."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    third = n // 3
    X[:third] = X[third : 2 * third]
    X[2 * third :] = np.round(X[2 * third :], 1)
    return X


def make_problem(n, d=4, q=5, n_groups=3, n_folds=4, seed=0):
    """Features, strongly correlated scores, groups (some unknown) and folds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Z = rng.normal(size=(n, 1)) + 0.1 * rng.normal(size=(n, q))
    return X, Z, rng.integers(-1, n_groups, n), rng.integers(0, n_folds, n)


def error_by_direction(form, truth):
    """max |v'(form - truth)v| / v' truth v over the range of truth."""
    values, vectors = np.linalg.eigh(truth)
    kept = values > 1e-12 * values[-1]
    basis = vectors[:, kept] / np.sqrt(values[kept])
    return np.abs(np.linalg.eigvalsh(basis.T @ (form - truth) @ basis)).max()


def test_missing_torch_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"device='cuda' needs the extra gpu: pip install 'evenout\[gpu\]'"):
        gpu.check_device("cuda")


def test_missing_device_is_an_error_of_one_line():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        gpu.check_device("cuda")
        return
    with pytest.raises(ValueError, match="torch finds no CUDA device; use device='cpu'"):
        gpu.pair_sums(*make_problem(10), n_groups=3, n_folds=4)


@pytest.mark.parametrize(("n", "d"), [(900, 1), (1200, 3), (600, 12)])
def test_neighbours_learn_the_same_bit_for_bit(device, n, d):
    X = make_rows(n, d)
    ks = {"lof": [5, 30], "knn": [1, 10]}
    expected, scores = Neighbours.fit(X, **ks)
    model, found = gpu.cross_fit_neighbours(X, None, **ks, device=device)[:2]
    np.testing.assert_array_equal(found, scores)
    for name in STATE:
        np.testing.assert_array_equal(getattr(model, name), getattr(expected, name), err_msg=name)
        assert getattr(model, name).dtype == getattr(expected, name).dtype


def test_neighbours_fitted_on_one_device_score_on_the_other(device):
    X, new = make_rows(900, 3), make_rows(2000, 3, seed=1)
    model, *_ = gpu.cross_fit_neighbours(X, None, lof=[4, 20], knn=[3], device=device)
    rows = np.concatenate([X[::7], new])
    expected = Neighbours.fit(X, lof=[4, 20], knn=[3])[0].score(rows)
    np.testing.assert_array_equal(model.score(rows), expected)
    np.testing.assert_array_equal(gpu.score(model, rows, device=device), expected)


def test_neighbours_without_a_fold_are_those_of_the_cpu(device):
    X = make_rows(900, 3)
    folds, ks = np.random.default_rng(0).integers(0, 4, len(X)), {"lof": [5, 30], "knn": [1, 10]}
    expected, scores, without = Neighbours.cross_fit(X, folds, **ks)
    model, found, again = gpu.cross_fit_neighbours(X, folds, **ks, device=device)
    np.testing.assert_array_equal(found, scores)
    for name in STATE:
        np.testing.assert_array_equal(getattr(model, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(again(2), without(2))


def test_too_few_rows_without_a_fold_have_the_scores_of_the_cpu(device):
    X, folds = make_rows(12, 3), np.arange(12) % 2
    _, _, without = Neighbours.cross_fit(X, folds, lof=[4], knn=[8])
    _, _, again = gpu.cross_fit_neighbours(X, folds, lof=[4], knn=[8], device=device)
    for fold in range(2):
        np.testing.assert_array_equal(again(fold), without(fold))


def test_neighbours_of_equal_rows_are_these_rows(device):
    model, scores, _ = gpu.cross_fit_neighbours(np.ones((5, 2)), None, lof=[2], knn=[4], device=device)
    np.testing.assert_array_equal(scores, [[1.0, 0.0]] * 5)
    np.testing.assert_array_equal(gpu.score(model, np.array([[1.0, 1.0], [4.0, 5.0]]), device=device)[:, 1], [0, 5])


@pytest.mark.filterwarnings("ignore:n_neighbors")
def test_neighbours_take_no_more_than_there_are(device):
    X = make_rows(6, 2)
    np.testing.assert_array_equal(
        gpu.cross_fit_neighbours(X, None, lof=[9], knn=[7], device=device)[1], Neighbours.fit(X, lof=[9], knn=[7])[1]
    )


@pytest.mark.parametrize("kind", ["normal", "grid", "clusters", "outliers"])
def test_fused_search_equals_that_of_the_cpu(kind):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from evenout.gpu._torch_neighbours import nearest as search

    rng = np.random.default_rng(0)
    X = rng.normal(size=(25000, 4))
    X += {"clusters": 1000.0 * rng.integers(0, 5, (len(X), 1))}.get(kind, 0.0)
    X[:10] *= 1e6 if kind == "outliers" else 1.0
    X = np.unique(np.round(X, 1) if kind == "grid" else X, axis=0)
    distances, ids = search(torch.as_tensor(X).cuda(), 30)
    expected = nearest_by_blocks(cut_blocks(X), 30, n_threads=4)
    np.testing.assert_array_equal(distances.cpu().numpy(), expected[0])
    np.testing.assert_array_equal(ids.cpu().numpy(), expected[1])


def test_nearest_breaks_long_ties_by_id(device):
    torch = pytest.importorskip("torch")
    from evenout.gpu._torch_neighbours import nearest as search

    grid = np.stack(np.meshgrid(range(9), range(9), range(9)), axis=-1).reshape(-1, 3).astype(float)
    distances, ids = search(torch.as_tensor(grid).to(device), 4)
    expected = nearest_by_blocks(cut_blocks(grid), 4)
    np.testing.assert_array_equal(distances.cpu().numpy(), expected[0])
    np.testing.assert_array_equal(ids.cpu().numpy(), expected[1])


@pytest.mark.parametrize("far", [0.0, 30.0])
def test_halves_and_differences_keep_within_their_bounds(far):
    torch = pytest.importorskip("torch")
    from evenout.gpu import _torch_rows as rows

    generator = torch.Generator().manual_seed(0)
    points = torch.randn(300, 7, dtype=torch.float64, generator=generator) + far
    points[0] *= 1e4
    points *= rows.scale_to_halves(points)
    assert 2.0**13 <= float(points.norm(dim=1).max()) < 2.0**14
    exact = rows.squared_distances(points, points)
    halves = rows.split(points)
    found = halves.left.float() @ halves.right.float().T + halves.norm[:, None]
    length = torch.maximum(points.norm(dim=1)[:, None], points.norm(dim=1))
    width = halves.left.shape[1]
    assert ((found.double() - exact).abs() <= rows.rounding_of_halves(length, width, 7)).all()
    found = rows.squared_distances(points.float(), points.float())
    assert ((found.double() - exact).abs() <= rows.rounding_of_differences(length, exact.sqrt(), 7)).all()


def test_forest_scores_are_those_of_the_cpu(device):
    X, new = make_rows(700, 4), make_rows(300, 4, seed=1)
    expected, scores = Forest.fit(X, sizes=[5, 12, 20], random_state=3)
    forest, found, _ = gpu.cross_fit_forest(X, None, sizes=[5, 12, 20], random_state=3, device=device)
    assert type(forest) is Forest
    np.testing.assert_array_equal(forest.threshold, expected.threshold)
    np.testing.assert_array_equal(found, scores)
    np.testing.assert_array_equal(gpu.score(forest, new, device=device), expected.score(new))


@pytest.mark.parametrize("n", [600, 1300])
def test_forest_without_a_fold_is_that_of_the_cpu(device, n):
    X = make_rows(n, 4)
    folds, settings = np.random.default_rng(0).integers(0, 4, n), {"sizes": [5, 20], "random_state": 3}
    _, scores, without = Forest.cross_fit(X, folds, **settings)
    forest, found, again = gpu.cross_fit_forest(X, folds, **settings, device=device)
    assert type(forest) is Forest
    np.testing.assert_allclose(found, scores, rtol=1e-14)
    np.testing.assert_allclose(again(1), without(1), rtol=1e-12)


@pytest.mark.parametrize("pool", ["paper", "default"])
def test_pool_on_the_device_is_that_of_the_cpu(device, monkeypatch, pool):
    if device == "cpu":  # the pool takes any other name to torch
        monkeypatch.setattr(gpu, "check_device", lambda _: None)
    X = make_rows(1100, 3)
    folds = np.random.default_rng(0).integers(0, 4, len(X))
    torch_device = "cuda" if device == "cuda" else "cpu:0"
    fitted, scores, without = cross_fit_pool(pool, X, folds, seed=1)
    _, found, again = cross_fit_pool(pool, X, folds, seed=1, device=torch_device)
    np.testing.assert_allclose(found, scores, rtol=1e-12)
    np.testing.assert_allclose(again(3), without(3), rtol=1e-12)
    np.testing.assert_array_equal(fit_pool(pool, X, seed=1, device=torch_device)[1], found)
    there, here = (fitted.score(X[:50] + 0.01, device=where) for where in (torch_device, "cpu"))
    np.testing.assert_allclose(there, here, rtol=1e-12)


def test_forest_of_one_row_says_nothing(device):
    forest, scores, _ = gpu.cross_fit_forest(np.ones((1, 2)), None, sizes=[3], random_state=0, device=device)
    assert scores.tolist() == gpu.score(forest, np.ones((1, 2)), device=device).tolist() == [[0.5]]


def test_other_detectors_score_by_themselves(device):
    X = make_rows(60, 3)
    tails, scores = Tails.fit(X)
    np.testing.assert_array_equal(gpu.score(tails, X, device=device), scores)


@pytest.mark.parametrize("scale", ["minmax", 0.7, 3.0])
def test_pair_sums_equal_those_of_the_cpu_in_every_direction(device, scale):
    problem = make_problem(1500)
    sums = gpu.pair_sums(*problem, n_groups=3, n_folds=4, scale=scale, device=device)
    truth = pair_sums(*problem, n_groups=3, n_folds=4, scale=scale)
    assert sums.form.shape == truth.form.shape
    bound = 1e-5 if device == "cpu" else 2.0**-11
    np.testing.assert_allclose(sums.mass, truth.mass, rtol=bound)
    assert error_by_direction(sums.form.sum(axis=(0, 1, 2)), truth.form.sum(axis=(0, 1, 2))) < bound
    for pair, f, g in np.ndindex(truth.mass.shape):
        assert error_by_direction(sums.form[pair, f, g], truth.form[pair, f, g]) < 4 * bound


def test_pair_sums_of_a_scale_so_short_that_few_pairs_count(device):
    problem = make_problem(1500)
    sums = gpu.pair_sums(*problem, n_groups=3, n_folds=4, scale=0.01, device=device)
    truth = pair_sums(*problem, n_groups=3, n_folds=4, scale=0.01)
    bound = 1e-5 if device == "cpu" else 1e-3
    assert truth.mass.sum() < 1
    np.testing.assert_allclose(sums.mass, truth.mass, rtol=bound)
    assert error_by_direction(sums.form.sum(axis=(0, 1, 2)), truth.form.sum(axis=(0, 1, 2))) < bound


def test_pair_sums_know_equal_rows_of_different_groups(device):
    """Two rows at one place, far from the origin, among others: at a short scale these two make up all of the sum."""
    problem = X, Z, groups, _ = make_problem(700)
    X[:2], groups[:2] = 3.0, [0, 1]
    sums = gpu.pair_sums(*problem, n_groups=3, n_folds=4, scale=0.02, device=device)
    np.testing.assert_allclose(sums.mass[0].sum(), 1.0, rtol=2e-3)
    np.testing.assert_allclose(sums.form[0].sum(axis=(0, 1)), np.outer(*[Z[0] - Z[1]] * 2), rtol=2e-2, atol=1e-4)


def test_pair_sums_of_one_pair_worked_by_hand(device):
    X, Z = np.array([[0.0], [3.0], [5.0]]), np.array([[0.0], [2.0], [1.0]])
    sums = gpu.pair_sums(X, Z, np.array([0, 1, 1]), np.array([0, 0, 1]), n_groups=2, n_folds=2, device=device)
    np.testing.assert_allclose(sums.mass[0], [[1.0, np.exp(-1)], [0.0, 0.0]], rtol=2.0**-11)
    np.testing.assert_allclose(sums.form[0, :, :, 0, 0], [[4.0, np.exp(-1)], [0.0, 0.0]], rtol=2.0**-11)


@pytest.mark.parametrize("scale", ["minmax", 0.5])
@pytest.mark.parametrize(("n_features", "n_scores"), [(1, 1), (40, 3), (2, 40), (2, 140)])
def test_pair_sums_take_any_number_of_features_and_scores(device, n_features, n_scores, scale):
    problem = make_problem(500, d=n_features, q=n_scores, n_groups=2, n_folds=1)
    sums = gpu.pair_sums(*problem, n_groups=2, n_folds=1, scale=scale, device=device)
    truth = pair_sums(*problem, n_groups=2, n_folds=1, scale=scale)
    assert error_by_direction(sums.form[0, 0, 0], truth.form[0, 0, 0]) < 2.0**-11


def test_pair_sums_of_many_groups_with_empty_cells(device):
    problem = make_problem(120, n_groups=9, n_folds=5)
    sums = gpu.pair_sums(*problem, n_groups=10, n_folds=5, device=device)
    truth = pair_sums(*problem, n_groups=10, n_folds=5)
    empty = truth.mass == 0
    assert 0 < empty.sum() < empty.size
    assert not sums.mass[empty].any()
    assert not sums.form[empty].any()
    np.testing.assert_allclose(sums.mass[~empty], truth.mass[~empty], rtol=2.0**-11)


@pytest.mark.parametrize("sizes", [[8], [0, 5], [0, 0]])
def test_pair_sums_without_pairs_are_zero(device, sizes):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    X, Z, _, folds = make_problem(len(groups), n_folds=1)
    sums = gpu.pair_sums(X, Z, groups, folds, n_groups=len(sizes), n_folds=1, device=device)
    n_pairs = len(list(combinations(sizes, 2)))
    assert sums.mass.shape == (n_pairs, 1, 1)
    assert not sums.mass.any()
    assert not sums.form.any()


def test_pair_sums_of_equal_rows_weigh_all_pairs_alike(device):
    X, Z = np.full((6, 2), 3.0), np.arange(6.0)[:, None]
    groups = np.array([0, 0, 0, 1, 1, 1])
    sums = gpu.pair_sums(X, Z, groups, np.zeros(6, dtype=int), n_groups=2, n_folds=1, device=device)
    np.testing.assert_allclose(sums.mass, 9.0, rtol=1e-6)
    np.testing.assert_allclose(sums.form, ((Z[:3] - Z[3:].T) ** 2).sum(), rtol=1e-6)


def test_pair_sums_tell_nearly_equal_distances_apart(device):
    """Two groups at a distance of 1 that varies by 1e-5: float32 is too coarse for that."""
    rng = np.random.default_rng(0)
    X = np.concatenate([1e-5 * rng.random((40, 1)), 1.0 + 1e-5 * rng.random((30, 1))])
    groups, Z = np.repeat([0, 1], [40, 30]), rng.normal(size=(70, 2))
    sums = gpu.pair_sums(X, Z, groups, np.zeros(70, dtype=int), n_groups=2, n_folds=1, device=device)
    distance = cdist(X[:40], X[40:])
    M = np.exp(-(distance - distance.min()) / np.ptp(distance))
    np.testing.assert_allclose(sums.mass[0, 0, 0], M.sum(), rtol=1e-6)
    gap = Z[:40, None] - Z[None, 40:]
    np.testing.assert_allclose(sums.form[0, 0, 0], np.einsum("ij,ija,ijb->ab", M, gap, gap), rtol=1e-5)


def test_pair_sums_refuse_a_scale_that_is_no_length(device):
    with pytest.raises(ValueError, match="scale must be 'minmax' or a positive length, got 0"):
        gpu.pair_sums(*make_problem(10), n_groups=3, n_folds=4, scale=0, device=device)


@pytest.mark.parametrize(("scale", "tolerance"), [("minmax", 0.0), (0.2, 1e-12)])
def test_pair_sums_repeat(device, scale, tolerance):
    problem = make_problem(2000)
    one, two = (gpu.pair_sums(*problem, n_groups=3, n_folds=4, scale=scale, device=device) for _ in range(2))
    np.testing.assert_allclose(one.form, two.form, rtol=0, atol=tolerance * np.abs(one.form).max())
    np.testing.assert_allclose(one.mass, two.mass, rtol=tolerance)


def test_pair_sums_do_not_feel_the_padding_of_cells():
    torch = pytest.importorskip("torch")
    from evenout.gpu import _torch_pairs as engines
    from evenout.gpu import _torch_pairs as pairs
    from evenout.gpu._torch_rows import order_by_cell

    X, Z, groups, folds = make_problem(300, n_folds=2)
    cells = torch.as_tensor(np.where(groups < 0, -1, groups * 2 + folds))
    results = []
    for tile in (1, 16):
        order, starts = order_by_cell(cells, 6, tile)
        assert all(start % tile == 0 for start in starts)
        real = torch.ones(len(order), dtype=torch.bool)
        real[1:] = order[1:] != order[:-1]
        scores = torch.as_tensor(np.column_stack([np.ones(300), Z]))[order] * real[:, None]
        rows = engines.PaddedRows(torch.as_tensor(X)[order], scores, starts)
        engine = engines.Plain(rows, torch.float64)
        results.append(pairs._sum_cells(rows, engine, 3, (1.0, 0.0)))
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)


RANGES = {
    "normal": lambda rng: rng.standard_t(3, size=(5000, 4)),
    "alike in length": lambda rng: (lambda X: X / np.linalg.norm(X, axis=1, keepdims=True))(rng.normal(size=(3000, 3))),
    "far away": lambda rng: 1e3 + rng.normal(size=(2000, 2)),
    "many features": lambda rng: rng.normal(size=(1500, 40)) * np.geomspace(1, 30, 1500)[:, None],
    "copies": lambda rng: np.repeat(rng.normal(size=(300, 2)), 5, axis=0),
    "two rows": lambda rng: rng.normal(size=(2, 3)),
}


@pytest.mark.parametrize("kind", [*RANGES])
@pytest.mark.parametrize("sizes", [(0.5, 0.3, 0.2), (0.01, 0.0, 0.99), (0.025,) * 40])
def test_the_range_of_distances_between_groups(device, kind, sizes):
    torch = pytest.importorskip("torch")
    from evenout.gpu._torch_pairs import measure_range

    rng = np.random.default_rng(1)
    X = RANGES[kind](rng)
    groups = rng.choice(len(sizes), size=len(X), p=sizes)
    groups[-1], groups[: len(X) // 10] = 0 if groups[0] else 2, -1 if len(X) > 2 else groups[0]
    X[0] = 1e6 if len(X) > 2 else X[0]  # of no group: not to be seen
    points = torch.as_tensor(X - X[groups >= 0].mean(axis=0)).to(device)
    found = measure_range(points, torch.as_tensor(groups).to(device), len(sizes), fused=device == "cuda")
    known = groups >= 0
    distances = cdist(X[known], X[known])[groups[known][:, None] != groups[known]]
    np.testing.assert_allclose(found, [distances.min(), distances.max()], rtol=1e-9, atol=1e-12)
