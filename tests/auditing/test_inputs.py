import numpy as np
import pandas as pd
import pytest

from evenout import Groups
from evenout.auditing import audit
from evenout.auditing.sample import bin_column, read_audit_inputs, read_strata

SCORES = [0.1, 0.2, 0.3, 0.4]
GROUPS = ["a", "a", "b", "b"]


def quick(scores=SCORES, sensitive=GROUPS, **more):
    options = {"resamples": 0, "groups": Groups(min_size=2), **more}
    return audit(scores, sensitive_features=sensitive, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: quick([0.1, np.nan, 0.3, np.inf]),
            "scores has missing or infinite values in 2 of 4 rows .first: row 1",
        ),
        (lambda: quick(["x", "y", "z", "w"]), "scores must be numbers"),
        (
            lambda: quick([[0.1], [0.2]], ["a", "b"]),
            r"scores must have one number per row, .*got shape \(2, 1\)",
        ),
        (lambda: quick([], []), "scores has no rows"),
        (
            lambda: quick([1e-200, 2e-200, 3e-200, 5e-200]),
            "scores differ by 4e-200 at most, .*; multiply them",
        ),
        (lambda: quick(sensitive=["a", "b"]), "sensitive_features has 2 rows, but scores has 4"),
        (lambda: quick(sensitive=None), "sensitive_features is missing"),
        (
            lambda: quick(sensitive=["a", "a", "b", None]),
            "missing values in 1 of 4 rows .*unknown='ignore'",
        ),
        (lambda: quick(sensitive=["a"] * 4), "one group only"),
        (
            lambda: quick(sensitive=["a", "a", "a", "b"], groups=Groups(min_size=2, small="error")),
            r"'b' \(1\).*'leave_out'\) or groups=Groups\(small='merge'\)",
        ),
        (
            lambda: quick(sensitive=["a", "a", "a", "b"]),
            r"fewer than two groups have 2 rows or more.*too small: 'b' \(1\); lower groups=Groups",
        ),
        (
            lambda: quick(groups=Groups(min_size=30)),
            r"fewer than two groups have 30 .*too small: 'a' \(2\), 'b' \(2\)",
        ),
        (lambda: quick(labels=[0, 1, 1]), "labels has 3 rows, but scores has 4"),
        (lambda: quick(labels=[-1, 1, 1, -1]), "labels is '-1' in row 0; labels must be 0, or 1 for an outlier"),
        (lambda: quick(labels=["ja", "nein", "ja", "ja"]), "labels is 'ja' in row 0; labels must be"),
        (lambda: quick(labels=[None, np.nan, None, None]), "labels has no label at all"),
        (lambda: quick(label_propensity=0.5), "label_propensity goes with labels, which are missing"),
        (lambda: quick(labels=[0, 1, None, 1], label_propensity=0.0), "label_propensity must be a chance above 0"),
        (lambda: quick(sample_weight=[1, 2, -1, 1]), "sample_weight has negative numbers"),
        (lambda: quick(sample_weight=[1, 2, 1]), "sample_weight has 3 rows, but scores has 4"),
        (lambda: quick(sample_weight=[1, 1, 2, 2], contamination=2), "contamination=2 is a count of rows, which does"),
        (lambda: quick(sample_weight=[1, 1, 2, 2], X=[[1.0]] * 4), "X does not go with sample_weight"),
        (lambda: quick(clusters=[1, 2, 1, 2], X=[[1.0]] * 4), "X does not go with clusters that span groups"),
        (lambda: quick(threshold=8, flags=[1, 0, 0, 0]), "threshold does not go with flags"),
        (lambda: quick(threshold=np.nan), "threshold=nan is not allowed"),
        (lambda: quick(flags=[1, 0, 2, 0]), "flags is '2' in row 2"),
        (lambda: quick(labels=[1, 1, 1, 1]), "labels is 1 in every row; to evaluate, both 0 and 1 must occur"),
        (
            lambda: quick(labels=[[0], [1], [1], [0]]),
            "labels must hold one label per row, shape .4,., got shape .4, 1.",
        ),
        (lambda: quick(X=[[1.0], [2.0]]), "X has 2 rows, but scores has 4"),
        (
            lambda: quick(X=pd.DataFrame({"u": [1, 2, None, 4]})),
            "X has missing values in 1 columns .first: 'u'",
        ),
        (lambda: quick(X=[[1.0], [2.0], [np.inf], [3.0]]), "X has infinite values"),
        (lambda: quick(X=np.zeros((4, 2, 2))), "X must hold one value per row"),
        (lambda: quick(X=pd.DataFrame(index=range(4))), "X has no column"),
        (lambda: quick(X=pd.DataFrame([[1, 2]] * 4, columns=["u", "u"])), "more than one column 'u'"),
        (lambda: quick(given=[1, 2]), "given has 2 rows"),
        (lambda: quick(given=3), "given has no rows"),
        (
            lambda: quick(contamination=0),
            "contamination=0 is not allowed; use a share of the rows above 0 and at most 0.5, or a count of rows",
        ),
        (lambda: quick(contamination=3), "contamination=3 is more than half of the 4 rows"),
        (lambda: quick(contamination=1.0), "contamination=1.0 is not allowed"),
        (lambda: quick(contamination=0.6), "contamination=0.6 is not allowed"),
        (lambda: quick(confidence=1.0), "confidence=1.0 is not allowed"),
        (lambda: quick(groups=Groups(min_size=1)), "min_size=1\\) is not allowed"),
        (lambda: quick(groups=Groups(small="drop")), "small='drop'\\) is not allowed; use 'leave_out', 'merge'"),
        (lambda: audit(SCORES, sensitive_features=GROUPS, resamples=-1), "resamples=-1 is not allowed"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["sensitive_features", "labels", "X", "given"])
