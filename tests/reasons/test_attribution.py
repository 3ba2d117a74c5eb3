"""Parts add up to the score for every pool, are Shapley values, and unused features get nothing."""

import numpy as np
import pytest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from evenout import FairLOF, FairOutlierEnsemble


class Projections:
    """A family of one's own, with two columns."""

    names = ("first", "second")

    def fit_columns(self, X, *, seed, n_threads):  # noqa: ARG002
        self.turn = np.random.default_rng(seed).normal(size=(X.shape[1], 2))
        return self, self.score(X)

    def score(self, X, *, n_threads=1):  # noqa: ARG002
        return np.abs(X @ self.turn)


POOLS = {
    "default": {},
    "raw": {"standardize": False},
    "paper": {"detectors": "paper"},
    "published": {"detectors": "paper", "correction": "published", "combination": "greedy"},
    "diverse": {"detectors": "diverse", "scaling": "zscore"},
    "foreign": {"detectors": ["default", OneClassSVM(), LocalOutlierFactor(n_neighbors=5), lambda X: X[:, 0] ** 2]},
    "own family": {"detectors": ["paper", ("projections", Projections())]},
    "group-aware": {"detectors": ["paper", FairLOF(n_neighbors=8)]},
    "maximum": {"combination": "maximum"},
    "median": {"combination": "median", "scaling": "rank"},
    "buckets": {"combination": "aom", "detectors": "paper"},
    "gaussian": {"scaling": "gaussian"},
    "function": {"combination": lambda S: np.sqrt((S**2).mean(axis=1))},
    "individual": {"fairness": "individual"},
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.filterwarnings("ignore")
def test_parts_add_up_for_every_pool(name, table, new):
    X, groups = table
    model = FairOutlierEnsemble(alpha=50.0, random_state=0, **POOLS[name])
    model.fit(X, sensitive_features=groups)
    rows = np.vstack([new, X[:4]])
    given = {"sensitive_features": np.resize(groups, len(rows))} if name == "group-aware" else {}
    for baseline in ("alike", "typical"):
        found = model.explain(rows, baseline=baseline, **given)
        np.testing.assert_allclose(found.parts.parts.sum(axis=1), found.parts.scores - found.parts.typical, atol=1e-9)
        np.testing.assert_allclose(found.base_scores, model.base_scores(rows, **given), atol=1e-12)
        np.testing.assert_allclose(found.fair_scores, model.outlier_scores(rows, **given), atol=1e-12)


def test_a_detector_that_uses_groups_asks_for_them(table, new):
    X, groups = table
    model = FairOutlierEnsemble([FairLOF(n_neighbors=8)], alpha=1.0).fit(X, sensitive_features=groups)
    with pytest.raises(ValueError, match="sensitive_features is missing: these detectors use the group"):
        model.explain(new)


@pytest.mark.filterwarnings("ignore")
def test_parts_add_up_where_the_target_has_learnt_from_labels(table, new):
    X, groups = table
    labels = np.where(np.arange(len(X)) % 3 == 0, (X["three"] > 1).astype(float), np.nan)
    model = FairOutlierEnsemble(alpha=50.0, random_state=0, learn=True).fit(X, sensitive_features=groups, labels=labels)
    assert model.label_weight_ > 0
    found = model.explain(new)
    np.testing.assert_allclose(found.parts.parts.sum(axis=1), found.parts.scores - found.parts.typical, atol=1e-9)


def test_ready_scores_are_explained_by_themselves(table):
    _, groups = table
    S = np.random.default_rng(0).random((len(groups), 4))
    model = FairOutlierEnsemble("precomputed", alpha=10.0).fit(S, sensitive_features=groups)
    found = model.explain(S[:6], baseline="typical")
    change = (S[:6] - model._result.background.typical) / np.ptp(S, axis=0)
    np.testing.assert_allclose(found.fair_parts, change * model.weights_, atol=1e-9)


@pytest.mark.parametrize(("which", "baseline"), [("base", "typical"), ("fair", "alike")])
def test_parts_are_shapley_values_of_the_score(which, baseline, model, new, shapley, mixture_value):
    score = model.base_scores if which == "base" else model.outlier_scores
    found = model.explain(new, baseline=baseline)
    frame = lambda rows: score(new.iloc[:1].assign(**dict(zip(new, rows[0], strict=True))))  # noqa: E731
    for row in range(4):
        truth = shapley(mixture_value(frame, new.to_numpy()[row], found.beside[row], np.arange(5)), 5)
        # Decorrelated coordinates are multiples of 1e-6 in a score, and are not rounded between the two ends.
        np.testing.assert_allclose(getattr(found, f"{which}_parts")[row], truth, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_unused_features_and_typical_values_get_nothing(table, new):
    X, groups = table
    X, new = X.assign(constant=7.0), new.assign(constant=[7.0, 9.0] * 6)
    model = FairOutlierEnsemble(alpha=100.0, random_state=0).fit(X, sensitive_features=groups)
    new.iloc[0] = model._result.background.typical
    new.iloc[1, 2] = model._result.background.typical[2]
    assert not model.explain(new).parts.parts[:, 5].any()
    found = model.explain(new, baseline="typical")
    assert not found.parts.parts[:, 5].any()
    assert not found.parts.parts[0].any()
    assert not found.parts.parts[1, 2].any()


def test_columns_that_are_copies_of_each_other_get_the_same_part(table):
    X, groups = table
    X = X.assign(again=X["three"])
    model = FairOutlierEnsemble("paper", alpha=100.0, random_state=0).fit(X, sensitive_features=groups)
    found = model.explain(X[:3] + 0.01)
    at = [X.columns.get_loc(name) for name in ("three", "again")]
    # Trees draw one of the two at random; distances cannot tell them apart.
    np.testing.assert_allclose(found.base_parts[:, at[0]], found.base_parts[:, at[1]], rtol=0.25)
    distances = FairOutlierEnsemble([("k", LocalOutlierFactor(n_neighbors=9))], alpha=1.0)
    found = distances.fit(X, sensitive_features=groups).explain(X[:3] + 0.01)
    np.testing.assert_allclose(found.base_parts[:, at[0]], found.base_parts[:, at[1]], atol=1e-9)


def test_results_do_not_depend_on_threads_nor_on_other_rows(model, new):
    one = model.explain(new).parts.parts
    many = type(model)(**model.get_params())
    many.__dict__.update(model.__dict__ | {"n_jobs": 2})
    np.testing.assert_array_equal(many.explain(new).parts.parts, one)
    np.testing.assert_allclose(model.explain(new[3:5]).parts.parts, one[3:5], atol=1e-12)


@pytest.mark.parametrize("correction", ["resemblance", "both"])
@pytest.mark.parametrize("scaling", ["minmax", "rank"])
@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_parts_add_up_where_scores_are_corrected_by_resemblance(correction, scaling):
    rng = np.random.default_rng(3)
    group = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 4)) * (1 + 0.8 * group)[:, None]
    model = FairOutlierEnsemble(correction=correction, scaling=scaling, random_state=0).fit(X, sensitive_features=group)
    found = model.explain(X[:20])
    for parts, scores, typical in (
        (found.base_parts, found.base_scores, found.base_typical),
        (found.fair_parts, found.fair_scores, found.fair_typical),
    ):
        np.testing.assert_allclose(parts.sum(axis=1), scores - typical, atol=1e-9)
    np.testing.assert_allclose(found.fair_scores, model.outlier_scores(X[:20]), atol=1e-12)
