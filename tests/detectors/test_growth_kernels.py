"""Trees with and without the compiler: scikit-learn's own, for each way to draw rows."""

import numpy as np
import pytest

from evenout.detectors.forest import grow, of_scikit_learn


@pytest.mark.parametrize("n", [40, 258, 300, 25_600])
def test_trees_are_those_of_scikit_learn(n):
    X = np.random.default_rng(n).normal(size=(n, 3))
    X[: n // 2, 0] = 1.0  # a feature that is constant in many nodes
    for name, ours, theirs in zip(grow(X, 1, 7)._fields, grow(X, 1, 7), of_scikit_learn(X, 1, 7), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
