"""A fitted ensemble among its neighbours: joblib, skops and fairlearn."""

import fairlearn.metrics
import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline

from evenout import BlindRepair, FairOutlierEnsemble, Groups, ScoreRepair, TableEncoder


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(0), 300
    groups = pd.Series(rng.choice(["a", "b", "c"], n), name="group")
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["u", "v", "w"]).add((groups == "b").astype(float), axis=0)
    return X, groups


@pytest.fixture(scope="module")
def fitted(rows):
    X, groups = rows
    pipeline = make_pipeline(TableEncoder(), FairOutlierEnsemble(alpha=1.0, random_state=0))
    return pipeline.fit(X, fairoutlierensemble__sensitive_features=groups)


def test_joblib_keeps_a_pipeline(fitted, rows, tmp_path):
    X, _ = rows
    joblib.dump(fitted, tmp_path / "model.joblib", compress=3)
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(loaded.score_samples(X), fitted.score_samples(X))
    assert loaded[-1].outcome_.words == fitted[-1].outcome_.words
    moved = [pipeline[-1].at(alpha=5.0).outlier_scores_ for pipeline in (loaded, fitted)]
    np.testing.assert_array_equal(*moved)


def test_joblib_scores_in_other_processes(fitted, rows):
    X, _ = rows
    parts = joblib.Parallel(n_jobs=2)(joblib.delayed(fitted.score_samples)(X[i::2]) for i in range(2))
    for i, part in enumerate(parts):
        np.testing.assert_array_equal(part, fitted.score_samples(X)[i::2])


@pytest.mark.parametrize("detectors", ["default", [IsolationForest(n_estimators=10, random_state=0)]])
def test_skops_keeps_an_ensemble_whose_types_are_trusted(detectors, rows):
    X, groups = rows
    model = FairOutlierEnsemble(detectors, alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    kept = skops.io.dumps(model)
    untrusted = skops.io.get_untrusted_types(data=kept)
    assert "evenout.estimator.FairOutlierEnsemble" in untrusted
    loaded = skops.io.loads(kept, trusted=untrusted)
    np.testing.assert_array_equal(loaded.outlier_scores(X), model.outlier_scores(X))


def test_fairlearn_counts_the_same_flags(fitted, rows):
    X, groups = rows
    flagged = fitted.predict(X) == -1
    frame = fairlearn.metrics.MetricFrame(
        metrics=fairlearn.metrics.selection_rate, y_true=flagged, y_pred=flagged, sensitive_features=groups
    )
    ensemble = fitted[-1]
    np.testing.assert_allclose(frame.by_group.to_numpy(dtype=float), ensemble.flag_rates_[:, 1])
    assert tuple(frame.by_group.index) == ensemble.group_names_
    ratio = fairlearn.metrics.demographic_parity_ratio(flagged, flagged, sensitive_features=groups)
    assert ratio == pytest.approx(ensemble.flag_rates_[:, 1].min() / ensemble.flag_rates_[:, 1].max())


@pytest.mark.parametrize("repair", [ScoreRepair(), BlindRepair(random_state=0)])
@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_joblib_keeps_a_repair(repair, rows, tmp_path):
    X, groups = rows
    score, beside = X.sum(axis=1), {"sensitive_features": groups}
    given = (score,) if isinstance(repair, ScoreRepair) else (score, X)
    repair.set_params(groups=Groups(min_size=20)).fit(*given, **beside)
    joblib.dump(repair, tmp_path / "repair.joblib")
    loaded, beside = joblib.load(tmp_path / "repair.joblib"), beside if len(given) == 1 else {}
    np.testing.assert_array_equal(loaded.predict(*given, **beside), repair.predict(*given, **beside))
