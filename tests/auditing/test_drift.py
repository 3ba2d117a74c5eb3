import json

import numpy as np
import pytest
from scipy import stats

from evenout import Groups
from evenout.auditing import audit, compare_batches


def batch(seed, n=400, gap=0.0, shift=0.0, share=0.5, groups=("a", "b"), **more):
    rng = np.random.default_rng(seed)
    group = np.where(rng.random(n) < share, groups[0], groups[1])
    scores = rng.normal(size=n) + shift + gap * (group == groups[1])
    return audit(scores, sensitive_features=group, resamples=200, **more)


@pytest.fixture(scope="module")
def earlier():
    return batch(0)


def test_no_drift_between_batches_of_one_kind(earlier):
    drift = batch(1).compare(earlier)
    assert drift.get("score_shift").p_adjusted > 0.05
    assert drift.get("group_mix").p_adjusted > 0.05
    change = drift.get("demographic_parity")
    assert change.low < 0 < change.high
    assert [s.startswith("No ") for s in drift.verdict] == [True, True, True]


def test_moved_scores_bias_and_mix_are_found(earlier):
    later = batch(1, gap=1.0, shift=0.5, share=0.3)
    drift = compare_batches(later, earlier)
    assert drift.get("demographic_parity").low > 0
    assert drift.get("flag_rate_ratio").high < 0
    assert drift.get("group_mix").p_adjusted < 0.01
    assert drift.get("score_shift", "b").change == pytest.approx(1.5, abs=0.2)
    assert drift.verdict[0].startswith("The scores have moved")
    assert drift.verdict[1].startswith("The mix of groups has changed")
    assert drift.verdict[2].startswith("Bias has changed")
    assert "400 later rows against 400 earlier ones" in repr(drift)


def test_tests_are_those_of_scipy_and_corrected(earlier):
    later = batch(1, shift=0.1)
    drift = later.compare(earlier)
    assert drift.get("score_shift").p == stats.ks_2samp(later.scores, earlier.scores).pvalue
    distance = stats.wasserstein_distance(later.scores, earlier.scores) / earlier.scores.std()
    assert drift.get("score_shift").change == pytest.approx(distance)
    table = [later.group_counts, earlier.group_counts]
    assert drift.get("group_mix").p == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue)
    tested = [c for c in drift.changes if not np.isnan(c.p)]
    assert len(tested) == 4  # the scores, those of two groups, the mix
    least = min(tested, key=lambda c: c.p)
    assert least.p_adjusted == pytest.approx(min(4 * least.p, 1))


def test_interval_of_a_share_is_newcombes():
    """56 of 70 against 48 of 80: 0.0524 to 0.3339 (Newcombe 1998, method 10)."""

    def shares(k, n):
        groups = ["a"] * k + ["b"] * (n - k)
        return audit(np.arange(n), sensitive_features=groups, groups=Groups(min_size=2), resamples=0)

    change = shares(56, 70).compare(shares(48, 80)).get("group_share", "a")
    assert change.change == pytest.approx(0.2)
    assert (change.low, change.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_intervals_of_two_values_combine_by_hand(earlier):
    later = batch(1, gap=0.5)
    one, other = later.get("mean_score", "b"), earlier.get("mean_score", "b")
    change = later.compare(earlier).get("mean_score", "b")
    assert change.change == pytest.approx(one.value - other.value)
    below = np.sqrt((one.value - one.low) ** 2 + (other.high - other.value) ** 2)
    assert change.low == pytest.approx(change.change - below)


def test_groups_of_one_batch_only_are_named(earlier):
    drift = batch(1, groups=("b", "c")).compare(earlier)
    assert [note.split(",")[0] for note in drift.notes] == [
        "group 'c' is in the later batch only",
        "group 'a' is in the earlier batch only",
    ]
    assert drift.get("group_mix").p < 1e-10


def test_audits_that_cannot_be_compared_are_refused(earlier):
    with pytest.raises(ValueError, match=r"contamination=0.2 and 0.1; audit both"):
        batch(1, contamination=0.2).compare(earlier)
    with pytest.raises(ValueError, match="no group in common"):
        batch(1, groups=("x", "y")).compare(earlier)


def test_without_intervals_no_change_of_bias_is_claimed_or_denied():
    plain = {"resamples": 0}
    one = audit(np.arange(60.0), sensitive_features=["a", "b"] * 30, **plain)
    assert "no interval" in one.compare(one).verdict[2]


def test_exports_are_tidy_and_json(earlier):
    drift = batch(1).compare(earlier)
    frame = drift.to_frame()
    expected = ["measure", "group", "detail", "earlier", "later", "change", "low", "high", "p", "p_adjusted"]
    assert list(frame.columns) == expected
    assert len(frame) == len(drift.changes)
    record = json.loads(json.dumps(drift.to_dict(), allow_nan=False))
    assert record["changes"][0]["low"] is None
    with pytest.raises(KeyError, match="no change of 'auc'"):
        drift.get("auc")
