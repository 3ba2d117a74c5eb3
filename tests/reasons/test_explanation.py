"""What a person gets: frames, words, moves, influence by group, pictures."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evenout import FairOutlierEnsemble, TableEncoder
from evenout.exceptions import InputError
from evenout.reasons import explain, reason_columns


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 300
    table = pd.DataFrame({"income": rng.lognormal(8, 0.5, n).round(), "visits": rng.poisson(3, n).astype(float)})
    table["home"] = rng.choice(["own", "rent", "boat"], n, p=[0.6, 0.37, 0.03])
    table["joined"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    table["height"] = np.where(sex == "f", 165.0, 178.0) + 5 * rng.normal(size=n)
    table.loc[3, "visits"] = 60.0
    table.loc[4, "home"] = None
    table.loc[5, "income"] = np.nan
    return table, sex


@pytest.fixture(scope="module")
def pipeline(people):
    table, sex = people
    fitted = make_pipeline(TableEncoder(), FairOutlierEnsemble(alpha=30.0, random_state=0))
    return fitted.fit(table, fairoutlierensemble__sensitive_features=sex)


@pytest.mark.filterwarnings("ignore")
def test_one_row_per_row_and_reason_indexed_as_the_table(model, new):
    frame = model.explain(new, n_reasons=2).to_frame()
    assert list(frame) == ["rank", "feature", "value", "base_part", "fair_part", "text"]
    assert frame.index.tolist() == np.repeat(new.index, 2).tolist()
    assert frame["rank"].tolist() == [1, 2] * len(new)
    assert (frame["fair_part"].to_numpy()[::2] >= frame["fair_part"].to_numpy()[1::2]).all()
    assert frame["value"].tolist() == [new.loc[i, name] for i, name in zip(frame.index, frame["feature"], strict=True)]
    assert len(model.explain(new, n_reasons=99).to_frame()) == 5 * len(new)


def test_wrong_requests_are_one_line(model, new):
    with pytest.raises(InputError, match="n_reasons=0 is not allowed; use a whole number of at least 1"):
        model.explain(new, n_reasons=0)
    with pytest.raises(InputError, match="baseline='mean' is unknown; use 'alike' or 'typical'"):
        model.explain(new, baseline="mean")


def test_the_changed_feature_is_the_first_reason(model, new):
    frame = model.explain(new, n_reasons=1).to_frame()
    assert (frame["feature"].iloc[4::2] == "four").all()  # rows 0 and 2 are far out in "three" too
    assert frame["text"].iloc[4].startswith("four: ")
    assert "than in any training row" in frame["text"].iloc[4]


def test_encoded_columns_are_summed_back_and_values_are_those_of_the_table(pipeline, people):
    table, _ = people
    found = explain(pipeline, table, n_reasons=5)
    assert sorted(found.feature_names) == sorted(table.columns)
    frame = found.to_frame()
    assert frame.loc[3].iloc[0]["feature"] == "visits"
    text = frame.loc[3].iloc[0]["text"]
    assert text.startswith("visits: 60, higher than 99.")
    assert "% of rows (80% of rows: 1 to 5; those most similar: " in text
    boat = table.index[table["home"] == "boat"][0]
    home = frame.loc[boat].set_index("feature").loc["home"]
    assert home["value"] == "boat"
    assert home["text"].startswith("home: boat, as ")
    assert frame.loc[4].set_index("feature").loc["home", "text"].startswith("home: missing, as ")
    assert "income: missing, taken as" in frame.loc[5].set_index("feature").loc["income", "text"]
    day = table.loc[0, "joined"].strftime("%Y-%m-%d")
    assert frame.loc[0].set_index("feature").loc["joined", "text"].startswith(f"joined: {day}, ")


def test_a_feature_that_tells_the_group_says_so(pipeline, people):
    table, _ = people
    found = explain(pipeline, table.assign(height=210.0)[:3], n_reasons=5)
    texts = found.to_frame().query("feature == 'height'")["text"]
    assert texts.str.contains(r"it tells the group: [89]\d% of guesses from it alone are right, 50% by chance").all()
    assert found.influence()["tells"].idxmax() == "height"


def test_features_that_move_together_are_named_once(table, model):
    rows = table[0].iloc[5:8].assign(one=6.0, two=6.0)
    for row, reasons in model.explain(rows, n_reasons=2).to_frame().groupby(level=0):
        assert set(reasons["feature"]) == {"one", "two"}, row
        assert f"moves together with {reasons['feature'].iloc[0]}" in reasons["text"].iloc[1]


def test_influence_by_group_adds_up_to_the_gap(model, table):
    X, groups = table
    found = model.explain(X, baseline="typical")
    gaps = found.influence(groups).groupby(level="group").sum()
    for score, column in ((model.target_, "base"), (model.outlier_scores_, "fair")):
        for group in "ab":
            assert gaps.loc[group, column] == pytest.approx(score[groups == group].mean() - score.mean(), abs=1e-9)
    overall = found.influence()
    np.testing.assert_allclose(overall["base"], np.abs(found.base_parts).mean(axis=0))


def test_moves_are_those_between_the_two_lists(model, table):
    X, _ = table
    found = model.explain(X)
    before = model.target_ > np.percentile(model.target_, 90)
    after = model.predict(X) == -1
    np.testing.assert_array_equal(found.flagged, np.column_stack([before, after]))
    moves = found.moves()
    assert moves.index.tolist() == X.index[before != after].tolist()
    assert ((moves["change"] == "left") == before[before != after]).all()
    assert moves["text"].str.match(r"(left|entered) the list: base score .* \(flagged above .*\), fair score").all()


def test_pictures_and_notebooks(model, new):
    pytest.importorskip("matplotlib").use("Agg")
    display = model.explain(new).plot(3)
    widths = [bar.get_width() for bar in display.bars_["after"]]
    assert sum(widths) == pytest.approx(model.explain(new).fair_parts[3].sum())
    assert display.ax_.get_title() == "3: not flagged"
    assert "<table" in model.explain(new)._repr_html_()


def test_printing_is_at_most_15_lines(model, table):
    X, _ = table
    printed = str(model.explain(X)).splitlines()
    assert len(printed) <= 15
    assert printed[0] == "240 rows, 24 flagged; each is held against those most like it"
    assert printed[1].startswith("0: ")
    assert re.fullmatch(r"\.\.\. \d+ more: to_frame\(\), lines\(row\), plot\(row\)", printed[-1])
    assert "array" not in str(printed)
    few = str(model.explain(X[:2])).splitlines()
    assert not few[-1].startswith("...")
    assert sum(not line.startswith(" ") for line in few) == 3


def test_everybody_gets_a_reason_or_hears_that_nothing_stands_out(model, table):
    X, _ = table
    found = model.explain(X)
    usual = pd.DataFrame([X.median()])
    assert [*model.explain(usual).lines(0)][-1] == "  nothing stands out"
    for row in range(len(X)):
        _, *said = found.lines(row)
        assert said, row
        alone = [line for line in said if "common by itself" in line]
        assert all(", but " in line or "in no pair" in line for line in alone)
    told = reason_columns(model, X, 2, everybody=True)
    assert (told["reason_1"] != "").all()
    some = reason_columns(model, X, 2)
    assert (some["reason_1"] != "").sum() == (some["change"] != "not flagged").sum()


def test_names_of_features_come_through_pipelines(pipeline, people, table):
    encoded = pipeline[0].transform(people[0])
    assert "home=own" in pipeline[-1].explain(encoded[:3]).feature_names
    X, groups = table
    scaled = make_pipeline(StandardScaler(), FairOutlierEnsemble(alpha=1.0, random_state=0))
    scaled.fit(X, fairoutlierensemble__sensitive_features=groups)
    assert explain(scaled, X[:3]).feature_names == tuple(X.columns)
    three = make_pipeline(TableEncoder(), StandardScaler(), FairOutlierEnsemble(alpha=1.0, random_state=0))
    three.fit(people[0], fairoutlierensemble__sensitive_features=people[1])
    assert explain(three, people[0][:3]).feature_names == tuple(pipeline[0].get_feature_names_out())


@pytest.fixture(scope="module")
def looks():
    """Group b is larger in one feature, and more outlying in another; the third says nothing."""
    rng = np.random.default_rng(5)
    group = rng.choice(["a", "b"], 1500, p=[0.6, 0.4])
    X = pd.DataFrame(rng.normal(size=(1500, 3)), columns=["look", "odd", "noise"])
    X["look"] += 2.0 * (group == "b")
    X["odd"] *= 1.0 + (group == "b")
    return X, group


@pytest.mark.parametrize("correction", ["resemblance", pytest.param("both", marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_resemblance_is_a_part_of_its_own(looks, correction):
    X, group = looks
    model = FairOutlierEnsemble(correction=correction, flag_rate_ratio=0.9, random_state=0)
    model.fit(X, sensitive_features=group)
    found = model.explain(X, n_reasons=4)
    assert found.feature_names == ("look", "odd", "noise", "resemblance to groups")
    np.testing.assert_allclose(found.fair_parts.sum(axis=1), found.fair_scores - found.fair_typical, atol=1e-9)
    np.testing.assert_allclose(found.base_parts[:, -1], 0.0)
    taken = sum(price * (model.resemblance(X)[:, g] - 1.0) for g, price in enumerate(model.lambda_.values()))
    np.testing.assert_allclose(found.fair_parts[:, -1], -taken, atol=1e-9)
    np.testing.assert_allclose(found.resembling.added.sum(axis=1), -taken, atol=1e-9)
    if correction == "resemblance":  # which moves nothing but this
        np.testing.assert_allclose(found.fair_parts[:, :3], found.base_parts[:, :3], atol=1e-9)
        moves = found.moves()
        entered, left = (moves["text"][moves["change"] == change] for change in ("entered", "left"))
        assert len(entered) > 10
        assert entered.str.contains(r"raised most by resembling group a \(\+0\.\d+\)").all()
        assert left.str.contains(r"lowered most by resembling group b \(-0\.\d+\)").all()
    frame = found.to_frame()
    texts = frame["text"][frame["feature"] == "resemblance to groups"]
    assert texts.str.match(
        r"for (not )?resembling group [ab]: [+-]0\.\d{3} \(\d+\.\d times as much like it as rows"
    ).all()
    assert texts.str.contains("by look ").mean() > 0.8  # the feature that makes it
    by_feature = np.abs(found.resembling.by_feature).mean(axis=0)
    assert by_feature[0] > 3 * by_feature[1:].max()


def test_tiny_changes_leave_the_reasons(model, table):
    X, _ = table
    rows = X[model.predict(X) == -1]
    first = model.explain(rows + 0.01, n_reasons=1).to_frame()["feature"].to_numpy()
    again = model.explain(rows + 0.011, n_reasons=1).to_frame()["feature"].to_numpy()
    assert (first == again).mean() > 0.9
