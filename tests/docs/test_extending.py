"""The two worked examples of the documentation do all that what comes with the package does."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.out_of_core.engines import Engine, Partition
from evenout.persistence import ModelFileError, load_model, save_model

EXAMPLES = Path(__file__).parents[2] / "docs" / "extending"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    for name in ("own_notion", "own_family"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], [800, 600, 600])
    X = rng.normal(size=(2000, 5))
    X[:, 4] *= 1.0 + 1.5 * (groups == "c")  # which means nothing
    return X, groups


def test_examples_are_short():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 60


def reloaded(model, path):
    save_model(model, path)
    with pytest.raises(ModelFileError, match="it holds objects of") as error:
        load_model(path)
    return load_model(path, trusted=re.findall(r"'([\w.]+)'", str(error.value).split("trusted=")[1]))


def test_a_notion_of_ones_own(table, tmp_path):
    from own_notion import TopParity

    X, groups = table
    model = FairOutlierEnsemble("diverse", fairness=TopParity(), bias_reduction=0.5, random_state=0, standardize=False)
    model.fit(X, sensitive_features=groups)
    assert model.request_met_
    top = model.target_ >= np.quantile(model.target_, 0.8)
    means = [
        np.array([y[top & (groups == g)].mean() for g in "abc"]) / y.std()
        for y in (model.target_, model.outlier_scores_)
    ]
    before, after = (m.var() for m in means)
    assert after < 0.6 * before
    assert model.path_.target_bias("training") == pytest.approx(3 * before, rel=1e-9)  # the mean over pairs
    again = reloaded(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(again.outlier_scores(X), model.outlier_scores(X))
    assert again.at(bias_reduction=0.3).alpha_ == model.at(bias_reduction=0.3).alpha_ < model.alpha_
    mixed = FairOutlierEnsemble(fairness={TopParity(): 2.0, "demographic_parity": 1.0}, alpha=1.0, random_state=0)
    mixed.fit(X, sensitive_features=groups)
    assert mixed.path_.fairness == {"top_parity": 2.0, "demographic_parity": 1.0}


def test_a_notion_of_ones_own_over_partitions(table):
    from own_notion import TopParity

    X, groups = table
    rows = np.array_split(np.arange(2000), 4)
    parts = [Partition(i, f"part {i}", lambda own=own: (X[own], groups[own])) for i, own in enumerate(rows)]
    settings = {"fairness": TopParity(), "alpha": 100.0, "random_state": 0}
    memory = FairOutlierEnsemble(**settings).fit(X, sensitive_features=groups)
    model = FairOutlierEnsemble(**settings).fit_partitions(Engine(parts, X[:0]))
    np.testing.assert_allclose(model.weights_, memory.weights_, rtol=1e-8)


def test_a_family_of_ones_own(table, tmp_path):
    from own_family import RandomProjections

    X, groups = table
    model = FairOutlierEnsemble(["paper", ("projections", RandomProjections())], alpha=10.0, random_state=0)
    model.fit(X, sensitive_features=groups)
    assert model.detector_names_[-1] == "projections:direction 8"
    assert len(model.weights_) == 26
    assert model.path_.cross.refitted
    np.testing.assert_allclose(model.outlier_scores(X), model.outlier_scores_, rtol=1e-9)
    again = reloaded(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(again.outlier_scores(X + 0.1), model.outlier_scores(X + 0.1))


def test_scores_that_are_no_columns_are_refused(table):
    class Broken:
        def fit_columns(self, X, *, seed, n_threads):  # noqa: ARG002
            return self, np.zeros(len(X))

    with pytest.raises(ValueError, match=r"detector 'broken' returned scores of shape \(2000,\)"):
        FairOutlierEnsemble([Broken()], alpha=1.0).fit(table[0], sensitive_features=table[1])
