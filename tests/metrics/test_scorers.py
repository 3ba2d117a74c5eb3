"""Scorers for scikit-learn's searches: the right candidate is picked, whatever the sign of ``decision_function``."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from evenout import FairOutlierEnsemble
from evenout.exceptions import InputError
from evenout.metrics import average_precision_scorer, flag_rate_ratio_scorer, roc_auc_scorer

CV = StratifiedKFold(3, shuffle=True, random_state=0)


def first(X):
    return X[:, :1]


def last(X):
    return X[:, -1:]


@pytest.fixture(scope="module")
def rows():
    """Outliers are far out in the first feature; the last one is noise that is wider in group b."""
    rng = np.random.default_rng(0)
    y, groups = (rng.random(900) < 0.1).astype(int), np.where(rng.random(900) < 0.5, "a", "b")
    X = rng.normal(size=(900, 2))
    X[:, 0] += 4.0 * y
    X[:, 1] *= np.where(groups == "b", 2.5, 1.0)
    return X, y, groups


def search(scoring, **settings):
    pipe = make_pipeline(FunctionTransformer(), IsolationForest(n_estimators=20, random_state=0))
    grid = {"functiontransformer__func": [last, first]}
    return GridSearchCV(pipe, grid, scoring=scoring, cv=CV, error_score="raise", **settings)


@pytest.mark.parametrize("scorer", [roc_auc_scorer, average_precision_scorer])
def test_the_search_picks_what_finds_outliers(rows, scorer):
    X, y, _ = rows
    assert search(scorer).fit(X, y).best_params_ == {"functiontransformer__func": first}
    assert search("roc_auc").fit(X, y).best_params_ == {"functiontransformer__func": last}  # why there are scorers


def test_the_search_picks_what_flags_evenly(rows):
    X, y, groups = rows
    with sklearn.config_context(enable_metadata_routing=True):
        found = search(flag_rate_ratio_scorer).fit(X, y, sensitive_features=groups)
        alone = search(flag_rate_ratio_scorer).fit(X, y, sensitive_features=np.where(y, "a", groups)[:, None])
    assert found.best_params_ == {"functiontransformer__func": first}
    assert alone.cv_results_["mean_test_score"][1] < found.cv_results_["mean_test_score"][1]


def test_an_ensemble_is_searched_by_several_scorers_at_once(rows):
    X, y, groups = rows
    scoring = {"auc": roc_auc_scorer, "even": flag_rate_ratio_scorer}
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(
            StandardScaler(), FairOutlierEnsemble(random_state=0).set_fit_request(sensitive_features=True)
        )
        grid = {"fairoutlierensemble__alpha": [0.0, 1000.0]}
        found = GridSearchCV(model, grid, scoring=scoring, cv=CV, refit="even", error_score="raise")
        found.fit(X, y, sensitive_features=groups)
    assert found.best_params_ == {"fairoutlierensemble__alpha": 1000.0}
    assert (found.cv_results_["mean_test_auc"] > 0.7).all()


def test_groups_of_the_fit_need_no_routing_for_the_other_scorers(rows):
    X, y, groups = rows
    found = GridSearchCV(
        FairOutlierEnsemble(random_state=0), {"alpha": [0.0]}, scoring=roc_auc_scorer, cv=CV, error_score="raise"
    ).fit(X, y, sensitive_features=groups)
    assert found.best_score_ > 0.7


def test_values_are_those_of_scikit_learn_on_turned_scores(rows):
    X, y, groups = rows
    model = IsolationForest(random_state=0).fit(X)
    assert roc_auc_scorer(model, X, y) == pytest.approx(roc_auc_score(y, -model.decision_function(X)))
    assert average_precision_scorer(model, X, y) == average_precision_score(y, -model.decision_function(X))
    flagged = model.predict(X) == -1
    rates = [flagged[groups == group].mean() for group in "ab"]
    assert flag_rate_ratio_scorer(model, X, sensitive_features=groups) == pytest.approx(min(rates) / max(rates))


def test_what_cannot_be_scored_is_said_or_nan(rows):
    X, y, groups = rows
    model = IsolationForest(random_state=0).fit(X)
    with pytest.raises(InputError, match="flag_rate_ratio_scorer needs sensitive_features: call"):
        flag_rate_ratio_scorer(model, X, y)
    with pytest.raises(InputError, match="roc_auc_scorer needs y, 1 for an outlier"):
        roc_auc_scorer(model, X)
    with pytest.raises(InputError, match="y is 0 in every row"):
        roc_auc_scorer(model, X, np.zeros(len(X)))
    few = np.where(np.arange(len(X)) < 29, "few", "many")
    assert np.isnan(flag_rate_ratio_scorer(model, X, sensitive_features=few))
    assert np.isnan(flag_rate_ratio_scorer(model, np.zeros_like(X), sensitive_features=groups))  # nobody is flagged
    scores = cross_validate(model, X, y, scoring={"auc": pickle.loads(pickle.dumps(roc_auc_scorer))}, cv=CV)
    assert scores["test_auc"].min() > 0.7
