import inspect
import re
import warnings

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.core.cells import CrossFit, collect_cells
from evenout.core.intervals import expected_shortfall
from evenout.core.path import (
    LEAST_CORRELATION,
    Choice,
    TradeoffPath,
    choose,
    least_alpha,
    no_gap_message,
    worthwhile_alpha,
)
from evenout.exceptions import NoGapWarning, TargetNotReachedWarning

DP = {"demographic_parity": 1.0}
METHODS = ["anchored", "published"]


@pytest.fixture
def clear(make):
    """Many rows and a gap that the detectors can remove."""
    return TradeoffPath(make((600, 400, 300), gap=1.5, pairs=False).cross, DP)


@pytest.fixture
def stuck(make):
    """A gap that two detectors cannot remove but in small part."""
    return TradeoffPath(make((600, 400, 300), k=2, gap=1.5, pairs=False).cross, DP, noise_aware=True)


@pytest.fixture
def few(make):
    """A clear gap in few rows."""
    return TradeoffPath(make((40, 30), k=8, gap=3.0, pairs=False).cross, DP, noise_aware=True)


@pytest.fixture
def noisy(make):
    """Few rows, and a gap of which all but the last part goes for more than its standard error."""
    return TradeoffPath(make((120, 80), k=8, gap=2.0, seed=3, pairs=False).cross, DP, noise_aware=True)


@pytest.fixture
def even(make):
    path = TradeoffPath(make((80, 60), gap=0.0, seed=1, pairs=False).cross, DP)
    assert not path.gap_detected
    return path


@pytest.mark.parametrize("place", [0.01, 0.5, 40.0])  # of the grid's first alpha, and beyond it
def test_first_step_of_a_measure_is_found(clear, place):
    step, last = place * clear.grid()[0], 0.99 * clear.grid()[-1]

    def measure(alphas):
        return ((alphas >= step) & (alphas < 1e3 * step)) + 2.0 * (alphas >= last)

    assert step <= least_alpha(clear, measure, 1.0) <= step * (1 + 2e-6)
    assert last <= least_alpha(clear, measure, 2.0) <= last * (1 + 2e-6)
    assert least_alpha(clear, measure, 3.0) is None
    assert least_alpha(clear, measure, 0.0) == 0.0


