"""Resemblance over partitions: no row is told by a classifier that has seen it, in sums over all rows too."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from tests.partitions.conftest import Table, local_engine

from evenout import FairOutlierEnsemble, Resemblance
from evenout.core.flags import flag_rates, rate_ratio

NAMES = list("abcd")


def length(X):
    return np.log1p((X**2).sum(axis=1))


def first(X):
    return np.abs(X[:, 0]) + X[:, 0]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4)) * (1.0 + 0.3 * group[:, None])
    X[:, 0] += 0.8 * group
    return Table(pd.DataFrame(X, columns=NAMES), pd.DataFrame({"group": np.array(["f", "m"])[group]}))


def fit(rows, classifier, **settings):
    settings = {"correction": "resemblance", "reference_size": 600} | settings
    settings["correction"] = Resemblance(classifier, "free" if settings["correction"] == "both" else None)
    model = FairOutlierEnsemble([length, first], random_state=0, **settings)
    return model.fit_partitions(local_engine(rows, 3))


def bias(y, group):
    means = pd.Series(y).groupby(group).mean()
    return float(means.diff().iloc[-1] ** 2 / y.var())


def gone(model, rows):
    """Share of the base score's bias that is gone among rows."""
    group = rows.sensitive["group"].to_numpy()
    return 1.0 - bias(model.outlier_scores(rows.X), group) / bias(model.base_scores(rows.X), group)


def test_sums_hold_every_row_as_a_classifier_sees_it_that_has_not_seen_the_row():
    rows = draw(1500, 0)
    model = fit(rows, DecisionTreeClassifier(random_state=0), alpha=1.0)
    found = model._result
    by_all = found.scores.scaled(rows.X.to_numpy())
    scores, r = by_all[:, :2].round(9), by_all[:, 2:].copy()
    known = {row.tobytes(): own for row, own in zip(found.S[:, :2].round(9), found.S[:, 2:], strict=True)}
    for i, row in enumerate(scores):
        r[i] = known.get(row.tobytes(), r[i])
    assert 400 < len(known) < 800
    total = found.path.cross.whole.total[0]
    np.testing.assert_allclose(total[0, 3:5], r.sum(axis=0))
    np.testing.assert_allclose(total[3:5, 3:5], r.T @ r)
    assert (np.abs(by_all[:, 2:] - r).max(axis=1) > 0.1).sum() > 50  # a tree that has seen a row says something else


@pytest.mark.filterwarnings("ignore::evenout.exceptions.TargetNotReachedWarning")
@pytest.mark.parametrize("correction", ["resemblance", "both"])
def test_a_classifier_that_remembers_its_rows_promises_no_more_than_new_rows_get(correction):
    forest = RandomForestClassifier(20, random_state=0)
    model, new = fit(draw(2400, 1), forest, correction=correction), draw(20_000, 2)
    low, high = model.bias_reduction_interval_
    assert low - 0.02 <= gone(model, new) <= high + 0.02  # it was .4 where .8 was stated


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::evenout.exceptions.TargetNotReachedWarning")
@pytest.mark.parametrize("asked", ["bias_reduction", "flag_rate_ratio"])
@pytest.mark.parametrize("classifier", [None, RandomForestClassifier(30, random_state=0)])
@pytest.mark.parametrize("correction", ["resemblance", "both"])
def test_intervals_hold_and_what_is_met_is_there(correction, classifier, asked):
    held, short = [], []
    for seed in range(20):
        model = fit(draw(3000, seed), classifier, correction=correction, reference_size=800, **{asked: 0.8})
        new = draw(40_000, 1000 + seed)
        low, high = model.bias_reduction_interval_
        reached = gone(model, new)
        if asked == "flag_rate_ratio":
            codes = pd.Categorical(new.sensitive["group"]).codes
            (low, high), y = model.flag_rate_ratio_interval_, model.outlier_scores(new.X)
            reached = float(rate_ratio(flag_rates(y, codes, 2, 0.1)))
        held.append(low <= reached <= high)
        if model.request_met_:
            short.append(max(0.8 - reached, 0.0))
    assert np.mean(held) >= 0.8
    assert np.mean(short or [0.0]) <= 0.05
