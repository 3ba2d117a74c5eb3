import pandas as pd
import pytest

from evenout.reproduce.claims import PAPER_AUC, judge

WEIGHTED, UNWEIGHTED = "weighted", "unweighted"


def verdict(points, claim):
    return {c.id: c for c in judge(points)}[claim].verdict


def ids(points):
    return [c.id for c in judge(points)]


def flat(length=5):
    return {"f1": range(length), "f2": range(length, 0, -1), "bias": range(length, 0, -1), "negative": [0] * length}


def test_a_verdict_counts_settings(setting):
    good, bad = setting(), setting("german", weighted={"f2": [4.0, 5.0, 2.0, 1.0]})
    assert verdict(good, "A1") == "holds"
    assert verdict(bad, "A1") == "does not hold"
    both = {c.id: c for c in judge(pd.concat([good, bad]))}["A1"]
    assert (both.verdict, both.held, both.tested) == ("holds in 1 of 2", 1, 2)
    assert "German Credit (maximum, group)" in both.details


@pytest.mark.parametrize("framework", [WEIGHTED, UNWEIGHTED])
@pytest.mark.parametrize("broken", [{"f1": [1.0, 3.0, 2.9, 4.0]}, {"f2": [4.0, 2.0, 3.0, 1.0]}])
def test_a1_asks_every_repeat_and_both_frameworks(setting, framework, broken):
    assert verdict(setting(repeats=3), "A1") == "holds"
    only_last = setting(repeats=3, **{framework: lambda repeat: broken if repeat == 2 else {}})
    assert verdict(only_last, "A1") == "does not hold"


def test_a2_asks_for_a_lower_end_and_a_positive_correlation(setting):
    assert verdict(setting(), "A2") == "holds"
    assert verdict(setting(weighted={"auc": [0.6, 0.7, 0.8, 0.9]}), "A2") == "does not hold"
    # Lower at the end, but rising nearly all the way: Spearman's correlation is exactly 0.
    late = flat() | {"auc": [0.90, 0.91, 0.92, 0.93, 0.89]}
    assert verdict(setting(weighted=late), "A2") == "does not hold"
    # Falling nearly all the way, but higher at the end.
    up = flat() | {"auc": [0.90, 0.89, 0.88, 0.87, 0.91]}
    assert verdict(setting(weighted=up), "A2") == "does not hold"


def test_a2_takes_the_median_repeat_of_the_weighted_framework(setting):
    rising = {"auc": [0.6, 0.7, 0.8, 0.9]}
    assert verdict(setting(repeats=3, weighted=lambda r: rising if r == 0 else {}), "A2") == "holds"
    assert verdict(setting(repeats=3, weighted=lambda r: rising if r > 0 else {}), "A2") == "does not hold"
    assert verdict(setting(unweighted=rising), "A2") == "holds"


def test_a2a_forgives_a_small_rise_only(setting):
    assert verdict(setting(weighted={"auc": [0.9, 0.8, 0.8009, 0.6]}), "A2a") == "holds"
    assert verdict(setting(weighted={"auc": [0.9, 0.8, 0.8011, 0.6]}), "A2a") == "does not hold"
    # Two rises of which each is small count together.
    assert verdict(setting(weighted={"auc": [0.9, 0.8, 0.8006, 0.8012]}), "A2a") == "does not hold"


def test_a2b_is_about_breast_cancer_under_group_fairness(setting):
    rising = {"auc": [0.6, 0.7, 0.8, 0.9]}
    assert verdict(setting("breastw", weighted=rising), "A2b") == "holds"
    assert verdict(setting("breastw"), "A2b") == "does not hold"
    assert "A2b" not in ids(setting("breastw", fairness="individual", weighted=rising))
    assert "A2b" not in ids(setting("pima", weighted=rising))


def test_a2c_is_about_mammography_under_individual_fairness(setting):
    wavy = {"auc": [0.9, 0.8, 0.85, 0.7]}
    assert verdict(setting("mammography", fairness="individual", weighted=wavy), "A2c") == "holds"
    assert verdict(setting("mammography", fairness="individual"), "A2c") == "does not hold"
    assert "A2c" not in ids(setting("mammography", fairness="group", weighted=wavy))


def test_a2d_keeps_to_good_targets(setting):
    rising = {"auc": [0.6, 0.7, 0.8, 0.9]}
    assert verdict(setting(target=0.8, average=0.8), "A2d") == "holds"
    assert verdict(setting(target=0.8, average=0.8, weighted=rising), "A2d") == "does not hold"
    assert "A2d" not in ids(setting(target=0.79, average=0.8))
    mixed = pd.concat([setting(), setting("german", target=0.5, average=0.8, weighted=rising)])
    assert verdict(mixed, "A2d") == "holds"


def test_a3_compares_medians_of_cof(setting):
    """cof = (4 - f2) / (0.9 - auc): 10, 20 and 30 in the medians below."""
    low = [(3.0, 0.8), (3.0, 0.8), (0.0, 0.899)]
    high = [(2.0, 0.8), (2.0, 0.8), (3.9, 0.8)]
    assert verdict(setting(random={WEIGHTED: low, UNWEIGHTED: high}), "A3") == "holds"
    assert verdict(setting(random={WEIGHTED: high, UNWEIGHTED: low}), "A3") == "does not hold"
    assert verdict(setting(random={WEIGHTED: low, UNWEIGHTED: low}), "A3") == "does not hold"


