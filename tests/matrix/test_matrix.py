"""Every two options that go together meet in a case whose statements hold in a population; all others are refused.

``benchmarks/matrix.py`` draws each case many times; here each is drawn once, so that its intervals are taken wider.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matrix_design import DOCUMENT, Case, design, every_case, options, page, refusals, rows_needed, rule_of, work
from matrix_people import draw
from matrix_places import ASKED, state

WIDER = 1.7  # times as far from the value as the 95 % interval: 999 of 1000 hold
NEAR = 0.2  # where no interval is stated
QUIET = {"given", "notion", "clusters", "sample_weight", "correction"}  # options that could be ignored without a word
COULD_BE_IGNORED = [case for case in options() if case.more.keys() & QUIET or case.groups == "sufficient"]


def drawn(case, n, fresh, seed):
    rng = np.random.default_rng(seed)
    return draw(case, n, rng), draw(case, fresh, rng, sampled=False)


def marked(case):
    """What takes more than some tenths of a second to draw and fit is long."""
    return pytest.param(case, marks=pytest.mark.long if work(case) > 6_000 else ())


@pytest.mark.parametrize("case", list(map(marked, design())), ids=str)
def test_what_is_said_holds_in_the_population(case):
    n = rows_needed(case)
    found = state(case, *drawn(case, n, 6 * n, 0))
    assert found.claims
    for claim in found.claims:
        assert np.isfinite(claim.value), claim
        if np.isnan(claim.low):
            assert claim.value == pytest.approx(claim.truth, abs=NEAR), claim
        else:
            middle = min(claim.value, claim.high)
            low, high = middle - WIDER * (middle - claim.low), middle + WIDER * (claim.high - middle)
            assert low <= claim.truth <= max(high, claim.high), claim
    assert not found.alarm
    assert not (found.met and found.unknown)
    if case.notion == "opportunity, some" and case.request != "alpha":
        assert found.unknown or "label_propensity" in found.shown
    if found.met and case.request != "alpha":
        about = {claim.name: claim for claim in found.claims}.get(case.request)
        assert about is None or np.isnan(about.low) or about.low >= (ASKED if case.groups == "probable" else ASKED / 2)


@pytest.mark.parametrize("case", refusals(), ids=str)
def test_what_does_not_go_together_is_refused_in_one_line(case):
    rule = rule_of(case)
    with pytest.raises(ValueError, match=" ") as caught:
        state(case, *drawn(case, 1500, 500, 0))
    told = str(caught.value)
    assert "\n" not in told
    for words in rule.words:
        assert any(word in told for word in words.split("|")), told


@pytest.mark.parametrize("case", COULD_BE_IGNORED, ids=str)
def test_no_option_is_accepted_and_ignored(case):
    """On the same rows, something that is said differs from what is said without the option."""
    without = Case(place=case.place)
    if case.groups == "sufficient":
        without = replace(without, groups="probable")
    if case.notion == "opportunity, propensity":
        without = replace(without, notion="opportunity, some")
    rows = drawn(case, 600, 200, 1)
    assert state(case, *rows).fingerprint() != state(without, *rows).fingerprint()


def test_every_two_options_that_go_together_meet():
    def pairs(cases):
        return {pair for case in cases for pair in combinations(vars(case).items(), 2)}

    measured = [case for case in every_case() if rule_of(case) is None]
    assert pairs(design()) == pairs(measured)


def test_the_page_says_what_goes_with_what():
    told = DOCUMENT.read_text()
    assert page(told) == told, "run: python tests/matrix/matrix_design.py"
