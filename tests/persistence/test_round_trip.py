"""What is saved comes back, to the last bit, and what cannot be saved is refused."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from evenout import FairOutlierEnsemble, Groups, Individual
from evenout.persistence import load_model, save_model
from evenout.tables.encoder import TableEncoder


def test_pipeline_comes_back_to_the_last_bit(pipeline, model_file, new_rows):
    loaded = load_model(model_file)
    assert [name for name, _ in loaded.steps] == ["table", "ensemble"]
    for method in ("score_samples", "decision_function", "predict"):
        np.testing.assert_array_equal(getattr(loaded, method)(new_rows), getattr(pipeline, method)(new_rows))
    rows = pipeline["table"].transform(new_rows)
    for method in ("outlier_scores", "base_scores", "contributions"):
        saved = getattr(pipeline["ensemble"], method)(rows)
        np.testing.assert_array_equal(getattr(loaded["ensemble"], method)(rows), saved)


def test_every_learnt_attribute_and_parameter_comes_back(pipeline, model_file):
    saved, loaded = pipeline["ensemble"], load_model(model_file)["ensemble"]
    assert vars(loaded).keys() == vars(saved).keys()
    assert repr(loaded) == repr(saved)
    for name, value in vars(saved).items():
        if name == "_result":
            np.testing.assert_equal(vars(loaded._result.mixture), vars(value.mixture))
            np.testing.assert_equal(vars(loaded._result.choice), vars(value.choice))
        elif name in ("groups", "fairness"):
            assert repr(getattr(loaded, name)) == repr(value)
        elif name != "path_":
            np.testing.assert_array_equal(getattr(loaded, name), value, err_msg=name)
            assert type(getattr(loaded, name)) is type(value), name


def test_path_comes_back_with_all_its_answers(pipeline, model_file):
    pd.testing.assert_frame_equal(load_model(model_file)["ensemble"].path_.table(), pipeline["ensemble"].path_.table())


GIVEN = {"detectors": "precomputed"}
KINDS = {
    "default": ({}, {}),
    "default pool": ({"detectors": "default", "standardize": True}, {}),
    "default pool, raw": ({"detectors": "default", "combination": "median"}, {}),
    "greedy, nonnegative": ({**GIVEN, "combination": "greedy", "correction": "nonnegative"}, {}),
    "maximum, simplex": ({**GIVEN, "combination": "maximum", "correction": "simplex"}, {}),
    "gaussian": ({"scaling": "gaussian", "combination": "median", "weighting": "uniform"}, {}),
    "published": ({**GIVEN, "correction": "published", "judged_on": "training", "combination": "aom"}, {}),
    "individual": (
        {"fairness": Individual(length_scale="minmax"), "correction": "simplex", "n_jobs": 2},
        {},
    ),
    "clusters": (GIVEN, {"clusters": np.arange(90) // 2}),
    "weighted": (GIVEN, {"sample_weight": np.linspace(0.0, 2.0, 90)}),
    "request": ({**GIVEN, "alpha": None, "contamination": 7}, {}),
    "one group": ({**GIVEN, "groups": Groups(min_size=31), "fairness": "individual", "detectors": "paper"}, {}),
    "no group": ({**GIVEN, "groups": Groups(min_size=40)}, {}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_ensemble_comes_back_with_its_column_names_and_claims(kind, tmp_path):
    settings, more = KINDS[kind]
    rng, groups = np.random.default_rng(0), np.array(["p", "q", "r"] * 30)
    groups[0] = "q"
    X = pd.DataFrame(rng.gamma(2.0, size=(90, 3)), columns=["x", "y", "z"]).mul(1.0 + (groups == "r"), axis=0)
    model = FairOutlierEnsemble(**{"alpha": 10.0, "groups": Groups(min_size=20), "random_state": 0, **settings})
    model.fit(X, sensitive_features=groups, **more)
    save_model(model, tmp_path / "m.skops")
    save_model(model, tmp_path / "whole.skops", updatable=True)
    loaded, whole = (load_model(tmp_path / name) for name in ("m.skops", "whole.skops"))
    np.testing.assert_array_equal(whole.outlier_scores(X + 0.1), model.outlier_scores(X + 0.1))
    assert loaded.n_jobs is None
    np.testing.assert_array_equal(loaded.outlier_scores(X + 0.1), model.outlier_scores(X + 0.1))
    np.testing.assert_array_equal(loaded.contributions(X + 0.1), model.contributions(X + 0.1))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    pd.testing.assert_frame_equal(loaded.path_.table(), model.path_.table())
    assert (
        loaded.path_.cross.refitted == model.path_.cross.refitted == (KINDS[kind][0].get("detectors") != "precomputed")
    )
    np.testing.assert_equal(loaded.path_.reduction_interval(5.0), model.path_.reduction_interval(5.0))
    for name in (
        "bias_reduction_",
        "bias_reduction_interval_",
        "request_met_",
        "left_out_groups_",
        "group_names_",
    ):
        np.testing.assert_equal(getattr(loaded, name), getattr(model, name))
    with pytest.raises(ValueError, match="feature names"):
        loaded.outlier_scores(X.rename(columns={"x": "w"}))


def test_equal_models_give_equal_files(pipeline, model_file, tmp_path):
    save_model(pipeline, tmp_path / "again.skops", updatable=True)
    save_model(load_model(model_file), tmp_path / "reloaded.skops", updatable=True)
    for name in ("again.skops", "reloaded.skops"):
        assert (tmp_path / name).read_bytes() == model_file.read_bytes()


def test_saving_keeps_no_trace_of_scoring(model_file, new_rows, tmp_path):
    loaded = load_model(model_file)
    loaded.predict(new_rows)
    loaded["ensemble"].path_.table()
    save_model(loaded, tmp_path / "used.skops", updatable=True)
    assert (tmp_path / "used.skops").read_bytes() == model_file.read_bytes()


def test_an_interval_without_an_end_comes_back(pipeline, tmp_path):
    model = copy.copy(pipeline["ensemble"])
    choice = replace(model._result.choice, interval=(float("-inf"), 1.0))
    model._take(replace(model._result, choice=choice))
    save_model(model, tmp_path / "m.skops")
    assert load_model(tmp_path / "m.skops").bias_reduction_interval_ == (float("-inf"), 1.0)


def small(**settings):
    X = np.random.default_rng(0).normal(size=(40, 2))
    return FairOutlierEnsemble(alpha=0.0, random_state=0, groups=Groups(min_size=5), **settings).fit(
        X, sensitive_features=["p", "q"] * 20
    )


def test_other_models_and_unfitted_ones_are_refused_at_saving(tmp_path):
    with pytest.raises(ValueError, match="model is TableEncoder and LinearRegression; a FairOutlierEnsemble"):
        save_model(make_pipeline(TableEncoder(), LinearRegression()), tmp_path / "m.skops")
    with pytest.raises(NotFittedError):
        save_model(FairOutlierEnsemble(), tmp_path / "m.skops")
    with pytest.raises(NotFittedError):
        save_model(make_pipeline(TableEncoder(), small()), tmp_path / "m.skops")


def test_a_random_state_that_has_moved_on_is_not_kept(tmp_path):
    model = small().set_params(random_state=np.random.RandomState(0))
    save_model(model, tmp_path / "m.skops")
    assert load_model(tmp_path / "m.skops").random_state is None
