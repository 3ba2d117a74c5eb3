import dataclasses
import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

from evenout.datasets import load_dataset
from evenout.detectors import neighbours
from evenout.detectors.neighbours import Neighbours, distinct_rows
from evenout.detectors.search import BLOCK, Blocks, Exact, cut_blocks, nearest_by_blocks

LOF = (5, 10, 15, 20, 25, 30)
KNN = (2, 4, 6, 8, 10)


def fit(X, **options):
    return Neighbours.fit(X, lof=LOF, knn=KNN, **options)


def lattice(side, d):
    return np.stack(np.meshgrid(*[np.arange(side, dtype=float)] * d), axis=-1).reshape(-1, d)


def simulated(n=700, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 4.0 * rng.integers(0, 3, size=(n, 1))
    X[::25] = rng.uniform(-8.0, 16.0, size=X[::25].shape)
    return X


def load(name):
    return load_dataset(name).X.to_numpy(dtype=float)[:1500]


@pytest.mark.parametrize("low", [0, -3])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_distinct_rows_are_those_of_unique(d, low):
    X = np.random.default_rng(d).integers(low, 3, (200, d)) * 1.0
    X[::7] *= -1.0  # some zeros become -0.0
    locations, counts, home = distinct_rows(X)
    distinct, times = np.unique(X, axis=0, return_counts=True)
    assert_array_equal(locations, distinct[::-1])
    assert not np.signbit(locations[locations == 0.0]).any()
    assert_array_equal(counts, times[::-1])
    assert_array_equal(locations[home], X)


def settled(X, k, Q=None):
    """Rows of Q (or X) whose k nearest rows, and the k nearest of these, no tie of distinct points leaves open."""
    home = np.unique(X, axis=0, return_inverse=True)[1].ravel()

    def search(distance):
        reach = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
        inside = distance <= reach * (1.0 + 1e-12)
        tied = inside & (distance >= reach * (1.0 - 1e-12))
        one_point = np.where(tied, home, len(X)).min(axis=1) == np.where(tied, home, -1).max(axis=1)
        return one_point | (inside.sum(axis=1) == k), inside

    among = cdist(X, X)
    np.fill_diagonal(among, np.inf)
    clear, inside = search(among)
    own, inside = (clear, inside) if Q is None else search(cdist(Q, X))
    return own & ~inside[:, ~clear].any(axis=1)


def scikit_learn_scores(X, Q=None):
    options = {"algorithm": "kd_tree", "novelty": Q is not None}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Duplicate values")
        fitted = [LocalOutlierFactor(k, **options).fit(X) for k in LOF]
    lof = [-(f.negative_outlier_factor_ if Q is None else f.score_samples(Q)) for f in fitted]
    near = NearestNeighbors(algorithm="ball_tree").fit(X)
    return np.column_stack([*lof, *(near.kneighbors(Q, k)[0][:, -1] for k in KNN)])


def literal_lof(X, k):
    """LOF by double loop; neighbours in the order (distance, feature values), larger values first."""
    rows = [tuple(row) for row in X]
    near = []
    for i, row in enumerate(rows):
        others = [(math.dist(row, rows[j]), [-v for v in rows[j]], j) for j in range(len(rows)) if j != i]
        near.append(sorted(others)[:k])
    k_distance = [found[-1][0] for found in near]
    density = []
    for found in near:
        reach = [max(distance, k_distance[j]) for distance, _, j in found]
        density.append(1.0 / (sum(reach) / k + 1e-10))
    return [sum(density[j] for _, _, j in found) / k / density[i] for i, found in enumerate(near)]


LARGE = pytest.param("mammography", 0.99, marks=pytest.mark.long)


@pytest.mark.parametrize("new", [False, True], ids=["training", "new"])
@pytest.mark.parametrize(("name", "share"), [("pima", 1.0), LARGE, ("breastw", 0.1), ("german", 0.1)])
def test_scores_equal_scikit_learn_on_bundled_data_where_no_tie_interferes(name, share, new):
    X = load(name)
    Q = X[::3] + np.random.default_rng(0).normal(size=X[::3].shape) * X.std(axis=0) / 10 if new else None
    model, scores = fit(X)
    scores = model.score(Q) if new else scores
    expected = scikit_learn_scores(X, Q)
    assert_allclose(scores[:, len(LOF) :], expected[:, len(LOF) :], rtol=1e-8)  # no tie moves a k-th distance
    clear = np.column_stack([settled(X, k, Q) for k in LOF])
    assert clear.mean() >= share
    assert_allclose(scores[:, : len(LOF)][clear], expected[:, : len(LOF)][clear], rtol=1e-8)


@pytest.mark.parametrize("d", [1, 3, 20])
def test_scores_equal_scikit_learn_on_simulated_data(d):
    X, Q = simulated(d=d), simulated(200, d, seed=1)
    model, scores = fit(X)
    assert_allclose(scores, scikit_learn_scores(X), rtol=1e-8)
    assert_allclose(model.score(Q), scikit_learn_scores(X, Q), rtol=1e-8)


@pytest.mark.parametrize("k", [1, 3, 4, 8])
def test_lof_equals_the_double_loop_under_ties_and_duplicates(k):
    X = np.concatenate([lattice(4, 2), lattice(4, 2)[[0, 0, 0, 5, 10, 10]], [[1.5, 1.5], [9.0, 9.0]]])
    assert_allclose(Neighbours.fit(X, lof=[k], knn=[])[1][:, 0], literal_lof(X, k), rtol=1e-12)


def test_lof_and_knn_by_hand():
    _, scores = Neighbours.fit(np.array([[0.0], [1.0], [2.0], [9.0]]), lof=[2], knn=[1, 2])
    # k-distances 2 1 2 8, mean reaches 1.5 2 1.5 7.5
    assert_allclose(scores[:, 0], [0.875, 4 / 3, 0.875, 4.375], rtol=1e-9)
    assert_array_equal(scores[:, 1:], [[1, 2], [1, 1], [1, 2], [7, 8]])


def brute_force(X):
    """Blocks with all of space as their box: a search leaves nothing out, and has no centre for products."""
    n, d = X.shape
    points, ids = np.full((-(-n // BLOCK), BLOCK, d), np.nan), np.full((-(-n // BLOCK), BLOCK), -1, dtype=np.int32)
    points.reshape(-1, d)[:n], ids.reshape(-1)[:n] = X, np.arange(n)
    size, everywhere = (ids >= 0).sum(axis=1), np.full((len(ids), d), np.inf)
    return Blocks(Exact(points, ids, size, -everywhere, everywhere))


@pytest.mark.parametrize(
    "X",
    [lattice(7, 3), simulated(900, 3), simulated(300, 20), simulated(50, 2), 10.0 ** simulated(400, 4)],
    ids=["lattice", "low", "high", "one block", "skewed"],
)
def test_boxes_and_brute_force_find_the_same_neighbours(X):
    Q = np.concatenate([X[:70] + 0.5, 3.0 * X[-9:]])
    boxes, brute = cut_blocks(X), brute_force(X)
    for mine, queries in [(None, None), (cut_blocks(Q), brute_force(Q))]:
        distance, found = nearest_by_blocks(boxes, 30, queries=mine)
        brute_distance, brute_found = nearest_by_blocks(brute, 30, queries=queries)
        assert_array_equal(found, brute_found)
        assert_array_equal(distance, brute_distance)


def test_nearest_sorts_by_distance_then_index():
    X = lattice(6, 3)
    D = cdist(X, X)  # square roots of whole numbers: exact ties
    np.fill_diagonal(D, np.inf)
    expected = np.argsort(D, axis=1, kind="stable")[:, :30]
    distance, found = nearest_by_blocks(cut_blocks(X), 30)
    assert_array_equal(found, expected)
    assert_array_equal(distance, np.take_along_axis(D, expected, axis=1))


def test_blocks_do_not_span_clusters():
    clusters = np.repeat(np.arange(20.0) * 1e3, 64)[:, None] + simulated(1280, 2)
    blocks = cut_blocks(clusters)
    sides = (blocks.exact.high - blocks.exact.low).max(axis=1)
    assert sides.max() < 100.0  # halving splits between the clusters first


@pytest.mark.parametrize("X", [lattice(6, 2), load("german")[:300], np.round(simulated(400, 3))])
def test_order_of_rows_does_not_matter(X):
    X = np.concatenate([X, X[::7], X[::49]])
    order = np.random.default_rng(3).permutation(len(X))
    model, scores = fit(X)
    permuted_model, permuted = fit(X[order])
    assert_array_equal(permuted, scores[order])
    assert_array_equal(permuted_model.score(X + 0.25), model.score(X + 0.25))


@pytest.mark.parametrize("X", [lattice(6, 2), load("breastw"), simulated(), np.ones((40, 3))])
def test_scoring_training_rows_gives_the_training_scores(X):
    model, scores = fit(X)
    assert_array_equal(model.score(X), scores)
    assert_array_equal(model.score(X[::-3] + 0.0), scores[::-3])


def test_a_row_equal_to_a_training_row_leaves_one_copy_out():
    model, scores = Neighbours.fit(np.array([[0.0], [0.0], [1.0], [3.0]]), lof=[], knn=[1, 2])
    assert_array_equal(scores, [[0, 1], [0, 1], [1, 1], [2, 3]])
    assert_array_equal(model.score(np.array([[-0.0], [3.0], [3.5]])), [[0, 1], [2, 3], [0.5, 2.5]])


def test_known_and_new_rows_in_one_batch_score_as_on_their_own(monkeypatch):
    X = np.round(simulated(300, 3))
    model, _ = fit(X)
    Q = np.concatenate([X[:40], X[:40] + 0.5, X[-5:]])
    together = model.score(Q)
    assert_array_equal(np.concatenate([model.score(row[None]) for row in Q]), together)
    monkeypatch.setattr(neighbours, "BATCH", 7)
    assert_array_equal(model.score(Q), together)
    assert model.score(Q[:0]).shape == (0, len(LOF) + len(KNN))


def test_equal_rows_have_factor_one_and_distance_zero():
    model, scores = fit(np.full((40, 3), 7.0))
    assert_array_equal(scores, np.tile([1.0] * len(LOF) + [0.0] * len(KNN), (40, 1)))
    new = model.score(np.full((1, 3), 8.0))
    assert_allclose(new[0, len(LOF) :], math.sqrt(3.0))
    assert_allclose(new[0, : len(LOF)], math.sqrt(3.0) * 1e10)


def test_heavy_duplicates_stay_finite_and_equal_scikit_learn():
    X = np.repeat([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], 40, axis=0)
    model, scores = fit(X)
    assert_array_equal(scores, np.tile([1.0] * len(LOF) + [0.0] * len(KNN), (120, 1)))
    Q = np.array([[0.4, 0.0], [90.0, 0.0]])
    assert_allclose(model.score(Q), scikit_learn_scores(X, Q), rtol=1e-8)


def test_extreme_values_stay_finite():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * 10.0 ** rng.integers(-300, 31, size=(200, 3))
    X = np.clip(np.concatenate([X, 1e-300 * lattice(4, 3), [[1e30, -1e30, 1e30]]]), -1e30, 1e30)
    model, scores = fit(X)
    assert np.isfinite(scores).all()
    assert np.isfinite(model.score(np.clip(X * 1.5, -1e30, 1e30))).all()
    assert_array_equal(model.score(X), scores)  # distinct rows whose distance underflows to zero keep apart
    assert_array_equal(fit(X[::-1])[1][::-1], scores)


def test_negative_zero_is_zero():
    X = np.round(simulated(200, 2) / 4.0)
    signed = np.where(X == 0.0, -0.0, X)
    assert np.signbit(signed[X == 0.0]).any()
    assert_array_equal(fit(signed)[1], fit(X)[1])
    assert_array_equal(fit(X)[0].score(signed), fit(X)[1])


def test_number_of_threads_does_not_matter():
    X, Q = np.round(simulated(4500, 3), 1), simulated(4500, 3, seed=1)
    model, scores = fit(X)
    assert_array_equal(fit(X, n_threads=2)[1], scores)
    assert_array_equal(model.score(Q, n_threads=2), model.score(Q))


def test_read_only_and_memory_mapped_rows_are_accepted(tmp_path):
    X, Q = simulated(300, 3), simulated(50, 3, seed=1)
    model, scores = fit(X)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    X.flags.writeable = Q.flags.writeable = False
    for rows in (X, mapped):
        again, same = fit(rows)
        assert_array_equal(same, scores)
        assert_array_equal(again.score(Q), model.score(Q))
        assert_array_equal(model.score(rows), scores)


def test_learned_state_is_plain_arrays_and_enough_to_score():
    X, Q = simulated(300, 3), simulated(50, 3, seed=1)
    model, _ = fit(X)
    state = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    assert all(type(value) is np.ndarray and value.dtype.kind in "if" for value in state.values())
    assert_array_equal(Neighbours(**state).score(Q), model.score(Q))


def test_too_few_rows_cap_the_neighbours_with_one_warning():
    X = simulated(8, 2)
    with pytest.warns(UserWarning, match=r"n_neighbors \(30\).*8 rows.*set to 7") as caught:
        model, scores = fit(X)
    assert len(caught) == 1
    assert_array_equal(model.lof, [5, 7, 7, 7, 7, 7])
    expected = -LocalOutlierFactor(7).fit(X).negative_outlier_factor_
    assert_allclose(scores[:, 1], expected, rtol=1e-8)
    assert_array_equal(model.score(X), scores)


def test_two_rows_are_enough_and_one_is_not():
    with pytest.warns(UserWarning, match="2 rows"):
        model, scores = fit(np.array([[0.0], [3.0]]))
    assert_array_equal(scores, np.tile([1.0] * len(LOF) + [3.0] * len(KNN), (2, 1)))
    assert_array_equal(model.score(np.array([[4.0]]))[0, -1], 1.0)
    with pytest.raises(ValueError, match="X has 1 row"):
        fit(np.zeros((1, 2)))


@pytest.mark.parametrize(("lof", "knn"), [([], []), ([0, 5], []), ([5], [-1])])
def test_numbers_of_neighbours_must_be_positive(lof, knn):
    with pytest.raises(ValueError, match="at least one number of neighbours"):
        Neighbours.fit(simulated(20, 2), lof=lof, knn=knn)
