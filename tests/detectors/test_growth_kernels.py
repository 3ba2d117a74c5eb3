"""Trees with and without the compiler: scikit-learn's own, for each way to draw rows."""

from dataclasses import fields

import numpy as np
import pytest

from evenout.detectors.forest import Forest, grow, of_scikit_learn


@pytest.mark.parametrize("n", [40, 258, 300, 25_600])
def test_trees_are_those_of_scikit_learn(n):
    X = np.random.default_rng(n).normal(size=(n, 3))
    X[: n // 2, 0] = 1.0  # a feature that is constant in many nodes
    (ours, drawn), (theirs, expected) = grow(X, [1], 7), of_scikit_learn(X, [1], 7)
    np.testing.assert_array_equal(drawn, expected)
    for field in fields(Forest):
        np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name), err_msg=field.name)
