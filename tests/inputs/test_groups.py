import numpy as np
import pandas as pd
import pytest

from evenout import Groups
from evenout.exceptions import SmallGroupWarning
from evenout.groups.read import EVERY, label_rows, match_groups, read_groups, warn_left_out


@pytest.mark.parametrize(
    "given",
    [
        ["b", "a", "b", "a"],
        np.array(["b", "a", "b", "a"]),
        pd.Series(["b", "a", "b", "a"], index=[9, 3, 5, 1]),
        pd.Series(["b", "a", "b", "a"], dtype="category"),
        pd.Series(["b", "a", "b", "a"], dtype="string"),
        pd.DataFrame({"g": ["b", "a", "b", "a"]}),
        np.array([["b"], ["a"], ["b"], ["a"]]),
    ],
)
def test_every_container_reads_the_same(given):
    groups = read_groups(given, 4)
    assert groups.codes.tolist() == [1, 0, 1, 0]
    assert groups.labels == ("a", "b")


def test_numbers_and_booleans_are_groups():
    assert read_groups([1, 0, 1, 0], 4).labels == ("0", "1")
    assert read_groups(np.array([True, False, True, False]), 4).labels == ("False", "True")


def test_several_columns_make_intersections():
    frame = pd.DataFrame({"sex": list("fmfmff"), "age": ["old", "old", "young", "old", "old", "young"]})
    groups = read_groups(frame, 6)
    assert groups.labels == ("sex=f, age=old", "sex=f, age=young", "sex=m, age=old")
    assert groups.codes.tolist() == [0, 2, 1, 2, 0, 1]
    assert groups.counts.tolist() == [2, 2, 2]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_missing_groups_are_named_or_ignored(missing):
    given = pd.Series(["a", "b", missing, "a", "b"], dtype=object)
    with pytest.raises(ValueError, match=r"missing values in 1 of 5 rows \(first: row 2\).*Groups\(unknown='ignore'\)"):
        read_groups(given, 5)
    assert read_groups(given, 5, Groups(min_size=2, unknown="ignore", small="error")).codes.tolist() == [0, 1, -1, 0, 1]


def test_small_groups_are_named():
    with pytest.raises(
        ValueError,
        match=r"3 rows: 'b' \(2\), 'c' \(1\).*small='leave_out'\) or groups=Groups\(small='merge'\)",
    ):
        read_groups(list("aaaabbc"), 7, Groups(min_size=3, small="error"))


def test_small_groups_merge_into_one():
    groups = read_groups([*"aaaabbc", None], 8, Groups(min_size=3, small="merge", unknown="ignore"))
    assert groups.labels == ("a", "merged: b + c")
    assert groups.codes.tolist() == [0, 0, 0, 0, 1, 1, 1, -1]


def test_merging_takes_the_next_smallest_where_the_small_are_too_few():
    groups = read_groups(list("aaaaabbbc"), 9, Groups(min_size=2, small="merge"))
    assert groups.labels == ("a", "merged: b + c")
    with pytest.raises(ValueError, match="one group only"):
        read_groups(list("aaab"), 4, Groups(min_size=2, small="merge"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "sensitive_features is missing"),
        (["a", "b"], "has 2 rows, but X has 4"),
        (["a"] * 4, r"one group only \('a'\)"),
        ("abab", r"is the text 'abab'; pass the column itself, such as table\['abab'\]"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        (pd.DataFrame(index=range(4)), "no column"),
    ],
)
def test_bad_groups_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        read_groups(given, 4)


def test_no_known_group_is_refused():
    with pytest.raises(ValueError, match="no known group"):
        read_groups([None] * 4, 4, Groups(min_size=2, unknown="ignore", small="error"))


def test_same_index_in_another_order_is_refused():
    X = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]}, index=list("wxyz"))
    groups = pd.Series(list("aabb"), index=list("zyxw"))
    with pytest.raises(ValueError, match="different order"):
        read_groups(groups, 4, rows=X)
    assert read_groups(groups.loc[X.index], 4, rows=X).codes.tolist() == [1, 1, 0, 0]
    assert read_groups(groups.reset_index(drop=True), 4, rows=X).codes.tolist() == [0, 0, 1, 1]


