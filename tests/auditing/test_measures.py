import numpy as np
import pytest
from scipy.stats import chi2_contingency, f_oneway
from sklearn.metrics import average_precision_score, roc_auc_score

from evenout import Groups, audit, metrics
from evenout.auditing.counted import (
    MEANINGS,
    Meaning,
    chi_square,
    label_measures,
    largest_gap,
    score_measures,
    strata_measures,
)
from evenout.core.resampling import class_table, level_table

HAND_SCORES = np.array([1.0, 2.0, 3.0, 4.0, 3.0, 5.0])
HAND_GROUPS = np.array([0, 0, 0, 0, 1, 1])


def measure_scores(scores, groups, contamination, shares=(), quantiles=()):
    table = level_table(scores, groups, groups.max() + 1)
    found = score_measures(table.counts[None], table.values, contamination, shares, quantiles)
    return {name: value[0] for name, value in found.items()}


def measure_labels(scores, groups, labels, contamination):
    G = groups.max() + 1
    table = level_table(scores, groups, G, labels, 2)
    return {name: v[0] for name, v in label_measures(table.counts.reshape(1, G, 2, -1), contamination).items()}


def measure_strata(scores, groups, strata):
    table = class_table(scores, groups, groups.max() + 1, strata, strata.max() + 1)
    return {name: v[0] for name, v in strata_measures(table.counts[None], table.values, table.edges).items()}


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300).round(1)  # with ties
    return scores, rng.choice(3, 300, p=[0.6, 0.3, 0.1]), rng.integers(0, 2, 300)


def test_score_measures_by_hand():
    found = measure_scores(HAND_SCORES, HAND_GROUPS, 1 / 3, (1 / 3,), (0.5,))
    assert found["mean_score"].tolist() == [2.5, 4.0]
    assert found["score_quantile"].tolist() == [2.5, 4.0]
    assert found["demographic_parity_raw"] == pytest.approx(2.25)
    assert found["demographic_parity"] == pytest.approx(2.25 / (10 / 6))
    assert found["demographic_parity_corrected"] == pytest.approx((2.25 - 5 / 3 / 4 - 2 / 2) / (10 / 6))
    assert found["flag_rate"].tolist() == [0.25, 0.5]  # 4 and 5 are flagged
    assert found["flag_rate_ratio"] == 0.5
    assert found["unflagged_rate_ratio"] == pytest.approx(0.5 / 0.75)
    # variances 5/3 and 2 of the groups, so means 2.5 and 4 with noise 5/12 and 1
    assert found["mean_score_test"] == pytest.approx(1.5**2 / (5 / 12 + 1))
    # thresholds 1, 2, 3, 3, 4, 5: differences of the shares above them
    assert found["threshold_free_gap"] == pytest.approx((0.25 + 0.5 + 0.25 + 0.25 + 0.5 + 0) / 6)
    # shares 1/2, 1/2 on top, 2/3, 1/3 of all
    assert found["top_share_drift"] == pytest.approx(0.5 * np.log(0.5 * 3 / 2) + 0.5 * np.log(0.5 * 3))


def test_score_measures_agree_with_the_metrics(sample):
    scores, groups, _ = sample
    found = measure_scores(scores, groups, 0.13, (0.05, 0.2), (0.1, 0.37))
    of = {"sensitive_features": groups}
    assert found["demographic_parity_raw"] == pytest.approx(metrics.demographic_parity(scores, **of))
    for corrected, name in ((False, "demographic_parity"), (True, "demographic_parity_corrected")):
        expected = metrics.demographic_parity(scores, **of, scale_free=True, corrected=corrected)
        assert found[name] == pytest.approx(expected)
    rates = metrics.flag_rates(scores, **of, contamination=0.13)
    assert found["flag_rate"].tolist() == list(rates.values())
    assert found["flag_rate_ratio"] == metrics.flag_rate_ratio(scores, **of, contamination=0.13)
    parts = [scores[groups == g] for g in range(3)]
    np.testing.assert_allclose(found["mean_score"], [p.mean() for p in parts])
    np.testing.assert_allclose(found["score_quantile"].reshape(3, 2), [np.quantile(p, (0.1, 0.37)) for p in parts])


