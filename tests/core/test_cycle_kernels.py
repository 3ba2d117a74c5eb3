import numpy as np
import pytest

from evenout.core._pair_kernels import cycle_sums


def mass_of(rows, columns, shift, length, runs):
    """Pairs of each part when every similarity is 1, from the definition: block a meets block (a + s) mod m."""
    m, mass = len(rows) - 1, np.zeros(2 * runs)
    for a in range(m):
        for run in range(runs):
            begun = (a + shift + run * length) % m
            for s in range(length):
                block = begun + s
                part = 2 * run + (block >= m)  # beyond the end of the second cell, and on from its beginning
                height, width = rows[a + 1] - rows[a], columns[block % m + 1] - columns[block % m]
                mass[part] += height * width
    return mass


@pytest.mark.parametrize(("shift", "length", "runs"), [(0, 1, 1), (2, 1, 2), (3, 2, 2), (1, 5, 1), (9, 2, 2)])
def test_runs_meet_the_blocks_of_their_shifts(shift, length, runs):
    rows, columns = np.array([0, 1, 3, 4, 6, 7]), np.array([7, 8, 10, 11, 14, 16])
    x, z = np.zeros((16, 4), dtype=np.float32), np.ones((16, 4), dtype=np.float32)
    form, mass = np.zeros((2 * runs, 4, 4)), np.zeros(2 * runs)
    cycle_sums(x, z, rows, columns, shift, length, np.float32(0), np.float32(0), form, mass)
    np.testing.assert_allclose(mass, mass_of(rows, columns, shift, length, runs), rtol=1e-6)


def test_all_shifts_are_all_pairs_with_their_scores():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (9, 4)).astype(np.float32)
    z = np.column_stack([np.ones(9), rng.standard_normal((9, 3))]).astype(np.float32)
    rows, columns = np.array([0, 1, 3, 4]), np.array([4, 6, 7, 9])
    form, mass = np.zeros((2, 4, 4)), np.zeros(2)
    cycle_sums(x, z, rows, columns, 1, 3, np.float32(1.5), np.float32(0.2), form, mass)
    a, b = z[:4].astype(float), z[4:].astype(float)
    M = np.exp2(0.2 - 1.5 * np.sqrt(((x[:4, None] - x[None, 4:]) ** 2).sum(axis=-1)))
    gaps = a[:, None] - b[None]
    form = form.sum(axis=0)
    np.testing.assert_allclose((form + form.T) / 2, np.einsum("ij,ijk,ijl->kl", M, gaps, gaps), atol=2e-5)
    assert mass.sum() == pytest.approx(M.sum(), rel=1e-6)