def test_values_of_one_name_are_one_group():
    groups = read_groups(np.array([1, "1", "2", 2, None], dtype=object), 5, EVERY)
    assert groups.labels == ("1", "2")
    assert groups.codes.tolist() == [0, 0, 1, 1, -1]


def test_small_groups_are_left_out_and_named():
    given = np.array([*"aaaabbbbcc", None], dtype=object)
    groups = read_groups(given, 11, Groups(min_size=3, small="leave_out", unknown="ignore"))
    assert groups.labels == ("a", "b")
    assert groups.codes.tolist() == [0] * 4 + [1] * 4 + [-1] * 3
    assert groups.left_out == {"c": 2}
    with pytest.warns(SmallGroupWarning, match=r"3 rows are left out: 'c' \(2\)") as caught:
        warn_left_out(groups.left_out, len(groups.labels), 3)
    assert caught[0].filename == __file__


def test_leaving_out_may_leave_nobody_to_compare():
    groups = read_groups(list("aaaab"), 5, Groups(min_size=3, small="leave_out"))
    assert groups.labels == ("a",)
    with pytest.warns(SmallGroupWarning, match="nothing is evened out"):
        warn_left_out(groups.left_out, len(groups.labels), 3)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([["a & b", "c"], ["a", "b & c"]], ('"a & b" & c', 'a & "b & c"')),
        ([["a &", "b"], ["a", "& b"]], ('"a &" & b', 'a & "& b"')),
        ([['"a', 'b"'], ["a & b", "c"]], (r'"\"a" & b"', '"a & b" & c')),
        ([['"a & b"', "c"], ["a & b", "c"]], (r'"\"a & b\"" & c', '"a & b" & c')),
        ([["R&D", "ü"], ["R", "D & ü"]], ('R & "D & ü"', "R&D & ü")),
    ],
)
def test_joined_names_tell_all_combinations_apart(rows, labels):
    groups = label_rows(rows * 2, 4)
    assert groups.labels == labels
    assert len(set(groups.codes[:2])) == 2
    for row in rows:  # the name of a row does not depend on the rows around it
        assert label_rows([row], 1).labels[0] in labels


def test_values_of_one_column_are_names_as_they_are():
    assert read_groups(["a & b", '"c"'] * 2, 4).labels == ('"c"', "a & b")


def test_names_carry_their_columns_where_values_say_little():
    frame = pd.DataFrame({"SEX": [1, 2, 1, 2], "sex": list("fmfm"), "old": [True, True, False, False]})
    assert read_groups(frame["SEX"], 4).labels == ("SEX=1", "SEX=2")
    assert read_groups(frame["sex"], 4).labels == ("f", "m")
    assert read_groups(frame["old"], 4).labels == ("old=False", "old=True")
    crossed = ("SEX=1, old=False", "SEX=1, old=True", "SEX=2, old=False", "SEX=2, old=True")
    assert label_rows(frame[["SEX", "old"]], 4).labels == crossed
    assert label_rows(frame[["SEX", "old"]].to_numpy(), 4).labels[0] == "1 & False"


def test_new_rows_are_told_apart_without_names_of_columns_too():
    frame = pd.DataFrame({"SEX": [1, 2, 1, 2], "AGE": [30, 30, 40, 40]})
    for given in (frame, frame["SEX"]):
        labels = label_rows(given, 4).labels
        named, plain = match_groups(given, 4, labels), match_groups(given.to_numpy(), 4, labels)
        assert named.codes.tolist() == plain.codes.tolist()


def test_new_rows_of_no_known_group_are_refused_or_counted():
    rows = np.array(["a", "x", None, "b", "x"], dtype=object)
    matched = match_groups(rows, 5, ("a", "b"), unknown="ignore", unseen="ignore")
    assert matched.codes.tolist() == [0, -1, -1, 1, -1]
    assert matched.left_out == {"x": 2}
    with pytest.raises(ValueError, match=r"not there in fit: 'x'; known are 'a', 'b'"):
        match_groups(rows, 5, ("a", "b"), unknown="ignore")
    with pytest.raises(ValueError, match=r"missing values in 1 of 5 rows \(first: row 2\); .* leave these rows out"):
        match_groups(rows, 5, ("a", "b"), unseen="ignore")
