from dataclasses import fields, replace

import numpy as np
import pytest
from tests.conftest import probable

from evenout.core import cells as module
from evenout.core.cells import Cells, CrossFit, collect_cells, rank_weights


def collect(problem, rows, *, one=False):
    """Sums over some rows, by fold or as one set."""
    weight, clusters = (None if part is None else part[rows] for part in (problem.sample_weight, problem.clusters))
    return collect_cells(
        problem.S[rows],
        problem.t[rows],
        problem.beta[rows],
        problem.groups[rows],
        np.zeros_like(problem.folds[rows]) if one else problem.folds[rows],
        n_groups=3,
        n_sets=1 if one else 5,
        sample_weight=weight,
        clusters=clusters,
    )


@pytest.fixture
def clustered(make):
    """Rows of weights from 0 up, in clusters of a few rows each, some of them of several groups."""
    rng = np.random.default_rng(5)
    clusters = np.unique(rng.integers(0, 30, 89), return_inverse=True)[1]
    return make(unknown=9, sample_weight=rng.integers(0, 4, 89) * rng.random(89), clusters=clusters)


def assert_same_sums(one, two):
    for name in ("plain", "weighted", "spread"):
        first, second = getattr(one, name), getattr(two, name)
        assert (first is None) == (second is None)
        if first is not None:
            np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


def test_sums_equal_their_definitions(problem):
    D, total = np.diag(problem.beta), problem.cross.whole.weighted[0]
    np.testing.assert_allclose(total[1:-1, 1:-1], problem.S.T @ D @ problem.S, rtol=1e-12)
    np.testing.assert_allclose(total[1:-1, -1], problem.S.T @ D @ problem.t, rtol=1e-12)
    assert total[-1, -1] == pytest.approx(problem.t @ D @ problem.t)
    assert total[0, 0] == pytest.approx(problem.beta.sum())
    rows = (problem.folds == 2) & (problem.groups == 1)
    np.testing.assert_allclose(problem.cells.plain[2, 1, 1:-1, 1:-1], problem.S[rows].T @ problem.S[rows])
    assert problem.cells.plain[2, 1, 0, 0] == rows.sum()
    assert problem.cells.spread is None


