"""The fitted model elsewhere on its path: the same as a fit with that request."""

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.exceptions import TargetNotReachedWarning
from evenout.persistence import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore::evenout.exceptions.TargetNotReachedWarning")
ASKED = [
    {"alpha": 30.0},
    {"bias_reduction": 0.4},
    {"flag_rate_ratio": 0.6},
    pytest.param({"bias_reduction": 0.3, "confidence": 0.9}, marks=pytest.mark.long),
    {},
]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], [200, 150, 100])
    return rng.normal(size=(450, 4)) * (1 + 0.5 * (groups == "c"))[:, None], groups


@pytest.fixture(scope="module")
def model(table):
    return FairOutlierEnsemble(alpha=1.0, random_state=0).fit(table[0], sensitive_features=table[1])


def assert_same(one, two):
    for name in ("alpha_", "weights_", "outlier_scores_", "offset_", "flag_rates_", "bias_reduction_interval_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    assert (one.request_met_, one.gap_detected_) == (two.request_met_, two.gap_detected_)
    assert one.get_params() == two.get_params()


@pytest.mark.parametrize("asked", ASKED)
def test_a_model_at_a_request_is_the_model_fitted_with_it(asked, model, table, tmp_path):
    before = dict(vars(model))
    moved = model.at(**asked)
    fitted = FairOutlierEnsemble(**asked, random_state=0).fit(table[0], sensitive_features=table[1])
    assert_same(moved, fitted)
    np.testing.assert_array_equal(moved.outlier_scores(table[0]), fitted.outlier_scores(table[0]))
    assert vars(model) == before
    save_model(model, tmp_path / "m.skops", updatable=True)
    assert_same(load_model(tmp_path / "m.skops").at(**asked), fitted)


def test_alpha_is_one_thing_everywhere(model):
    moved = model.at(bias_reduction=0.4)
    given = model.at(alpha=moved.alpha_)
    for name in ("weights_", "outlier_scores_", "offset_", "bias_reduction_"):
        np.testing.assert_array_equal(getattr(given, name), getattr(moved, name))


def test_detector_scores_are_what_the_score_is_made_of(model, table):
    S = model.detector_scores(table[0])
    assert S.shape == (450, len(model.detector_names_))
    np.testing.assert_allclose(S.min(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(S.max(axis=0), 1.0)
    np.testing.assert_allclose(model.path_.mixture(model.alpha_).apply(S, model.target_), model.outlier_scores_)


def test_contradictions_are_refused(model):
    with pytest.raises(ValueError, match="bias_reduction and alpha were given"):
        model.at(bias_reduction=0.5, alpha=1.0)
    with pytest.raises(ValueError, match="alpha=-1"):
        model.at(alpha=-1)


@pytest.mark.long
def test_rows_beyond_memory_are_taken_to_score_like_those_in_memory():
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    rng = np.random.default_rng(1)
    groups = rng.choice(["a", "b", "c"], 4000, p=[0.5, 0.45, 0.05])
    X = pd.DataFrame(rng.normal(size=(4000, 3)) * (1 + 0.5 * (groups == "c"))[:, None], columns=list("xyz"))
    frame = dd.from_pandas(X.assign(group=groups), npartitions=4)
    settings = {"detectors": "paper", "random_state": 0, "reference_size": 1500}
    model = FairOutlierEnsemble(alpha=0.0, **settings)
    model.fit(frame[["x", "y", "z"]], sensitive_features=frame["group"])
    fitted = FairOutlierEnsemble(alpha=500.0, **settings)
    fitted.fit(frame[["x", "y", "z"]], sensitive_features=frame["group"])
    moved = model.at(alpha=500.0)
    np.testing.assert_allclose(moved.weights_, fitted.weights_, rtol=1e-9)
    assert moved.offset_ == pytest.approx(fitted.offset_, rel=0.05)
    np.testing.assert_allclose(moved.flag_rates_, fitted.flag_rates_, atol=0.05)
    with pytest.warns(TargetNotReachedWarning, match=r"flag_rate_ratio=0\.95 cannot be promised on unseen rows"):
        model.at(flag_rate_ratio=0.95)
