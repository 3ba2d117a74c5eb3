"""Labels that carry a bias: learning from them that raises a gap is said, with what is left beside no labels."""

import warnings

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.exceptions import BiasedLabelsWarning
from evenout.metrics import demographic_parity
from evenout.persistence import load_model, save_model


def draw(n, seed, accused):
    """A tenth are outliers; so many of the innocent in group b are called outliers too."""
    rng = np.random.default_rng(seed)
    groups, outlier = np.where(rng.random(n) < 0.3, "b", "a"), rng.random(n) < 0.1
    X = rng.normal(size=(n, 4)) + np.outer(outlier, [2.0, 1.5, 0.0, 0.0]) + np.outer(groups == "b", [0, 0, 1.0, -0.7])
    called = outlier | ((groups == "b") & (rng.random(n) < accused))
    return X, groups, called.astype(float)


def fitted(accused, seed=1):
    X, groups, labels = draw(3000, seed, accused)
    model = FairOutlierEnsemble("precomputed", learn=True, random_state=0)
    return model.fit(X, sensitive_features=groups, labels=labels)


def test_labels_that_raise_the_gap_are_told_with_both_reductions(tmp_path):
    with pytest.warns(BiasedLabelsWarning, match="is gone from the fair score, and what is left is .* without labels"):
        model = fitted(0.15)
    before, after = model.label_gap_
    gone = model.outcome_.reduction_without_labels
    assert after > 2 * before
    assert gone == pytest.approx(1 - (1 - model.bias_reduction_) * after / before)
    X, groups, _ = draw(60_000, 9, 0.15)
    untaught = FairOutlierEnsemble("precomputed", alpha=0.0, random_state=0).fit(
        X[:3000], sensitive_features=groups[:3000]
    )
    now, then = (
        demographic_parity(score(X), sensitive_features=groups, scale_free=True)
        for score in (model.outlier_scores, untaught.base_scores)
    )
    assert (then, now) == (
        pytest.approx(before, abs=0.02),
        pytest.approx((1 - model.bias_reduction_) * after, abs=0.02),
    )
    assert "Learning from labels has raised the gap between groups: what is left is" in model.outcome_.words
    save_model(model, tmp_path / "model.skops")
    assert load_model(tmp_path / "model.skops").outcome_ == model.outcome_


def test_honest_labels_are_not_told():
    for seed in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", BiasedLabelsWarning)
            assert fitted(0.0, seed).outcome_.reduction_without_labels is None