def test_threshold_free_gap_and_drift_by_slow_formulas(sample):
    scores, groups, _ = sample
    found = measure_scores(scores, groups, 0.1, (0.05, 0.2))
    shares = np.array([[(scores[groups == g] > t).mean() for g in range(3)] for t in scores])
    assert found["threshold_free_gap"] == pytest.approx(np.mean(shares.max(axis=1) - shares.min(axis=1)))
    for drift, share in zip(found["top_share_drift"], (0.05, 0.2), strict=True):
        top = scores > np.percentile(scores, 100 * (1 - share))
        s, o = (np.array([(groups[rows] == g).mean() for g in range(3)]) for rows in (top, scores == scores))
        assert drift == pytest.approx(sum(a * np.log(a / b) for a, b in zip(s, o, strict=True) if a > 0))


def test_chi_squares_are_those_of_scipy(sample):
    scores, groups, labels = sample
    flagged = scores > np.percentile(scores, 80)

    def table(rows):
        return [[(flagged[rows & (groups == g)] == f).sum() for f in (True, False)] for g in range(3)]

    expected = chi2_contingency(table(np.ones(300, dtype=bool)), correction=False).statistic
    assert measure_scores(scores, groups, 0.2)["flag_rate_test"] == pytest.approx(expected)
    found = measure_labels(scores, groups, labels, 0.2)
    for name, label in (("true_positive_rate_test", 1), ("false_positive_rate_test", 0)):
        expected = chi2_contingency(table(labels == label), correction=False).statistic
        assert found[name] == pytest.approx(expected)
    assert chi_square(np.array([0, 0]), np.array([5, 9])) == 0
    assert chi_square(np.array([3, 0, 1]), np.array([5, 0, 9])) == pytest.approx(
        chi_square(np.array([3, 1]), np.array([5, 9]))
    )


@pytest.mark.parametrize("power", [-497, 497])
def test_mean_test_knows_no_scale(power):
    scores, groups = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), np.array([0, 0, 0, 1, 1, 1, 1])
    found = measure_scores(scores, groups, 0.1)["mean_score_test"]
    assert measure_scores(np.ldexp(scores, power), groups, 0.1)["mean_score_test"] == found


def test_mean_test_is_fishers_for_groups_of_equal_size_and_spread():
    rng = np.random.default_rng(0)
    part = rng.normal(size=40)
    scores, groups = np.concatenate([part, part + 0.3, part - 0.2]), np.repeat([0, 1, 2], 40)
    expected = f_oneway(*(scores[groups == g] for g in range(3))).statistic
    assert measure_scores(scores, groups, 0.1)["mean_score_test"] == pytest.approx(2 * expected)


def test_noise_is_the_gap_of_a_table_that_only_resampling_moved(sample):
    """Moved by the same amount in all groups there is none; moved in one group it is that move."""
    scores, groups, _ = sample
    table = level_table(scores, groups, 3)
    drawn = score_measures(table.counts[None], table.values, 0.1, (0.2,), around=table.counts)
    for name, value in drawn.items():
        if name.startswith("noise"):
            assert value == pytest.approx(0, abs=1e-20), name
    grown = table.counts + (np.arange(len(table.values)) == 3) * np.array([[5], [0], [0]])
    found = {
        n: v[0, 0]
        for n, v in score_measures(grown[None], table.values, 0.1, (0.2,), around=table.counts).items()
        if n.startswith("noise")
    }
    rows = [np.repeat(table.values, counts[0]) for counts in (grown, table.counts)]
    moved = rows[0].mean() - rows[1].mean()
    assert found["noise of demographic_parity_raw"] == pytest.approx(2 * moved**2 / 3)
    total = np.repeat(table.values, grown.sum(axis=0))
    assert found["noise of demographic_parity"] == pytest.approx(2 * moved**2 / 3 / total.var())
    off = [abs((rows[0] <= t).mean() - (rows[1] <= t).mean()) for t in total]
    assert found["noise of threshold_free_gap"] == pytest.approx(np.mean(off))


def test_measures_of_a_drawn_table_are_those_of_its_rows(sample):
    scores, groups, labels = sample
    table = level_table(scores, groups, 3, labels, 2)
    (drawn,) = table.bootstrap(1, np.random.default_rng(5))
    cells = np.repeat(np.tile(np.arange(table.counts.shape[1]), 3), drawn[0].ravel())
    rows, members = table.values[cells], np.repeat(np.arange(3), drawn[0].sum(axis=1))
    merged = drawn.reshape(1, 3, 2, -1).sum(axis=2)
    found = score_measures(merged, table.values[: merged.shape[-1]], 0.1, (0.2,), (0.5,))
    expected = measure_scores(rows, members, 0.1, (0.2,), (0.5,))
    for name, value in found.items():
        np.testing.assert_allclose(value[0], expected[name], err_msg=name)


