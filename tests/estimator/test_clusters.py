"""Rows that belong together, and rows that count more than once."""

import numpy as np
import pytest

from evenout import FairOutlierEnsemble


def make_scores(n=600, seed=0):
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b"], n)
    return rng.gamma(2.0, size=(n, 4)) + 0.25 * (groups == "b")[:, None], groups


def fit(X, groups, *, clusters=None, sample_weight=None, **settings):
    model = FairOutlierEnsemble("precomputed", random_state=0, **{"alpha": 30.0, **settings})
    return model.fit(X, sensitive_features=groups, clusters=clusters, sample_weight=sample_weight)


def test_rows_given_twice_tell_no_more_than_once():
    X, groups = make_scores()
    twice, both = np.repeat(X, 2, axis=0), np.repeat(groups, 2)
    once, known = fit(X, groups), fit(twice, both, clusters=np.repeat(np.arange(600), 2))
    naive = fit(twice, both)
    assert known.path_.gap_p_value == pytest.approx(once.path_.gap_p_value, rel=1e-6)
    assert naive.path_.gap_p_value < 0.1 * once.path_.gap_p_value
    # Folds differ by chance, so errors are compared in size.
    error = [model.path_.target_standard_error() for model in (once, known, naive)]
    assert error[1] == pytest.approx(error[0], rel=0.15)
    assert error[2] < 0.8 * error[0]


def test_a_cluster_is_never_cut_by_a_fold():
    X, groups = make_scores()
    same = np.repeat(X[:200], 3, axis=0) + np.linspace(0.0, 1e-3, 600)[:, None]
    clusters = np.repeat(np.arange(200), 3)
    groups = np.repeat(groups[:200], 3)
    path = fit(same, groups, clusters=[f"person {c}" for c in clusters]).path_
    held = path.cross.held.group_counts
    assert (held % 3 == 0).all()
    assert held.sum() == 600


def test_a_weight_of_two_counts_for_two_rows():
    X, groups = make_scores()
    weight = np.where(np.arange(600) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(600), weight.astype(int))
    weighted = fit(X, groups, sample_weight=weight, weighting="uniform", judged_on="training")
    repeated = fit(X[twice], groups[twice], weighting="uniform", judged_on="training")
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=1e-9)
    np.testing.assert_allclose(weighted.outlier_scores_[twice], repeated.outlier_scores_, rtol=1e-9)
    for alpha in (0.0, 30.0):
        assert weighted.path_.bias(alpha, "training") == pytest.approx(float(repeated.path_.bias(alpha, "training")))


def test_rows_of_no_weight_change_nothing_but_the_scaling():
    X, groups = make_scores()
    X[:2] = X.min(axis=0), X.max(axis=0)  # the scaling is that of all rows
    weight = np.ones(600)
    weight[500:] = 0.0
    weighted = fit(X, groups, sample_weight=weight, weighting="uniform", judged_on="training")
    without = fit(X[:500], groups[:500], weighting="uniform", judged_on="training")
    np.testing.assert_allclose(weighted.weights_, without.weights_, rtol=1e-2)
    assert weighted.path_.gap_p_value == pytest.approx(without.path_.gap_p_value, rel=1e-6)


def test_unequal_weights_leave_more_doubt():
    X, groups = make_scores()
    uneven = np.random.default_rng(1).choice([0.2, 5.0], 600)
    error = [fit(X, groups, sample_weight=w).path_.target_standard_error() for w in (None, uneven)]
    assert error[1] > 1.1 * error[0]


@pytest.mark.filterwarnings("ignore::evenout.exceptions.ManyColumnsWarning")
def test_fewer_clusters_than_folds_are_enough_but_one_is_not():
    X, groups = make_scores()
    assert np.isfinite(fit(X, groups, clusters=np.arange(600) % 3).outlier_scores_).all()
    with pytest.raises(ValueError, match="group 'a' has 1 clusters of positive weight; at least 2 are needed"):
        fit(X, groups, clusters=np.zeros(600))