def test_measure_met_exactly_is_met_and_one_that_is_unknown_is_not(clear):
    assert least_alpha(clear, lambda alphas: np.full(len(alphas), 0.5), 0.5) == 0.0
    assert least_alpha(clear, lambda alphas: np.where(alphas > 0, np.nan, 0.4), 0.5) is None
    beyond = clear.grid()[40]
    found = least_alpha(clear, lambda alphas: np.where(alphas < beyond, np.nan, 1.0), 0.5)
    assert found == pytest.approx(beyond, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("asked", [0.3, 0.6])
def test_smallest_alpha_on_training_rows(make, method, asked):
    path = TradeoffPath(make((300, 200, 150), gap=1.5, pairs=False).cross, DP, method=method)
    choice = choose(path, asked, "training")
    assert choice.met
    assert choice.message == ""
    assert choice.alpha == path.alpha_for(asked, "training") > 0
    assert choice.reached == path.reduction(choice.alpha, "training") >= asked
    assert np.isnan(choice.interval).all()
    below = path.reduction(np.linspace(0, choice.alpha * (1 - 1e-5), 200), "training")
    assert (below < asked).all()


@pytest.mark.parametrize("asked", [0.3, 0.6])
def test_smallest_alpha_on_unseen_rows_goes_by_the_estimate_of_less_variance(clear, asked):
    choice = choose(clear, asked, "unseen")
    assert choice.met
    share = 1.0 - clear.choice(np.array([choice.alpha, choice.alpha * (1 - 1e-5)])) / clear.target_bias()
    assert share[0] >= asked > share[1]
    below = 1.0 - clear.choice(np.linspace(0, choice.alpha * (1 - 1e-4), 200)) / clear.target_bias()
    assert (below < asked).all()
    assert choice.reached == clear.reduction(choice.alpha)  # which is what is stated, and another number
    assert choice.reached != share[0]
    assert choice.interval == clear.reduction_interval(choice.alpha)
    assert choice.correlation == clear.correlation(choice.alpha)


def test_request_for_nothing_is_met_by_the_base_score(clear):
    for target in ("training", "unseen"):
        choice = choose(clear, 0.0, target)
        assert (choice.alpha, choice.met) == (0.0, True)
        assert choice.reached == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("target", ["training", "unseen"])
@pytest.mark.parametrize("confidence", [None, 0.9])
def test_no_gap_means_exactly_alpha_zero(even, target, confidence):
    choice = choose(even, 0.8, target, confidence)
    assert choice.alpha == 0.0
    assert not choice.met
    assert np.isnan([choice.reached, *choice.interval]).all()
    assert choice.correlation == 1.0
    assert choice.kind is NoGapWarning
    with pytest.warns(NoGapWarning, match="sampling noise"):
        assert even.alpha_for(0.8, target, confidence=confidence) == 0.0


def pays(path, alphas, i, j, target):
    """Whether going on from one alpha to a larger one gains more than its standard error."""
    gain = path.choice(alphas[i], target) - path.choice(alphas[j], target)
    if target == "training":
        return gain > 1e-9
    cov = path.covariance(alphas[[i, j]])
    return gain > np.sqrt(max(cov[0, 0] + cov[1, 1] - 2 * cov[0, 1], 0.0)) + 1e-9


@pytest.mark.parametrize("target", ["training", "unseen"])
@pytest.mark.parametrize("which", ["stuck", "few", "clear", "noisy"])
def test_no_price_is_paid_for_nothing(request, which, target):
    """From the alpha taken, no larger one that keeps the base score gains more than its standard error."""
    path = request.getfixturevalue(which)
    alphas = np.r_[0.0, path.grid()]
    alphas = alphas[path.correlation(alphas) >= LEAST_CORRELATION]
    found = worthwhile_alpha(path, target)
    place = int(np.flatnonzero(alphas == found)[0])
    assert not any(pays(path, alphas, place, j, target) for j in range(place + 1, len(alphas)))
    for i in {0, place // 2, place - 1} if place else ():
        assert any(pays(path, alphas, i, j, target) for j in range(i + 1, len(alphas)))
    if (which, target) == ("noisy", "unseen"):
        assert place < len(alphas) - 20  # it is the error that stops it, not the correlation


@pytest.mark.parametrize("target", ["training", "unseen"])
def test_one_detector_alone_keeps_its_score(make, target):
    """Any alpha but 0 makes its score smaller and no fairer: what the bias seems to lose is rounding."""
    for seed in range(5):
        rows = make((60, 40, 30), k=1, gap=3.0, seed=seed, pairs=False)
        path = TradeoffPath(rows.cross, DP)
        assert path.gap_detected
        choice = choose(path, 0.5, target)
        assert (choice.alpha, choice.met) == (0.0, False)


def aimed_at(path, asked, target="unseen"):
    """The alpha that a request would take if no price were looked at; None if none is found."""
    base = path.target_bias(target)
    return least_alpha(path, lambda alphas: 1.0 - path.choice(alphas, target) / base, asked)


def test_request_that_is_within_reach_but_not_supported_stops_where_going_on_does_not_pay(stuck):
    asked = 0.99
    aimed, choice = aimed_at(stuck, asked), choose(stuck, asked, "unseen")
    assert aimed is not None
    assert not choice.met
    assert 0 < choice.alpha == worthwhile_alpha(stuck, "unseen", aimed) <= aimed
    alphas = stuck.grid()
    alphas = np.r_[choice.alpha, alphas[(alphas > choice.alpha) & (alphas < aimed)], aimed]
    assert not any(pays(stuck, alphas, 0, j, "unseen") for j in range(1, len(alphas)))
    assert choice.kind is TargetNotReachedWarning


def test_no_score_is_lost_for_a_request_that_is_out_of_reach(make):
    """Where no alpha is found, nothing below a correlation of 0.9 is taken, however much less bias it has."""
    out_of_reach = 0
    for seed in range(8):
        path = TradeoffPath(make((200, 150), k=3, gap=2.0, seed=seed, pairs=False).cross, DP, noise_aware=True)
        for target in ("unseen", "training"):
            if aimed_at(path, 1.0, target) is None:
                out_of_reach += 1
                choice = choose(path, 1.0, target)
                assert not choice.met
                assert choice.correlation >= 0.9
                assert choice.alpha == worthwhile_alpha(path, target)
    assert out_of_reach > 4


def test_published_start_far_from_the_base_score_is_an_answer():
    """Every score on the path correlates with the base score by less than 0.9: its start is taken, not nothing."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], 200)
    S = rng.random((400, 2)) + 0.3 * groups[:, None]
    t = 0.3 * S.sum(axis=1) + rng.random(400)
    cells = collect_cells(S, t, np.ones(400), groups, np.arange(400) % 5, n_groups=2, n_sets=5)
    path = TradeoffPath(CrossFit.of_folds(cells), DP, method="published")
    assert path.gap_detected
    assert (path.correlation(np.r_[0.0, path.grid()]) < 0.9).all()
    assert worthwhile_alpha(path, "unseen") == 0.0
    choice = choose(path, 1.0, "unseen")
    assert (choice.alpha, choice.met) == (0.0, False)


def test_request_that_few_rows_cannot_promise_is_not_met(few):
    """Weights are found, but what is stated of them leaves more than 0.05 missing on average."""
    asked = 0.8
    share = 1.0 - few.choice(np.r_[0.0, few.grid()]) / few.target_bias()
    assert (share >= asked).any()
    choice = choose(few, asked, "unseen")
    alpha = least_alpha(few, lambda alphas: 1.0 - few.choice(alphas) / few.target_bias(), asked)
    missing = expected_shortfall(asked, float(few.reduction(alpha)), few.reduction_error(alpha))
    assert missing > 0.05
    assert not choice.met
    assert choice.alpha == worthwhile_alpha(few, "unseen", alpha)
    assert "cannot be promised on unseen rows" in choice.message


def test_confidence_asks_for_more(clear):
    """The smallest alpha at which the upper bound of b(alpha) - (1 - r) b_0 is not above 0."""
    asked = 0.6
    plain, sure, surer = (choose(clear, asked, "unseen", c) for c in (None, 0.8, 0.95))
    assert plain.alpha < sure.alpha < surer.alpha
    assert sure.met
    assert surer.met
    for choice, reach in ((sure, 0.84), (surer, 1.64)):  # no less than for one alpha that is known beforehand
        cov = clear.covariance(np.array([choice.alpha]))
        change = np.array([1.0, asked - 1.0])
        error = np.sqrt(change @ cov @ change)
        bound = clear.bias(choice.alpha) - (1 - asked) * clear.target_bias() + reach * error
        assert bound < 1e-9


def test_bound_holds_for_all_alphas_at_once(clear):
    """The largest of the correlated errors along the path, in 20,000 draws of our own, stays below the bound."""
    asked, alphas = 0.6, np.r_[0.0, clear.grid()]
    contrast = np.column_stack([np.eye(len(alphas)), np.full(len(alphas), -(1 - asked))])
    cov = contrast @ clear.covariance(alphas) @ contrast.T
    spread = np.sqrt(np.diag(cov))
    draws = np.random.default_rng(1).multivariate_normal(
        np.zeros(len(alphas)), cov, size=20_000, check_valid="ignore", method="eigh"
    )
    reach = np.quantile((draws / spread).max(axis=1), 0.9)
    bound = clear.bias(alphas) - (1 - asked) * clear.target_bias() + reach * spread
    place = int((bound <= 0).argmax())
    alpha = choose(clear, asked, "unseen", 0.9).alpha
    assert alphas[place - 1] * 0.97 < alpha < alphas[place] * 1.03


def test_confidence_that_cannot_be_had_is_said(few):
    choice = choose(few, 0.99, "unseen", 0.99)
    assert not choice.met
    assert "is not reached on unseen rows with confidence 0.99" in choice.message


SENTENCE = re.compile(
    r"^bias_reduction=(?P<asked>[\d.]+) (?:is not reached|cannot be promised) on (?P<rows>unseen|training) rows"
    r"(?: with confidence [\d.]+)?: the estimate is (?P<got>-?[\d.]+)"
    r"(?: \(95 % interval (?:[-\d.]+ to|up to) (?P<high>[\d.]+)\))?, at alpha=(?P<alpha>[\d.e+-]+), (?P<price>.+?)\. "
    r"(?P<advice>(?:More rows would tell; other|Going on would gain less than its own standard error\. Other) "
    r"detectors .+ may reach more\.)$"
)


@pytest.mark.parametrize("target", ["training", "unseen"])
@pytest.mark.parametrize("which", ["stuck", "few"])
def test_message_says_what_where_at_which_price_why_and_what_to_do(request, which, target):
    path = request.getfixturevalue(which)
    choice = choose(path, 1.0, target)
    assert not choice.met
    with pytest.warns(TargetNotReachedWarning) as caught:
        assert choice.announced(" and 81% of the flagged list is kept") is choice
    said = SENTENCE.match(str(caught[0].message))
    assert said, str(caught[0].message)
    assert (said["asked"], said["rows"], said["got"]) == ("1", target, f"{choice.reached:.2f}")
    assert float(said["alpha"]) == pytest.approx(choice.alpha, rel=1e-3)
    assert (said["high"] is None) == (target == "training")
    assert said["price"] == (
        f"where the score's correlation with the base score is {choice.correlation:.2f} "
        "and 81% of the flagged list is kept"
    )
    assert "detectors='diverse'" in said["advice"]
    assert "ScoreRepair" in said["advice"]


def test_message_of_an_interval_without_a_lower_end_can_be_read(few):
    """Where the base score's own bias may be nothing, no share of it is too low."""
    choice = choose(few, 0.99, "unseen")
    assert "inf" not in choice.message
    assert "any value to" not in choice.message
    if np.isinf(choice.interval[0]):
        assert "(95 % interval up to " in choice.message


def test_message_of_no_gap():
    assert no_gap_message(0.3) == (
        "no group gap was found in the base score (p = 0.3 for 'no gap'): what differs between the groups is within "
        "sampling noise, so the scores are the base scores, unchanged. Give {@alpha} to remove bias all the same."
    )
    assert no_gap_message(float("nan")).startswith("no group gap was found in the base score: what differs")
    # A gap that the test finds, but held-out rows do not show: it is not said that there is none.
    assert no_gap_message(0.01) == (
        "the group gap of the base score (p = 0.01 for 'no gap') or the groups are too small to be measured on "
        "held-out rows, so the scores are the base scores, unchanged. Give {@alpha} to remove bias all the same."
    )


def test_choice_without_a_message_is_silent():
    choice = Choice(1.0, 0.8, True, 0.81, (0.7, 0.9), 0.98)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choice.announced(" at any price") is choice


def test_warnings_point_at_the_callers_line(even, stuck):
    for path, category in ((even, NoGapWarning), (stuck, TargetNotReachedWarning)):
        with pytest.warns(category) as caught:
            path.alpha_for(0.99)
        assert caught[0].filename == __file__
        assert caught[0].lineno == inspect.currentframe().f_lineno - 2


def test_warnings_of_a_fit_point_at_the_callers_line():
    rng = np.random.default_rng(0)
    S, groups = rng.random((100, 2)), np.repeat(["a", "b"], 50)
    model = FairOutlierEnsemble("precomputed", random_state=0)
    with pytest.warns(NoGapWarning) as caught:
        model.fit(S, sensitive_features=groups)
    assert caught[0].filename == __file__
    assert caught[0].lineno == inspect.currentframe().f_lineno - 2
    S[:, 0] += 3.0 * (groups == "b")
    with pytest.warns(TargetNotReachedWarning, match="of the flagged list is kept") as caught:
        model.set_params(bias_reduction=1.0, correction="simplex").fit(S, sensitive_features=groups)
    assert caught[0].filename == __file__
    assert caught[0].lineno == inspect.currentframe().f_lineno - 2
    np.testing.assert_array_equal(model.request_met_, False)
