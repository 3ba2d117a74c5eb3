"""scikit-learn's own checks, with what they do not know of supplied by thin subclasses; and its metadata routing."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from evenout import FairLOF, FairOutlierEnsemble, Groups, ScoreRepair
from evenout.tables.encoder import TableEncoder

# The checks' data are small, random and without groups: these warnings are the right answer to them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:n_neighbors:UserWarning"),
    pytest.mark.filterwarnings("ignore::evenout.exceptions.NoGapWarning"),
    pytest.mark.filterwarnings("ignore::evenout.exceptions.TargetNotReachedWarning"),
    pytest.mark.filterwarnings("ignore::evenout.exceptions.ConstantScoreWarning"),
    pytest.mark.filterwarnings("ignore::evenout.exceptions.SmallGroupWarning"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*text that the training table did not have:UserWarning"),
]
SEEN_ONCE = "detectors see each row once, whatever its weight: a weight counts in misfit, bias and errors alone"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": SEEN_ONCE,
    "check_sample_weight_equivalence_on_sparse_data": SEEN_ONCE,  # asked by scikit-learn 1.6 of dense models too
}


class WithGroups(FairOutlierEnsemble):
    """Alternates two groups down the rows, since the checks know nothing of groups."""

    def fit(self, X, y=None, *, sensitive_features=None, sample_weight=None):
        if sensitive_features is None:
            sensitive_features = np.arange(n_rows(X)) % 2 if n_rows(X) else None
        return super().fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)


class OfOneGroup(FairLOF):
    """All rows are of one group, new ones too."""

    def fit(self, X, y=None, *, sensitive_features=None):  # noqa: ARG002
        return super().fit(X, y, sensitive_features=np.ones(n_rows(X)))

    def outlier_scores(self, X, *, sensitive_features=None):  # noqa: ARG002
        return super().outlier_scores(X, sensitive_features=np.ones(n_rows(X)))


class OfFirstColumn(ScoreRepair):
    """The score is the first column of the rows, and its digits tell the group."""

    def fit(self, X, y=None):  # noqa: ARG002
        scores = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)[:, 0]
        return super().fit(scores, sensitive_features=np.sin(97 * scores) > 0)

    def transform(self, X):
        check_is_fitted(self)
        scores = validate_data(self, X, dtype=np.float64, reset=False)[:, 0]
        return super().transform(scores, sensitive_features=np.sin(97 * scores) > 0)[:, None]

    def predict(self, X):
        scores = self.transform(X)[:, 0]
        return np.where(scores > self.threshold_, -1, 1)

    def fit_transform(self, X, y=None):  # noqa: ARG002
        return self.fit(X).transform(X)


class OfArrays(TableEncoder):
    """Arrays are tables whose columns are called x0, x1, ..."""

    def fit(self, X, y=None):
        return super().fit(self._table(X, reset=True), y)

    def transform(self, X):
        check_is_fitted(self)
        return super().transform(self._table(X, reset=False))

    def _table(self, X, *, reset):
        rows = validate_data(self, X, dtype=None, ensure_all_finite="allow-nan", reset=reset)
        names = X.columns if hasattr(X, "columns") else [f"x{j}" for j in range(rows.shape[1])]
        return pd.DataFrame(rows, columns=names).infer_objects()


def n_rows(X):
    shape = X.shape if hasattr(X, "shape") else np.shape(np.asarray(X))
    return shape[0] if shape else 0


ESTIMATORS = [
    WithGroups(random_state=0, groups=Groups(min_size=2), alpha=1.0),
    OfOneGroup(),
    OfFirstColumn(groups=Groups(min_size=2)),
    OfArrays(),
]


@pytest.mark.filterwarnings("ignore::evenout.exceptions.ManyColumnsWarning")
@parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=lambda model: EXPECTED if isinstance(model, WithGroups) else {}
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_small_tables_give_the_base_score():
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = WithGroups(random_state=0).fit(X)
    np.testing.assert_array_equal(model.outlier_scores(X), model.base_scores(X))


@pytest.fixture
def labelled():
    """Two groups, and true outliers among both."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), np.arange(400) % 10 == 0
    X[y] *= 3
    return X, y.astype(int), rng.choice(["a", "b"], size=400)


@pytest.fixture
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routed")
def test_groups_reach_a_detector_that_needs_them_for_new_rows(labelled):
    X, _, groups = labelled
    step = FairLOF().set_fit_request(sensitive_features=True).set_predict_request(sensitive_features=True)
    step.set_decision_function_request(sensitive_features=True)
    pipe = make_pipeline(StandardScaler(), step).fit(X, sensitive_features=groups)
    scaled = StandardScaler().fit_transform(X)
    alone = FairLOF().fit(scaled, sensitive_features=groups)
    np.testing.assert_array_equal(pipe[-1].outlier_scores_, alone.outlier_scores_)
    np.testing.assert_array_equal(
        pipe.predict(X, sensitive_features=groups), alone.predict(scaled, sensitive_features=groups)
    )
    decision = pipe.decision_function(X, sensitive_features=groups)
    np.testing.assert_array_equal(decision, -alone.outlier_scores_ - alone.offset_)


def auc(model, X, y):
    return roc_auc_score(y, -model.score_samples(X))


@pytest.mark.usefixtures("routed")
def test_groups_clusters_and_weights_are_cut_with_the_folds_of_a_search(labelled):
    X, y, groups = labelled
    more = {
        "sensitive_features": groups,
        "clusters": np.arange(400) // 2,
        "sample_weight": np.linspace(0.5, 1.5, 400),
    }
    model = FairOutlierEnsemble("precomputed", alpha=9.0, random_state=0)
    model.set_fit_request(**dict.fromkeys(more, True))
    found = cross_val_score(model, np.abs(X), y, scoring=auc, cv=2, params=more)
    search = GridSearchCV(model, {"alpha": [9.0, 1e6]}, scoring=auc, cv=2).fit(np.abs(X), y, **more)
    assert search.cv_results_["mean_test_score"][0] == found.mean()
    whole = clone(model).set_params(**search.best_params_).fit(np.abs(X), **more)
    np.testing.assert_array_equal(search.best_estimator_.outlier_scores_, whole.outlier_scores_)


def test_a_repair_is_a_step_that_passes_scores_on(labelled):
    X, _, groups = labelled
    scores = X[:, 0] + (groups == "a")
    pipe = make_pipeline(ScoreRepair())
    found = pipe.fit_transform(scores, scorerepair__sensitive_features=groups)
    np.testing.assert_array_equal(found, ScoreRepair().fit_transform(scores, sensitive_features=groups))
