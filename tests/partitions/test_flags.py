"""Flag rates asked for over partitions: solved on the reference, counted among all rows by sketches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from tests.partitions.conftest import Table, local_engine

from evenout import FairOutlierEnsemble, Resemblance
from evenout.core.flags import flag_rates, rate_ratio

LOGISTIC = LogisticRegression()


def total(X):
    return X.sum(axis=1)


def first(X):
    return np.abs(X[:, 0]) + X[:, 0]


def behind(X):
    return -X[:, 1]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    group = rng.choice(3, size=n, p=[0.55, 0.4, 0.05])
    X = rng.normal(size=(n, 3)) + np.array([[0, 0, 0], [0.3, 0.5, 0.2], [0.5, 0.9, -0.2]])[group]
    return Table(pd.DataFrame(X, columns=list("abc")), pd.DataFrame({"group": np.array(["f", "m", "x"])[group]}))


@pytest.fixture(scope="module")
def rows():
    return draw(12_000, 0)


def fit(rows, cuts=4, exact_rows=100_000, **settings):
    by = {"resemblance": Resemblance(LOGISTIC), "both": Resemblance(LOGISTIC, "free")}
    settings["correction"] = by.get(settings.get("correction"), "weights")
    model = FairOutlierEnsemble([total, first, behind], random_state=0, **settings)
    return model.fit_partitions(local_engine(rows, cuts), exact_rows=exact_rows)


def ratios(model, rows):
    codes = pd.Categorical(rows.sensitive["group"]).codes
    return [rate_ratio(flag_rates(y, codes, 3, 0.1)) for y in (model.base_scores(rows.X), model.outlier_scores(rows.X))]


@pytest.mark.parametrize("correction", ["weights", "resemblance", "both"])
def test_flags_are_even_among_all_rows_and_new_ones(rows, correction):
    model = fit(rows, correction=correction, flag_rate_ratio=0.7, reference_size=3000)
    assert model.request_met_
    assert len(model.target_) < 4000 < model.n_rows_
    before, after = ratios(model, draw(40_000, 1))
    assert before < 0.6
    low, high = model.flag_rate_ratio_interval_
    assert low - 0.03 <= after <= high + 0.03
    counted = model.flag_rates_[:, 1]
    told_anew = 1e-9 if correction == "weights" else 0.01  # rows of the reference, by classifiers that have seen them
    assert counted.min() / counted.max() == pytest.approx(ratios(model, rows)[1], abs=told_anew)


def test_what_is_stated_is_counted_among_all_rows(rows):
    """The stated ratio by a slow formula: each row by the weights that were solved without its fold."""
    from evenout.core.content import N_FOLDS
    from evenout.fitting.rows import hashed_folds

    model = fit(rows, flag_rate_ratio=0.7, reference_size=3000)
    V, found = model.path_.fold_weights(np.ones(1), "unseen")[:, 0], model._result
    folds = hashed_folds(rows.X.to_numpy(), 0)
    raw = np.column_stack([detector(rows.X.to_numpy()) for detector in (total, first, behind)])
    codes = pd.Categorical(rows.sensitive["group"]).codes
    flagged = np.zeros(len(raw), dtype=bool)
    for f in range(N_FOLDS):
        outside, inside = raw[folds != f], folds == f
        S = (raw - outside.min(axis=0)) / np.ptp(outside, axis=0)
        base = S.mean(axis=1)
        t = (base - base[folds != f].min()) / np.ptp(base[folds != f])
        y = np.column_stack([S, t])[inside] @ V[f]
        flagged[inside] = y > np.quantile(y, 0.9)
    rates = [flagged[codes == g].mean() for g in range(3)]
    low, high = found.flag_ratio.interval
    assert high < 1
    assert np.sqrt(low * high) == pytest.approx(min(rates) / max(rates), rel=0.03)  # in the middle, nearly
    assert low < model.flag_rate_ratio_ < min(rates) / max(rates)


def test_sketches_say_the_same_up_to_their_error(rows):
    exact, sketched = (fit(rows, flag_rate_ratio=0.8, reference_size=3000, exact_rows=n) for n in (10**6, 100))
    assert sketched.flag_rate_ratio_ == pytest.approx(exact.flag_rate_ratio_, abs=0.02)
    np.testing.assert_allclose(sketched.flag_rates_, exact.flag_rates_, atol=0.003)


def test_partitions_do_not_matter(rows):
    one, two = (fit(rows, cuts, correction="resemblance", alpha=100.0, reference_size=3000) for cuts in (2, 7))
    np.testing.assert_allclose(one.weights_, two.weights_, rtol=1e-8)
    np.testing.assert_allclose([*one.lambda_.values()], [*two.lambda_.values()], rtol=1e-8)
    np.testing.assert_allclose(one.flag_rates_, two.flag_rates_, rtol=1e-8)


def test_with_all_rows_in_the_reference_it_is_the_fit_in_memory(rows):
    some = rows.taken(np.arange(2000))
    over = fit(some, correction="both", alpha=50.0)
    memory = FairOutlierEnsemble(
        [total, first, behind], random_state=0, correction=Resemblance(classifier=LOGISTIC, weights="free"), alpha=50.0
    ).fit(some.X, sensitive_features=some.sensitive)
    np.testing.assert_allclose(over.lambda_["m"], memory.lambda_["m"], rtol=1e-6)
    np.testing.assert_allclose(over.weights_, memory.weights_, rtol=1e-6)