def test_another_order_of_the_same_index_is_refused(name):
    scores = pd.Series(SCORES, index=list("pqrs"))
    arguments = {
        "sensitive_features": GROUPS,
        name: pd.Series(GROUPS if name != "labels" else [0, 0, 1, 1], index=list("qprs")),
    }
    with pytest.raises(ValueError, match=f"{name} and scores have the same index in a different order"):
        audit(scores, **arguments, groups=Groups(min_size=2))


def test_rows_of_unknown_group_are_not_compared():
    inputs = read_audit_inputs(
        [0.1, 0.9, 0.2, 0.3, 0.4],
        ["a", None, "a", "b", "b"],
        labels=[0, 1, 0, 0, 1],
        X=pd.DataFrame({"u": range(5)}),
        given=["s", "t", "s", "u", "u"],
        groups=Groups(min_size=2, small="leave_out", unknown="ignore"),
    )
    assert inputs.scores.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert inputs.sample.members.codes.tolist() == [0, 0, 1, 1]
    assert inputs.labels.values.tolist() == [0, 0, 0, 1]
    assert inputs.features["u"].tolist() == [0, 2, 3, 4]
    assert inputs.alike.codes.tolist() == [0, 0, 1, 1]
    assert inputs.alike.names == ("s", "u")
    assert inputs.background.tolist() == [0.9]
    assert inputs.notes == ("1 of 5 rows have no known group: not compared, but counted when flagging",)


def test_numbers_are_cut_at_quantiles_and_few_values_kept():
    bins = bin_column(pd.Series([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, np.nan]), 3)
    assert bins.names == ("1 to 2", "3 to 4", "5 to 6")
    assert bins.codes.tolist() == [2, 0, 0, 1, 1, 2, -1]
    few = bin_column(pd.Series([2.5, 1.0, 2.5]), 3)
    assert (few.names, few.codes.tolist()) == (("1", "2.5"), [1, 0, 1])
    heavy = bin_column(pd.Series([0.0] * 20 + [1.0, 2.0, 3.0, 4.0]), 3)
    assert heavy.names == ("0", "1 to 4")
    flags = bin_column(pd.Series([True, False, True]), 3)
    assert flags.names == ("False", "True")


def test_strata_of_several_columns_are_combinations_that_occur():
    given = pd.DataFrame({"job": ["x", "y", "x", "x"], "size": [1, 2, 1, 2]})
    strata = read_strata(given)
    assert strata.names == ("job x & size 1", "job x & size 2", "job y & size 2")
    assert strata.codes.tolist() == [0, 2, 0, 1]


def test_a_column_of_many_texts_is_left_out_and_said():
    X = pd.DataFrame({"id": [f"row {i}" for i in range(60)], "u": range(60)})
    result = audit(np.arange(60.0), sensitive_features=GROUPS * 15, X=X, resamples=0)
    assert "feature 'id' has more than 50 distinct texts: left out" in result.notes
    with pytest.raises(ValueError, match="X has no usable column"):
        audit(np.arange(60.0), sensitive_features=GROUPS * 15, X=X[["id"]])