def test_scores_of_any_scale_give_the_same_scale_free_measures(sample):
    scores, groups, _ = sample
    for name, value in measure_scores(scores, groups, 0.1, (0.2,)).items():
        other = measure_scores(1e12 + 1e6 * scores, groups, 0.1, (0.2,))[name]
        if name not in ("mean_score", "score_quantile", "demographic_parity_raw"):
            np.testing.assert_allclose(other, value, rtol=1e-8, err_msg=name)


def test_equal_scores_have_no_scale_free_gap():
    found = measure_scores(np.full(6, 0.1), HAND_GROUPS, 0.2, (0.2,))
    assert np.isnan(found["demographic_parity"]).all()
    assert np.isnan(found["top_share_drift"]).all()
    assert found["demographic_parity_raw"] == 0
    assert found["flag_rate_ratio"] == 1  # nobody is flagged


def test_label_measures_agree_with_scikit_learn(sample):
    scores, groups, labels = sample
    found = measure_labels(scores, groups, labels, 0.15)
    flagged = scores > np.percentile(scores, 85)
    for g in range(3):
        s, y, f = (part[groups == g] for part in (scores, labels, flagged))
        assert found["outlier_rate"][g] == pytest.approx(y.mean())
        assert found["auc"][g] == pytest.approx(roc_auc_score(y, s))
        assert found["average_precision"][g] == pytest.approx(average_precision_score(y, s))
        assert found["true_positive_rate"][g] == pytest.approx(f[y == 1].mean())
        assert found["false_positive_rate"][g] == pytest.approx(f[y == 0].mean())
        assert found["precision"][g] == pytest.approx(y[f].mean())
    assert found["auc_gap"] == pytest.approx(np.ptp(found["auc"]))


def test_label_measures_are_undefined_without_their_rows():
    labels = np.array([0, 0, 0, 0, 0, 1])
    found = measure_labels(HAND_SCORES, HAND_GROUPS, labels, 1 / 3)
    np.testing.assert_array_equal(found["auc"], [np.nan, 1.0])
    np.testing.assert_array_equal(found["true_positive_rate"], [np.nan, 1.0])
    np.testing.assert_array_equal(found["false_positive_rate"], [0.25, 0.0])
    np.testing.assert_array_equal(found["precision"], [0.0, 1.0])
    assert np.isnan(found["auc_gap"])
    assert np.isnan(found["true_positive_rate_test"])
    assert found["precision_gap"] == 1.0


def test_strata_measures_by_hand():
    # stratum 0: means 1 and 3 (four rows); stratum 1: means 5 and 6 (five rows); in stratum 2 one group has one row
    scores = np.array([0.0, 2.0, 2.0, 4.0, 4.0, 6.0, 5.0, 6.0, 7.0, 9.0, 9.0, 5.0])
    groups = np.array([0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1])
    strata = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2])
    found = measure_strata(scores, groups, strata)
    variance = scores.var()
    np.testing.assert_allclose(found["parity_within"], [4 / variance, 1 / variance, np.nan])
    assert found["conditional_parity"] == pytest.approx((4 / 9 * 4 + 5 / 9 * 1) / variance)
    noise = 4 / 9 * (2 / 2 + 2 / 2) + 5 / 9 * (2 / 2 + 1 / 3)
    assert found["conditional_parity_corrected"] == pytest.approx((4 / 9 * 4 + 5 / 9 - noise) / variance)
    # squares between groups 4 and 1.2 over the variances 8/3 and 1.3 within the two strata
    assert found["strata_test"] == pytest.approx(4 / (8 / 3) + 1.2 / 1.3)


def test_strata_measures_by_slow_formula(sample):
    scores = sample[0]
    groups, strata = np.arange(300) % 3, np.random.default_rng(1).integers(0, 4, 300)
    found = measure_strata(scores, groups, strata)
    within, weight, corrected = [], [], []
    for s in range(4):
        rows = strata == s
        of = {"scores": scores[rows], "sensitive_features": groups[rows]}
        within.append(metrics.demographic_parity(**of) / scores.var())
        corrected.append(metrics.demographic_parity(**of, corrected=True) / scores.var())
        weight.append(rows.mean())
    np.testing.assert_allclose(found["parity_within"], within)
    assert found["conditional_parity"] == pytest.approx(np.dot(weight, within))
    assert found["conditional_parity_corrected"] == pytest.approx(np.dot(weight, corrected))


