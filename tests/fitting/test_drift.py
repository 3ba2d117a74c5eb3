"""Updates after a drift, against the people of now: what is said is about them, and what they get is that."""

import warnings

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.exceptions import DriftWarning, NoGapWarning, UnknownOutcomeWarning
from evenout.persistence import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore::evenout.exceptions.AgedDetectorsWarning")
OLD, OTHER, TURNED = np.array([[1.0, 0.4, 0.0, 0.0], [0.3, 0.2, 1.2, 0.4], [-0.6, -1.0, -0.2, 0.0]])


def people(n, seed, gap):
    """Scores by four detectors that share a part; group b lies higher by ``gap``."""
    rng = np.random.default_rng(seed)
    groups = np.where(rng.random(n) < 0.3, "b", "a")
    scores = 0.8 * rng.normal(size=n)[:, None] + rng.normal(size=(n, 4))
    return scores + np.outer(groups == "b", gap), groups


def fitted(seed=0, n=8000, **settings):
    S, groups = people(n, seed, OLD)
    return FairOutlierEnsemble("precomputed", random_state=seed, **settings).fit(S, sensitive_features=groups)


def update(model, n, seed, gap):
    S, groups = people(n, 1000 + seed, gap)
    return model.update(S, sensitive_features=groups)


def bias(y, groups):
    return (y[groups == "a"].mean() - y[groups == "b"].mean()) ** 2 / y.var()


def got(model, gap):
    """Bias of base and fair score among many people of now."""
    S, groups = people(50_000, 10**6, gap)
    return bias(model.base_scores(S), groups), bias(model.outlier_scores(S), groups)


@pytest.mark.parametrize("gap", [OTHER, TURNED], ids=["another gap", "a gap that changes sides"])
def test_what_is_said_is_about_the_people_of_now(gap, tmp_path):
    model = fitted()
    with pytest.warns(DriftWarning, match=r"rows of .*'b' differ .* the last 1,500 rows"):
        update(model, 1500, 0, gap)
    found, (before, after) = model.outcome_, got(model, gap)
    assert found.status in ("on_target", "short")
    assert found.interval[0] < 1 - after / before < found.interval[1]
    assert after < before / 2
    assert (model.n_rows_, found.drift.before, found.drift.now) == (1500, 8000, 1500)
    assert "rows like the last 1,500" in found.words
    assert "'b' changed after the first 8,000 rows" in found.words
    assert f"{found.drift.reached:.0%} of the gap between groups is gone on rows of then and now" in found.words
    save_model(model, tmp_path / "model.skops", updatable=True)
    again = load_model(tmp_path / "model.skops")
    assert again.outcome_ == found
    for one in (model, again):
        update(one, 500, 50, gap)
    assert (model.n_rows_, again.n_rows_, again.outcome_.drift.now) == (2000, 2000, 2000)
    np.testing.assert_array_equal(model.weights_, again.weights_)


@pytest.mark.long
@pytest.mark.parametrize("gap", [OTHER, TURNED], ids=["another gap", "a gap that changes sides"])
def test_intervals_hold_what_the_people_of_now_get(gap):
    off, held, fits = [], 0, 40
    for seed in range(fits):
        model = fitted(seed)
        with pytest.warns(DriftWarning):
            update(model, 1500, seed, gap)
        before, after = got(model, gap)
        reached, (low, high) = 1 - after / before, model.outcome_.interval
        off.append(model.outcome_.reached - reached)
        held += low <= reached <= high
    assert held >= 0.95 * fits - 2.5 * np.sqrt(0.05 * 0.95 * fits)
    assert -0.05 < np.mean(off) < 0.02


def test_flags_are_those_of_now():
    model = fitted(flag_rate_ratio=0.8)
    with pytest.warns(DriftWarning):
        update(model, 1500, 0, OTHER)
    S, groups = people(50_000, 10**6, OTHER)
    flagged = model.predict(S) == -1
    rates = flagged[groups == "a"].mean(), flagged[groups == "b"].mean()
    low, high = model.outcome_.interval
    assert low <= min(rates) / max(rates) <= high
    assert "solved on all of them: the lowest flag rate is" in model.outcome_.words


def test_one_group_alone_cannot_be_solved_for():
    model, (S, groups) = fitted(n=2000), people(1500, 5, 2 * OTHER)
    with pytest.warns(UnknownOutcomeWarning):
        model.update(S[groups == "b"], sensitive_features=groups[groups == "b"])
    assert model.outcome_.doubt == "drift"
    with pytest.warns(DriftWarning):
        model.update(S[groups == "a"], sensitive_features=groups[groups == "a"])
    assert model.n_rows_ == 1500
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "solved on all" not in model.at(bias_reduction=0.5).outcome_.words


def test_a_gap_that_is_gone_is_followed():
    model = fitted()
    with pytest.warns(DriftWarning), pytest.warns(NoGapWarning):
        update(model, 1500, 0, 0 * OLD)
    assert model.outcome_.status == "no_gap"


def test_too_few_rows_of_now_leave_the_outcome_unknown_until_there_are_more(tmp_path):
    model = fitted()
    with pytest.warns(UnknownOutcomeWarning, match=r"rows of .* differ .* more rows will tell"):
        update(model, 70, 0, 2 * OTHER)
    assert (model.outcome_.status, model.outcome_.doubt, model.n_rows_) == ("unknown", "drift", 8070)
    assert "rows of 'a', 'b' have changed" in model.outcome_.words or "rows of 'b' have changed" in model.outcome_.words
    save_model(model, tmp_path / "model.skops", updatable=True)
    model = load_model(tmp_path / "model.skops")
    with pytest.warns(UnknownOutcomeWarning):
        assert model.at(bias_reduction=0.5).outcome_.doubt == "drift"
    with pytest.warns(DriftWarning, match="the last 470 rows"):
        update(model, 400, 1, 2 * OTHER)
    before, after = got(model, 2 * OTHER)
    assert model.outcome_.interval[0] < 1 - after / before < model.outcome_.interval[1]


def test_small_batches_add_up_to_a_drift():
    model, gap = fitted(n=3000), OLD + 0.4
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for seed in range(10):
            update(model, 100, seed, gap)
    assert sum(issubclass(one.category, DriftWarning) for one in told) == 1
    assert model.outcome_.drift.before == 3000


@pytest.mark.parametrize("pool", ["precomputed", pytest.param("paper", marks=pytest.mark.long)])
def test_where_nothing_drifts_nothing_is_said(pool):
    """The rate of false alarms is 5 % at most; of so few updates none."""
    for seed in range(3 if pool == "precomputed" else 20):
        S, groups = people(1000, seed, OLD)
        more, of = people(1000, 100 + seed, OLD)
        with warnings.catch_warnings():
            warnings.simplefilter("error", DriftWarning)
            model = FairOutlierEnsemble(pool, alpha=1.0, random_state=seed).fit(S, sensitive_features=groups)
            model.update(more, sensitive_features=of)
        assert model.outcome_.drift is None
        assert model.n_rows_ == 2000


@pytest.mark.long
def test_false_alarms_of_all_updates_together():
    alarms, fits = 0, 150
    for seed in range(fits):
        model = fitted(seed, 1000, alpha=1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for batch in range(4):
                update(model, 200, 1000 * batch + seed, OLD)
                if model.outcome_.drift is not None:
                    alarms += 1
                    break
    assert alarms <= 0.05 * fits + 2.5 * np.sqrt(0.05 * 0.95 * fits)
