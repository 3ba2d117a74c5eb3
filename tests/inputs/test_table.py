"""Tables become feature rows in one way, learnt once."""

import datetime
import string
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from evenout.exceptions import InputError, UnknownCategoryWarning
from evenout.tables.columns import MAX_CATEGORIES
from evenout.tables.encoder import TableEncoder


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
    names = ["age", "member", "cents", "home=own", "home=missing", "home=rent", "size=2", "size=1", "size=3"]
    assert encoder.get_feature_names_out().tolist() == names
    expected = [
        [20, 1, 1.5, 1, 0, 0, 1, 0, 0],
        [40, 0, 2.0, 0, 0, 1, 0, 1, 0],
        [40, 1, 2.0, 0, 1, 0, 1, 0, 0],
        [60, 1, 4.0, 1, 0, 0, 0, 0, 1],
    ]
    np.testing.assert_array_equal(encoder.transform(table), expected)


def test_encoder_ignores_the_order_of_columns_and_further_ones(table):
    encoder = TableEncoder().fit(table)
    other = table[table.columns[::-1]].assign(more="x")
    np.testing.assert_array_equal(encoder.transform(other), encoder.transform(table))


def test_encoder_rebuilt_from_what_it_learnt_encodes_alike(table):
    encoder = TableEncoder().fit(table)
    twin = TableEncoder().take_columns(encoder.columns_)
    new = table.assign(age=[np.nan] * 4)
    np.testing.assert_array_equal(twin.transform(new), encoder.transform(new))
    assert vars(twin).keys() == vars(encoder).keys()
    assert (twin.medians_, twin.categories_) == (encoder.medians_, encoder.categories_)


def test_encoder_of_numbers_alone_and_of_text_alone():
    numbers, words = pd.DataFrame({"x": [1.0, 3.0]}), pd.DataFrame({"w": ["a", "b"]})
    for frame in (numbers, words):
        encoder = TableEncoder().fit(frame)
        twin = TableEncoder().take_columns(encoder.columns_)
        np.testing.assert_array_equal(twin.transform(frame), encoder.transform(frame))


def test_encoder_counts_unknown_text_and_encodes_it_as_zeros(table):
    encoder = TableEncoder().fit(table)
    new = table.assign(home=["boat", "own", "tent", "boat"])
    with pytest.warns(UnknownCategoryWarning, match=r"'home': 3 of 4 rows .* \('boat', 'tent'\)"):
        rows = encoder.transform(new)
    assert rows.iloc[:, 3:6].to_numpy().tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert encoder.unknown_values(new) == {"home": {"boat": 2, "tent": 1}}


def test_encoder_counts_missing_text_as_unknown_where_training_had_none():
    encoder = TableEncoder().fit(pd.DataFrame({"w": ["a", "b"]}))
    with pytest.warns(UnknownCategoryWarning, match="'missing'"):
        assert encoder.transform(pd.DataFrame({"w": [None, "a"]})).to_numpy().tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([[1], [2]], "'c' holds values of kind 'mixed'"),
        ([b"a", b"b"], "'c' holds values of kind 'bytes'"),
        ([1 + 2j, 3], "'c' holds values of kind 'complex'"),
        ([1.0, -np.inf], "'c' is infinite in row 2"),
        (
            [str(i) for i in range(40)] + [None, "4o"],
            r"'c' is mostly numbers, but has '4o' in row 42 \(1 row with text\)",
        ),
        ([f"{i} {'kg' if i % 2 else 'g'}" for i in range(40)], r"in different units \('g', 'kg'\); write all of them"),
    ],
)
def test_encoder_refuses_columns_that_are_no_features(column, words):
    with pytest.raises(ValueError, match=words):
        TableEncoder().fit(pd.DataFrame({"c": column}))


DAYS = ["2020-01-31", "2020-02-03", None, "2021-02-03"]
OF_DAYS = [[0, 1, 4], [3, 2, 0], [3, 2, 0], [369, 2, 2]]


@pytest.mark.parametrize(
    ("column", "rows", "note"),
    [
        (["$1,234", "-$5", "?", "7.50 $"], [[1234], [-5], [7.5], [7.5]], "numbers written as text, in $; 1 gap filled"),
        (["12%", "5 %", "NA", "1e2%"], [[12], [5], [12], [100]], "numbers written as text, in %"),
        (["3,5", "1.234,25", "2,0", "8"], [[3.5], [1234.25], [2], [8]], "numbers written as text with decimal commas"),
        (["1 month", "2 months", "36 months", "-"], [[1], [2], [36], [2]], "in month; 1 gap filled by the median, 2"),
        (["yes", "No", "", "YES"], [[1], [0], [1], [1]], "yes and no, as 1 and 0"),
        (["08:30", "14:00:36", None, "00:00"], [[8.5], [14.01], [8.5], [0]], "times of day, as hours"),
        (DAYS, OF_DAYS, "dates, as days since 2020-01-31, month, weekday; 1 gap filled by the median, 2020-02-03"),
        (pd.to_datetime(DAYS), OF_DAYS, "dates, as days since 2020-01-31, month, weekday"),
        ([datetime.date(2020, 1, 31), datetime.date(2020, 2, 3), None, datetime.date(2021, 2, 3)], OF_DAYS, "dates"),
        (["31.01.2020", "03.02.2020", None, "03.02.2021"], OF_DAYS, r"dates written as DD.MM.YYYY, as days"),
        (["1/31/2020", "2/3/2020", None, "2/3/2021"], OF_DAYS, r"dates written as MM/DD/YYYY"),
        (["31/1/2020", "3/2/2020", None, "3/2/2021"], OF_DAYS, r"dates written as DD/MM/YYYY"),
        (["31 Jan 2020", "03 Feb 2020", None, "03 Feb 2021"], OF_DAYS, r"dates written as DD Jan YYYY"),
        (pd.to_timedelta([1, 2, None, 5], unit="D"), [[1], [2], [2], [5]], "1 gap filled by the median, 2"),
    ],
)
def test_encoder_reads_what_people_write(column, rows, note):
    frame = pd.DataFrame({"c": column})
    encoder = TableEncoder().fit(frame)
    np.testing.assert_allclose(encoder.transform(frame), rows, atol=1e-6)
    assert note in encoder.notes_["c"]
    twin = TableEncoder().take_columns(encoder.columns_)
    np.testing.assert_array_equal(twin.transform(frame.iloc[::-1]), encoder.transform(frame)[::-1])


