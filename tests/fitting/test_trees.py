"""Trees as plain arrays say what the classifier says, and no file can lead a walk astray."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from evenout.fitting.resemblance import Boosted, Calibration, FittedResemblance, GroupClassifier
from evenout.storage.archive import ModelFileError
from evenout.storage.walker import describe, read, sound


def _fitted(n_classes, missing=False, **settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = rng.integers(n_classes, size=600) * 3
    X[:, 0] += y
    if missing:
        X[rng.random(600) < 0.2, 1] = np.nan
    options = {"categorical_features": None, "early_stopping": False, "random_state": 0, "max_iter": 12, **settings}
    return HistGradientBoostingClassifier(**options).fit(X, y), X


def _resemblance(trees):
    """Of one classifier of seven classes."""
    groups = np.arange(7)
    return FittedResemblance((GroupClassifier(groups, trees, Calibration(1.0, np.zeros(7)), np.ones(7)),), 7)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_probabilities_are_those_of_the_classifier(n_classes, missing):
    classifier, X = _fitted(n_classes, missing)
    trees = Boosted.of(classifier)
    np.testing.assert_array_equal(trees.classes_, classifier.classes_)
    np.testing.assert_allclose(trees.predict_proba(X), classifier.predict_proba(X), rtol=1e-13)
    assert len(trees.predict_proba(X[:0])) == 0
    one = np.concatenate([trees.predict_proba(X[i : i + 1]) for i in range(20)])
    np.testing.assert_array_equal(one, trees.predict_proba(X[:20]))  # each row by itself


def test_other_classifiers_stay_as_they_are():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(2, size=60)
    assert Boosted.of(LogisticRegression().fit(X, y)) is None
    X[:, 1] = rng.integers(3, size=60)
    categories = HistGradientBoostingClassifier(categorical_features=[1], max_iter=3).fit(X, y)
    assert Boosted.of(categories) is None


def test_they_come_back_from_plain_data():
    classifier, X = _fitted(3)
    trees = Boosted.of(classifier)
    again = read(Boosted, describe(trees), "model")
    _resemblance(again).fits(4)
    np.testing.assert_array_equal(again.predict_proba(X), trees.predict_proba(X))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("left", lambda a: np.where(a > 0, 1, 0)),  # a child before its parent: a walk without end
        ("right", lambda a: a + 10**6),
        ("feature", lambda a: a + 4),
        ("first", lambda a: a - 1),
        ("first", lambda a: a[:-1]),
        ("value", lambda a: a * np.nan),
        ("classes_", lambda a: a * 0),
        ("start", lambda a: a[:1]),
        ("missing_left", lambda a: a.astype(float)),
    ],
)
def test_damaged_trees_are_refused(name, change):
    data = describe(Boosted.of(_fitted(3)[0]))
    data[name] = change(data[name])
    with pytest.raises(ModelFileError, match=r"its model\."):
        sound("model", lambda: _resemblance(read(Boosted, data, "model")).fits(4))
