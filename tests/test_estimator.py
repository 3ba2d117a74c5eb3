import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from pyod.models.ecod import ECOD
from scipy import sparse
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evenout import ConstantScoreWarning, FairOutlierEnsemble, NoGapWarning, TargetNotReachedWarning
from evenout.datasets import load_dataset
from evenout.metrics import demographic_parity, flag_rate_ratio, roc_auc


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], size=400, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(400, 4)) * (1 + 0.6 * (groups == "c"))[:, None]
    return pd.DataFrame(X, columns=list("wxyz")), pd.Series(groups)


@pytest.fixture(scope="module")
def fitted(data):
    return FairOutlierEnsemble(random_state=0).fit(data[0], sensitive_features=data[1])


def test_scores_are_the_weighted_sum_of_detectors(fitted, data):
    parts = fitted.contributions(data[0])
    assert parts.shape == (400, 18)
    np.testing.assert_allclose(parts.sum(axis=1), fitted.outlier_scores_, rtol=1e-12)
    np.testing.assert_array_equal(fitted.weights_, fitted.path_.weights(fitted.alpha_))


def test_training_rows_score_as_in_training(fitted, data):
    np.testing.assert_array_equal(fitted.outlier_scores(data[0]), fitted.outlier_scores_)
    np.testing.assert_allclose(fitted.base_scores(data[0]), fitted.target_, atol=1e-14)


@pytest.mark.parametrize("name", ["german", "breastw", "pima"])
def test_training_rows_score_as_in_training_under_ties(name):
    X = load_dataset(name).X
    groups = np.arange(len(X)) % 2
    model = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    np.testing.assert_array_equal(model.outlier_scores(X), model.outlier_scores_)


def test_signs_follow_scikit_learn(fitted, data):
    X = data[0]
    np.testing.assert_array_equal(fitted.score_samples(X), -fitted.outlier_scores(X))
    np.testing.assert_array_equal(fitted.decision_function(X), fitted.score_samples(X) - fitted.offset_)
    flagged = fitted.predict(X) == -1
    assert flagged.sum() == 40
    np.testing.assert_array_equal(flagged, fitted.decision_function(X) < 0)
    assert fitted.outlier_scores(X)[flagged].min() > fitted.outlier_scores(X)[~flagged].max()


def test_fit_predict_agrees_with_predict(data):
    X, groups = data
    model = FairOutlierEnsemble(random_state=0)
    flags = model.fit_predict(X, sensitive_features=groups)
    np.testing.assert_array_equal(flags, model.predict(X))


def test_bias_falls_by_what_was_asked(fitted, data):
    assert fitted.gap_detected_
    assert fitted.bias_reduction_ >= 0.8
    assert fitted.bias_reduction_ == pytest.approx(float(fitted.path_.reduction(fitted.alpha_, "unseen")))
    before = demographic_parity(fitted.target_, sensitive_features=data[1], scale_free=True)
    after = demographic_parity(fitted.outlier_scores_, sensitive_features=data[1], scale_free=True)
    assert after < 0.2 * before


def test_training_target_meets_the_request_on_training_rows(data):
    X, groups = data
    model = FairOutlierEnsemble(bias_reduction=0.6, target="training", random_state=0).fit(
        X, sensitive_features=groups
    )
    before = demographic_parity(model.target_, sensitive_features=groups, scale_free=True)
    after = demographic_parity(model.outlier_scores_, sensitive_features=groups, scale_free=True)
    assert 1 - after / before == pytest.approx(0.6, abs=1e-4)
    assert model.bias_reduction_ == pytest.approx(0.6, abs=1e-4)


def test_flag_rate_ratio_is_met_on_training_rows(data):
    X, groups = data
    base = FairOutlierEnsemble(alpha=0.0, random_state=0).fit(X, sensitive_features=groups)
    before = flag_rate_ratio(base.outlier_scores_, sensitive_features=groups)
    model = FairOutlierEnsemble(flag_rate_ratio=0.45, target="training", random_state=0).fit(
        X, sensitive_features=groups
    )
    assert before < 0.4
    assert flag_rate_ratio(model.outlier_scores_, sensitive_features=groups) >= 0.45


