"""Tables become feature rows in one way, learnt once."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from evenout.core.exceptions import UnknownCategoryWarning
from evenout.inputs.table import MAX_CATEGORIES, TableEncoder


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "home": ["own", "rent", None, "own"],
            "age": [20.0, np.nan, 40.0, 60.0],
            "member": [True, False, True, True],
            "size": pd.Categorical([2, 1, 2, 3]),
            "cents": [Decimal("1.5"), None, Decimal(2), Decimal(4)],
        }
    )


def test_encoder_imputes_medians_and_one_hot_encodes_by_hand(table):
    encoder = TableEncoder().fit(table)
    names = ["age", "member", "cents", "home=missing", "home=own", "home=rent", "size=1", "size=2", "size=3"]
    assert encoder.get_feature_names_out().tolist() == names
    expected = [
        [20, 1, 1.5, 0, 1, 0, 0, 1, 0],
        [40, 0, 2.0, 0, 0, 1, 1, 0, 0],
        [40, 1, 2.0, 1, 0, 0, 0, 1, 0],
        [60, 1, 4.0, 0, 1, 0, 0, 0, 1],
    ]
    np.testing.assert_array_equal(encoder.transform(table), expected)


def test_encoder_ignores_the_order_of_columns_and_further_ones(table):
    encoder = TableEncoder().fit(table)
    other = table[table.columns[::-1]].assign(more="x")
    np.testing.assert_array_equal(encoder.transform(other), encoder.transform(table))


def test_encoder_rebuilt_from_what_it_learnt_encodes_alike(table):
    encoder = TableEncoder().fit(table)
    twin = TableEncoder.from_learnt(encoder.feature_names_in_, encoder.medians_, encoder.categories_)
    new = table.assign(age=[np.nan] * 4)
    np.testing.assert_array_equal(twin.transform(new), encoder.transform(new))
    assert vars(twin).keys() == vars(encoder).keys()
    assert (twin.medians_, twin.categories_) == (encoder.medians_, encoder.categories_)


def test_encoder_of_numbers_alone_and_of_text_alone():
    numbers, words = pd.DataFrame({"x": [1.0, 3.0]}), pd.DataFrame({"w": ["a", "b"]})
    for frame in (numbers, words):
        encoder = TableEncoder().fit(frame)
        twin = TableEncoder.from_learnt(encoder.feature_names_in_, encoder.medians_, encoder.categories_)
        np.testing.assert_array_equal(twin.transform(frame), encoder.transform(frame))


def test_encoder_counts_unknown_text_and_encodes_it_as_zeros(table):
    encoder = TableEncoder().fit(table)
    new = table.assign(home=["boat", "own", "tent", "boat"])
    with pytest.warns(UnknownCategoryWarning, match=r"'home': 3 of 4 rows .* \('boat', 'tent'\)"):
        rows = encoder.transform(new)
    assert rows[:, 3:6].tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert encoder.unknown_values(new) == {"home": {"boat": 2, "tent": 1}}


def test_encoder_counts_missing_text_as_unknown_where_training_had_none():
    encoder = TableEncoder().fit(pd.DataFrame({"w": ["a", "b"]}))
    with pytest.warns(UnknownCategoryWarning, match="'missing'"):
        assert encoder.transform(pd.DataFrame({"w": [None, "a"]})).tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([None, None], "no value at all in column 'c'"),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "'c' holds dates or times"),
        ([datetime.date(2020, 1, 1), None], "'c' holds dates or times"),
        (pd.to_timedelta([1, 2]), "'c' holds dates or times"),
        ([[1], [2]], "'c' holds values of kind 'mixed'"),
        ([b"a", b"b"], "'c' holds values of kind 'bytes'"),
        ([1 + 2j, 3], "'c' holds values of kind 'complex'"),
        ([1.0, -np.inf], "'c' is infinite in row 2"),
        ([str(i) for i in range(40)] + [None, "4o"], "'c' is mostly numbers, but has '4o' in row 42"),
        ([f"name {i}" for i in range(MAX_CATEGORIES + 1)], "'c' holds 201 different texts"),
    ],
)
def test_encoder_refuses_columns_that_are_no_features(column, words):
    with pytest.raises(ValueError, match=words):
        TableEncoder().fit(pd.DataFrame({"c": column}))


def test_encoder_refuses_a_table_without_columns():
    with pytest.raises(ValueError, match="no column is left"):
        TableEncoder().fit(pd.DataFrame(index=[0, 1]))


def test_encoder_takes_codes_as_categories():
    codes = ["1", "2", "unknown", "3"] * 10
    assert TableEncoder().fit(pd.DataFrame({"c": codes})).categories_ == {"c": ["1", "2", "3", "unknown"]}


def test_encoder_refuses_new_tables_that_lack_a_column_or_hold_text_for_numbers(table):
    encoder = TableEncoder().fit(table)
    with pytest.raises(ValueError, match=r"no column 'age' \(needed by the model\); did you mean 'Age'\?"):
        encoder.transform(table.rename(columns={"age": "Age"}))
    with pytest.raises(ValueError, match="'age' must hold numbers, but has 'old' in row 2"):
        encoder.transform(table.assign(age=["20", "old", "x", None]))


def test_encoder_is_a_scikit_learn_transformer(table):
    encoder = TableEncoder()
    assert clone(encoder.fit(table)).get_params() == encoder.get_params()
    frame = encoder.set_output(transform="pandas").fit_transform(table)
    assert frame.columns.tolist() == encoder.get_feature_names_out().tolist()
