import numpy as np
import pytest

from evenout.core.order import counts_around


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [1, 2, 63, 500])
def test_counts_are_those_of_searchsorted(n, order):
    rng = np.random.default_rng(n)
    known = np.array(np.sort(rng.integers(0, n // 3 + 2, (n, 3)).astype(float), axis=0), order=order)
    values = np.concatenate([known, known + 0.5, [[-9.0] * 3, [1e9] * 3]])[:, ::-1][:, ::-1]
    below, upto = counts_around(known, values)
    for j in range(3):
        np.testing.assert_array_equal(below[:, j], np.searchsorted(known[:, j], values[:, j], side="left"))
        np.testing.assert_array_equal(upto[:, j], np.searchsorted(known[:, j], values[:, j], side="right"))


def test_no_rows_have_no_counts():
    assert [part.shape for part in counts_around(np.zeros((4, 2)), np.zeros((0, 2)))] == [(0, 2), (0, 2)]