def test_flag_rate_ratio_out_of_reach_is_said(data):
    X, groups = data
    model = FairOutlierEnsemble([IsolationForest(), ECOD()], flag_rate_ratio=1.0, random_state=0)
    with pytest.warns(TargetNotReachedWarning, match="flag_rate_ratio=1 cannot be reached on unseen rows"):
        model.fit(X, sensitive_features=groups)


def test_given_alpha_is_the_papers_solution(data):
    X, groups = data
    model = FairOutlierEnsemble(alpha=7.0, random_state=0, combination="maximum").fit(
        X, sensitive_features=groups
    )
    S = model._scaled_scores(X)
    t, beta = model.target_, np.exp(rankdata(model.target_) / 400)
    means = np.array([S[groups == g].mean(axis=0) for g in "abc"])
    gaps = [means[0] - means[1], means[0] - means[2], means[1] - means[2]]
    C = sum(np.outer(gap, gap) for gap in gaps) / 3
    gradient = (S.T * beta) @ (S @ model.weights_ - t) + 7.0 * C @ model.weights_
    assert np.abs(gradient).max() < 1e-8
    np.testing.assert_allclose(t, (S.max(axis=1) - S.max(axis=1).min()) / np.ptp(S.max(axis=1)))


def test_uniform_weighting_is_the_unweighted_framework(data):
    X, groups = data
    model = FairOutlierEnsemble(alpha=0.0, weighting="uniform", random_state=0).fit(
        X, sensitive_features=groups
    )
    S = model._scaled_scores(X)
    expected = S @ np.linalg.lstsq(S, model.target_, rcond=None)[0]
    np.testing.assert_allclose(model.outlier_scores_, expected, atol=1e-8)


@pytest.mark.parametrize("fairness", ["individual", {"demographic_parity": 1, "individual": 2}])
def test_other_notions_reduce_their_bias(data, fairness):
    X, groups = data
    model = FairOutlierEnsemble(fairness=fairness, bias_reduction=0.1, random_state=0, combination="maximum")
    model.fit(X, sensitive_features=groups)
    assert model.bias_reduction_ >= 0.1 or model.alpha_ > 0


def test_sampled_pairs_come_close_to_all_pairs_and_say_how_close():
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(6000, 3)), rng.integers(0, 2, size=6000)
    common = {"fairness": "individual", "length_scale": "minmax", "alpha": 1e3, "random_state": 0}
    exact, sampled = (
        FairOutlierEnsemble(pairs=pairs, **common).fit(X, sensitive_features=groups)
        for pairs in ("exact", "sampled")
    )
    assert exact.pair_error_ == 0.0
    assert 0.0 <= sampled.pair_error_ <= 0.01
    assert np.corrcoef(exact.outlier_scores_, sampled.outlier_scores_)[0, 1] > 0.999


def test_without_a_gap_nothing_is_removed(data):
    X, _ = data
    groups = np.random.default_rng(5).integers(0, 2, size=400)
    model = FairOutlierEnsemble(random_state=0)
    with pytest.warns(NoGapWarning, match="sampling noise") as caught:
        model.fit(X, sensitive_features=groups)
    assert len(caught) == 1
    assert model.alpha_ == 0.0
    assert not model.gap_detected_
    assert np.isnan(model.bias_reduction_)


def test_both_notions_without_a_gap_pursue_the_individual_one(data):
    X, _ = data
    groups = np.random.default_rng(5).integers(0, 2, size=400)
    both = {"demographic_parity": 1, "individual": 1}
    with pytest.warns(NoGapWarning, match="only individual fairness"):
        model = FairOutlierEnsemble(fairness=both, alpha=3.0, random_state=0).fit(
            X, sensitive_features=groups
        )
    alone = FairOutlierEnsemble(fairness="individual", alpha=3.0, random_state=0).fit(
        X, sensitive_features=groups
    )
    np.testing.assert_array_equal(model.weights_, alone.weights_)


def test_unknown_groups_count_for_the_target_alone(data):
    X, groups = data
    holes = groups.astype(object).where(np.arange(400) % 10 > 0, None)
    model = FairOutlierEnsemble(alpha=1.0, unknown_groups="ignore", random_state=0).fit(
        X, sensitive_features=holes
    )
    assert model.group_counts_.sum() == 360
    assert len(model.outlier_scores_) == 400


