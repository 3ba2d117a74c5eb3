import numpy as np
import pytest

from evenout.core.pairwise import BLOCK, PairRows, PairSample, cell_pairs


def make_rows(n, slope, width=8, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-1, 1, (n, 4)).astype(np.float32), rng.standard_normal((n, width)).astype(np.float32)
    z[:, 0] = 1
    return PairRows(x, z, np.float32(slope), np.float32(0))


def empty(small, large, runs=3, start=0.0, width=8):
    return PairSample(small, large, 1.0, start, np.zeros((runs, width, width)), np.zeros(runs))


def all_pairs(rows, small, large):
    """Form and mass over all pairs of two cells, in float64."""
    x, z = rows.x.astype(float), rows.z.astype(float)
    a, b = slice(*small), slice(*large)
    M = np.exp2(-float(rows.slope) * np.sqrt(((x[a, None] - x[None, b]) ** 2).sum(axis=-1)))
    product = z[a].T @ M @ z[b]
    form = (z[a].T * M.sum(axis=1)) @ z[a] + (z[b].T * M.sum(axis=0)) @ z[b] - product - product.T
    return form, M.sum()


@pytest.mark.parametrize(("n_small", "n_large"), [(1000, 1000), (801, 1733), (640, 641)])
def test_runs_have_the_pairs_that_they_claim(n_small, n_large):
    small, large = (0, n_small), (n_small, n_small + n_large)
    rows = make_rows(n_small + n_large, slope=0.0)  # every similarity is 1, so that the mass counts pairs
    sample = empty(small, large, runs=2, start=0.7).grown(rows, goal=0.0)
    assert sample.shifts == 1
    assert sample.visited == pytest.approx(sample.mass.sum(), rel=1e-6)
    assert sample.visited == pytest.approx(2 * BLOCK * n_large, rel=0.05)
    grown = sample.grown(rows, goal=2.0 * sample.visited)
    assert grown.shifts == 2
    assert grown.visited == pytest.approx(2 * sample.visited, rel=0.02)
    assert grown.visited == pytest.approx(grown.mass.sum(), rel=1e-6)
    assert (grown.mass > sample.mass).all()


def test_all_shifts_are_all_pairs():
    small, large = (0, 300), (300, 1111)
    rows = make_rows(1111, slope=2.0)
    form, mass = all_pairs(rows, small, large)
    # Five blocks of 60 rows in the smaller cell: five runs of one shift each, from the third shift on.
    sums, masses, visited = empty(small, large, start=0.5)._visit(rows, blocks=5, shift=0, length=1, runs=5)
    assert visited == 300 * 811
    np.testing.assert_allclose(masses.sum(), mass, rtol=1e-5)
    np.testing.assert_allclose(sums.sum(axis=0), form, atol=1e-5 * form.max())
    whole = empty(small, large).grown(rows, goal=1e5)
    assert whole.factor == 1
    np.testing.assert_allclose(whole.mass, [mass], rtol=1e-5)
    np.testing.assert_allclose(whole.form[0], form, atol=1e-5 * form.max())
    assert whole.grown(rows, goal=1e9) is whole


def test_every_row_takes_part_equally_often():
    small, large = (0, 8 * BLOCK), (8 * BLOCK, 24 * BLOCK)
    rows = make_rows(24 * BLOCK, slope=0.0, width=4)
    for row in (0, 77, 8 * BLOCK - 1, 8 * BLOCK, 24 * BLOCK - 1):
        rows.z[:, 1] = np.arange(24 * BLOCK) == row  # the form then counts the partners of this row
        sample = empty(small, large, runs=2, start=0.9, width=4).grown(rows, goal=0.0)
        np.testing.assert_allclose(sample.form[:, 1, 1], 2 * BLOCK if row < 8 * BLOCK else BLOCK)


def test_pairs_of_cells_come_in_the_order_of_pair_sums():
    edges = np.array([0, 2, 5, 6, 6, 10, 20])  # three groups, two folds
    samples = cell_pairs(edges, n_groups=3, n_folds=2, runs=2, width=4)
    cells = [(sample.small, sample.large) for sample in samples]
    assert cells[:5] == [
        ((5, 6), (0, 2)),
        ((6, 6), (0, 2)),
        ((5, 6), (2, 5)),
        ((6, 6), (2, 5)),
        ((0, 2), (6, 10)),
    ]
    assert len(samples) == 3 * 4
    assert [sample.pairs for sample in samples[:5]] == [2, 0, 3, 0, 8]
    assert samples[0].weight == 1 / (5 * 1)
    assert samples[-1].weight == 1 / (1 * 14)
    assert samples[1].grown(make_rows(20, 1.0, width=4), goal=10.0) is samples[1]


def test_deviations_have_the_variance_of_sampling_without_replacement():
    """Two of five shifts, one a run: the mean of the estimated variance over all choices is the variance."""
    rng = np.random.default_rng(0)
    shifts = rng.random((5, 1, 1))
    estimates, variances = [], []
    for i in range(5):
        for j in range(i):
            sample = PairSample((0, 5), (5, 10), 1.0, 0.0, shifts[[i, j]], np.ones(2), shifts=1, visited=10)
            estimates.append(sample.factor * sample.form.sum())
            variances.append((sample.deviations**2).sum())
    assert np.mean(estimates) == pytest.approx(shifts.sum())
    assert np.mean(variances) == pytest.approx(np.var(estimates))


def test_sample_is_taken_of_twice_as_many_pairs_and_no_fewer():
    rows = make_rows(10 * BLOCK, slope=0.0)
    four = empty((0, 4 * BLOCK), (4 * BLOCK, 10 * BLOCK), runs=2).grown(rows, goal=0.0)
    assert four.visited == four.pairs / 2  # two of four shifts
    assert empty((6 * BLOCK, 10 * BLOCK), (0, 6 * BLOCK), runs=2).grown(rows, goal=0.0).visited == four.visited
    three = empty((0, 3 * BLOCK), (3 * BLOCK, 10 * BLOCK), runs=2).grown(rows, goal=0.0)
    assert three.visited == three.pairs
    assert four.grown(rows, goal=four.visited) is four


def test_first_run_begins_where_it_is_told_to():
    small, large = (0, 8 * BLOCK), (8 * BLOCK, 16 * BLOCK)
    rows = make_rows(16 * BLOCK, slope=0.0)
    rows.z[:, 1] = np.arange(16 * BLOCK) // BLOCK == 0  # the first block of the small cell
    for block in range(8):
        rows.z[:, 2] = np.arange(16 * BLOCK) // BLOCK == 8 + block
        form, _, _ = empty(small, large, start=0.25)._visit(rows, blocks=8, shift=1, length=1, runs=1)
        assert -form[0, 1, 2] == (BLOCK**2 if block == 3 else 0)  # a quarter of the way, and one shift on


def test_smaller_cell_is_the_small_one_wherever_it_lies():
    samples = cell_pairs(np.array([0, 10, 12, 15]), n_groups=3, n_folds=1, runs=2, width=4)
    cells = [(sample.small, sample.large) for sample in samples]
    assert cells == [((10, 12), (0, 10)), ((12, 15), (0, 10)), ((10, 12), (12, 15))]
