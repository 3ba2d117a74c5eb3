"""Rows that are ready go straight in: scikit-learn's way would leave them as they are. All others go that way."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from evenout.tables import rows
from evenout.tables.rows import new_rows

X = np.random.default_rng(0).normal(size=(6, 3))
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


def learnt(X):
    estimator = BaseEstimator()
    validate_data(estimator, X, skip_check_array=True)
    return estimator


@pytest.fixture
def long_way(monkeypatch):
    """How many rows went the long way, call by call."""
    seen = []

    def counted(estimator, X, **settings):
        seen.append(len(X))
        return validate_data(estimator, X, **settings)

    monkeypatch.setattr(rows, "validate_data", counted)
    return seen


@pytest.mark.parametrize(
    "given",
    [
        X, X[:1], np.asfortranarray(X), X.astype(np.float32), X.astype(int), X[::2, :], X[:, ::-1],
        FRAME, FRAME[:1], FRAME.astype({"a": np.float32}), FRAME.astype(int),
    ],
)  # fmt: skip
def test_ready_rows_are_what_the_long_way_makes_of_them(given, long_way):
    estimator = learnt(X if isinstance(given, np.ndarray) else FRAME)
    expected = validate_data(estimator, given, dtype=np.float64, order="C", reset=False)
    found = new_rows(estimator, given)
    assert long_way == []
    np.testing.assert_array_equal(found, expected)
    assert (found.dtype, found.flags.c_contiguous) == (np.float64, True)


@pytest.mark.parametrize("given", [X.tolist(), X.astype(object), np.ma.masked_array(X)])
def test_other_arrays_go_the_long_way(given, long_way):
    found = new_rows(learnt(X), given)
    assert found.flags.c_contiguous
    assert len(long_way) == 1
    np.testing.assert_array_equal(found, np.asarray(given, dtype=float))


@pytest.mark.parametrize(
    "given",
    [
        FRAME.astype("Float64"),
        FRAME.assign(a=[True, False] * 3),
        FRAME.astype(object),
    ],
)
def test_other_frames_go_the_long_way(given, long_way):
    np.testing.assert_array_equal(new_rows(learnt(FRAME), given), given.to_numpy(dtype=float))
    assert long_way == [6]


def test_names_are_still_looked_at():
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        new_rows(learnt(FRAME), X)
    with pytest.warns(UserWarning, match="X has feature names"):
        new_rows(learnt(X), FRAME)
    with pytest.raises(ValueError, match="feature names should match"):
        new_rows(learnt(FRAME), FRAME[["b", "a", "c"]])
    with pytest.raises(ValueError, match="feature names should match"):
        new_rows(learnt(FRAME), FRAME.rename(columns={"a": "z"}))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.nan, "contains NaN"),
        (np.inf, "contains infinity"),
        (-np.inf, "contains infinity"),
        (-1e31, "rescale values above 1e"),
    ],
)
def test_what_is_wrong_is_still_refused(wrong, message):
    bad = X.copy()
    bad[2, 1] = wrong
    with pytest.raises(ValueError, match=message):
        new_rows(learnt(X), bad)


def test_shapes_are_still_refused():
    with pytest.raises(ValueError, match="is expecting 3 features"):
        new_rows(learnt(X), X[:, :2].copy())
    with pytest.raises(ValueError, match="Expected 2D array"):
        new_rows(learnt(X), X[0])
    with pytest.raises(ValueError, match="0 sample"):
        new_rows(learnt(X), X[:0])