def test_constant_detector_is_named_and_left_out(data):
    X, groups = data
    detectors = [IsolationForest(), ("flat", lambda rows: np.zeros(len(rows))), ECOD()]
    with pytest.warns(ConstantScoreWarning, match="take no part: flat"):
        model = FairOutlierEnsemble(detectors, alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    assert model.weights_[1] == 0.0
    without = FairOutlierEnsemble(detectors[::2], alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    np.testing.assert_allclose(model.outlier_scores_, without.outlier_scores_, rtol=1e-9)


def test_identical_rows_give_finite_even_scores():
    X, groups = np.ones((40, 3)), np.arange(40) % 2
    with pytest.warns(UserWarning, match="take no part|no group gap") as caught:
        model = FairOutlierEnsemble(random_state=0).fit(X, sensitive_features=groups)
    assert {w.category for w in caught} == {ConstantScoreWarning, NoGapWarning}
    np.testing.assert_array_equal(model.outlier_scores_, 0.0)


def test_precomputed_scores(data):
    X, groups = data
    scores = np.abs(X.to_numpy())
    model = FairOutlierEnsemble("precomputed", alpha=2.0).fit(scores, sensitive_features=groups)
    assert model.detector_names_ == ("score_0", "score_1", "score_2", "score_3")
    scaled = (scores - scores.min(axis=0)) / np.ptp(scores, axis=0)
    np.testing.assert_allclose(model.outlier_scores_, scaled @ model.weights_)


def test_own_form_is_solved_with(data):
    X, groups = data

    def parity(S, codes):
        means = np.array([S[codes == g].mean(axis=0) for g in range(3)])
        gaps = [means[0] - means[1], means[0] - means[2], means[1] - means[2]]
        return sum(np.outer(gap, gap) for gap in gaps) / 3

    named = FairOutlierEnsemble(alpha=50.0, random_state=0).fit(X, sensitive_features=groups)
    given = named._scaled_scores(X)
    for own in (parity, parity(given, np.unique(groups, return_inverse=True)[1])):
        model = FairOutlierEnsemble(fairness=own, alpha=50.0, random_state=0).fit(
            X, sensitive_features=groups
        )
        np.testing.assert_allclose(model.outlier_scores_, named.outlier_scores_, rtol=1e-6)
        assert model.path_.bias(50.0, "training") == pytest.approx(
            float(named.path_.bias(50.0, "training")), rel=1e-5
        )
        assert np.isnan(model.bias_reduction_)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (np.eye(3), r"shape \(3, 3\); 18 detectors need"),
        (-np.eye(18), "must be positive semidefinite"),
        (np.full((18, 18), np.nan), "finite"),
    ],
)
def test_bad_forms_are_refused(data, form, message):
    X, groups = data
    with pytest.raises(ValueError, match=message):
        FairOutlierEnsemble(fairness=form, alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    with pytest.raises(ValueError, match="give alpha or flag_rate_ratio"):
        FairOutlierEnsemble(fairness=form, random_state=0).fit(X, sensitive_features=groups)


@pytest.mark.parametrize("weights", ["nonnegative", "simplex"])
def test_constrained_weights_are_feasible_and_fairer_than_the_start(data, weights):
    X, groups = data
    model = FairOutlierEnsemble(weights=weights, alpha=1e4, random_state=0).fit(X, sensitive_features=groups)
    assert (model.weights_ >= 0).all()
    assert weights == "nonnegative" or model.weights_.sum() == pytest.approx(1.0, abs=1e-12)
    assert model.path_.f2(1e4) < model.path_.f2(0.0)
    assert model.path_.f1(1e4) > model.path_.f1(0.0)


def test_own_combination_is_used_and_checked(data):
    X, groups = data
    model = FairOutlierEnsemble(combination=lambda S: S[:, 3], alpha=0.0, random_state=0).fit(
        X, sensitive_features=groups
    )
    np.testing.assert_allclose(model.outlier_scores_, model.target_, atol=1e-6)
    for wrong, message in (
        (lambda S: S, r"shape \(400, 18\)"),
        (lambda S: np.log(np.zeros(len(S)) - 1 + 0j).real * np.nan, "not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            FairOutlierEnsemble(combination=wrong, random_state=0).fit(X, sensitive_features=groups)


def test_results_do_not_depend_on_group_names(data):
    X, groups = data
    one = FairOutlierEnsemble(random_state=0).fit(X, sensitive_features=groups)
    two = FairOutlierEnsemble(random_state=0).fit(X, sensitive_features=groups.map({"a": 9, "b": 1, "c": 4}))
    np.testing.assert_allclose(one.outlier_scores_, two.outlier_scores_, rtol=1e-10)


def test_results_do_not_depend_on_row_order_given_the_scores(fitted, data):
    X, groups = data
    S = fitted._scaled_scores(X)
    order = np.random.default_rng(1).permutation(400)
    one = FairOutlierEnsemble("precomputed", random_state=0).fit(S, sensitive_features=groups)
    two = FairOutlierEnsemble("precomputed", random_state=0).fit(
        S[order], sensitive_features=groups.to_numpy()[order]
    )
    assert one.alpha_ == pytest.approx(two.alpha_, rel=1e-8)
    np.testing.assert_allclose(two.outlier_scores_, one.outlier_scores_[order], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", [0, np.random.RandomState(3)])
def test_one_seed_one_result(data, seed):
    X, groups = data
    state = pickle.dumps(seed)
    models = [
        FairOutlierEnsemble(random_state=pickle.loads(state)).fit(X, sensitive_features=groups)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(models[0].outlier_scores_, models[1].outlier_scores_)


def test_threads_do_not_change_the_result(data):
    X, groups = data
    both = {"demographic_parity": 1, "individual": 1}
    one, two = (
        FairOutlierEnsemble(fairness=both, alpha=2.0, random_state=0, n_jobs=j).fit(
            X, sensitive_features=groups
        )
        for j in (1, 2)
    )
    np.testing.assert_array_equal(one.outlier_scores_, two.outlier_scores_)


def test_clone_pickle_and_pipeline(fitted, data):
    X, groups = data
    assert clone(fitted).get_params() == fitted.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
    pipe = make_pipeline(StandardScaler(), FairOutlierEnsemble(random_state=0))
    pipe.fit(X, fairoutlierensemble__sensitive_features=groups)
    assert pipe.predict(X).shape == (400,)


def test_metadata_routing_carries_the_groups(data):
    X, groups = data
    with sklearn.config_context(enable_metadata_routing=True):
        step = FairOutlierEnsemble(random_state=0).set_fit_request(sensitive_features=True)
        pipe = make_pipeline(StandardScaler(), step).fit(X, sensitive_features=groups)
    direct = FairOutlierEnsemble(random_state=0).fit(
        StandardScaler().fit_transform(X), sensitive_features=groups
    )
    np.testing.assert_array_equal(
        pipe.score_samples(X), direct.score_samples(StandardScaler().fit_transform(X))
    )


def test_refit_with_another_width_works(data):
    X, groups = data
    model = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    model.fit(X[["w", "x"]], sensitive_features=groups)
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["w", "x"]
    with pytest.raises(ValueError, match="feature"):
        model.outlier_scores(X)


def test_read_only_and_memory_mapped_input(data, tmp_path, fitted):
    X, groups = data
    array = np.ascontiguousarray(X.to_numpy(dtype=float, copy=True))
    array.setflags(write=False)
    np.save(tmp_path / "X.npy", array)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    codes = groups.to_numpy(dtype="U1", copy=True)
    codes.setflags(write=False)
    both = {"demographic_parity": 1, "individual": 1}
    for given in (array, mapped):
        model = FairOutlierEnsemble(fairness=both, alpha=1.0, random_state=0).fit(
            given, sensitive_features=codes
        )
        np.testing.assert_array_equal(model.outlier_scores(given), model.outlier_scores_)
    frozen = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        frozen.outlier_scores(pd.DataFrame(array, columns=X.columns)), fitted.outlier_scores_
    )


def _with(X, value, row=7, column=2):
    changed = np.array(X, dtype=float)
    changed[row, column] = value
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": None}, "sensitive_features is missing"),
        ({"groups": ["a"] * 400}, "one group only"),
        ({"groups": ["a"] * 399 + ["b"]}, r"min_group_size=2 rows: 'b' \(1\)"),
        ({"groups": ["a", "b"]}, "has 2 rows, but X has 400"),
        ({"groups": ["a"] * 200 + ["b"] * 199 + [np.nan]}, "missing values in 1 of 400"),
        ({"X": lambda X: _with(X, np.nan)}, "X contains NaN"),
        ({"X": lambda X: _with(X, np.inf)}, "X contains infinity"),
        ({"X": lambda X: _with(X, -2e30)}, r"X has -2e\+30 in row 7, column 2"),
        ({"X": lambda X: sparse.csr_matrix(X)}, r"X is sparse.*X.toarray\(\)"),
        ({"X": lambda X: X.iloc[:, 0]}, "Expected a 2-dimensional container|Expected 2D array"),
        ({"alpha": -1.0}, "alpha=-1.0 is not allowed; use None or a number of at least 0"),
        ({"alpha": "big"}, "alpha='big' is not allowed"),
        ({"alpha": 1.0, "bias_reduction": 0.5}, "bias_reduction and alpha were given; give at most one"),
        ({"bias_reduction": 0.5, "flag_rate_ratio": 0.8}, "at most one of"),
        (
            {"length_scale": ("mean", 1)},
            r"length_scale=\('mean', 1\) is not allowed; use 'minmax' or a number above 0",
        ),
        ({"bias_reduction": 1.5}, "bias_reduction=1.5 is not allowed"),
        ({"flag_rate_ratio": 0.0}, "flag_rate_ratio=0.0 is not allowed"),
        ({"combination": "mean"}, "combination='mean' is not allowed; use 'average', 'maximum'"),
        ({"scaling": "unit"}, "scaling='unit' is not allowed; use 'minmax', 'rank'"),
        ({"fairness": "parity"}, "fairness='parity' is not allowed; use 'demographic_parity', 'individual'"),
        ({"fairness": {"individual": -1}}, "weights must be numbers above 0"),
        ({"fairness": {}}, "fairness={} is not allowed"),
        ({"detectors": "papers"}, "'papers' is unknown; known names"),
        ({"detectors": "precomputed", "fairness": "individual"}, "compares feature rows"),
        ({"detectors": [lambda X: X]}, r"scores of shape \(400, 4\)"),
        ({"target": "test"}, "target='test' is not allowed"),
        ({"weighting": "exp"}, "weighting='exp' is not allowed"),
        ({"min_group_size": 1}, "min_group_size=1 is not allowed; use an integer of at least 2"),
        ({"contamination": 0.7}, "contamination=0.7 is not allowed"),
        ({"contamination": True}, "contamination=True is not allowed"),
        ({"n_jobs": 0}, "n_jobs=0 is not allowed"),
    ],
)
def test_bad_input_is_one_clear_error_and_changes_nothing(data, fitted, change, message):
    X, groups = data
    model = pickle.loads(pickle.dumps(fitted))
    change = dict(change)
    groups = change.pop("groups", groups)
    X = change.pop("X", lambda rows: rows)(X)
    before = {name: value for name, value in vars(model).items() if name.endswith("_")}
    model.set_params(**change)
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(X, sensitive_features=groups)
    assert isinstance(caught.value, ValueError)
    after = {name: value for name, value in vars(model).items() if name.endswith("_")}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def test_few_rows_cap_the_neighbours_with_one_warning():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="neighbo") as caught:
        model = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(
            rng.normal(size=(12, 2)), sensitive_features=[0, 1] * 6
        )
    assert len([w for w in caught if "neighbo" in str(w.message)]) == 1
    assert np.isfinite(model.outlier_scores_).all()


@pytest.mark.parametrize(
    ("combination", "low", "high"), [("average", 0.97, 0.99), ("maximum", 0.88, 0.93), ("greedy", 0.70, 0.86)]
)
def test_breast_cancer_base_ensembles_match_the_paper(combination, low, high):
    """The paper: 0.9784, 0.8954 and 0.7696."""
    aucs = []
    for seed in range(5):
        data = load_dataset("breastw", random_state=seed)
        model = FairOutlierEnsemble(combination=combination, alpha=0.0, random_state=seed).fit(
            data.X, sensitive_features=data.sensitive
        )
        aucs.append(roc_auc(data.y, model.target_))
    assert low <= np.mean(aucs) <= high
