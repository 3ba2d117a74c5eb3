import numpy as np

from evenout.core._column_kernels import add_products


def test_products_of_rows_are_added_below_the_diagonal_of_their_place():
    rng = np.random.default_rng(0)
    S, t = rng.normal(size=(6, 3)), rng.normal(size=6)
    rows, place = np.array([5, 0, 2, 2, 4]), np.array([1, 0, 1, 1, -1])
    share = rng.random(5)
    total = np.full((3, 5, 5), 0.25)
    add_products(S, t, rows, place, share, np.empty(5), total)
    expected = np.full((3, 5, 5), 0.25)
    for i, p, c in zip(rows[:4], place, share, strict=False):
        z = np.r_[1.0, S[i], t[i]]
        expected[p] += np.tril(c * np.outer(z, z))
    np.testing.assert_allclose(total, expected, rtol=1e-14)
