"""The named pools: what they are made of, in families, and that one kind of column does not outvote another."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from evenout import FairOutlierEnsemble
from evenout.detectors.neighbours import Nearness
from evenout.detectors.pool import cross_fit_pool, fit_pool, standard_units
from evenout.detectors.tails import Tails
from evenout.fitting.score_model import learn_scores


def rows(n=300, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).round(2)


def test_default_pool_is_forest_distances_local_factors_and_tails():
    X = rows()
    pool, raw = fit_pool("default", X, seed=4, feature_names=["age", "income", "a:b_c"])
    names = ["iforest_200", "knn_5", "knn_10", "knn_20", "knn_30", "lof_10", "lof_20", "lof_30"]
    assert pool.names == (*names, "tail:age", "tail:income", "tail:a:b_c")
    assert pool.families == ("iforest", *["knn"] * 4, *["lof"] * 3, *["tail"] * 3)
    forest = IsolationForest(n_estimators=200, random_state=4).fit(X)
    assert_array_equal(raw[:, 0], -forest.score_samples(X))
    assert_array_equal(raw[:, 1:5], Nearness.fit(X, knn=[5, 10, 20, 30])[1])
    assert_array_equal(raw[:, 5:8], Nearness.fit(X, lof=[10, 20, 30], decorrelate=True)[1])
    assert_array_equal(raw[:, 8:], Tails.fit(X)[1])


@pytest.mark.parametrize("pool", ["paper", "diverse", "default"])
def test_training_rows_score_as_in_training_also_in_other_units(pool):
    X = rows() * [1.0, 1e3, 1e-3]
    fitted, raw = fit_pool(pool, X, seed=0, units=standard_units(pool, X))
    assert_array_equal(fitted.score(X), raw)
    assert_array_equal(fitted.score(X[:5]), raw[:5])


def test_scores_without_a_fold_are_those_of_a_refit():
    X, folds = rows(), np.arange(300) % 5
    units = standard_units("default", X)  # learnt once, on all rows
    _, raw, without = cross_fit_pool("default", X, folds, seed=0, units=units)
    assert_array_equal(raw, fit_pool("default", X, seed=0, units=units)[1])
    kept = folds != 2
    again, training = fit_pool("default", X[kept], seed=0, units=units)
    found = without(2)
    exact = [j for j, name in enumerate(again.names) if not name.startswith(("iforest", "lof"))]
    assert_array_equal(found[kept][:, exact], training[:, exact])
    assert_array_equal(found[~kept][:, exact], again.score(X[~kept])[:, exact])
    assert_allclose(found[kept][:, 5:8], training[:, 5:8], atol=0.2)  # coordinates are learnt once from 100 d rows on


def test_only_pools_beyond_the_papers_average_by_family():
    X = rows()
    assert fit_pool("paper", X, seed=0)[0].families == ()
    assert fit_pool(["paper", _norm], X, seed=0)[0].families == ()
    diverse = fit_pool("diverse", X, seed=0)[0].families
    assert diverse == (*["lof"] * 6, *["knn"] * 5, *["iforest"] * 7, *["tail"] * 3)
    assert fit_pool(["default", _norm], X, seed=0)[0].families[-1] == "_norm"


@pytest.mark.parametrize("name", ["paper", "diverse", "default"])
def test_base_weights_are_those_of_the_average(name):
    """The target is linear in the scaled columns: t = S w + constant, with these weights."""
    pool, raw = fit_pool(name, rows(), seed=0)
    everyone = np.ones(len(raw), dtype=bool)
    model, S, _ = learn_scores(pool, raw, everyone, scaling="minmax", combination="average", seed=0)
    weights = model.base_weights()
    offset = model.base(S) - S @ weights
    assert_allclose(offset, offset[0], atol=1e-12)
    families = np.array(pool.families or ["one"] * len(pool.names))
    sums = [weights[families == family].sum() for family in dict.fromkeys(families)]
    assert_allclose(sums, sums[0])  # every family weighs the same
    if name == "paper":
        assert_allclose(weights, weights[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_more_columns_of_a_feature_do_not_drown_the_other_families():
    """Forty columns of noise: in a plain average the tails of each would have 40 of 48 votes."""
    rng = np.random.default_rng(0)
    y = np.arange(600) < 30
    X = np.c_[rng.normal(size=(600, 4)) * np.where(y, 4.0, 1.0)[:, None], rng.normal(size=(600, 40))]
    group = rng.integers(2, size=600)
    by_family = FairOutlierEnsemble("default", random_state=0, alpha=0.0).fit(X, sensitive_features=group)
    flat = FairOutlierEnsemble("default", combination=lambda S: S.mean(axis=1), random_state=0, alpha=0.0).fit(
        X, sensitive_features=group
    )
    assert roc_auc_score(y, by_family.target_) > roc_auc_score(y, flat.target_) + 0.02


def _norm(X):
    return np.abs(X).sum(axis=1)
