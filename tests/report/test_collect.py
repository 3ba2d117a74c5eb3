import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score

from evenout import FairLOF, FairOutlierEnsemble
from evenout.core.cells import rank_weights
from evenout.exceptions import SmallGroupWarning
from evenout.metrics import demographic_parity, flag_rate_ratio, flag_rates, misfit, unflagged_rate_ratio
from evenout.report.page import collect


def scores_at(case, alpha):
    """The fair scores of a model refitted at that alpha: a way to them that knows nothing of the report."""
    model = clone(case.model).set_params(alpha=alpha)
    return model.fit(case.X, sensitive_features=case.sensitive).outlier_scores_


def some_steps(data):
    return [0, len(data.steps) // 2, data.chosen, len(data.steps) - 1]


def test_grid_holds_zero_and_the_chosen_alpha(case, data):
    alphas = [step.alpha for step in data.steps]
    assert alphas == sorted(alphas)
    assert alphas[0] == 0
    assert data.steps[data.chosen].alpha == case.model.alpha_ == 3000.0
    assert 38 <= len(alphas) <= 41


def test_flag_rates_and_bias_equal_those_of_a_refitted_model(case, data):
    for place in some_steps(data):
        step, scores = data.steps[place], scores_at(case, data.steps[place].alpha)
        rates = flag_rates(scores, sensitive_features=case.sensitive)
        shown = {group.name: rate for group, rate in zip(data.groups, step.score.flags.rates, strict=True)}
        assert shown == {name: pytest.approx((rate, rate)) for name, rate in rates.items()}
        ratio = flag_rate_ratio(scores, sensitive_features=case.sensitive)
        assert step.score.flags.ratio == pytest.approx((ratio, ratio))
        spared = unflagged_rate_ratio(scores, sensitive_features=case.sensitive)
        assert step.score.flags.unflagged == pytest.approx((spared, spared))
        bias = demographic_parity(scores, sensitive_features=case.sensitive, scale_free=True)
        assert step.score.training_bias == pytest.approx(bias)
        shift = np.average(scores - case.model.target_, weights=rank_weights(case.model.target_))
        assert step.f1 == pytest.approx(misfit(scores - shift, case.model.target_), abs=1e-12)  # a shift is free


def test_unseen_bias_and_weights_are_those_of_the_path(case, data):
    path = case.model.path_
    for place in some_steps(data):
        step = data.steps[place]
        assert step.score.bias == pytest.approx(float(path.bias(step.alpha)))
        assert step.score.interval == pytest.approx(tuple(map(float, path.interval(step.alpha))))
        np.testing.assert_allclose(step.weights, path.weights(step.alpha))
    assert data.base.bias == pytest.approx(path.target_bias("unseen"))
    assert data.base.interval == pytest.approx(path.target_interval())


def test_detection_equals_scikit_learn_with_and_without_ties(case, data, make):
    for place in some_steps(data):
        scores = scores_at(case, data.steps[place].alpha)
        assert data.steps[place].score.auc == pytest.approx(roc_auc_score(case.y, scores))
        assert data.steps[place].score.average_precision == pytest.approx(average_precision_score(case.y, scores))
    tied = make(alpha=0.0)
    tied = type(tied)(tied.model, np.round(tied.X), tied.sensitive, tied.y)
    tied.model.fit(tied.X, sensitive_features=tied.sensitive)
    base = tied.collect().base
    assert len(np.unique(tied.model.target_)) < len(tied.y)
    assert base.auc == pytest.approx(roc_auc_score(tied.y, tied.model.target_))
    assert base.average_precision == pytest.approx(average_precision_score(tied.y, tied.model.target_))


def test_moves_equal_a_comparison_of_ranks(case, data):
    target = case.model.target_
    before = target > np.percentile(target, 90)
    rank_before = rankdata(-target, method="min")
    for place in (len(data.steps) // 2, len(data.steps) - 1):
        moves, scores = data.steps[place].moves, scores_at(case, data.steps[place].alpha)
        now, rank_now = scores > np.percentile(scores, 90), rankdata(-scores, method="min")
        expected = {
            (str(row), bool(before[row]), int(rank_before[row]), int(rank_now[row]))
            for row in np.flatnonzero(before != now)
        }
        shown = {
            (person.id, person.leaves, person.rank, rank)
            for person, rank in zip((data.people[i] for i in moves.listed), moves.ranks, strict=True)
        }
        assert shown == expected
        entering = int((now & ~before).sum())
        assert entering >= 10
        assert moves.enter == (entering, entering)


def test_list_is_capped_at_those_who_move_most(monkeypatch, case, data):
    monkeypatch.setattr("evenout.report.people.LISTED_PEOPLE", 12)
    capped = case.collect()
    assert [p.id for p in capped.people] == [p.id for p in data.people[:12]]
    assert len(data.people) > 12
    furthest = dict.fromkeys((p.id for p in data.people), 0)
    for step in data.steps:
        for i, rank in zip(step.moves.listed, step.moves.ranks, strict=True):
            person = data.people[i]
            furthest[person.id] = max(furthest[person.id], abs(rank - person.rank))
    assert list(furthest.values()) == sorted(furthest.values(), reverse=True)
    assert capped.steps[-1].moves.enter == data.steps[-1].moves.enter


def test_spread_is_the_histogram_of_standardised_scores(case):
    data = case.collect(show_small_cells=True)
    z = (case.model.target_ - case.model.target_.mean()) / case.model.target_.std()
    for g, group in enumerate(data.groups):
        own = z[case.groups == group.name]
        inside = np.clip(own, data.edges[0], np.nextafter(data.edges[-1], 0))
        heights, _ = np.histogram(inside, data.edges, density=True)
        np.testing.assert_allclose(data.base.spread.heights[g], heights, atol=1e-9)
        assert data.base.spread.means[g] == pytest.approx(own.mean())
    assert data.base.spread.threshold == pytest.approx(np.percentile(z, 90))


def test_data_are_plain_and_ready_for_json(data):
    copy = json.loads(json.dumps(asdict(data)))
    assert copy["steps"][data.chosen]["alpha"] == 3000.0
    assert copy["origin"]["date"] == "2026-01-02 03:04 UTC"


def test_settings_name_functions_and_hold_no_address(make):
    def middle(S):
        return np.median(S, axis=1)

    settings = dict(make(combination=middle, random_state=np.random.RandomState(0)).collect().origin.settings)
    assert settings["combination"] == "middle"
    assert "0x" not in settings["random_state"]


def test_size_of_the_gap_in_deviations_and_in_people(case, data):
    target = case.model.target_
    means = [target[case.groups == group.name].mean() for group in data.groups]
    assert data.base.apart == pytest.approx(np.ptp(means) / target.std())
    flagged, rows = target > np.percentile(target, 90), [500, 300, 200]
    counts = [flagged[case.groups == group.name].sum() for group in data.groups]
    beyond = sum(max(0.0, count - 0.1 * n) for count, n in zip(counts, rows, strict=True))
    assert data.base.beyond == pytest.approx(beyond)
    assert data.steps[-1].score.apart < data.base.apart
    assert data.steps[-1].score.beyond < data.base.beyond


@pytest.mark.filterwarnings("ignore::evenout.exceptions.SmallGroupWarning")
def test_small_groups_are_shown_apart_and_take_no_part_in_ratios(make):
    case = make(sizes=(500, 300, 200, 25))
    data, rates = (
        case.collect(show_small_cells=True),
        flag_rates(case.model.target_, sensitive_features=case.groups),
    )
    assert data.left_out_groups == ("sex=m, age=young",)
    assert (data.n_groups, data.groups[-1].name) == (3, "too few people to compare")
    assert data.groups[-1].size == (25, 25)
    compared = [rates[group.name] for group in data.groups[:3]]
    assert data.base.flags.ratio == pytest.approx((min(compared) / max(compared),) * 2)


def test_fewer_than_two_groups_make_a_page_of_one_step_without_claims(make):
    with pytest.warns(SmallGroupWarning):
        case = make(sizes=(500, 20), alpha=None)
    data = case.collect()
    assert [step.alpha for step in data.steps] == [0.0]
    assert (data.base.apart, data.base.beyond, data.base.flags.ratio) == (None, None, (0.0, 1.0))
    assert np.isnan([data.base.bias, *data.base.interval]).all()


def test_a_count_of_flagged_rows_is_shown_as_their_share(make):
    data = make(contamination=123).collect()
    assert data.contamination == 0.123
    assert sum(low for low, _ in data.base.flags.counts) == 123


def test_weights_are_those_of_the_sum_or_of_what_is_added_to_the_base_score(make):
    linear, other = make(), make(combination="maximum")
    assert linear.collect().weights_of_sum
    assert not other.collect().weights_of_sum
    assert make(combination="maximum", correction="published").collect().weights_of_sum
    assert other.collect().steps[0].weights == (0.0,) * 5
    added = other.collect().steps[-1]
    scaled = (other.X - other.X.min(axis=0)) / np.ptp(other.X, axis=0)
    change = scores_at(other, added.alpha) - other.model.target_ - scaled @ added.weights
    assert np.ptp(change) < 1e-9


def test_request_tells_asked_and_reached(make):
    even = make(alpha=None, bias_reduction=0.5, judged_on="training").collect().outcome
    assert (even.kind, even.asked, even.status) == ("bias_reduction", 0.5, "on_target")
    assert even.reached == pytest.approx(0.5, abs=1e-4)
    unseen = make(alpha=None, bias_reduction=0.5)
    request = unseen.collect().outcome
    assert request is unseen.model.outcome_
    ratio = make(alpha=None, flag_rate_ratio=0.5, judged_on="training").collect()
    assert ratio.outcome.reached == pytest.approx(ratio.steps[ratio.chosen].score.flags.ratio[0])
    assert ratio.outcome.reached >= 0.5
    assert make().collect().outcome.status == "fixed"


@pytest.mark.parametrize("constraint", ["nonnegative", "simplex"])
def test_constrained_weights_are_reported_as_such(make, constraint):
    data = make(correction=constraint).collect()
    assert min(min(step.weights) for step in data.steps) >= 0


def test_a_single_step_when_there_is_no_bias_to_remove():
    X = np.random.default_rng(0).normal(size=(400, 3))
    X = np.vstack([X, X])  # both groups hold the same scores
    model = FairOutlierEnsemble("precomputed", alpha=0.0, random_state=0)
    groups = np.repeat(["a", "b"], 400)
    from evenout.report import collect

    data = collect(model.fit(X, sensitive_features=groups), X=X, sensitive_features=groups)
    assert data.steps[0].alpha == 0
    assert data.chosen == 0
    assert data.labels == "absent"


def test_other_rows_than_those_of_the_fit_are_refused(case):
    with pytest.raises(ValueError, match="fitted on 1000 rows"):
        case.collect(X=case.X[:-1], sensitive_features=case.sensitive[:-1], labels=None)
    with pytest.raises(ValueError, match="groups"):
        case.collect(sensitive_features=np.where(case.X[:, 0] > 1, "a", "b"))


def test_wrong_labels_and_ids_are_refused(case):
    with pytest.raises(ValueError, match="labels is '2' in row 0; labels must be 0, or 1 for an outlier"):
        case.collect(labels=np.full(1000, 2))
    with pytest.raises(ValueError, match="ids must hold one id for each of the 1000 rows"):
        case.collect(ids=["a"])


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_detectors_that_use_the_group_are_reported(columns):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    groups = pd.DataFrame({"sex": rng.choice(["f", "m"], 200), "old": rng.choice(["no", "yes"], 200)}).iloc[:, :columns]
    model = FairOutlierEnsemble(
        [FairLOF(5), IsolationForest(n_estimators=5, random_state=0)], alpha=1.0, random_state=0
    )
    model.fit(X, sensitive_features=groups)
    data = collect(model, X=X, sensitive_features=groups, reasons=2, show_small_cells=True)
    assert data.detectors == ("fairlof", "isolationforest")
    assert data.rows == 200
    people = data.parts["reasons"]["stay"]
    assert people[0].reasons
    assert [name for name, *_ in data.parts["why"].features]
