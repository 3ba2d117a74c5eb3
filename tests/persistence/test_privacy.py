"""A model file tells the group of no row unless it is asked to."""

import re

import numpy as np
import pandas as pd
import pytest

from evenout import BlindRepair, FairnessMonitor, FairOutlierEnsemble, GroupProbabilities
from evenout.persistence import load_model, save_model
from evenout.storage.archive import read_plain

N = 601  # rows; no other length in the files is the same
ROWS = np.arange(N)


def table():
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], N, p=[0.5, 0.3, 0.2])
    return rng.gamma(2.0, size=(N, 3)) * (1.0 + (groups == "a"))[:, None], groups


def arrays(value, place=()):
    if isinstance(value, np.ndarray):
        yield place, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from arrays(item, (*place, key))


def told(file, secret):
    """Arrays with an axis of the rows of which one column, by values that repeat, tells more than half of a secret."""
    found = []
    for place, array in arrays(read_plain(file)):
        for axis in np.flatnonzero(np.array(array.shape) == N):
            for column in np.moveaxis(array, axis, 0).reshape(N, -1).T:
                values, codes = np.unique(column, return_inverse=True)
                if len(values) <= N // 2 and _guessed(codes, secret) > 0.5 + 0.5 * _guessed(0 * codes, secret):
                    found.append(place)
    return found


def _guessed(codes, secret):
    """The share of rows whose secret is the most frequent one among rows with the same code."""
    return pd.crosstab(codes, secret).max(axis=1).sum() / N


def probable(groups):
    sure = np.eye(3)[np.unique(groups, return_inverse=True)[1]]
    return GroupProbabilities(pd.DataFrame(0.9 * sure + 0.1 / 3, columns=["a", "b", "c"]))


READY = {"detectors": "precomputed"}
CASES = {
    "groups": ({}, {}),
    "resemblance": ({"correction": "resemblance"}, {}),
    "clusters": (READY, {"clusters": ROWS // 3}),
    "weights": (READY, {"sample_weight": 1.0 + ROWS % 3}),
    "probable": (READY, {"sensitive_features": probable}),
    "even flags": ({**READY, "alpha": None, "flag_rate_ratio": 0.9}, {}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_file_tells_no_group_and_scores_alike(case, tmp_path):
    settings, beside = CASES[case]
    X, groups = table()
    given = {"sensitive_features": groups, **beside}
    given["sensitive_features"] = probable(groups) if callable(given["sensitive_features"]) else groups
    model = FairOutlierEnsemble(**{"alpha": 1.0, "random_state": 0, **settings}).fit(X, **given)
    save_model(model, tmp_path / "m.skops")
    save_model(model, tmp_path / "kept.skops", updatable=True)
    persons = given.get("clusters", groups)
    assert told(tmp_path / "kept.skops", groups), "the test would see a group"
    rows = {place[-1] for place, array in arrays(read_plain(tmp_path / "m.skops")) if N in array.shape}
    assert rows - {"locations", "counts", "k_distance", "density", "scores", "known", "crowd"} == {"S", "target"}
    for secret in (groups, persons):
        assert told(tmp_path / "m.skops", secret) == []
    assert (tmp_path / "m.skops").stat().st_size < (tmp_path / "kept.skops").stat().st_size
    again = load_model(tmp_path / "m.skops")
    for method in ("outlier_scores", "base_scores", "predict", "contributions"):
        np.testing.assert_array_equal(getattr(again, method)(X + 0.1), getattr(model, method)(X + 0.1))
    pd.testing.assert_frame_equal(again.explain(X[:9]).to_frame(), model.explain(X[:9]).to_frame())
    assert str(again.outcome_) == str(model.outcome_)


def test_what_needs_the_groups_says_so_in_one_line(tmp_path):
    X, groups = table()
    model = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    for updatable in (False, True):
        save_model(model, tmp_path / "m.skops", updatable=updatable)
        again = load_model(tmp_path / "m.skops")
        for ask, what in (
            (lambda m: m.update(X, sensitive_features=groups), "an update"),
            (lambda m: m.at(flag_rate_ratio=0.5), "at(flag_rate_ratio=...)"),
            (lambda m: m.costs(), "a table of costs"),
            (FairnessMonitor.of, "model"),
        ):
            if updatable:
                ask(again)
                continue
            with pytest.raises(ValueError, match=rf"^{re.escape(what)} needs the groups .*updatable=True.*$") as error:
                ask(again)
            assert "\n" not in str(error.value)


def test_without_groups_a_model_moves_along_its_path_and_states_no_flag_rates(tmp_path):
    X, groups = table()
    model = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    save_model(model, tmp_path / "m.skops")
    moved, other = load_model(tmp_path / "m.skops").at(alpha=3.0), model.at(alpha=3.0)
    np.testing.assert_array_equal(moved.predict(X), other.predict(X))
    assert moved.bias_reduction_interval_ == other.bias_reduction_interval_
    assert np.isnan(moved.flag_rates_).all()
    assert np.isnan(moved.flag_rate_ratio_)
    save_model(moved, tmp_path / "moved.skops")
    np.testing.assert_array_equal(load_model(tmp_path / "moved.skops").predict(X), other.predict(X))
    model.fit(X, sensitive_features=groups, sample_weight=1.0 + ROWS % 3)
    save_model(model, tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"^at\(\) needs the groups"):
        load_model(tmp_path / "m.skops").at(alpha=3.0)


def test_a_blind_repair_tells_no_group(tmp_path):
    X, groups = table()
    repair = BlindRepair(random_state=0).fit(X.sum(axis=1), X, sensitive_features=groups)
    save_model(repair, tmp_path / "m.skops")
    assert told(tmp_path / "m.skops", groups) == []
    again = load_model(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.transform(X.sum(axis=1), X), repair.transform(X.sum(axis=1), X))
    with pytest.raises(ValueError, match="BlindRepair makes no promise that can be read"):
        FairnessMonitor.of(again)


def test_an_updated_model_comes_back(tmp_path):
    X, groups = table()
    model = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(X[:400], sensitive_features=groups[:400])
    model.update(X[400:], sensitive_features=groups[400:])
    save_model(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(load_model(tmp_path / "m.skops").predict(X), model.predict(X))
