import numpy as np
import pytest
from pyod.models.ecod import ECOD
from pyod.models.knn import KNN
from sklearn.covariance import EllipticEnvelope
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import KernelDensity, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from evenout.detectors.adapt import fit_foreign
from evenout.detectors.pool import fit_pool


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(80, 3)), np.vstack([rng.normal(size=(9, 3)), np.full((1, 3), 9.0)])


@pytest.mark.parametrize(
    "detector",
    [
        IsolationForest(random_state=0),
        LocalOutlierFactor(),
        LocalOutlierFactor(novelty=True),
        EllipticEnvelope(random_state=0),
        OneClassSVM(),
        KernelDensity(),
        make_pipeline(StandardScaler(), OneClassSVM()),
        make_pipeline(StandardScaler(), LocalOutlierFactor()),
        make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), KNN())),
        KNN(),
        ECOD(),
        lambda X: np.abs(X).sum(axis=1),
    ],
    ids=lambda d: type(d).__name__,
)
def test_every_kind_of_detector_scores_the_far_point_highest(detector, rows):
    X, new = rows
    part, training = fit_foreign("it", detector, X, seed=0)
    assert training.shape == (80, 1)
    scores = part.score(new)
    assert scores.shape == (10, 1)
    assert scores.argmax() == 9


def test_scores_are_the_detectors_own(rows):
    X, new = rows
    _, training = fit_foreign("lof", LocalOutlierFactor(7), X, seed=0)
    np.testing.assert_array_equal(training[:, 0], -LocalOutlierFactor(7).fit(X).negative_outlier_factor_)
    part, training = fit_foreign("knn", KNN(), X, seed=0)
    own = KNN().fit(X)
    np.testing.assert_array_equal(training[:, 0], own.decision_scores_)
    np.testing.assert_array_equal(part.score(new)[:, 0], own.decision_function(new))
    part, training = fit_foreign("forest", IsolationForest(random_state=4), X, seed=0)
    np.testing.assert_array_equal(training[:, 0], -IsolationForest(random_state=4).fit(X).score_samples(X))


def test_a_pipeline_scores_as_its_last_step_on_transformed_rows(rows):
    X, new = rows
    scaler = StandardScaler().fit(X)
    for detector in (LocalOutlierFactor(7), LocalOutlierFactor(7, novelty=True), KNN(), IsolationForest()):
        part, training = fit_foreign("whole", make_pipeline(StandardScaler(), detector), X, seed=0)
        alone, expected = fit_foreign("last", detector, scaler.transform(X), seed=0)
        np.testing.assert_array_equal(training, expected)
        np.testing.assert_array_equal(part.score(new), alone.score(scaler.transform(new)))


def test_given_detectors_are_cloned_and_open_seeds_are_set(rows):
    X, _ = rows
    given = make_pipeline(StandardScaler(), IsolationForest())
    one, two = (fit_foreign("f", given, X, seed=3)[1] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert given[-1].random_state is None
    assert not hasattr(given[-1], "estimators_")


class NoScores:
    def fit(self, X):  # noqa: ARG002
        return self


@pytest.mark.parametrize(
    ("detector", "message"),
    [
        (IsolationForest, r"'it' is a class; pass an instance, for example IsolationForest\(\)"),
        (object(), "has no fit method and is not callable"),
        (NoScores(), "none of score_samples, decision_function and decision_scores_"),
        (lambda X: X, r"returned scores of shape \(80, 3\); one score per row, shape \(80,\)"),
        (lambda X: X[:5, 0], r"shape \(5,\)"),
        (lambda X: np.where(np.arange(len(X)) == 3, np.nan, 1.0), "'it' returned nan for row 3"),
        (lambda X: np.full(len(X), np.inf), "returned inf for row 0"),
        (lambda X: ["x"] * len(X), "not one number per row"),
    ],
)
def test_bad_detectors_are_named(detector, message, rows):
    with pytest.raises(ValueError, match=message):
        fit_foreign("it", detector, rows[0], seed=0)


def test_lists_mix_freely_and_names_stay_unique(rows):
    X, new = rows
    mixed = [("mine", KNN()), IsolationForest(), IsolationForest(n_estimators=7), "paper", _norm]
    pool, raw = fit_pool(mixed, X, seed=1)
    assert pool.names[:3] == ("mine", "isolationforest", "isolationforest_2")
    assert pool.names[3] == "lof_5"
    assert pool.names[-1] == "_norm"
    assert raw.shape == (80, 22)
    assert pool.score(new).shape == (10, 22)


def _norm(X):
    return np.linalg.norm(X, axis=1)


def test_paper_pool_has_the_papers_eighteen(rows):
    pool, raw = fit_pool("paper", rows[0], seed=0)
    assert len(pool.names) == 18
    assert pool.names == (
        *(f"lof_{k}" for k in (5, 10, 15, 20, 25, 30)),
        *(f"knn_{k}" for k in (2, 4, 6, 8, 10)),
        *(f"iforest_{n}" for n in (25, 50, 75, 100, 125, 150, 175)),
    )
    np.testing.assert_array_equal(pool.score(rows[0]), raw)


def test_precomputed_scores_pass_through(rows):
    pool, raw = fit_pool("precomputed", rows[0], seed=0)
    np.testing.assert_array_equal(raw, rows[0])
    np.testing.assert_array_equal(pool.score(rows[1]), rows[1])


@pytest.mark.parametrize(
    ("detectors", "message"),
    [
        ("papers", "'papers' is unknown; known names: 'paper', 'diverse', 'default', 'precomputed'"),
        ([], "empty list"),
        (IsolationForest(), "put a single detector into a list"),
        ([("a", 1, 2)], r"a tuple must be \(name, detector\)"),
        (["nope"], "'nope' is unknown"),
    ],
)
def test_bad_pools_are_refused(detectors, message, rows):
    with pytest.raises(ValueError, match=message):
        fit_pool(detectors, rows[0], seed=0)
