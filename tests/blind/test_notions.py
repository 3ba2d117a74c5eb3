"""Soft groups, bands, strata and known outcomes: what is evened out is what was asked for, on rows that are new."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from evenout import BlindRepair, GroupProbabilities, Groups
from evenout.persistence import load_model, save_model

LOGISTIC = LogisticRegression(tol=0.01, max_iter=1000)


def draw(n, seed):
    """A score that rises with age, with group and with a stratum; features tell all of them by half."""
    rng = np.random.default_rng(seed)
    age, group, stratum = rng.uniform(20, 80, size=n), rng.integers(2, size=n), rng.integers(2, size=n)
    X = np.column_stack([age / 15, 1.5 * group, 1.5 * stratum]) + rng.normal(size=(n, 3))
    t = X.sum(axis=1) + rng.normal(size=n)
    label = (rng.random(n) < 1 / (1 + np.exp(7 - t))).astype(float)
    return X, t, pd.DataFrame({"age": age, "group": group}), stratum, label


@pytest.fixture(scope="module")
def rows():
    return draw(5000, 0)


@pytest.fixture(scope="module")
def unseen():
    return draw(30_000, 1)


def _spread(y, groups, within=None, of=None):
    """Variance of group means, in units of all rows, mean over strata; ``of`` marks the rows that are compared."""
    of = np.ones(len(y), dtype=bool) if of is None else of
    within = np.zeros(len(y), dtype=int) if within is None else within
    found = []
    for stratum in np.unique(within):
        means = [y[of & (within == stratum) & (groups == g)].mean() for g in np.unique(groups)]
        found.append(np.var(means))
    return np.mean(found) / np.var(y)


def _gone(repair, unseen, groups, **kind):
    X, t = unseen[:2]
    return 1.0 - _spread(repair.transform(t, X), groups, **kind) / _spread(t, groups, **kind)


def test_bands_of_a_number(rows, unseen):
    X, t, people, *_ = rows
    repair = BlindRepair(bias_reduction=0.7, groups=Groups(continuous=("age",)), classifier=LOGISTIC, random_state=0)
    repair.fit(t, X, sensitive_features=people[["age"]])
    assert repair.request_met_
    assert len(repair.lambda_) == 5
    bands = np.digitize(unseen[2]["age"], np.quantile(people["age"], [0.2, 0.4, 0.6, 0.8]))
    assert _gone(repair, unseen, bands) == pytest.approx(0.7, abs=0.12)


def test_attributes_one_by_one(rows, unseen):
    X, t, people, *_ = rows
    repair = BlindRepair(
        bias_reduction=0.8, groups=Groups(continuous=("age",), cross=False), classifier=LOGISTIC, random_state=0
    ).fit(t, X, sensitive_features=people)
    assert repair.request_met_
    assert len(repair.lambda_) == 5 + 2
    assert _gone(repair, unseen, unseen[2]["group"].to_numpy()) > 0.5


def test_strata(rows, unseen):
    """Only what differs within strata counts."""
    X, t, people, stratum, _ = rows
    repair = BlindRepair(bias_reduction=0.8, classifier=LOGISTIC, random_state=0)
    repair.fit(t, X, sensitive_features=people["group"], given=stratum)
    assert repair.request_met_
    assert all(" in " in name for name in repair.lambda_)
    assert _gone(repair, unseen, unseen[2]["group"].to_numpy(), within=unseen[3]) == pytest.approx(0.8, abs=0.1)


@pytest.mark.filterwarnings(
    "ignore::evenout.exceptions.TargetNotReachedWarning"
)  # a few hundred outliers promise little
def test_known_outliers(rows, unseen):
    X, t, people, _, label = rows
    repair = BlindRepair(bias_reduction=0.6, fairness="equal_opportunity", classifier=LOGISTIC, random_state=0)
    with pytest.raises(ValueError, match="labels is missing"):
        repair.fit(t, X, sensitive_features=people["group"])
    repair.fit(t, X, sensitive_features=people["group"], labels=label)
    assert [*repair.lambda_] == ["group=0 among known outliers", "group=1 among known outliers"]
    of = unseen[4] == 1
    assert _gone(repair, unseen, unseen[2]["group"].to_numpy(), of=of) == pytest.approx(0.6, abs=0.2)


def test_probable_groups(rows, unseen):
    X, t, people, *_ = rows
    p = np.where(people["group"] == 1, 0.8, 0.2)
    probable = GroupProbabilities(pd.DataFrame({"a": 1 - p, "b": p}), sufficient=True)
    repair = BlindRepair(bias_reduction=0.8, classifier=LOGISTIC, random_state=0)
    repair.fit(t, X, sensitive_features=probable)
    assert repair.request_met_
    assert sum(repair.lambda_.values()) == pytest.approx(0.0, abs=1e-9)
    assert _gone(repair, unseen, unseen[2]["group"].to_numpy()) == pytest.approx(0.8, abs=0.15)


def test_flag_rates_are_those_of_crossed_groups(rows):
    X, t, people, *_ = rows
    repair = BlindRepair(
        flag_rate_ratio=0.5, groups=Groups(continuous=("age",), bands=2), classifier=LOGISTIC, random_state=0
    )
    repair.fit(t, X, sensitive_features=people[["age"]])
    assert repair.flag_rates_.shape == (2, 2)
    assert tuple(repair.lambda_) == repair.group_names_
    assert repair.flag_rate_ratio_ > repair.flag_rates_[:, 0].min() / repair.flag_rates_[:, 0].max()


@pytest.mark.parametrize(
    "settings", [{"groups": Groups(continuous=("age",), bands=2)}, {"flag_rate_ratio": 0.5}, {"classifier": None}]
)
def test_a_saved_repair_is_the_same(rows, tmp_path, settings):
    X, t, people, *_ = (part[:800] for part in rows)
    sensitive = people[["age"]] if "groups" in settings else people["group"]
    repair = BlindRepair(**{"bias_reduction": None, "classifier": LOGISTIC, "random_state": 0, **settings})
    repair.fit(t, pd.DataFrame(X, columns=["a", "b", "c"]), sensitive_features=sensitive)
    save_model(repair, tmp_path / "repair.skops")
    again = load_model(tmp_path / "repair.skops")
    frame = pd.DataFrame(X[:50] + 0.1, columns=["a", "b", "c"])
    np.testing.assert_array_equal(again.transform(t[:50], frame), repair.transform(t[:50], frame))
    for name in (
        "lambda_",
        "flag_price_",
        "group_names_",
        "group_known_",
        "threshold_",
        "request_met_",
        "left_out_groups_",
    ):
        assert getattr(again, name) == getattr(repair, name), name
    np.testing.assert_array_equal(again.flag_rates_, repair.flag_rates_)
    np.testing.assert_array_equal(again.scores_, repair.scores_)
    np.testing.assert_equal(again.bias_reduction_, repair.bias_reduction_)