def test_noise_within_strata_is_that_of_each_cell():
    """One cell of one stratum has moved: by 0.5 if the mean of two rows were as sure as that of three."""
    scores = np.array([0.0, 1.0, 2.0, 0.0, 2.0, 1.0, 3.0, 1.0, 2.0])
    groups, strata = np.array([0, 0, 0, 1, 1, 0, 0, 1, 1]), np.repeat([0, 1], [5, 4])
    table = class_table(scores, groups, 2, strata, 2)
    place = {(s, v): i for i, (s, v) in enumerate(zip([0, 0, 0, 1, 1, 1], table.values, strict=True))}
    drawn = table.counts.copy()
    drawn[0, place[0, 0.0]] -= 1  # 0, 1, 2 becomes 1, 1.5 (the mean of 1 and 2)
    found = strata_measures(drawn[None], table.values, table.edges, around=table.counts)
    rows = np.repeat(table.values, drawn.sum(axis=0))
    moved = 0.5**2 * 3 / 2 / rows.var()
    np.testing.assert_allclose(found["noise of parity_within"][0], [moved, 0], atol=1e-12)
    assert found["noise of conditional_parity"].item() == pytest.approx(5 / 9 * moved)


def test_a_gap_that_a_stratum_explains_vanishes_within_it():
    rng = np.random.default_rng(0)
    strata = rng.integers(0, 2, 20_000)
    groups = (rng.random(20_000) < 0.2 + 0.6 * strata).astype(int)
    scores = strata + rng.normal(size=20_000)
    assert measure_scores(scores, groups, 0.1)["demographic_parity"] > 0.25
    assert abs(measure_strata(scores, groups, strata)["conditional_parity_corrected"]) < 0.001


def test_largest_gap_leaves_undefined_groups_out():
    gaps = largest_gap(np.array([[0.1, 0.4, np.nan], [np.nan, np.nan, 0.2]]))
    np.testing.assert_allclose(gaps, [0.3, np.nan])


def test_what_strata_explain_is_the_literal_decomposition():
    """m_g - m = sum_s (p_gs - p_s) m_s, which goes with strata, + sum_s p_gs (m_gs - m_s), which does not."""
    rng = np.random.default_rng(5)
    group, stratum = rng.integers(0, 3, 400), rng.integers(0, 4, 400)
    y = rng.normal(size=400) + stratum + 0.5 * (group == 1)
    options = {"resamples": 0, "groups": Groups(min_size=2)}
    found = audit(y, sensitive_features=group, given=stratum, **options)
    for g in range(3):
        mine, parts = group == g, [stratum == s for s in range(4)]
        explained = 0.0
        for s in parts:
            explained += ((mine & s).sum() / mine.sum() - s.mean()) * y[s].mean()
        within = sum((mine & s).sum() / mine.sum() * (y[mine & s].mean() - y[s].mean()) for s in parts)
        assert found.get("apart_by_strata", str(g)).value == pytest.approx(explained / y.std(), abs=1e-12)
        assert found.get("mean_apart", str(g)).value == pytest.approx((explained + within) / y.std(), abs=1e-12)


def test_a_measure_is_added_by_one_entry(monkeypatch):
    """Words, test, interval and function of a measure are one entry: audit, text and page need nothing else."""

    def off_centre(cut):
        """Largest less smallest share of a group below the median level of all rows."""
        middle = (cut.total >= cut.total[:, -1:] / 2).argmax(axis=1)
        return np.ptp(np.take_along_axis(cut.below, middle[:, None, None], axis=2)[..., 0], axis=1)[:, None]

    entry = Meaning(
        "gap of the shares below the median", 0.0, "high", "gap", 1.0, headline=True,
        of=off_centre, noise=lambda cut, there: np.ptp(cut.below - there.below, axis=1).max(axis=1)[:, None],
    )  # fmt: skip
    monkeypatch.setitem(MEANINGS, "below_median_gap", entry)
    groups = np.repeat(["a", "b"], 200)
    scores = np.random.default_rng(0).normal(size=400) + (groups == "b")
    result = audit(scores, sensitive_features=groups, resamples=99)
    gap = result.get("below_median_gap")
    below = [(scores[groups == g] <= np.sort(scores)[199]).mean() for g in "ab"]
    assert gap.value == pytest.approx(below[0] - below[1])
    assert gap.low < gap.value < gap.high
    assert gap.p == 1 / 100
    assert gap.p < gap.p_adjusted < 1  # corrected with the other tests of scores
    assert "gap of the shares below the median" in repr(result)
    assert "gap of the shares below the median" in result.to_html()
