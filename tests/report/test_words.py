from dataclasses import replace

import pytest

from evenout import outcome
from evenout.exceptions import NoGapWarning
from evenout.outcome import Outcome
from evenout.report import render, words


def of(kind, asked, reached, status="on_target"):
    """An outcome on unseen rows."""
    aim = 0.8 if asked is None else asked
    return Outcome(status, kind, asked, aim, reached, (reached - 0.05, reached + 0.05))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01234, "0.0123"),
        (-0.00001, "0.0000"),
        (-0.5, "−0.500"),
        (12.34, "12.3"),
        (12345.6, "12,346"),
        (2.33e6, "2.33 × 10⁶"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_numbers_read_well(value, text):
    assert outcome.number(value) == text


def test_alphas_read_well():
    shown = [outcome.scientific(alpha) for alpha in (0.0, 0.5, 300.0, 1234.0, 51273529.0, 1e-5)]
    assert shown == ["0", "0.5", "300", "1,234", "5.13 × 10⁷", "1.00 × 10⁻⁵"]


def test_ranges_say_no_more_than_they_hold():
    assert words.people((1234, 1234), 10) == "1,234"
    assert words.people((0, 9), 10) == "fewer than 10"
    assert words.people((53, 71), 10) == "53–71"
    assert words.ratio_text((0.0, 0.18), "{:.1%}", at_least=False) == "at most 18.0%"
    assert words.ratio_text((0.1021, 0.1022), "{:.1%}", at_least=False) == "10.2%"
    assert words.ratio_text((0.0, 1.0), "{:.1%}", at_least=False) == "not shown"
    assert words.ratio_text((0.0, 0.42)) == "at most 0.42"
    assert words.ratio_text((0.85, 1.0)) == "at least 0.85"
    assert words.ratio_text((0.0, 1.0)) == "not shown"
    assert words.ratio_text((0.7962, 0.7962)) == "0.80"


def test_summary_speaks_of_every_panel(data):
    text = words.step_words(data, data.chosen)["summary"]
    step = data.steps[data.chosen]
    assert "Alpha 3,000 (chosen setting)" in text
    for part in (
        outcome.number(step.score.bias),
        outcome.number(step.score.auc),
        words.ratio_text(step.score.flags.ratio),
        words.ratio_text(step.score.flags.unflagged),
        words.people(step.moves.enter, 10),
    ):
        assert part in text


def test_headline_says_that_alpha_was_given(data):
    assert words.headline(data).tone == "neutral"
    assert "by hand" in words.headline(data).title


def test_headline_says_that_the_request_was_missed(data):
    request = of("bias_reduction", 0.8, 0.63, "short")
    missed = replace(data, gap_detected=True, outcome=request, flag_ratio=(0.5, 0.9))
    headline = words.headline(missed)
    assert headline.tone == "caution"
    assert "not by as much as asked" in headline.title
    assert headline.text.startswith(request.words)
    assert "AUC" in headline.text
    default = replace(missed, outcome=replace(request, asked=None))
    assert "not by as much as aimed at" in words.headline(default).title
    ratio = replace(missed, outcome=of("flag_rate_ratio", 0.9, 0.7, "short"))
    assert "less even than asked" in words.headline(ratio).title
    none = words.headline(replace(ratio, gap_detected=False))
    assert (none.tone, none.title) == ("neutral", "No gap in flag rates was detected")
    assert "between the groups’ flag rates is within sampling noise, so nothing was removed" in none.text
    for other in (missed, ratio, data):
        assert words.headline(replace(other, n_groups=1)).title == "There is nobody to compare"


def test_headline_says_that_even_averages_are_not_even_flags(data):
    met = replace(data, gap_detected=True, outcome=of("bias_reduction", 0.5, 0.5), flag_ratio=(0.5, 0.9))
    flags, before = met.steps[met.chosen].score.flags, met.base.flags
    assert before.ratio[1] < flags.ratio[0] < 0.8
    headline = words.headline(met)
    assert headline.tone == "good"  # no threshold decides on the tone: the request was met, and flags are more even
    assert "Equal averages are not equal flags" in headline.text
    assert f"{words.ratio_text(flags.ratio)} of the highest, before {words.ratio_text(before.ratio)}" in headline.text
    assert f"not being flagged is {words.ratio_text(flags.unflagged)} of the highest" in headline.text


def test_headline_warns_where_flags_have_become_less_even(data):
    """By the figures of the terminal, unseen rows before and after, not by those of the rows shown."""
    met = replace(data, gap_detected=True, outcome=of("bias_reduction", 0.5, 0.5), flag_ratio=(0.57, 0.41))
    headline = words.headline(met)
    assert headline.tone == "caution"
    assert headline.title == "Scores are more even, flags are less even"
    assert headline.text.startswith("Flag rates are less even than before: the lowest is 0.41 of the highest")
    same = words.headline(replace(met, flag_ratio=(0.572, 0.569)))
    assert same.title == "Scores are more even, flags are not"
    assert same.text.startswith("Flag rates are as uneven as before")
    missed = words.headline(replace(met, outcome=of("bias_reduction", 0.5, 0.5, "short")))
    assert missed.text.startswith("Flag rates are less even than before")


def test_a_loss_of_detection_is_said(data):
    assert data.base.auc is not None
    step = data.steps[data.chosen]
    steps = list(data.steps)
    steps[data.chosen] = replace(step, score=replace(step.score, auc=0.492))
    request = of("bias_reduction", 0.5, 0.5)
    told = words.headline(replace(data, gap_detected=True, outcome=request, steps=tuple(steps))).text
    assert "to 0.49, no better than chance at finding known outliers" in told


def test_no_bias_is_shown_outside_its_interval(data):
    low = replace(data.base, bias=-0.0007, interval=(0.0, 0.004))
    assert words.score_words(data, low)["bias"] == "0.0000"


def test_no_rule_is_said_to_be_met_or_failed(data):
    texts = [words.headline(data).text, *(str(words.step_words(data, i)) for i in range(len(data.steps)))]
    assert "fifth" not in " ".join([*texts, render(data)]).lower()


def with_chosen_ratio(data, ratio):
    """The report with another flag-rate ratio at the chosen step."""
    step = data.steps[data.chosen]
    flags = replace(step.score.flags, ratio=(ratio, ratio))
    steps = list(data.steps)
    steps[data.chosen] = replace(step, score=replace(step.score, flags=flags))
    return replace(data, steps=tuple(steps), gap_detected=True)


def test_headline_says_what_was_reached_and_what_it_cost(data):
    means, flags = of("bias_reduction", 0.5, 0.5), of("flag_rate_ratio", 0.9, 0.93)
    even = replace(with_chosen_ratio(data, 0.93), outcome=means, flag_ratio=(0.5, 0.9))
    headline = words.headline(even)
    assert (headline.tone, headline.title) == ("good", "The gap between groups is smaller, as asked")
    assert headline.text.startswith(f"{means.words} Equal averages are not equal flags. Of the rows shown here")
    by_flags = words.headline(replace(even, outcome=flags))
    assert (by_flags.tone, by_flags.title) == ("good", "Flag rates are more even, as asked")
    assert by_flags.text.startswith(f"{flags.words} Of the rows shown here")
    assert "the lowest flag rate is 0.93 of the highest" in by_flags.text


def test_headline_says_that_nothing_had_to_be_done(data):
    first = replace(data, chosen=0, gap_detected=True, outcome=of("flag_rate_ratio", 0.1, 0.4))
    assert first.steps[0].alpha == 0
    assert words.headline(first).title == "Already even enough"


def test_several_notions_together_are_called_unfairness(data):
    both = render(replace(data, fairness=("demographic_parity", "individual")))
    assert "Curve of the unfairness over the settings" in both
    assert "Curve of the gap between similar people over" in render(replace(data, fairness=("individual",)))


def test_headline_says_that_no_gap_was_found(make):
    with pytest.warns(NoGapWarning):
        case = make(gap=0.0, alpha=None, seed=2)
    data = case.collect()
    headline = words.headline(data)
    assert headline.title == "No gap between groups was detected"
    assert "not proof" in headline.text
    assert words.step_words(data, 0)["removed"] == "no gap was detected before"


def test_negative_weights_are_counted(data):
    for place, step in enumerate(data.steps):
        text = words.step_words(data, place)["against"]
        negative = sum(weight < 0 for weight in step.weights)
        assert text.startswith(f"{negative} of 5" if negative else "No detector")
