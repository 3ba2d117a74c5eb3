import numpy as np
import pytest

from evenout.core.content import counts_around, row_order


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


def tables():
    """Rows with every kind of tie."""
    rng = np.random.default_rng(0)
    some = rng.normal(size=(400, 4))
    wide = rng.integers(0, 3, (600, 9)).astype(float)
    return {
        "no ties": some,
        "ties in the first column": np.column_stack([rng.integers(0, 5, 400), some]),
        "equal rows": some[rng.integers(0, 100, 500)],
        "equal rows among ties": np.column_stack([rng.integers(0, 2, 500), some[rng.integers(0, 100, 500)]]),
        "few values": wide,
        "two signs of zero": np.where(wide == 2.0, -0.0, wide),
        "one column": rng.integers(0, 50, (300, 1)).astype(float),
        "constant columns": np.column_stack([np.ones(300), some[:300], np.zeros(300)]),
        "all equal": np.ones((20, 3)),
        "one row": np.ones((1, 2)),
        "more runs than 16 bits hold": np.column_stack([np.repeat(np.arange(70_000.0), 2), rng.random(140_000)]),
    }


@pytest.mark.parametrize("name", tables())
def test_rows_are_in_the_order_of_lexsort(name):
    X = tables()[name]
    order, new = row_order(X)
    expected = X[np.lexsort(X.T[::-1])]
    np.testing.assert_array_equal(np.sort(order), np.arange(len(X)))
    np.testing.assert_array_equal(X[order], expected)
    np.testing.assert_array_equal(new, np.append(True, (expected[1:] != expected[:-1]).any(axis=1)))
