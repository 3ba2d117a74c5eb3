"""What is said of a fit claims no more than its figures support."""

from dataclasses import replace

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.cli.outcome import Outcome
from evenout.cli.sentences import gap_sentence, request_sentence, small_groups_sentence


@pytest.fixture(scope="module")
def outcome():
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b"], 400)
    X = rng.gamma(2.0, size=(400, 3)) + (groups == "b")[:, None]
    model = FairOutlierEnsemble("precomputed", alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    model.flag_rates_ = np.array([[0.05, 0.10], [0.15, 0.10]])
    return replace(Outcome.of(model), unseen_estimate="everything refitted")


def asked(outcome, reached, interval, met, **request):
    given = {"bias_reduction": 0.8} if not set(request) - {"confidence", "target"} else {}
    return replace(
        outcome,
        request={**given, "target": "unseen", "confidence": None, **request},
        request_met=met,
        gap_detected=not np.isnan(reached),
        bias_reduction=reached,
        bias_reduction_interval=interval,
    )


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("reached", "interval", "met", "request_", "text"),
    [
        (0.79, (0.604, 0.9), True, {}, "Removed 79% of the gap between groups on unseen rows (95% interval 60% to "
         "90%): this supports the 80% asked for."),
        (0.62, (-0.22, 1.0), False, {}, "Removed 62% of the gap between groups on unseen rows (95% interval -22% to "
         "100%): this cannot tell whether the 80% asked for is reached."),
        (0.4, (-INF, 1.0), False, {}, "Removed 40% of the gap between groups on unseen rows (95% interval at most "
         "100%): this cannot tell whether the 80% asked for is reached."),
        (0.3, (0.1, 0.5), False, {}, "Removed 30% of the gap between groups on unseen rows (95% interval 10% to 50%): "
         "less than the 80% asked for."),
        (1.1, (0.7, 1.0), True, {"confidence": 0.9}, "Removed 100% of the gap between groups on unseen rows (95% "
         "interval 70% to 100%): this supports the 80% asked for with confidence 0.9."),
        (-0.2, (-1.0, 0.3), True, {"alpha": 3.0}, "Widened the gap between groups by 20% on unseen rows (95% interval "
         "-100% to 30%), at the given alpha = 1."),
        (0.8, (NAN, NAN), True, {"target": "training"}, "Removed 80% of the gap between groups on the training rows: "
         "this supports the 80% asked for."),
        (0.5, (0.2, 0.7), False, {"flag_rate_ratio": 0.9}, "Removed 50% of the gap between groups on unseen rows (95% "
         "interval 20% to 70%). A ratio of flag rates of 0.9 is not reached on unseen rows."),
        (NAN, (NAN, NAN), False, {}, "No gap between groups can be told from noise: the scores are the base scores."),
        (NAN, (NAN, NAN), False, {"flag_rate_ratio": 0.9}, "No gap in flag rates can be told from noise: the scores "
         "are the base scores."),
        (NAN, (NAN, NAN), True, {"alpha": 3.0}, "alpha = 1 was given, though no gap between groups can be told from "
         "noise."),
    ],
)  # fmt: skip
def test_the_interval_decides_what_is_said_of_a_request(reached, interval, met, request_, text, outcome):
    assert request_sentence(asked(outcome, reached, interval, met, **request_)) == text


def test_even_flags_may_be_asked_for_where_means_are_even(outcome):
    given = replace(asked(outcome, NAN, (NAN, NAN), True, flag_rate_ratio=0.9), gap_detected=True)
    assert request_sentence(given) == (
        "A ratio of flag rates of 0.9 is reached on unseen rows. No gap between groups can be told from noise."
    )


def test_what_the_weights_alone_have_not_seen_is_said(outcome):
    given = replace(asked(outcome, 0.79, (0.6, 0.9), True), unseen_estimate="weights only")
    assert "on rows that the weights have not seen (95% interval" in request_sentence(given)


def test_nothing_removed_is_said_without_an_interval(outcome):
    nothing = replace(asked(outcome, 0.0, (0.0, 0.0), False), alpha=0.0)
    text = "Nothing was removed, the scores are the base scores: less than the 80% asked for."
    assert request_sentence(nothing) == text


def test_the_gap_is_counted_in_people(outcome):
    n = outcome.groups
    flagged = 0.05 * n["a"] + 0.15 * n["b"]
    beyond = 0.15 * n["b"] - n["b"] * flagged / 400
    assert gap_sentence(outcome).endswith(
        f"apart. {beyond:.0f} of {flagged:.0f} flagged people are there beyond what equal rates would give; "
        "after: 0 of 40."
    )


def test_small_groups_are_named_the_largest_first(outcome):
    assert small_groups_sentence(outcome) == ""
    small = {f"g{i}": i for i in range(1, 9)} | {"long\x1b" * 20: 20}
    text = small_groups_sentence(replace(outcome, left_out_groups=small))
    assert text.startswith("Too few rows to compare: long\N{REPLACEMENT CHARACTER}long")
    assert text.endswith("… (20), g8 (8), g7 (7), g6 (6), g5 (5), 4 more in summary.json.")
