"""What is said of a fit claims no more than its figures support."""

from dataclasses import replace

import numpy as np
import pytest

from evenout import FairOutlierEnsemble
from evenout.cli.messages import one_line
from evenout.cli.show import next_sentence
from evenout.outcome import NOBODY, BeforeAfter, Figures


@pytest.fixture(scope="module")
def outcome():
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b"], 400)
    X = rng.gamma(2.0, size=(400, 3)) + (groups == "b")[:, None]
    model = FairOutlierEnsemble("precomputed", alpha=1.0, random_state=0).fit(X, sensitive_features=groups)
    model.flag_rates_ = np.array([[0.05, 0.10], [0.15, 0.10]])
    return replace(Figures.of(model), unseen_estimate="everything refitted")


def test_what_came_of_the_request_is_said_in_the_words_of_the_outcome(outcome):
    assert outcome.words[-1] == outcome.outcome.words
    assert replace(outcome, groups={"a": 400}).words[-1] == NOBODY


def test_the_gap_is_counted_in_people(outcome):
    n = outcome.groups
    flagged = 0.05 * n["a"] + 0.15 * n["b"]
    beyond = 0.15 * n["b"] - n["b"] * flagged / 400
    assert outcome.words[1] == (
        f"In training, {beyond:.0f} of {flagged:.0f} flagged people were beyond equal rates; now 0."
    )


def test_what_to_try_next(outcome):
    settings = {"flag_rate_ratio": None, "learn": False, "fairness": "demographic_parity"}
    uneven = replace(outcome, flag_rate_ratio_unseen=BeforeAfter(0.4, 0.6))
    even = replace(outcome, flag_rate_ratio_unseen=BeforeAfter(0.4, 0.9))
    flags, labels = "--flag-rate-ratio 0.8 for even flags", "--label COL --learn if some outliers are known"
    assert next_sentence(uneven, settings, known=False) == f"Try next: {flags}; {labels}."
    assert next_sentence(even, settings, known=True) == "Try next: --learn to use the labels."
    assert next_sentence(uneven, settings | {"flag_rate_ratio": 0.7, "learn": True}, known=True) == ""


def test_small_groups_are_named_the_largest_first(outcome):
    assert outcome.words[0] == ""
    small = {f"g{i}": i for i in range(1, 9)} | {"long\x1b" * 20: 20}
    text = one_line(replace(outcome, left_out_groups=small).words[0])
    assert text.startswith("Too few rows to compare: long\N{REPLACEMENT CHARACTER}long")
    assert text.endswith("… (20), g8 (8), g7 (7), g6 (6), g5 (5), 4 more in summary.json.")


def test_flags_that_are_less_even_are_said_before_anything_else(outcome):
    worse = replace(outcome, flag_rate_ratio_unseen=BeforeAfter(0.57, 0.41), correlation=0.9)
    assert worse.flags_verdict.startswith("Flag rates are less even than before")
    assert replace(worse, flag_rate_ratio_unseen=BeforeAfter(0.57, 0.9)).flags_verdict == ""
    assert replace(worse, correlation=1.0).flags_verdict == ""  # the base scores themselves


def test_no_bias_is_printed_outside_its_interval(outcome):
    ends = {"before": (0.01, 0.02), "after": (0.0, 0.004)}
    low = replace(outcome, bias_unseen=BeforeAfter(0.015, -0.0007), bias_unseen_interval=ends)
    assert (low.bias_shown.before, low.bias_shown.after) == (0.015, 0.0)