def test_sums_by_weight_and_cluster_equal_literal_loops(clustered):
    p, cells = clustered, clustered.cells
    plain, spread = np.zeros((5, 4, 7, 7)), np.zeros((5, 3, 7, 7))
    weighted, sums = np.zeros((5, 7, 7)), {}
    for i in range(len(p.t)):
        z, place = np.r_[1.0, p.S[i], p.t[i]], (p.folds[i], p.groups[i])
        for slot in {p.groups[i], -1} if p.groups[i] >= 0 else {-1}:  # the last slot has all rows
            plain[p.folds[i], slot] += p.sample_weight[i] * np.outer(z, z)
        weighted[p.folds[i]] += p.sample_weight[i] * p.beta[i] * np.outer(z, z)
        sums[(*place, p.clusters[i])] = sums.get((*place, p.clusters[i]), 0.0) + p.sample_weight[i] * z
    for (fold, group, _), u in sums.items():
        if group >= 0:
            spread[fold, group] += np.outer(u, u)
    np.testing.assert_allclose(cells.plain, plain, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(cells.weighted, weighted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(cells.spread, spread, rtol=1e-10, atol=1e-12)


def test_weight_alone_makes_each_row_a_cluster(make):
    weight = np.random.default_rng(0).random(80)
    alone, own = (make(sample_weight=weight, clusters=c, pairs=False) for c in (None, np.arange(80)))
    one, two = (collect(p, np.arange(80), one=True) for p in (alone, own))
    assert_same_sums(one, two)
    ones = make(sample_weight=np.ones(80), pairs=False).cells
    np.testing.assert_allclose(ones.spread, ones.plain[:, :-1], rtol=1e-12)


@pytest.mark.parametrize("cuts", [[1], [40], [3, 3, 50, 79], list(range(1, 80))])
def test_merging_any_chunking_equals_one_pass(make, cuts):
    for weight in (None, np.random.default_rng(0).random(80)):
        problem = make(sample_weight=weight, pairs=False)
        parts = [collect(problem, rows) for rows in np.split(np.arange(80), cuts)]
        assert_same_sums(sum(parts[1:], start=parts[0]), problem.cells)


@pytest.mark.parametrize("kind", ["hard", "weighted", "clustered", "soft"])
def test_many_rows_have_the_sums_of_few_on_any_number_of_threads(make, clustered, kind, monkeypatch):
    p = {"clustered": clustered}.get(kind) or make(unknown=9)
    weight = np.random.default_rng(1).random(89) if kind == "weighted" else p.sample_weight
    shares = np.random.default_rng(2).dirichlet(np.ones(3), 89)
    groups = probable(shares) if kind == "soft" else p.groups
    sums = {"n_groups": 3, "n_sets": 5, "sample_weight": weight, "clusters": p.clusters}
    whole = collect_cells(p.S, p.t, p.beta, groups, p.folds, **sums)
    monkeypatch.setattr(module, "FEW", 7)
    blocks = [collect_cells(p.S, p.t, p.beta, groups, p.folds, **sums, n_threads=n) for n in (1, 3)]
    assert_same_sums(blocks[0], whole)
    for name in ("plain", "weighted", "spread"):
        np.testing.assert_array_equal(getattr(blocks[0], name), getattr(blocks[1], name))


def test_chunks_with_and_without_weights_merge(make):
    problem = make(pairs=False)
    first, second = np.split(np.arange(80), [30])
    ones = replace(problem, sample_weight=np.ones(80))
    merged = collect(problem, first) + collect(ones, second)
    assert_same_sums(merged, ones_of(problem))
    assert_same_sums(collect(ones, first) + collect(problem, second), ones_of(problem))


def ones_of(problem):
    return collect(replace(problem, sample_weight=np.ones(len(problem.t))), np.arange(len(problem.t)))


def test_folds_subtract(clustered):
    cross = clustered.cross
    assert_same_sums(cross.whole, collect(clustered, np.arange(89), one=True))
    for fold in range(5):
        for cells, rows in ((cross.training, clustered.folds != fold), (cross.held, clustered.folds == fold)):
            found = Cells(*(part[fold : fold + 1] for part in (cells.plain, cells.weighted, cells.spread)))
            assert_same_sums(found, collect(clustered, np.flatnonzero(rows), one=True))
    share = [1.0 - clustered.sample_weight[clustered.folds == f].sum() for f in range(5)]
    total = clustered.sample_weight.sum()
    np.testing.assert_allclose(cross.training.counts / cross.whole.counts, (np.array(share) - 1.0 + total) / total)
    assert cross.n_folds == 5
    assert not cross.refitted


def test_pairs_of_folds_are_all_those_outside_and_those_inside(problem):
    X, groups, folds, Z = problem.X, problem.groups, problem.folds, problem.Z
    distance = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    across = distance[groups[:, None] != groups]
    M = np.exp(-(distance - across.min()) / np.ptp(across))
    gaps = Z[:, None] - Z[None]
    for place, (p, q) in enumerate(((0, 1), (0, 2), (1, 2))):
        pair = (groups[:, None] == p) & (groups == q)
        for fold in range(5):
            outside, inside = (pair & np.logical_and.outer(rows, rows) for rows in (folds != fold, folds == fold))
            for cells, rows in ((problem.cross.training, outside), (problem.cross.held, inside)):
                form = np.einsum("i,ia,ib->ab", M[rows], gaps[rows], gaps[rows])
                np.testing.assert_allclose(cells.sums["individual.form"][fold, place], form, rtol=1e-4, atol=1e-6)
                assert cells.sums["individual.mass"][fold, place] == pytest.approx(M[rows].sum(), rel=1e-5)
        form = np.einsum("i,ia,ib->ab", M[pair], gaps[pair], gaps[pair])
        np.testing.assert_allclose(problem.cross.whole.sums["individual.form"][0, place], form, rtol=1e-4, atol=1e-6)


def test_own_form_and_base_are_the_same_in_every_set(make):
    own, base = np.diag(np.arange(5.0)), np.arange(5.0)
    cross = make(own=own, base=base, pairs=False).cross
    for cells in (cross.whole, cross.training, cross.held):
        np.testing.assert_array_equal(cells.sums["own.form"], np.broadcast_to(own, (cells.n_sets, 5, 5)))
        np.testing.assert_array_equal(cells.base, np.broadcast_to(base, (cells.n_sets, 5)))


def test_stacked_sets_come_one_after_the_other(make):
    own, base, weight = np.diag(np.arange(5.0)), np.arange(5.0), np.arange(80.0)
    cross = make(own=own, base=base, sample_weight=weight).cross
    stacked = Cells.stacked([cross.held.at(slice(0)), cross.whole, cross.held])
    assert stacked.n_sets == 6
    for field in fields(Cells):
        first, rest, found = (getattr(cells, field.name) for cells in (cross.whole, cross.held, stacked))
        if field.name == "sums":
            for name, values in found.items():
                np.testing.assert_array_equal(values, np.concatenate([first[name], rest[name]]))
        elif field.name != "compared":
            np.testing.assert_array_equal(found, np.concatenate([first, rest]))
    plain = make(pairs=False).cross
    assert Cells.stacked([plain.whole, plain.held]).spread is None
    assert not Cells.stacked([plain.whole, plain.held]).sums


def test_nothing_left_out_has_no_folds(problem):
    none = problem.cross.whole.at(slice(0))
    cross = CrossFit(problem.cross.whole, none, none)
    assert (cross.n_folds, none.n_groups, none.n_detectors) == (0, 3, 5)
    assert cross.training.counts.shape == (0,)


def test_unknown_groups_count_in_f1_alone(make):
    problem = make(unknown=9)
    assert problem.cells.group_counts.sum() == 80
    assert problem.cells.counts.sum() == 89
    total = problem.cross.whole.weighted[0]
    np.testing.assert_allclose(total[1:-1, 1:-1], (problem.S.T * problem.beta) @ problem.S)


def test_rows_of_no_set_count_nowhere(problem):
    sets = np.where(problem.folds == 3, -1, 0)
    args = problem.S, problem.t, problem.beta, problem.groups
    found = collect_cells(*args, sets, n_groups=3, n_sets=1)
    assert_same_sums(found, collect(problem, np.flatnonzero(problem.folds != 3), one=True))


def test_pair_sums_refuse_to_merge(problem):
    for one, two in ((problem.cross.held, problem.cells), (problem.cells, problem.cross.held)):
        with pytest.raises(ValueError, match="pairs of rows across the chunks"):
            _ = one + two


def test_rank_weights_by_hand():
    np.testing.assert_allclose(rank_weights(np.array([3.0, 1.0, 2.0])), np.exp([1.0, 1 / 3, 2 / 3]))


def test_rank_weights_count_rows_by_their_weight():
    """A weight is a number of equal rows, in any unit; all betas may share a factor, which is one of alpha."""
    t, counts = np.array([0.3, 0.1, 0.1, 0.9, 0.5]), np.array([3.0, 1.0, 2.0, 1.0, 4.0])
    np.testing.assert_allclose(rank_weights(t, np.ones(5)), rank_weights(t), rtol=1e-14)
    found = rank_weights(t, counts)
    literal = [np.exp((counts[t < x].sum() + counts[t == x].sum() / 2) / 11 + 1 / 10) for x in t]
    np.testing.assert_allclose(found, literal, rtol=1e-14)
    repeated = rank_weights(np.repeat(t, counts.astype(int)))
    assert np.ptp(np.repeat(found, counts.astype(int)) / repeated) < 1e-14
    np.testing.assert_allclose(rank_weights(t, 1e-9 * counts), found, rtol=1e-14)
    beside = rank_weights(np.r_[t, 0.2, 0.4], np.r_[counts, 0.0, 0.0])  # rows that count for nothing
    assert np.ptp(beside[:5] / found) < 1e-14


def test_cells_know_their_sizes(problem):
    assert (problem.cells.n_sets, problem.cells.n_groups, problem.cells.n_detectors) == (5, 3, 5)
