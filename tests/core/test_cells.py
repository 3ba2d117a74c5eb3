import numpy as np
import pytest

from evenout.core.cells import Cells, collect_cells, rank_weights


def _collect(problem, rows):
    return collect_cells(
        problem.S[rows],
        problem.t[rows],
        problem.beta[rows],
        problem.groups[rows],
        problem.folds[rows],
        n_groups=3,
        n_folds=5,
    )


def test_sums_equal_their_definitions(problem):
    A, b, c0 = problem.cells.least_squares()
    D = np.diag(problem.beta)
    np.testing.assert_allclose(A, problem.S.T @ D @ problem.S, rtol=1e-12)
    np.testing.assert_allclose(b, problem.S.T @ D @ problem.t, rtol=1e-12)
    assert c0 == pytest.approx(problem.t @ D @ problem.t)
    rows = (problem.folds == 2) & (problem.groups == 1)
    np.testing.assert_allclose(problem.cells.plain[2, 1, 1:-1, 1:-1], problem.S[rows].T @ problem.S[rows])
    assert problem.cells.plain[2, 1, 0, 0] == rows.sum()


@pytest.mark.parametrize("cuts", [[1], [40], [3, 3, 50, 79], list(range(1, 80))])
def test_merging_any_chunking_equals_one_pass(problem, cuts):
    parts = [_collect(problem, rows) for rows in np.split(np.arange(80), cuts)]
    merged = sum(parts[1:], start=parts[0])
    whole = _collect(problem, np.arange(80))
    np.testing.assert_allclose(merged.plain, whole.plain, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(merged.weighted, whole.weighted, rtol=1e-12, atol=1e-13)


def test_without_a_fold_equals_collecting_the_other_rows(problem):
    left = _collect(problem, np.flatnonzero(problem.folds != 3))
    np.testing.assert_allclose(problem.cells.without(3).plain, left.plain, atol=1e-13)
    np.testing.assert_allclose(problem.cells.without(3).weighted, left.weighted, atol=1e-13)


def test_unknown_groups_count_in_f1_alone(make):
    problem = make(unknown=9)
    assert problem.cells.group_counts.sum() == 80
    assert problem.cells.fold_counts.sum() == 89
    np.testing.assert_allclose(problem.cells.least_squares()[0], (problem.S.T * problem.beta) @ problem.S)


def test_pair_sums_refuse_to_merge(problem):
    with pytest.raises(ValueError, match="pairs of rows across the chunks"):
        _ = problem.cells + Cells(problem.cells.plain, problem.cells.weighted)


def test_rank_weights_by_hand():
    np.testing.assert_allclose(rank_weights(np.array([3.0, 1.0, 2.0])), np.exp([1.0, 1 / 3, 2 / 3]))


def test_cells_know_their_sizes(problem):
    assert (problem.cells.n_folds, problem.cells.n_groups, problem.cells.n_detectors) == (5, 3, 5)
