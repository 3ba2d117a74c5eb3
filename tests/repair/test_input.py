"""Groups, scores and parameters: what is read and what is refused."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

from evenout import Groups
from evenout.exceptions import SmallGroupWarning
from evenout.metrics import flag_rate_ratio
from evenout.repair import ScoreRepair


def test_flags_become_even_and_detection_within_groups_stays(simulated):
    y, groups = simulated((900, 300))
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    assert flag_rate_ratio(y, sensitive_features=groups) < 0.5
    assert flag_rate_ratio(repaired, sensitive_features=groups) > 0.95
    labels = np.random.default_rng(0).random(len(y)) < y / y.max()
    for g in "ab":
        rows = groups == g
        assert roc_auc_score(labels[rows], repaired[rows]) == roc_auc_score(labels[rows], y[rows])


def test_frames_and_intersectional_groups_are_read(simulated):
    y, groups = simulated()
    series = pd.Series(y, index=np.arange(len(y)) + 10)
    table = pd.DataFrame({"group": groups, "old": np.arange(len(y)) % 2}, index=series.index)
    repair = ScoreRepair(groups=Groups(min_size=10)).fit(series, sensitive_features=table)
    assert repair.group_names_ == tuple(f"group={g}, old={o}" for g in "abcd" for o in (0, 1))
    assert repair.group_counts_.sum() == len(y)
    one = repair.transform([2.0], sensitive_features=pd.DataFrame({"group": ["c"], "old": [1]}))
    assert one == repair.transform([2.0], sensitive_features=["c & 1"])


def test_bad_groups_are_clear_errors(simulated):
    y, groups = simulated()
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        ScoreRepair().fit(y)
    repair = ScoreRepair().fit(y, sensitive_features=groups)
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        repair.transform(y)
    with pytest.raises(ValueError, match=r"not there in fit: 'x', 'y'; known are 'a', 'b', 'c', 'd'"):
        repair.transform([1.0, 2.0, 3.0], sensitive_features=["a", "y", "x"])
    with pytest.raises(ValueError, match=r"missing values in 2 of 3 rows \(first: row 1\)"):
        repair.transform([1.0, 2.0, 3.0], sensitive_features=["a", None, np.nan])
    with pytest.raises(ValueError, match="3 rows"):
        repair.transform([1.0, 2.0], sensitive_features=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"one group only \('a'\)"):
        ScoreRepair().fit(y, sensitive_features=["a"] * len(y))
    with pytest.raises(ValueError, match=r"fewer than 100 rows: 'c' \(90\), 'd' \(40\)"):
        ScoreRepair(groups=Groups(min_size=100, small="error")).fit(y, sensitive_features=groups)


def test_small_groups_keep_their_scores_and_are_named(simulated):
    y, groups = simulated((400, 150, 29, 12))
    with pytest.warns(SmallGroupWarning, match=r"fewer than 30 rows are left out: 'c' \(29\), 'd' \(12\)"):
        repair = ScoreRepair(strength=0.7).fit(y, sensitive_features=groups)
    assert repair.group_names_ == ("a", "b")
    assert repair.left_out_groups_ == {"c": 29, "d": 12}
    small = np.isin(groups, ["c", "d"])
    repaired = repair.transform(y, sensitive_features=groups)
    assert_array_equal(repaired[small], y[small])
    alone = ScoreRepair(strength=0.7).fit(y[~small], sensitive_features=groups[~small])
    assert_allclose(repaired[~small], alone.transform(y[~small], sensitive_features=groups[~small]), rtol=1e-12)
    assert_array_equal(repair.transform([2.0, 5.0], sensitive_features=["d", "c"]), [2.0, 5.0])
    with pytest.raises(ValueError, match="not there in fit: 'e'"):
        repair.transform([1.0], sensitive_features=["e"])


def test_small_groups_can_be_repaired_as_one(simulated):
    y, groups = simulated((400, 150, 25, 12))
    repair = ScoreRepair(groups=Groups(small="merge")).fit(y, sensitive_features=groups)
    assert repair.group_names_ == ("a", "b", "merged: c + d")
    together = np.where(np.isin(groups, ["c", "d"]), "x", groups)
    expected = ScoreRepair().fit_transform(y, sensitive_features=together)
    assert_allclose(repair.transform(y, sensitive_features=groups), expected, rtol=1e-12)


def test_with_one_group_that_can_be_measured_nothing_changes(simulated):
    y, groups = simulated((400, 20))
    for request_ in ({}, {"bias_reduction": 0.8}):
        with pytest.warns(SmallGroupWarning, match="fewer than two groups are left to compare"):
            repair = ScoreRepair(**request_).fit(y, sensitive_features=groups)
        assert not repair.gap_detected_
        assert repair.strength_ == 0
        assert np.isnan(repair.bias_reduction_)
        assert_array_equal(repair.transform(y, sensitive_features=groups), y)


def test_bad_scores_and_parameters_are_clear_errors(simulated):
    y, groups = simulated()
    with pytest.raises(ValueError, match=r"scores must have one number per row"):
        ScoreRepair().fit(y[:, None], sensitive_features=groups)
    with pytest.raises(ValueError, match="scores has missing or infinite values in"):
        ScoreRepair().fit(np.where(y > 3, np.nan, y), sensitive_features=groups)
    with pytest.raises(ValueError, match="at most one of them"):
        ScoreRepair(strength=0.5, bias_reduction=0.5).fit(y, sensitive_features=groups)
    for bad in (
        {"strength": 1.5},
        {"bias_reduction": -0.1},
        {"groups": Groups(min_size=1)},
        {"groups": Groups(small="keep")},
    ):
        with pytest.raises(ValueError, match=rf"{next(iter(bad))}=.*is not allowed"):
            ScoreRepair(**bad).fit(y, sensitive_features=groups)


def test_it_is_a_scikit_learn_estimator(simulated):
    y, groups = simulated()
    repair = ScoreRepair(strength=0.3, groups=Groups(min_size=20))
    with pytest.raises(Exception, match="not fitted"):
        repair.transform(y, sensitive_features=groups)
    fresh = clone(repair.fit(y, sensitive_features=groups))
    expected = {"strength": 0.3, "bias_reduction": None, "contamination": 0.1, "groups": fresh.groups}
    assert fresh.get_params(deep=False) == expected
    assert fresh.get_params()["groups__min_size"] == 20
    assert fresh.groups is not repair.groups
    assert not hasattr(fresh, "strength_")
    assert "strength=0.3" in repr(repair)


@pytest.mark.parametrize("contamination", [0.2, 50])
def test_rows_above_the_threshold_are_flagged_in_scikit_learns_way(simulated, contamination):
    scores, groups = simulated(4)
    repair = ScoreRepair(contamination=contamination).fit(scores, sensitive_features=groups)
    flagged = repair.predict(scores, sensitive_features=groups) == -1
    assert flagged.sum() == pytest.approx(50 if contamination == 50 else 0.2 * len(scores), abs=1)
    rates = [flagged[groups == group].mean() for group in "abcd"]
    assert max(rates) - min(rates) < 0.03  # full strength gives all groups one distribution
    with pytest.raises(NotFittedError):
        ScoreRepair().predict(scores, sensitive_features=groups)
    with pytest.raises(ValueError, match="contamination=1000 is more than half"):
        ScoreRepair(contamination=1000).fit(scores, sensitive_features=groups)
