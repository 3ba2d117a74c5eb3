"""Tables to hand over: small ones worked by hand, larger ones against fairlearn and plain pandas."""

import json

import numpy as np
import pandas as pd
import pytest

from evenout import Groups, audit
from evenout.exceptions import InputError, SmallGroupWarning

FAST = {"resamples": 0, "groups": Groups(min_size=2)}


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 4000
    frame = pd.DataFrame({
        "sex": rng.choice(np.array(["f", "m", "x", None], dtype=object), n, p=[0.44, 0.5, 0.01, 0.05]),
        "age": rng.choice(["old", "young", "mid"], n),
        "income": rng.choice(["low", "high"], n),
    })  # fmt: skip
    return frame.assign(score=rng.normal(size=n) + 0.5 * (frame["sex"] == "f"))


@pytest.fixture(scope="module")
def result(people):
    return audit(
        people["score"], sensitive_features=people[["sex", "age"]], given=people["income"],
        **FAST | {"groups": Groups(min_size=2, unknown="ignore")},
    )  # fmt: skip


def ten():
    """Ten people, two flagged: both of the four women, none of the six men."""
    scores = np.array([9.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0])
    return audit(scores, sensitive_features=["f"] * 4 + ["m"] * 6, contamination=0.2, **FAST)


def test_hiring_by_hand():
    table = ten().table("hiring").to_frame().set_index("group")
    assert table.loc["f", ["people", "favoured", "rate", "ratio"]].tolist() == [4, 2, 0.5, 0.5]
    assert table.loc["m", ["people", "favoured", "rate", "ratio"]].tolist() == [6, 6, 1.0, 1.0]
    assert table["median_rate"].tolist() == [2 / 4, 3 / 6]  # below 4.5: 1, 2 of women; 3, 4, 0 of men
    assert table["flag_rate"].tolist() == [0.5, 0.0]
    assert table.loc["f", "flag_ratio"] == 0
    assert table["note"].tolist() == ["", "best off"]


def test_flags_that_are_good_turn_the_table_round():
    table = ten().table("hiring", flag_means="good")
    frame = table.to_frame().set_index("group")
    assert frame["rate"].tolist() == [0.5, 0.0]
    assert frame.loc["m", ["ratio", "flag_ratio"]].tolist() == [0.0, 0.0]
    assert frame.loc["f", "note"] == "best off"
    assert frame["median_rate"].tolist() == [2 / 4, 3 / 6]  # above 4.5: 9, 8 of women; 5, 6, 7 of men
    assert table.favourable == "being flagged"


def test_lending_by_hand():
    table = ten().table("lending").to_frame().set_index("group")
    row = table.loc["f"]
    assert row["ratio"] == 0.5
    assert row["shortfall"] == 2
    assert row["p"] == pytest.approx(6 / 45)  # both flagged of ten are among the four: C(4, 2) / C(10, 2)
    scores = np.array([9.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0])
    assert row["score_difference"] == pytest.approx((5 - 25 / 6) / scores.std(ddof=1))
    assert table.loc["m", "note"] == "reference, best off"


def test_rates_and_ratios_agree_with_fairlearn(people, result):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    known = people["sex"].notna().to_numpy()
    spared = (~result.everyone.flagged)[known]
    for attribute in ("sex", "age"):
        groups = people[attribute][known]
        frame = fairlearn.MetricFrame(
            metrics=fairlearn.selection_rate, y_true=spared, y_pred=spared, sensitive_features=groups
        )
        if attribute == "sex":
            table = result.table("hiring").to_frame().query("attribute == 'sex' and group != 'unknown'")
            assert table["rate"].tolist() == pytest.approx(frame.by_group.tolist())
            large = table[table["note"] != "under 2% of all people"]
            assert large["ratio"].min() == pytest.approx(
                frame.by_group[["f", "m"]].min() / frame.by_group[["f", "m"]].max()
            )


