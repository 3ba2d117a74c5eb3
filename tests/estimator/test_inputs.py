"""What goes into the estimator: wrong input is one clear line and changes nothing; equal input gives equal results."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evenout import FairOutlierEnsemble, Groups, Individual, TableEncoder, audit
from evenout.detectors.fairlof import FairLOF
from evenout.exceptions import InputError
from evenout.tables.rows import as_seed

SCALED = {"demographic_parity": 1, Individual(1.0): 1}


def test_precomputed_scores(data):
    X, groups = data
    scores = np.abs(X.to_numpy())
    model = FairOutlierEnsemble("precomputed", alpha=2.0).fit(scores, sensitive_features=groups)
    assert model.detector_names_ == ("score_0", "score_1", "score_2", "score_3")
    assert not model.path_.cross.refitted  # the weights alone have not seen a fold
    scaled = (scores - scores.min(axis=0)) / np.ptp(scores, axis=0)
    rest = model.outlier_scores_ - scaled @ model.weights_
    np.testing.assert_allclose(rest, rest[0], atol=1e-12)


def test_own_combination_is_used_and_checked(data):
    X, groups = data
    model = FairOutlierEnsemble(combination=lambda S: S[:, 3], alpha=0.0, random_state=0).fit(
        X, sensitive_features=groups
    )
    np.testing.assert_array_equal(model.outlier_scores_, model.detector_scores(X)[:, 3])
    for wrong, message in (
        (lambda S: S, r"shape \(800, 12\)"),
        (lambda S: np.full(len(S), np.nan), "not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            FairOutlierEnsemble(combination=wrong, random_state=0).fit(X, sensitive_features=groups)


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
        FairOutlierEnsemble("paper", fairness=form, alpha=1.0, random_state=0).fit(X, sensitive_features=groups)


def test_results_do_not_depend_on_group_names(fitted, data):
    X, groups = data
    two = FairOutlierEnsemble(random_state=0).fit(X, sensitive_features=groups.map({"a": 9, "b": 1, "c": 4}))
    np.testing.assert_allclose(fitted.outlier_scores_, two.outlier_scores_, rtol=1e-8)


def test_results_do_not_depend_on_row_order_given_the_scores(fitted, data):
    X, groups = data
    S = fitted.detector_scores(X)
    order = np.random.default_rng(1).permutation(800)
    one = FairOutlierEnsemble("precomputed", random_state=0).fit(S, sensitive_features=groups)
    two = FairOutlierEnsemble("precomputed", random_state=0).fit(S[order], sensitive_features=groups.to_numpy()[order])
    assert one.alpha_ == pytest.approx(two.alpha_, rel=1e-8)
    np.testing.assert_allclose(two.outlier_scores_, one.outlier_scores_[order], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("model", [FairOutlierEnsemble(random_state=0), FairLOF()])
def test_a_refit_that_fails_on_names_of_mixed_types_leaves_the_model_as_it_was(model, data):
    X, groups = data
    model = clone(model).fit(X, sensitive_features=groups)
    before = dict(vars(model))
    with pytest.raises(TypeError, match="feature names"):
        model.fit(X.set_axis([0, 1, 2, "a"], axis=1)[::2], sensitive_features=groups[::2])
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "x"])
def test_a_seed_out_of_range_is_one_clear_line(data, seed):
    X, groups = data
    message = f"random_state={seed!r} is not allowed; use an integer from 0"
    with pytest.raises(ValueError, match=message):
        FairOutlierEnsemble(random_state=seed).fit(X, sensitive_features=groups)
    with pytest.raises(ValueError, match=message):
        audit(X["w"], sensitive_features=groups, random_state=seed)
    assert as_seed(2**32 - 1) == 2**32 - 1
    assert as_seed(np.int32(7)) == 7
    assert as_seed(np.random.RandomState(0)) == as_seed(np.random.RandomState(0))


def test_one_seed_one_result(data):
    X, groups = data
    state = pickle.dumps(np.random.RandomState(3))
    models = [FairOutlierEnsemble(random_state=pickle.loads(state)).fit(X, sensitive_features=groups) for _ in range(2)]
    np.testing.assert_array_equal(models[0].outlier_scores_, models[1].outlier_scores_)


def test_threads_do_not_change_the_result(data):
    X, groups = data
    settings = {"fairness": SCALED, "alpha": 2.0, "random_state": 0}
    one, two = (FairOutlierEnsemble(n_jobs=j, **settings).fit(X, sensitive_features=groups) for j in (1, 2))
    np.testing.assert_array_equal(one.outlier_scores_, two.outlier_scores_)


def test_clone_pickle_and_pipeline(fitted, data):
    X, groups = data
    assert clone(fitted).get_params() == fitted.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
    pipe = make_pipeline(StandardScaler(), FairOutlierEnsemble(random_state=0, alpha=1.0))
    pipe.fit(X, fairoutlierensemble__sensitive_features=groups)
    assert pipe.predict(X).shape == (800,)


def test_metadata_routing_carries_groups_clusters_and_weights(data):
    X, groups = data
    more = {"clusters": np.arange(800) // 2, "sample_weight": np.linspace(0.5, 1.5, 800)}
    with sklearn.config_context(enable_metadata_routing=True):
        step = FairOutlierEnsemble(random_state=0, alpha=9.0)
        step.set_fit_request(sensitive_features=True, clusters=True, sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipe = make_pipeline(scaler, step).fit(X, sensitive_features=groups, **more)
    scaled = StandardScaler().fit_transform(X)
    direct = FairOutlierEnsemble(random_state=0, alpha=9.0).fit(scaled, sensitive_features=groups, **more)
    np.testing.assert_array_equal(pipe.score_samples(X), direct.score_samples(scaled))
    plain = FairOutlierEnsemble(random_state=0, alpha=9.0).fit(scaled, sensitive_features=groups)
    assert np.abs(plain.outlier_scores_ - direct.outlier_scores_).max() > 1e-6


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
    for given in (array, mapped):
        model = FairOutlierEnsemble(fairness=SCALED, alpha=1.0, random_state=0).fit(given, sensitive_features=codes)
        np.testing.assert_array_equal(model.outlier_scores(given), model.outlier_scores_)
    frozen = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(frozen.outlier_scores(pd.DataFrame(array, columns=X.columns)), fitted.outlier_scores_)


def _with(X, value, row=7, column=2):
    changed = np.array(X, dtype=float)
    changed[row, column] = value
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sensitive": None}, "sensitive_features is missing"),
        ({"sensitive": ["a"] * 800}, "one group only"),
        (
            {"sensitive": ["a"] * 799 + ["b"], "groups": Groups(small="error")},
            r"fewer than 30 rows: 'b' \(1\).*Groups\(small='leave_out'\) or groups=Groups\(small='merge'\)",
        ),
        ({"sensitive": ["a", "b"]}, "has 2 rows, but X has 800"),
        ({"sensitive": ["a"] * 400 + ["b"] * 399 + [np.nan]}, "missing values in 1 of 800"),
        ({"clusters": [1, 2]}, r"clusters must hold one value per row, shape \(800,\), got shape \(2,\)"),
        ({"clusters": np.ones((800, 2))}, r"clusters must hold one value per row.*shape \(800, 2\)"),
        ({"clusters": [None] + [1] * 799}, r"clusters has missing values in 1 of 800 rows \(first: row 0\)"),
        (
            {"clusters": [1.0] * 799 + [np.nan]},
            r"clusters has missing values in 1 of 800 rows \(first: row 799\)",
        ),
        (
            {"sample_weight": [1.0]},
            r"sample_weight must hold one number per row, shape \(800,\), got shape \(1,\)",
        ),
        ({"sample_weight": [np.nan] * 800}, "sample_weight has missing or infinite values"),
        ({"sample_weight": [-1.0] + [1.0] * 799}, "sample_weight has negative numbers or zeros alone"),
        ({"sample_weight": np.zeros(800)}, "sample_weight has negative numbers or zeros alone"),
        (
            {"sample_weight": np.ones(800), "fairness": "individual"},
            "sample_weight does not go with fairness='individual'",
        ),
        ({"X": lambda X: _with(X, np.nan)}, "X contains NaN"),
        ({"X": lambda X: _with(X, np.inf)}, "X contains infinity"),
        ({"X": lambda X: _with(X, -2e30)}, r"X has -2e\+30 in row 7, column 2"),
        ({"X": lambda X: sparse.csr_matrix(X)}, r"X is sparse.*X.toarray\(\)"),
        ({"X": lambda X: X.iloc[:, 0]}, "Expected a 2-dimensional container|Expected 2D array"),
        ({"alpha": -1.0}, "alpha=-1.0 is not allowed; use None or a number of at least 0"),
        ({"alpha": "big"}, "alpha='big' is not allowed"),
        ({"alpha": 1.0, "bias_reduction": 0.5}, "bias_reduction and alpha were given; give at most one"),
        ({"bias_reduction": 0.5, "flag_rate_ratio": 0.8}, "at most one of"),
        ({"alpha": 1.0, "confidence": 0.9}, "confidence goes with bias_reduction, but alpha was given"),
        ({"judged_on": "training", "confidence": 0.9}, "confidence is about unseen rows"),
        (
            {"confidence": 1.0},
            "confidence=1.0 is not allowed; use None or a number of at least 0.5 and below 1",
        ),
        (
            {"fairness": Individual(length_scale=("mean", 1))},
            r"length_scale=\('mean', 1\) is not allowed; use 'minmax' or a number above 0",
        ),
        ({"bias_reduction": 1.5}, "bias_reduction=1.5 is not allowed"),
        ({"flag_rate_ratio": 0.0}, "flag_rate_ratio=0.0 is not allowed"),
        ({"combination": "mean"}, "combination='mean' is not allowed; use 'average', 'maximum'"),
        ({"correction": "magic"}, "correction='magic' is not allowed; use 'weights', 'nonnegative'"),
        ({"scaling": "unit"}, "scaling='unit' is not allowed; use 'minmax', 'rank'"),
        ({"fairness": "parity"}, "fairness='parity' is not allowed; use 'demographic_parity', 'individual'"),
        ({"fairness": {"individual": -1}}, "weights must be numbers above 0"),
        ({"fairness": {}}, "fairness={} is not allowed"),
        ({"detectors": "papers"}, "'papers' is unknown; known names"),
        ({"detectors": "precomputed", "fairness": "individual"}, "compares feature rows"),
        ({"detectors": [lambda X: X]}, r"scores of shape \(800, 4\)"),
        ({"judged_on": "test"}, "judged_on='test' is not allowed"),
        ({"weighting": "exp"}, "weighting='exp' is not allowed"),
        ({"groups": Groups(min_size=1)}, r"Groups\(min_size=1\) is not allowed; use an integer of at least 2"),
        ({"contamination": 0.7}, "contamination=0.7 is not allowed"),
        ({"contamination": True}, "contamination=True is not allowed"),
        ({"contamination": 500}, "contamination=500 is more than half of the 800 rows"),
        ({"n_jobs": 0}, "n_jobs=0 is not allowed"),
    ],
)
def test_bad_input_is_one_clear_error_and_changes_nothing(data, fitted, change, message):
    X, groups = data
    model = pickle.loads(pickle.dumps(fitted))
    change = dict(change)
    groups = change.pop("sensitive", groups)
    X = change.pop("X", lambda rows: rows)(X)
    more = {name: change.pop(name) for name in ("clusters", "sample_weight") if name in change}
    before = {name: value for name, value in vars(model).items() if name.endswith("_")}
    model.set_params(**change)
    with pytest.raises(ValueError, match=message):
        model.fit(X, sensitive_features=groups, **more)
    after = {name: value for name, value in vars(model).items() if name.endswith("_")}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


@pytest.mark.filterwarnings("ignore::evenout.exceptions.ManyColumnsWarning")
def test_few_rows_cap_the_neighbours_with_one_warning():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="neighbo") as caught:
        model = FairOutlierEnsemble(alpha=1.0, groups=Groups(min_size=2), random_state=0).fit(
            rng.normal(size=(12, 2)), sensitive_features=[0, 1] * 6
        )
    assert len([w for w in caught if "neighbo" in str(w.message)]) == 1
    assert np.isfinite(model.outlier_scores_).all()


@pytest.mark.parametrize("model", [FairOutlierEnsemble(random_state=0), FairLOF()])
def test_frames_with_text_or_gaps_are_refused_by_name_and_with_the_remedy(model, data):
    X, groups = data
    odd = X.assign(home="own", day=pd.Timestamp("2020-01-01"), gap=np.where(np.arange(len(X)) == 3, np.nan, 1.0))
    name = type(model).__name__
    words = (
        f"X has text, dates or gaps in column 'home', 'day', 'gap'; encode it: make_pipeline(TableEncoder(), {name}())"
    )
    with pytest.raises(InputError) as caught:
        clone(model).fit(odd, sensitive_features=groups)
    assert str(caught.value) == words
    fitted = clone(model).fit(X, sensitive_features=groups)
    wrong = X.astype(object).assign(**{X.columns[0]: "x"})
    with pytest.raises(InputError, match="X has text, dates or gaps in column 'w'"):
        fitted.predict(wrong, sensitive_features=groups)


def test_the_remedy_works_and_other_names_for_categories_change_no_score(data):
    X, groups = data
    words = pd.Series(np.random.default_rng(0).choice(["own", "rent", None], len(X), p=[0.6, 0.3, 0.1]), index=X.index)
    scores = []
    for home in (words, words.map({"own": "zelt", "rent": "Boot"})):
        model = make_pipeline(TableEncoder(), FairOutlierEnsemble(alpha=2.0, random_state=0))
        model.fit(X.assign(home=home), fairoutlierensemble__sensitive_features=groups)
        scores.append(model.decision_function(X.assign(home=home)))
    np.testing.assert_array_equal(*scores)
