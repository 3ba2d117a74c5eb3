import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from evenout.core.exceptions import NoGapWarning, SmallGroupWarning, TargetNotReachedWarning
from evenout.metrics import demographic_parity, flag_rate_ratio
from evenout.repair import ScoreRepair

SIZES = {2: (300, 120), 4: (400, 150, 90, 40)}


def simulated(sizes=SIZES[4], seed=0, gap=0.7, ties=None):
    """Skewed scores; later groups are shifted and more spread. ``ties`` rounds them to this many decimals."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = rng.gamma(2.0, size=len(groups)) * (1 + 0.5 * gap * groups) + gap * groups
    return (y if ties is None else y.round(ties)), np.array(list("abcd"))[groups]


def literal_repair(y, groups, new, new_groups, strength):
    """The formula, one row at a time: quantile functions as broken lines through (mid-rank, score)."""
    lines = {}
    for g in sorted(set(groups)):
        values = sorted(set(y[groups == g]))
        own = y[groups == g]
        levels = [(np.sum(own < v) + 0.5 * np.sum(own == v)) / len(own) for v in values]
        lines[g] = (values, levels, len(own) / len(y))

    def line(x, xs, ys):
        if x <= xs[0] or len(xs) == 1:
            return ys[0]
        for x0, x1, y0, y1 in zip(xs, xs[1:], ys, ys[1:], strict=False):
            if x <= x1:
                return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        return ys[-1]

    out = []
    for score, g in zip(new, new_groups, strict=True):
        values, levels, _ = lines[g]
        inside = min(max(score, values[0]), values[-1])
        u = line(inside, values, levels)
        moved = sum(share * line(u, lev, val) for val, lev, share in lines.values()) + score - inside
        out.append((1 - strength) * score + strength * moved)
    return out


@pytest.mark.parametrize("ties", [None, 1])
@pytest.mark.parametrize("strength", [0.4, 1.0])
def test_repair_equals_the_formula_row_by_row(ties, strength):
    y, groups = simulated((60, 30, 12), ties=ties)
    repair = ScoreRepair(strength=strength, min_group_size=10).fit(y, sensitive_features=groups)
    new, new_groups = simulated((30, 20, 10), seed=1)
    new = 1.5 * new - 0.5  # beyond both ends of the training scores
    for scores, g in ((y, groups), (new, new_groups)):
        assert_allclose(
            repair.transform(scores, sensitive_features=g),
            literal_repair(y, groups, scores, g, strength),
            rtol=1e-12,
            atol=1e-12,
        )


@pytest.mark.parametrize("seed", range(12))
def test_order_within_each_group_is_kept(seed):
    ties = [None, 1, 0][seed % 3]
    y, groups = simulated(SIZES[2 + 2 * (seed % 2)], seed, ties=ties)
    new, new_groups = simulated(SIZES[2 + 2 * (seed % 2)], seed + 100, ties=ties)
    for strength in (0.3, 1.0):
        repair = ScoreRepair(strength=strength).fit(y, sensitive_features=groups)
        for scores, g in ((y, groups), (3 * new - 2, new_groups)):
            repaired = repair.transform(scores, sensitive_features=g)
            for name in np.unique(g):
                before, after = np.unique(scores[g == name]), []
                for value in before:  # equal scores stay equal
                    found = repaired[(g == name) & (scores == value)]
                    assert np.ptp(found) == 0
                    after.append(found[0])
                assert (np.diff(after) > 0).all()  # and unequal ones unequal, in the same order


@pytest.mark.parametrize("n_groups", [2, 4])
def test_full_strength_gives_equal_distributions(n_groups):
    y, groups = simulated(SIZES[n_groups])
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    names = np.unique(groups)
    for p in names:
        for q in names[names > p]:
            one, two = repaired[groups == p], repaired[groups == q]
            assert ks_2samp(one, two).statistic <= 0.5 / len(one) + 0.5 / len(two) + 1e-12
            assert ks_2samp(y[groups == p], y[groups == q]).statistic > 0.2
    # the common distribution is the barycentre: its quantiles are the mean quantiles of the groups
    levels = np.linspace(0.05, 0.95, 19)
    quantiles = [np.quantile(y[groups == g], levels, method="hazen") for g in names]
    shares = [np.mean(groups == g) for g in names]
    for g in names:
        found = np.quantile(repaired[groups == g], levels, method="hazen")
        assert_allclose(found, shares @ np.array(quantiles), rtol=0.02, atol=0.02)


def test_full_strength_makes_groups_of_equal_size_identical():
    y, groups = simulated((80, 80, 80))
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    a, b, c = (np.sort(repaired[groups == g]) for g in "abc")
    assert_allclose(a, b, rtol=1e-12)
    assert_allclose(a, c, rtol=1e-12)
    assert_allclose(a, np.mean([np.sort(y[groups == g]) for g in "abc"], axis=0), rtol=1e-12)


def test_the_barycentre_moves_scores_the_least():
    y, groups = simulated((80, 80))
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    moved = np.mean((repaired - y) ** 2)
    for other in (
        "a",
        "b",
    ):  # giving all groups the distribution of one of them is even as well, at a higher price
        ranks = np.empty(len(y), dtype=int)
        for g in "ab":
            ranks[groups == g] = y[groups == g].argsort().argsort()
        alternative = np.sort(y[groups == other])[ranks]
        assert moved < np.mean((alternative - y) ** 2)


def test_strength_zero_changes_nothing():
    y, groups = simulated(ties=1)
    new, new_groups = simulated(seed=3)
    repair = ScoreRepair(strength=0.0).fit(y, sensitive_features=groups)
    assert_array_equal(repair.transform(y, sensitive_features=groups), y)
    assert_array_equal(repair.transform(7 * new - 9, sensitive_features=new_groups), 7 * new - 9)


def test_half_strength_is_half_way():
    y, groups = simulated()
    full = ScoreRepair().fit_transform(y, sensitive_features=groups)
    half = ScoreRepair(strength=0.5).fit_transform(y, sensitive_features=groups)
    assert_allclose(half, (y + full) / 2, rtol=1e-12)


def test_rows_beyond_the_training_scores_keep_their_distances():
    y, groups = simulated()
    repair = ScoreRepair(strength=0.6).fit(y, sensitive_features=groups)
    for g in "abcd":
        top = y[groups == g].max()
        ends = repair.transform(top + np.array([0.0, 1.0, 5.0, 1e3]), sensitive_features=[g] * 4)
        assert_allclose(np.diff(ends), [1.0, 4.0, 995.0], rtol=1e-9)


def test_new_rows_of_one_group_alone_and_rows_in_any_order():
    y, groups = simulated()
    repair = ScoreRepair().fit(y, sensitive_features=groups)
    together = repair.transform(y, sensitive_features=groups)
    for g in "abcd":
        alone = repair.transform(y[groups == g], sensitive_features=groups[groups == g])
        assert_array_equal(alone, together[groups == g])
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = ScoreRepair().fit(y[order], sensitive_features=groups[order])
    assert_allclose(shuffled.transform(y, sensitive_features=groups), together, rtol=1e-12)


@pytest.mark.parametrize("params", [{"strength": 0.7}, {"bias_reduction": 0.6}])
def test_units_of_the_score_do_not_matter(params):
    y, groups = simulated()
    one = ScoreRepair(**params).fit(y, sensitive_features=groups)
    two = ScoreRepair(**params).fit(1e3 * y - 50, sensitive_features=groups)
    assert one.strength_ == pytest.approx(two.strength_, rel=1e-7)
    assert one.bias_reduction_ == pytest.approx(two.bias_reduction_, rel=1e-7)
    assert_allclose(
        two.transform(1e3 * y - 50, sensitive_features=groups),
        1e3 * one.transform(y, sensitive_features=groups) - 50,
        rtol=1e-6,
    )


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("request_", [0.3, 0.8])
def test_bias_reduction_is_reached_on_the_training_rows(n_groups, request_):
    y, groups = simulated(SIZES[n_groups])
    repair = ScoreRepair(bias_reduction=request_).fit(y, sensitive_features=groups)
    assert repair.bias_reduction_ == pytest.approx(request_, abs=1e-9)
    assert 0 < repair.strength_ < 1
    repaired = repair.transform(y, sensitive_features=groups)
    measure = {"sensitive_features": groups, "scale_free": True, "corrected": True}
    left = demographic_parity(repaired, **measure) / demographic_parity(y, **measure)
    assert 1 - left >= request_
    assert 1 - left < request_ + 0.1


@pytest.mark.parametrize("sizes", [(400, 60), (300, 80, 40)])
@pytest.mark.parametrize("request_", [0.5, 0.8])
def test_bias_reduction_is_reached_on_fresh_draws(sizes, request_):
    before, after = [], []
    for seed in range(40):
        y, groups = simulated(sizes, seed)
        fresh, fresh_groups = simulated(tuple(5 * n for n in sizes), 1000 + seed)
        repair = ScoreRepair(bias_reduction=request_).fit(y, sensitive_features=groups)
        measure = {"sensitive_features": fresh_groups, "scale_free": True, "corrected": True}
        before.append(demographic_parity(fresh, **measure))
        repaired = repair.transform(fresh, sensitive_features=fresh_groups)
        after.append(demographic_parity(repaired, **measure))
    assert 1 - np.mean(after) / np.mean(before) == pytest.approx(request_, abs=0.05)


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_the_expected_reduction_is_right_on_average(strength):
    """Small groups and a small gap: here the noise that the map has learnt matters, and is foreseen."""
    promised, before, after = [], [], []
    for seed in range(100):
        y, groups = simulated((60, 25), seed, gap=1.0)
        fresh, fresh_groups = simulated((1500, 625), 1000 + seed, gap=1.0)
        repair = ScoreRepair(strength=strength, min_group_size=10).fit(y, sensitive_features=groups)
        measure = {"scale_free": True, "corrected": True}
        base = demographic_parity(y, sensitive_features=groups, **measure)
        if repair.gap_detected_:
            promised.append((1 - repair.bias_reduction_) * base)
            before.append(demographic_parity(fresh, sensitive_features=fresh_groups, **measure))
            repaired = repair.transform(fresh, sensitive_features=fresh_groups)
            after.append(demographic_parity(repaired, sensitive_features=fresh_groups, **measure))
    assert len(promised) > 75
    assert np.mean(promised) == pytest.approx(np.mean(after), abs=0.12 * np.mean(before))
    if strength == 1.0:
        assert np.mean(after) > 0.02 * np.mean(
            before
        )  # not nothing, though no gap is left on the training rows


def test_small_groups_limit_what_can_be_promised():
    y, groups = simulated((60, 12), seed=1, gap=1.5)
    with pytest.warns(TargetNotReachedWarning, match="cannot be promised on unseen rows"):
        repair = ScoreRepair(bias_reduction=1.0, min_group_size=10).fit(y, sensitive_features=groups)
    assert 0.5 < repair.strength_ < 1
    assert 0.5 < repair.bias_reduction_ < 1
    others = [
        ScoreRepair(strength=s, min_group_size=10).fit(y, sensitive_features=groups).bias_reduction_
        for s in np.linspace(0, 1, 21)
    ]
    assert repair.bias_reduction_ >= max(others)


def test_no_gap_changes_nothing_and_says_so():
    y, groups = simulated(SIZES[2], gap=0.0)
    with pytest.warns(NoGapWarning, match="within sampling noise"):
        repair = ScoreRepair(bias_reduction=0.8).fit(y, sensitive_features=groups)
    assert repair.strength_ == 0
    assert not repair.gap_detected_
    assert np.isnan(repair.bias_reduction_)
    assert_array_equal(repair.transform(y, sensitive_features=groups), y)
    assert ScoreRepair().fit(y, sensitive_features=groups).strength_ == 1  # a strength is taken as given


def test_constant_scores_stay_as_they_are():
    y, groups = np.full(80, 3.0), np.repeat(["a", "b"], 40)
    assert_allclose(ScoreRepair().fit_transform(y, sensitive_features=groups), y, rtol=1e-15)
    with pytest.warns(NoGapWarning):
        assert ScoreRepair(bias_reduction=0.5).fit(y, sensitive_features=groups).strength_ == 0


def test_flags_become_even_and_detection_within_groups_stays():
    y, groups = simulated((900, 300))
    repaired = ScoreRepair().fit_transform(y, sensitive_features=groups)
    assert flag_rate_ratio(y, sensitive_features=groups) < 0.5
    assert flag_rate_ratio(repaired, sensitive_features=groups) > 0.95
    labels = np.random.default_rng(0).random(len(y)) < y / y.max()
    for g in "ab":
        rows = groups == g
        assert roc_auc_score(labels[rows], repaired[rows]) == roc_auc_score(labels[rows], y[rows])


def test_frames_and_intersectional_groups_are_read():
    y, groups = simulated()
    series = pd.Series(y, index=np.arange(len(y)) + 10)
    table = pd.DataFrame({"group": groups, "old": np.arange(len(y)) % 2}, index=series.index)
    repair = ScoreRepair(min_group_size=10).fit(series, sensitive_features=table)
    assert repair.groups_ == tuple(f"{g} & {o}" for g in "abcd" for o in (0, 1))
    assert repair.group_counts_.sum() == len(y)
    one = repair.transform([2.0], sensitive_features=pd.DataFrame({"group": ["c"], "old": [1]}))
    assert one == repair.transform([2.0], sensitive_features=["c & 1"])


def test_bad_groups_are_clear_errors():
    y, groups = simulated()
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        ScoreRepair().fit(y)
    repair = ScoreRepair().fit(y, sensitive_features=groups)
    with pytest.raises(ValueError, match=r"sensitive_features is missing.*new rows too"):
        repair.transform(y)
    with pytest.raises(ValueError, match=r"not there in fit: 'x', 'y'; known are 'a', 'b', 'c', 'd'"):
        repair.transform([1.0, 2.0, 3.0], sensitive_features=["a", "y", "x"])
    with pytest.raises(ValueError, match=r"missing values in 2 of 3 rows \(first: row 1\)"):
        repair.transform([1.0, 2.0, 3.0], sensitive_features=["a", None, np.nan])
    with pytest.raises(ValueError, match="3 rows"):
        repair.transform([1.0, 2.0], sensitive_features=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"one group only \('a'\)"):
        ScoreRepair().fit(y, sensitive_features=["a"] * len(y))
    with pytest.raises(ValueError, match=r"fewer than min_group_size=100 rows: 'c' \(90\), 'd' \(40\)"):
        ScoreRepair(min_group_size=100, small_groups="error").fit(y, sensitive_features=groups)


def test_small_groups_keep_their_scores_and_are_named():
    y, groups = simulated((400, 150, 29, 12))
    with pytest.warns(
        SmallGroupWarning, match=r"fewer than min_group_size=30 rows are left out: 'c' \(29\), 'd' \(12\)"
    ):
        repair = ScoreRepair(strength=0.7).fit(y, sensitive_features=groups)
    assert repair.groups_ == ("a", "b")
    assert repair.left_out_ == {"c": 29, "d": 12}
    small = np.isin(groups, ["c", "d"])
    repaired = repair.transform(y, sensitive_features=groups)
    assert_array_equal(repaired[small], y[small])
    alone = ScoreRepair(strength=0.7).fit(y[~small], sensitive_features=groups[~small])
    assert_allclose(
        repaired[~small], alone.transform(y[~small], sensitive_features=groups[~small]), rtol=1e-12
    )
    assert_array_equal(repair.transform([2.0, 5.0], sensitive_features=["d", "c"]), [2.0, 5.0])
    with pytest.raises(ValueError, match="not there in fit: 'e'"):
        repair.transform([1.0], sensitive_features=["e"])


def test_small_groups_can_be_repaired_as_one():
    y, groups = simulated((400, 150, 25, 12))
    repair = ScoreRepair(small_groups="merge").fit(y, sensitive_features=groups)
    assert repair.groups_ == ("a", "b", "merged: c + d")
    together = np.where(np.isin(groups, ["c", "d"]), "x", groups)
    expected = ScoreRepair().fit_transform(y, sensitive_features=together)
    assert_allclose(repair.transform(y, sensitive_features=groups), expected, rtol=1e-12)


def test_with_one_group_that_can_be_measured_nothing_changes():
    y, groups = simulated((400, 20))
    for request_ in ({}, {"bias_reduction": 0.8}):
        with pytest.warns(SmallGroupWarning, match="fewer than two groups are left to compare"):
            repair = ScoreRepair(**request_).fit(y, sensitive_features=groups)
        assert not repair.gap_detected_
        assert repair.strength_ == 0
        assert np.isnan(repair.bias_reduction_)
        assert_array_equal(repair.transform(y, sensitive_features=groups), y)


def test_bad_scores_and_parameters_are_clear_errors():
    y, groups = simulated()
    with pytest.raises(ValueError, match=r"scores must have one number per row"):
        ScoreRepair().fit(y[:, None], sensitive_features=groups)
    with pytest.raises(ValueError, match="scores contains NaN"):
        ScoreRepair().fit(np.where(y > 3, np.nan, y), sensitive_features=groups)
    with pytest.raises(ValueError, match="at most one of them"):
        ScoreRepair(strength=0.5, bias_reduction=0.5).fit(y, sensitive_features=groups)
    for bad in ({"strength": 1.5}, {"bias_reduction": -0.1}, {"min_group_size": 1}, {"small_groups": "keep"}):
        with pytest.raises(ValueError, match=rf"{next(iter(bad))}=.*is not allowed"):
            ScoreRepair(**bad).fit(y, sensitive_features=groups)


def test_it_is_a_scikit_learn_estimator():
    y, groups = simulated()
    repair = ScoreRepair(strength=0.3, min_group_size=20)
    with pytest.raises(Exception, match="not fitted"):
        repair.transform(y, sensitive_features=groups)
    fresh = clone(repair.fit(y, sensitive_features=groups))
    expected = {"strength": 0.3, "bias_reduction": None, "min_group_size": 20, "small_groups": "leave_out"}
    assert fresh.get_params() == expected
    assert not hasattr(fresh, "strength_")
    assert "strength=0.3" in repr(repair)


def test_groups_whose_joined_names_look_alike_have_maps_of_their_own():
    rng = np.random.default_rng(0)
    groups = [["a & b", "c"]] * 50 + [["a", "b & c"]] * 50
    scores = np.r_[rng.normal(size=50), 5 + rng.normal(size=50)]
    repair = ScoreRepair().fit(scores, sensitive_features=groups)
    assert len(repair.groups_) == 2
    repaired = repair.transform(scores, sensitive_features=groups)
    assert abs(repaired[:50].mean() - repaired[50:].mean()) < 1e-9
    np.testing.assert_array_equal(repair.transform(scores[:1], sensitive_features=groups[:1]), repaired[:1])
