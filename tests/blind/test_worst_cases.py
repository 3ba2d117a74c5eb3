"""X that tells the group for sure, or not at all, and classifiers that remember: clear words, and no harm."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from evenout import BlindRepair
from evenout.exceptions import EvenoutWarning, NoGapWarning, ProxyWarning, TargetNotReachedWarning
from evenout.metrics import demographic_parity, flag_rate_ratio

REQUESTS = [{"bias_reduction": 0.8}, {"flag_rate_ratio": 0.8}]
FEW_TREES = HistGradientBoostingClassifier(max_iter=10, learning_rate=0.3, max_leaf_nodes=8)


def _gap(y, groups):
    return demographic_parity(y, sensitive_features=groups, scale_free=True, corrected=True)


def _shifted(n, seed, shift=0.5):
    rng = np.random.default_rng(seed)
    groups = rng.integers(2, size=n)
    return rng.normal(size=n) + shift * groups, rng.normal(size=(n, 4)), groups


@pytest.mark.parametrize("request_", REQUESTS)
def test_features_that_tell_the_group_are_named_as_such(request_):
    t, X, groups = _shifted(2000, 0)
    told = np.column_stack([X, groups])
    with pytest.warns(ProxyWarning, match="X tells groups nearly for sure .* to go by the group itself"):
        repair = BlindRepair(classifier=FEW_TREES, random_state=0, **request_).fit(t, told, sensitive_features=groups)
    assert min(repair.group_known_.values()) > 0.9
    assert repair.request_met_
    new, X_new, groups_new = _shifted(2000, 1)
    y = repair.transform(new, np.column_stack([X_new, groups_new]))
    assert _gap(y, groups_new) < 0.3 * _gap(new, groups_new)
    assert (
        flag_rate_ratio(y, sensitive_features=groups_new) > flag_rate_ratio(new, sensitive_features=groups_new) + 0.15
    )
    for g in (0, 1):  # nobody but the group is moved
        rows = groups_new == g
        assert np.corrcoef(y[rows], new[rows])[0, 1] > 0.99


@pytest.mark.parametrize("request_", REQUESTS)
def test_features_that_say_nothing_leave_the_score_nearly_alone(request_):
    """The score itself tells the groups a little, but what goes by the score alone cannot even it out."""
    t, X, groups = _shifted(1200, 0)
    with pytest.warns(TargetNotReachedWarning, match="unseen rows: .* ScoreRepair where the group may be used"):
        repair = BlindRepair(classifier=FEW_TREES, random_state=0, **request_).fit(t, X, sensitive_features=groups)
    assert repair.gap_detected_
    assert not repair.request_met_
    new, X_new, groups_new = _shifted(1200, 1)
    y = repair.transform(new, X_new)
    assert np.corrcoef(y, new)[0, 1] > 0.9
    assert _gap(y, groups_new) < 1.05 * _gap(new, groups_new)


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_classifier_that_remembers_is_taken_back(request_):
    t, X, groups = _shifted(2000, 0)
    eager = DecisionTreeClassifier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenoutWarning)
        repair = BlindRepair(classifier=eager, random_state=0, **request_).fit(t, X, sensitive_features=groups)
    assert repair._result.model.parts[0].calibration.slope < 0.1
    assert max(repair.group_known_.values()) < 0.1
    new, X_new, groups_new = _shifted(2000, 1)
    y = repair.transform(new, X_new)
    assert _gap(y, groups_new) < 1.05 * _gap(new, groups_new)
    assert np.corrcoef(y, new)[0, 1] > 0.85


def test_a_classifier_that_knows_nothing_changes_nothing():
    rng = np.random.default_rng(0)
    t, _, groups = _shifted(1000, 0)
    blind = LogisticRegression(C=1e-12)
    with pytest.warns(TargetNotReachedWarning, match=r"these say next to nothing of the groups"):
        repair = BlindRepair(bias_reduction=0.8, classifier=blind, random_state=0).fit(
            t, rng.normal(size=(1000, 2)), sensitive_features=groups
        )
    y = repair.transform(t, rng.normal(size=(1000, 2)))
    assert np.corrcoef(y, t)[0, 1] > 0.9


@pytest.mark.parametrize("request_", REQUESTS)
def test_without_a_gap_the_score_is_returned_bit_for_bit(request_):
    t, X, groups = _shifted(1000, 4, shift=0.0)
    with pytest.warns(NoGapWarning, match="so the scores are the base scores, unchanged") as caught:
        repair = BlindRepair(classifier=FEW_TREES, random_state=0, **request_).fit(t, X, sensitive_features=groups)
    assert "alpha" not in str(caught[0].message)
    assert not repair.gap_detected_
    assert set(repair.lambda_.values()) == {0.0}
    np.testing.assert_array_equal(repair.transform(t, X), t)
    np.testing.assert_array_equal(repair.scores_, t)


def test_a_constant_score_is_left_alone():
    _, X, groups = _shifted(300, 0)
    with pytest.warns(NoGapWarning):
        repair = BlindRepair(flag_rate_ratio=0.8, random_state=0).fit(np.ones(300), X, sensitive_features=groups)
    np.testing.assert_array_equal(repair.transform(np.ones(300), X), np.ones(300))
    with pytest.warns(NoGapWarning):
        BlindRepair(random_state=0).fit(np.ones(300), X, sensitive_features=groups)
