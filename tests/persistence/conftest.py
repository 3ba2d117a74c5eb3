"""A small table with three groups by two protected columns, and models fitted on it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from evenout import FairOutlierEnsemble, Groups, Individual
from evenout.persistence import save_model
from evenout.tables.encoder import TableEncoder


def make_table(n=80, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)).round(2), columns=["a", "b", "c"])
    frame["home"] = rng.choice(["own", "rent", "boat"], n, p=[0.5, 0.4, 0.1])
    groups = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "old": rng.choice(["no", "yes"], n, p=[0.7, 0.3])})
    wider = 1.0 + 2.0 * (groups["sex"] == "f") + 1.0 * (groups["old"] == "yes")  # and so more outlying
    frame[["a", "b", "c"]] = frame[["a", "b", "c"]].mul(wider, axis=0)
    return frame, groups


def fit_pipeline(**settings):
    frame, groups = make_table()
    table = TableEncoder().fit(frame)
    ensemble = FairOutlierEnsemble(random_state=0, groups=Groups(min_size=5), **settings)
    ensemble.fit(table.transform(frame), sensitive_features=groups)
    return Pipeline([("table", table), ("ensemble", ensemble)])


@pytest.fixture(scope="session")
def pipeline():
    """Every part that a file may hold: neighbours, forest, tails, units, kept ranks, sums over pairs."""
    settings = {"detectors": "diverse", "scaling": "rank", "combination": "aom", "alpha": 2.0}
    settings["standardize"] = True
    return fit_pipeline(fairness={"demographic_parity": 1.0, Individual(1.0): 2.0}, correction="simplex", **settings)


@pytest.fixture(scope="session")
def default_file(tmp_path_factory):
    """A file with decorrelated neighbours, and an average of families."""
    path = tmp_path_factory.mktemp("models") / "default.skops"
    save_model(fit_pipeline(detectors="default", standardize=True, alpha=2.0), path, updatable=True)
    return path


@pytest.fixture(scope="session")
def new_rows():
    return make_table(n=40, seed=1)[0]


@pytest.fixture(scope="session")
def model_file(pipeline, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.skops"
    save_model(pipeline, path, updatable=True)
    return path
