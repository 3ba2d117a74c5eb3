"""What is read and what is refused, and scikit-learn's conventions."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.tree import DecisionTreeClassifier

from evenout import BlindRepair, Groups
from evenout.exceptions import InputError, SmallGroupWarning
from evenout.metrics import demographic_parity


@pytest.fixture(scope="module")
def rows(population):
    return population(900, 0)


def _fit(rows, **settings):
    repair = BlindRepair(classifier=LogisticRegression(), random_state=0, **settings)
    return repair.fit(rows.t, rows.X, sensitive_features=rows.groups)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"bias_reduction": 0.5, "flag_rate_ratio": 0.8},
            "and flag_rate_ratio were given; .* at most one",
        ),
        ({"flag_rate_ratio": 0.8, "confidence": 0.9}, "confidence goes with bias_reduction"),
        ({"bias_reduction": 1.5}, r"bias_reduction=1\.5 is not allowed"),
        ({"groups": Groups(min_size=4)}, r"Groups\(min_size=4\) is not allowed; use an integer of at least 5"),
        (
            {"classifier": Perceptron()},
            "classifier=Perceptron.* is not allowed; use None or a classifier",
        ),
        ({"contamination": 0.7}, r"contamination=0\.7 is not allowed"),
        ({"n_jobs": 0}, "n_jobs=0 is not allowed"),
        ({"random_state": "a"}, "random_state='a' is not allowed"),
    ],
)
def test_bad_parameters_are_one_line(rows, settings, words):
    with pytest.raises(ValueError, match=words) as error:
        BlindRepair(**settings).fit(rows.t, rows.X, sensitive_features=rows.groups)
    assert "\n" not in str(error.value).split("classifier=")[0]


def test_bad_rows_are_one_line(rows):
    repair = BlindRepair(classifier=LogisticRegression())
    with pytest.raises(ValueError, match="scores has 899 rows, but X has 900; give the score and"):
        repair.fit(rows.t[1:], rows.X, sensitive_features=rows.groups)
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        repair.fit(rows.t, rows.X)
    with pytest.raises(ValueError, match="one group only"):
        repair.fit(rows.t, rows.X, sensitive_features=np.zeros(900))
    with pytest.raises(ValueError, match=r"scores has missing or infinite values in 1 of 900 rows .first: row 3"):
        repair.fit(np.where(np.arange(900) == 3, np.nan, rows.t), rows.X, sensitive_features=rows.groups)
    with pytest.raises(NotFittedError):
        repair.transform(rows.t, rows.X)


def test_new_rows_need_the_same_columns(rows):
    frame = pd.DataFrame(rows.X, columns=["a", "b", "c"])
    repair = BlindRepair(classifier=LogisticRegression(), random_state=0)
    repair.fit(rows.t, frame, sensitive_features=pd.Series(rows.groups))
    assert repair.feature_names_in_.tolist() == ["a", "b", "c"]
    assert repair.n_features_in_ == 3
    with pytest.raises(ValueError, match="feature names"):
        repair.transform(rows.t, frame[["b", "a", "c"]])
    with pytest.raises(ValueError, match="2 features"):
        _fit(rows).transform(rows.t, rows.X[:, :2])
    with pytest.raises(ValueError, match="scores has 5 rows, but X has 6"):
        repair.transform(rows.t[:5], frame[:6])


def test_a_failed_refit_leaves_the_model_as_it_was(rows):
    repair = _fit(rows)
    before = repair.transform(rows.t, rows.X)
    with pytest.raises(ValueError, match="one group only"):
        repair.fit(rows.t, rows.X, sensitive_features=np.zeros(900))
    np.testing.assert_array_equal(repair.transform(rows.t, rows.X), before)


def test_groups_are_named(rows):
    names = np.array(["x", "y", "z"])[rows.groups]
    repair = BlindRepair(classifier=LogisticRegression(), random_state=0).fit(rows.t, rows.X, sensitive_features=names)
    assert repair.group_names_ == ("x", "y", "z") == tuple(repair.lambda_) == tuple(repair.group_known_)
    assert repair.group_counts_.tolist() == np.bincount(rows.groups).tolist()
    assert repair.flag_rates_.shape == (3, 2)


def test_small_groups_are_left_out_but_scored(rows):
    groups = rows.groups.astype(object)
    groups[:20] = "few"
    repair = BlindRepair(classifier=LogisticRegression(), random_state=0)
    with pytest.warns(SmallGroupWarning, match=r"'few' \(20\)"):
        repair.fit(rows.t, rows.X, sensitive_features=groups)
    assert repair.left_out_groups_ == {"few": 20}
    assert "few" not in repair.lambda_
    assert np.isfinite(repair.scores_).all()


def test_with_one_group_left_nothing_is_changed(rows):
    with pytest.warns(SmallGroupWarning, match="fewer than two groups"):
        repair = _fit(rows, groups=Groups(min_size=400))
    np.testing.assert_array_equal(repair.transform(rows.t, rows.X), rows.t)
    assert repair.path_ is None
    assert not repair.request_met_
    assert np.isnan(repair.bias_reduction_)
    assert np.isnan(repair.flag_rate_ratio_)


def test_conventions_of_scikit_learn(rows):
    own = DecisionTreeClassifier(max_depth=3)
    repair = BlindRepair(classifier=own, contamination=50, random_state=1)
    copy = clone(repair)
    assert copy.get_params()["classifier__max_depth"] == 3
    assert copy.get_params(deep=False)["contamination"] == 50
    fitted = clone(copy).fit(rows.t, rows.X, sensitive_features=rows.groups)
    assert not hasattr(own, "tree_")  # a copy is fitted
    assert (fitted.scores_ > fitted.threshold_).sum() == 50
    again = clone(copy).fit(rows.t, rows.X, sensitive_features=rows.groups)
    assert again.lambda_ == fitted.lambda_
    with config_context(enable_metadata_routing=True):
        routed = BlindRepair().set_fit_request(sensitive_features=True).get_metadata_routing()
        beside = dict.fromkeys(("given", "labels", "label_propensity", "clusters", "sample_weight"))
        assert routed.fit.requests == {"sensitive_features": True, **beside}
        assert routed.transform.requests == {}


def test_rows_above_the_threshold_are_flagged_in_scikit_learns_way(population):
    sample, new = population(1500, 0), population(700, 1)
    repair = BlindRepair(random_state=0, contamination=0.2).fit(sample.t, sample.X, sensitive_features=sample.groups)
    repaired = repair.transform(new.t, new.X)
    np.testing.assert_array_equal(repair.predict(new.t, new.X), np.where(repaired > repair.threshold_, -1, 1))
    assert (repair.scores_ > repair.threshold_).mean() == pytest.approx(0.2)
    with pytest.raises(NotFittedError):
        BlindRepair().predict(new.t, new.X)


def test_rows_without_a_group_take_no_part_and_fresh_people_get_what_is_stated():
    def draw(n, seed):
        rng = np.random.default_rng(seed)
        group = rng.integers(2, size=n)
        X = rng.normal(size=(n, 2)) + np.outer(group, [1.0, 0.0])
        return X, X.sum(axis=1) + rng.normal(size=n), group.astype(object)

    X, t, group = draw(4000, 0)
    group[np.random.default_rng(1).random(4000) < 0.25] = None
    repair = BlindRepair(classifier=LogisticRegression(), random_state=0)
    with pytest.raises(
        InputError, match=r"missing values in \d+ of 4000 rows .* set groups=Groups\(unknown='ignore'\)"
    ):
        repair.fit(t, X, sensitive_features=group)
    repair.set_params(groups__unknown="ignore").fit(t, X, sensitive_features=group)
    assert repair.group_counts_.sum() == sum(value is not None for value in group)
    fresh, score, of = draw(100_000, 2)
    before, after = (
        demographic_parity(y, sensitive_features=of, scale_free=True, corrected=True)
        for y in (score, repair.transform(score, fresh))
    )
    low, high = repair.bias_reduction_interval_
    assert low <= 1.0 - after / before <= high
