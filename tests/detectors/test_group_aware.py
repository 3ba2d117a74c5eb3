import numpy as np
import pytest
from sklearn.ensemble import IsolationForest

from evenout import FairOutlierEnsemble
from evenout.datasets import make_biased_outliers
from evenout.detectors.fairlof import FairLOF


@pytest.fixture(scope="module")
def data():
    return make_biased_outliers("variance", n=600, random_state=0)


def test_ensemble_with_a_group_aware_detector_scores_training_rows_again(data):
    detectors = [
        FairLOF(10),
        ("mild", FairLOF(20, lambda_=0.3)),
        FairLOF(5),
        IsolationForest(n_estimators=50),
    ]
    model = FairOutlierEnsemble(detectors, random_state=0, alpha=1.0)
    model.fit(data.X, sensitive_features=data.sensitive)
    assert model.detector_names_ == ("fairlof", "mild", "fairlof_2", "isolationforest")
    again = model.outlier_scores(data.X, sensitive_features=data.sensitive)
    np.testing.assert_allclose(again, model.outlier_scores_, rtol=1e-12)
    flags = model.predict(data.X, sensitive_features=data.sensitive)
    np.testing.assert_array_equal(flags, model.fit_predict(data.X, sensitive_features=data.sensitive))
    own = FairLOF(10).fit(data.X, sensitive_features=data.sensitive).outlier_scores_
    scaled = (own - own.min()) / np.ptp(own)
    parts = model.contributions(data.X, sensitive_features=data.sensitive)
    assert parts.shape == (600, 5)
    added = parts[:, 0] - scaled * model._result.mixture.weights[0]
    np.testing.assert_allclose(added, added[0], atol=1e-12)  # centred
    np.testing.assert_array_equal(parts[:, -1], model.target_)


def test_ensemble_with_a_group_aware_detector_asks_for_groups(data):
    model = FairOutlierEnsemble([FairLOF(), IsolationForest(n_estimators=25)], random_state=0, alpha=1.0)
    model.fit(data.X, sensitive_features=data.sensitive)
    for method in (
        "outlier_scores",
        "base_scores",
        "contributions",
        "score_samples",
        "decision_function",
        "predict",
    ):
        with pytest.raises(ValueError, match=r"sensitive_features is missing: these detectors .*: fairlof;"):
            getattr(model, method)(data.X)
    with pytest.raises(ValueError, match="not there in fit: 'x'"):
        model.predict(data.X[:2], sensitive_features=["x", "x"])


@pytest.mark.parametrize("weights", ["nonnegative", "simplex"])
def test_constrained_ensemble_has_weights_an_auditor_can_read(data, weights):
    model = FairOutlierEnsemble(correction=weights, random_state=0, alpha=100.0)
    model.fit(data.X, sensitive_features=data.sensitive)
    assert (model.weights_ >= 0).all()
    if weights == "simplex":  # as much in all as in the base score
        assert model.weights_.sum() == pytest.approx(model.path_.weights(0.0).sum(), rel=1e-9)
    np.testing.assert_array_equal(model.weights_, model.path_.weights(model.alpha_))