def test_people_are_counted_by_attribute_and_crossed(people, result):
    table = result.table("hiring").to_frame()
    assert table["attribute"].unique().tolist() == ["sex", "age", "sex & age"]
    for _, rows in table.groupby("attribute"):
        assert rows["people"].sum() == len(people)
        assert rows["favoured"].sum() == (~result.everyone.flagged).sum()
    unknown = table.query("attribute == 'sex' and group == 'unknown'").iloc[0]
    assert unknown["people"] == people["sex"].isna().sum()
    assert np.isnan(unknown["ratio"])
    assert table.query("group == 'x'")["note"].tolist() == ["under 2% of all people"]


def test_a_small_group_is_never_the_best_off():
    scores = np.r_[np.arange(99.0), -5.0]
    with pytest.warns(SmallGroupWarning, match="tiny"):
        found = audit(scores, sensitive_features=["a"] * 50 + ["b"] * 49 + ["tiny"], **FAST)
    table = found.table("hiring").to_frame().set_index("group")
    assert table.loc["tiny", "rate"] == 1.0
    assert table.loc["a", "note"] == "best off"


def test_strata_agree_with_plain_pandas(people, result):
    table = result.table("strata")
    spared = ~result.everyone.flagged
    plain = pd.DataFrame({"spared": spared, **people}).groupby(["income", "sex"])["spared"].agg(["size", "sum", "mean"])
    rows = table.strata.query("attribute == 'sex'").set_index(["stratum", "group"])
    for (stratum, group), row in plain.iterrows():
        place = f"income {stratum}", group
        assert (rows.loc[place, "people"], rows.loc[place, "favoured"]) == (row["size"], row["sum"])
        assert rows.loc[place, "rate"] == pytest.approx(row["mean"])
    women = table.to_frame().query("attribute == 'sex' and group == 'f'").iloc[0]
    apart, weight = [], []
    known = people[people["sex"].notna()].assign(spared=spared[people["sex"].notna()])
    for _, part in known.groupby("income"):
        is_f = part["sex"] == "f"
        apart.append(is_f[~part["spared"]].mean() - is_f[part["spared"]].mean())
        weight.append(len(part))
    assert women["disparity"] == pytest.approx(np.average(apart, weights=weight))


def test_a_reference_can_be_chosen(result):
    table = result.table("lending", reference="f").to_frame()
    assert table.query("attribute == 'sex' and note == 'reference'")["group"].tolist() == ["f"]
    ages = table.query("attribute == 'age'").set_index("note")
    assert ages.loc["reference, best off", "rate"] == ages["rate"].max()


def test_p_values_are_corrected_within_an_attribute(result):
    table = result.table("lending").to_frame()
    ages = table[(table["attribute"] == "age") & table["p"].notna()].sort_values("p")
    expected = np.maximum.accumulate(ages["p"].to_numpy() * [2, 1])
    assert ages["p_adjusted"].tolist() == pytest.approx(np.minimum(expected, 1).tolist())


def test_clustered_rows_have_no_intervals_or_tests():
    scores = np.arange(60.0)
    found = audit(
        scores, sensitive_features=["a", "b"] * 30, clusters=np.arange(60) // 2 * 2 + np.arange(60) % 2, **FAST
    )
    table = found.table("lending")
    assert table.to_frame()[["p", "z", "rate_low", "ratio_low"]].isna().all().all()
    assert "clusters" in table.notes[0]


def test_text_has_sources_limits_and_no_verdict(result):
    for kind in ("hiring", "lending", "strata"):
        text = repr(result.table(kind))
        assert "Follows:" in text
        assert "Does not establish:" in text
        for word in (" meets", " fails", "compliant", "violat", "pass "):
            assert word not in text
        json.dumps(result.table(kind).to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cooking",), "'cooking' is no table"),
        (("strata",), "needs given"),
        (("hiring", "ugly"), "flag_means='ugly' is not allowed"),
        (("lending", "bad", "nobody"), "'nobody' is no group"),
        (("lending", "bad", ["f", "m"]), "two groups of 'group'"),
    ],
)
def test_what_cannot_be_made_is_said(arguments, words):
    kind, *rest = arguments
    more = dict(zip(("flag_means", "reference"), rest, strict=False))
    with pytest.raises(InputError, match=words):
        ten().table(kind, **more)
