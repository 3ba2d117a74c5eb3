"""Features that tell the group are named; others, and chance, are not."""

import warnings

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, TableEncoder
from evenout.datasets import list_datasets, load_dataset
from evenout.exceptions import GroupGivenAwayWarning
from evenout.groups.giveaways import find_giveaways, read_attributes, told_share


def test_told_share_by_hand():
    bins = np.repeat([0, 1, 2], [100, 60, 40])
    group = np.concatenate([np.repeat([0, 1], [95, 5]), np.repeat([0, 1], [6, 54]), np.zeros(40, dtype=int)])
    # prior odds 141 : 59; bin 0 has 19 : 1, less than 19 times those; bin 1 has 9 : 1; bin 2 is sure
    assert told_share(bins, group) == pytest.approx(0.2)
    assert told_share(bins, np.where(bins == 2, -1, group)) == 0.0
    assert told_share(bins, np.zeros(200, dtype=int)) == 0.0
    assert told_share(np.arange(200), group) == 0.0  # values of one row each


def test_height_tells_the_sex_of_some_and_that_is_not_enough():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 5000)
    shifts = [1.0, 1.5, 2.5]
    X = np.column_stack([rng.normal(size=5000) + shift * codes for shift in shifts])
    found = find_giveaways(X, {"sex": codes})
    assert [(each.feature, each.attribute) for each in found] == [(2, "sex")]


def test_chance_tells_nothing():
    rng = np.random.default_rng(1)
    for n, shares in ((60, [0.5, 0.5]), (400, [0.9, 0.1]), (2000, [0.5, 0.3, 0.2])):
        codes = rng.choice(len(shares), n, p=shares)
        X = np.column_stack([rng.normal(size=(n, 20)), rng.integers(0, 8, (n, 20))])
        assert find_giveaways(X, {"group": codes}) == []


def test_each_protected_column_is_looked_at_alone():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], 900), "age": rng.choice(["a", "b", "c"], 900)})
    codes = pd.factorize(frame["sex"] + frame["age"])[0]
    husband = ((frame["sex"] == "m") & (rng.random(900) < 0.8)).to_numpy(dtype=float)
    attributes = read_attributes(frame, codes)
    assert [*attributes] == ["the group", "sex", "age"]
    (found,) = find_giveaways(husband[:, None], attributes)
    assert found.attribute == "sex"
    assert [*read_attributes(frame["sex"], codes)] == ["sex"]
    assert [*read_attributes(frame["sex"].tolist(), codes)] == ["the group"]


def test_fit_names_the_feature_and_points_at_the_caller(data_with_husbands):
    X, sex = data_with_husbands
    model = FairOutlierEnsemble(alpha=1.0, random_state=0)
    with pytest.warns(GroupGivenAwayWarning, match="'husband' tells sex in 4.% of the rows. What is scored") as said:
        model.fit(X, sensitive_features=sex)
    assert said[0].filename == __file__
    with pytest.warns(GroupGivenAwayWarning, match="'feature 2' tells the group"):
        model.fit(X.to_numpy(), sensitive_features=sex.tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X[["a", "b"]], sensitive_features=sex)
        FairOutlierEnsemble("precomputed", alpha=1.0).fit(X, sensitive_features=sex)


@pytest.fixture
def data_with_husbands():
    rng = np.random.default_rng(3)
    sex = pd.Series(rng.choice(["f", "m"], 400), name="sex")
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    return X.assign(husband=((sex == "m") & (rng.random(400) < 0.9)).astype(int)), sex


LARGE = ("credit", "mammography")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LARGE)) for name in list_datasets()]
)
def test_bundled_tables_are_silent_and_taken_as_they_are(name):
    data = load_dataset(name)
    codes = pd.factorize(pd.DataFrame(data.sensitive).astype(str).agg(" ".join, axis=1))[0]
    assert find_giveaways(data.X.to_numpy(dtype=float), read_attributes(data.sensitive, codes)) == []
    assert TableEncoder().fit(data.X).notes_ == {}


def test_a_warning_that_is_an_error_leaves_the_model_as_it_was():
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], 100)
    X = rng.normal(size=(200, 3))
    model = FairOutlierEnsemble(alpha=0.0, random_state=0).fit(X, sensitive_features=groups)
    before = dict(vars(model))
    X[:, 2] = groups == "a"
    with pytest.raises(GroupGivenAwayWarning, match="'feature 2' tells the group"):
        model.fit(X, sensitive_features=groups)
    assert vars(model) == before