@pytest.mark.parametrize(
    ("name", "column", "note"),
    [
        ("c", [None] * 30, "left out, no value in any row"),
        ("c", ["?"] * 30, "left out, no value in any row"),
        ("c", [3.0] * 30, "left out, the same value in all rows"),
        ("c", ["x"] * 30, "left out, the same value in all rows"),
        ("c", range(5, 35), "left out, a running number, different in every row"),
        ("Unnamed: 0", [*range(15)] * 2, "left out, an identifier by its name, different in about 50% of the rows"),
        ("customerId", [i * i for i in range(30)], "left out, an identifier by its name, different in every row"),
        ("name", [f"name {i}" for i in range(30)], "left out, text that tells rows apart, different in every row"),
    ],
)
def test_encoder_leaves_out_what_tells_nothing_unless_it_is_kept(name, column, note):
    frame = pd.DataFrame({name: column, "x": np.arange(30.0) ** 2 / 7})
    encoder = TableEncoder().fit(frame)
    assert encoder.notes_ == {name: note}
    assert encoder.get_feature_names_out().tolist() == encoder.columns_used == ["x"]
    assert encoder.transform(frame[["x"]]).shape == (30, 1)  # not needed in new tables
    if note != "left out, no value in any row":
        assert name in TableEncoder(keep=[name]).fit(frame).columns_used


def test_encoder_takes_numbers_that_differ_in_every_row_as_they_are():
    frame = pd.DataFrame({"income": np.arange(40) ** 2, "share": np.arange(40) / 7, "year": [1990, 1991] * 20})
    assert TableEncoder().fit(frame).notes_ == {}


def test_encoder_keeps_frequent_texts_and_joins_the_rest():
    letters = list(string.ascii_letters[: MAX_CATEGORIES + 1])
    words = [letter for i, letter in enumerate(letters) for _ in range(2 + (i < 3))] + ["other"] * 9
    encoder = TableEncoder().fit(pd.DataFrame({"c": words}))
    assert encoder.categories_ == {"c": ["a", "b", "c", "other"]}  # those that tie with the first too many are rare
    assert encoder.notes_ == {"c": '52 different texts: the 4 most frequent, and "other" for the rest'}
    assert encoder.transform(pd.DataFrame({"c": ["b", "d", "new"]})).to_numpy().tolist() == [
        [0, 1, 0, 0],
        [0, 0, 0, 1],
        [0, 0, 0, 1],
    ]
    even = TableEncoder().fit(pd.DataFrame({"c": letters * 2, "x": np.arange(len(letters) * 2.0) % 7}))
    assert even.notes_ == {"c": "left out, 51 different texts, none of them frequent"}


def test_other_names_for_categories_change_no_feature():
    rng = np.random.default_rng(0)
    words = rng.choice(["own", "rent", "boat"], 200, p=[0.2, 0.5, 0.3])
    other = pd.Series(words).map({"own": "zelt", "rent": "B", "boat": "m"})
    rows = [TableEncoder().fit_transform(pd.DataFrame({"home": column})) for column in (words, other)]
    np.testing.assert_array_equal(*rows)


def test_encoder_refuses_new_values_that_it_cannot_read():
    encoder = TableEncoder().fit(pd.DataFrame({"w": ["5 kg", "6 kg"], "d": ["2020-01-31", "2020-02-29"]}))
    good = pd.DataFrame({"w": [5.5, None], "d": ["2020-01-31", None]})
    assert encoder.transform(good)["w"].tolist() == [5.5, 5.5]
    for change, words in (
        ({"w": ["5 kg", "300 g"]}, "'w' must hold numbers in 'kg', but has '300 g' in row 2"),
        ({"d": ["2020-01-31", "soon"]}, "'d' must hold dates written as YYYY-MM-DD, but has"),
    ):
        with pytest.raises(ValueError, match=words):
            encoder.transform(good.assign(**change))


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


def test_messages_speak_the_callers_language():
    frame = pd.DataFrame()
    frame["w"] = [f"{i} {'kg' if i % 2 else 'g'}" for i in range(60)]
    with pytest.raises(InputError, match=r"or leave it out: drop\(columns=\['w'\]\)$") as caught:
        TableEncoder().fit(frame)
    assert "--" not in str(caught.value)
    nested = pd.DataFrame({"list": [[1], [2]], "x": [1.0, 2.0]})
    with pytest.raises(InputError, match=r"or leave it out: drop\(columns=\['list'\]\)$"):
        TableEncoder().fit(nested)
