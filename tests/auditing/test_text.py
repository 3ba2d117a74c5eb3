import numpy as np
import pytest

from evenout.auditing import audit
from evenout.auditing.text import shown


def verdict(gap, n=400, seed=0, **more):
    rng = np.random.default_rng(seed)
    groups = np.repeat(["a", "b"], n // 2)
    result = audit(
        rng.normal(size=n) + gap * (groups == "b"),
        sensitive_features=groups,
        **{"resamples": 400, **more},
    )
    return result, result.verdict


def test_a_clear_gap_is_stated_with_who_and_how_much():
    _, sentences = verdict(1.0)
    assert sentences[0].startswith("Scores differ between groups: the mean of 'b' is 0.")
    assert "standard deviations above that of 'a', more than chance explains (p = 0.002" in sentences[0]
    assert sentences[1].startswith("Flag rates differ by more than chance explains (p = 0.002; corrected 0.0")
    assert "): 'a' is flagged" in sentences[1]


def with_flags(flagged, sizes, names="pqrs"):
    """Scores of which so many of each group are flagged, all else alike."""
    groups = np.repeat(list(names[: len(sizes)]), sizes)
    place = np.concatenate([np.arange(n) for n in sizes])
    top = place < np.repeat(flagged, sizes)
    return top + np.random.default_rng(0).random(len(groups)), groups


def test_a_small_group_does_not_hide_a_difference():
    """Chi-square has p = 4e-5 here; the permuted ratio of the lowest to the highest rate does not reject."""
    scores, groups = with_flags((17, 36, 14, 133), (88, 219, 115, 1572))
    result = audit(scores, sensitive_features=groups)
    assert result.flagged_counts.tolist() == [17, 36, 14, 133]
    assert result.get("flag_rate_test").p <= 0.002
    assert result.verdict[1].startswith("Flag rates differ by more than chance explains")
    ratio = result.get("flag_rate_ratio")
    assert (ratio.p, ratio.p_adjusted) == (
        result.get("flag_rate_test").p,
        result.get("flag_rate_test").p_adjusted,
    )
    assert ratio.high < 0.95


def test_no_detected_gap_is_not_called_no_gap():
    result, sentences = verdict(0.0)
    assert sentences[0].startswith("No gap in mean scores can be told from noise")
    gap, rate = result.get("mean_score_detectable"), result.get("flag_rate_detectable")
    assert (
        f"no proof of evenness: rows like these show a gap of {gap.value:.2g} standard deviations 80% of the time"
        in sentences[0]
    )
    assert sentences[0].endswith("sizes and spreads of the groups as they are).")
    assert sentences[1].startswith("No difference in flag rates can be told from noise")
    assert f"a difference of {100 * rate.value:.1f} percentage points 80% of the time" in sentences[1]


def test_what_no_difference_could_show_is_said():
    """Of 30 rows in a group a twentieth is flagged: even none would not be unusual."""
    scores, groups = with_flags((0, 22), (30, 400))
    result = audit(scores, sensitive_features=groups, contamination=22, resamples=200)
    rate = result.get("flag_rate_detectable")
    assert rate.note.startswith("'p' above 'q'; the other way round even none in 'p' is seen only ")
    assert f"a difference of {100 * rate.value:.1f} percentage points 80% of the time" in result.verdict[1]


def test_both_ratios_are_given_and_named_and_neither_is_judged():
    """8.2 % against 12.6 % flagged: 0.65 of the flags, 0.95 of being spared."""
    scores, groups = with_flags((82, 126), (1000, 1000))
    result = audit(scores, sensitive_features=groups, resamples=50, contamination=0.104)
    sentence = result.verdict[1]
    assert "The lowest flag rate is 0.65 of the highest (interval" in sentence
    assert "the lowest rate of not being flagged is 0.95 of the highest (interval" in sentence
    for text in (repr(result), str(result.to_dict())):
        assert "fifth" not in text
        assert " rule" not in text
    first, second = [line for line in repr(result).splitlines() if line.startswith("lowest / highest")]
    assert " 0.651 " in first
    assert " 0.952 " in second


def test_the_size_of_a_difference_in_flags_is_given_in_rows():
    """Of 40 flagged, equal rates give 10, 10 and 20."""
    scores, groups = with_flags((4, 17, 19), (100, 100, 200))
    few = {"resamples": 20}
    sentence = audit(scores, sensitive_features=groups, **few).verdict[1]
    assert sentence.endswith("Of the 40 flagged rows, 7 in 'q' are beyond what equal rates give.")
    scores, groups = with_flags((2, 14, 24), (100, 100, 200))
    sentence = audit(scores, sensitive_features=groups, **few).verdict[1]
    assert sentence.endswith("Of the 40 flagged rows, 4 in 'q' and 4 in 'r' are beyond what equal rates give.")
    scores, groups = with_flags((10, 10, 20), (100, 100, 200))
    sentence = audit(scores, sensitive_features=groups, **few).verdict[1]
    assert "all groups are flagged 10.0% of the time" in sentence
    assert "Equal rates would flag as many of each group, of 40 in all." in sentence


def test_what_the_correction_undoes_is_called_unsettled():
    for seed in range(40):
        result, sentences = verdict(0.25, seed=seed, n=200)
        gap = result.get("demographic_parity")
        if gap.p <= 0.05 < gap.p_adjusted:
            assert sentences[0].startswith("A gap in mean scores is likely but not settled")
            assert f"p = {gap.p:.3f}; corrected {gap.p_adjusted:.3f}" in sentences[0]
            return
    pytest.fail("no seed gave a p-value between the two")


def test_labels_and_strata_have_their_sentence():
    rng = np.random.default_rng(0)
    groups, y, strata = rng.choice(["a", "b"], 600), rng.integers(0, 2, 600), rng.integers(0, 3, 600)
    scores = rng.normal(size=600) + 1.5 * y * (groups == "b")
    result = audit(scores, sensitive_features=groups, labels=y, given=strata, resamples=200)
    assert result.verdict[2].startswith(
        "Outliers are found unevenly, more than chance explains: of the known outliers,"
    )
    assert "A gap remains among rows that are alike in the given columns" in result.verdict[3]
    alike = audit(rng.normal(size=600), sensitive_features=groups, labels=y, given=strata, resamples=200)
    assert alike.verdict[2].startswith("No difference in finding outliers can be told from noise")
    assert "no gap can be told from noise" in alike.verdict[3]


def test_strata_that_hold_one_group_each_leave_nothing_to_compare():
    groups = np.repeat(["a", "b"], 40)
    result = audit(np.arange(80.0), sensitive_features=groups, given=groups, resamples=20)
    assert "nothing can be compared within strata" in result.verdict[2]


def test_the_text_has_a_line_per_group_and_no_line_break_from_a_name():
    rng = np.random.default_rng(0)
    groups = rng.choice(["a\nb\x1b[31m", "long " * 20, "c"], 300)
    text = repr(audit(rng.normal(size=300), sensitive_features=groups, resamples=20))
    lines = text.splitlines()
    assert lines[0] == "Audit of 300 rows in 3 groups, 10% flagged; 95% intervals"
    assert lines[3].startswith("a\\nb\\x1b[31m")
    assert "\x1b" not in text
    assert lines[5].startswith(("long long", "c"))
    assert max(map(len, lines[:6])) <= 110


def test_features_with_the_largest_part_of_the_gap_are_listed():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 7))
    X[:, 3] += 2 * groups
    text = repr(audit(X.sum(axis=1), sensitive_features=groups, X=X, resamples=200))
    _, listed = text.split("part of the gap that goes with a feature")
    lines = listed.splitlines()
    assert lines[1].split()[0] == "3"
    assert lines[1].split()[1].endswith("%")
    assert lines[6] == "(2 more)"


def test_labels_in_one_group_alone_leave_nothing_to_compare():
    groups = np.repeat(["a", "b"], 40)
    y = np.r_[np.tile([0, 1], 20), np.zeros(40, dtype=int)]
    result = audit(np.arange(80.0), sensitive_features=groups, labels=y, resamples=20)
    assert result.verdict[2].startswith("Fewer than two groups have known outliers")


def test_names_are_shown_without_control_characters():
    assert shown("a\tb") == "a\\tb"
    assert shown("abcdef", 4) == "abc…"
    assert shown("é日本") == "é日本"