def test_a3_leaves_out_alphas_at_which_auc_has_not_moved(setting):
    low = [(3.0, 0.8), (0.0, 0.9), (0.0, 0.9), (0.0, 0.9)]
    high = [(2.0, 0.8)] * 4
    assert verdict(setting(random={WEIGHTED: low, UNWEIGHTED: high}), "A3") == "holds"


def test_a3a_compares_absolute_values(setting):
    negative, small = [(2.0, 1.0)], [(3.0, 0.8)]  # cof -20 and 10
    points = setting(random={WEIGHTED: negative, UNWEIGHTED: small})
    assert verdict(points, "A3") == "holds"
    assert verdict(points, "A3a") == "does not hold"
    assert verdict(setting(random={WEIGHTED: small, UNWEIGHTED: negative}), "A3a") == "holds"


def test_a3b_asks_whether_the_repeats_agree(setting):
    low, high = [(3.0, 0.8)], [(2.0, 0.8)]
    same = setting(repeats=3, random={WEIGHTED: low, UNWEIGHTED: high})
    turned = setting(repeats=3, random={WEIGHTED: high, UNWEIGHTED: low})
    torn = setting(repeats=3, random={WEIGHTED: lambda r: low if r else high, UNWEIGHTED: [(2.5, 0.8)]})
    assert [verdict(points, "A3b") for points in (same, turned, torn)] == ["holds", "holds", "does not hold"]


def test_a3c_compares_auc_at_equal_scale_free_bias(setting):
    # The unweighted framework goes just as far for more AUC, at other alphas: only the bias counts.
    better = {"bias": [4.0, 3.0, 2.0, 1.0], "auc": [0.9, 0.85, 0.8, 0.75]}
    assert verdict(setting(weighted=better), "A3c") == "holds"
    assert verdict(setting(unweighted=better), "A3c") == "does not hold"
    faster = {"bias": [4.0, 1.0, 0.9, 0.8], "auc": [0.9, 0.8, 0.79, 0.78]}
    assert verdict(setting(weighted=faster), "A3c") == "holds"


def test_a3c_leaves_out_settings_whose_scale_free_bias_hardly_falls(setting):
    still = {"bias": [4.0, 3.9, 3.85, 3.9]}
    assert "A3c" not in ids(setting(weighted=still))
    assert "A3c" not in ids(setting(unweighted={"bias": [4.0, 4.5, 5.0, 5.5]}))


@pytest.mark.parametrize(("claim", "fairness"), [("C1", "group"), ("C2", "individual")])
def test_c1_and_c2_ask_for_half_of_the_scale_free_bias(setting, claim, fairness):
    half, less = {"bias": [4.0, 3.0, 2.5, 2.0]}, {"bias": [4.0, 1.0, 2.0, 2.1]}
    assert verdict(setting(fairness=fairness, weighted=half), claim) == "holds"
    assert verdict(setting(fairness=fairness, weighted=less), claim) == "does not hold"
    assert ("C2" if claim == "C1" else "C1") not in ids(setting(fairness=fairness))


def test_c3_asks_for_no_negative_weight_at_both_ends(setting):
    assert verdict(setting(weighted={"negative": [0, 7, 7, 0]}), "C3") == "holds"
    assert verdict(setting(weighted={"negative": [1, 0, 0, 0]}), "C3") == "does not hold"
    assert verdict(setting(weighted={"negative": [0, 0, 0, 1]}), "C3") == "does not hold"


def test_b1_sets_breast_cancer_beside_the_paper(setting):
    def points(greedy, maximum, average):
        parts = [
            setting("breastw", base, average=average, weighted={"auc": [auc, 0.5, 0.4, 0.3]})
            for base, auc in (("maximum", maximum), ("greedy", greedy))
        ]
        return pd.concat(parts)

    assert verdict(points(**PAPER_AUC), "B1") == "holds"
    assert verdict(points(0.75, 0.915, 0.9784), "B1") == "holds"
    assert verdict(points(0.749, 0.8954, 0.9784), "B1") == "holds in 2 of 3"
    assert verdict(points(0.5, 0.5, 0.5), "B1") == "does not hold"
    assert "B1" not in ids(setting())


def test_all_claims_are_stated_with_their_rules_in_order(setting):
    both = [
        setting(name, fairness=fairness) for name in ("breastw", "mammography") for fairness in ("group", "individual")
    ]
    claims = judge(pd.concat(both))
    assert [c.id for c in claims] == [
        "A1", "A2", "A2a", "A2b", "A2c", "A2d", "A3", "A3a", "A3b", "A3c", "B1", "C1", "C2", "C3",
    ]  # fmt: skip
    assert all(c.statement and c.rule and c.details for c in claims)
    assert {c.origin for c in claims} == {"paper", "added"}


def test_details_of_the_exceptions_give_the_range_over_the_repeats(setting):
    def rising(repeat):
        return {"auc": [0.6, 0.7, 0.8, 0.9 + repeat / 100]}

    details = {c.id: c.details for c in judge(setting("breastw", repeats=3, weighted=rising))}
    assert details["A2b"] == "Change of AUC over the repeats: maximum +0.3000 to +0.3200."
